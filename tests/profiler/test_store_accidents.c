/* No accident spoils a run.db: killed writers, full disks, folders that cannot be written, files that are none, several processes. */
#include "profiler/store_sql.h"
#include "tests/profiler/sample.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { BATCH = 1000, NOBODY = 65534 };

static struct error err;

/* Whole batches of events, numbered on, until one fails. Returns how many were committed. */
static int64_t write_batches(struct store *store, int64_t run_id, int64_t most, int report)
{
    for (int64_t batch = 0; batch < most; batch++) {
        if (store_begin(store, &err))
            return batch;
        for (int i = 0; i < BATCH; i++) {
            struct store_memory event = {
                .seq = batch * BATCH + i, .bytes = 1, .live_bytes = batch * BATCH + i + 1};
            store_memory_add(store, run_id, 0, &event, NULL);
        }
        if (store_commit(store, &err))
            return batch;
        if (report >= 0 && write(report, "+", 1) != 1)
            return batch;
    }
    return most;
}

static struct store *create_with_run(const char *path)
{
    struct store *store;
    struct store_run run = {.ranks = 1};
    ASSERT_OK(store_create(path, &store, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    ASSERT_OK(store_commit(store, &err));
    return store;
}

/* Runs `body` as somebody who cannot write the folder, in a process of its own. */
static void as_nobody(void (*body)(const char *path), const char *folder, const char *path)
{
    ASSERT_INT(chmod(folder, 0555), 0);
    pid_t child = fork();
    if (child == 0) {
        if (getuid() == 0 && setuid(NOBODY))
            _exit(2);
        body(path);
        _exit(0);
    }
    int status;
    ASSERT_INT(waitpid(child, &status, 0), child);
    ASSERT_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0,
               "the reader in a read-only folder ended with %d", status);
}

static void read_whole_batches(const char *path)
{
    struct store *store;
    if (store_open_read(path, &store, &err)) {
        fprintf(stderr, "%s\n", err.text);
        _exit(1);
    }
    if (sample_count_events(store, 1) % BATCH)
        _exit(3);
    store_close(store);
}

static void read_sample(const char *path)
{
    struct store *store;
    if (store_open_read(path, &store, &err)) {
        fprintf(stderr, "%s\n", err.text);
        _exit(1);
    }
    if (sample_count_events(store, 1) != SAMPLE_EVENTS)
        _exit(3);
    store_close(store);
}

TEST(store_killed, "a writer killed in the middle leaves every committed batch readable, and nothing else")
{
    char folder[64], path[128], plus;
    struct store *store;
    struct arena *arena = arena_create();
    struct store_run run;
    int channel[2], reported = 0;
    scratch_open(folder);
    scratch_path(folder, "run.db", path);
    ASSERT_INT(pipe(channel), 0);
    pid_t child = fork();
    if (child == 0) {
        write_batches(create_with_run(path), 1, 1000000, channel[1]);
        _exit(0);
    }
    close(channel[1]);
    while (reported < 20 && read(channel[0], &plus, 1) == 1)
        reported++;
    kill(child, SIGKILL);
    ASSERT_INT(waitpid(child, NULL, 0), child);
    while (read(channel[0], &plus, 1) == 1)
        reported++;

    ASSERT_OK(store_open_read(path, &store, &err));
    int64_t count = sample_count_events(store, 1);
    ASSERT_INT(count % BATCH, 0);
    /* The last commit may have come before its report. */
    ASSERT_MSG(count / BATCH == reported || count / BATCH == reported + 1, "%lld events, %d batches reported",
               (long long)count, reported);
    ASSERT_OK(store_read_run(store, 1, arena, &run, &err));
    ASSERT(run.finished_at == NULL);
    store_close(store);
    as_nobody(read_whole_batches, folder, path);
    arena_free(arena);
    scratch_close(folder);
}

/* Fills what little room there is, then checks that whole batches are there and only those. */
static void assert_full(const char *path, const char *message)
{
    struct store *store = create_with_run(path);
    int64_t batches = write_batches(store, 1, 1000, -1);
    ASSERT_MSG(batches > 0 && batches < 1000, "%lld batches were written", (long long)batches);
    ASSERT_HAS(err.text, path);
    ASSERT_HAS(err.text, message);
    store_close(store);
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_INT(sample_count_events(store, 1), batches * BATCH);
    store_close(store);
}

TEST(store_disk_full, "a full disk is an error, and never leaves half a batch")
{
    char folder[64], path[128], full[128];
    scratch_open(folder);
    ASSERT_INT(mkdir(scratch_path(folder, "full", full), 0755), 0);
    if (mount("tmpfs", full, "tmpfs", 0, "size=1m")) {
        scratch_close(folder);
        SKIP("mounting a small file system is not allowed here");
    }
    assert_full(scratch_path(full, "run.db", path), "the disk is full; free some space");
    umount(full);
    scratch_close(folder);
}

/* As SQLite does it in the middle of a batch, where its pages no longer fit memory and the disk takes none. */
TEST(store_rolled_back, "where SQLite gives up a batch by itself, the rest of it fails for the first reason, "
                        "and the next is fine")
{
    char folder[64], path[128];
    struct store_memory event = {.bytes = 1, .live_bytes = 1};
    scratch_open(folder);
    struct store *store = create_with_run(scratch_path(folder, "run.db", path));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_memory_add(store, 1, 0, &event, &err));
    ASSERT_INT(store_memory_add(store, 1, 0, &event, &err), -1);
    ASSERT_HAS(err.text, "UNIQUE constraint failed");
    store_roll_back(store);
    event.seq = 1;
    ASSERT_INT(store_memory_add(store, 1, 0, &event, &err), -1);
    ASSERT_HAS(err.text, "UNIQUE constraint failed");
    ASSERT_INT(store_commit(store, &err), -1);
    ASSERT_HAS(err.text, "UNIQUE constraint failed");
    ASSERT_INT(write_batches(store, 1, 1, -1), 1);
    ASSERT_INT(sample_count_events(store, 1), BATCH);
    store_close(store);
    scratch_close(folder);
}

TEST(store_size_limit, "a file that may not grow is an error, and never leaves half a batch")
{
    char folder[64], path[128];
    struct rlimit before, limit;
    scratch_open(folder);
    signal(SIGXFSZ, SIG_IGN);
    ASSERT_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 512 << 10;
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_full(scratch_path(folder, "run.db", path), "File too large");
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    scratch_close(folder);
}

static void assert_refused(const char *path, const char *reason, const char *way_out)
{
    struct store *store = NULL;
    ASSERT_INT(store_open_read(path, &store, &err), -1);
    ASSERT(store == NULL);
    ASSERT_HAS(err.text, path);
    ASSERT_HAS(err.text, reason);
    ASSERT_HAS(err.text, way_out);
}

static void write_bytes(const char *path, long offset, const void *bytes, size_t count)
{
    FILE *file = fopen(path, offset ? "r+b" : "wb");
    ASSERT(file != NULL);
    fseek(file, offset, SEEK_SET);
    ASSERT_INT(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

static int count_files(const char *folder)
{
    DIR *entries = opendir(folder);
    int count = 0;
    while (readdir(entries))
        count++;
    closedir(entries);
    return count - 2; /* "." and ".." */
}

TEST(store_create_fails, "a file that could not be begun is not left, and one that was there is")
{
    char folder[64], path[128];
    struct rlimit before, limit;
    struct store *store;
    scratch_open(folder);
    signal(SIGXFSZ, SIG_IGN);
    ASSERT_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 1000; /* less than SQLite's first page */
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ASSERT_INT(store_create(scratch_path(folder, "run.db", path), &store, &err), -1);
    ASSERT_INT(count_files(folder), 0);
    write_bytes(path, 0, "", 0);
    ASSERT_INT(store_create(path, &store, &err), -1);
    ASSERT_INT(access(path, F_OK), 0);
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    scratch_close(folder);
}

TEST(store_discarded, "a run that came to nothing takes along the file made for it, but no other run's")
{
    char folder[64], path[128];
    struct store *store, *other;
    struct store_run run = {.ranks = 1};
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    ASSERT_OK(store_commit(store, &err));
    store_discard(store);
    ASSERT_INT(count_files(folder), 0);
    ASSERT_OK(store_create(path, &store, &err));
    ASSERT_OK(store_create(path, &other, &err));
    store_discard(other); /* found the file there */
    ASSERT_INT(access(path, F_OK), 0);
    for (int i = 0; i < 2; i++) {
        run.run_id = 0;
        ASSERT_OK(store_begin(store, &err));
        ASSERT_OK(store_run_add(store, &run, &err));
        ASSERT_OK(store_commit(store, &err));
    }
    store_discard(store);
    ASSERT_INT(access(path, F_OK), 0);
    store_discard(NULL);
    scratch_close(folder);
}

/* The second process's run has the number that the first one's would have had. */
TEST(store_discarded_beside, "whoever made a file leaves it to the one whose run is in it")
{
    char folder[64], path[128];
    struct store *store, *other;
    struct store_run run = {.ranks = 1}, theirs = {.ranks = 1};
    struct store_memory event = {.bytes = 1, .live_bytes = 1};
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run.db", path), &store, &err));
    ASSERT_OK(store_create(path, &other, &err));
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    ASSERT_OK(store_memory_add(store, run.run_id, 0, &event, &err));
    ASSERT_INT(store_memory_add(store, run.run_id, 0, &event, &err), -1);
    ASSERT_INT(store_commit(store, &err), -1);
    ASSERT_OK(store_begin(other, &err));
    ASSERT_OK(store_run_add(other, &theirs, &err));
    ASSERT_OK(store_commit(other, &err));
    ASSERT_INT(theirs.run_id, run.run_id);
    store_discard(store);
    ASSERT_INT(access(path, F_OK), 0);
    store_close(other);
    scratch_close(folder);
}

TEST(store_refusals,
     "what is no run.db is refused in one sentence with a way out, for reading and for writing")
{
    char folder[64], path[128], text[2000];
    struct store *store;
    scratch_open(folder);
    assert_refused(scratch_path(folder, "none.db", path), "No such file", "memplan profile");
    assert_refused(folder, "a folder", "name the run.db");
    memset(text, 'x', sizeof text);
    write_bytes(scratch_path(folder, "text.db", path), 0, text, sizeof text);
    assert_refused(path, "not a database", "name a run.db");
    ASSERT_INT(store_create(path, &store, &err), -1);
    ASSERT_HAS(err.text, "not a database");
    write_bytes(scratch_path(folder, "empty.db", path), 0, text, 0);
    assert_refused(path, "an empty database", "name a run.db");
    /* The header of an SQLite file: user_version at byte 60, application_id at 68, big end first. */
    sample_file(scratch_path(folder, "newer.db", path));
    write_bytes(path, 60, (char[]){0, 0, 0, 9}, 4);
    assert_refused(path, "schema version 9", "update memplan");
    ASSERT_INT(store_create(path, &store, &err), -1);
    ASSERT_HAS(err.text, "schema version 9");
    sample_file(scratch_path(folder, "other.db", path));
    write_bytes(path, 68, (char[]){0, 0, 1, 0}, 4);
    assert_refused(path, "application id 256", "name a run.db");
    ASSERT_INT(store_create(path, &store, &err), -1);
    ASSERT_HAS(err.text, "application id 256");
    ASSERT_INT(store_create(scratch_path(folder, "no/run.db", path), &store, &err), -1);
    ASSERT_HAS(err.text, "No such file or directory");
    scratch_close(folder);
}

static size_t read_bytes(const char *path, char *bytes, size_t room)
{
    FILE *file = fopen(path, "rb");
    ASSERT(file != NULL);
    size_t count = fread(bytes, 1, room, file);
    fclose(file);
    return count;
}

TEST(store_read_only, "reading changes no byte, needs no writable folder, and takes odd names")
{
    enum { ROOM = 1 << 20 };
    char folder[64], path[128], *before = malloc(ROOM), *after = malloc(ROOM);
    scratch_open(folder);
    sample_file(scratch_path(folder, "a run #1?.db", path));
    size_t count = read_bytes(path, before, ROOM);
    sample_assert_readable(path);
    ASSERT_INT(read_bytes(path, after, ROOM), count);
    ASSERT_INT(memcmp(before, after, count), 0);
    ASSERT_INT(count_files(folder), 1);
    as_nobody(read_sample, folder, path);
    free(before);
    free(after);
    scratch_close(folder);
}

TEST(store_left_open,
     "a file that somebody was reading when its writer closed is complete, even copied alone")
{
    char folder[64], path[128], helper[128];
    struct store *writer, *reader;
    struct store_run run = {.ranks = 1};
    scratch_open(folder);
    ASSERT_OK(store_create(scratch_path(folder, "run #1?.db", path), &writer, &err));
    sample_write(writer, &run);
    ASSERT_OK(store_open_read(path, &reader, &err));
    ASSERT_INT(sample_count_events(reader, 1), SAMPLE_EVENTS);
    store_close(writer);
    ASSERT_INT(sample_count_events(reader, 1), SAMPLE_EVENTS);
    store_close(reader);
    unlink(scratch_path(folder, "run #1?.db-wal", helper));
    unlink(scratch_path(folder, "run #1?.db-shm", helper));
    as_nobody(read_sample, folder, path);
    scratch_close(folder);
}

static void tell(int channel)
{
    ASSERT_INT(write(channel, "+", 1), 1);
}

static void hear(int channel)
{
    char plus;
    ASSERT_INT(read(channel, &plus, 1), 1);
}

TEST(store_concurrent, "a reader sees whole batches while another process writes, and neither waits")
{
    char folder[64], path[128];
    struct store *store;
    int from_writer[2], to_writer[2], status;
    scratch_open(folder);
    scratch_path(folder, "run.db", path);
    ASSERT(pipe(from_writer) == 0 && pipe(to_writer) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct store_memory event = {.seq = BATCH, .bytes = 1, .live_bytes = BATCH + 1};
        store = create_with_run(path);
        int failed = write_batches(store, 1, 1, -1) != 1 || store_begin(store, &err) ||
                     store_memory_add(store, 1, 0, &event, &err);
        tell(from_writer[1]); /* in the middle of a batch */
        hear(to_writer[0]);
        failed |= store_commit(store, &err);
        tell(from_writer[1]);
        hear(to_writer[0]);
        store_close(store);
        _exit(failed);
    }
    hear(from_writer[0]);
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_INT(sample_count_events(store, 1), BATCH);
    tell(to_writer[1]);
    hear(from_writer[0]);
    ASSERT_INT(sample_count_events(store, 1), BATCH + 1);
    tell(to_writer[1]);
    ASSERT_INT(waitpid(child, &status, 0), child);
    ASSERT_INT(status, 0);
    ASSERT_INT(sample_count_events(store, 1), BATCH + 1);
    store_close(store);
    scratch_close(folder);
}
