/* K.q in bytes: centroids and gains are integers, q is 254 hi + lo with both in -127 .. 127. Every sum is exact. A head has
 * two columns of B, hi and lo, or, where there are too many heads for that, two products.
 *
 *   k_byte_table         bytes of the centroids (4 bits: of the magnitudes)
 *   k_byte_gains         decodes a word of gain codes to int32 in shared memory, for all lanes of the warp
 *   k_byte_scores        the scores of a sub-tile, in units of a stored scale, the step, and q's unit
 *
 * q: K_BYTE_Q registers per sub-tile, first all of hi, or of both columns, then lo's, q_stride behind. */
% local tile = tiles.get("tile_" .. arch.matrix)
% local shape = k.rotated and tile and tiles.of(tile, k.format, head_dim)
% if shape then
%     local gains, signs, wide = k.subs > 0, k.bits == 4, shape.values == 128
%     local block = wide and "(j >> 1)" or "j"
#ifdef TQG_MATRIX_MMA
#define K_STEP ${hexf(k.step)}
enum { K_BYTE_Q = TQM_TILE_STEPS * ${signs and 2 or 1}, K_BYTE_GAIN_BYTES = ${gains and 32 * 32 or 0} };

TQG_FN void k_byte_table(tqg_u32 *table) {
    const tqg_u32 bytes[2] = {${byte_table(signs and table.move(k.centroids, 9, 16, 1, {}) or k.centroids, 2)}};
    table[0] = tqg_keep(bytes[0]);
    table[1] = tqg_keep(bytes[1]);
}

/* Register i of q of a sub-tile: byte j is value 16 step + 4 t + j. */
TQG_FN tqg_u32 k_byte_q(const float *q, float unit, int low, int i) {
    tqg_u32 word = 0;
    TQG_UNROLL
    for (int j = 0; j < 4; j++) {
        const int x = (int)tqg_rint(q[16 * (i / ${signs and 2 or 1}) + 4 * (tqg_lane() & 3) + j] * unit);
        const int hi = (x + 254 * 128 + 127) / 254 - 128, part = low ? x - 254 * hi : hi;
        word |= (tqg_u32)(${signs and "(i & 1 ? -part : part)" or "part"} & 255) << 8 * j;
    }
    return word;
}
%     if gains then

TQG_FN int k_signed_byte(tqg_u32 word, int i) {
    return (tqg_i32)(word << (24 - 8 * i)) >> 24;
}
/* Four codes of two keys, as they lie in a tile. */
TQG_FN void k_byte_gains(tqg_u32 word, tqg_u4 *gains) {
    tqg_u32 of[2][4];
    TQG_UNROLL
    for (int half = 0; half < 2; half++) {
        const tqg_u32 codes = tqg_codes(word, half);
        const tqg_u32 x = tqg_select(tqg_spread(tqg_tops(word, half)),
                                     tqg_lookup(${byte_table(table.move(k.gains, 9, 16, 1, {}), 2)}, codes),
                                     tqg_lookup(${byte_table(k.gains, 2)}, codes));
        TQG_UNROLL
        for (int i = 0; i < 4; i++)
            of[i >> 1][2 * half + (i & 1)] = (tqg_u32)k_signed_byte(x, i);
    }
    gains[tqg_lane()] = tqm_u4(of[0]);
    gains[32 + tqg_lane()] = tqm_u4(of[1]);
}
%     end

/* Four codes of one half of a quad word as bytes. */
TQG_FN tqg_u32 k_quad_bytes(const tqg_u32 *table, tqg_u32 quads, int key) {
    return tqg_lookup(table[0], table[1], tqg_row_codes(quads, key))${signs and " ^ tqg_row_spread(quads, key)" or ""};
}

/* parts: 2 if lo has products of its own. */
TQG_FN void k_byte_scores(const int parts, const tqg_u32 *table, const tqg_u32 *w, const tqg_u4 *gains, const tqg_u32 *q,
                          const int q_stride, float *s) {
    tqg_i32 sum[2][TQM_TILE_SCORES];
%     if not gains then
    (void)gains;
%     end
    TQG_UNROLL
    for (int i = 0; i < 2 * TQM_TILE_SCORES; i++)
        sum[i / TQM_TILE_SCORES][i % TQM_TILE_SCORES] = 0;
    TQG_UNROLL
    for (int j = 0; j < 4; j++) {
        tqg_u32 quads[4];
        k_tile_quads(w + ${k.bits} * j, quads);
%     if gains then
        const int pair = ${wide and "((j >> 1) * 8 + (tqg_lane() >> 2)) * 2 + (j & 1)" or "8 * j + (tqg_lane() >> 2)"};
        const tqg_u4 g = gains[pair], h = gains[32 + pair];
        const tqg_i32 gain[2][4] = {{(tqg_i32)g.x, (tqg_i32)g.y, (tqg_i32)g.z, (tqg_i32)g.w},
                                    {(tqg_i32)h.x, (tqg_i32)h.y, (tqg_i32)h.z, (tqg_i32)h.w}};
%     end
        TQG_UNROLL
        for (int u = 0; u < 4; u += ${(gains or signs) and 1 or 2}) {
            const int step = ${wide and "4 * (j & 1) + u" or "u"};
%     if signs then
            /* Where a code is negative, its byte is one less than it should be: -1 times -q makes up for that. */
            const tqg_u32 a[4] = {k_quad_bytes(table, quads[u], 0), k_quad_bytes(table, quads[u], 1),
                                  tqg_row_spread(quads[u], 0), tqg_row_spread(quads[u], 1)};
%     elseif gains then
            const tqg_u32 a[2] = {k_quad_bytes(table, quads[u], 0), k_quad_bytes(table, quads[u], 1)};
%     else
            const tqg_u32 a[4] = {k_quad_bytes(table, quads[u], 0), k_quad_bytes(table, quads[u], 1),
                                  k_quad_bytes(table, quads[u + 1], 0), k_quad_bytes(table, quads[u + 1], 1)};
%     end
            TQG_UNROLL
            for (int part = 0; part < parts; part++) {
                const tqg_u32 *b = q + part * q_stride + step * ${signs and 2 or 1};
                tqg_i32 *c = sum[part] + ${block} * TQG_MMA_C;
%     if gains then
                tqg_i32 products[TQG_MMA_C] = {0, 0, 0, 0};
                ${signs and "tqg_mma_i8_k32" or "tqg_mma_i8"}(products, a, b);
                TQG_UNROLL
                for (int r = 0; r < TQG_MMA_C; r++)
                    c[r] += products[r] * gain[r >> 1][u];
%     else
                tqg_mma_i8_k32(c, a, b);
%     end
            }
        }
    }
    TQG_UNROLL
    for (int i = 0; i < TQM_TILE_SCORES; i += parts == 2 ? 1 : 2) {
        const tqg_i32 hi = sum[0][i], lo = parts == 2 ? sum[1][i] : sum[0][i + 1];
%     if gains then
        s[i] = tqg_fma((float)hi, 254.0f, (float)lo);
%     else
        s[i] = (float)(hi * 254 + lo);
%     end
    }
}
#endif
% end
