/* Megatron-LM and its kin (Megatron-DeepSpeed, in-house forks): which tensors a layer keeps for backward, in which precision
 * and split how, one rule a line with its source; and what its kernels do, priced at the rates of machine_speed.h. Answers for
 * jobs that are not ours what the step program answers for ours, so it is never exact: errors are what `make score` says. */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_MEGATRON_H
#define MEMPLAN_PLANNER_FRAMEWORKS_MEGATRON_H

#include "planner/cluster.h"
#include "planner/frameworks/job.h"
#include "planner/machine_speed.h"

/* Constants of the framework that no data sheet has. */
struct megatron_habits {
    double host_s;         /* of the processor, to launch one operation */
    double unhidden;       /* of the shorter of launching and computing, the share that the longer does not hide */
    double message_wait_s; /* of each pass of a stage, to hand its result on: sends and receives end in a synchronisation */
    double straggle_s;     /* that tensor-parallel ranks wait for each other in a collective, per doubling of ranks */
    double flash1_share;   /* of the attention rate, that the first FlashAttention reaches */
    double logit_bytes;    /* alive for each logit at the loss: copies in both precisions, softmax, gradient */
    double gather_bytes;   /* more of them where tensor-parallel ranks gather the logits first */
    double doubt_share;    /* give or take so much of all but states */
    double allocator_share; /* of all but states: rounding and fragments of the caching allocator */
    double buffer_bytes;   /* buckets for gradients and gathered weights, collectives' workspaces */
};
extern const struct megatron_habits megatron_habits;

/* Bytes of one rank. */
struct megatron_memory {
    double weights, gradients, optimizer;
    double activations; /* of all micro-batches that are kept, with the ends of the model */
    double working;     /* alive while one layer, or the loss, runs backward */
    double runtime;     /* context, libraries, buffers, the allocator's slack */
    double allocated; /* by tensors: all but `runtime` */
    double total;
    double doubt; /* give or take */
};

struct megatron_memory megatron_stage_memory(const struct job *job, const struct megatron_habits *habits,
                                             const struct rank_device *device, int64_t stage);
/* The stage that needs most; *stage (NULL: not wanted) is which. */
struct megatron_memory megatron_memory(const struct job *job, const struct megatron_habits *habits,
                                       const struct rank_device *device, int64_t *stage);

/* Bytes that one layer keeps of one micro-batch. */
double megatron_layer_bytes(const struct job *job);

/* Seconds of a step. Fails as schedules do. */
int megatron_step_seconds(const struct job *job, const struct megatron_habits *habits,
                          const struct machine_speed *speed, double *seconds, struct error *err);

#endif
