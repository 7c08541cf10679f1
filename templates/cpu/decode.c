/* ${banner} */
/* Decode attention over one key range of one KV head, for the gqa query heads that share it: online softmax in base 2
 * (Milakov and Gimelshein 2018) over tiles of keys. The K and V stages hold everything that depends on the formats. */
#include <math.h>

#include "tq_kernel.h"
#include "vocabulary.h"

enum { STRIDE = TQ_MAX_TILE, QUADS = TQ_MAX_TILE / 4 };

/* Largest integer weight. */
#define WEIGHT_TOP 32767.0f

/* softcap * tanh(s), through exp2: tanh(s) = 1 - 2 / (e^(2s) + 1) */
static void cap_scores(float *scores, int n, float softcap) {
    const tqv_f32 one = tqv_set1(1.0f), two = tqv_set1(2.0f), top = tqv_set1(126.0f), log2e2 = tqv_set1(2.885390082f);
    for (int i = 0; i < n; i += TQV_LANES) {
        const tqv_f32 e = tqv_exp2(tqv_min(tqv_mul(tqv_load(scores + i), log2e2), top));
        const tqv_f32 t = tqv_sub(one, tqv_div(two, tqv_add(e, one)));
        tqv_store(scores + i, tqv_mul(tqv_set1(softcap), t));
    }
}

/* The score bias of a tile: the hook for whatever depends on the key's position alone. */
static void bias_scores(const tq_decode_job *job, int h, int first, int n, float *scores) {
    if (job->alibi)
        for (int i = 0; i < n; i++)
            scores[i] += job->alibi[h] * (float)(first + i - job->query_position);
}

/* p * V scale as integers for one head: one set per group of units; returns what one integer unit is worth. */
static void integer_weights(const tq_v_stage *v, const float *p, const float *scales, int n, float decayed,
                            int32_t *weights, float *factor) {
    for (int g = 0; g < v->n_groups; g++) {
        float unit[TQV_UNITS];
        for (int u = 0; u < TQV_UNITS; u++) {
            const int b = v->group_scale[g * TQV_UNITS + u];
            if (u > 0 && b == v->group_scale[g * TQV_UNITS + u - 1]) {
                unit[u] = unit[u - 1];
                continue;
            }
            tqv_f32 top = tqv_zero(), sum = tqv_zero();
            for (int i = 0; i < n; i += TQV_LANES) {
                const tqv_f32 w = tqv_abs(tqv_mul(tqv_load(p + i), tqv_load(scales + b * STRIDE + i)));
                top = tqv_max(top, w);
                sum = tqv_add(sum, w);
            }
            const float by_sum = tqv_hsum(sum) / v->weight_sum, by_top = tqv_hmax(top) / WEIGHT_TOP;
            unit[u] = by_sum > by_top ? by_sum : by_top;
        }
        for (int i = 0; i < n; i += TQV_LANES) {
            tqv_bits w[TQV_UNITS];
            for (int u = 0; u < TQV_UNITS; u++) {
                const float *scale = scales + v->group_scale[g * TQV_UNITS + u] * STRIDE + i;
                const tqv_f32 inverse = tqv_set1(unit[u] > 0x1p-100f ? 1.0f / unit[u] : 0.0f);
                w[u] = tqv_to_i32(tqv_mul(tqv_mul(tqv_load(p + i), tqv_load(scale)), inverse));
            }
            tqv_store_weights(weights + (g * QUADS + i / 4) * 2 * TQV_UNITS, w);
        }
        for (int u = 0; u < TQV_UNITS; u++)
            factor[g * TQV_UNITS + u] = decayed * unit[u];
    }
}

void tqk_decode__${id}(const tq_decode_impl *impl, const tq_decode_job *job, const tq_partial *out) {
    enum { MAX_GROUPS = (TQ_MAX_HEAD_DIM / 32 + TQV_UNITS - 1) / TQV_UNITS + 1 };
    const int gqa = impl->gqa;
    const tq_k_stage *k = impl->k;
    const tq_v_stage *v = impl->v;
    _Alignas(64) unsigned char prepared[TQ_MAX_GQA * (TQ_MAX_HEAD_DIM * 4 + 64) + 64];
    _Alignas(64) float scores[TQ_MAX_GQA * STRIDE], scales[TQ_MAX_SCALES * STRIDE];
    _Alignas(64) int32_t weights[TQ_MAX_GQA * MAX_GROUPS * QUADS * 2 * TQV_UNITS];
    float factor[TQ_MAX_GQA * MAX_GROUPS * TQV_UNITS], decay[TQ_MAX_GQA];

    k->prepare(job->q, job->q_head_stride, job->factor, prepared);
    for (int h = 0; h < gqa; h++) {
        out->max[h] = -INFINITY;
        out->sum[h] = 0.0f;
    }
    for (int i = 0; i < gqa * v->acc_values; i++)
        out->acc[i] = 0.0f;

    for (int first = job->begin; first < job->end; first += impl->tile) {
        const int n = job->end - first < impl->tile ? job->end - first : impl->tile;
        const int last = first + n == job->end;
        const int padded = (n + TQV_LANES - 1) / TQV_LANES * TQV_LANES;
        const tq_rows k_rows = {job->k + (size_t)first * job->k_stride, job->k_stride, n, last, impl->k_prefetch};
        const tq_rows v_rows = {job->v + (size_t)first * job->v_stride, job->v_stride, n, last, impl->v_prefetch};
        k->scores(prepared, &k_rows, scores);
        if (v->n_scales)
            v->scales(&v_rows, scales);
        for (int h = 0; h < gqa; h++) {
            float *s = scores + h * STRIDE;
            if (job->softcap > 0.0f)
                cap_scores(s, padded, job->softcap);
            bias_scores(job, h, first, n, s);
            for (int i = n; i < padded; i++)
                s[i] = -INFINITY;
            tqv_f32 top = tqv_load(s);
            for (int i = TQV_LANES; i < padded; i += TQV_LANES)
                top = tqv_max(top, tqv_load(s + i));
            /* The tile's own maximum scales its weights, so that they keep all their bits wherever the tile stands. */
            const float tile_max = tqv_hmax(top);
            tqv_f32 sum = tqv_zero();
            for (int i = 0; i < padded; i += TQV_LANES) {
                const tqv_f32 p = tqv_exp2(tqv_sub(tqv_load(s + i), tqv_set1(tile_max)));
                sum = tqv_add(sum, p);
                tqv_store(s + i, p);
            }
            const float max = out->max[h] > tile_max ? out->max[h] : tile_max;
            const float mine = exp2f(tile_max - max);
            decay[h] = exp2f(out->max[h] - max);
            out->sum[h] = out->sum[h] * decay[h] + tqv_hsum(sum) * mine;
            out->max[h] = max;
            if (v->n_scales)
                integer_weights(v, s, scales, padded, mine, weights + h * v->n_groups * QUADS * 2 * TQV_UNITS,
                                factor + h * v->n_groups * TQV_UNITS);
            else
                factor[h] = mine;
        }
        v->accumulate(&v_rows, v->n_scales ? (const void *)weights : (const void *)scores, factor, decay, out->acc);
    }
}
