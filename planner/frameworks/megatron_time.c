/* How long a step of a Megatron-LM job takes: the operations of a layer, priced one by one, and its schedule replayed. */
#include "planner/frameworks/megatron.h"

#include "base/arena.h"
#include "base/checked.h"
#include "planner/timeline.h"

#include <math.h>
#include <stdlib.h>

/* Two clocks run side by side: kernels on the card, and the processor that launches them. A pass lasts as long as the slower. */
struct clocks {
    double card_s;
    double operations;
};

struct pricing {
    const struct job *job;
    const struct megatron_habits *habits;
    const struct machine_speed *speed;
    double tokens, whole; /* of a micro-batch; those of a rank where only sequence parallelism splits them */
    int64_t tp, ranks;
};

static void add(struct clocks *clocks, struct clocks more)
{
    clocks->card_s += more.card_s;
    clocks->operations += more.operations;
}

static struct clocks product(const struct pricing *p, int64_t m, int64_t n, int64_t k)
{
    double bytes = 2.0 * ((double)m * (double)k + (double)k * (double)n + (double)m * (double)n);
    struct work work = {
        .flops = 2.0 * (double)m * (double)n * (double)k, .bytes_moved = bytes, .m = m, .n = n, .k = k};
    return (struct clocks){machine_speed_seconds(p->speed, OP_MATMUL, &work, p->ranks), 1};
}

/* What a layer, or an end of the model, takes. */
struct passes {
    struct clocks forward, backward; /* `backward` without gradients of weights */
    struct clocks weight;
    struct clocks core; /* forward of attention alone, in `forward` too */
};

/* y = x wᵀ, its input gradient and its weight gradient. */
static void add_linear(const struct pricing *p, int64_t outputs, int64_t inputs, struct passes *passes)
{
    int64_t rows = (int64_t)p->tokens;
    add(&passes->forward, product(p, rows, outputs, inputs));
    add(&passes->backward, product(p, rows, inputs, outputs));
    add(&passes->weight, product(p, outputs, inputs, rows));
}

/* Operations that do nothing but move bytes: so many kernels, so many bytes together. */
static struct clocks moved(const struct pricing *p, double kernels, double bytes)
{
    struct work work = {.bytes_moved = bytes / kernels};
    return (struct clocks){kernels * machine_speed_seconds(p->speed, OP_GELU, &work, p->ranks), kernels};
}

/* The sum of x over tensor-parallel ranks, or scattering and gathering it. */
static struct clocks exchange(const struct pricing *p)
{
    const struct layout *l = &p->job->layout;
    if (p->tp == 1)
        return (struct clocks){0};
    double vector = 2 * p->tokens * (double)p->job->model.hidden;
    bool halves = l->sequence_parallel;
    enum op_kind kind = halves ? OP_ALL_GATHER : OP_SUM_PARTIAL;
    double bytes = halves ? vector * (1 + 1 / (double)p->tp) : 2 * vector;
    struct work work = {
        .bytes_moved = bytes, .bytes_sent = work_sent(kind, bytes, p->tp), .group = {p->tp, 1, p->tp}};
    double count = halves ? 2 : 1, wait_s = p->habits->straggle_s * log2((double)p->tp);
    double seconds = machine_speed_seconds(p->speed, kind, &work, p->ranks) + wait_s;
    return (struct clocks){count * seconds, count};
}

/* ------------------------------------------------------------------------------------------------------- attention */

static void add_flash(const struct pricing *p, double share, struct clocks *forward, struct clocks *backward)
{
    const struct model *m = &p->job->model;
    double products =
        p->tokens * (double)p->job->layout.seq_len * (double)(m->heads * m->head_size) / (double)p->tp;
    /* 2 and 5 products of 2 T² D, half of each under the mask */
    struct work work = {.flops = 2 * products / share};
    add(forward, (struct clocks){machine_speed_seconds(p->speed, OP_ATTENTION, &work, p->ranks), 1});
    work.flops = 5 * products / share;
    add(backward, (struct clocks){machine_speed_seconds(p->speed, OP_ATTENTION_GRAD, &work, p->ranks), 2});
}

/* Scores in memory, the mask not made use of. */
static void add_scored(const struct pricing *p, struct clocks *forward, struct clocks *backward)
{
    const struct job *job = p->job;
    int64_t heads = job->model.heads / p->tp, size = job->model.head_size, length = job->layout.seq_len;
    int64_t rows = (int64_t)p->tokens * heads;
    double scores = (double)rows * (double)length;
    bool eager = job->attention == JOB_ATTENTION_EAGER;
    struct clocks core = {0}, back = {0};
    add(&core, product(p, rows, length, size));
    add(&core, product(p, rows, size, length));
    /* scale, mask and softmax: each reads and writes; in one kernel once */
    add(&core, moved(p, eager ? 5 : 1, scores * (eager ? 22 : 4)));
    add(&back, moved(p, eager ? 5 : 1, scores * (eager ? 24 : 6)));
    if (job->dropout) {
        add(&core, moved(p, 1, scores * 5));
        add(&back, moved(p, 1, scores * 5));
    }
    for (int i = 0; i < 2; i++) {
        add(&back, product(p, rows, length, size));
        add(&back, product(p, rows, size, length));
    }
    add(forward, core);
    add(backward, back);
}

static void add_attention(const struct pricing *p, struct clocks *forward, struct clocks *backward)
{
    enum job_attention kind = p->job->attention;
    if (kind == JOB_ATTENTION_FLASH1 || kind == JOB_ATTENTION_FLASH2)
        add_flash(p, kind == JOB_ATTENTION_FLASH1 ? p->habits->flash1_share : 1, forward, backward);
    else
        add_scored(p, forward, backward);
}

/* ----------------------------------------------------------------------------------------------------------- layer */

/* Bytes are of reads and writes of bf16 tensors, and of fp32 where kernels are not fused. */
static void add_elementwise(const struct pricing *p, struct clocks *forward, struct clocks *backward)
{
    const struct job *job = p->job;
    const struct model *m = &job->model;
    double hidden = p->whole * (double)m->hidden, ffn = p->tokens * (double)m->ffn / (double)p->tp;
    double heads = p->tokens * (double)((m->heads + m->kv_heads) * m->head_size) / (double)p->tp;
    bool gated = m->family == MODEL_LLAMA, fused = job->norm_fused;
    add(forward, moved(p, fused ? 2 : 14, 2 * hidden * (fused ? 4 : 40)));
    add(backward, moved(p, fused ? 4 : 20, 2 * hidden * (fused ? 8 : 60)));
    /* bias, dropout and residual, twice */
    add(forward, moved(p, 2, 2 * hidden * (job->dropout ? 7 : 6)));
    add(backward, moved(p, 4, 2 * hidden * (job->dropout ? 7 : 6)));
    add(forward, moved(p, gated ? 2 : 1, ffn * (gated ? 10 : 4)));
    add(backward, moved(p, gated ? 4 : 1, ffn * (gated ? 18 : 6)));
    if (gated) { /* positions, as rotations */
        add(forward, moved(p, 8, heads * 16));
        add(backward, moved(p, 8, heads * 16));
    }
    /* heads are brought side by side, and apart */
    add(forward, moved(p, 4, 4 * heads));
    add(backward, moved(p, 4, 4 * heads));
}

static struct passes price_layer(const struct pricing *p)
{
    const struct model *m = &p->job->model;
    struct passes layer = {0};
    struct clocks core_backward = {0};
    int64_t queries = m->heads * m->head_size / p->tp, keys = m->kv_heads * m->head_size / p->tp;
    int64_t ffn = m->ffn / p->tp, gates = m->family == MODEL_LLAMA ? 2 : 1;
    add_linear(p, queries + 2 * keys, m->hidden, &layer);
    add_linear(p, m->hidden, queries, &layer);
    add_linear(p, gates * ffn, m->hidden, &layer);
    add_linear(p, m->hidden, ffn, &layer);
    add_attention(p, &layer.core, &core_backward);
    add(&layer.forward, layer.core);
    add(&layer.backward, core_backward);
    add_elementwise(p, &layer.forward, &layer.backward);
    for (int i = 0; i < 2; i++) {
        add(&layer.forward, exchange(p));
        add(&layer.backward, exchange(p));
    }
    if (p->job->recompute == JOB_FULL)
        add(&layer.backward, layer.forward);
    if (p->job->recompute == JOB_SELECTIVE)
        add(&layer.backward, layer.core);
    return layer;
}

/* The head: logits, and the loss over their fp32 copies. */
static void add_head(const struct pricing *p, struct passes *passes)
{
    int64_t vocab = p->job->model.vocab / p->tp;
    double logits = p->tokens * (double)vocab;
    add_linear(p, vocab, p->job->model.hidden, passes);
    add(&passes->forward, moved(p, 8, 26 * logits));
    add(&passes->backward, moved(p, 4, 14 * logits));
    add(&passes->backward, exchange(p));
}

static void add_embedding(const struct pricing *p, struct passes *passes)
{
    double bytes = p->tokens * (double)p->job->model.hidden * 2;
    add(&passes->forward, moved(p, 4, 5 * bytes));
    add(&passes->forward, exchange(p));
    add(&passes->backward, moved(p, 2, 4 * bytes));
}

static double pass_seconds(const struct pricing *p, const struct clocks *clocks)
{
    double host_s = clocks->operations * p->habits->host_s;
    double pass_s = fmax(clocks->card_s, host_s) + p->habits->unhidden * fmin(clocks->card_s, host_s);
    return pass_s + (p->job->layout.pp > 1 ? p->habits->message_wait_s : 0);
}

/* ------------------------------------------------------------------------------------------------------------ step */

static struct clocks times(double count, struct clocks clocks)
{
    return (struct clocks){count * clocks.card_s, count * clocks.operations};
}

/* Seconds of each global chunk's passes: forward, backward and, where a schedule puts them off, gradients of weights. */
static void price_chunks(const struct pricing *p, double *forward_s, double *backward_s, double *weight_s)
{
    const struct layout *l = &p->job->layout;
    const struct passes layer = price_layer(p);
    int64_t chunks = layout_chunks(l);
    for (int64_t g = 0; g < chunks; g++) {
        double layers = (double)job_chunk_layers(p->job, g);
        struct passes chunk = {.forward = times(layers, layer.forward),
                               .backward = times(layers, layer.backward),
                               .weight = times(layers, layer.weight)};
        if (g == 0)
            add_embedding(p, &chunk);
        if (g == chunks - 1)
            add_head(p, &chunk);
        bool apart = l->schedule == SCHEDULE_ZB_H1;
        if (!apart)
            add(&chunk.backward, chunk.weight);
        forward_s[g] = pass_seconds(p, &chunk.forward);
        backward_s[g] = pass_seconds(p, &chunk.backward);
        weight_s[g] = apart ? pass_seconds(p, &chunk.weight) : 0;
    }
}

static double message_seconds(const struct pricing *p)
{
    const struct layout *l = &p->job->layout;
    struct work work = {.bytes_sent = 2 * p->tokens * (double)p->job->model.hidden / (double)p->tp,
                        .group = {2, l->dp * l->tp, p->ranks}};
    return l->pp > 1 ? machine_speed_message_seconds(p->speed, &work, p->ranks) : 0;
}

static double collective(const struct pricing *p, enum op_kind kind, double vector)
{
    const struct layout *l = &p->job->layout;
    if (l->dp == 1)
        return 0;
    double bytes = work_is_half(kind) ? vector * (1 + 1 / (double)l->dp) : 2 * vector;
    struct work work = {.bytes_moved = bytes,
                        .bytes_sent = work_sent(kind, bytes, l->dp),
                        .group = {l->dp, l->tp, l->tp * l->dp}};
    return machine_speed_seconds(p->speed, kind, &work, p->ranks);
}

/* Behind the last backward: gradients are summed over replicas, then every state is updated. AdamW reads master, moments and
 * gradient and writes all but the last, and the weights; the norm and the scaling read gradients once more, or twice. */
static double tail_seconds(const struct pricing *p, int64_t stage)
{
    const struct layout *l = &p->job->layout;
    struct rank_device none = {0};
    struct megatron_memory memory = megatron_stage_memory(p->job, p->habits, &none, stage);
    double parameters = memory.weights / 2, own = parameters / (double)(l->zero ? l->dp : 1);
    double reduce_s = l->zero ? collective(p, OP_SCATTER_GRADIENTS, memory.gradients) +
                                    collective(p, OP_GATHER_WEIGHTS, memory.weights)
                              : collective(p, OP_ALL_REDUCE, memory.gradients);
    return (p->job->overlaps_gradients ? 0 : reduce_s) + moved(p, 8, own * 30 + memory.gradients * 3).card_s;
}

int megatron_step_seconds(const struct job *job, const struct megatron_habits *habits,
                          const struct machine_speed *speed, double *seconds, struct error *err)
{
    const struct layout *l = &job->layout;
    double tokens = (double)l->micro_batch * (double)l->seq_len;
    struct pricing p = {
        job,   habits,         speed, tokens, l->sequence_parallel ? tokens / (double)l->tp : tokens,
        l->tp, layout_ranks(l)};
    struct schedule_shape shape = layout_schedule(l);
    struct timeline *timeline;
    if (timeline_create(&shape, &timeline, err))
        return -1;
    size_t chunks = (size_t)layout_chunks(l);
    double *passes = host_alloc(3 * chunks * sizeof *passes),
           *ends_s = host_alloc((size_t)l->pp * sizeof *ends_s);
    struct schedule_times schedule = {passes, passes + chunks, passes + 2 * chunks, message_seconds(&p)};
    price_chunks(&p, passes, passes + chunks, passes + 2 * chunks);
    timeline_run(timeline, &schedule, ends_s);
    *seconds = 0;
    for (int64_t i = 0; i < l->pp; i++)
        *seconds = fmax(*seconds, ends_s[i] + tail_seconds(&p, i));
    free(ends_s);
    free(passes);
    timeline_free(timeline);
    return 0;
}
