#include "planner/frontier.h"

#include "base/arena.h"
#include "base/checked.h"
#include "model/recompute.h"

#include <stdlib.h>
#include <string.h>

static void build(struct block *block, const struct program *program, int64_t micro_batch, uint32_t mask,
                  bool first)
{
    struct block_shape shape = block_shape_of(&program->layout);
    shape.B = micro_batch;
    block_build_layer(block, &program->model, shape, first);
    recompute_apply(block, mask);
}

static bool first_differs(const struct program *program)
{
    return program->model.family == MODEL_ENCODER;
}

/* ------------------------------------------------------------------------------------------------------------- sets */

static struct layer_bytes measure(const struct program *program, uint32_t mask, bool first)
{
    struct block block;
    build(&block, program, 1, mask, first);
    block_weigh(&block);
    return (struct layer_bytes){block.saved_bytes, max_i64(block.forward.bytes, block.backward.bytes)};
}

void layer_sets_create(const struct program *program, struct layer_sets *out)
{
    out->count = (int)recompute_full(&program->model) + 1;
    out->sets = host_alloc((size_t)out->count * sizeof *out->sets);
    for (int mask = 0; mask < out->count; mask++) {
        struct layer_set *set = &out->sets[mask];
        set->mask = (uint32_t)mask;
        set->bytes = measure(program, set->mask, false);
        set->first_bytes = first_differs(program) ? measure(program, set->mask, true) : set->bytes;
    }
}

void layer_sets_clear(struct layer_sets *sets)
{
    free(sets->sets);
    *sets = (struct layer_sets){0};
}

/* --------------------------------------------------------------------------------------------------------- frontier */

static struct layer_bytes times(struct layer_bytes bytes, int64_t micro_batch)
{
    return (struct layer_bytes){bytes.saved * micro_batch, bytes.working * micro_batch};
}

static struct frontier_point point_of(const struct layer_set *set, const struct program *program,
                                      const struct machine_speed *speed)
{
    int64_t micro_batch = program->layout.micro_batch;
    struct block block;
    struct frontier_point point = {
        .set = {set->mask, times(set->bytes, micro_batch), times(set->first_bytes, micro_batch)}};
    build(&block, program, micro_batch, set->mask, false);
    point.time = point.first_time = time_model_block(program, &block, speed);
    if (first_differs(program)) {
        build(&block, program, micro_batch, set->mask, true);
        point.first_time = time_model_block(program, &block, speed);
    }
    return point;
}

/* As little of everything as `b`; true of equals too. */
static bool covers(const struct frontier_point *a, const struct frontier_point *b)
{
    return a->set.bytes.saved <= b->set.bytes.saved && a->set.bytes.working <= b->set.bytes.working &&
           a->time.recompute <= b->time.recompute;
}

/* Of equals the first stays. */
static bool is_beaten(const struct frontier_point *points, int count, int index)
{
    for (int i = 0; i < count; i++)
        if (i != index && covers(&points[i], &points[index]) &&
            (i < index || !covers(&points[index], &points[i])))
            return true;
    return false;
}

static int by_time(const void *a, const void *b)
{
    const struct frontier_point *x = a, *y = b;
    if (x->time.recompute != y->time.recompute)
        return x->time.recompute < y->time.recompute ? -1 : 1;
    return (x->set.mask > y->set.mask) - (x->set.mask < y->set.mask);
}

void frontier_create(const struct layer_sets *sets, const struct program *program,
                     const struct machine_speed *speed, struct frontier *out)
{
    struct frontier_point *all = host_alloc((size_t)sets->count * sizeof *all);
    *out = (struct frontier){
        .program = program,
        .points = host_alloc((size_t)sets->count * sizeof *out->points),
        .embed = time_model_block(program, program_block(program, 0), speed),
        .head = time_model_block(program, program_block(program, program->instances - 1), speed),
    };
    for (int i = 0; i < sets->count; i++)
        all[i] = point_of(&sets->sets[i], program, speed);
    for (int i = 0; i < sets->count; i++)
        if (!is_beaten(all, sets->count, i))
            out->points[out->count++] = all[i];
    free(all);
    qsort(out->points, (size_t)out->count, sizeof *out->points, by_time);
}

void frontier_clear(struct frontier *frontier)
{
    free(frontier->points);
    *frontier = (struct frontier){0};
}
