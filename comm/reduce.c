/* One block at a time: it is read from every rank, summed in a scratch block that stays in the first-level cache, and
 * written to every rank. Each byte crosses the memory bus once in each direction, where a reduce-scatter followed by an
 * all-gather would read the sums again. */
#include "comm/reduce.h"

#include "base/arena.h"
#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 16 * 1024, SHARE_STEP = 64 };

union block {
    unsigned char bytes[BLOCK_BYTES];
    float f32[BLOCK_BYTES / sizeof(float)];
    double f64[BLOCK_BYTES / sizeof(double)];
};

/* A place in one rank's long vector. */
struct cursor {
    const struct comm_span *span;
    int64_t element; /* within the span; may be its end */
};

/* Shares begin at multiples of some cache lines, so that two ranks rarely write to the same line. */
int64_t reduce_share(int64_t total, int rank, int ranks)
{
    int64_t share = round_up((total + ranks - 1) / ranks, SHARE_STEP);
    return min_i64(rank * share, total);
}

/* Steps over the next elements that lie together, at most `most` of them, and returns how many; they start at *data. */
static int64_t advance(struct cursor *cursor, int64_t most, int64_t element_bytes, void **data)
{
    while (cursor->element == cursor->span->count) {
        cursor->span++;
        cursor->element = 0;
    }
    int64_t count = min_i64(most, cursor->span->count - cursor->element);
    *data = (unsigned char *)cursor->span->data + cursor->element * element_bytes;
    cursor->element += count;
    return count;
}

static struct cursor seek(const struct comm_span *spans, int64_t element)
{
    while (element > spans->count)
        element -= spans++->count;
    return (struct cursor){spans, element};
}

static void add(union block *sum, int64_t at, const void *data, int64_t count, enum dtype dtype)
{
    if (dtype == DTYPE_F32) {
        float *to = sum->f32 + at;
        const float *from = data;
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            to[i] += from[i];
    } else {
        double *to = sum->f64 + at;
        const double *from = data;
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            to[i] += from[i];
    }
}

/* The sum of `count` elements that start at `cursors`, which stay where they are. */
static void sum_block(union block *sum, const struct cursor *cursors, int ranks, int64_t count,
                      enum dtype dtype)
{
    int64_t element_bytes = dtype_bytes(dtype);
    for (int rank = 0; rank < ranks; rank++) {
        struct cursor cursor = cursors[rank];
        void *data;
        for (int64_t at = 0, piece; at < count; at += piece) {
            piece = advance(&cursor, count - at, element_bytes, &data);
            if (rank == 0)
                memcpy(sum->bytes + at * element_bytes, data, (size_t)(piece * element_bytes));
            else
                add(sum, at, data, piece, dtype);
        }
    }
}

/* Writes the sum to every rank and moves the cursors past it. */
static void spread_block(const union block *sum, struct cursor *cursors, int ranks, int64_t count,
                         int64_t element_bytes)
{
    for (int rank = 0; rank < ranks; rank++) {
        void *data;
        for (int64_t at = 0, piece; at < count; at += piece) {
            piece = advance(&cursors[rank], count - at, element_bytes, &data);
            memcpy(data, sum->bytes + at * element_bytes, (size_t)(piece * element_bytes));
        }
    }
}

void reduce_range(const struct comm_span *const *vectors, int ranks, int64_t begin, int64_t end,
                  enum dtype dtype)
{
    if (begin == end)
        return;
    _Alignas(64) union block sum;
    struct cursor *cursors = host_alloc((size_t)ranks * sizeof *cursors);
    for (int rank = 0; rank < ranks; rank++)
        cursors[rank] = seek(vectors[rank], begin);
    int64_t block = BLOCK_BYTES / dtype_bytes(dtype);
    for (int64_t at = begin; at < end; at += block) {
        int64_t count = min_i64(block, end - at);
        sum_block(&sum, cursors, ranks, count, dtype);
        spread_block(&sum, cursors, ranks, count, dtype_bytes(dtype));
    }
    free(cursors);
}
