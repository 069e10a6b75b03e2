/* How much memory a rank has, and what to do when a step needs more. */
#ifndef MEMPLAN_CLI_CAPACITY_H
#define MEMPLAN_CLI_CAPACITY_H

#include "cli/world.h"
#include "model/plan.h"
#include "planner/cluster.h"
#include "planner/machine_speed.h"

#include <stdbool.h>

/* As cluster_read_device(), and "cuda": the GPUs of this machine, of which `ranks` take one each. Where they differ, the one
 * with the least memory counts, and a note says so. */
int capacity_read_device(const char *spec, int64_t ranks, struct rank_device *out, struct error *err);

/* Nodes for so many ranks of it, joined as they usually are (cluster_usual_net()), which is noted as assumed; `per_node` 0: nobody said how they are placed, so
 * cards are eight to a node, as in DGX and HGX machines, and CPU ranks all on one machine. */
struct node_group capacity_assume_nodes(const struct rank_device *device, int64_t ranks, int64_t per_node);

/* Sets the plan's device and capacity for a run in this world: `memory` bytes when given (> 0), else what the plan says, else the
 * rank's share of the machine. A GPU has what its driver has left, whatever the plan says; of ranks that are processes
 * world_find_gpus() knows. With `automatic`, also chooses the cheapest recomputation that fits. */
int capacity_decide(struct plan *plan, const char *device, const struct world *world, int64_t memory,
                    bool automatic, struct error *err);

/* Chooses the cheapest recomputation with which every rank of the plan fits, layer by layer: devices[i] is stage i's, `speed` the
 * pipeline's. */
int capacity_choose_recompute(struct plan *plan, const struct rank_device *const *devices,
                              const struct machine_speed *speed, struct error *err);

/* Adds to the refusal of a run the nearest changes with which it would fit. `kernel_bytes` as in struct rank_device. */
void capacity_advise(const struct plan *plan, const struct pipeline *pipeline, int64_t kernel_bytes, struct error *err);

#endif
