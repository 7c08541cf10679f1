/* The rows of a step, by groups. What is not there in full, or has bytes behind the cache within reach of whole vectors, is
 * read from a zero-padded copy. */
#ifndef TQ_ROWS_H
#define TQ_ROWS_H

#include "tq_kernel.h"
#include "vocabulary.h"

typedef struct group {
    const uint8_t *row;
    size_t stride;
} group;

TQV_INLINE const uint8_t *row_at(const tq_keys *keys, int i) {
    return keys->group[i / TQ_GROUP] + (size_t)(i % TQ_GROUP) * keys->stride;
}

enum { OVERREAD = 15 }; /* bytes that vectors read behind a row */

/* Group g. stage: [TQ_GROUP][stage_stride]. */
TQV_INLINE group group_at(const tq_keys *keys, int g, size_t row_bytes, uint8_t *stage, size_t stage_stride) {
    const uint8_t *row = keys->group[g];
    const int left = keys->n - g * TQ_GROUP, n = left < TQ_GROUP ? left : TQ_GROUP;
    if (n == TQ_GROUP && (size_t)(keys->end - row) >= (TQ_GROUP - 1) * keys->stride + row_bytes + OVERREAD)
        return (group){row, keys->stride};
    memset(stage, 0, TQ_GROUP * stage_stride);
    for (int r = 0; r < n; r++)
        memcpy(stage + (size_t)r * stage_stride, row + (size_t)r * keys->stride, row_bytes);
    return (group){stage, stage_stride};
}

/* ---- panels of prefill, see tq_panel ----------------------------------------------------------------------------- */

enum { STRIP = 2 * TQV_LANES };

/* Where value 0 of keys i to i + TQV_LANES - 1 goes in a panel of K; values are STRIP floats apart. */
TQV_INLINE float *keys_in_panel(float *panel, int i, int values) {
    return panel + i / STRIP * STRIP * values + i % STRIP;
}

/* Where values j to j + TQV_LANES - 1 of key i go in a panel of V; keys are *width floats apart. */
TQV_INLINE float *values_in_panel(float *panel, int i, int j, int values, int *width) {
    const int strip = j / STRIP * STRIP;
    *width = values - strip < STRIP ? values - strip : STRIP;
    return panel + strip * TQ_MAX_TILE + i * *width + j - strip;
}

#endif
