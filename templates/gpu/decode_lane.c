% local K_GAINS, V_GAINS = k.subs > 0, v.subs > 0
% local BYTES = variant.k_path == "i8"
% local heads = shape.heads
% if once("lane") then

/* ---- tiles of layout tile_lane ---- */
enum {
    TQL_CHUNKS = ${n_chunks},
    TQL_K_LOADS = ${k.bits}, /* of 16 bytes, per lane and chunk */
    TQL_V_LOADS = ${v.bits},
};
%     for _, side in ipairs { "k", "v" } do
%         local f, S, chunk = side == "k" and k or v, side:upper(), side == "k" and k_tile or v_tile

/* What a lane holds of a ${S} tile, as stored. */
typedef struct tql_${side} {
    tqg_u4 codes[TQL_CHUNKS][TQL_${S}_LOADS];
    tqg_u16 scale[TQL_CHUNKS];
%         if f.subs > 0 then
    tqg_u32 gains[TQL_CHUNKS];
%         end
} tql_${side};

TQG_FN void tql_load_${side}(const tqg_u8 *tile, tql_${side} *t) {
    const tqg_u32 lane = (tqg_u32)tqg_lane();
    TQG_UNROLL
    for (int c = 0; c < TQL_CHUNKS; c++) {
        TQG_UNROLL
        for (int i = 0; i < TQL_${S}_LOADS; i++)
            t->codes[c][i] = tqg_load16(tile + c * ${chunk.chunk} + i * 512 + lane * 16);
%         if f.subs > 0 then
        t->gains[c] = *(const tqg_u32 *)(tile + c * ${chunk.chunk} + ${chunk.gains_at} + lane * 4);
%         end
        t->scale[c] = *(const tqg_u16 *)(tile + c * ${chunk.chunk} + ${chunk.scales_at} + lane * 2);
    }
}

/* Unit j of a lane's codes of a chunk, as 4 words of 8 codes. ${side == "k" and "Of a key: values as in a row's unit" or "Of 4 values: word u has those of keys 8j + u and 8j + 4 + u"}${f.bits == 4 and "; sign and magnitude" or ""}. */
TQG_FN void tql_${side}_nibbles(const tqg_u4 *codes, int j, tqg_u32 *nibbles) {
    tqg_u32 w[${S}_UNIT_WORDS];
    TQG_UNROLL
    for (int i = 0; i < ${S}_UNIT_WORDS; i++) {
        const tqg_u4 *x = codes + ((${S}_UNIT_WORDS * j + i) >> 2);
        const int of = (${S}_UNIT_WORDS * j + i) & 3;
        w[i] = of == 0 ? x->x : of == 1 ? x->y : of == 2 ? x->z : x->w;
%         if f.bits == 4 then
        nibbles[i] = w[i];
%         end
    }
%         if f.bits < 4 then
    ${side}_nibbles(w, nibbles);
%         end
}
%     end
% end

/* Decode over tiles of layout tile_lane. A warp takes a tile of 32 keys and ${heads} of the group's ${gqa} query heads:
 *   K.q  a lane is a key: it decodes its row in registers and multiplies it with q, which is the same for all lanes;
 *   P.V  a lane is 4 values of each chunk of 128: it decodes them for all keys and multiplies them with the weights of the
 *        keys, which come through shared memory.
 * The next tile is loaded into registers meanwhile. Warps share nothing until the end. */
TQG_KERNEL(${symbol}, tqg_decode_params, ${geometry.threads}, ${geometry.blocks_per_sm}) {
    enum {
        GQA = ${gqa},
        HEADS = ${heads}, /* of a warp */
        GROUPS = ${shape.groups},
        TILE_WARPS = ${shape.tile_warps},
        THREADS = ${geometry.threads},
        CHUNKS = ${n_chunks},
        SETS = ${weights.sets}, /* of weights, per chunk: one for the values that share a scale */
        SET = ${weights.set_halves}, /* halves */
    };
    const tqa_range r = tqa_range_of(&p, 32);
    if (tqa_idle(&r))
        return;
    const int warp = tqg_warp(), lane = tqg_lane(), tile_warp = warp / GROUPS, head = (warp - tile_warp * GROUPS) * HEADS;
    float *shared = (float *)TQG_SHARED;
% if bias > 0 then
    enum { PAIRS = ${bias} }; /* of the score bias */
    float *bias_table = (float *)(TQG_SHARED + ${geometry.shared_bytes - attention.bias_floats(variant)});
    tqb_table(&p.bias, PAIRS, THREADS, bias_table);
% end
    tqa_prepare_q(&p, &r, GQA, THREADS, shared);
% if BYTES then
    const float q_scale = 32512.0f / tqg_max(tqa_largest(shared, GQA * TQA_HEAD_DIM), 0x1p-100f), k_unit = TQD_BYTE_UNIT / q_scale;
    const tqg_uniform_words q = tqd_publish_bytes(&p, &r, shared, q_scale, GQA, HEADS, GROUPS, THREADS) + head * (TQA_HEAD_DIM / 2);
% else
    const float q_scale = tqa_normalise(tqa_largest(shared, GQA * TQA_HEAD_DIM), 0x1p10f), k_unit = K_UNIT / q_scale;
    const tqg_uniform_words q = tqd_publish_halves(&p, &r, shared, q_scale, GQA, HEADS, GROUPS, THREADS) + head * (TQA_HEAD_DIM / 2);
% end

    const int has_options = tqa_has_options(&p), end = r.last >> 5;
    tqg_u16 *weights = (tqg_u16 *)TQG_SHARED + warp * (CHUNKS * SETS * SET);
% if bias > 0 then
    tqg_u32 *turned = (tqg_u32 *)(TQG_SHARED + GROUPS * TILE_WARPS * (CHUNKS * SETS * SET * 2)) + warp * (HEADS * PAIRS * 2);
    tqb_lane coefficients;
    tqb_load(&p.bias, tqa_coefficients(&p, &r, GQA) + head * p.bias.head_stride, HEADS, GQA - head, PAIRS, p.factor,
             &coefficients);
% end
    const float V_TOP = ${V_GAINS and "0x1p14f" or "0x1p10f"}; /* of scales as halves */
    float acc[HEADS][CHUNKS * 4];
    tqd_scale to_half = {0x1p60f, 0.0f};
    tqd_head of[HEADS];
    tqd_clear(of, HEADS);
    TQG_UNROLL
    for (int h = 0; h < HEADS; h++) {
        TQG_UNROLL
        for (int i = 0; i < CHUNKS * 4; i++)
            acc[h][i] = 0.0f;
    }

    tql_k k_tile;
    tql_v v_tile;
    int tile = (r.first >> 5) + tile_warp;
    if (tile < end) {
        tql_load_k(tqa_unit_of(&p.k, 32, tile), &k_tile);
        tql_load_v(tqa_unit_of(&p.v, 32, tile), &v_tile);
    }
    TQG_NO_UNROLL
    for (; tile < end; tile += TILE_WARPS) {
        const int slot = tile * 32 + lane, next = tile + TILE_WARPS < end ? tile + TILE_WARPS : tile;
        const tqg_u8 *k_next = tqa_unit_of(&tqg_again(p)->k, 32, next), *v_next = tqa_unit_of(&tqg_again(p)->v, 32, next);

% if bias > 0 then
        tqg_warp_sync();
        tqb_pass(&coefficients, HEADS, PAIRS, tile * 32, turned);
        tqg_warp_sync();
% end
        float score[HEADS] = {0.0f}, before[HEADS];
        tqd_dots dots;
        tqd_start(&dots, q);
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++) {
            float dot[HEADS] = {0.0f};
% if K_GAINS then
            tqg_u32 gains[4];
            k_gain_pairs(k_tile.gains[c], gains);
% end
            TQG_UNROLL
            for (int i = 0; i < 16; i++) { /* eight values each */
                tqg_u32 nibbles[4], values[4];
                tql_k_nibbles(k_tile.codes[c], i >> 2, nibbles);
% if BYTES then
                tqd_${k.bits == 4 and "tile_bytes" or "bytes"}(nibbles[i & 3], values);
                tqd_add_bytes(&dots, values, c * 16 + i, HEADS);
% else
                k_pairs(nibbles[i & 3], values);
                tqd_add_halves(&dots, values, c * 16 + i, HEADS);
% end
% local take = BYTES and "tqd_take_bytes(&dots, h)" or "tqd_take_halves(&dots, h)"
                TQG_UNROLL
                for (int h = 0; h < HEADS; h++) {
% if K_GAINS then
                    if (i & 1)
                        dot[h] = i == 1 ? ${take} * tqd_gain(gains, 0) : tqg_fma(${take}, tqd_gain(gains, i >> 1), dot[h]);
% else
                    if (i == 15)
                        dot[h] = ${take};
% end
                }
            }
            const float scale = tqg_half(k_tile.scale[c]) * k_unit;
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++)
                score[h] = c == 0 ? dot[h] * scale : tqg_fma(dot[h], scale, score[h]);
        }
        TQG_UNROLL
        for (int h = 0; h < HEADS; h++)
            before[h] = dots.last[h];
        tql_load_k(k_next, &k_tile);
% if bias > 0 then
        tqb_add(turned, HEADS, PAIRS, bias_table, score);
% end
        if (has_options) {
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++)
                score[h] = tqa_score(tqg_again(p), &r, tqa_alibi(tqg_again(p), &r, GQA, head + h), score[h], slot);
        }
        float v_scale[CHUNKS];
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++)
            v_scale[c] = tqg_half(v_tile.scale[c]);
        if (tqa_is_edge(&r, slot - lane, 32) && !tqa_is_visible(&r, slot)) {
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++)
                score[h] = TQA_MINUS_INFINITY;
            TQG_UNROLL
            for (int c = 0; c < CHUNKS; c++)
                v_scale[c] = 0.0f;
        }

        int rises = tqd_rises(of, score, HEADS);
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++)
            rises |= tqg_abs(v_scale[c]) > to_half.limit;
        if (tqg_any(rises)) {
            float largest = 0.0f;
            TQG_UNROLL
            for (int c = 0; c < CHUNKS; c++)
                largest = tqg_max(largest, tqg_abs(v_scale[c]));
            const float ratio = tqd_rescale(&to_half, largest, V_TOP);
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++) {
                const float keep = tqd_raise(&of[h], score[h]) * ratio;
                TQG_UNROLL
                for (int i = 0; i < CHUNKS * 4; i++)
                    acc[h][i] *= keep;
            }
        }

        /* weights of the keys, in pairs as the values of V come: key k of its group of 8 beside key k + 4 */
        const int place = (lane & 24) + 2 * (lane & 3) + (lane >> 2 & 1);
        tqg_warp_sync();
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++)
            v_scale[c] *= to_half.factor;
% if V_GAINS then
        tqg_u32 v_gains[CHUNKS][4];
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++) {
            v_gain_pairs(v_tile.gains[c], v_gains[c]);
            TQG_UNROLL
            for (int x = 0; x < 4; x++)
                v_gains[c][x] = tqg_h2_mul(v_gains[c][x], tqg_h2(v_scale[c], v_scale[c]));
        }
% end
        TQG_UNROLL
        for (int h = 0; h < HEADS; h++) {
            const float weight = tqg_exp2(score[h] - of[h].max);
            of[h].sum += weight;
            TQG_UNROLL
            for (int c = 0; c < CHUNKS; c++) {
                tqg_u16 *to = weights + c * SETS * SET + h * 32 + place;
% if V_GAINS then
                TQG_UNROLL
                for (int x = 0; x < 4; x++) {
                    const tqg_u32 product = tqg_h2_mul(tqg_h2(weight, weight), v_gains[c][x]);
                    to[v_gain_order(2 * x) * SET] = (tqg_u16)product;
                    to[v_gain_order(2 * x + 1) * SET] = (tqg_u16)(product >> 16);
                }
% else
                to[0] = tqg_to_half(weight * v_scale[c]);
% end
            }
        }
        tqg_warp_sync();

        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++) {
            int from = (c * SETS${V_GAINS and " + (lane >> 2)" or ""}) * SET;
            TQG_UNROLL
            for (int j = 0; j < 4; j++) {
                tqg_u32 nibbles[4];
                tqg_u4 weight[HEADS]; /* of 8 keys */
                tql_v_nibbles(v_tile.codes[c], j, nibbles);
                TQG_UNROLL
                for (int h = 0; h < HEADS; h++) {
                    from = tqg_after(from, before[h]);
                    before[h] = acc[h][c * 4];
                }
                TQG_UNROLL
                for (int h = 0; h < HEADS; h++)
                    weight[h] = *(const tqg_u4 *)(weights + from + h * 32 + j * 8);
                TQG_UNROLL
                for (int u = 0; u < 4; u++) {
                    TQG_UNROLL
                    for (int half = 0; half < 2; half++) {
                        tqg_u32 lo, hi;
                        v_bytes(nibbles[u], half, &lo, &hi);
                        const tqg_u32 a = tqg_zip02(lo, hi), b = tqg_zip13(lo, hi);
                        TQG_UNROLL
                        for (int h = 0; h < HEADS; h++) {
                            const tqg_u32 w = u == 0 ? weight[h].x : u == 1 ? weight[h].y : u == 2 ? weight[h].z : weight[h].w;
                            float *to = acc[h] + c * 4;
                            to[TQG_NIBBLE(half, 0) & 3] = tqg_dot2(a, w, to[TQG_NIBBLE(half, 0) & 3]);
                            to[TQG_NIBBLE(half, 1) & 3] = tqg_dot2(b, w, to[TQG_NIBBLE(half, 1) & 3]);
                        }
                    }
                }
            }
        }
        tql_load_v(v_next, &v_tile);
    }

    /* Warps to block, one after the other. */
    tqg_block_sync();
    const tqa_result result = tqa_result_at(shared, GQA);
    tqd_merge(&result, of, tile_warp, TILE_WARPS, head, HEADS, GQA, THREADS);
    for (int turn = 0; turn < TILE_WARPS; turn++) {
        if (turn == tile_warp) {
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++) {
                if (head + h < GQA) {
                    const float share = V_UNIT / to_half.factor * tqg_exp2(of[h].max - result.max[head + h]);
                    TQG_UNROLL
                    for (int i = 0; i < CHUNKS * 4; i++) {
                        float *to = result.acc + (head + h) * TQA_V_HEAD_DIM + (i >> 2) * 128 + lane * 4 + (i & 3);
                        *to = tqg_fma(acc[h][i], share, turn == 0 ? 0.0f : *to);
                    }
                }
            }
        }
        tqg_block_sync();
    }
    const tqa_range late = tqa_range_of(tqg_again(p), 32);
    tqa_finish(tqg_again(p), &late, &result, GQA, THREADS);
}
