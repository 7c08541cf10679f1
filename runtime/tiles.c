/* tiles.c: caches on the CPU, slot by slot: pages, and rows in and out of tiles. */
#include "internal.h"

#include <string.h>

/* Of rows without a division, which takes longer than all the rest. */
static size_t unit_of(int slot, int keys_per_unit) {
    return (size_t)(keys_per_unit > 1 ? slot / keys_per_unit : slot);
}

uint8_t *tq_cache_unit(const tq_cache *cache, int keys_per_unit, int sequence, int kv_head, int slot) {
    uint8_t *head = (uint8_t *)cache->data + (size_t)kv_head * cache->head_stride;
    if (!cache->pages)
        return head + (size_t)sequence * cache->seq_stride + unit_of(slot, keys_per_unit) * cache->token_stride;
    const int32_t *pages = cache->pages + (size_t)sequence * (size_t)cache->pages_stride;
    return head + (size_t)pages[slot / cache->page_slots] * cache->page_stride +
           unit_of(slot % cache->page_slots, keys_per_unit) * cache->token_stride;
}

/* `bytes` bytes from the row to the tile, `apart` bytes from each other there, or back. */
static inline void move_bytes(uint8_t *tile, uint8_t *row, const int bytes, const int apart, const int to_tile) {
    if (apart == 1) {
        memcpy(to_tile ? tile : row, to_tile ? row : tile, (size_t)bytes);
        return;
    }
    for (int y = 0; y < bytes; y++)
        if (to_tile)
            tile[apart * y] = row[y];
        else
            row[y] = tile[apart * y];
}

/* Moves one row between its own bytes and a tile: runs of bytes, or bytes that a quad of keys shares out. Sizes are known when
 * it is compiled: copies are moves then. */
static inline void move(const tq_format_spec *format, const tq_side side, int key, uint8_t *tile, uint8_t *row,
                        const int to_tile) {
    enum { LANE_BYTES = 4 };
    const int group = key / TQ_GROUP, in_group = key % TQ_GROUP, quad = key / LANE_BYTES;
    int step[5], first_column[5]; /* of this quad, by a piece's columns: divisions would take as long as all the rest */
    for (int columns = 1; columns <= 4; columns *= 2) {
        const int per_step = 4 / columns;
        step[columns] = quad / per_step;
        first_column[columns] = quad % per_step * columns;
    }
    for (const tq_piece *p = format->pieces; p < format->pieces + format->n_pieces; p++) {
        uint8_t *at = row + p->row;
        if (p->kind == TQ_PIECE_HEADER) {
            move_bytes(tile + (side == TQ_SIDE_K ? p->k_first : p->v_first) + 2 * key, at, 2, 1, to_tile);
            continue;
        }
        if (side == TQ_SIDE_K) {
            uint8_t *there = tile + p->k_first + group * p->k_step;
            if (p->kind == TQ_PIECE_WORD)
                move_bytes(there + 4 * in_group, at, 4, 1, to_tile);
            else
                move_bytes(there + 2 * in_group, at, 2, 1, to_tile);
            continue;
        }
        const int c = first_column[p->columns] + p->column;
        uint8_t *there = tile + p->v_first + step[p->columns] * p->v_step + key % LANE_BYTES;
        if (p->kind == TQ_PIECE_WORD)
            move_bytes(there + LANE_BYTES * (c / 2 * 8 + c % 2), at, 4, 2 * LANE_BYTES, to_tile);
        else
            move_bytes(there + LANE_BYTES * (2 * c), at, 2, LANE_BYTES, to_tile);
    }
}

void tq_tile_put(const tq_format_spec *format, tq_side side, const uint8_t *row, int key, uint8_t *tile) {
    if (side == TQ_SIDE_K)
        move(format, TQ_SIDE_K, key, tile, (uint8_t *)row, 1);
    else
        move(format, TQ_SIDE_V, key, tile, (uint8_t *)row, 1);
}

void tq_tile_get(const tq_format_spec *format, tq_side side, const uint8_t *tile, int key, uint8_t *row) {
    if (side == TQ_SIDE_K)
        move(format, TQ_SIDE_K, key, (uint8_t *)tile, row, 0);
    else
        move(format, TQ_SIDE_V, key, (uint8_t *)tile, row, 0);
}
