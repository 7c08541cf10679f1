/* ---- prefill: a lane is a key ------------------------------------------------------------------------------------- */

% if bits < 8 then
static const int8_t LEVELS[16] = {${list(lookup_table)}};
% end
% if subs > 0 then
static const int8_t SIGNED_GAINS[16] = {${list(gains)}};
% end

/* Values of n groups of four, times by[] of their half of a unit, each TQV_LANES keys, to out. */
TQV_INLINE void decode_groups(const int n, const place *places, const words x, const tqv_f32 *by, float *out, const int pitch) {
% if bits < 8 then
    const tqv_bits table = tqv_table((const void *)LEVELS);
% end
    TQV_UNROLL for (int g = 0; g < n; g++) {
        const tqv_bits word = word_at(x, places[g].word);
% if bits < 8 then
        const tqv_bits levels =
            tqv_lookup(table, tqv_and(tqv_srl16(word, places[g].shift), tqv_bset1(0x01010101 * ${unit.mask})));
% else
        const tqv_bits levels = word;
% end
        TQV_UNROLL for (int y = 0; y < 4; y++)
            tqv_store(out + (4 * g + y) * pitch, tqv_mul(tqv_from_byte(levels, y), by[g / 4]));
    }
}

/* out[j * pitch + lane] = value j of TQV_LANES keys from key i of a group on. payload: of the group; header: of key i. */
TQV_INLINE void decode_keys(const uint8_t *payload, int i, const uint8_t *header, float *out, const int pitch) {
    for (int b = 0; b < N_BLOCKS; b++, header += HALVES * HALVES_STRIDE, out += BLOCK * pitch) {
        const tqv_f32 scale = tqv_mul(tqv_from_f16(header), tqv_set1(STEP));
        words x = {.at = key_in(payload, i, 4) + 64 * b * BLOCK_WORDS};
% if subs > 0 then
        tqv_bits gain[HALVES - 1][2]; /* of the halves of two units, a byte each */
        TQV_UNROLL for (int j = 0; j < HALVES - 1; j++) {
            const tqv_bits codes = tqv_from_u16(header + (1 + j) * HALVES_STRIDE), nibble = tqv_bset1(0x0f0f0f0f);
            gain[j][0] = tqv_lookup(tqv_table((const void *)SIGNED_GAINS), tqv_and(codes, nibble));
            gain[j][1] = tqv_lookup(tqv_table((const void *)SIGNED_GAINS), tqv_and(tqv_srl16(codes, 4), nibble));
        }
% end
        for (int u = 0; u < UNITS; u++, x.at += 64 * UNIT_WORDS) {
% if subs > 0 then
            const tqv_f32 by[2] = {tqv_mul(scale, tqv_from_byte(gain[u / 2][0], u % 2)),
                                   tqv_mul(scale, tqv_from_byte(gain[u / 2][1], u % 2))};
% else
            const tqv_f32 by[2] = {scale, scale};
% end
            decode_groups(8, UNIT, x, by, out + 32 * u * pitch, pitch);
        }
% if tail then
        x.tail = 1;
%     if tail_unit.half then
        x.half = tqv_split_half(key_in(payload, i, 2) + 64 * BLOCK_WORDS);
%     end
%     if subs > 0 then
        const tqv_f32 by = tqv_mul(scale, tqv_from_byte(gain[UNITS / 2][0], UNITS % 2));
        decode_groups(4, TAIL, x, &by, out + 32 * UNITS * pitch, pitch);
%     else
        decode_groups(4, TAIL, x, &scale, out + 32 * UNITS * pitch, pitch);
%     end
% end
    }
}

/* The payload of group g of a step as a tile of K has it; buffer: for one that does not. */
typedef const uint8_t *(*payload_fn)(const tq_keys *keys, int g, uint8_t *buffer);

TQV_INLINE void decode_k(const int tiled, payload_fn payload_of, const tq_keys *keys, float *panel) {
    uint8_t gathered[KEY_HALVES * HALVES_STRIDE];
    _Alignas(64) uint8_t buffer[GROUP_BYTES];
    const uint8_t *headers = headers_of(tiled, keys, 0, 1, gathered), *payload = NULL;
    for (int i = 0; i < keys->n; i += TQV_LANES) {
        if (i % TQ_GROUP == 0)
            payload = payload_of(keys, i / TQ_GROUP, buffer);
        decode_keys(payload, i % TQ_GROUP, headers + 2 * i, keys_in_panel(panel, i, HEAD_DIM), STRIP);
    }
}

/* Transposed: a key's values lie beside each other. */
TQV_INLINE void decode_v(const int tiled, payload_fn payload_of, const tq_keys *keys, float *panel) {
    uint8_t gathered[KEY_HALVES * HALVES_STRIDE];
    _Alignas(64) uint8_t buffer[GROUP_BYTES];
    _Alignas(64) float values[HEAD_DIM * TQV_LANES];
    const uint8_t *headers = headers_of(tiled, keys, 0, 1, gathered), *payload = NULL;
    for (int i = 0; i < keys->n; i += TQV_LANES) {
        if (i % TQ_GROUP == 0)
            payload = payload_of(keys, i / TQ_GROUP, buffer);
        decode_keys(payload, i % TQ_GROUP, headers + 2 * i, values, TQV_LANES);
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
static void rotate_q(const float *from, float *to) {
    tq_rotate_in(from, HEAD_DIM, ${pow2}, ${odd}, ROTATE_UNIT, K_SIGNS, to);
}

static void rotate_out(float *from, float *to) {
    tq_rotate_out(from, HEAD_DIM, ${pow2}, ${odd}, ROTATE_UNIT, V_SIGNS, to);
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
    return keys->group[0] + g * GROUP_BYTES;
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
    decode_k(${tiled}, ${tiled == 0 and "payload_rows" or "payload_k_tile"}, keys, panel);
}

static void decode_v_${cache}(const tq_keys *keys, float *panel) {
    decode_v(${tiled}, ${tiled == 0 and "payload_rows" or "payload_v_tile"}, keys, panel);
}

const tq_panel ${k_panel_symbol(cache)} = {.decode = decode_k_${cache}, .take = ${rotate_q}};
const tq_panel ${v_panel_symbol(cache)} = {.decode = decode_v_${cache}, .give = ${rotate_out}};

% end
