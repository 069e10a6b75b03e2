/* Two kinds of bounds, by what is said of each stage i: w_i seconds of its layers for a micro-batch, l_i of one layer, m micro-batches,
 * p stages.
 *
 * In and out. Let x_i be the part of w_i that must pass before stage i + 1 begins or after it ends: all with one chunk per stage,
 * 1/v of it with v chunks, and the forward passes where backward is in halves (composition.h); and h what a hop to the next stage
 * takes besides, there and back. For a step of T seconds, D_i = T - sum over j < i of (x_j w_j + h) is what is left to stage i, which
 * needs m w_i of it. How many layers can D_i seconds hold from stage i on? At most c_i D_i - d_i with
 *
 *     c_p = d_p = 0,     c_i = c_{i+1} + max(0, 1 / l_i - x_i c_{i+1}) / m,     d_i = d_{i+1} + h c_{i+1}
 *
 * since every second given to stage i is x_i seconds less for those behind it. So T >= (layers + d_0) / c_0. Where all stages are
 * alike and hops free that is T >= x W / (1 - (1 - x/m)^p) for all work W: for 1f1b and m = p = 8 at least 1.53 W / p times m, of the
 * 1.88 that equal stages really take. Seen from behind:
 *
 *     D_p = T - sum of (x_j w_j + h),     D_i <= (D_{i+1} + h) / (1 - x_i/m),     D_i <= T,     w_i <= D_i / m
 *
 * An encoder's first layer, of l' seconds where others take l, is in no w. Its chunk has n layers with it and n - 1 others, of the
 * v n - 1 of its stage: that passes in x_0 w_0 - s at least, s = max(0, (1 - x_0) l - l'), so D_i + s takes the place of D_i for
 * i > 0, and T >= (layers + d_0) / c_0 - s.
 *
 * Where chunks may be larger that are the last of their stages, x_i w_i is (v - 1)/v layers more than must pass, and a layer must.
 *
 * The fullest stage. Where chunks of a stage are alike, it is layers / v, a row, that stages share out, the first layer included, and
 * some stage has a = row / p, rounded up, in each chunk: T >= m v a l. With an encoder's first among them it is l - l' less for each
 * micro-batch. That can help only where no other stage has a. Then those have a - 1 at most; stage 0 has no more than a, or its
 * others alone were v (a + 1) - 1 >= v a; so row = p (a - 1) + 1.
 *
 * Through and back. Chains of composition.h that leave a stage and come back, with C the time of one micro-batch through all stages
 * and back, which no distribution of layers changes. Of gpipe's chain that leaves T >= C + (m - 1) w_i for all i, so T >= C + (m - 1) W / p.
 * Of 1f1b's with r = 2, w_i (m - p + i) <= T - C - sum over j > i of (w_j + 2 messages); the most work that this holds is had
 * by taking all that is left, from the last stage on, which is equally much on each but for the messages:
 *
 *     T >= C + (m - 1) W / p + (p - 1) messages
 *
 * which equal stages without messages reach. Under zb-h1 W is less its weight halves, of which (m - p) / p come besides. */
#include "planner/bounds.h"

#include "base/arena.h"
#include "base/checked.h"
#include "planner/siting.h"

#include <math.h>
#include <stdlib.h>

/* Seconds that a layer of a stage takes once a step. */
struct after {
    struct after *next;
    const struct machine_speed *speed;
    int64_t tp, dp, ranks;
    int zero;
    bool piped;
    double seconds; /* when all is summed: updates, and gathers of weights */
    double sum_s;   /* to sum its gradients */
};

enum { BUCKETS = 512 };

struct bounds {
    const struct model *model;
    struct after *afters[BUCKETS];
};

struct bounds *bounds_open(const struct model *model)
{
    struct bounds *b = host_alloc(sizeof *b);
    *b = (struct bounds){.model = model};
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
static struct after after_of(const struct bounds *b, const struct layout *layout,
                             const struct stage_ground *ground, int64_t layers)
{
    static const double none[CHUNK_KINDS] = {0};
    static const struct stage_form form_of_one = {.counts = {1}, .kinds = 1};
    struct model model = *b->model;
    struct stage stage = {
        .speed = ground->speed, .costs = ground->costs, .bottom = {COST_RECEIVE}, .top = {COST_SEND}};
    struct stage_form form = form_of_one;
    struct stages stages = {.model = &model, .layout = *layout, .list = &stage};
    struct stage_sketch sketch;
    struct after after = {0};
    model.tied = false;
    stages.layout.virtual_stages = 1;
    form.split = (struct stage_split){layers, -1};
    form.heights[CHUNK_EVEN] = layers;
    stages_sketch(&stages, 0, &form, &sketch);
    after.seconds = stage_sketch_tail(&sketch, none).after_s;
    for (int i = 0; i < sketch.program.bucket_count; i++)
        after.sum_s += sketch.frame.bucket_s[i];
    stage_sketch_clear(&sketch);
    return after;
}

/* One more layer's. Buckets that hold several have one start for all, so a first one's start is left out. */
static const struct after *layer_after(struct bounds *b, const struct layout *l,
                                       const struct stage_ground *ground)
{
    enum { LAYERS = 8 };
    const struct machine_speed *speed = ground->speed;
    int64_t ranks = min_i64(layout_ranks(l), speed->ranks_per_node + (speed->ranks_per_node < INT64_MAX));
    uint64_t hash = (((uint64_t)l->tp * 31 + (uint64_t)l->dp) * 31 + (uint64_t)ranks) * 4;
    hash = (hash + 2 * (uint64_t)l->zero + (l->pp > 1)) % BUCKETS;
    for (struct after *a = b->afters[hash]; a; a = a->next)
        if (a->speed == speed && a->tp == l->tp && a->dp == l->dp && a->ranks == ranks &&
            a->zero == l->zero && a->piped == (l->pp > 1))
            return a;
    struct after *a = host_alloc(sizeof *a);
    struct after one = after_of(b, l, ground, 1), two = after_of(b, l, ground, 2),
                 many = after_of(b, l, ground, LAYERS);
    *a = (struct after){b->afters[hash],
                        speed,
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

double bounds_layer_seconds(const struct stage_ground *ground)
{
    return pass_seconds(&ground->costs->times[COST_LAYER]);
}

static double first_seconds(const struct bounds_question *q)
{
    return pass_seconds(&q->grounds[0].costs->times[COST_FIRST]);
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

/* What the ends of all chunks take for a micro-batch, on the stages of one ground. */
static double ends_seconds(const struct bounds_question *q, int ground)
{
    const struct block_time *t = q->grounds[ground].costs->times;
    double receive = pass_seconds(&t[COST_RECEIVE]), send = pass_seconds(&t[COST_SEND]);
    double seconds = (double)(q->grounds[ground].stages * q->layout->virtual_stages) * (receive + send);
    seconds += ground ? 0 : pass_seconds(&t[COST_EMBED]) - receive;
    return seconds + (ground < q->ground_count - 1 ? 0 : pass_seconds(&t[COST_HEAD]) - send);
}

/* No stage has more work than T / m, and then all have room for this many layers: (T / m) sum(1 / l) - sum(ends / l). */
static double spread_work(struct bounds *b, const struct bounds_question *q)
{
    double layers = (double)equal_layers(b, q->grounds[0].costs), rate = 0;
    for (int i = 0; i < q->ground_count; i++) {
        double layer = bounds_layer_seconds(&q->grounds[i]);
        rate += (double)q->grounds[i].stages / layer;
        layers += q->any_order ? 0 : ends_seconds(q, i) / layer;
    }
    return (double)layout_micro_batches(q->layout) * layers / rate;
}

/* A stage has whole layers: none has more work than T / m, so T is where all stages have time for so many, each rounded down. From
 * `seconds`, which is no more than T, to the next T at which some ground's stages have time for a layer more. */
static double whole_layers(struct bounds *b, const struct bounds_question *q, double seconds)
{
    double m = (double)layout_micro_batches(q->layout);
    int64_t layers = equal_layers(b, q->grounds[0].costs);
    for (;;) {
        double next_s = INFINITY;
        int64_t held = 0;
        for (int i = 0; i < q->ground_count; i++) {
            double layer_s = m * bounds_layer_seconds(&q->grounds[i]);
            double most = floor(seconds / layer_s * (1 + 1e-12));
            held += q->grounds[i].stages * (int64_t)fmin(most, (double)layers);
            next_s = fmin(next_s, (most + 1) * layer_s);
        }
        if (held >= layers)
            return seconds;
        seconds = next_s;
    }
}

/* Where stages share cores, these do no more than so many stages' work at a time. */
double bounds_of_work(struct bounds *b, const struct bounds_question *q)
{
    double seconds = spread_work(b, q);
    if (q->ground_count > 1)
        seconds = whole_layers(b, q, seconds);
    if (q->ground_count == 1 && q->grounds[0].speed->cores)
        seconds *= (double)q->layout->pp / machine_speed_stages_at_once(q->grounds[0].speed, q->layout);
    return seconds;
}

double bounds_of_bytes(struct bounds *b, const struct layout *layout, const struct costs *costs)
{
    struct layout sharded = *layout;
    sharded.zero = layout->dp > 1;
    double layers = (double)equal_layers(b, costs);
    return layers * (double)costs_states(costs, &sharded, COST_LAYER) +
           (double)(costs_states(costs, &sharded, COST_EMBED) + costs_states(costs, &sharded, COST_HEAD)) +
           layers * (double)costs->piles[COST_SEND].forward;
}

/* Do stages have chunks that may have fewer layers than others, or more? */
static bool is_uneven(const struct bounds *b, const struct layout *l)
{
    return l->virtual_stages > 1 && !stages_are_alike(b->model);
}

/* The part x of a stage's work. */
static double passing_share(const struct layout *l, const struct costs *costs)
{
    const struct block_time *t = &costs->times[COST_LAYER];
    if (l->schedule == SCHEDULE_ZB_H1)
        return (t->forward + t->forward_exchange) / pass_seconds(t);
    return 1 / (double)l->virtual_stages;
}

static bool takes_turns(const struct layout *l)
{
    return l->schedule == SCHEDULE_1F1B || l->schedule == SCHEDULE_ZB_H1;
}

static double message_seconds(const struct bounds_question *q)
{
    const struct stage_ground *first = &q->grounds[0];
    return q->layout->pp > 1 ? time_model_message(q->layout, first->costs->message_bytes, first->speed) : 0;
}

/* h: a message each way, and what the stage does for it; where only forward passes count, one. */
static double hop_seconds(const struct bounds_question *q, double message_s)
{
    double send_s = INFINITY;
    bool forward = q->layout->schedule == SCHEDULE_ZB_H1;
    for (int i = 0; i < q->ground_count; i++) {
        const struct block_time *t = &q->grounds[i].costs->times[COST_SEND];
        send_s = fmin(send_s, forward ? t->forward + t->forward_exchange : pass_seconds(t));
    }
    return send_s + (forward ? 1 : 2) * message_s;
}

/* s: how much sooner than in its part of the stage's equal layers the chunk with an encoder's first may pass. */
static double short_of_part(const struct bounds_question *q)
{
    const struct stage_ground *first = &q->grounds[0];
    double x = 1 / (double)q->layout->virtual_stages;
    return first->costs->first_differs ? fmax((1 - x) * bounds_layer_seconds(first) - first_seconds(q), 0)
                                       : 0;
}

/* c and d of the stages from one on. */
struct holding {
    double c, d;
};

/* With n stages more before them that are equal: of each, x of its work must pass and hop_s besides, and a layer takes layer_s. Of n
 * equal stages, c approaches 1 / (l x) in n steps of which each leaves 1 - x/m. */
static void hold_before(struct holding *h, double n, double x, double hop_s, double layer_s, double m)
{
    if (x <= 0) {
        h->d += hop_s * (n * h->c + n * (n - 1) / (2 * layer_s * m));
        h->c += n / (layer_s * m);
        return;
    }
    double most = 1 / (layer_s * x), left = h->c < most ? pow(1 - x / m, n) : 1,
           missing = fmax(most - h->c, 0);
    h->d += hop_s * (h->c < most ? most * n - missing * (1 - left) * m / x : h->c * n);
    h->c = h->c < most ? most - missing * left : h->c;
}

/* T >= (layers + d_0) / c_0 - s. */
static double in_and_out(const struct bounds *b, const struct bounds_question *q, double message_s)
{
    double m = (double)layout_micro_batches(q->layout), hop_s = hop_seconds(q, message_s);
    struct holding h = {0};
    for (int i = q->ground_count - 1; i >= 0; i--) {
        const struct stage_ground *ground = &q->grounds[i];
        hold_before(&h, (double)ground->stages, passing_share(q->layout, ground->costs), hop_s,
                    bounds_layer_seconds(ground), m);
    }
    return ((double)equal_layers(b, q->grounds[0].costs) + h.d) / h.c - short_of_part(q);
}

/* T >= (layers + d_0) / c_0 where of each stage's work x must pass, and hop_s and `more` layers besides. Stage 0's chunk with the embedding
 * may have no layers. */
static double in_and_out_with(const struct bounds *b, const struct bounds_question *q, double x, double hop_s,
                              double more)
{
    double m = (double)layout_micro_batches(q->layout);
    struct holding h = {0};
    for (int i = q->ground_count - 1; i >= 0; i--) {
        double layer_s = bounds_layer_seconds(&q->grounds[i]);
        hold_before(&h, (double)(q->grounds[i].stages - !i), x, hop_s + more * layer_s, layer_s, m);
    }
    hold_before(&h, 1, 0, hop_s, bounds_layer_seconds(&q->grounds[0]), m);
    return ((double)b->model->layers + h.d) / h.c;
}

/* Where chunks may differ: the first one of a stage has its share, less what larger ones have more that are the last, and a layer. */
static double in_and_out_uneven(const struct bounds *b, const struct bounds_question *q, double message_s)
{
    double share = 1 / (double)q->layout->virtual_stages, hop_s = hop_seconds(q, message_s);
    if (q->larger != LARGER_LAST)
        return in_and_out_with(b, q, share, hop_s, 0);
    return fmax(in_and_out_with(b, q, share, hop_s, share - 1), in_and_out_with(b, q, 0, hop_s, 1));
}

/* A micro-batch through all stages and back, by what it is made of. */
struct round_trip {
    double layer_s, weight_s; /* of one layer, where it takes least; its weight half */
    double ends_s, messages_s;
};

static struct round_trip round_trip_of(const struct bounds_question *q, double message_s)
{
    struct round_trip r = {.layer_s = INFINITY, .weight_s = INFINITY};
    const struct layout *l = q->layout;
    for (int i = 0; i < q->ground_count; i++) {
        const struct block_time *t = q->grounds[i].costs->times;
        double receive = time_model_round(&t[COST_RECEIVE]), send = time_model_round(&t[COST_SEND]);
        const struct block_time *layer = &t[COST_LAYER];
        r.layer_s = fmin(r.layer_s, time_model_round(layer));
        r.weight_s = fmin(r.weight_s, layer->weight);
        r.ends_s += (double)(q->grounds[i].stages * l->virtual_stages) * (receive + send);
        r.ends_s += i ? 0 : time_model_round(&t[COST_EMBED]) - receive;
        r.ends_s += i < q->ground_count - 1 ? 0 : time_model_round(&t[COST_HEAD]) - send;
    }
    r.messages_s = 2 * (double)(layout_chunks(l) - 1) * message_s;
    return r;
}

/* No step is shorter than what a micro-batch takes through all stages and back, and what the stages do meanwhile. */
static double through_and_back(struct bounds *b, const struct bounds_question *q, double message_s)
{
    const struct layout *l = q->layout;
    double m = (double)layout_micro_batches(l), p = (double)l->pp;
    double layers = (double)equal_layers(b, q->grounds[0].costs);
    struct round_trip r = round_trip_of(q, message_s);
    double once_s = layers * r.layer_s + r.ends_s + r.messages_s;
    if (l->schedule == SCHEDULE_GPIPE)
        return once_s + (m - 1) / m * spread_work(b, q);
    if (!takes_turns(l) || m <= p)
        return once_s;
    bool halves = l->schedule == SCHEDULE_ZB_H1;
    double work_s = layers * r.layer_s + (halves ? 0 : r.ends_s);
    double turns_s =
        once_s + ((m - 1) * work_s + (halves ? (m - p) * layers * r.weight_s : 0)) / p + (p - 1) * message_s;
    return fmax(turns_s, (double)((layout_micro_batches(l) - 1) / l->pp + 1) * once_s) +
           (halves ? r.weight_s : 0);
}

/* At least so long must a stage of `layers` layers wait for the sums of its gradients, behind its last backward: no more is
 * hidden than one micro-batch's backward takes, which more recomputation lengthens for all micro-batches. */
static double exposed_seconds(struct bounds *b, const struct layout *l, const struct stage_ground *ground,
                              double layers)
{
    const struct block_time *t = ground->costs->times;
    double sum_s = layers * layer_after(b, l, ground)->sum_s, chunks = (double)l->virtual_stages;
    double hidden = layers * pass_seconds(&t[COST_LAYER]) + pass_seconds(&t[COST_EMBED]) +
                    pass_seconds(&t[COST_FIRST]) + pass_seconds(&t[COST_HEAD]) +
                    chunks * (pass_seconds(&t[COST_SEND]) + pass_seconds(&t[COST_RECEIVE]));
    return fmax(sum_s - hidden, 0);
}

/* Some stage has so many layers at least, an encoder's first one counted. Where chunks are alike, all but the ends have them in as many. */
static int64_t fullest_layers(const struct bounds *b, const struct bounds_question *q)
{
    const struct layout *l = q->layout;
    int64_t layers = b->model->layers, v = l->virtual_stages, most = share(layers, l->pp);
    if (!is_uneven(b, l))
        return v * share(layers / v, l->pp);
    while (q->larger == LARGER_NONE && (l->pp - 2) * (most / v * v) + 2 * most < layers)
        most++;
    return most;
}

/* l - l' where the fullest stage, which stands on ground `ground`, may be the first and no other as full. */
static double less_for_first(const struct bounds *b, const struct bounds_question *q, int ground)
{
    int64_t row = b->model->layers / q->layout->virtual_stages;
    if (ground || !q->grounds[0].costs->first_differs || (row - 1) % q->layout->pp)
        return 0;
    return fmax(bounds_layer_seconds(&q->grounds[0]) - first_seconds(q), 0);
}

double bounds_after(struct bounds *b, const struct bounds_question *q)
{
    double least = INFINITY;
    for (int i = 0; i < q->ground_count; i++)
        least = fmin(least, layer_after(b, q->layout, &q->grounds[i])->seconds);
    return (double)fullest_layers(b, q) * least;
}

/* Until all have met, by what the fullest stage does. */
static double fullest_seconds(struct bounds *b, const struct bounds_question *q)
{
    double m = (double)layout_micro_batches(q->layout), most = (double)fullest_layers(b, q);
    double fullest = INFINITY;
    for (int i = 0; i < q->ground_count; i++) {
        double passes_s = most * bounds_layer_seconds(&q->grounds[i]) - less_for_first(b, q, i);
        fullest = fmin(fullest, m * passes_s + exposed_seconds(b, q->layout, &q->grounds[i], most));
    }
    return fmax(fullest, bounds_of_work(b, q));
}

double bounds_of_fullest(struct bounds *b, const struct bounds_question *q)
{
    return fullest_seconds(b, q) + bounds_after(b, q);
}

double bounds_of_schedule(struct bounds *b, const struct bounds_question *q)
{
    double seconds = fullest_seconds(b, q), message_s = message_seconds(q);
    if (q->layout->pp > 1) {
        double passing_s =
            is_uneven(b, q->layout) ? in_and_out_uneven(b, q, message_s) : in_and_out(b, q, message_s);
        seconds = fmax(fmax(seconds, passing_s), through_and_back(b, q, message_s));
    }
    return seconds + bounds_after(b, q);
}

/* ------------------------------------------------------------------------------------------------------ with memory */

/* A stage, for the question how many layers it can take. */
struct taker {
    const struct stage_ground *ground;
    const struct layout *layout;
    int64_t stage;
    double states, layer_states; /* of a layer */
    double fixed;                /* bytes besides states that layers add to */
    double in_flight; /* layers' kept bytes count so often; where an end may be shorter, those of others */
    double put_off;   /* and meanwhile what weight halves need, so often */
    double ends_s;
    bool shorter;  /* it has an end that may be shorter than its other chunks */
    int64_t unit;  /* layers come in so many: one for each chunk, but where they may differ */
    int64_t apart; /* layers of a chunk that cost nothing here: an encoder's first */
};

/* (Chunk, micro-batch) pairs in flight of the stage's first `chunks` chunks. */
static int64_t first_in_flight(const struct taker *t, int64_t chunks)
{
    const struct layout *l = t->layout;
    int64_t w = stages_in_flight(l, t->stage), round = l->pp * l->virtual_stages;
    return w / round * l->pp * chunks + min_i64(w % round, l->pp * chunks);
}

/* Weight halves that a stage has put off when it has most in flight, before the last backward of its steady state. */
static int64_t put_off(const struct layout *l, int64_t stage)
{
    int64_t begun = layout_micro_batches(l) - (l->pp - stage);
    return l->schedule == SCHEDULE_ZB_H1 && l->pp > 1 ? min_i64(stage, max_i64(begun, 0)) : 0;
}

/* What its ends keep and its work needs, at the last moment before a backward that has all in flight: before the head's, of a stage
 * with one chunk; else before that of the first micro-batch, whose uppermost layer is at work. The last stage's chunk may have none. */
static double fixed_bytes(const struct taker *t)
{
    const struct layout *l = t->layout;
    const struct costs *costs = t->ground->costs;
    const struct pile *bottom = &costs->piles[t->stage ? COST_RECEIVE : COST_EMBED];
    const struct pile *top = &costs->piles[t->stage < l->pp - 1 ? COST_SEND : COST_HEAD];
    if (l->virtual_stages == 1)
        return (t->in_flight - 1) * (double)(bottom->saved + top->saved) +
               (double)(bottom->saved + max_i64(top->forward, top->backward));
    int64_t ends = costs->piles[COST_RECEIVE].saved + costs->piles[COST_SEND].saved;
    bool bare = t->shorter && t->stage == l->pp - 1;
    return t->in_flight * (double)ends + (double)(bare ? 0 : costs->suffixes[0].backward_beyond);
}

/* For the stage `stage`, which is like the one that the taker was made for. */
static void set_stage(struct taker *t, int64_t stage)
{
    const struct layout *l = t->layout;
    int64_t pairs = stages_in_flight(l, stage), v = l->virtual_stages;
    t->stage = stage;
    if (t->shorter)
        pairs -= stage ? pairs - first_in_flight(t, v - 1) : first_in_flight(t, 1);
    t->in_flight = (double)pairs;
    t->put_off = (double)put_off(l, stage);
    t->fixed = fixed_bytes(t);
}

static struct taker taker_of(const struct bounds *b, const struct bounds_question *q,
                             const struct stage_ground *ground, int64_t stage)
{
    enum { BUFFERS = 2 * BUFFER_KINDS };
    const struct costs *costs = ground->costs;
    const struct layout *l = q->layout;
    enum cost_part bottom = stage ? COST_RECEIVE : COST_EMBED,
                   top = stage < l->pp - 1 ? COST_SEND : COST_HEAD;
    bool uneven = is_uneven(b, l), between = stage > 0 && stage < l->pp - 1,
         larger = q->larger != LARGER_NONE;
    struct taker t = {.ground = ground,
                      .layout = l,
                      .shorter = uneven && !between,
                      .unit = uneven && (larger || !between) ? 1 : l->virtual_stages,
                      .apart = !stage && costs->first_differs};
    set_stage(&t, stage);
    t.states = (double)(costs_states(costs, l, bottom) + costs_states(costs, l, top)) +
               (l->pp > 1 ? BUFFERS * (double)costs->message_bytes : 0);
    t.layer_states = (double)costs_states(costs, l, COST_LAYER);
    t.ends_s = pass_seconds(&costs->times[bottom]) + pass_seconds(&costs->times[top]);
    t.ends_s += (double)(l->virtual_stages - 1) *
                (pass_seconds(&costs->times[COST_RECEIVE]) + pass_seconds(&costs->times[COST_SEND]));
    return t;
}

/* Recomputation of all chunks together that have `each` layers above those that are apart, when these may keep `bytes`. A shorter end
 * has none, as far as this knows. */
static double recompute_of(const struct taker *t, double each, double bytes)
{
    const struct cost_suffix *all = &t->ground->costs->suffixes[0];
    double chunks = (double)(t->layout->virtual_stages - t->shorter);
    double later = t->put_off * each * (double)all->least.later;
    return each > 0 ? chunks * each * costs_least_recompute(all, (bytes - later) / t->in_flight / each) : 0;
}

/* Can it have so many layers in `limit_s` for a micro-batch? Where chunks may differ, others than a shorter end have at least the whole
 * part of an even share. */
static bool can_take(const struct taker *t, int64_t layers, double limit_s)
{
    double each = (double)(layers / t->layout->virtual_stages - t->apart);
    double all = t->unit == 1 ? (double)(layers - t->apart) : each * (double)t->layout->virtual_stages;
    double bytes = (double)t->ground->room - t->states - all * t->layer_states - t->fixed;
    if (bytes < 0 || all <= 0)
        return bytes >= 0;
    return all * bounds_layer_seconds(t->ground) + recompute_of(t, each, bytes) + t->ends_s <= limit_s;
}

/* The most that it can have. */
static int64_t takes(const struct taker *t, int64_t most, double limit_s)
{
    double layer = bounds_layer_seconds(t->ground);
    double in_time = (limit_s - t->ends_s) / layer / (double)t->unit + (double)t->apart + 1e-9;
    int64_t low = 0, high = most / t->unit;
    high = in_time < (double)high ? (int64_t)fmax(in_time, 0) : high;
    if (high > 0 && can_take(t, high * t->unit, limit_s))
        return high * t->unit;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        *(can_take(t, middle * t->unit, limit_s) ? &low : &high) = middle;
    }
    return low * t->unit;
}

/* The least sum of x w: as many layers as a stage has time for where a layer passes soonest, and so on. */
static double least_passing(const struct bounds *b, const struct bounds_question *q, double step_s)
{
    double m = (double)layout_micro_batches(q->layout), passed = 0;
    double left = (double)equal_layers(b, q->grounds[0].costs);
    bool spent[SITE_RUNS] = {false};
    for (int i = 0; i < q->ground_count && left > 0; i++) {
        int next = -1;
        double least = INFINITY, layer_s = 0;
        for (int k = 0; k < q->ground_count; k++) {
            double own = bounds_layer_seconds(&q->grounds[k]),
                   x = own * passing_share(q->layout, q->grounds[k].costs);
            if (!spent[k] && x < least) {
                least = x;
                layer_s = own;
                next = k;
            }
        }
        spent[next] = true;
        bool last = i == q->ground_count - 1;
        double layers = last ? left : fmin(left, (double)q->grounds[next].stages * step_s / (m * layer_s));
        passed += layers * least;
        left -= layers;
    }
    return passed;
}

/* Where chunks may differ: layers that a stage of this ground has time for. */
static int64_t in_time(const struct bounds *b, const struct bounds_question *q, int ground, bool end,
                       double step_s)
{
    double m = (double)layout_micro_batches(q->layout), v = (double)q->layout->virtual_stages;
    double most = floor(step_s * (1 + 1e-9) / (m * bounds_layer_seconds(&q->grounds[ground])));
    most = fmin(most, (double)b->model->layers);
    return (int64_t)(end || q->larger != LARGER_NONE ? most : floor(most / v) * v);
}

/* Layers of a stage's first chunk, times the chunks, and what the stage has beyond. */
static int64_t first_chunks(const struct bounds_question *q, int64_t layers)
{
    return layers + (q->larger == LARGER_FIRST ? q->layout->virtual_stages - 1 : 0);
}

/* By how much first chunks of stages other than the ends may be shorter together than they are where all have what they have time for: to
 * shorten one by a layer takes what it has beyond, and one, and from then on a layer from each chunk of its stage. Negative: there is no
 * time for all layers. */
static double spare_seconds(const struct bounds *b, const struct bounds_question *q, double step_s)
{
    int64_t v = q->layout->virtual_stages, over = -b->model->layers, others = 0, least = v;
    double longest_s = 0;
    for (int i = 0; i < q->ground_count; i++) {
        int64_t ends = (i == 0) + (i == q->ground_count - 1), between = q->grounds[i].stages - ends;
        int64_t layers = in_time(b, q, i, false, step_s);
        over += between * layers + ends * in_time(b, q, i, true, step_s);
        others += between;
        if (q->larger != LARGER_NONE)
            least = min_i64(least, first_chunks(q, layers) % v + 1);
        longest_s = fmax(longest_s, bounds_layer_seconds(&q->grounds[i]));
    }
    if (over < 0)
        return -1;
    int64_t once = min_i64(others, over / least), more = max_i64(over - others * least, 0) / v;
    return (double)(once + more) * longest_s;
}

/* Can all layers be placed in a step of `step_s`, where chunks may differ? What must pass before a stage is what first chunks have that
 * have all they have time for, less what may be spared, and a layer each at least. */
static bool can_place_uneven(const struct bounds *b, const struct bounds_question *q, double step_s)
{
    const struct layout *l = q->layout;
    double m = (double)layout_micro_batches(l), hop_s = hop_seconds(q, message_seconds(q));
    double spare_s = spare_seconds(b, q, step_s), first_s = 0, fewest_s = 0;
    int64_t most = b->model->layers, left = most, stage = 0;
    if (spare_s < 0)
        return false;
    for (int i = 0; i < q->ground_count; i++) {
        const struct stage_ground *g = &q->grounds[i];
        double layer_s = bounds_layer_seconds(g);
        double first = (double)(first_chunks(q, in_time(b, q, i, false, step_s)) / l->virtual_stages);
        struct taker t = {0};
        for (int64_t end = stage + g->stages; stage < end && left > 0; stage++) {
            double before_s = fmax(first_s - spare_s, fewest_s) + (double)stage * hop_s;
            if (t.ground != g || stage <= 1 || stage == l->pp - 1)
                t = taker_of(b, q, g, stage);
            set_stage(&t, stage);
            left -= takes(&t, most, (step_s - before_s) / m * (1 + 1e-9));
            first_s += stage ? first * layer_s : 0;
            fewest_s += stage ? layer_s : 0;
        }
    }
    return left <= 0;
}

/* Can all layers be placed in a step of `step_s`, what comes after left out? */
static bool can_place(const struct bounds *b, const struct bounds_question *q, double step_s)
{
    const struct layout *l = q->layout;
    double m = (double)layout_micro_batches(l);
    int64_t most = b->model->layers, left = most;
    double hop_s = hop_seconds(q, message_seconds(q));
    double limit_s = step_s / m;
    if (is_uneven(b, l))
        return can_place_uneven(b, q, step_s);
    if (l->pp > 1)
        limit_s += (short_of_part(q) - least_passing(b, q, step_s) - (double)l->pp * hop_s) / m;
    struct taker t = {0};
    int64_t stage = l->pp - 1;
    for (int ground = q->ground_count - 1; ground >= 0; ground--) {
        const struct stage_ground *g = &q->grounds[ground];
        double x = passing_share(l, g->costs);
        for (int64_t first = stage - g->stages + 1; stage >= first && left > 0; stage--) {
            if (l->pp > 1)
                limit_s = fmin(x < m ? (limit_s + hop_s / m) / (1 - x / m) : INFINITY, step_s / m);
            if (t.ground != g || stage >= l->pp - 2 || stage == 0)
                t = taker_of(b, q, g, stage);
            set_stage(&t, stage);
            left -= takes(&t, most, limit_s * (1 + 1e-9));
        }
    }
    return left <= 0;
}

double bounds_of_layout(struct bounds *b, const struct bounds_question *q, double limit_s)
{
    enum { STEPS = 6 };
    double after_s = bounds_after(b, q), low = bounds_of_schedule(b, q) - after_s;
    double high = fmin(limit_s - after_s, 16 * low);
    if (high < low)
        return INFINITY;
    if (!can_place(b, q, high)) {
        bool ever = high + after_s < limit_s && can_place(b, q, 1e300);
        return ever ? high + after_s : INFINITY;
    }
    if (can_place(b, q, low))
        return low + after_s;
    for (int i = 0; i < STEPS; i++) {
        double middle = sqrt(low * high);
        *(can_place(b, q, middle) ? &high : &low) = middle;
    }
    return low + after_s;
}
