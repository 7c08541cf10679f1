/* ---- prefill: a lane is a key ------------------------------------------------------------------------------------- */

% if bits < 8 then
static const int8_t LEVELS[16] = {${list(lookup_table)}};
% end
% if subs > 0 then
static const int8_t SIGNED_GAINS[16] = {${list(gains)}};
% end

/* 16 values in words of four, a key in each lane. */
TQV_INLINE void levels_of(const place *places, const words x, tqv_bits out[4]) {
% if bits < 8 then
    const tqv_bits table = tqv_table((const void *)LEVELS);
% end
    TQV_UNROLL for (int g = 0; g < 4; g++) {
        const tqv_bits word = word_at(x, places[g].word);
% if bits < 8 then
        out[g] = tqv_lookup(table, tqv_and(tqv_srl16(word, places[g].shift), tqv_bset1(0x01010101 * ${unit.mask})));
% else
        out[g] = word;
% end
    }
}

/* 16 values from value j on of keys i to i + TQV_LANES - 1, `by` for each 1 of a level, to a panel. */
TQV_INLINE void put_levels(const int of_v, const tqv_bits levels[4], tqv_f32 by, int i, int j, float *panel) {
    if (!of_v) {
        float *to = keys_in_panel(panel, i, HEAD_DIM) + j * STRIP;
        TQV_UNROLL for (int g = 0; g < 4; g++)
            TQV_UNROLL for (int y = 0; y < 4; y++)
                tqv_store(to + (4 * g + y) * STRIP, tqv_mul(tqv_from_byte(levels[g], y), by));
        return;
    }
    float scales[TQV_LANES];
    tqv_bits keys[4]; /* the levels of a key lie beside each other: of keys 0, 4, ..., of keys 1, 5, ... */
    tqv_store(scales, by);
    tqv_transpose(levels, keys);
    for (int v = 0, width; v < 16; v += TQV_LANES) {
        float *to = values_in_panel(panel, i, j + v, HEAD_DIM, &width);
        TQV_UNROLL for (int r = 0; r < TQV_LANES; r++) {
            const uint8_t *key = (const uint8_t *)&keys[r % 4] + r / 4 * 16;
            tqv_store(to + r * width, tqv_mul(tqv_from_i8(key + v), tqv_set1(scales[r])));
        }
    }
}

/* Keys i to i + TQV_LANES - 1 of a step. payload: of their group; header: of key i. */
TQV_INLINE void decode_keys(const int of_v, const uint8_t *payload, int i, const uint8_t *header, float *panel) {
    const float unit = STEP${subs > 0 and " * 0x1p-24f" or ""} * (of_v ? 1.0f : 0x1p-24f);
    for (int b = 0; b < N_BLOCKS; b++, header += HALVES * HALVES_STRIDE) {
        const tqv_f32 scale = tqv_mul(tqv_from_f16(header), tqv_set1(unit));
        words x = {.at = key_in(payload, i % TQ_GROUP, 4) + 64 * b * BLOCK_WORDS};
        tqv_bits levels[4];
% if subs > 0 then
        tqv_bits gain[HALVES - 1][2]; /* of the halves of two units, a byte each */
        TQV_UNROLL for (int j = 0; j < HALVES - 1; j++) {
            const tqv_bits codes = tqv_from_u16(header + (1 + j) * HALVES_STRIDE), nibble = tqv_bset1(0x0f0f0f0f);
            gain[j][0] = tqv_lookup(tqv_table((const void *)SIGNED_GAINS), tqv_and(codes, nibble));
            gain[j][1] = tqv_lookup(tqv_table((const void *)SIGNED_GAINS), tqv_and(tqv_srl16(codes, 4), nibble));
        }
% end
        for (int u = 0; u < UNITS; u++, x.at += 64 * UNIT_WORDS)
            TQV_UNROLL for (int half = 0; half < 2; half++) {
                levels_of(UNIT + 4 * half, x, levels);
                put_levels(of_v, levels, ${subs > 0 and "tqv_mul(scale, tqv_from_byte(gain[u / 2][half], u % 2))" or "scale"}, i, b * BLOCK + 32 * u + 16 * half, panel);
            }
% if tail then
        x.tail = 1;
%     if tail_unit.half then
        x.half = tqv_split_half(key_in(payload, i % TQ_GROUP, 2) + 64 * BLOCK_WORDS);
%     end
        levels_of(TAIL, x, levels);
        put_levels(of_v, levels, ${subs > 0 and "tqv_mul(scale, tqv_from_byte(gain[UNITS / 2][0], UNITS % 2))" or "scale"}, i, 32 * UNITS, panel);
% end
    }
}

/* The payload of group g of a step as a tile of K has it; buffer: for one that does not. */
typedef const uint8_t *(*payload_fn)(const tq_keys *keys, int g, uint8_t *buffer);

TQV_INLINE void decode(const int of_v, const int tiled, payload_fn payload_of, const tq_keys *keys, float *panel) {
    uint8_t gathered[KEY_HALVES * HALVES_STRIDE];
    _Alignas(64) uint8_t buffer[GROUP_BYTES];
    const uint8_t *headers = headers_of(tiled, keys, 0, 1, gathered), *payload = NULL;
    for (int i = 0; i < keys->n; i += TQV_LANES) {
        if (i % TQ_GROUP == 0)
            payload = payload_of(keys, i / TQ_GROUP, buffer);
        decode_keys(of_v, payload, i, headers + 2 * i, panel);
    }
}

% if rotated then
static void rotate_q(const float *const *q, int n, float factor, float *rows) {
    float *to[TQ_MAX_GQA];
    for (int r = 0; r < n; r++)
        to[r] = rows + r * HEAD_DIM;
    tq_rotate_in(q, n, HEAD_DIM, ${pow2}, ${odd}, factor * ROTATE_UNIT, K_SIGNS, to);
}

static void rotate_out(float *rows, int n, float *const *out) {
    float *from[TQ_MAX_GQA];
    for (int r = 0; r < n; r++)
        from[r] = rows + r * HEAD_DIM;
    tq_rotate_out(from, n, HEAD_DIM, ${pow2}, ${odd}, 1.0f, V_SIGNS, out);
}

% end
% for _, cache in ipairs(panel_layouts) do
%     if cache == "rows" then
static const uint8_t *payload_rows(const tq_keys *keys, int g, uint8_t *buffer) {
    repack_keys(keys, g, buffer);
    return buffer;
}

%     else
static const uint8_t *payload_k_tile(const tq_keys *keys, int g, uint8_t *buffer) {
    (void)buffer;
    return keys->group[0] + PAYLOAD_AT + g * GROUP_BYTES;
}

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

static const uint8_t *payload_v_tile(const tq_keys *keys, int g, uint8_t *buffer) {
    for (const unit_set *s = V_SETS; s < V_SETS + sizeof V_SETS / sizeof *V_SETS; s++) {
        const uint8_t *from = keys->group[0] + s->at + g * s->columns * s->step;
        for (int i = 0; i < s->columns; i++, from += s->step)
            for (int w = 0; w < s->words; w++) {
                uint32_t quads[4][4];
                transpose_quads(from + 64 * w, quads);
                for (int c = 0; c < 4; c++) {
                    const int unit = c % s->columns, key = 16 / s->columns * i + 4 * (c / s->columns);
                    memcpy(buffer + 64 * (s->first_word + unit * s->words + w) + 4 * key, quads[c], sizeof quads[c]);
                }
            }
    }
%         if tail and tail_unit.half then
    const unit_set *last = V_SETS + sizeof V_SETS / sizeof *V_SETS - 1;
    const uint8_t *half = keys->group[0] + last->at + g * last->step + 64 * last->words;
    for (int i = 0; i < 2 * TQ_GROUP; i++)
        buffer[64 * BLOCK_WORDS + i] = half[i / 8 * 8 + i % 2 * 4 + i % 8 / 2];
%         end
    return buffer;
}

%     end
% end
% local rotate_q, rotate_out = rotated and "rotate_q" or "NULL", rotated and "rotate_out" or "NULL"
% for _, cache in ipairs(panel_layouts) do
%     local tiled = cache == "rows" and 0 or 1
static void decode_k_${cache}(const tq_keys *keys, float *panel) {
    decode(0, ${tiled}, ${tiled == 0 and "payload_rows" or "payload_k_tile"}, keys, panel);
}

static void decode_v_${cache}(const tq_keys *keys, float *panel) {
    decode(1, ${tiled}, ${tiled == 0 and "payload_rows" or "payload_v_tile"}, keys, panel);
}

const tq_panel ${k_panel_symbol(cache)} = {.decode = decode_k_${cache}, .take = ${rotate_q}};
const tq_panel ${v_panel_symbol(cache)} = {.decode = decode_v_${cache}, .give = ${rotate_out}, .unit = ${rotated and "ROTATE_UNIT" or "1.0f"}};

% end
