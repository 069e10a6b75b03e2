/* A plan as what another system starts: a script, a line or a configuration with the same layout and recomputation, and
 * what of the plan that system cannot do. Nothing is run. */
#ifndef MEMPLAN_PLANNER_EXPORT_H
#define MEMPLAN_PLANNER_EXPORT_H

#include "base/text.h"
#include "model/plan.h"

#include <stdbool.h>
#include <stdint.h>

enum export_target {
    EXPORT_MEGATRON,   /* a script with the options of Megatron-LM's pretrain_gpt.py, as of August 2026 */
    EXPORT_TORCHTITAN, /* a TOML file, which torchtitan's releases to 0.2.2 read */
    EXPORT_SLURM,      /* a script for sbatch, which runs memplan train */
    EXPORT_MPIRUN,     /* a line of Open MPI, which runs memplan train */
};

struct export_request {
    const struct plan *plan;
    const char *plan_path; /* any name: it is quoted */
    const char *data;      /* NULL: left to whoever starts it */
    int64_t steps;         /* 0: left to the system */
    int64_t ranks_per_node;
};

/* Owned: export_clear(). A note is a line: what the plan has and the target has not, and what was written instead. */
struct export_result {
    struct text body, notes;
    /* What runs there, in our terms, where that is not the plan: `differs`. */
    bool differs;
    enum schedule_kind schedule;
    uint32_t *recompute; /* a mask per layer */
};

/* "megatron", "torchtitan", "slurm", "mpirun". */
int export_target_find(const char *name, enum export_target *out, struct error *err);
/* As it calls itself: "Megatron-LM". */
const char *export_target_name(enum export_target target);

/* A model or a precision that the target does not know is an error that names it. */
int export_check(enum export_target target, const struct model *model, enum precision precision, struct error *err);

/* A model that the target does not know at all, or ranks that its nodes cannot be given, are an error that names them; then *out is
 * empty. */
int export_write(enum export_target target, const struct export_request *request, struct export_result *out,
                 struct error *err);
void export_clear(struct export_result *result);

/* Has it less than all schedules and recomputations? */
bool export_restricts(enum export_target target);
/* The schedule that runs there for this one. */
enum schedule_kind export_schedule(enum export_target target, enum schedule_kind schedule);
/* Does the target compute in the layout's precision? torchtitan leaves casting to FSDP, and without it, with tensor or pipeline
 * parallel ranks, computes in fp32 (pytorch/torchtitan, distributed/utils.py, maybe_enable_amp). */
bool export_parts_need_replicas(enum export_target target, enum precision precision);
/* Is it started by torchrun, with equally many processes on every node? */
bool export_needs_even_nodes(enum export_target target);
bool export_computes_alike(enum export_target target, const struct layout *layout);

#endif
