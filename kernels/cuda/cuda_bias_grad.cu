/* The sum over rows that is a bias's gradient, for where the product's epilogue cannot make it. Reads dy once: limited by
 * HBM. There are few columns, so the rows are divided among blocks too; a second kernel adds what the parts have found. How they
 * are divided depends on the sizes only, so the bits are the same on every GPU. */
#include "kernels/cuda/cuda_pack.cuh"

extern "C" {
#include "kernels/cuda/cuda_matmul.h"
}

enum {
    COLUMNS = 32,
    GROUPS = 8,
    ENOUGH_BLOCKS = 2048, /* a large GPU runs about half as many at a time */
};

/* blockIdx.y: the part. */
template <typename T> struct bias_grad_terms {
    int64_t M, N, rows; /* rows of a part; the last may have fewer */
    const T *dy;
    float *sums; /* (parts, N) */
    bool add;    /* to what they hold */
};

/* A thread adds every eighth row of its column and part; then the eight sums are added in their order. */
template <typename T> __global__ void bias_grad_kernel(bias_grad_terms<T> terms)
{
    CUDA_SHARED(float, sums, GROUPS *COLUMNS);
    const int64_t column = static_cast<int64_t>(blockIdx.x) * COLUMNS + threadIdx.x;
    const int64_t begin = blockIdx.y * terms.rows, last = begin + terms.rows, end = last < terms.M ? last : terms.M;
    const unsigned group = threadIdx.y;
    float sum = 0;
    for (int64_t row = begin + group; column < terms.N && row < end; row += GROUPS)
        sum += static_cast<float>(terms.dy[row * terms.N + column]);
    sums[group * COLUMNS + threadIdx.x] = sum;
    __syncthreads();
    if (group > 0 || column >= terms.N)
        return;
    float *place = terms.sums + blockIdx.y * terms.N + column;
    float total = terms.add ? *place : 0;
    for (int i = 0; i < GROUPS; i++)
        total += sums[i * COLUMNS + threadIdx.x];
    *place = total;
}

template <typename T> static void launch_parts(const cuda_context *context, const bias_grad_terms<T> &terms)
{
    const dim3 grid(static_cast<unsigned>(cuda_divide_up(terms.N, COLUMNS)),
                    static_cast<unsigned>(cuda_divide_up(terms.M, terms.rows)));
    CUDA_LAUNCH((bias_grad_kernel<T>), grid, dim3(COLUMNS, GROUPS), 0, context->compute, terms);
}

/* Enough blocks of 64 rows or more, as far as the scratch memory has room for a sum of each part and column. */
static int64_t rows_of_part(const cuda_context *context, int64_t M, int64_t N)
{
    const int64_t least = 64, wanted = cuda_divide_up(ENOUGH_BLOCKS, cuda_divide_up(N, COLUMNS)),
                  room = context->scratch_bytes / (N * static_cast<int64_t>(sizeof(float)));
    const int64_t parts = wanted < room ? wanted : room;
    const int64_t rows = parts > 0 ? cuda_divide_up(M, parts) : M;
    return rows < least ? least : rows;
}

template <typename T> static void launch(const cuda_context *context, const cuda_bias_grad_args *args)
{
    bias_grad_terms<T> terms = {args->M,   args->N,  rows_of_part(context, args->M, args->N), static_cast<const T *>(args->dy),
                                args->db, args->add};
    const int64_t parts = cuda_divide_up(args->M, terms.rows);
    if (parts > 1) {
        terms.sums = static_cast<float *>(context->scratch);
        terms.add = false;
    }
    launch_parts(context, terms);
    if (parts > 1)
        launch_parts(context, bias_grad_terms<float>{parts, args->N, parts, terms.sums, args->db, args->add});
}

extern "C" int cuda_bias_grad(const struct cuda_context *context, const struct cuda_bias_grad_args *args, struct error *err)
{
    if (args->dtype == DTYPE_BF16)
        launch<bf16>(context, args);
    else
        launch<float>(context, args);
    return cuda_launched("bias_grad", err);
}
