/* Probabilities and intervals from a table of errors. Expected values come from the rule: with n jobs measured, each of the
 * n + 1 gaps between their errors is as likely as any other. */
#include "planner/frameworks/workload_odds.h"

#include "tests/test.h"

#include <math.h>

static const int64_t gib = 1 << 30;

static struct workload megatron(int64_t capacity_bytes)
{
    struct workload w = workload_default(WORKLOAD_MEGATRON, WORKLOAD_REPLICATED);
    w.capacity_bytes = capacity_bytes;
    return w;
}

/* A hair more, so that rounding to bytes does not fall below an error. */
static double odds(double capacity_over_needed)
{
    struct workload_memory memory = {.peak.bytes = 100 * gib};
    struct workload w = megatron((int64_t)(capacity_over_needed * (1 + 1e-9) * 100 * (double)gib));
    int jobs;
    return workload_odds_fits(&w, &memory, &jobs);
}

TEST(odds_of_gaps, "a need that equals an error of the table has as many gaps below it as errors")
{
    struct workload_errors e = workload_odds_errors(WORKLOAD_CLASS_MEGATRON, WORKLOAD_ALLOCATED);
    ASSERT(e.count >= 8);
    for (int i = 0; i + 1 < e.count; i++)
        if (e.ratios[i + 1] > e.ratios[i])
            ASSERT_MSG(fabs(odds(e.ratios[i]) - (i + 1.0) / (e.count + 1)) < 1e-6, "error %d: %g", i,
                       odds(e.ratios[i]));
    /* Half way between two of them, in logarithms, half a gap more. */
    int i = e.count - 2;
    double between = sqrt(e.ratios[i] * e.ratios[i + 1]);
    ASSERT(fabs(odds(between) - (i + 1.5) / (e.count + 1)) < 1e-6);
}

TEST(odds_of_tail, "beyond the largest error the last gap shrinks with the square, and nothing is certain")
{
    struct workload_errors e = workload_odds_errors(WORKLOAD_CLASS_MEGATRON, WORKLOAD_ALLOCATED);
    double middle = sqrt(e.ratios[(e.count - 1) / 2] * e.ratios[e.count / 2]);
    double reach = e.ratios[e.count - 1] / middle;
    ASSERT(fabs(1 - odds(middle * reach * reach) - 0.25 / (e.count + 1)) < 1e-6);
    double before = 0;
    for (double x = 0.1; x < 20; x *= 1.1) {
        ASSERT(odds(x) >= before && odds(x) > 0 && odds(x) < 1);
        before = odds(x);
    }
    ASSERT(odds(10) > 0.99 && odds(0.1) < 0.01);
}

TEST(odds_of_interval, "an interval leaves a tenth of the errors of what was reserved on either side")
{
    struct workload w = workload_default(WORKLOAD_TITAN, WORKLOAD_FSDP2);
    struct workload_errors lists[] = {workload_odds_errors(WORKLOAD_CLASS_TORCH, WORKLOAD_RESERVED),
                                      workload_odds_errors(WORKLOAD_CLASS_TORCH, WORKLOAD_DEVICE)};
    struct workload_interval i = workload_odds_interval(&w, WORKLOAD_RESERVED, 100 * gib);
    int below = 0, above = 0, count = lists[0].count + lists[1].count;
    ASSERT_INT(i.jobs, count);
    for (int l = 0; l < 2; l++)
        for (int k = 0; k < lists[l].count; k++) {
            below += lists[l].ratios[k] * 100 * (double)gib <= (double)i.low_bytes * (1 + 1e-9);
            above += lists[l].ratios[k] * 100 * (double)gib >= (double)i.high_bytes * (1 - 1e-9);
        }
    /* A place k of n + 1 gaps, at a tenth: (n + 1) / 10 of the errors lie below or there, rounded down. */
    ASSERT_INT(below, (count + 1) / 10);
    ASSERT_INT(above, (count + 1) / 10);
}

/* Of what was reserved, with a context or without. */
static int count_of(enum workload_class class)
{
    return workload_odds_errors(class, WORKLOAD_RESERVED).count +
           workload_odds_errors(class, WORKLOAD_DEVICE).count;
}

TEST(odds_of_pooled, "where a class has too few measured jobs, all classes count")
{
    struct workload w = megatron(80 * gib);
    int own = count_of(WORKLOAD_CLASS_MEGATRON), others = count_of(WORKLOAD_CLASS_TORCH);
    ASSERT(own < 8);
    ASSERT_INT(workload_odds_interval(&w, WORKLOAD_DEVICE, gib).jobs, own + others);
}

TEST(odds_of_device, "what the driver counts lies no lower than what of it was reserved, at both ends")
{
    struct workload w = megatron(80 * gib);
    struct workload_interval reserved = workload_odds_interval(&w, WORKLOAD_RESERVED, 60 * gib);
    struct workload_interval device = workload_odds_interval(&w, WORKLOAD_DEVICE, 61 * gib);
    ASSERT(device.low_bytes > reserved.low_bytes);
    ASSERT(device.high_bytes > reserved.high_bytes);
}

TEST(odds_of_needed, "what is needed has the allocator's caches in it only where it ran out without them")
{
    struct workload w = megatron(80 * gib);
    struct workload_memory m = {.peak.bytes = 70 * gib,
                                .reserved_bytes = 77 * gib,
                                .device_bytes = 78 * gib,
                                .context_bytes = gib,
                                .doubt_bytes = 3 * gib};
    ASSERT_INT(workload_odds_needed_bytes(&w, &m), 74 * gib);
    m.out_of_memory = true;
    ASSERT_INT(workload_odds_needed_bytes(&w, &m), 81 * gib);
    m.peak.bytes = 90 * gib;
    ASSERT_INT(workload_odds_needed_bytes(&w, &m), 94 * gib);
}

/* 706 steps on A100s, most of Megatron-LM's: a tenth of their measured / predicted on either side of 0.891 and 1.145. */
TEST(odds_of_pace, "a step lies between the tenths of measured steps, wider where the card or the framework "
                   "was not measured")
{
    struct workload megatron = workload_default(WORKLOAD_MEGATRON, WORKLOAD_DISTRIBUTED_OPTIMIZER);
    struct workload titan = workload_default(WORKLOAD_TITAN, WORKLOAD_FSDP2);
    struct workload_pace known = workload_odds_pace(&megatron, 10, 0),
                         new_card = workload_odds_pace(&megatron, 10, 0.3),
                         other = workload_odds_pace(&titan, 10, 0);
    ASSERT_NEAR(known.low_s, 10 * workload_step_errors.low, 1e-9);
    ASSERT_NEAR(known.high_s, 10 * workload_step_errors.high, 1e-9);
    ASSERT_INT(known.steps, workload_step_errors.steps);
    ASSERT(known.own && !other.own);
    /* of errors that know nothing of each other the squares of logarithms add up */
    double middle = 10 * workload_step_errors.median, alone = log(known.high_s / middle);
    ASSERT_NEAR(log(new_card.high_s / middle), sqrt(alone * alone + log(1.3) * log(1.3)), 1e-9);
    ASSERT(new_card.low_s < known.low_s);
    ASSERT_NEAR(other.low_s, known.low_s, 1e-9); /* all that were published took longer than predicted */
    ASSERT(other.high_s > 1.49 * middle);
}
