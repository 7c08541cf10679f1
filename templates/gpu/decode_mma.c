% local rows, bytes, ring = layout == "rows", mma.k_path == "i8", mma.ring
% local k_gains, v_gains = k.bits < 16 and k.subs > 0, v.bits < 16 and v.subs > 0
% -- Chunks of a tile are added up with a scale each; a single chunk's scores stay without until they become weights.
% local chunk_scales = not rows and mma.chunks > 1 and (bytes or not k_gains)
% local added_up = chunk_scales or bytes and mma.sub_tiles > 1
% local loads_late = added_up and not mma.ahead and not mma.ring -- K and V of one sub-tile at a time in registers
% local scaled_later = not rows and (bytes or mma.chunks == 1 and not k_gains)
% local scaled_at_once = scaled_later and (bias > 0 or mma.scaled_at_once) -- the bias is scaled already
% -- What multiplies weights before they meet V: scales or gains, or nothing.
% local weights_times = not rows and (v_gains and "gains" or "scales") or mma.scaled_weights and "scales" or "nothing"
% local k_unit = rows and ("K_UNIT * %d"):format(mma_rows(k).unit) or "K_UNIT"
% local v_unit = rows and ("(V_UNIT * %d)"):format(mma_rows(v).unit) or "V_UNIT"
% local function each_sub_tile(indent)
%     return "TQG_UNROLL\n" .. indent .. "for (int c = 0; c < TQM_SUB_TILES; c++)"
% end
% local staging = rows and "rows of both sides, through shared memory" or ring and "tiles of both sides, by bulk copies"
%     or mma.ahead and "tiles of both sides, each read into registers while the other is worked on" or "tiles of both sides"
/* K is ${k.format}, V ${v.format}: ${staging}. See mma.h. */
TQG_KERNEL(${symbol}, tqg_decode_params, ${geometry.threads}, ${geometry.blocks_per_sm}) {
    enum {
        GQA = ${gqa},
        WARPS = ${mma.warps},
        THREADS = WARPS * TQG_WARP,
        KEYS = ${mma.keys}, /* of a step of a warp */
        BLOCKS = KEYS / 16,
        SCORES = TQM_SCORES(BLOCKS),
        WEIGHTS = TQM_WEIGHTS(BLOCKS),
        GROUPS = ${mma.groups}, /* of columns of B */
        EACH = ${mma.split_q and 2 or 1}, /* columns of a head: of q rounded, and of what that left */
        SLOTS = TQM_COLUMNS / EACH, /* heads that a lane has scores of, per group */
        Q_REGISTERS = ${mma.q_registers}, /* per group */
        OUTPUTS = ${mma.outputs},
        WEIGHT_BITS = ${weights_times == "gains" and 19 or 15}, /* gains are below 2^-4 */
        Q_BYTES = ${mma.q_bytes},
        AUX_BYTES = ${mma.aux_bytes}, /* of shared memory, per warp, for what its lanes decode for each other */
% if bias > 0 then
        PAIRS = ${bias}, /* of the score bias */
        BIAS_BYTES = ${mma.bias_bytes}, /* of them, for turned coefficients */
% end
% if ring then
        STAGES = ${mma.stages},
% end
% if rows then
        STAGE_BYTES = KEYS * (K_PITCH + V_PITCH),
% else
        IN_SHARED = ${ring and 1 or 0}, /* tiles, not in global memory */
        K_GAIN_BYTES = ${not k_gains and "0" or bytes and "K_BYTE_GAIN_BYTES" or "TQM_K_GAIN_BYTES"},
%     if bytes then
        PARTS = ${mma.split_q and 1 or 2}, /* products for hi and lo of q */
%     end
%     if ring then
        STAGE_BYTES = K_TILE_BYTES + V_TILE_BYTES,
%     end
% end
    };
    const tqa_range range = tqa_range_of(&p, WARPS * KEYS);
    if (tqa_idle(&range))
        return;
    const tqa_cache k_cache = tqa_cache_of(&p.k, range.sequence, range.kv_head, ${rows and "1" or "KEYS"});
    const tqa_cache v_cache = tqa_cache_of(&p.v, range.sequence, range.kv_head, ${rows and "1" or "KEYS"});
    const int warp = (int)tqg_shfl_u((tqg_u32)tqg_warp(), 0);

    /* Warps take tiles in turn, each for itself. */
    const int end = ((range.last < range.n_kv ? range.last : range.n_kv) + KEYS - 1) / KEYS;
    int tile = range.first / KEYS + warp;
    if ((tile + 1) * KEYS <= range.begin)
        tile += WARPS;

% if mma.aux_bytes > 0 then
    unsigned char *const aux = TQG_SHARED + Q_BYTES + warp * AUX_BYTES;
% end
% if rows then
    unsigned char *const stages = TQG_SHARED + Q_BYTES + WARPS * AUX_BYTES + warp * (${mma.stages} * STAGE_BYTES);
    /* Tiles whose rows lie one stride apart; contiguous caches are walked by addition. */
    const int paged = k_cache.pages || v_cache.pages, easy = tqm_is_easy(KEYS, &k_cache) && tqm_is_easy(KEYS, &v_cache);
    const tqg_u8 *k_from = k_cache.first + (tqg_u64)(tqg_u32)(tile * KEYS) * k_cache.unit_stride;
    const tqg_u8 *v_from = v_cache.first + (tqg_u64)(tqg_u32)(tile * KEYS) * v_cache.unit_stride;
    tqg_u32 k_words_at[K_ROW_WORDS], v_words_at[V_ROW_WORDS];
%     for _, side in ipairs { { "k", "K" }, { "v", "V" } } do
    TQG_UNROLL
    for (int i = 0; i < ${side[2]}_ROW_WORDS; i++)
        ${side[1]}_words_at[i] = tqg_keep(${side[1]}_word_at(&${side[1]}_cache, i));
%     end
%     if mma.stages > 1 then
    int stage = 0; /* offset of the one to read next */
    if (tile < end) {
        k_row_gather(&k_cache, &range, tile, stages);
        v_row_gather(&v_cache, &range, tile, stages + KEYS * K_PITCH);
    }
    tqg_copy_commit();
%     end
% elseif ring then
    tqm_ring stages;
    unsigned char *const first_stage =
        TQG_SHARED + Q_BYTES + WARPS * AUX_BYTES + warp * STAGES * (STAGE_BYTES + TQM_BAR_BYTES);
    tqm_ring_init(&stages, first_stage, STAGES, STAGE_BYTES);
    const int paged = k_cache.pages || v_cache.pages;
    int next = tile; /* to be copied, from here if not paged */
    const unsigned char *k_from = k_cache.first + (tqg_u64)(tqg_u32)tile * k_cache.unit_stride;
    const unsigned char *v_from = v_cache.first + (tqg_u64)(tqg_u32)tile * v_cache.unit_stride;
    for (int i = 0; i < STAGES - 1; i++) {
        if (next < end)
            tqm_ring_fill(&stages, tqa_unit(&k_cache, next), K_TILE_BYTES, tqa_unit(&v_cache, next), V_TILE_BYTES);
        next += WARPS;
        k_from += WARPS * (tqg_u64)k_cache.unit_stride;
        v_from += WARPS * (tqg_u64)v_cache.unit_stride;
        stages.fill = tqm_ring_next(stages.fill, STAGES, STAGE_BYTES);
    }
% elseif mma.ahead then
    k_part k[TQM_SUB_TILES];
    v_part v[TQM_SUB_TILES];
    if (tile < end) {
        k_load(tqa_unit(&k_cache, tile), k);
        v_load(tqa_unit(&v_cache, tile), v);
    }
% end

% if bias > 0 then
    tqg_u32 *const bias_table = (tqg_u32 *)(TQG_SHARED + Q_BYTES - ${mma.bias_table});
    tqg_u32 *const turned = (tqg_u32 *)(aux + AUX_BYTES - BIAS_BYTES);
    tqm_bias_table(&p.bias, PAIRS, THREADS, bias_table);
    tqm_bias_clear(BIAS_BYTES / 4, turned);
    tqb_lane coefficients;
    tqb_load(&p.bias, tqa_coefficients(&p, &range, GQA), GQA, GQA, PAIRS, p.factor, &coefficients);
    tqb_stride(&coefficients, WARPS * KEYS);
    const float most_bias = tqb_largest(&coefficients, GQA, PAIRS);
% end
    float *const q_floats = (float *)TQG_SHARED;
    tqa_prepare_q(&p, &range, GQA, THREADS, q_floats);
% if bytes then
%     if bias > 0 then
    const float q_unit = most_bias < 0x1p14f ? 1.0f : tqa_normalise(most_bias, 0x1p6f); /* of scores */
%     end
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
                byte_unit[slot] = unit * K_STEP${bias > 0 and " * q_unit" or ""};
        }
    }
    tqg_u32 q[PARTS * Q_REGISTERS];
    const int q_head = tqm_b_column() / EACH < GQA ? tqm_b_column() / EACH : 0;
    TQG_UNROLL
    for (int i = 0; i < PARTS * Q_REGISTERS; i++)
        q[i] = k_byte_q(q_floats + q_head * TQA_HEAD_DIM + i % Q_REGISTERS / K_BYTE_Q * TQM_TILE_VALUES, q_scale,
                        PARTS == 2 ? i / Q_REGISTERS : tqm_b_column() & 1, i % K_BYTE_Q);
% else
    /* q in halves, multiplied by q_unit, which is 1 unless they need another. */
%     local largest = ("tqa_largest(q_floats, GQA * TQA_HEAD_DIM) * (%s)"):format(k_unit)
    const float largest = ${bias > 0 and ("tqg_max(%s, most_bias)"):format(largest) or largest};
    const float q_unit = largest >= 0x1p-3f && largest < 0x1p14f ? 1.0f : tqa_normalise(largest, 0x1p6f);
%     local function register(group, i)
%         return ("%s(EACH, GQA, q_floats, %s * q_unit, %s, %s)"):format(rows and "k_row_q" or "tqm_tile_q", k_unit, group, i)
%     end
%     if mma.q_shared then
    tqg_u4 *const q = (tqg_u4 *)(TQG_SHARED + GQA * TQA_HEAD_DIM * 4);
    for (int i = 4 * warp; i < GROUPS * Q_REGISTERS; i += 4 * WARPS) {
        tqg_u32 x[4];
        TQG_UNROLL
        for (int j = 0; j < 4; j++)
            x[j] = ${register("(i + j) / Q_REGISTERS", "(i + j) % Q_REGISTERS")};
        q[i / 4 * TQG_WARP + tqg_lane()] = tqm_u4(x);
    }
    tqg_block_sync();
%     else
    tqg_u32 q[GROUPS * Q_REGISTERS];
    TQG_UNROLL
    for (int i = 0; i < GROUPS * Q_REGISTERS; i++)
%         if rows and not mma_rows(k).by_unit then
        q[i] = i % Q_REGISTERS < K_SUMS_AT ? ${register("i / Q_REGISTERS", "i % Q_REGISTERS")} : 0;
    TQG_UNROLL
    for (int i = 0; i < GROUPS * K_PARTS; i++) {
        tqg_u32 *const of_group = q + i / K_PARTS * Q_REGISTERS;
        of_group[K_SUMS_AT + i % K_PARTS] = k_row_sum(of_group + 8 * (i % K_PARTS));
    }
%         else
        q[i] = ${register("i / Q_REGISTERS", "i % Q_REGISTERS")};
%         end
%     end
% end
% -- How operand functions are told where q is: a flag, registers, shared memory.
% local q_in_shared = mma.q_shared and "1" or "0"
% local function q_at(offset) return mma.q_shared and "0, q" .. offset or "q" .. offset .. ", 0" end
% if rows and mma.aux_bytes > 0 then
    unsigned char *const begin = aux + K_AUX_BYTES + V_AUX_BYTES;
%     if mma_rows(k).offset then
    k_row_begin(GROUPS, ${q_in_shared}, ${q_at("")}, Q_REGISTERS, begin);
%     end
%     if mma_rows(v).offset then
    v_row_begin(begin + GROUPS * K_BEGIN_BYTES);
%     end
% end

% if bias > 0 then
    tqb_scale(GQA, PAIRS, q_unit, &coefficients);
% end

    /* Tiles from `plain` on, n_whole of them, have visible keys only, and n_plain of them scores without options. */
    const int plain = (range.begin + KEYS - 1) / KEYS, whole = range.n_kv / KEYS - plain;
    const int n_whole = whole > 0 ? whole : 0;
    const int n_plain = tqa_has_options(&p)${bytes and bias == 0 and "" or " || q_unit != 1.0f"} ? 0 : n_whole;

    float max[GROUPS * SLOTS], sum[GROUPS * SLOTS], o[GROUPS * OUTPUTS];
    TQG_UNROLL
    for (int i = 0; i < GROUPS * SLOTS; i++) {
        max[i] = TQA_NO_MAX;
        sum[i] = 0.0f;
    }
    TQG_UNROLL
    for (int i = 0; i < GROUPS * OUTPUTS; i++)
        o[i] = 0.0f;
    /* Scales that multiply weights stay below 2^scale_bits, weights below 2^(WEIGHT_BITS - scale_bits), so that their
     * products are halves. */
    int scale_bits = WEIGHT_BITS - 13;
    tqg_u32 weight_limit = tqm_limit(WEIGHT_BITS - scale_bits), scale_limit = tqm_limit(scale_bits);
    (void)scale_limit;

% if bytes then
    tqg_u32 k_bytes[2];
    k_byte_table(k_bytes);
% else
    tqg_u32 k_bytes[4]; /* the table of centroids, in registers */
    ${k.bits < 8 and (rows and "k_row_table" or "k_table") or "tqm_no_table"}(k_bytes);
    tqm_keep(k_bytes);
% end
% if k == v and not bytes then
    const tqg_u32 *const v_bytes = k_bytes;
% else
    tqg_u32 v_bytes[4];
    ${v.bits < 8 and (rows and "v_row_table" or "v_table") or "tqm_no_table"}(v_bytes);
    tqm_keep(v_bytes);
% end

    TQG_NO_UNROLL
    while (tile < end) {
        const int special = (tqg_u32)(tile - plain) >= (tqg_u32)n_plain;
        tqg_warp_sync(); /* all lanes have read what is written now */
% if bias > 0 then
        tqb_turn_on(&coefficients, tile * KEYS);
        tqm_bias_pass(&coefficients, KEYS / TQB_RUN, GROUPS, EACH, GQA, PAIRS, turned);
% end
% if rows then
        /* ---- rows to shared memory ---- */
%     if mma.stages > 1 then
        const unsigned char *const k_rows = stages + stage, *const v_rows = k_rows + KEYS * K_PITCH;
        const int to_copy = tile + WARPS;
        stage = STAGE_BYTES - stage;
        unsigned char *const k_to = stages + stage, *const v_to = k_to + KEYS * K_PITCH;
        k_from += WARPS * KEYS * (tqg_u64)k_cache.unit_stride;
        v_from += WARPS * KEYS * (tqg_u64)v_cache.unit_stride;
        if (to_copy < end) {
%     else
        const unsigned char *const k_rows = stages, *const v_rows = k_rows + KEYS * K_PITCH;
        const int to_copy = tile;
        unsigned char *const k_to = stages, *const v_to = k_to + KEYS * K_PITCH;
        {
%     end
            if (easy && (tqg_u32)(to_copy - plain) < (tqg_u32)n_whole) {
                if (paged) {
                    k_from = tqa_unit(&k_cache, to_copy * KEYS);
                    v_from = tqa_unit(&v_cache, to_copy * KEYS);
                }
                k_row_copy(&k_cache, k_words_at, k_from, k_to);
                v_row_copy(&v_cache, v_words_at, v_from, v_to);
            } else {
                k_row_gather(&k_cache, &range, to_copy, k_to);
                v_row_gather(&v_cache, &range, to_copy, v_to);
            }
        }
        tqg_copy_commit();
        tqg_copy_wait(${mma.stages - 1});
%     if mma.stages == 1 then
        k_from += WARPS * KEYS * (tqg_u64)k_cache.unit_stride;
        v_from += WARPS * KEYS * (tqg_u64)v_cache.unit_stride;
%     end
        tqg_warp_sync();
%     if mma.aux_bytes > 0 then
%         local keep = weights_times == "scales" and "const tqg_u32 scale = " or ""
        k_row_prepare(k_rows + tqm_row_at(K_PITCH, &k_cache, tqg_lane()), aux);
        ${keep}v_row_prepare(v_rows + tqm_row_at(V_PITCH, &v_cache, tqg_lane()), aux + K_AUX_BYTES);
        tqg_warp_sync();
%     end
% else
        /* ---- a tile of each side ---- */
%     if not mma.ahead then
        k_part k[TQM_SUB_TILES];
        v_part v[TQM_SUB_TILES];
%     end
%     if ring then
        if (next < end) {
            if (paged) {
                k_from = tqa_unit(&k_cache, next);
                v_from = tqa_unit(&v_cache, next);
            }
            tqm_ring_fill(&stages, k_from, K_TILE_BYTES, v_from, V_TILE_BYTES);
        }
        next += WARPS;
        k_from += WARPS * (tqg_u64)k_cache.unit_stride;
        v_from += WARPS * (tqg_u64)v_cache.unit_stride;
        const unsigned char *const k_tile = tqm_ring_wait(&stages, STAGES, STAGE_BYTES);
        const unsigned char *const v_tile = k_tile + K_TILE_BYTES;
%     elseif not mma.ahead then
        const unsigned char *const k_tile = tqa_unit(&k_cache, tile), *const v_tile = tqa_unit(&v_cache, tile);
%     end
%     if k_gains or v_gains then
        ${each_sub_tile("        ")} {
%         for _, side in ipairs { { "k", k_gains }, { "v", v_gains } } do
%             if side[2] and not mma.ahead then
            ${side[1]}_load_scales(IN_SHARED, ${side[1]}_tile, c, ${side[1]} + c);
%             end
%         end
%         if k_gains then
%             local decode = bytes and "k_byte_gains(k[c].gains" or "k_tile_gains(k[c].gains, k[c].pair"
            ${decode}, (tqg_u4 *)(aux + c * K_GAIN_BYTES));
%         end
%         if v_gains then
            if (special) /* what lies behind invisible keys may be no numbers */
                v_clear_scales(&range, tile * KEYS, v + c);
            v_tile_gains(v[c].gains, v[c].pair, aux + TQM_SUB_TILES * K_GAIN_BYTES + c * TQM_V_GAIN_BYTES);
%         end
        }
%     end
%     if k_gains or v_gains or bias > 0 then
        tqg_warp_sync();
%     end
% end

        /* ---- S = K q^T ---- */
        float s[GROUPS * SCORES];
        TQG_UNROLL
        for (int i = 0; i < GROUPS * SCORES; i++)
            s[i] = 0.0f;
% if bias > 0 and not scaled_at_once then
        tqm_bias_add(KEYS / TQB_RUN, 2, GROUPS, EACH, PAIRS, bias_table, turned, s);
% end
% if rows then
        k_row_scores(GROUPS, ${q_in_shared}, k_bytes, k_rows + tqm_row_at(K_PITCH, &k_cache, tqg_lane() >> 2),
                     ${mma.aux_bytes > 0 and "aux, begin" or "0, 0"}, ${q_at("")}, Q_REGISTERS, s);
% else
        ${each_sub_tile("        ")} {
%     if not mma.ahead then
            k_load_words(IN_SHARED, k_tile, c, k + c);
%         if not k_gains then
            k_load_scales(IN_SHARED, k_tile, c, k + c);
%         end
%     end
%     if added_up then
%         if loads_late then
            tqg_in_order();
%         end
            float part[GROUPS * SCORES];
            TQG_UNROLL
            for (int i = 0; i < GROUPS * SCORES; i++)
                part[i] = 0.0f;
%     else
            float *const part = s;
%     end
%     local gains_at = k_gains and "(const tqg_u4 *)(aux + c * K_GAIN_BYTES)" or "0"
%     if bytes then
            k_byte_scores(PARTS, k_bytes, k[c].words, ${gains_at}, q + c * K_BYTE_Q, Q_REGISTERS, part);
%     else
%         local q_of_sub_tile = q_at(" + c * (TQM_TILE_STEPS * TQG_MMA_B" .. (mma.q_shared and " / 4 * TQG_WARP)" or ")"))
            k_tile_scores(GROUPS, ${q_in_shared}, k_bytes, k[c].words, ${gains_at}, ${q_of_sub_tile},
                          Q_REGISTERS, part);
%     end
%     if added_up then
            TQG_UNROLL
            for (int i = 0; i < GROUPS * SCORES; i++)
                s[i] = ${chunk_scales and "tqg_fma(part[i], k_scale_of(k + c, i % SCORES), s[i])" or "c > 0 ? s[i] + part[i] : part[i]"};
%     end
        }
% end
% if mma.split_q and not bytes then
        TQG_UNROLL
        for (int i = 0; i < GROUPS * SCORES; i += 2)
            s[i] = tqg_fma(s[i + 1], 0x1p-11f, s[i]);
% end
% if scaled_later then
        float scale[SCORES];
        TQG_UNROLL
        for (int i = 0; i < SCORES; i++)
            scale[i] = ${chunk_scales and "" or bytes and "k_scale_of(k, i) * " or "k_scale_of(k, i)"}${bytes and "byte_unit[tqm_c_slot(i) / EACH]" or ""};
% end
% if scaled_at_once and bias == 0 then
        TQG_UNROLL
        for (int i = 0; i < GROUPS * SCORES; i++)
            s[i] *= scale[i % SCORES];
% elseif scaled_at_once then
        float b[GROUPS * SCORES];
        TQG_UNROLL
        for (int i = 0; i < GROUPS * SCORES; i++)
            b[i] = 0.0f;
        tqm_bias_add(KEYS / TQB_RUN, 2, GROUPS, EACH, PAIRS, bias_table, turned, b);
        TQG_UNROLL
        for (int i = 0; i < GROUPS * SCORES; i += EACH)
            s[i] = tqg_fma(s[i], scale[i % SCORES], ${mma.split_q and "tqg_fma(b[i + 1], 0x1p-11f, b[i])" or "b[i]"});
% end
        if (special) {
            const tqg_decode_params *const options = tqg_again(p);
            TQG_UNROLL
            for (int i = 0; i < GROUPS * SCORES; i += EACH) {
                const int slot = tile * KEYS + tqm_s_key(i % SCORES);
                const int column = i / SCORES * TQG_MMA_N + tqm_c_column(tqm_c_slot(i)), head = column / EACH;
                float x = s[i]${scaled_later and not scaled_at_once and " * scale[i % SCORES]" or ""}${bytes and bias == 0 and "" or " * tqg_rcp(q_unit)"};
                x = tqa_score(options, &range, head < GQA ? tqa_alibi(options, &range, GQA, head) : 0.0f, x, slot);
                s[i] = tqa_is_visible(&range, slot) ? x : TQA_MINUS_INFINITY;
            }
% if scaled_later and not scaled_at_once then
            TQG_UNROLL
            for (int i = 0; i < SCORES; i++)
                scale[i] = 1.0f;
% end
        }

% if not rows and not v_gains then
        ${each_sub_tile("        ")} {
%     if not mma.ahead then
            v_load_scales(IN_SHARED, v_tile, c, v + c);
%     end
            if (special) /* what lies behind invisible keys may be no numbers */
                v_clear_scales(&range, tile * KEYS, v + c);
        }

% end
        /* ---- weights, relative to a maximum that is raised only where a half could overflow ---- */
% local scale_at = scaled_later and not scaled_at_once and "scale" or "0"
        float now[GROUPS * SLOTS] = {0.0f};
        tqg_u32 weights[GROUPS * WEIGHTS], most = 0;
        tqm_weigh(GROUPS, EACH, BLOCKS, s, ${scale_at}, max, now, weights);
        TQG_UNROLL
        for (int i = 0; i < GROUPS * WEIGHTS; i++)
            most = tqg_h2_max(most, weights[i]);
        tqg_u32 over = most + weight_limit;
% if not rows then
        ${each_sub_tile("        ")}
            over |= v[c].pair + scale_limit;
% elseif weights_times == "scales" then
        over |= scale + scale_limit;
% end
        if (tqg_any((over & 0x80008000u) != 0)) {
% if weights_times ~= "nothing" then
            tqg_u32 scales = 0;
%     if rows then
            scales = scale;
%     else
            ${each_sub_tile("            ")}
                scales = tqg_h2_max(scales, v[c].pair);
%     end
            scale_bits = tqm_scale_bits(scale_bits, scales);
            weight_limit = tqm_limit(WEIGHT_BITS - scale_bits);
            scale_limit = tqm_limit(scale_bits);
% end
            tqm_raise(GROUPS, EACH, BLOCKS, OUTPUTS, s, ${scale_at}, (float)(WEIGHT_BITS - 5 - scale_bits), max, sum, o);
            tqm_weigh(GROUPS, EACH, BLOCKS, s, ${scale_at}, max, now, weights);
        }
        TQG_UNROLL
        for (int i = 0; i < GROUPS * SLOTS; i++)
            sum[i] += now[i];

% if mma.ahead then
        /* The next tile replaces this one in its registers, K and V by turns. */
        if (tile + WARPS < end)
            k_load(tqa_unit(&k_cache, tile + WARPS), k);
% end
        /* ---- O^T += V^T P^T ---- */
% if rows then
        v_row_outputs(GROUPS, v_bytes, v_rows + tqm_row_at(V_PITCH, &v_cache, 2 * tqm_k_lane()),
                      v_rows + tqm_row_at(V_PITCH, &v_cache, 2 * tqm_k_lane() + 1),
                      ${mma.aux_bytes > 0 and "aux + K_AUX_BYTES, begin + GROUPS * K_BEGIN_BYTES" or "0, 0"}, weights, o, OUTPUTS);
% else
%     local scaled_once = not v_gains and mma.sub_tiles > 1 and mma.chunks == 1
%     if scaled_once then
        TQG_UNROLL
        for (int i = 0; i < GROUPS * WEIGHTS; i++)
            weights[i] = tqg_h2_mul(weights[i], v[0].scales[i % WEIGHTS]);
%     end
        ${each_sub_tile("        ")} {
%     if not mma.ahead then
%         if loads_late then
            tqg_in_order();
%         end
            v_load_words(IN_SHARED, v_tile, c, v + c);
%     end
%     if v_gains then
            v_tile_outputs(GROUPS, v_bytes, v[c].words, aux + TQM_SUB_TILES * K_GAIN_BYTES + c * TQM_V_GAIN_BYTES, weights,
                           o + c * TQM_TILE_OUTPUTS, OUTPUTS);
%     elseif scaled_once then
            v_tile_outputs(GROUPS, v_bytes, v[c].words, 0, weights, o + c * TQM_TILE_OUTPUTS, OUTPUTS);
%     else
            tqg_u32 scaled[GROUPS * WEIGHTS];
            TQG_UNROLL
            for (int i = 0; i < GROUPS * WEIGHTS; i++)
                scaled[i] = tqg_h2_mul(weights[i], v[c].scales[i % WEIGHTS]);
            v_tile_outputs(GROUPS, v_bytes, v[c].words, 0, scaled, o + c * TQM_TILE_OUTPUTS, OUTPUTS);
%     end
        }
% end
% if mma.ahead then
        if (tile + WARPS < end)
            v_load(tqa_unit(&v_cache, tile + WARPS), v);
% end
        tile += WARPS;
    }

    /* ---- the warps' results become one ---- */
% if rows then
    TQG_UNROLL
    for (int n = 0; n < GROUPS; n++)
        v_row_finish(o + n * OUTPUTS);
% end
    const tqa_result result = tqa_result_at((float *)TQG_SHARED, GQA);
    float *const of_warps = result.keep + GQA; /* [GQA][WARPS] maxima, then sums */
    tqg_block_sync();
    tqm_meet(GROUPS, EACH, GQA, WARPS, warp, max, sum, of_warps);
    tqg_block_sync();
    TQG_UNROLL
    for (int slot = 0; slot < GROUPS * SLOTS; slot++) {
        const float keep = tqm_join(EACH, GQA, WARPS, warp, slot, max[slot], of_warps, &result) * ${v_unit};
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
                const int value = ${rows and "v_row_value" or "tqm_output_value"}(i % OUTPUTS);
                float *const to = result.acc + head * TQA_V_HEAD_DIM + value;
                if (tqm_c_slot(i) % EACH == 0 && head < GQA${rows and " && value >= 0" or ""})
                    *to = w == 0 ? o[i] : *to + o[i];
            }
        }
        tqg_block_sync();
    }
    const tqa_range late = tqa_range_of(tqg_again(p), WARPS * KEYS);
    tqa_finish(tqg_again(p), &late, &result, GQA, THREADS);
}
