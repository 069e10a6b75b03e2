/* The breakdown of a run that was recorded. The peak is the ledger's where the rank came to its end; for a run that still
 * goes on, or was killed, it is counted from the events so far. */
#include "base/units.h"
#include "reports/breakdown.h"
#include "reports/describe.h"
#include "reports/role_table.h"
#include "reports/run_setup.h"
#include "reports/stage_table.h"
#include "reports/steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reading {
    struct store *store;
    int64_t run_id;
    const struct pipeline *pipeline; /* that was run; NULL: unknown */
    struct arena *arena;
    struct error *err;
};

/* The highest moment among the recorded events; false in *found: there are none. */
static int read_highest(const struct reading *r, int64_t rank, struct store_point *highest, bool *found)
{
    struct store_point *points;
    int64_t count;
    if (store_read_timeline(r->store, r->run_id, (int)rank, 1, r->arena, &points, &count, r->err))
        return -1;
    *found = count > 0;
    if (*found)
        *highest = points[0];
    return 0;
}

/* The program that a rank ran; NULL: unknown. */
static const struct program *program_of(const struct reading *r, int64_t rank)
{
    bool known = r->pipeline && rank >= 0 && rank < layout_ranks(&r->pipeline->stages[0]->layout);
    return known ? pipeline_of_rank(r->pipeline, rank) : NULL;
}

static int read_rank(const struct reading *r, const struct store_rank *rank, struct rank_row *out)
{
    struct store_point highest;
    bool found = false;
    const struct program *program = program_of(r, rank->rank);
    *out = (struct rank_row){
        .stage = program ? program->stage : -1,
        .first = rank->rank,
        .count = 1,
        .peak_bytes = rank->peak_bytes,
        .arena_bytes = rank->arena_bytes,
        .predicted_bytes = -1,
    };
    if (program) {
        int64_t *layers;
        out->layer_count = stage_table_list_layers(program, r->arena, &layers);
        out->layers = layers;
    }
    memcpy(out->by_role, rank->at_peak, sizeof out->by_role);
    if (rank->measured)
        return 0;
    if (read_highest(r, rank->rank, &highest, &found))
        return -1;
    out->peak_bytes = found ? highest.live_bytes : 0;
    if (found)
        memcpy(out->by_role, highest.live, sizeof out->by_role);
    return 0;
}

static void set_place(const struct reading *r, struct breakdown *b)
{
    if (!program_of(r, b->rank))
        return;
    const struct layout *layout = &r->pipeline->stages[0]->layout;
    b->stages = r->pipeline->count;
    b->place = layout_place_of(layout, b->rank);
    b->place_name = stage_table_place(layout, b->rank, r->arena);
}

/* Sets the rank, the peak and its roles. */
static int choose_rank(const struct reading *r, int64_t wanted, struct breakdown *b)
{
    struct store_rank *ranks;
    int64_t count, chosen = -1;
    if (store_read_ranks(r->store, r->run_id, r->arena, &ranks, &count, r->err))
        return -1;
    b->rows = arena_array(r->arena, (size_t)count, sizeof *b->rows);
    for (int64_t i = 0; i < count; i++) {
        if (read_rank(r, &ranks[i], &b->rows[i]))
            return -1;
        int64_t peak_bytes = b->rows[i].peak_bytes;
        b->lowest_peak = i == 0 || peak_bytes < b->lowest_peak ? peak_bytes : b->lowest_peak;
        b->highest_peak = peak_bytes > b->highest_peak ? peak_bytes : b->highest_peak;
        if (wanted < 0 ? chosen < 0 || peak_bytes > b->peak_bytes : ranks[i].rank == wanted) {
            chosen = i;
            b->peak_bytes = peak_bytes;
        }
    }
    if (chosen < 0)
        return error_set(r->err, "run %lld has no rank %lld; it has %lld, counted from 0",
                         (long long)r->run_id, (long long)(wanted < 0 ? 0 : wanted), (long long)count);
    b->rank = ranks[chosen].rank;
    b->ranks = b->row_count = count;
    b->arena_bytes = ranks[chosen].arena_bytes;
    b->host = ranks[chosen].host;
    memcpy(b->by_role, b->rows[chosen].by_role, sizeof b->by_role);
    set_place(r, b);
    return 0;
}

/* The operation that the highest moment fell into. */
static int read_moment(const struct reading *r, const struct store_point *highest, struct breakdown *b)
{
    struct store_operation *operations;
    int64_t count;
    b->moment = (struct breakdown_moment){.micro_batch = -1, .step = steps_number(highest->step)};
    if (store_read_operations(r->store, r->run_id, (int)b->rank, r->arena, &operations, &count, r->err))
        return -1;
    int64_t at = store_find_operation(operations, count, highest->operation_id);
    if (at >= 0) {
        const struct store_operation *operation = &operations[at];
        b->moment.operation = operation->kind;
        b->moment.phase = operation->phase;
        b->moment.micro_batch = operation->micro_batch;
        b->moment.part =
            describe_part(program_of(r, b->rank), operation->operation_id, operation->layer, r->arena);
    }
    return 0;
}

static int read_tensors(const struct reading *r, struct breakdown *b)
{
    struct store_tensor *rows;
    if (store_read_peak_tensors(r->store, r->run_id, (int)b->rank, -1, r->arena, &rows, &b->tensor_count,
                                r->err))
        return -1;
    b->tensors = arena_array(r->arena, (size_t)b->tensor_count, sizeof *b->tensors);
    for (int64_t i = 0; i < b->tensor_count; i++)
        b->tensors[i] = (struct breakdown_tensor){rows[i].name ? rows[i].name : "(no tensor)",
                                                  rows[i].dims,
                                                  rows[i].dtype,
                                                  rows[i].role,
                                                  rows[i].layer,
                                                  rows[i].micro_batch,
                                                  rows[i].bytes};
    return 0;
}

static int lower_layer_first(const void *left, const void *right)
{
    int64_t a = ((const struct breakdown_tensor *)left)->layer,
            b = ((const struct breakdown_tensor *)right)->layer;
    return (a > b) - (a < b);
}

/* Added up from the tensors: the view layer_breakdown says the same, and walks all events once more. */
static void add_up_layers(struct arena *arena, struct breakdown *b)
{
    struct breakdown_tensor *sorted = host_alloc((size_t)b->tensor_count * sizeof *sorted + 1);
    if (b->tensor_count)
        memcpy(sorted, b->tensors, (size_t)b->tensor_count * sizeof *sorted);
    qsort(sorted, (size_t)b->tensor_count, sizeof *sorted, lower_layer_first);
    b->layers = arena_array(arena, (size_t)b->tensor_count, sizeof *b->layers);
    for (int64_t i = 0; i < b->tensor_count; i++) {
        if (i == 0 || sorted[i].layer != sorted[i - 1].layer)
            b->layers[b->layer_count++].layer = sorted[i].layer;
        b->layers[b->layer_count - 1].by_role[sorted[i].role] += sorted[i].bytes;
    }
    free(sorted);
}

/* What only events know. They may stop before the peak, and then say nothing about it. */
static int read_detail(const struct reading *r, struct breakdown *b)
{
    struct store_point highest;
    bool found;
    if (read_highest(r, b->rank, &highest, &found))
        return -1;
    if (!found && b->peak_bytes == 0)
        return error_set(
            r->err,
            "run %lld holds no memory figures: nothing was recorded before it stopped; record it again "
            "with memplan profile",
            (long long)r->run_id);
    b->detailed = found && highest.live_bytes == b->peak_bytes;
    if (!b->detailed)
        return 0;
    if (role_table_total(b->by_role) == 0)
        memcpy(b->by_role, highest.live, sizeof b->by_role);
    if (read_moment(r, &highest, b) || read_tensors(r, b))
        return -1;
    add_up_layers(r->arena, b);
    return 0;
}

static int read_prediction(const struct reading *r, struct breakdown *b)
{
    struct store_prediction *rows;
    int64_t count;
    b->predicted_seconds = NAN;
    if (store_read_predictions(r->store, r->run_id, r->arena, &rows, &count, r->err))
        return -1;
    for (int64_t i = 0, row = 0; i < count; i++) {
        while (row < b->row_count && b->rows[row].first < rows[i].rank)
            row++;
        if (row < b->row_count && b->rows[row].first == rows[i].rank)
            b->rows[row].predicted_bytes = rows[i].peak_bytes;
        if (rows[i].rank == b->rank) {
            b->foretold = true;
            b->predicted_arena_bytes = rows[i].arena_bytes;
            b->predicted_seconds = rows[i].step_seconds;
            memcpy(b->predicted, rows[i].at_peak, sizeof b->predicted);
        }
    }
    return 0;
}

static int faster_first(const void *left, const void *right)
{
    double a = ((const struct store_step *)left)->seconds, b = ((const struct store_step *)right)->seconds;
    return isnan(a) || isnan(b) ? !!isnan(a) - !!isnan(b) : (a > b) - (a < b);
}

static int read_steps(const struct reading *r, struct breakdown_steps *out)
{
    struct store_step *rows;
    int64_t count;
    *out = (struct breakdown_steps){0, 0, 0, NAN, NAN, NAN, NAN, NAN, NAN};
    if (store_read_steps(r->store, r->run_id, r->arena, &rows, &count, r->err))
        return -1;
    struct store_step *steps;
    out->count = count = steps_join(rows, count, r->arena, &steps);
    if (count == 0)
        return 0;
    out->first = steps_number(steps[0].step);
    out->last = steps_number(steps[count - 1].step);
    out->first_seconds = steps[0].seconds;
    out->last_seconds = steps[count - 1].seconds;
    out->first_loss = steps[0].loss;
    out->last_loss = steps[count - 1].loss;
    qsort(steps, (size_t)count, sizeof *steps, faster_first);
    /* As sort_median() has it: a step that really happened. */
    out->median_seconds = steps[count / 2].seconds;
    out->tokens_per_s = steps[count / 2].tokens_per_s;
    return 0;
}

static const char *advice(const struct breakdown *b, struct arena *arena)
{
    double activations = (double)b->by_role[ROLE_ACTIVATION] / (double)b->peak_bytes;
    bool limited = b->capacity_bytes != INT64_MAX;
    double filled = limited ? (double)b->peak_bytes / (double)b->capacity_bytes : 0;
    char free_bytes[UNITS_TEXT], capacity[UNITS_TEXT];
    if (limited && filled < 0.5)
        return arena_printf(
            arena, "%s of %s stay free; `memplan predict` says with which --micro-batch they would be used.",
            units_format_bytes(b->capacity_bytes - b->peak_bytes, free_bytes),
            units_format_bytes(b->capacity_bytes, capacity));
    if (activations > 0.5)
        return arena_printf(
            arena,
            "Activations hold %.0f%%: --recompute selective or full, or a smaller --micro-batch, "
            "lowers them.",
            100 * activations);
    return "Most of it does not depend on the batch: parameters, gradients and optimizer state.";
}

static int read_all(const struct reading *r, int64_t rank, struct breakdown *b)
{
    return choose_rank(r, rank, b) || read_detail(r, b) || read_prediction(r, b) ||
                   read_steps(r, &b->steps) || breakdown_read_gpu(r->store, r->arena, b, r->err)
               ? -1
               : 0;
}

int breakdown_of_run(struct store *store, int64_t run_id, int64_t rank, struct arena *arena,
                     struct breakdown *out, struct error *err)
{
    struct store_run run;
    struct run_setup setup;
    if (store_read_run(store, run_id, arena, &run, err))
        return -1;
    run_setup_read(&run, arena, &setup);
    struct pipeline *pipeline = run_setup_pipeline(&setup);
    struct reading reading = {store, run_id, pipeline, arena, err};
    struct breakdown b = {
        .measured = true,
        .run_id = run_id,
        .command = run.command,
        .started_at = run.started_at,
        .finished_at = run.finished_at,
        .planned_steps = run.steps,
        .policy = run.policy,
        .model = run.model,
        .device = run.device,
        .layout = setup.has_layout ? describe_layout(&setup.layout, arena) : NULL,
        .recompute = setup.recompute,
        .capacity_bytes = run.capacity_bytes > 0 ? run.capacity_bytes : INT64_MAX,
    };
    int status = read_all(&reading, rank, &b);
    pipeline_free(pipeline);
    if (status)
        return -1;
    b.advice = advice(&b, arena);
    *out = b;
    return 0;
}
