/* A plan is a promise to the trainer: the winners of small searches, and plans that merely fit, are run for a few steps by
 * ranks on the CPU, and take the bytes that were predicted. */
#include "tests/planner/planner_sample.h"
#include "tests/test.h"
#include "tests/trainer/runs.h"

#include "model/recompute.h"
#include "planner/search.h"

#include <stdio.h>

static const char *const families[] = {"gpt2-tiny",  "llama-tiny", "block-tiny",
                                       "qwen3-tiny", "olmo2-tiny", "gemma3-tiny"};
enum { FAMILIES = 6 };

static void run_row(const struct model *model, const struct search_row *row, int64_t capacity)
{
    struct error err = {0};
    struct pipeline *pipeline;
    struct history history;
    char where[160];
    const struct layout *l = &row->layout;
    struct program_spec spec = {model, l, row->masks, row->chunk_layers, 0};
    struct train_settings settings = runs_settings(2);
    settings.capacity_bytes = capacity;
    snprintf(where, sizeof where, "%s dp=%d tp=%d pp=%d %s virtual=%d zero=%d sp=%d micro=%d", model->name,
             (int)l->dp, (int)l->tp, (int)l->pp, schedule_name(l->schedule), (int)l->virtual_stages, l->zero,
             l->sequence_parallel, (int)l->micro_batch);
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    ASSERT_MSG(!runs_try(pipeline, &settings, &history, &err), "%s: %s", where, err.text);
    runs_assert_bytes(&history, pipeline, MEMORY_ARENA, where);
    runs_clear(&history);
    pipeline_free(pipeline);
}

/* Up to 4 ranks, more layers than stages, any capacity that something fits in. */
static void open_problem(uint32_t *state, const char *family, struct model *model, struct cluster *cluster,
                         struct machine_speed *speed, struct search_request *request)
{
    *model = sample_model(family, 2 + sample_below(state, 5));
    *cluster = cluster_of_group(
        &(struct node_group){.nodes = 1, .ranks_per_node = 1 + sample_below(state, 4), .device = {"cpu"}});
    cluster->groups[0].device.capacity_bytes = 150000 + sample_below(state, 900000);
    machine_speed_from_cpuinfo("", 4, speed);
    *request = (struct search_request){.model = model,
                                       .cluster = cluster,
                                       .speeds = speed,
                                       .global_batch = 4 << sample_below(state, 2),
                                       .seq_len = 16,
                                       .precision = sample_below(state, 2) ? PRECISION_BF16 : PRECISION_FP32};
}

TEST_DEFINE(plans_run,
            "the winners of 90 searches run, within the capacity, and take the bytes that were predicted",
            FAMILIES, true)
{
    uint32_t state = 31 + (uint32_t)_i;
    int run = 0;
    for (int i = 0; i < 15; i++) {
        struct error err = {0};
        struct model model;
        struct cluster cluster;
        struct machine_speed speed;
        struct search_request request;
        struct search_result result;
        open_problem(&state, families[_i], &model, &cluster, &speed, &request);
        ASSERT_OK(search_run(&request, &result, &err));
        if (result.alternative_count) {
            run_row(&model, &result.alternatives[0], cluster.groups[0].device.capacity_bytes);
            run++;
        }
        search_clear(&result);
    }
    ASSERT(run > 4);
}

/* What is asked for is drawn, so that all kinds of plans come up; the search only fits them. */
TEST_DEFINE(plans_feasible_run, "72 random plans that fit run, and take the bytes that were predicted",
            FAMILIES, true)
{
    uint32_t state = 77 + (uint32_t)_i;
    for (int run = 0, tries = 0; run < 18; tries++) {
        struct error err = {0};
        struct model model;
        struct cluster cluster;
        struct machine_speed speed;
        struct search_request request;
        struct search_result result;
        enum schedule_kind schedule = (enum schedule_kind)sample_below(&state, SCHEDULE_KINDS);
        ASSERT(tries < 2000);
        open_problem(&state, families[_i], &model, &cluster, &speed, &request);
        cluster.groups[0].ranks_per_node = 4;
        request.tp = 1 + sample_below(&state, 2);
        request.pp = 1 + sample_below(&state, 4 / (uint32_t)request.tp);
        request.dp = 4 / (request.tp * request.pp);
        request.micro_batch = 1;
        request.zero = sample_below(&state, 2) ? SEARCH_ON : SEARCH_OFF;
        request.sequence_parallel = request.tp > 1 && sample_below(&state, 2) ? SEARCH_ON : SEARCH_OFF;
        request.schedule = request.pp > 1 ? &schedule : NULL;
        if (search_run(&request, &result, &err))
            continue;
        if (result.alternative_count) {
            run_row(&model, &result.alternatives[0], cluster.groups[0].device.capacity_bytes);
            run++;
        }
        search_clear(&result);
    }
}

/* Two groups of ranks with different memory, of which the second is faster. */
static void open_mixed_problem(uint32_t *state, const char *family, struct model *model,
                               struct cluster *cluster, struct machine_speed speeds[2],
                               struct search_request *request)
{
    open_problem(state, family, model, cluster, speeds, request);
    *cluster = (struct cluster){.group_count = 2};
    for (int g = 0; g < 2; g++) {
        cluster->groups[g] =
            (struct node_group){.nodes = 1, .ranks_per_node = 1 + sample_below(state, 2), .device = {"cpu"}};
        cluster->groups[g].device.capacity_bytes = 150000 + sample_below(state, 900000);
        machine_speed_from_cpuinfo("", 4, &speeds[g]);
        speeds[g].ranks_per_node = cluster->groups[g].ranks_per_node;
        speeds[g].memory_bytes_per_s.value *= 1 + 3 * g;
    }
}

/* No rank of a stage has a larger arena than its group's ranks hold. */
static void assert_within(const struct model *model, const struct search_row *row,
                          const struct cluster *cluster)
{
    struct error err = {0};
    struct pipeline *pipeline;
    const struct rank_device *devices[8];
    struct program_spec spec = {model, &row->layout, row->masks, row->chunk_layers, 0};
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    siting_devices(cluster, &row->layout, &row->siting, devices);
    for (int i = 0; i < pipeline->count; i++)
        ASSERT(pipeline->stages[i]->arena_bytes <= devices[i]->capacity_bytes);
    pipeline_free(pipeline);
}

TEST_DEFINE(plans_mixed_run,
            "the winners on two kinds of ranks run, each stage within what its own ranks hold", 3, true)
{
    uint32_t state = 5 + (uint32_t)_i;
    int run = 0, mixed = 0;
    for (int i = 0; i < 20; i++) {
        struct error err = {0};
        struct model model;
        struct cluster cluster;
        struct machine_speed speeds[2];
        struct search_request request;
        struct search_result result;
        open_mixed_problem(&state, families[_i], &model, &cluster, speeds, &request);
        ASSERT_OK(search_run(&request, &result, &err));
        if (result.alternative_count) {
            const struct search_row *row = &result.alternatives[0];
            int64_t first = cluster.groups[0].device.capacity_bytes,
                    second = cluster.groups[1].device.capacity_bytes;
            assert_within(&model, row, &cluster);
            run_row(&model, row, first > second ? first : second);
            run++;
            mixed += row->siting.count > 1;
        }
        search_clear(&result);
    }
    ASSERT(run > 4 && mixed > 1);
}
