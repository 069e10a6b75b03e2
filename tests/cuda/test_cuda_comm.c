/* Ranks on GPUs, over doubles of NCCL and of the CUDA runtime: what comm.h promises of every transport, as tests/comm has it,
 * with data on devices; that streams, and not the host, wait for each other; and an end for all, whatever NCCL answers. */
#include "base/clock.h"
#include "base/dtype.h"
#include "tests/cuda/double_nccl.h"
#include "tests/cuda/double_runtime.h"
#include "tests/cuda/gpu_ranks.h"
#include "tests/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double seconds_since(int64_t start_ns)
{
    return (double)(clock_ns() - start_ns) * 1e-9;
}

/* -------------------------------------------------------------------------------------------------------- collectives */

/* Rank r holds (r + 1) * (i % 1000) in element i of a vector in five spans, so that sums over n ranks are
 * n (n + 1) / 2 * (i % 1000): exact in F32 and F64 in any order of addition. */
enum { SPANS = 5, LONG_COUNT = 30011 };
static const int64_t cuts[SPANS] = {1, 17, 0, 9973, 20020};

static void reduce_spans(struct gpu_rank *self)
{
    enum dtype dtype = *(enum dtype *)self->shared;
    static _Thread_local float narrow[LONG_COUNT];
    static _Thread_local double wide[LONG_COUNT];
    for (int i = 0; i < LONG_COUNT; i++)
        narrow[i] = (float)(wide[i] = (self->rank + 1) * (i % 1000));
    int64_t bytes = LONG_COUNT * dtype_bytes(dtype), before = 0;
    void *host = dtype == DTYPE_F32 ? (void *)narrow : (void *)wide, *data = gpu_put(self, host, bytes);
    struct comm_span spans[SPANS];
    for (int s = 0; s < SPANS; before += cuts[s++])
        spans[s] = (struct comm_span){(char *)data + before * dtype_bytes(dtype), cuts[s]};
    self->status += comm_start_all_reduce(self->comm, spans, SPANS, dtype, COMM_SUM, NULL, &self->err) ||
                    comm_wait(self->comm, &self->err);
    gpu_get(self, host, data, bytes);
    for (int i = 0; i < LONG_COUNT; i++) {
        double got = dtype == DTYPE_F32 ? (double)narrow[i] : wide[i];
        self->status += got != (double)(self->size * (self->size + 1) / 2 * (i % 1000));
    }
}

TEST_LOOP(cuda_comm_sums, "1, 2, 4 and 8 GPUs sum 30,011 elements in five spans exactly, as F32 and F64", 8)
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    enum dtype dtype = _i % 2 ? DTYPE_F64 : DTYPE_F32;
    gpu_ranks_run(1 << _i / 2, ranks, reduce_spans, &dtype);
    gpu_ranks_check(1 << _i / 2, ranks);
    /* Of five spans one is empty, and is no call. */
    ASSERT_INT(double_nccl_moved(), (SPANS - 1) * (1 << _i / 2));
}

/* Halves that sums of 4 ranks hold exactly; and the largest. */
static void reduce_halves(struct gpu_rank *self)
{
    enum { COUNT = 100 };
    uint16_t sums[COUNT], largest[COUNT];
    for (int i = 0; i < COUNT; i++)
        sums[i] = largest[i] = f32_to_bf16((float)(self->rank * (i % 8) - 8));
    struct comm_span spans[2] = {{gpu_put(self, sums, sizeof sums), COUNT},
                                 {gpu_put(self, largest, sizeof largest), COUNT}};
    self->status += comm_start_all_reduce(self->comm, &spans[0], 1, DTYPE_BF16, COMM_SUM, NULL, &self->err) ||
                    comm_start_all_reduce(self->comm, &spans[1], 1, DTYPE_BF16, COMM_MAX, NULL, &self->err) ||
                    comm_wait(self->comm, &self->err);
    gpu_get(self, sums, spans[0].data, sizeof sums);
    gpu_get(self, largest, spans[1].data, sizeof largest);
    for (int i = 0; i < COUNT; i++) {
        self->status += bf16_to_f32(sums[i]) != (float)(6 * (i % 8) - 32);
        self->status += bf16_to_f32(largest[i]) != (float)(3 * (i % 8) - 8);
    }
}

TEST(cuda_comm_halves, "4 GPUs sum bf16, and find the largest")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    gpu_ranks_run(4, ranks, reduce_halves, NULL);
    gpu_ranks_check(4, ranks);
}

enum { PARTS = 4, PART_TOTAL = 1 + 901 + 0 + 33 };
static const int64_t part_counts[PARTS] = {1, 901, 0, 33};

/* Element i of rank r: r + 1 times a number of i's. Of n ranks the sum is n (n + 1) / 2 times it. */
static float of_rank(int rank, int64_t i)
{
    return (float)((rank + 1) * (i % 509));
}

static void scatter_and_gather(struct gpu_rank *self)
{
    bool in_place = *(bool *)self->shared;
    float host[PART_TOTAL * MAX_GPU_RANKS], own[PART_TOTAL];
    int64_t total = PART_TOTAL * self->size, before = 0, part_before = 0;
    for (int64_t i = 0; i < total; i++)
        host[i] = of_rank(self->rank, i);
    float *data = gpu_put(self, host, total * 4), *elsewhere = gpu_put(self, own, sizeof own);
    struct comm_span full[PARTS], parts[PARTS];
    for (int s = 0; s < PARTS; s++) {
        full[s] = (struct comm_span){data + before, part_counts[s] * self->size};
        parts[s] = (struct comm_span){
            in_place ? data + before + self->rank * part_counts[s] : elsewhere + part_before, part_counts[s]};
        before += full[s].count;
        part_before += part_counts[s];
    }
    int64_t ticket;
    self->status +=
        comm_start_reduce_scatter(self->comm, full, parts, PARTS, DTYPE_F32, &ticket, &self->err) ||
        comm_wait_for(self->comm, ticket, &self->err);
    gpu_get(self, host, data, total * 4);
    for (int s = 0; s < PARTS; s++)
        for (int64_t k = 0; k < full[s].count; k++) {
            int64_t i = (float *)full[s].data - data + k;
            bool is_own = k / part_counts[s] == self->rank;
            self->status += (!in_place || !is_own) && host[i] != of_rank(self->rank, i);
        }
    self->status += comm_start_all_gather(self->comm, parts, full, PARTS, DTYPE_F32, NULL, &self->err) ||
                    comm_wait(self->comm, &self->err);
    gpu_get(self, host, data, total * 4);
    for (int64_t i = 0; i < total; i++)
        self->status += host[i] != of_rank(self->size * (self->size + 1) / 2 - 1, i);
}

TEST_LOOP(cuda_comm_scatters_and_gathers,
          "parts of four spans, in place or not, are summed, nothing else is touched, and gathered", 8)
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    bool in_place = _i % 2;
    gpu_ranks_run(1 << _i / 2, ranks, scatter_and_gather, &in_place);
    gpu_ranks_check(1 << _i / 2, ranks);
}

static void broadcast_from_all(struct gpu_rank *self)
{
    int32_t host[1001];
    for (int i = 0; i < 1001; i++)
        host[i] = self->rank * 10000 + i;
    for (int root = 0; root < self->size; root++) {
        int32_t *data = gpu_put(self, host, sizeof host), in[1001];
        struct comm_span spans[2] = {{data, 300}, {data + 300, 701}};
        self->status += comm_start_broadcast(self->comm, spans, 2, DTYPE_I32, root, NULL, &self->err) ||
                        comm_wait(self->comm, &self->err);
        gpu_get(self, in, data, sizeof in);
        for (int i = 0; i < 1001; i++)
            self->status += in[i] != root * 10000 + i;
    }
}

TEST(cuda_comm_broadcasts, "each of 4 GPUs in turn sends its 1,001 integers to all")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    gpu_ranks_run(4, ranks, broadcast_from_all, NULL);
    gpu_ranks_check(4, ranks);
}

/* First x of rank 0 with x of rank 1, then x of rank 0 with y of rank 1: x0 = x1 = 1 + 2, then x0 = y1 = 3 + 4. */
static void reduce_in_order(struct gpu_rank *self)
{
    for (int round = 0; round < 50; round++) {
        double host[2] = {self->rank ? 2 : 1, 4};
        double *data = gpu_put(self, host, sizeof host);
        struct comm_span x = {data, 1}, y = {data + 1, 1};
        self->status += comm_start_all_reduce(self->comm, &x, 1, DTYPE_F64, COMM_SUM, NULL, &self->err) ||
                        comm_start_all_reduce(self->comm, self->rank ? &y : &x, 1, DTYPE_F64, COMM_SUM, NULL,
                                              &self->err) ||
                        comm_wait(self->comm, &self->err);
        gpu_get(self, host, data, sizeof host);
        self->status += self->rank ? host[0] != 3 || host[1] != 7 : host[0] != 7;
    }
}

TEST(cuda_comm_runs_in_order, "collectives started at once run in the order of their start")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    gpu_ranks_run(2, ranks, reduce_in_order, NULL);
    gpu_ranks_check(2, ranks);
}

static void pass_barrier(struct gpu_rank *self)
{
    int *came = self->shared;
    for (int round = 1; round <= 20; round++) {
        if (self->rank == 0)
            usleep(1000);
        __atomic_add_fetch(came, 1, __ATOMIC_SEQ_CST);
        self->status |= comm_barrier(self->comm, &self->err);
        self->status |= __atomic_load_n(came, __ATOMIC_SEQ_CST) < 4 * round;
        self->status |= comm_barrier(self->comm, &self->err);
    }
}

TEST(cuda_comm_barrier_holds, "in 20 rounds no rank passes a barrier before all four have come")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    int came = 0;
    gpu_ranks_run(4, ranks, pass_barrier, &came);
    gpu_ranks_check(4, ranks);
}

/* ----------------------------------------------------------------------------------------------------------- messages */

/* Everybody sends to the right before it receives from the left, 100 times: in one communicator all would wait. */
static void pass_around(struct gpu_rank *self)
{
    int right = (self->rank + 1) % self->size, left = (self->rank + self->size - 1) % self->size;
    float first = (float)self->rank, last;
    float *held = gpu_put(self, &first, sizeof first), *next = gpu_put(self, &first, sizeof first);
    for (int round = 0; round < 100 && !self->status; round++) {
        self->status += gpu_start_send(self->comm, held, 1, right, 0, &self->err);
        self->status += gpu_start_receive(self->comm, next, 1, left, 0, &self->err);
        self->status += comm_wait(self->comm, &self->err);
        float *swap = held;
        held = next;
        next = swap;
    }
    gpu_get(self, &last, held, sizeof last);
    self->status += last != (float)(((self->rank - 100) % self->size + self->size) % self->size);
}

TEST_LOOP(cuda_comm_ring, "a ring of 1, 2, 4 and 8 GPUs passes a number on 100 times without a deadlock", 4)
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    gpu_ranks_run(1 << _i, ranks, pass_around, NULL);
    gpu_ranks_check(1 << _i, ranks);
}

/* Both receive before they send; what comes second by tag is waited for first. */
static void receive_first(struct gpu_rank *self)
{
    float host[4] = {(float)(self->rank * 10 + 1), (float)(self->rank * 10 + 2), 0, 0};
    float *data = gpu_put(self, host, sizeof host);
    int other = 1 - self->rank;
    int64_t late, early;
    struct comm_span spans[2] = {{data + 2, 1}, {data + 3, 1}};
    self->status += comm_start_receive(self->comm, &spans[0], DTYPE_F32, other, 5, &early, &self->err);
    self->status += comm_start_receive(self->comm, &spans[1], DTYPE_F32, other, 9, &late, &self->err);
    self->status += gpu_start_send(self->comm, data + 1, 1, other, 9, &self->err);
    self->status += comm_wait_for(self->comm, late, &self->err);
    self->status += gpu_start_send(self->comm, data, 1, other, 5, &self->err);
    self->status += comm_wait_for(self->comm, early, &self->err);
    self->status += comm_wait(self->comm, &self->err);
    gpu_get(self, host, data, sizeof host);
    self->status += host[2] != (float)(other * 10 + 1) || host[3] != (float)(other * 10 + 2);
}

TEST(cuda_comm_messages_apart, "messages meet by peer and tag, and one that waits holds up no other")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    gpu_ranks_run(2, ranks, receive_first, NULL);
    gpu_ranks_check(2, ranks);
}

/* A receive is pending while a sum is made and waited for. */
static void sum_beside_receive(struct gpu_rank *self)
{
    float host[2] = {(float)(self->rank + 1), 8};
    float *data = gpu_put(self, host, sizeof host);
    struct comm_span span = {data, 1};
    int64_t ticket;
    if (self->rank == 0)
        self->status += gpu_start_receive(self->comm, data + 1, 1, 1, 0, &self->err);
    self->status += comm_start_all_reduce(self->comm, &span, 1, DTYPE_F32, COMM_SUM, &ticket, &self->err) ||
                    comm_wait_for(self->comm, ticket, &self->err);
    if (self->rank == 1)
        self->status += gpu_start_send(self->comm, data, 1, 0, 0, &self->err);
    self->status += comm_wait(self->comm, &self->err);
    gpu_get(self, host, data, sizeof host);
    self->status += host[0] != 3 || host[1] != (self->rank ? 8 : 3);
}

TEST(cuda_comm_receive_holds_up_nothing, "a pending receive holds up no collective")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    gpu_ranks_run(2, ranks, sum_beside_receive, NULL);
    gpu_ranks_check(2, ranks);
}

/* ------------------------------------------------------------------------------------------------------------- groups */

/* A grid of 2 x 2 x 2, as tests/comm has it: in each of its three groups, a rank starts a sum and messages before it waits
 * for any, in an order of its own. */
static void work_in_grid(struct gpu_rank *self)
{
    struct comm *groups[3] = {NULL};
    for (int axis = 0; axis < 3; axis++) {
        int step = 1 << axis, coordinate = self->rank / step % 2;
        self->status +=
            comm_split(self->comm, self->rank - coordinate * step, coordinate, &groups[axis], &self->err);
        self->status += comm_rank(groups[axis]) != coordinate || comm_size(groups[axis]) != 2;
    }
    float host[7] = {(float)self->rank, (float)self->rank, (float)self->rank, (float)self->rank};
    for (int round = 0; round < 10 && !self->status; round++) {
        float *data = gpu_put(self, host, sizeof host), in[7];
        for (int i = 0; i < 3; i++) {
            int axis = (i + self->rank) % 3, peer = 1 - comm_rank(groups[axis]);
            struct comm_span span = {data + axis, 1};
            struct comm *group = groups[axis];
            self->status += gpu_start_receive(group, data + 4 + axis, 1, peer, 0, &self->err) ||
                            comm_start_all_reduce(group, &span, 1, DTYPE_F32, COMM_SUM, NULL, &self->err) ||
                            gpu_start_send(group, data + 3, 1, peer, 0, &self->err);
        }
        for (int axis = 2; axis >= 0; axis--)
            self->status += comm_wait(groups[axis], &self->err);
        gpu_get(self, in, data, sizeof in);
        for (int axis = 0; axis < 3; axis++) {
            int other = self->rank ^ 1 << axis;
            self->status += in[axis] != (float)(self->rank + other) || in[4 + axis] != (float)other;
        }
    }
    for (int axis = 0; axis < 3; axis++)
        comm_close(groups[axis]);
}

TEST(cuda_comm_grid, "the three groups of each of 2 x 2 x 2 GPUs work side by side, started in any order")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    gpu_ranks_run(8, ranks, work_in_grid, NULL);
    gpu_ranks_check(8, ranks);
}

/* Color 1 for ranks 0, 2, 3 with keys that turn their order round; none for rank 1. A sum of all is on its way meanwhile. */
static void split_off(struct gpu_rank *self)
{
    static const int expected[] = {2, -1, 1, 0};
    static const float zero;
    struct comm *group;
    struct comm_span all = {gpu_put(self, &zero, sizeof zero), 1};
    self->status += comm_start_all_reduce(self->comm, &all, 1, DTYPE_F32, COMM_SUM, NULL, &self->err);
    self->status += comm_split(self->comm, self->rank == 1 ? -1 : 1, -self->rank, &group, &self->err);
    if (self->rank == 1) {
        self->status += group != NULL || comm_wait(self->comm, &self->err);
        return;
    }
    self->status += comm_wait(self->comm, &self->err) || comm_size(group) != 3 ||
                    comm_rank(group) != expected[self->rank];
    int32_t host = self->rank, *data = gpu_put(self, &host, sizeof host);
    struct comm_span span = {data, 1};
    self->status +=
        comm_start_broadcast(group, &span, 1, DTYPE_I32, 0, NULL, &self->err) || comm_wait(group, &self->err);
    gpu_get(self, &host, data, sizeof host);
    self->status += host != 3;
    comm_close(group);
}

TEST(cuda_comm_split_order, "a group has the ranks of one color in the order of their keys")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    gpu_ranks_run(4, ranks, split_off, NULL);
    gpu_ranks_check(4, ranks);
}

/* ------------------------------------------------------------------------------------------------------------ streams */

enum { STREAM_COUNT = 1000 };

struct overlap {
    pthread_barrier_t here;
    char early[600], late[600];
};

static void compute_beside(struct gpu_rank *self)
{
    struct overlap *overlap = self->shared;
    static const float host[2 * STREAM_COUNT];
    float *gradients = gpu_put(self, host, sizeof host / 2), *others = gpu_put(self, host, sizeof host);
    struct comm_span span = {gradients, STREAM_COUNT};
    self->status += comm_start_all_reduce(self->comm, &span, 1, DTYPE_F32, COMM_SUM, NULL, &self->err);
    while (double_nccl_moved() < 2)
        usleep(1000);
    /* The sums are made, and nobody has waited: computation goes on with other data, and must not touch these. */
    pthread_barrier_wait(&overlap->here);
    device_copy(self->device, others, others + STREAM_COUNT, STREAM_COUNT * 4);
    pthread_barrier_wait(&overlap->here);
    if (self->rank == 0) {
        double_listen();
        device_copy(self->device, others, gradients, STREAM_COUNT * 4);
        strcpy(overlap->early, double_listen());
    }
    pthread_barrier_wait(&overlap->here);
    self->status += comm_wait(self->comm, &self->err);
    if (self->rank == 0) {
        device_copy(self->device, others, gradients, STREAM_COUNT * 4);
        strcpy(overlap->late, double_listen());
        double_unlisten();
    }
    pthread_barrier_wait(&overlap->here);
}

TEST(cuda_comm_overlaps,
     "a sum is made on a stream of its own while computation goes on; who takes it without a wait has raced")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    struct overlap overlap = {.late = "?"};
    pthread_barrier_init(&overlap.here, NULL, 2);
    gpu_ranks_run(2, ranks, compute_beside, &overlap);
    gpu_ranks_check(2, ranks);
    ASSERT_HAS(overlap.early, "a race: ");
    ASSERT_HAS(overlap.early, "does not wait for ncclAllReduce");
    ASSERT_STR(overlap.late, "");
}

/* What is on its way is changed. */
static void change_early(struct gpu_rank *self)
{
    struct overlap *overlap = self->shared;
    static const float host[STREAM_COUNT];
    float *data = gpu_put(self, host, sizeof host);
    if (self->rank == 0) {
        self->status += gpu_start_send(self->comm, data, STREAM_COUNT, 1, 0, &self->err);
        while (double_nccl_moved() < 2)
            usleep(1000);
        double_listen();
        device_write(self->device, data, host, sizeof host);
        strcpy(overlap->early, double_listen());
        double_unlisten();
    } else {
        self->status += gpu_start_receive(self->comm, data, STREAM_COUNT, 0, 0, &self->err);
    }
    self->status += comm_wait(self->comm, &self->err);
}

TEST(cuda_comm_send_is_a_use, "data that are being sent must not be written before the wait")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    struct overlap overlap = {.early = ""};
    gpu_ranks_run(2, ranks, change_early, &overlap);
    gpu_ranks_check(2, ranks);
    ASSERT_HAS(overlap.early, "does not wait for ncclSend");
}

/* --------------------------------------------------------------------------------------------------------- recordings */

/* A sum that is left to run beside a copy, a number passed to the right, and another sum. */
static void exchange(struct gpu_rank *self, float *data)
{
    int right = (self->rank + 1) % self->size, left = (self->rank + self->size - 1) % self->size;
    struct comm_span first = {data, 1}, second = {data + 3, 1};
    int64_t ticket;
    self->status += gpu_start_receive(self->comm, data + 2, 1, left, 0, &self->err) ||
                    comm_start_all_reduce(self->comm, &first, 1, DTYPE_F32, COMM_SUM, &ticket, &self->err);
    device_copy(self->device, data + 3, data + 1, 4);
    self->status += gpu_start_send(self->comm, data + 1, 1, right, 0, &self->err) ||
                    comm_wait_for(self->comm, ticket, &self->err) ||
                    comm_start_all_reduce(self->comm, &second, 1, DTYPE_F32, COMM_SUM, NULL, &self->err) ||
                    comm_wait(self->comm, &self->err);
}

static void expect_exchanged(struct gpu_rank *self, const float *data, float step)
{
    float host[4], ranks = (float)self->size, sum = ranks * (ranks - 1) / 2;
    int left = (self->rank + self->size - 1) % self->size;
    gpu_get(self, host, data, sizeof host);
    self->status +=
        host[0] != sum || host[2] != 10 * (float)left + step || host[3] != 10 * sum + step * ranks;
}

static void give_numbers(struct gpu_rank *self, float *data, float step)
{
    float host[2] = {(float)self->rank, 10 * (float)self->rank + step};
    device_write(self->device, data, host, sizeof host);
}

static void record_exchange(struct gpu_rank *self, float *data)
{
    give_numbers(self, data, 0);
    exchange(self, data);
    expect_exchanged(self, data, 0);
    self->status += device_record(self->device, &self->err);
    give_numbers(self, data, 1);
    exchange(self, data);
    self->status += device_recorded(self->device, &self->err);
    expect_exchanged(self, data, 1);
}

static void replay_exchanges(struct gpu_rank *self)
{
    static const float zeros[4];
    float *data = gpu_put(self, zeros, sizeof zeros);
    record_exchange(self, data);
    for (float step = 2; step < 5; step++) {
        device_rewrite(self->device);
        give_numbers(self, data, step);
        self->status += device_replay(self->device, &self->err);
        expect_exchanged(self, data, step);
    }
    /* What is done one by one meanwhile is in order with it. */
    give_numbers(self, data, 9);
    exchange(self, data);
    expect_exchanged(self, data, 9);
    device_forget(self->device);
}

TEST_LOOP(cuda_comm_recorded,
          "sums and messages of 1, 2, 4 GPUs are part of a recording, and done again with other numbers", 3)
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    gpu_ranks_run(1 << _i, ranks, replay_exchanges, NULL);
    gpu_ranks_check(1 << _i, ranks);
}

/* Rank 1 stops instead of doing the recording again, in which rank 0 waits for it. */
static void stop_before_replay(struct gpu_rank *self)
{
    static const float zeros[4];
    float *data = gpu_put(self, zeros, sizeof zeros);
    record_exchange(self, data);
    int64_t start_ns = clock_ns();
    if (self->rank == 1) {
        comm_abort(self->comm, "no memory for the next batch");
    } else {
        device_rewrite(self->device);
        give_numbers(self, data, 2);
        device_replay(self->device, &self->err);
        device_finish(self->device, &self->err);
        self->status += comm_check(self->comm, &self->err) == 0;
    }
    self->status += seconds_since(start_ns) > 5;
    device_forget(self->device);
}

TEST(cuda_comm_recorded_dead, "a rank that is gone ends a recording that waits for it, soon, with its reason")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    gpu_ranks_run(2, ranks, stop_before_replay, NULL);
    gpu_ranks_check(2, ranks);
    ASSERT_STR(ranks[0].err.text, "rank 1 stopped: no memory for the next batch");
}

static void record_the_unknown(struct gpu_rank *self)
{
    static const float zeros[8];
    float *data = gpu_put(self, zeros, sizeof zeros);
    struct comm_span span = {data, 8};
    self->status += gpu_all_reduce(self, data, 4, DTYPE_F32);
    self->status += device_record(self->device, &self->err);
    self->status +=
        !comm_start_all_reduce(self->comm, &span, 1, DTYPE_F32, COMM_SUM, NULL, &self->err) ||
        !strstr(self->err.text, "a all-reduce that was never done before cannot be recorded; use --no-graph");
    self->status +=
        !comm_barrier(self->comm, &self->err) || !strstr(self->err.text, "a barrier cannot be recorded");
    device_forget(self->device);
    self->status += gpu_all_reduce(self, data, 8, DTYPE_F32);
}

TEST(cuda_comm_records_the_known,
     "what NCCL might wait in for others is not recorded, and does no harm to what follows")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    gpu_ranks_run(2, ranks, record_the_unknown, NULL);
    gpu_ranks_check(2, ranks);
}

/* What comm_nccl.c does not do. */
static void keep_recording(struct gpu_rank *self)
{
    static const float zeros[4];
    record_exchange(self, gpu_put(self, zeros, sizeof zeros));
}

TEST(cuda_double_nccl_graph_outlives,
     "a communicator that is closed before the graph that holds its calls waits for ever")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    double_listen();
    gpu_ranks_run(1, ranks, keep_recording, NULL);
    ASSERT_STR(double_listen(),
               "ncclCommDestroy: rank 0 waits for ever for the end of a graph that holds 2 of its groups");
    double_unlisten();
}

/* ----------------------------------------------------------------------------------------------------------- failures */

/* Ranks 0 and 1 wait in a collective and in a receive; rank 2 fails. */
static void one_fails(struct gpu_rank *self)
{
    static const float host[100];
    float *data = gpu_put(self, host, sizeof host);
    self->status = gpu_all_reduce(self, data, 100, DTYPE_F32);
    if (self->rank == 2) {
        usleep(50 * 1000);
        comm_abort(self->comm, "token 70000 is outside the vocabulary");
        self->status |= !comm_failed_first(self->comm);
        return;
    }
    int64_t start_ns = clock_ns();
    self->status |= self->rank == 0 ? gpu_all_reduce_to_its_end(self, data, 100) == 0
                                    : gpu_start_receive(self->comm, data, 1, 2, 0, &self->err) ||
                                          comm_wait(self->comm, &self->err) == 0;
    self->status |= seconds_since(start_ns) > 2 || comm_failed_first(self->comm);
    self->status |= gpu_all_reduce(self, data, 100, DTYPE_F32) == 0;
}

TEST(cuda_comm_abort_wakes, "an abort wakes ranks in a collective and in a receive, with its reason")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    gpu_ranks_run(3, ranks, one_fails, NULL);
    gpu_ranks_check(3, ranks);
    for (int r = 0; r < 2; r++) {
        ASSERT_INT(ranks[r].err.kind, ERROR_STOPPED);
        ASSERT_STR(ranks[r].err.text, "rank 2 stopped: token 70000 is outside the vocabulary");
    }
}

static void close_while_pending(struct gpu_rank *self)
{
    static const float host[4];
    float *data = gpu_put(self, host, sizeof host);
    struct comm_span span = {data, 4};
    if (self->rank == 0) {
        self->status += comm_start_all_reduce(self->comm, &span, 1, DTYPE_F32, COMM_SUM, NULL, &self->err);
        return;
    }
    while (!comm_check(self->comm, &self->err))
        usleep(1000);
}

TEST(cuda_comm_close_while_pending, "closing with a sum that the others never start ends the group")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    gpu_ranks_run(2, ranks, close_while_pending, NULL);
    gpu_ranks_check(2, ranks);
    ASSERT_HAS(ranks[1].err.text, "rank 0 stopped: closed with work pending");
}

/* Sums until something fails. */
static void sum_until_failure(struct gpu_rank *self)
{
    static const float host[4];
    float *data = gpu_put(self, host, sizeof host);
    int64_t start_ns = clock_ns();
    while (!gpu_all_reduce(self, data, 4, DTYPE_F32) && seconds_since(start_ns) < 5)
        usleep(20 * 1000);
    self->status = self->err.kind != ERROR_STOPPED;
}

static void expect_failure(const int *ordinals, const char *injected, const char *sentence)
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    if (injected)
        setenv("DOUBLE_NCCL_FAIL", injected, 1);
    gpu_ranks_run_on(ordinals, 2, ranks, sum_until_failure, NULL);
    gpu_ranks_check(2, ranks);
    ASSERT_STR(ranks[0].err.text, ranks[1].err.text);
    ASSERT_HAS(ranks[0].err.text, sentence);
    ASSERT_HAS(ranks[0].err.text, "; run again with NCCL_DEBUG=WARN");
}

static const int apart[] = {0, 1};

TEST_LOOP(cuda_comm_nccl_fails,
          "a call of NCCL that fails, wherever, ends all ranks with one sentence that names GPU and call", 5)
{
    static const struct {
        const char *injected, *sentence;
    } cases[] = {
        {"ncclGetUniqueId:1:2", "GPU 0: ncclGetUniqueId failed: unhandled system error"},
        {"ncclCommInitRankConfig:2:5", "ncclCommInitRankConfig failed: invalid usage"},
        {"ncclAllReduce:7:1", "all-reduce failed: unhandled cuda error (run with NCCL_DEBUG=INFO for "
                              "details): call 7 of ncclAllReduce was to fail"},
        {"ncclGroupEnd:5:3", "all-reduce failed: internal error"},
        {"ncclCommGetAsyncError:9:6", "remote process exited or there was a network error"},
    };
    expect_failure(apart, cases[_i].injected, cases[_i].sentence);
}

TEST(cuda_comm_same_gpu, "two ranks on one GPU are refused as NCCL refuses them")
{
    static const int same[] = {3, 3};
    expect_failure(same, NULL, "GPU 3: ncclCommInitRankConfig failed: invalid usage");
}

/* Which is found out while nobody calls anything. */
static void idle_until_failure(struct gpu_rank *self)
{
    static const float host[4];
    self->status = gpu_all_reduce(self, gpu_put(self, host, sizeof host), 4, DTYPE_F32);
    /* Fails on a rank that is late to return from it. */
    comm_barrier(self->comm, &self->err);
    if (self->rank == 0)
        double_nccl_lose();
    int64_t start_ns = clock_ns();
    while (!comm_check(self->comm, &self->err) && seconds_since(start_ns) < 10)
        usleep(1000);
    self->status |= self->err.kind != ERROR_STOPPED;
}

TEST(cuda_comm_async_error, "an error that NCCL finds by itself ends all ranks, though none waits")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    gpu_ranks_run(2, ranks, idle_until_failure, NULL);
    gpu_ranks_check(2, ranks);
    ASSERT_HAS(ranks[0].err.text, "remote process exited");
}
