#include "reports/steps.h"

#include "reports/json_values.h"

#include <math.h>

/* Takes from another rank's row what is missing in this one, and the longer time. */
static void join(struct store_step *step, const struct store_step *other)
{
    if (isnan(step->loss))
        step->loss = other->loss;
    if (isnan(step->grad_norm))
        step->grad_norm = other->grad_norm;
    if (isnan(step->seconds) || other->seconds > step->seconds) {
        step->seconds = other->seconds;
        step->tokens_per_s = other->tokens_per_s;
    }
    if (step->tokens == 0)
        step->tokens = other->tokens;
}

int64_t steps_join(const struct store_step *rows, int64_t count, struct arena *arena,
                   struct store_step **steps)
{
    int64_t joined = 0;
    *steps = arena_array(arena, (size_t)count, sizeof **steps);
    for (int64_t i = 0; i < count; i++)
        if (joined && (*steps)[joined - 1].step == rows[i].step)
            join(&(*steps)[joined - 1], &rows[i]);
        else
            (*steps)[joined++] = rows[i];
    return joined;
}

json_t *steps_line(const struct store_step *step, int64_t held_bytes, int64_t peak_bytes)
{
    return json_pack("{s:I, s:o, s:o, s:o, s:o, s:I, s:I}", "step", (json_int_t)steps_number(step->step),
                     "loss", json_values_real(step->loss), "grad_norm", json_values_real(step->grad_norm),
                     "step_seconds", json_values_real(step->seconds), "tokens_per_second",
                     json_values_real(step->tokens_per_s), "held_bytes", (json_int_t)held_bytes,
                     "step_peak_bytes", (json_int_t)peak_bytes);
}

static json_t *list_of(const int64_t *values, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(values[i]));
    return list;
}

json_t *steps_closing_line(bool done, int64_t steps, const int64_t *peak_bytes, const int64_t *arena_bytes,
                           int64_t ranks)
{
    return json_pack("{s:b, s:I, s:o, s:o}", "done", done, "steps", (json_int_t)steps, "peak_bytes",
                     list_of(peak_bytes, ranks), "arena_bytes", list_of(arena_bytes, ranks));
}
