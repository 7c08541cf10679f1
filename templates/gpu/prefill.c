% if once("prefill") then

/* ---- prefill: which keys a query sees ------------------------------------------------------------------------------ */

typedef struct tqp_range {
    int sequence, kv_head;
    int n_kv, n_query;
    int window, causal;
} tqp_range;

TQG_FN tqp_range tqp_range_of(const tqg_prefill_params *p) {
    tqp_range r;
    r.sequence = tqg_block_z();
    r.kv_head = tqg_block_y();
    const int n_kv = p->n_kv[r.sequence], n_query = p->n_query[r.sequence];
    r.n_kv = n_kv < 0 ? 0 : n_kv > p->k.n_slots ? p->k.n_slots : n_kv;
    r.n_query = n_query > p->max_query ? p->max_query : n_query;
    r.window = p->window;
    r.causal = p->causal;
    return r;
}
/* Query i sees slots tqp_begin(r, end) to end - 1. */
TQG_FN int tqp_end(const tqp_range *r, int i) {
    return r->causal ? r->n_kv - r->n_query + i + 1 : r->n_kv;
}
TQG_FN int tqp_begin(const tqp_range *r, int end) {
    return r->window > 0 && end > r->window ? end - r->window : 0;
}

/* ---- prefill: softmax ---------------------------------------------------------------------------------------------- */

/* Weights exp2(s * scale - max) as the B operand; their sums are added to sum. */
TQG_FN void tqp_weigh(const int groups, const float *s, float scale, const float *max, float *sum, tqg_u32 *weights) {
    TQG_UNROLL
    for (int b = 0; b < groups * TQP_BLOCKS; b++) {
        float x[TQG_MMA_C];
        TQG_UNROLL
        for (int r = 0; r < TQG_MMA_C; r++) {
            const int slot = b / TQP_BLOCKS * TQM_COLUMNS + tqm_c_slot(r);
            x[r] = tqg_exp2(tqg_fma(s[b * TQG_MMA_C + r], scale, -max[slot]));
            sum[slot] += x[r];
        }
        tqg_c_to_b(x, weights + b * TQP_KEPT);
    }
}

/* Raises the maxima so that the weights of this step are at most 2^exponent, and takes sums and outputs with them. */
TQG_FN void tqp_raise(const int groups, const int outputs, const float *s, float scale, float exponent, float *max, float *sum,
                      float *o) {
    TQG_UNROLL
    for (int slot = 0; slot < groups * TQM_COLUMNS; slot++) {
        const int group = slot / TQM_COLUMNS;
        float top = TQA_MINUS_INFINITY;
        TQG_UNROLL
        for (int i = slot % TQM_COLUMNS; i < TQP_SCORES; i += TQM_COLUMNS)
            top = tqg_max(top, s[group * TQP_SCORES + i]);
        top = tqg_max(max[slot], tqm_column_max(top) * scale - exponent);
        const float keep = tqg_exp2(max[slot] - top);
        max[slot] = top;
        sum[slot] *= keep;
        TQG_UNROLL
        for (int i = slot % TQM_COLUMNS; i < outputs; i += TQM_COLUMNS)
            o[group * outputs + i] *= keep;
    }
}

/* ---- prefill: scores that are parts of sums, of the warps of a set ---------------------------------------------- */

TQG_FN void tqp_put_scores(const int n, const float *s, tqg_u8 *of_warp) {
    TQG_UNROLL
    for (int i = 0; i < n; i += 4) {
        const tqg_u32 x[4] = {tqg_bits(s[i]), tqg_bits(s[i + 1]), tqg_bits(s[i + 2]), tqg_bits(s[i + 3])};
        *(tqg_u4 *)(of_warp + i / 4 * TQP_LANES + 16 * tqg_lane()) = tqm_u4(x);
    }
}
TQG_FN void tqp_get_scores(const tqg_u8 *of_warp, int i, float *s) {
    tqg_u32 x[4];
    tqm_read16(1, of_warp + i / 4 * TQP_LANES + 16 * tqg_lane(), x);
    TQG_UNROLL
    for (int j = 0; j < 4; j++)
        s[j] = tqg_float(x[j]);
}
/* Adds those of the other warps: of pairs of warps, and pairs of pairs, so that all of them come to the same bits. */
TQG_FN void tqp_add_scores(const int parts, const int n, const tqg_u8 *of_set, int part, float *s) {
    const int of_warp = n * 4 * TQG_WARP;
    TQG_UNROLL
    for (int i = 0; i < n; i += 4) {
        float x[4], y[4], z[4], w[4];
        tqp_get_scores(of_set + (part ^ 1) * of_warp, i, x);
        TQG_UNROLL
        for (int j = 0; j < 4; j++)
            s[i + j] += x[j];
        if (parts >= 4) {
            tqp_get_scores(of_set + (part ^ 2) * of_warp, i, x);
            tqp_get_scores(of_set + (part ^ 3) * of_warp, i, y);
            TQG_UNROLL
            for (int j = 0; j < 4; j++)
                s[i + j] += x[j] + y[j];
        }
        if (parts == 8) {
            tqp_get_scores(of_set + (part ^ 4) * of_warp, i, x);
            tqp_get_scores(of_set + (part ^ 5) * of_warp, i, y);
            tqp_get_scores(of_set + (part ^ 6) * of_warp, i, z);
            tqp_get_scores(of_set + (part ^ 7) * of_warp, i, w);
            TQG_UNROLL
            for (int j = 0; j < 4; j++)
                s[i + j] += (x[j] + y[j]) + (z[j] + w[j]);
        }
    }
}
% end

/* Prefill. A block takes ${prefill.tokens} queries of one sequence and the ${gqa} query heads of one KV head: ${prefill.warps // prefill.parts * prefill.columns} columns, ${prefill.columns} of which belong to each
 * ${prefill.parts > 1 and "set of " .. prefill.parts .. " warps" or "warp"}. Per step of ${prefill.rows.keys} keys all threads decode rows to shared memory, then every warp computes S = K q^T and
 * O^T += V^T P^T for its columns${prefill.parts > 1 and ", and one part of the values: S is added up through shared memory" or ""}. */
TQG_KERNEL(${symbol}, tqg_prefill_params, ${geometry.threads}, ${geometry.blocks_per_sm}) {
    enum {
        GQA = ${gqa},
        WARPS = ${prefill.warps},
        THREADS = WARPS * TQG_WARP,
        PARTS = ${prefill.parts}, /* of values, and warps of a set */
        SETS = WARPS / PARTS,
        GROUPS = ${prefill.groups}, /* of columns of B */
        COLUMNS = GROUPS * TQG_MMA_N, /* of a set: column c of the block is head c % GQA of query c / GQA */
        QUERIES = ${prefill.tokens},
        UNITS = (TQP_K_UNITS + PARTS - 1) / PARTS, /* of a warp at most; all of them have TQP_K_UNITS / PARTS */
        BLOCKS = (TQP_V_BLOCKS + PARTS - 1) / PARTS,
        /* Do all warps multiply that many? What is not theirs, too, then: q is 0 there, and nobody reads such outputs. */
        ALL = ${prefill.all and 1 or 0},
% if prefill.dots then
        Q_REGISTERS = UNITS * 16 * COLUMNS / TQG_WARP,
        Q_STEP = 32 * COLUMNS, /* bytes of 16 values of q */
% else
        Q_REGISTERS = 2 * UNITS * TQG_MMA_B,
% end
        OUTPUTS = BLOCKS * TQG_MMA_C,
        SLOTS = GROUPS * TQM_COLUMNS, /* columns that a lane has scores of */
% if fit.buffers > 1 then
        BUFFER = TQP_K_BYTES + TQP_V_BYTES,
% end
        TOP_BITS = 15, /* weights are halves below 2^15 */
        RAISED_BITS = 10, /* and, once the maximum was raised, up to 2^10 */
% if bias > 0 then
        PAIRS = ${bias}, /* of the score bias */
% end
    };
    const tqp_range range = tqp_range_of(&p);
    /* The last queries first: they see most keys. */
    const int block = (range.n_query + QUERIES - 1) / QUERIES - 1 - tqg_block_x();
    if (block < 0 || range.n_query <= 0)
        return;
    const int warp = (int)tqg_shfl_u((tqg_u32)tqg_warp(), 0), thread = tqg_thread();
    const int set = warp / PARTS, part = warp % PARTS;
    const int first_unit = part * TQP_K_UNITS / PARTS, units = (part + 1) * TQP_K_UNITS / PARTS - first_unit;
    const int first_block = part * TQP_V_BLOCKS / PARTS, blocks = (part + 1) * TQP_V_BLOCKS / PARTS - first_block;
    const int first = block * QUERIES, last = (first + QUERIES < range.n_query ? first + QUERIES : range.n_query) - 1;
    const int end = tqp_end(&range, last), begin = tqp_begin(&range, tqp_end(&range, first));

% if bias > 0 then
    /* ---- score bias: its table, and coefficients of this set's columns ---- */
    tqg_u32 *const bias_table = (tqg_u32 *)(TQG_SHARED + ${geometry.shared_bytes - 128 * bias});
    tqg_u32 *const turned = (tqg_u32 *)(TQG_SHARED + ${fit.at.bias} + set * ${prefill.bias_bytes});
    tqb_lane coefficients;
    tqm_bias_table(&p.bias, PAIRS, THREADS, bias_table);
    tqb_begin(&p.bias, PAIRS, &coefficients);
    TQG_UNROLL
    for (int i = 0; i < TQB_ITEMS(COLUMNS, PAIRS); i++) {
        const int column = set * COLUMNS + tqb_head(&coefficients, PAIRS, i);
        const int query = first + column / GQA, head = range.kv_head * GQA + column % GQA;
        const tqg_i64 of_head = (tqg_i64)range.sequence * p.bias.seq_stride + (tqg_i64)query * p.bias.token_stride +
                                (tqg_i64)head * p.bias.head_stride;
        tqb_take(&p.bias, p.bias.n_pairs > 0 && query <= last ? p.bias.coefficients + of_head : 0, p.factor, i, &coefficients);
    }
    const float most_bias = tqb_largest(&coefficients, COLUMNS, PAIRS);

% end
    /* ---- q: rotated, in halves times q_unit, in the order of positions ---- */
    float *const floats = (float *)TQG_SHARED; /* [COLUMNS][TQA_HEAD_DIM], of one set after the other */
    float unit = 1.0f; /* of scores */
% if prefill.q_shared then
    tqg_u8 *const q_lane = TQG_SHARED + ${fit.at.q} + warp * (Q_REGISTERS * GROUPS * 4 * TQG_WARP) + 16 * tqg_lane();
% else
    tqg_u32 q[GROUPS * Q_REGISTERS];
    TQG_UNROLL
    for (int i = 0; i < GROUPS * Q_REGISTERS; i++)
        q[i] = 0;
% end
    TQG_NO_UNROLL
    for (int w = 0; w < SETS; w++) {
        for (int i = thread; i < COLUMNS * TQA_HEAD_DIM; i += THREADS) {
            const int of_set = i / TQA_HEAD_DIM, value = i - of_set * TQA_HEAD_DIM, column = w * COLUMNS + of_set;
            const int query = first + column / GQA, head = range.kv_head * GQA + column % GQA;
            float x = 0.0f;
            if (query <= last)
                x = p.factor * p.q[(tqg_i64)range.sequence * p.q_seq_stride + (tqg_i64)query * p.q_token_stride +
                                   (tqg_i64)head * p.q_head_stride + value];
            floats[i] = ${k.rotated and "tqa_signed(x, tqa_k_signs(value >> 5), value)" or "x"};
        }
        tqg_block_sync();
% if k.rotated then
        tqa_transform(floats, COLUMNS * TQA_HEAD_DIM, ${k.pow2}, ${hexf(1 / math.sqrt(k.pow2))}, ${k.odd}, THREADS);
% end
        if (w == set) {
%     local largest = "tqa_largest(floats, COLUMNS * TQA_HEAD_DIM) * K_UNIT"
            const float largest = ${bias > 0 and ("tqg_max(%s, most_bias)"):format(largest) or largest};
            const float q_unit = largest >= 0x1p-3f && largest < 0x1p14f ? 1.0f : tqa_normalise(largest, 0x1p6f);
            unit = 1.0f / q_unit;
% if bias > 0 then
            tqb_scale(COLUMNS, PAIRS, q_unit, &coefficients);
% end
            ${prefill.q_shared and "TQG_NO_UNROLL" or "TQG_UNROLL"}
            for (int i = 0; i < GROUPS * Q_REGISTERS; i++) {
% if prefill.dots then
                const int word = i * TQG_WARP + tqg_lane(), run = word / (4 * COLUMNS), unit_at = run >> 2;
                const int position = 32 * first_unit + 8 * run + 2 * (word & 3);
                const float *const column = floats + word / 4 % COLUMNS * TQA_HEAD_DIM;
% else
                const int step = i % Q_REGISTERS / TQG_MMA_B, group = i / Q_REGISTERS, unit_at = step >> 1;
                const int position = 32 * (first_unit + unit_at) + tqp_position(step & 1, i % TQG_MMA_B);
                const float *const column = floats + (group * TQG_MMA_N + tqm_b_column()) * TQA_HEAD_DIM;
% end
                float x[2];
                TQG_UNROLL
                for (int e = 0; e < 2; e++) {
                    const int value = tqp_k_value(position + e);
                    x[e] = value < 0 || unit_at >= units ? 0.0f : column[value] * (K_UNIT * q_unit);
                }
% if prefill.q_shared then
                *(tqg_u32 *)(q_lane + i / 4 * TQP_LANES + i % 4 * 4) = tqg_h2(x[0], x[1]);
% else
                q[i] = tqg_h2(x[0], x[1]);
% end
            }
        }
        tqg_block_sync();
    }

% if prefill.dots then
    /* Lanes read what others have: [16 values][8 of them][column][value]. */
    tqg_u8 *const q_rows = TQG_SHARED + ${fit.at.q} + warp * (Q_REGISTERS * 4 * TQG_WARP);
    TQG_UNROLL
    for (int i = 0; i < Q_REGISTERS; i++)
        *(tqg_u32 *)(q_rows + 4 * (TQG_WARP * i + tqg_lane())) = q[i];

% end
    float max[SLOTS], sum[SLOTS], o[GROUPS * OUTPUTS];
    TQG_UNROLL
    for (int i = 0; i < SLOTS; i++) {
        max[i] = TQA_NO_MAX;
        sum[i] = 0.0f;
    }
    TQG_UNROLL
    for (int i = 0; i < GROUPS * OUTPUTS; i++)
        o[i] = 0.0f;

    const tqa_cache k_cache = tqa_cache_of(&p.k, range.sequence, range.kv_head, 1);
    const tqa_cache v_cache = tqa_cache_of(&p.v, range.sequence, range.kv_head, 1);
    /* What the columns of this set see at most; keys that all of them see need no mask. */
    const int set_first = first + set * COLUMNS / GQA, set_last = first + ((set + 1) * COLUMNS - 1) / GQA;
    const int low = tqp_end(&range, set_first < last ? set_first : last);
    const int high = tqp_end(&range, set_last < last ? set_last : last);
    const int set_begin = tqp_begin(&range, low), all_begin = tqp_begin(&range, high);
    const int has_options = p.softcap > 0.0f || p.alibi;
% if fit.buffers > 1 then
    int buffer = 0;
% end
% if prefill.parts > 1 then
    tqg_u8 *const of_set = TQG_SHARED + ${fit.at.scores} + set * (PARTS * ${prefill.score_bytes});
% end

    TQG_NO_UNROLL
    for (int slot = begin & ~(TQP_KEYS - 1); slot < end; slot += TQP_KEYS) {
% if fit.buffers == 1 then
        tqg_u8 *const k_rows = TQG_SHARED, *const v_rows = k_rows + ${prefill.in_turn and 0 or prefill.rows.k_bytes};
        tqg_block_sync(); /* all warps have multiplied the step before */
% else
        tqg_u8 *const k_rows = TQG_SHARED + buffer, *const v_rows = k_rows + TQP_K_BYTES;
        buffer = BUFFER - buffer;
% end
        tqp_decode_k(&k_cache, slot, begin, end, THREADS, k_rows);
% if not prefill.in_turn then
        tqp_decode_v(&v_cache, slot, begin, end, THREADS, v_rows);
% end
        tqg_block_sync();
        const int is_seen = slot < high && slot + TQP_KEYS > set_begin;
% if not (prefill.parts > 1 or prefill.in_turn) then
        if (!is_seen)
            continue;
% end

        /* ---- S = K q^T ---- */
        float s[GROUPS * TQP_SCORES], scale = unit;
        TQG_UNROLL
        for (int i = 0; i < GROUPS * TQP_SCORES; i++)
            s[i] = 0.0f;
        if (is_seen) {
% if bias > 0 then
            if (part == 0) {
                tqb_turn(&coefficients, TQP_KEYS < TQB_RUN ? slot & -TQB_RUN : slot);
                tqm_bias_pass(&coefficients, 1, GROUPS, 1, COLUMNS, PAIRS, turned);
                tqg_warp_sync();
                const int block = TQP_KEYS < TQB_RUN ? slot / 16 % 2 : 0; /* of the run */
                tqm_bias_add(1, TQP_BLOCKS, GROUPS, 1, PAIRS, bias_table + block * (16 * PAIRS), turned, s);
            }
% end
            const tqg_u8 *const k_lane = k_rows + first_unit * (TQP_BLOCKS * TQP_K_BLOCK) + tqp_k_lane(tqm_a_lane());
% if prefill.dots then
            const tqg_u8 *const q_lane = q_rows + 16 * tqm_c_column(0);
% end
            TQG_UNROLL
            for (int u = 0; u < UNITS; u++) {
                if (ALL || u < TQP_K_UNITS / PARTS || u < units) {
% if prefill.dots then
                    TQG_UNROLL
                    for (int step = 0; step < 2; step++) {
                        tqg_u32 a[TQG_MMA_A], q[TQG_MMA_B];
                        tqp_load(TQG_MMA_B, q_lane + (2 * u + step) * Q_STEP, 4 * COLUMNS, q);
                        TQG_UNROLL
                        for (int b = 0; b < TQP_BLOCKS; b++) {
                            const tqg_u8 *const of_step = k_lane + (u * TQP_BLOCKS + b) * TQP_K_BLOCK + step * (TQP_K_BLOCK / 2);
                            tqp_load(TQG_MMA_A, of_step, TQP_K_LOAD, a);
                            tqg_mma_f16(s + b * TQG_MMA_C, a, q);
                        }
                    }
% else
                    TQG_UNROLL
                    for (int b = 0; b < TQP_BLOCKS; b++) {
                        tqg_u32 a[2 * TQG_MMA_A];
                        tqp_load(2 * TQG_MMA_A, k_lane + (u * TQP_BLOCKS + b) * TQP_K_BLOCK, TQP_K_LOAD, a);
                        TQG_UNROLL
                        for (int i = 0; i < 2 * GROUPS; i++) {
                            const int step = i / GROUPS, group = i % GROUPS, at = group * Q_REGISTERS + (2 * u + step) * TQG_MMA_B;
% if prefill.q_shared then
                            tqg_u32 q[4];
                            tqm_read16(1, q_lane + at / 4 * TQP_LANES, q);
                            tqg_mma_f16(s + (group * TQP_BLOCKS + b) * TQG_MMA_C, a + step * TQG_MMA_A, q + at % 4);
% else
                            tqg_mma_f16(s + (group * TQP_BLOCKS + b) * TQG_MMA_C, a + step * TQG_MMA_A, q + at);
% end
                        }
                    }
% end
                }
            }
% if prefill.parts > 1 then
            tqp_put_scores(GROUPS * TQP_SCORES, s, of_set + part * ${prefill.score_bytes});
% end
        }
% if prefill.parts > 1 or prefill.in_turn then
        tqg_block_sync();
%     if prefill.in_turn then
        tqp_decode_v(&v_cache, slot, begin, end, THREADS, v_rows);
        tqg_block_sync();
%     end
        if (!is_seen)
            continue;
%     if prefill.parts > 1 then
        tqp_add_scores(PARTS, GROUPS * TQP_SCORES, of_set, part, s);
%     end
% end
        if (has_options || slot < all_begin || slot + TQP_KEYS > low) {
            const tqg_prefill_params *const options = tqg_again(p);
            TQG_UNROLL
            for (int i = 0; i < GROUPS * TQP_SCORES; i++) {
                const int at = slot + 16 * (i / TQG_MMA_C % TQP_BLOCKS) + tqm_c_row(i % TQG_MMA_C);
                const int column = set * COLUMNS + i / TQP_SCORES * TQG_MMA_N + tqm_c_column(tqm_c_slot(i));
                const int query = first + column / GQA, query_end = tqp_end(&range, query < last ? query : last);
                float x = s[i] * unit;
                if (options->softcap > 0.0f)
                    x = options->softcap * tqg_tanh(x);
                if (options->alibi)
                    x = tqg_fma(options->alibi[range.kv_head * GQA + column % GQA] * TQA_LOG2_E, (float)(at - (query_end - 1)), x);
                s[i] = at >= tqp_begin(&range, query_end) && at < query_end ? x : TQA_MINUS_INFINITY;
            }
            scale = 1.0f;
        }

        /* ---- weights, relative to a maximum that is raised only where a half could overflow ---- */
        float now[SLOTS];
        tqg_u32 weights[GROUPS * TQP_WEIGHTS], most = 0;
        TQG_UNROLL
        for (int i = 0; i < SLOTS; i++)
            now[i] = sum[i];
        tqp_weigh(GROUPS, s, scale, max, now, weights);
        TQG_UNROLL
        for (int i = 0; i < GROUPS * TQP_WEIGHTS; i++)
            most = tqg_h2_max(most, weights[i]);
        if (tqg_any(((most + tqm_limit(TOP_BITS)) & 0x80008000u) != 0)) {
            tqp_raise(GROUPS, OUTPUTS, s, scale, (float)RAISED_BITS, max, sum, o);
            TQG_UNROLL
            for (int i = 0; i < SLOTS; i++)
                now[i] = sum[i];
            tqp_weigh(GROUPS, s, scale, max, now, weights);
        }
        TQG_UNROLL
        for (int i = 0; i < SLOTS; i++)
            sum[i] = now[i];

        /* ---- O^T += V^T P^T ---- */
        const tqg_u8 *const v_lane = v_rows + first_block * TQP_V_BLOCK + tqp_v_lane(tqm_a_lane());
% if prefill.dots then
        TQG_UNROLL
        for (int step = 0; step < TQP_BLOCKS; step++) {
            tqg_u32 b[TQG_MMA_B];
            tqm_gather_b(weights + step * TQP_KEPT, b);
            TQG_UNROLL
            for (int v = 0; v < BLOCKS; v++) {
                tqg_u32 a[TQG_MMA_A];
                tqp_load(TQG_MMA_A, v_lane + v * TQP_V_BLOCK + step * (4 * TQP_V_LOAD), TQP_V_LOAD, a);
                tqg_mma_f16(o + v * TQG_MMA_C, a, b);
            }
        }
% else
        TQG_UNROLL
        for (int v = 0; v < BLOCKS; v++) {
            if (ALL || v < TQP_V_BLOCKS / PARTS || v < blocks) {
                tqg_u32 a[2 * TQG_MMA_A];
                tqp_load(2 * TQG_MMA_A, v_lane + v * TQP_V_BLOCK, TQP_V_LOAD, a);
                TQG_UNROLL
                for (int i = 0; i < TQP_BLOCKS * GROUPS; i++) {
                    const int step = i / GROUPS, group = i % GROUPS;
                    tqg_mma_f16(o + group * OUTPUTS + v * TQG_MMA_C, a + step * TQG_MMA_A,
                                weights + (group * TQP_BLOCKS + step) * TQG_MMA_B);
                }
            }
        }
% end
    }

    /* ---- sums, and what the outputs still lack ---- */
    const tqg_prefill_params *const late = tqg_again(p);
    TQG_UNROLL
    for (int i = 0; i < SLOTS; i++) {
        const int column = set * COLUMNS + i / TQM_COLUMNS * TQG_MMA_N + tqm_c_column(i % TQM_COLUMNS);
        const int query = first + column / GQA, head = range.kv_head * GQA + column % GQA;
        const float sink = late->sink_logits ? late->sink_logits[head] * TQA_LOG2_E : TQA_MINUS_INFINITY;
        const float top = tqg_max(max[i], sink), keep = tqg_exp2(max[i] - top);
        const float total = tqg_fma(tqm_column_sum(sum[i]), keep, tqg_exp2(sink - top));
        if (late->lse && part == 0 && tqm_is_first() && query <= last)
            late->lse[((tqg_i64)range.sequence * late->max_query + query) * (late->n_kv_heads * GQA) + head] =
                total > 0.0f ? (top + tqg_log2(total)) * TQA_LN_2 : TQA_MINUS_INFINITY;
        const float factor = total > 0.0f ? keep / total * V_UNIT : 0.0f;
        TQG_UNROLL
        for (int j = i % TQM_COLUMNS; j < OUTPUTS; j += TQM_COLUMNS)
            o[i / TQM_COLUMNS * OUTPUTS + j] *= factor;
    }

    /* ---- out of the domain of V, one set's columns after the other ---- */
    TQG_NO_UNROLL
    for (int w = 0; w < SETS; w++) {
        tqg_block_sync();
        if (w == set) {
            const int from = PARTS > 1 ? (int)tqg_keep((tqg_u32)first_block) : 0; /* no addresses ahead of the loop */
            TQG_UNROLL
            for (int i = 0; i < GROUPS * OUTPUTS; i++) {
                const int column = i / OUTPUTS * TQG_MMA_N + tqm_c_column(tqm_c_slot(i)), v = i % OUTPUTS / TQG_MMA_C;
                const int position = tqp_v_position(from + v) + tqm_c_row(i % TQG_MMA_C);
                if (v < TQP_V_BLOCKS / PARTS || v < blocks)
                    floats[column * TQA_V_HEAD_DIM + tqp_v_value(position)] = o[i];
            }
        }
        tqg_block_sync();
% if v.rotated then
        tqa_transform(floats, COLUMNS * TQA_V_HEAD_DIM, ${v.pow2}, ${hexf(1 / math.sqrt(v.pow2))}, ${v.odd}, THREADS);
% end
        for (int i = thread; i < COLUMNS * TQA_V_HEAD_DIM; i += THREADS) {
            const int of_set = i / TQA_V_HEAD_DIM, value = i - of_set * TQA_V_HEAD_DIM, column = w * COLUMNS + of_set;
            const int query = first + column / GQA, head = range.kv_head * GQA + column % GQA;
            if (query <= last)
                late->out[(tqg_i64)range.sequence * late->out_seq_stride + (tqg_i64)query * late->out_token_stride +
                          (tqg_i64)head * late->out_head_stride + value] = ${v.rotated and "tqa_signed(floats[i], tqa_v_signs(value >> 5), value)" or "floats[i]"};
        }
    }
}
