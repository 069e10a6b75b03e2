/* The fastest way to train a model on a cluster: data, tensor and pipeline parallel ranks, virtual stages, micro-batch, ZeRO,
 * sequence parallelism, schedule, layers by stage, and for every layer what it recomputes. The answer is the optimum of the time
 * model over all plans whose peaks have room, with what was left unproved told in figures; and it was built, and fits to the byte.
 *
 * It is a best-first search (docs/time-model.md section 9): layouts wait in a heap by a lower bound of their step, and only the
 * first is looked at more closely, which raises its bound, until the first is the fastest known plan. */
#ifndef MEMPLAN_PLANNER_SEARCH_H
#define MEMPLAN_PLANNER_SEARCH_H

#include "base/arena.h"
#include "base/error.h"
#include "planner/cluster.h"
#include "planner/costs.h"
#include "planner/siting.h"
#include "planner/prediction.h"
#include "planner/time_model.h"

#include <stdbool.h>
#include <stdint.h>

enum search_choice { SEARCH_ANY, SEARCH_OFF, SEARCH_ON };

struct search_request {
    const struct model *model;
    const struct cluster *cluster;
    const struct machine_speed *speeds; /* of each group of the cluster */
    int64_t global_batch; /* sequences per step over all ranks */
    int64_t seq_len;      /* 0: the model's */
    enum precision precision;
    /* What is asked for; 0 or NULL: choose. */
    int64_t dp, tp, pp, virtual_stages, micro_batch;
    enum search_choice zero, sequence_parallel;
    const enum schedule_kind *schedule;
    bool parts_need_replicas; /* no tensor or pipeline parallel ranks without data-parallel ones */
    bool even_nodes;          /* equally many ranks on every node that has any */
    const uint32_t *sets; /* the only ones that a layer may drop; NULL: any */
    int set_count;
    /* How much is spent before the best so far is taken, as a part of what there is: 8 spends an eighth of it; 0: all. It counts
     * what is done, not the clock, so that answers are the same on all machines. */
    int64_t effort_parts;
    bool any;       /* whether there is a plan is all that is asked: the first will do */
    bool alone;     /* only the fastest plan is wanted, and no other shapes that come near */
    double limit_s; /* only plans with a faster step are sought; 0: any */
    double far_s;   /* where none is shorter than this, little more is spent: the best is wanted roughly; 0: never */
    bool by_peak; /* what has room at its peak is taken to fit, and nothing is built: for answers that are bounds */
    struct search_memory *memory; /* of several searches (search_memory.h); NULL: nothing is known yet */
};

/* Where the bytes of a stage are at its peak, beside the runtime. */
struct search_bytes {
    int64_t stage;
    int64_t states;                   /* parameters, gradients, optimizer, buffers */
    int64_t kept, kept_micro_batches; /* activations of other micro-batches */
    int64_t working;                  /* of the one in progress */
    int64_t head;                     /* of which: while the head is at work; 0: the peak is elsewhere */
};

/* One configuration. */
struct search_row {
    struct layout layout;
    struct siting siting;
    uint32_t *masks;       /* recomputation by layer */
    int64_t *chunk_layers; /* layers of each chunk of the pipeline */
    const char *recompute; /* the same as text, for --recompute */
    int64_t peak_bytes;    /* of the stage that has least left */
    int64_t arena_bytes;   /* likewise, as built; 0: it was not */
    int64_t needed_bytes;  /* peak, or arena, and runtime */
    int group;             /* of the cluster, whose devices that stage has */
    struct search_bytes bytes;
    struct step_time time;
    const char *reason; /* rejected rows: "dp=1 micro-batch=8 ...: stage 3 needs 83.2 GiB of 79.2 GiB: ..." */
};

/* How many layouts went how far. */
struct search_count {
    int64_t shapes;         /* ways to spend ranks, times micro-batches */
    int64_t beyond_bytes;   /* of these: too large together for all ranks */
    int64_t beyond_time;    /* too slow, whatever the schedule */
    int64_t layouts;        /* shapes with schedules, chunks and ZeRO */
    int64_t layouts_beyond; /* of these: do not fit, or too slow, by their bounds */
    int64_t composed;       /* layers placed and recomputation chosen */
    int64_t replayed;       /* schedules */
    int64_t built;          /* stages */
    int64_t effort;         /* spent, in comparisons and the like: some ns each */
};

struct search_result {
    struct arena *arena; /* owns everything below */
    struct search_row
        *alternatives; /* of different shapes, fastest first: [0] is the plan. The others are not built */
    int64_t alternative_count;
    bool judged; /* [0] is what others' rules left (cli/plan_for.h), and the search alone might have faster ones */
    struct search_row
        *rejected; /* by family: the first reason why none of it is the plan; see families_explain() */
    int64_t rejected_count;
    struct search_count count;
    int64_t candidates; /* configurations weighed, by bound or better */
    int64_t feasible;   /* of those, the ones that were found to fit */
    /* No plan whose peaks have room takes less: the plan's own time, but where placing tensors took more than their peak, or
     * where trying all would have taken too long. */
    double bound_s;
    double search_seconds;
    /* When nothing fits: the configuration that needs least is rejected[0]. */
    int64_t short_bytes;  /* by so much, on every rank */
    int64_t enough_bytes; /* a capacity that would do: of the rank that has least, and as much more on all others */
    int64_t enough_nodes; /* so many would do, of each kind as many times more; 0: no number of them that was tried */
};

/* Fails only on a request that makes no sense; that nothing fits is an answer. On success the caller owns *out's contents:
 * search_clear(). */
int search_run(const struct search_request *request, struct search_result *out, struct error *err);
void search_clear(struct search_result *result);

#endif
