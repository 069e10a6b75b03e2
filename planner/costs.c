#include "planner/costs.h"

#include "base/arena.h"
#include "model/program_build.h"
#include "model/recompute.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A set before times are known: bytes of one sequence, and which forward operations it makes again. */
struct form {
    uint32_t mask;
    struct pile piles[2]; /* of a layer, and of the first */
    uint64_t again[2];
};

/* Bytes of states depend on how many ranks share them, and few numbers of ranks come up. */
enum { STATE_SLOTS = 64 };
struct part_states {
    struct {
        int64_t sharing; /* 0: empty */
        int64_t bytes[COST_PARTS];
    } slots[STATE_SLOTS];
};

/* Shared by all micro-batches. */
struct forms {
    struct forms *next;
    int64_t tp;
    bool sequence_parallel, piped, split;
    struct form *list; /* NULL until options are wanted */
    int count;
    struct block blocks[COST_PARTS];
    struct part_states states;
};

struct entry {
    struct entry *next;
    struct forms *forms;
    int64_t micro_batch, ranks;
    struct costs costs;
};

enum { BUCKETS = 1024 };

struct costs_cache {
    const struct model *model;
    const struct machine_speed *speed;
    const uint32_t *sets;
    int set_count;
    struct forms *forms;
    struct entry *entries[BUCKETS];
};

static bool first_differs(const struct model *model)
{
    return model->family == MODEL_ENCODER;
}

static bool splits(const struct layout *layout)
{
    return layout->schedule == SCHEDULE_ZB_H1 && layout->pp > 1;
}

/* Builds one part, not yet weighed. */
static void build_part(const struct model *model, const struct layout *layout, int64_t micro_batch,
                       enum cost_part part, uint32_t mask, struct block *out)
{
    struct model own = *model;
    struct block_shape shape = block_shape_of(layout);
    bool layer = part == COST_FIRST || part == COST_LAYER;
    shape.B = micro_batch;
    own.tied = model->tied && layout->pp == 1; /* of two stages each has its own */
    if (layer)
        block_build_layer(out, &own, shape, part == COST_FIRST && first_differs(model));
    else
        (part == COST_EMBED     ? block_build_embed
         : part == COST_RECEIVE ? block_build_receive
         : part == COST_HEAD    ? block_build_head
                                : block_build_send)(out, &own, shape);
    recompute_apply(out, mask);
    if (layer && splits(layout))
        block_split_backward(out);
    out->model = model;
}

static struct pile weigh(struct block *block)
{
    block_weigh(block);
    return (struct pile){block->saved_bytes, block->later_bytes, block->forward.bytes, block->backward.bytes,
                         block->weight.bytes};
}

/* ------------------------------------------------------------------------------------------------------------ forms */

static bool same_names(const struct block *block, const int8_t *a, const int8_t *b, int count)
{
    for (int i = 0; i < count; i++)
        if ((a[i] < 0) != (b[i] < 0) ||
            (a[i] >= 0 && strcmp(block->tensors[a[i]].name, block->tensors[b[i]].name)))
            return false;
    return true;
}

/* The forward operation that `again` repeats: of the same tensors, some of which live a second time and keep their names. */
static int repeated_op(const struct block *block, const struct op *again)
{
    for (int i = 0; i < block->forward_count; i++) {
        const struct op *op = &block->ops[i];
        if (op->kind == again->kind && same_names(block, op->inputs, again->inputs, OP_INPUTS) &&
            same_names(block, op->outputs, again->outputs, OP_OUTPUTS))
            return i;
    }
    assert(!"recomputation repeats forward operations only");
    return 0;
}

static uint64_t ops_again(const struct block *block)
{
    uint64_t ops = 0;
    for (int i = block->forward_count; i < block->op_count; i++)
        if (block->ops[i].flags & OP_RECOMPUTE)
            ops |= 1ULL << repeated_op(block, &block->ops[i]);
    return ops;
}

static struct form make_form(const struct costs_cache *cache, const struct layout *layout, uint32_t mask)
{
    struct form form = {.mask = mask};
    for (int first = 0; first <= first_differs(cache->model); first++) {
        struct block block;
        build_part(cache->model, layout, 1, first ? COST_FIRST : COST_LAYER, mask, &block);
        form.piles[first] = weigh(&block);
        form.again[first] = ops_again(&block);
    }
    if (!first_differs(cache->model)) {
        form.piles[1] = form.piles[0];
        form.again[1] = form.again[0];
    }
    return form;
}

static bool pile_covers(const struct pile *a, const struct pile *b)
{
    return a->saved <= b->saved && a->later <= b->later && a->forward <= b->forward &&
           a->backward <= b->backward && a->weight <= b->weight;
}

static bool form_covers(const struct form *a, const struct form *b)
{
    return pile_covers(&a->piles[0], &b->piles[0]) && pile_covers(&a->piles[1], &b->piles[1]) &&
           !(a->again[0] & ~b->again[0]) && !(a->again[1] & ~b->again[1]);
}

/* Of equals the first stays. Whatever operations take, the others are as good as one that stays. */
static void keep_best_forms(struct forms *forms)
{
    int kept = 0;
    for (int i = 0; i < forms->count; i++) {
        bool beaten = false;
        for (int k = 0; k < kept && !beaten; k++)
            beaten = form_covers(&forms->list[k], &forms->list[i]);
        for (int k = i + 1; k < forms->count && !beaten; k++)
            beaten = form_covers(&forms->list[k], &forms->list[i]) &&
                     !form_covers(&forms->list[i], &forms->list[k]);
        if (!beaten)
            forms->list[kept++] = forms->list[i];
    }
    forms->count = kept;
}

static void list_forms(const struct costs_cache *cache, const struct layout *layout, struct forms *forms)
{
    forms->count = cache->sets ? cache->set_count : (int)recompute_full(cache->model) + 1;
    forms->list = host_alloc((size_t)forms->count * sizeof *forms->list);
    for (int i = 0; i < forms->count; i++)
        forms->list[i] = make_form(cache, layout, cache->sets ? cache->sets[i] : (uint32_t)i);
    keep_best_forms(forms);
}

static struct forms *find_forms(struct costs_cache *cache, const struct layout *layout)
{
    struct forms *f = cache->forms;
    while (f && (f->tp != layout->tp || f->sequence_parallel != layout->sequence_parallel ||
                 f->piped != (layout->pp > 1) || f->split != splits(layout)))
        f = f->next;
    if (f)
        return f;
    f = host_alloc(sizeof *f);
    *f = (struct forms){.next = cache->forms,
                        .tp = layout->tp,
                        .sequence_parallel = layout->sequence_parallel,
                        .piped = layout->pp > 1,
                        .split = splits(layout)};
    for (int part = 0; part < COST_PARTS; part++)
        build_part(cache->model, layout, 1, (enum cost_part)part, 0, &f->blocks[part]);
    return cache->forms = f;
}

/* ------------------------------------------------------------------------------------------------------------ costs */

/* Enough of a program to ask for the work of its blocks. */
static struct program probe_of(const struct costs_cache *cache, const struct layout *layout)
{
    return (struct program){.model = *cache->model, .layout = *layout};
}

static void cost_parts(const struct costs_cache *cache, const struct layout *layout, struct costs *costs)
{
    struct program probe = probe_of(cache, layout);
    for (int part = 0; part < COST_PARTS; part++) {
        struct block block;
        build_part(cache->model, layout, layout->micro_batch, (enum cost_part)part, 0, &block);
        costs->times[part] = time_model_block(&probe, &block, cache->speed);
        if (part == COST_FIRST || part == COST_LAYER)
            costs->times[part].recompute = 0; /* that is the options' */
        costs->piles[part] = weigh(&block);
        if (part == COST_SEND)
            costs->message_bytes = block.tensors[block.ops[0].inputs[0]].bytes;
    }
    costs->first_differs = first_differs(cache->model);
}

/* As far as seconds know: which ranks share a node or its cores, and how many of them are one stage's. A number for each pair
 * of both. */
static int64_t ranks_class(const struct machine_speed *speed, const struct layout *layout)
{
    int64_t ranks = layout_ranks(layout);
    bool beyond = ranks > speed->ranks_per_node;
    return speed->cores && !beyond ? ranks * ranks + ranks / layout->pp : beyond;
}

struct costs *costs_find(struct costs_cache *cache, const struct layout *layout)
{
    int64_t ranks = ranks_class(cache->speed, layout);
    uint64_t hash = ((uint64_t)layout->tp * 31 + (uint64_t)layout->micro_batch) * 31 + (uint64_t)ranks;
    hash = (hash * 8 + 4 * layout->sequence_parallel + 2 * (layout->pp > 1) + splits(layout)) % BUCKETS;
    struct entry *e = cache->entries[hash];
    while (e && (e->ranks != ranks || e->micro_batch != layout->micro_batch || e->forms->tp != layout->tp ||
                 e->forms->sequence_parallel != layout->sequence_parallel ||
                 e->forms->piped != (layout->pp > 1) || e->forms->split != splits(layout)))
        e = e->next;
    if (e)
        return &e->costs;
    e = host_alloc(sizeof *e);
    *e = (struct entry){.next = cache->entries[hash],
                        .forms = find_forms(cache, layout),
                        .micro_batch = layout->micro_batch,
                        .ranks = ranks};
    e->costs.blocks = e->forms->blocks;
    e->costs.states = &e->forms->states;
    cost_parts(cache, layout, &e->costs);
    cache->entries[hash] = e;
    return &e->costs;
}

static int64_t states_of(const struct layout *layout, const struct block *block)
{
    struct program probe = {.layout = *layout};
    int64_t bytes = 0;
    for (int state = 0; state < STATE_COUNT; state++)
        for (int i = 0; i < block->parameter_count && program_has_state(&probe, (enum state)state); i++)
            bytes += program_state_elements(&probe, &block->parameters[i], (enum state)state) *
                     dtype_bytes(program_state_dtype(&probe, (enum state)state));
    return bytes;
}

int64_t costs_states(const struct costs *costs, const struct layout *layout, enum cost_part part)
{
    int64_t sharing = layout->zero ? layout->dp : 1;
    int slot = (int)(sharing % STATE_SLOTS);
    if (costs->states->slots[slot].sharing != sharing) {
        costs->states->slots[slot].sharing = sharing;
        for (int i = 0; i < COST_PARTS; i++)
            costs->states->slots[slot].bytes[i] = states_of(layout, &costs->blocks[i]);
    }
    return costs->states->slots[slot].bytes[part];
}

/* ---------------------------------------------------------------------------------------------------------- options */

static struct pile scaled(struct pile pile, int64_t by)
{
    return (struct pile){pile.saved * by, pile.later * by, pile.forward * by, pile.backward * by,
                         pile.weight * by};
}

/* Seconds of each forward operation of a layer. */
static void time_forward(const struct costs_cache *cache, const struct layout *layout, enum cost_part part,
                         double seconds[BLOCK_OPS])
{
    struct program probe = probe_of(cache, layout);
    struct block block;
    build_part(cache->model, layout, layout->micro_batch, part, 0, &block);
    for (int i = 0; i < block.forward_count; i++)
        seconds[i] = time_model_op(&probe, &block, i, cache->speed);
}

static double sum_of_bits(uint64_t ops, const double seconds[BLOCK_OPS])
{
    double sum = 0;
    for (int i = 0; ops; i++, ops >>= 1)
        if (ops & 1)
            sum += seconds[i];
    return sum;
}

static bool option_covers(const struct cost_option *a, const struct cost_option *b)
{
    return pile_covers(&a->pile, &b->pile) && pile_covers(&a->first_pile, &b->first_pile) &&
           a->seconds <= b->seconds && a->first_seconds <= b->first_seconds;
}

static int by_seconds(const void *a, const void *b)
{
    const struct cost_option *x = a, *y = b;
    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? -1 : 1;
    if (x->pile.saved != y->pile.saved)
        return x->pile.saved < y->pile.saved ? -1 : 1;
    return (x->mask > y->mask) - (x->mask < y->mask);
}

/* In the order of time, so that only an option before can cover one, or an equally fast one behind. */
static void keep_best_options(struct costs *costs)
{
    struct cost_option *options = costs->options;
    int kept = 0;
    for (int i = 0; i < costs->option_count; i++) {
        bool beaten = false;
        for (int k = 0; k < kept && !beaten; k++)
            beaten = option_covers(&options[k], &options[i]);
        for (int k = i + 1; k < costs->option_count && !beaten; k++)
            beaten = option_covers(&options[k], &options[i]) && !option_covers(&options[i], &options[k]);
        if (!beaten)
            options[kept++] = options[i];
    }
    costs->option_count = kept;
}

/* Does the middle corner lie on or above the line between the others? */
static bool is_inside(const struct cost_corner *a, const struct cost_corner *middle,
                      const struct cost_corner *b)
{
    double share = (a->saved - middle->saved) / (a->saved - b->saved);
    return middle->seconds >= a->seconds + share * (b->seconds - a->seconds);
}

/* Options from `place` on. */
static void find_hull(const struct costs *costs, int place, struct cost_suffix *suffix)
{
    bool *below = host_alloc((size_t)costs->option_count * sizeof *below);
    suffix->hull = host_alloc((size_t)(costs->option_count - place) * sizeof *suffix->hull);
    for (int i = place; i < costs->option_count; i++)
        below[costs->order[i]] = true;
    for (int i = 0; i < costs->option_count; i++) {
        const struct cost_option *option = &costs->options[i];
        struct cost_corner corner = {(double)option->pile.saved, option->seconds, i};
        if (!below[i] || (suffix->hull_count && corner.saved >= suffix->hull[suffix->hull_count - 1].saved))
            continue;
        while (suffix->hull_count > 1 && is_inside(&suffix->hull[suffix->hull_count - 2],
                                                   &suffix->hull[suffix->hull_count - 1], &corner))
            suffix->hull_count--;
        suffix->hull[suffix->hull_count++] = corner;
    }
    free(below);
}

static int64_t beyond(const struct pile *pile)
{
    return max_i64(pile->forward, pile->backward) - pile->saved;
}

static void sort_by_beyond(struct costs *costs)
{
    costs->order = host_alloc((size_t)costs->option_count * sizeof *costs->order);
    for (int i = 0; i < costs->option_count; i++) {
        int at = i;
        int64_t own = beyond(&costs->options[i].pile);
        for (; at > 0 && beyond(&costs->options[costs->order[at - 1]].pile) > own; at--)
            costs->order[at] = costs->order[at - 1];
        costs->order[at] = i;
    }
}

/* As little of everything as one of both. */
static struct pile lesser(struct pile a, struct pile b)
{
    return (struct pile){min_i64(a.saved, b.saved), min_i64(a.later, b.later), min_i64(a.forward, b.forward),
                         min_i64(a.backward, b.backward), min_i64(a.weight, b.weight)};
}

static void find_suffixes(struct costs *costs)
{
    sort_by_beyond(costs);
    costs->suffixes = host_alloc((size_t)costs->option_count * sizeof *costs->suffixes);
    for (int place = costs->option_count - 1; place >= 0; place--) {
        const struct pile *pile = &costs->options[costs->order[place]].pile;
        struct cost_suffix *suffix = &costs->suffixes[place];
        bool last = place == costs->option_count - 1;
        suffix->least = last ? *pile : lesser(*pile, suffix[1].least);
        suffix->forward_beyond = pile->forward - pile->saved;
        suffix->backward_beyond = pile->backward - pile->saved;
        if (!last) {
            suffix->forward_beyond = min_i64(suffix->forward_beyond, suffix[1].forward_beyond);
            suffix->backward_beyond = min_i64(suffix->backward_beyond, suffix[1].backward_beyond);
        }
        find_hull(costs, place, suffix);
    }
}

void costs_open_options(struct costs_cache *cache, const struct layout *layout, struct costs *costs)
{
    if (costs->options)
        return;
    struct forms *forms = find_forms(cache, layout);
    if (!forms->list)
        list_forms(cache, layout, forms);
    double seconds[2][BLOCK_OPS] = {{0}};
    time_forward(cache, layout, COST_LAYER, seconds[0]);
    time_forward(cache, layout, COST_FIRST, seconds[1]);
    costs->options = host_alloc((size_t)forms->count * sizeof *costs->options);
    for (int i = 0; i < forms->count; i++) {
        const struct form *form = &forms->list[i];
        costs->options[costs->option_count++] =
            (struct cost_option){.mask = form->mask,
                                 .seconds = sum_of_bits(form->again[0], seconds[0]),
                                 .first_seconds = sum_of_bits(form->again[1], seconds[1]),
                                 .pile = scaled(form->piles[0], layout->micro_batch),
                                 .first_pile = scaled(form->piles[1], layout->micro_batch)};
    }
    qsort(costs->options, (size_t)costs->option_count, sizeof *costs->options, by_seconds);
    keep_best_options(costs);
    find_suffixes(costs);
}

double costs_least_recompute(const struct cost_suffix *suffix, double saved)
{
    const struct cost_corner *hull = suffix->hull;
    if (saved >= hull[0].saved)
        return hull[0].seconds;
    for (int i = 1; i < suffix->hull_count; i++)
        if (saved >= hull[i].saved) {
            double share = (hull[i - 1].saved - saved) / (hull[i - 1].saved - hull[i].saved);
            return hull[i - 1].seconds + share * (hull[i].seconds - hull[i - 1].seconds);
        }
    return INFINITY;
}

/* ------------------------------------------------------------------------------------------------------------ cache */

struct costs_cache *costs_open(const struct model *model, const struct machine_speed *speed,
                               const uint32_t *sets, int set_count)
{
    struct costs_cache *cache = host_alloc(sizeof *cache);
    cache->model = model;
    cache->speed = speed;
    cache->sets = sets;
    cache->set_count = set_count;
    return cache;
}

void costs_close(struct costs_cache *cache)
{
    if (!cache)
        return;
    for (int i = 0; i < BUCKETS; i++)
        for (struct entry *e = cache->entries[i], *next; e; e = next) {
            next = e->next;
            for (int k = 0; e->costs.suffixes && k < e->costs.option_count; k++)
                free(e->costs.suffixes[k].hull);
            free(e->costs.suffixes);
            free(e->costs.order);
            free(e->costs.options);
            free(e);
        }
    for (struct forms *f = cache->forms, *next; f; f = next) {
        next = f->next;
        free(f->list);
        free(f);
    }
    free(cache);
}
