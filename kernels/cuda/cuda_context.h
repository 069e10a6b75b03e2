/* What the CUDA kernels know of their device: `device` of a struct kernel_context points to one of these. Whoever opens the
 * device fills it; all memory in it is the device's, allocated once. It names no vendor header.
 *
 * Errors that only the device can see. A CPU kernel refuses a token outside the vocabulary before anything is written. A
 * CUDA kernel cannot: the host enqueues it long before it runs. It takes the token's row as zeros (embedding), or leaves its
 * row out (gradients, loss), and notes it in *fault; whoever next waits for the stream reads that word and asks
 * cuda_fault_check(). So the error comes at the end of the step at the latest, before its loss is printed, and the weights
 * in between are worth nothing: the run must end.
 *
 * What changes from step to step. A captured graph repeats the arguments of its launches, so AdamW reads the learning rate
 * and the bias corrections from *step. cuda_set_step() writes it, on the stream and outside of the graph, once before each
 * step; the launcher of adamw calls it too when its arguments differ from what was set last, so that without a graph
 * nobody need think of it. */
#ifndef MEMPLAN_KERNELS_CUDA_CONTEXT_H
#define MEMPLAN_KERNELS_CUDA_CONTEXT_H

#include "base/dtype.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct cuda_products;

/* As much as cuBLASLt recommends for sm_90, which works in the same memory; 64-byte aligned, its contents belong to the
 * kernel that runs. */
enum { CUDA_SCRATCH_BYTES = 32 << 20 };

/* What of AdamW's arguments changes from step to step. */
struct cuda_step {
    double lr, beta1, beta2;
    int64_t t; /* 0 before the first */
};

/* The same worked out, as the device has it. */
struct cuda_step_values {
    double lr;
    float rate, inverse2; /* lr / (1 - beta1^t), 1 / (1 - beta2^t) */
};

struct cuda_context {
    struct CUstream_st *compute; /* a cudaStream_t: every kernel runs on it */
    int multiprocessors;
    struct cuda_products *products; /* cuBLASLt and what it said of products so far (cuda_matmul.h) */
    void *scratch;
    int64_t scratch_bytes;
    uint64_t *fault; /* CUDA_NO_FAULT at first */
    struct cuda_step_values *step;
    struct cuda_step set; /* on the host: what *step will hold when the stream gets there */
};

/* All bytes 0xff. */
#define CUDA_NO_FAULT UINT64_MAX

/* A fault is 1 bit of kind, 31 bits of row and 32 bits of value; of several in a step the least is kept. */
enum cuda_fault { CUDA_FAULT_TOKEN, CUDA_FAULT_TARGET };

/* 0 for CUDA_NO_FAULT, else -1 with the sentence of the CPU's kernels. */
int cuda_fault_check(uint64_t fault, struct error *err);

/* Enqueues what *step shall be, unless it is that already. */
int cuda_set_step(struct cuda_context *context, const struct cuda_step *step, struct error *err);

/* 0 when the kernels have this dtype: F32 or BF16. */
int cuda_check_dtype(enum dtype dtype, const char *kernel, struct error *err);
/* 0 when the scratch memory holds `bytes`. */
int cuda_check_scratch(const struct cuda_context *context, int64_t bytes, const char *kernel,
                       struct error *err);

#endif
