/* The bubble. Let l_i be the work of stage i's layers on a micro-batch and x the part of it that must pass before stage i + 1
 * begins or after it ends: all with one chunk per stage, 1/v of it with v chunks, and at least the forward passes where backward
 * is in halves (composition.h). With A_i = sum over j < i of x l_j, every stage has A_i + m l_i <= T for a step of T seconds. So
 * what is left, D_i = T - A_i, shrinks slowly, D_{i+1} = D_i - x l_i >= D_i (1 - x/m), and D_p = T - x W for all work W:
 *
 *     T - x W >= T (1 - x/m)^p      so      T >= x W / (1 - (1 - x/m)^p)
 *     l_i <= D_i / m,  D_i <= (T - x W) / (1 - x/m)^(p-i)
 *
 * For 1f1b, m = p = 8: at least 1.53 W / p times m, of the 1.88 that equal stages really take; the other bounds do the rest. */
#include "planner/bounds.h"

#include "base/arena.h"
#include "planner/stages.h"

#include <math.h>
#include <stdlib.h>

/* Seconds that a layer of a stage takes once a step. */
struct after {
    struct after *next;
    int64_t tp, dp, ranks;
    int zero;
    bool piped;
    double seconds; /* when all is summed: updates, and gathers of weights */
    double sum_s;   /* to sum its gradients */
};

enum { BUCKETS = 512 };

struct bounds {
    const struct model *model;
    const struct machine_speed *speed;
    struct costs_cache *cache;
    struct after *afters[BUCKETS];
};

struct bounds *bounds_open(const struct model *model, const struct machine_speed *speed,
                           struct costs_cache *cache)
{
    struct bounds *b = host_alloc(sizeof *b);
    *b = (struct bounds){.model = model, .speed = speed, .cache = cache};
    return b;
}

void bounds_close(struct bounds *b)
{
    for (int i = 0; b && i < BUCKETS; i++)
        for (struct after *a = b->afters[i], *next; a; a = next) {
            next = a->next;
            free(a);
        }
    free(b);
}

/* Of a stage of so many layers, without ends. */
static struct after after_of(const struct bounds *b, const struct layout *layout, const struct costs *costs,
                             int64_t layers)
{
    static const double none[2] = {0, 0};
    struct model model = *b->model;
    struct stage stage = {.kinds = 1, .bottom = {COST_RECEIVE}, .top = {COST_SEND}, .chunks = {1}};
    struct stages stages = {&model, b->speed, *layout, costs, &stage, NULL};
    struct stage_sketch sketch;
    struct after after = {0};
    model.tied = false;
    stages.layout.virtual_stages = 1;
    stages_sketch(&stages, 0, layers, &sketch);
    after.seconds = stage_sketch_tail(&sketch, none).after_s;
    for (int i = 0; i < sketch.program.bucket_count; i++)
        after.sum_s += sketch.frame.bucket_s[i];
    stage_sketch_clear(&sketch);
    return after;
}

/* One more layer's. Buckets that hold several have one start for all, so a first one's start is left out. */
static const struct after *layer_after(struct bounds *b, const struct layout *l, const struct costs *costs)
{
    enum { LAYERS = 8 };
    int64_t ranks =
        min_i64(layout_ranks(l), b->speed->ranks_per_node + (b->speed->ranks_per_node < INT64_MAX));
    uint64_t hash = (((uint64_t)l->tp * 31 + (uint64_t)l->dp) * 31 + (uint64_t)ranks) * 4;
    hash = (hash + 2 * (uint64_t)l->zero + (l->pp > 1)) % BUCKETS;
    for (struct after *a = b->afters[hash]; a; a = a->next)
        if (a->tp == l->tp && a->dp == l->dp && a->ranks == ranks && a->zero == l->zero &&
            a->piped == (l->pp > 1))
            return a;
    struct after *a = host_alloc(sizeof *a);
    struct after one = after_of(b, l, costs, 1), two = after_of(b, l, costs, 2),
                 many = after_of(b, l, costs, LAYERS);
    *a = (struct after){b->afters[hash],
                        l->tp,
                        l->dp,
                        ranks,
                        l->zero,
                        l->pp > 1,
                        fmax(two.seconds - one.seconds, 0),
                        fmax(many.sum_s - one.sum_s, 0) / LAYERS};
    b->afters[hash] = a;
    return a;
}

static double pass_seconds(const struct block_time *t)
{
    return t->forward + t->forward_exchange + t->backward + t->recompute + t->backward_exchange + t->weight;
}

/* Layers that are like each other: an encoder's first one is left out. */
static int64_t equal_layers(const struct bounds *b, const struct costs *costs)
{
    return b->model->layers - costs->first_differs;
}

static int64_t share(int64_t count, int64_t parts)
{
    return (count + parts - 1) / parts;
}

/* What all stages together do for one micro-batch. */
static double all_work(const struct bounds *b, const struct layout *l, const struct costs *costs)
{
    const struct block_time *t = costs->times;
    double messages =
        (double)(layout_chunks(l) - 1) * (pass_seconds(&t[COST_SEND]) + pass_seconds(&t[COST_RECEIVE]));
    return (double)equal_layers(b, costs) * pass_seconds(&t[COST_LAYER]) + pass_seconds(&t[COST_EMBED]) +
           pass_seconds(&t[COST_HEAD]) + (l->pp > 1 ? messages : 0);
}

double bounds_of_work(struct bounds *b, const struct layout *layout, const struct costs *costs)
{
    double micro_batches = (double)layout_micro_batches(layout), stages = (double)layout->pp;
    return micro_batches * all_work(b, layout, costs) / stages;
}

double bounds_of_bytes(struct bounds *b, const struct layout *layout, const struct costs *costs)
{
    struct layout sharded = *layout;
    sharded.zero = layout->dp > 1;
    double layers = (double)equal_layers(b, costs);
    return layers * (double)stages_part_states(&sharded, costs, COST_LAYER) +
           (double)(stages_part_states(&sharded, costs, COST_EMBED) +
                    stages_part_states(&sharded, costs, COST_HEAD)) +
           layers * (double)costs->piles[COST_SEND].forward;
}

/* The part x of a stage's work. */
static double passing_share(const struct layout *l, const struct costs *costs)
{
    const struct block_time *t = &costs->times[COST_LAYER];
    if (l->schedule == SCHEDULE_ZB_H1)
        return (t->forward + t->forward_exchange) / pass_seconds(t);
    return 1 / (double)l->virtual_stages;
}

/* At least so long must a stage of `layers` layers wait for the sums of its gradients, behind its last backward: no more is
 * hidden than one micro-batch's backward takes, which more recomputation lengthens for all micro-batches. */
static double exposed_seconds(struct bounds *b, const struct layout *l, const struct costs *costs,
                              double layers)
{
    const struct block_time *t = costs->times;
    double sum_s = layers * layer_after(b, l, costs)->sum_s, chunks = (double)l->virtual_stages;
    double hidden = layers * pass_seconds(&t[COST_LAYER]) + pass_seconds(&t[COST_EMBED]) +
                    pass_seconds(&t[COST_FIRST]) + pass_seconds(&t[COST_HEAD]) +
                    chunks * (pass_seconds(&t[COST_SEND]) + pass_seconds(&t[COST_RECEIVE]));
    return fmax(sum_s - hidden, 0);
}

double bounds_of_schedule(struct bounds *b, const struct layout *l, const struct costs *costs)
{
    double m = (double)layout_micro_batches(l), x = passing_share(l, costs);
    double layer = pass_seconds(&costs->times[COST_LAYER]);
    double most = (double)(l->virtual_stages * share(equal_layers(b, costs), layout_chunks(l)));
    double bubble = x * (double)equal_layers(b, costs) * layer / (1 - pow(1 - x / m, (double)l->pp));
    double seconds = fmax(bounds_of_work(b, l, costs), l->pp > 1 ? bubble : 0);
    double fullest = m * most * layer + exposed_seconds(b, l, costs, most);
    return fmax(seconds, fullest) + most * layer_after(b, l, costs)->seconds;
}

/* ------------------------------------------------------------------------------------------------------ with memory */

/* A stage, for the question how many layers it can take. */
struct taker {
    double states, layer_states; /* of a layer in each chunk */
    double fixed;                /* bytes besides states that layers add to */
    double in_flight;            /* layers' kept bytes count so often */
    double put_off;              /* and meanwhile what weight halves need, so often */
    double ends_s;
    int64_t apart; /* layers that cost nothing here: an encoder's first */
};

static struct taker taker_of(const struct bounds *b, const struct layout *l, const struct costs *costs,
                             int64_t stage)
{
    enum cost_part bottom = stage ? COST_RECEIVE : COST_EMBED,
                   top = stage < l->pp - 1 ? COST_SEND : COST_HEAD;
    struct taker t = {.in_flight = (double)stages_in_flight(l, stage),
                      .apart = !stage && costs->first_differs};
    int64_t head = max_i64(costs->piles[top].forward, costs->piles[top].backward);
    (void)b;
    t.states = (double)(stages_part_states(l, costs, bottom) + stages_part_states(l, costs, top));
    t.layer_states = (double)(l->virtual_stages * stages_part_states(l, costs, COST_LAYER));
    /* With one chunk, the last moment before the head's backward has all in flight. */
    t.fixed = l->virtual_stages == 1
                  ? (t.in_flight - 1) * (double)(costs->piles[bottom].saved + costs->piles[top].saved) +
                        (double)(costs->piles[bottom].saved + head)
                  : 0;
    t.ends_s = pass_seconds(&costs->times[bottom]) + pass_seconds(&costs->times[top]);
    return t;
}

/* Weight halves that a stage has put off when it has most in flight, before the last backward of its steady state. */
static int64_t put_off(const struct layout *l, int64_t stage)
{
    int64_t begun = layout_micro_batches(l) - (l->pp - stage);
    return l->schedule == SCHEDULE_ZB_H1 && l->pp > 1 ? min_i64(stage, max_i64(begun, 0)) : 0;
}

/* Can it have `layers` layers a chunk in `limit_s` for a micro-batch? */
static bool can_take(const struct taker *t, const struct layout *l, const struct costs *costs, int64_t layers,
                     double room, double limit_s)
{
    double count = (double)(layers - t->apart), chunks = (double)l->virtual_stages;
    double later = t->put_off * count * (double)costs->suffixes[0].least.later;
    double kept = (room - t->states - count * t->layer_states - t->fixed - later) / t->in_flight;
    if (count <= 0)
        return kept >= 0;
    if (kept < 0)
        return false;
    double again = costs_least_recompute(&costs->suffixes[0], kept / count);
    return chunks * count * (pass_seconds(&costs->times[COST_LAYER]) + again) + t->ends_s <= limit_s;
}

/* The most that it can have. */
static int64_t takes(const struct taker *t, const struct layout *l, const struct costs *costs, int64_t most,
                     double room, double limit_s)
{
    double layer = (double)l->virtual_stages * pass_seconds(&costs->times[COST_LAYER]);
    double in_time = (limit_s - t->ends_s) / layer + (double)t->apart + 1e-9;
    int64_t low = 0, high = in_time < (double)most ? (int64_t)fmax(in_time, 0) : most;
    if (high > 0 && can_take(t, l, costs, high, room, limit_s))
        return high;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        *(can_take(t, l, costs, middle, room, limit_s) ? &low : &high) = middle;
    }
    return low;
}

/* Can all layers be placed in a step of `step_s`, what comes after left out? */
static bool can_place(const struct bounds *b, const struct layout *l, const struct costs *costs, double room,
                      double step_s)
{
    double m = (double)layout_micro_batches(l), x = passing_share(l, costs);
    double work = x * (double)equal_layers(b, costs) * pass_seconds(&costs->times[COST_LAYER]);
    int64_t left = b->model->layers / l->virtual_stages;
    double limit_s = (step_s - (l->pp > 1 ? work : 0)) / m;
    struct taker t = {0};
    for (int64_t stage = l->pp - 1; stage >= 0 && left > 0; stage--) {
        if (l->pp > 1)
            limit_s = x < m ? limit_s / (1 - x / m) : INFINITY;
        if (stage >= l->pp - 2 || stage == 0)
            t = taker_of(b, l, costs, stage);
        double kept_before = t.in_flight;
        t.in_flight = (double)stages_in_flight(l, stage);
        t.put_off = (double)put_off(l, stage);
        if (l->virtual_stages == 1)
            t.fixed += (t.in_flight - kept_before) * (double)costs->piles[COST_RECEIVE].saved;
        left -= takes(&t, l, costs, b->model->layers / l->virtual_stages, room, limit_s * (1 + 1e-9));
    }
    return left <= 0;
}

double bounds_of_layout(struct bounds *b, const struct layout *l, const struct costs *costs, int64_t room,
                        double limit_s)
{
    enum { STEPS = 6 };
    double most = (double)(l->virtual_stages * share(equal_layers(b, costs), layout_chunks(l)));
    double after_s = most * layer_after(b, l, costs)->seconds,
           low = bounds_of_schedule(b, l, costs) - after_s;
    double high = fmin(limit_s - after_s, 16 * low);
    if (high < low)
        return INFINITY;
    if (!can_place(b, l, costs, (double)room, high)) {
        bool ever = high + after_s < limit_s && can_place(b, l, costs, (double)room, 1e300);
        return ever ? high + after_s : INFINITY;
    }
    if (can_place(b, l, costs, (double)room, low))
        return low + after_s;
    for (int i = 0; i < STEPS; i++) {
        double middle = sqrt(low * high);
        *(can_place(b, l, costs, (double)room, middle) ? &high : &low) = middle;
    }
    return low + after_s;
}
