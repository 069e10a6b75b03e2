#include "planner/export_recompute.h"

#include "base/arena.h"
#include "base/checked.h"
#include "model/recompute.h"
#include "planner/export_parts.h"

#include <stdlib.h>
#include <string.h>

/* What Megatron-LM's --recompute-modules names, as sets of ours. Its layers are Transformer Engine's, whose norms are one module
 * with the product behind them: mlp makes the second norm again too, and layernorm, which is about norms that stand apart, nothing
 * (megatron/core/models/gpt/gpt_layer_specs.py; docs/memory-model.md, section 11). */
static const struct module {
    const char *name, *gpt2, *llama;
} modules[] = {
    {"core_attn", "attention", "attention"},
    {"mlp", "norm2+up+gelu", "norm2+gate_up+swiglu"},
};
enum { MODULES = sizeof modules / sizeof modules[0] };

const char *export_module_name(int module)
{
    return module < MODULES ? modules[module].name : NULL;
}

static uint32_t mask_of(const struct model *model, unsigned chosen)
{
    uint32_t all = 0;
    for (int i = 0; i < MODULES; i++) {
        uint32_t mask = 0;
        const char *set = model->family == MODEL_LLAMA ? modules[i].llama : modules[i].gpt2;
        if (chosen >> i & 1 && !recompute_parse_set(set, model, &mask, NULL))
            all |= mask;
    }
    return all;
}

/* The modules that together give up the most of `mask`. */
static unsigned cover(const struct model *model, uint32_t mask)
{
    unsigned chosen = 0;
    for (unsigned i = 0; i < MODULES; i++)
        if (mask & mask_of(model, 1u << i))
            chosen |= 1u << i;
    return chosen;
}

/* The fewest first layers of every chunk that have every layer among them which recomputes anything. */
static void find_whole_layers(const struct plan *plan, struct export_recompute *out)
{
    int64_t chunks = layout_chunks(&plan->layout), *layers = export_chunk_layers(plan), longest = 0;
    out->count = 0;
    for (int64_t c = 0, first = 0; c < chunks; first += layers[c++]) {
        longest = max_i64(longest, layers[c]);
        for (int64_t l = 0; l < layers[c]; l++)
            if (plan->recompute[first + l])
                out->count = max_i64(out->count, l + 1);
    }
    out->all = out->count == longest;
    free(layers);
}

void export_recompute_fill(const struct plan *plan, const struct export_recompute *recompute, uint32_t *masks)
{
    int64_t chunks = layout_chunks(&plan->layout), *layers = export_chunk_layers(plan);
    uint32_t full = recompute_full(&plan->model), same = mask_of(&plan->model, recompute->modules);
    for (int64_t c = 0, first = 0; c < chunks; first += layers[c++])
        for (int64_t l = 0; l < layers[c]; l++)
            masks[first + l] = recompute->way == EXPORT_MODULES                         ? same
                               : recompute->way == EXPORT_WHOLE && l < recompute->count ? full
                                                                                        : 0;
    free(layers);
}

static bool is_exact(const struct plan *plan, const struct export_recompute *recompute)
{
    size_t bytes = (size_t)plan->model.layers * sizeof(uint32_t);
    uint32_t *masks = host_alloc(bytes);
    export_recompute_fill(plan, recompute, masks);
    bool exact = !memcmp(masks, plan->recompute, bytes);
    free(masks);
    return exact;
}

static struct export_recompute make(const struct plan *plan, struct export_recompute recompute)
{
    recompute.exact = is_exact(plan, &recompute);
    return recompute;
}

struct export_recompute export_recompute_of(enum export_target target, const struct plan *plan)
{
    uint32_t all = 0;
    for (int64_t l = 0; l < plan->model.layers; l++)
        all |= plan->recompute[l];
    if (!all)
        return make(plan, (struct export_recompute){.way = EXPORT_NOTHING});
    struct export_recompute whole = {.way = EXPORT_WHOLE};
    find_whole_layers(plan, &whole);
    if (target == EXPORT_TORCHTITAN) {
        whole.count = plan->model.layers;
        whole.all = true;
        return make(plan, whole);
    }
    struct export_recompute same = {.way = EXPORT_MODULES, .modules = cover(&plan->model, all)};
    bool covered = !(all & ~mask_of(&plan->model, same.modules));
    whole = make(plan, whole);
    return whole.exact || !covered ? whole : make(plan, same);
}

int export_recompute_sets(enum export_target target, const struct model *model, uint32_t sets[EXPORT_SETS])
{
    int count = 0;
    for (unsigned chosen = 0; chosen < (target == EXPORT_MEGATRON ? 1u << MODULES : 1); chosen++)
        sets[count++] = mask_of(model, chosen);
    sets[count++] = recompute_full(model);
    return count;
}
