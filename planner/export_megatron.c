/* A plan as options of Megatron-LM's pretrain_gpt.py: names and meanings are those of NVIDIA/Megatron-LM's main branch of
 * 2026-08-22 (megatron/training/arguments.py, megatron/core/transformer/transformer_config.py). Its ranks are numbered as
 * ours: tensor, then data, then pipeline. */
#include "planner/export_parts.h"
#include "planner/export_recompute.h"

#include "base/checked.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------------- recomputation */

static void add_whole_layers(const struct export_recompute *whole, struct text *out)
{
    text_add(out, "    --recompute-granularity full\n");
    if (whole->all)
        text_add(out, "    --recompute-method uniform --recompute-num-layers 1\n");
    else
        text_printf(out, "    --recompute-method block --recompute-num-layers %" PRId64 "\n", whole->count);
}

static void add_modules(unsigned chosen, struct text *out)
{
    text_add(out, "    --recompute-granularity selective --recompute-modules");
    for (int i = 0; export_module_name(i); i++)
        if (chosen >> i & 1)
            text_printf(out, " %s", export_module_name(i));
    text_add(out, "\n");
}

static void note_more(const struct plan *plan, const char *instead, struct export_result *out)
{
    struct text text = {0};
    export_print_recompute(plan, &text);
    export_note(out,
                "Megatron-LM has no recomputation of %s; %s instead, which recomputes that and more: "
                "no more is kept, and the step is longer",
                text.data, instead);
    text_free(&text);
}

static void add_recompute(const struct plan *plan, struct export_result *out)
{
    struct export_recompute recompute = export_recompute_of(EXPORT_MEGATRON, plan);
    bool whole = recompute.way == EXPORT_WHOLE;
    if (whole)
        add_whole_layers(&recompute, &out->body);
    else if (recompute.way == EXPORT_MODULES)
        add_modules(recompute.modules, &out->body);
    if (!recompute.exact)
        note_more(plan, whole ? "whole layers are recomputed" : "the same modules of every layer are", out);
}

/* ----------------------------------------------------------------------------------------------------------- pipeline */

static bool is_even(const int64_t *layers, int64_t chunks)
{
    for (int64_t c = 1; c < chunks; c++)
        if (layers[c] != layers[0])
            return false;
    return true;
}

/* "Et*3|t*4|t*2L": the embedding, layers, stages and the loss. Chunks that are alike and follow each other are "(t*2|)*14". */
static void add_uneven(const int64_t *layers, int64_t chunks, struct text *out)
{
    text_add(out, "    --pipeline-model-parallel-layout 'E");
    for (int64_t c = 0, next; c < chunks; c = next) {
        for (next = c + 1; next < chunks - 1 && layers[next] == layers[c];)
            next++;
        bool last = next == chunks, several = !last && next > c + 1;
        text_add(out, several ? "(" : "");
        text_add(out, layers[c] ? "t" : "");
        if (layers[c] > 1)
            text_printf(out, "*%" PRId64, layers[c]);
        text_add(out, last ? "" : "|");
        if (several)
            text_printf(out, ")*%" PRId64, next - c);
    }
    text_add(out, "L'\n");
}

static void note_schedule(const struct layout *l, struct export_result *out)
{
    if (l->pp > 1 && l->schedule == SCHEDULE_ZB_H1)
        export_note(out, "Megatron-LM has no zb-h1 schedule; 1f1b runs instead, with the whole bubble");
    if (l->pp > 1 && l->schedule == SCHEDULE_GPIPE)
        export_note(out,
                    "Megatron-LM has no gpipe schedule; 1f1b runs instead, with fewer micro-batches kept");
    if (l->schedule == SCHEDULE_INTERLEAVED && layout_micro_batches(l) % l->pp)
        export_note(out,
                    "Megatron-LM interleaves micro-batches in groups of the %" PRId64
                    " stages, and may refuse %" PRId64 " of them",
                    l->pp, layout_micro_batches(l));
}

static void add_pipeline(const struct plan *plan, struct export_result *out)
{
    const struct layout *l = &plan->layout;
    int64_t chunks = layout_chunks(l), *layers = export_chunk_layers(plan);
    text_printf(&out->body, "    --pipeline-model-parallel-size %" PRId64 "\n", l->pp);
    if (!is_even(layers, chunks))
        add_uneven(layers, chunks, &out->body);
    else if (l->virtual_stages > 1)
        text_printf(&out->body, "    --num-virtual-stages-per-pipeline-rank %" PRId64 "\n",
                    l->virtual_stages);
    note_schedule(l, out);
    free(layers);
}

/* -------------------------------------------------------------------------------------------------------------- model */

static void add_llama(const struct model *m, struct export_result *out)
{
    text_printf(&out->body,
                "    --position-embedding-type rope --rotary-base %.0f\n"
                "    --normalization RMSNorm --swiglu\n",
                m->rope_theta);
    if (m->unturned)
        text_printf(&out->body, "    --rotary-percent %g\n", 1 - (double)m->unturned / (double)m->head_size);
    if (m->rope_theta != floor(m->rope_theta))
        export_note(out, "--rotary-base is a whole number, and the model's is %g", m->rope_theta);
    if (m->window)
        export_note(out,
                    "attention in the script is full, and the model's sees windows of %" PRId64
                    " positions; --window-size %" PRId64
                    ",0 asks for them where the version of Megatron-LM has it",
                    m->window, m->window - 1);
    if (!m->proj_bias)
        text_add(&out->body, "    --disable-bias-linear\n");
    else
        export_note(out, "Megatron-LM has biases in all linear layers or in none; with attention's they come "
                         "to the feed-forward layer too");
    if (m->qkv_bias && !m->proj_bias)
        text_add(&out->body, "    --add-qkv-bias\n");
    if (m->qk_norm)
        text_add(&out->body, "    --qk-layernorm\n");
    if (m->kv_heads != m->heads)
        text_printf(&out->body, "    --group-query-attention --num-query-groups %" PRId64 "\n", m->kv_heads);
}

/* Some versions of its NullTokenizer add a token to --vocab-size, the last of the vocabulary, and others do not: told one less,
 * all stay below the size that is said outright. */
static void add_vocabulary(const struct plan *plan, struct text *body)
{
    int64_t tp = plan->layout.tp, padded = (plan->model.vocab + tp - 1) / tp * tp;
    text_printf(
        body, "    --tokenizer-type NullTokenizer --vocab-size %" PRId64 " --padded-vocab-size %" PRId64 "\n",
        max_i64(plan->model.vocab - 1, 1), padded);
}

static void add_model(const struct plan *plan, struct export_result *out)
{
    const struct model *m = &plan->model;
    struct text *body = &out->body;
    text_printf(body,
                "    --num-layers %" PRId64 " --hidden-size %" PRId64 " --ffn-hidden-size %" PRId64 "\n",
                m->layers, m->hidden, m->ffn);
    text_printf(body, "    --num-attention-heads %" PRId64 " --kv-channels %" PRId64 "\n", m->heads,
                m->head_size);
    text_printf(body, "    --seq-length %" PRId64 " --max-position-embeddings %" PRId64 "\n",
                plan->layout.seq_len, max_i64(m->max_seq_len, plan->layout.seq_len));
    if (m->family == MODEL_LLAMA)
        add_llama(m, out);
    else
        text_add(body, "    --position-embedding-type learned_absolute --normalization LayerNorm\n");
    text_printf(body, "    --norm-epsilon %g --attention-dropout 0 --hidden-dropout 0\n", m->norm_eps);
    if (!m->tied)
        text_add(body, "    --untie-embeddings-and-output-weights\n");
    add_vocabulary(plan, body);
    if (m->vocab % (128 * plan->layout.tp))
        export_note(out,
                    "the vocabulary is padded to a multiple of tp=%" PRId64
                    ", as in the plan; Megatron-LM's own default is of %" PRId64
                    ", which costs memory and may be quicker",
                    plan->layout.tp, 128 * plan->layout.tp);
}

/* ------------------------------------------------------------------------------------------------------------- layout */

static void add_layout(const struct plan *plan, struct export_result *out)
{
    const struct layout *l = &plan->layout;
    text_printf(&out->body, "    --micro-batch-size %" PRId64 " --global-batch-size %" PRId64 "\n",
                l->micro_batch, l->global_batch);
    text_printf(&out->body, "    --tensor-model-parallel-size %" PRId64 "\n", l->tp);
    if (l->sequence_parallel)
        text_add(&out->body, "    --sequence-parallel\n");
    add_pipeline(plan, out);
    if (l->zero)
        text_add(&out->body, "    --use-distributed-optimizer\n");
    /* Its buckets are counted in elements, ours in bytes of fp32 gradients. */
    if (l->dp > 1)
        text_printf(&out->body, "    --overlap-grad-reduce --ddp-bucket-size %" PRId64 "\n",
                    max_i64(l->bucket_bytes / 4, 1));
    if (l->precision == PRECISION_BF16)
        text_add(&out->body, "    --bf16 --accumulate-allreduce-grads-in-fp32\n");
}

static void add_run(const struct export_request *request, struct export_result *out)
{
    if (request->data) {
        text_add(&out->body, "    --data-path ");
        export_quote_path(&out->body, request->data);
        text_add(&out->body, "\n");
    } else {
        text_add(&out->body, "    --mock-data\n");
        export_note(out, "no data was named, so the script trains on Megatron-LM's mock data; give --data "
                         "with the prefix of an indexed data set");
    }
    text_printf(&out->body, "    --train-iters %" PRId64 " --lr 3e-4\n",
                request->steps ? request->steps : 100);
}

static void add_launch(const struct export_request *request, struct text *out)
{
    int64_t ranks = layout_ranks(&request->plan->layout), each = min_i64(request->ranks_per_node, ranks);
    text_printf(out, "exec torchrun --nnodes %" PRId64 " --nproc-per-node %" PRId64 " \\\n",
                (ranks + each - 1) / each, each);
    text_add(out, "    --node-rank \"${NODE_RANK:-0}\" --master-addr \"${MASTER_ADDR:-localhost}\" \\\n"
                  "    --master-port \"${MASTER_PORT:-29500}\" \\\n"
                  "    \"${MEGATRON:-.}/pretrain_gpt.py\" \"${arguments[@]}\" \"$@\"\n");
}

static void note_machine(const struct export_request *request, struct export_result *out)
{
    if (!strcmp(request->plan->device, "cpu"))
        export_note(out, "the plan's memory and times are those of CPU ranks, and Megatron-LM needs GPUs");
    export_note_torchrun(request, out);
}

void export_megatron(const struct export_request *request, struct export_result *out)
{
    const struct plan *plan = request->plan;
    text_add(&out->body, "#!/bin/bash\n");
    export_comment(&out->body, plan->made_by);
    text_add(&out->body,
             "# Needs Megatron-LM's folder in MEGATRON; on several nodes NODE_RANK and MASTER_ADDR.\n"
             "set -euo pipefail\n\n"
             "export CUDA_DEVICE_MAX_CONNECTIONS=1\narguments=(\n");
    add_model(plan, out);
    add_layout(plan, out);
    add_recompute(plan, out);
    add_run(request, out);
    text_add(&out->body, ")\n");
    add_launch(request, &out->body);
    note_machine(request, out);
}
