#include "planner/roofline.h"

#include "base/checked.h"

#include <math.h>

/* -------------------------------------------------------------------------------------------------------- products */

/* Tiles that libraries choose from. The smaller one is, the more operands are read for each result: the share that is left is
 * assumed, in round numbers. */
static const struct {
    int64_t rows, columns;
    double share;
} tiles[] = {{256, 128, 1}, {128, 128, 0.95}, {128, 64, 0.8}, {64, 64, 0.6}};
enum { TILES = sizeof tiles / sizeof *tiles };

/* k is cut into this many parts at most, each a tile of its own. */
enum { MOST_PARTS = 8, LEAST_DEPTH = 256 };

static int64_t pieces(int64_t whole, int64_t piece)
{
    return (whole + piece - 1) / piece;
}

static double tile_seconds(const struct product_curve *curve, int tile, int64_t m, int64_t n, double k)
{
    int64_t count = pieces(m, tiles[tile].rows) * pieces(n, tiles[tile].columns),
            sms = curve->multiprocessors;
    double flops = 2.0 * (double)(tiles[tile].rows * tiles[tile].columns), best = INFINITY;
    for (int64_t parts = 1; parts <= MOST_PARTS && (parts == 1 || k >= (double)(parts * LEAST_DEPTH));
         parts *= 2) {
        double rate = curve->flops_per_s * tiles[tile].share / (double)sms;
        double waves = (double)pieces(count * parts, sms);
        best = fmin(best, waves * flops * (k / (double)parts + curve->ramp_depth) / rate);
    }
    return best;
}

double roofline_product_seconds(const struct product_curve *curve, int64_t m, int64_t n, int64_t k)
{
    double best = INFINITY;
    for (int i = 0; i < TILES; i++)
        best = fmin(best, tile_seconds(curve, i, m, n, (double)k));
    return best;
}

/* ------------------------------------------------------------------------------------------------------ collectives */

/* NCCL's own model of itself: what one call costs, and one step between ranks of a node or between nodes (NVIDIA/nccl,
 * src/graph/tuning.cc, baseLat and hwLat, 2.21 on), in microseconds. LL sends a flag with every four bytes, LL128 with every
 * 120. */
enum { RING, TREE, ALGORITHMS };
enum { LL, LL128, SIMPLE, PROTOCOLS };
static const double call_us[ALGORITHMS][PROTOCOLS] = {{6.6, 14.0, 8.4}, {6.8, 14.0, 8.4}};
static const double node_step_us[ALGORITHMS][PROTOCOLS] = {{0.6, 1.9, 3.4}, {0.6, 1.25, 4.0}};
static const double net_step_us[ALGORITHMS][PROTOCOLS] = {{2.7, 4.0, 14.0}, {5.0, 8.5, 14.0}};
static const double protocol_share[PROTOCOLS] = {0.5, 120.0 / 128, 1};

static double latency_us(const struct collective *c, int algorithm, int protocol)
{
    double ways = c->all_reduce ? 2 : 1, node_steps, net_steps;
    if (algorithm == RING) {
        net_steps = c->nodes > 1 ? ways * (double)c->nodes : 0;
        node_steps = fmax(ways * (double)(c->ranks - 1) - net_steps, 0);
    } else {
        node_steps = 2 * ((double)c->ranks / (double)c->nodes - 1);
        net_steps = 2 * log2((double)c->nodes);
    }
    return call_us[algorithm][protocol] + node_steps * node_step_us[algorithm][protocol] +
           net_steps * net_step_us[algorithm][protocol];
}

double roofline_collective_seconds(const struct collective *c)
{
    double best = INFINITY;
    for (int algorithm = 0; algorithm < (c->all_reduce ? ALGORITHMS : TREE); algorithm++)
        for (int protocol = 0; protocol < PROTOCOLS; protocol++) {
            /* A tree sends all of the vector up and down, where a ring leaves out each rank's own part. */
            double bytes =
                algorithm == RING ? c->bytes_sent : c->bytes_sent * (double)c->ranks / (double)(c->ranks - 1);
            double sent_s = bytes / (c->link_bytes_per_s * protocol_share[protocol]);
            best = fmin(best, sent_s + latency_us(c, algorithm, protocol) * 1e-6);
        }
    return best;
}

double roofline_message_latency(bool between_nodes)
{
    return (between_nodes ? net_step_us : node_step_us)[RING][SIMPLE] * 1e-6;
}
