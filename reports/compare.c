/* Reading, and which ranks stand beside which; compare_changes.c says what changed on one of them, compare_write.c shows the result. */
#include "reports/compare.h"

#include "reports/compare_changes.h"
#include "reports/run_setup.h"

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

/* Another tool may have written anything. */
static bool can_be(const struct layout *l)
{
    return l->dp > 0 && l->dp <= LAYOUT_DP_MAX && l->tp > 0 && l->tp <= LAYOUT_TP_MAX && l->pp > 0 &&
           l->pp <= LAYOUT_PP_MAX;
}

/* What a recording says of its layout. One that does not suit the ranks it has says nothing. */
static void read_layout(const struct side *side, const struct run_setup *setup, struct arena *arena,
                        struct layout_facts *out)
{
    struct pipeline *pipeline = run_setup_pipeline(setup);
    const struct layout *l = &setup->layout;
    *out = (struct layout_facts){0};
    if (pipeline)
        *out = layout_facts_of(pipeline, arena);
    else if (setup->has_layout && can_be(l))
        *out = (struct layout_facts){.layout = memcpy(arena_alloc(arena, sizeof *l), l, sizeof *l),
                                     .recompute = setup->recompute};
    if (out->layout && layout_ranks(out->layout) != side->rank_count)
        out->layout = NULL;
    out->model = side->run.model;
    out->device = side->run.device;
    pipeline_free(pipeline);
}

/* `pair` says which ranks they are; its roles and bytes are filled in. */
static void add_rows(struct comparison *c, struct compare_row pair, const int64_t first[ROLE_COUNT],
                     const int64_t second[ROLE_COUNT])
{
    for (int role = 0; role < ROLE_COUNT; role++) {
        pair.role = (enum role)role;
        pair.predicted_bytes = first[role];
        pair.measured_bytes = second[role];
        c->rows[c->row_count++] = pair;
    }
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
        .layouts = {layout_facts_of(plan, arena)},
        .rows = arena_array(arena, (size_t)(side.rank_count * ROLE_COUNT), sizeof *c.rows),
    };
    read_layout(&side, &setup, arena, &c.layouts[1]);
    for (int64_t rank = 0; rank < side.rank_count; rank++)
        add_rows(&c, (struct compare_row){.rank = rank, .before_rank = rank},
                 pipeline_of_rank(plan, rank)->at_peak, side.ranks[rank].at_peak);
    find_errors(&c);
    struct breakdown foretold =
                         breakdown_of_pipeline(plan, NULL, &(struct breakdown_room){INT64_MAX, 0}, arena),
                     measured;
    c.changed_rank = c.changed_before_rank = foretold.rank;
    if (c.max_error_bytes) {
        if (breakdown_of_run(store, run_id, foretold.rank, arena, &measured, err))
            return -1;
        compare_find_changes(&c, &foretold, &measured, arena);
    }
    *out = c;
    return 0;
}

/* ------------------------------------------------------------------------------------------------------ run and run */

/* A rank's number says what it does by the ways in which the model is divided. */
static enum compare_pairing choose_pairing(const struct layout_facts layouts[2], const struct side sides[2])
{
    const struct layout *a = layouts[0].layout, *b = layouts[1].layout;
    if (!a || !b)
        return sides[0].rank_count == sides[1].rank_count ? COMPARE_BY_RANK : COMPARE_FULLEST;
    if (a->dp == b->dp && a->tp == b->tp && a->pp == b->pp)
        return COMPARE_BY_RANK;
    return a->pp == b->pp && a->pp > 1 ? COMPARE_BY_STAGE : COMPARE_FULLEST;
}

enum { ANY_STAGE = -1 };

/* The rank with the highest peak, of all or of a stage; NULL: there is none. */
static const struct store_rank *find_fullest(const struct side *side, const struct layout *layout,
                                             int64_t stage)
{
    const struct store_rank *fullest = NULL;
    for (int64_t i = 0; i < side->rank_count; i++) {
        const struct store_rank *rank = &side->ranks[i];
        if (stage != ANY_STAGE && layout_place_of(layout, rank->rank).stage != stage)
            continue;
        if (!fullest || rank->peak_bytes > fullest->peak_bytes)
            fullest = rank;
    }
    return fullest;
}

static const struct store_rank *find_rank(const struct side *side, int number)
{
    for (int64_t i = 0; i < side->rank_count; i++)
        if (side->ranks[i].rank == number)
            return &side->ranks[i];
    return NULL;
}

struct pairing {
    struct comparison *comparison;
    const struct side *sides;
    int64_t peak_bytes; /* of the second run's fullest rank that has a partner */
};

/* Nothing where either is missing. What changed is looked for where the second run is highest. */
static void add_pair(struct pairing *p, const struct store_rank *before, const struct store_rank *after,
                     int64_t stage)
{
    struct comparison *c = p->comparison;
    if (!before || !after)
        return;
    if (c->row_count == 0 || after->peak_bytes > p->peak_bytes) {
        p->peak_bytes = after->peak_bytes;
        c->changed_before_rank = before->rank;
        c->changed_rank = after->rank;
    }
    add_rows(c, (struct compare_row){.rank = after->rank, .before_rank = before->rank, .stage = stage},
             before->at_peak, after->at_peak);
}

static void pair_ranks(struct pairing *p)
{
    struct comparison *c = p->comparison;
    const struct side *a = &p->sides[0], *b = &p->sides[1];
    const struct layout *before = c->layouts[0].layout, *after = c->layouts[1].layout;
    for (int64_t i = 0; c->pairing == COMPARE_BY_RANK && i < a->rank_count; i++)
        add_pair(p, &a->ranks[i], find_rank(b, a->ranks[i].rank), ANY_STAGE);
    for (int64_t stage = 0; c->pairing == COMPARE_BY_STAGE && stage < after->pp; stage++)
        add_pair(p, find_fullest(a, before, stage), find_fullest(b, after, stage), stage);
    /* Also where numbers have nothing in common, as in what other tools record. */
    if (c->row_count == 0) {
        c->pairing = COMPARE_FULLEST;
        add_pair(p, find_fullest(a, before, ANY_STAGE), find_fullest(b, after, ANY_STAGE), ANY_STAGE);
    }
}

static struct stage_bytes list_stage_peaks(const struct side *side, const struct layout *layout,
                                           const char *name, struct arena *arena)
{
    int64_t *peaks = arena_array(arena, (size_t)layout->pp, sizeof *peaks);
    for (int64_t stage = 0; stage < layout->pp; stage++) {
        const struct store_rank *fullest = find_fullest(side, layout, stage);
        peaks[stage] = fullest ? fullest->peak_bytes : 0;
    }
    return (struct stage_bytes){name, peaks, layout->pp};
}

static const char *runs_remark(const struct comparison *c, const struct side sides[2], struct arena *arena)
{
    const char *a = sides[0].run.model, *b = sides[1].run.model, *models = "";
    if (a && b && strcmp(a, b))
        models = arena_printf(arena, "The runs trained different models: %s and %s.", a, b);
    if (c->pairing == COMPARE_BY_RANK)
        return *models ? models : NULL;
    const char *why = c->layouts[0].layout && c->layouts[1].layout
                          ? "Ranks of the same number do different work in the two runs"
                          : arena_printf(arena, "The runs had %lld and %lld ranks",
                                         (long long)sides[0].rank_count, (long long)sides[1].rank_count);
    return arena_printf(
        arena, "%s%s%s: the rank with the highest peak%s stands beside that of the other run.", models,
        *models ? " " : "", why, c->pairing == COMPARE_BY_STAGE ? " of each stage" : "");
}

int compare_runs(const struct compare_run runs[2], struct arena *arena, struct comparison *out,
                 struct error *err)
{
    struct side sides[2];
    struct run_setup setup;
    struct breakdown before, after;
    struct comparison c = {.runs = true, .first = runs[0].name, .second = runs[1].name};
    for (int i = 0; i < 2; i++) {
        if (read_side(runs[i].store, runs[i].run_id, arena, &sides[i], err))
            return -1;
        run_setup_read(&sides[i].run, arena, &setup);
        read_layout(&sides[i], &setup, arena, &c.layouts[i]);
    }
    c.pairing = choose_pairing(c.layouts, sides);
    c.rows = arena_array(arena, (size_t)(sides[0].rank_count * ROLE_COUNT), sizeof *c.rows);
    pair_ranks(&(struct pairing){.comparison = &c, .sides = sides});
    for (int i = 0; c.pairing != COMPARE_BY_RANK && i < 2; i++)
        if (c.layouts[0].layout && c.layouts[1].layout)
            c.stage_peaks[i] =
                list_stage_peaks(&sides[i], c.layouts[i].layout, i ? "after" : "before", arena);
    if (breakdown_of_run(runs[0].store, runs[0].run_id, c.changed_before_rank, arena, &before, err) ||
        breakdown_of_run(runs[1].store, runs[1].run_id, c.changed_rank, arena, &after, err))
        return -1;
    c.remark = runs_remark(&c, sides, arena);
    find_errors(&c);
    compare_find_changes(&c, &before, &after, arena);
    *out = c;
    return 0;
}
