/* Reading and joining; compare_write.c shows the result. */
#include "reports/compare.h"

#include "model/recompute.h"
#include "reports/describe.h"
#include "reports/role_table.h"
#include "reports/run_setup.h"
#include "reports/stage_table.h"

#include <stdlib.h>
#include <string.h>

/* Of a run, with the figures that its ranks' ledgers ended with. */
struct side {
    struct store_run run;
    struct store_rank *ranks;
    int64_t rank_count;
};

static int read_side(struct store *store, int64_t run_id, struct arena *arena, struct side *side,
                     struct error *err)
{
    if (store_read_run(store, run_id, arena, &side->run, err) ||
        store_read_ranks(store, run_id, arena, &side->ranks, &side->rank_count, err))
        return -1;
    if (side->rank_count == 0)
        return error_set(err, "run %lld has no ranks; compare a run that memplan profile or train recorded",
                         (long long)run_id);
    for (int64_t i = 0; i < side->rank_count; i++)
        if (!side->ranks[i].measured)
            return error_set(
                err,
                "run %lld has no measured peak of rank %d: it still goes on, or was stopped before its "
                "end; compare a finished run",
                (long long)run_id, side->ranks[i].rank);
    return 0;
}

static void add_rows(struct comparison *c, int64_t rank, const int64_t first[ROLE_COUNT],
                     const int64_t second[ROLE_COUNT])
{
    for (int role = 0; role < ROLE_COUNT; role++)
        c->rows[c->row_count++] = (struct compare_row){rank, (enum role)role, first[role], second[role]};
}

static void consider_error(struct comparison *c, int64_t difference, int64_t peak_bytes)
{
    int64_t error = llabs(difference);
    double fraction = error == 0 ? 0 : peak_bytes > 0 ? (double)error / (double)peak_bytes : 1;
    if (error > c->max_error_bytes)
        c->max_error_bytes = error;
    if (fraction > c->max_error_fraction)
        c->max_error_fraction = fraction;
}

static void find_errors(struct comparison *c)
{
    for (int64_t i = 0; i < c->row_count; i += ROLE_COUNT) {
        int64_t first = 0, second = 0;
        for (int role = 0; role < ROLE_COUNT; role++) {
            first += c->rows[i + role].predicted_bytes;
            second += c->rows[i + role].measured_bytes;
        }
        int64_t peak_bytes = c->runs ? first : second;
        consider_error(c, first - second, peak_bytes);
        for (int role = 0; role < ROLE_COUNT; role++)
            consider_error(c, c->rows[i + role].predicted_bytes - c->rows[i + role].measured_bytes,
                           peak_bytes);
    }
}

/* ---------------------------------------------------------------------------------------------------------- changes */

static int by_name(const void *left, const void *right)
{
    const struct compare_change *a = left, *b = right;
    int order = a->name && b->name ? strcmp(a->name, b->name) : 0;
    if (order)
        return order;
    return a->layer != b->layer ? (a->layer < b->layer ? -1 : 1) : (int)a->role - (int)b->role;
}

static int most_changed_first(const void *left, const void *right)
{
    const struct compare_change *a = left, *b = right;
    int64_t first = llabs(a->after_bytes - a->before_bytes), second = llabs(b->after_bytes - b->before_bytes);
    return first != second ? (first < second ? 1 : -1) : by_name(left, right);
}

/* Joins changes of the same thing, drops those that are none, and sorts the rest. Returns how many are left. */
static int64_t settle(struct compare_change *changes, int64_t count)
{
    int64_t joined = 0, left = 0;
    qsort(changes, (size_t)count, sizeof *changes, by_name);
    for (int64_t i = 0; i < count; i++) {
        if (joined && by_name(&changes[joined - 1], &changes[i]) == 0) {
            changes[joined - 1].before_bytes += changes[i].before_bytes;
            changes[joined - 1].after_bytes += changes[i].after_bytes;
        } else {
            changes[joined++] = changes[i];
        }
    }
    for (int64_t i = 0; i < joined; i++)
        if (changes[i].before_bytes != changes[i].after_bytes)
            changes[left++] = changes[i];
    qsort(changes, (size_t)left, sizeof *changes, most_changed_first);
    return left;
}

static void add_layers(struct comparison *c, const struct breakdown *b, bool after)
{
    for (int64_t i = 0; i < b->layer_count; i++)
        for (int role = 0; role < ROLE_COUNT; role++) {
            int64_t bytes = b->layers[i].by_role[role];
            c->layers[c->layer_count++] = (struct compare_change){NULL, b->layers[i].layer, (enum role)role,
                                                                  after ? 0 : bytes, after ? bytes : 0};
        }
}

static void add_tensors(struct comparison *c, const struct breakdown *b, bool after)
{
    for (int64_t i = 0; i < b->tensor_count; i++) {
        const struct breakdown_tensor *tensor = &b->tensors[i];
        c->tensors[c->tensor_count++] = (struct compare_change){
            tensor->name, tensor->layer, tensor->role, after ? 0 : tensor->bytes, after ? tensor->bytes : 0};
    }
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

/* Steps are alike, so which of them it was says nothing. */
static void locate_peaks(struct comparison *c, const struct breakdown_moment *first,
                         const struct breakdown_moment *second)
{
    c->located = true;
    c->first_moment = *first;
    c->second_moment = *second;
    c->moved = !same_text(first->phase, second->phase) || !same_text(first->part, second->part) ||
               !same_text(first->operation, second->operation) || first->micro_batch != second->micro_batch;
    for (int64_t i = 0; i < c->tensor_count; i++) {
        const struct compare_change *change = &c->tensors[i];
        if (change->before_bytes == 0) {
            c->arrived++;
            c->arrived_bytes += change->after_bytes;
        } else if (change->after_bytes == 0) {
            c->left++;
            c->left_bytes += change->before_bytes;
        }
    }
}

static void find_changes(struct comparison *c, const struct breakdown *before, const struct breakdown *after,
                         struct arena *arena)
{
    c->changed_rank = after->rank;
    c->staged = after->stages > 1;
    if (!before->detailed || !after->detailed)
        return;
    size_t layers = (size_t)(before->layer_count + after->layer_count) * ROLE_COUNT;
    c->layers = arena_array(arena, layers, sizeof *c->layers);
    c->tensors = arena_array(arena, (size_t)(before->tensor_count + after->tensor_count), sizeof *c->tensors);
    add_layers(c, before, false);
    add_layers(c, after, true);
    add_tensors(c, before, false);
    add_tensors(c, after, true);
    c->layer_count = settle(c->layers, c->layer_count);
    c->tensor_count = settle(c->tensors, c->tensor_count);
    locate_peaks(c, &before->moment, &after->moment);
}

/* ----------------------------------------------------------------------------------------------------- plan and run */

static bool same_shape(const struct model *a, const struct model *b)
{
    return a->family == b->family && a->layers == b->layers && a->hidden == b->hidden &&
           a->heads == b->heads && a->kv_heads == b->kv_heads && a->head_size == b->head_size &&
           a->ffn == b->ffn && a->vocab == b->vocab && a->tied == b->tied;
}

static int check_model(const struct model *planned, const struct store_run *run,
                       const struct run_setup *setup, struct error *err)
{
    if (!setup->has_model)
        return error_set(
            err,
            "run %lld does not say which model it trained, so no plan can be held against it; compare it "
            "with another run",
            (long long)run->run_id);
    if (!same_shape(&setup->model, planned))
        return error_set(
            err,
            "run %lld trained %s (%lld layers), and the plan is for %s (%lld layers); compare a plan "
            "with a run of it",
            (long long)run->run_id, setup->model.name, (long long)setup->model.layers, planned->name,
            (long long)planned->layers);
    return 0;
}

static const char *layout_text(const struct layout *layout, const char *recompute, struct arena *arena)
{
    return arena_printf(arena, "%s, recompute %s", describe_layout(layout, arena), recompute);
}

/* The same layout may still share out the layers otherwise; NULL: it does not, or that is not known. */
static const char *split_remark(const struct pipeline *plan, const struct run_setup *setup,
                                struct arena *arena)
{
    struct pipeline *run = run_setup_pipeline(setup);
    if (!run)
        return NULL;
    const char *planned = stage_table_split(plan, arena), *ran = stage_table_split(run, arena);
    pipeline_free(run);
    return strcmp(planned, ran)
               ? arena_printf(arena, "The stages differ. Planned: %s. Run: %s.", planned, ran)
               : NULL;
}

/* Another batch, precision or recomputation needs other bytes: said, not refused, because that may be the question. Of
 * an older run the recomputation is not known; then the rest decides. */
static const char *layout_remark(const struct pipeline *plan, const struct run_setup *setup,
                                 struct arena *arena)
{
    if (!setup->has_layout)
        return NULL;
    const struct program *first = plan->stages[0];
    struct text recompute = {0};
    recompute_print(&first->model, first->recompute, &recompute);
    const char *planned = layout_text(&first->layout, recompute.data, arena);
    const char *ran =
        layout_text(&setup->layout, setup->recompute ? setup->recompute : recompute.data, arena);
    text_free(&recompute);
    return strcmp(planned, ran)
               ? arena_printf(arena, "The layouts differ. Planned: %s. Run: %s.", planned, ran)
               : split_remark(plan, setup, arena);
}

/* As many as planned, counted from 0. */
static int check_ranks(const struct layout *layout, const struct side *side, struct error *err)
{
    bool fine = side->rank_count == layout_ranks(layout);
    for (int64_t i = 0; fine && i < side->rank_count; i++)
        fine = side->ranks[i].rank == i;
    return fine ? 0
                : error_set(
                      err,
                      "run %lld had %lld ranks, and the plan is for %lld; compare a plan with a run of it",
                      (long long)side->run.run_id, (long long)side->rank_count,
                      (long long)layout_ranks(layout));
}

int compare_plan_with_run(const struct pipeline *plan, struct store *store, int64_t run_id,
                          struct arena *arena, struct comparison *out, struct error *err)
{
    struct side side;
    struct run_setup setup;
    const struct program *first = plan->stages[0];
    if (read_side(store, run_id, arena, &side, err))
        return -1;
    run_setup_read(&side.run, arena, &setup);
    if (check_model(&first->model, &side.run, &setup, err) || check_ranks(&first->layout, &side, err))
        return -1;
    struct comparison c = {
        .first = "the plan",
        .second = arena_printf(arena, "run %lld", (long long)run_id),
        .remark = layout_remark(plan, &setup, arena),
        .rows = arena_array(arena, (size_t)(side.rank_count * ROLE_COUNT), sizeof *c.rows),
    };
    for (int64_t rank = 0; rank < side.rank_count; rank++)
        add_rows(&c, rank, pipeline_of_rank(plan, rank)->at_peak, side.ranks[rank].at_peak);
    find_errors(&c);
    struct breakdown foretold =
                         breakdown_of_pipeline(plan, NULL, &(struct breakdown_room){INT64_MAX, 0}, arena),
                     measured;
    c.changed_rank = foretold.rank;
    if (c.max_error_bytes) {
        if (breakdown_of_run(store, run_id, foretold.rank, arena, &measured, err))
            return -1;
        find_changes(&c, &foretold, &measured, arena);
    }
    *out = c;
    return 0;
}

/* ------------------------------------------------------------------------------------------------------ run and run */

/* Sets the rank that both have and where the second is highest. */
static int64_t add_common_ranks(struct comparison *c, const struct side *before, const struct side *after)
{
    int64_t highest = -1, peak_bytes = -1;
    for (int64_t i = 0, k = 0; i < before->rank_count && k < after->rank_count;) {
        const struct store_rank *a = &before->ranks[i], *b = &after->ranks[k];
        if (a->rank == b->rank) {
            add_rows(c, a->rank, a->at_peak, b->at_peak);
            if (b->peak_bytes > peak_bytes) {
                highest = b->rank;
                peak_bytes = b->peak_bytes;
            }
        }
        i += a->rank <= b->rank;
        k += b->rank <= a->rank;
    }
    return highest;
}

static const char *runs_remark(const struct side *before, const struct side *after, struct arena *arena)
{
    const char *a = before->run.model, *b = after->run.model;
    if (a && b && strcmp(a, b))
        return arena_printf(arena, "The runs trained different models: %s and %s.", a, b);
    if (before->rank_count != after->rank_count)
        return arena_printf(arena, "The runs had %lld and %lld ranks; those that both had are compared.",
                            (long long)before->rank_count, (long long)after->rank_count);
    return NULL;
}

int compare_runs(struct store *before, int64_t before_id, struct store *after, int64_t after_id,
                 struct arena *arena, struct comparison *out, struct error *err)
{
    struct side a, b;
    struct breakdown old, new;
    if (read_side(before, before_id, arena, &a, err) || read_side(after, after_id, arena, &b, err))
        return -1;
    int64_t most = a.rank_count < b.rank_count ? a.rank_count : b.rank_count;
    bool alike = before_id == after_id && before != after; /* of two databases */
    struct comparison c = {
        .runs = true,
        .first = arena_printf(arena, "run %lld%s", (long long)before_id, alike ? " (before)" : ""),
        .second = arena_printf(arena, "run %lld%s", (long long)after_id, alike ? " (after)" : ""),
        .rows = arena_array(arena, (size_t)(most * ROLE_COUNT), sizeof *c.rows),
    };
    int64_t rank = add_common_ranks(&c, &a, &b);
    if (rank < 0)
        return error_set(
            err, "run %lld and run %lld have no rank in common; compare runs whose ranks count from 0",
            (long long)before_id, (long long)after_id);
    if (breakdown_of_run(before, before_id, rank, arena, &old, err) ||
        breakdown_of_run(after, after_id, rank, arena, &new, err))
        return -1;
    c.remark = runs_remark(&a, &b, arena);
    find_errors(&c);
    find_changes(&c, &old, &new, arena);
    *out = c;
    return 0;
}
