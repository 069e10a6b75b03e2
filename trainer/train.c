#include "trainer/train.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/units.h"
#include "comm/comm.h"
#include "trainer/checkpoint.h"
#include "trainer/data.h"
#include "trainer/execute.h"
#include "trainer/groups.h"
#include "trainer/public_weights.h"
#include "trainer/weights.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

/* The whole run, shared by its ranks in this process. */
struct run_state {
    const struct pipeline *pipeline;
    const struct layout *layout;
    const struct train_settings *settings;
    const struct train_listener *listener;
    struct data *data;
    int threads_per_rank;
    pthread_mutex_t lock; /* one listener call at a time; also guards what follows */
    bool failed;
    struct error error; /* of the rank that failed first */
    struct train_result *result;
};

struct rank {
    struct run_state *run;
    const struct program *program; /* of its stage */
    int number;
    bool first; /* in this process */
    struct layout_place place;
    struct comm *comm; /* all ranks */
    struct groups groups;
    pthread_t thread;
    struct device *device;
    void *kernel_device; /* what the kernels have of it */
    struct step_memory *memory;
    struct executor *executor;
    int64_t first_step;
    int stop;      /* some rank was asked to stop, with this: the step at work is the last */
    bool listened; /* the listener knows this rank's device */
};

struct train_settings train_defaults(void)
{
    return (struct train_settings){
        .data_path = "random",
        .seed = 1,
        .steps = 10,
        .rate = {.kind = LEARNING_RATE_COSINE, .peak = 3e-4, .min_fraction = 0.1},
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .decay = 0.1,
        .max_norm = 1,
        .validation_batches = 4,
        .device = "cpu",
        .kernels = &kernels_cpu,
    };
}

static int open_data(const struct program *program, const struct train_settings *settings, int threads,
                     struct data **out, struct error *err)
{
    const struct model *model = &program->model;
    struct data_spec spec = {
        .path = settings->data_path,
        .vocab = model->vocab,
        .seq_len = program->layout.seq_len,
        .feature_dim = model->family == MODEL_ENCODER ? model->hidden : 0,
        .seed = settings->seed,
        .validation_fraction = settings->validate_every ? 0.1 : 0,
        .threads = threads,
    };
    return data_open(&spec, out, err);
}

int train_check_data(const struct pipeline *pipeline, const struct train_settings *settings,
                     struct error *err)
{
    struct data *data;
    const struct program *program = pipeline->stages[0];
    if (open_data(program, settings, 1, &data, err))
        return -1;
    data_close(data);
    return 0;
}

static int check_fits(const struct pipeline *pipeline, const struct train_settings *settings,
                      struct error *err)
{
    const struct program *program = pipeline->stages[pipeline_worst(pipeline)];
    int64_t needed = program->arena_bytes + settings->kernels->runtime_bytes;
    char need[UNITS_TEXT], have[UNITS_TEXT];
    if (settings->policy != MEMORY_ARENA || settings->capacity_bytes <= 0 ||
        needed <= settings->capacity_bytes)
        return 0;
    return error_set_kind(
        err, ERROR_MEMORY, "does not fit: a rank needs %s (%lld bytes) and its device has %s (%lld bytes)",
        units_format_bytes(needed, need), (long long)needed,
        units_format_bytes(settings->capacity_bytes, have), (long long)settings->capacity_bytes);
}

/* The first failure is the one to tell; the others only follow from it. */
static void rank_failed(struct rank *rank, const struct error *err)
{
    struct run_state *run = rank->run;
    pthread_mutex_lock(&run->lock);
    if (!run->failed || (run->error.kind == ERROR_STOPPED && err->kind != ERROR_STOPPED)) {
        run->failed = true;
        run->error = *err;
        if (err->kind != ERROR_STOPPED && run->result->ranks > 1)
            error_prefix(&run->error, "rank %d", rank->number);
    }
    pthread_mutex_unlock(&run->lock);
    comm_abort(rank->comm, err->text);
}

static struct state_access rank_states(const struct rank *rank)
{
    return (struct state_access){
        .program = rank->program,
        .device = rank->device,
        .memory = rank->memory,
        .place = rank->place,
    };
}

static int resume(struct rank *rank, struct error *err)
{
    const struct run_state *run = rank->run;
    const struct layout *layout = run->layout;
    struct state_access access = rank_states(rank);
    struct checkpoint_info info;
    const char *folder = run->settings->resume_folder;
    if (checkpoint_read(folder, &access, &info, err))
        return -1;
    if (info.seed != run->settings->seed || info.global_batch != layout->global_batch ||
        info.seq_len != layout->seq_len)
        return error_set(
            err,
            "%s: was made with --seed %llu --global-batch %lld --seq-len %lld, on which the order of the "
            "data depends; resume with the same",
            folder, (unsigned long long)info.seed, (long long)info.global_batch, (long long)info.seq_len);
    rank->first_step = info.step;
    return 0;
}

static int open_device(struct rank *rank, struct error *err)
{
    const struct train_settings *settings = rank->run->settings;
    struct device_choice choice = {
        .kind = settings->device,
        .ordinal = settings->world ? settings->gpu : rank->number,
        .used = settings->world ? 1 : rank->run->result->ranks,
        .capacity_bytes = settings->capacity_bytes,
        .poison = settings->poison,
    };
    return device_open(&choice, &rank->device, err);
}

static int rank_open(struct rank *rank, struct error *err)
{
    struct run_state *run = rank->run;
    const struct train_settings *settings = run->settings;
    const struct train_listener *listener = run->listener;
    if (open_device(rank, err))
        return -1;
    if (listener->start) {
        pthread_mutex_lock(&run->lock);
        int status = listener->start(listener->context, rank->number, rank->device, rank->program, err);
        rank->listened = !status;
        pthread_mutex_unlock(&run->lock);
        if (status)
            return -1;
    }
    if (run->result->ranks > 1 && groups_open(rank->comm, rank->device, rank->program, &rank->groups, err))
        return -1;
    if (settings->kernels->open && settings->kernels->open(rank->device, &rank->kernel_device, err))
        return -1;
    if (step_memory_open(rank->program, rank->device, settings->policy, &rank->memory, err))
        return -1;
    struct executor_parts parts = {
        .program = rank->program,
        .rank = rank->number,
        .device = rank->device,
        .kernels = settings->kernels,
        .kernel_device = rank->kernel_device,
        .record_steps = settings->record_steps && settings->policy == MEMORY_ARENA && !settings->poison,
        .pair_operations = settings->pair_operations && !settings->poison,
        .groups = rank->groups,
        .memory = rank->memory,
        .data = run->data,
        .threads = run->threads_per_rank,
    };
    rank->executor = executor_create(&parts);
    if (settings->resume_folder)
        return resume(rank, err);
    struct state_access access = rank_states(rank);
    weights_initialize(&access, settings->seed, run->threads_per_rank);
    if (settings->weights_path)
        return public_weights_read(settings->weights_path, &access, run->threads_per_rank, err);
    return 0;
}

/* The bytes of this rank's step, or of any rank's that holds more; and whether it is the last. A rank that looked for itself
 * might go on to a step for which the others have stopped. */
static int share_step(struct rank *rank, struct step_report *report, struct error *err)
{
    struct device_usage usage = device_usage(rank->device);
    const atomic_int *stop = rank->run->settings->stop;
    double most[] = {(double)usage.live_bytes, (double)usage.recent_peak_bytes, stop ? atomic_load(stop) : 0};
    if (comm_all_reduce(rank->comm, &(struct comm_span){most, 3}, 1, DTYPE_F64, COMM_MAX, err))
        return -1;
    report->held_bytes = (int64_t)most[0];
    report->peak_bytes = (int64_t)most[1];
    rank->stop = (int)most[2];
    return 0;
}

static int report_step(struct rank *rank, int64_t step, const struct step_result *result, double lr,
                       double seconds, struct error *err)
{
    struct run_state *run = rank->run;
    const struct layout *layout = run->layout;
    struct step_report report = {
        .rank = rank->number,
        .step = step,
        .loss = result->loss,
        .grad_norm = result->grad_norm,
        .lr = lr,
        .seconds = seconds,
        .tokens = layout->global_batch * layout->seq_len,
    };
    if (rank->groups.data)
        comm_times(rank->groups.data, &report.communication_busy_s, &report.communication_waited_s);
    if (share_step(rank, &report, err))
        return -1;
    pthread_mutex_lock(&run->lock);
    if (run->listener->step)
        run->listener->step(run->listener->context, &report);
    if (rank->first) {
        run->result->steps_done++;
        run->result->reached = step + 1;
        run->result->stopped = step + 1 < run->settings->steps ? rank->stop : 0;
        run->result->final_loss = result->loss;
    }
    pthread_mutex_unlock(&run->lock);
    return 0;
}

static void report_validation(struct run_state *run, int64_t done, double loss)
{
    pthread_mutex_lock(&run->lock);
    if (run->listener->validation)
        run->listener->validation(run->listener->context, done, loss);
    pthread_mutex_unlock(&run->lock);
}

static void report_checkpoint(struct run_state *run, int64_t done)
{
    pthread_mutex_lock(&run->lock);
    if (run->listener->checkpoint)
        run->listener->checkpoint(run->listener->context, done, run->settings->checkpoint_folder);
    pthread_mutex_unlock(&run->lock);
}

static bool due(int64_t step_done, int64_t every, int64_t total)
{
    return (every > 0 && step_done % every == 0) || step_done == total;
}

static int write_checkpoint(struct rank *rank, int64_t done, struct error *err)
{
    struct run_state *run = rank->run;
    struct state_access access = rank_states(rank);
    struct checkpoint_info info = {done, run->settings->seed, run->layout->global_batch,
                                   run->layout->seq_len};
    if (checkpoint_write(run->settings->checkpoint_folder, &access, &info, rank->comm, err))
        return -1;
    if (rank->number == 0)
        report_checkpoint(run, done);
    return 0;
}

/* When a run ends, a device that waits for another rank is let go with whatever is in its memory, and the host sees the
 * numbers before it sees the end: then the end is the failure, and not what the numbers are. */
static int check_ended(const struct rank *rank, int status, struct error *err)
{
    struct error ended;
    if (!device_is_asynchronous(rank->device) || !comm_check(rank->comm, &ended))
        return status;
    *err = ended;
    return -1;
}

static int validate(struct rank *rank, int64_t done, struct error *err)
{
    double loss;
    int64_t batches = rank->run->settings->validation_batches;
    if (check_ended(rank, executor_validate(rank->executor, batches, &loss, err), err))
        return -1;
    if (rank->number == 0)
        report_validation(rank->run, done, loss);
    return 0;
}

/* Replica 0 alone validates: replicas are equal. The others wait at the next collective. */
static int after_step(struct rank *rank, int64_t done, struct error *err)
{
    struct run_state *run = rank->run;
    const struct train_settings *settings = run->settings;
    if (rank->place.replica == 0 && settings->validate_every &&
        data_samples(run->data, DATA_VALIDATION) > 0 &&
        due(done, settings->validate_every, settings->steps) && validate(rank, done, err))
        return -1;
    if (settings->checkpoint_folder && (rank->stop || due(done, settings->checkpoint_every, settings->steps)))
        return write_checkpoint(rank, done, err);
    return 0;
}

static void report_note(struct rank *rank, const char *text)
{
    struct run_state *run = rank->run;
    pthread_mutex_lock(&run->lock);
    if (run->listener->note)
        run->listener->note(run->listener->context, rank->number, text);
    pthread_mutex_unlock(&run->lock);
}

static int rank_step(struct rank *rank, int64_t step, struct error *err)
{
    const struct train_settings *settings = rank->run->settings;
    struct update update = {
        .lr = learning_rate_at(&settings->rate, step, settings->steps),
        .beta1 = settings->beta1,
        .beta2 = settings->beta2,
        .eps = settings->eps,
        .decay = settings->decay,
        .max_norm = settings->max_norm,
    };
    const struct train_listener *listener = rank->run->listener;
    if (listener->step_begin) {
        pthread_mutex_lock(&rank->run->lock);
        listener->step_begin(listener->context, rank->number, step);
        pthread_mutex_unlock(&rank->run->lock);
    }
    struct step_result result;
    device_watch_peak(rank->device);
    int64_t start_ns = clock_ns();
    if (check_ended(rank, executor_step(rank->executor, step, &update, &result, err), err))
        return -1;
    double seconds = (double)(clock_ns() - start_ns) * 1e-9;
    if (result.note)
        report_note(rank, result.note);
    if (report_step(rank, step, &result, update.lr, seconds, err))
        return -1;
    return after_step(rank, step + 1, err);
}

/* First a recorded step, which holds the collectives; then those: after a failure the other ranks may still be adding up this
 * one's gradients, which lie in the memory that goes next. */
static void rank_close(struct rank *rank)
{
    struct run_state *run = rank->run;
    if (rank->device)
        device_forget(rank->device);
    groups_close(&rank->groups);
    if (rank->comm != run->settings->world)
        comm_close(rank->comm);
    if (rank->device)
        run->result->usage[rank->number] = device_usage(rank->device);
    if (rank->listened && run->listener->finish) {
        pthread_mutex_lock(&run->lock);
        run->listener->finish(run->listener->context, rank->number, rank->device);
        pthread_mutex_unlock(&run->lock);
    }
    executor_free(rank->executor);
    step_memory_close(rank->memory);
    if (rank->kernel_device)
        run->settings->kernels->close(rank->kernel_device);
    device_close(rank->device);
}

static void *rank_main(void *argument)
{
    struct rank *rank = argument;
    struct error err = {0};
    int status = rank_open(rank, &err);
    for (int64_t step = rank->first_step; !status && !rank->stop && step < rank->run->settings->steps; step++)
        status = rank_step(rank, step, &err);
    if (status)
        rank_failed(rank, &err);
    rank_close(rank);
    return NULL;
}

static int open_comms(int ranks, struct comm **out, struct error *err)
{
    return ranks == 1 ? comm_open_self(out, err) : comm_open_threads(ranks, out, err);
}

static struct rank rank_create(struct run_state *run, int number, bool first, struct comm *comm)
{
    return (struct rank){
        .run = run,
        .program = pipeline_of_rank(run->pipeline, number),
        .number = number,
        .first = first,
        .place = layout_place_of(run->layout, number),
        .comm = comm,
    };
}

/* Everybody learns everybody's. */
static int share_usage(struct run_state *run, struct error *err)
{
    struct comm *world = run->settings->world;
    int64_t words = sizeof(struct device_usage) / dtype_bytes(DTYPE_I32);
    struct device_usage mine = run->result->usage[comm_rank(world)];
    struct comm_span part = {&mine, words}, full = {run->result->usage, words * run->result->ranks};
    return comm_all_gather(world, &part, &full, 1, DTYPE_I32, err);
}

/* This process is one rank; the others are processes too. */
static int run_launched(struct run_state *run, struct error *err)
{
    struct comm *world = run->settings->world;
    struct rank rank = rank_create(run, comm_rank(world), true, world);
    rank_main(&rank);
    if (!run->failed)
        return share_usage(run, err);
    *err = run->error;
    return -1;
}

/* Rank 0 runs on the caller's thread. */
static int run_threads(struct run_state *run, struct error *err)
{
    int ranks = run->result->ranks, started = 1;
    struct rank *list = host_alloc((size_t)ranks * sizeof *list);
    struct comm **comms = host_alloc((size_t)ranks * sizeof(struct comm *));
    int status = open_comms(ranks, comms, err);
    if (status)
        goto done;
    for (int i = 0; i < ranks; i++)
        list[i] = rank_create(run, i, i == 0, comms[i]);
    for (; started < ranks; started++)
        if (pthread_create(&list[started].thread, NULL, rank_main, &list[started])) {
            struct error failure;
            error_set(&failure, "cannot start a thread for rank %d of %d; use fewer ranks (--dp, --tp)",
                      started, ranks);
            rank_failed(&list[started], &failure);
            break;
        }
    for (int i = started; i < ranks; i++)
        comm_close(comms[i]);
    rank_main(&list[0]);
    for (int i = 1; i < started; i++)
        pthread_join(list[i].thread, NULL);
    if (run->failed) {
        *err = run->error;
        if (err->kind == ERROR_STOPPED)
            err->kind = ERROR_INPUT; /* there is nobody else to tell */
        status = -1;
    }
done:
    free(comms);
    free(list);
    return status;
}

/* A launcher may bind a process to some of the cores, or leave all of them to all processes. */
static int threads_per_rank(const struct train_settings *settings, int ranks)
{
    int ranks_here = settings->world ? settings->ranks_here : ranks;
    int64_t cores = sysconf(_SC_NPROCESSORS_ONLN), mine = cores;
    cpu_set_t bound;
    if (settings->threads > 0)
        return (int)max_i64(1, settings->threads / ranks_here);
    if (!sched_getaffinity(0, sizeof bound, &bound))
        mine = settings->world ? CPU_COUNT(&bound) : CPU_COUNT(&bound) / ranks_here;
    return (int)max_i64(1, min_i64(mine, cores / ranks_here));
}

int train_run(const struct pipeline *pipeline, const struct train_settings *settings,
              const struct train_listener *listener, struct train_result *result, struct error *err)
{
    static const struct train_listener nobody = {0};
    const struct program *program = pipeline->stages[0];
    int ranks = (int)layout_ranks(&program->layout);
    *result = (struct train_result){.ranks = ranks};
    if (check_fits(pipeline, settings, err))
        return -1;
    struct run_state run = {
        .pipeline = pipeline,
        .layout = &program->layout,
        .settings = settings,
        .listener = listener ? listener : &nobody,
        .threads_per_rank = threads_per_rank(settings, ranks),
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .result = result,
    };
    if (open_data(program, settings, run.threads_per_rank, &run.data, err))
        return -1;
    result->usage = host_alloc((size_t)ranks * sizeof *result->usage);
    int status = settings->world ? run_launched(&run, err) : run_threads(&run, err);
    data_close(run.data);
    return status;
}

void train_result_clear(struct train_result *result)
{
    free(result->usage);
    *result = (struct train_result){0};
}
