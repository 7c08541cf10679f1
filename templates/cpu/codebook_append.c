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

% end
% unpack_unit(unit, "unit")
% if tail then
%     unpack_unit(tail_unit, "tail")
% end
static void pack_block(const uint8_t *codes, uint8_t *block) {
    for (int u = 0; u < UNITS; u++)
        pack_unit(codes + 32 * u, block + HEADER + u * UNIT_BYTES);
% if tail then
    pack_tail(codes + 32 * UNITS, block + HEADER + UNITS * UNIT_BYTES);
% end
}

/* ---- append ----------------------------------------------------------------------------------------------------- */

static void store_scale(uint8_t *p, float scale) {
    float lanes[TQV_LANES] = {scale};
    uint8_t halves[2 * TQV_LANES];
    tqv_to_f16(halves, tqv_load(lanes));
    memcpy(p, halves, 2);
}

% if bits < 8 then
/* The index of the centroid nearest to t (in integer units) and the centroid itself. A value on a boundary takes the
 * upper index. Boundaries are searched by halving, the tables indexed by what is known so far. */
% local function boundary(k)
%     return (centroids[k] + centroids[k + 1]) / 2
% end
TQV_INLINE tqv_bits nearest(tqv_f32 t, tqv_f32 *centroid) {
    const tqv_bits one = tqv_bset1(1);
% if bits == 4 then
%     for k = 1, 8 do
%         assert(centroids[k] == -centroids[17 - k], "centroids: a 4-bit table must be symmetric")
%     end
    /* By magnitude; one unit in the last place less for negative t turns >= into >. */
    static const float MAGNITUDES[8] = {${floats({ centroids[9], centroids[10], centroids[11], centroids[12], centroids[13], centroids[14], centroids[15], centroids[16] })}};
    static const float SECOND[8] = {${floats({ boundary(10), boundary(10), boundary(10), boundary(10), boundary(14), boundary(14), boundary(14), boundary(14) })}};
    static const float THIRD[8] = {${floats({ boundary(9), boundary(9), boundary(11), boundary(11), boundary(13), boundary(13), boundary(15), boundary(15) })}};
    const tqv_bits negative = tqv_xor(tqv_ge(t, tqv_zero()), tqv_bset1(-1));
    const tqv_f32 a = tqv_as_f32(tqv_add32(tqv_as_bits(tqv_abs(t)), negative));
    tqv_bits m = tqv_and(tqv_ge(a, tqv_set1(${hexf(boundary(12))})), tqv_bset1(4));
    m = tqv_or(m, tqv_and(tqv_ge(a, tqv_lookup_f32(SECOND, m)), tqv_bset1(2)));
    m = tqv_or(m, tqv_and(tqv_ge(a, tqv_lookup_f32(THIRD, m)), one));
    const tqv_bits sign = tqv_and(negative, tqv_bset1(INT32_MIN));
    *centroid = tqv_as_f32(tqv_xor(tqv_as_bits(tqv_lookup_f32(MAGNITUDES, m)), sign));
    return tqv_xor(tqv_or(m, tqv_bset1(8)), tqv_and(negative, tqv_bset1(15)));
% elseif bits == 3 then
    static const float SECOND[8] = {${floats({ boundary(2), boundary(2), boundary(2), boundary(2), boundary(6), boundary(6), boundary(6), boundary(6) })}};
    static const float THIRD[8] = {${floats({ boundary(1), boundary(1), boundary(3), boundary(3), boundary(5), boundary(5), boundary(7), boundary(7) })}};
    tqv_bits m = tqv_and(tqv_ge(t, tqv_set1(${hexf(boundary(4))})), tqv_bset1(4));
    m = tqv_or(m, tqv_and(tqv_ge(t, tqv_lookup_f32(SECOND, m)), tqv_bset1(2)));
    m = tqv_or(m, tqv_and(tqv_ge(t, tqv_lookup_f32(THIRD, m)), one));
    *centroid = tqv_lookup_f32(CENTROIDS, m);
    return m;
% else
    static const float SECOND[8] = {${floats({ boundary(1), boundary(1), boundary(3), boundary(3), 0.0, 0.0, 0.0, 0.0 })}};
    static const float TABLE[8] = {${floats({ centroids[1], centroids[2], centroids[3], centroids[4], 0.0, 0.0, 0.0, 0.0 })}};
    tqv_bits m = tqv_and(tqv_ge(t, tqv_set1(${hexf(boundary(2))})), tqv_bset1(2));
    m = tqv_or(m, tqv_and(tqv_ge(t, tqv_lookup_f32(SECOND, m)), one));
    *centroid = tqv_lookup_f32(TABLE, m);
    return m;
% end
}

/* Quantises n values times `inverse`; codes may be NULL. *dot = sum of y*c, *square = sum of c*c. */
TQV_INLINE void quantise(const float *y, int n, float inverse, uint8_t *codes, float *dot, float *square) {
    tqv_f32 yc = tqv_zero(), cc = tqv_zero();
    for (int i = 0; i < n; i += TQV_LANES) {
        const tqv_f32 v = tqv_load(y + i);
        tqv_f32 c;
        const tqv_bits index = nearest(tqv_mul(v, tqv_set1(inverse)), &c);
        if (codes)
            tqv_store_u8(codes + i, index);
        yc = tqv_fma(v, c, yc);
        cc = tqv_fma(c, c, cc);
    }
    *dot = tqv_hsum(yc);
    *square = tqv_hsum(cc);
}
% end

% if subs == 0 and bits < 8 then
/* One scale per block: candidates around the one that puts the largest value on the outermost centroid, each refitted by
 * least squares (the error left is |y|^2 - dot^2/square); the best is kept. */
static void append_searched(const float *y, uint8_t *block) {
    static const float CANDIDATES[] = {0.80f, 0.87f, 0.94f, 1.01f};
    uint8_t codes[BLOCK];
    tqv_f32 top = tqv_zero();
    for (int i = 0; i < BLOCK; i += TQV_LANES)
        top = tqv_max(top, tqv_abs(tqv_load(y + i)));
    const float unit = tqv_hmax(top) / ${hexf(centroids[#centroids])};
    float best = -1.0f, inverse = 0.0f, dot, square;
    if (unit > 0x1p-100f)
        for (int k = 0; k < 4; k++) {
            const float candidate = 1.0f / (unit * CANDIDATES[k]);
            quantise(y, BLOCK, candidate, NULL, &dot, &square);
            if (dot * dot > best * square) {
                best = dot * dot / square;
                inverse = candidate;
            }
        }
    quantise(y, BLOCK, inverse, codes, &dot, &square);
    store_scale(block, dot / (square * STEP));
    pack_block(codes, block);
}

/* One scale per chunk, stored in each of its blocks: its norm, or what gives the decoded chunk its norm. */
static void append_chunk(const float *y, float norm, int corrected, uint8_t *block) {
    uint8_t codes[CHUNK];
    float dot, square;
    quantise(y, CHUNK, norm > 0x1p-100f ? 1.0f / (norm * STEP) : 0.0f, codes, &dot, &square);
    const float scale = corrected ? norm / (STEP * sqrtf(square)) : norm;
    for (int b = 0; b < CHUNK / BLOCK; b++) {
        store_scale(block + b * BLOCK_BYTES, scale);
        pack_block(codes + b * BLOCK, block + b * BLOCK_BYTES);
    }
}
% end
% if subs > 0 then
%     local levels = signed and 8 or 16
static const float GAINS[16] = {${floats(gains)}};
/* The code of the gain nearest to a wanted size. */
static const uint8_t LEVELS[64] = {${list(levels_by_size)}};

TQV_INLINE int level(float size) {
    return LEVELS[size < 0.0f ? 0 : size > 63.0f ? 63 : (int)(size + 0.5f)];
}

/* Error of 16 values, in units of the chunk, if their gain is g. */
TQV_INLINE float gain_error(tqv_f32 const v[16 / TQV_LANES], float g) {
    const tqv_f32 inverse = tqv_set1(1.0f / g), minus = tqv_set1(-g);
    tqv_f32 sum = tqv_zero();
    for (int i = 0; i < 16 / TQV_LANES; i++) {
        tqv_f32 c;
        (void)nearest(tqv_mul(v[i], inverse), &c);
        const tqv_f32 e = tqv_fma(minus, c, v[i]);
        sum = tqv_fma(e, e, sum);
    }
    return tqv_hsum(sum);
}

/* Tries gain codes near the one that the extreme values ask for. */
static int search_gain(tqv_f32 const v[16 / TQV_LANES]) {
    tqv_f32 high = v[0], low = tqv_sub(tqv_zero(), v[0]);
    for (int i = 1; i < 16 / TQV_LANES; i++) {
        high = tqv_max(high, v[i]);
        low = tqv_max(low, tqv_sub(tqv_zero(), v[i]));
    }
    const float above = tqv_hmax(high), below = tqv_hmax(low);
    int best = 0;
    float least = INFINITY;
%     if signed then
    for (int negative = 0; negative < 2; negative++) {
        const float up = (negative ? below : above) / ${hexf(centroids[#centroids])}, down = (negative ? above : below) / ${hexf(-centroids[1])};
        const int middle = level(${hexf(search.slope)} * (up > down ? up : down) + ${hexf(search.offset)});
        for (int code = middle > ${search.around} ? middle - ${search.around} : 0; code <= middle + ${search.around} && code < 8; code++) {
            const float error = gain_error(v, negative ? -GAINS[code] : GAINS[code]);
            if (error < least) {
                least = error;
                best = code + 8 * negative;
            }
        }
    }
%     else
    static const float FACTORS[] = {${floats(search.factors)}};
    const float size = (above > below ? above : below) / ${hexf(centroids[#centroids])};
    for (int k = 0; k < ${#search.factors}; k++) {
        const int code = level(size * FACTORS[k]);
        const float error = gain_error(v, GAINS[code]);
        if (error < least) {
            least = error;
            best = code;
        }
    }
%     end
    return best;
}

/* A gain code per 16 values, then one norm for the chunk by least squares over all of them. */
static void append_gains(const float *y, float norm, uint8_t *block) {
    uint8_t codes[CHUNK];
    uint16_t words[HEADER / 2 - 1] = {0};
    float yv = 0.0f, vv = 0.0f;
    const float inverse = norm > 0x1p-100f ? 1.0f / (norm * STEP) : 0.0f;
    for (int s = 0; s < CHUNK / 16; s++) {
        float z[16], dot, square;
        tqv_f32 v[16 / TQV_LANES];
        for (int i = 0; i < 16 / TQV_LANES; i++) {
            v[i] = tqv_mul(tqv_load(y + 16 * s + i * TQV_LANES), tqv_set1(inverse));
            tqv_store(z + i * TQV_LANES, v[i]);
        }
        const int code = search_gain(v);
        words[s / 4] = (uint16_t)(words[s / 4] | code << 4 * (s % 4));
        quantise(z, 16, 1.0f / GAINS[code], codes + 16 * s, &dot, &square);
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
            for (int b = 0; b < CHUNK / BLOCK; b++)
                append_searched(z + b * BLOCK, blocks + b * BLOCK_BYTES);
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
