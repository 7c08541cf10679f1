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
%     if subs == 0 then
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
