#include "cli/job_words.h"

#include "base/text.h"
#include "base/units.h"
#include "planner/frameworks/layer_rules.h"

#include <stdio.h>
#include <string.h>

/* A file without its folders; a phrase as it is. */
const char *job_words_origin(const char *origin)
{
    return strchr(origin, ' ') ? origin : text_base_name(origin);
}

/* Never certain. */
const char *job_words_percent(double share, struct arena *arena)
{
    if (share > 0.99)
        return ">99%";
    return share < 0.01 ? "<1%" : arena_printf(arena, "%.0f%%", 100 * share);
}

/* "8: data 4 x tensor 2". */
const char *job_words_ranks(const struct training_job *job, struct arena *arena)
{
    const struct job_layout *l = &job->layout;
    const struct {
        const char *name;
        int64_t count;
    } parts[] = {{"data", l->dp}, {"tensor", l->tp}, {"pipeline", l->pp}, {"context", l->cp}};
    const char *text = NULL;
    for (int i = 0; i < 4; i++)
        if (parts[i].count > 1)
            text = arena_printf(arena, "%s%s%s %lld", text ? text : "", text ? " x " : "", parts[i].name,
                                (long long)parts[i].count);
    if (!text)
        return arena_printf(arena, "%lld", (long long)job->launch.ranks);
    if (l->ep > 1)
        text = arena_printf(arena, "%s; experts over %lld", text, (long long)l->ep);
    return arena_printf(arena, "%lld: %s%s", (long long)job->launch.ranks, text,
                        l->sequence_parallel && l->tp > 1 ? ", sequence parallel" : "");
}

const char *job_words_numbers(const struct workload *w, struct arena *arena)
{
    const char *weights = w->lora_rank && w->frozen_bits < 16 ? arena_printf(arena, "%d-bit", w->frozen_bits)
                          : w->weight_bytes == 4              ? "fp32"
                                                              : "16-bit";
    const char *text = arena_printf(arena, "%s weights", weights);
    if (w->compute_bytes != w->weight_bytes)
        text = arena_printf(arena, "%s, %s", text,
                            w->compute_bytes == 2 ? "computed in 16 bits" : "computed in fp32");
    if (w->lora_rank)
        return arena_printf(arena, "%s, frozen; adapters of rank %lld", text, (long long)w->lora_rank);
    return arena_printf(arena, "%s, %s gradients, %s", text, w->gradient_bytes == 4 ? "fp32" : "16-bit",
                        w->master_bytes        ? "fp32 masters"
                        : w->moment_bytes == 1 ? "8-bit optimizer states"
                        : w->moment_bytes == 2 ? "16-bit optimizer states"
                                               : "fp32 optimizer states");
}

const char *job_words_sharding(const struct workload *w, struct arena *arena)
{
    static const char *const names[WORKLOAD_SHARDINGS] = {
        [WORKLOAD_REPLICATED] = "whole on each data-parallel rank",
        [WORKLOAD_DISTRIBUTED_OPTIMIZER] = "optimizer split over data-parallel ranks (distributed optimizer)",
        [WORKLOAD_ZERO1] = "optimizer split over data-parallel ranks (ZeRO 1)",
        [WORKLOAD_ZERO2] = "gradients and optimizer split over data-parallel ranks (ZeRO 2)",
        [WORKLOAD_ZERO3] = "all split over data-parallel ranks (ZeRO 3)",
        [WORKLOAD_FSDP1] = "all split over data-parallel ranks (FSDP)",
        [WORKLOAD_FSDP2] = "all split over data-parallel ranks (FSDP2)",
    };
    return arena_printf(arena, "%s%s", names[w->sharding],
                        w->offload_weights     ? ", weights and optimizer on the host"
                        : w->offload_optimizer ? ", optimizer on the host"
                                               : "");
}

/* "core of attention, feed-forwards made again (selective)", of those that some layer has. */
static const char *modules(const struct workload *w, struct arena *arena)
{
    static const struct {
        enum workload_module module;
        const char *name;
    } names[] = {{WORKLOAD_CORE_ATTN, "core of attention"},
                 {WORKLOAD_LAYERNORM, "norms"},
                 {WORKLOAD_MLP, "feed-forwards"},
                 {WORKLOAD_MOE, "experts"},
                 {WORKLOAD_MOE_ACT, "experts' activations"},
                 {WORKLOAD_SHARED_EXPERTS, "shared experts"},
                 {WORKLOAD_MLA_UP_PROJ, "queries, keys and values"},
                 {WORKLOAD_GELU, "GELUs"},
                 {WORKLOAD_NORM_RESULTS, "norms"}};
    const char *text = NULL;
    bool experts = w->model.experts > 0, dense = !experts || w->model.dense_layers;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        enum workload_module module = names[i].module;
        bool there = (dense && layer_module_parts(w, module, false)) ||
                     (experts && layer_module_parts(w, module, true));
        if (w->modules & module && there)
            text = arena_printf(arena, "%s%s%s", text ? text : "", text ? ", " : "", names[i].name);
    }
    return text ? arena_printf(arena, "%s made again (selective)", text)
                : "nothing made again, since no layer has those modules";
}

const char *job_words_recomputation(const struct workload *w, struct arena *arena)
{
    static const char *const names[] = {
        [WORKLOAD_KEEPS_ALL] = "nothing made again",
        [WORKLOAD_EVERY_SECOND] = "every second matrix product made again (selective)",
        [WORKLOAD_ALTERNATE] = "every second layer made again",
        [WORKLOAD_FULL] = "every layer made again (full)",
    };
    if (w->recompute == WORKLOAD_FULL && w->remade_layers)
        return arena_printf(arena, "%lld %s%s made again", (long long)w->remade_layers,
                            units_plural(w->remade_layers, "layer", "layers"),
                            w->virtual_stages > 1 ? " of each chunk"
                            : w->pp > 1           ? " of each stage"
                                                  : "");
    return w->recompute == WORKLOAD_MODULES ? modules(w, arena) : names[w->recompute];
}

const char *job_words_attention(const struct workload *w)
{
    return w->attention == WORKLOAD_FLASH           ? "fused attention"
           : w->attention == WORKLOAD_FUSED_SOFTMAX ? "attention with scores, fused softmax"
                                                    : "attention with scores";
}

/* ---- edits ---- */

const char *job_words_edit(const struct job_edit *edit, struct arena *arena)
{
    if (edit->place == JOB_EDIT_ENVIRONMENT)
        return arena_printf(arena, "%s=%s", edit->name, edit->value);
    if (edit->place == JOB_EDIT_FILE && !edit->value)
        return arena_printf(arena, "%s: without %s", edit->file, edit->name);
    if (edit->place == JOB_EDIT_FILE)
        return arena_printf(arena, "%s: %s = %s", edit->file, edit->name, edit->value);
    if (!edit->value)
        return arena_printf(arena, "without %s", edit->name);
    bool quotes = strchr(edit->value, ' ') && !edit->words;
    return arena_printf(arena, *edit->value ? quotes ? "%s \"%s\"" : "%s %s" : "%s", edit->name, edit->value);
}

const char *job_words_change(const struct training_job *job, const struct job_edit *edit, struct arena *arena)
{
    const struct fact *now = job_changes_given(job, edit);
    const char *text = job_words_edit(edit, arena);
    return now ? arena_printf(arena, "%s   (now %s, %s)", text, now->value, job_words_origin(now->origin))
               : text;
}

/* ---- differences ---- */

/* What was said so far, and by which kinds of change. */
struct said {
    const char *text;
    bool kinds[JOB_CHANGE_PRECISION + 1];
    struct arena *arena;
};

static void say(struct said *s, enum job_change_kind kind, bool differs, const char *piece)
{
    if (!differs)
        return;
    s->text = s->text ? arena_printf(s->arena, "%s; %s", s->text, piece) : piece;
    s->kinds[kind] = true;
}

static void say_words(struct said *s, enum job_change_kind kind, const char *before, const char *after)
{
    say(s, kind, strcmp(before, after) != 0, after);
}

static void say_layout(struct said *s, const struct job_layout *a, const struct job_layout *b)
{
    const struct {
        enum job_change_kind kind;
        const char *name;
        int64_t before, after;
    } degrees[] = {{JOB_CHANGE_TENSOR, "tensor parallel", a->tp, b->tp},
                   {JOB_CHANGE_CONTEXT, "context parallel", a->cp, b->cp},
                   {JOB_CHANGE_PIPELINE, "pipeline of", a->pp, b->pp},
                   {JOB_CHANGE_CHUNKS, "chunks a stage", a->virtual_stages, b->virtual_stages}};
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
        say(s, degrees[i].kind, degrees[i].before != degrees[i].after,
            arena_printf(s->arena, "%s %lld instead of %lld", degrees[i].name, (long long)degrees[i].after,
                         (long long)degrees[i].before));
    say(s, JOB_CHANGE_SHARDING, a->sequence_parallel != b->sequence_parallel && a->tp > 1 && b->tp > 1,
        b->sequence_parallel ? "norms and dropout sequence parallel" : "norms and dropout on all ranks");
    say(s, JOB_CHANGE_SHARDING,
        a->dp_replicate != b->dp_replicate && (a->dp_replicate > 1 || b->dp_replicate > 1),
        b->dp_replicate > 1
            ? arena_printf(s->arena, "%lld copies of what is split", (long long)b->dp_replicate)
            : "split over all ranks");
}

/* What the words of a page do not tell apart. */
static void say_details(struct said *s, const struct training_job *a, const struct training_job *b)
{
    const struct job_shards *x = &a->shards, *y = &b->shards;
    const char *before = a->kernels.allocator, *after = b->kernels.allocator;
    say(s, JOB_CHANGE_SHARDING, x->precision_aware != y->precision_aware,
        y->precision_aware ? "precision-aware optimizer" : "without the precision-aware optimizer");
    say(s, JOB_CHANGE_SHARDING,
        x->sharding == y->sharding && x->reshard_after_forward != y->reshard_after_forward,
        y->reshard_after_forward ? "weights gathered again for backward"
                                 : "weights kept from forward to backward");
    say(s, JOB_CHANGE_KERNELS, a->kernels.liger != b->kernels.liger,
        b->kernels.liger ? "Liger kernels" : "without Liger kernels");
    say(s, JOB_CHANGE_ALLOCATOR, strcmp(before ? before : "", after ? after : "") != 0,
        after && strstr(after, "expandable_segments:True") ? "expandable segments" : "another allocator");
}

/* A kind of change that none of that is about: as it is written. */
static void say_rest(struct said *s, const struct job_edits *edits)
{
    const struct said before = *s;
    for (int i = 0; i < edits->count; i++)
        if (!before.kinds[edits->list[i].kind])
            say(s, edits->list[i].kind, true, job_words_edit(&edits->list[i], s->arena));
}

const char *job_words_differences(const struct job_words_launch *before, const struct job_words_launch *after,
                                  const struct job_edits *edits, struct arena *arena)
{
    const struct workload *v = before->workload, *w = after->workload;
    int64_t was = v->dp * v->micro_batch * v->micro_batches, is = w->dp * w->micro_batch * w->micro_batches;
    struct said s = {.arena = arena};
    say_layout(&s, &before->job->layout, &after->job->layout);
    say(&s, JOB_CHANGE_MICRO_BATCH, v->micro_batch != w->micro_batch,
        arena_printf(arena, "micro-batch %lld instead of %lld", (long long)w->micro_batch,
                     (long long)v->micro_batch));
    say(&s, JOB_CHANGE_MICRO_BATCH, was != is,
        arena_printf(arena, "%lld sequences a step instead of %lld", (long long)is, (long long)was));
    say_words(&s, JOB_CHANGE_PRECISION, job_words_numbers(v, arena), job_words_numbers(w, arena));
    say_words(&s, JOB_CHANGE_RECOMPUTE, job_words_recomputation(v, arena), job_words_recomputation(w, arena));
    s.kinds[JOB_CHANGE_OFFLOAD] =
        v->offload_weights != w->offload_weights || v->offload_optimizer != w->offload_optimizer;
    say_words(&s, JOB_CHANGE_SHARDING, job_words_sharding(v, arena), job_words_sharding(w, arena));
    say_words(&s, JOB_CHANGE_KERNELS, job_words_attention(v), job_words_attention(w));
    say_details(&s, before->job, after->job);
    say_rest(&s, edits);
    return s.text;
}
