/* ${banner} */
% assert(bits == 2 or bits == 3 or bits == 4 or bits == 8, "bits: codebook rows hold 2, 3, 4 or 8 bits")
% assert(subs == 0 or bits < 8, "subs: gains go with a codebook")
/* ${format} rows of head_dim ${head_dim}: append-quantise and dequantise one row. */
#include <math.h>

#include "rotate.h"
#include "tq_kernel.h"
#include "vocabulary.h"

enum {
    HEAD_DIM = ${head_dim},
    N_BLOCKS = ${n_blocks},
    BLOCK = ${block},
    BLOCK_BYTES = ${block_bytes},
    HEADER = ${header},
    CHUNK = ${chunk},
    UNITS = ${full_units},
    UNIT_BYTES = ${unit.bytes},
};

static const float STEP = ${hexf(step)};
% if bits < 8 then
static const float CENTROIDS[16] = {${floats(lookup_table)}}; /* by code */
% end
% if rotated then
static const float ROTATE_UNIT = ${hexf(1 / math.sqrt(pow2))};
% end

/* ---- indices in the payload: see the byte layout in docs/formats.md ---------------------------------------------- */

% local function payload(unit, name)
%     local spare_word = unit.words + (unit.half and 1 or 0)
static void unpack_${name}(const uint8_t *p, uint8_t *codes) {
    uint32_t x[${unit.words + 2}]; /* room for a half and a spare word */
    memcpy(x, p, ${4 * unit.words});
%     if unit.half then
    uint16_t half;
    memcpy(&half, p + ${4 * unit.words}, 2);
    x[${unit.words}] = (half | (uint32_t)half << 12) & 0x0f0f0f0f;
%     end
%     for i, part in ipairs(unit.spare) do
    x[${spare_word}] ${i == 1 and "" or "|"}= x[${part.word}] >> ${part.shift} & ${string.format("0x%08x", part.bits)};
%     end
    uint32_t group;
%     for g, at in ipairs(unit.groups) do
    group = x[${at.word}] >> ${at.shift} & ${string.format("0x%08x", unit.mask * 0x01010101)};
    memcpy(codes + ${4 * (g - 1)}, &group, 4);
%     end
}

%     if bits < 8 then
static void pack_${name}(const uint8_t *codes, uint8_t *p) {
    uint32_t g[${#unit.groups}], x[${unit.words + 2}] = {0};
    memcpy(g, codes, sizeof g);
%         for g, at in ipairs(unit.groups) do
    x[${at.word}] |= g[${g - 1}] << ${at.shift};
%         end
%         for _, part in ipairs(unit.spare) do
    x[${part.word}] |= (x[${spare_word}] & ${string.format("0x%08x", part.bits)}) << ${part.shift};
%         end
    memcpy(p, x, ${4 * unit.words});
%     if unit.half then
    const uint16_t half = (uint16_t)(x[${unit.words}] | x[${unit.words}] >> 12);
    memcpy(p + ${4 * unit.words}, &half, 2);
%     end
}
%     end

% end
% payload(unit, "unit")
% if tail then
%     payload(tail_unit, "tail")
% end
% if bits < 8 then
static void pack_block(const uint8_t *codes, uint8_t *block) {
    for (int u = 0; u < UNITS; u++)
        pack_unit(codes + 32 * u, block + HEADER + u * UNIT_BYTES);
% if tail then
    pack_tail(codes + 32 * UNITS, block + HEADER + UNITS * UNIT_BYTES);
% end
}
% end

/* ---- append ----------------------------------------------------------------------------------------------------- */

/* n <= TQV_LANES scales, one per block. */
static void store_scales(uint8_t *blocks, int n, tqv_f32 scales) {
    uint8_t halves[2 * TQV_LANES];
    tqv_to_f16(halves, scales);
    for (int b = 0; b < n; b++)
        memcpy(blocks + b * BLOCK_BYTES, halves + 2 * b, 2);
}

% if bits < 8 then
%     local gain_parameter = subs > 0 and "const float *gain, " or ""
%     local gain_argument = subs > 0 and "gain + i / 16, " or ""
%     local levels = 1 << bits
%     local function boundaries(step) -- by the bits of the index that the steps before found
%         local width = levels >> step
%         local out = {}
%         for k = 0, 7 do
%             local at = k % (1 << step - 1) * 2 * width + width
%             out[k + 1] = (centroids[at] + centroids[at + 1]) / 2
%         end
%         return out
%     end
enum {
    RUNS = CHUNK / 16,                              /* of 16 values, which have one scale and gain */
    ROUNDS = (RUNS + TQV_LANES - 1) / TQV_LANES,    /* of LANES runs whose errors are summed together */
    WORDS = (RUNS * 8 + TQV_LANES - 1) / TQV_LANES, /* vectors of 16-bit values of a chunk; 8 a round */
    PADDED_RUNS = WORDS * TQV_LANES / 8,            /* that fill these vectors */
    TOGETHER = 4,                                   /* vectors that are quantised together */
    CODES = CHUNK + TOGETHER * TQV_LANES,           /* room that quantising takes */
};
/* Boundaries between levels as a search by halving wants them: by the bits of the index that are known. */
static const float FIRST = ${hexf(boundaries(1)[1])};
%     for step = 2, bits do
static const float BOUNDARY_${step}[8] = {${floats(boundaries(step))}};
%     end
%     if bits == 4 then
/* Magnitudes. */
static const float LEVEL[8] = {${floats(table.move(centroids, 9, 16, 1, {}))}};
%     else
static const float LEVEL[8] = {${floats(centroids)}};
%     end

/* Quantises `vectors` <= TOGETHER vectors times the inverse of each run's unit into codes. Adds y*c to *dot and c*c to
 * *square, c their centroids${subs > 0 and " times gains" or ""}. Step by step for all: the chain of one vector is long. */
TQV_INLINE void quantise(const float *y, const int vectors, const float *inverse, ${gain_parameter}uint8_t *codes,
                         tqv_f32 *dot, tqv_f32 *square) {
    tqv_f32 v[TOGETHER], t[TOGETHER];
    tqv_bits ge[TOGETHER], m[TOGETHER];
    TQV_UNROLL for (int i = 0; i < vectors; i++) {
        v[i] = tqv_load(y + i * TQV_LANES);
        t[i] = tqv_mul(v[i], tqv_set1(inverse[i * TQV_LANES / 16]));
        ge[i] = tqv_ge(t[i], tqv_set1(FIRST));
        m[i] = tqv_and(ge[i], tqv_bset1(1));
    }
%     for step = 2, bits do
    TQV_UNROLL for (int i = 0; i < vectors; i++)
        m[i] = tqv_sub32(tqv_add32(m[i], m[i]), tqv_ge(t[i], tqv_lookup_f32(BOUNDARY_${step}, m[i])));
%     end
    TQV_UNROLL for (int i = 0; i < vectors; i++) {
%     if bits == 4 then
        /* the low bits of an index count magnitudes upwards, for negative values once they are inverted */
        const tqv_bits negative = tqv_xor(ge[i], tqv_bset1(-1)), magnitude = tqv_xor(m[i], negative);
        const tqv_f32 level = tqv_lookup_f32(LEVEL, magnitude);
        const tqv_f32 value = tqv_abs(v[i]);
        m[i] = tqv_sub32(tqv_and(tqv_add32(magnitude, magnitude), tqv_bset1(14)), negative);
%     else
        const tqv_f32 level = tqv_lookup_f32(LEVEL, m[i]);
        const tqv_f32 value = v[i];
%     end
%     if subs > 0 then
        const tqv_f32 c = tqv_mul(level, tqv_set1(gain[i * TQV_LANES / 16]));
%     else
        const tqv_f32 c = level;
%     end
        *dot = tqv_fma(value, c, *dot);
        *square = tqv_fma(c, c, *square);
    }
    for (int i = vectors; i < TOGETHER; i++)
        m[i] = tqv_bzero();
    tqv_bstore(codes, tqv_low_bytes(m));
}

/* The same for any number of runs; codes have room for TOGETHER vectors more. */
TQV_INLINE void quantise_runs(const float *y, const int runs, const float *inverse, ${gain_parameter}uint8_t *codes,
                              tqv_f32 *dot, tqv_f32 *square) {
    enum { STRIDE = TOGETHER * TQV_LANES };
    int i = 0;
    *dot = *square = tqv_zero();
    for (; i + STRIDE <= 16 * runs; i += STRIDE)
        quantise(y + i, TOGETHER, inverse + i / 16, ${gain_argument}codes + i, dot, square);
    for (; i < 16 * runs; i += 16)
        quantise(y + i, 16 / TQV_LANES, inverse + i / 16, ${gain_argument}codes + i, dot, square);
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
    tqv_bits scaled[8], t[4], cell[4];
    TQV_UNROLL for (int i = 0; i < 2 * bytes; i++)
        scaled[i] = tqv_mul_q15(y[i], multipliers[i]);
    TQV_UNROLL for (int i = 0; i < bytes; i++)
        t[i] = tqv_narrow16(scaled[2 * i], scaled[2 * i + 1]);
    TQV_UNROLL for (int i = 0; i < bytes; i++)
        cell[i] = tqv_and(tqv_srl16(t[i], ${symmetric and 3 or 4}), tqv_bset1(0x0f0f0f0f));
    TQV_UNROLL for (int i = 0; i < bytes; i++)
        t[i] = tqv_abs8(tqv_sub8(t[i], tqv_lookup(tqv_table(BOUNDARY), cell[i])));
    TQV_UNROLL for (int i = 0; i < bytes; i++)
        t[i] = tqv_abs8(tqv_sub8(t[i], tqv_lookup(tqv_table(HALF_GAP), cell[i])));
    TQV_UNROLL for (int i = 0; i < 4; i++)
        sums[i] = i < bytes ? tqv_dot16(tqv_bzero(), tqv_maddu8(t[i], t[i]), tqv_bset1(0x00010001)) : tqv_bzero();
}

/* A chunk, zeros behind it, times `factor` and the inverse of each run as 16-bit ${symmetric and "magnitudes" or "values"}. */
TQV_INLINE void to_words(const float *y, float factor, const float *inverse, tqv_bits *words) {
    TQV_UNROLL for (int i = 0; i < WORDS; i++) {
        tqv_bits w[2];
        TQV_UNROLL for (int j = 0; j < 2; j++) {
            const int at = (2 * i + j) * TQV_LANES;
            const tqv_f32 v = tqv_mul(tqv_load(y + at), tqv_set1(factor * inverse[at / 16]));
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
/* One scale per block: of those tried around the one that puts the largest value on the outermost centroid, the one with
 * the least error, refitted by least squares. */
static void append_searched(const float *y, uint8_t *blocks) {
    enum { TRIES = ${search.tries}, N = CHUNK / BLOCK, BLOCK_RUNS = BLOCK / 16 };
    enum { ALL = (N + TQV_LANES - 1) / TQV_LANES * TQV_LANES };
    static const float FACTORS[TRIES] = {${floats(search.factors)}};
    /* of a block whose largest magnitude is 1 */
    static const float INVERSE_UNITS[TRIES] = {${floats(search.inverse_units)}};
    static const uint32_t MULTIPLIERS[TRIES] = {${list(search.multipliers)}};
    float top[ALL], error[TRIES][ROUNDS * TQV_LANES], inverse[PADDED_RUNS];
    tqv_f32 dots[ALL], squares[ALL];
    tqv_bits words[8 * ROUNDS], multipliers[8], sums[TRIES][4 * ROUNDS];
    uint8_t codes[CODES];
    TQV_UNROLL for (int b = 0; b < ALL; b++) {
        dots[b] = squares[b] = tqv_zero();
        for (int i = 0; b < N && i < BLOCK; i += TQV_LANES)
            dots[b] = tqv_max(dots[b], tqv_abs(tqv_load(y + b * BLOCK + i)));
    }
    TQV_UNROLL for (int b = 0; b < ALL; b += TQV_LANES)
        tqv_store(top + b, tqv_maxima(dots + b));
    TQV_UNROLL for (int r = 0; r < PADDED_RUNS; r++)
        inverse[r] = r < RUNS && top[r / BLOCK_RUNS] > 0x1p-100f ? 1.0f / top[r / BLOCK_RUNS] : 0.0f;
    to_words(y, ${hexf(search.value_16)}, inverse, words);
    TQV_UNROLL for (int k = 0; k < TRIES; k++) {
        TQV_UNROLL for (int i = 0; i < 8; i++)
            multipliers[i] = tqv_bset1((int32_t)MULTIPLIERS[k]);
        TQV_UNROLL for (int r = 0; r < ROUNDS; r++)
            errors(words + 8 * r, multipliers, r < ROUNDS - 1 ? 8 : WORDS - 8 * r, sums[k] + 4 * r);
    }
    TQV_UNROLL for (int k = 0; k < TRIES; k++)
        TQV_UNROLL for (int r = 0; r < ROUNDS; r++)
            tqv_store(error[k] + r * TQV_LANES, tqv_from_i32(tqv_run_sums(sums[k] + 4 * r)));
    TQV_UNROLL for (int b = 0; b < N; b++) {
        float least = INFINITY, best = 0.0f;
        TQV_UNROLL for (int k = 0; k < TRIES; k++) { /* selects: a branch could not be predicted */
            float e = 0.0f;
            TQV_UNROLL for (int r = 0; r < BLOCK_RUNS; r++)
                e += error[k][b * BLOCK_RUNS + r];
            e *= FACTORS[k] * FACTORS[k];
            best = e < least ? INVERSE_UNITS[k] : best;
            least = e < least ? e : least;
        }
        TQV_UNROLL for (int r = 0; r < BLOCK_RUNS; r++)
            inverse[b * BLOCK_RUNS + r] *= best;
    }
    TQV_UNROLL for (int b = 0; b < N; b++)
        quantise_runs(y + b * BLOCK, BLOCK_RUNS, inverse + b * BLOCK_RUNS, codes + b * BLOCK, dots + b, squares + b);
    TQV_UNROLL for (int b = 0; b < N; b += TQV_LANES)
        store_scales(blocks + b * BLOCK_BYTES, N - b < TQV_LANES ? N - b : TQV_LANES,
                     tqv_div(tqv_sums(dots + b), tqv_mul(tqv_sums(squares + b), tqv_set1(STEP))));
    TQV_UNROLL for (int b = 0; b < N; b++)
        pack_block(codes + b * BLOCK, blocks + b * BLOCK_BYTES);
}

/* One scale per chunk, stored in each of its blocks: its norm, or what gives the decoded chunk its norm. */
static void append_chunk(const float *y, float norm, int corrected, uint8_t *block) {
    uint8_t codes[CODES];
    float inverse[RUNS];
    tqv_f32 dot, square;
    TQV_UNROLL for (int r = 0; r < RUNS; r++)
        inverse[r] = norm > 0x1p-100f ? 1.0f / (norm * STEP) : 0.0f;
    quantise_runs(y, RUNS, inverse, codes, &dot, &square);
    const float scale = corrected ? norm / (STEP * sqrtf(tqv_hsum(square))) : norm;
    for (int b = 0; b < CHUNK / BLOCK; b++) {
        store_scales(block + b * BLOCK_BYTES, 1, tqv_set1(scale));
        pack_block(codes + b * BLOCK, block + b * BLOCK_BYTES);
    }
}
% end
% if subs > 0 then
static const float GAINS[16] = {${floats(gains)}};
static const float INVERSE_GAINS[16] = {${floats(inverse_gains)}};
static const int8_t GAIN_SIZES[16] = {${list(gain_sizes)}};
/* What takes the 16-bit values to bytes in units of each gain: pairs of 16-bit multipliers. */
static const uint32_t MULTIPLIERS[16] = {${list(search.multipliers)}};

/* A gain code per 16 values, the one with the least error; then one norm for the chunk by least squares over all. */
static void append_gains(const float *y, float norm, uint8_t *block) {
    enum { TRIES = ${search.tries}, SIGNS = ${signed and 2 or 1}, LAST = ${(signed and 8 or 16) - search.tries} };
    const float chunk_inverse = norm > 0x1p-100f ? 1.0f / (norm * STEP) : 0.0f;
    const tqv_f32 up_unit = tqv_set1(chunk_inverse * ${hexf(search.slope / centroids[#centroids])});
%     if signed then
    const tqv_f32 down_unit = tqv_set1(chunk_inverse * ${hexf(-search.slope / centroids[1])});
%     end
    int32_t code[ROUNDS * TQV_LANES];
    float inverse[PADDED_RUNS], gain[RUNS];
%     if signed then
    tqv_f32 below[ROUNDS * TQV_LANES];
%     end
    tqv_f32 above[ROUNDS * TQV_LANES], dot, square;
    tqv_bits words[8 * ROUNDS];
    uint8_t codes[CODES];
    uint16_t packed[HEADER / 2 - 1] = {0};
    TQV_UNROLL for (int r = 0; r < ROUNDS * TQV_LANES; r++) {
        above[r] = ${signed and "below[r] = " or ""}tqv_zero();
        for (int i = 0; r < RUNS && i < 16; i += TQV_LANES) {
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
    TQV_UNROLL for (int r = 0; r < PADDED_RUNS; r++)
        inverse[r] = chunk_inverse;
    to_words(y, ${hexf(search.gain_16)}, inverse, words);
    for (int r = 0; r < ROUNDS; r++) {
        const tqv_f32 up = tqv_maxima(above + r * TQV_LANES);
%     if signed then
        const tqv_f32 down = tqv_maxima(below + r * TQV_LANES);
%     end
        tqv_f32 least = tqv_set1(INFINITY);
        tqv_bits best = tqv_bzero(), lowest[SIGNS], sums[TRIES * SIGNS][4];
        int32_t indices[SIGNS][TQV_LANES];
        TQV_UNROLL for (int sign = 0; sign < SIGNS; sign++) {
%     if signed then
            const tqv_f32 size = tqv_max(tqv_mul(sign ? down : up, up_unit), tqv_mul(sign ? up : down, down_unit));
%     else
            const tqv_f32 size = tqv_mul(up, up_unit);
%     end
            const tqv_f32 first = tqv_add(size, tqv_set1(${hexf(search.offset)}));
            lowest[sign] = tqv_to_i32(tqv_max(tqv_min(first, tqv_set1((float)LAST)), tqv_zero()));
            lowest[sign] = tqv_add32(lowest[sign], tqv_bset1(8 * sign));
            tqv_bstore(indices[sign], lowest[sign]);
        }
        TQV_UNROLL for (int k = 0; k < TRIES * SIGNS; k++) {
            tqv_bits multipliers[8];
            TQV_UNROLL for (int i = 0; i < 8; i++)
                multipliers[i] = tqv_per_run(MULTIPLIERS + k % TRIES, indices[k / TRIES], i);
            errors(words + 8 * r, multipliers, r < ROUNDS - 1 ? 8 : WORDS - 8 * r, sums[k]);
        }
        TQV_UNROLL for (int k = 0; k < TRIES * SIGNS; k++) {
            const tqv_bits tried = tqv_add32(lowest[k / TRIES], tqv_bset1(k % TRIES));
            const tqv_f32 size = tqv_from_i32(tqv_and(tqv_lookup(tqv_table(GAIN_SIZES), tried), tqv_bset1(255)));
            const tqv_f32 error = tqv_mul(tqv_mul(size, size), tqv_from_i32(tqv_run_sums(sums[k])));
            best = tqv_select(tqv_ge(least, error), tried, best); /* a branch could not be predicted */
            least = tqv_min(least, error);
        }
        tqv_bstore(code + r * TQV_LANES, best);
    }
    TQV_UNROLL for (int r = 0; r < RUNS; r++) {
        gain[r] = GAINS[code[r]];
        inverse[r] *= INVERSE_GAINS[code[r]];
        packed[r / 4] = (uint16_t)(packed[r / 4] | code[r] << 4 * (r % 4));
    }
    quantise_runs(y, RUNS, inverse, gain, codes, &dot, &square);
    store_scales(block, 1, tqv_set1(tqv_hsum(dot) / (tqv_hsum(square) * STEP)));
    memcpy(block + 2, packed, sizeof packed);
    pack_block(codes, block);
}
% end
% if bits == 8 then
/* The largest magnitude becomes 127. */
static void append_bytes(const float *y, uint8_t *block) {
    tqv_f32 top = tqv_zero();
    for (int i = 0; i < BLOCK; i += TQV_LANES)
        top = tqv_max(top, tqv_abs(tqv_load(y + i)));
    const float scale = tqv_hmax(top) / 127.0f, inverse = scale > 0x1p-100f ? 1.0f / scale : 0.0f;
    store_scales(block, 1, tqv_set1(scale));
    for (int i = 0; i < BLOCK; i += TQV_LANES)
        tqv_store_u8(block + HEADER + i, tqv_and(tqv_to_i32(tqv_mul(tqv_load(y + i), tqv_set1(inverse))), tqv_bset1(255)));
}
% end

int ${append_symbol}(const float *x, const float *mean, const uint32_t *signs, int mode, uint8_t *row) {
    float y[HEAD_DIM + TQV_LANES]; /* what is behind a chunk may be read along with it */
    tqv_f32 check = tqv_zero();
    tqv_store(y + HEAD_DIM, tqv_zero());
    /* Beyond this the norm would overflow; scales saturate long before. */
    const tqv_f32 top = tqv_set1(1e17f), bottom = tqv_set1(-1e17f);
    for (int i = 0; i < HEAD_DIM; i += TQV_LANES) {
        const tqv_f32 v = mean ? tqv_sub(tqv_load(x + i), tqv_load(mean + i)) : tqv_load(x + i);
        const tqv_f32 kept = tqv_max(tqv_min(v, top), bottom);
        check = tqv_fma(v, tqv_zero(), check);
% if rotated then
        tqv_store(y + i, tqv_flip(kept, signs[i / 32] >> (i % 32)));
% else
        tqv_store(y + i, kept);
% end
    }
    if (!(tqv_hsum(check) == 0.0f))
        return 1;
% if not rotated then
    (void)signs;
% end
% if not (subs == 0 and bits < 8) then
    (void)mode;
% end
    for (int c = 0; c < HEAD_DIM / CHUNK; c++) {
        float *z = y + c * CHUNK;
        uint8_t *blocks = row + c * (CHUNK / BLOCK) * BLOCK_BYTES;
% if rotated then
        tqv_f32 square = tqv_zero();
        for (int i = 0; i < CHUNK; i += TQV_LANES)
            square = tqv_fma(tqv_load(z + i), tqv_load(z + i), square);
        const float norm = sqrtf(tqv_hsum(square));
        tq_rotate(z, ${pow2}, ${odd}, ROTATE_UNIT);
% end
% if bits == 8 then
        for (int b = 0; b < CHUNK / BLOCK; b++)
            append_bytes(z + b * BLOCK, blocks + b * BLOCK_BYTES);
% elseif subs > 0 then
        append_gains(z, norm, blocks);
% else
        if (mode == ${modes.searched})
            append_searched(z, blocks);
        else
            append_chunk(z, norm, mode == ${modes.nc}, blocks);
% end
    }
    return 0;
}

/* ---- dequantise ------------------------------------------------------------------------------------------------- */

void ${dequantise_symbol}(const uint8_t *row, const float *mean, const uint32_t *signs, float *x) {
    float y[HEAD_DIM];
    for (int b = 0; b < N_BLOCKS; b++) {
        const uint8_t *block = row + b * BLOCK_BYTES;
        uint8_t codes[BLOCK], halves[2 * TQV_LANES] = {0};
        float scales[TQV_LANES];
        memcpy(halves, block, 2);
        tqv_store(scales, tqv_from_f16(halves));
        const float scale = scales[0] * STEP;
        for (int u = 0; u < UNITS; u++)
            unpack_unit(block + HEADER + u * UNIT_BYTES, codes + 32 * u);
% if tail then
        unpack_tail(block + HEADER + UNITS * UNIT_BYTES, codes + 32 * UNITS);
% end
% if subs > 0 then
        for (int s = 0; s < BLOCK / 16; s++) {
            uint16_t word;
            memcpy(&word, block + 2 + s / 4 * 2, 2);
            const float gain = scale * GAINS[word >> 4 * (s % 4) & 15];
            for (int i = 16 * s; i < 16 * s + 16; i++)
                y[b * BLOCK + i] = gain * CENTROIDS[codes[i]];
        }
% elseif bits == 8 then
        for (int i = 0; i < BLOCK; i++)
            y[b * BLOCK + i] = scale * (float)(int8_t)codes[i];
% else
        for (int i = 0; i < BLOCK; i++)
            y[b * BLOCK + i] = scale * CENTROIDS[codes[i]];
% end
    }
% if rotated then
    for (int i = 0; i < HEAD_DIM; i += CHUNK)
        tq_rotate(y + i, ${pow2}, ${odd}, ROTATE_UNIT);
    tq_flip_signs(y, HEAD_DIM, signs);
% else
    (void)signs;
% end
    for (int i = 0; i < HEAD_DIM; i += TQV_LANES)
        tqv_store(x + i, mean ? tqv_add(tqv_load(y + i), tqv_load(mean + i)) : tqv_load(y + i));
}
