/* run.db: what goes in comes out, the views say what was worked out by hand, and no accident spoils a file. */
#include "tests/profiler/sample.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { BATCH = 1000, NOBODY = 65534 };

static struct error err;

static void sample_write(struct store *store, struct store_run *run)
{
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, run, &err));
    for (int i = 0; i < SAMPLE_TENSORS; i++)
        ASSERT_OK(store_tensor_add(store, run->run_id, 0, &sample_tensors[i], &err));
    for (int i = 0; i < SAMPLE_EVENTS; i++)
        ASSERT_OK(store_memory_add(store, run->run_id, 0, &sample_events[i], &err));
    ASSERT_OK(store_commit(store, &err));
}

/* A file with one finished run of the sample. */
static void sample_file(const char *path)
{
    struct store *store;
    struct store_run run = {.model = "tiny", .ranks = 1};
    ASSERT_OK(store_create(path, &store, &err));
    sample_write(store, &run);
    store_close(store);
}

static void assert_roles(const int64_t *got, const int64_t *expected)
{
    for (int role = 0; role < ROLE_COUNT; role++)
        ASSERT_MSG(got[role] == expected[role], "%s: %lld bytes, expected %lld", role_name(role),
                   (long long)got[role], (long long)expected[role]);
}

static int64_t count_events(struct store *store, int64_t run_id)
{
    struct arena *arena = arena_create();
    struct store_point *points;
    int64_t count;
    ASSERT_OK(store_read_timeline(store, run_id, 0, 0, arena, &points, &count, &err));
    for (int64_t i = 0; i < count; i++)
        ASSERT_INT(points[i].seq, i);
    arena_free(arena);
    return count;
}

static void assert_sample_readable(const char *path)
{
    struct store *store;
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_INT(count_events(store, 1), SAMPLE_EVENTS);
    store_close(store);
}

static void count_event(void *context, const struct store_memory *event)
{
    int64_t *next = context;
    ASSERT_INT(event->seq, *next);
    *next += 1;
}

TEST(store_from, "whoever has seen some events and steps can read the others alone")
{
    char folder[64], path[128];
    struct store *store;
    struct store_run run = {.ranks = 2};
    struct arena *arena = arena_create();
    struct store_step *steps;
    int64_t count, next = 3;
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    sample_write(store, &run);
    ASSERT_OK(store_begin(store, &err));
    for (int step = 0; step < 4; step++)
        for (int rank = 0; rank < 2; rank++)
            ASSERT_OK(store_step_add(store, 1, &(struct store_step){.rank = rank, .step = step, .loss = step},
                                     &err));
    ASSERT_OK(store_commit(store, &err));
    ASSERT_OK(store_each_memory_from(store, 1, 0, 3, count_event, &next, &err));
    ASSERT_INT(next, SAMPLE_EVENTS);
    ASSERT_OK(store_each_memory_from(store, 1, 0, next, count_event, &next, &err));
    ASSERT_INT(next, SAMPLE_EVENTS);
    ASSERT_OK(store_read_steps_from(store, 1, 2, arena, &steps, &count, &err));
    ASSERT_INT(count, 4);
    ASSERT_INT(steps[0].step, 2);
    ASSERT_INT(steps[3].step, 3);
    ASSERT_INT(steps[3].rank, 1);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

TEST(store_run_row, "a run comes back as it was written, and a second one is added behind it")
{
    char folder[64], path[128];
    struct store *store;
    struct arena *arena = arena_create();
    struct store_run *runs, one;
    int64_t count, latest;
    scratch_open(folder);
    struct store_run first = {.started_at = "2026-01-02T03:04:05Z",
                              .command = "memplan profile",
                              .model = "gpt2",
                              .model_json = "{\"layers\": 12}",
                              .device = "cpu",
                              .capacity_bytes = 300 << 20,
                              .policy = "tensor",
                              .memplan_version = "1.0",
                              .ranks = 2,
                              .event_steps = 3,
                              .note = "é",
                              .steps = 60};
    struct store_run second = {.ranks = 1};
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &first, &err));
    ASSERT_OK(store_commit(store, &err));
    store_close(store);
    ASSERT_OK(store_create(path, &store, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &second, &err));
    ASSERT_OK(store_run_finish(store, second.run_id, &err));
    ASSERT_OK(store_commit(store, &err));
    store_close(store);

    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(store_latest_run(store, &latest, &err));
    ASSERT_OK(store_read_runs(store, arena, &runs, &count, &err));
    ASSERT_INT(count, 2);
    ASSERT_INT(runs[0].run_id, 1);
    ASSERT_STR(runs[0].started_at, "2026-01-02T03:04:05Z");
    ASSERT(runs[0].finished_at == NULL);
    ASSERT_STR(runs[0].model_json, "{\"layers\": 12}");
    ASSERT_STR(runs[0].note, "é");
    ASSERT_INT(runs[0].capacity_bytes, 300 << 20);
    ASSERT_INT(runs[0].event_steps, 3);
    ASSERT_INT(runs[0].steps, 60);
    ASSERT_INT(runs[1].steps, 0);
    ASSERT_INT(runs[0].ranks, 2);
    ASSERT_INT(latest, 2);
    ASSERT_OK(store_read_run(store, 2, arena, &one, &err));
    ASSERT_INT(strlen(one.started_at), strlen("2026-01-02T03:04:05Z"));
    ASSERT(one.finished_at != NULL && one.model == NULL && one.capacity_bytes == 0);
    ASSERT_INT(store_read_run(store, 7, arena, &one, &err), -1);
    ASSERT_HAS(err.text, "has no run 7; its latest is run 2");
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

TEST(store_peak, "the peak is the first moment of the highest live sum, by role, layer and tensor")
{
    char folder[64], path[128];
    struct store *store;
    struct arena *arena = arena_create();
    struct store_layer *layers;
    struct store_tensor *tensors;
    int64_t bytes[ROLE_COUNT], count;
    scratch_open(folder);
    sample_file(scratch_path(folder, "run.db", path));
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(store_read_peak_breakdown(store, 1, 0, bytes, &err));
    assert_roles(bytes, sample_at_peak);

    /* The workspace has no tensor, so no layer either. */
    const struct store_layer expected[] = {{-1, ROLE_PARAMETER, 100},
                                           {-1, ROLE_WORKSPACE, 30},
                                           {0, ROLE_GRADIENT, 50},
                                           {0, ROLE_ACTIVATION, 200}};
    ASSERT_OK(store_read_layer_breakdown(store, 1, 0, arena, &layers, &count, &err));
    ASSERT_INT(count, 4);
    for (int i = 0; i < 4; i++)
        ASSERT(layers[i].layer == expected[i].layer && layers[i].role == expected[i].role &&
               layers[i].bytes == expected[i].bytes);

    ASSERT_OK(store_read_peak_tensors(store, 1, 0, 3, arena, &tensors, &count, &err));
    ASSERT_INT(count, 3);
    ASSERT_STR(tensors[0].name, "layer 0 qkv");
    ASSERT_STR(tensors[0].dims, "2x25");
    ASSERT_INT(tensors[0].micro_batch, 0);
    ASSERT_INT(tensors[0].bytes, 200);
    ASSERT_INT(tensors[1].bytes, 100);
    ASSERT_INT(tensors[2].bytes, 50);
    ASSERT_OK(store_read_peak_tensors(store, 1, 0, -1, arena, &tensors, &count, &err));
    ASSERT_INT(count, 4);
    ASSERT(tensors[3].name == NULL && tensors[3].tensor_id == -1 && tensors[3].bytes == 30);

    /* A rank without events has no peak. */
    ASSERT_OK(store_read_peak_breakdown(store, 1, 1, bytes, &err));
    assert_roles(bytes, (int64_t[ROLE_COUNT]){0});
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

/* Two stages of a pipeline, whose programs give the same ids to different things. On both, operation 5 works on micro-batch 1
 * while what micro-batch 0 made is still alive. */
static const struct store_tensor stage_tensors[2][2] = {
    {{7, "layer 0 qkv", "16", "F32", ROLE_ACTIVATION, 0, 0, 64},
     {8, "layer 0 qkv", "16", "F32", ROLE_ACTIVATION, 0, 1, 64}},
    {{7, "layer 2 up", "25", "F32", ROLE_ACTIVATION, 2, 0, 100},
     {8, "send buffer 0", "5", "F32", ROLE_COMMUNICATION, -1, -1, 20}},
};
static const struct store_operation stage_operations[2] = {
    {5, "matmul", "forward", "M8", 0, 1, false, 0, 0},
    {5, "send", "forward", "M4", -1, 1, false, 0, 0},
};

static void stage_write(struct store *store, int64_t run_id, int rank)
{
    struct store_kernel kernel = {.operation_id = 5, .start_ns = 10 * (rank + 1), .end_ns = 20 * (rank + 1)};
    struct store_memory event = {.operation_id = -1, .step = 0};
    for (int i = 0; i < 2; i++) {
        const struct store_tensor *tensor = &stage_tensors[rank][i];
        ASSERT_OK(store_tensor_add(store, run_id, rank, tensor, &err));
        event.seq = i;
        event.operation_id = i ? 5 : 1;
        event.tensor_id = tensor->tensor_id;
        event.role = tensor->role;
        event.bytes = tensor->bytes;
        event.live_bytes += tensor->bytes;
        ASSERT_OK(store_memory_add(store, run_id, rank, &event, &err));
    }
    ASSERT_OK(store_operation_add(store, run_id, rank, &stage_operations[rank], &err));
    ASSERT_OK(store_kernel_add(store, run_id, rank, &kernel, &err));
}

static void stage_check(struct store *store, int rank)
{
    struct arena *arena = arena_create();
    struct store_tensor *tensors;
    struct store_span *spans;
    struct store_layer *layers;
    int64_t count;
    ASSERT_OK(store_read_peak_tensors(store, 1, rank, -1, arena, &tensors, &count, &err));
    ASSERT_INT(count, 2);
    for (int i = 0; i < 2; i++) {
        const struct store_tensor *expected = NULL;
        for (int k = 0; k < 2; k++)
            if (stage_tensors[rank][k].tensor_id == tensors[i].tensor_id)
                expected = &stage_tensors[rank][k];
        ASSERT(expected != NULL);
        ASSERT_STR(tensors[i].name, expected->name);
        ASSERT_INT(tensors[i].layer, expected->layer);
        ASSERT_INT(tensors[i].micro_batch, expected->micro_batch);
        ASSERT_INT(tensors[i].bytes, expected->bytes);
    }
    ASSERT_OK(store_read_layer_breakdown(store, 1, rank, arena, &layers, &count, &err));
    ASSERT_INT(count, rank + 1);
    ASSERT_INT(layers[count - 1].layer, rank ? 2 : 0);
    ASSERT_INT(layers[count - 1].bytes, rank ? 100 : 128);
    ASSERT_OK(store_read_kernels(store, 1, rank, 0, arena, &spans, &count, &err));
    ASSERT_INT(count, 1);
    ASSERT_STR(spans[0].operation.kind, stage_operations[rank].kind);
    ASSERT_INT(spans[0].operation.layer, stage_operations[rank].layer);
    ASSERT_INT(spans[0].operation.micro_batch, 1);
    arena_free(arena);
}

TEST(store_stages,
     "ranks whose programs differ share ids and nothing else; micro-batches on their way stay apart")
{
    char folder[64], path[128];
    struct store *store;
    struct store_run run = {.model = "tiny", .ranks = 2};
    struct store_cost *costs;
    struct arena *arena = arena_create();
    int64_t count;
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    for (int rank = 0; rank < 2; rank++)
        stage_write(store, run.run_id, rank);
    ASSERT_OK(store_commit(store, &err));
    for (int rank = 0; rank < 2; rank++)
        stage_check(store, rank);

    /* The send of rank 1 took 20 ns, the product of rank 0 10 ns. */
    ASSERT_OK(store_read_operation_costs(store, 1, arena, &costs, &count, &err));
    ASSERT_INT(count, 2);
    ASSERT_STR(costs[0].kind, "send");
    ASSERT_NEAR(costs[0].median_s, 20e-9, 1e-15);
    ASSERT_STR(costs[1].kind, "matmul");
    ASSERT_NEAR(costs[1].median_s, 10e-9, 1e-15);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

TEST(store_timeline, "nine events in at most three points keep the highest moment of each third")
{
    char folder[64], path[128];
    struct store *store;
    struct arena *arena = arena_create();
    struct store_point *points;
    int64_t count;
    scratch_open(folder);
    sample_file(scratch_path(folder, "run.db", path));
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(store_read_timeline(store, 1, 0, 3, arena, &points, &count, &err));
    /* 100 150 350 | 380 350 380 | 350 150 214 */
    ASSERT_INT(count, 3);
    ASSERT_INT(points[0].seq, 2);
    ASSERT_INT(points[0].live_bytes, 350);
    ASSERT_INT(points[1].seq, 3);
    assert_roles(points[1].live, sample_at_peak);
    ASSERT_INT(points[2].seq, 6);
    ASSERT_INT(points[2].live[ROLE_COMMUNICATION], 0);
    ASSERT_OK(store_read_timeline(store, 1, 0, 4, arena, &points, &count, &err));
    ASSERT_INT(count, 3);
    ASSERT_OK(store_read_timeline(store, 1, 0, 0, arena, &points, &count, &err));
    ASSERT_INT(count, 9);
    ASSERT_INT(points[8].live[ROLE_ACTIVATION], 64);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

/* What a walk hands out, copied. */
struct walked {
    struct store_memory events[SAMPLE_EVENTS];
    struct store_kernel kernels[3];
    int64_t event_count, kernel_count;
};

static void see_event(void *context, const struct store_memory *event)
{
    struct walked *walked = context;
    ASSERT(walked->event_count < SAMPLE_EVENTS);
    walked->events[walked->event_count++] = *event;
}

static void see_kernel(void *context, const struct store_kernel *kernel)
{
    struct walked *walked = context;
    ASSERT(walked->kernel_count < 3);
    walked->kernels[walked->kernel_count++] = *kernel;
}

/* Two kernels of step 1 and one of step 0, which were recorded in the other order. */
static void add_kernels(struct store *store, int64_t run_id)
{
    static const struct store_kernel kernels[] = {
        {0, 7, 500, 600, 1}, {1, 8, 600, 650, 1}, {0, 9, 100, 200, 0}};
    ASSERT_OK(store_begin(store, &err));
    for (int i = 0; i < 3; i++)
        ASSERT_OK(store_kernel_add(store, run_id, 0, &kernels[i], &err));
    ASSERT_OK(store_commit(store, &err));
}

TEST(store_walks, "events and kernels come one by one, in order and whole; a rank without any has none")
{
    char folder[64], path[128];
    struct store *store;
    struct store_run run = {.model = "tiny", .ranks = 2};
    struct walked all = {0}, one = {0};
    int64_t events;
    int step;
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    sample_write(store, &run);
    add_kernels(store, run.run_id);
    ASSERT_OK(store_each_memory(store, run.run_id, 0, see_event, &all, &err));
    ASSERT_OK(store_count_memory(store, run.run_id, 0, &events, &err));
    ASSERT_INT(all.event_count, SAMPLE_EVENTS);
    ASSERT_INT(events, SAMPLE_EVENTS);
    for (int i = 0; i < SAMPLE_EVENTS; i++) {
        ASSERT_INT(all.events[i].seq, i);
        ASSERT_INT(all.events[i].bytes, sample_events[i].bytes);
        ASSERT_INT(all.events[i].live_bytes, sample_events[i].live_bytes);
        ASSERT_INT(all.events[i].tensor_id, sample_events[i].tensor_id);
        ASSERT_INT(all.events[i].role, sample_events[i].role);
        ASSERT_INT(all.events[i].step, sample_events[i].step);
    }
    ASSERT_OK(store_each_kernel(store, run.run_id, 0, -1, see_kernel, &all, &err));
    ASSERT_OK(store_each_kernel(store, run.run_id, 0, 1, see_kernel, &one, &err));
    ASSERT_INT(all.kernel_count, 3);
    ASSERT_INT(all.kernels[0].operation_id, 9);
    ASSERT_INT(one.kernel_count, 2);
    ASSERT_INT(one.kernels[1].end_ns, 650);
    ASSERT_OK(store_last_kernel_step(store, run.run_id, 0, &step, &err));
    ASSERT_INT(step, 1);
    ASSERT_OK(store_last_kernel_step(store, run.run_id, 1, &step, &err));
    ASSERT_INT(step, -1);
    ASSERT_OK(store_count_memory(store, run.run_id, 1, &events, &err));
    ASSERT_INT(events, 0);
    store_close(store);
    scratch_close(folder);
}

/* The writer commits a second run between two readings. */
TEST(store_frozen, "a frozen reader goes on seeing the file as it was; a new one sees what was written since")
{
    char folder[64], path[128];
    struct store *writer, *reader;
    struct store_run run = {.model = "tiny", .ranks = 1};
    int64_t latest;
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &writer, &err));
    sample_write(writer, &run);
    ASSERT_OK(store_open_read(path, &reader, &err));
    ASSERT_OK(store_freeze(reader, &err));
    ASSERT_OK(store_latest_run(reader, &latest, &err));
    ASSERT_INT(latest, 1);
    run.run_id = 0;
    sample_write(writer, &run);
    ASSERT_OK(store_latest_run(reader, &latest, &err));
    ASSERT_INT(latest, 1);
    store_close(reader);
    ASSERT_OK(store_open_read(path, &reader, &err));
    ASSERT_OK(store_latest_run(reader, &latest, &err));
    ASSERT_INT(latest, 2);
    store_close(reader);
    store_close(writer);
    scratch_close(folder);
}

TEST(store_differences, "predicted minus measured, for every rank and role")
{
    char folder[64], path[128];
    struct store *store;
    struct arena *arena = arena_create();
    struct store_difference *rows;
    struct store_prediction *predictions;
    struct store_rank *ranks;
    int64_t count;
    struct store_run run = {.ranks = 2};
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    struct store_prediction foretold = {.rank = 1,
                                        .at_peak = {[ROLE_PARAMETER] = 90, [ROLE_INPUT] = 8},
                                        .arena_bytes = 128,
                                        .step_seconds = 0.25};
    struct store_rank measured = {.rank = 1,
                                  .measured = true,
                                  .arena_bytes = 120,
                                  .peak_bytes = 100,
                                  .reserved_peak_bytes = 121,
                                  .at_peak = {[ROLE_PARAMETER] = 100},
                                  .host = "node7"};
    ASSERT_OK(store_prediction_add(store, 1, &foretold, &err));
    ASSERT_OK(store_rank_add(store, 1, &measured, &err));
    ASSERT_OK(store_commit(store, &err));

    ASSERT_OK(store_read_predicted_vs_measured(store, 1, arena, &rows, &count, &err));
    ASSERT_INT(count, ROLE_COUNT); /* rank 0 has neither side */
    for (int role = 0; role < ROLE_COUNT; role++) {
        ASSERT(rows[role].rank == 1 && rows[role].role == (enum role)role);
        ASSERT_INT(rows[role].predicted_bytes, role == ROLE_PARAMETER ? 90 : role == ROLE_INPUT ? 8 : 0);
        ASSERT_INT(rows[role].measured_bytes, role == ROLE_PARAMETER ? 100 : 0);
    }
    ASSERT_OK(store_read_predictions(store, 1, arena, &predictions, &count, &err));
    ASSERT_INT(count, 1);
    ASSERT_INT(predictions[0].rank, 1);
    ASSERT_INT(predictions[0].peak_bytes, 98);
    ASSERT_INT(predictions[0].arena_bytes, 128);
    ASSERT_NEAR(predictions[0].step_seconds, 0.25, 1e-12);
    ASSERT_OK(store_read_ranks(store, 1, arena, &ranks, &count, &err));
    ASSERT_INT(count, 2);
    ASSERT(!ranks[0].measured && ranks[1].measured);
    ASSERT_INT(ranks[1].reserved_peak_bytes, 121);
    ASSERT_INT(ranks[1].at_peak[ROLE_PARAMETER], 100);
    ASSERT_STR(ranks[1].host, "node7");
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

TEST(store_costs, "equal operations share a median, and kernels carry their operation")
{
    char folder[64], path[128];
    struct store *store;
    struct arena *arena = arena_create();
    struct store_cost *costs;
    struct store_span *spans;
    struct store_operation *operations;
    int64_t count;
    struct store_run run = {.ranks = 1};
    const struct store_operation matmuls[] = {
        {10, "matmul", "forward", "M8 N4 K2", 0, 1, false, 128, 96},
        {11, "matmul", "forward", "M8 N4 K2", 1, 1, false, 128, 96},
        {12, "matmul", "backward", "M8 N4 K2", 1, 1, true, 128, 96},
    };
    /* Forward: 10, 30, 20 and 100 ns: median 25, mean 40. Backward: 7 ns. Operation 99 was never announced. */
    const struct store_kernel kernels[] = {
        {0, 10, 1000, 1010, 0}, {1, 11, 1010, 1040, 0}, {2, 12, 1040, 1047, 0},
        {3, 99, 1047, 1050, 0}, {4, 10, 2000, 2020, 1}, {5, 11, 2020, 2120, 1},
    };
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    for (int i = 0; i < 3; i++)
        ASSERT_OK(store_operation_add(store, 1, 0, &matmuls[i], &err));
    for (int i = 0; i < 6; i++)
        ASSERT_OK(store_kernel_add(store, 1, 0, &kernels[i], &err));
    ASSERT_OK(store_commit(store, &err));

    ASSERT_OK(store_read_operation_costs(store, 1, arena, &costs, &count, &err));
    ASSERT_INT(count, 2);
    ASSERT_STR(costs[0].phase, "forward");
    ASSERT_STR(costs[0].detail, "M8 N4 K2");
    ASSERT_INT(costs[0].count, 4);
    ASSERT_NEAR(costs[0].median_s, 25e-9, 1e-15);
    ASSERT_NEAR(costs[0].mean_s, 40e-9, 1e-15);
    ASSERT_NEAR(costs[0].min_s, 10e-9, 1e-15);
    ASSERT_INT(costs[0].flops, 128);
    ASSERT_INT(costs[0].bytes, 96);
    ASSERT_INT(costs[1].count, 1);
    ASSERT_NEAR(costs[1].median_s, 7e-9, 1e-15);

    ASSERT_OK(store_read_kernels(store, 1, 0, 0, arena, &spans, &count, &err));
    ASSERT_INT(count, 4);
    ASSERT_INT(spans[2].kernel.end_ns, 1047);
    ASSERT_STR(spans[2].operation.phase, "backward");
    ASSERT(spans[2].operation.recompute);
    ASSERT_STR(spans[3].operation.kind, "");
    ASSERT_INT(spans[3].operation.operation_id, 99);
    ASSERT_INT(spans[3].operation.layer, -1);
    ASSERT_OK(store_read_operations(store, 1, 0, arena, &operations, &count, &err));
    ASSERT_INT(count, 3);
    ASSERT_INT(operations[1].layer, 1);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

TEST(store_steps, "step figures come back in order of step, and what is unknown stays unknown")
{
    char folder[64], path[128];
    struct store *store;
    struct arena *arena = arena_create();
    struct store_step *steps;
    int64_t count;
    struct store_run run = {.ranks = 2};
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    for (int rank = 1; rank >= 0; rank--)
        for (int step = 0; step < 2; step++) {
            struct store_step row = {.rank = rank,
                                     .step = step,
                                     .loss = rank ? 2.5 - step : NAN,
                                     .grad_norm = 1,
                                     .seconds = 0.5,
                                     .tokens = 1024,
                                     .tokens_per_s = 2048,
                                     .communication_busy_s = 0.1,
                                     .communication_waited_s = 0.02};
            ASSERT_OK(store_step_add(store, 1, &row, &err));
        }
    ASSERT_OK(store_commit(store, &err));
    ASSERT_OK(store_read_steps(store, 1, arena, &steps, &count, &err));
    ASSERT_INT(count, 4);
    ASSERT(steps[0].step == 0 && steps[0].rank == 0 && isnan(steps[0].loss));
    ASSERT(steps[3].step == 1 && steps[3].rank == 1);
    ASSERT_NEAR(steps[3].loss, 1.5, 1e-12);
    ASSERT_INT(steps[3].tokens, 1024);
    ASSERT_NEAR(steps[3].communication_waited_s, 0.02, 1e-12);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

/* A thousand steps of 500 tensors taken and then given back in reverse, over 1,000 bytes of parameters. Tensor i holds
 * i + 1 bytes, so live bytes peak at 1,000 + 500 * 501 / 2 = 126,250 when all 500 live. */
static void write_million_events(struct store *store)
{
    struct store_memory event = {.bytes = 1000, .live_bytes = 1000, .tensor_id = 500, .role = ROLE_PARAMETER};
    ASSERT_OK(store_memory_add(store, 1, 0, &event, &err));
    for (int step = 0; step < 1000; step++)
        for (int i = 0; i < 1000; i++) {
            int tensor = i < 500 ? i : 999 - i;
            event.seq++;
            event.time_ns += 1000;
            event.step = step;
            event.tensor_id = tensor;
            event.role = tensor % 2 ? ROLE_ACTIVATION : ROLE_WORKSPACE;
            event.bytes = i < 500 ? tensor + 1 : -(tensor + 1);
            event.live_bytes += event.bytes;
            ASSERT_OK(store_memory_add(store, 1, 0, &event, &err));
        }
}

TEST(store_million, "the peak of a million events is found in less than a second")
{
    char folder[64], path[128];
    struct store *store;
    struct store_run run = {.ranks = 1};
    int64_t bytes[ROLE_COUNT];
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    write_million_events(store);
    ASSERT_OK(store_commit(store, &err));
    store_close(store);
    ASSERT_OK(store_open_read(path, &store, &err));
    double best = 1e9; /* of three: the machine may be busy */
    for (int i = 0; i < 3; i++) {
        double start = thread_seconds();
        ASSERT_OK(store_read_peak_breakdown(store, 1, 0, bytes, &err));
        best = fmin(best, thread_seconds() - start);
    }
    ASSERT_MSG(best < 1, "took %.2f s", best);
    /* Odd tensors hold 2 + 4 + ... + 500 = 62,750 bytes, even ones 1 + 3 + ... + 499 = 62,500. */
    assert_roles(bytes, (int64_t[ROLE_COUNT]){
                            [ROLE_PARAMETER] = 1000, [ROLE_ACTIVATION] = 62750, [ROLE_WORKSPACE] = 62500});
    store_close(store);
    scratch_close(folder);
}

/* Whole batches of events, numbered on, until one fails. Returns how many were committed. */
static int64_t write_batches(struct store *store, int64_t run_id, int64_t most, int report)
{
    for (int64_t batch = 0; batch < most; batch++) {
        if (store_begin(store, &err))
            return batch;
        for (int i = 0; i < BATCH; i++) {
            struct store_memory event = {
                .seq = batch * BATCH + i, .bytes = 1, .live_bytes = batch * BATCH + i + 1};
            store_memory_add(store, run_id, 0, &event, NULL);
        }
        if (store_commit(store, &err))
            return batch;
        if (report >= 0 && write(report, "+", 1) != 1)
            return batch;
    }
    return most;
}

static struct store *create_with_run(const char *path)
{
    struct store *store;
    struct store_run run = {.ranks = 1};
    ASSERT_OK(store_create(path, &store, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    ASSERT_OK(store_commit(store, &err));
    return store;
}

/* Runs `body` as somebody who cannot write the folder, in a process of its own. */
static void as_nobody(void (*body)(const char *path), const char *folder, const char *path)
{
    ASSERT_INT(chmod(folder, 0555), 0);
    pid_t child = fork();
    if (child == 0) {
        if (getuid() == 0 && setuid(NOBODY))
            _exit(2);
        body(path);
        _exit(0);
    }
    int status;
    ASSERT_INT(waitpid(child, &status, 0), child);
    ASSERT_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0,
               "the reader in a read-only folder ended with %d", status);
}

static void read_whole_batches(const char *path)
{
    struct store *store;
    if (store_open_read(path, &store, &err)) {
        fprintf(stderr, "%s\n", err.text);
        _exit(1);
    }
    if (count_events(store, 1) % BATCH)
        _exit(3);
    store_close(store);
}

static void read_sample(const char *path)
{
    struct store *store;
    if (store_open_read(path, &store, &err)) {
        fprintf(stderr, "%s\n", err.text);
        _exit(1);
    }
    if (count_events(store, 1) != SAMPLE_EVENTS)
        _exit(3);
    store_close(store);
}

TEST(store_killed, "a writer killed in the middle leaves every committed batch readable, and nothing else")
{
    char folder[64], path[128], plus;
    struct store *store;
    struct arena *arena = arena_create();
    struct store_run run;
    int channel[2], reported = 0;
    scratch_open(folder);
    scratch_path(folder, "run.db", path);
    ASSERT_INT(pipe(channel), 0);
    pid_t child = fork();
    if (child == 0) {
        write_batches(create_with_run(path), 1, 1000000, channel[1]);
        _exit(0);
    }
    close(channel[1]);
    while (reported < 20 && read(channel[0], &plus, 1) == 1)
        reported++;
    kill(child, SIGKILL);
    ASSERT_INT(waitpid(child, NULL, 0), child);
    while (read(channel[0], &plus, 1) == 1)
        reported++;

    ASSERT_OK(store_open_read(path, &store, &err));
    int64_t count = count_events(store, 1);
    ASSERT_INT(count % BATCH, 0);
    /* The last commit may have come before its report. */
    ASSERT_MSG(count / BATCH == reported || count / BATCH == reported + 1, "%lld events, %d batches reported",
               (long long)count, reported);
    ASSERT_OK(store_read_run(store, 1, arena, &run, &err));
    ASSERT(run.finished_at == NULL);
    store_close(store);
    as_nobody(read_whole_batches, folder, path);
    arena_free(arena);
    scratch_close(folder);
}

/* Fills what little room there is, then checks that whole batches are there and only those. */
static void assert_full(const char *path, const char *message)
{
    struct store *store = create_with_run(path);
    int64_t batches = write_batches(store, 1, 1000, -1);
    ASSERT_MSG(batches > 0 && batches < 1000, "%lld batches were written", (long long)batches);
    ASSERT_HAS(err.text, path);
    ASSERT_HAS(err.text, message);
    store_close(store);
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_INT(count_events(store, 1), batches * BATCH);
    store_close(store);
}

TEST(store_disk_full, "a full disk is an error, and never leaves half a batch")
{
    char folder[64], path[128], full[128];
    scratch_open(folder);
    ASSERT_INT(mkdir(scratch_path(folder, "full", full), 0755), 0);
    if (mount("tmpfs", full, "tmpfs", 0, "size=1m")) {
        scratch_close(folder);
        SKIP("mounting a small file system is not allowed here");
    }
    assert_full(scratch_path(full, "run.db", path), "the disk is full; free some space");
    umount(full);
    scratch_close(folder);
}

TEST(store_size_limit, "a file that may not grow is an error, and never leaves half a batch")
{
    char folder[64], path[128];
    struct rlimit before, limit;
    scratch_open(folder);
    signal(SIGXFSZ, SIG_IGN);
    ASSERT_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 512 << 10;
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_full(scratch_path(folder, "run.db", path), "File too large");
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    scratch_close(folder);
}

static void assert_refused(const char *path, const char *reason, const char *way_out)
{
    struct store *store = NULL;
    ASSERT_INT(store_open_read(path, &store, &err), -1);
    ASSERT(store == NULL);
    ASSERT_HAS(err.text, path);
    ASSERT_HAS(err.text, reason);
    ASSERT_HAS(err.text, way_out);
}

static void write_bytes(const char *path, long offset, const void *bytes, size_t count)
{
    FILE *file = fopen(path, offset ? "r+b" : "wb");
    ASSERT(file != NULL);
    fseek(file, offset, SEEK_SET);
    ASSERT_INT(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

static int count_files(const char *folder)
{
    DIR *entries = opendir(folder);
    int count = 0;
    while (readdir(entries))
        count++;
    closedir(entries);
    return count - 2; /* "." and ".." */
}

TEST(store_create_fails, "a file that could not be begun is not left, and one that was there is")
{
    char folder[64], path[128];
    struct rlimit before, limit;
    struct store *store;
    scratch_open(folder);
    signal(SIGXFSZ, SIG_IGN);
    ASSERT_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 1000; /* less than SQLite's first page */
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ASSERT_INT(store_create(scratch_path(folder, "run.db", path), &store, &err), -1);
    ASSERT_INT(count_files(folder), 0);
    write_bytes(path, 0, "", 0);
    ASSERT_INT(store_create(path, &store, &err), -1);
    ASSERT_INT(access(path, F_OK), 0);
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    scratch_close(folder);
}

TEST(store_discarded, "a run that came to nothing takes along the file made for it, but no other run's")
{
    char folder[64], path[128];
    struct store *store, *other;
    struct store_run run = {.ranks = 1};
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    ASSERT_OK(store_commit(store, &err));
    store_discard(store);
    ASSERT_INT(count_files(folder), 0);
    ASSERT_OK(store_create(path, &store, &err));
    ASSERT_OK(store_create(path, &other, &err));
    store_discard(other); /* found the file there */
    ASSERT_INT(access(path, F_OK), 0);
    for (int i = 0; i < 2; i++) {
        run.run_id = 0;
        ASSERT_OK(store_begin(store, &err));
        ASSERT_OK(store_run_add(store, &run, &err));
        ASSERT_OK(store_commit(store, &err));
    }
    store_discard(store);
    ASSERT_INT(access(path, F_OK), 0);
    store_discard(NULL);
    scratch_close(folder);
}

TEST(store_refusals,
     "what is no run.db is refused in one sentence with a way out, for reading and for writing")
{
    char folder[64], path[128], text[2000];
    struct store *store;
    scratch_open(folder);
    assert_refused(scratch_path(folder, "none.db", path), "No such file", "memplan profile");
    assert_refused(folder, "a folder", "name the run.db");
    memset(text, 'x', sizeof text);
    write_bytes(scratch_path(folder, "text.db", path), 0, text, sizeof text);
    assert_refused(path, "not a database", "name a run.db");
    ASSERT_INT(store_create(path, &store, &err), -1);
    ASSERT_HAS(err.text, "not a database");
    write_bytes(scratch_path(folder, "empty.db", path), 0, text, 0);
    assert_refused(path, "an empty database", "name a run.db");
    /* The header of an SQLite file: user_version at byte 60, application_id at 68, big end first. */
    sample_file(scratch_path(folder, "newer.db", path));
    write_bytes(path, 60, (char[]){0, 0, 0, 9}, 4);
    assert_refused(path, "schema version 9", "update memplan");
    ASSERT_INT(store_create(path, &store, &err), -1);
    ASSERT_HAS(err.text, "schema version 9");
    sample_file(scratch_path(folder, "other.db", path));
    write_bytes(path, 68, (char[]){0, 0, 1, 0}, 4);
    assert_refused(path, "application id 256", "name a run.db");
    ASSERT_INT(store_create(path, &store, &err), -1);
    ASSERT_HAS(err.text, "application id 256");
    ASSERT_INT(store_create(scratch_path(folder, "no/run.db", path), &store, &err), -1);
    ASSERT_HAS(err.text, "No such file or directory");
    scratch_close(folder);
}

static size_t read_bytes(const char *path, char *bytes, size_t room)
{
    FILE *file = fopen(path, "rb");
    ASSERT(file != NULL);
    size_t count = fread(bytes, 1, room, file);
    fclose(file);
    return count;
}

TEST(store_read_only, "reading changes no byte, needs no writable folder, and takes odd names")
{
    enum { ROOM = 1 << 20 };
    char folder[64], path[128], *before = malloc(ROOM), *after = malloc(ROOM);
    scratch_open(folder);
    sample_file(scratch_path(folder, "a run #1?.db", path));
    size_t count = read_bytes(path, before, ROOM);
    assert_sample_readable(path);
    ASSERT_INT(read_bytes(path, after, ROOM), count);
    ASSERT_INT(memcmp(before, after, count), 0);
    ASSERT_INT(count_files(folder), 1);
    as_nobody(read_sample, folder, path);
    free(before);
    free(after);
    scratch_close(folder);
}

TEST(store_left_open,
     "a file that somebody was reading when its writer closed is complete, even copied alone")
{
    char folder[64], path[128], helper[128];
    struct store *writer, *reader;
    struct store_run run = {.ranks = 1};
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run #1?.db", path), &writer, &err));
    sample_write(writer, &run);
    ASSERT_OK(store_open_read(path, &reader, &err));
    ASSERT_INT(count_events(reader, 1), SAMPLE_EVENTS);
    store_close(writer);
    ASSERT_INT(count_events(reader, 1), SAMPLE_EVENTS);
    store_close(reader);
    unlink(scratch_path(folder, "run #1?.db-wal", helper));
    unlink(scratch_path(folder, "run #1?.db-shm", helper));
    as_nobody(read_sample, folder, path);
    scratch_close(folder);
}

static void tell(int channel)
{
    ASSERT_INT(write(channel, "+", 1), 1);
}

static void hear(int channel)
{
    char plus;
    ASSERT_INT(read(channel, &plus, 1), 1);
}

TEST(store_concurrent, "a reader sees whole batches while another process writes, and neither waits")
{
    char folder[64], path[128];
    struct store *store;
    int from_writer[2], to_writer[2], status;
    scratch_open(folder);
    scratch_path(folder, "run.db", path);
    ASSERT(pipe(from_writer) == 0 && pipe(to_writer) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct store_memory event = {.seq = BATCH, .bytes = 1, .live_bytes = BATCH + 1};
        store = create_with_run(path);
        int failed = write_batches(store, 1, 1, -1) != 1 || store_begin(store, &err) ||
                     store_memory_add(store, 1, 0, &event, &err);
        tell(from_writer[1]); /* in the middle of a batch */
        hear(to_writer[0]);
        failed |= store_commit(store, &err);
        tell(from_writer[1]);
        hear(to_writer[0]);
        store_close(store);
        _exit(failed);
    }
    hear(from_writer[0]);
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_INT(count_events(store, 1), BATCH);
    tell(to_writer[1]);
    hear(from_writer[0]);
    ASSERT_INT(count_events(store, 1), BATCH + 1);
    tell(to_writer[1]);
    ASSERT_INT(waitpid(child, &status, 0), child);
    ASSERT_INT(status, 0);
    ASSERT_INT(count_events(store, 1), BATCH + 1);
    store_close(store);
    scratch_close(folder);
}
