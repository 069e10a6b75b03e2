/* The search against brute force: every program that could be meant is built and timed, and none is better. */
#include "tests/planner/planner_sample.h"
#include "tests/test.h"

#include "model/recompute.h"
#include "planner/frontier.h"
#include "planner/search.h"

#include <stdlib.h>

static const char *const families[] = {"gpt2-tiny", "llama-tiny", "block-tiny"};

struct problem {
    struct model model;
    struct cluster cluster;
    struct machine_speed speed;
    int64_t global_batch, seq_len;
};

static struct search_request request_of(const struct problem *problem)
{
    return (struct search_request){.model = &problem->model,
                                   .cluster = &problem->cluster,
                                   .speed = &problem->speed,
                                   .global_batch = problem->global_batch,
                                   .seq_len = problem->seq_len};
}

static uint32_t random_below(uint32_t *state, uint32_t bound)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % bound;
}

/* Small enough to try everything: 2 or 3 layers, up to 4 ranks, up to 8 sequences. */
static struct problem random_problem(uint32_t *state, const char *family)
{
    static const int64_t batches[] = {1, 2, 4, 6, 8}, lengths[] = {8, 16, 32};
    struct problem p = {.model = sample_model(family, 2 + random_below(state, 2)),
                        .cluster = {.nodes = 1, .ranks_per_node = 1 + random_below(state, 4)},
                        .global_batch = batches[random_below(state, 5)],
                        .seq_len = lengths[random_below(state, 3)]};
    snprintf(p.cluster.device.name, sizeof p.cluster.device.name, "cpu");
    machine_speed_from_cpuinfo("", 4, &p.speed);
    p.speed.overlap = random_below(state, 2);
    p.speed.comm_bytes_per_s.value = 1e7 * (1 + random_below(state, 1000));
    return p;
}

/* What a rank holds for good, and a share of what it needs besides with the whole batch at once. */
static int64_t capacity_share(const struct problem *p, int64_t dp, double share)
{
    struct layout layout = sample_layout(&p->model, dp, p->global_batch / dp, p->global_batch, p->seq_len);
    struct program *most = sample_program(&p->model, &layout, 0, 0, 0);
    int64_t low = most->persistent_bytes, high = most->arena_bytes + 64;
    program_free(most);
    return low + (int64_t)((double)(high - low) * share);
}

static int64_t random_capacity(const struct problem *p, uint32_t *state)
{
    int64_t dp = 1 + random_below(state, (uint32_t)p->cluster.ranks_per_node);
    while (p->global_batch % dp)
        dp--;
    return capacity_share(p, dp, random_below(state, 1001) / 1000.0);
}

/* The fastest program that fits, over all layouts, pairs of the sets given, and splits; 0: none. */
static double brute_force(const struct problem *p, const uint32_t *sets, int set_count)
{
    double best = 0;
    for (int64_t dp = 1; dp <= p->cluster.ranks_per_node; dp++)
        for (int64_t micro_batch = 1; micro_batch <= p->global_batch; micro_batch++) {
            if (p->global_batch % (dp * micro_batch))
                continue;
            struct layout layout = sample_layout(&p->model, dp, micro_batch, p->global_batch, p->seq_len);
            for (int a = 0; a < set_count; a++)
                for (int b = 0; b < set_count; b++)
                    for (int64_t lower = a != b; lower < (a != b ? p->model.layers : 1); lower++) {
                        struct program *program = sample_program(&p->model, &layout, lower, sets[a], sets[b]);
                        double seconds = time_model_step(program, &p->speed).total;
                        if (program->arena_bytes <= p->cluster.device.capacity_bytes &&
                            (!best || seconds < best))
                            best = seconds;
                        program_free(program);
                    }
        }
    return best;
}

/* What a search promises of its answer. */
static void check_rows(const struct problem *p, const struct search_result *result)
{
    struct error err = {0};
    for (int64_t i = 0; i < result->alternative_count; i++) {
        const struct search_row *row = &result->alternatives[i];
        struct program *program;
        ASSERT_OK(program_create(&p->model, &row->layout, row->masks, &program, &err));
        ASSERT(program->arena_bytes <= p->cluster.device.capacity_bytes);
        ASSERT_INT(program->arena_bytes, row->arena_bytes);
        ASSERT_INT(program->peak_bytes, row->peak_bytes);
        double seconds = time_model_step(program, &p->speed).total;
        ASSERT_NEAR(seconds, row->time.total, seconds * 1e-12);
        ASSERT(i == 0 || result->alternatives[i - 1].time.total <= row->time.total);
        program_free(program);
    }
    for (int64_t i = 0; i < result->rejected_count; i++) {
        ASSERT(result->rejected[i].arena_bytes > p->cluster.device.capacity_bytes);
        ASSERT_HAS(result->rejected[i].reason, "needs ");
    }
}

/* 40 problems of each family. */
TEST_DEFINE(search_random_problems, "no program of 120 random problems is faster than the plan and fits", 3,
            true)
{
    uint32_t state = 7 + (uint32_t)_i;
    int planned = 0, recomputed = 0;
    for (int i = 0; i < 40; i++) {
        struct error err = {0};
        struct search_result result;
        struct problem p = random_problem(&state, families[_i]);
        p.cluster.device.capacity_bytes = random_capacity(&p, &state);
        struct search_request request = request_of(&p);
        ASSERT_OK(search_run(&request, &result, &err));
        check_rows(&p, &result);
        uint32_t full = recompute_full(&p.model);
        uint32_t sets[] = {0, full, recompute_selective(&p.model), random_below(&state, full + 1)};
        double best = brute_force(&p, sets, 4);
        if (result.alternative_count)
            ASSERT_MSG(!best || result.alternatives[0].time.total <= best * (1 + 1e-12),
                       "problem %d: the plan takes %.9g s, but %.9g s is possible", i,
                       result.alternatives[0].time.total, best);
        else
            ASSERT_MSG(!best, "problem %d: no plan, but one of %.9g s fits", i, best);
        planned += result.alternative_count > 0;
        recomputed += result.alternative_count && strcmp(result.alternatives[0].recompute, "none") != 0;
        search_clear(&result);
    }
    ASSERT(planned > 10 && planned < 40 && recomputed > 3);
}

TEST_LOOP(search_equals_brute_force,
          "over all pairs of sets of the frontier the plan is exactly the fastest that fits", 3)
{
    uint32_t state = 100 + (uint32_t)_i;
    struct error err = {0};
    struct search_result result;
    struct problem p = random_problem(&state, families[_i]);
    p.cluster.ranks_per_node = 1;
    p.global_batch = 2;
    p.cluster.device.capacity_bytes = capacity_share(&p, 1, 0.7);
    struct search_request request = request_of(&p);
    ASSERT_OK(search_run(&request, &result, &err));

    struct layout layout = sample_layout(&p.model, 1, 1, 2, p.seq_len);
    struct program *plain = sample_program(&p.model, &layout, 0, 0, 0);
    struct layer_sets sets;
    struct frontier frontier;
    layer_sets_create(plain, &sets);
    frontier_create(&sets, plain, &p.speed, &frontier);
    uint32_t masks[128];
    for (int k = 0; k < frontier.count; k++)
        masks[k] = frontier.points[k].set.mask;
    double best = brute_force(&p, masks, frontier.count);
    ASSERT(best > 0 && result.alternative_count > 0);
    ASSERT_NEAR(result.alternatives[0].time.total, best, best * 1e-12);
    frontier_clear(&frontier);
    layer_sets_clear(&sets);
    program_free(plain);
    search_clear(&result);
}

/* The plan for gpt2-small-bytes with that capacity. */
static void plan_small(int64_t capacity, struct problem *p, struct search_result *result)
{
    struct error err = {0};
    *p = (struct problem){.model = sample_model("gpt2-small-bytes", 6), .global_batch = 8, .seq_len = 256};
    ASSERT_OK(cluster_read("1x2:cpu(1GiB)", &p->cluster, &err));
    p->cluster.device.capacity_bytes = capacity;
    machine_speed_from_cpuinfo("", 2, &p->speed);
    struct search_request request = request_of(p);
    ASSERT_OK(search_run(&request, result, &err));
}

TEST(search_to_the_byte, "a plan fits a capacity of exactly its arena; with one byte less another is picked")
{
    struct problem p;
    struct search_result result;
    plan_small(150LL << 20, &p, &result);
    for (int i = 0; i < 20; i++) {
        ASSERT(result.alternative_count > 0);
        int64_t arena_bytes = result.alternatives[0].arena_bytes;
        double seconds = result.alternatives[0].time.total;
        search_clear(&result);

        plan_small(arena_bytes, &p, &result);
        ASSERT_NEAR(result.alternatives[0].time.total, seconds, seconds * 1e-12);
        ASSERT_INT(result.alternatives[0].arena_bytes, arena_bytes);
        search_clear(&result);

        plan_small(arena_bytes - 1, &p, &result);
        ASSERT(result.alternatives[0].arena_bytes < arena_bytes);
        ASSERT(result.alternatives[0].time.total >= seconds * (1 - 1e-12));
    }
    search_clear(&result);
}

TEST(search_beats_megatron,
     "none, selective and full are always among the candidates, and never better than the plan")
{
    struct problem p;
    struct search_result result;
    for (int64_t mib = 60; mib <= 300; mib += 20) {
        plan_small(mib << 20, &p, &result);
        int named = 0;
        for (int64_t i = 0; i < result.alternative_count; i++) {
            const struct search_row *row = &result.alternatives[i];
            named += !strcmp(row->recompute, "none") + !strcmp(row->recompute, "full") +
                     !strcmp(row->recompute, "selective");
            ASSERT(result.alternatives[0].time.total <= row->time.total);
        }
        for (int64_t i = 0; i < result.rejected_count; i++)
            named += !strcmp(result.rejected[i].recompute, "none") +
                     !strcmp(result.rejected[i].recompute, "full") +
                     !strcmp(result.rejected[i].recompute, "selective");
        ASSERT(named >= 3 && named % 3 == 0);
        search_clear(&result);
    }
}

TEST(search_no_plan, "where nothing fits, the nearest, what it lacks and a capacity that would do are told")
{
    struct problem p;
    struct search_result result;
    struct text text = {0};
    plan_small(30LL << 20, &p, &result);
    ASSERT_INT(result.alternative_count, 0);
    ASSERT_INT(result.feasible, 0);
    ASSERT(result.candidates > 100);
    ASSERT_INT(result.short_bytes, result.enough_bytes - (30LL << 20));
    struct search_request request = request_of(&p);
    search_explain(&request, &result, &text);
    ASSERT_HAS(text.data,
               "no plan for gpt2-small-bytes in 30.00 MiB per rank: the least that a rank needs is ");
    ASSERT_HAS(text.data, " more, with micro-batches of 1 and recomputation; use devices with more memory");
    ASSERT(text.length < 240);
    text_free(&text);
    int64_t enough = result.enough_bytes;
    search_clear(&result);

    plan_small(enough, &p, &result);
    ASSERT_INT(result.alternatives[0].arena_bytes, enough);
    search_clear(&result);
    plan_small(enough - 1, &p, &result);
    ASSERT_INT(result.alternative_count, 0);
    search_clear(&result);
}

TEST(search_refusals, "a request that makes no sense is refused with a way out")
{
    struct problem p;
    struct search_result result;
    struct error err = {0};
    plan_small(1LL << 30, &p, &result);
    search_clear(&result);
    struct search_request request = request_of(&p);
    request.global_batch = 0;
    ASSERT_INT(search_run(&request, &result, &err), -1);
    ASSERT_HAS(err.text, "--global-batch 0");
    request.global_batch = 8;
    request.dp = 4;
    ASSERT_INT(search_run(&request, &result, &err), -1);
    ASSERT_HAS(err.text, "--dp 4: the cluster has 2 ranks");
    request.dp = 2;
    request.micro_batch = 3;
    ASSERT_INT(search_run(&request, &result, &err), -1);
    ASSERT_HAS(err.text, "--global-batch 8 is not a multiple of dp 2 x micro-batch 3");
}

TEST(search_fixed_layout, "what is asked for is kept")
{
    struct problem p;
    struct search_result result;
    struct error err = {0};
    plan_small(1LL << 30, &p, &result);
    search_clear(&result);
    struct search_request request = request_of(&p);
    request.dp = 2;
    request.micro_batch = 2;
    ASSERT_OK(search_run(&request, &result, &err));
    ASSERT_INT(result.alternative_count, 3); /* none, selective, full */
    ASSERT_STR(result.alternatives[0].recompute, "none");
    for (int i = 0; i < 3; i++) {
        ASSERT_INT(result.alternatives[i].layout.dp, 2);
        ASSERT_INT(result.alternatives[i].layout.micro_batch, 2);
    }
    search_clear(&result);
}

TEST(search_is_quick, "planning GPT-2 124M over 4 ranks takes a fraction of a second")
{
    struct error err = {0};
    struct search_result result;
    struct problem p = {.model = sample_model("gpt2-124m", 12), .global_batch = 16, .seq_len = 256};
    ASSERT_OK(cluster_read("1x4:cpu(3GiB)", &p.cluster, &err));
    machine_speed_from_cpuinfo("", 4, &p.speed);
    struct search_request request = request_of(&p);
    ASSERT_OK(search_run(&request, &result, &err));
    ASSERT(result.alternative_count > 0);
    /* 0.05 s on two cores of 2021; the margin is for sanitizers and busy machines. */
    ASSERT(result.search_seconds < 2);
    search_clear(&result);
}
