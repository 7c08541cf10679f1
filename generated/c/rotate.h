/* The transform of a chunk, T = R_odd (x) H_pow2: the orthonormal Hadamard of pow2 neighbouring values, then the
 * reflection R_m = I - (2/m) J across the m runs of pow2 values. Symmetric and its own inverse. */
#ifndef TQ_ROTATE_H
#define TQ_ROTATE_H

#include "vocabulary.h"

TQV_INLINE void tq_rotate(float *y, int pow2, int odd, float unit) {
    const tqv_f32 scale = tqv_set1(unit); /* 1 / sqrt(pow2) */
    for (int o = 0; o < odd; o++) {
        float *z = y + o * pow2;
        for (int i = 0; i < pow2; i += TQV_LANES)
            tqv_store(z + i, tqv_mul(tqv_hadamard(tqv_load(z + i)), scale));
        for (int h = TQV_LANES; h < pow2; h *= 2)
            for (int i = 0; i < pow2; i += 2 * h)
                for (int j = i; j < i + h; j += TQV_LANES) {
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

/* Values whose bit is set change sign; n is a multiple of TQV_LANES. */
TQV_INLINE void tq_flip_signs(float *y, int n, const uint32_t *signs) {
    for (int i = 0; i < n; i += TQV_LANES)
        tqv_store(y + i, tqv_flip(tqv_load(y + i), signs[i / 32] >> (i % 32)));
}

#endif
