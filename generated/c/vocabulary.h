/* Vocabulary in portable C11: what the algorithm texts are written in, and the meaning of each word for every other
 * target. Vectors are eight 32-bit lanes; loops are short and of constant length, so that any compiler can vectorise. */
#ifndef TQV_H
#define TQV_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum {
    TQV_LANES = 8, /* 32-bit lanes of a vector */
    TQV_SUMS = 8,  /* vectors that sums may take of the registers */
    TQV_REGISTERS = 16, /* vectors that the machine holds: how large a block of products may be */
};

typedef struct {
    float v[8];
} tqv_f32;
typedef union {
    uint8_t u8[32];
    int8_t i8[32];
    uint16_t u16[16];
    int16_t i16[16];
    uint32_t u32[8];
    int32_t i32[8];
} tqv_bits;

#if defined(__GNUC__)
#define TQV_INLINE static inline __attribute__((always_inline, unused))
#else
#define TQV_INLINE static inline
#endif
/* A loop of constant length whose sums are to stay in registers. */
#define TQV_UNROLL
/* A function with a GQA ratio as its first argument: one body per ratio where that pays. */
#define TQV_SPECIALISE static
#define TQV_EACH for (int i = 0; i < 8; i++)
#define TQV_EACH16 for (int i = 0; i < 16; i++)
#define TQV_EACH_BYTE for (int i = 0; i < 32; i++)

/* ---- float ------------------------------------------------------------------------------------------------------ */

TQV_INLINE tqv_f32 tqv_set1(float x) {
    tqv_f32 y;
    TQV_EACH y.v[i] = x;
    return y;
}
TQV_INLINE tqv_f32 tqv_zero(void) {
    return tqv_set1(0.0f);
}
TQV_INLINE tqv_f32 tqv_load(const float *p) {
    tqv_f32 y;
    memcpy(&y, p, sizeof y);
    return y;
}
TQV_INLINE void tqv_store(float *p, tqv_f32 x) {
    memcpy(p, &x, sizeof x);
}
TQV_INLINE tqv_f32 tqv_add(tqv_f32 a, tqv_f32 b) {
    TQV_EACH a.v[i] += b.v[i];
    return a;
}
TQV_INLINE tqv_f32 tqv_sub(tqv_f32 a, tqv_f32 b) {
    TQV_EACH a.v[i] -= b.v[i];
    return a;
}
TQV_INLINE tqv_f32 tqv_mul(tqv_f32 a, tqv_f32 b) {
    TQV_EACH a.v[i] *= b.v[i];
    return a;
}
TQV_INLINE tqv_f32 tqv_div(tqv_f32 a, tqv_f32 b) {
    TQV_EACH a.v[i] /= b.v[i];
    return a;
}
TQV_INLINE tqv_f32 tqv_sqrt(tqv_f32 a) {
    TQV_EACH a.v[i] = sqrtf(a.v[i]);
    return a;
}
/* a*b + c; fused where the machine has it */
TQV_INLINE tqv_f32 tqv_fma(tqv_f32 a, tqv_f32 b, tqv_f32 c) {
    TQV_EACH a.v[i] = a.v[i] * b.v[i] + c.v[i];
    return a;
}
TQV_INLINE tqv_f32 tqv_max(tqv_f32 a, tqv_f32 b) {
    TQV_EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
    return a;
}
TQV_INLINE tqv_f32 tqv_min(tqv_f32 a, tqv_f32 b) {
    TQV_EACH a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
    return a;
}
TQV_INLINE tqv_f32 tqv_abs(tqv_f32 a) {
    TQV_EACH a.v[i] = fabsf(a.v[i]);
    return a;
}
/* neighbouring lanes change places */
TQV_INLINE tqv_f32 tqv_swap_pairs(tqv_f32 a) {
    tqv_f32 y;
    TQV_EACH y.v[i] = a.v[i ^ 1];
    return y;
}
TQV_INLINE float tqv_hsum(tqv_f32 a) {
    float s[4];
    for (int i = 0; i < 4; i++)
        s[i] = a.v[i] + a.v[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}
TQV_INLINE float tqv_hmax(tqv_f32 a) {
    float m = a.v[0];
    TQV_EACH m = m > a.v[i] ? m : a.v[i];
    return m;
}
/* lane i: the sum, the maximum of the lanes of v[i] */
TQV_INLINE tqv_f32 tqv_sums(const tqv_f32 v[TQV_LANES]) {
    tqv_f32 y;
    TQV_EACH y.v[i] = tqv_hsum(v[i]);
    return y;
}
TQV_INLINE tqv_f32 tqv_maxima(const tqv_f32 v[TQV_LANES]) {
    tqv_f32 y;
    TQV_EACH y.v[i] = tqv_hmax(v[i]);
    return y;
}
/* all ones in the lanes where a >= b */
TQV_INLINE tqv_bits tqv_ge(tqv_f32 a, tqv_f32 b) {
    tqv_bits y;
    TQV_EACH y.u32[i] = a.v[i] >= b.v[i] ? 0xffffffffu : 0;
    return y;
}
/* to nearest, ties to even; |a| < 2^22 */
TQV_INLINE tqv_bits tqv_to_i32(tqv_f32 a) {
    tqv_bits y;
    TQV_EACH y.i32[i] = (int32_t)((a.v[i] + 12582912.0f) - 12582912.0f);
    return y;
}
TQV_INLINE tqv_f32 tqv_from_i32(tqv_bits a) {
    tqv_f32 y;
    TQV_EACH y.v[i] = (float)a.i32[i];
    return y;
}
/* of signed byte k of each lane, times 2^24: bytes are at the top of words first */
TQV_INLINE tqv_f32 tqv_from_byte(tqv_bits a, int k) {
    tqv_f32 y;
    TQV_EACH y.v[i] = (float)a.i8[4 * i + k] * 0x1p24f;
    return y;
}
/* of TQV_LANES signed bytes */
TQV_INLINE tqv_f32 tqv_from_i8(const uint8_t *p) {
    tqv_f32 y;
    TQV_EACH y.v[i] = (float)(int8_t)p[i];
    return y;
}
/* Without branches: the exponent is shifted into place by a multiplication, which is exact, subnormals included. */
TQV_INLINE float tqv_half_to_float(uint16_t h) {
    const uint32_t rest = (uint32_t)(h & 0x7fff) << 13, special = rest >= 0x0f800000 ? 0x7f800000 : 0;
    uint32_t bits;
    float y;
    memcpy(&y, &rest, 4);
    y *= 0x1p112f;
    memcpy(&bits, &y, 4);
    bits |= special | (uint32_t)(h & 0x8000) << 16;
    memcpy(&y, &bits, 4);
    return y;
}
/* to nearest, ties to even; saturates at 65504 */
TQV_INLINE uint16_t tqv_float_to_half(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const float a = fabsf(x);
    if (a >= 65504.0f)
        return sign | 0x7bff;
    if (a < 0x1p-14f)
        return sign | (uint16_t)((a + 0.5f) * 0x1p24f - 0x1p23f);
    bits = (bits & 0x7fffffff) + 0xfff + (bits >> 13 & 1) - 0x38000000;
    return sign | (uint16_t)(bits >> 13);
}
/* LANES halves */
TQV_INLINE tqv_f32 tqv_from_f16(const uint8_t *p) {
    tqv_f32 y;
    uint16_t h[8];
    memcpy(h, p, sizeof h);
    TQV_EACH y.v[i] = tqv_half_to_float(h[i]);
    return y;
}
TQV_INLINE void tqv_to_f16(uint8_t *p, tqv_f32 a) {
    uint16_t h[8];
    TQV_EACH h[i] = tqv_float_to_half(a.v[i]);
    memcpy(p, h, sizeof h);
}
/* x[i] = 2^x[i] in n <= 4 vectors, for x <= 127; 2^-126 below -126. The C library's; without it decode.c makes its own. */
#define TQV_EXP2
TQV_INLINE void tqv_exp2(tqv_f32 *x, const int n) {
    for (int k = 0; k < n; k++)
        TQV_EACH x[k].v[i] = exp2f(x[k].v[i] > -126.0f ? x[k].v[i] : -126.0f);
}

/* ---- bytes, 16- and 32-bit integers ----------------------------------------------------------------------------- */

TQV_INLINE tqv_bits tqv_bset1(int32_t x) {
    tqv_bits y;
    TQV_EACH y.i32[i] = x;
    return y;
}
TQV_INLINE tqv_bits tqv_bzero(void) {
    return tqv_bset1(0);
}
TQV_INLINE tqv_bits tqv_bload(const void *p) {
    tqv_bits y;
    memcpy(&y, p, sizeof y);
    return y;
}
TQV_INLINE void tqv_bstore(void *p, tqv_bits x) {
    memcpy(p, &x, sizeof x);
}
TQV_INLINE tqv_bits tqv_and(tqv_bits a, tqv_bits b) {
    TQV_EACH a.u32[i] &= b.u32[i];
    return a;
}
TQV_INLINE tqv_bits tqv_or(tqv_bits a, tqv_bits b) {
    TQV_EACH a.u32[i] |= b.u32[i];
    return a;
}
TQV_INLINE tqv_bits tqv_xor(tqv_bits a, tqv_bits b) {
    TQV_EACH a.u32[i] ^= b.u32[i];
    return a;
}
TQV_INLINE tqv_bits tqv_add32(tqv_bits a, tqv_bits b) {
    TQV_EACH a.u32[i] += b.u32[i];
    return a;
}
TQV_INLINE tqv_bits tqv_sub32(tqv_bits a, tqv_bits b) {
    TQV_EACH a.u32[i] -= b.u32[i];
    return a;
}
/* x, and more where a >= b */
TQV_INLINE tqv_bits tqv_add_where_ge(tqv_f32 a, tqv_f32 b, tqv_bits x, int32_t more) {
    TQV_EACH x.i32[i] += a.v[i] >= b.v[i] ? more : 0;
    return x;
}
TQV_INLINE tqv_bits tqv_sub8(tqv_bits a, tqv_bits b) {
    TQV_EACH_BYTE a.u8[i] = (uint8_t)(a.u8[i] - b.u8[i]);
    return a;
}
TQV_INLINE tqv_bits tqv_abs8(tqv_bits a) {
    TQV_EACH_BYTE a.u8[i] = (uint8_t)(a.i8[i] < 0 ? -a.i8[i] : a.i8[i]);
    return a;
}
/* a where the mask has all ones, b elsewhere, by bytes */
TQV_INLINE tqv_bits tqv_select(tqv_bits mask, tqv_bits a, tqv_bits b) {
    TQV_EACH a.u32[i] = (a.u32[i] & mask.u32[i]) | (b.u32[i] & ~mask.u32[i]);
    return a;
}
/* the same by bits */
TQV_INLINE tqv_bits tqv_merge(tqv_bits mask, tqv_bits a, tqv_bits b) {
    TQV_EACH a.u32[i] = (a.u32[i] & mask.u32[i]) | (b.u32[i] & ~mask.u32[i]);
    return a;
}
/* every 16-bit lane right by the constant n; callers mask what crosses a byte */
TQV_INLINE tqv_bits tqv_srl16(tqv_bits x, int n) {
    TQV_EACH16 x.u16[i] = (uint16_t)(x.u16[i] >> n);
    return x;
}
/* a table of 16 signed bytes, and its entries by index bytes 0..15 */
TQV_INLINE tqv_bits tqv_table(const int8_t table[16]) {
    tqv_bits y;
    TQV_EACH_BYTE y.i8[i] = table[i & 15];
    return y;
}
TQV_INLINE tqv_bits tqv_lookup(tqv_bits table, tqv_bits index) {
    TQV_EACH_BYTE index.i8[i] = table.i8[index.u8[i] & 15];
    return index;
}
/* the entries whose indices are (x >> shift) & mask in each byte, shifted in 16-bit lanes */
TQV_INLINE tqv_bits tqv_pick(tqv_bits table, tqv_bits x, int shift, int mask) {
    return tqv_lookup(table, tqv_and(tqv_srl16(x, shift), tqv_bset1(mask * 0x01010101)));
}
/* the same with bits 3 of `sign` in the indices */
TQV_INLINE tqv_bits tqv_pick_signed(tqv_bits table, tqv_bits x, int shift, int mask, tqv_bits sign) {
    return tqv_lookup(table, tqv_or(tqv_and(tqv_srl16(x, shift), tqv_bset1(mask * 0x01010101)), sign));
}
/* even and odd signed bytes in 16-bit lanes */
TQV_INLINE tqv_bits tqv_even16(tqv_bits x) {
    tqv_bits y;
    TQV_EACH16 y.i16[i] = x.i8[2 * i];
    return y;
}
TQV_INLINE tqv_bits tqv_odd16(tqv_bits x) {
    tqv_bits y;
    TQV_EACH16 y.i16[i] = x.i8[2 * i + 1];
    return y;
}
/* 16-bit lanes: sums of the two products unsigned byte * signed byte; must not overflow */
TQV_INLINE tqv_bits tqv_maddu8(tqv_bits u, tqv_bits s) {
    tqv_bits y;
    TQV_EACH16 y.i16[i] = (int16_t)(u.u8[2 * i] * s.i8[2 * i] + u.u8[2 * i + 1] * s.i8[2 * i + 1]);
    return y;
}
/* sum + per 32-bit lane the two products of 16-bit halves */
TQV_INLINE tqv_bits tqv_dot16(tqv_bits sum, tqv_bits a, tqv_bits b) {
    TQV_EACH sum.i32[i] += a.i16[2 * i] * b.i16[2 * i] + a.i16[2 * i + 1] * b.i16[2 * i + 1];
    return sum;
}
/* sum + the squares of four bytes of at most 127 */
TQV_INLINE tqv_bits tqv_squares8(tqv_bits sum, tqv_bits x) {
    TQV_EACH sum.i32[i] += x.i8[4 * i] * x.i8[4 * i] + x.i8[4 * i + 1] * x.i8[4 * i + 1] +
                           x.i8[4 * i + 2] * x.i8[4 * i + 2] + x.i8[4 * i + 3] * x.i8[4 * i + 3];
    return sum;
}
/* four words: even ones of the eight at p, or odd ones shifted left by n */
TQV_INLINE void tqv_join_words(const uint8_t *p, const int n, void *out) {
    uint32_t x[8], y[4];
    memcpy(x, p, sizeof x);
    for (int i = 0; i < 4; i++)
        y[i] = x[2 * i] | x[2 * i + 1] << n;
    memcpy(out, y, sizeof y);
}
/* words 0 to 2 of the four at p, with the bits in `mask` of word 3 shifted left by n, n + 1, n + 2 */
TQV_INLINE void tqv_add_spare(const void *p, const int n, const uint32_t mask, void *out) {
    uint32_t x[4];
    memcpy(x, p, sizeof x);
    for (int i = 0; i < 3; i++)
        x[i] |= x[3] << (n + i) & mask;
    memcpy(out, x, 12);
}
/* lane i negated where bit i of signs is set */
TQV_INLINE tqv_f32 tqv_flip(tqv_f32 x, uint32_t signs) {
    TQV_EACH x.v[i] = signs >> i & 1 ? -x.v[i] : x.v[i];
    return x;
}
TQV_INLINE tqv_f32 tqv_lookup_f32(const float table[8], tqv_bits index) {
    tqv_f32 y;
    TQV_EACH y.v[i] = table[index.u32[i] & 7];
    return y;
}
TQV_INLINE tqv_f32 tqv_lookup16_f32(const float table[16], tqv_bits index) {
    tqv_f32 y;
    TQV_EACH y.v[i] = table[index.u32[i] & 15];
    return y;
}
/* the low byte of every lane */
TQV_INLINE void tqv_store_u8(uint8_t *p, tqv_bits x) {
    TQV_EACH p[i] = (uint8_t)x.u32[i];
}
/* the low bytes of four vectors; 0 <= values < 128 */
TQV_INLINE tqv_bits tqv_low_bytes(const tqv_bits x[4]) {
    tqv_bits y;
    TQV_EACH_BYTE y.u8[i] = (uint8_t)x[i / 8].u32[i % 8];
    return y;
}
TQV_INLINE void tqv_prefetch(const void *p) {
    (void)p;
}

/* ---- runs of 16 values in 16-bit lanes, then in bytes; order is the target's own until tqv_run_sums -------------- */

TQV_INLINE int tqv_saturated(int x, int top) {
    return x > top ? top : x < -top - 1 ? -top - 1 : x;
}
/* two vectors of 32-bit lanes as one of 16-bit lanes, two of those as one of bytes; saturating */
TQV_INLINE tqv_bits tqv_narrow32(tqv_bits a, tqv_bits b) {
    tqv_bits y;
    TQV_EACH16 y.i16[i] = (int16_t)tqv_saturated(i < 8 ? a.i32[i] : b.i32[i - 8], 32767);
    return y;
}
TQV_INLINE tqv_bits tqv_narrow16(tqv_bits a, tqv_bits b) {
    tqv_bits y;
    TQV_EACH_BYTE y.i8[i] = (int8_t)tqv_saturated(i < 16 ? a.i16[i] : b.i16[i - 16], 127);
    return y;
}
/* the latter of values 0..255 */
TQV_INLINE tqv_bits tqv_narrow16u(tqv_bits a, tqv_bits b) {
    tqv_bits y;
    TQV_EACH_BYTE {
        const int x = i < 16 ? a.i16[i] : b.i16[i - 16];
        y.u8[i] = (uint8_t)(x > 255 ? 255 : x < 0 ? 0 : x);
    }
    return y;
}
/* bytes of four vectors that were narrowed in two steps, in the order of their values */
TQV_INLINE tqv_bits tqv_in_order(tqv_bits x) {
    return x;
}
/* 16-bit lanes: all ones where x < 0 */
TQV_INLINE tqv_bits tqv_negative16(tqv_bits x) {
    TQV_EACH16 x.i16[i] = x.i16[i] < 0 ? -1 : 0;
    return x;
}
/* unsigned bytes: x, and more where a >= b */
TQV_INLINE tqv_bits tqv_add8_where_ge(tqv_bits a, tqv_bits b, tqv_bits x, int more) {
    TQV_EACH_BYTE x.u8[i] = (uint8_t)(x.u8[i] + (a.u8[i] >= b.u8[i] ? more : 0));
    return x;
}
/* 16-bit lanes: a*b / 2^15 to nearest */
TQV_INLINE tqv_bits tqv_mul_q15(tqv_bits a, tqv_bits b) {
    TQV_EACH16 a.i16[i] = (int16_t)((a.i16[i] * b.i16[i] + 16384) >> 15);
    return a;
}
/* multipliers of 8 vectors of 16-bit lanes: table[index[r]] for all values of run r; entries are pairs of 16 bits */
TQV_INLINE void tqv_per_run(const uint32_t table[16], tqv_bits index, tqv_bits out[8]) {
    for (int r = 0; r < 8; r++)
        out[r] = tqv_bset1((int32_t)table[index.i32[r]]);
}
/* lane r: the sum over run r; x are four vectors of bytes, of which every four were summed to a 32-bit lane */
TQV_INLINE tqv_bits tqv_run_sums(const tqv_bits x[4]) {
    tqv_bits y;
    TQV_EACH {
        const int32_t *p = x[i / 2].i32 + 4 * (i % 2);
        y.i32[i] = p[0] + p[1] + p[2] + p[3];
    }
    return y;
}

/* ---- keys in lanes: row i of LANES rows, `stride` bytes apart, fills lane i -------------------------------------- */

/* four lanes each to p, p + stride, ... */
TQV_INLINE void tqv_store_quads(float *p, int stride, tqv_bits x) {
    for (int i = 0; i < TQV_LANES; i += 4, p += stride)
        memcpy(p, x.u32 + i, 16);
}
/* Of each four lanes: word j of x[i] is word i of out[j]. */
TQV_INLINE void tqv_transpose(const tqv_bits x[4], tqv_bits out[4]) {
    for (int j = 0; j < 4; j++)
        TQV_EACH out[j].u32[i] = x[i % 4].u32[i / 4 * 4 + j];
}
/* words 0..3 of 16 bytes */
TQV_INLINE void tqv_load_words(const uint8_t *p, size_t stride, tqv_bits out[4]) {
    TQV_EACH for (int w = 0; w < 4; w++) memcpy(&out[w].u32[i], p + (size_t)i * stride + 4 * (size_t)w, 4);
}
/* halves, to LANES halves that follow each other; two bytes behind each may be read */
TQV_INLINE void tqv_store_halves(uint8_t *out, const uint8_t *p, size_t stride) {
    TQV_EACH memcpy(out + 2 * i, p + (size_t)i * stride, 2);
}
/* LANES halves as integers */
TQV_INLINE tqv_bits tqv_from_u16(const uint8_t *p) {
    tqv_bits y;
    uint16_t h[8];
    memcpy(h, p, sizeof h);
    TQV_EACH y.u32[i] = h[i];
    return y;
}
/* LANES halves: of each its two low nibbles, then its two high nibbles, one per byte */
TQV_INLINE tqv_bits tqv_split_half(const uint8_t *p) {
    tqv_bits y = tqv_from_u16(p);
    TQV_EACH y.u32[i] = (y.u32[i] | y.u32[i] << 12) & 0x0f0f0f0f;
    return y;
}
/* byte k of each lane into all its four bytes, into its even ones, into its odd ones; others are 0 */
TQV_INLINE tqv_bits tqv_spread(tqv_bits x, int k) {
    TQV_EACH x.u32[i] = (x.u32[i] >> 8 * k & 0xff) * 0x01010101u;
    return x;
}
TQV_INLINE tqv_bits tqv_spread_even(tqv_bits x, int k) {
    TQV_EACH x.u32[i] = (x.u32[i] >> 8 * k & 0xff) * 0x00010001u;
    return x;
}
TQV_INLINE tqv_bits tqv_spread_odd(tqv_bits x, int k) {
    TQV_EACH x.u32[i] = (x.u32[i] >> 8 * k & 0xff) * 0x01000100u;
    return x;
}

/* ---- values in lanes, keys in bytes: 16 lanes are 4 columns of 4 values: column c, value y in lane c/2*8 + y*2 + c%2.
 * A vector is part `part` of them -------------------------------------------------------------------------------- */

/* Words 0 .. n-1 of the four keys of each column, `stride` bytes apart, p[c] the first of column c, as 16 lanes each, 64
 * bytes apart. n <= 4, whatever it is 16 bytes of each key are read. */
TQV_INLINE void tqv_repack_columns(const uint8_t *const p[4], size_t stride, int n, uint8_t *out) {
    for (int w = 0; w < n; w++)
        for (int i = 0; i < 64; i++) {
            const int lane = i / 4, column = lane / 8 * 2 + lane % 2, y = lane % 8 / 2;
            out[64 * w + i] = p[column][(size_t)(i % 4) * stride + (size_t)(4 * w + y)];
        }
}
/* Lanes [column][2] of bytes to all four values: values 0 and 1 from the low nibbles, 2 and 3 from the high ones. */
TQV_INLINE tqv_bits tqv_split_columns(const uint8_t *p, int part) {
    tqv_bits y;
    TQV_EACH_BYTE {
        const int lane = i / 4, column = 2 * part + lane % 2, value = lane / 2;
        y.u8[i] = p[(column * 2 + value % 2) * 4 + i % 4] >> (value / 2 * 4) & 15;
    }
    return y;
}
/* Pairs of bytes of four keys: first bytes, then second ones, by 8 bytes. */
TQV_INLINE tqv_bits tqv_key_bytes(tqv_bits x) {
    tqv_bits y;
    TQV_EACH_BYTE y.u8[i] = x.u8[i / 8 * 8 + i % 4 * 2 + i / 4 % 2];
    return y;
}
/* One number per column, p[0] for the first one of the part. */
TQV_INLINE tqv_bits tqv_columns(const int32_t *p) {
    tqv_bits y;
    TQV_EACH y.i32[i] = p[i % 2];
    return y;
}
/* Numbers of four columns, LANES each, beside each other. */
TQV_INLINE void tqv_interleave(const int32_t *a, const int32_t *b, const int32_t *c, const int32_t *d, int32_t *out) {
    TQV_EACH {
        const int32_t x[4] = {a[i], b[i], c[i], d[i]};
        memcpy(out + 4 * i, x, sizeof x);
    }
}
/* 16-bit weights of four vectors of keys, by quads: pairs of keys 0 and 2, pairs of keys 1 and 3. */
TQV_INLINE void tqv_store_weights(int32_t *even, int32_t *odd, const tqv_bits w[4]) {
    for (int quad = 0; quad < TQV_LANES; quad++) {
        const uint32_t *k = w[quad / 2].u32 + quad % 2 * 4;
        even[quad] = (int32_t)((k[0] & 0xffff) | k[2] << 16);
        odd[quad] = (int32_t)((k[1] & 0xffff) | k[3] << 16);
    }
}

/* ---- transform -------------------------------------------------------------------------------------------------- */

/* Unnormalised Hadamard over the lanes of each of n vectors: step by step, where the chain of one is long. */
TQV_INLINE void tqv_hadamard(tqv_f32 *x, const int n) {
    for (int r = 0; r < n; r++)
        for (int h = 1; h < 8; h *= 2)
            for (int i = 0; i < 8; i++)
                if (!(i & h)) {
                    const float a = x[r].v[i], b = x[r].v[i + h];
                    x[r].v[i] = a + b;
                    x[r].v[i + h] = a - b;
                }
}

#endif
