/* ${banner} */
/* f16 rows of head_dim ${head_dim}: rounded to nearest even, saturated at 65504. */
#include "tq_kernel.h"
#include "vocabulary.h"

enum { HEAD_DIM = ${head_dim} };

int ${append_symbol}(const float *x, const float *mean, const uint32_t *signs, int mode, uint8_t *row) {
    (void)signs, (void)mode;
    float y[HEAD_DIM];
    tqv_f32 check = tqv_zero();
    for (int i = 0; i < HEAD_DIM; i += TQV_LANES) {
        const tqv_f32 v = mean ? tqv_sub(tqv_load(x + i), tqv_load(mean + i)) : tqv_load(x + i);
        check = tqv_add(check, tqv_sub(v, v));
        tqv_store(y + i, v);
    }
    if (!(tqv_hsum(check) == 0.0f))
        return 1;
    for (int i = 0; i < HEAD_DIM; i += TQV_LANES)
        tqv_to_f16(row + 2 * i, tqv_load(y + i));
    return 0;
}

void ${dequantise_symbol}(const uint8_t *row, const float *mean, const uint32_t *signs, float *x) {
    (void)signs;
    for (int i = 0; i < HEAD_DIM; i += TQV_LANES) {
        const tqv_f32 v = tqv_from_f16(row + 2 * i);
        tqv_store(x + i, mean ? tqv_add(v, tqv_load(mean + i)) : v);
    }
}
