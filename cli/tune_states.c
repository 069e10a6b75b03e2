#include "cli/tune_states.h"

#include "base/log.h"
#include "jobs/job_workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Units of pricing, a microsecond each: a launch read, an operation of a pipeline's schedule replayed, a proposal that leads to
 * a launch which is there already. */
static const double read_units = 95, replay_units = 0.01, join_units = 2;

enum { SHOWN_EVERY = 64 };

/* Edits that are not read yet, with the price of the launch that they were proposed for. */
struct waiting {
    struct job_edits edits;
    double from_s;
};

struct tune_states {
    const struct tune_request *request;
    const struct job_trials *trials;
    struct arena *arena;
    struct tune_state *list;
    int count, room;
    struct waiting *waiting;
    int waiting_count, waiting_room;
    uint64_t *seen;            /* a table of the keys of all edits that were tried; 0: a free place */
    int seen_count, seen_room; /* a power of two */
    int *heap;                 /* of those that wait, places: from the fastest on top */
    int heap_count;
    double units;
    int64_t global_batch; /* of the launch as it stands */
};

/* ---- edits ---- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
    const char none[] = "\1";
    for (const char *c = text ? text : none; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return (hash ^ 2) * 1099511628211u;
}

static uint64_t hash_edits(const struct job_edits *edits, bool twins)
{
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < edits->count; i++) {
        const struct job_edit *e = &edits->list[i];
        if (twins && (e->kind == JOB_CHANGE_MICRO_BATCH || e->kind == JOB_CHANGE_RECOMPUTE ||
                      e->kind == JOB_CHANGE_CHUNKS))
            continue;
        hash = hash_text(hash ^ (uint64_t)e->place, e->file);
        hash = hash_text(hash_text(hash, e->name), e->value);
    }
    return hash ? hash : 1;
}

static int compare_edits(const struct job_edit *a, const struct job_edit *b)
{
    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    int files = strcmp(a->file ? a->file : "", b->file ? b->file : "");
    return files ? files : strcmp(a->name, b->name);
}

/* Whether the launch says that already. */
static bool says_nothing(const struct tune_states *s, const struct job_edit *edit)
{
    const struct fact *now = job_changes_given(s->request->job, edit);
    if (!now || !edit->value)
        return !now && !edit->value;
    if (!*edit->value)
        return !strcmp(now->value, "given");
    const char *a = now->value, *b = edit->value;
    for (; *a && (*a == *b || (edit->words && *a == ',' && *b == ' ')); a++)
        b++;
    return !*a && !*b;
}

struct job_edits tune_states_joined(const struct tune_states *s, struct job_edits edits,
                                    const struct job_change *change, struct arena *arena)
{
    struct job_edit *list = arena_array(arena, (size_t)(edits.count + change->count), sizeof *list);
    int count = edits.count;
    if (count)
        memcpy(list, edits.list, (size_t)count * sizeof *list);
    for (int i = 0; i < change->count; i++) {
        struct job_edit edit = change->edits[i];
        int at = 0;
        edit.kind = change->kind;
        edit.free = change->free;
        while (at < count && compare_edits(&list[at], &edit) < 0)
            at++;
        bool there = at < count && !compare_edits(&list[at], &edit);
        if (says_nothing(s, &edit)) {
            if (there)
                memmove(&list[at], &list[at + 1], (size_t)(--count - at) * sizeof *list);
            continue;
        }
        if (!there)
            memmove(&list[at + 1], &list[at], (size_t)(count++ - at) * sizeof *list);
        list[at] = edit;
    }
    return (struct job_edits){list, count};
}

static struct job_edits kept_edits(struct arena *arena, struct job_edits edits)
{
    struct job_edit *list = arena_array(arena, (size_t)edits.count + 1, sizeof *list);
    for (int i = 0; i < edits.count; i++) {
        list[i] = edits.list[i];
        list[i].file = edits.list[i].file ? arena_strdup(arena, edits.list[i].file) : NULL;
        list[i].name = arena_strdup(arena, edits.list[i].name);
        list[i].value = edits.list[i].value ? arena_strdup(arena, edits.list[i].value) : NULL;
    }
    return (struct job_edits){list, edits.count};
}

/* ---- what was tried ---- */

static void seen_put(uint64_t *table, int room, uint64_t key)
{
    size_t at = (size_t)key & (size_t)(room - 1);
    while (table[at])
        at = (at + 1) & (size_t)(room - 1);
    table[at] = key;
}

/* False: it was there. */
static bool seen_add(struct tune_states *s, uint64_t key)
{
    size_t at = (size_t)key & (size_t)(s->seen_room - 1);
    for (; s->seen[at]; at = (at + 1) & (size_t)(s->seen_room - 1))
        if (s->seen[at] == key)
            return false;
    s->seen[at] = key;
    if (++s->seen_count * 2 < s->seen_room)
        return true;
    uint64_t *larger = host_alloc(2 * (size_t)s->seen_room * sizeof *larger);
    for (int i = 0; i < s->seen_room; i++)
        if (s->seen[i])
            seen_put(larger, 2 * s->seen_room, s->seen[i]);
    free(s->seen);
    s->seen = larger;
    s->seen_room *= 2;
    return true;
}

/* ---- the fastest first ---- */

static bool is_before(const struct tune_states *s, int a, int b)
{
    double x = s->waiting[a].from_s, y = s->waiting[b].from_s;
    return x < y || (!(y < x) && a < b);
}

static void heap_swap(struct tune_states *s, int i, int k)
{
    int kept = s->heap[i];
    s->heap[i] = s->heap[k];
    s->heap[k] = kept;
}

static void heap_push(struct tune_states *s, struct job_edits edits, double from_s)
{
    if (s->waiting_count == s->waiting_room) {
        s->waiting_room = 2 * s->waiting_room + 64;
        s->waiting = host_resize(s->waiting, (size_t)s->waiting_room * sizeof *s->waiting);
        s->heap = host_resize(s->heap, (size_t)s->waiting_room * sizeof *s->heap);
    }
    s->waiting[s->waiting_count] = (struct waiting){kept_edits(s->arena, edits), from_s};
    int i = s->heap_count++;
    s->heap[i] = s->waiting_count++;
    for (; i && is_before(s, s->heap[i], s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap_swap(s, i, (i - 1) / 2);
}

static int heap_pop(struct tune_states *s)
{
    int top = s->heap[0];
    s->heap[0] = s->heap[--s->heap_count];
    for (int i = 0, next; (next = 2 * i + 1) < s->heap_count; i = next) {
        if (next + 1 < s->heap_count && is_before(s, s->heap[next + 1], s->heap[next]))
            next++;
        if (!is_before(s, s->heap[next], s->heap[i]))
            break;
        heap_swap(s, i, next);
    }
    return top;
}

/* ---- launches ---- */

static struct tune_shape shape_of(const struct workload *w)
{
    return (struct tune_shape){
        .tp = w->tp,
        .pp = w->pp,
        .cp = w->cp,
        .micro_batch = w->micro_batch,
        .chunks = w->virtual_stages,
        .remade_layers = w->remade_layers * w->virtual_stages,
        .sharding = w->sharding,
        .recompute = w->recompute,
        .modules = w->modules,
        .attention = w->attention,
        .loss = w->loss,
        .offloads = w->offload_optimizer || w->offload_weights,
        .halves = w->compute_bytes < 4,
    };
}

static void add_state(struct tune_states *s, struct job_edits edits, double sequence_s,
                      const struct workload *w)
{
    if (s->count == s->room) {
        s->room = 2 * s->room + 64;
        s->list = host_resize(s->list, (size_t)s->room * sizeof *s->list);
    }
    s->list[s->count++] = (struct tune_state){edits, sequence_s, hash_edits(&edits, true), shape_of(w)};
}

static bool is_allowed(const struct tune_states *s, const struct job_change *change)
{
    if (change->kind == JOB_CHANGE_ALLOCATOR) /* takes no time: tried where memory is judged */
        return false;
    return !change->alters ||
           (change->kind == JOB_CHANGE_MICRO_BATCH ? s->request->allow_batch : s->request->allow_precision);
}

bool tune_states_is_same_work(const struct tune_states *s, const struct training_job *job,
                              const struct workload *w)
{
    const struct training_job *now = s->request->job;
    return job->launch.ranks == now->launch.ranks && w->sequence == s->request->verdict->workload.sequence &&
           (s->request->allow_batch || w->dp * w->micro_batch * w->micro_batches == s->global_batch);
}

/* What is proposed for a launch, each as all of its edits. What costs nothing is done before anything else, alone, so that nobody
 * looks at twins of all that lack it; then *free. */
static int lead_to(const struct tune_states *s, const struct training_job *job, struct job_edits edits,
                   bool small, struct job_edits out[TUNE_NEAR_MOST], bool *free_alone)
{
    struct arena *arena = job->facts.arena;
    struct job_changes *changes = arena_alloc(arena, sizeof *changes);
    int count = 0;
    *free_alone = false;
    for (int larger = 0; larger < 2; larger++) {
        job_changes_find(job, larger, changes);
        for (int i = 0; i < changes->count; i++) {
            const struct job_change *change = &changes->list[i];
            if (change->small != small || !is_allowed(s, change))
                continue;
            *free_alone = change->free && !small;
            out[*free_alone ? 0 : count++] = tune_states_joined(s, edits, change, arena);
            if (*free_alone)
                return 1;
        }
    }
    return count;
}

/* What is proposed for a launch waits, unless it was tried. */
static void propose(struct tune_states *s, const struct training_job *job, struct job_edits edits,
                    double from_s, bool small)
{
    struct job_edits next[TUNE_NEAR_MOST];
    bool free_alone;
    int count = lead_to(s, job, edits, small, next, &free_alone);
    for (int i = 0; i < count; i++) {
        s->units += join_units;
        if (next[i].count <= TUNE_EDITS_MOST && seen_add(s, hash_edits(&next[i], false)))
            heap_push(s, next[i], from_s);
    }
}

/* Reads and prices a launch, and adds it where it is one; with what is proposed for it in turn. */
static void try_edits(struct tune_states *s, struct job_edits edits, bool proposes)
{
    struct arena *scratch = arena_create();
    struct training_job job;
    struct workload w;
    struct error err = {0};
    s->units += read_units;
    if (!job_trial_read(s->trials, edits, scratch, &job) && !job_workload(&job, &w, &err) &&
        tune_states_is_same_work(s, &job, &w)) {
        s->units += w.pp > 1 ? replay_units * (double)(w.pp * w.virtual_stages) * (double)w.micro_batches : 0;
        double sequence_s = job_trial_seconds(s->trials, &w, &err);
        if (!isnan(sequence_s)) {
            add_state(s, edits, sequence_s, &w);
            if (proposes)
                propose(s, &job, edits, sequence_s, false);
        }
    }
    arena_free(scratch);
}

struct tune_states *tune_states_create(const struct tune_request *request, const struct job_trials *trials,
                                       struct arena *arena)
{
    struct tune_states *s = host_alloc(sizeof *s);
    const struct workload *w = &request->verdict->workload;
    struct error err = {0};
    *s = (struct tune_states){.request = request,
                              .trials = trials,
                              .arena = arena,
                              .seen_room = 1 << 12,
                              .global_batch = w->dp * w->micro_batch * w->micro_batches};
    s->seen = host_alloc((size_t)s->seen_room * sizeof *s->seen);
    struct job_edits none = {0};
    seen_add(s, hash_edits(&none, false));
    double sequence_s = job_trial_seconds(trials, w, &err);
    add_state(s, none, sequence_s, w);
    propose(s, request->job, none, sequence_s, false);
    return s;
}

void tune_states_free(struct tune_states *s)
{
    free(s->list);
    free(s->waiting);
    free(s->heap);
    free(s->seen);
    free(s);
}

int tune_states_count(const struct tune_states *s)
{
    return s->count;
}

const struct tune_state *tune_states_get(const struct tune_states *s, int place)
{
    return &s->list[place];
}

bool tune_states_close(struct tune_states *s, int64_t most)
{
    for (int round = 0; s->heap_count; round++) {
        if (s->units > (double)most)
            return false;
        try_edits(s, s->waiting[heap_pop(s)].edits, true);
        if (round % SHOWN_EVERY == 0)
            progress_count((int64_t)s->units, most);
    }
    return true;
}

void tune_states_step(struct tune_states *s, const struct tuned *from)
{
    s->heap_count = 0;
    propose(s, &from->job, from->edits, from->sequence_s, true);
    while (s->heap_count)
        try_edits(s, s->waiting[heap_pop(s)].edits, false);
}

int tune_states_near(const struct tune_states *s, int place, int *out)
{
    struct job_edits next[TUNE_NEAR_MOST];
    uint64_t wanted[TUNE_NEAR_MOST];
    bool free_alone = true;
    int count = 0;
    while (free_alone) {
        struct arena *scratch = arena_create();
        struct training_job job;
        const struct tune_state *state = &s->list[place];
        int proposed = job_trial_read(s->trials, state->edits, scratch, &job)
                           ? 0
                           : lead_to(s, &job, state->edits, false, next, &free_alone);
        for (int k = 0; k < proposed; k++)
            wanted[k] = hash_edits(&next[k], false);
        arena_free(scratch);
        count = 0;
        for (int i = 0; i < s->count && proposed; i++) {
            uint64_t key = hash_edits(&s->list[i].edits, false);
            for (int k = 0; k < proposed; k++)
                if (wanted[k] == key && count < TUNE_NEAR_MOST)
                    out[count++] = i;
        }
        if (free_alone && (!count || out[0] == place))
            return 0;
        free_alone = free_alone && proposed;
        place = count ? out[0] : place;
    }
    return count;
}

static int by_time(const void *x, const void *y, void *context)
{
    const struct tune_states *s = context;
    const struct tune_state *a = &s->list[*(const int *)x], *b = &s->list[*(const int *)y];
    if (a->sequence_s < b->sequence_s || b->sequence_s < a->sequence_s)
        return a->sequence_s < b->sequence_s ? -1 : 1;
    if (a->edits.count != b->edits.count)
        return a->edits.count < b->edits.count ? -1 : 1;
    return *(const int *)x - *(const int *)y;
}

void tune_states_sort(const struct tune_states *s, int *places, int count)
{
    qsort_r(places, (size_t)count, sizeof *places, by_time, (void *)s);
}

void tune_states_order(const struct tune_states *s, int from, int *order)
{
    for (int i = from; i < s->count; i++)
        order[i - from] = i;
    tune_states_sort(s, order, s->count - from);
}

/* ---- twins and kinds ---- */

/* Whether at least as much is made again. */
static bool remakes_more(const struct tune_shape *a, const struct tune_shape *b)
{
    bool whole = a->recompute == WORKLOAD_FULL && !a->remade_layers;
    if (whole || b->recompute == WORKLOAD_KEEPS_ALL)
        return true;
    if (a->recompute != b->recompute)
        return false;
    bool layers = !a->remade_layers || (b->remade_layers && a->remade_layers >= b->remade_layers);
    return layers && (a->recompute != WORKLOAD_MODULES || (a->modules & b->modules) == b->modules);
}

bool tune_states_needs_less(const struct tune_state *less, const struct tune_state *more)
{
    int64_t a = less->shape.chunks, b = more->shape.chunks;
    return less->twins == more->twins && less->shape.micro_batch <= more->shape.micro_batch &&
           (a == b || a == 1 || (a > b && b > 1)) && remakes_more(&less->shape, &more->shape);
}

static bool shapes_are_alike(struct tune_shape a, struct tune_shape b)
{
    return a.tp == b.tp && a.pp == b.pp && a.cp == b.cp && a.sharding == b.sharding &&
           a.recompute == b.recompute && a.attention == b.attention && a.loss == b.loss &&
           a.offloads == b.offloads && a.halves == b.halves;
}

bool tune_states_alike(const struct tune_state *state, const struct workload *workload)
{
    return shapes_are_alike(state->shape, shape_of(workload));
}

bool tune_states_are_alike(const struct workload *one, const struct workload *other)
{
    return shapes_are_alike(shape_of(one), shape_of(other));
}
