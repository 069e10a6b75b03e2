/* What a job of any framework needs of a card: its steps, tensor by tensor (layer_rules.h, and who gathers, reduces and
 * updates what), replayed on PyTorch's allocator. Three numbers that people compare: allocated, reserved, and what nvidia-smi
 * shows; and when the peak is. */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_WORKLOAD_MEMORY_H
#define MEMPLAN_PLANNER_FRAMEWORKS_WORKLOAD_MEMORY_H

#include "planner/frameworks/replay.h"
#include "planner/frameworks/workload.h"

/* Of one pipeline stage. Bytes. */
struct workload_memory {
    int64_t stage;
    struct replay_peak peak; /* allocated: torch.cuda.max_memory_allocated() */
    int64_t reserved_bytes;  /* torch.cuda.max_memory_reserved() */
    int64_t device_bytes;    /* nvidia-smi: reserved, context, NCCL */
    int64_t context_bytes, nccl_bytes;
    int64_t first_allocated_bytes, first_reserved_bytes; /* after the first step */
    int64_t states_bytes; /* allocated between steps, once all states are there */
    int64_t forward_allocated_bytes, forward_reserved_bytes; /* peaks until a later forward pass ends */
    bool out_of_memory; /* the replay within capacity_bytes, caches given back, found no room */
    int64_t retries;    /* how often caches had to be given back */
    int64_t doubt_bytes; /* kept free before a job is said to fit: what no rule accounts for */
};

/* Of the stage that needs most. Fails as workload_check() and schedules do, and on tensors of more than 1e15 bytes. */
int workload_memory(const struct workload *workload, struct workload_memory *out, struct error *err);
int workload_stage_memory(const struct workload *workload, int64_t stage, struct workload_memory *out,
                          struct error *err);

#endif
