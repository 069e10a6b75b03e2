/* Tensors of a training step, taken and given back one by one on the caching allocator's replica, with a role each: so the
 * peak, its moment and who holds it come out of one replay. */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_REPLAY_H
#define MEMPLAN_PLANNER_FRAMEWORKS_REPLAY_H

#include "base/role.h"
#include "planner/frameworks/caching_allocator.h"

/* When the peak is. */
enum replay_moment {
    REPLAY_START,
    REPLAY_FIRST_FORWARD,
    REPLAY_FIRST_BACKWARD,
    REPLAY_FIRST_UPDATE,
    REPLAY_FORWARD, /* of later steps */
    REPLAY_BACKWARD,
    REPLAY_UPDATE,
    REPLAY_MOMENTS,
};
const char *replay_moment_name(enum replay_moment moment); /* "first forward", "later backward" */

/* Streams of the allocator. */
enum { REPLAY_COMPUTE, REPLAY_GATHER, REPLAY_REDUCE };

struct replay_peak {
    int64_t bytes;
    int64_t by_role[ROLE_COUNT]; /* add up to `bytes` */
    int64_t take; /* which tensor made it: so many were taken before */
    enum replay_moment moment;
};

#define REPLAY_LABELS 576

/* Tensors that are alive at one moment, by label. */
struct replay_census {
    int64_t count[REPLAY_LABELS], bytes[REPLAY_LABELS];
};

struct replay;

struct replay *replay_create(const struct caching_allocator_options *options);
void replay_free(struct replay *replay); /* NULL is fine */

/* Fills *census, which must live as long as the replay, when tensor `take` has been taken. */
void replay_count_at(struct replay *replay, int64_t take, struct replay_census *census);
/* What is taken from now on belongs to that moment. */
void replay_enter(struct replay *replay, enum replay_moment moment);
/* Takes a tensor on `stream`, whose it is by `label`, below REPLAY_LABELS. Returns a number for replay_release(); -1, which that
 * ignores, for less than a byte, when memory is out, and when all is too large. */
int replay_take(struct replay *replay, double bytes, enum role role, int label, int stream);
/* Whether tensors that live together were to be more than REPLAY_MOST_BYTES, a thousand times what any job has: what else is said
 * of the replay is of less, then. */
#define REPLAY_MOST_BYTES 1e15
bool replay_is_too_large(const struct replay *replay);
void replay_release(struct replay *replay, int tensor);
/* As replay_release(), and *tensor becomes -1. */
void replay_drop(struct replay *replay, int *tensor);

struct replay_peak replay_peak(const struct replay *replay);
struct caching_allocator_figures replay_figures(const struct replay *replay);

#endif
