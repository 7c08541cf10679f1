/* The transform of a chunk, T = R_odd (x) H_pow2: the orthonormal Hadamard of pow2 neighbouring values, then the
 * reflection R_m = I - (2/m) J across the m runs of pow2 values. Symmetric and its own inverse. */
#ifndef TQ_ROTATE_H
#define TQ_ROTATE_H

#include "vocabulary.h"

/* Vectors of neighbouring values whose first steps are done in registers, unless a chunk has fewer. */
enum { TQ_ABREAST = TQV_REGISTERS / 4 };
TQV_INLINE int tq_abreast(const int pow2) {
    return pow2 < TQ_ABREAST * TQV_LANES ? pow2 / TQV_LANES : TQ_ABREAST;
}

TQV_INLINE void tq_first_steps(const int vectors, tqv_f32 *v) {
    tqv_hadamard(v, vectors);
    TQV_UNROLL for (int h = 1; h < vectors; h *= 2)
        TQV_UNROLL for (int i = 0; i < vectors; i++)
            if (!(i & h)) {
                const tqv_f32 a = v[i], b = v[i + h];
                v[i] = tqv_add(a, b);
                v[i + h] = tqv_sub(a, b);
            }
}

/* The steps that are left of a chunk, two at once: half the way through memory. */
TQV_INLINE void tq_later_steps(float *y, const int pow2, const int odd) {
    for (int o = 0; o < odd; o++) {
        float *z = y + o * pow2;
        int h = TQ_ABREAST * TQV_LANES;
        for (; 4 * h <= pow2; h *= 4)
            for (int i = 0; i < pow2; i += 4 * h)
                for (int j = i; j < i + h; j += TQV_LANES) {
                    const tqv_f32 a = tqv_load(z + j), b = tqv_load(z + j + h);
                    const tqv_f32 c = tqv_load(z + j + 2 * h), d = tqv_load(z + j + 3 * h);
                    const tqv_f32 ab = tqv_add(a, b), cd = tqv_add(c, d), a_b = tqv_sub(a, b), c_d = tqv_sub(c, d);
                    tqv_store(z + j, tqv_add(ab, cd));
                    tqv_store(z + j + h, tqv_add(a_b, c_d));
                    tqv_store(z + j + 2 * h, tqv_sub(ab, cd));
                    tqv_store(z + j + 3 * h, tqv_sub(a_b, c_d));
                }
        for (int j = 0; j < h && h < pow2; j += TQV_LANES) {
            const tqv_f32 a = tqv_load(z + j), b = tqv_load(z + j + h);
            tqv_store(z + j, tqv_add(a, b));
            tqv_store(z + j + h, tqv_sub(a, b));
        }
    }
    if (odd == 1)
        return;
    for (int i = 0; i < pow2; i += TQV_LANES) {
        tqv_f32 sum = tqv_zero();
        for (int o = 0; o < odd; o++)
            sum = tqv_add(sum, tqv_load(y + o * pow2 + i));
        sum = tqv_mul(sum, tqv_set1(2.0f / (float)odd));
        for (int o = 0; o < odd; o++)
            tqv_store(y + o * pow2 + i, tqv_sub(tqv_load(y + o * pow2 + i), sum));
    }
}

/* Steps may come in any order: the first ones of n rows of whole chunks, from x to y, times unit. Values whose bit is set in
 * `before` change their signs ahead of them, those in `after` behind them; NULL: none. */
TQV_INLINE void tq_first_pass(const float *const *x, int n, const int values, const int pow2, float unit,
                              const uint32_t *before, const uint32_t *after, float *const *y) {
    const int vectors = tq_abreast(pow2);
    for (int i = 0; i < values; i += vectors * TQV_LANES)
        for (int r = 0; r < n; r++) { /* masks of signs are made once for all rows */
            tqv_f32 v[TQ_ABREAST];
            TQV_UNROLL for (int j = 0; j < vectors; j++) {
                const int at = i + j * TQV_LANES;
                v[j] = tqv_load(x[r] + at);
                v[j] = before ? tqv_flip(v[j], before[at / 32] >> (at % 32)) : v[j];
                v[j] = unit == 1.0f ? v[j] : tqv_mul(v[j], tqv_set1(unit));
            }
            tq_first_steps(vectors, v);
            TQV_UNROLL for (int j = 0; j < vectors; j++) {
                const int at = i + j * TQV_LANES;
                tqv_store(y[r] + at, after ? tqv_flip(v[j], after[at / 32] >> (at % 32)) : v[j]);
            }
        }
}

TQV_INLINE void tq_later_pass(int n, const int values, const int pow2, const int odd, float *const *y) {
    for (int r = 0; r < n; r++)
        for (int i = 0; i < values; i += pow2 * odd)
            tq_later_steps(y[r] + i, pow2, odd);
}

/* n rows, chunk by chunk: T (signs . x) to y, times unit * sqrt(pow2). */
TQV_INLINE void tq_rotate_in(const float *const *x, int n, const int values, const int pow2, const int odd, float unit,
                             const uint32_t *signs, float *const *y) {
    tq_first_pass(x, n, values, pow2, unit, signs, NULL, y);
    tq_later_pass(n, values, pow2, odd, y);
}

/* The way back: signs . (T y) to x. y is used up. */
TQV_INLINE void tq_rotate_out(float *const *y, int n, const int values, const int pow2, const int odd, float unit,
                              const uint32_t *signs, float *const *x) {
    tq_later_pass(n, values, pow2, odd, y);
    tq_first_pass((const float *const *)y, n, values, pow2, unit, NULL, signs, x);
}

#endif
