#include "planner/calibration.h"

#include "base/arena.h"
#include "base/json.h"
#include "model/layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void calibration_clear(struct calibration *calibration)
{
    for (int kind = 0; kind < OP_KINDS; kind++) {
        free(calibration->kinds[kind].points);
        calibration->kinds[kind] = (struct calibration_kind){0};
    }
}

/* OP_KINDS when no kind has that name. */
static int find_kind(const char *name)
{
    int kind = 0;
    while (kind < OP_KINDS && strcmp(op_kind_name((enum op_kind)kind), name))
        kind++;
    return kind;
}

/* What an operation's time is proportional to. */
static double amount(double flops, double bytes)
{
    return flops > 0 ? flops : bytes;
}

static void add_point(struct calibration_kind *kind, const struct calibration_point *point)
{
    kind->points = host_resize(kind->points, (size_t)(kind->count + 1) * sizeof *kind->points);
    kind->points[kind->count++] = *point;
}

/* -------------------------------------------------------------------------------------------------------------- fit */

/* What ranks do together runs beside the operations that start and await it, or waits for whoever comes last: its recorded
 * time is not the machine's. */
static bool is_timed(int kind)
{
    return kind < OP_KINDS && !work_communicates((enum op_kind)kind);
}

/* Started, and left to run beside other operations until they are waited for. What else ranks do together is done where it
 * stands. */
static bool runs_beside(int kind)
{
    return kind == OP_ALL_REDUCE || kind == OP_SCATTER_GRADIENTS || kind == OP_GATHER_WEIGHTS ||
           kind == OP_REDUCE_LOSS || kind == OP_WAIT;
}

static struct calibration_point point_of(const struct store_cost *cost)
{
    struct calibration_point point = {.flops = (double)cost->flops,
                                      .bytes = (double)cost->bytes,
                                      .seconds = cost->median_s,
                                      .count = cost->count};
    long long m, n, k;
    if (cost->detail && sscanf(cost->detail, "M%lld N%lld K%lld", &m, &n, &k) == 3) {
        point.m = m;
        point.n = n;
        point.k = k;
    }
    return point;
}

static bool same_shape(const struct calibration_point *a, const struct calibration_point *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->flops == b->flops && a->bytes == b->bytes;
}

/* The same shape occurs in several phases (forward, and recomputed in backward): one point, weighted by count. */
static void merge_point(struct calibration_kind *kind, const struct calibration_point *point)
{
    for (int64_t i = 0; i < kind->count; i++) {
        struct calibration_point *old = &kind->points[i];
        if (same_shape(old, point)) {
            double seconds = old->seconds * (double)old->count + point->seconds * (double)point->count;
            old->count += point->count;
            old->seconds = seconds / (double)old->count;
            return;
        }
    }
    add_point(kind, point);
}

/* Seconds of all operations of a run, each taken as its median: of this rank's own, and where it exchanged with others. */
struct fitted_seconds {
    double own, exchanged;
};

static struct fitted_seconds fit_costs(const struct store_cost *costs, int64_t count, struct calibration *out)
{
    double fastest[OP_KINDS] = {0}, usual[OP_KINDS] = {0};
    struct fitted_seconds seconds = {0};
    for (int64_t i = 0; i < count; i++) {
        int kind = find_kind(costs[i].kind);
        if (kind < OP_KINDS && !is_timed(kind) && !runs_beside(kind))
            seconds.exchanged += costs[i].median_s * (double)costs[i].count;
        struct calibration_point point = point_of(&costs[i]);
        if (!is_timed(kind) || !(point.seconds > 0) || !(amount(point.flops, point.bytes) > 0))
            continue;
        merge_point(&out->kinds[kind], &point);
        fastest[kind] += costs[i].min_s * (double)costs[i].count;
        usual[kind] += costs[i].median_s * (double)costs[i].count;
    }
    for (int kind = 0; kind < OP_KINDS; kind++) {
        out->kinds[kind].spread = fastest[kind] > 0 ? usual[kind] / fastest[kind] - 1 : 0;
        seconds.own += usual[kind];
    }
    return seconds;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* 0 of none. */
static double median(double *values, size_t count)
{
    if (!count)
        return 0;
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

/* Seconds a step that rank 0 spends in collectives, the median; 0 when that was not recorded. */
static double communication_seconds(const struct store_step *steps, int64_t count, struct arena *arena)
{
    double *busy = arena_array(arena, (size_t)count, sizeof *busy);
    size_t found = 0;
    for (int64_t i = 0; i < count; i++)
        if (steps[i].rank == 0 && steps[i].communication_busy_s > 0)
            busy[found++] = steps[i].communication_busy_s;
    return median(busy, found);
}

/* What a step takes besides its operations, and the long tail that medians leave out. `operations`: of all ranks and of all
 * steps in which operations were timed. */
static double fit_step_ratio(const struct store_run *run, const struct store_step *steps, int64_t count,
                             struct fitted_seconds operations, struct arena *arena)
{
    double *own = arena_array(arena, (size_t)count, sizeof *own);
    for (int64_t i = 0; i < count; i++)
        own[i] =
            steps[i].seconds - (steps[i].communication_waited_s > 0 ? steps[i].communication_waited_s : 0);
    int64_t timed =
        run->event_steps > 0 && run->event_steps * run->ranks < count ? run->event_steps * run->ranks : count;
    double step_s = median(own, (size_t)count);
    double own_s = step_s * (double)timed - operations.exchanged;
    return own_s > 0 ? own_s / operations.own : 1;
}

/* Of a recording that does not say, all ranks are data-parallel. */
static struct layout layout_of(const struct store_run *run)
{
    struct layout layout;
    json_t *object = run->layout_json ? json_loads(run->layout_json, 0, NULL) : NULL;
    if (!object || layout_from_json(object, "", &layout, NULL))
        layout = (struct layout){.dp = run->ranks, .tp = 1, .pp = 1};
    json_decref(object);
    return layout;
}

/* Bytes that a rank hands to the collectives of its replicas in a step, over the seconds that they take. */
static double fit_communication(const struct store_operation *operations, int64_t count,
                                const struct layout *layout, double seconds)
{
    double sent = 0;
    for (int64_t i = 0; i < count; i++) {
        int kind = find_kind(operations[i].kind);
        if (!runs_beside(kind))
            continue;
        int64_t ranks = work_group_of(layout, (enum op_kind)kind).ranks;
        if (ranks > 1)
            sent += work_sent((enum op_kind)kind, (double)operations[i].bytes_moved, ranks);
    }
    return seconds > 0 ? sent / seconds : 0;
}

static int fit_run(struct store *store, const struct store_run *run, struct arena *arena,
                   struct calibration *out, struct error *err)
{
    struct store_cost *costs;
    struct store_step *steps;
    struct store_operation *operations;
    int64_t cost_count, step_count, operation_count;
    if (store_read_operation_costs(store, run->run_id, arena, &costs, &cost_count, err) ||
        store_read_steps(store, run->run_id, arena, &steps, &step_count, err) ||
        store_read_operations(store, run->run_id, 0, arena, &operations, &operation_count, err))
        return -1;
    struct fitted_seconds operations_s = fit_costs(costs, cost_count, out);
    if (!(operations_s.own > 0))
        return error_set(
            err, "run %lld has no timed operations to calibrate from; record one with `memplan profile`",
            (long long)run->run_id);
    out->ranks = run->ranks;
    out->step_ratio = fit_step_ratio(run, steps, step_count, operations_s, arena);
    struct layout layout = layout_of(run);
    out->comm_bytes_per_s = fit_communication(operations, operation_count, &layout,
                                              communication_seconds(steps, step_count, arena));
    return 0;
}

int calibration_fit(struct store *store, int64_t run_id, struct calibration *out, struct error *err)
{
    struct arena *arena = arena_create();
    struct store_run run;
    memset(out->kinds, 0, sizeof out->kinds);
    int status = store_read_run(store, run_id, arena, &run, err);
    if (!status)
        status = fit_run(store, &run, arena, out, err);
    if (status)
        calibration_clear(out);
    arena_free(arena);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------- lookup */

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
    double d = log2(amount(work->flops, work->bytes_moved) / amount(point->flops, point->bytes));
    return d * d;
}

/* Rates are averaged as logarithms, so that a neighbour twice as fast and one half as fast cancel. */
bool calibration_seconds(const struct calibration *calibration, enum op_kind kind, const struct work *work,
                         double *seconds)
{
    const struct calibration_kind *measured = &calibration->kinds[kind];
    double wanted = amount(work->flops, work->bytes_moved), weights = 0, sum = 0;
    if (!measured->count || !(wanted > 0))
        return false;
    for (int64_t i = 0; i < measured->count; i++) {
        const struct calibration_point *point = &measured->points[i];
        double rate = amount(point->flops, point->bytes) / point->seconds;
        double d = distance(point, work);
        if (d < 1e-12) {
            *seconds = calibration->step_ratio * wanted / rate;
            return true;
        }
        weights += 1 / d;
        sum += log(rate) / d;
    }
    *seconds = calibration->step_ratio * wanted / exp(sum / weights);
    return true;
}

double calibration_spread(const struct calibration *calibration)
{
    double sum = 0, weights = 0;
    for (int kind = 0; kind < OP_KINDS; kind++) {
        const struct calibration_kind *measured = &calibration->kinds[kind];
        for (int64_t i = 0; i < measured->count; i++) {
            double weight = (double)measured->points[i].count * measured->points[i].seconds;
            sum += weight * measured->spread;
            weights += weight;
        }
    }
    return weights > 0 ? sum / weights : 0;
}

/* ------------------------------------------------------------------------------------------------------------- file */

static json_t *point_to_json(const struct calibration_point *point)
{
    return json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:I}", "m", (json_int_t)point->m, "n",
                     (json_int_t)point->n, "k", (json_int_t)point->k, "flops", point->flops, "bytes",
                     point->bytes, "seconds", point->seconds, "count", (json_int_t)point->count);
}

static json_t *kinds_to_json(const struct calibration *calibration)
{
    json_t *list = json_array();
    for (int kind = 0; kind < OP_KINDS; kind++) {
        const struct calibration_kind *measured = &calibration->kinds[kind];
        if (!measured->count)
            continue;
        json_t *points = json_array();
        for (int64_t i = 0; i < measured->count; i++)
            json_array_append_new(points, point_to_json(&measured->points[i]));
        json_array_append_new(list, json_pack("{s:s, s:f, s:o}", "kind", op_kind_name((enum op_kind)kind),
                                              "spread", measured->spread, "points", points));
    }
    return list;
}

int calibration_write(const struct calibration *c, const char *path, struct error *err)
{
    json_t *object =
        json_pack("{s:i, s:s, s:s, s:i, s:i, s:o, s:f, s:f, s:o}", "memplan_calibration", CALIBRATION_VERSION,
                  "memplan_version", c->memplan_version, "device", c->device, "threads", c->threads, "ranks",
                  c->ranks, "made_by", jsonfile_string(c->made_by), "communication_bytes_per_s",
                  c->comm_bytes_per_s, "step_ratio", c->step_ratio, "operations", kinds_to_json(c));
    int status = jsonfile_write(object, path, err);
    json_decref(object);
    return status;
}

static int read_point(const json_t *object, const char *where, struct calibration_kind *kind,
                      struct error *err)
{
    struct calibration_point point = {0};
    if (jsonfile_int_optional(object, "m", where, &point.m, err) ||
        jsonfile_int_optional(object, "n", where, &point.n, err) ||
        jsonfile_int_optional(object, "k", where, &point.k, err) ||
        jsonfile_real(object, "flops", where, &point.flops, err) ||
        jsonfile_real(object, "bytes", where, &point.bytes, err) ||
        jsonfile_real(object, "seconds", where, &point.seconds, err) ||
        jsonfile_int(object, "count", where, &point.count, err))
        return -1;
    if (!(point.seconds > 0) || !(amount(point.flops, point.bytes) > 0))
        return error_set(err, "%s: a point needs seconds above 0, and flops or bytes; calibrate again",
                         where);
    add_point(kind, &point);
    return 0;
}

static int read_kind(const json_t *object, const char *where, struct calibration *out, struct error *err)
{
    const char *name;
    json_t *points;
    if (jsonfile_text(object, "kind", where, &name, err))
        return -1;
    int index = find_kind(name);
    if (index == OP_KINDS)
        return error_set(err, "%s: operation \"%s\" is unknown to this memplan; calibrate again", where,
                         name);
    struct calibration_kind *kind = &out->kinds[index];
    if (jsonfile_real_optional(object, "spread", where, &kind->spread, err) ||
        jsonfile_array(object, "points", where, &points, err))
        return -1;
    for (size_t i = 0; i < json_array_size(points); i++) {
        char place[300];
        snprintf(place, sizeof place, "%s: %s point %zu", where, name, i);
        if (read_point(json_array_get(points, i), place, kind, err))
            return -1;
    }
    return 0;
}

static int read_head(const json_t *object, const char *path, struct calibration *out, struct error *err)
{
    int64_t version, threads = 1, ranks = 1;
    const char *device, *memplan_version, *made_by = "";
    if (!json_object_get(object, "memplan_calibration"))
        return error_set(err,
                         "%s: not a calibration: it has no \"memplan_calibration\"; `memplan calibrate "
                         "run.db -o %s` makes one",
                         path, path);
    if (jsonfile_int(object, "memplan_calibration", path, &version, err) ||
        jsonfile_text(object, "device", path, &device, err) ||
        jsonfile_text(object, "memplan_version", path, &memplan_version, err) ||
        jsonfile_text_optional(object, "made_by", path, &made_by, err) ||
        jsonfile_int(object, "threads", path, &threads, err) ||
        jsonfile_int(object, "ranks", path, &ranks, err) ||
        jsonfile_real_optional(object, "communication_bytes_per_s", path, &out->comm_bytes_per_s, err) ||
        jsonfile_real(object, "step_ratio", path, &out->step_ratio, err))
        return -1;
    if (version != CALIBRATION_VERSION)
        return error_set(err,
                         "%s: calibration version %lld; this memplan reads version %d, so calibrate again",
                         path, (long long)version, CALIBRATION_VERSION);
    if (!(out->step_ratio > 0))
        return error_set(err, "%s: step_ratio %g is not above 0; calibrate again", path, out->step_ratio);
    if (threads < 1 || threads > 1 << 20 || ranks < 1 || ranks > 1 << 20)
        return error_set(err, "%s: %lld threads in each of %lld ranks cannot be; calibrate again", path,
                         (long long)threads, (long long)ranks);
    snprintf(out->device, sizeof out->device, "%s", device);
    snprintf(out->memplan_version, sizeof out->memplan_version, "%s", memplan_version);
    snprintf(out->made_by, sizeof out->made_by, "%s", made_by);
    out->threads = (int)threads;
    out->ranks = (int)ranks;
    return 0;
}

static int check_origin(const struct calibration *c, const char *path, const char *device,
                        const char *memplan_version, struct error *err)
{
    if (strcmp(c->device, device))
        return error_set(err, "%s was measured on %s, and this is %s; calibrate here, or leave it out", path,
                         c->device, device);
    if (strcmp(c->memplan_version, memplan_version))
        return error_set(err, "%s was measured with memplan %s, and this is %s; calibrate again", path,
                         c->memplan_version, memplan_version);
    return 0;
}

static int from_json(const json_t *object, const char *path, const char *device, const char *memplan_version,
                     struct calibration *out, struct error *err)
{
    json_t *kinds;
    if (read_head(object, path, out, err) || check_origin(out, path, device, memplan_version, err) ||
        jsonfile_array(object, "operations", path, &kinds, err))
        return -1;
    for (size_t i = 0; i < json_array_size(kinds); i++)
        if (read_kind(json_array_get(kinds, i), path, out, err))
            return -1;
    return 0;
}

int calibration_read(const char *path, const char *device, const char *memplan_version,
                     struct calibration *out, struct error *err)
{
    json_t *object;
    struct calibration calibration = {0};
    if (jsonfile_read(path, &object, err))
        return -1;
    int status = from_json(object, path, device, memplan_version, &calibration, err);
    json_decref(object);
    if (status)
        calibration_clear(&calibration);
    else
        *out = calibration;
    return status;
}
