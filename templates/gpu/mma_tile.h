/* Tiles as operands. A lane holds 4 groups of code words of a sub-tile; a group is 4 quads of 4 codes for each half of its
 * words, whose halves are of different keys. Under the prefix P of a side:
 *
 *   P_TILE_BYTES        of a tile
 *   P_load_words        loads this lane's code words of a sub-tile, P_load_scales its gain codes and the scales of its chunk
 *   P_tile_quads        a group's words to 4 words, one quad per half in each
 *   P_quad_pairs        half of the codes of such a word to two pairs of halves: K: of one key each; V: of one value each
 *   P_gain_products     a word of gain codes times scales
 *   k_tile_scores       adds K q^T of a sub-tile to s; v_tile_outputs adds V^T P^T of a sub-tile to o
 *
 * groups: groups of TQG_MMA_N query heads. Arrays are flat: s [group][TQM_TILE_SCORES], o [group][sub-tile][TQM_TILE_OUTPUTS],
 * weights [group][TQM_TILE_WEIGHTS]; q holds TQM_TILE_STEPS * TQG_MMA_B registers per sub-tile, groups q_stride apart. */
% local tile, shape = tiles.get("tile_" .. arch.matrix), nil
% for _, side in ipairs(tile and tiles.takes(tile, head_dim) and sides or {}) do
%     shape = side.f.rotated and tiles.shape(tile, side.f.chunk) or shape
% end
% local wide = shape and shape.values == 128
% if shape then
enum {
    TQM_TILE_VALUES = ${shape.values}, /* of a sub-tile */
    TQM_TILE_KEYS = ${shape.keys},
    TQM_TILE_BLOCKS = TQM_TILE_KEYS / 16,  /* row blocks of S, k steps of O */
    TQM_TILE_STEPS = TQM_TILE_VALUES / 16, /* k steps of S per sub-tile, row blocks of O */
    TQM_TILE_SCORES = TQM_SCORES(TQM_TILE_BLOCKS),
    TQM_TILE_WEIGHTS = TQM_WEIGHTS(TQM_TILE_BLOCKS),
    TQM_TILE_OUTPUTS = TQM_TILE_STEPS * TQG_MMA_C,
    TQM_SUB_TILES = ${head_dim // shape.values}, /* of a tile */
};

/* ---- gains of a sub-tile in shared memory: what the lanes of a warp decoded for each other ------------------------ */

#define TQM_K_GAIN_BYTES (16 * TQG_WARP)
#ifdef TQG_MATRIX_MMA
#define TQM_V_GAIN_BYTES (16 * TQG_WARP)
#else
/* [row block][part of the lanes][k step][4 or 8 keys], padded against bank conflicts. */
#define TQM_V_GAIN_LANES (TQG_MMA_B == 4 ? 1 : 4)
#define TQM_V_GAIN_RUN   (2 * TQM_TILE_KEYS / TQM_V_GAIN_LANES + 16)
#define TQM_V_GAIN_BYTES (TQM_TILE_STEPS * TQM_V_GAIN_LANES * TQM_V_GAIN_RUN)

/* Where the gain of a row block and a key lies. */
TQG_FN int tqm_gain_at(int tile, int key) {
    if (TQM_V_GAIN_LANES == 1)
        return tile * TQM_V_GAIN_RUN + 2 * key;
    return (tile * 4 + (key >> 2 & 3)) * TQM_V_GAIN_RUN + 2 * (4 * (key >> 4) + (key & 3));
}
/* Those that multiply the registers of B in a k step. */
TQG_FN void tqm_gains_of(const unsigned char *gains, int tile, int step, tqg_u32 *of) {
    const unsigned char *at = gains + tqm_gain_at(tile, 16 * step + TQM_RUN * tqm_k_lane());
    if (TQG_MMA_B == 4) {
        const tqg_u4 x = *(const tqg_u4 *)at;
        of[0] = x.x;
        of[1] = x.y;
        of[2] = x.z;
        of[3] = x.w;
    } else {
        TQG_UNROLL
        for (int r = 0; r < TQG_MMA_B; r++)
            of[r] = ((const tqg_u32 *)at)[r];
    }
}
#endif

% end
% for _, side in ipairs(shape and sides or {}) do
%     local f, p, P = side.f, side.prefix, side.prefix:upper()
%     local of = f.rotated and tiles.of(tile, f.format, head_dim)
%     if of then
%         local gains = f.subs > 0
%         local scales, pair = not gains or p == "k", gains or p == "v"
%         if scales then
#define ${P}_SCALE_WORDS ${p == "k" and "(TQM_COLUMNS == 2 ? TQM_TILE_BLOCKS : TQM_TILE_SCORES / 2)" or "TQM_TILE_WEIGHTS"}
%         end
enum {
    ${P}_TILE_WORDS = ${4 * f.bits}, /* per lane and sub-tile */
    ${P}_TILE_BYTES = ${of.bytes},
};

/* What a lane holds of a sub-tile. scales: K: of the keys that are its rows of S; V: of the keys that are its k of O. pair: of
 * two neighbouring keys; ${wide and "one of them, or on mma both, are those" or "they are those"} of the gain word that the lane decodes. */
typedef struct ${p}_part {
    tqg_u32 words[${P}_TILE_WORDS]${scales and ", scales[" .. P .. "_SCALE_WORDS]" or ""}${gains and ", gains" or ""}${pair and ", pair" or ""};
} ${p}_part;

% local function at(bytes)
%     return of.parts == 1 and ("c * %d"):format(of.chunk)
%         or ("c / %d * %d + c %% %d * %d"):format(of.parts, of.chunk, of.parts, bytes)
% end
/* Sub-tile c of a tile. */
TQG_FN void ${p}_load_words(const int shared, const unsigned char *tile, int c, ${p}_part *x) {
    TQG_UNROLL
    for (int i = 0; i < ${P}_TILE_WORDS / 4; i++)
        tqm_read16(shared, tile + ${at(of.codes)} + (i * TQG_WARP + tqg_lane()) * 16, x->words + 4 * i);
}
TQG_FN void ${p}_load_scales(const int shared, const unsigned char *tile, int c, ${p}_part *x) {
%         if gains then
    x->gains = tqm_read4(shared, tile + ${at(of.gains)} + ${of.gains_at} + 4 * tqg_lane());
%         end
%         if of.parts > 1 then
    if (c % ${of.parts} > 0) { /* the scales are the chunk's */
%             if pair then
        x->pair = x[-1].pair;
%             end
%             if scales then
        TQG_UNROLL
        for (int i = 0; i < ${P}_SCALE_WORDS; i++)
            x->scales[i] = x[-1].scales[i];
%             end
        return;
    }
%         end
    const unsigned char *scales = tile + ${at(0)} + ${of.scales_at};
%         if pair then
    x->pair = tqm_read4(shared, scales + 4 * ${wide and "(tqg_lane() >> 1)" or "tqg_lane()"});
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
    for (int c = 0; c < TQM_SUB_TILES; c++) {
        ${p}_load_words(0, tile, c, x + c);
        ${p}_load_scales(0, tile, c, x + c);
    }
}
%         if p == "v" then
/* Takes the scales of invisible keys of the tile that begins with slot `first` for 0. */
TQG_FN void v_clear_scales(const tqa_range *range, int first, v_part *x) {
    x->pair &= tqm_visible(range, first + ${wide and "(tqg_lane() & ~1)" or "2 * tqg_lane()"});
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
%             -- Of two keys, four codes each, or of one: which way the bytes of halves become pairs.
%             local of_two = arch.matrix == "mma" or not wide and p == "v"
%             local of_each = not wide and not of_two
%             local order = of_two and not wide and { "TQG_NIBBLE(half, 0)", "TQG_NIBBLE(half, 1)" }
%                 or of_each and { "half", "2 + half" } or { "2 * half", "2 * half + 1" }
%             if of_two then
/* Four codes of two keys; pair i is gain i of both. */
%             elseif of_each then
/* Four codes of two keys; pairs 0 and 1 are gains 0 and 2, 1 and 3 of the first one, the other two of the second. */
%             else
/* All codes of one key; half e of pair i is gain ${p}_gain_order(2i + e). */
%             end
TQG_FN void ${p}_gain_products(tqg_u32 word, tqg_u32 scales, tqg_u32 *pairs) {
%             if of_each then
    const tqg_u32 scale[2] = {tqg_h2_dup_lo(scales), tqg_h2_dup_hi(scales)};
%             elseif not of_two then
    scales = tqg_lane() & 1 ? tqg_h2_dup_hi(scales) : tqg_h2_dup_lo(scales);
%             end
    TQG_UNROLL
    for (int half = 0; half < 2; half++) {
        tqg_u32 lo, hi;
        ${p}_gain_bytes(tqg_codes(word, half), tqg_tops(word, half), &lo, &hi);
        const tqg_u32 a = ${of_two and "tqg_zip02(lo, hi)" or "tqg_zip01(lo, hi)"}, b = ${of_two and "tqg_zip13(lo, hi)" or "tqg_zip23(lo, hi)"};
%             for i, x in ipairs { "a", "b" } do
%                 local scale = of_each and ("scale[%d]"):format(i - 1) or "scales"
%                 if f.signed then
        pairs[${order[i]}] = tqg_h2_mul(${x}, ${scale});
%                 else
        pairs[${order[i]}] = tqg_h2_fma(${x}, ${scale}, tqg_h2_neg(${scale}));
%                 end
%             end
    }
}
%         end
%     end
% end
% if shape and k.rotated then
%     local gains = k.subs > 0
%     if gains then

/* Gain codes of a sub-tile, each word decoded by one lane, to shared memory. */
TQG_FN void k_tile_gains(tqg_u32 word, tqg_u32 scales, tqg_u4 *gains) {
    tqg_u32 pairs[4];
    k_gain_products(word, scales, pairs);
    gains[tqg_lane()] = tqm_u4(pairs);
}
%         if wide then
/* Where the gains of fragment f of group j are, and which of the four pairs there is k step `step` of the keys of half `key`
 * of its words. */
TQG_FN int k_gain_index(int j, int f) {
    return TQM_COLUMNS == 2 ? (8 * (j >> 1) + (tqg_lane() >> 2)) * 2 + (j & 1)
                            : (TQM_TILE_KEYS == 64 ? 32 * (j >> 1) : 0) + 16 * f + (tqg_lane() & 15);
}
TQG_FN void k_read_gains(const tqg_u4 *gains, int j, int f, tqg_u32 *gain) {
    tqm_read16(1, (const unsigned char *)(gains + k_gain_index(j, f)), gain);
}
TQG_FN tqg_u32 k_gain_of(const tqg_u32 *gain, int step, int key) {
    const tqg_u32 pair = gain[TQM_COLUMNS == 2 ? step & 3 : 2 * (step & 1) + (step >> 2)];
    return (TQM_COLUMNS == 2 ? key : step >> 1 & 1) ? tqg_h2_dup_hi(pair) : tqg_h2_dup_lo(pair);
}
%         elseif arch.matrix == "mma" then
/* The gains of group j, two keys, and which of them is k step `step` of the keys of half `key` of its words. */
TQG_FN void k_read_gains(const tqg_u4 *gains, int j, int f, tqg_u32 *gain) {
    (void)f;
    tqm_read16(1, (const unsigned char *)(gains + 8 * j + (tqg_lane() >> 2)), gain);
}
TQG_FN tqg_u32 k_gain_of(const tqg_u32 *gain, int step, int key) {
    return key ? tqg_h2_dup_hi(gain[step]) : tqg_h2_dup_lo(gain[step]);
}
%         else
/* The gains of the key of fragment f of group j, and which of them is k step `step`. */
TQG_FN void k_read_gains(const tqg_u4 *gains, int j, int f, tqg_u32 *gain) {
    const int block = f + 2 * (TQG_MMA_B == 4 ? j >> 1 : j);
    tqm_read8((const tqg_u32 *)gains + 2 * (16 * block + (tqg_lane() & 15)), gain);
}
TQG_FN tqg_u32 k_gain_of(const tqg_u32 *gain, int step, int key) {
    (void)key;
    return step >> 1 ? tqg_h2_dup_hi(gain[step & 1]) : tqg_h2_dup_lo(gain[step & 1]);
}
%         end
%     end

/* gains: what k_tile_gains left in shared memory. q: registers, or, in_shared, four of a lane together in
 * shared memory. */
TQG_FN void k_tile_scores(const int groups, const int in_shared, const tqg_u32 *table, const tqg_u32 *w, const tqg_u4 *gains,
                          const tqg_u32 *q, const tqg_u4 *q_shared, const int q_stride, float *s) {
    /* Fragments that a quad is part of: one with both keys as rows, or one for each key. Quads of a k step. Groups of the
     * same k steps, which take q together, and other ones. */
    enum {
        FRAGMENTS = TQM_COLUMNS == 2 ? 1 : 2,
        QUADS = TQG_MMA_B / 2,
        OTHER = TQM_TILE_STEPS * QUADS / 4,
        LIKE = 4 / OTHER,
    };
    tqg_u32 b[2][4]; /* of q, where it comes from shared memory */
%     if not gains then
    (void)gains;
%     end
    TQG_UNROLL
    for (int h = 0; h < OTHER; h++) {
        tqg_u32 quads[LIKE][4];
%     if gains then
        tqg_u32 gain[LIKE][FRAGMENTS][4];
%     end
        TQG_UNROLL
        for (int i = 0; i < LIKE; i++) {
            k_tile_quads(w + ${k.bits} * (h + OTHER * i), quads[i]);
%     if gains then
            TQG_UNROLL
            for (int f = 0; f < FRAGMENTS; f++)
                k_read_gains(gains, h + OTHER * i, f, gain[i][f]);
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
                        tqg_mma_f16(s + n * TQM_TILE_SCORES + block * TQG_MMA_C, a[f], in_shared ? b[n] + at % 4 : q + at);
                    }
                }
            }
        }
    }
}
% end
% if shape and v.rotated then
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
%         if wide then
    for (int i = 0; i < 8; i++)
        *(tqg_u16 *)(gains + tqm_gain_at(v_gain_order(i), tqg_lane())) = (tqg_u16)(pairs[i / 2] >> 16 * (i & 1));
%         else
    for (int i = 0; i < 4; i++)
        *(tqg_u32 *)(gains + tqm_gain_at(i, 2 * tqg_lane())) = pairs[i];
%         end
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
        const tqg_u32 *b = weights + n * TQM_TILE_WEIGHTS + step * TQG_MMA_B;
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
    for (int step = 0; step < TQM_TILE_BLOCKS; step++) {
%     if wide then
        tqg_u32 quads[2][4]; /* of the keys of B's registers */
        v_tile_quads(w + ${v.bits} * (2 * step), quads[0]);
        v_tile_quads(w + ${v.bits} * (2 * step + 1), quads[1]);
%     else
        tqg_u32 quads[4]; /* two of the keys of B's first register, two of those of the second one */
        v_tile_quads(w + ${v.bits} * step, quads);
%     end
%     if gains then
        tqg_u32 of[TQM_TILE_STEPS][2];
        TQG_UNROLL
        for (int i = 0; i < TQM_TILE_STEPS / 2; i++) { /* ${wide and "half i & 1 of the sub-tile, keys of B's register i >> 1" or "keys of B's register i"} */
            const int pair = 8 * step + 4 * ${wide and "(i >> 1)" or "i"} + (tqg_lane() & 3);
            const tqg_u4 g = ((const tqg_u4 *)gains)[${wide and "2 * pair + (i & 1)" or "pair"}];
%         for n, x in ipairs { "x", "y", "z", "w" } do
%             local row = wide and (n > 1 and "4 * (i & 1) + " .. n - 1 or "4 * (i & 1)") or n - 1
            of[${row}][${wide and "i >> 1" or "i"}] = g.${x};
%         end
        }
%     end
        TQG_UNROLL
        for (int tile = 0; tile < TQM_TILE_STEPS; tile++) {
            tqg_u32 a[4];
%     if wide then
            v_quad_pairs(table, quads[0][tile >> 1], tile & 1, a, a + 1);
            v_quad_pairs(table, quads[1][tile >> 1], tile & 1, a + 2, a + 3);
%     else
            v_quad_pairs(table, quads[tile >> 1], tile & 1, a, a + 1);
            v_quad_pairs(table, quads[2 + (tile >> 1)], tile & 1, a + 2, a + 3);
%     end
%     if gains then
            const tqg_u32 *gain = of[tile];
%     end
            v_tile_multiply(groups, o_stride, tile, step, a, gain, weights, o);
        }
    }
#else
    TQG_UNROLL
    for (int j = 0; j < 4; j++) {
        tqg_u32 quads[4];
        v_tile_quads(w + ${v.bits} * j, quads);
%     if wide then
        /* The 4 row blocks of a nibble come from 4 quads, or from 2 of them, and then there are two such sets. */
%     else
        /* A k step is 4 quads, or 2 of them, and then there are two such sets. */
%     end
        TQG_UNROLL
        for (int set = 0; set < 4 / TQG_MMA_B; set++) {
            const int step = ${wide and "TQG_MMA_B == 4 ? j >> 1 : j" or "4 / TQG_MMA_B * j + set"};
            TQG_UNROLL
            for (int half = 0; half < 2; half++) {
                tqg_u32 a[2][TQG_MMA_A];
                TQG_UNROLL
                for (int r = 0; r < TQG_MMA_A; r++)
                    v_quad_pairs(table, quads[${wide and "TQG_MMA_B == 4 ? r : set + 2 * r" or "TQG_MMA_B * set + r"}], half, &a[0][r], &a[1][r]);
                TQG_UNROLL
                for (int e = 0; e < 2; e++) {
                    const int tile = ${wide and "4 * (TQG_MMA_B == 4 ? j & 1 : set) + " or ""}TQG_NIBBLE(half, e);
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
