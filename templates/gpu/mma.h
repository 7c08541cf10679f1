/* Decode with matrix instructions. A warp works on steps of keys, the rows of a gather or a tile, in blocks of 16: scores
 * S = K q^T, where a key is a row of the A operand and a query head a column of B, then O^T += V^T P^T, where a value of V is a
 * row and a key is k. The roles of the registers are those of docs/gpu_kernels.md; what follows says which key, head or value
 * a lane's registers hold. */
#ifndef TQG_MMA_H
#define TQG_MMA_H

/* Of a step of so many row blocks of S, which are k steps of O, and a group of columns. */
#define TQM_SCORES(blocks)  ((blocks) * TQG_MMA_C)
#define TQM_WEIGHTS(blocks) ((blocks) * TQG_MMA_B)

#define TQM_A_LANES (128 / TQG_MMA_A) /* that hold different values of A */

/* Part of the lane's number that the k of operands depend on: runs of 2 on mma, else of 8 or 4; all 16 on wmma11. */
#if defined(TQG_MATRIX_MMA)
#define TQM_COLUMNS 2 /* of C that a lane holds */
#define TQM_RUN 2
TQG_FN int tqm_k_lane(void) {
    return tqg_lane() & 3;
}
#elif defined(TQG_MATRIX_NONE)
#define TQM_COLUMNS 4
#define TQM_RUN 16
TQG_FN int tqm_k_lane(void) {
    return 0;
}
#elif defined(TQG_MATRIX_WMMA11)
#define TQM_COLUMNS 1
#define TQM_RUN 16
TQG_FN int tqm_k_lane(void) {
    return 0;
}
#else
#define TQM_COLUMNS 1
#define TQM_RUN TQG_MMA_C
TQG_FN int tqm_k_lane(void) {
    return tqg_lane() >> 4;
}
#endif
/* Lane among those that together hold A. */
TQG_FN int tqm_a_lane(void) {
    return tqg_lane() & (TQM_A_LANES - 1);
}

/* Row and column of C's register r in its 16 x N block; which of the lane's columns that is. */
TQG_FN int tqm_c_row(int r) {
#ifdef TQG_MATRIX_MMA
    return (tqg_lane() >> 2) + 8 * (r >> 1);
#elif defined(TQG_MATRIX_WMMA11)
    return 2 * r + (tqg_lane() >> 4);
#elif defined(TQG_MATRIX_NONE)
    return (tqg_lane() & 7) + 8 * (r >> 2);
#else
    return TQM_RUN * tqm_k_lane() + r;
#endif
}
TQG_FN int tqm_c_slot(int r) {
    return r & (TQM_COLUMNS - 1);
}
TQG_FN int tqm_c_column(int slot) {
#ifdef TQG_MATRIX_NONE
    return (tqg_lane() >> 3) + TQG_MMA_N / 4 * slot;
#else
    return TQM_COLUMNS == 2 ? 2 * (tqg_lane() & 3) + slot : tqg_lane() & 15;
#endif
}
/* Column of B's registers, of which dot products have four. */
TQG_FN int tqm_b_column(void) {
    return TQM_COLUMNS == 2 ? tqg_lane() >> 2 : tqg_lane() & 15;
}

/* Lanes that hold the same columns of C differ in these bits of their numbers; is it the first of them? */
#ifdef TQG_MATRIX_NONE
enum { TQM_SAME = 1, TQM_SAME_END = 8 };
TQG_FN int tqm_is_first(void) {
    return (tqg_lane() & 7) == 0;
}
#else
enum { TQM_SAME = TQM_COLUMNS == 2 ? 4 : 16, TQM_SAME_END = TQG_WARP };
TQG_FN int tqm_is_first(void) {
    return tqg_lane() < TQM_SAME;
}
#endif
/* Their results are parts of one. */
TQG_FN float tqm_column_max(float x) {
    TQG_UNROLL
    for (int mask = TQM_SAME; mask < TQM_SAME_END; mask *= 2)
        x = tqg_max(x, tqg_shfl_xor(x, mask));
    return x;
}
TQG_FN float tqm_column_sum(float x) {
    TQG_UNROLL
    for (int mask = TQM_SAME; mask < TQM_SAME_END; mask *= 2)
        x += tqg_shfl_xor(x, mask);
    return x;
}

/* Tiles: which value half e of register i of q is, and which one a register of O is. */
TQG_FN int tqm_tile_value(int i, int e) {
    const int r = i % TQG_MMA_B, step = i / TQG_MMA_B; /* steps of a sub-tile follow those of the one before */
    return 16 * step + 2 * TQG_MMA_B * tqm_k_lane() + 4 * (r / 2) + TQG_NIBBLE(r & 1, e);
}
TQG_FN int tqm_output_value(int i) {
    return 16 * (i / TQG_MMA_C) + tqm_c_row(i % TQG_MMA_C);
}

/* A register of a group of columns of q: values v0 and v1 (-1: none) of a head, all of which are in shared memory, times
 * unit. Columns are heads, or each = 2 of them one head, rounded to halves and what rounding left, times 2^11. */
TQG_FN tqg_u32 tqm_q_pair(const int each, const int gqa, const float *q, float unit, int group, int v0, int v1) {
    const int column = group * TQG_MMA_N + tqm_b_column(), head = column / each, value[2] = {v0, v1};
    float x[2];
    TQG_UNROLL
    for (int e = 0; e < 2; e++) {
        x[e] = head < gqa && value[e] >= 0 ? q[head * TQA_HEAD_DIM + value[e]] * unit : 0.0f;
        if (each == 2 && column & 1)
            x[e] = (x[e] - tqg_half(tqg_to_half(x[e]))) * 0x1p11f;
    }
    return tqg_h2(x[0], x[1]);
}

TQG_FN tqg_u32 tqm_tile_q(const int each, const int gqa, const float *q, float unit, int group, int i) {
    return tqm_q_pair(each, gqa, q, unit, group, tqm_tile_value(i, 0), tqm_tile_value(i, 1));
}

/* The first of the two keys of a tile that register i % TQG_MMA_B of B holds in k step i / TQG_MMA_B of O. */
TQG_FN int tqm_b_key(int i) {
    const int step = i / TQG_MMA_B, r = i % TQG_MMA_B;
    return 16 * step + TQM_RUN * tqm_k_lane() + (TQM_COLUMNS == 2 ? 8 : 2) * r;
}

/* Key of a tile that register i of S belongs to. */
TQG_FN int tqm_s_key(int i) {
    return 16 * (i / TQG_MMA_C) + tqm_c_row(i % TQG_MMA_C);
}

/* A mask of the halves of a pair that belong to visible ones of the keys of slot and slot + 1. */
TQG_FN tqg_u32 tqm_visible(const tqa_range *range, int slot) {
    return (tqa_is_visible(range, slot) ? 0x0000ffffu : 0) | (tqa_is_visible(range, slot + 1) ? 0xffff0000u : 0);
}

/* The largest magnitude of n shared values, or NaN if one is not finite; by every warp for itself. */
TQG_FN float tqm_largest(const float *x, int n) {
    float most = 0.0f, none = 0.0f;
    for (int i = tqg_lane(); i < n; i += TQG_WARP) {
        most = tqg_max(most, tqg_abs(x[i]));
        none += x[i] - x[i];
    }
    return tqa_warp_max(most) + tqa_warp_sum(none);
}

/* Exponent of a positive float, rounded down. */
TQG_FN int tqm_exponent(float x) {
    return (int)(tqg_bits(x) >> 23) - 127;
}

/* What to add to a half below 2^15 to set its top bit if it is 2^exponent or more, for both halves of a pair. */
TQG_FN tqg_u32 tqm_limit(int exponent) {
    return (tqg_u32)(0x8000 - ((exponent + 15) << 10)) * 0x10001u;
}

/* A table of bytes in registers, rather than constants that are built again for each use. */
TQG_FN void tqm_no_table(tqg_u32 *table) {
    table[0] = table[1] = table[2] = table[3] = 0;
}
TQG_FN void tqm_keep(tqg_u32 *table) {
    TQG_UNROLL
    for (int i = 0; i < 4; i++)
        table[i] = tqg_keep(table[i]);
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* Weights exp2(s * scale - max), scale one factor per row (0: 1), as the B operand; and their sums. Of each
 * group of columns a lane has TQM_COLUMNS / each heads; each = 2: odd registers of s are spare, and their weights 0. */
TQG_FN void tqm_weigh(const int groups, const int each, const int blocks, const float *s, const float *scale,
                      const float *max, float *sum, tqg_u32 *weights) {
    TQG_UNROLL
    for (int b = 0; b < groups * blocks; b++) {
        float x[TQG_MMA_C];
        TQG_UNROLL
        for (int r = 0; r < TQG_MMA_C; r++) {
            const int head = b / blocks * (TQM_COLUMNS / each) + tqm_c_slot(r) / each, i = b * TQG_MMA_C + r;
            x[r] = 0.0f;
            if (r % each == 0) {
                x[r] = tqg_exp2(scale ? tqg_fma(s[i], scale[i % TQM_SCORES(blocks)], -max[head]) : s[i] - max[head]);
                sum[head] = b % blocks == 0 && r < TQM_COLUMNS ? x[r] : sum[head] + x[r];
            }
        }
        tqg_c_to_b(x, weights + b * TQG_MMA_B);
    }
}

/* Raises the maxima so that the weights of this tile are at most 2^exponent, and takes sums and outputs with them. */
TQG_FN void tqm_raise(const int groups, const int each, const int blocks, const int outputs, const float *s,
                      const float *scale, float exponent, float *max, float *sum, float *o) {
    const int heads = TQM_COLUMNS / each, scores = TQM_SCORES(blocks);
    TQG_UNROLL
    for (int head = 0; head < groups * heads; head++) {
        const int group = head / heads;
        float top = TQA_NO_MAX;
        TQG_UNROLL
        for (int i = head % heads; i < scores; i += TQM_COLUMNS)
            top = tqg_max(top, scale ? s[group * scores + i] * scale[i] : s[group * scores + i]);
        top = tqg_max(max[head], tqm_column_max(top) - exponent);
        const float keep = tqg_exp2(max[head] - top);
        max[head] = top;
        sum[head] *= keep;
        TQG_UNROLL
        for (int i = head % heads; i < outputs; i += TQM_COLUMNS)
            o[group * outputs + i] *= keep;
    }
}

/* Scales that a lane has seen may double before the bits for them are looked at again. */
TQG_FN int tqm_scale_bits(int bits, tqg_u32 scales) {
    const int now = tqm_exponent(tqa_warp_max(tqg_max(tqg_h2_lo(scales), tqg_h2_hi(scales)))) + 2;
    return now > 16 ? 16 : now > bits ? now : bits;
}

/* ---- the warps of a block --------------------------------------------------------------------------------------- */

/* Maxima and sums of a warp to shared memory, [gqa][warps] each. */
TQG_FN void tqm_meet(const int groups, const int each, const int gqa, const int warps, int warp, const float *max,
                     const float *sum, float *of_warps) {
    const int heads = TQM_COLUMNS / each;
    TQG_UNROLL
    for (int slot = 0; slot < groups * heads; slot++) {
        const int head = (slot / heads * TQG_MMA_N + tqm_c_column(slot % heads)) / each;
        const float all = tqm_column_sum(sum[slot]);
        if (head < gqa && tqm_is_first()) {
            of_warps[head * warps + warp] = max[slot];
            of_warps[(gqa + head) * warps + warp] = all;
        }
    }
}
/* What remains of this warp's outputs of a slot; the first warp stores maximum and sum of all. */
TQG_FN float tqm_join(const int each, const int gqa, const int warps, int warp, int slot, float max, const float *of_warps,
                      const tqa_result *result) {
    const int heads = TQM_COLUMNS / each, head = (slot / heads * TQG_MMA_N + tqm_c_column(slot % heads)) / each;
    float top = TQA_NO_MAX, total = 0.0f;
    if (head < gqa) {
        TQG_UNROLL
        for (int w = 0; w < warps; w++)
            top = tqg_max(top, of_warps[head * warps + w]);
        TQG_UNROLL
        for (int w = 0; w < warps; w++)
            total = tqg_fma(of_warps[(gqa + head) * warps + w], tqg_exp2(of_warps[head * warps + w] - top), total);
        if (warp == 0 && tqm_is_first()) {
            result->max[head] = top;
            result->sum[head] = total;
        }
    }
    return tqg_exp2(max - top);
}

/* ---- memory ------------------------------------------------------------------------------------------------------- */

TQG_FN tqg_u4 tqm_u4(const tqg_u32 *x) {
    tqg_u4 y;
    y.x = x[0];
    y.y = x[1];
    y.z = x[2];
    y.w = x[3];
    return y;
}
/* From shared or global memory. */
TQG_FN void tqm_read16(const int shared, const unsigned char *at, tqg_u32 *x) {
    const tqg_u4 y = shared ? *(const tqg_u4 *)at : tqg_load16(at);
    x[0] = y.x;
    x[1] = y.y;
    x[2] = y.z;
    x[3] = y.w;
}
/* From shared memory. */
typedef struct __attribute__((aligned(8))) tqm_u2 {
    tqg_u32 x, y;
} tqm_u2;
TQG_FN void tqm_read8(const tqg_u32 *at, tqg_u32 *x) {
    const tqm_u2 both = *(const tqm_u2 *)at;
    x[0] = both.x;
    x[1] = both.y;
}
TQG_FN tqg_u32 tqm_read4(const int shared, const unsigned char *at) {
    return shared ? *(const tqg_u32 *)at : tqg_load4(at);
}

/* Rows in shared memory begin where their addresses are modulo 16. That is the same for rows eight apart if it is so across
 * pages. */
TQG_FN int tqm_is_regular(const tqa_cache *cache) {
    return !cache->pages || (cache->page_stride % 16 == 0 && cache->page_mask >= 7);
}
/* Are the rows of a step one stride apart, too? */
TQG_FN int tqm_is_easy(const int keys, const tqa_cache *cache) {
    return !cache->pages || (cache->page_stride % 16 == 0 && cache->page_mask >= keys - 1);
}
TQG_FN int tqm_row_at(const int pitch, const tqa_cache *cache, int row) {
    return row * pitch + (int)(((tqg_u32)(tqg_u64)cache->first + (tqg_u32)row * cache->unit_stride) & 15);
}

#ifdef TQG_COPY_BULK
/* ---- a warp's ring of tiles in shared memory ---------------------------------------------------------------------- */

/* A stage is a tile of K, a tile of V, and the barrier that tells when both are there. */
enum { TQM_BAR_BYTES = 16 };

typedef struct tqm_ring {
    unsigned char *first;
    int read;       /* offset of the stage to read next */
    int fill;       /* of the one to fill next */
    tqg_u32 parity; /* of the barrier of the stage to read */
} tqm_ring;

/* bytes: of the tiles of a stage. */
TQG_FN void tqm_ring_init(tqm_ring *ring, unsigned char *first, int stages, int bytes) {
    if (tqg_elect()) {
        for (int i = 0; i < stages; i++)
            tqg_bar_init((tqg_u64 *)(first + i * (bytes + TQM_BAR_BYTES) + bytes));
    }
    tqg_warp_sync();
    ring->first = first;
    ring->read = ring->fill = 0;
    ring->parity = 0;
}
TQG_FN int tqm_ring_next(int stage, int stages, int bytes) {
    stage += bytes + TQM_BAR_BYTES;
    return stage == stages * (bytes + TQM_BAR_BYTES) ? 0 : stage;
}
TQG_FN void tqm_ring_fill(const tqm_ring *ring, const unsigned char *k, int k_bytes, const unsigned char *v, int v_bytes) {
    if (tqg_elect()) {
        unsigned char *const to = ring->first + ring->fill;
        tqg_u64 *const bar = (tqg_u64 *)(to + k_bytes + v_bytes);
        tqg_bar_expect(bar, (tqg_u32)(k_bytes + v_bytes));
        tqg_bulk_copy(to, k, (tqg_u32)k_bytes, bar);
        tqg_bulk_copy(to + k_bytes, v, (tqg_u32)v_bytes, bar);
    }
}
TQG_FN const unsigned char *tqm_ring_wait(tqm_ring *ring, int stages, int bytes) {
    const unsigned char *const stage = ring->first + ring->read;
    tqg_bar_wait((tqg_u64 *)(stage + bytes), ring->parity);
    ring->fill = ring->read;
    ring->read = tqm_ring_next(ring->read, stages, bytes);
    ring->parity ^= ring->read == 0;
    return stage;
}
#endif

#endif
