#include "cli/training.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/capacity.h"
#include "cli/recording.h"
#include "cli/stopping.h"
#include "device/cuda_library.h"
#include "cli/world.h"
#include "cli/world_gpus.h"
#include "planner/cluster.h"
#include "reports/ranges.h"
#include "reports/steps.h"
#include "trainer/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A run in progress, as its listener sees it. */
struct training {
    const struct training_options *options;
    const struct world *world;
    const struct plan *plan;
    const struct pipeline *pipeline;
    struct train_settings settings;
    struct recording *recording; /* NULL: none */
    bool refused;                /* an arena is larger than what its rank has */
    bool broken_output;          /* stdout took no more */
    int64_t steps_done;          /* by this run */
    int stopped_by;              /* the signal that ended it early; 0: none */
};

struct training_options training_default_options(void)
{
    struct train_settings defaults = train_defaults();
    return (struct training_options){
        .steps = defaults.steps,
        .seed = (int64_t)defaults.seed,
        .lr = defaults.rate.peak,
        .decay = defaults.decay,
        .clip = defaults.max_norm,
        .event_steps = 2,
    };
}

/* Above this many threads a rank's kernels wait for each other rather than work, and systems refuse to start them. */
enum { MOST_THREADS = 1024 };

/* Ranks are threads too, but most of them wait for others most of the time. */
enum { MOST_RANKS = 4096 };

static int check_ranks(const struct world *world, const struct layout *l, struct error *err)
{
    if (world->comm)
        return world_check(world, l, err);
    if (layout_ranks(l) <= MOST_RANKS)
        return 0;
    return error_set(err,
                     "dp %" PRId64 " x tp %" PRId64 " x pp %" PRId64 " makes %" PRId64
                     " ranks, and they are threads of this process: %d at most; use fewer, or `memplan "
                     "predict` to ask what each would need",
                     l->dp, l->tp, l->pp, layout_ranks(l), MOST_RANKS);
}

static int check_numbers(const struct training_options *o, struct error *err)
{
    if (!(o->lr > 0 && o->lr < 1e3))
        return error_set(err, "--lr %g is out of range; it must be above 0 and below 1000, such as 3e-4",
                         o->lr);
    if (!(o->decay >= 0 && o->decay < 1e3))
        return error_set(err, "--decay %g is out of range; it must be 0 or more and below 1000, such as 0.1",
                         o->decay);
    if (!(o->clip >= 0))
        return error_set(err, "--clip %g is negative; write 0 for no clipping, or a largest norm such as 1",
                         o->clip);
    if (o->threads > MOST_THREADS)
        return error_set(
            err, "--threads %" PRId64 " is out of range; use at most %d, or leave it out for one per core",
            o->threads, MOST_THREADS);
    return 0;
}

/* A place that takes no files is found out before the training rather than after it. */
static int check_checkpoint(const char *folder, struct error *err)
{
    char path[PATH_MAX];
    struct stat found;
    if (!folder[0])
        return error_set(err, "--checkpoint is empty; name a folder, such as checkpoint");
    bool absent = stat(folder, &found) != 0;
    if (!absent && !S_ISDIR(found.st_mode))
        return error_set(err, "--checkpoint %s is a file; name a folder, or a place where one can be made",
                         folder);
    snprintf(path, sizeof path, "%s", folder);
    if ((absent && errno != ENOENT) || access(absent ? dirname(path) : folder, W_OK | X_OK))
        return error_set(err,
                         "--checkpoint %s: %s; choose a folder that exists or can be made, and be written to",
                         folder, strerror(errno));
    return 0;
}

/* A checkpoint is all that is left of a run, perhaps of days. The run that goes on from it may replace it. */
static int keep_checkpoint(const struct training_options *o, struct error *err)
{
    char shown[CHECKPOINT_SHOWN];
    if (!o->checkpoint && o->overwrite)
        return error_set(err, "--overwrite is for --checkpoint, which is not given; leave it out");
    if (!o->checkpoint || o->overwrite || !checkpoint_stands(o->checkpoint, shown) ||
        (o->resume && file_is_same(o->resume, o->checkpoint)))
        return 0;
    return error_set(err,
                     "--checkpoint %s has the checkpoint of %s, which this run would replace; go on from it "
                     "with --resume %s, name another folder, or give --overwrite",
                     o->checkpoint, shown, o->checkpoint);
}

/* The plan says which; every rank of it has the same. */
static int choose_device(const struct plan *plan, struct train_settings *settings, struct error *err)
{
    const struct cuda_library *library;
    if (strcmp(plan->device, "cuda"))
        return 0;
    if (cuda_library_open(&library, err))
        return -1;
    settings->device = "cuda";
    settings->kernels = library->kernels;
    return 0;
}

static int make_settings(struct training *t, enum memory_policy policy, struct error *err)
{
    const struct training_options *o = t->options;
    struct train_settings s = train_defaults();
    if (!o->data)
        return error_set(err, "--data is missing; name a text file, a .bin token file, or random");
    if (o->output && !o->output[0])
        return error_set(err, "--output is empty; name a database, such as run.db");
    if (o->weights && o->resume)
        return error_set(err, "--weights and --resume both say what the run begins with; give one of them");
    if (check_numbers(o, err) || (o->checkpoint && check_checkpoint(o->checkpoint, err)) ||
        keep_checkpoint(o, err))
        return -1;
    if (o->schedule && learning_rate_parse(o->schedule, &s.rate.kind, err))
        return -1;
    s.data_path = o->data;
    s.seed = (uint64_t)o->seed;
    s.steps = o->steps;
    s.rate.peak = o->lr;
    s.rate.warmup_steps = o->warmup;
    s.decay = o->decay;
    s.max_norm = o->clip;
    s.validate_every = o->validate_every;
    s.checkpoint_folder = o->checkpoint;
    s.checkpoint_every = o->checkpoint_every;
    s.resume_folder = o->resume;
    s.weights_path = o->weights;
    if (choose_device(t->plan, &s, err))
        return -1;
    s.record_steps = !o->no_graph;
    s.pair_operations = !o->output; /* a recording has each by itself */
    s.policy = policy;
    s.capacity_bytes = t->plan->capacity_bytes;
    s.threads = (int)o->threads;
    s.world = t->world->comm;
    s.ranks_here = t->world->ranks_here;
    s.gpu = t->world->gpu;
    t->settings = s;
    return 0;
}

/* A disk that is full is told about at the end. Where nobody reads any more (`| head`), the run ends as for SIGINT: with its
 * checkpoint, and with a finished recording. */
static void finish_line(struct training *t, int printed)
{
    if (printed >= 0 && !fflush(stdout))
        return;
    if (errno == EPIPE)
        stopping_ask(SIGPIPE);
    t->broken_output = true;
}

static void print_line(struct training *t, json_t *line)
{
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(10));
    finish_line(t, printf("%s\n", text));
    free(text);
    json_decref(line);
}

static void print_step(struct training *t, const struct step_report *r)
{
    struct store_step row = recording_step_row(r);
    if (t->options->json) {
        print_line(t, steps_line(&row, r->held_bytes, r->peak_bytes));
        return;
    }
    char time[UNITS_TEXT], held[UNITS_TEXT], peak[UNITS_TEXT];
    units_format_bytes_pair(r->held_bytes, r->peak_bytes, held, peak);
    finish_line(t, printf("step %4" PRId64 "/%" PRId64
                          "  loss %6.4f  norm %6.3f  lr %.1e  %7s  %6.0f tok/s  held %4s peak %8s\n",
                          r->step + 1, t->settings.steps, r->loss, r->grad_norm, r->lr,
                          units_format_seconds(r->seconds, time), row.tokens_per_s, held, peak));
}

/* Under the lines of the steps, which scroll above it; or alone, where they go elsewhere. */
static void show_progress(const struct training *t, const struct step_report *report)
{
    char loss[32];
    snprintf(loss, sizeof loss, "loss %.4f", report->loss);
    progress_show("training", report->step + 1, t->settings.steps, loss);
}

static int on_start(void *context, int rank, struct device *device, const struct program *program,
                    struct error *err)
{
    struct training *t = context;
    return t->recording ? recording_start(t->recording, rank, device, program, err) : 0;
}

static void on_step_begin(void *context, int rank, int64_t step)
{
    struct training *t = context;
    if (t->recording)
        recording_step_begin(t->recording, rank, step);
}

static void on_step(void *context, const struct step_report *report)
{
    struct training *t = context;
    if (t->recording)
        recording_step(t->recording, report);
    if (report->rank != 0)
        return;
    progress_unwatch();
    progress_hide();
    print_step(t, report);
    show_progress(t, report);
}

static void on_validation(void *context, int64_t step, double loss)
{
    struct training *t = context;
    progress_unwatch();
    progress_hide();
    if (t->options->json)
        print_line(t, json_pack("{s:I, s:f}", "validated_steps", (json_int_t)step, "validation_loss", loss));
    else
        finish_line(t, printf("after %" PRId64 " %s  validation loss %.4f\n", step,
                              units_plural(step, "step", "steps"), loss));
}

static void on_checkpoint(void *context, int64_t step, const char *folder)
{
    (void)context;
    log_note("checkpoint of step %" PRId64 " in %s", step, folder);
}

static void on_note(void *context, int rank, const char *text)
{
    (void)context;
    if (rank == 0)
        log_note("%s", text);
}

static void on_finish(void *context, int rank, struct device *device)
{
    struct training *t = context;
    if (t->recording)
        recording_finish(t->recording, rank, device);
}

static void print_closing_line(struct training *t, const struct train_result *result)
{
    int64_t *peaks = host_alloc((size_t)result->ranks * sizeof *peaks);
    int64_t *arenas = host_alloc((size_t)result->ranks * sizeof *arenas);
    for (int i = 0; i < result->ranks; i++) {
        peaks[i] = result->usage[i].peak_bytes;
        arenas[i] = t->settings.policy == MEMORY_ARENA ? pipeline_of_rank(t->pipeline, i)->arena_bytes : 0;
    }
    print_line(t, steps_closing_line(!result->stopped, result->steps_done, peaks, arenas, result->ranks));
    free(peaks);
    free(arenas);
}

/* What a rank's peak was to be, and was. */
struct peak {
    int64_t stage, predicted_bytes, measured_bytes;
};

static struct peak peak_of(const struct training *t, const struct train_result *result, int rank)
{
    const struct program *program = pipeline_of_rank(t->pipeline, rank);
    int64_t predicted_bytes = program->peak_bytes + t->settings.kernels->runtime_bytes;
    return (struct peak){program->stage, predicted_bytes, result->usage[rank].peak_bytes};
}

/* The ranks whose peak is that of rank `first`; none when an earlier one has it too. */
static int64_t collect_equal(const struct training *t, const struct train_result *result, int first,
                             int64_t *ranks)
{
    int64_t count = 0;
    struct peak wanted = peak_of(t, result, first);
    for (int i = 0; i < result->ranks; i++) {
        struct peak peak = peak_of(t, result, i);
        if (memcmp(&peak, &wanted, sizeof peak))
            continue;
        if (i < first)
            return 0;
        ranks[count++] = i;
    }
    return count;
}

/* One line for all ranks of a stage with the same peak. */
static void print_peak(const struct training *t, const char *ranks, struct peak peak)
{
    char predicted[UNITS_TEXT], measured[UNITS_TEXT], stage[32] = "";
    if (t->pipeline->count > 1)
        snprintf(stage, sizeof stage, ", stage %" PRId64, peak.stage);
    printf("%s%s  peak %s measured, %s predicted, error %" PRId64 " bytes\n", ranks, stage,
           units_format_bytes(peak.measured_bytes, measured),
           units_format_bytes(peak.predicted_bytes, predicted), peak.measured_bytes - peak.predicted_bytes);
}

/* The ranks whose peak is the highest: not always rank 0. */
static void print_worst(const struct training *t, const struct train_result *result, struct arena *arena,
                        int64_t *ranks)
{
    int worst = 0;
    for (int i = 1; i < result->ranks; i++)
        if (result->usage[i].peak_bytes > result->usage[worst].peak_bytes)
            worst = i;
    int64_t count = collect_equal(t, result, worst, ranks);
    if (count < result->ranks)
        printf("most on %s\n", ranges_name(arena, "rank", ranks, count));
}

static void print_peaks(const struct training *t, const struct train_result *result)
{
    struct arena *arena = arena_create();
    int64_t *ranks = arena_array(arena, (size_t)result->ranks, sizeof *ranks);
    for (int i = 0; i < result->ranks; i++) {
        int64_t count = collect_equal(t, result, i, ranks);
        if (count)
            print_peak(t, ranges_name(arena, "rank", ranks, count), peak_of(t, result, i));
    }
    print_worst(t, result, arena, ranks);
    arena_free(arena);
}

/* What the driver held is more than what the ledger counts where memory comes from a pool, which takes it in steps. */
static void note_pool(const struct training *t, const struct train_result *result)
{
    char held[UNITS_TEXT], taken[UNITS_TEXT];
    const struct device_usage *usage = &result->usage[0];
    if (strcmp(t->settings.device, "cpu") && usage->machine_peak_bytes > usage->reserved_peak_bytes)
        log_note("the GPU's allocator held %s at most for the %s that were taken",
                 units_format_bytes(usage->machine_peak_bytes, held),
                 units_format_bytes(usage->reserved_peak_bytes, taken));
}

/* Says why steps are left to do, here and in the recording. */
static void note_stop(struct training *t, const struct train_result *result)
{
    char why[80];
    const char *folder = t->options->checkpoint;
    if (!result->stopped)
        return;
    snprintf(why, sizeof why, "stopped by %s after step %" PRId64, stopping_name(result->stopped),
             result->reached);
    if (t->recording)
        recording_note(t->recording, why);
    if (t->world->rank == 0)
        log_note("%s of %" PRId64 "%s%s", why, t->settings.steps, folder ? "; go on with --resume " : "",
                 folder ? folder : "");
    t->stopped_by = result->stopped;
}

static void print_summary(struct training *t, const struct train_result *result)
{
    note_pool(t, result);
    if (!result->steps_done)
        log_note("no step was left to do: %s is at step %" PRId64 " or beyond; give more --steps",
                 t->options->resume, t->options->steps);
    if (t->options->json)
        print_closing_line(t, result);
    else if (result->steps_done)
        print_peaks(t, result);
}

/* Names the ranks that need most, and what would make a refused run fit. */
static void add_advice(struct training *t, struct error *err)
{
    if (err->kind != ERROR_MEMORY)
        return;
    if (t->refused && t->pipeline->count > 1)
        error_append(err, "; that is stage %d of the pipeline", pipeline_worst(t->pipeline));
    capacity_advise(t->plan, t->pipeline, t->settings.kernels->runtime_bytes, err);
}

static int run_steps(struct training *t, struct error *err)
{
    struct train_listener listener = {
        .context = t,
        .start = on_start,
        .step_begin = on_step_begin,
        .step = on_step,
        .validation = on_validation,
        .checkpoint = on_checkpoint,
        .note = on_note,
        .finish = on_finish,
    };
    struct train_result result = {0};
    t->settings.stop = stopping_watch();
    int status = train_run(t->pipeline, &t->settings, &listener, &result, err);
    progress_end();
    if (status) {
        add_advice(t, err);
    } else {
        note_stop(t, &result);
        if (t->world->rank == 0)
            print_summary(t, &result);
    }
    t->steps_done = result.steps_done;
    train_result_clear(&result);
    return status;
}

static int open_recording(struct training *t, const char *command, struct error *err)
{
    struct recording_spec spec = {
        .path = t->options->output,
        .command = command,
        .world = t->world,
        .plan = t->plan,
        .pipeline = t->pipeline,
        .policy = t->settings.policy,
        .kernel_bytes = t->settings.kernels->runtime_bytes,
        .timeline = t->options->timeline,
        .steps = t->settings.steps,
        .event_steps = t->options->event_steps,
    };
    return recording_open(&spec, &t->recording, err);
}

/* A file has no feature vectors in it, and no classes. */
static void note_features(const struct training *t)
{
    const struct model *model = &t->plan->model;
    if (model->family == MODEL_ENCODER && strcmp(t->options->data, "random") && t->world->rank == 0)
        log_note("%s reads feature vectors, and %s has tokens: each token stands for one of a fixed table of "
                 "random "
                 "vectors, and the next token, modulo %" PRId64 " classes, is the label",
                 model->name, t->options->data, model->vocab);
}

/* Rows of logits that are no whole packs of 16 bytes leave cuBLASLt only its slower algorithms, for products that are a third of a
 * small model's. */
static void note_vocabulary(const struct training *t)
{
    enum { PACK = 8, WHOLE = 64 };
    int64_t vocab = t->plan->model.vocab, whole = (vocab + WHOLE - 1) / WHOLE * WHOLE;
    if (strcmp(t->settings.device, "cuda") || vocab % PACK == 0 || t->options->weights ||
        t->options->resume || t->world->rank > 0)
        return;
    log_note("rows of %" PRId64 " logits are no whole packs of %d, which makes their products slow on a GPU; "
             "--vocab %" PRId64 " adds tokens that no text has, and is faster",
             vocab, PACK, whole);
}

/* A run that did not get to a step leaves no recording, unless that shows who held the memory: on this rank, or perhaps on
 * another, which has stopped it. */
static bool is_void(const struct training *t, const struct error *failure)
{
    bool perhaps = failure->kind == ERROR_STOPPED && t->settings.policy == MEMORY_TENSOR;
    return !t->steps_done && failure->kind != ERROR_MEMORY && !perhaps;
}

/* Returns the exit status or -1. A run that was stopped has its own on rank 0 alone: another process that ended with one would
 * have mpirun kill those that are not done yet. */
static int run(struct training *t, const char *command, struct error *err)
{
    const char *output = t->options->output;
    const struct program *worst = t->pipeline->stages[pipeline_worst(t->pipeline)];
    int64_t needed = worst->arena_bytes + t->settings.kernels->runtime_bytes;
    t->refused = t->settings.policy == MEMORY_ARENA && needed > t->plan->capacity_bytes;
    if (train_check_data(t->pipeline, &t->settings, err))
        return -1;
    int status = 0;
    if (!t->refused) {
        note_features(t);
        note_vocabulary(t);
    }
    if (output && !t->refused)
        status = open_recording(t, command, err);
    if (!status)
        status = run_steps(t, err);
    if (status)
        world_stop(t->world, err);
    struct error recording_error = {0};
    if (status && is_void(t, err)) {
        recording_discard(t->recording);
    } else if (recording_close(t->recording, &recording_error) && !status) {
        *err = recording_error;
        status = -1;
    }
    if (!status && output)
        log_note("recorded in %s; read it with: memplan report %s", output, output);
    if (!status && t->broken_output)
        status =
            error_set(err, "the steps could not be written to stdout; is the disk full, or the reader gone?");
    if (!status && t->stopped_by && t->world->rank == 0)
        status = stopping_exit_status(t->stopped_by);
    return status;
}

/* The ranks of other machines take nothing from this one's memory. */
static int share_memory(const struct world *world, struct plan *plan, struct error *err)
{
    struct rank_device cpu;
    if (!world->comm || plan->capacity_bytes != INT64_MAX)
        return 0;
    if (cluster_read_device("cpu", world->ranks_here, &cpu, err))
        return -1;
    plan->capacity_bytes = cpu.capacity_bytes;
    return 0;
}

/* What there is to decide is decided once, on rank 0. */
static int decide_plan(const char *source, const struct training_options *options, const struct world *world,
                       struct plan *out, struct error *err)
{
    bool automatic;
    if (world->rank > 0)
        return 0;
    if (configuration_resolve(source, &options->configuration, out, &automatic, err)) {
        *out = (struct plan){0};
        return -1;
    }
    if (check_ranks(world, &out->layout, err) || share_memory(world, out, err))
        return -1;
    return capacity_decide(out, options->device, world, options->memory, automatic, err);
}

static int execute(const char *source, const struct training_options *options, enum memory_policy policy,
                   const char *command, const struct world *world, struct error *err)
{
    struct plan plan = {0};
    struct training t = {.options = options, .world = world, .plan = &plan};
    struct pipeline *pipeline = NULL;
    int status = -1;
    if (decide_plan(source, options, world, &plan, err) || world_share_plan(world, &plan, err) ||
        make_settings(&t, policy, err) || plan_pipeline(&plan, &pipeline, err))
        goto done;
    t.pipeline = pipeline;
    status = run(&t, command, err);
done:
    pipeline_free(pipeline);
    plan_clear(&plan);
    return status;
}

int training_execute(const char *source, const struct training_options *options, enum memory_policy policy,
                     const char *command, struct error *err)
{
    struct world world;
    log_set_quiet(options->quiet);
    int status = world_open(&world, err);
    if (!status && world.comm && options->device && !strcmp(options->device, "cuda"))
        status = world_find_gpus(&world, err);
    if (!status)
        status = execute(source, options, policy, command, &world, err);
    return world_close(&world, status, err);
}
