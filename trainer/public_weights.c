/* A table says for each of our parameters which public tensors it is made of. From it and the model follows a list of
 * bindings, a tensor and the rows that it fills. Every rank binds all of the model, so that all of them refuse the same
 * files; when all tensors are found and sound, each rank reads the rows and columns that it holds. */
#include "trainer/public_weights.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/json.h"
#include "base/text.h"
#include "trainer/catalogue.h"
#include "trainer/safetensors.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME = 160, STACKED = 3 /* most tensors of one parameter */ };

/* How a tensor lies in the parameter: it is all of it, or these of its rows. TRANSPOSED is all of it, as (inputs, outputs)
 * where ours is (outputs, inputs). */
enum form { WHOLE, TRANSPOSED, QUERIES, KEYS_OR_VALUES, HALF };

/* In a name, # is the number of the layer. Tensors of one parameter are stacked in the order of the table. */
struct origin {
    enum parameter_id id;
    const char *name;
    enum form form;
    const char *between; /* the name where norms stand behind too, if that is another */
};

/* Where a name begins with `prefix` it may also do without: models are published with their head or bare. */
struct naming {
    const char *prefix;
    struct origin origins[24]; /* ended by one without a name */
};

static const struct naming gpt2_naming = {
    .prefix = "transformer.",
    .origins = {{PARAM_WTE, "wte.weight", WHOLE},
                {PARAM_WPE, "wpe.weight", WHOLE},
                {PARAM_NORM1, "h.#.ln_1.weight", WHOLE},
                {PARAM_NORM1_BIAS, "h.#.ln_1.bias", WHOLE},
                {PARAM_QKV, "h.#.attn.c_attn.weight", TRANSPOSED},
                {PARAM_QKV_BIAS, "h.#.attn.c_attn.bias", WHOLE},
                {PARAM_PROJ, "h.#.attn.c_proj.weight", TRANSPOSED},
                {PARAM_PROJ_BIAS, "h.#.attn.c_proj.bias", WHOLE},
                {PARAM_NORM2, "h.#.ln_2.weight", WHOLE},
                {PARAM_NORM2_BIAS, "h.#.ln_2.bias", WHOLE},
                {PARAM_UP, "h.#.mlp.c_fc.weight", TRANSPOSED},
                {PARAM_UP_BIAS, "h.#.mlp.c_fc.bias", WHOLE},
                {PARAM_DOWN, "h.#.mlp.c_proj.weight", TRANSPOSED},
                {PARAM_DOWN_BIAS, "h.#.mlp.c_proj.bias", WHOLE},
                {PARAM_FINAL_NORM, "ln_f.weight", WHOLE},
                {PARAM_FINAL_NORM_BIAS, "ln_f.bias", WHOLE},
                {PARAM_HEAD, "lm_head.weight", WHOLE}},
};

/* A model whose norms stand behind attention has their names for them. */
static const struct naming llama_naming = {
    .prefix = "model.",
    .origins = {{PARAM_WTE, "embed_tokens.weight", WHOLE},
                {PARAM_NORM1, "layers.#.input_layernorm.weight", WHOLE},
                {PARAM_QKV, "layers.#.self_attn.q_proj.weight", QUERIES},
                {PARAM_QKV, "layers.#.self_attn.k_proj.weight", KEYS_OR_VALUES},
                {PARAM_QKV, "layers.#.self_attn.v_proj.weight", KEYS_OR_VALUES},
                {PARAM_QKV_BIAS, "layers.#.self_attn.q_proj.bias", QUERIES},
                {PARAM_QKV_BIAS, "layers.#.self_attn.k_proj.bias", KEYS_OR_VALUES},
                {PARAM_QKV_BIAS, "layers.#.self_attn.v_proj.bias", KEYS_OR_VALUES},
                {PARAM_Q_NORM, "layers.#.self_attn.q_norm.weight", WHOLE},
                {PARAM_K_NORM, "layers.#.self_attn.k_norm.weight", WHOLE},
                {PARAM_PROJ, "layers.#.self_attn.o_proj.weight", WHOLE},
                {PARAM_PROJ_BIAS, "layers.#.self_attn.o_proj.bias", WHOLE},
                {PARAM_POST_NORM1, "layers.#.post_attention_layernorm.weight", WHOLE},
                {PARAM_POST_NORM2, "layers.#.post_feedforward_layernorm.weight", WHOLE},
                {PARAM_NORM2, "layers.#.post_attention_layernorm.weight", WHOLE,
                 "layers.#.pre_feedforward_layernorm.weight"},
                {PARAM_UP, "layers.#.mlp.gate_proj.weight", HALF},
                {PARAM_UP, "layers.#.mlp.up_proj.weight", HALF},
                {PARAM_DOWN, "layers.#.mlp.down_proj.weight", WHOLE},
                {PARAM_FINAL_NORM, "norm.weight", WHOLE},
                {PARAM_HEAD, "lm_head.weight", WHOLE}},
};

/* The same with the products of attention, and those of the feed-forward, stacked as ours are. */
static const struct naming phi3_naming = {
    .prefix = "model.",
    .origins = {{PARAM_WTE, "embed_tokens.weight", WHOLE},
                {PARAM_NORM1, "layers.#.input_layernorm.weight", WHOLE},
                {PARAM_QKV, "layers.#.self_attn.qkv_proj.weight", WHOLE},
                {PARAM_PROJ, "layers.#.self_attn.o_proj.weight", WHOLE},
                {PARAM_NORM2, "layers.#.post_attention_layernorm.weight", WHOLE},
                {PARAM_UP, "layers.#.mlp.gate_up_proj.weight", WHOLE},
                {PARAM_DOWN, "layers.#.mlp.down_proj.weight", WHOLE},
                {PARAM_FINAL_NORM, "norm.weight", WHOLE},
                {PARAM_HEAD, "lm_head.weight", WHOLE}},
};

/* A file of the source. */
struct shard {
    const char *name; /* in weight_map */
    struct safetensors *file;
    bool *used; /* by place of the tensor: a parameter is read from it */
};

/* A tensor and the rows of a parameter that it fills. */
struct binding {
    int64_t first_row, rows, columns;
    bool transposed;
    const struct shard *shard;
    const struct safetensors_tensor *tensor;
};

/* A source that is being read. */
struct reading {
    const char *source;
    const struct state_access *access;
    const struct naming *naming;
    struct arena *arena;
    json_t *index; /* NULL: one file, whatever is in it */
    json_t *weight_map;
    struct shard *shards;
    int64_t shard_count;
    struct catalogue catalogue;
    struct binding (*bindings)[STACKED]; /* by number in the catalogue; unused ones have no rows */
};

static int source_open(struct reading *r, struct error *err);
static void source_close(struct reading *r);
static void choose_naming(struct reading *r);
static int bind_all(struct reading *r, struct error *err);
static int check_leftovers(const struct reading *r, struct error *err);
static void read_window(const void *context, const struct weights_window *window, float *out);

int public_weights_read(const char *source, const struct state_access *access, int threads, struct error *err)
{
    const struct model *model = &access->program->model;
    if (model->family == MODEL_ENCODER)
        return error_set(
            err,
            "%s: weights of public models are of GPT-2 or Llama families; model %s is an encoder, "
            "which has no public form, so train it from initial weights",
            source, model->name);
    struct reading r = {
        .source = source,
        .access = access,
        .arena = arena_create(),
        .catalogue = catalogue_of(model),
    };
    int status = source_open(&r, err);
    if (!status) {
        choose_naming(&r);
        status = bind_all(&r, err) || check_leftovers(&r, err) ? -1 : 0;
    }
    struct weights_source values = {read_window, &r};
    if (!status)
        weights_fill(access, weights_exact_state(access->program), &values, threads);
    source_close(&r);
    return status;
}

/* The source: one file, or several and an index. */

static struct shard *find_shard(const struct reading *r, const char *name)
{
    for (int64_t i = 0; i < r->shard_count; i++)
        if (!strcmp(r->shards[i].name, name))
            return &r->shards[i];
    return NULL;
}

static int add_shard(struct reading *r, const char *name, const char *path, struct error *err)
{
    struct shard *shard = &r->shards[r->shard_count];
    if (safetensors_open(path, &shard->file, err))
        return -1;
    shard->name = name;
    shard->used = arena_array(r->arena, (size_t)safetensors_count(shard->file), sizeof *shard->used);
    r->shard_count++;
    return 0;
}

static int open_alone(struct reading *r, const char *path, struct error *err)
{
    r->shards = arena_alloc(r->arena, sizeof *r->shards);
    return add_shard(r, path, path, err);
}

/* The names come from whoever made the index: they must not lead out of the folder. */
static int open_indexed(struct reading *r, const char *path, struct error *err)
{
    const char *tensor;
    json_t *shard;
    if (jsonfile_read(path, &r->index, err) ||
        jsonfile_object(r->index, "weight_map", path, &r->weight_map, err))
        return -1;
    r->shards = arena_array(r->arena, json_object_size(r->weight_map), sizeof *r->shards);
    json_object_foreach(r->weight_map, tensor, shard)
    {
        const char *name = json_string_value(shard);
        if (!name || !name[0] || strchr(name, '/'))
            return error_set(
                err,
                "%s: the weight_map's entry %.100s is not the name of a file beside it; copy the "
                "file again",
                path, tensor);
        if (!find_shard(r, name) && add_shard(r, name, arena_printf(r->arena, "%s/%s", r->source, name), err))
            return -1;
    }
    return 0;
}

static int source_open(struct reading *r, struct error *err)
{
    struct stat found;
    if (stat(r->source, &found) || !S_ISDIR(found.st_mode))
        return open_alone(r, r->source, err);
    const char *alone = arena_printf(r->arena, "%s/model.safetensors", r->source);
    const char *index = arena_printf(r->arena, "%s/model.safetensors.index.json", r->source);
    if (!access(alone, F_OK))
        return open_alone(r, alone, err);
    if (!access(index, F_OK))
        return open_indexed(r, index, err);
    return error_set(
        err,
        "%s: there is neither model.safetensors nor model.safetensors.index.json in this folder; "
        "convert the weights to safetensors, or name the file",
        r->source);
}

static void source_close(struct reading *r)
{
    for (int64_t i = 0; i < r->shard_count; i++)
        safetensors_close(r->shards[i].file);
    json_decref(r->index);
    arena_free(r->arena);
}

/* NULL when the source has no tensor of this name. */
static const struct safetensors_tensor *find_exactly(const struct reading *r, const char *name,
                                                     struct shard **shard)
{
    if (r->index) {
        const char *mapped = json_string_value(json_object_get(r->weight_map, name));
        *shard = mapped ? find_shard(r, mapped) : NULL;
    } else {
        *shard = &r->shards[0];
    }
    return *shard ? safetensors_find((*shard)->file, name) : NULL;
}

static const struct safetensors_tensor *find_tensor(const struct reading *r, const char *name,
                                                    struct shard **shard)
{
    char longer[2 * NAME];
    const struct safetensors_tensor *tensor = find_exactly(r, name, shard);
    snprintf(longer, sizeof longer, "%s%s", r->naming->prefix, name);
    return tensor ? tensor : find_exactly(r, longer, shard);
}

/* A description of sizes does not say how the weights are called, and need not: the source does. */
static void choose_naming(struct reading *r)
{
    struct shard *shard;
    r->naming = r->access->program->model.family == MODEL_GPT2 ? &gpt2_naming : &phi3_naming;
    if (r->naming == &phi3_naming && !find_tensor(r, "layers.0.self_attn.qkv_proj.weight", &shard))
        r->naming = &llama_naming;
}

/* Bindings. */

static void name_tensor(const char *pattern, int64_t layer, char out[NAME])
{
    const char *number = strchr(pattern, '#');
    if (number)
        snprintf(out, NAME, "%.*s%" PRId64 "%s", (int)(number - pattern), pattern, layer, number + 1);
    else
        snprintf(out, NAME, "%s", pattern);
}

static int64_t form_rows(const struct model *model, const struct parameter *p, enum form form)
{
    switch (form) {
    case QUERIES:
        return model->heads * model->head_size;
    case KEYS_OR_VALUES:
        return model->kv_heads * model->head_size;
    case HALF:
        return p->full_dims[0] / 2;
    case WHOLE:
    case TRANSPOSED:
        break;
    }
    return p->full_dims[0];
}

/* "(768, 2304)", cut short when it is absurd. */
static const char *format_shape(int dim_count, const int64_t *dims, char out[NAME])
{
    size_t used = (size_t)snprintf(out, NAME, "(");
    for (int i = 0; i < dim_count && used < NAME; i++)
        used += (size_t)snprintf(out + used, NAME - used, "%s%" PRId64, i ? ", " : "", dims[i]);
    if (used < NAME)
        snprintf(out + used, NAME - used, ")");
    return out;
}

static int check_shape(const struct reading *r, const struct safetensors_tensor *t, int dim_count,
                       const int64_t *dims, struct error *err)
{
    char found[NAME], wanted[NAME];
    bool same = t->dim_count == dim_count;
    for (int i = 0; same && i < dim_count; i++)
        same = t->dims[i] == dims[i];
    if (same)
        return 0;
    return error_set(err,
                     "%s: tensor %.100s has shape %s, and model %s wants %s; use the model's own config.json",
                     r->source, t->name, format_shape(t->dim_count, t->dims, found),
                     r->access->program->model.name, format_shape(dim_count, dims, wanted));
}

/* Finds the tensor of an origin, and sees that its rows can be read. */
static int bind(struct reading *r, struct binding *b, const char *name, bool matrix, struct error *err)
{
    struct shard *shard;
    const struct safetensors_tensor *t = find_tensor(r, name, &shard);
    if (!t)
        return error_set(
            err,
            "%s: tensor %s is missing, with or without %s before it; model %s needs it, so use the "
            "weights that belong to its config.json",
            r->source, name, r->naming->prefix, r->access->program->model.name);
    const int64_t dims[2] = {b->transposed ? b->columns : b->rows, b->transposed ? b->rows : b->columns};
    float nothing;
    if (check_shape(r, t, matrix ? 2 : 1, dims, err) ||
        safetensors_read_f32(shard->file, t, 0, 0, &nothing, err)) /* refuses a dtype of no floats */
        return -1;
    shard->used[t - safetensors_at(shard->file, 0)] = true;
    b->shard = shard;
    b->tensor = t;
    return 0;
}

static int bind_parameter(struct reading *r, int64_t number, struct error *err)
{
    const struct parameter *p = catalogue_parameter(&r->catalogue, number);
    struct binding *b = r->bindings[number];
    int64_t first_row = 0;
    for (const struct origin *o = r->naming->origins; o->name; o++) {
        if (o->id != p->id)
            continue;
        char name[NAME];
        *b = (struct binding){
            .first_row = first_row,
            .rows = form_rows(&r->access->program->model, p, o->form),
            .columns = max_i64(1, p->full_dims[1]),
            .transposed = o->form == TRANSPOSED,
        };
        bool between = o->between && r->access->program->model.norms == NORMS_AROUND;
        name_tensor(between ? o->between : o->name, catalogue_name(&r->catalogue, number).layer, name);
        if (bind(r, b, name, p->full_dims[1] != 0, err))
            return -1;
        first_row += b++->rows;
    }
    assert(first_row == p->full_dims[0]);
    return 0;
}

static int bind_all(struct reading *r, struct error *err)
{
    int64_t count = catalogue_count(&r->catalogue);
    r->bindings = arena_array(r->arena, (size_t)count, sizeof *r->bindings);
    for (int64_t number = 0; number < count; number++)
        if (bind_parameter(r, number, err))
            return -1;
    return 0;
}

/* What no parameter is read from: a bias that the model lacks, more layers than it has. */

/* Attention masks and rotary frequencies are constants; some files of tied models hold the embedding twice. */
static bool says_nothing_new(const struct reading *r, const struct safetensors_tensor *t)
{
    const struct safetensors_tensor *embedding = r->bindings[0][0].tensor;
    if (text_ends_with(t->name, ".attn.bias") || text_ends_with(t->name, ".attn.masked_bias") ||
        text_ends_with(t->name, ".rotary_emb.inv_freq"))
        return true;
    return !strcmp(t->name, "lm_head.weight") && !strcmp(t->dtype, embedding->dtype) &&
           t->bytes == embedding->bytes && !memcmp(t->data, embedding->data, (size_t)t->bytes);
}

static int check_leftovers(const struct reading *r, struct error *err)
{
    for (int64_t i = 0; i < r->shard_count; i++)
        for (int64_t k = 0; k < safetensors_count(r->shards[i].file); k++) {
            const struct safetensors_tensor *t = safetensors_at(r->shards[i].file, k);
            if (!r->shards[i].used[k] && !says_nothing_new(r, t))
                return error_set(err,
                                 "%s: tensor %.100s belongs to no parameter of model %s, which would compute "
                                 "something else without it; use the model's own config.json",
                                 r->source, t->name, r->access->program->model.name);
        }
    return 0;
}

/* Reading. */

/* Elements first .. of a tensor of a known dtype: this cannot fail. */
static void read_elements(const struct binding *b, int64_t first, int64_t count, float *out)
{
    safetensors_read_f32(b->shard->file, b->tensor, first, count, out, NULL);
}

/* Rows first .. of the binding, in the window's columns. */
static void read_straight(const struct binding *b, const struct weights_window *w, int64_t first,
                          int64_t rows, float *out)
{
    int64_t lines = w->columns == b->columns ? 1 : rows, length = rows * w->columns / lines;
    for (int64_t i = 0; i < lines; i++)
        read_elements(b, (first + i) * b->columns + w->column, length, out + i * length);
}

/* The same where a column of the binding is a row of the tensor. */
static void read_transposed(const struct binding *b, const struct weights_window *w, int64_t first,
                            int64_t rows, float *out)
{
    float *strip = host_alloc((size_t)rows * sizeof *strip);
    for (int64_t column = 0; column < w->columns; column++) {
        read_elements(b, (w->column + column) * b->rows + first, rows, strip);
        for (int64_t row = 0; row < rows; row++)
            out[row * w->columns + column] = strip[row];
    }
    free(strip);
}

static void read_window(const void *context, const struct weights_window *w, float *out)
{
    const struct reading *r = context;
    const struct binding *bindings = r->bindings[catalogue_number(&r->catalogue, w->name)];
    for (const struct binding *b = bindings; b < bindings + STACKED; b++) {
        int64_t first = max_i64(w->row, b->first_row);
        int64_t end = min_i64(w->row + w->rows, b->first_row + b->rows);
        if (first < end)
            (b->transposed ? read_transposed : read_straight)(b, w, first - b->first_row, end - first,
                                                              out + (first - w->row) * w->columns);
    }
}
