#include "attend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* Four floats anywhere; spelt out, because compilers turn the plain loops into a tangle of shuffles. */
typedef float lanes __attribute__((vector_size(16), aligned(4), may_alias));

/* Queries and keys (or values of a row) that one pass of the inner loop works on. */
enum { ROWS = 4, COLS = 8, TASK_QUERIES = 64 };

typedef struct sums {
    double kl, top1, out_err;
} sums;

typedef struct comparison {
    const npy *q, *k, *v;
    int n_formats, n_blocks;   /* blocks of TASK_QUERIES queries per head */
    size_t stride;             /* floats per row of scores: tokens rounded up to COLS */
    float **k_tiles;           /* [1 + n_formats][heads][tokens / COLS][head_dim][COLS]; the first is k itself */
    const float *const *v_hat; /* [1 + n_formats] */
    sums *sums;                /* [task][n_formats] */
} comparison;

/* out[r][c] = sum_i a[r][i] * b[i][c] */
static void multiply_tile(const float *a, size_t a_stride, const float *b, size_t b_stride, int n, float *out,
                          size_t out_stride) {
    lanes left[ROWS] = {{0}}, right[ROWS] = {{0}};
    for (int i = 0; i < n; i++, a++, b += b_stride) {
        const lanes b_left = *(const lanes *)b, b_right = *(const lanes *)(b + COLS / 2);
        for (int r = 0; r < ROWS; r++) {
            left[r] += a[(size_t)r * a_stride] * b_left;
            right[r] += a[(size_t)r * a_stride] * b_right;
        }
    }
    for (int r = 0; r < ROWS; r++, out += out_stride) {
        *(lanes *)out = left[r];
        *(lanes *)(out + COLS / 2) = right[r];
    }
}

/* Keys side by side, so that the inner loop runs over keys. */
static float *tile_keys(const npy *k, const float *data) {
    const int d = k->head_dim, tiles = (k->tokens + COLS - 1) / COLS;
    float *out = cli_alloc((size_t)k->heads * (size_t)tiles * (size_t)d * COLS, sizeof *out);
    for (int h = 0; h < k->heads; h++) {
        for (int t = 0; t < k->tokens; t++) {
            const float *row = data + ((size_t)h * (size_t)k->tokens + (size_t)t) * (size_t)d;
            float *tile = out + ((size_t)h * (size_t)tiles + (size_t)(t / COLS)) * (size_t)d * COLS + t % COLS;
            for (int i = 0; i < d; i++)
                tile[i * COLS] = row[i];
        }
    }
    return out;
}

/* Attention of ROWS queries that stand at first, first + 1, ... */
typedef struct attention {
    float *scores, *weights; /* [ROWS][stride] */
    float *out;              /* [ROWS][head_dim of V], not yet divided by sum */
    double lse[ROWS], sum[ROWS];
    int top[ROWS];
} attention;

static void softmax(attention *a, size_t stride, int row, int n_keys, int n_padded) {
    const float *s = a->scores + (size_t)row * stride;
    float *w = a->weights + (size_t)row * stride;
    int top = 0;
    for (int j = 1; j < n_keys; j++)
        top = s[j] > s[top] ? j : top;
    double sum = 0;
    for (int j = 0; j < n_keys; j++) {
        w[j] = expf(s[j] - s[top]);
        sum += w[j];
    }
    memset(w + n_keys, 0, (size_t)(n_padded - n_keys) * sizeof *w);
    a->top[row] = top;
    a->sum[row] = sum;
    a->lse[row] = s[top] + log(sum);
}

static void attend(const comparison *c, int source, int q_head, int first, const float *q, attention *a) {
    const int d = c->k->head_dim, v_values = c->v->head_dim, kv_head = q_head / (c->q->heads / c->k->heads);
    const int n_padded = (first + ROWS + COLS - 1) / COLS * COLS;
    const size_t head_floats = c->stride * (size_t)d, v_head = (size_t)c->v->tokens * (size_t)v_values;
    const float *k = c->k_tiles[source] + (size_t)kv_head * head_floats,
                *v = c->v_hat[source] + (size_t)kv_head * v_head;
    for (int j = 0; j < n_padded; j += COLS)
        multiply_tile(q, (size_t)d, k + (size_t)j * (size_t)d, COLS, d, a->scores + j, c->stride);
    for (int r = 0; r < ROWS; r++)
        softmax(a, c->stride, r, first + r + 1 < c->k->tokens ? first + r + 1 : c->k->tokens, n_padded);
    int n_keys = first + ROWS < c->k->tokens ? first + ROWS : c->k->tokens;
    for (int i = 0; i < v_values; i += COLS)
        multiply_tile(a->weights, c->stride, v + i, (size_t)v_values, n_keys, a->out + i, (size_t)v_values);
}

static void compare_row(const comparison *c, const attention *exact, const attention *hat, int row, int n_keys,
                        sums *s) {
    const float *w = exact->weights + (size_t)row * c->stride, *a = exact->scores + (size_t)row * c->stride;
    const float *b = hat->scores + (size_t)row * c->stride;
    const size_t d = (size_t)c->v->head_dim;
    double shift = 0;
    for (int j = 0; j < n_keys; j++)
        shift += (double)w[j] * (a[j] - b[j]);
    s->kl += shift / exact->sum[row] - exact->lse[row] + hat->lse[row];
    s->top1 += exact->top[row] == hat->top[row];
    double error = 0, power = 0;
    for (size_t i = 0; i < d; i++) {
        double o = exact->out[(size_t)row * d + i] / exact->sum[row];
        double delta = o - hat->out[(size_t)row * d + i] / hat->sum[row];
        error += delta * delta;
        power += o * o;
    }
    s->out_err += power > 0 ? error / power : 0;
}

static attention attention_new(const comparison *c) {
    attention a = {.scores = cli_alloc(ROWS * c->stride + COLS, sizeof(float)),
                   .weights = cli_alloc(ROWS * c->stride + COLS, sizeof(float)),
                   .out = cli_alloc(ROWS * (size_t)c->v->head_dim, sizeof(float))};
    return a;
}

static void attention_free(attention *a) {
    free(a->scores);
    free(a->weights);
    free(a->out);
}

/* One task: TASK_QUERIES queries of one head, in every format. */
static void run_task(void *context, int task) {
    const comparison *c = context;
    const int d = c->q->head_dim, tokens = c->q->tokens, q_head = task / c->n_blocks;
    const int begin = task % c->n_blocks * TASK_QUERIES,
              end = begin + TASK_QUERIES < tokens ? begin + TASK_QUERIES : tokens;
    const float scale = 1 / sqrtf((float)d);
    float *q = cli_alloc((size_t)(ROWS * d), sizeof *q);
    attention exact = attention_new(c), hat = attention_new(c);
    for (int first = begin; first < end; first += ROWS) {
        const int rows = end - first < ROWS ? end - first : ROWS;
        const float *from = c->q->data + ((size_t)q_head * (size_t)tokens + (size_t)first) * (size_t)d;
        for (int i = 0; i < ROWS * d; i++)
            q[i] = i < rows * d ? scale * from[i] : 0;
        attend(c, 0, q_head, first, q, &exact);
        for (int f = 0; f < c->n_formats; f++) {
            attend(c, 1 + f, q_head, first, q, &hat);
            for (int r = 0; r < rows; r++)
                compare_row(c, &exact, &hat, r, first + r + 1, &c->sums[task * c->n_formats + f]);
        }
    }
    attention_free(&exact);
    attention_free(&hat);
    free(q);
}

void attend_compare(pool *p, const npy *q, const npy *k, const npy *v, int n_formats, float *const *k_hat,
                    float *const *v_hat, attend_result *results) {
    const int n_blocks = (q->tokens + TASK_QUERIES - 1) / TASK_QUERIES, n_tasks = q->heads * n_blocks;
    const int n_sources = 1 + n_formats;
    const float **v_sources = cli_alloc((size_t)n_sources, sizeof *v_sources);
    comparison c = {.q = q, .k = k, .v = v, .n_formats = n_formats, .n_blocks = n_blocks};
    c.stride = ((size_t)k->tokens + COLS - 1) / COLS * COLS;
    c.k_tiles = cli_alloc((size_t)n_sources, sizeof *c.k_tiles);
    c.v_hat = v_sources;
    c.sums = cli_alloc((size_t)n_tasks * (size_t)n_formats, sizeof *c.sums);
    for (int i = 0; i < n_sources; i++) {
        c.k_tiles[i] = tile_keys(k, i ? k_hat[i - 1] : k->data);
        v_sources[i] = i ? v_hat[i - 1] : v->data;
    }
    pool_each(p, n_tasks, run_task, &c);
    for (int f = 0; f < n_formats; f++) {
        sums total = {0};
        for (int t = 0; t < n_tasks; t++) {
            const sums *s = &c.sums[t * n_formats + f];
            total.kl += s->kl;
            total.top1 += s->top1;
            total.out_err += s->out_err;
        }
        const double queries = (double)q->heads * q->tokens;
        results[f] = (attend_result){total.kl / queries, total.top1 / queries, total.out_err / queries};
    }
    for (int i = 0; i < n_sources; i++)
        free(c.k_tiles[i]);
    free(c.k_tiles);
    free(v_sources);
    free(c.sums);
}
