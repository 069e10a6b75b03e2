#include "trainer/checkpoint.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/json.h"
#include "trainer/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHECKPOINT_VERSION = 1, PIECE = 1 << 20, NAME = 80, PATH = 4096 };

/* The three states of a parameter that are kept, and what they are called after the parameter's name. */
static const char *const suffixes[] = {"", ".moment1", ".moment2"};

static enum state kept_state(const struct program *program, int which)
{
    return which == 0 ? weights_exact_state(program) : which == 1 ? STATE_MOMENT1 : STATE_MOMENT2;
}

/* "embed.wte", "layers.3.qkv", "layers.3.qkv.moment1", "head.final_norm". */
static void tensor_name(const struct program *program, int64_t instance, int index, int which, char out[NAME])
{
    const char *name = program_block(program, instance)->parameters[index].name;
    if (instance == 0 || instance == program->instances - 1)
        snprintf(out, NAME, "%s.%s%s", instance ? "head" : "embed", name, suffixes[which]);
    else
        snprintf(out, NAME, "layers.%lld.%s%s", (long long)instance - 1, name, suffixes[which]);
}

/* Calls `visit` for every tensor of a checkpoint in the order of the file; stops at the first failure. */
struct visitor {
    int (*visit)(struct visitor *, int64_t instance, int index, int which, struct error *);
    const struct state_access *access;
    struct safetensors_entry *entries;
    struct arena *names;
    int count;
    struct safetensors_writer *writer;
    struct safetensors *file;
    float *buffer; /* PIECE elements */
};

static int visit_all(struct visitor *v, struct error *err)
{
    const struct program *p = v->access->program;
    for (int64_t instance = 0; instance < p->instances; instance++)
        for (int k = 0; k < program_block(p, instance)->parameter_count; k++)
            for (int which = 0; which < 3; which++)
                if (v->visit(v, instance, k, which, err))
                    return -1;
    return 0;
}

static int list_entry(struct visitor *v, int64_t instance, int index, int which, struct error *err)
{
    (void)err;
    char name[NAME];
    tensor_name(v->access->program, instance, index, which, name);
    const struct parameter *p = &program_block(v->access->program, instance)->parameters[index];
    v->entries[v->count++] = (struct safetensors_entry){
        .name = arena_strdup(v->names, name),
        .dtype = DTYPE_F32,
        .dim_count = p->dims[1] ? 2 : 1,
        .dims = {p->dims[0], p->dims[1]},
    };
    return 0;
}

static int write_tensor(struct visitor *v, int64_t instance, int index, int which, struct error *err)
{
    int64_t total = program_block(v->access->program, instance)->parameters[index].count;
    for (int64_t first = 0; first < total; first += PIECE) {
        int64_t count = min_i64(PIECE, total - first);
        weights_read(v->access, instance, index, kept_state(v->access->program, which), first, count,
                     v->buffer);
        if (safetensors_write(v->writer, v->buffer, count * (int64_t)sizeof(float), err))
            return -1;
    }
    return 0;
}

static int read_tensor(struct visitor *v, int64_t instance, int index, int which, struct error *err)
{
    char name[NAME];
    tensor_name(v->access->program, instance, index, which, name);
    const struct safetensors_tensor *t = safetensors_find(v->file, name);
    int64_t total = program_block(v->access->program, instance)->parameters[index].count;
    if (!t || t->elements != total)
        return error_set(
            err,
            "the checkpoint's tensor %s has %lld elements and should have %lld; it belongs to another model",
            name, t ? (long long)t->elements : 0, (long long)total);
    for (int64_t first = 0; first < total; first += PIECE) {
        int64_t count = min_i64(PIECE, total - first);
        if (safetensors_read_f32(v->file, t, first, count, v->buffer, err))
            return -1;
        weights_write(v->access, instance, index, kept_state(v->access->program, which), first, count,
                      v->buffer);
    }
    return 0;
}

static int write_tensors(const char *path, const struct state_access *access, struct error *err)
{
    struct visitor v = {.visit = list_entry, .access = access, .names = arena_create()};
    v.entries = host_alloc((size_t)access->program->parameter_tensors * 3 * sizeof *v.entries);
    v.buffer = host_alloc(PIECE * sizeof *v.buffer);
    visit_all(&v, err);
    struct safetensors_note note = {"format", "pt"};
    int status = safetensors_create(path, v.entries, v.count, &note, 1, &v.writer, err);
    if (!status) {
        v.visit = write_tensor;
        status = visit_all(&v, err);
        if (status)
            safetensors_abort(v.writer);
        else
            status = safetensors_commit(v.writer, err);
    }
    free(v.buffer);
    free(v.entries);
    arena_free(v.names);
    return status;
}

static void json_path(const char *folder, char out[PATH])
{
    snprintf(out, PATH, "%s/checkpoint.json", folder);
}

/* The tensor file that the folder's checkpoint.json names, or "". */
static void standing_tensors(const char *folder, char out[NAME])
{
    char path[PATH];
    json_t *object;
    const char *name = "";
    out[0] = 0;
    json_path(folder, path);
    if (access(path, R_OK) || jsonfile_read(path, &object, NULL))
        return;
    if (!jsonfile_text_optional(object, "tensors", path, &name, NULL) && !strchr(name, '/'))
        snprintf(out, NAME, "%s", name);
    json_decref(object);
}

/* Never the name of the tensors that stand, not even in a second run to the same step: they must stay as they are until
 * checkpoint.json names others. */
static void name_tensors(int64_t step, const char *standing, char out[NAME])
{
    snprintf(out, NAME, "step-%06lld.safetensors", (long long)step);
    if (!strcmp(out, standing))
        snprintf(out, NAME, "step-%06lld-again.safetensors", (long long)step);
}

static int write_alone(const char *folder, const struct state_access *access,
                       const struct checkpoint_info *info, struct error *err)
{
    char before[NAME], name[NAME], path[PATH];
    if (mkdir(folder, 0777) && errno != EEXIST)
        return error_set(err, "%s: cannot make this folder for checkpoints: %s; choose another --checkpoint",
                         folder, strerror(errno));
    standing_tensors(folder, before);
    name_tensors(info->step, before, name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (write_tensors(path, access, err))
        return -1;
    json_path(folder, path);
    json_t *object =
        json_pack("{s:i, s:I, s:I, s:I, s:I, s:s, s:o}", "memplan_checkpoint", CHECKPOINT_VERSION, "step",
                  (json_int_t)info->step, "seed", (json_int_t)info->seed, "global_batch",
                  (json_int_t)info->global_batch, "seq_len", (json_int_t)info->seq_len, "tensors", name,
                  "model", model_to_json(&access->program->model));
    int status = jsonfile_write(object, path, err);
    json_decref(object);
    if (!status && before[0]) {
        snprintf(path, sizeof path, "%s/%s", folder, before);
        unlink(path);
    }
    return status;
}

int checkpoint_write(const char *folder, const struct state_access *access,
                     const struct checkpoint_info *info, struct comm *comm, struct error *err)
{
    if ((!comm || comm_rank(comm) == 0) && write_alone(folder, access, info, err))
        return -1;
    return comm ? comm_barrier(comm, err) : 0;
}

static int check_version(const json_t *object, const char *path, struct error *err)
{
    int64_t version;
    if (jsonfile_int(object, "memplan_checkpoint", path, &version, err))
        return -1;
    if (version > CHECKPOINT_VERSION)
        return error_set(
            err,
            "%s: made by a newer memplan (checkpoint version %lld, this one reads up to %d); update "
            "memplan",
            path, (long long)version, CHECKPOINT_VERSION);
    return 0;
}

/* The first field of `model` that `other` has not, or has with another value. Only what decides the tensors counts: a copied
 * or renamed model is the same one, and so is one with another usual batch. */
static const char *differing_field(json_t *model, const json_t *other)
{
    const char *key;
    json_t *value;
    json_object_foreach(model, key, value)
    {
        bool decides = strcmp(key, "name") && strcmp(key, "usual_batch");
        if (decides && !json_equal(value, json_object_get(other, key)))
            return key;
    }
    return NULL;
}

static int refuse_model(const char *path, json_t *stored, json_t *wanted, const char *field,
                        struct error *err)
{
    enum { SHOWN = JSON_ENCODE_ANY | JSON_REAL_PRECISION(10) };
    const char *stored_name = json_string_value(json_object_get(stored, "name"));
    char *theirs = json_dumps(json_object_get(stored, field), SHOWN);
    char *ours = json_dumps(json_object_get(wanted, field), SHOWN);
    error_set(err,
              "%s: belongs to model %s with %s %s, not to %s with %s; resume with the model it was made with",
              path, stored_name ? stored_name : "?", field, theirs ? theirs : "unknown",
              json_string_value(json_object_get(wanted, "name")), ours ? ours : "none");
    free(theirs);
    free(ours);
    return -1;
}

static int check_model(const json_t *object, const char *path, const struct model *model, struct error *err)
{
    json_t *stored;
    if (jsonfile_object(object, "model", path, &stored, err))
        return -1;
    json_t *wanted = model_to_json(model);
    const char *field = differing_field(wanted, stored);
    if (!field)
        field = differing_field(stored, wanted);
    int status = field ? refuse_model(path, stored, wanted, field, err) : 0;
    json_decref(wanted);
    return status;
}

static int read_info(const json_t *object, const char *path, struct checkpoint_info *info,
                     const char **tensors, struct error *err)
{
    int64_t seed;
    if (jsonfile_int(object, "step", path, &info->step, err) ||
        jsonfile_int(object, "seed", path, &seed, err) ||
        jsonfile_int(object, "global_batch", path, &info->global_batch, err) ||
        jsonfile_int(object, "seq_len", path, &info->seq_len, err) ||
        jsonfile_text(object, "tensors", path, tensors, err))
        return -1;
    info->seed = (uint64_t)seed;
    if (info->step < 0 || strchr(*tensors, '/'))
        return error_set(err, "%s: step %lld or tensors \"%s\" is not valid; the file was edited", path,
                         (long long)info->step, *tensors);
    return 0;
}

int checkpoint_read(const char *folder, const struct state_access *access, struct checkpoint_info *info,
                    struct error *err)
{
    char path[PATH];
    json_t *object;
    const char *tensors;
    json_path(folder, path);
    if (jsonfile_read(path, &object, err))
        return -1;
    struct visitor v = {.visit = read_tensor, .access = access};
    int status = -1;
    if (check_version(object, path, err) || check_model(object, path, &access->program->model, err) ||
        read_info(object, path, info, &tensors, err))
        goto done;
    snprintf(path, sizeof path, "%s/%s", folder, tensors);
    if (safetensors_open(path, &v.file, err))
        goto done;
    v.buffer = host_alloc(PIECE * sizeof *v.buffer);
    status = visit_all(&v, err);
    if (status)
        error_prefix(err, "%s", path);
    free(v.buffer);
    safetensors_close(v.file);
done:
    json_decref(object);
    return status;
}
