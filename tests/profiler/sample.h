/* A folder to write in, and one hand-worked rank that the tests of the store and of the recorder share. */
#ifndef MEMPLAN_TESTS_PROFILER_SAMPLE_H
#define MEMPLAN_TESTS_PROFILER_SAMPLE_H

#include "profiler/store.h"
#include "tests/test.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Takes a name that is one's own: "/tmp/memplan-XXXXXX". */
static inline void scratch_open(char folder[64])
{
    strcpy(folder, "/tmp/memplan-XXXXXX");
    ASSERT(mkdtemp(folder) != NULL);
    ASSERT_INT(chmod(folder, 0755), 0);
}

static inline int scratch_remove(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

static inline void scratch_close(const char *folder)
{
    chmod(folder, 0755);
    nftw(folder, scratch_remove, 8, FTW_DEPTH | FTW_PHYS);
}

static inline const char *scratch_path(const char *folder, const char *name, char path[128])
{
    int length = snprintf(path, 128, "%s/%s", folder, name);
    ASSERT(length < 128);
    return path;
}

/* Live bytes reach 380 at seq 3 and again at seq 5; the first moment counts. There, parameters hold 100, gradients 50,
 * activations 200 and a workspace of no tensor 30. */
static const struct store_memory sample_events[] = {
    {.seq = 0, .tensor_id = 0, .bytes = 100, .live_bytes = 100, .step = -1, .role = ROLE_PARAMETER},
    {.seq = 1, .tensor_id = 1, .bytes = 50, .live_bytes = 150, .step = -1, .role = ROLE_GRADIENT},
    {.seq = 2, .tensor_id = 2, .bytes = 200, .live_bytes = 350, .step = 0, .role = ROLE_ACTIVATION},
    {.seq = 3, .tensor_id = -1, .bytes = 30, .live_bytes = 380, .step = 0, .role = ROLE_WORKSPACE},
    {.seq = 4, .tensor_id = -1, .bytes = -30, .live_bytes = 350, .step = 0, .role = ROLE_WORKSPACE},
    {.seq = 5, .tensor_id = 3, .bytes = 30, .live_bytes = 380, .step = 0, .role = ROLE_COMMUNICATION},
    {.seq = 6, .tensor_id = 3, .bytes = -30, .live_bytes = 350, .step = 0, .role = ROLE_COMMUNICATION},
    {.seq = 7, .tensor_id = 2, .bytes = -200, .live_bytes = 150, .step = 0, .role = ROLE_ACTIVATION},
    {.seq = 8, .tensor_id = 4, .bytes = 64, .live_bytes = 214, .step = 1, .role = ROLE_ACTIVATION},
};
enum { SAMPLE_EVENTS = sizeof sample_events / sizeof *sample_events };

static const int64_t sample_at_peak[ROLE_COUNT] = {
    [ROLE_PARAMETER] = 100, [ROLE_GRADIENT] = 50, [ROLE_ACTIVATION] = 200, [ROLE_WORKSPACE] = 30};

static const struct store_tensor sample_tensors[] = {
    {0, "token embedding", "5x5", "F32", ROLE_PARAMETER, -1, -1, 100},
    {1, "layer 0 gradient", "50", "BF16", ROLE_GRADIENT, 0, -1, 50},
    {2, "layer 0 qkv", "2x25", "F32", ROLE_ACTIVATION, 0, 0, 200},
    {3, "bucket 0", "30", "BF16", ROLE_COMMUNICATION, -1, -1, 30},
    {4, "layer 1 qkv", "16", "F32", ROLE_ACTIVATION, 1, 0, 64},
};
enum { SAMPLE_TENSORS = sizeof sample_tensors / sizeof *sample_tensors };

/* A new run.db in a new folder, with a run and a batch that is open for its rows. */
struct store *sample_begin(char folder[64], struct store_run *run);
void sample_write(struct store *store, struct store_run *run);
/* A file with one finished run of the sample. */
void sample_file(const char *path);
void sample_assert_readable(const char *path);
/* Of rank 0, whose events must be numbered without a gap. */
int64_t sample_count_events(struct store *store, int64_t run_id);

static inline double thread_seconds(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

#endif
