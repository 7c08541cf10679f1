/* What kernels of several formats share: the rows of a step by groups, what of them to fetch, where indices lie, panels.
 * Rows that are not there in full, or have bytes behind the cache within reach of whole vectors, are read from a zero-padded
 * copy. */
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

/* What to fetch while group i of a step is read. */
typedef struct ahead {
    const uint8_t *group[TQ_MAX_TILE / TQ_GROUP]; /* NULL: nothing */
    size_t stride, nearer;
} ahead;

/* row_bytes: of the rows, packed or in tiles. */
TQV_INLINE ahead ahead_of(const int tiled, const tq_keys *keys, const int row_bytes) {
    ahead a = {.stride = tiled ? (size_t)row_bytes : keys->stride, .nearer = keys->nearer};
    for (int i = 0; i * TQ_GROUP < keys->n; i++)
        a.group[i] = !tiled ? keys->ahead[i] : keys->ahead[0] ? keys->ahead[0] + i * TQ_GROUP * row_bytes : NULL;
    return a;
}

TQV_INLINE int group_lines(const int row_bytes) {
    return (TQ_GROUP * row_bytes + 63) / 64;
}
/* Lines of one of `parts` equal parts of a group. */
TQV_INLINE int part_lines(const int row_bytes, const int parts) {
    return (group_lines(row_bytes) + parts - 1) / parts;
}

/* Where the lines of part `part` of `parts` of a group begin, for the caller to fetch without a branch between its products.
 * none: where there is nothing to fetch, and where rows lie apart: those are fetched here. */
TQV_INLINE uintptr_t lines_ahead(const ahead *a, const int row_bytes, int group, int part, const int parts,
                                 uintptr_t none) {
    const uintptr_t p = (uintptr_t)a->group[group];
    if (!p)
        return none;
    if (a->stride == (size_t)row_bytes)
        return p + 64 * (size_t)(part * group_lines(row_bytes) / parts);
    for (int r = 0; r < (TQ_GROUP + parts - 1) / parts; r++)
        for (int i = 0; i < row_bytes; i += 64)
            tqv_prefetch((const void *)(p + (size_t)(part * TQ_GROUP / parts + r) * a->stride + (size_t)i));
    return none;
}

/* At most nine lines. Not as a loop, which clang 14 unrolls too late for the sums around it to stay in registers. */
TQV_INLINE void fetch_lines(uintptr_t p, const int n) {
    if (n > 0)
        tqv_prefetch((const void *)p);
    if (n > 1)
        tqv_prefetch((const void *)(p + 64));
    if (n > 2)
        tqv_prefetch((const void *)(p + 128));
    if (n > 3)
        tqv_prefetch((const void *)(p + 192));
    if (n > 4)
        tqv_prefetch((const void *)(p + 256));
    if (n > 5)
        tqv_prefetch((const void *)(p + 320));
    if (n > 6)
        tqv_prefetch((const void *)(p + 384));
    if (n > 7)
        tqv_prefetch((const void *)(p + 448));
    if (n > 8)
        tqv_prefetch((const void *)(p + 512));
}

/* A part at once: of all parts that would block the loads. */
TQV_INLINE void fetch(const ahead *a, const int row_bytes, int group, int part, const int parts) {
    const uintptr_t p = lines_ahead(a, row_bytes, group, part, parts, 0);
    if (p)
        for (int i = 0; i < part_lines(row_bytes, parts); i++)
            tqv_prefetch((const void *)(p + 64 * (size_t)i));
}

/* Where the indices of a group lie: a word of its unit and a shift. Behind the whole words come the half word, if there is
 * one, and the spare word. */
typedef struct place {
    int word, shift;
} place;

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
