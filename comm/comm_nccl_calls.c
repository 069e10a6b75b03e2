/* NCCL's communicators do not block: what is asked of them is done, or fails, while this file asks again and again, and stops
 * asking when the family of ranks has ended. */
#include "comm/comm_nccl_calls.h"

#include "base/clock.h"

#include <sched.h>
#include <string.h>
#include <time.h>

/* How long a wait for NCCL is a busy one; how long closing may take. */
static const int64_t busy_ns = 200000, close_ns = 10000000000;

enum { LEAST_VERSION = NCCL_VERSION(2, 14, 0) }; /* the first with communicators that do not block */

/* NCCL's own sentence may be empty, and end in a full stop or a new line. */
static int nccl_error(const struct nccl_end *end, ncclResult_t result, const char *call, struct error *err)
{
    const char *last = ncclGetLastError(end->nccl);
    int length = last ? (int)strcspn(last, "\n") : 0;
    return error_set(err, "GPU %d: %s failed: %s%s%.*s; run again with NCCL_DEBUG=WARN to see where",
                     end->ordinal, call, ncclGetErrorString(result), length ? ": " : "", length,
                     last ? last : "");
}

bool nccl_has_stopped(const struct comm *comm)
{
    pthread_mutex_lock(&comm->family->lock);
    bool stopped = comm->family->stopped;
    pthread_mutex_unlock(&comm->family->lock);
    return stopped;
}

void nccl_pause(int64_t start_ns)
{
    if (clock_ns() - start_ns < busy_ns)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

/* Waits until NCCL, which answered `result` to `call`, has done it. -1 also when the family ends meanwhile. */
static int await(struct nccl_end *end, ncclResult_t result, const char *call, int64_t limit_ns,
                 struct error *err)
{
    int64_t start_ns = clock_ns();
    while (result == ncclInProgress) {
        if (nccl_has_stopped(end->comm))
            return error_set(err, "stopped in %s", call);
        if (clock_ns() - start_ns > limit_ns)
            return error_set(err, "GPU %d: %s took longer than %lld s", end->ordinal, call,
                             (long long)(limit_ns / 1000000000));
        nccl_pause(start_ns);
        ncclResult_t asked = ncclCommGetAsyncError(end->nccl, &result);
        if (asked != ncclSuccess)
            result = asked;
    }
    return result == ncclSuccess ? 0 : nccl_error(end, result, call, err);
}

#define NCCL(end, err, function, ...) await(end, function(__VA_ARGS__), #function, INT64_MAX, err)

int nccl_check_version(struct error *err)
{
    int version = 0;
    if (ncclGetVersion(&version) == ncclSuccess && version >= LEAST_VERSION)
        return 0;
    return error_set(err, "this NCCL is of version %d; %d (2.14) or newer is needed", version, LEAST_VERSION);
}

int nccl_make_id(struct nccl_end *end, ncclUniqueId *id, struct error *err)
{
    return NCCL(end, err, ncclGetUniqueId, id);
}

int nccl_connect(struct nccl_end *end, const ncclUniqueId *id, int rank, int size, struct error *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return NCCL(end, err, ncclCommInitRankConfig, &end->nccl, size, *id, rank, &config);
}

void nccl_disconnect(struct nccl_end *end)
{
    struct error ignored;
    if (!end->nccl)
        return;
    if (!nccl_has_stopped(end->comm) &&
        !await(end, ncclCommFinalize(end->nccl), "ncclCommFinalize", close_ns, &ignored))
        ncclCommDestroy(end->nccl);
    else
        ncclCommAbort(end->nccl);
    end->nccl = NULL;
}

static ncclDataType_t nccl_type(enum dtype dtype)
{
    static const ncclDataType_t types[] = {[DTYPE_F32] = ncclFloat32,
                                           [DTYPE_BF16] = ncclBfloat16,
                                           [DTYPE_F64] = ncclFloat64,
                                           [DTYPE_I32] = ncclInt32};
    return types[dtype];
}

static ncclResult_t call_span(const struct nccl_end *end, const struct job *job, int i)
{
    const struct comm_span *span = &job->spans[i], *part = &job->parts[i];
    ncclDataType_t type = nccl_type(job->dtype);
    size_t count = (size_t)span->count;
    switch (job->kind) {
    case JOB_ALL_REDUCE:
        return ncclAllReduce(span->data, span->data, count, type,
                             job->reduction == COMM_MAX ? ncclMax : ncclSum, end->nccl, end->stream);
    case JOB_REDUCE_SCATTER:
        return ncclReduceScatter(span->data, part->data, (size_t)part->count, type, ncclSum, end->nccl,
                                 end->stream);
    case JOB_ALL_GATHER:
        return ncclAllGather(part->data, span->data, (size_t)part->count, type, end->nccl, end->stream);
    case JOB_BROADCAST:
        return ncclBroadcast(span->data, span->data, count, type, job->peer, end->nccl, end->stream);
    case JOB_SEND:
        return ncclSend(span->data, count, type, 1, end->nccl, end->stream);
    case JOB_RECEIVE:
        return ncclRecv(span->data, count, type, 0, end->nccl, end->stream);
    default:
        return ncclSuccess;
    }
}

/* A group that was begun is ended, whatever happens in it. */
int nccl_call_job(struct nccl_end *end, const struct job *job, struct error *err)
{
    if (NCCL(end, err, ncclGroupStart))
        return -1;
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < job_span_count(job) && (result == ncclSuccess || result == ncclInProgress); i++)
        if (job->spans[i].count)
            result = call_span(end, job, i);
    ncclResult_t ended = ncclGroupEnd();
    if (result != ncclSuccess && result != ncclInProgress)
        return nccl_error(end, result, job_name(job->kind), err);
    return await(end, ended, job_name(job->kind), INT64_MAX, err);
}

int nccl_look(struct nccl_end *end, struct error *err)
{
    ncclResult_t result;
    ncclResult_t asked = ncclCommGetAsyncError(end->nccl, &result);
    if (asked != ncclSuccess)
        result = asked;
    return result == ncclSuccess || result == ncclInProgress
               ? 0
               : nccl_error(end, result, "a collective or message", err);
}
