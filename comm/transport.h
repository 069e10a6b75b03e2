/* What a way of connecting ranks must be able to do, so that comm.c can check and pass on the calls. Threads of one process
 * are one transport; MPI and NCCL are others. */
#ifndef MEMPLAN_COMM_TRANSPORT_H
#define MEMPLAN_COMM_TRANSPORT_H

#include "comm/comm.h"

#include <stdbool.h>

/* One all-reduce as comm.c hands it over: checked, and with the total worked out. The spans are the caller's. */
struct reduction {
    const struct comm_span *spans;
    int span_count;
    int64_t total; /* elements of all spans */
    enum dtype dtype;
};

/* Each entry keeps the promise of the function of that name in comm.h. */
struct transport {
    int (*start_all_reduce)(struct comm *comm, const struct reduction *reduction, struct error *err);
    int (*wait)(struct comm *comm, struct error *err);
    int (*barrier)(struct comm *comm, struct error *err);
    void (*abort)(struct comm *comm, const char *reason);
    void (*times)(struct comm *comm, double *busy_s, double *waited_s);
    void (*close)(struct comm *comm);
};

/* A transport's own struct begins with this one. */
struct comm {
    const struct transport *transport;
    int rank, size;
};

/* Why a group ended before its work was done: the first error given. Whoever owns it locks it. */
struct stop {
    bool set;
    struct error why;
};

/* Remembers that `rank` aborted, unless something else was first. */
void stop_by_abort(struct stop *stop, int rank, const char *reason);
/* 0 while the group lives, else -1 with the reason in err. */
int stop_check(const struct stop *stop, struct error *err);

#endif
