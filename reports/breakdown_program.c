/* The breakdown that a program foretells. What is alive at the peak is found by walking the step up to it, tensor by
 * tensor, as a recorder would see it; the peak itself comes from arithmetic over blocks (model/program_peak.c), and a test
 * holds the two to each other. */
#include "base/text.h"
#include "base/units.h"
#include "model/recompute.h"
#include "reports/breakdown.h"
#include "reports/describe.h"
#include "reports/larger_batch.h"
#include "reports/stage_table.h"

#include <stdlib.h>
#include <string.h>

static bool is_peak(const struct program *program, const struct step_op *op)
{
    return op->op && op->phase == program->peak.phase && op->instance == program->peak.instance &&
           op->op == &op->block->ops[program->peak.op];
}

/* A walk up to the peak. */
struct reached {
    bool *alive;           /* by id of a tensor, what lives for the whole run left out */
    int64_t micro_batches; /* begun so far */
    struct step_op op;     /* op.op is NULL: no operation makes the peak */
};

static int64_t set_alive(struct reached *reached, const struct program *program, const struct step_op *op,
                         int tensor, bool alive)
{
    struct placed placed = program_tensor(program, op->instance, op->micro_batch, tensor);
    reached->alive[placed.id] = alive;
    return alive ? placed.bytes : -placed.bytes;
}

/* Several micro-batches may be on their way, so the operation that makes the peak has run before with less alive. */
static void walk_to_peak(const struct program *program, struct reached *reached)
{
    int64_t live_bytes = program->persistent_bytes;
    struct program_cursor cursor = program_walk(program);
    for (struct step_op op; program_next(&cursor, &op);) {
        if (!op.op)
            continue;
        if (op.micro_batch >= reached->micro_batches)
            reached->micro_batches = op.micro_batch + 1;
        for (int i = 0; i < op.op->birth_count; i++)
            live_bytes += set_alive(reached, program, &op, op.op->births[i], true);
        if (live_bytes == program->peak_bytes && is_peak(program, &op)) {
            reached->op = op;
            return;
        }
        for (int i = 0; i < op.op->death_count; i++)
            live_bytes += set_alive(reached, program, &op, op.op->deaths[i], false);
    }
}

static int larger_first(const void *left, const void *right)
{
    const struct breakdown_tensor *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    int order = strcmp(a->name, b->name);
    return order ? order : (a->micro_batch > b->micro_batch) - (a->micro_batch < b->micro_batch);
}

/* Of no layer, and the stage's layers. */
static void list_layers(const struct program *program, struct arena *arena, struct breakdown *b)
{
    int64_t *layers, count = stage_table_list_layers(program, arena, &layers);
    b->layers = arena_array(arena, (size_t)count + 1, sizeof *b->layers);
    b->layers[b->layer_count++].layer = -1;
    for (int64_t i = 0; i < count; i++)
        b->layers[b->layer_count++].layer = layers[i];
}

static struct breakdown_layer *find_layer(struct breakdown *b, int64_t layer)
{
    int64_t low = 0, high = b->layer_count - 1;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (b->layers[middle].layer < layer)
            low = middle + 1;
        else
            high = middle;
    }
    return &b->layers[low];
}

static void add_alive(struct breakdown *b, const struct described *row)
{
    b->tensors[b->tensor_count++] = (struct breakdown_tensor){
        row->name, row->dims, row->dtype, row->role, row->layer, row->micro_batch, row->bytes};
    find_layer(b, row->layer)->by_role[row->role] += row->bytes;
}

static void set_moment(const struct program *program, const struct step_op *op, struct arena *arena,
                       struct breakdown *b)
{
    b->moment = (struct breakdown_moment){.phase = phase_name(program->peak.phase), .micro_batch = -1};
    if (!op->op)
        return;
    b->moment.operation = op_kind_name(op->kind);
    b->moment.part = program_instance_name(program, op->instance, arena_alloc(arena, PROGRAM_NAME));
    b->moment.micro_batch = op->micro_batch;
}

static void find_alive(const struct program *program, struct arena *arena, struct breakdown *b)
{
    struct described *rows;
    struct reached reached = {.alive =
                                  host_alloc((size_t)program_tensor_count(program) * sizeof *reached.alive)};
    if (program->peak.op >= 0)
        walk_to_peak(program, &reached);
    list_layers(program, arena, b);
    int64_t count = describe_tensors(program, reached.micro_batches, arena, &rows);
    b->tensors = arena_array(arena, (size_t)count, sizeof *b->tensors);
    for (int64_t i = 0; i < count; i++)
        if (rows[i].micro_batch < 0 || reached.alive[rows[i].id])
            add_alive(b, &rows[i]);
    qsort(b->tensors, (size_t)b->tensor_count, sizeof *b->tensors, larger_first);
    set_moment(program, &reached.op, arena, b);
    free(reached.alive);
}

/* Peak and arena of the same step with full recomputation in every layer, of the stage that then needs most; left alone
 * where that cannot be found. */
static void find_lowest(const struct pipeline *pipeline, struct arena *arena, int64_t *peak_bytes,
                        int64_t *arena_bytes)
{
    struct pipeline *full;
    const struct program *first = pipeline->stages[0];
    uint32_t *masks = arena_array(arena, (size_t)first->model.layers, sizeof *masks);
    for (int64_t layer = 0; layer < first->model.layers; layer++)
        masks[layer] = recompute_full(&first->model);
    struct program_spec spec = {.model = &first->model,
                                .layout = &first->layout,
                                .recompute = masks,
                                .chunk_layers = stage_table_chunk_layers(pipeline, arena)};
    if (pipeline_create(&spec, &full, NULL))
        return;
    const struct program *worst = full->stages[pipeline_worst(full)];
    *peak_bytes = worst->peak_bytes;
    *arena_bytes = worst->arena_bytes;
    pipeline_free(full);
}

/* `room` is what tensors may take: the capacity but for the runtime. */
static const char *advise_short(const struct program *program, int64_t room, int64_t runtime_bytes,
                                int64_t lowest_arena, struct arena *arena)
{
    char needed[UNITS_TEXT];
    units_format_bytes(lowest_arena + runtime_bytes, needed);
    if (lowest_arena <= room)
        return arena_printf(arena, "It does not fit; with --recompute full it would: %s.", needed);
    return arena_printf(arena, "It does not fit, and with --recompute full it still needs %s; try a %s.",
                        needed,
                        program->layout.micro_batch == 1 ? "shorter --seq-len" : "smaller --micro-batch");
}

/* NULL: little stays free, or no micro-batch is larger. */
static const char *advise_free(const struct pipeline *pipeline, const struct breakdown_room *room,
                               int64_t arena_bytes, struct arena *arena)
{
    char left[UNITS_TEXT];
    int64_t needed = arena_bytes + room->runtime_bytes;
    if (needed >= room->capacity_bytes / 4 * 3)
        return NULL;
    const char *larger = larger_batch_find(pipeline, room->capacity_bytes, room->runtime_bytes, arena);
    return larger ? arena_printf(arena, "%s stay free; %s.",
                                 units_format_bytes(room->capacity_bytes - needed, left), larger)
                  : NULL;
}

static const char *advice(const struct pipeline *pipeline, const struct breakdown_room *given,
                          struct arena *arena)
{
    const struct program *program = pipeline->stages[pipeline_worst(pipeline)];
    char a[UNITS_TEXT], b[UNITS_TEXT];
    int64_t lowest = program->peak_bytes, lowest_arena = program->arena_bytes;
    bool limited = given->capacity_bytes != INT64_MAX;
    int64_t room = limited ? given->capacity_bytes - given->runtime_bytes : INT64_MAX;
    if (program->persistent_bytes > room)
        return arena_printf(
            arena,
            "It does not fit: parameters, gradients and optimizer state alone take %s, whatever "
            "the batch.",
            units_format_bytes(program->persistent_bytes, a));
    find_lowest(pipeline, arena, &lowest, &lowest_arena);
    if (program->arena_bytes > room)
        return advise_short(program, room, given->runtime_bytes, lowest_arena, arena);
    const char *free_room = limited ? advise_free(pipeline, given, program->arena_bytes, arena) : NULL;
    if (free_room)
        return free_room;
    if (lowest < program->peak_bytes / 10 * 9)
        return arena_printf(arena, "--recompute full would lower the peak to %s, %s less.",
                            units_format_bytes(lowest, a),
                            units_format_bytes(program->peak_bytes - lowest, b));
    return arena_printf(
        arena, "%s of it (%.0f%%) are parameters, gradients and optimizer state, the same for every batch.",
        units_format_bytes(program->persistent_bytes, a),
        100 * (double)program->persistent_bytes / (double)program->peak_bytes);
}

struct breakdown breakdown_of_pipeline(const struct pipeline *pipeline, const char *device,
                                       const struct breakdown_room *room, struct arena *arena)
{
    int worst = pipeline_worst(pipeline);
    const struct program *program = pipeline->stages[worst];
    struct breakdown b = {
        .model = program->model.name,
        .device = device,
        .layout = describe_layout(&program->layout, arena),
        .ranks = layout_ranks(&program->layout),
        .rows = stage_table_rows(pipeline, arena),
        .row_count = pipeline->count,
        .capacity_bytes = room->capacity_bytes,
        .runtime_bytes = room->runtime_bytes,
        .peak_bytes = program->peak_bytes,
        .arena_bytes = program->arena_bytes,
        .detailed = true,
        .advice = advice(pipeline, room, arena),
    };
    struct text recompute = {0};
    recompute_print(&program->model, program->recompute, &recompute);
    b.recompute = arena_strdup(arena, recompute.data ? recompute.data : "none");
    text_free(&recompute);
    memcpy(b.by_role, program->at_peak, sizeof b.by_role);
    b.rank = b.rows[worst].first;
    b.stages = pipeline->count;
    b.place = layout_place_of(&program->layout, b.rank);
    b.place_name = stage_table_place(&program->layout, b.rank, arena);
    find_alive(program, arena, &b);
    return b;
}
