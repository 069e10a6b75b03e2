/* Which library multiplies GPT-2 124M's matrices fastest on this machine? Times the forward (NT), input gradient (NN) and
 * weight gradient (TN) products of every layer in F32 with oneDNN's sgemm, oneDNN's matmul primitive and OpenBLAS, one
 * after another within each round so that a busy neighbour disturbs all alike, and prints medians.
 *
 *     bench-gemm [THREADS [ROUNDS]]        link with -ldnnl -lopenblas */
#include "base/arena.h"
#include "base/checked.h"
#include "base/clock.h"

#include <cblas-openblas.h>
#include <dnnl.h>
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_ROUNDS = 99, LAYER_COUNT = 5, ROW_COUNT = 2, PASS_COUNT = 3, LIBRARY_COUNT = 3 };

/* C(m,n) = op(a) op(b), row-major; a transposed operand is stored (k,m) or (n,k). */
struct product {
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    const float *a, *b;
    float *c;
    dnnl_primitive_t primitive; /* of the matmul contender, made beforehand */
    dnnl_memory_t memory[3];
};

struct layer {
    const char *name;
    int64_t outputs, inputs;
};

static const struct layer layers[LAYER_COUNT] = {
    {"qkv", 2304, 768},
    {"attention out", 768, 768},
    {"feed-forward in", 3072, 768},
    {"feed-forward out", 768, 3072},
    {"head", 50257, 768},
};
static const int64_t rows[ROW_COUNT] = {256, 1024};
static const char *const passes[PASS_COUNT] = {"forward NT", "dgrad NN", "wgrad TN"};

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static void require(dnnl_status_t status)
{
    if (status != dnnl_success) {
        fprintf(stderr, "bench-gemm: oneDNN answers %d\n", (int)status);
        exit(2);
    }
}

static void run_dnnl_sgemm(const struct product *p)
{
    require(dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', p->m, p->n, p->k, 1, p->a,
                       p->transpose_a ? p->m : p->k, p->b, p->transpose_b ? p->k : p->n, 0, p->c, p->n));
}

static void run_dnnl_matmul(const struct product *p)
{
    dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, p->memory[0]}, {DNNL_ARG_WEIGHTS, p->memory[1]}, {DNNL_ARG_DST, p->memory[2]}};
    require(dnnl_primitive_execute(p->primitive, stream, 3, args));
}

static void run_openblas(const struct product *p)
{
    cblas_sgemm(CblasRowMajor, p->transpose_a ? CblasTrans : CblasNoTrans,
                p->transpose_b ? CblasTrans : CblasNoTrans, (int)p->m, (int)p->n, (int)p->k, 1, p->a,
                (int)(p->transpose_a ? p->m : p->k), p->b, (int)(p->transpose_b ? p->k : p->n), 0, p->c,
                (int)p->n);
}

static const struct {
    const char *name;
    void (*run)(const struct product *);
} libraries[LIBRARY_COUNT] = {
    {"dnnl_sgemm", run_dnnl_sgemm}, {"dnnl matmul", run_dnnl_matmul}, {"OpenBLAS", run_openblas}};

static struct product layer_product(const struct layer *layer, int64_t row_count, int pass,
                                    float *const buffers[3])
{
    const float *a = buffers[0], *b = buffers[1];
    switch (pass) {
    case 0:
        return (struct product){false, true, row_count,  layer->outputs, layer->inputs,
                                a,     b,    buffers[2], NULL,           {0}};
    case 1:
        return (struct product){false, false, row_count,  layer->inputs, layer->outputs,
                                a,     b,     buffers[2], NULL,          {0}};
    default:
        return (struct product){true, false, layer->outputs, layer->inputs, row_count,
                                a,    b,     buffers[2],     NULL,          {0}};
    }
}

static void describe(dnnl_memory_desc_t *desc, int64_t height, int64_t width, bool transposed)
{
    dnnl_dims_t dims = {height, width};
    dnnl_dims_t strides = {transposed ? 1 : width, transposed ? height : 1};
    require(dnnl_memory_desc_init_by_strides(desc, 2, dims, dnnl_f32, strides));
}

static void prepare_matmul(struct product *p)
{
    dnnl_memory_desc_t desc[3];
    describe(&desc[0], p->m, p->k, p->transpose_a);
    describe(&desc[1], p->k, p->n, p->transpose_b);
    describe(&desc[2], p->m, p->n, false);
    dnnl_matmul_desc_t matmul;
    require(dnnl_matmul_desc_init(&matmul, &desc[0], &desc[1], NULL, &desc[2]));
    dnnl_primitive_desc_t primitive_desc;
    require(dnnl_primitive_desc_create(&primitive_desc, &matmul, NULL, engine, NULL));
    require(dnnl_primitive_create(&p->primitive, primitive_desc));
    require(dnnl_primitive_desc_destroy(primitive_desc));
    const void *data[3] = {p->a, p->b, p->c};
    for (int i = 0; i < 3; i++)
        require(dnnl_memory_create(&p->memory[i], &desc[i], engine, (void *)data[i]));
}

static void release_matmul(struct product *p)
{
    for (int i = 0; i < 3; i++)
        require(dnnl_memory_destroy(p->memory[i]));
    require(dnnl_primitive_destroy(p->primitive));
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* GFLOP/s of each library: medians over `rounds`, after one untimed round. */
static void measure(struct product *p, int rounds, double gflops[LIBRARY_COUNT])
{
    int64_t ns[LIBRARY_COUNT][MAX_ROUNDS];
    prepare_matmul(p);
    for (int round = -1; round < rounds; round++)
        for (int i = 0; i < LIBRARY_COUNT; i++) {
            int64_t start_ns = clock_ns();
            libraries[i].run(p);
            if (round >= 0)
                ns[i][round] = clock_ns() - start_ns;
        }
    release_matmul(p);
    for (int i = 0; i < LIBRARY_COUNT; i++) {
        qsort(ns[i], (size_t)rounds, sizeof ns[i][0], compare_times);
        gflops[i] = 2.0 * (double)p->m * (double)p->n * (double)p->k / (double)ns[i][rounds / 2];
    }
}

static float *filled(int64_t count)
{
    float *values = host_alloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)((i * 2654435761u >> 8) % 1000) / 1000 - 0.5f;
    return values;
}

static void print_table(int rounds, float *const buffers[3])
{
    printf("%-17s %5s %-11s", "layer (N,K)", "rows", "pass");
    for (int i = 0; i < LIBRARY_COUNT; i++)
        printf(" %12s", libraries[i].name);
    printf("   GFLOP/s\n");
    for (int r = 0; r < ROW_COUNT; r++)
        for (int l = 0; l < LAYER_COUNT; l++)
            for (int pass = 0; pass < PASS_COUNT; pass++) {
                struct product p = layer_product(&layers[l], rows[r], pass, buffers);
                double gflops[LIBRARY_COUNT];
                measure(&p, rounds, gflops);
                printf("%-17s %5d %-11s", layers[l].name, (int)rows[r], passes[pass]);
                for (int i = 0; i < LIBRARY_COUNT; i++)
                    printf(" %12.1f", gflops[i]);
                printf("\n");
                fflush(stdout);
            }
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : omp_get_max_threads();
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    if (threads < 1 || rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "bench-gemm: give THREADS of at least 1 and ROUNDS from 1 to %d\n", MAX_ROUNDS);
        return 2;
    }
    omp_set_num_threads(threads);
    openblas_set_num_threads(threads);
    require(dnnl_engine_create(&engine, dnnl_cpu, 0));
    require(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
    int64_t most = rows[ROW_COUNT - 1] * layers[LAYER_COUNT - 1].outputs;
    float *buffers[3] = {filled(most), filled(most), filled(most)};
    printf("%d threads, median of %d interleaved rounds, F32\n", threads, rounds);
    print_table(rounds, buffers);
    for (int i = 0; i < 3; i++)
        free(buffers[i]);
    require(dnnl_stream_destroy(stream));
    require(dnnl_engine_destroy(engine));
    return 0;
}
