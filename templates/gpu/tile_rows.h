/* tile_rows.h: rows in shared memory, for kernel tile. A warp stages the rows of a step, one per lane, as they lie; see
 * gen/gpu/tile_rows.lua for the numbers.
 *   K  a lane decodes its row: units of 32 values in shared memory, eight values at a time
 *   V  a lane has columns of 8 values: codebook formats, those whose codes share a byte of each word of a unit; others,
 *      neighbours. It takes them from four rows at a time, so that pairs of keys come out of it */
% local rows = tile_rows(k, v, warp)
% local CODEBOOK_K, CODEBOOK_V = k.bits < 8, v.bits < 8
% local GAINS = CODEBOOK_V and v.subs > 0
% for _, side in ipairs { { "k", "K", rows.k }, { "v", "V", rows.v } } do
%     local p, P, of = table.unpack(side)

enum {
    TQT_${P}_STRIDE = ${of.stride}, /* from row to row in shared memory${of.padded and ": padded, so that lanes which read different rows meet different banks" or ""} */
    TQT_${P}_LOADS = ${of.loads}, /* of 16 bytes per lane, for the rows of a step */
};

/* Can the rows of a step be copied by 16 bytes: do they follow each other? */
TQG_FN int tqt_${p}_is_dense(const tqg_cache *cache) {
    return cache->unit_stride == ${P}_ROW_BYTES && (!cache->page_slots || cache->page_slots >= TQG_WARP)${of.padded and " &&\n           (((tqg_u64)cache->data | (tqg_u64)cache->seq_stride | (tqg_u64)cache->head_stride | (tqg_u64)cache->page_stride) & 15) == 0" or ""};
}

%     local place = "number * 16" .. (of.padded and (" + number / %d * 16"):format(of.padded) or "")
%     if rows.prefetch then
/* The words that hold n >= 1 rows from `row` on. */
TQG_FN void tqt_${p}_load(const tqg_u8 *row, int n, tqg_u4 *words) {
    const int phase = (int)((tqg_u64)row & 15), last = (phase + n * ${P}_ROW_BYTES - 1) & ~15;
    TQG_UNROLL
    for (int i = 0; i < TQT_${P}_LOADS; i++) {
        const int first = i * TQG_WARP * 16 < last ? i * TQG_WARP * 16 : last;
        const tqg_u32 left = (tqg_u32)(last - first), at = (tqg_u32)tqg_lane() * 16;
        words[i] = tqg_load16(row - phase + first + (at < left ? at : left));
    }
}
TQG_FN void tqt_${p}_store(tqg_u8 *region, const tqg_u4 *words) {
    TQG_UNROLL
    for (int i = 0; i < TQT_${P}_LOADS; i++) {
        const int number = i * TQG_WARP + tqg_lane();
        if (number < ${of.words})
            *(tqg_u4 *)(region + ${place}) = words[i];
    }
}
%     else
/* The words that hold n >= 1 rows from `row` on. */
TQG_FN void tqt_${p}_copy(const tqg_u8 *row, int n, tqg_u8 *region) {
    const int phase = (int)((tqg_u64)row & 15), count = (phase + n * ${P}_ROW_BYTES + 15) >> 4;
    for (int number = tqg_lane(); number < count; number += TQG_WARP)
        tqg_copy16(region + ${place}, row - phase + number * 16);
    tqg_copy_commit();
    tqg_copy_wait(0);
}
%     end

/* Rows that lie anywhere, 2 bytes at a time. */
TQG_FN void tqt_${p}_gather(const tqg_cache *cache, int slot, int n, tqg_u8 *region) {
    TQG_NO_UNROLL
    for (int i = 0; i < n; i++) {
        const tqg_u16 *from = (const tqg_u16 *)tqa_unit_of(cache, 1, slot + i);
        tqg_u16 *to = (tqg_u16 *)(region + i * TQT_${P}_STRIDE);
        for (int j = tqg_lane(); j < ${P}_ROW_BYTES / 2; j += TQG_WARP)
            to[j] = from[j];
    }
}
% end

/* n 16-bit halves at an even address of shared memory; of an odd n the upper half of the last word may be anything. */
TQG_FN void tqt_words(const tqg_u8 *from, int n, tqg_u32 *words) {
    TQG_UNROLL
    for (int i = 0; i < (n + 1) / 2; i++)
        words[i] = tqg_shared_word(from + 4 * i);
}
TQG_FN tqg_u16 tqt_half(const tqg_u8 *from) {
    return *(const tqg_u16 *)from;
}
/* Rows of a step that can be read. */
TQG_FN int tqt_n(const tqa_range *r, int slot) {
    return r->n_kv - slot < TQG_WARP ? r->n_kv - slot : TQG_WARP;
}

/* Unit of K in shared memory, or a last one of 16 values, as 4 (2) words of 8 codes${k.bits == 4 and ", as stored" or ""}. */
TQG_FN void tqt_k_nibbles(const tqg_u8 *unit, int is_tail, tqg_u32 *nibbles) {
    (void)is_tail;
% if k.bits == 4 then
    tqt_words(unit, is_tail ? 4 : 8, nibbles);
% elseif CODEBOOK_K then
    tqg_u32 words[K_UNIT_WORDS];
%     if k.tail then
    if (is_tail) {
        tqt_words(unit, ${k.bits}, words);
        k_tail_nibbles(words, nibbles);
        return;
    }
%     end
    tqt_words(unit, 2 * K_UNIT_WORDS, words);
    k_nibbles(words, nibbles);
% else
    (void)unit;
    (void)nibbles;
% end
}
/* Values 8i to 8i + 7 of a unit, as pairs of halves; nibbles are those of the unit. */
TQG_FN void tqt_k_halves(const tqg_u8 *unit, const tqg_u32 *nibbles, int i, tqg_u32 *pairs) {
    (void)unit;
    (void)nibbles;
% if k.bits == 16 then
    const tqg_u4 x = *(const tqg_u4 *)(unit + 16 * i);
    pairs[0] = x.x;
    pairs[1] = x.y;
    pairs[2] = x.z;
    pairs[3] = x.w;
% elseif k.bits == 8 then
    tqg_u32 words[4] = {0, 0, 0, 0}, decoded[8];
    tqt_words(unit + 8 * i, 4, words);
    k_tail(words, decoded);
    TQG_UNROLL
    for (int x = 0; x < 4; x++)
        pairs[x] = decoded[x];
% else
    k_pairs(${k.bits == 4 and "tqg_sign_up(nibbles[i])" or "nibbles[i]"}, pairs);
% end
}
% if k.bits < 16 then
/* The same as bytes. */
TQG_FN void tqt_k_bytes(const tqg_u8 *unit, const tqg_u32 *nibbles, int i, tqg_u32 *bytes) {
    (void)unit;
    (void)nibbles;
%     if k.bits == 8 then
    tqt_words(unit + 8 * i, 4, bytes);
%     else
    ${k.bits == 4 and "tqd_row_bytes" or "tqd_bytes"}(nibbles[i], bytes);
%     end
}
% end

/* Eight values of V that a lane sums up: byte `offset` of a row and where more of them are; their set of weights${GAINS and ", and, from\n * there, that of the last four" or ""}. */
typedef struct tqt_column {
    int offset, set;
% if GAINS then
    int next_set;
% end
% if CODEBOOK_V and v.tail then
    int is_tail, half, shift; /* of a tail, four values: where the rest of them is */
% end
} tqt_column;
% local per_block = CODEBOOK_V and 4 * v.full_units + (v.tail and 4 or 0) or v.bits == 8 and 4 or 1

/* Behind the last column: the last one, whose sums nobody takes. */
TQG_FN tqt_column tqt_column_at(int number) {
    tqt_column c;
    const int n = number < ${rows.columns} ? number : ${rows.columns - 1};
% if v.bits == 16 then
    c.offset = n * 16;
    c.set = 0;
% else
    const int block = n / ${per_block}, in_block = n - block * ${per_block};
%     if v.bits == 8 then
    c.offset = block * V_BLOCK_BYTES + V_HEADER + in_block * 8;
    c.set = block;
%     else
    const int unit = in_block >> 2;
    c.offset = block * V_BLOCK_BYTES + V_HEADER + unit * (4 * V_UNIT_WORDS) + (in_block & 3);
%         if GAINS then
    c.set = block * V_SUBS + 2 * unit;
    c.next_set = ${v.tail and "unit < V_UNITS" or "1"};
%         else
    c.set = block;
%         end
%         if v.tail then
    c.is_tail = unit == V_UNITS;
    c.half = block * V_BLOCK_BYTES + V_HEADER + unit * (4 * V_UNIT_WORDS) + 4 + (in_block & ${v.bits == 3 and 1 or 3});
    c.shift = ${v.bits == 3 and "4 * (in_block >> 1 & 1)" or "0"};
%         end
%     end
% end
    return c;
}

/* Which value of the head the lane's sum i of a column is; -1: none. */
TQG_FN int tqt_value(int column, int i) {
    if (column >= ${rows.columns})
        return -1;
% if CODEBOOK_V then
    const int value = (column >> 2) * 32 + i * 4 + (column & 3);
    return value < TQA_V_HEAD_DIM ? value : -1;
% else
    return column * 8 + i;
% end
}

% if CODEBOOK_V then
/* A byte of each of four rows; the order is such that pairs of keys come out of it. */
TQG_FN tqg_u32 tqt_v_bytes(const tqg_u8 *row) {
#if TQG_NIBBLE(0, 1) == 1
    return tqg_four_bytes(row[0], row[2 * TQT_V_STRIDE], row[TQT_V_STRIDE], row[3 * TQT_V_STRIDE]);
#else
    return tqg_four_bytes(row[0], row[TQT_V_STRIDE], row[2 * TQT_V_STRIDE], row[3 * TQT_V_STRIDE]);
#endif
}
% end
/* pairs[i][0]: sum i's value of keys 0 and 1 of four whose first row is at `first`; pairs[i][1]: of keys 2 and 3. */
TQG_FN void tqt_v_keys(const tqg_u8 *region, const tqt_column *column, int first, tqg_u32 (*pairs)[2]) {
% if CODEBOOK_V then
    const tqg_u8 *row = region + first + column->offset;
    tqg_u32 words[V_UNIT_WORDS], nibbles[4];
%     if v.tail then
    if (column->is_tail) {
        words[0] = tqt_v_bytes(row);
        nibbles[2] = nibbles[3] = 0;
%         if v.bits == 2 then
        nibbles[0] = words[0] & 0x33333333u;
        nibbles[1] = words[0] >> 2 & 0x33333333u;
%         else
        const tqg_u32 half = tqt_v_bytes(region + first + column->half) >> column->shift;
%             if v.bits == 3 then
        const tqg_u32 spare = (words[0] >> 1 & 0x04040404u) | (words[0] >> 6 & 0x02020202u) | (half >> 3 & 0x01010101u);
        nibbles[0] = words[0];
        nibbles[1] = (half & 0x07070707u) | spare << 4;
%             else
        nibbles[0] = words[0];
        nibbles[1] = half;
%             end
%         end
    } else
%     end
    {
        TQG_UNROLL
        for (int i = 0; i < V_UNIT_WORDS; i++)
            words[i] = tqt_v_bytes(row + 4 * i);
%     if v.bits < 4 then
        v_nibbles(words, nibbles);
%     else
        TQG_UNROLL
        for (int i = 0; i < 4; i++)
            nibbles[i] = words[i];
%     end
    }
%     if v.bits == 4 then
    tqg_u32 table[4];
    v_table(table);
%     end
    TQG_UNROLL
    for (int i = 0; i < 4; i++) {
%     if v.bits == 4 then
        const tqg_u32 magnitudes = nibbles[i] >> 1, signs = nibbles[i] << 3;
%     end
        TQG_UNROLL
        for (int half = 0; half < 2; half++) {
            tqg_u32 lo, hi;
%     if v.bits == 4 then
            v_lookup(table, tqg_codes(magnitudes, half), tqg_nibble_tops(signs, half), &lo, &hi);
%     else
            v_bytes(nibbles[i], half, &lo, &hi);
%     end
#if TQG_NIBBLE(0, 1) == 1 /* two values of two keys */
            pairs[v_value(8 * i) >> 2][half] = tqg_zip02(lo, hi);
            pairs[v_value(8 * i + 1) >> 2][half] = tqg_zip13(lo, hi);
#else /* one value of four keys */
            pairs[v_value(8 * i + 4 * half) >> 2][0] = tqg_zip01(lo, hi);
            pairs[v_value(8 * i + 4 * half) >> 2][1] = tqg_zip23(lo, hi);
#endif
        }
    }
% else
    TQG_UNROLL
    for (int j = 0; j < 2; j++) {
        tqg_u32 a[4], b[4];
%     if v.bits == 16 then
        const tqg_u4 x = *(const tqg_u4 *)(region + first + column->offset + 2 * j * TQT_V_STRIDE);
        const tqg_u4 y = *(const tqg_u4 *)(region + first + column->offset + (2 * j + 1) * TQT_V_STRIDE);
        a[0] = x.x, a[1] = x.y, a[2] = x.z, a[3] = x.w;
        b[0] = y.x, b[1] = y.y, b[2] = y.z, b[3] = y.w;
%     else
        tqg_u32 words[4] = {0, 0, 0, 0}, decoded[8];
        TQG_UNROLL
        for (int e = 0; e < 2; e++) {
            tqt_words(region + first + column->offset + (2 * j + e) * TQT_V_STRIDE, 4, words);
            v_tail(words, decoded);
            TQG_UNROLL
            for (int i = 0; i < 4; i++)
                (e ? b : a)[i] = decoded[i];
        }
%     end
        TQG_UNROLL
        for (int i = 0; i < 4; i++) {
            pairs[2 * i][j] = tqg_permute(a[i], b[i], 0x5410);
            pairs[2 * i + 1][j] = tqg_permute(a[i], b[i], 0x7632);
        }
    }
% end
}
