#include "cli/configuration.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "model/recompute.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool configuration_is_plan(const char *path)
{
    size_t length = strlen(path);
    return length >= 5 && !strcmp(path + length - 5, ".json");
}

/* Reads `source` as a plan when it is a JSON file that says it is one. Returns 1: it was; 0: it is a model; -1: error. */
static int try_plan(const char *source, struct plan *out, struct error *err)
{
    if (!configuration_is_plan(source) || access(source, R_OK))
        return 0;
    json_t *object;
    if (jsonfile_read(source, &object, err))
        return -1;
    int status = 0;
    if (json_object_get(object, "memplan_plan"))
        status = plan_from_json(object, source, out, err) ? -1 : 1;
    json_decref(object);
    return status;
}

/* A plan says what its model is; another one needs another plan. */
static int check_no_overrides(const char *source, const struct model_overrides *o, struct error *err)
{
    if (o->layers || o->hidden || o->heads || o->kv_heads || o->ffn || o->vocab)
        return error_set(err,
                         "%s is a plan, and its model cannot be changed; make a new plan with `memplan plan`",
                         source);
    return 0;
}

static void set_given(int64_t *field, int64_t given)
{
    if (given)
        *field = given;
}

/* A schedule is for a number of chunks per stage, so another number begins with the default. */
static int apply_pipeline(const struct configuration_options *o, struct layout *l, struct error *err)
{
    int64_t virtual_stages = o->virtual_stages ? o->virtual_stages : o->pp == 1 ? 1 : l->virtual_stages;
    if (virtual_stages != l->virtual_stages)
        l->schedule = SCHEDULE_1F1B;
    l->virtual_stages = virtual_stages;
    set_given(&l->pp, o->pp);
    if (!o->pipeline_schedule)
        return 0;
    if (schedule_find(o->pipeline_schedule, &l->schedule, err))
        return -1;
    if (l->pp <= 1 && l->schedule != SCHEDULE_1F1B)
        return error_set(
            err,
            "--pipeline-schedule %s says how the stages of a pipeline take turns, and --pp is 1; give --pp 2 "
            "or more, or leave it out",
            o->pipeline_schedule);
    return 0;
}

/* A plan's own global batch is what its training needs: another division of it keeps it, and is refused where it does not divide. */
static int check_batch(const char *source, const struct configuration_options *o, const struct layout *l,
                       struct error *err)
{
    int64_t at_once;
    if (o->global_batch || !l->global_batch || !checked_mul(l->dp, l->micro_batch, &at_once) ||
        l->global_batch % at_once == 0)
        return 0;
    return error_set(
        err,
        "%s has a global batch of %" PRId64 ", which is no multiple of dp %" PRId64 " x micro-batch %" PRId64
        "; give others, or another batch, such as --global-batch %" PRId64,
        source, l->global_batch, l->dp, l->micro_batch, (l->global_batch / at_once + 1) * at_once);
}

static bool same_layout(const struct layout *a, const struct layout *b)
{
    json_t *first = layout_to_json(a), *second = layout_to_json(b);
    bool same = json_equal(first, second);
    json_decref(first);
    json_decref(second);
    return same;
}

/* What was foretold of a plan is not foretold of another one. */
static void forget_prediction(const struct configuration_options *o, const struct layout *before,
                              struct plan *plan)
{
    if (!same_layout(before, &plan->layout) || o->recompute || o->stage_layers)
        plan->step_seconds = 0;
}

static int apply_layout(const char *source, const struct configuration_options *o, struct plan *plan,
                        struct error *err)
{
    struct layout *l = &plan->layout;
    set_given(&l->dp, o->dp);
    set_given(&l->tp, o->tp);
    set_given(&l->micro_batch, o->micro_batch);
    set_given(&l->global_batch, o->global_batch);
    set_given(&l->seq_len, o->seq_len);
    set_given(&l->bucket_bytes, o->bucket_bytes);
    l->sequence_parallel = l->sequence_parallel || o->sequence_parallel;
    if (o->zero)
        l->zero = !strcmp(o->zero, "1");
    if (o->precision && precision_find(o->precision, &l->precision, err))
        return -1;
    if (check_batch(source, o, l, err) || apply_pipeline(o, l, err))
        return -1;
    return layout_complete(l, &plan->model, err);
}

/* ---- --stage-layers ---- */

static int refuse_stage_layers(const struct plan *plan, const char *text, const char *why, struct error *err)
{
    int64_t chunks = layout_chunks(&plan->layout);
    int64_t *even = host_alloc((size_t)chunks * sizeof *even);
    struct text split = {0};
    layout_spread_layers(&plan->layout, plan->model.layers, even);
    layout_print_layers(even, chunks, &split);
    error_set(err, "--stage-layers %s: %s; an even split is %s", text, why, split.data);
    text_free(&split);
    free(even);
    return -1;
}

/* No model has so many layers, nor a pipeline so many chunks: sums of numbers that are smaller fit. */
enum { LARGEST_NUMBER = 1000000000 };

/* Reads "N" or "N*COUNT"; returns what follows, or NULL: it is neither. */
static const char *parse_repeated(const char *text, int64_t *number, int64_t *count)
{
    char *end;
    *count = 1;
    *number = strtoll(text, &end, 10);
    if (end == text || *text == ' ')
        return NULL;
    if (*end == '*') {
        const char *times = end + 1;
        *count = strtoll(times, &end, 10);
        if (end == times || *times == ' ' || *count < 1)
            return NULL;
    }
    return *end && *end != ',' ? NULL : end;
}

enum { NOT_NUMBERS = -1, TOO_LARGE = -2 };

/* Fills out[0 .. room) and returns how many numbers there are, or which of the above is wrong. */
static int64_t parse_numbers(const char *text, int64_t *out, int64_t room)
{
    int64_t filled = 0, number, count;
    for (const char *at = text;; at++) {
        at = parse_repeated(at, &number, &count);
        if (!at)
            return NOT_NUMBERS;
        if (number > LARGEST_NUMBER || number < -LARGEST_NUMBER || count > LARGEST_NUMBER)
            return TOO_LARGE;
        for (int64_t i = filled; i < filled + count && i < room; i++)
            out[i] = number;
        filled += count;
        if (!*at)
            return filled;
    }
}

static int check_stage_layers(const struct plan *plan, const char *text, const int64_t *layers, int64_t count,
                              struct error *err)
{
    const struct layout *l = &plan->layout;
    int64_t chunks = layout_chunks(l), sum = 0;
    char why[160];
    if (count == TOO_LARGE)
        return refuse_stage_layers(
            plan, text, "no model has as many layers, nor a pipeline as many chunks, as a number here says",
            err);
    if (count == NOT_NUMBERS)
        return refuse_stage_layers(
            plan, text,
            "these are not whole numbers joined by commas, or numbers of times such as 2*3 for 2,2,2", err);
    if (count != chunks) {
        snprintf(why, sizeof why,
                 "it has %" PRId64 " %s, and --pp %" PRId64 " with --virtual-stages %" PRId64
                 " wants %" PRId64,
                 count, units_plural(count, "number", "numbers"), l->pp, l->virtual_stages, chunks);
        return refuse_stage_layers(plan, text, why, err);
    }
    for (int64_t i = 0; i < chunks; i++) {
        int64_t least = layout_least_layers(l, &plan->model, i);
        if (layers[i] >= least && layers[i] <= plan->model.layers) {
            sum += layers[i];
            continue;
        }
        snprintf(why, sizeof why,
                 "%s %" PRId64 " would have %" PRId64 " layers, and needs %" PRId64 " at least and %" PRId64
                 " at most",
                 l->virtual_stages > 1 ? "chunk" : "stage", i, layers[i], least, plan->model.layers);
        return refuse_stage_layers(plan, text, why, err);
    }
    if (sum == plan->model.layers)
        return 0;
    snprintf(why, sizeof why, "these are %" PRId64 " layers, and %s has %" PRId64, sum, plan->model.name,
             plan->model.layers);
    return refuse_stage_layers(plan, text, why, err);
}

/* `chunks_before`: those that plan->chunk_layers, unless it is NULL, is of. */
static int apply_stage_layers(const char *text, int64_t chunks_before, struct plan *plan, struct error *err)
{
    int64_t chunks = layout_chunks(&plan->layout);
    if (text || chunks != chunks_before) {
        free(plan->chunk_layers);
        plan->chunk_layers = NULL;
    }
    if (!text)
        return 0;
    plan->chunk_layers = host_alloc((size_t)chunks * sizeof *plan->chunk_layers);
    int64_t count = parse_numbers(text, plan->chunk_layers, chunks);
    return check_stage_layers(plan, text, plan->chunk_layers, count, err);
}

int configuration_resolve(const char *source, const struct configuration_options *options, struct plan *out,
                          bool *automatic, struct error *err)
{
    struct plan plan = {.capacity_bytes = INT64_MAX, .device = "cpu"};
    int is_plan = try_plan(source, &plan, err);
    if (is_plan < 0)
        return -1;
    if (is_plan ? check_no_overrides(source, &options->model, err)
                : model_read(source, &options->model, &plan.model, err))
        goto fail;
    if (plan.model.note[0])
        log_note("note: %s", plan.model.note);
    if (!plan.recompute)
        plan.recompute = host_alloc((size_t)plan.model.layers * sizeof *plan.recompute);
    *automatic = options->recompute && !strcmp(options->recompute, "auto");
    if (options->recompute && !*automatic &&
        recompute_parse(options->recompute, &plan.model, plan.recompute, err))
        goto fail;
    struct layout before = plan.layout;
    int64_t chunks_before = layout_chunks(&plan.layout);
    if (apply_layout(source, options, &plan, err) ||
        apply_stage_layers(options->stage_layers, chunks_before, &plan, err))
        goto fail;
    forget_prediction(options, &before, &plan);
    *out = plan;
    return 0;
fail:
    plan_clear(&plan);
    return -1;
}

void configuration_command_line(int argc, char **argv, char *out, size_t room)
{
    size_t used = (size_t)snprintf(out, room, "memplan");
    for (int i = 0; i < argc && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, strchr(argv[i], ' ') ? " '%s'" : " %s", argv[i]);
}
