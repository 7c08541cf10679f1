/* micro.c: how fast single operations of the vocabulary are, and reading memory, on a real card; for first_run.sh, which puts
 * the vocabulary of an architecture before this text. What is measured is what design and cost model of the decode kernels
 * assume: the rate of byte permutes and selects beside that of floating-point ones, of halves in pairs, of matrix
 * instructions, and what plain loads and bulk copies reach of the memory's bandwidth. */
#include "micro.h"

TQG_FN tqg_u32 micro_seed(const micro_params *p, int i) {
    return tqg_load4(p->data + 4 * ((tqg_thread() + 37 * i) & 1023));
}

TQG_FN void micro_keep(const micro_params *p, tqg_u32 x) {
    p->out[tqg_block_x() * MICRO_THREADS + tqg_thread()] = x;
}

/* Chains of one operation: x becomes STEP, which may use the words a and b, and y of another
 * chain. */
#define MICRO_CHAIN(name, STEP)                                                                                        \
    TQG_KERNEL(tqk_micro_##name, micro_params, MICRO_THREADS, MICRO_BLOCKS) {                                          \
        const tqg_u32 a = micro_seed(&p, 100), b = micro_seed(&p, 101);                                                \
        tqg_u32 chains[MICRO_CHAINS], sum = 0;                                                                         \
        TQG_UNROLL                                                                                                     \
        for (int i = 0; i < MICRO_CHAINS; i++)                                                                         \
            chains[i] = micro_seed(&p, i);                                                                             \
        TQG_NO_UNROLL                                                                                                  \
        for (int round = 0; round < p.rounds; round++) {                                                               \
            TQG_UNROLL                                                                                                 \
            for (int i = 0; i < MICRO_STEPS * MICRO_CHAINS; i++) {                                                     \
                const tqg_u32 x = chains[i % MICRO_CHAINS], y = chains[(i + 1) % MICRO_CHAINS];                        \
                (void)y;                                                                                               \
                chains[i % MICRO_CHAINS] = STEP;                                                                       \
            }                                                                                                          \
        }                                                                                                              \
        TQG_UNROLL                                                                                                     \
        for (int i = 0; i < MICRO_CHAINS; i++)                                                                         \
            sum ^= chains[i];                                                                                          \
        micro_keep(&p, sum ^ a ^ b);                                                                                   \
    }

MICRO_CHAIN(fma, tqg_bits(tqg_fma(tqg_float(x), tqg_float(a), tqg_float(b))))
MICRO_CHAIN(lookup, tqg_lookup(x, a, b & 0x07070707u))
MICRO_CHAIN(and_xor, (x & y) ^ b) /* one instruction on NVIDIA, two on AMD */
MICRO_CHAIN(h2_fma, tqg_h2_fma(x, a, b))
MICRO_CHAIN(dot2, tqg_bits(tqg_dot2(a, b, tqg_float(x))))
MICRO_CHAIN(exp2, tqg_bits(tqg_exp2(tqg_float(x))))
MICRO_CHAIN(shuffle, tqg_shfl_xor_u(x, 1))

#ifdef TQG_MMA_N
/* Chains of matrix products C += A B. */
#define MICRO_MATRIX(name, TYPE, WORD_OF, A, B, PRODUCT)                                                               \
    TQG_KERNEL(tqk_micro_##name, micro_params, MICRO_THREADS, MICRO_BLOCKS) {                                          \
        tqg_u32 a[A], b[B], sum = 0;                                                                                   \
        TYPE c[MICRO_MATRICES * TQG_MMA_C];                                                                            \
        TQG_UNROLL                                                                                                     \
        for (int i = 0; i < A; i++)                                                                                    \
            a[i] = micro_seed(&p, i);                                                                                  \
        TQG_UNROLL                                                                                                     \
        for (int i = 0; i < B; i++)                                                                                    \
            b[i] = micro_seed(&p, A + i);                                                                              \
        TQG_UNROLL                                                                                                     \
        for (int i = 0; i < MICRO_MATRICES * TQG_MMA_C; i++)                                                           \
            c[i] = 0;                                                                                                  \
        TQG_NO_UNROLL                                                                                                  \
        for (int round = 0; round < p.rounds; round++) {                                                               \
            TQG_UNROLL                                                                                                 \
            for (int i = 0; i < MICRO_STEPS * MICRO_MATRICES; i++)                                                     \
                PRODUCT(c + i % MICRO_MATRICES * TQG_MMA_C, a, b);                                                     \
        }                                                                                                              \
        TQG_UNROLL                                                                                                     \
        for (int i = 0; i < MICRO_MATRICES * TQG_MMA_C; i++)                                                           \
            sum ^= WORD_OF(c[i]);                                                                                      \
        micro_keep(&p, sum);                                                                                           \
    }

MICRO_MATRIX(mma_f16, float, tqg_bits, TQG_MMA_A, TQG_MMA_B, tqg_mma_f16)
#ifdef TQG_INT8_MATRIX
MICRO_MATRIX(mma_i8, tqg_i32, (tqg_u32), TQG_MMA_A8, TQG_MMA_B8, tqg_mma_i8)
#endif
#endif

/* All of data once. */
TQG_KERNEL(tqk_micro_read, micro_params, MICRO_THREADS, MICRO_BLOCKS) {
    enum { AHEAD = 8 };
    const tqg_i64 step = (tqg_i64)p.rounds * MICRO_THREADS * 16; /* rounds: blocks of the grid */
    tqg_i64 at = ((tqg_i64)tqg_block_x() * MICRO_THREADS + tqg_thread()) * 16;
    tqg_u32 sum = 0;
    TQG_NO_UNROLL
    for (; at + (AHEAD - 1) * step + 16 <= p.bytes; at += AHEAD * step) {
        tqg_u4 x[AHEAD];
        TQG_UNROLL
        for (int i = 0; i < AHEAD; i++)
            x[i] = tqg_load16(p.data + at + i * step);
        TQG_UNROLL
        for (int i = 0; i < AHEAD; i++)
            sum ^= x[i].x ^ x[i].y ^ x[i].z ^ x[i].w;
    }
    micro_keep(&p, sum);
}

#ifdef TQG_COPY_BULK
/* The same through bulk copies of whole tiles, a ring of them per warp, as decode kernels stage them. */
TQG_KERNEL(tqk_micro_bulk, micro_params, MICRO_THREADS, MICRO_BLOCKS) {
    unsigned char *const ring = TQG_SHARED + tqg_warp() * MICRO_STAGES * (MICRO_TILE + 16);
    tqg_u64 *const bars = (tqg_u64 *)(ring + MICRO_STAGES * MICRO_TILE);
    const tqg_i64 n_tiles = p.bytes / MICRO_TILE, step = (tqg_i64)p.rounds * (MICRO_THREADS / TQG_WARP);
    tqg_i64 tile = (tqg_i64)tqg_block_x() * (MICRO_THREADS / TQG_WARP) + tqg_warp();
    tqg_u32 sum = 0, parity = 0;
    int slot = 0;
    if (tqg_lane() == 0)
        for (int i = 0; i < MICRO_STAGES; i++)
            tqg_bar_init(bars + i);
    tqg_warp_sync();
    for (int i = 0; i < MICRO_STAGES; i++)
        if (tqg_lane() == 0 && tile + i * step < n_tiles) {
            tqg_bar_expect(bars + i, MICRO_TILE);
            tqg_bulk_copy(ring + i * MICRO_TILE, p.data + (tile + i * step) * MICRO_TILE, MICRO_TILE, bars + i);
        }
    for (; tile < n_tiles; tile += step) {
        tqg_bar_wait(bars + slot, parity);
        sum ^= ((const tqg_u32 *)(ring + slot * MICRO_TILE))[tqg_lane()];
        tqg_warp_sync(); /* all lanes have read what is written now */
        if (tqg_lane() == 0 && tile + MICRO_STAGES * step < n_tiles) {
            tqg_bar_expect(bars + slot, MICRO_TILE);
            tqg_bulk_copy(ring + slot * MICRO_TILE, p.data + (tile + MICRO_STAGES * step) * MICRO_TILE, MICRO_TILE,
                          bars + slot);
        }
        slot = slot + 1 == MICRO_STAGES ? 0 : slot + 1;
        parity ^= slot == 0;
    }
    micro_keep(&p, sum);
}
#endif
