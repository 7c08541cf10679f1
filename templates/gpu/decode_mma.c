% local n_chunks, columns = head_dim // 128, mma.columns
% local finished = k.subs > 0 or n_chunks > 1 -- are scores complete, or still to be multiplied with a scale?
% assert(head_dim % 128 == 0 and k.rotated and v.rotated, "tiles hold chunks of 128 values")
/* ${mma.doc} */
TQG_KERNEL(${symbol}, tqg_decode_params, ${geometry.threads}, ${geometry.blocks_per_sm}) {
    enum {
        GQA = ${gqa},
        WARPS = ${mma.warps},
        THREADS = WARPS * TQG_WARP,
        CHUNKS = ${n_chunks},
        GROUPS = ${mma.groups}, /* of columns of B */
        EACH = ${mma.split_q and 2 or 1}, /* columns of a head: of q rounded, and of what that left */
        Q_REGISTERS = CHUNKS * TQM_STEPS * TQG_MMA_B,
        OUTPUTS = CHUNKS * TQM_OUTPUTS,
        SLOTS = TQM_COLUMNS / EACH, /* heads that a lane has scores of, per group */
        WEIGHT_BITS = ${v.subs > 0 and 19 or 15}, /* gains are below 2^-4 */
        Q_BYTES = GQA * TQA_HEAD_DIM * 4,
        GAIN_BYTES = CHUNKS * (${k.subs > 0 and "TQM_K_GAIN_BYTES" or "0"} + ${v.subs > 0 and "TQM_V_GAIN_BYTES" or "0"}),
% if mma.ring then
        STAGES = ${mma.stages},
        STAGE_BYTES = K_TILE_BYTES + V_TILE_BYTES,
% end
    };
    const tqa_range range = tqa_range_of(&p, WARPS * TQM_KEYS);
    if (tqa_idle(&range))
        return;
    const tqa_cache k_cache = tqa_cache_of(&p.k, range.sequence, range.kv_head, TQM_KEYS);
    const tqa_cache v_cache = tqa_cache_of(&p.v, range.sequence, range.kv_head, TQM_KEYS);
    const int warp = (int)tqg_shfl_u((tqg_u32)tqg_warp(), 0);

    /* Warps take tiles in turn, each for itself. */
    const int end = ((range.last < range.n_kv ? range.last : range.n_kv) + TQM_KEYS - 1) / TQM_KEYS;
    int tile = range.first / TQM_KEYS + warp;
    if ((tile + 1) * TQM_KEYS <= range.begin)
        tile += WARPS;

% if k.subs + v.subs > 0 then
    unsigned char *const gains = TQG_SHARED + Q_BYTES + warp * GAIN_BYTES;
%     if v.subs > 0 then
    unsigned char *const v_gains = gains + ${k.subs > 0 and "CHUNKS * TQM_K_GAIN_BYTES" or "0"};
%     end
% end
% if mma.ring then
    tqm_ring ring;
    tqm_ring_init(&ring, TQG_SHARED + Q_BYTES + WARPS * GAIN_BYTES + warp * STAGES * (STAGE_BYTES + TQM_BAR_BYTES), STAGES,
                  STAGE_BYTES);
    const int paged = k_cache.pages || v_cache.pages;
    int ahead = tile; /* to be copied next, from here if not paged */
    const unsigned char *k_from = k_cache.first + (tqg_u64)(tqg_u32)tile * k_cache.unit_stride;
    const unsigned char *v_from = v_cache.first + (tqg_u64)(tqg_u32)tile * v_cache.unit_stride;
    for (int i = 0; i < STAGES - 1; i++) {
        if (ahead < end)
            tqm_ring_fill(&ring, tqa_unit(&k_cache, ahead), K_TILE_BYTES, tqa_unit(&v_cache, ahead), V_TILE_BYTES);
        ahead += WARPS;
        k_from += WARPS * (tqg_u64)k_cache.unit_stride;
        v_from += WARPS * (tqg_u64)v_cache.unit_stride;
        ring.fill = tqm_ring_next(ring.fill, STAGES, STAGE_BYTES);
    }
% else
    k_part k[CHUNKS];
    v_part v[CHUNKS];
    if (tile < end) {
        const unsigned char *k_tile = tqa_unit(&k_cache, tile), *v_tile = tqa_unit(&v_cache, tile);
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++) {
            k_load_words(0, k_tile + c * K_SUBTILE_BYTES, k + c);
            k_load_scales(0, k_tile + c * K_SUBTILE_BYTES, k + c);
            v_load_words(0, v_tile + c * V_SUBTILE_BYTES, v + c);
            v_load_scales(0, v_tile + c * V_SUBTILE_BYTES, v + c);
        }
    }
% end

    /* q, in units of 1 / q_unit, which is 1 unless halves need another. */
    float *const q_shared = (float *)TQG_SHARED;
    tqa_prepare_q(&p, &range, GQA, THREADS, q_shared);
    const float largest = tqa_largest(q_shared, GQA * TQA_HEAD_DIM) * K_UNIT;
    const float q_unit = largest >= 0x1p-3f && largest < 0x1p14f ? 1.0f : tqa_normalise(largest, 0x1p6f);
    tqg_u32 q[GROUPS * Q_REGISTERS];
    TQG_UNROLL
    for (int i = 0; i < GROUPS * Q_REGISTERS; i++) {
        const int chunk = i % Q_REGISTERS / (TQM_STEPS * TQG_MMA_B), step = i / TQG_MMA_B % TQM_STEPS;
        const int column = i / Q_REGISTERS * TQG_MMA_N + tqm_b_column(), head = column / EACH;
        float x[2];
        TQG_UNROLL
        for (int e = 0; e < 2; e++) {
            const int value = chunk * TQM_CHUNK + tqm_tile_value(step, i % TQG_MMA_B, e);
            x[e] = head < GQA ? q_shared[head * TQA_HEAD_DIM + value] * (K_UNIT * q_unit) : 0.0f;
% if mma.split_q then
            if (column & 1)
                x[e] = (x[e] - tqg_half(tqg_to_half(x[e]))) * 0x1p11f;
% end
        }
        q[i] = tqg_h2(x[0], x[1]);
    }

    /* Tiles from `plain` on, n_plain of them, have nothing but visible keys and scores without options. */
    const int plain = (range.begin + TQM_KEYS - 1) / TQM_KEYS;
    const int n_plain = tqa_has_options(&p) || q_unit != 1.0f ? 0 : range.n_kv / TQM_KEYS - plain;

    float max[GROUPS * SLOTS], sum[GROUPS * SLOTS], o[GROUPS * OUTPUTS];
    TQG_UNROLL
    for (int i = 0; i < GROUPS * SLOTS; i++) {
        max[i] = TQA_NO_MAX;
        sum[i] = 0.0f;
    }
    TQG_UNROLL
    for (int i = 0; i < GROUPS * OUTPUTS; i++)
        o[i] = 0.0f;
    /* Scales of V stay below 2^scale_bits and weights below 2^(WEIGHT_BITS - scale_bits): their products are halves. */
    int scale_bits = WEIGHT_BITS - 13;

    tqg_u32 k_bytes_of[4]${k.format ~= v.format and ", v_bytes_of[4]" or ""};
    k_table(k_bytes_of);
    tqm_keep(k_bytes_of);
% if k.format ~= v.format then
    v_table(v_bytes_of);
    tqm_keep(v_bytes_of);
% else
    const tqg_u32 *const v_bytes_of = k_bytes_of;
% end

    TQG_NO_UNROLL
    while (tile < end) {
% if mma.ring then
        k_part k[CHUNKS];
        v_part v[CHUNKS];
% end
        const int special = (tqg_u32)(tile - plain) >= (tqg_u32)n_plain;
        tqg_warp_sync(); /* all lanes have read what is written now */
% if mma.ring then
        if (ahead < end) {
            if (paged) {
                k_from = tqa_unit(&k_cache, ahead);
                v_from = tqa_unit(&v_cache, ahead);
            }
            tqm_ring_fill(&ring, k_from, K_TILE_BYTES, v_from, V_TILE_BYTES);
        }
        ahead += WARPS;
        k_from += WARPS * (tqg_u64)k_cache.unit_stride;
        v_from += WARPS * (tqg_u64)v_cache.unit_stride;
        const unsigned char *const k_tile = tqm_ring_wait(&ring, STAGES, STAGE_BYTES), *const v_tile = k_tile + K_TILE_BYTES;
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++) {
            k_load_scales(1, k_tile + c * K_SUBTILE_BYTES, k + c);
            v_load_scales(1, v_tile + c * V_SUBTILE_BYTES, v + c);
        }
% end
        if (special) { /* what lies behind invisible keys may be no numbers */
            TQG_UNROLL
            for (int c = 0; c < CHUNKS; c++)
                v_clear_scales(&range, tile * TQM_KEYS, v + c);
        }
% if k.subs + v.subs > 0 then
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++) {
%     if k.subs > 0 then
            k_tile_gains(k[c].gains, k[c].pair, (tqg_u4 *)(gains + c * TQM_K_GAIN_BYTES));
%     end
%     if v.subs > 0 then
            v_tile_gains(v[c].gains, v[c].pair, v_gains + c * TQM_V_GAIN_BYTES);
%     end
        }
        tqg_warp_sync();
% end

        /* ---- S = K q^T ---- */
        float s[GROUPS * TQM_SCORES];
        TQG_UNROLL
        for (int i = 0; i < GROUPS * TQM_SCORES; i++)
            s[i] = 0.0f;
% if k.subs > 0 or n_chunks == 1 then
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++) {
%     if mma.ring then
            k_load_words(1, k_tile + c * K_SUBTILE_BYTES, k + c);
%     end
            k_tile_scores(GROUPS, k_bytes_of, k[c].words, ${k.subs > 0 and "(const tqg_u4 *)(gains + c * TQM_K_GAIN_BYTES)" or "0"},
                          q + c * (TQM_STEPS * TQG_MMA_B), Q_REGISTERS, s);
        }
% else
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++) {
            float part[GROUPS * TQM_SCORES];
            TQG_UNROLL
            for (int i = 0; i < GROUPS * TQM_SCORES; i++)
                part[i] = 0.0f;
%     if mma.ring then
            k_load_words(1, k_tile + c * K_SUBTILE_BYTES, k + c);
%     end
            k_tile_scores(GROUPS, k_bytes_of, k[c].words, 0, q + c * (TQM_STEPS * TQG_MMA_B), Q_REGISTERS, part);
            TQG_UNROLL
            for (int i = 0; i < GROUPS * TQM_SCORES; i++)
                s[i] = tqg_fma(part[i], k_scale_of(k + c, i % TQM_SCORES), s[i]);
        }
% end
% if mma.split_q then
        TQG_UNROLL
        for (int i = 0; i < GROUPS * TQM_SCORES; i += 2)
            s[i] = tqg_fma(s[i + 1], 0x1p-11f, s[i]);
% end
% if not finished then
        float scale[TQM_SCORES];
        TQG_UNROLL
        for (int i = 0; i < TQM_SCORES; i++)
            scale[i] = k_scale_of(k, i);
% end
        if (special) {
            const tqg_decode_params *const options = tqg_again(p);
            TQG_UNROLL
            for (int i = 0; i < GROUPS * TQM_SCORES; i += EACH) {
                const int slot = tile * TQM_KEYS + tqm_s_key(i % TQM_SCORES);
                const int column = i / TQM_SCORES * TQG_MMA_N + tqm_c_column(tqm_c_slot(i)), head = column / EACH;
                float x = s[i]${not finished and " * scale[i % TQM_SCORES]" or ""} * tqg_rcp(q_unit);
                x = tqa_score(options, &range, head < GQA ? tqa_alibi(options, &range, GQA, head) : 0.0f, x, slot);
                s[i] = tqa_is_visible(&range, slot) ? x : TQA_MINUS_INFINITY;
            }
% if not finished then
            TQG_UNROLL
            for (int i = 0; i < TQM_SCORES; i++)
                scale[i] = 1.0f;
% end
        }

        /* ---- weights, relative to a maximum that is raised only where a half could overflow ---- */
        float now[GROUPS * SLOTS];
        tqg_u32 weights[GROUPS * TQM_WEIGHTS], most = 0;
        TQG_UNROLL
        for (int i = 0; i < GROUPS * SLOTS; i++)
            now[i] = sum[i];
        tqm_weigh(GROUPS, EACH, s, ${finished and "0" or "scale"}, max, now, weights);
        TQG_UNROLL
        for (int i = 0; i < GROUPS * TQM_WEIGHTS; i++)
            most = tqg_h2_max(most, weights[i]);
        tqg_u32 over = most + tqm_limit(WEIGHT_BITS - scale_bits);
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++)
            over |= v[c].pair + tqm_limit(scale_bits);
        if (tqg_any((over & 0x80008000u) != 0)) {
            tqg_u32 pairs = 0;
            TQG_UNROLL
            for (int c = 0; c < CHUNKS; c++)
                pairs = tqg_h2_max(pairs, v[c].pair);
            const int bits = tqm_exponent(tqa_warp_max(tqg_max(tqg_h2_lo(pairs), tqg_h2_hi(pairs)))) + 2; /* or double it */
            scale_bits = bits > 16 ? 16 : bits > scale_bits ? bits : scale_bits;
            tqm_raise(GROUPS, EACH, OUTPUTS, s, ${finished and "0" or "scale"}, (float)(WEIGHT_BITS - 5 - scale_bits), max, sum, o);
            TQG_UNROLL
            for (int i = 0; i < GROUPS * SLOTS; i++)
                now[i] = sum[i];
            tqm_weigh(GROUPS, EACH, s, ${finished and "0" or "scale"}, max, now, weights);
        }
        TQG_UNROLL
        for (int i = 0; i < GROUPS * SLOTS; i++)
            sum[i] = now[i];

% if not mma.ring then
        /* The next tile replaces this one in its registers, K and V by turns, so that each is on its way while the other is
         * worked on. */
        const int more = tile + WARPS < end;
        if (more) {
            const unsigned char *const k_tile = tqa_unit(&k_cache, tile + WARPS);
            TQG_UNROLL
            for (int c = 0; c < CHUNKS; c++) {
                k_load_words(0, k_tile + c * K_SUBTILE_BYTES, k + c);
                k_load_scales(0, k_tile + c * K_SUBTILE_BYTES, k + c);
            }
        }
% end
        /* ---- O^T += V^T P^T ---- */
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++) {
% if mma.ring then
            v_load_words(1, v_tile + c * V_SUBTILE_BYTES, v + c);
% end
% if v.subs > 0 then
            v_tile_outputs(GROUPS, v_bytes_of, v[c].words, v_gains + c * TQM_V_GAIN_BYTES, weights, o + c * TQM_OUTPUTS, OUTPUTS);
% else
            tqg_u32 scaled[GROUPS * TQM_WEIGHTS];
            TQG_UNROLL
            for (int i = 0; i < GROUPS * TQM_WEIGHTS; i++)
                scaled[i] = tqg_h2_mul(weights[i], v[c].scales[i % TQM_WEIGHTS]);
            v_tile_outputs(GROUPS, v_bytes_of, v[c].words, 0, scaled, o + c * TQM_OUTPUTS, OUTPUTS);
% end
        }
% if not mma.ring then
        if (more) {
            const unsigned char *const v_tile = tqa_unit(&v_cache, tile + WARPS);
            TQG_UNROLL
            for (int c = 0; c < CHUNKS; c++) {
                v_load_words(0, v_tile + c * V_SUBTILE_BYTES, v + c);
                v_load_scales(0, v_tile + c * V_SUBTILE_BYTES, v + c);
            }
        }
% end
        tile += WARPS;
    }

    /* ---- the warps' results become one ---- */
    const tqa_result result = tqa_result_at((float *)TQG_SHARED, GQA);
    float *const of_warps = result.keep + GQA; /* [GQA][WARPS] maxima, then sums */
    tqg_block_sync();
    TQG_UNROLL
    for (int slot = 0; slot < GROUPS * SLOTS; slot++) {
        const int head = (slot / SLOTS * TQG_MMA_N + tqm_c_column(slot % SLOTS)) / EACH;
        const float all = tqm_column_sum(sum[slot]);
        if (head < GQA && tqm_is_first()) {
            of_warps[head * WARPS + warp] = max[slot];
            of_warps[(GQA + head) * WARPS + warp] = all;
        }
    }
    tqg_block_sync();
    TQG_UNROLL
    for (int slot = 0; slot < GROUPS * SLOTS; slot++) {
        const int head = (slot / SLOTS * TQG_MMA_N + tqm_c_column(slot % SLOTS)) / EACH;
        float top = TQA_NO_MAX, total = 0.0f;
        TQG_UNROLL
        for (int w = 0; w < WARPS; w++)
            top = head < GQA ? tqg_max(top, of_warps[head * WARPS + w]) : top;
        TQG_UNROLL
        for (int w = 0; w < WARPS; w++)
            total = head < GQA ? tqg_fma(of_warps[(GQA + head) * WARPS + w], tqg_exp2(of_warps[head * WARPS + w] - top), total) : total;
        if (head < GQA && warp == 0 && tqm_is_first()) {
            result.max[head] = top;
            result.sum[head] = total;
        }
        const float keep = tqg_exp2(max[slot] - top) * V_UNIT;
        TQG_UNROLL
        for (int i = slot % SLOTS; i < OUTPUTS; i += TQM_COLUMNS)
            o[slot / SLOTS * OUTPUTS + i] *= keep;
    }
    TQG_NO_UNROLL
    for (int w = 0; w < WARPS; w++) { /* in order, so that the sum is always the same */
        if (w == warp) {
            TQG_UNROLL
            for (int i = 0; i < GROUPS * OUTPUTS; i++) {
                const int head = (i / OUTPUTS * TQG_MMA_N + tqm_c_column(tqm_c_slot(i))) / EACH;
                const int value = i % OUTPUTS / TQM_OUTPUTS * TQM_CHUNK + 16 * (i % TQM_OUTPUTS / TQG_MMA_C) + tqm_c_row(i % TQG_MMA_C);
                float *const to = result.acc + head * TQA_HEAD_DIM + value;
                if (tqm_c_slot(i) % EACH == 0 && head < GQA)
                    *to = w == 0 ? o[i] : *to + o[i];
            }
        }
        tqg_block_sync();
    }
    const tqa_range late = tqa_range_of(tqg_again(p), WARPS * TQM_KEYS);
    tqa_finish(tqg_again(p), &late, &result, GQA, THREADS);
}
