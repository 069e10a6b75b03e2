/* The emulation of CUDA kernels itself: what it must compute, in every order, and what must end the program. What ends it
 * runs in a child process, of which the test reads the last words. */
#include "tests/cuda/cuhost.h"

#include "kernels/cuda/launch.cuh"
#include "tests/cuda/last_words.h"

#include <cstdlib>
#include <string>
#include <vector>

static void in_all_orders(const std::function<void()> &body)
{
    for (int order = 0; order < CUHOST_ORDERS; order++) {
        cuhost_set_order(static_cast<enum cuhost_order>(order));
        body();
    }
}

static void expect_words(const char *words, const std::function<void()> &body)
{
    in_all_orders([&] {
        std::string got = last_words(body);
        ASSERT_HAS(got.c_str(), words);
    });
}

/* ---- places ---- */

static __global__ void place_kernel(unsigned *to)
{
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    to[block * blockDim.x * blockDim.y * blockDim.z + thread] += block * 100 + thread;
}

TEST(cuhost_places, "every thread of a grid of 2 x 3 x 2 blocks of 4 x 3 x 2 runs once and knows its place")
{
    in_all_orders([] {
        std::vector<unsigned> to(12 * 24);
        CUDA_LAUNCH(place_kernel, dim3(2, 3, 2), dim3(4, 3, 2), 0, nullptr, to.data());
        for (unsigned i = 0; i < to.size(); i++)
            ASSERT_INT(to[i], i / 24 * 100 + i % 24);
    });
}

TEST(cuhost_threads, "blocks shared by several operating-system threads do the same")
{
    setenv("CUHOST_THREADS", "3", 1);
    in_all_orders([] {
        std::vector<unsigned> to(12 * 24);
        CUDA_LAUNCH(place_kernel, dim3(2, 3, 2), dim3(4, 3, 2), 0, nullptr, to.data());
        for (unsigned i = 0; i < to.size(); i++)
            ASSERT_INT(to[i], i / 24 * 100 + i % 24);
    });
}

static __global__ void first_kernel(int *first)
{
    atomicCAS(first, -1, static_cast<int>(threadIdx.x + blockIdx.x * blockDim.x));
}

TEST(cuhost_orders, "the first to run is thread 0, the last of the last block, or one in the middle")
{
    /* Rotated: of 6 blocks number 6/3 + 1 = 3, of its 2 warps number 2/3 + 1 = 1, of 32 lanes number 32/3 + 1 = 11. */
    const int expected[CUHOST_ORDERS] = {0, 6 * 64 - 1, 3 * 64 + 32 + 11};
    for (int order = 0; order < CUHOST_ORDERS; order++) {
        int first = -1;
        cuhost_set_order(static_cast<enum cuhost_order>(order));
        CUDA_LAUNCH(first_kernel, dim3(6), dim3(64), 0, nullptr, &first);
        ASSERT_INT(first, expected[order]);
    }
}

/* ---- barriers and shared memory ---- */

/* Each thread passes its number to its neighbour, round after round. */
static __global__ void ring_kernel(int rounds, unsigned *to)
{
    CUDA_SHARED(unsigned, ring, 1024);
    unsigned mine = threadIdx.x;
    for (int i = 0; i < rounds; i++) {
        ring[threadIdx.x] = mine;
        __syncthreads();
        mine = ring[(threadIdx.x + 1) % blockDim.x];
        __syncthreads();
    }
    to[threadIdx.x] = mine;
}

TEST(cuhost_barrier, "1,024 threads pass a number on five times")
{
    in_all_orders([] {
        std::vector<unsigned> to(1024);
        CUDA_LAUNCH(ring_kernel, dim3(1), dim3(1024), 0, nullptr, 5, to.data());
        for (unsigned i = 0; i < 1024; i++)
            ASSERT_INT(to[i], (i + 5) % 1024);
    });
}

static __global__ void race_kernel(unsigned *to)
{
    CUDA_SHARED(unsigned, ring, 64);
    ring[threadIdx.x] = threadIdx.x; /* a barrier is missing here */
    to[threadIdx.x] = ring[(threadIdx.x + 1) % 64];
}

TEST(cuhost_race, "a missing barrier gives other bits in another order")
{
    std::vector<unsigned> to[2];
    for (int order = 0; order < 2; order++) {
        to[order].resize(64);
        cuhost_set_order(static_cast<enum cuhost_order>(order));
        CUDA_LAUNCH(race_kernel, dim3(1), dim3(64), 0, nullptr, to[order].data());
    }
    ASSERT(to[0] != to[1]);
}

/* Two sums over the block by way of the same shared array, without a barrier between the reading of the first and the
 * writing of the second: the mistake of a reduction that is called twice. */
static __global__ void reuse_kernel(bool wait, unsigned *to)
{
    CUDA_SHARED(unsigned, warps, 2);
    unsigned sum = 0;
    for (unsigned round = 1; round <= 2; round++) {
        if (wait)
            __syncthreads();
        unsigned own = threadIdx.x * round;
        for (int distance = 16; distance > 0; distance /= 2)
            own += __shfl_xor_sync(~0u, own, distance);
        if (threadIdx.x % 32 == 0)
            warps[threadIdx.x / 32] = own;
        __syncthreads();
        sum += warps[0] + warps[1];
    }
    to[threadIdx.x] = sum;
}

TEST(cuhost_reuse,
     "a shared array that is used again too early gives other bits, even with warp functions in between")
{
    in_all_orders([] {
        std::vector<unsigned> to(64), early(64);
        CUDA_LAUNCH(reuse_kernel, dim3(1), dim3(64), 0, nullptr, true, to.data());
        for (unsigned sum : to)
            ASSERT_INT(sum, 3 * 63 * 64 / 2);
        CUDA_LAUNCH(reuse_kernel, dim3(1), dim3(64), 0, nullptr, false, early.data());
        ASSERT(early != to);
    });
}

static __global__ void poison_kernel(int *nan)
{
    CUDA_SHARED(float, fixed, 8);
    CUDA_DYNAMIC_SHARED(float, dynamic);
    *nan += std::isnan(fixed[threadIdx.x]) && std::isnan(dynamic[threadIdx.x]);
    fixed[threadIdx.x] = dynamic[threadIdx.x] = 1;
}

TEST(cuhost_poison, "shared memory is NaN at the start of every block")
{
    int nan = 0;
    CUDA_LAUNCH(poison_kernel, dim3(3), dim3(8), 8 * sizeof(float), nullptr, &nan);
    ASSERT_INT(nan, 3 * 8);
}

static __global__ void half_barrier_kernel()
{
    if (threadIdx.x < 40)
        return;
    __syncthreads();
}

TEST(cuhost_barrier_missed, "a barrier that 40 of 64 threads do not reach ends the program")
{
    expect_words("which 24 of 64 threads reached; 40 have left the kernel",
                 [] { CUDA_LAUNCH(half_barrier_kernel, dim3(1), dim3(64), 0, nullptr); });
}

static __global__ void two_barriers_kernel()
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}

TEST(cuhost_barriers_mixed, "threads at two different barriers end the program")
{
    expect_words("is at __syncthreads() of line",
                 [] { CUDA_LAUNCH(two_barriers_kernel, dim3(1), dim3(64), 0, nullptr); });
}

#ifdef __SANITIZE_ADDRESS__
static __global__ void outside_kernel(int at, float *to)
{
    CUDA_SHARED(float, fixed, 8);
    CUDA_DYNAMIC_SHARED(float, dynamic);
    fixed[0] = 0;
    *to = at < 0 ? dynamic[-at] : fixed[at];
}

TEST(cuhost_outside, "an access outside a shared array, or device memory, is seen by the address sanitizer")
{
    float to = 0;
    expect_words("heap-buffer-overflow",
                 [&] { CUDA_LAUNCH(outside_kernel, dim3(1), dim3(1), 32, nullptr, 8, &to); });
    expect_words("heap-buffer-overflow",
                 [&] { CUDA_LAUNCH(outside_kernel, dim3(1), dim3(1), 32, nullptr, -8, &to); });
    auto *memory = static_cast<unsigned *>(malloc(63 * sizeof(unsigned)));
    expect_words("heap-buffer-overflow",
                 [&] { CUDA_LAUNCH(ring_kernel, dim3(1), dim3(64), 0, nullptr, 1, memory); });
    free(memory);
}
#endif

/* ---- warps ---- */

static __global__ void shuffle_kernel(int *to)
{
    const int lane = threadIdx.x % 32, mine = static_cast<int>(threadIdx.x);
    int *row = to + threadIdx.x * 6;
    row[0] = __shfl_sync(~0u, mine, 5);
    row[1] = __shfl_xor_sync(~0u, mine, 3);
    row[2] = __shfl_down_sync(~0u, mine, 2);
    row[3] = __shfl_up_sync(~0u, mine, 2);
    row[4] = __shfl_xor_sync(~0u, mine, 9, 8); /* across groups of 8: only from an earlier group */
    row[5] = __shfl_sync(~0u, static_cast<double>(mine), lane + 1, 4) > 0;
}

TEST(cuhost_shuffles, "shuffles give each lane what the CUDA manual says")
{
    in_all_orders([] {
        enum { THREADS = 96 };
        std::vector<int> to(THREADS * 6);
        CUDA_LAUNCH(shuffle_kernel, dim3(1), dim3(THREADS), 0, nullptr, to.data());
        for (int i = 0; i < THREADS; i++) {
            const int lane = i % 32, *row = &to[static_cast<size_t>(i) * 6];
            ASSERT_INT(row[0], i - lane + 5);
            ASSERT_INT(row[1], i ^ 3);
            ASSERT_INT(row[2], lane < 30 ? i + 2 : i);
            ASSERT_INT(row[3], lane >= 2 ? i - 2 : i);
            ASSERT_INT(row[4], (i ^ 9) / 8 > i / 8 ? i : i ^ 9);
            ASSERT_INT(row[5], (i - i % 4 + (i + 1) % 4) > 0);
        }
    });
}

static __global__ void vote_kernel(unsigned *to)
{
    const unsigned lane = threadIdx.x % 32, half = lane < 16 ? 0xffffu : 0xffff0000u;
    to[threadIdx.x * 4 + 0] =
        __ballot_sync(half, lane % 3 == 0); /* two halves of a warp meet each for itself */
    to[threadIdx.x * 4 + 1] = static_cast<unsigned>(__any_sync(~0u, lane == 31));
    to[threadIdx.x * 4 + 2] = static_cast<unsigned>(__all_sync(~0u, lane != 31));
    __syncwarp();
    to[threadIdx.x * 4 + 3] = static_cast<unsigned>(__all_sync(~0u, 1));
}

TEST(cuhost_votes, "votes of halves and of whole warps")
{
    unsigned thirds = 0;
    for (unsigned lane = 0; lane < 32; lane += 3)
        thirds |= 1u << lane;
    in_all_orders([&] {
        std::vector<unsigned> to(64 * 4);
        CUDA_LAUNCH(vote_kernel, dim3(1), dim3(64), 0, nullptr, to.data());
        for (unsigned i = 0; i < 64; i++) {
            ASSERT_INT(to[i * 4], thirds & (i % 32 < 16 ? 0xffffu : 0xffff0000u));
            ASSERT(to[i * 4 + 1] == 1 && to[i * 4 + 2] == 0 && to[i * 4 + 3] == 1);
        }
    });
}

static __global__ void missing_lane_kernel()
{
    if (threadIdx.x != 7)
        __syncwarp();
}

static __global__ void foreign_mask_kernel()
{
    __shfl_sync(0xfffffffeu, 1, 3);
}

static __global__ void absent_source_kernel()
{
    if (threadIdx.x < 16)
        __shfl_sync(0xffffu, 1, 20);
}

static __global__ void mixed_calls_kernel()
{
    if (threadIdx.x % 2)
        __shfl_xor_sync(~0u, 1, 1);
    else
        __ballot_sync(~0u, 1);
}

TEST(cuhost_warp_misuse,
     "a lane that does not come, is not in its own mask, or takes no part ends the program")
{
    expect_words("for lanes 0xffffffff, of which only 0xffffff7f came",
                 [] { CUDA_LAUNCH(missing_lane_kernel, dim3(1), dim3(32), 0, nullptr); });
    expect_words("leaves out its own lane 0",
                 [] { CUDA_LAUNCH(foreign_mask_kernel, dim3(1), dim3(32), 0, nullptr); });
    expect_words("shuffles from lane 20, which takes no part",
                 [] { CUDA_LAUNCH(absent_source_kernel, dim3(1), dim3(32), 0, nullptr); });
    expect_words("is in the warp function of line",
                 [] { CUDA_LAUNCH(mixed_calls_kernel, dim3(1), dim3(32), 0, nullptr); });
}

/* ---- atomics ---- */

static __global__ void atomic_kernel(int *sum, unsigned long long *least, int *most)
{
    int number = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(sum, number);
    atomicMin(least, static_cast<unsigned long long>(number + 3));
    atomicMax(most, number);
}

TEST(cuhost_atomics, "sum, least and most of 0 to 299, on three operating-system threads")
{
    setenv("CUHOST_THREADS", "3", 1);
    in_all_orders([] {
        int sum = 0, most = -1;
        unsigned long long least = ~0ull;
        CUDA_LAUNCH(atomic_kernel, dim3(10), dim3(30), 0, nullptr, &sum, &least, &most);
        ASSERT(sum == 299 * 300 / 2 && least == 3 && most == 299);
    });
}

/* ---- launches ---- */

TEST(cuhost_limits, "blocks and shared memory beyond a GPU's limits end the program")
{
    int nan = 0;
    expect_words("with blocks of 1025 x 1 x 1 threads",
                 [] { CUDA_LAUNCH(half_barrier_kernel, dim3(1), dim3(1025), 0, nullptr); });
    expect_words("with 1 x 0 x 1 blocks",
                 [] { CUDA_LAUNCH(half_barrier_kernel, dim3(1, 0), dim3(1), 0, nullptr); });
    expect_words("with 49153 bytes of shared memory and may use 49152",
                 [&] { CUDA_LAUNCH(poison_kernel, dim3(1), dim3(8), 49153, nullptr, &nan); });
}

static __global__ void two_arrays_kernel()
{
    CUDA_SHARED(char, one, 40 << 10);
    CUDA_DYNAMIC_SHARED(char, other);
    one[0] = other[0];
}

TEST(cuhost_shared_together, "a kernel's own arrays and those of its launch share the 48 KiB that need no asking")
{
    CUDA_LAUNCH(two_arrays_kernel, dim3(1), dim3(1), 8 << 10, nullptr);
    expect_words("arrays of 40960 bytes and 8193 of the launch are more than the 49152",
                 [] { CUDA_LAUNCH(two_arrays_kernel, dim3(1), dim3(1), (8 << 10) + 1, nullptr); });
    ASSERT_INT(CUDA_ALLOW_SHARED(two_arrays_kernel, (8 << 10) + 1), cudaSuccess);
    CUDA_LAUNCH(two_arrays_kernel, dim3(1), dim3(1), 8 << 10, nullptr);
}

TEST(cuhost_allowed, "a kernel that asked may use more than 48 KiB of shared memory, up to 163")
{
    int nan = 0;
    ASSERT_INT(CUDA_ALLOW_SHARED(poison_kernel, 162 << 10), cudaSuccess); /* it has some bytes of its own */
    CUDA_LAUNCH(poison_kernel, dim3(1), dim3(8), 162 << 10, nullptr, &nan);
    ASSERT_INT(nan, 8);
    ASSERT(CUDA_ALLOW_SHARED(poison_kernel, (163 << 10) + 1) != cudaSuccess);
}

static std::vector<std::function<void()>> submitted;

TEST(cuhost_submit,
     "launches go to the hook with the arguments they had, and run when it says, as often as it says")
{
    cuhost::set_submit_hook([](void *stream, const char *kernel, std::function<void()> work) {
        ASSERT(stream == &submitted);
        ASSERT_STR(kernel, "atomic_kernel");
        submitted.push_back(work);
    });
    int sum = 0, most = 0;
    unsigned long long least = ~0ull;
    {
        int *here = &sum;
        CUDA_LAUNCH(atomic_kernel, dim3(1), dim3(3), 0, &submitted, here, &least, &most);
        here = nullptr;
    }
    ASSERT_INT(sum, 0);
    ASSERT_INT(submitted.size(), 1);
    submitted[0]();
    submitted[0]();
    ASSERT_INT(sum, 2 * (0 + 1 + 2));
}
