/* How long does a plan take, and how many candidates are weighed for it? Planning is arithmetic: one core, no device.
 *
 *     bench_plan          gpt3-175b on 1,024 cards, llama3-405b on 16,384, with fast networks and slow ones,
 *                         and smaller models; clusters of two and four kinds of nodes
 *
 * Then the same with all that `memplan plan` does beside the search: the plan is built, why nothing else is the plan, and what
 * more memory would unlock. The fastest of five runs, since others share the machine; memory is the most that the process has had. */
#include "base/checked.h"
#include "base/clock.h"
#include "base/units.h"
#include "model/pipeline.h"
#include "planner/families.h"
#include "planner/search.h"
#include "planner/search_memory.h"
#include "planner/ways_out.h"

#include <stdio.h>
#include <sys/resource.h>

struct question {
    const char *model, *cluster;
    int64_t global_batch, seq_len;
};

static const struct question questions[] = {
    {"gpt2-124m", "1x8:a100-40g", 512, 1024},
    {"llama3-8b", "2x8:h100-80g,net=400Gb/s", 256, 8192},
    {"llama3-70b", "32x8:h100-80g,net=3200Gb/s", 1024, 8192},
    {"gpt3-175b", "128x8:a100-80g,net=1600Gb/s", 1536, 2048},
    {"gpt3-175b", "128x8:a100-80g,net=200Gb/s", 1536, 2048},
    {"llama3-405b", "2048x8:h100-80g,net=3200Gb/s", 2048, 8192},
    {"llama3-405b", "2048x8:h100-80g,net=400Gb/s", 2048, 8192},
    {"llama3-8b", "1x8:a100-80g+1x8:h100-80g,net=400Gb/s", 64, 8192},
    {"gpt3-175b", "64x8:a100-80g+64x8:h100-80g,net=1600Gb/s", 1536, 2048},
    {"gpt3-175b", "32x8:a100-80g+32x8:h100-80g+32x8:a100-40g+32x8:h200,net=1600Gb/s", 1536, 2048},
};

enum { RUNS = 5 };

/* The fastest run's answer. */
static int ask(const struct search_request *request, struct search_result *best, struct error *err)
{
    *best = (struct search_result){0};
    for (int i = 0; i < RUNS; i++) {
        struct search_result result;
        if (search_run(request, &result, err))
            return -1;
        if (!best->arena || result.search_seconds < best->search_seconds) {
            search_clear(best);
            *best = result;
        } else {
            search_clear(&result);
        }
    }
    return 0;
}

static int build_and_explain(const struct search_request *request, struct search_result *result,
                             struct error *err)
{
    const struct search_row *row = &result->alternatives[0];
    struct program_spec spec = {request->model, &row->layout, row->masks, row->chunk_layers, 0};
    struct pipeline *pipeline;
    struct text unlocks = {0};
    if (pipeline_create(&spec, &pipeline, err))
        return -1;
    pipeline_free(pipeline);
    int status =
        families_explain(request, result, err) || ways_out_faster(request, result, &unlocks, err) ? -1 : 0;
    text_free(&unlocks);
    return status;
}

/* As the command does it. */
static int run_whole(struct search_request request, int64_t *ns, struct error *err)
{
    struct search_result result;
    int64_t begin_ns = clock_ns();
    request.memory = search_memory_open(&request);
    int status = search_run(&request, &result, err);
    if (!status && result.alternative_count)
        status = build_and_explain(&request, &result, err);
    search_clear(&result);
    search_memory_close(request.memory);
    *ns = min_i64(*ns, clock_ns() - begin_ns);
    return status;
}

static void print(const struct question *q, const struct search_result *r)
{
    char seconds[UNITS_TEXT], step[UNITS_TEXT], rate[UNITS_TEXT], count[UNITS_TEXT];
    const struct search_count *c = &r->count;
    printf("%s on %s, %lld sequences of %lld\n", q->model, q->cluster, (long long)q->global_batch,
           (long long)q->seq_len);
    printf("  %s, %s candidates (%s)\n", units_format_seconds(r->search_seconds, seconds),
           units_format_count(r->candidates, count),
           units_format_rate((double)r->candidates / r->search_seconds, "candidates/s", rate));
    printf("  %lld shapes: %lld beyond all memory; %lld layouts: %lld beyond their bounds, %lld composed, "
           "%lld replayed, %lld stages built\n",
           (long long)c->shapes, (long long)c->beyond_bytes, (long long)c->layouts,
           (long long)c->layouts_beyond, (long long)c->composed, (long long)c->replayed, (long long)c->built);
    if (!r->alternative_count) {
        printf("  no plan\n");
        return;
    }
    const struct search_row *row = &r->alternatives[0];
    const struct layout *l = &row->layout;
    printf("  dp %lld, tp %lld, pp %lld, virtual stages %lld, micro-batch %lld, %s, zero %d%s; step %s, "
           "proved to %.2f%%\n",
           (long long)l->dp, (long long)l->tp, (long long)l->pp, (long long)l->virtual_stages,
           (long long)l->micro_batch, schedule_name(l->schedule), l->zero,
           l->sequence_parallel ? ", sequence parallel" : "", units_format_seconds(row->time.total, step),
           100 * (row->time.total / r->bound_s - 1));
}

static int answer(const struct question *q, struct error *err)
{
    struct model model;
    struct cluster cluster;
    struct machine_speed speeds[CLUSTER_GROUPS];
    struct search_result result;
    int64_t whole_ns = INT64_MAX;
    char whole[UNITS_TEXT];
    if (model_read(q->model, &(struct model_overrides){0}, &model, err) ||
        cluster_read(q->cluster, &cluster, err))
        return -1;
    for (int g = 0; g < cluster.group_count; g++)
        machine_speed_for_group(&cluster.groups[g], PRECISION_BF16, 1, &speeds[g]);
    struct search_request request = {.model = &model,
                                     .cluster = &cluster,
                                     .speeds = speeds,
                                     .global_batch = q->global_batch,
                                     .seq_len = q->seq_len,
                                     .precision = PRECISION_BF16};
    if (ask(&request, &result, err))
        return -1;
    print(q, &result);
    search_clear(&result);
    for (int i = 0; i < RUNS; i++)
        if (run_whole(request, &whole_ns, err))
            return -1;
    printf("  with why not, and what more memory would unlock: %s\n",
           units_format_seconds((double)whole_ns * 1e-9, whole));
    return 0;
}

int main(void)
{
    struct rusage usage;
    struct error err = {0};
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++)
        if (answer(&questions[i], &err)) {
            fprintf(stderr, "bench_plan: %s\n", err.text);
            return 2;
        }
    getrusage(RUSAGE_SELF, &usage);
    printf("memory: %ld MiB at most\n", usage.ru_maxrss / 1024);
    return 0;
}
