#include "trainer/checkpoint.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/json.h"
#include "trainer/catalogue.h"
#include "trainer/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHECKPOINT_VERSION = 1, PIECE = 1 << 20, NAME = 80, PATH = 4096 };

/* The three states of a parameter that are kept, and what they are called after the parameter's name. */
enum { KEPT = 3 };
static const char *const suffixes[KEPT] = {"", ".moment1", ".moment2"};

static enum state kept_state(const struct program *program, int which)
{
    return which == 0 ? weights_exact_state(program) : which == 1 ? STATE_MOMENT1 : STATE_MOMENT2;
}

/* "embed.wte", "layers.3.qkv", "layers.3.qkv.moment1", "head.final_norm". */
static void tensor_name(const struct catalogue *catalogue, int64_t number, int which, char out[NAME])
{
    struct parameter_name name = catalogue_name(catalogue, number);
    const char *own = catalogue_parameter(catalogue, number)->name;
    if (name.part == PART_LAYER)
        snprintf(out, NAME, "layers.%lld.%s%s", (long long)name.layer, own, suffixes[which]);
    else
        snprintf(out, NAME, "%s.%s%s", name.part == PART_EMBED ? "embed" : "head", own, suffixes[which]);
}

/* Writing: one file of whole tensors. Every rank knows from the model where in it each element goes, so none has to send
 * anything to another. */

/* One rank's share of the work. */
struct writing {
    const struct state_access *access;
    struct comm *comm; /* NULL: alone */
    struct catalogue catalogue;
    char name[NAME];   /* of the file of tensors, in the folder */
    char before[NAME]; /* of the one that stands there; rank 0 alone knows it, "" when there is none */
    struct safetensors_writer *writer;
    float *buffer; /* PIECE elements */
};

static bool writes_first(const struct writing *w)
{
    return !w->comm || comm_rank(w->comm) == 0;
}

/* Which of several equal copies is the one that is written? */
static bool is_mine(const struct writing *w, int64_t instance, int index, enum state state)
{
    const struct program *program = w->access->program;
    const struct layout_place *place = &w->access->place;
    enum sharing sharing = program_block(program, instance)->parameters[index].sharing;
    bool sharded = program->layout.zero && state >= STATE_MASTER;
    return !program_parameter(program, instance, index).copy && (sharing != SHARED_NOT || place->part == 0) &&
           (sharded || place->replica == 0);
}

/* Elements first .. of a rank's part, which stand in the buffer, to where they lie in the whole. Of a matrix that is shared
 * by columns that is a call per row, of hundreds of bytes or more, and costs half as much again: GPT-2 124M's 1.5 GB took
 * 0.91 s of CPU under tp=4 and 0.61 s under tp=1, to a file system in memory, twice each. */
static int write_piece(const struct writing *w, int64_t instance, int index, int entry, int64_t first,
                       int64_t count, struct error *err)
{
    const struct program *program = w->access->program;
    const struct parameter *p = &program_block(program, instance)->parameters[index];
    for (int64_t done = 0, stretch; done < count; done += stretch) {
        int64_t whole, size = sizeof *w->buffer;
        stretch = parameters_stretch(p, program->layout.tp, w->access->place.part, first + done, &whole);
        stretch = min_i64(stretch, count - done);
        if (whole >= 0 &&
            safetensors_write_at(w->writer, entry, whole * size, w->buffer + done, stretch * size, err))
            return -1;
    }
    return 0;
}

static int write_state(const struct writing *w, int64_t instance, int index, int which, struct error *err)
{
    const struct program *program = w->access->program;
    enum state state = kept_state(program, which);
    if (!is_mine(w, instance, index, state))
        return 0;
    int64_t number = catalogue_number(&w->catalogue, program_parameter(program, instance, index));
    struct weights_range held = weights_held(w->access, instance, index, state);
    for (int64_t done = 0, count; done < held.count; done += count) {
        count = min_i64(PIECE, held.count - done);
        weights_read(w->access, instance, index, state, held.first + done, count, w->buffer);
        if (write_piece(w, instance, index, (int)(number * KEPT + which), held.first + done, count, err))
            return -1;
    }
    return 0;
}

static int write_states(const struct writing *w, struct error *err)
{
    const struct program *program = w->access->program;
    for (int64_t instance = 0; instance < program->instances; instance++)
        for (int k = 0; k < program_block(program, instance)->parameter_count; k++)
            for (int which = 0; which < KEPT; which++)
                if (write_state(w, instance, k, which, err))
                    return -1;
    return 0;
}

/* Of every parameter of the model, in the order of the catalogue. */
static struct safetensors_entry *list_entries(const struct catalogue *catalogue, struct arena *arena)
{
    int64_t count = catalogue_count(catalogue);
    struct safetensors_entry *entries = arena_array(arena, (size_t)(count * KEPT), sizeof *entries);
    for (int64_t i = 0; i < count * KEPT; i++) {
        char name[NAME];
        const struct parameter *p = catalogue_parameter(catalogue, i / KEPT);
        tensor_name(catalogue, i / KEPT, (int)(i % KEPT), name);
        entries[i] = (struct safetensors_entry){
            .name = arena_strdup(arena, name),
            .dtype = DTYPE_F32,
            .dim_count = p->full_dims[1] ? 2 : 1,
            .dims = {p->full_dims[0], p->full_dims[1]},
        };
    }
    return entries;
}

/* Rank 0 makes the file, then tells the others its name. */
static int open_writer(struct writing *w, const char *folder, struct error *err)
{
    char path[PATH];
    struct arena *arena = arena_create();
    struct safetensors_note note = {"format", "pt"};
    struct safetensors_entry *entries = list_entries(&w->catalogue, arena);
    int count = (int)(catalogue_count(&w->catalogue) * KEPT), status = 0;
    struct comm_span span = {w->name, NAME / dtype_bytes(DTYPE_I32)};
    if (writes_first(w)) {
        snprintf(path, sizeof path, "%s/%s", folder, w->name);
        status = safetensors_create(path, entries, count, &note, 1, &w->writer, err);
    }
    if (!status && w->comm)
        status = comm_broadcast(w->comm, &span, 1, DTYPE_I32, 0, err);
    if (!status && !writes_first(w)) {
        snprintf(path, sizeof path, "%s/%s", folder, w->name);
        status = safetensors_join(path, entries, count, &note, 1, &w->writer, err);
    }
    arena_free(arena);
    return status ? -1 : 0;
}

/* The tensors are on the disk, under their name, when rank 0 returns. */
static int close_writer(struct writing *w, struct error *err)
{
    bool first = writes_first(w);
    struct safetensors_writer *writer = w->writer;
    if (!first) {
        w->writer = NULL;
        if (safetensors_leave(writer, err))
            return -1;
    }
    if (w->comm && comm_barrier(w->comm, err))
        return -1;
    w->writer = NULL;
    return first ? safetensors_commit(writer, err) : 0;
}

static int write_tensors(struct writing *w, const char *folder, struct error *err)
{
    w->buffer = host_alloc(PIECE * sizeof *w->buffer);
    /* On a device that works beside the host, reads that failed are told by its finish. */
    int status = open_writer(w, folder, err) || write_states(w, err) ||
                 device_finish(w->access->device, err) || close_writer(w, err);
    if (status)
        safetensors_abort(w->writer);
    free(w->buffer);
    return status ? -1 : 0;
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

/* Rank 0: the folder, and the names in it. */
static int prepare_folder(struct writing *w, const char *folder, int64_t step, struct error *err)
{
    if (mkdir(folder, 0777) && errno != EEXIST)
        return error_set(err, "%s: cannot make this folder for checkpoints: %s; choose another --checkpoint",
                         folder, strerror(errno));
    standing_tensors(folder, w->before);
    name_tensors(step, w->before, w->name);
    return 0;
}

/* Rank 0: from here on the new checkpoint stands. */
static int name_checkpoint(const struct writing *w, const char *folder, const struct checkpoint_info *info,
                           struct error *err)
{
    char path[PATH];
    json_path(folder, path);
    json_t *object =
        json_pack("{s:i, s:I, s:I, s:I, s:I, s:s, s:o}", "memplan_checkpoint", CHECKPOINT_VERSION, "step",
                  (json_int_t)info->step, "seed", (json_int_t)info->seed, "global_batch",
                  (json_int_t)info->global_batch, "seq_len", (json_int_t)info->seq_len, "tensors", w->name,
                  "model", model_to_json(&w->access->program->model));
    int status = jsonfile_write(object, path, err);
    json_decref(object);
    if (!status && w->before[0]) {
        snprintf(path, sizeof path, "%s/%s", folder, w->before);
        unlink(path);
    }
    return status;
}

int checkpoint_write(const char *folder, const struct state_access *access,
                     const struct checkpoint_info *info, struct comm *comm, struct error *err)
{
    struct writing w = {.access = access, .comm = comm, .catalogue = catalogue_of(&access->program->model)};
    bool first = writes_first(&w);
    if (first && prepare_folder(&w, folder, info->step, err))
        return -1;
    if (write_tensors(&w, folder, err) || (first && name_checkpoint(&w, folder, info, err)))
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

/* A state that is being read from a checkpoint's file. */
struct reading {
    const struct safetensors *file;
    const struct catalogue *catalogue;
    int which;
};

static void read_window(const void *context, const struct weights_window *w, float *out)
{
    const struct reading *r = context;
    char name[NAME];
    tensor_name(r->catalogue, catalogue_number(r->catalogue, w->name), r->which, name);
    const struct safetensors_tensor *t = safetensors_find(r->file, name);
    int64_t lines = w->columns == w->row_length ? 1 : w->rows, length = w->rows * w->columns / lines;
    for (int64_t i = 0; i < lines; i++)
        safetensors_read_f32(r->file, t, (w->row + i) * w->row_length + w->column, length, out + i * length,
                             NULL);
}

/* Also of what other ranks read: a file that is refused is refused by all. */
static int check_tensors(const struct safetensors *file, const struct catalogue *catalogue, struct error *err)
{
    for (int64_t i = 0; i < catalogue_count(catalogue) * KEPT; i++) {
        char name[NAME];
        float nothing;
        tensor_name(catalogue, i / KEPT, (int)(i % KEPT), name);
        const struct safetensors_tensor *t = safetensors_find(file, name);
        int64_t total = catalogue_parameter(catalogue, i / KEPT)->full_count;
        if (!t || t->elements != total)
            return error_set(err,
                             "the checkpoint's tensor %s has %lld elements and should have %lld; it belongs "
                             "to another model",
                             name, t ? (long long)t->elements : 0, (long long)total);
        if (safetensors_read_f32(file, t, 0, 0, &nothing, err)) /* refuses a dtype of no floats */
            return -1;
    }
    return 0;
}

static int read_tensors(const char *path, const struct state_access *access, struct error *err)
{
    struct catalogue catalogue = catalogue_of(&access->program->model);
    struct safetensors *file;
    if (safetensors_open(path, &file, err))
        return -1;
    int status = check_tensors(file, &catalogue, err);
    if (status)
        error_prefix(err, "%s", path);
    for (int which = 0; !status && which < KEPT; which++) {
        struct reading reading = {file, &catalogue, which};
        struct weights_source source = {read_window, &reading};
        weights_fill(access, kept_state(access->program, which), &source, 1);
    }
    safetensors_close(file);
    return status;
}

bool checkpoint_stands(const char *folder, char shown[CHECKPOINT_SHOWN])
{
    char path[PATH];
    json_t *object;
    struct error unread;
    json_path(folder, path);
    if (access(path, F_OK))
        return false;
    snprintf(shown, CHECKPOINT_SHOWN, "a model");
    if (jsonfile_read(path, &object, &unread))
        return true;
    const json_t *step = json_object_get(object, "step");
    const char *name = json_string_value(json_object_get(json_object_get(object, "model"), "name"));
    if (json_is_integer(step))
        snprintf(shown, CHECKPOINT_SHOWN, "step %lld of %s", (long long)json_integer_value(step),
                 name ? name : "a model");
    json_decref(object);
    return true;
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
    int status = check_version(object, path, err) ||
                 check_model(object, path, &access->program->model, err) ||
                 read_info(object, path, info, &tensors, err);
    if (!status) {
        snprintf(path, sizeof path, "%s/%s", folder, tensors);
        status = read_tensors(path, access, err);
    }
    json_decref(object);
    return status ? -1 : 0;
}
