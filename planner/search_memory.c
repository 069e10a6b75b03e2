#include "planner/search_memory.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

/* What parts of a step cost at one speed, when layers may drop these sets only. */
struct priced {
    struct priced *next;
    const struct machine_speed *speed;
    uint32_t *sets; /* NULL: any */
    int set_count;
    struct costs_cache *costs;
};

struct search_memory {
    struct cluster cluster; /* whose nodes' kinds count */
    struct siting_speeds *speeds;
    struct priced *priced;
};

static bool has_sets(const struct priced *priced, const struct search_request *r)
{
    if (!priced->sets || !r->sets)
        return !priced->sets && !r->sets;
    return priced->set_count == r->set_count &&
           !memcmp(priced->sets, r->sets, (size_t)r->set_count * sizeof *r->sets);
}

static struct priced *price(const struct search_request *r, const struct machine_speed *speed)
{
    struct priced *priced = host_alloc(sizeof *priced);
    *priced = (struct priced){.speed = speed, .set_count = r->set_count};
    if (r->sets) {
        priced->sets = host_alloc((size_t)r->set_count * sizeof *priced->sets);
        memcpy(priced->sets, r->sets, (size_t)r->set_count * sizeof *priced->sets);
    }
    priced->costs = costs_open(r->model, speed, priced->sets, priced->set_count);
    return priced;
}

struct costs_cache *search_memory_costs(struct search_memory *memory, const struct search_request *request,
                                        const struct machine_speed *speed)
{
    struct priced *priced = memory->priced;
    while (priced && (priced->speed != speed || !has_sets(priced, request)))
        priced = priced->next;
    if (!priced) {
        priced = price(request, speed);
        priced->next = memory->priced;
        memory->priced = priced;
    }
    return priced->costs;
}

struct search_memory *search_memory_open(const struct search_request *request)
{
    struct search_memory *memory = host_alloc(sizeof *memory);
    memory->cluster = *request->cluster;
    memory->speeds = siting_speeds_open(&memory->cluster, request->speeds);
    return memory;
}

void search_memory_close(struct search_memory *memory)
{
    if (!memory)
        return;
    for (struct priced *p = memory->priced, *next; p; p = next) {
        next = p->next;
        costs_close(p->costs);
        free(p->sets);
        free(p);
    }
    siting_speeds_close(memory->speeds);
    free(memory);
}

const struct machine_speed *search_memory_speed(struct search_memory *memory, const struct stage_site *site)
{
    return siting_speeds_find(memory->speeds, site);
}
