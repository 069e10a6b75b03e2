#include "bench/score/measured_cases.h"

#include "base/checked.h"
#include "bench/score/case_rules.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t whole(const json_t *object, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? (int64_t)json_number_value(value) : otherwise;
}

static bool truth(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* "256 routed of 2048 + 1 shared, top-8, 3 dense layers": each number by the word beside it. */
static void read_experts(const char *text, struct workload_model *m)
{
    const char *of = strstr(text, " of "), *top = strstr(text, "top-"), *plus = strstr(text, "+ ");
    const char *dense = strstr(text, " dense");
    m->experts = atoll(text);
    m->expert_ffn = of ? atoll(of + 4) : m->ffn;
    m->active_experts = top ? atoll(top + 4) : 1;
    m->shared_ffn = plus && strstr(plus, "shared") ? atoll(plus + 2) * m->expert_ffn : 0;
    while (dense && dense > text && isdigit((unsigned char)dense[-1]))
        dense--;
    m->dense_layers = dense ? atoll(dense) : 0;
}

/* DeepSeek-V3's sizes of heads, where the case gives the ranks alone. */
static void read_latent(const char *text, struct workload_model *m)
{
    const char *q = strstr(text, "q_lora "), *kv = strstr(text, "kv_lora ");
    m->q_rank = q ? atoll(q + 7) : 1536;
    m->kv_rank = kv ? atoll(kv + 8) : 512;
    m->nope_size = m->value_size = 128;
    m->rope_size = 64;
}

static void read_model(struct measured_case *c)
{
    const json_t *model = json_object_get(c->record, "model");
    struct workload_model *m = &c->workload.model;
    m->layers = whole(model, "layers", 0);
    m->hidden = whole(model, "hidden", 0);
    m->heads = whole(model, "heads", 1);
    m->kv_heads = whole(model, "kv_heads", m->heads);
    m->head_size = whole(model, "head_dim", m->heads ? m->hidden / m->heads : 0);
    m->ffn = whole(model, "ffn", 0);
    m->vocab = whole(model, "vocab", 0);
    if (!m->vocab && m->layers > 1) {
        m->vocab = 32000; /* of LLaMA and those like it */
        text_printf(&c->assumed, "vocab %lld; ", (long long)m->vocab);
    }
    m->tied = truth(model, "tied");
    m->bias = truth(model, "bias");
    m->qkv_bias =
        case_rules_text(c->record, "model.bias") && strcmp(case_rules_text(c->record, "model.bias"), "true");
    m->parameters = json_number_value(json_object_get(c->record, "params"));
}

/* "Ulysses 4", "local batch 16": the number in a text. */
static int64_t number_in(const json_t *record, const char *key, int64_t otherwise)
{
    const char *text = json_string_value(json_object_get(record, key));
    if (text)
        text = strpbrk(text, "0123456789");
    return text ? atoll(text) : whole(record, key, otherwise);
}

static int64_t assume(struct measured_case *c, const char *key, int64_t otherwise)
{
    int64_t value = number_in(c->record, key, 0);
    if (value)
        return value;
    text_printf(&c->assumed, "%s %lld; ", key, (long long)otherwise);
    return otherwise;
}

static void read_layout(struct measured_case *c)
{
    struct workload *w = &c->workload;
    bool job = !strncmp(c->scope, "full", 4);
    w->tp = number_in(c->record, "tp", 1);
    w->pp = number_in(c->record, "pp", 1);
    w->cp = number_in(c->record, "cp", 1);
    w->ep = number_in(c->record, "ep", 1);
    w->dp = job ? assume(c, "dp", 1) : number_in(c->record, "dp", 1);
    w->virtual_stages = json_is_integer(json_object_get(c->record, "vpp")) ? whole(c->record, "vpp", 1) : 1;
    w->micro_batch = assume(c, "micro_batch", 1);
    c->sequence_given =
        json_object_get(c->record, "seq_len") && !json_is_null(json_object_get(c->record, "seq_len"));
    /* torchtune's recipes fine-tune on instructions, each batch as long as its longest. */
    w->sequence = c->sequence_given                   ? number_in(c->record, "seq_len", 0)
                  : strstr(c->framework, "torchtune") ? assume(c, "seq_len", 512)
                                                      : 1;
    int64_t global = number_in(c->record, "global_batch", 0);
    w->micro_batches = global ? max_i64(global / (w->dp * w->micro_batch), 1) : w->pp > 1 ? 2 * w->pp : 1;
    if (!global && w->pp > 1)
        text_printf(&c->assumed, "%lld micro-batches; ", (long long)w->micro_batches);
    const char *batch = json_string_value(json_object_get(c->record, "micro_batch"));
    if (batch && strstr(batch, "local batch") &&
        w->pp > 1) { /* torchtitan cuts it into sequences for a pipeline */
        w->micro_batches = w->micro_batch;
        w->micro_batch = 1;
    }
    int64_t gpus = whole(c->record, "gpus", 0), ranks = w->dp * w->tp * w->pp * w->cp;
    if (job && gpus && gpus != ranks)
        text_printf(&c->unread, "%lld gpus, for %lld ranks; ", (long long)gpus, (long long)ranks);
    double memory_gib = json_number_value(json_object_get(c->record, "gpu_mem_gib"));
    w->capacity_bytes = (int64_t)(memory_gib * (1LL << 30));
}

/* Megatron's pretraining scripts and BERT and GPT-2 of Transformers have dropout; LLaMA-like models and MPT do not. */
static void choose_dropout(struct measured_case *c)
{
    struct workload *w = &c->workload;
    bool learned = case_rules_text(c->record, "model.pos") &&
                   !strcmp(case_rules_text(c->record, "model.pos"), "learned");
    bool composer = strstr(c->framework, "composer") != NULL;
    w->hidden_dropout = w->attention_dropout = w->embedding_dropout =
        learned && !composer && (workload_is_megatron(w) || w->library == WORKLOAD_TRANSFORMERS);
}

double measured_bytes(double value, const char *unit)
{
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"bytes", 1}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strncmp(unit, units[i].unit, strlen(units[i].unit)))
            return value * units[i].bytes;
    return NAN;
}

static void read_measured(struct measured_case *c)
{
    const json_t *measured = json_object_get(c->record, "measured");
    c->what = json_string_value(json_object_get(measured, "what"));
    c->unit = json_string_value(json_object_get(measured, "unit"));
    c->out_of_memory = !strcmp(c->what, "oom");
    bool outcome = c->out_of_memory || !strcmp(c->what, "fits");
    c->value = outcome ? NAN : measured_bytes(json_number_value(json_object_get(measured, "value")), c->unit);
}

/* FNV-1a of the family, so that near-duplicates are on one side; the bit that splits frameworks most evenly. */
static bool in_held_out_half(const char *family)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *family; family++)
        hash = (hash ^ (unsigned char)*family) * 0x100000001b3u;
    return !(hash >> 29 & 1);
}

/* What no workload describes. */
static void refuse(struct measured_case *c)
{
    const char *note = case_rules_text(c->record, "model.note");
    bool job = !strncmp(c->scope, "full", 4);
    if (note && strstr(note, "hybrid"))
        c->refused = "layers of several kinds (Mamba, attention, experts), and how many of each is not said";
    else if (note && strstr(note, "24+24"))
        c->refused = "an encoder and a decoder";
    else if (job && json_is_null(json_object_get(c->record, "dp")) && whole(c->record, "gpus", 1) > 1)
        c->refused = "the layout is not said";
    else if (job && !c->sequence_given && !strstr(c->framework, "torchtune") && !c->out_of_memory)
        c->refused = "the sequence length is not said";
}

static void read_case(const json_t *record, struct measured_case *c)
{
    c->record = record;
    c->id = case_rules_text(record, "id");
    c->family = case_rules_text(record, "family");
    c->scope = case_rules_text(record, "scope");
    c->framework = case_rules_text(record, "framework");
    c->quality = case_rules_text(record, "quality");
    c->notes = case_rules_text(record, "notes");
    c->model = case_rules_text(record, "model.name");
    c->held_out = in_held_out_half(c->family);
    read_measured(c);
    enum workload_library library = case_rules_library(c);
    c->workload = workload_default(library, case_rules_sharding(c, library));
    read_model(c);
    read_layout(c);
    choose_dropout(c);
    case_rules_apply(c);
    if (workload_is_megatron(&c->workload)) /* make_vocab_size_divisible_by is 128 */
        c->workload.model.vocab = round_up(c->workload.model.vocab, 128 * c->workload.tp);
    if (case_rules_text(record, "model.moe"))
        read_experts(case_rules_text(record, "model.moe"), &c->workload.model);
    if (case_rules_text(record, "model.mla"))
        read_latent(case_rules_text(record, "model.mla"), &c->workload.model);
    /* torchtitan's chunks of 2026 are of the head too (loss.py, ChunkedCELoss). */
    if (library == WORKLOAD_TITAN && c->workload.loss == WORKLOAD_LOSS_CHUNKED &&
        strstr(case_rules_text(record, "source"), "(2026-"))
        c->workload.loss = WORKLOAD_LOSS_LINEAR;
    if (c->workload.loss == WORKLOAD_LOSS_CLASSES)
        c->workload.model.classes = 2;
    refuse(c);
    if (library == WORKLOAD_MEGATRON_LEGACY && strstr(c->framework, "in-house"))
        c->workload.gradient_bytes = 2; /* the case's own arithmetic: only these fit */
}

int measured_cases_open(const char *path, struct arena *arena, struct measured_cases *out, struct error *err)
{
    char *data;
    size_t length;
    int line = 0;
    *out = (struct measured_cases){.records = json_array()};
    if (text_read_file(path, 64 << 20, &data, &length, err))
        goto fail;
    for (char *at = data, *end; *at; at = end + (*end != 0)) {
        json_error_t wrong;
        end = at + strcspn(at, "\n");
        line++;
        if (end == at)
            continue;
        json_t *record = json_loadb(at, (size_t)(end - at), 0, &wrong);
        if (!record || !json_is_object(json_object_get(record, "measured"))) {
            json_decref(record);
            free(data);
            error_set(err, "%s:%d: no case: %s; leave the line out", path, line,
                      record ? "\"measured\" is missing" : wrong.text);
            goto fail;
        }
        json_array_append_new(out->records, record);
    }
    free(data);
    out->count = (int)json_array_size(out->records);
    out->list = arena_array(arena, (size_t)out->count, sizeof *out->list);
    for (int i = 0; i < out->count; i++)
        read_case(json_array_get(out->records, (size_t)i), &out->list[i]);
    return 0;
fail:
    json_decref(out->records);
    return -1;
}

void measured_cases_close(struct measured_cases *cases)
{
    for (int i = 0; i < cases->count; i++) {
        text_free(&cases->list[i].unread);
        text_free(&cases->list[i].assumed);
    }
    json_decref(cases->records);
}
