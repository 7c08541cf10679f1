% local CODEBOOK_K, CODEBOOK_V = k.bits < 8, v.bits < 8
% local BYTES = variant.k_path == "i8"
% local SCALED = rows.scales > 0 and not (CODEBOOK_V and v.subs > 0)
% local K_GAINS, V_GAINS = CODEBOOK_K and k.subs > 0, CODEBOOK_V and v.subs > 0
% if once("tile") then

/* ---- rows in shared memory ---- */
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
%     if prefetch then
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
%     if k.bits == 4 then
    tqt_words(unit, is_tail ? 4 : 8, nibbles);
%     elseif CODEBOOK_K then
    tqg_u32 words[K_UNIT_WORDS];
%         if k.tail then
    if (is_tail) {
        tqt_words(unit, ${k.bits}, words);
        k_tail_nibbles(words, nibbles);
        return;
    }
%         end
    tqt_words(unit, 2 * K_UNIT_WORDS, words);
    k_nibbles(words, nibbles);
%     else
    (void)unit;
    (void)nibbles;
%     end
}
/* Values 8i to 8i + 7 of a unit, as pairs of halves; nibbles are those of the unit. */
TQG_FN void tqt_k_halves(const tqg_u8 *unit, const tqg_u32 *nibbles, int i, tqg_u32 *pairs) {
    (void)unit;
    (void)nibbles;
%     if k.bits == 16 then
    const tqg_u4 x = *(const tqg_u4 *)(unit + 16 * i);
    pairs[0] = x.x;
    pairs[1] = x.y;
    pairs[2] = x.z;
    pairs[3] = x.w;
%     elseif k.bits == 8 then
    tqg_u32 words[4] = {0, 0, 0, 0}, decoded[8];
    tqt_words(unit + 8 * i, 4, words);
    k_tail(words, decoded);
    TQG_UNROLL
    for (int x = 0; x < 4; x++)
        pairs[x] = decoded[x];
%     else
    k_pairs(${k.bits == 4 and "tqg_sign_magnitude(nibbles[i])" or "nibbles[i]"}, pairs);
%     end
}
%     if k.bits < 16 then
/* The same as bytes. */
TQG_FN void tqt_k_bytes(const tqg_u8 *unit, const tqg_u32 *nibbles, int i, tqg_u32 *bytes) {
    (void)unit;
    (void)nibbles;
%         if k.bits == 8 then
    tqt_words(unit + 8 * i, 4, bytes);
%         else
    ${k.bits == 4 and "tqd_row_bytes" or "tqd_bytes"}(nibbles[i], bytes);
%         end
}
%     end

/* Eight values of V that a lane sums up: byte `offset` of a row and where more of them are; their set of weights. */
typedef struct tqt_column {
    int offset, set;
%     if CODEBOOK_V and v.tail then
    int is_tail, half, shift; /* of a tail: where the half word has them */
%     end
} tqt_column;
%     local per_block = CODEBOOK_V and 4 * v.full_units + (v.tail and 4 or 0) or v.bits == 8 and 4 or 1

/* Behind the last column: the last one, whose sums nobody takes. */
TQG_FN tqt_column tqt_column_at(int number) {
    tqt_column c;
    const int n = number < ${rows.columns} ? number : ${rows.columns - 1};
%     if v.bits == 16 then
    c.offset = n * 16;
    c.set = 0;
%     else
    const int block = n / ${per_block}, in_block = n - block * ${per_block};
%         if v.bits == 8 then
    c.offset = block * V_BLOCK_BYTES + V_HEADER + in_block * 8;
    c.set = block * ${rows.set_halves};
%         else
    const int unit = in_block >> 2;
    c.offset = block * V_BLOCK_BYTES + V_HEADER + unit * (4 * V_UNIT_WORDS) + (in_block & 3);
    c.set = ${V_GAINS and "(block * V_SUBS + 2 * unit)" or "block"} * ${rows.set_halves};
%             if v.tail then
    c.is_tail = unit == V_UNITS;
    c.half = block * V_BLOCK_BYTES + V_HEADER + unit * (4 * V_UNIT_WORDS) + 4 + (in_block & ${v.bits == 3 and 1 or 3});
    c.shift = ${v.bits == 3 and "4 * (in_block >> 1 & 1)" or "0"};
%             end
%         end
%     end
    return c;
}

/* Which value of the head the lane's sum i of a column is; -1: none. */
TQG_FN int tqt_value(int column, int i) {
    if (column >= ${rows.columns})
        return -1;
%     if CODEBOOK_V then
    const int value = (column >> 2) * 32 + i * 4 + (column & 3);
    return value < TQA_HEAD_DIM ? value : -1;
%     else
    return column * 8 + i;
%     end
}

%     if CODEBOOK_V then
/* A byte of each of four rows; the order is such that pairs of keys come out of it. */
TQG_FN tqg_u32 tqt_v_bytes(const tqg_u8 *row) {
#if TQG_NIBBLE(0, 1) == 1
    return tqg_four_bytes(row[0], row[2 * TQT_V_STRIDE], row[TQT_V_STRIDE], row[3 * TQT_V_STRIDE]);
#else
    return tqg_four_bytes(row[0], row[TQT_V_STRIDE], row[2 * TQT_V_STRIDE], row[3 * TQT_V_STRIDE]);
#endif
}
%     end
/* pairs[i][0]: sum i's value of keys 0 and 1 of four whose first row is at `first`; pairs[i][1]: of keys 2 and 3. */
TQG_FN void tqt_v_keys(const tqg_u8 *region, const tqt_column *column, int first, tqg_u32 (*pairs)[2]) {
%     if CODEBOOK_V then
    const tqg_u8 *row = region + first + column->offset;
    tqg_u32 words[V_UNIT_WORDS], nibbles[4];
%         if v.tail then
    if (column->is_tail) {
        words[0] = tqt_v_bytes(row);
        nibbles[2] = nibbles[3] = 0;
%             if v.bits == 2 then
        nibbles[0] = words[0] & 0x33333333u;
        nibbles[1] = words[0] >> 2 & 0x33333333u;
%             else
        const tqg_u32 half = tqt_v_bytes(region + first + column->half) >> column->shift;
%                 if v.bits == 3 then
        const tqg_u32 spare = (words[0] >> 1 & 0x04040404u) | (words[0] >> 6 & 0x02020202u) | (half >> 3 & 0x01010101u);
        nibbles[0] = words[0];
        nibbles[1] = (half & 0x07070707u) | spare << 4;
%                 else
        nibbles[0] = words[0];
        nibbles[1] = half;
%                 end
%             end
    } else
%         end
    {
        TQG_UNROLL
        for (int i = 0; i < V_UNIT_WORDS; i++)
            words[i] = tqt_v_bytes(row + 4 * i);
%         if v.bits < 4 then
        v_nibbles(words, nibbles);
%         else
        TQG_UNROLL
        for (int i = 0; i < 4; i++)
            nibbles[i] = words[i];
%         end
    }
%         if v.bits == 4 then
    tqg_u32 table[4];
    v_table(table);
%         end
    TQG_UNROLL
    for (int i = 0; i < 4; i++) {
%         if v.bits == 4 then
        /* natural codes to magnitudes and signs, see tqg_sign_magnitude; opaque: else it is derived again for the signs */
        const tqg_u32 negative = tqg_opaque(~nibbles[i] & 0x88888888u), magnitude = nibbles[i] ^ (negative - (negative >> 3));
%         end
        TQG_UNROLL
        for (int half = 0; half < 2; half++) {
            tqg_u32 lo, hi;
%         if v.bits == 4 then
            v_lookup(table, tqg_codes(magnitude, half), tqg_nibble_tops(negative, half), &lo, &hi);
%         else
            v_bytes(nibbles[i], half, &lo, &hi);
%         end
#if TQG_NIBBLE(0, 1) == 1 /* two values of two keys */
            pairs[v_value(8 * i) >> 2][half] = tqg_zip02(lo, hi);
            pairs[v_value(8 * i + 1) >> 2][half] = tqg_zip13(lo, hi);
#else /* one value of four keys */
            pairs[v_value(8 * i + 4 * half) >> 2][0] = tqg_zip01(lo, hi);
            pairs[v_value(8 * i + 4 * half) >> 2][1] = tqg_zip23(lo, hi);
#endif
        }
    }
%     else
    TQG_UNROLL
    for (int j = 0; j < 2; j++) {
        tqg_u32 a[4], b[4];
%         if v.bits == 16 then
        const tqg_u4 x = *(const tqg_u4 *)(region + first + column->offset + 2 * j * TQT_V_STRIDE);
        const tqg_u4 y = *(const tqg_u4 *)(region + first + column->offset + (2 * j + 1) * TQT_V_STRIDE);
        a[0] = x.x, a[1] = x.y, a[2] = x.z, a[3] = x.w;
        b[0] = y.x, b[1] = y.y, b[2] = y.z, b[3] = y.w;
%         else
        tqg_u32 words[4] = {0, 0, 0, 0}, decoded[8];
        TQG_UNROLL
        for (int e = 0; e < 2; e++) {
            tqt_words(region + first + column->offset + (2 * j + e) * TQT_V_STRIDE, 4, words);
            v_tail(words, decoded);
            TQG_UNROLL
            for (int i = 0; i < 4; i++)
                (e ? b : a)[i] = decoded[i];
        }
%         end
        TQG_UNROLL
        for (int i = 0; i < 4; i++) {
            pairs[2 * i][j] = tqg_permute(a[i], b[i], 0x5410);
            pairs[2 * i + 1][j] = tqg_permute(a[i], b[i], 0x7632);
        }
    }
%     end
}
% end
% local heads = shape.heads

/* Decode over rows. A warp takes ${warp} keys and ${heads} of the group's ${gqa} query heads. The K rows, then the V rows of these keys are
 * copied to shared memory as they are${prefetch and ", from registers into which they were loaded a step ahead" or ""}. Then
 *   K.q  a lane is a key: it decodes its row and multiplies it with q, which is the same for all lanes;
 *   P.V  a lane is 8 values of V${CODEBOOK_V and ", whose codes share a byte of each word of a unit" or ""}: it takes them from four rows at a time, so that pairs of keys
 *        are multiplied with pairs of weights, which come through shared memory.
 * Warps share nothing until the end. */
TQG_KERNEL(${symbol}, tqg_decode_params, ${geometry.threads}, ${geometry.blocks_per_sm}) {
    enum {
        GQA = ${gqa},
        HEADS = ${heads}, /* of a warp */
        GROUPS = ${shape.groups},
        ROW_WARPS = ${shape.row_warps},
        THREADS = ${geometry.threads},
        KEYS = TQG_WARP,
        REGION = ${rows.region}, /* bytes for the rows of a step */
        SETS = ${rows.sets}, /* of weights: one for the values that share a scale */
        SET = ${rows.set_halves}, /* halves */
        COLUMNS = ${rows.columns}, /* of 8 values */
        PARTS = ${rows.parts}, /* lanes that share a column: each takes other keys */
        PER_LANE = ${rows.per_lane}, /* columns */
    };
    const tqa_range r = tqa_range_of(&p, KEYS);
    if (tqa_idle(&r))
        return;
    const int warp = tqg_warp(), lane = tqg_lane(), row_warp = warp / GROUPS, head = (warp - row_warp * GROUPS) * HEADS;
    float *shared = (float *)TQG_SHARED;
    tqa_prepare_q(&p, &r, GQA, THREADS, shared);
% if BYTES then
    const float q_scale = 32512.0f / tqg_max(tqa_largest(shared, GQA * TQA_HEAD_DIM), 0x1p-100f), k_unit = TQD_BYTE_UNIT / q_scale;
    const tqg_uniform_words q = tqd_publish_bytes(&p, &r, shared, q_scale, GQA, HEADS, GROUPS, THREADS) + head * (TQA_HEAD_DIM / 2);
% else
    const float q_scale = tqa_normalise(tqa_largest(shared, GQA * TQA_HEAD_DIM), 0x1p10f), k_unit = K_UNIT / q_scale;
    const tqg_uniform_words q = tqd_publish_halves(&p, &r, shared, q_scale, GQA, HEADS, GROUPS, THREADS) + head * (TQA_HEAD_DIM / 2);
% end

    const int k_dense = tqt_k_is_dense(&p.k), v_dense = tqt_v_is_dense(&p.v), has_options = tqa_has_options(&p);
    tqg_u8 *region = TQG_SHARED + warp * (REGION + SETS * SET * 2);
    tqg_u16 *weights = (tqg_u16 *)(region + REGION);
    float acc[HEADS][PER_LANE * 8];
    tqd_head of[HEADS];
    tqd_clear(of, HEADS);
% if SCALED then
    float base[HEADS]; /* of exponents */
% end
    TQG_UNROLL
    for (int h = 0; h < HEADS; h++) {
        TQG_UNROLL
        for (int i = 0; i < PER_LANE * 8; i++)
            acc[h][i] = 0.0f;
% if SCALED then
        base[h] = of[h].max;
% end
    }
% if rows.scales > 0 then
    const float V_TOP = ${V_GAINS and "0x1p14f" or "0x1p10f"}; /* of scales as halves */
    tqd_scale to_half = {0x1p60f, 0.0f};
% end
    const int part = lane / (TQG_WARP / PARTS);
    tqt_column columns[PER_LANE];
    TQG_UNROLL
    for (int c = 0; c < PER_LANE; c++)
        columns[c] = tqt_column_at((lane & (TQG_WARP / PARTS - 1)) + c * TQG_WARP);

    int slot = r.first + row_warp * KEYS;
% if prefetch then
    tqg_u4 k_words[TQT_K_LOADS], v_words[TQT_V_LOADS];
    int k_phase = 0, v_phase = 0;
    if (slot < r.last) {
        const tqg_u8 *k_now = tqa_unit_of(&p.k, 1, slot), *v_now = tqa_unit_of(&p.v, 1, slot);
        tqt_k_load(k_now, k_dense ? tqt_n(&r, slot) : 1, k_words);
        tqt_v_load(v_now, v_dense ? tqt_n(&r, slot) : 1, v_words);
        k_phase = (int)((tqg_u64)k_now & 15);
        v_phase = (int)((tqg_u64)v_now & 15);
    }
% end
    TQG_NO_UNROLL
    for (; slot < r.last; slot += ROW_WARPS * KEYS) {
        const int n = tqt_n(&r, slot), edge = tqa_is_edge(&r, slot, KEYS), visible = tqa_is_visible(&r, slot + lane);
% if prefetch then
        const int next = slot + ROW_WARPS * KEYS < r.last ? slot + ROW_WARPS * KEYS : slot, next_n = tqt_n(&r, next);
        const tqg_u8 *k_next = tqa_unit_of(&tqg_again(p)->k, 1, next), *v_next = tqa_unit_of(&tqg_again(p)->v, 1, next);
% end
% for _, part in ipairs { { "k", "K" }, { "v", "V" } } do
%     local p, P = part[1], part[2]

        /* ${P} */
        tqg_warp_sync();
%     if prefetch then
        tqt_${p}_store(region, ${p}_words);
        if (!${p}_dense) {
            tqg_warp_sync();
            tqt_${p}_gather(&tqg_again(p)->${p}, slot, n, region);
        }
        const int ${p}_first = ${p}_dense ? ${p}_phase : 0;
        ${p}_phase = (int)((tqg_u64)${p}_next & 15);
%     else
        const tqg_u8 *${p}_now = tqa_unit_of(&tqg_again(p)->${p}, 1, slot);
        const int ${p}_first = ${p}_dense ? (int)((tqg_u64)${p}_now & 15) : 0;
        if (${p}_dense)
            tqt_${p}_copy(${p}_now, n, region);
        else
            tqt_${p}_gather(&tqg_again(p)->${p}, slot, n, region);
%     end
        tqg_warp_sync();
%     if p == "k" or rows.scales > 0 then
        const tqg_u8 *${p}_row = region + ${p}_first + lane * TQT_${P}_STRIDE;
%     end
%     if p == "k" then
        float score[HEADS];
        tqd_dots dots;
        tqd_start(&dots, q);
        TQG_UNROLL
        for (int b = 0; b < K_N_BLOCKS; b++) {
            float dot[HEADS];
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++)
                dot[h] = 0.0f;
%         local take = BYTES and "tqd_take_bytes(&dots, h)" or "tqd_take_halves(&dots, h)"
%         if K_GAINS then
            tqg_u32 gains[${(k.subs + 7) // 8}][4];
            TQG_UNROLL
            for (int i = 0; i < ${(k.subs + 7) // 8}; i++)
                k_gain_pairs(tqg_shared_word(k_row + b * K_BLOCK_BYTES + 2 + 4 * i), gains[i]);
%         end
            TQG_UNROLL
            for (int i = 0; i < 4 * K_UNITS + 2 * K_TAIL; i++) { /* eight values each */
                const tqg_u8 *unit = k_row + b * K_BLOCK_BYTES + K_HEADER + (i >> 2) * (4 * K_UNIT_WORDS);
                tqg_u32 nibbles[4], values[4];
                tqt_k_nibbles(unit, (i >> 2) == K_UNITS, nibbles);
                tqt_k_${BYTES and "bytes" or "halves"}(unit, nibbles, i & 3, values);
                tqd_add_${BYTES and "bytes" or "halves"}(&dots, values, b * (4 * K_UNITS) + i, HEADS);
%         if K_GAINS then
                TQG_UNROLL
                for (int h = 0; h < HEADS && (i & 1); h++)
                    dot[h] = tqg_fma(${take}, tqd_gain(gains[i >> 4], i >> 1 & 7), dot[h]);
%         end
            }
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++) {
%         if not K_GAINS then
                dot[h] = ${take};
%         end
%         if k.bits < 16 then
                score[h] = tqg_fma(dot[h], tqg_half(tqt_half(k_row + b * K_BLOCK_BYTES)), b == 0 ? 0.0f : score[h]);
%         else
                score[h] = dot[h];
%         end
            }
        }
        TQG_UNROLL
        for (int h = 0; h < HEADS; h++)
            score[h] *= k_unit;
%         if prefetch then
        tqt_k_load(k_next, k_dense ? next_n : 1, k_words);
%         end
        if (has_options) {
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++)
                score[h] = tqa_score(tqg_again(p), &r, tqa_alibi(tqg_again(p), &r, GQA, head + h), score[h], slot + lane);
        }
        if (edge && !visible) {
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++)
                score[h] = TQA_MINUS_INFINITY;
        }
%     end
% end
%     if prefetch then
        tqt_v_load(v_next, v_dense ? next_n : 1, v_words);
%     end
%     if rows.scales > 0 then
        tqg_u16 v_scale[V_N_BLOCKS];
        TQG_UNROLL
        for (int b = 0; b < V_N_BLOCKS; b++)
            v_scale[b] = tqt_half(v_row + b * V_BLOCK_BYTES);
        if (edge && !visible) {
            TQG_UNROLL
            for (int b = 0; b < V_N_BLOCKS; b++)
                v_scale[b] = 0;
        }
%     else
        if (edge && !visible) { /* whatever lies there must not be NaN */
            for (int i = 0; i < V_ROW_BYTES / 16; i++)
                ((tqg_u4 *)(region + v_first + lane * TQT_V_STRIDE))[i] = (tqg_u4){0, 0, 0, 0};
        }
%     end

        int rises = tqd_rises(of, score, HEADS);
%     if rows.scales > 0 then
        TQG_UNROLL
        for (int b = 0; b < V_N_BLOCKS; b++)
            rises |= tqg_abs(tqg_half(v_scale[b])) > to_half.limit;
%     end
        if (tqg_any(rises)) {
%     if rows.scales > 0 then
            float largest = 0.0f;
            TQG_UNROLL
            for (int b = 0; b < V_N_BLOCKS; b++)
                largest = tqg_max(largest, tqg_abs(tqg_half(v_scale[b])));
            const float ratio = tqd_rescale(&to_half, largest, V_TOP);
%     else
            const float ratio = 1.0f;
%     end
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++) {
                const float keep = tqd_raise(&of[h], score[h]) * ratio;
%     if SCALED then
                of[h].sum *= ratio;
                base[h] = of[h].max - (float)tqa_log2_of(to_half.factor);
%     end
                TQG_UNROLL
                for (int i = 0; i < PER_LANE * 8; i++)
                    acc[h][i] *= keep;
            }
        }

        float weight[HEADS];${SCALED and " /* times to_half.factor, as the sums */" or ""}
        TQG_UNROLL
        for (int h = 0; h < HEADS; h++) {
            weight[h] = tqg_exp2(score[h] - ${SCALED and "base[h]" or "of[h].max"});
            of[h].sum += weight[h];
        }
%     if V_GAINS then
        TQG_UNROLL
        for (int b = 0; b < V_N_BLOCKS; b++) {
            const float scale = tqg_half(v_scale[b]) * to_half.factor;
            TQG_UNROLL
            for (int i = 0; i < ${(v.subs + 7) // 8}; i++) {
                tqg_u32 gains[4];
                v_gain_pairs(tqg_shared_word(v_row + b * V_BLOCK_BYTES + 2 + 4 * i), gains);
                TQG_UNROLL
                for (int x = 0; x < 4; x++) {
                    const tqg_u32 gain = tqg_h2_mul(gains[x], tqg_h2(scale, scale));
                    const int even = 8 * i + v_gain_order(2 * x), odd = 8 * i + v_gain_order(2 * x + 1);
                    TQG_UNROLL
                    for (int h = 0; h < HEADS; h++) {
                        const tqg_u32 product = tqg_h2_mul(tqg_h2(weight[h], weight[h]), gain);
                        tqg_u16 *to = weights + b * V_SUBS * SET + h * KEYS + lane;
                        if (even < V_SUBS)
                            to[even * SET] = (tqg_u16)product;
                        if (odd < V_SUBS)
                            to[odd * SET] = (tqg_u16)(product >> 16);
                    }
                }
            }
        }
%     else
        TQG_UNROLL
        for (int b = 0; b < SETS; b++) {
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++)
                weights[b * SET + h * KEYS + lane] = tqg_to_half(weight[h]${rows.scales > 0 and " * tqg_half(v_scale[b])" or ""});
        }
%     end
        tqg_warp_sync();

        TQG_UNROLL
        for (int i = 0; i < KEYS / 4 / PARTS; i++) {
            TQG_UNROLL
            for (int c = 0; c < PER_LANE; c++) {
                const tqt_column *column = &columns[c];
                const int key = (i * PARTS + part) * 4;
                tqg_u32 pairs[8][2];
                tqt_v_keys(region, column, v_first + (i * PARTS + part) * (4 * TQT_V_STRIDE), pairs);
                TQG_UNROLL
                for (int h = 0; h < HEADS; h++) {
                    TQG_UNROLL
                    for (int run = 0; run < ${V_GAINS and 2 or 1}; run++) {
                        const tqg_u32 *of_keys = (const tqg_u32 *)(weights + column->set + run * SET + h * KEYS + key);
                        const tqg_u32 w0 = of_keys[0], w1 = of_keys[1];
                        TQG_UNROLL
                        for (int x = run * 4; x < ${V_GAINS and "run * 4 + 4" or "8"}; x++)
                            acc[h][c * 8 + x] = tqg_dot2(pairs[x][1], w1, tqg_dot2(pairs[x][0], w0, acc[h][c * 8 + x]));
                    }
                }
            }
        }
    }

    /* Lanes that share a column, then warps to block, one after the other. */
    TQG_UNROLL
    for (int mask = TQG_WARP / PARTS; mask < TQG_WARP; mask *= 2) {
        TQG_UNROLL
        for (int i = 0; i < HEADS * PER_LANE * 8; i++)
            acc[i / (PER_LANE * 8)][i % (PER_LANE * 8)] += tqg_shfl_xor(acc[i / (PER_LANE * 8)][i % (PER_LANE * 8)], mask);
    }
    tqg_block_sync();
    const tqa_result result = tqa_result_at(shared, GQA);
% if SCALED then
    TQG_UNROLL
    for (int h = 0; h < HEADS; h++)
        of[h].sum /= to_half.factor;
% end
    tqd_merge(&result, of, row_warp, ROW_WARPS, head, HEADS, GQA, THREADS);
    const float unit = ${rows.scales > 0 and "V_UNIT / to_half.factor" or "V_UNIT"};
    for (int turn = 0; turn < ROW_WARPS; turn++) {
        if (turn == row_warp && part == 0) {
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++) {
                if (head + h < GQA) {
                    const float share = unit * tqg_exp2(of[h].max - result.max[head + h]);
                    TQG_UNROLL
                    for (int i = 0; i < PER_LANE * 8; i++) {
                        const int value = tqt_value(lane + (i >> 3) * TQG_WARP, i & 7);
                        float *to = result.acc + (head + h) * TQA_HEAD_DIM + value;
                        if (value >= 0)
                            *to = tqg_fma(acc[h][i], share, turn == 0 ? 0.0f : *to);
                    }
                }
            }
        }
        tqg_block_sync();
    }
    const tqa_range late = tqa_range_of(tqg_again(p), KEYS);
    tqa_finish(tqg_again(p), &late, &result, GQA, THREADS);
}
