/* Chunks of a pipeline are listed in the model's order: chunk c of stage s is number c x stages + s, but for torchtitan's V-shaped
 * schedules, whose second chunks run backwards (planner/frameworks/workload.c). */
#include "jobs/pipeline_split.h"

#include "base/checked.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_CHUNKS = 1 << 14,
    MOST_WRITTEN = 1 << 16, /* characters of a layout with its repetitions written out */
};

static int64_t *new_chunks(struct training_job *job, int64_t count)
{
    int64_t *layers = arena_array(job->facts.arena, (size_t)count, sizeof *layers);
    memset(layers, 0, (size_t)count * sizeof *layers);
    return layers;
}

/* Chunks of different sizes are shown, since no option may say them. */
static void note_chunks(struct training_job *job, int64_t count, const char *origin)
{
    const int64_t *layers = job->layout.chunk_layers;
    struct text list = {0};
    bool even = true;
    for (int64_t i = 0; i < count; i++) {
        even = even && layers[i] == layers[0];
        text_printf(&list, i ? ", %lld" : "%lld", (long long)layers[i]);
    }
    if (!even)
        job_note(job, FACT_DERIVED, "layers of the pipeline's chunks",
                 arena_strdup(job->facts.arena, list.data), origin);
    text_free(&list);
}

/* ---- Megatron-LM's own language of layouts ---- */

/* `piece` so many times as the "*N" at *at says, which is passed over. False: that is too long. */
static bool add_times(struct text *out, const char *piece, int length, const char **at)
{
    long long times = 1;
    if (**at == '*' && isdigit((unsigned char)(*at)[1])) {
        char *end;
        times = strtoll(*at + 1, &end, 10);
        *at = end;
    }
    if (times > MOST_WRITTEN || (long long)out->length + times * length > MOST_WRITTEN)
        return false;
    while (times-- > 0)
        text_printf(out, "%.*s", length, piece);
    return true;
}

/* Groups first, "(tt|)*3" into "tt|tt|tt|", and then single characters, "t*3" into "ttt" (pipeline_parallel_layer_layout.py). */
static bool write_out(const char *from, bool groups, struct text *out)
{
    bool fits = true;
    for (const char *at = from; fits && *at;) {
        const char *piece = at, *close = groups && *at == '(' ? strchr(at, ')') : NULL;
        int length = 1;
        if (close && close[1] == '*') {
            piece = at + 1;
            length = (int)(close - piece);
            at = close;
        }
        at++;
        if (groups && !close)
            text_printf(out, "%c", *piece);
        else
            fits = add_times(out, piece, length, &at);
    }
    return fits && out->length <= MOST_WRITTEN;
}

static int refuse_layout(const struct training_job *job, const char *why, struct error *err)
{
    return error_set(
        err,
        "--pipeline-model-parallel-layout %.60s: %s; write it as 'Et*3|t*4|t*4|t*3L', with E, t and "
        "L for the embedding, layers and the loss",
        job->layout.pipeline_layout, why);
}

static int count_layout(struct training_job *job, const char *written, struct error *err)
{
    struct job_layout *l = &job->layout;
    struct arena *arena = job->facts.arena;
    int64_t chunks = 1, layers = 0, further = 0;
    size_t length = strlen(written);
    for (const char *at = written; *at; at++)
        chunks += *at == '|';
    if (chunks % l->pp || chunks > MOST_CHUNKS)
        return refuse_layout(job,
                             arena_printf(arena, "%lld parts, which %lld stages cannot share",
                                          (long long)chunks, (long long)l->pp),
                             err);
    int64_t *counts = new_chunks(job, chunks), place = 0;
    for (size_t i = 0; i < length; i++) {
        bool ends = (written[i] == 'E' && !i) || (written[i] == 'L' && i && i + 1 == length);
        if (!ends && !strchr("t|m", written[i]))
            return refuse_layout(job, arena_printf(arena, "'%c' stands where it means nothing", written[i]),
                                 err);
        place += written[i] == '|';
        counts[place] += written[i] == 't';
        layers += written[i] == 't';
        further += written[i] == 'm';
    }
    if (*written != 'E' || written[length - 1] != 'L')
        return refuse_layout(job, "it must begin with E and end with L", err);
    if (layers != job->model.layers || further != job->model.extra_layers)
        return refuse_layout(job,
                             arena_printf(arena,
                                          "it has %lld layers (t), and the model %lld; of those that "
                                          "predict further tokens (m) %lld, and the model %lld",
                                          (long long)layers, (long long)job->model.layers, (long long)further,
                                          (long long)job->model.extra_layers),
                             err);
    l->virtual_stages = chunks / l->pp;
    l->chunk_layers = counts;
    return 0;
}

static int read_layout(struct training_job *job, struct error *err)
{
    struct text plain = {0}, groups = {0}, written = {0};
    int status = -1;
    for (const char *at = job->layout.pipeline_layout; *at; at++)
        text_printf(&plain, "%.*s", *at != ',', at); /* commas mean nothing */
    if (!plain.length || !write_out(plain.data, true, &groups) || !groups.length ||
        !write_out(groups.data, false, &written) || !written.length)
        refuse_layout(job, "no layout that can be written out", err);
    else
        status = count_layout(job, written.data, err);
    text_free(&plain);
    text_free(&groups);
    text_free(&written);
    return status;
}

/* ---- Megatron-LM's counts ---- */

/* Layers that are spread over the stages that have no number of their own. */
static int64_t to_spread(const struct training_job *job)
{
    const struct job_layout *l = &job->layout;
    return job->model.layers - l->first_stage_layers - l->last_stage_layers + l->embedding_in_split +
           l->loss_in_split;
}

static int check_ends(const struct training_job *job, struct error *err)
{
    const struct job_layout *l = &job->layout;
    bool first = l->first_stage_layers > 0;
    const char *name = first ? "--decoder-first-pipeline-num-layers" : "--decoder-last-pipeline-num-layers";
    long long value = first ? l->first_stage_layers : l->last_stage_layers;
    if (!value)
        return 0;
    if (max_i64(l->first_stage_layers, l->last_stage_layers) > job->model.layers)
        return error_set(err, "%s %lld: the model has %lld layers; correct one of them", name, value,
                         (long long)job->model.layers);
    if (l->embedding_in_split || l->loss_in_split)
        return error_set(err,
                         "%s %lld and --account-for-%s-in-pipeline-split exclude each other in Megatron-LM; "
                         "leave one out",
                         name, value, l->embedding_in_split ? "embedding" : "loss");
    if (l->layers_per_virtual_stage)
        return error_set(err,
                         "--num-layers-per-virtual-pipeline-stage %lld does not go with %s %lld; give "
                         "--num-virtual-stages-per-pipeline-rank",
                         (long long)l->layers_per_virtual_stage, name, value);
    return 0;
}

/* The layers of a stage that has no number of its own; -1: they do not come out even. */
static int64_t middle_layers(const struct training_job *job)
{
    const struct job_layout *l = &job->layout;
    int64_t others = l->pp - (l->first_stage_layers > 0) - (l->last_stage_layers > 0), rest = to_spread(job);
    if (rest < 0 || (others ? rest % others : rest))
        return -1;
    return others ? rest / others : 0;
}

static int refuse_uneven(struct training_job *job, struct error *err)
{
    const struct job_layout *l = &job->layout;
    struct arena *arena = job->facts.arena;
    const char *ends = "";
    if (l->first_stage_layers)
        ends = arena_printf(arena, " --decoder-first-pipeline-num-layers %lld",
                            (long long)l->first_stage_layers);
    if (l->last_stage_layers)
        ends = arena_printf(arena, "%s --decoder-last-pipeline-num-layers %lld", ends,
                            (long long)l->last_stage_layers);
    return error_set(
        err,
        "--pipeline-model-parallel-size %lld%s: the other stages cannot share %lld layers evenly, "
        "which Megatron-LM wants; correct it, or give --pipeline-model-parallel-layout",
        (long long)l->pp, ends, (long long)to_spread(job));
}

static int read_virtual(struct job_layout *l, int64_t middle, struct error *err)
{
    int64_t each = l->layers_per_virtual_stage;
    if (each && (middle % each || !middle))
        return error_set(
            err,
            "--num-layers-per-virtual-pipeline-stage %lld does not divide the %lld layers of a stage; "
            "correct it",
            (long long)each, (long long)middle);
    if (each)
        l->virtual_stages = middle / each;
    if (l->virtual_stages > MOST_CHUNKS / l->pp)
        return error_set(
            err, "--num-virtual-stages-per-pipeline-rank %lld is more than %lld stages have; correct it",
            (long long)l->virtual_stages, (long long)l->pp);
    return 0;
}

/* transformer_block.py, get_num_layers_to_build(): each stage's layers are cut into as many chunks. */
static int read_counts(struct training_job *job, struct error *err)
{
    struct job_layout *l = &job->layout;
    if (check_ends(job, err))
        return -1;
    int64_t middle = middle_layers(job);
    if (middle < 0)
        return refuse_uneven(job, err);
    if (read_virtual(l, middle, err))
        return -1;
    int64_t chunks = l->pp * l->virtual_stages, *counts = new_chunks(job, chunks);
    for (int64_t place = 0; place < chunks; place++) {
        int64_t stage = place % l->pp, layers = middle;
        if (stage == 0 && l->first_stage_layers)
            layers = l->first_stage_layers;
        if (stage == l->pp - 1 && l->last_stage_layers)
            layers = l->last_stage_layers;
        if (layers % l->virtual_stages)
            return error_set(err,
                             "%lld virtual stages cannot share the %lld layers of stage %lld; correct "
                             "--num-virtual-stages-per-pipeline-rank",
                             (long long)l->virtual_stages, (long long)layers, (long long)stage);
        counts[place] = layers / l->virtual_stages;
    }
    counts[0] -= l->embedding_in_split;
    counts[chunks - 1] -= l->loss_in_split;
    if (counts[0] < 0 || counts[chunks - 1] < 0)
        return refuse_uneven(job, err);
    l->chunk_layers = counts;
    return 0;
}

/* The pipeline of the DeepSpeed fork balances its stages by weight (deepspeed/runtime/pipe/module.py), which is not followed where
 * they differ. */
static bool is_balanced_by_deepspeed(struct training_job *job)
{
    const struct job_layout *l = &job->layout;
    if (job->framework != JOB_MEGATRON_DEEPSPEED || job->model.layers % l->pp == 0)
        return false;
    if (!job->beyond)
        job->beyond = arena_printf(job->facts.arena,
                                   "stages with different numbers of layers (%lld layers, "
                                   "--pipeline-model-parallel-size %lld)",
                                   (long long)job->model.layers, (long long)l->pp);
    return true;
}

int pipeline_split_megatron(struct training_job *job, struct error *err)
{
    struct job_layout *l = &job->layout;
    l->virtual_stages = max_i64(l->virtual_stages, 1);
    if (l->pp < 2 || l->pp > MOST_CHUNKS || !job->model_known || is_balanced_by_deepspeed(job))
        return 0;
    if (l->pipeline_layout ? read_layout(job, err) : read_counts(job, err))
        return -1;
    note_chunks(job, l->pp * l->virtual_stages,
                l->pipeline_layout ? "--pipeline-model-parallel-layout" : "what the stages are given");
    return 0;
}

/* ---- torchtitan ---- */

static const char parts_key[] = "parallelism.module_fqns_per_model_part",
                  points_key[] = "parallelism.pipeline_parallel_split_points";

/* Reads "layers.12" at *at and passes over it. -1: that is not there. */
static int64_t layer_at(const char **at)
{
    static const char prefix[] = "layers.";
    if (strncmp(*at, prefix, sizeof prefix - 1) || !isdigit((unsigned char)(*at)[sizeof prefix - 1]))
        return -1;
    char *end;
    int64_t layer = strtoll(*at + sizeof prefix - 1, &end, 10);
    *at = end;
    return layer;
}

static int refuse_titan(const char *key, const char *value, const char *why, struct error *err)
{
    return error_set(err, "%s %.60s: %s; correct it", key, value, why);
}

/* "tok_embeddings,layers.0;layers.1,norm,output": every layer once, in order. */
static int count_parts(const struct training_job *job, int64_t *counts, struct error *err)
{
    const char *value = job->layout.pipeline_layout;
    int64_t part = 0, next = 0;
    for (const char *at = value; *at;) {
        int64_t layer = layer_at(&at);
        if (layer >= 0 && layer != next)
            return refuse_titan(parts_key, value, "its layers are not those of the model in their order",
                                err);
        counts[part] += layer >= 0;
        next += layer >= 0;
        at += strcspn(at, ",;");
        part += *at == ';';
        at += *at != 0;
    }
    return next == job->model.layers
               ? 0
               : refuse_titan(parts_key, value, "it has not as many layers as the model", err);
}

/* "layers.4,layers.8": the first layer of each chunk but the first; the head may be a chunk. */
static int count_points(const struct training_job *job, int64_t *counts, struct error *err)
{
    const char *value = job->layout.split_points;
    int64_t part = 0, from = 0;
    for (const char *at = value; *at; part++) {
        bool head = !strncmp(at, "norm", 4) || !strncmp(at, "output", 6);
        int64_t layer = head ? job->model.layers : layer_at(&at);
        if (layer < from || layer > job->model.layers)
            return refuse_titan(points_key, value, "its layers are not those of the model in their order",
                                err);
        counts[part] = layer - from;
        from = layer;
        at += strcspn(at, ",");
        at += *at != 0;
    }
    counts[part] = job->model.layers - from;
    return 0;
}

/* generate_llm_fqn_per_model_part(): the ends of the model count as layers, and the first chunks get what is left over. */
static int spread_titan(const struct training_job *job, int64_t chunks, int64_t *counts, struct error *err)
{
    const struct job_layout *l = &job->layout;
    int64_t whole = job->model.layers + l->first_less + l->last_less, each = whole / chunks;
    if (!each || l->first_less > each || l->last_less > each)
        return error_set(err,
                         "parallelism.pipeline_parallel_degree %lld makes %lld chunks of %lld layers, which "
                         "leaves one without; correct it",
                         (long long)l->pp, (long long)chunks, (long long)job->model.layers);
    for (int64_t place = 0; place < chunks; place++)
        counts[place] = each + (place < whole % chunks);
    counts[0] -= l->first_less;
    counts[chunks - 1] -= l->last_less;
    return 0;
}

/* pipeline_parallel.py: schedules of several chunks a stage have two, or as many as their layers make. */
static bool loops(const struct job_layout *l)
{
    static const char *const names[] = {"Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble",
                                        "ZBVZeroBubble", "DualPipeV"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcasecmp(names[i], l->schedule))
            return true;
    return false;
}

static int64_t count_titan_chunks(const struct training_job *job)
{
    const struct job_layout *l = &job->layout;
    const char *list = l->pipeline_layout ? l->pipeline_layout : l->split_points;
    int64_t chunks = 1, each = l->layers_per_virtual_stage;
    for (const char *at = list; at && *at; at++)
        chunks += *at == (l->pipeline_layout ? ';' : ',');
    if (list)
        return chunks + !l->pipeline_layout;
    if (each)
        return 1 + (job->model.layers + l->first_less + l->last_less - 1) / each;
    return loops(l) ? 2 * l->pp : l->pp;
}

static int check_titan_chunks(const struct job_layout *l, int64_t chunks, struct error *err)
{
    if (chunks % l->pp == 0 && (chunks > l->pp) == loops(l) && chunks <= MOST_CHUNKS)
        return 0;
    const char *key = l->pipeline_layout ? parts_key : points_key;
    const char *value = l->pipeline_layout ? l->pipeline_layout : l->split_points;
    if (value)
        return error_set(err, "%s %.60s: %lld chunks, which %s over %lld ranks cannot run; correct it", key,
                         value, (long long)chunks, l->schedule, (long long)l->pp);
    return error_set(err,
                     "pipeline_parallel_layers_per_stage %lld makes %lld stages, which %s over %lld ranks "
                     "cannot run; correct it",
                     (long long)l->layers_per_virtual_stage, (long long)chunks, l->schedule,
                     (long long)l->pp);
}

int pipeline_split_titan(struct training_job *job, struct error *err)
{
    struct job_layout *l = &job->layout;
    l->pipeline_layout = l->pipeline_layout && *l->pipeline_layout ? l->pipeline_layout : NULL;
    l->split_points = l->split_points && *l->split_points ? l->split_points : NULL;
    l->virtual_stages = 1;
    if (l->pp == 1) {
        job_drop_defaults(job, "parallelism.pipeline_parallel_first_");
        job_drop_defaults(job, "parallelism.pipeline_parallel_last_");
    }
    if (l->pp < 2 || l->pp > MOST_CHUNKS || !job->model_known)
        return 0;
    if (max_i64(l->first_less, l->last_less) > job->model.layers)
        return error_set(
            err,
            "parallelism.pipeline_parallel_%s_stage_less_layers %lld: the model has %lld layers; "
            "correct it",
            l->first_less > l->last_less ? "first" : "last", (long long)max_i64(l->first_less, l->last_less),
            (long long)job->model.layers);
    int64_t chunks = count_titan_chunks(job);
    if (check_titan_chunks(l, chunks, err))
        return -1;
    int64_t *counts = new_chunks(job, chunks);
    if (l->pipeline_layout ? count_parts(job, counts, err)
        : l->split_points  ? count_points(job, counts, err)
                           : spread_titan(job, chunks, counts, err))
        return -1;
    l->virtual_stages = chunks / l->pp;
    l->chunk_layers = counts;
    note_chunks(job, chunks,
                l->pipeline_layout ? parts_key
                : l->split_points  ? points_key
                                   : "the ends of the model count as layers");
    return 0;
}
