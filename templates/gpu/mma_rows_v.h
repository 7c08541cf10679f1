/* Rows of V as the A operand: O^T += V^T P^T, a value a row, keys k. See mma_rows.h. */
% local f, m = v, mma_rows(v)
% local gains = f.bits < 16 and f.subs > 0
#ifdef TQG_MATRIX_MMA
TQG_FN int v_row_value(int i) {
    const int tile = i / TQG_MMA_C, g = tqg_lane() >> 2, second = i % TQG_MMA_C >> 1; /* row g or g + 8 */
% if m.by_unit then
    const int slot = 2 * (tile % 2) + second;
%     local place = f.bits == 4 and "8 * (g >> 1) + 2 * (g & 1) + 4 * (slot & 1) + (slot >> 1)" or "4 * g + slot"
    const int value = 32 * (tile / 2) + ${place};
    return value < TQA_V_HEAD_DIM ? value : -1;
% else
    const int unit = 4 * (tile / 8) + (g >> 1);
    if (tile >= ${m.v_tiles - m.left_tiles}) /* what is taken off */
        return -1;
%     if m.tail then
    if (tile == 8 * V_PARTS)
        return 32 * V_FULL_UNITS + v_value(g + 8 * second);
%     end
    return unit < V_FULL_UNITS ? 32 * unit + v_nibble_value(tile % 8 >> 1, 4 * (g & 1) + 2 * (tile & 1) + second) : -1;
% end
}

/* Returns the largest scale, of those that multiply weights. */
TQG_FN tqg_u32 v_row_prepare(const unsigned char *row, unsigned char *aux) {
    tqg_u32 most = 0;
% if m.offset then
    TQG_UNROLL
    for (int i = 0; i < V_N_BLOCKS; i++) {
        const tqg_u32 scale = tqg_u16_at(row + i * V_BLOCK_BYTES);
        *(tqg_u16 *)(aux + (tqg_lane() / 2 * V_FACTORS + i) * 4 + 2 * (tqg_lane() & 1)) = (tqg_u16)scale;
        most = tqg_h2_max(most, scale);
    }
% elseif gains then
    TQG_UNROLL
    for (int i = 0; i < V_GAIN_WORDS; i++) {
        tqg_u32 pairs[4];
        v_row_gains(row, i, pairs);
        TQG_UNROLL
        for (int j = 0; j < 8; j++)
            *(tqg_u16 *)(aux + (8 * i + v_gain_order(j)) * 80 + 2 * tqg_lane()) = (tqg_u16)(pairs[j / 2] >> 16 * (j & 1));
    }
% end
% if m.tail then
    tqg_u32 tail[8];
    v_row_tail(row, tail);
    TQG_UNROLL
    for (int i = 0; i < 16; i++)
        *(tqg_u16 *)(aux + V_TAIL_AT + i * 80 + 2 * tqg_lane()) = (tqg_u16)(tail[i / 2] >> 16 * (i & 1));
% end
    (void)row;
    (void)aux;
    return most;
}
% if m.by_unit then

/* Four values of two keys each that this lane takes of a unit. */
TQG_FN void v_row_four(const tqg_u32 *table, const unsigned char *a, const unsigned char *b, tqg_u32 *pairs) {
    (void)table;
%     if f.bits == 4 then
    const tqg_u32 of_a = v_row_bytes(table, tqg_u16_at(a), 0), of_b = v_row_bytes(table, tqg_u16_at(b), 0);
%     end
    TQG_UNROLL
    for (int i = 0; i < ${f.bits == 16 and 4 or 2}; i++) {
%     if f.bits == 16 then
        pairs[i] = tqg_u16_at(a + 2 * i) | tqg_u16_at(b + 2 * i) << 16;
%     else
%         if f.bits == 8 then
        const tqg_u32 x = tqm_interleave(tqg_u16_at(a + 2 * i), tqg_u16_at(b + 2 * i)) ^ 0x80808080u;
%         else
        const tqg_u32 x = i ? tqg_zip23(of_a, of_b) : tqg_zip01(of_a, of_b);
%         end
        pairs[2 * i] = tqg_zip01(x, V_ONES);
        pairs[2 * i + 1] = tqg_zip23(x, V_ONES);
%     end
    }
}
% end

% if m.offset then
/* The offset as an operand: from shared memory, so that it stays in registers of its own. */
TQG_FN void v_row_begin(unsigned char *begin) {
    const tqg_u32 offset[4] = {V_OFFSET, V_OFFSET, V_OFFSET, V_OFFSET};
    if (tqg_lane() == 0)
        *(tqg_u4 *)begin = tqm_u4(offset);
}
% end

/* rows: of keys 2 (lane % 4) and the next. */
TQG_FN void v_row_outputs(const int groups, const tqg_u32 *table, const unsigned char *row_a, const unsigned char *row_b,
                          const unsigned char *aux, const unsigned char *begin, const tqg_u32 *weights, float *o, const int o_stride) {
    const int g = tqg_lane() >> 2, t = tqm_k_lane();
    (void)table;
    (void)aux;
    (void)t;
    (void)begin;
% if m.by_unit then
%     if m.offset then
    tqg_u32 offset[4];
    tqm_read16(1, begin, offset);
    tqg_u32 factors[V_FACTORS][TQM_ROW_WEIGHTS];
    TQG_UNROLL
    for (int i = 0; i < TQM_ROW_WEIGHTS; i++) {
        TQG_UNROLL
        for (int j = 0; j < V_FACTORS / 4; j++) {
            tqg_u32 x[4];
            tqm_read16(1, aux + (tqm_b_key(i) / 2 * V_FACTORS + 4 * j) * 4, x);
            TQG_UNROLL
            for (int e = 0; e < 4; e++)
                factors[4 * j + e][i] = x[e];
        }
    }
%     end
    TQG_UNROLL
    for (int unit = 0; unit < V_PARTS; unit++) {
        const int lane_at = (TQA_V_HEAD_DIM - 32 * unit < 32 ? g & 3 : g) * (V_UNIT_BYTES / 8);
        TQG_UNROLL
        for (int step = 0; step < TQM_ROW_BLOCKS; step++) {
            tqg_u32 pairs[2][4];
            TQG_UNROLL
            for (int i = 0; i < 2; i++) {
                const int at = (16 * step + 8 * i) * V_PITCH + v_unit_at(unit) + lane_at;
                v_row_four(table, row_a + at, row_b + at, pairs[i]);
            }
            TQG_UNROLL
            for (int n = 0; n < groups; n++) {
                const tqg_u32 *b = weights + n * TQM_ROW_WEIGHTS + step * TQG_MMA_B;
%     if m.offset then
                const tqg_u32 *const by = factors[unit / V_BLOCK_UNITS] + step * TQG_MMA_B;
                const tqg_u32 scaled[2] = {tqg_h2_mul(b[0], by[0]), tqg_h2_mul(b[1], by[1])};
                b = scaled;
%     end
                TQG_UNROLL
                for (int y = 0; y < 2; y++) {
                    const tqg_u32 a[4] = {pairs[0][2 * y], pairs[0][2 * y + 1], pairs[1][2 * y], pairs[1][2 * y + 1]};
%     if m.offset then
                    tqg_mma_f16(o + n * o_stride + (2 * unit + y) * TQG_MMA_C, offset, b);
%     end
                    tqg_mma_f16(o + n * o_stride + (2 * unit + y) * TQG_MMA_C, a, b);
                }
            }
        }
    }
% else
    TQG_UNROLL
    for (int c = 0; c < V_PARTS; c++) {
        const int unit = (g >> 1) < V_FULL_UNITS - 4 * c ? g >> 1 : 0; /* others are not looked at */
        const int lane_at = v_unit_at(4 * c) + unit * V_UNIT_STEP + 2 * (g & 1);
        TQG_UNROLL
        for (int step = 0; step < TQM_ROW_BLOCKS; step++) {
            tqg_u32 quads[2][4], factor[2][2], offset[2][2], left[4];
            TQG_UNROLL
            for (int i = 0; i < 2; i++) {
                const int keys = 16 * step + 8 * i;
                tqg_u32 words[${f.bits}];
                TQG_UNROLL
                for (int j = 0; j < ${f.bits}; j++)
                    words[j] = tqm_interleave(tqg_u16_at(row_a + keys * V_PITCH + lane_at + 4 * j),
                                              tqg_u16_at(row_b + keys * V_PITCH + lane_at + 4 * j));
%     if f.bits < 4 then
                v_nibbles(words, quads[i]);
%     else
                TQG_UNROLL
                for (int j = 0; j < 4; j++)
                    quads[i][j] = words[j];
%     end
%     if gains then
                TQG_UNROLL
                for (int j = 0; j < 2; j++)
                    factor[i][j] = *(const tqg_u32 *)(aux + (2 * (4 * c + unit) + j) * 80 + 2 * (keys + 2 * t));
%     else
                const int at = keys * V_PITCH + v_scale_at(4 * c)${m.block_units == 1 and " + unit * V_UNIT_STEP" or ""};
                factor[i][0] = factor[i][1] = tqg_u16_at(row_a + at) | tqg_u16_at(row_b + at) << 16;
%     end
                TQG_UNROLL
                for (int j = 0; j < 2; j++)
                    v_row_offset(factor[i][j], &offset[i][j], left + 2 * i + j);
            }
            TQG_UNROLL
            for (int n = 0; n < groups; n++)
                tqg_mma_f16(o + n * o_stride + (${m.v_tiles - m.left_tiles} + c) * TQG_MMA_C, left,
                            weights + n * TQM_ROW_WEIGHTS + step * TQG_MMA_B);
            TQG_UNROLL
            for (int tile = 0; tile < 8; tile++) {
                tqg_u32 a[4];
                TQG_UNROLL
                for (int i = 0; i < 2; i++) {
                    const tqg_u32 bytes = v_row_bytes(table, quads[i][tile >> 1], tile & 1);
                    a[2 * i] = tqg_h2_fma(tqg_zip02(bytes, V_ONES), factor[i][tile >> 2], offset[i][tile >> 2]);
                    a[2 * i + 1] = tqg_h2_fma(tqg_zip13(bytes, V_ONES), factor[i][tile >> 2], offset[i][tile >> 2]);
                }
                TQG_UNROLL
                for (int n = 0; n < groups; n++)
                    tqg_mma_f16(o + n * o_stride + (8 * c + tile) * TQG_MMA_C, a,
                                weights + n * TQM_ROW_WEIGHTS + step * TQG_MMA_B);
            }
        }
    }
%     if m.tail then
    TQG_UNROLL
    for (int step = 0; step < TQM_ROW_BLOCKS; step++) {
        tqg_u32 a[4];
        TQG_UNROLL
        for (int r = 0; r < 4; r++)
            a[r] = *(const tqg_u32 *)(aux + V_TAIL_AT + (g + 8 * (r & 1)) * 80 + 2 * (16 * step + 2 * t + 8 * (r >> 1)));
        TQG_UNROLL
        for (int n = 0; n < groups; n++)
            tqg_mma_f16(o + n * o_stride + 8 * V_PARTS * TQG_MMA_C, a, weights + n * TQM_ROW_WEIGHTS + step * TQG_MMA_B);
    }
%     end
% end
}

/* Takes off what rounding left, once all keys are in. */
TQG_FN void v_row_finish(float *o) {
% if not m.by_unit then
    TQG_UNROLL
    for (int i = 0; i < 8 * V_PARTS * TQG_MMA_C; i++)
        o[i] -= o[(${m.v_tiles - m.left_tiles} + i / (8 * TQG_MMA_C)) * TQG_MMA_C +
                  2 * (i / (4 * TQG_MMA_C) & 1) + (i & 1)]; /* the row of the unit's gain */
% end
    (void)o;
}
#endif
