/* llm.c has no caching allocator: everything is taken at start, in as many pieces as there are kinds, so its figure is a sum. */
#include "planner/frameworks/workload_parts.h"

static void add(struct replay_census *census, int label, double bytes)
{
    if (bytes < 1)
        return;
    census->count[label]++;
    census->bytes[label] += (int64_t)bytes;
}

static int rank_label(enum rank_rule rule)
{
    return LABEL_RANK + (int)rule * MODEL_PARTS;
}

static void add_states(const struct workload *w, struct replay_census *census)
{
    double parameters = workload_parameters(w);
    double shards = w->sharding == WORKLOAD_REPLICATED ? 1 : (double)w->dp;
    add(census, rank_label(RANK_WEIGHT), w->weight_bytes * parameters);
    add(census, rank_label(RANK_GRADIENT_BUFFER), w->gradient_bytes * parameters);
    add(census, rank_label(RANK_MASTER), w->master_bytes * parameters / shards);
    add(census, rank_label(RANK_MOMENT_1), w->moment_bytes * parameters / shards);
    add(census, rank_label(RANK_MOMENT_2), w->moment_bytes * parameters / shards);
}

void workload_llmc_census(const struct workload *w, struct replay_census *census)
{
    unsigned holds = layer_conditions(w, false);
    add_states(w, census);
    unsigned again = layer_parts_again(w, 0); /* of every layer alike */
    for (int i = 0; i < layer_rule_count; i++)
        for (int64_t layer = 0; layer < w->model.layers; layer++)
            if ((layer_rules[i].conditions & holds) == layer_rules[i].conditions &&
                layer_rule_kept(w, &layer_rules[i], again))
                add(census, LABEL_LAYER + i, layer_rule_bytes(w, &layer_rules[i]));
    for (int i = 0; i < loss_forward_count; i++)
        if (loss_forward_rules[i].losses >> WORKLOAD_LOSS_FUSED & 1)
            add(census, LABEL_LOSS + i, loss_rule_bytes(w, &loss_forward_rules[i]));
    add(census, rank_label(RANK_LLMC_ENCODED), 2 * workload_hidden_bytes(w));
    add(census, rank_label(RANK_LLMC_GRADIENTS), 5 * workload_hidden_bytes(w));
    if (w->recompute == WORKLOAD_MODULES && w->modules & WORKLOAD_GELU)
        add(census, rank_label(RANK_LLMC_GELU), 4 * workload_hidden_bytes(w));
}
