/* tiles.c: caches on the CPU, slot by slot: pages, and rows in and out of tiles. */
#include "internal.h"

#include <string.h>

uint8_t *tq_cache_unit(const tq_cache *cache, int keys_per_unit, int sequence, int kv_head, int slot) {
    uint8_t *head = (uint8_t *)cache->data + (size_t)kv_head * cache->head_stride;
    if (!cache->pages)
        return head + (size_t)sequence * cache->seq_stride + (size_t)(slot / keys_per_unit) * cache->token_stride;
    const int32_t *pages = cache->pages + (size_t)sequence * (size_t)cache->pages_stride;
    return head + (size_t)pages[slot / cache->page_slots] * cache->page_stride +
           (size_t)(slot % cache->page_slots / keys_per_unit) * cache->token_stride;
}

/* Moves one row between its own bytes and a tile: runs of bytes, or bytes that a quad of keys shares out. */
static void move(const tq_format_spec *format, tq_side side, int key, uint8_t *tile, uint8_t *row, int to_tile) {
    enum { LANE_BYTES = 4 };
    for (const tq_piece *p = format->pieces; p < format->pieces + format->n_pieces; p++) {
        const int bytes = p->kind == TQ_PIECE_WORD ? 4 : 2;
        uint8_t *at = row + p->row;
        if (side == TQ_SIDE_K || p->kind == TQ_PIECE_HEADER) {
            int in_group = p->kind == TQ_PIECE_HEADER ? key : key % TQ_GROUP;
            uint8_t *there =
                tile + (side == TQ_SIDE_K ? p->k_first : p->v_first) + key / TQ_GROUP * p->k_step + in_group * bytes;
            memcpy(to_tile ? there : at, to_tile ? at : there, (size_t)bytes);
            continue;
        }
        const int quad = key / LANE_BYTES, per_step = 4 / p->columns, c = quad % per_step * p->columns + p->column;
        uint8_t *there = tile + p->v_first + quad / per_step * p->v_step + key % LANE_BYTES;
        for (int y = 0; y < bytes; y++) {
            const int lane = p->kind == TQ_PIECE_WORD ? c / 2 * 8 + 2 * y + c % 2 : 2 * c + y;
            if (to_tile)
                there[LANE_BYTES * lane] = at[y];
            else
                at[y] = there[LANE_BYTES * lane];
        }
    }
}

void tq_tile_put(const tq_format_spec *format, tq_side side, const uint8_t *row, int key, uint8_t *tile) {
    move(format, side, key, tile, (uint8_t *)row, 1);
}

void tq_tile_get(const tq_format_spec *format, tq_side side, const uint8_t *tile, int key, uint8_t *row) {
    move(format, side, key, (uint8_t *)tile, row, 0);
}
