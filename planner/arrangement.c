#include "planner/arrangement.h"

#include "base/arena.h"
#include "base/checked.h"

#include <stdbool.h>
#include <stdlib.h>

struct arrangement {
    int lower, upper;     /* points of the frontier */
    int64_t lower_layers; /* 0 .. lower_layers-1 are like `lower`, those above like `upper` */
    int64_t peak_bytes;
    double step_s;
};

static struct arrangement smallest(const struct frontier *frontier, const struct step_frame *frame);
static bool next_fastest(const struct frontier *frontier, const struct step_frame *frame, int64_t room,
                         const struct arrangement *after, struct arrangement *out,
                         struct arrangement_count *count);
static int build_program(const struct frontier *frontier, const struct arrangement *arrangement,
                         struct program **out, struct error *err);

int arrangement_fit(const struct program *plain, const struct layer_sets *sets,
                    const struct machine_speed *speed, int64_t room, struct program **out,
                    struct arrangement_count *count, struct error *err)
{
    struct frontier frontier;
    struct step_frame frame;
    struct arrangement now, before;
    struct arrangement_count unused = {0}, *counted = count ? count : &unused;
    int status = 0;
    *out = NULL;
    frontier_create(sets, plain, speed, &frontier);
    time_model_open(plain, speed, &frame);
    bool more = next_fastest(&frontier, &frame, room, NULL, &now, counted);
    while (more && !*out && !status) {
        status = build_program(&frontier, &now, out, err);
        if (!status && (*out)->arena_bytes > room) {
            program_free(*out);
            *out = NULL;
        }
        before = now;
        more = !*out && next_fastest(&frontier, &frame, room, &before, &now, &unused);
    }
    time_model_close(&frame);
    frontier_clear(&frontier);
    return status;
}

int arrangement_least(const struct program *plain, const struct layer_sets *sets,
                      const struct machine_speed *speed, struct program **out, struct error *err)
{
    struct frontier frontier;
    struct step_frame frame;
    frontier_create(sets, plain, speed, &frontier);
    time_model_open(plain, speed, &frame);
    struct arrangement least = smallest(&frontier, &frame);
    int status = build_program(&frontier, &least, out, err);
    time_model_close(&frame);
    frontier_clear(&frontier);
    return status;
}

/* Layers 0 .. lower_layers-1 like `lower`, the others like `upper`. */
struct split {
    const struct frontier *frontier;
    const struct frontier_point *lower, *upper;
    int64_t lower_layers;
};

static const struct frontier_point *bottom_of(const struct split *split)
{
    return split->lower_layers ? split->lower : split->upper;
}

/* Layers above the first. */
static int64_t lower_rest(const struct split *split)
{
    return split->lower_layers ? split->lower_layers - 1 : 0;
}

static int64_t upper_rest(const struct split *split)
{
    return split->frontier->program->model.layers - 1 - lower_rest(split);
}

struct stack {
    int64_t saved, peak;
};

/* `count` layers on top of what is there; while the highest of them runs, all below keep what they keep. */
static void pile(struct stack *stack, int64_t count, struct layer_bytes bytes)
{
    if (!count)
        return;
    stack->saved += count * bytes.saved;
    stack->peak = max_i64(stack->peak, stack->saved - bytes.saved + bytes.working);
}

static struct layer_bytes bytes_of(const struct block *block)
{
    return (struct layer_bytes){block->saved_bytes, max_i64(block->forward.bytes, block->backward.bytes)};
}

static int64_t peak_of(const struct split *split)
{
    const struct program *program = split->frontier->program;
    struct stack stack = {program->persistent_bytes, program->persistent_bytes};
    pile(&stack, 1, bytes_of(&program->blocks[program->runs[0].block]));
    pile(&stack, 1, bottom_of(split)->set.first_bytes);
    pile(&stack, lower_rest(split), split->lower->set.bytes);
    pile(&stack, upper_rest(split), split->upper->set.bytes);
    pile(&stack, 1, bytes_of(&program->blocks[program->runs[program->run_count - 1].block]));
    return stack.peak;
}

static struct step_time time_of(const struct split *split, const struct step_frame *frame)
{
    const struct timed_run runs[] = {
        {1, split->frontier->embed, false},
        {1, bottom_of(split)->first_time, true},
        {lower_rest(split), split->lower->time, true},
        {upper_rest(split), split->upper->time, true},
        {1, split->frontier->head, false},
    };
    return time_model_runs(frame, runs, sizeof runs / sizeof runs[0]);
}

static struct arrangement arrangement_of(const struct split *split, int64_t peak_bytes,
                                         const struct step_frame *frame)
{
    const struct frontier_point *points = split->frontier->points;
    return (struct arrangement){(int)(split->lower - points), (int)(split->upper - points),
                                split->lower_layers, peak_bytes, time_of(split, frame).total};
}

/* Fastest first, then smallest; the rest only makes the order complete. */
static bool precedes(const struct arrangement *a, const struct arrangement *b)
{
    if (a->step_s != b->step_s)
        return a->step_s < b->step_s;
    if (a->peak_bytes != b->peak_bytes)
        return a->peak_bytes < b->peak_bytes;
    if (a->lower != b->lower)
        return a->lower < b->lower;
    return a->upper != b->upper ? a->upper < b->upper : a->lower_layers < b->lower_layers;
}

/* All splits, one by one. */
static bool next_split(struct split *split)
{
    const struct frontier *frontier = split->frontier;
    const struct frontier_point *end = frontier->points + frontier->count;
    if (split->lower != split->upper && ++split->lower_layers < frontier->program->model.layers)
        return true;
    do {
        split->lower_layers = 0;
        if (++split->upper == end) {
            split->upper = frontier->points;
            if (++split->lower == end)
                return false;
        }
        split->lower_layers = split->lower != split->upper;
    } while (split->lower_layers >= frontier->program->model.layers);
    return true;
}

static struct split first_split(const struct frontier *frontier)
{
    return (struct split){frontier, frontier->points, frontier->points, 0};
}

/* The first in order, behind `after` unless it is NULL, whose peak is within the room. */
static bool next_fastest(const struct frontier *frontier, const struct step_frame *frame, int64_t room,
                         const struct arrangement *after, struct arrangement *out,
                         struct arrangement_count *count)
{
    bool found = false;
    struct split split = first_split(frontier);
    do {
        int64_t peak_bytes = peak_of(&split);
        count->weighed++;
        if (peak_bytes > room)
            continue;
        count->feasible++;
        struct arrangement candidate = arrangement_of(&split, peak_bytes, frame);
        if ((after && !precedes(after, &candidate)) || (found && !precedes(&candidate, out)))
            continue;
        *out = candidate;
        found = true;
    } while (next_split(&split));
    return found;
}

static struct arrangement smallest(const struct frontier *frontier, const struct step_frame *frame)
{
    struct arrangement least = {.peak_bytes = INT64_MAX};
    struct split split = first_split(frontier);
    do {
        int64_t peak_bytes = peak_of(&split);
        if (peak_bytes < least.peak_bytes)
            least = arrangement_of(&split, peak_bytes, frame);
    } while (next_split(&split));
    return least;
}

static int build_program(const struct frontier *frontier, const struct arrangement *arrangement,
                         struct program **out, struct error *err)
{
    const struct program *plain = frontier->program;
    uint32_t *masks = host_alloc((size_t)plain->model.layers * sizeof *masks);
    for (int64_t layer = 0; layer < plain->model.layers; layer++) {
        int point = layer < arrangement->lower_layers ? arrangement->lower : arrangement->upper;
        masks[layer] = frontier->points[point].set.mask;
    }
    int status = program_create(&plain->model, &plain->layout, masks, out, err);
    free(masks);
    return status;
}
