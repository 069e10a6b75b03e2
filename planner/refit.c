#include "planner/refit.h"

#include "base/arena.h"
#include "base/checked.h"
#include "planner/stage_choice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct refitting {
    const struct refit_question *question;
    int64_t *chunk_layers, *first_layers; /* of each chunk */
    struct costs_cache *costs;            /* at the speed of the stage in progress */
    const struct machine_speed *speed;
    struct costs *priced;
    struct stages stages;
    int64_t stage;
    uint32_t *masks;
    struct error *err;
};

static int64_t chunk_of(const struct refitting *r, int64_t number)
{
    return number * r->question->layout->pp + r->stage;
}

static void open_layers(struct refitting *r)
{
    const struct layout *l = r->question->layout;
    int64_t chunks = layout_chunks(l), layer = 0;
    r->chunk_layers = host_alloc((size_t)chunks * sizeof *r->chunk_layers);
    r->first_layers = host_alloc((size_t)chunks * sizeof *r->first_layers);
    if (r->question->chunk_layers)
        memcpy(r->chunk_layers, r->question->chunk_layers, (size_t)chunks * sizeof *r->chunk_layers);
    else
        layout_spread_layers(l, r->question->model->layers, r->chunk_layers);
    for (int64_t i = 0; i < chunks; layer += r->chunk_layers[i++])
        r->first_layers[i] = layer;
}

static void close_all(struct refitting *r)
{
    free(r->chunk_layers);
    free(r->first_layers);
    costs_close(r->costs);
}

/* The form of the stage, where its larger chunks are the first ones or the last ones; false: it is another. */
static bool has_form(const struct refitting *r, struct stage_form *out)
{
    const struct layout *l = r->question->layout;
    const struct stage *stage = &r->stages.list[r->stage];
    struct stage_split split = {.end =
                                    stage->apart ? r->chunk_layers[r->stage ? layout_chunks(l) - 1 : 0] : -1};
    for (int64_t i = 0; i < l->virtual_stages; i++)
        split.layers += r->chunk_layers[chunk_of(r, i)];
    *out = stages_form(&r->stages, r->stage, split);
    bool same = out->heights[CHUNK_EVEN] > 0;
    if (stages_are_alike(r->question->model))
        same = !out->counts[CHUNK_LARGER] && (!stage->apart || split.end == out->heights[CHUNK_EVEN]);
    for (int64_t i = 0; i < l->virtual_stages; i++)
        same = same &&
               r->chunk_layers[chunk_of(r, i)] == out->heights[stages_kind(&r->stages, r->stage, out, i)];
    return same;
}

/* False: its chunks share layers in another way than stages.h has one for. */
static bool find_form(struct refitting *r, struct stage_form *out)
{
    r->stages.larger = LARGER_LAST;
    if (has_form(r, out))
        return true;
    r->stages.larger = LARGER_FIRST;
    return has_form(r, out);
}

static void set_choice(struct refitting *r, const struct stage_choice *choice)
{
    for (int64_t i = 0; i < r->question->layout->virtual_stages; i++) {
        int64_t chunk = chunk_of(r, i);
        enum chunk_kind kind = stages_kind(&r->stages, r->stage, &choice->form, i);
        for (int64_t k = 0; k < r->chunk_layers[chunk]; k++)
            r->masks[r->first_layers[chunk] + k] =
                r->priced->options[stage_choice_option(choice, kind, k)].mask;
    }
}

/* One option in all layers. */
static void set_uniform(struct refitting *r, int option)
{
    for (int64_t i = 0; i < r->question->layout->virtual_stages; i++) {
        int64_t chunk = chunk_of(r, i);
        for (int64_t k = 0; k < r->chunk_layers[chunk]; k++)
            r->masks[r->first_layers[chunk] + k] = r->priced->options[option].mask;
    }
}

static int build(const struct refitting *r, int64_t *arena_bytes)
{
    const struct refit_question *q = r->question;
    struct program *program;
    struct program_spec spec = {q->model, q->layout, r->masks, r->chunk_layers, r->stage};
    if (program_create_stage(&spec, &program, r->err))
        return -1;
    *arena_bytes = program->arena_bytes;
    program_free(program);
    return 0;
}

/* The arena has a little more than the peak, which only placing tells: then the peak must be lower. *seconds: of recomputation in a
 * micro-batch; infinite: nothing was found. */
static int fit_by_layer(struct refitting *r, const struct stage_form *form, double *seconds)
{
    enum { MOST_ATTEMPTS = 64, SMALL_STEPS = 24 };
    int64_t room = r->question->rooms[r->stage], peak_room = room;
    *seconds = INFINITY;
    for (int attempt = 0; attempt < MOST_ATTEMPTS && isinf(*seconds); attempt++) {
        struct stage_choice choice;
        int64_t arena_bytes;
        if (!stage_choice_find(&r->stages, r->stage, form, peak_room, &choice))
            return 0;
        set_choice(r, &choice);
        double own_s = choice.total_s;
        peak_room = choice.peak_bytes;
        stage_choice_clear(&choice);
        if (build(r, &arena_bytes))
            return -1;
        *seconds = arena_bytes <= room ? own_s : INFINITY;
        peak_room -= attempt < SMALL_STEPS ? 1 : arena_bytes - room;
    }
    return 0;
}

/* The peak with one option in all layers; 0 where the stage's form is not known, which any arena exceeds. */
static int64_t uniform_peak(const struct refitting *r, const struct stage_form *form, int option)
{
    int64_t heights = 0;
    if (!form)
        return 0;
    for (int kind = 0; kind < form->kinds; kind++)
        heights = max_i64(heights, form->heights[kind]);
    struct stage_choice choice = {.form = *form, .odd = option};
    choice.options = host_alloc((size_t)(heights + 1) * sizeof *choice.options);
    for (int64_t i = 0; i <= heights; i++)
        choice.options[i] = option;
    int64_t peak_bytes = stage_choice_peak(&r->stages, r->stage, &choice, NULL);
    free(choice.options);
    return peak_bytes;
}

/* The best so far of one option in all layers. */
struct uniform {
    int option;          /* which fits; -1: none does */
    int least;           /* whose arena takes least */
    int64_t least_bytes; /* how much */
};

static int try_uniform(struct refitting *r, int option, struct uniform *u)
{
    int64_t arena_bytes;
    set_uniform(r, option);
    if (build(r, &arena_bytes))
        return -1;
    if (arena_bytes <= r->question->rooms[r->stage])
        u->option = option;
    u->least = arena_bytes < u->least_bytes ? option : u->least;
    u->least_bytes = min_i64(arena_bytes, u->least_bytes);
    return 0;
}

/* The first that fits of those that take less than `most_s` for a layer, the fastest first. An arena takes its peak at least, so
 * that where that is known (`form`; or NULL) few are built: the one with the lowest first, where none has room. */
static int find_uniform(struct refitting *r, const struct stage_form *form, double most_s, struct uniform *u)
{
    int lowest = -1, count = 0;
    int64_t room = r->question->rooms[r->stage], lowest_bytes = INT64_MAX;
    *u = (struct uniform){-1, 0, INT64_MAX};
    while (count < r->priced->option_count && r->priced->options[count].seconds < most_s)
        count++;
    int64_t *peaks = host_alloc((size_t)(count + 1) * sizeof *peaks);
    for (int i = 0; i < count; i++) {
        peaks[i] = uniform_peak(r, form, i);
        lowest = peaks[i] < lowest_bytes ? i : lowest;
        lowest_bytes = min_i64(lowest_bytes, peaks[i]);
    }
    int status = lowest_bytes > room && lowest >= 0 ? try_uniform(r, lowest, u) : 0;
    for (int i = 0; i < count && u->option < 0 && !status; i++)
        if (i != u->least || u->least_bytes == INT64_MAX)
            status = peaks[i] <= room || peaks[i] < u->least_bytes ? try_uniform(r, i, u) : 0;
    free(peaks);
    return status;
}

/* Masks of the stage's layers, to be put back. */
static void copy_masks(const struct refitting *r, uint32_t *masks)
{
    memcpy(masks, r->masks, (size_t)r->question->model->layers * sizeof *masks);
}

static int fit_stage(struct refitting *r, bool *fits, int64_t *least_bytes)
{
    size_t layers = (size_t)r->question->model->layers;
    uint32_t *by_layer = host_alloc(layers * sizeof *by_layer);
    double seconds = INFINITY;
    struct uniform uniform;
    struct stage_form form;
    bool known = find_form(r, &form);
    int status = known ? fit_by_layer(r, &form, &seconds) : 0;
    copy_masks(r, by_layer);
    if (!status)
        status = find_uniform(r, known ? &form : NULL, seconds / (double)form.split.layers, &uniform);
    if (!status && uniform.option < 0 && isinf(seconds))
        set_uniform(r, uniform.least);
    else if (!status && uniform.option >= 0)
        set_uniform(r, uniform.option);
    else if (!status)
        memcpy(r->masks, by_layer, layers * sizeof *by_layer);
    *fits = !status && (uniform.option >= 0 || !isinf(seconds));
    *least_bytes = status ? 0 : uniform.least_bytes;
    free(by_layer);
    return status;
}

static void open_stage(struct refitting *r, int64_t stage)
{
    const struct refit_question *q = r->question;
    const struct machine_speed *speed = machine_speed_of_stage(q->speed, stage);
    r->stage = stage;
    if (r->speed != speed) {
        costs_close(r->costs);
        r->costs = costs_open(q->model, speed, NULL, 0);
        r->speed = speed;
        r->priced = costs_find(r->costs, q->layout);
        costs_open_options(r->costs, q->layout, r->priced);
    }
    stages_open(q->model, q->layout, &(struct stage_ground){q->layout->pp, speed, r->priced, 0}, LARGER_NONE,
                &r->stages);
}

int refit_masks(const struct refit_question *question, uint32_t *masks, int64_t *short_stage,
                int64_t *least_bytes, struct error *err)
{
    struct refitting r = {.question = question, .masks = masks, .err = err};
    int status = 0;
    *short_stage = -1;
    open_layers(&r);
    for (int64_t i = 0; i < question->layout->pp && !status && *short_stage < 0; i++) {
        bool fits = false;
        open_stage(&r, i);
        status = fit_stage(&r, &fits, least_bytes);
        if (!status && !fits)
            *short_stage = i;
        stages_close(&r.stages);
    }
    close_all(&r);
    return status;
}

int refit_least(const struct refit_question *question, uint32_t *masks, int64_t *least_bytes,
                struct error *err)
{
    struct refit_question nothing_fits = *question;
    int64_t *none = host_alloc((size_t)question->layout->pp * sizeof *none);
    struct refitting r = {.question = &nothing_fits, .masks = masks, .err = err};
    int status = 0;
    nothing_fits.rooms = none;
    *least_bytes = 0;
    open_layers(&r);
    for (int64_t i = 0; i < question->layout->pp && !status; i++) {
        struct uniform uniform;
        struct stage_form form;
        open_stage(&r, i);
        status = find_uniform(&r, find_form(&r, &form) ? &form : NULL, INFINITY, &uniform);
        if (!status)
            set_uniform(&r, uniform.least);
        stages_close(&r.stages);
        if (!status && uniform.least_bytes > *least_bytes)
            *least_bytes = uniform.least_bytes;
    }
    close_all(&r);
    free(none);
    return status;
}
