/* SIMT vocabulary of the kernel texts: C on the CPU, one call of a kernel per GPU thread, see tq_simt.h; docs/gpu_kernels.md
 * has the meaning of each word. Nibble order and matrix registers are those of the vendor that is emulated.
 *
 * Macros that come before: TQG_WARP; TQG_VENDOR_CUDA or TQG_VENDOR_HIP; TQG_COPY_ASYNC or TQG_COPY_BULK, TQG_MATRIX_MMA,
 * TQG_MATRIX_WMMA, TQG_MATRIX_WMMA11 or TQG_MATRIX_MFMA where the arch has them. */
#ifndef TQG_VOCABULARY_H
#define TQG_VOCABULARY_H

#include "tq_gpu.h"
#include "tq_simt.h"

#include <math.h>
#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

#define TQG_FN static inline __attribute__((unused))
#define TQG_KERNEL(name, params, threads, blocks)                                                                      \
    static void name##_body(const params p);                                                                           \
    void name(const void *argument);                                                                                   \
    void name(const void *argument) {                                                                                  \
        tq_simt_enter(threads, TQG_WARP);                                                                              \
        name##_body(*(const params *)argument);                                                                        \
    }                                                                                                                  \
    static void name##_body(__attribute__((unused)) const params p)
#define TQG_UNROLL
#define TQG_NO_UNROLL

/* Which word of a text, where: what threads that meet must agree on. */
#define TQG_TEXT_OF(x) #x
#define TQG_LINE(line) TQG_TEXT_OF(line)
#define TQG_AT(word) word " at " __FILE__ ":" TQG_LINE(__LINE__)

#define TQG_SHARED tq_simt_shared()

typedef struct tqg_u4 {
    _Alignas(16) tqg_u32 x;
    tqg_u32 y, z, w;
} tqg_u4;

/* ---- where am I ------------------------------------------------------------------------------------------------- */

TQG_FN int tqg_thread(void) {
    return tq_simt_thread();
}
TQG_FN int tqg_lane(void) {
    return tqg_thread() % TQG_WARP;
}
TQG_FN int tqg_warp(void) {
    return tqg_thread() / TQG_WARP;
}
TQG_FN int tqg_block_x(void) {
    return tq_simt_block_x();
}
TQG_FN int tqg_block_y(void) {
    return tq_simt_block_y();
}
TQG_FN int tqg_block_z(void) {
    return tq_simt_block_z();
}

/* ---- bits ------------------------------------------------------------------------------------------------------- */

TQG_FN tqg_u32 tqg_bits(float x) {
    tqg_u32 bits;
    memcpy(&bits, &x, 4);
    return bits;
}
TQG_FN float tqg_float(tqg_u32 bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
#ifdef TQG_VENDOR_CUDA /* where all lanes of the warp must be there */
#define tqg_keep(x) ((x) ^ tq_simt_shuffle(0, 0, TQG_AT("tqg_keep")))
#else
#define tqg_keep(x) (x)
#endif
#define tqg_in_order() ((void)0)
TQG_FN tqg_u32 tqg_select(tqg_u32 mask, tqg_u32 a, tqg_u32 b) {
    return (mask & a) | (~mask & b);
}
/* Byte i of the result: of {a, b} the byte that nibble i of the selectors names. */
TQG_FN tqg_u32 tqg_permute(tqg_u32 a, tqg_u32 b, tqg_u32 selectors) {
    const tqg_u64 bytes = a | (tqg_u64)b << 32;
    return (tqg_u32)((bytes >> 8 * (selectors & 7) & 0xff) | (bytes >> 8 * (selectors >> 4 & 7) & 0xff) << 8 |
                     (bytes >> 8 * (selectors >> 8 & 7) & 0xff) << 16 | (bytes >> 8 * (selectors >> 12 & 7) & 0xff) << 24);
}
TQG_FN tqg_u32 tqg_zip01(tqg_u32 lo, tqg_u32 hi) {
    return tqg_permute(lo, hi, 0x5140);
}
TQG_FN tqg_u32 tqg_zip23(tqg_u32 lo, tqg_u32 hi) {
    return tqg_permute(lo, hi, 0x7362);
}
TQG_FN tqg_u32 tqg_zip02(tqg_u32 lo, tqg_u32 hi) {
    return tqg_permute(lo, hi, 0x6240);
}
TQG_FN tqg_u32 tqg_zip13(tqg_u32 lo, tqg_u32 hi) {
    return tqg_permute(lo, hi, 0x7351);
}
/* What instructions would take for something else. */
TQG_FN void tqg_refuse(tqg_u32 bits, const char *word) {
    if (bits)
        tq_simt_fail("%s of a word with other bits set: %08x", word, bits);
}
TQG_FN tqg_u32 tqg_spread(tqg_u32 tops) {
    tqg_refuse(tops & 0x7f7f7f7f, "tqg_spread");
    return (tops >> 7) * 0xff;
}

#ifdef TQG_VENDOR_CUDA
/* Indices are nibbles, of which lookup reads the low four. */
#define TQG_NIBBLE(half, i) (((i) & 1) + 2 * (half) + 4 * ((i) >> 1))
#define TQG_TOP_NIBBLE(half, i) (2 * (i) + 1 - (half))
TQG_FN tqg_u32 tqg_codes(tqg_u32 word, int half) {
    const tqg_u32 codes = (half ? word >> 8 : word) & 0x00770077;
    return codes | codes >> 8; /* lookup reads the low 16 bits */
}
TQG_FN tqg_u32 tqg_row_codes(tqg_u32 word, int row) {
    const tqg_u32 codes = word & 0x77777777;
    return row ? codes >> 16 : codes;
}
TQG_FN tqg_u32 tqg_lookup(tqg_u32 t0, tqg_u32 t1, tqg_u32 codes) {
    tqg_refuse(codes & 0x8888, "tqg_lookup");
    return tqg_permute(t0, t1, codes);
}
TQG_FN tqg_u32 tqg_tops(tqg_u32 word, int half) {
    return (half ? word << 4 : word) & 0x80808080;
}
TQG_FN tqg_u32 tqg_row_spread(tqg_u32 word, int row) {
    tqg_u32 tops = 0;
    for (int i = 0; i < 4; i++)
        tops |= (word >> (16 * row + 4 * TQG_TOP_NIBBLE(i >> 1, (i & 1)) + 3) & 1) << (8 * i + 7);
    return tqg_spread(tops);
}
#else
/* Indices are bytes. */
#define TQG_NIBBLE(half, i) (2 * (i) + (half))
#define TQG_TOP_NIBBLE(half, i) TQG_NIBBLE(half, i)
TQG_FN tqg_u32 tqg_codes(tqg_u32 word, int half) {
    return (half ? word >> 4 : word) & 0x07070707;
}
TQG_FN tqg_u32 tqg_lookup(tqg_u32 t0, tqg_u32 t1, tqg_u32 codes) {
    tqg_refuse(codes & 0xf8f8f8f8, "tqg_lookup");
    return tqg_permute(t0, t1, (codes & 7) | (codes >> 4 & 0x70) | (codes >> 8 & 0x700) | (codes >> 12 & 0x7000));
}
TQG_FN tqg_u32 tqg_tops(tqg_u32 word, int half) {
    return (half ? word : word << 4) & 0x80808080;
}
#endif

TQG_FN void tqg_table16(const tqg_u32 *bytes, tqg_u32 *table) {
    memcpy(table, bytes, 16);
#ifdef TQG_VENDOR_CUDA
    for (int i = 0; i < 2; i++)
        tqg_refuse((bytes[i] ^ bytes[2 + i]) & 0x80808080, "tqg_table16");
#endif
}
TQG_FN tqg_u32 tqg_byte16(const tqg_u32 *table, tqg_u32 word, int nibble) {
    const int code = word >> 4 * nibble & 15;
    return table[code / 4] >> 8 * (code % 4) & 0xff;
}
TQG_FN tqg_u32 tqg_lookup16(const tqg_u32 *table, tqg_u32 word, int half) {
    tqg_u32 out = 0;
    for (int i = 0; i < 4; i++)
        out |= tqg_byte16(table, word, TQG_NIBBLE(half, i)) << 8 * i;
    return out;
}
#ifdef TQG_VENDOR_CUDA
TQG_FN tqg_u32 tqg_row_lookup16(const tqg_u32 *table, tqg_u32 word, int row) {
    tqg_u32 out = 0;
    for (int i = 0; i < 4; i++)
        out |= tqg_byte16(table, word, 4 * row + i) << 8 * i;
    return out;
}
#endif

/* ---- floats ----------------------------------------------------------------------------------------------------- */

TQG_FN float tqg_fma(float a, float b, float c) {
    return fmaf(a, b, c);
}
TQG_FN float tqg_max(float a, float b) {
    return fmaxf(a, b);
}
TQG_FN float tqg_min(float a, float b) {
    return fminf(a, b);
}
TQG_FN float tqg_abs(float x) {
    return fabsf(x);
}
TQG_FN float tqg_rint(float x) {
    return rintf(x);
}
TQG_FN float tqg_exp2(float x) {
    return exp2f(x);
}
TQG_FN float tqg_log2(float x) {
    return log2f(x);
}
TQG_FN float tqg_rcp(float x) {
    return 1.0f / x;
}
TQG_FN float tqg_rsqrt(float x) {
    return 1.0f / sqrtf(x);
}
TQG_FN float tqg_tanh(float x) {
    const float e = tqg_exp2(-2.885390082f * tqg_abs(x)); /* exp(-2 |x|) */
    return copysignf((1.0f - e) * tqg_rcp(1.0f + e), x);
}

/* ---- halves ----------------------------------------------------------------------------------------------------- */

#ifdef __F16C__
TQG_FN float tqg_half(tqg_u16 half) {
    return _cvtsh_ss(half);
}
TQG_FN tqg_u16 tqg_to_half(float x) {
    return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
}
#else
/* Without branches: the exponent is shifted into place by a multiplication, which is exact, subnormals included. */
TQG_FN float tqg_half(tqg_u16 half) {
    const tqg_u32 rest = (tqg_u32)(half & 0x7fff) << 13, special = rest >= 0x0f800000 ? 0x7f800000 : 0;
    return tqg_float(tqg_bits(tqg_float(rest) * 0x1p112f) | special | (tqg_u32)(half & 0x8000) << 16);
}
/* To nearest, ties to even. Subnormals are rounded by adding 1/2, whose last bit is worth what theirs is. */
TQG_FN tqg_u16 tqg_to_half(float x) {
    const tqg_u32 bits = tqg_bits(x), rest = bits & 0x7fffffff;
    const tqg_u32 normal = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
    const tqg_u32 subnormal = tqg_bits(tqg_float(rest) + 0.5f) - 0x3f000000;
    tqg_u32 half = rest < 0x38800000 ? subnormal : normal;
    half = rest >= 0x47800000 ? 0x7c00 : half;
    half = rest > 0x7f800000 ? 0x7e00 : half;
    return (tqg_u16)(half | (bits >> 16 & 0x8000));
}
#endif
TQG_FN tqg_u16 tqg_to_half_sat(float x) {
    return tqg_to_half(tqg_min(tqg_max(x, -65504.0f), 65504.0f));
}
TQG_FN float tqg_h2_lo(tqg_u32 h) {
    return tqg_half((tqg_u16)h);
}
TQG_FN float tqg_h2_hi(tqg_u32 h) {
    return tqg_half((tqg_u16)(h >> 16));
}
TQG_FN tqg_u32 tqg_h2(float a, float b) {
    return tqg_to_half(a) | (tqg_u32)tqg_to_half(b) << 16;
}
TQG_FN tqg_u32 tqg_h2_dup_lo(tqg_u32 h) {
    return (h & 0xffff) | h << 16;
}
TQG_FN tqg_u32 tqg_h2_dup_hi(tqg_u32 h) {
    return h >> 16 | (h & 0xffff0000);
}
TQG_FN tqg_u32 tqg_h2_neg(tqg_u32 a) {
    return a ^ 0x80008000;
}
/* Floats have more than twice as many bits as halves, so that rounding a product or a sum twice is as good as once. */
TQG_FN tqg_u32 tqg_h2_mul(tqg_u32 a, tqg_u32 b) {
    return tqg_h2(tqg_h2_lo(a) * tqg_h2_lo(b), tqg_h2_hi(a) * tqg_h2_hi(b));
}
TQG_FN tqg_u32 tqg_h2_add(tqg_u32 a, tqg_u32 b) {
    return tqg_h2(tqg_h2_lo(a) + tqg_h2_lo(b), tqg_h2_hi(a) + tqg_h2_hi(b));
}
/* Not so for a product and a sum: the sum goes to the neighbour with an odd last bit unless it is exact, from where the
 * second rounding takes it where it belongs. */
TQG_FN float tqg_fma_odd(float a, float b, float c) {
    const float product = a * b, sum = product + c, from_c = sum - product;
    const float error = (product - (sum - from_c)) + (c - from_c);
    const tqg_u32 bits = tqg_bits(sum), away = (error > 0.0f) == (sum > 0.0f) ? 1u : ~0u;
    return tqg_float(error != 0.0f && !(bits & 1) ? bits + away : bits);
}
TQG_FN tqg_u32 tqg_h2_fma(tqg_u32 a, tqg_u32 b, tqg_u32 c) {
    return tqg_h2(tqg_fma_odd(tqg_h2_lo(a), tqg_h2_lo(b), tqg_h2_lo(c)),
                  tqg_fma_odd(tqg_h2_hi(a), tqg_h2_hi(b), tqg_h2_hi(c)));
}
TQG_FN tqg_u32 tqg_h2_max(tqg_u32 a, tqg_u32 b) {
    tqg_refuse((a | b) & 0x80008000, "tqg_h2_max");
    return ((a & 0xffff) > (b & 0xffff) ? a : b) % 0x10000 | (a >> 16 > b >> 16 ? a : b) >> 16 << 16;
}
/* Products of halves are exact. */
TQG_FN float tqg_dot2(tqg_u32 a, tqg_u32 b, float c) {
    return tqg_h2_hi(a) * tqg_h2_hi(b) + (tqg_h2_lo(a) * tqg_h2_lo(b) + c);
}
TQG_FN tqg_i32 tqg_dot4(tqg_u32 a, tqg_u32 b, tqg_i32 c) {
    for (int i = 0; i < 4; i++)
        c += (tqg_i8)(a >> 8 * i & 0xff) * (tqg_i8)(b >> 8 * i & 0xff);
    return c;
}

/* ---- a warp ----------------------------------------------------------------------------------------------------- */

#define tqg_warp_sync() tq_simt_warp_sync(TQG_AT("tqg_warp_sync"))
#define tqg_shfl_xor_u(x, mask) tq_simt_shuffle_xor((x), (mask), TQG_AT("tqg_shfl_xor_u"))
#define tqg_shfl_u(x, lane) tq_simt_shuffle((x), (lane), TQG_AT("tqg_shfl_u"))
#define tqg_shfl_xor(x, mask) tqg_float(tq_simt_shuffle_xor(tqg_bits(x), (mask), TQG_AT("tqg_shfl_xor")))
#ifdef TQG_VENDOR_HIP
#define tqg_gather8_u(x, y) tqg_gather8_u_at((x), (y), TQG_AT("tqg_gather8_u"))
TQG_FN void tqg_gather8_u_at(tqg_u32 x, tqg_u32 *y, const char *at) {
    for (int i = 0; i < 8; i++)
        y[i] = tq_simt_shuffle(x, (tqg_lane() & ~7) | i, at);
}
#endif
#define tqg_shfl(x, lane) tqg_float(tq_simt_shuffle(tqg_bits(x), (lane), TQG_AT("tqg_shfl")))
#define tqg_ballot(p) tq_simt_ballot((p) != 0, TQG_AT("tqg_ballot"))
#define tqg_any(p) (tq_simt_ballot((p) != 0, TQG_AT("tqg_any")) != 0)

/* ---- a block, and memory ---------------------------------------------------------------------------------------- */

#define tqg_block_sync() tq_simt_block_sync(TQG_AT("tqg_block_sync"))
#define tqg_arrive(counter, n) tq_simt_arrive((counter), (n), TQG_AT("tqg_arrive"))
#define tqg_load16(p) tqg_load16_at((p), TQG_AT("tqg_load16"))
#define tqg_load4(p) tqg_load4_at((p), TQG_AT("tqg_load4"))
#define tqg_atomic_add(p, x) tqg_atomic_add_at((p), (x), TQG_AT("tqg_atomic_add"))
#define tqg_atomic_or(p, x) tqg_atomic_or_at((p), (x), TQG_AT("tqg_atomic_or"))
#define tqg_atomic_and(p, x) tqg_atomic_and_at((p), (x), TQG_AT("tqg_atomic_and"))

typedef const tqg_u32 *tqg_uniform_words;
#define tqg_publish(p) (tqg_fence(), tqg_block_sync(), (tqg_uniform_words)(p))
TQG_FN tqg_uniform_words tqg_constant(const tqg_u32 *p) {
    return p;
}
TQG_FN tqg_u32 tqg_uniform(tqg_uniform_words p) {
    return *p;
}
#define tqg_again(p) (&(p))
TQG_FN int tqg_after(int x, float y) {
    (void)y;
    return x;
}
TQG_FN tqg_uniform_words tqg_reread(tqg_uniform_words p, float x) {
    (void)x;
    return p;
}

TQG_FN tqg_u32 tqg_shared_word(const void *p) {
    const tqg_u16 *halves = (const tqg_u16 *)p;
    return halves[0] | (tqg_u32)halves[1] << 16;
}
TQG_FN tqg_u32 tqg_four_bytes(tqg_u8 a, tqg_u8 b, tqg_u8 c, tqg_u8 d) {
    return a | (tqg_u32)b << 8 | (tqg_u32)c << 16 | (tqg_u32)d << 24;
}
TQG_FN tqg_u4 tqg_load16_at(const void *p, const char *at) {
    tq_simt_check_global(p, 16, at);
    return *(const tqg_u4 *)p;
}
TQG_FN tqg_u32 tqg_load4_at(const void *p, const char *at) {
    tq_simt_check_global(p, 4, at);
    return *(const tqg_u32 *)p;
}
TQG_FN void tqg_fence(void) {
#ifndef __SANITIZE_THREAD__ /* which does not know fences */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
TQG_FN tqg_u32 tqg_atomic_add_at(tqg_u32 *p, tqg_u32 x, const char *at) {
    tq_simt_check_global(p, 4, at);
    return __atomic_fetch_add(p, x, __ATOMIC_RELAXED);
}
TQG_FN tqg_u32 tqg_atomic_or_at(tqg_u32 *p, tqg_u32 x, const char *at) {
    tq_simt_check_global(p, 4, at);
    return __atomic_fetch_or(p, x, __ATOMIC_RELAXED);
}
TQG_FN tqg_u32 tqg_atomic_and_at(tqg_u32 *p, tqg_u32 x, const char *at) {
    tq_simt_check_global(p, 4, at);
    return __atomic_fetch_and(p, x, __ATOMIC_RELAXED);
}

/* ---- asynchronous copies ---------------------------------------------------------------------------------------- */

#if defined(TQG_COPY_ASYNC) || defined(TQG_COPY_BULK)
#define tqg_copy16(shared, global) tq_simt_copy16((shared), (global), TQG_AT("tqg_copy16"))
#define tqg_copy_commit() tq_simt_copy_commit()
#define tqg_copy_wait(n) tq_simt_copy_wait(n)
#else
#define tqg_copy16(shared, global) (*(tqg_u4 *)(shared) = tqg_load16_at((global), TQG_AT("tqg_copy16")))
#define tqg_copy_commit() ((void)0)
#define tqg_copy_wait(n) ((void)(n))
#endif

#ifdef TQG_COPY_BULK
#define tqg_elect() tq_simt_elect(TQG_AT("tqg_elect"))
#define tqg_bar_init(bar) tq_simt_bar_init((bar), TQG_AT("tqg_bar_init"))
#define tqg_bar_expect(bar, bytes) tq_simt_bar_expect((bar), (bytes), TQG_AT("tqg_bar_expect"))
#define tqg_bulk_copy(shared, global, bytes, bar)                                                                      \
    tq_simt_bulk_copy((shared), (global), (bytes), (bar), TQG_AT("tqg_bulk_copy"))
#define tqg_bar_wait(bar, parity) tq_simt_bar_wait((bar), (parity), TQG_AT("tqg_bar_wait"))
#endif

/* ---- matrix instructions ---------------------------------------------------------------------------------------- */

#if defined(TQG_MATRIX_MMA)
#define TQG_MMA_N 8
#define TQG_MMA_A 4
#define TQG_MMA_B 2
#define TQG_MMA_C 4
#define TQG_MMA_A8 2 /* register r: row g + 8 r, k = 4 t to 4 t + 3 */
#define TQG_MMA_B8 1 /* column g, k = 4 t to 4 t + 3 */
#define TQG_MATRIX(type) TQ_SIMT_MMA_##type
#define tqg_transpose8(h) tq_simt_transpose8((h), TQG_AT("tqg_transpose8"))
#define tqg_c_to_b(c, b) tqg_c_to_b_at((c), (b), TQG_AT("tqg_c_to_b"))
TQG_FN void tqg_c_to_b_at(const float *c, tqg_u32 *b, const char *at) {
    b[0] = tq_simt_transpose8(tqg_h2(c[0], c[1]), at);
    b[1] = tq_simt_transpose8(tqg_h2(c[2], c[3]), at);
}
#elif defined(TQG_MATRIX_WMMA) || defined(TQG_MATRIX_MFMA)
#define TQG_MMA_N 16
#ifdef TQG_MATRIX_WMMA
#define TQG_MMA_A 4
#define TQG_MMA_B 4
#define TQG_MMA_C 8
#define TQG_MMA_A8 2 /* register r: row lane % 16, k = 8 (lane / 16) + 4 r to + 3 */
#define TQG_MMA_B8 2 /* column lane % 16, the same k */
#define TQG_MATRIX(type) TQ_SIMT_WMMA_##type
#else
#define TQG_MMA_A 2
#define TQG_MMA_B 2
#define TQG_MMA_C 4
#define TQG_MMA_A8 1 /* row lane % 16, k = 4 (lane / 16) to + 3 */
#define TQG_MMA_B8 1 /* column lane % 16, the same k */
#define TQG_MATRIX(type) TQ_SIMT_MFMA_##type
#endif
/* A lane's rows of C are its k of B. */
TQG_FN void tqg_c_to_b(const float *c, tqg_u32 *b) {
    for (int r = 0; r < TQG_MMA_B; r++)
        b[r] = tqg_h2(c[2 * r], c[2 * r + 1]);
}
#elif defined(TQG_MATRIX_WMMA11)
#define TQG_MMA_N 16
#define TQG_MMA_A 8 /* lanes 16 to 31 hold what lanes 0 to 15 do */
#define TQG_MMA_B 8
#define TQG_MMA_C 8
#define TQG_MATRIX(type) TQ_SIMT_WMMA11_##type
#define tqg_c_to_b(c, b) tqg_c_to_b_at((c), (b), TQG_AT("tqg_c_to_b"))
/* Even rows of C are in the lower half of the warp, odd ones in the upper. */
TQG_FN void tqg_c_to_b_at(const float *c, tqg_u32 *b, const char *at) {
    const int upper = tqg_lane() >= 16;
    for (int r = 0; r < 8; r += 2) {
        const tqg_u32 own = tqg_h2(c[r], c[r + 1]), other = tq_simt_shuffle_xor(own, 16, at);
        const tqg_u32 even = upper ? other : own, odd = upper ? own : other;
        b[r] = tqg_permute(even, odd, 0x5410);
        b[r + 1] = tqg_permute(even, odd, 0x7632);
    }
}
#endif

#ifdef TQG_MATRIX
#define tqg_mma_f16(c, a, b) tqg_mma_f16_at((c), (a), (b), TQG_AT("tqg_mma_f16"))
TQG_FN void tqg_mma_f16_at(float *c, const tqg_u32 *a, const tqg_u32 *b, const char *at) {
    tq_simt_multiply(TQG_MATRIX(F16), c, a, b, at);
}
#endif
#ifdef TQG_MMA_A8
#define tqg_mma_i8(c, a, b) tqg_mma_i8_at((c), (a), (b), TQG_AT("tqg_mma_i8"))
#define tqg_mma_i8_k32(c, a, b) tqg_mma_i8_k32_at((c), (a), (b), TQG_AT("tqg_mma_i8_k32"))
TQG_FN void tqg_mma_i8_at(tqg_i32 *c, const tqg_u32 *a, const tqg_u32 *b, const char *at) {
    tq_simt_multiply(TQG_MATRIX(I8), c, a, b, at);
}
/* Two k steps of tqg_mma_i8, registers of the first before those of the second. */
TQG_FN void tqg_mma_i8_k32_at(tqg_i32 *c, const tqg_u32 *a, const tqg_u32 *b, const char *at) {
#ifdef TQG_MATRIX_WMMA
    tqg_mma_i8_at(c, a, b, at);
    tqg_mma_i8_at(c, a + TQG_MMA_A8, b + TQG_MMA_B8, at);
#else
    tq_simt_multiply(TQG_MATRIX(I8_K32), c, a, b, at);
#endif
}
#endif

#endif
