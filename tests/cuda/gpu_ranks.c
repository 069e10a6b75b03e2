#include "tests/cuda/gpu_ranks.h"

#include "comm/comm_nccl.h"
#include "device/backend.h"
#include "device/device_cuda.h"
#include "tests/cuda/double_nccl.h"
#include "tests/cuda/double_runtime.h"
#include "tests/test.h"

#include <pthread.h>
#include <stdlib.h>

struct start {
    struct gpu_rank *self;
    struct comm *host;
    void (*body)(struct gpu_rank *);
};

static int open_rank(struct gpu_rank *self, struct comm *host, struct error *err)
{
    const struct backend *backend;
    void *context;
    if (device_cuda_open(self->ordinal, self->size, &backend, &context, err))
        return -1;
    self->device = device_create(backend, context, 0, false);
    return comm_nccl_open(host, device_context(self->device), &self->comm, err);
}

static void *run_rank(void *context)
{
    struct start *start = context;
    struct error err = {0};
    ASSERT_OK(open_rank(start->self, start->host, &err));
    start->body(start->self);
    comm_close(start->self->comm);
    device_close(start->self->device);
    return NULL;
}

void gpu_ranks_run_on(const int *ordinals, int size, struct gpu_rank *ranks, void (*body)(struct gpu_rank *),
                      void *shared)
{
    struct comm *hosts[MAX_GPU_RANKS];
    struct start starts[MAX_GPU_RANKS];
    pthread_t threads[MAX_GPU_RANKS];
    struct error err = {0};
    setenv("DOUBLE_CUDA_DEVICES", "8", 1);
    ASSERT_OK(comm_open_threads(size, hosts, &err));
    for (int r = 0; r < size; r++) {
        ranks[r] = (struct gpu_rank){.rank = r, .size = size, .ordinal = ordinals[r], .shared = shared};
        starts[r] = (struct start){&ranks[r], hosts[r], body};
        ASSERT_INT(pthread_create(&threads[r], NULL, run_rank, &starts[r]), 0);
    }
    for (int r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
}

void gpu_ranks_run(int size, struct gpu_rank *ranks, void (*body)(struct gpu_rank *), void *shared)
{
    static const int ordinals[MAX_GPU_RANKS] = {0, 1, 2, 3, 4, 5, 6, 7};
    gpu_ranks_run_on(ordinals, size, ranks, body, shared);
}

void gpu_ranks_check(int size, const struct gpu_rank *ranks)
{
    for (int r = 0; r < size; r++)
        ASSERT_MSG(ranks[r].status == 0, "rank %d: status %d; %s", r, ranks[r].status, ranks[r].err.text);
    ASSERT_STR(double_left(), "");
    ASSERT_INT(double_nccl_left(), 0);
}

void *gpu_put(struct gpu_rank *self, const void *from, int64_t bytes)
{
    struct memory_tag tag = {.tensor = -1, .role = ROLE_ACTIVATION, .name = "of a test"};
    void *memory = device_alloc(self->device, bytes, tag, &self->err);
    ASSERT_MSG(memory != NULL, "%s", self->err.text);
    device_write(self->device, memory, from, bytes);
    return memory;
}

void gpu_get(struct gpu_rank *self, void *to, const void *from, int64_t bytes)
{
    device_read(self->device, to, from, bytes);
}

int gpu_all_reduce(struct gpu_rank *self, void *data, int64_t count, enum dtype dtype)
{
    struct comm_span span = {data, count};
    return comm_start_all_reduce(self->comm, &span, 1, dtype, COMM_SUM, NULL, &self->err) ||
           comm_wait(self->comm, &self->err);
}

int gpu_start_send(struct comm *comm, float *data, int64_t count, int peer, int tag, struct error *err)
{
    struct comm_span span = {data, count};
    return comm_start_send(comm, &span, DTYPE_F32, peer, tag, NULL, err);
}

int gpu_start_receive(struct comm *comm, float *data, int64_t count, int peer, int tag, struct error *err)
{
    struct comm_span span = {data, count};
    return comm_start_receive(comm, &span, DTYPE_F32, peer, tag, NULL, err);
}

int gpu_all_reduce_to_its_end(struct gpu_rank *self, void *data, int64_t count)
{
    return gpu_all_reduce(self, data, count, DTYPE_F32) || device_finish(self->device, &self->err) ||
           comm_check(self->comm, &self->err);
}
