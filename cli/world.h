/* A run that mpirun or srun has started as several processes: each is one rank. Rank 0 alone decides and prints; of a
 * failure the rank that failed first tells, and no other. */
#ifndef MEMPLAN_CLI_WORLD_H
#define MEMPLAN_CLI_WORLD_H

#include "comm/comm.h"
#include "device/cuda_library.h"
#include "model/plan.h"

struct world {
    struct comm *comm; /* NULL: this process is on its own, and the ranks are its threads */
    int rank;          /* 0 then */
    int ranks_here;    /* processes of the run on this machine; 0 then */
    int rank_here;     /* of how many of those the rank is less */
    /* After world_find_gpus(): */
    int gpu; /* the number that this process has for its GPU */
    struct cuda_machine gpus; /* of all ranks together */
};

/* A process that was started alone, by whatever, has no comm. In any case followed by world_close(). */
int world_open(struct world *out, struct error *err);

/* For arguments that every rank refuses in the same words: one of them tells. Returns -1. */
int world_refuse(struct error *err);

/* Rank 0: is this plan for as many ranks as there are processes? */
int world_check(const struct world *world, const struct layout *layout, struct error *err);

/* What rank 0 has there, `bytes` of it, a multiple of four, to all. */
int world_share(const struct world *world, void *data, int64_t bytes, struct error *err);
/* Every rank continues with the plan of rank 0, where `plan` is complete; elsewhere it is filled: plan_clear(). */
int world_share_plan(const struct world *world, struct plan *plan, struct error *err);

/* The other ranks end too, with the reason in err. */
void world_stop(const struct world *world, const struct error *err);

/* Ends the world. With a `status` of -1 it ends the other ranks too; where another rank's message is the one to show, err
 * becomes one of the kind ERROR_STOPPED. Returns `status`. */
int world_close(struct world *world, int status, struct error *err);

#endif
