/* Rows as operands of mma. A warp stages 32 rows of K and 32 of V in shared memory, as they lie: row r begins at
 * r * P_PITCH + (its address modulo 16), which is the same for rows eight apart. Values may be taken in any order, as long as
 * q and outputs take them in the same.
 *
 * By units (f16, q8_0, turbo4): the lanes share a unit, and scales multiply what a unit adds to S, and weights. But for f16 a
 * value is one byte below a constant one: x = 2^n (1 + (value + 128) / 1024), and products with a constant take off
 * 1.125 2^n.
 *
 * Else a lane takes half of a unit, 16 codes of one key: from each word of the unit the same two bytes, and so also its spare
 * codes. Lanes that are added up hold different units, so that scales and gains multiply what was decoded: x f + b with
 * b = -1.125 2^n f, rounded, is centroid f 2^n / 1024 and what rounding left. That is taken off at the end: its product with
 * the sum of q is one more k step of S, that with the weights one more row block of O. A last unit of 16 values is decoded by
 * one lane per key and passed on in halves.
 *
 *   P_row_copy, P_row_gather   start copying the rows of a tile
 *   P_row_prepare              a lane per key: scales, gains and last units for all lanes
 *   k_row_q, v_row_value       a register of q; which value a register of O belongs to, or -1
 *   P_row_begin                what offsets need, for all tiles
 *   k_row_scores, v_row_outputs, v_row_finish   S of a tile; what a tile adds to O; once all keys are in */
#ifdef TQG_MATRIX_MMA
#define TQM_ROW_KEYS    32 /* of a step */
#define TQM_ROW_BLOCKS  (TQM_ROW_KEYS / 16)
#define TQM_ROW_SCORES  TQM_SCORES(TQM_ROW_BLOCKS)
#define TQM_ROW_WEIGHTS TQM_WEIGHTS(TQM_ROW_BLOCKS)

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
%     local m = mma_rows(f)
%     local gains = f.bits < 16 and f.subs > 0

/* ---- ${f.format} ---- */
enum {
    ${P}_ROW_WORDS = ${m.words}, /* of 16 bytes that a row may have parts in */
    ${P}_PITCH = 16 * ${P}_ROW_WORDS,
    ${P}_BLOCK_UNITS = ${m.block_units},
    ${P}_UNIT_BYTES = ${m.unit_bytes},
    ${P}_UNIT_STEP = ${m.block_units == 1 and P .. "_BLOCK_BYTES" or P .. "_UNIT_BYTES"}, /* from a unit to the next */
    ${P}_FULL_UNITS = ${m.full_units},
%     local parts = m.by_unit and "units" or p == "k" and "pairs of units" or "groups of four units"
    ${P}_PARTS = ${p == "k" and m.k_parts or m.v_parts}, /* ${parts} */
%     if m.offset then
    ${P}_FACTORS = ${(m.n_blocks + 3) // 4 * 4}, /* a key's scales, in shared memory */
%     elseif gains then
    ${P}_GAIN_WORDS = ${m.n_blocks * m.gain_words}, /* per key, of 8 codes */
    ${P}_BLOCK_GAIN_WORDS = ${m.gain_words},
%     end
    ${P}_AUX_BYTES = ${p == "k" and m.k_aux or m.v_aux},
    ${P}_BEGIN_BYTES = ${p == "k" and m.k_begin or m.v_begin}, /* behind those of both sides; K: per group of columns */
    ${P}_TAIL_AT = ${p == "k" and m.k_aux_tail or m.v_aux_tail}, /* within what was prepared */
};
/* Where in a row the payload and the scale of a unit begin. */
TQG_FN int ${p}_unit_at(int unit) {
    return unit / ${P}_BLOCK_UNITS * ${P}_BLOCK_BYTES + ${P}_HEADER + unit % ${P}_BLOCK_UNITS * ${P}_UNIT_BYTES;
}
TQG_FN int ${p}_scale_at(int unit) {
    return unit / ${P}_BLOCK_UNITS * ${P}_BLOCK_BYTES;
}

/* Where, behind the 16-byte word in which the first row of a tile begins, the words are that this lane copies. */
TQG_FN tqg_u32 ${p}_word_at(const tqa_cache *cache, int i) {
    const tqg_u32 at = (tqg_u32)(tqg_lane() + TQG_WARP * i), row = at / ${P}_ROW_WORDS, word = at % ${P}_ROW_WORDS;
    const tqg_u32 begin = ((tqg_u32)(tqg_u64)cache->first & 15) + row * cache->unit_stride;
    const tqg_u32 last = ((begin & 15) + ${P}_ROW_BYTES - 1) / 16; /* word of a row; there may be nothing behind it */
    return (begin & ~15u) + 16 * (word < last ? word : last);
}
/* Starts copying the rows of a tile all of which are visible and one stride apart. at: ${p}_word_at of the words. */
TQG_FN void ${p}_row_copy(const tqa_cache *cache, const tqg_u32 *at, const tqg_u8 *from, unsigned char *stage) {
    from -= (tqg_u64)from & 15;
%     if m.words > 8 then
    (void)at;
    TQG_NO_UNROLL
%     else
    (void)cache;
    TQG_UNROLL
%     end
    for (int i = 0; i < ${P}_ROW_WORDS; i++)
        tqg_copy16(stage + 16 * (tqg_lane() + TQG_WARP * i),
                   from + ${m.words > 8 and p .. "_word_at(cache, i)" or "at[i]"});
}
/* The same for any tile; what is not visible becomes zeros. */
TQG_FN void ${p}_row_gather(const tqa_cache *cache, const tqa_range *range, int tile, unsigned char *stage) {
    const int first = tile * TQM_ROW_KEYS;
    if (tqm_is_regular(cache)) {
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

/* Bytes: centroids + 128. */
TQG_FN void ${p}_row_table(tqg_u32 *table) {
%         local bytes = map(f.bits == 4 and f.lookup_table or f.centroids, function(c) return c + 128 end)
    const tqg_u32 bytes[4] = {${byte_table(bytes, 4)}};
%         if f.bits == 4 then
    tqg_table16(bytes, table);
%         else
    TQG_UNROLL
    for (int i = 0; i < 4; i++)
        table[i] = bytes[i];
%         end
}
/* Four codes, nibbles of a word, to such bytes. */
TQG_FN tqg_u32 ${p}_row_bytes(const tqg_u32 *table, tqg_u32 word, int half) {
%         if f.bits == 4 then
    return tqg_row_lookup16(table, word, half);
%         else
    return tqg_lookup(table[0], table[1], tqg_row_codes(word, half));
%         end
}
%     end
%     if m.offset then
#define ${P}_ONES ${("0x%xu"):format(m.one * 0x01010101)}
#define ${P}_OFFSET ${("0x%xu"):format((m.one << 8 | 0x8080) * 0x10001 & 0xffffffff)} /* what is too much, negative */
%     elseif not m.by_unit then
#define ${P}_ONES ${("0x%xu"):format(m.one * 0x01010101)}

/* b of factors f, and what b is too much. */
TQG_FN void ${p}_row_offset(tqg_u32 f, tqg_u32 *b, tqg_u32 *left) {
    *b = tqg_h2_mul(f, ${("0x%xu"):format((m.one << 8 | 0x8080) * 0x10001 & 0xffffffff)});
    *left = tqg_h2_fma(f, ${("0x%xu"):format((m.one << 8 | 0x80) * 0x10001)}, *b);
}
/* Value in its unit of a nibble of word `quad` of ${p}_nibbles. */
TQG_FN int ${p}_nibble_value(int quad, int nibble) {
    return ${p}_value(8 * quad + 4 * (nibble >> 1 & 1) + (nibble & 1) + 2 * (nibble >> 2));
}
%     end
%     if gains then

/* A lane's key: the gains of word i of its gain codes, times its scale; see ${p}_gain_order. */
TQG_FN void ${p}_row_gains(const unsigned char *row, int i, tqg_u32 *pairs) {
    const unsigned char *const block = row + i / ${m.gain_words} * ${P}_BLOCK_BYTES;
    const unsigned char *const codes = block + 2 + 4 * (i % ${m.gain_words});
    const tqg_u32 scale = tqg_u16_at(block) * 0x10001u;
    const int is_half = ${m.half_gain_word and ("i %% %d == %d"):format(m.gain_words, m.gain_words - 1) or "0"}; /* the last one */
    ${p}_gain_pairs(tqg_u16_at(codes) | (is_half ? 0 : tqg_u16_at(codes + 2)) << 16, pairs);
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
    for (int i = 0; i < ${P}_TAIL_WORDS; i++) {
        const int is_half = ${f.bits == 3 and P .. "_TAIL_WORDS - 1 == i" or "0"};
        words[i] = tqg_u16_at(from + 4 * i) | (is_half ? 0 : tqg_u16_at(from + 4 * i + 2)) << 16;
    }
    ${p}_tail(words, pairs);
%         if gains then
    tqg_u32 gains[4];
    ${p}_row_gains(row, (2 * ${P}_FULL_UNITS) / 8, gains);
%             local gain = 2 * m.full_units % 8
    const tqg_u32 by = (gains[${(gain >> 2) + (gain & 2)}] & 0xffff) * 0x10001u;
%         else
    const tqg_u32 by = tqg_u16_at(row + ${p}_scale_at(${P}_FULL_UNITS)) * 0x10001u;
%         end
    TQG_UNROLL
    for (int i = 0; i < 8; i++)
        pairs[i] = tqg_h2_mul(pairs[i], tqg_h2_mul(by, 0x2c002c00u)); /* 1 / 16, as the others */
}
%     end
% end
#endif
