/* Attention by dtype: kernels/cuda/attention.cu checks the arguments and asks the file of their dtype. */
#ifndef MEMPLAN_KERNELS_CUDA_ATTENTION_CUH
#define MEMPLAN_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/attention_tile.cuh"

/* Heads of 1 to this many elements. */
enum { ATTENTION_LARGEST_HEAD = 256 };

int attention_bf16_forward(const cuda_context *, const attention_shape &, const attention_args *,
                           struct error *);
int attention_bf16_backward(const cuda_context *, const attention_shape &, const attention_grad_args *,
                            struct error *);
int attention_f32_forward(const cuda_context *, const attention_shape &, const attention_args *,
                          struct error *);
int attention_f32_backward(const cuda_context *, const attention_shape &, const attention_grad_args *,
                           struct error *);

#endif
