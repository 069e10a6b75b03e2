/* The GPUs of a run whose ranks are processes: each has one, and a context on no other. */
#ifndef MEMPLAN_CLI_WORLD_GPUS_H
#define MEMPLAN_CLI_WORLD_GPUS_H

#include "cli/world.h"

/* Finds this process's GPU and measures it, and hears what the others have found. Every rank calls it, with a comm. A launcher may
 * show a process all GPUs of its machine, of which it takes the one of its place among the processes there, or the one that it is
 * to have. Refuses two ranks on one GPU, which NCCL does not connect. */
int world_find_gpus(struct world *world, struct error *err);

#endif
