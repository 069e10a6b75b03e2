/* Launches of attention with tiles of one kind; the files that include it choose which. */
#ifndef MEMPLAN_KERNELS_CUDA_ATTENTION_LAUNCH_CUH
#define MEMPLAN_KERNELS_CUDA_ATTENTION_LAUNCH_CUH

#include "kernels/cuda/attention_kernels.cuh"

/* Launches `kernel` with one block per tile of `rows` rows of each of `heads` heads. */
template <typename... Parameters, typename... Arguments>
static int attention_launch(void (*kernel)(Parameters...), const cuda_context *context, int64_t heads,
                            int rows, size_t shared_bytes, struct error *err, const attention_shape &shape,
                            Arguments... arguments)
{
    const unsigned blocks = static_cast<unsigned>(heads * cuda_divide_up(shape.T, rows));
    const cudaError_t status = CUDA_ALLOW_SHARED(kernel, shared_bytes);
    if (status != cudaSuccess) {
        cudaGetLastError(); /* or the next launch would find this error */
        return error_set(
            err,
            "attention over heads of %d elements needs %zu bytes of shared memory per block: %s; use smaller "
            "heads, --precision bf16 or a GPU with more",
            shape.D, shared_bytes, cudaGetErrorString(status));
    }
    CUDA_LAUNCH(kernel, dim3(blocks), dim3(ATTENTION_THREADS), shared_bytes, context->compute, shape,
                arguments...);
    return cuda_launched("attention", err);
}

template <typename E, bool WINDOWED>
static int attention_launch_forward_as(const cuda_context *context, const attention_shape &shape,
                                       const attention_args *args, struct error *err)
{
    using T = typename E::T;
    return attention_launch(attention_forward<E, WINDOWED>, context, args->B * args->H, E::ROWS,
                            attention_forward_layout<E>::SHARED_BYTES, err, shape,
                            static_cast<const T *>(args->qkv), static_cast<T *>(args->out),
                            static_cast<float *>(args->lse));
}

/* With WINDOW_E where there is a window. */
template <typename E, typename WINDOW_E = E>
static int attention_launch_forward(const cuda_context *context, const attention_shape &shape,
                                    const attention_args *args, struct error *err)
{
    return shape.window < shape.T ? attention_launch_forward_as<WINDOW_E, true>(context, shape, args, err)
                                  : attention_launch_forward_as<E, false>(context, shape, args, err);
}

template <typename T> static attention_grad<T> attention_grad_of(const attention_grad_args *args)
{
    return {static_cast<const T *>(args->dout), static_cast<const T *>(args->qkv),
            static_cast<const float *>(args->lse), static_cast<const float *>(args->delta),
            static_cast<T *>(args->dqkv)};
}

template <typename E, int STAGES, int WHAT>
static int attention_launch_keys(const cuda_context *context, const attention_shape &shape,
                                 const attention_grad_args *args, struct error *err)
{
    return attention_launch(attention_keys_grad<E, STAGES, WHAT>, context, args->B * args->K, E::ROWS,
                            attention_grad_layout<E, STAGES>::SHARED_BYTES, err, shape,
                            attention_grad_of<typename E::T>(args));
}

template <typename E, int STAGES>
static int attention_launch_queries(const cuda_context *context, const attention_shape &shape,
                                    const attention_grad_args *args, struct error *err)
{
    return attention_launch(attention_queries_grad<E, STAGES>, context, args->B * args->H, E::ROWS,
                            attention_grad_layout<E, STAGES>::SHARED_BYTES, err, shape,
                            attention_grad_of<typename E::T>(args));
}

template <typename T, int N>
static int attention_launch_delta(const cuda_context *context, const attention_shape &shape,
                                  const attention_grad_args *args, struct error *err)
{
    const int64_t rows = args->B * args->T * args->H;
    const int64_t blocks = cuda_divide_up(rows * DELTA_LANES, ATTENTION_THREADS);
    CUDA_LAUNCH((attention_delta<T, N>), dim3(static_cast<unsigned>(blocks)), dim3(ATTENTION_THREADS), 0,
                context->compute, shape, rows, static_cast<const T *>(args->dout),
                static_cast<const T *>(args->out), static_cast<float *>(args->delta));
    return cuda_launched("attention_grad", err);
}

/* delta, then dK and dV, in one pass over the queries or two, then dQ. KEYS and QUERIES are the tiles of the two kernels. */
template <typename KEYS, typename QUERIES, int STAGES, bool TWO_PASSES>
static int attention_launch_grad(const cuda_context *context, const attention_shape &shape,
                                 const attention_grad_args *args, struct error *err)
{
    using T = typename KEYS::T;
    constexpr int FIRST = TWO_PASSES ? ATTENTION_DV : ATTENTION_DK | ATTENTION_DV;
    if (shape.wide ? attention_launch_delta<T, cuda_pack<T>>(context, shape, args, err)
                   : attention_launch_delta<T, 1>(context, shape, args, err))
        return -1;
    if (attention_launch_keys<KEYS, STAGES, FIRST>(context, shape, args, err))
        return -1;
    if constexpr (TWO_PASSES)
        if (attention_launch_keys<KEYS, STAGES, ATTENTION_DK>(context, shape, args, err))
            return -1;
    return attention_launch_queries<QUERIES, STAGES>(context, shape, args, err);
}

#endif
