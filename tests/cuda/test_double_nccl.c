/* The double of NCCL itself: what it says of calls that NCCL would wait for, or spoil memory with. */
#include "tests/cuda/double_nccl.h"
#include "tests/cuda/double_runtime.h"
#include "tests/cuda/gpu_ranks.h"
#include "tests/test.h"

#include <stdlib.h>
#include <unistd.h>

static void sum_other_count(struct gpu_rank *self)
{
    static const float host[12];
    float *data = gpu_put(self, host, sizeof host);
    self->status = gpu_all_reduce(self, data, self->rank ? 12 : 10, DTYPE_F32) == 0;
}

TEST(cuda_double_nccl_mismatch, "the double names both calls when ranks ask for different things")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    double_listen();
    gpu_ranks_run(2, ranks, sum_other_count, NULL);
    ASSERT_STR(double_listen(),
               "ncclAllReduce of 10 float32 on rank 0 meets ncclAllReduce of 12 float32 on rank 1");
    double_unlisten();
    gpu_ranks_check(2, ranks);
}

static void send_other_count(struct gpu_rank *self)
{
    static const float host[12];
    float *data = gpu_put(self, host, sizeof host);
    self->status = self->rank ? gpu_start_receive(self->comm, data, 12, 0, 0, &self->err)
                              : gpu_start_send(self->comm, data, 10, 1, 0, &self->err);
    self->status |= comm_wait(self->comm, &self->err) == 0;
}

TEST(cuda_double_nccl_message_mismatch, "and both lengths of a message")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    double_listen();
    gpu_ranks_run(2, ranks, send_other_count, NULL);
    ASSERT_STR(double_listen(), "rank 0 sends 10 float32 to rank 1, which receives 12 float32");
    double_unlisten();
    gpu_ranks_check(2, ranks);
}

/* Rank 0 sums alone, once both are connected. */
static void sum_alone(struct gpu_rank *self)
{
    static const float host[12];
    float *data = gpu_put(self, host, sizeof host);
    self->status = gpu_all_reduce(self, data, 12, DTYPE_F32);
    if (self->rank == 1) {
        sleep(1);
        comm_abort(self->comm, "enough");
        return;
    }
    self->status |= gpu_all_reduce_to_its_end(self, data, 12) == 0;
}

TEST(cuda_double_nccl_deadlock, "ranks that wait too long are told what each waits for")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    setenv("DOUBLE_NCCL_TIMEOUT", "0.3", 1);
    double_listen();
    gpu_ranks_run(2, ranks, sum_alone, NULL);
    ASSERT_STR(double_listen(),
               "a deadlock: communicator 1: rank 0 of 2 waits in ncclAllReduce of 12 float32");
    double_unlisten();
    gpu_ranks_check(2, ranks);
}

static void sum_host_memory(struct gpu_rank *self)
{
    float data[12] = {0};
    self->status = gpu_all_reduce(self, data, 12, DTYPE_F32);
}

TEST(cuda_double_nccl_host_memory, "memory of the host, where the device's is meant, is noticed")
{
    struct gpu_rank ranks[MAX_GPU_RANKS];
    double_listen();
    gpu_ranks_run(1, ranks, sum_host_memory, NULL);
    ASSERT_HAS(double_listen(), "not in living device memory");
    double_unlisten();
}
