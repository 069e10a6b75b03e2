/* Adds rows to run.db: batches, one statement and its values for each kind of row, and the rows of other files. */
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

int store_begin(struct store *store, struct error *err)
{
    assert(store->writes);
    store->batch_failed = false;
    store->batch_run = 0;
    return store_execute(store, "BEGIN IMMEDIATE", "written", err);
}

int store_commit(struct store *store, struct error *err)
{
    if (!store->batch_failed && store_execute(store, "COMMIT", "written", &store->batch_error) == 0) {
        if (store->batch_run)
            store->own_run = store->batch_run;
        return 0;
    }
    store_roll_back(store);
    store->batch_failed = false;
    store->batch_run = 0; /* another process may be given its number */
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

/* What stands for one question mark. */
struct value {
    enum { VALUE_NULL, VALUE_WHOLE, VALUE_REAL, VALUE_TEXT } kind;
    union {
        int64_t whole;
        double real;
        const char *text;
    };
};

static const struct value null = {.kind = VALUE_NULL};

static struct value whole(int64_t number)
{
    return (struct value){.kind = VALUE_WHOLE, .whole = number};
}

/* NAN becomes NULL. */
static struct value real(double number)
{
    return (struct value){.kind = VALUE_REAL, .real = number};
}

/* NULL stays NULL. */
static struct value text(const char *text)
{
    return (struct value){.kind = text ? VALUE_TEXT : VALUE_NULL, .text = text};
}

/* For columns that may not be NULL. */
static struct value word(const char *word)
{
    return text(word ? word : "");
}

static int bind_value(sqlite3_stmt *statement, int column, const struct value *value)
{
    switch (value->kind) {
    case VALUE_WHOLE:
        return sqlite3_bind_int64(statement, column, value->whole);
    case VALUE_REAL:
        return sqlite3_bind_double(statement, column, value->real);
    case VALUE_TEXT:
        return sqlite3_bind_text(statement, column, value->text, -1, SQLITE_STATIC);
    case VALUE_NULL:
        break;
    }
    return sqlite3_bind_null(statement, column);
}

/* The statement, prepared when it is first used; NULL: it cannot be. */
static sqlite3_stmt *statement_of(struct store *store, enum insert insert)
{
    sqlite3_stmt **statement = &store->inserts[insert];
    if (!*statement)
        sqlite3_prepare_v3(store->db, insert_sql[insert], -1, SQLITE_PREPARE_PERSISTENT, statement, NULL);
    return *statement;
}

/* As many values as there are question marks, in their order. */
static int insert_values(struct store *store, enum insert insert, const struct value *values, int count,
                         struct error *err)
{
    if (store->batch_failed) /* and SQLite may have rolled it back by itself */
        return batch_fail(store, err);
    assert(!sqlite3_get_autocommit(store->db)); /* rows are added between store_begin() and store_commit() */
    sqlite3_stmt *statement = statement_of(store, insert);
    if (!statement)
        return batch_fail(store, err);
    assert(count == sqlite3_bind_parameter_count(statement));
    int code = SQLITE_OK;
    for (int i = 0; i < count && code == SQLITE_OK; i++)
        code = bind_value(statement, i + 1, &values[i]);
    if (code == SQLITE_OK)
        code = sqlite3_step(statement);
    int status = code == SQLITE_DONE ? 0 : batch_fail(store, err);
    sqlite3_reset(statement);
    return status;
}

#define INSERT(store, insert, err, ...)                                                                      \
    insert_values(store, insert, (const struct value[]){__VA_ARGS__},                                        \
                  (int)(sizeof((const struct value[]){__VA_ARGS__}) / sizeof(struct value)), err)

static const char *utc_now(char text[32])
{
    time_t now = time(NULL);
    struct tm utc;
    strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    return text;
}

int store_run_add(struct store *store, struct store_run *run, struct error *err)
{
    char now[32];
    const char *started_at = run->started_at ? run->started_at : utc_now(now);
    if (INSERT(store, INSERT_RUN, err, whole(run->run_id), text(started_at), text(run->finished_at),
               text(run->command), text(run->model), text(run->model_json), text(run->layout_json),
               text(run->device), whole(run->capacity_bytes), text(run->policy), text(run->memplan_version),
               whole(run->ranks), whole(run->event_steps), text(run->note), whole(run->steps)))
        return -1;
    store->batch_run = run->run_id = sqlite3_last_insert_rowid(store->db);
    for (int rank = 0; rank < run->ranks; rank++)
        if (store_rank_add(store, run->run_id, &(struct store_rank){.rank = rank}, err))
            return -1;
    return 0;
}

int store_run_finish(struct store *store, int64_t run_id, struct error *err)
{
    char now[32];
    return INSERT(store, FINISH_RUN, err, text(utc_now(now)), whole(run_id));
}

int store_rank_add(struct store *store, int64_t run_id, const struct store_rank *rank, struct error *err)
{
    bool known = rank->measured;
    if (INSERT(store, INSERT_RANK, err, whole(run_id), whole(rank->rank), text(rank->host),
               known ? whole(rank->arena_bytes) : null, known ? whole(rank->peak_bytes) : null,
               known ? whole(rank->reserved_peak_bytes) : null))
        return -1;
    for (int role = 0; known && role < ROLE_COUNT; role++)
        if (INSERT(store, INSERT_RANK_PEAK, err, whole(run_id), whole(rank->rank),
                   text(role_name((enum role)role)), whole(rank->at_peak[role])))
            return -1;
    return 0;
}

int store_tensor_add(struct store *store, int64_t run_id, int rank, const struct store_tensor *tensor,
                     struct error *err)
{
    return INSERT(store, INSERT_TENSOR, err, whole(run_id), whole(rank), whole(tensor->tensor_id),
                  text(tensor->name), text(tensor->dims), text(tensor->dtype), text(role_name(tensor->role)),
                  whole(tensor->layer), whole(tensor->micro_batch), whole(tensor->bytes));
}

int store_operation_add(struct store *store, int64_t run_id, int rank,
                        const struct store_operation *operation, struct error *err)
{
    return INSERT(store, INSERT_OPERATION, err, whole(run_id), whole(rank), whole(operation->operation_id),
                  word(operation->kind), word(operation->phase), whole(operation->layer),
                  whole(operation->micro_batch), whole(operation->recompute), whole(operation->flops),
                  whole(operation->bytes_moved), word(operation->detail));
}

int store_memory_add(struct store *store, int64_t run_id, int rank, const struct store_memory *event,
                     struct error *err)
{
    return INSERT(store, INSERT_MEMORY, err, whole(run_id), whole(rank), whole(event->seq),
                  whole(event->time_ns), whole(event->step), whole(event->operation_id),
                  whole(event->tensor_id), text(role_name(event->role)), whole(event->bytes),
                  whole(event->live_bytes), whole(event->address), whole(event->arena));
}

int store_kernel_add(struct store *store, int64_t run_id, int rank, const struct store_kernel *kernel,
                     struct error *err)
{
    return INSERT(store, INSERT_KERNEL, err, whole(run_id), whole(rank), whole(kernel->step),
                  whole(kernel->seq), whole(kernel->operation_id), whole(kernel->start_ns),
                  whole(kernel->end_ns));
}

int store_step_add(struct store *store, int64_t run_id, const struct store_step *step, struct error *err)
{
    return INSERT(store, INSERT_STEP, err, whole(run_id), whole(step->step), whole(step->rank),
                  real(step->loss), real(step->grad_norm), real(step->seconds), whole(step->tokens),
                  real(step->tokens_per_s), real(step->communication_busy_s),
                  real(step->communication_waited_s));
}

/* Rows are about bytes or about seconds; the other is NULL. */
int store_prediction_add(struct store *store, int64_t run_id, const struct store_prediction *prediction,
                         struct error *err)
{
    struct value run = whole(run_id), rank = whole(prediction->rank);
    for (int role = 0; role < ROLE_COUNT; role++)
        if (INSERT(store, INSERT_PREDICTION, err, run, rank, text("peak"), text(role_name((enum role)role)),
                   whole(prediction->at_peak[role]), null))
            return -1;
    return INSERT(store, INSERT_PREDICTION, err, run, rank, text("arena"), text(""),
                  whole(prediction->arena_bytes), null) ||
                   INSERT(store, INSERT_PREDICTION, err, run, rank, text("step"), text(""), null,
                          real(prediction->step_seconds))
               ? -1
               : 0;
}

int store_driver_event_add(struct store *store, int64_t run_id, int rank,
                           const struct store_driver_event *event, struct error *err)
{
    return INSERT(store, INSERT_DRIVER_EVENT, err, whole(run_id), whole(rank), whole(event->seq),
                  whole(event->time_ns), whole(event->step), whole(event->operation_id), whole(event->bytes),
                  whole(event->live_bytes), whole(event->address), word(event->call), word(event->owner));
}

int store_runtime_add(struct store *store, int64_t run_id, int rank, const struct store_runtime *runtime,
                      struct error *err)
{
    return INSERT(store, INSERT_RUNTIME, err, whole(run_id), whole(rank), word(runtime->name),
                  whole(runtime->bytes), word(runtime->how));
}

int store_span_add(struct store *store, int64_t run_id, int rank, const struct store_gpu_span *span,
                   struct error *err)
{
    return INSERT(store, INSERT_SPAN, err, whole(run_id), whole(rank), whole(span->seq), whole(span->step),
                  whole(span->operation_id), word(span->kind), text(span->name), whole(span->stream),
                  whole(span->start_ns), whole(span->end_ns), whole(span->bytes));
}

int store_note_add(struct store *store, int64_t run_id, int rank, const char *note, struct error *err)
{
    return INSERT(store, INSERT_NOTE, err, whole(run_id), whole(rank), text(note));
}

int store_spans_as_kernels(struct store *store, int64_t run_id, struct error *err)
{
    return INSERT(store, INSERT_SPANS_AS_KERNELS, err, whole(run_id));
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
