/* Gradients of a norm's weights: blocks sum up their parts of the rows, and leave (parts, 2, C) floats in the scratch memory,
 * which a second kernel adds in order. How rows are cut depends on sizes only, so the bits are the same on every GPU. */
#ifndef MEMPLAN_KERNELS_CUDA_PARTS_CUH
#define MEMPLAN_KERNELS_CUDA_PARTS_CUH

#include "kernels/cuda/launch.cuh"

/* As many threads as a block can have: there are few blocks. */
enum { ADD_COLUMNS = 32, ADD_GROUPS = 32 };

/* A weight's gradient; parts have C columns for it, of which it has these. */
struct parts_total {
    void *sums;
    int64_t columns;
};

/* first for blockIdx.y = 0, second for 1: groups of parts, each in order, and then the groups. */
static __global__ void add_parts_kernel(int64_t parts, int64_t C, const float *sums, parts_total first,
                                        parts_total second, bool add)
{
    CUDA_SHARED(float, groups, ADD_GROUPS *ADD_COLUMNS);
    const int64_t c = static_cast<int64_t>(blockIdx.x) * ADD_COLUMNS + threadIdx.x;
    const float *column = sums + blockIdx.y * C + c;
    const int64_t columns = blockIdx.y ? second.columns : first.columns;
    float sum = 0;
    for (int64_t part = threadIdx.y; part < parts && c < columns; part += ADD_GROUPS)
        sum += column[part * 2 * C];
    groups[threadIdx.y * ADD_COLUMNS + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || c >= columns)
        return;
    for (int group = 1; group < ADD_GROUPS; group++)
        sum += groups[group * ADD_COLUMNS + threadIdx.x];
    float *total = static_cast<float *>(blockIdx.y ? second.sums : first.sums) + c;
    *total = add ? *total + sum : sum;
}

/* Rows of a part: as many parts as a large GPU runs at a time, which hide each other's waiting for memory and barriers; fewer for
 * few rows or when the scratch memory is too small. */
static inline int64_t parts_rows(const cuda_context *context, int64_t R, int64_t C, unsigned threads)
{
    const int64_t threads_at_a_time = 128 << 10, at_a_time = threads_at_a_time / threads,
                  room = context->scratch_bytes / (2 * C * static_cast<int64_t>(sizeof(float)));
    const int64_t rows = cuda_divide_up(R, room < at_a_time ? room : at_a_time);
    return rows > 0 ? rows : 1;
}

/* One where there are no rows: it has sums of nothing. */
static inline int64_t parts_count(int64_t R, int64_t rows)
{
    return R > 0 ? cuda_divide_up(R, rows) : 1;
}

/* first and second (+)= the sums of all parts; second's sums may be NULL. */
static inline void parts_add(const cuda_context *context, int64_t parts, int64_t C, parts_total first,
                             parts_total second, bool add)
{
    CUDA_LAUNCH(add_parts_kernel,
                dim3(static_cast<unsigned>(cuda_divide_up(C, ADD_COLUMNS)), second.sums ? 2 : 1),
                dim3(ADD_COLUMNS, ADD_GROUPS), 0, context->compute, parts, C,
                static_cast<const float *>(context->scratch), first, second, add);
}

#endif
