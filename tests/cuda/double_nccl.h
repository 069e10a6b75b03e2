/* Stands in for NCCL between the threads of one process, in tests: data really move, and what the real one leaves undefined
 * ends the program with a sentence (double_complain()).
 *
 * It checks: that buffers are living device memory and long enough; types, counts and ranks; that all ranks of a communicator
 * call the same, and sends meet receives of their length; calls into a communicator that is busy, or gone; that streams wait
 * for what made the data, and are waited for before the data are used (double_runtime.h); that no communicator is left at
 * the end, nor closed while a graph holds its calls; that nothing is captured which NCCL would first have to connect for. Ranks
 * that wait for each other for ever are found by whoever waits too long: the sentence says what each rank waits for.
 *
 * Only communicators that do not block are known. A group of calls that was never made before is in progress until the ranks it
 * needs have come, others as long as it takes to ask; data move when the streams of all have come to it, by who comes last. Sums are added in the order of a ring, which begins elsewhere for every piece, and
 * bf16 is rounded after each addition.
 *
 *     DOUBLE_NCCL_TIMEOUT=60            seconds
 *     DOUBLE_NCCL_FAIL=NAME:N[:CODE]    the N-th call of that function fails, with ncclSystemError or this number;
 *                                       ncclCommGetAsyncError finds out that the communicator has failed */
#ifndef MEMPLAN_TESTS_CUDA_DOUBLE_NCCL_H
#define MEMPLAN_TESTS_CUDA_DOUBLE_NCCL_H

#include <stdint.h>

/* Calls that have moved data, of all ranks together. */
int64_t double_nccl_moved(void);
/* From now on all communicators know that another process is gone. */
void double_nccl_lose(void);
/* Communicators that are neither destroyed nor aborted. */
int double_nccl_left(void);

#endif
