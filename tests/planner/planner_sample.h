/* Models, layouts and speeds that the planner's tests share. */
#ifndef MEMPLAN_TESTS_PLANNER_SAMPLE_H
#define MEMPLAN_TESTS_PLANNER_SAMPLE_H

#include "model/pipeline.h"
#include "planner/machine_speed.h"
#include "tests/model/first_stage.h"
#include "tests/test.h"

#include <stdint.h>
#include <string.h>

/* The same numbers everywhere, below `bound`. */
static inline uint32_t sample_below(uint32_t *state, uint32_t bound)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % bound;
}

/* A preset with so many layers. */
static inline struct model sample_model(const char *name, int64_t layers)
{
    struct model model;
    struct error err = {0};
    struct model_overrides overrides = {.layers = layers};
    ASSERT_OK(model_read(name, &overrides, &model, &err));
    return model;
}

static inline struct layout sample_layout(const struct model *model, int64_t dp, int64_t micro_batch,
                                          int64_t global_batch, int64_t seq_len)
{
    struct error err = {0};
    struct layout layout = {
        .dp = dp, .micro_batch = micro_batch, .global_batch = global_batch, .seq_len = seq_len};
    ASSERT_OK(layout_complete(&layout, model, &err));
    return layout;
}

/* Any layout's programs, nothing recomputed; `layout` is completed. */
static inline struct pipeline *sample_pipeline(const struct model *model, struct layout layout)
{
    struct error err = {0};
    struct pipeline *pipeline;
    ASSERT_OK(layout_complete(&layout, model, &err));
    struct program_spec spec = {.model = model, .layout = &layout};
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    return pipeline;
}

/* `lower` layers with one mask, the others with another. */
static inline struct program *sample_program(const struct model *model, const struct layout *layout, int64_t lower,
                                             uint32_t lower_mask, uint32_t upper_mask)
{
    struct error err = {0};
    struct program *program;
    uint32_t masks[64];
    ASSERT(model->layers <= 64);
    for (int64_t layer = 0; layer < model->layers; layer++)
        masks[layer] = layer < lower ? lower_mask : upper_mask;
    ASSERT_OK(program_create(model, layout, masks, &program, &err));
    return program;
}

/* Every product at 1 GFLOP/s; nothing else takes time, and ranks share nothing. */
static inline struct machine_speed sample_speed(void)
{
    struct machine_speed speed = {
        .matmul_flops_per_s = {1e9, 1e9, 1e9, 1e9},
        .attention_flops_per_s = {1e9, SPEED_MEASURED},
        .memory_bytes_per_s = {1e300, SPEED_MEASURED},
        .comm_bytes_per_s = {1e300, SPEED_MEASURED},
        .net_bytes_per_s = {1e300, SPEED_MEASURED},
        .ranks_per_node = INT64_MAX,
        .overlap = 1,
    };
    return speed;
}

#endif
