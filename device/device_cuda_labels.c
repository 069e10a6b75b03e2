/* NVTX looks for a tool when it is first called (NVTX_INJECTION64_PATH, which Nsight Systems and our own profiler set), and gives
 * a domain only where there is one. */
#include "device/device_cuda_labels.h"

#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stddef.h>

static nvtxDomainHandle_t domain;

static void find_tool(void)
{
    domain = nvtxDomainCreateA(DEVICE_CUDA_DOMAIN);
}

bool device_cuda_is_watched(void *context)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)context;
    pthread_once(&once, find_tool);
    return domain != NULL;
}

void device_cuda_label(void *context, const char *text)
{
    (void)context;
    if (!text) {
        nvtxDomainRangePop(domain);
        return;
    }
    nvtxEventAttributes_t attributes = {
        .version = NVTX_VERSION,
        .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
        .messageType = NVTX_MESSAGE_TYPE_ASCII,
        .message = {.ascii = text},
    };
    nvtxDomainRangePushEx(domain, &attributes);
}
