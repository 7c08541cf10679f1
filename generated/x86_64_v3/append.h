/* Appending rows: what depends on no format. */
#ifndef TQ_APPEND_H
#define TQ_APPEND_H

#include "rotate.h"

enum {
    TOGETHER = 4, /* vectors that are quantised together */
    STRIDE = TOGETHER * TQV_LANES,
    SETS = TQV_REGISTERS / 16, /* of them */
};

/* One vector without its mean. Beyond 1e17 norms would overflow; scales saturate long before. */
TQV_INLINE tqv_f32 tq_take(const int clamped, const float *x, const float *mean) {
    const tqv_f32 v = mean ? tqv_sub(tqv_load(x), tqv_load(mean)) : tqv_load(x);
    return clamped ? tqv_max(tqv_min(v, tqv_set1(1e17f)), tqv_set1(-1e17f)) : v;
}

/* n rows through the first steps of the transform, not yet times 1 / sqrt(pow2). Lane i of sums[k] becomes the sum of squares
 * of chunk k * TQV_LANES + i; there is room for `most` vectors, a multiple of TQV_LANES. Gives the largest sum. */
TQV_INLINE float tq_take_rows(const int clamped, const float *const *x, const float *const *mean, const uint32_t *signs,
                              int n, const int head_dim, const int chunk, const int pow2, float *y, const int most,
                              tqv_f32 *sums) {
    const int vectors = tq_abreast(pow2), chunks = head_dim / chunk;
    for (int i = 0; i < head_dim; i += vectors * TQV_LANES)
        for (int r = 0; r < n; r++) { /* masks of signs are made once for all rows */
            tqv_f32 v[TQ_ABREAST], square = i % chunk ? sums[r * chunks + i / chunk] : tqv_zero();
            TQV_UNROLL for (int j = 0; j < vectors; j++) {
                const int at = i + j * TQV_LANES;
                v[j] = tq_take(clamped, x[r] + at, mean[r] ? mean[r] + at : NULL);
                square = tqv_fma(v[j], v[j], square);
                v[j] = tqv_flip(v[j], signs[at / 32] >> (at % 32));
            }
            tq_first_steps(vectors, v);
            TQV_UNROLL for (int j = 0; j < vectors; j++)
                tqv_store(y + r * head_dim + i + j * TQV_LANES, v[j]);
            sums[r * chunks + i / chunk] = square;
        }
    tqv_f32 largest = tqv_zero();
    for (int c = n * chunks; c < most; c++)
        sums[c] = tqv_zero();
    for (int c = 0; c < most; c += TQV_LANES) {
        sums[c / TQV_LANES] = tqv_sums(sums + c);
        largest = tqv_max(largest, sums[c / TQV_LANES]);
    }
    return tqv_hmax(largest);
}

/* Symmetric levels. By cell of |value| in halves of a unit: a code, and the boundary from which on it is the next one. */
typedef struct tq_nearest {
    int8_t code[16];
    uint8_t boundary[16];
    int8_t magnitude[16]; /* of centroids, by code */
    int step, flip;       /* from code to code of growing magnitudes; what codes of x and -x differ in */
} tq_nearest;

/* Codes of `sets` <= SETS times `vectors` <= TOGETHER vectors of one scale, `by` halves of a unit for each 1 of them; their
 * magnitudes go into a sum of squares. Boundaries are whole halves, so that bytes decide exactly: they are rounded down.
 * Step by step for all sets, whose chains are long. */
TQV_INLINE void tq_find_nearest(const tq_nearest *levels, const float *y, const int sets, const int vectors, tqv_f32 by,
                                uint8_t *codes, tqv_bits *square) {
    static const uint8_t RUN[STRIDE] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    const tqv_f32 down = tqv_set1(-0x1.fffp-2f);
    tqv_bits size[SETS], flip[SETS], code[SETS];
    TQV_UNROLL for (int s = 0; s < sets; s++) {
        tqv_bits w[TOGETHER];
        TQV_UNROLL for (int i = 0; i < TOGETHER; i++)
            w[i] = i < vectors ? tqv_to_i32(tqv_fma(tqv_load(y + s * STRIDE + i * TQV_LANES), by, down)) : tqv_bzero();
        const tqv_bits a = tqv_narrow32(w[0], w[1]), b = tqv_narrow32(w[2], w[3]);
        const tqv_bits a_negative = tqv_negative16(a), b_negative = tqv_negative16(b);
        /* -1 - x of what is below 0: a value on a boundary goes up there, too */
        size[s] = tqv_narrow16u(tqv_xor(a, a_negative), tqv_xor(b, b_negative));
        flip[s] = tqv_and(tqv_narrow16(a_negative, b_negative), tqv_bset1(0x01010101 * levels->flip));
    }
    TQV_UNROLL for (int s = 0; s < sets; s++) {
        const tqv_bits cell = tqv_and(tqv_srl16(size[s], 4), tqv_bset1(0x0f0f0f0f));
        code[s] = tqv_lookup(tqv_table((const void *)levels->code), cell);
        code[s] = tqv_add8_where_ge(size[s], tqv_lookup(tqv_table((const void *)levels->boundary), cell), code[s],
                                    levels->step);
    }
    TQV_UNROLL for (int s = 0; s < sets; s++) {
        tqv_bits magnitude = tqv_lookup(tqv_table((const void *)levels->magnitude), code[s]);
        if (vectors < TOGETHER)
            magnitude = tqv_and(tqv_in_order(magnitude), tqv_bload(RUN));
        *square = tqv_squares8(*square, magnitude);
        tqv_bstore(codes + s * STRIDE, tqv_in_order(tqv_xor(code[s], flip[s])));
    }
}

#endif
