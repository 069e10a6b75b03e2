/* The recorder: every event of every rank reaches the file, cheaply, and trouble with the file never stops a rank. */
#include "tests/profiler/sample.h"
#include "tests/profiler/views.h"

#include "base/clock.h"
#include "device/device.h"
#include "profiler/recorder.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

static struct error err;

static void observe_one(const struct observer *observer, int64_t tensor, enum role role, int64_t bytes,
                        int64_t live)
{
    struct memory_event event = {.time_ns = clock_ns(),
                                 .bytes = bytes,
                                 .live_bytes = live,
                                 .operation = -1,
                                 .tag = {.tensor = tensor, .role = role, .name = ""}};
    observer->memory(observer->context, &event);
}

static int64_t count_events(struct store *store, int rank, int64_t *last_step)
{
    struct arena *arena = arena_create();
    struct store_point *points;
    int64_t count;
    ASSERT_OK(store_read_timeline(store, 1, rank, 0, arena, &points, &count, &err));
    for (int64_t i = 0; i < count; i++)
        ASSERT_INT(points[i].seq, i);
    if (last_step)
        *last_step = count ? points[count - 1].step : -1;
    arena_free(arena);
    return count;
}

TEST(recorder_sample, "the hand-worked events, recorded, give the hand-worked peak")
{
    char folder[64], path[128];
    struct recorder *recorder;
    struct store *store;
    struct arena *arena = arena_create();
    struct store_run run = {.ranks = 1}, read;
    struct store_tensor *tensors;
    struct views_span *spans;
    struct store_point *points;
    int64_t bytes[ROLE_COUNT], count;
    scratch_open(folder);
    ASSERT_OK(recorder_open(scratch_path(folder, "run.db", path), &run, &recorder, &err));
    recorder_tensors(recorder, 0, sample_tensors, SAMPLE_TENSORS);
    recorder_operations(recorder, 0, &(struct store_operation){.operation_id = 6, .kind = "matmul"}, 1);
    struct observer observer = recorder_rank_observer(recorder, 0);
    int64_t start = clock_ns();
    for (int i = 0; i < SAMPLE_EVENTS; i++) {
        const struct store_memory *event = &sample_events[i];
        recorder_step_begin(recorder, 0, event->step);
        observe_one(&observer, event->tensor_id, event->role, event->bytes, event->live_bytes);
    }
    observer.range(observer.context, &(struct range_event){start, start + 500, 6, 1});
    ASSERT_OK(recorder_close(recorder, &err));

    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(store_read_run(store, run.run_id, arena, &read, &err));
    ASSERT(read.finished_at != NULL);
    ASSERT_OK(views_peak_breakdown(store, 1, 0, bytes, &err));
    for (int role = 0; role < ROLE_COUNT; role++)
        ASSERT_INT(bytes[role], sample_at_peak[role]);
    ASSERT_OK(store_read_tensors(store, 1, 0, arena, &tensors, &count, &err));
    ASSERT_INT(count, SAMPLE_TENSORS);
    ASSERT_STR(tensors[3].name, "bucket 0");
    ASSERT_OK(store_read_timeline(store, 1, 0, 0, arena, &points, &count, &err));
    ASSERT_INT(points[0].step, -1);
    ASSERT_INT(points[8].step, 1);
    /* Times count from recorder_open(), which was moments ago. */
    ASSERT(points[0].time_ns > 0 && points[0].time_ns < 10000000000);
    ASSERT_OK(views_kernels(store, 1, 0, 1, arena, &spans, &count, &err));
    ASSERT_INT(count, 1);
    ASSERT_INT(spans[0].kernel.end_ns - spans[0].kernel.start_ns, 500);
    ASSERT(spans[0].kernel.start_ns > 0 && spans[0].kernel.start_ns < 10000000000);
    ASSERT_STR(spans[0].operation.kind, "matmul");
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

/* Taken at 100 and 300, given back at 700 and 900, of a range from 0 to 1000: it ran from 300 to 700. */
TEST(recorder_own_time, "an operation's time is what lies between taking its memory and giving memory back")
{
    static const int64_t events[][2] = {{100, 64}, {300, 64}, {700, -64}, {900, -64}};
    char folder[64], path[128];
    struct recorder *recorder;
    struct store *store;
    struct arena *arena = arena_create();
    struct store_run run = {.ranks = 1};
    struct views_span *spans;
    int64_t count;
    scratch_open(folder);
    ASSERT_OK(recorder_open(scratch_path(folder, "run.db", path), &run, &recorder, &err));
    recorder_operations(recorder, 0, &(struct store_operation){.operation_id = 6, .kind = "gelu"}, 1);
    struct observer observer = recorder_rank_observer(recorder, 0);
    int64_t start = clock_ns();
    recorder_step_begin(recorder, 0, 0);
    observer.begin(observer.context, 6, 0);
    for (int i = 0; i < 4; i++) {
        struct memory_event event = {.time_ns = start + events[i][0], .bytes = events[i][1], .operation = 6};
        observer.memory(observer.context, &event);
    }
    observer.range(observer.context, &(struct range_event){start, start + 1000, 6, 0});
    /* the next takes and gives nothing, and has all of its range */
    observer.begin(observer.context, 6, 0);
    observer.range(observer.context, &(struct range_event){start + 1000, start + 3000, 6, 0});
    ASSERT_OK(recorder_close(recorder, &err));
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(views_kernels(store, 1, 0, 0, arena, &spans, &count, &err));
    ASSERT_INT(count, 2);
    ASSERT_INT(spans[0].kernel.end_ns - spans[0].kernel.start_ns, 400);
    ASSERT_INT(spans[1].kernel.end_ns - spans[1].kernel.start_ns, 2000);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

TEST(recorder_ledger,
     "the peak counted from recorded events equals the device's own ledger, separate or in an arena")
{
    char folder[64], path[128];
    struct recorder *recorder;
    struct device *device;
    struct device_arena *block;
    struct store *store;
    struct arena *arena = arena_create();
    struct store_rank *ranks;
    struct store_run run = {.ranks = 1};
    int64_t bytes[ROLE_COUNT], count;
    scratch_open(folder);
    ASSERT_OK(recorder_open(scratch_path(folder, "run.db", path), &run, &recorder, &err));
    ASSERT_OK(device_open_cpu(0, false, &device, &err));
    struct observer observer = recorder_rank_observer(recorder, 0);
    ASSERT_OK(device_observe(device, &observer, &err));
    struct memory_tag weight = {0, ROLE_PARAMETER, "w"}, kept = {1, ROLE_ACTIVATION, "x"};
    void *w = device_alloc(device, 1000, weight, &err);
    ASSERT_OK(device_arena_open(device, 4096, &block, &err));
    recorder_step_begin(recorder, 0, 0);
    device_range_begin(device, 6, 0);
    void *x = device_arena_place(device, block, 64, 300, kept, &err);
    device_range_end(device);
    device_arena_remove(device, block, x, 300, kept);
    x = device_arena_place(device, block, 0, 250, kept, &err);
    device_arena_remove(device, block, x, 250, kept);
    device_free(device, w);
    struct device_usage usage = device_usage(device);
    recorder_usage(recorder, 0, &usage, 4096);
    device_arena_close(device, block);
    device_close(device);
    ASSERT_OK(recorder_close(recorder, &err));

    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(views_peak_breakdown(store, 1, 0, bytes, &err));
    ASSERT_OK(store_read_ranks(store, 1, arena, &ranks, &count, &err));
    ASSERT_INT(count, 1);
    ASSERT_INT(ranks[0].peak_bytes, 1300);
    ASSERT_INT(ranks[0].arena_bytes, 4096);
    for (int role = 0; role < ROLE_COUNT; role++)
        ASSERT_INT(bytes[role], ranks[0].at_peak[role]);
    ASSERT_INT(bytes[ROLE_PARAMETER], 1000);
    ASSERT_INT(bytes[ROLE_ACTIVATION], 300);
    ASSERT(ranks[0].host != NULL && ranks[0].host[0]);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

enum { STORM = 150000 }; /* many times a ring */

struct storm {
    struct recorder *recorder;
    int rank;
};

static void *storm_main(void *context)
{
    struct storm *storm = context;
    struct observer observer = recorder_rank_observer(storm->recorder, storm->rank);
    for (int64_t i = 0; i < STORM; i++)
        observe_one(&observer, i, ROLE_GRADIENT, storm->rank + 1, (i + 1) * (storm->rank + 1));
    return NULL;
}

TEST(recorder_storm, "two ranks faster than the writer lose no event and keep their order")
{
    char folder[64], path[128];
    struct recorder *recorder;
    struct store *store;
    struct store_run run = {.ranks = 2};
    int64_t bytes[ROLE_COUNT];
    pthread_t threads[2];
    scratch_open(folder);
    ASSERT_OK(recorder_open(scratch_path(folder, "run.db", path), &run, &recorder, &err));
    struct storm storms[2] = {{recorder, 0}, {recorder, 1}};
    for (int rank = 0; rank < 2; rank++)
        ASSERT_INT(pthread_create(&threads[rank], NULL, storm_main, &storms[rank]), 0);
    for (int rank = 0; rank < 2; rank++)
        pthread_join(threads[rank], NULL);
    ASSERT_OK(recorder_close(recorder, &err));
    ASSERT_OK(store_open_read(path, &store, &err));
    for (int rank = 0; rank < 2; rank++) {
        ASSERT_INT(count_events(store, rank, NULL), STORM);
        ASSERT_OK(views_peak_breakdown(store, 1, rank, bytes, &err));
        ASSERT_INT(bytes[ROLE_GRADIENT], (int64_t)STORM * (rank + 1));
    }
    store_close(store);
    scratch_close(folder);
}

/* Five steps of one event and one range each, after one event before the first. */
static void record_five_steps(const char *path, int64_t event_steps)
{
    struct recorder *recorder;
    struct store_run run = {.ranks = 1, .event_steps = event_steps};
    struct device *device;
    ASSERT_OK(recorder_open(path, &run, &recorder, &err));
    ASSERT_OK(device_open_cpu(0, false, &device, &err));
    struct observer observer = recorder_rank_observer(recorder, 0);
    ASSERT_OK(device_observe(device, &observer, &err));
    for (int step = -1; step < 5; step++) {
        recorder_step_begin(recorder, 0, step);
        device_range_begin(device, 1, step);
        device_alloc(device, 64, (struct memory_tag){step, ROLE_ACTIVATION, "x"}, &err);
        device_range_end(device);
        if (step >= 0)
            recorder_step(recorder, 0,
                          &(struct store_step){.step = step, .loss = 1.0 / (1 + step), .grad_norm = NAN});
    }
    device_close(device);
    ASSERT_OK(recorder_close(recorder, &err));
}

/* device_close() gives back what is held, outside the steps asked for. */
TEST(recorder_detail, "events can be limited to the first steps; figures of steps are always there")
{
    char folder[64], path[128];
    struct store *store;
    struct arena *arena = arena_create();
    struct views_span *spans;
    struct store_step *steps;
    int64_t count, last_step;
    scratch_open(folder);
    record_five_steps(scratch_path(folder, "two.db", path), 2);
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_INT(count_events(store, 0, &last_step), 3); /* steps -1, 0 and 1 */
    ASSERT_INT(last_step, 1);
    ASSERT_OK(views_kernels(store, 1, 0, 1, arena, &spans, &count, &err));
    ASSERT_INT(count, 1);
    ASSERT_OK(views_kernels(store, 1, 0, 2, arena, &spans, &count, &err));
    ASSERT_INT(count, 0);
    ASSERT_OK(store_read_steps(store, 1, arena, &steps, &count, &err));
    ASSERT_INT(count, 5);
    ASSERT_NEAR(steps[4].loss, 0.2, 1e-12);
    ASSERT(isnan(steps[4].grad_norm));
    store_close(store);

    record_five_steps(scratch_path(folder, "none.db", path), -1);
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_INT(count_events(store, 0, NULL), 0);
    ASSERT_OK(store_read_steps(store, 1, arena, &steps, &count, &err));
    ASSERT_INT(count, 5);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

TEST(recorder_failure, "when the file can no longer grow the run goes on, and closing says why")
{
    char folder[64], path[128];
    struct recorder *recorder;
    struct store *store;
    struct store_run run = {.ranks = 1};
    struct rlimit before, limit;
    scratch_open(folder);
    ASSERT_OK(recorder_open(scratch_path(folder, "run.db", path), &run, &recorder, &err));
    signal(SIGXFSZ, SIG_IGN);
    ASSERT_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 3 << 20;
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    storm_main(&(struct storm){recorder, 0});
    recorder_tensors(recorder, 0, sample_tensors, SAMPLE_TENSORS);
    recorder_step(recorder, 0, &(struct store_step){.step = 0});
    recorder_usage(recorder, 0, &(struct device_usage){0}, 0);
    ASSERT_INT(recorder_close(recorder, &err), -1);
    ASSERT_HAS(err.text, path);
    ASSERT_HAS(err.text, "File too large");
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_OK(store_open_read(path, &store, &err));
    int64_t count = count_events(store, 0, NULL);
    ASSERT_MSG(count > 0 && count < STORM, "%lld events", (long long)count);
    store_close(store);
    scratch_close(folder);
}

TEST(recorder_refusal, "a file that cannot be recorded to is an error before the run starts")
{
    char folder[64], path[128];
    struct recorder *recorder = NULL;
    struct store_run run = {.ranks = 1};
    scratch_open(folder);
    ASSERT_INT(recorder_open(scratch_path(folder, "no/run.db", path), &run, &recorder, &err), -1);
    ASSERT(recorder == NULL);
    ASSERT_HAS(err.text, "No such file or directory");
    scratch_close(folder);
}

/* A rank's recorder in a file of its own: `rank` + 1 events of 100 bytes each. */
static void record_events(struct recorder *recorder, int rank)
{
    struct observer observer = recorder_rank_observer(recorder, rank);
    for (int i = 0; i <= rank; i++)
        observe_one(&observer, i, ROLE_GRADIENT, 100, 100 * (i + 1));
    struct device_usage usage = {.peak_bytes = 100 * (rank + 1)};
    recorder_usage(recorder, rank, &usage, 0);
}

/* The file already holds a run, so that theirs is number 2. Rank 1's recorder opens when the run is a second old. */
TEST(recorder_parts, "what three recorders wrote to files of their own becomes one run, on one time")
{
    char folder[64], path[128], parts[2][128];
    struct recorder *recorder, *part;
    struct store *store;
    struct arena *arena = arena_create();
    struct store_rank *ranks;
    struct store_point *points;
    struct store_run first = {.ranks = 1}, run = {.ranks = 3};
    int64_t count;
    scratch_open(folder);
    ASSERT_OK(recorder_open(scratch_path(folder, "run.db", path), &first, &recorder, &err));
    ASSERT_OK(recorder_close(recorder, &err));
    ASSERT_OK(recorder_open(path, &run, &recorder, &err));
    ASSERT_INT(run.run_id, 2);
    record_events(recorder, 0);
    for (int rank = 1; rank < 3; rank++) {
        struct store_run own = {.run_id = run.run_id, .ranks = 3};
        scratch_path(folder, rank == 1 ? "it's 1" : "2", parts[rank - 1]);
        ASSERT_OK(recorder_open(parts[rank - 1], &own, &part, &err));
        ASSERT_INT(own.run_id, 2);
        recorder_set_age(part, 1000000000);
        ASSERT(recorder_age_ns(part) >= 1000000000 && recorder_age_ns(part) < 9000000000);
        record_events(part, rank);
        ASSERT_OK(recorder_close(part, &err));
        recorder_merge(recorder, rank, parts[rank - 1]);
    }
    ASSERT_OK(recorder_close(recorder, &err));

    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(store_read_ranks(store, 2, arena, &ranks, &count, &err));
    ASSERT_INT(count, 3);
    for (int rank = 0; rank < 3; rank++) {
        ASSERT(ranks[rank].measured);
        ASSERT_INT(ranks[rank].peak_bytes, 100 * (rank + 1));
        ASSERT_INT(count_events(store, rank, NULL), 0); /* of run 1 */
        ASSERT_OK(store_read_timeline(store, 2, rank, 0, arena, &points, &count, &err));
        ASSERT_INT(count, rank + 1);
        ASSERT(rank == 0 || points[0].time_ns >= 1000000000);
    }
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

TEST(recorder_part_refusal, "a part that is no recording is told when the recorder closes")
{
    char folder[64], path[128], part[128];
    struct recorder *recorder;
    struct store_run run = {.ranks = 2};
    scratch_open(folder);
    ASSERT_OK(recorder_open(scratch_path(folder, "run.db", path), &run, &recorder, &err));
    FILE *file = fopen(scratch_path(folder, "part", part), "w");
    fputs("a letter, of more than sixteen characters", file);
    fclose(file);
    recorder_merge(recorder, 1, part);
    ASSERT_INT(recorder_close(recorder, &err), -1);
    ASSERT_HAS(err.text, "run.db: ");
    scratch_close(folder);
}

/* A step of a small model has some thousand events in some tenths of a second, so that 1 us an event would be under 1%.
 * Processor time of the rank's thread, which a busy machine does not stretch; the reading of the clock that a device does
 * for each event is in it. */
TEST(recorder_cost, "an event costs its rank less than a microsecond")
{
    enum { EVENTS = 10000, BURSTS = 5 };
    char folder[64], path[128];
    struct recorder *recorder;
    struct store_run run = {.ranks = 1};
    scratch_open(folder);
    ASSERT_OK(recorder_open(scratch_path(folder, "run.db", path), &run, &recorder, &err));
    struct observer observer = recorder_rank_observer(recorder, 0);
    double best = 1e9;
    for (int burst = 0; burst < BURSTS; burst++) {
        double start = thread_seconds();
        for (int64_t i = 0; i < EVENTS; i++)
            observe_one(&observer, i, ROLE_ACTIVATION, 64, 64 * (i + 1));
        best = fmin(best, (thread_seconds() - start) / EVENTS);
        usleep(100000);
    }
    ASSERT_OK(recorder_close(recorder, &err));
    ASSERT_MSG(best < 1e-6, "%.0f ns", best * 1e9);
    scratch_close(folder);
}
