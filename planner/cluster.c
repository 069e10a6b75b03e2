#include "planner/cluster.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/json.h"
#include "base/options.h"
#include "base/units.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { CLUSTER_VERSION = 1, MAX_NODES = 1 << 20, MAX_RANKS_PER_NODE = 1 << 12 };

/* NVIDIA DGX systems as sold: eight cards, and eight network ports of 200 Gb/s (A100) or 400 Gb/s. */
static const struct {
    const char *name, *spec;
} presets[] = {
    {"dgx-a100-40g", "1x8:a100-40g,net=1600Gb/s"}, {"dgx-a100", "1x8:a100-80g,net=1600Gb/s"},
    {"dgx-h100", "1x8:h100-80g,net=3200Gb/s"},     {"dgx-h200", "1x8:h200,net=3200Gb/s"},
    {"dgx-b200", "1x8:b200,net=3200Gb/s"},         {"laptop", "1x1:cpu"},
};

enum { PRESETS = sizeof presets / sizeof presets[0] };

/* NULL-terminated. */
static const char *const *preset_names(void)
{
    static const char *names[PRESETS + 1];
    for (int i = 0; i < PRESETS; i++)
        names[i] = presets[i].name;
    return names;
}

static const char *preset_spec(const char *name)
{
    for (int i = 0; i < PRESETS; i++)
        if (!strcasecmp(presets[i].name, name))
            return presets[i].spec;
    return NULL;
}

int64_t cluster_ranks(const struct cluster *cluster)
{
    return cluster->nodes * cluster->ranks_per_node;
}

/* ----------------------------------------------------------------------------------------------------------- device */

static int cpu_memory_share(int64_t ranks, int64_t *bytes, struct error *err)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGE_SIZE);
    if (pages <= 0 || page_bytes <= 0)
        return error_set(err, "device cpu: this system does not tell its memory; say it, like cpu(8GiB)");
    *bytes = (int64_t)pages * page_bytes / ranks;
    return 0;
}

/* A card that the name begins, like "h100", or else one of similar spelling; NULL when nothing is near. */
static const char *nearest_device(const char *name)
{
    char lower[32];
    size_t length = strlen(name);
    if (length < 2 || length >= sizeof lower)
        return NULL;
    if (!strncasecmp(name, "cpu", 3))
        return "cpu";
    for (int i = 0; cards_names()[i]; i++)
        if (!strncasecmp(cards_names()[i], name, length))
            return cards_names()[i];
    for (size_t i = 0; i <= length; i++)
        lower[i] = (char)tolower((unsigned char)name[i]);
    return options_nearest(lower, cards_names());
}

static int unknown_device(const char *name, struct error *err)
{
    const char *const *names = cards_names(), *near = nearest_device(name);
    if (near)
        return error_set(err, "device \"%s\" is unknown; did you mean %s?", name, near);
    error_set(err, "device \"%s\" is unknown; use cpu or one of ", name);
    for (int i = 0; names[i]; i++)
        error_append(err, "%s%s", i ? ", " : "", names[i]);
    return -1;
}

/* Splits "cpu(300MiB)" in place; *memory is NULL when there are no parentheses. */
static int split_memory(char *spec, char **memory, struct error *err)
{
    *memory = NULL;
    char *open = strchr(spec, '(');
    if (!open)
        return 0;
    size_t length = strlen(spec);
    if (spec[length - 1] != ')')
        return error_set(err, "device \"%s\" has no closing parenthesis; write it like cpu(300MiB)", spec);
    spec[length - 1] = '\0';
    *open = '\0';
    *memory = open + 1;
    return 0;
}

static int device_from_parts(const char *name, const char *memory, int64_t ranks, struct rank_device *out,
                             struct error *err)
{
    struct rank_device device = {.card = cards_find(name)};
    if (!device.card && strcasecmp(name, "cpu"))
        return unknown_device(name, err);
    snprintf(device.name, sizeof device.name, "%s", device.card ? device.card->name : "cpu");
    if (memory) {
        if (units_parse_bytes(memory, "device memory", &device.capacity_bytes, err))
            return -1;
        if (device.capacity_bytes <= 0)
            return error_set(err, "device %s has a memory of \"%s\"; it must be above 0", device.name,
                             memory);
    } else if (device.card) {
        device.capacity_bytes = device.card->usable_bytes;
    } else if (cpu_memory_share(ranks, &device.capacity_bytes, err)) {
        return -1;
    }
    *out = device;
    return 0;
}

int cluster_read_device(const char *spec, int64_t ranks, struct rank_device *out, struct error *err)
{
    char copy[128], *memory;
    if ((size_t)snprintf(copy, sizeof copy, "%s", spec) >= sizeof copy)
        return error_set(err, "device \"%.40s...\" is too long; write it like h100-80g or cpu(300MiB)", spec);
    if (split_memory(copy, &memory, err))
        return -1;
    return device_from_parts(copy, memory, ranks, out, err);
}

/* ---------------------------------------------------------------------------------------------------------- cluster */

static int check_count(const char *what, int64_t value, int64_t most, struct error *err)
{
    if (value >= 1 && value <= most)
        return 0;
    return error_set(err, "%lld %s; a cluster has 1 to %lld of them", (long long)value, what,
                     (long long)most);
}

static int set_net(struct cluster *cluster, const char *rate, struct error *err)
{
    if (rate) {
        if (units_parse_rate(rate, "net", &cluster->net_bytes_per_s, err))
            return -1;
        if (!(cluster->net_bytes_per_s > 0))
            return error_set(err, "net=%s is no rate to work with; write it like net=400Gb/s", rate);
        return 0;
    }
    cluster->net_bytes_per_s = CLUSTER_NET_BYTES_PER_S;
    cluster->net_assumed = cluster->nodes > 1;
    return 0;
}

static bool is_count(const char *text, char **end, int64_t *value)
{
    if (!isdigit((unsigned char)*text))
        return false;
    *value = strtoll(text, end, 10);
    return true;
}

/* "2x8" or "8", which is all of `text`. */
static bool parse_shape(const char *text, int64_t *nodes, int64_t *ranks)
{
    char *end;
    *nodes = 1;
    if (!is_count(text, &end, ranks))
        return false;
    if (tolower((unsigned char)*end) == 'x') {
        *nodes = *ranks;
        if (!is_count(end + 1, &end, ranks))
            return false;
    }
    return !*end;
}

/* `text` is a copy that may be cut: SHAPE:DEVICE[,net=RATE]. */
static int parse_line(char *text, struct cluster *out, struct error *err)
{
    struct cluster cluster = {0};
    char *device = strchr(text, ':');
    *device++ = '\0';
    if (!parse_shape(text, &cluster.nodes, &cluster.ranks_per_node))
        return error_set(err, "\"%s\" is no number of ranks; write 8, or NODESxRANKS like 2x8", text);
    if (check_count("nodes", cluster.nodes, MAX_NODES, err) ||
        check_count("ranks per node", cluster.ranks_per_node, MAX_RANKS_PER_NODE, err))
        return -1;
    const char *net = NULL;
    char *comma = strchr(device, ',');
    if (comma) {
        *comma = '\0';
        if (strncmp(comma + 1, "net=", 4))
            return error_set(err, "\"%s\" is unknown here; only net=RATE may follow the device", comma + 1);
        net = comma + 5;
    }
    if (set_net(&cluster, net, err) ||
        cluster_read_device(device, cluster.ranks_per_node, &cluster.device, err))
        return -1;
    *out = cluster;
    return 0;
}

static int parse_text(const char *spec, struct cluster *out, struct error *err)
{
    struct arena *arena = arena_create();
    int status = parse_line(arena_strdup(arena, spec), out, err);
    arena_free(arena);
    return status;
}

static int from_json(const json_t *object, const char *where, struct cluster *out, struct error *err)
{
    struct cluster cluster = {.nodes = 1};
    int64_t version;
    const char *device, *memory = NULL, *net = NULL;
    if (jsonfile_int(object, "memplan_cluster", where, &version, err))
        return -1;
    if (version != CLUSTER_VERSION)
        return error_set(err, "%s: cluster version %lld; this memplan reads version %d", where,
                         (long long)version, CLUSTER_VERSION);
    if (jsonfile_int_optional(object, "nodes", where, &cluster.nodes, err) ||
        jsonfile_int(object, "ranks_per_node", where, &cluster.ranks_per_node, err) ||
        jsonfile_text(object, "device", where, &device, err) ||
        jsonfile_text_optional(object, "memory", where, &memory, err) ||
        jsonfile_text_optional(object, "net", where, &net, err))
        return -1;
    if (check_count("nodes", cluster.nodes, MAX_NODES, err) ||
        check_count("ranks per node", cluster.ranks_per_node, MAX_RANKS_PER_NODE, err) ||
        set_net(&cluster, net, err) ||
        device_from_parts(device, memory, cluster.ranks_per_node, &cluster.device, err))
        return error_prefix(err, "%s", where);
    *out = cluster;
    return 0;
}

static int read_file(const char *path, struct cluster *out, struct error *err)
{
    json_t *object;
    if (jsonfile_read(path, &object, err))
        return -1;
    int status = from_json(object, path, out, err);
    json_decref(object);
    return status;
}

static int unknown_cluster(const char *spec, struct error *err)
{
    const char *near = options_nearest(spec, preset_names());
    error_set(err, "cluster \"%s\" is no file, no preset and not of the form 2x8:h100-80g,net=400Gb/s", spec);
    if (near)
        error_append(err, "; did you mean %s?", near);
    else
        error_append(err, "; a cluster of this machine is 1x4:cpu(300MiB)");
    return -1;
}

int cluster_read(const char *spec, struct cluster *out, struct error *err)
{
    size_t length = strlen(spec);
    if (preset_spec(spec))
        return parse_text(preset_spec(spec), out, err);
    if ((length > 5 && !strcasecmp(spec + length - 5, ".json")) || !access(spec, R_OK))
        return read_file(spec, out, err);
    if (!strchr(spec, ':'))
        return unknown_cluster(spec, err);
    if (parse_text(spec, out, err))
        return error_prefix(err, "cluster %s", spec);
    return 0;
}
