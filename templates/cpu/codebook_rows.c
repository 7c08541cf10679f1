/* ${banner} */
% assert(bits == 2 or bits == 3 or bits == 4 or bits == 8, "bits: codebook rows hold 2, 3, 4 or 8 bits")
% assert(subs == 0 or bits < 8, "subs: gains go with a codebook")
/* ${format} rows of head_dim ${head_dim}: how indices lie in them, dequantise and append-quantise. */
#include <math.h>

#include "append.h"
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
% if subs > 0 then
static const float GAINS[16] = {${floats(gains)}}; /* by code */
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
%         -- Of 32 values, words of groups that are joined in pairs: x; of 16, of the groups themselves.
%         local joined = unit.n == 32 and unit.groups[2].shift - unit.groups[1].shift
%         for w, part in ipairs(joined and unit.spare or {}) do
%             assert(part.word == w - 1 and part.shift == w - 1 and part.bits << part.shift & 0xffffffff == unit.spare[1].bits)
%         end
%         local function groups_in(word)
%             local out = {}
%             for g = 1, #unit.groups, joined and 2 or 1 do
%                 local at = unit.groups[g]
%                 if at.word == word then out[#out + 1] = ("x[%d] << %d"):format((g - 1) // (joined and 2 or 1), at.shift) end
%             end
%             return table.concat(out, " | ")
%         end
%         local function spare_in(word)
%             local out = ""
%             for _, part in ipairs(unit.spare) do
%                 if part.word == word then out = ("%s | (spare & 0x%08x) << %d"):format(out, part.bits, part.shift) end
%             end
%             return out
%         end
static void pack_${name}(const uint8_t *codes, uint8_t *p) {
%         if joined and unit.words == 4 then
    tqv_join_words(codes, ${joined}, p);
%         elseif joined and #unit.spare > 0 then
    uint32_t x[4];
    tqv_join_words(codes, ${joined}, x);
    tqv_add_spare(x, ${unit.groups[7].shift}, ${string.format("0x%08x", unit.spare[1].bits)}, p);
%         else
    uint32_t x[${joined and 4 or #unit.groups}], word;
%             if joined then
    tqv_join_words(codes, ${joined}, x);
%             else
    memcpy(x, codes, sizeof x);
%             end
%             if #unit.spare > 0 then
    const uint32_t spare = ${groups_in(spare_word)};
%             end
%             for w = 0, unit.words - 1 do
    word = ${groups_in(w)}${spare_in(w)};
    memcpy(p + ${4 * w}, &word, 4);
%             end
%             if unit.half then
    word = ${groups_in(unit.words)}${spare_in(unit.words)};
    const uint16_t half = (uint16_t)(word | word >> 12);
    memcpy(p + ${4 * unit.words}, &half, 2);
%             end
%         end
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
    tq_rotate_out(&(float *){y}, 1, HEAD_DIM, ${pow2}, ${odd}, ROTATE_UNIT, signs, &(float *){y});
% else
    (void)signs;
% end
    for (int i = 0; i < HEAD_DIM; i += TQV_LANES)
        tqv_store(x + i, mean ? tqv_add(tqv_load(y + i), tqv_load(mean + i)) : tqv_load(y + i));
}
