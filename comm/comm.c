/* The calls of comm.h: each is checked here, once for all transports, and passed on. Below them is the simplest transport,
 * a rank that is alone. */
#include "comm/comm.h"

#include "base/arena.h"
#include "base/checked.h"
#include "comm/transport.h"

#include <pthread.h>
#include <stdlib.h>

int comm_rank(const struct comm *comm)
{
    return comm->rank;
}

int comm_size(const struct comm *comm)
{
    return comm->size;
}

int comm_start_all_reduce(struct comm *comm, const struct comm_span *spans, int count, enum dtype dtype,
                          struct error *err)
{
    if (dtype != DTYPE_F32 && dtype != DTYPE_F64)
        return error_set(err, "all-reduce of %s: only F32 and F64 can be summed; convert first",
                         dtype_name(dtype));
    struct reduction reduction = {.spans = spans, .span_count = count, .dtype = dtype};
    for (int i = 0; i < count; i++)
        if (spans[i].count < 0 || !checked_add(reduction.total, spans[i].count, &reduction.total))
            return error_set(
                err, "all-reduce: span %d has %lld elements; give 0 or more, and less than 2^63 in all", i,
                (long long)spans[i].count);
    return comm->transport->start_all_reduce(comm, &reduction, err);
}

int comm_wait(struct comm *comm, struct error *err)
{
    return comm->transport->wait(comm, err);
}

int comm_barrier(struct comm *comm, struct error *err)
{
    return comm->transport->barrier(comm, err);
}

void comm_abort(struct comm *comm, const char *reason)
{
    comm->transport->abort(comm, reason);
}

void comm_times(struct comm *comm, double *busy_s, double *waited_s)
{
    comm->transport->times(comm, busy_s, waited_s);
}

void comm_close(struct comm *comm)
{
    if (comm)
        comm->transport->close(comm);
}

void stop_by_abort(struct stop *stop, int rank, const char *reason)
{
    if (stop->set)
        return;
    stop->set = true;
    error_set_kind(&stop->why, ERROR_STOPPED, "rank %d stopped: %s", rank, reason);
}

int stop_check(const struct stop *stop, struct error *err)
{
    if (!stop->set)
        return 0;
    return error_set_kind(err, stop->why.kind, "%s", stop->why.text);
}

/* Alone, the sum is what is there already. Only an abort, which may come from any thread, leaves a trace. */
struct self {
    struct comm comm;
    pthread_mutex_t lock;
    struct stop stop;
};

static int self_check(struct comm *comm, struct error *err)
{
    struct self *self = (struct self *)comm;
    pthread_mutex_lock(&self->lock);
    int status = stop_check(&self->stop, err);
    pthread_mutex_unlock(&self->lock);
    return status;
}

static int self_start_all_reduce(struct comm *comm, const struct reduction *reduction, struct error *err)
{
    (void)reduction;
    return self_check(comm, err);
}

static void self_abort(struct comm *comm, const char *reason)
{
    struct self *self = (struct self *)comm;
    pthread_mutex_lock(&self->lock);
    stop_by_abort(&self->stop, comm->rank, reason);
    pthread_mutex_unlock(&self->lock);
}

static void self_times(struct comm *comm, double *busy_s, double *waited_s)
{
    (void)comm;
    *busy_s = *waited_s = 0;
}

static void self_close(struct comm *comm)
{
    pthread_mutex_destroy(&((struct self *)comm)->lock);
    free(comm);
}

int comm_open_self(struct comm **out, struct error *err)
{
    static const struct transport transport = {
        .start_all_reduce = self_start_all_reduce,
        .wait = self_check,
        .barrier = self_check,
        .abort = self_abort,
        .times = self_times,
        .close = self_close,
    };
    (void)err;
    struct self *self = host_alloc(sizeof *self);
    self->comm = (struct comm){&transport, 0, 1};
    pthread_mutex_init(&self->lock, NULL);
    *out = &self->comm;
    return 0;
}
