/* Stands in for a tool that listens to NVTX, as Nsight Systems does, and CUPTI: where NVTX_INJECTION64_PATH names the library that
 * this is in, NVTX loads it and calls InitializeInjectionNvtx2(). Ranges go to CUPTI's double, and where
 *
 *     DOUBLE_NVTX_LOG=FILE
 *
 * is set into that file, a line each when it begins: how many are around it on its thread, its domain, its name. A range that ends
 * and was never begun, or begins and is still there when its thread has ended the program, is a complaint. */
#include "tests/cuda/double_cupti.h"
#include "tests/cuda/double_runtime.h"

#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64 };

/* Of NVTX's own type, which is never defined. Never freed. */
struct nvtxDomainRegistration_st {
    struct nvtxDomainRegistration_st *next;
    char name[64];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvtxDomainRegistration_st *domains;
static int open_ranges;
static _Thread_local unsigned numbers[DEEPEST];
static _Thread_local int depth;

__attribute__((destructor)) static void check_nothing_left(void)
{
    if (open_ranges)
        double_complain("the program ends and leaves %d ranges of NVTX open", open_ranges);
}

static nvtxDomainHandle_t create(const char *name)
{
    struct nvtxDomainRegistration_st *domain = calloc(1, sizeof *domain);
    snprintf(domain->name, sizeof domain->name, "%s", name);
    pthread_mutex_lock(&lock);
    domain->next = domains;
    domains = domain;
    pthread_mutex_unlock(&lock);
    return domain;
}

static void log_range(const char *domain, const char *name)
{
    static FILE *file;
    const char *path = getenv("DOUBLE_NVTX_LOG");
    pthread_mutex_lock(&lock);
    if (!file && path && *path)
        file = fopen(path, "w");
    if (file)
        fprintf(file, "%d %s %s\n", depth, domain, name);
    open_ranges++;
    pthread_mutex_unlock(&lock);
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
    if (attributes->version != NVTX_VERSION || attributes->size != NVTX_EVENT_ATTRIB_STRUCT_SIZE ||
        attributes->messageType != NVTX_MESSAGE_TYPE_ASCII || depth == DEEPEST) {
        double_complain("nvtxDomainRangePushEx: attributes that are none, or %d ranges in each other", depth);
        return NVTX_FAIL;
    }
    log_range(domain->name, attributes->message.ascii);
    numbers[depth] = double_cupti_range_begin(domain->name, attributes->message.ascii);
    return depth++;
}

static int pop(nvtxDomainHandle_t domain)
{
    if (!depth) {
        double_complain("nvtxDomainRangePop: no range of %s is open", domain->name);
        return NVTX_FAIL;
    }
    double_cupti_range_end(domain->name, numbers[--depth]);
    pthread_mutex_lock(&lock);
    open_ranges--;
    pthread_mutex_unlock(&lock);
    return depth;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable functions;
    unsigned count;
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &count) ||
        count <= NVTX_CBID_CORE2_DomainCreateA)
        return 0;
    *functions[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
    *functions[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *functions[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
