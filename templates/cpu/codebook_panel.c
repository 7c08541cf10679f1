/* ---- prefill: a lane is a key ------------------------------------------------------------------------------------- */

% if bits < 8 then
static const int8_t LEVELS[16] = {${list(lookup_table)}};
% end
% if subs > 0 then
static const int8_t SIGNED_GAINS[16] = {${list(gains)}};
% end

/* Values of n groups of four, times by[] of their half of a unit, each TQV_LANES keys, to out. */
TQV_INLINE void decode_groups(const int n, const place *places, const tqv_bits *x, const tqv_f32 *by, float *out,
                              const int pitch) {
% if bits < 8 then
    const tqv_bits table = tqv_table((const void *)LEVELS);
% end
    TQV_UNROLL for (int g = 0; g < n; g++) {
% if bits < 8 then
        const tqv_bits index = tqv_and(tqv_srl16(x[places[g].word], places[g].shift), tqv_bset1(0x01010101 * ${unit.mask}));
        const tqv_bits levels = tqv_lookup(table, index);
% else
        const tqv_bits levels = x[places[g].word];
% end
        TQV_UNROLL for (int y = 0; y < 4; y++)
            tqv_store(out + (4 * g + y) * pitch, tqv_mul(tqv_from_byte(levels, y), by[g / 4]));
    }
}

/* out[j * pitch + lane] = value j of TQV_LANES rows. */
TQV_INLINE void decode_rows(const group *rows, float *out, const int pitch) {
    for (int b = 0; b < N_BLOCKS; b++, out += BLOCK * pitch) {
        const uint8_t *block = rows->row + b * BLOCK_BYTES;
        const tqv_f32 scale = tqv_mul(tqv_load_scales(block, rows->stride), tqv_set1(STEP));
% if subs > 0 then
        tqv_bits gain[CODE_WORDS][2]; /* of the even and the odd sub-blocks, a byte each */
        TQV_UNROLL for (int j = 0; j < CODE_WORDS; j++) {
            const tqv_bits codes = tqv_load_dwords(block + 2 + 4 * j, rows->stride), nibble = tqv_bset1(0x0f0f0f0f);
            gain[j][0] = tqv_lookup(tqv_table((const void *)SIGNED_GAINS), tqv_and(codes, nibble));
            gain[j][1] = tqv_lookup(tqv_table((const void *)SIGNED_GAINS), tqv_and(tqv_srl16(codes, 4), nibble));
        }
% end
        for (int u = 0; u < UNITS; u++) {
            tqv_bits x[UNIT_WORDS + 4];
            TQV_UNROLL for (int w = 0; w < UNIT_WORDS; w += 4)
                tqv_load_words(block + HEADER + u * UNIT_BYTES + 4 * w, rows->stride, x + w);
% if bits == 3 then
            x[UNIT_WORDS] = unit_spare(x);
% end
% if subs > 0 then
            const tqv_f32 by[2] = {tqv_mul(scale, tqv_from_byte(gain[u / 4][0], u % 4)),
                                   tqv_mul(scale, tqv_from_byte(gain[u / 4][1], u % 4))};
% else
            const tqv_f32 by[2] = {scale, scale};
% end
            decode_groups(8, UNIT, x, by, out + 32 * u * pitch, pitch);
        }
% if tail then
        tqv_bits x[TAIL_WORDS + 4];
        TQV_UNROLL for (int w = 0; w < TAIL_WORDS; w += 4)
            tqv_load_words(block + TAIL_AT + 4 * w, rows->stride, x + w);
%     if tail_unit.half then
        x[TAIL_WORDS] = tqv_load_half(block + TAIL_AT + 4 * TAIL_WORDS, rows->stride);
        x[TAIL_WORDS + 1] = tail_spare(x);
%     end
%     if subs > 0 then
        const tqv_f32 by = tqv_mul(scale, tqv_from_byte(gain[UNITS / 4][0], UNITS % 4));
        decode_groups(4, TAIL, x, &by, out + 32 * UNITS * pitch, pitch);
%     else
        decode_groups(4, TAIL, x, &scale, out + 32 * UNITS * pitch, pitch);
%     end
% end
    }
}

static void decode_k(const tq_keys *keys, float *panel) {
    uint8_t stage[TQV_LANES * STAGE_STRIDE];
    for (int i = 0; i < keys->n; i += TQV_LANES) {
        const group rows = group_at(keys, i, ROW_BYTES, stage, STAGE_STRIDE);
        decode_rows(&rows, keys_in_panel(panel, i, HEAD_DIM), STRIP);
    }
}

/* Transposed: a key's values lie beside each other. */
static void decode_v(const tq_keys *keys, float *panel) {
    uint8_t stage[TQV_LANES * STAGE_STRIDE];
    _Alignas(64) float values[HEAD_DIM * TQV_LANES];
    for (int i = 0; i < keys->n; i += TQV_LANES) {
        const group rows = group_at(keys, i, ROW_BYTES, stage, STAGE_STRIDE);
        decode_rows(&rows, values, TQV_LANES);
        for (int j = 0, width; j < HEAD_DIM; j += TQV_LANES) {
            float *to = values_in_panel(panel, i, j, HEAD_DIM, &width);
            TQV_UNROLL for (int r = 0; r < TQV_LANES; r += 4) {
                tqv_bits x[4];
                tqv_load_words((const uint8_t *)(values + j * TQV_LANES + r), TQV_LANES * sizeof *values, x);
                TQV_UNROLL for (int c = 0; c < 4; c++)
                    tqv_bstore(to + (r + c) * width, x[c]);
            }
        }
    }
}

% if rotated then
static void rotate_q(float *row) {
    tq_flip_signs(row, HEAD_DIM, K_SIGNS);
    rotate(row);
}

static void rotate_out(float *row) {
    rotate(row);
    tq_flip_signs(row, HEAD_DIM, V_SIGNS);
}

% end
const tq_panel ${k_panel_symbol} = {decode_k, ${rotated and "rotate_q" or "NULL"}};
const tq_panel ${v_panel_symbol} = {decode_v, ${rotated and "rotate_out" or "NULL"}};
