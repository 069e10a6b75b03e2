/* The kinds of device, by name. */
#include "device/backend.h"
#include "device/cuda_library.h"
#include "device/device.h"

#include <string.h>

static int open_cpu(const struct device_choice *choice, struct device **out, struct error *err)
{
    return device_open_cpu(choice->capacity_bytes, choice->poison, out, err);
}

static int open_cuda(const struct device_choice *choice, struct device **out, struct error *err)
{
    const struct cuda_library *library;
    const struct backend *backend;
    void *context;
    if (cuda_library_open(&library, err) ||
        library->open(choice->ordinal, choice->used, &backend, &context, err))
        return -1;
    *out = device_create(backend, context, choice->capacity_bytes, choice->poison);
    return 0;
}

static const struct {
    const char *name;
    int (*open)(const struct device_choice *choice, struct device **out, struct error *err);
} kinds[] = {{"cpu", open_cpu}, {"cuda", open_cuda}};

int device_open(const struct device_choice *choice, struct device **out, struct error *err)
{
    const char *name = choice->kind ? choice->kind : "cpu";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, name))
            return kinds[i].open(choice, out, err);
    return error_set(err, "device \"%s\" is unknown; a run has cpu or cuda", name);
}
