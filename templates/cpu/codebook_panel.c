/* ---- prefill: a lane is a key ------------------------------------------------------------------------------------- */

enum {
    WORDS = ALL_UNITS * UNIT_WORDS${tail and " + N_BLOCKS * TAIL_WORDS" or ""}, /* of payload in a row */
    HALVES = ${tail_unit.half and tail and 1 or 0}, /* of payload behind them */
% if subs == 0 then
    CODE_WORDS = 0,
% end
};
% if bits < 8 then
static const int8_t LEVELS[16] = {${list(lookup_table)}};
% end
% if subs > 0 then
static const int8_t SIGNED_GAINS[16] = {${list(gains)}};
% end

/* TQ_GROUP keys, beside each other whatever the layout of the cache. */
typedef struct unpacked {
    _Alignas(64) float scale[N_BLOCKS][TQ_GROUP];
    int32_t words[WORDS + HALVES][TQ_GROUP]; /* in the order of a row; a half as vectors want it, see tqv_load_half */
    int32_t codes[N_BLOCKS * CODE_WORDS + 1][TQ_GROUP]; /* of gains, a nibble per sub-block */
} unpacked;

/* Values of n groups of four, times by[] of their half of a unit, each TQV_LANES keys, to out. */
TQV_INLINE void decode_groups(const int n, const place *places, const tqv_bits *x, const tqv_f32 *by, float *out,
                              const int pitch) {
% if bits < 8 then
    const tqv_bits table = tqv_table((const void *)LEVELS);
% end
    TQV_UNROLL for (int g = 0; g < n; g++) {
% if bits < 8 then
        const tqv_bits index = tqv_and(tqv_srl16(x[places[g].word], places[g].shift), tqv_bset1(0x01010101 * ${unit.mask}));
        const tqv_bits levels = tqv_lookup(table, index);
% else
        const tqv_bits levels = x[places[g].word];
% end
        TQV_UNROLL for (int y = 0; y < 4; y++)
            tqv_store(out + (4 * g + y) * pitch, tqv_mul(tqv_from_byte(levels, y), by[g / 4]));
    }
}

/* out[j * pitch + lane] = value j of keys i to i + TQV_LANES - 1. */
TQV_INLINE void decode_keys(const unpacked *from, int i, float *out, const int pitch) {
    const int32_t(*words)[TQ_GROUP] = from->words;
    for (int b = 0; b < N_BLOCKS; b++, out += BLOCK * pitch) {
        const tqv_f32 scale = tqv_load(from->scale[b] + i);
% if subs > 0 then
        tqv_bits gain[CODE_WORDS][2]; /* of the even and the odd sub-blocks, a byte each */
        TQV_UNROLL for (int j = 0; j < CODE_WORDS; j++) {
            const tqv_bits codes = tqv_bload(from->codes[b * CODE_WORDS + j] + i), nibble = tqv_bset1(0x0f0f0f0f);
            gain[j][0] = tqv_lookup(tqv_table((const void *)SIGNED_GAINS), tqv_and(codes, nibble));
            gain[j][1] = tqv_lookup(tqv_table((const void *)SIGNED_GAINS), tqv_and(tqv_srl16(codes, 4), nibble));
        }
% end
        for (int u = 0; u < UNITS; u++, words += UNIT_WORDS) {
            tqv_bits x[UNIT_WORDS + 1];
            TQV_UNROLL for (int w = 0; w < UNIT_WORDS; w++)
                x[w] = tqv_bload(words[w] + i);
% if bits == 3 then
            x[UNIT_WORDS] = unit_spare(x);
% end
% if subs > 0 then
            const tqv_f32 by[2] = {tqv_mul(scale, tqv_from_byte(gain[u / 4][0], u % 4)),
                                   tqv_mul(scale, tqv_from_byte(gain[u / 4][1], u % 4))};
% else
            const tqv_f32 by[2] = {scale, scale};
% end
            decode_groups(8, UNIT, x, by, out + 32 * u * pitch, pitch);
        }
% if tail then
        tqv_bits x[TAIL_WORDS + HALVES + 1];
        TQV_UNROLL for (int w = 0; w < TAIL_WORDS + HALVES; w++)
            x[w] = tqv_bload(words[w] + i);
%     if tail_unit.half then
        x[TAIL_WORDS + 1] = tail_spare(x);
%     end
%     if subs > 0 then
        const tqv_f32 by = tqv_mul(scale, tqv_from_byte(gain[UNITS / 4][0], UNITS % 4));
        decode_groups(4, TAIL, x, &by, out + 32 * UNITS * pitch, pitch);
%     else
        decode_groups(4, TAIL, x, &scale, out + 32 * UNITS * pitch, pitch);
%     end
% end
    }
}

/* Keys first to first + TQ_GROUP - 1 of a step. */
typedef void (*unpack_fn)(const tq_keys *keys, int first, unpacked *out);

TQV_INLINE void decode_k(const tq_keys *keys, unpack_fn unpack, float *panel) {
    unpacked group;
    for (int i = 0; i < keys->n; i += TQ_GROUP) {
        unpack(keys, i, &group);
        for (int j = 0; j < TQ_GROUP && i + j < keys->n; j += TQV_LANES)
            decode_keys(&group, j, keys_in_panel(panel, i + j, HEAD_DIM), STRIP);
    }
}

/* Transposed: a key's values lie beside each other. */
TQV_INLINE void decode_v(const tq_keys *keys, unpack_fn unpack, float *panel) {
    unpacked group;
    _Alignas(64) float values[HEAD_DIM * TQV_LANES];
    for (int i = 0; i < keys->n; i += TQV_LANES) {
        if (i % TQ_GROUP == 0)
            unpack(keys, i, &group);
        decode_keys(&group, i % TQ_GROUP, values, TQV_LANES);
        for (int j = 0, width; j < HEAD_DIM; j += TQV_LANES) {
            float *to = values_in_panel(panel, i, j, HEAD_DIM, &width);
            TQV_UNROLL for (int r = 0; r < TQV_LANES; r += 4) {
                tqv_bits x[4];
                tqv_load_words((const uint8_t *)(values + j * TQV_LANES + r), TQV_LANES * sizeof *values, x);
                TQV_UNROLL for (int c = 0; c < 4; c++)
                    tqv_bstore(to + (r + c) * width, x[c]);
            }
        }
    }
}

% if rotated then
static void rotate_q(float *row) {
    tq_flip_signs(row, HEAD_DIM, K_SIGNS);
    rotate(row);
}

static void rotate_out(float *row) {
    rotate(row);
    tq_flip_signs(row, HEAD_DIM, V_SIGNS);
}

% end
% for _, cache in ipairs(panel_layouts) do
%     if cache == "rows" then
/* Words of n words of rows, from 4 at a time. */
TQV_INLINE void unpack_words(const int n, const uint8_t *row, size_t stride, int i, int32_t (*out)[TQ_GROUP]) {
    TQV_UNROLL for (int w = 0; w < n; w += 4) {
        tqv_bits x[4];
        tqv_load_words(row + 4 * w, stride, x);
        TQV_UNROLL for (int c = 0; c < 4; c++)
            if (w + c < n)
                tqv_bstore(out[w + c] + i, x[c]);
    }
}

static void unpack_rows(const tq_keys *keys, int first, unpacked *out) {
    uint8_t stage[TQV_LANES * STAGE_STRIDE];
    for (int i = 0; i < TQ_GROUP && first + i < keys->n; i += TQV_LANES) {
        const group rows = group_at(keys, first + i, ROW_BYTES, stage, STAGE_STRIDE);
        int32_t(*words)[TQ_GROUP] = out->words;
        for (int b = 0; b < N_BLOCKS; b++) {
            const uint8_t *block = rows.row + b * BLOCK_BYTES;
            tqv_store(out->scale[b] + i, tqv_mul(tqv_load_scales(block, rows.stride), tqv_set1(STEP)));
            for (int j = 0; j < CODE_WORDS; j++)
                tqv_bstore(out->codes[b * CODE_WORDS + j] + i, tqv_load_dwords(block + 2 + 4 * j, rows.stride));
            for (int u = 0; u < UNITS; u++, words += UNIT_WORDS)
                unpack_words(UNIT_WORDS, block + HEADER + u * UNIT_BYTES, rows.stride, i, words);
%         if tail then
            unpack_words(TAIL_WORDS, block + TAIL_AT, rows.stride, i, words);
%             if tail_unit.half then
            tqv_bstore(words[TAIL_WORDS] + i, tqv_load_half(block + TAIL_AT + 4 * TAIL_WORDS, rows.stride));
%             end
%         end
        }
    }
}

%     else
/* Where the words of some units lie in tiles of V, see docs/formats.md. */
typedef struct unit_set {
    int at, step, columns, words, first_word;
} unit_set;
%         local sets, word = {}, 0
%         for i, set in ipairs(tile_sets) do
%             sets[i] = ("{%d, %d, %d, %d, %d}"):format(set.at, set.step, set.columns, set.words, word)
%             word = word + set.words * set.columns
%         end
static const unit_set V_SETS[] = {${table.concat(sets, ", ")}};
enum { GROUP_BYTES = TQ_GROUP * (4 * WORDS + 2 * HALVES), TILE_PAYLOAD = TQ_MAX_TILE / TQ_GROUP * GROUP_BYTES };

static inline uint32_t half_at(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

/* What K and V have in common: the halves of headers, [half][key]. */
static void unpack_headers(const uint8_t *tile, int first, unpacked *out) {
    enum { CODE_HALVES = (HEADER - 2) / 2, STEP_BYTES = 2 * TQ_MAX_TILE };
    const uint8_t *half = tile + TILE_PAYLOAD + 2 * first;
    for (int b = 0; b < N_BLOCKS; b++, half += (1 + CODE_HALVES) * STEP_BYTES) {
        for (int i = 0; i < TQ_GROUP; i += TQV_LANES)
            tqv_store(out->scale[b] + i, tqv_mul(tqv_from_f16(half + 2 * i), tqv_set1(STEP)));
        for (int j = 0; j < CODE_HALVES; j++)
            for (int i = 0; i < TQ_GROUP; i++) {
                const uint32_t code = half_at(half + (1 + j) * STEP_BYTES + 2 * i);
                int32_t *to = &out->codes[b * CODE_WORDS + j / 2][i];
                *to = (int32_t)(j % 2 ? (uint32_t)*to | code << 16 : code);
            }
    }
}

%         if tail and tail_unit.half then
static int32_t spread_half(uint32_t half) {
    return (int32_t)((half | half << 12) & 0x0f0f0f0f);
}

%         end
static void unpack_k_tile(const tq_keys *keys, int first, unpacked *out) {
    const uint8_t *from = keys->group[0] + first / TQ_GROUP * GROUP_BYTES;
    memcpy(out->words, from, sizeof out->words[0] * WORDS);
%         if tail and tail_unit.half then
    for (int i = 0; i < TQ_GROUP; i++)
        out->words[WORDS][i] = spread_half(half_at(from + sizeof out->words[0] * WORDS + 2 * (size_t)i));
%         end
    unpack_headers(keys->group[0], first, out);
}

/* One word of four keys, 64 bytes, from [column / 2][byte of the word][column % 2][key] to [column][key][byte]. */
static void transpose_quads(const uint8_t *from, uint32_t out[4][4]) {
    static const uint64_t LOW = 0x00ff00ff00ff00ff, LOW_HALF = 0x0000ffff0000ffff;
    for (int c = 0; c < 4; c += 2, from += 32) {
        uint64_t x[4], y[4];
        memcpy(x, from, sizeof x);
        for (int i = 0; i < 4; i += 2) {
            y[i] = (x[i] & LOW) | (x[i + 1] & LOW) << 8;
            y[i + 1] = (x[i] >> 8 & LOW) | (x[i + 1] & ~LOW);
        }
        for (int i = 0; i < 2; i++) {
            const uint64_t even = (y[i] & LOW_HALF) | (y[i + 2] & LOW_HALF) << 16;
            const uint64_t odd = (y[i] >> 16 & LOW_HALF) | (y[i + 2] & ~LOW_HALF);
            out[c][i] = (uint32_t)even;
            out[c + 1][i] = (uint32_t)(even >> 32);
            out[c][i + 2] = (uint32_t)odd;
            out[c + 1][i + 2] = (uint32_t)(odd >> 32);
        }
    }
}

static void unpack_v_tile(const tq_keys *keys, int first, unpacked *out) {
    for (const unit_set *s = V_SETS; s < V_SETS + sizeof V_SETS / sizeof *V_SETS; s++) {
        const uint8_t *from = keys->group[0] + s->at + first / TQ_GROUP * s->columns * s->step;
        for (int i = 0; i < s->columns; i++, from += s->step)
            for (int w = 0; w < s->words; w++) {
                uint32_t quads[4][4];
                transpose_quads(from + 64 * w, quads);
                for (int c = 0; c < 4; c++) {
                    const int unit = c % s->columns, key = 16 / s->columns * i + 4 * (c / s->columns);
                    memcpy(out->words[s->first_word + unit * s->words + w] + key, quads[c], sizeof quads[c]);
                }
            }
    }
%         if tail and tail_unit.half then
    const unit_set *last = V_SETS + sizeof V_SETS / sizeof *V_SETS - 1;
    const uint8_t *half = keys->group[0] + last->at + first / TQ_GROUP * last->step + 64 * last->words;
    for (int i = 0; i < TQ_GROUP; i++)
        out->words[WORDS][i] = spread_half((uint32_t)half[i / 4 * 8 + i % 4] | (uint32_t)half[i / 4 * 8 + 4 + i % 4] << 8);
%         end
    unpack_headers(keys->group[0], first, out);
}

%     end
% end
% local rotate_q, rotate_out = rotated and "rotate_q" or "NULL", rotated and "rotate_out" or "NULL"
% for _, cache in ipairs(panel_layouts) do
%     local k_unpack = cache == "rows" and "unpack_rows" or "unpack_k_tile"
%     local v_unpack = cache == "rows" and "unpack_rows" or "unpack_v_tile"
static void decode_k_${cache}(const tq_keys *keys, float *panel) {
    decode_k(keys, ${k_unpack}, panel);
}

static void decode_v_${cache}(const tq_keys *keys, float *panel) {
    decode_v(keys, ${v_unpack}, panel);
}

const tq_panel ${k_panel_symbol(cache)} = {decode_k_${cache}, ${rotate_q}};
const tq_panel ${v_panel_symbol(cache)} = {decode_v_${cache}, ${rotate_out}};

% end
