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

enum { CPU_TILE_BLOCK = 8 };

typedef float cpu_octet __attribute__((vector_size(CPU_TILE_BLOCK * 4), aligned(4), may_alias));
typedef int32_t cpu_octet_index __attribute__((vector_size(CPU_TILE_BLOCK * 4)));

/* One step of cpu_tile_transpose(): exchanges between rows `distance` apart. Indices from 8 on are the second row's. */
static inline __attribute__((always_inline)) void cpu_tile_exchange(cpu_octet *rows, int distance, cpu_octet_index first,
                                                                    cpu_octet_index second)
{
    for (int i = 0; i < CPU_TILE_BLOCK; i++)
        if (!(i & distance)) {
            cpu_octet a = rows[i], b = rows[i + distance];
            rows[i] = __builtin_shuffle(a, b, first);
            rows[i + distance] = __builtin_shuffle(a, b, second);
        }
}

/* to(8,8) = from(8,8) transposed: the quarters change places, then the quarters of quarters, then single elements
 * (Eklundh 1972). */
static inline void cpu_tile_transpose(const float *from, int64_t from_row, float *to, int64_t to_row)
{
    cpu_octet rows[CPU_TILE_BLOCK];
    for (int i = 0; i < CPU_TILE_BLOCK; i++)
        rows[i] = *(const cpu_octet *)(from + i * from_row);
    cpu_tile_exchange(rows, 4, (cpu_octet_index){0, 1, 2, 3, 8, 9, 10, 11},
                      (cpu_octet_index){4, 5, 6, 7, 12, 13, 14, 15});
    cpu_tile_exchange(rows, 2, (cpu_octet_index){0, 1, 8, 9, 4, 5, 12, 13},
                      (cpu_octet_index){2, 3, 10, 11, 6, 7, 14, 15});
    cpu_tile_exchange(rows, 1, (cpu_octet_index){0, 8, 2, 10, 4, 12, 6, 14},
                      (cpu_octet_index){1, 9, 3, 11, 5, 13, 7, 15});
    for (int i = 0; i < CPU_TILE_BLOCK; i++)
        *(cpu_octet *)(to + i * to_row) = rows[i];
}

#endif
