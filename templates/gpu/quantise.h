/* Rotated values of a team to a packed row: the choices of templates/cpu/codebook_append.c, candidate by candidate. */
% local levels = 1 << f.bits
% if f.bits == 8 then

/* One scale per block: the largest magnitude becomes 127. */
TQG_FN void tqr_quantise(float (*y)[4], tqr_packed *x) {
    float top[SLOTS];
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++)
        top[s] = tqg_max(tqg_max(tqg_abs(y[s][0]), tqg_abs(y[s][1])), tqg_max(tqg_abs(y[s][2]), tqg_abs(y[s][3])));
    tqr_maxima(top, BLOCK_QUADS);
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        const float scale = top[s] * ${hexf(1 / 127)}, inverse = scale > 0x1p-100f ? tqg_rcp(scale) : 0.0f;
        x->scale[s] = tqg_to_half_sat(scale);
        x->codes[s] = 0;
        TQG_UNROLL
        for (int i = 0; i < 4; i++)
            x->codes[s] |= ((tqg_u32)(int)tqg_rint(y[s][i] * inverse) & 255) << 8 * i;
    }
}
% elseif f.bits < 8 then

/* ---- indices ------------------------------------------------------------------------------------------------------ */

/* Four values times inverse to codes. Adds value * c to *dot and c * c to *square, c their centroids times gain. */
TQG_FN tqg_u32 tqr_codes(const float *v, float inverse, float gain, float *dot, float *square) {
    tqg_u32 codes = 0, table = 0;
    TQG_UNROLL
    for (int i = 0; i < 4; i++) {
        const float t = v[i] * inverse;
% if f.bits == 4 then
        /* A value on a boundary takes the upper index: of two magnitudes the larger if positive, else the smaller. */
        const tqg_u32 negative = t < 0.0f;
        const float size = tqg_float(tqg_bits(tqg_abs(t)) - negative);
        const int index =
%     for k = 9, 15 do
            (size >= ${hexf((f.centroids[k] + f.centroids[k + 1]) / 2)})${k < 15 and " +" or ";"}
%     end
        codes |= ((tqg_u32)(2 * index) + negative) << 8 * i;
% else
        const int index =
%     for k = 1, levels - 1 do
            (t >= ${hexf((f.centroids[k] + f.centroids[k + 1]) / 2)})${k < levels - 1 and " +" or ";"}
%     end
        codes |= (tqg_u32)index << 8 * i;
% end
        table |= (tqg_u32)index << 4 * TQG_NIBBLE(0, i);
    }
% local sizes = f.bits == 4 and table.move(f.centroids, 9, 16, 1, {}) or f.centroids
    const tqg_u32 bytes = tqg_lookup(${byte_table(sizes, 2)}, tqg_codes(table, 0));
    TQG_UNROLL
    for (int i = 0; i < 4; i++) {
% if f.bits == 4 then
        const float c = (float)tqr_byte(bytes, i) * gain;
        *dot = tqg_fma(tqg_abs(v[i]), c, *dot);
% else
        const float c = (float)tqr_signed_byte(bytes, i) * gain;
        *dot = tqg_fma(v[i], c, *dot);
% end
        *square = tqg_fma(c, c, *square);
    }
    return codes;
}

/* ---- choice of scales and gains, in bytes ------------------------------------------------------------------------- */

/* Squared distance of four 16-bit ${f.symmetric and "magnitudes" or "values"} to their levels in the units of a candidate,
 * whose multiplier takes them there. */
TQG_FN int tqr_error(const int *w, int multiplier) {
    int t[4], error = 0;
    tqg_u32 cells = 0;
    TQG_UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = (w[i] * multiplier + 16384) >> 15;
% if f.subs > 0 then
        t[i] = t[i] > 127 ? 127 : t[i] < -128 ? -128 : t[i];
% end
        cells |= (tqg_u32)(t[i] >> ${f.symmetric and 3 or 4} & 15) << 4 * TQG_NIBBLE(0, i);
    }
    const tqg_u32 boundaries = tqr_lookup(${byte_table(f.search.boundaries, 4)}, cells);
    const tqg_u32 half_gaps = tqr_lookup(${byte_table(f.search.half_gaps, 4)}, cells);
    TQG_UNROLL
    for (int i = 0; i < 4; i++) {
        const int beside = t[i] - tqr_signed_byte(boundaries, i);
        const int off = (beside < 0 ? -beside : beside) - tqr_signed_byte(half_gaps, i);
        error += off * off;
    }
    return error;
}

/* Over the lanes of a stretch of quads that begins at a multiple of it, a power of two. */
TQG_FN int tqr_error_sum(int error, int lanes) {
    TQG_UNROLL
    for (int mask = 1; mask < lanes; mask *= 2)
        error += (int)tqg_shfl_xor_u((tqg_u32)error, mask);
    return error;
}

/* Scales of blocks by least squares, from each quad's sums of value times level and of squared levels. */
TQG_FN void tqr_fit_blocks(float *dot, float *square, tqr_packed *x) {
    tqr_sums(dot, BLOCK_QUADS);
    tqr_sums(square, BLOCK_QUADS);
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++)
        x->scale[s] = tqg_to_half_sat(dot[s] * tqg_rcp(square[s] * ${hexf(f.step)}));
}
% end
% if f.bits < 8 and f.subs == 0 then

/* One scale per block: of those tried around the one that puts the largest value on the outermost centroid, the one with
 * the least error, refitted by least squares. */
TQG_FN void tqr_quantise_blocks(float (*y)[4], tqr_packed *x) {
    float top[SLOTS], inverse[SLOTS], dot[SLOTS], square[SLOTS];
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++)
        top[s] = tqg_max(tqg_max(tqg_abs(y[s][0]), tqg_abs(y[s][1])), tqg_max(tqg_abs(y[s][2]), tqg_abs(y[s][3])));
    tqr_maxima(top, BLOCK_QUADS);
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        const float unit = top[s] > 0x1p-100f ? tqg_rcp(top[s]) : 0.0f;
        float least = 0x1p100f, best = 0.0f;
        int w[4];
        TQG_UNROLL
        for (int i = 0; i < 4; i++)
            w[i] = (int)tqg_rint(tqg_abs(y[s][i]) * (unit * ${hexf(f.search.value_16)}));
%     for k = 1, f.search.tries do
%         local factor = f.search.factors[k]
        {
            const int error_here = tqr_is_quad(s) ? tqr_error(w, ${f.search.multipliers[k] & 0xffff}) : 0;
            const int sum = tqr_error_sum(error_here, BLOCK_QUADS <= 8 ? BLOCK_QUADS : TEAM);
            const float error = (float)sum * (${hexf(factor)} * ${hexf(factor)});
            best = error < least ? ${hexf(f.search.inverse_units[k])} : best;
            least = tqg_min(error, least);
        }
%     end
        inverse[s] = unit * best;
    }
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        dot[s] = square[s] = 0.0f;
        x->codes[s] = tqr_codes(y[s], inverse[s], 1.0f, &dot[s], &square[s]);
        square[s] = tqr_is_quad(s) ? square[s] : 0.0f;
    }
    tqr_fit_blocks(dot, square, x);
}

/* One scale per chunk: its norm, what gives the decoded chunk its norm, or (tiles) least squares. */
TQG_FN void tqr_quantise_chunks(float (*y)[4], const float *norm, int mode, tqr_packed *x) {
    float dot[SLOTS], square[SLOTS];
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        const float inverse = norm[s] > 0x1p-100f ? tqg_rcp(norm[s] * ${hexf(f.step)}) : 0.0f;
        dot[s] = square[s] = 0.0f;
        x->codes[s] = tqr_codes(y[s], inverse, 1.0f, &dot[s], &square[s]);
        square[s] = tqr_is_quad(s) ? square[s] : 0.0f;
    }
    tqr_sums(dot, CHUNK_QUADS);
    tqr_sums(square, CHUNK_QUADS);
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        float scale = norm[s];
        if (mode == ${f.modes.nc})
            scale *= tqg_rsqrt(square[s]) * ${hexf(1 / f.step)};
        else if (mode == ${f.modes.searched})
            scale = dot[s] * tqg_rcp(square[s] * ${hexf(f.step)});
        x->scale[s] = tqg_to_half_sat(scale);
    }
}
% end
% if f.bits < 8 and f.subs > 0 then
%     local tries, signs = f.search.tries, f.signed and 2 or 1
%     local last = (f.signed and 8 or 16) - tries
%     local multipliers = {}
%     for code = 1, 16 do
%         local m = f.search.multipliers[code] & 0xffff
%         multipliers[code] = m >= 0x8000 and m - 0x10000 or m
%         assert(not f.signed or code <= 8 or multipliers[code] == -multipliers[code - 8], "multipliers: of both signs")
%     end
%     local function byte_of(values, shift)
%         local out = {}
%         for i, value in ipairs(values) do
%             out[i] = value >> shift & 255
%         end
%         return out
%     end
%     local function lookup_16(values, nibbles) -- tables of 8 entries where codes 8 to 15 are negatives
%         return f.signed and ("tqg_lookup(%s, tqg_codes(%s, 0))"):format(byte_table(values, 2), nibbles)
%             or ("tqr_lookup(%s, %s)"):format(byte_table(values, 4), nibbles)
%     end

/* A gain code per run of 16 values, the one with the least error; then one norm for the chunk by least squares over all. */
TQG_FN void tqr_quantise_gains(float (*y)[4], const float *norm, tqr_packed *x) {
    float dot[SLOTS], square[SLOTS];
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        const float unit = norm[s] > 0x1p-100f ? tqg_rcp(norm[s] * ${hexf(f.step)}) : 0.0f;
        float up = 0.0f, down = 0.0f, least = 0x1p100f;
        int w[4], best = 0;
        TQG_UNROLL
        for (int i = 0; i < 4; i++) {
%     if f.signed then
            up = tqg_max(up, y[s][i]);
            down = tqg_max(down, -y[s][i]);
            const float v = y[s][i] * (unit * ${hexf(f.search.gain_16)});
            w[i] = (int)tqg_rint(tqg_max(tqg_min(v, 32767.0f), -32768.0f));
%     else
            up = tqg_max(up, tqg_abs(y[s][i]));
            w[i] = (int)tqg_rint(tqg_min(tqg_abs(y[s][i]) * (unit * ${hexf(f.search.gain_16)}), 32767.0f));
%     end
        }
        TQG_UNROLL
        for (int mask = 1; mask < 4; mask *= 2) {
            up = tqg_max(up, tqg_shfl_xor(up, mask));
            down = tqg_max(down, tqg_shfl_xor(down, mask));
        }
        TQG_UNROLL
        for (int sign = 0; sign < ${signs}; sign++) {
%     if f.signed then
            const float size = tqg_max((sign ? down : up) * (unit * ${hexf(f.search.slope / f.centroids[#f.centroids])}),
                                       (sign ? up : down) * (unit * ${hexf(-f.search.slope / f.centroids[1])}));
%     else
            const float size = up * (unit * ${hexf(f.search.slope / f.centroids[#f.centroids])});
%     end
            const float first = tqg_max(tqg_min(size + ${hexf(f.search.offset)}, ${hexf(last)}), 0.0f);
            const int lowest = (int)tqg_rint(first);
%     for from = 0, tries - 1, 4 do
%         local to = math.min(from + 3, tries - 1)
            {
                tqg_u32 nibbles = 0; /* the codes to try */
                TQG_UNROLL
                for (int k = 0; k < ${to - from + 1}; k++)
                    nibbles |= (tqg_u32)(lowest + ${from} + k) << 4 * TQG_NIBBLE(0, k);
                const tqg_u32 sizes = ${lookup_16(f.gain_sizes, "nibbles")};
                const tqg_u32 low = ${lookup_16(byte_of(multipliers, 0), "nibbles")};
                const tqg_u32 high = ${lookup_16(byte_of(multipliers, 8), "nibbles")};
                TQG_UNROLL
                for (int k = 0; k < ${to - from + 1}; k++) {
                    const int multiplier = (int)(tqr_byte(low, k) | tqr_byte(high, k) << 8);
                    const float gain = (float)tqr_byte(sizes, k);
                    const int sum = tqr_error_sum(tqr_error(w, sign ? -multiplier : multiplier), 4);
                    const float error = gain * gain * (float)sum;
                    best = least >= error ? lowest + ${from} + k + 8 * sign : best;
                    least = tqg_min(least, error);
                }
            }
%     end
        }
        x->gain[s] = tqr_is_quad(s) ? (tqg_u32)best : 0u;
        const tqg_u32 nibbles = (tqg_u32)best;
        const float size = (float)tqr_byte(${lookup_16(f.gain_sizes, "nibbles")}, 0);
        const float gain = ${f.signed and "best & 8 ? -size : size" or "size"};
        dot[s] = square[s] = 0.0f;
        x->codes[s] = tqr_codes(y[s], unit * tqg_rcp(gain), gain, &dot[s], &square[s]);
        square[s] = tqr_is_quad(s) ? square[s] : 0.0f;
    }
    tqr_fit_blocks(dot, square, x);
}
% end
