% local n_chunks, bytes = head_dim // 128, mma.k_path == "i8"
% local finished = not bytes and (k.subs > 0 or n_chunks > 1) -- are scores complete, or still to be multiplied with a scale?
% local chunk_scales = n_chunks > 1 and (bytes or k.subs == 0) -- are chunks added up with a scale each?
% assert(head_dim % 128 == 0 and k.rotated and v.rotated, "tiles hold chunks of 128 values")
/* Tiles of both sides${mma.ring and "" or ", each read into registers while the other is worked on"}. */
TQG_KERNEL(${symbol}, tqg_decode_params, ${geometry.threads}, ${geometry.blocks_per_sm}) {
    enum {
        GQA = ${gqa},
        WARPS = ${mma.warps},
        THREADS = WARPS * TQG_WARP,
        CHUNKS = ${n_chunks},
        GROUPS = ${mma.groups}, /* of columns of B */
        EACH = ${mma.split_q and 2 or 1}, /* columns of a head: of q rounded, and of what that left */
% if bytes then
        PARTS = ${mma.split_q and 1 or 2}, /* products for hi and lo of q */
        Q_REGISTERS = CHUNKS * K_BYTE_Q,
% else
        Q_REGISTERS = CHUNKS * TQM_STEPS * TQG_MMA_B,
% end
        OUTPUTS = CHUNKS * TQM_OUTPUTS,
        SLOTS = TQM_COLUMNS / EACH, /* heads that a lane has scores of, per group */
        IN_SHARED = ${mma.ring and 1 or 0}, /* tiles, not in global memory */
        WEIGHT_BITS = ${v.subs > 0 and 19 or 15}, /* gains are below 2^-4 */
        Q_BYTES = ${mma.q_bytes},
        K_GAIN_BYTES = ${k.subs == 0 and "0" or bytes and "K_BYTE_GAIN_BYTES" or "TQM_K_GAIN_BYTES"},
        GAIN_BYTES = CHUNKS * (K_GAIN_BYTES + ${v.subs > 0 and "TQM_V_GAIN_BYTES" or "0"}),
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
    unsigned char *const v_gains = gains + CHUNKS * K_GAIN_BYTES;
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
% elseif mma.ahead then
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

    float *const q_floats = (float *)TQG_SHARED;
    tqa_prepare_q(&p, &range, GQA, THREADS, q_floats);
% if bytes then
    /* q in bytes, each head in a unit of its own. */
    float q_scale = 0.0f, byte_unit[SLOTS];
    TQG_UNROLL
    for (int slot = 0; slot < SLOTS; slot++)
        byte_unit[slot] = 0.0f;
    for (int head = 0; head < GQA; head++) {
        const float unit = tqm_largest(q_floats + head * TQA_HEAD_DIM, TQA_HEAD_DIM) * (1.0f / 32256);
        if (head == tqm_b_column() / EACH)
            q_scale = unit > 0.0f ? 1.0f / unit : 0.0f;
        TQG_UNROLL
        for (int slot = 0; slot < SLOTS; slot++) {
            if (head == tqm_c_column(slot) / EACH)
                byte_unit[slot] = unit * K_STEP;
        }
    }
    tqg_u32 q[PARTS * Q_REGISTERS];
    const int q_head = tqm_b_column() / EACH < GQA ? tqm_b_column() / EACH : 0;
    TQG_UNROLL
    for (int i = 0; i < PARTS * Q_REGISTERS; i++)
        q[i] = k_byte_q(q_floats + q_head * TQA_HEAD_DIM + i % Q_REGISTERS / K_BYTE_Q * TQM_CHUNK, q_scale,
                        PARTS == 2 ? i / Q_REGISTERS : tqm_b_column() & 1, i % K_BYTE_Q);
% else
    /* q in halves, multiplied by q_unit, which is 1 unless they need another. */
    const float largest = tqa_largest(q_floats, GQA * TQA_HEAD_DIM) * K_UNIT;
    const float q_unit = largest >= 0x1p-3f && largest < 0x1p14f ? 1.0f : tqa_normalise(largest, 0x1p6f);
%     if mma.q_shared then
    tqg_u4 *const q_shared = (tqg_u4 *)(TQG_SHARED + GQA * TQA_HEAD_DIM * 4);
    for (int i = warp * 4; i < GROUPS * Q_REGISTERS; i += WARPS * 4) {
        tqg_u32 x[4];
        TQG_UNROLL
        for (int j = 0; j < 4; j++)
            x[j] = tqm_q_register(EACH, GQA, q_floats, K_UNIT * q_unit, (i + j) / Q_REGISTERS, (i + j) % Q_REGISTERS);
        q_shared[i / 4 * TQG_WARP + tqg_lane()] = tqm_u4(x);
    }
    tqg_block_sync();
%     else
    tqg_u32 q[GROUPS * Q_REGISTERS];
    TQG_UNROLL
    for (int i = 0; i < GROUPS * Q_REGISTERS; i++)
        q[i] = tqm_q_register(EACH, GQA, q_floats, K_UNIT * q_unit, i / Q_REGISTERS, i % Q_REGISTERS);
%     end
% end

    /* Tiles from `plain` on, n_plain of them, have nothing but visible keys and scores without options. */
    const int plain = (range.begin + TQM_KEYS - 1) / TQM_KEYS;
    const int n_plain = tqa_has_options(&p)${bytes and "" or " || q_unit != 1.0f"} ? 0 : range.n_kv / TQM_KEYS - plain;

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

    /* Bytes of the centroids, in registers. */
% local shared_table = not bytes and k.format == v.format
% if bytes then
    tqg_u32 k_bytes[2];
    k_byte_table(k_bytes);
% else
    tqg_u32 k_bytes[4];
    k_table(k_bytes);
    tqm_keep(k_bytes);
% end
% if shared_table then
    const tqg_u32 *const v_bytes = k_bytes;
% else
    tqg_u32 v_bytes[4];
    v_table(v_bytes);
    tqm_keep(v_bytes);
% end

    TQG_NO_UNROLL
    while (tile < end) {
% if not mma.ahead then
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
% elseif not mma.ahead then
        const unsigned char *const k_tile = tqa_unit(&k_cache, tile), *const v_tile = tqa_unit(&v_cache, tile);
% end
% if not mma.ahead then
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++) {
            k_load_scales(IN_SHARED, k_tile + c * K_SUBTILE_BYTES, k + c);
            v_load_scales(IN_SHARED, v_tile + c * V_SUBTILE_BYTES, v + c);
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
            ${bytes and "k_byte_gains(k[c].gains" or "k_tile_gains(k[c].gains, k[c].pair"}, (tqg_u4 *)(gains + c * K_GAIN_BYTES));
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
        TQG_UNROLL
        for (int c = 0; c < CHUNKS; c++) {
% if not mma.ahead then
            k_load_words(IN_SHARED, k_tile + c * K_SUBTILE_BYTES, k + c);
% end
% if chunk_scales then
            float part[GROUPS * TQM_SCORES];
            TQG_UNROLL
            for (int i = 0; i < GROUPS * TQM_SCORES; i++)
                part[i] = 0.0f;
% else
            float *const part = s;
% end
% local gains_at = k.subs > 0 and "(const tqg_u4 *)(gains + c * K_GAIN_BYTES)" or "0"
% if bytes then
            k_byte_scores(PARTS, k_bytes, k[c].words, ${gains_at}, q + c * K_BYTE_Q, Q_REGISTERS, part);
% else
% local q_at = mma.q_shared and "0, q_shared + c * (TQM_STEPS * TQG_MMA_B / 4 * TQG_WARP)" or "q + c * (TQM_STEPS * TQG_MMA_B), 0"
            k_tile_scores(GROUPS, ${mma.q_shared and 1 or 0}, k_bytes, k[c].words, ${gains_at}, ${q_at}, Q_REGISTERS, part);
% end
% if chunk_scales then
            TQG_UNROLL
            for (int i = 0; i < GROUPS * TQM_SCORES; i++)
                s[i] = tqg_fma(part[i], k_scale_of(k + c, i % TQM_SCORES), s[i]);
% end
        }
% if mma.split_q and not bytes then
        TQG_UNROLL
        for (int i = 0; i < GROUPS * TQM_SCORES; i += 2)
            s[i] = tqg_fma(s[i + 1], 0x1p-11f, s[i]);
% end
% if not finished then
        float scale[TQM_SCORES];
        TQG_UNROLL
        for (int i = 0; i < TQM_SCORES; i++)
            scale[i] = ${not chunk_scales and "k_scale_of(k, i)" or ""}${bytes and not chunk_scales and " * " or ""}${bytes and "byte_unit[tqm_c_slot(i) / EACH]" or ""};
% end
        if (special) {
            const tqg_decode_params *const options = tqg_again(p);
            TQG_UNROLL
            for (int i = 0; i < GROUPS * TQM_SCORES; i += EACH) {
                const int slot = tile * TQM_KEYS + tqm_s_key(i % TQM_SCORES);
                const int column = i / TQM_SCORES * TQG_MMA_N + tqm_c_column(tqm_c_slot(i)), head = column / EACH;
                float x = s[i]${not finished and " * scale[i % TQM_SCORES]" or ""}${bytes and "" or " * tqg_rcp(q_unit)"};
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

% if mma.ahead then
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
% if not mma.ahead then
            v_load_words(IN_SHARED, v_tile + c * V_SUBTILE_BYTES, v + c);
% end
% if v.subs > 0 then
            v_tile_outputs(GROUPS, v_bytes, v[c].words, v_gains + c * TQM_V_GAIN_BYTES, weights, o + c * TQM_OUTPUTS, OUTPUTS);
% else
            tqg_u32 scaled[GROUPS * TQM_WEIGHTS];
            TQG_UNROLL
            for (int i = 0; i < GROUPS * TQM_WEIGHTS; i++)
                scaled[i] = tqg_h2_mul(weights[i], v[c].scales[i % TQM_WEIGHTS]);
            v_tile_outputs(GROUPS, v_bytes, v[c].words, 0, scaled, o + c * TQM_OUTPUTS, OUTPUTS);
% end
        }
% if mma.ahead then
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
