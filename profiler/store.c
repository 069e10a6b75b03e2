/* Opens, checks and closes run.db.
 *
 * While a run is recorded the file is in SQLite's write-ahead mode (WAL): readers and the writer never wait for each other,
 * so a person with a query open cannot stall a training step, and what a killed writer leaves can be read without being
 * repaired first. (With a rollback journal both are false: a long query blocks the commit, and a half-done commit has to be
 * undone by somebody who may write.) When the writer closes, it puts the file back into the plain mode, so that a finished
 * run.db is one file that can be copied, and read where nothing can be written. */
#include "profiler/store_sql.h"

#include "profiler/schema.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOCK_WAIT_MS = 10000, CLOSE_WAIT_MS = 200, CLOSE_RETRY_MS = 2 };

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

int store_execute(struct store *store, const char *sql, const char *doing, struct error *err)
{
    if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) != SQLITE_OK)
        return store_sql_error(store, doing, err);
    return 0;
}

void store_roll_back(struct store *store)
{
    if (!sqlite3_get_autocommit(store->db))
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
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
    if (store_execute(store, "BEGIN IMMEDIATE", "written", err) || check_identity(store, &fresh, err))
        return -1;
    if (store->version < 1 && store_execute(store, schema_1_sql, "written", err))
        return -1;
    if (store->version < 2 && store_execute(store, schema_2_sql, "written", err))
        return -1;
    if (store->version < 3 && store_execute(store, schema_3_sql, "written", err))
        return -1;
    if (store->version < SCHEMA_VERSION && store_execute(store, identity, "written", err))
        return -1;
    store->version = SCHEMA_VERSION;
    return store_execute(store, "COMMIT", "written", err);
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
    if (store_execute(store, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL", "written", err) ||
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

/* Whether the file is in the plain mode now. SQLite does not wait for readers here, whatever the busy timeout. */
static bool leave_write_ahead(sqlite3 *db)
{
    sqlite3_stmt *query;
    if (sqlite3_prepare_v2(db, "PRAGMA journal_mode = DELETE", -1, &query, NULL))
        return false;
    bool plain =
        sqlite3_step(query) == SQLITE_ROW && !strcmp((const char *)sqlite3_column_text(query, 0), "delete");
    sqlite3_finalize(query);
    return plain;
}

void store_close(struct store *store)
{
    if (!store)
        return;
    for (int i = 0; i < STORE_INSERTS; i++)
        sqlite3_finalize(store->inserts[i]);
    if (store->writes && store->db) {
        store_roll_back(store);
        /* The plain mode is refused while somebody else has the file open; it is complete and readable as it is, so that
         * is no error. The checkpoint first: a copy of the file alone then has everything even so. */
        sqlite3_busy_timeout(store->db, CLOSE_WAIT_MS);
        sqlite3_exec(store->db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL);
        for (int waited = 0; !leave_write_ahead(store->db) && waited < CLOSE_WAIT_MS;
             waited += CLOSE_RETRY_MS)
            sqlite3_sleep(CLOSE_RETRY_MS);
    }
    sqlite3_close(store->db);
    free(store->path);
    free(store);
}

/* Of another process, for one. Where there are no tables yet the question fails, and there are no runs; a file that somebody
 * else has at work cannot be asked either, and may hold one. */
static bool may_hold_other_run(struct store *store)
{
    char sql[120];
    int64_t others = 0;
    snprintf(sql, sizeof sql, "SELECT COUNT(*) FROM runs WHERE run_id NOT IN (%lld, %lld)",
             (long long)store->own_run, (long long)store->batch_run);
    if (!store->db || !read_number(store, sql, &others, NULL))
        return others > 0;
    int reason = sqlite3_errcode(store->db) & 0xff;
    return reason == SQLITE_BUSY || reason == SQLITE_LOCKED;
}

void store_discard(struct store *store)
{
    static const char *const endings[] = {"", "-wal", "-shm", "-journal"};
    if (!store)
        return;
    bool ours = store->made && !may_hold_other_run(store);
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
    return store_execute(store, "BEGIN", "read", err);
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
