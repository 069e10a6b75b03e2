/* Steps of several ranks, and as lines. */
#include "reports/steps.h"
#include "tests/reports/fixture.h"

TEST(steps_joined,
     "rows of several ranks become one: the loss of the rank that knows it, the time of the slowest")
{
    struct store_step rows[] = {
        {.rank = 0,
         .step = 4,
         .loss = 2.5,
         .grad_norm = 1,
         .seconds = 0.5,
         .tokens = 64,
         .tokens_per_s = 128},
        {.rank = 1,
         .step = 4,
         .loss = NAN,
         .grad_norm = NAN,
         .seconds = 1.0,
         .tokens = 64,
         .tokens_per_s = 64},
        {.rank = 1, .step = 5, .loss = NAN, .grad_norm = NAN, .seconds = NAN, .tokens_per_s = NAN},
        {.rank = 2,
         .step = 5,
         .loss = 2.25,
         .grad_norm = 3,
         .seconds = 0.25,
         .tokens = 64,
         .tokens_per_s = 256}};
    struct arena *arena = arena_create();
    struct store_step *steps;
    ASSERT_INT(steps_join(rows, 4, arena, &steps), 2);
    ASSERT_NEAR(steps[0].loss, 2.5, 1e-12);
    ASSERT_NEAR(steps[0].seconds, 1.0, 1e-12);
    ASSERT_NEAR(steps[0].tokens_per_s, 64, 1e-12);
    ASSERT_NEAR(steps[1].loss, 2.25, 1e-12);
    ASSERT_NEAR(steps[1].seconds, 0.25, 1e-12);
    ASSERT_INT(steps[1].tokens, 64);
    ASSERT_INT(steps_join(rows, 0, arena, &steps), 0);
    arena_free(arena);
}

TEST(steps_lines,
     "a line for each step and a closing one, with the keys that scripts rely on; an unknown is null")
{
    struct store_step step = {.step = 2, .loss = 2.5, .grad_norm = NAN, .seconds = 0.5, .tokens_per_s = 128};
    json_t *line = steps_line(&step, 700, 900);
    char *printed = json_dumps(line, 0);
    ASSERT_STR(printed, "{\"step\": 3, \"loss\": 2.5, \"grad_norm\": null, \"step_seconds\": 0.5, "
                        "\"tokens_per_second\": 128.0, \"held_bytes\": 700, \"step_peak_bytes\": 900}");
    free(printed);
    json_decref(line);
    line = steps_closing_line(true, 20, (int64_t[]){100, 101}, (int64_t[]){128, 0}, 2);
    printed = json_dumps(line, 0);
    ASSERT_STR(printed,
               "{\"done\": true, \"steps\": 20, \"peak_bytes\": [100, 101], \"arena_bytes\": [128, 0]}");
    free(printed);
    json_decref(line);
    line = steps_closing_line(false, 3, (int64_t[]){100}, (int64_t[]){128}, 1);
    printed = json_dumps(line, 0);
    ASSERT_STR(printed, "{\"done\": false, \"steps\": 3, \"peak_bytes\": [100], \"arena_bytes\": [128]}");
    free(printed);
    json_decref(line);
}
