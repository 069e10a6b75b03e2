/* Predictions for rows, and what they add up to. */
#include "bench/score/score.h"

#include <math.h>
#include <string.h>

/* Steps that differ by less are not told apart. */
static const double tie_share = 0.02;

/* A plan that is picked should fit with so much of its activations to spare. */
static const double spare_share = 0.02;

static struct machine_speed machine(struct error *err)
{
    struct cluster cluster;
    struct machine_speed speed = {0};
    if (!cluster_read("128x8:a100-80g,net=1600Gb/s", &cluster, err))
        machine_speed_for_cluster(&cluster, PRECISION_BF16, 1, &speed);
    return speed;
}

/* What the trainer adds on this stage. */
static double beyond(const struct verdict *v, const struct workload_memory *memory, int64_t stage)
{
    const struct workload *w = &v->job;
    bool gathers = w->logits_whole && w->tp > 1 && stage == w->pp - 1;
    double logits = gathers ? (double)(w->micro_batch * w->sequence * w->model.vocab) : 0;
    return v->trainer->gathered_bytes * logits +
           v->trainer->activation_share * (double)memory->peak.by_role[ROLE_ACTIVATION];
}

/* As workload_memory() does, with what the trainer adds in place of the fragments that it replays. */
static int predict_with_trainer(struct verdict *v, struct error *err)
{
    const int64_t stages[] = {0, 1, v->job.pp - 1};
    struct workload w = v->job;
    w.capacity_bytes = 0; /* one replay is enough: nothing is asked about caches that are given back */
    v->needed_bytes = v->doubt_bytes = 0;
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        struct workload_memory memory;
        if (stages[i] < 0 || stages[i] >= w.pp || (i && stages[i] <= stages[i - 1]))
            continue;
        if (workload_stage_memory(&w, stages[i], &memory, err))
            return -1;
        double needed = (double)(memory.peak.bytes + memory.context_bytes + memory.nccl_bytes) +
                        beyond(v, &memory, stages[i]);
        if (needed <= v->needed_bytes)
            continue;
        v->needed_bytes = needed;
        v->doubt_bytes = spare_share * (double)memory.peak.by_role[ROLE_ACTIVATION];
        v->memory = memory;
    }
    v->fits = v->needed_bytes <= (double)v->job.capacity_bytes;
    v->sure = v->needed_bytes + v->doubt_bytes <= (double)v->job.capacity_bytes;
    return 0;
}

static int predict_memory(struct verdict *v, struct error *err)
{
    if (v->trainer)
        return predict_with_trainer(v, err);
    if (workload_memory(&v->job, &v->memory, err))
        return -1;
    v->needed_bytes = (double)v->memory.device_bytes;
    v->doubt_bytes = (double)v->memory.doubt_bytes;
    v->fits = v->sure = !v->memory.out_of_memory;
    return 0;
}

static int predict_row(struct verdict *v, const struct machine_speed *speed, struct error *err)
{
    struct workload_time time;
    if (workload_time(&v->job, NULL, speed, &time, err) || predict_memory(v, err))
        return error_prefix(err, "%s", v->where);
    v->predicted_s = time.seconds;
    return 0;
}

int verdicts_predict(struct verdicts *verdicts, struct error *err)
{
    struct machine_speed speed = machine(err);
    int kept = 0;
    if (!speed.products.flops_per_s)
        return -1;
    for (int i = 0; i < verdicts->count; i++) {
        struct error refusal = {0};
        verdicts->rows[kept] = verdicts->rows[i];
        if (!predict_row(&verdicts->rows[kept], &speed, &refusal))
            kept++;
        else if (!verdicts->refused++)
            verdicts->reason = refusal;
    }
    verdicts->count = kept;
    return 0;
}

int verdicts_predict_times(struct verdicts *verdicts, const struct workload_habits *habits, struct error *err)
{
    struct machine_speed speed = machine(err);
    if (!speed.products.flops_per_s)
        return -1;
    for (int i = 0; i < verdicts->count; i++) {
        struct workload_time time;
        if (workload_time(&verdicts->rows[i].job, habits, &speed, &time, err))
            return -1;
        verdicts->rows[i].predicted_s = time.seconds;
    }
    return 0;
}

int verdicts_predict_memory(struct verdicts *verdicts, const struct trainer *trainer, struct error *err)
{
    for (int i = 0; i < verdicts->count; i++) {
        struct verdict *v = &verdicts->rows[i];
        v->trainer = trainer;
        if (predict_memory(v, err))
            return -1;
    }
    return 0;
}

double verdict_error(const struct verdict *v)
{
    return isnan(v->measured_s) ? (double)v->memory.peak.bytes / v->allocated_bytes - 1
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
            (!pick || v->needed_bytes < pick->needed_bytes))
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
    static const char *const recompute[] = {
        [WORKLOAD_KEEPS_ALL] = "none", [WORKLOAD_MODULES] = "selective", [WORKLOAD_FULL] = "full"};
    const struct workload *w = &v->job;
    json_t *row = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:b, s:b}", "where", v->where, "problem",
        v->problem, "model", v->model, "gpus", (json_int_t)(w->dp * w->tp * w->pp), "dp", (json_int_t)w->dp,
        "tp", (json_int_t)w->tp, "pp", (json_int_t)w->pp, "virtual_stages", (json_int_t)w->virtual_stages,
        "micro_batch", (json_int_t)w->micro_batch, "sequence_parallel", w->sequence_parallel, "recompute",
        recompute[w->recompute], "fitted", v->fitted, "out_of_memory", v->out_of_memory);
    json_object_set_new(row, "predicted_fits", json_boolean(v->fits));
    json_object_set_new(row, "predicted_sure", json_boolean(v->sure));
    json_object_set_new(row, "predicted_bytes", json_real(v->needed_bytes));
    json_object_set_new(row, "doubt_bytes", json_real(v->doubt_bytes));
    json_object_set_new(row, "predicted_allocated_bytes", json_integer(v->memory.peak.bytes));
    json_object_set_new(row, "measured_allocated_bytes", real_or_null(v->allocated_bytes));
    json_object_set_new(row, "predicted_seconds", json_real(v->predicted_s));
    json_object_set_new(row, "measured_seconds", real_or_null(v->measured_s));
    return row;
}

json_t *verdicts_to_json(const struct verdicts *verdicts)
{
    json_t *rows = json_array();
    for (int i = 0; i < verdicts->count; i++)
        json_array_append_new(rows, row_to_json(&verdicts->rows[i]));
    return rows;
}
