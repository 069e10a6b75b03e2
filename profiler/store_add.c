/* Adds rows to run.db: batches, one statement and one small function for each kind of row, and the rows of other files. */
#include "profiler/store_sql.h"

#include <assert.h>
#include <stdio.h>
#include <time.h>

enum insert {
    INSERT_RUN,
    FINISH_RUN,
    INSERT_RANK,
    INSERT_RANK_PEAK,
    INSERT_TENSOR,
    INSERT_OPERATION,
    INSERT_MEMORY,
    INSERT_KERNEL,
    INSERT_STEP,
    INSERT_PREDICTION,
    INSERT_DRIVER_EVENT,
    INSERT_RUNTIME,
    INSERT_SPAN,
    INSERT_NOTE,
    INSERT_SPANS_AS_KERNELS,
    INSERT_COUNT
};
_Static_assert((int)INSERT_COUNT <= (int)STORE_INSERTS, "struct store keeps every prepared statement");

static const char *const insert_sql[INSERT_COUNT] = {
    [INSERT_RUN] =
        "INSERT INTO runs (run_id, started_at, finished_at, command, model, model_json, layout_json, device,"
        " capacity_bytes, policy, memplan_version, ranks, event_steps, note, steps)"
        " VALUES (NULLIF(?, 0), ?, ?, ?, ?, ?, ?, ?, NULLIF(?, 0), ?, ?, ?, ?, ?, NULLIF(?, 0))",
    [FINISH_RUN] = "UPDATE runs SET finished_at = ? WHERE run_id = ?",
    [INSERT_RANK] =
        "INSERT OR REPLACE INTO ranks (run_id, rank, host, arena_bytes, peak_bytes, reserved_peak_bytes)"
        " VALUES (?, ?, ?, ?, ?, ?)",
    [INSERT_RANK_PEAK] = "INSERT OR REPLACE INTO rank_peaks (run_id, rank, role, bytes) VALUES (?, ?, ?, ?)",
    [INSERT_TENSOR] =
        "INSERT INTO tensors (run_id, rank, tensor_id, name, dims, dtype, role, layer, micro_batch, bytes)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [INSERT_OPERATION] =
        "INSERT INTO operations (run_id, rank, operation_id, kind, phase, layer, micro_batch,"
        " recompute, flops, bytes_moved, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [INSERT_MEMORY] =
        "INSERT INTO memory_events (run_id, rank, seq, time_ns, step, operation_id, tensor_id, role,"
        " bytes, live_bytes, address, arena) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [INSERT_KERNEL] = "INSERT INTO kernels (run_id, rank, step, seq, operation_id, start_ns, end_ns)"
                      " VALUES (?, ?, ?, ?, ?, ?, ?)",
    [INSERT_STEP] = "INSERT INTO steps (run_id, step, rank, loss, grad_norm, seconds, tokens, tokens_per_s,"
                    " communication_busy_s, communication_waited_s) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [INSERT_PREDICTION] = "INSERT OR REPLACE INTO predictions (run_id, rank, what, role, bytes, seconds)"
                          " VALUES (?, ?, ?, ?, ?, ?)",
    [INSERT_DRIVER_EVENT] =
        "INSERT INTO driver_events (run_id, rank, seq, time_ns, step, operation_id, bytes, live_bytes,"
        " address, call, owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [INSERT_RUNTIME] = "INSERT OR REPLACE INTO runtime_memory (run_id, rank, name, bytes, how)"
                       " VALUES (?, ?, ?, ?, ?)",
    [INSERT_SPAN] =
        "INSERT INTO gpu_spans (run_id, rank, seq, step, operation_id, kind, name, stream, start_ns,"
        " end_ns, bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [INSERT_NOTE] = "INSERT INTO notes (run_id, rank, seq, note) SELECT ?1, ?2, COUNT(*), ?3 FROM notes"
                    " WHERE run_id = ?1 AND rank = ?2",
    [INSERT_SPANS_AS_KERNELS] =
        "INSERT INTO kernels (run_id, rank, step, seq, operation_id, start_ns, end_ns)"
        " SELECT run_id, rank, step, ROW_NUMBER() OVER (PARTITION BY run_id, rank, step ORDER BY"
        " MIN(start_ns)) - 1, operation_id, MIN(start_ns), MAX(end_ns) FROM gpu_spans"
        " WHERE run_id = ? AND operation_id >= 0 AND end_ns > 0"
        " GROUP BY run_id, rank, step, operation_id",
};

/* One execution of an insert: columns are put in the order of the question marks. */
struct insertion {
    struct store *store;
    sqlite3_stmt *statement;
    int column;
};

int store_begin(struct store *store, struct error *err)
{
    assert(store->writes);
    store->batch_failed = false;
    return store_execute(store, "BEGIN IMMEDIATE", "written", err);
}

int store_commit(struct store *store, struct error *err)
{
    if (!store->batch_failed && store_execute(store, "COMMIT", "written", &store->batch_error) == 0)
        return 0;
    store_roll_back(store);
    store->batch_failed = false;
    if (err)
        *err = store->batch_error;
    return -1;
}

static int batch_fail(struct store *store, struct error *err)
{
    if (!store->batch_failed)
        store_sql_error(store, "written", &store->batch_error);
    store->batch_failed = true;
    if (err)
        *err = store->batch_error;
    return -1;
}

static int insertion_begin(struct store *store, enum insert insert, struct insertion *row, struct error *err)
{
    if (store->batch_failed)
        return batch_fail(store, err);
    assert(!sqlite3_get_autocommit(store->db)); /* rows are added between store_begin() and store_commit() */
    if (!store->inserts[insert] &&
        sqlite3_prepare_v3(store->db, insert_sql[insert], -1, SQLITE_PREPARE_PERSISTENT,
                           &store->inserts[insert], NULL) != SQLITE_OK)
        return batch_fail(store, err);
    *row = (struct insertion){.store = store, .statement = store->inserts[insert]};
    return 0;
}

static int insertion_end(struct insertion *row, struct error *err)
{
    assert(row->column == sqlite3_bind_parameter_count(row->statement));
    int code = sqlite3_step(row->statement);
    int rc = code == SQLITE_DONE ? 0 : batch_fail(row->store, err);
    sqlite3_reset(row->statement);
    return rc;
}

static void put_integer(struct insertion *row, int64_t value)
{
    sqlite3_bind_int64(row->statement, ++row->column, value);
}

/* NAN becomes NULL. */
static void put_real(struct insertion *row, double value)
{
    sqlite3_bind_double(row->statement, ++row->column, value);
}

static void put_null(struct insertion *row)
{
    sqlite3_bind_null(row->statement, ++row->column);
}

static void put_text(struct insertion *row, const char *text)
{
    sqlite3_bind_text(row->statement, ++row->column, text, -1, SQLITE_STATIC);
}

static void put_word(struct insertion *row, const char *word)
{
    put_text(row, word ? word : "");
}

static const char *utc_now(char text[32])
{
    time_t now = time(NULL);
    struct tm utc;
    strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    return text;
}

static int run_row_add(struct store *store, struct store_run *run, struct error *err)
{
    char now[32];
    struct insertion row;
    if (insertion_begin(store, INSERT_RUN, &row, err))
        return -1;
    put_integer(&row, run->run_id);
    put_text(&row, run->started_at ? run->started_at : utc_now(now));
    put_text(&row, run->finished_at);
    put_text(&row, run->command);
    put_text(&row, run->model);
    put_text(&row, run->model_json);
    put_text(&row, run->layout_json);
    put_text(&row, run->device);
    put_integer(&row, run->capacity_bytes);
    put_text(&row, run->policy);
    put_text(&row, run->memplan_version);
    put_integer(&row, run->ranks);
    put_integer(&row, run->event_steps);
    put_text(&row, run->note);
    put_integer(&row, run->steps);
    if (insertion_end(&row, err))
        return -1;
    run->run_id = sqlite3_last_insert_rowid(store->db);
    return 0;
}

int store_run_add(struct store *store, struct store_run *run, struct error *err)
{
    if (run_row_add(store, run, err))
        return -1;
    for (int rank = 0; rank < run->ranks; rank++)
        if (store_rank_add(store, run->run_id, &(struct store_rank){.rank = rank}, err))
            return -1;
    return 0;
}

int store_run_finish(struct store *store, int64_t run_id, struct error *err)
{
    char now[32];
    struct insertion row;
    if (insertion_begin(store, FINISH_RUN, &row, err))
        return -1;
    put_text(&row, utc_now(now));
    put_integer(&row, run_id);
    return insertion_end(&row, err);
}

static int rank_row_add(struct store *store, int64_t run_id, const struct store_rank *rank, struct error *err)
{
    struct insertion row;
    if (insertion_begin(store, INSERT_RANK, &row, err))
        return -1;
    put_integer(&row, run_id);
    put_integer(&row, rank->rank);
    put_text(&row, rank->host);
    if (rank->measured) {
        put_integer(&row, rank->arena_bytes);
        put_integer(&row, rank->peak_bytes);
        put_integer(&row, rank->reserved_peak_bytes);
    } else {
        put_null(&row);
        put_null(&row);
        put_null(&row);
    }
    return insertion_end(&row, err);
}

int store_rank_add(struct store *store, int64_t run_id, const struct store_rank *rank, struct error *err)
{
    if (rank_row_add(store, run_id, rank, err))
        return -1;
    for (int role = 0; rank->measured && role < ROLE_COUNT; role++) {
        struct insertion row;
        if (insertion_begin(store, INSERT_RANK_PEAK, &row, err))
            return -1;
        put_integer(&row, run_id);
        put_integer(&row, rank->rank);
        put_text(&row, role_name(role));
        put_integer(&row, rank->at_peak[role]);
        if (insertion_end(&row, err))
            return -1;
    }
    return 0;
}

int store_tensor_add(struct store *store, int64_t run_id, int rank, const struct store_tensor *tensor,
                     struct error *err)
{
    struct insertion row;
    if (insertion_begin(store, INSERT_TENSOR, &row, err))
        return -1;
    put_integer(&row, run_id);
    put_integer(&row, rank);
    put_integer(&row, tensor->tensor_id);
    put_text(&row, tensor->name);
    put_text(&row, tensor->dims);
    put_text(&row, tensor->dtype);
    put_text(&row, role_name(tensor->role));
    put_integer(&row, tensor->layer);
    put_integer(&row, tensor->micro_batch);
    put_integer(&row, tensor->bytes);
    return insertion_end(&row, err);
}

int store_operation_add(struct store *store, int64_t run_id, int rank,
                        const struct store_operation *operation, struct error *err)
{
    struct insertion row;
    if (insertion_begin(store, INSERT_OPERATION, &row, err))
        return -1;
    put_integer(&row, run_id);
    put_integer(&row, rank);
    put_integer(&row, operation->operation_id);
    put_word(&row, operation->kind);
    put_word(&row, operation->phase);
    put_integer(&row, operation->layer);
    put_integer(&row, operation->micro_batch);
    put_integer(&row, operation->recompute);
    put_integer(&row, operation->flops);
    put_integer(&row, operation->bytes_moved);
    put_word(&row, operation->detail);
    return insertion_end(&row, err);
}

int store_memory_add(struct store *store, int64_t run_id, int rank, const struct store_memory *event,
                     struct error *err)
{
    struct insertion row;
    if (insertion_begin(store, INSERT_MEMORY, &row, err))
        return -1;
    put_integer(&row, run_id);
    put_integer(&row, rank);
    put_integer(&row, event->seq);
    put_integer(&row, event->time_ns);
    put_integer(&row, event->step);
    put_integer(&row, event->operation_id);
    put_integer(&row, event->tensor_id);
    put_text(&row, role_name(event->role));
    put_integer(&row, event->bytes);
    put_integer(&row, event->live_bytes);
    put_integer(&row, event->address);
    put_integer(&row, event->arena);
    return insertion_end(&row, err);
}

int store_kernel_add(struct store *store, int64_t run_id, int rank, const struct store_kernel *kernel,
                     struct error *err)
{
    struct insertion row;
    if (insertion_begin(store, INSERT_KERNEL, &row, err))
        return -1;
    put_integer(&row, run_id);
    put_integer(&row, rank);
    put_integer(&row, kernel->step);
    put_integer(&row, kernel->seq);
    put_integer(&row, kernel->operation_id);
    put_integer(&row, kernel->start_ns);
    put_integer(&row, kernel->end_ns);
    return insertion_end(&row, err);
}

int store_step_add(struct store *store, int64_t run_id, const struct store_step *step, struct error *err)
{
    struct insertion row;
    if (insertion_begin(store, INSERT_STEP, &row, err))
        return -1;
    put_integer(&row, run_id);
    put_integer(&row, step->step);
    put_integer(&row, step->rank);
    put_real(&row, step->loss);
    put_real(&row, step->grad_norm);
    put_real(&row, step->seconds);
    put_integer(&row, step->tokens);
    put_real(&row, step->tokens_per_s);
    put_real(&row, step->communication_busy_s);
    put_real(&row, step->communication_waited_s);
    return insertion_end(&row, err);
}

/* `bytes` or `seconds`, whichever the row is about: the other is NULL. */
static int prediction_row_add(struct store *store, int64_t run_id, int rank, const char *what,
                              const char *role, const int64_t *bytes, const double *seconds,
                              struct error *err)
{
    struct insertion row;
    if (insertion_begin(store, INSERT_PREDICTION, &row, err))
        return -1;
    put_integer(&row, run_id);
    put_integer(&row, rank);
    put_text(&row, what);
    put_text(&row, role);
    if (bytes)
        put_integer(&row, *bytes);
    else
        put_null(&row);
    if (seconds)
        put_real(&row, *seconds);
    else
        put_null(&row);
    return insertion_end(&row, err);
}

int store_prediction_add(struct store *store, int64_t run_id, const struct store_prediction *prediction,
                         struct error *err)
{
    int rank = prediction->rank;
    for (int role = 0; role < ROLE_COUNT; role++)
        if (prediction_row_add(store, run_id, rank, "peak", role_name(role), &prediction->at_peak[role], NULL,
                               err))
            return -1;
    if (prediction_row_add(store, run_id, rank, "arena", "", &prediction->arena_bytes, NULL, err))
        return -1;
    return prediction_row_add(store, run_id, rank, "step", "", NULL, &prediction->step_seconds, err);
}

int store_driver_event_add(struct store *store, int64_t run_id, int rank,
                           const struct store_driver_event *event, struct error *err)
{
    struct insertion row;
    if (insertion_begin(store, INSERT_DRIVER_EVENT, &row, err))
        return -1;
    put_integer(&row, run_id);
    put_integer(&row, rank);
    put_integer(&row, event->seq);
    put_integer(&row, event->time_ns);
    put_integer(&row, event->step);
    put_integer(&row, event->operation_id);
    put_integer(&row, event->bytes);
    put_integer(&row, event->live_bytes);
    put_integer(&row, event->address);
    put_word(&row, event->call);
    put_word(&row, event->owner);
    return insertion_end(&row, err);
}

int store_runtime_add(struct store *store, int64_t run_id, int rank, const struct store_runtime *runtime,
                      struct error *err)
{
    struct insertion row;
    if (insertion_begin(store, INSERT_RUNTIME, &row, err))
        return -1;
    put_integer(&row, run_id);
    put_integer(&row, rank);
    put_word(&row, runtime->name);
    put_integer(&row, runtime->bytes);
    put_word(&row, runtime->how);
    return insertion_end(&row, err);
}

int store_span_add(struct store *store, int64_t run_id, int rank, const struct store_gpu_span *span,
                   struct error *err)
{
    struct insertion row;
    if (insertion_begin(store, INSERT_SPAN, &row, err))
        return -1;
    put_integer(&row, run_id);
    put_integer(&row, rank);
    put_integer(&row, span->seq);
    put_integer(&row, span->step);
    put_integer(&row, span->operation_id);
    put_word(&row, span->kind);
    put_text(&row, span->name);
    put_integer(&row, span->stream);
    put_integer(&row, span->start_ns);
    put_integer(&row, span->end_ns);
    put_integer(&row, span->bytes);
    return insertion_end(&row, err);
}

int store_note_add(struct store *store, int64_t run_id, int rank, const char *note, struct error *err)
{
    struct insertion row;
    if (insertion_begin(store, INSERT_NOTE, &row, err))
        return -1;
    put_integer(&row, run_id);
    put_integer(&row, rank);
    put_text(&row, note);
    return insertion_end(&row, err);
}

int store_spans_as_kernels(struct store *store, int64_t run_id, struct error *err)
{
    struct insertion row;
    if (insertion_begin(store, INSERT_SPANS_AS_KERNELS, &row, err))
        return -1;
    put_integer(&row, run_id);
    return insertion_end(&row, err);
}

/* One after the other, in one transaction. */
static int copy_tables(struct store *store, int64_t run_id, int rank, struct error *err)
{
    static const char *const tables[] = {"ranks",         "rank_peaks",     "tensors",   "operations",
                                         "memory_events", "kernels",        "steps",     "predictions",
                                         "driver_events", "runtime_memory", "gpu_spans", "notes"};
    char sql[200];
    if (store_execute(store, "BEGIN IMMEDIATE", "written", err))
        return -1;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        snprintf(sql, sizeof sql,
                 "INSERT OR REPLACE INTO main.%s SELECT * FROM part.%s WHERE run_id = %lld AND rank = %d",
                 tables[i], tables[i], (long long)run_id, rank);
        if (store_execute(store, sql, "written", err))
            goto fail;
    }
    if (!store_execute(store, "COMMIT", "written", err))
        return 0;
fail:
    store_roll_back(store);
    return -1;
}

int store_merge(struct store *store, int64_t run_id, int rank, const char *path, struct error *err)
{
    char *attach = sqlite3_mprintf("ATTACH %Q AS part", path);
    int status = store_execute(store, attach, "joined with the part of another rank", err);
    sqlite3_free(attach);
    if (status)
        return -1;
    status = copy_tables(store, run_id, rank, err);
    sqlite3_exec(store->db, "DETACH part", NULL, NULL, NULL);
    return status;
}
