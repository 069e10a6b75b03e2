#include "planner/advice.h"

#include "base/units.h"
#include "model/recompute.h"
#include "planner/arrangement.h"
#include "planner/prediction.h"

#include <stdlib.h>
#include <string.h>

/* Micro-batch, recomputation, both, bf16, sequence. */
enum { ADVICE_MAX = 5, SHORTEST_SEQUENCE = 16 };

struct adviser {
    const struct program *program; /* the one that does not fit */
    const struct machine_speed *speed;
    struct layer_sets sets; /* of its sequence and precision */
    int64_t runtime_bytes, room;
    struct advice_list *list;
    struct error *err;
};

/* ---------------------------------------------------------------------------------------------------------- changes */

/* A step of one micro-batch has its global batch from there; saying it keeps it. */
static void print_micro_batch(const struct adviser *adviser, const struct layout *layout, struct text *out)
{
    text_printf(out, "--micro-batch %lld", (long long)layout->micro_batch);
    if (adviser->program->micro_batches == 1)
        text_printf(out, " --global-batch %lld", (long long)layout->global_batch);
}

static void print_recompute(const struct program *program, struct text *out)
{
    text_printf(out, "%s--recompute ", out->length ? " " : "");
    recompute_print(&program->model, program->recompute, out);
}

/* Takes what is in `options`. */
static void add(struct adviser *adviser, const struct program *program, struct text *options)
{
    struct advice_list *list = adviser->list;
    size_t layers = (size_t)program->model.layers;
    struct advice *item = &list->items[list->count++];
    *item = (struct advice){
        .options = arena_strdup(list->arena, options->data),
        .layout = program->layout,
        .masks = arena_array(list->arena, layers, sizeof *item->masks),
        .arena_bytes = program->arena_bytes,
        .needed_bytes = program->arena_bytes + adviser->runtime_bytes,
        .step_s = time_model_step(program, adviser->speed).total,
    };
    memcpy(item->masks, program->recompute, layers * sizeof *item->masks);
    text_free(options);
}

/* The program in another layout, or *out == NULL when that does not fit. */
static int fit_layout(struct adviser *adviser, const struct layout *layout, struct program **out)
{
    const struct program *program = adviser->program;
    if (program_create(&program->model, layout, program->recompute, out, adviser->err))
        return -1;
    if ((*out)->arena_bytes > adviser->room) {
        program_free(*out);
        *out = NULL;
    }
    return 0;
}

/* The program in another layout with the recomputation that it takes, or *out == NULL. */
static int fit_recomputed(struct adviser *adviser, const struct layout *layout, struct program **out)
{
    struct program *plain;
    if (program_create(&adviser->program->model, layout, NULL, &plain, adviser->err))
        return -1;
    int status =
        arrangement_fit(plain, &adviser->sets, adviser->speed, adviser->room, out, NULL, adviser->err);
    program_free(plain);
    return status;
}

/* The next smaller micro-batch that divides what a rank has; 0: none. */
static int64_t smaller(const struct layout *layout)
{
    int64_t sequences = layout->global_batch / layout->dp, micro_batch = layout->micro_batch - 1;
    while (micro_batch > 0 && sequences % micro_batch)
        micro_batch--;
    return micro_batch;
}

/* The largest smaller micro-batch that fits, since larger ones are faster. */
static int advise_micro_batch(struct adviser *adviser,
                              int (*fit)(struct adviser *, const struct layout *, struct program **),
                              bool recomputed)
{
    struct layout layout = adviser->program->layout;
    struct program *found = NULL;
    while (!found && (layout.micro_batch = smaller(&layout)) > 0)
        if (fit(adviser, &layout, &found))
            return -1;
    if (!found)
        return 0;
    struct text options = {0};
    print_micro_batch(adviser, &found->layout, &options);
    if (recomputed)
        print_recompute(found, &options);
    add(adviser, found, &options);
    program_free(found);
    return 0;
}

static int advise_recompute(struct adviser *adviser)
{
    struct program *found;
    struct text options = {0};
    if (fit_recomputed(adviser, &adviser->program->layout, &found))
        return -1;
    if (!found)
        return 0;
    print_recompute(found, &options);
    add(adviser, found, &options);
    program_free(found);
    return 0;
}

static int advise_bf16(struct adviser *adviser)
{
    struct layout layout = adviser->program->layout;
    struct program *found;
    struct text options = {0};
    if (layout.precision != PRECISION_FP32)
        return 0;
    layout.precision = PRECISION_BF16;
    if (fit_layout(adviser, &layout, &found))
        return -1;
    if (!found)
        return 0;
    text_add(&options, "--precision bf16");
    add(adviser, found, &options);
    program_free(found);
    return 0;
}

static int advise_sequence(struct adviser *adviser)
{
    struct layout layout = adviser->program->layout;
    struct program *found = NULL;
    struct text options = {0};
    while (!found && (layout.seq_len /= 2) >= SHORTEST_SEQUENCE)
        if (fit_layout(adviser, &layout, &found))
            return -1;
    if (!found)
        return 0;
    text_printf(&options, "--seq-len %lld", (long long)layout.seq_len);
    add(adviser, found, &options);
    program_free(found);
    return 0;
}

/* ----------------------------------------------------------------------------------------------------------- advice */

static int find_least(struct adviser *adviser)
{
    struct layout layout = adviser->program->layout;
    layout.micro_batch = 1;
    struct program *plain, *least;
    if (program_create(&adviser->program->model, &layout, NULL, &plain, adviser->err))
        return -1;
    int status = arrangement_least(plain, &adviser->sets, adviser->speed, &least, adviser->err);
    program_free(plain);
    if (!status) {
        adviser->list->least_bytes = least->arena_bytes + adviser->runtime_bytes;
        program_free(least);
    }
    return status;
}

static int by_speed(const void *a, const void *b)
{
    const struct advice *x = a, *y = b;
    return (x->step_s > y->step_s) - (x->step_s < y->step_s);
}

/* What leaves the training as it was. */
static int find_same_training(struct adviser *adviser)
{
    if (advise_recompute(adviser) || advise_micro_batch(adviser, fit_layout, false))
        return -1;
    if (!adviser->list->count && advise_micro_batch(adviser, fit_recomputed, true))
        return -1;
    qsort(adviser->list->items, (size_t)adviser->list->count, sizeof *adviser->list->items, by_speed);
    return 0;
}

/* Where even the least does not fit, smaller micro-batches and recomputation need no trying. */
static int find_all(struct adviser *adviser)
{
    if (find_least(adviser))
        return -1;
    bool possible = adviser->list->least_bytes - adviser->runtime_bytes <= adviser->room;
    if (possible && find_same_training(adviser))
        return -1;
    return advise_bf16(adviser) || advise_sequence(adviser) ? -1 : 0;
}

int advice_find(const struct program *program, const struct rank_device *device,
                const struct machine_speed *speed, struct advice_list *out, struct error *err)
{
    *out = (struct advice_list){.arena = arena_create()};
    out->items = arena_array(out->arena, ADVICE_MAX, sizeof *out->items);
    struct adviser adviser = {.program = program,
                              .speed = speed,
                              .runtime_bytes = prediction_runtime(device, program->layout.dp).bytes,
                              .list = out,
                              .err = err};
    adviser.room = device->capacity_bytes - adviser.runtime_bytes;
    layer_sets_create(program, &adviser.sets);
    int status = find_all(&adviser);
    layer_sets_clear(&adviser.sets);
    if (status)
        advice_clear(out);
    return status;
}

void advice_clear(struct advice_list *list)
{
    arena_free(list->arena);
    *list = (struct advice_list){0};
}

void advice_print(const struct advice_list *list, struct text *out)
{
    enum { PRINTED = 2 };
    char bytes[UNITS_TEXT];
    if (!list->count)
        text_printf(out,
                    "nothing short of a smaller model or more memory will do: it needs %s even with "
                    "micro-batches of 1 and recomputation, and more data-parallel ranks do not help",
                    units_format_bytes(list->least_bytes, bytes));
    for (int i = 0; i < list->count && i < PRINTED; i++)
        text_printf(out, "%s%s (needs %s)", i ? " or " : "try ", list->items[i].options,
                    units_format_bytes(list->items[i].needed_bytes, bytes));
}
