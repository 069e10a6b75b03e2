/* Rotary embedding of one position: the angles of its pairs once a block, and the turn of a few pairs.
 * Angles are in double (a position of 100,000 in float would be off by 0.004 radians) and are brought within half a turn
 * before sincosf(); at one angle per pair and position that is a few per cent of the time where doubles are fast. */
#ifndef MEMPLAN_KERNELS_CUDA_ROPE_TURN_CUH
#define MEMPLAN_KERNELS_CUDA_ROPE_TURN_CUH

#include "kernels/cuda/launch.cuh"

struct rope_angles {
    int pairs;   /* D / 2 */
    double step; /* log2(theta) * -2 / D: frequency i is 2^(i step) */
    bool inverse;
};

static inline rope_angles rope_angles_of(int64_t D, double theta, bool inverse)
{
    return {static_cast<int>(D / 2), log2(theta) * -2 / static_cast<double>(D), inverse};
}

/* cosine and sine of position t for each pair, by the whole block. */
__device__ static void rope_make_turns(const rope_angles &angles, int64_t t, float *cosine, float *sine)
{
    const double turn = 6.283185307179586476925;
    for (int i = threadIdx.x; i < angles.pairs; i += blockDim.x) {
        double angle = static_cast<double>(t) * exp2(i * angles.step);
        sincosf(static_cast<float>(angle - turn * rint(angle / turn)), &sine[i], &cosine[i]);
        if (angles.inverse)
            sine[i] = -sine[i];
    }
}

/* Pairs (x[k], y[k]) turn by the angles of cosine[k] and sine[k]. */
template <int N>
__device__ __forceinline__ void rope_turn(float (&x)[N], float (&y)[N], const float *cosine,
                                          const float *sine)
{
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float turned = x[k] * cosine[k] - y[k] * sine[k];
        y[k] = y[k] * cosine[k] + x[k] * sine[k];
        x[k] = turned;
    }
}

#endif
