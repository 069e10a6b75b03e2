/* Traces by the published rules of the format (see ink_trace.c): fields that each kind of event must have, counters that go
 * forward in time, a begin for each end, and complete events of one track that lie beside or inside each other. */
#include "reports/writers.h"
#include "tests/reports/fixture.h"

enum { TRACKS = 64, DEPTH = 64 };

/* What is known of a track of one process while its events are read. */
struct track {
    int64_t pid, tid;
    double counter_ts;  /* of the last counter event */
    double ends[DEPTH]; /* of complete events that are open */
    int depth, begun;   /* B without E so far */
    double begin_ts;
};

struct checker {
    struct track tracks[TRACKS];
    int track_count;
    int64_t counters, pairs, complete, names;
};

static struct track *find_track(struct checker *c, int64_t pid, int64_t tid)
{
    for (int i = 0; i < c->track_count; i++)
        if (c->tracks[i].pid == pid && c->tracks[i].tid == tid)
            return &c->tracks[i];
    ASSERT(c->track_count < TRACKS);
    c->tracks[c->track_count] = (struct track){.pid = pid, .tid = tid, .counter_ts = -1, .begin_ts = -1};
    return &c->tracks[c->track_count++];
}

static double number(const json_t *event, const char *key)
{
    ASSERT_MSG(json_is_number(json_object_get(event, key)), "an event has no number %s", key);
    return json_number_value(json_object_get(event, key));
}

static void check_counter(struct checker *c, struct track *track, const json_t *event)
{
    json_t *args = json_object_get(event, "args"), *value;
    const char *key;
    ASSERT(json_object_size(args) > 0);
    json_object_foreach(args, key, value) ASSERT_MSG(json_is_integer(value), "counter %s is no number", key);
    ASSERT_MSG(number(event, "ts") >= track->counter_ts, "a counter goes back in time");
    track->counter_ts = number(event, "ts");
    c->counters++;
}

/* Nanoseconds behind the point: what ends and begins together may differ by rounding. */
static void check_complete(struct checker *c, struct track *track, const json_t *event)
{
    double start = number(event, "ts"), end = start + number(event, "dur");
    ASSERT(number(event, "dur") >= 0);
    while (track->depth && track->ends[track->depth - 1] <= start + 0.0005)
        track->depth--;
    ASSERT_MSG(track->depth == 0 || end <= track->ends[track->depth - 1] + 0.0005,
               "%s at %.3f us reaches out of the event it began in",
               json_string_value(json_object_get(event, "name")), start);
    ASSERT(track->depth < DEPTH);
    track->ends[track->depth++] = end;
    c->complete++;
}

static void check_event(struct checker *c, const json_t *event)
{
    const char *phase = json_string_value(json_object_get(event, "ph"));
    ASSERT_MSG(phase && strlen(phase) == 1 && strchr("MCBEX", *phase), "no kind of event: %s",
               phase ? phase : "none");
    struct track *track = find_track(c, json_whole(event, "pid"), json_whole(event, "tid"));
    if (*phase != 'E')
        ASSERT(json_is_string(json_object_get(event, "name")));
    if (*phase != 'M')
        ASSERT(number(event, "ts") >= 0);
    if (*phase == 'M') {
        ASSERT(json_is_object(json_object_get(event, "args")));
        c->names++;
    } else if (*phase == 'C') {
        check_counter(c, track, event);
    } else if (*phase == 'X') {
        check_complete(c, track, event);
    } else {
        track->begun += *phase == 'B' ? 1 : -1;
        ASSERT_MSG(track->begun >= 0, "an end without a begin");
        ASSERT_MSG(number(event, "ts") >= track->begin_ts, "begins and ends go back in time");
        track->begin_ts = number(event, "ts");
        c->pairs += *phase == 'E';
    }
}

static struct checker check_trace(const char *text)
{
    struct checker checker = {.track_count = 0};
    json_error_t error;
    size_t i;
    json_t *json = json_loads(text, 0, &error), *event;
    ASSERT_MSG(json, "line %d: %s", error.line, error.text);
    json_array_foreach(json_object_get(json, "traceEvents"), i, event) check_event(&checker, event);
    for (int t = 0; t < checker.track_count; t++)
        ASSERT_MSG(checker.tracks[t].begun == 0, "a begin without an end");
    json_decref(json);
    return checker;
}

static struct checker trace_of(const char *path, const struct document_needs *needs)
{
    struct store *store;
    struct document document;
    struct text text = {0};
    struct arena *arena = arena_create();
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(document_of_run(store, 1, -1, SPANS_LAST_STEP, needs, arena, &document, &err));
    ASSERT_OK(writer_trace.write(&document, INK_ASCII, &text, &err));
    struct checker checker = check_trace(text.data);
    text_free(&text);
    store_close(store);
    arena_free(arena);
    return checker;
}

/* Two ranks with eight events, two operations, one step and one stretch of forward work each. */
TEST(trace_valid, "a trace keeps to the rules, and has every event and every operation")
{
    char folder[64], path[128];
    scratch_open(folder);
    run_write(scratch_path(folder, "run.db", path));
    struct checker checker = trace_of(path, &writer_trace.needs);
    ASSERT_INT(checker.counters, 2 * 8);
    ASSERT_INT(checker.complete, 2 * 2);
    ASSERT_INT(checker.pairs, 2 * (1 + 1));
    scratch_close(folder);
}

/* Reductions of three buckets overlap backward and each other in a chain, so that none is inside another. */
TEST(trace_overlap, "what overlaps is on tracks of its own")
{
    char folder[64], path[128];
    struct store_rank rank = {.rank = 0, .measured = true, .peak_bytes = 1};
    scratch_open(folder);
    struct store *store = run_open(scratch_path(folder, "run.db", path));
    struct store_run run = run_header(1);
    ASSERT_OK(store_run_add(store, &run, &err));
    ASSERT_OK(store_rank_add(store, run.run_id, &rank, &err));
    static const struct store_operation operations[] = {
        {0, "matmul_dgrad", "backward", "", 0, 0, false, 0, 0},
        {1, "all_reduce", "reduce", "", -1, -1, false, 0, 0},
        {2, "all_reduce", "reduce", "", -1, -1, false, 0, 0},
        {3, "all_reduce", "reduce", "", -1, -1, false, 0, 0}};
    static const int64_t times[][2] = {{0, 1000}, {100, 500}, {300, 800}, {600, 1500}};
    for (int i = 0; i < 4; i++) {
        struct store_kernel kernel = {i, i, times[i][0], times[i][1], 0};
        ASSERT_OK(store_operation_add(store, run.run_id, 0, &operations[i], &err));
        ASSERT_OK(store_kernel_add(store, run.run_id, 0, &kernel, &err));
    }
    run_close(store);
    ASSERT_INT(trace_of(path, &writer_trace.needs).complete, 4);
    scratch_close(folder);
}

static int64_t told[8], told_count;

static void hear(int64_t done, int64_t total)
{
    told[told_count++] = 10 * done + total;
}

TEST(trace_progress, "who reads all ranks is told after each how many are done, of how many")
{
    char folder[64], path[128];
    struct document_needs needs = writer_trace.needs;
    needs.progress = hear;
    scratch_open(folder);
    run_write(scratch_path(folder, "run.db", path));
    trace_of(path, &needs);
    ASSERT_INT(told_count, 2);
    ASSERT_INT(told[0], 12);
    ASSERT_INT(told[1], 22);
    scratch_close(folder);
}

TEST(trace_nothing, "where nothing was recorded there is no trace, and the message says what to do")
{
    struct document document = {.memory_count = 0};
    struct text text = {0};
    ASSERT(writer_trace.write(&document, INK_ASCII, &text, &err) == -1);
    ASSERT_HAS(err.text, "record some with memplan profile");
}
