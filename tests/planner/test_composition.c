/* Layers by stage against brute force on pipelines that are long for a test, with networks from fast to hopeless: the bounds that
 * spare the search most splits must never spare the best. */
#include "tests/planner/planner_sample.h"
#include "tests/test.h"

#include "planner/bounds.h"
#include "planner/composition.h"
#include "planner/siting.h"
#include "tests/planner/splits.h"

#include <math.h>
#include <string.h>

static const char *const families[] = {"gpt2-tiny", "llama-tiny", "block-tiny"};

/* Up to 5 stages, 3 chunks of each, 12 micro-batches; two kinds of devices. */
struct sample {
    struct model model;
    struct layout layout;
    struct machine_speed speeds[2], pipeline;
    const struct machine_speed *by_stage[8];
    struct costs_cache *caches[2];
    struct stage_ground grounds[2];
    int ground_count;
    int64_t layers;
};

static void random_speeds(uint32_t *state, struct sample *s)
{
    static const double messages[] = {1e4, 1e5, 1e6, 1e7, 1e9};
    double net = messages[sample_below(state, 5)];
    for (int i = 0; i < 2; i++) {
        struct machine_speed *speed = &s->speeds[i];
        machine_speed_from_cpuinfo("", 1, speed);
        speed->cores = 0; /* a device for each rank */
        speed->ranks_per_node = 1;
        speed->net_bytes_per_s.value = net;
        speed->comm_bytes_per_s.value = net;
        for (int k = 0; k < SPEED_CLASSES; k++)
            speed->matmul_flops_per_s[k] = 1e8 * (1 + sample_below(state, 40));
    }
}

/* The layout is chosen, and so are speeds: the stages from `first` on stand on the second kind of devices. */
static void stand_sample(const char *family, int64_t first, struct sample *s)
{
    struct error err = {0};
    static const uint32_t none[] = {0};
    int64_t pp = s->layout.pp, stage = 0;
    s->model = sample_model(family, s->layers);
    ASSERT_OK(layout_complete(&s->layout, &s->model, &err));
    s->ground_count = first < pp ? 2 : 1;
    for (int g = 0; g < s->ground_count; g++) {
        s->caches[g] = costs_open(&s->model, &s->speeds[g], none, 1);
        struct costs *costs = costs_find(s->caches[g], &s->layout);
        costs_open_options(s->caches[g], &s->layout, costs);
        s->grounds[g] = (struct stage_ground){g ? pp - first : first, &s->speeds[g], costs, INT64_MAX / 4};
        for (int64_t k = 0; k < s->grounds[g].stages; k++)
            s->by_stage[stage++] = &s->speeds[g];
    }
    s->pipeline = s->speeds[0];
    s->pipeline.stages = s->by_stage;
}

static int64_t random_bucket(uint32_t *state)
{
    static const int64_t bytes[] = {1, 30000, 120000, 300000, LAYOUT_BUCKET_BYTES};
    return bytes[sample_below(state, 5)];
}

/* `crowded`: all ranks share the cores of one machine. */
static void open_sample(const char *family, bool crowded, uint32_t *state, struct sample *s)
{
    int64_t pp = 2 + sample_below(state, 4), v = sample_below(state, 3) ? 1 : 2 + sample_below(state, 2);
    static const enum schedule_kind kinds[] = {SCHEDULE_1F1B, SCHEDULE_ZB_H1, SCHEDULE_GPIPE};
    bool encoder = !strcmp(family, "block-tiny");
    int64_t over = sample_below(state, v > 1 && !encoder ? 7 : 4);
    /* An encoder's chunks are alike; of others the ends may have no layers. */
    *s = (struct sample){.layers = !encoder && v > 1 ? pp * v - 2 + over : v * (pp + over)};
    int64_t m = v > 1 ? pp * (1 + sample_below(state, 3)) : 1 + sample_below(state, 12);
    s->layout = (struct layout){.dp = 1 + sample_below(state, 2),
                                .tp = 1,
                                .pp = pp,
                                .virtual_stages = v,
                                .micro_batch = 1,
                                .seq_len = 16,
                                .schedule = v > 1 ? SCHEDULE_INTERLEAVED : kinds[sample_below(state, 3)],
                                .bucket_bytes = random_bucket(state)};
    s->layout.global_batch = s->layout.dp * m;
    s->layout.zero = s->layout.dp > 1 && sample_below(state, 2);
    random_speeds(state, s);
    if (crowded) {
        s->speeds[0].cores = 1 + (int)sample_below(state, 3);
        s->speeds[0].ranks_per_node = INT64_MAX;
    }
    bool alike = crowded || sample_below(state, 2);
    stand_sample(family, alike ? pp : 1 + sample_below(state, (uint32_t)pp - 1), s);
}

static double step_of(const struct sample *s, const int64_t *chunk_layers)
{
    struct error err = {0};
    struct pipeline *pipeline;
    struct step_time time;
    struct program_spec spec = {&s->model, &s->layout, NULL, chunk_layers, 0};
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    ASSERT_OK(time_model_pipeline(pipeline, &s->pipeline, NULL, &time, &err));
    pipeline_free(pipeline);
    return time.total;
}

/* All splits of a kind that docs/time-model.md has. */
static double best_split(const struct sample *s, enum split_kind kind, int64_t stage, int64_t left,
                         int64_t *chunk_layers)
{
    double best = INFINITY;
    struct stage_splits splits;
    if (stage == s->layout.pp)
        return left || !splits_are_of_kind(kind, &s->layout, chunk_layers) ? INFINITY
                                                                           : step_of(s, chunk_layers);
    for (int64_t n = 0; n <= left; n++) {
        splits_begin(&splits, &s->model, &s->layout, kind, stage, n);
        while (splits_next(&splits, chunk_layers))
            best = fmin(best, best_split(s, kind, stage + 1, left - n, chunk_layers));
    }
    return best;
}

/* How near bounds come to the best, on slow networks and on fast ones; how often larger chunks are possible, and faster than others. */
struct nearness {
    double shares[2];
    int counts[2];
    int larger, faster;
};

static const enum larger_chunks larger_of[SPLIT_KINDS] = {LARGER_NONE, LARGER_LAST, LARGER_FIRST};

static void check_bounds(const struct sample *s, enum split_kind kind, int number, double best, double bound)
{
    struct bounds *bounds = bounds_open(&s->model);
    struct bounds_question question = {&s->layout, s->grounds, s->ground_count, false, larger_of[kind]};
    double by_work = bounds_of_work(bounds, &question), by_fullest = bounds_of_fullest(bounds, &question),
           by_schedule = bounds_of_schedule(bounds, &question);
    double by_layout = bounds_of_layout(bounds, &question, 1e300), most = best * (1 + 1e-9);
    bounds_close(bounds);
    ASSERT_MSG(
        by_work <= most && by_fullest <= most && by_schedule <= most && by_layout <= most && bound <= most,
        "%d: %d cores, pp %d v %d %s m %d kind %d: work %g fullest %g schedule %g layout %g composition "
        "%g, and the best is %g",
        number, s->speeds[0].cores, (int)s->layout.pp, (int)s->layout.virtual_stages,
        schedule_name(s->layout.schedule), (int)layout_micro_batches(&s->layout), (int)kind, by_work,
        by_fullest, by_schedule, by_layout, bound, best);
}

static double least_bound(const struct sample *s, enum split_kind kind)
{
    struct bounds *bounds = bounds_open(&s->model);
    struct bounds_question question = {&s->layout, s->grounds, s->ground_count, false, larger_of[kind]};
    double bound = bounds_of_layout(bounds, &question, 1e300);
    bounds_close(bounds);
    return bound;
}

/* Returns the best of this kind; infinite: there is none below `limit_s`, which is above or infinite. */
static double compare_kind(const struct sample *s, enum split_kind kind, int number, double limit_s,
                           struct nearness *nearness)
{
    struct error err = {0};
    struct stages stages;
    struct composition_best found;
    int64_t layers[32], budget = INT64_MAX;
    stages_open(&s->model, &s->layout, s->grounds, larger_of[kind], &stages);
    struct composition *composition = composition_open(&stages);
    double best = best_split(s, kind, 0, s->layers, layers);
    double bound = composition_bound(composition, least_bound(s, kind), limit_s);
    check_bounds(s, kind, number, best, fmin(bound, limit_s));
    ASSERT_OK(composition_search(composition, limit_s, &budget, &found, &err));
    if (best < limit_s * (1 - 1e-9)) {
        ASSERT_MSG(fabs(found.step_s - best) < best * 1e-9 && found.bound_s >= found.step_s,
                   "%d: pp %d v %d m %d kind %d, %d layers, limit %g: %g found, the best is %g, bound %g",
                   number, (int)s->layout.pp, (int)s->layout.virtual_stages,
                   (int)layout_micro_batches(&s->layout), (int)kind, (int)s->layers, limit_s, found.step_s,
                   best, bound);
    } else {
        ASSERT((isinf(found.step_s) || best < limit_s) && found.bound_s >= limit_s * (1 - 1e-9));
    }
    int fast = s->speeds[0].net_bytes_per_s.value > 1e8;
    if (kind == SPLITS_ALIKE) {
        nearness->counts[fast]++;
        nearness->shares[fast] += bound / best;
    }
    composition_best_clear(&found);
    composition_close(composition);
    stages_close(&stages);
    return best;
}

/* Larger chunks with the best of the others as the limit, as they are searched, and without one. */
static void compare_with_brute_force(const struct sample *s, int number, struct nearness *nearness)
{
    double best = compare_kind(s, SPLITS_ALIKE, number, INFINITY, nearness);
    if (s->ground_count > 1 || s->layout.virtual_stages == 1 || s->model.family == MODEL_ENCODER)
        return;
    for (int kind = SPLITS_LAST; kind < SPLIT_KINDS; kind++) {
        double larger = compare_kind(s, (enum split_kind)kind, number, INFINITY, nearness);
        nearness->larger += !isinf(larger);
        nearness->faster += larger < best * (1 - 1e-9);
        compare_kind(s, (enum split_kind)kind, number, best, nearness);
    }
}

static void close_sample(struct sample *s)
{
    for (int g = 0; g < s->ground_count; g++)
        costs_close(s->caches[g]);
}

/* Bounds that are no use would pass too. */
static void check_nearness(const struct nearness *n, double fast, double slow)
{
    ASSERT_MSG(n->shares[1] > fast * n->counts[1] && n->shares[0] > slow * n->counts[0],
               "bounds are at %.3f of the best on fast networks and at %.3f on slow ones",
               n->shares[1] / n->counts[1], n->shares[0] / n->counts[0]);
}

/* So would larger chunks that never are any, or never faster. */
static void check_larger(const struct nearness *n, const char *family)
{
    bool encoder = !strcmp(family, "block-tiny");
    ASSERT_MSG(encoder || (n->larger > 5 && n->faster > 0), "%d with larger chunks, %d faster", n->larger,
               n->faster);
}

static void compare_samples(const char *family, bool crowded, uint32_t seed, int count,
                            struct nearness *nearness)
{
    uint32_t state = seed * 2654435761u; /* or sequences of neighbouring seeds begin alike */
    for (int i = 0; i < count; i++) {
        struct sample s;
        open_sample(family, crowded, &state, &s);
        compare_with_brute_force(&s, i, nearness);
        close_sample(&s);
    }
}

TEST_DEFINE(composition_equals_brute_force,
            "of 3,000 pipelines the split is the fastest of all, and no bound is above it", 15, true)
{
    struct nearness nearness = {0};
    compare_samples(families[_i % 3], false, 5 + (uint32_t)_i, 200, &nearness);
    check_nearness(&nearness, 0.96, 0.65);
    check_larger(&nearness, families[_i % 3]);
}

TEST_DEFINE(composition_shares_cores, "so it is of 750 whose stages share 1 to 3 cores of one machine", 15,
            true)
{
    struct nearness nearness = {0};
    compare_samples(families[_i % 3], true, 5 + (uint32_t)_i, 50, &nearness);
    check_nearness(&nearness, 0.8, 0.5);
}

TEST_DEFINE(composition_quickly, "so it is of 300 other pipelines and 60 that share cores", 3, false)
{
    struct nearness nearness = {0};
    compare_samples(families[_i], false, 1000 + (uint32_t)_i, 100, &nearness);
    compare_samples(families[_i], true, 2000 + (uint32_t)_i, 20, &nearness);
    check_nearness(&nearness, 0.9, 0.6);
    check_larger(&nearness, families[_i]);
}

/* An encoder's first layer spares its backward a product. Where the first stage alone has most layers, it has v n - 1 others and
 * that one: bounds that took v n others, as chunks of n layers from the second on would have, were above the best. */
TEST_DEFINE(composition_counts_first_layers,
            "an encoder's first layer counts as what it takes where its stage has most layers", 1, false)
{
    static const struct {
        int pp, v, m, row;
    } cases[] = {{4, 2, 8, 5}, {3, 2, 9, 4}, {2, 2, 4, 3}, {5, 3, 10, 6}, {2, 16, 2, 3}, {4, 1, 8, 5}};
    struct nearness nearness = {0};
    for (int i = 0; i < (int)(sizeof cases / sizeof cases[0]); i++) {
        struct sample s = {.layers = cases[i].v * cases[i].row};
        uint32_t state = 1;
        s.layout = (struct layout){.dp = 1,
                                   .tp = 1,
                                   .pp = cases[i].pp,
                                   .virtual_stages = cases[i].v,
                                   .micro_batch = 1,
                                   .global_batch = cases[i].m,
                                   .seq_len = 16,
                                   .schedule = cases[i].v > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B};
        random_speeds(&state, &s);
        s.speeds[0].net_bytes_per_s.value = s.speeds[0].comm_bytes_per_s.value = 1e9;
        stand_sample("block-tiny", s.layout.pp, &s);
        compare_with_brute_force(&s, i, &nearness);
        close_sample(&s);
    }
}
