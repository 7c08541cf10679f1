/* Vocabulary of x86-64-v3 (AVX2, FMA, F16C): what the algorithm texts are written in. See c.h for the meaning of each
 * word in plain C. */
#ifndef TQV_H
#define TQV_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

enum {
    TQV_LANES = 8, /* 32-bit lanes of a vector */
    TQV_SUMS = 8,  /* vectors that sums may take of the registers */
    TQV_REGISTERS = 16,
};

typedef __m256 tqv_f32;
typedef __m256i tqv_bits;

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
    return _mm256_setzero_ps();
}
TQV_INLINE tqv_f32 tqv_set1(float x) {
    return _mm256_set1_ps(x);
}
TQV_INLINE tqv_f32 tqv_load(const float *p) {
    return _mm256_loadu_ps(p);
}
TQV_INLINE void tqv_store(float *p, tqv_f32 x) {
    _mm256_storeu_ps(p, x);
}
TQV_INLINE tqv_f32 tqv_add(tqv_f32 a, tqv_f32 b) {
    return _mm256_add_ps(a, b);
}
TQV_INLINE tqv_f32 tqv_sub(tqv_f32 a, tqv_f32 b) {
    return _mm256_sub_ps(a, b);
}
TQV_INLINE tqv_f32 tqv_mul(tqv_f32 a, tqv_f32 b) {
    return _mm256_mul_ps(a, b);
}
TQV_INLINE tqv_f32 tqv_div(tqv_f32 a, tqv_f32 b) {
    return _mm256_div_ps(a, b);
}
TQV_INLINE tqv_f32 tqv_sqrt(tqv_f32 a) {
    return _mm256_sqrt_ps(a);
}
TQV_INLINE tqv_f32 tqv_fma(tqv_f32 a, tqv_f32 b, tqv_f32 c) {
    return _mm256_fmadd_ps(a, b, c);
}
TQV_INLINE tqv_f32 tqv_max(tqv_f32 a, tqv_f32 b) {
    return _mm256_max_ps(a, b);
}
TQV_INLINE tqv_f32 tqv_min(tqv_f32 a, tqv_f32 b) {
    return _mm256_min_ps(a, b);
}
TQV_INLINE tqv_f32 tqv_abs(tqv_f32 a) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
TQV_INLINE tqv_f32 tqv_swap_pairs(tqv_f32 a) {
    return _mm256_permute_ps(a, 0xb1);
}
TQV_INLINE float tqv_hsum(tqv_f32 a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
TQV_INLINE float tqv_hmax(tqv_f32 a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
/* Lane i: what v[i] reduces to; far cheaper than one by one. */
#define TQV_REDUCE_ALL(name, op)                                                                                       \
    TQV_INLINE __m256 name##_pair(__m256 a, __m256 b) {                                                                \
        return op(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));                                       \
    }                                                                                                                  \
    TQV_INLINE tqv_f32 name(const tqv_f32 v[TQV_LANES]) {                                                              \
        const __m256 a = name##_pair(name##_pair(v[0], v[1]), name##_pair(v[2], v[3]));                                \
        const __m256 b = name##_pair(name##_pair(v[4], v[5]), name##_pair(v[6], v[7]));                                \
        return op(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));                             \
    }
TQV_REDUCE_ALL(tqv_sums, _mm256_add_ps)
TQV_REDUCE_ALL(tqv_maxima, _mm256_max_ps)

TQV_INLINE tqv_bits tqv_ge(tqv_f32 a, tqv_f32 b) {
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GE_OQ));
}
TQV_INLINE tqv_bits tqv_to_i32(tqv_f32 a) {
    return _mm256_cvtps_epi32(a);
}
TQV_INLINE tqv_f32 tqv_from_i32(tqv_bits a) {
    return _mm256_cvtepi32_ps(a);
}
TQV_INLINE tqv_f32 tqv_from_byte(tqv_bits a, int k) {
    const __m256i lanes = _mm256_broadcastsi128_si256(_mm_setr_epi32(0x00808080, 0x04808080, 0x08808080, 0x0c808080));
    const __m256i order = _mm256_add_epi32(lanes, _mm256_set1_epi32(k * 0x1000000));
    return _mm256_cvtepi32_ps(k == 3 ? _mm256_and_si256(a, _mm256_set1_epi32(-0x1000000))
                                     : _mm256_shuffle_epi8(a, order));
}
TQV_INLINE tqv_f32 tqv_from_i8(const uint8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
TQV_INLINE tqv_f32 tqv_from_f16(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
TQV_INLINE void tqv_to_f16(uint8_t *p, tqv_f32 a) {
    const tqv_f32 top = _mm256_set1_ps(65504.0f);
    a = _mm256_min_ps(_mm256_max_ps(a, _mm256_sub_ps(_mm256_setzero_ps(), top)), top);
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

/* To the nearest integer; y * 2^whole, for whole >= -126: the words that exp2 of decode.c is made of. */
TQV_INLINE tqv_f32 tqv_round(tqv_f32 x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
TQV_INLINE tqv_f32 tqv_times_2_to(tqv_f32 y, tqv_f32 whole) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(whole), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), exponent));
}

/* ---- bytes, 16- and 32-bit integers ----------------------------------------------------------------------------- */

TQV_INLINE tqv_bits tqv_bzero(void) {
    return _mm256_setzero_si256();
}
TQV_INLINE tqv_bits tqv_bset1(int32_t x) {
    return _mm256_set1_epi32(x);
}
TQV_INLINE tqv_bits tqv_bload(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}
TQV_INLINE void tqv_bstore(void *p, tqv_bits x) {
    _mm256_storeu_si256((__m256i *)p, x);
}
TQV_INLINE tqv_bits tqv_and(tqv_bits a, tqv_bits b) {
    return _mm256_and_si256(a, b);
}
TQV_INLINE tqv_bits tqv_xor(tqv_bits a, tqv_bits b) {
    return _mm256_xor_si256(a, b);
}
TQV_INLINE tqv_bits tqv_add32(tqv_bits a, tqv_bits b) {
    return _mm256_add_epi32(a, b);
}
TQV_INLINE tqv_bits tqv_sub32(tqv_bits a, tqv_bits b) {
    return _mm256_sub_epi32(a, b);
}
TQV_INLINE tqv_bits tqv_add_where_ge(tqv_f32 a, tqv_f32 b, tqv_bits x, const int32_t more) {
    return tqv_add32(x, tqv_and(tqv_ge(a, b), tqv_bset1(more)));
}
TQV_INLINE tqv_bits tqv_sub8(tqv_bits a, tqv_bits b) {
    return _mm256_sub_epi8(a, b);
}
TQV_INLINE tqv_bits tqv_abs8(tqv_bits a) {
    return _mm256_abs_epi8(a);
}
TQV_INLINE tqv_bits tqv_select(tqv_bits mask, tqv_bits a, tqv_bits b) {
    return _mm256_blendv_epi8(b, a, mask);
}
TQV_INLINE tqv_bits tqv_merge(tqv_bits mask, tqv_bits a, tqv_bits b) {
    return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
}
#define tqv_srl16(x, n) ((n) ? _mm256_srli_epi16((x), (n)) : (x))
TQV_INLINE tqv_bits tqv_table(const void *table) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
}
TQV_INLINE tqv_bits tqv_lookup(tqv_bits table, tqv_bits index) {
    return _mm256_shuffle_epi8(table, index);
}
TQV_INLINE tqv_bits tqv_pick(tqv_bits table, tqv_bits x, const int shift, const int mask) {
    return tqv_lookup(table, _mm256_and_si256(tqv_srl16(x, shift), _mm256_set1_epi8((char)mask)));
}
TQV_INLINE tqv_bits tqv_pick_signed(tqv_bits table, tqv_bits x, const int shift, const int mask, tqv_bits sign) {
    return tqv_lookup(table, _mm256_or_si256(_mm256_and_si256(tqv_srl16(x, shift), _mm256_set1_epi8((char)mask)), sign));
}
TQV_INLINE tqv_bits tqv_maddu8(tqv_bits u, tqv_bits s) {
    return _mm256_maddubs_epi16(u, s);
}
TQV_INLINE tqv_bits tqv_dot16(tqv_bits sum, tqv_bits a, tqv_bits b) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}
TQV_INLINE tqv_bits tqv_squares8(tqv_bits sum, tqv_bits x) {
    return tqv_dot16(sum, tqv_maddu8(x, x), tqv_bset1(0x00010001));
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
    const __m256i lane = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    const __m256i top = _mm256_sllv_epi32(_mm256_set1_epi32((int)signs), lane);
    return _mm256_xor_ps(x, _mm256_castsi256_ps(_mm256_and_si256(top, _mm256_set1_epi32(INT32_MIN))));
}
TQV_INLINE tqv_f32 tqv_lookup_f32(const float table[8], tqv_bits index) {
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), index);
}
TQV_INLINE tqv_f32 tqv_lookup16_f32(const float table[16], tqv_bits index) {
    const __m256 low = tqv_lookup_f32(table, index), high = tqv_lookup_f32(table + 8, index);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}
TQV_INLINE void tqv_store_u8(uint8_t *p, tqv_bits x) {
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packus_epi16(words, words));
}
/* From the order in which two narrowings of four vectors leave their values. */
TQV_INLINE tqv_bits tqv_in_order(tqv_bits x) {
    return _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
TQV_INLINE tqv_bits tqv_low_bytes(const tqv_bits x[4]) {
    return tqv_in_order(_mm256_packus_epi16(_mm256_packs_epi32(x[0], x[1]), _mm256_packs_epi32(x[2], x[3])));
}
TQV_INLINE void tqv_prefetch(const void *p) {
    _mm_prefetch((const char *)p, _MM_HINT_T1);
}

/* ---- runs of 16 values: one per vector of 16-bit lanes; two per vector of bytes, by turns of 8 ------------------- */

TQV_INLINE tqv_bits tqv_narrow32(tqv_bits a, tqv_bits b) {
    return _mm256_packs_epi32(a, b);
}
TQV_INLINE tqv_bits tqv_narrow16(tqv_bits a, tqv_bits b) {
    return _mm256_packs_epi16(a, b);
}
TQV_INLINE tqv_bits tqv_narrow16u(tqv_bits a, tqv_bits b) {
    return _mm256_packus_epi16(a, b);
}
TQV_INLINE tqv_bits tqv_negative16(tqv_bits x) {
    return _mm256_srai_epi16(x, 15);
}
TQV_INLINE tqv_bits tqv_add8_where_ge(tqv_bits a, tqv_bits b, tqv_bits x, const int more) {
    const __m256i ge = _mm256_cmpeq_epi8(_mm256_max_epu8(a, b), a);
    return more == 1 ? _mm256_sub_epi8(x, ge) : _mm256_add_epi8(x, _mm256_and_si256(ge, _mm256_set1_epi8((char)more)));
}
TQV_INLINE tqv_bits tqv_mul_q15(tqv_bits a, tqv_bits b) {
    return _mm256_mulhrs_epi16(a, b);
}
TQV_INLINE void tqv_per_run(const uint32_t table[16], tqv_bits index, tqv_bits out[8]) {
    int32_t at[8];
    tqv_bstore(at, index);
    TQV_UNROLL for (int r = 0; r < 8; r++)
        out[r] = _mm256_set1_epi32((int)table[at[r]]);
}
TQV_INLINE tqv_bits tqv_run_sums(const tqv_bits x[4]) {
    const __m256i a = _mm256_hadd_epi32(x[0], x[1]), b = _mm256_hadd_epi32(x[2], x[3]);
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

/* ---- keys in lanes ---------------------------------------------------------------------------------------------- */

TQV_INLINE tqv_bits tqv_pair128(const uint8_t *low, const uint8_t *high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)low)),
                                   _mm_loadu_si128((const __m128i *)(const void *)high), 1);
}
TQV_INLINE void tqv_store_quads(float *p, int stride, tqv_bits x) {
    _mm_storeu_ps(p, _mm_castsi128_ps(_mm256_castsi256_si128(x)));
    _mm_storeu_ps(p + stride, _mm_castsi128_ps(_mm256_extracti128_si256(x, 1)));
}
TQV_INLINE void tqv_transpose(const tqv_bits x[4], tqv_bits out[4]) {
    const tqv_bits a = _mm256_unpacklo_epi32(x[0], x[1]), b = _mm256_unpackhi_epi32(x[0], x[1]);
    const tqv_bits c = _mm256_unpacklo_epi32(x[2], x[3]), d = _mm256_unpackhi_epi32(x[2], x[3]);
    out[0] = _mm256_unpacklo_epi64(a, c);
    out[1] = _mm256_unpackhi_epi64(a, c);
    out[2] = _mm256_unpacklo_epi64(b, d);
    out[3] = _mm256_unpackhi_epi64(b, d);
}
TQV_INLINE void tqv_load_words(const uint8_t *p, size_t stride, tqv_bits out[4]) {
    const tqv_bits r[4] = {tqv_pair128(p, p + 4 * stride), tqv_pair128(p + stride, p + 5 * stride),
                           tqv_pair128(p + 2 * stride, p + 6 * stride), tqv_pair128(p + 3 * stride, p + 7 * stride)};
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
}
TQV_INLINE tqv_bits tqv_from_u16(const uint8_t *p) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
TQV_INLINE tqv_bits tqv_split_half(const uint8_t *p) {
    const __m256i x = tqv_from_u16(p);
    return _mm256_and_si256(_mm256_or_si256(x, _mm256_slli_epi32(x, 12)), _mm256_set1_epi32(0x0f0f0f0f));
}
/* none: what is added in even and odd bytes, 0x80 where the result is to be 0. */
TQV_INLINE tqv_bits tqv_spread_bytes(tqv_bits x, int k, int16_t none) {
    const __m256i base = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c);
    return _mm256_shuffle_epi8(x, _mm256_add_epi32(base, _mm256_add_epi8(_mm256_set1_epi8((char)k), _mm256_set1_epi16(none))));
}
TQV_INLINE tqv_bits tqv_spread(tqv_bits x, int k) {
    return tqv_spread_bytes(x, k, 0);
}
TQV_INLINE tqv_bits tqv_spread_even(tqv_bits x, int k) {
    return tqv_spread_bytes(x, k, INT16_MIN);
}
TQV_INLINE tqv_bits tqv_spread_odd(tqv_bits x, int k) {
    return tqv_spread_bytes(x, k, 0x80);
}

/* ---- values in lanes, keys in bytes ----------------------------------------------------------------------------- */

TQV_INLINE void tqv_repack_columns(const uint8_t *const p[4], size_t stride, const int n, uint8_t *out) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (int half = 0; half < 2; half++) {
        const uint8_t *low = p[2 * half], *high = p[2 * half + 1];
        const tqv_bits r0 = tqv_pair128(low, high), r1 = tqv_pair128(low + stride, high + stride);
        const tqv_bits r2 = tqv_pair128(low + 2 * stride, high + 2 * stride);
        const tqv_bits r3 = tqv_pair128(low + 3 * stride, high + 3 * stride);
        const tqv_bits a = _mm256_unpacklo_epi8(r0, r1), b = _mm256_unpackhi_epi8(r0, r1);
        const tqv_bits c = _mm256_unpacklo_epi8(r2, r3), d = _mm256_unpackhi_epi8(r2, r3);
        const tqv_bits words[4] = {_mm256_unpacklo_epi16(a, c), _mm256_unpackhi_epi16(a, c), _mm256_unpacklo_epi16(b, d),
                                   _mm256_unpackhi_epi16(b, d)};
        TQV_UNROLL for (int w = 0; w < n; w++)
            tqv_bstore(out + 64 * w + 32 * half, _mm256_permutevar8x32_epi32(words[w], order));
    }
}
TQV_INLINE tqv_bits tqv_split_columns(const uint8_t *p, int part) {
    const __m128i x = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * part)), 0xd8);
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(x), _mm_srli_epi32(x, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi32(0x0f0f0f0f));
}
TQV_INLINE tqv_bits tqv_key_bytes(tqv_bits x) {
    return _mm256_shuffle_epi8(x, _mm256_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15, 0, 2, 4, 6, 1, 3,
                                                   5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
}
TQV_INLINE tqv_bits tqv_columns(const int32_t *p) {
    int64_t x;
    memcpy(&x, p, 8);
    return _mm256_set1_epi64x(x);
}
TQV_INLINE void tqv_interleave(const int32_t *a, const int32_t *b, const int32_t *c, const int32_t *d, int32_t *out) {
    const tqv_bits x[4] = {tqv_bload(a), tqv_bload(b), tqv_bload(c), tqv_bload(d)};
    tqv_bits q[4];
    tqv_transpose(x, q);
    TQV_UNROLL for (int i = 0; i < 4; i++)
        tqv_store_quads((float *)out + 4 * i, 16, q[i]);
}
TQV_INLINE void tqv_store_weights(int32_t *even, int32_t *odd, const tqv_bits w[4]) {
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12, 13,
                                           2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i quads = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i x = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(_mm256_packs_epi32(w[0], w[1]), order), quads);
    const __m256i y = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(_mm256_packs_epi32(w[2], w[3]), order), quads);
    _mm256_storeu_si256((__m256i *)(void *)even, _mm256_permute2x128_si256(x, y, 0x20));
    _mm256_storeu_si256((__m256i *)(void *)odd, _mm256_permute2x128_si256(x, y, 0x31));
}

/* ---- transform -------------------------------------------------------------------------------------------------- */

TQV_INLINE void tqv_hadamard(tqv_f32 *x, const int n) {
    const __m256 m1 = _mm256_setr_ps(1.0f, -1.0f, 1.0f, -1.0f, 1.0f, -1.0f, 1.0f, -1.0f);
    const __m256 m2 = _mm256_setr_ps(1.0f, 1.0f, -1.0f, -1.0f, 1.0f, 1.0f, -1.0f, -1.0f);
    const __m256 m4 = _mm256_setr_ps(1.0f, 1.0f, 1.0f, 1.0f, -1.0f, -1.0f, -1.0f, -1.0f);
    TQV_UNROLL for (int i = 0; i < n; i++)
        x[i] = _mm256_fmadd_ps(x[i], m1, _mm256_permute_ps(x[i], 0xb1));
    TQV_UNROLL for (int i = 0; i < n; i++)
        x[i] = _mm256_fmadd_ps(x[i], m2, _mm256_permute_ps(x[i], 0x4e));
    TQV_UNROLL for (int i = 0; i < n; i++)
        x[i] = _mm256_fmadd_ps(x[i], m4, _mm256_permute2f128_ps(x[i], x[i], 1));
}

#endif
