#include "planner/space.h"

#include "base/arena.h"
#include "base/checked.h"
#include "planner/stages.h"

#include <stdlib.h>

static bool wanted(int64_t asked, int64_t value)
{
    return !asked || asked == value;
}

static bool allows(enum search_choice choice, bool on)
{
    return choice == SEARCH_ANY || (choice == SEARCH_ON) == on;
}

/* ------------------------------------------------------------------------------------------------------------ shapes */

struct walk {
    const struct search_request *request;
    int64_t *divisors; /* of the global batch, the smallest first */
    int divisor_count;
    bool (*visit)(void *context, const struct space_shape *shape);
    void *context;
    struct space_shape shape;
};

static void list_divisors(struct walk *w)
{
    int64_t batch = w->request->global_batch;
    int low = 0, high = 0;
    int64_t *upper = NULL;
    for (int64_t i = 1; i * i <= batch; i++) {
        if (batch % i)
            continue;
        w->divisors = host_resize(w->divisors, (size_t)(low + 1) * sizeof *w->divisors);
        w->divisors[low++] = i;
        if (i * i < batch) {
            upper = host_resize(upper, (size_t)(high + 1) * sizeof *upper);
            upper[high++] = batch / i;
        }
    }
    w->divisors = host_resize(w->divisors, (size_t)(low + high) * sizeof *w->divisors);
    while (high > 0)
        w->divisors[low++] = upper[--high];
    w->divisor_count = low;
    free(upper);
}

static void visit_micro_batches(struct walk *w)
{
    int64_t sequences = w->request->global_batch / w->shape.dp;
    bool fits = true;
    for (int i = 0; i < w->divisor_count && fits; i++) {
        int64_t b = w->divisors[i];
        if (b > LAYOUT_MICRO_BATCH_MAX || sequences % b || !wanted(w->request->micro_batch, b))
            continue;
        w->shape.micro_batch = b;
        fits = w->visit(w->context, &w->shape);
    }
}

static bool may_have_replicas(const struct walk *w, int64_t dp)
{
    return dp > 1 || w->shape.tp * w->shape.pp == 1 || !w->request->parts_need_replicas;
}

/* Where nodes differ, that depends on how many ranks each kind has. */
static bool may_be_even(const struct walk *w, int64_t dp)
{
    struct layout layout = {.dp = dp, .tp = w->shape.tp, .pp = w->shape.pp};
    struct siting siting = siting_of_one(&layout);
    return !w->request->even_nodes || w->request->cluster->group_count > 1 ||
           siting_is_even(w->request->cluster, &siting);
}

static void visit_replicas(struct walk *w, int64_t ranks)
{
    int64_t most = min_i64(ranks, LAYOUT_DP_MAX);
    for (int i = 0; i < w->divisor_count && w->divisors[i] <= most; i++)
        if (wanted(w->request->dp, w->divisors[i]) && may_have_replicas(w, w->divisors[i]) &&
            may_be_even(w, w->divisors[i])) {
            w->shape.dp = w->divisors[i];
            visit_micro_batches(w);
        }
}

static void visit_stages(struct walk *w, int64_t ranks)
{
    int64_t bare = stages_are_alike(w->request->model) ? 0 : 2; /* ends without layers */
    int64_t most = min_i64(min_i64(ranks, w->request->model->layers + bare), LAYOUT_PP_MAX);
    for (int64_t pp = 1; pp <= most; pp++)
        if (wanted(w->request->pp, pp)) {
            w->shape.pp = pp;
            visit_replicas(w, ranks / pp);
        }
}

static bool divides(const struct model *model, int64_t tp)
{
    return model->heads % tp == 0 && model->kv_heads % tp == 0 && model->ffn % tp == 0 &&
           tp <= model->vocab && (tp == 1 || !model->qk_norm_whole);
}

void space_shapes(const struct search_request *request, int64_t most_tp,
                  bool (*visit)(void *context, const struct space_shape *shape), void *context)
{
    struct walk w = {.request = request, .visit = visit, .context = context};
    int64_t ranks = cluster_ranks(request->cluster), seq_len = request->seq_len;
    int64_t most = min_i64(min_i64(most_tp, ranks), LAYOUT_TP_MAX);
    list_divisors(&w);
    for (int64_t tp = 1; tp <= most; tp++) {
        if (!divides(request->model, tp) || !wanted(request->tp, tp))
            continue;
        for (int sp = 0; sp <= 1; sp++) {
            bool possible = !sp || (tp > 1 && (seq_len ? seq_len : request->model->max_seq_len) % tp == 0);
            if (!possible || !allows(request->sequence_parallel, sp))
                continue;
            w.shape.tp = tp;
            w.shape.sequence_parallel = sp;
            visit_stages(&w, ranks / tp);
        }
    }
    free(w.divisors);
}

struct layout space_layout(const struct search_request *request, const struct space_shape *shape)
{
    return (struct layout){.dp = shape->dp,
                           .tp = shape->tp,
                           .pp = shape->pp,
                           .virtual_stages = 1,
                           .sequence_parallel = shape->sequence_parallel,
                           .micro_batch = shape->micro_batch,
                           .global_batch = request->global_batch,
                           .seq_len = request->seq_len ? request->seq_len : request->model->max_seq_len,
                           .bucket_bytes = LAYOUT_BUCKET_BYTES,
                           .precision = request->precision};
}

/* ----------------------------------------------------------------------------------------------------------- layouts */

struct layouts {
    struct layout *list;
    int count, room;
};

static void add_layout(const struct search_request *request, struct layout layout, struct layouts *out)
{
    struct error err = {0};
    if (layout_complete(&layout, request->model, &err))
        return;
    if (out->count == out->room) {
        out->room = 2 * out->room + 16;
        out->list = host_resize(out->list, (size_t)out->room * sizeof *out->list);
    }
    out->list[out->count++] = layout;
}

static void add_schedules(const struct search_request *request, struct layout layout, struct layouts *out)
{
    static const enum schedule_kind kinds[] = {SCHEDULE_1F1B, SCHEDULE_ZB_H1, SCHEDULE_GPIPE};
    int64_t layers = request->model->layers;
    for (int i = 0; i < (layout.pp > 1 ? 3 : 1); i++) {
        layout.schedule = kinds[i];
        if ((!request->schedule || *request->schedule == kinds[i]) && wanted(request->virtual_stages, 1))
            add_layout(request, layout, out);
    }
    layout.schedule = SCHEDULE_INTERLEAVED;
    bool interleaves = layout.pp > 1 && layout_micro_batches(&layout) % layout.pp == 0 &&
                       (!request->schedule || *request->schedule == SCHEDULE_INTERLEAVED);
    bool alike = stages_are_alike(request->model);
    for (int64_t v = 2; interleaves && v * layout.pp <= layers + (alike ? 0 : 2); v++)
        if ((!alike || layers % v == 0) && wanted(request->virtual_stages, v)) {
            layout.virtual_stages = v;
            add_layout(request, layout, out);
        }
}

int space_layouts(const struct search_request *request, const struct space_shape *shape, struct layout **out)
{
    struct layouts layouts = {0};
    for (int zero = 0; zero <= (shape->dp > 1); zero++) {
        struct layout layout = space_layout(request, shape);
        layout.zero = zero;
        if (allows(request->zero, zero) || shape->dp == 1)
            add_schedules(request, layout, &layouts);
    }
    *out = layouts.list;
    return layouts.count;
}
