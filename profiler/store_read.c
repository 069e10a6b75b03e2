/* Reads run.db into arrays: one query and one small function that fills a row, for each kind of row. */
#include "profiler/store_query.h"

#include <stdlib.h>

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
    return query_rows(store, &query, arena, rows, count, err);
}

int store_latest_run(struct store *store, int64_t *run_id, struct error *err)
{
    struct query query = {.sql = "SELECT run_id FROM runs ORDER BY run_id DESC LIMIT 1"};
    bool found;
    if (query_integer(store, &query, run_id, &found, err))
        return -1;
    if (!found)
        return error_set(err, "%s: holds no run yet; record one with memplan profile -o %s", store->path,
                         store->path);
    return 0;
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
    if (query_rows(store, &query, arena, &rows, &count, err))
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
    return query_rows(store, &query, arena, rows, count, err);
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
    return query_rows(store, &query, arena, rows, count, err);
}

static int compare_tensor(const void *id, const void *row)
{
    int64_t wanted = *(const int64_t *)id, here = ((const struct store_tensor *)row)->tensor_id;
    return (wanted > here) - (wanted < here);
}

int64_t store_find_tensor(const struct store_tensor *rows, int64_t count, int64_t tensor_id)
{
    const struct store_tensor *found =
        count ? bsearch(&tensor_id, rows, (size_t)count, sizeof *rows, compare_tensor) : NULL;
    return found ? found - rows : -1;
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
    return query_rows(store, &query, arena, rows, count, err);
}

static void fill_operation(const struct reading *reading, void *row)
{
    struct store_operation *operation = row;
    *operation = (struct store_operation){
        .operation_id = integer_at(reading, 0),
        .kind = word_at(reading, 1),
        .phase = word_at(reading, 2),
        .detail = word_at(reading, 3),
        .layer = (int)integer_at(reading, 4),
        .micro_batch = (int)integer_at(reading, 5),
        .recompute = integer_at(reading, 6) != 0,
        .flops = integer_at(reading, 7),
        .bytes_moved = integer_at(reading, 8),
    };
}

int store_read_operations(struct store *store, int64_t run_id, int rank, struct arena *arena,
                          struct store_operation **rows, int64_t *count, struct error *err)
{
    struct query query = {
        .sql = "SELECT operation_id, kind, phase, detail, layer, micro_batch, recompute,"
               " flops, bytes_moved FROM operations WHERE run_id = ?1 AND rank = ?2 ORDER BY operation_id",
        .arguments = {run_id, rank},
        .row_bytes = sizeof **rows,
        .fill = fill_operation};
    return query_rows(store, &query, arena, rows, count, err);
}

static int compare_operation(const void *id, const void *row)
{
    int64_t wanted = *(const int64_t *)id, here = ((const struct store_operation *)row)->operation_id;
    return (wanted > here) - (wanted < here);
}

int64_t store_find_operation(const struct store_operation *rows, int64_t count, int64_t operation_id)
{
    const struct store_operation *found =
        count ? bsearch(&operation_id, rows, (size_t)count, sizeof *rows, compare_operation) : NULL;
    return found ? found - rows : -1;
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
    return query_rows(store, &query, arena, rows, count, err);
}

int store_read_steps(struct store *store, int64_t run_id, struct arena *arena, struct store_step **rows,
                     int64_t *count, struct error *err)
{
    return store_read_steps_from(store, run_id, INT64_MIN, arena, rows, count, err);
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
    return query_rows(store, &query, arena, rows, count, err);
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
    return query_rows(store, &query, arena, rows, count, err);
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
    return store->version < 2 ? 0 : query_rows(store, &query, arena, rows, count, err);
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
    return store->version < 2 ? 0 : query_rows(store, &query, arena, rows, count, err);
}
