/* Fused attention (Dao et al. 2022): scores exist only for one tile of keys by one panel of queries, in the first-level
 * cache, and softmax is corrected as tiles of keys go by.
 *
 * Scores are kept transposed, (key, query): then maxima and sums over keys are plain vector operations, and no key or
 * value is ever transposed, only the queries of a tile, once. Where the mask is causal, a panel stops at its last key, and a tile
 * of queries with a window begins with the tile of its first key.
 * Tiles are widened to F32 scratch with head sizes padded to whole vectors, whatever the dtype and D. */
#include "kernels/cpu/cpu_table.h"

#include "base/arena.h"
#include "base/checked.h"
#include "kernels/cpu/cpu_math.h"
#include "kernels/cpu/cpu_tile.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { TILE = 64, PANEL = CPU_TILE_COLUMNS }; /* keys or queries of a tile; queries of a panel */

/* The parts of attention_args that both directions read. */
struct shape {
    int64_t B, T, H, K, D;
    int64_t padded; /* D rounded up to whole vectors */
    int64_t row;    /* elements of a row of qkv */
    enum dtype dtype;
    bool causal;
    int64_t window; /* T, or more than any distance, where there is none */
    float scale;
};

/* Queries or keys [begin, begin + count) of the sequence. */
struct span {
    int64_t begin, count;
};

/* Of args, of either direction. */
#define SHAPE_OF(args)                                                                                       \
    {                                                                                                        \
        .B = (args)->B, .T = (args)->T, .H = (args)->H, .K = (args)->K, .D = (args)->D,                      \
        .padded = round_up((args)->D, CPU_TILE_COLUMNS), .row = ((args)->H + 2 * (args)->K) * (args)->D,     \
        .dtype = (args)->dtype, .causal = (args)->causal,                                                    \
        .window = (args)->causal && (args)->window ? (args)->window : (args)->T,                             \
        .scale = (float)((args)->scale != 0 ? (args)->scale : 1 / sqrt((double)(args)->D)),                  \
    }

static struct span tile_span(const struct shape *shape, int64_t tile)
{
    return (struct span){tile * TILE, min_i64(TILE, shape->T - tile * TILE)};
}

/* The first key of the tiles that some of these queries see. */
static int64_t first_key(const struct shape *shape, struct span queries)
{
    return max_i64(0, queries.begin + 1 - shape->window) / TILE * TILE;
}

/* Of `keys`, those up to the last that this panel of `queries` sees. */
static int64_t panel_keys(const struct shape *shape, struct span queries, int64_t panel, struct span keys)
{
    if (!shape->causal)
        return keys.count;
    int64_t last = min_i64(queries.begin + panel + PANEL, queries.begin + queries.count);
    return max_i64(0, min_i64(keys.count, last - keys.begin));
}

/* Rows of a head lie pages apart, which no hardware prefetcher follows: ask for the bytes of one ahead of time. */
static void prefetch_row(const struct shape *shape, const void *from, int64_t at)
{
    const char *begin = (const char *)from + at * dtype_bytes(shape->dtype);
    for (int64_t byte = 0; byte < shape->D * dtype_bytes(shape->dtype); byte += 64)
        __builtin_prefetch(begin + byte);
}

/* to(TILE, padded) = factor * rows of one head, which start at from[at] and are `row` elements apart. */
static void load_rows(const struct shape *shape, const void *from, int64_t at, int64_t row, int64_t count,
                      float factor, float *to)
{
    enum { AHEAD = 8 };
    for (int64_t i = 0; i < count; i++, to += shape->padded) {
        if (i + AHEAD < count)
            prefetch_row(shape, from, at + (i + AHEAD) * row);
        const float *values = cpu_load(shape->dtype, from, at + i * row, shape->D, to);
        for (int64_t d = 0; d < shape->D; d++)
            to[d] = factor * values[d];
        for (int64_t d = shape->D; d < shape->padded; d++)
            to[d] = 0;
    }
    memset(to, 0, (size_t)((TILE - count) * shape->padded) * sizeof *to);
}

/* Where the rows of head `head` (of H + 2K) begin in qkv. */
static int64_t head_at(const struct shape *shape, int64_t b, int64_t t, int64_t head)
{
    return (b * shape->T + t) * shape->row + head * shape->D;
}

/* Puts `value` wherever a key comes after its query, or its window before it. Only the panel's last keys can come after: a causal
 * panel stops at its own. */
static void mask_panel(const struct shape *shape, float (*panel)[PANEL], int64_t first_query,
                       struct span keys, int64_t seen, float value)
{
    if (!shape->causal)
        return;
    for (int64_t k = max_i64(0, first_query + 1 - keys.begin); k < seen; k++)
        for (int64_t q = 0; q < PANEL; q++)
            panel[k][q] = first_query + q < keys.begin + k ? value : panel[k][q];
    const int64_t gone =
        first_query - shape->window - keys.begin; /* the first query's last key before its window */
    for (int64_t k = 0; k < min_i64(seen, gone + PANEL); k++)
        for (int64_t q = 0; q < PANEL; q++)
            panel[k][q] = k <= gone + q ? value : panel[k][q];
}

/* ---- forward ---- */

/* Scratch of one thread; the pointers are into one block. */
struct forward {
    float *rows, *queries; /* (TILE, padded) and its transpose */
    float *keys, *values;  /* (TILE, padded) */
    float *out;            /* (TILE, padded): weighted sums of values, not yet divided by `sum` */
    float max[TILE], sum[TILE];
};

/* Turns scores into exp(score - maximum so far), and rescales what was summed under the previous maximum. cpu_exp() never
 * quite reaches 0, so hidden keys are masked once more afterwards. */
static void soften_panel(float (*scores)[PANEL], int64_t seen, float *max, float *sum, float *rescale)
{
    float higher[PANEL], total[PANEL];
    memcpy(higher, max, sizeof higher);
    for (int64_t k = 0; k < seen; k++)
        for (int64_t q = 0; q < PANEL; q++)
            higher[q] = scores[k][q] > higher[q] ? scores[k][q] : higher[q];
    for (int64_t q = 0; q < PANEL; q++) {
        rescale[q] = cpu_exp(max[q] - higher[q]);
        total[q] = sum[q] * rescale[q];
        max[q] = higher[q];
    }
    for (int64_t k = 0; k < seen; k++)
        for (int64_t q = 0; q < PANEL; q++) {
            scores[k][q] = cpu_exp(scores[k][q] - higher[q]);
            total[q] += scores[k][q];
        }
    memcpy(sum, total, sizeof total);
}

/* `more`: tiles of keys went before. A query none of whose keys has come yet has a largest score of -FLT_MAX, beside which what
 * its hidden keys leave in `sum` is nothing once one comes. */
static void forward_panel(const struct shape *shape, struct forward *work, struct span queries, int64_t panel,
                          struct span keys, bool more)
{
    int64_t padded = shape->padded, seen = panel_keys(shape, queries, panel, keys);
    int64_t count = min_i64(PANEL, queries.count - panel);
    float scores[TILE][PANEL], rescale[PANEL], *out = work->out + panel * padded;
    cpu_tile_multiply(seen, PANEL, shape->D, (struct cpu_strided){work->keys, padded, 1},
                      work->queries + panel, TILE, scores[0], PANEL, false);
    mask_panel(shape, scores, queries.begin + panel, keys, seen, -INFINITY);
    soften_panel(scores, seen, work->max + panel, work->sum + panel, rescale);
    mask_panel(shape, scores, queries.begin + panel, keys, seen, 0);
    if (more)
        for (int64_t q = 0; q < count; q++)
            for (int64_t d = 0; d < padded; d++)
                out[q * padded + d] *= rescale[q];
    cpu_tile_multiply(count, padded, seen, (struct cpu_strided){scores[0], 1, PANEL}, work->values, padded,
                      out, padded, more);
}

static void store_forward(const struct shape *shape, const struct attention_args *args, struct forward *work,
                          int64_t b, int64_t h, struct span queries)
{
    float *lse = (float *)args->lse + (b * shape->H + h) * shape->T + queries.begin;
    for (int64_t q = 0; q < queries.count; q++) {
        float *out = work->out + q * shape->padded, part = 1 / work->sum[q];
        for (int64_t d = 0; d < shape->D; d++)
            out[d] *= part;
        int64_t row = b * shape->T + queries.begin + q;
        cpu_store(shape->dtype, args->out, (row * shape->H + h) * shape->D, shape->D, out);
        lse[q] = work->max[q] + logf(work->sum[q]);
    }
}

/* One tile of queries of one head. */
static void forward_tile(const struct shape *shape, const struct attention_args *args, struct forward *work,
                         int64_t b, int64_t h, int64_t tile)
{
    struct span queries = tile_span(shape, tile);
    int64_t key_head = shape->H + h / (shape->H / shape->K), value_head = key_head + shape->K;
    load_rows(shape, args->qkv, head_at(shape, b, queries.begin, h), shape->row, queries.count, shape->scale,
              work->rows);
    cpu_tile_transpose(TILE, shape->padded, work->rows, work->queries);
    for (int64_t q = 0; q < TILE; q++) {
        work->max[q] = -FLT_MAX;
        work->sum[q] = 0;
    }
    int64_t begin = first_key(shape, queries);
    int64_t end = shape->causal ? queries.begin + queries.count : shape->T;
    for (int64_t at = begin; at < end; at += TILE) {
        struct span keys = tile_span(shape, at / TILE);
        load_rows(shape, args->qkv, head_at(shape, b, at, key_head), shape->row, keys.count, 1, work->keys);
        load_rows(shape, args->qkv, head_at(shape, b, at, value_head), shape->row, keys.count, 1,
                  work->values);
        for (int64_t panel = 0; panel < queries.count; panel += PANEL)
            forward_panel(shape, work, queries, panel, keys, at > begin);
    }
    store_forward(shape, args, work, b, h, queries);
}

static int check_heads(int64_t H, int64_t K, struct error *err)
{
    if (K > 0 && H % K == 0)
        return 0;
    return error_set(err, "%ld key/value heads do not divide %ld query heads; use a divisor", (long)K,
                     (long)H);
}

int cpu_attention(const struct kernel_context *ctx, const struct attention_args *args, struct error *err)
{
    if (cpu_check_dtype(args->dtype, "attention", err) || check_heads(args->H, args->K, err))
        return -1;
    const struct shape shape = SHAPE_OF(args);
    int64_t tiles = (args->T + TILE - 1) / TILE, block = TILE * shape.padded;
#pragma omp parallel num_threads(ctx->threads)
    {
        float *scratch = host_resize(NULL, (size_t)(5 * block) * sizeof *scratch);
        struct forward work = {.rows = scratch,
                               .queries = scratch + block,
                               .keys = scratch + 2 * block,
                               .values = scratch + 3 * block,
                               .out = scratch + 4 * block};
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < args->B * args->H * tiles; i++)
            forward_tile(&shape, args, &work, i / (args->H * tiles), i / tiles % args->H, i % tiles);
        free(scratch);
    }
    return 0;
}

/* ---- backward ---- */

/* Scratch of one thread; the pointers are into one block. d_keys and d_values are those of a whole key/value head, which
 * one thread owns; everything else is one tile. */
struct backward {
    float *queries, *queries_turned; /* scaled; (TILE, padded), (padded, TILE) */
    float *d_out, *d_out_turned;     /* (TILE, padded), (padded, TILE) */
    float *keys, *values;            /* (TILE, padded) */
    float *d_queries;                /* (TILE, padded) */
    float *d_keys, *d_values;        /* (T, padded) */
    float lse[TILE], delta[TILE];
};

/* With P = exp(score - lse): dV += P^T dO, dS = P (dO V^T - delta), dQ += dS K, dK += dS^T Q. */
static void backward_panel(const struct shape *shape, struct backward *work, struct span queries,
                           int64_t panel, struct span keys)
{
    int64_t padded = shape->padded, seen = panel_keys(shape, queries, panel, keys);
    int64_t count = min_i64(PANEL, queries.count - panel), at = panel * padded, keys_at = keys.begin * padded;
    float p[TILE][PANEL], ds[TILE][PANEL];
    const float *lse = work->lse + panel, *delta = work->delta + panel;
    cpu_tile_multiply(seen, PANEL, shape->D, (struct cpu_strided){work->keys, padded, 1},
                      work->queries_turned + panel, TILE, p[0], PANEL, false);
    cpu_tile_multiply(seen, PANEL, shape->D, (struct cpu_strided){work->values, padded, 1},
                      work->d_out_turned + panel, TILE, ds[0], PANEL, false);
    for (int64_t k = 0; k < seen; k++)
        for (int64_t q = 0; q < PANEL; q++) {
            p[k][q] = cpu_exp(p[k][q] - lse[q]);
            ds[k][q] = p[k][q] * (ds[k][q] - delta[q]);
        }
    mask_panel(shape, p, queries.begin + panel, keys, seen, 0);
    mask_panel(shape, ds, queries.begin + panel, keys, seen, 0);
    cpu_tile_multiply(seen, padded, count, (struct cpu_strided){p[0], PANEL, 1}, work->d_out + at, padded,
                      work->d_values + keys_at, padded, true);
    cpu_tile_multiply(seen, padded, count, (struct cpu_strided){ds[0], PANEL, 1}, work->queries + at, padded,
                      work->d_keys + keys_at, padded, true);
    cpu_tile_multiply(count, padded, seen, (struct cpu_strided){ds[0], 1, PANEL}, work->keys, padded,
                      work->d_queries + at, padded, true);
}

/* delta = rowsum(dout * out). `out` is read into the d_queries buffer, which is not in use yet. */
static void load_delta(const struct shape *shape, const struct attention_grad_args *args,
                       struct backward *work, int64_t out_at, int64_t lse_at, int64_t count)
{
    float *out = work->d_queries;
    load_rows(shape, args->out, out_at, shape->H * shape->D, count, 1, out);
    for (int64_t q = 0; q < count; q++) {
        float sum = 0;
        for (int64_t d = 0; d < shape->padded; d++)
            sum += out[q * shape->padded + d] * work->d_out[q * shape->padded + d];
        work->delta[q] = sum;
        work->lse[q] = ((const float *)args->lse)[lse_at + q];
        ((float *)args->delta)[lse_at + q] = sum;
    }
}

static void load_queries(const struct shape *shape, const struct attention_grad_args *args,
                         struct backward *work, int64_t b, int64_t h, struct span queries)
{
    int64_t out_at = ((b * shape->T + queries.begin) * shape->H + h) * shape->D;
    load_rows(shape, args->qkv, head_at(shape, b, queries.begin, h), shape->row, queries.count, shape->scale,
              work->queries);
    load_rows(shape, args->dout, out_at, shape->H * shape->D, queries.count, 1, work->d_out);
    cpu_tile_transpose(TILE, shape->padded, work->queries, work->queries_turned);
    cpu_tile_transpose(TILE, shape->padded, work->d_out, work->d_out_turned);
    load_delta(shape, args, work, out_at, (b * shape->H + h) * shape->T + queries.begin, queries.count);
    for (int64_t q = queries.count; q < TILE; q++)
        work->lse[q] = work->delta[q] = 0;
    memset(work->d_queries, 0, (size_t)(TILE * shape->padded) * sizeof *work->d_queries);
}

/* dqkv rows of one head = factor * rows(count, padded). */
static void store_rows(const struct shape *shape, void *dqkv, int64_t at, int64_t count, float factor,
                       float *rows)
{
    for (int64_t i = 0; i < count; i++, rows += shape->padded) {
        for (int64_t d = 0; d < shape->D; d++)
            rows[d] *= factor;
        cpu_store(shape->dtype, dqkv, at + i * shape->row, shape->D, rows);
    }
}

/* One tile of queries of one head against every key it sees. */
static void backward_tile(const struct shape *shape, const struct attention_grad_args *args,
                          struct backward *work, int64_t b, int64_t h, int64_t tile)
{
    struct span queries = tile_span(shape, tile);
    int64_t key_head = shape->H + h / (shape->H / shape->K), value_head = key_head + shape->K;
    load_queries(shape, args, work, b, h, queries);
    int64_t begin = first_key(shape, queries);
    int64_t end = shape->causal ? queries.begin + queries.count : shape->T;
    for (int64_t at = begin; at < end; at += TILE) {
        struct span keys = tile_span(shape, at / TILE);
        load_rows(shape, args->qkv, head_at(shape, b, at, key_head), shape->row, keys.count, 1, work->keys);
        load_rows(shape, args->qkv, head_at(shape, b, at, value_head), shape->row, keys.count, 1,
                  work->values);
        for (int64_t panel = 0; panel < queries.count; panel += PANEL)
            backward_panel(shape, work, queries, panel, keys);
    }
    store_rows(shape, args->dqkv, head_at(shape, b, queries.begin, h), queries.count, shape->scale,
               work->d_queries);
}

/* One key/value head, with all query heads that share it. */
static void backward_head(const struct shape *shape, const struct attention_grad_args *args,
                          struct backward *work, int64_t b, int64_t k)
{
    int64_t group = shape->H / shape->K, tiles = (shape->T + TILE - 1) / TILE;
    size_t bytes = (size_t)(shape->T * shape->padded) * sizeof(float);
    memset(work->d_keys, 0, bytes);
    memset(work->d_values, 0, bytes);
    for (int64_t h = k * group; h < (k + 1) * group; h++)
        for (int64_t tile = 0; tile < tiles; tile++)
            backward_tile(shape, args, work, b, h, tile);
    store_rows(shape, args->dqkv, head_at(shape, b, 0, shape->H + k), shape->T, 1, work->d_keys);
    store_rows(shape, args->dqkv, head_at(shape, b, 0, shape->H + shape->K + k), shape->T, 1, work->d_values);
}

int cpu_attention_grad(const struct kernel_context *ctx, const struct attention_grad_args *args,
                       struct error *err)
{
    if (cpu_check_dtype(args->dtype, "attention_grad", err) || check_heads(args->H, args->K, err))
        return -1;
    const struct shape shape = SHAPE_OF(args);
    int64_t block = TILE * shape.padded, head = args->T * shape.padded;
#pragma omp parallel num_threads(ctx->threads)
    {
        float *scratch = host_resize(NULL, (size_t)(7 * block + 2 * head) * sizeof *scratch);
        struct backward work = {.queries = scratch,
                                .queries_turned = scratch + block,
                                .d_out = scratch + 2 * block,
                                .d_out_turned = scratch + 3 * block,
                                .keys = scratch + 4 * block,
                                .values = scratch + 5 * block,
                                .d_queries = scratch + 6 * block,
                                .d_keys = scratch + 7 * block,
                                .d_values = scratch + 7 * block + head};
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < args->B * args->K; i++)
            backward_head(&shape, args, &work, i / args->K, i % args->K);
        free(scratch);
    }
    return 0;
}
