/* Walking a tile of rows in groups of TQV_LANES keys. The last group is read from a zero-padded copy where reading whole
 * vectors would touch bytes behind the cache. */
#ifndef TQ_ROWS_H
#define TQ_ROWS_H

#include "tq_kernel.h"
#include "vocabulary.h"

typedef struct group {
    const uint8_t *row;
    size_t stride;
} group;

/* Copies the rows of the last group if they need it; returns the index of its first row, or -1. */
TQV_INLINE int stage_last(const tq_rows *rows, size_t row_bytes, uint8_t *stage, size_t stage_stride) {
    const int partial = rows->n % TQV_LANES;
    if (partial == 0 && !rows->last)
        return -1;
    const int at = rows->n - (partial ? partial : TQV_LANES);
    memset(stage, 0, TQV_LANES * stage_stride);
    for (int i = at; i < rows->n; i++)
        memcpy(stage + (size_t)(i - at) * stage_stride, rows->first + (size_t)i * rows->stride, row_bytes);
    return at;
}

TQV_INLINE group group_at(const tq_rows *rows, int i, int staged, const uint8_t *stage, size_t stage_stride) {
    const group in_stage = {stage, stage_stride}, in_cache = {rows->first + (size_t)i * rows->stride, rows->stride};
    return i == staged ? in_stage : in_cache;
}

/* Fetches the n rows that lie rows->prefetch keys behind row i. */
TQV_INLINE void prefetch_rows(const tq_rows *rows, int i, const int n, const size_t row_bytes) {
    if (!rows->prefetch)
        return;
    const uintptr_t p = (uintptr_t)rows->first + ((size_t)i + rows->prefetch) * rows->stride;
    if (rows->stride == row_bytes) {
        for (size_t at = 0; at < (size_t)n * row_bytes; at += 64)
            tqv_prefetch((const void *)(p + at));
    } else {
        for (size_t r = 0; r < (size_t)n; r++)
            for (size_t at = 0; at < row_bytes + 63; at += 64)
                tqv_prefetch((const void *)(p + r * rows->stride + at));
    }
}

/* What the stages at GQA ratio g point to, out of the texts that take it as their first argument. */
#define TQ_AT_GQA(g)                                                                                                   \
    static void prepare_g##g(const float *q, size_t q_head_stride, float factor, void *prepared) {                     \
        prepare(g, q, q_head_stride, factor, prepared);                                                                \
    }                                                                                                                  \
    static void score_g##g(const void *prepared, const tq_rows *rows, float *scores) {                                 \
        score(g, prepared, rows, scores);                                                                              \
    }                                                                                                                  \
    static void accumulate_g##g(const tq_rows *rows, const void *weights, const float *factor, const float *decay,     \
                                float *acc) {                                                                          \
        accumulate(g, rows, weights, factor, decay, acc);                                                              \
    }

#endif
