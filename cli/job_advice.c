#include "cli/job_advice.h"

#include "cli/job_trial.h"
#include "jobs/job_workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRIED_MOST = JOB_CHANGES_MOST + 12,
    EDITS_MOST = JOB_ADVICE_PARTS * JOB_CHANGE_EDITS,
    NEAREST = 3,
    /* Layers that are replayed for a micro-batch, all tries together: 30 ms at 16 us each, so that an answer takes less than
     * 50 (docs/commands/check.md). */
    WORK_MOST = 1900,
};

/* A change that saves less than this share is not worth a line. */
static const double least_saved = 0.005;
/* Of changes that come in degrees, the last that is tried. */
static const double likely = 0.8;
/* A change that makes a step so much longer is held against several others together. */
static const double slow = 1.4;

struct adviser {
    const struct job_advice_request *request;
    struct arena *arena;
    struct job_advice *out;
    double sequence_s; /* as it is; NAN */
    struct job_advised *tried;
    int count;
    struct job_trials trials;
};

/* ---- a try ---- */

/* What must be as probable as this. */
static double enough_for(enum job_advice_aim aim)
{
    return aim == JOB_ADVICE_TO_FIT ? 0.5 : job_trial_sure;
}

static bool is_enough(const struct adviser *a, const struct job_advised *advised)
{
    return advised->after.probability >= enough_for(a->out->aim);
}

/* All stages, or with `one_first` the others only where the stage that needs most now is well. */
static int judge(struct adviser *a, const struct training_job *job, bool one_first, struct job_advised *made,
                 struct error *err)
{
    return job_trial_judge(&a->trials, job, one_first ? a->request->verdict->memory.stage : -1,
                           enough_for(a->out->aim), &made->after, &made->partly, err);
}

static void join_parts(struct adviser *a, struct job_advised *advised)
{
    struct job_edit *edits = arena_array(a->arena, EDITS_MOST, sizeof *edits);
    int count = 0;
    for (int i = 0; i < advised->part_count; i++) {
        advised->alters |= advised->parts[i]->alters;
        for (int k = 0; k < advised->parts[i]->count; k++)
            edits[count++] = advised->parts[i]->edits[k];
    }
    advised->edits = (struct job_edits){edits, count};
}

/* Reads the launch with the edits, and prices it. */
static int read_parts(struct adviser *a, struct job_advised *made, struct training_job *job)
{
    struct workload workload;
    struct error err = {0};
    join_parts(a, made);
    if (job_trial_read(&a->trials, made->edits, a->arena, job) || job_workload(job, &workload, &err))
        return -1;
    made->time_ratio = job_trial_seconds(&a->trials, &workload, &err) / a->sequence_s;
    if (isnan(made->time_ratio))
        made->untimed = arena_strdup(a->arena, isnan(a->sequence_s) ? a->out->untimed : err.text);
    return 0;
}

/* Whether it may be faster: what takes no less is no use of room. */
static bool may_gain(const struct job_advised *advised)
{
    return !(advised->time_ratio >= 1 - job_trial_gain);
}

/* Reads the launch with the edits, and judges it. NULL: it can no longer be read, or judged; or there was enough work. */
static const struct job_advised *try_parts(struct adviser *a, const struct job_advised *wanted)
{
    struct training_job job;
    struct error err = {0};
    int64_t next = job_trial_work(&a->request->verdict->workload, a->request->verdict->workload.pp);
    if (a->count == TRIED_MOST || a->trials.work + next > WORK_MOST)
        return NULL;
    struct job_advised *made = &a->tried[a->count];
    *made = *wanted;
    if (read_parts(a, made, &job) || judge(a, &job, true, made, &err))
        return NULL;
    a->count++;
    return made;
}

/* What it saves of what is needed now, as a share. */
static double saved(const struct adviser *a, const struct job_advised *advised)
{
    return 1 - (double)advised->after.needed_bytes / (double)a->request->verdict->needed_bytes;
}

static bool comes_in_degrees(enum job_change_kind kind)
{
    return kind == JOB_CHANGE_MICRO_BATCH || kind == JOB_CHANGE_RECOMPUTE || kind == JOB_CHANGE_SHARDING ||
           kind == JOB_CHANGE_OFFLOAD;
}

/* Of a kind that comes in degrees, as smaller and smaller micro-batches, the first that is enough is the cheapest. */
static void try_to_fit(struct adviser *a, const struct job_changes *changes)
{
    bool enough[JOB_CHANGE_PRECISION + 1] = {false};
    for (int i = 0; i < changes->count; i++) {
        const struct job_change *change = &changes->list[i];
        if (change->small || (comes_in_degrees(change->kind) && enough[change->kind]))
            continue;
        const struct job_advised *made =
            try_parts(a, &(struct job_advised){.parts = {change}, .part_count = 1});
        if (made && made->after.probability >= likely)
            enough[change->kind] = true;
    }
}

static int by_ratio(const void *x, const void *y)
{
    const struct job_advised *a = x, *b = y;
    double s = isnan(a->time_ratio) ? INFINITY : a->time_ratio;
    double t = isnan(b->time_ratio) ? INFINITY : b->time_ratio;
    return s != t ? (s < t ? -1 : 1) : (a->parts[0] > b->parts[0]) - (a->parts[0] < b->parts[0]);
}

/* Prices are cheap and verdicts are not: what would save most time is judged first, and what saves none is not. */
static void try_to_buy(struct adviser *a, const struct job_changes *changes)
{
    struct job_advised *priced = arena_array(a->arena, JOB_CHANGES_MOST, sizeof *priced);
    int count = 0;
    for (int i = 0; i < changes->count; i++) {
        struct training_job job;
        priced[count] = (struct job_advised){.parts = {&changes->list[i]}, .part_count = 1};
        if (changes->list[i].small || read_parts(a, &priced[count], &job))
            continue;
        a->out->tried++;
        count += may_gain(&priced[count]);
    }
    qsort(priced, (size_t)count, sizeof *priced, by_ratio);
    for (int i = 0; i < count; i++)
        try_parts(a, &(struct job_advised){.parts = {priced[i].parts[0]}, .part_count = 1});
}

/* ---- changes together ---- */

static bool has_kind(const struct job_advised *advised, enum job_change_kind kind)
{
    for (int i = 0; i < advised->part_count; i++)
        if (advised->parts[i]->kind == kind)
            return true;
    return false;
}

/* What a change costs for what it saves: extra time for each share of memory, and much where the time is not known or what is
 * learned may differ. */
static double price(const struct adviser *a, const struct job_advised *advised)
{
    double extra = isnan(advised->time_ratio) ? 1 : fmax(advised->time_ratio - 1, 0) + 0.01;
    return (extra + (advised->alters ? 1 : 0)) / saved(a, advised);
}

static const struct job_advised *cheapest_besides(const struct adviser *a, const struct job_advised *together,
                                                  int singles)
{
    const struct job_advised *best = NULL;
    for (int i = 0; i < singles; i++) {
        const struct job_advised *one = &a->tried[i];
        bool alone = is_enough(a, one) && !one->partly;
        if (!alone && saved(a, one) > least_saved && !has_kind(together, one->parts[0]->kind) &&
            (!best || price(a, one) < price(a, best)))
            best = one;
    }
    return best;
}

/* Leaves out what is not needed after what came later. */
static void leave_out(struct adviser *a, struct job_advised together)
{
    for (int k = together.part_count - 2; k >= 0 && together.part_count > 2; k--) {
        struct job_advised fewer = together;
        fewer.part_count--;
        memmove(&fewer.parts[k], &fewer.parts[k + 1], (size_t)(fewer.part_count - k) * sizeof *fewer.parts);
        const struct job_advised *made = try_parts(a, &fewer);
        if (made && is_enough(a, made) && !made->partly)
            together = fewer;
    }
}

/* The cheapest changes, one more at a time, until they are enough; never one that is by itself. */
static void try_together(struct adviser *a)
{
    struct job_advised together = {.part_count = 0};
    int singles = a->count;
    while (together.part_count < JOB_ADVICE_PARTS) {
        const struct job_advised *next = cheapest_besides(a, &together, singles);
        if (!next)
            return;
        together.parts[together.part_count++] = next->parts[0];
        const struct job_advised *made = together.part_count > 1 ? try_parts(a, &together) : NULL;
        if (made && is_enough(a, made)) {
            leave_out(a, together);
            return;
        }
    }
}

/* One change is enough, and not so slow that several smaller ones may be faster. */
static bool one_will_do(const struct adviser *a)
{
    for (int i = 0; i < a->count; i++) {
        const struct job_advised *one = &a->tried[i];
        if (is_enough(a, one) && !one->partly && !one->alters && one->time_ratio <= slow)
            return true;
    }
    return false;
}

/* ---- the choice ---- */

static int by_need(const void *x, const void *y)
{
    const struct job_advised *a = x, *b = y;
    return (a->after.needed_bytes > b->after.needed_bytes) - (a->after.needed_bytes < b->after.needed_bytes);
}

/* What leaves training as it is first. */
static int by_time(const void *x, const void *y)
{
    const struct job_advised *a = x, *b = y;
    double s = isnan(a->time_ratio) ? INFINITY : a->time_ratio;
    double t = isnan(b->time_ratio) ? INFINITY : b->time_ratio;
    if (a->alters != b->alters)
        return a->alters ? 1 : -1;
    return s != t ? (s < t ? -1 : 1) : by_need(x, y);
}

/* Of JOB_ADVICE_TO_BUY a change whose time is not known may be faster. */
static bool is_worth(const struct adviser *a, const struct job_advised *advised)
{
    if (advised->partly || !is_enough(a, advised))
        return false;
    return a->out->aim == JOB_ADVICE_TO_BUY ? may_gain(advised) : saved(a, advised) > least_saved;
}

/* Whether all of one's parts are among another's. */
static bool is_part_of(const struct job_advised *one, const struct job_advised *other)
{
    for (int i = 0; i < one->part_count; i++) {
        bool found = false;
        for (int k = 0; k < other->part_count; k++)
            found = found || one->parts[i] == other->parts[k];
        if (!found)
            return false;
    }
    return one->part_count < other->part_count;
}

/* Whether fewer of the same changes are enough; or another of its kind, which is worth a line, is no slower and no larger: of
 * equals the first stays. */
static bool is_beaten(const struct adviser *a, int place)
{
    const struct job_advised *this = &a->tried[place];
    for (int i = 0; i < a->count; i++) {
        const struct job_advised *other = &a->tried[i];
        if (i != place && is_worth(a, other) && is_part_of(other, this))
            return true;
        if (i == place || this->part_count > 1 || other->part_count > 1 || other->alters > this->alters ||
            other->parts[0]->kind != this->parts[0]->kind || !is_worth(a, other))
            continue;
        int larger = by_need(other, this);
        if (larger <= 0 && other->time_ratio <= this->time_ratio &&
            (larger < 0 || other->time_ratio < this->time_ratio || i < place))
            return true;
    }
    return false;
}

/* Nothing is enough: what comes nearest, with all its stages. */
static void choose_nearest(struct adviser *a)
{
    struct job_advice *out = a->out;
    out->falls_short = true;
    qsort(a->tried, (size_t)a->count, sizeof *a->tried, by_need);
    for (int i = 0; i < a->count && i < NEAREST && saved(a, &a->tried[i]) > least_saved; i++) {
        struct job_advised one = a->tried[i];
        struct training_job job;
        struct error err = {0};
        if (one.partly && out->count && a->trials.work > WORK_MOST)
            return;
        if (!one.partly || (!read_parts(a, &one, &job) && !judge(a, &job, false, &one, &err)))
            out->list[out->count++] = one;
    }
}

static void choose(struct adviser *a)
{
    struct job_advice *out = a->out;
    qsort(a->tried, (size_t)a->count, sizeof *a->tried, by_time);
    for (int i = 0; i < a->count && out->count < JOB_ADVICE_MOST; i++)
        if (is_worth(a, &a->tried[i]) && !is_beaten(a, i))
            out->list[out->count++] = a->tried[i];
    if (!out->count && out->aim != JOB_ADVICE_TO_BUY)
        choose_nearest(a);
}

void job_advice_find(const struct job_advice_request *request, struct arena *arena, struct job_advice *out)
{
    const struct job_verdict *now = request->verdict;
    const struct workload *w = &now->workload;
    struct error err = {0};
    struct job_changes *changes = arena_alloc(arena, sizeof *changes);
    struct adviser a = {
        .request = request,
        .arena = arena,
        .out = out,
        .tried = arena_array(arena, TRIED_MOST, sizeof *a.tried),
        .trials = {request->launch, request->device, request->speeds, job_trial_work(w, w->pp)}};
    *out = (struct job_advice){.aim = !now->fits                          ? JOB_ADVICE_TO_FIT
                                      : now->probability < job_trial_sure ? JOB_ADVICE_TO_BE_SURE
                                                                          : JOB_ADVICE_TO_BUY};
    a.sequence_s = job_trial_seconds(&a.trials, w, &err);
    out->seconds = a.sequence_s * (double)(w->dp * w->micro_batch * w->micro_batches);
    out->untimed = isnan(a.sequence_s) ? arena_strdup(arena, err.text) : NULL;
    job_changes_find(request->job, out->aim == JOB_ADVICE_TO_BUY, changes);
    if (out->aim == JOB_ADVICE_TO_BUY) {
        try_to_buy(&a, changes);
    } else {
        try_to_fit(&a, changes);
        if (!one_will_do(&a))
            try_together(&a);
        out->tried = a.count;
    }
    choose(&a);
}
