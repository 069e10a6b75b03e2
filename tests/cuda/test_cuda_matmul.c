/* Products through cuBLASLt, its double or on a GPU (machine.h) the real one, against the reference: shapes that divide
 * nothing, operands at any alignment, every combination of bias, residual and accumulation, F32 and BF16. */
#include "base/dtype.h"
#include "device/backend.h"
#include "device/device_cuda.h"
#include "kernels/cuda/cuda_open.h"
#include "tests/cuda/machine.h"
#include "tests/kernels/fill.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct error err;
static struct device *device;
static struct kernel_context on_gpu = {.threads = 1}, on_host = {.threads = 1};

/* The operands of a product on the host, until end(). */
static void *hosts[8];
static int host_count;

static void begin(void)
{
    const struct backend *backend;
    void *context;
    ASSERT_OK(device_cuda_open(0, 1, &backend, &context, &err));
    device = device_create(backend, context, 0, false);
    ASSERT_OK(kernels_cuda.open(device, &on_gpu.device, &err));
}

static void end(void)
{
    kernels_cuda.close(on_gpu.device);
    device_close(device);
    while (host_count > 0)
        free(hosts[--host_count]);
    ASSERT_STR(machine_left(), "");
}

/* The same numbers on both sides, `offset` elements into what was allocated. */
struct pair {
    enum dtype dtype;
    int64_t count;
    void *host, *gpu;
};

static struct pair make_pair(uint64_t seed, enum dtype dtype, int64_t count, int64_t offset)
{
    struct memory_tag tag = {.tensor = -1, .role = ROLE_ACTIVATION, .name = "an operand"};
    int64_t bytes = count * dtype_bytes(dtype);
    struct pair pair = {dtype, count, random_buffer(seed, dtype, count), NULL};
    ASSERT(host_count < (int)(sizeof hosts / sizeof *hosts));
    hosts[host_count++] = pair.host;
    char *memory = device_alloc(device, bytes + offset * dtype_bytes(dtype), tag, &err);
    ASSERT_MSG(memory != NULL, "%s", err.text);
    pair.gpu = memory + offset * dtype_bytes(dtype);
    device_write(device, pair.gpu, pair.host, bytes);
    return pair;
}

/* `tolerance` is relative to the larger of 1 and the value. */
static void must_agree(const struct pair *pair, double tolerance, const char *what)
{
    int64_t bytes = pair->count * dtype_bytes(pair->dtype);
    void *got = host_alloc((size_t)bytes);
    device_read(device, got, pair->gpu, bytes);
    ASSERT_OK(device_finish(device, &err));
    for (int64_t i = 0; i < pair->count; i++) {
        double is = element_get(pair->dtype, got, i), wanted = element_get(pair->dtype, pair->host, i);
        ASSERT_MSG(fabs(is - wanted) <= tolerance * fmax(1, fabs(wanted)), "%s, element %lld: %g, not %g",
                   what, (long long)i, is, wanted);
    }
    free(got);
}

static const struct {
    int64_t M, N, K, offset;
} shapes[] = {{1, 1, 1, 0}, {5, 3, 7, 1}, {32, 48, 64, 0}, {33, 257, 31, 3}, {64, 8, 16, 8}, {300, 37, 6, 1}};

enum { SHAPES = sizeof shapes / sizeof *shapes, VARIANTS = 4, DTYPES = 2 };

static const char *const refusals[] = {"unsupported", "invalid", "late"};
enum { REFUSALS = sizeof refusals / sizeof *refusals };

/* One rounding of the result; sums in another order besides. */
static double tolerance_of(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? 0x1p-7 : 2e-5;
}

/* `setting`: shape, dtype, then two choices. */
#define SETTING                                                                                              \
    const int64_t M = shapes[setting % SHAPES].M, N = shapes[setting % SHAPES].N;                            \
    const int64_t K = shapes[setting % SHAPES].K, offset = shapes[setting % SHAPES].offset;                  \
    const enum dtype dtype = setting / SHAPES % DTYPES ? DTYPE_BF16 : DTYPE_F32;                             \
    const bool first = setting / (SHAPES * DTYPES) % 2, second = setting / (SHAPES * DTYPES) / 2

/* All shapes and dtypes of one variant in one process: on a GPU a process takes longer to begin than all of them. */
static void check_all(void (*check)(int setting), int variant)
{
    for (int i = 0; i < SHAPES * DTYPES; i++)
        check(variant * SHAPES * DTYPES + i);
}

static void check_forward(int setting)
{
    SETTING;
    begin();
    struct pair x = make_pair(1, dtype, M * K, offset), w = make_pair(2, dtype, N * K, 0);
    struct pair bias = make_pair(3, dtype, N, offset), residual = make_pair(4, dtype, M * N, 0);
    struct pair y = make_pair(5, dtype, M * N, offset);
    struct matmul_args args = {
        M, N, K, dtype, x.host, w.host, first ? bias.host : NULL, second ? residual.host : NULL, y.host};
    ASSERT_OK(kernels_reference.matmul(&on_host, &args, &err));
    args.x = x.gpu, args.w = w.gpu, args.y = y.gpu;
    args.bias = first ? bias.gpu : NULL;
    args.residual = second ? residual.gpu : NULL;
    /* Twice: the second time with the algorithm that was kept. */
    ASSERT_OK(kernels_cuda.matmul(&on_gpu, &args, &err));
    ASSERT_OK(kernels_cuda.matmul(&on_gpu, &args, &err));
    /* A bias that is added apart, as it may be on a GPU, is added to a sum that was rounded already. */
    bool apart = first && (!machine_is_emulated() || getenv("DOUBLE_CUBLAS_NO_BIAS"));
    must_agree(&y, (apart ? 2 : 1) * tolerance_of(dtype), "y");
    end();
}

TEST_LOOP(cuda_matmul_forward, "y = x w^T, with and without bias and residual", VARIANTS)
{
    check_all(check_forward, _i);
}

TEST_LOOP(cuda_matmul_bias_apart, "the same where cuBLASLt has no algorithm that adds the bias", 2 * REFUSALS)
{
    NEEDS_DOUBLES;
    setenv("DOUBLE_CUBLAS_NO_BIAS", refusals[_i / 2], 1);
    check_all(check_forward, 1 + _i % 2 * 2); /* those with a bias */
}

static void check_dgrad(int setting)
{
    SETTING;
    (void)second;
    begin();
    struct pair dy = make_pair(1, dtype, M * N, offset), w = make_pair(2, dtype, N * K, offset);
    struct pair dx = make_pair(3, dtype, M * K, 0);
    struct matmul_dgrad_args args = {M, N, K, dtype, dy.host, w.host, dx.host, first};
    ASSERT_OK(kernels_reference.matmul_dgrad(&on_host, &args, &err));
    args.dy = dy.gpu, args.w = w.gpu, args.dx = dx.gpu;
    ASSERT_OK(kernels_cuda.matmul_dgrad(&on_gpu, &args, &err));
    must_agree(&dx, tolerance_of(dtype), "dx");
    end();
}

TEST_LOOP(cuda_matmul_dgrad, "dx (+)= dy w", 2)
{
    check_all(check_dgrad, _i);
}

static void check_wgrad(int setting)
{
    SETTING;
    begin();
    struct pair dy = make_pair(1, dtype, M * N, offset), x = make_pair(2, dtype, M * K, 0);
    struct pair dw = make_pair(3, DTYPE_F32, N * K, 0), db = make_pair(4, DTYPE_F32, N, offset);
    struct matmul_wgrad_args args = {M,     N, K, dtype, dy.host, x.host, dw.host, first ? db.host : NULL,
                                     second};
    ASSERT_OK(kernels_reference.matmul_wgrad(&on_host, &args, &err));
    args.dy = dy.gpu, args.x = x.gpu, args.dw = dw.gpu;
    args.db = first ? db.gpu : NULL;
    ASSERT_OK(kernels_cuda.matmul_wgrad(&on_gpu, &args, &err));
    must_agree(&dw, 2e-5, "dw");
    must_agree(&db, 2e-5, "db");
    end();
}

TEST_LOOP(cuda_matmul_wgrad, "dw (+)= dy^T x in fp32, and db in the same product", VARIANTS)
{
    check_all(check_wgrad, _i);
}

/* Of the reference, one after the other: y is rounded before its GELU there, and after it here. */
static void check_gelu(int setting)
{
    SETTING;
    (void)second;
    begin();
    struct pair x = make_pair(1, dtype, M * K, 0), w = make_pair(2, dtype, N * K, 0);
    struct pair bias = make_pair(3, dtype, N, offset), y = make_pair(4, dtype, M * N, 0);
    struct pair act = make_pair(5, dtype, M * N, offset);
    struct matmul_args args = {M, N, K, dtype, x.host, w.host, first ? bias.host : NULL, NULL, y.host};
    struct gelu_args gelu = {M * N, dtype, y.host, act.host};
    ASSERT_OK(kernels_reference.matmul(&on_host, &args, &err));
    ASSERT_OK(kernels_reference.gelu(&on_host, &gelu, &err));
    args.x = x.gpu, args.w = w.gpu, args.y = y.gpu;
    args.bias = first ? bias.gpu : NULL;
    ASSERT_OK(kernels_cuda.matmul_gelu(&on_gpu, &args, act.gpu, &err));
    ASSERT_OK(kernels_cuda.matmul_gelu(&on_gpu, &args, act.gpu, &err));
    must_agree(&y, tolerance_of(dtype), "y");
    must_agree(&act, 2 * tolerance_of(dtype), "gelu(y)");
    end();
}

TEST_LOOP(cuda_matmul_gelu, "y = x w^T + bias and its GELU in one, with y kept", 2)
{
    check_all(check_gelu, _i);
}

static void check_dgrad_gelu(int setting)
{
    SETTING;
    (void)first;
    (void)second;
    begin();
    struct pair dy = make_pair(1, dtype, M * N, offset), w = make_pair(2, dtype, N * K, offset);
    struct pair x = make_pair(3, dtype, M * K, 0), dx = make_pair(4, dtype, M * K, 0);
    struct matmul_dgrad_args args = {M, N, K, dtype, dy.host, w.host, dx.host, false};
    struct gelu_grad_args gelu = {M * K, dtype, x.host, dx.host};
    ASSERT_OK(kernels_reference.matmul_dgrad(&on_host, &args, &err));
    ASSERT_OK(kernels_reference.gelu_grad(&on_host, &gelu, &err));
    args.dy = dy.gpu, args.w = w.gpu, args.dx = dx.gpu;
    ASSERT_OK(kernels_cuda.matmul_dgrad_gelu(&on_gpu, &args, x.gpu, &err));
    must_agree(&dx, 2 * tolerance_of(dtype), "dx");
    end();
}

TEST(cuda_matmul_dgrad_gelu, "dx = dy w, times the slope of GELU at x, in one")
{
    check_all(check_dgrad_gelu, 0);
}

TEST_LOOP(cuda_matmul_gelu_apart, "the same by two kernels, where cuBLASLt has no algorithm with GELU", 2)
{
    NEEDS_DOUBLES;
    setenv("DOUBLE_CUBLAS_NO_GELU", "1", 1);
    check_all(check_gelu, _i);
    check_all(check_dgrad_gelu, 0);
}

/* It may say that it has none, refuse the whole question, or the product itself. */
TEST_LOOP(cuda_matmul_wgrad_alone, "the same where cuBLASLt has no algorithm that makes db too",
          REFUSALS *VARIANTS)
{
    NEEDS_DOUBLES;
    setenv("DOUBLE_CUBLAS_NO_BIAS_GRADIENT", refusals[_i / VARIANTS], 1);
    check_all(check_wgrad, _i % VARIANTS);
}

/* 96 times 1 + 2^-7, and then 96 times -1: 96.75 is no bf16, so parts that are rounded lose what is left. */
TEST(cuda_matmul_adds_in_f32, "a long sum whose halves cancel is exact in bf16: its parts are not rounded")
{
    enum { K = 192, N = 8, M = 8 };
    begin();
    struct pair x = make_pair(1, DTYPE_BF16, M * K, 0), w = make_pair(2, DTYPE_BF16, N * K, 0);
    struct pair y = make_pair(3, DTYPE_BF16, M * N, 0);
    for (int i = 0; i < M * K; i++) {
        ((uint16_t *)x.host)[i] = f32_to_bf16(i % K < K / 2 ? 1 + 0x1p-7f : -1);
        ((uint16_t *)w.host)[i] = f32_to_bf16(1);
    }
    for (int i = 0; i < M * N; i++)
        ((uint16_t *)y.host)[i] = f32_to_bf16(0.75f);
    device_write(device, x.gpu, x.host, M * K * 2);
    device_write(device, w.gpu, w.host, N * K * 2);
    struct matmul_args args = {M, N, K, DTYPE_BF16, x.gpu, w.gpu, NULL, NULL, y.gpu};
    ASSERT_OK(kernels_cuda.matmul(&on_gpu, &args, &err));
    must_agree(&y, 0, "y");
    end();
}

TEST(cuda_matmul_refuses, "F64 is refused; a failing cuBLASLt is named")
{
    begin();
    struct pair x = make_pair(1, DTYPE_F32, 16, 0), y = make_pair(2, DTYPE_F32, 16, 0);
    struct matmul_args args = {4, 4, 4, DTYPE_F64, x.gpu, x.gpu, NULL, NULL, y.gpu};
    ASSERT_INT(kernels_cuda.matmul(&on_gpu, &args, &err), -1);
    ASSERT_HAS(err.text, "matmul has no F64 form");
    args.dtype = DTYPE_F32;
    if (!machine_is_emulated())
        return;
    setenv("DOUBLE_CUDA_FAIL", "cublasLtMatmul:1", 1);
    ASSERT_INT(kernels_cuda.matmul(&on_gpu, &args, &err), -1);
    ASSERT_HAS(err.text, "cublasLtMatmul failed: ");
    end();
}

TEST(cuda_scratch_in_ledger, "what the kernels take is in the ledger as runtime, by a name, and given back")
{
    begin();
    struct device_usage usage = device_usage(device);
    ASSERT_INT(usage.live[ROLE_RUNTIME], kernels_cuda.runtime_bytes);
    ASSERT_INT(usage.live_bytes, kernels_cuda.runtime_bytes);
    kernels_cuda.close(on_gpu.device);
    ASSERT_INT(device_usage(device).live_bytes, 0);
    ASSERT_OK(kernels_cuda.open(device, &on_gpu.device, &err));
    end();
}
