/* A run that mpirun or srun has started as several processes: each is one rank. Rank 0 alone decides and prints; of a
 * failure the rank that failed first tells, and no other. */
#ifndef MEMPLAN_CLI_LAUNCH_H
#define MEMPLAN_CLI_LAUNCH_H

#include "comm/comm.h"
#include "model/plan.h"

struct launch {
    struct comm *world; /* NULL: this process is on its own, and the ranks are its threads */
    int rank;           /* 0 without a world */
    int ranks_here;     /* of the world, on this machine */
};

/* A launch of one process is none. In any case followed by launch_end(). */
int launch_begin(struct launch *out, struct error *err);

/* For arguments that every rank refuses in the same words: one of them tells. Returns -1. */
int launch_refuse(struct error *err);

/* Rank 0: is this plan for as many ranks as there are processes? */
int launch_check(const struct launch *launch, const struct layout *layout, struct error *err);

/* What rank 0 has there, `bytes` of it, a multiple of four, to all. */
int launch_share(const struct launch *launch, void *data, int64_t bytes, struct error *err);
/* Every rank continues with the plan of rank 0, where `plan` is complete; elsewhere it is filled: plan_clear(). */
int launch_share_plan(const struct launch *launch, struct plan *plan, struct error *err);

/* The other ranks end too, with the reason in err. */
void launch_stop(const struct launch *launch, const struct error *err);

/* Ends the launch. With a `status` of -1 it ends the other ranks too; where another rank's message is the one to show, err
 * becomes one of the kind ERROR_STOPPED. Returns `status`. */
int launch_end(struct launch *launch, int status, struct error *err);

#endif
