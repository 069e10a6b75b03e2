/* A large run.db, made up: 64 ranks on 8 stages, a million memory events of one of them and 630,000 of the others, and 300,000
 * operations. Written once per test; takes some seconds. */
#ifndef MEMPLAN_TESTS_REPORTS_LARGE_H
#define MEMPLAN_TESTS_REPORTS_LARGE_H

#include "tests/reports/fixture.h"

enum { LARGE_RANKS = 64, LARGE_OTHER_EVENTS = 10000, LARGE_FULL_RANK = 5, LARGE_FULL_EVENTS = 1000000, LARGE_STATES = 400,
       LARGE_PASSING = 600, LARGE_STEPS = 4, LARGE_OPERATIONS = 1172 };

/* Taken and given back, thousands of times over: the first half of the passing tensors is taken, then all of it given back. */
static inline void large_add_events(struct store *store, int64_t run_id, int rank, int64_t events)
{
    struct store_memory event = {.step = -1, .operation_id = -1};
    for (; event.seq < LARGE_STATES; event.seq++) {
        event.tensor_id = event.seq;
        event.role = (enum role)(event.seq % 3);
        event.bytes = 1 << 20;
        event.live_bytes += event.bytes;
        event.time_ns = 1000 * event.seq;
        ASSERT_OK(store_memory_add(store, run_id, rank, &event, &err));
    }
    int64_t passing = events - LARGE_STATES, cycle = 2 * LARGE_PASSING;
    for (int64_t i = 0; i < passing; i++, event.seq++) {
        int64_t place = i % cycle, tensor = place < LARGE_PASSING ? place : cycle - 1 - place;
        event.tensor_id = LARGE_STATES + tensor;
        event.role = (enum role)(ROLE_ACTIVATION + tensor % 4);
        event.operation_id = (i / cycle * cycle + place) % LARGE_OPERATIONS;
        event.step = (int)(i * LARGE_STEPS / passing);
        event.bytes = (place < LARGE_PASSING ? 1 : -1) * (4096 + 512 * (tensor % 97));
        event.live_bytes += event.bytes;
        event.time_ns = 1000000 + 700 * i;
        ASSERT_OK(store_memory_add(store, run_id, rank, &event, &err));
    }
}

static inline void large_add_program(struct store *store, int64_t run_id, int rank)
{
    char name[64];
    for (int i = 0; i < LARGE_STATES + LARGE_PASSING; i++) {
        snprintf(name, sizeof name, i < LARGE_STATES ? "layer %d w%d weight" : "layer %d out%d", i % 40, i / 40);
        enum role role = (enum role)(i < LARGE_STATES ? i % 3 : ROLE_ACTIVATION + (i - LARGE_STATES) % 4);
        struct store_tensor tensor = {i, name, "8x128", "F32", role, i % 40, i < LARGE_STATES ? -1 : 0, 4096};
        ASSERT_OK(store_tensor_add(store, run_id, rank, &tensor, &err));
    }
    for (int i = 0; i < LARGE_OPERATIONS; i++) {
        struct store_operation operation = {i, "matmul", i % 3 ? "backward" : "forward", "M512 N512 K512", i % 40, i / 300,
                                            i % 7 == 1, 1000, 1000};
        ASSERT_OK(store_operation_add(store, run_id, rank, &operation, &err));
    }
}

static inline void large_add_kernels(struct store *store, int64_t run_id, int rank)
{
    for (int step = 0; step < LARGE_STEPS; step++)
        for (int i = 0; i < LARGE_OPERATIONS; i++) {
            int64_t start = 1000000 + (int64_t)step * 4000000 + 3000 * i + 500 * rank;
            struct store_kernel kernel = {i, i, start, start + 2500, step};
            ASSERT_OK(store_kernel_add(store, run_id, rank, &kernel, &err));
        }
}

static inline int64_t large_peak(void)
{
    int64_t peak = (int64_t)LARGE_STATES << 20;
    for (int tensor = 0; tensor < LARGE_PASSING; tensor++)
        peak += 4096 + 512 * (tensor % 97);
    return peak;
}

static inline void large_write(const char *path)
{
    struct store *store;
    ASSERT_OK(store_create(path, &store, &err));
    struct store_run run = {.command = "made up", .model = "large", .device = "cpu", .capacity_bytes = 600 << 20, .ranks = LARGE_RANKS};
    ASSERT_OK(store_begin(store, &err));
    ASSERT_OK(store_run_add(store, &run, &err));
    for (int rank = 0; rank < LARGE_RANKS; rank++) {
        struct store_rank row = {.rank = rank, .measured = true, .peak_bytes = large_peak() - (rank != LARGE_FULL_RANK), .at_peak = {large_peak()}};
        ASSERT_OK(store_rank_add(store, run.run_id, &row, &err));
        large_add_program(store, run.run_id, rank);
        large_add_events(store, run.run_id, rank, rank == LARGE_FULL_RANK ? LARGE_FULL_EVENTS : LARGE_OTHER_EVENTS);
        large_add_kernels(store, run.run_id, rank);
    }
    ASSERT_OK(store_commit(store, &err));
    store_close(store);
}

#endif
