/* Is communication hidden behind computation, and what does spreading a step over two ranks cost on one machine?
 *
 *     build/bench/bench_parallel [ROUNDS [MODEL [SEQ_LEN]]]
 *
 * Trains MODEL (gpt2-small-bytes; 8 sequences of 256 a step) on all cores under each layout in turns, a few steps per turn, and
 * prints of each the median step with its spread, the step relative to one rank on all cores, and of replicas how long
 * their gradients travelled and which share of that was hidden behind backward. One bucket larger than all gradients is
 * sent when backward is done: that is the run without overlap. */
#include "bench/spread.h"
#include "model/pipeline.h"
#include "trainer/train.h"

#include <stdio.h>
#include <unistd.h>

enum { STEPS = 4, WARM_STEPS = 1, MOST_ROUNDS = SPREAD_MOST / (STEPS - WARM_STEPS) };

struct contest {
    const char *name;
    struct layout layout;
    struct pipeline *pipeline;
    double seconds[SPREAD_MOST], busy[SPREAD_MOST], waited[SPREAD_MOST];
    int count;
};

static struct contest contests[] = {
    {.name = "one rank, all cores", .layout = {.micro_batch = 4}},
    {.name = "dp 2, buckets of 1 MiB", .layout = {.dp = 2, .micro_batch = 4, .bucket_bytes = 1 << 20}},
    {.name = "dp 2, one bucket at the end", .layout = {.dp = 2, .micro_batch = 4, .bucket_bytes = 1LL << 40}},
    {.name = "dp 2, zero 1, buckets of 1 MiB",
     .layout = {.dp = 2, .zero = 1, .micro_batch = 4, .bucket_bytes = 1 << 20}},
    {.name = "tp 2", .layout = {.tp = 2, .micro_batch = 4}},
    {.name = "tp 2, sequence-parallel", .layout = {.tp = 2, .sequence_parallel = true, .micro_batch = 4}},
    {.name = "pp 2, 1f1b", .layout = {.pp = 2, .micro_batch = 1}},
    {.name = "pp 2, interleaved", .layout = {.pp = 2, .virtual_stages = 2, .micro_batch = 1}},
    {.name = "pp 2, zb-h1", .layout = {.pp = 2, .schedule = SCHEDULE_ZB_H1, .micro_batch = 1}},
};
enum { CONTESTS = sizeof contests / sizeof *contests };

static void fail(const struct error *err)
{
    fprintf(stderr, "bench_parallel: %s\n", err->text);
    exit(2);
}

static void prepare(struct contest *c, const char *name, int64_t seq_len)
{
    struct error err = {0};
    struct model model;
    c->layout.global_batch = 8;
    c->layout.seq_len = seq_len;
    struct program_spec spec = {.model = &model, .layout = &c->layout};
    if (model_read(name, NULL, &model, &err) || layout_complete(&c->layout, &model, &err) ||
        pipeline_create(&spec, &c->pipeline, &err))
        fail(&err);
}

/* A step lasts as long as its slowest rank; all ranks meet in each, so rank 0 is as good as any. */
static void on_step(void *context, const struct step_report *report)
{
    struct contest *c = context;
    if (report->rank != 0 || report->step < WARM_STEPS)
        return;
    c->seconds[c->count] = report->seconds;
    c->busy[c->count] = report->communication_busy_s;
    c->waited[c->count++] = report->communication_waited_s;
}

static void run(struct contest *c)
{
    struct error err = {0};
    struct train_settings settings = train_defaults();
    settings.steps = STEPS;
    struct train_listener listener = {.context = c, .step = on_step};
    struct train_result result;
    if (train_run(c->pipeline, &settings, &listener, &result, &err))
        fail(&err);
    train_result_clear(&result);
}

static void print(const struct contest *c, double alone)
{
    struct spread s = spread_of(c->seconds, c->count);
    printf("  %-31s %7.1f ms (%.1f to %.1f)  %.2f", c->name, 1e3 * s.median, 1e3 * s.least, 1e3 * s.most,
           s.median / alone);
    if (c->layout.dp > 1) {
        double busy = spread_of(c->busy, c->count).median, waited = spread_of(c->waited, c->count).median;
        printf("  gradients travel %.1f ms, %.0f%% hidden", 1e3 * busy,
               busy > waited ? 100 * (1 - waited / busy) : 0);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    const char *name = argc > 2 ? argv[2] : "gpt2-small-bytes";
    int64_t seq_len = argc > 3 ? atoll(argv[3]) : 256;
    if (rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "bench_parallel: ROUNDS %s: choose 1 to %d\n", argv[1], MOST_ROUNDS);
        return 2;
    }
    for (int i = 0; i < CONTESTS; i++)
        prepare(&contests[i], name, seq_len);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < CONTESTS; i++)
            run(&contests[i]);
    printf("%s, 8 sequences of %lld a step, %ld cores, %d steps in turns\n"
           "  median step (least to most), relative to one rank on all cores\n",
           name, (long long)seq_len, sysconf(_SC_NPROCESSORS_ONLN), contests[0].count);
    double alone = spread_of(contests[0].seconds, contests[0].count).median;
    for (int i = 0; i < CONTESTS; i++)
        print(&contests[i], alone);
    for (int i = 0; i < CONTESTS; i++)
        pipeline_free(contests[i].pipeline);
    return 0;
}
