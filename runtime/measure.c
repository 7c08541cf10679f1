/* measure.c: TQ_EFFORT_MEASURE: times every candidate of a plan on its device, from one thread, interleaved, and takes
 * medians. */
#include "internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CACHE_BYTES = 64 << 20, /* per side, at most */
    APPEND_TOKENS = 256,
    QUERIES = 128,     /* prefill */
    SIMT_TOKENS = 256, /* the executor is slow, and its clock exact */
    MIN_ROUNDS = 3,
    MAX_ROUNDS = 31,
};
static const double budget_ns = 0.2e9; /* per candidate */

/* Everything that one launch of each op touches, in memory of the device. */
typedef struct bench {
    const tq_device *device;
    int n_kv;
    int n_query;   /* prefill: the last of n_kv tokens; decode: 1 */
    tq_cache k, v; /* append and dequantise work on k, whichever side they are for; repack: k is rows, v tiles */
    float *x, *out;
    int32_t *counts; /* n_kv, 0, n_query */
    void *workspace;
    size_t workspace_bytes;
    tq_plan *trial; /* the plan, running one candidate after the other */
    tq_timer *timer;
} bench;

static uint32_t random_bits(uint32_t *state) {
    return *state = *state * 1664525u + 1013904223u;
}

/* Takes over host, which may be NULL for lack of memory. */
static tq_status to_device(const bench *b, void *host, size_t bytes, void **out) {
    tq_status status =
        host ? tq_device_alloc(b->device, bytes, out) : tq_fail(TQ_ERR_MEMORY, "out of memory for measuring");
    if (!status)
        status = tq_device_copy_in(b->device, *out, host, bytes);
    free(host);
    return status;
}

static tq_status make_cache(const bench *b, tq_cache *cache, const tq_plan *plan, const tq_format_spec *format,
                            int keys_per_unit, uint32_t *seed) {
    size_t unit = tq_unit_bytes(format, plan->candidates[0]->layout, keys_per_unit);
    size_t head = unit * (size_t)((b->n_kv - 1) / keys_per_unit + 1), all = head * (size_t)plan->n_kv_heads;
    uint8_t *data = malloc(all);
    *cache = (tq_cache){.bytes = all, .seq_stride = all, .head_stride = head, .token_stride = unit, .n_slots = b->n_kv};
    for (size_t i = 0; data && i < all; i++) /* no f16 in there is NaN, Inf or negative, as scales are not */
        data[i] = (uint8_t)(random_bits(seed) >> 24) & 0x3f;
    return to_device(b, data, all, &cache->data);
}

static tq_status make_floats(const bench *b, float **out, size_t n, uint32_t *seed) {
    float *x = malloc(n * sizeof *x);
    void *memory = NULL;
    for (size_t i = 0; x && i < n; i++)
        x[i] = (float)(int32_t)random_bits(seed) * 0x1p-31f;
    tq_status status = to_device(b, x, n * sizeof *x, &memory);
    *out = memory;
    return status;
}

static tq_status make_counts(bench *b) {
    int32_t *counts = calloc(3, sizeof *counts);
    void *memory = NULL;
    if (counts) {
        counts[0] = b->n_kv;
        counts[2] = b->n_query;
    }
    tq_status status = to_device(b, counts, 3 * sizeof *counts, &memory);
    b->counts = memory;
    return status;
}

/* Candidates differ in what they need. */
static tq_status make_workspace(bench *b, const tq_plan *plan) {
    for (int i = 0; i < plan->n_candidates; i++) {
        tq_status status = tq_plan_use(b->trial, plan->candidates[i]);
        if (status)
            return status;
        if (b->trial->workspace_bytes > b->workspace_bytes)
            b->workspace_bytes = b->trial->workspace_bytes;
    }
    return tq_device_alloc(b->device, b->workspace_bytes, &b->workspace);
}

static int tokens_of(const tq_plan *plan) {
    int decode = tq_attends(plan->op);
    int k_bytes = decode ? plan->candidates[0]->k->row_bytes : plan->format->row_bytes;
    int v_bytes = decode ? plan->candidates[0]->v->row_bytes : plan->head_dim * (int)sizeof(float); /* rows of x */
    int most = CACHE_BYTES / plan->n_kv_heads / (k_bytes > v_bytes ? k_bytes : v_bytes);
    int wanted = decode ? plan->max_n_kv : APPEND_TOKENS;
    if (plan->device->kind == TQ_KIND_SIMT && wanted > SIMT_TOKENS)
        wanted = SIMT_TOKENS;
    return wanted < most ? wanted : most;
}

static tq_status make_bench(bench *b, const tq_plan *plan) {
    const tq_variant *first = plan->candidates[0];
    size_t size = sizeof *plan + (size_t)plan->n_candidates * sizeof *plan->candidates;
    int decode = tq_attends(plan->op), repack = plan->op == TQ_OP_REPACK;
    int keys = first->gpu && strcmp(first->layout, "rows") != 0 ? first->gpu->keys_per_tile : 1;
    uint32_t seed = 1;
    tq_status status;
    b->n_kv = tokens_of(plan);
    b->n_query = plan->op != TQ_OP_PREFILL ? 1 : b->n_kv < QUERIES ? b->n_kv : QUERIES;
    size_t rows = (size_t)plan->n_kv_heads * (size_t)(decode ? b->n_query * plan->gqa : b->n_kv);
    if (!(b->trial = malloc(size)))
        return tq_fail(TQ_ERR_MEMORY, "out of memory for measuring");
    memcpy(b->trial, plan, size);
    if ((status = make_workspace(b, plan)) || (status = make_counts(b)) ||
        (status = make_floats(b, &b->x, rows * (size_t)plan->head_dim, &seed)) ||
        (status = make_floats(b, &b->out, rows * (size_t)plan->head_dim, &seed)) ||
        (status = make_cache(b, &b->k, plan, decode ? first->k : plan->format, repack ? 1 : keys, &seed)) ||
        (status = tq_timer_create(b->device, &b->timer)))
        return status;
    return decode || repack ? make_cache(b, &b->v, plan, decode ? first->v : plan->format, keys, &seed) : TQ_OK;
}

static void free_bench(bench *b) {
    void *const memory[] = {b->k.data, b->v.data, b->x, b->out, b->counts, b->workspace};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        tq_device_free(b->device, memory[i]);
    tq_timer_destroy(b->timer);
    free(b->trial);
}

static tq_status launch_once(const bench *b) {
    const tq_plan *plan = b->trial;
    const tq_launch alone = {.workspace = b->workspace, .workspace_bytes = b->workspace_bytes, .thread_count = 1};
    const int32_t *n_kv = b->counts, *zero = b->counts + 1;
    size_t d = (size_t)plan->head_dim, token = d * (size_t)plan->n_kv_heads;
    if (plan->op == TQ_OP_DECODE) {
        tq_decode_args args = {.batch = 1,
                               .q = b->x,
                               .q_head_stride = d,
                               .k = &b->k,
                               .v = &b->v,
                               .n_kv = n_kv,
                               .scale = 1 / sqrtf((float)d),
                               .out = b->out,
                               .out_head_stride = d};
        return tq_decode(plan, &args, &alone);
    }
    if (plan->op == TQ_OP_PREFILL) {
        tq_prefill_args args = {.batch = 1,
                                .max_query = b->n_query,
                                .q = b->x,
                                .q_token_stride = token * (size_t)plan->gqa,
                                .q_head_stride = d,
                                .k = &b->k,
                                .v = &b->v,
                                .n_kv = n_kv,
                                .n_query = b->counts + 2,
                                .scale = 1 / sqrtf((float)d),
                                .causal = 1,
                                .out = b->out,
                                .out_token_stride = token * (size_t)plan->gqa,
                                .out_head_stride = d};
        return tq_prefill(plan, &args, &alone);
    }
    if (plan->op == TQ_OP_APPEND) {
        tq_append_args args = {.batch = 1,
                               .n_tokens = b->n_kv,
                               .x = b->x,
                               .x_token_stride = token,
                               .x_head_stride = d,
                               .first_slot = zero,
                               .cache = &b->k};
        return tq_append(plan, &args, &alone);
    }
    if (plan->op == TQ_OP_REPACK) {
        tq_repack_args args = {
            .batch = 1, .n_tokens = b->n_kv, .rows = &b->k, .tiles = &b->v, .first_slot = zero, .to_tiles = 1};
        return tq_repack(plan, &args, &alone);
    }
    tq_dequantise_args args = {.batch = 1,
                               .n_tokens = b->n_kv,
                               .cache = &b->k,
                               .first_slot = zero,
                               .x = b->out,
                               .x_token_stride = token,
                               .x_head_stride = d};
    return tq_dequantise(plan, &args, &alone);
}

static tq_status time_once(const bench *b, double *ns) {
    tq_status status = tq_workspace_init(b->trial, b->workspace, b->workspace_bytes);
    if (status || (status = tq_timer_start(b->timer, NULL)) || (status = launch_once(b)))
        return status;
    return tq_timer_stop(b->timer, NULL, ns);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* samples: [n_candidates][MAX_ROUNDS] */
static tq_status run_rounds(bench *b, const tq_plan *plan, double *samples, double *median_ns) {
    double start = tq_now_ns();
    int rounds = 0, n = plan->n_candidates;
    while (rounds < MIN_ROUNDS || (rounds < MAX_ROUNDS && tq_now_ns() - start < budget_ns * n)) {
        for (int i = 0; i < n; i++) {
            tq_status status = tq_plan_use(b->trial, plan->candidates[i]);
            if (status || (status = time_once(b, &samples[i * MAX_ROUNDS + rounds])))
                return status;
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
    bench b = {.device = plan->device};
    double *samples = malloc((size_t)plan->n_candidates * MAX_ROUNDS * sizeof *samples);
    tq_status status = samples ? make_bench(&b, plan) : tq_fail(TQ_ERR_MEMORY, "out of memory for measuring");
    if (!status)
        status = run_rounds(&b, plan, samples, median_ns);
    *n_kv = b.n_kv;
    free_bench(&b);
    free(samples);
    return status;
}
