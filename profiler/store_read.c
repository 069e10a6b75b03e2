/* Reads run.db into arrays: one query and one small function that fills a row, for each kind of row. */
#include "profiler/store_sql.h"

#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

/* The row that a query stands on, and where its texts go. */
struct reading {
    sqlite3_stmt *statement;
    struct arena *arena;
};

typedef void fill_row(const struct reading *reading, void *row);

/* `arguments` are bound to ?1, ?2, ... */
struct query {
    const char *sql;
    int64_t arguments[4];
    size_t row_bytes;
    fill_row *fill;
};

static int prepare(struct store *store, const struct query *query, sqlite3_stmt **statement,
                   struct error *err)
{
    if (sqlite3_prepare_v2(store->db, query->sql, -1, statement, NULL) != SQLITE_OK)
        return store_sql_error(store, "read", err);
    for (int i = 0; i < sqlite3_bind_parameter_count(*statement); i++)
        sqlite3_bind_int64(*statement, i + 1, query->arguments[i]);
    return 0;
}

/* `rows` points to the caller's typed array pointer. Rows grow in a block of their own and move to the arena at the end. */
static int read_rows(struct store *store, const struct query *query, struct arena *arena, void *rows,
                     int64_t *count, struct error *err)
{
    struct reading reading = {.arena = arena};
    size_t used = 0, room = 0;
    char *block = NULL;
    int rc = -1, code;
    if (prepare(store, query, &reading.statement, err))
        goto done;
    while ((code = sqlite3_step(reading.statement)) == SQLITE_ROW) {
        if (used == room)
            block = host_resize(block, (room = room ? 2 * room : 64) * query->row_bytes);
        void *row = block + used++ * query->row_bytes;
        memset(row, 0, query->row_bytes);
        query->fill(&reading, row);
    }
    if (code != SQLITE_DONE) {
        store_sql_error(store, "read", err);
        goto done;
    }
    void *array = arena_array(arena, used, query->row_bytes);
    if (used)
        memcpy(array, block, used * query->row_bytes);
    memcpy(rows, &array, sizeof array);
    *count = (int64_t)used;
    rc = 0;
done:
    sqlite3_finalize(reading.statement);
    free(block);
    return rc;
}

static int64_t integer_at(const struct reading *reading, int column)
{
    return sqlite3_column_int64(reading->statement, column);
}

static bool null_at(const struct reading *reading, int column)
{
    return sqlite3_column_type(reading->statement, column) == SQLITE_NULL;
}

static double real_at(const struct reading *reading, int column)
{
    return null_at(reading, column) ? NAN : sqlite3_column_double(reading->statement, column);
}

static const char *text_at(const struct reading *reading, int column)
{
    const unsigned char *text = sqlite3_column_text(reading->statement, column);
    return text ? arena_strdup(reading->arena, (const char *)text) : NULL;
}

/* As text_at(), but never NULL. */
static const char *word_at(const struct reading *reading, int column)
{
    const char *word = text_at(reading, column);
    return word ? word : "";
}

/* A role that this program does not know belongs to no tensor of ours. */
static enum role role_at(const struct reading *reading, int column)
{
    const unsigned char *name = sqlite3_column_text(reading->statement, column);
    int role = name ? role_find((const char *)name) : -1;
    return role < 0 ? ROLE_RUNTIME : (enum role)role;
}

/* ------------------------------------------------------------------------------------------------------------- runs */

#define RUN_COLUMNS                                                                                          \
    "SELECT run_id, started_at, finished_at, command, model, model_json, layout_json, device,"               \
    " capacity_bytes, policy, memplan_version, ranks, event_steps, note, "

/* `rest` of the query; files of before version 3 do not say how many steps there are to be. */
#define RUN_ROWS(store, rest)                                                                                \
    ((store)->version < 3 ? RUN_COLUMNS "NULL FROM runs " rest : RUN_COLUMNS "steps FROM runs " rest)

static void fill_run(const struct reading *reading, void *row)
{
    struct store_run *run = row;
    *run = (struct store_run){
        .run_id = integer_at(reading, 0),
        .started_at = text_at(reading, 1),
        .finished_at = text_at(reading, 2),
        .command = text_at(reading, 3),
        .model = text_at(reading, 4),
        .model_json = text_at(reading, 5),
        .layout_json = text_at(reading, 6),
        .device = text_at(reading, 7),
        .capacity_bytes = integer_at(reading, 8),
        .policy = text_at(reading, 9),
        .memplan_version = text_at(reading, 10),
        .ranks = (int)integer_at(reading, 11),
        .event_steps = integer_at(reading, 12),
        .note = text_at(reading, 13),
        .steps = integer_at(reading, 14),
    };
}

int store_read_runs(struct store *store, struct arena *arena, struct store_run **rows, int64_t *count,
                    struct error *err)
{
    struct query query = {
        .sql = RUN_ROWS(store, "ORDER BY run_id"), .row_bytes = sizeof **rows, .fill = fill_run};
    return read_rows(store, &query, arena, rows, count, err);
}

static void fill_integer(const struct reading *reading, void *row)
{
    *(int64_t *)row = integer_at(reading, 0);
}

int store_latest_run(struct store *store, int64_t *run_id, struct error *err)
{
    struct query query = {.sql = "SELECT run_id FROM runs ORDER BY run_id DESC LIMIT 1",
                          .row_bytes = sizeof *run_id,
                          .fill = fill_integer};
    struct arena *arena = arena_create();
    int64_t *rows, count;
    int rc = read_rows(store, &query, arena, &rows, &count, err);
    if (rc == 0 && count == 0)
        rc = error_set(err, "%s: holds no run yet; record one with memplan profile -o %s", store->path,
                       store->path);
    if (rc == 0)
        *run_id = rows[0];
    arena_free(arena);
    return rc;
}

static int unknown_run(struct store *store, int64_t run_id, struct error *err)
{
    int64_t latest;
    if (store_latest_run(store, &latest, err))
        return -1;
    return error_set(err, "%s: has no run %lld; its latest is run %lld (SELECT * FROM runs lists all)",
                     store->path, (long long)run_id, (long long)latest);
}

int store_read_run(struct store *store, int64_t run_id, struct arena *arena, struct store_run *row,
                   struct error *err)
{
    struct query query = {.sql = RUN_ROWS(store, "WHERE run_id = ?1"),
                          .arguments = {run_id},
                          .row_bytes = sizeof *row,
                          .fill = fill_run};
    struct store_run *rows;
    int64_t count;
    if (read_rows(store, &query, arena, &rows, &count, err))
        return -1;
    if (count == 0)
        return unknown_run(store, run_id, err);
    *row = rows[0];
    return 0;
}

/* One column for every role, in the order of enum role, from a table (run_id, rank, role, bytes). */
_Static_assert(ROLE_COUNT == 8, "the views of schema.c and ROLE_COLUMNS name every role");
#define ROLE_COLUMNS                                                                                         \
    "SUM(IIF(role = 'parameter', bytes, 0)), SUM(IIF(role = 'gradient', bytes, 0)),"                         \
    " SUM(IIF(role = 'optimizer', bytes, 0)), SUM(IIF(role = 'activation', bytes, 0)),"                      \
    " SUM(IIF(role = 'workspace', bytes, 0)), SUM(IIF(role = 'communication', bytes, 0)),"                   \
    " SUM(IIF(role = 'input', bytes, 0)), SUM(IIF(role = 'runtime', bytes, 0))"

static void fill_roles(const struct reading *reading, int column, int64_t bytes[ROLE_COUNT])
{
    for (int role = 0; role < ROLE_COUNT; role++)
        bytes[role] = integer_at(reading, column + role);
}

static void fill_rank(const struct reading *reading, void *row)
{
    struct store_rank *rank = row;
    rank->rank = (int)integer_at(reading, 0);
    rank->arena_bytes = integer_at(reading, 1);
    rank->measured = !null_at(reading, 2);
    rank->peak_bytes = integer_at(reading, 2);
    rank->reserved_peak_bytes = integer_at(reading, 3);
    rank->host = text_at(reading, 4);
    fill_roles(reading, 5, rank->at_peak);
}

int store_read_ranks(struct store *store, int64_t run_id, struct arena *arena, struct store_rank **rows,
                     int64_t *count, struct error *err)
{
    struct query query = {
        .sql = "SELECT r.rank, arena_bytes, peak_bytes, reserved_peak_bytes, host, " ROLE_COLUMNS
               " FROM ranks r LEFT JOIN rank_peaks USING (run_id, rank)"
               " WHERE r.run_id = ?1 GROUP BY r.rank ORDER BY r.rank",
        .arguments = {run_id},
        .row_bytes = sizeof **rows,
        .fill = fill_rank};
    return read_rows(store, &query, arena, rows, count, err);
}

/* ------------------------------------------------------------------------------------------------- the step program */

static void fill_tensor(const struct reading *reading, void *row)
{
    struct store_tensor *tensor = row;
    *tensor = (struct store_tensor){
        .tensor_id = integer_at(reading, 0),
        .name = text_at(reading, 1),
        .dims = text_at(reading, 2),
        .dtype = text_at(reading, 3),
        .role = role_at(reading, 4),
        .layer = (int)integer_at(reading, 5),
        .micro_batch = (int)integer_at(reading, 6),
        .bytes = integer_at(reading, 7),
    };
}

int store_read_tensors(struct store *store, int64_t run_id, int rank, struct arena *arena,
                       struct store_tensor **rows, int64_t *count, struct error *err)
{
    struct query query = {
        .sql = "SELECT tensor_id, name, dims, dtype, role, layer, micro_batch, bytes FROM tensors"
               " WHERE run_id = ?1 AND rank = ?2 ORDER BY tensor_id",
        .arguments = {run_id, rank},
        .row_bytes = sizeof **rows,
        .fill = fill_tensor};
    return read_rows(store, &query, arena, rows, count, err);
}

int store_read_peak_tensors(struct store *store, int64_t run_id, int rank, int64_t limit, struct arena *arena,
                            struct store_tensor **rows, int64_t *count, struct error *err)
{
    struct query query = {.sql = "SELECT tensor_id, name, dims, dtype, role, layer, micro_batch, bytes"
                                 " FROM peak_tensors WHERE run_id = ?1 AND rank = ?2"
                                 " ORDER BY bytes DESC, tensor_id LIMIT ?3",
                          .arguments = {run_id, rank, limit},
                          .row_bytes = sizeof **rows,
                          .fill = fill_tensor};
    return read_rows(store, &query, arena, rows, count, err);
}

#define OPERATION_COLUMNS "kind, phase, detail, layer, micro_batch, recompute, flops, bytes_moved"

static void operation_at(const struct reading *reading, int column, struct store_operation *operation)
{
    *operation = (struct store_operation){
        .operation_id = integer_at(reading, column),
        .kind = word_at(reading, column + 1),
        .phase = word_at(reading, column + 2),
        .detail = word_at(reading, column + 3),
        .layer = (int)integer_at(reading, column + 4),
        .micro_batch = (int)integer_at(reading, column + 5),
        .recompute = integer_at(reading, column + 6) != 0,
        .flops = integer_at(reading, column + 7),
        .bytes_moved = integer_at(reading, column + 8),
    };
}

static void fill_operation(const struct reading *reading, void *row)
{
    operation_at(reading, 0, row);
}

int store_read_operations(struct store *store, int64_t run_id, int rank, struct arena *arena,
                          struct store_operation **rows, int64_t *count, struct error *err)
{
    struct query query = {.sql = "SELECT operation_id, " OPERATION_COLUMNS " FROM operations"
                                 " WHERE run_id = ?1 AND rank = ?2 ORDER BY operation_id",
                          .arguments = {run_id, rank},
                          .row_bytes = sizeof **rows,
                          .fill = fill_operation};
    return read_rows(store, &query, arena, rows, count, err);
}

/* -------------------------------------------------------------------------------------------------------------- time */

static void fill_step(const struct reading *reading, void *row)
{
    struct store_step *step = row;
    *step = (struct store_step){
        .rank = (int)integer_at(reading, 0),
        .step = (int)integer_at(reading, 1),
        .loss = real_at(reading, 2),
        .grad_norm = real_at(reading, 3),
        .seconds = real_at(reading, 4),
        .tokens = integer_at(reading, 5),
        .tokens_per_s = real_at(reading, 6),
        .communication_busy_s = real_at(reading, 7),
        .communication_waited_s = real_at(reading, 8),
    };
}

int store_read_steps_from(struct store *store, int64_t run_id, int64_t first_step, struct arena *arena,
                          struct store_step **rows, int64_t *count, struct error *err)
{
    struct query query = {.sql = "SELECT rank, step, loss, grad_norm, seconds, tokens, tokens_per_s,"
                                 " communication_busy_s, communication_waited_s"
                                 " FROM steps WHERE run_id = ?1 AND step >= ?2 ORDER BY step, rank",
                          .arguments = {run_id, first_step},
                          .row_bytes = sizeof **rows,
                          .fill = fill_step};
    return read_rows(store, &query, arena, rows, count, err);
}

int store_read_steps(struct store *store, int64_t run_id, struct arena *arena, struct store_step **rows,
                     int64_t *count, struct error *err)
{
    return store_read_steps_from(store, run_id, INT64_MIN, arena, rows, count, err);
}

static void fill_span(const struct reading *reading, void *row)
{
    struct store_span *span = row;
    span->kernel = (struct store_kernel){
        .step = (int)integer_at(reading, 0),
        .seq = integer_at(reading, 1),
        .start_ns = integer_at(reading, 2),
        .end_ns = integer_at(reading, 3),
        .operation_id = integer_at(reading, 4),
    };
    operation_at(reading, 4, &span->operation);
}

int store_read_kernels(struct store *store, int64_t run_id, int rank, int step, struct arena *arena,
                       struct store_span **rows, int64_t *count, struct error *err)
{
    struct query query = {.sql =
                              "SELECT step, seq, start_ns, end_ns, operation_id, kind, phase, detail,"
                              " COALESCE(layer, -1), COALESCE(micro_batch, -1), recompute, flops, bytes_moved"
                              " FROM kernels LEFT JOIN operations USING (run_id, rank, operation_id)"
                              " WHERE kernels.run_id = ?1 AND kernels.rank = ?2 AND step = ?3"
                              " ORDER BY start_ns, seq",
                          .arguments = {run_id, rank, step},
                          .row_bytes = sizeof **rows,
                          .fill = fill_span};
    return read_rows(store, &query, arena, rows, count, err);
}

static void fill_cost(const struct reading *reading, void *row)
{
    struct store_cost *cost = row;
    *cost = (struct store_cost){
        .kind = word_at(reading, 0),
        .detail = word_at(reading, 1),
        .phase = word_at(reading, 2),
        .count = integer_at(reading, 3),
        .median_s = real_at(reading, 4),
        .mean_s = real_at(reading, 5),
        .min_s = real_at(reading, 6),
        .flops = integer_at(reading, 7),
        .bytes = integer_at(reading, 8),
    };
}

int store_read_operation_costs(struct store *store, int64_t run_id, struct arena *arena,
                               struct store_cost **rows, int64_t *count, struct error *err)
{
    struct query query = {
        .sql = "SELECT kind, detail, phase, count, median_seconds, mean_seconds, min_seconds, flops,"
               " bytes FROM operation_costs WHERE run_id = ?1"
               " ORDER BY count * mean_seconds DESC, kind, detail, phase",
        .arguments = {run_id},
        .row_bytes = sizeof **rows,
        .fill = fill_cost};
    return read_rows(store, &query, arena, rows, count, err);
}

/* ------------------------------------------------------------------------------------------------------------ memory */

struct role_bytes {
    int64_t bytes[ROLE_COUNT];
};

static void fill_role_bytes(const struct reading *reading, void *row)
{
    fill_roles(reading, 0, ((struct role_bytes *)row)->bytes);
}

int store_read_peak_breakdown(struct store *store, int64_t run_id, int rank, int64_t bytes[ROLE_COUNT],
                              struct error *err)
{
    struct query query = {.sql =
                              "SELECT " ROLE_COLUMNS " FROM peak_breakdown WHERE run_id = ?1 AND rank = ?2",
                          .arguments = {run_id, rank},
                          .row_bytes = sizeof(struct role_bytes),
                          .fill = fill_role_bytes};
    struct arena *arena = arena_create();
    struct role_bytes *rows;
    int64_t count;
    int rc = read_rows(store, &query, arena, &rows, &count, err);
    if (rc == 0)
        memcpy(bytes, rows[0].bytes, sizeof rows[0].bytes); /* a sum over no rows is a row too */
    arena_free(arena);
    return rc;
}

static void fill_layer(const struct reading *reading, void *row)
{
    struct store_layer *layer = row;
    *layer = (struct store_layer){(int)integer_at(reading, 0), role_at(reading, 1), integer_at(reading, 2)};
}

int store_read_layer_breakdown(struct store *store, int64_t run_id, int rank, struct arena *arena,
                               struct store_layer **rows, int64_t *count, struct error *err)
{
    struct query query = {.sql = "SELECT layer, b.role, bytes FROM layer_breakdown b JOIN roles USING (role)"
                                 " WHERE run_id = ?1 AND rank = ?2 ORDER BY layer, role_order",
                          .arguments = {run_id, rank},
                          .row_bytes = sizeof **rows,
                          .fill = fill_layer};
    return read_rows(store, &query, arena, rows, count, err);
}

static void fill_difference(const struct reading *reading, void *row)
{
    struct store_difference *difference = row;
    *difference = (struct store_difference){(int)integer_at(reading, 0), role_at(reading, 1),
                                            integer_at(reading, 2), integer_at(reading, 3)};
}

int store_read_predicted_vs_measured(struct store *store, int64_t run_id, struct arena *arena,
                                     struct store_difference **rows, int64_t *count, struct error *err)
{
    struct query query = {
        .sql = "SELECT rank, d.role, predicted_bytes, measured_bytes FROM predicted_vs_measured d"
               " JOIN roles USING (role) WHERE run_id = ?1 ORDER BY rank, role_order",
        .arguments = {run_id},
        .row_bytes = sizeof **rows,
        .fill = fill_difference};
    return read_rows(store, &query, arena, rows, count, err);
}

static void fill_prediction(const struct reading *reading, void *row)
{
    struct store_prediction *prediction = row;
    prediction->rank = (int)integer_at(reading, 0);
    prediction->arena_bytes = integer_at(reading, 1);
    prediction->step_seconds = real_at(reading, 2);
    fill_roles(reading, 3, prediction->at_peak);
    for (int role = 0; role < ROLE_COUNT; role++)
        prediction->peak_bytes += prediction->at_peak[role];
}

int store_read_predictions(struct store *store, int64_t run_id, struct arena *arena,
                           struct store_prediction **rows, int64_t *count, struct error *err)
{
    struct query query = {
        .sql = "SELECT rank, SUM(bytes) FILTER (WHERE what = 'arena'), SUM(seconds), " ROLE_COLUMNS
               " FROM predictions WHERE run_id = ?1 GROUP BY rank ORDER BY rank",
        .arguments = {run_id},
        .row_bytes = sizeof **rows,
        .fill = fill_prediction};
    return read_rows(store, &query, arena, rows, count, err);
}

/* One integer of one rank. */
static int read_integer(struct store *store, const char *sql, int64_t run_id, int rank, int64_t *value,
                        struct error *err)
{
    struct query query = {
        .sql = sql, .arguments = {run_id, rank}, .row_bytes = sizeof *value, .fill = fill_integer};
    struct arena *arena = arena_create();
    int64_t *rows, count;
    int rc = read_rows(store, &query, arena, &rows, &count, err);
    if (rc == 0)
        *value = rows[0];
    arena_free(arena);
    return rc;
}

/* ------------------------------------------------------------------------------------------------------- row by row */

/* Calls `see` for every row, and keeps none. */
typedef void see_row(const struct reading *reading, void *context);

static int walk_rows(struct store *store, const struct query *query, see_row *see, void *context,
                     struct error *err)
{
    struct reading reading = {0};
    int rc = -1, code;
    if (prepare(store, query, &reading.statement, err))
        goto done;
    while ((code = sqlite3_step(reading.statement)) == SQLITE_ROW)
        see(&reading, context);
    rc = code == SQLITE_DONE ? 0 : store_sql_error(store, "read", err);
done:
    sqlite3_finalize(reading.statement);
    return rc;
}

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
    return walk_rows(store, &query, see_memory, &walk, err);
}

int store_each_memory(struct store *store, int64_t run_id, int rank, store_memory_seen *seen, void *context,
                      struct error *err)
{
    return store_each_memory_from(store, run_id, rank, INT64_MIN, seen, context, err);
}

int store_count_memory(struct store *store, int64_t run_id, int rank, int64_t *events, struct error *err)
{
    return read_integer(store, "SELECT COUNT(*) FROM memory_events WHERE run_id = ?1 AND rank = ?2", run_id,
                        rank, events, err);
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
    return walk_rows(store, &query, see_kernel, &walk, err);
}

int store_last_kernel_step(struct store *store, int64_t run_id, int rank, int *step, struct error *err)
{
    int64_t last;
    if (read_integer(store,
                     "SELECT COALESCE((SELECT step FROM kernels WHERE run_id = ?1 AND rank = ?2"
                     " ORDER BY step DESC LIMIT 1), -1)",
                     run_id, rank, &last, err))
        return -1;
    *step = (int)last;
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- timeline */

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
    if (walk_rows(store, &query, timeline_add, &timeline, err))
        return -1;
    *rows = timeline.points;
    *count = timeline.count;
    return 0;
}

/* --------------------------------------------------------------------------------------------------------------- GPUs */

static void fill_runtime(const struct reading *reading, void *row)
{
    struct store_runtime *runtime = row;
    *runtime = (struct store_runtime){
        .name = word_at(reading, 0),
        .bytes = integer_at(reading, 1),
        .how = word_at(reading, 2),
    };
}

int store_read_runtime(struct store *store, int64_t run_id, int rank, struct arena *arena,
                       struct store_runtime **rows, int64_t *count, struct error *err)
{
    struct query query = {
        .sql = "SELECT name, bytes, how FROM runtime_memory WHERE run_id = ?1 AND rank = ?2"
               " ORDER BY bytes DESC, name",
        .arguments = {run_id, rank},
        .row_bytes = sizeof **rows,
        .fill = fill_runtime,
    };
    *count = 0;
    return store->version < 2 ? 0 : read_rows(store, &query, arena, rows, count, err);
}

static void fill_text(const struct reading *reading, void *row)
{
    const char **text = row;
    *text = word_at(reading, 0);
}

int store_read_notes(struct store *store, int64_t run_id, int rank, struct arena *arena, const char ***rows,
                     int64_t *count, struct error *err)
{
    struct query query = {
        .sql = "SELECT note FROM notes WHERE run_id = ?1 AND rank = ?2 ORDER BY seq",
        .arguments = {run_id, rank},
        .row_bytes = sizeof **rows,
        .fill = fill_text,
    };
    *count = 0;
    return store->version < 2 ? 0 : read_rows(store, &query, arena, rows, count, err);
}
