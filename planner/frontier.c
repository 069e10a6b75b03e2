#include "planner/frontier.h"

#include "base/arena.h"
#include "base/checked.h"
#include "model/recompute.h"

#include <stdlib.h>
#include <string.h>

enum { GROUPS_MAX = 10 };

static void build(struct block *block, const struct program *program, int64_t micro_batch, uint32_t mask,
                  bool first)
{
    struct block_shape shape = {micro_batch, program->layout.seq_len,
                                precision_dtype(program->layout.precision)};
    block_build_layer(block, &program->model, shape, first);
    recompute_apply(block, mask);
}

static bool first_differs(const struct program *program)
{
    return program->model.family == MODEL_ENCODER;
}

/* ------------------------------------------------------------------------------------------------------------- sets */

/* The droppable tensors that `op` writes, as a mask. */
static uint32_t droppable_outputs(const struct block *block, const struct op *op)
{
    uint32_t mask = 0;
    for (int i = 0; i < OP_OUTPUTS; i++)
        if (op->outputs[i] >= 0 && block->tensors[op->outputs[i]].drop_bit >= 0)
            mask |= 1u << block->tensors[op->outputs[i]].drop_bit;
    return mask;
}

/* One mask per group of tensors made together; operations that write the same tensor (a rotation in place) share a group. */
static int find_groups(const struct block *block, uint32_t groups[GROUPS_MAX])
{
    int count = 0;
    for (int i = 0; i < block->forward_count; i++) {
        uint32_t mask = droppable_outputs(block, &block->ops[i]);
        int known = 0;
        while (known < count && !(groups[known] & mask))
            known++;
        if (known < count)
            groups[known] |= mask;
        else if (mask && count < GROUPS_MAX)
            groups[count++] = mask;
    }
    return count;
}

static struct layer_bytes measure(const struct program *program, uint32_t mask, bool first)
{
    struct block block;
    build(&block, program, 1, mask, first);
    block_measure(&block);
    return (struct layer_bytes){block.saved_bytes, max_i64(block.forward.bytes, block.backward.bytes)};
}

void layer_sets_create(const struct program *program, struct layer_sets *out)
{
    uint32_t groups[GROUPS_MAX];
    struct block plain;
    build(&plain, program, 1, 0, false);
    int group_count = find_groups(&plain, groups);
    out->count = 1 << group_count;
    out->sets = host_alloc((size_t)out->count * sizeof *out->sets);
    for (int chosen = 0; chosen < out->count; chosen++) {
        struct layer_set *set = &out->sets[chosen];
        for (int group = 0; group < group_count; group++)
            set->mask |= chosen >> group & 1 ? groups[group] : 0;
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
