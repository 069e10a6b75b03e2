#include "planner/node_heap.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>

struct packed_node {
    double bound_s;
    float larger_s;
    int32_t dp, virtual_stages, micro_batch;
    int16_t tp, pp;
    int32_t ranks[CLUSTER_GROUPS]; /* of the siting's parts */
    int8_t groups[CLUSTER_GROUPS], parts;
    int8_t level, larger, schedule, zero, sequence_parallel;
};

_Static_assert(LAYOUT_TP_MAX <= INT16_MAX && LAYOUT_PP_MAX <= INT16_MAX, "tp and pp are packed into 16 bits");

/* A bound still. */
static float round_down(double seconds)
{
    return isinf(seconds) ? INFINITY : nextafterf((float)seconds, 0);
}

static struct packed_node pack(const struct node *node)
{
    const struct layout *l = &node->layout;
    struct packed_node out = {.bound_s = node->bound_s,
                              .larger_s = round_down(node->larger_s),
                              .dp = (int32_t)l->dp,
                              .tp = (int16_t)l->tp,
                              .pp = (int16_t)l->pp,
                              .virtual_stages = (int32_t)l->virtual_stages,
                              .micro_batch = (int32_t)l->micro_batch,
                              .parts = (int8_t)node->siting.count,
                              .level = (int8_t)node->level,
                              .larger = (int8_t)node->larger,
                              .schedule = (int8_t)l->schedule,
                              .zero = (int8_t)l->zero,
                              .sequence_parallel = l->sequence_parallel};
    for (int i = 0; i < node->siting.count; i++) {
        out.groups[i] = (int8_t)node->siting.parts[i].group;
        out.ranks[i] = node->siting.parts[i].ranks;
    }
    return out;
}

static struct node unpack(const struct node_heap *heap, const struct packed_node *packed)
{
    struct node node = {.bound_s = packed->bound_s,
                        .larger_s = packed->larger_s,
                        .level = (enum level)packed->level,
                        .siting.count = packed->parts,
                        .layout = heap->common,
                        .larger = (enum larger_chunks)packed->larger};
    node.layout.dp = packed->dp;
    node.layout.tp = packed->tp;
    node.layout.pp = packed->pp;
    node.layout.virtual_stages = packed->virtual_stages;
    node.layout.micro_batch = packed->micro_batch;
    node.layout.schedule = (enum schedule_kind)packed->schedule;
    node.layout.zero = packed->zero;
    node.layout.sequence_parallel = packed->sequence_parallel;
    for (int i = 0; i < packed->parts; i++) {
        node.siting.parts[i].group = packed->groups[i];
        node.siting.parts[i].ranks = packed->ranks[i];
    }
    return node;
}

static bool is_before(const struct packed_node *a, const struct packed_node *b)
{
    return a->bound_s < b->bound_s || (a->bound_s == b->bound_s && a->level > b->level);
}

void node_heap_push(struct node_heap *heap, struct node node)
{
    const struct packed_node packed = pack(&node);
    heap->common = node.layout;
    if (heap->count == heap->room) {
        heap->room = heap->room + heap->room / 2 + 1024;
        heap->list = host_resize(heap->list, (size_t)heap->room * sizeof *heap->list);
    }
    int64_t at = heap->count++;
    for (; at > 0 && is_before(&packed, &heap->list[(at - 1) / 2]); at = (at - 1) / 2)
        heap->list[at] = heap->list[(at - 1) / 2];
    heap->list[at] = packed;
}

struct node node_heap_pop(struct node_heap *heap)
{
    struct node first = unpack(heap, &heap->list[0]);
    struct packed_node last = heap->list[--heap->count];
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count && is_before(&heap->list[child + 1], &heap->list[child]))
            child++;
        if (!is_before(&heap->list[child], &last))
            break;
        heap->list[at] = heap->list[child];
    }
    if (heap->count)
        heap->list[at] = last;
    return first;
}

bool node_heap_take_larger(struct node_heap *heap, int64_t i, struct node *out)
{
    struct packed_node *packed = &heap->list[i];
    if (packed->level != LEVEL_LAYOUT)
        return false;
    *out = unpack(heap, packed);
    packed->larger_s = INFINITY;
    return true;
}

void node_heap_clear(struct node_heap *heap)
{
    free(heap->list);
    *heap = (struct node_heap){0};
}
