/* What data sheets do not say of a card: how much of its rate a matrix product of some shape gets, and how long a collective
 * takes that is too short to fill its links. docs/time-model.md, section 3, has the formulas. */
#ifndef MEMPLAN_PLANNER_ROOFLINE_H
#define MEMPLAN_PLANNER_ROOFLINE_H

#include <stdbool.h>
#include <stdint.h>

/* Multiprocessors each compute a tile of the result at a time, in waves; a tile takes its share of the rate, and `ramp_depth`
 * steps of k besides, to fill and to drain. */
struct product_curve {
    double flops_per_s; /* of large products; 0: not a card's */
    double ramp_depth;
    int64_t multiprocessors;
};

/* Seconds of m x k by k x n with the best of the usual tiles, launch not included. */
double roofline_product_seconds(const struct product_curve *curve, int64_t m, int64_t n, int64_t k);

/* Between `ranks` ranks on `nodes` nodes. */
struct collective {
    int64_t ranks, nodes;
    bool all_reduce;        /* or a reduce-scatter or all-gather, one way only */
    double bytes_sent;      /* by each rank of a ring */
    double link_bytes_per_s; /* of the slowest link of the ring */
};

/* Seconds with the best of NCCL's algorithms and protocols. */
double roofline_collective_seconds(const struct collective *collective);
/* From one rank to another until the first byte arrives. */
double roofline_message_latency(bool between_nodes);

#endif
