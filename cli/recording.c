#include "cli/recording.h"

#include "base/arena.h"
#include "base/json.h"
#include "cli/commands.h"
#include "model/work.h"
#include "reports/describe.h"
#include "reports/run_setup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct recording {
    struct recorder *recorder;
    struct observer *observers; /* one per rank, alive as long as its device */
    const struct pipeline *pipeline;
    enum memory_policy policy;
};

/* What was foretold for each rank, by its own stage's program. */
static void record_predictions(struct recording *recording, const struct plan *plan, int ranks)
{
    for (int rank = 0; rank < ranks; rank++) {
        const struct program *program = pipeline_of_rank(recording->pipeline, rank);
        struct store_prediction row = {
            .rank = rank,
            .arena_bytes = program->arena_bytes,
            .step_seconds = plan->step_seconds > 0 ? plan->step_seconds : NAN,
        };
        memcpy(row.at_peak, program->at_peak, sizeof row.at_peak);
        recorder_prediction(recording->recorder, &row);
    }
}

int recording_open(const char *path, const struct plan *plan, const struct pipeline *pipeline,
                   enum memory_policy policy, const char *command, int64_t event_steps,
                   struct recording **out, struct error *err)
{
    json_t *model = model_to_json(&plan->model), *layout = run_setup_layout(pipeline);
    char *model_text = json_dumps(model, JSON_COMPACT), *layout_text = json_dumps(layout, JSON_COMPACT);
    struct store_run run = {
        .command = command,
        .model = plan->model.name,
        .model_json = model_text,
        .layout_json = layout_text,
        .device = plan->device,
        .capacity_bytes = plan->capacity_bytes == INT64_MAX ? 0 : plan->capacity_bytes,
        .policy = memory_policy_name(policy),
        .memplan_version = MEMPLAN_VERSION,
        .ranks = (int)layout_ranks(&plan->layout),
        .event_steps = event_steps,
    };
    struct recording *recording = host_alloc(sizeof *recording);
    int status = recorder_open(path, &run, &recording->recorder, err);
    free(model_text);
    free(layout_text);
    json_decref(model);
    json_decref(layout);
    if (status) {
        free(recording);
        return -1;
    }
    recording->observers = host_alloc((size_t)run.ranks * sizeof *recording->observers);
    recording->pipeline = pipeline;
    recording->policy = policy;
    record_predictions(recording, plan, run.ranks);
    *out = recording;
    return 0;
}

static void recording_free(struct recording *recording)
{
    free(recording->observers);
    free(recording);
}

int recording_close(struct recording *recording, struct error *err)
{
    if (!recording)
        return 0;
    int status = recorder_close(recording->recorder, err);
    recording_free(recording);
    return status;
}

void recording_discard(struct recording *recording)
{
    if (!recording)
        return;
    recorder_discard(recording->recorder);
    recording_free(recording);
}

static void record_tensors(struct recording *recording, int rank, const struct program *program)
{
    struct arena *arena = arena_create();
    struct described *tensors;
    int64_t count = describe_tensors(program, program->micro_batches, arena, &tensors);
    struct store_tensor *rows = arena_array(arena, (size_t)count, sizeof *rows);
    for (int64_t i = 0; i < count; i++)
        rows[i] = (struct store_tensor){
            .tensor_id = tensors[i].id,
            .name = tensors[i].name,
            .dims = tensors[i].dims,
            .dtype = tensors[i].dtype,
            .role = tensors[i].role,
            .layer = (int)tensors[i].layer,
            .micro_batch = (int)tensors[i].micro_batch,
            .bytes = tensors[i].bytes,
        };
    recorder_tensors(recording->recorder, rank, rows, count);
    arena_free(arena);
}

static const char *shape_text(struct arena *texts, const struct work *work)
{
    if (work->k)
        return arena_printf(texts, "M%lld N%lld K%lld", (long long)work->m, (long long)work->n,
                            (long long)work->k);
    return arena_printf(texts, "M%lld N%lld", (long long)work->m, (long long)work->n);
}

static void record_operations(struct recording *recording, int rank, const struct program *program)
{
    struct arena *texts = arena_create();
    struct store_operation *rows = host_alloc((size_t)program_op_count(program) * sizeof *rows);
    int64_t count = 0;
    struct program_cursor cursor = program_walk(program);
    for (struct step_op s; program_next(&cursor, &s);) {
        struct work work = work_of(program, &s);
        rows[count++] = (struct store_operation){
            .operation_id = s.id,
            .kind = op_kind_name(s.kind),
            .phase = phase_name(s.phase),
            .detail = shape_text(texts, &work),
            .layer = (int)program_layer(program, s.instance),
            .micro_batch = (int)s.micro_batch,
            .recompute = s.op && (s.op->flags & OP_RECOMPUTE),
            .flops = (int64_t)work.flops,
            .bytes_moved = (int64_t)work.bytes_moved,
        };
    }
    recorder_operations(recording->recorder, rank, rows, count);
    free(rows);
    arena_free(texts);
}

int recording_start(struct recording *recording, int rank, struct device *device,
                    const struct program *program, struct error *err)
{
    record_tensors(recording, rank, program);
    record_operations(recording, rank, program);
    recording->observers[rank] = recorder_rank_observer(recording->recorder, rank);
    return device_observe(device, &recording->observers[rank], err);
}

void recording_step_begin(struct recording *recording, int rank, int64_t step)
{
    recorder_step_begin(recording->recorder, rank, (int)step);
}

struct store_step recording_step_row(const struct step_report *report)
{
    return (struct store_step){
        .rank = report->rank,
        .step = (int)report->step,
        .loss = report->loss,
        .grad_norm = report->grad_norm,
        .seconds = report->seconds,
        .tokens = report->tokens,
        .tokens_per_s = (double)report->tokens / report->seconds,
        .communication_busy_s = report->communication_busy_s,
        .communication_waited_s = report->communication_waited_s,
    };
}

void recording_step(struct recording *recording, const struct step_report *report)
{
    struct store_step row = recording_step_row(report);
    recorder_step(recording->recorder, report->rank, &row);
}

void recording_finish(struct recording *recording, int rank, struct device *device)
{
    struct device_usage usage = device_usage(device);
    const struct program *program = pipeline_of_rank(recording->pipeline, rank);
    device_unobserve(device, &recording->observers[rank]);
    recorder_usage(recording->recorder, rank, &usage,
                   recording->policy == MEMORY_ARENA ? program->arena_bytes : 0);
}
