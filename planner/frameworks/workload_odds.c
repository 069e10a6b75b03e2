/* The errors are a table, printed by the command that stands beside it. A probability is a place among them: with n jobs
 * measured, a new one is as likely to fall into any of the n + 1 gaps between their errors as into any other. Beyond the
 * largest error one gap is left, 1 / (n + 1), whose probability falls with the square of the distance from the median: large
 * errors have a cause that no rule is about, so they are not normal, and no prediction is certain. */
#include "planner/frameworks/workload_odds.h"

#include "base/checked.h"
#include "base/sort.h"

#include <math.h>
#include <stdlib.h>

enum { ERRORS_MOST = 64, LEAST_JOBS = 8 };

/* `make score CASES=../shared/cases`, lines that begin with "errors": full jobs of any quality, made on and held out, where
 * something was assumed too. Jobs of llm.c are left out, since no launch line of theirs is read. */
#define LIST(...)                                                                                            \
    {                                                                                                        \
        (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double)                \
    }
static const struct workload_errors table[WORKLOAD_CLASSES][WORKLOAD_FIGURES] = {
    [WORKLOAD_CLASS_MEGATRON] =
        {
            [WORKLOAD_ALLOCATED] = LIST(0.603, 0.857, 0.988, 0.991, 0.992, 0.993, 0.994, 0.998, 0.998, 0.998,
                                        0.998, 0.998, 0.999, 1.005, 1.006, 1.009, 1.026, 1.034, 1.062, 1.399),
            [WORKLOAD_DEVICE] = LIST(1.021),
        },
    [WORKLOAD_CLASS_TORCH] =
        {
            [WORKLOAD_ALLOCATED] = LIST(0.972, 0.987, 0.992, 1.002, 1.067, 1.111, 1.183),
            [WORKLOAD_RESERVED] = LIST(0.925, 0.965, 0.980, 0.981, 0.995, 0.999, 1.005, 1.005, 1.007, 1.008,
                                       1.009, 1.016, 1.026, 1.050, 1.062, 1.070, 1.129, 1.300, 2.043),
            [WORKLOAD_DEVICE] = LIST(0.686, 0.972, 0.975, 0.979, 0.982, 0.984, 0.993, 1.075, 2.133),
        },
};
#undef LIST

/* Which the interval leaves out on either side. */
static const double outside = 0.1;

const char *workload_figure_name(enum workload_figure figure)
{
    static const char *const names[] = {"torch.cuda.max_memory_allocated", "torch.cuda.max_memory_reserved",
                                        "nvidia-smi"};
    return names[figure];
}

int64_t workload_figure_bytes(const struct workload_memory *memory, enum workload_figure figure)
{
    return figure == WORKLOAD_ALLOCATED  ? memory->peak.bytes
           : figure == WORKLOAD_RESERVED ? memory->reserved_bytes
                                         : memory->device_bytes;
}

const char *workload_class_name(enum workload_class class)
{
    static const char *const names[] = {"megatron", "other PyTorch"};
    return names[class];
}

struct workload_errors workload_odds_errors(enum workload_class class, enum workload_figure figure)
{
    return table[class][figure];
}

/* --- A distribution from few errors --- */

/* Logarithms of measured / predicted, rising. */
struct spread {
    double errors[ERRORS_MOST];
    int count;
};

static void add_errors(struct spread *spread, struct workload_errors errors)
{
    for (int i = 0; i < errors.count && spread->count < ERRORS_MOST; i++)
        spread->errors[spread->count++] = log(errors.ratios[i]);
}

/* What the driver counts is what PyTorch reserves and a context beside it: who measured one, measured the other. */
static void add_class(struct spread *spread, enum workload_class class, enum workload_figure figure)
{
    if (figure == WORKLOAD_ALLOCATED) {
        add_errors(spread, table[class][WORKLOAD_ALLOCATED]);
        return;
    }
    add_errors(spread, table[class][WORKLOAD_RESERVED]);
    add_errors(spread, table[class][WORKLOAD_DEVICE]);
}

/* Llama 2 70B in 4 bits on each of two cards: 35.6 GB under FSDP, 36.6 under ZeRO-3, and 19.6 with what FSDP shards in host memory,
 * says PEFT's documentation (docs/source/accelerate/fsdp.md, deepspeed.md), over what `memplan check` says of nvidia-smi for these
 * launches: tests/jobs/test_split_quantized.c. Some 8 GB of each are not explained, whichever way the weights are split; so these
 * three alone stand for such jobs. */
static const double split_quantized[WORKLOAD_SPLIT_QUANTIZED] = {1.26, 1.27, 1.79};

bool workload_odds_unexplained(const struct workload *w)
{
    return w->lora_rank && w->frozen_bits < 16 && workload_gathers(w);
}

/* Of the workload's own class, or of all where that has too few. */
static struct spread spread_of(const struct workload *w, enum workload_figure figure)
{
    bool megatron = workload_is_megatron(w);
    struct spread spread = {.count = 0};
    if (workload_odds_unexplained(w)) {
        add_errors(&spread, (struct workload_errors){split_quantized, WORKLOAD_SPLIT_QUANTIZED});
        return spread;
    }
    add_class(&spread, megatron ? WORKLOAD_CLASS_MEGATRON : WORKLOAD_CLASS_TORCH, figure);
    if (spread.count < LEAST_JOBS)
        add_class(&spread, megatron ? WORKLOAD_CLASS_TORCH : WORKLOAD_CLASS_MEGATRON, figure);
    sort_reals(spread.errors, (size_t)spread.count);
    return spread;
}

static double median_of(const struct spread *s)
{
    return (s->errors[(s->count - 1) / 2] + s->errors[s->count / 2]) / 2;
}

/* Of an error that lies beyond `last`, the outermost on its side. */
static double tail(const struct spread *s, double last, double error)
{
    double reach = fabs(last - median_of(s)), distance = fabs(error - median_of(s));
    return distance > 0 ? reach * reach / (distance * distance) / (s->count + 1) : 1.0 / (s->count + 1);
}

/* The probability of an error up to `error`. */
static double share_below(const struct spread *s, double error)
{
    int last = s->count - 1, i = 0;
    if (error < s->errors[0])
        return tail(s, s->errors[0], error);
    if (error >= s->errors[last])
        return 1 - tail(s, s->errors[last], error);
    while (error >= s->errors[i + 1])
        i++;
    double gap = s->errors[i + 1] - s->errors[i];
    return (i + 1 + (error - s->errors[i]) / gap) / (s->count + 1);
}

/* The error with `share` of all below it. */
static double error_at(const struct spread *s, double share)
{
    double place = share * (s->count + 1) - 1, rest = share < 0.5 ? share : 1 - share;
    int last = s->count - 1;
    if (place < 0 || place > last) {
        double end = s->errors[place < 0 ? 0 : last], middle = median_of(s);
        return middle + (end - middle) / sqrt(rest * (s->count + 1));
    }
    int i = place < last ? (int)place : last - 1;
    return s->errors[i] + (place - i) * (s->errors[i + 1] - s->errors[i]);
}

/* --- What is asked of it --- */

struct workload_interval workload_odds_interval(const struct workload *w, enum workload_figure figure,
                                                int64_t predicted_bytes)
{
    struct spread spread = spread_of(w, figure);
    double bytes = (double)predicted_bytes;
    return (struct workload_interval){(int64_t)(bytes * exp(error_at(&spread, outside))),
                                      (int64_t)(bytes * exp(error_at(&spread, 1 - outside))), spread.count};
}

/* Steps of Megatron-LM and of the sweep's trainer, on A100s: `make score CASES=../shared/cases`, the line "errors" of steps; rows that
 * constants of time were fitted to are left out. */
const struct workload_step_errors workload_step_errors = {
    .low = 0.891, .median = 1.028, .high = 1.145, .steps = 706};
/* Of other frameworks few steps were published with enough of their configuration, all of them longer than predicted: the longest,
 * torchtitan's, by so much (docs/time-model.md, section 10). */
static const double longest_of_others = 1.49;

/* Errors that know nothing of each other, in logarithms. */
static double beyond(double first, double second, double third)
{
    return exp(sqrt(log(first) * log(first) + log(second) * log(second) + log(third) * log(third)));
}

struct workload_pace workload_odds_pace(const struct workload *w, double seconds, double card_doubt)
{
    const struct workload_step_errors *e = &workload_step_errors;
    bool own = w->library == WORKLOAD_MEGATRON || w->library == WORKLOAD_MEGATRON_LEGACY;
    double middle_s = seconds * e->median, card = 1 + card_doubt;
    return (struct workload_pace){middle_s / beyond(e->median / e->low, card, 1),
                                  middle_s * beyond(e->high / e->median, card, own ? 1 : longest_of_others),
                                  e->steps, own};
}

int64_t workload_odds_needed_bytes(const struct workload *w, const struct workload_memory *m)
{
    int64_t least = m->peak.bytes + m->context_bytes + m->nccl_bytes + m->doubt_bytes;
    bool fragments = m->out_of_memory && least < w->capacity_bytes;
    return fragments ? max_i64(least, m->device_bytes + m->doubt_bytes) : least;
}

double workload_odds_fits(const struct workload *w, const struct workload_memory *m, int *jobs)
{
    struct spread spread = spread_of(w, WORKLOAD_ALLOCATED);
    *jobs = spread.count;
    return share_below(&spread, log((double)w->capacity_bytes / (double)workload_odds_needed_bytes(w, m)));
}
