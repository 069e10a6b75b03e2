/* Ranks of a test, each on a thread of its own. */
#ifndef MEMPLAN_TESTS_COMM_RANKS_H
#define MEMPLAN_TESTS_COMM_RANKS_H

#include "comm/comm.h"

enum { MAX_RANKS = 8 };

/* What one rank of a test works on; its thread runs the test's body. */
struct rank {
    struct comm *comm;
    int rank, size;
    int status;
    struct error err;
    float *data;
    void *shared; /* the test's own */
};

void ranks_open(int size, struct rank *ranks);
void ranks_run(int size, struct rank *ranks, void *(*body)(void *));
void ranks_close(int size, struct rank *ranks);
/* No rank has a status. */
void ranks_check(int size, const struct rank *ranks);

/* A number that every rank and element has of its own; sums of several round. */
float ranks_noise(int rank, int64_t element);

#endif
