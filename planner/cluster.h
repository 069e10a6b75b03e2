/* The machines that a plan may use: how many, how many ranks on each, and what one rank has. Nodes that are alike are a group;
 * a cluster has one group or several.
 *
 *     GROUP[+GROUP...]
 *     GROUP: [NODESx]RANKS:DEVICE[(MEMORY)][,net=RATE]   2x8:h100-80g,net=400Gb/s    1x4:cpu(300MiB)    8:cpu
 *            or [NODESx]PRESET, a preset being a node    dgx-h100    4xdgx-h100
 *     several groups                                     4x8:a100-80g+2x8:h100-80g,net=400Gb/s
 *     a JSON file     { "memplan_cluster": 1, "nodes": 2, "ranks_per_node": 8, "device": "h100-80g",
 *                       "memory": "79GiB", "net": "400Gb/s" }
 *                     { "memplan_cluster": 1, "groups": [ { "nodes": 4, ... }, { "nodes": 2, ... } ] }
 *
 * RATE is of a whole node, all its ports together. A device is `cpu` or a card of cards.h. A rank on a CPU without a memory of its own gets an equal share of the
 * machine's. A group without a network of its own has that of the last group; where that has none, the usual one of its devices. */
#ifndef MEMPLAN_PLANNER_CLUSTER_H
#define MEMPLAN_PLANNER_CLUSTER_H

#include "base/error.h"
#include "planner/cards.h"

#include <stdbool.h>
#include <stdint.h>

struct rank_device {
    char name[32];          /* "cpu", or the card's name */
    const struct card *card; /* NULL: the CPU */
    int64_t capacity_bytes; /* of one rank */
    /* What our kernels take of it, on a GPU of this machine whose capacity is what its driver has left: there the context is
     * already out of it. Else 0. */
    int64_t kernel_bytes;
    int64_t headroom_bytes; /* of it, that no plan may fill; 0: plans may fill it to the last byte */
};

/* What plans may fill, context and libraries included. */
static inline int64_t rank_device_plannable(const struct rank_device *device)
{
    return device->capacity_bytes - device->headroom_bytes;
}

/* Nodes that are alike. */
struct node_group {
    int64_t nodes, ranks_per_node;
    struct rank_device device;
    double net_bytes_per_s; /* of one node, one direction */
    bool net_assumed;       /* nobody said how nodes are connected: it is cluster_usual_net() */
};

/* Every set of groups may be a kind of stage of its own (siting.h), so there are not many. */
enum { CLUSTER_GROUPS = 4 };

struct cluster {
    struct node_group groups[CLUSTER_GROUPS]; /* each of another kind */
    int group_count;
};

/* A plain server's: 100 Gb/s Ethernet. */
#define CLUSTER_NET_BYTES_PER_S 12.5e9

/* Of a node with so many of these devices, where nobody says: for each card as much as the vendor's own node has (cards.h), else a
 * plain server's. */
double cluster_usual_net(const struct rank_device *device, int64_t ranks_per_node);

/* Those that cluster_read() knows, NULL-terminated. */
const char *const *cluster_presets(void);

/* Messages name the piece that is wrong; unknown devices and presets name the nearest. */
int cluster_read(const char *spec, struct cluster *out, struct error *err);
/* A device alone, for `ranks` ranks of one machine: "h100-80g", "cpu", "cpu(300MiB)". */
int cluster_read_device(const char *spec, int64_t ranks, struct rank_device *out, struct error *err);

/* One group alone. */
struct cluster cluster_of_group(const struct node_group *group);
int64_t cluster_group_ranks(const struct node_group *group);
int64_t cluster_ranks(const struct cluster *cluster);
int64_t cluster_nodes(const struct cluster *cluster);
/* Of the group that has most. */
int64_t cluster_ranks_per_node(const struct cluster *cluster);
/* The same with so many bytes more for every rank. */
struct cluster cluster_with_memory(const struct cluster *cluster, int64_t more_bytes);

#endif
