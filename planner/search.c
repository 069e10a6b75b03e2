#include "planner/search.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/units.h"
#include "model/recompute.h"
#include "planner/arrangement.h"

#include <stdlib.h>
#include <string.h>

/* A search in progress. */
struct search {
    const struct search_request *request;
    struct search_result *result;
    struct layer_sets sets; /* made when first needed */
    int64_t alternative_room, rejected_room;
    struct arrangement_count count;
    struct error *err;
};

/* ------------------------------------------------------------------------------------------------------------- rows */

static void add_row(struct arena *arena, struct search_row **rows, int64_t *count, int64_t *room,
                    const struct search_row *row)
{
    if (*count == *room) {
        int64_t doubled = *room ? 2 * *room : 32;
        struct search_row *larger = arena_array(arena, (size_t)doubled, sizeof *larger);
        if (*count)
            memcpy(larger, *rows, (size_t)*count * sizeof **rows);
        *rows = larger;
        *room = doubled;
    }
    (*rows)[(*count)++] = *row;
}

static const char *arena_text(struct arena *arena, struct text *text)
{
    const char *copy = arena_strdup(arena, text->data ? text->data : "");
    text_free(text);
    return copy;
}

static struct search_row row_of(struct search *search, const struct program *program,
                                const struct prediction *prediction)
{
    struct arena *arena = search->result->arena;
    size_t layers = (size_t)program->model.layers;
    struct search_row row = {
        .layout = program->layout,
        .masks = arena_array(arena, layers, sizeof *row.masks),
        .peak_bytes = program->peak_bytes,
        .arena_bytes = program->arena_bytes,
        .needed_bytes = prediction->needed_bytes,
        .time = prediction->time,
    };
    memcpy(row.masks, program->recompute, layers * sizeof *row.masks);
    struct text text = {0};
    recompute_print(&program->model, row.masks, &text);
    row.recompute = arena_text(arena, &text);
    return row;
}

static const char *reason_of(struct search *search, const struct search_row *row,
                             const struct prediction *prediction)
{
    struct text text = {0};
    text_printf(&text, "dp=%lld micro-batch=%lld recompute=%s ", (long long)row->layout.dp,
                (long long)row->layout.micro_batch, row->recompute);
    prediction_explain(prediction, &text);
    return arena_text(search->result->arena, &text);
}

/* Files the program under what fits or under what does not; returns whether it fits. */
static bool file_program(struct search *search, const struct program *program)
{
    struct search_result *result = search->result;
    struct prediction prediction;
    prediction_make(program, &search->request->cluster->device, search->request->speed, &prediction);
    struct search_row row = row_of(search, program, &prediction);
    if (prediction.fits) {
        add_row(result->arena, &result->alternatives, &result->alternative_count, &search->alternative_room,
                &row);
    } else {
        row.reason = reason_of(search, &row, &prediction);
        add_row(result->arena, &result->rejected, &result->rejected_count, &search->rejected_room, &row);
    }
    return prediction.fits;
}

static bool same_masks(const struct search_row *row, const struct layout *layout, const uint32_t *masks,
                       int64_t layers)
{
    return row->layout.dp == layout->dp && row->layout.micro_batch == layout->micro_batch &&
           !memcmp(row->masks, masks, (size_t)layers * sizeof *masks);
}

/* Has a named set already filed this very configuration? */
static bool is_filed(const struct search_result *result, const struct layout *layout, const uint32_t *masks,
                     int64_t layers)
{
    for (int64_t i = 0; i < result->alternative_count; i++)
        if (same_masks(&result->alternatives[i], layout, masks, layers))
            return true;
    for (int64_t i = 0; i < result->rejected_count; i++)
        if (same_masks(&result->rejected[i], layout, masks, layers))
            return true;
    return false;
}

/* ---------------------------------------------------------------------------------------------- one layout at a time */

/* Every layer drops the tensors in `mask`. */
static int try_uniform(struct search *search, const struct layout *layout, uint32_t mask, bool *fits)
{
    const struct model *model = search->request->model;
    uint32_t *masks = host_alloc((size_t)model->layers * sizeof *masks);
    for (int64_t layer = 0; layer < model->layers; layer++)
        masks[layer] = mask;
    struct program *program;
    int status = program_create(model, layout, masks, &program, search->err);
    if (!status) {
        *fits = file_program(search, program);
        search->count.weighed++;
        search->count.feasible += *fits;
        program_free(program);
    }
    free(masks);
    return status;
}

/* What tensors may take. */
static int64_t room_for_tensors(const struct search *search, int64_t ranks)
{
    const struct rank_device *device = &search->request->cluster->device;
    return device->capacity_bytes - prediction_runtime(device, ranks).bytes;
}

static int create_plain(struct search *search, const struct layout *layout, struct program **plain)
{
    if (program_create(search->request->model, layout, NULL, plain, search->err))
        return -1;
    if (!search->sets.count)
        layer_sets_create(*plain, &search->sets);
    return 0;
}

/* Files `program` unless a uniform set was the same, and frees it. */
static void file_found(struct search *search, struct program *program)
{
    if (!is_filed(search->result, &program->layout, program->recompute, program->model.layers))
        file_program(search, program);
    program_free(program);
}

static int try_arrangements(struct search *search, const struct layout *layout, bool *fits)
{
    struct program *plain, *found;
    if (create_plain(search, layout, &plain))
        return -1;
    int status = arrangement_fit(plain, &search->sets, search->request->speed,
                                 room_for_tensors(search, layout->dp), &found, &search->count, search->err);
    program_free(plain);
    *fits = !status && found;
    if (*fits)
        file_found(search, found);
    return status;
}

/* Recomputation never makes a step faster: where none is needed, there is nothing to find. */
static int search_layout(struct search *search, const struct layout *layout, bool *fits)
{
    const struct model *model = search->request->model;
    bool fits_plain, fits_selective, fits_full;
    if (try_uniform(search, layout, 0, &fits_plain) ||
        try_uniform(search, layout, recompute_selective(model), &fits_selective) ||
        try_uniform(search, layout, recompute_full(model), &fits_full))
        return -1;
    *fits = fits_plain;
    return fits_plain ? 0 : try_arrangements(search, layout, fits);
}

/* ---------------------------------------------------------------------------------------------------------- layouts */

static bool wanted(int64_t asked, int64_t value)
{
    return !asked || asked == value;
}

/* Where one micro-batch does not fit, no larger one does. */
static int search_micro_batches(struct search *search, struct layout layout)
{
    const struct search_request *request = search->request;
    int64_t sequences = request->global_batch / layout.dp;
    int64_t most = min_i64(sequences, LAYOUT_MICRO_BATCH_MAX);
    bool fits = true;
    for (int64_t micro_batch = 1; fits && micro_batch <= most; micro_batch++) {
        if (sequences % micro_batch || !wanted(request->micro_batch, micro_batch))
            continue;
        layout.micro_batch = micro_batch;
        if (search_layout(search, &layout, &fits))
            return -1;
    }
    return 0;
}

static int search_layouts(struct search *search, struct layout layout)
{
    const struct search_request *request = search->request;
    int64_t ranks = min_i64(cluster_ranks(request->cluster), LAYOUT_DP_MAX);
    int64_t most = min_i64(ranks, request->global_batch);
    for (int64_t dp = 1; dp <= most; dp++) {
        if (request->global_batch % dp || !wanted(request->dp, dp))
            continue;
        layout.dp = dp;
        if (search_micro_batches(search, layout))
            return -1;
    }
    return 0;
}

/* The least that any layout needs is with the smallest micro-batch; ranks make no difference to it. */
static int find_nearest(struct search *search, struct layout layout)
{
    const struct search_request *request = search->request;
    layout.dp = request->dp ? request->dp : 1;
    layout.micro_batch = request->micro_batch ? request->micro_batch : 1;
    struct program *plain, *least;
    if (create_plain(search, &layout, &plain))
        return -1;
    int status = arrangement_least(plain, &search->sets, request->speed, &least, search->err);
    program_free(plain);
    if (!status)
        file_found(search, least);
    return status;
}

static int by_speed(const void *a, const void *b)
{
    const struct search_row *x = a, *y = b;
    if (x->time.total != y->time.total)
        return x->time.total < y->time.total ? -1 : 1;
    if (x->arena_bytes != y->arena_bytes)
        return x->arena_bytes < y->arena_bytes ? -1 : 1;
    return (x->layout.dp > y->layout.dp) - (x->layout.dp < y->layout.dp);
}

static int by_need(const void *a, const void *b)
{
    const struct search_row *x = a, *y = b;
    if (x->needed_bytes != y->needed_bytes)
        return x->needed_bytes < y->needed_bytes ? -1 : 1;
    return by_speed(a, b);
}

static void sort_rows(struct search_row *rows, int64_t count, int (*order)(const void *, const void *))
{
    if (count)
        qsort(rows, (size_t)count, sizeof *rows, order);
}

static int check_request(const struct search_request *request, struct layout *layout, struct error *err)
{
    int64_t ranks = cluster_ranks(request->cluster), dp = request->dp ? request->dp : 1;
    if (request->global_batch < 1)
        return error_set(err, "--global-batch %lld: a step needs at least 1 sequence",
                         (long long)request->global_batch);
    if (dp > ranks)
        return error_set(err, "--dp %lld: the cluster has %lld ranks; use at most that many", (long long)dp,
                         (long long)ranks);
    *layout = (struct layout){.dp = dp,
                              .micro_batch = request->micro_batch ? request->micro_batch : 1,
                              .global_batch = request->global_batch,
                              .seq_len = request->seq_len,
                              .precision = request->precision};
    return layout_complete(layout, request->model, err);
}

static void conclude(struct search *search)
{
    struct search_result *result = search->result;
    sort_rows(result->alternatives, result->alternative_count, by_speed);
    sort_rows(result->rejected, result->rejected_count, by_need);
    result->candidates = search->count.weighed;
    result->feasible = search->count.feasible;
    if (!result->alternative_count) {
        result->enough_bytes = result->rejected[0].needed_bytes;
        result->short_bytes = result->enough_bytes - search->request->cluster->device.capacity_bytes;
    }
}

int search_run(const struct search_request *request, struct search_result *out, struct error *err)
{
    struct layout layout;
    if (check_request(request, &layout, err))
        return -1;
    int64_t begin_ns = clock_ns();
    *out = (struct search_result){.arena = arena_create()};
    struct search search = {.request = request, .result = out, .err = err};
    int status = search_layouts(&search, layout);
    if (!status && !out->alternative_count)
        status = find_nearest(&search, layout);
    layer_sets_clear(&search.sets);
    if (status) {
        search_clear(out);
        return -1;
    }
    conclude(&search);
    out->search_seconds = (double)(clock_ns() - begin_ns) * 1e-9;
    return 0;
}

void search_clear(struct search_result *result)
{
    arena_free(result->arena);
    *result = (struct search_result){0};
}

void search_explain(const struct search_request *request, const struct search_result *result,
                    struct text *out)
{
    char capacity[UNITS_TEXT], missing[UNITS_TEXT], enough[UNITS_TEXT];
    if (result->alternative_count)
        return;
    const struct search_row *least = &result->rejected[0];
    text_printf(
        out,
        "no plan for %s in %s per rank: the least that a rank needs is %s, %s more, with micro-batches of "
        "%lld and recomputation; use devices with more memory, or a smaller model",
        request->model->name, units_format_bytes(request->cluster->device.capacity_bytes, capacity),
        units_format_bytes(result->enough_bytes, enough), units_format_bytes(result->short_bytes, missing),
        (long long)least->layout.micro_batch);
}
