/* Matrix products for the CPU kernels, by oneDNN; cpu_gemm.c is the only file that knows it. Safe to call from several
 * threads at once (ranks of one process), each with its own number of threads; the same call gives the same bits. */
#ifndef MEMPLAN_KERNELS_CPU_GEMM_H
#define MEMPLAN_KERNELS_CPU_GEMM_H

#include "base/dtype.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* c(m,n) = start(m,n) + bias(n) + op(a)(m,k) op(b)(k,n), all dense and row-major. */
struct cpu_gemm {
    bool transpose_a, transpose_b; /* a is stored (k,m); b is stored (n,k) */
    int64_t m, n, k;
    const void *a, *b;
    const void *start; /* type of c; NULL is zero; may be c itself: the product is then accumulated */
    const void *bias;  /* type of a; NULL is zero */
    void *c;
    int threads;
};

/* Everything F32. */
int cpu_gemm_f32(const struct cpu_gemm *gemm, struct error *err);

/* a, b and bias BF16; c and start F32 or BF16 (`c_dtype`). Sums are F32 and are rounded once. */
int cpu_gemm_bf16(const struct cpu_gemm *gemm, enum dtype c_dtype, struct error *err);

#endif
