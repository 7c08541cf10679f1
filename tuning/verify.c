#include "verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "reference.h"
#include "trial.h"

enum { SINKS = 3, MAX_QUERY = 33 };

/* Around a tile of 128 keys, in every sequence of one batch. */
static const int32_t lengths[TRIAL_BATCH] = {1, 127, 129, TRIAL_SLOTS}, queries[TRIAL_BATCH] = {1, 20, MAX_QUERY, 17};

/* ---- decode ----------------------------------------------------------------------------------------------------- */

/* The same arguments with memory of the host, for the reference, and with memory of the device. */
typedef struct decode_trial {
    tq_decode_args host, on_device;
} decode_trial;

/* Decodes with the variant and with the reference. */
static double judge_decode(const trial *t, const char *variant, decode_trial *d, int splits) {
    const contract *c = t->c;
    const int v_values = contract_values(c, TQ_SIDE_V);
    const size_t heads = (size_t)(TRIAL_KV_HEADS * c->gqa), n = TRIAL_BATCH * heads * (size_t)v_values;
    const tq_ref_shape shape = {trial_format(c->k, c->head_dim), trial_format(c->v, v_values), TRIAL_KV_HEADS, c->gqa,
                                t->on_cpu ? TQ_REF_INTEGERS : TQ_REF_HALVES};
    tq_plan *plan = trial_plan(t, c, variant, splits);
    trial_flight f = {.plan = plan, .decode = &d->on_device};
    trial_workspace(t, &f);
    float *found = cli_alloc(n, sizeof *found), *out = trial_to_device(t, found, n);
    d->on_device.out = out;
    memory_run(t->device, t->pool, trial_fly, &f);
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
    const size_t heads = (size_t)(TRIAL_KV_HEADS * c->gqa), head_dim = (size_t)c->head_dim,
                 n = TRIAL_BATCH * heads * head_dim;
    const size_t v_values = (size_t)contract_values(c, TQ_SIDE_V);
    trial_cache k = trial_random_cache(t, TQ_SIDE_K, c->k, c->layout),
                v = trial_random_cache(t, TQ_SIDE_V, c->v, c->layout);
    float *q = trial_gaussian(t, n), *slopes = trial_gaussian(t, heads), *sinks = trial_gaussian(t, heads);
    for (size_t h = 0; h < heads; h++)
        slopes[h] = 0.01f * fabsf(slopes[h]);
    float *q_there = trial_to_device(t, q, n), *slopes_there = trial_to_device(t, slopes, heads),
          *sinks_there = trial_to_device(t, sinks, heads);
    int32_t *n_kv = memory_copy(t->device, lengths, sizeof lengths);
    decode_trial d = {.host = {.batch = TRIAL_BATCH,
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
    trial_cache sink_k = trial_random_cache(t, TQ_SIDE_K, "f16", "rows"),
                sink_v = trial_random_cache(t, TQ_SIDE_V, "f16", "rows");
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
    trial_cache *const caches[] = {&k, &v, &sink_k, &sink_v};
    for (int i = 0; i < CLI_COUNT(caches); i++)
        trial_free_cache(t, caches[i]);
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
 * with memory of the host; args->out: [TRIAL_BATCH][MAX_QUERY][heads][head_dim of V]. */
static double judge_prefill(const trial *t, const char *variant, const tq_prefill_args *args, const float *q,
                            const trial_cache *k, const trial_cache *v, tq_decode_args decode) {
    const contract *c = t->c;
    const size_t heads = (size_t)(TRIAL_KV_HEADS * c->gqa), token = heads * (size_t)v->spec->head_dim,
                 n = MAX_QUERY * token;
    const tq_ref_shape shape = {k->spec, v->spec, TRIAL_KV_HEADS, c->gqa, t->on_cpu ? TQ_REF_FLOATS : TQ_REF_HALVES};
    tq_plan *plan = trial_plan(t, c, variant, 0);
    trial_flight f = {.plan = plan, .prefill = args};
    trial_workspace(t, &f);
    memory_run(t->device, t->pool, trial_fly, &f);
    float *found = cli_alloc(TRIAL_BATCH * n, sizeof *found);
    memory_read(t->device, found, args->out, TRIAL_BATCH * n * sizeof *found);
    double *expected = cli_alloc(n, sizeof *expected), *bound = cli_alloc(n, sizeof *bound);
    tq_ref_verdict verdict = {0};
    for (int s = 0; s < TRIAL_BATCH; s++) {
        int32_t ends[MAX_QUERY];
        tq_cache k_rows = k->rows, v_rows = v->rows;
        k_rows.data = trial_row(k, s * TRIAL_KV_HEADS * TRIAL_SLOTS);
        v_rows.data = trial_row(v, s * TRIAL_KV_HEADS * TRIAL_SLOTS);
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
    const size_t heads = (size_t)(TRIAL_KV_HEADS * c->gqa), head_dim = (size_t)c->head_dim, token = heads * head_dim;
    const size_t v_values = (size_t)contract_values(c, TQ_SIDE_V), out_token = heads * v_values;
    const size_t n = TRIAL_BATCH * MAX_QUERY * token;
    trial_cache k = trial_random_cache(t, TQ_SIDE_K, c->k, c->layout),
                v = trial_random_cache(t, TQ_SIDE_V, c->v, c->layout);
    float *q = trial_gaussian(t, n), *slopes = trial_gaussian(t, heads), *sinks = trial_gaussian(t, heads);
    for (size_t h = 0; h < heads; h++)
        slopes[h] = 0.01f * fabsf(slopes[h]);
    float *const floats[] = {trial_to_device(t, q, n), memory_new(t->device, n * sizeof(float)),
                             trial_to_device(t, slopes, heads), trial_to_device(t, sinks, heads)};
    int32_t *const counts[] = {memory_copy(t->device, lengths, sizeof lengths),
                               memory_copy(t->device, queries, sizeof queries)};
    tq_decode_args host = {.q_seq_stride = token, .q_head_stride = head_dim, .scale = 1 / sqrtf((float)head_dim)};
    tq_prefill_args args = {.batch = TRIAL_BATCH,
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
    trial_free_cache(t, &k);
    trial_free_cache(t, &v);
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
    trial_cache cache = trial_new_cache(t, c->side, format_of(c), c->layout);
    const tq_format_spec *spec = cache.spec;
    tq_plan *plan = trial_plan(t, c, variant, 0);
    float *x = trial_gaussian(t, (size_t)TRIAL_ROWS * (size_t)d),
          *x_there = trial_to_device(t, x, (size_t)TRIAL_ROWS * (size_t)d);
    uint8_t *plain_row = cli_alloc((size_t)spec->row_bytes, 1);
    for (int i = 0; i < CLI_COUNT(trials); i++) {
        if (trials[i].mode != TQ_SCALE_DEFAULT && !tq_has_word(spec->modes, tq_scale_mode_name(trials[i].mode)))
            continue;
        double found = 0, plain = 0;
        trial_append(t, plan, x_there, &cache, trials[i].mode);
        for (int r = 0; r < TRIAL_ROWS; r++) {
            const float *value = x + trial_x_of(spec, r);
            tq_ref_decode_row(spec, c->side, trial_row(&cache, r), NULL, decoded);
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
    trial_free_cache(t, &cache);
    tq_plan_destroy(plan);
    return worst;
}

static double verify_dequantise(trial *t, const char *variant) {
    const contract *c = t->c;
    const size_t d = (size_t)c->head_dim, n = (size_t)TRIAL_ROWS * d;
    trial_cache cache = trial_random_cache(t, c->side, format_of(c), c->layout);
    const tq_format_spec *spec = cache.spec;
    tq_plan *plan = trial_plan(t, c, variant, 0);
    float *x = cli_alloc(n, sizeof *x), *x_there = trial_to_device(t, x, n);
    /* Strides that make x run over (sequence, head, slot), as the cache does. */
    const tq_dequantise_args args = {.batch = TRIAL_BATCH,
                                     .n_tokens = TRIAL_SLOTS,
                                     .cache = &cache.on_device,
                                     .first_slot = t->no_slots,
                                     .x = x_there,
                                     .x_seq_stride = TRIAL_KV_HEADS * TRIAL_SLOTS * d,
                                     .x_token_stride = d,
                                     .x_head_stride = TRIAL_SLOTS * d};
    trial_flight f = {.plan = plan, .dequantise = &args};
    memory_run(t->device, t->pool, trial_fly, &f);
    memory_read(t->device, x, x_there, n * sizeof *x);
    double worst = 0, decoded[TQ_MAX_HEAD_DIM];
    for (int r = 0; r < TRIAL_ROWS; r++) {
        double power = 0;
        tq_ref_decode_row(spec, c->side, trial_row(&cache, r), NULL, decoded);
        for (size_t i = 0; i < d; i++)
            power += decoded[i] * decoded[i];
        /* Each value is a sum of up to head_dim f32 terms. */
        double error = sqrt(squared_distance(decoded, x + (size_t)r * d, c->head_dim) / (power + 1e-30)) / 4e-6;
        worst = isfinite(error) ? fmax(worst, error) : INFINITY;
    }
    free(x);
    memory_free(t->device, x_there);
    trial_free_cache(t, &cache);
    tq_plan_destroy(plan);
    return worst;
}

/* There and back again: not a bit may change, and what comes out of the tiles must be what went in. */
static double verify_repack(trial *t, const char *variant) {
    const contract *c = t->c;
    trial_cache rows = trial_random_cache(t, c->side, format_of(c), "rows");
    trial_cache tiles = trial_new_cache(t, c->side, format_of(c), c->layout);
    tq_plan *plan = trial_plan(t, c, variant, 0);
    uint8_t *before = cli_alloc(rows.rows.bytes, 1);
    memcpy(before, rows.rows.data, rows.rows.bytes);
    tq_repack_args args = {.batch = TRIAL_BATCH,
                           .n_tokens = TRIAL_SLOTS,
                           .rows = &rows.on_device,
                           .tiles = &tiles.on_device,
                           .first_slot = t->no_slots,
                           .to_tiles = 1};
    trial_flight f = {.plan = plan, .repack = &args};
    memory_run(t->device, t->pool, trial_fly, &f);
    trial_rows_from_device(t, &tiles);
    bool same = memcmp(before, tiles.rows.data, rows.rows.bytes) == 0;
    memset(rows.rows.data, 0, rows.rows.bytes);
    trial_rows_to_device(t, &rows);
    args.to_tiles = 0;
    memory_run(t->device, t->pool, trial_fly, &f);
    trial_rows_from_device(t, &rows);
    same = same && memcmp(before, rows.rows.data, rows.rows.bytes) == 0;
    free(before);
    trial_free_cache(t, &rows);
    trial_free_cache(t, &tiles);
    tq_plan_destroy(plan);
    return same ? 0 : INFINITY;
}

double verify_variant(const tq_device *device, pool *p, const contract *c, const char *variant, uint64_t seed) {
    const int32_t zeros[TRIAL_BATCH] = {0};
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
