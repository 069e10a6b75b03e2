/* Why not the others, and what more memory would do: what is said without searching to the end must hold for those who do. */
#include "tests/test.h"

#include "planner/families.h"
#include "planner/nearest.h"
#include "planner/search.h"
#include "planner/ways_out.h"
#include "tests/planner/planner_sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct asked {
    struct model model;
    struct cluster cluster;
    struct machine_speed speeds[CLUSTER_GROUPS];
    struct search_request request;
};

static void ask(struct asked *a, const char *model, int64_t layers, const char *cluster, int64_t batch)
{
    struct error err = {0};
    *a = (struct asked){.model = sample_model(model, layers)};
    ASSERT_OK(cluster_read(cluster, &a->cluster, &err));
    for (int g = 0; g < a->cluster.group_count; g++)
        machine_speed_for_group(&a->cluster.groups[g], PRECISION_BF16, 1, &a->speeds[g]);
    a->request = (struct search_request){.model = &a->model,
                                         .cluster = &a->cluster,
                                         .speeds = a->speeds,
                                         .global_batch = batch,
                                         .precision = PRECISION_BF16};
}

static const struct {
    const char *model, *cluster;
    int64_t layers, batch;
} problems[] = {
    {"gpt2-124m", "1x8:a100-40g", 12, 64},
    {"llama3-8b", "2x8:h100-80g,net=400Gb/s", 32, 64},
    {"llama3-8b", "1x8:a100-80g+1x8:h100-80g", 32, 64},
    {"gpt2-774m", "2x4:l40s", 36, 64},
    {"llama3-8b", "4x8:h100-80g,net=100Gb/s", 32, 256},
    {"llama3-8b", "1x8:a100-40g", 32, 64},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

TEST(search_alone, "a search for the best alone has the same plan, and no other rows")
{
    struct error err = {0};
    for (int i = 0; i < PROBLEMS; i++) {
        struct asked a;
        struct search_result all, alone;
        ask(&a, problems[i].model, problems[i].layers, problems[i].cluster, problems[i].batch);
        ASSERT_OK(search_run(&a.request, &all, &err));
        a.request.alone = true;
        ASSERT_OK(search_run(&a.request, &alone, &err));
        ASSERT_INT(alone.alternative_count, 1);
        ASSERT(all.alternative_count > 1);
        /* To what placing tensors leaves open: neither proves the other wrong. */
        double all_s = all.alternatives[0].time.total, alone_s = alone.alternatives[0].time.total;
        ASSERT_NEAR(alone_s, all_s, 2e-3 * all_s);
        ASSERT(alone.bound_s <= all_s * (1 + 1e-9) && all.bound_s <= alone_s * (1 + 1e-9));
        ASSERT(alone.count.composed < all.count.composed);
        search_clear(&all);
        search_clear(&alone);
    }
}

TEST(search_below,
     "with a limit above the best there is a plan below it, and with one that is proved nothing")
{
    struct error err = {0};
    for (int i = 0; i < PROBLEMS; i++) {
        struct asked a;
        struct search_result all, below;
        ask(&a, problems[i].model, problems[i].layers, problems[i].cluster, problems[i].batch);
        ASSERT_OK(search_run(&a.request, &all, &err));
        double best_s = all.alternatives[0].time.total;
        a.request.alone = true;
        a.request.limit_s = best_s * (1 + 5e-3);
        ASSERT_OK(search_run(&a.request, &below, &err));
        ASSERT_INT(below.alternative_count, 1);
        ASSERT(below.alternatives[0].time.total < a.request.limit_s);
        search_clear(&below);
        a.request.limit_s = all.bound_s;
        ASSERT_OK(search_run(&a.request, &below, &err));
        ASSERT_INT(below.alternative_count, 0);
        search_clear(&below);
        search_clear(&all);
    }
}

/* What a search says that stops early when all is far from what was asked for. */
TEST(search_far, "where all is far from what is asked for little is spent, and the bound holds")
{
    struct error err = {0};
    int64_t spent = 0, spared = 0;
    for (int i = 0; i < PROBLEMS; i++)
        for (int64_t tp = 1; tp <= 4; tp *= 4) {
            struct asked a;
            struct search_result all, far;
            ask(&a, problems[i].model, problems[i].layers, problems[i].cluster, problems[i].batch);
            a.request.tp = tp;
            ASSERT_OK(search_run(&a.request, &all, &err));
            a.request.far_s = all.alternative_count ? all.alternatives[0].time.total / 2 : 1e-9;
            ASSERT_OK(search_run(&a.request, &far, &err));
            if (all.alternative_count)
                ASSERT(far.bound_s <= all.alternatives[0].time.total * (1 + 1e-9));
            if (far.alternative_count)
                ASSERT(far.alternatives[0].time.total >= all.bound_s * (1 - 1e-9));
            spent += all.count.effort;
            spared += far.count.effort;
            search_clear(&all);
            search_clear(&far);
        }
    ASSERT_MSG(2 * spared < spent, "%lld of %lld", (long long)spared, (long long)spent);
}

/* The number in front of "slower at best", as a factor; 0: the sentence does not say so. */
static double slower_at_best(const char *reason)
{
    const char *colon = strstr(reason, ": "), *words = strstr(reason, " slower at best");
    char *end;
    if (!colon || !words)
        return 0;
    double number = strtod(colon + 2, &end);
    return *end == '%' ? 1 + number / 100 : number;
}

TEST(families_hold, "what a family is said to be slower by, at best, a search of it alone confirms")
{
    struct error err = {0};
    int confirmed = 0;
    for (int i = 0; i < PROBLEMS; i++) {
        struct asked a;
        struct search_result result;
        ask(&a, problems[i].model, problems[i].layers, problems[i].cluster, problems[i].batch);
        ASSERT_OK(search_run(&a.request, &result, &err));
        ASSERT_OK(families_explain(&a.request, &result, &err));
        double plan_s = result.alternatives[0].time.total;
        for (int64_t k = 0; k < result.rejected_count; k++) {
            const char *reason = result.rejected[k].reason;
            struct search_request own = a.request;
            struct search_result best;
            double said = slower_at_best(reason);
            if (strncmp(reason, "tp=", 3) || !(said > 0))
                continue;
            own.tp = strtol(reason + 3, NULL, 10);
            ASSERT_OK(search_run(&own, &best, &err));
            ASSERT(best.alternative_count > 0);
            double ratio = best.alternatives[0].time.total / plan_s;
            /* Two digits, and what placing tensors takes above their peak. */
            ASSERT_MSG(ratio > said - 0.06 && best.bound_s / plan_s < said + 0.06, "%s: %.3f", reason, ratio);
            search_clear(&best);
            confirmed++;
        }
        search_clear(&result);
    }
    ASSERT(confirmed > 4);
}

TEST(families_say_once, "what differs from the plan is told, and not what the family is called by already")
{
    struct error err = {0};
    struct asked a;
    struct search_result result;
    ask(&a, "gpt2-124m", 12, "1x8:a100-40g", 64);
    ASSERT_OK(search_run(&a.request, &result, &err));
    ASSERT_OK(families_explain(&a.request, &result, &err));
    for (int64_t k = 0; k < result.rejected_count; k++) {
        const char *reason = result.rejected[k].reason;
        if (!strncmp(reason, "without ZeRO", 12) || !strncmp(reason, "recompute full", 14))
            ASSERT_MSG(!strchr(reason, '('), "%s", reason);
        if (!strncmp(reason, "tp=2", 4))
            ASSERT_HAS(reason, "(dp 4 x tp 2 x pp 1, ");
    }
    search_clear(&result);
}

TEST(nearest_weighed, "what does not fit by its peak is not built, and needs as much but for placing it")
{
    struct error err = {0};
    struct asked a;
    struct search_row built, weighed;
    bool found;
    struct arena *arena = arena_create();
    ask(&a, "llama3-70b", 80, "1x8:a100-80g", 8);
    ASSERT_OK(nearest_find(&a.request, arena, &built, &found, &err));
    ASSERT(found && built.arena_bytes > 0 && built.time.total > 0);
    ASSERT_OK(nearest_weigh(&a.request, arena, &weighed, &found, &err));
    ASSERT(found && weighed.arena_bytes == 0);
    ASSERT_INT(weighed.peak_bytes, built.peak_bytes);
    ASSERT(weighed.needed_bytes <= built.needed_bytes);
    ASSERT((double)weighed.needed_bytes > 0.97 * (double)built.needed_bytes);
    ASSERT_STR(weighed.recompute, built.recompute);
    ASSERT_HAS(weighed.reason, "a rank needs ");
    arena_free(arena);
}

static bool is_plan(const struct asked *a, int64_t nodes)
{
    struct error err = {0};
    struct asked other = *a;
    struct search_result result;
    other.cluster.groups[0].nodes = nodes;
    other.request.cluster = &other.cluster;
    ASSERT_OK(search_run(&other.request, &result, &err));
    bool found = result.alternative_count > 0;
    search_clear(&result);
    return found;
}

TEST(ways_out_nodes, "where nothing fits the nodes that would do, do, and one fewer does not")
{
    static const struct {
        const char *model, *cluster;
        int64_t layers, batch;
    } small[] = {
        {"llama3-8b", "1x1:a100-40g", 32, 16},
        {"llama3-8b", "3x1:l4", 32, 64},
        {"llama3-70b", "3x8:a100-40g", 80, 512},
        {"llama3-70b", "2x6:rtx4090", 80, 256},
    };
    for (int i = 0; i < 4; i++) {
        struct error err = {0};
        struct asked a;
        struct search_result result;
        struct text text = {0};
        char said[64];
        ask(&a, small[i].model, small[i].layers, small[i].cluster, small[i].batch);
        ASSERT_OK(search_run(&a.request, &result, &err));
        ASSERT_INT(result.alternative_count, 0);
        ASSERT_OK(ways_out_refusal(&a.request, &result, &text, &err));
        ASSERT(is_plan(&a, result.enough_nodes));
        ASSERT_MSG(!is_plan(&a, result.enough_nodes - 1), "%s on %s: %lld", small[i].model, small[i].cluster,
                   (long long)result.enough_nodes);
        snprintf(said, sizeof said, ", or %lld nodes like these", (long long)result.enough_nodes);
        ASSERT_HAS(text.data, said);
        text_free(&text);
        search_clear(&result);
    }
}

TEST(ways_out_worth, "more memory is worth saying from a gain of 1% on, and then there is such a plan")
{
    struct error err = {0};
    int said = 0;
    for (int i = 0; i < PROBLEMS; i++) {
        struct asked a;
        struct search_result result, more;
        struct text text = {0};
        double best = 0;
        ask(&a, problems[i].model, problems[i].layers, problems[i].cluster, problems[i].batch);
        ASSERT_OK(search_run(&a.request, &result, &err));
        ASSERT_OK(ways_out_faster(&a.request, &result, &text, &err));
        for (int k = 0; k < 2; k++) {
            double share = k ? 0.25 : 0.05;
            struct cluster larger = cluster_with_memory(
                &a.cluster, (int64_t)((double)a.cluster.groups[0].device.capacity_bytes * share));
            a.request.cluster = &larger;
            ASSERT_OK(search_run(&a.request, &more, &err));
            best = fmax(best, result.alternatives[0].time.total / more.alternatives[0].time.total - 1);
            search_clear(&more);
            a.request.cluster = &a.cluster;
        }
        if (text.length) {
            const char *faster = strstr(text.data, " more per rank ");
            ASSERT(faster && strtod(faster + 15, NULL) >= 1.0 &&
                   strtod(faster + 15, NULL) <= 100 * best + 0.051);
            said++;
        } else {
            ASSERT_MSG(best < 0.012, "%s: %.4f", problems[i].model, best);
        }
        text_free(&text);
        search_clear(&result);
    }
    ASSERT(said > 0);
}
