#include "reports/candidates.h"

#include <math.h>

static const struct table_column columns[] = {
    {"", TABLE_TEXT},
    {"dp", TABLE_COUNT},
    {"tp", TABLE_COUNT},
    {"pp", TABLE_COUNT},
    {"micro", TABLE_COUNT},
    {"recompute", TABLE_TEXT},
    {"peak", TABLE_BYTES},
    {"arena", TABLE_BYTES},
    {"step", TABLE_SECONDS},
    {"recomputing", TABLE_SECONDS},
    {"communication", TABLE_SECONDS},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static int read_row(const json_t *object, const char *where, struct arena *arena, struct candidate *out,
                    struct error *err)
{
    const char *recompute = "none", *reason = NULL;
    *out =
        (struct candidate){.tp = 1, .pp = 1, .recompute_seconds = NAN, .exposed_communication_seconds = NAN};
    if (jsonfile_int(object, "dp", where, &out->dp, err) ||
        jsonfile_int_optional(object, "tp", where, &out->tp, err) ||
        jsonfile_int_optional(object, "pp", where, &out->pp, err) ||
        jsonfile_int(object, "micro_batch", where, &out->micro_batch, err) ||
        jsonfile_text_optional(object, "recompute", where, &recompute, err) ||
        jsonfile_text_optional(object, "reason", where, &reason, err))
        return -1;
    if (jsonfile_int(object, "peak_bytes", where, &out->peak_bytes, err))
        return -1;
    out->recompute = arena_strdup(arena, recompute);
    out->reason = reason ? arena_strdup(arena, reason) : NULL;
    if (jsonfile_int_optional(object, "arena_bytes", where, &out->arena_bytes, err) ||
        jsonfile_real(object, "step_seconds", where, &out->step_seconds, err) ||
        jsonfile_real_optional(object, "recompute_seconds", where, &out->recompute_seconds, err) ||
        jsonfile_real_optional(object, "exposed_communication_seconds", where,
                               &out->exposed_communication_seconds, err))
        return -1;
    if (out->step_seconds <= 0)
        out->step_seconds = out->recompute_seconds = out->exposed_communication_seconds = NAN;
    return 0;
}

int64_t candidates_bytes(const struct candidate *candidate)
{
    return candidate->arena_bytes ? candidate->arena_bytes : candidate->peak_bytes;
}

static int read_rows(const json_t *list, const char *where, const char *key, struct arena *arena,
                     struct candidates *out, struct error *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *place = arena_printf(arena, "%s: %s[%zu]", where, key, i);
        if (read_row(json_array_get(list, i), place, arena, &out->rows[out->count], err))
            return -1;
        struct candidate *row = &out->rows[out->count++];
        int64_t bytes = candidates_bytes(row);
        row->fits = !row->reason || (bytes && bytes <= out->capacity_bytes);
    }
    return 0;
}

int candidates_from_json(const json_t *document, const char *where, int64_t capacity_bytes,
                         struct arena *arena, struct candidates **out, struct error *err)
{
    const json_t *fitting = json_object_get(document, "alternatives");
    const json_t *rejected = json_object_get(document, "rejected");
    size_t count = json_array_size(fitting) + json_array_size(rejected);
    *out = NULL;
    if (count == 0)
        return 0;
    struct candidates *candidates = arena_alloc(arena, sizeof *candidates);
    candidates->capacity_bytes = capacity_bytes;
    candidates->rows = arena_array(arena, count, sizeof *candidates->rows);
    if (jsonfile_int_optional(document, "candidates", where, &candidates->weighed, err) ||
        read_rows(fitting, where, "alternatives", arena, candidates, err) ||
        read_rows(rejected, where, "rejected", arena, candidates, err))
        return -1;
    /* The search's order: the first that fits is the plan. */
    candidates->rows[0].chosen = json_array_size(fitting) > 0;
    *out = candidates;
    return 0;
}

static const char *name_state(const struct candidate *row)
{
    return row->chosen ? "chosen" : row->fits ? "fits" : "too large";
}

static struct table_cell known_bytes(int64_t bytes)
{
    return bytes ? cell_whole(bytes) : cell_blank();
}

struct table *candidates_add(struct report *report, const struct candidates *candidates)
{
    struct table *table = report_table(report, "Candidate plans", columns, COLUMNS);
    for (int64_t i = 0; i < candidates->count; i++) {
        const struct candidate *row = &candidates->rows[i];
        table_add(table, (struct table_cell[COLUMNS]){
                             cell_text(name_state(row)), cell_whole(row->dp), cell_whole(row->tp),
                             cell_whole(row->pp), cell_whole(row->micro_batch), cell_text(row->recompute),
                             known_bytes(row->peak_bytes), known_bytes(row->arena_bytes),
                             cell_real(row->step_seconds), cell_real(row->recompute_seconds),
                             cell_real(row->exposed_communication_seconds)});
    }
    return table;
}
