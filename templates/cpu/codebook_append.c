/* ${banner} */
% assert(bits == 2 or bits == 3 or bits == 4 or bits == 8, "bits: codebook rows hold 2, 3, 4 or 8 bits")
% assert(subs == 0 or bits < 8, "subs: gains go with a codebook")
% assert(not search or not search.factors or #search.factors % 2 == 0, "search: tries come in pairs")
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
static const float CENTROIDS[${1 << bits}] = {${floats(centroids)}};
% end
% if rotated then
static const float ROTATE_UNIT = ${hexf(1 / math.sqrt(pow2))};
% end

/* ---- indices in the payload: see the byte layout in docs/formats.md ---------------------------------------------- */

% local function unpack_unit(unit, name)
static void unpack_${name}(const uint8_t *p, uint8_t *codes) {
    uint32_t x[${unit.words + (unit.half and 1 or 0) + (unit.spare ~= "none" and 1 or 0)}];
    memcpy(x, p, ${4 * unit.words});
%     if unit.half then
    uint16_t half;
    memcpy(&half, p + ${4 * unit.words}, 2);
    x[${unit.words}] = (half | (uint32_t)half << 12) & 0x0f0f0f0f;
%     end
%     if unit.spare == "three words" then
    x[3] = (x[0] & 0x88888888) | (x[1] >> 1 & 0x44444444) | (x[2] >> 2 & 0x22222222);
%     elseif unit.spare == "word and half" then
    x[2] = (x[0] >> 1 & 0x04040404) | (x[0] >> 6 & 0x02020202) | (x[1] >> 3 & 0x01010101);
%     end
    uint32_t group;
%     for g, at in ipairs(unit.groups) do
    group = x[${at.word}] >> ${at.shift} & ${string.format("0x%08x", unit.mask * 0x01010101)};
    memcpy(codes + ${4 * (g - 1)}, &group, 4);
%     end
}

%     if bits < 8 then
static void pack_${name}(const uint8_t *codes, uint8_t *p) {
    uint32_t g[${#unit.groups}], x[${unit.words + (unit.half and 1 or 0)}] = {0};
    memcpy(g, codes, sizeof g);
%     local spare_word = unit.words + (unit.half and 1 or 0)
%     for g, at in ipairs(unit.groups) do
%         if unit.spare == "none" or at.word < spare_word then
    x[${at.word}] |= g[${g - 1}] << ${at.shift};
%         end
%     end
%     if unit.spare == "three words" then
    const uint32_t a = g[6], b = g[7], bit = 0x01010101;
    x[0] |= (a >> 2 & bit) << 3 | (b >> 2 & bit) << 7;
    x[1] |= (a >> 1 & bit) << 3 | (b >> 1 & bit) << 7;
    x[2] |= (a & bit) << 3 | (b & bit) << 7;
%     elseif unit.spare == "word and half" then
    const uint32_t a = g[3], bit = 0x01010101;
    x[0] |= (a >> 2 & bit) << 3 | (a >> 1 & bit) << 7;
    x[1] |= (a & bit) << 3;
%     end
    memcpy(p, x, ${4 * unit.words});
%     if unit.half then
    const uint16_t half = (uint16_t)(x[${unit.words}] | x[${unit.words}] >> 12);
    memcpy(p + ${4 * unit.words}, &half, 2);
%     end
}
%     end

% end
% unpack_unit(unit, "unit")
% if tail then
%     unpack_unit(tail_unit, "tail")
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

static void store_scale(uint8_t *p, float scale) {
    float lanes[TQV_LANES] = {scale};
    uint8_t halves[2 * TQV_LANES];
    tqv_to_f16(halves, tqv_load(lanes));
    memcpy(p, halves, 2);
}

% if bits < 8 then
% -- A symmetric table is searched by magnitude: half the levels.
%     local levels = symmetric and 1 << (bits - 1) or 1 << bits
%     local function level_at(k)
%         return centroids[(symmetric and levels or 0) + k]
%     end
%     local function boundary(k)
%         return (level_at(k) + level_at(k + 1)) / 2
%     end
%     local function padded(n, value)
%         local out = {}
%         for k = 1, 8 do out[k] = k <= n and value(k) + 0.0 or 0.0 end
%         return floats(out)
%     end
/* Levels ascending, in integer units, and their boundaries as a search by halving wants them: indexed by what is known. */
enum { LEVELS = ${levels} };
static const float LEVEL[8] = {${padded(levels, level_at)}};
static const float FIRST = ${hexf(boundary(levels // 2))};
%     if levels >= 4 then
static const float SECOND[8] = {${padded(levels, function(k) return boundary(((k - 1) // (levels // 2)) * (levels // 2) + levels // 4) end)}};
%     end
%     if levels == 8 then
static const float THIRD[8] = {${padded(levels, function(k) return boundary((k - 1) // 2 * 2 + 1) end)}};
%     end

/* The levels nearest to n vectors t, the upper ones on a boundary. Step by step for all vectors: the chain of one is long
 * and its operations wait for each other. */
TQV_INLINE void search(const tqv_f32 *t, tqv_bits *m, const int n) {
    TQV_UNROLL for (int i = 0; i < n; i++)
        m[i] = tqv_and(tqv_ge(t[i], tqv_set1(FIRST)), tqv_bset1(LEVELS / 2));
%     for step, name in ipairs { levels >= 4 and "SECOND" or false, levels == 8 and "THIRD" or false } do
%         if name then
    TQV_UNROLL for (int i = 0; i < n; i++)
        m[i] = tqv_or(m[i], tqv_and(tqv_ge(t[i], tqv_lookup_f32(${name}, m[i])), tqv_bset1(LEVELS / ${step == 1 and 4 or 8})));
%         end
%     end
}

/* What is searched for: the magnitude if the table is symmetric, else the value. */
TQV_INLINE tqv_f32 searched(tqv_f32 v) {
    return ${symmetric and "tqv_abs(v)" or "v"};
}

enum { TOGETHER = 4 }; /* vectors that are searched together */

/* Quantises n values, at most TOGETHER vectors, times `inverse` into codes. Adds y*c to *dot and c*c to *square, c their
 * centroids. */
TQV_INLINE void quantise(const float *y, const int n, float inverse, uint8_t *codes, tqv_f32 *dot, tqv_f32 *square) {
    const int vectors = n / TQV_LANES;
    tqv_f32 v[TOGETHER], t[TOGETHER];
    tqv_bits m[TOGETHER];
%     if symmetric then
    tqv_bits negative[TOGETHER];
%     end
    TQV_UNROLL for (int i = 0; i < vectors; i++) {
        v[i] = tqv_load(y + i * TQV_LANES);
        t[i] = searched(tqv_mul(v[i], tqv_set1(inverse)));
%     if symmetric then
        /* For negative values the upper index is the smaller magnitude: one unit in the last place turns >= into >. */
        negative[i] = tqv_xor(tqv_ge(v[i], tqv_zero()), tqv_bset1(-1));
        t[i] = tqv_as_f32(tqv_add32(tqv_as_bits(t[i]), negative[i]));
%     end
    }
    search(t, m, vectors);
    TQV_UNROLL for (int i = 0; i < vectors; i++) {
%     if symmetric then
        const tqv_bits flip = tqv_and(negative[i], tqv_bset1(2 * LEVELS - 1));
        tqv_store_u8(codes + i * TQV_LANES, tqv_xor(tqv_or(m[i], tqv_bset1(LEVELS)), flip));
%     else
        tqv_store_u8(codes + i * TQV_LANES, m[i]);
%     end
        const tqv_f32 c = tqv_lookup_f32(LEVEL, m[i]);
        *dot = tqv_fma(searched(v[i]), c, *dot);
        *square = tqv_fma(c, c, *square);
    }
}

/* The same for any n that is a multiple of 16; sums across lanes. */
TQV_INLINE void quantise_all(const float *y, const int n, float inverse, uint8_t *codes, float *dot, float *square) {
    tqv_f32 yc = tqv_zero(), cc = tqv_zero();
    int i = 0;
    for (; i + TOGETHER * TQV_LANES <= n; i += TOGETHER * TQV_LANES)
        quantise(y + i, TOGETHER * TQV_LANES, inverse, codes + i, &yc, &cc);
    for (; i < n; i += 16)
        quantise(y + i, 16, inverse, codes + i, &yc, &cc);
    *dot = tqv_hsum(yc);
    *square = tqv_hsum(cc);
}
% end

% if subs == 0 and bits < 8 then
%     assert(symmetric, "centroids: a table without gains is symmetric")
/* One scale per block. Candidates around the one that puts the largest value on the outermost centroid are each refitted
 * by least squares, which leaves an error of |y|^2 - dot^2/square; the best is kept. All blocks and candidates are tried
 * before anything is summed across lanes, so that no step waits for the one before. */
static void append_searched(const float *y, uint8_t *blocks) {
    enum { TRIES = ${#search.factors}, N = CHUNK / BLOCK, ROUND = (N * TRIES + TQV_LANES - 1) / TQV_LANES * TQV_LANES };
    enum { PAIRS = BLOCK % 32 == 0 ? 2 : 1 }; /* 16 values each, searched together */
    static const float INVERSE_FACTORS[TRIES] = {${floats(inverse_factors)}};
    tqv_f32 dots[ROUND], squares[ROUND], tops[(N + TQV_LANES - 1) / TQV_LANES * TQV_LANES];
    float top[sizeof tops / sizeof *tops], gained[ROUND], inverse[N];
    for (int i = N * TRIES; i < ROUND; i++)
        dots[i] = squares[i] = tqv_zero();
    for (int b = 0; b < (int)(sizeof tops / sizeof *tops); b++) {
        tops[b] = tqv_zero();
        for (int i = 0; b < N && i < BLOCK; i += TQV_LANES)
            tops[b] = tqv_max(tops[b], tqv_abs(tqv_load(y + b * BLOCK + i)));
    }
    for (int b = 0; b < N; b += TQV_LANES)
        tqv_store(top + b, tqv_maxima(tops + b));
    for (int b = 0; b < N; b++) {
        const float unit = top[b] / LEVEL[LEVELS - 1];
        inverse[b] = unit > 0x1p-100f ? 1.0f / unit : 0.0f;
        TQV_UNROLL for (int k = 0; k < TRIES; k++) {
            const tqv_f32 candidate = tqv_set1(inverse[b] * INVERSE_FACTORS[k]);
            tqv_f32 vc = tqv_zero(), cc = tqv_zero();
            for (int i = 0; i < BLOCK; i += 16 * PAIRS) {
                tqv_f32 v[2 * PAIRS], t[2 * PAIRS];
                tqv_bits m[2 * PAIRS];
                TQV_UNROLL for (int j = 0; j < 16 * PAIRS / TQV_LANES; j++) {
                    v[j] = tqv_abs(tqv_load(y + b * BLOCK + i + j * TQV_LANES));
                    t[j] = tqv_mul(v[j], candidate);
                }
                search(t, m, 16 * PAIRS / TQV_LANES);
                TQV_UNROLL for (int j = 0; j < 16 * PAIRS / TQV_LANES; j++) {
                    const tqv_f32 c = tqv_lookup_f32(LEVEL, m[j]);
                    vc = tqv_fma(v[j], c, vc);
                    cc = tqv_fma(c, c, cc);
                }
            }
            dots[b * TRIES + k] = vc;
            squares[b * TRIES + k] = cc;
        }
    }
    for (int i = 0; i < ROUND; i += TQV_LANES) {
        const tqv_f32 dot = tqv_sums(dots + i);
        tqv_store(gained + i, tqv_div(tqv_mul(dot, dot), tqv_sums(squares + i)));
    }
    for (int b = 0; b < N; b++) {
        float most = gained[b * TRIES], best = INVERSE_FACTORS[0], dot, square;
        for (int k = 1; k < TRIES; k++) { /* selects: a branch could not be predicted */
            const float g = gained[b * TRIES + k];
            best = g > most ? INVERSE_FACTORS[k] : best;
            most = g > most ? g : most;
        }
        uint8_t codes[BLOCK];
        quantise_all(y + b * BLOCK, BLOCK, inverse[b] * best, codes, &dot, &square);
        store_scale(blocks + b * BLOCK_BYTES, dot / (square * STEP));
        pack_block(codes, blocks + b * BLOCK_BYTES);
    }
}

/* One scale per chunk, stored in each of its blocks: its norm, or what gives the decoded chunk its norm. */
static void append_chunk(const float *y, float norm, int corrected, uint8_t *block) {
    uint8_t codes[CHUNK];
    float dot, square;
    quantise_all(y, CHUNK, norm > 0x1p-100f ? 1.0f / (norm * STEP) : 0.0f, codes, &dot, &square);
    const float scale = corrected ? norm / (STEP * sqrtf(square)) : norm;
    for (int b = 0; b < CHUNK / BLOCK; b++) {
        store_scale(block + b * BLOCK_BYTES, scale);
        pack_block(codes + b * BLOCK, block + b * BLOCK_BYTES);
    }
}
% end
% if subs > 0 then
static const float GAINS[16] = {${floats(gains)}};
static const float INVERSE_GAINS[16] = {${floats(inverse_gains)}};
/* The code of the gain nearest to a wanted size. */
static const uint8_t CODE_OF_SIZE[64] = {${list(code_of_size)}};

TQV_INLINE int code_of(float size) {
    return CODE_OF_SIZE[size < 0.0f ? 0 : size > 63.0f ? 63 : (int)(size + 0.5f)];
}

/* The codes that are worth a try for values between -below and above: those near what the extremes ask for. */
%     if signed then
enum { TRIES = ${2 * (2 * search.around + 1)} };
TQV_INLINE void codes_to_try(float above, float below, uint8_t *code) {
    TQV_UNROLL for (int negative = 0; negative < 2; negative++) {
        const float up = (negative ? below : above) * ${hexf(1 / centroids[#centroids])};
        const float down = (negative ? above : below) * ${hexf(-1 / centroids[1])};
        int first = code_of(${hexf(search.slope)} * (up > down ? up : down) + ${hexf(search.offset)}) - ${search.around};
        first = first < 0 ? 0 : first > ${7 - 2 * search.around} ? ${7 - 2 * search.around} : first;
        TQV_UNROLL for (int k = 0; k < TRIES / 2; k++)
            code[negative * (TRIES / 2) + k] = (uint8_t)(8 * negative + first + k);
    }
}
%     else
enum { TRIES = ${#search.factors} };
TQV_INLINE void codes_to_try(float above, float below, uint8_t *code) {
    static const float FACTORS[TRIES] = {${floats(search.factors)}};
    const float size = (above > below ? above : below) * ${hexf(1 / centroids[#centroids])};
    TQV_UNROLL for (int k = 0; k < TRIES; k++)
        code[k] = (uint8_t)code_of(size * FACTORS[k]);
}
%     end

/* A gain code per 16 values, then one norm for the chunk by least squares over all of them. As for plain blocks, all
 * codes of all sub-blocks are tried before errors are summed across lanes. */
static void append_gains(const float *y, float norm, uint8_t *block) {
    enum { N = CHUNK / 16, N_ROUND = (N + TQV_LANES - 1) / TQV_LANES * TQV_LANES };
    enum { ROUND = (N * TRIES + TQV_LANES - 1) / TQV_LANES * TQV_LANES, VECTORS = 16 / TQV_LANES };
    float z[CHUNK], above[N_ROUND], below[N_ROUND], error[ROUND], yv = 0.0f, vv = 0.0f;
    tqv_f32 high[N_ROUND], low[N_ROUND], errors[ROUND];
    uint8_t codes[CHUNK], tried[N * TRIES];
    uint16_t words[HEADER / 2 - 1] = {0};
    const tqv_f32 inverse = tqv_set1(norm > 0x1p-100f ? 1.0f / (norm * STEP) : 0.0f);
    for (int s = 0; s < N_ROUND; s++) {
        high[s] = low[s] = tqv_zero();
        for (int i = 16 * s; s < N && i < 16 * s + 16; i += TQV_LANES) {
            const tqv_f32 v = tqv_mul(tqv_load(y + i), inverse);
            tqv_store(z + i, v);
            high[s] = tqv_max(high[s], v);
            low[s] = tqv_max(low[s], tqv_sub(tqv_zero(), v));
        }
    }
    for (int s = 0; s < N; s += TQV_LANES) {
        tqv_store(above + s, tqv_maxima(high + s));
        tqv_store(below + s, tqv_maxima(low + s));
    }
    for (int s = 0; s < N; s++) {
        codes_to_try(above[s], below[s], tried + s * TRIES);
        const uint8_t *code = tried + s * TRIES;
        tqv_f32 v[VECTORS], t[2 * VECTORS];
        tqv_bits m[2 * VECTORS];
        TQV_UNROLL for (int i = 0; i < VECTORS; i++)
            v[i] = searched(tqv_load(z + 16 * s + i * TQV_LANES));
        TQV_UNROLL for (int k = 0; k < TRIES; k += 2) {
            TQV_UNROLL for (int i = 0; i < 2 * VECTORS; i++)
                t[i] = tqv_mul(v[i % VECTORS], tqv_set1(INVERSE_GAINS[code[k + i / VECTORS]]));
            search(t, m, 2 * VECTORS);
            TQV_UNROLL for (int j = 0; j < 2; j++) {
                const tqv_f32 minus = tqv_set1(-GAINS[code[k + j]]);
                tqv_f32 sum = tqv_zero();
                TQV_UNROLL for (int i = 0; i < VECTORS; i++) {
                    const tqv_f32 e = tqv_fma(minus, tqv_lookup_f32(LEVEL, m[j * VECTORS + i]), v[i]);
                    sum = tqv_fma(e, e, sum);
                }
                errors[s * TRIES + k + j] = sum;
            }
        }
    }
    for (int i = N * TRIES; i < ROUND; i++)
        errors[i] = tqv_zero();
    for (int i = 0; i < ROUND; i += TQV_LANES)
        tqv_store(error + i, tqv_sums(errors + i));
    for (int s = 0; s < N; s++) {
        float least = error[s * TRIES], dot, square;
        int code = tried[s * TRIES];
        for (int k = 1; k < TRIES; k++) { /* selects: a branch could not be predicted */
            const float e = error[s * TRIES + k];
            code = e < least ? tried[s * TRIES + k] : code;
            least = e < least ? e : least;
        }
        quantise_all(z + 16 * s, 16, INVERSE_GAINS[code], codes + 16 * s, &dot, &square);
        words[s / 4] = (uint16_t)(words[s / 4] | code << 4 * (s % 4));
        yv += GAINS[code] * dot;
        vv += GAINS[code] * GAINS[code] * square;
    }
    store_scale(block, norm * yv / vv);
    memcpy(block + 2, words, sizeof words);
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
    store_scale(block, scale);
    for (int i = 0; i < BLOCK; i += TQV_LANES)
        tqv_store_u8(block + HEADER + i, tqv_and(tqv_to_i32(tqv_mul(tqv_load(y + i), tqv_set1(inverse))), tqv_bset1(255)));
}
% end

int ${append_symbol}(const float *x, const float *mean, const uint32_t *signs, int mode, uint8_t *row) {
    float y[HEAD_DIM];
    tqv_f32 check = tqv_zero();
    /* Beyond this the norm would overflow; scales saturate long before. */
    const tqv_f32 top = tqv_set1(1e17f), bottom = tqv_set1(-1e17f);
    for (int i = 0; i < HEAD_DIM; i += TQV_LANES) {
        const tqv_f32 v = mean ? tqv_sub(tqv_load(x + i), tqv_load(mean + i)) : tqv_load(x + i);
        check = tqv_add(check, tqv_sub(v, v));
        tqv_store(y + i, tqv_max(tqv_min(v, top), bottom));
    }
    if (!(tqv_hsum(check) == 0.0f))
        return 1;
% if rotated then
    tq_flip_signs(y, HEAD_DIM, signs);
% else
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
