/* What a recording says of a run so far. Each look opens the file, reads the rows that came since the last, and closes it:
 * a reader that stayed would keep the writer from putting the file back into its plain form at the end.
 *
 * Ranks that are processes write files of their own until the run ends (cli/recording.h); those that lie beside the database
 * are read too. */
#ifndef MEMPLAN_CLI_WATCH_STATE_H
#define MEMPLAN_CLI_WATCH_STATE_H

#include "base/arena.h"
#include "profiler/store.h"

#include <stdbool.h>
#include <stdint.h>

enum { WATCH_LOSSES = 512, WATCH_TIMES = 20 };

struct watch_rank {
    int64_t next_seq, next_step; /* what comes next: events and steps below these were seen */
    int64_t live[ROLE_COUNT];    /* by the events seen */
    int64_t peak_bytes,
        at_peak[ROLE_COUNT]; /* the highest moment so far; of the ledger once the rank is done */
    int64_t predicted_bytes, predicted[ROLE_COUNT]; /* 0: not predicted */
    bool is_done;
    double seconds; /* of its last step */
    uint64_t stamp; /* of its own file, when it was last read */
};

struct watch_state {
    const char *path;
    int64_t run_id;      /* 0: the latest, when looked at first */
    struct arena *arena; /* of the texts of `run` */
    struct store_run run;
    struct watch_rank *ranks;    /* run.ranks of them */
    double loss, step_tokens;    /* of the last step; NAN: not known */
    double losses[WATCH_LOSSES]; /* of all steps since a resume, thinned out evenly */
    int64_t loss_count, loss_stride, loss_skip;
    double times[WATCH_TIMES]; /* seconds of the last steps, a ring */
    int64_t time_count;
    double predicted_step_s;  /* NAN: not predicted */
    int64_t news_ns, look_ns; /* when there was something new, and when the file was read; by clock_ns() */
    uint64_t stamp;
};

/* The path is borrowed. */
void watch_open(struct watch_state *watch, const char *path, int64_t run_id);
void watch_clear(struct watch_state *watch);

/* *news: something is different from the last look. */
int watch_look(struct watch_state *watch, bool *news, struct error *err);

bool watch_is_over(const struct watch_state *watch);
bool watch_ended_early(const struct watch_state *watch);
/* Rank 0's, those before a resume included. */
int64_t watch_steps_done(const struct watch_state *watch);
/* The rank whose peak is highest so far. */
int watch_worst_rank(const struct watch_state *watch);
/* The median of the last steps, or what was foretold; NAN: neither. */
double watch_step_seconds(const struct watch_state *watch);
/* At that speed; NAN: not known. */
double watch_tokens_per_s(const struct watch_state *watch);
/* NAN: not known; 0: over. */
double watch_seconds_left(const struct watch_state *watch);
/* Since the run began, to now or to its end. */
double watch_seconds_since_start(const struct watch_state *watch);

#endif
