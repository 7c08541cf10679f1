/* tile_cpu.c: where each byte of a row lies in a tile of CPU caches, one byte at a time. */
#include "tile_cpu.h"

#include <string.h>

enum { KEYS = 128, UNIT = 32 };

/* Byte `at` of a row, taken apart. */
typedef struct row_byte {
    int header_half; /* -1: payload */
    int payload;     /* number among the bytes of payload of the row */
    int in_half;     /* header: 0 or 1 */
} row_byte;

static int header_bytes(const tq_format_spec *format) {
    return format->sub ? 2 + (format->block / format->sub + 3) / 4 * 2 : 2;
}

static row_byte byte_of_row(const tq_format_spec *format, int at) {
    int header = header_bytes(format), block_bytes = format->row_bytes / (format->head_dim / format->block);
    int block = at / block_bytes, in_block = at % block_bytes;
    if (in_block < header)
        return (row_byte){block * (header / 2) + in_block / 2, 0, in_block % 2};
    return (row_byte){-1, block * (block_bytes - header) + in_block - header, 0};
}

static int payload_bytes(const tq_format_spec *format) {
    return format->head_dim * format->bits / 8;
}

static int place_in_k(const tq_format_spec *format, int key, int byte) {
    int all = payload_bytes(format), words = all / 4, lane = key % 16, group = key / 16 * 16 * all;
    if (byte < 4 * words)
        return group + 64 * (byte / 4) + 4 * lane + byte % 4;
    return group + 64 * words + 2 * lane + byte % 4;
}

static int place_in_v(const tq_format_spec *format, int key, int byte) {
    int unit_bytes = UNIT * format->bits / 8, unit = byte / unit_bytes, in_unit = byte % unit_bytes;
    int full = format->head_dim / UNIT, at = 0, first = 0, columns = 4, words = format->bits, quad = key / 4;
    for (;;) {
        int left = full - first;
        columns = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        if (unit < first + columns)
            break;
        at += columns * KEYS / 16 * 64 * words;
        first += columns;
    }
    int step = 64 * words;
    if (unit == full) { /* 16 values */
        words = format->bits / 2;
        step = 64 * words + (format->bits % 2 ? 32 : 0);
    }
    int per_step = 4 / columns, c = quad % per_step * columns + unit - first, y = in_unit % 4;
    at += quad / per_step * step + key % 4;
    if (in_unit < 4 * words)
        return at + 64 * (in_unit / 4) + 4 * (c / 2 * 8 + 2 * y + c % 2);
    return at + 64 * words + 4 * (2 * c + y);
}

static int place_of(tq_side side, const tq_format_spec *format, int key, int at) {
    row_byte b = byte_of_row(format, at);
    if (b.header_half >= 0)
        return 2 * KEYS * b.header_half + 2 * key + b.in_half;
    int payload_at = KEYS * (format->row_bytes - payload_bytes(format));
    return payload_at + (side == TQ_SIDE_K ? place_in_k(format, key, b.payload) : place_in_v(format, key, b.payload));
}

void tile_cpu_put(tq_side side, const tq_format_spec *format, const uint8_t *row, int key, uint8_t *tile) {
    for (int i = 0; i < format->row_bytes; i++)
        tile[place_of(side, format, key, i)] = row[i];
}

void tile_cpu_get(tq_side side, const tq_format_spec *format, const uint8_t *tile, int key, uint8_t *row) {
    for (int i = 0; i < format->row_bytes; i++)
        row[i] = tile[place_of(side, format, key, i)];
}
