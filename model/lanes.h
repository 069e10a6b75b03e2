/* Packs what comes again and again, each time at the same place within one of several lanes. A lane is a stack of equally
 * tall slots, as many as are in use at once, and each round has one of them: so an item costs its size as many times as the
 * lane has slots, and what lives for a short time lies cheapest in a lane of few. Knows neither tensors nor pipelines. (Best
 * placement is NP-hard; Buchsbaum et al. 2003, "OPT versus LOAD in dynamic storage allocation".) The same input gives the
 * same places everywhere. */
#ifndef MEMPLAN_MODEL_LANES_H
#define MEMPLAN_MODEL_LANES_H

#include <stdbool.h>
#include <stdint.h>

struct lane {
    int64_t slots;
    bool *meets; /* [i * kinds + k], symmetric: kinds i and k of two rounds share a slot while both live */

    /* Found: */
    int64_t height; /* of each slot */
};

/* What its life looks like to other rounds, the kind says. */
struct lane_item {
    int64_t size;        /* at least 1 */
    int64_t from, until; /* moments of its own round, both included */
    int kind;
    int64_t length; /* moments of all rounds that it lives through, about: for the orders */
    bool hangs; /* it may be laid from the top down, if there is one lane only */

    /* Found: */
    int lane;
    int64_t offset; /* in the slot */
};

struct lane_packing {
    struct lane *lanes; /* the one of most slots first; each kind does not meet itself in one of them, or more */
    int lane_count, kinds;
    struct lane_item *items;
    int64_t count;
    int64_t enough; /* how high all lanes together may reach for the search to end; a multiple of what sizes are multiples of */
    int64_t work;   /* comparisons after which no other attempt is begun */
};

/* Returns how high the lanes reach together, one above the other. */
int64_t lanes_pack(struct lane_packing *packing);

#endif
