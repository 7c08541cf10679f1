/* tile_cpu.h: tiles of CPU caches byte by byte, written from docs/formats.md; see tiles.h, which knows them, too. */
#ifndef TQ_REFERENCE_TILE_CPU_H
#define TQ_REFERENCE_TILE_CPU_H

#include "reference.h"

/* One row into a tile, and out of it. */
void tile_cpu_put(tq_side side, const tq_format_spec *format, const uint8_t *row, int key, uint8_t *tile);
void tile_cpu_get(tq_side side, const tq_format_spec *format, const uint8_t *tile, int key, uint8_t *row);

#endif
