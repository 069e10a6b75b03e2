/* How long a step of a job of any framework takes: the operations of its layers (layer_time.h) priced at a machine's rates, its
 * schedule replayed by timeline.h, what ranks gather and reduce with what of it is hidden, the optimizer. What others' kernels do
 * is known by rules and never exact; docs/time-model.md, section 10, says how far off it was. */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_WORKLOAD_TIME_H
#define MEMPLAN_PLANNER_FRAMEWORKS_WORKLOAD_TIME_H

#include "planner/frameworks/workload.h"
#include "planner/machine_speed.h"

/* What no data sheet has, of PyTorch programs: fitted to steps of Megatron-LM (docs/time-model.md, section 10). */
struct workload_habits {
    double host_s;         /* of the processor, to launch one operation */
    double unhidden;       /* of the shorter of launching and computing, the share that the longer does not hide */
    double message_wait_s; /* of each pass of a stage, to hand its result on: sends and receives end in a synchronisation */
    double straggle_s;     /* that tensor-parallel ranks wait for each other in a collective, per doubling of ranks */
    double flash1_share;   /* of the attention rate, that the first FlashAttention reaches */
};
extern const struct workload_habits workload_habits;

struct workload_time {
    double seconds; /* of a step: the four below, of the stage that is done last */
    double passes_s;   /* forward, backward and recomputation, with what ranks exchange or gather in them */
    double bubble_s;   /* that it waits for other stages and for messages */
    double reduced_s;  /* gradients summed and weights gathered, where nothing hides it */
    double optimizer_s;
};

/* `speed` is that of the precision in which the job computes; NULL habits: workload_habits. Fails as workload_check() and
 * schedules do, and by name on what no rule prices: V-shaped schedules. */
int workload_time(const struct workload *workload, const struct workload_habits *habits,
                  const struct machine_speed *speed, struct workload_time *out, struct error *err);

/* The attention that runs: Megatron-LM's fused softmax falls back to PyTorch's for shapes that its kernel does not take. */
enum workload_attention workload_attention_run(const struct workload *workload);

#endif
