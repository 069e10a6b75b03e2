#include "cli/standing.h"

#include "base/arena.h"
#include "base/units.h"
#include "cli/capacity.h"

#include <stdlib.h>
#include <string.h>

static void set_memory(struct cluster *cluster, int64_t memory)
{
    for (int i = 0; i < cluster->group_count; i++)
        cluster->groups[i].device.capacity_bytes = memory;
}

static void join_nodes(struct cluster *cluster, double net_bytes_per_s)
{
    for (int i = 0; i < cluster->group_count && net_bytes_per_s > 0; i++) {
        cluster->groups[i].net_bytes_per_s = net_bytes_per_s;
        cluster->groups[i].net_assumed = false;
    }
}

/* Devices that are all alike, so many as there are ranks. */
static int stand_alike(const struct plan *plan, const char *device, struct standing *out, struct error *err)
{
    struct rank_device found;
    int64_t ranks = layout_ranks(&plan->layout);
    if (capacity_read_device(device ? device : plan->device, ranks, &found, err))
        return -1;
    if (!device && plan->capacity_bytes != INT64_MAX)
        found.capacity_bytes = plan->capacity_bytes;
    struct node_group nodes = capacity_assume_nodes(&found, ranks, device ? 0 : plan->ranks_per_node);
    out->cluster = cluster_of_group(&nodes);
    join_nodes(&out->cluster, device ? 0 : plan->net_bytes_per_s);
    out->siting = siting_of_one(&plan->layout);
    return 0;
}

bool standing_is_known(const struct plan *plan)
{
    struct rank_device device;
    return plan->group_count ||
           !capacity_read_device(plan->device, layout_ranks(&plan->layout), &device, NULL);
}

/* A device by the plan's own name is the plan's, with its nodes. */
static const char *other_device(const struct plan *plan, const struct standing_choice *choice)
{
    return choice->device && strcmp(choice->device, plan->device) ? choice->device : NULL;
}

int standing_open(const struct plan *plan, const struct standing_choice *choice, struct standing *out,
                  struct error *err)
{
    const struct layout *layout = &plan->layout;
    const char *device = other_device(plan, choice);
    double net_bytes_per_s = 0;
    *out = (struct standing){0};
    if (!device && plan->group_count ? siting_from_plan(plan, &out->cluster, &out->siting, err)
                                     : stand_alike(plan, device, out, err))
        return -1;
    if (choice->memory > 0)
        set_memory(&out->cluster, choice->memory);
    if (choice->net && units_parse_rate(choice->net, "--net", &net_bytes_per_s, err))
        return -1;
    join_nodes(&out->cluster, net_bytes_per_s);
    if (speed_open(&out->cluster, layout->precision, choice->calibration, false, &out->speed, err))
        return -1;
    out->sites = siting_speeds_open(&out->cluster, out->speed.groups);
    out->pace = siting_speeds_of_layout(out->sites, layout, &out->siting);
    out->devices = host_alloc((size_t)layout->pp * sizeof *out->devices);
    siting_devices(&out->cluster, layout, &out->siting, out->devices);
    return 0;
}

void standing_close(struct standing *standing)
{
    siting_speeds_close(standing->sites);
    speed_close(&standing->speed);
    free(standing->devices);
}

const char *const *standing_names(const struct standing *standing, const struct layout *layout,
                                  struct arena *arena)
{
    const char **names = arena_array(arena, (size_t)layout->pp, sizeof *names);
    int64_t ranks = layout->dp * layout->tp;
    if (standing->cluster.group_count == 1)
        return NULL;
    for (int64_t i = 0; i < layout->pp; i++) {
        struct text text = {0};
        siting_print(&standing->cluster, siting_groups(&standing->siting, i * ranks, (i + 1) * ranks), &text);
        names[i] = arena_strdup(arena, text.data);
        text_free(&text);
    }
    return names;
}
