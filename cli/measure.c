#include "cli/measure.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sort.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 5, COPY_BYTES = 64 << 20 };

/* Products above this would take seconds; they reach the rate of the largest that is measured. */
static const double most_flops = 2e10;

/* Flops per second of a square product of about `flops`; the first run warms up and is not counted. */
static int measure_matmul(double flops, int threads, double *rate, struct error *err)
{
    int64_t side = (int64_t)cbrt(flops / 2);
    size_t bytes = (size_t)(side * side) * sizeof(float);
    float *x = host_alloc(bytes), *w = host_alloc(bytes), *y = host_alloc(bytes);
    struct kernel_context context = {.threads = threads};
    struct matmul_args args = {.M = side, .N = side, .K = side, .dtype = DTYPE_F32, .x = x, .w = w, .y = y};
    /* Small products are repeated within one timing, so that the clock's own cost does not show. */
    int inner = flops < 1e9 ? (int)(1e9 / flops / 10) + 1 : 1;
    double seconds[REPEATS];
    int status = kernels_cpu.matmul(&context, &args, err);
    for (int i = 0; i < REPEATS && !status; i++) {
        int64_t start_ns = clock_ns();
        for (int k = 0; k < inner && !status; k++)
            status = kernels_cpu.matmul(&context, &args, err);
        seconds[i] = (double)(clock_ns() - start_ns) * 1e-9 / inner;
    }
    if (!status)
        *rate = 2 * (double)side * (double)side * (double)side / sort_median(seconds, REPEATS);
    free(x);
    free(w);
    free(y);
    return status;
}

/* Bytes read and written per second by an element-wise kernel on all cores. */
static int measure_memory(int threads, double *rate, struct error *err)
{
    float *x = host_alloc(COPY_BYTES), *y = host_alloc(COPY_BYTES);
    struct kernel_context context = {.threads = threads};
    struct gelu_args args = {COPY_BYTES / sizeof(float), DTYPE_F32, x, y};
    double seconds[REPEATS];
    memset(y, 1, COPY_BYTES);
    memset(x, 1, COPY_BYTES);
    int status = 0;
    for (int i = 0; i < REPEATS && !status; i++) {
        int64_t start_ns = clock_ns();
        status = kernels_cpu.gelu(&context, &args, err);
        seconds[i] = (double)(clock_ns() - start_ns) * 1e-9;
    }
    if (!status)
        *rate = 2.0 * COPY_BYTES / sort_median(seconds, REPEATS);
    free(x);
    free(y);
    return status;
}

int measure_speed(struct machine_speed *speed, struct error *err)
{
    int threads = machine_speed_cores();
    double matmul[SPEED_CLASSES], memory, rate = 0;
    for (int i = 0; i < SPEED_CLASSES; i++) {
        progress_show("measuring this machine", i, SPEED_CLASSES + 1, "matrix products");
        if (speed_class_flops[i] <= most_flops && measure_matmul(speed_class_flops[i], threads, &rate, err))
            return -1;
        matmul[i] = rate;
    }
    progress_show("measuring this machine", SPEED_CLASSES, SPEED_CLASSES + 1, "memory");
    if (measure_memory(threads, &memory, err))
        return -1;
    progress_end();
    machine_speed_set_measured(speed, matmul, memory);
    return 0;
}
