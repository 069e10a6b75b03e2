#include "bench/score/odds.h"

#include "base/sort.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MOST = 256 };

/* Of the table's ratios, which have three digits. */
static const double same = 0.002;

/* --- Probabilities --- */

void odds_add(struct odds *odds, const struct workload *workload, const struct workload_memory *memory,
              bool out_of_memory)
{
    int jobs;
    double p = workload_odds_fits(workload, memory, &jobs), outcome = out_of_memory ? 0 : 1;
    int bin = p < 1 ? (int)(p * ODDS_BINS) : ODDS_BINS - 1;
    odds->bins[bin].count++;
    odds->bins[bin].fitted += !out_of_memory;
    odds->bins[bin].probability += p;
    odds->squares += (p - outcome) * (p - outcome);
}

void odds_say(const struct odds *odds, const char *what, struct text *table, json_t *totals)
{
    int count = 0;
    for (int i = 0; i < ODDS_BINS; i++)
        count += odds->bins[i].count;
    if (!count)
        return;
    text_printf(table, "%-26s %s (%d outcomes): mean square of probability minus outcome %.3f\n", "odds",
                what, count, odds->squares / count);
    json_object_set_new(totals, what, json_real(odds->squares / count));
    for (int i = 0; i < ODDS_BINS; i++)
        if (odds->bins[i].count)
            text_printf(table, "%-26s     given %3.0f%% on average: %3.0f%% of %d fitted\n", "odds",
                        100 * odds->bins[i].probability / odds->bins[i].count,
                        100.0 * odds->bins[i].fitted / odds->bins[i].count, odds->bins[i].count);
}

/* --- Errors --- */

static bool belongs(const json_t *row, enum workload_class class, const char *what)
{
    const char *framework = json_string_value(json_object_get(row, "framework"));
    const char *scope = json_string_value(json_object_get(row, "scope"));
    bool megatron = !strncmp(framework, "megatron", 8);
    return !strncmp(scope, "full job", 8) && !strcmp(json_string_value(json_object_get(row, "what")), what) &&
           strcmp(framework, "llm.c") && megatron == (class == WORKLOAD_CLASS_MEGATRON);
}

static int collect(const json_t *rows, enum workload_class class, const char *what, double *ratios)
{
    size_t i;
    const json_t *row;
    int count = 0;
    json_array_foreach((json_t *)rows, i, row)
    {
        double measured = json_number_value(json_object_get(row, "measured_bytes"));
        double predicted = json_number_value(json_object_get(row, "predicted_bytes"));
        if (belongs(row, class, what) && measured > 0 && predicted > 0 && count < ROWS_MOST)
            ratios[count++] = measured / predicted;
    }
    sort_reals(ratios, (size_t)count);
    return count;
}

static bool is_todays(struct workload_errors known, const double *ratios, int count)
{
    if (known.count != count)
        return false;
    for (int i = 0; i < count; i++)
        if (fabs(known.ratios[i] - ratios[i]) > same)
            return false;
    return true;
}

void odds_say_errors(const json_t *rows, struct text *table)
{
    static const char *const whats[] = {"peak_allocated", "peak_reserved", "nvidia_smi"};
    for (int class = 0; class < WORKLOAD_CLASSES; class ++)
        for (int figure = 0; figure < WORKLOAD_FIGURES; figure++) {
            double ratios[ROWS_MOST];
            int count = collect(rows, (enum workload_class) class, whats[figure], ratios);
            bool todays =
                is_todays(workload_odds_errors((enum workload_class) class, (enum workload_figure)figure),
                          ratios, count);
            if (!count)
                continue;
            text_printf(table, "%-26s %s, %s (%d rows), measured / predicted, %s:\n%-26s    ", "errors",
                        workload_class_name((enum workload_class) class), whats[figure], count,
                        todays ? "as workload_odds.c has them" : "NOT as workload_odds.c has them", "errors");
            for (int i = 0; i < count; i++)
                text_printf(table, " %.3f%s", ratios[i], i + 1 < count ? "," : "\n");
        }
}

void odds_add_steps(struct step_errors *errors, const struct verdicts *verdicts, bool all)
{
    for (int i = 0; i < verdicts->count && errors->count < STEP_ERRORS_MOST; i++) {
        const struct verdict *row = &verdicts->rows[i];
        double ratio = row->measured_s / row->predicted_s;
        if (ratio > 0 && (all || !row->fitted))
            errors->ratios[errors->count++] = ratio;
    }
}

static double place(const struct step_errors *errors, double share)
{
    return errors->ratios[(int)(share * (errors->count - 1) + 0.5)];
}

void odds_say_steps(struct step_errors *errors, struct text *table)
{
    const struct workload_step_errors *known = &workload_step_errors;
    if (!errors->count)
        return;
    sort_reals(errors->ratios, (size_t)errors->count);
    double low = place(errors, 0.1), median = place(errors, 0.5), high = place(errors, 0.9);
    bool todays = errors->count == known->steps && fabs(low - known->low) < same &&
                  fabs(median - known->median) < same && fabs(high - known->high) < same;
    text_printf(table,
                "%-26s steps (%d rows), measured / predicted, %s: a tenth below %.3f, half below %.3f, nine "
                "tenths below %.3f\n",
                "errors", errors->count,
                todays ? "as workload_odds.c has them" : "NOT as workload_odds.c has them", low, median,
                high);
}
