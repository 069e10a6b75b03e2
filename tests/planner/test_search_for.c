/* Plans for other systems: what is found is exported whole, fits as built, takes what it says, and is no faster than what may be
 * without, nor slower than any that was found with one set for all layers. */
#include "tests/planner/brute_force.h"
#include "tests/planner/planner_sample.h"

#include "model/plan.h"
#include "model/recompute.h"
#include "planner/export_recompute.h"
#include "planner/search_for.h"

#include <math.h>
#include <string.h>

static struct error err;

struct tally {
    int planned, alike, blocks; /* blocks: first layers of each chunk, and not all or none */
};

static struct plan plan_of(const struct problem *p, const struct search_row *row)
{
    struct plan plan = {.model = *p->request.model,
                        .layout = row->layout,
                        .recompute = row->masks,
                        .chunk_layers = row->chunk_layers,
                        .capacity_bytes = INT64_MAX};
    strcpy(plan.device, "h100-80g");
    strcpy(plan.made_by, "memplan plan ...");
    return plan;
}

static void check_exported(const struct problem *p, enum export_target target, const struct plan *plan,
                           struct tally *tally)
{
    struct export_result result;
    struct export_request request = {
        .plan = plan, .plan_path = "plan.json", .ranks_per_node = p->cluster.groups[0].ranks_per_node};
    struct export_recompute recompute = export_recompute_of(target, plan);
    ASSERT_OK(export_write(target, &request, &result, &err));
    ASSERT(!result.differs);
    export_clear(&result);
    tally->blocks += recompute.way == EXPORT_WHOLE && !recompute.all;
    tally->alike += recompute.way == EXPORT_MODULES;
}

static void check_built(const struct problem *p, const struct search_row *row, const struct plan *plan)
{
    const struct rank_device *devices[16];
    struct pipeline *pipeline;
    struct prediction built;
    ASSERT(row->layout.pp <= 16);
    siting_devices(p->request.cluster, &row->layout, &row->siting, devices);
    struct siting_speeds *speeds = siting_speeds_open(p->request.cluster, p->request.speeds);
    ASSERT_OK(plan_pipeline(plan, &pipeline, &err));
    ASSERT_OK(prediction_make_placed(
        pipeline, devices, siting_speeds_of_layout(speeds, &row->layout, &row->siting), &built, &err));
    ASSERT(built.fits);
    ASSERT(fabs(built.time.total - row->time.total) <= 1e-9 * row->time.total);
    ASSERT_INT(built.needed_bytes, row->needed_bytes);
    pipeline_free(pipeline);
    siting_speeds_close(speeds);
}

/* The fastest that one search with one set and one schedule finds. */
static double fastest_alike(const struct problem *p, enum export_target target)
{
    uint32_t sets[EXPORT_SETS];
    double best_s = INFINITY;
    int count = export_recompute_sets(target, p->request.model, sets);
    for (int i = 0; i < count * SCHEDULE_KINDS; i++) {
        struct search_request request = p->request;
        struct search_result result;
        enum schedule_kind schedule = (enum schedule_kind)(i % SCHEDULE_KINDS);
        request.parts_need_replicas = export_parts_need_replicas(target, request.precision);
        request.even_nodes = export_needs_even_nodes(target);
        request.schedule = &schedule;
        request.sets = &sets[i / SCHEDULE_KINDS];
        request.set_count = 1;
        if (export_schedule(target, schedule) != schedule || search_run(&request, &result, &err))
            continue;
        if (result.alternative_count)
            best_s = fmin(best_s, result.alternatives[0].time.total);
        search_clear(&result);
    }
    return best_s;
}

static void check_problem(const struct problem *p, enum export_target target, struct tally *tally)
{
    struct search_for found;
    struct search_result result, freely;
    if (search_for_run(&p->request, target, &found, &result, &err))
        return; /* as search_run() */
    double alike_s = fastest_alike(p, target);
    ASSERT(result.alternative_count || isinf(alike_s));
    if (result.alternative_count) {
        const struct search_row *best = &result.alternatives[0];
        ASSERT(export_computes_alike(target, &best->layout));
        struct plan plan = plan_of(p, best);
        ASSERT_OK(search_run(&p->request, &freely, &err));
        ASSERT(best->time.total >= freely.bound_s * (1 - 1e-9));
        ASSERT(best->time.total <= alike_s * (1 + 1e-9));
        ASSERT(result.bound_s <= best->time.total * (1 + 1e-9));
        ASSERT_INT(*found.request.schedule == best->layout.schedule || best->layout.pp == 1, true);
        search_clear(&freely);
        check_exported(p, target, &plan, tally);
        check_built(p, best, &plan);
        tally->planned++;
    }
    search_clear(&result);
}

/* llama-tiny, which both know. */
TEST_LOOP(search_for_exports,
          "of 60 random problems the plan for a system is one that its export loses nothing of", 2)
{
    static const enum export_target targets[] = {EXPORT_MEGATRON, EXPORT_TORCHTITAN};
    uint32_t state = 11;
    struct tally tally = {0};
    for (int i = 0; i < 60; i++) {
        struct problem p;
        brute_force_problem(&state, "llama-tiny", &p);
        p.cluster.groups[0].device.capacity_bytes = brute_force_capacity(&p, &state);
        p.request.schedule = NULL;
        p.request.sets = NULL;
        p.request.set_count = 0;
        check_problem(&p, targets[_i], &tally);
    }
    ASSERT(tally.planned > 15);
    ASSERT_INT(tally.alike > 0, !_i);
}

/* 8 layers, the first of them whole. */
static int64_t arena_with(const struct model *model, const struct layout *layout, int64_t whole)
{
    struct program *program = sample_program(model, layout, whole, recompute_full(model), 0);
    int64_t bytes = program->arena_bytes;
    program_free(program);
    return bytes;
}

/* One rank with room for what seven whole layers leave, and not for what six do: no modules of all layers give up as much. */
TEST(search_for_blocks, "where no modules do, as many first layers of each chunk as must be are whole")
{
    struct problem p = {.model = sample_model("llama-tiny", 8)};
    struct layout layout = sample_layout(&p.model, 1, 2, 2, 32);
    struct search_for found;
    struct search_result result;
    struct tally tally = {0};
    ASSERT_OK(cluster_read("1x1:cpu(1GiB)", &p.cluster, &err));
    p.cluster.groups[0].device.capacity_bytes = arena_with(&p.model, &layout, 7);
    ASSERT(arena_with(&p.model, &layout, 6) > p.cluster.groups[0].device.capacity_bytes);
    p.speeds[0] = sample_speed();
    p.request = (struct search_request){.model = &p.model,
                                        .cluster = &p.cluster,
                                        .speeds = p.speeds,
                                        .global_batch = 2,
                                        .seq_len = 32,
                                        .micro_batch = 2};
    ASSERT_OK(search_for_run(&p.request, EXPORT_MEGATRON, &found, &result, &err));
    ASSERT_INT(result.alternative_count, 1);
    struct plan plan = plan_of(&p, &result.alternatives[0]);
    struct export_recompute recompute = export_recompute_of(EXPORT_MEGATRON, &plan);
    ASSERT_INT(recompute.way, EXPORT_WHOLE);
    ASSERT_INT(recompute.count, 7);
    check_exported(&p, EXPORT_MEGATRON, &plan, &tally);
    check_built(&p, &result.alternatives[0], &plan);
    ASSERT_INT(tally.blocks, 1);
    search_clear(&result);
}

TEST(search_for_schedule, "a schedule that the system has not is refused by name")
{
    uint32_t state = 3;
    struct problem p;
    struct search_for found;
    struct search_result result;
    enum schedule_kind schedule = SCHEDULE_ZB_H1;
    brute_force_problem(&state, "llama-tiny", &p);
    p.request.schedule = &schedule;
    ASSERT_INT(search_for_run(&p.request, EXPORT_TORCHTITAN, &found, &result, &err), -1);
    ASSERT_HAS(err.text, "--pipeline-schedule zb-h1: torchtitan has none");
}
