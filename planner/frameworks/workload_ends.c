/* Ends of the model: the embedding, the head and the loss. */
#include "planner/frameworks/workload_parts.h"

enum { END_TOKENS, END_MASK, END_INPUT, END_NORM, END_LOGITS, END_LOSS /* and on */ };

double workload_hidden_bytes(const struct workload *w)
{
    return w->compute_bytes * (double)w->model.hidden * layer_tokens(w) /
           (double)(w->sequence_parallel ? w->tp : 1);
}

void workload_embed_forward(struct rank *rank, struct pass *pass)
{
    const struct workload *w = rank->w;
    pass->ends[END_TOKENS] = workload_take(rank, RANK_TOKENS, 8 * layer_tokens(w), REPLAY_COMPUTE);
    if (w->embedding_dropout)
        pass->ends[END_MASK] = workload_take(rank, RANK_EMBEDDING_MASK,
                                             workload_hidden_bytes(w) / w->compute_bytes, REPLAY_COMPUTE);
}

void workload_embed_backward(struct rank *rank, struct pass *pass)
{
    workload_weight_gradient(rank, rank->layers, MATRIX_UP);
    workload_weight_gradient(rank, rank->layers, MATRIX_NONE);
    replay_drop(rank->r, &pass->ends[END_TOKENS]);
    replay_drop(rank->r, &pass->ends[END_MASK]);
}

/* Whether these are the logits that the caller holds: as computed, or cast. */
static bool is_held(const struct workload *w, const struct loss_rule *rule)
{
    int bytes = w->logits_held == 2 ? w->compute_bytes : w->logits_held;
    return rule->life == LIFE_LAYER && loss_rule_element(w, rule) == bytes;
}

void workload_head_forward(struct rank *rank, struct pass *pass)
{
    const struct workload *w = rank->w;
    unsigned holds = layer_conditions(w, false);
    struct temporaries temporaries = {.count = 0};
    int end = END_LOSS;
    pass->ends[END_INPUT] = workload_take(rank, RANK_HEAD_INPUT, workload_hidden_bytes(w), REPLAY_COMPUTE);
    pass->ends[END_NORM] = workload_take(rank, RANK_HEAD_NORM, workload_hidden_bytes(w), REPLAY_COMPUTE);
    for (int i = 0; i < loss_forward_count; i++) {
        const struct loss_rule *rule = &loss_forward_rules[i];
        if (!(rule->losses >> loss_rule_kind(w) & 1) || (rule->conditions & holds) != rule->conditions)
            continue;
        int tensor =
            replay_take(rank->r, loss_rule_bytes(w, rule), ROLE_ACTIVATION, LABEL_LOSS + i, REPLAY_COMPUTE);
        workload_pass_time(rank, &temporaries);
        if (rule->life == LIFE_KEPT) {
            pass->ends[end++] = tensor;
        } else if (is_held(w, rule) && pass->ends[END_LOGITS] < 0) {
            pass->ends[END_LOGITS] = tensor;
        } else {
            temporaries.tensors[temporaries.count] = tensor;
            temporaries.life[temporaries.count++] = rule->life;
        }
    }
    workload_drop_all(rank, &temporaries);
}

void workload_head_backward(struct rank *rank, struct pass *pass)
{
    const struct workload *w = rank->w;
    unsigned holds = layer_conditions(w, false);
    struct temporaries temporaries = {.count = 0};
    int64_t table = w->model.tied && rank->stage == 0 ? rank->layers : rank->layers + 1;
    for (int i = 0; i < loss_backward_count; i++) {
        const struct loss_rule *rule = &loss_backward_rules[i];
        if (!(rule->losses >> loss_rule_kind(w) & 1) || (rule->conditions & holds) != rule->conditions)
            continue;
        int tensor = replay_take(rank->r, loss_rule_bytes(w, rule), ROLE_ACTIVATION, LABEL_LOSS_BACKWARD + i,
                                 REPLAY_COMPUTE);
        workload_pass_time(rank, &temporaries);
        temporaries.tensors[temporaries.count] = tensor;
        temporaries.life[temporaries.count++] = rule->life;
        if (rule->life == LIFE_LAYER)
            for (int end = END_LOSS; end < ENDS; end++)
                replay_drop(rank->r, &pass->ends[end]);
    }
    int gradient = workload_take(rank, RANK_STREAM_GRADIENT, workload_hidden_bytes(w), REPLAY_COMPUTE);
    workload_weight_gradient(rank, table, MATRIX_UP);
    workload_weight_gradient(rank, rank->layers + 1, MATRIX_NONE);
    for (int end = END_INPUT; end < ENDS; end++)
        if (end != END_LOGITS)
            replay_drop(rank->r, &pass->ends[end]);
    workload_drop_all(rank, &temporaries);
    replay_release(rank->r, gradient);
}

void workload_ends_drop(struct rank *rank, struct pass *pass)
{
    replay_drop(rank->r, &pass->ends[END_LOGITS]);
}
