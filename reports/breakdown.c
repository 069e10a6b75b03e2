/* Breakdowns in words and in JSON. Text groups what says the same (equal layers, the same tensor of many layers); JSON has
 * every layer by itself. */
#include "reports/breakdown.h"

#include "base/units.h"
#include "reports/describe.h"
#include "reports/json_values.h"
#include "reports/ranges.h"
#include "reports/role_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYER_ROWS = 12, MOST_TENSOR_ROWS = 10, MOST_JSON_TENSORS = 20 };

static const struct table_column layer_columns[] = {{"each of", TABLE_TEXT}, {"activation", TABLE_BYTES},
                                                    {"states", TABLE_BYTES}, {"other", TABLE_BYTES},
                                                    {"in all", TABLE_BYTES}, {"", TABLE_BAR}};
static const struct table_column tensor_columns[] = {{"", TABLE_TEXT},      {"layers", TABLE_TEXT},
                                                     {"shape", TABLE_TEXT}, {"role", TABLE_TEXT},
                                                     {"each", TABLE_BYTES}, {"in all", TABLE_BYTES}};
/* Where several micro-batches hold the same, and shapes have to say what each of them takes. */
static const struct table_column counted_columns[] = {{"", TABLE_TEXT},       {"layers", TABLE_TEXT},
                                                      {"shape", TABLE_TEXT},  {"role", TABLE_TEXT},
                                                      {"count", TABLE_COUNT}, {"in all", TABLE_BYTES}};
static const struct table_column step_columns[] = {{"", TABLE_TEXT},
                                                   {"first", TABLE_QUANTITY},
                                                   {"median", TABLE_QUANTITY},
                                                   {"last", TABLE_QUANTITY},
                                                   {"predicted", TABLE_QUANTITY}};

/* ------------------------------------------------------------------------------------------------------------ facts */

/* A run that fails ends early, and its recording is closed like any other. */
static const char *describe_end(const struct breakdown *b, struct arena *arena)
{
    int64_t reached = b->steps.count ? b->steps.last : 0;
    if (!b->finished_at)
        return "not finished";
    return reached < b->planned_steps
               ? arena_printf(arena, "ended early, after %lld of %lld %s", (long long)reached,
                              (long long)b->planned_steps, units_plural(b->planned_steps, "step", "steps"))
               : "finished";
}

static void add_run_facts(struct report *report, const struct breakdown *b)
{
    report_fact(report, "run", "%lld, %s, %s", (long long)b->run_id,
                b->started_at ? b->started_at : "undated", describe_end(b, report->arena));
    if (b->command)
        report_fact(report, "command", "%s", b->command);
}

/* "rank 5 (stage 1, replica 0, part 1)", or all ranks of a stage, which are foretold alike. */
static const char *name_rank(const struct breakdown *b, struct arena *arena)
{
    int64_t alike = b->measured ? 1 : b->rows[b->place.stage].count;
    if (alike > 1)
        return arena_printf(arena, "ranks %lld-%lld (stage %lld)", (long long)b->rank,
                            (long long)(b->rank + alike - 1), (long long)b->place.stage);
    const char *place = b->place_name ? arena_printf(arena, " (%s)", b->place_name) : "";
    return arena_printf(arena, "rank %lld%s", (long long)b->rank, place);
}

static void add_rank_facts(struct report *report, const struct breakdown *b)
{
    char lowest[UNITS_TEXT], highest[UNITS_TEXT];
    const char *here = name_rank(b, report->arena);
    if (b->ranks == 1)
        return;
    if (!b->measured && b->stages == 1)
        report_fact(report, "ranks", "%lld, all alike", (long long)b->ranks);
    else if (!b->measured)
        report_fact(report, "ranks", "%lld on %lld stages; here %s", (long long)b->ranks,
                    (long long)b->stages, here);
    else if (b->lowest_peak == b->highest_peak)
        report_fact(report, "ranks", "%lld with equal peaks; here %s", (long long)b->ranks, here);
    else
        report_fact(report, "ranks", "%lld with peaks from %s to %s; here %s", (long long)b->ranks,
                    units_format_bytes(b->lowest_peak, lowest), units_format_bytes(b->highest_peak, highest),
                    here);
}

void breakdown_add_facts(struct report *report, const struct breakdown *b)
{
    char bytes[UNITS_TEXT];
    if (b->measured)
        add_run_facts(report, b);
    if (b->device)
        report_fact(report, "device", "%s%s%s", b->device, b->host ? " on " : "", b->host ? b->host : "");
    if (b->layout)
        report_fact(report, "layout", "%s", b->layout);
    if (b->recompute)
        report_fact(report, "recompute", "%s", b->recompute);
    add_rank_facts(report, b);
    report_capacity(report, "peak", b->peak_bytes, b->capacity_bytes);
    if (b->arena_bytes)
        report_fact(report, "arena", "%s", units_format_bytes(b->arena_bytes, bytes));
}

const char *breakdown_moment_text(const struct breakdown_moment *moment, struct arena *arena)
{
    char where[96] = "";
    if (!moment->operation)
        return NULL;
    if (moment->micro_batch >= 0)
        snprintf(where, sizeof where, ", micro-batch %lld", (long long)moment->micro_batch);
    if (moment->step > 0)
        snprintf(where + strlen(where), sizeof where - strlen(where), ", step %lld", (long long)moment->step);
    return arena_printf(arena, "%s%s%s: %s%s", moment->phase, moment->part ? " of " : "",
                        moment->part ? moment->part : "", moment->operation, where);
}

void breakdown_add_moment(struct report *report, const struct breakdown *b)
{
    const char *text = breakdown_moment_text(&b->moment, report->arena);
    report_remark(report, "What makes the peak", "%s",
                  text ? text : "What lives for the whole run; no operation adds to it.");
}

/* ----------------------------------------------------------------------------------------------------------- layers */

static int64_t states_of(const int64_t by_role[ROLE_COUNT])
{
    return by_role[ROLE_PARAMETER] + by_role[ROLE_GRADIENT] + by_role[ROLE_OPTIMIZER];
}

/* The layers with the same bytes as layers[first]; none when an earlier one has them too. */
static int64_t collect_equal(const struct breakdown *b, int64_t first, int64_t *layers)
{
    int64_t count = 0;
    for (int64_t i = 0; i < b->layer_count; i++) {
        if (memcmp(b->layers[i].by_role, b->layers[first].by_role, sizeof b->layers[i].by_role) ||
            (b->layers[i].layer < 0) != (b->layers[first].layer < 0))
            continue;
        if (i < first)
            return 0;
        layers[count++] = b->layers[i].layer;
    }
    return count;
}

/* Nothing is blank, which reads calmer than "0 B". */
static struct table_cell bytes_cell(int64_t bytes)
{
    return bytes ? cell_whole(bytes) : cell_blank();
}

static void add_layer_row(struct table *table, const char *name, const int64_t by_role[ROLE_COUNT],
                          int64_t times, int64_t peak_bytes)
{
    int64_t each = role_table_total(by_role);
    int64_t other = each - states_of(by_role) - by_role[ROLE_ACTIVATION];
    table_add(table, (struct table_cell[]){cell_text(name), bytes_cell(by_role[ROLE_ACTIVATION]),
                                           bytes_cell(states_of(by_role)), bytes_cell(other),
                                           cell_whole(times * each),
                                           cell_real((double)(times * each) / (double)peak_bytes)});
}

const char *breakdown_outside(bool staged)
{
    return staged ? "outside layers" : "embedding, head";
}

static void add_layers(struct report *report, const struct breakdown *b)
{
    struct table *table = report_table(report, "By layer", layer_columns, 6);
    int64_t *layers = arena_array(report->arena, (size_t)b->layer_count, sizeof *layers);
    int64_t rest[ROLE_COUNT] = {0}, rest_count = 0;
    for (int64_t i = 0; i < b->layer_count; i++) {
        int64_t count = collect_equal(b, i, layers);
        if (count == 0)
            continue;
        if (table->row_count < MOST_LAYER_ROWS) {
            const char *name = layers[0] < 0 ? breakdown_outside(b->stages > 1)
                                             : ranges_name(report->arena, "layer", layers, count);
            add_layer_row(table, name, b->layers[i].by_role, count, b->peak_bytes);
            continue;
        }
        rest_count += count;
        for (int role = 0; role < ROLE_COUNT; role++)
            rest[role] += count * b->layers[i].by_role[role];
    }
    if (rest_count)
        add_layer_row(table, arena_printf(report->arena, "%lld more, in all", (long long)rest_count), rest, 1,
                      b->peak_bytes);
}

/* ---------------------------------------------------------------------------------------------------------- tensors */

/* The same tensor of one layer or of many. */
struct group {
    const struct breakdown_tensor *first;
    const char *name;                    /* without its layer */
    int64_t *layers, layer_count, count; /* more than layers where several micro-batches hold it */
    bool *has;                           /* each layer, behind what is outside of them */
};

static bool belongs(const struct group *group, const struct breakdown_tensor *tensor)
{
    return group->first->bytes == tensor->bytes && group->first->role == tensor->role &&
           (group->first->layer < 0) == (tensor->layer < 0) &&
           !strcmp(group->name, describe_short_name(tensor->name, tensor->layer));
}

/* A run that goes on may have moved its peak to more layers between two reads; there are `most` to name. */
static void add_to_group(struct group *group, int64_t layer, int64_t most)
{
    group->count++;
    if (layer + 1 > most || group->has[layer + 1] || group->layer_count == most)
        return;
    group->has[layer + 1] = true;
    group->layers[group->layer_count++] = layer;
}

static int64_t find_groups(const struct breakdown *b, struct arena *arena, struct group *groups)
{
    int64_t group_count = 0;
    for (int64_t i = 0; i < b->tensor_count; i++) {
        const struct breakdown_tensor *tensor = &b->tensors[i];
        /* Tensors come by falling size, so those of one group are near each other: the newest groups first. */
        int64_t g = group_count - 1;
        while (g >= 0 && groups[g].first->bytes == tensor->bytes && !belongs(&groups[g], tensor))
            g--;
        if (g < 0 || groups[g].first->bytes != tensor->bytes) {
            g = group_count++;
            groups[g] = (struct group){
                .first = tensor,
                .name = describe_short_name(tensor->name, tensor->layer),
                .layers = arena_array(arena, (size_t)b->layer_count, sizeof *groups[g].layers),
                .has = arena_array(arena, (size_t)b->layer_count + 1, sizeof *groups[g].has),
            };
        }
        add_to_group(&groups[g], tensor->layer, b->layer_count);
    }
    return group_count;
}

static int64_t group_bytes(const struct group *group)
{
    return group->count * group->first->bytes;
}

static int larger_group_first(const void *left, const void *right)
{
    const struct group *a = left, *b = right;
    if (group_bytes(a) != group_bytes(b))
        return group_bytes(a) < group_bytes(b) ? 1 : -1;
    int order = strcmp(a->name, b->name);
    return order ? order : (int)a->first->role - (int)b->first->role;
}

static int by_number(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static const char *group_layers(struct group *group, struct arena *arena)
{
    if (group->first->layer < 0)
        return "";
    qsort(group->layers, (size_t)group->layer_count, sizeof *group->layers, by_number);
    return ranges_print(arena, group->layers, group->layer_count);
}

static void add_group(struct table *table, struct group *group, bool counted)
{
    const struct breakdown_tensor *tensor = group->first;
    table_add(table, (struct table_cell[]){
                         cell_text(group->name), cell_text(group_layers(group, table->arena)),
                         cell_text(tensor->dims ? tensor->dims : ""), cell_text(role_name(tensor->role)),
                         cell_whole(counted ? group->count : tensor->bytes), cell_whole(group_bytes(group))});
}

void breakdown_add_tensors(struct report *report, const struct breakdown *b)
{
    struct group *groups = arena_array(report->arena, (size_t)b->tensor_count, sizeof *groups);
    int64_t count = find_groups(b, report->arena, groups);
    bool counted = false;
    for (int64_t i = 0; i < count; i++)
        counted = counted || groups[i].count > groups[i].layer_count;
    qsort(groups, (size_t)count, sizeof *groups, larger_group_first);
    struct table *table = report_table(report, "Largest tensors alive at the peak",
                                       counted ? counted_columns : tensor_columns, 6);
    for (int64_t i = 0; i < count && i < MOST_TENSOR_ROWS; i++)
        add_group(table, &groups[i], counted);
}

/* ------------------------------------------------------------------------------------------------------------ steps */

/* A quantity of `kind`, printed into the arena. */
static struct table_cell quantity(struct arena *arena, enum table_kind kind, double real)
{
    struct table_cell cell = cell_real(real);
    return cell.filled ? cell_text(table_cell_text(kind, &cell, arena_alloc(arena, TABLE_CELL)))
                       : cell_blank();
}

void breakdown_add_steps(struct report *report, const struct breakdown *b)
{
    const struct breakdown_steps *steps = &b->steps;
    struct arena *arena = report->arena;
    if (steps->count == 0) {
        report_remark(report, "Steps", "None was finished.");
        return;
    }
    const char *heading = steps->count == 1 ? arena_printf(arena, "Step %lld", (long long)steps->first)
                                            : arena_printf(arena, "Steps %lld-%lld", (long long)steps->first,
                                                           (long long)steps->last);
    struct table *table = report_table(report, heading, step_columns, isfinite(b->predicted_seconds) ? 5 : 4);
    table_add(table,
              (struct table_cell[]){cell_text("time"), quantity(arena, TABLE_SECONDS, steps->first_seconds),
                                    quantity(arena, TABLE_SECONDS, steps->median_seconds),
                                    quantity(arena, TABLE_SECONDS, steps->last_seconds),
                                    quantity(arena, TABLE_SECONDS, b->predicted_seconds)});
    char rate[UNITS_TEXT];
    if (isfinite(steps->tokens_per_s))
        table_add(
            table,
            (struct table_cell[5]){
                cell_text("tokens/s"), cell_blank(),
                cell_text(arena_strdup(arena, units_format_count(llround(steps->tokens_per_s), rate)))});
    table_add(table,
              (struct table_cell[5]){cell_text("loss"), quantity(arena, TABLE_NUMBER, steps->first_loss),
                                     cell_blank(), quantity(arena, TABLE_NUMBER, steps->last_loss)});
}

struct report *breakdown_report(const struct breakdown *b, struct arena *arena)
{
    char peak[UNITS_TEXT];
    const char *model = b->model ? b->model : "a run";
    struct report *report =
        report_create(arena, "%s: %s at the peak, %s", model, units_format_bytes(b->peak_bytes, peak),
                      b->measured ? "measured" : "predicted");
    breakdown_add_facts(report, b);
    role_table_add(report, "Who holds the bytes at the peak", b->by_role, b->foretold ? b->predicted : NULL);
    rank_table_add(report, b->rows, b->row_count, b->measured);
    if (b->detailed) {
        breakdown_add_moment(report, b);
        add_layers(report, b);
        breakdown_add_tensors(report, b);
    } else {
        report_remark(
            report, NULL,
            "Layers and tensors are not known: memory events were not recorded as far as the peak.");
    }
    breakdown_add_gpu(report, b);
    if (b->measured)
        breakdown_add_steps(report, b);
    report_remark(report, "Advice", "%s", b->advice);
    return report;
}

/* ------------------------------------------------------------------------------------------------------------- JSON */

static json_t *roles_object(const int64_t by_role[ROLE_COUNT])
{
    json_t *object = json_object();
    json_values_add_roles(object, by_role);
    return object;
}

static json_t *layers_list(const struct breakdown *b)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < b->layer_count; i++) {
        json_t *layer = json_pack("{s:o, s:I}", "layer", json_values_id(b->layers[i].layer), "bytes",
                                  (json_int_t)role_table_total(b->layers[i].by_role));
        json_values_add_roles(layer, b->layers[i].by_role);
        json_array_append_new(list, layer);
    }
    return list;
}

static json_t *tensors_list(const struct breakdown *b)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < b->tensor_count && i < MOST_JSON_TENSORS; i++) {
        const struct breakdown_tensor *tensor = &b->tensors[i];
        json_array_append_new(
            list,
            json_pack("{s:o, s:o, s:o, s:s, s:o, s:o, s:I}", "name", jsonfile_string(tensor->name), "dims",
                      json_values_dims(tensor->dims), "dtype", jsonfile_string(tensor->dtype), "role",
                      role_name(tensor->role), "layer", json_values_id(tensor->layer), "micro_batch",
                      json_values_id(tensor->micro_batch), "bytes", (json_int_t)tensor->bytes));
    }
    return list;
}

json_t *breakdown_moment_to_json(const struct breakdown_moment *moment)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "phase", jsonfile_string(moment->phase), "part",
                     jsonfile_string(moment->part), "operation", jsonfile_string(moment->operation),
                     "micro_batch", json_values_id(moment->micro_batch), "step",
                     moment->step ? json_integer(moment->step) : json_null());
}

static json_t *prediction_object(const struct breakdown *b)
{
    int64_t peak_bytes = role_table_total(b->predicted);
    json_t *object = json_pack("{s:I, s:I, s:I, s:o}", "peak_bytes", (json_int_t)peak_bytes, "error_bytes",
                               (json_int_t)(peak_bytes - b->peak_bytes), "arena_bytes",
                               (json_int_t)b->predicted_arena_bytes, "step_seconds",
                               json_values_real(b->predicted_seconds));
    json_object_set_new(object, "by_role", roles_object(b->predicted));
    return object;
}

static json_t *steps_object(const struct breakdown_steps *steps)
{
    return json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "count", (json_int_t)steps->count,
                     "first_seconds", json_values_real(steps->first_seconds), "median_seconds",
                     json_values_real(steps->median_seconds), "last_seconds",
                     json_values_real(steps->last_seconds), "tokens_per_second",
                     json_values_real(steps->tokens_per_s), "first_loss", json_values_real(steps->first_loss),
                     "last_loss", json_values_real(steps->last_loss));
}

static json_t *place_object(const struct layout_place *place)
{
    return json_pack("{s:I, s:I, s:I}", "stage", (json_int_t)place->stage, "replica",
                     (json_int_t)place->replica, "part", (json_int_t)place->part);
}

static void add_run_keys(json_t *object, const struct breakdown *b)
{
    json_object_set_new(object, "run_id", json_integer(b->run_id));
    json_object_set_new(object, "command", jsonfile_string(b->command));
    json_object_set_new(object, "started_at", jsonfile_string(b->started_at));
    json_object_set_new(object, "finished_at", jsonfile_string(b->finished_at));
    json_object_set_new(object, "host", jsonfile_string(b->host));
    json_object_set_new(object, "policy", jsonfile_string(b->policy));
    json_object_set_new(object, "predicted", b->foretold ? prediction_object(b) : json_null());
    json_object_set_new(object, "steps", steps_object(&b->steps));
    breakdown_add_gpu_keys(object, b);
}

json_t *breakdown_to_json(const struct breakdown *b)
{
    json_t *object = json_object();
    bool limited = b->capacity_bytes != INT64_MAX;
    json_object_set_new(object, "kind", json_string(b->measured ? "measured" : "predicted"));
    json_object_set_new(object, "model", jsonfile_string(b->model));
    json_object_set_new(object, "device", jsonfile_string(b->device));
    json_object_set_new(object, "rank", json_integer(b->rank));
    json_object_set_new(object, "ranks", json_integer(b->ranks));
    json_object_set_new(object, "place", b->stages ? place_object(&b->place) : json_null());
    json_object_set_new(object, "capacity_bytes", limited ? json_integer(b->capacity_bytes) : json_null());
    json_object_set_new(object, "peak_bytes", json_integer(b->peak_bytes));
    json_object_set_new(object, "arena_bytes", json_integer(b->arena_bytes));
    if (b->runtime_bytes) {
        json_object_set_new(object, "runtime_bytes", json_integer(b->runtime_bytes));
        json_object_set_new(object, "needed_bytes", json_integer(b->arena_bytes + b->runtime_bytes));
    }
    json_object_set_new(object, "by_role", roles_object(b->by_role));
    json_object_set_new(object, "peak_at", b->detailed ? breakdown_moment_to_json(&b->moment) : json_null());
    json_object_set_new(object, "layers", layers_list(b));
    json_object_set_new(object, "largest_tensors", tensors_list(b));
    json_object_set_new(object, b->measured ? "by_rank" : "stages",
                        rank_table_to_json(b->rows, b->row_count, b->measured));
    if (b->measured)
        add_run_keys(object, b);
    json_object_set_new(object, "advice", json_string(b->advice));
    return object;
}
