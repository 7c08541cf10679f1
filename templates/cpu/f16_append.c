/* ${banner} */
/* f16 rows of head_dim ${head_dim}: rounded to nearest even, saturated at 65504. */
#include "tq_kernel.h"
#include "vocabulary.h"

enum { HEAD_DIM = ${head_dim} };

void ${append_symbol}(const float *const *x, const float *const *mean, const uint32_t *signs, int mode, int n,
                      uint8_t *const *rows) {
    (void)signs, (void)mode;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < HEAD_DIM; i += TQV_LANES) {
            const tqv_f32 v = tqv_load(x[r] + i);
            tqv_to_f16(rows[r] + 2 * i, mean[r] ? tqv_sub(v, tqv_load(mean[r] + i)) : v);
        }
}

void ${dequantise_symbol}(const uint8_t *row, const float *mean, const uint32_t *signs, float *x) {
    (void)signs;
    for (int i = 0; i < HEAD_DIM; i += TQV_LANES) {
        const tqv_f32 v = tqv_from_f16(row + 2 * i);
        tqv_store(x + i, mean ? tqv_add(v, tqv_load(mean + i)) : v);
    }
}
