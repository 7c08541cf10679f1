/* tiles.c: one bit at a time; slow and obvious on purpose. */
#include "tiles.h"

#include "tile_cpu.h"

#include <assert.h>
#include <string.h>

enum { MMA = 1, WMMA, MFMA, LANE, CPU, CPU_KEYS = 128 };

static int kind_of(const char *layout) {
    static const char *const names[] = {"tile_mma", "tile_wmma", "tile_mfma", "tile_lane", "tile_cpu"};
    for (int i = 0; i < 5; i++)
        if (strcmp(layout, names[i]) == 0)
            return MMA + i;
    return 0;
}

/* Values of a sub-tile. */
static int sub_tile(const tq_format_spec *format) {
    return format->chunks[0].size % 128 == 0 ? 128 : 64;
}

int tile_keys(const char *layout, const tq_format_spec *format) {
    int kind = kind_of(layout), keys = kind == MFMA ? 64 : 32;
    return kind == CPU ? CPU_KEYS : kind ? keys * 128 / sub_tile(format) : 0;
}

static size_t code_bytes(int keys, const tq_format_spec *format) {
    return (size_t)(keys * format->chunks[0].size * format->bits / 8);
}

static size_t gain_bytes(int keys, const tq_format_spec *format) {
    return format->sub ? (size_t)(keys * format->chunks[0].size / 16 / 2) : 0;
}

static size_t chunk_bytes(int keys, const tq_format_spec *format) {
    return code_bytes(keys, format) + gain_bytes(keys, format) + (size_t)(keys * 2);
}

size_t tile_bytes(const char *layout, const tq_format_spec *format) {
    if (kind_of(layout) == CPU)
        return (size_t)(CPU_KEYS * format->row_bytes);
    return (size_t)format->n_chunks * chunk_bytes(tile_keys(layout, format), format);
}

/* ---- where codes lie -------------------------------------------------------------------------------------------- */

/* The atom of a code, and its number there. */
typedef struct place {
    int lane, group, half, code;
} place;

static place place_of(int kind, tq_side side, int key, int value) {
    switch (kind + (side == TQ_SIDE_V ? 10 : 0)) {
    case MMA:
        return (place){4 * (key % 8) + value / 4 % 4, 2 * (key / 16) + value / 64, key / 8 % 2,
                       4 * (value / 16 % 4) + value % 4};
    case MMA + 10:
        return (place){4 * (value % 8) + key / 2 % 4, key / 8, key % 2, value / 8};
    case WMMA:
        return (place){16 * (value / 8 % 2) + key % 16, value / 32, key / 16, 8 * (value / 16 % 2) + value % 8};
    case WMMA + 10:
        return (place){16 * (key / 8 % 2) + value % 16, 2 * (key / 16) + value / 64, key % 2,
                       4 * (key / 2 % 4) + value / 16 % 4};
    case MFMA:
        return (place){16 * (value / 4 % 4) + key % 16, 2 * (key / 32) + value / 64, key / 16 % 2,
                       4 * (value / 16 % 4) + value % 4};
    case MFMA + 10:
        return (place){16 * (key / 4 % 4) + value % 16, key / 16, key % 2, 8 * (key / 2 % 2) + value / 16};
    default:
        assert(kind == LANE && side == TQ_SIDE_V);
        return (place){value / 4, key / 8, key / 4 % 2, 4 * (key % 4) + value % 4};
    }
}

/* The same of sub-tiles of 64 values and twice as many keys. */
static place place_of_64(int kind, tq_side side, int key, int value) {
    switch (kind + (side == TQ_SIDE_V ? 10 : 0)) {
    case MMA:
        return (place){4 * (key % 8) + value / 4 % 4, key / 16, key / 8 % 2, 4 * (value / 16) + value % 4};
    case MMA + 10:
        return (place){4 * (value % 8) + key / 2 % 4, key / 16, key % 2, 8 * (key / 8 % 2) + value / 8};
    case WMMA:
        return (place){16 * (value / 8 % 2) + key % 16, 2 * (key / 32) + value / 32, key / 16 % 2,
                       8 * (value / 16 % 2) + value % 8};
    case WMMA + 10:
        return (place){16 * (key / 8 % 2) + value % 16, key / 16, key % 2, 4 * (key / 2 % 4) + value / 16};
    case MFMA:
        return (place){16 * (value / 4 % 4) + key % 16, key / 32, key / 16 % 2, 4 * (value / 16) + value % 4};
    case MFMA + 10:
        return (place){16 * (key / 4 % 4) + value % 16, key / 32, key % 2,
                       8 * (key / 16 % 2) + 4 * (key / 2 % 2) + value / 16};
    default:
        assert(kind == LANE && side == TQ_SIDE_V);
        return (place){16 * (key / 32) + value / 4, key / 8 % 4, key / 4 % 2, 4 * (key % 4) + value % 4};
    }
}

/* Bit `bit` of a 16-bit half of an atom, as a bit number in the sub-tile. */
static int bit_in(int lanes, int bits, const place *p, int half_of_atom, int bit) {
    int word = bits * p->group + half_of_atom;
    return 32 * ((word / 4 * lanes + p->lane) * 4 + word % 4) + 16 * p->half + bit;
}

static int top_of(int kind, int nibble) {
    static const int moved[] = {7, 15, 3, 11};
    return kind == MMA ? moved[nibble] : 4 * nibble + 3;
}

/* Where the bits of a code lie: bit numbers in the sub-tile, the lowest bit first. */
static void code_bits(int kind, int bits, const place *p, int at[4]) {
    int lanes = kind == MFMA ? 64 : 32, quad = p->code / 4, nibble = p->code % 4;
    for (int b = 0; b < bits; b++) {
        if (bits == 2)
            at[b] = bit_in(lanes, bits, p, quad / 2, 4 * nibble + 2 * (quad % 2) + b);
        else if (bits == 3 && quad == 3)
            at[b] = bit_in(lanes, bits, p, 2 - b, 4 * nibble + 3);
        else
            at[b] = bit_in(lanes, bits, p, quad, b == 3 ? top_of(kind, nibble) : 4 * nibble + b);
    }
}

static int get_bit(const uint8_t *bytes, int at) {
    return bytes[at / 8] >> at % 8 & 1;
}

static void put_bit(uint8_t *bytes, int at, int bit) {
    bytes[at / 8] = (uint8_t)((bytes[at / 8] & ~(1 << at % 8)) | bit << at % 8);
}

/* 4-bit index to magnitude and sign, and back. */
static int stored_of(int bits, int index) {
    return bits != 4 ? index : index >= 8 ? index - 8 : 8 | (7 - index);
}
static int index_of(int bits, int stored) {
    return bits != 4 ? stored : stored >= 8 ? 7 - (stored & 7) : 8 + stored;
}

/* ---- where gains and scales lie --------------------------------------------------------------------------------- */

/* Number of the 16-bit half that has the key's scale: in tile_mma pairs of keys share a word. */
static int scale_half(int kind, tq_side side, int key) {
    if (kind != MMA || side == TQ_SIDE_V)
        return key;
    return 2 * (8 * (key / 16) + key % 8) + key / 8 % 2;
}

/* Bit `bit` of gain code i of a key's n in a sub-tile, as a bit number in the gain codes of that. */
static int gain_bit(int kind, tq_side side, int key, int i, int n, int bit) {
    if (kind != MMA)
        return 4 * n * key + 4 * i + bit;
    int pair = scale_half(kind, side, key);
    return 32 * (n / 4 * (pair / 2) + i / 4) + 16 * (pair % 2) + (bit == 3 ? top_of(kind, i % 4) : 4 * (i % 4) + bit);
}

/* ---- tile_lane, K: words of rows -------------------------------------------------------------------------------- */

/* Two 4-bit codes in a byte: the sign goes from bit 0 to bit 3, or back. */
static uint8_t converted(uint8_t byte, int to_row) {
    int out = 0;
    for (int shift = 0; shift < 8; shift += 4) {
        int code = byte >> shift & 15;
        out |= (to_row ? code % 8 * 2 + code / 8 : code / 2 + code % 2 * 8) << shift;
    }
    return (uint8_t)out;
}

/* Copies between the words of a key's chunk and the payload of a row's chunk. */
static void lane_words(const tq_format_spec *format, uint8_t *tile_codes, int key, uint8_t *row_chunk, int to_row) {
    int header = format->sub ? 2 + format->block / format->sub / 2 : 2;
    int words_per_block = format->block * format->bits / 32, per_sub_tile = sub_tile(format) * format->bits / 32;
    int keys = tile_keys("tile_lane", format);
    for (int w = 0; w < format->chunks[0].size * format->bits / 32; w++) {
        int word = key / 32 * per_sub_tile + w % per_sub_tile;
        uint8_t *in_tile =
            tile_codes + 4 * (w / per_sub_tile * keys * per_sub_tile + (word / 4 * 32 + key % 32) * 4 + word % 4);
        uint8_t *in_row =
            row_chunk + w / words_per_block * (header + 4 * words_per_block) + header + 4 * (w % words_per_block);
        uint8_t *from = to_row ? in_tile : in_row, *to = to_row ? in_row : in_tile;
        for (int i = 0; i < 4; i++)
            to[i] = format->bits == 4 ? converted(from[i], to_row) : from[i];
    }
}

/* ---- a key ------------------------------------------------------------------------------------------------------ */

typedef struct tile_view {
    int kind, keys;
    tq_side side;
    const tq_format_spec *format;
} tile_view;

static void move_chunk(const tile_view *v, uint8_t *chunk, int key, int first, tq_ref_codes *codes, int unpack) {
    int bits = v->format->bits, size = v->format->chunks[0].size, values = sub_tile(v->format), per_key = values / 16;
    uint8_t *gains = chunk + code_bytes(v->keys, v->format), *scales = gains + gain_bytes(v->keys, v->format);
    uint8_t *scale = scales + 2 * scale_half(v->kind, v->side, key);
    for (int i = 0; i < size && !(v->kind == LANE && v->side == TQ_SIDE_K); i++) {
        place p = (values == 64 ? place_of_64 : place_of)(v->kind, v->side, key, i % values);
        uint8_t *sub = chunk + i / values * (v->keys * values * bits / 8);
        int at[4], stored = unpack ? 0 : stored_of(bits, codes->index[first + i]);
        code_bits(v->kind, bits, &p, at);
        for (int b = 0; b < bits; b++) {
            if (unpack)
                stored |= get_bit(sub, at[b]) << b;
            else
                put_bit(sub, at[b], stored >> b & 1);
        }
        if (unpack)
            codes->index[first + i] = index_of(bits, stored);
    }
    for (int i = 0; v->format->sub && i < size / 16; i++) {
        uint8_t *sub = gains + i / per_key * (v->keys * per_key / 2);
        int gain = unpack ? 0 : codes->gain[first + 16 * i];
        for (int b = 0; b < 4; b++) {
            int at = gain_bit(v->kind, v->side, key, i % per_key, per_key, b);
            if (unpack)
                gain |= get_bit(sub, at) << b;
            else
                put_bit(sub, at, gain >> b & 1);
        }
        for (int j = 0; unpack && j < 16; j++)
            codes->gain[first + 16 * i + j] = gain;
    }
    if (!unpack) {
        uint16_t half = tq_ref_half_from_double(codes->scale[first]);
        scale[0] = half & 255;
        scale[1] = half >> 8;
    }
    for (int i = 0; unpack && i < size; i++)
        codes->scale[first + i] = tq_ref_half_to_double((uint16_t)(scale[0] | scale[1] << 8));
}

static void move_key(const char *layout, tq_side side, const tq_format_spec *format, uint8_t *tile, int key,
                     tq_ref_codes *codes, int unpack) {
    const tile_view v = {kind_of(layout), tile_keys(layout, format), side, format};
    uint8_t row[2 * TQ_MAX_HEAD_DIM] = {0};
    tq_ref_codes in_row = {0};
    int is_row = v.kind == LANE && side == TQ_SIDE_K;
    assert(v.keys && key >= 0 && key < v.keys && format->chunks[0].size % 64 == 0);
    if (is_row && !unpack)
        tq_ref_pack(format, codes, row);
    for (int c = 0; c < format->n_chunks; c++) {
        uint8_t *chunk = tile + (size_t)c * chunk_bytes(v.keys, format);
        if (is_row)
            lane_words(format, chunk, key, row + format->chunks[c].first_byte, unpack);
        move_chunk(&v, chunk, key, c * format->chunks[0].size, codes, unpack);
    }
    if (is_row && unpack) {
        tq_ref_unpack(format, row, &in_row);
        memcpy(codes->index, in_row.index, sizeof in_row.index);
    }
}

void tile_unpack(const char *layout, tq_side side, const tq_format_spec *format, const uint8_t *tile, int key,
                 tq_ref_codes *codes) {
    memset(codes, 0, sizeof *codes);
    if (kind_of(layout) == CPU) {
        uint8_t row[2 * TQ_MAX_HEAD_DIM];
        tile_cpu_get(side, format, tile, key, row);
        tq_ref_unpack(format, row, codes);
        return;
    }
    move_key(layout, side, format, (uint8_t *)tile, key, codes, 1);
}

void tile_pack(const char *layout, tq_side side, const tq_format_spec *format, const tq_ref_codes *codes, int key,
               uint8_t *tile) {
    if (kind_of(layout) == CPU) {
        uint8_t row[2 * TQ_MAX_HEAD_DIM];
        tq_ref_pack(format, codes, row);
        tile_cpu_put(side, format, row, key, tile);
        return;
    }
    move_key(layout, side, format, tile, key, (tq_ref_codes *)codes, 0);
}
