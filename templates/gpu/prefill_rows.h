% local rows = prefill_rows(head_dim, k.format, v.format, arch)

/* ---- prefill: decoded rows in shared memory ----------------------------------------------------------------------
 * Halves lie as registers of A take them: by 16 bytes per lane, the lanes one after the other. A unit decodes to pairs of
 * halves, of which pair i holds positions 2i and 2i + 1; the value at position i of a unit is P_value(i) of it.
 *   K    [unit][row block of 16 keys][k step][lane]
 *   V^T  [row block of 16 positions][k step of 16 keys][lane]
 * On mfma, where a lane has 8 bytes per k step, 16 bytes of it are two steps; on wmma11, where it has 32, two of these are one. */
enum {
    TQP_KEYS = ${rows.keys}, /* of a step */
    TQP_BLOCKS = TQP_KEYS / 16, /* row blocks of S, k steps of O */
    TQP_SCORES = TQP_BLOCKS * TQG_MMA_C,
    TQP_KEPT = ${rows.kept or "TQG_MMA_B"}, /* registers of weights of 16 keys */
    TQP_WEIGHTS = TQP_BLOCKS * TQP_KEPT,
    TQP_LANES = 16 * TQG_WARP, /* bytes */
    TQP_K_UNITS = ${rows.k_units}, /* of 32 positions; those behind a tail are 0 */
    TQP_K_BLOCK = 1024, /* bytes of a unit of 16 keys */
    TQP_K_LOAD = ${rows.k_load},
    TQP_K_BYTES = TQP_K_UNITS * TQP_BLOCKS * TQP_K_BLOCK,
    TQP_V_BLOCKS = ${rows.v_blocks}, /* of 16 positions */
    /* Padded, so that threads which store different keys meet different banks: behind the lanes of a load on mma, else behind
     * 16 lanes, or 8 of dot products. */
    TQP_V_LOAD = ${rows.v_load},
    TQP_V_BLOCK = ${rows.v_block_bytes},
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
    return TQM_COLUMNS == 2 ? 16 * lane : 16 * lane + (TQM_COLUMNS == 4 ? lane >> 3 : lane >> 4) * 16;
}
/* n registers of an operand, by loads that are so many bytes apart. */
TQG_FN void tqp_load(const int n, const tqg_u8 *at, const int load, tqg_u32 *x) {
    TQG_UNROLL
    for (int i = 0; i < n / 4; i++)
        tqm_read16(1, at + i * load, x + 4 * i);
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

/* ---- rows to halves: 16 positions of two keys, at a time; slots from begin to end - 1 have keys ---- */

TQG_FN const tqg_u8 *tqp_row(const tqa_cache *cache, int slot, int begin, int end) {
    return tqa_unit(cache, slot < begin ? begin : slot < end ? slot : end - 1);
}

TQG_FN void tqp_decode_k(const tqa_cache *cache, int slot, int begin, int end, const int threads, tqg_u8 *k_rows) {
    const int tasks = TQP_KEYS / 2 * 2 * TQP_K_UNITS; /* half units of two keys */
    const int pair = tqg_thread() % (TQP_KEYS / 2);
#ifdef TQG_MATRIX_MMA /* a lane's registers hold both */
    const int g = pair & 7, key = slot + 16 * (pair >> 3) + g, other = key + 8;
    tqg_u8 *const to = k_rows + (pair >> 3) * TQP_K_BLOCK;
#else
    const int key = slot + 2 * pair, other = key + 1;
    tqg_u8 *const to = k_rows + (pair >> 3) * TQP_K_BLOCK + 32 * (pair & 7);
#endif
    const tqg_u8 *const row = tqp_row(cache, key, begin, end);
    const tqg_u8 *const other_row = tqp_row(cache, other, begin, end);
    TQG_UNROLL
    for (int i = 0; i < (tasks + threads - 1) / threads; i++) {
        const int of = (i * threads + tqg_thread()) / (TQP_KEYS / 2), half = of & 1;
        if (tasks % threads == 0 || of < 2 * TQP_K_UNITS) {
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

TQG_FN void tqp_decode_v(const tqa_cache *cache, int slot, int begin, int end, const int threads, tqg_u8 *v_rows) {
    const int tasks = TQP_KEYS / 2 * TQP_V_BLOCKS;
    const int pair = tqg_thread() % (TQP_KEYS / 2);
#ifdef TQG_MATRIX_NONE /* a pair of k is two keys 8 apart */
    const int key = slot + 16 * (pair >> 3) + (pair & 7), apart = 8;
#else
    const int key = slot + 2 * pair, apart = 1;
#endif
    const tqg_u8 *const row = tqp_row(cache, key, begin, end), *const other_row = tqp_row(cache, key + apart, begin, end);
#if defined(TQG_MATRIX_MMA)
    tqg_u8 *const to = v_rows + (pair >> 3) * TQP_V_LOAD + 16 * (pair & 3) + 8 * (pair >> 2 & 1);
#elif defined(TQG_MATRIX_NONE)
    tqg_u8 *const to = v_rows + (pair >> 2) * (2 * TQP_V_LOAD) + 4 * (pair & 3);
#elif defined(TQG_MATRIX_WMMA)
    tqg_u8 *const to = v_rows + (pair >> 3) * TQP_V_LOAD + tqp_v_lane(16 * (pair >> 2 & 1)) + 4 * (pair & 3);
#elif defined(TQG_MATRIX_WMMA11)
    tqg_u8 *const to = v_rows + (pair >> 2) * TQP_V_LOAD + 4 * (pair & 3);
#else
    tqg_u8 *const to = v_rows + tqp_v_lane(16 * (pair >> 1 & 3)) + 8 * (pair >> 3) + 4 * (pair & 1);
#endif
    TQG_UNROLL
    for (int i = 0; i < (tasks + threads - 1) / threads; i++) {
        const int of = (i * threads + tqg_thread()) / (TQP_KEYS / 2);
        if (tasks % threads == 0 || of < TQP_V_BLOCKS) {
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
                *(tqg_u32 *)(to + of * TQP_V_BLOCK + tqp_v_lane(j)) = x[j];
#endif
        }
    }
}
