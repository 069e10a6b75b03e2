/* What ranks did, worked out by hand. */
#include "reports/spans.h"
#include "tests/reports/fixture.h"

static const struct store_operation operations[] = {
    {0, "matmul", "forward", "M8", 0, 0, false, 0, 0},
    {1, "norm", "forward", "", 0, 0, false, 0, 0},
    {2, "matmul", "forward", "M8", 0, 1, false, 0, 0},
    {3, "gelu", "backward", "", 0, 1, true, 0, 0},
    {4, "matmul_dgrad", "backward", "", 0, 1, false, 0, 0},
    {5, "all_reduce", "reduce", "", -1, -1, false, 0, 0},
    {6, "wait", "reduce", "", -1, -1, false, 0, 0},
    {7, "adamw", "optimizer", "", -1, -1, false, 0, 0},
    {8, "receive", "backward", "", -1, 1, false, 0, 0},
};

/* In microseconds. Forward of micro-batch 0 is one stretch of two operations; its neighbour is another micro-batch. The
 * all-reduce runs beside backward and the wait. */
static const int64_t times[][2] = {{0, 100},   {100, 150}, {150, 250}, {300, 350}, {350, 450},
                                   {400, 700}, {450, 700}, {700, 800}, {250, 300}};
enum { KERNELS = sizeof times / sizeof *times };

static void write_run(const char *path)
{
    struct store *store = run_open(path);
    struct store_run run = run_header(1);
    struct store_rank rank = {.rank = 0, .measured = true, .peak_bytes = 1};
    ASSERT_OK(store_run_add(store, &run, &err));
    ASSERT_OK(store_rank_add(store, run.run_id, &rank, &err));
    for (int i = 0; i < KERNELS; i++) {
        ASSERT_OK(store_operation_add(store, run.run_id, 0, &operations[i], &err));
        for (int step = 0; step < 2; step++) {
            int64_t from = 1000000 * (step + 1);
            struct store_kernel kernel = {i, i, from + 1000 * times[i][0], from + 1000 * times[i][1], step};
            ASSERT_OK(store_kernel_add(store, run.run_id, 0, &kernel, &err));
        }
    }
    run_close(store);
}

static struct timeline *read_timeline(const char *folder, int step, struct arena *arena)
{
    char path[128];
    struct store *store;
    struct timeline *timeline;
    write_run(scratch_path(folder, "run.db", path));
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(spans_of_run(store, 1, NULL, step, arena, &timeline, &err));
    store_close(store);
    return timeline;
}

TEST(
    spans_step,
    "work of the last step by kind, with what overlaps counted for each and idle time only where nothing ran")
{
    char folder[64];
    struct arena *arena = arena_create();
    scratch_open(folder);
    struct timeline *timeline = read_timeline(folder, SPANS_LAST_STEP, arena);
    ASSERT_INT(timeline->step_count, 1);
    ASSERT_INT(timeline->steps[0].step, 2);
    ASSERT_INT(timeline->start_ns, 2000000);
    ASSERT_INT(timeline->end_ns, 2800000);
    const struct lane *lane = &timeline->lanes[0];
    static const int64_t busy_us[ACTIVITY_COUNT] = {250, 100, 0, 50, 100, 300, 300};
    for (int activity = 0; activity < ACTIVITY_COUNT; activity++)
        ASSERT_INT(lane->busy_ns[activity], 1000 * busy_us[activity]);
    ASSERT_INT(lane->idle_ns, 0);
    ASSERT_INT(lane->span_count, KERNELS);
    ASSERT_INT(lane->stretch_count, KERNELS - 1);
    ASSERT_INT(lane->stretches[0].operations, 2);
    ASSERT_INT(lane->stretches[0].end_ns, 2150000);
    ASSERT_INT(lane->stretches[1].micro_batch, 1);
    ASSERT(lane->stretches[0].kind == NULL);
    ASSERT_STR(lane->stretches[1].kind, "matmul");
    arena_free(arena);
    scratch_close(folder);
}

TEST(spans_all, "all steps together; the time between them is nobody's idle time; a step without operations "
                "has no timeline")
{
    char folder[64], path[128];
    struct store *store;
    struct arena *arena = arena_create();
    scratch_open(folder);
    struct timeline *timeline = read_timeline(folder, SPANS_ALL_STEPS, arena), *none;
    ASSERT_INT(timeline->step_count, 2);
    ASSERT_INT(timeline->lanes[0].span_count, 2 * KERNELS);
    ASSERT_INT(timeline->lanes[0].idle_ns, 0);
    ASSERT_INT(timeline->lanes[0].busy_ns[ACTIVITY_FORWARD], 500000);
    ASSERT_OK(store_open_read(scratch_path(folder, "run.db", path), &store, &err));
    ASSERT(spans_of_run(store, 1, NULL, 7, arena, &none, &err) == -1);
    ASSERT_STR(err.text, "--step 7: run 1 has recorded operations of 1-2; leave it out for the last");
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

/* The fixture's run: rank 0 is busy 2 + 4 of 8 us, the step being as long as the slower rank 1 makes it. */
TEST(spans_idle, "a rank that is done early is idle until the last one is")
{
    char folder[64], path[128];
    struct store *store;
    struct timeline *timeline;
    struct arena *arena = arena_create();
    scratch_open(folder);
    run_write(scratch_path(folder, "run.db", path));
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(spans_of_run(store, 1, NULL, SPANS_LAST_STEP, arena, &timeline, &err));
    ASSERT_INT(timeline->lane_count, 2);
    ASSERT_INT(timeline->lanes[0].idle_ns, 2000);
    ASSERT_INT(timeline->lanes[1].idle_ns, 1000);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

/* One layer, micro-batch 0, each operation for 10 us: a forward product, and backward of two products. */
static void write_backward(const char *path, const char *const kinds[], int count)
{
    struct store *store = run_open(path);
    struct store_run run = run_header(1);
    struct store_rank rank = {.rank = 0, .measured = true, .peak_bytes = 1};
    ASSERT_OK(store_run_add(store, &run, &err));
    ASSERT_OK(store_rank_add(store, run.run_id, &rank, &err));
    for (int i = 0; i < count; i++) {
        struct store_operation operation = {i, kinds[i], i ? "backward" : "forward", "", 3, 0, false, 0, 0};
        struct store_kernel kernel = {i, i, 10000 * i, 10000 * (i + 1), 0};
        ASSERT_OK(store_operation_add(store, run.run_id, 0, &operation, &err));
        ASSERT_OK(store_kernel_add(store, run.run_id, 0, &kernel, &err));
    }
    run_close(store);
}

static void assert_halves(const char *const kinds[], int count, int64_t backward_ns, int64_t weights_ns)
{
    char folder[64], path[128];
    struct store *store;
    struct timeline *timeline;
    struct arena *arena = arena_create();
    scratch_open(folder);
    write_backward(scratch_path(folder, "run.db", path), kinds, count);
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(spans_of_run(store, 1, NULL, SPANS_LAST_STEP, arena, &timeline, &err));
    ASSERT_INT(timeline->lanes[0].busy_ns[ACTIVITY_FORWARD], 10000);
    ASSERT_INT(timeline->lanes[0].busy_ns[ACTIVITY_BACKWARD], backward_ns);
    ASSERT_INT(timeline->lanes[0].busy_ns[ACTIVITY_WEIGHTS], weights_ns);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

TEST(spans_halves, "products for weights are a half of their own only where all of a layer's stand behind "
                   "the rest of backward")
{
    static const char *const whole[] = {"matmul",       "matmul_wgrad", "matmul_dgrad",
                                        "matmul_wgrad", "matmul_dgrad", "norm_grad"};
    static const char *const halves[] = {"matmul",    "matmul_dgrad", "matmul_dgrad",
                                         "norm_grad", "matmul_wgrad", "matmul_wgrad"};
    static const char *const last[] = {"matmul", "matmul_wgrad", "matmul_dgrad", "norm_grad", "matmul_wgrad"};
    assert_halves(whole, 6, 50000, 0);
    assert_halves(halves, 6, 30000, 20000);
    assert_halves(last, 5, 40000, 0);
}
