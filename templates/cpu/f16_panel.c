/* ---- prefill ----------------------------------------------------------------------------------------------------- */

#include "rows.h"
#include "tq_kernel.h"
#include "vocabulary.h"

static void decode_k(const tq_keys *keys, float *panel) {
    _Alignas(64) float rows[TQV_LANES * ${head_dim}];
    for (int i = 0; i < keys->n; i += TQV_LANES) {
        const uint8_t *row = row_at(keys, i);
        const int n = keys->n - i < TQV_LANES ? keys->n - i : TQV_LANES;
        memset(rows + n * ${head_dim}, 0, (size_t)((TQV_LANES - n) * ${head_dim}) * sizeof *rows);
        for (int r = 0; r < n; r++)
            for (int j = 0; j < ${head_dim}; j += TQV_LANES)
                tqv_store(rows + r * ${head_dim} + j, tqv_from_f16(row + (size_t)r * keys->stride + 2 * j));
        float *to = keys_in_panel(panel, i, ${head_dim});
        for (int j = 0; j < ${head_dim}; j += 4) {
            tqv_bits x[4];
            tqv_load_words((const uint8_t *)(rows + j), ${head_dim} * sizeof *rows, x);
            TQV_UNROLL for (int c = 0; c < 4; c++)
                tqv_bstore(to + (j + c) * STRIP, x[c]);
        }
    }
}

static void decode_v(const tq_keys *keys, float *panel) {
    for (int i = 0; i < keys->n; i++) {
        const uint8_t *row = row_at(keys, i);
        for (int j = 0, width; j < ${head_dim}; j += TQV_LANES)
            tqv_store(values_in_panel(panel, i, j, ${head_dim}, &width), tqv_from_f16(row + 2 * j));
    }
}

const tq_panel ${k_panel_symbol("rows")} = {.decode = decode_k};
const tq_panel ${v_panel_symbol("rows")} = {.decode = decode_v, .unit = 1.0f};
