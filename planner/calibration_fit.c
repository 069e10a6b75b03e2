/* From the rows of a recorded run to points and links. */
#include "base/arena.h"
#include "base/checked.h"
#include "base/json.h"
#include "base/sort.h"
#include "model/layout.h"
#include "planner/calibration_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A run as it is read, and what is known of it before anything is fitted. */
struct recorded {
    struct store *store;
    struct store_run run;
    struct layout layout;
    struct arena *arena;
    int threads, cores;
    bool crowded; /* ranks take turns on cores */
    struct store_step *steps;
    struct store_operation *operations; /* of rank 0 */
    int64_t step_count, operation_count;
    int64_t timed_steps; /* whose operations were recorded */
};

/* -------------------------------------------------------------------------------------------------------- operations */

/* What ranks do together waits for whoever comes last: its time is not that of one rank's work. */
static bool is_work(int kind)
{
    return kind < OP_KINDS && !work_communicates((enum op_kind)kind);
}

static struct calibration_point point_of(const struct store_cost *cost, const struct recorded *r)
{
    struct calibration_point point = {.threads = r->threads,
                                      .flops = (double)cost->flops,
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
    return a->threads == b->threads && a->m == b->m && a->n == b->n && a->k == b->k && a->flops == b->flops &&
           a->bytes == b->bytes;
}

/* The same shape occurs in several phases (forward, and recomputed in backward) and runs: one point, weighted by count. */
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
    calibration_add_point(kind, point);
}

/* Seconds of ranks' own operations in a run, each taken as its median. */
static double sum_costs(const struct store_cost *costs, int64_t count)
{
    double seconds = 0;
    for (int64_t i = 0; i < count; i++)
        if (is_work(calibration_kind_find(costs[i].kind)))
            seconds += costs[i].median_s * (double)costs[i].count;
    return seconds;
}

static int by_operation(const void *key, const void *element)
{
    int64_t id = *(const int64_t *)key;
    const struct store_operation *operation = element;
    return (id > operation->operation_id) - (id < operation->operation_id);
}

static const struct store_operation *find_operation(const struct store_operation *operations, int64_t count,
                                                    int64_t id)
{
    return bsearch(&id, operations, (size_t)count, sizeof *operations, by_operation);
}

/* Seconds of what a rank does with others. */
struct together {
    const struct store_operation *operations;
    int64_t count;
    double seconds;
};

static void add_together(void *context, const struct store_kernel *kernel)
{
    struct together *t = context;
    const struct store_operation *operation = find_operation(t->operations, t->count, kernel->operation_id);
    if (operation && !is_work(calibration_kind_find(operation->kind)))
        t->seconds += (double)(kernel->end_ns - kernel->start_ns) * 1e-9;
}

/* Waiting included, of all ranks in the last step that was recorded: in the first they wait for each other's start. */
static int sum_together(const struct recorded *r, double *seconds, struct error *err)
{
    struct together t = {0};
    for (int rank = 0; rank < r->run.ranks; rank++) {
        struct store_operation *operations;
        if (store_read_operations(r->store, r->run.run_id, rank, r->arena, &operations, &t.count, err))
            return -1;
        t.operations = operations;
        if (store_each_kernel(r->store, r->run.run_id, rank, r->timed_steps - 1, add_together, &t, err))
            return -1;
    }
    *seconds = t.seconds;
    return 0;
}

/* Where every tensor has memory of its own, most of what lies between operations is taking and giving back that memory. */
static bool has_arena(const struct recorded *r)
{
    return !r->run.policy || strcmp(r->run.policy, "tensor");
}

/* A step lasts as long as in the rank where it lasts longest: one that has no core yet begins late, and its clock does too. */
static double *list_steps(const struct recorded *r, size_t *steps)
{
    double *seconds = arena_array(r->arena, (size_t)r->step_count, sizeof *seconds);
    *steps = 0;
    for (int64_t i = 0; i < r->step_count; i++) {
        bool same = i > 0 && r->steps[i].step == r->steps[i - 1].step;
        *steps += !same;
        seconds[*steps - 1] = fmax(same ? seconds[*steps - 1] : 0, r->steps[i].seconds);
    }
    return seconds;
}

static double median_step(const struct recorded *r)
{
    size_t steps;
    double *seconds = list_steps(r, &steps);
    return sort_median(seconds, steps);
}

/* In the first step of several, memory is touched for the first time, and libraries are. */
static double fit_step_spread(const struct recorded *r)
{
    size_t steps;
    double *seconds = list_steps(r, &steps);
    if (steps > 2) {
        seconds++;
        steps--;
    }
    double median_s = sort_median(seconds, steps);
    for (size_t i = 0; i < steps; i++)
        seconds[i] = fabs(seconds[i] - median_s);
    sort_reals(seconds, steps);
    return steps && median_s > 0 ? seconds[(8 * steps + 9) / 10 - 1] / median_s : 0;
}

/* What a step takes besides its operations, and the long tail that medians leave out; 1 without an arena. Ranks that take
 * turns wait for cores in the middle of what they do too; they do no more than the cores have time for. */
static int fit_step_ratio(const struct recorded *r, double own_s, double *ratio, struct error *err)
{
    *ratio = 1;
    if (!has_arena(r))
        return 0;
    double together_s;
    if (sum_together(r, &together_s, err))
        return -1;
    double step_s = median_step(r), work_s = step_s * r->run.ranks - together_s;
    if (r->crowded)
        work_s = fmin(work_s, step_s * r->cores);
    if (work_s > 0)
        *ratio = work_s * (double)r->timed_steps / own_s;
    return 0;
}

/* How long the repetitions of a kind take, and would at their fastest: with what was known before, the spread. */
static void fit_spread(struct calibration_kind *kind, double fastest_s, double usual_s, double before_s)
{
    double before_fastest_s = before_s / (1 + kind->spread);
    if (fastest_s > 0)
        kind->spread = (usual_s + before_s) / (fastest_s + before_fastest_s) - 1;
}

static double kind_seconds(const struct calibration_kind *kind)
{
    double seconds = 0;
    for (int64_t i = 0; i < kind->count; i++)
        seconds += kind->points[i].seconds * (double)kind->points[i].count;
    return seconds;
}

static void fit_costs(const struct recorded *r, const struct store_cost *costs, int64_t count,
                      double step_ratio, struct calibration *out)
{
    double fastest[OP_KINDS] = {0}, usual[OP_KINDS] = {0}, before[OP_KINDS];
    struct calibration_kind *kinds = out->kinds[r->layout.precision];
    for (int kind = 0; kind < OP_KINDS; kind++)
        before[kind] = kind_seconds(&kinds[kind]);
    for (int64_t i = 0; i < count; i++) {
        int kind = calibration_kind_find(costs[i].kind);
        struct calibration_point point = point_of(&costs[i], r);
        if (!is_work(kind) || !(point.seconds > 0) || !(calibration_amount(point.flops, point.bytes) > 0))
            continue;
        point.seconds *= step_ratio;
        merge_point(&kinds[kind], &point);
        fastest[kind] += costs[i].min_s * (double)costs[i].count;
        usual[kind] += costs[i].median_s * (double)costs[i].count;
    }
    for (int kind = 0; kind < OP_KINDS; kind++)
        fit_spread(&kinds[kind], fastest[kind], usual[kind], before[kind]);
}

/* ------------------------------------------------------------------------------------------------------------- links */

/* One time that a group did something together: from when the last rank was there until all had it. */
struct meeting {
    int64_t began_ns, ended_ns;
    int ranks;
};

/* All operations of some kinds in which a group meets, of all recorded steps. */
struct meetings {
    const struct recorded *recorded;
    enum calibration_group group;
    int64_t *place; /* by operation of the rank that is read: which row of `meetings`, or -1 */
    const struct store_operation *operations;
    int64_t operation_count;
    struct meeting *all; /* rows x steps */
};

/* Left to run beside other operations until they are waited for: when they end is not recorded. */
static bool ends_where_it_stands(int kind)
{
    return kind < OP_KINDS && work_communicates((enum op_kind)kind) && kind != OP_ALL_REDUCE &&
           kind != OP_SCATTER_GRADIENTS && kind != OP_GATHER_WEIGHTS && kind != OP_REDUCE_LOSS &&
           kind != OP_WAIT && kind != OP_SEND && kind != OP_RECEIVE;
}

static bool meets(const struct meetings *m, const struct store_operation *operation)
{
    int kind = calibration_kind_find(operation->kind);
    return ends_where_it_stands(kind) && calibration_group_of((enum op_kind)kind) == m->group &&
           work_group_of(&m->recorded->layout, (enum op_kind)kind).ranks > 1;
}

static int64_t number_operations(struct meetings *m)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < m->operation_count; i++)
        m->place[i] = meets(m, &m->operations[i]) ? rows++ : -1;
    return rows;
}

static void see_kernel(void *context, const struct store_kernel *kernel)
{
    struct meetings *m = context;
    const struct store_operation *operation =
        find_operation(m->operations, m->operation_count, kernel->operation_id);
    if (!operation || kernel->step < 0 || kernel->step >= m->recorded->timed_steps ||
        m->place[operation - m->operations] < 0)
        return;
    struct meeting *meeting =
        &m->all[m->place[operation - m->operations] * m->recorded->timed_steps + kernel->step];
    meeting->began_ns = max_i64(meeting->began_ns, kernel->start_ns);
    meeting->ended_ns = max_i64(meeting->ended_ns, kernel->end_ns);
    meeting->ranks++;
}

/* Ranks of one stage have the same operations, and those of different stages as many meetings in the same order. */
static int read_rank(struct meetings *m, int rank, int64_t *rows, struct error *err)
{
    const struct recorded *r = m->recorded;
    struct store_operation *operations;
    if (store_read_operations(r->store, r->run.run_id, rank, r->arena, &operations, &m->operation_count, err))
        return -1;
    m->operations = operations;
    m->place = arena_array(r->arena, (size_t)m->operation_count, sizeof *m->place);
    *rows = number_operations(m);
    if (rank == 0)
        m->all = arena_array(r->arena, (size_t)(*rows * m->recorded->timed_steps), sizeof *m->all);
    return 0;
}

/* Seconds of equal meetings against what a rank sends in them. */
struct sample {
    double sent, seconds, deviation;
    int64_t count;
};

/* Of one operation, over its steps but the first, where there are others. */
static struct sample sample_of(const struct meetings *m, const struct store_operation *operation,
                               const struct meeting *steps, int group_ranks)
{
    const struct recorded *r = m->recorded;
    double *seconds = arena_array(r->arena, (size_t)m->recorded->timed_steps, sizeof *seconds);
    size_t count = 0;
    for (int64_t i = m->recorded->timed_steps > 1; i < m->recorded->timed_steps; i++)
        if (steps[i].ranks == group_ranks && steps[i].ended_ns > steps[i].began_ns)
            seconds[count++] = (double)(steps[i].ended_ns - steps[i].began_ns) * 1e-9;
    enum op_kind kind = (enum op_kind)calibration_kind_find(operation->kind);
    struct sample sample = {
        .sent = work_sent(kind, (double)operation->bytes_moved, work_group_of(&r->layout, kind).ranks),
        .seconds = sort_median(seconds, count),
        .count = (int64_t)count};
    for (size_t i = 0; i < count; i++)
        sample.deviation += fabs(seconds[i] - sample.seconds);
    return sample;
}

static int by_sent(const void *a, const void *b)
{
    double x = ((const struct sample *)a)->sent, y = ((const struct sample *)b)->sent;
    return (x > y) - (x < y);
}

/* Samples of the same size become one: the median of their medians. Returns how many are left. */
static int64_t join_samples(struct sample *samples, int64_t count, struct arena *arena)
{
    int64_t left = 0;
    qsort(samples, (size_t)count, sizeof *samples, by_sent);
    double *seconds = arena_array(arena, (size_t)count, sizeof *seconds);
    for (int64_t i = 0, end; i < count; i = end) {
        struct sample joined = {.sent = samples[i].sent};
        for (end = i; end < count && samples[end].sent == joined.sent; end++) {
            seconds[end - i] = samples[end].seconds;
            joined.deviation += samples[end].deviation;
            joined.count += samples[end].count;
        }
        joined.seconds = sort_median(seconds, (size_t)(end - i));
        samples[left++] = joined;
    }
    return left;
}

/* The straight line through them, each size weighing alike: latency and rate, neither of them negative. */
static struct calibration_link fit_line(const struct sample *samples, int64_t count)
{
    double n = (double)count, x = 0, y = 0, xx = 0, xy = 0, deviation = 0, seconds = 0;
    struct calibration_link link = {0};
    for (int64_t i = 0; i < count; i++) {
        x += samples[i].sent;
        y += samples[i].seconds;
        xx += samples[i].sent * samples[i].sent;
        xy += samples[i].sent * samples[i].seconds;
        deviation += samples[i].deviation;
        seconds += samples[i].seconds * (double)samples[i].count;
        link.count += samples[i].count;
    }
    double spread = n * xx - x * x, slope = spread > 0 ? (n * xy - x * y) / spread : 0;
    link.bytes_per_s = slope > 0 ? 1 / slope : 0;
    link.latency_s = fmax((y - fmax(slope, 0) * x) / n, 0);
    link.spread = seconds > 0 ? deviation / seconds : 0;
    return link;
}

/* The group that rank 0 is in: its parts, or the first rank of each stage. */
static int read_group(struct meetings *m, int64_t members, int64_t stride, int64_t *rows, struct error *err)
{
    const struct recorded *r = m->recorded;
    int64_t expected = 0;
    for (int64_t i = 0; i < members; i++) {
        int rank = (int)(i * stride);
        if (read_rank(m, rank, rows, err))
            return -1;
        expected = i ? expected : *rows;
        if (*rows != expected)
            *rows = 0;
        if (!*rows)
            return 0;
        if (store_each_kernel(r->store, r->run.run_id, rank, -1, see_kernel, m, err))
            return -1;
    }
    return 0;
}

/* Who comes to a meeting: of the stages, every stage's first rank is looked at, and stands for all. */
static int fit_group(const struct recorded *r, enum calibration_group group, struct calibration_link *out,
                     struct error *err)
{
    const struct layout *l = &r->layout;
    int64_t members = group == CALIBRATION_PARTS ? l->tp : l->pp, rows = 0;
    struct meetings m = {.recorded = r, .group = group};
    if (members < 2)
        return 0;
    if (read_group(&m, members, group == CALIBRATION_PARTS ? 1 : l->dp * l->tp, &rows, err))
        return -1;
    struct sample *samples = arena_array(r->arena, (size_t)rows, sizeof *samples);
    int64_t count = 0;
    for (int64_t i = 0; rows && i < m.operation_count; i++) {
        if (m.place[i] < 0)
            continue;
        samples[count] = sample_of(&m, &m.operations[i], &m.all[m.place[i] * r->timed_steps], (int)members);
        count += samples[count].count > 0;
    }
    count = join_samples(samples, count, r->arena);
    if (count)
        *out = fit_line(samples, count);
    return 0;
}

/* Seconds a step that rank 0 spends in collectives of its replicas, the median; 0 when that was not recorded. */
static double replica_seconds(const struct recorded *r)
{
    double *busy = arena_array(r->arena, (size_t)r->step_count, sizeof *busy);
    size_t found = 0;
    for (int64_t i = 0; i < r->step_count; i++)
        if (r->steps[i].rank == 0 && r->steps[i].communication_busy_s > 0)
            busy[found++] = r->steps[i].communication_busy_s;
    return sort_median(busy, found);
}

/* Bytes that a rank hands to the collectives of its replicas in a step, over the seconds that they take. */
static struct calibration_link fit_replicas(const struct recorded *r)
{
    double sent = 0, seconds = replica_seconds(r);
    struct calibration_link link = {0};
    for (int64_t i = 0; i < r->operation_count; i++) {
        int kind = calibration_kind_find(r->operations[i].kind);
        if (kind == OP_KINDS || calibration_group_of((enum op_kind)kind) != CALIBRATION_REPLICAS)
            continue;
        sent += work_sent((enum op_kind)kind, (double)r->operations[i].bytes_moved, r->layout.dp);
        link.count++;
    }
    if (r->layout.dp < 2 || !(seconds > 0) || !(sent > 0))
        return (struct calibration_link){0};
    link.bytes_per_s = sent / seconds;
    return link;
}

/* Of two measurements of a group that with more meetings tells more. */
static void keep_better(struct calibration_link *link, const struct calibration_link *found)
{
    if (found->count > link->count)
        *link = *found;
}

/* Where ranks take turns on cores, what they do together waits for others' work too, and tells nothing. */
static int fit_links(const struct recorded *r, struct calibration *out, struct error *err)
{
    struct calibration_link parts = {0}, stages = {0}, replicas;
    if (r->crowded)
        return 0;
    if (fit_group(r, CALIBRATION_PARTS, &parts, err) || fit_group(r, CALIBRATION_STAGES, &stages, err))
        return -1;
    replicas = fit_replicas(r);
    keep_better(&out->links[CALIBRATION_PARTS], &parts);
    keep_better(&out->links[CALIBRATION_STAGES], &stages);
    keep_better(&out->links[CALIBRATION_REPLICAS], &replicas);
    return 0;
}

/* --------------------------------------------------------------------------------------------------------------- run */

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

/* A rank's threads are those that `train` gives it: an equal share of the cores. Where ranks take turns on one, the median
 * of an operation is still that of those that nobody interrupts. */
static void count_threads(struct recorded *r, int cores)
{
    r->threads = r->run.ranks < cores ? cores / r->run.ranks : 1;
    r->cores = cores;
    r->crowded = r->run.ranks > cores;
}

static int fit_run(struct recorded *r, struct calibration *out, struct error *err)
{
    struct store_cost *costs;
    int64_t cost_count, run_id = r->run.run_id;
    if (store_read_operation_costs(r->store, run_id, r->arena, &costs, &cost_count, err) ||
        store_read_steps(r->store, run_id, r->arena, &r->steps, &r->step_count, err) ||
        store_read_operations(r->store, run_id, 0, r->arena, &r->operations, &r->operation_count, err))
        return -1;
    double own_s = sum_costs(costs, cost_count);
    if (!(own_s > 0))
        return error_set(
            err, "run %lld has no timed operations to calibrate from; record one with `memplan profile`",
            (long long)run_id);
    int first, last;
    if (store_kernel_steps(r->store, run_id, 0, &first, &last, err))
        return -1;
    r->timed_steps = last + 1;
    struct calibration_run run = {.run_id = run_id,
                                  .precision = r->layout.precision,
                                  .ranks = r->run.ranks,
                                  .threads = r->threads,
                                  .step_ratio = 1,
                                  .step_spread = fit_step_spread(r)};
    if (fit_step_ratio(r, own_s, &run.step_ratio, err) || fit_links(r, out, err))
        return -1;
    fit_costs(r, costs, cost_count, run.step_ratio, out);
    calibration_add_run(out, &run);
    return 0;
}

int calibration_fit(struct store *store, int64_t run_id, int cores, struct calibration *out,
                    struct error *err)
{
    struct recorded recorded = {.store = store, .arena = arena_create()};
    int status = store_read_run(store, run_id, recorded.arena, &recorded.run, err);
    if (!status) {
        recorded.layout = layout_of(&recorded.run);
        count_threads(&recorded, cores);
        status = fit_run(&recorded, out, err);
    }
    if (status)
        calibration_clear(out);
    arena_free(recorded.arena);
    return status;
}
