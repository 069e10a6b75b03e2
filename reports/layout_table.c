#include "reports/layout_table.h"

#include "base/text.h"
#include "model/recompute.h"
#include "reports/stage_table.h"

#include <inttypes.h>
#include <string.h>

enum { SHORT_RECOMPUTE = 40, ROWS = 15 };

/* What names layers one by one, as a count of those that recompute anything. */
static const char *shorten_recompute(const struct program *first, struct arena *arena)
{
    int64_t layers = 0;
    for (int64_t i = 0; i < first->model.layers; i++)
        layers += first->recompute[i] != 0;
    return arena_printf(arena, "layer by layer, in %" PRId64 " of %" PRId64, layers, first->model.layers);
}

struct layout_facts layout_facts_of(const struct pipeline *pipeline, struct arena *arena)
{
    const struct program *first = pipeline->stages[0];
    struct layout *layout = arena_alloc(arena, sizeof *layout);
    struct text recompute = {0};
    *layout = first->layout;
    recompute_print(&first->model, first->recompute, &recompute);
    struct layout_facts facts = {
        .model = arena_strdup(arena, first->model.name),
        .layout = layout,
        .chunk_layers = stage_table_chunk_layers(pipeline, arena),
        .recompute = arena_strdup(arena, recompute.data),
        .recompute_shown = recompute.length > SHORT_RECOMPUTE ? shorten_recompute(first, arena) : NULL,
    };
    text_free(&recompute);
    return facts;
}

static const char *whole(int64_t number, struct arena *arena)
{
    return arena_printf(arena, "%" PRId64, number);
}

static const char *print_layers(const struct layout_facts *facts, struct arena *arena)
{
    struct text text = {0};
    if (!facts->chunk_layers)
        return NULL;
    layout_print_layers(facts->chunk_layers, layout_chunks(facts->layout), &text);
    const char *out = arena_strdup(arena, text.data);
    text_free(&text);
    return out;
}

/* Two that are shown alike may differ. */
struct row {
    const char *name, *text;
    const char *shown; /* NULL: the text */
};

static void list_rows(const struct layout_facts *facts, struct arena *arena, struct row out[ROWS])
{
    const struct layout *l = facts->layout;
    const struct row rows[ROWS] = {
        {"model", facts->model, NULL},
        {"device", facts->device, NULL},
        {"data-parallel ranks", whole(l->dp, arena), NULL},
        {"tensor-parallel ranks", whole(l->tp, arena), NULL},
        {"sequence parallel", l->sequence_parallel ? "yes" : "no", NULL},
        {"pipeline stages", whole(l->pp, arena), NULL},
        {"schedule", l->pp > 1 ? schedule_name(l->schedule) : "-", NULL},
        {"chunks a stage", whole(l->virtual_stages, arena), NULL},
        {"layers", print_layers(facts, arena), NULL},
        {"micro-batch", whole(l->micro_batch, arena), NULL},
        {"global batch", whole(l->global_batch, arena), NULL},
        {"sequence", whole(l->seq_len, arena), NULL},
        {"ZeRO", whole(l->zero, arena), NULL},
        {"precision", precision_name(l->precision), NULL},
        {"recompute", facts->recompute, facts->recompute_shown},
    };
    memcpy(out, rows, sizeof rows);
}

static struct table *begin_table(struct report *report, const char *const names[2])
{
    struct table_column *columns = arena_array(report->arena, 3, sizeof *columns);
    columns[0] = (struct table_column){"", TABLE_TEXT};
    for (int i = 0; i < 2; i++)
        columns[1 + i] = (struct table_column){names[i], TABLE_TEXT};
    return report_table(report, "Where the layouts differ", columns, 3);
}

bool layout_table_add(struct report *report, const char *const names[2], const struct layout_facts facts[2])
{
    struct row rows[2][ROWS];
    struct table *table = NULL;
    for (int i = 0; i < 2; i++)
        list_rows(&facts[i], report->arena, rows[i]);
    for (int r = 0; r < ROWS; r++) {
        const struct row *a = &rows[0][r], *b = &rows[1][r];
        if (!a->text || !b->text || !strcmp(a->text, b->text))
            continue;
        if (!table)
            table = begin_table(report, names);
        table_add(table, (struct table_cell[]){cell_text(a->name), cell_text(a->shown ? a->shown : a->text),
                                               cell_text(b->shown ? b->shown : b->text)});
    }
    return table != NULL;
}
