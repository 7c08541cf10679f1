/* ${banner} */
% assert(head_dim % 16 == 0, "head_dim: rows are read in whole vectors")
/* f16 rows of head_dim ${head_dim}: K.q and P.V in float32, a row converted once for all query heads of the group. */
#include "rows.h"
#include "tq_kernel.h"
#include "vocabulary.h"

enum { HEAD_DIM = ${head_dim}, ROW_BYTES = 2 * HEAD_DIM, LINE = 32 }; /* values of a cache line */

typedef struct query {
    float factor, q[];
} query;

TQV_SPECIALISE void prepare(const int gqa, const float *q, size_t q_head_stride, float factor, query *out) {
    out->factor = factor;
    for (int h = 0; h < gqa; h++)
        memcpy(out->q + h * HEAD_DIM, q + (size_t)h * q_head_stride, HEAD_DIM * sizeof *q);
}

/* How many vectors of values the sums of all heads leave registers for. No loop: it must be known before others unroll. */
TQV_INLINE int value_vectors(const int gqa) {
    return gqa * 8 <= TQV_SUMS ? 8 : gqa * 4 <= TQV_SUMS ? 4 : gqa * 2 <= TQV_SUMS ? 2 : 1;
}

/* Products of `keys` neighbouring rows with all heads. */
TQV_INLINE void score_rows(const int gqa, const int keys, const query *q, const uint8_t *row, size_t stride, float *scores) {
    tqv_f32 sum[TQ_MAX_GQA][4], k[4];
    TQV_UNROLL for (int h = 0; h < gqa; h++)
        TQV_UNROLL for (int r = 0; r < keys; r++)
            sum[h][r] = tqv_zero();
    for (int j = 0; j < HEAD_DIM; j += TQV_LANES) {
        TQV_UNROLL for (int r = 0; r < keys; r++)
            k[r] = tqv_from_f16(row + (size_t)r * stride + 2 * j);
        TQV_UNROLL for (int h = 0; h < gqa; h++)
            TQV_UNROLL for (int r = 0; r < keys; r++)
                sum[h][r] = tqv_fma(k[r], tqv_load(q->q + h * HEAD_DIM + j), sum[h][r]);
    }
    TQV_UNROLL for (int h = 0; h < gqa; h++)
        TQV_UNROLL for (int r = 0; r < keys; r++)
            scores[h * TQ_MAX_TILE + r] = tqv_hsum(sum[h][r]) * q->factor;
}

/* Fetches n rows ahead of row i. */
TQV_INLINE void prefetch_rows(const tq_keys *keys, int i, const int n) {
    if (!keys->ahead[i / TQ_GROUP])
        return;
    const uintptr_t p = (uintptr_t)keys->ahead[i / TQ_GROUP] + (size_t)(i % TQ_GROUP) * keys->stride;
    if (keys->stride == ROW_BYTES) {
        for (size_t at = 0; at < (size_t)n * ROW_BYTES; at += 64)
            tqv_prefetch((const void *)(p + at));
    } else {
        for (size_t r = 0; r < (size_t)n; r++)
            for (size_t at = 0; at < ROW_BYTES + 63; at += 64)
                tqv_prefetch((const void *)(p + r * keys->stride + at));
    }
}

TQV_SPECIALISE void score(const int gqa, const query *q, const tq_keys *keys, float *scores) {
    /* Few heads wait for memory, which comes fastest in its own order; others for FMA, unless there are sums enough. */
    const int rows = gqa <= 2 ? 1 : 2;
    int i = 0;
    for (; i + rows <= keys->n; i += rows) {
        prefetch_rows(keys, i, rows);
        score_rows(gqa, rows, q, row_at(keys, i), keys->stride, scores + i);
    }
    for (; i < keys->n; i++)
        score_rows(gqa, 1, q, row_at(keys, i), keys->stride, scores + i);
}

/* Adds n rows to `vectors` vectors of values from `first` on. */
TQV_INLINE void accumulate_values(const int gqa, const int vectors, int first, const uint8_t *row, size_t stride, int n,
                                  const uint8_t *ahead, const float *weights, const float *factor, const float *decay, float *acc) {
    tqv_f32 sum[TQ_MAX_GQA][8], v[8];
    TQV_UNROLL for (int h = 0; h < gqa; h++)
        TQV_UNROLL for (int c = 0; c < vectors; c++)
            sum[h][c] = tqv_zero();
    for (int i = 0; i < n; i++, row += stride) {
        if (ahead && first % LINE == 0) /* what a pass reads of a row: a burst would block the loads */
            TQV_UNROLL for (int j = 0; j < vectors * TQV_LANES; j += LINE)
                tqv_prefetch((const void *)((uintptr_t)ahead + (size_t)i * stride + 2 * (size_t)(first + j)));
        TQV_UNROLL for (int c = 0; c < vectors; c++)
            v[c] = tqv_from_f16(row + 2 * (first + c * TQV_LANES));
        TQV_UNROLL for (int h = 0; h < gqa; h++) {
            const tqv_f32 w = tqv_set1(weights[h * TQ_MAX_TILE + i]);
            TQV_UNROLL for (int c = 0; c < vectors; c++)
                sum[h][c] = tqv_fma(w, v[c], sum[h][c]);
        }
    }
    TQV_UNROLL for (int h = 0; h < gqa; h++)
        TQV_UNROLL for (int c = 0; c < vectors; c++) {
            float *to = acc + h * HEAD_DIM + first + c * TQV_LANES;
            const tqv_f32 old = tqv_mul(tqv_load(to), tqv_set1(decay[h]));
            tqv_store(to, tqv_fma(sum[h][c], tqv_set1(factor[h]), old));
        }
}

/* In groups of rows that stay in L1 over the passes, each read in the order of memory. */
TQV_SPECIALISE void accumulate(const int gqa, const tq_keys *keys, const float *weights, int n_scales, const float *factor,
                               const float *decay, float *acc) {
    static const float KEEP[TQ_MAX_GQA] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const int vectors = value_vectors(gqa);
    (void)n_scales;
    for (int i = 0; i < keys->n; i += TQ_GROUP) {
        const uint8_t *row = keys->group[i / TQ_GROUP], *ahead = keys->ahead[i / TQ_GROUP];
        const int n = keys->n - i < TQ_GROUP ? keys->n - i : TQ_GROUP;
        const float *kept = i ? KEEP : decay;
        int first = 0;
        for (; first + vectors * TQV_LANES <= HEAD_DIM; first += vectors * TQV_LANES)
            accumulate_values(gqa, vectors, first, row, keys->stride, n, ahead, weights + i, factor, kept, acc);
        for (; first < HEAD_DIM; first += TQV_LANES)
            accumulate_values(gqa, 1, first, row, keys->stride, n, ahead, weights + i, factor, kept, acc);
    }
}

static void finish(const float *acc, float *out) {
    memmove(out, acc, HEAD_DIM * sizeof *out);
}

% for _, g in ipairs(gqas) do
static void prepare_g${g}(const float *q, size_t q_head_stride, float factor, void *prepared) {
    prepare(${g}, q, q_head_stride, factor, prepared);
}
static void score_g${g}(const void *prepared, const tq_keys *keys, float *scores) {
    score(${g}, prepared, keys, scores);
}
static void accumulate_g${g}(const tq_keys *keys, const void *weights, int n_scales, const float *factor,
                             const float *decay, float *acc) {
    accumulate(${g}, keys, weights, n_scales, factor, decay, acc);
}
const tq_k_stage ${k_symbol(g, "rows")} = {sizeof(query) + ${g} * HEAD_DIM * sizeof(float), prepare_g${g}, score_g${g}};
const tq_v_stage ${v_symbol(g, "rows")} = {0, 0.0f, 0, HEAD_DIM, NULL, accumulate_g${g}, finish};
% end
