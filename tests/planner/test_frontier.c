/* The frontier of recomputation against brute force over every subset of a layer's droppable tensors. */
#include "tests/planner/planner_sample.h"
#include "tests/test.h"

#include "base/checked.h"
#include "model/recompute.h"
#include "planner/frontier.h"

#include <stdlib.h>

static const char *const families[] = {"gpt2-tiny", "llama-tiny", "block-tiny"};

struct measured {
    int64_t saved, working;
    double seconds;
};

static struct measured measure(const struct program *program, uint32_t mask,
                               const struct machine_speed *speed)
{
    const struct layout *layout = &program->layout;
    struct block block;
    block_build_layer(&block, &program->model, block_shape_of(layout), false);
    recompute_apply(&block, mask);
    block_measure(&block, false);
    return (struct measured){block.saved_bytes, max_i64(block.forward.bytes, block.backward.bytes),
                             time_model_block(program, &block, speed).recompute};
}

/* As little of everything as a set of tensors. */
static bool covers(const struct frontier_point *point, const struct measured *m)
{
    return point->set.bytes.saved <= m->saved && point->set.bytes.working <= m->working &&
           point->time.recompute <= m->seconds * (1 + 1e-12);
}

static bool is_covered(const struct frontier *frontier, const struct measured *m)
{
    for (int i = 0; i < frontier->count; i++)
        if (covers(&frontier->points[i], m))
            return true;
    return false;
}

static void open_frontier(const char *family, struct layout layout, struct model *model,
                          struct program **program, struct layer_sets *sets, struct frontier *frontier,
                          struct machine_speed *speed)
{
    struct error err = {0};
    *model = sample_model(family, 2);
    layout.micro_batch = 2;
    layout.global_batch = 4;
    layout.seq_len = 32;
    ASSERT_OK(layout_complete(&layout, model, &err));
    machine_speed_from_cpuinfo("", 2, speed);
    *program = sample_program(model, &layout, 0, 0, 0);
    layer_sets_create(*program, sets);
    frontier_create(sets, *program, speed, frontier);
}

static void close_frontier(struct program *program, struct layer_sets *sets, struct frontier *frontier)
{
    frontier_clear(frontier);
    layer_sets_clear(sets);
    program_free(program);
}

TEST_LOOP(frontier_is_least,
          "every set of a layer's tensors is covered by the frontier, and no point of it by another", 3)
{
    static const struct layout layouts[] = {{.dp = 1}, {.tp = 2}, {.tp = 2, .sequence_parallel = true}};
    for (size_t layout = 0; layout < sizeof layouts / sizeof layouts[0]; layout++) {
        struct model model;
        struct program *program;
        struct layer_sets sets;
        struct frontier frontier;
        struct machine_speed speed;
        open_frontier(families[_i], layouts[layout], &model, &program, &sets, &frontier, &speed);
        ASSERT_INT(sets.count, 128); /* 7 operations of a layer make what can be dropped */
        for (int i = 0; i < sets.count; i++) {
            struct measured m = measure(program, sets.sets[i].mask, &speed);
            ASSERT(is_covered(&frontier, &m));
        }
        for (int i = 0; i < frontier.count; i++)
            for (int k = 0; k < frontier.count; k++) {
                struct measured other = measure(program, frontier.points[k].set.mask, &speed);
                other.seconds *= 1 - 2e-12;
                ASSERT(i == k || !covers(&frontier.points[i], &other));
            }
        close_frontier(program, &sets, &frontier);
    }
}

TEST_LOOP(frontier_scales, "bytes of a micro-batch of 5 are 5 times those of one sequence", 3)
{
    struct model model = sample_model(families[_i], 2);
    struct layout layout = sample_layout(&model, 1, 5, 5, 24);
    struct machine_speed speed = sample_speed();
    struct program *program = sample_program(&model, &layout, 0, 0, 0);
    struct layer_sets sets;
    struct frontier frontier;
    layer_sets_create(program, &sets);
    frontier_create(&sets, program, &speed, &frontier);
    for (int i = 0; i < frontier.count; i++) {
        struct measured m = measure(program, frontier.points[i].set.mask, &speed);
        ASSERT_INT(frontier.points[i].set.bytes.saved, m.saved);
        ASSERT_INT(frontier.points[i].set.bytes.working, m.working);
    }
    frontier_clear(&frontier);
    layer_sets_clear(&sets);
    program_free(program);
}

TEST(frontier_begins_with_nothing,
     "the frontier starts with no recomputation, and ends below what Megatron's full keeps")
{
    struct model model = sample_model("gpt2-tiny", 2);
    struct layout layout = sample_layout(&model, 1, 1, 1, 64);
    struct machine_speed speed;
    machine_speed_from_cpuinfo("", 2, &speed);
    struct program *program = sample_program(&model, &layout, 0, 0, 0);
    struct layer_sets sets;
    struct frontier frontier;
    layer_sets_create(program, &sets);
    frontier_create(&sets, program, &speed, &frontier);
    ASSERT_INT(frontier.points[0].set.mask, 0);
    ASSERT(frontier.points[0].time.recompute == 0);
    ASSERT_INT(sets.sets[127].mask, recompute_full(&model));
    int64_t least = INT64_MAX;
    for (int i = 0; i < frontier.count; i++) {
        least = min_i64(least, frontier.points[i].set.bytes.saved);
        ASSERT(i == 0 || frontier.points[i - 1].time.recompute <= frontier.points[i].time.recompute);
    }
    ASSERT_INT(least, sets.sets[127].bytes.saved); /* x alone: T C = 64 * 32 floats */
    ASSERT_INT(least, 8192);
    frontier_clear(&frontier);
    layer_sets_clear(&sets);
    program_free(program);
}
