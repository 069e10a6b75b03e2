/* What the parts of a step cost, for searches that weigh many layouts: bytes and seconds of each part and of every set of
 * tensors worth recomputing in a layer. They depend on the tensor-parallel ranks, sequence parallelism, the micro-batch and
 * little else, so they are worked out once for all layouts that agree in these. Bytes of a layer are proportional to the
 * micro-batch, and what is made again takes as long as it took the first time: a set is a sum over operations. */
#ifndef MEMPLAN_PLANNER_COSTS_H
#define MEMPLAN_PLANNER_COSTS_H

#include "planner/pile.h"
#include "planner/time_model.h"

#include <stdbool.h>
#include <stdint.h>

/* Parts of a stage, from the bottom up. Layer 0 of an encoder needs no gradient of its input and is a part of its own;
 * elsewhere it is like the others. */
enum cost_part { COST_EMBED, COST_RECEIVE, COST_FIRST, COST_LAYER, COST_HEAD, COST_SEND, COST_PARTS };

/* A set of tensors that no other set beats in everything. */
struct cost_option {
    uint32_t mask;
    double seconds, first_seconds; /* to make them again */
    struct pile pile, first_pile;  /* of a layer without them */
};

/* Corner of the lower hull of all options: of layers that keep so many bytes on average, none recompute faster. */
struct cost_corner {
    double saved, seconds;
    int option;
};

/* The options that may lie below one: they are stacked so that the less a layer needs beyond what it keeps, the higher it lies
 * (stage_choice.h). */
struct cost_suffix {
    struct pile least; /* as little of everything as any of them, each by itself */
    int64_t forward_beyond, backward_beyond; /* likewise, what they need in a pass beyond what they keep */
    struct cost_corner *hull; /* the fastest first; owned */
    int hull_count;
};

struct costs {
    struct block_time times[COST_PARTS]; /* of layers without recomputation */
    struct pile piles[COST_PARTS];       /* of layers: with nothing dropped */
    int64_t message_bytes;               /* x */
    bool first_differs;
    struct cost_option *options; /* the fastest first; owned; none until costs_open_options() */
    int option_count;
    int *order;                   /* of options, from the top of a stack down; owned */
    struct cost_suffix *suffixes; /* by place in that order; owned. The first has all options */
    const struct block *blocks; /* by part, of a micro-batch of 1: for their parameters */
    struct part_states *states; /* what costs_states() has found; shared */
};

struct costs_cache;

/* Searches plans for `model`; `sets` (NULL: all): the only ones that a layer may drop. All borrowed. */
struct costs_cache *costs_open(const struct model *model, const struct machine_speed *speed,
                               const uint32_t *sets, int set_count);
void costs_close(struct costs_cache *cache); /* NULL is fine */

/* Those of a layout; the cache owns them. Options are there only after costs_open_options(). */
struct costs *costs_find(struct costs_cache *cache, const struct layout *layout);
void costs_open_options(struct costs_cache *cache, const struct layout *layout, struct costs *costs);

/* Bytes of the states of a part of a rank: parameters, gradients, what the optimizer keeps. `layout` is one that the costs are for. */
int64_t costs_states(const struct costs *costs, const struct layout *layout, enum cost_part part);

/* Least seconds of recomputation of a layer, on average, when layers keep at most `saved` bytes on average; infinite when
 * they cannot keep so little. A lower bound, by convexity. */
double costs_least_recompute(const struct cost_suffix *suffix, double saved);

#endif
