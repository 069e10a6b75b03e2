/* A plan as a TOML file for torchtitan: keys of its release 0.2.2 (torchtitan/config/job_config.py), the last to read TOML;
 * later ones have fields of the same names in Python. Its device mesh has pipeline, data, then tensor, as our ranks. */
#include "planner/export_parts.h"
#include "planner/export_recompute.h"

#include "base/checked.h"
#include "base/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------- model */

/* The shapes that it has by name (torchtitan/models/llama3/__init__.py). */
static const struct flavor {
    const char *name;
    int64_t layers, hidden, heads, kv_heads, ffn;
} flavors[] = {
    {"8B", 32, 4096, 32, 8, 14336},
    {"70B", 80, 8192, 64, 8, 28672},
    {"405B", 126, 16384, 128, 8, 53248},
};

static const struct flavor *find_flavor(const struct model *m)
{
    for (size_t i = 0; i < sizeof flavors / sizeof flavors[0]; i++) {
        const struct flavor *f = &flavors[i];
        if (f->layers == m->layers && f->hidden == m->hidden && f->heads == m->heads &&
            f->kv_heads == m->kv_heads && f->ffn == m->ffn && m->vocab == 128256 && m->rope_theta == 500000)
            return f;
    }
    return NULL;
}

/* Its feed-forward size is a share of 8/3 hidden, rounded up to multiple_of: a small share gives one of them, exactly. */
static void add_own_flavor(const struct model *m, struct text *out)
{
    text_add(out, "# Add to llama3_args in torchtitan/models/llama3/__init__.py:\n");
    text_printf(out,
                "#     \"memplan\": TransformerModelArgs(dim=%" PRId64 ", n_layers=%" PRId64
                ", n_heads=%" PRId64 ", n_kv_heads=%" PRId64 ",\n",
                m->hidden, m->layers, m->heads, m->kv_heads);
    text_printf(out,
                "#         vocab_size=%" PRId64 ", ffn_dim_multiplier=%g, multiple_of=%" PRId64
                ", norm_eps=%g, rope_theta=%g),\n",
                m->vocab, (double)m->ffn / (double)m->hidden / 16, m->ffn, m->norm_eps, m->rope_theta);
}

static void add_model(const struct model *m, struct export_result *out)
{
    const struct flavor *flavor = find_flavor(m);
    if (!flavor) {
        add_own_flavor(m, &out->body);
        export_note(out,
                    "torchtitan has no llama of this shape; add the flavor that the file's comment shows");
    }
    text_printf(&out->body,
                "[model]\nname = \"llama3\"\nflavor = \"%s\"\nhf_assets_path = \"./assets/hf\"\n\n",
                flavor ? flavor->name : "memplan");
    if (m->tied)
        export_note(out,
                    "torchtitan's llama3 has a head of its own, and the model's is tied to the embedding: "
                    "%" PRId64 " parameters more",
                    m->vocab * m->hidden);
    if (m->qkv_bias || m->proj_bias)
        export_note(out, "torchtitan's llama3 has no biases, and the model has");
    if (m->window)
        export_note(out,
                    "attention in torchtitan's llama3 is full, and the model's sees windows of %" PRId64
                    " positions",
                    m->window);
}

/* ----------------------------------------------------------------------------------------------------------- training */

/* A step's micro-batches are a pipeline's own; without one, gradients accumulate over them. */
static void add_training(const struct export_request *request, struct export_result *out)
{
    const struct layout *l = &request->plan->layout;
    int64_t local = l->pp > 1 ? l->micro_batch * layout_micro_batches(l) : l->micro_batch;
    text_printf(&out->body,
                "[training]\nlocal_batch_size = %" PRId64 "\nglobal_batch_size = %" PRId64
                "\nseq_len = %" PRId64 "\nsteps = %" PRId64 "\n",
                local, l->global_batch, l->seq_len, request->steps ? request->steps : 100);
    text_printf(&out->body, "mixed_precision_param = \"%s\"\nmixed_precision_reduce = \"float32\"\n",
                l->precision == PRECISION_BF16 ? "bfloat16" : "float32");
    if (request->data) {
        text_add(&out->body, "dataset_path = ");
        json_t *path = jsonfile_string(request->data);
        char *quoted = json_dumps(path, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
        text_printf(&out->body, "%s\n\n", quoted);
        free(quoted);
        json_decref(path);
    } else {
        text_add(&out->body, "dataset = \"c4_test\"\n\n");
        export_note(out, "no data was named, so the file says torchtitan's test data; give --data");
    }
    if (!export_computes_alike(EXPORT_TORCHTITAN, l))
        export_note(out,
                    "torchtitan casts nothing to bf16 where tensor or pipeline parallel ranks have no FSDP "
                    "besides, and computes all in fp32: slower, and with twice the activations; plan with "
                    "--for torchtitan, which gives it data-parallel ranks");
    else if (l->precision == PRECISION_BF16)
        export_note(out, "torchtitan keeps weights in fp32 and casts them to bf16 for use; the plan has bf16 "
                         "weights and fp32 masters");
}

/* -------------------------------------------------------------------------------------------------------- parallelism */

static const char *schedule_of(const struct layout *l, struct export_result *out)
{
    switch (l->schedule) {
    case SCHEDULE_GPIPE:
        return "GPipe";
    case SCHEDULE_INTERLEAVED:
        return "Interleaved1F1B";
    case SCHEDULE_ZB_H1:
        export_note(out, "torchtitan has no zb-h1 schedule (its zero-bubble ones need two stages a rank); "
                         "1F1B runs instead, with the whole bubble");
        return "1F1B";
    default:
        return "1F1B";
    }
}

/* Which modules each chunk has, by name. */
static void add_chunks(const struct plan *plan, struct text *out)
{
    int64_t chunks = layout_chunks(&plan->layout), *layers = export_chunk_layers(plan), layer = 0;
    text_add(out, "module_fqns_per_model_part = [\n");
    for (int64_t c = 0; c < chunks; c++) {
        text_add(out, c ? "    [" : "    [\"tok_embeddings\"");
        for (int64_t i = 0; i < layers[c]; i++, layer++)
            text_printf(out, "%s\"layers.%" PRId64 "\"", i || !c ? ", " : "", layer);
        text_printf(out, "%s],\n",
                    c < chunks - 1 ? ""
                    : layers[c]    ? ", \"norm\", \"output\""
                                   : "\"norm\", \"output\"");
    }
    text_add(out, "]\n");
    free(layers);
}

/* It replicates only where all ranks are data-parallel, and else shards: gradients and weights with the states. */
static void add_replicas(const struct layout *l, struct export_result *out)
{
    bool replicate = !l->zero && l->tp == 1 && l->pp == 1;
    text_printf(&out->body,
                "data_parallel_replicate_degree = %" PRId64 "\ndata_parallel_shard_degree = %" PRId64 "\n",
                replicate ? l->dp : 1, replicate ? 1 : l->dp);
    if (replicate || l->dp == 1)
        return;
    text_add(&out->body, "fsdp_reshard_after_forward = \"never\"\n");
    export_note(out,
                "torchtitan has no %s; FSDP runs instead, which shards gradients and weights too: less is "
                "kept, and more is sent",
                l->zero ? "optimizer that alone is sharded (ZeRO-1)" : "replicas beside tp or pp");
}

static void add_parallelism(const struct plan *plan, struct export_result *out)
{
    const struct layout *l = &plan->layout;
    text_add(&out->body, "[parallelism]\n");
    add_replicas(l, out);
    text_printf(&out->body,
                "tensor_parallel_degree = %" PRId64 "\npipeline_parallel_degree = %" PRId64
                "\ncontext_parallel_degree = 1\n",
                l->tp, l->pp);
    if (l->tp > 1 && !l->sequence_parallel)
        export_note(out, "torchtitan's tensor parallelism always splits norms over the sequence, which the "
                         "plan does not: less is kept");
    if (l->pp > 1) {
        text_printf(&out->body,
                    "pipeline_parallel_schedule = \"%s\"\npipeline_parallel_microbatch_size = %" PRId64 "\n",
                    schedule_of(l, out), l->micro_batch);
        add_chunks(plan, &out->body);
    }
    text_add(&out->body, "\n");
}

/* ------------------------------------------------------------------------------------------------------ recomputation */

static void add_recompute(const struct plan *plan, struct export_result *out)
{
    struct export_recompute recompute = export_recompute_of(EXPORT_TORCHTITAN, plan);
    text_printf(&out->body, "[activation_checkpoint]\nmode = \"%s\"\n",
                recompute.way == EXPORT_NOTHING ? "none" : "full");
    if (recompute.exact)
        return;
    struct text text = {0};
    export_print_recompute(plan, &text);
    export_note(out,
                "torchtitan cannot say which tensors of which layers are made again (%s); all of every "
                "layer is instead: no more is kept, and the step is longer",
                text.data);
    text_free(&text);
}

void export_torchtitan(const struct export_request *request, struct export_result *out)
{
    const struct plan *plan = request->plan;
    int64_t ranks = layout_ranks(&plan->layout), each = min_i64(request->ranks_per_node, ranks);
    export_comment(&out->body, plan->made_by);
    text_printf(&out->body,
                "# For torchtitan 0.2.2, the last to read TOML:\n"
                "#     torchrun --nnodes %" PRId64 " --nproc-per-node %" PRId64
                " -m torchtitan.train --job.config_file THIS_FILE\n\n",
                (ranks + each - 1) / each, each);
    add_model(&plan->model, out);
    text_add(&out->body, "[optimizer]\nname = \"AdamW\"\nlr = 3e-4\n\n");
    add_training(request, out);
    add_parallelism(plan, out);
    add_recompute(plan, out);
    export_note(out, "torchtitan releases after 0.2.2 read no TOML; set the fields of the same names there");
    if (!strcmp(plan->device, "cpu"))
        export_note(out, "the plan's memory and times are those of CPU ranks, and torchtitan needs GPUs");
    export_note_torchrun(request, out);
}
