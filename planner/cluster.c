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

/* A node. NVIDIA DGX systems as sold: eight cards, and eight network ports of 200 Gb/s (A100) or 400 Gb/s. */
static const struct {
    const char *name, *ranks, *device;
} presets[] = {
    {"dgx-a100-40g", "8", "a100-40g,net=1600Gb/s"}, {"dgx-a100", "8", "a100-80g,net=1600Gb/s"},
    {"dgx-h100", "8", "h100-80g,net=3200Gb/s"},     {"dgx-h200", "8", "h200,net=3200Gb/s"},
    {"dgx-b200", "8", "b200,net=3200Gb/s"},         {"laptop", "1", "cpu"},
};

enum { PRESETS = sizeof presets / sizeof presets[0] };

const char *const *cluster_presets(void)
{
    static const char *names[PRESETS + 1];
    for (int i = 0; i < PRESETS; i++)
        names[i] = presets[i].name;
    return names;
}

/* "2x" of "2xdgx-h100": how many bytes; 0: it begins otherwise. */
static size_t count_bytes(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return digits && tolower((unsigned char)text[digits]) == 'x' ? digits + 1 : 0;
}

/* What "dgx-h100" or "2xdgx-h100" stands for, "2x8:h100-80g,net=3200Gb/s"; NULL: it is no preset. */
static const char *preset_spec(const char *text, struct arena *arena)
{
    size_t count = count_bytes(text);
    for (int i = 0; i < PRESETS; i++)
        if (!strcasecmp(presets[i].name, text + count))
            return arena_printf(arena, "%.*s%s:%s", count ? (int)count : 2, count ? text : "1x",
                                presets[i].ranks, presets[i].device);
    return NULL;
}

static bool is_preset(const char *text)
{
    struct arena *arena = arena_create();
    bool found = preset_spec(text, arena) != NULL;
    arena_free(arena);
    return found;
}

double cluster_usual_net(const struct rank_device *device, int64_t ranks_per_node)
{
    const struct card *card = device->card;
    if (!card || !card->node)
        return CLUSTER_NET_BYTES_PER_S;
    return card->node_net_bytes_per_s * (double)ranks_per_node / card->node_cards;
}

int64_t cluster_group_ranks(const struct node_group *group)
{
    return group->nodes * group->ranks_per_node;
}

int64_t cluster_ranks(const struct cluster *cluster)
{
    int64_t ranks = 0;
    for (int i = 0; i < cluster->group_count; i++)
        ranks += cluster_group_ranks(&cluster->groups[i]);
    return ranks;
}

int64_t cluster_nodes(const struct cluster *cluster)
{
    int64_t nodes = 0;
    for (int i = 0; i < cluster->group_count; i++)
        nodes += cluster->groups[i].nodes;
    return nodes;
}

int64_t cluster_ranks_per_node(const struct cluster *cluster)
{
    int64_t most = 0;
    for (int i = 0; i < cluster->group_count; i++)
        most = max_i64(most, cluster->groups[i].ranks_per_node);
    return most;
}

struct cluster cluster_of_group(const struct node_group *group)
{
    return (struct cluster){.groups = {*group}, .group_count = 1};
}

struct cluster cluster_with_memory(const struct cluster *cluster, int64_t more_bytes)
{
    struct cluster out = *cluster;
    for (int i = 0; i < out.group_count; i++)
        out.groups[i].device.capacity_bytes += more_bytes;
    return out;
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

/* Of the cards of one model, "a100-40g" and "a100-80g" of "a100", the one from `from` on; NULL: there is none. */
static const char *card_of_model(const char *model, int *from)
{
    const char *const *names = cards_names();
    size_t length = strlen(model);
    for (; length && names[*from]; ++*from)
        if (!strncasecmp(names[*from], model, length) && names[*from][length] == '-')
            return names[(*from)++];
    return NULL;
}

/* "h100" is the only card of its model. */
static const struct card *find_card(const char *name)
{
    const struct card *card = cards_find(name);
    int from = 0;
    const char *only = card ? NULL : card_of_model(name, &from);
    return only && !card_of_model(name, &from) ? cards_find(only) : card;
}

/* A card of that model or one that the name begins, else one of similar spelling; NULL when nothing is near. */
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
    const char *const *names = cards_names(), *near = nearest_device(name), *other = NULL;
    int from = 0;
    if (card_of_model(name, &from))
        other = card_of_model(name, &from);
    if (other)
        return error_set(err, "device \"%s\" is unknown; did you mean %s or %s?", name, near, other);
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
    struct rank_device device = {.card = find_card(name)};
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

/* ------------------------------------------------------------------------------------------------------------ groups */

static int check_count(const char *what, int64_t value, int64_t most, struct error *err)
{
    if (value >= 1 && value <= most)
        return 0;
    return error_set(err, "%lld %s; a cluster has 1 to %lld of them", (long long)value, what,
                     (long long)most);
}

static int check_counts(const struct node_group *group, struct error *err)
{
    return check_count("nodes", group->nodes, MAX_NODES, err) ||
                   check_count("ranks per node", group->ranks_per_node, MAX_RANKS_PER_NODE, err)
               ? -1
               : 0;
}

static bool is_same_device(const struct rank_device *a, const struct rank_device *b)
{
    return !strcmp(a->name, b->name) && a->capacity_bytes == b->capacity_bytes;
}

/* Collectives connect ranks of one kind of library. */
static int check_together(const struct rank_device *a, const struct rank_device *b, struct error *err)
{
    if (!a->card != !b->card)
        return error_set(err,
                         "%s and %s in one cluster: ranks on a CPU and on cards are no ranks of one "
                         "run; plan for each alone",
                         a->name, b->name);
    if (a->card && a->card->cuda != b->card->cuda)
        return error_set(err,
                         "%s and %s in one cluster: the collectives of the one vendor do not reach the "
                         "other's cards; plan for each alone",
                         a->name, b->name);
    return 0;
}

/* Nodes like those of a group that is there are more of it. */
static int add_group(struct cluster *cluster, const struct node_group *group, struct error *err)
{
    if (check_counts(group, err))
        return -1;
    for (int i = 0; i < cluster->group_count; i++) {
        struct node_group *other = &cluster->groups[i];
        if (check_together(&other->device, &group->device, err))
            return -1;
        if (is_same_device(&other->device, &group->device) &&
            other->ranks_per_node == group->ranks_per_node &&
            other->net_bytes_per_s == group->net_bytes_per_s) {
            other->nodes += group->nodes;
            return check_counts(other, err);
        }
    }
    if (cluster->group_count == CLUSTER_GROUPS)
        return error_set(err,
                         "more than %d groups of nodes that differ; leave out the smallest, or plan for "
                         "those that are alike",
                         CLUSTER_GROUPS);
    cluster->groups[cluster->group_count++] = *group;
    return 0;
}

/* `rate` NULL: nobody said; then it is 0 until share_net(). */
static int set_net(struct node_group *group, const char *rate, struct error *err)
{
    if (!rate)
        return 0;
    if (units_parse_rate(rate, "net", &group->net_bytes_per_s, err))
        return -1;
    if (!(group->net_bytes_per_s > 0))
        return error_set(err, "net=%s is no rate to work with; write it like net=400Gb/s", rate);
    return 0;
}

/* The last group's network is that of the groups that have none of their own. */
static void share_net(struct node_group *groups, int count)
{
    double last = groups[count - 1].net_bytes_per_s;
    for (int i = 0; i < count; i++) {
        struct node_group *g = &groups[i];
        if (g->net_bytes_per_s > 0)
            continue;
        g->net_bytes_per_s = last > 0 ? last : cluster_usual_net(&g->device, g->ranks_per_node);
        g->net_assumed = !(last > 0);
    }
}

/* Takes over what was read, like groups together. */
static int join_groups(struct node_group *groups, int count, struct cluster *out, struct error *err)
{
    struct cluster cluster = {.group_count = 0};
    share_net(groups, count);
    for (int i = 0; i < count; i++)
        if (add_group(&cluster, &groups[i], err))
            return -1;
    *out = cluster;
    return 0;
}

/* -------------------------------------------------------------------------------------------------------------- line */

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
static int parse_group(char *text, struct node_group *out, struct error *err)
{
    struct node_group group = {0};
    char *device = strchr(text, ':');
    if (!device)
        return error_set(err, "\"%s\" is no group of nodes; write it like 2x8:h100-80g", text);
    *device++ = '\0';
    if (!parse_shape(text, &group.nodes, &group.ranks_per_node))
        return error_set(err, "\"%s\" is no number of ranks; write 8, or NODESxRANKS like 2x8", text);
    if (check_counts(&group, err))
        return -1;
    const char *net = NULL;
    char *comma = strchr(device, ',');
    if (comma) {
        *comma = '\0';
        if (strncmp(comma + 1, "net=", 4))
            return error_set(err, "\"%s\" is unknown here; only net=RATE may follow the device", comma + 1);
        net = comma + 5;
    }
    if (set_net(&group, net, err) || cluster_read_device(device, group.ranks_per_node, &group.device, err))
        return -1;
    *out = group;
    return 0;
}

/* As many as may be written; those that are alike count once in the end. */
enum { MOST_WRITTEN = 64 };

static int too_many(struct error *err)
{
    return error_set(err, "more than %d groups of nodes; write those that are alike as one", MOST_WRITTEN);
}

/* `text` is a copy that may be cut: GROUP+GROUP... */
static int parse_line(char *text, struct arena *arena, struct cluster *out, struct error *err)
{
    struct node_group groups[MOST_WRITTEN];
    int count = 0;
    for (char *next; text; text = next) {
        next = strchr(text, '+');
        if (next)
            *next++ = '\0';
        const char *preset = preset_spec(text, arena);
        if (count == MOST_WRITTEN)
            return too_many(err);
        if (parse_group(preset ? arena_strdup(arena, preset) : text, &groups[count++], err))
            return -1;
    }
    return join_groups(groups, count, out, err);
}

static int parse_text(const char *spec, struct cluster *out, struct error *err)
{
    struct arena *arena = arena_create();
    int status = parse_line(arena_strdup(arena, spec), arena, out, err);
    arena_free(arena);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------- file */

static int group_from_json(const json_t *object, const char *where, struct node_group *out, struct error *err)
{
    struct node_group group = {.nodes = 1};
    const char *device, *memory = NULL, *net = NULL;
    if (jsonfile_int_optional(object, "nodes", where, &group.nodes, err) ||
        jsonfile_int(object, "ranks_per_node", where, &group.ranks_per_node, err) ||
        jsonfile_text(object, "device", where, &device, err) ||
        jsonfile_text_optional(object, "memory", where, &memory, err) ||
        jsonfile_text_optional(object, "net", where, &net, err))
        return -1;
    if (check_counts(&group, err) || set_net(&group, net, err) ||
        device_from_parts(device, memory, group.ranks_per_node, &group.device, err))
        return error_prefix(err, "%s", where);
    *out = group;
    return 0;
}

static int groups_from_json(const json_t *object, const char *where, struct node_group *out, int *count,
                            struct error *err)
{
    json_t *groups;
    if (!json_object_get(object, "groups")) {
        *count = 1;
        return group_from_json(object, where, out, err);
    }
    if (jsonfile_array(object, "groups", where, &groups, err))
        return -1;
    *count = (int)json_array_size(groups);
    if (!*count)
        return error_set(err, "%s: \"groups\" is empty; a cluster has one group of nodes at least", where);
    if (json_array_size(groups) > MOST_WRITTEN) {
        too_many(err);
        return error_prefix(err, "%s", where);
    }
    for (int i = 0; i < *count; i++) {
        char place[256];
        snprintf(place, sizeof place, "%s: groups[%d]", where, i);
        if (group_from_json(json_array_get(groups, (size_t)i), place, &out[i], err))
            return -1;
    }
    return 0;
}

static int from_json(const json_t *object, const char *where, struct cluster *out, struct error *err)
{
    struct node_group groups[MOST_WRITTEN];
    int64_t version;
    int count;
    if (jsonfile_int(object, "memplan_cluster", where, &version, err))
        return -1;
    if (version != CLUSTER_VERSION)
        return error_set(err, "%s: cluster version %lld; this memplan reads version %d", where,
                         (long long)version, CLUSTER_VERSION);
    if (groups_from_json(object, where, groups, &count, err))
        return -1;
    if (join_groups(groups, count, out, err))
        return error_prefix(err, "%s", where);
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

/* ------------------------------------------------------------------------------------------------------------- either */

static int unknown_cluster(const char *spec, struct error *err)
{
    size_t count = count_bytes(spec);
    const char *near = options_nearest(spec + count, cluster_presets());
    error_set(err, "cluster \"%s\" is no file, no preset and not of the form 2x8:h100-80g,net=3200Gb/s",
              spec);
    if (near)
        return error_append(err, "; did you mean %.*s%s?", (int)count, spec, near), -1;
    error_append(err, "; presets of a node, of which 2xdgx-h100 are two, are ");
    for (int i = 0; i < PRESETS; i++)
        error_append(err, "%s%s", i ? ", " : "", presets[i].name);
    error_append(err, "; this machine's own CPU is 1x4:cpu(300MiB)");
    return -1;
}

int cluster_read(const char *spec, struct cluster *out, struct error *err)
{
    size_t length = strlen(spec);
    bool preset = is_preset(spec);
    if (!preset && ((length > 5 && !strcasecmp(spec + length - 5, ".json")) || !access(spec, R_OK)))
        return read_file(spec, out, err);
    if (!preset && !strpbrk(spec, ":+"))
        return unknown_cluster(spec, err);
    if (parse_text(spec, out, err))
        return error_prefix(err, "cluster %s", spec);
    return 0;
}
