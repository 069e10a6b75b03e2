/* What the files of the CUDA runtime's double share among themselves: handles, what a thread has, and how a call begins. Tests and
 * the other libraries' doubles see double_runtime.h.
 *
 *     double_runtime   complaints, injected failures, handles, devices
 *     double_allocate  memory and pools
 *     double_copies    fills and copies, and when what they bring is there
 *     double_streams   streams, events, and the order of work
 *     double_graphs    captures and graphs */
#ifndef MEMPLAN_TESTS_CUDA_DOUBLE_SHARED_H
#define MEMPLAN_TESTS_CUDA_DOUBLE_SHARED_H

#include "tests/cuda/double_order.h"
#include "tests/cuda/double_runtime.h"

#include <pthread.h>
#include <stdbool.h>

enum handle_kind { KIND_STREAM, KIND_EVENT, KIND_POOL, KIND_GRAPH, KIND_GRAPH_EXEC, KINDS };

/* Every handle begins with this. Handles are never freed, so that use after destruction can be told; they are in a list, so
 * that a sanitizer does not take them for forgotten. */
struct handle {
    enum handle_kind kind;
    bool alive;
    struct handle *previous;
};

/* Works that were begun and that others end. */
struct unfinished {
    struct later_token {
        bool (*is_done)(void *token);
        void *token;
        const void *queue;
    } *tokens;
    int count, room;
};

struct CUstream_st {
    struct handle handle;
    int device;
    struct order_stream order;
    struct unfinished unfinished;
    struct CUgraph_st *capture; /* NULL: not being captured */
};

struct CUevent_st {
    struct handle handle;
    int device;
    bool recorded;
    struct order_clock clock;
    struct unfinished unfinished;
    struct CUgraph_st *capture; /* recorded while that was being captured */
    int node;                   /* and which of its nodes that was */
};

/* Guards all of the double's own data. */
extern pthread_mutex_t double_lock;
extern _Thread_local int double_current_device;

/* ---- double_runtime.c ---- */

/* What cudaGetLastError() will say. Returns it. */
cudaError_t double_failure(cudaError_t status);
/* Injected failures, and those of a machine without a usable GPU. Opens the context, as the first real call does. */
cudaError_t double_enter(const char *name);
cudaError_t double_check_device(int device);
size_t double_device_memory(int device);
/* What the driver would say is in use. */
size_t double_used_bytes(int device);

void *double_new_handle(enum handle_kind kind, size_t size);
bool double_is_alive(const void *memory, enum handle_kind kind, const char *call);
void double_end_handle(void *memory);

#define ENTER()                                                                                              \
    do {                                                                                                     \
        cudaError_t entered = double_enter(__func__);                                                        \
        if (entered != cudaSuccess)                                                                          \
            return entered;                                                                                  \
    } while (0)

#define ALIVE(memory, kind)                                                                                  \
    do {                                                                                                     \
        if (!double_is_alive(memory, kind, __func__))                                                        \
            return double_failure(cudaErrorInvalidResourceHandle);                                           \
    } while (0)

/* ---- with the lock: double_allocate.c ---- */

/* What the pools of a device hold of it beyond what was asked of them. */
size_t double_allocate_slack(int device);
/* At a synchronisation: gives back what is over their threshold. */
void double_allocate_shrink(int device);

/* ---- with the lock: double_copies.c ---- */

/* The host knows that what this clock sees is done. */
void double_copies_finish(const struct order_clock *clock);
/* The pinned block is freed. */
void double_copies_drop(const void *memory, const char *call);

/* ---- double_streams.c ---- */

/* With the lock: what the stream does next, of which the order is checked now. */
void double_streams_note(cudaStream_t stream, const struct order_access *accesses, int count);
void double_streams_record(cudaEvent_t event, cudaStream_t stream);
void double_streams_follow(cudaStream_t stream, cudaEvent_t event);
/* What it waits for, when it is used no more. */
void double_streams_forget(cudaEvent_t event);
/* As the host, and the stream, see it now. */
struct order_clock double_streams_clock(cudaStream_t stream);
/* NULL: there is none of this number. */
cudaStream_t double_streams_at(int number);
/* Without it: everything that the device was asked is done after this. */
void double_streams_wait_all(int device);
/* What the stream was asked, and what it waits for, is done after this. */
void double_streams_wait(cudaStream_t stream);
/* Kernels must be launched, and copies asked for, by a thread that has the stream's device as its own; else complains. */
bool double_streams_of_thread(cudaStream_t stream, const char *what);
/* Work that is done at once, and such that others end. `accesses`: of the device's memory only. */
void double_streams_run(cudaStream_t stream, const struct order_access *accesses, int count, const struct double_work *work);

/* ---- double_graphs.c ---- */

/* What the real one refuses to a thread that captures a stream: it may wait for the GPU. */
bool double_graphs_refuse(void);
/* Is its capture over? */
bool double_graphs_ended(const struct CUgraph_st *graph);
void double_graphs_spoil(struct CUgraph_st *graph, cudaError_t status);
/* With the lock: the next thing in a graph. Owns `accesses`. */
void double_graphs_add_work(cudaStream_t stream, struct order_access *accesses, int count, const struct double_work *work);
void double_graphs_add_record(cudaStream_t stream, cudaEvent_t event);
void double_graphs_add_wait(cudaStream_t stream, cudaEvent_t event);

#endif
