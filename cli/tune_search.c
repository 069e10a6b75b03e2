#include "cli/tune_search.h"

#include "base/checked.h"
#include "base/log.h"
#include "cli/tune_states.h"
#include "jobs/job_workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Units of pricing as tune_states.h counts them, a microsecond each; and of judging, 16 microseconds each. */
    PRICING_MOST = 1000000,
    JUDGING_MOST = 38000,
    CLIMBING_MOST = 19000, /* besides, where that was not enough to find the fastest */
    JUDGING_UNITS = 16,
    NEAREST_TRIED = 4,
    OFFLOADING_EDITS = 4, /* that offloading counts for, beside its own, where the launch does without */
};

/* Launches that fit are looked for up to so many times as slow as the fastest of them. */
static const double too_slow = 2;
/* Two that differ by a smaller share take equally long. */
static const double as_long = 0.002;

enum standing { UNJUDGED, FITS, TOO_LARGE };

/* Twins that were asked whether any of them can fit. */
struct asked {
    uint64_t twins;
    int state; /* that asked */
    bool hopeless;
    int64_t needed_bytes;
};

struct searcher {
    const struct tune_request *request;
    struct arena *arena;
    struct tuning *out;
    struct tune_states *states;
    struct job_trials trials;
    int count;                /* of states */
    int *order;               /* those that proposals lead to, by time */
    unsigned char *standings; /* of all */
    int *large, large_count;  /* those whose standing is TOO_LARGE */
    struct asked *asked;
    int asked_count;
    bool must_gain;   /* the launch fits as it is */
    bool has_perhaps; /* one that fits and is not sure to is in `perhaps` */
    struct tuned perhaps;
    bool has_any; /* one that surely fits, if not the fastest, is in `any`: the answer where work runs out */
    struct tuned any;
    int any_state;
    int64_t judging_most;
};

/* States that were added are unjudged. */
static void set_count(struct searcher *s)
{
    int count = tune_states_count(s->states);
    s->standings = host_resize(s->standings, (size_t)count);
    s->large = host_resize(s->large, (size_t)count * sizeof *s->large);
    s->asked = host_resize(s->asked, (size_t)count * sizeof *s->asked);
    memset(s->standings + s->count, UNJUDGED, (size_t)(count - s->count));
    s->count = count;
}

/* ---- verdicts ---- */

/* A launch with an allocator that joins its pieces, where those alone are too many. False: it has one, or that is no use. */
static bool add_allocator(struct searcher *s, const struct tuned *made, struct job_edits *out)
{
    const struct job_verdict *v = &made->verdict;
    struct job_changes *changes = arena_alloc(s->arena, sizeof *changes);
    if (v->needed_bytes - v->fragment_bytes > v->capacity_bytes)
        return false;
    job_changes_find(&made->job, false, changes);
    for (int i = 0; i < changes->count; i++)
        if (changes->list[i].kind == JOB_CHANGE_ALLOCATOR) {
            *out = tune_states_joined(s->states, made->edits, &changes->list[i], s->arena);
            return true;
        }
    return false;
}

static int judge_edits(struct searcher *s, struct job_edits edits, struct tuned *made, bool *partly)
{
    struct error err = {0};
    made->edits = edits;
    s->out->judged++;
    if (job_trial_read(&s->trials, edits, s->arena, &made->job))
        return -1;
    return job_trial_judge(&s->trials, &made->job, s->request->verdict->memory.stage, job_trial_sure,
                           &made->verdict, partly, &err);
}

/* What fits and is not sure to is kept, the fastest; and what is nearest to fitting. */
static void remember(struct searcher *s, struct tuned *made, bool partly)
{
    struct error err = {0};
    bool likely =
        made->verdict.probability >= 0.5 && (!s->has_perhaps || made->sequence_s < s->perhaps.sequence_s);
    bool nearer = made->verdict.needed_bytes < s->out->nearest.verdict.needed_bytes;
    if (!likely && !nearer)
        return;
    if (partly && job_trial_judge(&s->trials, &made->job, -1, 0, &made->verdict, &partly, &err))
        return;
    if (likely && made->verdict.fits) {
        s->perhaps = *made;
        s->has_perhaps = true;
    }
    if (made->verdict.needed_bytes < s->out->nearest.verdict.needed_bytes)
        s->out->nearest = *made;
}

static bool is_sure(const struct tuned *made, bool partly)
{
    return !partly && made->verdict.probability >= job_trial_sure;
}

/* The launch of a state, or where that is no use with another allocator: the first that surely fits. */
static bool judge_both(struct searcher *s, int state, struct tuned *made)
{
    bool partly;
    struct job_edits joined;
    *made = (struct tuned){.sequence_s = tune_states_get(s->states, state)->sequence_s};
    if (judge_edits(s, tune_states_get(s->states, state)->edits, made, &partly))
        return false;
    if (is_sure(made, partly))
        return true;
    remember(s, made, partly);
    if (!add_allocator(s, made, &joined) || judge_edits(s, joined, made, &partly))
        return false;
    if (is_sure(made, partly))
        return true;
    remember(s, made, partly);
    return false;
}

static bool judge(struct searcher *s, int state, struct tuned *made)
{
    if (!judge_both(s, state, made)) {
        s->standings[state] = TOO_LARGE;
        s->large[s->large_count++] = state;
        return false;
    }
    s->standings[state] = FITS;
    if (!s->has_any || made->sequence_s < s->any.sequence_s) {
        s->any = *made;
        s->any_state = state;
        s->has_any = true;
    }
    return true;
}

/* ---- twins ---- */

static bool needs_less(const struct searcher *s, int less, int more)
{
    return tune_states_needs_less(tune_states_get(s->states, less), tune_states_get(s->states, more));
}

static bool are_twins(const struct searcher *s, int a, int b)
{
    return tune_states_get(s->states, a)->twins == tune_states_get(s->states, b)->twins;
}

/* Whether a launch that differs from this one only by needing less was too large. */
static bool has_large_twin(const struct searcher *s, int state)
{
    for (int i = 0; i < s->large_count; i++)
        if (needs_less(s, s->large[i], state))
            return true;
    return false;
}

/* Of twins that nobody judged, how many one of them would rule out, were it too large. */
static int ruled_out_by(const struct searcher *s, const int *twins, int count, int by)
{
    int out = 0;
    for (int i = 0; i < count; i++)
        out += needs_less(s, twins[by], twins[i]);
    return out;
}

static bool has_fitting_twin(const struct searcher *s, int state)
{
    for (int i = 0; i < s->count; i++)
        if (s->standings[i] == FITS && are_twins(s, i, state))
            return true;
    return false;
}

/* The twin of a launch that was too large which is to be judged next, so that few have to be: one that rules out all others,
 * were it too large; or half of them, where some twin fits. -1: there is none. */
static int telling_twin(const struct searcher *s, int state)
{
    int *twins = host_alloc((size_t)s->count * sizeof *twins);
    int count = 0, best = -1, least_off = 0;
    for (int i = 0; i < s->count; i++)
        if (s->standings[i] == UNJUDGED && are_twins(s, i, state) && !has_large_twin(s, i))
            twins[count++] = i;
    int wanted = has_fitting_twin(s, state) ? count / 2 : count;
    for (int i = 0; i < count; i++) {
        int off = abs(ruled_out_by(s, twins, count, i) - wanted);
        if (best < 0 || off < least_off) {
            best = twins[i];
            least_off = off;
        }
    }
    free(twins);
    return count > 1 ? best : -1;
}

/* ---- the search ---- */

static bool is_of_found_kind(const struct searcher *s, const struct tune_state *state)
{
    for (int i = 0; i < s->out->count; i++)
        if (tune_states_alike(state, &s->out->list[i].verdict.workload))
            return true;
    return false;
}

/* Whether one that was found takes as long, and needs no more. */
static bool is_beaten(const struct searcher *s, const struct tuned *made)
{
    for (int i = 0; i < s->out->count; i++) {
        const struct tuned *found = &s->out->list[i];
        if (made->sequence_s < found->sequence_s * (1 + as_long) &&
            made->verdict.needed_bytes >= found->verdict.needed_bytes)
            return true;
    }
    return false;
}

static bool is_past(const struct searcher *s, double sequence_s)
{
    const struct tuning *out = s->out;
    if (s->must_gain && sequence_s > out->sequence_s * (1 - job_trial_gain))
        return true;
    return out->count && sequence_s > too_slow * out->list[0].sequence_s;
}

static bool is_enough_work(const struct searcher *s)
{
    return !s->request->judge_all && s->trials.work > s->judging_most;
}

/* What the least that a launch and its twins could be came to. Of twins the first asks for all. */
static const struct asked *ask(struct searcher *s, int state)
{
    const struct tune_state *this = tune_states_get(s->states, state);
    struct training_job job;
    for (int i = 0; i < s->asked_count; i++)
        if (s->asked[i].twins == this->twins)
            return &s->asked[i];
    struct arena *scratch = arena_create();
    struct asked *asked = &s->asked[s->asked_count++];
    *asked =
        (struct asked){.twins = this->twins, .state = state, .hopeless = true, .needed_bytes = INT64_MAX};
    if (!job_trial_read(&s->trials, this->edits, scratch, &job))
        asked->hopeless = job_trial_is_hopeless(&s->trials, &job, &asked->needed_bytes);
    arena_free(scratch);
    return asked;
}

static bool is_too_large(struct searcher *s, int state, struct tuned *made)
{
    if (s->standings[state] == TOO_LARGE ||
        (!s->request->judge_all && (ask(s, state)->hopeless || has_large_twin(s, state))))
        return true;
    if (judge(s, state, made))
        return false;
    int twin = s->request->judge_all ? -1 : telling_twin(s, state);
    struct tuned other;
    if (twin >= 0)
        judge(s, twin, &other);
    return true;
}

/* In order of time; false: there was not work enough. */
static bool judge_in_order(struct searcher *s)
{
    struct tuned made;
    for (int i = 0; i < s->count && s->out->count < TUNE_FOUND_MOST; i++) {
        const struct tune_state *state = tune_states_get(s->states, s->order[i]);
        if (is_past(s, state->sequence_s))
            return true;
        if (is_of_found_kind(s, state))
            continue;
        if (is_enough_work(s))
            return s->out->count > 0;
        if (!is_too_large(s, s->order[i], &made) && !is_beaten(s, &made))
            s->out->list[s->out->count++] = made;
        progress_count(PRICING_MOST + s->trials.work * JUDGING_UNITS,
                       PRICING_MOST + JUDGING_MOST * JUDGING_UNITS);
    }
    return true;
}

/* One change from a launch: the fastest that surely fits, if it is faster than any that does. */
static bool step_from(struct searcher *s, int state)
{
    int near[TUNE_NEAR_MOST];
    struct tuned made;
    int count = tune_states_near(s->states, state, near);
    tune_states_sort(s->states, near, count);
    for (int i = 0; i < count && !is_enough_work(s); i++) {
        double sequence_s = tune_states_get(s->states, near[i])->sequence_s;
        if (is_past(s, sequence_s) || (s->has_any && sequence_s >= s->any.sequence_s))
            return false;
        if (s->standings[near[i]] == UNJUDGED && !has_large_twin(s, near[i]) && judge(s, near[i], &made))
            return true;
    }
    return false;
}

/* There was not work enough for all in their order: no answer may be worse than what single changes of the launch lead to, and
 * those of the best so far. */
static void climb(struct searcher *s)
{
    s->judging_most = s->trials.work + CLIMBING_MOST;
    step_from(s, 0);
    while (s->has_any && step_from(s, s->any_state))
        ;
}

/* Of twins the one that needs least, as far as that is known. */
static int least_twin(const struct searcher *s, int state)
{
    for (int i = 0; i < s->count; i++)
        if (needs_less(s, i, state))
            state = i;
    return state;
}

/* Nothing fits: of twins without hope those that need least are judged, so that the nearest is known. */
static void find_nearest(struct searcher *s)
{
    struct tuned made;
    for (int round = 0; round < NEAREST_TRIED; round++) {
        struct asked *best = NULL;
        for (int i = 0; i < s->asked_count; i++)
            if (s->asked[i].hopeless && (!best || s->asked[i].needed_bytes < best->needed_bytes))
                best = &s->asked[i];
        if (!best)
            return;
        best->hopeless = false;
        judge(s, least_twin(s, best->state), &made);
    }
}

/* Whether it is known not to fit, as surely as a launch has to. */
static bool is_ruled_out(const struct searcher *s, int state)
{
    uint64_t twins = tune_states_get(s->states, state)->twins;
    bool out = s->standings[state] == TOO_LARGE || has_large_twin(s, state);
    for (int i = 0; i < s->asked_count && !out; i++)
        out = s->asked[i].twins == twins && s->asked[i].hopeless;
    return out;
}

/* From the fastest that fits small steps, as a layer less that is made again, for as long as one of them is faster and fits. */
static void refine(struct searcher *s)
{
    int order[2 * JOB_CHANGES_MOST];
    bool better = s->out->count > 0;
    while (better) {
        struct tuned *best = &s->out->list[0], made;
        int from = s->count;
        tune_states_step(s->states, best);
        set_count(s);
        tune_states_order(s->states, from, order);
        better = false;
        for (int i = 0; i < s->count - from && !better && !is_enough_work(s); i++) {
            if (tune_states_get(s->states, order[i])->sequence_s >= best->sequence_s)
                break;
            better = !is_too_large(s, order[i], &made);
        }
        if (better)
            *best = made;
    }
}

/* What costs nothing, gains nothing either and is not needed to fit is left out of what was found. */
static void leave_out(struct searcher *s, struct tuned *found)
{
    for (int i = found->edits.count - 1; i >= 0 && found->edits.count > 1; i--) {
        if (!found->edits.list[i].free)
            continue;
        struct tuned made = {0};
        struct workload w;
        struct error err = {0};
        bool partly;
        struct job_edit *fewer = arena_array(s->arena, (size_t)found->edits.count, sizeof *fewer);
        struct job_edits edits = {fewer, found->edits.count - 1};
        memcpy(fewer, found->edits.list, (size_t)i * sizeof *fewer);
        memcpy(fewer + i, found->edits.list + i + 1, (size_t)(edits.count - i) * sizeof *fewer);
        if (job_trial_read(&s->trials, edits, s->arena, &made.job) || job_workload(&made.job, &w, &err))
            continue;
        made.sequence_s = job_trial_seconds(&s->trials, &w, &err);
        if (made.sequence_s < found->sequence_s * (1 + as_long) &&
            tune_states_is_same_work(s->states, &made.job, &w) && !judge_edits(s, edits, &made, &partly) &&
            is_sure(&made, partly))
            *found = made;
    }
}

/* ---- no more changes than are worth it ---- */

/* What a launch asks of whoever changes it: what costs nothing is no trouble. */
static int effort(const struct searcher *s, const struct job_edits *edits, bool offloads)
{
    int count = offloads && !tune_states_get(s->states, 0)->shape.offloads ? OFFLOADING_EDITS : 0;
    for (int i = 0; i < edits->count; i++)
        count += !edits->list[i].free;
    return count;
}

static int effort_of(const struct searcher *s, int state)
{
    const struct tune_state *t = tune_states_get(s->states, state);
    return effort(s, &t->edits, t->shape.offloads);
}

/* Another is the first; the one that was is the next, if it is of another kind. */
static void put_first(struct searcher *s, const struct tuned *made)
{
    struct tuning *out = s->out;
    struct tuned before[TUNE_FOUND_MOST];
    int count = out->count;
    memcpy(before, out->list, sizeof before);
    out->list[0] = *made;
    out->count = 1;
    for (int i = 0; i < count && out->count < TUNE_FOUND_MOST; i++)
        if (!tune_states_are_alike(&before[i].verdict.workload, &made->verdict.workload))
            out->list[out->count++] = before[i];
}

/* The launch of least effort among those within a hair of the fastest takes its place. */
static void prefer_simple(struct searcher *s)
{
    struct tuned *best = &s->out->list[0], made;
    double most_s = best->sequence_s * (1 + job_trial_gain);
    const struct workload *w = &best->verdict.workload;
    int least = effort(s, &best->edits, w->offload_optimizer || w->offload_weights);
    int *places = host_alloc((size_t)s->count * sizeof *places), count = 0;
    tune_states_order(s->states, 0, places);
    for (int i = 0; i < s->count; i++) {
        double sequence_s = tune_states_get(s->states, places[i])->sequence_s;
        if (sequence_s <= most_s && !is_past(s, sequence_s) && effort_of(s, places[i]) < least &&
            !is_ruled_out(s, places[i]))
            places[count++] = places[i];
    }
    for (int level = 0; level < least; level++)
        for (int i = 0; i < count && !is_enough_work(s); i++)
            if (effort_of(s, places[i]) == level && !has_large_twin(s, places[i]) &&
                judge(s, places[i], &made)) {
                leave_out(s, &made);
                put_first(s, &made);
                level = least;
                break;
            }
    free(places);
}

static void search(struct searcher *s)
{
    struct tuning *out = s->out;
    bool priced = tune_states_close(s->states, s->request->judge_all ? INT64_MAX : PRICING_MOST);
    set_count(s);
    s->order = host_alloc((size_t)s->count * sizeof *s->order);
    tune_states_order(s->states, 0, s->order);
    bool judged = judge_in_order(s);
    if (!judged)
        climb(s);
    if (!out->count && s->has_any && !is_past(s, s->any.sequence_s))
        out->list[out->count++] = s->any;
    refine(s);
    for (int i = 0; i < out->count; i++)
        leave_out(s, &out->list[i]);
    if (out->count)
        prefer_simple(s);
    out->complete = priced && judged;
    out->sure = out->count > 0;
    if (!out->count && !s->must_gain && !s->has_perhaps)
        find_nearest(s);
    if (!out->count && !s->must_gain && s->has_perhaps)
        out->list[out->count++] = s->perhaps;
    double best_s = out->count ? out->list[0].sequence_s : out->sequence_s * (1 - job_trial_gain);
    out->launches = s->count;
    for (int i = 0; i < s->count; i++)
        if (tune_states_get(s->states, i)->sequence_s < best_s && s->standings[i] != FITS)
            *(is_ruled_out(s, i) ? &out->faster : &out->unjudged) += 1;
    if (out->complete) /* they are within a hair, and of no use */
        out->unjudged = 0;
}

int tune_search(const struct tune_request *request, struct arena *arena, struct tuning *out,
                struct error *err)
{
    const struct job_verdict *now = request->verdict;
    struct searcher s = {.request = request,
                         .arena = arena,
                         .out = out,
                         .trials = {request->launch, request->device, request->speeds, 0},
                         .judging_most = JUDGING_MOST,
                         .must_gain = now->probability >= job_trial_sure};
    *out = (struct tuning){.nearest = {.job = *request->job, .verdict = *now}};
    out->sequence_s = out->nearest.sequence_s = job_trial_seconds(&s.trials, &now->workload, err);
    if (isnan(out->sequence_s))
        return error_prefix(err, "no time is predicted for this launch, so none is known to be faster");
    s.states = tune_states_create(request, &s.trials, arena);
    search(&s);
    tune_states_free(s.states);
    free(s.order);
    free(s.standings);
    free(s.large);
    free(s.asked);
    return 0;
}
