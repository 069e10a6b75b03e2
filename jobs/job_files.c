/* Finding and reading the files that a launch names. */
#include "jobs/job_files.h"

#include "jobs/weights_header.h"
#include "jobs/yaml.h"
#include "model/hub_cache.h"
#include "model/hub_models.h"
#include "model/presets.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *job_file_find(struct training_job *job, const struct job_files *files, const char *path)
{
    struct stat info;
    if (files->folder && path[0] != '/') {
        const char *beside = arena_printf(job->facts.arena, "%s/%s", files->folder, path);
        if (!stat(beside, &info))
            return beside;
    }
    return *path && !stat(path, &info) ? path : NULL;
}

int job_file_text(struct training_job *job, const struct job_files *files, const char *path,
                  const char **text, size_t *length, struct error *err)
{
    for (int i = files->script ? files->script->file_count - 1 : -1; i >= 0; i--)
        if (!strcmp(files->script->files[i].name, path)) {
            *text = files->script->files[i].text;
            if (length)
                *length = strlen(*text);
            return 0;
        }
    const char *found = job_file_find(job, files, path);
    char *data;
    size_t size;
    if (!found)
        return 1;
    if (text_read_file(found, JOBS_FILE_BYTES, &data, &size, err))
        return -1;
    char *kept = arena_alloc(job->facts.arena, size + 1);
    memcpy(kept, data, size);
    free(data);
    *text = kept;
    if (length)
        *length = size;
    return 0;
}

int job_file_json(struct training_job *job, const struct job_files *files, const char *path, json_t **out,
                  struct error *err)
{
    const char *text = path; /* transformers takes the object itself for the name of a file that has it */
    size_t length = strlen(path);
    json_error_t error;
    int status = *path == '{' ? 0 : job_file_text(job, files, path, &text, &length, err);
    int shown = *path == '{' ? 80 : INT_MAX; /* of an object itself its beginning */
    if (status)
        return status;
    *out = json_loadb(text, length, 0, &error);
    if (*out && json_is_object(*out)) {
        job_edit_json(&files->edits, path, *out);
        return 0;
    }
    if (*out) {
        json_decref(*out);
        return error_set(err, "%.*s: not a JSON object; is it the right file?", shown, path);
    }
    return error_set(err, "%.*s:%d: %s; correct this line", shown, path, error.line, error.text);
}

int job_file_yaml(struct training_job *job, const struct job_files *files, struct pairs *pairs,
                  struct error *err)
{
    const char *text;
    size_t length;
    int status = job_file_text(job, files, pairs->file, &text, &length, err);
    if (status)
        return status;
    if (yaml_read(text, length, job->facts.arena, pairs, err))
        return -1;
    job_edit_pairs(&files->edits, pairs, job->facts.arena);
    return 0;
}

static void from_preset(struct training_job *job, const struct model *m)
{
    job->model = (struct job_model){
        .kind = m->family == MODEL_ENCODER ? JOB_ENCODER : JOB_DECODER,
        .norm = m->family == MODEL_LLAMA ? JOB_RMS_NORM : JOB_LAYER_NORM,
        .positions = m->family == MODEL_LLAMA ? JOB_ROPE : JOB_LEARNED,
        .layers = m->layers,
        .hidden = m->hidden,
        .heads = m->heads,
        .kv_heads = m->kv_heads,
        .head_size = m->head_size,
        .ffn = m->ffn,
        .vocab = m->vocab,
        .max_seq_len = m->max_seq_len,
        .gated = m->family == MODEL_LLAMA,
        .tied = m->tied,
        .qkv_bias = m->qkv_bias,
        .proj_bias = m->proj_bias,
        .qk_norm = m->qk_norm,
        .ffn_bias = m->family != MODEL_LLAMA,
        .traits = {.norms_fp32 = m->norm_add_one, .post_norms = m->norms == NORMS_AROUND},
        .norm_eps = m->norm_eps,
        .rope_theta = m->rope_theta,
    };
    static const char *const activations[] = {
        [MODEL_GPT2] = "gelu_new", [MODEL_LLAMA] = "silu", [MODEL_ENCODER] = "gelu"};
    snprintf(job->model.activation, sizeof job->model.activation, "%s",
             m->gelu_gate ? "gelu_pytorch_tanh" : activations[m->family]);
    memcpy(job->model.name, m->name, sizeof job->model.name);
    snprintf(job->model.type, sizeof job->model.type, "%s", model_family_name(m->family));
}

/* What lies beside config.json: weights, whose header counts parameters, and an adapter. */
static int read_neighbours(struct training_job *job, const char *folder, struct error *err)
{
    static const char *const names[] = {"model.safetensors.index.json", "model.safetensors"};
    struct arena *arena = job->facts.arena;
    struct weights_count count;
    struct stat info;
    for (int i = 0; i < 2; i++) {
        const char *path = arena_printf(arena, "%s/%s", folder, names[i]);
        if (stat(path, &info))
            continue;
        if (weights_header_count(path, &count, err))
            return -1;
        job->model.counted_parameters = count.parameters;
        memcpy(job->model.counted_dtype, count.dtype, sizeof count.dtype);
        job_note_count(job, FACT_READ, "parameters in the weights", count.parameters, path);
        return 0;
    }
    return 0;
}

/* A tokenizer without a limit has one of 1e30. */
static int read_tokenizer(struct training_job *job, const char *folder, struct error *err)
{
    const char *path = arena_printf(job->facts.arena, "%s/tokenizer_config.json", folder);
    struct job_files here = {0};
    json_t *config;
    int status = job_file_json(job, &here, path, &config, err);
    if (status)
        return status < 0 ? -1 : 0;
    double limit = json_number_value(json_object_get(config, "model_max_length"));
    job->tokenizer_known = true;
    job->tokenizer_limit = limit >= 1 && limit < 1e9 ? (int64_t)limit : 0;
    json_decref(config);
    return 0;
}

static int read_adapter(struct training_job *job, const struct job_files *files, const char *folder,
                        struct error *err)
{
    const char *path = arena_printf(job->facts.arena, "%s/adapter_config.json", folder), *targets = NULL;
    struct job_files here = {.script = files->script};
    json_t *config;
    int status = job_file_json(job, &here, path, &config, err);
    if (status)
        return status < 0 ? -1 : 0;
    status = jsonfile_int(config, "r", path, &job->adapter.rank, err) ||
             jsonfile_int_optional(config, "lora_alpha", path, &job->adapter.alpha, err) ||
             jsonfile_real_optional(config, "lora_dropout", path, &job->adapter.dropout, err);
    struct text list = {0};
    const json_t *modules = json_object_get(config, "target_modules");
    if (json_is_string(modules))
        targets = json_string_value(modules);
    for (size_t i = 0; i < json_array_size(modules); i++) {
        const char *name = json_string_value(json_array_get(modules, i));
        text_printf(&list, i ? ",%s" : "%s", name ? name : "");
    }
    if (!status) {
        job->adapter.targets = arena_strdup(job->facts.arena, targets ? targets : list.data ? list.data : "");
        job_note_count(job, FACT_READ, "adapter rank", job->adapter.rank, path);
        job_note(job, FACT_READ, "adapter targets", job->adapter.targets, path);
    }
    text_free(&list);
    json_decref(config);
    return status ? -1 : 0;
}

static int read_config(struct training_job *job, const struct job_files *files, const char *path,
                       const char *folder, struct error *err)
{
    json_t *config;
    int status = job_file_json(job, files, path, &config, err);
    if (status)
        return status;
    status = job_model_from_config(config, path, &job->model, err);
    json_decref(config);
    if (status)
        return -1;
    job->model_known = true;
    job_note(job, FACT_READ, "model", job->model.name, path);
    if (!folder)
        return 0;
    return read_neighbours(job, folder, err) || read_tokenizer(job, folder, err) ||
                   read_adapter(job, files, folder, err)
               ? -1
               : 0;
}

/* ---- models of the hub ---- */

struct place {
    struct training_job *job;
    const struct job_files *files;
};

/* What the launch does not say, this process's environment does; what it says and nothing here knows is passed over. */
static const char *variable(const void *context, const char *name)
{
    const struct place *place = context;
    struct word found;
    if (!job_environment_find(place->job, place->files, name, &found))
        return hub_cache_environment.value(NULL, name);
    return found.unknown ? NULL : found.text;
}

static const char *cache_folder(struct training_job *job, const struct job_files *files)
{
    const struct place place = {job, files};
    const struct hub_cache_variables variables = {variable, &place};
    const char *given = job->switches.cache_folder, *found = given ? job_file_find(job, files, given) : NULL;
    char *out = arena_alloc(job->facts.arena, HUB_CACHE_PATH);
    if (given)
        return found ? found : given;
    hub_cache_folder(&variables, out);
    return out;
}

static void name_after(struct job_model *model, const char *name)
{
    snprintf(model->name, sizeof model->name, "%.*s", MODEL_NAME - 1, hub_models_short_name(name));
}

/* The weights beside it are counted only where all of them were downloaded. */
static int read_snapshot(struct training_job *job, const char *name, const char *folder, struct error *err)
{
    const char *path = arena_printf(job->facts.arena, "%s/config.json", folder);
    struct job_files here = {0};
    int status = read_config(job, &here, path, NULL, err);
    if (status > 0)
        return error_set(err, "%s: it was there and is gone; download the model again", path);
    if (status)
        return -1;
    name_after(&job->model, name);
    job_note(job, FACT_READ, "model", job->model.name,
             arena_printf(job->facts.arena, "%s in the hub's cache", path));
    struct error unheard = {0};
    read_neighbours(job, folder, &unheard);
    return read_tokenizer(job, folder, err) || read_adapter(job, &here, folder, err) ? -1 : 0;
}

static int read_known(struct training_job *job, const char *name, json_t *config, struct error *err)
{
    int status = job_model_from_config(config, name, &job->model, err);
    json_decref(config);
    if (status)
        return -1;
    job->model_known = true;
    job_note(job, FACT_READ, "model", job->model.name,
             arena_printf(job->facts.arena, "sizes of %s as memplan knows them", name));
    return 0;
}

/* Where a name was looked for, in one sentence with the ways out. */
static const char *not_found(struct arena *arena, const char *name, const char *cache, const char *why)
{
    const char *near = model_nearest(name);
    const char *like = near ? arena_printf(arena, " (%s is)", near) : "";
    const char *broken = *why ? arena_printf(arena, " (%s)", why) : "";
    if (!hub_cache_is_name(name))
        return arena_printf(arena,
                            "%s: there is no such folder or file here; give --model FOLDER with its "
                            "config.json, or the name of a preset or of a model on the hub",
                            name);
    return arena_printf(
        arena,
        "%s is no folder here, %s in the hub's cache %s%s, and not a name whose sizes memplan knows%s; give "
        "--model FOLDER with its config.json, or --model NAME of one with the same sizes, or put it there "
        "first: hf download %s config.json",
        name, *why ? "not usable" : "not", *cache ? cache : "(no variable says where it is)", broken, like,
        name);
}

static int read_hub(struct training_job *job, const struct job_files *files, const char *name,
                    const char **why, struct error *err)
{
    const char *cache = cache_folder(job, files);
    struct hub_cache_snapshot *snapshot = arena_alloc(job->facts.arena, sizeof *snapshot);
    if (hub_cache_find(cache, name, job->switches.revision, snapshot))
        return read_snapshot(job, name, snapshot->folder, err);
    json_t *config = hub_models_config(name);
    if (config)
        return read_known(job, name, config, err);
    *why = not_found(job->facts.arena, name, cache, snapshot->why);
    return 1;
}

int job_read_model(struct training_job *job, const struct job_files *files, const char *source,
                   const char *option, const char **why, struct error *err)
{
    struct stat info;
    struct arena *arena = job->facts.arena;
    const char *found = job_file_find(job, files, source);
    const struct model *preset = presets_find(source);
    if (preset && preset->norms == NORMS_BEHIND)
        return error_set(
            err,
            "%s %s: its norms stand behind attention and the feed-forward, which no rule of other "
            "frameworks' memory is about; `memplan predict %s` judges it in memplan's own trainer",
            option, preset->name, preset->name);
    if (preset) {
        from_preset(job, preset);
        job->model_known = true;
        job_note(job, FACT_READ, "model", preset->name,
                 arena_printf(arena, "%s: a model that memplan knows", option));
        return 0;
    }
    if (!found || stat(found, &info))
        return read_hub(job, files, source, why, err);
    struct job_files here = {.script = files->script};
    bool folder = S_ISDIR(info.st_mode);
    const char *path = folder ? arena_printf(arena, "%s/config.json", found) : found;
    int status = read_config(job, &here, path, folder ? found : NULL, err);
    if (status > 0)
        *why =
            arena_printf(arena, "%s: there is no such file; give --model FOLDER with its config.json", path);
    return status;
}
