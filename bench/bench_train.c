/* How much of the machine's matrix-product rate does a whole training step reach?
 *
 *     build/bench/bench_train [fp32|bf16] [STEPS]
 *
 * Trains gpt2-124m at B=4, T=64 and T=256 on all cores and prints, for each: the median step with its spread, tokens/s,
 * GFLOP/s, the rate of matrix products measured in the same run right before and after, their ratio, and where the time
 * went by kind of operation. Flops are 6 N per token and 6 L C T per token, as llm.c counts them. At the end: what
 * recording costs, from steps with and without a recorder in turns. */
#include "base/clock.h"
#include "base/units.h"
#include "bench/spread.h"
#include "model/work.h"
#include "profiler/recorder.h"
#include "trainer/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_STEPS = 64, WARM_STEPS = 1 };

/* Steps of one run, with the seconds of each operation kind after the warm-up. */
struct watch {
    const struct pipeline *pipeline;
    const struct program *program; /* of its only stage */
    double seconds[MOST_STEPS];
    int steps;
    double kind_s[OP_KINDS];
    enum op_kind *kind_of; /* by operation id */
    struct observer times;
    /* The recorder listens to odd steps only; NULL: no recorder. */
    struct recorder *recorder;
    struct observer recording;
    struct device *device;
    bool listening;
};

static void on_range(void *context, const struct range_event *event)
{
    struct watch *w = context;
    if (event->step >= WARM_STEPS)
        w->kind_s[w->kind_of[event->operation]] += (double)(event->end_ns - event->start_ns) * 1e-9;
}

static int on_start(void *context, int rank, struct device *device, const struct program *program,
                    struct error *err)
{
    struct watch *w = context;
    (void)program;
    w->device = device;
    if (w->recorder) {
        w->recording = recorder_rank_observer(w->recorder, rank);
        return 0;
    }
    w->times = (struct observer){.context = w, .range = on_range};
    return device_observe(device, &w->times, err);
}

static void on_step_begin(void *context, int rank, int64_t step)
{
    struct watch *w = context;
    if (!w->recorder)
        return;
    bool listen = step % 2 == 1;
    if (listen) {
        recorder_step_begin(w->recorder, rank, (int)step);
        device_observe(w->device, &w->recording, NULL);
    } else if (w->listening) {
        device_unobserve(w->device, &w->recording);
    }
    w->listening = listen;
}

static void on_step(void *context, const struct step_report *report)
{
    struct watch *w = context;
    if (w->steps < MOST_STEPS)
        w->seconds[w->steps++] = report->seconds;
}

static void on_finish(void *context, int rank, struct device *device)
{
    struct watch *w = context;
    (void)rank;
    if (w->listening)
        device_unobserve(device, &w->recording);
}

/* Flops per second of a 2048-sided product in the precision of the run. */
static double matmul_rate(enum dtype dtype, int threads)
{
    enum { SIDE = 2048, REPEATS = 5 };
    void *x = calloc(SIDE * SIDE, 4), *w = calloc(SIDE * SIDE, 4), *y = calloc(SIDE * SIDE, 4);
    struct kernel_context context = {.threads = threads};
    struct matmul_args args = {.M = SIDE, .N = SIDE, .K = SIDE, .dtype = dtype, .x = x, .w = w, .y = y};
    double seconds[REPEATS];
    struct error err = {0};
    for (int i = -1; i < REPEATS; i++) {
        int64_t start_ns = clock_ns();
        if (kernels_cpu.matmul(&context, &args, &err)) {
            fprintf(stderr, "bench_train: %s\n", err.text);
            exit(2);
        }
        if (i >= 0)
            seconds[i] = (double)(clock_ns() - start_ns) * 1e-9;
    }
    free(x);
    free(w);
    free(y);
    return 2.0 * SIDE * SIDE * SIDE / spread_of(seconds, REPEATS).median;
}

static void fail(const struct error *err)
{
    fprintf(stderr, "bench_train: %s\n", err->text);
    exit(2);
}

static struct pipeline *make_pipeline(const char *name, int64_t B, int64_t T, enum precision precision)
{
    struct error err = {0};
    struct model model;
    struct layout layout = {.micro_batch = B, .seq_len = T, .precision = precision};
    struct program_spec spec = {.model = &model, .layout = &layout};
    struct pipeline *pipeline;
    if (model_read(name, NULL, &model, &err) || layout_complete(&layout, &model, &err) ||
        pipeline_create(&spec, &pipeline, &err))
        fail(&err);
    return pipeline;
}

static void run(struct watch *w, int steps, enum memory_policy policy)
{
    struct error err = {0};
    struct train_settings settings = train_defaults();
    settings.steps = steps;
    settings.policy = policy;
    struct train_listener listener = {
        .context = w, .start = on_start, .step_begin = on_step_begin, .step = on_step, .finish = on_finish};
    struct train_result result;
    w->kind_of = calloc((size_t)program_op_count(w->program), sizeof *w->kind_of);
    struct program_cursor cursor = program_walk(w->program);
    for (struct step_op s; program_next(&cursor, &s);)
        w->kind_of[s.id] = s.kind;
    if (train_run(w->pipeline, &settings, &listener, &result, &err))
        fail(&err);
    train_result_clear(&result);
    free(w->kind_of);
}

static void print_kinds(const struct watch *w, int timed_steps)
{
    double total = 0;
    for (int i = 0; i < OP_KINDS; i++)
        total += w->kind_s[i];
    for (int i = 0; i < OP_KINDS; i++)
        if (w->kind_s[i] > 0.001 * total)
            printf("    %-16s %8.1f ms  %5.1f%%\n", op_kind_name((enum op_kind)i),
                   1e3 * w->kind_s[i] / timed_steps, 100 * w->kind_s[i] / total);
}

static void bench_step(int64_t T, enum precision precision, int steps)
{
    enum { B = 4 };
    int threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    struct pipeline *pipeline = make_pipeline("gpt2-124m", B, T, precision);
    struct watch w = {.pipeline = pipeline, .program = pipeline->stages[0]};
    double before = matmul_rate(precision_dtype(precision), threads);
    run(&w, steps + WARM_STEPS, MEMORY_ARENA);
    double after = matmul_rate(precision_dtype(precision), threads);
    struct spread s = spread_of(w.seconds + WARM_STEPS, steps);
    double flops = work_model_flops(w.program), matmul = (before + after) / 2,
           peak = (double)w.program->peak_bytes;
    printf("gpt2-124m  B=%d T=%lld  %s  %d threads, %d steps\n", B, (long long)T, precision_name(precision),
           threads, steps);
    printf("  step           %.3f s median (%.3f to %.3f)\n", s.median, s.least, s.most);
    printf("  tokens/s       %.1f\n", (double)(B * T) / s.median);
    printf("  GFLOP/s        %.1f   (%.1f GFLOP a step)\n", flops / s.median * 1e-9, flops * 1e-9);
    printf("  matmul GFLOP/s %.1f   (2048^3, before %.1f, after %.1f)\n", matmul * 1e-9, before * 1e-9,
           after * 1e-9);
    printf("  ratio          %.3f\n", flops / s.median / matmul);
    printf("  peak memory    %.1f MiB\n", peak / (1 << 20));
    print_kinds(&w, steps);
    pipeline_free(pipeline);
}

/* Every other step is recorded, with every tensor an allocation of its own. */
static void bench_recording(void)
{
    enum { STEPS = 24 };
    struct error err = {0};
    char path[] = "/tmp/memplan-bench-XXXXXX";
    int file = mkstemp(path);
    if (file < 0 || unlink(path))
        fail(&err);
    close(file);
    struct pipeline *pipeline = make_pipeline("gpt2-small-bytes", 8, 256, PRECISION_FP32);
    struct store_run row = {
        .command = "bench_train", .model = "gpt2-small-bytes", .ranks = 1, .policy = "tensor"};
    struct watch w = {.pipeline = pipeline, .program = pipeline->stages[0]};
    if (recorder_open(path, &row, &w.recorder, &err))
        fail(&err);
    run(&w, STEPS + 2, MEMORY_TENSOR);
    if (recorder_close(w.recorder, &err))
        fail(&err);
    double with[STEPS / 2], without[STEPS / 2];
    for (int i = 0; i < STEPS / 2; i++) {
        without[i] = w.seconds[2 + 2 * i];
        with[i] = w.seconds[3 + 2 * i];
    }
    struct spread a = spread_of(with, STEPS / 2), b = spread_of(without, STEPS / 2);
    printf("recording  gpt2-small-bytes B=8 T=256, %d steps in turns\n", STEPS);
    printf("  with    %.2f ms median (%.2f to %.2f)\n", 1e3 * a.median, 1e3 * a.least, 1e3 * a.most);
    printf("  without %.2f ms median (%.2f to %.2f)\n", 1e3 * b.median, 1e3 * b.least, 1e3 * b.most);
    printf("  cost    %.1f%%\n", 100 * (a.median / b.median - 1));
    unlink(path);
    pipeline_free(pipeline);
}

int main(int argc, char **argv)
{
    enum precision precision = PRECISION_FP32;
    struct error err = {0};
    if (argc > 1 && precision_find(argv[1], &precision, &err))
        fail(&err);
    int steps = argc > 2 ? atoi(argv[2]) : 8;
    if (steps < 1 || steps > MOST_STEPS - WARM_STEPS) {
        error_set(&err, "STEPS %s: choose 1 to %d", argv[2], MOST_STEPS - WARM_STEPS);
        fail(&err);
    }
    bench_step(64, precision, steps);
    bench_step(256, precision, steps > 4 ? steps / 2 : steps);
    bench_recording();
    return 0;
}
