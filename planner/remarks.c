#include "planner/remarks.h"

#include "base/checked.h"
#include "base/units.h"

#include <math.h>
#include <stdlib.h>

/* Each search for another batch has this part of what a search may spend; a gain below this is not worth saying. */
enum { BATCH_PARTS = 8 };
static const double worth = 1.05;
/* So much of a step is much waiting. */
static const double much_bubble = 1.0 / 3;
/* From here on sequences are what other systems split over ranks. */
enum { LONG_SEQUENCE = 32768 };

/* ------------------------------------------------------------------------------------------------------------ batches */

/* A plan of another batch. */
struct trial {
    int64_t batch;
    double step_s, bubble, gain; /* gain: how many times the tokens a second; 0: there is no such plan */
};

static void try_batch(const struct search_request *request, const struct search_row *plan, int64_t batch,
                      struct trial *out)
{
    struct search_request other = *request;
    other.global_batch = batch;
    other.effort_parts = BATCH_PARTS;
    other.alone = true;
    other.limit_s = plan->time.total * (double)batch / (double)plan->layout.global_batch / worth;
    *out = (struct trial){.batch = batch};
    /* Most are no better even if placing their tensors took no more than their peak: then nothing is built. */
    for (int built = 0; built <= 1; built++) {
        struct search_result result;
        struct error refused = {0};
        other.by_peak = !built;
        out->gain = 0;
        /* What was asked for besides may not be possible with it. */
        if (batch < 1 || search_run(&other, &result, &refused))
            return;
        if (result.alternative_count) {
            const struct step_time *time = &result.alternatives[0].time;
            out->step_s = time->total;
            out->bubble = time->bubble / time->total;
            out->gain = (double)batch / time->total / ((double)plan->layout.global_batch / plan->time.total);
        }
        search_clear(&result);
        if (!(out->gain >= worth))
            return;
    }
}

static void print_trial(const struct trial *trial, struct text *out)
{
    char time[UNITS_TEXT];
    text_printf(out, "--global-batch %lld takes %s, with %.3gx as many tokens a second",
                (long long)trial->batch, units_format_seconds(trial->step_s, time), trial->gain);
}

static int64_t idle_ranks(const struct search_request *request, const struct search_row *plan)
{
    return cluster_ranks(request->cluster) - layout_ranks(&plan->layout);
}

/* The multiples of all ranks, or of a node's, that lie around the batch: the nearer one that is worth it. */
static void remark_shares(const struct search_request *request, const struct search_row *plan, int64_t unit,
                          struct text *out)
{
    int64_t batch = plan->layout.global_batch, ranks = cluster_ranks(request->cluster),
            below = batch / unit * unit;
    bool above_first = below + unit - batch <= batch - below;
    struct trial trials[2];
    try_batch(request, plan, below, &trials[0]);
    try_batch(request, plan, below + unit, &trials[1]);
    for (int i = 0; i < 2 && !out->length; i++) {
        const struct trial *trial = &trials[above_first ? 1 - i : i];
        if (!(trial->gain >= worth))
            continue;
        text_printf(out, "%lld %s hard to share among %lld ranks: ", (long long)batch,
                    units_plural(batch, "sequence is", "sequences are"), (long long)ranks);
        print_trial(trial, out);
    }
}

/* A batch that ranks cannot have equal shares of; and ranks that have none, for that or for another reason. */
static void remark_batch(const struct search_request *request, const struct search_row *plan,
                         struct text *out)
{
    int64_t batch = plan->layout.global_batch, ranks = cluster_ranks(request->cluster),
            node = cluster_ranks_per_node(request->cluster), unit = batch >= ranks ? ranks : node,
            idle = idle_ranks(request, plan);
    if (batch % unit && (batch % node || idle))
        remark_shares(request, plan, unit, out);
    if (!out->length && idle)
        text_printf(
            out,
            "%lld of %lld ranks %s no part in it: no layout of all of them that memplan knows is faster "
            "with %lld %s",
            (long long)idle, (long long)ranks, units_plural(idle, "has", "have"), (long long)batch,
            units_plural(batch, "sequence", "sequences"));
}

/* Larger ones, until waiting is less or they end to help. */
static void remark_bubble(const struct search_request *request, const struct search_row *plan,
                          struct text *out)
{
    const struct layout *l = &plan->layout;
    enum { MOST_TIMES = 16 };
    struct trial best = {.gain = 1}, trial;
    if (plan->time.bubble <= much_bubble * plan->time.total)
        return;
    int64_t micro_batches = layout_micro_batches(l);
    text_printf(out, "%.0f%% of the step stages wait: %lld %s %lld %s for a pipeline of %lld stages",
                100 * plan->time.bubble / plan->time.total, (long long)l->global_batch,
                units_plural(l->global_batch, "sequence is", "sequences are"), (long long)micro_batches,
                units_plural(micro_batches, "micro-batch", "micro-batches"), (long long)l->pp);
    for (int times = 2; times <= MOST_TIMES; times *= 2) {
        try_batch(request, plan, times * l->global_batch, &trial);
        if (!(trial.gain >= worth * best.gain))
            break;
        best = trial;
        if (trial.bubble < much_bubble)
            break;
    }
    if (best.batch) {
        text_add(out, "; ");
        print_trial(&best, out);
    }
    if (l->seq_len >= LONG_SEQUENCE)
        text_add(out, "; context parallelism, which splits long sequences over ranks, is not searched "
                      "(`memplan check` judges "
                      "launches with it)");
}

/* ---------------------------------------------------------------------------------------------------------- precision */

static void remark_precision(const struct search_request *request, const struct search_row *plan,
                             struct text *out)
{
    char slow[UNITS_TEXT], fast[UNITS_TEXT];
    for (int i = 0; i < plan->siting.count; i++) {
        const struct card *card = request->cluster->groups[plan->siting.parts[i].group].device.card;
        bool units = card && card->bf16_flops_per_s > card->fp32_flops_per_s;
        if (!card || out->length)
            continue;
        units_format_rate(card->fp32_flops_per_s, "FLOP/s", slow);
        units_format_rate(card->bf16_flops_per_s, "FLOP/s", fast);
        if (request->precision == PRECISION_BF16 && !units)
            text_printf(out,
                        "%s has no units for bf16: products run at its fp32 rate, %s, at best; cards from "
                        "the A100 on have "
                        "them (fp16, for which it has units, memplan does not compute; `memplan check` "
                        "judges launches in it)",
                        card->name, slow);
        else if (request->precision == PRECISION_FP32 && units)
            text_printf(out, "fp32 runs at %s at most on %s, --precision bf16 at %s", slow, card->name, fast);
    }
}

/* ------------------------------------------------------------------------------------------------------------ network */

static void remark_network(const struct search_request *request, struct text *out)
{
    static const double little = 0.25;
    char given[UNITS_TEXT], usual[UNITS_TEXT];
    for (int g = 0; g < request->cluster->group_count && !out->length; g++) {
        const struct node_group *group = &request->cluster->groups[g];
        const struct card *card = group->device.card;
        double node = cluster_usual_net(&group->device, group->ranks_per_node);
        if (group->net_assumed || !card || !card->node || group->net_bytes_per_s > little * node ||
            cluster_nodes(request->cluster) < 2)
            continue;
        double ports = node / group->net_bytes_per_s;
        units_format_rate(8 * group->net_bytes_per_s, "b/s", given);
        units_format_rate(8 * node, "b/s", usual);
        text_printf(out, "the rate is of a whole node: %s for %lld %s, where a %s has %s for as many", given,
                    (long long)group->ranks_per_node, card->name, card->node, usual);
        if (fabs(ports - round(ports)) < 0.01 && (int64_t)round(ports) == group->ranks_per_node)
            text_printf(out, "; is that one port of %lld? Then write net=%.0fGb/s",
                        (long long)group->ranks_per_node, 8 * node / 1e9);
    }
}

void remarks_find(const struct search_request *request, const struct search_result *result,
                  struct remarks *out)
{
    const struct search_row *plan = &result->alternatives[0];
    *out = (struct remarks){0};
    remark_bubble(request, plan, &out->bubble);
    if (!out->bubble.length)
        remark_batch(request, plan, &out->batch);
    remark_precision(request, plan, &out->precision);
    remark_network(request, &out->network);
}

void remarks_clear(struct remarks *remarks)
{
    text_free(&remarks->batch);
    text_free(&remarks->bubble);
    text_free(&remarks->precision);
    text_free(&remarks->network);
}
