/* Tiles as operands. A lane holds 4 groups of code words; a group is 4 quads of 4 codes for each half of its words, whose
 * halves are of different keys. Under the prefix P of a side:
 *
 *   P_TILE_BYTES        of a tile, P_SUBTILE_BYTES of a chunk of it
 *   P_tile_words        loads a chunk's code words of this lane
 *   P_tile_quads        a group's words to 4 words, one quad per half in each
 *   P_quad_pairs        half of the codes of such a word to two pairs of halves: K: of one key each; V: of one value each
 *   P_gain_products     a word of gain codes times scales
 *   k_tile_scores       adds K q^T of a chunk to s; v_tile_outputs adds V^T P^T of a chunk to o
 *
 * groups: groups of TQG_MMA_N query heads. Arrays are flat: s [group][TQM_SCORES], o [group][TQM_OUTPUTS], weights
 * [group][TQM_WEIGHTS]; q holds TQM_STEPS * TQG_MMA_B registers per chunk, groups q_stride apart. */
% for _, side in ipairs(sides) do
%     local f, p, P = side.f, side.prefix, side.prefix:upper()
%     if f.rotated and head_dim % 128 == 0 then
%         local codes, gains = 16 * f.bits, f.subs > 0
%         local scales, pair = not gains or p == "k", gains or p == "v"
%         if scales then
#define ${P}_SCALE_WORDS ${p == "k" and "(TQM_COLUMNS == 2 ? TQM_BLOCKS : TQM_SCORES / 2)" or "TQM_WEIGHTS"}
%         end
enum {
    ${P}_TILE_WORDS = ${4 * f.bits}, /* per lane and chunk */
    ${P}_TILE_GAINS = TQM_KEYS * ${codes},
    ${P}_TILE_SCALES = ${P}_TILE_GAINS + ${gains and "4 * TQM_KEYS" or "0"},
    ${P}_SUBTILE_BYTES = ${P}_TILE_SCALES + 2 * TQM_KEYS,
    ${P}_TILE_BYTES = ${head_dim // 128} * ${P}_SUBTILE_BYTES,
};

/* What a lane holds of a chunk. scales: K: of the keys that are its rows of S; V: of the keys that are its k of O. pair: of
 * two neighbouring keys; one of them, or on mma both, are those of the gain word that the lane decodes. */
typedef struct ${p}_part {
    tqg_u32 words[${P}_TILE_WORDS]${scales and ", scales[" .. P .. "_SCALE_WORDS]" or ""}${gains and ", gains" or ""}${pair and ", pair" or ""};
} ${p}_part;

TQG_FN void ${p}_load_words(const int shared, const unsigned char *subtile, ${p}_part *x) {
    TQG_UNROLL
    for (int i = 0; i < ${P}_TILE_WORDS / 4; i++)
        tqm_read16(shared, subtile + (i * TQG_WARP + tqg_lane()) * 16, x->words + 4 * i);
}
TQG_FN void ${p}_load_scales(const int shared, const unsigned char *subtile, ${p}_part *x) {
    const unsigned char *scales = subtile + ${P}_TILE_SCALES;
%         if gains then
    x->gains = tqm_read4(shared, subtile + ${P}_TILE_GAINS + 4 * tqg_lane());
%         end
%         if pair then
    x->pair = tqm_read4(shared, scales + 4 * (tqg_lane() >> 1));
%         end
%         if scales and p == "k" then
    TQG_UNROLL
    for (int i = 0; i < ${P}_SCALE_WORDS; i++)
        x->scales[i] =
            tqm_read4(shared, scales + (TQM_COLUMNS == 2 ? 4 * (8 * i + (tqg_lane() >> 2)) : 2 * tqm_s_key(2 * i)));
%         elseif scales then
    TQG_UNROLL
    for (int i = 0; i < ${P}_SCALE_WORDS; i++)
        x->scales[i] = tqm_read4(shared, scales + 2 * tqm_b_key(i));
%         end
}
/* All of a tile in global memory. */
TQG_FN void ${p}_load(const unsigned char *tile, ${p}_part *x) {
    TQG_UNROLL
    for (int c = 0; c < ${head_dim // 128}; c++) {
        ${p}_load_words(0, tile + c * ${P}_SUBTILE_BYTES, x + c);
        ${p}_load_scales(0, tile + c * ${P}_SUBTILE_BYTES, x + c);
    }
}
%         if p == "v" then
/* Takes the scales of invisible keys of the tile that begins with slot `first` for 0. */
TQG_FN void v_clear_scales(const tqa_range *range, int first, v_part *x) {
    x->pair &= tqm_visible(range, first + (tqg_lane() & ~1));
%             if scales then
    TQG_UNROLL
    for (int i = 0; i < V_SCALE_WORDS; i++)
        x->scales[i] &= tqm_visible(range, first + tqm_b_key(i));
%             end
}
%         else
/* Of register i of S. */
TQG_FN float k_scale_of(const k_part *x, int i) {
    if (TQM_COLUMNS == 2)
        return i & 2 ? tqg_h2_hi(x->scales[i / 4]) : tqg_h2_lo(x->scales[i / 4]);
    return i & 1 ? tqg_h2_hi(x->scales[i / 2]) : tqg_h2_lo(x->scales[i / 2]);
}
%         end

TQG_FN void ${p}_tile_quads(const tqg_u32 *w, tqg_u32 *quads) {
%         if f.bits == 4 then
    TQG_UNROLL
    for (int i = 0; i < 4; i++)
        quads[i] = w[i];
%         else
    ${p}_nibbles(w, quads);
%         end
}
TQG_FN void ${p}_quad_pairs(const tqg_u32 *table, tqg_u32 quads, int half, tqg_u32 *a, tqg_u32 *b) {
    tqg_u32 lo, hi;
    ${p}_lookup(table, tqg_codes(quads, half), ${f.bits == 4 and "tqg_tops(quads, half)" or "0"}, &lo, &hi);
%         if p == "k" then
    *a = tqg_zip01(lo, hi);
    *b = tqg_zip23(lo, hi);
%         else
    *a = tqg_zip02(lo, hi);
    *b = tqg_zip13(lo, hi);
%         end
}
%         if gains then
/* mma: four codes of two keys; pair i is gain i of both. Else all codes of one key, and half e of pair i is gain
 * ${p}_gain_order(2i + e). */
TQG_FN void ${p}_gain_products(tqg_u32 word, tqg_u32 scales, tqg_u32 *pairs) {
#ifndef TQG_MATRIX_MMA
    scales = tqg_lane() & 1 ? tqg_h2_dup_hi(scales) : tqg_h2_dup_lo(scales);
#endif
    TQG_UNROLL
    for (int half = 0; half < 2; half++) {
        tqg_u32 lo, hi;
        ${p}_gain_bytes(tqg_codes(word, half), tqg_tops(word, half), &lo, &hi);
#ifdef TQG_MATRIX_MMA
        const tqg_u32 a = tqg_zip02(lo, hi), b = tqg_zip13(lo, hi);
#else
        const tqg_u32 a = tqg_zip01(lo, hi), b = tqg_zip23(lo, hi);
#endif
%             if f.signed then
        pairs[2 * half] = tqg_h2_mul(a, scales);
        pairs[2 * half + 1] = tqg_h2_mul(b, scales);
%             else
        pairs[2 * half] = tqg_h2_fma(a, scales, tqg_h2_neg(scales));
        pairs[2 * half + 1] = tqg_h2_fma(b, scales, tqg_h2_neg(scales));
%             end
    }
}
%         end
%     end
% end
% if k.rotated and head_dim % 128 == 0 then
%     local gains = k.subs > 0
%     if gains then

/* Gain codes of a chunk, each decoded by one lane, to shared memory. */
TQG_FN void k_tile_gains(tqg_u32 word, tqg_u32 scales, tqg_u4 *gains) {
    tqg_u32 pairs[4];
    k_gain_products(word, scales, pairs);
    gains[tqg_lane()] = tqm_u4(pairs);
}
/* Where the gains of fragment f of group j are, and which of the four pairs there is k step `step` of the keys of half `key`
 * of its words. */
TQG_FN int k_gain_index(int j, int f) {
    return TQM_COLUMNS == 2 ? (8 * (j >> 1) + (tqg_lane() >> 2)) * 2 + (j & 1)
                            : (TQM_KEYS == 64 ? 32 * (j >> 1) : 0) + 16 * f + (tqg_lane() & 15);
}
TQG_FN tqg_u32 k_gain_of(const tqg_u32 *gain, int step, int key) {
    const tqg_u32 pair = gain[TQM_COLUMNS == 2 ? step & 3 : 2 * (step & 1) + (step >> 2)];
    return (TQM_COLUMNS == 2 ? key : step >> 1 & 1) ? tqg_h2_dup_hi(pair) : tqg_h2_dup_lo(pair);
}
%     end

/* gains: what k_tile_gains left in shared memory. q: registers, or, in_shared, four of a lane together in
 * shared memory. */
TQG_FN void k_tile_scores(const int groups, const int in_shared, const tqg_u32 *table, const tqg_u32 *w, const tqg_u4 *gains,
                          const tqg_u32 *q, const tqg_u4 *q_shared, const int q_stride, float *s) {
    /* Fragments that a quad is part of: one with both keys as rows, or one for each key. Quads of a k step. Groups of the
     * same k steps, which take q together. */
    enum { FRAGMENTS = TQM_COLUMNS == 2 ? 1 : 2, QUADS = TQG_MMA_B / 2, LIKE = QUADS == 2 ? 1 : 2 };
    tqg_u32 b[2][4]; /* of q, where it comes from shared memory */
%     if not gains then
    (void)gains;
%     end
    TQG_UNROLL
    for (int h = 0; h < 4 / LIKE; h++) {
        tqg_u32 quads[LIKE][4];
%     if gains then
        tqg_u32 gain[LIKE][FRAGMENTS][4];
%     end
        TQG_UNROLL
        for (int i = 0; i < LIKE; i++) {
            k_tile_quads(w + ${k.bits} * (h + 2 * i), quads[i]);
%     if gains then
            TQG_UNROLL
            for (int f = 0; f < FRAGMENTS; f++)
                tqm_read16(1, (const unsigned char *)(gains + k_gain_index(h + 2 * i, f)), gain[i][f]);
%     end
        }
        TQG_UNROLL
        for (int u = 0; u < 4; u += QUADS) {
            const int step = QUADS == 2 ? 2 * h + u / 2 : 4 * h + u;
            if (in_shared && step * TQG_MMA_B % 4 == 0) {
                TQG_UNROLL
                for (int n = 0; n < groups; n++)
                    tqm_read16(1, (const unsigned char *)(q_shared + (n * q_stride + step * TQG_MMA_B) / 4 * TQG_WARP +
                                                          tqg_lane()), b[n]);
            }
            TQG_UNROLL
            for (int i = 0; i < LIKE; i++) {
                tqg_u32 a[FRAGMENTS][TQG_MMA_A];
                TQG_UNROLL
                for (int e = 0; e < 2 * QUADS; e++) {
                    tqg_u32 key_a, key_b;
                    k_quad_pairs(table, quads[i][u + e / 2], e & 1, &key_a, &key_b);
%     if gains then
                    key_a = tqg_h2_mul(key_a, k_gain_of(gain[i][0], step, 0));
                    key_b = tqg_h2_mul(key_b, k_gain_of(gain[i][FRAGMENTS - 1], step, 1));
%     end
                    a[0][FRAGMENTS == 1 ? 2 * e : e] = key_a;
                    a[FRAGMENTS - 1][FRAGMENTS == 1 ? 2 * e + 1 : e] = key_b;
                }
                TQG_UNROLL
                for (int f = 0; f < FRAGMENTS; f++) {
                    const int block = FRAGMENTS == 1 ? i : f + 2 * i;
                    TQG_UNROLL
                    for (int n = 0; n < groups; n++) {
                        const int at = n * q_stride + step * TQG_MMA_B;
                        tqg_mma_f16(s + n * TQM_SCORES + block * TQG_MMA_C, a[f], in_shared ? b[n] + at % 4 : q + at);
                    }
                }
            }
        }
    }
}
% end
% if v.rotated and head_dim % 128 == 0 then
%     local gains = v.subs > 0
%     if gains then

/* Likewise; but for WMMA and MFMA by row block, keys in the order in which B wants them. */
TQG_FN void v_tile_gains(tqg_u32 word, tqg_u32 scales, unsigned char *gains) {
    tqg_u32 pairs[4];
    v_gain_products(word, scales, pairs);
#ifdef TQG_MATRIX_MMA
    ((tqg_u4 *)gains)[tqg_lane()] = tqm_u4(pairs);
#else
    TQG_UNROLL
    for (int i = 0; i < 8; i++)
        *(tqg_u16 *)(gains + tqm_gain_at(v_gain_order(i), tqg_lane())) = (tqg_u16)(pairs[i / 2] >> 16 * (i & 1));
#endif
}
%     end

/* One k step of a row block. */
TQG_FN void v_tile_multiply(const int groups, const int o_stride, int tile, int step, const tqg_u32 *a, const tqg_u32 *gain,
                            const tqg_u32 *weights, float *o) {
%     if not gains then
    (void)gain;
%     end
    TQG_UNROLL
    for (int n = 0; n < groups; n++) {
        const tqg_u32 *b = weights + n * TQM_WEIGHTS + step * TQG_MMA_B;
%     if gains then
        tqg_u32 scaled[TQG_MMA_B];
        TQG_UNROLL
        for (int r = 0; r < TQG_MMA_B; r++)
            scaled[r] = tqg_h2_mul(b[r], gain[r]);
        b = scaled;
%     end
        tqg_mma_f16(o + n * o_stride + tile * TQG_MMA_C, a, b);
    }
}

/* gains: what v_tile_gains left in shared memory. */
TQG_FN void v_tile_outputs(const int groups, const tqg_u32 *table, const tqg_u32 *w, const unsigned char *gains,
                           const tqg_u32 *weights, float *o, const int o_stride) {
%     if not gains then
    (void)gains;
    const tqg_u32 *gain = 0;
%     end
#if defined(TQG_MATRIX_MMA)
    TQG_UNROLL
    for (int step = 0; step < TQM_BLOCKS; step++) {
        tqg_u32 quads[2][4];
        v_tile_quads(w + ${v.bits} * (2 * step), quads[0]);
        v_tile_quads(w + ${v.bits} * (2 * step + 1), quads[1]);
%     if gains then
        tqg_u32 of[TQM_STEPS][2];
        TQG_UNROLL
        for (int i = 0; i < 4; i++) { /* half i & 1 of the chunk, keys of B's register i >> 1 */
            const int pair = 8 * step + 4 * (i >> 1) + (tqg_lane() & 3);
            const tqg_u4 g = ((const tqg_u4 *)gains)[2 * pair + (i & 1)];
            of[4 * (i & 1)][i >> 1] = g.x;
            of[4 * (i & 1) + 1][i >> 1] = g.y;
            of[4 * (i & 1) + 2][i >> 1] = g.z;
            of[4 * (i & 1) + 3][i >> 1] = g.w;
        }
%     end
        TQG_UNROLL
        for (int tile = 0; tile < TQM_STEPS; tile++) {
            tqg_u32 a[4];
            v_quad_pairs(table, quads[0][tile >> 1], tile & 1, a, a + 1);
            v_quad_pairs(table, quads[1][tile >> 1], tile & 1, a + 2, a + 3);
%     if gains then
            const tqg_u32 *gain = of[tile];
%     end
            v_tile_multiply(groups, o_stride, tile, step, a, gain, weights, o);
        }
    }
#else
    TQG_UNROLL
    for (int j = 0; j < 4; j++) {
        const int step = TQG_MMA_B == 4 ? j >> 1 : j;
        tqg_u32 quads[4];
        v_tile_quads(w + ${v.bits} * j, quads);
        /* The 4 row blocks of a nibble come from 4 quads, or from 2 of them, and then there are two such sets. */
        TQG_UNROLL
        for (int set = 0; set < 4 / TQG_MMA_B; set++) {
            TQG_UNROLL
            for (int half = 0; half < 2; half++) {
                tqg_u32 a[2][TQG_MMA_A];
                TQG_UNROLL
                for (int r = 0; r < TQG_MMA_A; r++)
                    v_quad_pairs(table, quads[TQG_MMA_B == 4 ? r : set + 2 * r], half, &a[0][r], &a[1][r]);
                TQG_UNROLL
                for (int e = 0; e < 2; e++) {
                    const int tile = 4 * (TQG_MMA_B == 4 ? j & 1 : set) + TQG_NIBBLE(half, e);
%     if gains then
                    tqg_u32 gain[TQG_MMA_B];
                    tqm_gains_of(gains, tile, step, gain);
%     end
                    v_tile_multiply(groups, o_stride, tile, step, a[e], gain, weights, o);
                }
            }
        }
    }
#endif
}
% end
