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

/* Where there are several ranks NCCL takes memory too, connection by connection: 10 MiB for each of a ring's channels (NCCL 2.30;
 * NVIDIA/nccl#1685), up to 24 between GPUs that share NVLink, and trees besides. A rank has two groups of all ranks or more. Chosen
 * from those figures, not measured. */
static const int64_t nccl_bytes = 1LL << 30;

static int check_count(const struct cuda_choice *choice, int devices, struct error *err)
{
    if (choice->first + choice->used <= devices)
        return 0;
    return error_set(err,
                     "%d ranks need a GPU each and this process sees %d; use fewer ranks (--dp, --tp, --pp)",
                     choice->first + choice->used, devices);
}

void cuda_library_join(struct cuda_machine *all, const struct cuda_machine *other)
{
    if (other->most_free_bytes > all->most_free_bytes)
        all->most_free_bytes = other->most_free_bytes;
    if (all->device.total_bytes && all->device.free_bytes <= other->device.free_bytes)
        return;
    all->device = other->device;
    all->capacity_bytes = other->capacity_bytes;
}

int cuda_library_measure(const struct cuda_choice *choice, struct cuda_machine *out, struct error *err)
{
    const struct cuda_library *library;
    int devices;
    int64_t left_bytes = margin_bytes + (choice->ranks > 1 ? nccl_bytes : 0);
    if (cuda_library_open(&library, err) || library->count(&devices, err) ||
        check_count(choice, devices, err))
        return -1;
    *out = (struct cuda_machine){0};
    for (int i = choice->first; i < choice->first + choice->used; i++) {
        struct cuda_machine one;
        if (library->describe(i, &one.device, err))
            return -1;
        one.most_free_bytes = one.device.free_bytes;
        one.capacity_bytes = one.device.free_bytes - left_bytes;
        cuda_library_join(out, &one);
    }
    if (out->capacity_bytes <= 0)
        return error_set(
            err,
            "GPU %s has %lld MiB free, too little to work with; end what else runs on it, or use "
            "--device cpu",
            out->device.name, (long long)(out->device.free_bytes >> 20));
    return 0;
}
