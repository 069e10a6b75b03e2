/* Gives the CUDA kernels what they need of a device: memory to work in, in its ledger, and cuBLASLt. */
#include "kernels/cuda/cuda_open.h"

#include "base/arena.h"
#include "device/device_cuda.h"
#include "kernels/cuda/cuda_matmul.h"

#include <stdlib.h>

/* Behind the scratch memory. */
enum { FAULT_AT = CUDA_SCRATCH_BYTES, STEP_AT = FAULT_AT + DEVICE_ALIGN };

_Static_assert(STEP_AT + sizeof(struct cuda_step_values) <= CUDA_RUNTIME_BYTES, "all of it fits");

struct opened {
    struct cuda_context context; /* first: what the kernels are given */
    struct device *device;
    unsigned char *memory;
};

static const uint64_t no_fault = CUDA_NO_FAULT;

void cuda_close(void *context)
{
    struct opened *o = context;
    if (!o)
        return;
    cuda_products_close(o->context.products);
    device_free(o->device, o->memory);
    free(o);
}

int cuda_open(struct device *device, void **context, struct error *err)
{
    const struct cuda_device *gpu = device_context(device);
    struct memory_tag tag = {
        .tensor = -1, .role = ROLE_RUNTIME, .name = "scratch memory of kernels and cuBLASLt"};
    struct opened *o = host_alloc(sizeof *o);
    o->device = device;
    o->memory = device_alloc(device, CUDA_RUNTIME_BYTES, tag, err);
    if (!o->memory || cuda_products_open(&o->context.products, err)) {
        cuda_close(o);
        return -1;
    }
    o->context.compute = gpu->compute;
    o->context.multiprocessors = gpu->multiprocessors;
    o->context.scratch = o->memory;
    o->context.scratch_bytes = CUDA_SCRATCH_BYTES;
    o->context.fault = (uint64_t *)(o->memory + FAULT_AT);
    o->context.step = (struct cuda_step_values *)(o->memory + STEP_AT);
    device_write(device, o->context.fault, &no_fault, sizeof no_fault);
    *context = o;
    return 0;
}

int cuda_begin_step(const struct kernel_context *ctx, const struct step_args *args, struct error *err)
{
    struct cuda_step step = {.lr = args->lr, .beta1 = args->beta1, .beta2 = args->beta2, .t = args->t};
    return cuda_set_step(ctx->device, &step, err);
}

int cuda_check(const struct kernel_context *ctx, struct error *err)
{
    const struct opened *o = ctx->device;
    uint64_t fault = CUDA_NO_FAULT;
    device_read(o->device, &fault, o->context.fault, sizeof fault);
    return device_finish(o->device, err) || cuda_fault_check(fault, err) ? -1 : 0;
}
