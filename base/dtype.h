/* Element types, and the small conversions between them that several folders need. */
#ifndef MEMPLAN_BASE_DTYPE_H
#define MEMPLAN_BASE_DTYPE_H

#include <stdint.h>
#include <string.h>

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_F64, DTYPE_I32 };

static inline int64_t dtype_bytes(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? 2 : dtype == DTYPE_F64 ? 8 : 4;
}

/* "F32", "BF16", "F64", "I32": the spelling of safetensors. */
static inline const char *dtype_name(enum dtype dtype)
{
    static const char *const names[] = {"F32", "BF16", "F64", "I32"};
    return names[dtype];
}

static inline float bf16_to_f32(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Every half is a float too, exactly. */
static inline float f16_to_f32(uint16_t half)
{
    uint32_t exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    uint32_t bits = (exponent == 0x1f ? 0xff : exponent + 127 - 15) << 23 | fraction << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    if (exponent == 0)
        value = (float)fraction * 0x1p-24f;
    return half >> 15 ? -value : value;
}

/* Rounds to nearest, ties to even; NaN stays NaN. */
static inline uint16_t f32_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
