/* Captures and graphs: what the streams of a capture were asked, in the order of the asking, and done again in that order. */
#include "tests/cuda/double_shared.h"

#include <stdlib.h>

enum node_kind { NODE_WORK, NODE_RECORD, NODE_WAIT };

/* Of events a graph keeps who waits for which record, and so needs them no more when it is made. */
struct node {
    enum node_kind kind;
    cudaStream_t stream;
    struct order_access *accesses;
    int count;
    struct double_work work;
    struct CUevent_st *event; /* of a record: the graph's own */
    int record;               /* of a wait: the node; -1: an event that was recorded before */
};

struct CUgraph_st {
    struct handle handle;
    cudaStream_t origin;
    bool ended;         /* the capture has */
    cudaError_t spoilt; /* what could not be captured */
    struct node *nodes;
    int count, room;
    int users; /* the graph and what was made of it */
};

struct CUgraphExec_st {
    struct handle handle;
    struct CUgraph_st *graph;
};

static _Thread_local struct CUgraph_st *thread_capture; /* forbids this thread what would stop a capture */
static _Thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

bool double_graphs_refuse(void)
{
    if (!thread_capture || thread_mode == cudaStreamCaptureModeRelaxed)
        return false;
    thread_capture->spoilt = cudaErrorStreamCaptureUnsupported;
    return true;
}

void double_graphs_spoil(struct CUgraph_st *graph, cudaError_t status)
{
    graph->spoilt = status;
}

bool double_graphs_ended(const struct CUgraph_st *graph)
{
    return graph->ended;
}

static struct node *add_node(enum node_kind kind, cudaStream_t stream)
{
    struct CUgraph_st *graph = stream->capture;
    if (graph->count == graph->room) {
        graph->room = graph->room ? 2 * graph->room : 256;
        graph->nodes = realloc(graph->nodes, (size_t)graph->room * sizeof *graph->nodes);
    }
    struct node *node = &graph->nodes[graph->count++];
    *node = (struct node){.kind = kind, .stream = stream};
    return node;
}

void double_graphs_add_work(cudaStream_t stream, struct order_access *accesses, int count,
                            const struct double_work *work)
{
    struct node *node = add_node(NODE_WORK, stream);
    node->accesses = accesses;
    node->count = count;
    node->work = *work;
}

void double_graphs_add_record(cudaStream_t stream, cudaEvent_t event)
{
    struct node *node = add_node(NODE_RECORD, stream);
    node->event = calloc(1, sizeof *node->event);
    event->node = stream->capture->count - 1;
}

void double_graphs_add_wait(cudaStream_t stream, cudaEvent_t event)
{
    struct node *node = add_node(NODE_WAIT, stream);
    node->record = event->capture ? event->node : -1;
}

/* ------------------------------------------------------------------------------------------------------------- graphs */

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    enum cudaStreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    ENTER();
    ALIVE(stream, KIND_STREAM);
    if (stream->capture || mode == cudaStreamCaptureModeGlobal)
        return double_failure(cudaErrorInvalidValue);
    struct CUgraph_st *graph = double_new_handle(KIND_GRAPH, sizeof *graph);
    graph->origin = stream;
    graph->users = 1;
    stream->capture = graph;
    if (mode == cudaStreamCaptureModeThreadLocal)
        thread_capture = graph;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    ENTER();
    ALIVE(stream, KIND_STREAM);
    *status = !stream->capture          ? cudaStreamCaptureStatusNone
              : stream->capture->spoilt ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

static void forget_graph(struct CUgraph_st *graph)
{
    if (--graph->users)
        return;
    for (int i = 0; i < graph->count; i++) {
        struct node *node = &graph->nodes[i];
        free(node->accesses);
        if (node->kind == NODE_WORK)
            node->work.discard(node->work.work);
        if (node->event)
            double_streams_forget(node->event);
        free(node->event);
    }
    free(graph->nodes);
    graph->nodes = NULL;
    graph->count = 0;
}

/* Streams that joined must have been waited for at the end by the one where it began. */
static bool all_joined(const struct CUgraph_st *graph)
{
    bool joined = true;
    for (int i = 0; i < ORDER_STREAMS; i++) {
        struct CUstream_st *stream = double_streams_at(i);
        if (!stream || stream->capture != graph)
            continue;
        joined = joined && graph->origin->order.clock.seen[i] >= stream->order.clock.seen[i];
        stream->capture = NULL;
    }
    return joined;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    ENTER();
    ALIVE(stream, KIND_STREAM);
    *out = NULL;
    struct CUgraph_st *graph = stream->capture;
    if (!graph || graph->origin != stream)
        return double_failure(cudaErrorInvalidValue);
    pthread_mutex_lock(&double_lock);
    bool joined = all_joined(graph);
    graph->ended = true;
    pthread_mutex_unlock(&double_lock);
    if (thread_capture == graph)
        thread_capture = NULL;
    if (!graph->spoilt && joined) {
        *out = graph;
        return cudaSuccess;
    }
    double_end_handle(graph);
    forget_graph(graph);
    return double_failure(joined ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    ALIVE(graph, KIND_GRAPH);
    double_end_handle(graph);
    forget_graph(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    ENTER();
    ALIVE(graph, KIND_GRAPH);
    if (flags)
        return double_failure(cudaErrorInvalidValue);
    struct CUgraphExec_st *exec = double_new_handle(KIND_GRAPH_EXEC, sizeof *exec);
    exec->graph = graph;
    graph->users++;
    *out = exec;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    ALIVE(exec, KIND_GRAPH_EXEC);
    double_end_handle(exec);
    forget_graph(exec->graph);
    return cudaSuccess;
}

static cudaStream_t stream_of(const struct CUgraph_st *graph, int number)
{
    for (int i = 0; i < graph->count; i++)
        if (graph->nodes[i].stream->order.number == number)
            return graph->nodes[i].stream;
    return NULL;
}

static void launch_node(const struct CUgraph_st *graph, const struct node *node,
                        const struct order_clock *start)
{
    pthread_mutex_lock(&double_lock);
    order_see(&node->stream->order.clock, start);
    if (node->kind == NODE_WORK)
        double_streams_note(node->stream, node->accesses, node->count);
    else if (node->kind == NODE_RECORD)
        double_streams_record(node->event, node->stream);
    else if (node->record >= 0)
        double_streams_follow(node->stream, graph->nodes[node->record].event);
    pthread_mutex_unlock(&double_lock);
    if (node->kind == NODE_WORK)
        double_streams_run(node->stream, node->accesses, node->count, &node->work);
}

/* All streams of the graph begin after the one in which it is launched, and that one goes on after all of them. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    ENTER();
    ALIVE(exec, KIND_GRAPH_EXEC);
    ALIVE(stream, KIND_STREAM);
    if (!double_streams_of_thread(stream, __func__))
        return double_failure(cudaErrorInvalidResourceHandle);
    const struct CUgraph_st *graph = exec->graph;
    struct CUevent_st end = {0};
    double_streams_wait(stream);
    pthread_mutex_lock(&double_lock);
    struct order_clock start = double_streams_clock(stream);
    pthread_mutex_unlock(&double_lock);
    for (int i = 0; i < graph->count; i++) {
        ALIVE(graph->nodes[i].stream, KIND_STREAM);
        launch_node(graph, &graph->nodes[i], &start);
    }
    pthread_mutex_lock(&double_lock);
    for (int i = 0; i < ORDER_STREAMS; i++) {
        struct CUstream_st *other = stream_of(graph, i);
        if (!other || other == stream)
            continue;
        double_streams_record(&end, other);
        double_streams_follow(stream, &end);
    }
    double_streams_forget(&end);
    pthread_mutex_unlock(&double_lock);
    return cudaSuccess;
}
