#include "reports/document.h"

#include "base/units.h"
#include "reports/ranges.h"
#include "reports/role_table.h"
#include "reports/run_setup.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ tables */

/* A column for every role, behind the columns of its table. */
#define ROLE_BYTES                                                                                           \
    {"parameter", TABLE_BYTES}, {"gradient", TABLE_BYTES}, {"optimizer", TABLE_BYTES},                       \
        {"activation", TABLE_BYTES}, {"workspace", TABLE_BYTES}, {"communication", TABLE_BYTES},             \
        {"input", TABLE_BYTES},                                                                              \
    {                                                                                                        \
        "runtime", TABLE_BYTES                                                                               \
    }

static const struct table_column step_columns[] = {
    {"step", TABLE_TEXT}, {"events", TABLE_COUNT}, {"highest", TABLE_BYTES}, ROLE_BYTES};
static const struct table_column layer_columns[] = {
    {"layer", TABLE_TEXT}, {"in all", TABLE_BYTES}, ROLE_BYTES};
static const struct table_column work_columns[] = {
    {"rank", TABLE_TEXT},         {"stage", TABLE_TEXT},
    {"forward", TABLE_SECONDS},   {"backward", TABLE_SECONDS},
    {"weights", TABLE_SECONDS},   {"recompute", TABLE_SECONDS},
    {"optimizer", TABLE_SECONDS}, {"communication", TABLE_SECONDS},
    {"waiting", TABLE_SECONDS},   {"idle", TABLE_SECONDS},
    {"computing", TABLE_PERCENT}};
enum { WORK_COLUMNS = sizeof work_columns / sizeof *work_columns };
_Static_assert(ROLE_COUNT == 8 && ACTIVITY_COUNT == 7, "the columns above name all of them");

/* Nothing is blank, which reads calmer than "0 B". */
static void fill_roles(struct table_cell *cells, const int64_t by_role[ROLE_COUNT])
{
    for (int role = 0; role < ROLE_COUNT; role++)
        cells[role] = by_role[role] ? cell_whole(by_role[role]) : cell_blank();
}

static void add_memory(struct report *page, const struct series *series)
{
    struct table *table =
        report_table(page, "Memory over time", step_columns, sizeof step_columns / sizeof *step_columns);
    report_set_topic(page, TOPIC_MEMORY);
    for (int64_t i = 0; i < series->step_count; i++) {
        const struct series_step *step = &series->steps[i];
        struct table_cell cells[3 + ROLE_COUNT] = {
            cell_text(step->step == 0 ? "before the first" : arena_printf(page->arena, "%d", step->step)),
            cell_whole(step->events), cell_whole(step->highest.live_bytes)};
        fill_roles(cells + 3, step->highest.by_role);
        table_add(table, cells);
    }
}

static void add_layers(struct report *page, const struct breakdown *b)
{
    struct table *table = report_table(page, "By layer at the peak", layer_columns,
                                       sizeof layer_columns / sizeof *layer_columns);
    report_set_topic(page, TOPIC_LAYERS);
    for (int64_t i = 0; i < b->layer_count; i++) {
        const struct breakdown_layer *layer = &b->layers[i];
        struct table_cell cells[2 + ROLE_COUNT] = {
            cell_text(layer->layer < 0 ? breakdown_outside(b->stages > 1)
                                       : arena_printf(page->arena, "%lld", (long long)layer->layer)),
            cell_whole(role_table_total(layer->by_role))};
        fill_roles(cells + 2, layer->by_role);
        table_add(table, cells);
    }
}

static struct table_cell seconds_cell(int64_t ns)
{
    return ns ? cell_real((double)ns * 1e-9) : cell_blank();
}

static void add_timeline(struct report *page, const struct timeline *timeline)
{
    const struct timeline_step *first = &timeline->steps[0];
    const char *heading =
        timeline->foretold ? "What the stages will do in a step"
        : timeline->step_count == 1
            ? arena_printf(page->arena, "What the ranks did in step %d", first->step)
            : arena_printf(page->arena, "What the ranks did in %lld steps", (long long)timeline->step_count);
    struct table *table = report_table(page, heading, work_columns, WORK_COLUMNS);
    report_set_topic(page, TOPIC_TIMELINE);
    int64_t length = 0;
    for (int64_t i = 0; i < timeline->step_count; i++)
        length += timeline->steps[i].end_ns - timeline->steps[i].start_ns;
    for (int64_t i = 0; i < timeline->lane_count; i++) {
        const struct lane *lane = &timeline->lanes[i];
        struct table_cell cells[WORK_COLUMNS] = {
            cell_text(ranges_span(page->arena, lane->rank, lane->ranks)),
            cell_text(lane->stage < 0 ? "" : arena_printf(page->arena, "%lld", (long long)lane->stage))};
        for (int activity = 0; activity < ACTIVITY_COUNT; activity++)
            cells[2 + activity] = seconds_cell(lane->busy_ns[activity]);
        int64_t computing = 0;
        for (int activity = 0; activity < ACTIVITY_COMMUNICATION; activity++)
            computing += lane->busy_ns[activity];
        cells[2 + ACTIVITY_COUNT] = seconds_cell(lane->idle_ns);
        cells[3 + ACTIVITY_COUNT] = cell_real(length ? (double)computing / (double)length : 0);
        table_add(table, cells);
    }
}

/* What must fit a card is more than what tensors hold. */
static void add_needed(struct report *report, const struct breakdown *b)
{
    char runtime[UNITS_TEXT];
    if (!b->runtime_bytes)
        return;
    report_capacity(report, "needed", b->arena_bytes + b->runtime_bytes, b->capacity_bytes);
    report_fact(report, "of that, runtime", "%s: context and libraries, which no tensor owns",
                units_format_bytes(b->runtime_bytes, runtime));
}

/* In the order in which a reader asks: how did it get there, who holds it, why, where, who else, how fast. */
static const struct report *make_page(const struct document *d)
{
    const struct breakdown *b = &d->breakdown;
    struct report *page = report_create(d->arena, "%s", d->summary->title);
    breakdown_add_facts(page, b);
    add_needed(page, b);
    if (d->memory_count)
        add_memory(page, d->memory[0]);
    role_table_add(page, "Who holds the bytes at the peak", b->by_role, b->foretold ? b->predicted : NULL);
    report_set_topic(page, TOPIC_ROLES);
    if (b->detailed) {
        breakdown_add_moment(page, b);
        if (b->layer_count)
            add_layers(page, b);
        breakdown_add_tensors(page, b);
    }
    rank_table_add(page, b->rows, b->row_count, b->measured);
    if (d->timeline)
        add_timeline(page, d->timeline);
    if (d->candidates) {
        candidates_add(page, d->candidates);
        report_set_topic(page, TOPIC_CANDIDATES);
    }
    if (b->measured)
        breakdown_add_steps(page, b);
    return page;
}

/* ------------------------------------------------------------------------------------------------------ runs and plans */

struct reading {
    struct store *store;
    int64_t run_id;
    const struct pipeline *pipeline; /* NULL: unknown */
    const struct document_needs *needs;
    struct error *err;
};

static int read_series(const struct reading *r, int64_t rank, struct document *d)
{
    int64_t ranks = r->needs->all_ranks ? d->breakdown.row_count : 1;
    bool known = r->pipeline && rank < layout_ranks(&r->pipeline->stages[0]->layout);
    struct series *series;
    if (series_of_run(r->store, r->run_id, rank, known ? pipeline_of_rank(r->pipeline, rank) : NULL,
                      r->needs->points / ranks + 2, d->arena, &series, r->err))
        return -1;
    if (series)
        d->memory[d->memory_count++] = series;
    return 0;
}

/* The rank that is shown first, then the others. */
static int read_memory(const struct reading *r, struct document *d)
{
    int64_t count = r->needs->all_ranks ? d->breakdown.row_count : 1;
    d->memory = arena_array(d->arena, (size_t)d->breakdown.row_count, sizeof *d->memory);
    if (read_series(r, d->breakdown.rank, d))
        return -1;
    for (int64_t i = 0; count > 1 && i < count; i++) {
        int64_t rank = d->breakdown.rows[i].first;
        if (rank != d->breakdown.rank && read_series(r, rank, d))
            return -1;
        if (r->needs->progress)
            r->needs->progress(i + 1, count);
    }
    return 0;
}

static int read_pictures(const struct reading *r, int step, struct document *d)
{
    struct timeline *timeline;
    if (read_memory(r, d))
        return -1;
    if (spans_of_run(r->store, r->run_id, r->pipeline, r->needs->all_steps ? SPANS_ALL_STEPS : step, d->arena,
                     &timeline, r->err))
        return -1;
    d->timeline = timeline;
    return 0;
}

int document_of_run(struct store *store, int64_t run_id, int64_t rank, int step,
                    const struct document_needs *needs, struct arena *arena, struct document *out,
                    struct error *err)
{
    struct store_run run;
    struct run_setup setup;
    struct document d = {.arena = arena};
    if (breakdown_of_run(store, run_id, rank, arena, &d.breakdown, err) ||
        store_read_run(store, run_id, arena, &run, err))
        return -1;
    run_setup_read(&run, arena, &setup);
    struct pipeline *pipeline = run_setup_pipeline(&setup);
    struct reading reading = {store, run_id, pipeline, needs, err};
    int status = needs->pictures ? read_pictures(&reading, step, &d) : 0;
    pipeline_free(pipeline);
    if (status)
        return -1;
    d.summary = breakdown_report(&d.breakdown, arena);
    d.page = make_page(&d);
    *out = d;
    return 0;
}

void document_of_plan(const struct document_plan *plan, const struct document_needs *needs,
                      struct arena *arena, struct document *out)
{
    *out = (struct document){.arena = arena, .candidates = plan->candidates};
    out->breakdown = breakdown_of_pipeline(plan->pipeline, plan->device, &plan->room, arena);
    for (int i = 0; plan->stage_devices && i < plan->pipeline->count; i++)
        out->breakdown.rows[i].device = plan->stage_devices[i];
    if (needs->pictures) {
        int64_t rank = out->breakdown.rank;
        out->memory = arena_array(arena, 1, sizeof *out->memory);
        out->memory[out->memory_count++] =
            series_of_program(pipeline_of_rank(plan->pipeline, rank), rank, needs->points, arena);
        out->timeline = plan->timeline;
    }
    struct report *summary = breakdown_report(&out->breakdown, arena);
    add_needed(summary, &out->breakdown);
    out->summary = summary;
    out->page = make_page(out);
}

void document_of_answer(const struct report *page, const json_t *answer, const struct breakdown *breakdown,
                        struct arena *arena, struct document *out)
{
    *out = (struct document){
        .arena = arena, .breakdown = *breakdown, .summary = page, .page = page, .answer = answer};
}

void document_of_plans(const struct comparison *peaks, const struct report *page, const json_t *answer,
                       struct arena *arena, struct document *out)
{
    *out = (struct document){
        .arena = arena, .comparison = peaks, .summary = page, .page = page, .answer = answer};
}

void document_of_comparison(const struct comparison *comparison, struct arena *arena, struct document *out)
{
    const struct report *report = compare_report(comparison, arena);
    *out = (struct document){.arena = arena, .comparison = comparison, .summary = report, .page = report};
}
