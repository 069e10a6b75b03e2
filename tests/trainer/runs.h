/* Whole training runs as tests want them: a program from three short strings, and a run of which the losses, the ledgers
 * and the final weights are kept, to be compared with those of another run. */
#ifndef MEMPLAN_TESTS_TRAINER_RUNS_H
#define MEMPLAN_TESTS_TRAINER_RUNS_H

#include "trainer/train.h"

enum { RUNS_STEPS_MAX = 1000, RUNS_RANKS_MAX = 8, RUNS_PATH = 128 };

/* The sanitizers slow runs down and hold memory of their own. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define RUNS_SANITIZED 1
#else
#define RUNS_SANITIZED 0
#endif

/* `model`: a preset and what differs from it, "llama-tiny layers=3 hidden=24 heads=4 kv_heads=2 ffn=20 vocab=19", or
 * "gpt2-tiny untied". `layout`: "dp=2 micro=1 batch=4 seq=13 bucket=4096 bf16", each optional. `recompute` as on the
 * command line. The caller frees the program. */
struct program *runs_program(const char *model, const char *layout, const char *recompute);

/* A program that every rank runs, as a pipeline of one stage; it borrows the program, and ends with free(). */
struct pipeline *runs_alone(const struct program *program);

/* Few steps, a learning rate that shows, one thread per rank, poisoned memory. */
struct train_settings runs_settings(int64_t steps);

/* What is kept of a run. Steps are those that rank 0 reported. */
struct history {
    int64_t first_step, steps;
    double loss[RUNS_STEPS_MAX], grad_norm[RUNS_STEPS_MAX];
    int ranks;
    struct device_usage usage[RUNS_RANKS_MAX];
    int64_t most_tensors; /* alive at once on rank 0 */
    float *weights;       /* every parameter in the order of the program, owned; NULL unless asked for */
    int64_t weight_count;
};

/* Runs, and keeps what was reached; 0 or -1 as train_run(). */
int runs_try(const struct program *program, const struct train_settings *settings, struct history *out,
             struct error *err);
/* A run that must succeed. */
struct history runs_train(const struct program *program, const struct train_settings *settings);
/* The same, with the final weights. */
struct history runs_train_weights(const struct program *program, const struct train_settings *settings);
void runs_clear(struct history *history);

/* A run that must fail, and why it did. */
struct error runs_fail(const struct program *program, const struct train_settings *settings);

/* Parameters in fp32 from a checkpoint folder; the caller frees them. */
float *runs_read_weights(const struct program *program, const char *folder, int64_t *count);

/* Losses, gradient norms and weights: bit for bit, or losses within `tolerance` relatively and weights by relative norm. */
void runs_assert_same(const struct history *got, const struct history *expected);
void runs_assert_near(const struct history *got, const struct history *expected, double tolerance);

/* A fresh folder under /tmp, and its end with all that is in it. */
void runs_open_folder(char folder[RUNS_PATH]);
void runs_remove_folder(const char *folder);
/* A file of `text` in `folder`; its path goes to `path`, which is returned. */
const char *runs_write_file(const char *folder, const char *name, const void *text, int64_t bytes,
                            char path[RUNS_PATH]);

#endif
