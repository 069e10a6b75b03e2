/* GELU, SwiGLU and GEGLU, and their gradients; one thread takes 16 bytes. All are limited by HBM:
 *     gelu         reads 1, writes 1: 8 bytes per element in F32, 4 in BF16
 *     gelu_grad    reads 2, writes 1: 12 bytes, 6 in BF16
 *     swiglu       reads 2, writes 1 per output: 12 bytes, 6 in BF16
 *     swiglu_grad  reads 3, writes 2 per output: 20 bytes, 10 in BF16
 *
 * GELU's tanh form is x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3), because (1 + tanh u) / 2 = sigmoid(2u): one
 * exponential, and no cancellation where x is far below zero. */
#include "kernels/cuda/cuda_pack.cuh"

constexpr float two_root = 1.59576912f; /* 2 sqrt(2/pi) */
constexpr float cubic = 0.044715f;

struct sigmoid {
    float value, rest; /* they add to 1, and both have all their digits */

    __device__ explicit sigmoid(float x)
    {
        float tail = expf(-fabsf(x)), large = 1 / (1 + tail), small = tail * large;
        value = x < 0 ? small : large;
        rest = x < 0 ? large : small;
    }
};

__device__ __forceinline__ float gelu(float x)
{
    return x * sigmoid(two_root * x * (1 + cubic * x * x)).value;
}

/* With s = sigmoid(2u): gelu' = s + x s (1 - s) 2u'. From 16 on it is 0 or 1 to all digits, and there x stops: its cube
 * would outgrow the smallest s. */
__device__ __forceinline__ float gelu_slope(float x)
{
    const float far = 16;
    float near = x < -far ? -far : x > far ? far : x, square = near * near;
    sigmoid s(two_root * near * (1 + cubic * square));
    return s.value + near * s.value * s.rest * (two_root * (1 + 3 * cubic * square));
}

template <typename T, int N> static __global__ void gelu_kernel(int64_t count, const T *x, T *y)
{
    flat_share<N>(count, [&](int64_t at, auto pack) {
        float values[decltype(pack)::value];
        load_pack(x + at, values);
#pragma unroll
        for (float &value : values)
            value = gelu(value);
        store_pack(y + at, values);
    });
}

template <typename T, int N> static __global__ void gelu_grad_kernel(int64_t count, const T *x, T *d)
{
    flat_share<N>(count, [&](int64_t at, auto pack) {
        constexpr int n = decltype(pack)::value;
        float values[n], gradients[n];
        load_pack(x + at, values);
        load_pack(d + at, gradients);
#pragma unroll
        for (int i = 0; i < n; i++)
            gradients[i] *= gelu_slope(values[i]);
        store_pack(d + at, gradients);
    });
}

/* What gates: a value and its slope. */
template <bool GELU> __device__ __forceinline__ float gate_value(float x)
{
    if constexpr (GELU)
        return gelu(x);
    return x * sigmoid(x).value;
}

/* silu'(x) = s (1 + x (1 - s)) */
template <bool GELU> __device__ __forceinline__ float gate_slope(float x)
{
    if constexpr (GELU)
        return gelu_slope(x);
    const sigmoid s(x);
    return s.value * (1 + x * s.rest);
}

template <typename T, int N, bool GELU> static __global__ void swiglu_kernel(int64_t F, const T *gate_up, T *y)
{
    const int64_t row = blockIdx.x;
    const T *gates = gate_up + 2 * row * F, *ups = gates + F;
    for (int64_t f = static_cast<int64_t>(threadIdx.x) * N; f < F;
         f += static_cast<int64_t>(blockDim.x) * N) {
        float gate[N], up[N];
        load_pack(gates + f, gate);
        load_pack(ups + f, up);
#pragma unroll
        for (int i = 0; i < N; i++)
            gate[i] = gate_value<GELU>(gate[i]) * up[i];
        store_pack(y + row * F + f, gate);
    }
}

template <typename T, int N, bool GELU>
static __global__ void swiglu_grad_kernel(int64_t F, const T *dy, T *gate_up)
{
    const int64_t row = blockIdx.x;
    T *gates = gate_up + 2 * row * F, *ups = gates + F;
    for (int64_t f = static_cast<int64_t>(threadIdx.x) * N; f < F;
         f += static_cast<int64_t>(blockDim.x) * N) {
        float gate[N], up[N], d[N];
        load_pack(gates + f, gate);
        load_pack(ups + f, up);
        load_pack(dy + row * F + f, d);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float d_up = d[i] * gate_value<GELU>(gate[i]);
            gate[i] = d[i] * up[i] * gate_slope<GELU>(gate[i]);
            up[i] = d_up;
        }
        store_pack(gates + f, gate);
        store_pack(ups + f, up);
    }
}

struct gelu_launch {
    template <typename T, int N> static void run(const cuda_context *context, const gelu_args *args)
    {
        CUDA_LAUNCH((gelu_kernel<T, N>), flat_grid(args->count, N), dim3(FLAT_THREADS), 0, context->compute,
                    args->count, static_cast<const T *>(args->x), static_cast<T *>(args->y));
    }
};

struct gelu_grad_launch {
    template <typename T, int N> static void run(const cuda_context *context, const gelu_grad_args *args)
    {
        CUDA_LAUNCH((gelu_grad_kernel<T, N>), flat_grid(args->count, N), dim3(FLAT_THREADS), 0,
                    context->compute, args->count, static_cast<const T *>(args->x),
                    static_cast<T *>(args->d));
    }
};

static unsigned row_threads(int64_t F, int n)
{
    return cuda_threads(cuda_divide_up(F, n), 256);
}

template <bool GELU> struct swiglu_launch {
    template <typename T, int N> static void run(const cuda_context *context, const swiglu_args *args)
    {
        CUDA_LAUNCH((swiglu_kernel<T, N, GELU>), dim3(static_cast<unsigned>(args->R)),
                    dim3(row_threads(args->F, N)), 0, context->compute, args->F,
                    static_cast<const T *>(args->gate_up), static_cast<T *>(args->y));
    }
};

template <bool GELU> struct swiglu_grad_launch {
    template <typename T, int N> static void run(const cuda_context *context, const swiglu_grad_args *args)
    {
        CUDA_LAUNCH((swiglu_grad_kernel<T, N, GELU>), dim3(static_cast<unsigned>(args->R)),
                    dim3(row_threads(args->F, N)), 0, context->compute, args->F,
                    static_cast<const T *>(args->dy), static_cast<T *>(args->gate_up));
    }
};

extern "C" int cuda_gelu(const struct kernel_context *ctx, const struct gelu_args *args, struct error *err)
{
    if (cuda_check_dtype(args->dtype, "gelu", err))
        return -1;
    if (args->count == 0)
        return 0;
    cuda_choose<gelu_launch>(args->dtype, cuda_are_aligned(args->x, args->y), cuda_of(ctx), args);
    return cuda_launched("gelu", err);
}

extern "C" int cuda_gelu_grad(const struct kernel_context *ctx, const struct gelu_grad_args *args,
                              struct error *err)
{
    if (cuda_check_dtype(args->dtype, "gelu_grad", err))
        return -1;
    if (args->count == 0)
        return 0;
    cuda_choose<gelu_grad_launch>(args->dtype, cuda_are_aligned(args->x, args->d), cuda_of(ctx), args);
    return cuda_launched("gelu_grad", err);
}

extern "C" int cuda_swiglu(const struct kernel_context *ctx, const struct swiglu_args *args,
                           struct error *err)
{
    if (cuda_check_dtype(args->dtype, "swiglu", err))
        return -1;
    if (args->R == 0)
        return 0;
    bool packed = cuda_packs_rows(args->dtype, args->F) && cuda_are_aligned(args->gate_up, args->y);
    if (args->gelu)
        cuda_choose<swiglu_launch<true>>(args->dtype, packed, cuda_of(ctx), args);
    else
        cuda_choose<swiglu_launch<false>>(args->dtype, packed, cuda_of(ctx), args);
    return cuda_launched("swiglu", err);
}

extern "C" int cuda_swiglu_grad(const struct kernel_context *ctx, const struct swiglu_grad_args *args,
                                struct error *err)
{
    if (cuda_check_dtype(args->dtype, "swiglu_grad", err))
        return -1;
    if (args->R == 0)
        return 0;
    bool packed = cuda_packs_rows(args->dtype, args->F) && cuda_are_aligned(args->gate_up, args->dy);
    if (args->gelu)
        cuda_choose<swiglu_grad_launch<true>>(args->dtype, packed, cuda_of(ctx), args);
    else
        cuda_choose<swiglu_grad_launch<false>>(args->dtype, packed, cuda_of(ctx), args);
    return cuda_launched("swiglu_grad", err);
}
