/* Rows of tables as jobs. What a table leaves out is assumed here, in the open. */
#include "bench/score/score.h"

#include "base/checked.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Megatron-LM's table of GPT-2: 50,257 tokens, padded. */
enum { GPT_VOCAB = 51200 };

enum { NODE = 8 };

static int read_model(const struct csv *csv, int row, bool llama, struct model *out, struct error *err)
{
    int64_t hidden = csv_int(csv, row, "hidden", 0), heads = csv_int(csv, row, "heads", 0);
    if (hidden <= 0 || heads <= 0)
        return error_set(err, "row %d has no hidden size or no heads", row + 1);
    *out = (struct model){
        .family = llama ? MODEL_LLAMA : MODEL_GPT2,
        .layers = csv_int(csv, row, "layers", 0),
        .hidden = hidden,
        .heads = heads,
        .kv_heads = heads,
        .head_size = hidden / heads,
        .ffn = csv_int(csv, row, "ffn", 4 * hidden),
        .vocab = csv_int(csv, row, "vocab", GPT_VOCAB),
        .max_seq_len = csv_int(csv, row, "seq_len", 0),
        .tied = !llama,
    };
    snprintf(out->name, sizeof out->name, "%s", csv_text(csv, row, "model"));
    return 0;
}

static int read_layout(const struct csv *csv, int row, const struct model *model, struct layout *out,
                       struct error *err)
{
    *out = (struct layout){
        .dp = csv_int(csv, row, "dp", 1),
        .tp = csv_int(csv, row, "tp", 1),
        .pp = csv_int(csv, row, "pp", 1),
        .virtual_stages = csv_int(csv, row, "virtual_stages", 1),
        .micro_batch = csv_int(csv, row, "micro_batch", 1),
        .global_batch = csv_int(csv, row, "global_batch", 1),
        .seq_len = csv_int(csv, row, "seq_len", 0),
        .sequence_parallel = csv_int(csv, row, "sequence_parallel", 0) && csv_int(csv, row, "tp", 1) > 1,
        .precision = PRECISION_BF16,
    };
    const char *schedule = csv_text(csv, row, "schedule");
    if (*schedule && schedule_find(schedule, &out->schedule, err))
        return -1;
    /* Embedding and head may stand for layers: then chunks are counted with them. */
    struct model full = *model;
    full.layers += 2 * csv_int(csv, row, "fewer_at_ends", 0);
    return layout_complete(out, &full, err);
}

/* Papers of Megatron-LM's give rates, of so many operations: with every layer's forward done twice, and the logits
 * (Narayanan et al. 2021, equation 3). */
static double seconds_of(const struct csv *csv, int row, const struct model *m)
{
    double rate = csv_real(csv, row, "tflops_per_gpu") * 1e12 * csv_real(csv, row, "gpus");
    double hidden = (double)m->hidden, length = csv_real(csv, row, "seq_len");
    double tokens = length * csv_real(csv, row, "global_batch");
    double layers = (double)m->layers * (1 + length / (6 * hidden)) + (double)m->vocab / (16 * hidden);
    return isnan(rate) ? csv_real(csv, row, "step_seconds") : 96 * tokens * hidden * hidden * layers / rate;
}

static enum job_recompute recompute_of(const char *name)
{
    return !strcmp(name, "full") ? JOB_FULL : !strcmp(name, "selective") ? JOB_SELECTIVE : JOB_KEEPS_ALL;
}

static enum job_attention attention_of(const char *kernels)
{
    return !strncmp(kernels, "flash_attentionv1", 17)  ? JOB_ATTENTION_FLASH1
           : !strncmp(kernels, "flash_attention2", 16) ? JOB_ATTENTION_FLASH2
           : !strcmp(kernels, "torch")                 ? JOB_ATTENTION_EAGER
                                                       : JOB_ATTENTION_SOFTMAX;
}

/* Reads what all tables have in common. */
static int read_row(const struct csv *csv, int row, bool llama, struct verdict *out, struct error *err)
{
    *out = (struct verdict){.allocated_bytes = csv_real(csv, row, "allocated_gb") * 1e9, .predicted_s = NAN};
    if (read_model(csv, row, llama, &out->job.model, err) ||
        read_layout(csv, row, &out->job.model, &out->job.layout, err))
        return error_prefix(err, "row %d", row + 1);
    out->measured_s = seconds_of(csv, row, &out->job.model);
    out->job.recompute = recompute_of(csv_text(csv, row, "recompute"));
    return 0;
}

static int read_all(const char *path, bool llama, struct arena *arena, struct csv *csv, struct verdicts *out,
                    struct error *err)
{
    if (csv_read(path, arena, csv, err))
        return -1;
    *out = (struct verdicts){.rows = arena_array(arena, (size_t)csv->rows + 1, sizeof *out->rows)};
    for (int i = 0; i < csv->rows; i++) {
        struct error refusal = {0};
        if (read_row(csv, i, llama, &out->rows[out->count], &refusal)) {
            if (!out->refused++)
                out->reason = refusal;
            continue;
        }
        out->rows[out->count++].row = i;
    }
    return 0;
}

/* ZeRO-1, bf16 gradients and no dropout, as the models that this sweep was for were trained. */
int rows_read_sweep(const char *path, struct arena *arena, struct verdicts *out, struct error *err)
{
    struct csv csv;
    if (read_all(path, true, arena, &csv, out, err))
        return -1;
    for (int i = 0; i < out->count; i++) {
        struct verdict *v = &out->rows[i];
        const char *kernels = csv_text(&csv, v->row, "kernels");
        v->job.attention = attention_of(kernels);
        v->job.norm_fused = strstr(kernels, "RMS") != NULL;
        v->job.gradient_bytes = 2;
        v->job.layout.zero = 1;
        v->job.inputs_whole = true;
        v->job.logits_whole = true;
        v->job.dropout = true;
        v->fitted = strstr(v->job.model.name, "13B") != NULL;
        v->out_of_memory = !strcmp(csv_text(&csv, v->row, "outcome"), "oom");
        v->problem = arena_printf(arena, "%s, %s", csv_text(&csv, v->row, "problem"), kernels);
    }
    return 0;
}

/* GPT models as Megatron-LM trains them: full recomputation, dropout, fused softmax and norms, sums of gradients in fp16. */
static void as_gpt(struct job *job)
{
    job->attention = JOB_ATTENTION_SOFTMAX;
    job->norm_fused = true;
    job->dropout = true;
    job->gradient_bytes = 2;
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
        v->job.recompute = JOB_FULL;
        v->fitted = v->row % 2 == 0 && v->job.layout.dp * v->job.layout.tp * v->job.layout.pp <= NODE;
        const char *gpus = csv_text(&csv, v->row, "gpus"), *layers = csv_text(&csv, v->row, "layers");
        v->problem = arena_printf(arena, "%s GPUs, %s layers of %s, batch %s", gpus, layers,
                                  csv_text(&csv, v->row, "hidden"), csv_text(&csv, v->row, "global_batch"));
    }
    return 0;
}

int rows_read_published(const char *path, struct arena *arena, struct verdicts *out, struct error *err)
{
    struct csv csv;
    if (read_all(path, false, arena, &csv, out, err))
        return -1;
    for (int i = 0; i < out->count; i++) {
        struct verdict *v = &out->rows[i];
        as_gpt(&v->job);
        v->problem = csv_text(&csv, v->row, "table");
        v->job.fewer_at_ends = (int)csv_int(&csv, v->row, "fewer_at_ends", 0);
    }
    return 0;
}
