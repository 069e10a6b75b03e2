/* Every collective on 1 to 8 ranks against the plain loop that defines it, in the promised order of addition, and the same
 * collectives as rounds of messages, carried by the test from rank to rank. */
#include "tests/test.h"

#include "comm/comm.h"
#include "comm/exchange.h"
#include "tests/comm/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SPANS = 4, LONGEST = 9001 };
static const int64_t part_counts[SPANS] = {1, LONGEST, 0, 333};
static const int sizes[] = {1, 2, 3, 4, 8};
enum { SIZES = sizeof sizes / sizeof *sizes };

static float bf16_noise(int rank, int64_t element)
{
    return bf16_to_f32(f32_to_bf16(ranks_noise(rank, element)));
}

static float sum_noise(int size, int64_t element)
{
    float sum = ranks_noise(0, element);
    for (int rank = 1; rank < size; rank++)
        sum += ranks_noise(rank, element);
    return sum;
}

/* The sum of halves in float, rounded once; and the largest. */
static void *reduce_halves(void *context)
{
    struct rank *self = context;
    uint16_t *sums = malloc(2 * LONGEST * sizeof *sums), *largest = sums + LONGEST;
    struct comm_span spans[2] = {{sums, LONGEST}, {largest, LONGEST}};
    for (int64_t i = 0; i < LONGEST; i++)
        sums[i] = largest[i] = f32_to_bf16(ranks_noise(self->rank, i));
    self->status = comm_start_all_reduce(self->comm, &spans[0], 1, DTYPE_BF16, COMM_SUM, NULL, &self->err) ||
                   comm_start_all_reduce(self->comm, &spans[1], 1, DTYPE_BF16, COMM_MAX, NULL, &self->err) ||
                   comm_wait(self->comm, &self->err);
    for (int64_t i = 0; i < LONGEST; i++) {
        float sum = bf16_noise(0, i), most = sum;
        for (int rank = 1; rank < self->size; rank++) {
            sum += bf16_noise(rank, i);
            most = fmaxf(most, bf16_noise(rank, i));
        }
        self->status += sums[i] != f32_to_bf16(sum) || largest[i] != f32_to_bf16(most);
    }
    free(sums);
    return NULL;
}

TEST_LOOP(comm_reduces_halves, "1 to 8 ranks sum bf16 in float, rounded once, and find the largest", SIZES)
{
    struct rank ranks[MAX_RANKS];
    ranks_open(sizes[_i], ranks);
    ranks_run(sizes[_i], ranks, reduce_halves);
    ranks_check(sizes[_i], ranks);
    ranks_close(sizes[_i], ranks);
}

TEST(comm_maximum_keeps_nan, "a maximum over ranks is NaN when any rank has one, first or last")
{
    struct rank ranks[MAX_RANKS];
    struct error err = {0};
    ranks_open(2, ranks);
    float values[2][3] = {{NAN, 1, -1}, {5, NAN, -2}};
    for (int r = 0; r < 2; r++) {
        struct comm_span span = {values[r], 3};
        ASSERT_OK(comm_start_all_reduce(ranks[r].comm, &span, 1, DTYPE_F32, COMM_MAX, NULL, &err));
    }
    for (int r = 0; r < 2; r++) {
        ASSERT_OK(comm_wait(ranks[r].comm, &err));
        ASSERT(isnan(values[r][0]) && isnan(values[r][1]) && values[r][2] == -1);
    }
    ranks_close(2, ranks);
}

/* The spans of one rank, one after the other in `data`, and its parts: in place, or in `elsewhere`. */
static void cut(const struct rank *self, float *data, float *elsewhere, struct comm_span *full,
                struct comm_span *parts)
{
    for (int i = 0; i < SPANS; i++) {
        full[i] = (struct comm_span){data, part_counts[i] * self->size};
        parts[i] =
            (struct comm_span){elsewhere ? elsewhere : data + self->rank * part_counts[i], part_counts[i]};
        data += full[i].count;
        elsewhere = elsewhere ? elsewhere + part_counts[i] : NULL;
    }
}

/* Sums parts, and then gathers them: the same as an all-reduce. */
static void *scatter_and_gather(void *context)
{
    struct rank *self = context;
    bool in_place = *(bool *)self->shared;
    int64_t total = 0, own = 0;
    for (int i = 0; i < SPANS; i++)
        own += part_counts[i];
    total = own * self->size;
    float *data = malloc((size_t)total * sizeof *data), *elsewhere = malloc((size_t)own * sizeof *data);
    struct comm_span full[SPANS], parts[SPANS];
    cut(self, data, in_place ? NULL : elsewhere, full, parts);
    for (int64_t i = 0; i < total; i++)
        data[i] = ranks_noise(self->rank, i);
    int64_t ticket;
    self->status =
        comm_start_reduce_scatter(self->comm, full, parts, SPANS, DTYPE_F32, &ticket, &self->err) ||
        comm_wait_for(self->comm, ticket, &self->err);
    for (int i = 0, wrong = 0; i < SPANS; i++) {
        int64_t first = (float *)full[i].data - data, begin = first + self->rank * part_counts[i];
        for (int64_t k = 0; k < full[i].count; k++) {
            bool is_own = k / (part_counts[i] ? part_counts[i] : 1) == self->rank;
            wrong += (!in_place || !is_own) && data[first + k] != ranks_noise(self->rank, first + k);
        }
        for (int64_t k = 0; k < part_counts[i]; k++)
            wrong += ((float *)parts[i].data)[k] != sum_noise(self->size, begin + k);
        self->status += wrong;
    }
    self->status += comm_start_all_gather(self->comm, parts, full, SPANS, DTYPE_F32, NULL, &self->err) ||
                    comm_wait(self->comm, &self->err);
    for (int64_t i = 0; i < total; i++)
        self->status += data[i] != sum_noise(self->size, i);
    free(elsewhere);
    free(data);
    return NULL;
}

TEST_LOOP(comm_scatters_and_gathers,
          "parts of 4 spans, in place or not, are summed to the bit, nothing else is touched, and gathered",
          2 * SIZES)
{
    struct rank ranks[MAX_RANKS];
    int size = sizes[_i / 2];
    bool in_place = _i % 2;
    ranks_open(size, ranks);
    for (int r = 0; r < size; r++)
        ranks[r].shared = &in_place;
    ranks_run(size, ranks, scatter_and_gather);
    ranks_check(size, ranks);
    ranks_close(size, ranks);
}

static void *broadcast_from_all(void *context)
{
    struct rank *self = context;
    int32_t values[1001];
    for (int root = 0; root < self->size; root++) {
        int cut_at = 100 * self->rank;
        struct comm_span spans[2] = {{values, cut_at}, {values + cut_at, 1001 - cut_at}};
        for (int i = 0; i < 1001; i++)
            values[i] = self->rank * 10000 + i;
        self->status += comm_start_broadcast(self->comm, spans, 2, DTYPE_I32, root, NULL, &self->err) ||
                        comm_wait(self->comm, &self->err);
        for (int i = 0; i < 1001; i++)
            self->status += values[i] != root * 10000 + i;
    }
    return NULL;
}

TEST_LOOP(comm_broadcasts, "every rank in turn sends its 1,001 integers to all, however they are cut", SIZES)
{
    struct rank ranks[MAX_RANKS];
    ranks_open(sizes[_i], ranks);
    ranks_run(sizes[_i], ranks, broadcast_from_all);
    ranks_check(sizes[_i], ranks);
    ranks_close(sizes[_i], ranks);
}

TEST(comm_refuses_parts,
     "a span that is not as long as its parts, a root and a tag that do not exist are refused by name")
{
    struct rank ranks[MAX_RANKS];
    struct error err = {0};
    ranks_open(2, ranks);
    float data[8];
    struct comm_span full = {data, 7}, part = {data, 3};
    ASSERT_INT(comm_start_all_gather(ranks[0].comm, &part, &full, 1, DTYPE_F32, NULL, &err), -1);
    ASSERT_HAS(err.text, "span 0 has 7 elements and its part 3; with 2 ranks");
    ASSERT_INT(comm_start_broadcast(ranks[0].comm, &part, 1, DTYPE_F32, 2, NULL, &err), -1);
    ASSERT_HAS(err.text, "no rank 2 in a group of 2");
    ASSERT_INT(comm_start_send(ranks[0].comm, &part, DTYPE_F32, 1, COMM_TAG_MAX + 1, NULL, &err), -1);
    ASSERT_HAS(err.text, "tag 65536");
    ASSERT_INT(comm_wait_for(ranks[0].comm, 1, &err), -1);
    ASSERT_HAS(err.text, "no ticket 1");
    ranks_close(2, ranks);
}

/* Rounds of messages, without anything that carries them: the test copies. */

static struct job *new_job(enum job_kind kind, int count, int64_t elements, const struct comm_span *full,
                           const struct comm_span *parts, int root)
{
    struct job *job = calloc(1, sizeof *job + 2 * (size_t)count * sizeof *full);
    job->kind = kind;
    job->dtype = DTYPE_F32;
    job->peer = root;
    job->count = elements;
    memcpy(job->copies, full, (size_t)count * sizeof *full);
    memcpy(job->copies + count, parts, (size_t)count * sizeof *parts);
    job->spans = job->copies;
    job->parts = job->copies + count;
    return job;
}

/* Returns the number of rounds; every rank must have as many. */
static int carry_out(int size, struct exchange *exchanges)
{
    for (int rounds = 1;; rounds++) {
        int more = 0;
        for (int from = 0; from < size; from++)
            for (int to = 0; to < size; to++) {
                int64_t bytes;
                const void *message = exchange_outgoing(&exchanges[from], to, &bytes);
                ASSERT(bytes <= exchanges[from].slot_bytes);
                if (from != to)
                    memcpy(exchange_incoming(&exchanges[to], from), message, (size_t)bytes);
            }
        for (int rank = 0; rank < size; rank++)
            more += exchange_advance(&exchanges[rank], NULL);
        if (more == 0)
            return rounds;
        ASSERT_INT(more, size);
    }
}

TEST_LOOP(exchange_is_the_same,
          "rounds of short messages between 1 to 8 ranks give what threads give; the number of rounds is as "
          "worked out",
          4 * SIZES)
{
    /* 1,000 elements for each rank, of which a message of 1,088 bytes holds (1,088 - 64) / 4 = 256: 4 windows. Pieces of
     * 1,000 n elements are 1,024 long, except for the last: 4 windows too. */
    enum { EACH = 1000 };
    static const enum job_kind kinds[] = {JOB_ALL_REDUCE, JOB_REDUCE_SCATTER, JOB_ALL_GATHER, JOB_BROADCAST};
    static float data[MAX_RANKS][MAX_RANKS * EACH];
    enum job_kind kind = kinds[_i % 4];
    int size = sizes[_i / 4], windows = 4;
    struct exchange exchanges[MAX_RANKS];
    struct job *jobs[MAX_RANKS];
    for (int r = 0; r < size; r++) {
        for (int i = 0; i < size * EACH; i++)
            data[r][i] = ranks_noise(r, i);
        struct comm_span full = {data[r], size * EACH}, part = {data[r] + r * EACH, EACH};
        bool has_parts = kind == JOB_REDUCE_SCATTER || kind == JOB_ALL_GATHER;
        jobs[r] = new_job(kind, 1, has_parts ? EACH : size * EACH, &full, &part, size - 1);
        exchange_open(&exchanges[r], r, size, 1088);
        exchange_begin(&exchanges[r], jobs[r]);
    }
    bool two_rounds = kind == JOB_ALL_REDUCE || kind == JOB_BROADCAST;
    ASSERT_INT(carry_out(size, exchanges), windows * (two_rounds ? 2 : 1));
    for (int r = 0; r < size; r++) {
        for (int i = 0; i < size * EACH; i++) {
            float expected = ranks_noise(r, i);
            if (kind == JOB_ALL_REDUCE || (kind == JOB_REDUCE_SCATTER && i / EACH == r))
                expected = sum_noise(size, i);
            else if (kind != JOB_REDUCE_SCATTER)
                expected = ranks_noise(kind == JOB_BROADCAST ? size - 1 : i / EACH, i);
            ASSERT_MSG(data[r][i] == expected, "rank %d of %d, element %d", r, size, i);
        }
        exchange_close(&exchanges[r]);
        free(jobs[r]);
    }
}
