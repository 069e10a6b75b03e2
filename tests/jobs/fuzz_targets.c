#include "tests/jobs/fuzz_targets.h"

#include "jobs/job_changes.h"
#include "jobs/job_workload.h"
#include "jobs/jobs.h"
#include "jobs/weights_header.h"

#include <stdlib.h>
#include <string.h>

/* To what is proposed for a job, and what predictions are made from; one that lacks something has none. */
static void read_on(const struct training_job *job)
{
    struct workload workload;
    struct job_changes changes;
    struct error err = {0};
    job_changes_find(job, false, &changes);
    job_changes_find(job, true, &changes);
    if (job->model_known && !job_count(job, FACT_MISSING) && !job_workload(job, &workload, &err))
        workload_check(&workload, &err);
}

/* A job from a script that writes `body` to a file and starts `launch`, which names it. */
static void read_with_file(const char *name, const uint8_t *bytes, size_t count, const char *launch)
{
    struct arena *arena = arena_create();
    struct text script = {0};
    struct training_job job;
    struct error err = {0};
    struct jobs_request request = {.ranks = 8};
    text_printf(&script, "cat > %s <<'END_OF_FUZZED_FILE'\n%.*s\nEND_OF_FUZZED_FILE\n%s\n", name, (int)count,
                (const char *)bytes, launch);
    if (!jobs_read_text(&request, "fuzzed.sh", script.data, script.length, arena, &job, &err))
        read_on(&job);
    text_free(&script);
    arena_free(arena);
}

int fuzz_script(const uint8_t *bytes, size_t count)
{
    struct arena *arena = arena_create();
    struct training_job job;
    struct error err = {0};
    const char *const arguments[] = {"first", "second"};
    const struct shell_variable set[] = {{"NODES", "2"}};
    struct jobs_request request = {.command = arguments, .command_count = 2, .set = set, .set_count = 1};
    if (!jobs_read_text(&request, "fuzzed.sh", (const char *)bytes, count, arena, &job, &err))
        read_on(&job);
    arena_free(arena);
    return 0;
}

int fuzz_launch(const uint8_t *bytes, size_t count)
{
    enum { MOST = 4000 };
    struct arena *arena = arena_create();
    struct training_job job;
    struct error err = {0};
    const char **words = arena_array(arena, MOST, sizeof *words);
    struct jobs_request request = {.command = words};
    char *text = arena_alloc(arena, count + 1), *state = NULL;
    memcpy(text, bytes, count);
    for (char *word = strtok_r(text, "\n ", &state); word && request.command_count < MOST;
         word = strtok_r(NULL, "\n ", &state))
        words[request.command_count++] = word;
    if (!jobs_read(&request, arena, &job, &err))
        read_on(&job);
    arena_free(arena);
    return 0;
}

int fuzz_deepspeed(const uint8_t *bytes, size_t count)
{
    read_with_file(
        "ds.json", bytes, count,
        "deepspeed --num_gpus 8 run_clm.py --deepspeed ds.json --model_name_or_path gpt2-124m --bf16");
    return 0;
}

int fuzz_toml(const uint8_t *bytes, size_t count)
{
    read_with_file("titan.toml", bytes, count,
                   "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file titan.toml");
    return 0;
}

int fuzz_yaml(const uint8_t *bytes, size_t count)
{
    read_with_file("acc.yaml", bytes, count,
                   "accelerate launch --config_file acc.yaml sft.py --model_name_or_path gpt2-124m");
    return 0;
}

int fuzz_config(const uint8_t *bytes, size_t count)
{
    read_with_file("model/config.json", bytes, count,
                   "torchrun run_clm.py --config_name model/config.json --bf16");
    struct job_model model;
    struct error err = {0};
    json_t *config = json_loadb((const char *)bytes, count, 0, NULL);
    if (json_is_object(config) && !job_model_from_config(config, "fuzzed/config.json", &model, &err) &&
        job_model_parameters(&model) < job_model_active_parameters(&model))
        abort();
    json_decref(config);
    return 0;
}

int fuzz_weights(const uint8_t *bytes, size_t count)
{
    struct weights_count out = {0};
    struct error err = {0};
    weights_header_parse((const char *)bytes, (int64_t)count, "fuzzed.safetensors", 1 << 20, &out, &err);
    return 0;
}

#ifdef FUZZ_TARGET
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    return FUZZ_TARGET(bytes, count);
}
#endif
