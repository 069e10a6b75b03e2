/* Softmax cross-entropy over the vocabulary, in place. Limits, with E bytes per logit:
 *     cross_entropy          reads once for maximum and sum together; the gradient reads once more and writes: E bytes per
 *                            logit without it, 3E with it, of which the second reading mostly comes from the L2 cache (a
 *                            row of 50,257 in BF16 is 98 KiB). Limited by HBM.
 *     logit_max, logit_sums  read once: E bytes per logit each, limited by HBM
 *     cross_entropy_sharded  the gradient reads and writes: 2E bytes per logit, limited by HBM
 *
 * A block has a row, which starts at any address: vocabularies are odd. The maximum moves while a thread reads its share: it
 * scales down what it has summed so far whenever a larger logit comes. Losses of rows are added by one block, in order. */
#include "kernels/cuda/cuda_fault.cuh"
#include "kernels/cuda/cuda_pack.cuh"
#include "kernels/cuda/cuda_reduce.cuh"

#include <cfloat>
#include <cmath>

/* What the kernels know of the logits: struct logit_shard with its types. */
template <typename T> struct shard {
    int64_t R, V, first_column, valid, vocabulary;
    T *logits;
    const int32_t *targets;
    uint64_t *fault;

    __device__ T *row() const
    {
        return logits + blockIdx.x * V;
    }

    /* This row's target, or -1: to be ignored. A target that does not exist is noted and ignored. */
    __device__ int32_t target() const
    {
        const int32_t target = targets[blockIdx.x];
        if (target >= -1 && target < vocabulary)
            return target;
        if (threadIdx.x == 0)
            note_fault(fault, CUDA_FAULT_TARGET, blockIdx.x, target);
        return -1;
    }

    /* Where the target's logit is, or -1: other ranks have it. */
    __device__ int64_t target_column() const
    {
        const int64_t column = target() - first_column;
        return column >= 0 && column < valid ? column : -1;
    }
};

/* The largest logit of this thread's share, -INFINITY without one or where only NaN are. */
template <typename T> __device__ float share_max(const shard<T> &logits)
{
    float max = -INFINITY;
    row_share<cuda_pack<T>>(logits.row(), logits.valid, [&](int64_t at, auto pack) {
        float x[decltype(pack)::value];
        load_pack(logits.row() + at, x);
#pragma unroll
        for (float value : x)
            max = larger::of(value, max);
    });
    return max;
}

/* sum of exp(x - max) over this thread's share */
template <typename T> __device__ float share_sum(const shard<T> &logits, float max)
{
    float sum = 0;
    row_share<cuda_pack<T>>(logits.row(), logits.valid, [&](int64_t at, auto pack) {
        float x[decltype(pack)::value];
        load_pack(logits.row() + at, x);
#pragma unroll
        for (float value : x)
            sum += expf(value - max);
    });
    return sum;
}

struct exponentials {
    float max, sum; /* sum of exp(x - max) */
};

/* Both at once. The maximum starts at -FLT_MAX and not -INFINITY, which a row of those would subtract from itself. */
template <typename T> __device__ exponentials share_exponentials(const shard<T> &logits)
{
    exponentials all = {-FLT_MAX, 0};
    row_share<cuda_pack<T>>(logits.row(), logits.valid, [&](int64_t at, auto pack) {
        float x[decltype(pack)::value], max = all.max;
        load_pack(logits.row() + at, x);
#pragma unroll
        for (float value : x)
            max = larger::of(value, max);
        if (max > all.max)
            all = {max, all.sum * expf(all.max - max)};
#pragma unroll
        for (float value : x)
            all.sum += expf(value - max);
    });
    return all;
}

/* The same of the whole row. */
template <typename T> __device__ exponentials row_exponentials(const shard<T> &logits)
{
    const exponentials own = share_exponentials(logits);
    const float max = row_reduce<larger, false>(own.max);
    return {max, row_reduce<add, false>(own.sum * expf(own.max - max))};
}

/* Whatever these logits are, even NaN, nothing of them is left. */
template <typename T> __device__ void clear_row(const shard<T> &logits, int64_t from)
{
    T *row = logits.row() + from;
    row_share<cuda_pack<T>>(row, logits.V - from, [&](int64_t at, auto pack) {
        const float zeros[decltype(pack)::value] = {};
        store_pack(row + at, zeros);
    });
}

/* logits = scale (softmax - onehot), and 0 in the padding */
template <typename T>
__device__ void write_gradient(const shard<T> &logits, float scale, float log_sum_exp, int64_t target)
{
    T *row = logits.row();
    row_share<cuda_pack<T>>(row, logits.valid, [&](int64_t at, auto pack) {
        constexpr int n = decltype(pack)::value;
        float x[n];
        load_pack(row + at, x);
#pragma unroll
        for (int i = 0; i < n; i++)
            x[i] = scale * (expf(x[i] - log_sum_exp) - (at + i == target ? 1.0f : 0.0f));
        store_pack(row + at, x);
    });
    clear_row(logits, logits.valid);
}

template <typename T>
static __global__ void cross_entropy_kernel(shard<T> logits, float scale, bool gradient, float *losses)
{
    const int64_t column = logits.target_column();
    if (column < 0) { /* ignored: no other rank has anything */
        if (threadIdx.x == 0)
            losses[blockIdx.x] = 0;
        if (gradient)
            clear_row(logits, 0);
        return;
    }
    /* Read before anyone writes: row_exponentials() has barriers. */
    const float target = to_float(logits.row()[column]);
    const exponentials all = row_exponentials(logits);
    const float log_sum = logf(all.sum);
    if (threadIdx.x == 0)
        losses[blockIdx.x] = log_sum - (target - all.max);
    if (gradient)
        write_gradient(logits, scale, all.max + log_sum, column);
}

template <typename T> static __global__ void logit_max_kernel(shard<T> logits, float *max)
{
    const bool ignored = logits.target() < 0; /* one answer for the block */
    const float largest = ignored ? -INFINITY : row_reduce<larger, false>(share_max(logits));
    if (threadIdx.x == 0)
        max[blockIdx.x] = largest;
}

template <typename T> static __global__ void logit_sums_kernel(shard<T> logits, const float *max, float *sums)
{
    const int64_t r = blockIdx.x, column = logits.target_column();
    const bool ignored = logits.target() < 0;
    const float sum = ignored ? 0 : row_reduce<add, false>(share_sum(logits, max[r]));
    if (threadIdx.x != 0)
        return;
    sums[r] = sum;
    sums[logits.R + r] = ignored || column < 0 ? 0 : to_float(logits.row()[column]) - max[r];
}

template <typename T>
static __global__ void sharded_gradient_kernel(shard<T> logits, const float *max, const float *sums,
                                               float scale)
{
    const int64_t r = blockIdx.x;
    if (logits.target() < 0)
        clear_row(logits, 0);
    else
        write_gradient(logits, scale, max[r] + logf(sums[r]), logits.target_column());
}

enum { LOSS_THREADS = 256 };

/* *loss += scale * sum of losses, or of log(losses[r]) - targets' logits[r] where there is a target: each thread its rows in
 * order, in double. */
static __global__ void loss_kernel(int64_t R, int64_t vocabulary, const int32_t *targets, const float *losses,
                                   const float *target_logits, double scale, float *loss)
{
    double sum[1] = {0};
    for (int64_t r = threadIdx.x; r < R; r += LOSS_THREADS) {
        if (targets[r] < 0 || targets[r] >= vocabulary)
            continue;
        sum[0] += target_logits ? log(static_cast<double>(losses[r])) - static_cast<double>(target_logits[r])
                                : static_cast<double>(losses[r]);
    }
    block_reduce<add>(sum);
    if (threadIdx.x == 0)
        *loss = static_cast<float>(*loss + scale * sum[0]);
}

/* ---- launchers ---- */

static int check_shard(const struct logit_shard *shard, const char *kernel, struct error *err)
{
    if (cuda_check_dtype(shard->dtype, kernel, err))
        return -1;
    if (shard->valid < 0 || shard->valid > shard->V ||
        (shard->valid > 0 && shard->first_column + shard->valid > shard->vocabulary))
        return error_set(err,
                         "%s: %ld valid columns from %ld on exceed the %ld held or the vocabulary of %ld; "
                         "count only the real tokens of this rank",
                         kernel, static_cast<long>(shard->valid), static_cast<long>(shard->first_column),
                         static_cast<long>(shard->V), static_cast<long>(shard->vocabulary));
    return 0;
}

template <typename T> static shard<T> typed(const cuda_context *context, const struct logit_shard *of)
{
    return {of->R,       of->V,          of->first_column,
            of->valid,   of->vocabulary, static_cast<T *>(of->logits),
            of->targets, context->fault};
}

static dim3 rows_of(const struct logit_shard *shard)
{
    return dim3(static_cast<unsigned>(shard->R));
}

/* Threads for a row. */
template <typename T> static dim3 threads_of(const struct logit_shard *shard)
{
    return dim3(cuda_threads(cuda_divide_up(shard->V, cuda_pack<T>), 512));
}

static void add_losses(const cuda_context *context, const struct logit_shard *shard, const float *losses,
                       const float *target_logits, double scale, void *loss)
{
    CUDA_LAUNCH(loss_kernel, dim3(1), dim3(LOSS_THREADS), 0, context->compute, shard->R, shard->vocabulary,
                shard->targets, losses, target_logits, scale, static_cast<float *>(loss));
}

struct cross_entropy_launch {
    template <typename T, int N>
    static void run(const cuda_context *context, const struct logit_shard *whole,
                    const cross_entropy_args *args)
    {
        float *losses = static_cast<float *>(context->scratch);
        CUDA_LAUNCH(cross_entropy_kernel<T>, rows_of(whole), threads_of<T>(whole), 0, context->compute,
                    typed<T>(context, whole), static_cast<float>(args->scale), args->gradient, losses);
        add_losses(context, whole, losses, nullptr, args->scale, args->loss);
    }
};

struct logit_max_launch {
    template <typename T, int N> static void run(const cuda_context *context, const logit_max_args *args)
    {
        CUDA_LAUNCH(logit_max_kernel<T>, rows_of(&args->shard), threads_of<T>(&args->shard), 0,
                    context->compute, typed<T>(context, &args->shard), static_cast<float *>(args->max));
    }
};

struct logit_sums_launch {
    template <typename T, int N> static void run(const cuda_context *context, const logit_sums_args *args)
    {
        CUDA_LAUNCH(logit_sums_kernel<T>, rows_of(&args->shard), threads_of<T>(&args->shard), 0,
                    context->compute, typed<T>(context, &args->shard), static_cast<const float *>(args->max),
                    static_cast<float *>(args->sums));
    }
};

struct sharded_gradient_launch {
    template <typename T, int N>
    static void run(const cuda_context *context, const cross_entropy_sharded_args *args)
    {
        CUDA_LAUNCH(sharded_gradient_kernel<T>, rows_of(&args->shard), threads_of<T>(&args->shard), 0,
                    context->compute, typed<T>(context, &args->shard), static_cast<const float *>(args->max),
                    static_cast<const float *>(args->sums), static_cast<float>(args->scale));
    }
};

/* A row finds its packs by itself, wherever it starts. */
static const bool any_width = true;

extern "C" int cuda_cross_entropy(const struct kernel_context *ctx, const struct cross_entropy_args *args,
                                  struct error *err)
{
    const cuda_context *context = cuda_of(ctx);
    const struct logit_shard whole = {args->R,      args->V,      0, args->V, args->V, args->dtype,
                                      args->logits, args->targets};
    if (check_shard(&whole, "cross_entropy", err) ||
        cuda_check_scratch(context, args->R * static_cast<int64_t>(sizeof(float)), "cross_entropy", err))
        return -1;
    if (args->R == 0)
        return 0;
    cuda_choose<cross_entropy_launch>(args->dtype, any_width, context, &whole, args);
    return cuda_launched("cross_entropy", err);
}

extern "C" int cuda_logit_max(const struct kernel_context *ctx, const struct logit_max_args *args,
                              struct error *err)
{
    if (check_shard(&args->shard, "logit_max", err))
        return -1;
    if (args->shard.R == 0)
        return 0;
    cuda_choose<logit_max_launch>(args->shard.dtype, any_width, cuda_of(ctx), args);
    return cuda_launched("logit_max", err);
}

extern "C" int cuda_logit_sums(const struct kernel_context *ctx, const struct logit_sums_args *args,
                               struct error *err)
{
    if (check_shard(&args->shard, "logit_sums", err))
        return -1;
    if (args->shard.R == 0)
        return 0;
    cuda_choose<logit_sums_launch>(args->shard.dtype, any_width, cuda_of(ctx), args);
    return cuda_launched("logit_sums", err);
}

extern "C" int cuda_cross_entropy_sharded(const struct kernel_context *ctx,
                                          const struct cross_entropy_sharded_args *args, struct error *err)
{
    const cuda_context *context = cuda_of(ctx);
    const struct logit_shard *shard = &args->shard;
    if (check_shard(shard, "cross_entropy_sharded", err))
        return -1;
    if (shard->R == 0)
        return 0;
    const float *sums = static_cast<const float *>(args->sums);
    add_losses(context, shard, sums, sums + shard->R, args->scale, args->loss);
    if (args->gradient)
        cuda_choose<sharded_gradient_launch>(shard->dtype, any_width, context, args);
    return cuda_launched("cross_entropy_sharded", err);
}
