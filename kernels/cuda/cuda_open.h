/* The entries of the CUDA kernels' table that compute nothing; kernels/kernels.h says what they do. */
#ifndef MEMPLAN_KERNELS_CUDA_CUDA_OPEN_H
#define MEMPLAN_KERNELS_CUDA_CUDA_OPEN_H

#include "device/device.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/kernels.h"

/* What cuda_open() takes of the device: the scratch memory, and some words more. */
enum { CUDA_RUNTIME_BYTES = CUDA_SCRATCH_BYTES + 256 };

int cuda_open(struct device *device, void **context, struct error *err);
void cuda_close(void *context); /* NULL is fine */
int cuda_begin_step(const struct kernel_context *ctx, const struct step_args *args, struct error *err);
int cuda_check(const struct kernel_context *ctx, struct error *err);

#endif
