/* Rows as operands of mma. A warp stages 32 rows of K and 32 of V in shared memory, as they lie: row r begins at
 * r * P_PITCH + (its address modulo 16), which is the same for rows eight apart. Values may be taken in any order, as long as
 * q and outputs take them in the same. Per side there are two ways:
 *
 *   halves  2 and 3 bits, and gains: a lane takes half of a unit, 16 codes of one key: from each word of the unit the same
 *           two bytes, and so also its spare codes. Lanes that are added up hold different units, so that scales and gains
 *           multiply what was decoded.
 *   spread  turbo4, q8_0, f16: the lanes share a unit: scales multiply what a unit adds to S, and weights.
 *
 * A last unit of 16 values (halves only) is decoded by one lane per key and passed on in halves.
 *
 *   k_row_value, v_row_value   which value a register of q or O belongs to; -1: none
 *   P_row_fetch                starts copying the rows of a tile; those that are not visible become zeros
 *   P_row_prepare              a lane per key: scales, gains and last units for all lanes
 *   k_row_scores, v_row_outputs   all of a tile */
#ifdef TQG_MATRIX_MMA
TQG_FN tqg_u32 tqm_interleave(tqg_u32 a, tqg_u32 b) { /* halves to bytes a, b, a, b */
    return tqg_permute(a, b, 0x5140);
}
/* Two registers of q, from register `at` on. */
TQG_FN const tqg_u32 *tqm_q_at(const int in_shared, const tqg_u32 *q, const tqg_u4 *q_shared, const int at, tqg_u32 *x) {
    if (!in_shared)
        return q + at;
    const tqg_u32 *from = (const tqg_u32 *)(q_shared + at / 4 * TQG_WARP + tqg_lane()) + at % 4;
    x[0] = from[0];
    x[1] = from[1];
    return x;
}
% for _, side in ipairs(sides) do
%     local f, p, P = side.f, side.prefix, side.prefix:upper()
%     local m = mma_rows(f, head_dim)
%     local gains = f.bits < 16 and f.subs > 0
%     local scales = f.bits < 16 and not gains

/* ---- ${f.format} ---- */
enum {
    ${P}_ROW_WORDS = ${m.words}, /* of 16 bytes that a row may have parts in */
    ${P}_PITCH = 16 * ${P}_ROW_WORDS,
    ${P}_BLOCK_UNITS = ${m.block_units},
    ${P}_UNIT_BYTES = ${m.unit_bytes},
    ${P}_UNIT_STEP = ${m.block_units == 1 and P .. "_BLOCK_BYTES" or P .. "_UNIT_BYTES"}, /* from a unit to the next */
    ${P}_FULL_UNITS = ${m.full_units},
    ${P}_PARTS = ${p == "k" and m.k_parts or m.v_parts}, /* K: ${m.spread and "units" or "pairs of units"}; V: ${m.spread and "units" or "groups of four units"} */
%     if m.spread and scales then
    ${P}_FACTORS = ${(m.n_blocks + 3) // 4 * 4}, /* a key's scales, in shared memory */
%     elseif gains then
    ${P}_GAIN_WORDS = ${m.n_blocks * m.gain_words}, /* per key, of 8 codes */
%     end
    ${P}_AUX_BYTES = ${p == "k" and m.k_aux or m.v_aux},
    ${P}_TAIL_AT = ${p == "k" and m.k_aux_tail or m.v_aux_tail}, /* within what was prepared */
};
/* Where in a row the payload and the scale of a unit begin. */
TQG_FN int ${p}_unit_at(int unit) {
    return unit / ${P}_BLOCK_UNITS * ${P}_BLOCK_BYTES + ${P}_HEADER + unit % ${P}_BLOCK_UNITS * ${P}_UNIT_BYTES;
}
TQG_FN int ${p}_scale_at(int unit) {
    return unit / ${P}_BLOCK_UNITS * ${P}_BLOCK_BYTES;
}

/* regular: rows eight apart are alike modulo 16, pages included. */
TQG_FN void ${p}_row_fetch(const tqa_cache *cache, const tqa_range *range, int regular, int tile, unsigned char *stage) {
    const int first = tile * TQM_KEYS;
    if (regular && !tqa_is_edge(range, first, TQM_KEYS) && cache->page_mask >= (cache->pages ? TQM_KEYS - 1 : 0)) {
        const tqg_u8 *const from = tqa_unit(cache, first);
        ${m.words <= 8 and "TQG_UNROLL" or "TQG_NO_UNROLL"}
        for (int i = 0; i < ${P}_ROW_WORDS; i++) {
            const tqg_u32 at = (tqg_u32)(tqg_lane() + TQG_WARP * i), row = at / ${P}_ROW_WORDS, word = at % ${P}_ROW_WORDS;
            const tqg_u32 begin = row * cache->unit_stride;
            const tqg_u32 last = ((((tqg_u32)(tqg_u64)cache->first + begin) & 15) + ${P}_ROW_BYTES - 1) / 16;
            const tqg_u8 *const x = from + (begin + 16 * (word < last ? word : last));
            tqg_copy16(stage + 16 * at, x - ((tqg_u64)x & 15));
        }
        return;
    }
    if (regular) {
        TQG_NO_UNROLL
        for (int i = 0; i < ${P}_ROW_WORDS; i++) {
            const int at = tqg_lane() + TQG_WARP * i, row = at / ${P}_ROW_WORDS, word = at % ${P}_ROW_WORDS;
            if (!tqa_is_visible(range, first + row)) {
                const tqg_u4 zero = {0, 0, 0, 0};
                *(tqg_u4 *)(stage + 16 * at) = zero;
            } else {
                const tqg_u8 *const x = tqa_unit(cache, first + row), *const aligned = x - ((tqg_u64)x & 15);
                if (aligned + 16 * word < x + ${P}_ROW_BYTES)
                    tqg_copy16(stage + 16 * at, aligned + 16 * word);
            }
        }
        return;
    }
    unsigned char *const to = stage + tqm_row_at(${P}_PITCH, cache, tqg_lane());
    const int slot = first + tqg_lane(), visible = tqa_is_visible(range, slot);
    const tqg_u8 *const row = tqa_unit(cache, visible ? slot : range->begin);
    TQG_NO_UNROLL
    for (int i = 0; i < ${P}_ROW_BYTES; i += 2)
        *(tqg_u16 *)(to + i) = visible ? *(const tqg_u16 *)(row + i) : 0;
}
%     if f.bits < 8 then

/* Quad word `half` of 8 codes to two pairs of halves; where codes of two keys are interleaved, of key a and of key b (K), or
 * of both keys each (V). */
TQG_FN void ${p}_row_pairs(const tqg_u32 *table, tqg_u32 nibbles, int half, tqg_u32 *a, tqg_u32 *b) {
    tqg_u32 lo, hi, tops = 0;
%         if f.bits == 4 then
    tops = (half ? tqg_zip23(nibbles << 4, nibbles) : tqg_zip01(nibbles << 4, nibbles)) & 0x80808080u;
%         end
    ${p}_lookup(table, tqg_row_codes(nibbles, half), tops, &lo, &hi);
%         if p == "v" then
    *a = tqg_zip02(lo, hi);
    *b = tqg_zip13(lo, hi);
%         else
    *a = tqg_zip01(lo, hi);
    *b = tqg_zip23(lo, hi);
%         end
}
/* Value in its unit of a nibble of word `quad` of ${p}_nibbles. */
TQG_FN int ${p}_nibble_value(int quad, int nibble) {
    return ${p}_value(8 * quad + 4 * (nibble >> 1 & 1) + (nibble & 1) + 2 * (nibble >> 2));
}
%     end
%     if gains then

/* A lane's key: word i of its gain codes times its scale, gains i of both halves of a byte: 2, 3 | 6, 7 behind 0, 1 | 4, 5. */
TQG_FN void ${p}_row_gains(const unsigned char *row, int i, tqg_u32 *pairs) {
    const unsigned char *const block = row + i / ${m.gain_words} * ${P}_BLOCK_BYTES;
    const unsigned char *const codes = block + 2 + 4 * (i % ${m.gain_words});
    const tqg_u32 scale = tqg_u16_at(block) * 0x10001u;
    ${p}_gain_pairs(tqg_u16_at(codes) | ${m.half_gain_word and ("(i %% %d == %d ? 0 : tqg_u16_at(codes + 2))"):format(m.gain_words, m.gain_words - 1) or "tqg_u16_at(codes + 2)"} << 16, pairs);
    TQG_UNROLL
    for (int j = 0; j < 4; j++)
        pairs[j] = tqg_h2_mul(pairs[j], scale);
}
%     end
%     if m.tail then

/* A lane's key: the last 16 values, scaled. */
TQG_FN void ${p}_row_tail(const unsigned char *row, tqg_u32 *pairs) {
    const unsigned char *const from = row + ${p}_unit_at(${P}_FULL_UNITS);
    tqg_u32 words[${P}_TAIL_WORDS];
    TQG_UNROLL
    for (int i = 0; i < ${P}_TAIL_WORDS; i++)
        words[i] = tqg_u16_at(from + 4 * i) | ${f.bits == 3 and ("(i == %s_TAIL_WORDS - 1 ? 0 : tqg_u16_at(from + 4 * i + 2))"):format(P) or "tqg_u16_at(from + 4 * i + 2)"} << 16;
    ${p}_tail(words, pairs);
%         if gains then
    tqg_u32 gains[4];
    ${p}_row_gains(row, (2 * ${P}_FULL_UNITS) / 8, gains);
    const tqg_u32 pair = gains[(${2 * m.full_units % 8} >> 2) + (${2 * m.full_units % 8} & 2)], by = (pair & 0xffff) * 0x10001u;
%         else
    const tqg_u32 by = tqg_u16_at(row + ${p}_scale_at(${P}_FULL_UNITS)) * 0x10001u;
%         end
    TQG_UNROLL
    for (int i = 0; i < 8; i++)
        pairs[i] = tqg_h2_mul(pairs[i], by);
}
%     end
% end
% do
%     local f, m = k, mma_rows(k, head_dim)
%     local gains = f.bits < 16 and f.subs > 0
%     local scales = f.bits < 16 and not gains

/* ---- K ---- */

TQG_FN int k_row_value(int i, int e) {
    const int step = i / 2, r = i % 2, t = tqm_k_lane();
%     if m.spread then
    const int pair = 2 * (step % 2) + r;
%         if f.bits == 4 then
    const int value = 32 * (step / 2) + k_nibble_value(t, 2 * pair + e);
%         else
    const int value = 32 * (step / 2) + 8 * t + 2 * pair + e;
%         end
    return value < TQA_HEAD_DIM ? value : -1;
%     else
    const int unit = 2 * (step / 4) + (t >> 1);
%         if m.tail then
    if (step == 4 * K_PARTS)
        return 32 * K_FULL_UNITS + k_value(2 * (t + 4 * r) + e);
%         end
    return unit < K_FULL_UNITS ? 32 * unit + k_nibble_value(step % 4, 4 * (t & 1) + 2 * r + e) : -1;
%     end
}

TQG_FN void k_row_prepare(const unsigned char *row, unsigned char *aux) {
%     if m.spread and scales then
    TQG_UNROLL
    for (int i = 0; i < K_FACTORS / 4; i++) {
        tqg_u32 x[4];
        TQG_UNROLL
        for (int j = 0; j < 4; j++)
            x[j] = 4 * i + j < K_N_BLOCKS ? tqg_bits(tqg_half((tqg_u16)tqg_u16_at(row + (4 * i + j) * K_BLOCK_BYTES))) : 0;
        *(tqg_u4 *)(aux + (tqg_lane() * (K_FACTORS + 4) + 4 * i) * 4) = tqm_u4(x);
    }
%     elseif gains then
    TQG_UNROLL
    for (int i = 0; i < K_GAIN_WORDS; i++) {
        tqg_u32 pairs[4];
        k_row_gains(row, i, pairs);
        *(tqg_u4 *)(aux + (i * TQM_KEYS + tqg_lane()) * 16) = tqm_u4(pairs);
    }
%     end
%     if m.tail then
    tqg_u32 tail[8];
    k_row_tail(row, tail);
    *(tqg_u4 *)(aux + K_TAIL_AT + tqg_lane() * 48) = tqm_u4(tail);
    *(tqg_u4 *)(aux + K_TAIL_AT + tqg_lane() * 48 + 16) = tqm_u4(tail + 4);
%     end
    (void)row;
    (void)aux;
}
%     if m.spread then

/* The 8 values of a key that this lane takes of a unit. */
TQG_FN void k_row_eight(const tqg_u32 *table, const unsigned char *at, tqg_u32 *pairs) {
%         if f.bits == 4 then
    const tqg_u32 nibbles = tqg_sign_magnitude(tqg_u16_at(at) | tqg_u16_at(at + 2) << 16);
    k_row_pairs(table, nibbles, 0, pairs, pairs + 1);
    k_row_pairs(table, nibbles, 1, pairs + 2, pairs + 3);
%         else
    (void)table;
    TQG_UNROLL
    for (int i = 0; i < ${f.bits == 16 and 4 or 2}; i++) {
        const tqg_u32 x = tqg_u16_at(at + 4 * i) | tqg_u16_at(at + 4 * i + 2) << 16;
%             if f.bits == 16 then
        pairs[i] = x;
%             else
        pairs[2 * i] = tqg_h2_add(tqg_zip01(x ^ 0x80808080u, 0x64646464u), 0xe480e480u);
        pairs[2 * i + 1] = tqg_h2_add(tqg_zip23(x ^ 0x80808080u, 0x64646464u), 0xe480e480u);
%             end
    }
%         end
}
%     end

/* row: of key lane / 4. */
TQG_FN void k_row_scores(const int groups, const int in_shared, const tqg_u32 *table, const unsigned char *row,
                         const unsigned char *aux, const tqg_u32 *q, const tqg_u4 *q_shared, const int q_stride, float *s) {
    const int g = tqg_lane() >> 2, t = tqm_k_lane();
    (void)table;
    (void)aux;
    (void)g;
%     if m.spread then
    TQG_UNROLL
    for (int unit = 0; unit < K_PARTS; unit++) {
        /* Of a last half unit half the lanes take what they are given once more; q has zeros there. */
        const int lane_at = (TQA_HEAD_DIM - 32 * unit < 32 ? t & 1 : t) * (K_UNIT_BYTES / 4);
%         if scales then
        float part[2][TQM_SCORES];
        TQG_UNROLL
        for (int i = 0; i < groups * TQM_SCORES; i++)
            part[i / TQM_SCORES][i % TQM_SCORES] = 0.0f;
%         end
        TQG_UNROLL
        for (int block = 0; block < TQM_BLOCKS; block++) {
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
                    tqg_mma_f16(${scales and "part[n]" or "s + n * TQM_SCORES"} + block * TQG_MMA_C, a,
                                tqm_q_at(in_shared, q, q_shared, n * q_stride + 2 * (2 * unit + x), of_q));
                }
            }
        }
%         if scales then
        float factors[2 * TQM_BLOCKS];
        TQG_UNROLL
        for (int i = 0; i < 2 * TQM_BLOCKS; i++)
            factors[i] = ((const float *)aux)[(8 * i + g) * (K_FACTORS + 4) + unit / K_BLOCK_UNITS];
        TQG_UNROLL
        for (int i = 0; i < groups * TQM_SCORES; i++)
            s[i] = tqg_fma(part[i / TQM_SCORES][i % TQM_SCORES], factors[i % TQM_SCORES / 2], s[i]);
%         end
    }
%     else
    TQG_UNROLL
    for (int c = 0; c < K_PARTS; c++) {
        /* Where there is no second unit, lanes take the first one again; q has zeros there. */
        const int unit = 2 * c + 1 < K_FULL_UNITS ? t >> 1 : 0;
        const unsigned char *const at = row + k_unit_at(2 * c) + unit * K_UNIT_STEP + 2 * (t & 1);
        TQG_UNROLL
        for (int block = 0; block < TQM_BLOCKS; block++) {
            tqg_u32 words[${f.bits}], nibbles[4], factor[2];
            TQG_UNROLL
            for (int i = 0; i < ${f.bits}; i++)
                words[i] = tqm_interleave(tqg_u16_at(at + 16 * block * K_PITCH + 4 * i),
                                          tqg_u16_at(at + (16 * block + 8) * K_PITCH + 4 * i));
            k_nibbles(words, nibbles);
            TQG_UNROLL
            for (int key = 0; key < 2; key++)
%         if gains then
                factor[key] = *(const tqg_u32 *)(aux + (c / 2 * TQM_KEYS + 16 * block + 8 * key + g) * 16 + 4 * (c & 1) + 8 * unit);
%         else
                factor[key] = tqg_u16_at(row + (16 * block + 8 * key) * K_PITCH + k_scale_at(2 * c) +
                                         ${m.block_units == 1 and "unit * K_UNIT_STEP" or "0"});
%         end
            TQG_UNROLL
            for (int u = 0; u < 4; u++) {
                tqg_u32 a[4];
                TQG_UNROLL
                for (int half = 0; half < 2; half++) {
                    k_row_pairs(table, nibbles[u], half, a + 2 * half, a + 2 * half + 1);
                    TQG_UNROLL
                    for (int key = 0; key < 2; key++)
                        a[2 * half + key] = tqg_h2_mul(
                            a[2 * half + key], ${gains and "u >= 2 ? tqg_h2_dup_hi(factor[key]) : " or ""}tqg_h2_dup_lo(factor[key]));
                }
                TQG_UNROLL
                for (int n = 0; n < groups; n++) {
                    tqg_u32 of_q[2];
                    tqg_mma_f16(s + n * TQM_SCORES + block * TQG_MMA_C, a,
                                tqm_q_at(in_shared, q, q_shared, n * q_stride + 2 * (4 * c + u), of_q));
                }
            }
        }
    }
%         if m.tail then
    TQG_UNROLL
    for (int block = 0; block < TQM_BLOCKS; block++) {
        tqg_u32 a[4];
        TQG_UNROLL
        for (int r = 0; r < 4; r++)
            a[r] = *(const tqg_u32 *)(aux + K_TAIL_AT + (16 * block + 8 * (r & 1) + g) * 48 + 4 * (t + 4 * (r >> 1)));
        TQG_UNROLL
        for (int n = 0; n < groups; n++) {
            tqg_u32 of_q[2];
            tqg_mma_f16(s + n * TQM_SCORES + block * TQG_MMA_C, a,
                        tqm_q_at(in_shared, q, q_shared, n * q_stride + 2 * (4 * K_PARTS), of_q));
        }
    }
%         end
%     end
}
% end
% do
%     local f, m = v, mma_rows(v, head_dim)
%     local gains = f.bits < 16 and f.subs > 0
%     local scales = f.bits < 16 and not gains

/* ---- V ---- */

TQG_FN int v_row_value(int i) {
    const int tile = i / TQG_MMA_C, g = tqg_lane() >> 2, second = i % TQG_MMA_C >> 1; /* row g or g + 8 */
%     if m.spread then
    const int slot = 2 * (tile % 2) + second;
%         if f.bits == 4 then
    const int value = 32 * (tile / 2) + v_nibble_value(g >> 1, 4 * (g & 1) + slot);
%         else
    const int value = 32 * (tile / 2) + 4 * g + slot;
%         end
    return value < TQA_HEAD_DIM ? value : -1;
%     else
    const int unit = 4 * (tile / 8) + (g >> 1);
%         if m.tail then
    if (tile == 8 * V_PARTS)
        return 32 * V_FULL_UNITS + v_value(g + 8 * second);
%         end
    return unit < V_FULL_UNITS ? 32 * unit + v_nibble_value(tile % 8 >> 1, 4 * (g & 1) + 2 * (tile & 1) + second) : -1;
%     end
}

/* Returns the largest scale, of those that multiply weights. */
TQG_FN tqg_u32 v_row_prepare(const unsigned char *row, unsigned char *aux) {
    tqg_u32 most = 0;
%     if m.spread and scales then
    TQG_UNROLL
    for (int i = 0; i < V_N_BLOCKS; i++) {
        const tqg_u32 scale = tqg_u16_at(row + i * V_BLOCK_BYTES);
        *(tqg_u16 *)(aux + (tqg_lane() / 2 * V_FACTORS + i) * 4 + 2 * (tqg_lane() & 1)) = (tqg_u16)scale;
        most = tqg_h2_max(most, scale);
    }
%     elseif gains then
    TQG_UNROLL
    for (int i = 0; i < V_GAIN_WORDS; i++) {
        tqg_u32 pairs[4];
        v_row_gains(row, i, pairs);
        TQG_UNROLL
        for (int j = 0; j < 8; j++)
            *(tqg_u16 *)(aux + (8 * i + v_gain_order(j)) * 80 + 2 * tqg_lane()) = (tqg_u16)(pairs[j / 2] >> 16 * (j & 1));
    }
%     end
%     if m.tail then
    tqg_u32 tail[8];
    v_row_tail(row, tail);
    TQG_UNROLL
    for (int i = 0; i < 16; i++)
        *(tqg_u16 *)(aux + V_TAIL_AT + i * 80 + 2 * tqg_lane()) = (tqg_u16)(tail[i / 2] >> 16 * (i & 1));
%     end
    (void)row;
    (void)aux;
    return most;
}
%     if m.spread then

/* Four values of two keys each that this lane takes of a unit. */
TQG_FN void v_row_four(const tqg_u32 *table, const unsigned char *a, const unsigned char *b, tqg_u32 *pairs) {
%         if f.bits == 4 then
    const tqg_u32 nibbles = tqg_sign_magnitude(tqm_interleave(tqg_u16_at(a), tqg_u16_at(b)));
    v_row_pairs(table, nibbles, 0, pairs, pairs + 1);
    v_row_pairs(table, nibbles, 1, pairs + 2, pairs + 3);
%         else
    (void)table;
    TQG_UNROLL
    for (int i = 0; i < ${f.bits == 16 and 4 or 2}; i++) {
%             if f.bits == 16 then
        pairs[i] = tqg_u16_at(a + 2 * i) | tqg_u16_at(b + 2 * i) << 16;
%             else
        const tqg_u32 x = tqm_interleave(tqg_u16_at(a + 2 * i), tqg_u16_at(b + 2 * i)) ^ 0x80808080u;
        pairs[2 * i] = tqg_h2_add(tqg_zip01(x, 0x64646464u), 0xe480e480u);
        pairs[2 * i + 1] = tqg_h2_add(tqg_zip23(x, 0x64646464u), 0xe480e480u);
%             end
    }
%         end
}
%     end

/* rows: of keys 2 (lane % 4) and the next. */
TQG_FN void v_row_outputs(const int groups, const tqg_u32 *table, const unsigned char *row_a, const unsigned char *row_b,
                          const unsigned char *aux, const tqg_u32 *weights, float *o, const int o_stride) {
    const int g = tqg_lane() >> 2, t = tqm_k_lane();
    (void)table;
    (void)aux;
    (void)t;
%     if m.spread then
%         if scales then
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
%         end
    TQG_UNROLL
    for (int unit = 0; unit < V_PARTS; unit++) {
        const int lane_at = (TQA_HEAD_DIM - 32 * unit < 32 ? g & 3 : g) * (V_UNIT_BYTES / 8);
        TQG_UNROLL
        for (int step = 0; step < TQM_BLOCKS; step++) {
            tqg_u32 pairs[2][4];
            TQG_UNROLL
            for (int i = 0; i < 2; i++) {
                const int at = (16 * step + 8 * i) * V_PITCH + v_unit_at(unit) + lane_at;
                v_row_four(table, row_a + at, row_b + at, pairs[i]);
            }
            TQG_UNROLL
            for (int n = 0; n < groups; n++) {
                const tqg_u32 *b = weights + n * TQM_WEIGHTS + step * TQG_MMA_B;
%         if scales then
                const tqg_u32 *const by = factors[unit / V_BLOCK_UNITS] + step * TQG_MMA_B;
                const tqg_u32 scaled[2] = {tqg_h2_mul(b[0], by[0]), tqg_h2_mul(b[1], by[1])};
                b = scaled;
%         end
                TQG_UNROLL
                for (int y = 0; y < 2; y++) {
                    const tqg_u32 a[4] = {pairs[0][2 * y], pairs[0][2 * y + 1], pairs[1][2 * y], pairs[1][2 * y + 1]};
                    tqg_mma_f16(o + n * o_stride + (2 * unit + y) * TQG_MMA_C, a, b);
                }
            }
        }
    }
%     else
    TQG_UNROLL
    for (int c = 0; c < V_PARTS; c++) {
        const int unit = (g >> 1) < V_FULL_UNITS - 4 * c ? g >> 1 : 0; /* others are not looked at */
        const int lane_at = v_unit_at(4 * c) + unit * V_UNIT_STEP + 2 * (g & 1);
        TQG_UNROLL
        for (int step = 0; step < TQM_BLOCKS; step++) {
            tqg_u32 nibbles[2][4], factor[2][2];
            TQG_UNROLL
            for (int i = 0; i < 2; i++) {
                const int keys = 16 * step + 8 * i;
                tqg_u32 words[${f.bits}];
                TQG_UNROLL
                for (int j = 0; j < ${f.bits}; j++)
                    words[j] = tqm_interleave(tqg_u16_at(row_a + keys * V_PITCH + lane_at + 4 * j),
                                              tqg_u16_at(row_b + keys * V_PITCH + lane_at + 4 * j));
                v_nibbles(words, nibbles[i]);
%         if gains then
                TQG_UNROLL
                for (int j = 0; j < 2; j++)
                    factor[i][j] = *(const tqg_u32 *)(aux + (2 * (4 * c + unit) + j) * 80 + 2 * (keys + 2 * t));
%         else
                const int at = keys * V_PITCH + v_scale_at(4 * c) + ${m.block_units == 1 and "unit * V_UNIT_STEP" or "0"};
                factor[i][0] = factor[i][1] = tqg_u16_at(row_a + at) | tqg_u16_at(row_b + at) << 16;
%         end
            }
            TQG_UNROLL
            for (int tile = 0; tile < 8; tile++) {
                tqg_u32 a[4];
                TQG_UNROLL
                for (int i = 0; i < 2; i++) {
                    v_row_pairs(table, nibbles[i][tile >> 1], tile & 1, a + 2 * i, a + 2 * i + 1);
                    a[2 * i] = tqg_h2_mul(a[2 * i], factor[i][tile >> 2]);
                    a[2 * i + 1] = tqg_h2_mul(a[2 * i + 1], factor[i][tile >> 2]);
                }
                TQG_UNROLL
                for (int n = 0; n < groups; n++)
                    tqg_mma_f16(o + n * o_stride + (8 * c + tile) * TQG_MMA_C, a, weights + n * TQM_WEIGHTS + step * TQG_MMA_B);
            }
        }
    }
%         if m.tail then
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
%         end
%     end
}
% end
#endif
