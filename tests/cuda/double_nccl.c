/* Communicators and calls, and what must hold for them. */
#include "tests/cuda/double_nccl.h"

#include "base/clock.h"
#include "tests/cuda/double_nccl_shared.h"
#include "tests/cuda/double_runtime.h"

#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_GROUP = 64 };

pthread_mutex_t nccl_lock = PTHREAD_MUTEX_INITIALIZER;
struct ncclComm *nccl_comms;

static struct clique *cliques;
static int living, next_id;
static char last_error[200];

static _Thread_local int depth;
static _Thread_local struct ncclComm *grouped[MAX_GROUP];
static _Thread_local int grouped_count;

int double_nccl_left(void)
{
    return __atomic_load_n(&living, __ATOMIC_RELAXED);
}

void double_nccl_lose(void)
{
    pthread_mutex_lock(&nccl_lock);
    for (struct ncclComm *comm = nccl_comms; comm; comm = comm->next)
        comm->state = ncclRemoteError;
    pthread_mutex_unlock(&nccl_lock);
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

/* -------------------------------------------------------------------------------------------------------- communicators */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    ENTER();
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "double %d of %d",
             __atomic_add_fetch(&next_id, 1, __ATOMIC_RELAXED), (int)getpid());
    return ncclSuccess;
}

static bool is_of_another_process(const ncclUniqueId *id)
{
    const char *process = strstr(id->internal, " of ");
    return !process || atoi(process + strlen(" of ")) != getpid();
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
    if (is_of_another_process(&id)) {
        snprintf(last_error, sizeof last_error, "the double connects threads, and this is another process");
        return ncclInvalidUsage;
    }
    struct ncclComm *comm = calloc(1, sizeof *comm);
    pthread_mutex_lock(&nccl_lock);
    struct clique *clique = clique_of(&id, size);
    *comm = (struct ncclComm){.next = nccl_comms,
                              .clique = clique,
                              .rank = rank,
                              .alive = true,
                              .state = ncclInProgress,
                              .since_ns = clock_ns()};
    cudaGetDevice(&comm->device);
    if (clique->size != size || clique->ranks[rank])
        double_complain("%s: rank %d of %d joins one of %d%s", __func__, rank, size, clique->size,
                        clique->ranks[rank] ? " that has this rank" : "");
    clique->ranks[rank] = nccl_comms = comm;
    living++;
    all_joined(clique);
    pthread_mutex_unlock(&nccl_lock);
    *out = comm;
    return ncclInProgress;
}

/* Something that NCCL's own thread is about, or that streams have not done. */
static void check_idle(const struct ncclComm *comm, const char *call)
{
    if (comm->state != ncclSuccess)
        double_complain("%s: rank %d has something in progress", call, comm->rank);
    else if (comm->recorded)
        double_complain("%s: rank %d waits for ever for the end of a graph that holds %d of its groups", call,
                        comm->rank, comm->recorded);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    if (!is_alive(comm, __func__))
        return ncclInvalidArgument;
    ncclResult_t found = injected(__func__);
    pthread_mutex_lock(&nccl_lock);
    if (found != ncclSuccess)
        comm->state = found;
    if (comm->state == ncclInProgress && comm->ending && !comm->postings)
        comm->state = ncclSuccess;
    *state = comm->state;
    if (comm->state == ncclInProgress)
        meeting_check_time(comm->since_ns);
    pthread_mutex_unlock(&nccl_lock);
    return ncclSuccess;
}

/* Waits for what streams have not done. */
ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ENTER();
    if (!is_alive(comm, __func__))
        return ncclInvalidArgument;
    pthread_mutex_lock(&nccl_lock);
    check_idle(comm, __func__);
    comm->ending = true;
    comm->state = ncclInProgress;
    comm->since_ns = clock_ns();
    pthread_mutex_unlock(&nccl_lock);
    return ncclInProgress;
}

static ncclResult_t end(struct ncclComm *comm)
{
    pthread_mutex_lock(&nccl_lock);
    comm->alive = false;
    comm->postings = NULL;
    comm->count = 0;
    free(comm->operations);
    free(comm->known);
    comm->operations = NULL;
    comm->known = NULL;
    living--;
    pthread_mutex_unlock(&nccl_lock);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    ENTER();
    if (!is_alive(comm, __func__))
        return ncclInvalidArgument;
    pthread_mutex_lock(&nccl_lock);
    check_idle(comm, __func__);
    pthread_mutex_unlock(&nccl_lock);
    return end(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return is_alive(comm, __func__) ? end(comm) : ncclInvalidArgument;
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

/* A group that a stream, or a graph, has. */
struct group {
    struct ncclComm *comm;
    bool recorded;
    bool waits; /* NCCL says that it is in progress until the others have come */
    int count;
    struct operation operations[];
};

static void *begin_group(void *work)
{
    const struct group *group = work;
    pthread_mutex_lock(&nccl_lock);
    struct posting *posting = meeting_post(group->comm, group->operations, group->count);
    if (group->waits)
        group->comm->awaited = posting;
    meeting_progress(group->comm->clique);
    pthread_mutex_unlock(&nccl_lock);
    return posting;
}

static void discard_group(void *work)
{
    struct group *group = work;
    pthread_mutex_lock(&nccl_lock);
    group->comm->recorded -= group->recorded;
    pthread_mutex_unlock(&nccl_lock);
    free(group);
}

/* What the stream reads and writes of an operation, as far as double_runtime.h checks it. Returns how many. */
static int list_accesses(const struct ncclComm *comm, const struct operation *op, struct order_access *out)
{
    const char *name = meeting_name(op->kind);
    size_t part = op->count * meeting_type_bytes(op->type), whole = part * (size_t)comm->clique->size;
    size_t from = op->kind == REDUCE_SCATTER ? whole : part, to = op->kind == ALL_GATHER ? whole : part;
    bool reads = op->kind != RECEIVE && (op->kind != BROADCAST || op->peer == comm->rank);
    bool writes = op->kind != SEND;
    int count = 0;
    if (reads)
        out[count++] = (struct order_access){op->from, from, false, name};
    if (writes)
        out[count++] = (struct order_access){op->to, to, true, name};
    if ((reads && !double_holds(op->from, from)) || (writes && !double_holds(op->to, to)))
        double_complain("%s: %zu bytes from %p to %p are not in living device memory", name, part,
                        (const void *)op->from, (void *)op->to);
    return count;
}

/* What NCCL connects for when it does it for the first time: then it waits for the other ranks. */
static bool is_new(struct ncclComm *comm, const struct group *group)
{
    uint64_t shape = 0xcbf29ce484222325u;
    for (int i = 0; i < group->count; i++) {
        const struct operation *op = &group->operations[i];
        uint64_t words[] = {op->kind, op->count, op->type, op->reduction, (uint64_t)op->peer};
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            shape = (shape ^ words[k]) * 0x100000001b3u;
    }
    for (int i = 0; i < comm->known_count; i++)
        if (comm->known[i] == shape)
            return false;
    comm->known = realloc(comm->known, ((size_t)comm->known_count + 1) * sizeof *comm->known);
    comm->known[comm->known_count++] = shape;
    return true;
}

static struct group *take_group(struct ncclComm *comm)
{
    size_t bytes = (size_t)comm->count * sizeof *comm->operations;
    struct group *group = malloc(sizeof *group + bytes);
    *group = (struct group){.comm = comm, .count = comm->count};
    memcpy(group->operations, comm->operations, bytes);
    comm->count = 0;
    for (int i = 1; i < group->count; i++)
        if (group->operations[i].stream != group->operations[0].stream)
            double_complain("%s: a group for two streams, which the double does not know",
                            meeting_name(group->operations[i].kind));
    return group;
}

/* With calls of one group NCCL makes one kernel. */
static void submit_group(struct ncclComm *comm)
{
    struct group *group = take_group(comm);
    cudaStream_t stream = group->operations[0].stream;
    struct order_access *accesses = malloc(2 * (size_t)group->count * sizeof *accesses);
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    int count = 0;
    for (int i = 0; i < group->count; i++)
        count += list_accesses(comm, &group->operations[i], accesses + count);
    cudaStreamIsCapturing(stream, &capture);
    pthread_mutex_lock(&nccl_lock);
    bool first = is_new(comm, group);
    group->recorded = capture != cudaStreamCaptureStatusNone;
    comm->recorded += group->recorded;
    comm->since_ns = clock_ns();
    if (first && group->recorded)
        double_complain("%s: in a capture, and never done before: NCCL would wait for other ranks",
                        meeting_name(group->operations[0].kind));
    group->waits = first && !group->recorded;
    if (group->waits)
        comm->state = ncclInProgress;
    pthread_mutex_unlock(&nccl_lock);
    struct double_work work = {.begin = begin_group,
                               .is_done = meeting_is_done,
                               .discard = discard_group,
                               .queue = comm,
                               .work = group};
    double_submit_later(stream, accesses, count, &work);
    free(accesses);
}

ncclResult_t ncclGroupEnd(void)
{
    ENTER();
    if (depth == 0)
        double_complain("%s: without %s", __func__, "ncclGroupStart");
    if (--depth > 0)
        return ncclSuccess;
    bool any = grouped_count > 0;
    for (int i = 0; i < grouped_count; i++)
        submit_group(grouped[i]);
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
    if (meeting_type_bytes(op->type) && op->peer >= 0 && op->peer < comm->clique->size &&
        (!reduces || (op->type != ncclInt32 && (op->reduction == ncclSum || op->reduction == ncclMax))))
        return ncclSuccess;
    double_complain("%s: %s, reduction %d, rank %d of %d", meeting_name(op->kind),
                    meeting_type_name(op->type), (int)op->reduction, op->peer, comm->clique->size);
    return ncclInvalidArgument;
}

static ncclResult_t check_call(const struct ncclComm *comm, const struct operation *op)
{
    const char *call = meeting_name(op->kind);
    if (!is_alive(comm, call))
        return ncclInvalidArgument;
    if (comm->state != ncclSuccess)
        double_complain("%s: rank %d calls before its last call is done", call, comm->rank);
    else
        return check_arguments(comm, op);
    return ncclInvalidUsage;
}

static nvtxDomainHandle_t domain;

static void find_tool(void)
{
    domain = nvtxDomainCreateA("NCCL");
}

/* The real one names its calls too. */
static void show_call(enum kind kind)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    nvtxEventAttributes_t attributes = {.version = NVTX_VERSION,
                                        .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                        .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                        .message = {.ascii = meeting_name(kind)}};
    pthread_once(&once, find_tool);
    if (!domain)
        return;
    nvtxDomainRangePushEx(domain, &attributes);
    nvtxDomainRangePop(domain);
}

static ncclResult_t call(struct ncclComm *comm, struct operation op)
{
    ncclResult_t result = injected(meeting_name(op.kind));
    if (result == ncclSuccess)
        result = check_call(comm, &op);
    show_call(op.kind);
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
