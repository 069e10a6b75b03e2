#include "cli/planned_pair.h"

#include "cli/standing.h"
#include "planner/prediction.h"
#include "reports/compare_plans.h"

#include <math.h>

/* One of them, as long as it is shown. */
struct side {
    struct plan plan;
    struct pipeline *pipeline;
    struct prediction answer;
    bool known; /* its devices, and so the answer's times */
};

static void close_side(struct side *side)
{
    pipeline_free(side->pipeline);
    plan_clear(&side->plan);
}

static int foretell(struct side *side, struct error *err)
{
    struct standing standing;
    int status = standing_open(&side->plan, &(struct standing_choice){0}, &standing, err) ||
                 prediction_make_placed(side->pipeline, standing.devices, standing.pace, &side->answer, err);
    standing_close(&standing);
    return status ? -1 : 0;
}

static int open_side(const char *path, struct side *side, struct error *err)
{
    if (plan_read(path, &side->plan, err))
        return -1;
    side->known = standing_is_known(&side->plan);
    if (!plan_pipeline(&side->plan, &side->pipeline, err) && (!side->known || !foretell(side, err)))
        return 0;
    close_side(side);
    return -1;
}

static struct compare_plan describe_side(const struct side *side, const char *name)
{
    const struct step_time *t = &side->answer.time;
    struct compare_plan out = {
        .name = name,
        .device = side->plan.device,
        .pipeline = side->pipeline,
        .room = {side->plan.capacity_bytes, side->answer.runtime.bytes},
        .stage = side->known ? side->answer.stage : pipeline_worst(side->pipeline),
        .seconds = {t->forward, t->backward, t->recompute, t->exposed_communication, t->bubble, t->optimizer},
        .step_seconds = side->known ? t->total : NAN,
        .planned_seconds = side->plan.step_seconds,
    };
    for (int part = 0; part < COMPARE_PARTS && !side->known; part++)
        out.seconds[part] = NAN;
    if (side->known)
        out.room.capacity_bytes = side->answer.capacity_bytes;
    return out;
}

static int show(const struct compare_plan plans[2], const struct output_choice *choice, struct error *err)
{
    struct arena *arena = arena_create();
    struct document document;
    const struct report *page = compare_plans_report(plans, arena);
    json_t *answer = compare_plans_to_json(plans);
    struct comparison peaks = compare_plans_peaks(plans, arena);
    document_of_plans(&peaks, page, answer, arena, &document);
    int status = output_document(&document, choice, err);
    json_decref(answer);
    arena_free(arena);
    return status;
}

int planned_pair_compare(const char *const paths[2], const struct output_choice *choice, struct error *err)
{
    struct side sides[2] = {0};
    if (open_side(paths[0], &sides[0], err))
        return -1;
    int status = open_side(paths[1], &sides[1], err);
    if (!status) {
        const struct compare_plan plans[2] = {describe_side(&sides[0], text_name_apart(paths, 0)),
                                              describe_side(&sides[1], text_name_apart(paths, 1))};
        status = show(plans, choice, err);
        close_side(&sides[1]);
    }
    close_side(&sides[0]);
    return status;
}
