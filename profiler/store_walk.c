/* Goes through what run.db holds too much of for an array: memory events and kernels one by one, and live bytes over time. */
#include "profiler/store_query.h"

struct memory_walk {
    store_memory_seen *seen;
    void *context;
};

static void see_memory(const struct reading *reading, void *context)
{
    const struct memory_walk *walk = context;
    struct store_memory event = {
        .seq = integer_at(reading, 0),
        .time_ns = integer_at(reading, 1),
        .step = (int)integer_at(reading, 2),
        .operation_id = integer_at(reading, 3),
        .tensor_id = integer_at(reading, 4),
        .role = role_at(reading, 5),
        .bytes = integer_at(reading, 6),
        .live_bytes = integer_at(reading, 7),
        .address = integer_at(reading, 8),
        .arena = integer_at(reading, 9) != 0,
    };
    walk->seen(walk->context, &event);
}

int store_each_memory_from(struct store *store, int64_t run_id, int rank, int64_t first_seq,
                           store_memory_seen *seen, void *context, struct error *err)
{
    struct query query = {.sql =
                              "SELECT seq, time_ns, step, operation_id, tensor_id, role, bytes, live_bytes,"
                              " address, arena FROM memory_events"
                              " WHERE run_id = ?1 AND rank = ?2 AND seq >= ?3 ORDER BY seq",
                          .arguments = {run_id, rank, first_seq}};
    struct memory_walk walk = {seen, context};
    return query_walk(store, &query, see_memory, &walk, err);
}

int store_each_memory(struct store *store, int64_t run_id, int rank, store_memory_seen *seen, void *context,
                      struct error *err)
{
    return store_each_memory_from(store, run_id, rank, INT64_MIN, seen, context, err);
}

int store_count_memory(struct store *store, int64_t run_id, int rank, int64_t *events, struct error *err)
{
    struct query query = {.sql = "SELECT COUNT(*) FROM memory_events WHERE run_id = ?1 AND rank = ?2",
                          .arguments = {run_id, rank}};
    return query_integer(store, &query, events, NULL, err);
}

struct kernel_walk {
    store_kernel_seen *seen;
    void *context;
};

static void see_kernel(const struct reading *reading, void *context)
{
    const struct kernel_walk *walk = context;
    struct store_kernel kernel = {
        .step = (int)integer_at(reading, 0),
        .seq = integer_at(reading, 1),
        .operation_id = integer_at(reading, 2),
        .start_ns = integer_at(reading, 3),
        .end_ns = integer_at(reading, 4),
    };
    walk->seen(walk->context, &kernel);
}

int store_each_kernel(struct store *store, int64_t run_id, int rank, int step, store_kernel_seen *seen,
                      void *context, struct error *err)
{
    struct query query = {.sql = step < 0 ? "SELECT step, seq, operation_id, start_ns, end_ns FROM kernels"
                                            " WHERE run_id = ?1 AND rank = ?2 ORDER BY step, seq"
                                          : "SELECT step, seq, operation_id, start_ns, end_ns FROM kernels"
                                            " WHERE run_id = ?1 AND rank = ?2 AND step = ?3 ORDER BY seq",
                          .arguments = {run_id, rank, step}};
    struct kernel_walk walk = {seen, context};
    return query_walk(store, &query, see_kernel, &walk, err);
}

static int find_step(struct store *store, const struct query *query, int *step, struct error *err)
{
    int64_t found;
    if (query_integer(store, query, &found, NULL, err))
        return -1;
    *step = (int)found;
    return 0;
}

/* Two queries, each of which the index answers with one look. */
int store_kernel_steps(struct store *store, int64_t run_id, int rank, int *first, int *last,
                       struct error *err)
{
    const struct query lowest = {.sql = "SELECT COALESCE((SELECT step FROM kernels WHERE run_id = ?1"
                                        " AND rank = ?2 ORDER BY step LIMIT 1), -1)",
                                 .arguments = {run_id, rank}};
    const struct query highest = {.sql = "SELECT COALESCE((SELECT step FROM kernels WHERE run_id = ?1"
                                         " AND rank = ?2 ORDER BY step DESC LIMIT 1), -1)",
                                  .arguments = {run_id, rank}};
    return find_step(store, &lowest, first, err) || find_step(store, &highest, last, err) ? -1 : 0;
}

struct timeline {
    struct store_point *points;
    int64_t count, stretch; /* events that share one point */
    struct store_point now;
    int64_t events;
};

static void timeline_add(const struct reading *reading, void *context)
{
    struct timeline *timeline = context;
    struct store_point *now = &timeline->now;
    now->seq = integer_at(reading, 0);
    now->time_ns = integer_at(reading, 1);
    now->step = (int)integer_at(reading, 2);
    now->operation_id = integer_at(reading, 3);
    now->live[role_at(reading, 4)] += integer_at(reading, 5);
    now->live_bytes = integer_at(reading, 6);
    if (timeline->events++ % timeline->stretch == 0)
        timeline->points[timeline->count++] = *now;
    else if (now->live_bytes > timeline->points[timeline->count - 1].live_bytes)
        timeline->points[timeline->count - 1] = *now;
}

/* The sums by role run here and not in the view memory_timeline, whose eight windows take five times as long. A run that
 * goes on adds events between the count and the walk: those wait for the next reading. */
int store_read_timeline(struct store *store, int64_t run_id, int rank, int64_t limit, struct arena *arena,
                        struct store_point **rows, int64_t *count, struct error *err)
{
    struct query query = {
        .sql = "SELECT seq, time_ns, step, operation_id, role, bytes, live_bytes FROM memory_events"
               " WHERE run_id = ?1 AND rank = ?2 ORDER BY seq LIMIT ?3",
        .arguments = {run_id, rank}};
    struct timeline timeline = {.stretch = 1};
    int64_t *events = &query.arguments[2];
    if (store_count_memory(store, run_id, rank, events, err))
        return -1;
    if (limit > 0 && *events > limit)
        timeline.stretch = (*events + limit - 1) / limit;
    timeline.points = arena_array(arena, (size_t)(*events / timeline.stretch + 1), sizeof *timeline.points);
    if (query_walk(store, &query, timeline_add, &timeline, err))
        return -1;
    *rows = timeline.points;
    *count = timeline.count;
    return 0;
}
