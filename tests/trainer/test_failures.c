/* Whatever happens to one rank of a run (a kernel that fails, memory that is gone, a loss that is no number), and however the
 * ranks depend on each other, all end at once with one message that says where; and the last checkpoint goes on as if nothing
 * had happened. (Ranks that are processes: check_mpirun_failures.sh.) */
#include "base/clock.h"
#include "base/text.h"
#include "tests/test.h"
#include "tests/trainer/runs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 6, FAILING_RANK = 1, FAILING_STEP = 3, LAYOUTS = 3 }; /* step 3 is the fourth */

static const char *const layouts[LAYOUTS] = {"dp=2 micro=1 batch=4 seq=17", "tp=2 micro=1 batch=2 seq=17",
                                             "pp=2 micro=1 batch=4 seq=17"};

/* In the thread of the rank, in the step, in which it is to happen. */
static _Thread_local bool is_due;

static void begin_step(void *context, int rank, int64_t step)
{
    (void)context;
    is_due = rank == FAILING_RANK && step == FAILING_STEP;
}

static int failing_matmul(const struct kernel_context *context, const struct matmul_args *args,
                          struct error *err)
{
    return is_due ? error_set(err, "the unit is on fire") : kernels_cpu.matmul(context, args, err);
}

static int wrong_matmul(const struct kernel_context *context, const struct matmul_args *args,
                        struct error *err)
{
    int status = kernels_cpu.matmul(context, args, err);
    if (is_due)
        *(float *)args->y = NAN;
    return status;
}

/* The rank whose memory somebody else takes, down to a byte less than its peak needs. */
struct crowded {
    struct device *device;
    int64_t bytes;
};

static int find_room(void *context, int rank, struct device *device, const struct program *program,
                     struct error *err)
{
    (void)err;
    struct crowded *crowded = context;
    if (rank == FAILING_RANK) {
        crowded->device = device;
        crowded->bytes -= program->peak_bytes - 1;
    }
    return 0;
}

static void crowd(void *context, int rank, int64_t step)
{
    struct error err = {0};
    struct crowded *crowded = context;
    struct memory_tag tag = {.tensor = -1, .role = ROLE_RUNTIME, .name = "a stranger"};
    if (rank == FAILING_RANK && step == FAILING_STEP)
        ASSERT_MSG(device_alloc(crowded->device, crowded->bytes, tag, &err) != NULL, "%s", err.text);
}

/* A run of `layout` with a checkpoint after every step in `folder`, which the caller may still change. */
struct trial {
    struct pipeline *pipeline;
    struct train_settings settings;
    char folder[RUNS_PATH];
};

static struct trial trial_open(const char *layout)
{
    struct trial trial = {.pipeline = runs_pipeline("gpt2-tiny", layout, "none"),
                          .settings = runs_settings(STEPS)};
    runs_open_folder(trial.folder);
    trial.settings.checkpoint_every = 1;
    return trial;
}

static void trial_close(struct trial *trial)
{
    runs_remove_folder(trial->folder);
    pipeline_free(trial->pipeline);
}

static struct error trial_fail(struct trial *trial, const struct train_listener *listener)
{
    struct error err = {0};
    struct train_result result;
    int64_t start_ns = clock_ns();
    trial->settings.checkpoint_folder = trial->folder;
    ASSERT_INT(train_run(trial->pipeline, &trial->settings, listener, &result, &err), -1);
    ASSERT((double)(clock_ns() - start_ns) < 10e9);
    ASSERT_INT(result.steps_done, FAILING_STEP);
    train_result_clear(&result);
    return err;
}

/* The tensors after the last step. */
static char *read_last(const char *folder, size_t *bytes)
{
    char path[2 * RUNS_PATH], *data;
    struct error err = {0};
    snprintf(path, sizeof path, "%s/step-%06d.safetensors", folder, STEPS);
    ASSERT_OK(text_read_file(path, 64 << 20, &data, bytes, &err));
    return data;
}

/* What the failed run has left, to its end, has the bytes of a run that nothing happened to. */
static void trial_go_on(struct trial *trial)
{
    char undisturbed[RUNS_PATH];
    size_t bytes, expected_bytes;
    runs_open_folder(undisturbed);
    trial->settings.kernels = &kernels_cpu;
    trial->settings.resume_folder = trial->folder;
    struct history rest = runs_train(trial->pipeline, &trial->settings);
    ASSERT_INT(rest.first_step, FAILING_STEP);
    trial->settings.resume_folder = NULL;
    trial->settings.checkpoint_folder = undisturbed;
    runs_train(trial->pipeline, &trial->settings);
    char *got = read_last(trial->folder, &bytes), *expected = read_last(undisturbed, &expected_bytes);
    ASSERT_INT(bytes, expected_bytes);
    ASSERT(!memcmp(got, expected, bytes));
    free(got);
    free(expected);
    runs_remove_folder(undisturbed);
}

TEST_LOOP(failures_kernel, "a kernel that fails on one rank of two: dp, tp, pp", LAYOUTS)
{
    struct trial trial = trial_open(layouts[_i]);
    struct train_listener listener = {.step_begin = begin_step};
    struct kernel_table kernels = kernels_cpu;
    kernels.matmul = failing_matmul;
    trial.settings.kernels = &kernels;
    struct error err = trial_fail(&trial, &listener);
    ASSERT_INT(err.kind, ERROR_INPUT);
    /* Stage 1 of two begins with layer 1. */
    ASSERT_STR(err.text, _i == 2 ? "rank 1: step 4, forward layer 1 matmul: the unit is on fire"
                                 : "rank 1: step 4, forward layer 0 matmul: the unit is on fire");
    trial_go_on(&trial);
    trial_close(&trial);
}

TEST_LOOP(failures_memory, "memory that one rank of two has lost: dp, tp, pp", LAYOUTS)
{
    struct trial trial = trial_open(layouts[_i]);
    int64_t room = 64 << 20;
    struct crowded crowded = {.bytes = room};
    struct train_listener listener = {.context = &crowded, .start = find_room, .step_begin = crowd};
    trial.settings.policy = MEMORY_TENSOR;
    trial.settings.capacity_bytes = room;
    struct error err = trial_fail(&trial, &listener);
    ASSERT_INT(err.kind, ERROR_MEMORY);
    ASSERT_INT(strncmp(err.text, "rank 1: step 4, ", 16), 0);
    ASSERT_HAS(err.text, "1 B short");
    trial.settings.capacity_bytes = 0;
    trial_go_on(&trial);
    trial_close(&trial);
}

/* Both ranks may see it, and at the same moment: one of them tells. */
TEST_LOOP(failures_number, "a loss that is no number, from one rank of two: dp, tp, pp", LAYOUTS)
{
    struct trial trial = trial_open(layouts[_i]);
    struct train_listener listener = {.step_begin = begin_step};
    struct kernel_table kernels = kernels_cpu;
    kernels.matmul = wrong_matmul;
    trial.settings.kernels = &kernels;
    struct error err = trial_fail(&trial, &listener);
    int rank = -1, named = 0;
    ASSERT_INT(err.kind, ERROR_INPUT);
    sscanf(err.text, "rank %d: step 4, %n", &rank, &named);
    ASSERT_MSG(named > 0 && (rank == 0 || rank == 1), "%s", err.text);
    ASSERT_HAS(err.text, " is nan; lower --lr");
    ASSERT_HAS(err.text, "cross_entropy");
    trial_go_on(&trial);
    trial_close(&trial);
}
