#include "tests/planner/brute_force.h"

#include "model/recompute.h"
#include "tests/planner/planner_sample.h"
#include "tests/planner/splits.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rates of a group of nodes. */
static struct machine_speed random_speed(uint32_t *state, int64_t ranks_per_node, double overlap)
{
    struct machine_speed speed;
    machine_speed_from_cpuinfo("", 4, &speed);
    speed.overlap = overlap;
    speed.ranks_per_node = ranks_per_node;
    speed.comm_bytes_per_s.value = 1e7 * (1 + sample_below(state, 1000));
    speed.net_bytes_per_s.value = 1e7 * (1 + sample_below(state, 100));
    return speed;
}

/* What is asked for, on the cluster that is there. */
static void random_request(uint32_t *state, struct problem *p)
{
    static const int64_t batches[] = {2, 4, 6, 8};
    uint32_t full = recompute_full(&p->model);
    p->sets[0] = sample_below(state, 4) ? 0 : sample_below(state, full + 1);
    p->sets[1] = sample_below(state, 2) ? full : sample_below(state, full + 1);
    p->sets[2] = sample_below(state, full + 1);
    p->schedule = (enum schedule_kind)sample_below(state, SCHEDULE_KINDS);
    p->request = (struct search_request){
        .model = &p->model,
        .cluster = &p->cluster,
        .speeds = p->speeds,
        .global_batch = batches[sample_below(state, 4)],
        .seq_len = 16,
        .precision = sample_below(state, 2) ? PRECISION_BF16 : PRECISION_FP32,
        .tp = sample_below(state, 4) ? 1 : 2,
        .micro_batch = sample_below(state, 2),
        .zero = sample_below(state, 2) ? SEARCH_OFF : SEARCH_ON,
        .sequence_parallel = sample_below(state, 3) ? SEARCH_OFF : SEARCH_ANY,
        .schedule = sample_below(state, 2) ? &p->schedule : NULL,
        .sets = p->sets,
        .set_count = BRUTE_SETS,
    };
    p->request.tp = p->request.tp > cluster_ranks(&p->cluster) ? 1 : p->request.tp;
}

void brute_force_problem(uint32_t *state, const char *family, struct problem *p)
{
    *p = (struct problem){
        .model = sample_model(family, 2 + sample_below(state, 8) * 2 / 7),
        .cluster = cluster_of_group(&(struct node_group){.nodes = 1 + sample_below(state, 2),
                                                         .ranks_per_node = 1 + sample_below(state, 4),
                                                         .device = {"cpu"}})};
    double overlap = sample_below(state, 2);
    p->speeds[0] = random_speed(state, p->cluster.groups[0].ranks_per_node, overlap);
    random_request(state, p);
    /* Half of the machines have fewer cores than some have ranks. */
    p->speeds[0].cores = sample_below(state, 2) ? 2 : 4;
}

void brute_force_chunk_problem(uint32_t *state, const char *family, struct problem *p)
{
    brute_force_problem(state, family, p);
    bool three = sample_below(state, 2);
    int64_t pp = three ? 3 : 2, v = three ? 2 : 3;
    p->model = sample_model(family, pp * v - 1 + sample_below(state, 2));
    p->cluster.groups[0].nodes = 1;
    p->cluster.groups[0].ranks_per_node = pp;
    p->speeds[0].ranks_per_node = pp;
    p->request.tp = 1;
    p->request.pp = pp;
    p->request.virtual_stages = v;
    p->request.schedule = NULL;
    p->request.micro_batch = 1;
    p->request.global_batch = 6;
    p->request.sequence_parallel = SEARCH_OFF;
}

void brute_force_mixed_problem(uint32_t *state, const char *family, struct problem *p)
{
    *p = (struct problem){.model = sample_model(family, 2 + sample_below(state, 4) / 3),
                          .cluster = {.group_count = 2 + (int)sample_below(state, 3) / 2}};
    double overlap = sample_below(state, 2);
    int64_t left = 8 - p->cluster.group_count; /* besides one for each group */
    for (int g = 0; g < p->cluster.group_count; g++) {
        int64_t ranks = 1 + sample_below(state, (uint32_t)(left < 3 ? left : 3) + 1);
        left -= ranks - 1;
        bool two = ranks % 2 == 0 && sample_below(state, 2);
        p->cluster.groups[g] = (struct node_group){
            .nodes = two ? 2 : 1, .ranks_per_node = two ? ranks / 2 : ranks, .device = {"cpu"}};
        p->speeds[g] = random_speed(state, p->cluster.groups[g].ranks_per_node, overlap);
        double factor = 1 + sample_below(state, 300) / 100.0;
        for (int i = 0; i < SPEED_CLASSES; i++)
            p->speeds[g].matmul_flops_per_s[i] *= factor;
        p->speeds[g].attention_flops_per_s.value *= factor;
        p->speeds[g].memory_bytes_per_s.value *= 1 + sample_below(state, 300) / 100.0;
    }
    random_request(state, p);
}

/* A layout in a place. */
struct posted {
    struct siting siting;
    const struct machine_speed *speed; /* of the pipeline */
    int64_t rooms[16];                 /* of each stage */
};

/* What a stage recomputes, of all that fits by its peak, or by its arena. */
struct stage_best {
    double total_s,
        odd_s; /* of a micro-batch, and of the first layer with the odd set; infinite: nothing fits */
    uint32_t masks[16]; /* of the model's layers, of which those of the stage count */
};

/* A leaf of the search: every stage has its layers. */
struct split_plan {
    const struct problem *problem;
    const struct layout *layout;
    const struct posted *posted;
    int64_t chunk_layers[16];
    struct fastest *out;
};

/* A stage takes what recomputes least in all; of equals, what has the faster odd set. */
static void keep_better(double total_s, double odd_s, const uint32_t *masks, struct stage_best *best)
{
    double slack_s = isinf(best->total_s) ? 0 : 1e-9 * best->total_s;
    if (total_s > best->total_s + slack_s || (total_s >= best->total_s - slack_s && odd_s >= best->odd_s))
        return;
    best->total_s = total_s;
    best->odd_s = odd_s;
    memcpy(best->masks, masks, sizeof best->masks);
}

/* Builds the stage with these masks. */
static void weigh_stage(const struct split_plan *plan, int64_t stage, int64_t odd_layer,
                        const uint32_t *masks, struct stage_best *by_peak, struct stage_best *by_arena)
{
    struct error err = {0};
    struct program *program;
    struct program_spec spec = {&plan->problem->model, plan->layout, masks, plan->chunk_layers, stage};
    double total_s = 0, odd_s = 0;
    ASSERT_OK(program_create_stage(&spec, &program, &err));
    struct timed_run *runs = time_model_list(program, machine_speed_of_stage(plan->posted->speed, stage));
    for (int i = 0; i < program->run_count; i++) {
        total_s += (double)program->runs[i].count * runs[i].time.recompute;
        if (odd_layer >= 0 &&
            program_run(program, program_find_layer(program, odd_layer)) == &program->runs[i])
            odd_s = runs[i].time.recompute;
    }
    if (program->peak_bytes <= plan->posted->rooms[stage])
        keep_better(total_s, odd_s, masks, by_peak);
    if (program->arena_bytes <= plan->posted->rooms[stage])
        keep_better(total_s, odd_s, masks, by_arena);
    plan->out->plans++;
    free(runs);
    program_free(program);
}

/* What a layer of the stage keeps and recomputes with each set. */
static void find_corners(const struct split_plan *plan, int64_t stage, bool corners[BRUTE_SETS])
{
    double saved[BRUTE_SETS] = {0}, seconds[BRUTE_SETS] = {0};
    for (int set = 0; set < BRUTE_SETS; set++) {
        struct error err = {0};
        struct program *program;
        uint32_t masks[16];
        struct program_spec spec = {&plan->problem->model, plan->layout, masks, plan->chunk_layers, stage};
        for (int i = 0; i < 16; i++)
            masks[i] = plan->problem->sets[set];
        ASSERT_OK(program_create_stage(&spec, &program, &err));
        struct timed_run *runs = time_model_list(program, machine_speed_of_stage(plan->posted->speed, stage));
        for (int i = 0; i < program->run_count; i++)
            if (program->blocks[program->runs[i].block].part == PART_LAYER) {
                saved[set] = (double)program->blocks[program->runs[i].block].saved_bytes;
                seconds[set] = runs[i].time.recompute;
            }
        free(runs);
        program_free(program);
    }
    for (int set = 0; set < BRUTE_SETS; set++)
        corners[set] = splits_is_corner(saved, seconds, BRUTE_SETS, set);
}

/* Every set at every height of a stage, and every odd one. */
static void choose_stage(const struct split_plan *plan, int64_t stage, struct stage_best *by_peak,
                         struct stage_best *by_arena)
{
    const struct layout *l = plan->layout;
    int64_t all = BRUTE_SETS, odd_layer = -1, heights = 0;
    bool corners[BRUTE_SETS];
    for (int64_t i = stage; i < layout_chunks(l); i += l->pp)
        heights = plan->chunk_layers[i] > heights ? plan->chunk_layers[i] : heights;
    for (int64_t i = 0; i < heights; i++)
        all *= BRUTE_SETS;
    by_peak->total_s = by_arena->total_s = INFINITY;
    find_corners(plan, stage, corners);
    for (int64_t number = 0; number < all; number++) {
        uint32_t masks[16] = {0}, by_height[16];
        int64_t layer = 0;
        for (int64_t i = 0, rest = number / BRUTE_SETS; i < heights; i++, rest /= BRUTE_SETS)
            by_height[i] = plan->problem->sets[rest % BRUTE_SETS];
        for (int64_t chunk = 0; chunk < layout_chunks(l); chunk++)
            for (int64_t i = 0; i < plan->chunk_layers[chunk]; i++, layer++) {
                int64_t height = splits_height(l, plan->chunk_layers, chunk, i);
                masks[layer] = height < 0 ? plan->problem->sets[number % BRUTE_SETS] : by_height[height];
                if (height < 0 && chunk % l->pp == stage && odd_layer < 0)
                    odd_layer = layer;
            }
        if (odd_layer >= 0 ? corners[number % BRUTE_SETS] : number % BRUTE_SETS == 0)
            weigh_stage(plan, stage, odd_layer, masks, by_peak, by_arena);
    }
}

/* The step with what each stage has chosen; infinite where one has nothing. */
static double weigh_choices(const struct split_plan *plan, const struct stage_best *stages)
{
    struct error err = {0};
    struct pipeline *pipeline;
    struct step_time time;
    uint32_t masks[16];
    int64_t layer = 0;
    for (int64_t chunk = 0; chunk < layout_chunks(plan->layout); chunk++) {
        const struct stage_best *best = &stages[chunk % plan->layout->pp];
        if (isinf(best->total_s))
            return INFINITY;
        for (int64_t i = 0; i < plan->chunk_layers[chunk]; i++, layer++)
            masks[layer] = best->masks[layer];
    }
    struct program_spec spec = {&plan->problem->model, plan->layout, masks, plan->chunk_layers, 0};
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    ASSERT_OK(time_model_pipeline(pipeline, plan->posted->speed, NULL, &time, &err));
    pipeline_free(pipeline);
    return time.total;
}

static void weigh_masks(const struct split_plan *plan)
{
    struct stage_best by_peak[16], by_arena[16];
    for (int64_t i = 0; i < plan->layout->pp; i++)
        choose_stage(plan, i, &by_peak[i], &by_arena[i]);
    plan->out->peak_s = fmin(plan->out->peak_s, weigh_choices(plan, by_peak));
    plan->out->arena_s = fmin(plan->out->arena_s, weigh_choices(plan, by_arena));
}

static void weigh_layers(struct split_plan *plan, enum split_kind kind, int64_t stage, int64_t left)
{
    struct stage_splits splits;
    if (stage == plan->layout->pp) {
        if (!left && splits_are_of_kind(kind, plan->layout, plan->chunk_layers))
            weigh_masks(plan);
        return;
    }
    for (int64_t n = 0; n <= left; n++) {
        splits_begin(&splits, &plan->problem->model, plan->layout, kind, stage, n);
        while (splits_next(&splits, plan->chunk_layers))
            weigh_layers(plan, kind, stage + 1, left - n);
    }
}

/* The groups that have ranks of a stage. */
static uint32_t groups_of_stage(const struct siting *siting, int64_t ranks, int64_t stage)
{
    uint32_t groups = 0;
    for (int64_t rank = stage * ranks; rank < (stage + 1) * ranks; rank++) {
        int64_t end = siting->parts[0].ranks;
        int part = 0;
        while (rank >= end)
            end += siting->parts[++part].ranks;
        groups |= 1U << siting->parts[part].group;
    }
    return groups;
}

static void weigh_siting(const struct problem *p, const struct layout *layout, const struct siting *siting,
                         struct fastest *out)
{
    struct posted posted = {.siting = *siting};
    struct siting_speeds *speeds = siting_speeds_open(&p->cluster, p->speeds);
    posted.speed = siting_speeds_of_layout(speeds, layout, siting);
    for (int64_t i = 0; i < layout->pp; i++) {
        uint32_t groups = groups_of_stage(siting, layout->dp * layout->tp, i);
        posted.rooms[i] = INT64_MAX;
        for (int g = 0; g < p->cluster.group_count; g++)
            if (groups & 1U << g && p->cluster.groups[g].device.capacity_bytes < posted.rooms[i])
                posted.rooms[i] = p->cluster.groups[g].device.capacity_bytes;
    }
    struct split_plan plan = {p, layout, &posted, {0}, out};
    bool alike = siting->count > 1 || layout->virtual_stages == 1 || p->model.family == MODEL_ENCODER;
    for (int kind = SPLITS_ALIKE; kind < (alike ? SPLITS_LAST : SPLIT_KINDS); kind++)
        weigh_layers(&plan, (enum split_kind)kind, 0, p->model.layers);
    siting_speeds_close(speeds);
}

/* The group of each stage as a number with a digit for each: all numbers are tried, and those are right in which stages of a group
 * follow each other and no group has more stages than it has ranks for. Returns how many are. */
static int weigh_whole(const struct problem *p, const struct layout *layout, struct fastest *out)
{
    int64_t numbers = 1, ranks = layout->dp * layout->tp;
    int right = 0;
    for (int64_t i = 0; i < layout->pp; i++)
        numbers *= p->cluster.group_count;
    for (int64_t number = 0; number < numbers; number++) {
        struct siting siting = {0};
        int64_t rest = number, used[CLUSTER_GROUPS] = {0};
        bool fits = true;
        for (int64_t i = 0; i < layout->pp; i++, rest /= p->cluster.group_count) {
            int group = (int)(rest % p->cluster.group_count), last = siting.count - 1;
            if (last < 0 || siting.parts[last].group != group) {
                fits = fits && !used[group];
                last = fits ? siting.count++ : last;
                siting.parts[last < 0 ? 0 : last].group = group;
            }
            siting.parts[last < 0 ? 0 : last].ranks += (int)ranks;
            used[group] += ranks;
            fits = fits && used[group] <= cluster_group_ranks(&p->cluster.groups[group]);
        }
        if (fits) {
            right++;
            weigh_siting(p, layout, &siting, out);
        }
    }
    return right;
}

/* Groups one after the other, as many ranks of each as tensor-parallel ranks stay together in, in all orders. */
static void weigh_packed(const struct problem *p, const struct layout *layout, struct siting siting,
                         int64_t left, struct fastest *out)
{
    if (!left) {
        weigh_siting(p, layout, &siting, out);
        return;
    }
    for (int g = 0; g < p->cluster.group_count; g++) {
        bool used = false;
        for (int i = 0; i < siting.count; i++)
            used = used || siting.parts[i].group == g;
        int64_t ranks = cluster_group_ranks(&p->cluster.groups[g]) / layout->tp * layout->tp;
        struct siting longer = siting;
        ranks = ranks < left ? ranks : left;
        if (used || !ranks)
            continue;
        longer.parts[longer.count].group = g;
        longer.parts[longer.count++].ranks = (int)ranks;
        weigh_packed(p, layout, longer, left - ranks, out);
    }
}

/* All values of a request that leaves everything open that it can. */
static void weigh_layout(const struct problem *p, struct layout layout, struct fastest *out)
{
    const struct search_request *r = &p->request;
    struct error err = {0};
    bool chunks_divide = p->model.family != MODEL_ENCODER || p->model.layers % layout.virtual_stages == 0;
    bool single = layout.pp == 1 && layout.schedule != SCHEDULE_1F1B;
    bool plain = layout.schedule == SCHEDULE_INTERLEAVED && layout.virtual_stages == 1;
    bool odd = layout.schedule != SCHEDULE_INTERLEAVED && layout.virtual_stages > 1;
    bool unwanted = r->schedule && layout.schedule != *r->schedule;
    if (!chunks_divide || single || plain || odd || unwanted || layout_complete(&layout, &p->model, &err))
        return;
    if (!weigh_whole(p, &layout, out))
        weigh_packed(p, &layout, (struct siting){0}, layout_ranks(&layout), out);
}

struct fastest brute_force_fastest(const struct problem *p)
{
    struct fastest out = {INFINITY, INFINITY, 0};
    const struct search_request *r = &p->request;
    int64_t ranks = cluster_ranks(&p->cluster);
    for (int64_t pp = 1; pp * r->tp <= ranks && pp <= p->model.layers + 2; pp++)
        for (int64_t dp = 1; dp * pp * r->tp <= ranks; dp++)
            for (int64_t b = 1; b <= r->global_batch / dp; b++)
                for (int sp = 0; sp <= (r->tp > 1 && r->sequence_parallel == SEARCH_ANY); sp++)
                    for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
                        for (int64_t v = 1; v * pp <= p->model.layers + 2; v++) {
                            if (r->global_batch % (dp * b) || (r->micro_batch && b != r->micro_batch) ||
                                (r->pp && pp != r->pp) || (r->virtual_stages && v != r->virtual_stages))
                                continue;
                            weigh_layout(p,
                                         (struct layout){.dp = dp,
                                                         .tp = r->tp,
                                                         .pp = pp,
                                                         .virtual_stages = v,
                                                         .schedule = (enum schedule_kind)kind,
                                                         .zero = dp > 1 && r->zero == SEARCH_ON,
                                                         .sequence_parallel = sp,
                                                         .micro_batch = b,
                                                         .global_batch = r->global_batch,
                                                         .seq_len = r->seq_len,
                                                         .precision = r->precision},
                                         &out);
                        }
    return out;
}

int64_t brute_force_capacity(const struct problem *p, uint32_t *state)
{
    int64_t pp = 1 + sample_below(state, 2), dp = 1 + sample_below(state, 2);
    int64_t ranks = cluster_ranks(&p->cluster), low = 0, high = 0;
    pp = pp * p->request.tp > ranks ? 1 : pp;
    dp = dp * pp * p->request.tp > ranks || p->request.global_batch % dp ? 1 : dp;
    struct pipeline *pipeline =
        sample_pipeline(&p->model, (struct layout){.dp = dp,
                                                   .tp = p->request.tp,
                                                   .pp = pp,
                                                   .micro_batch = 1,
                                                   .zero = p->request.zero == SEARCH_ON,
                                                   .global_batch = p->request.global_batch,
                                                   .seq_len = p->request.seq_len,
                                                   .precision = p->request.precision});
    for (int i = 0; i < pipeline->count; i++) {
        const struct program *stage = pipeline->stages[i];
        low = stage->persistent_bytes > low ? stage->persistent_bytes : low;
        high = stage->arena_bytes > high ? stage->arena_bytes : high;
    }
    pipeline_free(pipeline);
    return low + (int64_t)((double)(high - low) * (1.1 * sample_below(state, 1001) / 1000.0));
}

void brute_force_check(const struct problem *p, const struct search_result *result)
{
    struct error err = {0};
    struct step_time time;
    struct pipeline *pipeline;
    const struct search_row *row = &result->alternatives[0];
    const struct layout *l = &row->layout;
    struct siting_speeds *speeds = siting_speeds_open(&p->cluster, p->speeds);
    struct program_spec spec = {&p->model, l, row->masks, row->chunk_layers, 0};
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    ASSERT_INT(pipeline->stages[row->bytes.stage]->arena_bytes, row->arena_bytes);
    for (int i = 0; i < pipeline->count; i++) {
        uint32_t groups = groups_of_stage(&row->siting, l->dp * l->tp, i);
        for (int g = 0; g < p->cluster.group_count; g++)
            ASSERT(!(groups & 1U << g) ||
                   pipeline->stages[i]->arena_bytes <= p->cluster.groups[g].device.capacity_bytes);
    }
    ASSERT_OK(
        time_model_pipeline(pipeline, siting_speeds_of_layout(speeds, l, &row->siting), NULL, &time, &err));
    ASSERT_NEAR(time.total, row->time.total, time.total * 1e-9);
    for (int64_t i = 1; i < result->alternative_count; i++)
        ASSERT(result->alternatives[i - 1].time.total <= result->alternatives[i].time.total);
    pipeline_free(pipeline);
    siting_speeds_close(speeds);
}
