/* One configuration on one kind of device: does it fit, who holds the bytes, how long is a step. The ranks of a pipeline's
 * stages hold different bytes: the stage that needs most decides.
 *
 * What tensors need is exact, and is what `train` takes. On a card a process also has a context and library workspaces that
 * no tensor owns: the `runtime` term, a constant with an error bar. On the CPU it is 0: the process's own memory (code,
 * stacks, libraries) is not counted against a capacity there. */
#ifndef MEMPLAN_PLANNER_PREDICTION_H
#define MEMPLAN_PLANNER_PREDICTION_H

#include "base/text.h"
#include "model/program.h"
#include "planner/cluster.h"
#include "planner/time_model.h"

#include <stdbool.h>
#include <stdint.h>

/* Bytes of a rank that no tensor owns: `bytes`, give or take `error_bytes`; `ranks` are all that take part. */
struct runtime_term {
    int64_t bytes, error_bytes;
    int64_t context_bytes, workspace_bytes, nccl_bytes; /* the parts of `bytes` */
};

struct runtime_term prediction_runtime(const struct rank_device *device, int64_t ranks);

struct prediction {
    int64_t stage; /* of the pipeline, whose bytes these are */
    bool fits;     /* arena and runtime within the capacity */
    bool in_doubt; /* within the runtime's error bar of the capacity, either way */
    int64_t capacity_bytes;
    int64_t peak_bytes;           /* live bytes of tensors at the peak */
    int64_t by_role[ROLE_COUNT];  /* at that moment; ROLE_RUNTIME besides, not in peak_bytes */
    int64_t arena_bytes;          /* what `train` takes at launch */
    int64_t needed_bytes;         /* arena and runtime: what is compared with the capacity */
    struct runtime_term runtime;
    struct step_time time;        /* zeros without a speed */
};

/* Of the ranks that run one program; `time` is theirs alone. `speed` may be NULL. */
void prediction_make(const struct program *program, const struct rank_device *device,
                     const struct machine_speed *speed, struct prediction *out);
/* Of all stages, of which devices[i] is stage i's: the bytes of the one that has least left, and the time of the whole step. Fails
 * only as time_model_pipeline() does. */
int prediction_make_placed(const struct pipeline *pipeline, const struct rank_device *const *devices,
                           const struct machine_speed *speed, struct prediction *out, struct error *err);

#endif
