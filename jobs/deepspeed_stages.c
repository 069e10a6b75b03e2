/* DeepSpeed 0.19.8: runtime/utils.py, partition_balanced() and partition_uniform(), which runtime/pipe/module.py asks with a weight
 * for each of the modules that a pipeline is made of. */
#include "jobs/deepspeed_stages.h"

#include "base/checked.h"
#include "jobs/pipeline_split.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TRIED = 1 << 26 }; /* places of a cut, of all beginnings and numbers of parts */

/* Of the first i weights in j parts the best that was found. */
struct best {
    double largest, smallest, cost;
    int64_t cut; /* where the last of them begins */
};

/* As many in each part, and one more in the first of them; with fewer weights than parts one each. */
static void spread_evenly(int64_t count, int64_t stages, int64_t *parts)
{
    int64_t each = count / stages, left = count % stages;
    for (int64_t p = 0; p <= stages; p++)
        parts[p] = count <= stages ? min_i64(p, count) : p * each + min_i64(p, left);
}

/* Of equally good cuts the last one is taken, as DeepSpeed does. It looks at no more than the best of each beginning, which need
 * not be part of the best whole: what it finds is what is trained. */
static struct best find_cut(const struct best *before, const int64_t *sums, int64_t end)
{
    struct best best = {DBL_MAX, DBL_MAX, DBL_MAX, 0};
    for (int64_t cut = 0; cut < end; cut++) {
        double last = (double)(sums[end] - sums[cut]);
        double largest = before[cut].largest > last ? before[cut].largest : last;
        double smallest = before[cut].smallest < last ? before[cut].smallest : last;
        if (largest < DBL_MAX && largest - smallest <= best.cost)
            best = (struct best){largest, smallest, largest - smallest, cut};
    }
    return best;
}

int deepspeed_stages_balance(const int64_t *weights, int64_t count, int64_t stages, int64_t *parts,
                             struct error *err)
{
    int64_t width = count + 1, tried;
    spread_evenly(count, stages, parts);
    if (count <= stages)
        return 0;
    if (!checked_mul(width, width, &tried) || !checked_mul(tried, stages, &tried) || tried > MOST_TRIED)
        return error_set(
            err,
            "%lld stages of %lld modules: DeepSpeed's search for a balance takes too long to follow; try "
            "fewer stages",
            (long long)stages, (long long)count);
    struct best *table = host_alloc((size_t)(width * (stages + 1)) * sizeof *table);
    int64_t *sums = host_alloc((size_t)width * sizeof *sums);
    sums[0] = 0;
    for (int64_t i = 0; i < count; i++)
        sums[i + 1] = sums[i] + weights[i];
    for (int64_t i = 0; i < width; i++) /* no part has no weight but that of none */
        table[i] = (struct best){i ? DBL_MAX : 0, DBL_MAX, i ? DBL_MAX : 0, 0};
    for (int64_t stage = 1; stage <= stages; stage++)
        for (int64_t end = 0; end < width; end++)
            table[stage * width + end] = find_cut(table + (stage - 1) * width, sums, end);
    for (int64_t stage = stages; stage > 0; stage--)
        parts[stage - 1] = table[stage * width + parts[stage]].cut;
    free(sums);
    free(table);
    return 0;
}

/* megatron/model/gpt_model.py, GPTModelPipe: a cast, the embedding, layers, which alone have a weight ("type:transformer"), the
 * last norm, the head, and with 16-bit weights a cast. */
int deepspeed_stages(struct training_job *job, struct error *err)
{
    struct job_layout *l = &job->layout;
    int64_t layers = job->model.layers, ends = job->precision == JOB_FP32 ? 4 : 5, stages = l->pp;
    int64_t *weights = host_alloc((size_t)(layers + ends) * sizeof *weights);
    int64_t *parts = host_alloc((size_t)(stages + 1) * sizeof *parts);
    for (int64_t i = 0; i < layers + ends; i++)
        weights[i] = i >= 2 && i < 2 + layers;
    int status = deepspeed_stages_balance(weights, layers + ends, stages, parts, err);
    int64_t *counts = pipeline_split_new(job, stages);
    for (int64_t stage = 0; !status && stage < stages; stage++)
        for (int64_t i = parts[stage]; i < parts[stage + 1]; i++)
            counts[stage] += weights[i];
    l->virtual_stages = 1;
    l->chunk_layers = counts;
    free(parts);
    free(weights);
    return status;
}
