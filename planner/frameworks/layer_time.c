#include "planner/frameworks/layer_time.h"

#include "base/checked.h"
#include "planner/frameworks/kernel_rules.h"

#include <math.h>

bool layer_time_is_pytorch(const struct workload *w)
{
    return w->library != WORKLOAD_LLMC;
}

void clocks_add(struct clocks *clocks, struct clocks more)
{
    clocks->card_s += more.card_s;
    clocks->operations += more.operations;
}

void passes_add(struct passes *passes, const struct passes *more)
{
    clocks_add(&passes->forward, more->forward);
    clocks_add(&passes->backward, more->backward);
    clocks_add(&passes->weight, more->weight);
    clocks_add(&passes->again, more->again);
}

static struct clocks scaled(struct clocks clocks, double factor)
{
    return (struct clocks){factor * clocks.card_s, factor * clocks.operations};
}

/* ------------------------------------------------------------------------------------------------------- operations */

static struct clocks product(const struct pricing *p, double m, double n, double k)
{
    double bytes = p->w->compute_bytes * (m * k + k * n + m * n);
    if (m < 1 || n < 1 || k < 1)
        return (struct clocks){0};
    struct work work = {
        .flops = 2 * m * n * k, .bytes_moved = bytes, .m = (int64_t)m, .n = (int64_t)n, .k = (int64_t)k};
    return (struct clocks){machine_speed_seconds(p->speed, OP_MATMUL, &work, p->ranks), 1};
}

/* `count` products y = x w', with their input and weight gradients. Weights that are frozen have none, and where they are
 * quantized each use makes them 16 bits wide first. */
static struct passes linear(const struct pricing *p, double count, double rows, double outputs, double inputs)
{
    const struct workload *w = p->w;
    struct passes passes = {
        .forward = scaled(product(p, rows, outputs, inputs), count),
        .backward = scaled(product(p, rows, inputs, outputs), count),
        .weight = scaled(product(p, outputs, inputs, rows), w->lora_rank ? 0 : count),
    };
    if (w->lora_rank && w->frozen_bits < 16) {
        struct clocks widened =
            layer_time_moved(p, count, count * outputs * inputs * (w->frozen_bits / 8.0 + 2));
        clocks_add(&passes.forward, widened);
        clocks_add(&passes.backward, widened);
    }
    return passes;
}

/* Of a layer. In fp8 tensor cores take operands twice as fast, as if k were half as long; inputs and gradients of outputs are cast
 * before, and transposed for the products of backward. */
static struct passes layer_linear(const struct pricing *p, double count, double rows, double outputs,
                                  double inputs)
{
    if (!p->w->fp8)
        return linear(p, count, rows, outputs, inputs);
    struct passes passes = {
        .forward = scaled(product(p, rows, outputs, inputs / 2), count),
        .backward = scaled(product(p, rows, inputs, outputs / 2), count),
        .weight = scaled(product(p, outputs, inputs, rows / 2), p->w->lora_rank ? 0 : count),
    };
    clocks_add(&passes.forward, layer_time_moved(p, count, 4 * count * rows * inputs));
    clocks_add(&passes.backward, layer_time_moved(p, count, 4 * count * rows * outputs));
    return passes;
}

struct clocks layer_time_moved(const struct pricing *p, double kernels, double bytes)
{
    if (kernels <= 0)
        return (struct clocks){0};
    struct work work = {.bytes_moved = bytes / kernels};
    return (struct clocks){kernels * machine_speed_seconds(p->speed, OP_GELU, &work, p->ranks), kernels};
}

double layer_time_collective(const struct pricing *p, struct work_group group, double bytes, bool one_way)
{
    if (group.ranks < 2)
        return 0;
    enum op_kind kind = one_way ? OP_ALL_GATHER : OP_SUM_PARTIAL;
    double moved = one_way ? bytes * (1 + 1 / (double)group.ranks) : 2 * bytes;
    struct work work = {
        .bytes_moved = moved, .bytes_sent = work_sent(kind, moved, group.ranks), .group = group};
    return machine_speed_seconds(p->speed, kind, &work, p->ranks);
}

/* What ranks wait for where it stands. */
static struct clocks exchange(const struct pricing *p, struct work_group group, double bytes, bool one_way)
{
    if (group.ranks < 2)
        return (struct clocks){0};
    double wait_s = p->habits->straggle_s * log2((double)group.ranks);
    return (struct clocks){layer_time_collective(p, group, bytes, one_way) + wait_s, 1};
}

/* Ranks are numbered as Megatron-LM does: tensor-parallel ones side by side, then context, expert and data. */
static struct work_group tensor_group(const struct workload *w)
{
    return (struct work_group){w->tp, 1, w->tp};
}

static double hidden_bytes(const struct pricing *p)
{
    return p->w->compute_bytes * p->tokens * (double)p->w->model.hidden;
}

/* The sum of x over tensor-parallel ranks, or scattering and gathering it. */
static struct clocks exchange_hidden(const struct pricing *p)
{
    struct work_group group = tensor_group(p->w);
    bool halves = p->w->sequence_parallel;
    return scaled(exchange(p, group, hidden_bytes(p), halves), halves ? 2 : 1);
}

/* ----------------------------------------------------------------------------------------------------------- kernels */

/* The kernels of one part, forward or backward. */
static struct clocks kernels(const struct pricing *p, unsigned conditions, enum kernel_part part,
                             bool backward)
{
    struct clocks sum = {0};
    for (int i = 0; i < kernel_rule_count; i++) {
        const struct kernel_rule *rule = &kernel_rules[i];
        const struct kernel_cost *cost = backward ? &rule->backward : &rule->forward;
        double elements = kernel_rule_elements(p->w, rule);
        if (rule->part != part || (rule->conditions & conditions) != rule->conditions || elements <= 0)
            continue;
        /* what has no launch of its own makes another kernel's bytes more */
        struct clocks one = layer_time_moved(p, fmax(cost->launches, 1), cost->bytes * elements);
        if (cost->launches < 1)
            one = (struct clocks){one.card_s - layer_time_moved(p, 1, 0).card_s, 0};
        clocks_add(&sum, one);
    }
    return sum;
}

/* --------------------------------------------------------------------------------------------------------- attention */

static struct passes flash(const struct pricing *p)
{
    const struct workload *w = p->w;
    const struct workload_model *m = &w->model;
    double query = (double)(m->kv_rank ? m->nope_size + m->rope_size : m->head_size);
    double value = (double)(m->kv_rank ? m->value_size : m->head_size);
    double pairs = p->tokens * (double)w->sequence * (double)m->heads / (double)w->tp * (m->encoder ? 2 : 1);
    double share = w->first_flash ? p->habits->flash1_share : 1;
    /* scores and sum forward; backward scores again, two products with values and two with keys and queries. A product over a
     * head of D is 2 T^2 D, half of it under the mask. */
    struct work forward = {.flops = pairs * (query + value) / share};
    struct work backward = {.flops = pairs * (3 * query + 2 * value) / share};
    return (struct passes){
        .forward = {machine_speed_seconds(p->speed, OP_ATTENTION, &forward, p->ranks), 1},
        .backward = {machine_speed_seconds(p->speed, OP_ATTENTION_GRAD, &backward, p->ranks), 2},
    };
}

/* Scores in memory, the mask not made use of. */
static struct passes scored(const struct pricing *p, unsigned conditions)
{
    const struct workload_model *m = &p->w->model;
    double rows = p->tokens * (double)(m->heads / p->w->tp), length = (double)p->w->sequence;
    double size = (double)m->head_size;
    struct passes core = {.forward = kernels(p, conditions, KERNELS_SCORES, false),
                          .backward = kernels(p, conditions, KERNELS_SCORES, true)};
    struct clocks scores = product(p, rows, length, size), sum = product(p, rows, size, length);
    for (int i = 0; i < 3; i++) {
        clocks_add(i ? &core.backward : &core.forward, scores);
        clocks_add(i ? &core.backward : &core.forward, sum);
    }
    return core;
}

/* Context-parallel ranks hand keys and values around while they attend to those they have; backward, their gradients too. */
static struct passes attention(const struct pricing *p, unsigned conditions)
{
    const struct workload *w = p->w;
    struct passes core = conditions & IF_FLASH ? flash(p) : scored(p, conditions);
    struct work_group group = {w->cp, w->tp, w->cp * w->tp};
    double bytes = 2 * w->compute_bytes * p->tokens *
                   (double)(w->cp * w->model.kv_heads * w->model.head_size) / (double)w->tp;
    double around_s = layer_time_collective(p, group, bytes, true);
    core.forward.card_s = fmax(core.forward.card_s, around_s);
    core.backward.card_s = fmax(core.backward.card_s, 2 * around_s);
    return core;
}

/* ------------------------------------------------------------------------------------------------------------- layer */

/* What recomputation may run again by itself, and all of it. */
struct layer_parts {
    struct passes sum, core, mlp, routed, shared;
    struct passes latent; /* queries, keys and values out of compressed ones */
    struct passes norms[2];
    struct passes gate; /* the experts' activation */
};

static void add_kernels(const struct pricing *p, unsigned conditions, enum kernel_part part,
                        struct passes *to)
{
    clocks_add(&to->forward, kernels(p, conditions, part, false));
    clocks_add(&to->backward, kernels(p, conditions, part, true));
}

static void add_linear(const struct pricing *p, double outputs, double inputs, struct passes *to)
{
    struct passes one = layer_linear(p, 1, p->tokens, outputs, inputs);
    passes_add(to, &one);
}

static void price_attention_products(const struct pricing *p, struct layer_parts *parts)
{
    const struct workload_model *m = &p->w->model;
    double h = (double)m->hidden, heads = (double)m->heads / (double)p->w->tp, rank = (double)m->kv_rank;
    double query = heads * (double)(m->nope_size + m->rope_size);
    if (!m->kv_rank) {
        double queries = heads * (double)m->head_size;
        add_linear(p, queries + 2 * (double)(m->kv_heads * m->head_size) / (double)p->w->tp, h, &parts->sum);
        add_linear(p, h, queries, &parts->sum);
        return;
    }
    add_linear(p, (double)m->q_rank, h, &parts->sum); /* nothing where queries are not compressed */
    add_linear(p, rank + (double)m->rope_size, h, &parts->sum);
    add_linear(p, query, m->q_rank ? (double)m->q_rank : h, &parts->latent);
    add_linear(p, heads * (double)(m->nope_size + m->value_size), rank, &parts->latent);
    add_linear(p, h, heads * (double)m->value_size, &parts->sum);
}

static void add_mlp(const struct pricing *p, double count, double rows, double ffn, struct passes *layer)
{
    double h = (double)p->w->model.hidden, gates = p->w->model.gated ? 2 : 1;
    struct passes up = layer_linear(p, count, rows, gates * ffn, h),
                  down = layer_linear(p, count, rows, h, ffn);
    passes_add(layer, &up);
    passes_add(layer, &down);
}

/* Tokens go to the ranks that have their experts, and come back; an expert has as many as any other, and what pads them. */
static void price_experts(const struct pricing *p, unsigned conditions, struct layer_parts *parts)
{
    const struct workload *w = p->w;
    const struct workload_model *m = &w->model;
    double here = (double)m->experts / (double)w->ep, tp = (double)w->tp;
    double sent = p->tokens * (double)m->active_experts * (w->expert_capacity > 0 ? w->expert_capacity : 1);
    struct work_group group = {w->ep, w->tp * w->cp, w->tp * w->cp * w->ep};
    struct passes router = linear(p, 1, p->tokens, (double)m->experts, (double)m->hidden);
    struct clocks there = exchange(p, group, sent * (double)(w->compute_bytes * m->hidden) / tp, true);
    add_kernels(p, conditions, KERNELS_EXPERTS, &parts->routed);
    add_kernels(p, conditions, KERNELS_EXPERT_GATE, &parts->gate);
    passes_add(&parts->routed, &router);
    add_mlp(p, here, sent / here, (double)m->expert_ffn / tp, &parts->routed);
    clocks_add(&parts->routed.forward, scaled(there, 2));
    clocks_add(&parts->routed.backward, scaled(there, 2));
    if (!m->shared_ffn)
        return;
    add_kernels(p, conditions, KERNELS_SHARED, &parts->shared);
    add_mlp(p, 1, p->tokens, (double)m->shared_ffn / tp, &parts->shared);
}

/* Two thin products beside each matrix that has an adapter: into its rank, and out of it. */
static void add_adapters(const struct pricing *p, bool experts, struct passes *layer)
{
    const struct workload *w = p->w;
    double rank = (double)w->lora_rank;
    for (int matrix = MATRIX_NONE; w->lora_rank && matrix <= MATRIX_EXPERTS; matrix++) {
        double wide =
            workload_adapter_parameters(w, (enum layer_matrix)matrix, experts) / rank / (double)w->tp;
        if (matrix == MATRIX_EXPERTS) /* a token sees some of them */
            wide *= (double)w->model.active_experts / fmax((double)w->model.experts, 1);
        struct clocks in = product(p, p->tokens, rank, wide / 2), out = product(p, p->tokens, wide / 2, rank);
        for (int i = 0; i < 2; i++) {
            clocks_add(i ? &layer->backward : &layer->forward, in);
            clocks_add(i ? &layer->backward : &layer->forward, out);
        }
        clocks_add(&layer->weight, in);
        clocks_add(&layer->weight, out);
    }
}

/* The forward pass once more, or parts of it. A feed-forward that is made again gathers its input and sums its result again too. */
static struct clocks recomputed(const struct pricing *p, int64_t layer, unsigned conditions,
                                const struct layer_parts *l)
{
    const struct workload *w = p->w;
    unsigned again = layer_parts_again(w, layer);
    struct clocks sum = {0}, gate = kernels(p, conditions, KERNELS_ACTIVATION, false);
    const struct {
        unsigned part;
        struct clocks clocks;
    } pieces[] = {
        {PART_CORE, l->core.forward},
        {PART_NORM_1, l->norms[0].forward},
        {PART_NORM_2, l->norms[1].forward},
        {PART_LATENT_UP, l->latent.forward},
        {PART_MLP, l->mlp.forward},
        {PART_MLP, exchange_hidden(p)},
        {PART_EXPERTS, l->routed.forward},
        {PART_EXPERTS | PART_EXPERT_GATE, l->gate.forward},
        {PART_EXPERTS | PART_SHARED, l->shared.forward},
    };
    if (again == PART_ALL && w->recompute != WORKLOAD_EVERY_SECOND)
        return l->sum.forward;
    if (again == PART_ALL) /* half of the products, and no attention */
        return (struct clocks){0.5 * (l->sum.forward.card_s - l->core.forward.card_s),
                               0.5 * (l->sum.forward.operations - l->core.forward.operations)};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        if (again & pieces[i].part)
            clocks_add(&sum, pieces[i].clocks);
    if (again & PART_GELU && !(again & PART_MLP))
        clocks_add(&sum, gate);
    return sum;
}

struct passes layer_time(const struct pricing *p, int64_t layer)
{
    const struct workload *w = p->w;
    bool routes = w->model.experts && layer >= w->model.dense_layers;
    unsigned conditions = layer_conditions(w, routes);
    struct layer_parts l = {.core = attention(p, conditions)};
    struct passes *const parts[] = {&l.core,   &l.latent,   &l.mlp,      &l.routed,
                                    &l.shared, &l.norms[0], &l.norms[1], &l.gate};
    price_attention_products(p, &l);
    if (!w->model.positions && !w->model.encoder)
        add_kernels(p, conditions, KERNELS_POSITIONS, w->model.kv_rank ? &l.latent : &l.sum);
    add_kernels(p, conditions, KERNELS_NORM_1, &l.norms[0]);
    add_kernels(p, conditions, KERNELS_NORM_2, &l.norms[1]);
    add_kernels(p, conditions, KERNELS_REST, &l.sum);
    if (routes) {
        price_experts(p, conditions, &l);
    } else {
        add_mlp(p, 1, p->tokens, (double)w->model.ffn / (double)w->tp, &l.mlp);
        add_kernels(p, conditions, KERNELS_ACTIVATION, &l.mlp);
    }
    add_adapters(p, (conditions & IF_EXPERTS) != 0, &l.sum);
    for (int i = 0; i < 2; i++) {
        clocks_add(&l.sum.forward, exchange_hidden(p));
        clocks_add(&l.sum.backward, exchange_hidden(p));
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        passes_add(&l.sum, parts[i]);
    l.sum.again = recomputed(p, layer, conditions, &l);
    return l.sum;
}

/* -------------------------------------------------------------------------------------------------------------- ends */

/* Logits, and the loss over them: over all of them where ranks gather them first, else over a rank's part, with the row's
 * largest, sum and target exchanged. */
struct passes layer_time_head(const struct pricing *p)
{
    const struct workload *w = p->w;
    const struct workload_model *m = &w->model;
    const struct loss_kernels *loss = &loss_kernels[w->loss];
    double outputs = (double)(m->classes ? m->classes : m->vocab) / (double)w->tp;
    double logits = p->tokens * outputs * (w->logits_whole ? (double)w->tp : 1);
    double pieces = w->loss == WORKLOAD_LOSS_CHUNKED ? fmax((double)w->loss_chunks, 1) : 1;
    struct passes head = linear(p, 1, p->tokens, outputs, (double)m->hidden);
    clocks_add(&head.forward,
               layer_time_moved(p, pieces * loss->forward.launches, loss->forward.bytes * logits));
    clocks_add(&head.backward,
               layer_time_moved(p, pieces * loss->backward.launches, loss->backward.bytes * logits));
    if (w->tp > 1 && w->logits_whole) {
        clocks_add(&head.forward, exchange(p, tensor_group(w), w->compute_bytes * logits, true));
        clocks_add(&head.forward, layer_time_moved(p, 1, 2 * w->compute_bytes * logits));
    } else if (w->loss == WORKLOAD_LOSS_VOCABULARY) {
        clocks_add(&head.forward, scaled(exchange(p, tensor_group(w), 4 * p->tokens, false), 3));
    }
    clocks_add(&head.backward, exchange_hidden(p));
    return head;
}

struct passes layer_time_embedding(const struct pricing *p)
{
    struct passes embedding = {0};
    clocks_add(&embedding.forward, layer_time_moved(p, 4, 5 * hidden_bytes(p)));
    clocks_add(&embedding.forward, exchange_hidden(p));
    clocks_add(&embedding.backward, layer_time_moved(p, 2, 4 * hidden_bytes(p)));
    return embedding;
}
