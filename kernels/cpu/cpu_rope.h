/* Rotary embedding of one head, for the kernels that do it on the way. */
#ifndef MEMPLAN_KERNELS_CPU_ROPE_H
#define MEMPLAN_KERNELS_CPU_ROPE_H

#include <stdbool.h>
#include <stdint.h>

/* theta^(-2i/D) for each of D / 2 pairs: the caller's, to be freed with free(). */
double *cpu_rope_frequencies(int64_t D, double theta);

/* cosine and sine of position t's angle for each pair. */
void cpu_rope_angles(const double *frequency, int64_t half, int64_t t, bool inverse, float *cosine, float *sine);

/* Pairs (low[i], high[i]) turn by the angle with these cosines and sines. */
void cpu_rope_turn(int64_t half, float *low, float *high, const float *cosine, const float *sine);

#endif
