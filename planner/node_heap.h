/* Layouts that wait in a search (search.c), the least lower bound first: up to a million of them, so they are packed. */
#ifndef MEMPLAN_PLANNER_NODE_HEAP_H
#define MEMPLAN_PLANNER_NODE_HEAP_H

#include "planner/siting.h"
#include "planner/stages.h"

#include <stdbool.h>
#include <stdint.h>

/* How closely a layout has been looked at; each step raises its bound. */
enum level { LEVEL_SHAPE, LEVEL_SITED, LEVEL_LAYOUT, LEVEL_BOUNDED };

struct node {
    double bound_s;
    double larger_s; /* at LEVEL_LAYOUT: likewise where chunks may be larger than others */
    enum level level;
    struct siting siting;      /* from LEVEL_SITED on */
    struct layout layout;      /* before LEVEL_LAYOUT its shape alone */
    enum larger_chunks larger; /* at LEVEL_BOUNDED */
};

struct packed_node;

/* Bounds may come out lower by a ten-millionth. Begins as zeros. Its layouts have one batch, sequence, bucket and precision. */
struct node_heap {
    struct packed_node *list;
    struct layout common;
    int64_t count, room;
};

void node_heap_push(struct node_heap *heap, struct node node);
struct node node_heap_pop(struct node_heap *heap);
/* Number `i` of those in the heap, in no order: false where it is at another level than LEVEL_LAYOUT. It stays, and its larger_s is
 * infinite from then on. */
bool node_heap_take_larger(struct node_heap *heap, int64_t i, struct node *out);
void node_heap_clear(struct node_heap *heap);

#endif
