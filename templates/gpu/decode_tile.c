% local CODEBOOK_K, CODEBOOK_V = k.bits < 8, v.bits < 8
% local BYTES = variant.k_path == "i8"
% local SCALED = rows.scales > 0 and not (CODEBOOK_V and v.subs > 0)
% local K_GAINS, V_GAINS = CODEBOOK_K and k.subs > 0, CODEBOOK_V and v.subs > 0
% local heads = shape.heads
% local visible = bias > 0 and "visible" or "tqa_is_visible(&r, slot + lane)" -- where compilers make least of it

/* Decode over rows. A warp takes ${warp} keys and ${heads} of the group's ${gqa} query heads. The K rows, then the V rows of these keys are
 * copied to shared memory as they are${rows.prefetch and ", from registers into which they were loaded a step ahead" or ""}. Then
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
        SET = ${shape.set_halves}, /* halves */
        PARTS = ${rows.parts}, /* lanes that share a column: each takes other keys */
        PER_LANE = ${rows.per_lane}, /* columns of 8 values */
    };
    const tqa_range r = tqa_range_of(&p, KEYS);
    if (tqa_idle(&r))
        return;
    const int warp = tqg_warp(), lane = tqg_lane(), row_warp = warp / GROUPS, head = (warp - row_warp * GROUPS) * HEADS;
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

    const int k_dense = tqt_k_is_dense(&p.k), v_dense = tqt_v_is_dense(&p.v), has_options = tqa_has_options(&p);
    tqg_u8 *region = TQG_SHARED + warp * ${shape.bytes};
% if bias > 0 then
    tqg_u32 *turned = (tqg_u32 *)(region + REGION + SETS * SET * 2);
    tqb_lane coefficients;
    tqb_load(&p.bias, tqa_coefficients(&p, &r, GQA) + head * p.bias.head_stride, HEADS, GQA - head, PAIRS, p.factor,
             &coefficients);
    tqb_stride(&coefficients, ROW_WARPS * KEYS);
% end
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
    const int when_done = ${bias > 0 and "tqg_after(row_warp + ROW_WARPS * r.split, k_unit); /* not in scalar registers, which the loop needs */" or "row_warp + ROW_WARPS * r.split;"}
% if rows.prefetch then
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
        const int n = tqt_n(&r, slot), edge = tqa_is_edge(&r, slot, KEYS)${bias > 0 and ", visible = tqa_is_visible(&r, slot + lane)" or ""};
% if rows.prefetch then
        const int next = slot + ROW_WARPS * KEYS < r.last ? slot + ROW_WARPS * KEYS : slot, next_n = tqt_n(&r, next);
        const tqg_u8 *k_next = tqa_unit_of(&tqg_again(p)->k, 1, next), *v_next = tqa_unit_of(&tqg_again(p)->v, 1, next);
% end
% for _, part in ipairs { { "k", "K" }, { "v", "V" } } do
%     local p, P = part[1], part[2]

        /* ${P} */
        tqg_warp_sync();
%     if p == "k" and bias > 0 then
        tqb_turn_on(&coefficients, slot);
        tqb_pass(&coefficients, TQB_RUNS, HEADS, PAIRS, turned);
%     end
%     if rows.prefetch then
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
        TQG_UNROLL
        for (int h = 0; h < HEADS; h++)
            score[h] = 0.0f;
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
                score[h] = tqg_fma(dot[h], tqg_half(tqt_half(k_row + b * K_BLOCK_BYTES)), score[h]);
%         else
                score[h] = dot[h];
%         end
            }
        }
        TQG_UNROLL
        for (int h = 0; h < HEADS; h++)
            score[h] *= k_unit;
%         if bias > 0 then
        tqb_add(turned, HEADS, PAIRS, bias_table, score);
%         end
%         if rows.prefetch then
        tqt_k_load(k_next, k_dense ? next_n : 1, k_words);
%         end
        if (has_options) {
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++)
                score[h] = tqa_score(tqg_again(p), &r, tqa_alibi(tqg_again(p), &r, GQA, head + h), score[h], slot + lane);
        }
        if (edge && !${visible}) {
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++)
                score[h] = TQA_MINUS_INFINITY;
        }
%     end
% end
%     if rows.prefetch then
        tqt_v_load(v_next, v_dense ? next_n : 1, v_words);
%     end
%     if rows.scales > 0 then
        tqg_u16 v_scale[V_N_BLOCKS];
        TQG_UNROLL
        for (int b = 0; b < V_N_BLOCKS; b++)
            v_scale[b] = tqt_half(v_row + b * V_BLOCK_BYTES);
        if (edge && !${visible}) {
            TQG_UNROLL
            for (int b = 0; b < V_N_BLOCKS; b++)
                v_scale[b] = 0;
        }
%     else
        if (edge && !${visible}) { /* whatever lies there must not be NaN */
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
% if v.bits == 16 and rows.per_lane > 1 then
                const int first = tqg_after(v_first, acc[0][c * 8]); /* few rows at a time: all of them do not fit registers */
% else
                const int first = v_first;
% end
                tqt_v_keys(region, column, first + (i * PARTS + part) * (4 * TQT_V_STRIDE), pairs);
                TQG_UNROLL
                for (int h = 0; h < HEADS; h++) {
                    TQG_UNROLL
                    for (int run = 0; run < ${V_GAINS and 2 or 1}; run++) {
                        const tqg_u32 *of_keys = (const tqg_u32 *)(weights + (column->set${V_GAINS and " + run * column->next_set" or ""}) * SET + h * KEYS + key);
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
    const int late_split = when_done / ROW_WARPS, late_warp = when_done % ROW_WARPS;
    tqg_block_sync();
    const tqa_result result = tqa_result_at(shared, GQA);
% if SCALED then
    TQG_UNROLL
    for (int h = 0; h < HEADS; h++)
        of[h].sum /= to_half.factor;
% end
    tqd_merge(&result, of, late_warp, ROW_WARPS, head, HEADS, GQA, THREADS);
    const float unit = ${rows.scales > 0 and "V_UNIT / to_half.factor" or "V_UNIT"};
    for (int turn = 0; turn < ROW_WARPS; turn++) {
        if (turn == late_warp && part == 0) {
            TQG_UNROLL
            for (int h = 0; h < HEADS; h++) {
                if (head + h < GQA) {
                    const float share = unit * tqg_exp2(of[h].max - result.max[head + h]);
                    TQG_UNROLL
                    for (int i = 0; i < PER_LANE * 8; i++) {
                        const int value = tqt_value(lane + (i >> 3) * TQG_WARP, i & 7);
                        float *to = result.acc + (head + h) * TQA_V_HEAD_DIM + value;
                        if (value >= 0)
                            *to = tqg_fma(acc[h][i], share, turn == 0 ? 0.0f : *to);
                    }
                }
            }
        }
        tqg_block_sync();
    }
    tqa_range late = tqa_range_of(tqg_again(p), KEYS);
    late.split = late_split;
    tqa_finish(tqg_again(p), &late, &result, GQA, THREADS);
}
