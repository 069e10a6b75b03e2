/* run.db: what goes in comes out, all at once or from somewhere on, and a reader sees one moment. */
#include "tests/profiler/sample.h"
#include "tests/profiler/views.h"

#include <math.h>

static struct error err;

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
    struct views_span *spans;
    struct views_role *layers;
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
    ASSERT_OK(views_layer_breakdown(store, 1, rank, arena, &layers, &count, &err));
    ASSERT_INT(count, rank + 1);
    ASSERT_INT(layers[count - 1].place, rank ? 2 : 0);
    ASSERT_INT(layers[count - 1].bytes, rank ? 100 : 128);
    ASSERT_OK(views_kernels(store, 1, rank, 0, arena, &spans, &count, &err));
    ASSERT_INT(count, 1);
    ASSERT_STR(spans[0].operation.kind, stage_operations[rank].kind);
    ASSERT_INT(spans[0].operation.layer, stage_operations[rank].layer);
    ASSERT_INT(spans[0].operation.micro_batch, 1);
    arena_free(arena);
}

TEST(store_stages,
     "ranks whose programs differ share ids and nothing else; micro-batches on their way stay apart")
{
    char folder[64];
    struct store_run run = {.model = "tiny", .ranks = 2};
    struct store_cost *costs;
    struct arena *arena = arena_create();
    int64_t count;
    struct store *store = sample_begin(folder, &run);
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
    int first, last;
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
    ASSERT_OK(store_kernel_steps(store, run.run_id, 0, &first, &last, &err));
    ASSERT_INT(first, 0);
    ASSERT_INT(last, 1);
    ASSERT_OK(store_kernel_steps(store, run.run_id, 1, &first, &last, &err));
    ASSERT_INT(first, -1);
    ASSERT_INT(last, -1);
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

TEST(store_steps, "step figures come back in order of step, and what is unknown stays unknown")
{
    char folder[64];
    struct arena *arena = arena_create();
    struct store_step *steps;
    int64_t count;
    struct store_run run = {.ranks = 2};
    struct store *store = sample_begin(folder, &run);
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
