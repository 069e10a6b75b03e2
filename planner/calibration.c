/* Looking up what was measured. calibration_fit.c measures, calibration_file.c reads and writes. */
#include "planner/calibration.h"

#include "base/arena.h"
#include "planner/calibration_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void calibration_clear(struct calibration *calibration)
{
    for (int precision = 0; precision < CALIBRATION_PRECISIONS; precision++)
        for (int kind = 0; kind < OP_KINDS; kind++) {
            free(calibration->kinds[precision][kind].points);
            calibration->kinds[precision][kind] = (struct calibration_kind){0};
        }
    free(calibration->runs);
    calibration->runs = NULL;
    calibration->run_count = 0;
}

int calibration_kind_find(const char *name)
{
    int kind = 0;
    while (kind < OP_KINDS && strcmp(op_kind_name((enum op_kind)kind), name))
        kind++;
    return kind;
}

double calibration_amount(double flops, double bytes)
{
    return flops > 0 ? flops : bytes;
}

void calibration_add_point(struct calibration_kind *kind, const struct calibration_point *point)
{
    kind->points = host_resize(kind->points, (size_t)(kind->count + 1) * sizeof *kind->points);
    kind->points[kind->count++] = *point;
}

void calibration_add_run(struct calibration *calibration, const struct calibration_run *run)
{
    calibration->runs =
        host_resize(calibration->runs, (size_t)(calibration->run_count + 1) * sizeof *calibration->runs);
    calibration->runs[calibration->run_count++] = *run;
}

/* -------------------------------------------------------------------------------------------------------- operations */

static bool is_product(int64_t m, int64_t n, int64_t k)
{
    return m > 0 && n > 0 && k > 0;
}

/* Squared distance of two shapes, in doublings: of each side of a product, otherwise of the amount of work. */
static double distance(const struct calibration_point *point, const struct work *work)
{
    if (is_product(point->m, point->n, point->k) && is_product(work->m, work->n, work->k)) {
        double m = log2((double)work->m / (double)point->m), n = log2((double)work->n / (double)point->n),
               k = log2((double)work->k / (double)point->k);
        return m * m + n * n + k * k;
    }
    double wanted = calibration_amount(work->flops, work->bytes_moved);
    double d = log2(wanted / calibration_amount(point->flops, point->bytes));
    return d * d;
}

/* The points that tell how long an operation takes on so many threads, each with its seconds there: those that were measured
 * on as many, or else all, whose threads then share the work as those would. */
struct sight {
    const struct calibration_kind *kind;
    int threads;
    bool same;
};

static struct sight look(const struct calibration_kind *kind, int threads)
{
    struct sight sight = {.kind = kind, .threads = threads};
    for (int64_t i = 0; i < kind->count; i++)
        sight.same = sight.same || kind->points[i].threads == threads;
    return sight;
}

static bool is_seen(const struct sight *sight, int64_t i)
{
    return !sight->same || sight->kind->points[i].threads == sight->threads;
}

static double point_amount(const struct calibration_point *point)
{
    return calibration_amount(point->flops, point->bytes);
}

static double point_seconds(const struct sight *sight, int64_t i)
{
    const struct calibration_point *point = &sight->kind->points[i];
    return point->seconds * point->threads / sight->threads;
}

/* Products may differ from what is wanted in one side, SIDE_M, SIDE_N or SIDE_K, and others in their size. */
enum side { SIDE_M, SIDE_N, SIDE_K, SIDES };

static bool is_comparable(const struct calibration_point *point, const struct work *work, enum side side)
{
    if (!is_product(work->m, work->n, work->k))
        return true;
    return is_product(point->m, point->n, point->k) && (side == SIDE_M || point->m == work->m) &&
           (side == SIDE_N || point->n == work->n) && (side == SIDE_K || point->k == work->k);
}

/* Two points of different sizes, and how far the farther one is. */
struct pair {
    int64_t near, far;
    double distance;
};

/* The two nearest along a side; an infinite distance where there are none. */
static struct pair find_pair(const struct sight *sight, const struct work *work, enum side side)
{
    const struct calibration_point *points = sight->kind->points;
    struct pair pair = {-1, -1, INFINITY};
    double nearest = INFINITY;
    for (int64_t i = 0; i < sight->kind->count; i++)
        if (is_seen(sight, i) && is_comparable(&points[i], work, side) &&
            distance(&points[i], work) < nearest) {
            nearest = distance(&points[i], work);
            pair.near = i;
        }
    for (int64_t i = 0; i < sight->kind->count && pair.near >= 0; i++)
        if (is_seen(sight, i) && is_comparable(&points[i], work, side) &&
            point_amount(&points[i]) != point_amount(&points[pair.near]) &&
            distance(&points[i], work) < pair.distance) {
            pair.distance = distance(&points[i], work);
            pair.far = i;
        }
    return pair;
}

/* A call costs something however few its rows are (starting threads, reordering a weight), so that seconds over size are a
 * line and not a ratio. False where it would begin below 0 or fall. */
static bool line_seconds(const struct sight *sight, const struct work *work, double wanted, double *seconds)
{
    struct pair best = {-1, -1, INFINITY};
    for (int side = 0; side < SIDES; side++) {
        struct pair pair = find_pair(sight, work, (enum side)side);
        best = pair.distance < best.distance ? pair : best;
    }
    if (best.far < 0)
        return false;
    double x = point_amount(&sight->kind->points[best.near]), y = point_seconds(sight, best.near);
    double across = point_amount(&sight->kind->points[best.far]) - x;
    double slope = (point_seconds(sight, best.far) - y) / across;
    *seconds = y + slope * (wanted - x);
    return slope >= 0 && y - slope * x >= 0;
}

/* Rates are averaged as logarithms, so that a neighbour twice as fast and one half as fast cancel. */
static double rate_near(const struct sight *sight, const struct work *work)
{
    double weights = 0, sum = 0;
    for (int64_t i = 0; i < sight->kind->count; i++) {
        if (!is_seen(sight, i))
            continue;
        double rate = point_amount(&sight->kind->points[i]) / point_seconds(sight, i);
        double d = distance(&sight->kind->points[i], work);
        if (d < 1e-12)
            return rate;
        weights += 1 / d;
        sum += log(rate) / d;
    }
    return exp(sum / weights);
}

bool calibration_seconds(const struct calibration *calibration, enum op_kind kind, const struct work *work,
                         const struct calibration_rank *rank, double *seconds)
{
    const struct calibration_kind *measured = &calibration->kinds[rank->precision][kind];
    double wanted = calibration_amount(work->flops, work->bytes_moved);
    if (!measured->count || !(wanted > 0))
        return false;
    struct sight sight = look(measured, rank->threads);
    if (!line_seconds(&sight, work, wanted, seconds))
        *seconds = wanted / rate_near(&sight, work);
    return true;
}

bool calibration_has(const struct calibration *calibration, enum precision precision)
{
    for (int kind = 0; kind < OP_KINDS; kind++)
        if (calibration->kinds[precision][kind].count)
            return true;
    return false;
}

/* Of 38 layouts that were predicted from a calibration on other layouts, 37 were within it (docs/time-model.md, section 10). */
static const double least_doubt = 0.15;

double calibration_doubt(const struct calibration *calibration, enum precision precision)
{
    double sum = 0;
    int64_t runs = 0;
    for (int64_t i = 0; i < calibration->run_count; i++)
        if (calibration->runs[i].precision == precision) {
            sum += calibration->runs[i].step_spread;
            runs++;
        }
    return fmax(least_doubt, runs ? sum / (double)runs : 0);
}

/* ------------------------------------------------------------------------------------------------------------- links */

enum calibration_group calibration_group_of(enum op_kind kind)
{
    switch (kind) {
    case OP_ALL_REDUCE:
    case OP_SCATTER_GRADIENTS:
    case OP_GATHER_WEIGHTS:
        return CALIBRATION_REPLICAS;
    case OP_SEND:
    case OP_RECEIVE:
    case OP_REDUCE_LOSS:
    case OP_REDUCE_TIED:
    case OP_REDUCE_SQUARES:
        return CALIBRATION_STAGES;
    default:
        return CALIBRATION_PARTS;
    }
}

const struct calibration_link *calibration_link(const struct calibration *calibration,
                                                enum calibration_group group)
{
    if (calibration->links[group].count)
        return &calibration->links[group];
    for (int other = 0; other < CALIBRATION_GROUPS; other++)
        if (calibration->links[other].count)
            return &calibration->links[other];
    return NULL;
}
