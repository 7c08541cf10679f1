/* ---- decode ------------------------------------------------------------------------------------------------------ */

/* Attention over one key range of one KV head, for the gqa query heads that share it: online softmax in base 2 (Milakov
 * and Gimelshein 2018) in steps of up to TQ_MAX_TILE keys. The K and V stages hold everything that depends on the
 * formats. */

enum { STRIDE = TQ_MAX_TILE, QUADS = TQ_MAX_TILE / 4, BATCH = 4 * TQV_LANES /* keys that are weighed in one go */ };

/* Largest integer weight. */
#define WEIGHT_TOP 32639.0f /* 127 * 256 + 127 */

/* x[begin .. end-1] = value, but for x[low .. high-1]. */
static void fill_around(float *x, int begin, int low, int high, int end, float value) {
    for (int i = begin; i < low; i++)
        x[i] = value;
    for (int i = high; i < end; i++)
        x[i] = value;
}

/* The largest magnitude among the stored scales of each row. */
static void top_scales(int n_scales, const float *scales, int n, float *top) {
    for (int i = 0; i < n; i += TQV_LANES) {
        tqv_f32 most = tqv_zero();
        for (int b = 0; b < n_scales; b++)
            most = tqv_max(most, tqv_abs(tqv_load(scales + b * STRIDE + i)));
        tqv_store(top + i, most);
    }
}

/* p * V scale as integers, for one head: [scale][2][quad], one unit of weight for all of them; n: whole BATCHes. */
static void integer_weights(const tq_v_stage *v, int n_scales, const float *p, const float *scales, float unit, int n,
                            int32_t *weights) {
    const tqv_f32 inverse = tqv_set1(unit > 0x1p-100f ? 1.0f / unit : 0.0f);
    for (int b = 0; b < n_scales; b++, scales += STRIDE, weights += 2 * QUADS)
        for (int i = 0; i < n; i += BATCH) {
            tqv_bits w[4];
            TQV_UNROLL for (int j = 0; j < 4; j++) {
                const tqv_f32 share = tqv_mul(tqv_load(p + i + j * TQV_LANES), inverse);
                w[j] = tqv_to_i32(tqv_mul(share, tqv_load(scales + i + j * TQV_LANES)));
            }
% if byte_dot then
            if (v->byte_weights) {
                tqv_store_byte_weights(weights + i / 4, weights + QUADS + i / 4, w);
                continue;
            }
% end
            tqv_store_weights(weights + i / 4, weights + QUADS + i / 4, w);
        }
    (void)v;
}

typedef struct totals {
    tqv_f32 sum, weight_max, weight_sum;
} totals;

/* The softmax weights of one head in place of its scores, and what they add up to. weighted: also their products with the
 * largest scale of each row, the largest and, if `summed`, the sum. */
TQV_INLINE void exponentials(const int weighted, const int summed, const int vectors, float *s, tqv_f32 minus,
                             const float *top, totals *t) {
    tqv_f32 p[4];
    TQV_UNROLL for (int i = 0; i < vectors; i++)
        p[i] = tqv_add(tqv_load(s + i * TQV_LANES), minus);
    tqv_exp2(p, vectors);
    TQV_UNROLL for (int i = 0; i < vectors; i++) {
        tqv_store(s + i * TQV_LANES, p[i]);
        t->sum = tqv_add(t->sum, p[i]);
        if (weighted) {
            const tqv_f32 w = tqv_mul(p[i], tqv_load(top + i * TQV_LANES));
            t->weight_max = tqv_max(t->weight_max, w);
            if (summed)
                t->weight_sum = tqv_add(t->weight_sum, w);
        }
    }
}

TQV_INLINE totals all_exponentials(const int weighted, const int summed, float *s, int n, float tile_max,
                                   const float *top) {
    const tqv_f32 minus = tqv_set1(-tile_max);
    totals t = {tqv_zero(), tqv_zero(), tqv_zero()};
    int i = 0;
    for (; i + 4 * TQV_LANES <= n; i += 4 * TQV_LANES)
        exponentials(weighted, summed, 4, s + i, minus, top + i, &t);
    for (; i < n; i += TQV_LANES)
        exponentials(weighted, summed, 1, s + i, minus, top + i, &t);
    return t;
}

/* What a step's heads leave; those behind the last are zero. */
typedef struct step {
    float max[TQ_MAX_GQA], sum[TQ_MAX_GQA];
    float unit[TQ_MAX_GQA]; /* of weight: what an integer weight of 1 stands for */
} step;

/* n: whole BATCHes. */
static float largest(const float *s, int n) {
    tqv_f32 most[4];
    TQV_UNROLL for (int j = 0; j < 4; j++)
        most[j] = tqv_load(s + j * TQV_LANES);
    for (int i = BATCH; i < n; i += BATCH)
        TQV_UNROLL for (int j = 0; j < 4; j++)
            most[j] = tqv_max(most[j], tqv_load(s + i + j * TQV_LANES));
    return tqv_hmax(tqv_max(tqv_max(most[0], most[1]), tqv_max(most[2], most[3])));
}

/* The exponentials of one head, their sum and the unit of its weights. summed: can the sum of integer weights be too large,
 * even if no single one is? */
static void take_exponentials(const tq_v_stage *v, int summed, int h, float *s, int n, const float *top, step *out) {
    const totals t = summed        ? all_exponentials(1, 1, s, n, out->max[h], top)
                     : v->n_scales ? all_exponentials(1, 0, s, n, out->max[h], top)
                                   : all_exponentials(0, 0, s, n, out->max[h], top);
    const float by_max = tqv_hmax(t.weight_max) * (1.0f / WEIGHT_TOP);
    const float by_sum = summed ? tqv_hsum(t.weight_sum) / v->weight_sum : 0.0f;
    out->unit[h] = by_sum > by_max ? by_sum : by_max;
    out->sum[h] = tqv_hsum(t.sum);
}

/* ---- keys of a step ---------------------------------------------------------------------------------------------- */

/* Where `slot` lies, or would lie in a contiguous cache that went on. */
static uintptr_t address_of(const tq_head *head, int keys_per_unit, int slot) {
    const uintptr_t first = (uintptr_t)head->first;
    if (!head->pages)
        return first + (size_t)(slot / keys_per_unit) * head->stride;
    const size_t page = (size_t)head->pages[slot / head->page_slots];
    return first + page * head->page_stride + (size_t)(slot % head->page_slots / keys_per_unit) * head->stride;
}

/* The same for keys that are worth fetching: no page behind that of slot `last` is looked up. */
static const uint8_t *address_ahead(const tq_head *head, int keys_per_unit, int slot, int last) {
    const int at = slot + head->ahead;
    if (head->ahead == 0 || (head->pages && at > last))
        return NULL;
    const size_t into_unit = (size_t)(at % keys_per_unit) * (head->stride / (size_t)keys_per_unit);
    return (const uint8_t *)(address_of(head, keys_per_unit, at) + into_unit);
}

/* Slots first .. first + n - 1, of a range that ends at slot `last`. */
static void keys_at(const tq_head *head, int keys_per_unit, int first, int n, int last, tq_keys *out) {
    out->stride = head->stride;
    out->nearer = head->pages ? 0 : ${nearer};
    out->end = head->end;
    out->n = n;
    out->group[0] = (const uint8_t *)address_of(head, keys_per_unit, first);
    out->ahead[0] = address_ahead(head, keys_per_unit, first, last);
    if (keys_per_unit > 1)
        return;
    for (int i = TQ_GROUP; i < n; i += TQ_GROUP) {
        const int g = i / TQ_GROUP;
        if (head->pages) {
            out->group[g] = (const uint8_t *)address_of(head, 1, first + i);
            out->ahead[g] = address_ahead(head, 1, first + i, last);
        } else {
            out->group[g] = out->group[g - 1] + TQ_GROUP * head->stride;
            out->ahead[g] = head->ahead ? (const uint8_t *)((uintptr_t)out->ahead[g - 1] + TQ_GROUP * head->stride) : NULL;
        }
    }
}

/* The end of the step that begins at slot `first`: where a tile ends; of paged rows, too, but for keys up to where groups
 * of rows may begin. */
static int step_end(const tq_decode_impl *impl, const tq_decode_job *job, int first) {
    int end = first + impl->tile;
    if (job->k.pages || job->v.pages || job->keys_per_unit > 1) {
        const int whole = job->keys_per_unit == 1 && first % TQ_GROUP ? TQ_GROUP : impl->tile;
        end = (first / whole + 1) * whole;
    }
    return end < job->end ? end : job->end;
}

static void start(const tq_decode_impl *impl, const tq_decode_job *job, const tq_partial *partial) {
    impl->k->prepare(job->q, job->q_head_stride, job->factor, partial->prepared);
    for (int h = 0; h < impl->gqa; h++) {
        partial->max[h] = -INFINITY;
        partial->sum[h] = 0.0f;
    }
    for (int i = 0; i < impl->gqa * impl->v->acc_values; i++)
        partial->acc[i] = 0.0f;
}

void tqk_decode__${id}(const tq_decode_impl *impl, const tq_decode_job *job, const tq_partial *partial) {
    const int gqa = impl->gqa, tiled = job->keys_per_unit > 1;
    const tq_k_stage *k = impl->k;
    const tq_v_stage *v = impl->v;
    _Alignas(64) float scores[TQ_MAX_GQA * STRIDE], scales[TQ_MAX_SCALES * STRIDE], top[STRIDE];
    _Alignas(64) int32_t weights[TQ_MAX_GQA * TQ_MAX_SCALES * 2 * QUADS];
    float factor[TQ_MAX_GQA], decay[TQ_MAX_GQA], max[TQ_MAX_GQA], sum[TQ_MAX_GQA];
    step tile = {0};
    const int summed = v->n_scales && v->weight_sum < WEIGHT_TOP * (float)impl->tile;

    bias_floats bias;
    if (job->bias.n_pairs) {
        load_bias_table(&job->bias, &bias);
        load_bias_coefficients(&job->bias, job->factor, gqa, &bias);
    }
    if (job->starts)
        start(impl, job, partial);
    for (int h = 0; h < TQ_MAX_GQA; h++) {
        max[h] = h < gqa ? partial->max[h] : -INFINITY;
        sum[h] = h < gqa ? partial->sum[h] : 0.0f;
    }

    for (int first = job->begin, end; first < job->end; first = end) {
        end = step_end(impl, job, first);
        const int before = tiled ? first % job->keys_per_unit : 0; /* keys of the tile that are not in the range */
        const int n = before + end - first, padded = (n + BATCH - 1) / BATCH * BATCH;
        int n_scales = 0;
        tq_keys k_keys, v_keys;
        keys_at(&job->k, job->keys_per_unit, first - before, n, job->end - 1, &k_keys);
        keys_at(&job->v, job->keys_per_unit, first - before, n, job->end - 1, &v_keys);
        k->scores(partial->prepared, &k_keys, scores);
        if (job->bias.n_pairs)
            add_bias(&job->bias, &bias, gqa, first - before, n, scores);
        if (v->n_scales) {
            n_scales = v->scales(&v_keys, scales);
            for (int b = 0; b < n_scales; b++)
                fill_around(scales + b * STRIDE, 0, before, n, padded, 0.0f);
            top_scales(n_scales, scales, padded, top);
        }
        for (int h = 0; h < gqa; h++) {
            float *s = scores + h * STRIDE;
            if (job->softcap > 0.0f)
                cap_scores(s, padded, job->softcap);
            if (job->alibi)
                add_alibi(job->alibi[h], first - before - job->query_position, n, s);
            fill_around(s, 0, before, n, padded, -INFINITY);
            tile.max[h] = largest(s, padded);
        }
        /* The tile's own maximum scales its weights, so that they keep all their bits wherever the tile stands. */
        for (int h = 0; h < gqa; h++)
            take_exponentials(v, summed, h, scores + h * STRIDE, padded, top, &tile);
        for (int h = 0; h < gqa && v->n_scales; h++)
            integer_weights(v, n_scales, scores + h * STRIDE, scales, tile.unit[h], padded, weights + h * n_scales * 2 * QUADS);
        for (int h = 0; h < gqa; h += TQV_LANES) {
            const tqv_f32 old = tqv_load(max + h), here = tqv_load(tile.max + h), now = tqv_max(old, here);
            tqv_f32 share[2] = {tqv_sub(old, now), tqv_sub(here, now)}; /* of what was, of this tile */
            tqv_exp2(share, 2);
            tqv_store(max + h, now);
            tqv_store(sum + h, tqv_fma(tqv_load(sum + h), share[0], tqv_mul(tqv_load(tile.sum + h), share[1])));
            tqv_store(decay + h, share[0]);
            tqv_store(factor + h, v->n_scales ? tqv_mul(share[1], tqv_load(tile.unit + h)) : share[1]);
        }
        v->accumulate(&v_keys, v->n_scales ? (const void *)weights : (const void *)scores, n_scales, factor, decay,
                      partial->acc);
    }
    memcpy(partial->max, max, (size_t)gqa * sizeof *max);
    memcpy(partial->sum, sum, (size_t)gqa * sizeof *sum);
}
