/* Sums against whole numbers that floats hold exactly, then against the one order of addition that is promised; and every
 * way in which a group can end early, which must never leave a rank waiting. */
#include "tests/test.h"

#include "base/clock.h"
#include "comm/comm.h"
#include "tests/comm/ranks.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int reduce(struct rank *self, void *data, int64_t count, enum dtype dtype)
{
    struct comm_span span = {data, count};
    if (comm_start_all_reduce(self->comm, &span, 1, dtype, COMM_SUM, NULL, &self->err))
        return -1;
    return comm_wait(self->comm, &self->err);
}

static double seconds_since(int64_t start_ns)
{
    return (double)(clock_ns() - start_ns) * 1e-9;
}

TEST(comm_self_is_identity, "a rank alone sums itself: nothing changes, and an abort ends it with its reason")
{
    struct comm *comm = NULL;
    struct error err = {0};
    ASSERT_OK(comm_open_self(&comm, &err));
    ASSERT_INT(comm_rank(comm), 0);
    ASSERT_INT(comm_size(comm), 1);
    float values[3] = {1, 2, 3};
    struct comm_span span = {values, 3};
    ASSERT_OK(comm_start_all_reduce(comm, &span, 1, DTYPE_F32, COMM_SUM, NULL, &err));
    ASSERT_OK(comm_wait(comm, &err));
    ASSERT_OK(comm_barrier(comm, &err));
    ASSERT(values[0] == 1 && values[1] == 2 && values[2] == 3);
    double busy_s, waited_s;
    comm_times(comm, &busy_s, &waited_s);
    ASSERT(busy_s == 0 && waited_s == 0);

    ASSERT(!comm_failed_first(comm));
    comm_abort(comm, "interrupted");
    ASSERT(comm_failed_first(comm));
    ASSERT_INT(comm_wait(comm, &err), -1);
    ASSERT_INT(err.kind, ERROR_STOPPED);
    ASSERT_HAS(err.text, "interrupted");
    comm_close(comm);
    comm_close(NULL);
}

TEST(comm_refuses,
     "what cannot be summed is refused by name: integers, a negative count, a group of no ranks")
{
    struct comm *comm = NULL;
    struct error err = {0};
    ASSERT_OK(comm_open_self(&comm, &err));
    struct comm_span spans[2] = {{NULL, 0}, {NULL, -4}};
    ASSERT_INT(comm_start_all_reduce(comm, spans, 1, DTYPE_I32, COMM_SUM, NULL, &err), -1);
    ASSERT_HAS(err.text, "I32");
    ASSERT_INT(comm_start_all_reduce(comm, spans, 2, DTYPE_F32, COMM_SUM, NULL, &err), -1);
    ASSERT_HAS(err.text, "span 1 has -4 elements");
    ASSERT_INT(err.kind, ERROR_INPUT);
    comm_close(comm);
    ASSERT_INT(comm_open_threads(0, &comm, &err), -1);
    ASSERT_HAS(err.text, "0 ranks");
}

/* Rank r holds (r + 1) * (i % 1000) in element i of one long vector, cut differently on odd ranks. So the sum over n ranks
 * is n (n + 1) / 2 * (i % 1000), below 2^24 and exact in either type. */
enum { SPANS = 5, LONG_COUNT = 30011 };
static const int64_t even_cuts[SPANS] = {1, 17, 0, 9973, 20020}, odd_cuts[SPANS] = {20003, 3, 5, 10000, 0};

static void *reduce_spans(void *context)
{
    struct rank *self = context;
    const int64_t *cuts = self->rank % 2 ? odd_cuts : even_cuts;
    enum dtype dtype = *(enum dtype *)self->shared;
    struct comm_span spans[SPANS];
    int64_t element = 0;
    for (int s = 0; s < SPANS; s++) {
        spans[s] = (struct comm_span){malloc((size_t)(cuts[s] * 8 + 1)), cuts[s]};
        for (int64_t i = 0; i < cuts[s]; i++, element++) {
            int64_t value = (self->rank + 1) * (element % 1000);
            if (dtype == DTYPE_F32)
                ((float *)spans[s].data)[i] = (float)value;
            else
                ((double *)spans[s].data)[i] = (double)value;
        }
    }
    int wrong = element != LONG_COUNT;
    if (comm_start_all_reduce(self->comm, spans, SPANS, dtype, COMM_SUM, NULL, &self->err) ||
        comm_wait(self->comm, &self->err))
        wrong++;
    element = 0;
    for (int s = 0; s < SPANS; s++) {
        for (int64_t i = 0; i < cuts[s]; i++, element++) {
            double got = dtype == DTYPE_F32 ? ((float *)spans[s].data)[i] : ((double *)spans[s].data)[i];
            wrong += got != (double)(self->size * (self->size + 1) / 2 * (element % 1000));
        }
        free(spans[s].data);
    }
    self->status = wrong;
    return NULL;
}

TEST_LOOP(comm_sums_spans, "1, 2 and 4 ranks sum 30,011 elements in unequal spans exactly, as F32 and F64", 6)
{
    static const int sizes[] = {1, 2, 4};
    int size = sizes[_i / 2];
    enum dtype dtype = _i % 2 ? DTYPE_F64 : DTYPE_F32;
    struct rank ranks[MAX_RANKS];
    ranks_open(size, ranks);
    for (int r = 0; r < size; r++)
        ranks[r].shared = &dtype;
    ranks_run(size, ranks, reduce_spans);
    for (int r = 0; r < size; r++)
        ASSERT_MSG(ranks[r].status == 0, "rank %d: %d wrong; %s", r, ranks[r].status, ranks[r].err.text);
    ranks_close(size, ranks);
}

TEST(comm_sums_few, "counts of 0, 1 and 3 elements, fewer than ranks, are summed too")
{
    /* Called from one thread on purpose: starting never waits for the other ranks. */
    struct rank ranks[MAX_RANKS];
    struct error err = {0};
    ranks_open(4, ranks);
    for (int64_t count = 0; count <= 3; count++) {
        float values[4][3] = {{1, 2, 3}, {10, 20, 30}, {100, 200, 300}, {1000, 2000, 3000}};
        for (int r = 0; r < 4; r++) {
            struct comm_span span = {values[r], count};
            ASSERT_OK(comm_start_all_reduce(ranks[r].comm, &span, 1, DTYPE_F32, COMM_SUM, NULL, &err));
        }
        for (int r = 0; r < 4; r++) {
            ASSERT_OK(comm_wait(ranks[r].comm, &err));
            for (int i = 0; i < count; i++)
                ASSERT(values[r][i] == (float)(1111 * (i + 1)));
            for (int64_t i = count; i < 3; i++)
                ASSERT(values[r][i] != (float)(1111 * (i + 1)));
        }
    }
    ranks_close(4, ranks);
}

static void *reduce_noisy(void *context)
{
    struct rank *self = context;
    for (int64_t i = 0; i < LONG_COUNT; i++)
        self->data[i] = ranks_noise(self->rank, i);
    self->status = reduce(self, self->data, LONG_COUNT, DTYPE_F32);
    return NULL;
}

TEST(comm_same_bits,
     "sums that round are ((r0 + r1) + r2) + r3, bit for bit, on every rank and in each of 5 runs")
{
    static float data[4][LONG_COUNT], expected[LONG_COUNT];
    for (int64_t i = 0; i < LONG_COUNT; i++) {
        expected[i] = ranks_noise(0, i);
        for (int r = 1; r < 4; r++)
            expected[i] += ranks_noise(r, i);
    }
    for (int run = 0; run < 5; run++) {
        struct rank ranks[MAX_RANKS];
        ranks_open(4, ranks);
        for (int r = 0; r < 4; r++)
            ranks[r].data = data[r];
        ranks_run(4, ranks, reduce_noisy);
        for (int r = 0; r < 4; r++) {
            ASSERT_MSG(ranks[r].status == 0, "%s", ranks[r].err.text);
            ASSERT(!memcmp(data[r], expected, sizeof expected));
        }
        ranks_close(4, ranks);
    }
}

TEST(comm_runs_in_order, "collectives started at once run one after the other, in the order of their start")
{
    /* First x of rank 0 with x of rank 1, then x of rank 0 with y of rank 1. In order: x0 = x1 = 1 + 2, then x0 = y1 = 3 + 4.
     * The other way round, x1 would be 7 and y1 would be 5. */
    struct rank ranks[MAX_RANKS];
    struct error err = {0};
    ranks_open(2, ranks);
    for (int round = 0; round < 200; round++) {
        double x0 = 1, x1 = 2, y1 = 4;
        struct comm_span x0_span = {&x0, 1}, x1_span = {&x1, 1}, y1_span = {&y1, 1};
        ASSERT_OK(comm_start_all_reduce(ranks[0].comm, &x0_span, 1, DTYPE_F64, COMM_SUM, NULL, &err));
        ASSERT_OK(comm_start_all_reduce(ranks[0].comm, &x0_span, 1, DTYPE_F64, COMM_SUM, NULL, &err));
        ASSERT_OK(comm_start_all_reduce(ranks[1].comm, &x1_span, 1, DTYPE_F64, COMM_SUM, NULL, &err));
        ASSERT_OK(comm_start_all_reduce(ranks[1].comm, &y1_span, 1, DTYPE_F64, COMM_SUM, NULL, &err));
        ASSERT_OK(comm_wait(ranks[0].comm, &err));
        ASSERT_OK(comm_wait(ranks[1].comm, &err));
        ASSERT(x0 == 7 && x1 == 3 && y1 == 7);
    }
    ranks_close(2, ranks);
}

/* Rank 0 comes late; nobody may pass the barrier before it has come. */
static void *pass_barrier(void *context)
{
    struct rank *self = context;
    int *came = self->shared;
    for (int round = 1; round <= 20; round++) {
        if (self->rank == 0)
            usleep(1000);
        __atomic_add_fetch(came, 1, __ATOMIC_SEQ_CST);
        self->status |= comm_barrier(self->comm, &self->err);
        self->status |= __atomic_load_n(came, __ATOMIC_SEQ_CST) < 4 * round;
        self->status |= comm_barrier(self->comm, &self->err);
    }
    return NULL;
}

TEST(comm_barrier_holds, "in 20 rounds no rank passes a barrier before all four have come")
{
    struct rank ranks[MAX_RANKS];
    int came = 0;
    ranks_open(4, ranks);
    for (int r = 0; r < 4; r++)
        ranks[r].shared = &came;
    ranks_run(4, ranks, pass_barrier);
    ranks_check(4, ranks);
    ranks_close(4, ranks);
}

/* Ranks 0 and 1 wait in a collective and in a barrier; rank 2 fails. */
static void *one_fails(void *context)
{
    struct rank *self = context;
    float values[100] = {0};
    if (self->rank == 2) {
        usleep(50 * 1000);
        comm_abort(self->comm, "token 70000 is outside the vocabulary");
        comm_abort(self->comm, "a later reason");
        self->status = -1;
    } else if (self->rank == 1) {
        self->status = comm_barrier(self->comm, &self->err);
    } else {
        self->status = reduce(self, values, 100, DTYPE_F32);
    }
    return NULL;
}

TEST(comm_abort_wakes,
     "an abort wakes ranks in a collective and in a barrier within a second, with the first reason")
{
    struct rank ranks[MAX_RANKS];
    ranks_open(3, ranks);
    int64_t start_ns = clock_ns();
    ranks_run(3, ranks, one_fails);
    ASSERT(seconds_since(start_ns) < 1);
    float value = 0;
    struct comm_span span = {&value, 1};
    for (int r = 0; r < 3; r++) {
        struct error err = {0};
        ASSERT_INT(ranks[r].status, -1);
        ASSERT_INT(comm_failed_first(ranks[r].comm), r == 2);
        ASSERT_INT(comm_start_all_reduce(ranks[r].comm, &span, 1, DTYPE_F32, COMM_SUM, NULL, &err), -1);
        ASSERT_INT(err.kind, ERROR_STOPPED);
        ASSERT_INT(comm_wait(ranks[r].comm, &err), -1);
        ASSERT_INT(comm_barrier(ranks[r].comm, &err), -1);
        ASSERT_HAS(err.text, "rank 2 stopped: token 70000 is outside the vocabulary");
        if (r == 2)
            continue;
        ASSERT_INT(ranks[r].err.kind, ERROR_STOPPED);
        ASSERT_HAS(ranks[r].err.text, "rank 2 stopped: token 70000 is outside the vocabulary");
    }
    ranks_close(3, ranks);
}

/* Each rank sums its own buffer again and again and frees it after each wait, until rank 3 aborts somewhere in between: a
 * rank that still wrote to freed memory would be caught by the sanitizers. */
static void *abort_midway(void *context)
{
    struct rank *self = context;
    for (int round = 0; self->status == 0; round++) {
        float *values = calloc(50000, sizeof *values);
        if (self->rank == 3 && round == 20)
            comm_abort(self->comm, "enough");
        self->status = reduce(self, values, 50000, DTYPE_F32);
        free(values);
    }
    return NULL;
}

TEST(comm_abort_leaves_data,
     "after an abort in mid-work, no rank touches the data of another whose wait returned")
{
    struct rank ranks[MAX_RANKS];
    ranks_open(4, ranks);
    ranks_run(4, ranks, abort_midway);
    for (int r = 0; r < 4; r++)
        ASSERT_HAS(ranks[r].err.text, "enough");
    ranks_close(4, ranks);
}

static void *mismatch_count(void *context)
{
    struct rank *self = context;
    float values[12] = {0};
    self->status = reduce(self, values, self->rank ? 12 : 10, DTYPE_F32);
    return NULL;
}

static void *mismatch_type(void *context)
{
    struct rank *self = context;
    double values[8] = {0};
    self->status = reduce(self, values, 8, self->rank ? DTYPE_F64 : DTYPE_F32);
    return NULL;
}

TEST(comm_mismatch, "ranks that sum different counts or types all fail, and the message names both calls")
{
    for (int which = 0; which < 2; which++) {
        struct rank ranks[MAX_RANKS];
        ranks_open(2, ranks);
        ranks_run(2, ranks, which ? mismatch_type : mismatch_count);
        for (int r = 0; r < 2; r++) {
            ASSERT_INT(ranks[r].status, -1);
            ASSERT_INT(ranks[r].err.kind, ERROR_INPUT);
            ASSERT_HAS(ranks[r].err.text, which ? "of 8 F32 on rank 0 meets all-reduce of 8 F64 on rank 1"
                                                : "of 10 F32 on rank 0 meets all-reduce of 12 F32 on rank 1");
        }
        ranks_close(2, ranks);
    }
}

TEST(comm_close_while_pending,
     "closing with a collective that the others never start does not hang, and stops the group")
{
    struct rank ranks[MAX_RANKS];
    ranks_open(2, ranks);
    struct error err = {0};
    float value = 1;
    struct comm_span span = {&value, 1};
    ASSERT_OK(comm_start_all_reduce(ranks[0].comm, &span, 1, DTYPE_F32, COMM_SUM, NULL, &err));
    comm_close(ranks[0].comm);
    ASSERT_INT(comm_wait(ranks[1].comm, &err), -1);
    ASSERT_INT(err.kind, ERROR_STOPPED);
    ASSERT_HAS(err.text, "rank 0 stopped: closed with work pending");
    comm_close(ranks[1].comm);
}

TEST(comm_close_early, "a rank that goes on after another closed is told so instead of waiting for it")
{
    struct rank ranks[MAX_RANKS];
    ranks_open(2, ranks);
    comm_close(ranks[1].comm);
    struct error err = {0};
    ASSERT_OK(comm_wait(ranks[0].comm, &err));
    ASSERT_INT(comm_barrier(ranks[0].comm, &err), -1);
    ASSERT_HAS(err.text, "rank 1 stopped: closed while other ranks went on");
    ASSERT_INT(err.kind, ERROR_STOPPED);
    comm_close(ranks[0].comm);
}

/* Of two vectors the first is left to run and the second needed at once; odd ranks start and wait for each. Rank r of n holds
 * r + step, whose sum is n (n - 1) / 2 + n step. */
static void *reduce_at_once(void *context)
{
    enum { COUNT = 3000, STEPS = 400 };
    struct rank *self = context;
    int size = comm_size(self->comm);
    static float values[MAX_RANKS][2][COUNT];
    float(*mine)[COUNT] = values[self->rank];
    for (int step = 0; step < STEPS && !self->status; step++) {
        for (int i = 0; i < COUNT; i++)
            mine[0][i] = mine[1][i] = (float)(self->rank + step);
        struct comm_span first = {mine[0], COUNT}, second = {mine[1], COUNT};
        self->status = comm_start_all_reduce(self->comm, &first, 1, DTYPE_F32, COMM_SUM, NULL, &self->err);
        if (self->rank % 2)
            self->status |= comm_wait(self->comm, &self->err) || reduce(self, mine[1], COUNT, DTYPE_F32);
        else
            self->status |= comm_all_reduce(self->comm, &second, 1, DTYPE_F32, COMM_SUM, &self->err) ||
                            comm_wait(self->comm, &self->err) || comm_barrier(self->comm, &self->err);
        if (self->rank % 2)
            self->status |= comm_barrier(self->comm, &self->err);
        float sum = (float)(size * (size - 1) / 2 + size * step);
        for (int i = 0; i < COUNT && !self->status; i++)
            if (mine[0][i] != sum || mine[1][i] != sum)
                self->status = error_set(&self->err, "step %d, element %d: %g and %g, not %g", step, i,
                                         (double)mine[0][i], (double)mine[1][i], (double)sum);
    }
    return NULL;
}

TEST(comm_at_once, "what a rank waits for at once keeps its place behind what was left to run")
{
    for (int size = 1; size <= 4; size++) {
        struct rank ranks[MAX_RANKS];
        ranks_open(size, ranks);
        ranks_run(size, ranks, reduce_at_once);
        for (int rank = 0; rank < size; rank++)
            ASSERT_MSG(!ranks[rank].status, "%d ranks: %s", size, ranks[rank].err.text);
        ranks_close(size, ranks);
    }
}

static void *wait_for_late(void *context)
{
    struct rank *self = context;
    float value = 1;
    struct comm_span span = {&value, 1};
    if (self->rank == 1)
        usleep(50 * 1000);
    self->status = comm_all_reduce(self->comm, &span, 1, DTYPE_F32, COMM_SUM, &self->err);
    return NULL;
}

TEST(comm_times_at_once, "nothing is hidden of what is waited for at once: busy as long as waited")
{
    struct rank ranks[MAX_RANKS];
    ranks_open(2, ranks);
    ranks_run(2, ranks, wait_for_late);
    double busy_s, waited_s;
    comm_times(ranks[0].comm, &busy_s, &waited_s);
    ASSERT_MSG(busy_s > 0.03 && busy_s == waited_s, "busy %g s, waited %g", busy_s, waited_s);
    ranks_close(2, ranks);
}

static void *reduce_while_busy(void *context)
{
    struct rank *self = context;
    float values[1000] = {0};
    struct comm_span span = {values, 1000};
    if (self->rank == 1)
        usleep(100 * 1000);
    self->status = comm_start_all_reduce(self->comm, &span, 1, DTYPE_F32, COMM_SUM, NULL, &self->err);
    if (self->rank == 0)
        usleep(40 * 1000);
    self->status |= comm_wait(self->comm, &self->err);
    return NULL;
}

TEST(comm_times_overlap,
     "a worker that was busy 100 ms, of which its caller worked 40 and waited 60, says so; then zero")
{
    struct rank ranks[MAX_RANKS];
    ranks_open(2, ranks);
    ranks_run(2, ranks, reduce_while_busy);
    double busy_s, waited_s;
    comm_times(ranks[0].comm, &busy_s, &waited_s);
    ASSERT_MSG(busy_s > 0.08 && busy_s < 0.5, "busy %g s", busy_s);
    ASSERT_MSG(waited_s > 0.02 && waited_s < busy_s - 0.02, "waited %g s of %g", waited_s, busy_s);
    comm_times(ranks[0].comm, &busy_s, &waited_s);
    ASSERT(busy_s == 0 && waited_s == 0);
    ranks_close(2, ranks);
}
