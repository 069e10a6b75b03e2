#include "tests/cuda/double_nccl.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "tests/cuda/double_runtime.h"

#include <math.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 16, MAX_GROUP = 64 };

enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECEIVE };

static const char *const kind_names[] = {"ncclAllReduce", "ncclReduceScatter", "ncclAllGather",
                                         "ncclBroadcast", "ncclSend",          "ncclRecv"};

struct operation {
    enum kind kind;
    const unsigned char *from;
    unsigned char *to;
    size_t count; /* as it was given: of one rank's part where there are parts */
    ncclDataType_t type;
    ncclRedOp_t reduction;
    int peer; /* of a message; root of a broadcast */
    cudaStream_t stream;
    bool done;
};

/* Never freed, so that use after its end can be told. */
struct ncclComm {
    struct ncclComm *next;
    struct clique *clique;
    int rank, device;
    bool alive;
    ncclResult_t state;
    int64_t since_ns;             /* when what is in progress began */
    struct operation *operations; /* of the group that is being made, or is in progress */
    int count, room;
};

struct clique {
    struct clique *next;
    ncclUniqueId id;
    int number, size;
    struct ncclComm *ranks[MAX_RANKS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct clique *cliques;
static struct ncclComm *comms;
static int64_t moved;
static int living, next_id;
static char last_error[200];

static _Thread_local int depth;
static _Thread_local struct ncclComm *grouped[MAX_GROUP];
static _Thread_local int grouped_count;

int64_t double_nccl_moved(void)
{
    return __atomic_load_n(&moved, __ATOMIC_ACQUIRE);
}

int double_nccl_left(void)
{
    return __atomic_load_n(&living, __ATOMIC_RELAXED);
}

void double_nccl_lose(void)
{
    pthread_mutex_lock(&lock);
    for (struct ncclComm *comm = comms; comm; comm = comm->next)
        comm->state = ncclRemoteError;
    pthread_mutex_unlock(&lock);
}

__attribute__((destructor)) static void check_nothing_left(void)
{
    if (living)
        double_complain("the program ends and leaves %d communicators of NCCL", living);
}

/* ------------------------------------------------------------------------------------------------------------- failures */

static ncclResult_t injected(const char *name)
{
    static int calls;
    const char *text = getenv("DOUBLE_NCCL_FAIL");
    size_t length = strlen(name);
    if (!text || strncmp(text, name, length) || text[length] != ':')
        return ncclSuccess;
    char *code;
    long wanted = strtol(text + length + 1, &code, 10);
    if (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) != wanted)
        return ncclSuccess;
    snprintf(last_error, sizeof last_error, "call %ld of %s was to fail", wanted, name);
    return *code == ':' ? (ncclResult_t)atoi(code + 1) : ncclSystemError;
}

#define ENTER()                                                                                              \
    do {                                                                                                     \
        ncclResult_t entered = injected(__func__);                                                           \
        if (entered != ncclSuccess)                                                                          \
            return entered;                                                                                  \
    } while (0)

static bool is_alive(const struct ncclComm *comm, const char *call)
{
    if (comm && comm->alive)
        return true;
    double_complain("%s: a communicator that %s", call, comm ? "was destroyed or aborted" : "is NULL");
    return false;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                        "internal error - please report this issue to the NCCL developers",
                                        "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                        "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return result >= 0 && result < ncclNumResults ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return last_error;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

/* ----------------------------------------------------------------------------------------------------------- deadlocks */

static size_t type_bytes(ncclDataType_t type)
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

static const char *type_name(ncclDataType_t type)
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

static void describe(const struct operation *op, char *text, size_t size)
{
    char peer[32] = "";
    if (op->kind >= BROADCAST)
        snprintf(peer, sizeof peer, " %s %d", op->kind == SEND ? "to" : "from", op->peer);
    snprintf(text, size, "%s%s%s of %zu %s", kind_names[op->kind],
             op->kind <= REDUCE_SCATTER && op->reduction == ncclMax ? " (maximum)" : "", peer, op->count,
             type_name(op->type));
}

/* Of others only what is in progress may be looked at: the rest is what their threads are working at. */
static bool is_in_progress(const struct ncclComm *comm)
{
    return comm && comm->alive && comm->state == ncclInProgress;
}

static const struct operation *first_pending(const struct ncclComm *comm)
{
    for (int i = 0; i < comm->count; i++)
        if (!comm->operations[i].done)
            return &comm->operations[i];
    return NULL;
}

/* "communicator 3: rank 0 of 2 waits in ncclAllReduce of 12 float32; ..." for all that wait. */
static void complain_of_deadlock(void)
{
    char text[500] = "", what[120];
    for (const struct ncclComm *comm = comms; comm; comm = comm->next) {
        size_t used = strlen(text);
        if (!is_in_progress(comm))
            continue;
        const struct operation *op = first_pending(comm);
        if (op)
            describe(op, what, sizeof what);
        else
            strcpy(what, "ncclCommInitRankConfig");
        snprintf(text + used, sizeof text - used, "%scommunicator %d: rank %d of %d waits in %s",
                 used ? "; " : "", comm->clique->number, comm->rank, comm->clique->size, what);
    }
    double_complain("a deadlock: %s", text);
}

static void check_time(const struct ncclComm *comm)
{
    const char *text = getenv("DOUBLE_NCCL_TIMEOUT");
    double limit_s = text && *text ? atof(text) : 60;
    if ((double)(clock_ns() - comm->since_ns) * 1e-9 > limit_s)
        complain_of_deadlock();
}

/* -------------------------------------------------------------------------------------------------------- communicators */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    ENTER();
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "double %d",
             __atomic_add_fetch(&next_id, 1, __ATOMIC_RELAXED));
    return ncclSuccess;
}

static struct clique *clique_of(const ncclUniqueId *id, int size)
{
    struct clique *clique = cliques;
    while (clique && memcmp(&clique->id, id, sizeof *id))
        clique = clique->next;
    if (clique)
        return clique;
    clique = calloc(1, sizeof *clique);
    *clique = (struct clique){
        .next = cliques, .id = *id, .number = atoi(id->internal + strlen("double ")), .size = size};
    cliques = clique;
    return clique;
}

static void all_joined(const struct clique *clique)
{
    for (int rank = 0; rank < clique->size; rank++)
        if (!clique->ranks[rank])
            return;
    for (int rank = 0; rank < clique->size; rank++)
        for (int other = 0; other < rank; other++)
            if (clique->ranks[rank]->device == clique->ranks[other]->device) {
                snprintf(last_error, sizeof last_error,
                         "Duplicate GPU detected : rank %d and rank %d both on CUDA device %d", other, rank,
                         clique->ranks[rank]->device);
                clique->ranks[rank]->state = clique->ranks[other]->state = ncclInvalidUsage;
            }
    for (int rank = 0; rank < clique->size; rank++)
        if (clique->ranks[rank]->state == ncclInProgress)
            clique->ranks[rank]->state = ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    ENTER();
    static const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
    if (!config || config->size != initial.size || config->magic != initial.magic || config->blocking != 0)
        double_complain("%s: a communicator that blocks; the double knows none", __func__);
    if (strncmp(id.internal, "double ", 7) || size < 1 || size > MAX_RANKS || rank < 0 || rank >= size)
        double_complain("%s: rank %d of %d, with the id \"%.20s\"", __func__, rank, size, id.internal);
    struct ncclComm *comm = calloc(1, sizeof *comm);
    pthread_mutex_lock(&lock);
    struct clique *clique = clique_of(&id, size);
    *comm = (struct ncclComm){.next = comms,
                              .clique = clique,
                              .rank = rank,
                              .alive = true,
                              .state = ncclInProgress,
                              .since_ns = clock_ns()};
    cudaGetDevice(&comm->device);
    if (clique->size != size || clique->ranks[rank])
        double_complain("%s: rank %d of %d joins one of %d%s", __func__, rank, size, clique->size,
                        clique->ranks[rank] ? " that has this rank" : "");
    clique->ranks[rank] = comms = comm;
    living++;
    all_joined(clique);
    pthread_mutex_unlock(&lock);
    *out = comm;
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    if (!is_alive(comm, __func__))
        return ncclInvalidArgument;
    ncclResult_t found = injected(__func__);
    pthread_mutex_lock(&lock);
    if (found != ncclSuccess)
        comm->state = found;
    *state = comm->state;
    if (comm->state == ncclInProgress)
        check_time(comm);
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ENTER();
    if (!is_alive(comm, __func__))
        return ncclInvalidArgument;
    if (comm->state != ncclSuccess)
        double_complain("%s: rank %d has something in progress", __func__, comm->rank);
    return ncclInProgress;
}

static ncclResult_t end(struct ncclComm *comm)
{
    pthread_mutex_lock(&lock);
    comm->alive = false;
    comm->count = 0;
    living--;
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    ENTER();
    if (!is_alive(comm, __func__))
        return ncclInvalidArgument;
    if (comm->state != ncclSuccess)
        double_complain("%s: rank %d has something in progress", __func__, comm->rank);
    return end(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return is_alive(comm, __func__) ? end(comm) : ncclInvalidArgument;
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
    return &clique->ranks[rank]->operations[i];
}

/* Rounded to the type after each step. */
static void combine(const struct clique *clique, int i, size_t at, size_t total, unsigned char *to)
{
    const struct operation *op = operation_of(clique, 0, i);
    size_t bytes = type_bytes(op->type);
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
    size_t bytes = type_bytes(op->type), size = (size_t)clique->size;
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
            size_t bytes = op->count * type_bytes(op->type);
            memmove(operation_of(clique, to, i)->to + (size_t)from * bytes, op->from, bytes);
        }
}

static void move_broadcast(const struct clique *clique, int i)
{
    const struct operation *op = operation_of(clique, operation_of(clique, 0, i)->peer, i);
    for (int to = 0; to < clique->size; to++)
        memmove(operation_of(clique, to, i)->to, op->from, op->count * type_bytes(op->type));
}

/* -------------------------------------------------------------------------------------------------------------- meeting */

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
        int calls = clique->ranks[0]->count, others = clique->ranks[rank]->count;
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

static bool is_collective(const struct ncclComm *comm)
{
    return comm->count && comm->operations[0].kind < SEND;
}

static void note_moved(struct operation *op)
{
    op->done = true;
    __atomic_add_fetch(&moved, 1, __ATOMIC_RELEASE);
}

/* When all ranks have come. */
static void move_collectives(const struct clique *clique)
{
    for (int rank = 0; rank < clique->size; rank++)
        if (!is_in_progress(clique->ranks[rank]) || !is_collective(clique->ranks[rank]))
            return;
    if (!are_same(clique)) {
        spoil(clique);
        return;
    }
    for (int i = 0; i < clique->ranks[0]->count; i++) {
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
    for (int i = 0; is_in_progress(peer) && i < peer->count; i++)
        if (peer->operations[i].kind == RECEIVE && peer->operations[i].peer == from &&
            !peer->operations[i].done)
            return &peer->operations[i];
    return NULL;
}

static void move_messages(const struct clique *clique, struct ncclComm *sender)
{
    for (int i = 0; i < sender->count; i++) {
        struct operation *send = &sender->operations[i];
        struct operation *receive =
            send->kind == SEND && !send->done ? find_receive(clique->ranks[send->peer], sender->rank) : NULL;
        if (!receive)
            continue;
        if (send->count != receive->count || send->type != receive->type) {
            double_complain("rank %d sends %zu %s to rank %d, which receives %zu %s", sender->rank,
                            send->count, type_name(send->type), send->peer, receive->count,
                            type_name(receive->type));
            spoil(clique);
            return;
        }
        memcpy(receive->to, send->from, send->count * type_bytes(send->type));
        note_moved(send);
        note_moved(receive);
    }
}

static void progress(const struct clique *clique)
{
    move_collectives(clique);
    for (int rank = 0; rank < clique->size; rank++)
        if (is_in_progress(clique->ranks[rank]))
            move_messages(clique, clique->ranks[rank]);
    for (int rank = 0; rank < clique->size; rank++) {
        struct ncclComm *comm = clique->ranks[rank];
        if (!is_in_progress(comm) || first_pending(comm))
            continue;
        comm->state = ncclSuccess;
        comm->count = 0;
    }
}

/* ---------------------------------------------------------------------------------------------------------------- calls */

/* The vendor's header declares them without a prototype. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
    ENTER();
    depth++;
    return ncclSuccess;
}

static void nothing(void *work)
{
    (void)work;
}

/* What the stream reads and writes, as far as double_runtime.h checks it. */
static void enqueue(const struct ncclComm *comm, const struct operation *op)
{
    size_t part = op->count * type_bytes(op->type), whole = part * (size_t)comm->clique->size;
    size_t from = op->kind == REDUCE_SCATTER ? whole : part, to = op->kind == ALL_GATHER ? whole : part;
    bool reads = op->kind != RECEIVE && (op->kind != BROADCAST || op->peer == comm->rank);
    struct order_access accesses[2];
    int count = 0;
    if (reads)
        accesses[count++] = (struct order_access){op->from, from, false, kind_names[op->kind]};
    if (op->kind != SEND)
        accesses[count++] = (struct order_access){op->to, to, true, kind_names[op->kind]};
    if ((reads && !double_holds(op->from, from)) || (op->kind != SEND && !double_holds(op->to, to)))
        double_complain("%s: %zu bytes from %p to %p are not in living device memory", kind_names[op->kind],
                        part, (const void *)op->from, (void *)op->to);
    enum cudaStreamCaptureStatus capture;
    if (cudaStreamIsCapturing(op->stream, &capture) == cudaSuccess && capture != cudaStreamCaptureStatusNone)
        double_complain("%s: the stream is being captured, which the double cannot", kind_names[op->kind]);
    double_submit(op->stream, accesses, count, nothing, nothing, NULL);
}

ncclResult_t ncclGroupEnd(void)
{
    ENTER();
    if (depth == 0)
        double_complain("%s: without %s", __func__, "ncclGroupStart");
    if (--depth > 0)
        return ncclSuccess;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < grouped_count; i++) {
        struct ncclComm *comm = grouped[i];
        for (int k = 0; k < comm->count; k++)
            enqueue(comm, &comm->operations[k]);
        comm->state = ncclInProgress;
        comm->since_ns = clock_ns();
    }
    for (int i = 0; i < grouped_count; i++)
        progress(grouped[i]->clique);
    pthread_mutex_unlock(&lock);
    bool any = grouped_count > 0;
    grouped_count = 0;
    return any ? ncclInProgress : ncclSuccess;
}

static bool is_grouped(const struct ncclComm *comm)
{
    for (int i = 0; i < grouped_count; i++)
        if (grouped[i] == comm)
            return true;
    return false;
}

static ncclResult_t check_arguments(const struct ncclComm *comm, const struct operation *op)
{
    bool reduces = op->kind <= REDUCE_SCATTER;
    if (type_bytes(op->type) && op->peer >= 0 && op->peer < comm->clique->size &&
        (!reduces || (op->type != ncclInt32 && (op->reduction == ncclSum || op->reduction == ncclMax))))
        return ncclSuccess;
    double_complain("%s: %s, reduction %d, rank %d of %d", kind_names[op->kind], type_name(op->type),
                    (int)op->reduction, op->peer, comm->clique->size);
    return ncclInvalidArgument;
}

static ncclResult_t check_call(const struct ncclComm *comm, const struct operation *op)
{
    const char *call = kind_names[op->kind];
    if (!is_alive(comm, call))
        return ncclInvalidArgument;
    if (comm->state != ncclSuccess)
        double_complain("%s: rank %d calls before its last call is done", call, comm->rank);
    else
        return check_arguments(comm, op);
    return ncclInvalidUsage;
}

static ncclResult_t call(struct ncclComm *comm, struct operation op)
{
    ncclResult_t result = injected(kind_names[op.kind]);
    if (result == ncclSuccess)
        result = check_call(comm, &op);
    if (result != ncclSuccess)
        return result;
    depth++;
    if (!is_grouped(comm)) {
        if (grouped_count == MAX_GROUP)
            double_complain("a group with more than %d communicators", MAX_GROUP);
        grouped[grouped_count++] = comm;
    }
    if (comm->count == comm->room) {
        comm->room = comm->room ? 2 * comm->room : 16;
        comm->operations = realloc(comm->operations, (size_t)comm->room * sizeof *comm->operations);
    }
    comm->operations[comm->count++] = op;
    return ncclGroupEnd();
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, (struct operation){ALL_REDUCE, from, to, count, type, reduction, 0, stream, false});
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, (struct operation){REDUCE_SCATTER, from, to, count, type, reduction, 0, stream, false});
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return call(comm, (struct operation){ALL_GATHER, from, to, count, type, ncclSum, 0, stream, false});
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, (struct operation){BROADCAST, from, to, count, type, ncclSum, root, stream, false});
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return call(comm, (struct operation){SEND, from, NULL, count, type, ncclSum, peer, stream, false});
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return call(comm, (struct operation){RECEIVE, NULL, to, count, type, ncclSum, peer, stream, false});
}
