/* One rank of a run under mpirun, for check_mpi.sh: makes every call there is and compares the results, bit for bit, with those of
 * threads; or fails in one of the ways in which ranks do.
 *
 *     launched_ranks compare|abort|together|killed|differ|leave|stuck|speed */
#include "base/arena.h"
#include "base/clock.h"
#include "comm/comm.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 300000, MOST_RANKS = 16 };

/* What one rank computes: all its results, one after the other. */
struct record {
    unsigned char *bytes;
    size_t used, room;
};

struct thread_run {
    struct comm *comm;
    struct record record;
};

static struct error err;

static void must(int status, const struct error *why)
{
    if (!status)
        return;
    if (why->kind != ERROR_STOPPED)
        fprintf(stderr, "launched_ranks: %s\n", why->text);
    exit(1);
}

static void keep(struct record *record, const void *data, size_t bytes)
{
    while (record->used + bytes > record->room)
        record->bytes = host_resize(record->bytes, record->room = 2 * (record->room + bytes));
    memcpy(record->bytes + record->used, data, bytes);
    record->used += bytes;
}

/* Values whose sums round, different in every rank and place. */
static void fill(void *data, int64_t count, enum dtype dtype, int rank)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)(i * MOST_RANKS + rank + 1) * 2654435761u;
        float value = (float)(int32_t)bits * (bits & 16 ? 1e-3f : 1e3f);
        if (dtype == DTYPE_F32)
            ((float *)data)[i] = value;
        else if (dtype == DTYPE_F64)
            ((double *)data)[i] = value / 3.0;
        else
            ((uint16_t *)data)[i] = f32_to_bf16(value);
    }
}

static void every_all_reduce(struct comm *comm, void *data, struct record *record)
{
    static const int64_t counts[] = {0, 1, 3, 1001, COUNT - 1};
    struct error why;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int which = 0; which < 6; which++) {
            enum dtype dtype = (enum dtype[]){DTYPE_F32, DTYPE_F64, DTYPE_BF16}[which / 2];
            int64_t cut = counts[c] / (2 + comm_rank(comm));
            unsigned char *bytes = data;
            struct comm_span spans[2] = {{bytes, cut}, {bytes + cut * dtype_bytes(dtype), counts[c] - cut}};
            fill(data, counts[c], dtype, comm_rank(comm));
            enum comm_reduction reduction = which % 2 ? COMM_MAX : COMM_SUM;
            if (c % 2)
                must(comm_all_reduce(comm, spans, 2, dtype, reduction, &why), &why);
            else
                must(comm_start_all_reduce(comm, spans, 2, dtype, reduction, NULL, &why) ||
                         comm_wait(comm, &why),
                     &why);
            keep(record, data, (size_t)(counts[c] * dtype_bytes(dtype)));
        }
}

/* Three spans, with parts elsewhere and then in place and at once. */
static void every_parts_call(struct comm *comm, void *data, struct record *record)
{
    static const int64_t part_counts[] = {1, 0, 9001};
    int size = comm_size(comm), rank = comm_rank(comm);
    struct error why;
    float *elsewhere = host_alloc(3 * 9001 * sizeof *elsewhere);
    for (int in_place = 0; in_place < 2; in_place++) {
        struct comm_span full[3], parts[3];
        float *at = data;
        for (int i = 0; i < 3; at += full[i].count, i++) {
            full[i] = (struct comm_span){at, part_counts[i] * size};
            parts[i] = (struct comm_span){in_place ? at + rank * part_counts[i] : elsewhere + i * 9001,
                                          part_counts[i]};
        }
        fill(data, at - (float *)data, DTYPE_F32, rank);
        if (in_place)
            must(comm_reduce_scatter(comm, full, parts, 3, DTYPE_F32, &why) ||
                     comm_all_gather(comm, parts, full, 3, DTYPE_F32, &why),
                 &why);
        else
            must(comm_start_reduce_scatter(comm, full, parts, 3, DTYPE_F32, NULL, &why) ||
                     comm_start_all_gather(comm, parts, full, 3, DTYPE_F32, NULL, &why) ||
                     comm_wait(comm, &why),
                 &why);
        keep(record, data, (size_t)(at - (float *)data) * sizeof *at);
    }
    free(elsewhere);
}

static void every_broadcast(struct comm *comm, void *data, struct record *record)
{
    struct error why;
    for (int root = 0; root < comm_size(comm); root++) {
        struct comm_span span = {data, COUNT};
        fill(data, COUNT, DTYPE_F32, comm_rank(comm));
        if (root % 2)
            must(comm_broadcast(comm, &span, 1, DTYPE_F32, root, &why), &why);
        else
            must(comm_start_broadcast(comm, &span, 1, DTYPE_F32, root, NULL, &why) || comm_wait(comm, &why),
                 &why);
        keep(record, data, COUNT * sizeof(float));
    }
}

/* Around the ring: receives are started before sends and in the other order of tags, with a collective between them. */
static void every_message(struct comm *comm, void *data, struct record *record)
{
    int size = comm_size(comm), rank = comm_rank(comm);
    struct error why;
    float *out = data, *in = out + COUNT / 2, sum = (float)rank;
    struct comm_span sum_span = {&sum, 1};
    memset(in, 0, COUNT / 2 * sizeof *in);
    fill(out, COUNT / 2, DTYPE_F32, rank);
    for (int tag = 2; tag >= 0; tag--) {
        struct comm_span span = {in + tag * 50000, tag * 20001};
        must(comm_start_receive(comm, &span, DTYPE_F32, (rank + size - 1) % size, tag, NULL, &why), &why);
    }
    must(comm_start_all_reduce(comm, &sum_span, 1, DTYPE_F32, COMM_SUM, NULL, &why), &why);
    must(comm_barrier(comm, &why), &why);
    for (int tag = 0; tag < 3; tag++) {
        struct comm_span span = {out + tag * 7, tag * 20001};
        must(comm_start_send(comm, &span, DTYPE_F32, (rank + 1) % size, tag, NULL, &why), &why);
    }
    must(comm_wait(comm, &why), &why);
    keep(record, in, COUNT / 2 * sizeof *in);
    keep(record, &sum, sizeof sum);
}

static void every_call(struct comm *comm, struct record *record)
{
    void *data = host_alloc(COUNT * sizeof(double));
    every_all_reduce(comm, data, record);
    every_parts_call(comm, data, record);
    every_broadcast(comm, data, record);
    every_message(comm, data, record);
    free(data);
}

/* On the world and on two halves of it, in the reverse order of ranks, which work at the same time. */
static void run_all(struct comm *world, struct record *record)
{
    struct error why;
    struct comm *half = NULL, *none = NULL;
    every_call(world, record);
    must(comm_split(world, comm_rank(world) % 2, -comm_rank(world), &half, &why), &why);
    must(comm_split(world, -1, 0, &none, &why), &why);
    every_call(half, record);
    float here[1000], there[1000];
    struct comm_span spans[2] = {{here, 1000}, {there, 1000}};
    fill(here, 1000, DTYPE_F32, comm_rank(world));
    fill(there, 1000, DTYPE_F32, comm_rank(world));
    must(comm_start_all_reduce(half, &spans[1], 1, DTYPE_F32, COMM_SUM, NULL, &why), &why);
    must(comm_start_all_reduce(world, &spans[0], 1, DTYPE_F32, COMM_SUM, NULL, &why), &why);
    must(comm_wait(world, &why), &why);
    must(comm_wait(half, &why), &why);
    keep(record, here, sizeof here);
    keep(record, there, sizeof there);
    comm_close(half);
}

static void *run_thread(void *context)
{
    struct thread_run *run = context;
    run_all(run->comm, &run->record);
    return NULL;
}

/* All ranks once more, as threads of this process. */
static int compare(struct comm *world)
{
    int size = comm_size(world), rank = comm_rank(world);
    struct record record = {0};
    run_all(world, &record);
    struct comm *comms[MOST_RANKS];
    struct thread_run runs[MOST_RANKS] = {0};
    pthread_t threads[MOST_RANKS];
    must(comm_open_threads(size, comms, &err), &err);
    for (int r = 0; r < size; r++) {
        runs[r].comm = comms[r];
        pthread_create(&threads[r], NULL, run_thread, &runs[r]);
    }
    for (int r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
    bool same =
        runs[rank].record.used == record.used && !memcmp(runs[rank].record.bytes, record.bytes, record.used);
    printf("rank %d of %d: %zu bytes %s\n", rank, size, record.used, same ? "are the same" : "DIFFER");
    for (int r = 0; r < size; r++) {
        comm_close(comms[r]);
        free(runs[r].record.bytes);
    }
    free(record.bytes);
    return !same;
}

static int wait_and_close(struct comm *world)
{
    int status = comm_wait(world, &err);
    comm_close(world);
    must(status, &err);
    return 0;
}

static int reduce_and_close(struct comm *world, enum comm_reduction reduction)
{
    static float values[1000];
    struct comm_span span = {values, 1000};
    must(comm_start_all_reduce(world, &span, 1, DTYPE_F32, reduction, NULL, &err), &err);
    return wait_and_close(world);
}

/* Even ranks in a collective, odd ones for a message. */
static int wait_for_rank_1(struct comm *world)
{
    static float value;
    struct comm_span span = {&value, 1};
    if (comm_rank(world) % 2 == 0)
        return reduce_and_close(world, COMM_SUM);
    must(comm_start_receive(world, &span, DTYPE_F32, 1, 7, NULL, &err), &err);
    return wait_and_close(world);
}

/* All at the same moment, as when replicas find the same fault in what they have in common. */
static int abort_together(struct comm *world)
{
    comm_barrier(world, &err);
    comm_abort(world, "loss is NaN in step 3");
    if (comm_failed_first(world))
        fprintf(stderr, "launched_ranks: rank %d: loss is NaN in step 3\n", comm_rank(world));
    comm_close(world);
    return 1;
}

static int fail(struct comm *world, const char *how)
{
    if (!strcmp(how, "together"))
        return abort_together(world);
    if (!strcmp(how, "stuck") && comm_rank(world) == 0)
        for (;;)
            pause();
    if (!strcmp(how, "differ"))
        return reduce_and_close(world, comm_rank(world) == 1 ? COMM_MAX : COMM_SUM);
    if (comm_rank(world) != 1)
        return wait_for_rank_1(world);
    usleep(200 * 1000);
    if (!strcmp(how, "killed"))
        raise(SIGKILL);
    if (!strcmp(how, "leave")) {
        comm_close(world);
        return 0;
    }
    comm_abort(world, "loss is NaN in step 3");
    fprintf(stderr, "launched_ranks: rank 1: loss is NaN in step 3\n");
    comm_close(world);
    return 1;
}

static double all_reduce_seconds(struct comm *world, float *data, int64_t count, int times)
{
    struct comm_span span = {data, count};
    must(comm_barrier(world, &err), &err);
    int64_t start_ns = clock_ns();
    for (int i = 0; i < times; i++) {
        must(comm_start_all_reduce(world, &span, 1, DTYPE_F32, COMM_SUM, NULL, &err), &err);
        must(comm_wait(world, &err), &err);
    }
    return (double)(clock_ns() - start_ns) * 1e-9 / times;
}

static void measure(struct comm *world, const char *transport)
{
    enum { LARGE = 16 << 20 };
    float *data = host_alloc(LARGE * sizeof *data);
    double large_s = all_reduce_seconds(world, data, LARGE, 5),
           small_s = all_reduce_seconds(world, data, 1, 500);
    if (comm_rank(world) == 0)
        printf("%s, %d ranks: all-reduce of 1 F32 %.1f us, of 64 MiB %.2f GB/s\n", transport,
               comm_size(world), small_s * 1e6, LARGE * sizeof *data / large_s * 1e-9);
    free(data);
}

static void *measure_thread(void *context)
{
    measure(context, "threads");
    return NULL;
}

static int speed(struct comm *world)
{
    measure(world, "MPI");
    if (comm_rank(world) == 0) {
        struct comm *comms[MOST_RANKS];
        pthread_t threads[MOST_RANKS];
        must(comm_open_threads(comm_size(world), comms, &err), &err);
        for (int r = 0; r < comm_size(world); r++)
            pthread_create(&threads[r], NULL, measure_thread, comms[r]);
        for (int r = 0; r < comm_size(world); r++) {
            pthread_join(threads[r], NULL);
            comm_close(comms[r]);
        }
    }
    return comm_barrier(world, &err);
}

int main(int argc, char **argv)
{
    struct comm *world = NULL;
    enum comm_launch launch = comm_open_launched(&world, &err);
    if (argc != 2 || launch != COMM_LAUNCH_OPENED) {
        fprintf(stderr, "launched_ranks: %s\n",
                launch == COMM_LAUNCH_FAILED ? err.text : "start with mpirun, and one word");
        return 2;
    }
    if (strcmp(argv[1], "compare") && strcmp(argv[1], "speed"))
        return fail(world, argv[1]);
    int status = strcmp(argv[1], "speed") ? compare(world) : speed(world);
    comm_close(world);
    return status;
}
