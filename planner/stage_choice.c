#include "planner/stage_choice.h"

#include "base/arena.h"
#include "base/checked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------- bytes */

/* What a chunk with the embedding or the head has in common with others. */
enum likeness { LIKE_EVEN, LIKE_LARGER, LIKE_NONE };

static enum likeness end_is(const struct stage_form *form)
{
    int64_t end = form->heights[CHUNK_END];
    return end == form->heights[CHUNK_EVEN]                                   ? LIKE_EVEN
           : end == form->heights[CHUNK_LARGER] && form->counts[CHUNK_LARGER] ? LIKE_LARGER
                                                                              : LIKE_NONE;
}

static enum likeness likeness_of(const struct stage_form *form, enum chunk_kind kind)
{
    return kind == CHUNK_EVEN ? LIKE_EVEN : kind == CHUNK_LARGER ? LIKE_LARGER : end_is(form);
}

int stage_choice_option(const struct stage_choice *choice, enum chunk_kind kind, int64_t layer)
{
    switch (likeness_of(&choice->form, kind)) {
    case LIKE_EVEN:
        return choice->options[layer];
    case LIKE_LARGER:
        return layer ? choice->options[layer - 1] : choice->odd;
    default:
        return choice->odd;
    }
}

/* A stage, while the sets of the layers are chosen that even chunks have above their lowest. */
struct fitting {
    const struct stages *stages;
    const struct stage *stage;
    const struct costs *costs;
    const struct stage_form *form;
    const struct stage_moments *moments;
    int64_t states;
    bool first; /* the lowest layer of even chunks is apart: the model's first is a part of its own */
    struct pile bottoms[CHUNK_KINDS]; /* the end below, and the layers that are apart */
    double apart_s[CHUNK_KINDS];      /* their recomputation */
    bool has_even[CHUNK_KINDS];       /* the layers of even chunks lie above */
    double even_chunks;               /* that have them */
};

static struct fitting fitting_at(const struct stages *stages, int64_t number, const struct stage_form *form,
                                 const struct stage_moments *moments)
{
    const struct stage *stage = &stages->list[number];
    struct fitting f = {.stages = stages,
                        .stage = stage,
                        .costs = stage->costs,
                        .form = form,
                        .moments = moments,
                        .states = stage->state_bytes + form->split.layers * stage->layer_state_bytes,
                        .first = stage->costs->first_differs && number == 0};
    for (int kind = 0; kind < form->kinds; kind++) {
        f.has_even[kind] = likeness_of(form, (enum chunk_kind)kind) != LIKE_NONE;
        f.even_chunks += f.has_even[kind] ? (double)form->counts[kind] : 0;
    }
    return f;
}

static struct fitting fitting_of(const struct stages *stages, int64_t number, const struct stage_form *form)
{
    return fitting_at(stages, number, form, stages_moments(stages, number, form));
}

/* Is any layer apart, so that its option must be chosen? */
static bool has_apart(const struct fitting *f)
{
    return f->first || f->form->counts[CHUNK_LARGER] ||
           (f->stage->apart && end_is(f->form) == LIKE_NONE && f->form->heights[CHUNK_END]);
}

/* `option` of the layers that are apart. */
static void set_apart(struct fitting *f, int option)
{
    const struct cost_option *o = &f->costs->options[option];
    for (int kind = 0; kind < f->form->kinds; kind++) {
        enum cost_part part = f->stage->bottom[kind];
        enum likeness like = likeness_of(f->form, (enum chunk_kind)kind);
        bool embed = part == COST_EMBED && f->first;
        int64_t layers = like == LIKE_NONE ? f->form->heights[kind] : like == LIKE_LARGER || f->first;
        f->apart_s[kind] = (double)layers * (embed ? o->first_seconds : o->seconds);
        f->bottoms[kind] =
            pile_on(f->costs->piles[part], embed ? o->first_pile : pile_times(o->pile, layers));
    }
}

/* Layers of even chunks above those that are apart. */
static int64_t free_layers(const struct fitting *f)
{
    return f->form->heights[CHUNK_EVEN] - f->first;
}

static int64_t pass_bytes(const struct pile *pile, enum schedule_work work)
{
    return work == SCHEDULE_FORWARD           ? pile->forward
           : work == SCHEDULE_BACKWARD_WEIGHT ? pile->weight
                                              : pile->backward;
}

static int64_t peak_with(const struct fitting *f, struct pile layers, struct stage_moment *worst)
{
    struct pile piles[CHUNK_KINDS] = {{0}};
    int64_t peak = f->states;
    for (int kind = 0; kind < f->form->kinds; kind++) {
        struct pile lower = f->has_even[kind] ? pile_on(f->bottoms[kind], layers) : f->bottoms[kind];
        piles[kind] = pile_on(lower, f->costs->piles[f->stage->top[kind]]);
    }
    for (int i = 0; i < f->moments->count; i++) {
        const struct stage_moment *m = &f->moments->list[i];
        int64_t bytes = f->states + pass_bytes(&piles[m->kind], m->work);
        for (int kind = 0; kind < f->form->kinds; kind++)
            bytes += m->kept[kind] * piles[kind].saved + m->later[kind] * piles[kind].later;
        if (bytes > peak && worst)
            *worst = *m;
        peak = max_i64(peak, bytes);
    }
    return peak;
}

int64_t stage_choice_peak(const struct stages *stages, int64_t stage, const struct stage_choice *choice,
                          struct stage_moment *moment)
{
    struct fitting f = fitting_of(stages, stage, &choice->form);
    struct pile pile = {0};
    set_apart(&f, f.first ? choice->options[0] : choice->odd);
    for (int64_t i = f.first; i < choice->form.heights[CHUNK_EVEN]; i++)
        pile = pile_on(pile, f.costs->options[choice->options[i]].pile);
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
    c->spent += c->fitting.moments->count;
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
            c->spent += c->fitting.moments->count;
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
    for (int i = 0; i < f->moments->count; i++) {
        const struct stage_moment *m = &f->moments->list[i];
        if (m->work == SCHEDULE_BACKWARD_WEIGHT || !f->has_even[m->kind])
            continue;
        bool forward = m->work == SCHEDULE_FORWARD;
        int64_t beyond = forward ? below->forward_beyond : below->backward_beyond, others = 0, kept = 0;
        struct pile upper = pile_on(p->pile, f->costs->piles[f->stage->top[m->kind]]);
        for (int kind = 0; kind < f->form->kinds; kind++) {
            const struct pile *top = &f->costs->piles[f->stage->top[kind]];
            bool even = f->has_even[kind];
            kept += even ? m->kept[kind] : 0;
            others += m->kept[kind] * (f->bottoms[kind].saved + (even ? p->pile.saved : 0) + top->saved) +
                      m->later[kind] * (f->bottoms[kind].later + (even ? p->pile.later : 0) + top->later +
                                        (even ? left * below->least.later : 0));
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

/* Some milliseconds, and no more than a part of what is left for all. Where all orders are tried there is less to be had from trying more; and where an end has a set of its own all is
 * tried anew with each. */
static int most_partials(const struct choosing *c)
{
    const struct fitting *f = &c->fitting;
    const int64_t *effort = f->stages->effort;
    enum { PARTS = 16 };
    if (effort && c->spent >= *effort / PARTS)
        return 0;
    return tries_orders(c) ? 1000 : has_apart(f) && !f->first ? 100 : 4000;
}

static void add_partial(struct choosing *c, struct partial p, int64_t left)
{
    c->spent += 2 * c->fitting.moments->count;
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

/* Where not all were tried with these layers apart, other choices may need less. */
static void lower_least(const struct choosing *c, double apart_s, struct stage_choice *out)
{
    const struct fitting *f = &c->fitting;
    double least_s = least_seconds(c), total_s = apart_s + f->even_chunks * least_s;
    if (out->options && total_s >= out->total_s)
        return;
    out->least_total_s = fmin(out->least_total_s, total_s);
    for (int kind = 0; kind < f->form->kinds; kind++)
        out->least_s[kind] = fmin(out->least_s[kind], (f->has_even[kind] ? least_s : 0) + f->apart_s[kind]);
}

static void take_choice(const struct choosing *c, int apart, double apart_s, struct stage_choice *out)
{
    const struct fitting *f = &c->fitting;
    free(out->options);
    out->options = host_alloc((size_t)max_i64(f->form->heights[CHUNK_EVEN], 1) * sizeof *out->options);
    out->options[0] = out->odd = apart;
    memcpy(out->options + f->first, c->best, (size_t)free_layers(f) * sizeof *c->best);
    out->total_s = apart_s + f->even_chunks * c->best_s;
    out->peak_bytes = c->best_peak;
    for (int kind = 0; kind < f->form->kinds; kind++)
        out->recompute_s[kind] = (f->has_even[kind] ? c->best_s : 0) + f->apart_s[kind];
}

/* With this set in the layers that are apart; keeps *out unless it finds a faster one. */
static void choose_with_apart(struct choosing *c, int apart, struct stage_choice *out)
{
    struct fitting *f = &c->fitting;
    double apart_s = 0;
    set_apart(f, apart);
    for (int kind = 0; kind < f->form->kinds; kind++)
        apart_s += (double)f->form->counts[kind] * f->apart_s[kind];
    /* Sums in another order differ in the last bits. */
    c->best_s = out->options ? (out->total_s * (1 - 1e-12) - apart_s) / f->even_chunks : 1e300;
    c->best_peak = 0;
    const struct partial none = {.parent = -1};
    double before_s = c->best_s;
    c->spent += c->fitting.moments->count;
    if (before_s <= 0 || is_hopeless(c, &none, free_layers(f)))
        return;
    try_pairs(c);
    search_choice(c);
    if (c->best_s < before_s)
        take_choice(c, apart, apart_s, out);
    if (c->cut)
        lower_least(c, apart_s, out);
}

/* Of an interleaved stage, the first backward, without going through the schedule: all before it were forwards, of each chunk in turn. */
static struct stage_moment first_backward(const struct stages *stages, int64_t number,
                                          const struct stage_form *form)
{
    const struct layout *l = &stages->layout;
    int64_t last = l->virtual_stages - 1, round = l->pp * l->virtual_stages;
    int64_t pairs = stages_in_flight(l, number), over = pairs % round;
    struct stage_moment moment = {.work = SCHEDULE_BACKWARD,
                                  .kind = (int)stages_kind(stages, number, form, last)};
    for (int64_t i = 0; i <= last; i++)
        moment.kept[stages_kind(stages, number, form, i)] +=
            pairs / round * l->pp + min_i64(max_i64(over - i * l->pp, 0), l->pp);
    moment.kept[moment.kind]--;
    return moment;
}

bool stage_choice_least(const struct stages *stages, int64_t stage, const struct stage_form *form,
                        int64_t room, double least_s[CHUNK_KINDS])
{
    struct stage_moment moment = first_backward(stages, stage, form);
    struct stage_moments moments = {&moment, 1};
    struct choosing c = {.fitting = fitting_at(stages, stage, form, &moments), .room = room};
    struct fitting *f = &c.fitting;
    const struct cost_suffix *all = &f->costs->suffixes[0];
    const struct partial none = {.parent = -1};
    int64_t layers = form->heights[CHUNK_EVEN];
    for (int kind = 0; kind < form->kinds; kind++) {
        enum likeness like = likeness_of(form, (enum chunk_kind)kind);
        int64_t apart = like == LIKE_NONE ? form->heights[kind] : like == LIKE_LARGER;
        f->bottoms[kind] = pile_on(f->costs->piles[f->stage->bottom[kind]], pile_times(all->least, apart));
    }
    if (peak_with(f, pile_times(all->least, layers), NULL) > room)
        return false;
    double each = costs_least_recompute(all, most_saved(&c, &none, layers) / (double)layers);
    for (int kind = 0; kind < form->kinds; kind++)
        least_s[kind] = f->has_even[kind] ? (double)layers * each : 0;
    return true;
}

bool stage_choice_find(const struct stages *stages, int64_t stage, const struct stage_form *form,
                       int64_t room, struct stage_choice *out)
{
    struct choosing c = {.fitting = fitting_of(stages, stage, form),
                         .room = room,
                         .best = host_alloc((size_t)form->heights[CHUNK_EVEN] * sizeof *c.best)};
    const struct cost_suffix *all = &c.fitting.costs->suffixes[0];
    *out = (struct stage_choice){
        .form = *form, .least_s = {INFINITY, INFINITY, INFINITY}, .least_total_s = INFINITY};
    if (c.fitting.first)
        for (int i = 0; i < c.fitting.costs->option_count; i++)
            choose_with_apart(&c, i, out);
    else
        for (int i = 0; i < (has_apart(&c.fitting) ? all->hull_count : 1); i++)
            choose_with_apart(&c, all->hull[i].option, out);
    out->least_total_s = fmin(out->least_total_s, out->total_s);
    for (int kind = 0; kind < CHUNK_KINDS; kind++)
        out->least_s[kind] = out->least_total_s < out->total_s
                                 ? fmin(out->least_s[kind], out->recompute_s[kind])
                                 : out->recompute_s[kind];
    if (stages->effort)
        *stages->effort -= c.spent;
    free(c.best);
    free(c.partials);
    return out->options;
}
