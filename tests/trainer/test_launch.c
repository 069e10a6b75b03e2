/* Memory runs out at launch or never, and a run that cannot go on ends everywhere at once, with one sentence. */
#include "base/clock.h"
#include "tests/test.h"
#include "tests/trainer/runs.h"

#include <stdlib.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Whether anything was taken: a run that is refused at launch opens no device. */
static int count_start(void *context, int rank, struct device *device, const struct program *program,
                       struct error *err)
{
    (void)rank, (void)device, (void)program, (void)err;
    ++*(int *)context;
    return 0;
}

TEST(launch_arena,
     "a capacity of exactly the arena trains; one byte less is refused before anything is taken")
{
    struct error err = {0};
    int starts = 0;
    struct train_result result;
    struct train_listener listener = {.context = &starts, .start = count_start};
    struct pipeline *pipeline = runs_pipeline("gpt2-tiny", "dp=2 micro=1 batch=4 seq=17", "0=full");
    struct train_settings settings = runs_settings(3);
    settings.capacity_bytes = pipeline->stages[0]->arena_bytes;
    struct history history = runs_train(pipeline, &settings);
    ASSERT_INT(history.steps, 3);
    ASSERT_INT(history.usage[0].reserved_peak_bytes, settings.capacity_bytes);

    settings.capacity_bytes--;
    ASSERT_INT(train_run(pipeline, &settings, &listener, &result, &err), -1);
    ASSERT_INT(err.kind, ERROR_MEMORY);
    ASSERT_HAS(err.text, "does not fit");
    ASSERT_INT(starts, 0);
    ASSERT_INT(result.steps_done, 0);
    train_result_clear(&result);
    pipeline_free(pipeline);
}

/* One byte short: the tensor that would have made the peak does not come, and the message says whose fault it is. */
TEST(launch_tensor,
     "tensor by tensor, the predicted peak is enough, and one byte less fails at a named tensor")
{
    struct pipeline *pipeline = runs_pipeline("llama-tiny", "micro=2 batch=4 seq=17 bf16", "none");
    const struct program *program = pipeline->stages[0];
    struct train_settings settings = runs_settings(3);
    settings.policy = MEMORY_TENSOR;
    settings.capacity_bytes = pipeline->stages[0]->peak_bytes;
    struct history history = runs_train(pipeline, &settings);
    ASSERT_INT(history.steps, 3);

    settings.capacity_bytes--;
    struct error err = runs_fail(pipeline, &settings);
    ASSERT_INT(err.kind, ERROR_MEMORY);
    char instance[PROGRAM_NAME];
    ASSERT_HAS(err.text, "step 1, ");
    ASSERT_HAS(err.text, phase_name(program->peak.phase));
    ASSERT_HAS(err.text, program_instance_name(program, program->peak.instance, instance));
    const struct block *block = program_block(program, program->peak.instance);
    const struct op *op = &block->ops[program->peak.op];
    ASSERT(op->birth_count > 0);
    ASSERT_HAS(err.text, block->tensors[op->births[op->birth_count - 1]].name);
    ASSERT_HAS(err.text, "1 B short");
    ASSERT_HAS(err.text, "held: parameter ");
    ASSERT_HAS(err.text, "optimizer ");
    ASSERT_HAS(err.text, "activation ");
    pipeline_free(pipeline);
}

/* Rank 2's device has lost a byte to somebody else, so its step fails half way, while the others go on to wait for its
 * gradients. */
static int crowd_rank_2(void *context, int rank, struct device *device, const struct program *program,
                        struct error *err)
{
    (void)context, (void)program;
    struct memory_tag tag = {.tensor = -1, .role = ROLE_RUNTIME, .name = "a stranger"};
    return rank != 2 || device_alloc(device, 1, tag, err) ? 0 : -1;
}

static int refuse_rank_3(void *context, int rank, struct device *device, const struct program *program,
                         struct error *err)
{
    (void)context, (void)device, (void)program;
    return rank == 3 ? error_set(err, "no place to record in") : 0;
}

static struct error fail_with(const struct pipeline *pipeline, const struct train_settings *settings,
                              const struct train_listener *listener)
{
    struct error err = {0};
    struct train_result result;
    int64_t start_ns = clock_ns();
    ASSERT_INT(train_run(pipeline, settings, listener, &result, &err), -1);
    ASSERT((double)(clock_ns() - start_ns) < 5e9);
    train_result_clear(&result);
    return err;
}

TEST(launch_one_rank_fails, "when one rank of four runs out of memory, all end at once with its message")
{
    struct train_listener listener = {.start = crowd_rank_2};
    struct pipeline *pipeline = runs_pipeline("gpt2-tiny", "dp=4 micro=1 batch=8 seq=17 bucket=4096", "none");
    struct train_settings settings = runs_settings(3);
    settings.policy = MEMORY_TENSOR;
    settings.capacity_bytes = pipeline->stages[0]->peak_bytes;
    struct error err = fail_with(pipeline, &settings, &listener);
    ASSERT_INT(err.kind, ERROR_MEMORY);
    ASSERT_INT(strncmp(err.text, "rank 2: step 1, ", 16), 0);
    ASSERT_HAS(err.text, "runtime 1 B");
    ASSERT(!strstr(strstr(err.text, "rank") + 1, "rank"));
    pipeline_free(pipeline);
}

/* 2^39 micro-batches, more than a layout takes: a word for each tensor of each would take 2^48 bytes. */
TEST(launch_many_micro_batches, "the host's memory for a step does not grow with the number of micro-batches")
{
    struct error err = {0};
    struct device *device;
    struct step_memory *memory;
    struct program *program = runs_program("gpt2-tiny", "micro=2 batch=8 seq=17", "none");
    program->micro_batches = 1LL << 39;
    ASSERT_OK(device_open_cpu(0, false, &device, &err));
    ASSERT_OK(step_memory_open(program, device, MEMORY_ARENA, &memory, &err));
    step_memory_close(memory);
    device_close(device);
    program_free(program);
}

/* Fails on one rank of two, when both are there: just before, both have handed the gradients of all layers to their
 * workers, which are busy for milliseconds. */
static int fail_once_both_are_here(const struct kernel_context *context, const struct embed_grad_args *args,
                                   struct error *err)
{
    static atomic_int arrived;
    int before = atomic_fetch_add(&arrived, 1);
    for (int ms = 0; ms < 5000 && atomic_load(&arrived) < 2; ms++)
        usleep(1000);
    return before ? error_set(err, "the table is gone") : kernels_cpu.embed_grad(context, args, err);
}

/* 789,760 parameters in each of 8 layers: 25,272,320 bytes of gradients, one bucket. */
TEST(launch_fails_while_reducing,
     "a rank that fails keeps its gradients until the other ranks' collectives have left them")
{
    struct train_listener nobody = {0};
    struct pipeline *pipeline =
        runs_pipeline("gpt2-small-bytes layers=8", "dp=2 micro=1 seq=2 bucket=25000000", "none");
    struct kernel_table kernels = kernels_cpu;
    kernels.embed_grad = fail_once_both_are_here;
    struct train_settings settings = runs_settings(1);
    settings.kernels = &kernels;
    settings.policy = MEMORY_TENSOR;
    struct error err = fail_with(pipeline, &settings, &nobody);
    ASSERT_HAS(err.text, "backward embed embed_grad: the table is gone");
    pipeline_free(pipeline);
}

/* The other rank may be anywhere in its next step when rank 0 validates and writes. */
struct occupied {
    atomic_bool inside;
    int calls;
};

static void occupy(struct occupied *occupied)
{
    ASSERT(!atomic_exchange(&occupied->inside, true));
    usleep(2000);
    occupied->calls++;
    atomic_store(&occupied->inside, false);
}

static void occupied_begin(void *context, int rank, int64_t step)
{
    (void)rank, (void)step;
    occupy(context);
}

static void occupied_step(void *context, const struct step_report *report)
{
    (void)report;
    occupy(context);
}

static void occupied_validation(void *context, int64_t step, double loss)
{
    (void)step, (void)loss;
    occupy(context);
}

static void occupied_checkpoint(void *context, int64_t step, const char *folder)
{
    (void)step, (void)folder;
    occupy(context);
}

/* 4 steps of 2 ranks: a begin and a report each, and from rank 0 a validation and a checkpoint. */
TEST(launch_listener_alone, "the listener is called by one rank at a time")
{
    char folder[RUNS_PATH], checkpoint[RUNS_PATH + 16], path[RUNS_PATH], text[4000];
    memset(text, 'a', sizeof text);
    runs_open_folder(folder);
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint", folder);
    struct occupied occupied = {0};
    struct train_listener listener = {.context = &occupied,
                                      .step_begin = occupied_begin,
                                      .step = occupied_step,
                                      .validation = occupied_validation,
                                      .checkpoint = occupied_checkpoint};
    struct pipeline *pipeline = runs_pipeline("gpt2-tiny", "dp=2 micro=1 seq=17", "none");
    struct train_settings settings = runs_settings(4);
    settings.data_path = runs_write_file(folder, "a.txt", text, sizeof text, path);
    settings.validate_every = settings.checkpoint_every = 1;
    settings.checkpoint_folder = checkpoint;
    struct error err = {0};
    struct train_result result;
    ASSERT_OK(train_run(pipeline, &settings, &listener, &result, &err));
    ASSERT_INT(occupied.calls, 4 * (2 * 2 + 2));
    train_result_clear(&result);
    pipeline_free(pipeline);
    runs_remove_folder(folder);
}

TEST(launch_one_rank_refuses, "when one rank of four cannot start, all end at once with its message")
{
    struct train_listener listener = {.start = refuse_rank_3};
    struct pipeline *pipeline = runs_pipeline("gpt2-tiny", "dp=4 micro=1 seq=17", "none");
    struct train_settings settings = runs_settings(3);
    struct error err = fail_with(pipeline, &settings, &listener);
    ASSERT_STR(err.text, "rank 3: no place to record in");
    pipeline_free(pipeline);
}

/* AdamW moves every weight by about lr in its first step: 1e30 makes the second forward overflow. */
TEST(launch_diverges, "a loss that is no number ends the run, and the message names the learning rate")
{
    struct pipeline *pipeline = runs_pipeline("gpt2-tiny", "dp=2 micro=1 seq=17", "none");
    struct train_settings settings = runs_settings(10);
    settings.rate.peak = 1e30;
    struct error err = {0};
    struct history history;
    ASSERT_INT(runs_try(pipeline, &settings, &history, &err), -1);
    ASSERT(history.steps < 10);
    ASSERT_HAS(err.text, "the loss is ");
    ASSERT_HAS(err.text, "nan");
    ASSERT_HAS(err.text, "--lr");
    pipeline_free(pipeline);
}

/* 16 letters and one window of 17 + 1. */
TEST(launch_short_data, "data shorter than one sequence are refused with the length that would do")
{
    char folder[RUNS_PATH], path[RUNS_PATH];
    runs_open_folder(folder);
    struct pipeline *pipeline = runs_pipeline("gpt2-tiny", "micro=1 seq=17", "none");
    struct train_settings settings = runs_settings(1);
    settings.data_path = runs_write_file(folder, "short.txt", "sixteen letters.", 16, path);
    struct error err = runs_fail(pipeline, &settings), early = {0};
    ASSERT_INT(err.kind, ERROR_INPUT);
    ASSERT_HAS(err.text, "short.txt holds 16 tokens, but one sequence of 17 needs 18");
    ASSERT_INT(train_check_data(pipeline, &settings, &early), -1);
    ASSERT_STR(early.text, err.text);
    pipeline_free(pipeline);
    runs_remove_folder(folder);
}
