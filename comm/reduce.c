/* One block at a time: it is read from every source, combined in a scratch block that stays in the first-level cache, and
 * written to every target. Each byte crosses the memory bus once in each direction, where a reduce-scatter followed by an
 * all-gather would read the sums again.
 *
 * BF16 is widened to float as it is read and rounded when the block is done, so that it is rounded once however many ranks
 * there are. */
#include "comm/reduce.h"

#include "base/checked.h"

#include <string.h>

enum { BLOCK = 4096 }; /* floats; half as many doubles */

union block {
    float f32[BLOCK];
    double f64[BLOCK / 2];
};

static void add_f32(float *to, const float *from, int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
}

static void add_f64(double *to, const double *from, int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
}

/* Whichever is NaN wins, as a maximum that hid it would hide a failure. */
static void max_f32(float *to, const float *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = to[i] > from[i] || to[i] != to[i] ? to[i] : from[i];
}

static void max_f64(double *to, const double *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = to[i] > from[i] || to[i] != to[i] ? to[i] : from[i];
}

static void combine_f32(float *to, const float *from, int64_t count, enum comm_reduction reduction)
{
    if (reduction == COMM_SUM)
        add_f32(to, from, count);
    else
        max_f32(to, from, count);
}

static void combine_f64(double *to, const double *from, int64_t count, enum comm_reduction reduction)
{
    if (reduction == COMM_SUM)
        add_f64(to, from, count);
    else
        max_f64(to, from, count);
}

static void widen(float *to, const uint16_t *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = bf16_to_f32(from[i]);
}

static void narrow(uint16_t *to, const float *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = f32_to_bf16(from[i]);
}

/* What the first source gives is taken as it is: a sum that began with zero would turn -0 into 0. */
static void take_piece(union block *block, int64_t at, const void *data, int64_t count, enum dtype dtype)
{
    if (dtype == DTYPE_F64)
        memcpy(block->f64 + at, data, (size_t)count * sizeof *block->f64);
    else if (dtype == DTYPE_F32)
        memcpy(block->f32 + at, data, (size_t)count * sizeof *block->f32);
    else
        widen(block->f32 + at, data, count);
}

static void combine_piece(union block *block, int64_t at, const void *data, int64_t count, enum dtype dtype,
                          enum comm_reduction reduction)
{
    if (dtype == DTYPE_F64) {
        combine_f64(block->f64 + at, data, count, reduction);
    } else if (dtype == DTYPE_F32) {
        combine_f32(block->f32 + at, data, count, reduction);
    } else {
        float wide[BLOCK];
        widen(wide, data, count);
        combine_f32(block->f32 + at, wide, count, reduction);
    }
}

static void spread_block(const union block *block, struct cursor *targets, int target_count, int64_t count,
                         enum dtype dtype)
{
    uint16_t narrowed[BLOCK];
    const void *result = block;
    if (dtype == DTYPE_BF16) {
        narrow(narrowed, block->f32, count);
        result = narrowed;
    }
    for (int i = 0; i < target_count; i++)
        cursor_write(&targets[i], result, count);
}

void reduce_vectors(struct cursor *sources, int source_count, struct cursor *targets, int target_count,
                    int64_t count, enum dtype dtype, enum comm_reduction reduction)
{
    _Alignas(64) union block block;
    for (int64_t done = 0, in_block; done < count; done += in_block) {
        in_block = min_i64(dtype == DTYPE_F64 ? BLOCK / 2 : BLOCK, count - done);
        for (int source = 0; source < source_count; source++) {
            void *data;
            for (int64_t at = 0, piece; at < in_block; at += piece) {
                piece = cursor_step(&sources[source], in_block - at, &data);
                if (source == 0)
                    take_piece(&block, at, data, piece, dtype);
                else
                    combine_piece(&block, at, data, piece, dtype, reduction);
            }
        }
        spread_block(&block, targets, target_count, in_block, dtype);
    }
}
