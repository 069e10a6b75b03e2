/* What run.db says of GPUs: rows of version 2 of the schema, and files of version 1. */
#include "profiler/schema.h"
#include "profiler/store.h"
#include "tests/profiler/sample.h"
#include "tests/test.h"

#include <sqlite3.h>

static struct error err;

static int64_t ask(const char *path, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *statement;
    ASSERT_INT(sqlite3_open(path, &db), SQLITE_OK);
    ASSERT_MSG(sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK, "%s", sqlite3_errmsg(db));
    ASSERT_INT(sqlite3_step(statement), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return value;
}

static void write_gpu(struct store *store, int64_t run_id, int rank)
{
    static const struct store_driver_event events[] = {
        {.seq = 0,
         .time_ns = 10,
         .operation_id = 4,
         .bytes = 100,
         .live_bytes = 100,
         .address = 1,
         .call = "cuMemAlloc_v2",
         .owner = "libnccl.so.2"},
        {.seq = 1,
         .time_ns = 20,
         .operation_id = -1,
         .step = -1,
         .bytes = -100,
         .address = 1,
         .call = "cuMemFree_v2",
         .owner = "libnccl.so.2"},
    };
    static const struct store_runtime runtime[] = {{"CUPTI", "measured", 3},
                                                   {"CUDA context", "measured", 400},
                                                   {"unattributed", "residual", -7},
                                                   {"CUPTI", "measured", 12}};
    /* Operation 4 runs from 50 to 90 in step 0; the span without times and the one of no operation count for none. */
    static const struct store_gpu_span spans[] = {
        {.seq = 0, .operation_id = 4, .kind = "kernel", .name = "b", .start_ns = 70, .end_ns = 90},
        {.seq = 1, .operation_id = 4, .kind = "copy", .start_ns = 50, .end_ns = 60, .bytes = 8},
        {.seq = 2, .operation_id = 4, .kind = "kernel", .name = "c"},
        {.seq = 3, .operation_id = -1, .step = -1, .kind = "fill", .start_ns = 1, .end_ns = 2},
        {.seq = 4, .operation_id = 2, .kind = "kernel", .name = "a", .start_ns = 30, .end_ns = 40},
        {.seq = 5,
         .operation_id = 2,
         .step = 1,
         .kind = "kernel",
         .name = "a",
         .start_ns = 130,
         .end_ns = 140},
    };
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        ASSERT_OK(store_driver_event_add(store, run_id, rank, &events[i], &err));
    for (size_t i = 0; i < sizeof runtime / sizeof *runtime; i++)
        ASSERT_OK(store_runtime_add(store, run_id, rank, &runtime[i], &err));
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++)
        ASSERT_OK(store_span_add(store, run_id, rank, &spans[i], &err));
    ASSERT_OK(store_note_add(store, run_id, rank, "first", &err));
    ASSERT_OK(store_note_add(store, run_id, rank, "second", &err));
}

static void check_gpu(const char *path, int64_t run_id, int rank)
{
    struct store *store;
    struct store_runtime *runtime;
    const char **notes;
    int64_t count;
    struct arena *arena = arena_create();
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(store_read_runtime(store, run_id, rank, arena, &runtime, &count, &err));
    ASSERT_INT(count, 3);
    ASSERT_STR(runtime[0].name, "CUDA context");
    ASSERT_INT(runtime[1].bytes, 12); /* the second of the same name */
    ASSERT_STR(runtime[2].how, "residual");
    ASSERT_INT(runtime[2].bytes, -7);
    ASSERT_OK(store_read_notes(store, run_id, rank, arena, &notes, &count, &err));
    ASSERT_INT(count, 2);
    ASSERT_STR(notes[0], "first");
    ASSERT_STR(notes[1], "second");
    store_close(store);
    arena_free(arena);
}

static int64_t add_run(struct store *store, int ranks)
{
    struct store_run run = {.ranks = ranks};
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    ASSERT_OK(store_commit(store, &err));
    return run.run_id;
}

TEST(store_gpu, "rows of a GPU come back, and its spans become the times of operations")
{
    char folder[64], path[128];
    struct store *store;
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    int64_t run_id = add_run(store, 1);
    ASSERT_OK(store_begin(store, &err));
    write_gpu(store, run_id, 0);
    ASSERT_OK(store_spans_as_kernels(store, run_id, &err));
    ASSERT_OK(store_commit(store, &err));
    store_close(store);
    check_gpu(path, run_id, 0);
    ASSERT_INT(ask(path, "SELECT COUNT(*) FROM driver_events WHERE owner = 'libnccl.so.2'"), 2);
    ASSERT_INT(ask(path, "SELECT SUM(bytes) FROM device_breakdown WHERE role = 'runtime'"), 405);
    ASSERT_INT(ask(path, "SELECT COUNT(*) FROM kernels"), 3);
    ASSERT_INT(ask(path, "SELECT operation_id FROM kernels WHERE step = 0 AND seq = 0"), 2);
    ASSERT_INT(ask(path, "SELECT start_ns FROM kernels WHERE operation_id = 4"), 50);
    ASSERT_INT(ask(path, "SELECT end_ns FROM kernels WHERE operation_id = 4"), 90);
    scratch_close(folder);
}

TEST(store_gpu_merged, "the rows of another rank's GPU are taken over with the rest")
{
    char folder[64], path[128], part[128];
    struct store *store;
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "part.db", part), &store, &err));
    int64_t run_id = add_run(store, 2);
    ASSERT_OK(store_begin(store, &err));
    write_gpu(store, run_id, 1);
    ASSERT_OK(store_commit(store, &err));
    store_close(store);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    ASSERT_INT(add_run(store, 2), run_id);
    ASSERT_OK(store_merge(store, run_id, 1, part, &err));
    store_close(store);
    check_gpu(path, run_id, 1);
    ASSERT_INT(ask(path, "SELECT COUNT(*) FROM gpu_spans WHERE rank = 1"), 6);
    ASSERT_INT(ask(path, "SELECT COUNT(*) FROM driver_events WHERE rank = 1"), 2);
    scratch_close(folder);
}

/* As memplan 0.1.0 made them. */
static void make_version_1(const char *path)
{
    sqlite3 *db;
    ASSERT_INT(sqlite3_open(path, &db), SQLITE_OK);
    ASSERT_INT(sqlite3_exec(db, schema_1_sql, NULL, NULL, NULL), SQLITE_OK);
    ASSERT_INT(
        sqlite3_exec(db,
                     "PRAGMA application_id = 0x6d656d70; PRAGMA user_version = 1;"
                     "INSERT INTO runs (started_at, ranks, event_steps, note) VALUES ('then', 1, 0, 'old');"
                     "INSERT INTO ranks (run_id, rank, host) VALUES (1, 0, 'here')",
                     NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
}

TEST(store_version_1,
     "a file of version 1 is read as it is, and gets what later versions added with its next run")
{
    char folder[64], path[128];
    struct store *store;
    struct store_run run;
    struct store_runtime *runtime;
    const char **notes;
    int64_t count = -1;
    struct arena *arena = arena_create();
    scratch_open(folder);
    make_version_1(scratch_path(folder, "run.db", path));
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(store_read_run(store, 1, arena, &run, &err));
    ASSERT_STR(run.note, "old");
    ASSERT_INT(run.steps, 0);
    ASSERT_OK(store_read_runtime(store, 1, 0, arena, &runtime, &count, &err));
    ASSERT_INT(count, 0);
    ASSERT_OK(store_read_notes(store, 1, 0, arena, &notes, &count, &err));
    ASSERT_INT(count, 0);
    store_close(store);
    ASSERT_INT(ask(path, "PRAGMA user_version"), 1);

    ASSERT_OK(store_create(path, &store, &err));
    int64_t run_id = add_run(store, 1);
    ASSERT_INT(run_id, 2);
    ASSERT_OK(store_begin(store, &err));
    write_gpu(store, run_id, 0);
    ASSERT_OK(store_commit(store, &err));
    store_close(store);
    check_gpu(path, run_id, 0);
    ASSERT_INT(ask(path, "PRAGMA user_version"), 3);
    ASSERT_INT(ask(path, "SELECT COUNT(*) FROM runs WHERE steps IS NULL"), 2);
    ASSERT_INT(ask(path, "SELECT note = 'old' FROM runs WHERE run_id = 1"), 1);
    arena_free(arena);
    scratch_close(folder);
}
