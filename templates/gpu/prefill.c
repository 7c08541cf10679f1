% if once("prefill") then

/* ---- prefill: decoded rows in shared memory ----------------------------------------------------------------------
 * Halves lie as registers of A take them: by 16 bytes per lane, the lanes one after the other. A unit decodes to pairs of
 * halves, of which pair i holds positions 2i and 2i + 1; the value at position i of a unit is P_value(i) of it.
 *   K    [unit][row block of 16 keys][k step][lane]
 *   V^T  [row block of 16 positions][k step of 16 keys][lane]
 * On mfma, where a lane has 8 bytes per k step, 16 bytes of it are two steps. */
enum {
    TQP_KEYS = ${prefill.keys}, /* of a step */
    TQP_BLOCKS = TQP_KEYS / 16, /* row blocks of S, k steps of O */
    TQP_SCORES = TQP_BLOCKS * TQG_MMA_C,
    TQP_WEIGHTS = TQP_BLOCKS * TQG_MMA_B,
    TQP_LANES = 16 * TQG_WARP, /* bytes */
    TQP_K_UNITS = ${prefill.k_units}, /* of 32 positions; those behind a tail are 0 */
    TQP_K_BLOCK = 1024, /* bytes of a unit of 16 keys */
    TQP_K_BYTES = TQP_K_UNITS * TQP_BLOCKS * TQP_K_BLOCK,
    TQP_V_BLOCKS = ${prefill.v_blocks}, /* of 16 positions */
    /* Padded, so that threads which store different keys meet different banks: behind the lanes of a load on mma, else behind
     * 16 lanes. */
    TQP_V_LOAD = ${prefill.v_load},
    TQP_V_BLOCK = ${prefill.v_block_bytes},
    TQP_V_BYTES = TQP_V_BLOCKS * TQP_V_BLOCK,
};

/* The first of the two positions of a unit that register r of A and of B holds in k step `step` of it. */
TQG_FN int tqp_position(int step, int r) {
    const int lane_run = 2 * TQG_MMA_B;
#ifdef TQG_MATRIX_MFMA
    return 2 * lane_run * tqm_k_lane() + lane_run * step + 2 * r;
#else
    return 16 * step + lane_run * tqm_k_lane() + 2 * r;
#endif
}

/* On mma, the 16 bytes of a lane of K lie elsewhere among those of its group of four: threads that store the same ones of
 * different keys meet different banks. */
TQG_FN int tqp_k_lane(int lane) {
    return TQM_COLUMNS == 2 ? 16 * (lane ^ (lane >> 3 & 3)) : 16 * lane;
}
TQG_FN int tqp_v_lane(int lane) {
    return TQM_COLUMNS == 2 ? 16 * lane : 16 * lane + (lane >> 4) * 16;
}
/* A's registers of two k steps. */
TQG_FN void tqp_load_a(const tqg_u8 *at, const int load, tqg_u32 *a) {
    TQG_UNROLL
    for (int i = 0; i < 2 * TQG_MMA_A / 4; i++)
        tqm_read16(1, at + i * load, a + 4 * i);
}
% for _, side in ipairs(sides) do
%     local f, p, P = side.f, side.prefix, side.prefix:upper()

/* ---- rows of ${P} ---- */
enum { TQP_${P}_PER_BLOCK = ${P}_UNITS + ${P}_TAIL };

/* Where the block of unit `number` of a row begins, and where the unit lies. */
TQG_FN const tqg_u8 *tqp_${p}_block(const tqg_u8 *row, int number) {
    return row + number / TQP_${P}_PER_BLOCK * ${P}_BLOCK_BYTES;
}
TQG_FN const tqg_u8 *tqp_${p}_payload(const tqg_u8 *row, int number) {
    return tqp_${p}_block(row, number) + ${P}_HEADER + number % TQP_${P}_PER_BLOCK * (4 * ${P}_UNIT_WORDS);
}
TQG_FN int tqp_${p}_is_tail(int number) {
    return ${P}_TAIL && number % TQP_${P}_PER_BLOCK == ${P}_UNITS;
}
/* Which value of the head the position is; -1: none. */
TQG_FN int tqp_${p}_value(int position) {
    const int number = position >> 5, at = position & 31;
    if (at >= 16 && tqp_${p}_is_tail(number))
        return -1;
    return number / TQP_${P}_PER_BLOCK * ${P}_BLOCK + number % TQP_${P}_PER_BLOCK * 32 + ${p}_value(at);
}
%     local has_tail = f.bits == 16 and head_dim % 32 ~= 0 or f.bits < 16 and f.tail
%     if f.bits < 16 then
/* By which a run of 16 values is multiplied, twice; sub: its number in the block. */
TQG_FN tqg_u32 tqp_${p}_factor(const tqg_u8 *block, int sub) {
    const tqg_u32 scale = tqg_u16_at(block);
%         if f.bits < 8 and f.subs > 0 then
    const tqg_u32 code = tqg_u16_at(block + 2 + 2 * (sub >> 2)) >> 4 * (sub & 3) & 15;
    return tqg_to_half(${p}_gain_at(code) * tqg_half((tqg_u16)scale)) * 0x10001u;
%         else
    (void)sub;
    return scale * 0x10001u;
%         end
}
%     end
/* Half of unit `number` of a row, 8 pairs; 0 behind a tail. */
TQG_FN void tqp_${p}_half(const tqg_u8 *row, int number, int half, tqg_u32 *pairs) {
    const tqg_u8 *payload = tqp_${p}_payload(row, number);
%     if has_tail then
    const int is_tail = tqp_${p}_is_tail(number);
%     end
%     if f.bits >= 8 then
    tqg_u32 words[${P}_TAIL_WORDS];
    tqg_words_at(${has_tail and "is_tail ? payload : " or ""}payload + half * (2 * ${P}_UNIT_WORDS), ${P}_UNIT_WORDS, words);
    ${p}_tail(words, pairs);
%     else
    tqg_u32 words[${P}_UNIT_WORDS], nibbles[4];
%         if has_tail then
    if (is_tail) {
        tqg_words_at(payload, ${f.bits}, words);
        ${p}_tail_nibbles(words, nibbles);
    } else
%         end
    {
        tqg_words_at(payload, 2 * ${P}_UNIT_WORDS, words);
        ${p}_nibbles(words, nibbles);
        nibbles[0] = half ? nibbles[2] : nibbles[0];
        nibbles[1] = half ? nibbles[3] : nibbles[1];
    }
    ${p}_pairs(nibbles[0], pairs);
    ${p}_pairs(nibbles[1], pairs + 4);
%     end
%     if f.bits < 16 then
    const tqg_u32 factor = tqp_${p}_factor(tqp_${p}_block(row, number), 2 * (number % TQP_${P}_PER_BLOCK) + half);
    TQG_UNROLL
    for (int i = 0; i < 8; i++)
        pairs[i] = tqg_h2_mul(pairs[i], factor);
%     end
%     if has_tail then
    TQG_UNROLL
    for (int i = 0; i < 8; i++)
        pairs[i] = is_tail && half ? 0 : pairs[i];
%     end
}
% end

/* Which half of which unit a block of 16 positions of V is. */
TQG_FN int tqp_v_position(int block) {
% local halves = v.bits == 16 and head_dim // 16 or 2 * v.full_units + (v.tail and 1 or 0)
    return block / ${halves} * (32 * TQP_V_PER_BLOCK) + block % ${halves} * 16;
}

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
        tqg_c_to_b(x, weights + b * TQG_MMA_B);
    }
}

/* Raises the maxima so that the weights of this step are at most 2^exponent, and takes sums and outputs with them. */
TQG_FN void tqp_raise(const int groups, const float *s, float scale, float exponent, float *max, float *sum, float *o) {
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
        for (int i = slot % TQM_COLUMNS; i < TQP_V_BLOCKS * TQG_MMA_C; i += TQM_COLUMNS)
            o[group * TQP_V_BLOCKS * TQG_MMA_C + i] *= keep;
    }
}
% end

/* Prefill. A block takes ${prefill.tokens} queries of one sequence and the ${gqa} query heads of one KV head: ${prefill.warps * prefill.columns} columns, ${prefill.columns} of which belong to each
 * warp. Per step of ${prefill.keys} keys all threads decode rows to shared memory, then every warp computes S = K q^T and
 * O^T += V^T P^T for its columns. */
TQG_KERNEL(${symbol}, tqg_prefill_params, ${geometry.threads}, ${geometry.blocks_per_sm}) {
    enum {
        GQA = ${gqa},
        WARPS = ${prefill.warps},
        THREADS = WARPS * TQG_WARP,
        GROUPS = ${prefill.groups}, /* of columns of B */
        COLUMNS = GROUPS * TQG_MMA_N, /* of a warp: column c of the block is head c % GQA of query c / GQA */
        QUERIES = ${prefill.tokens},
        Q_REGISTERS = 2 * TQP_K_UNITS * TQG_MMA_B,
        OUTPUTS = TQP_V_BLOCKS * TQG_MMA_C,
        SLOTS = GROUPS * TQM_COLUMNS, /* columns that a lane has scores of */
        BUFFER = TQP_K_BYTES + TQP_V_BYTES,
        K_TASKS = TQP_KEYS / 2 * 2 * TQP_K_UNITS, /* half units of two keys */
        V_TASKS = TQP_KEYS / 2 * TQP_V_BLOCKS,
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
    const int first = block * QUERIES, last = (first + QUERIES < range.n_query ? first + QUERIES : range.n_query) - 1;
    const int end = tqp_end(&range, last), begin = tqp_begin(&range, tqp_end(&range, first));

% if bias > 0 then
    /* ---- score bias: its table, and this warp's coefficients ---- */
    tqg_u32 *const bias_table = (tqg_u32 *)(TQG_SHARED + ${geometry.shared_bytes - 128 * bias});
    tqg_u32 *const turned = (tqg_u32 *)(TQG_SHARED + ${fit.q_at + prefill.q_bytes} + warp * ${prefill.bias_bytes});
    tqb_lane coefficients;
    tqm_bias_table(&p.bias, PAIRS, THREADS, bias_table);
    tqb_begin(&p.bias, PAIRS, &coefficients);
    TQG_UNROLL
    for (int i = 0; i < TQB_ITEMS(COLUMNS, PAIRS); i++) {
        const int column = warp * COLUMNS + tqb_head(&coefficients, PAIRS, i);
        const int query = first + column / GQA, head = range.kv_head * GQA + column % GQA;
        const float *const of_head = p.bias.coefficients + (tqg_i64)range.sequence * p.bias.seq_stride +
                                     (tqg_i64)query * p.bias.token_stride + (tqg_i64)head * p.bias.head_stride;
        tqb_take(&p.bias, query <= last ? of_head : 0, p.factor, i, &coefficients);
    }
    const float most_bias = tqb_largest(&coefficients, COLUMNS, PAIRS);

% end
    /* ---- q: rotated, in halves times q_unit, in the order of positions ---- */
    float *const floats = (float *)TQG_SHARED; /* [COLUMNS][TQA_HEAD_DIM], of one warp after the other */
    float unit = 1.0f; /* of scores */
% if prefill.q_shared then
    tqg_u8 *const q_lane = TQG_SHARED + ${fit.q_at} + warp * (Q_REGISTERS * GROUPS * 4 * TQG_WARP) + 16 * tqg_lane();
% else
    tqg_u32 q[GROUPS * Q_REGISTERS];
    TQG_UNROLL
    for (int i = 0; i < GROUPS * Q_REGISTERS; i++)
        q[i] = 0;
% end
    TQG_NO_UNROLL
    for (int w = 0; w < WARPS; w++) {
        for (int i = thread; i < COLUMNS * TQA_HEAD_DIM; i += THREADS) {
            const int of_warp = i / TQA_HEAD_DIM, value = i - of_warp * TQA_HEAD_DIM, column = w * COLUMNS + of_warp;
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
        if (w == warp) {
%     local largest = "tqa_largest(floats, COLUMNS * TQA_HEAD_DIM) * K_UNIT"
            const float largest = ${bias > 0 and ("tqg_max(%s, most_bias)"):format(largest) or largest};
            const float q_unit = largest >= 0x1p-3f && largest < 0x1p14f ? 1.0f : tqa_normalise(largest, 0x1p6f);
            unit = 1.0f / q_unit;
% if bias > 0 then
            tqb_scale(COLUMNS, PAIRS, q_unit, &coefficients);
% end
            ${prefill.q_shared and "TQG_NO_UNROLL" or "TQG_UNROLL"}
            for (int i = 0; i < GROUPS * Q_REGISTERS; i++) {
                const int step = i % Q_REGISTERS / TQG_MMA_B, group = i / Q_REGISTERS;
                const int position = 32 * (step >> 1) + tqp_position(step & 1, i % TQG_MMA_B);
                const float *const column = floats + (group * TQG_MMA_N + tqm_b_column()) * TQA_HEAD_DIM;
                float x[2];
                TQG_UNROLL
                for (int e = 0; e < 2; e++) {
                    const int value = tqp_k_value(position + e);
                    x[e] = value < 0 ? 0.0f : column[value] * (K_UNIT * q_unit);
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
    /* What the columns of this warp see at most; keys that all of them see need no mask. */
    const int warp_first = first + warp * COLUMNS / GQA, warp_last = first + ((warp + 1) * COLUMNS - 1) / GQA;
    const int low = tqp_end(&range, warp_first < last ? warp_first : last);
    const int high = tqp_end(&range, warp_last < last ? warp_last : last);
    const int warp_begin = tqp_begin(&range, low), all_begin = tqp_begin(&range, high);
    const int has_options = p.softcap > 0.0f || p.alibi;
    int buffer = 0;

    TQG_NO_UNROLL
    for (int slot = begin & ~(TQP_KEYS - 1); slot < end; slot += TQP_KEYS) {
        tqg_u8 *const k_rows = TQG_SHARED + buffer, *const v_rows = k_rows + TQP_K_BYTES;
% if fit.buffers == 1 then
        tqg_block_sync(); /* all warps have multiplied the step before */
% else
        buffer = BUFFER - buffer;
% end

        /* ---- rows to halves: 16 positions of two keys, at a time ---- */
        const int pair = thread % (TQP_KEYS / 2);
        {
#ifdef TQG_MATRIX_MMA /* a lane's registers hold both */
            const int g = pair & 7, key = slot + 16 * (pair >> 3) + g, other = key + 8;
            tqg_u8 *const to = k_rows + (pair >> 3) * TQP_K_BLOCK;
#else
            const int key = slot + 2 * pair, other = key + 1;
            tqg_u8 *const to = k_rows + (pair >> 3) * TQP_K_BLOCK + 32 * (pair & 7);
#endif
            const tqg_u8 *const row = tqa_unit(&k_cache, key < begin ? begin : key < end ? key : end - 1);
            const tqg_u8 *const other_row = tqa_unit(&k_cache, other < begin ? begin : other < end ? other : end - 1);
            TQG_UNROLL
            for (int i = 0; i < (K_TASKS + THREADS - 1) / THREADS; i++) {
                const int of = (i * THREADS + thread) / (TQP_KEYS / 2), half = of & 1;
                if (K_TASKS % THREADS == 0 || of < 2 * TQP_K_UNITS) {
                    tqg_u8 *const unit_to = to + (of >> 1) * (TQP_BLOCKS * TQP_K_BLOCK);
                    tqg_u32 a[8], b[8];
                    tqp_k_half(row, of >> 1, half, a);
                    tqp_k_half(other_row, of >> 1, half, b);
#ifdef TQG_MATRIX_MMA
                    TQG_UNROLL
                    for (int t = 0; t < 4; t++) {
                        const tqg_u32 x[4] = {a[2 * t], b[2 * t], a[2 * t + 1], b[2 * t + 1]};
                        *(tqg_u4 *)(unit_to + half * TQP_LANES + tqp_k_lane(4 * g + t)) = tqm_u4(x);
                    }
#else
                    TQG_UNROLL
                    for (int j = 0; j < 2; j++) {
                        *(tqg_u4 *)(unit_to + (2 * half + j) * 256) = tqm_u4(a + 4 * j);
                        *(tqg_u4 *)(unit_to + (2 * half + j) * 256 + 16) = tqm_u4(b + 4 * j);
                    }
#endif
                }
            }
        }
        {
            const int key = slot + 2 * pair, other = key + 1;
            const tqg_u8 *const row = tqa_unit(&v_cache, key < begin ? begin : key < end ? key : end - 1);
            const tqg_u8 *const other_row = tqa_unit(&v_cache, other < begin ? begin : other < end ? other : end - 1);
#if defined(TQG_MATRIX_MMA)
            tqg_u8 *const to = v_rows + (pair >> 3) * TQP_V_LOAD + 16 * (pair & 3) + 8 * (pair >> 2 & 1);
#elif defined(TQG_MATRIX_WMMA)
            tqg_u8 *const to = v_rows + (pair >> 3) * TQP_V_LOAD + tqp_v_lane(16 * (pair >> 2 & 1)) + 4 * (pair & 3);
#else
            tqg_u8 *const to = v_rows + tqp_v_lane(16 * (pair >> 1 & 3)) + 8 * (pair >> 3) + 4 * (pair & 1);
#endif
            TQG_UNROLL
            for (int i = 0; i < (V_TASKS + THREADS - 1) / THREADS; i++) {
                const int of = (i * THREADS + thread) / (TQP_KEYS / 2);
                if (V_TASKS % THREADS == 0 || of < TQP_V_BLOCKS) {
                    const int position = tqp_v_position(of);
                    tqg_u32 a[8], b[8], x[16];
                    tqp_v_half(row, position >> 5, position >> 4 & 1, a);
                    tqp_v_half(other_row, position >> 5, position >> 4 & 1, b);
                    TQG_UNROLL
                    for (int j = 0; j < 8; j++) {
                        x[2 * j] = tqg_permute(a[j], b[j], 0x5410);
                        x[2 * j + 1] = tqg_permute(a[j], b[j], 0x7632);
                    }
#ifdef TQG_MATRIX_MMA
                    TQG_UNROLL
                    for (int j = 0; j < 8; j++)
                        *(tqg_u64 *)(to + of * TQP_V_BLOCK + 64 * j) = x[j] | (tqg_u64)x[j + 8] << 32;
#else
                    TQG_UNROLL
                    for (int j = 0; j < 16; j++)
                        *(tqg_u32 *)(to + of * TQP_V_BLOCK + 16 * j) = x[j];
#endif
                }
            }
        }
        tqg_block_sync();
        if (slot >= high || slot + TQP_KEYS <= warp_begin)
            continue;
% if bias > 0 then
        tqm_bias_pass(&coefficients, 1, GROUPS, 1, COLUMNS, PAIRS, slot, turned);
        tqg_warp_sync();
% end

        /* ---- S = K q^T ---- */
        float s[GROUPS * TQP_SCORES], scale = unit;
        TQG_UNROLL
        for (int i = 0; i < GROUPS * TQP_SCORES; i++)
            s[i] = 0.0f;
% if bias > 0 then
        tqm_bias_add(1, GROUPS, 1, PAIRS, bias_table, turned, s);
% end
        const tqg_u8 *const k_lane = k_rows + tqp_k_lane(tqg_lane());
        TQG_UNROLL
        for (int u = 0; u < TQP_K_UNITS; u++) {
            TQG_UNROLL
            for (int b = 0; b < TQP_BLOCKS; b++) {
                tqg_u32 a[2 * TQG_MMA_A];
                tqp_load_a(k_lane + (u * TQP_BLOCKS + b) * TQP_K_BLOCK, TQP_LANES, a);
                TQG_UNROLL
                for (int i = 0; i < 2 * GROUPS; i++) {
                    const int step = i / GROUPS, group = i % GROUPS;
% if prefill.q_shared then
                    tqg_u32 q[TQG_MMA_B];
                    tqm_read16(1, q_lane + (group * (2 * TQP_K_UNITS) + 2 * u + step) * TQP_LANES, q);
                    tqg_mma_f16(s + (group * TQP_BLOCKS + b) * TQG_MMA_C, a + step * TQG_MMA_A, q);
% else
                    tqg_mma_f16(s + (group * TQP_BLOCKS + b) * TQG_MMA_C, a + step * TQG_MMA_A,
                                q + group * Q_REGISTERS + (2 * u + step) * TQG_MMA_B);
% end
                }
            }
        }
        if (has_options || slot < all_begin || slot + TQP_KEYS > low) {
            const tqg_prefill_params *const options = tqg_again(p);
            TQG_UNROLL
            for (int i = 0; i < GROUPS * TQP_SCORES; i++) {
                const int at = slot + 16 * (i / TQG_MMA_C % TQP_BLOCKS) + tqm_c_row(i % TQG_MMA_C);
                const int column = warp * COLUMNS + i / TQP_SCORES * TQG_MMA_N + tqm_c_column(tqm_c_slot(i));
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
            tqp_raise(GROUPS, s, scale, (float)RAISED_BITS, max, sum, o);
            TQG_UNROLL
            for (int i = 0; i < SLOTS; i++)
                now[i] = sum[i];
            tqp_weigh(GROUPS, s, scale, max, now, weights);
        }
        TQG_UNROLL
        for (int i = 0; i < SLOTS; i++)
            sum[i] = now[i];

        /* ---- O^T += V^T P^T ---- */
        const tqg_u8 *const v_lane = v_rows + tqp_v_lane(tqg_lane());
        TQG_UNROLL
        for (int v = 0; v < TQP_V_BLOCKS; v++) {
            tqg_u32 a[2 * TQG_MMA_A];
            tqp_load_a(v_lane + v * TQP_V_BLOCK, TQP_V_LOAD, a);
            TQG_UNROLL
            for (int i = 0; i < TQP_BLOCKS * GROUPS; i++) {
                const int step = i / GROUPS, group = i % GROUPS;
                tqg_mma_f16(o + group * OUTPUTS + v * TQG_MMA_C, a + step * TQG_MMA_A,
                            weights + (group * TQP_BLOCKS + step) * TQG_MMA_B);
            }
        }
    }

    /* ---- sums, and what the outputs still lack ---- */
    const tqg_prefill_params *const late = tqg_again(p);
    TQG_UNROLL
    for (int i = 0; i < SLOTS; i++) {
        const int column = warp * COLUMNS + i / TQM_COLUMNS * TQG_MMA_N + tqm_c_column(i % TQM_COLUMNS);
        const int query = first + column / GQA, head = range.kv_head * GQA + column % GQA;
        const float sink = late->sink_logits ? late->sink_logits[head] * TQA_LOG2_E : TQA_MINUS_INFINITY;
        const float top = tqg_max(max[i], sink), keep = tqg_exp2(max[i] - top);
        const float total = tqg_fma(tqm_column_sum(sum[i]), keep, tqg_exp2(sink - top));
        if (late->lse && tqm_is_first() && query <= last)
            late->lse[((tqg_i64)range.sequence * late->max_query + query) * (late->n_kv_heads * GQA) + head] =
                total > 0.0f ? (top + tqg_log2(total)) * TQA_LN_2 : TQA_MINUS_INFINITY;
        const float factor = total > 0.0f ? keep / total * V_UNIT : 0.0f;
        TQG_UNROLL
        for (int j = i % TQM_COLUMNS; j < OUTPUTS; j += TQM_COLUMNS)
            o[i / TQM_COLUMNS * OUTPUTS + j] *= factor;
    }

    /* ---- out of the domain of V, one warp's columns after the other ---- */
    TQG_NO_UNROLL
    for (int w = 0; w < WARPS; w++) {
        tqg_block_sync();
        if (w == warp) {
            TQG_UNROLL
            for (int i = 0; i < GROUPS * OUTPUTS; i++) {
                const int column = i / OUTPUTS * TQG_MMA_N + tqm_c_column(tqm_c_slot(i));
                const int position = tqp_v_position(i % OUTPUTS / TQG_MMA_C) + tqm_c_row(i % TQG_MMA_C);
                floats[column * TQA_HEAD_DIM + tqp_v_value(position)] = o[i];
            }
        }
        tqg_block_sync();
% if v.rotated then
        tqa_transform(floats, COLUMNS * TQA_HEAD_DIM, ${v.pow2}, ${hexf(1 / math.sqrt(v.pow2))}, ${v.odd}, THREADS);
% end
        for (int i = thread; i < COLUMNS * TQA_HEAD_DIM; i += THREADS) {
            const int of_warp = i / TQA_HEAD_DIM, value = i - of_warp * TQA_HEAD_DIM, column = w * COLUMNS + of_warp;
            const int query = first + column / GQA, head = range.kv_head * GQA + column % GQA;
            if (query <= last)
                late->out[(tqg_i64)range.sequence * late->out_seq_stride + (tqg_i64)query * late->out_token_stride +
                          (tqg_i64)head * late->out_head_stride + value] = ${v.rotated and "tqa_signed(floats[i], tqa_v_signs(value >> 5), value)" or "floats[i]"};
        }
    }
}
