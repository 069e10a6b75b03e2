/* Products of small matrices in the cache, for attention: a block of rows by two vectors of columns is kept in registers
 * while the depth runs. Columns are padded to CPU_TILE_COLUMNS by whoever lays out the scratch. */
#ifndef MEMPLAN_KERNELS_CPU_TILE_H
#define MEMPLAN_KERNELS_CPU_TILE_H

#include <stdbool.h>
#include <stdint.h>

/* Registers decide: AVX2 has 16 of 8 floats, AVX-512 has 32 of 16. */
#ifdef __AVX512F__
enum { CPU_TILE_LANES = 16, CPU_TILE_ROWS = 12 };
#else
enum { CPU_TILE_LANES = 8, CPU_TILE_ROWS = 6 };
#endif
enum { CPU_TILE_VECTORS = 2, CPU_TILE_COLUMNS = CPU_TILE_VECTORS * CPU_TILE_LANES };

/* Four-byte alignment: rows of scratch start anywhere. */
typedef float cpu_vector __attribute__((vector_size(CPU_TILE_LANES * 4), aligned(4), may_alias));

/* Element (i, k) is at data[i * row + k * step]. */
struct cpu_strided {
    const float *data;
    int64_t row, step;
};

/* c(rows, CPU_TILE_COLUMNS) = or += a(rows, depth) b(depth, CPU_TILE_COLUMNS); `rows` is a constant after inlining. */
static inline __attribute__((always_inline)) void cpu_tile_block(int rows, int64_t depth, struct cpu_strided a,
                                                                 const float *b, int64_t b_row, float *c,
                                                                 int64_t c_row, bool add)
{
    cpu_vector sums[CPU_TILE_ROWS][CPU_TILE_VECTORS];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < CPU_TILE_VECTORS; j++)
            sums[i][j] = add ? *(const cpu_vector *)(c + i * c_row + j * CPU_TILE_LANES) : (cpu_vector){0};
    for (int64_t k = 0; k < depth; k++) {
        cpu_vector b0 = *(const cpu_vector *)(b + k * b_row);
        cpu_vector b1 = *(const cpu_vector *)(b + k * b_row + CPU_TILE_LANES);
        for (int i = 0; i < rows; i++) {
            float value = a.data[i * a.row + k * a.step];
            sums[i][0] += value * b0;
            sums[i][1] += value * b1;
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < CPU_TILE_VECTORS; j++)
            *(cpu_vector *)(c + i * c_row + j * CPU_TILE_LANES) = sums[i][j];
}

/* The same for any number of rows and a multiple of CPU_TILE_COLUMNS columns. */
static inline void cpu_tile_multiply(int64_t rows, int64_t columns, int64_t depth, struct cpu_strided a, const float *b,
                                     int64_t b_row, float *c, int64_t c_row, bool add)
{
    for (int64_t j = 0; j < columns; j += CPU_TILE_COLUMNS) {
        int64_t i = 0;
        for (; i + CPU_TILE_ROWS <= rows; i += CPU_TILE_ROWS)
            cpu_tile_block(CPU_TILE_ROWS, depth, (struct cpu_strided){a.data + i * a.row, a.row, a.step}, b + j, b_row,
                           c + i * c_row + j, c_row, add);
        for (; i + 4 <= rows; i += 4)
            cpu_tile_block(4, depth, (struct cpu_strided){a.data + i * a.row, a.row, a.step}, b + j, b_row,
                           c + i * c_row + j, c_row, add);
        for (; i < rows; i++)
            cpu_tile_block(1, depth, (struct cpu_strided){a.data + i * a.row, a.row, a.step}, b + j, b_row,
                           c + i * c_row + j, c_row, add);
    }
}

#endif
