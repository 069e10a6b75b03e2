/* Opens, checks and writes run.db.
 *
 * While a run is recorded the file is in SQLite's write-ahead mode (WAL): readers and the writer never wait for each other,
 * so a person with a query open cannot stall a training step, and what a killed writer leaves can be read without being
 * repaired first. (With a rollback journal both are false: a long query blocks the commit, and a half-done commit has to be
 * undone by somebody who may write.) When the writer closes, it puts the file back into the plain mode, so that a finished
 * run.db is one file that can be copied, and read where nothing can be written. */
#include "profiler/store_sql.h"

#include "profiler/schema.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_WAIT_MS = 10000, CLOSE_WAIT_MS = 200 };

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

static struct store *store_new(const char *path)
{
    struct store *store = host_alloc(sizeof *store);
    store->path = strcpy(host_alloc(strlen(path) + 1), path);
    return store;
}

static int open_connection(struct store *store, const char *name, int flags, struct error *err)
{
    sqlite3_close(store->db);
    store->db = NULL;
    int code = sqlite3_open_v2(name, &store->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (!store->db)
        return error_set(err, "%s: no memory for a database connection; close other programs", store->path);
    sqlite3_busy_timeout(store->db, LOCK_WAIT_MS);
    return code == SQLITE_OK ? 0 : store_sql_error(store, "opened", err);
}

static int execute(struct store *store, const char *sql, const char *doing, struct error *err)
{
    if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) != SQLITE_OK)
        return store_sql_error(store, doing, err);
    return 0;
}

static int read_number(struct store *store, const char *sql, int64_t *value, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    int rc = -1;
    if (sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW) {
        store_sql_error(store, "read", err);
        goto done;
    }
    *value = sqlite3_column_int64(statement, 0);
    rc = 0;
done:
    sqlite3_finalize(statement);
    return rc;
}

/* *fresh: a file without any content, which a writer may make ours. */
static int check_identity(struct store *store, bool *fresh, struct error *err)
{
    int64_t application, version, objects;
    if (read_number(store, "PRAGMA application_id", &application, err) ||
        read_number(store, "PRAGMA user_version", &version, err) ||
        read_number(store, "SELECT COUNT(*) FROM sqlite_master", &objects, err))
        return -1;
    *fresh = application == 0 && version == 0 && objects == 0;
    if (!*fresh && application != SCHEMA_APPLICATION_ID)
        return error_set(
            err,
            "%s: a database of another program (application id %lld, not %d); name a run.db that "
            "memplan profile wrote",
            store->path, (long long)application, SCHEMA_APPLICATION_ID);
    if (version > SCHEMA_VERSION)
        return error_set(
            err,
            "%s: written by a newer memplan (schema version %lld, this one knows %d); update memplan, "
            "or record the run again with this one",
            store->path, (long long)version, SCHEMA_VERSION);
    store->version = version;
    return 0;
}

/* Several processes may create one file at the same moment: whoever gets the lock first makes the tables. */
static int make_schema(struct store *store, struct error *err)
{
    bool fresh;
    char identity[80];
    snprintf(identity, sizeof identity, "PRAGMA application_id = %d; PRAGMA user_version = %d",
             SCHEMA_APPLICATION_ID, SCHEMA_VERSION);
    if (execute(store, "BEGIN IMMEDIATE", "written", err) || check_identity(store, &fresh, err))
        return -1;
    if (store->version < 1 && execute(store, schema_1_sql, "written", err))
        return -1;
    if (store->version < 2 && execute(store, schema_2_sql, "written", err))
        return -1;
    if (store->version < 3 && execute(store, schema_3_sql, "written", err))
        return -1;
    if (store->version < SCHEMA_VERSION && execute(store, identity, "written", err))
        return -1;
    store->version = SCHEMA_VERSION;
    return execute(store, "COMMIT", "written", err);
}

/* Of all who create one file at the same moment, one makes it. What cannot be made, SQLite explains. */
static bool make_file(const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file >= 0)
        close(file);
    return file >= 0;
}

int store_create(const char *path, struct store **out, struct error *err)
{
    struct store *store = store_new(path);
    bool fresh;
    store->made = make_file(path);
    if (open_connection(store, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err) ||
        check_identity(store, &fresh, err))
        goto fail;
    store->writes = true;
    /* Where write-ahead mode is impossible (some network file systems) SQLite keeps the plain mode and says so without
     * an error; recording then works too. NORMAL: a power cut may cost the last batches, never the file. */
    if (execute(store, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL", "written", err) ||
        make_schema(store, err))
        goto fail;
    *out = store;
    return 0;
fail:
    store_discard(store);
    return -1;
}

/* The path of what SQLite keeps beside the file; to be freed. */
static char *beside(const char *path, const char *ending)
{
    char *name = host_alloc(strlen(path) + strlen(ending) + 1);
    strcpy(stpcpy(name, path), ending);
    return name;
}

static bool wal_exists(const char *path)
{
    char *name = beside(path, "-wal");
    bool exists = access(name, F_OK) == 0;
    free(name);
    return exists;
}

/* "file:PATH?immutable=1", with what has a meaning in a URI written as %XX. */
static char *immutable_uri(const char *path)
{
    static const char prefix[] = "file:", suffix[] = "?immutable=1";
    char *uri = host_alloc(sizeof prefix + 3 * strlen(path) + sizeof suffix);
    char *end = stpcpy(uri, prefix);
    for (; *path; path++)
        if (strchr("%?#", *path))
            end += sprintf(end, "%%%02X", *path);
        else
            *end++ = *path;
    strcpy(end, suffix);
    return uri;
}

/* A file still in write-ahead mode (a reader was looking when its writer closed it) needs helper files beside it, which
 * SQLite cannot make in a read-only folder. Without a -wal file nobody is writing, so reading it as it lies is right. */
static int open_immutable(struct store *store, struct error *err)
{
    char *uri = immutable_uri(store->path);
    int rc = open_connection(store, uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, err);
    free(uri);
    return rc;
}

static int check_readable(struct store *store, struct error *err)
{
    bool fresh;
    if (check_identity(store, &fresh, err))
        return -1;
    if (fresh)
        return error_set(err, "%s: an empty database; name a run.db that memplan profile wrote", store->path);
    return 0;
}

int store_open_read(const char *path, struct store **out, struct error *err)
{
    struct stat file;
    if (!*path)
        return error_set(err, "a database without a name cannot be read; give its path, such as run.db");
    if (stat(path, &file))
        return error_set(err, "%s: %s; record a run with memplan profile, or give the right path", path,
                         strerror(errno));
    if (S_ISDIR(file.st_mode))
        return error_set(err, "%s: a folder, not a database; name the run.db in it", path);
    struct store *store = store_new(path);
    if (open_connection(store, path, SQLITE_OPEN_READONLY, err))
        goto fail;
    if (check_readable(store, err)) {
        int code = sqlite3_errcode(store->db);
        if ((code != SQLITE_CANTOPEN && code != SQLITE_READONLY) || wal_exists(path))
            goto fail;
        if (open_immutable(store, err) || check_readable(store, err))
            goto fail;
    }
    *out = store;
    return 0;
fail:
    store_close(store);
    return -1;
}

void store_close(struct store *store)
{
    if (!store)
        return;
    for (int i = 0; i < INSERT_COUNT; i++)
        sqlite3_finalize(store->inserts[i]);
    if (store->writes && store->db) {
        if (!sqlite3_get_autocommit(store->db))
            sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
        /* The plain mode is refused while somebody else has the file open; it is complete and readable as it is, so that
         * is no error. The checkpoint first: a copy of the file alone then has everything even so. */
        sqlite3_busy_timeout(store->db, CLOSE_WAIT_MS);
        sqlite3_exec(store->db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL);
        sqlite3_exec(store->db, "PRAGMA journal_mode = DELETE", NULL, NULL, NULL);
    }
    sqlite3_close(store->db);
    free(store->path);
    free(store);
}

void store_discard(struct store *store)
{
    static const char *const endings[] = {"", "-wal", "-shm", "-journal"};
    int64_t runs = 0;
    if (!store)
        return;
    /* Where there are no tables yet this fails, and there are no runs. */
    bool ours = store->made &&
                (!store->db || read_number(store, "SELECT COUNT(*) FROM runs", &runs, NULL) || runs <= 1);
    char *path = beside(store->path, "");
    store_close(store);
    for (size_t i = 0; ours && i < sizeof endings / sizeof endings[0]; i++) {
        char *name = beside(path, endings[i]);
        unlink(name);
        free(name);
    }
    free(path);
}

int store_freeze(struct store *store, struct error *err)
{
    return execute(store, "BEGIN", "read", err);
}

int store_begin(struct store *store, struct error *err)
{
    assert(store->writes);
    store->batch_failed = false;
    return execute(store, "BEGIN IMMEDIATE", "written", err);
}

int store_commit(struct store *store, struct error *err)
{
    if (!store->batch_failed && execute(store, "COMMIT", "written", &store->batch_error) == 0)
        return 0;
    /* SQLite may have rolled back by itself. */
    if (!sqlite3_get_autocommit(store->db))
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
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
    if (execute(store, "BEGIN IMMEDIATE", "written", err))
        return -1;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        snprintf(sql, sizeof sql,
                 "INSERT OR REPLACE INTO main.%s SELECT * FROM part.%s WHERE run_id = %lld AND rank = %d",
                 tables[i], tables[i], (long long)run_id, rank);
        if (execute(store, sql, "written", err)) {
            sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
            return -1;
        }
    }
    return execute(store, "COMMIT", "written", err);
}

int store_merge(struct store *store, int64_t run_id, int rank, const char *path, struct error *err)
{
    char *attach = sqlite3_mprintf("ATTACH %Q AS part", path);
    int status = execute(store, attach, "joined with the part of another rank", err);
    sqlite3_free(attach);
    if (status)
        return -1;
    status = copy_tables(store, run_id, rank, err);
    sqlite3_exec(store->db, "DETACH part", NULL, NULL, NULL);
    return status;
}

int store_sql_error(struct store *store, const char *doing, struct error *err)
{
    int errno_left = errno; /* sqlite3_system_errno() forgets why a write failed */
    int code = sqlite3_errcode(store->db);
    const char *message = sqlite3_errmsg(store->db);
    switch (code) {
    case SQLITE_FULL:
        return error_set(
            err, "%s: cannot be %s, the disk is full; free some space, or choose another file with -o",
            store->path, doing);
    case SQLITE_BUSY:
        return error_set(
            err,
            "%s: cannot be %s, another process has kept it locked for %d s; wait for that process, or "
            "choose another file",
            store->path, doing, LOCK_WAIT_MS / 1000);
    case SQLITE_NOTADB:
        return error_set(err, "%s: not a database; name a run.db that memplan profile wrote", store->path);
    case SQLITE_CORRUPT:
        return error_set(err, "%s: damaged (%s); `sqlite3 %s .recover` may save some of it", store->path,
                         message, store->path);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY: {
        int system = sqlite3_system_errno(store->db);
        if (!system && code == SQLITE_IOERR)
            system = errno_left;
        return error_set(
            err, "%s: cannot be %s: %s (%s); check the folder and its permissions, or choose another file",
            store->path, doing, message, system ? strerror(system) : "no further reason given");
    }
    default:
        return error_set(err, "%s: cannot be %s: %s; record the run again, or choose another file",
                         store->path, doing, message);
    }
}
