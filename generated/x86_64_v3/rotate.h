/* The transform of a chunk, T = R_odd (x) H_pow2: the orthonormal Hadamard of pow2 neighbouring values, then the
 * reflection R_m = I - (2/m) J across the m runs of pow2 values. Symmetric and its own inverse. */
#ifndef TQ_ROTATE_H
#define TQ_ROTATE_H

#include "vocabulary.h"

TQV_INLINE void tq_rotate(float *y, int pow2, int odd, float unit) {
    const tqv_f32 scale = tqv_set1(unit); /* 1 / sqrt(pow2) */
    for (int o = 0; o < odd; o++) {
        float *z = y + o * pow2;
        TQV_UNROLL for (int i = 0; i < pow2; i += TQV_LANES)
            tqv_store(z + i, tqv_mul(tqv_hadamard(tqv_load(z + i)), scale));
        int h = TQV_LANES;
        for (; 4 * h <= pow2; h *= 4) /* two steps at once: half the way through memory */
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

/* Values whose bit is set change sign; n is a multiple of TQV_LANES. y may be x. */
TQV_INLINE void tq_flip_signs(const float *x, int n, const uint32_t *signs, float *y) {
    for (int i = 0; i < n; i += TQV_LANES)
        tqv_store(y + i, tqv_flip(tqv_load(x + i), signs[i / 32] >> (i % 32)));
}

#endif
