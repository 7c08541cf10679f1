/* attention.c: softmax attention in double precision on the packed cache, and the error a correct kernel may show.
 *
 * Roundings are treated as independent and uniform, and their standard deviation is multiplied by LAMBDA (Higham and
 * Mary 2019), which replaces the worst case, a factor sqrt(terms) further out; where few terms make the worst case the
 * smaller one, it is taken. With p the exact softmax weights and o the exact output:
 *
 *   logit j    D_j, by arithmetic, + 16 u (1 + |logit_j| + |ALiBi_j| + softcap)
 *              + LAMBDA scale u sqrt(2 pairs + 16) sum_p |alpha_p| + |beta_p|     of the score bias
 *   softmax    e^max(D) sum_j p_j (e^D_j - 1) |v_ji - o_i|     rigorous for logits within D_j, as sum p_j (v_j - o) = 0
 *   weights    LAMBDA w_step sqrt(sum_j u_ji^2 / 12)           u_j: row j with each scale * step replaced by 1
 *              + sum p_j |v_ji| over the weights below half a step, which are lost and add up with one sign
 *   float32    LAMBDA u sqrt(keys + head_dim) sum_j p_j |v_ji|
 *
 * Rotated formats make these errors before the last rotation, which spreads them over the chunk: |v_ji| there means
 * |v_ji| + |v_j| / sqrt(chunk), and u_ji^2 means u_ji^2 + |u_j|^2 / chunk.
 *
 * Integers (CPU kernels for decode): float32 (u = 2^-24 a rounding), except that codebook formats go through 16-bit integers: the
 * rotated q is rounded to a step chosen per head, and the products of softmax weight and stored scale are rounded to
 * 15 bits of the largest in their tile of at most 128 keys. Both steps grow where int32 sums would overflow otherwise.
 *   D_j = LAMBDA scale |k_j| (q_step / sqrt(12) + 4 u |q|)
 *
 * Floats (CPU kernels for prefill): the same without integers, so that these steps are 0.
 *
 * Halves (GPU kernels): factors of products are in half precision (h = 2^-11 a rounding, a step of 2^-24 below 2^-14),
 * sums in float32. Rounded are: rotated q; decoded values, up to DECODE_ROUNDINGS times (scale times step, times gain,
 * times centroid); products, where there is no fused instruction; softmax weights, relative to the largest of the
 * sequence, before and after they are multiplied by the scale of a value row. Or the integers above, with a step of q
 * of 16 bits in two bytes.
 *   D_j = scale (h (rounded(DECODE_ROUNDINGS, P_g) + rounded(2, q_i k_ji)) + integers + subnormals)
 *         P_g: sum of q_i k_ji over the values of one size, which are rounded alike
 *   softmax: rows of V do not know how K was rounded, so that the terms are independent, too, and D_j holds LAMBDA: the
 *         root of the sum of their squares, if that is less
 *   values and weights: h rounded(DECODE_ROUNDINGS + 2, p_j |v_ji|)
 * with q and k as they meet, before the last rotation, and rounded(n, x) = min(LAMBDA sqrt(n / 3 sum x^2), n sum |x|).
 */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LAMBDA        6.0
#define UNIT_ROUNDOFF 0x1p-24
#define HALF_ROUNDOFF 0x1p-11
#define HALF_STEP     0x1p-24 /* of subnormals */
#define TILE          128
#define INTEGER_MAX   32767.0
#define TWO_BYTES_MAX 32512.0 /* 127 * 256: 16 bits as a sum of bytes */

enum { DECODE_ROUNDINGS = 2 }; /* one more where there are gains */

/* Rows of one KV head, decoded. Rows in f16 meet no integers: their unit values and scales are 0. */
typedef struct ref_rows {
    double *x;                /* [n][head_dim] */
    double *unit;             /* [n][head_dim] with every stored scale times step replaced by 1 */
    double *stored;           /* [n][head_dim] before the last rotation */
    double *scale;            /* [n] largest stored scale times step */
    double *norm, *unit_norm; /* [n] of x, of unit */
    int *alike;               /* [n][head_dim] the first value whose `stored` is of the same size; NULL: nobody asks */
} ref_rows;

enum { ARRAYS_OF_VALUES = 3, ARRAYS_OF_ROWS = 3 };

typedef struct ref_head {
    const tq_ref_shape *shape;
    int d, v_values; /* of a row of K, of V */
    int begin, n_kv; /* visible keys begin .. n_kv-1 */
    ref_rows k, v;
    double *p, *logit_error; /* [n] */
    const double *turned;    /* [n][pair][2], see turn_pairs */
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

/* T of a chunk's levels, in size. Blocks with scales of their own have weights that are rounded each by itself: then what
 * each becomes alone adds up by squares, if that is more. */
static void rotate_unit(const tq_format_spec *format, const tq_chunk *chunk, const double *scale, double *unit) {
    double alone[TQ_MAX_HEAD_DIM], squares[TQ_MAX_HEAD_DIM] = {0};
    int n = chunk->size, equal = 1;
    for (int i = 1; i < n; i++)
        equal &= scale[i] == scale[0];
    for (int b = 0; !equal && b < n; b += format->block) {
        for (int i = 0; i < n; i++)
            alone[i] = i / format->block == b / format->block ? unit[i] : 0;
        tq_ref_transform(chunk, alone);
        for (int i = 0; i < n; i++)
            squares[i] += alone[i] * alone[i];
    }
    tq_ref_transform(chunk, unit);
    for (int i = 0; i < n; i++)
        unit[i] = fmax(fabs(unit[i]), sqrt(squares[i]));
}

static void decode_codes(const tq_format_spec *format, tq_side side, const uint8_t *row, double *x, double *unit,
                         double *stored, double *scale) {
    tq_ref_codes codes;
    tq_ref_unpack(format, row, &codes);
    *scale = 0;
    for (int i = 0; i < format->head_dim; i++) {
        double step = (double)format->steps[tq_ref_chunk_of(format, i) - format->chunks];
        *scale = fmax(*scale, fabs(codes.scale[i]) * step);
        unit[i] = tq_ref_level(format, &codes, i);
        x[i] = stored[i] = codes.scale[i] * step * unit[i];
    }
    tq_ref_unrotate(format, side, x);
    for (int c = 0; format->rotated && c < format->n_chunks; c++) {
        int first = format->chunks[c].first_value;
        rotate_unit(format, &format->chunks[c], codes.scale + first, unit + first);
    }
}

static void find_alike(int d, const double *x, int *alike) {
    for (int i = 0; i < d; i++) {
        alike[i] = 0;
        while (alike[i] < i && fabs(x[alike[i]]) != fabs(x[i]))
            alike[i]++;
    }
}

static void decode_rows(const tq_format_spec *format, tq_side side, const tq_cache *cache, const tq_cache *sinks,
                        int n_sink, int s, int h, int n, ref_rows *rows) {
    const tq_format_spec half = {.head_dim = format->head_dim, .bits = 16};
    const int d = format->head_dim;
    for (int j = 0; j < n; j++) {
        const uint8_t *row = row_at(j < n_sink ? sinks : cache, s, h, j);
        size_t at = (size_t)j * (size_t)d;
        double *x = rows->x + at, *unit = rows->unit + at, *stored = rows->stored + at;
        if (j < n_sink || format->bits == 16) {
            tq_ref_decode_row(&half, side, row, NULL, x);
            rows->scale[j] = 0;
            memset(unit, 0, (size_t)d * sizeof(double));
            memcpy(stored, x, (size_t)d * sizeof(double));
        } else
            decode_codes(format, side, row, x, unit, stored, &rows->scale[j]);
        rows->norm[j] = norm(x, d);
        rows->unit_norm[j] = norm(unit, d);
        if (rows->alike)
            find_alike(d, stored, rows->alike + at);
    }
}

/* Step of the 16-bit q, y after rotation. */
static double q_step(const tq_ref_shape *shape, const double *y) {
    double largest = 0, sum = 0;
    for (int i = 0; i < shape->k->head_dim; i++) {
        largest = fmax(largest, fabs(y[i]));
        sum += fabs(y[i]);
    }
    if (shape->arithmetic == TQ_REF_HALVES)
        return largest / TWO_BYTES_MAX;
    return fmax(largest / INTEGER_MAX, sum / integer_sum(shape->k));
}

/* Largest likely sum of n roundings, to half a unit, of each of several terms. */
static double rounded(int n, double sum, double sum_of_squares) {
    return fmin(LAMBDA * sqrt(n / 3.0 * sum_of_squares), n * sum);
}

static int decode_roundings(const tq_format_spec *format) {
    return format->bits == 16 ? 0 : DECODE_ROUNDINGS + (format->sub != 0);
}

/* Of the roundings of k in q . k: equal values are rounded alike, so that the products of each are one term. */
static double decode_error(int n, int d, const double *q, const double *k, const int *alike) {
    double products[TQ_MAX_HEAD_DIM] = {0}, sum = 0, squares = 0;
    for (int i = 0; i < d; i++)
        products[alike[i]] += q[i] * k[i];
    for (int i = 0; i < d; i++) {
        sum += fabs(products[i]);
        squares += products[i] * products[i];
    }
    return rounded(n, sum, squares);
}

/* Of q . k in half precision, q and k as they meet; of f16 rows k has no roundings. */
static double half_error(int roundings_of_k, int d, const double *q, const double *k, const int *alike) {
    double sum = 0, squares = 0, of_k = roundings_of_k ? decode_error(roundings_of_k, d, q, k, alike) : 0;
    for (int i = 0; i < d; i++) {
        sum += fabs(q[i] * k[i]);
        squares += q[i] * k[i] * q[i] * k[i];
    }
    double subnormals = HALF_STEP / sqrt(12) * (norm(q, d) + norm(k, d) + sqrt(d));
    return HALF_ROUNDOFF * (of_k + rounded(2, sum, squares)) + LAMBDA * subnormals;
}

/* The logit without a value; -INFINITY counts for nothing. */
static double sink_logit(const tq_decode_args *args, int query_head) {
    return args->sink_logits ? (double)args->sink_logits[query_head] : -INFINITY;
}

/* Of positions 0 to n - 1: what alpha and beta of each pair are multiplied with, for all queries. */
static void turn_pairs(const tq_score_bias *bias, int n, double *turned) {
    const double turn = 2 * 3.14159265358979323846 / 0x1p32;
    for (int j = 0; j < n; j++)
        for (int p = 0; p < bias->n_pairs; p++) {
            uint32_t rest = bias->turns[p] * (uint32_t)(j % 32), start = bias->turns[p] * (uint32_t)(j / 32 * 32);
            double cosine = tq_ref_half_to_double(tq_ref_half_from_double(cos(turn * rest)));
            double sine = tq_ref_half_to_double(tq_ref_half_from_double(sin(turn * rest)));
            *turned++ = cos(turn * start) * cosine - sin(turn * start) * sine;
            *turned++ = sin(turn * start) * cosine + cos(turn * start) * sine;
        }
}

/* b_h(j) as tq_score_bias states it; *size: the sum of the magnitudes of its coefficients. */
static double score_bias(const ref_head *head, const tq_score_bias *bias, int s, int query_head, int j, double *size) {
    const float *c = bias->coefficients + (size_t)s * bias->seq_stride + (size_t)query_head * bias->head_stride;
    const double *turned = head->turned + (size_t)j * 2 * (size_t)bias->n_pairs;
    double sum = 0;
    *size = 0;
    for (int i = 0; i < 2 * bias->n_pairs; i++) {
        sum += (double)c[i] * turned[i];
        *size += fabs((double)c[i]);
    }
    return sum;
}

/* What is made of one query head before it meets K. */
typedef struct ref_query {
    double x[TQ_MAX_HEAD_DIM], rotated[TQ_MAX_HEAD_DIM];
    double norm, step; /* of its integers; 0: none */
} ref_query;

static void prepare(const ref_head *head, const float *q, ref_query *query) {
    const tq_format_spec *format = head->shape->k;
    for (int i = 0; i < head->d; i++)
        query->x[i] = (double)q[i];
    query->norm = norm(query->x, head->d);
    query->step = 0;
    if (format->bits == 16 || head->shape->arithmetic == TQ_REF_FLOATS)
        return;
    tq_ref_rotate(format, TQ_SIDE_K, q, NULL, query->rotated);
    query->step = q_step(head->shape, query->rotated);
}

/* Of q . k_j. */
static double product_error(const ref_head *head, const ref_query *query, int j) {
    const int d = head->d, is_f16 = head->k.scale[j] == 0;
    const size_t at = (size_t)j * (size_t)d;
    double rounding = (is_f16 ? 0 : query->step / sqrt(12)) + 4 * UNIT_ROUNDOFF * query->norm;
    double error = LAMBDA * head->k.norm[j] * rounding;
    if (head->shape->arithmetic == TQ_REF_HALVES)
        error += half_error(is_f16 ? 0 : decode_roundings(head->shape->k), d, is_f16 ? query->x : query->rotated,
                            head->k.stored + at, head->k.alike + at);
    return error;
}

/* Fills p with logits, then with softmax weights; returns the log of the denominator. */
static double softmax(ref_head *head, const tq_decode_args *args, int s, const float *q, int query_head) {
    int d = head->d, n_pairs = args->bias ? args->bias->n_pairs : 0;
    double sink = sink_logit(args, query_head), largest = sink;
    ref_query query;
    prepare(head, q, &query);
    for (int j = head->begin; j < head->n_kv; j++) {
        const double *k = head->k.x + (size_t)j * (size_t)d;
        double z = 0, alibi = args->alibi ? (double)args->alibi[query_head] * (j - (head->n_kv - 1)) : 0, size = 0;
        for (int i = 0; i < d; i++)
            z += (double)q[i] * k[i];
        if (args->bias)
            z += score_bias(head, args->bias, s, query_head, j, &size);
        z *= (double)args->scale;
        if (args->softcap > 0)
            z = (double)args->softcap * tanh(z / (double)args->softcap);
        head->p[j] = z + alibi;
        double bias_error = LAMBDA * UNIT_ROUNDOFF * sqrt(2 * n_pairs + 16) * size;
        head->logit_error[j] = (double)args->scale * (product_error(head, &query, j) + bias_error) +
                               16 * UNIT_ROUNDOFF * (1 + fabs(z) + fabs(alibi) + (double)args->softcap);
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

/* Step of the softmax weights, in units of p times stored scale times format step. */
static double weight_step(const ref_head *head) {
    double largest = 0, largest_p = 0, sum = 0;
    if (head->shape->arithmetic == TQ_REF_FLOATS)
        return 0;
    for (int j = head->begin; j < head->n_kv; j++) {
        double weight = head->p[j] * head->v.scale[j];
        largest_p = fmax(largest_p, head->p[j]);
        largest = fmax(largest, weight);
        sum += weight;
    }
    if (head->shape->arithmetic == TQ_REF_HALVES)
        return HALF_STEP * largest_p;
    return fmax(largest / INTEGER_MAX, fmin(sum, TILE * largest) / integer_sum(head->shape->v));
}

/* Is the weight of key j less than half a step? */
static int is_lost(const ref_head *head, int j, double step) {
    double scale = head->v.scale[j];
    if (head->shape->arithmetic == TQ_REF_HALVES)
        return head->p[j] * (scale > 0 ? fmin(scale, 1) : 1) < 0.5 * step;
    return scale > 0 && head->p[j] * scale < 0.5 * step;
}

/* Sums over keys of what one value of the output depends on. */
typedef struct ref_sums {
    double logits, logit_squares; /* errors of the logits */
    double lost, unit_squares;    /* weights lost, and the vectors that steps of weights multiply */
    double size, size_squares;    /* p |v| */
} ref_sums;

static void add_key(const ref_head *head, int j, double step, const double *out, ref_sums *sums) {
    const tq_format_spec *format = head->shape->v;
    const int d = head->v_values, halves = head->shape->arithmetic == TQ_REF_HALVES;
    const double *v = head->v.x + (size_t)j * (size_t)d, *unit = head->v.unit + (size_t)j * (size_t)d;
    double p = head->p[j], grown = p * expm1(head->logit_error[j]);
    double spread = format->rotated ? 1 / sqrt(format->chunks[0].size) : 0;
    double v_spread = spread * head->v.norm[j], unit_spread = spread * head->v.unit_norm[j];
    int lost = is_lost(head, j, step);
    for (int i = 0; i < d; i++) {
        double moved = grown * fabs(v[i] - out[i]), size = p * (fabs(v[i]) + v_spread);
        sums[i].logits += moved;
        sums[i].logit_squares += moved * moved;
        sums[i].size += size;
        sums[i].size_squares += size * size;
        sums[i].lost += lost ? size : 0;
        sums[i].unit_squares += unit[i] * unit[i] + unit_spread * unit_spread;
        if (halves) /* weights are rounded before the scale is in them, too */
            sums[i].unit_squares += v[i] * v[i] + v_spread * v_spread;
    }
}

static void weigh(const ref_head *head, double p_sink, double sink_error, double *out, double *bound) {
    int d = head->v_values, n = head->n_kv - head->begin;
    double step = weight_step(head), max_error = sink_error;
    ref_sums sums[TQ_MAX_HEAD_DIM] = {{0}};
    memset(out, 0, (size_t)d * sizeof(double));
    for (int j = head->begin; j < head->n_kv; j++) {
        for (int i = 0; i < d; i++)
            out[i] += head->p[j] * head->v.x[(size_t)j * (size_t)d + (size_t)i];
        max_error = fmax(max_error, head->logit_error[j]);
    }
    for (int j = head->begin; j < head->n_kv; j++)
        add_key(head, j, step, out, sums);
    for (int i = 0; i < d; i++) {
        double logits = sums[i].logits, halves = 0;
        if (head->shape->arithmetic == TQ_REF_HALVES) {
            logits = fmin(logits, sqrt(sums[i].logit_squares));
            halves = HALF_ROUNDOFF * rounded(2 + decode_roundings(head->shape->v), sums[i].size, sums[i].size_squares);
        }
        logits += p_sink * expm1(sink_error) * fabs(out[i]);
        bound[i] = exp(max_error) * logits + sums[i].lost + LAMBDA * step * sqrt(sums[i].unit_squares / 12) + halves +
                   LAMBDA * UNIT_ROUNDOFF * sqrt(n + d) * sums[i].size + 0x1p-126;
    }
}

static void attend(ref_head *head, const tq_decode_args *args, int s, int query_head, double *out, double *bound,
                   double *lse, double *lse_bound) {
    const float *q = args->q + (size_t)s * args->q_seq_stride + (size_t)query_head * args->q_head_stride;
    double log_sum = softmax(head, args, s, q, query_head);
    double sink = sink_logit(args, query_head);
    double sink_error = sink > -INFINITY ? 16 * UNIT_ROUNDOFF * (1 + fabs(sink)) : 0;
    weigh(head, sink > -INFINITY ? exp(sink - log_sum) : 0, sink_error, out, bound);
    if (lse) {
        double error = sink_error;
        for (int j = head->begin; j < head->n_kv; j++)
            error = fmax(error, head->logit_error[j]);
        *lse = log_sum;
        if (head->shape->arithmetic == TQ_REF_HALVES) /* the sum may be of rounded weights */
            error += HALF_ROUNDOFF;
        *lse_bound = isinf(log_sum) ? 0 : error + 16 * UNIT_ROUNDOFF * (1 + fabs(log_sum));
    }
}

/* Arrays for n rows of d values from memory on, which moves behind them. */
static ref_rows rows_in(double **memory, size_t n, size_t d) {
    double *x = *memory, *of_rows = x + ARRAYS_OF_VALUES * n * d;
    *memory = of_rows + ARRAYS_OF_ROWS * n;
    return (ref_rows){x, x + n * d, x + 2 * n * d, of_rows, of_rows + n, of_rows + 2 * n, NULL};
}

/* All sequences read the same rows. */
static int one_cache(const tq_decode_args *args) {
    return !args->k->seq_stride && !args->v->seq_stride && !args->k->pages && !args->n_sink;
}

int tq_ref_attention(const tq_ref_shape *shape, const tq_decode_args *args, double *out, double *bound, double *lse,
                     double *lse_bound) {
    int n_max = 1, d = shape->k->head_dim, v_values = shape->v->head_dim, n_heads = shape->n_kv_heads * shape->gqa;
    for (int s = 0; s < args->batch; s++)
        n_max = args->n_kv[s] > n_max ? args->n_kv[s] : n_max;
    const size_t n = (size_t)n_max, of_k = (size_t)d, of_v = (size_t)v_values;
    const size_t of_bias = args->bias ? 2 * (size_t)args->bias->n_pairs : 0;
    double *memory = malloc(n * (ARRAYS_OF_VALUES * (of_k + of_v) + 2 * ARRAYS_OF_ROWS + 2 + of_bias) * sizeof(double));
    int *alike = shape->arithmetic == TQ_REF_HALVES ? malloc(n * of_k * sizeof *alike) : NULL;
    if (!memory || (shape->arithmetic == TQ_REF_HALVES && !alike)) {
        free(memory);
        free(alike);
        return -1;
    }
    double *rest = memory;
    ref_head head = {.shape = shape, .d = d, .v_values = v_values};
    head.k = rows_in(&rest, n, of_k);
    head.v = rows_in(&rest, n, of_v);
    head.k.alike = alike;
    head.p = rest;
    head.logit_error = rest + n;
    head.turned = rest + 2 * n;
    if (args->bias)
        turn_pairs(args->bias, n_max, rest + 2 * n);
    for (int kv_head = 0; kv_head < shape->n_kv_heads; kv_head++)
        for (int s = 0; s < args->batch; s++) {
            head.n_kv = args->n_kv[s];
            head.begin = args->window > 0 && head.n_kv > args->window ? head.n_kv - args->window : 0;
            const int rows = one_cache(args) ? s ? 0 : n_max : head.n_kv; /* to decode */
            decode_rows(shape->k, TQ_SIDE_K, args->k, args->sink_k, args->n_sink, s, kv_head, rows, &head.k);
            decode_rows(shape->v, TQ_SIDE_V, args->v, args->sink_v, args->n_sink, s, kv_head, rows, &head.v);
            for (int h = kv_head * shape->gqa; h < (kv_head + 1) * shape->gqa; h++) {
                size_t at = (size_t)s * (size_t)n_heads + (size_t)h;
                attend(&head, args, s, h, out + at * of_v, bound + at * of_v, lse ? &lse[at] : NULL,
                       lse ? &lse_bound[at] : NULL);
            }
        }
    free(memory);
    free(alike);
    return 0;
}
