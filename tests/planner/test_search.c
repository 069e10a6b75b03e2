/* The search against brute force: every plan that could be meant is built and timed, and none is better; what it says when nothing
 * fits; how long it takes. */
#include "tests/planner/brute_force.h"
#include "tests/planner/planner_sample.h"
#include "tests/test.h"

#include "base/arena.h"
#include "model/recompute.h"
#include "planner/families.h"
#include "planner/search.h"
#include "planner/search_memory.h"
#include "planner/ways_out.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const families[] = {"gpt2-tiny", "llama-tiny", "block-tiny"};

struct tally {
    int planned, mixed, beaten; /* mixed: with ranks of several groups */
    int larger;                 /* with chunks of a stage that have more layers than others */
};

/* Ends are no such chunks. */
static bool has_larger_chunks(const struct search_row *row)
{
    int64_t pp = row->layout.pp, last = layout_chunks(&row->layout) - 1;
    for (int64_t i = 1; i < last; i++)
        for (int64_t k = i + pp; k < last; k += pp)
            if (row->chunk_layers[i] != row->chunk_layers[k])
                return true;
    return false;
}

static void compare_with_brute_force(const struct problem *p, int number, struct tally *tally)
{
    struct error err = {0};
    struct search_result result;
    if (search_run(&p->request, &result, &err))
        return; /* tensor-parallel ranks that the sequence or the schedule does not allow */
    struct fastest best = brute_force_fastest(p);
    ASSERT_MSG(isinf(best.peak_s) == isinf(result.bound_s) &&
                   (isinf(best.peak_s) || fabs(result.bound_s - best.peak_s) < 1e-9 * best.peak_s),
               "problem %d: the best has %.9g s, and %.9g s is possible", number, result.bound_s,
               best.peak_s);
    if (result.alternative_count) {
        brute_force_check(p, &result);
        tally->planned++;
        tally->mixed += result.alternatives[0].siting.count > 1;
        tally->larger += has_larger_chunks(&result.alternatives[0]);
        tally->beaten += result.alternatives[0].time.total > best.arena_s * (1 + 1e-9);
    } else {
        tally->beaten += !isinf(best.arena_s);
    }
    search_clear(&result);
}

/* 170 problems of each family. Peaks decide what is searched; where placing tensors takes more room than the peak, another
 * plan is next, and no faster one may fit. */
TEST_DEFINE(search_equals_brute_force,
            "of 510 random problems the plan is the fastest of all that could be built", 3, true)
{
    uint32_t state = 7 + (uint32_t)_i;
    struct tally tally = {0};
    for (int i = 0; i < 170; i++) {
        struct problem p;
        brute_force_problem(&state, families[_i], &p);
        p.cluster.groups[0].device.capacity_bytes = brute_force_capacity(&p, &state);
        compare_with_brute_force(&p, i, &tally);
    }
    ASSERT(tally.planned > 60);
    ASSERT_INT(tally.beaten, 0);
}

/* 40 problems of two families; an encoder has no larger chunks. */
TEST_DEFINE(search_chunks_equal_brute_force,
            "so it is of 80 whose chunks cannot all be alike: in some the plan has larger ones", 2, true)
{
    uint32_t state = 3 + (uint32_t)_i;
    struct tally tally = {0};
    for (int i = 0; i < 40; i++) {
        struct problem p;
        brute_force_chunk_problem(&state, families[_i], &p);
        p.cluster.groups[0].device.capacity_bytes = brute_force_capacity(&p, &state);
        compare_with_brute_force(&p, i, &tally);
    }
    ASSERT_MSG(tally.planned > 15 && tally.larger >= 2, "%d plans, %d with larger chunks", tally.planned,
               tally.larger);
    ASSERT_INT(tally.beaten, 0);
}

/* 50 problems of each family, on two or three groups of nodes that differ in memory, speed, links and ranks. */
TEST_DEFINE(
    search_mixed_equals_brute_force,
    "so it is of 150 on nodes that differ: in every order and place, and where stages have ranks of several",
    3, true)
{
    uint32_t state = 1 + (uint32_t)_i;
    struct tally tally = {0};
    for (int i = 0; i < 50; i++) {
        struct problem p;
        brute_force_mixed_problem(&state, families[_i], &p);
        for (int g = 0; g < p.cluster.group_count; g++)
            p.cluster.groups[g].device.capacity_bytes = brute_force_capacity(&p, &state);
        compare_with_brute_force(&p, i, &tally);
    }
    ASSERT(tally.planned > 15 && tally.mixed > 4);
    ASSERT_INT(tally.beaten, 0);
}

/* The plan for gpt2-small-bytes with that capacity, data-parallel ranks only. */
static void plan_small(int64_t capacity, struct problem *p, struct search_result *result)
{
    struct error err = {0};
    *p = (struct problem){.model = sample_model("gpt2-small-bytes", 6)};
    ASSERT_OK(cluster_read("1x2:cpu(1GiB)", &p->cluster, &err));
    p->cluster.groups[0].device.capacity_bytes = capacity;
    machine_speed_from_cpuinfo("", 2, &p->speeds[0]);
    p->request = (struct search_request){.model = &p->model,
                                         .cluster = &p->cluster,
                                         .speeds = p->speeds,
                                         .global_batch = 8,
                                         .seq_len = 256,
                                         .tp = 1,
                                         .pp = 1};
    ASSERT_OK(search_run(&p->request, result, &err));
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
        ASSERT(result.alternatives[0].arena_bytes <= arena_bytes);
        ASSERT(result.alternatives[0].time.total <= seconds * (1 + 1e-12));
        search_clear(&result);

        plan_small(arena_bytes - 1, &p, &result);
        ASSERT(result.alternatives[0].arena_bytes < arena_bytes);
    }
    search_clear(&result);
}

/* The fastest of all pairs of sets, one for the lower layers and one for the upper ones, that fits: what the search without
 * mixes of more sets would find. */
static double best_pair(const struct problem *p)
{
    uint32_t full = recompute_full(&p->model);
    uint32_t sets[] = {0, full, recompute_selective(&p->model), full & 0x15, full & 0x2a, full & 0x63};
    double best = INFINITY;
    for (int64_t dp = 1; dp <= 2; dp++)
        for (int64_t b = 1; b <= 8 / dp; b *= 2)
            for (int pair = 0; pair < 36; pair++)
                for (int64_t lower = 0; lower < p->model.layers; lower++) {
                    struct layout layout = sample_layout(&p->model, dp, b, 8, 256);
                    struct program *program =
                        sample_program(&p->model, &layout, lower, sets[pair / 6], sets[pair % 6]);
                    if (program->arena_bytes <= p->cluster.groups[0].device.capacity_bytes)
                        best = fmin(best, time_model_step(program, &p->speeds[0]).total);
                    program_free(program);
                }
    return best;
}

TEST(search_beats_pairs,
     "neither Megatron's none, selective and full nor any pair of sets is better than the plan")
{
    struct problem p;
    struct search_result result;
    for (int64_t mib = 60; mib <= 300; mib += 40) {
        plan_small(mib << 20, &p, &result);
        ASSERT(result.alternatives[0].time.total <= best_pair(&p) * (1 + 1e-9));
        search_clear(&result);
    }
}

TEST(search_no_plan, "where nothing fits, the nearest, what it lacks and a capacity that would do are told")
{
    struct problem p;
    struct error err = {0};
    struct search_result result;
    struct text text = {0};
    plan_small(30LL << 20, &p, &result);
    ASSERT_INT(result.alternative_count, 0);
    ASSERT_INT(result.feasible, 0);
    ASSERT_OK(ways_out_refusal(&p.request, &result, &text, &err));
    ASSERT_INT(result.short_bytes, result.enough_bytes - (30LL << 20));
    ASSERT_HAS(text.data, "no plan for gpt2-small-bytes in 30.00 MiB per rank: the nearest is short by ");
    ASSERT_HAS(text.data, "a rank needs ");
    ASSERT_HAS(text.data, " per rank would do");
    text_free(&text);
    int64_t enough = result.enough_bytes;
    search_clear(&result);

    plan_small(enough, &p, &result);
    ASSERT(result.alternative_count > 0);
    search_clear(&result);
}

TEST(search_explains,
     "a plan comes with why not: other ranks, schedules and sets, each with its first reason")
{
    struct error err = {0};
    struct search_result result;
    struct problem p = {.model = sample_model("llama3-8b", 48)};
    ASSERT_OK(cluster_read("2x8:h100-80g,net=400Gb/s", &p.cluster, &err));
    machine_speed_for_cluster(&p.cluster, PRECISION_BF16, 1, &p.speeds[0]);
    struct search_request request = {.model = &p.model,
                                     .cluster = &p.cluster,
                                     .speeds = p.speeds,
                                     .global_batch = 64,
                                     .seq_len = 8192,
                                     .precision = PRECISION_BF16};
    ASSERT_OK(search_run(&request, &result, &err));
    ASSERT(result.alternative_count > 1 && result.alternatives[0].arena_bytes > 0);
    ASSERT_OK(families_explain(&request, &result, &err));
    struct text all = {0};
    for (int64_t i = 0; i < result.rejected_count; i++)
        text_printf(&all, "%s\n", result.rejected[i].reason);
    ASSERT_HAS(all.data, "tp=8");
    ASSERT_HAS(all.data, "slower at best, mostly by ");
    ASSERT_HAS(all.data, "recompute full in all layers");
    ASSERT_HAS(all.data, " does not fit: the nearest, ");
    text_free(&all);
    search_clear(&result);
}

/* Its seconds on 16,384 cards, and how many layers the first chunk and the last have. */
static double plan_large(int64_t layers, int64_t ends[2])
{
    struct error err = {0};
    struct search_result result;
    struct problem p = {.model = sample_model("llama3-405b", layers)};
    ASSERT_OK(cluster_read("2048x8:h100-80g,net=3200Gb/s", &p.cluster, &err));
    machine_speed_for_cluster(&p.cluster, PRECISION_BF16, 1, &p.speeds[0]);
    struct search_request request = {.model = &p.model,
                                     .cluster = &p.cluster,
                                     .speeds = p.speeds,
                                     .global_batch = 2048,
                                     .seq_len = 8192,
                                     .precision = PRECISION_BF16};
    ASSERT_OK(search_run(&request, &result, &err));
    ASSERT(result.alternative_count > 0);
    const struct search_row *row = &result.alternatives[0];
    ends[0] = row->chunk_layers[0];
    ends[1] = row->chunk_layers[layout_chunks(&row->layout) - 1];
    double step_s = row->time.total;
    search_clear(&result);
    return step_s;
}

TEST(search_bare_ends,
     "126 layers take no longer than 128: the embedding and the head are chunks of their own")
{
    int64_t ends[2];
    double more_s = plan_large(128, ends);
    ASSERT(plan_large(126, ends) <= more_s);
    ASSERT(ends[0] == 0 && ends[1] == 0);
}

TEST(search_builds_little,
     "what is slower than the plan is told without being built, and a shared memory changes nothing")
{
    struct error err = {0};
    struct search_result result, again;
    struct text unlocks = {0};
    struct problem p = {.model = sample_model("llama3-8b", 32)};
    int slower = 0;
    ASSERT_OK(cluster_read("2x8:h100-80g,net=400Gb/s", &p.cluster, &err));
    machine_speed_for_cluster(&p.cluster, PRECISION_BF16, 1, &p.speeds[0]);
    struct search_request request = {.model = &p.model,
                                     .cluster = &p.cluster,
                                     .speeds = p.speeds,
                                     .global_batch = 256,
                                     .seq_len = 8192,
                                     .precision = PRECISION_BF16};
    ASSERT_OK(search_run(&request, &result, &err));
    request.memory = search_memory_open(&request);
    ASSERT_OK(search_run(&request, &again, &err));
    ASSERT_OK(families_explain(&request, &again, &err));
    ASSERT_OK(ways_out_faster(&request, &again, &unlocks, &err));
    for (int64_t i = 0; i < again.rejected_count; i++)
        if (strstr(again.rejected[i].reason, " slower at best")) {
            ASSERT_INT(again.rejected[i].arena_bytes, 0);
            slower++;
        }
    ASSERT(slower > 4);
    search_clear(&again);
    /* With all that is known by now. */
    ASSERT_OK(search_run(&request, &again, &err));
    ASSERT(again.alternatives[0].time.total == result.alternatives[0].time.total);
    ASSERT_INT(again.alternatives[0].arena_bytes, result.alternatives[0].arena_bytes);
    ASSERT_INT(again.count.effort, result.count.effort);
    search_clear(&again);
    search_clear(&result);
    search_memory_close(request.memory);
    text_free(&unlocks);
}

TEST(search_refusals, "a request that makes no sense is refused with a way out")
{
    struct problem p;
    struct search_result result;
    struct error err = {0};
    plan_small(1LL << 30, &p, &result);
    search_clear(&result);
    p.request.global_batch = 0;
    ASSERT_INT(search_run(&p.request, &result, &err), -1);
    ASSERT_HAS(err.text, "--global-batch 0");
    p.request.global_batch = 8;
    p.request.dp = 4;
    ASSERT_INT(search_run(&p.request, &result, &err), -1);
    ASSERT_HAS(err.text, "the cluster has 2 ranks");
    p.request.dp = 2;
    p.request.micro_batch = 3;
    ASSERT_INT(search_run(&p.request, &result, &err), -1);
    ASSERT_HAS(err.text, "--global-batch 8 is not a multiple of dp 2 x micro-batch 3");
}

/* On nodes whose cards differ in memory and speed. */
static void open_mixed(const char *cluster, const char *model, int64_t layers, struct problem *p)
{
    struct error err = {0};
    *p = (struct problem){.model = sample_model(model, layers)};
    ASSERT_OK(cluster_read(cluster, &p->cluster, &err));
    for (int g = 0; g < p->cluster.group_count; g++)
        machine_speed_for_group(&p->cluster.groups[g], PRECISION_BF16, 1, &p->speeds[g]);
    p->request = (struct search_request){.model = &p->model,
                                         .cluster = &p->cluster,
                                         .speeds = p->speeds,
                                         .global_batch = 64,
                                         .precision = PRECISION_BF16};
}

TEST(search_mixed_layers,
     "a stage on faster cards gets more layers, a stage on small ones no more than they hold")
{
    struct problem p;
    struct error err = {0};
    struct search_result result;
    open_mixed("1x8:a100-80g+1x8:h100-80g,net=400Gb/s", "llama3-8b", 32, &p);
    p.request.pp = 2;
    p.request.dp = 8;
    p.request.virtual_stages = 1;
    ASSERT_OK(search_run(&p.request, &result, &err));
    ASSERT_INT(result.alternatives[0].siting.count, 2);
    int h100 = result.alternatives[0].siting.parts[0].group == 1 ? 0 : 1;
    ASSERT(result.alternatives[0].chunk_layers[h100] > 2 * result.alternatives[0].chunk_layers[!h100]);
    brute_force_check(&p, &result);
    search_clear(&result);

    /* Half the memory, as fast: memory decides. */
    open_mixed("1x8:a100-80g+1x8:a100-80g(20GiB),net=400Gb/s", "llama3-8b", 32, &p);
    p.request.pp = 2;
    p.request.dp = 8;
    ASSERT_OK(search_run(&p.request, &result, &err));
    ASSERT(result.alternative_count > 0);
    int small = result.alternatives[0].siting.parts[0].group == 1 ? 0 : 1;
    ASSERT(result.alternatives[0].chunk_layers[small] < result.alternatives[0].chunk_layers[!small]);
    brute_force_check(&p, &result);
    search_clear(&result);
}

TEST(search_mixed_no_plan,
     "where nothing fits on nodes that differ, what every rank lacks would do, and a byte less would not")
{
    struct problem p, again;
    struct error err = {0};
    struct search_result result, more;
    struct text text = {0};
    open_mixed("1x2:a100-40g+1x1:l40s,net=400Gb/s", "llama3-8b", 32, &p);
    p.request.seq_len = 8192;
    ASSERT_OK(search_run(&p.request, &result, &err));
    ASSERT_INT(result.alternative_count, 0);
    ASSERT_OK(ways_out_refusal(&p.request, &result, &text, &err));
    ASSERT_HAS(text.data,
               "no plan for llama3-8b in 39.60 GiB (a100-40g) and 44.40 GiB (l40s) per rank: the nearest");
    ASSERT_HAS(text.data, " more on every rank would do, or ");
    ASSERT(strstr(text.data, " on a100-40g needs ") || strstr(text.data, " on l40s needs "));
    ASSERT(result.short_bytes > 0 && result.enough_nodes > 2);
    for (int64_t less = 0; less <= 1; less++) {
        again = p;
        again.cluster = cluster_with_memory(&p.cluster, result.short_bytes - less);
        again.request.cluster = &again.cluster;
        again.request.speeds = again.speeds;
        again.request.model = &again.model;
        ASSERT_OK(search_run(&again.request, &more, &err));
        ASSERT_INT(more.alternative_count > 0, !less);
        search_clear(&more);
    }
    text_free(&text);
    search_clear(&result);
}

TEST(search_asked_too_much, "where nothing fits what was asked for, that there is a plan without is said")
{
    struct problem p;
    struct error err = {0};
    struct search_result result;
    struct text text = {0};
    open_mixed("1x8:a100-40g", "llama3-8b", 32, &p);
    p.request.seq_len = 8192;
    p.request.dp = 8;
    ASSERT_OK(search_run(&p.request, &result, &err));
    ASSERT_INT(result.alternative_count, 0);
    ASSERT_OK(ways_out_refusal(&p.request, &result, &text, &err));
    ASSERT_HAS(text.data, "; with nothing asked for there is a plan here: dp ");
    text_free(&text);
    search_clear(&result);
    p.request.dp = 0;
    p.request.tp = 16;
    ASSERT_INT(search_run(&p.request, &result, &err), -1);
    ASSERT_HAS(err.text, "--dp x --tp x --pp is 16");
    open_mixed("1x8:a100-40g+1x8:l40s", "llama3-8b", 32, &p);
    p.request.tp = 16;
    ASSERT_INT(search_run(&p.request, &result, &err), -1);
    ASSERT_HAS(err.text,
               "--tp 16: tensor-parallel ranks have devices of one kind, of which the cluster has 8");
}

TEST(search_is_quick, "planning gpt3-175b on 1,024 cards takes a fraction of a second, and is proved")
{
    struct error err = {0};
    struct search_result result;
    struct problem p = {.model = sample_model("gpt3-175b", 96)};
    ASSERT_OK(cluster_read("128x8:a100-80g,net=1600Gb/s", &p.cluster, &err));
    machine_speed_for_cluster(&p.cluster, PRECISION_BF16, 1, &p.speeds[0]);
    struct search_request request = {.model = &p.model,
                                     .cluster = &p.cluster,
                                     .speeds = p.speeds,
                                     .global_batch = 1536,
                                     .seq_len = 2048,
                                     .precision = PRECISION_BF16};
    ASSERT_OK(search_run(&request, &result, &err));
    ASSERT(result.alternative_count > 0 && result.candidates > 10000);
    ASSERT(result.alternatives[0].time.total <= result.bound_s * 1.001);
    /* Less than 0.1 s; the margin is for sanitizers and busy machines. */
    ASSERT(result.search_seconds < 5);
    search_clear(&result);
}

TEST(search_stops, "on a network too slow for the model the search stops, always at the same plan, and so do "
                   "its explanations")
{
    struct error err = {0};
    struct search_result first, second;
    struct problem p = {.model = sample_model("llama3-405b", 126)};
    ASSERT_OK(cluster_read("2048x8:h100-80g,net=400Gb/s", &p.cluster, &err));
    machine_speed_for_cluster(&p.cluster, PRECISION_BF16, 1, &p.speeds[0]);
    struct search_request request = {.model = &p.model,
                                     .cluster = &p.cluster,
                                     .speeds = p.speeds,
                                     .global_batch = 2048,
                                     .seq_len = 8192,
                                     .precision = PRECISION_BF16};
    ASSERT_OK(search_run(&request, &first, &err));
    ASSERT_OK(search_run(&request, &second, &err));
    ASSERT(first.alternative_count > 0 && first.alternatives[0].arena_bytes > 0);
    ASSERT(first.bound_s <= first.alternatives[0].time.total);
    ASSERT_INT(first.count.effort, second.count.effort);
    ASSERT(first.alternatives[0].time.total == second.alternatives[0].time.total);
    ASSERT_OK(families_explain(&request, &first, &err));
    ASSERT(first.rejected_count > 4);
    for (int64_t i = 0; i < first.rejected_count; i++)
        ASSERT(!strstr(first.rejected[i].reason, ": -") && !strstr(first.rejected[i].reason, " 0."));
    /* Half a second; it took more than a minute when nothing stopped it. */
    ASSERT(second.search_seconds < 10);
    search_clear(&first);
    search_clear(&second);
}
