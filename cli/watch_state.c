#include "cli/watch_state.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/sort.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void watch_open(struct watch_state *watch, const char *path, int64_t run_id)
{
    *watch = (struct watch_state){.path = path,
                                  .run_id = run_id,
                                  .loss = NAN,
                                  .step_tokens = NAN,
                                  .predicted_step_s = NAN,
                                  .loss_stride = 1};
}

void watch_clear(struct watch_state *watch)
{
    arena_free(watch->arena);
    free(watch->ranks);
}

/* ------------------------------------------------------------------------------------------------------------ memory */

static void see_memory(void *context, const struct store_memory *event)
{
    struct watch_rank *rank = context;
    rank->live[event->role] += event->bytes;
    rank->next_seq = event->seq + 1;
    if (event->live_bytes > rank->peak_bytes) {
        rank->peak_bytes = event->live_bytes;
        memcpy(rank->at_peak, rank->live, sizeof rank->at_peak);
    }
}

/* ------------------------------------------------------------------------------------------------------------- steps */

/* When the room is used up, every other one goes, and from then on half as many come. */
static void add_loss(struct watch_state *watch, double loss)
{
    watch->loss = loss;
    if (watch->loss_skip-- > 0)
        return;
    if (watch->loss_count == WATCH_LOSSES) {
        for (int i = 0; i < WATCH_LOSSES / 2; i++)
            watch->losses[i] = watch->losses[2 * i];
        watch->loss_count /= 2;
        watch->loss_stride *= 2;
    }
    watch->losses[watch->loss_count++] = loss;
    watch->loss_skip = watch->loss_stride - 1;
}

/* Loss and speed are of the whole step, and rank 0 tells them. */
static void see_step(struct watch_state *watch, const struct store_step *step)
{
    struct watch_rank *rank = &watch->ranks[step->rank];
    rank->next_step = step->step + 1;
    rank->seconds = step->seconds;
    if (step->rank != 0)
        return;
    watch->times[watch->time_count++ % WATCH_TIMES] = step->seconds;
    watch->step_tokens = step->tokens_per_s * step->seconds;
    if (!isnan(step->loss))
        add_loss(watch, step->loss);
}

/* A rank writes its steps in order, but not all ranks write at the same time. */
static int read_steps(struct watch_state *watch, struct store *store, int first_rank, int end_rank,
                      struct error *err)
{
    struct arena *arena = arena_create();
    struct store_step *rows;
    int64_t count = 0, first = INT64_MAX;
    for (int rank = first_rank; rank < end_rank; rank++)
        if (watch->ranks[rank].next_step < first)
            first = watch->ranks[rank].next_step;
    int status = store_read_steps_from(store, watch->run_id, first, arena, &rows, &count, err);
    for (int64_t i = 0; !status && i < count; i++)
        if (rows[i].rank >= first_rank && rows[i].rank < end_rank &&
            rows[i].step >= watch->ranks[rows[i].rank].next_step)
            see_step(watch, &rows[i]);
    arena_free(arena);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------- looks */

static int read_usage(struct watch_state *watch, struct store *store, struct error *err)
{
    struct arena *arena = arena_create();
    struct store_rank *rows;
    int64_t count = 0;
    int status = store_read_ranks(store, watch->run_id, arena, &rows, &count, err);
    for (int64_t i = 0; !status && i < count; i++) {
        if (!rows[i].measured || rows[i].rank < 0 || rows[i].rank >= watch->run.ranks)
            continue;
        struct watch_rank *rank = &watch->ranks[rows[i].rank];
        rank->is_done = true;
        rank->peak_bytes = rows[i].peak_bytes;
        memcpy(rank->at_peak, rows[i].at_peak, sizeof rank->at_peak);
    }
    arena_free(arena);
    return status;
}

static int read_predictions(struct watch_state *watch, struct store *store, struct error *err)
{
    struct arena *arena = arena_create();
    struct store_prediction *rows;
    int64_t count = 0;
    int status = store_read_predictions(store, watch->run_id, arena, &rows, &count, err);
    for (int64_t i = 0; !status && i < count; i++) {
        if (rows[i].rank < 0 || rows[i].rank >= watch->run.ranks)
            continue;
        struct watch_rank *rank = &watch->ranks[rows[i].rank];
        rank->predicted_bytes = rows[i].peak_bytes;
        memcpy(rank->predicted, rows[i].at_peak, sizeof rank->predicted);
        watch->predicted_step_s = rows[i].step_seconds;
    }
    arena_free(arena);
    return status;
}

/* The rows that came since the last look, of some of the ranks. */
static int read_rows(struct watch_state *watch, struct store *store, int first_rank, int end_rank,
                     struct error *err)
{
    for (int rank = first_rank; rank < end_rank; rank++)
        if (store_each_memory_from(store, watch->run_id, rank, watch->ranks[rank].next_seq, see_memory,
                                   &watch->ranks[rank], err))
            return -1;
    if (read_steps(watch, store, first_rank, end_rank, err) || read_usage(watch, store, err))
        return -1;
    return 0;
}

static int read_run(struct watch_state *watch, struct store *store, struct error *err)
{
    struct arena *arena = arena_create();
    if (!watch->run_id && store_latest_run(store, &watch->run_id, err))
        goto failed;
    if (store_read_run(store, watch->run_id, arena, &watch->run, err))
        goto failed;
    arena_free(watch->arena);
    watch->arena = arena;
    if (watch->run.ranks < 1)
        return error_set(err, "%s: run %lld has no ranks; record the run again", watch->path,
                         (long long)watch->run_id);
    if (!watch->ranks)
        watch->ranks = host_alloc((size_t)watch->run.ranks * sizeof *watch->ranks);
    return 0;
failed:
    arena_free(arena);
    return -1;
}

/* Changes with the file, and with what SQLite keeps beside it while it is written; 0: there is none. */
static uint64_t stamp_of(const char *path)
{
    char wal[PATH_MAX];
    const char *paths[] = {path, wal};
    uint64_t stamp = 0;
    snprintf(wal, sizeof wal, "%s-wal", path);
    for (int i = 0; i < 2; i++) {
        struct stat file;
        if (stat(paths[i], &file))
            continue;
        uint64_t parts[] = {(uint64_t)file.st_mtim.tv_sec, (uint64_t)file.st_mtim.tv_nsec,
                            (uint64_t)file.st_size, (uint64_t)file.st_ino};
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            stamp = (stamp ^ parts[k]) * 0x100000001b3 + 1; /* FNV's prime */
    }
    return stamp;
}

/* A part may be renamed or taken in while it is looked at: the next look finds its rows where they are then. */
static void read_part(struct watch_state *watch, int rank, bool *news)
{
    static const char *const endings[] = {".part", ""};
    char path[PATH_MAX];
    uint64_t stamp = 0;
    struct store *store;
    for (int i = 0; i < 2 && !stamp; i++) {
        snprintf(path, sizeof path, "%s.rank-%d%s", watch->path, rank, endings[i]);
        stamp = stamp_of(path);
    }
    if (!stamp || stamp == watch->ranks[rank].stamp || store_open_read(path, &store, NULL))
        return;
    if (!store_freeze(store, NULL) && !read_rows(watch, store, rank, rank + 1, NULL))
        watch->ranks[rank].stamp = stamp;
    store_close(store);
    *news = true;
}

static int read_file(struct watch_state *watch, struct error *err)
{
    struct store *store;
    if (store_open_read(watch->path, &store, err))
        return -1;
    int status = store_freeze(store, err) || read_run(watch, store, err) ||
                         (!watch->ranks[0].predicted_bytes && read_predictions(watch, store, err)) ||
                         read_rows(watch, store, 0, watch->run.ranks, err)
                     ? -1
                     : 0;
    store_close(store);
    return status;
}

/* Since the file was written last, as the machine's clock has it: a run may have died long before anybody looked. */
static int64_t age_ns(const char *path)
{
    char wal[PATH_MAX];
    const char *paths[] = {path, wal};
    int64_t youngest = INT64_MAX;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(wal, sizeof wal, "%s-wal", path);
    for (int i = 0; i < 2; i++) {
        struct stat file;
        if (stat(paths[i], &file))
            continue;
        int64_t age =
            (int64_t)(now.tv_sec - file.st_mtim.tv_sec) * 1000000000 + now.tv_nsec - file.st_mtim.tv_nsec;
        youngest = min_i64(youngest, age);
    }
    return youngest == INT64_MAX ? 0 : max_i64(youngest, 0);
}

/* Clocks of files tick slowly: a change may hide behind one that was seen, so that now and then a look is worth it anyway. */
int watch_look(struct watch_state *watch, bool *news, struct error *err)
{
    static const int64_t anyway_ns = 3000000000;
    bool is_first = !watch->look_ns;
    int64_t now_ns = clock_ns();
    uint64_t stamp = stamp_of(watch->path);
    *news = stamp != watch->stamp;
    if (*news || now_ns - watch->look_ns > anyway_ns) {
        if (read_file(watch, err))
            return -1;
        watch->stamp = stamp;
        watch->look_ns = now_ns;
    }
    for (int rank = 1; !watch->run.finished_at && rank < watch->run.ranks; rank++)
        read_part(watch, rank, news);
    if (*news)
        watch->news_ns = now_ns - (is_first ? age_ns(watch->path) : 0);
    return 0;
}

/* ----------------------------------------------------------------------------------------------------------- figures */

bool watch_is_over(const struct watch_state *watch)
{
    return watch->run.finished_at;
}

bool watch_ended_early(const struct watch_state *watch)
{
    return watch_is_over(watch) && watch_steps_done(watch) < watch->run.steps;
}

int64_t watch_steps_done(const struct watch_state *watch)
{
    return watch->ranks[0].next_step;
}

int watch_worst_rank(const struct watch_state *watch)
{
    int worst = 0;
    for (int rank = 1; rank < watch->run.ranks; rank++)
        if (watch->ranks[rank].peak_bytes > watch->ranks[worst].peak_bytes)
            worst = rank;
    return worst;
}

double watch_step_seconds(const struct watch_state *watch)
{
    int64_t count = watch->time_count < WATCH_TIMES ? watch->time_count : WATCH_TIMES;
    double times[WATCH_TIMES];
    if (count == 0)
        return watch->predicted_step_s;
    memcpy(times, watch->times, (size_t)count * sizeof *times);
    return sort_median(times, (size_t)count);
}

double watch_tokens_per_s(const struct watch_state *watch)
{
    return watch->time_count ? watch->step_tokens / watch_step_seconds(watch) : NAN;
}

double watch_seconds_left(const struct watch_state *watch)
{
    int64_t steps_left = watch->run.steps - watch_steps_done(watch);
    if (watch_is_over(watch))
        return 0;
    return watch->run.steps ? watch_step_seconds(watch) * (double)steps_left : NAN;
}

/* "2026-01-02T03:04:05Z" */
static time_t time_of(const char *text)
{
    struct tm utc = {0};
    return text && strptime(text, "%Y-%m-%dT%H:%M:%SZ", &utc) ? timegm(&utc) : (time_t)-1;
}

double watch_seconds_since_start(const struct watch_state *watch)
{
    time_t start = time_of(watch->run.started_at);
    time_t end = watch_is_over(watch) ? time_of(watch->run.finished_at) : time(NULL);
    return start < 0 || end < start ? NAN : difftime(end, start);
}
