#include "planner/shown_chains.h"

#include "base/arena.h"
#include "base/checked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHOWN = 32, WORKS = SCHEDULE_BACKWARD_WEIGHT + 1 };

struct shown {
    struct schedule_chain chain;
    double messages_s; /* all of them */
    int64_t after;     /* the stage whose part when all have met counts; -1: none */
    double *own_s;     /* of each cell of the options */
    double *
        rest_s; /* [stage * (layers + 1) + layers left]: least of this stage and those behind it; infinite: no way */
    double *taken_s; /* [stage]: of the cells before it that have been taken */
    int64_t helped;  /* when it last told more than the others */
};

/* A cell, and with how many layers left it may be taken. */
struct option {
    const struct cell *cell;
    int64_t left;
};

struct shown_chains {
    const struct cells *cells;
    struct known_schedule *known;
    int64_t pp, layers, chunks;
    struct shown list[MOST_SHOWN];
    int count;
    struct option *options;
    const struct cell **numbered; /* the cells of the options */
    int option_count, option_room, cell_count, cell_room;
    const struct cell **taken; /* [stage] */
    bool with_tails;
    int64_t now, effort;
};

/* A new one, or the one that has not helped for longest. */
static struct shown *place_for_one(struct shown_chains *s)
{
    int oldest = 0;
    for (int i = 1; i < s->count; i++)
        oldest = s->list[i].helped < s->list[oldest].helped ? i : oldest;
    if (s->count == MOST_SHOWN)
        return &s->list[oldest];
    struct shown *shown = &s->list[s->count++];
    shown->chain.counts = host_alloc((size_t)(WORKS * s->chunks) * sizeof *shown->chain.counts);
    shown->rest_s = host_alloc((size_t)((s->pp + 1) * (s->layers + 1)) * sizeof *shown->rest_s);
    shown->taken_s = host_alloc((size_t)(s->pp + 1) * sizeof *shown->taken_s);
    return shown;
}

static void take_known(struct shown_chains *s)
{
    for (int64_t i = 0; i < min_i64(s->known->chain_count, SCHEDULE_CHAINS); i++) {
        const struct schedule_chain *chain = &s->known->chains[i];
        struct shown *shown = place_for_one(s);
        memcpy(shown->chain.counts, chain->counts, (size_t)(WORKS * s->chunks) * sizeof *chain->counts);
        shown->chain.messages = chain->messages;
        shown->chain.end = chain->end;
        shown->messages_s = (double)chain->messages * s->cells->message_s;
        shown->after = -1;
    }
}

struct shown_chains *shown_chains_open(const struct cells *cells, struct known_schedule *known)
{
    struct shown_chains *s = host_alloc(sizeof *s);
    *s = (struct shown_chains){.cells = cells,
                               .known = known,
                               .pp = cells->pp,
                               .layers = cells->layers,
                               .chunks = layout_chunks(&cells->stages->layout),
                               .taken = host_alloc((size_t)cells->pp * sizeof *s->taken)};
    take_known(s);
    return s;
}

void shown_chains_close(struct shown_chains *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->count; i++) {
        free(s->list[i].chain.counts);
        free(s->list[i].own_s);
        free(s->list[i].rest_s);
        free(s->list[i].taken_s);
    }
    free(s->options);
    free(s->numbered);
    free(s->taken);
    free(s);
}

/* What the cell puts into the chain. */
static double cell_seconds(const struct shown_chains *s, const struct shown *shown, const struct cell *cell)
{
    const struct stages *stages = s->cells->stages;
    int64_t stage = cell->stage;
    struct stage_passes passes[CHUNK_KINDS];
    double seconds = s->with_tails && stage == shown->chain.end ? cell->sum_s : 0;
    seconds += s->with_tails && stage == shown->after ? cell->after_s : 0;
    for (int kind = 0; kind < cell->form.kinds; kind++)
        passes[kind] = stages_passes(stages, stage, &cell->form, kind, cell->choice.least_s[kind]);
    for (int64_t i = 0, chunk = stage; chunk < s->chunks; i++, chunk += s->pp) {
        const struct stage_passes *p = &passes[stages_kind(stages, stage, &cell->form, i)];
        const int *counts = &shown->chain.counts[chunk];
        double both = counts[SCHEDULE_BACKWARD * s->chunks];
        seconds += counts[SCHEDULE_FORWARD * s->chunks] * p->forward_s +
                   (both + counts[SCHEDULE_BACKWARD_INPUT * s->chunks]) * p->input_s +
                   (both + counts[SCHEDULE_BACKWARD_WEIGHT * s->chunks]) * p->weight_s;
    }
    return seconds;
}

/* From the last stage on. */
static void find_rest(struct shown_chains *s, struct shown *shown)
{
    int64_t row = s->layers + 1;
    shown->own_s = host_resize(shown->own_s, (size_t)max_i64(s->cell_count, 1) * sizeof *shown->own_s);
    for (int i = 0; i < s->cell_count; i++)
        shown->own_s[i] = cell_seconds(s, shown, s->numbered[i]);
    for (int64_t i = 0; i < row * (s->pp + 1); i++)
        shown->rest_s[i] = INFINITY;
    shown->rest_s[s->pp * row] = 0;
    for (int i = 0; i < s->option_count; i++) {
        const struct cell *cell = s->options[i].cell;
        double *rest_s = &shown->rest_s[cell->stage * row];
        int64_t left = s->options[i].left;
        double with_s = shown->own_s[cell->number] + rest_s[row + left - cell->form.split.layers];
        rest_s[left] = with_s < rest_s[left] ? with_s : rest_s[left];
    }
    s->effort += s->option_count + (s->cell_count * (s->chunks / s->pp + 4) + row * s->pp) / 4;
}

void shown_chains_forget(struct shown_chains *s, bool with_tails)
{
    s->with_tails = with_tails;
    s->option_count = s->cell_count = 0;
}

static void number_cell(struct shown_chains *s, struct cell *cell)
{
    if (s->cell_count == s->cell_room) {
        s->cell_room = 2 * s->cell_room + 64;
        s->numbered = host_resize(s->numbered, (size_t)s->cell_room * sizeof *s->numbered);
    }
    cell->number = s->cell_count;
    s->numbered[s->cell_count++] = cell;
}

void shown_chains_allow(struct shown_chains *s, struct cell *cell, int64_t left)
{
    if (!s->option_count || s->options[s->option_count - 1].cell != cell)
        number_cell(s, cell);
    if (s->option_count == s->option_room) {
        s->option_room = 2 * s->option_room + 64;
        s->options = host_resize(s->options, (size_t)s->option_room * sizeof *s->options);
    }
    s->options[s->option_count++] = (struct option){cell, left};
}

void shown_chains_begin(struct shown_chains *s)
{
    for (int i = 0; i < s->count; i++)
        find_rest(s, &s->list[i]);
}

double shown_chains_least(const struct shown_chains *s)
{
    double least_s = 0;
    for (int i = 0; i < s->count; i++)
        least_s = fmax(least_s, s->list[i].messages_s + s->list[i].rest_s[s->layers]);
    return least_s;
}

double shown_chains_with(struct shown_chains *s, const struct cell *cell, int64_t left)
{
    double most_s = 0;
    int64_t stage = cell->stage, rest = (stage + 1) * (s->layers + 1) + left - cell->form.split.layers;
    int best = 0;
    for (int i = 0; i < s->count; i++) {
        const struct shown *shown = &s->list[i];
        double with_s =
            shown->messages_s + shown->taken_s[stage] + shown->own_s[cell->number] + shown->rest_s[rest];
        best = with_s > most_s ? i : best;
        most_s = with_s > most_s ? with_s : most_s;
    }
    s->list[best].helped = ++s->now;
    s->effort += s->count / 2;
    return most_s;
}

void shown_chains_take(struct shown_chains *s, const struct cell *cell)
{
    s->taken[cell->stage] = cell;
    for (int i = 0; i < s->count; i++) {
        struct shown *shown = &s->list[i];
        shown->taken_s[cell->stage + 1] = shown->taken_s[cell->stage] + shown->own_s[cell->number];
    }
    s->effort += s->count;
}

void shown_chains_add(struct shown_chains *s, int64_t end, int64_t after)
{
    struct shown *shown = place_for_one(s);
    shown->chain.messages = timeline_way(s->known->timeline, end, shown->chain.counts);
    shown->chain.end = end;
    shown->messages_s = (double)shown->chain.messages * s->cells->message_s;
    shown->after = after;
    shown->helped = ++s->now;
    shown->taken_s[0] = 0;
    find_rest(s, shown);
    for (int64_t i = 0; i < s->pp; i++)
        shown->taken_s[i + 1] = shown->taken_s[i] + shown->own_s[s->taken[i]->number];
    known_schedule_add(s->known, &shown->chain);
}

int shown_chains_count(const struct shown_chains *s)
{
    return s->count;
}

int64_t shown_chains_effort(struct shown_chains *s)
{
    int64_t effort = s->effort;
    s->effort = 0;
    return effort;
}
