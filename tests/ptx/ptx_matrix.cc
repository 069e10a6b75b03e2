/* Tensor cores, and the loads that feed them, by the fragments of the PTX manual ("Matrix Fragments for mma.m16n8k16", "ldmatrix").
 * Written from the manual, not from kernels/cuda/mma.cuh: two readings must agree. The whole warp comes.
 *
 * The manual leaves order and rounding of an mma's sums open. Measured on GPUs (Fasi, Higham, Mikaitis, Pranesh: Numerical
 * behavior of NVIDIA tensor cores, PeerJ Computer Science 7, 2021): products are exact; those of a few elements and the sum so
 * far are aligned to the largest of them and cut off towards zero, with at most a few bits more than F32 has; and so is the result.
 * Here 8 products at a time are added so, with no bit more than F32's 24: what holds for that holds on a GPU that keeps
 * more. An error of 8 units in the last place of the largest term, per 8 products, always towards zero. */
#include "tests/ptx/ptx_execute.h"
#include "tests/ptx/ptx_table.h"

#include <cmath>

namespace ptx
{

namespace
{

enum { M = 16, N = 8, K = 16, SUMMED = 8 };

/* ---- sums ---- */

/* 2 to the exponent of a number that is not 0, subnormal or infinite. */
double power_below(double a)
{
    uint64_t bits;
    memcpy(&bits, &a, sizeof bits);
    bits &= 0x7ff0000000000000u;
    memcpy(&a, &bits, sizeof a);
    return a;
}

/* To F32, towards zero. */
float cut(double a)
{
    float near = static_cast<float>(a);
    uint32_t bits;
    if (!(std::fabs(static_cast<double>(near)) > std::fabs(a)) || std::fabs(a) >= 0x1p128)
        return near;
    memcpy(&bits, &near, sizeof bits);
    bits--;
    memcpy(&near, &bits, sizeof near);
    return near;
}

/* sums[n] += a[0] b[0][n] + ... + a[7] b[7][n], all n at once. */
void add_products(float *sums, const double *a, const double (*b)[N])
{
    double largest[N], total[N], terms[SUMMED][N];
    for (int n = 0; n < N; n++)
        largest[n] = std::fabs(static_cast<double>(sums[n]));
    for (int k = 0; k < SUMMED; k++)
        for (int n = 0; n < N; n++) {
            terms[k][n] = a[k] * b[k][n];
            largest[n] = std::fabs(terms[k][n]) > largest[n] ? std::fabs(terms[k][n]) : largest[n];
        }
    for (int n = 0; n < N; n++) {
        /* NaN and infinity add up to themselves; zeros to zero. */
        const bool usual = largest[n] > 0x1p-300 && largest[n] < 0x1p300;
        const double unit = usual ? power_below(largest[n]) * 0x1p-23 : 0x1p-1000, per_unit = 1 / unit;
        double sum = std::trunc(sums[n] * per_unit);
        for (int k = 0; k < SUMMED; k++)
            sum += std::trunc(terms[k][n] * per_unit);
        total[n] = sum * unit;
    }
    for (int n = 0; n < N; n++)
        sums[n] = cut(total[n]);
}

/* ---- fragments ---- */

double element_of(uint32_t pair, unsigned upper)
{
    const uint32_t bits = upper ? pair & 0xffff0000u : pair << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* By the manual, with group = lane / 4 and within = lane % 4: element i of 8 of a is in row group, + 8 for i in 2, 3, 6, 7, and
 * column 2 within + i % 2, + 8 for i >= 4; element i of 4 of b in row 2 within + i % 2, + 8 for i >= 2, and column group;
 * element i of 4 of c and d in row group, + 8 for i >= 2, and column 2 within + i % 2. */
void multiply_add(warp &w, const instruction &it, uint32_t)
{
    double a[M][K], b[K][N];
    float c[M][N];
    for (unsigned lane = 0; lane < LANES; lane++) {
        const unsigned group = lane / 4, within = lane % 4;
        for (unsigned i = 0; i < 8; i++)
            a[group + (i / 2 % 2 ? 8 : 0)][2 * within + i % 2 + (i >= 4 ? 8 : 0)] =
                element_of(w.at<uint32_t>(it.at[4 + i / 2])[lane], i % 2);
        for (unsigned i = 0; i < 4; i++)
            b[2 * within + i % 2 + (i >= 2 ? 8 : 0)][group] =
                element_of(w.at<uint32_t>(it.at[8 + i / 2])[lane], i % 2);
        for (unsigned i = 0; i < 4; i++)
            c[group + (i >= 2 ? 8 : 0)][2 * within + i % 2] = w.at<float>(it.at[10 + i])[lane];
    }
    for (unsigned row = 0; row < M; row++)
        for (unsigned k = 0; k < K; k += SUMMED)
            add_products(c[row], a[row] + k, b + k);
    for (unsigned lane = 0; lane < LANES; lane++) {
        const unsigned group = lane / 4, within = lane % 4;
        for (unsigned i = 0; i < 4; i++)
            w.at<float>(it.at[i])[lane] = c[group + (i >= 2 ? 8 : 0)][2 * within + i % 2];
    }
}

/* Lanes 8 i .. 8 i + 7 name the rows of matrix i, 16 bytes each. Lane l gets of each matrix the pair of row l / 4 at columns
 * 2 (l % 4) and the next; transposed, of column l / 4 at these rows. */
template <bool TRANSPOSED> void load_matrices(warp &w, const instruction &it, uint32_t)
{
    uint16_t rows[LANES][8];
    for (unsigned lane = 0; lane < LANES; lane++)
        read_shared(w, it, 4, lane, rows[lane], sizeof rows[lane]);
    for (unsigned i = 0; i < 4; i++)
        for (unsigned lane = 0; lane < LANES; lane++) {
            const unsigned across = lane / 4, along = 2 * (lane % 4);
            const uint32_t low = TRANSPOSED ? rows[8 * i + along][across] : rows[8 * i + across][along];
            const uint32_t high =
                TRANSPOSED ? rows[8 * i + along + 1][across] : rows[8 * i + across][along + 1];
            w.at<uint32_t>(it.at[i])[lane] = low | high << 16;
        }
}

const form list[] = {
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "{wwww}={wwww}{ww}{wwww}", multiply_add,
     step::meet},
    {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", "{wwww}=@", load_matrices<false>, step::meet},
    {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "{wwww}=@", load_matrices<true>, step::meet},
};

} // namespace

forms matrix_forms()
{
    return {list, sizeof list / sizeof *list};
}

} // namespace ptx
