/* measure.c: TQ_EFFORT_MEASURE: times every candidate of a plan on one thread, interleaved, and takes medians. */
#define _POSIX_C_SOURCE 200809L
#include "internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    CACHE_BYTES = 64 << 20, /* per side, at most */
    APPEND_TOKENS = 256,
    MIN_ROUNDS = 3,
    MAX_ROUNDS = 31,
};
static const double budget_ns = 0.2e9; /* per candidate */

/* Everything that one launch of each op touches. */
typedef struct bench {
    int n_kv;
    tq_cache k, v; /* append and dequantise work on k, whichever side they are for */
    float *x, *out;
    void *workspace;
    size_t workspace_bytes;
    tq_plan *trial; /* the plan, running one candidate after the other */
} bench;

static void *allocate(size_t bytes) {
    return aligned_alloc(TQ_ALIGN, (bytes + TQ_ALIGN - 1) / TQ_ALIGN * TQ_ALIGN);
}

static uint32_t random_bits(uint32_t *state) {
    return *state = *state * 1664525u + 1013904223u;
}

static int make_cache(tq_cache *cache, const tq_plan *plan, int row_bytes, int n_slots, uint32_t *seed) {
    size_t token = (size_t)row_bytes, head = token * (size_t)n_slots, all = head * (size_t)plan->n_kv_heads;
    uint8_t *data = allocate(all);
    *cache = (tq_cache){data, all, all, head, token, n_slots};
    for (size_t i = 0; data && i < all; i++) /* bit 6 clear: no f16 in there is NaN or Inf */
        data[i] = (uint8_t)(random_bits(seed) >> 24) & 0xbf;
    return data != NULL;
}

static int make_floats(float **out, size_t n, uint32_t *seed) {
    *out = allocate(n * sizeof **out);
    for (size_t i = 0; *out && i < n; i++)
        (*out)[i] = (float)(int32_t)random_bits(seed) * 0x1p-31f;
    return *out != NULL;
}

/* Candidates differ in what they need. */
static size_t largest_workspace(const tq_plan *plan, tq_plan *trial) {
    size_t most = 0;
    for (int i = 0; i < plan->n_candidates; i++) {
        trial->variant = plan->candidates[i];
        tq_workspace_layout(trial);
        most = trial->workspace_bytes > most ? trial->workspace_bytes : most;
    }
    return most;
}

static int make_bench(bench *b, const tq_plan *plan) {
    int decode = plan->op == TQ_OP_DECODE;
    int k_bytes = decode ? plan->candidates[0]->k->row_bytes : plan->format->row_bytes;
    int v_bytes = decode ? plan->candidates[0]->v->row_bytes : plan->head_dim * (int)sizeof(float); /* rows of x */
    int most = CACHE_BYTES / plan->n_kv_heads / (k_bytes > v_bytes ? k_bytes : v_bytes);
    int wanted = decode ? plan->max_n_kv : APPEND_TOKENS;
    b->n_kv = wanted < most ? wanted : most;
    size_t rows = (size_t)plan->n_kv_heads * (size_t)(decode ? plan->gqa : b->n_kv);
    uint32_t seed = 1;
    if (!(b->trial = malloc(sizeof *plan)))
        return 0;
    memcpy(b->trial, plan, sizeof *plan);
    b->workspace_bytes = largest_workspace(plan, b->trial);
    b->workspace = allocate(b->workspace_bytes + 1);
    return b->workspace && make_floats(&b->x, rows * (size_t)plan->head_dim, &seed) &&
           make_floats(&b->out, rows * (size_t)plan->head_dim, &seed) &&
           make_cache(&b->k, plan, k_bytes, b->n_kv, &seed) &&
           (!decode || make_cache(&b->v, plan, v_bytes, b->n_kv, &seed));
}

static void free_bench(bench *b) {
    free(b->k.data);
    free(b->v.data);
    free(b->x);
    free(b->out);
    free(b->workspace);
    free(b->trial);
}

static tq_status launch_once(const bench *b) {
    const tq_plan *plan = b->trial;
    const tq_launch alone = {b->workspace, b->workspace_bytes, 0, 1};
    const int32_t zero = 0, n_kv = b->n_kv;
    size_t d = (size_t)plan->head_dim, token = d * (size_t)plan->n_kv_heads;
    if (plan->op == TQ_OP_DECODE) {
        tq_decode_args args = {.batch = 1,
                               .q = b->x,
                               .q_head_stride = d,
                               .k = &b->k,
                               .v = &b->v,
                               .n_kv = &n_kv,
                               .scale = 1 / sqrtf((float)d),
                               .out = b->out,
                               .out_head_stride = d};
        return tq_decode(plan, &args, &alone);
    }
    if (plan->op == TQ_OP_APPEND) {
        tq_append_args args = {.batch = 1,
                               .n_tokens = n_kv,
                               .x = b->x,
                               .x_token_stride = token,
                               .x_head_stride = d,
                               .first_slot = &zero,
                               .cache = &b->k};
        return tq_append(plan, &args, &alone);
    }
    tq_dequantise_args args = {.batch = 1,
                               .n_tokens = n_kv,
                               .cache = &b->k,
                               .first_slot = &zero,
                               .x = b->out,
                               .x_token_stride = token,
                               .x_head_stride = d};
    return tq_dequantise(plan, &args, &alone);
}

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* samples: [n_candidates][MAX_ROUNDS] */
static tq_status run_rounds(bench *b, const tq_plan *plan, double *samples, double *median_ns) {
    double start = now_ns();
    int rounds = 0, n = plan->n_candidates;
    while (rounds < MIN_ROUNDS || (rounds < MAX_ROUNDS && now_ns() - start < budget_ns * n)) {
        for (int i = 0; i < n; i++) {
            b->trial->variant = plan->candidates[i];
            tq_workspace_layout(b->trial);
            tq_status status = tq_workspace_init(b->trial, b->workspace, b->workspace_bytes);
            if (status)
                return status;
            double before = now_ns();
            if ((status = launch_once(b)))
                return status;
            samples[i * MAX_ROUNDS + rounds] = now_ns() - before;
        }
        rounds++;
    }
    for (int i = 0; i < n; i++) {
        qsort(samples + i * MAX_ROUNDS, (size_t)rounds, sizeof *samples, by_value);
        median_ns[i] = samples[i * MAX_ROUNDS + rounds / 2];
    }
    return TQ_OK;
}

tq_status tq_measure(const tq_plan *plan, double *median_ns, int *n_kv) {
    bench b = {0};
    double *samples = malloc((size_t)plan->n_candidates * MAX_ROUNDS * sizeof *samples);
    tq_status status = samples && make_bench(&b, plan)
                           ? run_rounds(&b, plan, samples, median_ns)
                           : tq_fail(TQ_ERR_MEMORY, "tq_plan_create: out of memory for measuring");
    *n_kv = b.n_kv;
    free_bench(&b);
    free(samples);
    return status;
}
