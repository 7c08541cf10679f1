/* HIP vocabulary of the kernel texts: hipcc, or clang -x hip without any header; see docs/gpu_kernels.md for the meaning of
 * each word. Everything is a compiler builtin: HIP's own byte permute is a software routine, and its headers are not needed.
 *
 * Macros that come before: TQG_DEVICE_CODE; TQG_WARP, 32 or 64, also the compiler's wave size; TQG_MATRIX_WMMA, TQG_MATRIX_WMMA11
 * or TQG_MATRIX_MFMA where the arch has them. */
#ifndef TQG_VOCABULARY_H
#define TQG_VOCABULARY_H

#include "tq_gpu.h"

#define TQG_FN __attribute__((device, always_inline, unused)) static inline
/* A multiprocessor has four SIMDs: blocks * threads / TQG_WARP / 4 waves share one. */
#define TQG_KERNEL(name, params, threads, blocks)                                                                      \
    extern "C" __attribute__((global)) void                                                                            \
        __attribute__((amdgpu_flat_work_group_size(threads, threads),                                                  \
                       amdgpu_waves_per_eu(((blocks) * (threads) / TQG_WARP + 3) / 4))) name(params p)
#define TQG_UNROLL    _Pragma("clang loop unroll(full)")
#define TQG_NO_UNROLL _Pragma("clang loop unroll(disable)")

extern __attribute__((shared)) __attribute__((aligned(128))) unsigned char tqg_dynamic_shared[];
#define TQG_SHARED tqg_dynamic_shared

typedef struct __attribute__((aligned(16))) tqg_u4 {
    tqg_u32 x, y, z, w;
} tqg_u4;

typedef tqg_u32 tqg_v4 __attribute__((ext_vector_type(4)));
typedef _Float16 tqg_f16x2 __attribute__((ext_vector_type(2)));
#define TQG_GLOBAL __attribute__((address_space(1)))

/* ---- where am I ------------------------------------------------------------------------------------------------- */

TQG_FN int tqg_thread(void) {
    return (int)__builtin_amdgcn_workitem_id_x();
}
TQG_FN int tqg_lane(void) {
    return tqg_thread() & (TQG_WARP - 1);
}
TQG_FN int tqg_warp(void) {
    return __builtin_amdgcn_readfirstlane(tqg_thread() / TQG_WARP);
}
TQG_FN int tqg_block_x(void) {
    return (int)__builtin_amdgcn_workgroup_id_x();
}
TQG_FN int tqg_block_y(void) {
    return (int)__builtin_amdgcn_workgroup_id_y();
}
TQG_FN int tqg_block_z(void) {
    return (int)__builtin_amdgcn_workgroup_id_z();
}

/* ---- bits ------------------------------------------------------------------------------------------------------- */

TQG_FN tqg_u32 tqg_bits(float x) {
    return __builtin_bit_cast(tqg_u32, x);
}
TQG_FN float tqg_float(tqg_u32 bits) {
    return __builtin_bit_cast(float, bits);
}
TQG_FN void tqg_in_order(void) {
    __builtin_amdgcn_sched_barrier(0);
}
TQG_FN tqg_u32 tqg_keep(tqg_u32 x) {
    return x;
}
TQG_FN tqg_u32 tqg_select(tqg_u32 mask, tqg_u32 a, tqg_u32 b) {
    if (__builtin_constant_p(mask)) { /* two selects in C become three ands and an or */
        tqg_u32 x;
        asm("v_bfi_b32 %0, %1, %2, %3" : "=v"(x) : "s"(mask), "v"(a), "v"(b));
        return x;
    }
    return (mask & a) | (~mask & b);
}
/* Selectors are four nibbles, lowest byte of the result first: 0 to 3 a byte of a, 4 to 7 of b; constants. */
TQG_FN tqg_u32 tqg_permute(tqg_u32 a, tqg_u32 b, tqg_u32 selectors) {
    return __builtin_amdgcn_perm(
        b, a, (selectors & 0xf) | (selectors & 0xf0) << 4 | (selectors & 0xf00) << 8 | (selectors & 0xf000) << 12);
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

/* Indices are what v_perm_b32 takes as selectors: bytes. */
#define TQG_NIBBLE(half, i)     (2 * (i) + (half))
#define TQG_TOP_NIBBLE(half, i) TQG_NIBBLE(half, i)
TQG_FN tqg_u32 tqg_codes(tqg_u32 word, int half) {
    return (half ? word >> 4 : word) & 0x07070707u;
}
TQG_FN tqg_u32 tqg_lookup(tqg_u32 t0, tqg_u32 t1, tqg_u32 codes) {
    return __builtin_amdgcn_perm(t1, t0, codes);
}
/* Selectors above 7 do not select: 8 to 11 give 0xff or 0 by the sign of byte 1, 3, 5 or 7, then 12 gives 0 and the others
 * 0xff. So the halves of a table of 16 are looked up with codes that differ in bit 3; each is stored such that what the
 * other one's lookup yields beside it cancels. */
TQG_FN void tqg_table16(const tqg_u32 *bytes, tqg_u32 *table) {
    TQG_UNROLL
    for (int i = 0; i < 4; i++)
        table[i] = bytes[i];
    TQG_UNROLL
    for (int i = 7; i >= 0; i--) { /* entries 2i + 1 stand when i is reached */
        const int shift = 8 * (i & 3), sign = (2 * i + 1) & 3;
        TQG_UNROLL
        for (int upper = 0; upper < 2; upper++) {
            const tqg_u32 other = table[2 * (1 - upper) + ((2 * i + 1) >> 2 & 1)];
            const tqg_u32 beside = i == 4 ? 0 : i > 4 ? 0xff : other >> (8 * sign + 7) & 1 ? 0xff : 0;
            table[2 * upper + (i >> 2)] ^= beside << shift;
        }
    }
}
TQG_FN tqg_u32 tqg_lookup16(const tqg_u32 *table, tqg_u32 word, int half) {
    const tqg_u32 codes = (half ? word >> 4 : word) & 0x0f0f0f0fu;
    return __builtin_amdgcn_perm(table[1], table[0], codes) ^
           __builtin_amdgcn_perm(table[3], table[2], codes ^ 0x08080808u);
}
TQG_FN tqg_u32 tqg_tops(tqg_u32 word, int half) {
    return (half ? word : word << 4) & 0x80808080u;
}
/* Selectors 8 to 11 repeat the sign of a half; shifted by a byte, the other two come to where they look. */
TQG_FN tqg_u32 tqg_spread(tqg_u32 tops) {
    return __builtin_amdgcn_perm(tops, tops << 8, 0x0b090a08u);
}

/* ---- floats ----------------------------------------------------------------------------------------------------- */

TQG_FN float tqg_fma(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
TQG_FN float tqg_max(float a, float b) {
    return __builtin_fmaxf(a, b);
}
TQG_FN float tqg_min(float a, float b) {
    return __builtin_fminf(a, b);
}
TQG_FN float tqg_abs(float x) {
    return __builtin_fabsf(x);
}
TQG_FN float tqg_rint(float x) {
    return __builtin_rintf(x);
}
TQG_FN float tqg_exp2(float x) {
    return __builtin_amdgcn_exp2f(x);
}
TQG_FN float tqg_log2(float x) {
    return __builtin_amdgcn_logf(x);
}
TQG_FN float tqg_rcp(float x) {
    return __builtin_amdgcn_rcpf(x);
}
TQG_FN float tqg_rsqrt(float x) {
    return __builtin_amdgcn_rsqf(x);
}
TQG_FN float tqg_tanh(float x) {
    float e = tqg_exp2(-2.885390082f * tqg_abs(x)); /* exp(-2 |x|) */
    return __builtin_copysignf((1.0f - e) * tqg_rcp(1.0f + e), x);
}

/* ---- halves ----------------------------------------------------------------------------------------------------- */

TQG_FN tqg_f16x2 tqg_as_f16x2(tqg_u32 h) {
    return __builtin_bit_cast(tqg_f16x2, h);
}
TQG_FN tqg_u32 tqg_from_f16x2(tqg_f16x2 h) {
    return __builtin_bit_cast(tqg_u32, h);
}
TQG_FN float tqg_half(tqg_u16 half) {
    return (float)__builtin_bit_cast(_Float16, half);
}
TQG_FN tqg_u16 tqg_to_half(float x) {
    return __builtin_bit_cast(tqg_u16, (_Float16)x);
}
TQG_FN tqg_u16 tqg_to_half_sat(float x) {
    return tqg_to_half(tqg_min(tqg_max(x, -65504.0f), 65504.0f));
}
TQG_FN float tqg_h2_lo(tqg_u32 h) {
    return (float)tqg_as_f16x2(h).x;
}
TQG_FN float tqg_h2_hi(tqg_u32 h) {
    return (float)tqg_as_f16x2(h).y;
}
TQG_FN tqg_u32 tqg_h2(float a, float b) {
    tqg_f16x2 h = {(_Float16)a, (_Float16)b};
    return tqg_from_f16x2(h);
}
/* These two vanish into the operand of the instruction that reads them. */
TQG_FN tqg_u32 tqg_h2_dup_lo(tqg_u32 h) {
    return tqg_from_f16x2(tqg_as_f16x2(h).xx);
}
TQG_FN tqg_u32 tqg_h2_dup_hi(tqg_u32 h) {
    return tqg_from_f16x2(tqg_as_f16x2(h).yy);
}
TQG_FN tqg_u32 tqg_h2_neg(tqg_u32 a) {
    return tqg_from_f16x2(-tqg_as_f16x2(a));
}
TQG_FN tqg_u32 tqg_h2_mul(tqg_u32 a, tqg_u32 b) {
    return tqg_from_f16x2(tqg_as_f16x2(a) * tqg_as_f16x2(b));
}
TQG_FN tqg_u32 tqg_h2_add(tqg_u32 a, tqg_u32 b) {
    return tqg_from_f16x2(tqg_as_f16x2(a) + tqg_as_f16x2(b));
}
TQG_FN tqg_u32 tqg_h2_fma(tqg_u32 a, tqg_u32 b, tqg_u32 c) {
    return tqg_from_f16x2(__builtin_elementwise_fma(tqg_as_f16x2(a), tqg_as_f16x2(b), tqg_as_f16x2(c)));
}
typedef tqg_u16 tqg_u16x2 __attribute__((ext_vector_type(2)));
TQG_FN tqg_u32 tqg_h2_max(tqg_u32 a, tqg_u32 b) {
    return __builtin_bit_cast(
        tqg_u32, __builtin_elementwise_max(__builtin_bit_cast(tqg_u16x2, a), __builtin_bit_cast(tqg_u16x2, b)));
}
TQG_FN float tqg_dot2(tqg_u32 a, tqg_u32 b, float c) {
    return __builtin_amdgcn_fdot2(tqg_as_f16x2(a), tqg_as_f16x2(b), c, false);
}
TQG_FN tqg_i32 tqg_dot4(tqg_u32 a, tqg_u32 b, tqg_i32 c) {
#if defined(__GFX11__) || defined(__GFX12__)
    return __builtin_amdgcn_sudot4(true, (int)a, true, (int)b, c, false);
#else
    return __builtin_amdgcn_sdot4((int)a, (int)b, c, false);
#endif
}

/* ---- a warp ----------------------------------------------------------------------------------------------------- */

/* Orders LDS only: ordering global memory would flush caches at every barrier. Older compilers know no such thing. */
#if __clang_major__ >= 19
#define TQG_FENCE_LDS(order, scope) __builtin_amdgcn_fence(order, scope, "local")
#else
#define TQG_FENCE_LDS(order, scope) __builtin_amdgcn_fence(order, scope)
#endif
/* LDS operations of one wave stay in order; this keeps the compiler from moving them. */
TQG_FN void tqg_warp_sync(void) {
    TQG_FENCE_LDS(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    TQG_FENCE_LDS(__ATOMIC_ACQUIRE, "wavefront");
}
/* A lane's value from another lane of its row of 16, as an operand of the instruction that reads it. */
#define TQG_DPP(x, control) (tqg_u32) __builtin_amdgcn_update_dpp(0, (int)(x), control, 0xf, 0xf, true)
/* Exchange by xor of a constant, within 32 lanes, in the LDS crossbar. */
#define TQG_SWIZZLE(x, mask) (tqg_u32) __builtin_amdgcn_ds_swizzle((int)(x), (mask) << 10 | 0x1f)
enum {
    TQG_QUAD_1 = 0xb1,
    TQG_QUAD_2 = 0x4e,
    TQG_QUAD_3 = 0x1b,
    TQG_ROW_MIRROR = 0x140,
    TQG_ROW_HALF_MIRROR = 0x141,
    TQG_ROW_XMASK = 0x160,
    TQG_ROW_ROR = 0x120
};

TQG_FN tqg_u32 tqg_shfl_u(tqg_u32 x, int lane) {
    if (__builtin_constant_p(lane))
        return (tqg_u32)__builtin_amdgcn_readlane((int)x, lane);
    return (tqg_u32)__builtin_amdgcn_ds_bpermute(lane << 2, (int)x);
}
TQG_FN tqg_u32 tqg_shfl_xor_u(tqg_u32 x, int mask) {
    switch (mask) {
    case 1:
        return TQG_DPP(x, TQG_QUAD_1);
    case 2:
        return TQG_DPP(x, TQG_QUAD_2);
    case 3:
        return TQG_DPP(x, TQG_QUAD_3);
#if TQG_WARP == 32 /* gfx10 and later */
    case 4:
        return TQG_DPP(x, TQG_ROW_XMASK + 4);
    case 8:
        return TQG_DPP(x, TQG_ROW_XMASK + 8);
    case 16:
        return (tqg_u32)__builtin_amdgcn_permlanex16((int)x, (int)x, 0x76543210, 0xfedcba98, false, false);
#else
    case 4:
        return TQG_SWIZZLE(x, 4);
    case 8: /* in a row of 16, 8 lanes on is 8 lanes back */
        return TQG_DPP(x, TQG_ROW_ROR + 8);
    case 16:
        return TQG_SWIZZLE(x, 16);
#endif
    case 7:
        return TQG_DPP(x, TQG_ROW_HALF_MIRROR);
    case 15:
        return TQG_DPP(x, TQG_ROW_MIRROR);
    default:
        return (tqg_u32)__builtin_amdgcn_ds_bpermute((tqg_lane() ^ mask) << 2, (int)x);
    }
}
TQG_FN float tqg_shfl_xor(float x, int mask) {
    return tqg_float(tqg_shfl_xor_u(tqg_bits(x), mask));
}
TQG_FN float tqg_shfl(float x, int lane) {
    return tqg_float(tqg_shfl_u(tqg_bits(x), lane));
}
/* x of each of the lane's eight. */
TQG_FN void tqg_gather8_u(tqg_u32 x, tqg_u32 *y) {
#if TQG_WARP == 32 /* gfx10 and later */
#define TQG_OF_EIGHT(i) (tqg_u32) __builtin_amdgcn_mov_dpp8((int)x, (i) * 011111111)
#else
#define TQG_OF_EIGHT(i) (tqg_u32) __builtin_amdgcn_ds_swizzle((int)x, 0x18 | (i) << 5)
#endif
    const tqg_u32 of_lanes[8] = {TQG_OF_EIGHT(0), TQG_OF_EIGHT(1), TQG_OF_EIGHT(2), TQG_OF_EIGHT(3),
                                 TQG_OF_EIGHT(4), TQG_OF_EIGHT(5), TQG_OF_EIGHT(6), TQG_OF_EIGHT(7)};
    TQG_UNROLL
    for (int i = 0; i < 8; i++)
        y[i] = of_lanes[i];
}
/* Each of the two builtins compiles for one wave size only, so a wrong TQG_WARP is an error. */
TQG_FN tqg_u64 tqg_ballot(int p) {
#if TQG_WARP == 32
    return __builtin_amdgcn_ballot_w32(p != 0);
#else
    return __builtin_amdgcn_ballot_w64(p != 0);
#endif
}
TQG_FN int tqg_any(int p) {
    return tqg_ballot(p) != 0;
}

/* ---- a block, and memory ---------------------------------------------------------------------------------------- */

TQG_FN void tqg_block_sync(void) {
    TQG_FENCE_LDS(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    TQG_FENCE_LDS(__ATOMIC_ACQUIRE, "workgroup");
}
TQG_FN tqg_u4 tqg_load16(const void *p) {
    tqg_v4 v = *(const TQG_GLOBAL tqg_v4 *)p;
    tqg_u4 x = {v.x, v.y, v.z, v.w};
    return x;
}
TQG_FN tqg_u32 tqg_load4(const void *p) {
    return *(const TQG_GLOBAL tqg_u32 *)p;
}
/* LDS is read at any address. */
typedef tqg_u32 __attribute__((aligned(2))) tqg_even_word;
TQG_FN tqg_u32 tqg_shared_word(const void *p) {
    return *(const tqg_even_word *)p;
}
/* Loads into halves of registers, then one operation. */
typedef tqg_u16 tqg_u16x2 __attribute__((ext_vector_type(2)));
TQG_FN tqg_u32 tqg_four_bytes(tqg_u8 a, tqg_u8 b, tqg_u8 c, tqg_u8 d) {
    tqg_u16x2 ac = {a, c}, bd = {b, d};
    return __builtin_bit_cast(tqg_u32, ac) | __builtin_bit_cast(tqg_u32, bd) << 8;
}
TQG_FN void tqg_fence(void) {
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent");
}
TQG_FN tqg_u32 tqg_atomic_add(tqg_u32 *p, tqg_u32 x) {
    return __hip_atomic_fetch_add((TQG_GLOBAL tqg_u32 *)p, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
TQG_FN tqg_u32 tqg_atomic_or(tqg_u32 *p, tqg_u32 x) {
    return __hip_atomic_fetch_or((TQG_GLOBAL tqg_u32 *)p, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
TQG_FN tqg_u32 tqg_atomic_and(tqg_u32 *p, tqg_u32 x) {
    return __hip_atomic_fetch_and((TQG_GLOBAL tqg_u32 *)p, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
TQG_FN int tqg_arrive(tqg_u32 *counter, tqg_u32 n) {
    static __attribute__((shared)) int last;
    tqg_fence();
    tqg_block_sync();
    if (tqg_thread() == 0) {
        last = tqg_atomic_add(counter, 1) == n - 1;
        if (last)
            *(TQG_GLOBAL tqg_u32 *)counter = 0;
    }
    tqg_block_sync();
    int all = last;
    if (all)
        tqg_fence();
    return all;
}

/* Words that scalar loads read into scalar registers. Such loads count on memory that nobody writes, so the compiler must not
 * know that this pointer is an old one. */
typedef const __attribute__((address_space(4))) tqg_u32 *tqg_uniform_words;
TQG_FN tqg_uniform_words tqg_publish(const tqg_u32 *p) {
    tqg_fence();
    tqg_block_sync();
    __builtin_amdgcn_s_dcache_inv();
    tqg_u64 address = (tqg_u64)p;
    asm volatile("" : "+s"(address)::"memory");
    return (tqg_uniform_words)address;
}
TQG_FN tqg_uniform_words tqg_constant(const tqg_u32 *p) {
    return (tqg_uniform_words)(tqg_u64)p;
}
TQG_FN tqg_u32 tqg_uniform(tqg_uniform_words p) {
    return *p;
}
/* The kernel's argument anew: what is needed late, or rarely, holds no registers meanwhile. */
typedef const __attribute__((address_space(4))) void *tqg_argument;
TQG_FN tqg_argument tqg_argument_again(void) {
    tqg_u64 address = (tqg_u64)__builtin_amdgcn_kernarg_segment_ptr();
    asm volatile("" : "+s"(address));
    return (tqg_argument)address;
}
#define tqg_again(p) ((const __typeof__(p) *)tqg_argument_again())
/* x, available only once y is. */
TQG_FN int tqg_after(int x, float y) {
    asm volatile("" : "+v"(x) : "v"(y));
    return x;
}
TQG_FN tqg_uniform_words tqg_reread(tqg_uniform_words p, float x) {
    asm volatile("" : "+s"(p) : "v"(x));
    return p;
}

/* No asynchronous copies: these are immediate. */
TQG_FN void tqg_copy16(void *shared, const void *global) {
    *(tqg_u4 *)shared = tqg_load16(global);
}
TQG_FN void tqg_copy_commit(void) {}
#define tqg_copy_wait(n) ((void)(n))

/* ---- matrix instructions ---------------------------------------------------------------------------------------- */

#if defined(TQG_MATRIX_WMMA) || defined(TQG_MATRIX_MFMA)
typedef _Float16 tqg_f16x4 __attribute__((ext_vector_type(4)));
typedef _Float16 tqg_f16x8 __attribute__((ext_vector_type(8)));
typedef float tqg_f32x4 __attribute__((ext_vector_type(4)));
typedef float tqg_f32x8 __attribute__((ext_vector_type(8)));
typedef int tqg_i32x2 __attribute__((ext_vector_type(2)));
typedef int tqg_i32x4 __attribute__((ext_vector_type(4)));
typedef int tqg_i32x8 __attribute__((ext_vector_type(8)));

#define TQG_MMA_N 16
#ifdef TQG_MATRIX_WMMA
#define TQG_MMA_A  4
#define TQG_MMA_B  4
#define TQG_MMA_C  8
#define TQG_MMA_A8 2 /* register r: row lane % 16, k = 8 (lane / 16) + 4 r to + 3 */
#define TQG_MMA_B8 2 /* column lane % 16, the same k */

TQG_FN void tqg_mma_f16(float *c, const tqg_u32 *a, const tqg_u32 *b) {
    tqg_v4 av = {a[0], a[1], a[2], a[3]}, bv = {b[0], b[1], b[2], b[3]};
    tqg_f32x8 d = {c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]};
    d = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(__builtin_bit_cast(tqg_f16x8, av),
                                                         __builtin_bit_cast(tqg_f16x8, bv), d);
    TQG_UNROLL
    for (int r = 0; r < 8; r++)
        c[r] = d[r];
}
TQG_FN void tqg_mma_i8(tqg_i32 *c, const tqg_u32 *a, const tqg_u32 *b) {
    tqg_i32x2 av = {(int)a[0], (int)a[1]}, bv = {(int)b[0], (int)b[1]};
    tqg_i32x8 d = {c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]};
    d = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, av, true, bv, d, false);
    TQG_UNROLL
    for (int r = 0; r < 8; r++)
        c[r] = d[r];
}
#else
#define TQG_MMA_A  2
#define TQG_MMA_B  2
#define TQG_MMA_C  4
#define TQG_MMA_A8 1 /* row lane % 16, k = 4 (lane / 16) to + 3 */
#define TQG_MMA_B8 1 /* column lane % 16, the same k */

TQG_FN tqg_f16x4 tqg_as_f16x4(const tqg_u32 *h) {
    return __builtin_bit_cast(tqg_f16x4, (tqg_u64)h[0] | (tqg_u64)h[1] << 32);
}
TQG_FN void tqg_mma_f16(float *c, const tqg_u32 *a, const tqg_u32 *b) {
    tqg_f32x4 d = {c[0], c[1], c[2], c[3]};
    d = __builtin_amdgcn_mfma_f32_16x16x16f16(tqg_as_f16x4(a), tqg_as_f16x4(b), d, 0, 0, 0);
    TQG_UNROLL
    for (int r = 0; r < 4; r++)
        c[r] = d[r];
}
TQG_FN void tqg_mma_i8(tqg_i32 *c, const tqg_u32 *a, const tqg_u32 *b) {
    tqg_i32x4 d = {c[0], c[1], c[2], c[3]};
#ifdef __gfx90a__
    d = __builtin_amdgcn_mfma_i32_16x16x16i8((int)a[0], (int)b[0], d, 0, 0, 0);
#else /* which of its 32 k a byte is does not matter as long as a and b agree */
    d = __builtin_amdgcn_mfma_i32_16x16x32_i8((long)(tqg_u64)a[0], (long)(tqg_u64)b[0], d, 0, 0, 0);
#endif
    TQG_UNROLL
    for (int r = 0; r < 4; r++)
        c[r] = d[r];
}
#endif
/* Two k steps of tqg_mma_i8, registers of the first before those of the second. */
TQG_FN void tqg_mma_i8_k32(tqg_i32 *c, const tqg_u32 *a, const tqg_u32 *b) {
#if defined(TQG_MATRIX_MFMA) && !defined(__gfx90a__)
    tqg_i32x4 d = {c[0], c[1], c[2], c[3]};
    d = __builtin_amdgcn_mfma_i32_16x16x32_i8((long)(a[0] | (tqg_u64)a[1] << 32), (long)(b[0] | (tqg_u64)b[1] << 32), d,
                                              0, 0, 0);
    TQG_UNROLL
    for (int r = 0; r < 4; r++)
        c[r] = d[r];
#else
    tqg_mma_i8(c, a, b);
    tqg_mma_i8(c, a + TQG_MMA_A8, b + TQG_MMA_B8);
#endif
}
/* A lane's rows of C are its k of B. */
TQG_FN void tqg_c_to_b(const float *c, tqg_u32 *b) {
    TQG_UNROLL
    for (int r = 0; r < TQG_MMA_B; r++)
        b[r] = tqg_h2(c[2 * r], c[2 * r + 1]);
}
#elif defined(TQG_MATRIX_WMMA11)
typedef tqg_u32 tqg_v8 __attribute__((ext_vector_type(8)));
typedef _Float16 tqg_f16x16 __attribute__((ext_vector_type(16)));
typedef float tqg_f32x8 __attribute__((ext_vector_type(8)));

#define TQG_MMA_N 16
#define TQG_MMA_A 8 /* lanes 16 to 31 hold what lanes 0 to 15 do */
#define TQG_MMA_B 8
#define TQG_MMA_C 8

TQG_FN void tqg_mma_f16(float *c, const tqg_u32 *a, const tqg_u32 *b) {
    tqg_v8 av = {a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]}, bv = {b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]};
    tqg_f32x8 d = {c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]};
    d = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(tqg_f16x16, av), __builtin_bit_cast(tqg_f16x16, bv),
                                                   d);
    TQG_UNROLL
    for (int r = 0; r < 8; r++)
        c[r] = d[r];
}
/* Even rows of C are in the lower half of the warp, odd ones in the upper. */
TQG_FN void tqg_c_to_b(const float *c, tqg_u32 *b) {
    const tqg_u32 low = tqg_lane() < 16 ? 0x05040100 : 0x01000504, high = low + 0x02020202;
    TQG_UNROLL
    for (int r = 0; r < 8; r += 2) {
        const tqg_u32 own = tqg_h2(c[r], c[r + 1]), other = tqg_shfl_xor_u(own, 16);
        b[r] = __builtin_amdgcn_perm(other, own, low);
        b[r + 1] = __builtin_amdgcn_perm(other, own, high);
    }
}
#endif

#endif
