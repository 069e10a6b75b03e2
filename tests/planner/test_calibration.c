/* Calibration: from recorded kernels to rates, through the file and back, and what is refused. */
#include "tests/profiler/sample.h"
#include "tests/test.h"

#include "planner/calibration.h"
#include "planner/machine_speed.h"

#include <math.h>
#include <string.h>

/* A store with one run of two ranks. Rank 0 has, each twice: a product in forward (2 and 4 ms), the same product again in
 * backward (3 and 5 ms), a gelu (1 and 1 ms); a bucket of 1,000,000 bytes is reduced in each step.
 * A step takes 8 ms, of which rank 0 spends 4 with its peer. */
static struct store *open_recorded(const char *folder)
{
    struct error err = {0};
    char path[128];
    struct store *store;
    struct store_run run = {.ranks = 2, .device = "cpu"};
    const struct store_operation operations[] = {
        {.operation_id = 0, .kind = "matmul", .phase = "forward", .detail = "M64 N32 K16", .flops = 65536},
        {.operation_id = 1, .kind = "matmul", .phase = "backward", .detail = "M64 N32 K16", .flops = 65536},
        {.operation_id = 2, .kind = "gelu", .phase = "forward", .detail = "", .bytes_moved = 4000},
        {.operation_id = 3, .kind = "all_reduce", .phase = "reduce", .detail = "", .bytes_moved = 2000000},
    };
    static const int64_t ms[][2] = {{2, 4}, {3, 5}, {1, 1}, {4, 4}};
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    for (int op = 0; op < 4; op++) {
        ASSERT_OK(store_operation_add(store, run.run_id, 0, &operations[op], &err));
        for (int step = 0; step < 2; step++) {
            struct store_kernel kernel = {
                .seq = op * 2 + step, .operation_id = op, .end_ns = ms[op][step] * 1000000, .step = step};
            ASSERT_OK(store_kernel_add(store, run.run_id, 0, &kernel, &err));
        }
    }
    for (int step = 0; step < 2; step++)
        for (int rank = 0; rank < 2; rank++) {
            struct store_step row = {.rank = rank,
                                     .step = step,
                                     .seconds = 0.008,
                                     .communication_busy_s = 0.001 * (step + 1),
                                     .communication_waited_s = 0.002};
            ASSERT_OK(store_step_add(store, run.run_id, &row, &err));
        }
    ASSERT_OK(store_commit(store, &err));
    return store;
}

static void fit(const char *folder, struct calibration *out)
{
    struct error err = {0};
    struct store *store = open_recorded(folder);
    *out = (struct calibration){
        .device = "abacus, 4 cores", .memplan_version = "0.1", .made_by = "memplan calibrate"};
    ASSERT_OK(calibration_fit(store, 1, 4, out, &err));
    store_close(store);
}

TEST(calibration_fit_costs, "equal operations become one point; collectives are measured by what steps say")
{
    char folder[64];
    struct calibration c;
    scratch_open(folder);
    fit(folder, &c);
    /* 16 ms of operations in 2 steps of 2 ranks: 4 ms where a step takes 8 - 2 on average */
    ASSERT_INT(c.run_count, 1);
    ASSERT_NEAR(c.runs[0].step_ratio, 1.5, 1e-9);
    /* medians 3 and 4 ms, twice each: 3.5 ms in four runs; fastest 2 and 3 ms: 3.5 / 2.5 - 1 = 0.4 */
    ASSERT_INT(c.kinds[PRECISION_FP32][OP_MATMUL].count, 1);
    const struct calibration_point *point = &c.kinds[PRECISION_FP32][OP_MATMUL].points[0];
    ASSERT_INT(point->m, 64);
    ASSERT_INT(point->n, 32);
    ASSERT_INT(point->k, 16);
    ASSERT_INT(point->count, 4);
    ASSERT_NEAR(point->seconds, 1.5 * 0.0035, 1e-12);
    ASSERT_INT(point->threads, 2);
    ASSERT_NEAR(c.kinds[PRECISION_FP32][OP_MATMUL].spread, 0.4, 1e-9);
    ASSERT_INT(c.kinds[PRECISION_FP32][OP_GELU].count, 1);
    ASSERT_INT(c.kinds[PRECISION_FP32][OP_ALL_REDUCE].count, 0);
    ASSERT_INT(c.runs[0].ranks, 2);
    /* an all-reduce of n = 2 ranks sends 2 x 1/2 of 1,000,000 bytes, in the median step's 2 ms */
    ASSERT_NEAR(c.links[CALIBRATION_REPLICAS].bytes_per_s, 5e8, 1);
    ASSERT_INT(c.links[CALIBRATION_PARTS].count, 0);
    calibration_clear(&c);
    scratch_close(folder);
}

/* One step of 9 ms on two ranks: a product of 4 ms, and 2 ms of something that they do together. On one core, the first rank
 * gets it 4 ms late. */
static void fit_together(const char *folder, int cores, const char *layout_json,
                         const struct store_operation *together, double communication_s,
                         struct calibration *out)
{
    struct error err = {0};
    char path[128];
    struct store *store;
    struct store_run run = {.ranks = 2, .device = "cpu", .layout_json = layout_json};
    const struct store_operation operations[] = {
        {.operation_id = 0, .kind = "matmul", .phase = "forward", .detail = "M64 N32 K16", .flops = 65536},
        *together};
    ASSERT_OK(store_create(scratch_path(folder, "together.db", path), &store, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    for (int rank = 0; rank < 2; rank++) {
        for (int op = 0; op < 2; op++) {
            struct store_kernel kernel = {
                .seq = op, .operation_id = operations[op].operation_id, .end_ns = op ? 2000000 : 4000000};
            ASSERT_OK(store_operation_add(store, run.run_id, rank, &operations[op], &err));
            ASSERT_OK(store_kernel_add(store, run.run_id, rank, &kernel, &err));
        }
        struct store_step row = {.rank = rank,
                                 .seconds = rank || cores > 1 ? 0.009 : 0.005,
                                 .communication_busy_s = communication_s,
                                 .communication_waited_s = communication_s};
        ASSERT_OK(store_step_add(store, run.run_id, &row, &err));
    }
    ASSERT_OK(store_commit(store, &err));
    *out = (struct calibration){0};
    ASSERT_OK(calibration_fit(store, 1, cores, out, &err));
    store_close(store);
}

TEST(calibration_exchanges,
     "what ranks do together within layers is neither their own work nor what stretches it")
{
    char folder[64];
    struct calibration c;
    scratch_open(folder);
    fit_together(
        folder, 2,
        "{\"dp\": 1, \"tp\": 2, \"pp\": 1, \"micro_batch\": 1, \"global_batch\": 1, \"seq_len\": 8}",
        &(struct store_operation){
            .operation_id = 1, .kind = "sum_partial", .phase = "forward", .detail = "", .bytes_moved = 2048},
        0, &c);
    ASSERT_INT(c.kinds[PRECISION_FP32][OP_SUM_PARTIAL].count, 0);
    ASSERT_NEAR(c.runs[0].step_ratio, (9 - 2) / 4.0, 1e-9);
    ASSERT_INT(c.links[CALIBRATION_REPLICAS].count, 0);
    /* of one size, nothing tells what a byte takes */
    ASSERT_NEAR(c.links[CALIBRATION_PARTS].latency_s, 0.002, 1e-12);
    ASSERT(c.links[CALIBRATION_PARTS].bytes_per_s == 0);
    calibration_clear(&c);
    scratch_close(folder);
}

/* Of a bucket of 1,000,000 bytes, 2 ranks each move 3/2 and send 1/2 to scatter it. */
TEST(calibration_of_shards, "scattering gradients tells the rate of communication as reducing them does")
{
    char folder[64];
    struct calibration c;
    scratch_open(folder);
    fit_together(folder, 2,
                 "{\"dp\": 2, \"tp\": 1, \"pp\": 1, \"zero\": 1, \"micro_batch\": 1, \"global_batch\": 2, "
                 "\"seq_len\": 8}",
                 &(struct store_operation){.operation_id = 1,
                                           .kind = "scatter_gradients",
                                           .phase = "reduce",
                                           .detail = "",
                                           .bytes_moved = 1500000},
                 0.001, &c);
    ASSERT_INT(c.kinds[PRECISION_FP32][OP_SCATTER_GRADIENTS].count, 0);
    ASSERT_NEAR(c.links[CALIBRATION_REPLICAS].bytes_per_s, 500000 / 0.001, 1);
    ASSERT_NEAR(c.runs[0].step_ratio, (9 - 2) / 4.0, 1e-9);
    calibration_clear(&c);
    scratch_close(folder);
}

/* Without the 4 ms together, two ranks have 14 ms between them; one core has 9, for products of 8. */
TEST(calibration_in_turns, "ranks that take turns on a core do no more in a step than the core has time for")
{
    char folder[64];
    struct calibration c;
    scratch_open(folder);
    fit_together(
        folder, 1,
        "{\"dp\": 1, \"tp\": 2, \"pp\": 1, \"micro_batch\": 1, \"global_batch\": 1, \"seq_len\": 8}",
        &(struct store_operation){
            .operation_id = 1, .kind = "sum_partial", .phase = "forward", .detail = "", .bytes_moved = 2048},
        0, &c);
    ASSERT_NEAR(c.runs[0].step_ratio, 9 / 8.0, 1e-9);
    ASSERT_INT(c.links[CALIBRATION_PARTS].count, 0);
    calibration_clear(&c);
    scratch_close(folder);
}

TEST(calibration_measured_shape, "a shape that was measured takes what it took, stretched as the step was")
{
    char folder[64];
    struct calibration c;
    double seconds;
    scratch_open(folder);
    fit(folder, &c);
    struct work same = {.flops = 65536, .m = 64, .n = 32, .k = 16};
    ASSERT(calibration_seconds(&c, OP_MATMUL, &same, &(struct calibration_rank){.threads = 2}, &seconds));
    ASSERT_NEAR(seconds, 1.5 * 0.0035, 1e-12);
    struct work twice = {.flops = 131072, .m = 128, .n = 32, .k = 16}; /* the only rate there is */
    ASSERT(calibration_seconds(&c, OP_MATMUL, &twice, &(struct calibration_rank){.threads = 2}, &seconds));
    ASSERT_NEAR(seconds, 1.5 * 0.007, 1e-12);
    struct work gelu = {.bytes_moved = 12000};
    ASSERT(calibration_seconds(&c, OP_GELU, &gelu, &(struct calibration_rank){.threads = 2}, &seconds));
    ASSERT_NEAR(seconds, 1.5 * 0.003, 1e-12);
    ASSERT(!calibration_seconds(&c, OP_NORM, &gelu, &(struct calibration_rank){.threads = 2}, &seconds));
    calibration_clear(&c);
    scratch_close(folder);
}

TEST(calibration_between_shapes,
     "between two shapes the rate is their geometric mean, the nearer the weightier")
{
    struct calibration_point points[] = {
        {.threads = 2, .m = 1, .n = 1, .k = 2, .flops = 2, .seconds = 2},      /* 1 flop/s */
        {.threads = 2, .m = 16, .n = 1, .k = 2, .flops = 32, .seconds = 0.32}, /* 100 flops/s */
    };
    struct calibration c = {0};
    c.kinds[PRECISION_FP32][OP_MATMUL] = (struct calibration_kind){points, 2, 0};
    double seconds;
    struct work half_way = {.flops = 8, .m = 4, .n = 1, .k = 2}; /* two doublings from either: 10 flops/s */
    ASSERT(calibration_seconds(&c, OP_MATMUL, &half_way, &(struct calibration_rank){.threads = 2}, &seconds));
    ASSERT_NEAR(seconds, 0.8, 1e-9);
    /* one doubling and three: weights 1 and 1/9, so 100^(0.1) = 1.585 flops/s */
    struct work nearer = {.flops = 4, .m = 2, .n = 1, .k = 2};
    ASSERT(calibration_seconds(&c, OP_MATMUL, &nearer, &(struct calibration_rank){.threads = 2}, &seconds));
    ASSERT_NEAR(seconds, 4 / pow(100, 0.1), 1e-9);
}

TEST(calibration_line,
     "products that differ in their rows lie on a line, which begins with what a call costs")
{
    struct calibration_point points[] = {
        /* 1 s a call and 1 s per 100 flops; the third is another weight */
        {.threads = 1, .m = 10, .n = 5, .k = 1, .flops = 100, .seconds = 2},
        {.threads = 1, .m = 30, .n = 5, .k = 1, .flops = 300, .seconds = 4},
        {.threads = 1, .m = 20, .n = 6, .k = 1, .flops = 240, .seconds = 100},
    };
    struct calibration c = {0};
    double seconds;
    c.kinds[PRECISION_FP32][OP_MATMUL] = (struct calibration_kind){points, 3, 0};
    struct work between = {.flops = 200, .m = 20, .n = 5, .k = 1},
                beyond = {.flops = 700, .m = 70, .n = 5, .k = 1};
    ASSERT(calibration_seconds(&c, OP_MATMUL, &between, &(struct calibration_rank){.threads = 1}, &seconds));
    ASSERT_NEAR(seconds, 3, 1e-12);
    ASSERT(calibration_seconds(&c, OP_MATMUL, &beyond, &(struct calibration_rank){.threads = 1}, &seconds));
    ASSERT_NEAR(seconds, 8, 1e-12);
}

TEST(calibration_threads, "times of as many threads count, and those of others only where there are none")
{
    struct calibration_point points[] = {
        {.threads = 1, .bytes = 100, .seconds = 8},
        {.threads = 4, .bytes = 100, .seconds = 3}, /* not a quarter of it: threads do not help much */
    };
    struct calibration c = {0};
    double seconds;
    c.kinds[PRECISION_FP32][OP_GELU] = (struct calibration_kind){points, 2, 0};
    struct work work = {.bytes_moved = 100};
    ASSERT(calibration_seconds(&c, OP_GELU, &work, &(struct calibration_rank){.threads = 1}, &seconds));
    ASSERT_NEAR(seconds, 8, 1e-12);
    ASSERT(calibration_seconds(&c, OP_GELU, &work, &(struct calibration_rank){.threads = 4}, &seconds));
    ASSERT_NEAR(seconds, 3, 1e-12);
    c.kinds[PRECISION_FP32][OP_GELU].count = 1;
    ASSERT(calibration_seconds(&c, OP_GELU, &work, &(struct calibration_rank){.threads = 2}, &seconds));
    ASSERT_NEAR(seconds, 4, 1e-12);
}

/* Two tensor-parallel ranks, two steps, in each two sums: of 1,000 bytes, which takes 3 ms from the moment when the later rank
 * is there, and of 5,000, which takes 7. Rank 1 is always 10 ms late. */
static struct store *open_meetings(const char *folder)
{
    struct error err = {0};
    char path[128];
    struct store *store;
    struct store_run run = {
        .ranks = 2,
        .device = "cpu",
        .layout_json =
            "{\"dp\": 1, \"tp\": 2, \"pp\": 1, \"micro_batch\": 1, \"global_batch\": 1, \"seq_len\": 8}"};
    const struct store_operation operations[] = {
        {.operation_id = 3, .kind = "matmul", .phase = "forward", .detail = "M64 N32 K16", .flops = 65536},
        {.operation_id = 5, .kind = "sum_partial", .phase = "forward", .detail = "a", .bytes_moved = 2000},
        {.operation_id = 8, .kind = "sum_partial", .phase = "forward", .detail = "b", .bytes_moved = 10000},
    };
    static const int64_t takes_ms[] = {1, 3, 7};
    ASSERT_OK(store_create(scratch_path(folder, "meetings.db", path), &store, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    for (int rank = 0; rank < 2; rank++)
        for (int op = 0; op < 3; op++) {
            ASSERT_OK(store_operation_add(store, run.run_id, rank, &operations[op], &err));
            for (int step = 0; step < 2; step++) {
                int64_t there_ms = 100 * step + 30 * op + 10 * rank, begin_ms = 100 * step + 30 * op + 10;
                struct store_kernel kernel = {.seq = op * 2 + step,
                                              .operation_id = operations[op].operation_id,
                                              .step = step,
                                              .start_ns = there_ms * 1000000,
                                              .end_ns = (begin_ms + takes_ms[op]) * 1000000};
                ASSERT_OK(store_kernel_add(store, run.run_id, rank, &kernel, &err));
            }
        }
    for (int step = 0; step < 2; step++)
        for (int rank = 0; rank < 2; rank++) {
            struct store_step row = {.rank = rank, .step = step, .seconds = 0.1};
            ASSERT_OK(store_step_add(store, run.run_id, &row, &err));
        }
    ASSERT_OK(store_commit(store, &err));
    return store;
}

TEST(calibration_links,
     "what ranks do together is timed from when the last is there, and gives latency and rate")
{
    char folder[64];
    struct error err = {0};
    struct calibration c = {0};
    scratch_open(folder);
    struct store *store = open_meetings(folder);
    ASSERT_OK(calibration_fit(store, 1, 2, &c, &err));
    /* an all-reduce of two ranks moves 2 S and sends S: 1,000 bytes in 3 ms, 5,000 in 7: 1 ms per 1,000, and 2 before */
    ASSERT_NEAR(c.links[CALIBRATION_PARTS].latency_s, 0.002, 1e-9);
    ASSERT_NEAR(c.links[CALIBRATION_PARTS].bytes_per_s, 1e6, 1e-3);
    ASSERT_INT(c.links[CALIBRATION_PARTS].count, 2); /* of the second step */
    /* other groups have no link of their own */
    ASSERT(calibration_link(&c, CALIBRATION_STAGES) == &c.links[CALIBRATION_PARTS]);
    calibration_clear(&c);
    /* two ranks that take turns on one core wait for each other's work */
    c = (struct calibration){0};
    ASSERT_OK(calibration_fit(store, 1, 1, &c, &err));
    ASSERT(calibration_link(&c, CALIBRATION_PARTS) == NULL);
    ASSERT_INT(c.kinds[PRECISION_FP32][OP_MATMUL].points[0].threads, 1);
    calibration_clear(&c);
    store_close(store);
    scratch_close(folder);
}

TEST(calibration_of_runs, "several runs are fitted together: points of each number of threads")
{
    char folder[64];
    struct error err = {0};
    struct calibration c;
    scratch_open(folder);
    fit(folder, &c); /* 2 threads */
    struct store *store = open_meetings(folder);
    ASSERT_OK(calibration_fit(store, 1, 2, &c, &err)); /* 1 thread */
    ASSERT_INT(c.run_count, 2);
    ASSERT_INT(c.kinds[PRECISION_FP32][OP_MATMUL].count, 2);
    ASSERT_INT(c.kinds[PRECISION_FP32][OP_MATMUL].points[0].threads, 2);
    ASSERT_INT(c.kinds[PRECISION_FP32][OP_MATMUL].points[1].threads, 1);
    ASSERT(c.links[CALIBRATION_REPLICAS].count > 0 && c.links[CALIBRATION_PARTS].count > 0);
    calibration_clear(&c);
    store_close(store);
    scratch_close(folder);
}

/* A run of one rank whose gelu takes `ms`, with steps of such seconds. */
static void add_gelu_run(struct store *store, const char *precision, int64_t ms, const double *steps,
                         int count, struct calibration *out)
{
    struct error err = {0};
    char layout[160];
    struct store_operation operation = {
        .kind = "gelu", .phase = "forward", .detail = "", .bytes_moved = 4000};
    struct store_kernel kernel = {.end_ns = ms * 1000000};
    snprintf(layout, sizeof layout,
             "{\"dp\": 1, \"tp\": 1, \"pp\": 1, \"micro_batch\": 1, \"global_batch\": 1, \"seq_len\": 8, "
             "\"precision\": \"%s\"}",
             precision);
    struct store_run run = {.ranks = 1, .device = "cpu", .policy = "tensor", .layout_json = layout};
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    ASSERT_OK(store_operation_add(store, run.run_id, 0, &operation, &err));
    ASSERT_OK(store_kernel_add(store, run.run_id, 0, &kernel, &err));
    for (int i = 0; i < count; i++) {
        struct store_step step = {.step = i, .seconds = steps[i]};
        ASSERT_OK(store_step_add(store, run.run_id, &step, &err));
    }
    ASSERT_OK(store_commit(store, &err));
    ASSERT_OK(calibration_fit(store, run.run_id, 1, out, &err));
}

TEST(calibration_precisions, "what was measured in one precision says nothing of another, in the file too")
{
    static const double steps[] = {0.01};
    char folder[64], path[128];
    struct error err = {0};
    struct calibration c = {.device = "abacus", .memplan_version = "0.1"}, back;
    struct calibration_rank fp32 = {PRECISION_FP32, 1}, bf16 = {PRECISION_BF16, 1};
    struct work work = {.bytes_moved = 4000};
    struct store *store;
    double seconds;
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    add_gelu_run(store, "bf16", 7, steps, 1, &c);
    ASSERT(calibration_has(&c, PRECISION_BF16) && !calibration_has(&c, PRECISION_FP32));
    ASSERT(!calibration_seconds(&c, OP_GELU, &work, &fp32, &seconds));
    add_gelu_run(store, "fp32", 3, steps, 1, &c);
    ASSERT_OK(calibration_write(&c, scratch_path(folder, "calibration.json", path), &err));
    ASSERT_OK(calibration_read(path, "abacus", "0.1", &back, &err));
    ASSERT(calibration_seconds(&back, OP_GELU, &work, &fp32, &seconds));
    ASSERT_NEAR(seconds, 0.003, 1e-12);
    ASSERT(calibration_seconds(&back, OP_GELU, &work, &bf16, &seconds));
    ASSERT_NEAR(seconds, 0.007, 1e-12);
    ASSERT_INT(back.runs[0].precision, PRECISION_BF16);
    calibration_clear(&c);
    calibration_clear(&back);
    store_close(store);
    scratch_close(folder);
}

/* Operations may take many times their fastest on a machine with other work, and steps be near each other all the same. */
TEST(calibration_of_steps,
     "the doubt is how far steps are from each other, but for the first and the farthest")
{
    static const double steps[] = {9, 1, 1.3, 0.9, 1, 1, 1.2, 1, 0.8, 1, 5}, two[] = {1, 1.5};
    char folder[64], path[128];
    struct error err = {0};
    struct calibration c = {0};
    struct store *store;
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    add_gelu_run(store, "fp32", 3, steps, 11, &c);
    /* Of the ten after the first: 0, 0, 0, 0, 0, 0.1, 0.2, 0.2, 0.3 and 4 off. */
    ASSERT_NEAR(c.runs[0].step_spread, 0.2, 1e-9);
    ASSERT_NEAR(calibration_doubt(&c, PRECISION_FP32), 0.2, 1e-9);
    calibration_clear(&c);
    add_gelu_run(store, "fp32", 3, two, 2, &c);
    ASSERT_NEAR(c.runs[0].step_spread, 0.5 / 1.5, 1e-9);
    calibration_clear(&c);
    store_close(store);
    scratch_close(folder);
}

TEST(calibration_without_arena,
     "where tensors have memory of their own, what lies between operations is not counted")
{
    char folder[64], path[128];
    struct error err = {0};
    struct calibration c = {0};
    struct store *store;
    struct store_run run = {.ranks = 1, .device = "cpu", .policy = "tensor"};
    struct store_operation operation = {
        .kind = "gelu", .phase = "forward", .detail = "", .bytes_moved = 4000};
    struct store_kernel kernel = {.end_ns = 1000000};
    struct store_step step = {.seconds = 0.005}; /* 4 of these 5 ms are spent taking and giving back memory */
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    ASSERT_OK(store_operation_add(store, run.run_id, 0, &operation, &err));
    ASSERT_OK(store_kernel_add(store, run.run_id, 0, &kernel, &err));
    ASSERT_OK(store_step_add(store, run.run_id, &step, &err));
    ASSERT_OK(store_commit(store, &err));
    ASSERT_OK(calibration_fit(store, run.run_id, 1, &c, &err));
    ASSERT_NEAR(c.kinds[PRECISION_FP32][OP_GELU].points[0].seconds, 0.001, 1e-12);
    calibration_clear(&c);
    store_close(store);
    scratch_close(folder);
}

TEST(calibration_round_trip, "a calibration survives its file bit for bit")
{
    char folder[64], path[128];
    struct error err = {0};
    struct calibration c, back;
    scratch_open(folder);
    fit(folder, &c);
    ASSERT_OK(calibration_write(&c, scratch_path(folder, "calibration.json", path), &err));
    ASSERT_OK(calibration_read(path, "abacus, 4 cores", "0.1", &back, &err));
    ASSERT_STR(back.device, c.device);
    ASSERT_STR(back.memplan_version, c.memplan_version);
    ASSERT_STR(back.made_by, c.made_by);
    ASSERT_INT(back.run_count, 1);
    ASSERT_INT(back.runs[0].run_id, 1);
    ASSERT_INT(back.runs[0].threads, 2);
    ASSERT_INT(back.runs[0].ranks, 2);
    ASSERT(back.runs[0].step_ratio == c.runs[0].step_ratio);
    ASSERT_INT(back.runs[0].precision, c.runs[0].precision);
    ASSERT(back.runs[0].step_spread == c.runs[0].step_spread);
    for (int group = 0; group < CALIBRATION_GROUPS; group++) {
        const struct calibration_link *a = &c.links[group], *b = &back.links[group];
        ASSERT(a->latency_s == b->latency_s && a->bytes_per_s == b->bytes_per_s && a->spread == b->spread);
        ASSERT_INT(a->count, b->count);
    }
    for (int kind = 0; kind < OP_KINDS; kind++) {
        ASSERT_INT(back.kinds[PRECISION_FP32][kind].count, c.kinds[PRECISION_FP32][kind].count);
        ASSERT(back.kinds[PRECISION_FP32][kind].spread == c.kinds[PRECISION_FP32][kind].spread);
        for (int64_t i = 0; i < c.kinds[PRECISION_FP32][kind].count; i++) {
            const struct calibration_point *a = &c.kinds[PRECISION_FP32][kind].points[i],
                                           *b = &back.kinds[PRECISION_FP32][kind].points[i];
            ASSERT_INT(a->threads, b->threads);
            ASSERT(a->m == b->m && a->n == b->n && a->k == b->k && a->count == b->count);
            ASSERT(a->flops == b->flops && a->bytes == b->bytes && a->seconds == b->seconds);
        }
    }
    calibration_clear(&c);
    calibration_clear(&back);
    scratch_close(folder);
}

TEST(calibration_odd_bytes,
     "a command line that is not UTF-8 does not keep the calibration from being written")
{
    char folder[64], path[128];
    struct error err = {0};
    struct calibration back;
    struct calibration c = {
        .device = "abacus", .memplan_version = "0.1", .made_by = "memplan calibrate caf\xe9.db"};
    scratch_open(folder);
    ASSERT_OK(calibration_write(&c, scratch_path(folder, "calibration.json", path), &err));
    ASSERT_OK(calibration_read(path, "abacus", "0.1", &back, &err));
    ASSERT_STR(back.made_by, "memplan calibrate caf?.db");
    calibration_clear(&back);
    scratch_close(folder);
}

TEST(calibration_refusals, "a calibration of another machine or another memplan is refused by name")
{
    char folder[64], path[128];
    struct error err = {0};
    struct calibration c, back;
    scratch_open(folder);
    fit(folder, &c);
    ASSERT_OK(calibration_write(&c, scratch_path(folder, "calibration.json", path), &err));
    ASSERT_INT(calibration_read(path, "slide rule, 1 core", "0.1", &back, &err), -1);
    ASSERT_HAS(err.text, "was measured on abacus, 4 cores, and this is slide rule, 1 core");
    ASSERT_INT(calibration_read(path, "abacus, 4 cores", "0.2", &back, &err), -1);
    ASSERT_HAS(err.text, "was measured with memplan 0.1, and this is 0.2");
    calibration_clear(&c);

    static const char *const wrong[][2] = {
        {"{}", "not a calibration"},
        {"{\"memplan_calibration\": 2}", "calibration version 2"},
        {"{\"memplan_calibration\": 3, \"device\": \"d\", \"memplan_version\": \"v\", \"runs\": [{\"run\": "
         "1, \"precision\": \"fp32\", \"ranks\": 1, \"threads\": 0, "
         "\"step_ratio\": 1}], \"links\": [], \"operations\": []}",
         "0 threads"},
        {"{\"memplan_calibration\": 3, \"device\": \"d\", \"memplan_version\": \"v\", \"runs\": [], "
         "\"links\": [{\"group\": \"crowd\", "
         "\"latency_s\": 0, \"bytes_per_s\": 0, \"count\": 1}], \"operations\": []}",
         "group \"crowd\" is unknown"},
        {"{\"memplan_calibration\": 3, \"device\": \"d\", \"memplan_version\": \"v\", \"runs\": [], "
         "\"links\": [{\"group\": \"parts\", "
         "\"latency_s\": -1, \"bytes_per_s\": 0, \"count\": 1}], \"operations\": []}",
         "negative latency"},
        {"{\"memplan_calibration\": 3, \"device\": \"d\", \"memplan_version\": \"v\", \"runs\": [], "
         "\"links\": [], "
         "\"operations\": [{\"kind\": \"prayer\", \"precision\": \"fp32\", \"points\": []}]}",
         "operation \"prayer\" is unknown"},
        {"{\"memplan_calibration\": 3, \"device\": \"d\", \"memplan_version\": \"v\", \"runs\": [], "
         "\"links\": [], "
         "\"operations\": [{\"kind\": \"gelu\", \"precision\": \"fp32\", \"points\": [{\"threads\": 1, "
         "\"flops\": 0, \"bytes\": 4, "
         "\"seconds\": 0, \"count\": 1}]}]}",
         "gelu point 0"},
        {"{\"memplan_calibration\": 3, \"device\": \"d\", \"memplan_version\": \"v\", \"runs\": [], "
         "\"links\": [], "
         "\"operations\": [{\"kind\": \"gelu\", \"precision\": \"fp12\", \"points\": []}]}",
         "precision \"fp12\" is unknown"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct text text = {0};
        text_add(&text, wrong[i][0]);
        ASSERT_OK(text_write(&text, path, &err));
        text_free(&text);
        ASSERT_INT(calibration_read(path, "d", "v", &back, &err), -1);
        ASSERT_HAS(err.text, path);
        ASSERT_HAS(err.text, wrong[i][1]);
    }
    scratch_close(folder);
}

TEST(calibration_of_nothing, "a run without timed operations cannot be calibrated from")
{
    char folder[64], path[128];
    struct error err = {0};
    struct store *store;
    struct store_run run = {.ranks = 1};
    struct calibration c = {0};
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    ASSERT_OK(store_commit(store, &err));
    ASSERT_INT(calibration_fit(store, run.run_id, 1, &c, &err), -1);
    ASSERT_HAS(err.text, "has no timed operations");
    store_close(store);
    scratch_close(folder);
}

TEST(calibration_in_use, "a speed takes calibrated times, and scales them with the threads of a rank")
{
    char folder[64];
    struct calibration c; /* of 2 threads in each of 2 ranks */
    struct machine_speed speed;
    scratch_open(folder);
    fit(folder, &c);
    machine_speed_from_cpuinfo("", 4, &speed);
    machine_speed_use(&speed, &c, PRECISION_FP32);
    struct work work = {.flops = 65536, .m = 64, .n = 32, .k = 16};
    ASSERT_NEAR(machine_speed_seconds(&speed, OP_MATMUL, &work, 2), 1.5 * 0.0035, 1e-12);
    ASSERT_NEAR(machine_speed_seconds(&speed, OP_MATMUL, &work, 1), 1.5 * 0.00175, 1e-12);
    ASSERT_NEAR(machine_speed_seconds(&speed, OP_MATMUL, &work, 4), 1.5 * 0.007, 1e-12);
    ASSERT_NEAR(machine_speed_seconds(&speed, OP_MATMUL, &work, 8), 1.5 * 0.014, 1e-12); /* in turns */
    struct work reduce = {.bytes_sent = 1e6, .group = {.ranks = 2}};                     /* at 5e8 bytes/s */
    ASSERT_NEAR(machine_speed_seconds(&speed, OP_ALL_REDUCE, &reduce, 2), 0.002, 1e-9);
    c.links[CALIBRATION_PARTS] =
        (struct calibration_link){.latency_s = 0.001, .bytes_per_s = 1e9, .count = 1};
    ASSERT_NEAR(machine_speed_seconds(&speed, OP_SUM_PARTIAL, &reduce, 2), 0.002, 1e-9);
    ASSERT_NEAR(machine_speed_seconds(&speed, OP_SUM_PARTIAL, &reduce, 8), 0.003, 1e-9);
    calibration_clear(&c);
    scratch_close(folder);
}
