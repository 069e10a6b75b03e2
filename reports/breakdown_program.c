/* The breakdown that a program foretells. What is alive at the peak is found by walking the step up to it, tensor by
 * tensor, as a recorder would see it; the peak itself comes from arithmetic over blocks (model/program_peak.c), and a test
 * holds the two to each other. */
#include "base/text.h"
#include "base/units.h"
#include "model/recompute.h"
#include "reports/breakdown.h"
#include "reports/describe.h"

#include <stdlib.h>
#include <string.h>

static bool is_peak(const struct program *program, const struct step_op *op)
{
    return op->op && op->phase == program->peak.phase && op->instance == program->peak.instance &&
           op->op == &op->block->ops[program->peak.op];
}

/* Sets alive[id]. The peak is first reached in micro-batch 0. */
static void walk_to_peak(const struct program *program, bool *alive, struct step_op *at)
{
    struct program_cursor cursor = program_walk(program);
    while (program_next(&cursor, at)) {
        if (!at->op)
            continue;
        for (int i = 0; i < at->op->birth_count; i++)
            alive[program_tensor(program, at->instance, 0, at->op->births[i]).id] = true;
        if (is_peak(program, at))
            return;
        for (int i = 0; i < at->op->death_count; i++)
            alive[program_tensor(program, at->instance, 0, at->op->deaths[i]).id] = false;
    }
}

static int larger_first(const void *left, const void *right)
{
    const struct breakdown_tensor *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->layer != b->layer ? (a->layer < b->layer ? -1 : 1) : strcmp(a->name, b->name);
}

static void add_alive(struct breakdown *b, const struct described *row)
{
    b->tensors[b->tensor_count++] =
        (struct breakdown_tensor){row->name, row->dims, row->dtype, row->role, row->layer, row->bytes};
    b->layers[row->layer + 1].by_role[row->role] += row->bytes;
}

static void find_alive(const struct program *program, struct arena *arena, struct breakdown *b)
{
    struct described *rows;
    struct step_op at = {.op = NULL};
    int64_t count = describe_tensors(program, 1, arena, &rows);
    bool *alive = arena_array(arena, (size_t)rows[count - 1].id + 1, sizeof *alive);
    if (program->peak.op >= 0)
        walk_to_peak(program, alive, &at);
    b->layer_count = program->model.layers + 1;
    b->layers = arena_array(arena, (size_t)b->layer_count, sizeof *b->layers);
    for (int64_t i = 0; i < b->layer_count; i++)
        b->layers[i].layer = i - 1;
    b->tensors = arena_array(arena, (size_t)count, sizeof *b->tensors);
    for (int64_t i = 0; i < count; i++)
        if (rows[i].micro_batch < 0 || alive[rows[i].id])
            add_alive(b, &rows[i]);
    qsort(b->tensors, (size_t)b->tensor_count, sizeof *b->tensors, larger_first);
    b->moment =
        (struct breakdown_moment){.phase = phase_name(program->peak.phase), .micro_batch = -1, .step = -1};
    if (at.op) {
        b->moment.operation = op_kind_name(at.kind);
        b->moment.part = program_instance_name(program, at.instance, arena_alloc(arena, PROGRAM_NAME));
        b->moment.micro_batch = at.micro_batch;
    }
}

/* Peak and arena of the same step with full recomputation in every layer; left alone where that cannot be found. */
static void find_lowest(const struct program *program, int64_t *peak_bytes, int64_t *arena_bytes)
{
    struct program *full;
    uint32_t *masks = host_alloc((size_t)program->model.layers * sizeof *masks);
    for (int64_t layer = 0; layer < program->model.layers; layer++)
        masks[layer] = recompute_full(&program->model);
    int failed = program_create(&program->model, &program->layout, masks, &full, NULL);
    free(masks);
    if (failed)
        return;
    *peak_bytes = full->peak_bytes;
    *arena_bytes = full->arena_bytes;
    program_free(full);
}

static const char *advice(const struct program *program, int64_t capacity_bytes, struct arena *arena)
{
    char a[UNITS_TEXT], b[UNITS_TEXT];
    int64_t lowest = program->peak_bytes, lowest_arena = program->arena_bytes;
    bool limited = capacity_bytes != INT64_MAX, one = program->layout.micro_batch == 1;
    if (program->persistent_bytes > capacity_bytes)
        return arena_printf(
            arena,
            "It does not fit: parameters, gradients and optimizer state alone take %s, whatever "
            "the batch.",
            units_format_bytes(program->persistent_bytes, a));
    find_lowest(program, &lowest, &lowest_arena);
    if (limited && program->arena_bytes > capacity_bytes && lowest_arena <= capacity_bytes)
        return arena_printf(arena, "It does not fit; with --recompute full it would: %s.",
                            units_format_bytes(lowest_arena, a));
    if (limited && program->arena_bytes > capacity_bytes)
        return arena_printf(arena, "It does not fit, and with --recompute full it still needs %s; try a %s.",
                            units_format_bytes(lowest_arena, a),
                            one ? "shorter --seq-len" : "smaller --micro-batch");
    if (limited && program->arena_bytes < capacity_bytes / 4 * 3)
        return arena_printf(arena, "%s stay free; a larger --micro-batch would use them.",
                            units_format_bytes(capacity_bytes - program->arena_bytes, a));
    if (lowest < program->peak_bytes / 10 * 9)
        return arena_printf(arena, "--recompute full would lower the peak to %s, %s less.",
                            units_format_bytes(lowest, a),
                            units_format_bytes(program->peak_bytes - lowest, b));
    return arena_printf(
        arena, "%s of it (%.0f%%) are parameters, gradients and optimizer state, the same for every batch.",
        units_format_bytes(program->persistent_bytes, a),
        100 * (double)program->persistent_bytes / (double)program->peak_bytes);
}

struct breakdown breakdown_of_program(const struct program *program, const char *device,
                                      int64_t capacity_bytes, struct arena *arena)
{
    struct breakdown b = {
        .model = program->model.name,
        .device = device,
        .layout = describe_layout(&program->layout, arena),
        .ranks = program->layout.dp,
        .capacity_bytes = capacity_bytes,
        .peak_bytes = program->peak_bytes,
        .arena_bytes = program->arena_bytes,
        .detailed = true,
        .advice = advice(program, capacity_bytes, arena),
    };
    struct text recompute = {0};
    recompute_print(&program->model, program->recompute, &recompute);
    b.recompute = arena_strdup(arena, recompute.data ? recompute.data : "none");
    text_free(&recompute);
    memcpy(b.by_role, program->at_peak, sizeof b.by_role);
    find_alive(program, arena, &b);
    return b;
}
