/* AdamW, one pass over the flat state. Reads g, m, v and the weights and writes m, v and the weights: 28 bytes per element in
 * F32; with F32 masters of BF16 weights 30, because w is only written. Limited by HBM.
 *
 * Nothing that changes from step to step is an argument of the kernel: learning rate and bias corrections are read from the
 * context (cuda_context.h says why and who writes them), the clipping scale is worked out here from *square_sum. */
#include "kernels/cuda/cuda_pack.cuh"

#include <cmath>

static __global__ void set_step_kernel(cuda_step_values values, cuda_step_values *step)
{
    *step = values;
}

static bool is_same_step(const cuda_step *a, const cuda_step *b)
{
    return a->lr == b->lr && a->beta1 == b->beta1 && a->beta2 == b->beta2 && a->t == b->t;
}

/* The values travel as the kernel's argument: no host memory has to outlive the call. */
extern "C" int cuda_set_step(struct cuda_context *context, const struct cuda_step *step, struct error *err)
{
    if (step->t < 1)
        return error_set(err, "adamw counts steps from 1 and was given step %ld; count from 1",
                         static_cast<long>(step->t));
    if (is_same_step(step, &context->set))
        return 0;
    cuda_step_values values;
    values.lr = step->lr;
    values.rate = static_cast<float>(step->lr / (1 - pow(step->beta1, static_cast<double>(step->t))));
    values.inverse2 = static_cast<float>(1 / (1 - pow(step->beta2, static_cast<double>(step->t))));
    CUDA_LAUNCH(set_step_kernel, dim3(1), dim3(1), 0, context->compute, values, context->step);
    context->set = *step;
    return cuda_launched("set_step", err);
}

struct adamw_constants {
    float beta1, beta2, rest1, rest2; /* rest: 1 - beta */
    float eps, max_norm;              /* max_norm 0: no clipping */
    double decay;
};

/* What the state of one tensor is made of; `exact` has the weights: the F32 masters, or w itself. */
template <typename T> struct adamw_state {
    int64_t count;
    T *w;
    float *exact; /* NULL: w */
    const float *g;
    float *m, *v;
    const float *square_sum;
};

/* min(1, max_norm / (norm + 1e-6)), and NaN for a norm of NaN, which then shows in the weights. */
__device__ static float clip_scale(const float *square_sum, float max_norm)
{
    if (max_norm <= 0)
        return 1;
    float ratio = max_norm / (sqrtf(*square_sum) + 1e-6f);
    return ratio > 1 ? 1 : ratio;
}

template <typename T, int N>
static __global__ void adamw_kernel(adamw_state<T> state, adamw_constants constants,
                                    const cuda_step_values *step)
{
    const float clip = clip_scale(state.square_sum, constants.max_norm), rate = step->rate,
                inverse2 = step->inverse2;
    const float keep = static_cast<float>(1 - step->lr * constants.decay);
    flat_share<N>(state.count, [&](int64_t at, auto pack) {
        constexpr int n = decltype(pack)::value;
        float w[n], g[n], m[n], v[n];
        if (state.exact)
            load_pack(state.exact + at, w);
        else
            load_pack(state.w + at, w);
        load_pack(state.g + at, g);
        load_pack(state.m + at, m);
        load_pack(state.v + at, v);
#pragma unroll
        for (int i = 0; i < n; i++) {
            float gradient = g[i] * clip;
            m[i] = constants.beta1 * m[i] + constants.rest1 * gradient;
            v[i] = constants.beta2 * v[i] + constants.rest2 * gradient * gradient;
            w[i] = keep * w[i] - rate * m[i] / (sqrtf(v[i] * inverse2) + constants.eps);
        }
        store_pack(state.m + at, m);
        store_pack(state.v + at, v);
        store_pack(state.w + at, w);
        if (state.exact)
            store_pack(state.exact + at, w);
    });
}

static adamw_constants constants_of(const adamw_args *args)
{
    adamw_constants constants;
    constants.beta1 = static_cast<float>(args->beta1);
    constants.beta2 = static_cast<float>(args->beta2);
    constants.rest1 = static_cast<float>(1 - args->beta1);
    constants.rest2 = static_cast<float>(1 - args->beta2);
    constants.eps = static_cast<float>(args->eps);
    constants.max_norm = args->square_sum && args->max_norm > 0 ? static_cast<float>(args->max_norm) : 0;
    constants.decay = args->decay;
    return constants;
}

/* Four elements at a time: 16 bytes of F32, and 8 of w in BF16. */
template <typename T> static void launch(const cuda_context *context, const adamw_args *args, bool packed)
{
    enum { PACK = 4 };
    const adamw_state<T> state = {args->count,
                                  static_cast<T *>(args->w),
                                  static_cast<float *>(args->master),
                                  static_cast<const float *>(args->g),
                                  static_cast<float *>(args->m),
                                  static_cast<float *>(args->v),
                                  static_cast<const float *>(args->square_sum)};
    const cuda_step_values *step = context->step;
    if (packed)
        CUDA_LAUNCH((adamw_kernel<T, PACK>), flat_grid(args->count, PACK), dim3(FLAT_THREADS), 0,
                    context->compute, state, constants_of(args), step);
    else
        CUDA_LAUNCH((adamw_kernel<T, 1>), flat_grid(args->count, 1), dim3(FLAT_THREADS), 0, context->compute,
                    state, constants_of(args), step);
}

extern "C" int cuda_adamw(const struct kernel_context *ctx, const struct adamw_args *args, struct error *err)
{
    auto *context = static_cast<cuda_context *>(ctx->device);
    const cuda_step step = {args->lr, args->beta1, args->beta2, args->t};
    if (cuda_check_dtype(args->dtype, "adamw", err) || cuda_set_step(context, &step, err))
        return -1;
    if (args->count == 0)
        return 0;
    bool packed = cuda_are_aligned(args->w, args->master, args->g, args->m, args->v);
    if (args->dtype == DTYPE_BF16)
        launch<bf16>(context, args, packed);
    else
        launch<float>(context, args, packed);
    return cuda_launched("adamw", err);
}
