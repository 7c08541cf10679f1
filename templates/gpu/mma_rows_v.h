/* Rows of V as the A operand: O^T += V^T P^T, a value a row, keys k. See mma_rows.h. */
% local f, m = v, mma_rows(v, head_dim)
% local gains = f.bits < 16 and f.subs > 0
% local scales = f.bits < 16 and not gains
#ifdef TQG_MATRIX_MMA
TQG_FN int v_row_value(int i) {
    const int tile = i / TQG_MMA_C, g = tqg_lane() >> 2, second = i % TQG_MMA_C >> 1; /* row g or g + 8 */
% if m.numbers then
    const int slot = 2 * (tile % 2) + second;
    const int value = 32 * (tile / 2) + 4 * g + slot;
    return value < TQA_HEAD_DIM ? value : -1;
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
% if m.numbers and scales then
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
% if m.numbers then

/* Four values of two keys each that this lane takes of a unit. */
TQG_FN void v_row_four(const unsigned char *a, const unsigned char *b, tqg_u32 *pairs) {
    TQG_UNROLL
    for (int i = 0; i < ${f.bits == 16 and 4 or 2}; i++) {
%         if f.bits == 16 then
        pairs[i] = tqg_u16_at(a + 2 * i) | tqg_u16_at(b + 2 * i) << 16;
%         else
        const tqg_u32 x = tqm_interleave(tqg_u16_at(a + 2 * i), tqg_u16_at(b + 2 * i)) ^ 0x80808080u;
        pairs[2 * i] = tqg_h2_add(tqg_zip01(x, 0x64646464u), 0xe480e480u);
        pairs[2 * i + 1] = tqg_h2_add(tqg_zip23(x, 0x64646464u), 0xe480e480u);
%         end
    }
}
% end

/* rows: of keys 2 (lane % 4) and the next. */
TQG_FN void v_row_outputs(const int groups, const tqg_u32 *table, const unsigned char *row_a, const unsigned char *row_b,
                          const unsigned char *aux, const tqg_u32 *weights, float *o, const int o_stride) {
    const int g = tqg_lane() >> 2, t = tqm_k_lane();
    (void)table;
    (void)aux;
    (void)t;
% if m.numbers then
%     if scales then
    tqg_u32 factors[V_FACTORS][TQM_WEIGHTS];
    TQG_UNROLL
    for (int i = 0; i < TQM_WEIGHTS; i++) {
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
        const int lane_at = (TQA_HEAD_DIM - 32 * unit < 32 ? g & 3 : g) * (V_UNIT_BYTES / 8);
        TQG_UNROLL
        for (int step = 0; step < TQM_BLOCKS; step++) {
            tqg_u32 pairs[2][4];
            TQG_UNROLL
            for (int i = 0; i < 2; i++) {
                const int at = (16 * step + 8 * i) * V_PITCH + v_unit_at(unit) + lane_at;
                v_row_four(row_a + at, row_b + at, pairs[i]);
            }
            TQG_UNROLL
            for (int n = 0; n < groups; n++) {
                const tqg_u32 *b = weights + n * TQM_WEIGHTS + step * TQG_MMA_B;
%     if scales then
                const tqg_u32 *const by = factors[unit / V_BLOCK_UNITS] + step * TQG_MMA_B;
                const tqg_u32 scaled[2] = {tqg_h2_mul(b[0], by[0]), tqg_h2_mul(b[1], by[1])};
                b = scaled;
%     end
                TQG_UNROLL
                for (int y = 0; y < 2; y++) {
                    const tqg_u32 a[4] = {pairs[0][2 * y], pairs[0][2 * y + 1], pairs[1][2 * y], pairs[1][2 * y + 1]};
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
        for (int step = 0; step < TQM_BLOCKS; step++) {
            tqg_u32 quads[2][4], factor[2][2], offset[2][2], left[4];
            TQG_UNROLL
            for (int i = 0; i < 2; i++) {
                const int keys = 16 * step + 8 * i;
                tqg_u32 words[${f.bits}];
                TQG_UNROLL
                for (int j = 0; j < ${f.bits}; j++)
                    words[j] = tqm_interleave(tqg_u16_at(row_a + keys * V_PITCH + lane_at + 4 * j),
                                              tqg_u16_at(row_b + keys * V_PITCH + lane_at + 4 * j));
                v_row_quads(words, quads[i]);
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
                            weights + n * TQM_WEIGHTS + step * TQG_MMA_B);
            TQG_UNROLL
            for (int tile = 0; tile < 8; tile++) {
                tqg_u32 a[4];
                TQG_UNROLL
                for (int i = 0; i < 2; i++) {
                    v_row_pairs(table, quads[i][tile >> 1], tile & 1, a + 2 * i, a + 2 * i + 1);
                    a[2 * i] = tqg_h2_fma(a[2 * i], factor[i][tile >> 2], offset[i][tile >> 2]);
                    a[2 * i + 1] = tqg_h2_fma(a[2 * i + 1], factor[i][tile >> 2], offset[i][tile >> 2]);
                }
                TQG_UNROLL
                for (int n = 0; n < groups; n++)
                    tqg_mma_f16(o + n * o_stride + (8 * c + tile) * TQG_MMA_C, a,
                                weights + n * TQM_WEIGHTS + step * TQG_MMA_B);
            }
        }
    }
%     if m.tail then
    TQG_UNROLL
    for (int step = 0; step < TQM_BLOCKS; step++) {
        tqg_u32 a[4];
        TQG_UNROLL
        for (int r = 0; r < 4; r++)
            a[r] = *(const tqg_u32 *)(aux + V_TAIL_AT + (g + 8 * (r & 1)) * 80 + 2 * (16 * step + 2 * t + 8 * (r >> 1)));
        TQG_UNROLL
        for (int n = 0; n < groups; n++)
            tqg_mma_f16(o + n * o_stride + 8 * V_PARTS * TQG_MMA_C, a, weights + n * TQM_WEIGHTS + step * TQG_MMA_B);
    }
%     end
% end
}

/* Takes off what rounding left, once all keys are in. */
TQG_FN void v_row_finish(float *o) {
% if not m.numbers then
    TQG_UNROLL
    for (int i = 0; i < 8 * V_PARTS * TQG_MMA_C; i++)
        o[i] -= o[(${m.v_tiles - m.left_tiles} + i / (8 * TQG_MMA_C)) * TQG_MMA_C +
                  2 * (i / (4 * TQG_MMA_C) & 1) + (i & 1)]; /* the row of the unit's gain */
% end
    (void)o;
}
#endif
