/* Which constants of a framework suit measurements best: one at a time, up or down by a step that shrinks, as long as what is
 * wrong with the rows for fitting becomes less. */
#include "bench/score/fit.h"

#include <math.h>
#include <stddef.h>

struct knob {
    const char *name;
    size_t offset; /* of a double of struct megatron_habits */
};

#define KNOB(field)                                                                                          \
    {                                                                                                        \
#field, offsetof(struct megatron_habits, field)                                                      \
    }
static const struct knob time_knobs[] = {
    KNOB(host_s), KNOB(unhidden), KNOB(message_wait_s), KNOB(straggle_s), {0}};
static const struct knob memory_knobs[] = {KNOB(logit_bytes), KNOB(gather_bytes), KNOB(allocator_share), {0}};

static const double first_step = 1.5, last_step = 1.02;

typedef double measure(const struct verdicts *verdicts);

static double mean_error(const struct verdicts *verdicts)
{
    return verdicts_errors(verdicts, NULL, SHARE_FITTED).mean;
}

static double wrong_outcomes(const struct verdicts *verdicts)
{
    struct outcomes o = verdicts_outcomes(verdicts, SHARE_FITTED);
    return o.missed + o.false_alarms;
}

/* Infinite where predicting fails. */
static double judge(struct verdicts *verdicts, const struct megatron_habits *habits, measure *wrong)
{
    struct error err = {0};
    return verdicts_predict(verdicts, habits, &err) ? INFINITY : wrong(verdicts);
}

/* Keeps a change of one constant if less is wrong with it. */
static bool try_change(struct verdicts *verdicts, struct megatron_habits *habits, const struct knob *knob,
                       double factor, measure *wrong, double *least)
{
    struct megatron_habits changed = *habits;
    *(double *)((char *)&changed + knob->offset) *= factor;
    double now = judge(verdicts, &changed, wrong);
    if (!(now < *least))
        return false;
    *least = now;
    *habits = changed;
    return true;
}

static double descend(struct verdicts *verdicts, struct megatron_habits *habits, const struct knob *knobs,
                      measure *wrong)
{
    double least = judge(verdicts, habits, wrong);
    for (double step = first_step; step > last_step;) {
        bool moved = false;
        for (const struct knob *knob = knobs; knob->name; knob++)
            moved |= try_change(verdicts, habits, knob, step, wrong, &least) ||
                     try_change(verdicts, habits, knob, 1 / step, wrong, &least);
        if (!moved)
            step = sqrt(step);
    }
    return least;
}

static void print(const struct knob *knobs, const struct megatron_habits *habits, struct text *out)
{
    for (; knobs->name; knobs++)
        text_printf(out, "    %-16s %12.4g   (in use: %.4g)\n", knobs->name,
                    *(const double *)((const char *)habits + knobs->offset),
                    *(const double *)((const char *)&megatron_habits + knobs->offset));
}

void fit_times(struct verdicts *steps, struct text *out)
{
    struct megatron_habits habits = megatron_habits;
    double error = descend(steps, &habits, time_knobs, mean_error);
    text_printf(out, "step times, rows for fitting: mean error %.1f%% with\n", 100 * error);
    print(time_knobs, &habits, out);
}

void fit_memory(struct verdicts *sweep, struct text *out)
{
    struct megatron_habits habits = megatron_habits;
    double wrong = descend(sweep, &habits, memory_knobs, wrong_outcomes);
    text_printf(out, "layout sweep, rows for fitting: %.0f outcomes wrong with\n", wrong);
    print(memory_knobs, &habits, out);
}
