/* What the launchers of all CUDA kernels refuse alike, and what a fault that a kernel met says. */
#include "kernels/cuda/cuda_context.h"

int cuda_fault_check(uint64_t fault, struct error *err)
{
    if (fault == CUDA_NO_FAULT)
        return 0;
    long row = (long)(fault >> 32 & 0x7fffffff);
    int32_t value = (int32_t)(uint32_t)fault;
    if (fault >> 63 == CUDA_FAULT_TOKEN)
        return error_set(err, "token %ld is %d, outside the vocabulary; check the data or --vocab", row,
                         value);
    return error_set(err, "target %ld is %d, outside the vocabulary and not -1; check the data", row, value);
}

int cuda_check_dtype(enum dtype dtype, const char *kernel, struct error *err)
{
    if (dtype == DTYPE_F32 || dtype == DTYPE_BF16)
        return 0;
    return error_set(err, "the CUDA kernel %s has no %s form; use F32 or BF16, or the reference kernels",
                     kernel, dtype_name(dtype));
}

int cuda_check_scratch(const struct cuda_context *context, int64_t bytes, const char *kernel,
                       struct error *err)
{
    if (bytes <= context->scratch_bytes)
        return 0;
    return error_set(
        err, "the CUDA kernel %s needs %ld bytes of scratch memory and has %ld; use smaller micro-batches",
        kernel, (long)bytes, (long)context->scratch_bytes);
}
