/* Steps as a table and as lines. */
#include "reports/steps.h"
#include "tests/reports/fixture.h"

static int64_t table_rows(int64_t count, int first, int64_t every)
{
    struct arena *arena = arena_create();
    struct report *report = report_create(arena, "Steps");
    struct store_step *steps = arena_array(arena, (size_t)count, sizeof *steps);
    for (int64_t i = 0; i < count; i++)
        steps[i] = (struct store_step){.step = first + (int)i, .loss = NAN, .grad_norm = NAN, .seconds = 1};
    steps_add(report, NULL, steps, count, every);
    int64_t rows = report->sections->table->row_count;
    arena_free(arena);
    return rows;
}

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

/* Of steps 3 .. 32, tens are 10, 20, 30; with the first and the last five rows. Of 0 .. 999 every 50th is 20 rows and 999
 * one more, so every 100th: 10 + 1. */
TEST(steps_every, "the first and the last step are always there, and no more than 20 without a wish")
{
    ASSERT_INT(table_rows(30, 3, 10), 5);
    ASSERT_INT(table_rows(1000, 0, 0), 11);
    ASSERT_INT(table_rows(19, 0, 0), 19);
    ASSERT_INT(table_rows(1, 7, 0), 1);
    ASSERT_INT(table_rows(0, 0, 0), 0);
}

TEST(steps_page, "the table of steps; what is not known stays blank")
{
    struct store_step steps[] = {
        {.step = 0, .loss = 10.98125, .grad_norm = 12.5, .seconds = 1.25, .tokens_per_s = 3276.8},
        {.step = 1, .loss = 9.5, .grad_norm = NAN, .seconds = 0.0125, .tokens_per_s = NAN}};
    struct arena *arena = arena_create();
    struct report *report = report_create(arena, "Steps");
    steps_add(report, NULL, steps, 2, 1);
    struct text text = ink_checked(report, INK_ASCII);
    ASSERT_STR(text.data, "Steps\n\n"
                          "  step     loss  grad norm     time  tokens/s\n"
                          "     0  10.9812    12.5000  1.25 s      3,277\n"
                          "     1   9.5000             12.5 ms\n");
    text_free(&text);
    arena_free(arena);
}

TEST(steps_lines,
     "a line for each step and a closing one, with the keys that scripts rely on; an unknown is null")
{
    struct store_step step = {.step = 3, .loss = 2.5, .grad_norm = NAN, .seconds = 0.5, .tokens_per_s = 128};
    json_t *line = steps_line(&step, 700, 900);
    char *printed = json_dumps(line, 0);
    ASSERT_STR(printed, "{\"step\": 3, \"loss\": 2.5, \"grad_norm\": null, \"step_seconds\": 0.5, "
                        "\"tokens_per_second\": 128.0, \"held_bytes\": 700, \"step_peak_bytes\": 900}");
    free(printed);
    json_decref(line);
    line = steps_closing_line(20, (int64_t[]){100, 101}, (int64_t[]){128, 0}, 2);
    printed = json_dumps(line, 0);
    ASSERT_STR(printed,
               "{\"done\": true, \"steps\": 20, \"peak_bytes\": [100, 101], \"arena_bytes\": [128, 0]}");
    free(printed);
    json_decref(line);
}
