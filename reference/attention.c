/* attention.c: softmax attention in double precision on the packed cache, and the error a correct kernel may show.
 *
 * Kernels work in float32 (u = 2^-24 a rounding), except that codebook formats go through 16-bit integers: the
 * rotated q is rounded to a step chosen per head, and the products of softmax weight and stored scale are rounded to
 * 15 bits of the largest in their tile of at most 128 keys. Both steps grow where int32 sums would overflow otherwise.
 * Roundings are treated as independent and uniform, and their standard deviation is multiplied by LAMBDA (Higham and
 * Mary 2019), which replaces the worst case, a factor sqrt(terms) further out. With p the exact softmax weights and o
 * the exact output:
 *
 *   logit j    D_j = LAMBDA scale |k_j| (q_step / sqrt(12) + 4 u |q|) + 16 u (1 + |logit_j| + |bias_j| + softcap)
 *   softmax    e^max(D) sum_j p_j (e^D_j - 1) |v_ji - o_i|     rigorous for logits within D_j, as sum p_j (v_j - o) = 0
 *   weights    LAMBDA w_step sqrt(sum_j u_ji^2 / 12)           u_j: row j with each scale * step replaced by 1
 *              + sum p_j |v_ji| over the weights below half a step, which are lost and add up with one sign
 *   float32    LAMBDA u sqrt(keys + head_dim) sum_j p_j |v_ji|
 *
 * Rotated formats make these errors before the last rotation, which spreads them over the chunk: |v_ji| there means
 * |v_ji| + |v_j| / sqrt(chunk), and u_ji^2 means u_ji^2 + |u_j|^2 / chunk.
 */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LAMBDA        6.0
#define UNIT_ROUNDOFF 0x1p-24
#define TILE          128
#define INTEGER_MAX   32767.0

/* Rows of one KV head, decoded. Rows in f16 meet no integers: their unit values and scales are 0. */
typedef struct ref_rows {
    double *x;     /* [n][head_dim] */
    double *unit;  /* [n][head_dim] with every stored scale times step replaced by 1 */
    double *scale; /* [n] largest stored scale times step */
} ref_rows;

typedef struct ref_head {
    const tq_ref_shape *shape;
    int head_dim, begin, n_kv; /* visible keys begin .. n_kv-1 */
    ref_rows k, v;
    double *p, *logit_error; /* [n] */
} ref_head;

static double norm(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* Largest sum of 16-bit integers, |centroid * gain| times which stays in int32. */
static double integer_sum(const tq_format_spec *format) {
    return 0x1p31 / (format->sub ? 128 * 63 : 128);
}

static const uint8_t *row_at(const tq_cache *cache, int s, int h, int slot) {
    return (const uint8_t *)cache->data + (size_t)s * cache->seq_stride + (size_t)h * cache->head_stride +
           (size_t)slot * cache->token_stride;
}

static void decode_unit(const tq_format_spec *format, const uint8_t *row, double *unit, double *scale) {
    tq_ref_codes codes;
    tq_ref_unpack(format, row, &codes);
    *scale = 0;
    for (int i = 0; i < format->head_dim; i++) {
        double step = (double)format->steps[tq_ref_chunk_of(format, i) - format->chunks];
        *scale = fmax(*scale, fabs(codes.scale[i]) * step);
        unit[i] = tq_ref_level(format, &codes, i);
    }
    for (int c = 0; format->rotated && c < format->n_chunks; c++)
        tq_ref_transform(&format->chunks[c], unit + format->chunks[c].first_value);
}

static void decode_rows(const tq_format_spec *format, tq_side side, const tq_cache *cache, const tq_cache *sinks,
                        int n_sink, int s, int h, int n, ref_rows *rows) {
    const tq_format_spec half = {.head_dim = format->head_dim, .bits = 16};
    for (int j = 0; j < n; j++) {
        const tq_format_spec *own = j < n_sink ? &half : format;
        const uint8_t *row = row_at(j < n_sink ? sinks : cache, s, h, j);
        size_t at = (size_t)j * (size_t)format->head_dim;
        tq_ref_decode_row(own, side, row, NULL, rows->x + at);
        rows->scale[j] = 0;
        memset(rows->unit + at, 0, (size_t)format->head_dim * sizeof(double));
        if (own->bits != 16)
            decode_unit(own, row, rows->unit + at, &rows->scale[j]);
    }
}

/* Step of the 16-bit q. */
static double q_step(const tq_format_spec *format, const float *q) {
    double y[TQ_MAX_HEAD_DIM], largest = 0, sum = 0;
    tq_ref_rotate(format, TQ_SIDE_K, q, NULL, y);
    for (int i = 0; i < format->head_dim; i++) {
        largest = fmax(largest, fabs(y[i]));
        sum += fabs(y[i]);
    }
    return fmax(largest / INTEGER_MAX, sum / integer_sum(format));
}

/* The logit without a value; -INFINITY counts for nothing. */
static double sink_logit(const tq_decode_args *args, int query_head) {
    return args->sink_logits ? (double)args->sink_logits[query_head] : -INFINITY;
}

/* Fills p with logits, then with softmax weights; returns the log of the denominator. */
static double softmax(ref_head *head, const tq_decode_args *args, const float *q, int query_head) {
    int d = head->head_dim;
    double q_norm = 0, step = head->shape->k->bits == 16 ? 0 : q_step(head->shape->k, q);
    double sink = sink_logit(args, query_head), largest = sink;
    for (int i = 0; i < d; i++)
        q_norm = hypot(q_norm, (double)q[i]);
    for (int j = head->begin; j < head->n_kv; j++) {
        const double *k = head->k.x + (size_t)j * (size_t)d;
        double z = 0, bias = args->alibi ? (double)args->alibi[query_head] * (j - (head->n_kv - 1)) : 0;
        for (int i = 0; i < d; i++)
            z += (double)q[i] * k[i];
        z *= (double)args->scale;
        if (args->softcap > 0)
            z = (double)args->softcap * tanh(z / (double)args->softcap);
        double rounding = (head->k.scale[j] > 0 ? step / sqrt(12) : 0) + 4 * UNIT_ROUNDOFF * q_norm;
        head->p[j] = z + bias;
        head->logit_error[j] = LAMBDA * (double)args->scale * norm(k, d) * rounding +
                               16 * UNIT_ROUNDOFF * (1 + fabs(z) + fabs(bias) + (double)args->softcap);
        largest = fmax(largest, head->p[j]);
    }
    double sum = sink > -INFINITY ? exp(sink - largest) : 0;
    for (int j = head->begin; j < head->n_kv; j++)
        sum += exp(head->p[j] - largest);
    double lse = sum > 0 ? largest + log(sum) : -INFINITY;
    for (int j = head->begin; j < head->n_kv; j++)
        head->p[j] = exp(head->p[j] - lse);
    return lse;
}

/* Step of the 15-bit weights, in units of p times stored scale times format step. */
static double weight_step(const ref_head *head) {
    double largest = 0, sum = 0;
    for (int j = head->begin; j < head->n_kv; j++) {
        double weight = head->p[j] * head->v.scale[j];
        largest = fmax(largest, weight);
        sum += weight;
    }
    return fmax(largest / INTEGER_MAX, fmin(sum, TILE * largest) / integer_sum(head->shape->v));
}

static void weigh(const ref_head *head, double p_sink, double sink_error, double *out, double *bound) {
    const tq_format_spec *format = head->shape->v;
    int d = head->head_dim, n = head->n_kv - head->begin;
    double step = weight_step(head), max_error = sink_error;
    double spread = format->rotated ? 1 / sqrt(format->chunks[0].size) : 0;
    memset(out, 0, (size_t)d * sizeof(double));
    for (int j = head->begin; j < head->n_kv; j++) {
        for (int i = 0; i < d; i++)
            out[i] += head->p[j] * head->v.x[(size_t)j * (size_t)d + (size_t)i];
        max_error = fmax(max_error, head->logit_error[j]);
    }
    double logits[TQ_MAX_HEAD_DIM], squares[TQ_MAX_HEAD_DIM] = {0}, lost[TQ_MAX_HEAD_DIM] = {0};
    double sizes[TQ_MAX_HEAD_DIM] = {0};
    for (int i = 0; i < d; i++)
        logits[i] = p_sink * expm1(sink_error) * fabs(out[i]);
    for (int j = head->begin; j < head->n_kv; j++) {
        const double *v = head->v.x + (size_t)j * (size_t)d, *unit = head->v.unit + (size_t)j * (size_t)d;
        double p = head->p[j], grown = p * expm1(head->logit_error[j]);
        double v_spread = spread * norm(v, d), unit_spread = spread * norm(unit, d);
        int is_lost = head->v.scale[j] > 0 && p * head->v.scale[j] < 0.5 * step;
        for (int i = 0; i < d; i++) {
            logits[i] += grown * fabs(v[i] - out[i]);
            double size = p * (fabs(v[i]) + v_spread);
            sizes[i] += size;
            lost[i] += is_lost ? size : 0;
            squares[i] += unit[i] * unit[i] + unit_spread * unit_spread;
        }
    }
    for (int i = 0; i < d; i++) {
        bound[i] = exp(max_error) * logits[i] + lost[i] + LAMBDA * step * sqrt(squares[i] / 12) +
                   LAMBDA * UNIT_ROUNDOFF * sqrt(n + d) * sizes[i] + 0x1p-126;
    }
}

static void attend(ref_head *head, const tq_decode_args *args, int s, int query_head, double *out, double *bound,
                   double *lse, double *lse_bound) {
    const float *q = args->q + (size_t)s * args->q_seq_stride + (size_t)query_head * args->q_head_stride;
    double log_sum = softmax(head, args, q, query_head);
    double sink = sink_logit(args, query_head);
    double sink_error = sink > -INFINITY ? 16 * UNIT_ROUNDOFF * (1 + fabs(sink)) : 0;
    weigh(head, sink > -INFINITY ? exp(sink - log_sum) : 0, sink_error, out, bound);
    if (lse) {
        double error = sink_error;
        for (int j = head->begin; j < head->n_kv; j++)
            error = fmax(error, head->logit_error[j]);
        *lse = log_sum;
        *lse_bound = isinf(log_sum) ? 0 : error + 16 * UNIT_ROUNDOFF * (1 + fabs(log_sum));
    }
}

int tq_ref_attention(const tq_ref_shape *shape, const tq_decode_args *args, double *out, double *bound, double *lse,
                     double *lse_bound) {
    int n_max = 1, d = shape->k->head_dim, n_heads = shape->n_kv_heads * shape->gqa;
    for (int s = 0; s < args->batch; s++)
        n_max = args->n_kv[s] > n_max ? args->n_kv[s] : n_max;
    size_t values = (size_t)n_max * (size_t)d;
    double *memory = malloc((4 * values + 4 * (size_t)n_max) * sizeof(double));
    if (!memory)
        return -1;
    double *scales = memory + 4 * values;
    ref_head head = {.shape = shape,
                     .head_dim = d,
                     .k = {memory, memory + values, scales},
                     .v = {memory + 2 * values, memory + 3 * values, scales + n_max},
                     .p = scales + 2 * n_max,
                     .logit_error = scales + 3 * n_max};
    for (int s = 0; s < args->batch; s++) {
        int n = args->n_kv[s];
        head.n_kv = n;
        head.begin = args->window > 0 && n > args->window ? n - args->window : 0;
        for (int h = 0; h < n_heads; h++) {
            if (h % shape->gqa == 0) {
                int kv_head = h / shape->gqa;
                decode_rows(shape->k, TQ_SIDE_K, args->k, args->sink_k, args->n_sink, s, kv_head, n, &head.k);
                decode_rows(shape->v, TQ_SIDE_V, args->v, args->sink_v, args->n_sink, s, kv_head, n, &head.v);
            }
            size_t at = (size_t)s * (size_t)n_heads + (size_t)h;
            attend(&head, args, s, h, out + at * (size_t)d, bound + at * (size_t)d, lse ? &lse[at] : NULL,
                   lse ? &lse_bound[at] : NULL);
        }
    }
    free(memory);
    return 0;
}
