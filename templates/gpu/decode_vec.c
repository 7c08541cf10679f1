% local function quad_function(f, p, P)
%     local per_block = f.bits < 16 and f.full_units + (f.tail and 1 or 0) or 0

/* ---- slices of rows, of ${f.format} ---- */

/* Four values of a row: quad x of it, in the order in which ${p}_value counts. Returns them as two pairs; weight: the stored
 * scale${f.bits < 8 and f.subs > 0 and " times the gain" or ""} that they share. */
TQG_FN float tqv_${p}_quad(const tqg_u8 *row, int x, tqg_u32 *pairs) {
%     if f.bits == 16 then
    tqg_words_at(row + 8 * x, 4, pairs);
    return 1.0f;
%     else
    const int unit = x >> 3, block = unit / ${per_block}, in_block = unit - block * ${per_block};
    const tqg_u8 *first = row + block * ${P}_BLOCK_BYTES;
    float weight = tqg_half((tqg_u16)tqg_u16_at(first));
%         if f.bits == 8 then
    tqg_u32 word;
    tqg_words_at(first + ${P}_HEADER + 4 * (x & 7) + 32 * in_block, 2, &word);
    word ^= 0x80808080u; /* below 0x64: 1024 + 128 + value */
    pairs[0] = tqg_h2_add(tqg_zip01(word, 0x64646464u), 0xe480e480u);
    pairs[1] = tqg_h2_add(tqg_zip23(word, 0x64646464u), 0xe480e480u);
%         else
    const tqg_u8 *payload = first + ${P}_HEADER + in_block * (4 * ${P}_UNIT_WORDS);
    tqg_u32 words[4], nibbles[4], lo, hi;
%             if f.tail and per_block == 1 then
    tqg_words_at(payload, ${f.bits}, words);
    ${p}_tail_nibbles(words, nibbles);
%             elseif f.tail then
    if (in_block < ${P}_UNITS) {
        tqg_words_at(payload, 2 * ${P}_UNIT_WORDS, words);
        ${p}_nibbles(words, nibbles);
    } else {
        tqg_words_at(payload, ${f.bits}, words);
        ${p}_tail_nibbles(words, nibbles);
    }
%             else
    tqg_words_at(payload, 2 * ${P}_UNIT_WORDS, words);
    ${p}_nibbles(words, nibbles);
%             end
    const int number = x >> 1 & 3;
    const tqg_u32 low = number & 1 ? nibbles[1] : nibbles[0];
%             if f.tail and per_block == 1 then
    ${p}_bytes(low, x & 1, &lo, &hi);
%             else
    const tqg_u32 high = number & 1 ? nibbles[3] : nibbles[2];
    ${p}_bytes(number & 2 ? high : low, x & 1, &lo, &hi);
%             end
    pairs[0] = tqg_zip01(lo, hi);
    pairs[1] = tqg_zip23(lo, hi);
%             if f.subs > 0 then
    const int sub = (x - block * ${f.block // 4}) >> 2;
    weight *= ${p}_gain_at(tqg_u16_at(first + 2 + 2 * (sub >> 2)) >> 4 * (sub & 3) & 15);
%             end
%         end
    return weight;
%     end
}
% end
% if once("vec") then
%     quad_function(k, "k", "K")
%     quad_function(v, "v", "V")
% end

/* Decode by vectors, the straightforward way: a warp has one query head; KQ lanes share the product of a key, so that a warp
 * takes several keys at a time; then each group of lanes adds up its quads of the values of the keys that are its. */
TQG_KERNEL(${symbol}, tqg_decode_params, ${geometry.threads}, ${geometry.blocks_per_sm}) {
    enum {
        GQA = ${gqa},
        THREADS = ${geometry.threads},
        KQ = ${variant.kq_lanes},
        KEYS = TQG_WARP / KQ, /* at a time */
        KEY_WARPS = ${key_warps}, /* of a head */
        QUADS = TQA_HEAD_DIM / 4, /* of a row of K */
        V_ROW_QUADS = TQA_V_HEAD_DIM / 4,
        K_QUADS = ${k_quads}, /* of a lane */
        V_LANES = ${v_lanes}, /* that share a row of V */
        V_QUADS = ${v_quads},
        V_GROUPS = TQG_WARP / V_LANES,
    };
    const tqa_range r = tqa_range_of(&p, ${geometry.keys_per_step});
    if (tqa_idle(&r))
        return;
    const int lane = tqg_lane(), head = tqg_warp() / KEY_WARPS, key_warp = tqg_warp() - head * KEY_WARPS;
    const int k_lane = lane % KQ, k_group = lane / KQ, v_lane = lane % V_LANES, v_group = lane / V_LANES;
    float *shared = (float *)TQG_SHARED;

    /* q of the lane's quads, as halves in the order in which K is decoded; behind the row's end, zeros */
    tqa_prepare_q(&p, &r, GQA, THREADS, shared);
    const float q_to_half = tqa_normalise(tqa_largest(shared, GQA * TQA_HEAD_DIM), 0x1p10f);
    const float k_unit = K_UNIT / q_to_half;
    tqg_u32 q[2 * K_QUADS];
    TQG_UNROLL
    for (int i = 0; i < 2 * K_QUADS; i++) {
        const int x = k_lane * (2 * K_QUADS) + i; /* pair of the row */
        const float *unit = shared + head * TQA_HEAD_DIM + (x >> 4) * 32;
        q[i] = 0;
        if (x < 2 * QUADS)
            q[i] = tqg_h2(unit[k_value(2 * (x & 15))] * q_to_half, unit[k_value(2 * (x & 15) + 1)] * q_to_half);
    }
    tqg_block_sync();

    const tqa_cache k = tqa_cache_of(&p.k, r.sequence, r.kv_head, 1), v = tqa_cache_of(&p.v, r.sequence, r.kv_head, 1);
    const float alibi = tqa_alibi(&p, &r, GQA, head);
% if bias > 0 then
    /* The lanes of a key share its pairs; coefficients are turned by the lanes whose number is a pair's. */
    enum { PAIRS = ${bias} };
    float *bias_table = (float *)(TQG_SHARED + ${geometry.shared_bytes - attention.bias_floats(variant)});
    tqb_table(&p.bias, PAIRS, THREADS, bias_table);
    tqg_block_sync();
    tqb_lane coefficients;
    tqb_load(&p.bias, tqa_coefficients(&p, &r, GQA) + head * p.bias.head_stride, 1, 1, PAIRS, p.factor, &coefficients);
% end
    const int has_options = tqa_has_options(&p);
    float acc[4 * V_QUADS], max = TQA_NO_MAX, sum = 0.0f;
    TQG_UNROLL
    for (int i = 0; i < 4 * V_QUADS; i++)
        acc[i] = 0.0f;

    TQG_NO_UNROLL
    for (int first = r.first + key_warp * KEYS; first < r.last; first += KEY_WARPS * KEYS) {
        const int slot = first + k_group;
        const tqg_u8 *k_row = tqa_unit(&k, tqa_clamp(&r, slot));
        float score = 0.0f;
        TQG_UNROLL
        for (int i = 0; i < K_QUADS; i++) {
            const int x = k_lane * K_QUADS + i;
            tqg_u32 pairs[2];
            const float weight = tqv_k_quad(k_row, x < QUADS ? x : QUADS - 1, pairs);
            score = tqg_fma(tqg_dot2(pairs[1], q[2 * i + 1], tqg_dot2(pairs[0], q[2 * i], 0.0f)), weight, score);
        }
        TQG_UNROLL
        for (int mask = 1; mask < KQ; mask *= 2)
            score += tqg_shfl_xor(score, mask);
        score *= k_unit;
% if bias > 0 then
        float bias = 0.0f;
        tqb_turn(&coefficients, first / TQB_RUN * TQB_RUN);
        const tqb_pair turned = tqb_of_run(&coefficients, 0, 0);
        TQG_UNROLL
        for (int i = 0; i < (PAIRS + KQ - 1) / KQ; i++) {
            const int pair = (k_lane + i * KQ) % PAIRS;
            const float a = tqg_shfl(turned.a, pair), b = tqg_shfl(turned.b, pair);
            const float *const at = bias_table + pair * (2 * TQB_RUN) + slot % TQB_RUN;
            if (k_lane + i * KQ < PAIRS)
                bias = tqg_fma(a, at[0], tqg_fma(b, at[TQB_RUN], bias));
        }
        TQG_UNROLL
        for (int mask = 1; mask < KQ; mask *= 2)
            bias += tqg_shfl_xor(bias, mask);
        score += bias;
% end
        if (has_options)
            score = tqa_score(tqg_again(p), &r, alibi, score, slot);
        if (!tqa_is_visible(&r, slot))
            score = TQA_MINUS_INFINITY;

        if (tqg_any(score > max + TQA_SLACK)) {
            const float now = tqg_max(max, tqa_warp_max(score)), keep = tqg_exp2(max - now);
            max = now;
            sum *= keep;
            TQG_UNROLL
            for (int i = 0; i < 4 * V_QUADS; i++)
                acc[i] *= keep;
        }
        const float share = tqg_exp2(score - max);
        sum += share;

        TQG_UNROLL
        for (int j = 0; j < (KEYS + V_GROUPS - 1) / V_GROUPS; j++) {
            const int key = j * V_GROUPS + v_group;
            float of_key = tqg_shfl(share, (key < KEYS ? key : 0) * KQ);
            if (key >= KEYS)
                of_key = 0.0f;
            const tqg_u8 *v_row = tqa_unit(&v, tqa_clamp(&r, first + (key < KEYS ? key : 0)));
            TQG_UNROLL
            for (int i = 0; i < V_QUADS; i++) {
                const int x = v_lane * V_QUADS + i;
                tqg_u32 pairs[2];
                const float weight = of_key * tqv_v_quad(v_row, x < V_ROW_QUADS ? x : V_ROW_QUADS - 1, pairs);
                TQG_UNROLL
                for (int e = 0; e < 2; e++) {
                    acc[4 * i + 2 * e] = tqg_fma(tqg_h2_lo(pairs[e]), weight, acc[4 * i + 2 * e]);
                    acc[4 * i + 2 * e + 1] = tqg_fma(tqg_h2_hi(pairs[e]), weight, acc[4 * i + 2 * e + 1]);
                }
            }
        }
    }

    /* Lanes to warp: each key's weight stands in all KQ lanes. Warps to block, one after the other. */
    TQG_UNROLL
    for (int mask = KQ; mask < TQG_WARP; mask *= 2)
        sum += tqg_shfl_xor(sum, mask);
    TQG_UNROLL
    for (int mask = V_LANES; mask < TQG_WARP; mask *= 2) {
        TQG_UNROLL
        for (int i = 0; i < 4 * V_QUADS; i++)
            acc[i] += tqg_shfl_xor(acc[i], mask);
    }
    const tqa_result result = tqa_result_at(shared, GQA);
    float *part_max = result.keep + GQA, *part_sum = part_max + KEY_WARPS * GQA;
    if (lane == 0) {
        part_max[key_warp * GQA + head] = max;
        part_sum[key_warp * GQA + head] = sum;
    }
    tqa_merge_maxima(&result, GQA, KEY_WARPS, THREADS, part_max, part_sum);
    const float unit = V_UNIT * tqg_exp2(max - result.max[head]);
    for (int turn = 0; turn < KEY_WARPS; turn++) {
        if (turn == key_warp && v_group == 0) {
            TQG_UNROLL
            for (int i = 0; i < 4 * V_QUADS; i++) {
                const int x = v_lane * (4 * V_QUADS) + i; /* number of the value as V is decoded */
                if (x < TQA_V_HEAD_DIM) {
                    float *to = result.acc + head * TQA_V_HEAD_DIM + (x & ~31) + v_value(x & 31);
                    *to = tqg_fma(acc[i], unit, turn == 0 ? 0.0f : *to);
                }
            }
        }
        tqg_block_sync();
    }
    const tqa_range late = tqa_range_of(tqg_again(p), ${geometry.keys_per_step});
    tqa_finish(tqg_again(p), &late, &result, GQA, THREADS);
}
