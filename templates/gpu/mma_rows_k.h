/* Rows of K as the A operand: S = K q^T, a key a row. See mma_rows.h. */
% local f, m = k, mma_rows(k)
% local gains = f.bits < 16 and f.subs > 0
#ifdef TQG_MATRIX_MMA
TQG_FN int k_row_value(int i, int e) {
    const int step = i / 2, r = i % 2, t = tqm_k_lane();
% if m.by_unit then
    const int pair = 2 * (step % 2) + r;
    const int value = 32 * (step / 2) + 8 * t + ${f.bits == 4 and "pair + 4 * e" or "2 * pair + e"};
    return value < TQA_HEAD_DIM ? value : -1;
% else
    const int unit = 2 * (step / 4) + (t >> 1);
%     if m.tail then
    if (step == 4 * K_PARTS)
        return 32 * K_FULL_UNITS + k_value(2 * (t + 4 * r) + e);
%     end
    return unit < K_FULL_UNITS ? 32 * unit + k_nibble_value(step % 4, 4 * (t & 1) + 2 * r + e) : -1;
% end
}

% if not m.by_unit then
enum { K_SUMS_AT = ${2 * (m.k_steps - m.sum_steps)} }; /* registers of q from there on are sums: what rounding left is taken off by */
/* Sums, negative, of a lane's q: of the 8 registers of a pair of units. */
TQG_FN tqg_u32 k_row_sum(const tqg_u32 *q) {
    float sums[2] = {0.0f, 0.0f};
    TQG_UNROLL
    for (int i = 0; i < 8; i++)
        sums[${gains and "i >> 2" or "0"}] -= tqg_h2_lo(q[i]) + tqg_h2_hi(q[i]);
    return tqg_h2(sums[0], sums[1]);
}
% end
/* Register i of q of a group. */
TQG_FN tqg_u32 k_row_q(const int each, const int gqa, const float *q, float unit, int group, int i) {
% if not m.by_unit then
    if (i >= K_SUMS_AT) {
        tqg_u32 x[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        TQG_UNROLL
        for (int j = 0; j < 8; j++) {
            const int at = 8 * (i - K_SUMS_AT) + j;
            if (at < 8 * K_PARTS)
                x[j] = tqm_q_pair(each, gqa, q, unit, group, k_row_value(at, 0), k_row_value(at, 1));
        }
        return k_row_sum(x);
    }
% end
    return tqm_q_pair(each, gqa, q, unit, group, k_row_value(i, 0), k_row_value(i, 1));
}

TQG_FN void k_row_prepare(const unsigned char *row, unsigned char *aux) {
% if m.offset then
    TQG_UNROLL
    for (int i = 0; i < K_FACTORS / 4; i++) {
        tqg_u32 x[4];
        TQG_UNROLL
        for (int j = 0; j < 4; j++)
            x[j] = 4 * i + j < K_N_BLOCKS ? tqg_bits(tqg_h2_lo(tqg_u16_at(row + (4 * i + j) * K_BLOCK_BYTES))) : 0;
        *(tqg_u4 *)(aux + (tqg_lane() * (K_FACTORS + 4) + 4 * i) * 4) = tqm_u4(x);
    }
% elseif gains then
    TQG_UNROLL
    for (int i = 0; i < K_GAIN_WORDS; i++) {
        tqg_u32 pairs[4];
        k_row_gains(row, i, pairs);
        *(tqg_u4 *)(aux + (i * TQM_ROW_KEYS + tqg_lane()) * 16) = tqm_u4(pairs);
    }
% end
% if m.tail then
    tqg_u32 tail[8];
    k_row_tail(row, tail);
    *(tqg_u4 *)(aux + K_TAIL_AT + tqg_lane() * 48) = tqm_u4(tail);
    *(tqg_u4 *)(aux + K_TAIL_AT + tqg_lane() * 48 + 16) = tqm_u4(tail + 4);
% end
    (void)row;
    (void)aux;
}
% if m.by_unit then

/* The 8 values of a key that this lane takes of a unit. */
TQG_FN void k_row_eight(const tqg_u32 *table, const unsigned char *at, tqg_u32 *pairs) {
    (void)table;
    TQG_UNROLL
    for (int i = 0; i < ${f.bits == 16 and 4 or 2}; i++) {
%     if f.bits == 4 then
        const tqg_u32 x = k_row_bytes(table, tqg_u16_at(at + 2 * i), 0);
%     else
        const tqg_u32 x = tqg_u16_at(at + 4 * i) | tqg_u16_at(at + 4 * i + 2) << 16;
%     end
%     if f.bits == 16 then
        pairs[i] = x;
%     else
        pairs[2 * i] = tqg_zip01(${f.bits == 8 and "x ^ 0x80808080u" or "x"}, K_ONES);
        pairs[2 * i + 1] = tqg_zip23(${f.bits == 8 and "x ^ 0x80808080u" or "x"}, K_ONES);
%     end
    }
}
% end

% if m.offset then
/* Products of the offset with q, which are the same for all keys. */
TQG_FN void k_row_begin(const int groups, const int in_shared, const tqg_u32 *q, const tqg_u4 *q_shared, const int q_stride,
                        unsigned char *begin) {
    const tqg_u32 offset[4] = {K_OFFSET, K_OFFSET, K_OFFSET, K_OFFSET};
    TQG_UNROLL
    for (int i = 0; i < groups * K_PARTS; i++) {
        float sum[TQG_MMA_C] = {0.0f, 0.0f, 0.0f, 0.0f};
        TQG_UNROLL
        for (int x = 0; x < 2; x++) {
            tqg_u32 of_q[2];
            tqg_mma_f16(sum, offset, tqm_q_at(in_shared, q, q_shared, i / K_PARTS * q_stride + 2 * (2 * (i % K_PARTS) + x), of_q));
        }
        const tqg_u32 bits[4] = {tqg_bits(sum[0]), tqg_bits(sum[1]), tqg_bits(sum[2]), tqg_bits(sum[3])};
        if (tqm_is_first())
            *(tqg_u4 *)(begin + (4 * i + tqg_lane()) * 16) = tqm_u4(bits);
    }
}
% end

/* row: of key lane / 4. */
TQG_FN void k_row_scores(const int groups, const int in_shared, const tqg_u32 *table, const unsigned char *row,
                         const unsigned char *aux, const unsigned char *begin, const tqg_u32 *q, const tqg_u4 *q_shared, const int q_stride, float *s) {
    const int g = tqg_lane() >> 2, t = tqm_k_lane();
    (void)table;
    (void)aux;
    (void)g;
    (void)begin;
% if m.by_unit then
    TQG_UNROLL
    for (int unit = 0; unit < K_PARTS; unit++) {
        /* Of a last half unit half the lanes take what they are given once more; q has zeros there. */
        const int lane_at = (TQA_HEAD_DIM - 32 * unit < 32 ? t & 1 : t) * (K_UNIT_BYTES / 4);
%     if m.offset then
        float part[2][TQM_ROW_SCORES];
        TQG_UNROLL
        for (int n = 0; n < groups; n++) {
            tqg_u32 bits[4];
            tqm_read16(1, begin + (4 * (n * K_PARTS + unit) + t) * 16, bits);
            TQG_UNROLL
            for (int i = 0; i < TQM_ROW_SCORES; i++)
                part[n][i] = tqg_float(bits[i % TQG_MMA_C]);
        }
%     end
        TQG_UNROLL
        for (int block = 0; block < TQM_ROW_BLOCKS; block++) {
            tqg_u32 pairs[2][4];
            TQG_UNROLL
            for (int key = 0; key < 2; key++)
                k_row_eight(table, row + (16 * block + 8 * key) * K_PITCH + k_unit_at(unit) + lane_at, pairs[key]);
            TQG_UNROLL
            for (int x = 0; x < 2; x++) {
                const tqg_u32 a[4] = {pairs[0][2 * x], pairs[1][2 * x], pairs[0][2 * x + 1], pairs[1][2 * x + 1]};
                TQG_UNROLL
                for (int n = 0; n < groups; n++) {
                    tqg_u32 of_q[2];
                    tqg_mma_f16(${m.offset and "part[n]" or "s + n * TQM_ROW_SCORES"} + block * TQG_MMA_C, a,
                                tqm_q_at(in_shared, q, q_shared, n * q_stride + 2 * (2 * unit + x), of_q));
                }
            }
        }
%     if m.offset then
        float factors[2 * TQM_ROW_BLOCKS];
        TQG_UNROLL
        for (int i = 0; i < 2 * TQM_ROW_BLOCKS; i++)
            factors[i] = ((const float *)aux)[(8 * i + g) * (K_FACTORS + 4) + unit / K_BLOCK_UNITS];
        TQG_UNROLL
        for (int i = 0; i < groups * TQM_ROW_SCORES; i++)
            s[i] = tqg_fma(part[i / TQM_ROW_SCORES][i % TQM_ROW_SCORES], factors[i % TQM_ROW_SCORES / 2], s[i]);
%     end
    }
% else
    tqg_u32 left[2 * ((K_PARTS + 1) / 2)][TQM_ROW_BLOCKS][2];
    TQG_UNROLL
    for (int i = 0; i < 2 * TQM_ROW_BLOCKS; i++)
        left[2 * ((K_PARTS + 1) / 2) - 1][i / 2][i % 2] = 0; /* if there is no second one */
    TQG_UNROLL
    for (int c = 0; c < K_PARTS; c++) {
        /* Where there is no second unit, lanes take the first one again; q has zeros there. */
        const int unit = 2 * c + 1 < K_FULL_UNITS ? t >> 1 : 0;
        const unsigned char *const at = row + k_unit_at(2 * c) + unit * K_UNIT_STEP + 2 * (t & 1);
%     if gains then
        const int in_block = c % ((K_BLOCK_UNITS + 1) / 2), gain_word = 2 * c / K_BLOCK_UNITS * K_BLOCK_GAIN_WORDS + in_block / 2;
%     end
        TQG_UNROLL
        for (int block = 0; block < TQM_ROW_BLOCKS; block++) {
            tqg_u32 factor[2], words[2][${f.bits}];
            TQG_UNROLL
            for (int i = 0; i < 2 * ${f.bits}; i++)
                words[i & 1][i >> 1] = tqg_u16_at(at + (16 * block + 8 * (i & 1)) * K_PITCH + 4 * (i >> 1));
%     if f.bits < 4 then
            tqg_u32 both[${f.bits}], quads[4];
            TQG_UNROLL
            for (int i = 0; i < ${f.bits}; i++)
                both[i] = tqm_interleave(words[0][i], words[1][i]);
            k_nibbles(both, quads);
%     end
            TQG_UNROLL
            for (int key = 0; key < 2; key++)
%     if gains then
                factor[key] = *(const tqg_u32 *)(aux + (gain_word * TQM_ROW_KEYS + 16 * block + 8 * key + g) * 16 +
                                                 4 * (in_block & 1) + 8 * unit);
%     else
                factor[key] = tqg_u16_at(row + (16 * block + 8 * key) * K_PITCH + k_scale_at(2 * c) +
                                         ${m.block_units == 1 and "unit * K_UNIT_STEP" or "0"});
%     end
            tqg_u32 offset[2];
            TQG_UNROLL
            for (int key = 0; key < 2; key++)
                k_row_offset(factor[key], offset + key, &left[c][block][key]);
            TQG_UNROLL
            for (int u = 0; u < 4; u++) {
                tqg_u32 a[4];
                TQG_UNROLL
                for (int i = 0; i < 2; i++) {
%     if f.bits < 4 then
                    const tqg_u32 bytes = k_row_bytes(table, quads[u], i);
                    a[2 * i] = tqg_zip01(bytes, K_ONES);
                    a[2 * i + 1] = tqg_zip23(bytes, K_ONES);
%     else
                    const tqg_u32 bytes = k_row_bytes(table, words[i][u], 0);
                    a[i] = tqg_zip01(bytes, K_ONES);
                    a[2 + i] = tqg_zip23(bytes, K_ONES);
%     end
                }
                TQG_UNROLL
                for (int half = 0; half < 2; half++) {
                    TQG_UNROLL
                    for (int key = 0; key < 2; key++) {
                        const int second = ${gains and "u >= 2" or "0"}; /* of the two gains of a unit */
                        const tqg_u32 f = second ? tqg_h2_dup_hi(factor[key]) : tqg_h2_dup_lo(factor[key]);
                        const tqg_u32 b = second ? tqg_h2_dup_hi(offset[key]) : tqg_h2_dup_lo(offset[key]);
                        a[2 * half + key] = tqg_h2_fma(a[2 * half + key], f, b);
                    }
                }
                TQG_UNROLL
                for (int n = 0; n < groups; n++) {
                    tqg_u32 of_q[2];
                    tqg_mma_f16(s + n * TQM_ROW_SCORES + block * TQG_MMA_C, a,
                                tqm_q_at(in_shared, q, q_shared, n * q_stride + 2 * (4 * c + u), of_q));
                }
            }
        }
    }
    TQG_UNROLL
    for (int i = 0; i < (K_PARTS + 1) / 2 * TQM_ROW_BLOCKS; i++) {
        const int block = i % TQM_ROW_BLOCKS, c = 2 * (i / TQM_ROW_BLOCKS);
        const tqg_u32 a[4] = {left[c][block][0], left[c][block][1], left[c + 1][block][0], left[c + 1][block][1]};
        TQG_UNROLL
        for (int n = 0; n < groups; n++) {
            tqg_u32 of_q[2];
            tqg_mma_f16(s + n * TQM_ROW_SCORES + block * TQG_MMA_C, a,
                        tqm_q_at(in_shared, q, q_shared, n * q_stride + K_SUMS_AT + c, of_q));
        }
    }
%     if m.tail then
    TQG_UNROLL
    for (int block = 0; block < TQM_ROW_BLOCKS; block++) {
        tqg_u32 a[4];
        TQG_UNROLL
        for (int r = 0; r < 4; r++)
            a[r] = *(const tqg_u32 *)(aux + K_TAIL_AT + (16 * block + 8 * (r & 1) + g) * 48 + 4 * (t + 4 * (r >> 1)));
        TQG_UNROLL
        for (int n = 0; n < groups; n++) {
            tqg_u32 of_q[2];
            tqg_mma_f16(s + n * TQM_ROW_SCORES + block * TQG_MMA_C, a,
                        tqm_q_at(in_shared, q, q_shared, n * q_stride + 2 * (4 * K_PARTS), of_q));
        }
    }
%     end
% end
}
#endif
