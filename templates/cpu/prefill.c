
/* ---- prefill ----------------------------------------------------------------------------------------------------- */

/* Attention of a block of queries, (token, query head) a row, with the keys they see: scores and output are products of
 * matrices in float32. Every step of keys is decoded once, into panels, for the whole block; its rows are worked off in
 * bands of as many as the sums of a product have registers for. */

#include "rows.h"

enum { BAND = TQV_REGISTERS / 8 * 3 };
_Static_assert(TQ_ROWS_STEP % BAND == 0 && (int)BAND <= (int)TQ_MAX_GQA, "a band is a part of a block and fits in `reduced`");

/* Softmax without keys so far, finite so that differences are numbers. */
#define LOWEST (-0x1p126f)
#define LN_2   0x1.62e43p-1f

typedef struct band {
    _Alignas(64) float max[TQ_MAX_GQA], sum[TQ_MAX_GQA]; /* as in tq_partial, of each row */
    float slope[BAND];                                   /* of ALiBi, in log2 units */
    int begin[BAND], end[BAND];                          /* slots that each row sees */
    int first, last;                                     /* slots that some row sees: first .. last-1 */
} band;

/* c[r][j] = c[r][j] * decay[r] + sum over i < depth of a[r][i] * b[i][j], j < vectors * TQV_LANES; without decay c starts
 * at zero. a_row, a_step: between rows and columns of a, c_row: between rows of c; rows of b are as long as they are wide. */
TQV_INLINE void multiply(const int vectors, const float *a, const int a_row, const int a_step, const float *b, int depth,
                         float *c, const int c_row, const float *decay) {
    tqv_f32 sum[BAND][2], x[2];
    TQV_UNROLL for (int r = 0; r < BAND; r++)
        TQV_UNROLL for (int v = 0; v < vectors; v++)
            sum[r][v] = decay ? tqv_mul(tqv_load(c + r * c_row + v * TQV_LANES), tqv_set1(decay[r])) : tqv_zero();
    for (int i = 0; i < depth; i++, a += a_step, b += vectors * TQV_LANES) {
        TQV_UNROLL for (int v = 0; v < vectors; v++)
            x[v] = tqv_load(b + v * TQV_LANES);
        TQV_UNROLL for (int r = 0; r < BAND; r++) {
            const tqv_f32 y = tqv_set1(a[r * a_row]);
            TQV_UNROLL for (int v = 0; v < vectors; v++)
                sum[r][v] = tqv_fma(y, x[v], sum[r][v]);
        }
    }
    TQV_UNROLL for (int r = 0; r < BAND; r++)
        TQV_UNROLL for (int v = 0; v < vectors; v++)
            tqv_store(c + r * c_row + v * TQV_LANES, sum[r][v]);
}

/* Scores of keys `from` (where a strip begins) to `to`, and more up to the end of a strip. q: [value][row of the band]. */
static void multiply_keys(const float *q, const float *panel, int values, int from, int to, float *scores) {
    for (int i = from; i < to; i += STRIP)
        multiply(2, q, 1, BAND, panel + i * values, values, scores + i, STRIDE, NULL);
}

/* Adds keys from .. to-1, weighted. acc: [strip of values][row of the band][value]. */
static void multiply_values(const float *weights, const float *panel, int values, int from, int to, const float *decay,
                            float *acc) {
    int j = 0;
    for (; j + STRIP <= values; j += STRIP)
        multiply(2, weights + from, STRIDE, 1, panel + j * TQ_MAX_TILE + from * STRIP, to - from, acc + j * BAND, STRIP,
                 decay);
    if (j < values)
        multiply(1, weights + from, STRIDE, 1, panel + j * TQ_MAX_TILE + from * TQV_LANES, to - from, acc + j * BAND,
                 TQV_LANES, decay);
}

/* What the rows of a band reduce to. Reductions across lanes are done for all together: one by one each would wait for the
 * one before. */
typedef struct reduced {
    tqv_f32 lanes[TQ_MAX_GQA];
    float of[TQ_MAX_GQA];
} reduced;

static void clear(reduced *x) {
    for (int r = 0; r < TQ_MAX_GQA; r++)
        x->lanes[r] = tqv_zero();
}

static void reduce_max(reduced *x) {
    for (int r = 0; r < BAND; r += TQV_LANES)
        tqv_store(x->of + r, tqv_maxima(x->lanes + r));
}

static void reduce_sum(reduced *x) {
    for (int r = 0; r < BAND; r += TQV_LANES)
        tqv_store(x->of + r, tqv_sums(x->lanes + r));
}

static int clamp(int x, int low, int high) {
    return x < low ? low : x > high ? high : x;
}

/* The softmax weights of a band in place of its scores, in the softmax so far: decay is what becomes of that. Keys
 * first + from .. first + to - 1. */
static void weigh(const tq_prefill_job *job, band *b, int first, int from, int to, float *scores, float *decay) {
    const int begin = from / TQV_LANES * TQV_LANES, end = (to + TQV_LANES - 1) / TQV_LANES * TQV_LANES;
    int low[BAND], high[BAND]; /* what each row sees */
    reduced tile_max, tile_sum;
    clear(&tile_max);
    clear(&tile_sum);
    for (int r = 0; r < BAND; r++) {
        float *s = scores + r * STRIDE;
        low[r] = clamp(b->begin[r] - first, begin, end);
        high[r] = clamp(b->end[r] - first, low[r], end);
        if (job->softcap > 0.0f)
            cap_scores(s + begin, end - begin, job->softcap);
        if (job->alibi)
            add_alibi(b->slope[r], first + low[r] - (b->end[r] - 1), high[r] - low[r], s + low[r]);
        fill_around(s, begin, low[r], high[r], end, -INFINITY);
        tqv_f32 most = tqv_set1(LOWEST);
        for (int i = begin; i < end; i += TQV_LANES)
            most = tqv_max(most, tqv_load(s + i));
        tile_max.lanes[r] = most;
    }
    reduce_max(&tile_max);
    for (int r = 0; r < BAND; r += TQV_LANES) {
        const tqv_f32 old = tqv_load(b->max + r), now = tqv_max(old, tqv_load(tile_max.of + r));
        tqv_f32 share = tqv_sub(old, now);
        tqv_exp2(&share, 1);
        tqv_store(decay + r, share);
        tqv_store(b->max + r, now);
    }
    for (int r = 0; r < BAND; r++) {
        float *s = scores + r * STRIDE;
        if (low[r] < high[r])
            tile_sum.lanes[r] = all_exponentials(0, 0, s + begin, end - begin, b->max[r], s).sum;
        fill_around(s, begin, low[r], high[r], end, 0.0f);
    }
    reduce_sum(&tile_sum);
    for (int r = 0; r < BAND; r += TQV_LANES)
        tqv_store(b->sum + r, tqv_fma(tqv_load(b->sum + r), tqv_load(decay + r), tqv_load(tile_sum.of + r)));
}

/* The score bias of positions first .. first + n - 1, of a band that begins with row `row` of the block. */
static void add_biases(const tq_prefill_job *job, int row, int first, int n, float *scores) {
    const int end = clamp(job->n_tokens * job->gqa, row, row + BAND);
    tq_bias bias = job->bias;
    bias_floats floats;
    load_bias_table(&bias, &floats);
    for (int r = row, heads; r < end; r += heads, scores += heads * STRIDE) { /* heads of one token */
        const int token = r / job->gqa, head = r % job->gqa;
        heads = clamp(job->gqa - head, 1, end - r);
        bias.coefficients = job->bias.coefficients + (size_t)token * bias.token_stride + (size_t)head * bias.head_stride;
        load_bias_coefficients(&bias, job->factor, heads, &floats);
        add_bias(&bias, &floats, heads, first, n, scores);
    }
}

/* The part of slots first .. first + n - 1 that band `index` sees. */
static void take_keys(const tq_prefill_impl *impl, const tq_prefill_job *job, const tq_prefill_scratch *scratch, float *acc,
                      band *bands, int index, int first, int n) {
    const int row = index * BAND;
    const float *q = scratch->q + (size_t)row * (size_t)impl->k_values;
    band *b = bands + index;
    _Alignas(64) float scores[BAND * STRIDE], decay[TQ_MAX_GQA];
    const int from = clamp(b->first - first, 0, n), to = clamp(b->last - first, from, n);
    if (from == to)
        return;
    multiply_keys(q, scratch->k, impl->k_values, from / STRIP * STRIP, to, scores);
    if (job->bias.n_pairs)
        add_biases(job, row, first + from, to - from, scores + from);
    weigh(job, b, first, from, to, scores, decay);
    multiply_values(scores, scratch->v, impl->v_values, from, to, decay, acc + (size_t)row * (size_t)impl->v_values);
}

/* A band of the block: what its rows see, and q as products take it. */
static void take_band(const tq_prefill_impl *impl, const tq_prefill_job *job, const tq_prefill_scratch *scratch, int index,
                      band *b) {
    enum { ROWS = (BAND + 3) / 4 * 4 }; /* four are turned at a time */
    const int row = index * BAND, n = clamp(job->n_tokens * job->gqa - row, 0, BAND), values = impl->k_values;
    _Alignas(64) float rows[ROWS * TQ_MAX_HEAD_DIM], *to = scratch->q + (size_t)row * (size_t)values;
    const float *q[BAND];
    for (int i = 0; i < n; i++) {
        const int token = (row + i) / job->gqa, head = (row + i) % job->gqa;
        const float sink = job->sink_logits ? job->sink_logits[head] : -INFINITY;
        const int end = job->causal ? job->position + token + 1 : job->n_kv;
        b->end[i] = end > 0 ? end : 0;
        b->begin[i] = job->window > 0 && end > job->window ? end - job->window : 0;
        b->first = i ? b->first : b->begin[i];
        b->last = b->end[i];
        b->slope[i] = job->alibi ? job->alibi[head] : 0.0f;
        b->max[i] = sink > LOWEST ? sink : LOWEST;
        b->sum[i] = sink > LOWEST ? 1.0f : 0.0f;
        q[i] = job->q + (size_t)token * job->q_token_stride + (size_t)head * job->q_head_stride;
    }
    if (impl->k->take)
        impl->k->take(q, n, job->factor, rows);
    for (int i = 0; i < n && !impl->k->take; i++)
        for (int j = 0; j < values; j += TQV_LANES)
            tqv_store(rows + i * values + j, tqv_mul(tqv_load(q[i] + j), tqv_set1(job->factor)));
    memset(rows + n * values, 0, (size_t)((ROWS - n) * values) * sizeof *rows);
    /* The last rows first: what goes beyond a band is overwritten, and that beyond the last is in scratch->acc, not yet used. */
    for (int i = ROWS - 4; i >= 0; i -= 4)
        for (int j = 0; j < values; j += TQV_LANES) {
            tqv_bits x[4], y[4];
            TQV_UNROLL for (int r = 0; r < 4; r++)
                x[r] = tqv_bload(rows + (i + r) * values + j);
            tqv_transpose(x, y);
            TQV_UNROLL for (int c = 0; c < 4; c++)
                tqv_store_quads(to + (j + c) * BAND + i, 4 * BAND, y[c]);
        }
}

/* Where values j to j + TQV_LANES - 1 of row r are among the sums. */
static size_t sum_at(int values, int r, int j) {
    const int strip = j / STRIP * STRIP, width = values - strip < STRIP ? values - strip : STRIP;
    return (size_t)(r / BAND * BAND) * (size_t)values + (size_t)(strip * BAND + r % BAND * width + j - strip);
}

/* The n rows of the band from `row` on. max, sum: of each of them. */
static void give_band(const tq_prefill_impl *impl, const tq_prefill_job *job, const float *acc, int row, int n,
                      const float *max, const float *sum) {
    const int values = impl->v_values;
    _Alignas(64) float rows[BAND * TQ_MAX_HEAD_DIM];
    float *out[BAND];
    for (int i = 0; i < n; i++) {
        const tqv_f32 share = tqv_set1(sum[i] > 0.0f ? impl->v->unit / sum[i] : 0.0f);
        const size_t token = (size_t)((row + i) / job->gqa), head = (size_t)((row + i) % job->gqa);
        out[i] = job->out + token * job->out_token_stride + head * job->out_head_stride;
        float *to = impl->v->give ? rows + i * values : out[i];
        for (int j = 0; j < values; j += TQV_LANES)
            tqv_store(to + j, tqv_mul(tqv_load(acc + sum_at(values, row + i, j)), share));
        if (job->lse)
            job->lse[token * job->lse_token_stride + head] = sum[i] > 0.0f ? (max[i] + log2f(sum[i])) * LN_2 : -INFINITY;
    }
    if (impl->v->give)
        impl->v->give(rows, n, out);
}

void tqk_prefill__${id}(const tq_prefill_impl *impl, const tq_prefill_job *job, const tq_prefill_scratch *scratch,
                       const tq_prefill_partial *partial) {
    const int n_rows = job->n_tokens * job->gqa, n_bands = (n_rows + BAND - 1) / BAND;
    const int unit = job->keys_per_unit > 1 ? job->keys_per_unit : TQ_GROUP; /* where steps may begin */
    float *acc = partial ? partial->acc : scratch->acc;
    band bands[TQ_MAX_ROWS / BAND];
    memset(bands, 0, (size_t)n_bands * sizeof *bands);
    for (int i = 0; i < n_bands; i++)
        take_band(impl, job, scratch, i, bands + i);
    memset(acc, 0, (size_t)(n_bands * BAND) * (size_t)impl->v_values * sizeof(float));

    const int seen = bands[0].first > job->begin ? bands[0].first : job->begin, begin = seen / unit * unit;
    const int end = clamp(bands[n_bands - 1].last, 0, job->end);
    for (int first = begin; first < end; first += TQ_MAX_TILE) {
        const int n = end - first < TQ_MAX_TILE ? end - first : TQ_MAX_TILE;
        tq_keys keys;
        keys_at(&job->k, job->keys_per_unit, first, n, end - 1, &keys);
        impl->k->decode(&keys, scratch->k);
        keys_at(&job->v, job->keys_per_unit, first, n, end - 1, &keys);
        impl->v->decode(&keys, scratch->v);
        for (int i = 0; i < n_bands; i++)
            take_keys(impl, job, scratch, acc, bands, i, first, n);
    }
    for (int i = 0; i < n_bands; i++) {
        const int row = i * BAND, n = clamp(n_rows - row, 0, BAND);
        if (partial) {
            memcpy(partial->max + row, bands[i].max, (size_t)n * sizeof(float));
            memcpy(partial->sum + row, bands[i].sum, (size_t)n * sizeof(float));
        } else
            give_band(impl, job, acc, row, n, bands[i].max, bands[i].sum);
    }
}

void tqk_prefill_merge__${id}(const tq_prefill_impl *impl, const tq_prefill_job *job, const tq_prefill_partial *partials,
                             int n) {
    float *acc = partials[0].acc;
    for (int r = 0; r < job->n_tokens * job->gqa; r++) {
        _Alignas(64) float share[TQ_MAX_SPLITS];
        float max = LOWEST, sum = 0.0f;
        for (int i = 0; i < n; i++)
            max = partials[i].max[r] > max ? partials[i].max[r] : max;
        for (int i = 0; i < TQ_MAX_SPLITS; i++)
            share[i] = i < n ? partials[i].max[r] - max : 0.0f;
        for (int i = 0; i < n; i += TQV_LANES) {
            tqv_f32 x = tqv_load(share + i);
            tqv_exp2(&x, 1);
            tqv_store(share + i, x);
        }
        for (int i = 0; i < n; i++)
            sum += share[i] * partials[i].sum[r];
        for (int j = 0; j < impl->v_values; j += TQV_LANES) {
            const size_t at = sum_at(impl->v_values, r, j);
            tqv_f32 x = tqv_zero();
            for (int i = 0; i < n; i++)
                x = tqv_fma(tqv_load(partials[i].acc + at), tqv_set1(share[i]), x);
            tqv_store(acc + at, x);
        }
        give_band(impl, job, acc, r, 1, &max, &sum);
    }
}
