/* The least recomputation of a layout whose stages have their layers, against all that could be built. */
#include "tests/planner/planner_sample.h"
#include "tests/test.h"

#include "base/arena.h"
#include "model/recompute.h"
#include "planner/refit.h"
#include "planner/time_model.h"

#include <math.h>
#include <stdlib.h>

static const char *const families[] = {"gpt2-tiny", "llama-tiny", "block-tiny"};

/* Two stages of two layers and one. */
static double step_of(const struct refit_question *q, const uint32_t masks[3], double room_share)
{
    struct error err = {0};
    struct pipeline *pipeline;
    struct step_time time = {.total = INFINITY};
    struct program_spec spec = {q->model, q->layout, masks, q->chunk_layers, 0};
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    if ((double)pipeline->stages[0]->arena_bytes <= room_share * (double)q->rooms[0] &&
        (double)pipeline->stages[1]->arena_bytes <= room_share * (double)q->rooms[1])
        ASSERT_OK(time_model_pipeline(pipeline, q->speed, NULL, &time, &err));
    pipeline_free(pipeline);
    return time.total;
}

/* The fastest step with one set for all layers, or two, that fits; and with three of a few sets that fits with 5% to spare. */
static double best_step(const struct refit_question *q)
{
    uint32_t full = recompute_full(q->model);
    uint32_t few[] = {0, full, recompute_selective(q->model), full & 0x15, full & 0x2a, full & 0x63};
    double best = INFINITY;
    for (uint32_t i = 0; i <= full; i++)
        for (int k = 0; k < 6; k++)
            best = fmin(best, step_of(q, (uint32_t[]){i, i, few[k]}, 1));
    for (int number = 0; number < 216; number++)
        best = fmin(best,
                    step_of(q, (uint32_t[]){few[number % 6], few[number / 6 % 6], few[number / 36]}, 0.95));
    return best;
}

static double step_with(const struct refit_question *q, const uint32_t *masks, const int64_t *rooms)
{
    struct error err = {0};
    struct pipeline *pipeline;
    struct step_time time;
    struct program_spec spec = {q->model, q->layout, masks, q->chunk_layers, 0};
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    for (int i = 0; i < pipeline->count; i++)
        ASSERT(pipeline->stages[i]->arena_bytes <= rooms[i]);
    ASSERT_OK(time_model_pipeline(pipeline, q->speed, NULL, &time, &err));
    pipeline_free(pipeline);
    return time.total;
}

TEST_DEFINE(refit_is_best,
            "each stage recomputes as little as fits its own room, and no stage's sets do better", 3, true)
{
    struct error err = {0};
    struct model model = sample_model(families[_i], 3);
    struct layout layout = {.pp = 2, .micro_batch = 2, .global_batch = 8, .seq_len = 16};
    struct machine_speed speed;
    int64_t chunk_layers[] = {2, 1}, plain[2], least[2], least_bytes, short_stage;
    uint32_t masks[3] = {0};
    machine_speed_from_cpuinfo("", 2, &speed);
    ASSERT_OK(layout_complete(&layout, &model, &err));
    struct refit_question q = {&model, &layout, chunk_layers, &speed, plain};
    struct program_spec spec = {&model, &layout, masks, chunk_layers, 0};
    for (int end = 0; end < 2; end++) {
        struct pipeline *pipeline;
        ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
        for (int i = 0; i < 2; i++)
            (end ? least : plain)[i] = pipeline->stages[i]->arena_bytes;
        pipeline_free(pipeline);
        ASSERT_OK(refit_least(&q, masks, &least_bytes, &err));
    }
    ASSERT_INT(least_bytes, least[0] > least[1] ? least[0] : least[1]);
    for (int part = 0; part <= 3; part++) {
        int64_t rooms[] = {least[0] + (plain[0] - least[0]) * part / 3,
                           least[1] + (plain[1] - least[1]) * (3 - part) / 3};
        q.rooms = rooms;
        ASSERT_OK(refit_masks(&q, masks, &short_stage, &least_bytes, &err));
        ASSERT_INT(short_stage, -1);
        ASSERT(step_with(&q, masks, rooms) <= best_step(&q) * (1 + 1e-9));
    }
    int64_t rooms[] = {plain[0], least[1] - 1};
    q.rooms = rooms;
    ASSERT_OK(refit_masks(&q, masks, &short_stage, &least_bytes, &err));
    ASSERT_INT(short_stage, 1);
    ASSERT_INT(least_bytes, least[1]);
}

TEST(refit_unlike_chunks,
     "a stage whose chunks share its layers as no plan would gets one set, the fastest that fits")
{
    struct error err = {0};
    struct model model = sample_model("gpt2-tiny", 8);
    struct layout layout = {.pp = 2, .virtual_stages = 3, .micro_batch = 1, .global_batch = 4, .seq_len = 16};
    struct machine_speed speed;
    int64_t rooms[2], short_stage, least_bytes, chunk_layers[] = {1, 1, 3, 1, 1, 1};
    uint32_t masks[8] = {0};
    machine_speed_from_cpuinfo("", 2, &speed);
    ASSERT_OK(layout_complete(&layout, &model, &err));
    struct refit_question q = {&model, &layout, chunk_layers, &speed, rooms};
    struct program_spec spec = {&model, &layout, masks, chunk_layers, 0};
    struct pipeline *pipeline;
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    for (int i = 0; i < 2; i++)
        rooms[i] = pipeline->stages[i]->arena_bytes - (i == 0);
    pipeline_free(pipeline);
    ASSERT_OK(refit_masks(&q, masks, &short_stage, &least_bytes, &err));
    ASSERT_INT(short_stage, -1);
    for (int i = 2; i < 5; i++)
        ASSERT(masks[0] && masks[0] == masks[i] && masks[0] == masks[6]);
    ASSERT(!masks[1] && !masks[5] && !masks[7]);
    step_with(&q, masks, rooms);
}
