/* The list goes instance by instance; the report goes by stretches of equal blocks, which have the same tensors, whatever
 * stage they are of. */
#include "reports/describe.h"

#include "base/text.h"
#include "base/units.h"
#include "model/recompute.h"
#include "reports/json_values.h"
#include "reports/ranges.h"
#include "reports/role_table.h"
#include "reports/stage_table.h"

#include <stdio.h>
#include <string.h>

/* A message between stages lies in one of two buffers while the other is filled. */
enum { BUFFER_TURNS = 2 };

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

/* Every chunk of a stage may receive and send. */
static const char *name_instance(const struct program *program, int64_t instance, struct arena *arena)
{
    char name[PROGRAM_NAME];
    if (instance < 0)
        return "";
    enum part part = program_part(program, instance);
    program_instance_name(program, instance, name);
    if (program->chunk_count == 1 || (part != PART_RECEIVE && part != PART_SEND))
        return arena_printf(arena, "%s ", name);
    int chunk = program->chunk_count - 1;
    while (program->chunks[chunk].first > instance)
        chunk--;
    return arena_printf(arena, "chunk %d %s ", chunk, name);
}

/* `suffix` tells apart what shares a name within its part: " gradient". */
static void add(struct list *list, struct placed placed, const char *suffix)
{
    const char *part = name_instance(list->program, placed.instance, list->arena);
    list->rows[list->count++] = (struct described){
        .id = placed.id,
        .name = arena_printf(list->arena, "%s%s%s", part, placed.name, suffix),
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

/* Whether this instance lists the tensor: others own parameters, x, and d everywhere but where it is made. */
static bool owns(const struct program *program, int64_t instance, int index)
{
    if (program_block(program, instance)->tensors[index].first < 0)
        return false;
    struct placed placed = program_tensor(program, instance, 0, index);
    return placed.micro_batch >= 0 && placed.instance == instance;
}

static void add_micro_batch(struct list *list, int64_t micro_batch)
{
    for (int64_t instance = 0; instance < list->program->instances; instance++) {
        const struct block *block = program_block(list->program, instance);
        for (int i = 0; i < block->tensor_count; i++)
            if (owns(list->program, instance, i))
                add(list, program_tensor(list->program, instance, micro_batch, i),
                    block->tensors[i].recomputed ? " recomputed" : "");
    }
}

static void add_buffers(struct list *list)
{
    for (int buffer = 0; buffer < BUFFER_KINDS && list->program->layout.pp > 1; buffer++)
        for (int turn = 0; turn < BUFFER_TURNS; turn++)
            add(list, program_buffer(list->program, (enum buffer)buffer, turn), "");
}

int64_t describe_tensors(const struct program *program, int64_t micro_batches, struct arena *arena,
                         struct described **rows)
{
    struct list list = {.program = program, .arena = arena};
    size_t most = (size_t)(program->parameter_tensors * STATE_COUNT + SCALAR_COUNT +
                           BUFFER_KINDS * BUFFER_TURNS + micro_batches * program->tensors_per_micro_batch);
    list.rows = arena_array(arena, most, sizeof *list.rows);
    for (int64_t instance = 0; instance < program->instances; instance++)
        add_states(&list, instance);
    for (int scalar = 0; scalar < SCALAR_COUNT; scalar++)
        add(&list, program_scalar(program, (enum scalar)scalar), "");
    add_buffers(&list);
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

const char *describe_part(const struct program *program, int64_t operation_id, int64_t layer,
                          struct arena *arena)
{
    if (layer >= 0)
        return arena_printf(arena, "layer %lld", (long long)layer);
    int64_t instance = program ? program_op_instance(program, operation_id) : -1;
    return instance < 0 ? NULL : program_instance_name(program, instance, arena_alloc(arena, PROGRAM_NAME));
}

const char *describe_layout(const struct layout *l, struct arena *arena)
{
    struct text text = {0};
    text_printf(&text, "dp %lld", (long long)l->dp);
    if (l->tp > 1)
        text_printf(&text, ", tp %lld%s", (long long)l->tp, l->sequence_parallel ? " sequence-parallel" : "");
    if (l->pp > 1)
        text_printf(&text, ", pp %lld %s", (long long)l->pp, schedule_name(l->schedule));
    if (l->virtual_stages > 1)
        text_printf(&text, ", virtual stages %lld", (long long)l->virtual_stages);
    if (l->zero)
        text_printf(&text, ", zero %d", l->zero);
    text_printf(&text, ", micro-batch %lld, global batch %lld, sequence %lld, %s", (long long)l->micro_batch,
                (long long)l->global_batch, (long long)l->seq_len, precision_name(l->precision));
    const char *printed = arena_strdup(arena, text.data);
    text_free(&text);
    return printed;
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
        const struct parameter *parameter = &block->parameters[i];
        bool copy = program_parameter(program, instance, i).copy;
        const int64_t dims[TENSOR_DIMS] = {parameter->dims[0], parameter->dims[1]};
        const char *name =
            arena_printf(table->arena, "  %s%s", parameter->name, copy ? " (copy of wte)" : "");
        add_parameter_row(table, name, print_dims(dims, table->arena), bytes, 1);
    }
    if (times > 1)
        add_parameter_row(table, arena_printf(table->arena, "  all %lld layers", (long long)times), "", sum,
                          times);
}

/* "embed", or "embed (stage 0)" where there are several. */
static const char *name_part(const struct pipeline *pipeline, const char *part, const int64_t *stages,
                             int64_t count, struct arena *arena)
{
    return pipeline->count == 1
               ? part
               : arena_printf(arena, "%s (%s)", part, ranges_name(arena, "stage", stages, count));
}

/* The embedding or the head, of the stage that has it. */
static void add_end_parameters(struct table *table, const struct pipeline *pipeline, enum part part,
                               const char *name)
{
    for (int64_t stage = 0; stage < pipeline->count; stage++) {
        int64_t instance = program_find_part(pipeline->stages[stage], part);
        if (instance >= 0)
            add_part_parameters(table, pipeline->stages[stage],
                                name_part(pipeline, name, &stage, 1, table->arena), instance, 1);
    }
}

static void add_parameters(struct report *report, const struct pipeline *pipeline)
{
    struct table *table =
        report_table(report, "Parameters, with what training keeps of each", parameter_columns, 5);
    const struct program *first = pipeline->stages[0];
    int64_t layers = first->model.layers;
    const char *part =
        layers == 1 ? "layer 0" : arena_printf(report->arena, "layers 0-%lld (each)", (long long)layers - 1);
    add_end_parameters(table, pipeline, PART_EMBED, "embed");
    add_part_parameters(table, first, part, program_find_layer(first, 0), layers);
    add_end_parameters(table, pipeline, PART_HEAD, "head");
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
        if (!owns(program, instance, i))
            continue;
        const char *life = t->recomputed ? "recomputed" : kept(program, instance, t) ? "kept" : "";
        table_add(table, (struct table_cell[]){cell_text(arena_printf(table->arena, "  %s", t->name)),
                                               cell_text(print_dims(t->dims, table->arena)),
                                               cell_text(dtype_name(t->dtype)), cell_text(role_name(t->role)),
                                               cell_whole(t->bytes), cell_text(life)});
    }
}

/* Same recomputation, and no first layer of an encoder, which has fewer operations. */
static bool equal_blocks(const struct block *a, const struct block *b)
{
    return a->part == b->part && a->dropped == b->dropped && a->op_count == b->op_count;
}

/* The runs of a pipeline with equal blocks. */
struct alike {
    const struct block *block;
    const struct program
        *program; /* of the longest run, whose first output is not the one that leaves the stage */
    const struct run *run;
    int64_t *layers, layer_count;
    int64_t *stages, stage_count;
};

static void add_alike(struct alike *alike, const struct program *program, const struct run *run)
{
    if (!alike->run || run->count > alike->run->count) {
        alike->program = program;
        alike->run = run;
    }
    for (int64_t i = 0; alike->block->part == PART_LAYER && i < run->count; i++)
        alike->layers[alike->layer_count++] = program_layer(program, run->first + i);
    if (!alike->stage_count || alike->stages[alike->stage_count - 1] != program->stage)
        alike->stages[alike->stage_count++] = program->stage;
}

/* False when an earlier run spoke for run `index` of a stage. */
static bool collect_alike(const struct pipeline *pipeline, int stage, int index, struct alike *alike)
{
    const struct program *own = pipeline->stages[stage];
    alike->block = &own->blocks[own->runs[index].block];
    alike->run = NULL;
    alike->layer_count = alike->stage_count = 0;
    for (int s = 0; s < pipeline->count; s++) {
        const struct program *program = pipeline->stages[s];
        for (int i = 0; i < program->run_count; i++) {
            if (!equal_blocks(alike->block, &program->blocks[program->runs[i].block]))
                continue;
            if (s < stage || (s == stage && i < index))
                return false;
            add_alike(alike, program, &program->runs[i]);
        }
    }
    return true;
}

/* "layers 0-3, 8 (each)", "head", "head (stage 3)", "from the stage before (stages 1-3)". */
static const char *alike_name(const struct pipeline *pipeline, const struct alike *alike, struct arena *arena)
{
    static const char *const parts[] = {[PART_EMBED] = "embed",
                                        [PART_HEAD] = "head",
                                        [PART_RECEIVE] = "from the stage before",
                                        [PART_SEND] = "to the stage after"};
    if (alike->block->part != PART_LAYER)
        return name_part(pipeline, parts[alike->block->part], alike->stages, alike->stage_count, arena);
    return arena_printf(arena, "%s%s", ranges_name(arena, "layer", alike->layers, alike->layer_count),
                        alike->layer_count > 1 ? " (each)" : "");
}

static void add_whole_step(struct table *table, struct placed placed)
{
    table_add(table,
              (struct table_cell[]){cell_text(arena_printf(table->arena, "  %s", placed.name)),
                                    cell_text(print_dims(placed.dims, table->arena)),
                                    cell_text(dtype_name(placed.dtype)), cell_text(role_name(placed.role)),
                                    cell_whole(placed.bytes), cell_text("kept")});
}

static void add_tensors(struct report *report, const struct pipeline *pipeline)
{
    struct table *table = report_table(report, "Tensors of one micro-batch (kept: from forward to backward)",
                                       tensor_columns, 6);
    const struct program *first = pipeline->stages[0];
    struct alike alike = {
        .layers = arena_array(report->arena, (size_t)first->model.layers, sizeof *alike.layers),
        .stages = arena_array(report->arena, (size_t)pipeline->count, sizeof *alike.stages),
    };
    for (int stage = 0; stage < pipeline->count; stage++)
        for (int i = 0; i < pipeline->stages[stage]->run_count; i++) {
            if (!collect_alike(pipeline, stage, i, &alike))
                continue;
            table_add(table, (struct table_cell[6]){cell_text(alike_name(pipeline, &alike, report->arena))});
            add_instance_tensors(table, alike.program, alike.run->first);
        }
    table_add(table, (struct table_cell[6]){cell_text("whole step")});
    for (int i = 0; i < SCALAR_COUNT; i++)
        add_whole_step(table, program_scalar(first, (enum scalar)i));
    for (int i = 0; i < BUFFER_KINDS * BUFFER_TURNS && pipeline->count > 1; i++)
        add_whole_step(table, program_buffer(first, (enum buffer)(i / BUFFER_TURNS), i % BUFFER_TURNS));
}

static void add_totals(struct report *report, const struct pipeline *pipeline)
{
    const struct program *first = pipeline->stages[0];
    struct described *rows;
    int64_t count = describe_tensors(first, 1, report->arena, &rows), by_role[ROLE_COUNT] = {0};
    char peak[UNITS_TEXT];
    if (pipeline->count > 1) {
        report_remark(report, NULL,
                      "They are not alive all at once, and those of several micro-batches are: the table of "
                      "stages has the highest moment of each.");
        return;
    }
    for (int64_t i = 0; i < count; i++)
        by_role[rows[i].role] += rows[i].bytes;
    role_table_add(report, "All of these", by_role, NULL);
    report_remark(report, NULL,
                  "They are not alive all at once: the highest moment of a step holds %s (memplan predict).",
                  units_format_bytes(first->peak_bytes, peak));
}

struct report *describe_report(const struct pipeline *pipeline, struct arena *arena)
{
    char parameters[UNITS_TEXT];
    struct text recompute = {0};
    const struct program *first = pipeline->stages[0];
    struct report *report = report_create(arena, "%s: %s parameters", first->model.name,
                                          units_format_count(model_parameters(&first->model), parameters));
    recompute_print(&first->model, first->recompute, &recompute);
    report_fact(report, "layout", "%s", describe_layout(&first->layout, arena));
    report_fact(report, "recompute", "%s", recompute.data);
    text_free(&recompute);
    if (first->model.note[0])
        report_fact(report, "note", "%s", first->model.note);
    rank_table_add(report, stage_table_rows(pipeline, arena), pipeline->count, false);
    add_parameters(report, pipeline);
    add_tensors(report, pipeline);
    add_totals(report, pipeline);
    return report;
}

/* ------------------------------------------------------------------------------------------------------------- JSON */

static void append_tensors(json_t *list, const struct program *program)
{
    struct arena *arena = arena_create();
    struct described *rows;
    int64_t count = describe_tensors(program, 1, arena, &rows);
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(list,
                              json_pack("{s:I, s:I, s:s, s:o, s:s, s:s, s:o, s:I}", "stage",
                                        (json_int_t)program->stage, "id", (json_int_t)rows[i].id, "name",
                                        rows[i].name, "dims", json_values_dims(rows[i].dims), "dtype",
                                        rows[i].dtype, "role", role_name(rows[i].role), "layer",
                                        json_values_id(rows[i].layer), "bytes", (json_int_t)rows[i].bytes));
    arena_free(arena);
}

json_t *describe_to_json(const struct pipeline *pipeline)
{
    struct arena *arena = arena_create();
    const struct model *model = &pipeline->stages[0]->model;
    json_t *tensors = json_array();
    for (int stage = 0; stage < pipeline->count; stage++)
        append_tensors(tensors, pipeline->stages[stage]);
    json_t *stages = rank_table_to_json(stage_table_rows(pipeline, arena), pipeline->count, false);
    arena_free(arena);
    return json_pack("{s:o, s:I, s:o, s:o}", "model", jsonfile_string(model->name), "parameters",
                     (json_int_t)model_parameters(model), "stages", stages, "tensors", tensors);
}
