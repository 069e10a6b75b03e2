/* Bytes of blocks that lie on one another in a chunk, as program_find_peak() adds them up: what they keep, and the most that is
 * alive in one pass over them. To pile one on another is arithmetic on ten numbers, whatever each is made of. */
#ifndef MEMPLAN_PLANNER_PILE_H
#define MEMPLAN_PLANNER_PILE_H

#include "base/checked.h"

/* Of one micro-batch; without states. */
struct pile {
    int64_t saved, later;              /* kept after forward, and between the halves of backward */
    int64_t forward, backward, weight; /* most alive in each pass, what the pile itself keeps included */
};

/* `upper` runs after `lower` in forward, and before it in backward. */
static inline struct pile pile_on(struct pile lower, struct pile upper)
{
    return (struct pile){
        .saved = lower.saved + upper.saved,
        .later = lower.later + upper.later,
        .forward = max_i64(lower.forward, lower.saved + upper.forward),
        .backward = max_i64(lower.backward + upper.later, lower.saved + upper.backward),
        /* The weight halves go from the top down, and free what they kept. */
        .weight = max_i64(lower.weight, lower.later + upper.weight),
    };
}

/* `count` equal ones. */
static inline struct pile pile_times(struct pile pile, int64_t count)
{
    int64_t below = count - 1;
    if (!count)
        return (struct pile){0};
    return (struct pile){
        .saved = count * pile.saved,
        .later = count * pile.later,
        .forward = below * pile.saved + pile.forward,
        .backward = below * max_i64(pile.saved, pile.later) + pile.backward,
        .weight = below * pile.later + pile.weight,
    };
}

#endif
