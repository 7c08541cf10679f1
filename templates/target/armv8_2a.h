/* Vocabulary of armv8.2-a with dot products (NEON): what the algorithm texts are written in. See c.h for the meaning of
 * each word in plain C. */
#ifndef TQV_H
#define TQV_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

enum {
    TQV_LANES = 4, /* 32-bit lanes of a vector */
    TQV_SUMS = 16, /* vectors that sums may take of the registers */
    TQV_REGISTERS = 32,
};

typedef float32x4_t tqv_f32;
typedef int32x4_t tqv_bits;

#define TQV_INLINE static inline __attribute__((always_inline, unused))
/* A loop of constant length whose sums are to stay in registers. */
#if defined(__clang__)
#define TQV_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TQV_UNROLL _Pragma("GCC unroll 16")
#endif
/* A function with a GQA ratio as its first argument: one body per ratio where that pays. */
#define TQV_SPECIALISE TQV_INLINE

#define TQV_U8(x) vreinterpretq_u8_s32(x)
#define TQV_S8(x) vreinterpretq_s8_s32(x)
#define TQV_S16(x) vreinterpretq_s16_s32(x)
#define TQV_OF_U8(x) vreinterpretq_s32_u8(x)
#define TQV_OF_S8(x) vreinterpretq_s32_s8(x)
#define TQV_OF_S16(x) vreinterpretq_s32_s16(x)

/* ---- float ------------------------------------------------------------------------------------------------------ */

TQV_INLINE tqv_f32 tqv_zero(void) {
    return vdupq_n_f32(0.0f);
}
TQV_INLINE tqv_f32 tqv_set1(float x) {
    return vdupq_n_f32(x);
}
TQV_INLINE tqv_f32 tqv_load(const float *p) {
    return vld1q_f32(p);
}
TQV_INLINE void tqv_store(float *p, tqv_f32 x) {
    vst1q_f32(p, x);
}
TQV_INLINE tqv_f32 tqv_add(tqv_f32 a, tqv_f32 b) {
    return vaddq_f32(a, b);
}
TQV_INLINE tqv_f32 tqv_sub(tqv_f32 a, tqv_f32 b) {
    return vsubq_f32(a, b);
}
TQV_INLINE tqv_f32 tqv_mul(tqv_f32 a, tqv_f32 b) {
    return vmulq_f32(a, b);
}
TQV_INLINE tqv_f32 tqv_div(tqv_f32 a, tqv_f32 b) {
    return vdivq_f32(a, b);
}
TQV_INLINE tqv_f32 tqv_sqrt(tqv_f32 a) {
    return vsqrtq_f32(a);
}
TQV_INLINE tqv_f32 tqv_fma(tqv_f32 a, tqv_f32 b, tqv_f32 c) {
    return vfmaq_f32(c, a, b);
}
/* Where one is NaN, b, as on x86. */
TQV_INLINE tqv_f32 tqv_max(tqv_f32 a, tqv_f32 b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
TQV_INLINE tqv_f32 tqv_min(tqv_f32 a, tqv_f32 b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
TQV_INLINE tqv_f32 tqv_abs(tqv_f32 a) {
    return vabsq_f32(a);
}
TQV_INLINE tqv_f32 tqv_swap_pairs(tqv_f32 a) {
    return vrev64q_f32(a);
}
TQV_INLINE float tqv_hsum(tqv_f32 a) {
    return vaddvq_f32(a);
}
TQV_INLINE float tqv_hmax(tqv_f32 a) {
    return vmaxvq_f32(a);
}
/* Lane i: what v[i] reduces to. */
TQV_INLINE tqv_f32 tqv_sums(const tqv_f32 v[TQV_LANES]) {
    return vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3]));
}
TQV_INLINE tqv_f32 tqv_maxima(const tqv_f32 v[TQV_LANES]) {
    return vpmaxq_f32(vpmaxq_f32(v[0], v[1]), vpmaxq_f32(v[2], v[3]));
}
TQV_INLINE tqv_bits tqv_ge(tqv_f32 a, tqv_f32 b) {
    return vreinterpretq_s32_u32(vcgeq_f32(a, b));
}
TQV_INLINE tqv_bits tqv_to_i32(tqv_f32 a) {
    return vcvtnq_s32_f32(a);
}
TQV_INLINE tqv_f32 tqv_from_i32(tqv_bits a) {
    return vcvtq_f32_s32(a);
}
TQV_INLINE tqv_f32 tqv_from_byte(tqv_bits a, int k) {
    return vcvtq_f32_s32(vandq_s32(vshlq_s32(a, vdupq_n_s32(24 - 8 * k)), vdupq_n_s32(-0x1000000)));
}
TQV_INLINE tqv_f32 tqv_from_i8(const uint8_t *p) {
    uint32_t x;
    memcpy(&x, p, 4);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(x))))));
}
TQV_INLINE tqv_f32 tqv_from_f16(const uint8_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}
TQV_INLINE void tqv_to_f16(uint8_t *p, tqv_f32 a) {
    const tqv_f32 top = vdupq_n_f32(65504.0f);
    a = vminq_f32(vmaxq_f32(a, vnegq_f32(top)), top);
    vst1_u8(p, vreinterpret_u8_f16(vcvt_f16_f32(a)));
}

/* To the nearest integer; y * 2^whole, for whole >= -126: the words that exp2 of decode.c is made of. */
TQV_INLINE tqv_f32 tqv_round(tqv_f32 x) {
    return vrndnq_f32(x);
}
TQV_INLINE tqv_f32 tqv_times_2_to(tqv_f32 y, tqv_f32 whole) {
    const int32x4_t exponent = vshlq_n_s32(vcvtnq_s32_f32(whole), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(y), exponent));
}

/* ---- bytes, 16- and 32-bit integers ----------------------------------------------------------------------------- */

TQV_INLINE tqv_bits tqv_bzero(void) {
    return vdupq_n_s32(0);
}
TQV_INLINE tqv_bits tqv_bset1(int32_t x) {
    return vdupq_n_s32(x);
}
TQV_INLINE tqv_bits tqv_bload(const void *p) {
    return TQV_OF_U8(vld1q_u8((const uint8_t *)p));
}
TQV_INLINE void tqv_bstore(void *p, tqv_bits x) {
    vst1q_u8((uint8_t *)p, TQV_U8(x));
}
TQV_INLINE tqv_bits tqv_and(tqv_bits a, tqv_bits b) {
    return vandq_s32(a, b);
}
TQV_INLINE tqv_bits tqv_xor(tqv_bits a, tqv_bits b) {
    return veorq_s32(a, b);
}
TQV_INLINE tqv_bits tqv_add32(tqv_bits a, tqv_bits b) {
    return vaddq_s32(a, b);
}
TQV_INLINE tqv_bits tqv_sub32(tqv_bits a, tqv_bits b) {
    return vsubq_s32(a, b);
}
TQV_INLINE tqv_bits tqv_add_where_ge(tqv_f32 a, tqv_f32 b, tqv_bits x, const int32_t more) {
    return tqv_add32(x, tqv_and(tqv_ge(a, b), tqv_bset1(more)));
}
TQV_INLINE tqv_bits tqv_sub8(tqv_bits a, tqv_bits b) {
    return TQV_OF_S8(vsubq_s8(TQV_S8(a), TQV_S8(b)));
}
TQV_INLINE tqv_bits tqv_abs8(tqv_bits a) {
    return TQV_OF_S8(vabsq_s8(TQV_S8(a)));
}
TQV_INLINE tqv_bits tqv_select(tqv_bits mask, tqv_bits a, tqv_bits b) {
    return vbslq_s32(vreinterpretq_u32_s32(mask), a, b);
}
TQV_INLINE tqv_bits tqv_merge(tqv_bits mask, tqv_bits a, tqv_bits b) {
    return tqv_select(mask, a, b);
}
#define tqv_sll32(x, n) vshlq_n_s32((x), (n))
TQV_INLINE tqv_bits tqv_srl16(tqv_bits x, const int n) {
    return TQV_OF_S16(vreinterpretq_s16_u16(vshlq_u16(vreinterpretq_u16_s32(x), vdupq_n_s16((int16_t)-n))));
}
TQV_INLINE tqv_bits tqv_table(const void *table) {
    return tqv_bload(table);
}
TQV_INLINE tqv_bits tqv_lookup(tqv_bits table, tqv_bits index) {
    return TQV_OF_U8(vqtbl1q_u8(TQV_U8(table), TQV_U8(index)));
}
TQV_INLINE tqv_bits tqv_pick(tqv_bits table, tqv_bits x, const int shift, const int mask) {
    return tqv_lookup(table, vandq_s32(tqv_srl16(x, shift), vdupq_n_s32(mask * 0x01010101)));
}
TQV_INLINE tqv_bits tqv_pick_signed(tqv_bits table, tqv_bits x, const int shift, const int mask, tqv_bits sign) {
    return tqv_lookup(table, vorrq_s32(vandq_s32(tqv_srl16(x, shift), vdupq_n_s32(mask * 0x01010101)), sign));
}
TQV_INLINE tqv_bits tqv_maddu8(tqv_bits u, tqv_bits s) {
    const uint8x16_t a = TQV_U8(u);
    const int8x16_t b = TQV_S8(s);
    const int16x8_t low = vmulq_s16(vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(a))), vmovl_s8(vget_low_s8(b)));
    const int16x8_t high = vmulq_s16(vreinterpretq_s16_u16(vmovl_high_u8(a)), vmovl_high_s8(b));
    return TQV_OF_S16(vpaddq_s16(low, high));
}
TQV_INLINE tqv_bits tqv_dot16(tqv_bits sum, tqv_bits a, tqv_bits b) {
    const int16x8_t x = TQV_S16(a), y = TQV_S16(b);
    return vaddq_s32(sum, vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y)));
}
/* sum + four products of signed bytes */
TQV_INLINE tqv_bits tqv_dot8(tqv_bits sum, tqv_bits a, tqv_bits b) {
    return vdotq_s32(sum, TQV_S8(a), TQV_S8(b));
}
TQV_INLINE tqv_bits tqv_squares8(tqv_bits sum, tqv_bits x) {
    return tqv_dot8(sum, x, x);
}
TQV_INLINE void tqv_join_words(const uint8_t *p, const int n, void *out) {
    const int32x4_t a = tqv_bload(p), b = tqv_bload(p + 16);
    tqv_bstore(out, vorrq_s32(vuzp1q_s32(a, b), vshlq_s32(vuzp2q_s32(a, b), vdupq_n_s32(n))));
}
TQV_INLINE void tqv_add_spare(const void *p, const int n, const uint32_t mask, void *out) {
    const int32_t shifts[4] = {n, n + 1, n + 2, 0};
    const int32x4_t x = tqv_bload(p), spare = vshlq_s32(vdupq_laneq_s32(x, 3), vld1q_s32(shifts));
    const int32x4_t y = vorrq_s32(x, vandq_s32(spare, vdupq_n_s32((int32_t)mask)));
    vst1_s32(out, vget_low_s32(y));
    vst1q_lane_s32((int32_t *)out + 2, y, 2);
}
TQV_INLINE tqv_f32 tqv_flip(tqv_f32 x, uint32_t signs) {
    static const int32_t LEFT[4] = {31, 30, 29, 28};
    const int32x4_t top = vshlq_s32(vdupq_n_s32((int32_t)signs), vld1q_s32(LEFT));
    return vreinterpretq_f32_s32(veorq_s32(vreinterpretq_s32_f32(x), vandq_s32(top, vdupq_n_s32(INT32_MIN))));
}
TQV_INLINE tqv_f32 tqv_lookup_f32(const float table[8], tqv_bits index) {
    const uint8x16x2_t t = {{vreinterpretq_u8_f32(vld1q_f32(table)), vreinterpretq_u8_f32(vld1q_f32(table + 4))}};
    const int32x4_t low = vandq_s32(index, vdupq_n_s32(7));
    const int32x4_t bytes = vmlaq_s32(vdupq_n_s32(0x03020100), low, vdupq_n_s32(0x04040404));
    return vreinterpretq_f32_u8(vqtbl2q_u8(t, TQV_U8(bytes)));
}
TQV_INLINE tqv_f32 tqv_lookup16_f32(const float table[16], tqv_bits index) {
    return vbslq_f32(vcgtq_s32(index, vdupq_n_s32(7)), tqv_lookup_f32(table + 8, index), tqv_lookup_f32(table, index));
}
TQV_INLINE void tqv_store_u8(uint8_t *p, tqv_bits x) {
    const uint16x4_t words = vmovn_u32(vreinterpretq_u32_s32(x));
    const uint8x8_t bytes = vmovn_u16(vcombine_u16(words, words));
    vst1_lane_u32((uint32_t *)(void *)p, vreinterpret_u32_u8(bytes), 0);
}
TQV_INLINE tqv_bits tqv_low_bytes(const tqv_bits x[4]) {
    const uint8x16_t a = vuzp1q_u8(TQV_U8(x[0]), TQV_U8(x[1])), b = vuzp1q_u8(TQV_U8(x[2]), TQV_U8(x[3]));
    return TQV_OF_U8(vuzp1q_u8(a, b));
}
TQV_INLINE void tqv_prefetch(const void *p) {
    __builtin_prefetch(p, 0, 2);
}

/* ---- runs of 16 values: two vectors of 16-bit lanes each; one per vector of bytes -------------------------------- */

TQV_INLINE tqv_bits tqv_narrow32(tqv_bits a, tqv_bits b) {
    return TQV_OF_S16(vqmovn_high_s32(vqmovn_s32(a), b));
}
TQV_INLINE tqv_bits tqv_narrow16(tqv_bits a, tqv_bits b) {
    return TQV_OF_S8(vqmovn_high_s16(vqmovn_s16(TQV_S16(a)), TQV_S16(b)));
}
TQV_INLINE tqv_bits tqv_narrow16u(tqv_bits a, tqv_bits b) {
    return TQV_OF_U8(vqmovun_high_s16(vqmovun_s16(TQV_S16(a)), TQV_S16(b)));
}
TQV_INLINE tqv_bits tqv_in_order(tqv_bits x) {
    return x;
}
TQV_INLINE tqv_bits tqv_negative16(tqv_bits x) {
    return TQV_OF_S16(vshrq_n_s16(TQV_S16(x), 15));
}
TQV_INLINE tqv_bits tqv_add8_where_ge(tqv_bits a, tqv_bits b, tqv_bits x, const int more) {
    return TQV_OF_U8(vaddq_u8(TQV_U8(x), vandq_u8(vcgeq_u8(TQV_U8(a), TQV_U8(b)), vdupq_n_u8((uint8_t)more))));
}
TQV_INLINE tqv_bits tqv_mul_q15(tqv_bits a, tqv_bits b) {
    return TQV_OF_S16(vqrdmulhq_s16(TQV_S16(a), TQV_S16(b)));
}
TQV_INLINE void tqv_per_run(const uint32_t table[16], tqv_bits index, tqv_bits out[8]) {
    int32_t at[4];
    tqv_bstore(at, index);
    TQV_UNROLL for (int r = 0; r < 4; r++)
        out[2 * r] = out[2 * r + 1] = vdupq_n_s32((int32_t)table[at[r]]);
}
TQV_INLINE tqv_bits tqv_run_sums(const tqv_bits x[4]) {
    return vpaddq_s32(vpaddq_s32(x[0], x[1]), vpaddq_s32(x[2], x[3]));
}

/* ---- keys in lanes ---------------------------------------------------------------------------------------------- */

TQV_INLINE void tqv_store_quads(float *p, int stride, tqv_bits x) {
    (void)stride;
    tqv_bstore(p, x);
}
TQV_INLINE void tqv_transpose(const tqv_bits x[4], tqv_bits out[4]) {
    const int64x2_t a = vreinterpretq_s64_s32(vtrn1q_s32(x[0], x[1])), b = vreinterpretq_s64_s32(vtrn2q_s32(x[0], x[1]));
    const int64x2_t c = vreinterpretq_s64_s32(vtrn1q_s32(x[2], x[3])), d = vreinterpretq_s64_s32(vtrn2q_s32(x[2], x[3]));
    out[0] = vreinterpretq_s32_s64(vtrn1q_s64(a, c));
    out[1] = vreinterpretq_s32_s64(vtrn1q_s64(b, d));
    out[2] = vreinterpretq_s32_s64(vtrn2q_s64(a, c));
    out[3] = vreinterpretq_s32_s64(vtrn2q_s64(b, d));
}
TQV_INLINE void tqv_load_words(const uint8_t *p, size_t stride, tqv_bits out[4]) {
    const tqv_bits r[4] = {tqv_bload(p), tqv_bload(p + stride), tqv_bload(p + 2 * stride), tqv_bload(p + 3 * stride)};
    tqv_transpose(r, out);
}
TQV_INLINE void tqv_store_halves(uint8_t *out, const uint8_t *p, size_t stride) {
    for (int i = 0; i < 4; i++)
        memcpy(out + 2 * i, p + (size_t)i * stride, 2);
}
TQV_INLINE tqv_bits tqv_from_u16(const uint8_t *p) {
    return vreinterpretq_s32_u32(vmovl_u16(vreinterpret_u16_u8(vld1_u8(p))));
}
TQV_INLINE tqv_bits tqv_split_half(const uint8_t *p) {
    const int32x4_t x = tqv_from_u16(p);
    return vandq_s32(vorrq_s32(x, vshlq_n_s32(x, 12)), vdupq_n_s32(0x0f0f0f0f));
}
TQV_INLINE tqv_bits tqv_spread(tqv_bits x, int k) {
    static const uint8_t FIRST[16] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
    return TQV_OF_U8(vqtbl1q_u8(TQV_U8(x), vaddq_u8(vld1q_u8(FIRST), vdupq_n_u8((uint8_t)k))));
}
TQV_INLINE tqv_bits tqv_spread_even(tqv_bits x, int k) {
    return vandq_s32(tqv_spread(x, k), vdupq_n_s32(0x00ff00ff));
}
TQV_INLINE tqv_bits tqv_spread_odd(tqv_bits x, int k) {
    return vandq_s32(tqv_spread(x, k), vdupq_n_s32((int32_t)0xff00ff00));
}

/* ---- values in lanes, keys in bytes ----------------------------------------------------------------------------- */

TQV_INLINE void tqv_repack_columns(const uint8_t *const p[4], size_t stride, const int n, uint8_t *out) {
    for (int pair = 0; pair < 2; pair++) {
        int32x4_t words[2][4];
        for (int c = 0; c < 2; c++) {
            const uint8_t *at = p[2 * pair + c];
            const uint8x16_t r0 = vld1q_u8(at), r1 = vld1q_u8(at + stride), r2 = vld1q_u8(at + 2 * stride);
            const uint8x16_t r3 = vld1q_u8(at + 3 * stride);
            const uint16x8_t a = vreinterpretq_u16_u8(vzip1q_u8(r0, r1)), b = vreinterpretq_u16_u8(vzip2q_u8(r0, r1));
            const uint16x8_t x = vreinterpretq_u16_u8(vzip1q_u8(r2, r3)), y = vreinterpretq_u16_u8(vzip2q_u8(r2, r3));
            words[c][0] = vreinterpretq_s32_u16(vzip1q_u16(a, x));
            words[c][1] = vreinterpretq_s32_u16(vzip2q_u16(a, x));
            words[c][2] = vreinterpretq_s32_u16(vzip1q_u16(b, y));
            words[c][3] = vreinterpretq_s32_u16(vzip2q_u16(b, y));
        }
        TQV_UNROLL for (int w = 0; w < n; w++) {
            tqv_bstore(out + 64 * w + 32 * pair, vzip1q_s32(words[0][w], words[1][w]));
            tqv_bstore(out + 64 * w + 32 * pair + 16, vzip2q_s32(words[0][w], words[1][w]));
        }
    }
}
TQV_INLINE tqv_bits tqv_split_columns(const uint8_t *p, int part) {
    const int32x4_t x = tqv_bload(p + part / 2 * 16);
    const int32x4_t y = vtrn1q_s32(x, vextq_s32(x, x, 2)), z = vtrn2q_s32(x, vextq_s32(x, x, 2));
    const int32x4_t both = vreinterpretq_s32_s64(vtrn1q_s64(vreinterpretq_s64_s32(y), vreinterpretq_s64_s32(z)));
    return vandq_s32(tqv_srl16(both, part % 2 * 4), vdupq_n_s32(0x0f0f0f0f));
}
TQV_INLINE tqv_bits tqv_key_bytes(tqv_bits x) {
    static const uint8_t ORDER[16] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
    return TQV_OF_U8(vqtbl1q_u8(TQV_U8(x), vld1q_u8(ORDER)));
}
TQV_INLINE tqv_bits tqv_columns(const int32_t *p) {
    return vreinterpretq_s32_s64(vdupq_lane_s64(vreinterpret_s64_s32(vld1_s32(p)), 0));
}
TQV_INLINE void tqv_interleave(const int32_t *a, const int32_t *b, const int32_t *c, const int32_t *d, int32_t *out) {
    vst4q_s32(out, ((int32x4x4_t){{vld1q_s32(a), vld1q_s32(b), vld1q_s32(c), vld1q_s32(d)}}));
}
TQV_INLINE void tqv_store_weights(int32_t *even, int32_t *odd, const tqv_bits w[4]) {
    for (int i = 0; i < 4; i++) {
        const int16x4_t x = vqmovn_s32(w[i]); /* 0 1 2 3 */
        vst1_lane_s32(even + i, vreinterpret_s32_s16(vuzp1_s16(x, x)), 0);
        vst1_lane_s32(odd + i, vreinterpret_s32_s16(vuzp2_s16(x, x)), 0);
    }
}
TQV_INLINE void tqv_store_byte_weights(int32_t *high, int32_t *low, const tqv_bits w[4]) {
    for (int i = 0; i < 4; i++) {
        const int32x4_t top = vshrq_n_s32(vaddq_s32(w[i], vdupq_n_s32(128)), 8);
        const int8x8_t both = vmovn_s16(vcombine_s16(vmovn_s32(top), vmovn_s32(w[i])));
        vst1_lane_s32(high + i, vreinterpret_s32_s8(both), 0);
        vst1_lane_s32(low + i, vreinterpret_s32_s8(both), 1);
    }
}

/* ---- transform -------------------------------------------------------------------------------------------------- */

TQV_INLINE void tqv_hadamard(tqv_f32 *x, const int n) {
    static const float M1[4] = {1.0f, -1.0f, 1.0f, -1.0f}, M2[4] = {1.0f, 1.0f, -1.0f, -1.0f};
    TQV_UNROLL for (int i = 0; i < n; i++)
        x[i] = vfmaq_f32(vrev64q_f32(x[i]), x[i], vld1q_f32(M1));
    TQV_UNROLL for (int i = 0; i < n; i++)
        x[i] = vfmaq_f32(vextq_f32(x[i], x[i], 2), x[i], vld1q_f32(M2));
}

#endif
