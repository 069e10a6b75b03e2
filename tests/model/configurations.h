/* Random configurations of every kind: family, shape, precision, micro-batches, ranks, recomputation per layer. The same
 * seed gives the same configuration everywhere. */
#ifndef MEMPLAN_TESTS_MODEL_CONFIGURATIONS_H
#define MEMPLAN_TESTS_MODEL_CONFIGURATIONS_H

#include "model/pipeline.h"
#include "model/recompute.h"
#include "tests/model/first_stage.h"
#include "tests/test.h"

#include <stdio.h>
#include <string.h>

enum { CONFIGURATION_LAYERS = 6 };

struct configuration {
    struct model model;
    struct layout layout;
    uint32_t recompute[CONFIGURATION_LAYERS];
    int64_t chunk_layers[CONFIGURATION_LAYERS];
};

/* SplitMix64 (Steele, Lea, Flood 2014). */
static inline uint64_t configuration_bits(uint64_t *state)
{
    uint64_t mixed = *state += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    return mixed ^ mixed >> 31;
}

/* Uniform in first .. last. */
static inline int64_t configuration_pick(uint64_t *state, int64_t first, int64_t last)
{
    return first + (int64_t)(configuration_bits(state) % (uint64_t)(last - first + 1));
}

/* Sizes that no two dimensions share by habit; `large` ones are above 1 MiB of peak, the others may have a handful of
 * bytes. */
static inline void configuration_shape(uint64_t *state, bool large, struct configuration *c)
{
    struct model *m = &c->model;
    m->family = (enum model_family)configuration_pick(state, 0, 2);
    bool llama = m->family == MODEL_LLAMA;
    m->layers = configuration_pick(state, 1, CONFIGURATION_LAYERS);
    m->kv_heads = configuration_pick(state, 1, 4);
    m->heads = m->kv_heads * (llama ? configuration_pick(state, 1, 4) : 1);
    m->head_size = 2 * configuration_pick(state, 1, large ? 64 : 8);
    m->hidden = m->heads * m->head_size * (llama && configuration_pick(state, 0, 3) == 0 ? 2 : 1);
    m->ffn = configuration_pick(state, 0, 1) ? 4 * m->hidden : configuration_pick(state, 1, 6 * m->hidden);
    m->vocab = configuration_pick(state, 1, configuration_pick(state, 0, 1) ? 300 : large ? 50000 : 3000);
    m->max_seq_len = configuration_pick(state, large ? 64 : 1, large ? 2048 : 40);
    m->norm_eps = 1e-5;
    m->rope_theta = 10000;
    m->tied = m->family == MODEL_GPT2 || (llama && configuration_pick(state, 0, 1));
    m->qkv_bias = !llama || configuration_pick(state, 0, 1);
    m->proj_bias = !llama || configuration_pick(state, 0, 1);
    m->qk_norm = llama && (*state >> 40 & 1);
    m->qk_norm_whole = m->qk_norm && (*state >> 41 & 1);
    m->norms = llama && !m->proj_bias && (*state >> 42 & 1) ? (*state >> 43 & 1 ? NORMS_AROUND : NORMS_BEHIND) : NORMS_BEFORE;
    m->usual_batch = 1;
}

/* One rank in half of all configurations; else any number that shares out what has to divide. */
static inline void configuration_share(uint64_t *state, struct configuration *c)
{
    const struct model *m = &c->model;
    struct layout *l = &c->layout;
    int64_t tp = configuration_pick(state, 0, 1) ? 1 : configuration_pick(state, 2, 4);
    bool shares = m->heads % tp == 0 && m->kv_heads % tp == 0 && m->ffn % tp == 0 && m->vocab >= tp && !m->qk_norm_whole;
    l->tp = shares ? tp : 1;
    l->sequence_parallel = l->tp > 1 && l->seq_len % l->tp == 0 && configuration_pick(state, 0, 1);
}

static inline void configuration_layout(uint64_t *state, bool large, struct configuration *c)
{
    struct layout *l = &c->layout;
    l->dp = configuration_pick(state, 1, 3);
    l->micro_batch = configuration_pick(state, 1, large ? 64 : 4);
    l->global_batch = l->dp * l->micro_batch * configuration_pick(state, 1, 3);
    l->seq_len = configuration_pick(state, 1, c->model.max_seq_len);
    l->bucket_bytes = 1LL << configuration_pick(state, 8, 24);
    l->precision = (enum precision)configuration_pick(state, 0, 2);
    configuration_share(state, c);
}

/* Nothing, everything, the usual subset, one random set for all, or a random set for each layer. */
static inline void configuration_recompute(uint64_t *state, struct configuration *c)
{
    uint32_t full = recompute_full(&c->model), one = (uint32_t)configuration_bits(state) & full;
    int64_t kind = configuration_pick(state, 0, 7);
    for (int64_t layer = 0; layer < c->model.layers; layer++)
        c->recompute[layer] = kind == 0   ? 0
                              : kind == 1 ? full
                              : kind == 2 ? recompute_selective(&c->model)
                              : kind <= 4 ? one
                                          : (uint32_t)configuration_bits(state) & full;
    for (int64_t layer = 1; kind == 7 && layer < c->model.layers; layer++)
        if (configuration_pick(state, 0, 1))
            c->recompute[layer] = c->recompute[layer - 1];
}

static inline void configuration_draw(uint64_t *seed, bool large, struct configuration *c)
{
    memset(c, 0, sizeof *c);
    snprintf(c->model.name, sizeof c->model.name, "random %llu", (unsigned long long)*seed);
    configuration_shape(seed, large, c);
    configuration_layout(seed, large, c);
    configuration_recompute(seed, c);
}

/* Configuration number `seed` and its program; the caller frees the program. */
static inline struct program *configuration_program(uint64_t seed, bool large, struct configuration *c)
{
    struct error err;
    struct program *program;
    configuration_draw(&seed, large, c);
    ASSERT_OK(model_check(&c->model, &err));
    ASSERT_OK(layout_complete(&c->layout, &c->model, &err));
    ASSERT_OK(program_create(&c->model, &c->layout, c->recompute, &program, &err));
    return program;
}

/* Stages and schedule, and layers shared out at random, each chunk with one at least. */
static inline void configuration_cut(uint64_t *state, struct configuration *c)
{
    struct layout *l = &c->layout;
    if (c->model.layers == 1)
        c->model.layers = 2;
    l->pp = configuration_pick(state, 2, c->model.layers < 4 ? c->model.layers : 4);
    l->virtual_stages = configuration_pick(state, 1, c->model.layers / l->pp);
    l->schedule =
        l->virtual_stages > 1 ? SCHEDULE_INTERLEAVED : (enum schedule_kind[]){SCHEDULE_1F1B, SCHEDULE_GPIPE, SCHEDULE_ZB_H1}[configuration_pick(state, 0, 2)];
    l->zero = (int)configuration_pick(state, 0, 1);
    int64_t rounds = configuration_pick(state, 1, 3);
    l->global_batch = l->dp * l->micro_batch * (l->virtual_stages > 1 ? l->pp * rounds : configuration_pick(state, 1, 9));
    for (int64_t i = 0; i < layout_chunks(l); i++)
        c->chunk_layers[i] = 1;
    for (int64_t rest = c->model.layers - layout_chunks(l); rest > 0; rest--)
        c->chunk_layers[configuration_pick(state, 0, layout_chunks(l) - 1)]++;
}

/* Leaves the embedding alone, or the head, or both, where that may be. */
static inline void configuration_bare(uint64_t seed, struct configuration *c)
{
    int64_t last = layout_chunks(&c->layout) - 1;
    if (layout_least_layers(&c->layout, &c->model, 0))
        return;
    if (seed % 3 < 2) {
        c->chunk_layers[1] += c->chunk_layers[0];
        c->chunk_layers[0] = 0;
    }
    if (seed % 3 > 0 && last > 1) {
        c->chunk_layers[last - 1] += c->chunk_layers[last];
        c->chunk_layers[last] = 0;
    }
}

/* Configuration number `seed` as a pipeline of two stages or more, with bare ends or without; the caller frees it. */
static inline struct pipeline *configuration_pipeline(uint64_t seed, bool large, bool bare, struct configuration *c)
{
    struct error err;
    struct pipeline *pipeline;
    uint64_t number = seed;
    configuration_draw(&seed, large, c);
    configuration_cut(&seed, c);
    if (bare)
        configuration_bare(number, c);
    ASSERT_OK(model_check(&c->model, &err));
    ASSERT_OK(layout_complete(&c->layout, &c->model, &err));
    struct program_spec spec = {&c->model, &c->layout, c->recompute, c->chunk_layers, 0};
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    return pipeline;
}

#endif
