% local K_GAINS, V_GAINS = k.subs > 0, v.subs > 0
% local BYTES = variant.k_path == "i8"
% local heads = shape.heads
% local values, parts, keys = k_tile.values, k_tile.parts, shape.keys
% if once("lane") then

/* ---- tiles of layout tile_lane ---- */
enum {
    TQL_KEYS = ${keys}, /* of a lane: K's that are 32 apart */
    TQL_SUB_TILES = ${shape.sub_tiles},
    TQL_CHUNKS = ${shape.sub_tiles // parts},
    TQL_K_LOADS = ${k.bits}, /* of 16 bytes, per lane and sub-tile */
    TQL_V_LOADS = ${v.bits},
};
%     for _, side in ipairs { "k", "v" } do
%         local f, S, of = side == "k" and k or v, side:upper(), side == "k" and k_tile or v_tile
%         local function at(bytes)
%             return parts == 1 and ("c * %d"):format(of.chunk) or ("c / %d * %d + c %% %d * %d"):format(parts, of.chunk, parts, bytes)
%         end

/* What a lane holds of a ${S} tile, as stored; scales and gains of its keys${keys > 1 and ", gains of both in one word" or ""}. */
typedef struct tql_${side} {
    tqg_u4 codes[TQL_SUB_TILES][TQL_${S}_LOADS];
    tqg_u16 scale[TQL_CHUNKS * TQL_KEYS];
%         if f.subs > 0 then
    tqg_u32 gains[TQL_SUB_TILES];
%         end
} tql_${side};

TQG_FN void tql_load_${side}(const tqg_u8 *tile, tql_${side} *t) {
    const tqg_u32 lane = (tqg_u32)tqg_lane();
    TQG_UNROLL
    for (int c = 0; c < TQL_SUB_TILES; c++) {
        TQG_UNROLL
        for (int i = 0; i < TQL_${S}_LOADS; i++)
            t->codes[c][i] = tqg_load16(tile + ${at(of.codes)} + i * 512 + lane * 16);
%         if f.subs > 0 and keys > 1 then
        const tqg_u16 *gains = (const tqg_u16 *)(tile + ${at(of.gains)} + ${of.gains_at}) + lane;
        t->gains[c] = gains[0] | (tqg_u32)gains[32] << 16;
%         elseif f.subs > 0 then
        t->gains[c] = *(const tqg_u32 *)(tile + ${at(of.gains)} + ${of.gains_at} + lane * 4);
%         end
%         if parts == 1 and keys == 1 then
        t->scale[c] = *(const tqg_u16 *)(tile + ${at(0)} + ${of.scales_at} + lane * 2);
%         end
    }
%         if parts > 1 or keys > 1 then
    TQG_UNROLL
    for (int i = 0; i < TQL_CHUNKS * TQL_KEYS; i++)
        t->scale[i] = *(const tqg_u16 *)(tile + i / TQL_KEYS * ${of.chunk} + ${of.scales_at} + i % TQL_KEYS * 64 + lane * 2);
%         end
}

/* Unit j of a lane's codes of a sub-tile, as 4 words of 8 codes. ${side == "k" and (keys > 1 and "Two of each key" or "Of a key") .. ": values as in a row's unit" or "Of 4 values: word u has those of keys 8j + u and 8j + 4 + u"}${f.bits == 4 and "; sign and magnitude" or ""}. */
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

/* Decode over tiles of layout tile_lane. A warp takes a tile of ${32 * keys} keys and ${heads} of the group's ${gqa} query heads:
 *   K.q  a lane is ${keys > 1 and "two keys: it decodes their rows" or "a key: it decodes its row"} in registers and multiplies ${keys > 1 and "them" or "it"} with q, which is the same for all lanes;
 *   P.V  a lane is 4 values of each sub-tile of ${values}: it decodes them for ${keys > 1 and "half of the" or "all"} keys and multiplies them with the weights of the
 *        keys, which come through shared memory.
 * The next tile is loaded into registers meanwhile. Warps share nothing until the end. */
TQG_KERNEL(${symbol}, tqg_decode_params, ${geometry.threads}, ${geometry.blocks_per_sm}) {
    enum {
        GQA = ${gqa},
        HEADS = ${heads}, /* of a warp */
        GROUPS = ${shape.groups},
        TILE_WARPS = ${shape.tile_warps},
        THREADS = ${geometry.threads},
        KEYS = ${32 * keys}, /* of a tile */
        SETS = ${weights.sets}, /* of weights, per chunk: one for the values that share a scale */
        SET = ${weights.set_halves}, /* halves */
    };
    const tqa_range r = tqa_range_of(&p, KEYS);
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

    const int has_options = tqa_has_options(&p), end = r.last / KEYS;
    tqg_u16 *weights = (tqg_u16 *)TQG_SHARED + warp * (TQL_CHUNKS * SETS * SET);
% if bias > 0 then
    tqg_u32 *turned = (tqg_u32 *)(TQG_SHARED + GROUPS * TILE_WARPS * (TQL_CHUNKS * SETS * SET * 2)) + warp * (TQL_KEYS * HEADS * PAIRS * 2);
    tqb_lane coefficients;
    tqb_load(&p.bias, tqa_coefficients(&p, &r, GQA) + head * p.bias.head_stride, HEADS, GQA - head, PAIRS, p.factor,
             &coefficients);
    tqb_stride(&coefficients, TILE_WARPS * KEYS);
% end
    const float V_TOP = ${V_GAINS and "0x1p14f" or "0x1p10f"}; /* of scales as halves */
    float acc[HEADS][TQL_SUB_TILES * 4];
    tqd_scale to_half = {0x1p60f, 0.0f};
    tqd_head of[HEADS];
    tqd_clear(of, HEADS);
    TQG_UNROLL
    for (int h = 0; h < HEADS; h++) {
        TQG_UNROLL
        for (int i = 0; i < TQL_SUB_TILES * 4; i++)
            acc[h][i] = 0.0f;
    }

    tql_k k_tile;
    tql_v v_tile;
    int tile = r.first / KEYS + tile_warp;
    if (tile < end) {
        tql_load_k(tqa_unit_of(&p.k, KEYS, tile), &k_tile);
        tql_load_v(tqa_unit_of(&p.v, KEYS, tile), &v_tile);
    }
    TQG_NO_UNROLL
    for (; tile < end; tile += TILE_WARPS) {
        const int slot = tile * KEYS + lane, next = tile + TILE_WARPS < end ? tile + TILE_WARPS : tile;
        const tqg_u8 *k_next = tqa_unit_of(&tqg_again(p)->k, KEYS, next), *v_next = tqa_unit_of(&tqg_again(p)->v, KEYS, next);

% if bias > 0 then
        tqg_warp_sync();
        tqb_turn_on(&coefficients, tile * KEYS);
        tqb_pass(&coefficients, TQL_KEYS, HEADS, PAIRS, turned);
        tqg_warp_sync();
% end
        float score[TQL_KEYS][HEADS] = {{0.0f}}, before[HEADS];
        tqd_dots dots;
        tqd_start(&dots, q);
        TQG_UNROLL
        for (int i = 0; i < TQL_SUB_TILES * TQL_KEYS; i++) {
            const int c = i / TQL_KEYS, k = i % TQL_KEYS;
            float dot[HEADS] = {0.0f};
% if K_GAINS then
            tqg_u32 gains[4];
            k_gain_pairs(k_tile.gains[c], gains);
% end
            TQG_UNROLL
            for (int e = 0; e < ${values // 8}; e++) { /* eight values each */
                tqg_u32 nibbles[4], values[4];
                tql_k_nibbles(k_tile.codes[c], ${keys > 1 and values // 32 .. " * k + " or ""}(e >> 2), nibbles);
% if BYTES then
                tqd_${k.bits == 4 and "tile_bytes" or "bytes"}(nibbles[e & 3], values);
                tqd_add_bytes(&dots, values, c * ${values // 8} + e, HEADS);
% else
                k_pairs(nibbles[e & 3], values);
                tqd_add_halves(&dots, values, c * ${values // 8} + e, HEADS);
% end
% local take = BYTES and "tqd_take_bytes(&dots, h)" or "tqd_take_halves(&dots, h)"
% local number = keys > 1 and ("%d * k + (e >> 1)"):format(values // 16) or "e >> 1"
                TQG_UNROLL
                for (int h = 0; h < HEADS; h++) {
% if K_GAINS then
                    if (e & 1)
                        dot[h] = e == 1 ? ${take} * tqd_gain(gains, ${number}) : tqg_fma(${take}, tqd_gain(gains, ${number}), dot[h]);
% else
                    if (e == ${values // 8 - 1})
                        dot[h] = ${take};
% end
                }
            }
            const float scale = tqg_half(k_tile.scale[${parts > 1 and "c / " .. parts or "c"} * TQL_KEYS + k]) * k_unit;
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++)
                score[k][h] = c == 0 ? dot[h] * scale : tqg_fma(dot[h], scale, score[k][h]);
        }
        TQG_UNROLL
        for (int h = 0; h < HEADS; h++)
            before[h] = dots.last[h];
        tql_load_k(k_next, &k_tile);
        TQG_UNROLL
        for (int k = 0; k < TQL_KEYS; k++) {
% if bias > 0 then
            tqb_add(turned + k * (HEADS * PAIRS * 2), HEADS, PAIRS, bias_table, score[k]);
% end
            if (has_options) {
                TQG_UNROLL
                for (int h = 0; h < HEADS; h++)
                    score[k][h] = tqa_score(tqg_again(p), &r, tqa_alibi(tqg_again(p), &r, GQA, head + h), score[k][h], slot + 32 * k);
            }
        }
        float v_scale[TQL_CHUNKS * TQL_KEYS];
        TQG_UNROLL
        for (int c = 0; c < TQL_CHUNKS * TQL_KEYS; c++)
            v_scale[c] = tqg_half(v_tile.scale[c]);
        if (tqa_is_edge(&r, slot - lane, KEYS)) {
            TQG_UNROLL
            for (int k = 0; k < TQL_KEYS; k++) {
                if (tqa_is_visible(&r, slot + 32 * k))
                    continue;
                TQG_UNROLL
                for (int h = 0; h < HEADS; h++)
                    score[k][h] = TQA_MINUS_INFINITY;
                TQG_UNROLL
                for (int c = 0; c < TQL_CHUNKS; c++)
                    v_scale[c * TQL_KEYS + k] = 0.0f;
            }
        }

        int rises = 0;
        TQG_UNROLL
        for (int k = 0; k < TQL_KEYS; k++)
            rises |= tqd_rises(of, score[k], HEADS);
        TQG_UNROLL
        for (int c = 0; c < TQL_CHUNKS * TQL_KEYS; c++)
            rises |= tqg_abs(v_scale[c]) > to_half.limit;
        if (tqg_any(rises)) {
            float largest = 0.0f;
            TQG_UNROLL
            for (int c = 0; c < TQL_CHUNKS * TQL_KEYS; c++)
                largest = tqg_max(largest, tqg_abs(v_scale[c]));
            const float ratio = tqd_rescale(&to_half, largest, V_TOP);
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++) {
                const float keep = tqd_raise(&of[h], ${keys > 1 and "tqg_max(score[0][h], score[1][h])" or "score[0][h]"}) * ratio;
                TQG_UNROLL
                for (int i = 0; i < TQL_SUB_TILES * 4; i++)
                    acc[h][i] *= keep;
            }
        }

        /* weights of the keys, in pairs as the values of V come: key k of its group of 8 beside key k + 4 */
        const int place = (lane & 24) + 2 * (lane & 3) + (lane >> 2 & 1);
        tqg_warp_sync();
        TQG_UNROLL
        for (int c = 0; c < TQL_CHUNKS * TQL_KEYS; c++)
            v_scale[c] *= to_half.factor;
% -- Sets of a sub-tile follow those of the one before; of key k of a lane, pairs of gains come as k_gain_pairs has them.
% local set_of = not V_GAINS and (parts > 1 and "c / " .. parts or "c") .. " * SETS"
%     or parts == 1 and "c * SETS" or ("c / %d * SETS + c %% %d * %d"):format(parts, parts, values // 16)
% if V_GAINS then
        tqg_u32 v_gains[TQL_SUB_TILES][4];
        TQG_UNROLL
        for (int c = 0; c < TQL_SUB_TILES; c++) {
            v_gain_pairs(v_tile.gains[c], v_gains[c]);
            TQG_UNROLL
            for (int x = 0; x < 4; x++) {
%     if keys > 1 then
                const float scale = v_scale[${parts > 1 and "c / " .. parts or "c"} * TQL_KEYS + (v_gain_order(2 * x) >> 2)];
%     else
                const float scale = v_scale[c];
%     end
                v_gains[c][x] = tqg_h2_mul(v_gains[c][x], tqg_h2(scale, scale));
            }
        }
% end
        TQG_UNROLL
        for (int h = 0; h < HEADS; h++) {
            float weight[TQL_KEYS];
            TQG_UNROLL
            for (int k = 0; k < TQL_KEYS; k++) {
                weight[k] = tqg_exp2(score[k][h] - of[h].max);
                of[h].sum += weight[k];
            }
            TQG_UNROLL
            for (int c = 0; c < ${V_GAINS and "TQL_SUB_TILES" or "TQL_CHUNKS"}; c++) {
                tqg_u16 *to = weights + (${V_GAINS and set_of or "c * SETS"}) * SET + h * KEYS + place;
% if V_GAINS then
                TQG_UNROLL
                for (int x = 0; x < 4; x++) {
%     if keys > 1 then
                    const int gain = v_gain_order(2 * x) & 3, next_gain = v_gain_order(2 * x + 1) & 3, k = v_gain_order(2 * x) >> 2;
%     else
                    const int gain = v_gain_order(2 * x), next_gain = v_gain_order(2 * x + 1), k = 0;
%     end
                    const tqg_u32 product = tqg_h2_mul(tqg_h2(weight[k], weight[k]), v_gains[c][x]);
                    to[gain * SET + 32 * k] = (tqg_u16)product;
                    to[next_gain * SET + 32 * k] = (tqg_u16)(product >> 16);
                }
% else
                TQG_UNROLL
                for (int k = 0; k < TQL_KEYS; k++)
                    to[32 * k] = tqg_to_half(weight[k] * v_scale[c * TQL_KEYS + k]);
% end
            }
        }
        tqg_warp_sync();

        TQG_UNROLL
        for (int c = 0; c < TQL_SUB_TILES; c++) {
% local of_lane = V_GAINS and (" + (%s >> 2)"):format(keys > 1 and "(lane & 15)" or "lane") or ""
            int from = (${set_of}${of_lane}) * SET${keys > 1 and " + (lane >> 4) * 32" or ""};
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
                    weight[h] = *(const tqg_u4 *)(weights + from + h * KEYS + j * 8);
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
% if keys > 1 then
    TQG_UNROLL
    for (int i = 0; i < HEADS * TQL_SUB_TILES * 4; i++) { /* the other half of the keys */
        float *const x = acc[i / (TQL_SUB_TILES * 4)] + i % (TQL_SUB_TILES * 4);
        *x += tqg_shfl_xor(*x, 16);
    }
% end
    for (int turn = 0; turn < TILE_WARPS; turn++) {
        if (turn == tile_warp) {
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++) {
                if (head + h < GQA${keys > 1 and " && lane < 16" or ""}) {
                    const float share = V_UNIT / to_half.factor * tqg_exp2(of[h].max - result.max[head + h]);
                    TQG_UNROLL
                    for (int i = 0; i < TQL_SUB_TILES * 4; i++) {
                        float *to = result.acc + (head + h) * TQA_V_HEAD_DIM + (i >> 2) * ${values} + lane * 4 + (i & 3);
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
