/* Which layers each chunk of a pipeline has in torchtitan: parts, split points, and how it spreads layers without them. */
#include "jobs/titan.h"

#include "base/checked.h"
#include "jobs/pipeline_split.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

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

static int refuse(const char *key, const char *value, const char *why, struct error *err)
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
            return refuse(parts_key, value, "its layers are not those of the model in their order", err);
        counts[part] += layer >= 0;
        next += layer >= 0;
        at += strcspn(at, ",;");
        part += *at == ';';
        at += *at != 0;
    }
    return next == job->model.layers
               ? 0
               : refuse(parts_key, value, "it has not as many layers as the model", err);
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
            return refuse(points_key, value, "its layers are not those of the model in their order", err);
        counts[part] = layer - from;
        from = layer;
        at += strcspn(at, ",");
        at += *at != 0;
    }
    counts[part] = job->model.layers - from;
    return 0;
}

/* generate_llm_fqn_per_model_part(): the ends of the model count as layers, and the first chunks get what is left over. */
static int spread(const struct training_job *job, int64_t chunks, int64_t *counts, struct error *err)
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

static int64_t count_chunks(const struct training_job *job)
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

static int check_chunks(const struct job_layout *l, int64_t chunks, struct error *err)
{
    if (chunks % l->pp == 0 && (chunks > l->pp) == loops(l) && chunks <= PIPELINE_SPLIT_MOST)
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

int titan_stages(struct training_job *job, struct error *err)
{
    struct job_layout *l = &job->layout;
    l->pipeline_layout = l->pipeline_layout && *l->pipeline_layout ? l->pipeline_layout : NULL;
    l->split_points = l->split_points && *l->split_points ? l->split_points : NULL;
    l->virtual_stages = 1;
    if (l->pp == 1) {
        job_drop_defaults(job, "parallelism.pipeline_parallel_first_");
        job_drop_defaults(job, "parallelism.pipeline_parallel_last_");
    }
    if (l->pp < 2 || l->pp > PIPELINE_SPLIT_MOST || !job->model_known)
        return 0;
    if (max_i64(l->first_less, l->last_less) > job->model.layers)
        return error_set(
            err,
            "parallelism.pipeline_parallel_%s_stage_less_layers %lld: the model has %lld layers; "
            "correct it",
            l->first_less > l->last_less ? "first" : "last", (long long)max_i64(l->first_less, l->last_less),
            (long long)job->model.layers);
    int64_t chunks = count_chunks(job);
    if (check_chunks(l, chunks, err))
        return -1;
    int64_t *counts = pipeline_split_new(job, chunks);
    if (l->pipeline_layout ? count_parts(job, counts, err)
        : l->split_points  ? count_points(job, counts, err)
                           : spread(job, chunks, counts, err))
        return -1;
    l->virtual_stages = chunks / l->pp;
    l->chunk_layers = counts;
    pipeline_split_note(job, chunks,
                        l->pipeline_layout ? parts_key
                        : l->split_points  ? points_key
                                           : "the ends of the model count as layers");
    return 0;
}
