/* A trace in the JSON format of Chrome's tracing, which Perfetto and chrome://tracing open: a process for each rank, with a
 * track for steps, one for stretches of equal work, one for operations, some for communication, and a counter of memory by
 * role. Begin and end are pairs of B and E on the first two, which never overlap; operations are complete events (X). Times
 * are microseconds, with nanoseconds behind the point.
 *
 * The format is described in "Trace Event Format", docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
 * What Perfetto makes of it is narrower (src/trace_processor/importers/json, src/trace_processor/importers/common, 2026):
 *
 * - process 0 and thread 0 are the idle ones of a kernel, and threads are named by their number alone, whatever their process:
 *   so processes count from 1, and no two tracks of the file share a number, nor does one with a process;
 * - names hold from where they are told on: they come first;
 * - a complete event that ends behind the one it began in is dropped, be it by a nanosecond; and times are multiplied by 1000
 *   and cut off, where 0.583 may become 582: so a fifth of a nanosecond stands behind each. */
#include "reports/markup.h"
#include "reports/writers.h"

#include <stdio.h>

/* What ranks exchange may run beside their own work, and several exchanges beside each other. */
enum { EXCHANGES = 4 };
enum track { TRACK_STEPS, TRACK_WORK, TRACK_OPERATIONS, TRACK_EXCHANGE, TRACKS = TRACK_EXCHANGE + EXCHANGES };
enum { FIRST_PROCESS = 1, FIRST_THREAD = 1 << 20 };

static const char *const track_names[TRACKS] = {
    "steps", "work", "operations", "communication", "communication 2", "communication 3", "communication 4"};

struct trace {
    struct text *out;
    bool began;
};

/* {"ph":"X","pid":1,"tid":1048584 and whatever the caller adds, up to the bracket. */
static void begin_timeless(struct trace *t, const char *phase, int64_t rank, int track)
{
    text_printf(t->out, "%s{\"ph\":\"%s\",\"pid\":%lld,\"tid\":%lld", t->began ? ",\n" : "", phase,
                (long long)(FIRST_PROCESS + rank), (long long)(FIRST_THREAD + rank * TRACKS + track));
    t->began = true;
}

/* ,"ts":12.3452 */
static void add_time(struct trace *t, const char *key, int64_t ns)
{
    text_printf(t->out, ",\"%s\":%lld.%03lld2", key, (long long)(ns / 1000), (long long)(ns % 1000));
}

static void begin_event(struct trace *t, const char *phase, int64_t rank, int track, int64_t ns)
{
    begin_timeless(t, phase, rank, track);
    add_time(t, "ts", ns);
}

static void add_name(struct trace *t, const char *name)
{
    text_add(t->out, ",\"name\":");
    markup_add_json(t->out, name);
}

static void add_metadata(struct trace *t, const char *what, int64_t rank, int track, const char *name)
{
    begin_timeless(t, "M", rank, track);
    text_printf(t->out, ",\"name\":\"%s\",\"args\":{\"name\":", what);
    markup_add_json(t->out, name);
    text_add(t->out, "}}");
}

/* chrome://tracing sorts processes by this, not by their number. */
static void add_process(struct trace *t, int64_t rank, const char *name, bool work)
{
    add_metadata(t, "process_name", rank, 0, name);
    begin_timeless(t, "M", rank, 0);
    text_printf(t->out, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%lld}}", (long long)rank);
    for (int track = 0; track < (work ? TRACKS : 1); track++)
        add_metadata(t, "thread_name", rank, track, track_names[track]);
}

static void add_rank(struct trace *t, int64_t rank, bool work)
{
    char name[40];
    snprintf(name, sizeof name, "rank %lld", (long long)rank);
    add_process(t, rank, name, work);
}

/* Of a plan the stages: all of their ranks do the same. */
static void add_lane(struct trace *t, const struct lane *lane)
{
    char name[64];
    if (lane->ranks == 1) {
        add_rank(t, lane->rank, true);
        return;
    }
    snprintf(name, sizeof name, "stage %lld, ranks %lld-%lld", (long long)lane->stage, (long long)lane->rank,
             (long long)(lane->rank + lane->ranks - 1));
    add_process(t, lane->rank, name, true);
}

static void add_pair(struct trace *t, int64_t rank, int track, const char *name, int64_t start_ns,
                     int64_t end_ns)
{
    begin_event(t, "B", rank, track, start_ns);
    add_name(t, name);
    text_add(t->out, "}");
    begin_event(t, "E", rank, track, end_ns);
    text_add(t->out, "}");
}

/* The first track that is free by then: events of one track may not overlap. */
static int choose_track(const struct work_span *work, int64_t free_from[EXCHANGES])
{
    int exchange = 0;
    if (work->activity != ACTIVITY_COMMUNICATION)
        return TRACK_OPERATIONS;
    while (exchange < EXCHANGES - 1 && free_from[exchange] > work->start_ns)
        exchange++;
    free_from[exchange] = work->end_ns;
    return TRACK_EXCHANGE + exchange;
}

static void add_operation(struct trace *t, int64_t rank, const struct work_span *work, int track)
{
    int64_t ns = work->end_ns - work->start_ns;
    begin_event(t, "X", rank, track, work->start_ns);
    add_time(t, "dur", ns);
    text_printf(t->out, ",\"cat\":\"%s\"", activity_name(work->activity));
    add_name(t, work->kind);
    text_printf(t->out, ",\"args\":{\"step\":%d,\"micro_batch\":%lld,\"part\":", work->step,
                (long long)work->micro_batch);
    markup_add_json(t->out, work->part);
    text_add(t->out, ",\"shape\":");
    markup_add_json(t->out, work->detail);
    text_add(t->out, "}}");
}

/* One after the other: a stretch that began while the one before went on begins where that ended. */
static void add_stretches(struct trace *t, const struct lane *lane)
{
    int64_t free_from = INT64_MIN;
    char name[64];
    for (int64_t i = 0; i < lane->stretch_count; i++) {
        const struct work_span *work = &lane->stretches[i];
        int64_t start = work->start_ns > free_from ? work->start_ns : free_from;
        if (work->end_ns <= start)
            continue;
        snprintf(name, sizeof name, work->micro_batch < 0 ? "%s" : "%s, micro-batch %lld",
                 activity_name(work->activity), (long long)work->micro_batch);
        add_pair(t, lane->rank, TRACK_WORK, name, start, work->end_ns);
        free_from = work->end_ns;
    }
}

static void add_lane_steps(struct trace *t, const struct lane *lane)
{
    char name[32];
    int64_t free_from = INT64_MIN;
    for (int64_t i = 0, next; i < lane->span_count; i = next) {
        int64_t start = lane->spans[i].start_ns, end = start;
        for (next = i; next < lane->span_count && lane->spans[next].step == lane->spans[i].step; next++)
            end = lane->spans[next].end_ns > end ? lane->spans[next].end_ns : end;
        start = start > free_from ? start : free_from;
        snprintf(name, sizeof name, "step %d", lane->spans[i].step);
        add_pair(t, lane->rank, TRACK_STEPS, name, start, end > start ? end : start);
        free_from = end > start ? end : start;
    }
}

static void add_memory(struct trace *t, const struct series *series, int64_t process)
{
    bool held[ROLE_COUNT] = {false}; /* at any time: a counter has the same series in all its events */
    for (int64_t i = 0; i < series->point_count; i++)
        for (int role = 0; role < ROLE_COUNT; role++)
            held[role] |= series->points[i].by_role[role] != 0;
    for (int64_t i = 0; i < series->point_count; i++) {
        const struct series_point *point = &series->points[i];
        begin_event(t, "C", process, 0, series->axis == SERIES_NANOSECONDS ? point->at : point->at * 1000);
        text_add(t->out, ",\"name\":\"memory\",\"args\":{");
        for (int role = 0, any = 0; role < ROLE_COUNT; role++)
            if (held[role]) {
                text_printf(t->out, "%s\"%s\":%lld", any ? "," : "", role_name((enum role)role),
                            (long long)point->by_role[role]);
                any = 1;
            }
        text_add(t->out, "}}");
    }
}

/* A plan's memory has no clock, so it stands apart from what its stages do. */
static int64_t process_of(const struct document *d, const struct series *series)
{
    return series->rank + (d->timeline && d->timeline->foretold ? d->breakdown.ranks : 0);
}

static void add_names(struct trace *t, const struct document *d)
{
    char name[64];
    for (int64_t i = 0; d->timeline && i < d->timeline->lane_count; i++)
        add_lane(t, &d->timeline->lanes[i]);
    for (int64_t i = 0; i < d->memory_count; i++) {
        const struct series *series = d->memory[i];
        snprintf(name, sizeof name, "rank %lld, memory by operation", (long long)series->rank);
        if (!d->timeline)
            add_rank(t, series->rank, false);
        else if (d->timeline->foretold)
            add_process(t, process_of(d, series), name, false);
    }
}

static int write_trace(const struct document *d, enum ink ink, struct text *out, struct error *err)
{
    (void)ink;
    struct trace trace = {out, false};
    if (d->comparison)
        return error_set(
            err, "a comparison has no trace; write it as .html, or trace each run with memplan report");
    if (d->memory_count == 0 && !d->timeline)
        return error_set(
            err, "no events were recorded, so there is nothing to trace; record some with memplan profile");
    text_add(out, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"title\":");
    markup_add_json(out, d->page->title);
    if (d->memory_count && d->memory[0]->axis == SERIES_OPERATIONS)
        text_add(out, ",\"time\":\"of memory, a microsecond stands for one operation of the plan\"");
    text_add(out, "},\"traceEvents\":[\n");
    add_names(&trace, d);
    for (int64_t i = 0; i < d->memory_count; i++)
        add_memory(&trace, d->memory[i], process_of(d, d->memory[i]));
    for (int64_t i = 0; d->timeline && i < d->timeline->lane_count; i++) {
        const struct lane *lane = &d->timeline->lanes[i];
        add_lane_steps(&trace, lane);
        add_stretches(&trace, lane);
        int64_t free_from[EXCHANGES] = {0};
        for (int64_t j = 0; j < lane->span_count; j++)
            add_operation(&trace, lane->rank, &lane->spans[j], choose_track(&lane->spans[j], free_from));
    }
    text_add(out, "\n]}\n");
    return 0;
}

const struct writer writer_trace = {
    ".trace.json",
    "for Perfetto",
    {.pictures = true, .all_ranks = true, .all_steps = true, .points = 200000},
    write_trace,
};
