/* Reading and checking model descriptions. */
#include "model/model.h"

#include "base/checked.h"
#include "base/json.h"
#include "base/options.h"
#include "model/hub_cache.h"
#include "model/hub_config.h"
#include "model/hub_models.h"
#include "model/parameters.h"
#include "model/presets.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static const char *const family_names[] = {"gpt2", "llama", "encoder"};
static const char *const norms_names[] = {
    [NORMS_BEFORE] = "before", [NORMS_BEHIND] = "behind", [NORMS_AROUND] = "around"};

enum { NORMS_COUNT = sizeof norms_names / sizeof norms_names[0] };

const char *model_family_name(enum model_family family)
{
    return family_names[family];
}

const char *const *model_preset_names(void)
{
    return presets_names();
}

/* Limits far above any real model, so that a mistyped zero is named here and not found as an overflow later. */
static int check_range(const char *model, const char *field, int64_t value, int64_t most, struct error *err)
{
    if (value >= 1 && value <= most)
        return 0;
    return error_set(err, "model %s: %s is %lld; it must be between 1 and %lld", model, field,
                     (long long)value, (long long)most);
}

enum { MOST_LAYERS = 100000, MOST_HIDDEN = 1 << 20, MOST_HEADS = 1 << 16 };

static int check_positive(const char *model, const char *field, double value, struct error *err)
{
    if (value > 0)
        return 0;
    return error_set(err, "model %s: %s is %g; it must be above 0", model, field, value);
}

/* Layers are what multiplies: a single matrix fits by the ranges of its sides. */
static int check_parameters_fit(const struct model *model, struct error *err)
{
    struct parameter list[PART_PARAMETERS_MAX];
    int64_t count = 0;
    for (int i = 0, n = parameters_of(model, PART_LAYER, 1, list); i < n; i++)
        count += list[i].count;
    if (count <= INT64_MAX / 2 / model->layers)
        return 0;
    return error_set(err,
                     "model %s: %lld layers of %lld parameters are more than 63 bits count; use smaller ones",
                     model->name, (long long)model->layers, (long long)count);
}

/* Writes the divisors of `n` up to `n`, at most eight, as "1, 2, 4 or 8". */
static const char *divisors(int64_t n, char *out, size_t room)
{
    int64_t found[8];
    int count = 0;
    for (int64_t d = 1; d <= n && count < 8; d++)
        if (n % d == 0)
            found[count++] = d;
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < count && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, "%s%lld",
                                 i == 0           ? ""
                                 : i == count - 1 ? " or "
                                                  : ", ",
                                 (long long)found[i]);
    return out;
}

static int check_unturned(const struct model *model, struct error *err)
{
    if (model->unturned && (model->family != MODEL_LLAMA || model->qk_norm))
        return error_set(
            err,
            "model %s: unturned is of llama models without qk_norm, whose RoPE may leave a part of "
            "each head; set it to 0",
            model->name);
    if (model->unturned < 0 || model->unturned % 2 || model->unturned > model->head_size - 2)
        return error_set(err,
                         "model %s: unturned is %lld; of heads of %lld elements it must be even, and leave a "
                         "pair to turn",
                         model->name, (long long)model->unturned, (long long)model->head_size);
    return 0;
}

static int check_norms(const struct model *model, struct error *err)
{
    if (model->family != MODEL_LLAMA && (model->norm_add_one || model->gelu_gate || model->scale_embedding))
        return error_set(err,
                         "model %s: %s is of llama models, and this one is of family %s; set it to false",
                         model->name,
                         model->norm_add_one ? "norm_add_one"
                         : model->gelu_gate  ? "gelu_gate"
                                             : "scale_embedding",
                         model_family_name(model->family));
    if (model->family != MODEL_LLAMA && model->qk_norm)
        return error_set(
            err, "model %s: qk_norm is of llama models, and this one is of family %s; set it to false",
            model->name, model_family_name(model->family));
    if (model->qk_norm_whole && !model->qk_norm)
        return error_set(
            err,
            "model %s: qk_norm_whole says how queries and keys are normed, and qk_norm is false; "
            "set both or none",
            model->name);
    if (model->norms != NORMS_BEFORE && model->family != MODEL_LLAMA)
        return error_set(
            err, "model %s: norms \"%s\" are of llama models, and this one is of family %s; leave norms out",
            model->name, norms_names[model->norms], model_family_name(model->family));
    if (model->norms != NORMS_BEFORE && model->proj_bias)
        return error_set(
            err,
            "model %s: proj_bias is of models whose norms stand before attention, and these stand "
            "%s it; set it to false",
            model->name, norms_names[model->norms]);
    return 0;
}

static int check_windows(const struct model *model, struct error *err)
{
    const char *name = model->name;
    if (model->window < 0 || model->full_every < 0 || !(model->local_theta >= 0) ||
        !(model->query_scalar >= 0))
        return error_set(err,
                         "model %s: window %lld, full_every %lld, local_theta %g and query_scalar %g must "
                         "not be negative; 0 "
                         "leaves each out",
                         name, (long long)model->window, (long long)model->full_every, model->local_theta,
                         model->query_scalar);
    if ((model->window && check_range(name, "window", model->window, 1LL << 31, err)) ||
        (model->full_every && check_range(name, "full_every", model->full_every, MOST_LAYERS, err)))
        return -1;
    if (!model->window && (model->full_every || model->local_theta > 0))
        return error_set(
            err,
            "model %s: full_every and local_theta are of models whose layers have a window, and window "
            "is 0; set it, or them to 0",
            name);
    if (model->family != MODEL_LLAMA && (model->window || model->query_scalar > 0))
        return error_set(err,
                         "model %s: window and query_scalar are of llama models, and this one is of family "
                         "%s; set them to 0",
                         name, model_family_name(model->family));
    return 0;
}

bool model_layer_is_local(const struct model *model, int64_t layer)
{
    return model->window && !(model->full_every && (layer + 1) % model->full_every == 0);
}

int model_check(const struct model *model, struct error *err)
{
    const char *name = model->name;
    if (check_range(name, "layers", model->layers, MOST_LAYERS, err) ||
        check_range(name, "hidden", model->hidden, MOST_HIDDEN, err) ||
        check_range(name, "heads", model->heads, MOST_HEADS, err) ||
        check_range(name, "kv_heads", model->kv_heads, MOST_HEADS, err) ||
        check_range(name, "head_size", model->head_size, 1 << 16, err) ||
        check_range(name, "ffn", model->ffn, 1 << 24, err) ||
        check_range(name, "vocab", model->vocab, 1 << 26, err) ||
        check_range(name, "max_seq_len", model->max_seq_len, 1LL << 31, err) ||
        check_range(name, "usual_batch", model->usual_batch, 1 << 20, err) ||
        check_positive(name, "norm_eps", model->norm_eps, err) ||
        (model->family == MODEL_LLAMA && check_positive(name, "rope_theta", model->rope_theta, err)))
        return -1;
    char list[120];
    if (model->heads % model->kv_heads)
        return error_set(err, "model %s: kv_heads=%lld does not divide heads=%lld; try %s", name,
                         (long long)model->kv_heads, (long long)model->heads,
                         divisors(model->heads, list, sizeof list));
    if (model->family == MODEL_LLAMA && model->head_size % 2)
        return error_set(
            err,
            "model %s: head size %lld is odd, and RoPE turns pairs; choose heads so that hidden / "
            "heads is even",
            name, (long long)model->head_size);
    if (check_unturned(model, err))
        return -1;
    if (check_norms(model, err) || check_windows(model, err))
        return -1;
    if (model->family == MODEL_ENCODER && model->tied)
        return error_set(err, "model %s: an encoder has no embedding to tie its head to; set tied to false",
                         name);
    return check_parameters_fit(model, err);
}

/* head_size follows hidden / heads; says which heads would divide when they do not. */
static int derive_head_size(struct model *model, struct error *err)
{
    char list[120];
    if (check_range(model->name, "hidden", model->hidden, MOST_HIDDEN, err) ||
        check_range(model->name, "heads", model->heads, MOST_HEADS, err))
        return -1;
    if (model->hidden % model->heads)
        return error_set(err, "model %s: heads=%lld does not divide hidden=%lld; try %s", model->name,
                         (long long)model->heads, (long long)model->hidden,
                         divisors(model->hidden, list, sizeof list));
    model->head_size = model->hidden / model->heads;
    return 0;
}

static int apply_overrides(struct model *model, const struct model_overrides *o, struct error *err)
{
    bool gpt_like = model->family != MODEL_LLAMA;
    bool multi_head = model->kv_heads == model->heads;
    bool own_head_size = model->qk_norm || model->head_size * model->heads != model->hidden;
    if (o->layers)
        model->layers = o->layers;
    if (o->hidden)
        model->hidden = o->hidden;
    if (o->heads)
        model->heads = o->heads;
    if (o->heads && multi_head)
        model->kv_heads = o->heads;
    if (o->kv_heads)
        model->kv_heads = o->kv_heads;
    if (o->kv_heads && gpt_like && o->kv_heads != model->heads)
        return error_set(
            err,
            "model %s: --kv-heads %lld with %lld heads; the %s family has as many key/value heads "
            "as heads, use a llama model for grouped-query attention",
            model->name, (long long)o->kv_heads, (long long)model->heads, model_family_name(model->family));
    if ((o->hidden || o->heads) && !own_head_size && derive_head_size(model, err))
        return -1;
    if (o->hidden && gpt_like)
        model->ffn = 4 * model->hidden;
    if (o->ffn)
        model->ffn = o->ffn;
    if (o->vocab)
        model->vocab = o->vocab;
    return 0;
}

/* Of a name that is near one of `names`, or like one but for the part before the slash. */
static const char *nearest_of(const char *name, const char *const *names)
{
    const char *near = options_nearest(name, names), *tail = hub_models_short_name(name);
    for (; !near && *names; names++)
        if (!strcasecmp(hub_models_short_name(*names), tail))
            near = *names;
    return near;
}

/* The first model of the hub whose own name begins so: Mistral-7B-v0.1 of "mistral-7b". */
static const char *begun_by(const char *name, const char *const *names)
{
    size_t length = strlen(name);
    for (; length > 3 && *names; names++)
        if (!strncasecmp(hub_models_short_name(*names), name, length))
            return *names;
    return NULL;
}

const char *model_nearest(const char *name)
{
    const char *near = presets_known_as(name);
    near = near ? near : begun_by(name, hub_models_names());
    near = near ? near : nearest_of(name, presets_names());
    return near ? near : nearest_of(name, hub_models_names());
}

/* A model that does not exist, with the nearest one that does. */
static int unknown_model(const char *source, const char *why, struct error *err)
{
    const char *near = model_nearest(source);
    if (strchr(source, '/') && hub_cache_is_name(source))
        error_set(err,
                  "model \"%s\" is no preset, no file, not in the hub's cache%s%s%s, and none whose sizes "
                  "memplan knows",
                  source, *why ? " (" : "", why, *why ? ")" : "");
    else
        error_set(err, "model \"%s\" is neither a preset nor a file", source);
    if (near)
        error_append(err, "; did you mean %s?", near);
    else
        error_append(err, "; `memplan describe --list` shows the presets");
    return -1;
}

/* A plan has a model, so that it is easily taken for one. */
static int check_no_plan(const json_t *object, const char *path, struct error *err)
{
    const json_t *model = json_object_get(object, "model");
    const char *name = json_string_value(json_object_get(model, "name"));
    if (!json_object_get(object, "memplan_plan"))
        return 0;
    return error_set(err,
                     "%s: a plan, not a model; name its model, %s, or run the plan with `memplan train %s`",
                     path, name ? name : "which it holds", path);
}

static int read_file(const char *path, struct model *out, struct error *err)
{
    json_t *object;
    if (jsonfile_read(path, &object, err))
        return -1;
    int status = check_no_plan(object, path, err) ? -1 : model_from_json(object, path, out, err);
    json_decref(object);
    return status;
}

static void set_name(struct model *model, const char *name)
{
    snprintf(model->name, sizeof model->name, "%.*s", (int)sizeof model->name - 1, name);
}

static void note_known(struct model *model, const char *name)
{
    char rest[sizeof model->note];
    memcpy(rest, model->note, sizeof rest);
    snprintf(model->note, sizeof model->note, "sizes of %.60s as memplan knows them%s%.80s", name,
             *rest ? "; " : "", rest);
}

/* A name of the hub: what was downloaded of it, or the sizes that are known here. */
static int read_hub(const char *name, struct model *out, struct error *err)
{
    struct hub_cache_snapshot snapshot = {0};
    char cache[HUB_CACHE_PATH], path[HUB_CACHE_PATH + 16];
    hub_cache_folder(&hub_cache_environment, cache);
    if (hub_cache_find(cache, name, NULL, &snapshot)) {
        snprintf(path, sizeof path, "%s/config.json", snapshot.folder);
        if (read_file(path, out, err))
            return -1;
        set_name(out, hub_models_short_name(name));
        return 0;
    }
    json_t *config = hub_models_config(name);
    if (!config && hub_config_refused(name))
        return hub_config_refuse(name, hub_config_refused(name), err);
    if (!config)
        return unknown_model(name, snapshot.why, err);
    int status = model_from_json(config, name, out, err);
    json_decref(config);
    if (!status)
        note_known(out, name);
    return status;
}

static bool ends_with_slash(const char *path)
{
    size_t length = strlen(path);
    return length && path[length - 1] == '/';
}

static int read_source(const char *source, struct model *out, struct error *err)
{
    const struct model *preset = presets_find(source);
    if (preset) {
        *out = *preset;
        return 0;
    }
    struct stat info;
    if (stat(source, &info))
        return read_hub(source, out, err);
    char path[4096];
    snprintf(path, sizeof path, "%s%s%s", source,
             S_ISDIR(info.st_mode) && !ends_with_slash(source) ? "/" : "",
             S_ISDIR(info.st_mode) ? "config.json" : "");
    return read_file(path, out, err);
}

int model_read(const char *source, const struct model_overrides *overrides, struct model *out,
               struct error *err)
{
    struct model model = {0};
    if (read_source(source, &model, err))
        return -1;
    if (overrides && apply_overrides(&model, overrides, err))
        return -1;
    if (model_check(&model, err))
        return -1;
    *out = model;
    return 0;
}

/* The file's folder is the best name a config.json has: ".../Mistral-7B/config.json" -> "Mistral-7B". */
static void name_from_path(struct model *model, const char *path)
{
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", path);
    char *slash = strrchr(copy, '/');
    if (slash && !strcmp(slash + 1, "config.json")) {
        *slash = 0;
        slash = strrchr(copy, '/');
    }
    set_name(model, slash ? slash + 1 : copy);
}

static int read_norms(const json_t *object, const char *where, enum model_norms *out, struct error *err)
{
    const char *name = norms_names[NORMS_BEFORE];
    if (jsonfile_text_optional(object, "norms", where, &name, err))
        return -1;
    for (int i = 0; i < NORMS_COUNT; i++)
        if (!strcmp(name, norms_names[i])) {
            *out = (enum model_norms)i;
            return 0;
        }
    return error_set(err, "%s: norms \"%.60s\" is unknown; use before, behind or around", where, name);
}

static int read_own(const json_t *object, const char *where, struct model *m, struct error *err)
{
    const char *family = NULL, *name = "";
    if (jsonfile_text_optional(object, "family", where, &family, err))
        return -1;
    if (!family)
        return error_set(
            err,
            "%s: it has neither the model_type of a Hugging Face config.json nor the family of a "
            "model of ours, so it describes none; add \"model_type\": \"llama\", or what its "
            "layers are",
            where);
    int found = -1;
    for (int i = 0; i < 3; i++)
        if (!strcmp(family, family_names[i]))
            found = i;
    if (found < 0)
        return error_set(err, "%s: family \"%s\" is unknown; use gpt2, llama or encoder", where, family);
    m->family = (enum model_family)found;
    bool gpt_like = m->family != MODEL_LLAMA;
    m->norm_eps = 1e-5;
    m->rope_theta = m->family == MODEL_LLAMA ? 10000 : 0;
    m->tied = m->family == MODEL_GPT2;
    m->qkv_bias = m->proj_bias = gpt_like;
    if (jsonfile_text_optional(object, "name", where, &name, err) ||
        jsonfile_int(object, "layers", where, &m->layers, err) ||
        jsonfile_int(object, "hidden", where, &m->hidden, err) ||
        jsonfile_int(object, "heads", where, &m->heads, err) ||
        jsonfile_int(object, "vocab", where, &m->vocab, err) ||
        jsonfile_int(object, "max_seq_len", where, &m->max_seq_len, err))
        return -1;
    if (jsonfile_int_optional(object, "head_size", where, &m->head_size, err) ||
        check_range(m->name, "hidden", m->hidden, MOST_HIDDEN, err))
        return -1;
    m->kv_heads = m->heads;
    m->ffn = 4 * m->hidden;
    if (jsonfile_int_optional(object, "kv_heads", where, &m->kv_heads, err) ||
        jsonfile_int_optional(object, "ffn", where, &m->ffn, err) ||
        jsonfile_int_optional(object, "usual_batch", where, &m->usual_batch, err) ||
        jsonfile_real_optional(object, "norm_eps", where, &m->norm_eps, err) ||
        jsonfile_real_optional(object, "rope_theta", where, &m->rope_theta, err) ||
        jsonfile_int_optional(object, "unturned", where, &m->unturned, err) ||
        jsonfile_bool_optional(object, "tied", where, &m->tied, err) ||
        jsonfile_bool_optional(object, "qkv_bias", where, &m->qkv_bias, err) ||
        jsonfile_bool_optional(object, "proj_bias", where, &m->proj_bias, err) ||
        jsonfile_bool_optional(object, "qk_norm", where, &m->qk_norm, err) ||
        jsonfile_bool_optional(object, "qk_norm_whole", where, &m->qk_norm_whole, err) ||
        jsonfile_bool_optional(object, "norm_add_one", where, &m->norm_add_one, err) ||
        jsonfile_bool_optional(object, "gelu_gate", where, &m->gelu_gate, err) ||
        jsonfile_bool_optional(object, "scale_embedding", where, &m->scale_embedding, err) ||
        jsonfile_int_optional(object, "window", where, &m->window, err) ||
        jsonfile_int_optional(object, "full_every", where, &m->full_every, err) ||
        jsonfile_real_optional(object, "local_theta", where, &m->local_theta, err) ||
        jsonfile_real_optional(object, "query_scalar", where, &m->query_scalar, err) ||
        read_norms(object, where, &m->norms, err))
        return -1;
    if (name[0])
        set_name(m, name);
    if (gpt_like && (m->kv_heads != m->heads || !m->qkv_bias || !m->proj_bias))
        return error_set(
            err, "%s: the %s family has biases and as many key/value heads as heads; use family llama", where,
            family);
    return 0;
}

int model_from_json(const json_t *object, const char *where, struct model *out, struct error *err)
{
    struct model model = {.usual_batch = 1};
    name_from_path(&model, where);
    const char *type = "";
    if (jsonfile_text_optional(object, "model_type", where, &type, err))
        return -1;
    if (type[0] ? hub_config_read(object, where, type, &model, err) : read_own(object, where, &model, err))
        return -1;
    if (!model.head_size && derive_head_size(&model, err))
        return -1;
    if (model_check(&model, err))
        return error_prefix(err, "%s", where);
    *out = model;
    return 0;
}

/* What distinguishes families of llamas. */
static json_t *traits_to_json(const struct model *m)
{
    return json_pack("{s:b, s:b, s:b, s:b, s:s, s:b, s:b, s:b, s:I, s:I, s:f, s:f}", "qkv_bias", m->qkv_bias,
                     "proj_bias", m->proj_bias, "qk_norm", m->qk_norm, "qk_norm_whole", m->qk_norm_whole,
                     "norms", norms_names[m->norms], "norm_add_one", m->norm_add_one, "gelu_gate",
                     m->gelu_gate, "scale_embedding", m->scale_embedding, "window", (json_int_t)m->window,
                     "full_every", (json_int_t)m->full_every, "local_theta", m->local_theta, "query_scalar",
                     m->query_scalar);
}

json_t *model_to_json(const struct model *m)
{
    json_t *traits = traits_to_json(m);
    json_t *object = json_pack(
        "{s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:b}", "name",
        jsonfile_string(m->name), "family", model_family_name(m->family), "layers", (json_int_t)m->layers,
        "hidden", (json_int_t)m->hidden, "heads", (json_int_t)m->heads, "kv_heads", (json_int_t)m->kv_heads,
        "head_size", (json_int_t)m->head_size, "ffn", (json_int_t)m->ffn, "vocab", (json_int_t)m->vocab,
        "max_seq_len", (json_int_t)m->max_seq_len, "norm_eps", m->norm_eps, "rope_theta", m->rope_theta,
        "unturned", (json_int_t)m->unturned, "tied", m->tied);
    json_object_update(object, traits);
    json_decref(traits);
    json_object_set_new(object, "usual_batch", json_integer(m->usual_batch));
    return object;
}
