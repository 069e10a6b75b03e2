#include "cli/recording.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/commands.h"
#include "device/cuda_library.h"
#include "model/work.h"
#include "profiler/gpu_recorder.h"
#include "reports/describe.h"
#include "reports/run_setup.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct recording {
    struct recorder *recorder;
    struct observer *observers;     /* one per rank, alive as long as its device */
    struct gpu_recorder *gpu;       /* NULL: the run is on no GPU */
    struct observer *gpu_observers; /* likewise */
    struct recording_spec spec;
};

/* Seconds that rank 0 gives the others' files to show up. */
enum { FAILED_WAIT_S = 2, SHARED_WAIT_S = 20 };

/* A rank's file: of rank 0, and without a world, the run's own. */
static const char *file_of(const struct recording_spec *spec, int rank, const char *ending,
                           char out[PATH_MAX])
{
    if (rank == 0)
        snprintf(out, PATH_MAX, "%s", spec->path);
    else
        snprintf(out, PATH_MAX, "%s.rank-%d%s", spec->path, rank, ending);
    return out;
}

static int ranks_of(const struct world *world)
{
    return world->comm ? comm_size(world->comm) : 1;
}

/* Rank 0: what a run that was killed has left. */
static void remove_parts(const struct recording_spec *spec)
{
    static const char *const endings[] = {"", ".part", ".part-wal", ".part-shm", ".part-journal"};
    char path[PATH_MAX];
    for (int rank = 1; rank < ranks_of(spec->world); rank++)
        for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
            unlink(file_of(spec, rank, endings[i], path));
}

/* What was foretold for each rank, by its own stage's program. */
static void record_predictions(struct recording *recording, int ranks)
{
    const struct plan *plan = recording->spec.plan;
    for (int rank = 0; rank < ranks; rank++) {
        const struct program *program = pipeline_of_rank(recording->spec.pipeline, rank);
        struct store_prediction row = {
            .rank = rank,
            .arena_bytes = program->arena_bytes,
            .step_seconds = plan->step_seconds > 0 ? plan->step_seconds : NAN,
        };
        memcpy(row.at_peak, program->at_peak, sizeof row.at_peak);
        row.at_peak[ROLE_RUNTIME] += recording->spec.kernel_bytes;
        recorder_prediction(recording->recorder, &row);
    }
}

/* Rank 0 opens first, for the number of the run and its beginning are the others' too. */
static int open_recorder(const struct recording_spec *spec, struct store_run *run, struct recorder **out,
                         struct error *err)
{
    struct {
        int64_t run_id, age_ns;
    } begun = {0};
    char path[PATH_MAX];
    const struct world *world = spec->world;
    if (world->rank == 0) {
        remove_parts(spec);
        if (recorder_open(spec->path, run, out, err))
            return -1;
        begun.run_id = run->run_id;
        begun.age_ns = recorder_age_ns(*out);
    }
    if (world_share(world, &begun, sizeof begun, err)) {
        if (world->rank == 0)
            recorder_discard(*out);
        return -1;
    }
    if (world->rank == 0)
        return 0;
    int64_t heard_ns = clock_ns();
    run->run_id = begun.run_id;
    if (recorder_open(file_of(spec, world->rank, ".part", path), run, out, err))
        return -1;
    recorder_set_age(*out, begun.age_ns + clock_ns() - heard_ns);
    return 0;
}

static void say(const char *sentence)
{
    log_note("%s", sentence);
}

/* The GPUs that the ranks of this process will open (trainer/train.c): one each, from the first on. */
static struct gpu_recorder *open_gpu_recorder(const struct recording *recording, int ranks)
{
    const struct cuda_library *library;
    const struct world *world = recording->spec.world;
    if (strcmp(recording->spec.plan->device, "cuda") || cuda_library_open(&library, NULL))
        return NULL;
    struct gpu_recorder_spec spec = {
        .library = library,
        .recorder = recording->recorder,
        .first_rank = world->rank,
        .ranks = world->comm ? 1 : ranks,
        .first_device = world->comm ? world->gpu : 0,
        .event_steps = recording->spec.event_steps,
        .timeline = recording->spec.timeline,
        .say = say,
    };
    return gpu_recorder_open(&spec);
}

int recording_open(const struct recording_spec *spec, struct recording **out, struct error *err)
{
    const struct plan *plan = spec->plan;
    json_t *model = model_to_json(&plan->model), *layout = run_setup_layout(spec->pipeline);
    char *model_text = json_dumps(model, JSON_COMPACT), *layout_text = json_dumps(layout, JSON_COMPACT);
    struct store_run run = {
        .command = spec->command,
        .model = plan->model.name,
        .model_json = model_text,
        .layout_json = layout_text,
        .device = plan->device,
        .capacity_bytes = plan->capacity_bytes == INT64_MAX ? 0 : plan->capacity_bytes,
        .policy = memory_policy_name(spec->policy),
        .memplan_version = MEMPLAN_VERSION,
        .ranks = (int)layout_ranks(&plan->layout),
        .event_steps = spec->event_steps,
        .steps = spec->steps,
    };
    struct recording *recording = host_alloc(sizeof *recording);
    int status = open_recorder(spec, &run, &recording->recorder, err);
    free(model_text);
    free(layout_text);
    json_decref(model);
    json_decref(layout);
    if (status) {
        free(recording);
        return -1;
    }
    recording->observers = host_alloc((size_t)run.ranks * sizeof *recording->observers);
    recording->gpu_observers = host_alloc((size_t)run.ranks * sizeof *recording->gpu_observers);
    recording->spec = *spec;
    recording->gpu = open_gpu_recorder(recording, run.ranks);
    if (spec->world->rank == 0)
        record_predictions(recording, run.ranks);
    *out = recording;
    return 0;
}

static void recording_free(struct recording *recording)
{
    free(recording->observers);
    free(recording->gpu_observers);
    free(recording);
}

/* Of a rank other than 0: from here on the file is rank 0's. */
static int hand_over(struct recording *recording, struct error *err)
{
    char part[PATH_MAX], whole[PATH_MAX];
    int rank = recording->spec.world->rank;
    if (recorder_close(recording->recorder, err))
        return -1;
    file_of(&recording->spec, rank, ".part", part);
    if (rename(part, file_of(&recording->spec, rank, "", whole)))
        return error_set(err, "%s: cannot be renamed to %s: %s; choose another file with -o", part, whole,
                         strerror(errno));
    return 0;
}

/* A network file system may show a new file a while later. */
static bool wait_for_file(const char *path, int64_t until_ns)
{
    while (access(path, R_OK)) {
        if (clock_ns() > until_ns)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
    return true;
}

/* Rank 0. Of a run that failed some ranks may have no file, or not yet: it keeps what is there. */
static int take_over(struct recording *recording, bool failed, struct error *err)
{
    char path[PATH_MAX];
    int64_t until_ns = clock_ns() + (failed ? FAILED_WAIT_S : SHARED_WAIT_S) * (int64_t)1000000000;
    int status = 0;
    for (int rank = 1; !status && rank < ranks_of(recording->spec.world); rank++) {
        if (wait_for_file(file_of(&recording->spec, rank, "", path), until_ns)) {
            recorder_merge(recording->recorder, rank, path);
            unlink(path);
        } else if (!failed) {
            status = error_set(
                err, "%s: not to be found after the run; choose -o in a folder that all machines share",
                path);
        }
    }
    return recorder_close(recording->recorder, status ? NULL : err) || status ? -1 : 0;
}

int recording_close(struct recording *recording, struct error *err)
{
    if (!recording)
        return 0;
    gpu_recorder_close(recording->gpu);
    const struct world *world = recording->spec.world;
    int status = world->rank > 0 ? hand_over(recording, err) : 0;
    bool failed = !status && world->comm && comm_barrier(world->comm, NULL);
    if (world->rank == 0)
        status = take_over(recording, failed, err);
    recording_free(recording);
    return status;
}

void recording_discard(struct recording *recording)
{
    if (!recording)
        return;
    gpu_recorder_close(recording->gpu);
    recorder_discard(recording->recorder);
    if (recording->spec.world->rank == 0)
        remove_parts(&recording->spec);
    recording_free(recording);
}

struct note {
    int first_rank, ranks;
    const char *text;
};

/* What cannot be written is told by recorder_close(). */
static void write_note(void *context, struct store *store, int64_t run_id)
{
    const struct note *note = context;
    for (int i = 0; i < note->ranks; i++)
        store_note_add(store, run_id, note->first_rank + i, note->text, NULL);
}

void recording_note(struct recording *recording, const char *text)
{
    const struct recording_spec *spec = &recording->spec;
    bool launched = spec->world->comm != NULL;
    struct note note = {spec->world->rank, launched ? 1 : (int)layout_ranks(&spec->plan->layout), text};
    recorder_write(recording->recorder, write_note, &note);
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
    struct observer *observer = &recording->observers[rank], *gpu = &recording->gpu_observers[rank];
    *observer = recorder_rank_observer(recording->recorder, rank);
    /* Where the host runs ahead, its ranges are not the times of operations. */
    if (device_is_asynchronous(device))
        observer->range = NULL;
    if (device_observe(device, observer, err))
        return -1;
    if (!recording->gpu)
        return 0;
    gpu_recorder_start(recording->gpu, rank, device);
    *gpu = gpu_recorder_observer(recording->gpu, rank);
    return device_observe(device, gpu, err);
}

void recording_step_begin(struct recording *recording, int rank, int64_t step)
{
    if (recording->gpu)
        gpu_recorder_step_begin(recording->gpu, rank);
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
    if (recording->gpu)
        gpu_recorder_step_end(recording->gpu, report->rank);
}

void recording_finish(struct recording *recording, int rank, struct device *device)
{
    struct device_usage usage = device_usage(device);
    const struct program *program = pipeline_of_rank(recording->spec.pipeline, rank);
    device_unobserve(device, &recording->observers[rank]);
    if (recording->gpu) {
        gpu_recorder_finish(recording->gpu, rank);
        device_unobserve(device, &recording->gpu_observers[rank]);
    }
    recorder_usage(recording->recorder, rank, &usage,
                   recording->spec.policy == MEMORY_ARENA ? program->arena_bytes : 0);
}
