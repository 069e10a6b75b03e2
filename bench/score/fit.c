/* Which constants suit measurements best: of times one at a time, up or down by a step that shrinks, as long as what is wrong with
 * the rows for fitting becomes less; of memory those of a grid, since outcomes are few and say the same for many. */
#include "bench/score/fit.h"

#include <math.h>
#include <stddef.h>

struct knob {
    const char *name;
    size_t offset; /* of a double of struct workload_habits */
};

#define KNOB(field)                                                                                          \
    {                                                                                                        \
#field, offsetof(struct workload_habits, field)                                                      \
    }
static const struct knob time_knobs[] = {
    KNOB(host_s), KNOB(unhidden), KNOB(message_wait_s), KNOB(straggle_s), {0}};

static const double first_step = 1.5, last_step = 1.02;

static double mean_error(const struct verdicts *verdicts)
{
    return verdicts_errors(verdicts, NULL, SHARE_FITTED).mean;
}

/* Infinite where predicting fails. */
static double judge(struct verdicts *verdicts, const struct workload_habits *habits)
{
    struct error err = {0};
    return verdicts_predict_times(verdicts, habits, &err) ? INFINITY : mean_error(verdicts);
}

/* Keeps a change of one constant if less is wrong with it. */
static bool try_change(struct verdicts *verdicts, struct workload_habits *habits, const struct knob *knob,
                       double factor, double *least)
{
    struct workload_habits changed = *habits;
    *(double *)((char *)&changed + knob->offset) *= factor;
    double now = judge(verdicts, &changed);
    if (!(now < *least))
        return false;
    *least = now;
    *habits = changed;
    return true;
}

static double descend(struct verdicts *verdicts, struct workload_habits *habits, const struct knob *knobs)
{
    double least = judge(verdicts, habits);
    for (double step = first_step; step > last_step;) {
        bool moved = false;
        for (const struct knob *knob = knobs; knob->name; knob++)
            moved |= try_change(verdicts, habits, knob, step, &least) ||
                     try_change(verdicts, habits, knob, 1 / step, &least);
        if (!moved)
            step = sqrt(step);
    }
    return least;
}

static void print(const struct knob *knobs, const struct workload_habits *habits, struct text *out)
{
    for (; knobs->name; knobs++)
        text_printf(out, "    %-16s %12.4g   (in use: %.4g)\n", knobs->name,
                    *(const double *)((const char *)habits + knobs->offset),
                    *(const double *)((const char *)&workload_habits + knobs->offset));
}

void fit_times(struct verdicts *steps, struct text *out)
{
    struct workload_habits habits = workload_habits;
    double error = descend(steps, &habits, time_knobs);
    text_printf(out, "step times, rows for fitting: mean error %.1f%% with\n", 100 * error);
    print(time_knobs, &habits, out);
}

static int wrong_outcomes(struct verdicts *sweep, const struct trainer *trainer)
{
    struct error err = {0};
    if (verdicts_predict_memory(sweep, trainer, &err))
        return -1;
    struct outcomes o = verdicts_outcomes(sweep, SHARE_FITTED);
    return o.missed + o.false_alarms;
}

void fit_memory(struct verdicts *sweep, struct text *out)
{
    text_printf(
        out,
        "layout sweep, rows for fitting: outcomes wrong (in use: %g B a gathered logit, %g of activations)\n",
        sweep_trainer.gathered_bytes, sweep_trainer.activation_share);
    for (int bytes = 4; bytes <= 10; bytes += 2)
        for (int share = 6; share <= 12; share += 2) {
            struct trainer trainer = {.gathered_bytes = bytes, .activation_share = share / 100.0};
            text_printf(out, "    %2d B  %4.2f  %d\n", bytes, trainer.activation_share,
                        wrong_outcomes(sweep, &trainer));
        }
}
