/* Memory over time as a program foretells it: what lives for the whole run, then a walk over the step. */
#include "reports/describe.h"
#include "reports/series.h"

#include <stdlib.h>

struct walk {
    const struct program *program;
    struct arena *arena;
    struct series_builder *builder;
    struct series_tensor *tensors; /* by id; name NULL: not met */
    struct series_operation *operations;
    const char **parts; /* by instance; NULL: not met */
    int64_t operation, live_bytes;
};

static void add_event(struct walk *w, int64_t tensor, int64_t bytes, int step)
{
    w->live_bytes += bytes;
    series_add(w->builder, &(struct series_event){
                               .at = w->operation < 0 ? 0 : w->operation,
                               .operation = w->operation,
                               .tensor = tensor,
                               .bytes = bytes,
                               .live_bytes = w->live_bytes,
                               .key = tensor,
                               .role = w->tensors[tensor].role,
                               .step = step,
                           });
}

static void add_states(struct walk *w, const struct described *rows, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (rows[i].micro_batch >= 0)
            continue;
        w->tensors[rows[i].id] = (struct series_tensor){describe_short_name(rows[i].name, rows[i].layer),
                                                        rows[i].role, rows[i].layer, -1};
        add_event(w, rows[i].id, rows[i].bytes, 0);
    }
}

/* "qkv" in a layer; "head logits" outside layers, as describe_tensors() has it. */
static struct series_tensor name_tensor(const struct walk *w, const struct placed *placed)
{
    char part[PROGRAM_NAME];
    int64_t layer = placed->instance < 0 ? -1 : program_layer(w->program, placed->instance);
    const char *name = placed->name;
    if (layer < 0 && placed->instance >= 0)
        name =
            arena_printf(w->arena, "%s %s", program_instance_name(w->program, placed->instance, part), name);
    return (struct series_tensor){name, placed->role, layer, placed->micro_batch};
}

static void add_change(struct walk *w, const struct step_op *op, int tensor, int sign)
{
    struct placed placed = program_tensor(w->program, op->instance, op->micro_batch, tensor);
    if (!w->tensors[placed.id].name)
        w->tensors[placed.id] = name_tensor(w, &placed);
    add_event(w, placed.id, sign * placed.bytes, 1);
}

static const char *name_part(struct walk *w, int64_t instance)
{
    if (instance < 0)
        return NULL;
    if (!w->parts[instance])
        w->parts[instance] = program_instance_name(w->program, instance, arena_alloc(w->arena, PROGRAM_NAME));
    return w->parts[instance];
}

static void add_operation(struct walk *w, const struct step_op *op)
{
    w->operations[++w->operation] = (struct series_operation){op_kind_name(op->kind), phase_name(op->phase),
                                                              name_part(w, op->instance), op->micro_batch};
    for (int i = 0; op->op && i < op->op->birth_count; i++)
        add_change(w, op, op->op->births[i], 1);
    for (int i = 0; op->op && i < op->op->death_count; i++)
        add_change(w, op, op->op->deaths[i], -1);
}

static int64_t count_events(const struct program *program, int64_t *operations)
{
    struct program_cursor cursor = program_walk(program);
    int64_t events = 0;
    *operations = 0;
    for (struct step_op op; program_next(&cursor, &op); ++*operations)
        if (op.op)
            events += op.op->birth_count + op.op->death_count;
    return events;
}

struct series *series_of_program(const struct program *program, int64_t rank, int64_t limit,
                                 struct arena *arena)
{
    struct described *rows;
    int64_t operations, events = count_events(program, &operations);
    int64_t count = describe_tensors(program, 0, arena, &rows);
    struct walk w = {
        .program = program,
        .arena = arena,
        .builder = series_begin(arena, events + count, limit),
        .tensors = arena_array(arena, (size_t)program_tensor_count(program), sizeof *w.tensors),
        .operations = arena_array(arena, (size_t)operations, sizeof *w.operations),
        .parts = arena_array(arena, (size_t)program->instances, sizeof *w.parts),
        .operation = -1,
    };
    add_states(&w, rows, count);
    struct program_cursor cursor = program_walk(program);
    for (struct step_op op; program_next(&cursor, &op);)
        add_operation(&w, &op);
    struct series *series = series_end(w.builder);
    series->axis = SERIES_OPERATIONS;
    series->rank = rank;
    series->tensors = w.tensors;
    series->tensor_count = program_tensor_count(program);
    series->operations = w.operations;
    series->operation_count = operations;
    return series;
}
