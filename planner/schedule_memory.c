#include "planner/schedule_memory.h"

#include "base/arena.h"
#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

struct schedule_memory {
    struct known_schedule *list;
    int64_t now;
};

struct schedule_memory *schedule_memory_open(void)
{
    struct schedule_memory *memory = host_alloc(sizeof *memory);
    *memory = (struct schedule_memory){0};
    return memory;
}

void schedule_memory_close(struct schedule_memory *memory)
{
    if (!memory)
        return;
    for (struct known_schedule *k = memory->list, *next; k; k = next) {
        next = k->next;
        for (int i = 0; i < SCHEDULE_CHAINS; i++)
            free(k->chains[i].counts);
        timeline_free(k->timeline);
        free(k);
    }
    free(memory);
}

static bool is_same(const struct schedule_shape *a, const struct schedule_shape *b)
{
    return a->kind == b->kind && a->pp == b->pp && a->virtual_stages == b->virtual_stages &&
           a->micro_batches == b->micro_batches;
}

/* Clocks are large: the one that nobody has asked for longest goes. */
static void forget_clocks(struct schedule_memory *memory)
{
    enum { MOST_CLOCKS = 24 };
    struct known_schedule *oldest = NULL;
    int clocks = 0;
    for (struct known_schedule *k = memory->list; k; k = k->next)
        if (k->timeline) {
            clocks++;
            oldest = !oldest || k->asked < oldest->asked ? k : oldest;
        }
    if (clocks < MOST_CLOCKS)
        return;
    timeline_free(oldest->timeline);
    oldest->timeline = NULL;
}

struct known_schedule *schedule_memory_find(struct schedule_memory *memory,
                                            const struct schedule_shape *shape)
{
    struct known_schedule *k = memory->list;
    while (k && !is_same(&k->shape, shape))
        k = k->next;
    if (!k) {
        k = host_alloc(sizeof *k);
        *k = (struct known_schedule){.next = memory->list, .shape = *shape};
        memory->list = k;
    }
    if (!k->timeline)
        forget_clocks(memory);
    k->asked = ++memory->now;
    return k;
}

int known_schedule_clock(struct known_schedule *k, struct timeline **out, struct error *err)
{
    if (!k->timeline && timeline_create(&k->shape, &k->timeline, err))
        return -1;
    *out = k->timeline;
    return 0;
}

void known_schedule_add(struct known_schedule *k, const struct schedule_chain *chain)
{
    struct schedule_chain *kept = &k->chains[k->chain_count++ % SCHEDULE_CHAINS];
    size_t bytes = (size_t)timeline_passes(&k->shape) * sizeof *kept->counts;
    int *counts = kept->counts ? kept->counts : host_alloc(bytes);
    memcpy(counts, chain->counts, bytes);
    *kept = *chain;
    kept->counts = counts;
}
