/* Token and position embedding. Limits, with E bytes per element of the activations:
 *     embed       reads 1 or 2 rows and writes 1: 2E to 3E bytes per element, limited by HBM (gathered rows are whole lines)
 *     embed_grad  reads d once or twice (tokens, positions), and reads and writes each touched row of dwte in F32; without
 *                 add_wte it also clears all of dwte: 4 V C bytes, mostly the larger part. Limited by HBM.
 *
 * Backward adds the rows of a token in the order of the batch, with nobody else at its row of dwte. First a warp per row
 * looks for the next row with the same token and for an earlier one; then the block of a token's first row walks the chain.
 * Looking costs at most R^2 / 32 warp loads from the cache, less where tokens repeat: at R = 8,192 some 2 million, an
 * estimated 20 us of a GPU's issue slots; it grows with the square, so from R = 64K on a sort would be better. One token in
 * all rows is the worst case of the second kernel: a chain of R rows for one block per 2,048 columns. */
#include "kernels/cuda/cuda_fault.cuh"
#include "kernels/cuda/cuda_pack.cuh"

/* Which tokens there are, and which of them have a row here. */
struct token_range {
    int64_t first, held, vocabulary;

    __device__ bool is_token(int32_t token) const
    {
        return token >= 0 && token < vocabulary;
    }

    /* The row of the table, or -1: no token, or another rank's. */
    __device__ int64_t row_of(int32_t token) const
    {
        int64_t row = token - first;
        return is_token(token) && row >= 0 && row < held ? row : -1;
    }
};

template <typename T, int N>
static __global__ void embed_kernel(int64_t T_, int64_t C, token_range range, const int32_t *tokens,
                                    float scale, const T *wte, const T *wpe, T *x, uint64_t *fault)
{
    const int64_t r = blockIdx.x;
    const int32_t token = tokens[r];
    const int64_t row = range.row_of(token);
    if (threadIdx.x == 0 && !range.is_token(token))
        note_fault(fault, CUDA_FAULT_TOKEN, r, token);
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * N; c < C;
         c += static_cast<int64_t>(blockDim.x) * N) {
        float sum[N] = {}, position[N] = {};
        if (row >= 0)
            load_pack(wte + row * C + c, sum);
        if (wpe)
            load_pack(wpe + r % T_ * C + c, position);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum[i] = scale * sum[i] + position[i];
        store_pack(x + r * C + c, sum);
    }
}

static float scale_of(double scale)
{
    return scale != 0 ? static_cast<float>(scale) : 1;
}

struct embed_launch {
    template <typename T, int N> static void run(const cuda_context *context, const embed_args *args)
    {
        const token_range range = {args->first_token, args->V, args->vocabulary};
        CUDA_LAUNCH((embed_kernel<T, N>), dim3(static_cast<unsigned>(args->B * args->T)),
                    dim3(cuda_threads(cuda_divide_up(args->C, N), 256)), 0, context->compute, args->T,
                    args->C, range, args->tokens, scale_of(args->scale), static_cast<const T *>(args->wte),
                    static_cast<const T *>(args->wpe), static_cast<T *>(args->x), context->fault);
    }
};

extern "C" int cuda_embed(const struct kernel_context *ctx, const struct embed_args *args, struct error *err)
{
    if (cuda_check_dtype(args->dtype, "embed", err))
        return -1;
    if (args->B * args->T == 0)
        return 0;
    bool packed = cuda_packs_rows(args->dtype, args->C) && cuda_are_aligned(args->wte, args->wpe, args->x);
    cuda_choose<embed_launch>(args->dtype, packed, cuda_of(ctx), args);
    return cuda_launched("embed", err);
}

/* ---- backward ---- */

/* How the rows of a token hang together. */
struct token_link {
    int32_t next;  /* the next row with the same token, or R */
    int32_t first; /* 1 at a token's first row, of those with a row in the table */
};

/* The first of tokens[begin .. end) that is `token`, or `end`; one answer for the warp. */
__device__ static int64_t find_token(const int32_t *tokens, int64_t begin, int64_t end, int32_t token)
{
    const int lane = threadIdx.x % 32;
    for (int64_t at = begin; at < end; at += 32) {
        unsigned found = __ballot_sync(0xffffffffu, at + lane < end && tokens[at + lane] == token);
        if (found)
            return at + __ffs(static_cast<int>(found)) - 1;
    }
    return end;
}

enum { LINK_THREADS = 256 };

static __global__ void link_kernel(int64_t R, token_range range, const int32_t *tokens, token_link *links,
                                   uint64_t *fault)
{
    const int64_t r = (static_cast<int64_t>(blockIdx.x) * LINK_THREADS + threadIdx.x) / 32;
    if (r >= R)
        return;
    const int32_t token = tokens[r];
    const bool leader = threadIdx.x % 32 == 0;
    if (range.row_of(token) < 0) {
        if (leader)
            links[r] = {static_cast<int32_t>(R), 0};
        if (leader && !range.is_token(token))
            note_fault(fault, CUDA_FAULT_TOKEN, r, token);
        return;
    }
    const int64_t next = find_token(tokens, r + 1, R, token);
    const bool first = find_token(tokens, 0, r, token) == r;
    if (leader)
        links[r] = {static_cast<int32_t>(next), first};
}

template <typename T, int N>
static __global__ void token_grad_kernel(int64_t R, int64_t C, token_range range, const int32_t *tokens,
                                         float scale, const token_link *links, const T *d, float *dwte)
{
    const int64_t c = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
    if (!links[blockIdx.x].first || c >= C)
        return;
    float *place = dwte + range.row_of(tokens[blockIdx.x]) * C + c;
    float sum[N];
    load_pack(place, sum);
    for (int64_t r = blockIdx.x; r < R; r = links[r].next) {
        float more[N];
        load_pack(d + r * C + c, more);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum[i] += scale * more[i];
    }
    store_pack(place, sum);
}

/* dwpe[t] = sum over b of d[b, t], and 0 from T on */
template <typename T, int N>
static __global__ void position_grad_kernel(int64_t B, int64_t T_, int64_t C, const T *d, float *dwpe,
                                            bool add)
{
    const int64_t t = blockIdx.x, c = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
    if (c >= C)
        return;
    float sum[N] = {};
    if (add)
        load_pack(dwpe + t * C + c, sum);
    for (int64_t b = 0; b < B && t < T_; b++) {
        float more[N];
        load_pack(d + (b * T_ + t) * C + c, more);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum[i] += more[i];
    }
    store_pack(dwpe + t * C + c, sum);
}

template <int N> static __global__ void clear_kernel(int64_t count, float *values)
{
    flat_share<N>(count, [&](int64_t at, auto pack) {
        const float zeros[decltype(pack)::value] = {};
        store_pack(values + at, zeros);
    });
}

struct embed_grad_launch {
    template <typename T, int N>
    static void run(const cuda_context *context, const embed_grad_args *args, token_link *links)
    {
        const token_range range = {args->first_token, args->V, args->vocabulary};
        const int64_t R = args->B * args->T, packs = cuda_divide_up(args->C, N);
        const unsigned threads = cuda_threads(packs, 256);
        const unsigned parts = static_cast<unsigned>(cuda_divide_up(packs, threads));
        const T *d = static_cast<const T *>(args->d);
        CUDA_LAUNCH(link_kernel, dim3(static_cast<unsigned>(cuda_divide_up(R, LINK_THREADS / 32))),
                    dim3(LINK_THREADS), 0, context->compute, R, range, args->tokens, links, context->fault);
        CUDA_LAUNCH((token_grad_kernel<T, N>), dim3(static_cast<unsigned>(R), parts), dim3(threads), 0,
                    context->compute, R, args->C, range, args->tokens, scale_of(args->scale), links, d,
                    static_cast<float *>(args->dwte));
        if (args->dwpe)
            CUDA_LAUNCH((position_grad_kernel<T, N>), dim3(static_cast<unsigned>(args->positions), parts),
                        dim3(threads), 0, context->compute, args->B, args->T, args->C, d,
                        static_cast<float *>(args->dwpe), args->add_wpe);
    }
};

static void clear(const cuda_context *context, float *values, int64_t count)
{
    if (cuda_are_aligned(values))
        CUDA_LAUNCH(clear_kernel<4>, flat_grid(count, 4), dim3(FLAT_THREADS), 0, context->compute, count,
                    values);
    else
        CUDA_LAUNCH(clear_kernel<1>, flat_grid(count, 1), dim3(FLAT_THREADS), 0, context->compute, count,
                    values);
}

extern "C" int cuda_embed_grad(const struct kernel_context *ctx, const struct embed_grad_args *args,
                               struct error *err)
{
    const cuda_context *context = cuda_of(ctx);
    const int64_t R = args->B * args->T;
    if (cuda_check_dtype(args->dtype, "embed_grad", err) ||
        cuda_check_scratch(context, R * static_cast<int64_t>(sizeof(token_link)), "embed_grad", err))
        return -1;
    if (args->dwpe && args->positions < args->T)
        return error_set(err,
                         "%ld position embeddings are too few for sequences of %ld tokens; use shorter ones",
                         static_cast<long>(args->positions), static_cast<long>(args->T));
    if (!args->add_wte && args->V > 0)
        clear(context, static_cast<float *>(args->dwte), args->V * args->C);
    bool packed = cuda_packs_rows(args->dtype, args->C) && cuda_are_aligned(args->d, args->dwte, args->dwpe);
    if (R > 0)
        cuda_choose<embed_grad_launch>(args->dtype, packed, context, args,
                                       static_cast<token_link *>(context->scratch));
    return cuda_launched("embed_grad", err);
}
