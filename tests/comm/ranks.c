/* Opening, running and closing the ranks of a test. */
#include "tests/comm/ranks.h"

#include "tests/test.h"

#include <pthread.h>

void ranks_open(int size, struct rank *ranks)
{
    struct comm *comms[MAX_RANKS];
    struct error err = {0};
    ASSERT_OK(comm_open_threads(size, comms, &err));
    for (int r = 0; r < size; r++) {
        ranks[r] = (struct rank){.comm = comms[r], .rank = r, .size = size};
        ASSERT_INT(comm_rank(comms[r]), r);
        ASSERT_INT(comm_size(comms[r]), size);
    }
}

void ranks_run(int size, struct rank *ranks, void *(*body)(void *))
{
    pthread_t threads[MAX_RANKS];
    for (int r = 0; r < size; r++)
        ASSERT_INT(pthread_create(&threads[r], NULL, body, &ranks[r]), 0);
    for (int r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
}

void ranks_close(int size, struct rank *ranks)
{
    for (int r = 0; r < size; r++)
        comm_close(ranks[r].comm);
}

void ranks_check(int size, const struct rank *ranks)
{
    for (int r = 0; r < size; r++)
        ASSERT_MSG(ranks[r].status == 0, "rank %d: status %d; %s", r, ranks[r].status, ranks[r].err.text);
}

float ranks_noise(int rank, int64_t element)
{
    uint32_t bits = (uint32_t)(element * MAX_RANKS + rank) * 2654435761u;
    return (float)(int32_t)bits * (bits & 16 ? 1e-3f : 1e3f);
}
