/* Predictions for rows, and what they add up to. */
#include "bench/score/score.h"

#include <math.h>
#include <string.h>

/* Steps that differ by less are not told apart. */
static const double tie_share = 0.02;

int verdicts_predict(struct verdicts *verdicts, const struct megatron_habits *habits, struct error *err)
{
    struct cluster cluster;
    struct machine_speed speed;
    if (cluster_read("128x8:a100-80g,net=1600Gb/s", &cluster, err))
        return -1;
    machine_speed_for_cluster(&cluster, PRECISION_BF16, 1, &speed);
    for (int i = 0; i < verdicts->count; i++) {
        struct verdict *v = &verdicts->rows[i];
        if (megatron_step_seconds(&v->job, habits, &speed, &v->predicted_s, err))
            return -1;
        v->memory = megatron_memory(&v->job, habits, &cluster.device, NULL);
        v->fits = v->memory.total <= (double)cluster.device.capacity_bytes;
        v->sure = v->memory.total + v->memory.doubt <= (double)cluster.device.capacity_bytes;
    }
    return 0;
}

double verdict_error(const struct verdict *v)
{
    return isnan(v->measured_s) ? v->memory.allocated / v->allocated_bytes - 1
                                : v->predicted_s / v->measured_s - 1;
}

static bool belongs(const struct verdict *v, const char *problem, enum share share)
{
    return (!problem || !strcmp(v->problem, problem)) &&
           (share == SHARE_ALL || v->fitted == (share == SHARE_FITTED));
}

struct errors verdicts_errors(const struct verdicts *verdicts, const char *problem, enum share share)
{
    struct errors errors = {0};
    for (int i = 0; i < verdicts->count; i++) {
        const struct verdict *v = &verdicts->rows[i];
        double error = verdict_error(v);
        if (isnan(error) || !belongs(v, problem, share))
            continue;
        errors.count++;
        errors.mean += fabs(error);
        errors.bias += error;
        errors.most = fmax(errors.most, fabs(error));
    }
    errors.mean /= fmax(errors.count, 1);
    errors.bias /= fmax(errors.count, 1);
    return errors;
}

struct outcomes verdicts_outcomes(const struct verdicts *verdicts, enum share share)
{
    struct outcomes outcomes = {0};
    for (int i = 0; i < verdicts->count; i++) {
        const struct verdict *v = &verdicts->rows[i];
        if (!belongs(v, NULL, share))
            continue;
        outcomes.count++;
        outcomes.missed += v->out_of_memory && v->fits;
        outcomes.false_alarms += !v->out_of_memory && !v->fits;
    }
    return outcomes;
}

bool verdicts_first(const struct verdicts *verdicts, int row)
{
    for (int i = 0; i < row; i++)
        if (!strcmp(verdicts->rows[i].problem, verdicts->rows[row].problem))
            return false;
    return true;
}

const struct verdict *verdicts_fastest(const struct verdicts *verdicts, const char *problem)
{
    const struct verdict *best = NULL;
    for (int i = 0; i < verdicts->count; i++) {
        const struct verdict *v = &verdicts->rows[i];
        if (belongs(v, problem, SHARE_ALL) && !isnan(v->measured_s) &&
            (!best || v->measured_s < best->measured_s))
            best = v;
    }
    return best;
}

static double least_seconds(const struct verdicts *verdicts, const char *problem)
{
    double least_s = INFINITY;
    for (int i = 0; i < verdicts->count; i++)
        if (verdicts->rows[i].sure && belongs(&verdicts->rows[i], problem, SHARE_ALL))
            least_s = fmin(least_s, verdicts->rows[i].predicted_s);
    return least_s;
}

const struct verdict *verdicts_pick(const struct verdicts *verdicts, const char *problem)
{
    const struct verdict *pick = NULL;
    double limit_s = least_seconds(verdicts, problem) * (1 + tie_share);
    for (int i = 0; i < verdicts->count; i++) {
        const struct verdict *v = &verdicts->rows[i];
        if (v->sure && belongs(v, problem, SHARE_ALL) && v->predicted_s <= limit_s &&
            (!pick || v->memory.total < pick->memory.total))
            pick = v;
    }
    return pick;
}

struct choices verdicts_choices(const struct verdicts *verdicts)
{
    struct choices choices = {0};
    for (int i = 0; i < verdicts->count; i++) {
        const char *problem = verdicts->rows[i].problem;
        const struct verdict *best = verdicts_fastest(verdicts, problem),
                             *pick = verdicts_pick(verdicts, problem);
        if (!verdicts_first(verdicts, i) || !best || !pick)
            continue;
        choices.problems++;
        if (isnan(pick->measured_s)) {
            choices.out_of_memory++;
            continue;
        }
        double regret = pick->measured_s / best->measured_s - 1;
        choices.best += pick == best;
        choices.mean_regret += regret;
        choices.most_regret = fmax(choices.most_regret, regret);
    }
    choices.mean_regret /= fmax(choices.problems - choices.out_of_memory, 1);
    return choices;
}

static json_t *real_or_null(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *row_to_json(const struct verdict *v)
{
    const struct layout *l = &v->job.layout;
    static const char *const recompute[] = {"none", "selective", "full"};
    json_t *row = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:b, s:b, s:b, s:f, s:f}", "problem", v->problem,
        "model", v->job.model.name, "gpus", (json_int_t)layout_ranks(l), "dp", (json_int_t)l->dp, "tp",
        (json_int_t)l->tp, "pp", (json_int_t)l->pp, "virtual_stages", (json_int_t)l->virtual_stages,
        "micro_batch", (json_int_t)l->micro_batch, "sequence_parallel", l->sequence_parallel, "recompute",
        recompute[v->job.recompute], "fitted", v->fitted, "out_of_memory", v->out_of_memory, "predicted_fits",
        v->fits, "predicted_bytes", v->memory.total, "predicted_seconds", v->predicted_s);
    json_object_set_new(row, "doubt_bytes", json_real(v->memory.doubt));
    json_object_set_new(row, "measured_seconds", real_or_null(v->measured_s));
    json_object_set_new(row, "measured_allocated_bytes", real_or_null(v->allocated_bytes));
    json_object_set_new(row, "predicted_allocated_bytes", json_real(v->memory.allocated));
    return row;
}

json_t *verdicts_to_json(const struct verdicts *verdicts)
{
    json_t *rows = json_array();
    for (int i = 0; i < verdicts->count; i++)
        json_array_append_new(rows, row_to_json(&verdicts->rows[i]));
    return rows;
}
