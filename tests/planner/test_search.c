/* The search against brute force: every plan that could be meant is built and timed, and none is better. */
#include "tests/planner/planner_sample.h"
#include "tests/test.h"

#include "base/arena.h"
#include "model/recompute.h"
#include "planner/explanation.h"
#include "planner/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const families[] = {"gpt2-tiny", "llama-tiny", "block-tiny"};

enum { SETS = 3 };

struct problem {
    struct model model;
    struct cluster cluster;
    struct machine_speed speed;
    uint32_t sets[SETS];
    enum schedule_kind schedule;
    struct search_request request;
};

static uint32_t random_below(uint32_t *state, uint32_t bound)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % bound;
}

/* 2 to 4 layers, mostly fewer than 4, up to 8 ranks on one node or two, up to 8 sequences. Some things are given, so that brute force ends. */
static void random_problem(uint32_t *state, const char *family, struct problem *p)
{
    static const int64_t batches[] = {2, 4, 6, 8};
    *p = (struct problem){
        .model = sample_model(family, 2 + random_below(state, 8) * 2 / 7),
        .cluster = {.nodes = 1 + random_below(state, 2), .ranks_per_node = 1 + random_below(state, 4)}};
    snprintf(p->cluster.device.name, sizeof p->cluster.device.name, "cpu");
    machine_speed_from_cpuinfo("", 4, &p->speed);
    p->speed.overlap = random_below(state, 2);
    p->speed.ranks_per_node = p->cluster.ranks_per_node;
    p->speed.comm_bytes_per_s.value = 1e7 * (1 + random_below(state, 1000));
    p->speed.net_bytes_per_s.value = 1e7 * (1 + random_below(state, 100));
    uint32_t full = recompute_full(&p->model);
    p->sets[0] = random_below(state, 4) ? 0 : random_below(state, full + 1);
    p->sets[1] = random_below(state, 2) ? full : random_below(state, full + 1);
    p->sets[2] = random_below(state, full + 1);
    p->schedule = (enum schedule_kind)random_below(state, SCHEDULE_KINDS);
    p->request = (struct search_request){
        .model = &p->model,
        .cluster = &p->cluster,
        .speed = &p->speed,
        .global_batch = batches[random_below(state, 4)],
        .seq_len = 16,
        .precision = random_below(state, 2) ? PRECISION_BF16 : PRECISION_FP32,
        .tp = random_below(state, 4) ? 1 : 2,
        .micro_batch = random_below(state, 2),
        .zero = random_below(state, 2) ? SEARCH_OFF : SEARCH_ON,
        .sequence_parallel = random_below(state, 3) ? SEARCH_OFF : SEARCH_ANY,
        .schedule = random_below(state, 2) ? &p->schedule : NULL,
        .sets = p->sets,
        .set_count = SETS,
    };
    p->request.tp = p->request.tp > cluster_ranks(&p->cluster) ? 1 : p->request.tp;
}

/* The fastest of all plans whose peak has room, and of those whose arena has; infinite: none. */
struct fastest {
    double peak_s, arena_s;
    int64_t plans;
};

static void weigh_plan(const struct problem *p, const struct layout *layout, const int64_t *chunk_layers,
                       const uint32_t *masks, struct fastest *out)
{
    struct error err = {0};
    struct pipeline *pipeline;
    struct step_time time;
    int64_t room = p->cluster.device.capacity_bytes, peak = 0, arena = 0;
    struct program_spec spec = {&p->model, layout, masks, chunk_layers, 0};
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    for (int i = 0; i < pipeline->count; i++) {
        peak = pipeline->stages[i]->peak_bytes > peak ? pipeline->stages[i]->peak_bytes : peak;
        arena = pipeline->stages[i]->arena_bytes > arena ? pipeline->stages[i]->arena_bytes : arena;
    }
    out->plans++;
    if (peak <= room) {
        ASSERT_OK(time_model_pipeline(pipeline, &p->speed, NULL, &time, &err));
        out->peak_s = fmin(out->peak_s, time.total);
        out->arena_s = arena <= room ? fmin(out->arena_s, time.total) : out->arena_s;
    }
    pipeline_free(pipeline);
}

/* Every set in every layer of a stage; all chunks of a stage alike. */
static void weigh_masks(const struct problem *p, const struct layout *layout, const int64_t *stage_layers,
                        struct fastest *out)
{
    int64_t chunk_layers[16], chunks = layout_chunks(layout), free_layers = 0, all = 1;
    for (int64_t i = 0; i < chunks; i++)
        chunk_layers[i] = stage_layers[i % layout->pp];
    for (int64_t i = 0; i < layout->pp; i++)
        free_layers += stage_layers[i];
    for (int64_t i = 0; i < free_layers; i++)
        all *= SETS;
    for (int64_t number = 0; number < all; number++) {
        uint32_t masks[16], of_stages[16];
        int64_t layer = 0;
        for (int64_t i = 0, rest = number; i < free_layers; i++, rest /= SETS)
            of_stages[i] = p->sets[rest % SETS];
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            int64_t first = 0;
            for (int64_t i = 0; i < chunk % layout->pp; i++)
                first += stage_layers[i];
            for (int64_t i = 0; i < chunk_layers[chunk]; i++)
                masks[layer++] = of_stages[first + i];
        }
        weigh_plan(p, layout, chunk_layers, masks, out);
    }
}

static void weigh_layers(const struct problem *p, const struct layout *layout, int64_t stage, int64_t left,
                         int64_t *stage_layers, struct fastest *out)
{
    if (stage == layout->pp - 1) {
        stage_layers[stage] = left;
        weigh_masks(p, layout, stage_layers, out);
        return;
    }
    for (int64_t n = 1; n <= left - (layout->pp - 1 - stage); n++) {
        stage_layers[stage] = n;
        weigh_layers(p, layout, stage + 1, left - n, stage_layers, out);
    }
}

/* All values of a request that leaves everything open that it can. */
static void weigh_layout(const struct problem *p, struct layout layout, struct fastest *out)
{
    const struct search_request *r = &p->request;
    struct error err = {0};
    int64_t stage_layers[16];
    bool chunks_divide = p->model.layers % layout.virtual_stages == 0;
    bool single = layout.pp == 1 && layout.schedule != SCHEDULE_1F1B;
    bool plain = layout.schedule == SCHEDULE_INTERLEAVED && layout.virtual_stages == 1;
    bool odd = layout.schedule != SCHEDULE_INTERLEAVED && layout.virtual_stages > 1;
    bool unwanted = r->schedule && layout.schedule != *r->schedule;
    if (!chunks_divide || single || plain || odd || unwanted || layout_complete(&layout, &p->model, &err))
        return;
    weigh_layers(p, &layout, 0, p->model.layers / layout.virtual_stages, stage_layers, out);
}

static struct fastest brute_force(const struct problem *p)
{
    struct fastest out = {INFINITY, INFINITY, 0};
    const struct search_request *r = &p->request;
    int64_t ranks = cluster_ranks(&p->cluster);
    for (int64_t pp = 1; pp * r->tp <= ranks && pp <= p->model.layers; pp++)
        for (int64_t dp = 1; dp * pp * r->tp <= ranks; dp++)
            for (int64_t b = 1; b <= r->global_batch / dp; b++)
                for (int sp = 0; sp <= (r->tp > 1 && r->sequence_parallel == SEARCH_ANY); sp++)
                    for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
                        for (int64_t v = 1; v * pp <= p->model.layers; v++) {
                            if (r->global_batch % (dp * b) || (r->micro_batch && b != r->micro_batch))
                                continue;
                            weigh_layout(p,
                                         (struct layout){.dp = dp,
                                                         .tp = r->tp,
                                                         .pp = pp,
                                                         .virtual_stages = v,
                                                         .schedule = (enum schedule_kind)kind,
                                                         .zero = dp > 1 && r->zero == SEARCH_ON,
                                                         .sequence_parallel = sp,
                                                         .micro_batch = b,
                                                         .global_batch = r->global_batch,
                                                         .seq_len = r->seq_len,
                                                         .precision = r->precision},
                                         &out);
                        }
    return out;
}

/* Somewhere between what the states of some layout take and all that it needs. */
static int64_t random_capacity(const struct problem *p, uint32_t *state)
{
    int64_t pp = 1 + random_below(state, 2), dp = 1 + random_below(state, 2);
    int64_t ranks = cluster_ranks(&p->cluster), low = 0, high = 0;
    pp = pp * p->request.tp > ranks ? 1 : pp;
    dp = dp * pp * p->request.tp > ranks || p->request.global_batch % dp ? 1 : dp;
    struct pipeline *pipeline =
        sample_pipeline(&p->model, (struct layout){.dp = dp,
                                                   .tp = p->request.tp,
                                                   .pp = pp,
                                                   .micro_batch = 1,
                                                   .zero = p->request.zero == SEARCH_ON,
                                                   .global_batch = p->request.global_batch,
                                                   .seq_len = p->request.seq_len,
                                                   .precision = p->request.precision});
    for (int i = 0; i < pipeline->count; i++) {
        const struct program *stage = pipeline->stages[i];
        low = stage->persistent_bytes > low ? stage->persistent_bytes : low;
        high = stage->arena_bytes > high ? stage->arena_bytes : high;
    }
    pipeline_free(pipeline);
    return low + (int64_t)((double)(high - low) * (1.1 * random_below(state, 1001) / 1000.0));
}

/* What a search promises of its plan. */
static void check_plan(const struct problem *p, const struct search_result *result)
{
    struct error err = {0};
    struct step_time time;
    struct pipeline *pipeline;
    const struct search_row *row = &result->alternatives[0];
    struct program_spec spec = {&p->model, &row->layout, row->masks, row->chunk_layers, 0};
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    int worst = pipeline_worst(pipeline);
    ASSERT_INT(pipeline->stages[worst]->arena_bytes, row->arena_bytes);
    ASSERT(row->arena_bytes <= p->cluster.device.capacity_bytes);
    ASSERT_OK(time_model_pipeline(pipeline, &p->speed, NULL, &time, &err));
    ASSERT_NEAR(time.total, row->time.total, time.total * 1e-9);
    for (int64_t i = 1; i < result->alternative_count; i++)
        ASSERT(result->alternatives[i - 1].time.total <= result->alternatives[i].time.total);
    pipeline_free(pipeline);
}

/* 170 problems of each family. Peaks decide what is searched; where placing tensors takes more room than the peak, another
 * plan is next, and no faster one may fit. */
TEST_DEFINE(search_equals_brute_force,
            "of 510 random problems the plan is the fastest of all that could be built", 3, true)
{
    uint32_t state = 7 + (uint32_t)_i;
    int planned = 0, beaten = 0;
    for (int i = 0; i < 170; i++) {
        struct error err = {0};
        struct search_result result;
        struct problem p;
        random_problem(&state, families[_i], &p);
        p.cluster.device.capacity_bytes = random_capacity(&p, &state);
        if (search_run(&p.request, &result, &err))
            continue; /* tensor-parallel ranks that the sequence or the schedule does not allow */
        struct fastest best = brute_force(&p);
        ASSERT_MSG(isinf(best.peak_s) == isinf(result.bound_s) &&
                       (isinf(best.peak_s) || fabs(result.bound_s - best.peak_s) < 1e-9 * best.peak_s),
                   "problem %d: the best has %.9g s, and %.9g s is possible", i, result.bound_s, best.peak_s);
        if (result.alternative_count) {
            check_plan(&p, &result);
            planned++;
            beaten += result.alternatives[0].time.total > best.arena_s * (1 + 1e-9);
        } else {
            beaten += !isinf(best.arena_s);
        }
        search_clear(&result);
    }
    ASSERT(planned > 60);
    ASSERT_INT(beaten, 0);
}

/* The plan for gpt2-small-bytes with that capacity, data-parallel ranks only. */
static void plan_small(int64_t capacity, struct problem *p, struct search_result *result)
{
    struct error err = {0};
    *p = (struct problem){.model = sample_model("gpt2-small-bytes", 6)};
    ASSERT_OK(cluster_read("1x2:cpu(1GiB)", &p->cluster, &err));
    p->cluster.device.capacity_bytes = capacity;
    machine_speed_from_cpuinfo("", 2, &p->speed);
    p->request = (struct search_request){.model = &p->model,
                                         .cluster = &p->cluster,
                                         .speed = &p->speed,
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
                    if (program->arena_bytes <= p->cluster.device.capacity_bytes)
                        best = fmin(best, time_model_step(program, &p->speed).total);
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
    ASSERT_OK(explanation_refusal(&p.request, &result, &text, &err));
    ASSERT_INT(result.short_bytes, result.enough_bytes - (30LL << 20));
    ASSERT_HAS(text.data, "no plan for gpt2-small-bytes in 30.00 MiB per rank: the nearest is short of ");
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
    struct problem p = {.model = sample_model("llama3-8b", 32)};
    ASSERT_OK(cluster_read("2x8:h100-80g,net=400Gb/s", &p.cluster, &err));
    machine_speed_for_cluster(&p.cluster, PRECISION_BF16, 1, &p.speed);
    struct search_request request = {.model = &p.model,
                                     .cluster = &p.cluster,
                                     .speed = &p.speed,
                                     .global_batch = 64,
                                     .seq_len = 8192,
                                     .precision = PRECISION_BF16};
    ASSERT_OK(search_run(&request, &result, &err));
    ASSERT(result.alternative_count > 1 && result.alternatives[0].arena_bytes > 0);
    ASSERT_OK(explanation_families(&request, &result, &err));
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

TEST(search_is_quick, "planning gpt3-175b on 1,024 cards takes a fraction of a second, and is proved")
{
    struct error err = {0};
    struct search_result result;
    struct problem p = {.model = sample_model("gpt3-175b", 96)};
    ASSERT_OK(cluster_read("128x8:a100-80g,net=1600Gb/s", &p.cluster, &err));
    machine_speed_for_cluster(&p.cluster, PRECISION_BF16, 1, &p.speed);
    struct search_request request = {.model = &p.model,
                                     .cluster = &p.cluster,
                                     .speed = &p.speed,
                                     .global_batch = 1536,
                                     .seq_len = 2048,
                                     .precision = PRECISION_BF16};
    ASSERT_OK(search_run(&request, &result, &err));
    ASSERT(result.alternative_count > 0 && result.candidates > 10000);
    ASSERT(result.alternatives[0].time.total <= result.bound_s * 1.03);
    /* About 0.1 s; the margin is for sanitizers and busy machines. */
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
    machine_speed_for_cluster(&p.cluster, PRECISION_BF16, 1, &p.speed);
    struct search_request request = {.model = &p.model,
                                     .cluster = &p.cluster,
                                     .speed = &p.speed,
                                     .global_batch = 2048,
                                     .seq_len = 8192,
                                     .precision = PRECISION_BF16};
    ASSERT_OK(search_run(&request, &first, &err));
    ASSERT_OK(search_run(&request, &second, &err));
    ASSERT(first.alternative_count > 0 && first.alternatives[0].arena_bytes > 0);
    ASSERT(first.bound_s <= first.alternatives[0].time.total);
    ASSERT_INT(first.count.effort, second.count.effort);
    ASSERT(first.alternatives[0].time.total == second.alternatives[0].time.total);
    ASSERT_OK(explanation_families(&request, &first, &err));
    ASSERT(first.rejected_count > 4);
    for (int64_t i = 0; i < first.rejected_count; i++)
        ASSERT(!strstr(first.rejected[i].reason, ": -") && !strstr(first.rejected[i].reason, " 0."));
    /* Half a second; it took more than a minute when nothing stopped it. */
    ASSERT(second.search_seconds < 10);
    search_clear(&first);
    search_clear(&second);
}
