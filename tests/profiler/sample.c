/* See sample.h. */
#include "tests/profiler/sample.h"

static struct error err;

struct store *sample_begin(char folder[64], struct store_run *run)
{
    char path[128];
    struct store *store;
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, run, &err));
    return store;
}

void sample_write(struct store *store, struct store_run *run)
{
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, run, &err));
    for (int i = 0; i < SAMPLE_TENSORS; i++)
        ASSERT_OK(store_tensor_add(store, run->run_id, 0, &sample_tensors[i], &err));
    for (int i = 0; i < SAMPLE_EVENTS; i++)
        ASSERT_OK(store_memory_add(store, run->run_id, 0, &sample_events[i], &err));
    ASSERT_OK(store_commit(store, &err));
}

void sample_file(const char *path)
{
    struct store *store;
    struct store_run run = {.model = "tiny", .ranks = 1};
    ASSERT_OK(store_create(path, &store, &err));
    sample_write(store, &run);
    store_close(store);
}

int64_t sample_count_events(struct store *store, int64_t run_id)
{
    struct arena *arena = arena_create();
    struct store_point *points;
    int64_t count;
    ASSERT_OK(store_read_timeline(store, run_id, 0, 0, arena, &points, &count, &err));
    for (int64_t i = 0; i < count; i++)
        ASSERT_INT(points[i].seq, i);
    arena_free(arena);
    return count;
}

void sample_assert_readable(const char *path)
{
    struct store *store;
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_INT(sample_count_events(store, 1), SAMPLE_EVENTS);
    store_close(store);
}
