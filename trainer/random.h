/* Random numbers that are looked up, not drawn: a value depends only on (seed, stream, index). So weights and the
 * order of the data are the same for every number of ranks, threads and micro-batches, and nothing has to be saved
 * to resume.
 *
 * The bits come from Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3, SC
 * 2011). Values of different kinds at the same index come from the same bits: give each purpose a stream of its own. */
#ifndef MEMPLAN_TRAINER_RANDOM_H
#define MEMPLAN_TRAINER_RANDOM_H

#include <stdint.h>

struct random_stream {
    uint64_t key;
};

/* Stream `id` of a seed: one per tensor, per epoch, per purpose. */
struct random_stream random_stream(uint64_t seed, uint64_t id);

/* 64 random bits. */
uint64_t random_bits(struct random_stream stream, uint64_t index);
/* A whole number in [0, limit), each equally likely; limit >= 1. */
int64_t random_below(struct random_stream stream, uint64_t index, int64_t limit);

/* Normal values, mean 0. out[i] is the value at index first + i: parts of one tensor may be filled by different ranks or threads. */
void random_fill_normal(struct random_stream stream, uint64_t first, double deviation, float *out, int64_t count);

/* Where a shuffle of [0, count) puts `index`: a permutation that takes no memory. */
int64_t random_shuffle(struct random_stream stream, int64_t count, int64_t index);

#endif
