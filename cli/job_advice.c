#include "cli/job_advice.h"

#include "base/checked.h"
#include "planner/frameworks/workload_time.h"

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

/* A change that saves less than this share is not worth a line; nor is one that is faster by less. */
static const double least_saved = 0.005, least_gained = 0.01;
/* From here on a fit is called sure, so that room may be spent; and a change must leave it so. */
static const double sure = 0.9;
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
    int64_t work;
};

/* ---- a try ---- */

/* Seconds of one sequence; NAN, with the reason in *err. */
static double sequence_seconds(const struct workload *w, const struct machine_speed *speeds,
                               struct error *err)
{
    struct workload_time time;
    if (!speeds) {
        error_set(err, "how fast this device is, is not known");
        return NAN;
    }
    if (workload_time(w, NULL, &speeds[w->compute_bytes < 4], &time, err))
        return NAN;
    return time.seconds / (double)(w->dp * w->micro_batch * w->micro_batches);
}

static bool is_enough(const struct adviser *a, const struct job_advised *advised)
{
    return a->out->aim == JOB_ADVICE_TO_FIT ? advised->after.fits : advised->after.probability >= sure;
}

/* Of one judgement: stages that are looked at, their layers, micro-batches until all moments were seen. */
static int64_t work_of_judging(const struct workload *w, int64_t stages)
{
    int64_t layers = (w->model.layers + w->pp - 1) / w->pp;
    int64_t passes = w->virtual_stages > 1 ? 2 * w->pp : w->pp + 2;
    return min_i64(w->pp, stages) * layers * min_i64(w->micro_batches, passes);
}

static int judge_all_stages(struct adviser *a, const struct training_job *job, struct job_advised *made,
                            struct error *err)
{
    if (job_verdict_make(job, a->request->device, -1, &made->after, err))
        return -1;
    a->work += work_of_judging(&made->after.workload, 3);
    made->partly = false;
    return 0;
}

/* The others only where the stage that needs most now is well. */
static int judge_one_stage_first(struct adviser *a, const struct training_job *job, struct job_advised *made,
                                 struct error *err)
{
    if (job_verdict_make(job, a->request->device, a->request->verdict->memory.stage, &made->after, err))
        return -1;
    a->work += work_of_judging(&made->after.workload, 1);
    made->partly = made->after.workload.pp > 1;
    return made->partly && is_enough(a, made) ? judge_all_stages(a, job, made, err) : 0;
}

static int read_edited(const struct adviser *a, const struct job_advised *made, struct training_job *out)
{
    struct jobs_request launch = *a->request->launch;
    struct error err = {0};
    launch.edits = made->edits;
    return jobs_read(&launch, a->arena, out, &err) || job_count(out, FACT_MISSING) ? -1 : 0;
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

/* Reads the launch with the edits, and judges it. NULL: it can no longer be read, or judged; or there was enough work. */
static const struct job_advised *try_parts(struct adviser *a, const struct job_advised *wanted)
{
    struct training_job job;
    struct error err = {0};
    int64_t next = work_of_judging(&a->request->verdict->workload, 3);
    if (a->count == TRIED_MOST || a->work + next > WORK_MOST)
        return NULL;
    struct job_advised *made = &a->tried[a->count];
    *made = *wanted;
    join_parts(a, made);
    if (read_edited(a, made, &job) || judge_one_stage_first(a, &job, made, &err))
        return NULL;
    made->time_ratio = sequence_seconds(&made->after.workload, a->request->speeds, &err) / a->sequence_s;
    if (isnan(made->time_ratio))
        made->untimed = arena_strdup(a->arena, isnan(a->sequence_s) ? a->out->untimed : err.text);
    a->count++;
    return made;
}

/* What it saves of what is needed now, as a share. */
static double saved(const struct adviser *a, const struct job_advised *advised)
{
    return 1 - (double)advised->after.needed_bytes / (double)a->request->verdict->needed_bytes;
}

/* Of a kind that comes in degrees, as smaller and smaller micro-batches, the first that is enough is the cheapest. */
static void try_all(struct adviser *a, const struct job_changes *changes)
{
    bool enough[JOB_CHANGE_PRECISION + 1] = {false};
    for (int i = 0; i < changes->count; i++) {
        const struct job_change *change = &changes->list[i];
        bool degrees = change->kind == JOB_CHANGE_MICRO_BATCH || change->kind == JOB_CHANGE_RECOMPUTE ||
                       change->kind == JOB_CHANGE_SHARDING || change->kind == JOB_CHANGE_OFFLOAD;
        if (degrees && enough[change->kind])
            continue;
        const struct job_advised *made =
            try_parts(a, &(struct job_advised){.parts = {change}, .part_count = 1});
        if (made && made->after.probability >= likely && a->out->aim != JOB_ADVICE_TO_BUY)
            enough[change->kind] = true;
    }
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
    return a->out->aim == JOB_ADVICE_TO_BUY ? !(advised->time_ratio >= 1 - least_gained)
                                            : saved(a, advised) > least_saved;
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
        if (one.partly && out->count && a->work > WORK_MOST)
            return;
        if (!one.partly || (!read_edited(a, &one, &job) && !judge_all_stages(a, &job, &one, &err)))
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
    struct adviser a = {.request = request,
                        .arena = arena,
                        .out = out,
                        .tried = arena_array(arena, TRIED_MOST, sizeof *a.tried),
                        .work = work_of_judging(w, 3)};
    *out = (struct job_advice){.aim = !now->fits                ? JOB_ADVICE_TO_FIT
                                      : now->probability < sure ? JOB_ADVICE_TO_BE_SURE
                                                                : JOB_ADVICE_TO_BUY};
    a.sequence_s = sequence_seconds(w, request->speeds, &err);
    out->seconds = a.sequence_s * (double)(w->dp * w->micro_batch * w->micro_batches);
    out->untimed = isnan(a.sequence_s) ? arena_strdup(arena, err.text) : NULL;
    job_changes_find(request->job, out->aim == JOB_ADVICE_TO_BUY, changes);
    try_all(&a, changes);
    if (out->aim != JOB_ADVICE_TO_BUY && !one_will_do(&a))
        try_together(&a);
    out->tried = a.count;
    choose(&a);
}
