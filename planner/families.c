#include "planner/families.h"

#include "base/checked.h"
#include "model/recompute.h"
#include "planner/explanation.h"
#include "planner/nearest.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    FAMILY_PARTS = 16, /* each family's search has this part of what a search may spend */
    SAME = 10000       /* as fast: to 0.01%, as it is printed */
};

struct family {
    const char *name; /* "tp=16" */
    struct search_request request;
};

struct families {
    const struct search_request *request;
    struct search_result *result;
    int64_t room;
};

static void add_rejected(struct families *f, const struct search_row *row)
{
    struct search_result *r = f->result;
    if (r->rejected_count == f->room) {
        f->room = 2 * f->room + 16;
        struct search_row *larger = arena_array(r->arena, (size_t)f->room, sizeof *larger);
        if (r->rejected_count)
            memcpy(larger, r->rejected, (size_t)r->rejected_count * sizeof *larger);
        r->rejected = larger;
    }
    r->rejected[r->rejected_count++] = *row;
}

/* What makes the difference: the part of the step that grew most. */
static const char *slower_part(const struct step_time *plan, const struct step_time *other)
{
    static const char *const names[] = {"computing", "recomputation", "exposed communication", "bubble",
                                        "optimizer"};
    double more[] = {other->forward + other->backward - plan->forward - plan->backward,
                     other->recompute - plan->recompute,
                     other->exposed_communication - plan->exposed_communication, other->bubble - plan->bubble,
                     other->optimizer - plan->optimizer};
    int most = 0;
    for (int i = 1; i < 5; i++)
        most = more[i] > more[most] ? i : most;
    return names[most];
}

/* "1.4x", "0.84%": by how much. */
static void print_factor(double ratio, struct text *out)
{
    if (ratio >= 1.1)
        text_printf(out, "%.1fx", ratio);
    else
        text_printf(out, "%.2f%%", 100 * (ratio - 1));
}

/* Have tensor-parallel ranks to go through the network? */
static bool crosses_nodes(const struct cluster *cluster, const struct search_row *row)
{
    for (int i = 0; i < row->siting.count; i++) {
        int64_t each = cluster->groups[row->siting.parts[i].group].ranks_per_node;
        if (row->siting.parts[i].ranks > each && each % row->layout.tp)
            return true;
    }
    return false;
}

/* "2.5% to 12% slower", "1.3x to 1.6x slower": both in the same way. */
static void print_range(double least, double found, struct text *out)
{
    if (least < 1.1 && found < 2)
        text_printf(out, "%.2g%% to %.0f%% slower", 100 * (least - 1), 100 * (found - 1));
    else
        text_printf(out, "%.3gx to %.3gx slower", least, found);
}

/* "1.4x slower at best, mostly by bubble"; "1.3x to 1.6x slower, ..." where the best was not found. */
static void print_slower(const struct search_row *plan, const struct search_row *row, double bound_s,
                         struct text *out)
{
    struct text least = {0}, found = {0};
    double bound = bound_s / plan->time.total;
    print_factor(fmax(bound, 1), &least);
    print_factor(row->time.total / plan->time.total, &found);
    if (bound_s * (1 + 1.0 / SAME) >= row->time.total || !strcmp(least.data, found.data))
        text_printf(out, "%s slower at best", found.data);
    else if ((bound - 1) * SAME >= 0.5)
        print_range(bound, row->time.total / plan->time.total, out);
    else
        text_printf(out, "%s slower as far as it was tried", found.data);
    text_printf(out, ", mostly by %s", slower_part(&plan->time, &row->time));
    text_free(&least);
    text_free(&found);
}

/* `bound_s`: none of them is faster. One that is faster than the plan was left out by a search that gave up. */
static void explain_row(const struct families *f, const char *name, const struct search_row *row,
                        double bound_s, struct text *out)
{
    const struct search_row *plan = &f->result->alternatives[0];
    double ratio = row->time.total / plan->time.total;
    struct text differs = {0};
    text_printf(out, "%s%s: ", name, crosses_nodes(f->request->cluster, row) ? " crosses nodes" : "");
    if (fabs(ratio - 1) * SAME < 0.5) {
        text_add(out, "as fast");
    } else if (ratio < 1) {
        print_factor(1 / ratio, out);
        text_add(out, f->result->judged
                          ? " faster, but for what the other system needs besides or cannot express"
                          : " faster, found after the search had stopped; ask for it");
    } else {
        print_slower(plan, row, bound_s, out);
    }
    explanation_difference(plan, row, &differs);
    if (differs.length && strncmp(name, differs.data, differs.length) != 0)
        text_printf(out, " (%s)", differs.data);
    text_free(&differs);
}

/* No plan was found before the search stopped. */
static void explain_bound(const struct families *f, const char *name, double bound_s, struct text *out)
{
    double ratio = bound_s / f->result->alternatives[0].time.total;
    text_printf(out, "%s: ", name);
    if (ratio > 1) {
        text_add(out, "at least ");
        print_factor(ratio, out);
        text_add(out, " slower, if it fits at all");
    } else {
        text_add(out, "none found that fits; it could not be more than ");
        print_factor(1 / ratio, out);
        text_add(out, " faster");
    }
}

/* What is slower even if placing its tensors took no more than their peak need not be built, and of what is far from the plan the
 * best need not be found. */
static int search_family(const struct families *f, const struct search_request *request,
                         struct search_result *out, struct error *err)
{
    static const double far = 1.1;
    struct search_request sketch = *request;
    double plan_s = f->result->alternatives[0].time.total;
    sketch.by_peak = sketch.alone = true;
    sketch.far_s = far * plan_s;
    if (search_run(&sketch, out, err))
        return -1;
    if (!out->alternative_count || (out->alternatives[0].time.total / plan_s - 1) * SAME >= 0.5)
        return 0;
    search_clear(out);
    sketch.by_peak = false;
    return search_run(&sketch, out, err);
}

/* The best of a family, or what comes nearest to fitting, and why it is not the plan. */
static int try_family(struct families *f, const struct family *family, struct error *err)
{
    struct search_result own;
    struct error refused = {0};
    struct text text = {0};
    struct arena *arena = f->result->arena;
    if (search_family(f, &family->request, &own, &refused))
        return 0; /* nothing of this kind can be run */
    int status = 0;
    if (own.alternative_count) {
        struct search_row row = explanation_copy(arena, &own.alternatives[0], f->request->model->layers);
        explain_row(f, family->name, &row, own.bound_s, &text);
        row.reason = explanation_keep(arena, &text);
        add_rejected(f, &row);
    } else if (own.bound_s < INFINITY) {
        struct search_row row = {.layout = f->result->alternatives[0].layout, .recompute = ""};
        explain_bound(f, family->name, own.bound_s, &text);
        row.reason = explanation_keep(arena, &text);
        add_rejected(f, &row);
    } else {
        struct search_row row;
        bool found;
        status = nearest_weigh(&family->request, arena, &row, &found, err);
        if (!status && found) {
            text_printf(&text, "%s does not fit: the nearest, %s", family->name, row.reason);
            row.reason = explanation_keep(arena, &text);
            add_rejected(f, &row);
        }
    }
    search_clear(&own);
    return status;
}

/* All that the plan has, so that one thing can be changed. */
static struct search_request as_planned(const struct families *f)
{
    const struct layout *l = &f->result->alternatives[0].layout;
    struct search_request request = *f->request;
    request.dp = l->dp;
    request.tp = l->tp;
    request.pp = l->pp;
    request.virtual_stages = l->virtual_stages;
    request.micro_batch = l->micro_batch;
    request.zero = l->zero ? SEARCH_ON : SEARCH_OFF;
    request.sequence_parallel = l->sequence_parallel ? SEARCH_ON : SEARCH_OFF;
    request.schedule = &l->schedule;
    return request;
}

static int try_named(struct families *f, const struct search_request *request, struct error *err,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));

static int try_named(struct families *f, const struct search_request *request, struct error *err,
                     const char *format, ...)
{
    char name[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    struct family family = {name, *request};
    family.request.effort_parts = FAMILY_PARTS;
    return try_family(f, &family, err);
}

static int try_parts(struct families *f, struct error *err)
{
    const struct layout *l = &f->result->alternatives[0].layout;
    int64_t most =
        min_i64(2 * cluster_ranks_per_node(f->request->cluster), cluster_ranks(f->request->cluster));
    for (int64_t tp = 1; tp <= most && !f->request->tp; tp *= 2) {
        struct search_request request = *f->request;
        request.tp = tp;
        bool possible = f->request->model->heads % tp == 0 && f->request->model->kv_heads % tp == 0;
        if (tp != l->tp && possible && try_named(f, &request, err, "tp=%lld", (long long)tp))
            return -1;
    }
    return 0;
}

/* With the plan's tensor-parallel ranks: half as many stages and twice as many, and so with micro-batches. */
static int try_neighbours(struct families *f, struct error *err)
{
    const struct layout *l = &f->result->alternatives[0].layout;
    for (int twice = 0; twice <= 1; twice++) {
        int64_t pp = twice ? 2 * l->pp : l->pp / 2,
                micro_batch = twice ? 2 * l->micro_batch : l->micro_batch / 2;
        struct search_request request = *f->request;
        request.tp = l->tp;
        request.pp = pp;
        if (pp && !f->request->pp && try_named(f, &request, err, "pp=%lld", (long long)pp))
            return -1;
        request.pp = f->request->pp;
        request.micro_batch = micro_batch;
        if (micro_batch && !f->request->micro_batch &&
            try_named(f, &request, err, "micro-batch %lld", (long long)micro_batch))
            return -1;
    }
    return 0;
}

static int try_switches(struct families *f, struct error *err)
{
    const struct layout *l = &f->result->alternatives[0].layout;
    struct search_request request = as_planned(f);
    request.zero = l->zero ? SEARCH_OFF : SEARCH_ON;
    if (l->dp > 1 && f->request->zero == SEARCH_ANY &&
        try_named(f, &request, err, "%s ZeRO", l->zero ? "without" : "with"))
        return -1;
    request = as_planned(f);
    request.sequence_parallel = l->sequence_parallel ? SEARCH_OFF : SEARCH_ON;
    if (l->tp > 1 && f->request->sequence_parallel == SEARCH_ANY &&
        try_named(f, &request, err, "%s sequence parallelism", l->sequence_parallel ? "without" : "with"))
        return -1;
    for (int kind = 0; kind < SCHEDULE_KINDS && l->pp > 1 && !f->request->schedule; kind++) {
        enum schedule_kind schedule = (enum schedule_kind)kind;
        request = as_planned(f);
        request.schedule = &schedule;
        request.virtual_stages = 0;
        if (schedule != l->schedule && try_named(f, &request, err, "schedule %s", schedule_name(schedule)))
            return -1;
    }
    return 0;
}

/* Megatron-LM's sets for all layers alike, in the plan's own layout. */
static int try_sets(struct families *f, struct error *err)
{
    const struct model *model = f->request->model;
    const uint32_t sets[] = {0, recompute_selective(model), recompute_full(model)};
    static const char *const names[] = {"none", "selective", "full"};
    for (int i = 0; i < 3 && !f->request->sets; i++) {
        struct search_request request = as_planned(f);
        request.sets = &sets[i];
        request.set_count = 1;
        if (strcmp(f->result->alternatives[0].recompute, names[i]) &&
            try_named(f, &request, err, "recompute %s in all layers", names[i]))
            return -1;
    }
    return 0;
}

int families_explain(const struct search_request *request, struct search_result *result, struct error *err)
{
    struct families f = {.request = request, .result = result};
    if (!result->alternative_count)
        return 0;
    return try_parts(&f, err) || try_neighbours(&f, err) || try_switches(&f, err) || try_sets(&f, err) ? -1
                                                                                                       : 0;
}
