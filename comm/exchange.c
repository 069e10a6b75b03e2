/* Which rounds a collective has:
 *
 *     all-reduce      SCATTER, GATHER
 *     reduce-scatter  SCATTER
 *     all-gather               GATHER
 *     broadcast       SCATTER, GATHER    only the root's messages hold data in the first
 *     barrier         SCATTER            no data at all
 *
 * A rank sends and receives 2 (n - 1) / n of the vector in an all-reduce, which is the least possible; and the two rounds
 * are all the latency there is for a short one. */
#include "comm/exchange.h"

#include "base/arena.h"
#include "base/checked.h"
#include "comm/reduce.h"

#include <stdlib.h>
#include <string.h>

enum {
    HEADER_BYTES = 64, /* so that data are aligned like the slots */
    MOST_PAYLOAD_BYTES = 1024 * 1024,
    MOST_BUFFER_BYTES = 16 * 1024 * 1024,
};

void exchange_open(struct exchange *exchange, int rank, int size, int64_t slot_bytes)
{
    if (!slot_bytes)
        slot_bytes =
            HEADER_BYTES + round_up(min_i64(MOST_PAYLOAD_BYTES, MOST_BUFFER_BYTES / size), HEADER_BYTES);
    *exchange = (struct exchange){.rank = rank, .size = size, .slot_bytes = slot_bytes};
}

void exchange_close(struct exchange *exchange)
{
    free(exchange->outgoing);
    free(exchange->incoming);
    free(exchange->pieces);
    free(exchange->scratch);
    free(exchange->left);
}

/* Many groups carry only messages and need none of this. */
static void take_memory(struct exchange *exchange)
{
    if (exchange->outgoing)
        return;
    size_t size = (size_t)exchange->size;
    exchange->outgoing = host_alloc(size * (size_t)exchange->slot_bytes);
    exchange->incoming = host_alloc(size * (size_t)exchange->slot_bytes);
    exchange->pieces = host_alloc(size * sizeof *exchange->pieces);
    exchange->scratch = host_alloc(size * sizeof *exchange->scratch);
    exchange->left = host_alloc(size * sizeof *exchange->left);
}

static unsigned char *payload(unsigned char *slots, const struct exchange *exchange, int rank)
{
    return slots + rank * exchange->slot_bytes + HEADER_BYTES;
}

static int64_t window_count(const struct exchange *exchange, int rank)
{
    int64_t most = (exchange->slot_bytes - HEADER_BYTES) / dtype_bytes(exchange->job->dtype);
    return min_i64(most, exchange->left[rank]);
}

/* In a GATHER every rank is sent the same, which lies in the own slot. */
static int outgoing_slot(const struct exchange *exchange, int rank)
{
    return exchange->gathering ? exchange->rank : rank;
}

/* Elements in a message of this round. */
static int64_t payload_count(const struct exchange *exchange, int from, int to)
{
    if (exchange->gathering)
        return window_count(exchange, from);
    bool is_empty = exchange->job->kind == JOB_BROADCAST && from != exchange->job->peer;
    return is_empty ? 0 : window_count(exchange, to);
}

const void *exchange_outgoing(const struct exchange *exchange, int rank, int64_t *bytes)
{
    *bytes = HEADER_BYTES + payload_count(exchange, exchange->rank, rank) * dtype_bytes(exchange->job->dtype);
    return exchange->outgoing + outgoing_slot(exchange, rank) * exchange->slot_bytes;
}

void *exchange_incoming(const struct exchange *exchange, int rank)
{
    return exchange->incoming + rank * exchange->slot_bytes;
}

static void make_scatter(struct exchange *exchange)
{
    for (int rank = 0; rank < exchange->size; rank++) {
        if (rank == exchange->rank)
            continue;
        struct cursor from = exchange->pieces[rank];
        cursor_read(&from, payload(exchange->outgoing, exchange, rank),
                    payload_count(exchange, exchange->rank, rank));
    }
}

static void make_gather(struct exchange *exchange)
{
    int64_t count = window_count(exchange, exchange->rank);
    struct cursor from = exchange->pieces[exchange->rank];
    if (exchange->job->kind == JOB_ALL_GATHER) {
        struct cursor part = exchange->parts, place = from;
        cursor_copy(&place, &part, count);
    }
    cursor_read(&from, payload(exchange->outgoing, exchange, exchange->rank), count);
}

static void make_round(struct exchange *exchange)
{
    struct job_header header = job_header(exchange->job);
    for (int rank = 0; rank < exchange->size; rank++)
        memcpy(exchange->outgoing + rank * exchange->slot_bytes, &header, sizeof header);
    if (exchange->gathering)
        make_gather(exchange);
    else
        make_scatter(exchange);
}

static void combine(struct exchange *exchange)
{
    const struct job *job = exchange->job;
    int64_t count = window_count(exchange, exchange->rank);
    struct comm_span *spans = host_alloc((size_t)exchange->size * sizeof *spans);
    for (int rank = 0; rank < exchange->size; rank++) {
        spans[rank] = (struct comm_span){payload(exchange->incoming, exchange, rank), count};
        exchange->scratch[rank] = cursor_open(&spans[rank], 0, 1, job->dtype);
    }
    exchange->scratch[exchange->rank] = exchange->pieces[exchange->rank];
    struct cursor target =
        job->kind == JOB_REDUCE_SCATTER ? exchange->parts : exchange->pieces[exchange->rank];
    reduce_vectors(exchange->scratch, exchange->size, &target, 1, count, job->dtype, job->reduction);
    free(spans);
}

static void use_scatter(struct exchange *exchange)
{
    const struct job *job = exchange->job;
    if (job->kind == JOB_ALL_REDUCE || job->kind == JOB_REDUCE_SCATTER) {
        combine(exchange);
    } else if (job->kind == JOB_BROADCAST && exchange->rank != job->peer) {
        struct cursor to = exchange->pieces[exchange->rank];
        cursor_write(&to, payload(exchange->incoming, exchange, job->peer),
                     window_count(exchange, exchange->rank));
    }
}

static void use_gather(struct exchange *exchange)
{
    bool is_source = exchange->job->kind == JOB_BROADCAST && exchange->rank == exchange->job->peer;
    for (int rank = 0; rank < exchange->size; rank++) {
        if (rank == exchange->rank || is_source)
            continue;
        struct cursor to = exchange->pieces[rank];
        cursor_write(&to, payload(exchange->incoming, exchange, rank), window_count(exchange, rank));
    }
}

static int check_headers(const struct exchange *exchange, struct error *err)
{
    struct job_header mine = job_header(exchange->job), first = mine, other;
    for (int rank = 0; rank < exchange->size; rank++) {
        other = mine;
        if (rank != exchange->rank)
            memcpy(&other, exchange->incoming + rank * exchange->slot_bytes, sizeof other);
        if (rank == 0)
            first = other;
        if (job_header_check(&first, &other, rank, err))
            return -1;
    }
    return 0;
}

static bool has_gather(enum job_kind kind)
{
    return kind == JOB_ALL_REDUCE || kind == JOB_ALL_GATHER || kind == JOB_BROADCAST;
}

/* Moves on to the next window; false when that was the last. No piece is longer than that of rank 0. */
static bool next_window(struct exchange *exchange)
{
    int64_t own = window_count(exchange, exchange->rank);
    for (int rank = 0; rank < exchange->size; rank++) {
        int64_t count = window_count(exchange, rank);
        cursor_skip(&exchange->pieces[rank], count);
        exchange->left[rank] -= count;
    }
    if (exchange->job->kind == JOB_REDUCE_SCATTER || exchange->job->kind == JOB_ALL_GATHER)
        cursor_skip(&exchange->parts, own);
    return exchange->left[0] > 0;
}

void exchange_begin(struct exchange *exchange, const struct job *job)
{
    take_memory(exchange);
    exchange->job = job;
    exchange->parts = job_parts(job);
    for (int rank = 0; rank < exchange->size; rank++) {
        exchange->pieces[rank] = job_piece(job, rank, exchange->size);
        exchange->left[rank] = job_piece_count(job, rank, exchange->size);
    }
    exchange->gathering = job->kind == JOB_ALL_GATHER;
    make_round(exchange);
}

int exchange_advance(struct exchange *exchange, struct error *err)
{
    if (check_headers(exchange, err))
        return -1;
    bool was_scatter = !exchange->gathering;
    if (was_scatter)
        use_scatter(exchange);
    else
        use_gather(exchange);
    if (was_scatter && has_gather(exchange->job->kind)) {
        exchange->gathering = true;
    } else {
        if (!next_window(exchange))
            return 0;
        exchange->gathering = exchange->job->kind == JOB_ALL_GATHER;
    }
    make_round(exchange);
    return 1;
}
