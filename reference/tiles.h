/* tiles.h: tiled caches byte by byte, written from docs/formats.md and sharing nothing with the generator; see reference.h. */
#ifndef TQ_REFERENCE_TILES_H
#define TQ_REFERENCE_TILES_H

#include "reference.h"

/* Keys per tile; 0: no such tile. */
int tile_keys(const char *layout, const tq_format_spec *format);
size_t tile_bytes(const char *layout, const tq_format_spec *format);

/* What a tile says about one key, and the other way round; other keys' bits stay. In tiles of GPUs one scale per chunk is
 * stored, that of its first value. */
void tile_unpack(const char *layout, tq_side side, const tq_format_spec *format, const uint8_t *tile, int key,
                 tq_ref_codes *codes);
void tile_pack(const char *layout, tq_side side, const tq_format_spec *format, const tq_ref_codes *codes, int key,
               uint8_t *tile);

#endif
