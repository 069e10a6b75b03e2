/* Finds and loads the CUDA back end's library, and asks it what the GPUs of this machine hold. */
#include "device/cuda_library.h"

#include "base/library.h"

#include <dlfcn.h>
#include <pthread.h>

/* Left to what grows after the context is there and is in nobody's ledger: code of kernels, loaded when they first run, and
 * the memory behind their stacks, which when full is 264 MiB on a card of 132 multiprocessors (x 2048 threads x 1 KiB).
 * Chosen from those figures, not measured. */
static const int64_t margin_bytes = 512LL << 20;

static int load_library(const struct cuda_library **out, struct error *err)
{
    void *handle = library_open(CUDA_LIBRARY_FILE, "MEMPLAN_CUDA_LIBRARY", RTLD_NOW | RTLD_LOCAL);
    const struct cuda_library *library = handle ? dlsym(handle, CUDA_LIBRARY_SYMBOL) : NULL;
    if (!library)
        return error_set(
            err, "the CUDA back end cannot be loaded (%s); build it with `make cuda`, or use --device cpu",
            dlerror());
    if (library->version != CUDA_LIBRARY_VERSION)
        return error_set(err,
                         "the CUDA back end is of another version of memplan (%d, not %d); build it again "
                         "with `make cuda`",
                         library->version, CUDA_LIBRARY_VERSION);
    *out = library;
    return 0;
}

int cuda_library_open(const struct cuda_library **out, struct error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const struct cuda_library *loaded;
    pthread_mutex_lock(&lock);
    int status = loaded ? 0 : load_library(&loaded, err);
    *out = loaded;
    pthread_mutex_unlock(&lock);
    return status;
}

int cuda_library_measure(int used, struct cuda_machine *out, struct error *err)
{
    const struct cuda_library *library;
    int devices;
    if (cuda_library_open(&library, err) || library->count(&devices, err))
        return -1;
    if (used > devices)
        return error_set(
            err, "%d ranks need a GPU each and this process sees %d; use fewer ranks (--dp, --tp, --pp)",
            used, devices);
    *out = (struct cuda_machine){0};
    for (int i = 0; i < used; i++) {
        struct cuda_description device;
        if (library->describe(i, &device, err))
            return -1;
        if (i == 0 || device.free_bytes < out->device.free_bytes)
            out->device = device;
        if (device.free_bytes > out->most_free_bytes)
            out->most_free_bytes = device.free_bytes;
    }
    out->capacity_bytes = out->device.free_bytes - margin_bytes;
    if (out->capacity_bytes <= 0)
        return error_set(
            err,
            "GPU %s has %lld MiB free, too little to work with; end what else runs on it, or use "
            "--device cpu",
            out->device.name, (long long)(out->device.free_bytes >> 20));
    return 0;
}
