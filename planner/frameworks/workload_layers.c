/* Layers: the rules of layer_rules.c taken and released in order, forward and backward. */
#include "planner/frameworks/workload_parts.h"

#include "base/checked.h"

void workload_pass_time(struct rank *rank, struct temporaries *temporaries)
{
    for (int i = 0; i < temporaries->count; i++)
        if (temporaries->tensors[i] >= 0 && --temporaries->life[i] <= 0)
            replay_drop(rank->r, &temporaries->tensors[i]);
}

void workload_drop_all(struct rank *rank, struct temporaries *temporaries)
{
    for (int i = 0; i < temporaries->count; i++)
        replay_drop(rank->r, &temporaries->tensors[i]);
    temporaries->count = 0;
}

static unsigned layer_holds(const struct rank *rank, int64_t layer)
{
    const struct workload_model *m = &rank->w->model;
    return layer_conditions(rank->w, m->experts && layer >= m->dense_layers);
}

/* Global number of a layer of the stage: whether it is dense, or made again, depends on it. */
int64_t workload_global_layer(const struct rank *rank, int64_t local)
{
    int64_t chunk = 0;
    while (local >= rank->first[chunk + 1])
        chunk++;
    return rank->starts[chunk] + local - rank->first[chunk];
}

/* `again`: parts that recomputation makes in backward; 0: the pass before it. */
void workload_layer_forward(struct rank *rank, int64_t local, int *kept, unsigned again)
{
    const struct workload *w = rank->w;
    int64_t layer = workload_global_layer(rank, local);
    unsigned holds = layer_holds(rank, layer), not_kept = layer_parts_again(w, layer);
    struct temporaries temporaries = {.count = 0};
    int widened = -1;
    for (int i = 0; i < layer_rule_count; i++) {
        const struct layer_rule *rule = &layer_rules[i];
        if ((rule->conditions & holds) != rule->conditions || kept[i] >= 0 ||
            (again && again != PART_ALL && !(rule->parts & again)))
            continue;
        int tensor =
            replay_take(rank->r, layer_rule_bytes(w, rule), ROLE_ACTIVATION, LABEL_LAYER + i, REPLAY_COMPUTE);
        if (tensor < 0 && rule->matrix == MATRIX_NONE)
            continue; /* the model has none */
        bool stays =
            again ? layer_rule_saved(w, rule) : layer_rule_kept(w, rule, not_kept) && !w->inputs_offloaded;
        replay_drop(rank->r, &widened);
        widened = workload_widen(rank, local, rule->matrix, again != 0);
        workload_pass_time(rank, &temporaries);
        if (stays) {
            kept[i] = tensor;
        } else {
            temporaries.tensors[temporaries.count] = tensor;
            temporaries.life[temporaries.count++] = rule->life <= LIFE_KEPT ? LIFE_TWO : rule->life;
        }
    }
    replay_drop(rank->r, &widened);
    workload_drop_all(rank, &temporaries);
}

/* Those of casts are added to one of their input. */
static bool is_cast(const struct layer_rule *rule)
{
    return rule->width == WIDTH_QKV_CASTS || rule->width == WIDTH_UP_CASTS ||
           (rule->width >= WIDTH_ADAPTER_INPUTS && rule->width <= WIDTH_EXPERT_ADAPTER_INPUTS);
}

static bool has_gradient(const struct layer_rule *rule)
{
    return !is_cast(rule) && rule->element != ELEMENT_BYTE && rule->width != WIDTH_HEADS &&
           rule->width != WIDTH_ROUTES &&
           (rule->width < WIDTH_STATISTICS || rule->width > WIDTH_HEADS_STATISTICS);
}

/* A tensor that the model lacks: the gradient goes past it. */
static bool is_absent(const struct workload *w, const struct layer_rule *rule)
{
    return layer_rule_bytes(w, rule) < 1;
}

/* Those of `parts` that still wait for it. */
static void make_again(struct rank *rank, int64_t local, int *kept, unsigned parts, unsigned *waiting)
{
    unsigned now = parts & *waiting;
    *waiting &= ~now;
    if (now)
        workload_layer_forward(rank, local, kept, now);
}

/* Backwards through what forward made: the gradient of each tensor is made from the one after it, which goes then, as what
 * was kept for it does (torch/csrc/autograd/engine.cpp releases a node's variables once it has run). */
void workload_layer_backward(struct rank *rank, int64_t local, int *kept)
{
    const struct workload *w = rank->w;
    int64_t layer = workload_global_layer(rank, local);
    unsigned holds = layer_holds(rank, layer);
    int gradient =
        workload_take(rank, RANK_STREAM_GRADIENT, layer_rule_bytes(w, &layer_rules[0]), REPLAY_COMPUTE);
    int stream = gradient, *used = NULL;
    unsigned again = layer_parts_again(w, layer);
    if (w->recompute != WORKLOAD_KEEPS_ALL)
        workload_cast_weights(rank, local, false);
    if (again == PART_ALL)
        make_again(rank, local, kept, PART_ALL, &again);
    for (int i = layer_rule_count - 1; i >= 0; i--) {
        const struct layer_rule *rule = &layer_rules[i];
        if ((rule->conditions & holds) != rule->conditions)
            continue;
        make_again(rank, local, kept, rule->parts | rule->parts >> 16, &again);
        if (is_absent(w, rule) && rule->matrix != MATRIX_NONE)
            workload_weight_gradient(rank, local, (int)rule->matrix); /* of an input that another rule has */
        if (!has_gradient(rule) || is_absent(w, rule)) {
            replay_drop(rank->r, &kept[i]);
            continue;
        }
        int widened = workload_widen(rank, local, rule->matrix, true);
        int next = replay_take(rank->r, layer_rule_bytes(w, rule), ROLE_ACTIVATION, LABEL_LAYER_GRADIENT + i,
                               REPLAY_COMPUTE);
        replay_release(rank->r, widened);
        if (rule->matrix != MATRIX_NONE)
            workload_weight_gradient(rank, local, (int)rule->matrix);
        if (rule->matrix == MATRIX_DOWN)
            workload_weight_gradient(rank, local, MATRIX_EXPERTS);
        if (gradient != stream)
            replay_release(rank->r, gradient);
        if (used)
            replay_drop(rank->r, used);
        gradient = next;
        used = &kept[i];
    }
    workload_weight_gradient(rank, local, MATRIX_NONE);
    replay_release(rank->r, gradient);
    replay_release(rank->r, stream);
    if (used)
        replay_drop(rank->r, used);
    workload_drop_casts(rank, local);
}
