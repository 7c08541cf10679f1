/* ${banner} */
% assert(bits == 2 or bits == 3 or bits == 4 or bits == 8, "bits: codebook rows hold 2, 3, 4 or 8 bits")
% assert(head_dim == n_blocks * block and block == 32 * full_units + (tail and 16 or 0), "block: must tile head_dim")
% assert(not tail or n_blocks == 1, "tail: a last unit of 16 values only in a row of one block")
% assert(subs == 0 or (subs == (block + 15) // 16 and subs <= 16), "subs: one gain code per 16 values, at most 16")
/* ${format} rows of head_dim ${head_dim}: K.q and P.V in the cache's own domain.
 * Decoded value = scale * step * centroid * gain. Between the scales everything is integer arithmetic: 8-bit centroids,
 * 16-bit q and weights, 32-bit sums.
% if bytes then
 * A q or weight is two signed bytes, 256 hi + lo, each multiplied with the centroids.
% else
 * Centroids times gains are taken to 16 bits, even and odd values apart, and multiplied with pairs of 16-bit numbers.
% end
% if biased then
 * Centroids are unsigned, centroid + 128. What the 128s add does not depend on the indices: sums begin with that, negated.
% end
 */
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
    UNIT_WORDS = ${unit.words},
    TAIL_WORDS = ${tail and tail_unit.words or 0}, /* of the last one; HALF: and a half word */
    HALF = ${tail and tail_unit.half and 1 or 0},
    BLOCK_WORDS = UNITS * UNIT_WORDS + TAIL_WORDS,
    BLOCK_UNITS = UNITS + ${tail and 1 or 0},
    ALL_UNITS = N_BLOCKS * UNITS,
    QUADS = TQ_MAX_TILE / 4,
    HALVES = HEADER / 2, /* of a block's header */
    KEY_HALVES = N_BLOCKS * HALVES,
    /* A tile: its headers, [half][key], then the payload of its groups of keys (K) or sets of units (V). */
    HALVES_STRIDE = 2 * TQ_MAX_TILE,
    PAYLOAD_AT = KEY_HALVES * HALVES_STRIDE,
    GROUP_BYTES = TQ_GROUP * (4 * N_BLOCKS * BLOCK_WORDS + 2 * HALF),
    STAGE_STRIDE = (ROW_BYTES + OVERREAD + 63) / 64 * 64,
    SUM_VECTORS = ${bytes and 2 or 1}, /* vectors of integers that one vector of sums takes */
    MAX_VECTORS = ${subs > 0 and 2 or 4}, /* of keys that are multiplied at a time */
    STAGE_BYTES = TQ_GROUP * STAGE_STRIDE,
};

static const float STEP = ${hexf(step)};
% if bits < 8 and biased then
static const uint8_t CENTROIDS[16] = {${list(map(lookup_table, function(c) return c + 128 end))}};
% elseif bits < 8 then
static const int8_t CENTROIDS[16] = {${list(lookup_table)}};
% end
% if rotated then
static const float ROTATE_UNIT = ${hexf(1 / math.sqrt(pow2))};
static const uint32_t K_SIGNS[] = {${list(k_signs)}};
static const uint32_t V_SIGNS[] = {${list(v_signs)}};
% end

/* ---- a group of four values: the same one in all lanes ------------------------------------------------------------ */

% local function places(unit)
%     local out = {}
%     for g, at in ipairs(unit.groups) do out[g] = ("{%d, %d}"):format(at.word, at.shift) end
%     return table.concat(out, ", ")
% end
static const place UNIT[8] = {${places(unit)}};
% if tail then
static const place TAIL[4] = {${places(tail_unit)}};
% end

/* The words of a unit, 64 bytes apart, of which a vector is read; and its half word. */
typedef struct words {
    const uint8_t *at;
% if tail then
    int tail;
    tqv_bits half;
% end
} words;

TQV_INLINE tqv_bits whole_word(words x, int i) {
    return tqv_bload(x.at + 64 * i);
}

% if bits == 3 then
/* The top bits that 3-bit indices leave free in their nibbles hold more groups: the spare word. Other bits are any. */
%     local function spare(name, unit, word)
TQV_INLINE tqv_bits ${name}_spare(words x) {
%         local last = unit.spare[#unit.spare]
    tqv_bits y = tqv_srl16(${word(last.word)}, ${last.shift});
%         for i = #unit.spare - 1, 1, -1 do
%             local part = unit.spare[i]
    y = tqv_merge(tqv_bset1((int32_t)${string.format("0x%08x", part.bits)}), tqv_srl16(${word(part.word)}, ${part.shift}), y);
%         end
    return y;
}
%     end
%     spare("unit", unit, function(i) return "whole_word(x, " .. i .. ")" end)
%     if tail then
%         spare("tail", tail_unit, function(i) return i < tail_unit.words and "whole_word(x, " .. i .. ")" or "x.half" end)
%     end

% end
TQV_INLINE tqv_bits word_at(const words x, const int i) {
% if tail then
    if (x.tail && i >= TAIL_WORDS)
%     if tail_unit.half then
        return i == TAIL_WORDS ? x.half : tail_spare(x);
%     else
        return x.half; /* there is none */
%     end
% end
% if bits == 3 then
    return i < UNIT_WORDS ? whole_word(x, i) : unit_spare(x);
% else
    return whole_word(x, i);
% end
}

% if bytes then
/* The centroids of a group as bytes. */
typedef struct operands {
    tqv_bits bytes;
} operands;
typedef struct sums {
    tqv_bits high, low;
} sums;

TQV_INLINE operands decode_group(const words x, const place at, tqv_bits table) {
%     if bits == 8 then
    (void)table;
    return (operands){${biased and "tqv_xor(word_at(x, at.word), tqv_bset1((int32_t)0x80808080))" or "word_at(x, at.word)"}};
%     else
    return (operands){tqv_pick(table, word_at(x, at.word), at.shift, ${unit.mask})};
%     end
}

/* One number to multiply with: the high bytes of four, their low bytes. */
TQV_INLINE sums add_products(sums s, operands x, tqv_bits high, tqv_bits low) {
    return (sums){tqv_dot8(s.high, x.bytes, high), tqv_dot8(s.low, x.bytes, low)};
}

TQV_INLINE tqv_bits total_of(sums s) {
    return tqv_add32(tqv_sll32(s.high, 8), s.low);
}
% else
%     if subs > 0 then
/* Multiplying the bytes of a lane by (gain, 0, gain, 0) and (0, gain, 0, gain) sign-extends its even and odd values to 16
 * bits, gain included. A negative gain flips the centroid: bit 3 of the index selects the negated half of the table. */
typedef struct gain {
    tqv_bits even, odd, sign;
} gain;

%     end
/* The centroids of a group${subs > 0 and " times its gain" or ""} in 16 bits: the even and the odd values. */
typedef struct operands {
    tqv_bits even, odd;
} operands;
typedef struct sums {
    tqv_bits all;
} sums;

%     if subs > 0 then
TQV_INLINE operands decode_group(const words x, const place at, tqv_bits table, gain by) {
    const tqv_bits word = word_at(x, at.word);
%         if signed then
    const tqv_bits c = tqv_pick_signed(table, word, at.shift, ${unit.mask}, by.sign);
%         else
    const tqv_bits c = tqv_pick(table, word, at.shift, ${unit.mask});
%         end
    return (operands){tqv_maddu8(by.even, c), tqv_maddu8(by.odd, c)};
}
%     else
TQV_INLINE operands decode_group(const words x, const place at, tqv_bits table) {
%         if bits == 8 then
    const tqv_bits c = ${biased and "tqv_xor(word_at(x, at.word), tqv_bset1((int32_t)0x80808080))" or "word_at(x, at.word)"};
    (void)table;
%         else
    const tqv_bits c = tqv_pick(table, word_at(x, at.word), at.shift, ${unit.mask});
%         end
%         if biased then
    return (operands){tqv_and(c, tqv_bset1(0x00ff00ff)), tqv_srl16(c, 8)};
%         else
    return (operands){tqv_even16(c), tqv_odd16(c)};
%         end
}
%     end

TQV_INLINE sums add_products(sums s, operands x, tqv_bits even, tqv_bits odd) {
    return (sums){tqv_dot16(tqv_dot16(s.all, x.even, even), x.odd, odd)};
}

TQV_INLINE tqv_bits total_of(sums s) {
    return s.all;
}
% end

/* Sums that begin with a number${biased and "" or ", always 0"}. */
TQV_INLINE sums sums_from(tqv_bits x) {
    return (sums){${bytes and "tqv_bzero(), " or ""}x};
}

/* ---- what a step reads -------------------------------------------------------------------------------------------- */

/* Halves first, first + step, ... of the headers of a step's keys, as a tile has them; rows: gathered in `out`. */
TQV_INLINE const uint8_t *headers_of(const int tiled, const tq_keys *keys, const int first, const int step, uint8_t *out) {
    if (tiled)
        return keys->group[0];
    uint8_t stage[STAGE_BYTES];
    int g = 0;
    do {
        const group rows = group_at(keys, g, ROW_BYTES, stage, STAGE_STRIDE);
        for (int half = first; half < KEY_HALVES; half += step)
            TQV_UNROLL for (int i = 0; i < TQ_GROUP; i += TQV_LANES)
                tqv_store_halves(out + half * HALVES_STRIDE + 2 * (g * TQ_GROUP + i),
                                 rows.row + (size_t)i * rows.stride + half / HALVES * BLOCK_BYTES + half % HALVES * 2,
                                 rows.stride);
    } while (++g * TQ_GROUP < keys->n);
    return out;
}

/* The rows of group g of a step, as the payload of a group of a tile. */
static void repack_keys(const tq_keys *keys, int g, uint8_t *out) {
    uint8_t stage[STAGE_BYTES];
    const group rows = group_at(keys, g, ROW_BYTES, stage, STAGE_STRIDE);
    for (int i = 0; i < TQ_GROUP; i += TQV_LANES) {
        const uint8_t *row = rows.row + (size_t)i * rows.stride;
        for (int b = 0; b < N_BLOCKS; b++)
            TQV_UNROLL for (int w = 0; w < BLOCK_WORDS; w += 4) {
                tqv_bits x[4];
                tqv_load_words(row + b * BLOCK_BYTES + HEADER + 4 * w, rows.stride, x);
                TQV_UNROLL for (int j = 0; j < 4; j++)
                    if (w + j < BLOCK_WORDS)
                        tqv_bstore(out + 64 * (b * BLOCK_WORDS + w + j) + 4 * i, x[j]);
            }
        if (HALF)
            tqv_store_halves(out + 64 * BLOCK_WORDS + 2 * i, row + HEADER + 4 * BLOCK_WORDS, rows.stride);
    }
}

/* Where a word (bytes: 4) or half word (2) of key i lies, in payload of whole groups of K. */
TQV_INLINE const uint8_t *key_in(const uint8_t *payload, int i, const int bytes) {
    return payload + i / TQ_GROUP * GROUP_BYTES + i % TQ_GROUP * bytes;
}

/* Has every key the same scale in all its blocks? */
TQV_INLINE int is_uniform(const uint8_t *headers, int n) {
    for (int b = 1; b < N_BLOCKS; b++)
        if (memcmp(headers, headers + b * HALVES * HALVES_STRIDE, 2 * (size_t)n) != 0)
            return 0;
    return 1;
}

TQV_INLINE tqv_bits centroid_table(void) {
% if bits == 8 then
    return tqv_bzero();
% else
    return tqv_table(CENTROIDS);
% end
}

/* How many, at most `most`, a power of two, can have sums with `heads` heads in registers. */
TQV_INLINE int fitting(const int heads, const int most) {
    int n = most;
    while (n > 1 && n * heads * SUM_VECTORS > TQV_SUMS)
        n /= 2;
    return n;
}
