/* Rows of tables as jobs. What a table leaves out is assumed here, in the open. */
#include "bench/score/score.h"

#include <math.h>
#include <string.h>

/* Megatron-LM's table of GPT-2: 50,257 tokens, padded. */
enum { GPT_VOCAB = 51200 };

enum { NODE = 8 };

/* What a program sees of an A100's 80 GB. */
static const int64_t card_bytes = (int64_t)(79.15 * (1LL << 30));

/* ------------------------------------------------------------------------------------------- what all tables have */

struct column {
    const char *name;
    int64_t *out, least, otherwise;
};

static int read_columns(const struct csv *csv, int row, const struct column *columns, int count,
                        struct error *err)
{
    for (int i = 0; i < count; i++) {
        const struct column *c = &columns[i];
        if (csv_int(csv, row, c->name, c->least, c->otherwise, c->out, err))
            return -1;
        if (*c->out < c->least)
            return csv_refuse(csv, row, c->name, err, "it must be said");
    }
    return 0;
}

/* LLaMA's layers have gates and rotations; a GPT's GELU, biases and learned positions. */
static int read_model(const struct csv *csv, int row, bool llama, struct workload_model *m, struct error *err)
{
    const struct column columns[] = {
        {"layers", &m->layers, 1, 0}, {"hidden", &m->hidden, 1, 0},       {"heads", &m->heads, 1, 0},
        {"ffn", &m->ffn, 1, -1},      {"vocab", &m->vocab, 1, GPT_VOCAB}, {"seq_len", &m->positions, 1, 0},
    };
    m->ffn = 1;
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        struct column c = columns[i];
        c.otherwise = c.otherwise < 0 ? 4 * m->hidden : c.otherwise;
        if (read_columns(csv, row, &c, 1, err))
            return -1;
    }
    m->kv_heads = m->heads;
    m->head_size = m->hidden / m->heads;
    m->gated = m->rms_norm = llama;
    m->tied = m->bias = !llama;
    if (llama)
        m->positions = 0;
    return 0;
}

static int read_recompute(const struct csv *csv, int row, struct workload *w, struct error *err)
{
    static const struct {
        const char *name;
        enum workload_recompute policy;
    } policies[] = {{"", WORKLOAD_KEEPS_ALL},
                    {"none", WORKLOAD_KEEPS_ALL},
                    {"selective", WORKLOAD_MODULES},
                    {"full", WORKLOAD_FULL}};
    const char *name = csv_text(csv, row, "recompute");
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        if (!strcmp(name, policies[i].name)) {
            w->recompute = policies[i].policy;
            w->modules = WORKLOAD_CORE_ATTN; /* where it is selective */
            return 0;
        }
    return csv_refuse(csv, row, "recompute", err, "it must be none, selective or full");
}

static int read_layout(const struct csv *csv, int row, struct workload *w, struct error *err)
{
    int64_t split, gpus, batch;
    const struct column columns[] = {
        {"dp", &w->dp, 1, 1},
        {"tp", &w->tp, 1, 1},
        {"pp", &w->pp, 1, 1},
        {"virtual_stages", &w->virtual_stages, 1, 1},
        {"micro_batch", &w->micro_batch, 1, 1},
        {"seq_len", &w->sequence, 1, 0},
        {"sequence_parallel", &split, 0, 0},
        {"global_batch", &batch, 1, 0},
        {"gpus", &gpus, 1, 0},
    };
    const char *schedule = csv_text(csv, row, "schedule");
    if (read_columns(csv, row, columns, sizeof columns / sizeof *columns, err))
        return -1;
    w->sequence_parallel = split && w->tp > 1;
    w->micro_batches = batch / (w->dp * w->micro_batch);
    if (*schedule && schedule_find(schedule, &w->schedule, err))
        return csv_refuse(csv, row, "schedule", err, "it must be gpipe, 1f1b, interleaved or zb-h1");
    if (gpus != w->dp * w->tp * w->pp)
        return csv_refuse(csv, row, "gpus", err, "dp x tp x pp must be as many");
    if (batch % (w->dp * w->micro_batch))
        return csv_refuse(csv, row, "global_batch", err, "dp x micro_batch must divide it");
    return 0;
}

/* Papers of Megatron-LM's give rates, of so many operations: with every layer's forward done twice, and the logits
 * (Narayanan et al. 2021, equation 3). */
static int read_seconds(const struct csv *csv, int row, const struct workload *w, double *out,
                        struct error *err)
{
    const struct workload_model *m = &w->model;
    double rate, seconds, hidden = (double)m->hidden, length = (double)w->sequence;
    if (csv_real(csv, row, "tflops_per_gpu", &rate, err) || csv_real(csv, row, "step_seconds", &seconds, err))
        return -1;
    double tokens = length * (double)(w->micro_batches * w->micro_batch * w->dp);
    double layers = (double)m->layers * (1 + length / (6 * hidden)) + (double)m->vocab / (16 * hidden);
    rate *= 1e12 * (double)(w->dp * w->tp * w->pp);
    *out = isnan(rate) ? seconds : 96 * tokens * hidden * hidden * layers / rate;
    return 0;
}

static int read_row(const struct csv *csv, int row, bool llama, struct verdict *out, struct error *err)
{
    struct workload *w = &out->job;
    *out = (struct verdict){.model = csv_text(csv, row, "model"), .predicted_s = NAN};
    *w = workload_default(WORKLOAD_MEGATRON_LEGACY, llama ? WORKLOAD_ZERO1 : WORKLOAD_REPLICATED);
    w->capacity_bytes = card_bytes;
    if (read_model(csv, row, llama, &w->model, err) || read_layout(csv, row, w, err) ||
        read_recompute(csv, row, w, err) || read_seconds(csv, row, w, &out->measured_s, err) ||
        csv_real(csv, row, "allocated_gb", &out->allocated_bytes, err))
        return -1;
    out->allocated_bytes *= 1e9;
    return 0;
}

static int read_all(const char *path, bool llama, struct arena *arena, struct csv *csv, struct verdicts *out,
                    struct error *err)
{
    if (csv_read(path, arena, csv, err))
        return -1;
    *out = (struct verdicts){.rows = arena_array(arena, (size_t)csv->rows + 1, sizeof *out->rows),
                             .count = csv->rows};
    for (int i = 0; i < csv->rows; i++) {
        if (read_row(csv, i, llama, &out->rows[i], err))
            return -1;
        out->rows[i].where = arena_printf(arena, "%s:%d", path, csv->lines[i]);
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------- the sweep */

static int read_attention(const struct csv *csv, int row, struct workload *w, struct error *err)
{
    static const struct {
        const char *begins;
        enum workload_attention attention;
        bool first;
    } kernels[] = {{"flash_attentionv1", WORKLOAD_FLASH, true},
                   {"flash_attention2", WORKLOAD_FLASH, false},
                   {"fused", WORKLOAD_FUSED_SOFTMAX, false},
                   {"torch", WORKLOAD_EAGER, false}};
    const char *name = csv_text(csv, row, "kernels");
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (!strncmp(name, kernels[i].begins, strlen(kernels[i].begins))) {
            w->attention = kernels[i].attention;
            w->first_flash = kernels[i].first;
            return 0;
        }
    return csv_refuse(csv, row, "kernels", err,
                      "it must begin with flash_attention2, flash_attentionv1, fused or torch");
}

/* Fitted to outcomes of the 13B rows: docs/time-model.md, section 10. */
const struct trainer sweep_trainer = {.gathered_bytes = 8, .activation_share = 0.1};

/* ZeRO-1 and sums of gradients in bf16, as the models that this sweep was for were trained. And what outcomes tell of its trainer:
 * logits are gathered, and the caller keeps them in fp32; masks of dropout are kept; so are inputs of matrices as gathered under
 * sequence parallelism. */
static int read_sweep_row(const struct csv *csv, int row, struct verdict *v, struct error *err)
{
    struct workload *w = &v->job;
    const char *outcome = csv_text(csv, row, "outcome");
    w->gradient_bytes = 2;
    w->loss = WORKLOAD_LOSS_UPCAST;
    w->logits_held = 4;
    w->logits_whole = w->inputs_whole = w->old_torch = w->attention_dropout = w->hidden_dropout = true;
    w->norm = strstr(csv_text(csv, row, "kernels"), "RMS") ? WORKLOAD_NORM_FUSED : WORKLOAD_NORM_WRITTEN;
    v->fitted = strstr(v->model, "13B") != NULL;
    v->trainer = &sweep_trainer;
    v->out_of_memory = !strcmp(outcome, "oom");
    if (!v->out_of_memory && strcmp(outcome, "ok"))
        return csv_refuse(csv, row, "outcome", err, "it must be ok or oom");
    return read_attention(csv, row, w, err);
}

int rows_read_sweep(const char *path, struct arena *arena, struct verdicts *out, struct error *err)
{
    struct csv csv;
    if (read_all(path, true, arena, &csv, out, err))
        return -1;
    for (int i = 0; i < out->count; i++) {
        struct verdict *v = &out->rows[i];
        if (read_sweep_row(&csv, i, v, err))
            return -1;
        v->problem =
            arena_printf(arena, "%s, %s", csv_text(&csv, i, "problem"), csv_text(&csv, i, "kernels"));
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------- steps and publications */

/* GPT models as Megatron-LM trains them: dropout, fused softmax and norms, sums of gradients in fp16. */
static void as_gpt(struct workload *w)
{
    w->attention = WORKLOAD_FUSED_SOFTMAX;
    w->hidden_dropout = w->attention_dropout = w->embedding_dropout = true;
    w->gradient_bytes = 2;
}

/* On one node every other row, in the order of the file, is for fitting. */
int rows_read_steps(const char *path, struct arena *arena, struct verdicts *out, struct error *err)
{
    struct csv csv;
    if (read_all(path, false, arena, &csv, out, err))
        return -1;
    for (int i = 0; i < out->count; i++) {
        struct verdict *v = &out->rows[i];
        as_gpt(&v->job);
        v->job.recompute = WORKLOAD_FULL;
        v->fitted = i % 2 == 0 && v->job.dp * v->job.tp * v->job.pp <= NODE;
        v->problem = arena_printf(arena, "%s GPUs, %s layers of %s, batch %s", csv_text(&csv, i, "gpus"),
                                  csv_text(&csv, i, "layers"), csv_text(&csv, i, "hidden"),
                                  csv_text(&csv, i, "global_batch"));
    }
    return 0;
}

int rows_read_published(const char *path, struct arena *arena, struct verdicts *out, struct error *err)
{
    struct csv csv;
    if (read_all(path, false, arena, &csv, out, err))
        return -1;
    for (int i = 0; i < out->count; i++) {
        as_gpt(&out->rows[i].job);
        out->rows[i].problem = csv_text(&csv, i, "table");
    }
    return 0;
}
