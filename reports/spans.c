#include "reports/spans.h"

#include "model/block.h"
#include "reports/describe.h"
#include "reports/steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[ACTIVITY_COUNT] = {"forward",   "backward",      "weights", "recompute",
                                                  "optimizer", "communication", "waiting"};

const char *activity_name(enum activity activity)
{
    return names[activity];
}

static bool is_one_of(const char *kind, const enum op_kind *kinds, int count)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(kind, op_kind_name(kinds[i])))
            return true;
    return false;
}

/* What an operation is there for. Ranks exchange in each of these; the last two do nothing but wait. */
static enum activity activity_of(const struct store_operation *operation)
{
    static const enum op_kind exchanges[] = {
        OP_ALL_GATHER,  OP_REDUCE_SCATTER, OP_SUM_PARTIAL,       OP_MAX_PARTIAL, OP_SEND,
        OP_COPY,        OP_ALL_REDUCE,     OP_SCATTER_GRADIENTS, OP_REDUCE_LOSS, OP_REDUCE_NORMS,
        OP_REDUCE_TIED, OP_REDUCE_SQUARES, OP_GATHER_WEIGHTS};
    static const enum op_kind waits[] = {OP_RECEIVE, OP_WAIT};
    if (is_one_of(operation->kind, waits, sizeof waits / sizeof *waits))
        return ACTIVITY_WAIT;
    if (is_one_of(operation->kind, exchanges, sizeof exchanges / sizeof *exchanges))
        return ACTIVITY_COMMUNICATION;
    if (operation->recompute)
        return ACTIVITY_RECOMPUTE;
    if (!strcmp(operation->phase, phase_name(PHASE_FORWARD)))
        return ACTIVITY_FORWARD;
    return strcmp(operation->phase, phase_name(PHASE_BACKWARD)) ? ACTIVITY_OPTIMIZER : ACTIVITY_BACKWARD;
}

/* -------------------------------------------------------------------------------------------------------- recordings */

struct reading {
    struct work_span *operations; /* by index in the table: what all spans of it share */
    const struct store_operation *rows;
    int64_t operation_count;
    struct work_span *spans;
    int64_t count, room;
};

static void see(void *context, const struct store_kernel *kernel)
{
    static const struct work_span unknown = {
        .activity = ACTIVITY_OPTIMIZER, .kind = "(unknown)", .phase = "", .micro_batch = -1, .operations = 1};
    struct reading *r = context;
    int64_t at = store_find_operation(r->rows, r->operation_count, kernel->operation_id);
    if (r->count == r->room)
        r->spans = host_resize(r->spans, (size_t)(r->room = 2 * r->room + 256) * sizeof *r->spans);
    struct work_span *span = &r->spans[r->count++];
    *span = at < 0 ? unknown : r->operations[at];
    span->start_ns = kernel->start_ns;
    span->end_ns = kernel->end_ns > kernel->start_ns ? kernel->end_ns : kernel->start_ns;
    span->step = steps_number(kernel->step);
}

static bool makes_weights(const struct store_operation *row)
{
    return !strcmp(row->kind, op_kind_name(OP_MATMUL_WGRAD));
}

static bool is_backward(const struct store_operation *row)
{
    return !strcmp(row->phase, phase_name(PHASE_BACKWARD));
}

/* The operations of a layer for a micro-batch follow each other in the table. Where a schedule has backward in two halves
 * (model/block_split), the products for weights stand behind everything else of the layer; elsewhere the gradient that is passed
 * on is made after the last of them. So no column has to say which it was. */
static void find_weight_half(const struct store_operation *rows, int64_t first, int64_t end,
                             struct work_span *out)
{
    int64_t half = end;
    while (half > first && is_backward(&rows[half - 1]) && makes_weights(&rows[half - 1]))
        half--;
    for (int64_t i = first; i < half; i++)
        if (makes_weights(&rows[i]))
            return;
    for (int64_t i = half; i < end; i++)
        out[i].activity = ACTIVITY_WEIGHTS;
}

static void find_weight_halves(struct reading *r)
{
    for (int64_t first = 0, end; first < r->operation_count; first = end) {
        const struct store_operation *row = &r->rows[first];
        for (end = first + 1; end < r->operation_count; end++)
            if (r->rows[end].layer != row->layer || r->rows[end].micro_batch != row->micro_batch)
                break;
        if (row->layer >= 0 && row->micro_batch >= 0)
            find_weight_half(r->rows, first, end, r->operations);
    }
}

static void describe_operations(struct reading *r, const struct program *program, struct arena *arena)
{
    r->operations = arena_array(arena, (size_t)r->operation_count, sizeof *r->operations);
    for (int64_t i = 0; i < r->operation_count; i++) {
        const struct store_operation *row = &r->rows[i];
        r->operations[i] = (struct work_span){
            .activity = activity_of(row),
            .micro_batch = row->micro_batch,
            .kind = row->kind,
            .phase = row->phase,
            .part = describe_part(program, row->operation_id, row->layer, arena),
            .detail = row->detail,
            .operations = 1,
        };
    }
    find_weight_halves(r);
}

/* Steps in order, and in each what began first; of two that began together, the longer one. */
static int earlier_first(const void *left, const void *right)
{
    const struct work_span *a = left, *b = right;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->start_ns != b->start_ns)
        return a->start_ns < b->start_ns ? -1 : 1;
    return (a->end_ns < b->end_ns) - (a->end_ns > b->end_ns);
}

static int read_lane(struct store *store, int64_t run_id, const struct program *program, int step,
                     struct arena *arena, struct lane *lane, struct error *err)
{
    struct reading r = {0};
    struct store_operation *rows;
    if (store_read_operations(store, run_id, (int)lane->rank, arena, &rows, &r.operation_count, err))
        return -1;
    r.rows = rows;
    describe_operations(&r, program, arena);
    int recorded = step == SPANS_ALL_STEPS ? -1 : steps_recorded(step);
    int status = store_each_kernel(store, run_id, (int)lane->rank, recorded, see, &r, err);
    lane->spans = arena_array(arena, (size_t)r.count, sizeof *lane->spans);
    lane->span_count = r.count;
    if (r.count) {
        qsort(r.spans, (size_t)r.count, sizeof *r.spans, earlier_first);
        memcpy(lane->spans, r.spans, (size_t)r.count * sizeof *r.spans);
    }
    free(r.spans);
    return status;
}

/* -------------------------------------------------------------------------------------------------------- arithmetic */

/* What passes between an operation and the next, when nothing holds it up. */
enum { LAUNCH_NS = 20000 };

/* Whether a span goes on with what the stretch does. */
static bool continues(const struct work_span *stretch, const struct work_span *span)
{
    return stretch->activity == span->activity && stretch->micro_batch == span->micro_batch &&
           stretch->step == span->step && span->start_ns - stretch->end_ns <= LAUNCH_NS;
}

static void find_stretches(struct lane *lane, struct arena *arena)
{
    lane->stretches = arena_array(arena, (size_t)lane->span_count, sizeof *lane->stretches);
    for (int64_t i = 0; i < lane->span_count; i++) {
        const struct work_span *span = &lane->spans[i];
        struct work_span *last = lane->stretch_count ? &lane->stretches[lane->stretch_count - 1] : NULL;
        if (!last || !continues(last, span)) {
            lane->stretches[lane->stretch_count++] = *span;
            continue;
        }
        last->end_ns = span->end_ns > last->end_ns ? span->end_ns : last->end_ns;
        last->kind = last->phase = last->part = last->detail = NULL;
        last->operations++;
    }
}

/* Steps are by number, few, and found from the end. */
static struct timeline_step *find_step(struct timeline *timeline, int step)
{
    int64_t at = timeline->step_count;
    while (at > 0 && timeline->steps[at - 1].step > step)
        at--;
    if (at > 0 && timeline->steps[at - 1].step == step)
        return &timeline->steps[at - 1];
    timeline->steps =
        host_resize(timeline->steps, (size_t)(timeline->step_count + 1) * sizeof *timeline->steps);
    memmove(&timeline->steps[at + 1], &timeline->steps[at],
            (size_t)(timeline->step_count - at) * sizeof *timeline->steps);
    timeline->step_count++;
    timeline->steps[at] = (struct timeline_step){step, INT64_MAX, INT64_MIN};
    return &timeline->steps[at];
}

static void measure_steps(struct timeline *timeline)
{
    for (int64_t l = 0; l < timeline->lane_count; l++) {
        struct timeline_step *step = NULL;
        for (int64_t i = 0; i < timeline->lanes[l].span_count; i++) {
            const struct work_span *span = &timeline->lanes[l].spans[i];
            if (!step || step->step != span->step)
                step = find_step(timeline, span->step);
            step->start_ns = span->start_ns < step->start_ns ? span->start_ns : step->start_ns;
            step->end_ns = span->end_ns > step->end_ns ? span->end_ns : step->end_ns;
        }
    }
}

/* Busy by activity, and idle: what of the steps no span covers. */
static void measure_lane(const struct timeline *timeline, struct lane *lane, const struct work_span *spans,
                         int64_t count)
{
    for (int64_t i = 0; i < timeline->step_count; i++)
        lane->idle_ns += timeline->steps[i].end_ns - timeline->steps[i].start_ns;
    int64_t covered_to = INT64_MIN;
    for (int64_t i = 0; i < count; i++) {
        const struct work_span *span = &spans[i];
        int64_t from = span->start_ns > covered_to ? span->start_ns : covered_to;
        lane->busy_ns[span->activity] += span->end_ns - span->start_ns;
        if (span->end_ns > from)
            lane->idle_ns -= span->end_ns - from;
        covered_to = span->end_ns > covered_to ? span->end_ns : covered_to;
    }
}

static void settle_steps(struct timeline *timeline, struct arena *arena)
{
    struct timeline_step *steps = timeline->steps;
    timeline->steps = arena_array(arena, (size_t)timeline->step_count, sizeof *steps);
    memcpy(timeline->steps, steps, (size_t)timeline->step_count * sizeof *steps);
    free(steps);
    timeline->start_ns = timeline->steps[0].start_ns;
    timeline->end_ns = timeline->steps[timeline->step_count - 1].end_ns;
}

/* -------------------------------------------------------------------------------------------------------------- runs */

/* The first and the last step that every rank recorded; 0: none. */
static int find_steps(struct store *store, int64_t run_id, const struct store_rank *ranks, int64_t count,
                      int *first, int *last, struct error *err)
{
    *first = *last = 0;
    for (int64_t i = 0; i < count; i++) {
        int from, to;
        if (store_kernel_steps(store, run_id, ranks[i].rank, &from, &to, err))
            return -1;
        *first = i == 0 || steps_number(from) > *first ? steps_number(from) : *first;
        *last = i == 0 || steps_number(to) < *last ? steps_number(to) : *last;
    }
    return 0;
}

/* Somebody named a step that no rank has. */
static int refuse_step(int64_t run_id, int step, int first, int last, struct error *err)
{
    char had[48] = "of none";
    if (last)
        snprintf(had, sizeof had, first < last ? "of %d-%d" : "of %d", first, last);
    return error_set(err, "--step %d: run %lld has recorded operations %s; leave it out%s", step,
                     (long long)run_id, had, last ? " for the last" : "");
}

static int read_lanes(struct store *store, int64_t run_id, const struct pipeline *pipeline, int step,
                      struct arena *arena, struct timeline *timeline, struct error *err)
{
    int64_t known = pipeline ? layout_ranks(&pipeline->stages[0]->layout) : 0;
    for (int64_t i = 0; i < timeline->lane_count; i++) {
        struct lane *lane = &timeline->lanes[i];
        const struct program *program = lane->rank < known ? pipeline_of_rank(pipeline, lane->rank) : NULL;
        lane->stage = program ? program->stage : -1;
        if (read_lane(store, run_id, program, step, arena, lane, err))
            return -1;
        find_stretches(lane, arena);
    }
    return 0;
}

int spans_of_run(struct store *store, int64_t run_id, const struct pipeline *pipeline, int step,
                 struct arena *arena, struct timeline **out, struct error *err)
{
    struct store_rank *ranks;
    struct timeline *timeline = arena_alloc(arena, sizeof *timeline);
    *out = NULL;
    if (store_read_ranks(store, run_id, arena, &ranks, &timeline->lane_count, err))
        return -1;
    int first, last, asked = step;
    if (find_steps(store, run_id, ranks, timeline->lane_count, &first, &last, err))
        return -1;
    if (asked == SPANS_LAST_STEP && (step = last) == 0)
        return 0;
    timeline->lanes = arena_array(arena, (size_t)timeline->lane_count, sizeof *timeline->lanes);
    for (int64_t i = 0; i < timeline->lane_count; i++)
        timeline->lanes[i] = (struct lane){.rank = ranks[i].rank, .ranks = 1};
    if (read_lanes(store, run_id, pipeline, step, arena, timeline, err))
        return -1;
    measure_steps(timeline);
    if (timeline->step_count == 0)
        return asked > 0 ? refuse_step(run_id, asked, first, last, err) : 0;
    settle_steps(timeline, arena);
    for (int64_t i = 0; i < timeline->lane_count; i++)
        measure_lane(timeline, &timeline->lanes[i], timeline->lanes[i].spans, timeline->lanes[i].span_count);
    *out = timeline;
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------- plans */

struct timeline *spans_foretold(struct lane *lanes, int64_t count, int64_t length_ns, const char *how,
                                struct arena *arena)
{
    struct timeline *timeline = arena_alloc(arena, sizeof *timeline);
    *timeline = (struct timeline){
        .foretold = how,
        .lanes = lanes,
        .lane_count = count,
        .steps = arena_array(arena, 1, sizeof *timeline->steps),
        .step_count = 1,
        .end_ns = length_ns,
    };
    timeline->steps[0] = (struct timeline_step){.end_ns = length_ns};
    for (int64_t i = 0; i < count; i++)
        measure_lane(timeline, &lanes[i], lanes[i].stretches, lanes[i].stretch_count);
    return timeline;
}
