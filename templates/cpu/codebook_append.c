
/* ---- append ----------------------------------------------------------------------------------------------------- */

% if bits < 8 then
%     local gain_parameter = subs > 0 and "const float *gain, " or ""
%     local gain_argument = subs > 0 and "gain + i / 16, " or ""
%     local levels, most = 1 << bits, math.min(1 << bits, 8) -- lookups have 8 entries: one of 16 comes in the last step
%     local function boundaries(step) -- by the index so far, whose bits the steps before found
%         local width, out = levels >> step, {}
%         for k = 0, 7 do
%             local at = k * levels // most % levels // (2 * width) * 2 * width + width
%             out[k + 1] = (centroids[at] + centroids[at + 1]) / 2
%         end
%         return out
%     end
enum {
    CHUNKS = HEAD_DIM / CHUNK,                          /* of a row */
    RUNS = CHUNK / 16,                                  /* of 16 values, which have one scale and gain */
    BATCH = RUNS < TQV_LANES ? TQV_LANES / RUNS : 1,    /* chunks searched together: a lane for each run */
    MOST = (TQ_APPEND_ROWS * CHUNKS + BATCH - 1) / BATCH * BATCH, /* chunks of a call, in whole batches */
    ALL_RUNS = BATCH * RUNS,                            /* of a batch, and so on */
    ROUNDS = (ALL_RUNS + TQV_LANES - 1) / TQV_LANES,    /* of LANES runs whose errors are summed together */
    WORDS = (ALL_RUNS * 8 + TQV_LANES - 1) / TQV_LANES, /* vectors of 16-bit values; 8 a round */
    PADDED_RUNS = ROUNDS * TQV_LANES,
    PADDED_MOST = (MOST + TQV_LANES - 1) / TQV_LANES * TQV_LANES,
};
/* What has no value above it is stored as zeros. */
static const float TINY = 0x1p-100f;
/* Boundaries between levels as a search by halving wants them: by the index so far. */
static const float FIRST = ${hexf(boundaries(1)[1])};
%     for step = 2, bits do
static const float BOUNDARY_${step}[8] = {${floats(boundaries(step))}};
%     end
static const float LEVEL[${bits == 4 and 16 or 8}] = {${floats(centroids)}};
%     if bits == 4 then
static const int8_t CODES[16] = {${list(codes)}}; /* by index */
%     end

/* Quantises `vectors` <= TOGETHER vectors times the inverse of each run's unit into codes. Of every `each` vectors, adds
 * y*c to a dot and c*c to a square, c their centroids${subs > 0 and " times gains" or ""}. Step by step for all: the chain of one vector is long. */
TQV_INLINE void quantise(const float *y, const int vectors, const int each, const float *inverse, ${gain_parameter}uint8_t *codes,
                         tqv_f32 *dot, tqv_f32 *square) {
    tqv_f32 v[TOGETHER], t[TOGETHER];
    tqv_bits m[TOGETHER];
    TQV_UNROLL for (int i = 0; i < vectors; i++) {
        v[i] = tqv_load(y + i * TQV_LANES);
        t[i] = tqv_mul(v[i], tqv_set1(inverse[i * TQV_LANES / 16]));
        m[i] = tqv_add_where_ge(t[i], tqv_set1(FIRST), tqv_bzero(), ${most >> 1});
    }
%     for step = 2, bits do
    TQV_UNROLL for (int i = 0; i < vectors; i++)
%         if step == 4 then
        m[i] = tqv_add_where_ge(t[i], tqv_lookup_f32(BOUNDARY_4, m[i]), tqv_add32(m[i], m[i]), 1);
%         else
        m[i] = tqv_add_where_ge(t[i], tqv_lookup_f32(BOUNDARY_${step}, m[i]), m[i], ${most >> step});
%         end
%     end
    TQV_UNROLL for (int i = 0; i < vectors; i++) {
        const tqv_f32 level = tqv_lookup${bits == 4 and "16" or ""}_f32(LEVEL, m[i]);
%     if subs > 0 then
        const tqv_f32 c = tqv_mul(level, tqv_set1(gain[i * TQV_LANES / 16]));
%     else
        const tqv_f32 c = level;
%     end
        dot[i / each] = tqv_fma(v[i], c, dot[i / each]);
        square[i / each] = tqv_fma(c, c, square[i / each]);
    }
    for (int i = vectors; i < TOGETHER; i++)
        m[i] = tqv_bzero();
    tqv_bstore(codes, ${bits == 4 and "tqv_lookup(tqv_table(CODES), tqv_low_bytes(m))" or "tqv_low_bytes(m)"});
}

/* 1, or 0 up to TINY. */
TQV_INLINE tqv_f32 is_large(tqv_f32 x) {
    return tqv_from_i32(tqv_add_where_ge(tqv_set1(TINY), x, tqv_bset1(1), -1));
}

/* The same for any number of runs, which have one dot and one square. */
TQV_INLINE void quantise_runs(const float *y, const int runs, const float *inverse, ${gain_parameter}uint8_t *codes,
                              tqv_f32 *dot, tqv_f32 *square) {
    int i = 0;
    *dot = *square = tqv_zero();
    for (; i + STRIDE <= 16 * runs; i += STRIDE)
        quantise(y + i, TOGETHER, TOGETHER, inverse + i / 16, ${gain_argument}codes + i, dot, square);
    for (; i < 16 * runs; i += 16)
        quantise(y + i, 16 / TQV_LANES, TOGETHER, inverse + i / 16, ${gain_argument}codes + i, dot, square);
}

/* ---- choice of scales and gains, in bytes ----------------------------------------------------------------------- */

/* A candidate turns the values into bytes t in its units. Per cell of the bytes' range: the boundary between levels that
 * is nearest to the cell's centre, and half the gap between the levels beside it. */
static const int8_t BOUNDARY[16] = {${list(search.boundaries)}};
static const int8_t HALF_GAP[16] = {${list(search.half_gaps)}};

/* Squared errors of a round, of which n <= 8 vectors are in use, in the units of each run's candidate: sums of four
 * values, for tqv_run_sums. */
TQV_INLINE void errors(const tqv_bits *y, const tqv_bits *multipliers, const int n, tqv_bits sums[4]) {
    const int bytes = (n + 1) / 2;
    tqv_bits t[4], cell[4];
    TQV_UNROLL for (int i = 0; i < bytes; i++)
        t[i] = tqv_narrow16(tqv_mul_q15(y[2 * i], multipliers[2 * i]), tqv_mul_q15(y[2 * i + 1], multipliers[2 * i + 1]));
    TQV_UNROLL for (int i = 0; i < bytes; i++)
        cell[i] = tqv_and(tqv_srl16(t[i], ${symmetric and 3 or 4}), tqv_bset1(0x0f0f0f0f));
    TQV_UNROLL for (int i = 0; i < bytes; i++)
        t[i] = tqv_abs8(tqv_sub8(t[i], tqv_lookup(tqv_table(BOUNDARY), cell[i])));
    TQV_UNROLL for (int i = 0; i < bytes; i++)
        t[i] = tqv_abs8(tqv_sub8(t[i], tqv_lookup(tqv_table(HALF_GAP), cell[i])));
    TQV_UNROLL for (int i = 0; i < 4; i++)
        sums[i] = i < bytes ? tqv_squares8(tqv_bzero(), t[i]) : tqv_bzero();
}

/* A batch, zeros behind it, times `factor` and the inverse of each run as 16-bit ${symmetric and "magnitudes" or "values"}. */
TQV_INLINE void to_words(const float *y, float factor, const float *inverse, tqv_bits *words) {
    float multiplier[PADDED_RUNS];
    TQV_UNROLL for (int r = 0; r < PADDED_RUNS; r += TQV_LANES)
        tqv_store(multiplier + r, tqv_mul(tqv_load(inverse + r), tqv_set1(factor)));
    TQV_UNROLL for (int i = 0; i < WORDS; i++) {
        tqv_bits w[2];
        TQV_UNROLL for (int j = 0; j < 2; j++) {
            const int at = (2 * i + j) * TQV_LANES;
            const tqv_f32 v = tqv_mul(tqv_load(y + at), tqv_set1(multiplier[at / 16]));
            w[j] = tqv_to_i32(${symmetric and "tqv_abs(v)" or "v"});
        }
        words[i] = tqv_narrow32(w[0], w[1]);
    }
    for (int i = WORDS; i < 8 * ROUNDS; i++)
        words[i] = tqv_bzero();
}
% end

% if subs == 0 and bits < 8 then
%     assert(symmetric, "centroids: a table without gains is symmetric")
/* What each run has becomes the sum, the maximum over its block. */
%     for _, op in ipairs { "add", "max" } do
TQV_INLINE void ${op}_in_blocks(tqv_f32 *x) {
%         if block == 32 then
    TQV_UNROLL for (int r = 0; r < ROUNDS; r++)
        x[r] = tqv_${op}(x[r], tqv_swap_pairs(x[r]));
%         else
    enum { BLOCK_RUNS = BLOCK / 16 };
    float all[PADDED_RUNS];
    for (int r = 0; r < ROUNDS; r++)
        tqv_store(all + r * TQV_LANES, x[r]);
    for (int r = 0; r < ALL_RUNS; r += BLOCK_RUNS) {
        for (int i = 1; i < BLOCK_RUNS; i++)
            all[r] = ${op == "add" and "all[r] + all[r + i]" or "all[r] > all[r + i] ? all[r] : all[r + i]"};
        for (int i = 1; i < BLOCK_RUNS; i++)
            all[r + i] = all[r];
    }
    for (int r = 0; r < ROUNDS; r++)
        x[r] = tqv_load(all + r * TQV_LANES);
%         end
}
%     end

/* The inverse of one scale per block: of those tried around the one that puts the largest value on the outermost centroid,
 * the one with the least error. */
static void choose_scales(const float *y, float *inverse) {
    enum { TRIES = ${search.tries} };
    static const float FACTORS[TRIES] = {${floats(search.factors)}};
    /* of a block whose largest magnitude is 1 */
    static const float INVERSE_UNITS[8] = {${floats(search.inverse_units)}};
    static const uint32_t MULTIPLIERS[TRIES] = {${list(search.multipliers)}};
    float all[PADDED_RUNS];
    tqv_f32 of_run[PADDED_RUNS], top[ROUNDS], least[ROUNDS];
    tqv_bits words[8 * ROUNDS], multipliers[8], best[ROUNDS];
    TQV_UNROLL for (int r = 0; r < PADDED_RUNS; r++) {
        of_run[r] = tqv_zero();
        for (int i = 0; r < ALL_RUNS && i < 16; i += TQV_LANES)
            of_run[r] = tqv_max(of_run[r], tqv_abs(tqv_load(y + 16 * r + i)));
    }
    TQV_UNROLL for (int r = 0; r < ROUNDS; r++)
        top[r] = tqv_maxima(of_run + r * TQV_LANES);
    max_in_blocks(top);
    TQV_UNROLL for (int r = 0; r < ROUNDS; r++) {
        tqv_store(all + r * TQV_LANES, tqv_div(is_large(top[r]), tqv_max(top[r], tqv_set1(TINY))));
        least[r] = tqv_set1(INFINITY);
        best[r] = tqv_bzero();
    }
    to_words(y, ${hexf(search.value_16)}, all, words);
    TQV_UNROLL for (int k = 0; k < TRIES; k++) {
        tqv_f32 error[ROUNDS];
        TQV_UNROLL for (int i = 0; i < 8; i++)
            multipliers[i] = tqv_bset1((int32_t)MULTIPLIERS[k]);
        TQV_UNROLL for (int r = 0; r < ROUNDS; r++) {
            tqv_bits sums[4];
            errors(words + 8 * r, multipliers, r < ROUNDS - 1 ? 8 : WORDS - 8 * r, sums);
            error[r] = tqv_from_i32(tqv_run_sums(sums));
        }
        add_in_blocks(error);
        TQV_UNROLL for (int r = 0; r < ROUNDS; r++) { /* selects: a branch could not be predicted */
            error[r] = tqv_mul(error[r], tqv_set1(FACTORS[k] * FACTORS[k]));
            best[r] = tqv_select(tqv_ge(error[r], least[r]), best[r], tqv_bset1(k));
            least[r] = tqv_min(least[r], error[r]);
        }
    }
    TQV_UNROLL for (int r = 0; r < ROUNDS; r++)
        tqv_store(all + r * TQV_LANES, tqv_mul(tqv_load(all + r * TQV_LANES), tqv_lookup_f32(INVERSE_UNITS, best[r])));
    memcpy(inverse, all, ALL_RUNS * sizeof *all);
}

/* n chunks with a scale per block, refitted by least squares. */
static void store_blocks(const float *y, const float *inverse, int n, uint8_t *const *to) {
    enum { N = CHUNK / BLOCK, BLOCK_RUNS = BLOCK / 16 };
    enum { PADDED = (MOST * N + TQV_LANES - 1) / TQV_LANES * TQV_LANES };
    enum { ABREAST = STRIDE >= 2 * BLOCK ? STRIDE / BLOCK : 1 }; /* blocks that are quantised together */
    tqv_f32 dots[PADDED], squares[PADDED];
    uint8_t codes[MOST * CHUNK + STRIDE], scales[2 * PADDED];
    for (int b = 0; b < PADDED; b++)
        dots[b] = squares[b] = tqv_zero();
    for (int b = 0; b < n * N; b += ABREAST)
        if (ABREAST > 1)
            quantise(y + b * BLOCK, TOGETHER, TOGETHER / ABREAST, inverse + b * BLOCK_RUNS, codes + b * BLOCK, dots + b,
                     squares + b);
        else
            quantise_runs(y + b * BLOCK, BLOCK_RUNS, inverse + b * BLOCK_RUNS, codes + b * BLOCK, dots + b, squares + b);
    for (int b = 0; b < n * N; b += TQV_LANES)
        tqv_to_f16(scales + 2 * b, tqv_div(tqv_sums(dots + b), tqv_mul(tqv_sums(squares + b), tqv_set1(STEP / ROTATE_UNIT))));
    for (int c = 0; c < n; c++)
        for (int b = 0; b < N; b++) {
            memcpy(to[c] + b * BLOCK_BYTES, scales + 2 * (c * N + b), 2);
            pack_block(codes + (c * N + b) * BLOCK, to[c] + b * BLOCK_BYTES);
        }
}

static const tq_nearest NEAREST = {.code = {${list(search.nearest_codes)}},
                                   .boundary = {${list(search.nearest_boundaries)}},
                                   .magnitude = {${list(map(lookup_table, math.abs))}},
                                   .step = ${search.code_step},
                                   .flip = ${search.code_flip}};

/* n chunks with one scale each, stored in all blocks: their norms, or what gives the decoded chunk its norm. */
static void store_chunks(const float *y, const float *inverse, const float *norms, int corrected, int n, uint8_t *const *to) {
    uint8_t codes[MOST * CHUNK + STRIDE], scales[2 * PADDED_MOST];
    tqv_f32 squares[PADDED_MOST];
    for (int c = 0; c < n; c++) {
        const tqv_f32 by = tqv_set1(2.0f * inverse[c]);
        tqv_bits square = tqv_bzero();
        const float *from = y + c * CHUNK;
        uint8_t *code = codes + c * CHUNK;
        int i = 0;
        for (; i + SETS * STRIDE <= CHUNK; i += SETS * STRIDE)
            tq_find_nearest(&NEAREST, from + i, SETS, TOGETHER, by, code + i, &square);
        for (; i + STRIDE <= CHUNK; i += STRIDE)
            tq_find_nearest(&NEAREST, from + i, 1, TOGETHER, by, code + i, &square);
        for (; i < CHUNK; i += 16)
            tq_find_nearest(&NEAREST, from + i, 1, 16 / TQV_LANES, by, code + i, &square);
        squares[c] = tqv_from_i32(square);
    }
    for (int c = n; c < PADDED_MOST; c++)
        squares[c] = tqv_set1(1.0f);
    for (int c = 0; c < PADDED_MOST; c += TQV_LANES) {
        const tqv_f32 norm = tqv_load(norms + c), decoded = tqv_mul(tqv_sqrt(tqv_sums(squares + c)), tqv_set1(STEP));
        tqv_to_f16(scales + 2 * c, corrected ? tqv_div(norm, decoded) : norm);
    }
    for (int c = 0; c < n; c++)
        for (int b = 0; b < CHUNK / BLOCK; b++) {
            memcpy(to[c] + b * BLOCK_BYTES, scales + 2 * c, 2);
            pack_block(codes + c * CHUNK + b * BLOCK, to[c] + b * BLOCK_BYTES);
        }
}
% end
% if subs > 0 then
static const float INVERSE_GAINS[16] = {${floats(inverse_gains)}};
static const int8_t GAIN_SIZES[16] = {${list(gain_sizes)}};
/* What takes the 16-bit values to bytes in units of each gain: pairs of 16-bit multipliers. */
static const uint32_t MULTIPLIERS[16] = {${list(search.multipliers)}};

/* A gain code per 16 values, the one with the least error. inverse: in, of the chunk's unit; out, of the run's. */
static void choose_gains(const float *y, float *inverse, float *gain, uint8_t *gain_codes) {
    enum { TRIES = ${search.tries}, SIGNS = ${signed and 2 or 1}, LAST = ${(signed and 8 or 16) - search.tries} };
%     if signed then
    tqv_f32 below[PADDED_RUNS];
%     end
    tqv_f32 above[PADDED_RUNS];
    tqv_bits words[8 * ROUNDS];
    float all[PADDED_RUNS];
    TQV_UNROLL for (int r = 0; r < PADDED_RUNS; r++) {
        above[r] = ${signed and "below[r] = " or ""}tqv_zero();
        for (int i = 0; r < ALL_RUNS && i < 16; i += TQV_LANES) {
            const tqv_f32 v = tqv_load(y + 16 * r + i);
%     if signed then
            above[r] = tqv_max(above[r], v);
            below[r] = tqv_min(below[r], v);
%     else
            above[r] = tqv_max(above[r], tqv_abs(v));
%     end
        }
%     if signed then
        below[r] = tqv_sub(tqv_zero(), below[r]);
%     end
    }
    to_words(y, ${hexf(search.gain_16)}, inverse, words);
    for (int r = 0; r < ROUNDS; r++) {
        const tqv_f32 up = tqv_maxima(above + r * TQV_LANES), unit = tqv_load(inverse + r * TQV_LANES);
        const tqv_f32 up_unit = tqv_mul(unit, tqv_set1(${hexf(search.slope / centroids[#centroids])}));
%     if signed then
        const tqv_f32 down = tqv_maxima(below + r * TQV_LANES);
        const tqv_f32 down_unit = tqv_mul(unit, tqv_set1(${hexf(-search.slope / centroids[1])}));
%     end
        tqv_f32 least = tqv_set1(INFINITY);
        tqv_bits best = tqv_bzero(), lowest[SIGNS];
        TQV_UNROLL for (int sign = 0; sign < SIGNS; sign++) {
%     if signed then
            const tqv_f32 size = tqv_max(tqv_mul(sign ? down : up, up_unit), tqv_mul(sign ? up : down, down_unit));
%     else
            const tqv_f32 size = tqv_mul(up, up_unit);
%     end
            const tqv_f32 first = tqv_add(size, tqv_set1(${hexf(search.offset)}));
            lowest[sign] = tqv_to_i32(tqv_max(tqv_min(first, tqv_set1((float)LAST)), tqv_zero()));
            lowest[sign] = tqv_add32(lowest[sign], tqv_bset1(8 * sign));
        }
        TQV_UNROLL for (int k = 0; k < TRIES * SIGNS; k++) {
            const tqv_bits tried = tqv_add32(lowest[k / TRIES], tqv_bset1(k % TRIES));
            const tqv_f32 size = tqv_from_i32(tqv_and(tqv_lookup(tqv_table(GAIN_SIZES), tried), tqv_bset1(255)));
            tqv_bits multipliers[8], sums[4];
            tqv_per_run(MULTIPLIERS, tried, multipliers);
            errors(words + 8 * r, multipliers, r < ROUNDS - 1 ? 8 : WORDS - 8 * r, sums);
            const tqv_f32 error = tqv_mul(tqv_mul(size, size), tqv_from_i32(tqv_run_sums(sums)));
            best = tqv_select(tqv_ge(least, error), tried, best); /* a branch could not be predicted */
            least = tqv_min(least, error);
        }
        tqv_store_u8(gain_codes + r * TQV_LANES, best); /* lanes behind the batch are overwritten by the next one */
        tqv_store(gain + r * TQV_LANES, tqv_lookup16_f32(GAINS, best));
        tqv_store(all + r * TQV_LANES, tqv_mul(unit, tqv_lookup16_f32(INVERSE_GAINS, best)));
    }
    memcpy(inverse, all, ALL_RUNS * sizeof *all);
}

/* n chunks, each with the norm that fits best by least squares. */
static void store_gains(const float *y, const float *inverse, const float *gain, const uint8_t *gain_codes, int n,
                        uint8_t *const *to) {
    uint8_t codes[MOST * CHUNK + STRIDE];
    uint8_t scales[2 * PADDED_MOST];
    tqv_f32 dots[PADDED_MOST], squares[PADDED_MOST];
    for (int c = n; c < PADDED_MOST; c++)
        dots[c] = squares[c] = tqv_zero();
    for (int c = 0; c < n; c++)
        quantise_runs(y + c * CHUNK, RUNS, inverse + c * RUNS, gain + c * RUNS, codes + c * CHUNK, dots + c, squares + c);
    for (int c = 0; c < PADDED_MOST; c += TQV_LANES)
        tqv_to_f16(scales + 2 * c, tqv_div(tqv_sums(dots + c), tqv_mul(tqv_sums(squares + c), tqv_set1(STEP / ROTATE_UNIT))));
    for (int c = 0; c < n; c++) {
        uint16_t packed[HEADER / 2 - 1] = {0};
        for (int r = 0; r < RUNS; r++)
            packed[r / 4] = (uint16_t)(packed[r / 4] | gain_codes[c * RUNS + r] << 4 * (r % 4));
        memcpy(to[c], scales + 2 * c, 2);
        memcpy(to[c] + 2, packed, sizeof packed);
        pack_block(codes + c * CHUNK, to[c]);
    }
}
% end
% if bits == 8 then
static void store_scale(uint8_t *block, float scale) {
    uint8_t halves[2 * TQV_LANES];
    tqv_to_f16(halves, tqv_set1(scale));
    memcpy(block, halves, 2);
}

/* The largest magnitude becomes 127. */
static void append_bytes(const float *y, uint8_t *block) {
    tqv_f32 top = tqv_zero();
    for (int i = 0; i < BLOCK; i += TQV_LANES)
        top = tqv_max(top, tqv_abs(tqv_load(y + i)));
    const float scale = tqv_hmax(top) / 127.0f, inverse = scale > 0x1p-100f ? 1.0f / scale : 0.0f;
    store_scale(block, scale);
    for (int i = 0; i < BLOCK; i += TQV_LANES)
        tqv_store_u8(block + HEADER + i, tqv_and(tqv_to_i32(tqv_mul(tqv_load(y + i), tqv_set1(inverse))), tqv_bset1(255)));
}
% end

% if bits == 8 then
void ${append_symbol}(const float *const *x, const float *const *mean, const uint32_t *signs, int mode, int n,
                      uint8_t *const *rows) {
    float y[HEAD_DIM];
    (void)mode, (void)signs;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < HEAD_DIM; j += TQV_LANES)
            tqv_store(y + j, tq_take(1, x[i] + j, mean[i] ? mean[i] + j : NULL));
        for (int b = 0; b < N_BLOCKS; b++)
            append_bytes(y + b * BLOCK, rows[i] + b * BLOCK_BYTES);
    }
}
% else
static void finish_rotation(float *y, int chunks) {
    for (int c = 0; c < chunks; c++)
        tq_later_steps(y + c * CHUNK, ${pow2}, ${odd});
}

/* Step by step for all rows, since each step is a long chain, and in batches of chunks, since a row may have fewer runs
 * than a vector has lanes. */
void ${append_symbol}(const float *const *x, const float *const *mean, const uint32_t *signs, int mode, int n,
                      uint8_t *const *rows) {
    _Alignas(64) float y[MOST * CHUNK + STRIDE]; /* what is behind a chunk may be read along with it */
    float norms[PADDED_MOST], units[PADDED_MOST]; /* units: their inverse, of each chunk */
    float inverse[MOST * RUNS + PADDED_RUNS];
    tqv_f32 sums[PADDED_MOST];
%     if subs > 0 then
    float gain[MOST * RUNS + PADDED_RUNS];
    uint8_t gain_codes[MOST * RUNS + PADDED_RUNS];
%     end
    uint8_t *to[MOST];
    const int chunks = n * CHUNKS, whole = (chunks + BATCH - 1) / BATCH * BATCH;
    for (int c = 0; c < chunks; c++)
        to[c] = rows[c / CHUNKS] + c % CHUNKS * (CHUNK / BLOCK) * BLOCK_BYTES;
    if (tq_take_rows(0, x, mean, signs, n, HEAD_DIM, CHUNK, ${pow2}, y, PADDED_MOST, sums) > 1e33f)
        tq_take_rows(1, x, mean, signs, n, HEAD_DIM, CHUNK, ${pow2}, y, PADDED_MOST, sums);
    memset(y + n * HEAD_DIM, 0, (size_t)((whole - chunks) * CHUNK + STRIDE) * sizeof *y);
    memset(inverse + chunks * RUNS, 0, (size_t)((whole - chunks) * RUNS + PADDED_RUNS) * sizeof *inverse);
%     if subs == 0 then
    if (mode == ${modes.searched}) {
        finish_rotation(y, chunks);
        for (int c = 0; c < chunks; c += BATCH)
            choose_scales(y + c * CHUNK, inverse + c * RUNS);
        store_blocks(y, inverse, chunks, to);
        return;
    }
%     end
    for (int c = 0; c < PADDED_MOST; c += TQV_LANES) {
        const tqv_f32 norm = tqv_sqrt(sums[c / TQV_LANES]);
        tqv_store(norms + c, norm);
        tqv_store(units + c, tqv_mul(tqv_div(is_large(norm), tqv_max(norm, tqv_set1(TINY))), tqv_set1(ROTATE_UNIT / STEP)));
    }
    finish_rotation(y, chunks); /* while roots and quotients are on their way */
%     if subs > 0 then
    (void)mode;
    for (int r = 0; r < chunks * RUNS; r++)
        inverse[r] = units[r / RUNS];
    for (int c = 0; c < chunks; c += BATCH)
        choose_gains(y + c * CHUNK, inverse + c * RUNS, gain + c * RUNS, gain_codes + c * RUNS);
    store_gains(y, inverse, gain, gain_codes, chunks, to);
%     else
    store_chunks(y, units, norms, mode == ${modes.nc}, chunks, to);
%     end
}
% end
