/* What a step's report says of memory, beside what an observer of each rank's device has counted for itself. */
#include "tests/test.h"

#include "base/checked.h"
#include "tests/trainer/runs.h"

enum { RANKS = 2, STEPS = 3 };

/* Of one rank, by its own thread. */
struct counter {
    struct observer observer;
    int64_t live, most, step;
    int64_t held_after[STEPS], most_in[STEPS];
};

struct counters {
    struct counter ranks[RANKS];
    struct step_report reports[RANKS][STEPS];
};

static void count_memory(void *context, const struct memory_event *event)
{
    struct counter *c = context;
    c->live += event->bytes;
    c->most = max_i64(c->most, c->live);
    c->held_after[c->step] = c->live;
    c->most_in[c->step] = c->most;
}

static int observe_rank(void *context, int rank, struct device *device, const struct program *program,
                        struct error *err)
{
    (void)program;
    struct counter *c = &((struct counters *)context)->ranks[rank];
    c->observer = (struct observer){.context = c, .memory = count_memory};
    return device_observe(device, &c->observer, err);
}

static void begin_step(void *context, int rank, int64_t step)
{
    struct counter *c = &((struct counters *)context)->ranks[rank];
    c->step = step;
    c->most = c->live;
}

static void keep_report(void *context, const struct step_report *report)
{
    ((struct counters *)context)->reports[report->rank][report->step] = *report;
}

static void stop_counting(void *context, int rank, struct device *device)
{
    device_unobserve(device, &((struct counters *)context)->ranks[rank].observer);
}

static void check_reports(const char *layout, enum memory_policy policy)
{
    struct counters counters = {0};
    struct error err = {0};
    struct pipeline *pipeline = runs_pipeline("gpt2-tiny layers=3", layout, "none");
    struct train_result result;
    struct train_settings settings = runs_settings(STEPS);
    struct train_listener listener = {.context = &counters,
                                      .start = observe_rank,
                                      .step_begin = begin_step,
                                      .step = keep_report,
                                      .finish = stop_counting};
    settings.policy = policy;
    ASSERT_OK(train_run(pipeline, &settings, &listener, &result, &err));
    for (int step = 0; step < STEPS; step++) {
        const struct counter *a = &counters.ranks[0], *b = &counters.ranks[1];
        for (int rank = 0; rank < RANKS; rank++) {
            const struct step_report *report = &counters.reports[rank][step];
            ASSERT_INT(report->held_bytes, max_i64(a->held_after[step], b->held_after[step]));
            ASSERT_INT(report->peak_bytes, max_i64(a->most_in[step], b->most_in[step]));
            ASSERT(report->peak_bytes > report->held_bytes);
        }
    }
    ASSERT_INT(counters.reports[0][STEPS - 1].peak_bytes,
               max_i64(result.usage[0].peak_bytes, result.usage[1].peak_bytes));
    train_result_clear(&result);
    pipeline_free(pipeline);
}

TEST(step_reports_memory, "a step's report has what the fullest rank holds after it, and held at most in it")
{
    check_reports("pp=2 batch=4 seq=12", MEMORY_TENSOR);
    check_reports("pp=2 batch=4 seq=12", MEMORY_ARENA);
    check_reports("dp=2 zero=1 batch=4 seq=12", MEMORY_ARENA);
}
