#include "cli/foretell.h"

#include "base/units.h"
#include "cli/standing.h"
#include "planner/step_spans.h"

#include <math.h>
#include <string.h>

static const enum activity activities[STEP_WORKS] = {
    [STEP_FORWARD] = ACTIVITY_FORWARD,        [STEP_BACKWARD] = ACTIVITY_BACKWARD,
    [STEP_WEIGHTS] = ACTIVITY_WEIGHTS,        [STEP_RECOMPUTE] = ACTIVITY_RECOMPUTE,
    [STEP_EXCHANGE] = ACTIVITY_COMMUNICATION, [STEP_OPTIMIZER] = ACTIVITY_OPTIMIZER,
};

static int64_t to_ns(double seconds, double scale)
{
    return llround(seconds * scale * 1e9);
}

static void fill_lane(const struct step_lane *step, double scale, struct arena *arena, struct lane *lane)
{
    lane->stretch_count = step->count;
    lane->stretches = arena_array(arena, (size_t)step->count, sizeof *lane->stretches);
    for (int64_t i = 0; i < step->count; i++) {
        const struct step_span *span = &step->spans[i];
        lane->stretches[i] = (struct work_span){
            .start_ns = to_ns(span->start_s, scale),
            .end_ns = to_ns(span->end_s, scale),
            .activity = activities[span->work],
            .micro_batch = span->micro_batch,
        };
    }
}

/* Where the plan was made with better rates than there are here, its total stands. */
static double choose_scale(const struct plan *plan, bool calibrated, double total_s)
{
    return calibrated || plan->step_seconds <= 0 || total_s <= 0 ? 1 : plan->step_seconds / total_s;
}

/* ", nodes joined by 400 GB/s ..."; nothing on one node. */
static const char *name_networks(const struct standing *standing, struct arena *arena)
{
    const char *out = "";
    const struct cluster *cluster = &standing->cluster;
    for (int g = 0; g < cluster->group_count && speed_spans_nodes(cluster, &standing->siting); g++) {
        struct text net = {0};
        machine_speed_describe_net(&cluster->groups[g], "net= in the plan's cluster", &net);
        out = arena_printf(arena, "%s%s%s", out, g ? " and " : ", nodes joined by ", net.data);
        text_free(&net);
    }
    return out;
}

static const char *explain(const struct plan *plan, const struct standing *standing, double scale,
                           struct arena *arena)
{
    char step[UNITS_TEXT];
    const char *rates = standing->pace->calibration   ? "the calibration's rates"
                        : strcmp(plan->device, "cpu") ? speed_rates_text(&standing->speed, &standing->cluster)
                                                      : "nominal rates";
    const char *scaled = fabs(scale - 1) < 0.005
                             ? ""
                             : arena_printf(arena, ", drawn as long as the step of %s that the plan says",
                                            units_format_seconds(plan->step_seconds, step));
    return arena_printf(
        arena,
        "Foretold from %s%s%s. A lane for each stage; all of its ranks do the same. Numbers are "
        "micro-batches. Of a pass, what is recomputed is drawn first and what is exchanged last.",
        rates, name_networks(standing, arena), scaled);
}

static int make_timeline(const struct plan *plan, const struct pipeline *pipeline,
                         const struct standing *standing, struct arena *arena, struct timeline **out,
                         struct error *err)
{
    size_t count = (size_t)pipeline->count;
    int64_t ranks = layout_ranks(&plan->layout) / pipeline->count;
    struct step_lane *steps = arena_array(arena, count, sizeof *steps);
    struct lane *lanes = arena_array(arena, count, sizeof *lanes);
    double total_s;
    if (step_spans_find(pipeline, standing->pace, arena, steps, &total_s, err))
        return -1;
    double scale = choose_scale(plan, standing->pace->calibration, total_s);
    for (int i = 0; i < pipeline->count; i++) {
        lanes[i] = (struct lane){.rank = i * ranks, .ranks = ranks, .stage = i};
        fill_lane(&steps[i], scale, arena, &lanes[i]);
    }
    *out = spans_foretold(lanes, pipeline->count, to_ns(total_s, scale),
                          explain(plan, standing, scale, arena), arena);
    return 0;
}

int foretell_timeline(const struct plan *plan, const struct pipeline *pipeline, const char *calibration,
                      struct arena *arena, struct timeline **out, struct error *err)
{
    struct standing standing;
    *out = NULL;
    if (!standing_is_known(plan))
        return 0;
    int status = standing_open(plan, &(struct standing_choice){.calibration = calibration}, &standing, err);
    if (!status)
        status = make_timeline(plan, pipeline, &standing, arena, out, err);
    standing_close(&standing);
    return status;
}
