/* Products by oneDNN. F32 goes to its sgemm. BF16 goes to its matmul primitive on processors that multiply BF16
 * (AVX512-BF16, AMX), otherwise tile by tile: a thread widens a panel of each operand to F32 in its own scratch and
 * multiplies there.
 *
 * oneDNN won over OpenBLAS in bench/bench_gemm.c by a tenth at 1,024 rows (they are even at 256), and because OpenBLAS
 * keeps one thread count for the whole process, while here each rank brings its own. */
#include "kernels/cpu/cpu_gemm.h"

#include "base/arena.h"
#include "base/checked.h"
#include "kernels/cpu/cpu_math.h"

#include <dnnl.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>

/* A tile's panels and sums take about 512 x (2 x 384 + 512) floats: 2.6 MiB of scratch per thread, and widening the
 * operands costs 1/256 of a move per multiply-add. Lines of scratch are PAD floats longer than they need be: at a distance
 * of 2 KiB they would fall into the same few cache sets, and products with a transposed operand take three times as long. */
enum { TILE_EDGE = 512, TILE_DEPTH = 384, PAD = 16, MAX_PRIMITIVES = 256 };

struct primitive_entry;
static const struct primitive_entry *find_primitive(const struct cpu_gemm *gemm, enum dtype c_dtype);
static bool multiply_by_primitive(const struct primitive_entry *entry, const struct cpu_gemm *gemm,
                                  enum dtype c_dtype);
static bool multiply_by_tiles(const struct cpu_gemm *gemm, enum dtype c_dtype);

/* c = start + bias, so that the product can be accumulated onto it, unless c already holds that or there is neither. */
static void set_start(const struct cpu_gemm *gemm)
{
    if (!gemm->bias && (!gemm->start || gemm->start == gemm->c))
        return;
    const float *start = gemm->start, *bias = gemm->bias;
    float *c = gemm->c;
#pragma omp parallel for num_threads(gemm->threads) schedule(static)
    for (int64_t i = 0; i < gemm->m; i++) {
        float *row = c + i * gemm->n;
        for (int64_t j = 0; j < gemm->n; j++)
            row[j] = (start ? start[i * gemm->n + j] : 0) + (bias ? bias[j] : 0);
    }
}

static char letter(bool transpose)
{
    return transpose ? 'T' : 'N';
}

int cpu_gemm_f32(const struct cpu_gemm *gemm, struct error *err)
{
    bool accumulate = gemm->start || gemm->bias;
    set_start(gemm);
    int caller_threads = omp_get_max_threads();
    omp_set_num_threads(gemm->threads);
    dnnl_status_t status = dnnl_sgemm(letter(gemm->transpose_a), letter(gemm->transpose_b), gemm->m, gemm->n,
                                      gemm->k, 1, gemm->a, gemm->transpose_a ? gemm->m : gemm->k, gemm->b,
                                      gemm->transpose_b ? gemm->k : gemm->n, accumulate, gemm->c, gemm->n);
    omp_set_num_threads(caller_threads);
    if (status != dnnl_success)
        return error_set(
            err,
            "oneDNN cannot multiply (%ld,%ld) by (%ld,%ld) in F32 (status %d); use the reference kernels",
            (long)gemm->m, (long)gemm->k, (long)gemm->k, (long)gemm->n, (int)status);
    return 0;
}

int cpu_gemm_bf16(const struct cpu_gemm *gemm, enum dtype c_dtype, struct error *err)
{
    int caller_threads = omp_get_max_threads();
    omp_set_num_threads(gemm->threads);
    const struct primitive_entry *entry = find_primitive(gemm, c_dtype);
    bool good = entry ? multiply_by_primitive(entry, gemm, c_dtype) : multiply_by_tiles(gemm, c_dtype);
    omp_set_num_threads(caller_threads);
    if (good)
        return 0;
    return error_set(err, "oneDNN cannot multiply (%ld,%ld) by (%ld,%ld) in BF16; use the reference kernels",
                     (long)gemm->m, (long)gemm->k, (long)gemm->k, (long)gemm->n);
}

/* ---- BF16 by the matmul primitive ---- */

/* What a primitive was made for. */
struct primitive_key {
    int64_t m, n, k;
    int transpose_a, transpose_b, accumulate, bias, c_dtype, threads;
};
_Static_assert(sizeof(struct primitive_key) == 3 * sizeof(int64_t) + 6 * sizeof(int),
               "keys are compared as bytes");

struct primitive_entry {
    struct primitive_key key;
    dnnl_primitive_t primitive; /* NULL when oneDNN has no fast one: that too is looked up once */
    dnnl_memory_desc_t a, b, bias, c, scratchpad;
};

/* Entries are added under the lock, never changed or removed, and live as long as the process. */
static struct {
    pthread_mutex_t lock;
    dnnl_engine_t engine;
    int count;
    struct primitive_entry entries[MAX_PRIMITIVES];
} primitives = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool describe(dnnl_memory_desc_t *desc, int64_t height, int64_t width, bool transposed,
                     dnnl_data_type_t type)
{
    dnnl_dims_t dims = {height, width};
    dnnl_dims_t strides = {transposed ? 1 : width, transposed ? height : 1};
    return dnnl_memory_desc_init_by_strides(desc, 2, dims, type, strides) == dnnl_success;
}

/* The scratchpad is the caller's, which is what lets threads share a primitive. */
static bool build_attributes(const struct primitive_key *key, dnnl_primitive_attr_t *out)
{
    if (dnnl_primitive_attr_create(out) != dnnl_success)
        return false;
    bool good = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user) == dnnl_success;
    dnnl_post_ops_t post = NULL;
    if (good && key->accumulate)
        good = dnnl_post_ops_create(&post) == dnnl_success &&
               dnnl_post_ops_append_sum(post, 1) == dnnl_success &&
               dnnl_primitive_attr_set_post_ops(*out, post) == dnnl_success;
    dnnl_post_ops_destroy(post);
    if (!good)
        dnnl_primitive_attr_destroy(*out);
    return good;
}

/* oneDNN's own reference implementations ("ref:any") are far slower than widened tiles. */
static bool is_fast(const_dnnl_primitive_desc_t desc)
{
    const char *name = NULL;
    return dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name) == dnnl_success && name &&
           strncmp(name, "ref", 3) != 0;
}

static bool build_primitive(struct primitive_entry *entry)
{
    const struct primitive_key *key = &entry->key;
    dnnl_data_type_t c_type = key->c_dtype == DTYPE_F32 ? dnnl_f32 : dnnl_bf16;
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_attr_t attributes;
    dnnl_primitive_desc_t desc;
    if (!describe(&entry->a, key->m, key->k, key->transpose_a, dnnl_bf16) ||
        !describe(&entry->b, key->k, key->n, key->transpose_b, dnnl_bf16) ||
        !describe(&entry->bias, 1, key->n, false, dnnl_bf16) ||
        !describe(&entry->c, key->m, key->n, false, c_type))
        return false;
    if (dnnl_matmul_desc_init(&matmul, &entry->a, &entry->b, key->bias ? &entry->bias : NULL, &entry->c) !=
            dnnl_success ||
        !build_attributes(key, &attributes))
        return false;
    bool good =
        dnnl_primitive_desc_create(&desc, &matmul, attributes, primitives.engine, NULL) == dnnl_success;
    dnnl_primitive_attr_destroy(attributes);
    if (!good)
        return false;
    entry->scratchpad = *dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    good = is_fast(desc) && dnnl_primitive_create(&entry->primitive, desc) == dnnl_success;
    dnnl_primitive_desc_destroy(desc);
    return good;
}

/* The entry for `key`, made at its first use; NULL when there is no room for more. Lock held. */
static struct primitive_entry *entry_of(const struct primitive_key *key)
{
    for (int i = 0; i < primitives.count; i++)
        if (memcmp(&primitives.entries[i].key, key, sizeof *key) == 0)
            return &primitives.entries[i];
    if (primitives.count == MAX_PRIMITIVES)
        return NULL;
    struct primitive_entry *entry = &primitives.entries[primitives.count++];
    entry->key = *key;
    if (!build_primitive(entry))
        entry->primitive = NULL;
    return entry;
}

/* NULL where tiles do better. A primitive keeps the thread count it was made under, which is the caller's. */
static const struct primitive_entry *find_primitive(const struct cpu_gemm *gemm, enum dtype c_dtype)
{
    if (!__builtin_cpu_supports("avx512bf16"))
        return NULL;
    struct primitive_key key = {.m = gemm->m,
                                .n = gemm->n,
                                .k = gemm->k,
                                .transpose_a = gemm->transpose_a,
                                .transpose_b = gemm->transpose_b,
                                .accumulate = gemm->start != NULL,
                                .bias = gemm->bias != NULL,
                                .c_dtype = (int)c_dtype,
                                .threads = gemm->threads};
    const struct primitive_entry *found = NULL;
    pthread_mutex_lock(&primitives.lock);
    if (primitives.engine || dnnl_engine_create(&primitives.engine, dnnl_cpu, 0) == dnnl_success)
        found = entry_of(&key);
    pthread_mutex_unlock(&primitives.lock);
    return found && found->primitive ? found : NULL;
}

static bool execute(const struct primitive_entry *entry, const struct cpu_gemm *gemm, void *scratchpad)
{
    enum { ARGUMENTS = 5 };
    const struct {
        int name;
        const dnnl_memory_desc_t *desc;
        const void *data;
    } given[ARGUMENTS] = {{DNNL_ARG_SRC, &entry->a, gemm->a},
                          {DNNL_ARG_WEIGHTS, &entry->b, gemm->b},
                          {DNNL_ARG_DST, &entry->c, gemm->c},
                          {DNNL_ARG_SCRATCHPAD, &entry->scratchpad, scratchpad},
                          {DNNL_ARG_BIAS, &entry->bias, gemm->bias}};
    int count = gemm->bias ? ARGUMENTS : ARGUMENTS - 1;
    dnnl_exec_arg_t args[ARGUMENTS] = {{0}};
    dnnl_stream_t stream = NULL;
    bool good = dnnl_stream_create(&stream, primitives.engine, dnnl_stream_default_flags) == dnnl_success;
    for (int i = 0; i < count && good; i++) {
        args[i].arg = given[i].name;
        good = dnnl_memory_create(&args[i].memory, given[i].desc, primitives.engine, (void *)given[i].data) ==
               dnnl_success;
    }
    good = good && dnnl_primitive_execute(entry->primitive, stream, count, args) == dnnl_success &&
           dnnl_stream_wait(stream) == dnnl_success;
    for (int i = 0; i < count; i++)
        dnnl_memory_destroy(args[i].memory);
    dnnl_stream_destroy(stream);
    return good;
}

/* c = start, so that the product can be accumulated onto it. */
static void copy_start(const struct cpu_gemm *gemm, enum dtype c_dtype)
{
    int64_t row_bytes = gemm->n * dtype_bytes(c_dtype);
#pragma omp parallel for num_threads(gemm->threads) schedule(static)
    for (int64_t i = 0; i < gemm->m; i++)
        memcpy((char *)gemm->c + i * row_bytes, (const char *)gemm->start + i * row_bytes, (size_t)row_bytes);
}

static bool multiply_by_primitive(const struct primitive_entry *entry, const struct cpu_gemm *gemm,
                                  enum dtype c_dtype)
{
    enum { LINE_BYTES = 64 };
    if (gemm->start && gemm->start != gemm->c)
        copy_start(gemm, c_dtype);
    char *block = host_resize(NULL, dnnl_memory_desc_get_size(&entry->scratchpad) + LINE_BYTES);
    bool good = execute(entry, gemm, block + LINE_BYTES - (uintptr_t)block % LINE_BYTES);
    free(block);
    return good;
}

/* ---- BF16 by widened tiles ---- */

struct tile {
    int64_t row, column, rows, columns; /* of c */
};

/* Scratch of one thread. */
struct panels {
    float *a, *b, *sums;
};

/* Widens a part of an operand stored in lines of `stride` elements, and returns the floats from one line of the copy to
 * the next. */
static int64_t widen(const uint16_t *from, int64_t stride, struct cpu_range lines, struct cpu_range run,
                     float *to)
{
    int64_t length = run.end - run.begin;
    for (int64_t i = lines.begin; i < lines.end; i++, to += length + PAD)
        cpu_load(DTYPE_BF16, from, i * stride + run.begin, length, to);
    return length + PAD;
}

static void start_tile(const struct cpu_gemm *gemm, enum dtype c_dtype, const struct tile *tile, float *sums)
{
    float bias[TILE_EDGE] = {0};
    if (gemm->bias)
        cpu_load(DTYPE_BF16, gemm->bias, tile->column, tile->columns, bias);
    for (int64_t i = 0; i < tile->rows; i++, sums += tile->columns + PAD) {
        memcpy(sums, bias, (size_t)tile->columns * sizeof *sums);
        if (!gemm->start)
            continue;
        float scratch[TILE_EDGE];
        const float *start =
            cpu_load(c_dtype, gemm->start, (tile->row + i) * gemm->n + tile->column, tile->columns, scratch);
        for (int64_t j = 0; j < tile->columns; j++)
            sums[j] += start[j];
    }
}

static bool multiply_tile(const struct cpu_gemm *gemm, enum dtype c_dtype, const struct tile *tile,
                          const struct panels *panels)
{
    struct cpu_range rows = {tile->row, tile->row + tile->rows},
                     columns = {tile->column, tile->column + tile->columns};
    start_tile(gemm, c_dtype, tile, panels->sums);
    bool good = true;
    for (int64_t k = 0; k < gemm->k && good; k += TILE_DEPTH) {
        struct cpu_range depth = {k, min_i64(k + TILE_DEPTH, gemm->k)};
        int64_t a_line = gemm->transpose_a ? widen(gemm->a, gemm->m, depth, rows, panels->a)
                                           : widen(gemm->a, gemm->k, rows, depth, panels->a);
        int64_t b_line = gemm->transpose_b ? widen(gemm->b, gemm->k, columns, depth, panels->b)
                                           : widen(gemm->b, gemm->n, depth, columns, panels->b);
        good = dnnl_sgemm(letter(gemm->transpose_a), letter(gemm->transpose_b), tile->rows, tile->columns,
                          depth.end - depth.begin, 1, panels->a, a_line, panels->b, b_line, 1, panels->sums,
                          tile->columns + PAD) == dnnl_success;
    }
    for (int64_t i = 0; i < tile->rows; i++)
        cpu_store(c_dtype, gemm->c, (tile->row + i) * gemm->n + tile->column, tile->columns,
                  panels->sums + i * (tile->columns + PAD));
    return good;
}

/* Tiles along an edge: as few as the largest tile allows. */
static int64_t count_tiles(int64_t edge)
{
    return (edge + TILE_EDGE - 1) / TILE_EDGE;
}

static bool multiply_by_tiles(const struct cpu_gemm *gemm, enum dtype c_dtype)
{
    enum { NARROWEST = 64, SUMS = TILE_EDGE * (TILE_EDGE + PAD) };
    /* An operand is stored in lines along either of its edges. */
    enum { BY_DEPTH = TILE_DEPTH * (TILE_EDGE + PAD), BY_EDGE = TILE_EDGE * (TILE_DEPTH + PAD) };
    enum { PANEL = BY_DEPTH > BY_EDGE ? BY_DEPTH : BY_EDGE, SCRATCH = 2 * PANEL + SUMS };
    int64_t down = count_tiles(gemm->m), across = count_tiles(gemm->n);
    /* Narrower tiles, where that gives every thread as many as the others. */
    while (down * across % gemm->threads && gemm->n / (across + 1) >= NARROWEST)
        across++;
    bool good = true;
#pragma omp parallel num_threads(gemm->threads) reduction(&& : good)
    {
        /* A team of one does not count as parallel for oneDNN, which would then start its own. */
        omp_set_num_threads(1);
        float *scratch = host_resize(NULL, SCRATCH * sizeof *scratch);
        struct panels panels = {scratch, scratch + PANEL, scratch + 2 * PANEL};
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < down * across; i++) {
            struct cpu_range rows = cpu_part(gemm->m, 1, i % down, down);
            struct cpu_range columns = cpu_part(gemm->n, 1, i / down, across);
            struct tile tile = {rows.begin, columns.begin, rows.end - rows.begin,
                                columns.end - columns.begin};
            good = multiply_tile(gemm, c_dtype, &tile, &panels) && good;
        }
        free(scratch);
    }
    return good;
}
