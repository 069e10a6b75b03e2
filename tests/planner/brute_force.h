/* Small planning problems, and every plan that could be meant, built and timed. */
#ifndef MEMPLAN_TESTS_PLANNER_BRUTE_FORCE_H
#define MEMPLAN_TESTS_PLANNER_BRUTE_FORCE_H

#include "planner/search.h"

#include <stdint.h>

enum { BRUTE_SETS = 3 };

struct problem {
    struct model model;
    struct cluster cluster;
    struct machine_speed speeds[CLUSTER_GROUPS];
    uint32_t sets[BRUTE_SETS];
    enum schedule_kind schedule;
    struct search_request request;
};

/* 2 to 4 layers, mostly fewer than 4, up to 8 ranks on one node or two, up to 8 sequences. Some things are given, so that brute
 * force ends. The ranks have no memory yet. *p must not move. */
void brute_force_problem(uint32_t *state, const char *family, struct problem *p);
/* The same of 2 or 3 layers, on two or three groups of nodes that differ in everything, of 2 to 8 ranks in all. */
void brute_force_mixed_problem(uint32_t *state, const char *family, struct problem *p);
/* The same of 5 or 6 layers on one node, whose pipeline has 2 stages of 3 chunks or 3 of 2: larger chunks are possible, and one layer a
 * chunk is not, but with ends without layers. */
void brute_force_chunk_problem(uint32_t *state, const char *family, struct problem *p);
/* Somewhere between what the states of some layout take and all that it needs. */
int64_t brute_force_capacity(const struct problem *p, uint32_t *state);

/* The fastest of all plans whose peaks have room, and of those whose arenas have; infinite: none. */
struct fastest {
    double peak_s, arena_s;
    int64_t plans;
};
struct fastest brute_force_fastest(const struct problem *p);

/* What a search promises of its plan. */
void brute_force_check(const struct problem *p, const struct search_result *result);

#endif
