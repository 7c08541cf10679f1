/* Vocabulary of AVX-512 (F, BW, DQ, VL, VBMI and VNNI): what the algorithm texts are written in. See c.h for the meaning of each
 * word in plain C. */
#ifndef TQV_H
#define TQV_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

enum {
    TQV_LANES = 16, /* 32-bit lanes of a vector */
    TQV_SUMS = 24,  /* vectors that sums may take of the registers */
    TQV_REGISTERS = 32,
};

typedef __m512 tqv_f32;
typedef __m512i tqv_bits;

#define TQV_INLINE static inline __attribute__((always_inline, unused))
/* A loop of constant length whose sums are to stay in registers. */
#if defined(__clang__)
#define TQV_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TQV_UNROLL _Pragma("GCC unroll 16")
#endif
/* A function with a GQA ratio as its first argument: one body per ratio where that pays. */
#define TQV_SPECIALISE TQV_INLINE

/* ---- float ------------------------------------------------------------------------------------------------------ */

TQV_INLINE tqv_f32 tqv_zero(void) {
    return _mm512_setzero_ps();
}
TQV_INLINE tqv_f32 tqv_set1(float x) {
    return _mm512_set1_ps(x);
}
TQV_INLINE tqv_f32 tqv_load(const float *p) {
    return _mm512_loadu_ps(p);
}
TQV_INLINE void tqv_store(float *p, tqv_f32 x) {
    _mm512_storeu_ps(p, x);
}
TQV_INLINE tqv_f32 tqv_add(tqv_f32 a, tqv_f32 b) {
    return _mm512_add_ps(a, b);
}
TQV_INLINE tqv_f32 tqv_sub(tqv_f32 a, tqv_f32 b) {
    return _mm512_sub_ps(a, b);
}
TQV_INLINE tqv_f32 tqv_mul(tqv_f32 a, tqv_f32 b) {
    return _mm512_mul_ps(a, b);
}
TQV_INLINE tqv_f32 tqv_div(tqv_f32 a, tqv_f32 b) {
    return _mm512_div_ps(a, b);
}
TQV_INLINE tqv_f32 tqv_sqrt(tqv_f32 a) {
    return _mm512_sqrt_ps(a);
}
TQV_INLINE tqv_f32 tqv_fma(tqv_f32 a, tqv_f32 b, tqv_f32 c) {
    return _mm512_fmadd_ps(a, b, c);
}
TQV_INLINE tqv_f32 tqv_max(tqv_f32 a, tqv_f32 b) {
    return _mm512_max_ps(a, b);
}
TQV_INLINE tqv_f32 tqv_min(tqv_f32 a, tqv_f32 b) {
    return _mm512_min_ps(a, b);
}
TQV_INLINE tqv_f32 tqv_abs(tqv_f32 a) {
    return _mm512_abs_ps(a);
}
TQV_INLINE tqv_f32 tqv_swap_pairs(tqv_f32 a) {
    return _mm512_permute_ps(a, 0xb1);
}
TQV_INLINE float tqv_hsum(tqv_f32 a) {
    return _mm512_reduce_add_ps(a);
}
TQV_INLINE float tqv_hmax(tqv_f32 a) {
    return _mm512_reduce_max_ps(a);
}
/* Lane i: what v[i] reduces to; far cheaper than one by one. */
#define TQV_REDUCE_ALL(name, op)                                                                                       \
    TQV_INLINE __m512 name##_pair(__m512 a, __m512 b) {                                                                \
        return op(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));                                       \
    }                                                                                                                  \
    TQV_INLINE __m512 name##_four(const tqv_f32 *v) {                                                                  \
        return name##_pair(name##_pair(v[0], v[1]), name##_pair(v[2], v[3]));                                          \
    }                                                                                                                  \
    TQV_INLINE __m512 name##_across(__m512 a, __m512 b) {                                                              \
        return op(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));                                 \
    }                                                                                                                  \
    TQV_INLINE tqv_f32 name(const tqv_f32 v[TQV_LANES]) {                                                              \
        return name##_across(name##_across(name##_four(v), name##_four(v + 4)),                                        \
                             name##_across(name##_four(v + 8), name##_four(v + 12)));                                  \
    }
TQV_REDUCE_ALL(tqv_sums, _mm512_add_ps)
TQV_REDUCE_ALL(tqv_maxima, _mm512_max_ps)

TQV_INLINE tqv_bits tqv_ge(tqv_f32 a, tqv_f32 b) {
    return _mm512_movm_epi32(_mm512_cmp_ps_mask(a, b, _CMP_GE_OQ));
}
TQV_INLINE tqv_bits tqv_to_i32(tqv_f32 a) {
    return _mm512_cvtps_epi32(a);
}
TQV_INLINE tqv_f32 tqv_from_i32(tqv_bits a) {
    return _mm512_cvtepi32_ps(a);
}
TQV_INLINE tqv_f32 tqv_from_byte(tqv_bits a, int k) {
    const __m512i lanes = _mm512_broadcast_i32x4(_mm_setr_epi32(0x00808080, 0x04808080, 0x08808080, 0x0c808080));
    const __m512i order = _mm512_add_epi32(lanes, _mm512_set1_epi32(k * 0x1000000));
    return _mm512_cvtepi32_ps(k == 3 ? _mm512_and_si512(a, _mm512_set1_epi32(-0x1000000))
                                     : _mm512_shuffle_epi8(a, order));
}
TQV_INLINE tqv_f32 tqv_from_i8(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
TQV_INLINE tqv_f32 tqv_from_f16(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
TQV_INLINE void tqv_to_f16(uint8_t *p, tqv_f32 a) {
    const tqv_f32 top = _mm512_set1_ps(65504.0f);
    a = _mm512_min_ps(_mm512_max_ps(a, _mm512_sub_ps(_mm512_setzero_ps(), top)), top);
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

/* To the nearest integer; y * 2^whole, for whole >= -126: the words that exp2 of decode.c is made of. */
TQV_INLINE tqv_f32 tqv_round(tqv_f32 x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
TQV_INLINE tqv_f32 tqv_times_2_to(tqv_f32 y, tqv_f32 whole) {
    return _mm512_scalef_ps(y, whole);
}

/* ---- bytes, 16- and 32-bit integers ----------------------------------------------------------------------------- */

TQV_INLINE tqv_bits tqv_bzero(void) {
    return _mm512_setzero_si512();
}
TQV_INLINE tqv_bits tqv_bset1(int32_t x) {
    return _mm512_set1_epi32(x);
}
TQV_INLINE tqv_bits tqv_bload(const void *p) {
    return _mm512_loadu_si512(p);
}
TQV_INLINE void tqv_bstore(void *p, tqv_bits x) {
    _mm512_storeu_si512(p, x);
}
TQV_INLINE tqv_bits tqv_and(tqv_bits a, tqv_bits b) {
    return _mm512_and_si512(a, b);
}
TQV_INLINE tqv_bits tqv_xor(tqv_bits a, tqv_bits b) {
    return _mm512_xor_si512(a, b);
}
TQV_INLINE tqv_bits tqv_add32(tqv_bits a, tqv_bits b) {
    return _mm512_add_epi32(a, b);
}
TQV_INLINE tqv_bits tqv_sub32(tqv_bits a, tqv_bits b) {
    return _mm512_sub_epi32(a, b);
}
TQV_INLINE tqv_bits tqv_add_where_ge(tqv_f32 a, tqv_f32 b, tqv_bits x, const int32_t more) {
    return _mm512_mask_add_epi32(x, _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ), x, _mm512_set1_epi32(more));
}
TQV_INLINE tqv_bits tqv_sub8(tqv_bits a, tqv_bits b) {
    return _mm512_sub_epi8(a, b);
}
TQV_INLINE tqv_bits tqv_abs8(tqv_bits a) {
    return _mm512_abs_epi8(a);
}
TQV_INLINE tqv_bits tqv_select(tqv_bits mask, tqv_bits a, tqv_bits b) {
    return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}
TQV_INLINE tqv_bits tqv_merge(tqv_bits mask, tqv_bits a, tqv_bits b) {
    return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}
#define tqv_sll32(x, n) _mm512_slli_epi32((x), (n))
#define tqv_srl16(x, n) ((n) ? _mm512_srli_epi16((x), (n)) : (x))
TQV_INLINE tqv_bits tqv_table(const void *table) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table));
}
TQV_INLINE tqv_bits tqv_lookup(tqv_bits table, tqv_bits index) {
    return _mm512_shuffle_epi8(table, index);
}
/* The table repeats, so that bits above an index do not matter. */
TQV_INLINE tqv_bits tqv_pick(tqv_bits table, tqv_bits x, const int shift, const int mask) {
    (void)mask;
    return _mm512_permutexvar_epi8(tqv_srl16(x, shift), table);
}
TQV_INLINE tqv_bits tqv_pick_signed(tqv_bits table, tqv_bits x, const int shift, const int mask, tqv_bits sign) {
    return _mm512_permutexvar_epi8(tqv_merge(_mm512_set1_epi8((char)mask), tqv_srl16(x, shift), sign), table);
}
TQV_INLINE tqv_bits tqv_maddu8(tqv_bits u, tqv_bits s) {
    return _mm512_maddubs_epi16(u, s);
}
TQV_INLINE tqv_bits tqv_dot16(tqv_bits sum, tqv_bits a, tqv_bits b) {
    return _mm512_dpwssd_epi32(sum, a, b);
}
/* sum + four products each of unsigned bytes u and signed bytes s */
TQV_INLINE tqv_bits tqv_dot8(tqv_bits sum, tqv_bits u, tqv_bits s) {
    return _mm512_dpbusd_epi32(sum, u, s);
}
TQV_INLINE tqv_bits tqv_squares8(tqv_bits sum, tqv_bits x) {
    return tqv_dot8(sum, x, x);
}
TQV_INLINE void tqv_join_words(const uint8_t *p, const int n, void *out) {
    const __m128 a = _mm_loadu_ps((const float *)(const void *)p), b = _mm_loadu_ps((const float *)(const void *)(p + 16));
    const __m128i even = _mm_castps_si128(_mm_shuffle_ps(a, b, 0x88)), odd = _mm_castps_si128(_mm_shuffle_ps(a, b, 0xdd));
    _mm_storeu_si128((__m128i *)out, _mm_or_si128(even, _mm_slli_epi32(odd, n)));
}
TQV_INLINE void tqv_add_spare(const void *p, const int n, const uint32_t mask, void *out) {
    const __m128i x = _mm_loadu_si128((const __m128i *)p), shifts = _mm_setr_epi32(n, n + 1, n + 2, 0);
    const __m128i spare = _mm_and_si128(_mm_sllv_epi32(_mm_shuffle_epi32(x, 0xff), shifts), _mm_set1_epi32((int)mask));
    const __m128i y = _mm_or_si128(x, spare);
    const int32_t last = _mm_extract_epi32(y, 2);
    _mm_storel_epi64((__m128i *)out, y);
    memcpy((uint8_t *)out + 8, &last, 4);
}
TQV_INLINE tqv_f32 tqv_flip(tqv_f32 x, uint32_t signs) {
    const __m512i top = _mm512_maskz_set1_epi32((__mmask16)signs, INT32_MIN);
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(x), top));
}
TQV_INLINE tqv_f32 tqv_lookup_f32(const float table[8], tqv_bits index) {
    return _mm512_permutexvar_ps(index, _mm512_broadcast_f32x8(_mm256_loadu_ps(table)));
}
TQV_INLINE tqv_f32 tqv_lookup16_f32(const float table[16], tqv_bits index) {
    return _mm512_permutexvar_ps(index, _mm512_loadu_ps(table));
}
TQV_INLINE void tqv_store_u8(uint8_t *p, tqv_bits x) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(x));
}
/* From the order in which two narrowings of four vectors leave their values. */
TQV_INLINE tqv_bits tqv_in_order(tqv_bits x) {
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), x);
}
TQV_INLINE tqv_bits tqv_low_bytes(const tqv_bits x[4]) {
    return tqv_in_order(_mm512_packus_epi16(_mm512_packs_epi32(x[0], x[1]), _mm512_packs_epi32(x[2], x[3])));
}
TQV_INLINE void tqv_prefetch(const void *p) {
    _mm_prefetch((const char *)p, _MM_HINT_T1);
}

/* ---- runs of 16 values: two per vector of 16-bit lanes, in its low and high 64-bit halves; four per vector of bytes -- */

TQV_INLINE tqv_bits tqv_narrow32(tqv_bits a, tqv_bits b) {
    return _mm512_packs_epi32(a, b);
}
TQV_INLINE tqv_bits tqv_narrow16(tqv_bits a, tqv_bits b) {
    return _mm512_packs_epi16(a, b);
}
TQV_INLINE tqv_bits tqv_narrow16u(tqv_bits a, tqv_bits b) {
    return _mm512_packus_epi16(a, b);
}
TQV_INLINE tqv_bits tqv_negative16(tqv_bits x) {
    return _mm512_srai_epi16(x, 15);
}
TQV_INLINE tqv_bits tqv_add8_where_ge(tqv_bits a, tqv_bits b, tqv_bits x, const int more) {
    return _mm512_mask_add_epi8(x, _mm512_cmpge_epu8_mask(a, b), x, _mm512_set1_epi8((char)more));
}
TQV_INLINE tqv_bits tqv_mul_q15(tqv_bits a, tqv_bits b) {
    return _mm512_mulhrs_epi16(a, b);
}
TQV_INLINE void tqv_per_run(const uint32_t table[16], tqv_bits index, tqv_bits out[8]) {
    const __m512i entries = _mm512_loadu_si512(table);
    const __m512i of_run = _mm512_permutexvar_epi32(index, entries);
    const __m512i halves = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0, 1, 1));
    TQV_UNROLL for (int i = 0; i < 8; i++)
        out[i] = _mm512_permutexvar_epi32(_mm512_add_epi32(halves, _mm512_set1_epi32(2 * i)), of_run);
}
TQV_INLINE tqv_bits tqv_across(tqv_bits a, tqv_bits b) {
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}
TQV_INLINE tqv_bits tqv_run_sums(const tqv_bits x[4]) {
    return tqv_across(tqv_across(x[0], x[1]), tqv_across(x[2], x[3]));
}

/* ---- keys in lanes ---------------------------------------------------------------------------------------------- */

/* By halves: a load into a whole vector takes twice as long as one into a half. */
TQV_INLINE __m256i tqv_two128(const uint8_t *a, const uint8_t *b) {
    const __m256i x = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)a));
    return _mm256_mask_broadcast_i32x4(x, 0xf0, _mm_loadu_si128((const __m128i *)(const void *)b));
}
TQV_INLINE tqv_bits tqv_four128(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(tqv_two128(a, b)), tqv_two128(c, d), 1);
}
/* Rows i, i+4, i+8, i+12. */
TQV_INLINE tqv_bits tqv_rows128(const uint8_t *p, size_t stride) {
    return tqv_four128(p, p + 4 * stride, p + 8 * stride, p + 12 * stride);
}
TQV_INLINE void tqv_store_quads(float *p, int stride, tqv_bits x) {
    _mm_storeu_ps(p, _mm_castsi128_ps(_mm512_castsi512_si128(x)));
    _mm_storeu_ps(p + stride, _mm_castsi128_ps(_mm512_extracti32x4_epi32(x, 1)));
    _mm_storeu_ps(p + 2 * stride, _mm_castsi128_ps(_mm512_extracti32x4_epi32(x, 2)));
    _mm_storeu_ps(p + 3 * stride, _mm_castsi128_ps(_mm512_extracti32x4_epi32(x, 3)));
}
TQV_INLINE void tqv_transpose(const tqv_bits x[4], tqv_bits out[4]) {
    const tqv_bits a = _mm512_unpacklo_epi32(x[0], x[1]), b = _mm512_unpackhi_epi32(x[0], x[1]);
    const tqv_bits c = _mm512_unpacklo_epi32(x[2], x[3]), d = _mm512_unpackhi_epi32(x[2], x[3]);
    out[0] = _mm512_unpacklo_epi64(a, c);
    out[1] = _mm512_unpackhi_epi64(a, c);
    out[2] = _mm512_unpacklo_epi64(b, d);
    out[3] = _mm512_unpackhi_epi64(b, d);
}
TQV_INLINE void tqv_load_words(const uint8_t *p, size_t stride, tqv_bits out[4]) {
    const tqv_bits r[4] = {tqv_rows128(p, stride), tqv_rows128(p + stride, stride), tqv_rows128(p + 2 * stride, stride),
                           tqv_rows128(p + 3 * stride, stride)};
    tqv_transpose(r, out);
}
TQV_INLINE __m128i tqv_load32(const uint8_t *p) {
    int32_t x;
    memcpy(&x, p, 4);
    return _mm_cvtsi32_si128(x);
}
/* Eight 16-bit values; reads two bytes more of each row. */
TQV_INLINE __m128i tqv_gather16(const uint8_t *p, size_t stride) {
    const uint8_t *q = p + 4 * stride;
    const __m128i a = _mm_unpacklo_epi16(tqv_load32(p), tqv_load32(p + stride));
    const __m128i b = _mm_unpacklo_epi16(tqv_load32(p + 2 * stride), tqv_load32(p + 3 * stride));
    const __m128i c = _mm_unpacklo_epi16(tqv_load32(q), tqv_load32(q + stride));
    const __m128i d = _mm_unpacklo_epi16(tqv_load32(q + 2 * stride), tqv_load32(q + 3 * stride));
    return _mm_unpacklo_epi64(_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
}
TQV_INLINE void tqv_store_halves(uint8_t *out, const uint8_t *p, size_t stride) {
    _mm_storeu_si128((__m128i *)(void *)out, tqv_gather16(p, stride));
    _mm_storeu_si128((__m128i *)(void *)(out + 16), tqv_gather16(p + 8 * stride, stride));
}
TQV_INLINE tqv_bits tqv_from_u16(const uint8_t *p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
TQV_INLINE tqv_bits tqv_split_half(const uint8_t *p) {
    const __m512i x = tqv_from_u16(p);
    return _mm512_and_si512(_mm512_or_si512(x, _mm512_slli_epi32(x, 12)), _mm512_set1_epi32(0x0f0f0f0f));
}
/* The same 16 bytes in every 128-bit lane. */
#define TQV_BYTES(...) _mm512_broadcast_i32x4(_mm_setr_epi8(__VA_ARGS__))
TQV_INLINE tqv_bits tqv_byte_of_lanes(int k) {
    return _mm512_add_epi8(TQV_BYTES(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12), _mm512_set1_epi8((char)k));
}
TQV_INLINE tqv_bits tqv_spread(tqv_bits x, int k) {
    return _mm512_shuffle_epi8(x, tqv_byte_of_lanes(k));
}
TQV_INLINE tqv_bits tqv_spread_even(tqv_bits x, int k) {
    return _mm512_maskz_shuffle_epi8(0x5555555555555555, x, tqv_byte_of_lanes(k));
}
TQV_INLINE tqv_bits tqv_spread_odd(tqv_bits x, int k) {
    return _mm512_maskz_shuffle_epi8(0xaaaaaaaaaaaaaaaa, x, tqv_byte_of_lanes(k));
}

/* ---- values in lanes, keys in bytes ----------------------------------------------------------------------------- */

TQV_INLINE void tqv_repack_columns(const uint8_t *const p[4], size_t stride, const int n, uint8_t *out) {
    const size_t s2 = 2 * stride, s3 = 3 * stride;
    const tqv_bits r0 = tqv_four128(p[0], p[1], p[2], p[3]);
    const tqv_bits r1 = tqv_four128(p[0] + stride, p[1] + stride, p[2] + stride, p[3] + stride);
    const tqv_bits r2 = tqv_four128(p[0] + s2, p[1] + s2, p[2] + s2, p[3] + s2);
    const tqv_bits r3 = tqv_four128(p[0] + s3, p[1] + s3, p[2] + s3, p[3] + s3);
    const tqv_bits a = _mm512_unpacklo_epi8(r0, r1), b = _mm512_unpackhi_epi8(r0, r1);
    const tqv_bits c = _mm512_unpacklo_epi8(r2, r3), d = _mm512_unpackhi_epi8(r2, r3);
    const __m512i order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    const tqv_bits words[4] = {_mm512_unpacklo_epi16(a, c), _mm512_unpackhi_epi16(a, c), _mm512_unpacklo_epi16(b, d),
                               _mm512_unpackhi_epi16(b, d)};
    TQV_UNROLL for (int w = 0; w < n; w++)
        _mm512_storeu_si512(out + 64 * w, _mm512_permutexvar_epi32(order, words[w]));
}
TQV_INLINE tqv_bits tqv_split_columns(const uint8_t *p, int part) {
    const __m512i order = _mm512_setr_epi32(0, 2, 1, 3, 0, 2, 1, 3, 4, 6, 5, 7, 4, 6, 5, 7);
    const __m512i x = _mm512_permutexvar_epi32(order, _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)p)));
    (void)part;
    return _mm512_and_si512(_mm512_mask_srli_epi32(x, 0xf0f0, x, 4), _mm512_set1_epi32(0x0f0f0f0f));
}
TQV_INLINE tqv_bits tqv_key_bytes(tqv_bits x) {
    return _mm512_shuffle_epi8(x, TQV_BYTES(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
}
TQV_INLINE tqv_bits tqv_columns(const int32_t *p) {
    const __m512i x = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm512_castpd_si512(_mm512_permute_pd(_mm512_castsi512_pd(x), 0xf0));
}
TQV_INLINE void tqv_interleave(const int32_t *a, const int32_t *b, const int32_t *c, const int32_t *d, int32_t *out) {
    const tqv_bits x[4] = {tqv_bload(a), tqv_bload(b), tqv_bload(c), tqv_bload(d)};
    tqv_bits q[4];
    tqv_transpose(x, q);
    TQV_UNROLL for (int i = 0; i < 4; i++)
        tqv_store_quads((float *)out + 4 * i, 16, q[i]);
}
TQV_INLINE void tqv_store_weights(int32_t *even, int32_t *odd, const tqv_bits w[4]) {
    const __m512i order = TQV_BYTES(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15); /* of each quad: even, odd pair */
    const __m512i x = _mm512_shuffle_epi8(_mm512_packs_epi32(w[0], w[1]), order);
    const __m512i y = _mm512_shuffle_epi8(_mm512_packs_epi32(w[2], w[3]), order);
    const __m512i quads = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 16, 20, 24, 28, 17, 21, 25, 29);
    _mm512_storeu_si512(even, _mm512_permutex2var_epi32(x, quads, y));
    _mm512_storeu_si512(odd, _mm512_permutex2var_epi32(x, _mm512_add_epi32(quads, _mm512_set1_epi32(2)), y));
}
TQV_INLINE void tqv_store_byte_weights(int32_t *high, int32_t *low, const tqv_bits w[4]) {
    const __m512i x = _mm512_packs_epi32(w[0], w[1]), y = _mm512_packs_epi32(w[2], w[3]);
    const __m512i round = _mm512_set1_epi16(128), byte = _mm512_set1_epi16(255);
    const __m512i h = _mm512_packs_epi16(_mm512_srai_epi16(_mm512_add_epi16(x, round), 8),
                                         _mm512_srai_epi16(_mm512_add_epi16(y, round), 8));
    const __m512i l = _mm512_packus_epi16(_mm512_and_si512(x, byte), _mm512_and_si512(y, byte));
    const __m512i quads = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(high, _mm512_permutexvar_epi32(quads, h));
    _mm512_storeu_si512(low, _mm512_permutexvar_epi32(quads, l));
}

/* ---- transform -------------------------------------------------------------------------------------------------- */

/* Of each vector: the neighbour at distance h plus x, negated where bit h of the lane is set. */
TQV_INLINE void tqv_hadamard(tqv_f32 *x, const int n) {
#define TQV_STEP(lanes, neighbour)                                                                                     \
    TQV_UNROLL for (int i = 0; i < n; i++)                                                                             \
        x[i] = _mm512_fmadd_ps(x[i], _mm512_mask_blend_ps(lanes, _mm512_set1_ps(1.0f), _mm512_set1_ps(-1.0f)), neighbour)
    TQV_STEP(0xaaaa, _mm512_permute_ps(x[i], 0xb1));
    TQV_STEP(0xcccc, _mm512_permute_ps(x[i], 0x4e));
    TQV_STEP(0xf0f0, _mm512_shuffle_f32x4(x[i], x[i], 0xb1));
    TQV_STEP(0xff00, _mm512_shuffle_f32x4(x[i], x[i], 0x4e));
#undef TQV_STEP
}

#endif
