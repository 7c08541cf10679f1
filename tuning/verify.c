#include "verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "reference.h"
#include "stats.h"

enum { KV_HEADS = 2, BATCH = 4, SLOTS = 300, SINKS = 3 };

/* Around a tile of 128 keys, in every sequence of one batch. */
static const int32_t lengths[BATCH] = {1, 127, 129, SLOTS};

typedef struct trial {
    const contract *c;
    pool *pool;
    const tq_device *device;
    rng rng;
} trial;

static float *gaussian(trial *t, size_t n) {
    float *x = cli_alloc(n, sizeof *x);
    rng_fill_gaussian(&t->rng, x, n);
    return x;
}

static const tq_format_spec *spec_of(const char *format, int head_dim) {
    const tq_format_spec *spec;
    cli_check(tq_format_lookup("format", format, head_dim, &spec));
    return spec;
}

static tq_cache new_cache(const tq_format_spec *spec) {
    tq_cache cache = {.token_stride = (size_t)spec->row_bytes, .n_slots = SLOTS};
    cache.head_stride = cache.token_stride * SLOTS;
    cache.seq_stride = cache.head_stride * KV_HEADS;
    cache.bytes = cache.seq_stride * BATCH;
    cache.data = cli_alloc_aligned(cache.bytes);
    memset(cache.data, 0, cache.bytes);
    return cache;
}

static const uint8_t *row_of(const tq_cache *cache, int i) {
    return (const uint8_t *)cache->data + (size_t)i * cache->token_stride; /* rows are contiguous here */
}

/* ---- launches on the pool --------------------------------------------------------------------------------------- */

typedef struct flight {
    const tq_plan *plan;
    const tq_append_args *append;
    const tq_dequantise_args *dequantise;
    const tq_decode_args *decode;
    void *workspace;
    size_t workspace_bytes;
} flight;

static void fly(void *context, int thread_index, int thread_count) {
    const flight *f = context;
    const tq_launch launch = {f->workspace, f->workspace_bytes, thread_index, thread_count};
    cli_check(f->append       ? tq_append(f->plan, f->append, &launch)
              : f->dequantise ? tq_dequantise(f->plan, f->dequantise, &launch)
                              : tq_decode(f->plan, f->decode, &launch));
}

static tq_plan *plan_of(const trial *t, const contract *c, const char *variant, int splits) {
    tq_plan_desc desc = contract_plan(c, KV_HEADS, SLOTS, pool_threads(t->pool));
    desc.max_batch = BATCH;
    desc.n_splits = splits;
    desc.effort = variant ? TQ_EFFORT_PINNED : TQ_EFFORT_DEFAULT;
    desc.pin = variant;
    tq_plan *plan;
    cli_check(tq_plan_create(t->device, &desc, &plan));
    return plan;
}

/* x: [BATCH][SLOTS][KV_HEADS][head_dim] into every slot. */
static void append_all(const trial *t, const tq_plan *plan, const float *x, tq_cache *cache, tq_scale_mode mode) {
    static const int32_t first_slot[BATCH] = {0};
    const size_t head_dim = (size_t)t->c->head_dim;
    const tq_append_args args = {.batch = BATCH,
                                 .n_tokens = SLOTS,
                                 .x = x,
                                 .x_seq_stride = SLOTS * KV_HEADS * head_dim,
                                 .x_token_stride = KV_HEADS * head_dim,
                                 .x_head_stride = head_dim,
                                 .first_slot = first_slot,
                                 .cache = cache,
                                 .mode = mode};
    flight f = {.plan = plan, .append = &args};
    pool_run(t->pool, fly, &f);
}

static tq_cache random_cache(trial *t, tq_side side, const char *format) {
    contract c = {.op = TQ_OP_APPEND, .side = side, .head_dim = t->c->head_dim, .layout = t->c->layout};
    *(side == TQ_SIDE_K ? &c.k : &c.v) = format;
    tq_cache cache = new_cache(spec_of(format, c.head_dim));
    tq_plan *plan = plan_of(t, &c, NULL, 0);
    float *x = gaussian(t, (size_t)BATCH * SLOTS * KV_HEADS * (size_t)c.head_dim);
    append_all(t, plan, x, &cache, TQ_SCALE_DEFAULT);
    free(x);
    tq_plan_destroy(plan);
    return cache;
}

/* ---- decode ----------------------------------------------------------------------------------------------------- */

/* Decodes with the variant and with the reference. */
static double judge_decode(const trial *t, const char *variant, tq_decode_args *args, int splits) {
    const contract *c = t->c;
    const size_t heads = (size_t)(KV_HEADS * c->gqa), n = BATCH * heads * (size_t)c->head_dim;
    const tq_ref_shape shape = {spec_of(c->k, c->head_dim), spec_of(c->v, c->head_dim), KV_HEADS, c->gqa};
    tq_plan *plan = plan_of(t, c, variant, splits);
    size_t bytes = tq_plan_workspace_bytes(plan);
    flight f = {.plan = plan, .decode = args, .workspace = cli_alloc_aligned(bytes), .workspace_bytes = bytes};
    cli_check(tq_workspace_init(plan, f.workspace, bytes));
    args->out = cli_alloc(n, sizeof *args->out);
    args->out_seq_stride = heads * (size_t)c->head_dim;
    args->out_head_stride = (size_t)c->head_dim;
    pool_run(t->pool, fly, &f);

    double *expected = cli_alloc(n, sizeof *expected), *bound = cli_alloc(n, sizeof *bound);
    tq_ref_verdict verdict = {0};
    if (tq_ref_attention(&shape, args, expected, bound, NULL, NULL))
        cli_fail("out of memory in the reference");
    tq_ref_judge(n, args->out, expected, bound, &verdict);
    free(expected);
    free(bound);
    free(args->out);
    free(f.workspace);
    tq_plan_destroy(plan);
    return verdict.n_non_finite ? INFINITY : verdict.worst;
}

static double verify_decode(trial *t, const char *variant) {
    const contract *c = t->c;
    const size_t heads = (size_t)(KV_HEADS * c->gqa), head_dim = (size_t)c->head_dim;
    tq_cache k = random_cache(t, TQ_SIDE_K, c->k), v = random_cache(t, TQ_SIDE_V, c->v);
    float *q = gaussian(t, BATCH * heads * head_dim), *slopes = gaussian(t, heads), *sinks = gaussian(t, heads);
    tq_decode_args args = {.batch = BATCH,
                           .q = q,
                           .q_seq_stride = heads * head_dim,
                           .q_head_stride = head_dim,
                           .k = &k,
                           .v = &v,
                           .n_kv = lengths,
                           .scale = 1 / sqrtf((float)head_dim)};
    double plain = judge_decode(t, variant, &args, 1);

    /* Everything at once, and split. */
    tq_cache sink_k = random_cache(t, TQ_SIDE_K, "f16"), sink_v = random_cache(t, TQ_SIDE_V, "f16");
    for (size_t h = 0; h < heads; h++)
        slopes[h] = 0.01f * fabsf(slopes[h]);
    args.softcap = 20;
    args.window = 200;
    args.alibi = slopes;
    args.sink_logits = sinks;
    args.n_sink = SINKS;
    args.sink_k = &sink_k;
    args.sink_v = &sink_v;
    double full = judge_decode(t, variant, &args, 3);
    free(k.data);
    free(v.data);
    free(sink_k.data);
    free(sink_v.data);
    free(q);
    free(slopes);
    free(sinks);
    return fmax(plain, full);
}

/* ---- append, dequantise ----------------------------------------------------------------------------------------- */

static double squared_distance(const double *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
}

/* An encoder may break ties and search in its own way, but in no mode may its rows be worse than the plain ones. */
static double verify_append(trial *t, const char *variant) {
    const contract *c = t->c;
    const int d = c->head_dim, rows = BATCH * KV_HEADS * SLOTS;
    const tq_format_spec *spec = spec_of(c->side == TQ_SIDE_K ? c->k : c->v, d);
    static const struct {
        tq_scale_mode mode, plain;
    } trials[] = {{TQ_SCALE_NONE, TQ_SCALE_NONE}, {TQ_SCALE_NC, TQ_SCALE_NC}, {TQ_SCALE_DEFAULT, TQ_SCALE_NC}};
    double worst = 0, decoded[TQ_MAX_HEAD_DIM];
    tq_cache cache = new_cache(spec);
    tq_plan *plan = plan_of(t, c, variant, 0);
    float *x = gaussian(t, (size_t)rows * (size_t)d);
    uint8_t *plain_row = cli_alloc((size_t)spec->row_bytes, 1);
    for (int i = 0; i < CLI_COUNT(trials); i++) {
        if (trials[i].mode != TQ_SCALE_DEFAULT && !tq_has_word(spec->modes, tq_scale_mode_name(trials[i].mode)))
            continue;
        double found = 0, plain = 0;
        append_all(t, plan, x, &cache, trials[i].mode);
        for (int r = 0; r < rows; r++) {
            /* Cache rows run over (sequence, head, slot), x over (sequence, slot, head). */
            int slot = r % SLOTS, head = r / SLOTS % KV_HEADS, sequence = r / SLOTS / KV_HEADS;
            const float *value = x + (size_t)((sequence * SLOTS + slot) * KV_HEADS + head) * (size_t)d;
            tq_ref_decode_row(spec, c->side, row_of(&cache, r), NULL, decoded);
            found += squared_distance(decoded, value, d);
            tq_ref_encode_row(spec, c->side, value, NULL, spec->modes[0] ? trials[i].plain : TQ_SCALE_DEFAULT,
                              plain_row);
            tq_ref_decode_row(spec, c->side, plain_row, NULL, decoded);
            plain += squared_distance(decoded, value, d);
        }
        double error = found / (1.02 * plain);
        worst = isfinite(error) ? fmax(worst, error) : INFINITY;
    }
    free(plain_row);
    free(x);
    free(cache.data);
    tq_plan_destroy(plan);
    return worst;
}

static double verify_dequantise(trial *t, const char *variant) {
    const contract *c = t->c;
    const char *format = c->side == TQ_SIDE_K ? c->k : c->v;
    const size_t d = (size_t)c->head_dim;
    const int rows = BATCH * KV_HEADS * SLOTS;
    const tq_format_spec *spec = spec_of(format, c->head_dim);
    static const int32_t first_slot[BATCH] = {0};
    tq_cache cache = random_cache(t, c->side, format);
    tq_plan *plan = plan_of(t, c, variant, 0);
    float *x = cli_alloc((size_t)rows * d, sizeof *x);
    /* Strides that make x run over (sequence, head, slot), as the cache does. */
    const tq_dequantise_args args = {.batch = BATCH,
                                     .n_tokens = SLOTS,
                                     .cache = &cache,
                                     .first_slot = first_slot,
                                     .x = x,
                                     .x_seq_stride = KV_HEADS * SLOTS * d,
                                     .x_token_stride = d,
                                     .x_head_stride = SLOTS * d};
    flight f = {.plan = plan, .dequantise = &args};
    pool_run(t->pool, fly, &f);
    double worst = 0, decoded[TQ_MAX_HEAD_DIM];
    for (int r = 0; r < rows; r++) {
        double power = 0;
        tq_ref_decode_row(spec, c->side, row_of(&cache, r), NULL, decoded);
        for (size_t i = 0; i < d; i++)
            power += decoded[i] * decoded[i];
        /* Each value is a sum of up to head_dim f32 terms. */
        double error = sqrt(squared_distance(decoded, x + (size_t)r * d, c->head_dim) / (power + 1e-30)) / 4e-6;
        worst = isfinite(error) ? fmax(worst, error) : INFINITY;
    }
    free(x);
    free(cache.data);
    tq_plan_destroy(plan);
    return worst;
}

double verify_variant(const tq_device *device, pool *p, const contract *c, const char *variant, uint64_t seed) {
    trial t = {c, p, device, {seed}};
    return c->op == TQ_OP_DECODE   ? verify_decode(&t, variant)
           : c->op == TQ_OP_APPEND ? verify_append(&t, variant)
                                   : verify_dequantise(&t, variant);
}
