/* The plan file: everything `train` needs to run a configuration, and what was predicted for it. Readable JSON, versioned:
 *
 *     { "memplan_plan": 1, "made_by": "memplan plan ...", "model": {...}, "layout": {...},
 *       "stages": [ { "stage": 0, "first_layer": 0, "layers": 6, "recompute": "0-3=full" },
 *                   { "stage": 1, "first_layer": 6, "layers": 6, "recompute": "none" } ],
 *       "device": "cpu", "capacity_bytes": ..., "predicted": { "peak_bytes": ..., "arena_bytes": ..., "step_seconds": ...,
 *       "stages": [ { "stage": 0, "peak_bytes": ..., "arena_bytes": ... }, ... ] } }
 *
 * Where the ranks are on several nodes, "ranks_per_node" and "net_bytes_per_s" say how. Where they are not all alike, "groups" says
 * on which nodes they are, in the order of ranks:
 *
 *       "groups": [ { "device": "h100-80g", "capacity_bytes": ..., "nodes": 2, "ranks_per_node": 8,
 *                     "net_bytes_per_s": ..., "ranks": 16 }, { "device": "a100-80g", ... } ]
 *
 * `stages` lists the chunks of the pipeline in order, each with layers of its own; with several chunks per stage an entry
 * has a "chunk" too. The peak and the arena beside `predicted.stages` are those of the stage that needs most. */
#ifndef MEMPLAN_MODEL_PLAN_H
#define MEMPLAN_MODEL_PLAN_H

#include "base/json.h"
#include "model/layout.h"
#include "model/model.h"
#include "model/pipeline.h"

#include <stdint.h>

enum { PLAN_VERSION = 1 };

/* Nodes that are alike, and how many of their ranks have a part in the plan: those that follow the groups before. */
struct plan_group {
    char device[32];
    int64_t capacity_bytes; /* per rank */
    int64_t nodes, ranks_per_node, ranks;
    double net_bytes_per_s; /* of one node, one direction */
};
enum { PLAN_GROUPS = 4 };

struct plan {
    struct model model;
    struct layout layout;
    uint32_t *recompute;    /* mask per layer, owned */
    int64_t *chunk_layers;  /* layers of each chunk of the pipeline, owned; NULL: layout_spread_layers() */
    char device[64];        /* "cpu", or a card's name; of several groups the names, joined by "+" */
    int64_t capacity_bytes; /* per rank, the most that any has; INT64_MAX: none */
    struct plan_group groups[PLAN_GROUPS];
    int group_count;        /* 0: all ranks are alike */
    /* Where they are, on several nodes; 0: not said. */
    int64_t ranks_per_node;
    double net_bytes_per_s; /* of one node, one direction */
    double step_seconds;    /* predicted; 0: not predicted */
    char made_by[256];      /* the command */
};

/* Releases what the plan owns, not the struct. */
void plan_clear(struct plan *plan);

/* On success the caller owns out's contents: plan_clear(). A file from a newer version, a missing field, or a
 * plan that is not valid in itself is refused with "FILE: ...". */
int plan_read(const char *path, struct plan *out, struct error *err);
int plan_from_json(const json_t *object, const char *where, struct plan *out, struct error *err);
/* New reference. `pipeline` must be the plan's own (plan_pipeline()): its peaks are what "predicted" says. */
json_t *plan_to_json(const struct plan *plan, const struct pipeline *pipeline);
/* The step programs of the plan's stages. */
int plan_pipeline(const struct plan *plan, struct pipeline **out, struct error *err);

#endif
