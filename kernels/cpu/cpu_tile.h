/* Small matrices in the cache, for attention: products with a block of c in registers, and transposition. Columns come in
 * multiples of CPU_TILE_COLUMNS; whoever lays out the scratch pads to that. Everything is inline, because a product whose
 * strides are known runs a fifth faster. */
#ifndef MEMPLAN_KERNELS_CPU_TILE_H
#define MEMPLAN_KERNELS_CPU_TILE_H

#include <stdbool.h>
#include <stdint.h>

/* Registers decide how much of c they hold: AVX2 has 16 of 8 floats, AVX-512 has 32 of 16. */
#ifdef __AVX512F__
enum { CPU_TILE_LANES = 16, CPU_TILE_ROWS = 8 };
#else
enum { CPU_TILE_LANES = 8, CPU_TILE_ROWS = 6 };
#endif
enum { CPU_TILE_COLUMNS = 2 * CPU_TILE_LANES, CPU_TILE_OCTET = 8 };

/* Four-byte alignment: rows of scratch start anywhere. */
typedef float cpu_vector __attribute__((vector_size(CPU_TILE_LANES * 4), aligned(4), may_alias));
typedef float cpu_octet __attribute__((vector_size(CPU_TILE_OCTET * 4), aligned(4), may_alias));
typedef int32_t cpu_octet_index __attribute__((vector_size(CPU_TILE_OCTET * 4)));

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
    cpu_vector left[CPU_TILE_ROWS], right[CPU_TILE_ROWS];
    for (int i = 0; i < rows; i++) {
        left[i] = add ? *(const cpu_vector *)(c + i * c_row) : (cpu_vector){0};
        right[i] = add ? *(const cpu_vector *)(c + i * c_row + CPU_TILE_LANES) : (cpu_vector){0};
    }
    for (int64_t k = 0; k < depth; k++) {
        cpu_vector b_left = *(const cpu_vector *)(b + k * b_row);
        cpu_vector b_right = *(const cpu_vector *)(b + k * b_row + CPU_TILE_LANES);
        for (int i = 0; i < rows; i++) {
            float value = a.data[i * a.row + k * a.step];
            left[i] += value * b_left;
            right[i] += value * b_right;
        }
    }
    for (int i = 0; i < rows; i++) {
        *(cpu_vector *)(c + i * c_row) = left[i];
        *(cpu_vector *)(c + i * c_row + CPU_TILE_LANES) = right[i];
    }
}

/* The same for any number of rows and a multiple of CPU_TILE_COLUMNS columns. The last rows go as two blocks of even size
 * rather than a full one and a rest: a small block has too few sums to hide the latency of a multiply-add. */
static inline __attribute__((always_inline)) void cpu_tile_multiply(int64_t rows, int64_t columns, int64_t depth,
                                                                    struct cpu_strided a, const float *b, int64_t b_row,
                                                                    float *c, int64_t c_row, bool add)
{
    enum { FULL = CPU_TILE_ROWS, LESS = CPU_TILE_ROWS - 1 };
    for (int64_t j = 0; j < columns; j += CPU_TILE_COLUMNS) {
        struct cpu_strided part = a;
        float *out = c + j;
        int64_t left = rows;
        for (; left >= FULL && left != 2 * LESS; left -= FULL, part.data += FULL * a.row, out += FULL * c_row)
            cpu_tile_block(FULL, depth, part, b + j, b_row, out, c_row, add);
        for (; left >= LESS; left -= LESS, part.data += LESS * a.row, out += LESS * c_row)
            cpu_tile_block(LESS, depth, part, b + j, b_row, out, c_row, add);
        for (; left > 0; left--, part.data += a.row, out += c_row)
            cpu_tile_block(1, depth, part, b + j, b_row, out, c_row, add);
    }
}

/* Exchanges between rows `distance` apart. Indices from 8 on are the second row's. */
static inline __attribute__((always_inline)) void cpu_tile_exchange(cpu_octet *rows, int distance, cpu_octet_index first,
                                                                    cpu_octet_index second)
{
    for (int i = 0; i < CPU_TILE_OCTET; i++)
        if (!(i & distance)) {
            cpu_octet a = rows[i], b = rows[i + distance];
            rows[i] = __builtin_shuffle(a, b, first);
            rows[i + distance] = __builtin_shuffle(a, b, second);
        }
}

/* to(columns, rows) = from(rows, columns) transposed, both multiples of 8. Eight by eight: the quarters change places, then
 * the quarters of quarters, then single elements (Eklundh 1972). */
static inline void cpu_tile_transpose(int64_t rows, int64_t columns, const float *from, float *to)
{
    for (int64_t i = 0; i < rows; i += CPU_TILE_OCTET)
        for (int64_t j = 0; j < columns; j += CPU_TILE_OCTET) {
            cpu_octet block[CPU_TILE_OCTET];
            for (int r = 0; r < CPU_TILE_OCTET; r++)
                block[r] = *(const cpu_octet *)(from + (i + r) * columns + j);
            cpu_tile_exchange(block, 4, (cpu_octet_index){0, 1, 2, 3, 8, 9, 10, 11},
                              (cpu_octet_index){4, 5, 6, 7, 12, 13, 14, 15});
            cpu_tile_exchange(block, 2, (cpu_octet_index){0, 1, 8, 9, 4, 5, 12, 13},
                              (cpu_octet_index){2, 3, 10, 11, 6, 7, 14, 15});
            cpu_tile_exchange(block, 1, (cpu_octet_index){0, 8, 2, 10, 4, 12, 6, 14},
                              (cpu_octet_index){1, 9, 3, 11, 5, 13, 7, 15});
            for (int r = 0; r < CPU_TILE_OCTET; r++)
                *(cpu_octet *)(to + (j + r) * rows + i) = block[r];
        }
}

#endif
