/* combine.c: partial results of the splits of one KV head become its outputs. */
#include "internal.h"

#include <math.h>
#include <string.h>

float tq_half_to_float(uint16_t half) {
    uint32_t bits = (uint32_t)(half & 0x7fff) << 13;
    float value;
    if (bits >= 0x0f800000) { /* Inf, NaN */
        bits |= 0x7f800000;
        memcpy(&value, &bits, sizeof value);
    } else {
        memcpy(&value, &bits, sizeof value);
        value *= 0x1p112f; /* moves the exponent bias from 15 to 127; subnormals come out right as well */
    }
    return half & 0x8000 ? -value : value;
}

static void load_f16_row(const uint8_t *row, int n, float *out) {
    for (int i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, row + 2 * i, sizeof half);
        out[i] = tq_half_to_float(half);
    }
}

/* exp2(x - max), where max may be -inf if every x is. */
static float weight(float x, float max) {
    return x == -INFINITY ? 0.0f : exp2f(x - max);
}

static float *acc_of(const tq_plan *plan, const tq_partial *partial, int g) {
    return partial->acc + (size_t)g * (size_t)plan->variant->impl->v->acc_values;
}

/* Merges n partials of query head g into the first, in order of the splits, back in natural values. */
static void merge(const tq_plan *plan, void *workspace, int sequence, int kv_head, int n, int g, float sink_logit) {
    const tq_v_stage *v = plan->variant->impl->v;
    size_t row_bytes = (size_t)tq_out_values(plan) * sizeof(float);
    tq_partial into = tq_workspace_partial(plan, workspace, sequence, kv_head, 0);
    float max = sink_logit, row[TQ_MAX_HEAD_DIM], *acc = acc_of(plan, &into, g);
    for (int i = 0; i < n; i++)
        max = fmaxf(max, tq_workspace_partial(plan, workspace, sequence, kv_head, i).max[g]);
    float sum = weight(sink_logit, max);
    for (int i = 0; i < n; i++) {
        tq_partial from = tq_workspace_partial(plan, workspace, sequence, kv_head, i);
        const float *add = acc_of(plan, &from, g);
        float w = weight(from.max[g], max);
        sum += w * from.sum[g];
        for (int j = 0; j < v->acc_values; j++)
            acc[j] = i == 0 ? w * acc[j] : acc[j] + w * add[j];
    }
    if (n > 0) {
        v->finish(acc, row);
        memcpy(acc, row, row_bytes);
    } else {
        memset(acc, 0, row_bytes);
    }
    into.max[g] = max;
    into.sum[g] = sum;
}

/* One more online softmax step: the first tokens, kept in f16 and not rotated. */
static void add_first_tokens(const tq_plan *plan, const tq_decode_args *args, int sequence, int kv_head,
                             const tq_partial *into) {
    int d = plan->head_dim, v_values = tq_out_values(plan), n_kv = args->n_kv[sequence];
    int end = args->n_sink < n_kv ? args->n_sink : n_kv;
    float k[TQ_MAX_HEAD_DIM], v[TQ_MAX_HEAD_DIM];
    for (int slot = tq_visible_from(args->window, n_kv); slot < end; slot++) {
        load_f16_row(tq_cache_unit(args->sink_k, 1, sequence, kv_head, slot), d, k);
        load_f16_row(tq_cache_unit(args->sink_v, 1, sequence, kv_head, slot), v_values, v);
        for (int g = 0; g < plan->gqa; g++) {
            size_t head = (size_t)kv_head * (size_t)plan->gqa + (size_t)g;
            const float *q = args->q + (size_t)sequence * args->q_seq_stride + head * args->q_head_stride;
            float *acc = acc_of(plan, into, g), dot = 0;
            for (int j = 0; j < d; j++)
                dot += q[j] * k[j];
            if (args->bias)
                dot += tq_bias_at(args->bias, sequence, (int)head, slot);
            float score = tq_score_factor(args->scale, args->softcap) * dot;
            if (args->softcap > 0)
                score = tq_score_cap(args->softcap) * tanhf(score);
            if (args->alibi)
                score += args->alibi[head] * tq_log2_e * (float)(slot - (n_kv - 1));
            float max = fmaxf(into->max[g], score);
            float keep = weight(into->max[g], max), w = weight(score, max);
            for (int j = 0; j < v_values; j++)
                acc[j] = acc[j] * keep + w * v[j];
            into->sum[g] = into->sum[g] * keep + w;
            into->max[g] = max;
        }
    }
}

void tq_combine(const tq_plan *plan, const tq_decode_args *args, void *workspace, int sequence, int kv_head, int n) {
    int d = tq_out_values(plan), gqa = plan->gqa;
    tq_partial total = tq_workspace_partial(plan, workspace, sequence, kv_head, 0);
    for (int g = 0; g < gqa; g++) {
        float sink_logit = args->sink_logits ? args->sink_logits[kv_head * gqa + g] * tq_log2_e : -INFINITY;
        merge(plan, workspace, sequence, kv_head, n, g, sink_logit);
    }
    if (args->n_sink > 0)
        add_first_tokens(plan, args, sequence, kv_head, &total);
    for (int g = 0; g < gqa; g++) {
        size_t head = (size_t)kv_head * (size_t)gqa + (size_t)g;
        float *out = args->out + (size_t)sequence * args->out_seq_stride + head * args->out_head_stride;
        const float *acc = acc_of(plan, &total, g);
        float sum = total.sum[g], inverse = sum == 0 ? 0 : 1 / sum; /* 0: nothing visible */
        for (int j = 0; j < d; j++)
            out[j] = acc[j] * inverse;
        if (args->lse)
            args->lse[(size_t)sequence * (size_t)(plan->n_kv_heads * gqa) + head] =
                sum == 0 ? -INFINITY : (total.max[g] + log2f(sum)) / tq_log2_e;
    }
}
