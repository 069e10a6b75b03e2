/* Which layers each chunk of a pipeline has in Megatron-LM: counts of stages, and its language of layouts. */
#include "jobs/megatron.h"

#include "base/checked.h"
#include "jobs/deepspeed_stages.h"
#include "jobs/pipeline_split.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WRITTEN = 1 << 16 }; /* characters of a layout with its repetitions written out */

/* ---- layouts ---- */

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
    if (chunks % l->pp || chunks > PIPELINE_SPLIT_MOST)
        return refuse_layout(job,
                             arena_printf(arena, "%lld parts, which %lld stages cannot share",
                                          (long long)chunks, (long long)l->pp),
                             err);
    int64_t *counts = pipeline_split_new(job, chunks), place = 0;
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

/* ---- counts ---- */

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
    if (l->virtual_stages > PIPELINE_SPLIT_MOST / l->pp)
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
    int64_t chunks = l->pp * l->virtual_stages, *counts = pipeline_split_new(job, chunks);
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

int megatron_stages(struct training_job *job, struct error *err)
{
    struct job_layout *l = &job->layout;
    bool fork = job->framework == &megatron_deepspeed_framework;
    l->virtual_stages = max_i64(l->virtual_stages, 1);
    if (l->pp < 2 || l->pp > PIPELINE_SPLIT_MOST || !job->model_known)
        return 0;
    if (fork                 ? deepspeed_stages(job, err)
        : l->pipeline_layout ? read_layout(job, err)
                             : read_counts(job, err))
        return -1;
    pipeline_split_note(job, l->pp * l->virtual_stages,
                        fork                 ? "what DeepSpeed balances, by layers"
                        : l->pipeline_layout ? "--pipeline-model-parallel-layout"
                                             : "what the stages are given");
    return 0;
}
