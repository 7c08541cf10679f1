#include "verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "memory.h"
#include "reference.h"
#include "stats.h"
#include "tiles.h"

enum { KV_HEADS = 2, BATCH = 4, SLOTS = 300, SINKS = 3, ROWS = BATCH * KV_HEADS * SLOTS, MAX_QUERY = 33 };

/* Around a tile of 128 keys, in every sequence of one batch. */
static const int32_t lengths[BATCH] = {1, 127, 129, SLOTS}, queries[BATCH] = {1, 20, MAX_QUERY, 17};

typedef struct trial {
    const contract *c;
    pool *pool;
    const tq_device *device;
    rng rng;
    bool on_cpu;
    const int32_t *no_slots; /* [BATCH] zeros, of the device */
} trial;

static float *gaussian(trial *t, size_t n) {
    float *x = cli_alloc(n, sizeof *x);
    rng_fill_gaussian(&t->rng, x, n);
    return x;
}

static float *to_device(const trial *t, const float *x, size_t n) {
    return memory_copy(t->device, x, n * sizeof *x);
}

/* Rows of 16-bit floats are known, whether this build has kernels for them or not: sink tokens are such. */
static const tq_format_spec *spec_of(const char *format, int head_dim) {
    static tq_format_spec f16 = {.name = "f16", .bits = 16, .block = 1, .modes = ""};
    const tq_format_spec *spec;
    tq_status status = tq_format_lookup("format", format, head_dim, &spec);
    if (status && strcmp(format, f16.name) == 0) {
        f16.head_dim = head_dim;
        f16.row_bytes = 2 * head_dim;
        return &f16;
    }
    cli_check(status);
    return spec;
}

/* ---- caches ----------------------------------------------------------------------------------------------------- */

/* What the reference sees, always rows, and what the device has: the same memory on the CPU. */
typedef struct side_cache {
    const tq_format_spec *spec;
    tq_side side;
    const char *layout;
    tq_cache rows, on_device;
    int keys_per_unit;
} side_cache;

static tq_cache cache_of(size_t unit_bytes, int units) {
    tq_cache cache = {.token_stride = unit_bytes, .n_slots = SLOTS};
    cache.head_stride = cache.token_stride * (size_t)units;
    cache.seq_stride = cache.head_stride * KV_HEADS;
    cache.bytes = cache.seq_stride * BATCH;
    return cache;
}

static side_cache new_cache(const trial *t, tq_side side, const char *format, const char *layout) {
    side_cache c = {.spec = spec_of(format, contract_values(t->c, side)), .side = side, .layout = layout};
    cli_check(tq_layout_lookup(layout, c.spec, &c.keys_per_unit));
    c.rows = cache_of((size_t)c.spec->row_bytes, SLOTS);
    c.rows.data = cli_alloc(c.rows.bytes, 1);
    c.on_device = c.rows;
    if (!t->on_cpu) {
        c.on_device = cache_of(tq_unit_bytes(c.spec, layout, c.keys_per_unit), (SLOTS - 1) / c.keys_per_unit + 1);
        c.on_device.data = memory_new(t->device, c.on_device.bytes);
    }
    return c;
}

static void free_cache(const trial *t, side_cache *c) {
    free(c->rows.data);
    if (!t->on_cpu)
        memory_free(t->device, c->on_device.data);
}

static uint8_t *row_of(const side_cache *c, int i) {
    return (uint8_t *)c->rows.data + (size_t)i * c->rows.token_stride; /* rows are contiguous here */
}

/* Row i in an image of the device's cache. */
static uint8_t *unit_of(const side_cache *c, uint8_t *image, int i) {
    return image + (size_t)(i / SLOTS) * c->on_device.head_stride +
           (size_t)(i % SLOTS / c->keys_per_unit) * c->on_device.token_stride;
}

static void rows_to_device(const trial *t, const side_cache *c) {
    if (t->on_cpu)
        return;
    uint8_t *image = cli_alloc(c->on_device.bytes, 1);
    tq_ref_codes codes;
    for (int i = 0; i < ROWS; i++) {
        if (c->keys_per_unit == 1) {
            memcpy(unit_of(c, image, i), row_of(c, i), (size_t)c->spec->row_bytes);
        } else {
            tq_ref_unpack(c->spec, row_of(c, i), &codes);
            tile_pack(c->layout, c->side, c->spec, &codes, i % SLOTS % c->keys_per_unit, unit_of(c, image, i));
        }
    }
    memory_write(t->device, c->on_device.data, image, c->on_device.bytes);
    free(image);
}

static void rows_from_device(const trial *t, side_cache *c) {
    if (t->on_cpu)
        return;
    uint8_t *image = cli_alloc(c->on_device.bytes, 1);
    tq_ref_codes codes;
    memory_read(t->device, image, c->on_device.data, c->on_device.bytes);
    for (int i = 0; i < ROWS; i++) {
        if (c->keys_per_unit == 1) {
            memcpy(row_of(c, i), unit_of(c, image, i), (size_t)c->spec->row_bytes);
        } else {
            tile_unpack(c->layout, c->side, c->spec, unit_of(c, image, i), i % SLOTS % c->keys_per_unit, &codes);
            tq_ref_pack(c->spec, &codes, row_of(c, i));
        }
    }
    free(image);
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

typedef struct flight {
    const tq_plan *plan;
    const tq_append_args *append;
    const tq_dequantise_args *dequantise;
    const tq_repack_args *repack;
    const tq_decode_args *decode;
    const tq_prefill_args *prefill;
    void *workspace;
    size_t workspace_bytes;
} flight;

static void fly(void *context, int thread_index, int thread_count) {
    const flight *f = context;
    const tq_launch launch = {f->workspace, f->workspace_bytes, thread_index, thread_count, NULL};
    cli_check(f->append       ? tq_append(f->plan, f->append, &launch)
              : f->dequantise ? tq_dequantise(f->plan, f->dequantise, &launch)
              : f->repack     ? tq_repack(f->plan, f->repack, &launch)
              : f->prefill    ? tq_prefill(f->plan, f->prefill, &launch)
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

static void give_workspace(const trial *t, flight *f) {
    f->workspace_bytes = tq_plan_workspace_bytes(f->plan);
    f->workspace = memory_new(t->device, f->workspace_bytes);
    cli_check(tq_workspace_init(f->plan, f->workspace, f->workspace_bytes));
}

/* x: of the device, [BATCH][SLOTS][KV_HEADS][head_dim], into every slot. */
static void append_all(const trial *t, const tq_plan *plan, const float *x, side_cache *cache, tq_scale_mode mode) {
    const size_t head_dim = (size_t)cache->spec->head_dim;
    const tq_append_args args = {.batch = BATCH,
                                 .n_tokens = SLOTS,
                                 .x = x,
                                 .x_seq_stride = SLOTS * KV_HEADS * head_dim,
                                 .x_token_stride = KV_HEADS * head_dim,
                                 .x_head_stride = head_dim,
                                 .first_slot = t->no_slots,
                                 .cache = &cache->on_device,
                                 .mode = mode};
    flight f = {.plan = plan, .append = &args};
    memory_run(t->device, t->pool, fly, &f);
    rows_from_device(t, cache);
}

/* Where x of append_all has the values of cache row i. */
static size_t x_of(const tq_format_spec *spec, int i) {
    int slot = i % SLOTS, head = i / SLOTS % KV_HEADS, sequence = i / SLOTS / KV_HEADS;
    return (size_t)((sequence * SLOTS + slot) * KV_HEADS + head) * (size_t)spec->head_dim;
}

/* Rows of Gaussian vectors. The CPU's come from its default kernel, those of other devices, whose kernels are less
 * known, from the reference. */
static side_cache random_cache(trial *t, tq_side side, const char *format, const char *layout) {
    side_cache cache = new_cache(t, side, format, layout);
    const size_t n = (size_t)ROWS * (size_t)cache.spec->head_dim;
    float *x = gaussian(t, n);
    if (t->on_cpu) {
        contract c = {.op = TQ_OP_APPEND, .side = side, .head_dim = cache.spec->head_dim, .layout = layout};
        *(side == TQ_SIDE_K ? &c.k : &c.v) = format;
        tq_plan *plan = plan_of(t, &c, NULL, 0);
        append_all(t, plan, x, &cache, TQ_SCALE_DEFAULT);
        tq_plan_destroy(plan);
    } else {
        const tq_scale_mode mode = tq_has_word(cache.spec->modes, "nc") ? TQ_SCALE_NC : TQ_SCALE_DEFAULT;
        for (int i = 0; i < ROWS; i++)
            tq_ref_encode_row(cache.spec, side, x + x_of(cache.spec, i), NULL, mode, row_of(&cache, i));
        rows_to_device(t, &cache);
    }
    free(x);
    return cache;
}

/* ---- decode ----------------------------------------------------------------------------------------------------- */

/* The same arguments with memory of the host, for the reference, and with memory of the device. */
typedef struct decode_trial {
    tq_decode_args host, on_device;
} decode_trial;

/* Decodes with the variant and with the reference. */
static double judge_decode(const trial *t, const char *variant, decode_trial *d, int splits) {
    const contract *c = t->c;
    const int v_values = contract_values(c, TQ_SIDE_V);
    const size_t heads = (size_t)(KV_HEADS * c->gqa), n = BATCH * heads * (size_t)v_values;
    const tq_ref_shape shape = {spec_of(c->k, c->head_dim), spec_of(c->v, v_values), KV_HEADS, c->gqa,
                                t->on_cpu ? TQ_REF_INTEGERS : TQ_REF_HALVES};
    tq_plan *plan = plan_of(t, c, variant, splits);
    flight f = {.plan = plan, .decode = &d->on_device};
    give_workspace(t, &f);
    float *found = cli_alloc(n, sizeof *found), *out = to_device(t, found, n);
    d->on_device.out = out;
    memory_run(t->device, t->pool, fly, &f);
    memory_read(t->device, found, out, n * sizeof *found);

    double *expected = cli_alloc(n, sizeof *expected), *bound = cli_alloc(n, sizeof *bound);
    tq_ref_verdict verdict = {0};
    if (tq_ref_attention(&shape, &d->host, expected, bound, NULL, NULL))
        cli_fail("out of memory in the reference");
    tq_ref_judge(n, found, expected, bound, &verdict);
    free(expected);
    free(bound);
    free(found);
    memory_free(t->device, out);
    memory_free(t->device, f.workspace);
    tq_plan_destroy(plan);
    return verdict.n_non_finite ? INFINITY : verdict.worst;
}

static double verify_decode(trial *t, const char *variant) {
    const contract *c = t->c;
    const size_t heads = (size_t)(KV_HEADS * c->gqa), head_dim = (size_t)c->head_dim, n = BATCH * heads * head_dim;
    const size_t v_values = (size_t)contract_values(c, TQ_SIDE_V);
    side_cache k = random_cache(t, TQ_SIDE_K, c->k, c->layout), v = random_cache(t, TQ_SIDE_V, c->v, c->layout);
    float *q = gaussian(t, n), *slopes = gaussian(t, heads), *sinks = gaussian(t, heads);
    for (size_t h = 0; h < heads; h++)
        slopes[h] = 0.01f * fabsf(slopes[h]);
    float *q_there = to_device(t, q, n), *slopes_there = to_device(t, slopes, heads),
          *sinks_there = to_device(t, sinks, heads);
    int32_t *n_kv = memory_copy(t->device, lengths, sizeof lengths);
    decode_trial d = {.host = {.batch = BATCH,
                               .q = q,
                               .q_seq_stride = heads * head_dim,
                               .q_head_stride = head_dim,
                               .k = &k.rows,
                               .v = &v.rows,
                               .n_kv = lengths,
                               .scale = 1 / sqrtf((float)head_dim),
                               .out_seq_stride = heads * v_values,
                               .out_head_stride = v_values}};
    d.on_device = d.host;
    d.on_device.q = q_there;
    d.on_device.k = &k.on_device;
    d.on_device.v = &v.on_device;
    d.on_device.n_kv = n_kv;
    double plain = judge_decode(t, variant, &d, 1);

    /* Everything at once, and split. */
    side_cache sink_k = random_cache(t, TQ_SIDE_K, "f16", "rows"), sink_v = random_cache(t, TQ_SIDE_V, "f16", "rows");
    tq_decode_args *const both[] = {&d.host, &d.on_device};
    for (int i = 0; i < 2; i++) {
        both[i]->softcap = 20;
        both[i]->window = 200;
        both[i]->n_sink = SINKS;
        both[i]->alibi = i ? slopes_there : slopes;
        both[i]->sink_logits = i ? sinks_there : sinks;
        both[i]->sink_k = i ? &sink_k.on_device : &sink_k.rows;
        both[i]->sink_v = i ? &sink_v.on_device : &sink_v.rows;
    }
    double full = judge_decode(t, variant, &d, 3);
    side_cache *const caches[] = {&k, &v, &sink_k, &sink_v};
    for (int i = 0; i < CLI_COUNT(caches); i++)
        free_cache(t, caches[i]);
    void *const memory[] = {q_there, slopes_there, sinks_there, n_kv};
    for (int i = 0; i < CLI_COUNT(memory); i++)
        memory_free(t->device, memory[i]);
    free(q);
    free(slopes);
    free(sinks);
    return fmax(plain, full);
}

/* ---- prefill ---------------------------------------------------------------------------------------------------- */

/* Each query is judged as a sequence of decode that ends with the keys it sees. decode: what options the reference takes,
 * with memory of the host; args->out: [BATCH][MAX_QUERY][heads][head_dim of V]. */
static double judge_prefill(const trial *t, const char *variant, const tq_prefill_args *args, const float *q,
                            const side_cache *k, const side_cache *v, tq_decode_args decode) {
    const contract *c = t->c;
    const size_t heads = (size_t)(KV_HEADS * c->gqa), token = heads * (size_t)v->spec->head_dim, n = MAX_QUERY * token;
    const tq_ref_shape shape = {k->spec, v->spec, KV_HEADS, c->gqa, t->on_cpu ? TQ_REF_FLOATS : TQ_REF_HALVES};
    tq_plan *plan = plan_of(t, c, variant, 0);
    flight f = {.plan = plan, .prefill = args};
    give_workspace(t, &f);
    memory_run(t->device, t->pool, fly, &f);
    float *found = cli_alloc(BATCH * n, sizeof *found);
    memory_read(t->device, found, args->out, BATCH * n * sizeof *found);
    double *expected = cli_alloc(n, sizeof *expected), *bound = cli_alloc(n, sizeof *bound);
    tq_ref_verdict verdict = {0};
    for (int s = 0; s < BATCH; s++) {
        int32_t ends[MAX_QUERY];
        tq_cache k_rows = k->rows, v_rows = v->rows;
        k_rows.data = row_of(k, s * KV_HEADS * SLOTS);
        v_rows.data = row_of(v, s * KV_HEADS * SLOTS);
        k_rows.seq_stride = v_rows.seq_stride = 0; /* the same for all */
        for (int i = 0; i < queries[s]; i++)
            ends[i] = lengths[s] - queries[s] + i + 1;
        decode.batch = queries[s];
        decode.q = q + (size_t)s * args->q_seq_stride;
        decode.k = &k_rows;
        decode.v = &v_rows;
        decode.n_kv = ends;
        if (tq_ref_attention(&shape, &decode, expected, bound, NULL, NULL))
            cli_fail("out of memory in the reference");
        tq_ref_judge((size_t)queries[s] * token, found + (size_t)s * n, expected, bound, &verdict);
    }
    free(expected);
    free(bound);
    free(found);
    memory_free(t->device, f.workspace);
    tq_plan_destroy(plan);
    return verdict.n_non_finite ? INFINITY : verdict.worst;
}

static double verify_prefill(trial *t, const char *variant) {
    const contract *c = t->c;
    const size_t heads = (size_t)(KV_HEADS * c->gqa), head_dim = (size_t)c->head_dim, token = heads * head_dim;
    const size_t v_values = (size_t)contract_values(c, TQ_SIDE_V), out_token = heads * v_values;
    const size_t n = BATCH * MAX_QUERY * token;
    side_cache k = random_cache(t, TQ_SIDE_K, c->k, c->layout), v = random_cache(t, TQ_SIDE_V, c->v, c->layout);
    float *q = gaussian(t, n), *slopes = gaussian(t, heads), *sinks = gaussian(t, heads);
    for (size_t h = 0; h < heads; h++)
        slopes[h] = 0.01f * fabsf(slopes[h]);
    float *const floats[] = {to_device(t, q, n), memory_new(t->device, n * sizeof(float)), to_device(t, slopes, heads),
                             to_device(t, sinks, heads)};
    int32_t *const counts[] = {memory_copy(t->device, lengths, sizeof lengths),
                               memory_copy(t->device, queries, sizeof queries)};
    tq_decode_args host = {.q_seq_stride = token, .q_head_stride = head_dim, .scale = 1 / sqrtf((float)head_dim)};
    tq_prefill_args args = {.batch = BATCH,
                            .max_query = MAX_QUERY,
                            .q = floats[0],
                            .q_seq_stride = MAX_QUERY * token,
                            .q_token_stride = token,
                            .q_head_stride = head_dim,
                            .k = &k.on_device,
                            .v = &v.on_device,
                            .n_kv = counts[0],
                            .n_query = counts[1],
                            .scale = host.scale,
                            .causal = 1,
                            .out = floats[1],
                            .out_seq_stride = MAX_QUERY * out_token,
                            .out_token_stride = out_token,
                            .out_head_stride = v_values};
    double plain = judge_prefill(t, variant, &args, q, &k, &v, host);
    args.softcap = host.softcap = 20;
    args.window = host.window = 100;
    args.alibi = floats[2];
    args.sink_logits = floats[3];
    host.alibi = slopes;
    host.sink_logits = sinks;
    double full = judge_prefill(t, variant, &args, q, &k, &v, host);
    free_cache(t, &k);
    free_cache(t, &v);
    for (int i = 0; i < CLI_COUNT(floats); i++)
        memory_free(t->device, floats[i]);
    for (int i = 0; i < CLI_COUNT(counts); i++)
        memory_free(t->device, counts[i]);
    free(q);
    free(slopes);
    free(sinks);
    return fmax(plain, full);
}

/* ---- append, dequantise, repack --------------------------------------------------------------------------------- */

static const char *format_of(const contract *c) {
    return c->side == TQ_SIDE_K ? c->k : c->v;
}

static double squared_distance(const double *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
}

/* An encoder may break ties and search in its own way, but in no mode may its rows be worse than the plain ones. */
static double verify_append(trial *t, const char *variant) {
    const contract *c = t->c;
    const int d = c->head_dim;
    static const struct {
        tq_scale_mode mode, plain;
    } trials[] = {{TQ_SCALE_NONE, TQ_SCALE_NONE}, {TQ_SCALE_NC, TQ_SCALE_NC}, {TQ_SCALE_DEFAULT, TQ_SCALE_NC}};
    double worst = 0, decoded[TQ_MAX_HEAD_DIM];
    side_cache cache = new_cache(t, c->side, format_of(c), c->layout);
    const tq_format_spec *spec = cache.spec;
    tq_plan *plan = plan_of(t, c, variant, 0);
    float *x = gaussian(t, (size_t)ROWS * (size_t)d), *x_there = to_device(t, x, (size_t)ROWS * (size_t)d);
    uint8_t *plain_row = cli_alloc((size_t)spec->row_bytes, 1);
    for (int i = 0; i < CLI_COUNT(trials); i++) {
        if (trials[i].mode != TQ_SCALE_DEFAULT && !tq_has_word(spec->modes, tq_scale_mode_name(trials[i].mode)))
            continue;
        double found = 0, plain = 0;
        append_all(t, plan, x_there, &cache, trials[i].mode);
        for (int r = 0; r < ROWS; r++) {
            const float *value = x + x_of(spec, r);
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
    memory_free(t->device, x_there);
    free_cache(t, &cache);
    tq_plan_destroy(plan);
    return worst;
}

static double verify_dequantise(trial *t, const char *variant) {
    const contract *c = t->c;
    const size_t d = (size_t)c->head_dim, n = (size_t)ROWS * d;
    side_cache cache = random_cache(t, c->side, format_of(c), c->layout);
    const tq_format_spec *spec = cache.spec;
    tq_plan *plan = plan_of(t, c, variant, 0);
    float *x = cli_alloc(n, sizeof *x), *x_there = to_device(t, x, n);
    /* Strides that make x run over (sequence, head, slot), as the cache does. */
    const tq_dequantise_args args = {.batch = BATCH,
                                     .n_tokens = SLOTS,
                                     .cache = &cache.on_device,
                                     .first_slot = t->no_slots,
                                     .x = x_there,
                                     .x_seq_stride = KV_HEADS * SLOTS * d,
                                     .x_token_stride = d,
                                     .x_head_stride = SLOTS * d};
    flight f = {.plan = plan, .dequantise = &args};
    memory_run(t->device, t->pool, fly, &f);
    memory_read(t->device, x, x_there, n * sizeof *x);
    double worst = 0, decoded[TQ_MAX_HEAD_DIM];
    for (int r = 0; r < ROWS; r++) {
        double power = 0;
        tq_ref_decode_row(spec, c->side, row_of(&cache, r), NULL, decoded);
        for (size_t i = 0; i < d; i++)
            power += decoded[i] * decoded[i];
        /* Each value is a sum of up to head_dim f32 terms. */
        double error = sqrt(squared_distance(decoded, x + (size_t)r * d, c->head_dim) / (power + 1e-30)) / 4e-6;
        worst = isfinite(error) ? fmax(worst, error) : INFINITY;
    }
    free(x);
    memory_free(t->device, x_there);
    free_cache(t, &cache);
    tq_plan_destroy(plan);
    return worst;
}

/* There and back again: not a bit may change, and what comes out of the tiles must be what went in. */
static double verify_repack(trial *t, const char *variant) {
    const contract *c = t->c;
    side_cache rows = random_cache(t, c->side, format_of(c), "rows");
    side_cache tiles = new_cache(t, c->side, format_of(c), c->layout);
    tq_plan *plan = plan_of(t, c, variant, 0);
    uint8_t *before = cli_alloc(rows.rows.bytes, 1);
    memcpy(before, rows.rows.data, rows.rows.bytes);
    tq_repack_args args = {.batch = BATCH,
                           .n_tokens = SLOTS,
                           .rows = &rows.on_device,
                           .tiles = &tiles.on_device,
                           .first_slot = t->no_slots,
                           .to_tiles = 1};
    flight f = {.plan = plan, .repack = &args};
    memory_run(t->device, t->pool, fly, &f);
    rows_from_device(t, &tiles);
    bool same = memcmp(before, tiles.rows.data, rows.rows.bytes) == 0;
    memset(rows.rows.data, 0, rows.rows.bytes);
    rows_to_device(t, &rows);
    args.to_tiles = 0;
    memory_run(t->device, t->pool, fly, &f);
    rows_from_device(t, &rows);
    same = same && memcmp(before, rows.rows.data, rows.rows.bytes) == 0;
    free(before);
    free_cache(t, &rows);
    free_cache(t, &tiles);
    tq_plan_destroy(plan);
    return same ? 0 : INFINITY;
}

double verify_variant(const tq_device *device, pool *p, const contract *c, const char *variant, uint64_t seed) {
    const int32_t zeros[BATCH] = {0};
    int32_t *no_slots = memory_copy(device, zeros, sizeof zeros);
    trial t = {c, p, device, {seed}, memory_is_cpu(device), no_slots};
    double worst = INFINITY;
    switch (c->op) {
    case TQ_OP_DECODE:
        worst = verify_decode(&t, variant);
        break;
    case TQ_OP_APPEND:
        worst = verify_append(&t, variant);
        break;
    case TQ_OP_DEQUANTISE:
        worst = verify_dequantise(&t, variant);
        break;
    case TQ_OP_REPACK:
        worst = verify_repack(&t, variant);
        break;
    case TQ_OP_PREFILL:
        worst = verify_prefill(&t, variant);
        break;
    }
    memory_free(device, no_slots);
    return worst;
}
