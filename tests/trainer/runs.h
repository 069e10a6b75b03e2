/* Whole training runs as tests want them: a pipeline from three short strings, and a run of which the losses, the ledgers
 * and the final weights are kept, to be compared with those of another run, whatever the layouts of the two. */
#ifndef MEMPLAN_TESTS_TRAINER_RUNS_H
#define MEMPLAN_TESTS_TRAINER_RUNS_H

#include "trainer/train.h"

enum { RUNS_STEPS_MAX = 1000, RUNS_RANKS_MAX = 16, RUNS_PATH = 128 };

/* The sanitizers slow runs down and hold memory of their own. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define RUNS_SANITIZED 1
#else
#define RUNS_SANITIZED 0
#endif

/* `model`: a preset and what differs from it, "llama-tiny layers=3 hidden=24 heads=4 kv_heads=2 ffn=20 vocab=19", or
 * "gpt2-tiny untied". `layout`: "dp=2 tp=2 pp=2 virtual=2 zero=1 sp micro=1 batch=4 seq=12 bucket=4096 bf16 interleaved
 * chunks=1,2,1,1", each optional; `chunks` are the layers of each chunk of the pipeline. `recompute` as on the command line.
 * Ended by pipeline_free(). */
struct pipeline *runs_pipeline(const char *model, const char *layout, const char *recompute);

/* The program of a layout of one stage alone, for who does not train with it: program_free(). */
struct program *runs_program(const char *model, const char *layout, const char *recompute);

/* Few steps, a learning rate that shows, one thread per rank, poisoned memory. */
struct train_settings runs_settings(int64_t steps);

/* What is kept of a run. Steps are those that rank 0 reported. */
struct history {
    int64_t first_step, steps;
    double loss[RUNS_STEPS_MAX], grad_norm[RUNS_STEPS_MAX];
    int ranks;
    struct device_usage usage[RUNS_RANKS_MAX];
    int64_t most_tensors; /* alive at once on rank 0 */
    struct model model;
    float *weights; /* every parameter, as runs_read_weights() has them, owned; NULL unless asked for */
    int64_t weight_count;
};

/* Runs, and keeps what was reached; 0 or -1 as train_run(), and -1 when two ranks reported other bits of the same step. */
int runs_try(const struct pipeline *pipeline, const struct train_settings *settings, struct history *out,
             struct error *err);
/* A run that must succeed. */
struct history runs_train(const struct pipeline *pipeline, const struct train_settings *settings);
/* The same, with the final weights. */
struct history runs_train_weights(const struct pipeline *pipeline, const struct train_settings *settings);
void runs_clear(struct history *history);

/* A run that must fail, and why it did. */
struct error runs_fail(const struct pipeline *pipeline, const struct train_settings *settings);

/* Parameters in fp32 from a checkpoint folder, in the order of a program of one rank, whatever layout has written them; the
 * caller frees them. */
float *runs_read_weights(const struct model *model, const char *folder, int64_t *count);

/* Losses, gradient norms and weights, bit for bit. */
void runs_assert_same(const struct history *got, const struct history *expected);

/* How far two runs are apart, relatively: the worst step's loss and gradient norm, and the norm of the difference of the
 * final weights. */
struct distance {
    double loss, grad_norm, weights;
};
struct distance runs_distance(const struct history *got, const struct history *expected);
void runs_assert_near(const struct history *got, const struct history *expected, double tolerance);

/* Every rank has taken the bytes that its program predicts: at the peak, by role, and after the last step. `where` is for
 * the message. */
void runs_assert_bytes(const struct history *history, const struct pipeline *pipeline,
                       enum memory_policy policy, const char *where);

/* A fresh folder under /tmp, and its end with all that is in it. */
void runs_open_folder(char folder[RUNS_PATH]);
void runs_remove_folder(const char *folder);
/* A file of `text` in `folder`; its path goes to `path`, which is returned. */
const char *runs_write_file(const char *folder, const char *name, const void *text, int64_t bytes,
                            char path[RUNS_PATH]);

#endif
