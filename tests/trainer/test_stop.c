/* Runs that are asked to stop: all ranks end after the same step, with a checkpoint that goes on as if nothing had happened. */
#include "tests/test.h"

#include "tests/trainer/runs.h"

#include <pthread.h>
#include <unistd.h>

enum { WHOLE = 9, ASKED = 15, RANKS = 2 };

/* Asks when `rank` reports `step`, and keeps what is told. */
struct asking {
    atomic_int stop;
    int rank;
    int64_t step;
    int64_t steps[RANKS]; /* reported by each rank */
    double loss[WHOLE], grad_norm[WHOLE];
    int64_t checkpoints, checkpoint_step;
};

static void see_step(void *context, const struct step_report *report)
{
    struct asking *a = context;
    a->steps[report->rank]++;
    a->loss[report->step] = report->loss;
    a->grad_norm[report->step] = report->grad_norm;
    if (report->rank == a->rank && report->step == a->step)
        atomic_store(&a->stop, ASKED);
}

static void see_checkpoint(void *context, int64_t step, const char *folder)
{
    struct asking *a = context;
    (void)folder;
    a->checkpoints++;
    a->checkpoint_step = step;
}

static struct train_result train(const struct pipeline *pipeline, struct asking *asking, const char *folder,
                                 const char *resume_folder)
{
    struct error err = {0};
    struct train_result result;
    struct train_settings settings = runs_settings(WHOLE);
    struct train_listener listener = {.context = asking, .step = see_step, .checkpoint = see_checkpoint};
    settings.rate.kind = LEARNING_RATE_COSINE;
    settings.checkpoint_folder = folder;
    settings.resume_folder = resume_folder;
    settings.stop = &asking->stop;
    ASSERT_OK(train_run(pipeline, &settings, &listener, &result, &err));
    struct train_result figures = result;
    figures.usage = NULL;
    train_result_clear(&result);
    return figures;
}

/* After the report of step `asked` by `rank`, which follows the exchange of that step, comes one more step. */
static void check_stop(const char *layout, int ranks, int rank, int64_t asked)
{
    char folder[RUNS_PATH];
    runs_open_folder(folder);
    struct pipeline *pipeline = runs_pipeline("gpt2-tiny", layout, "none");
    struct asking whole = {.step = -1}, asking = {.rank = rank, .step = asked}, rest = {.step = -1};
    ASSERT_INT(train(pipeline, &whole, NULL, NULL).stopped, 0);
    struct train_result result = train(pipeline, &asking, folder, NULL);
    ASSERT_INT(result.stopped, ASKED);
    ASSERT_INT(result.steps_done, asked + 2);
    ASSERT_INT(result.reached, asked + 2);
    ASSERT_INT(asking.checkpoints, 1);
    ASSERT_INT(asking.checkpoint_step, asked + 2);
    for (int i = 0; i < ranks; i++)
        ASSERT_INT(asking.steps[i], asked + 2);

    result = train(pipeline, &rest, NULL, folder);
    ASSERT_INT(result.stopped, 0);
    ASSERT_INT(result.steps_done, WHOLE - asked - 2);
    ASSERT_INT(result.reached, WHOLE);
    for (int64_t step = 0; step < WHOLE; step++) {
        const struct asking *part = step < asked + 2 ? &asking : &rest;
        ASSERT(part->loss[step] == whole.loss[step]);
        ASSERT(part->grad_norm[step] == whole.grad_norm[step]);
    }
    pipeline_free(pipeline);
    runs_remove_folder(folder);
}

TEST(stop_resumes,
     "a run that is asked to stop ends after the next step, and resumed it is the run that was not")
{
    check_stop("micro=2 batch=4 seq=17", 1, 0, 2);
    check_stop("dp=2 micro=1 batch=4 seq=17", 2, 1, 0);
    check_stop("dp=2 zero=1 micro=1 batch=4 seq=17", 2, 0, 3);
    check_stop("pp=2 micro=1 batch=4 seq=17", 2, 0, 1);
    check_stop("pp=2 micro=1 batch=4 seq=17", 2, 1, 4);
}

TEST(stop_at_end, "who asks in the last step has asked for nothing")
{
    struct pipeline *pipeline = runs_pipeline("gpt2-tiny", "dp=2 micro=1 batch=4 seq=17", "none");
    struct asking asking = {.step = WHOLE - 2};
    struct train_result result = train(pipeline, &asking, NULL, NULL);
    ASSERT_INT(result.stopped, 0);
    ASSERT_INT(result.steps_done, WHOLE);
    pipeline_free(pipeline);
}

/* The moment is any: while one rank is in a step and another behind it. */
struct moment {
    atomic_int stop;
    int64_t wait_ns;
    int64_t steps[RANKS];
};

static void *ask_later(void *argument)
{
    struct moment *moment = argument;
    usleep((useconds_t)(moment->wait_ns / 1000));
    atomic_store(&moment->stop, ASKED);
    return NULL;
}

static void count_step(void *context, const struct step_report *report)
{
    ((struct moment *)context)->steps[report->rank]++;
}

TEST_LOOP(stop_any_moment, "whenever it comes, all ranks end after the same step", 2)
{
    static const char *const layouts[] = {"dp=2 micro=1 batch=2 seq=8", "pp=2 micro=1 batch=2 seq=8"};
    struct error err = {0};
    struct pipeline *pipeline = runs_pipeline("gpt2-tiny", layouts[_i], "none");
    struct train_settings settings = runs_settings(10000000);
    for (int turn = 0; turn < 40; turn++) {
        struct moment moment = {.wait_ns = (20 + turn % 7) * 1000000 + turn * 37000};
        struct train_listener listener = {.context = &moment, .step = count_step};
        struct train_result result;
        pthread_t thread;
        settings.stop = &moment.stop;
        ASSERT_INT(pthread_create(&thread, NULL, ask_later, &moment), 0);
        ASSERT_OK(train_run(pipeline, &settings, &listener, &result, &err));
        pthread_join(thread, NULL);
        ASSERT_INT(result.stopped, ASKED);
        ASSERT(moment.steps[0] > 0);
        ASSERT_INT(moment.steps[0], moment.steps[1]);
        train_result_clear(&result);
    }
    pipeline_free(pipeline);
}
