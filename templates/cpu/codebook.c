/* ${banner} */
% assert(bits == 2 or bits == 3 or bits == 4 or bits == 8, "bits: codebook rows hold 2, 3, 4 or 8 bits")
% assert(head_dim == n_blocks * block and block == 32 * full_units + (tail and 16 or 0), "block: must tile head_dim")
% assert(not tail or n_blocks == 1, "tail: a last unit of 16 values only in a row of one block")
% assert(subs == 0 or (subs == (block + 15) // 16 and subs <= 16), "subs: one gain code per 16 values, at most 16")
/* ${format} rows of head_dim ${head_dim}: K.q and P.V in the cache's own domain.
 * Decoded value = scale * step * centroid * gain. Between the scales everything is integer arithmetic: 8-bit centroids,
 * 16-bit q and weights, 32-bit sums.
% if bytes == "unsigned" then
 * A q or weight is two signed bytes, 256 hi + lo, each multiplied with the centroids as unsigned bytes, centroid + 128. */
% elseif bytes then
 * A q or weight is two signed bytes, 256 hi + lo, each multiplied with the centroids. */
% else
 * Centroids times gains are taken to 16 bits, even and odd values apart, and multiplied with pairs of 16-bit numbers. */
% end
#include <math.h>

#include "rotate.h"
#include "rows.h"
#include "tq_kernel.h"
#include "vocabulary.h"

enum {
    HEAD_DIM = ${head_dim},
    ROW_BYTES = ${row_bytes},
    N_BLOCKS = ${n_blocks},
    BLOCK = ${block},
    BLOCK_BYTES = ${block_bytes},
    HEADER = ${header}, /* scale, then gain codes */
    UNITS = ${full_units}, /* of 32 values in a block; a last one of 16 may follow */
    UNIT_BYTES = ${unit.bytes},
    UNIT_WORDS = ${unit.words},
    ALL_UNITS = N_BLOCKS * UNITS,
    UNIT_GROUPS = (ALL_UNITS + TQV_UNITS - 1) / TQV_UNITS,
    STAGE_STRIDE = (ROW_BYTES + 15 + 63) / 64 * 64,
    QUADS = TQ_MAX_TILE / 4,
    WIDE = 8 * TQV_LANES, /* floats that a group of units sums into */
    ACC_VALUES = UNIT_GROUPS * WIDE${tail and " + WIDE / 2" or ""},
% if subs > 0 then
    CODE_WORDS = ${(subs + 7) // 8}, /* 4-byte words of gain codes */
% end
};

static const float STEP = ${hexf(step)};
% if bits < 8 and bytes == "unsigned" then
static const uint8_t CENTROIDS[16] = {${list(map(lookup_table, function(c) return c + 128 end))}};
% elseif bits < 8 then
static const int8_t CENTROIDS[16] = {${list(lookup_table)}};
% end
% if subs > 0 then
static const int8_t GAINS[16] = {${list(gain_sizes)}};
% end
% if rotated then
static const float ROTATE_UNIT = ${hexf(1 / math.sqrt(pow2))};
static const uint32_t K_SIGNS[] = {${list(k_signs)}};
static const uint32_t V_SIGNS[] = {${list(v_signs)}};

static void rotate(float *y) {
    for (int i = 0; i < HEAD_DIM; i += ${chunk})
        tq_rotate(y + i, ${pow2}, ${odd}, ROTATE_UNIT);
}
% end

/* Where the indices of each group of four values lie: a word and a shift; the word behind the last is the spare one. */
typedef struct place {
    int word, shift;
} place;
% local function places(unit)
%     local out = {}
%     for g, at in ipairs(unit.groups) do out[g] = ("{%d, %d}"):format(at.word, at.shift) end
%     return table.concat(out, ", ")
% end
static const place UNIT[8] = {${places(unit)}};
% if tail then
static const place TAIL[4] = {${places(tail_unit)}};
enum { TAIL_WORDS = ${tail_unit.words}, TAIL_AT = HEADER + UNITS * UNIT_BYTES };
% end
% if bits == 3 then
/* The top bits that 3-bit indices leave free in their nibbles hold more groups: the spare word. */
%     local function spare(name, unit)
TQV_INLINE tqv_bits ${name}_spare(const tqv_bits *x) {
    tqv_bits y = tqv_bzero();
%         for _, part in ipairs(unit.spare) do
    y = tqv_or(y, tqv_and(tqv_srl16(x[${part.word}], ${part.shift}), tqv_bset1((int32_t)${string.format("0x%08x", part.bits)})));
%         end
    return y;
}
%     end
%     spare("unit", unit)
%     if tail then
%         spare("tail", tail_unit)
%     end
% end

% local by_parameter, by_argument = bytes and "" or ", gain by", bytes and "" or ", by[g / 4]"
% if bytes then
/* The centroids of a group as bytes${bytes == "unsigned" and ", + 128" or ""}. */
typedef struct operands {
    tqv_bits bytes;
} operands;
typedef struct sums {
    tqv_bits high, low;
} sums;

TQV_INLINE operands decode_group(const tqv_bits *x, place at, tqv_bits table) {
%     if bits == 8 then
    (void)table;
%         if bytes == "unsigned" then
    return (operands){tqv_xor(x[at.word], tqv_bset1((int32_t)0x80808080))};
%         else
    return (operands){x[at.word]};
%         end
%     else
    const tqv_bits index = tqv_and(tqv_srl16(x[at.word], at.shift), tqv_bset1(0x01010101 * ${unit.mask}));
    return (operands){tqv_lookup(table, index)};
%     end
}

/* One number to multiply with: the high bytes of four, their low bytes. */
TQV_INLINE sums add_products(sums s, operands x, tqv_bits high, tqv_bits low) {
    return (sums){tqv_dot8(s.high, x.bytes, high), tqv_dot8(s.low, x.bytes, low)};
}

% if bytes == "unsigned" then
/* Sums begin at minus what the 128s will add. */
TQV_INLINE sums no_sums(tqv_bits of_multipliers) {
    return (sums){tqv_bzero(), tqv_sub32(tqv_bzero(), tqv_sll32(of_multipliers, 7))};
}
% else
TQV_INLINE sums no_sums(tqv_bits of_multipliers) {
    (void)of_multipliers;
    return (sums){tqv_bzero(), tqv_bzero()};
}
% end

TQV_INLINE tqv_bits total_of(sums s) {
    return tqv_add32(tqv_sll32(s.high, 8), s.low);
}
% else
/* Multiplying the bytes of a lane by (gain, 0, gain, 0) and (0, gain, 0, gain) sign-extends its even and odd values to 16
 * bits, gain included. A negative gain flips the centroid: bit 3 of the index selects the negated half of the table. */
typedef struct gain {
    tqv_bits even, odd, sign;
} gain;
%     if subs > 0 then
static const int32_t EVEN = 0x00ff00ff, ODD = (int32_t)0xff00ff00;
%     else
TQV_INLINE gain unit_gain(void) {
    return (gain){tqv_bset1(0x00010001), tqv_bset1(0x01000100), tqv_bzero()};
}
%     end

/* The centroids of a group times its gain: 16-bit products of the even and of the odd values. */
typedef struct operands {
    tqv_bits even, odd;
} operands;
typedef struct sums {
    tqv_bits all;
} sums;

TQV_INLINE operands decode_group(const tqv_bits *x, place at, tqv_bits table, gain by) {
%     if bits == 8 then
    (void)table;
    const tqv_bits c = x[at.word];
%     else
    const tqv_bits index = tqv_and(tqv_srl16(x[at.word], at.shift), tqv_bset1(0x01010101 * ${unit.mask}));
%         if signed then
    const tqv_bits c = tqv_lookup(table, tqv_or(index, by.sign));
%         else
    const tqv_bits c = tqv_lookup(table, index);
%         end
%     end
    return (operands){tqv_maddu8(by.even, c), tqv_maddu8(by.odd, c)};
}

TQV_INLINE sums add_products(sums s, operands x, tqv_bits even, tqv_bits odd) {
    return (sums){tqv_dot16(tqv_dot16(s.all, x.even, even), x.odd, odd)};
}

TQV_INLINE sums no_sums(tqv_bits of_multipliers) {
    (void)of_multipliers;
    return (sums){tqv_bzero()};
}

TQV_INLINE tqv_bits total_of(sums s) {
    return s.all;
}
% end

TQV_INLINE tqv_bits centroid_table(void) {
% if bits == 8 then
    return tqv_bzero();
% else
    return tqv_table(CENTROIDS);
% end
}

/* ---- K: a lane is a key ----------------------------------------------------------------------------------------- */

typedef struct query {
    float factor[TQ_MAX_GQA];
% if bytes == "unsigned" then
    int32_t sum[N_BLOCKS][TQ_MAX_GQA]; /* of a block's q */
% end
% if bytes then
    int32_t pairs[]; /* [group of 4 values][head][high, low][copies]: a byte of each value of q */
% else
    int32_t pairs[]; /* [group of 4 values][head][even, odd][copies]: two 16-bit values of q each */
% end
} query;

/* A pair fills a whole vector in memory, ready to be an operand, as long as all of q stays in half of a small L1. */
TQV_INLINE int copies(const int gqa) {
    return gqa * HEAD_DIM <= 1024 ? TQV_LANES : 1;
}

TQV_INLINE tqv_bits pair_at(const int gqa, const int32_t *pairs, int i) {
    return copies(gqa) > 1 ? tqv_bload(pairs + i * TQV_LANES) : tqv_bset1(pairs[i]);
}

% if bytes then
/* The high bytes of four neighbouring values, then their low bytes. */
TQV_INLINE void to_numbers(tqv_bits x, int32_t *out) {
    int32_t v[TQV_LANES];
    tqv_bstore(v, x);
    for (int g = 0; g < TQV_LANES / 4; g++) {
        uint32_t high = 0, low = 0;
        for (int i = 0; i < 4; i++) {
            const int32_t value = v[4 * g + i], top = (value + 128) >> 8;
            high |= ((uint32_t)top & 0xff) << 8 * i;
            low |= ((uint32_t)value & 0xff) << 8 * i;
        }
        out[2 * g] = (int32_t)high;
        out[2 * g + 1] = (int32_t)low;
    }
}
% else
/* Each of the even and the odd values of four with its neighbour but one. */
TQV_INLINE void to_numbers(tqv_bits x, int32_t *out) {
    int32_t v[TQV_LANES];
    tqv_bstore(v, x);
    for (int j = 0; j < TQV_LANES / 2; j++) {
        const int value = j / 2 * 4 + j % 2;
        out[j] = (int32_t)((uint32_t)(v[value] & 0xffff) | (uint32_t)v[value + 2] << 16);
    }
}
% end

TQV_SPECIALISE void prepare(const int gqa, const float *q, size_t q_head_stride, float factor, query *out) {
    for (int h = 0; h < gqa; h++) {
        float y[HEAD_DIM], sum = 0.0f;
        memcpy(y, q + (size_t)h * q_head_stride, sizeof y);
% if rotated then
        tq_flip_signs(y, HEAD_DIM, K_SIGNS);
        rotate(y);
% end
        tqv_f32 most = tqv_zero();
        for (int b = 0; b < HEAD_DIM; b += BLOCK) {
            tqv_f32 block_sum = tqv_zero();
            for (int i = b; i < b + BLOCK; i += TQV_LANES) {
                most = tqv_max(most, tqv_abs(tqv_load(y + i)));
                block_sum = tqv_add(block_sum, tqv_abs(tqv_load(y + i)));
            }
            const float total = tqv_hsum(block_sum);
            sum = total > sum || isnan(total) ? total : sum;
        }
        float unit = tqv_hmax(most) / 32639.0f; /* 127 * 256 + 127 */
% if q_sum then
        if (sum > unit * ${hexf(q_sum)}) /* 32-bit sums stay exact whatever the cache holds */
            unit = sum / ${hexf(q_sum)};
% end
        if (!isfinite(sum)) {
            out->factor[h] = NAN;
            unit = 0.0f;
            memset(y, 0, sizeof y);
        } else {
            out->factor[h] = factor * unit * STEP;
        }
        const tqv_f32 inverse = tqv_set1(unit > 0x1p-100f ? 1.0f / unit : 0.0f);
        for (int i = 0; i < HEAD_DIM; i += TQV_LANES) {
            const tqv_bits x = tqv_to_i32(tqv_mul(tqv_load(y + i), inverse));
            int32_t numbers[TQV_LANES / 2]; /* two per group of four values */
            to_numbers(x, numbers);
% if bytes == "unsigned" then
            out->sum[i / BLOCK][h] = (i % BLOCK ? out->sum[i / BLOCK][h] : 0) + tqv_sum32(x);
% end
            for (int j = 0; j < TQV_LANES / 2; j++) {
                const int32_t pair = numbers[j];
                int32_t *to = out->pairs + (((i / 4 + j / 2) * gqa + h) * 2 + j % 2) * copies(gqa);
                if (copies(gqa) > 1)
                    tqv_bstore(to, tqv_bset1(pair));
                else
                    *to = pair;
            }
        }
    }
}

/* Adds n groups of a unit's words x${bytes and "" or "; by: the gains of its halves"}. */
TQV_INLINE void add_groups(const int gqa, const int n, const place *places, const tqv_bits *x, tqv_bits table,
                           ${bytes and "" or "const gain *by, "}const int32_t *pairs, sums *sum) {
    TQV_UNROLL for (int g = 0; g < n; g++) {
        const operands c = decode_group(x, places[g], table${by_argument});
        TQV_UNROLL for (int h = 0; h < gqa; h++) {
            const int i = 2 * (g * gqa + h);
            sum[h] = add_products(sum[h], c, pair_at(gqa, pairs, i), pair_at(gqa, pairs, i + 1));
        }
    }
}

% if subs > 0 then
typedef struct codes {
    tqv_bits code[2], gain[2]; /* of the even and the odd sub-blocks, a byte each */
} codes;

TQV_INLINE codes load_codes(const uint8_t *p, size_t stride) {
    const tqv_bits x = tqv_load_dwords(p, stride), nibble = tqv_bset1(0x0f0f0f0f), gains = tqv_table(GAINS);
    const tqv_bits even = tqv_and(x, nibble), odd = tqv_and(tqv_srl16(x, 4), nibble);
    return (codes){{even, odd}, {tqv_lookup(gains, even), tqv_lookup(gains, odd)}};
}

/* The gain of half `half` of unit `unit` of a block. */
TQV_INLINE gain key_gain(const codes *c, int unit, int half) {
    const tqv_bits g = c[unit / 4].gain[half];
    return (gain){tqv_spread(g, unit % 4, EVEN), tqv_spread(g, unit % 4, ODD),
                  tqv_spread(c[unit / 4].code[half], unit % 4, 0x08080808)};
}

% end
TQV_SPECIALISE void score(const int gqa, const query *q, const tq_rows *rows, float *scores) {
    uint8_t stage[TQV_LANES * STAGE_STRIDE];
    const int staged = stage_last(rows, ROW_BYTES, stage, STAGE_STRIDE);
    const tqv_bits table = centroid_table();
    for (int i = 0; i < rows->n; i += TQV_LANES) {
        const group keys = group_at(rows, i, staged, stage, STAGE_STRIDE);
        prefetch_rows(rows, i, TQV_LANES, ROW_BYTES);
        const int32_t *pairs = q->pairs;
        tqv_f32 total[TQ_MAX_GQA];
        TQV_UNROLL for (int h = 0; h < gqa; h++)
            total[h] = tqv_zero();
        for (int b = 0; b < N_BLOCKS; b++) {
            const uint8_t *block = keys.row + b * BLOCK_BYTES;
            const tqv_f32 scale = tqv_load_scales(block, keys.stride);
            sums sum[TQ_MAX_GQA];
            TQV_UNROLL for (int h = 0; h < gqa; h++)
                sum[h] = no_sums(${bytes == "unsigned" and "tqv_bset1(q->sum[b][h])" or "tqv_bzero()"});
% if subs > 0 then
            codes c[CODE_WORDS];
            TQV_UNROLL for (int j = 0; j < CODE_WORDS; j++)
                c[j] = load_codes(block + 2 + 4 * j, keys.stride);
% end
            for (int u = 0; u < UNITS; u++) {
                tqv_bits x[UNIT_WORDS + 4];
                TQV_UNROLL for (int w = 0; w < UNIT_WORDS; w += 4)
                    tqv_load_words(block + HEADER + u * UNIT_BYTES + 4 * w, keys.stride, x + w);
% if bits == 3 then
                x[UNIT_WORDS] = unit_spare(x);
% end
% if subs > 0 then
                const gain by[2] = {key_gain(c, u, 0), key_gain(c, u, 1)};
% elseif not bytes then
                const gain by[2] = {unit_gain(), unit_gain()};
% end
                add_groups(gqa, 8, UNIT, x, table, ${bytes and "" or "by, "}pairs, sum);
                pairs += 2 * gqa * copies(gqa) * 8;
            }
% if tail then
            tqv_bits x[TAIL_WORDS + 4];
            TQV_UNROLL for (int w = 0; w < TAIL_WORDS; w += 4)
                tqv_load_words(block + TAIL_AT + 4 * w, keys.stride, x + w);
%     if tail_unit.half then
            x[TAIL_WORDS] = tqv_load_half(block + TAIL_AT + 4 * TAIL_WORDS, keys.stride);
            x[TAIL_WORDS + 1] = tail_spare(x);
%     end
%     if subs > 0 then
            const gain by = key_gain(c, UNITS, 0);
%     elseif not bytes then
            const gain by = unit_gain();
%     end
            add_groups(gqa, 4, TAIL, x, table, ${bytes and "" or "&by, "}pairs, sum);
% end
            TQV_UNROLL for (int h = 0; h < gqa; h++)
                total[h] = tqv_fma(tqv_from_i32(total_of(sum[h])), scale, total[h]);
        }
        TQV_UNROLL for (int h = 0; h < gqa; h++)
            tqv_store(scores + h * TQ_MAX_TILE + i, tqv_mul(total[h], tqv_set1(q->factor[h])));
    }
}

/* ---- V: a lane is a value, a byte is a key ------------------------------------------------------------------------ */

static const uint8_t SCALE_SETS[] = {${list(scale_sets)}}; /* [set of weights][unit of a group]: a stored scale */
static const uint8_t SET_OF[] = {${list(set_of_group)}}; /* per group of units, the tail last */
enum { N_SETS = sizeof SCALE_SETS / TQV_UNITS, SET_WEIGHTS = QUADS * 2 * TQV_UNITS, HEAD_WEIGHTS = N_SETS * SET_WEIGHTS };

static void scales_of(const tq_rows *rows, float *out) {
    uint8_t stage[TQV_LANES * STAGE_STRIDE];
    const int staged = stage_last(rows, ROW_BYTES, stage, STAGE_STRIDE);
    for (int i = 0; i < rows->n; i += TQV_LANES) {
        const group keys = group_at(rows, i, staged, stage, STAGE_STRIDE);
        for (int b = 0; b < N_BLOCKS; b++)
            tqv_store(out + b * TQ_MAX_TILE + i,
                      tqv_mul(tqv_load_scales(keys.row + b * BLOCK_BYTES, keys.stride), tqv_set1(STEP)));
    }
}

/* Where full unit i of a row has its payload. */
TQV_INLINE size_t unit_at(int i) {
    return (size_t)(i / UNITS * BLOCK_BYTES + HEADER + i % UNITS * UNIT_BYTES);
}

typedef struct tile {
    const tq_rows *rows;
    int staged, quads;
    uint8_t stage[TQV_LANES * STAGE_STRIDE];
    tqv_bits words[QUADS][${max_words}]; /* of the group of units at work */
% if subs > 0 then
    /* Of the block at work: gains of the even and the odd keys of a quad, and signs. */
    int32_t even[2][CODE_WORDS][QUADS + 1][4], odd[2][CODE_WORDS][QUADS + 1][4], sign[2][CODE_WORDS][QUADS + 1][4];
% end
} tile;

/* Transposes n_words words of the units at bytes at[] of all rows into t->words. */
TQV_INLINE void transpose(tile *t, const size_t at[TQV_UNITS], const int n_words) {
    for (int i = 0; i < t->rows->n; i += TQV_LANES) {
        const group keys = group_at(t->rows, i, t->staged, t->stage, STAGE_STRIDE);
        if (at[0] == HEADER)
            prefetch_rows(t->rows, i, TQV_LANES, ROW_BYTES);
        for (int quad = 0; quad < TQV_LANES / 4; quad++) {
            const uint8_t *row = keys.row + (size_t)(4 * quad) * keys.stride;
            TQV_UNROLL for (int w = 0; w < n_words; w += 4) {
                const uint8_t *units[TQV_UNITS];
                tqv_bits out[4];
                TQV_UNROLL for (int u = 0; u < TQV_UNITS; u++)
                    units[u] = row + at[u] + 4 * w;
                tqv_load_quad(units, keys.stride, out);
                TQV_UNROLL for (int j = 0; j < 4; j++)
                    if (w + j < n_words)
                        t->words[i / 4 + quad][w + j] = out[j];
            }
        }
    }
}

% if subs > 0 then
static void load_gains(tile *t, int b) {
    for (int i = 0; i < t->rows->n; i += TQV_LANES) {
        const group keys = group_at(t->rows, i, t->staged, t->stage, STAGE_STRIDE);
        for (int j = 0; j < CODE_WORDS; j++) {
            const codes c = load_codes(keys.row + b * BLOCK_BYTES + 2 + 4 * j, keys.stride);
            for (int half = 0; half < 2; half++) {
                const tqv_bits g = tqv_transpose_bytes(c.gain[half]);
                tqv_bstore(t->even[half][j][i / 4], tqv_and(g, tqv_bset1(EVEN)));
                tqv_bstore(t->odd[half][j][i / 4], tqv_and(g, tqv_bset1(ODD)));
                tqv_bstore(t->sign[half][j][i / 4],
                           tqv_and(tqv_transpose_bytes(c.code[half]), tqv_bset1(0x08080808)));
            }
        }
    }
}

% end
/* Adds the tile's rows to `count` groups of values from `first` on. unit: the first unit of its block. */
TQV_INLINE void accumulate_groups(const int gqa, const int first, const int count, const place *places, const int n_words,
                                  const tile *t, int unit, const int32_t *weights, ${bytes == "unsigned" and "const tqv_bits *weight_sums, " or ""}const float *factor,
                                  const float *decay, float *acc) {
    const tqv_bits table = centroid_table();
    sums sum[TQ_MAX_GQA][4];
    operands c[4];
    TQV_UNROLL for (int h = 0; h < gqa; h++)
        TQV_UNROLL for (int g = 0; g < count; g++)
            sum[h][g] = no_sums(${bytes == "unsigned" and "weight_sums[h]" or "tqv_bzero()"});
    for (int quad = 0; quad < t->quads; quad++) {
        tqv_bits x[${max_words} + 1];
        TQV_UNROLL for (int w = 0; w < n_words; w++)
            x[w] = t->words[quad][w];
% if bits == 3 then
        if (places == UNIT && first + count > 6)
            x[n_words] = unit_spare(x);
%     if tail then
        if (places == TAIL && first + count > 3)
            x[n_words] = tail_spare(x);
%     end
% end
        TQV_UNROLL for (int g = 0; g < count; g++) {
% if subs > 0 then
            const int half = (first + g) / 4, lane = unit % 4, word = unit / 4;
            const gain by = {tqv_units(t->even[half][word][quad] + lane), tqv_units(t->odd[half][word][quad] + lane),
                             tqv_units(t->sign[half][word][quad] + lane)};
% elseif not bytes then
            const gain by = unit_gain();
% end
            c[g] = decode_group(x, places[first + g], table${bytes and "" or ", by"});
        }
        TQV_UNROLL for (int h = 0; h < gqa; h++) {
            const int32_t *w = weights + h * HEAD_WEIGHTS + quad * 2 * TQV_UNITS;
            const tqv_bits first_w = tqv_units(w), second_w = tqv_units(w + TQV_UNITS);
            TQV_UNROLL for (int g = 0; g < count; g++)
                sum[h][g] = add_products(sum[h][g], c[g], first_w, second_w);
        }
    }
    (void)unit;
    TQV_UNROLL for (int h = 0; h < gqa; h++)
        TQV_UNROLL for (int g = 0; g < count; g++) {
            float *to = acc + h * ACC_VALUES + (first + g) * TQV_LANES;
            const tqv_f32 old = tqv_mul(tqv_load(to), tqv_set1(decay[h]));
            tqv_store(to, tqv_fma(tqv_from_i32(total_of(sum[h][g])), tqv_set1(factor[h]), old));
        }
}

% if bytes == "unsigned" then
/* Per unit of a set, in its lanes: the sums of each head's weights. */
TQV_INLINE void sum_weights(const int gqa, const int quads, const int32_t *weights, tqv_bits *out) {
    const tqv_bits ones = tqv_bset1(0x01010101);
    TQV_UNROLL for (int h = 0; h < gqa; h++) {
        tqv_bits sum = tqv_bzero();
        for (int i = 0; i < quads * 2 * TQV_UNITS; i += TQV_LANES)
            sum = tqv_dot8(sum, ones, tqv_bload(weights + h * HEAD_WEIGHTS + i));
        out[h] = tqv_weight_sums(sum);
    }
}

% end
/* Groups of values per pass: more share the loads of weights, fewer leave all sums in registers. */
TQV_INLINE int groups_per_pass(const int gqa) {
    return gqa <= 2 ? 4 : gqa <= 4 ? 2 : 1;
}

TQV_SPECIALISE void accumulate(const int gqa, const tq_rows *rows, const int32_t *weights, const float *factor,
                               const float *decay, float *acc) {
    tile t;
    t.rows = rows;
    t.staged = stage_last(rows, ROW_BYTES, t.stage, STAGE_STRIDE);
    t.quads = (rows->n + TQV_LANES - 1) / TQV_LANES * (TQV_LANES / 4);
    for (int i = 0; i < UNIT_GROUPS; i++) {
        const int first = i * TQV_UNITS;
        size_t at[TQV_UNITS];
        for (int u = 0; u < TQV_UNITS; u++) /* the last again where there are no more */
            at[u] = unit_at(first + u < ALL_UNITS ? first + u : ALL_UNITS - 1);
% if subs > 0 then
        if (first % UNITS == 0)
            load_gains(&t, first / UNITS);
% end
        transpose(&t, at, UNIT_WORDS);
% if bytes == "unsigned" then
        tqv_bits weight_sums[TQ_MAX_GQA];
        sum_weights(gqa, t.quads, weights + SET_OF[i] * SET_WEIGHTS, weight_sums);
% end
        TQV_UNROLL for (int g = 0; g < 8; g += groups_per_pass(gqa))
            accumulate_groups(gqa, g, groups_per_pass(gqa), UNIT, UNIT_WORDS, &t, first % UNITS,
                              weights + SET_OF[i] * SET_WEIGHTS, ${bytes == "unsigned" and "weight_sums, " or ""}factor, decay, acc + i * WIDE);
    }
% if tail then
    size_t tail_at[TQV_UNITS];
    for (int u = 0; u < TQV_UNITS; u++)
        tail_at[u] = TAIL_AT;
    transpose(&t, tail_at, ${tail_unit.words + (tail_unit.half and 1 or 0)});
%     if tail_unit.half then
    for (int quad = 0; quad < t.quads; quad++)
        t.words[quad][TAIL_WORDS] = tqv_quad_half(t.words[quad][TAIL_WORDS]);
%     end
%     if bytes == "unsigned" then
    tqv_bits weight_sums[TQ_MAX_GQA];
    sum_weights(gqa, t.quads, weights + SET_OF[UNIT_GROUPS] * SET_WEIGHTS, weight_sums);
%     end
    TQV_UNROLL for (int g = 0; g < 4; g += groups_per_pass(gqa))
        accumulate_groups(gqa, g, groups_per_pass(gqa), TAIL, ${tail_unit.words + (tail_unit.half and 1 or 0)}, &t, UNITS,
                          weights + SET_OF[UNIT_GROUPS] * SET_WEIGHTS, ${bytes == "unsigned" and "weight_sums, " or ""}factor, decay,
                          acc + UNIT_GROUPS * WIDE);
% end
}

static void finish(const float *acc, float *out) {
    float y[HEAD_DIM];
    for (int unit = 0; unit < (HEAD_DIM + 31) / 32; unit++) {
        const int tail = unit >= ALL_UNITS; /* alone in its group, whatever number it has */
        const float *from = acc + (tail ? UNIT_GROUPS : unit / TQV_UNITS) * WIDE + (tail ? 0 : unit % TQV_UNITS);
        for (int i = 0; i < 32 && 32 * unit + i < HEAD_DIM; i++)
            y[32 * unit + i] = from[i / 4 * TQV_LANES + i % 4 * TQV_UNITS];
    }
% if rotated then
    rotate(y);
    tq_flip_signs(y, HEAD_DIM, V_SIGNS);
% end
    memcpy(out, y, sizeof y);
}

/* ---- one pair of stages per GQA ratio ----------------------------------------------------------------------------- */

% for _, g in ipairs(gqas) do
TQ_AT_GQA(${g})
const tq_k_stage ${k_symbol(g)} = {prepare_g${g}, score_g${g}};
const tq_v_stage ${v_symbol(g)} = {
    N_BLOCKS, N_SETS, SCALE_SETS, ${hexf(weight_sum)}, ${bytes and 1 or 0}, ACC_VALUES, scales_of, accumulate_g${g}, finish};
% end
