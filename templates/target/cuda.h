/* CUDA vocabulary of the kernel texts: nvcc, or clang without any header; see docs/gpu_kernels.md for the meaning of each
 * word. PTX is spelled out because the two compilers share no other names.
 *
 * Macros that come before: TQG_DEVICE_CODE; TQG_WARP; TQG_SM, 75 and later; TQG_COPY_ASYNC or TQG_COPY_BULK, which includes
 * it; TQG_MATRIX_MMA. */
#ifndef TQG_VOCABULARY_H
#define TQG_VOCABULARY_H

#include "tq_gpu.h"

#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ / 10 != TQG_SM
#error "this file was generated for another sm_ architecture: compile it with the flags of its CMakeLists.txt"
#endif
#endif

#define TQG_FN static inline __attribute__((device, always_inline, unused))
#define TQG_KERNEL(name, params, threads, blocks)                                                                      \
    extern "C" __attribute__((global)) void __attribute__((launch_bounds(threads, blocks)))                            \
    name(const __attribute__((grid_constant)) params p)
#define TQG_UNROLL    _Pragma("unroll")
#define TQG_NO_UNROLL _Pragma("unroll 1")

extern __attribute__((shared)) __attribute__((aligned(128))) unsigned char tqg_dynamic_shared[];
#define TQG_SHARED tqg_dynamic_shared

typedef struct __attribute__((aligned(16))) tqg_u4 {
    tqg_u32 x, y, z, w;
} tqg_u4;

/* ---- where am I ------------------------------------------------------------------------------------------------- */

#ifdef __clang__
#define TQG_SPECIAL(name, register) __nvvm_read_ptx_sreg_##register()
#else
#define TQG_SPECIAL(name, register) name
#endif
TQG_FN int tqg_thread(void) {
    return (int)TQG_SPECIAL(threadIdx.x, tid_x);
}
TQG_FN int tqg_lane(void) {
    return tqg_thread() & 31;
}
TQG_FN int tqg_warp(void) {
    return tqg_thread() >> 5;
}
TQG_FN int tqg_block_x(void) {
    return (int)TQG_SPECIAL(blockIdx.x, ctaid_x);
}
TQG_FN int tqg_block_y(void) {
    return (int)TQG_SPECIAL(blockIdx.y, ctaid_y);
}
TQG_FN int tqg_block_z(void) {
    return (int)TQG_SPECIAL(blockIdx.z, ctaid_z);
}

/* ---- bits ------------------------------------------------------------------------------------------------------- */

TQG_FN tqg_u32 tqg_bits(float x) {
    tqg_u32 bits;
    asm("mov.b32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}
TQG_FN float tqg_float(tqg_u32 bits) {
    float x;
    asm("mov.b32 %0, %1;" : "=f"(x) : "r"(bits));
    return x;
}
TQG_FN tqg_u32 tqg_select(tqg_u32 mask, tqg_u32 a, tqg_u32 b) {
    return (mask & a) | (~mask & b);
}
/* Selectors are four nibbles, lowest byte of the result first: 0 to 3 a byte of a, 4 to 7 of b. */
TQG_FN tqg_u32 tqg_permute(tqg_u32 a, tqg_u32 b, tqg_u32 selectors) {
    tqg_u32 bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(a), "r"(b), "r"(selectors));
    return bytes;
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

/* Indices are what prmt takes as selectors: nibbles, of which it reads the low four. */
#define TQG_NIBBLE(half, i)     (((i)&1) + 2 * (half) + 4 * ((i) >> 1))
#define TQG_TOP_NIBBLE(half, i) (2 * (i) + 1 - (half))
TQG_FN tqg_u32 tqg_codes(tqg_u32 word, int half) {
    tqg_u32 codes = word & 0x77777777u;
    return tqg_permute(codes, codes, half ? 0x31 : 0x20);
}
TQG_FN tqg_u32 tqg_row_codes(tqg_u32 word, int row) {
    tqg_u32 codes = word & 0x77777777u;
    return row ? codes >> 16 : codes;
}
TQG_FN tqg_u32 tqg_lookup(tqg_u32 t0, tqg_u32 t1, tqg_u32 codes) {
    return tqg_permute(t0, t1, codes);
}
TQG_FN tqg_u32 tqg_tops(tqg_u32 word, int half) {
    return (half ? word << 4 : word) & 0x80808080u;
}
TQG_FN tqg_u32 tqg_spread(tqg_u32 tops) {
    return tqg_permute(tops, tops, 0xba98);
}
/* Byte i: 0xff if the top bit of row code i is set. */
TQG_FN tqg_u32 tqg_row_spread(tqg_u32 word, int row) {
    return tqg_permute(word, word << 4, row ? 0xfeba : 0xdc98);
}

/* Selectors above 7 repeat the sign of what the three lower bits select. So of entries that differ in bit 3 table holds the
 * difference, whose sign is 0, and the upper one. */
TQG_FN void tqg_table16(const tqg_u32 *bytes, tqg_u32 *table) {
    TQG_UNROLL
    for (int i = 0; i < 2; i++) {
        table[i] = bytes[i] ^ bytes[2 + i];
        table[2 + i] = bytes[2 + i];
    }
}
TQG_FN tqg_u32 tqg_row_lookup16(const tqg_u32 *table, tqg_u32 word, int row) {
    return tqg_permute(table[0], table[1], row ? word >> 16 : word) ^
           tqg_lookup(table[2], table[3], tqg_row_codes(word, row));
}
TQG_FN tqg_u32 tqg_lookup16(const tqg_u32 *table, tqg_u32 word, int half) {
    return tqg_permute(table[0], table[1], tqg_permute(word, word, half ? 0x31 : 0x20)) ^
           tqg_lookup(table[2], table[3], tqg_codes(word, half));
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
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
TQG_FN float tqg_log2(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
TQG_FN float tqg_rcp(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
TQG_FN float tqg_rsqrt(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
TQG_FN float tqg_tanh(float x) {
    float e = tqg_exp2(-2.885390082f * tqg_abs(x)); /* exp(-2 |x|) */
    return __builtin_copysignf((1.0f - e) * tqg_rcp(1.0f + e), x);
}

/* ---- halves ----------------------------------------------------------------------------------------------------- */

TQG_FN float tqg_half(tqg_u16 half) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
    return x;
}
TQG_FN tqg_u16 tqg_to_half(float x) {
    tqg_u16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
}
TQG_FN tqg_u16 tqg_to_half_sat(float x) {
    return tqg_to_half(tqg_min(tqg_max(x, -65504.0f), 65504.0f));
}
TQG_FN float tqg_h2_lo(tqg_u32 h) {
    float x;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l; }" : "=f"(x) : "r"(h));
    return x;
}
TQG_FN float tqg_h2_hi(tqg_u32 h) {
    float x;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h; }" : "=f"(x) : "r"(h));
    return x;
}
TQG_FN tqg_u32 tqg_h2(float a, float b) {
    tqg_u32 h;
#if TQG_SM >= 80
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(h) : "f"(b), "f"(a));
#else
    asm("{ .reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h}; }"
        : "=r"(h)
        : "f"(a), "f"(b));
#endif
    return h;
}
/* These two vanish into the operand of the instruction that reads them. */
TQG_FN tqg_u32 tqg_h2_dup_lo(tqg_u32 h) {
    tqg_u32 d;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {l, l}; }" : "=r"(d) : "r"(h));
    return d;
}
TQG_FN tqg_u32 tqg_h2_dup_hi(tqg_u32 h) {
    tqg_u32 d;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, h}; }" : "=r"(d) : "r"(h));
    return d;
}
TQG_FN tqg_u32 tqg_h2_neg(tqg_u32 a) {
    tqg_u32 d;
    asm("neg.f16x2 %0, %1;" : "=r"(d) : "r"(a));
    return d;
}
TQG_FN tqg_u32 tqg_h2_mul(tqg_u32 a, tqg_u32 b) {
    tqg_u32 d;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
TQG_FN tqg_u32 tqg_h2_add(tqg_u32 a, tqg_u32 b) {
    tqg_u32 d;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
TQG_FN tqg_u32 tqg_h2_fma(tqg_u32 a, tqg_u32 b, tqg_u32 c) {
    tqg_u32 d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
TQG_FN tqg_u32 tqg_h2_max(tqg_u32 a, tqg_u32 b) {
    tqg_u32 d;
#if TQG_SM >= 80
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
#else
    asm("vmax2.u32.u32.u32 %0, %1, %2, %1;" : "=r"(d) : "r"(a), "r"(b));
#endif
    return d;
}
TQG_FN float tqg_dot2(tqg_u32 a, tqg_u32 b, float c) {
    return tqg_fma(tqg_h2_hi(a), tqg_h2_hi(b), tqg_fma(tqg_h2_lo(a), tqg_h2_lo(b), c));
}
TQG_FN tqg_i32 tqg_dot4(tqg_u32 a, tqg_u32 b, tqg_i32 c) {
    tqg_i32 d;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

/* ---- a warp ----------------------------------------------------------------------------------------------------- */

TQG_FN void tqg_warp_sync(void) {
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
}
TQG_FN tqg_u32 tqg_shfl_xor_u(tqg_u32 x, int mask) {
    tqg_u32 y;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(y) : "r"(x), "r"(mask));
    return y;
}
TQG_FN tqg_u32 tqg_shfl_u(tqg_u32 x, int lane) {
    tqg_u32 y;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(y) : "r"(x), "r"(lane));
    return y;
}
TQG_FN void tqg_in_order(void) {
}
/* ptxas sees through a mov and through an exchange of what all lanes know, but not through this. */
TQG_FN tqg_u32 tqg_keep(tqg_u32 x) {
    const tqg_u32 lane = (tqg_u32)tqg_lane();
    return x ^ lane ^ tqg_shfl_xor_u(lane, 0);
}
TQG_FN float tqg_shfl_xor(float x, int mask) {
    return tqg_float(tqg_shfl_xor_u(tqg_bits(x), mask));
}
TQG_FN float tqg_shfl(float x, int lane) {
    return tqg_float(tqg_shfl_u(tqg_bits(x), lane));
}
TQG_FN tqg_u64 tqg_ballot(int p) {
    tqg_u32 lanes;
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
                 : "=r"(lanes)
                 : "r"(p));
    return lanes;
}
TQG_FN int tqg_any(int p) {
    int any;
    asm volatile("{ .reg .pred p, q; setp.ne.s32 p, %1, 0; vote.sync.any.pred q, p, 0xffffffff; selp.s32 %0, 1, 0, q; }"
                 : "=r"(any)
                 : "r"(p));
    return any;
}

/* ---- a block, and memory ---------------------------------------------------------------------------------------- */

TQG_FN void tqg_block_sync(void) {
    asm volatile("bar.sync 0;" ::: "memory");
}
TQG_FN tqg_u4 tqg_load16(const void *p) {
    tqg_u4 x;
    asm("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(p));
    return x;
}
TQG_FN tqg_u32 tqg_load4(const void *p) {
    tqg_u32 x;
    asm("ld.global.nc.b32 %0, [%1];" : "=r"(x) : "l"(p));
    return x;
}
TQG_FN void tqg_fence(void) {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
TQG_FN tqg_u32 tqg_atomic_add(tqg_u32 *p, tqg_u32 x) {
    tqg_u32 old;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(x) : "memory");
    return old;
}
TQG_FN tqg_u32 tqg_atomic_or(tqg_u32 *p, tqg_u32 x) {
    tqg_u32 old;
    asm volatile("atom.relaxed.gpu.global.or.b32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(x) : "memory");
    return old;
}
TQG_FN tqg_u32 tqg_atomic_and(tqg_u32 *p, tqg_u32 x) {
    tqg_u32 old;
    asm volatile("atom.relaxed.gpu.global.and.b32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(x) : "memory");
    return old;
}
TQG_FN int tqg_arrive(tqg_u32 *counter, tqg_u32 n) {
    int last = 0;
    tqg_fence();
    tqg_block_sync();
    if (tqg_thread() == 0) {
        last = tqg_atomic_add(counter, 1) == n - 1;
        if (last)
            *counter = 0;
    }
    asm volatile("{ .reg .pred p, q; setp.ne.s32 p, %0, 0; bar.red.or.pred q, 0, p; selp.s32 %0, 1, 0, q; }"
                 : "+r"(last)
                 :
                 : "memory");
    if (last)
        tqg_fence();
    return last;
}

typedef const tqg_u32 *tqg_uniform_words;
TQG_FN tqg_uniform_words tqg_publish(const tqg_u32 *p) {
    tqg_fence();
    tqg_block_sync();
    return p;
}
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

/* ---- asynchronous copies ---------------------------------------------------------------------------------------- */

TQG_FN tqg_u32 tqg_shared_address(const void *shared) {
#ifdef __clang__
    return (tqg_u32)(tqg_u64)(const __attribute__((address_space(3))) void *)shared;
#else
    return (tqg_u32)__cvta_generic_to_shared(shared);
#endif
}
#if defined(TQG_COPY_ASYNC) || defined(TQG_COPY_BULK)
TQG_FN void tqg_copy16(void *shared, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(tqg_shared_address(shared)), "l"(global) : "memory");
}
TQG_FN void tqg_copy_commit(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
#define tqg_copy_wait(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
#else
TQG_FN void tqg_copy16(void *shared, const void *global) {
    *(tqg_u4 *)shared = tqg_load16(global);
}
TQG_FN void tqg_copy_commit(void) {}
#define tqg_copy_wait(n) ((void)(n))
#endif

#ifdef TQG_COPY_BULK
TQG_FN int tqg_elect(void) {
    int mine;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.s32 %0, 1, 0, p; }" : "=r"(mine));
    return mine;
}
TQG_FN void tqg_bar_init(tqg_u64 *bar) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\t"
                 "fence.mbarrier_init.release.cluster;\n\t"
                 "fence.proxy.async.shared::cta;" ::"r"(tqg_shared_address(bar))
                 : "memory");
}
TQG_FN void tqg_bar_expect(tqg_u64 *bar, tqg_u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(tqg_shared_address(bar)), "r"(bytes)
                 : "memory");
}
TQG_FN void tqg_bulk_copy(void *shared, const void *global, tqg_u32 bytes, tqg_u64 *bar) {
    asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     tqg_shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(tqg_shared_address(bar))
                 : "memory");
}
TQG_FN void tqg_bar_wait(tqg_u64 *bar, tqg_u32 parity) {
    asm volatile("{ .reg .pred done;\n\t"
                 "WAIT_%=: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra WAIT_%=; }" ::"r"(tqg_shared_address(bar)),
                 "r"(parity)
                 : "memory");
}
#endif

/* ---- matrix instructions ---------------------------------------------------------------------------------------- */

#ifdef TQG_MATRIX_MMA
#define TQG_MMA_N  8
#define TQG_MMA_A  4
#define TQG_MMA_B  2
#define TQG_MMA_C  4
#define TQG_MMA_A8 2 /* register r: row g + 8 r, k = 4 t to 4 t + 3 */
#define TQG_MMA_B8 1 /* column g, k = 4 t to 4 t + 3 */

TQG_FN void tqg_mma_f16(float *c, const tqg_u32 *a, const tqg_u32 *b) {
#if TQG_SM >= 80
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    TQG_UNROLL
    for (int k = 0; k < 2; k++)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[2 * k]), "r"(a[2 * k + 1]), "r"(b[k]));
#endif
}
TQG_FN void tqg_mma_i8(tqg_i32 *c, const tqg_u32 *a, const tqg_u32 *b) {
#if TQG_SM >= 80
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b[0]));
#else
    TQG_UNROLL
    for (int m = 0; m < 2; m++)
        asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(c[2 * m]), "+r"(c[2 * m + 1])
            : "r"(a[m]), "r"(b[0]));
#endif
}
/* Two k steps of tqg_mma_i8: a[0], a[1] with b[0], then a[2], a[3] with b[1]. */
TQG_FN void tqg_mma_i8_k32(tqg_i32 *c, const tqg_u32 *a, const tqg_u32 *b) {
#if TQG_SM >= 80
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    tqg_mma_i8(c, a, b);
    tqg_mma_i8(c, a + 2, b + 1);
#endif
}
/* 8 x 8 halves, row lane / 4, columns 2 (lane % 4) and the next, transposed. */
TQG_FN tqg_u32 tqg_transpose8(tqg_u32 h) {
    tqg_u32 t;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(h));
    return t;
}
TQG_FN void tqg_c_to_b(const float *c, tqg_u32 *b) {
    b[0] = tqg_transpose8(tqg_h2(c[0], c[1]));
    b[1] = tqg_transpose8(tqg_h2(c[2], c[3]));
}
#endif

#endif
