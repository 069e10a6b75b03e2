/* The step as spans against the step as sums. */
#include "planner/step_spans.h"
#include "planner/time_model.h"
#include "tests/planner/planner_sample.h"

#include "model/recompute.h"

#include <string.h>

/* Ranks, memory and links slow enough for everything to show. */
static struct machine_speed slow_speed(void)
{
    struct machine_speed speed = sample_speed();
    speed.memory_bytes_per_s.value = 1e9;
    speed.comm_bytes_per_s.value = 2e8;
    speed.net_bytes_per_s.value = 2e8;
    speed.overlap = 0.5;
    return speed;
}

static struct pipeline *make(const char *schedule, int64_t dp, int64_t tp, int64_t pp, int64_t virtual_stages)
{
    struct error err = {0};
    struct pipeline *pipeline;
    struct model model = sample_model("gpt2-tiny", 8);
    struct layout layout = {.dp = dp,
                            .tp = tp,
                            .pp = pp,
                            .virtual_stages = virtual_stages,
                            .micro_batch = 1,
                            .global_batch = 8 * dp,
                            .seq_len = 16};
    uint32_t masks[8];
    for (int i = 0; i < 8; i++)
        masks[i] = i < 3 ? recompute_selective(&model) : 0;
    if (schedule)
        ASSERT_OK(schedule_find(schedule, &layout.schedule, &err));
    ASSERT_OK(layout_complete(&layout, &model, &err));
    struct program_spec spec = {.model = &model, .layout = &layout, .recompute = masks};
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    return pipeline;
}

static void check_stage(const struct step_lane *lane, const struct step_time *time, double total_s)
{
    double sums[STEP_WORKS] = {0}, end_s = 0;
    for (int64_t i = 0; i < lane->count; i++) {
        const struct step_span *span = &lane->spans[i];
        ASSERT(span->end_s > span->start_s);
        ASSERT_MSG(span->start_s > end_s - 1e-9, "span %lld begins at %g, before %g", (long long)i,
                   span->start_s, end_s);
        ASSERT(span->micro_batch >= -1 && span->micro_batch < 8);
        sums[span->work] += span->end_s - span->start_s;
        end_s = span->end_s;
    }
    ASSERT(end_s < total_s + 1e-9);
    ASSERT_NEAR(sums[STEP_FORWARD], time->forward, 1e-9);
    ASSERT_NEAR(sums[STEP_BACKWARD] + sums[STEP_WEIGHTS], time->backward, 1e-9);
    ASSERT_NEAR(sums[STEP_RECOMPUTE], time->recompute, 1e-9);
    ASSERT_NEAR(sums[STEP_EXCHANGE], time->exposed_communication, 1e-9);
    ASSERT_NEAR(sums[STEP_OPTIMIZER], time->optimizer, 1e-9);
}

/* `cores`: that all ranks share; 0: each has a device of its own. */
static void check_on(struct pipeline *pipeline, int cores)
{
    struct error err = {0};
    struct arena *arena = arena_create();
    struct machine_speed speed = slow_speed();
    speed.cores = speed.threads = cores;
    struct step_lane lanes[8];
    struct step_time stages[8], step;
    double total_s, last_s = 0;
    ASSERT_OK(time_model_pipeline(pipeline, &speed, stages, &step, &err));
    ASSERT_OK(step_spans_find(pipeline, &speed, arena, lanes, &total_s, &err));
    ASSERT_NEAR(total_s, step.total, 1e-9);
    for (int i = 0; i < pipeline->count; i++) {
        check_stage(&lanes[i], &stages[i], total_s);
        double end_s = lanes[i].spans[lanes[i].count - 1].end_s;
        last_s = end_s > last_s ? end_s : last_s;
    }
    /* Where stages take turns in the optimizer too, who is last is not told. */
    ASSERT(last_s < total_s + 1e-9 && last_s > 0.9 * total_s);
    if (!cores)
        ASSERT_NEAR(last_s, total_s, 1e-9);
    pipeline_free(pipeline);
    arena_free(arena);
}

static void check(struct pipeline *pipeline)
{
    check_on(pipeline, 0);
}

TEST(step_spans_sums,
     "the spans of a stage add up to the time model's parts and never overlap; the last ends the step")
{
    check(make(NULL, 1, 1, 1, 1));
    check(make(NULL, 2, 1, 1, 1));
    check(make(NULL, 1, 2, 1, 1));
    check(make("1f1b", 1, 1, 4, 1));
    check(make("gpipe", 2, 1, 2, 1));
    check(make("interleaved", 1, 2, 2, 2));
    check(make("zb-h1", 2, 1, 4, 1));
    check_on(make("1f1b", 1, 1, 4, 1), 2);
    check_on(make("gpipe", 2, 1, 2, 1), 1);
    check_on(make("zb-h1", 1, 1, 4, 1), 3);
}

TEST(step_spans_halves,
     "backward is in two halves where the schedule has them apart, and only there; the first stage begins "
     "at once, the last after the others' first forward")
{
    struct error err = {0};
    struct arena *arena = arena_create();
    struct machine_speed speed = slow_speed();
    for (int apart = 0; apart < 2; apart++) {
        struct pipeline *pipeline = make(apart ? "zb-h1" : "1f1b", 1, 1, 4, 1);
        struct step_lane lanes[4];
        double total_s, first_s = 0;
        int64_t halves = 0;
        ASSERT_OK(step_spans_find(pipeline, &speed, arena, lanes, &total_s, &err));
        for (int i = 0; i < 4; i++)
            for (int64_t k = 0; k < lanes[i].count; k++)
                halves += lanes[i].spans[k].work == STEP_WEIGHTS;
        ASSERT_INT(halves, apart ? 4 * 8 : 0);
        ASSERT(lanes[0].spans[0].start_s == 0);
        for (int i = 0; i < 3; i++)
            first_s += lanes[i].spans[0].end_s - lanes[i].spans[0].start_s;
        ASSERT(lanes[3].spans[0].start_s >= first_s);
        pipeline_free(pipeline);
    }
    arena_free(arena);
}
