#include "tests/jobs/fuzz_targets.h"

#include "jobs/job_changes.h"
#include "jobs/job_workload.h"
#include "jobs/jobs.h"
#include "jobs/not_a_script.h"
#include "jobs/weights_header.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Chunks have all layers of the model between them. */
static void check_chunks(const struct training_job *job)
{
    const struct job_layout *l = &job->layout;
    int64_t sum = 0;
    for (int64_t i = 0; l->chunk_layers && i < l->pp * l->virtual_stages; i++) {
        if (l->chunk_layers[i] < 0)
            abort();
        sum += l->chunk_layers[i];
    }
    if (l->chunk_layers && sum != job->model.layers)
        abort();
}

/* To what is proposed for a job, and what predictions are made from; one that lacks something has none. */
static void read_on(const struct training_job *job)
{
    struct workload workload;
    struct job_changes changes;
    struct error err = {0};
    check_chunks(job);
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
    char *text = arena_alloc(arena, count + 1);
    memcpy(text, bytes, count);
    text[count] = 0;
    not_a_script_refuse(count % 2 ? "fuzzed" : "fuzzed.yaml", text, count, &err);
    if (!jobs_read_text(&request, "fuzzed.sh", (const char *)bytes, count, arena, &job, &err))
        read_on(&job);
    arena_free(arena);
    return 0;
}

/* Words of `bytes` behind those of `launch`, a line or a blank between. */
static void read_words(const char *launch, const uint8_t *bytes, size_t count)
{
    enum { MOST = 4000 };
    struct arena *arena = arena_create();
    struct training_job job;
    struct error err = {0};
    const char **words = arena_array(arena, MOST, sizeof *words);
    struct jobs_request request = {.command = words, .model = count % 2 ? "gpt2-124m" : NULL};
    char *text = arena_printf(arena, "%s %.*s", launch, (int)count, (const char *)bytes), *state = NULL;
    for (char *word = strtok_r(text, "\n ", &state); word && request.command_count < MOST;
         word = strtok_r(NULL, "\n ", &state))
        words[request.command_count++] = word;
    if (!jobs_read(&request, arena, &job, &err))
        read_on(&job);
    arena_free(arena);
}

int fuzz_launch(const uint8_t *bytes, size_t count)
{
    read_words("", bytes, count);
    return 0;
}

#define GPT                                                                                                  \
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 64 --num-attention-heads 4 "   \
    "--seq-length 32 --max-position-embeddings 32 --micro-batch-size 1 --vocab-size 100 --bf16 "

int fuzz_stages(const uint8_t *bytes, size_t count)
{
    bool fork = count && bytes[0] == 'd';
    read_words(fork ? GPT "--deepspeed --deepspeed-config {} --pipeline-model-parallel-size 2"
                    : GPT "--pipeline-model-parallel-size 2",
               bytes + fork, count - fork);
    return 0;
}

/* Up to a line "---", or the end; *at goes behind it. Owned by the arena. */
static const char *next_part(const char **at, const char *end, struct arena *arena)
{
    static const char line[] = "\n---\n";
    const char *from = *at, *stop = memmem(from, (size_t)(end - from), line, sizeof line - 1);
    *at = stop ? stop + sizeof line - 1 : end;
    return arena_printf(arena, "%.*s", (int)((stop ? stop : end) - from), from);
}

int fuzz_overrides(const uint8_t *bytes, size_t count)
{
    struct arena *arena = arena_create();
    struct training_job job;
    struct error err = {0};
    struct jobs_request request = {.ranks = 8};
    const char *at = (const char *)bytes, *end = at + count, *options = next_part(&at, end, arena);
    struct text script = {0};
    text_printf(&script,
                "cat > t.toml <<'END_OF_FUZZED_FILE'\n%s\nEND_OF_FUZZED_FILE\ntorchrun -m torchtitan.train "
                "--job.config_file t.toml %s\n",
                next_part(&at, end, arena), options);
    if (!jobs_read_text(&request, "fuzzed.sh", script.data, script.length, arena, &job, &err))
        read_on(&job);
    text_free(&script);
    arena_free(arena);
    return 0;
}

/* A cache with one model, org/model, made once. */
#define COMMIT "0123456789abcdef0123456789abcdef01234567"

static const char *cache(void)
{
    static char folder[] = "/tmp/memplan-fuzzed-hub-XXXXXX";
    static const char *const parts[] = {"", "/models--org--model", "/models--org--model/refs",
                                        "/models--org--model/snapshots",
                                        "/models--org--model/snapshots/" COMMIT};
    static bool made;
    char path[200];
    if (!made && !mkdtemp(folder))
        abort();
    for (size_t i = 1; !made && i < sizeof parts / sizeof parts[0]; i++) {
        snprintf(path, sizeof path, "%s%s", folder, parts[i]);
        mkdir(path, 0700);
    }
    made = true;
    return folder;
}

/* A part without text is no file. */
static void write_part(const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/models--org--model/%s", cache(), name);
    remove(path);
    FILE *out = *text ? fopen(path, "w") : NULL;
    if (out) {
        fputs(text, out);
        fclose(out);
    }
}

static const char *next_line(const char **at, const char *end, struct arena *arena)
{
    const char *from = *at, *stop = memchr(from, '\n', (size_t)(end - from));
    *at = stop ? stop + 1 : end;
    return arena_printf(arena, "%.*s", (int)((stop ? stop : end) - from), from);
}

int fuzz_hub(const uint8_t *bytes, size_t count)
{
    static const char *const files[] = {
        "snapshots/" COMMIT "/config.json", "snapshots/" COMMIT "/tokenizer_config.json",
        "snapshots/" COMMIT "/adapter_config.json", "snapshots/" COMMIT "/model.safetensors.index.json"};
    struct arena *arena = arena_create();
    struct training_job job;
    struct error err = {0};
    const char *at = (const char *)bytes, *end = at + count;
    const char *name = next_line(&at, end, arena), *revision = next_line(&at, end, arena);
    const char *words[] = {"python",           "run_clm.py", "--cache_dir",          cache(),
                           "--model_revision", revision,     "--use_peft",           "True",
                           "--dtype",          "auto",       "--model_name_or_path", name};
    struct jobs_request request = {.command = words, .command_count = sizeof words / sizeof words[0]};
    write_part("refs/main", next_line(&at, end, arena));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        write_part(files[i], next_part(&at, end, arena));
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
    read_with_file("args.yaml", bytes, count, "torchrun run_sft.py args.yaml --model_name_or_path gpt2-124m");
    read_with_file("lf.yaml", bytes, count, "llamafactory-cli train lf.yaml model_name_or_path=gpt2-124m");
    read_with_file("axo.yaml", bytes, count,
                   "axolotl train axo.yaml --base-model gpt2-124m --launcher torchrun -- --nproc-per-node 8");
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
