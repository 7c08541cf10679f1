% local CODEBOOK_K, CODEBOOK_V = k.bits < 8, v.bits < 8
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

/* The words that hold the step's rows, number of slots n at least 1, the first row at `row`. */
TQG_FN void tqt_${p}_load(const tqg_u8 *row, int n, tqg_u4 *words) {
    const int phase = (int)((tqg_u64)row & 15), last = (phase + n * ${P}_ROW_BYTES - 1) & ~15;
    TQG_UNROLL
    for (int i = 0; i < TQT_${P}_LOADS; i++) {
        const int at = (i * TQG_WARP + tqg_lane()) * 16;
        words[i] = tqg_load16(row - phase + (at < last ? at : last));
    }
}
TQG_FN void tqt_${p}_store(tqg_u8 *region, const tqg_u4 *words) {
    TQG_UNROLL
    for (int i = 0; i < TQT_${P}_LOADS; i++) {
        const int number = i * TQG_WARP + tqg_lane();
        if (number < ${of.words})
            *(tqg_u4 *)(region + number * 16${of.padded and (" + number / %d * 16"):format(of.padded) or ""}) = words[i];
    }
}

/* Rows that lie anywhere, 2 bytes at a time. */
TQG_FN void tqt_${p}_gather(const tqa_cache *cache, int slot, int n, tqg_u8 *region) {
    TQG_NO_UNROLL
    for (int i = 0; i < n; i++) {
        const tqg_u16 *from = (const tqg_u16 *)tqa_unit(cache, slot + i);
        tqg_u16 *to = (tqg_u16 *)(region + i * TQT_${P}_STRIDE);
        for (int j = tqg_lane(); j < ${P}_ROW_BYTES / 2; j += TQG_WARP)
            to[j] = from[j];
    }
}
% end

/* A row in shared memory: where its words begin that lie at an offset which is a multiple of 4, and at one that is not. */
typedef struct tqt_row {
    const tqg_u8 *row;
    const tqg_u32 *at[2];
    int shift[2];
} tqt_row;

TQG_FN tqt_row tqt_row_at(const tqg_u8 *region, int offset) {
    tqt_row r;
    r.row = region + offset;
    TQG_UNROLL
    for (int i = 0; i < 2; i++) {
        const int at = offset + 2 * i;
        r.at[i] = (const tqg_u32 *)(region + (at & ~3));
        r.shift[i] = (at & 2) * 8;
    }
    return r;
}
/* n 16-bit halves at a constant even offset; of an odd n the upper half of the last word may be anything. */
TQG_FN void tqt_words(const tqt_row *r, int offset, int n, tqg_u32 *words) {
    const tqg_u32 *from = r->at[offset >> 1 & 1] + (offset >> 2);
    tqg_u32 low = from[0];
    TQG_UNROLL
    for (int i = 0; i < (n + 1) / 2; i++) {
        const tqg_u32 high = from[i + 1];
        words[i] = tqg_funnel(low, high, r->shift[offset >> 1 & 1]);
        low = high;
    }
}
TQG_FN tqg_u32 tqt_half(const tqt_row *r, int offset) {
    return *(const tqg_u16 *)(r->row + offset);
}
% end
% local heads = shape.heads

/* Decode over rows. A warp takes ${warp} keys and ${heads} of the group's ${gqa} query heads. K rows, then V rows of these keys are copied to
 * shared memory as they are; ${prefetch and "the next ones are loaded into registers meanwhile. " or ""}Then
 *   K.q  a lane is a key: it decodes its row and multiplies it with q, which is the same for all lanes;
 *   P.V  a lane is 8 values of V${CODEBOOK_V and ", those whose codes lie in the same byte of the words of a unit" or ""}: it takes them from four rows at a time, so that pairs
 *        of keys are multiplied with pairs of weights, which come through shared memory.
 * Warps share nothing until the end. */
TQG_KERNEL(${symbol}, tqg_decode_params, ${geometry.threads}, ${geometry.blocks_per_sm}) {
    enum {
        GQA = ${gqa},
        HEADS = ${heads}, /* of a warp */
        GROUPS = ${shape.groups},
        ROW_WARPS = ${shape.row_warps},
        THREADS = ${geometry.threads},
        KEYS = TQG_WARP,
        REGION = ${rows.region}, /* bytes for rows of a step */
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

    /* q as halves in the order in which K is decoded, in global memory, where loads of a uniform address are cheapest */
    tqa_prepare_q(&p, &r, GQA, THREADS, shared);
    const float q_to_half = tqa_normalise(tqa_largest(shared, GQA * TQA_HEAD_DIM), 0x1p10f);
    const tqg_uniform_words all_q = tqa_publish_q(&p, &r, shared, q_to_half, GQA, HEADS, GROUPS, THREADS) + head * (TQA_HEAD_DIM / 2);
    const float k_unit = K_UNIT / q_to_half;

    const tqa_cache k = tqa_cache_of(&p.k, r.sequence, r.kv_head, 1), v = tqa_cache_of(&p.v, r.sequence, r.kv_head, 1);
    const int k_dense = tqt_k_is_dense(&p.k), v_dense = tqt_v_is_dense(&p.v), has_options = tqa_has_options(&p);
    tqg_u8 *region = TQG_SHARED + warp * (REGION + SETS * SET * 2);
    tqg_u16 *weights = (tqg_u16 *)(region + REGION);
    float acc[HEADS][PER_LANE][8], max[HEADS], limit[HEADS], sum[HEADS];
% if rows.scales > 0 then
    const float V_TOP = ${V_GAINS and "0x1p14f" or "0x1p10f"}; /* of scales as halves */
    float v_to_half = 0x1p100f, v_limit = 0.0f;
% end
    TQG_UNROLL
    for (int h = 0; h < HEADS; h++) {
        max[h] = limit[h] = TQA_NO_MAX;
        sum[h] = 0.0f;
        TQG_UNROLL
        for (int i = 0; i < PER_LANE * 8; i++)
            acc[h][i >> 3][i & 7] = 0.0f;
    }
