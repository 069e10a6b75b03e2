/* The list goes instance by instance; the report goes by stretches of equal blocks, which have the same tensors. */
#include "reports/describe.h"

#include "base/text.h"
#include "base/units.h"
#include "model/recompute.h"
#include "reports/json_values.h"
#include "reports/ranges.h"
#include "reports/role_table.h"

#include <stdio.h>
#include <string.h>

struct list {
    const struct program *program;
    struct arena *arena;
    struct described *rows;
    int64_t count;
};

static const char *print_dims(const int64_t dims[TENSOR_DIMS], struct arena *arena)
{
    struct text text = {0};
    for (int i = 0; i < TENSOR_DIMS && dims[i]; i++)
        text_printf(&text, "%s%lld", i ? "x" : "", (long long)dims[i]);
    const char *printed = arena_strdup(arena, text.data ? text.data : "");
    text_free(&text);
    return printed;
}

/* `suffix` tells apart what shares a name within its part: " gradient". */
static void add(struct list *list, struct placed placed, const char *suffix)
{
    char part[PROGRAM_NAME] = "";
    if (placed.instance >= 0)
        program_instance_name(list->program, placed.instance, part);
    list->rows[list->count++] = (struct described){
        .id = placed.id,
        .name = arena_printf(list->arena, "%s%s%s%s", part, *part ? " " : "", placed.name, suffix),
        .dims = print_dims(placed.dims, list->arena),
        .dtype = dtype_name(placed.dtype),
        .role = placed.role,
        .layer = program_layer(list->program, placed.instance),
        .micro_batch = placed.micro_batch,
        .bytes = placed.bytes,
    };
}

static void add_states(struct list *list, int64_t instance)
{
    const struct block *block = program_block(list->program, instance);
    for (int i = 0; i < block->parameter_count; i++)
        for (int state = 0; state < STATE_COUNT; state++)
            if (program_has_state(list->program, (enum state)state)) {
                const char *suffix = arena_printf(list->arena, " %s", state_name((enum state)state));
                add(list, program_state(list->program, instance, i, (enum state)state), suffix);
            }
}

/* Whether this block lists the tensor: others own parameters, x, and d everywhere but in the head. */
static bool owns(const struct block *block, const struct tensor *t)
{
    return t->first >= 0 && (t->span == SPAN_LOCAL || t->span == SPAN_OUTPUT ||
                             (t->span == SPAN_STREAM && block->part == PART_HEAD));
}

static void add_micro_batch(struct list *list, int64_t micro_batch)
{
    for (int64_t instance = 0; instance < list->program->instances; instance++) {
        const struct block *block = program_block(list->program, instance);
        for (int i = 0; i < block->tensor_count; i++)
            if (owns(block, &block->tensors[i]))
                add(list, program_tensor(list->program, instance, micro_batch, i),
                    block->tensors[i].recomputed ? " recomputed" : "");
    }
}

int64_t describe_tensors(const struct program *program, int64_t micro_batches, struct arena *arena,
                         struct described **rows)
{
    struct list list = {.program = program, .arena = arena};
    size_t most = (size_t)(program->parameter_tensors * STATE_COUNT + SCALAR_COUNT +
                           micro_batches * program->tensors_per_micro_batch);
    list.rows = arena_array(arena, most, sizeof *list.rows);
    for (int64_t instance = 0; instance < program->instances; instance++)
        add_states(&list, instance);
    for (int scalar = 0; scalar < SCALAR_COUNT; scalar++)
        add(&list, program_scalar(program, (enum scalar)scalar), "");
    for (int64_t m = 0; m < micro_batches; m++)
        add_micro_batch(&list, m);
    *rows = list.rows;
    return list.count;
}

const char *describe_short_name(const char *name, int64_t layer)
{
    char prefix[PROGRAM_NAME + 1];
    int length = snprintf(prefix, sizeof prefix, "layer %lld ", (long long)layer);
    return strncmp(name, prefix, (size_t)length) ? name : name + length;
}

const char *describe_layout(const struct layout *layout, struct arena *arena)
{
    return arena_printf(arena, "dp %lld, micro-batch %lld, global batch %lld, sequence %lld, %s",
                        (long long)layout->dp, (long long)layout->micro_batch,
                        (long long)layout->global_batch, (long long)layout->seq_len,
                        precision_name(layout->precision));
}

/* ------------------------------------------------------------------------------------------------------------- text */

static const struct table_column parameter_columns[] = {{"", TABLE_TEXT},
                                                        {"shape", TABLE_TEXT},
                                                        {"parameter", TABLE_BYTES},
                                                        {"gradient", TABLE_BYTES},
                                                        {"optimizer", TABLE_BYTES}};
static const struct table_column tensor_columns[] = {{"", TABLE_TEXT},       {"shape", TABLE_TEXT},
                                                     {"dtype", TABLE_TEXT},  {"role", TABLE_TEXT},
                                                     {"bytes", TABLE_BYTES}, {"", TABLE_TEXT}};

static void state_bytes(const struct program *program, int64_t instance, int index,
                        int64_t by_role[ROLE_COUNT])
{
    for (int state = 0; state < STATE_COUNT; state++)
        if (program_has_state(program, (enum state)state)) {
            struct placed placed = program_state(program, instance, index, (enum state)state);
            by_role[placed.role] += placed.bytes;
        }
}

static void add_parameter_row(struct table *table, const char *name, const char *dims,
                              const int64_t by_role[ROLE_COUNT], int64_t times)
{
    table_add(table, (struct table_cell[]){cell_text(name), cell_text(dims),
                                           cell_whole(times * by_role[ROLE_PARAMETER]),
                                           cell_whole(times * by_role[ROLE_GRADIENT]),
                                           cell_whole(times * by_role[ROLE_OPTIMIZER])});
}

/* One part, of which there are `times`. */
static void add_part_parameters(struct table *table, const struct program *program, const char *part,
                                int64_t instance, int64_t times)
{
    const struct block *block = program_block(program, instance);
    int64_t sum[ROLE_COUNT] = {0};
    if (block->parameter_count)
        table_add(table, (struct table_cell[5]){cell_text(part)});
    for (int i = 0; i < block->parameter_count; i++) {
        int64_t bytes[ROLE_COUNT] = {0};
        state_bytes(program, instance, i, bytes);
        state_bytes(program, instance, i, sum);
        struct placed placed = program_state(program, instance, i, STATE_WEIGHT);
        add_parameter_row(table, arena_printf(table->arena, "  %s", placed.name),
                          print_dims(placed.dims, table->arena), bytes, 1);
    }
    if (times > 1)
        add_parameter_row(table, arena_printf(table->arena, "  all %lld layers", (long long)times), "", sum,
                          times);
}

static void add_parameters(struct report *report, const struct program *program)
{
    struct table *table =
        report_table(report, "Parameters, with what training keeps of each", parameter_columns, 5);
    int64_t layers = program->model.layers;
    const char *part =
        layers == 1 ? "layer 0" : arena_printf(report->arena, "layers 0-%lld (each)", (long long)layers - 1);
    add_part_parameters(table, program, "embed", 0, 1);
    add_part_parameters(table, program, part, 1, layers);
    add_part_parameters(table, program, "head", program->instances - 1, 1);
}

/* Alive from forward to backward: an output is, when the block after keeps it as its x. */
static bool kept(const struct program *program, int64_t instance, const struct tensor *t)
{
    if (t->span != SPAN_OUTPUT)
        return t->saved;
    const struct block *after = program_block(program, instance + 1);
    return after->tensors[after->input].saved;
}

static void add_instance_tensors(struct table *table, const struct program *program, int64_t instance)
{
    const struct block *block = program_block(program, instance);
    for (int i = 0; i < block->tensor_count; i++) {
        const struct tensor *t = &block->tensors[i];
        if (!owns(block, t))
            continue;
        const char *life = t->recomputed ? "recomputed" : kept(program, instance, t) ? "kept" : "";
        table_add(table, (struct table_cell[]){cell_text(arena_printf(table->arena, "  %s", t->name)),
                                               cell_text(print_dims(t->dims, table->arena)),
                                               cell_text(dtype_name(t->dtype)), cell_text(role_name(t->role)),
                                               cell_whole(t->bytes), cell_text(life)});
    }
}

/* Runs before this one have shown a block like it: same recomputation, and no first layer of an encoder, which has
 * fewer operations. */
static bool equal_blocks(const struct program *program, const struct run *a, const struct run *b)
{
    const struct block *first = &program->blocks[a->block], *second = &program->blocks[b->block];
    return first->part == second->part && first->dropped == second->dropped &&
           first->op_count == second->op_count;
}

/* "layers 0-3, 8 (each)" of all runs like run `index`; NULL when an earlier one spoke for it. */
static const char *part_name(const struct program *program, int index, struct arena *arena)
{
    const struct run *run = &program->runs[index];
    enum part part = program->blocks[run->block].part;
    if (part != PART_LAYER)
        return part == PART_EMBED ? "embed" : "head";
    int64_t *layers = arena_array(arena, (size_t)program->model.layers, sizeof *layers), count = 0;
    for (int i = 0; i < program->run_count; i++) {
        if (!equal_blocks(program, run, &program->runs[i]))
            continue;
        if (i < index)
            return NULL;
        for (int64_t k = 0; k < program->runs[i].count; k++)
            layers[count++] = program->runs[i].first + k - 1;
    }
    return arena_printf(arena, "%s%s", ranges_name(arena, "layer", layers, count),
                        count > 1 ? " (each)" : "");
}

static void add_tensors(struct report *report, const struct program *program)
{
    struct table *table = report_table(report, "Tensors of one micro-batch (kept: from forward to backward)",
                                       tensor_columns, 6);
    for (int i = 0; i < program->run_count; i++) {
        const char *name = part_name(program, i, report->arena);
        if (!name)
            continue;
        table_add(table, (struct table_cell[6]){cell_text(name)});
        add_instance_tensors(table, program, program->runs[i].first);
    }
    table_add(table, (struct table_cell[6]){cell_text("whole step")});
    for (int i = 0; i < SCALAR_COUNT; i++) {
        struct placed scalar = program_scalar(program, (enum scalar)i);
        table_add(table, (struct table_cell[]){cell_text(arena_printf(report->arena, "  %s", scalar.name)),
                                               cell_text("1"), cell_text(dtype_name(scalar.dtype)),
                                               cell_text(role_name(scalar.role)), cell_whole(scalar.bytes),
                                               cell_text("kept")});
    }
}

static void add_totals(struct report *report, const struct program *program)
{
    struct described *rows;
    int64_t count = describe_tensors(program, 1, report->arena, &rows), by_role[ROLE_COUNT] = {0};
    char peak[UNITS_TEXT];
    for (int64_t i = 0; i < count; i++)
        by_role[rows[i].role] += rows[i].bytes;
    role_table_add(report, "All of these", by_role, NULL);
    report_remark(report, NULL,
                  "They are not alive all at once: the highest moment of a step holds %s (memplan predict).",
                  units_format_bytes(program->peak_bytes, peak));
}

struct report *describe_report(const struct program *program, struct arena *arena)
{
    char parameters[UNITS_TEXT];
    struct text recompute = {0};
    struct report *report = report_create(arena, "%s: %s parameters", program->model.name,
                                          units_format_count(model_parameters(&program->model), parameters));
    recompute_print(&program->model, program->recompute, &recompute);
    report_fact(report, "layout", "%s", describe_layout(&program->layout, arena));
    report_fact(report, "recompute", "%s", recompute.data ? recompute.data : "none");
    text_free(&recompute);
    if (program->model.note[0])
        report_fact(report, "note", "%s", program->model.note);
    add_parameters(report, program);
    add_tensors(report, program);
    add_totals(report, program);
    return report;
}

/* ------------------------------------------------------------------------------------------------------------- JSON */

json_t *describe_to_json(const struct program *program)
{
    struct arena *arena = arena_create();
    struct described *rows;
    int64_t count = describe_tensors(program, 1, arena, &rows);
    json_t *tensors = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(tensors,
                              json_pack("{s:I, s:s, s:o, s:s, s:s, s:o, s:I}", "id", (json_int_t)rows[i].id,
                                        "name", rows[i].name, "dims", json_values_dims(rows[i].dims), "dtype",
                                        rows[i].dtype, "role", role_name(rows[i].role), "layer",
                                        json_values_id(rows[i].layer), "bytes", (json_int_t)rows[i].bytes));
    arena_free(arena);
    return json_pack("{s:o, s:I, s:o}", "model", jsonfile_string(program->model.name), "parameters",
                     (json_int_t)model_parameters(&program->model), "tensors", tensors);
}
