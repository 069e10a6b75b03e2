/* A run that is interrupted and resumed is the run that was not; and whatever interrupts it, a whole checkpoint is left. */
#include "base/text.h"
#include "tests/test.h"
#include "tests/trainer/runs.h"
#include "trainer/random.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HALF = 5, WHOLE = 10 };

/* The first half of a run, with its checkpoint in `folder`. */
static void train_half(const char *model, const char *layout, const char *folder)
{
    struct pipeline *pipeline = runs_pipeline(model, layout, "none");
    struct train_settings settings = runs_settings(HALF);
    settings.checkpoint_folder = folder;
    runs_train(pipeline, &settings);
    pipeline_free(pipeline);
}

static struct history train_whole(const char *model, const char *layout, const char *resume_folder)
{
    struct pipeline *pipeline = runs_pipeline(model, layout, "none");
    struct train_settings settings = runs_settings(WHOLE);
    settings.resume_folder = resume_folder;
    struct history history = runs_train_weights(pipeline, &settings);
    pipeline_free(pipeline);
    return history;
}

/* The second half of a whole run, as a resumed one reports it. */
static struct history second_half(const struct history *whole)
{
    struct history half = *whole;
    half.first_step = HALF;
    half.steps = WHOLE - HALF;
    memmove(half.loss, half.loss + HALF, HALF * sizeof *half.loss);
    memmove(half.grad_norm, half.grad_norm + HALF, HALF * sizeof *half.grad_norm);
    return half;
}

static void assert_resumes(const char *model, const char *layout, const char *resumed_layout,
                           double tolerance)
{
    char folder[RUNS_PATH];
    runs_open_folder(folder);
    train_half(model, layout, folder);
    struct history straight = train_whole(model, layout, NULL);
    struct history resumed = train_whole(model, resumed_layout, folder), expected = second_half(&straight);
    if (tolerance == 0)
        runs_assert_same(&resumed, &expected);
    else
        runs_assert_near(&resumed, &expected, tolerance);
    runs_clear(&straight);
    runs_clear(&resumed);
    runs_remove_folder(folder);
}

static void assert_resumes_same(const char *model, const char *layout)
{
    assert_resumes(model, layout, layout, 0);
}

TEST(checkpoint_resume, "5 steps, a checkpoint and 5 more are 10 steps, bit for bit")
{
    assert_resumes_same("gpt2-tiny", "micro=2 batch=4 seq=17");
    assert_resumes_same("gpt2-tiny", "micro=2 batch=4 seq=17 bf16");
    assert_resumes_same("llama-tiny", "dp=2 micro=1 batch=4 seq=17");
    assert_resumes_same("qwen3-tiny", "dp=2 tp=2 zero=1 micro=1 batch=4 seq=17");
    assert_resumes_same("olmo2-tiny", "dp=2 pp=2 zero=1 micro=1 batch=4 seq=17");
    assert_resumes_same("llama-tiny", "dp=2 micro=1 batch=4 seq=17 bf16");
    assert_resumes_same("block-tiny", "micro=2 batch=4 seq=17");
}

TEST(checkpoint_resume_shared,
     "that holds when ranks share the layers, the sequence, the optimizer states or stages of the model")
{
    assert_resumes_same("gpt2-tiny vocab=101", "tp=2 sp micro=2 batch=4 seq=16");
    assert_resumes_same("gpt2-tiny", "dp=2 zero=1 micro=1 batch=4 seq=17 bf16");
    assert_resumes_same("gpt2-tiny", "pp=2 micro=1 batch=4 seq=17");
    assert_resumes_same("llama-tiny", "dp=2 tp=2 pp=2 zero=1 micro=1 batch=4 seq=16 bf16");
}

TEST(checkpoint_other_ranks, "a checkpoint of 2 ranks resumes on 1 or 4, and of 1 on 2, and learns the same")
{
    const char *one = "micro=2 batch=4 seq=17", *two = "dp=2 micro=1 batch=4 seq=17",
               *four = "dp=4 micro=1 seq=17";
    assert_resumes("gpt2-tiny", two, one, 1e-5);
    assert_resumes("gpt2-tiny", two, four, 1e-5);
    assert_resumes("gpt2-tiny", one, two, 1e-5);
}

TEST(checkpoint_other_layouts,
     "from dp2 tp2 pp1 to dp1 tp1 pp4 and back, and other ways, a run goes on as it would have")
{
    const char *shared = "dp=2 tp=2 pp=1 micro=1 batch=4 seq=16",
               *staged = "dp=1 tp=1 pp=4 micro=1 batch=4 seq=16",
               *sharded = "dp=2 pp=2 zero=1 micro=1 batch=4 seq=16", *one = "micro=2 batch=4 seq=16";
    assert_resumes("gpt2-tiny layers=4 vocab=101", shared, staged, 1e-5);
    assert_resumes("gpt2-tiny layers=4 vocab=101", staged, shared, 1e-5);
    assert_resumes("llama-tiny layers=4", shared, staged, 1e-5);
    assert_resumes("llama-tiny layers=4", staged, sharded, 1e-5);
    assert_resumes("llama-tiny layers=4", sharded, one, 1e-5);
}

/* Names of the folder's files that end with `end`, and how many there are; the last one goes to `path`. */
static int count_files(const char *folder, const char *end, char path[RUNS_PATH])
{
    int found = 0;
    DIR *list = opendir(folder);
    ASSERT(list != NULL);
    for (struct dirent *entry; (entry = readdir(list));) {
        size_t length = strlen(entry->d_name), end_length = strlen(end);
        if (length < end_length || strcmp(entry->d_name + length - end_length, end))
            continue;
        found++;
        ASSERT(snprintf(path, RUNS_PATH, "%s/%s", folder, entry->d_name) < RUNS_PATH);
    }
    closedir(list);
    return found;
}

TEST(checkpoint_only_last, "a run leaves one checkpoint, its last, and no half of another")
{
    char folder[RUNS_PATH], path[RUNS_PATH];
    runs_open_folder(folder);
    struct pipeline *pipeline = runs_pipeline("gpt2-tiny", "micro=1 seq=5", "none");
    struct train_settings settings = runs_settings(7);
    settings.checkpoint_folder = folder;
    settings.checkpoint_every = 2;
    runs_train(pipeline, &settings);
    ASSERT_INT(count_files(folder, ".partial", path), 0);
    ASSERT_INT(count_files(folder, ".json", path), 1);
    ASSERT_INT(count_files(folder, ".safetensors", path), 1);
    ASSERT_HAS(path, "/step-000007.safetensors");
    pipeline_free(pipeline);
    runs_remove_folder(folder);
}

static void train_again(const char *folder, uint64_t seed, const char *tensors)
{
    char path[RUNS_PATH];
    struct pipeline *pipeline = runs_pipeline("gpt2-tiny", "micro=1 seq=5", "none");
    struct train_settings settings = runs_settings(3);
    settings.seed = seed;
    settings.checkpoint_folder = folder;
    runs_train(pipeline, &settings);
    ASSERT_INT(count_files(folder, ".safetensors", path), 1);
    ASSERT_HAS(path, tensors);
    pipeline_free(pipeline);
}

/* Were the tensors replaced under the same name, a kill right after it would leave those of one run and the
 * checkpoint.json of another. */
TEST(checkpoint_same_step,
     "another run to the same step leaves the tensors that stand alone until its own do")
{
    char folder[RUNS_PATH];
    runs_open_folder(folder);
    train_again(folder, 1, "/step-000003.safetensors");
    train_again(folder, 2, "/step-000003-again.safetensors");
    train_again(folder, 3, "/step-000003.safetensors");
    runs_remove_folder(folder);
}

static void train_until_killed(const char *layout, const char *folder)
{
    struct pipeline *pipeline = runs_pipeline("gpt2-tiny layers=2", layout, "none");
    struct train_settings settings = runs_settings(1000000);
    struct train_result result;
    settings.checkpoint_folder = folder;
    settings.checkpoint_every = 1;
    train_run(pipeline, &settings, NULL, &result, NULL);
}

/* Starts a run that writes a checkpoint after every step, and kills it some time after the first one stands. */
static void kill_a_run(const char *layout, const char *folder, int64_t microseconds)
{
    char json[RUNS_PATH + 20];
    snprintf(json, sizeof json, "%s/checkpoint.json", folder);
    pid_t child = fork();
    ASSERT(child >= 0);
    if (child == 0) {
        train_until_killed(layout, folder);
        _exit(0);
    }
    for (int waited_ms = 0; access(json, R_OK) && waited_ms < 10000; waited_ms++)
        usleep(1000);
    usleep((useconds_t)microseconds);
    kill(child, SIGKILL);
    int status;
    ASSERT_INT(waitpid(child, &status, 0), child);
    ASSERT(WIFSIGNALED(status));
}

/* Steps done, as the text of checkpoint.json says: "step": 12. */
static int64_t read_step(const char *folder)
{
    char path[RUNS_PATH + 20], *text;
    size_t length;
    struct error err = {0};
    snprintf(path, sizeof path, "%s/checkpoint.json", folder);
    ASSERT_OK(text_read_file(path, 1 << 20, &text, &length, &err));
    const char *step = strstr(text, "\"step\":");
    ASSERT(step != NULL);
    int64_t value = atoll(step + 7);
    free(text);
    return value;
}

/* Up to 20 ms are tens of checkpoints, and the moments are spread over all that happens in one. The weights must be those
 * of the very step that the checkpoint says. */
TEST_LOOP(checkpoint_killed, "a run killed at any moment leaves a whole checkpoint, of the step that it says",
          4)
{
    static const char *const layouts[] = {"micro=1 seq=5", "dp=2 zero=1 micro=1 seq=5", "tp=2 micro=1 seq=5",
                                          "pp=2 micro=1 seq=5"};
    struct random_stream moments = random_stream(11, (uint64_t)_i);
    for (int i = 0; i < 12; i++) {
        char folder[RUNS_PATH];
        runs_open_folder(folder);
        kill_a_run(layouts[_i], folder, random_below(moments, (uint64_t)i, 20000));
        struct pipeline *pipeline = runs_pipeline("gpt2-tiny layers=2", layouts[_i], "none");
        struct train_settings settings = runs_settings(read_step(folder));
        struct history expected = runs_train_weights(pipeline, &settings);
        int64_t count;
        float *weights = runs_read_weights(&expected.model, folder, &count);
        ASSERT_INT(count, expected.weight_count);
        ASSERT_INT(memcmp(weights, expected.weights, (size_t)count * sizeof *weights), 0);
        free(weights);
        runs_clear(&expected);
        pipeline_free(pipeline);
        runs_remove_folder(folder);
    }
}

/* The message of a resume that must be refused. */
static const char *refusal(const char *model, const char *layout, uint64_t seed, const char *folder)
{
    static struct error err;
    struct pipeline *pipeline = runs_pipeline(model, layout, "none");
    struct train_settings settings = runs_settings(WHOLE);
    settings.seed = seed;
    settings.resume_folder = folder;
    err = runs_fail(pipeline, &settings);
    ASSERT_INT(err.kind, ERROR_INPUT);
    pipeline_free(pipeline);
    return err.text;
}

/* Rewrites one word of checkpoint.json. */
static void edit_json(const char *folder, const char *from, const char *to)
{
    char path[RUNS_PATH], edited[4096], *text;
    size_t length;
    struct error err = {0};
    ASSERT_INT(count_files(folder, ".json", path), 1);
    ASSERT_OK(text_read_file(path, sizeof edited / 2, &text, &length, &err));
    char *found = strstr(text, from);
    ASSERT(found != NULL);
    snprintf(edited, sizeof edited, "%.*s%s%s", (int)(found - text), text, to, found + strlen(from));
    runs_write_file(folder, "checkpoint.json", edited, (int64_t)strlen(edited), path);
    free(text);
}

TEST(checkpoint_refused,
     "a checkpoint of another model, batch, length, seed or version is refused with the reason")
{
    char folder[RUNS_PATH], path[RUNS_PATH];
    const char *layout = "micro=2 batch=4 seq=17";
    runs_open_folder(folder);
    train_half("gpt2-tiny", layout, folder);
    ASSERT_HAS(refusal("llama-tiny", layout, 1, folder),
               "belongs to model gpt2-tiny with family \"gpt2\", not to llama-tiny with \"llama\"");
    ASSERT_HAS(refusal("gpt2-tiny layers=3", layout, 1, folder),
               "gpt2-tiny with layers 2, not to gpt2-tiny with 3; "
               "resume with the model it was made with");
    ASSERT_HAS(refusal("gpt2-tiny", "micro=2 batch=8 seq=17", 1, folder), "--global-batch 4");
    ASSERT_HAS(refusal("gpt2-tiny", "micro=2 batch=4 seq=16", 1, folder), "--seq-len 17");
    ASSERT_HAS(refusal("gpt2-tiny", layout, 2, folder), "--seed 1");
    ASSERT_HAS(refusal("gpt2-tiny", layout, 1, "/nonexistent"), "/nonexistent/checkpoint.json");

    ASSERT_INT(count_files(folder, ".safetensors", path), 1);
    struct stat info;
    ASSERT_INT(stat(path, &info), 0);
    ASSERT_INT(truncate(path, info.st_size - 1), 0);
    ASSERT_HAS(refusal("gpt2-tiny", layout, 1, folder), path);
    ASSERT_INT(unlink(path), 0);
    ASSERT_HAS(refusal("gpt2-tiny", layout, 1, folder), path);

    edit_json(folder, "\"memplan_checkpoint\": 1", "\"memplan_checkpoint\": 2");
    ASSERT_HAS(refusal("gpt2-tiny", layout, 1, folder), "made by a newer memplan (checkpoint version 2");
    runs_remove_folder(folder);
}

TEST(checkpoint_renamed, "a model under another name, or with another usual batch, is still the checkpoint's")
{
    char folder[RUNS_PATH];
    const char *layout = "micro=2 batch=4 seq=17";
    runs_open_folder(folder);
    train_half("gpt2-tiny", layout, folder);
    struct history straight = train_whole("gpt2-tiny", layout, NULL);
    edit_json(folder, "\"name\": \"gpt2-tiny\"", "\"name\": \"a copy\"");
    edit_json(folder, "\"usual_batch\": 1", "\"usual_batch\": 8");
    struct history resumed = train_whole("gpt2-tiny", layout, folder), expected = second_half(&straight);
    runs_assert_same(&resumed, &expected);
    runs_clear(&straight);
    runs_clear(&resumed);
    runs_remove_folder(folder);
}

/* A file may grow to half of what the tensors take, as on a disk with no more room. */
TEST_LOOP(checkpoint_disk_full, "a disk that fills up while a checkpoint is written leaves the one before", 2)
{
    static const char *const layouts[] = {"dp=2 micro=1 batch=4 seq=17", "pp=2 tp=2 micro=1 batch=4 seq=17"};
    char folder[RUNS_PATH], path[RUNS_PATH];
    const char *layout = layouts[_i];
    runs_open_folder(folder);
    train_half("gpt2-tiny", layout, folder);
    struct history straight = train_whole("gpt2-tiny", layout, NULL);

    ASSERT_INT(count_files(folder, ".safetensors", path), 1);
    struct stat info;
    struct rlimit before, half;
    ASSERT_INT(stat(path, &info), 0);
    ASSERT_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    half = before;
    half.rlim_cur = (rlim_t)info.st_size / 2;
    signal(SIGXFSZ, SIG_IGN);
    struct pipeline *pipeline = runs_pipeline("gpt2-tiny", layout, "none");
    struct train_settings settings = runs_settings(WHOLE);
    settings.resume_folder = settings.checkpoint_folder = folder;
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &half), 0);
    struct error err = runs_fail(pipeline, &settings);
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_HAS(err.text, "step-000010.safetensors");
    ASSERT_HAS(err.text, "free some space");

    ASSERT_INT(count_files(folder, ".partial", path), 0);
    ASSERT_INT(count_files(folder, "step-000005.safetensors", path), 1);
    struct history resumed = train_whole("gpt2-tiny", layout, folder), expected = second_half(&straight);
    runs_assert_same(&resumed, &expected);
    runs_clear(&straight);
    runs_clear(&resumed);
    pipeline_free(pipeline);
    runs_remove_folder(folder);
}
