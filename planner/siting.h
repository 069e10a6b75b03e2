/* The siting of a layout: where its ranks stand on a cluster, so many on each group of nodes, in the order of ranks. Nodes are filled
 * one after another, and so are groups; in which order is the plan's to choose, for the first stages of a pipeline keep most
 * activations and the last has the head.
 *
 * The ranks of a stage are all of one group wherever that many stages have room so; then ranks of a group may stay idle. Where
 * they have not, all ranks follow each other without a gap, and a stage may have ranks of several groups. Tensor-parallel ranks
 * never have. */
#ifndef MEMPLAN_PLANNER_SITING_H
#define MEMPLAN_PLANNER_SITING_H

#include "base/text.h"
#include "model/layout.h"
#include "model/plan.h"
#include "planner/cluster.h"
#include "planner/machine_speed.h"

#include <stdbool.h>
#include <stdint.h>

struct siting {
    int count;
    struct {
        int group; /* of the cluster */
        int ranks;
    } parts[CLUSTER_GROUPS];
};

/* Of a cluster whose nodes are alike. */
struct siting siting_of_one(const struct layout *layout);

/* Calls `visit` for every way to place the layout's ranks, until it returns false. */
void siting_visit(const struct cluster *cluster, const struct layout *layout,
                     bool (*visit)(void *context, const struct siting *siting), void *context);

/* Has every node that the run uses equally many of its ranks? torchrun starts no others. */
bool siting_is_even(const struct cluster *cluster, const struct siting *siting);

/* The groups, as bits, that have ranks from `first` up to `end`. */
uint32_t siting_groups(const struct siting *siting, int64_t first, int64_t end);

/* Where the ranks of a stage are. */
struct stage_site {
    uint32_t groups, all; /* of the stage, and of the whole run */
    bool together;        /* all ranks that the run has in the stage's group are on one of its nodes */
};

/* Stages one after another on the same site. */
struct site_run {
    int64_t stages;
    struct stage_site site;
};

/* A group's stages, and between two groups a stage of both. */
enum { SITE_RUNS = 2 * CLUSTER_GROUPS };

/* Fills runs[SITE_RUNS], from stage 0 on; returns how many there are. */
int siting_runs(const struct cluster *cluster, const struct layout *layout,
                   const struct siting *siting, struct site_run *runs);

/* Of these groups, the one whose devices leave tensors least room, with `ranks` ranks in all. */
int siting_scarcest(const struct cluster *cluster, uint32_t groups, int64_t ranks);
/* What they leave them. */
int64_t siting_room(const struct cluster *cluster, uint32_t groups, int64_t ranks);
/* The scarcest device of each stage: fills devices[pp], which point into the cluster. */
void siting_devices(const struct cluster *cluster, const struct layout *layout,
                       const struct siting *siting, const struct rank_device **devices);

/* "h100-80g+a100-80g": the devices of these groups. */
void siting_print(const struct cluster *cluster, uint32_t groups, struct text *out);

/* Into a plan file, and out of it: *out has the nodes that the plan uses, in the order of ranks. */
void siting_to_plan(const struct cluster *cluster, const struct siting *siting, struct plan *plan);
int siting_from_plan(const struct plan *plan, struct cluster *cluster, struct siting *out,
                        struct error *err);

/* The speeds of sites: of several groups, the slowest's. */
struct siting_speeds;

/* `speeds`: of each group of the cluster. Both borrowed. */
struct siting_speeds *siting_speeds_open(const struct cluster *cluster, const struct machine_speed *speeds);
void siting_speeds_close(struct siting_speeds *speeds); /* NULL is fine */
/* They own what comes back, and give the same for the same site. */
const struct machine_speed *siting_speeds_find(struct siting_speeds *speeds, const struct stage_site *site);
/* Of a whole pipeline: with a speed for each stage where they differ. */
const struct machine_speed *siting_speeds_of_layout(struct siting_speeds *speeds, const struct layout *layout,
                                                  const struct siting *siting);

#endif
