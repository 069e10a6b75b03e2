#include "profiler/cupti_calls.h"

#include <dlfcn.h>
#include <stdlib.h>

/* A CUPTI that is part of the process already (another tool's, or a test's) is the one to use: a second copy would be a
 * second client. Such entries are resolved when this library is loaded; else they are NULL. */
#define WEAK_CALL(name) __typeof__(name) name __attribute__((weak, visibility("default")));
CUPTI_CALLS(WEAK_CALL)

#define STRING(x)   #x
#define NUMBER(x)   STRING(x)
#define CUPTI_MAJOR 13
_Static_assert(CUPTI_API_VERSION / 10000 == CUPTI_MAJOR, "the name of the library has the version in it");

static struct cupti_calls calls;

static int find_all(void *library, struct error *err)
{
#define FIND_CALL(name)                                                                                      \
    *(void **)&calls.name = library ? dlsym(library, #name) : (void *)name;                                  \
    if (!calls.name)                                                                                         \
        return error_set(                                                                                    \
            err, "this CUPTI has no %s; install the CUPTI of CUDA " NUMBER(CUPTI_MAJOR) ".0 or newer",       \
            #name);
    CUPTI_CALLS(FIND_CALL)
    return 0;
}

/* A newer CUPTI may make longer records, which is no matter: fields are only ever added at the end. An older one makes shorter
 * ones. */
static int check_version(struct error *err)
{
    uint32_t version = 0;
    CUptiResult result = calls.cuptiGetVersion(&version);
    if (result != CUPTI_SUCCESS)
        return cupti_calls_error(&calls, "cuptiGetVersion", result, err);
    if (version < CUPTI_API_VERSION)
        return error_set(
            err, "this CUPTI is older (%u) than the one memplan was built with (%d); install a newer one",
            (unsigned)version, CUPTI_API_VERSION);
    return 0;
}

int cupti_calls_open(const struct cupti_calls **out, struct error *err)
{
    void *library = NULL;
    const char *named = getenv("MEMPLAN_CUPTI_LIBRARY");
    if (named || !cuptiSubscribe_v2) {
        library = dlopen(named ? named : "libcupti.so." NUMBER(CUPTI_MAJOR), RTLD_NOW | RTLD_LOCAL);
        if (!library)
            return error_set(err,
                             "CUPTI cannot be loaded (%s); add its folder, such as "
                             "/usr/local/cuda/extras/CUPTI/lib64, to LD_LIBRARY_PATH",
                             dlerror());
    }
    if (find_all(library, err) || check_version(err))
        return -1;
    *out = &calls;
    return 0;
}

const char *cupti_calls_file(const struct cupti_calls *c)
{
    Dl_info info;
    return dladdr((void *)c->cuptiSubscribe_v2, &info) ? info.dli_fname : NULL;
}

static const char *way_out(CUptiResult result)
{
    switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
        return "the driver lets only the administrator profile: load the module nvidia with "
               "NVreg_RestrictProfilingToAdminUsers=0, or run as root";
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
    case CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED:
        return "this kind of GPU or machine allows no such profiling; profile on another";
    default:
        return "look whether driver and CUPTI are of the same CUDA version";
    }
}

int cupti_calls_error(const struct cupti_calls *c, const char *call, CUptiResult result, struct error *err)
{
    const char *name = NULL;
    c->cuptiGetResultString(result, &name);
    return error_set(err, "%s failed: %s (%d); %s", call, name ? name : "unknown result", (int)result,
                     way_out(result));
}
