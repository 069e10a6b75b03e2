/* What the search knows of a stage without building it, against stages that were built. */
#include "tests/planner/planner_sample.h"
#include "tests/test.h"

#include "base/arena.h"
#include "model/recompute.h"
#include "planner/stage_choice.h"
#include "planner/timeline.h"

#include <stdlib.h>

static const char *const families[] = {"gpt2-tiny", "llama-tiny", "block-tiny"};

static uint32_t random_below(uint32_t *state, uint32_t bound)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % bound;
}

/* Up to 3 stages of up to 3 layers a chunk. */
struct sample {
    struct model model;
    struct machine_speed speed;
    struct layout layout;
    int64_t *chunk_layers;
    struct costs_cache *cache;
    struct costs *costs;
    struct stages stages;
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
    struct layout layout = layouts[random_below(state, 6)];
    layout.tp = 1 + random_below(state, 2);
    layout.sequence_parallel = layout.tp > 1 && random_below(state, 2);
    layout.dp = 1 + random_below(state, 3);
    layout.zero = (int)random_below(state, 2);
    layout.micro_batch = 1 + random_below(state, 2);
    layout.global_batch = layout.dp * layout.micro_batch * 6;
    layout.seq_len = 16;
    layout.precision = random_below(state, 2) ? PRECISION_BF16 : PRECISION_FP32;
    layout.bucket_bytes = 1000 << random_below(state, 12);
    return layout;
}

/* As many layers in every chunk of a stage. */
static void open_sample(const char *family, uint32_t *state, struct sample *s)
{
    struct error err = {0};
    *s = (struct sample){.layout = random_layout(state)};
    int64_t chunks = s->layout.pp * (s->layout.virtual_stages ? s->layout.virtual_stages : 1), layers = 0;
    s->chunk_layers = host_alloc((size_t)chunks * sizeof *s->chunk_layers);
    for (int64_t i = 0; i < chunks; i++) {
        s->chunk_layers[i] =
            i < s->layout.pp ? 1 + random_below(state, 3) : s->chunk_layers[i - s->layout.pp];
        layers += s->chunk_layers[i];
    }
    s->model = sample_model(family, layers);
    ASSERT_OK(layout_complete(&s->layout, &s->model, &err));
    machine_speed_from_cpuinfo("", 2, &s->speed);
    s->speed.overlap = random_below(state, 2);
    s->cache = costs_open(&s->model, &s->speed, NULL, 0);
    s->costs = costs_find(s->cache, &s->layout);
    costs_open_options(s->cache, &s->layout, s->costs);
    stages_open(&s->model, &s->layout, &(struct stage_ground){s->layout.pp, &s->speed, s->costs, 0},
                &s->stages);
}

static void close_sample(struct sample *s)
{
    stages_close(&s->stages);
    costs_close(s->cache);
    free(s->chunk_layers);
}

/* Options by layer of the model, from those of each stage's chunks. */
static struct pipeline *build(const struct sample *s, int options[8][4])
{
    struct error err = {0};
    struct pipeline *pipeline;
    uint32_t masks[64];
    int64_t layer = 0;
    for (int64_t chunk = 0; chunk < layout_chunks(&s->layout); chunk++)
        for (int64_t i = 0; i < s->chunk_layers[chunk]; i++)
            masks[layer++] = s->costs->options[options[chunk % s->layout.pp][i]].mask;
    struct program_spec spec = {
        .model = &s->model, .layout = &s->layout, .recompute = masks, .chunk_layers = s->chunk_layers};
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    return pipeline;
}

/* Seconds of the step, from the stages' own figures. */
static double step_seconds(const struct sample *s, int options[8][4])
{
    const struct layout *l = &s->layout;
    struct error err = {0};
    double forward[16], input[16], weight[16], ends[8], alone = 0;
    struct stage_tail tails[8];
    for (int64_t i = 0; i < l->pp; i++) {
        double recompute[2] = {0, 0};
        bool first = i == 0 && s->costs->first_differs;
        for (int kind = 0; kind < s->stages.list[i].kinds; kind++)
            for (int64_t k = 0; k < s->chunk_layers[i]; k++) {
                const struct cost_option *o = &s->costs->options[options[i][k]];
                bool lowest = first && k == 0 && s->stages.list[i].bottom[kind] == COST_EMBED;
                recompute[kind] += lowest ? o->first_seconds : o->seconds;
            }
        for (int64_t c = 0; c < l->virtual_stages; c++) {
            int kind = stages_kind(&s->stages, i, c);
            struct stage_passes p = stages_passes(&s->stages, i, s->chunk_layers[i], kind, recompute[kind]);
            forward[c * l->pp + i] = p.forward_s;
            input[c * l->pp + i] = p.input_s;
            weight[c * l->pp + i] = p.weight_s;
            alone += p.forward_s + p.input_s + p.weight_s;
        }
        struct stage_sketch sketch;
        stages_sketch(&s->stages, i, s->chunk_layers[i], &sketch);
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
        open_sample(families[_i], &state, &s);
        int options[8][4];
        for (int i = 0; i < 32; i++)
            options[i / 4][i % 4] = (int)random_below(&state, (uint32_t)s.costs->option_count);
        struct pipeline *pipeline = build(&s, options);
        for (int i = 0; i < pipeline->count; i++)
            ASSERT_INT(stage_choice_peak(&s.stages, i, s.chunk_layers[i], options[i], NULL),
                       pipeline->stages[i]->peak_bytes);
        ASSERT_OK(time_model_pipeline(pipeline, &s.speed, NULL, &time, &err));
        double seconds = step_seconds(&s, options);
        /* Seconds of a layer are sums in another order. */
        ASSERT_NEAR(seconds, time.total, time.total * 1e-11);
        pipeline_free(pipeline);
        close_sample(&s);
    }
}

/* The fastest of all options for all layers, in every order, whose peak has room; < 0: none. */
static double best_of_all(const struct sample *s, int64_t stage, int64_t room)
{
    int64_t layers = s->chunk_layers[stage], count = s->costs->option_count, all = 1;
    double best = -1;
    for (int64_t i = 0; i < layers; i++)
        all *= count;
    for (int64_t number = 0; number < all; number++) {
        int options[4];
        double seconds = 0;
        for (int64_t i = 0, rest = number; i < layers; i++, rest /= count) {
            const struct cost_option *o = &s->costs->options[options[i] = (int)(rest % count)];
            seconds += i == 0 && stage == 0 && s->costs->first_differs ? o->first_seconds : o->seconds;
        }
        if ((best < 0 || seconds < best) &&
            stage_choice_peak(&s->stages, stage, layers, options, NULL) <= room)
            best = seconds;
    }
    return best;
}

TEST_LOOP(stages_choose_best,
          "no sets of a stage's layers, in any order, fit with less recomputation than those chosen", 3)
{
    uint32_t state = 23 + (uint32_t)_i;
    for (int try = 0; try < 80; try++) {
        struct sample s;
        open_sample(families[_i], &state, &s);
        int64_t stage = random_below(&state, (uint32_t)s.layout.pp);
        struct stage_choice choice;
        int none[4] = {0}, kind = s.stages.list[stage].kinds - 1;
        int64_t most = stage_choice_peak(&s.stages, stage, s.chunk_layers[stage], none, NULL),
                states = s.stages.list[stage].state_bytes +
                         s.chunk_layers[stage] * s.stages.list[stage].layer_state_bytes,
                room = states +
                       (int64_t)((double)(most - states) * (0.2 + 0.8 * random_below(&state, 1000) / 1e3));
        bool found = stage_choice_find(&s.stages, stage, s.chunk_layers[stage], room, &choice);
        double best = best_of_all(&s, stage, room);
        ASSERT_MSG(found == (best >= 0), "try %d: found %d, but %g s are possible", try, found, best);
        if (found) {
            ASSERT_MSG(choice.recompute_s[kind] <= best * (1 + 1e-9),
                       "try %d (%s, %d chunks of %d layers): %.9g s, not %.9g s", try,
                       schedule_name(s.layout.schedule), (int)s.layout.virtual_stages,
                       (int)s.chunk_layers[stage], choice.recompute_s[kind], best);
            int64_t peak = stage_choice_peak(&s.stages, stage, s.chunk_layers[stage], choice.options, NULL);
            ASSERT_INT(peak, choice.peak_bytes);
            ASSERT(peak <= room);
        }
        stage_choice_clear(&choice);
        close_sample(&s);
    }
}
