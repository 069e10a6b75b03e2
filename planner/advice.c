#include "planner/advice.h"

#include "base/checked.h"
#include "base/units.h"
#include "model/recompute.h"
#include "planner/prediction.h"
#include "planner/refit.h"

#include <stdlib.h>
#include <string.h>

/* Micro-batch, recomputation, both, schedule, sharding, replicas that shard, more ranks, bf16, sequence. */
enum { ADVICE_MAX = 9, SHORTEST_SEQUENCE = 16, LONG_SEQUENCE = 32768 };
/* Tensor-parallel ranks exchange all the time, and want the links of one node. */
enum { MOST_PARTS = 8, MOST_STAGES = 64, MOST_REPLICAS = 8 };

struct adviser {
    const struct program *program; /* the first stage of what does not fit */
    int64_t *chunk_layers;
    bool by_hand; /* chunks have other layers than they would unasked */
    bool roomy;   /* what is not known of context and libraries stays free, as in plans */
    const struct rank_device *device;
    const struct machine_speed *speed;
    enum precision
        precision; /* of more ranks: where the card has units for bf16, fp32 is no reason for them */
    struct advice_list *list;
    struct error *err;
};

/* ---------------------------------------------------------------------------------------------------------- changes */

/* The usual global batch grows with micro-batch and stages; saying it keeps it. */
static void print_global_batch(const struct layout *layout, struct text *out)
{
    text_printf(out, " --global-batch %lld", (long long)layout->global_batch);
}

static void print_micro_batch(const struct adviser *adviser, const struct layout *layout, struct text *out)
{
    text_printf(out, "--micro-batch %lld", (long long)layout->micro_batch);
    if (adviser->program->micro_batches == layout->pp)
        print_global_batch(layout, out);
}

/* What differs from layer to layer is `auto`'s to find again. */
static void print_recompute(const struct program *program, struct text *out)
{
    enum { SHORT = 48 };
    struct text sets = {0};
    recompute_print(&program->model, program->recompute, &sets);
    text_printf(out, "%s--recompute %s", out->length ? " " : "", sets.length <= SHORT ? sets.data : "auto");
    text_free(&sets);
}

static void print_ranks(const struct layout *before, const struct layout *layout, struct text *out)
{
    if (layout->tp != before->tp)
        text_printf(out, "--tp %lld", (long long)layout->tp);
    if (layout->pp == before->pp)
        return;
    text_printf(out, "%s--pp %lld", out->length ? " " : "", (long long)layout->pp);
    print_global_batch(layout, out);
}

/* What more ranks come with. */
static struct layout ranks_layout(const struct adviser *adviser, struct text *options)
{
    struct layout layout = adviser->program->layout;
    if (layout.precision != adviser->precision)
        text_printf(options, "--precision %s ", precision_name(adviser->precision));
    layout.precision = adviser->precision;
    return layout;
}

static int64_t worst_bytes(const struct pipeline *pipeline)
{
    return pipeline->stages[pipeline_worst(pipeline)]->arena_bytes;
}

static struct runtime_term runtime_of(const struct adviser *adviser, const struct layout *layout)
{
    return prediction_runtime(adviser->device, layout_ranks(layout));
}

/* What tensors may take. */
static int64_t room(const struct adviser *adviser, const struct layout *layout)
{
    struct runtime_term runtime = runtime_of(adviser, layout);
    return adviser->device->capacity_bytes - runtime.bytes - (adviser->roomy ? runtime.error_bytes : 0);
}

static int add_item(struct adviser *adviser, const struct pipeline *pipeline, const char *options)
{
    struct advice_list *list = adviser->list;
    const struct program *program = pipeline->stages[0];
    size_t layers = (size_t)program->model.layers;
    struct step_time time;
    if (time_model_pipeline(pipeline, adviser->speed, NULL, &time, adviser->err))
        return -1;
    struct advice *item = &list->items[list->count++];
    *item = (struct advice){
        .options = arena_strdup(list->arena, options),
        .layout = program->layout,
        .masks = arena_array(list->arena, layers, sizeof *item->masks),
        .arena_bytes = worst_bytes(pipeline),
        .needed_bytes = worst_bytes(pipeline) + runtime_of(adviser, &program->layout).bytes,
        .in_doubt = !adviser->roomy && runtime_of(adviser, &program->layout).error_bytes,
        .step_s = time.total,
    };
    memcpy(item->masks, program->recompute, layers * sizeof *item->masks);
    return 0;
}

/* Takes both; without a pipeline there is nothing to add. */
static int add(struct adviser *adviser, struct pipeline *pipeline, struct text *options)
{
    int status = pipeline ? add_item(adviser, pipeline, options->data) : 0;
    pipeline_free(pipeline);
    text_free(options);
    return status;
}

static bool has_same_chunks(const struct adviser *adviser, const struct layout *layout)
{
    return layout_chunks(layout) == layout_chunks(&adviser->program->layout);
}

/* The layers that somebody gave to chunks are those of so many. */
static bool is_valid(const struct adviser *adviser, const struct layout *layout)
{
    struct layout copy = *layout;
    return layout_complete(&copy, &adviser->program->model, NULL) == 0 &&
           (!adviser->by_hand || has_same_chunks(adviser, layout));
}

/* The layers of each chunk stay as they are while their number does. */
static const int64_t *layers_of_chunks(const struct adviser *adviser, const struct layout *layout)
{
    return has_same_chunks(adviser, layout) ? adviser->chunk_layers : NULL;
}

static struct refit_question refit_question(const struct adviser *adviser, const struct layout *layout)
{
    return (struct refit_question){.model = &adviser->program->model,
                                   .layout = layout,
                                   .chunk_layers = layers_of_chunks(adviser, layout),
                                   .speed = adviser->speed};
}

/* Is the first stage too large by itself? It mostly needs most. */
static int check_first(const struct adviser *adviser, const struct program_spec *spec, bool *fits)
{
    struct program *program;
    if (program_create_stage(spec, &program, adviser->err))
        return -1;
    *fits = program->arena_bytes <= room(adviser, spec->layout);
    program_free(program);
    return 0;
}

/* The layout with these masks, or *out == NULL when that does not fit. */
static int fit_masks(struct adviser *adviser, const struct layout *layout, const uint32_t *masks,
                     struct pipeline **out)
{
    struct program_spec spec = {.model = &adviser->program->model,
                                .layout = layout,
                                .recompute = masks,
                                .chunk_layers = layers_of_chunks(adviser, layout)};
    bool fits = true;
    *out = NULL;
    if (layout->pp > 1 && check_first(adviser, &spec, &fits))
        return -1;
    if (!fits)
        return 0;
    if (pipeline_create(&spec, out, adviser->err))
        return -1;
    if (worst_bytes(*out) > room(adviser, layout)) {
        pipeline_free(*out);
        *out = NULL;
    }
    return 0;
}

static int fit_layout(struct adviser *adviser, const struct layout *layout, struct pipeline **out)
{
    return fit_masks(adviser, layout, adviser->program->recompute, out);
}

/* The layout, whose layers are as large as they were, with the recomputation that it takes, layer by layer; or *out == NULL. */
static int fit_recomputed(struct adviser *adviser, const struct layout *layout, struct pipeline **out)
{
    const struct model *model = &adviser->program->model;
    struct refit_question question = refit_question(adviser, layout);
    uint32_t *masks = host_alloc((size_t)model->layers * sizeof *masks);
    int64_t *rooms = host_alloc((size_t)layout->pp * sizeof *rooms), short_stage, least_bytes;
    for (int64_t i = 0; i < layout->pp; i++)
        rooms[i] = room(adviser, layout);
    question.rooms = rooms;
    *out = NULL;
    int status = refit_masks(&question, masks, &short_stage, &least_bytes, adviser->err);
    if (!status && short_stage < 0)
        status = fit_masks(adviser, layout, masks, out);
    free(masks);
    free(rooms);
    return status;
}

/* The same for layouts of which there are many: looked at more closely only where dropping everything makes them fit. */
static int fit_surely(struct adviser *adviser, const struct layout *layout, struct pipeline **out)
{
    const struct model *model = &adviser->program->model;
    uint32_t *masks = host_alloc((size_t)model->layers * sizeof *masks), full = recompute_full(model);
    for (int64_t layer = 0; layer < model->layers; layer++)
        masks[layer] = full;
    int status = fit_masks(adviser, layout, masks, out);
    free(masks);
    if (status || !*out)
        return status;
    pipeline_free(*out);
    return fit_recomputed(adviser, layout, out);
}

/* The next smaller micro-batch that divides what a rank has; 0: none. */
static int64_t smaller(const struct layout *layout)
{
    int64_t sequences = layout->global_batch / layout->dp, micro_batch = layout->micro_batch - 1;
    while (micro_batch > 0 && sequences % micro_batch)
        micro_batch--;
    return micro_batch;
}

typedef int fit_function(struct adviser *, const struct layout *, struct pipeline **);

/* The largest smaller micro-batch that fits, since larger ones are faster. */
static int advise_micro_batch(struct adviser *adviser, fit_function *fit, bool recomputed)
{
    struct layout layout = adviser->program->layout;
    struct pipeline *found = NULL;
    struct text options = {0};
    while (!found && (layout.micro_batch = smaller(&layout)) > 0)
        if (is_valid(adviser, &layout) && fit(adviser, &layout, &found))
            return -1;
    if (found)
        print_micro_batch(adviser, &layout, &options);
    if (found && recomputed)
        print_recompute(found->stages[0], &options);
    return add(adviser, found, &options);
}

static int advise_recompute(struct adviser *adviser)
{
    struct pipeline *found;
    struct text options = {0};
    if (fit_recomputed(adviser, &adviser->program->layout, &found))
        return -1;
    if (found)
        print_recompute(found->stages[0], &options);
    return add(adviser, found, &options);
}

/* No schedule keeps fewer micro-batches' activations than 1F1B. */
static int advise_schedule(struct adviser *adviser, fit_function *fit, bool recomputed)
{
    struct layout layout = adviser->program->layout;
    struct pipeline *found = NULL;
    struct text options = {0};
    if (layout.pp == 1 || layout.schedule == SCHEDULE_1F1B)
        return 0;
    text_printf(&options, "--pipeline-schedule %s", schedule_name(SCHEDULE_1F1B));
    text_add(&options, layout.virtual_stages > 1 ? " --virtual-stages 1" : "");
    layout.schedule = SCHEDULE_1F1B;
    layout.virtual_stages = 1;
    if (is_valid(adviser, &layout) && fit(adviser, &layout, &found))
        return text_free(&options), -1;
    if (found && recomputed)
        print_recompute(found->stages[0], &options);
    return add(adviser, found, &options);
}

static int advise_zero(struct adviser *adviser)
{
    struct layout layout = adviser->program->layout;
    struct pipeline *found;
    struct text options = {0};
    if (layout.zero || layout.dp == 1)
        return 0;
    layout.zero = 1;
    if (fit_layout(adviser, &layout, &found))
        return -1;
    text_add(&options, "--zero 1");
    return add(adviser, found, &options);
}

/* The fewest replicas that fit where each keeps a share of the optimizer's states, with recomputation only where it takes it. */
static int advise_replicas(struct adviser *adviser, fit_function *fit, bool recomputed)
{
    struct pipeline *found = NULL;
    struct text options = {0};
    struct layout layout = ranks_layout(adviser, &options);
    const int64_t global_batch = layout.global_batch;
    bool grows = adviser->program->micro_batches == layout.pp;
    if (!adviser->device->card || layout.dp > 1) {
        text_free(&options);
        return 0;
    }
    layout.zero = 1;
    for (layout.dp = 2; !found && layout.dp <= MOST_REPLICAS; layout.dp *= 2) {
        layout.global_batch = grows ? layout.dp * global_batch : global_batch;
        if (is_valid(adviser, &layout) && fit(adviser, &layout, &found))
            return text_free(&options), -1;
    }
    if (found)
        text_printf(&options, "--dp %lld --zero 1", (long long)found->stages[0]->layout.dp);
    if (found && recomputed)
        print_recompute(found->stages[0], &options);
    return add(adviser, found, &options);
}

static bool is_another(const struct program *program, const struct layout *layout)
{
    const struct layout *now = &program->layout;
    return layout->tp != now->tp || layout->pp != now->pp || layout->precision != now->precision;
}

/* The fewest more that fit, tensor-parallel ranks before stages. Not on a CPU, whose ranks share its memory. */
static int advise_ranks(struct adviser *adviser, fit_function *fit, bool recomputed)
{
    const struct program *program = adviser->program;
    struct pipeline *found = NULL;
    struct text options = {0};
    struct layout layout = ranks_layout(adviser, &options);
    if (!adviser->device->card) {
        text_free(&options);
        return 0;
    }
    for (; !found && layout.pp <= min_i64(program->model.layers, MOST_STAGES); layout.pp *= 2)
        for (layout.tp = program->layout.tp; !found && layout.tp <= MOST_PARTS; layout.tp++)
            if (is_another(program, &layout) && is_valid(adviser, &layout) && fit(adviser, &layout, &found))
                return text_free(&options), -1;
    if (found)
        print_ranks(&program->layout, &found->stages[0]->layout, &options);
    if (found && recomputed)
        print_recompute(found->stages[0], &options);
    adviser->list->ranks_tried = true;
    return add(adviser, found, &options);
}

static int advise_bf16(struct adviser *adviser)
{
    struct layout layout = adviser->program->layout;
    struct pipeline *found;
    struct text options = {0};
    if (layout.precision != PRECISION_FP32)
        return 0;
    layout.precision = PRECISION_BF16;
    if (fit_layout(adviser, &layout, &found))
        return -1;
    text_add(&options, "--precision bf16");
    return add(adviser, found, &options);
}

static int advise_sequence(struct adviser *adviser)
{
    struct layout layout = adviser->program->layout;
    struct pipeline *found = NULL;
    struct text options = {0};
    while (!found && (layout.seq_len /= 2) >= SHORTEST_SEQUENCE)
        if (is_valid(adviser, &layout) && fit_layout(adviser, &layout, &found))
            return -1;
    text_printf(&options, "--seq-len %lld", (long long)layout.seq_len);
    return add(adviser, found, &options);
}

/* ----------------------------------------------------------------------------------------------------------- advice */

static int find_least(struct adviser *adviser)
{
    struct layout layout = adviser->program->layout;
    layout.micro_batch = 1;
    struct refit_question question = refit_question(adviser, &layout);
    uint32_t *masks = host_alloc((size_t)adviser->program->model.layers * sizeof *masks);
    int status = refit_least(&question, masks, &adviser->list->least_bytes, adviser->err);
    adviser->list->least_bytes += runtime_of(adviser, &layout).bytes;
    free(masks);
    return status;
}

static int by_speed(const void *a, const void *b)
{
    const struct advice *x = a, *y = b;
    return (x->step_s > y->step_s) - (x->step_s < y->step_s);
}

typedef int advise_function(struct adviser *, fit_function *, bool recomputed);

/* As it is, or else with recomputation. */
static int advise_twice(struct adviser *adviser, advise_function *advise, fit_function *recomputed)
{
    int before = adviser->list->count;
    if (advise(adviser, fit_layout, false))
        return -1;
    return adviser->list->count > before ? 0 : advise(adviser, recomputed, true);
}

/* What leaves the training as it was. Where even the least does not fit, smaller micro-batches and recomputation need no
 * trying. */
static int find_same_training(struct adviser *adviser)
{
    struct advice_list *list = adviser->list;
    struct runtime_term runtime = runtime_of(adviser, &adviser->program->layout);
    if (list->least_bytes - runtime.bytes <= room(adviser, &adviser->program->layout)) {
        if (advise_recompute(adviser) || advise_micro_batch(adviser, fit_layout, false))
            return -1;
        if (!list->count && advise_micro_batch(adviser, fit_recomputed, true))
            return -1;
    }
    if (advise_twice(adviser, advise_schedule, fit_recomputed) || advise_zero(adviser))
        return -1;
    qsort(list->items, (size_t)list->count, sizeof *list->items, by_speed);
    return 0;
}

static int find_changes(struct adviser *adviser)
{
    if (find_same_training(adviser))
        return -1;
    /* On a card with units for it bf16 is many times as fast, and comes before more ranks. */
    bool bf16_first = adviser->precision != adviser->program->layout.precision;
    if (bf16_first && advise_bf16(adviser))
        return -1;
    if (advise_twice(adviser, advise_ranks, fit_surely) ||
        advise_twice(adviser, advise_replicas, fit_recomputed))
        return -1;
    return (!bf16_first && advise_bf16(adviser)) || advise_sequence(adviser) ? -1 : 0;
}

/* Where nothing leaves as much free as plans do, what leaves less may still do. */
static int find_all(struct adviser *adviser)
{
    if (find_least(adviser) || find_changes(adviser))
        return -1;
    adviser->roomy = adviser->list->count || !runtime_of(adviser, &adviser->program->layout).error_bytes;
    return adviser->roomy ? 0 : find_changes(adviser);
}

/* Are they what the layout has unasked? */
static bool are_spread(const struct program *program, const int64_t *chunk_layers)
{
    const struct layout *l = &program->layout;
    size_t bytes = (size_t)layout_chunks(l) * sizeof *chunk_layers;
    int64_t *spread = host_alloc(bytes);
    layout_spread_layers(l, program->model.layers, spread);
    bool same = !memcmp(spread, chunk_layers, bytes);
    free(spread);
    return same;
}

static int64_t *list_chunk_layers(const struct pipeline *pipeline)
{
    int64_t *layers = host_alloc((size_t)layout_chunks(&pipeline->stages[0]->layout) * sizeof *layers);
    for (int i = 0; i < pipeline->count; i++)
        for (int c = 0; c < pipeline->stages[i]->chunk_count; c++)
            layers[pipeline->stages[i]->chunks[c].global] = pipeline->stages[i]->chunks[c].layers;
    return layers;
}

int advice_find(const struct pipeline *pipeline, const struct rank_device *device,
                const struct machine_speed *speed, struct advice_list *out, struct error *err)
{
    const struct program *program = pipeline->stages[0];
    const struct card *card = device->card;
    bool bf16 = card && card->bf16_flops_per_s > card->fp32_flops_per_s &&
                program->layout.precision == PRECISION_FP32;
    *out = (struct advice_list){.arena = arena_create()};
    if (program->layout.seq_len >= LONG_SEQUENCE && program->layout.seq_len == program->model.max_seq_len)
        out->longest = program->layout.seq_len;
    out->items = arena_array(out->arena, ADVICE_MAX, sizeof *out->items);
    struct adviser adviser = {.program = program,
                              .precision = bf16 ? PRECISION_BF16 : program->layout.precision,
                              .chunk_layers = list_chunk_layers(pipeline),
                              .roomy = true,
                              .device = device,
                              .speed = speed,
                              .list = out,
                              .err = err};
    adviser.by_hand = !are_spread(program, adviser.chunk_layers);
    int status = find_all(&adviser);
    free(adviser.chunk_layers);
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
                    "nothing short of a smaller model or more memory will do: a rank needs %s even with "
                    "micro-batches of 1 and recomputation, and more data-parallel ranks do not help%s",
                    units_format_bytes(list->least_bytes, bytes),
                    list->ranks_tried ? "" : "; --tp and --pp divide the model between ranks");
    for (int i = 0; i < list->count && i < PRINTED; i++)
        text_printf(out, "%s%s (needs %s%s)", i ? " or " : "try ", list->items[i].options,
                    units_format_bytes(list->items[i].needed_bytes, bytes),
                    list->items[i].in_doubt ? ", within the error of the runtime term" : "");
    if (list->longest)
        text_printf(out, "; sequences are as long as the model allows, %lld: --seq-len makes them shorter",
                    (long long)list->longest);
}
