/* Schedules as factors of the peak: one function says how far a step is through the decay, one table entry per name. */
#include "trainer/learning_rate.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {"constant", "cosine", "linear", "wsd"};
enum { KIND_COUNT = sizeof names / sizeof names[0] };

/* How much of the way from minimum (0) to peak (1) is left when `progress` (0 to 1) of the decay has passed. */
static double height(enum learning_rate_kind kind, double progress)
{
    switch (kind) {
    case LEARNING_RATE_CONSTANT:
        break;
    case LEARNING_RATE_COSINE:
        return 0.5 * (1 + cos(M_PI * progress));
    case LEARNING_RATE_LINEAR:
        return 1 - progress;
    case LEARNING_RATE_WSD: /* Haegele et al. 2024, Scaling Laws and Compute-Optimal Training, section 4.1 */
        return 1 - sqrt(progress);
    }
    return 1;
}

double learning_rate_at(const struct learning_rate *rate, int64_t step, int64_t total)
{
    if (step < rate->warmup_steps)
        return rate->peak * (double)(step + 1) / (double)rate->warmup_steps;
    double start = (double)rate->warmup_steps, end = (double)total;
    if (rate->kind == LEARNING_RATE_WSD)
        start = fmax(start, end - end / 5);
    double progress = 1;
    if (step < total)
        progress = fmax(0, ((double)step - start) / (end - start));
    double left = height(rate->kind, progress);
    return rate->peak * (left + rate->min_fraction * (1 - left));
}

int learning_rate_parse(const char *name, enum learning_rate_kind *out, struct error *err)
{
    for (int kind = 0; kind < KIND_COUNT; kind++)
        if (!strcmp(name, names[kind])) {
            *out = (enum learning_rate_kind)kind;
            return 0;
        }
    return error_set(err, "there is no learning-rate schedule \"%s\"; use constant, cosine, linear or wsd",
                     name);
}
