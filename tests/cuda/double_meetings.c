/* Where the calls of a communicator's ranks meet: each rank's groups are in the order of its stream, and when all have come to
 * theirs the data move. Sums are added in the order of a ring, which begins elsewhere for every piece; bf16 is rounded after each
 * addition. */
#include "base/clock.h"
#include "base/dtype.h"
#include "tests/cuda/double_nccl.h"
#include "tests/cuda/double_nccl_shared.h"
#include "tests/cuda/double_runtime.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {"ncclAllReduce", "ncclReduceScatter", "ncclAllGather",
                                         "ncclBroadcast", "ncclSend",          "ncclRecv"};

static int64_t moved;

int64_t double_nccl_moved(void)
{
    return __atomic_load_n(&moved, __ATOMIC_ACQUIRE);
}

const char *meeting_name(enum kind kind)
{
    return kind_names[kind];
}

size_t meeting_type_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclInt32:
    case ncclFloat32:
        return 4;
    case ncclFloat64:
        return 8;
    case ncclBfloat16:
        return 2;
    default:
        return 0;
    }
}

const char *meeting_type_name(ncclDataType_t type)
{
    switch (type) {
    case ncclInt32:
        return "int32";
    case ncclFloat32:
        return "float32";
    case ncclFloat64:
        return "float64";
    case ncclBfloat16:
        return "bfloat16";
    default:
        return "a type that the double does not know";
    }
}

/* ----------------------------------------------------------------------------------------------------------- deadlocks */

static void describe(const struct operation *op, char *text, size_t size)
{
    char peer[32] = "";
    if (op->kind >= BROADCAST)
        snprintf(peer, sizeof peer, " %s %d", op->kind == SEND ? "to" : "from", op->peer);
    snprintf(text, size, "%s%s%s of %zu %s", kind_names[op->kind],
             op->kind <= REDUCE_SCATTER && op->reduction == ncclMax ? " (maximum)" : "", peer, op->count,
             meeting_type_name(op->type));
}

/* "communicator 3: rank 0 of 2 waits in ncclAllReduce of 12 float32; ..." for all that wait. */
static void complain_of_deadlock(void)
{
    char text[500] = "", what[120] = "ncclCommInitRankConfig";
    for (const struct ncclComm *comm = nccl_comms; comm; comm = comm->next) {
        size_t used = strlen(text);
        if (!comm->alive || (comm->state != ncclInProgress && !comm->postings))
            continue;
        for (int i = 0; comm->postings && i < comm->postings->count; i++)
            if (!comm->postings->operations[i].done) {
                describe(&comm->postings->operations[i], what, sizeof what);
                break;
            }
        snprintf(text + used, sizeof text - used, "%scommunicator %d: rank %d of %d waits in %s",
                 used ? "; " : "", comm->clique->number, comm->rank, comm->clique->size, what);
    }
    double_complain("a deadlock: %s", text);
}

void meeting_check_time(int64_t since_ns)
{
    const char *text = getenv("DOUBLE_NCCL_TIMEOUT");
    double limit_s = text && *text ? atof(text) : 60;
    if ((double)(clock_ns() - since_ns) * 1e-9 > limit_s)
        complain_of_deadlock();
}

/* ----------------------------------------------------------------------------------------------------------- arithmetic */

static double load(const unsigned char *at, ncclDataType_t type)
{
    float narrow;
    double wide;
    uint16_t half;
    if (type == ncclFloat64)
        return memcpy(&wide, at, sizeof wide), wide;
    if (type == ncclFloat32)
        return memcpy(&narrow, at, sizeof narrow), (double)narrow;
    return memcpy(&half, at, sizeof half), (double)bf16_to_f32(half);
}

static double store(unsigned char *at, ncclDataType_t type, double value)
{
    float narrow = (float)value;
    uint16_t half = f32_to_bf16(narrow);
    if (type == ncclFloat64)
        memcpy(at, &value, sizeof value);
    else if (type == ncclFloat32)
        memcpy(at, &narrow, sizeof narrow);
    else
        memcpy(at, &half, sizeof half);
    return load(at, type);
}

static struct operation *operation_of(const struct clique *clique, int rank, int i)
{
    return &clique->ranks[rank]->postings->operations[i];
}

/* Rounded to the type after each step. */
static void combine(const struct clique *clique, int i, size_t at, size_t total, unsigned char *to)
{
    const struct operation *op = operation_of(clique, 0, i);
    size_t bytes = meeting_type_bytes(op->type);
    int size = clique->size, first = (int)((at * (size_t)size / total + 1) % (size_t)size);
    double value = load(operation_of(clique, first, i)->from + at * bytes, op->type);
    for (int step = 1; step < size; step++) {
        double other = load(operation_of(clique, (first + step) % size, i)->from + at * bytes, op->type);
        value = op->reduction == ncclMax ? fmax(value, other) : value + other;
        value = store(to, op->type, value);
    }
    store(to, op->type, value);
}

static void move_reduced(const struct clique *clique, int i)
{
    const struct operation *op = operation_of(clique, 0, i);
    size_t bytes = meeting_type_bytes(op->type), size = (size_t)clique->size;
    size_t total = op->kind == REDUCE_SCATTER ? op->count * size : op->count;
    unsigned char *sums = malloc(total * bytes);
    for (size_t at = 0; at < total; at++)
        combine(clique, i, at, total, sums + at * bytes);
    for (size_t rank = 0; rank < size; rank++)
        memcpy(operation_of(clique, (int)rank, i)->to,
               op->kind == REDUCE_SCATTER ? sums + rank * op->count * bytes : sums, op->count * bytes);
    free(sums);
}

static void move_gathered(const struct clique *clique, int i)
{
    for (int from = 0; from < clique->size; from++)
        for (int to = 0; to < clique->size; to++) {
            const struct operation *op = operation_of(clique, from, i);
            size_t bytes = op->count * meeting_type_bytes(op->type);
            memmove(operation_of(clique, to, i)->to + (size_t)from * bytes, op->from, bytes);
        }
}

static void move_broadcast(const struct clique *clique, int i)
{
    const struct operation *op = operation_of(clique, operation_of(clique, 0, i)->peer, i);
    for (int to = 0; to < clique->size; to++)
        memmove(operation_of(clique, to, i)->to, op->from, op->count * meeting_type_bytes(op->type));
}

/* ------------------------------------------------------------------------------------------------------------- meetings */

/* Rank 0 and this one have the same call as the i-th of their group. */
static bool is_same(const struct clique *clique, int rank, int i)
{
    const struct operation *first = operation_of(clique, 0, i), *other = operation_of(clique, rank, i);
    if (first->kind == other->kind && first->count == other->count && first->type == other->type &&
        first->reduction == other->reduction && first->peer == other->peer)
        return true;
    char here[120], there[120];
    describe(first, here, sizeof here);
    describe(other, there, sizeof there);
    double_complain("%s on rank 0 meets %s on rank %d", here, there, rank);
    return false;
}

static bool are_same(const struct clique *clique)
{
    for (int rank = 1; rank < clique->size; rank++) {
        int calls = clique->ranks[0]->postings->count, others = clique->ranks[rank]->postings->count;
        if (calls != others) {
            double_complain("a group of %d calls on rank 0 meets one of %d on rank %d", calls, others, rank);
            return false;
        }
        for (int i = 0; i < calls; i++)
            if (!is_same(clique, rank, i))
                return false;
    }
    return true;
}

static void spoil(const struct clique *clique)
{
    for (int rank = 0; rank < clique->size; rank++)
        clique->ranks[rank]->state = ncclInvalidUsage;
}

static bool is_waiting(const struct ncclComm *comm)
{
    return comm && comm->alive && comm->postings &&
           (comm->state == ncclSuccess || comm->state == ncclInProgress);
}

static bool all_wait_in_collectives(const struct clique *clique)
{
    for (int rank = 0; rank < clique->size; rank++)
        if (!is_waiting(clique->ranks[rank]) || clique->ranks[rank]->postings->operations[0].kind >= SEND)
            return false;
    return true;
}

static void note_moved(struct operation *op)
{
    op->done = true;
    __atomic_add_fetch(&moved, 1, __ATOMIC_RELEASE);
}

static void move_collectives(const struct clique *clique)
{
    if (!are_same(clique)) {
        spoil(clique);
        return;
    }
    for (int i = 0; i < clique->ranks[0]->postings->count; i++) {
        enum kind kind = operation_of(clique, 0, i)->kind;
        if (kind == ALL_GATHER)
            move_gathered(clique, i);
        else if (kind == BROADCAST)
            move_broadcast(clique, i);
        else
            move_reduced(clique, i);
        for (int rank = 0; rank < clique->size; rank++)
            note_moved(operation_of(clique, rank, i));
    }
}

static struct operation *find_receive(const struct ncclComm *peer, int from)
{
    for (int i = 0; is_waiting(peer) && i < peer->postings->count; i++) {
        struct operation *op = &peer->postings->operations[i];
        if (op->kind == RECEIVE && op->peer == from && !op->done)
            return op;
    }
    return NULL;
}

static void move_messages(const struct clique *clique, const struct ncclComm *sender)
{
    for (int i = 0; i < sender->postings->count; i++) {
        struct operation *send = &sender->postings->operations[i];
        struct operation *receive =
            send->kind == SEND && !send->done ? find_receive(clique->ranks[send->peer], sender->rank) : NULL;
        if (!receive)
            continue;
        if (send->count != receive->count || send->type != receive->type) {
            double_complain("rank %d sends %zu %s to rank %d, which receives %zu %s", sender->rank,
                            send->count, meeting_type_name(send->type), send->peer, receive->count,
                            meeting_type_name(receive->type));
            spoil(clique);
            return;
        }
        memcpy(receive->to, send->from, send->count * meeting_type_bytes(send->type));
        note_moved(send);
        note_moved(receive);
    }
}

/* Returns whether any was. */
static bool end_postings(const struct clique *clique)
{
    bool any = false;
    for (int rank = 0; rank < clique->size; rank++) {
        struct ncclComm *comm = clique->ranks[rank];
        struct posting *first = comm ? comm->postings : NULL;
        bool done = first != NULL;
        for (int i = 0; done && i < first->count; i++)
            done = first->operations[i].done;
        if (!done)
            continue;
        any = first->done = true;
        comm->postings = first->next;
        if (comm->awaited == first) {
            comm->awaited = NULL;
            if (comm->state == ncclInProgress)
                comm->state = ncclSuccess;
        }
    }
    return any;
}

void meeting_progress(struct clique *clique)
{
    do {
        if (all_wait_in_collectives(clique))
            move_collectives(clique);
        for (int rank = 0; rank < clique->size; rank++)
            if (is_waiting(clique->ranks[rank]))
                move_messages(clique, clique->ranks[rank]);
    } while (end_postings(clique));
}

struct posting *meeting_post(struct ncclComm *comm, const struct operation *operations, int count)
{
    static struct posting *newest;
    struct posting *posting = calloc(1, sizeof *posting + (size_t)count * sizeof *operations);
    struct posting **end = &comm->postings;
    *posting = (struct posting){.older = newest, .comm = comm, .since_ns = clock_ns(), .count = count};
    memcpy(posting->operations, operations, (size_t)count * sizeof *operations);
    newest = posting;
    while (*end)
        end = &(*end)->next;
    *end = posting;
    return posting;
}

bool meeting_is_done(void *token)
{
    const struct posting *posting = token;
    pthread_mutex_lock(&nccl_lock);
    bool done = posting->done || !posting->comm->alive;
    if (!done)
        meeting_check_time(posting->since_ns);
    pthread_mutex_unlock(&nccl_lock);
    return done;
}
