/* Defaults of frameworks, checks, and parameters counted. */
#include "planner/frameworks/workload.h"

#include "base/checked.h"
#include "planner/cards.h"
#include "planner/frameworks/allocator_settings.h"

#include <stddef.h>

/* Each default with who says so: what a job gets that asks for nothing. */
struct workload workload_default(enum workload_library library, enum workload_sharding sharding)
{
    bool megatron = library == WORKLOAD_MEGATRON || library == WORKLOAD_MEGATRON_LEGACY;
    bool fsdp = sharding == WORKLOAD_FSDP1 || sharding == WORKLOAD_FSDP2;
    bool deepspeed = sharding == WORKLOAD_ZERO1 || sharding == WORKLOAD_ZERO2 || sharding == WORKLOAD_ZERO3;
    struct workload w = {
        .library = library,
        .sharding = sharding,
        .dp = 1,
        .tp = 1,
        .pp = 1,
        .cp = 1,
        .ep = 1,
        .virtual_stages = 1,
        .micro_batch = 1,
        .micro_batches = 1,
        /* FSDP's MixedPrecisionPolicy casts fp32 shards; Megatron and DeepSpeed have 16-bit weights and fp32 masters. */
        .weight_bytes = fsdp ? 4 : 2,
        .compute_bytes = 2,
        .gradient_bytes =
            4, /* Megatron: accumulate_allreduce_grads_in_fp32 with bf16; torch: the weights' type */
        .master_bytes = fsdp ? 0 : 4,
        .moment_bytes = 4,
        .reduce_bytes = 4,
        /* Apex's or TE's FusedAdam; torchtitan asks for fused; torch's own default is foreach. */
        .step = megatron || deepspeed || library == WORKLOAD_TITAN || library == WORKLOAD_LLMC
                    ? WORKLOAD_STEP_FUSED
                    : WORKLOAD_STEP_FOREACH,
        .attention = WORKLOAD_FLASH,
        .norm = megatron || library == WORKLOAD_LLMC ? WORKLOAD_NORM_FUSED : WORKLOAD_NORM_WRITTEN,
        .gate = library == WORKLOAD_MEGATRON ? WORKLOAD_GATE_FUSED : WORKLOAD_GATE_WRITTEN,
        .loss = megatron                   ? WORKLOAD_LOSS_VOCABULARY
                : library == WORKLOAD_LLMC ? WORKLOAD_LOSS_FUSED
                                           : WORKLOAD_LOSS_UPCAST,
        .loss_chunks = 8,
        .logits_held = library == WORKLOAD_TRANSFORMERS ? 2 : 0, /* ModelOutput.logits */
        .inputs_whole = library == WORKLOAD_TITAN,
        /* repeat_kv; Megatron-LM's transformer.py before core: key_layer.repeat_interleave() */
        .keys_expanded = library != WORKLOAD_MEGATRON,
        .pads_heads_to =
            8, /* head sizes of fused attention kernels (FlashAttention 2: flash_attn_interface.py) */
        .reshards_after_forward = true,
        .wraps_layers = true,
        .wraps_ends = library == WORKLOAD_TITAN, /* since 2025-07 (pull request 1094) */
        .in_buckets =
            sharding == WORKLOAD_REPLICATED && !megatron, /* gradient_as_bucket_view is off by default */
        .frozen_bits = 16,
        .context_bytes = CARD_CONTEXT_BYTES,
        .cublas_bytes = 8519680,
    };
    if (deepspeed) { /* runtime/zero/config.py of 0.19.8: reduce_bucket_size, stage3_max_reuse_distance; engine.py, get_data_types() */
        w.bucket_elements = 500000000;
        w.reuse_elements = 1000000000;
        w.gradient_bytes = 2;
    }
    /* DDP and FSDP by design, DeepSpeed's overlap_comm with stage 3 alone, Megatron-LM where --overlap-grad-reduce asks for it. */
    w.overlaps_gradients = fsdp || sharding == WORKLOAD_ZERO3 || w.in_buckets;
    return w;
}

bool workload_is_megatron(const struct workload *w)
{
    return w->library == WORKLOAD_MEGATRON || w->library == WORKLOAD_MEGATRON_LEGACY;
}

bool workload_is_deepspeed(const struct workload *w)
{
    return w->sharding == WORKLOAD_ZERO1 || w->sharding == WORKLOAD_ZERO2 || w->sharding == WORKLOAD_ZERO3;
}

bool workload_is_fsdp(const struct workload *w)
{
    return w->sharding == WORKLOAD_FSDP1 || w->sharding == WORKLOAD_FSDP2;
}

bool workload_gathers(const struct workload *w)
{
    return workload_is_fsdp(w) || w->sharding == WORKLOAD_ZERO3;
}

int workload_set_allocator(struct workload *w, const char *text, struct error *err)
{
    return allocator_settings_read(text, &w->allocator, err);
}

static int check_chunks(const struct workload *w, struct error *err)
{
    int64_t sum = 0, least = 0;
    for (int64_t i = 0; w->chunk_layers && i < w->pp * w->virtual_stages; i++) {
        sum += w->chunk_layers[i];
        least = min_i64(least, w->chunk_layers[i]);
    }
    if (w->chunk_layers && (least < 0 || sum != w->model.layers))
        return error_set(err, "the chunks of the pipeline have %lld layers, and the model %lld; correct them",
                         (long long)sum, (long long)w->model.layers);
    return 0;
}

int workload_check(const struct workload *w, struct error *err)
{
    const struct workload_model *m = &w->model;
    const struct {
        const char *name;
        int64_t value, least, most;
    } fields[] = {
        {"layers", m->layers, 1, 10000},
        {"hidden", m->hidden, 1, 1 << 20},
        {"heads", m->heads, 1, 1 << 16},
        {"kv_heads", m->kv_heads, 1, 1 << 16},
        {"ffn", m->ffn, 0, 1 << 24},
        {"vocab", m->vocab, 0, 1 << 26},
        {"head_size", m->head_size, 1, 1 << 16},
        {"experts", m->experts, 0, 1 << 16},
        {"dp", w->dp, 1, 1 << 20},
        {"tp", w->tp, 1, 1 << 12},
        {"pp", w->pp, 1, 1 << 10},
        {"cp", w->cp, 1, 1 << 12},
        {"ep", w->ep, 1, 1 << 12},
        {"virtual_stages", w->virtual_stages, 1, 1 << 10},
        {"micro_batch", w->micro_batch, 1, 1 << 24},
        {"sequence", w->sequence, 1, 1 << 28},
        {"micro_batches", w->micro_batches, 1, 1 << 24},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].value < fields[i].least || fields[i].value > fields[i].most)
            return error_set(err, "%s is %lld; it must be from %lld to %lld", fields[i].name,
                             (long long)fields[i].value, (long long)fields[i].least,
                             (long long)fields[i].most);
    if (w->schedule == SCHEDULE_GPIPE && w->pp > 1 && w->micro_batches > 256)
        return error_set(
            err, "gpipe keeps all of %lld micro-batches; 256 are the most that it is predicted for, try 1f1b",
            (long long)w->micro_batches);
    if (w->pp * w->virtual_stages > m->layers + 2)
        return error_set(err, "%lld stages of %lld chunks are more than %lld layers; try a smaller pp",
                         (long long)w->pp, (long long)w->virtual_stages, (long long)m->layers);
    return check_chunks(w, err);
}

/* ---- chunks of a pipeline, by their places along the model ---- */

static int64_t place_of(const struct workload *w, int64_t stage, int64_t chunk)
{
    return w->v_shaped && chunk % 2 ? (chunk + 1) * w->pp - 1 - stage : chunk * w->pp + stage;
}

static int64_t layers_at(const struct workload *w, int64_t place)
{
    int64_t chunks = w->pp * w->virtual_stages;
    if (w->chunk_layers)
        return w->chunk_layers[place];
    return w->model.layers / chunks + (place >= 1 && place <= w->model.layers % chunks);
}

int64_t workload_chunk_layers(const struct workload *w, int64_t stage, int64_t chunk)
{
    return layers_at(w, place_of(w, stage, chunk));
}

int64_t workload_chunk_start(const struct workload *w, int64_t stage, int64_t chunk)
{
    int64_t start = 0, end = place_of(w, stage, chunk);
    for (int64_t place = 0; place < end; place++)
        start += layers_at(w, place);
    return start;
}

int64_t workload_layers_before(const struct workload *w, int64_t layer)
{
    int64_t last = w->pp * w->virtual_stages - 1;
    for (int64_t place = 0; place < last && layer >= layers_at(w, place); place++)
        layer -= layers_at(w, place);
    return layer;
}

/* ---- parameters ---- */

static double attention_parameters(const struct workload_model *m)
{
    double h = (double)m->hidden, heads = (double)m->heads;
    if (m->kv_rank) {
        double query = (double)(m->nope_size + m->rope_size) * heads, kv = (double)m->kv_rank;
        double queries = m->q_rank ? (double)m->q_rank * (h + query + 1) : h * query;
        return queries + h * (kv + (double)m->rope_size) + kv +
               kv * heads * (double)(m->nope_size + m->value_size) + heads * (double)m->value_size * h;
    }
    double q = heads * (double)m->head_size, kv = (double)(m->kv_heads * m->head_size);
    double biases = m->bias ? q + 2 * kv + h : m->qkv_bias ? q + 2 * kv : 0;
    return h * (2 * q + 2 * kv) + biases + (m->qk_norm ? 2 * (double)m->head_size : 0);
}

static double mlp_parameters(const struct workload_model *m, double ffn)
{
    double h = (double)m->hidden;
    return (m->gated ? 3 : 2) * h * ffn + (m->bias ? ffn + h : 0);
}

double workload_norm_parameters(const struct workload *w)
{
    const struct workload_traits *traits = &w->model.traits;
    int norms = traits->residual == WORKLOAD_BESIDE_ONE_NORM ? 1 : traits->post_norms ? 4 : 2;
    return norms * (w->model.rms_norm ? 1 : 2) * (double)w->model.hidden;
}

double workload_layer_parameters(const struct workload *w, int64_t layer)
{
    const struct workload_model *m = &w->model;
    double dense = attention_parameters(m) + workload_norm_parameters(w);
    if (!m->experts || layer < m->dense_layers)
        return dense + mlp_parameters(m, (double)m->ffn);
    return dense + (double)(m->experts * m->hidden) +
           (double)m->experts * mlp_parameters(m, (double)m->expert_ffn) +
           mlp_parameters(m, (double)m->shared_ffn) * (m->shared_ffn > 0);
}

double workload_parameters(const struct workload *w)
{
    const struct workload_model *m = &w->model;
    double sum = 0, h = (double)m->hidden;
    for (int64_t layer = 0; layer < m->layers; layer++)
        sum += workload_layer_parameters(w, layer);
    sum +=
        h * (double)(m->vocab * (m->tied || m->classes ? 1 : 2) + m->positions + m->token_types + m->classes);
    return sum + (m->rms_norm ? 1 : 2) * h + (m->pooler ? h * (h + 1) : 0);
}
