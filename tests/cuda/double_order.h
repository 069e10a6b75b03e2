/* Which work is known to be done before which, in a program that uses CUDA's streams: each stream, each host thread and each
 * event has a clock that says how far into every stream it can see. Two streams (or a stream and the host) that touch the
 * same bytes, one of them writing, must see each other; who does not has raced, and the double says so. */
#ifndef MEMPLAN_TESTS_CUDA_DOUBLE_ORDER_H
#define MEMPLAN_TESTS_CUDA_DOUBLE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ORDER_STREAMS = 128 };

struct order_clock {
    int64_t seen[ORDER_STREAMS]; /* by number of the stream: how many of its works are known to be done */
};

/* The stream's number is the place of its own count in its clock. */
struct order_stream {
    int number;
    struct order_clock clock;
};

/* `bytes` from `start` on; 0: an unknown number, at least the first. */
struct order_access {
    const void *start;
    size_t bytes;
    bool writes;
    const char *what; /* "cudaMemcpyAsync", the name of a kernel; stays */
};

/* A new stream's number; those of closed streams are used again. -1: too many. */
int order_open(struct order_stream *stream);
void order_close(struct order_stream *stream);

void order_see(struct order_clock *clock, const struct order_clock *other);

/* The stream's next work touches these. NULL, or a sentence about a race, until the next call. */
const char *order_work(struct order_stream *stream, const struct order_access *accesses, int count);

/* The bytes are no more, or somebody else's: what was done with them is forgotten. */
void order_forget(const void *start, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
