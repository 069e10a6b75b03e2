/* Where the ranks of a plan stand, for commands that foretell what it does: the nodes that the plan file says, or devices that are
 * all alike. */
#ifndef MEMPLAN_CLI_STANDING_H
#define MEMPLAN_CLI_STANDING_H

#include "cli/speed.h"
#include "model/plan.h"
#include "planner/siting.h"

struct standing {
    struct cluster cluster;
    struct siting siting;
    struct device_speed speed;
    struct siting_speeds *sites;
    const struct machine_speed *pace;   /* of the pipeline; `sites` own it */
    const struct rank_device **devices; /* of each stage; owned */
};

/* What somebody says about it; all of it may be left out. */
struct standing_choice {
    const char *device;      /* NULL, or as in the plan: those of the plan, and its nodes */
    int64_t memory;          /* above 0: what every rank has */
    const char *net;         /* of each node: "400Gb/s" */
    const char *calibration; /* calibration.json or a run.db */
};

/* A plan may be for GPUs of a machine that is not this one, or a card that nobody here knows. */
bool standing_is_known(const struct plan *plan);

/* *out must not move; standing_close(), even where it failed. */
int standing_open(const struct plan *plan, const struct standing_choice *choice, struct standing *out, struct error *err);
void standing_close(struct standing *standing);

/* Names of each stage's devices where they differ, else NULL; owned by the arena. */
const char *const *standing_names(const struct standing *standing, const struct layout *layout,
                                  struct arena *arena);

#endif
