/* Traces by the published rules of the format, and by what Perfetto's importer makes of them (see ink_trace.c for both): fields
 * that each kind of event must have; names before what they name; processes and tracks with numbers of their own; and, in the
 * order of time and with its arithmetic, counters, a begin for each end, and complete events of one track that lie beside or
 * inside each other. */
#include "reports/writers.h"
#include "tests/reports/fixture.h"

#include <math.h>

enum { TRACKS = 512, DEPTH = 64, NAME = 40 };

/* What is known of a track while its events are read. */
struct track {
    int64_t pid, tid;
    bool process_named, named;
    const json_t *series;    /* the args of its first counter event */
    int64_t ends[DEPTH];     /* of complete events that are open */
    char begun[DEPTH][NAME]; /* B without E so far */
    int depth, begun_depth;
};

/* In order of time, then of the file. */
struct timed {
    int64_t ns;
    size_t place;
    const json_t *event;
};

struct checker {
    struct track tracks[TRACKS];
    int track_count;
    int64_t counters, pairs, complete, names;
};

static struct track *find_track(struct checker *c, int64_t pid, int64_t tid)
{
    for (int i = 0; i < c->track_count; i++) {
        struct track *track = &c->tracks[i];
        ASSERT_MSG(track->tid != pid && track->pid != tid, "%lld is a process and a track", (long long)pid);
        if (track->tid == tid) {
            ASSERT_MSG(track->pid == pid, "track %lld is in two processes", (long long)tid);
            return track;
        }
    }
    ASSERT(c->track_count < TRACKS);
    ASSERT_MSG(pid > 0 && tid > 0 && pid <= UINT32_MAX && tid <= UINT32_MAX, "process %lld, track %lld",
               (long long)pid, (long long)tid);
    c->tracks[c->track_count] = (struct track){.pid = pid, .tid = tid};
    return &c->tracks[c->track_count++];
}

static double number(const json_t *event, const char *key)
{
    ASSERT_MSG(json_is_number(json_object_get(event, key)), "an event has no number %s", key);
    return json_number_value(json_object_get(event, key));
}

/* As the importer does it: multiplied, and cut off. Nothing may depend on which way a product is rounded. */
static int64_t nanoseconds(const json_t *event, const char *key)
{
    double ns = number(event, key) * 1000;
    ASSERT_MSG((int64_t)ns == llround(ns) && (int64_t)(ns - 1e-3) == (int64_t)(ns + 1e-3),
               "%s %.6f us is on the edge of a nanosecond", key, ns / 1000);
    return (int64_t)ns;
}

static void check_counter(struct checker *c, struct track *track, const json_t *event)
{
    json_t *args = json_object_get(event, "args"), *value;
    const char *key;
    ASSERT(json_object_size(args) > 0);
    json_object_foreach(args, key, value) ASSERT_MSG(json_is_integer(value), "counter %s is no number", key);
    track->series = track->series ? track->series : args;
    ASSERT_INT((int64_t)json_object_size(args), (int64_t)json_object_size(track->series));
    json_object_foreach(args, key, value)
        ASSERT_MSG(json_object_get(track->series, key), "the counter's first event has no %s", key);
    c->counters++;
}

static void check_complete(struct checker *c, struct track *track, const json_t *event, int64_t start)
{
    int64_t end = start + nanoseconds(event, "dur");
    ASSERT(end >= start);
    while (track->depth && track->ends[track->depth - 1] <= start)
        track->depth--;
    ASSERT_MSG(track->depth == 0 || end <= track->ends[track->depth - 1],
               "%s at %lld ns reaches out of the event it began in, and is dropped",
               json_string_value(json_object_get(event, "name")), (long long)start);
    ASSERT(track->depth < DEPTH && track->begun_depth == 0);
    track->ends[track->depth++] = end;
    c->complete++;
}

static void check_pair(struct checker *c, struct track *track, const json_t *event)
{
    const char *name = json_string_value(json_object_get(event, "name"));
    ASSERT(track->depth == 0);
    if (*json_string_value(json_object_get(event, "ph")) == 'B') {
        ASSERT(track->begun_depth < DEPTH);
        snprintf(track->begun[track->begun_depth++], NAME, "%s", name);
        return;
    }
    ASSERT_MSG(track->begun_depth > 0, "an end without a begin");
    track->begun_depth--;
    if (name)
        ASSERT_STR(name, track->begun[track->begun_depth]);
    c->pairs++;
}

/* Names hold for what stands behind them in the file. */
static void check_name(struct checker *c, struct track *track, const json_t *event)
{
    const char *what = json_string_value(json_object_get(event, "name"));
    const json_t *args = json_object_get(event, "args");
    if (!strcmp(what, "process_sort_index")) {
        ASSERT(json_is_integer(json_object_get(args, "sort_index")));
        return;
    }
    ASSERT(*json_string_value(json_object_get(args, "name")));
    if (!strcmp(what, "process_name"))
        for (int i = 0; i < c->track_count; i++)
            ASSERT_MSG(c->tracks[i].pid != track->pid || !c->tracks[i].process_named,
                       "a process has two names");
    track->process_named |= !strcmp(what, "process_name");
    ASSERT(!track->named || strcmp(what, "thread_name"));
    track->named |= !strcmp(what, "thread_name");
    c->names++;
}

/* What holds of an event by itself; true where it has a time. */
static bool check_fields(struct checker *c, const json_t *event)
{
    const char *phase = json_string_value(json_object_get(event, "ph"));
    ASSERT_MSG(phase && strlen(phase) == 1 && strchr("MCBEX", *phase), "no kind of event: %s",
               phase ? phase : "none");
    struct track *track = find_track(c, json_whole(event, "pid"), json_whole(event, "tid"));
    const char *name = json_string_value(json_object_get(event, "name"));
    const json_t *category = json_object_get(event, "cat"), *args = json_object_get(event, "args");
    ASSERT(*phase == 'E' || (name && *name));
    ASSERT(!category || (json_is_string(category) && *json_string_value(category)));
    ASSERT(!args || json_is_object(args));
    if (*phase == 'M') {
        check_name(c, track, event);
        return false;
    }
    ASSERT_MSG(track->named, "track %lld has no name yet", (long long)track->tid);
    ASSERT(number(event, "ts") >= 0);
    return true;
}

static void check_timed(struct checker *c, const struct timed *timed)
{
    const json_t *event = timed->event;
    struct track *track = find_track(c, json_whole(event, "pid"), json_whole(event, "tid"));
    switch (*json_string_value(json_object_get(event, "ph"))) {
    case 'C':
        check_counter(c, track, event);
        break;
    case 'X':
        check_complete(c, track, event, timed->ns);
        break;
    default:
        check_pair(c, track, event);
    }
}

static int earlier_first(const void *left, const void *right)
{
    const struct timed *a = left, *b = right;
    if (a->ns != b->ns)
        return a->ns < b->ns ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

static void check_head(const json_t *json)
{
    const char *unit = json_string_value(json_object_get(json, "displayTimeUnit"));
    ASSERT(unit && (!strcmp(unit, "ms") || !strcmp(unit, "ns")));
    ASSERT(json_is_object(json_object_get(json, "otherData")));
    ASSERT(json_is_array(json_object_get(json, "traceEvents")));
}

static struct checker check_trace(const char *text)
{
    struct checker checker = {.track_count = 0};
    json_error_t error;
    size_t i, count = 0;
    json_t *json = json_loads(text, 0, &error), *event;
    ASSERT_MSG(json, "line %d: %s", error.line, error.text);
    check_head(json);
    json_t *events = json_object_get(json, "traceEvents");
    struct timed *timed = host_alloc((json_array_size(events) + 1) * sizeof *timed);
    json_array_foreach(events, i, event) if (check_fields(&checker, event)) timed[count++] =
        (struct timed){nanoseconds(event, "ts"), i, event};
    qsort(timed, count, sizeof *timed, earlier_first);
    for (i = 0; i < count; i++)
        check_timed(&checker, &timed[i]);
    for (int t = 0; t < checker.track_count; t++)
        ASSERT_MSG(checker.tracks[t].begun_depth == 0, "a begin without an end");
    free(timed);
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
