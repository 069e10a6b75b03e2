/* Messages between ranks and groups of ranks: order, independence of what else is pending, and an end for everyone when one
 * rank fails, in whatever it waits. */
#include "tests/test.h"

#include "base/clock.h"
#include "comm/comm.h"
#include "tests/comm/ranks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int start_send(struct comm *comm, float *data, int64_t count, int peer, int tag, struct error *err)
{
    struct comm_span span = {data, count};
    return comm_start_send(comm, &span, DTYPE_F32, peer, tag, NULL, err);
}

static int start_receive(struct comm *comm, float *data, int64_t count, int peer, int tag, struct error *err)
{
    struct comm_span span = {data, count};
    return comm_start_receive(comm, &span, DTYPE_F32, peer, tag, NULL, err);
}

/* Everybody sends to the right before it receives from the left, 100 times: with a send that blocked, all would wait. */
static void *pass_around(void *context)
{
    struct rank *self = context;
    int right = (self->rank + 1) % self->size, left = (self->rank + self->size - 1) % self->size;
    float held = (float)self->rank, next;
    for (int round = 0; round < 100; round++) {
        self->status += start_send(self->comm, &held, 1, right, 0, &self->err);
        self->status += start_receive(self->comm, &next, 1, left, 0, &self->err);
        self->status += comm_wait(self->comm, &self->err);
        held = next;
    }
    int origin = ((self->rank - 100) % self->size + self->size) % self->size;
    self->status += held != (float)origin;
    return NULL;
}

TEST_LOOP(comm_ring, "a ring of 1, 2, 4 and 8 ranks passes a number on 100 times without a deadlock", 4)
{
    struct rank ranks[MAX_RANKS];
    int size = 1 << _i;
    ranks_open(size, ranks);
    ranks_run(size, ranks, pass_around);
    ranks_check(size, ranks);
    ranks_close(size, ranks);
}

TEST(comm_messages_match,
     "messages meet by peer and tag, and with the same tag in order; a send waits for its receive")
{
    struct rank ranks[MAX_RANKS];
    struct error err = {0};
    ranks_open(2, ranks);
    float out[4] = {1, 2, 3, 4}, in[4] = {0};
    int64_t tickets[4], first_send;
    struct comm_span spans[2] = {{&out[0], 1}, {&in[2], 1}};
    ASSERT_OK(comm_start_send(ranks[0].comm, &spans[0], DTYPE_F32, 1, 5, &first_send, &err));
    ASSERT_OK(start_send(ranks[0].comm, &out[1], 1, 1, 5, &err));
    ASSERT_OK(start_send(ranks[0].comm, &out[2], 1, 1, 9, &err));
    ASSERT_OK(comm_start_receive(ranks[1].comm, &spans[1], DTYPE_F32, 0, 9, &tickets[0], &err));
    ASSERT_OK(comm_wait_for(ranks[1].comm, tickets[0], &err));
    ASSERT(in[2] == 3 && in[0] == 0);
    ASSERT_OK(start_receive(ranks[1].comm, &in[0], 1, 0, 5, &err));
    ASSERT_OK(comm_wait_for(ranks[0].comm, first_send, &err));
    ASSERT_OK(start_receive(ranks[1].comm, &in[1], 1, 0, 5, &err));
    ASSERT_OK(comm_wait(ranks[1].comm, &err));
    ASSERT_OK(comm_wait(ranks[0].comm, &err));
    ASSERT(in[0] == 1 && in[1] == 2);
    ranks_close(2, ranks);
}

TEST(comm_messages_apart, "a pending receive holds up no collective, and a pending collective no message")
{
    struct rank ranks[MAX_RANKS];
    struct error err = {0};
    ranks_open(2, ranks);
    float in = 0, out = 8, values[2] = {1, 2};
    struct comm_span spans[2] = {{&values[0], 1}, {&values[1], 1}};
    int64_t tickets[2];
    ASSERT_OK(start_receive(ranks[0].comm, &in, 1, 1, 0, &err));
    for (int r = 0; r < 2; r++)
        ASSERT_OK(comm_start_all_reduce(ranks[r].comm, &spans[r], 1, DTYPE_F32, COMM_SUM, &tickets[r], &err));
    for (int r = 0; r < 2; r++)
        ASSERT_OK(comm_wait_for(ranks[r].comm, tickets[r], &err));
    ASSERT(values[0] == 3 && values[1] == 3 && in == 0);

    ASSERT_OK(comm_start_all_reduce(ranks[1].comm, &spans[1], 1, DTYPE_F32, COMM_SUM, NULL, &err));
    ASSERT_OK(start_send(ranks[1].comm, &out, 1, 0, 0, &err));
    ASSERT_OK(comm_wait(ranks[0].comm, &err));
    ASSERT(in == 8);
    ASSERT_OK(comm_start_all_reduce(ranks[0].comm, &spans[0], 1, DTYPE_F32, COMM_SUM, NULL, &err));
    for (int r = 0; r < 2; r++)
        ASSERT_OK(comm_wait(ranks[r].comm, &err));
    ranks_close(2, ranks);
}

TEST(comm_message_mismatch, "a message of another length ends both ranks, and names both lengths")
{
    struct rank ranks[MAX_RANKS];
    struct error err = {0};
    ranks_open(2, ranks);
    float data[4] = {0};
    ASSERT_OK(start_send(ranks[0].comm, data, 2, 1, 3, &err));
    ASSERT_OK(start_receive(ranks[1].comm, data + 2, 1, 0, 3, &err));
    for (int r = 0; r < 2; r++) {
        ASSERT_INT(comm_wait(ranks[r].comm, &err), -1);
        ASSERT_HAS(err.text, "rank 1 receives 1 F32 from rank 0, which sends 2 F32 with tag 3");
    }
    ranks_close(2, ranks);
}

/* A grid of 2 x 2 x 2: rank = 4 p + 2 d + t. In each of its three groups, a rank starts sums and messages before it waits
 * for any. */
static void *work_in_grid(void *context)
{
    struct rank *self = context;
    struct comm *groups[3] = {NULL};
    for (int axis = 0; axis < 3; axis++) {
        int step = 1 << axis, coordinate = self->rank / step % 2;
        self->status +=
            comm_split(self->comm, self->rank - coordinate * step, coordinate, &groups[axis], &self->err);
        self->status += comm_rank(groups[axis]) != coordinate || comm_size(groups[axis]) != 2;
    }
    for (int round = 0; round < 50 && !self->status; round++) {
        double sums[3];
        float out = (float)self->rank, in[3];
        for (int i = 0; i < 3; i++) {
            int axis = (i + self->rank) % 3;
            sums[axis] = self->rank;
            struct comm_span span = {&sums[axis], 1};
            struct comm *group = groups[axis];
            self->status += start_receive(group, &in[axis], 1, 1 - comm_rank(group), round, &self->err) ||
                            comm_start_all_reduce(group, &span, 1, DTYPE_F64, COMM_SUM, NULL, &self->err) ||
                            start_send(group, &out, 1, 1 - comm_rank(group), round, &self->err);
        }
        for (int axis = 2; axis >= 0; axis--) {
            int other = self->rank ^ 1 << axis;
            self->status += comm_wait(groups[axis], &self->err) || sums[axis] != self->rank + other ||
                            in[axis] != (float)other;
        }
    }
    for (int axis = 0; axis < 3; axis++)
        comm_close(groups[axis]);
    return NULL;
}

TEST(comm_grid,
     "the three groups of each rank of a 2 x 2 x 2 grid work side by side, started in different orders")
{
    struct rank ranks[MAX_RANKS];
    ranks_open(8, ranks);
    ranks_run(8, ranks, work_in_grid);
    ranks_check(8, ranks);
    ranks_close(8, ranks);
}

/* Color 1 for ranks 0, 2, 3 with keys that turn their order round; none for rank 1. Then the group is split again. */
static void *split_twice(void *context)
{
    struct rank *self = context;
    struct comm *group, *pair;
    self->status += comm_split(self->comm, self->rank == 1 ? -1 : 1, -self->rank, &group, &self->err);
    if (self->rank == 1) {
        self->status += group != NULL;
        return NULL;
    }
    static const int expected[] = {2, -1, 1, 0};
    self->status += comm_size(group) != 3 || comm_rank(group) != expected[self->rank];
    self->status += comm_split(group, comm_rank(group) < 2, 0, &pair, &self->err);
    self->status += comm_size(pair) != (self->rank ? 2 : 1);
    comm_close(group);
    float value = (float)self->rank;
    struct comm_span span = {&value, 1};
    self->status += comm_start_broadcast(pair, &span, 1, DTYPE_F32, 0, NULL, &self->err) ||
                    comm_wait(pair, &self->err) || value != (self->rank ? 3 : 0);
    comm_close(pair);
    return NULL;
}

TEST(comm_split_order,
     "a group has the ranks of one color in the order of their keys, and outlives the one it came from")
{
    struct rank ranks[MAX_RANKS];
    ranks_open(4, ranks);
    ranks_run(4, ranks, split_twice);
    ranks_check(4, ranks);
    ranks_close(4, ranks);
}

/* Ranks 0 to 5 wait in every kind of call, in the world or in the group of even ones; rank 6 comes to none of them and
 * rank 7 ends the group of odd ones. */
static void *wait_and_fail(void *context)
{
    struct rank *self = context;
    struct comm *group, *used = self->comm;
    struct error *err = &self->err;
    float data[8] = {0};
    struct comm_span all = {data, 8}, part = {data, 1}, quarter = {data, 2};
    if (comm_split(self->comm, self->rank % 2, 0, &group, err))
        return NULL;
    switch (self->rank) {
    case 0:
        used = group;
        comm_start_all_reduce(group, &all, 1, DTYPE_F32, COMM_SUM, NULL, err);
        break;
    case 1:
        comm_start_all_reduce(self->comm, &all, 1, DTYPE_F32, COMM_SUM, NULL, err);
        break;
    case 2:
        start_send(self->comm, data, 1, 6, 0, err);
        break;
    case 3:
        start_receive(self->comm, data, 1, 6, 0, err);
        break;
    case 4:
        used = group;
        comm_start_reduce_scatter(group, &all, &quarter, 1, DTYPE_F32, NULL, err);
        break;
    case 5:
        comm_start_all_gather(self->comm, &part, &all, 1, DTYPE_F32, NULL, err);
        break;
    case 6:
        usleep(100 * 1000);
        break;
    default:
        usleep(50 * 1000);
        comm_abort(group, "NaN in step 3");
    }
    int64_t start_ns = clock_ns();
    self->status = comm_wait(used, err) == 0 || clock_ns() - start_ns > 1000000000;
    comm_close(group);
    return NULL;
}

TEST(comm_abort_wakes_all,
     "an abort in one group wakes ranks that wait in any call of any other, with its reason")
{
    struct rank ranks[MAX_RANKS];
    ranks_open(8, ranks);
    ranks_run(8, ranks, wait_and_fail);
    ranks_check(8, ranks);
    for (int r = 0; r < 8; r++) {
        ASSERT_INT(ranks[r].err.kind, ERROR_STOPPED);
        ASSERT_HAS(ranks[r].err.text, "rank 7 stopped: NaN in step 3");
    }
    ranks_close(8, ranks);
}

/* Large messages are passed until rank 0 aborts, and their memory is freed at once: a copy that went on would be seen. */
static void *pass_until_abort(void *context)
{
    struct rank *self = context;
    for (int round = 0; self->status == 0; round++) {
        float *data = calloc(100000, sizeof *data);
        if (self->rank == 0 && round == 20)
            comm_abort(self->comm, "enough");
        self->status = start_send(self->comm, data, 50000, 1 - self->rank, 0, &self->err) |
                       start_receive(self->comm, data + 50000, 50000, 1 - self->rank, 0, &self->err) |
                       comm_wait(self->comm, &self->err);
        free(data);
    }
    return NULL;
}

TEST(comm_abort_leaves_messages,
     "after an abort no copy of a message goes on into memory whose wait has returned")
{
    struct rank ranks[MAX_RANKS];
    ranks_open(2, ranks);
    ranks_run(2, ranks, pass_until_abort);
    for (int r = 0; r < 2; r++)
        ASSERT_HAS(ranks[r].err.text, "enough");
    ranks_close(2, ranks);
}

TEST(comm_close_ends_messages, "a rank that waits for a message of one that closed is told so, others go on")
{
    struct rank ranks[MAX_RANKS];
    struct error err = {0};
    ranks_open(3, ranks);
    float out = 1, in = 0;
    comm_close(ranks[0].comm);
    ASSERT_OK(start_send(ranks[1].comm, &out, 1, 2, 0, &err));
    ASSERT_OK(start_receive(ranks[2].comm, &in, 1, 1, 0, &err));
    ASSERT_OK(comm_wait(ranks[2].comm, &err));
    ASSERT(in == 1);
    ASSERT_OK(start_receive(ranks[1].comm, &in, 1, 0, 0, &err));
    ASSERT_INT(comm_wait(ranks[1].comm, &err), -1);
    ASSERT_HAS(err.text, "rank 0 stopped: closed while other ranks went on");
    comm_close(ranks[1].comm);
    comm_close(ranks[2].comm);
}
