#include "planner/siting.h"

#include "base/arena.h"
#include "base/checked.h"
#include "planner/prediction.h"

#include <stdio.h>
#include <string.h>

struct siting siting_of_one(const struct layout *layout)
{
    return (struct siting){.count = 1, .parts = {{0, (int)layout_ranks(layout)}}};
}

/* ------------------------------------------------------------------------------------------------------------- which */

struct placing {
    const struct cluster *cluster;
    int64_t stage_ranks, tp;
    bool whole; /* stages have ranks of one group only */
    struct siting siting;
    bool (*visit)(void *context, const struct siting *siting);
    void *context;
};

/* Ranks that stay together in a group. */
static int64_t unit_of(const struct placing *p)
{
    return p->whole ? p->stage_ranks : p->tp;
}

static int64_t usable_ranks(const struct placing *p, int group)
{
    int64_t unit = unit_of(p);
    return cluster_group_ranks(&p->cluster->groups[group]) / unit * unit;
}

static bool is_placed(const struct siting *siting, int group)
{
    for (int i = 0; i < siting->count; i++)
        if (siting->parts[i].group == group)
            return true;
    return false;
}

/* Gives the ranks that are left to groups that have none yet. False: the visitor has seen enough. */
static bool place_rest(struct placing *p, int64_t left);

static bool place_part(struct placing *p, int group, int64_t ranks, int64_t left)
{
    int at = p->siting.count++;
    p->siting.parts[at].group = group;
    p->siting.parts[at].ranks = (int)ranks;
    bool more = place_rest(p, left - ranks);
    p->siting.count--;
    return more;
}

/* Ranks of the groups that have none yet. */
static int64_t ranks_free(const struct placing *p)
{
    int64_t ranks = 0;
    for (int g = 0; g < p->cluster->group_count; g++)
        ranks += is_placed(&p->siting, g) ? 0 : usable_ranks(p, g);
    return ranks;
}

static bool place_rest(struct placing *p, int64_t left)
{
    if (!left)
        return p->visit(p->context, &p->siting);
    for (int g = 0; g < p->cluster->group_count; g++) {
        if (is_placed(&p->siting, g))
            continue;
        int64_t most = min_i64(usable_ranks(p, g), left);
        int64_t least = p->whole ? max_i64(left - (ranks_free(p) - usable_ranks(p, g)), 1) : most;
        for (int64_t ranks = most; ranks > 0 && ranks >= least; ranks -= unit_of(p))
            if (!place_part(p, g, ranks, left))
                return false;
    }
    return true;
}

void siting_visit(const struct cluster *cluster, const struct layout *layout,
                  bool (*visit)(void *context, const struct siting *siting), void *context)
{
    struct placing p = {.cluster = cluster,
                        .stage_ranks = layout->dp * layout->tp,
                        .tp = layout->tp,
                        .visit = visit,
                        .context = context};
    int64_t stages = 0;
    for (int g = 0; g < cluster->group_count; g++)
        stages += cluster_group_ranks(&cluster->groups[g]) / p.stage_ranks;
    p.whole = stages >= layout->pp;
    place_rest(&p, layout_ranks(layout));
}

bool siting_is_even(const struct cluster *cluster, const struct siting *siting)
{
    int64_t each = siting->parts[0].ranks;
    each = min_i64(each, cluster->groups[siting->parts[0].group].ranks_per_node);
    for (int i = 0; i < siting->count; i++) {
        int64_t ranks = siting->parts[i].ranks;
        if (ranks % each || min_i64(ranks, cluster->groups[siting->parts[i].group].ranks_per_node) != each)
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------------------- sites */

uint32_t siting_groups(const struct siting *siting, int64_t first, int64_t end)
{
    uint32_t groups = 0;
    int64_t before = 0;
    for (int i = 0; i < siting->count; before += siting->parts[i++].ranks)
        if (before < end && before + siting->parts[i].ranks > first)
            groups |= 1U << siting->parts[i].group;
    return groups;
}

static bool is_single(uint32_t groups)
{
    return !(groups & (groups - 1));
}

static struct stage_site site_of(const struct cluster *cluster, const struct siting *siting, int64_t first,
                                 int64_t end)
{
    struct stage_site site = {.groups = siting_groups(siting, first, end),
                              .all = siting_groups(siting, 0, INT64_MAX)};
    for (int i = 0; i < siting->count && is_single(site.groups); i++) {
        int group = siting->parts[i].group;
        if (site.groups == 1U << group)
            site.together = siting->parts[i].ranks <= cluster->groups[group].ranks_per_node;
    }
    return site;
}

static bool is_same_site(const struct stage_site *a, const struct stage_site *b)
{
    return a->groups == b->groups && a->all == b->all && a->together == b->together;
}

int siting_runs(const struct cluster *cluster, const struct layout *layout, const struct siting *siting,
                struct site_run *runs)
{
    int64_t ranks = layout->dp * layout->tp;
    int count = 0;
    for (int64_t stage = 0; stage < layout->pp; stage++) {
        struct stage_site site = site_of(cluster, siting, stage * ranks, (stage + 1) * ranks);
        if (!count || !is_same_site(&runs[count - 1].site, &site))
            runs[count++] = (struct site_run){.site = site};
        runs[count - 1].stages++;
        if (siting->count == 1) {
            runs[0].stages = layout->pp;
            break;
        }
    }
    return count;
}

static int64_t room_of(const struct rank_device *device, int64_t ranks)
{
    return rank_device_plannable(device) - prediction_runtime(device, ranks).bytes;
}

int siting_scarcest(const struct cluster *cluster, uint32_t groups, int64_t ranks)
{
    int scarcest = -1;
    for (int g = 0; g < cluster->group_count; g++)
        if (groups & 1U << g && (scarcest < 0 || room_of(&cluster->groups[g].device, ranks) <
                                                     room_of(&cluster->groups[scarcest].device, ranks)))
            scarcest = g;
    return scarcest;
}

int64_t siting_room(const struct cluster *cluster, uint32_t groups, int64_t ranks)
{
    return room_of(&cluster->groups[siting_scarcest(cluster, groups, ranks)].device, ranks);
}

void siting_devices(const struct cluster *cluster, const struct layout *layout, const struct siting *siting,
                    const struct rank_device **devices)
{
    struct site_run runs[SITE_RUNS];
    int count = siting_runs(cluster, layout, siting, runs);
    int64_t stage = 0, ranks = layout_ranks(layout);
    for (int i = 0; i < count; i++)
        for (int64_t k = 0; k < runs[i].stages; k++)
            devices[stage++] = &cluster->groups[siting_scarcest(cluster, runs[i].site.groups, ranks)].device;
}

/* Is it one of the names in "h100-80g+a100-80g"? */
static bool is_named(const char *names, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = names; at && *at; at = strchr(at, '+'), at += at != NULL)
        if (!strncmp(at, name, length) && (at[length] == '+' || !at[length]))
            return true;
    return false;
}

/* Devices that differ in memory only have one name. */
static void add_name(struct text *names, const char *name)
{
    if (!names->data || !is_named(names->data, name))
        text_printf(names, "%s%s", names->length ? "+" : "", name);
}

void siting_print(const struct cluster *cluster, uint32_t groups, struct text *out)
{
    struct text names = {0};
    for (int g = 0; g < cluster->group_count; g++)
        if (groups & 1U << g)
            add_name(&names, cluster->groups[g].device.name);
    text_add(out, names.data ? names.data : "");
    text_free(&names);
}

/* -------------------------------------------------------------------------------------------------------------- plan */

_Static_assert((int)PLAN_GROUPS == (int)CLUSTER_GROUPS, "a plan has room for all groups of a cluster");

void siting_to_plan(const struct cluster *cluster, const struct siting *siting, struct plan *plan)
{
    struct text names = {0};
    plan->capacity_bytes = 0;
    plan->group_count = cluster->group_count > 1 ? siting->count : 0;
    for (int i = 0; i < siting->count; i++) {
        const struct node_group *group = &cluster->groups[siting->parts[i].group];
        struct plan_group *out = &plan->groups[i];
        plan->capacity_bytes = max_i64(plan->capacity_bytes, group->device.capacity_bytes);
        add_name(&names, group->device.name);
        *out = (struct plan_group){.capacity_bytes = group->device.capacity_bytes,
                                   .nodes = group->nodes,
                                   .ranks_per_node = group->ranks_per_node,
                                   .ranks = siting->parts[i].ranks,
                                   .net_bytes_per_s = group->net_bytes_per_s};
        snprintf(out->device, sizeof out->device, "%s", group->device.name);
    }
    snprintf(plan->device, sizeof plan->device, "%s", names.data ? names.data : "");
    text_free(&names);
}

static int group_from_plan(const struct plan_group *from, struct node_group *out, struct error *err)
{
    *out = (struct node_group){.nodes = from->nodes,
                               .ranks_per_node = from->ranks_per_node,
                               .net_bytes_per_s = from->net_bytes_per_s};
    if (from->ranks > cluster_group_ranks(out))
        return error_set(err, "the plan has %lld ranks on %lld nodes of %lld; a rank has a device of its own",
                         (long long)from->ranks, (long long)from->nodes, (long long)from->ranks_per_node);
    if (cluster_read_device(from->device, from->ranks_per_node, &out->device, err))
        return -1;
    out->device.capacity_bytes = from->capacity_bytes;
    return 0;
}

int siting_from_plan(const struct plan *plan, struct cluster *cluster, struct siting *out, struct error *err)
{
    int64_t ranks = 0;
    *cluster = (struct cluster){.group_count = plan->group_count};
    *out = (struct siting){.count = plan->group_count};
    for (int i = 0; i < plan->group_count; i++) {
        if (group_from_plan(&plan->groups[i], &cluster->groups[i], err))
            return -1;
        out->parts[i].group = i;
        out->parts[i].ranks = (int)plan->groups[i].ranks;
        ranks += plan->groups[i].ranks;
    }
    if (ranks != layout_ranks(&plan->layout))
        return error_set(
            err,
            "the plan places %lld ranks on %s, and here are %lld; keep its layout, say --device, "
            "or make a new plan",
            (long long)ranks, plan->device, (long long)layout_ranks(&plan->layout));
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------ speeds */

struct site_entry {
    struct site_entry *next;
    struct stage_site site;
    bool apart;
    struct machine_speed speed;
};

struct siting_speeds {
    const struct cluster *cluster;
    const struct machine_speed *speeds;
    struct arena *arena;
    struct site_entry *entries;
};

struct siting_speeds *siting_speeds_open(const struct cluster *cluster, const struct machine_speed *speeds)
{
    struct arena *arena = arena_create();
    struct siting_speeds *s = arena_array(arena, 1, sizeof *s);
    *s = (struct siting_speeds){.cluster = cluster, .speeds = speeds, .arena = arena};
    return s;
}

void siting_speeds_close(struct siting_speeds *s)
{
    if (s)
        arena_free(s->arena);
}

/* The speeds of the site's groups, one beside the other. `apart`: of ranks that are nowhere all on one node. */
static const struct machine_speed *find_chain(struct siting_speeds *s, const struct stage_site *site,
                                              bool apart)
{
    for (struct site_entry *e = s->entries; e; e = e->next)
        if (e->apart == apart && is_same_site(&e->site, site))
            return &e->speed;
    struct site_entry *e = arena_array(s->arena, 1, sizeof *e);
    *e = (struct site_entry){.next = s->entries, .site = *site, .apart = apart};
    s->entries = e;
    int group = 0;
    while (!(site->groups & 1U << group))
        group++;
    struct stage_site rest = *site;
    rest.groups &= ~(1U << group);
    e->speed = s->speeds[group];
    e->speed.apart = apart;
    e->speed.together = site->together;
    e->speed.beside = rest.groups ? find_chain(s, &rest, apart) : NULL;
    if (!apart && !is_single(site->all)) {
        struct stage_site all = {.groups = site->all, .all = site->all};
        e->speed.across = find_chain(s, &all, true);
    }
    return &e->speed;
}

const struct machine_speed *siting_speeds_find(struct siting_speeds *s, const struct stage_site *site)
{
    return s->cluster->group_count == 1 ? &s->speeds[0] : find_chain(s, site, false);
}

const struct machine_speed *siting_speeds_of_layout(struct siting_speeds *s, const struct layout *layout,
                                                    const struct siting *siting)
{
    struct site_run runs[SITE_RUNS];
    int count = siting_runs(s->cluster, layout, siting, runs);
    if (count == 1)
        return siting_speeds_find(s, &runs[0].site);
    struct machine_speed *speed = arena_array(s->arena, 1, sizeof *speed);
    const struct machine_speed **stages = arena_array(s->arena, (size_t)layout->pp, sizeof *stages);
    int64_t stage = 0;
    for (int i = 0; i < count; i++)
        for (int64_t k = 0; k < runs[i].stages; k++)
            stages[stage++] = siting_speeds_find(s, &runs[i].site);
    *speed = *stages[0];
    speed->stages = stages;
    return speed;
}
