#include "planner/stage_choice.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------- bytes */

/* A stage with so many layers, while the sets of those above the lowest are chosen. */
struct fitting {
    const struct stages *stages;
    const struct stage *stage;
    const struct costs *costs;
    int64_t layers, states;
    int lowest;             /* option of the lowest layer where that is a part of its own; else -1 */
    struct pile bottoms[2]; /* the end below, and the lowest layer if it is apart */
};

static struct fitting fitting_of(const struct stages *stages, int64_t stage_number, int64_t layers)
{
    const struct stage *stage = &stages->list[stage_number];
    return (struct fitting){
        stages, stage, stage->costs, layers, stage->state_bytes + layers * stage->layer_state_bytes,
        -1,     {{0}}};
}

static bool has_first(const struct fitting *f)
{
    return f->costs->first_differs && f->stage->number == 0;
}

/* `option` of the lowest layer; ignored where that is like the others. */
static void set_lowest(struct fitting *f, int option)
{
    f->lowest = has_first(f) ? option : -1;
    for (int kind = 0; kind < f->stage->kinds; kind++) {
        enum cost_part part = f->stage->bottom[kind];
        f->bottoms[kind] = f->costs->piles[part];
        if (f->lowest >= 0) {
            const struct cost_option *o = &f->costs->options[option];
            f->bottoms[kind] = pile_on(f->bottoms[kind], part == COST_EMBED ? o->first_pile : o->pile);
        }
    }
}

/* Layers above the lowest where that is apart. */
static int64_t free_layers(const struct fitting *f)
{
    return f->layers - (f->lowest >= 0);
}

static int64_t pass_bytes(const struct pile *pile, enum schedule_work work)
{
    return work == SCHEDULE_FORWARD           ? pile->forward
           : work == SCHEDULE_BACKWARD_WEIGHT ? pile->weight
                                              : pile->backward;
}

static int64_t peak_with(const struct fitting *f, struct pile layers, struct stage_moment *worst)
{
    struct pile piles[2] = {{0}, {0}};
    int64_t peak = f->states;
    for (int kind = 0; kind < f->stage->kinds; kind++)
        piles[kind] = pile_on(pile_on(f->bottoms[kind], layers), f->costs->piles[f->stage->top[kind]]);
    for (int i = 0; i < f->stage->moment_count; i++) {
        const struct stage_moment *m = &f->stage->moments[i];
        int64_t bytes = f->states + pass_bytes(&piles[m->kind], m->work) + m->kept[0] * piles[0].saved +
                        m->kept[1] * piles[1].saved + m->later[0] * piles[0].later +
                        m->later[1] * piles[1].later;
        if (bytes > peak && worst)
            *worst = *m;
        peak = max_i64(peak, bytes);
    }
    return peak;
}

int64_t stage_choice_peak(const struct stages *stages, int64_t stage, int64_t layers, const int *options,
                          struct stage_moment *moment)
{
    struct fitting f = fitting_of(stages, stage, layers);
    struct pile pile = {0};
    set_lowest(&f, options[0]);
    for (int64_t i = layers - free_layers(&f); i < layers; i++)
        pile = pile_on(pile, f.costs->options[options[i]].pile);
    return peak_with(&f, pile, moment);
}

/* ------------------------------------------------------------------------------------------------------------ choice */

/* A choice for the uppermost layers, in a search that goes from the top down. */
struct partial {
    struct pile pile;
    double seconds;
    int option, place; /* of its lowest layer; the first in the order of options that may lie below */
    int parent;        /* in the list of partials */
};

struct choosing {
    struct fitting fitting;
    int64_t room;
    struct partial *partials;
    int count, capacity, level; /* level: where the partials of this many layers begin */
    bool cut;                   /* there were too many to try all */
    double best_s;              /* of what is known to fit */
    int64_t best_peak;
    int *best;     /* options from the bottom up, above the lowest if that is apart */
    int64_t spent; /* comparisons so far */
};

void stage_choice_clear(struct stage_choice *choice)
{
    free(choice->options);
    choice->options = NULL;
}

static bool takes_over(const struct choosing *c, double seconds, int64_t peak)
{
    return peak <= c->room && (seconds < c->best_s || (seconds == c->best_s && peak < c->best_peak));
}

/* `count` layers of option `b` below, the others of option `a`. */
static bool try_pair(struct choosing *c, int a, int b, int64_t count)
{
    const struct cost_option *options = c->fitting.costs->options;
    int64_t layers = free_layers(&c->fitting);
    struct pile pile =
        pile_on(pile_times(options[b].pile, count), pile_times(options[a].pile, layers - count));
    int64_t peak = peak_with(&c->fitting, pile, NULL);
    c->spent += c->fitting.stage->moment_count;
    double seconds = (double)(layers - count) * options[a].seconds + (double)count * options[b].seconds;
    if (takes_over(c, seconds, peak)) {
        c->best_s = seconds;
        c->best_peak = peak;
        for (int64_t i = 0; i < layers; i++)
            c->best[i] = i < count ? b : a;
    }
    return peak <= c->room;
}

/* Of the best answer so far, one layer with another option. */
static void try_replacements(struct choosing *c)
{
    const struct cost_option *options = c->fitting.costs->options;
    int64_t layers = free_layers(&c->fitting), count = 0;
    int slower = c->best[0], faster = c->best[layers - 1];
    while (count < layers && c->best[count] == slower)
        count++;
    for (int other = 0; other < c->fitting.costs->option_count; other++)
        for (int64_t less = 0; less <= 1 && less < layers; less++) {
            int64_t below = count - less, above = layers - 1 - below;
            if (below < 0 || above < 0)
                continue;
            struct pile pile = pile_on(pile_on(pile_times(options[slower].pile, below), options[other].pile),
                                       pile_times(options[faster].pile, above));
            double seconds = (double)below * options[slower].seconds + options[other].seconds +
                             (double)above * options[faster].seconds;
            int64_t peak = peak_with(&c->fitting, pile, NULL);
            c->spent += c->fitting.stage->moment_count;
            if (!takes_over(c, seconds, peak))
                continue;
            c->best_s = seconds;
            c->best_peak = peak;
            for (int64_t i = 0; i < layers; i++)
                c->best[i] = i < below ? slower : i == below ? other : faster;
        }
}

/* As few layers of the slower one as fit. */
static void try_counts(struct choosing *c, int faster, int slower)
{
    int64_t low = 0, high = free_layers(&c->fitting);
    if (!try_pair(c, faster, slower, high))
        return;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        *(try_pair(c, faster, slower, middle) ? &high : &low) = middle;
    }
    try_pair(c, faster, slower, 0);
}

/* A first answer, so that the search has something to beat: of pairs of options on the hull, and every option alone. */
static void try_pairs(struct choosing *c)
{
    const struct costs *costs = c->fitting.costs;
    const struct cost_suffix *all = &costs->suffixes[0];
    double before_s = c->best_s;
    for (int i = 0; i < costs->option_count; i++)
        if (try_pair(c, i, i, 0))
            break; /* those that follow are slower */
    for (int b = 1; b < all->hull_count; b++)
        for (int a = 0; a < b; a++)
            try_counts(c, all->hull[a].option, all->hull[b].option);
    if (c->best_s < before_s && free_layers(&c->fitting) > 0)
        try_replacements(c);
}

/* The most that layers below a partial can keep together. In every pass the lowest of those above, and the highest of those
 * below, need what they need while all others keep what they keep; and in backward the lowest layer of all does while those
 * above keep what their weight halves need. */
static double most_saved(const struct choosing *c, const struct partial *p, int64_t left)
{
    const struct fitting *f = &c->fitting;
    const struct cost_suffix *below = &f->costs->suffixes[p->place];
    double most = 1e300;
    for (int i = 0; i < f->stage->moment_count; i++) {
        const struct stage_moment *m = &f->stage->moments[i];
        if (m->work == SCHEDULE_BACKWARD_WEIGHT)
            continue;
        bool forward = m->work == SCHEDULE_FORWARD;
        int64_t beyond = forward ? below->forward_beyond : below->backward_beyond, others = 0, kept = 0;
        struct pile upper = pile_on(p->pile, f->costs->piles[f->stage->top[m->kind]]);
        for (int kind = 0; kind < f->stage->kinds; kind++) {
            const struct pile *top = &f->costs->piles[f->stage->top[kind]];
            kept += m->kept[kind];
            others += m->kept[kind] * (f->bottoms[kind].saved + p->pile.saved + top->saved) +
                      m->later[kind] *
                          (f->bottoms[kind].later + p->pile.later + top->later + left * below->least.later);
        }
        int64_t room = c->room - f->states - others - f->bottoms[m->kind].saved;
        int64_t high = room - max_i64(pass_bytes(&upper, m->work), beyond);
        int64_t low = room - upper.later - (left - 1) * below->least.later - below->least.backward;
        most = fmin(most, (double)high / (double)(kept + 1));
        if (!forward && kept)
            most = fmin(most, (double)low / (double)kept);
    }
    return most;
}

/* No way to finish it is faster than what is known, or fits. Layers that follow keep no less than the hull says for their
 * time, and need no less than the least of each kind. */
static bool is_hopeless(const struct choosing *c, const struct partial *p, int64_t left)
{
    const struct cost_suffix *below = &c->fitting.costs->suffixes[p->place];
    double seconds = p->seconds;
    if (left > 0)
        seconds += (double)left * costs_least_recompute(below, most_saved(c, p, left) / (double)left);
    /* Sums in another order differ in the last bits. */
    if (seconds * (1 + 1e-12) >= c->best_s)
        return true;
    return peak_with(&c->fitting, pile_on(pile_times(below->least, left), p->pile), NULL) > c->room;
}

static bool pile_is_covered(const struct partial *a, const struct partial *b)
{
    return a->place <= b->place && a->seconds <= b->seconds && a->pile.saved <= b->pile.saved &&
           a->pile.later <= b->pile.later && a->pile.forward <= b->pile.forward &&
           a->pile.backward <= b->pile.backward && a->pile.weight <= b->pile.weight;
}

static bool tries_orders(const struct choosing *c)
{
    return c->fitting.stages->layout.schedule == SCHEDULE_ZB_H1;
}

/* Some milliseconds; where all orders are tried there is less to be had from trying more. */
static int most_partials(const struct choosing *c)
{
    const int64_t *effort = c->fitting.stages->effort;
    if (effort && c->spent >= *effort)
        return 0;
    return tries_orders(c) ? 1000 : 4000;
}

static void add_partial(struct choosing *c, struct partial p, int64_t left)
{
    c->spent += 2 * c->fitting.stage->moment_count;
    if (c->cut || is_hopeless(c, &p, left))
        return;
    c->spent += c->count - c->level;
    c->cut = c->count >= most_partials(c);
    for (int i = c->level; i < c->count; i++)
        if (pile_is_covered(&c->partials[i], &p))
            return;
    if (c->count == c->capacity) {
        c->capacity = 2 * c->capacity + 64;
        c->partials = host_resize(c->partials, (size_t)c->capacity * sizeof *c->partials);
    }
    c->partials[c->count++] = p;
}

static void take_over(struct choosing *c, int partial)
{
    const struct partial *p = &c->partials[partial];
    int64_t peak = peak_with(&c->fitting, p->pile, NULL), at = 0;
    if (!takes_over(c, p->seconds, peak))
        return;
    c->best_s = p->seconds;
    c->best_peak = peak;
    for (; p->parent >= 0; p = &c->partials[p->parent])
        c->best[at++] = p->option;
}

/* Exact: all sets for each layer, level by level from the top, without what another partial beats in every respect: whatever
 * lies below, that one needs no more and is no slower. */
static void search_choice(struct choosing *c)
{
    const struct costs *costs = c->fitting.costs;
    int64_t layers = free_layers(&c->fitting);
    c->count = c->level = 0;
    c->cut = false;
    add_partial(c, (struct partial){.parent = -1}, layers);
    int begin = 0;
    for (int64_t done = 1; done <= layers; done++) {
        int end = c->count;
        c->level = end;
        for (int i = begin; i < end; i++)
            for (int place = c->partials[i].place; place < costs->option_count; place++) {
                const struct cost_option *option = &costs->options[costs->order[place]];
                const struct partial *above = &c->partials[i];
                struct partial longer = {pile_on(option->pile, above->pile), above->seconds + option->seconds,
                                         costs->order[place], tries_orders(c) ? 0 : place, i};
                add_partial(c, longer, layers - done);
            }
        begin = end;
    }
    for (int i = begin; i < c->count && layers > 0 && !c->cut; i++)
        take_over(c, i);
}

/* Of all layers that are chosen; where all were tried, what the best takes. */
static double least_seconds(const struct choosing *c)
{
    const struct partial none = {.parent = -1};
    int64_t layers = free_layers(&c->fitting);
    if (!c->cut)
        return c->best_s;
    return (double)layers * costs_least_recompute(&c->fitting.costs->suffixes[0],
                                                  most_saved(c, &none, layers) / (double)layers);
}

/* With this set in the lowest layer, where that is apart; keeps *out unless it finds a faster one. */
static void choose_with_lowest(struct choosing *c, int lowest, struct stage_choice *out)
{
    const struct cost_option *options = c->fitting.costs->options;
    struct fitting *f = &c->fitting;
    set_lowest(f, lowest);
    double lowest_s[2] = {0, 0};
    for (int kind = 0; kind < f->stage->kinds && f->lowest >= 0; kind++)
        lowest_s[kind] =
            f->stage->bottom[kind] == COST_EMBED ? options[lowest].first_seconds : options[lowest].seconds;
    double known_s = out->options ? out->recompute_s[f->stage->kinds - 1] : 1e300;
    c->best_s = known_s - lowest_s[f->stage->kinds - 1];
    c->best_peak = 0;
    double before_s = c->best_s;
    try_pairs(c);
    search_choice(c);
    double least_s = least_seconds(c);
    if (c->best_s >= before_s) {
        for (int kind = 0; kind < 2 && c->cut; kind++)
            out->least_s[kind] = fmin(out->least_s[kind], least_s + lowest_s[kind]);
        return;
    }
    if (out->options && out->least_s[0] < out->recompute_s[0])
        least_s = fmin(least_s, out->least_s[0] - lowest_s[0]);
    stage_choice_clear(out);
    int64_t apart = f->lowest >= 0;
    *out = (struct stage_choice){.layers = f->layers,
                                 .recompute_s = {c->best_s + lowest_s[0], c->best_s + lowest_s[1]},
                                 .least_s = {least_s + lowest_s[0], least_s + lowest_s[1]},
                                 .peak_bytes = c->best_peak,
                                 .options = host_alloc((size_t)f->layers * sizeof *out->options)};
    out->options[0] = lowest;
    memcpy(out->options + apart, c->best, (size_t)free_layers(f) * sizeof *c->best);
}

bool stage_choice_find(const struct stages *stages, int64_t stage, int64_t layers, int64_t room,
                       struct stage_choice *out)
{
    const struct costs *costs = stages->list[stage].costs;
    struct choosing c = {.fitting = fitting_of(stages, stage, layers),
                         .room = room,
                         .best = host_alloc((size_t)layers * sizeof *c.best)};
    *out = (struct stage_choice){0};
    for (int i = 0; i < (has_first(&c.fitting) ? costs->option_count : 1); i++)
        choose_with_lowest(&c, i, out);
    if (stages->effort)
        *stages->effort -= c.spent;
    free(c.best);
    free(c.partials);
    return out->options;
}
