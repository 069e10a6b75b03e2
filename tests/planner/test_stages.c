/* What the search knows of a stage without building it, against stages that were built. */
#include "tests/planner/planner_sample.h"
#include "tests/test.h"

#include "base/arena.h"
#include "model/recompute.h"
#include "planner/stage_choice.h"
#include "planner/timeline.h"
#include "tests/planner/splits.h"

#include <stdlib.h>
#include <string.h>

static const char *const families[] = {"gpt2-tiny", "llama-tiny", "block-tiny"};

/* Up to 3 stages of up to 3 layers a chunk. */
struct sample {
    struct model model;
    struct machine_speed speed;
    struct layout layout;
    int64_t *chunk_layers;
    struct costs_cache *cache;
    struct costs *costs;
    struct stages stages;
    struct stage_form forms[4];
    enum split_kind kind;
};

static struct layout random_layout(uint32_t *state)
{
    static const struct layout layouts[] = {
        {.pp = 1},
        {.pp = 2},
        {.pp = 3, .schedule = SCHEDULE_GPIPE},
        {.pp = 2, .virtual_stages = 2},
        {.pp = 3, .virtual_stages = 3},
        {.pp = 3, .schedule = SCHEDULE_ZB_H1},
    };
    struct layout layout = layouts[sample_below(state, 6)];
    layout.tp = 1 + sample_below(state, 2);
    layout.sequence_parallel = layout.tp > 1 && sample_below(state, 2);
    layout.dp = 1 + sample_below(state, 3);
    layout.zero = (int)sample_below(state, 2);
    layout.micro_batch = 1 + sample_below(state, 2);
    layout.global_batch = layout.dp * layout.micro_batch * 6;
    layout.seq_len = 16;
    layout.precision = sample_below(state, 2) ? PRECISION_BF16 : PRECISION_FP32;
    layout.bucket_bytes = 1000 << sample_below(state, 12);
    return layout;
}

/* Any of the ways in which chunks of a stage may share some layers; returns how many. */
static int64_t share_layers(const struct model *model, uint32_t *state, struct sample *s, int64_t stage)
{
    int64_t v = s->layout.virtual_stages, layers = v == 1 ? 1 + sample_below(state, 3) : 0;
    int ways = 0, wanted;
    struct stage_splits splits;
    while (!ways) {
        if (v > 1)
            layers = sample_below(state, 2 * (uint32_t)v);
        splits_begin(&splits, model, &s->layout, s->kind, stage, layers);
        while (splits_next(&splits, s->chunk_layers))
            ways++;
    }
    splits_begin(&splits, model, &s->layout, s->kind, stage, layers);
    for (wanted = (int)sample_below(state, (uint32_t)ways); wanted >= 0; wanted--)
        splits_next(&splits, s->chunk_layers);
    return layers;
}

static void find_forms(struct sample *s)
{
    const struct layout *l = &s->layout;
    for (int64_t i = 0; i < l->pp; i++) {
        struct stage_split split = {.end = -1};
        for (int64_t chunk = i; chunk < layout_chunks(l); chunk += l->pp)
            split.layers += s->chunk_layers[chunk];
        if (s->stages.list[i].apart)
            split.end = s->chunk_layers[i ? layout_chunks(l) - 1 : 0];
        s->forms[i] = stages_form(&s->stages, i, split);
    }
}

static void open_sample(const char *family, uint32_t *state, struct sample *s)
{
    struct error err = {0};
    *s = (struct sample){.layout = random_layout(state)};
    s->layout.virtual_stages = s->layout.virtual_stages ? s->layout.virtual_stages : 1;
    s->kind = (enum split_kind)sample_below(state, SPLIT_KINDS);
    int64_t chunks = layout_chunks(&s->layout), layers = 0;
    s->chunk_layers = host_alloc((size_t)chunks * sizeof *s->chunk_layers);
    s->model = sample_model(family, 1);
    for (int64_t i = 0; i < s->layout.pp; i++)
        layers += share_layers(&s->model, state, s, i);
    s->model = sample_model(family, layers);
    ASSERT_OK(layout_complete(&s->layout, &s->model, &err));
    machine_speed_from_cpuinfo("", 2, &s->speed);
    s->speed.overlap = sample_below(state, 2);
    s->cache = costs_open(&s->model, &s->speed, NULL, 0);
    s->costs = costs_find(s->cache, &s->layout);
    costs_open_options(s->cache, &s->layout, s->costs);
    stages_open(&s->model, &s->layout, &(struct stage_ground){s->layout.pp, &s->speed, s->costs, 0},
                s->kind == SPLITS_FIRST ? LARGER_FIRST : LARGER_LAST, &s->stages);
    find_forms(s);
}

static void close_sample(struct sample *s)
{
    stages_close(&s->stages);
    costs_close(s->cache);
    free(s->chunk_layers);
}

/* The options of a stage: those of its even chunks from the bottom up, and the odd one. */
struct chosen {
    int options[4], odd;
};

static int option_of(const struct sample *s, const struct chosen *chosen, int64_t chunk, int64_t layer)
{
    int64_t height = splits_height(&s->layout, s->chunk_layers, chunk, layer);
    return height < 0 ? chosen->odd : chosen->options[height];
}

static void choose_randomly(const struct sample *s, uint32_t *state, struct chosen *out)
{
    for (int k = 0; k < 5; k++)
        *(k < 4 ? &out->options[k] : &out->odd) = (int)sample_below(state, (uint32_t)s->costs->option_count);
}

static struct stage_choice choice_of(const struct sample *s, int64_t stage, struct chosen *chosen)
{
    return (struct stage_choice){.form = s->forms[stage], .options = chosen->options, .odd = chosen->odd};
}

static struct pipeline *build(const struct sample *s, const struct chosen *chosen)
{
    struct error err = {0};
    struct pipeline *pipeline;
    uint32_t masks[64];
    int64_t layer = 0;
    for (int64_t chunk = 0; chunk < layout_chunks(&s->layout); chunk++)
        for (int64_t i = 0; i < s->chunk_layers[chunk]; i++)
            masks[layer++] = s->costs->options[option_of(s, &chosen[chunk % s->layout.pp], chunk, i)].mask;
    struct program_spec spec = {
        .model = &s->model, .layout = &s->layout, .recompute = masks, .chunk_layers = s->chunk_layers};
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    return pipeline;
}

/* Recomputation of a micro-batch in a chunk. */
static double chunk_recompute(const struct sample *s, const struct chosen *chosen, int64_t chunk)
{
    double seconds = 0;
    for (int64_t k = 0; k < s->chunk_layers[chunk]; k++) {
        const struct cost_option *o = &s->costs->options[option_of(s, chosen, chunk, k)];
        seconds += s->costs->first_differs && chunk == 0 && k == 0 ? o->first_seconds : o->seconds;
    }
    return seconds;
}

/* Seconds of the step, from the stages' own figures. */
static double step_seconds(const struct sample *s, const struct chosen *chosen)
{
    const struct layout *l = &s->layout;
    struct error err = {0};
    double forward[16], input[16], weight[16], ends[8], alone = 0;
    struct stage_tail tails[8];
    for (int64_t i = 0; i < l->pp; i++) {
        double recompute[CHUNK_KINDS] = {0};
        for (int64_t c = 0; c < l->virtual_stages; c++) {
            int64_t chunk = c * l->pp + i;
            enum chunk_kind kind = stages_kind(&s->stages, i, &s->forms[i], c);
            ASSERT_INT(s->forms[i].heights[kind], s->chunk_layers[chunk]);
            recompute[kind] = chunk_recompute(s, &chosen[i], chunk);
            struct stage_passes p = stages_passes(&s->stages, i, &s->forms[i], (int)kind, recompute[kind]);
            forward[chunk] = p.forward_s;
            input[chunk] = p.input_s;
            weight[chunk] = p.weight_s;
            alone += p.forward_s + p.input_s + p.weight_s;
        }
        struct stage_sketch sketch;
        stages_sketch(&s->stages, i, &s->forms[i], &sketch);
        tails[i] = stage_sketch_tail(&sketch, recompute);
        stage_sketch_clear(&sketch);
    }
    ends[0] = alone * (double)layout_micro_batches(l);
    struct schedule_times times = {forward, input, weight, 0};
    if (l->pp > 1) {
        struct timeline *timeline;
        struct schedule_shape shape = layout_schedule(l);
        times.message_s = time_model_message(l, s->costs->message_bytes, &s->speed);
        ASSERT_OK(timeline_create(&shape, &timeline, &err));
        timeline_run(timeline, &times, ends);
        timeline_free(timeline);
    }
    struct time_question question = {l, &times, machine_speed_stages_at_once(&s->speed, l)};
    return time_model_together(&question, ends, tails, NULL);
}

TEST_LOOP(stages_are_true, "bytes and seconds of stages that are not built are those of stages that are", 3)
{
    uint32_t state = 11 + (uint32_t)_i;
    for (int try = 0; try < 150; try++) {
        struct error err = {0};
        struct step_time time;
        struct sample s;
        struct chosen chosen[4];
        open_sample(families[_i], &state, &s);
        for (int i = 0; i < 4; i++)
            choose_randomly(&s, &state, &chosen[i]);
        struct pipeline *pipeline = build(&s, chosen);
        for (int i = 0; i < pipeline->count; i++) {
            struct stage_choice choice = choice_of(&s, i, &chosen[i]);
            ASSERT_INT(stage_choice_peak(&s.stages, i, &choice, NULL), pipeline->stages[i]->peak_bytes);
        }
        ASSERT_OK(time_model_pipeline(pipeline, &s.speed, NULL, &time, &err));
        double seconds = step_seconds(&s, chosen);
        /* Seconds of a layer are sums in another order. */
        ASSERT_NEAR(seconds, time.total, time.total * 1e-11);
        pipeline_free(pipeline);
        close_sample(&s);
    }
}

static double stage_recompute(const struct sample *s, int64_t stage, const struct chosen *chosen)
{
    double seconds = 0;
    for (int64_t chunk = stage; chunk < layout_chunks(&s->layout); chunk += s->layout.pp)
        seconds += chunk_recompute(s, chosen, chunk);
    return seconds;
}

static bool is_corner(const struct sample *s, int option)
{
    double saved[64], seconds[64];
    for (int i = 0; i < s->costs->option_count; i++) {
        saved[i] = (double)s->costs->options[i].pile.saved;
        seconds[i] = s->costs->options[i].seconds;
    }
    return splits_is_corner(saved, seconds, s->costs->option_count, option);
}

/* The fastest of all options for all layers, in every order, whose peak has room; < 0: none. */
static double best_of_all(const struct sample *s, int64_t stage, int64_t room)
{
    int64_t layers = s->forms[stage].heights[CHUNK_EVEN], count = s->costs->option_count;
    int64_t odd_count = s->layout.virtual_stages > 1 ? count : 1, all = odd_count;
    double best = -1;
    for (int64_t i = 0; i < layers; i++)
        all *= count;
    for (int64_t number = 0; number < all; number++) {
        struct chosen chosen = {.odd = (int)(number % odd_count)};
        for (int64_t i = 0, rest = number / odd_count; i < layers; i++, rest /= count)
            chosen.options[i] = (int)(rest % count);
        struct stage_choice choice = choice_of(s, stage, &chosen);
        double seconds = stage_recompute(s, stage, &chosen);
        if (odd_count > 1 && !is_corner(s, chosen.odd))
            continue;
        if ((best < 0 || seconds < best) && stage_choice_peak(&s->stages, stage, &choice, NULL) <= room)
            best = seconds;
    }
    return best;
}

TEST_LOOP(stages_choose_best,
          "no sets of a stage's layers, in any order, fit with less recomputation than those chosen", 3)
{
    uint32_t state = 23 + (uint32_t)_i;
    for (int try = 0; try < 40; try++) {
        struct sample s;
        open_sample(families[_i], &state, &s);
        int64_t stage = sample_below(&state, (uint32_t)s.layout.pp);
        struct stage_choice choice;
        struct chosen none = {{0}, 0};
        choice = choice_of(&s, stage, &none);
        int64_t most = stage_choice_peak(&s.stages, stage, &choice, NULL),
                states = s.stages.list[stage].state_bytes +
                         s.forms[stage].split.layers * s.stages.list[stage].layer_state_bytes,
                room = states +
                       (int64_t)((double)(most - states) * (0.2 + 0.8 * sample_below(&state, 1000) / 1e3));
        bool found = stage_choice_find(&s.stages, stage, &s.forms[stage], room, &choice);
        double best = best_of_all(&s, stage, room);
        ASSERT_MSG(found == (best >= 0), "try %d: found %d, but %g s are possible", try, found, best);
        if (found) {
            struct chosen chosen = {.odd = choice.odd};
            memcpy(chosen.options, choice.options,
                   (size_t)choice.form.heights[CHUNK_EVEN] * sizeof *chosen.options);
            ASSERT_MSG(choice.total_s <= best * (1 + 1e-9),
                       "try %d (%s, %d chunks of %d layers): %.9g s, not %.9g s", try,
                       schedule_name(s.layout.schedule), (int)s.layout.virtual_stages,
                       (int)s.forms[stage].split.layers, choice.total_s, best);
            ASSERT_NEAR(stage_recompute(&s, stage, &chosen), choice.total_s, choice.total_s * 1e-9);
            ASSERT_INT(stage_choice_peak(&s.stages, stage, &choice, NULL), choice.peak_bytes);
            ASSERT(choice.peak_bytes <= room);
        }
        stage_choice_clear(&choice);
        close_sample(&s);
    }
}
