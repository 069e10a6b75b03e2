/* How much a search leaves unproved, and what it spends: on nodes that differ, and where many layouts come near. */
#include "planner/search.h"
#include "tests/planner/planner_sample.h"
#include "tests/test.h"

struct gap_question {
    const char *model, *cluster;
    int64_t layers, global_batch, seq_len;
};

/* The caller clears what comes back. */
static struct search_result search_for_gap(const struct gap_question *q)
{
    struct error err = {0};
    struct search_result result;
    struct cluster cluster;
    struct machine_speed speeds[CLUSTER_GROUPS];
    struct model model = sample_model(q->model, q->layers);
    ASSERT_OK(cluster_read(q->cluster, &cluster, &err));
    for (int g = 0; g < cluster.group_count; g++)
        machine_speed_for_group(&cluster.groups[g], PRECISION_BF16, 1, &speeds[g]);
    struct search_request request = {.model = &model,
                                     .cluster = &cluster,
                                     .speeds = speeds,
                                     .global_batch = q->global_batch,
                                     .seq_len = q->seq_len,
                                     .precision = PRECISION_BF16};
    ASSERT_OK(search_run(&request, &result, &err));
    ASSERT(result.alternative_count > 0);
    return result;
}

/* Of stages with shorter ends not all choices are tried; a replay with the least that any needs tells that little is lost. */
TEST(search_gap_of_choices,
     "where not all recomputation is tried, what is left unproved is what a replay leaves")
{
    struct gap_question q = {"llama3-8b", "1x8:a100-80g+1x8:h100-80g,net=400Gb/s", 32, 64, 8192};
    struct search_result result = search_for_gap(&q);
    double step_s = result.alternatives[0].time.total;
    ASSERT_MSG(step_s <= 1.01 * result.bound_s, "%g s, and no less than %g s", step_s, result.bound_s);
    search_clear(&result);
}

/* 32 layers on few stages of four kinds: how much fits into a stage's time is a whole number of layers. */
TEST(search_gap_of_whole_layers,
     "on four kinds of nodes the plan is proved, since no stage has a part of a layer")
{
    struct gap_question q = {"llama3-8b", "2x8:v100-32g+2x8:a100-40g+2x8:a100-80g+2x8:h100-80g", 32, 512,
                             4096};
    struct search_result result = search_for_gap(&q);
    double step_s = result.alternatives[0].time.total;
    ASSERT_MSG(step_s <= 1.01 * result.bound_s, "%g s, and no less than %g s", step_s, result.bound_s);
    search_clear(&result);
}

TEST(search_gap_of_other_shapes,
     "what cannot be the fastest gets quick choices, and a sixth of the effort does")
{
    struct gap_question q = {"gpt3-175b", "128x8:a100-80g,net=1600Gb/s", 96, 1536, 2048};
    struct search_result result = search_for_gap(&q);
    ASSERT(result.alternatives[0].time.total <= result.bound_s * 1.0001);
    ASSERT_MSG(result.count.effort < 11000000, "%lld", (long long)result.count.effort);
    search_clear(&result);
}
