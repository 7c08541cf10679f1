% local K_GAINS, V_GAINS = k.subs > 0, v.subs > 0
% if once("lane") then

/* ---- tiles of layout tile_lane ---- */
enum {
    TQL_CHUNKS = ${n_chunks},
    TQL_K_LOADS = ${k.bits}, /* of 16 bytes, per lane and chunk */
    TQL_V_LOADS = ${v.bits},
};

% for _, side in ipairs { "k", "v" } do
%     local S, of, gains = side:upper(), side == "k" and k_chunk or v_chunk, side == "k" and K_GAINS or side == "v" and V_GAINS

/* What a lane holds of a ${S} tile, as stored. */
typedef struct tql_${side} {
    tqg_u4 codes[TQL_CHUNKS][TQL_${S}_LOADS];
    tqg_u16 scale[TQL_CHUNKS];
%     if gains then
    tqg_u32 gains[TQL_CHUNKS];
%     end
} tql_${side};

TQG_FN void tql_load_${side}(const tqg_u8 *tile, tql_${side} *t) {
    const int lane = tqg_lane() & 31;
    TQG_UNROLL
    for (int c = 0; c < TQL_CHUNKS; c++) {
        TQG_UNROLL
        for (int i = 0; i < TQL_${S}_LOADS; i++)
            t->codes[c][i] = tqg_load16(tile + c * ${of.bytes} + (i * 32 + lane) * 16);
%     if gains then
        t->gains[c] = *(const tqg_u32 *)(tile + c * ${of.bytes} + ${of.gains} + lane * 4);
%     end
        t->scale[c] = *(const tqg_u16 *)(tile + c * ${of.bytes} + ${of.scales} + lane * 2);
    }
}
% end

TQG_FN tqg_u32 tql_word(const tqg_u4 *loads, int i) {
    const tqg_u4 *x = loads + (i >> 2);
    return (i & 3) == 0 ? x->x : (i & 3) == 1 ? x->y : (i & 3) == 2 ? x->z : x->w;
}

/* Unit j of a lane's words of a chunk. */
TQG_FN void tql_unit(const tqg_u4 *loads, int j, int words, tqg_u32 *w) {
    TQG_UNROLL
    for (int i = 0; i < words; i++)
        w[i] = tql_word(loads, words * j + i);
}

%     if K_GAINS then
/* Gain of values 16 number to 16 number + 15 of a chunk. */
TQG_FN float tql_gain(const tqg_u32 *gains, int number) {
    float gain = 0.0f;
    TQG_UNROLL
    for (int i = 0; i < 8; i++) {
        if (k_gain_order(i) == number)
            gain = i & 1 ? tqg_h2_hi(gains[i >> 1]) : tqg_h2_lo(gains[i >> 1]);
    }
    return gain;
}

%     end
%     for _, side in ipairs { { "k", k }, { "v", v } } do
/* A unit's words to 4 words of 8 codes. K: as those of rows; V: nibbles[u] is quad u of a word's two atoms. In tiles, 4-bit
 * codes are sign and magnitude. */
TQG_FN void tql_${side[1]}_nibbles(const tqg_u32 *w, tqg_u32 *nibbles) {
%         if side[2].bits == 4 then
    TQG_UNROLL
    for (int i = 0; i < 4; i++)
        nibbles[i] = w[i];
%         else
    ${side[1]}_nibbles(w, nibbles);
%         end
}

%     end
% end

/* Decode over tiles of layout tile_lane. A warp takes a tile of 32 keys and ${shape.heads} of the group's ${gqa} query heads:
 *   K.q  a lane is a key: it decodes its row in registers and multiplies it with q, which is the same for all lanes;
 *   P.V  a lane is 4 values of each chunk of 128: it decodes them for all keys and multiplies them with the weights of the
 *        keys, which come through shared memory.
 * The next tile is loaded into registers meanwhile. Warps share nothing until the end. */
TQG_KERNEL(${symbol}, tqg_decode_params, ${geometry.threads}, ${geometry.blocks_per_sm}) {
    enum {
        GQA = ${gqa},
        HEADS = ${shape.heads}, /* of a warp */
        GROUPS = ${shape.groups},
        TILE_WARPS = ${shape.tile_warps},
        THREADS = ${geometry.threads},
        CHUNKS = ${n_chunks},
        SETS = ${weights.sets}, /* of weights, per chunk: one for the values that share a scale */
        SET = ${weights.set_halves}, /* halves */
    };
    const float V_TOP = ${V_GAINS and "0x1p14f" or "0x1p10f"}; /* of scales as halves */
    const tqa_range r = tqa_range_of(&p, 32);
    if (tqa_idle(&r))
        return;
    const int warp = tqg_warp(), lane = tqg_lane(), tile_warp = warp / GROUPS, head = (warp - tile_warp * GROUPS) * HEADS;
    float *shared = (float *)TQG_SHARED;

    /* q as halves in the order in which K is decoded, in global memory, where loads of a uniform address are cheapest */
    tqa_prepare_q(&p, &r, GQA, THREADS, shared);
    const float q_to_half = tqa_normalise(tqa_largest(shared, GQA * TQA_HEAD_DIM), 0x1p10f);
    tqg_u32 *halves = tqa_workspace(&p, &r, GQA);
    for (int i = tqg_thread(); i < GROUPS * HEADS * TQA_HEAD_DIM / 2; i += THREADS) { /* [group][8 values][head][4 pairs] */
        const int part = i / (HEADS * 4), group = part / (TQA_HEAD_DIM / 8), of = i - part * (HEADS * 4);
        const int h = group * HEADS + (of >> 2), eight = part - group * (TQA_HEAD_DIM / 8), pair = (eight & 3) * 4 + (of & 3);
        const float *values = shared + h * TQA_HEAD_DIM + (eight >> 2) * 32;
        const float a = values[k_value(2 * pair)] * q_to_half, b = values[k_value(2 * pair + 1)] * q_to_half;
        halves[i] = h < GQA ? tqg_h2(a, b) : 0;
    }
    const tqg_uniform_words all_q = tqg_publish(halves) + head * (TQA_HEAD_DIM / 2);
    const float k_unit = K_UNIT / q_to_half;

    const tqa_cache k = tqa_cache_of(&p.k, r.sequence, r.kv_head, 32), v = tqa_cache_of(&p.v, r.sequence, r.kv_head, 32);
    const int has_options = tqa_has_options(&p), end = r.last >> 5;
    tqg_u16 *weights = (tqg_u16 *)TQG_SHARED + warp * (CHUNKS * SETS * SET);
    float acc[HEADS][CHUNKS * 4], max[HEADS], limit[HEADS], sum[HEADS], v_to_half = 0x1p100f, v_limit = 0.0f;
    TQG_UNROLL
    for (int h = 0; h < HEADS; h++) {
        max[h] = limit[h] = TQA_NO_MAX;
        sum[h] = 0.0f;
        TQG_UNROLL
        for (int i = 0; i < CHUNKS * 4; i++)
            acc[h][i] = 0.0f;
    }

    tql_k k_tile;
    tql_v v_tile;
    int tile = (r.first >> 5) + tile_warp;
    if (tile < end) {
        tql_load_k(tqa_unit(&k, tile), &k_tile);
        tql_load_v(tqa_unit(&v, tile), &v_tile);
    }
    TQG_NO_UNROLL
    while (tile < end) {
        const int slot = tile * 32 + lane, next = tile + TILE_WARPS < end ? tile + TILE_WARPS : tile;
        const tqg_u8 *k_next = tqa_unit(&k, next), *v_next = tqa_unit(&v, next);
        float score[HEADS], last[HEADS] = {0}, before[HEADS] = {0};
        tqg_uniform_words q = all_q;
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++) {
            float dot[HEADS];
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++)
                dot[h] = 0.0f;
% if K_GAINS then
            tqg_u32 gains[4];
            k_gain_pairs(k_tile.gains[c], gains);
% end
            TQG_UNROLL
            for (int j = 0; j < 4; j++) {
                tqg_u32 w[K_UNIT_WORDS], nibbles[4];
                tql_unit(k_tile.codes[c], j, K_UNIT_WORDS, w);
                tql_k_nibbles(w, nibbles);
                TQG_UNROLL
                for (int run = 0; run < 2; run++) { /* of 16 values */
                    float part[HEADS];
                    TQG_UNROLL
                    for (int h = 0; h < HEADS; h++)
                        part[h] = ${K_GAINS and "0.0f" or "dot[h]"};
                    TQG_UNROLL
                    for (int i = 2 * run; i < 2 * run + 2; i++) {
                        tqg_u32 pairs[4];
                        k_pairs(nibbles[i], pairs);
                        TQG_UNROLL
                        for (int h = 0; h < HEADS; h++) {
                            q = tqg_reread(q, before[h]);
                            before[h] = last[h];
                        }
                        TQG_UNROLL
                        for (int h = 0; h < HEADS; h++) {
                            TQG_UNROLL
                            for (int x = 0; x < 4; x++)
                                part[h] = tqg_dot2(pairs[x], tqg_uniform(q + ((c * 16 + j * 4 + i) * HEADS + h) * 4 + x), part[h]);
                            last[h] = part[h];
                        }
                    }
                    TQG_UNROLL
                    for (int h = 0; h < HEADS; h++)
                        dot[h] = ${K_GAINS and "tqg_fma(part[h], tql_gain(gains, 2 * j + run), dot[h])" or "part[h]"};
                }
            }
            const float scale = tqg_half(k_tile.scale[c]) * k_unit;
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++)
                score[h] = c == 0 ? dot[h] * scale : tqg_fma(dot[h], scale, score[h]);
        }
        tql_load_k(k_next, &k_tile);
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

        /* Maxima follow only where weights would leave the range of halves: then all of them do. */
        int rises = 0;
        TQG_UNROLL
        for (int h = 0; h < HEADS; h++)
            rises |= score[h] > limit[h];
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++)
            rises |= tqg_abs(v_scale[c]) > v_limit;
        if (tqg_any(rises)) {
            float largest = 0.0f;
            TQG_UNROLL
            for (int c = 0; c < CHUNKS; c++)
                largest = tqg_max(largest, tqg_abs(v_scale[c]));
            const float to_half = tqg_min(v_to_half, tqa_normalise(tqa_warp_max(largest), V_TOP / 4));
            const float ratio = to_half / v_to_half;
            v_to_half = to_half;
            v_limit = V_TOP / to_half;
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++) {
                const float now = tqg_max(max[h], tqa_warp_max(score[h])), keep = tqg_exp2(max[h] - now);
                max[h] = now;
                limit[h] = now + TQA_SLACK;
                sum[h] *= keep;
                TQG_UNROLL
                for (int i = 0; i < CHUNKS * 4; i++)
                    acc[h][i] *= keep * ratio;
            }
        }

        /* weights of the keys, in pairs as the values of V come: key k of its group of 8 beside key k + 4 */
        const int place = (lane & 24) + 2 * (lane & 3) + (lane >> 2 & 1);
        tqg_warp_sync();
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++)
            v_scale[c] *= v_to_half;
% if V_GAINS then
        tqg_u32 v_gains[CHUNKS][4];
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++) {
            const tqg_u32 scale = tqg_h2(v_scale[c], v_scale[c]);
            v_gain_pairs(v_tile.gains[c], v_gains[c]);
            TQG_UNROLL
            for (int x = 0; x < 4; x++)
                v_gains[c][x] = tqg_h2_mul(v_gains[c][x], scale);
        }
% end
        TQG_UNROLL
        for (int h = 0; h < HEADS; h++) {
            const float weight = tqg_exp2(score[h] - max[h]);
            sum[h] += weight;
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
                tqg_u32 w[V_UNIT_WORDS], nibbles[4], weight[HEADS][4];
                TQG_UNROLL
                for (int h = 0; h < HEADS; h++) {
                    from = tqg_after(from, before[h]);
                    before[h] = acc[h][c * 4];
                }
                TQG_UNROLL
                for (int h = 0; h < HEADS; h++) {
                    const tqg_u4 x = *(const tqg_u4 *)(weights + from + h * 32 + j * 8);
                    weight[h][0] = x.x;
                    weight[h][1] = x.y;
                    weight[h][2] = x.z;
                    weight[h][3] = x.w;
                }
                tql_unit(v_tile.codes[c], j, V_UNIT_WORDS, w);
                tql_v_nibbles(w, nibbles);
                TQG_UNROLL
                for (int u = 0; u < 4; u++) {
                    TQG_UNROLL
                    for (int half = 0; half < 2; half++) {
                        tqg_u32 lo, hi;
                        v_bytes(nibbles[u], half, &lo, &hi);
                        const tqg_u32 a = tqg_zip02(lo, hi), b = tqg_zip13(lo, hi);
                        TQG_UNROLL
                        for (int h = 0; h < HEADS; h++) {
                            float *of_a = &acc[h][c * 4 + (TQG_NIBBLE(half, 0) & 3)], *of_b = &acc[h][c * 4 + (TQG_NIBBLE(half, 1) & 3)];
                            *of_a = tqg_dot2(a, weight[h][u], *of_a);
                            *of_b = tqg_dot2(b, weight[h][u], *of_b);
                        }
                    }
                }
            }
        }
        tql_load_v(v_next, &v_tile);
        tile += TILE_WARPS;
    }

    /* Warps to block: maxima and sums first, then each warp adds its share to the block's result, one after the other. */
    TQG_UNROLL
    for (int h = 0; h < HEADS; h++)
        sum[h] = tqa_warp_sum(sum[h]);
    tqg_block_sync();
    const tqa_result result = tqa_result_at(shared, GQA);
    float *part_max = result.keep + GQA, *part_sum = part_max + TILE_WARPS * GQA;
    TQG_UNROLL
    for (int h = 0; h < HEADS; h++) {
        if (lane == 0 && head + h < GQA) {
            part_max[tile_warp * GQA + head + h] = max[h];
            part_sum[tile_warp * GQA + head + h] = sum[h];
        }
    }
    tqa_merge_maxima(&result, GQA, TILE_WARPS, THREADS, part_max, part_sum);
    const float unit = V_UNIT / v_to_half;
    for (int turn = 0; turn < TILE_WARPS; turn++) {
        if (turn == tile_warp) {
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++) {
                if (head + h < GQA) {
                    const float share = unit * tqg_exp2(max[h] - result.max[head + h]);
                    TQG_UNROLL
                    for (int i = 0; i < CHUNKS * 4; i++) {
                        float *to = result.acc + (head + h) * TQA_HEAD_DIM + (i >> 2) * 128 + lane * 4 + (i & 3);
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
