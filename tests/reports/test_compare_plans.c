/* Two plans side by side, in words, in JSON and as pictures. */
#include "tests/reports/fixture.h"

#include "reports/compare_plans.h"

#include <math.h>
#include <string.h>

/* 4 layers: on one stage, and on two of 3 and 1. */
static struct pipeline *make(int stages)
{
    static const int64_t uneven[] = {3, 1};
    return fixture_make((struct fixture){
        .preset = "gpt2-tiny",
        .recompute = stages == 2 ? "0-2=norm1" : "none",
        .layers = 4,
        .chunk_layers = stages == 2 ? uneven : NULL,
        .layout = {.dp = 2, .pp = stages, .micro_batch = 2, .global_batch = 16},
    });
}

static struct compare_plan side(const char *name, struct pipeline *pipeline, double seconds)
{
    struct compare_plan out = {.name = name,
                               .device = "h100-80g",
                               .pipeline = pipeline,
                               .room = {8 << 20, 1 << 20},
                               .stage = pipeline_worst(pipeline),
                               .step_seconds = seconds};
    out.seconds[COMPARE_FORWARD] = seconds / 4;
    out.seconds[COMPARE_BACKWARD] = seconds * 3 / 4;
    return out;
}

TEST(compare_plans_golden, "two plans: where layouts differ, who holds the bytes, what a step is made of")
{
    struct arena *arena = arena_create();
    struct pipeline *one = make(1), *two = make(2);
    struct compare_plan plans[2] = {side("one.json", one, 2), side("two.json", two, 3)};
    struct report *report = compare_plans_report(plans, arena);
    check_golden(report, INK_ASCII, "compare_plans.txt");
    json_t *json = compare_plans_to_json(plans);
    const struct program *worst = two->stages[pipeline_worst(two)];
    json_t *needed = json_object_get(json, "needed_bytes"), *roles = json_object_get(json, "by_role");
    ASSERT_INT(json_integer_value(json_array_get(needed, 0)), one->stages[0]->arena_bytes + (1 << 20));
    ASSERT_INT(json_integer_value(json_array_get(needed, 1)), worst->arena_bytes + (1 << 20));
    ASSERT_INT(json_integer_value(json_array_get(json_object_get(roles, "activation"), 1)),
               worst->at_peak[ROLE_ACTIVATION]);
    ASSERT_INT(json_integer_value(json_array_get(json_object_get(roles, "runtime"), 0)), 1 << 20);
    json_decref(json);
    pipeline_free(one);
    pipeline_free(two);
    arena_free(arena);
}

TEST(compare_plans_same, "of equal plans nothing differs; other sets of the same layers do")
{
    struct arena *arena = arena_create();
    struct pipeline *one = make(1), *again = make(1);
    struct compare_plan plans[2] = {side("a.json", one, 2), side("b.json", again, 2)};
    struct text text = {0};
    ink_text_report(compare_plans_report(plans, arena), INK_ASCII, &text);
    ASSERT_HAS(text.data, "Nowhere: model, layout and recomputation are the same");
    again->stages[0]->recompute[2] = 1;
    text_free(&text);
    ink_text_report(compare_plans_report(plans, arena), INK_ASCII, &text);
    ASSERT(!strstr(text.data, "Nowhere"));
    text_free(&text);
    pipeline_free(one);
    pipeline_free(again);
    arena_free(arena);
}

TEST(compare_plans_rates,
     "steps of plans that were made with other rates stand beside those with the rates that are here")
{
    struct arena *arena = arena_create();
    struct pipeline *one = make(1);
    struct compare_plan plans[2] = {side("a.json", one, 2), side("b.json", one, 3)};
    struct text text = {0};
    plans[0].planned_seconds = 2.001;
    ink_text_report(compare_plans_report(plans, arena), INK_ASCII, &text);
    ASSERT(!strstr(text.data, "planned step"));
    text_free(&text);
    plans[1].planned_seconds = 2.5;
    ink_text_report(compare_plans_report(plans, arena), INK_ASCII, &text);
    ASSERT_HAS(text.data, "planned step  2.00 s   2.50 s");
    json_t *json = compare_plans_to_json(plans), *steps = json_object_get(json, "planned_step_seconds");
    ASSERT(json_real_value(json_array_get(steps, 1)) == 2.5);
    json_decref(json);
    text_free(&text);
    pipeline_free(one);
    arena_free(arena);
}

TEST(compare_plans_unknown, "where nobody knows a device nothing is said of times")
{
    struct arena *arena = arena_create();
    struct pipeline *one = make(1);
    struct compare_plan plans[2] = {side("a.json", one, 2), side("b.json", one, NAN)};
    struct text text = {0};
    ink_text_report(compare_plans_report(plans, arena), INK_ASCII, &text);
    ASSERT(!strstr(text.data, "What a step is made of") && !strstr(text.data, "a step"));
    json_t *json = compare_plans_to_json(plans), *steps = json_object_get(json, "step_seconds");
    ASSERT(json_is_null(json_array_get(steps, 1)) && json_real_value(json_array_get(steps, 0)) == 2);
    json_decref(json);
    text_free(&text);
    pipeline_free(one);
    arena_free(arena);
}
