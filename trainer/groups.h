/* The groups of ranks that one rank exchanges with. A group in which the rank would be alone is NULL: nothing is exchanged.
 * They work side by side, so gradients travel while tensor-parallel ranks wait for each other. */
#ifndef MEMPLAN_TRAINER_GROUPS_H
#define MEMPLAN_TRAINER_GROUPS_H

#include "comm/comm.h"
#include "device/device.h"
#include "model/program.h"

struct groups {
    struct comm *data;      /* replicas of the same stage and part: gradients and, with ZeRO, weights; by replica */
    struct comm *tensor;    /* parts of the same stage and replica; by part */
    struct comm *loss;      /* replicas and stages of the same part: all parts know the same loss, which counts once */
    struct comm *norm;      /* ranks that add up squares of different gradients */
    struct comm *pipeline;  /* stages of the same replica and part; by stage */
    struct comm *embedding; /* of those the two that hold a tied embedding; NULL on the others */
};

/* Every rank of `world`, which are those of the layout, calls this on the thread of `device`, in whose memory lies what the
 * groups exchange. `world` ends all groups when it is aborted, and must outlive their making only; `device` outlives them. On
 * failure nothing is left open. */
int groups_open(struct comm *world, struct device *device, const struct program *program, struct groups *out,
                struct error *err);
void groups_close(struct groups *groups); /* those of {0} are fine */

#endif
