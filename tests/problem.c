/* problem.c: decode problems: data, reference answer, run, judgement. See support.h. */
#include "support.h"

/* Stored scales times 2 to the power of `times`. */
static void scale_row(const tq_format_spec *format, uint8_t *row, int times) {
    int n = format->bits < 16 ? format->head_dim / format->block : 0;
    for (int b = 0; b < n; b++) {
        uint8_t *at = row + b * (format->row_bytes / n);
        uint16_t half;
        memcpy(&half, at, sizeof half);
        int exponent = (half >> 10 & 31) + times;
        if (half & 0x7c00) /* not 0 */
            half = (uint16_t)((half & 0x83ff) | (exponent < 30 ? exponent : 30) << 10);
        memcpy(at, &half, sizeof half);
    }
}

/* Gives the blocks of a row, whose scales are the same in the bank, scales of their own, up to a quarter apart. */
static void spread_scales(const tq_format_spec *format, uint8_t *row) {
    int n = format->head_dim / format->block;
    for (int b = 0; b < n && format->bits < 16; b++)
        row[b * (format->row_bytes / n)] ^= (uint8_t)(37 * b);
}

static void fill_cache(const tq_cache *cache, const tq_format_spec *format, tq_side side, const problem_spec *spec) {
    const uint8_t *bank = bank_rows(format, side);
    size_t row_bytes = (size_t)format->row_bytes;
    for (int s = 0; s < spec->batch; s++)
        for (int h = 0; h < spec->n_kv_heads; h++)
            for (int t = 0; t < cache->n_slots; t++) {
                int row = (spec->first_row + 389 * s + 517 * h + t) % BANK_ROWS;
                memcpy(tq_cache_row(cache, s, h, t), bank + (size_t)row * row_bytes, row_bytes);
                if (spec->spread_scales && h % 2)
                    spread_scales(format, tq_cache_row(cache, s, h, t));
                int times = (spec->growing && side == TQ_SIDE_V ? t / 128 : 0) + (t && t == spec->outlier ? 5 : 0);
                if (times)
                    scale_row(format, tq_cache_row(cache, s, h, t), times);
            }
}

static buffer floats(size_t n, random_state *r, double scale) {
    buffer b = buffer_new(n * sizeof(float), 0);
    for (size_t i = 0; i < n; i++)
        ((float *)b.data)[i] = (float)(scale * random_normal(r));
    return b;
}

/* As many slots as the longest sequence, and one at least. */
static int slots_of(const problem_spec *spec) {
    int n = 1;
    for (int s = 0; s < spec->batch; s++)
        n = spec->n_kv[s] > n ? spec->n_kv[s] : n;
    return n;
}

/* Frequencies from one radian per position down, and coefficients of a few units. */
static void add_bias(problem *p, int heads, random_state *r) {
    int n = p->spec.bias_pairs, batch = p->spec.batch;
    size_t turn_bytes = (size_t)n * sizeof(uint32_t), table_bytes = (size_t)n * 2 * TQ_BIAS_RUN * sizeof(uint16_t);
    size_t n_coefficients = (size_t)batch * (size_t)heads * 2 * (size_t)n;
    p->bias_numbers = buffer_new(turn_bytes + table_bytes + n_coefficients * sizeof(float), 0);
    uint32_t *turns = (uint32_t *)p->bias_numbers.data;
    uint16_t *table = (uint16_t *)(p->bias_numbers.data + turn_bytes);
    float *coefficients = (float *)(p->bias_numbers.data + turn_bytes + table_bytes);
    for (int i = 0; i < n; i++)
        turns[i] = (uint32_t)(pow(10000, -(double)i / n) * 0x1p31 / 3.14159265358979323846);
    assert_int_equal(tq_score_bias_table(turns, n, table), TQ_OK);
    for (size_t i = 0; i < n_coefficients; i++)
        coefficients[i] = (float)((p->spec.large_bias ? 200 : 3) * random_normal(r));
    p->bias = (tq_score_bias){n, turns, table, coefficients, (size_t)heads * 2 * (size_t)n, 0, 2 * (size_t)n};
    p->args.bias = &p->bias;
}

problem *problem_new(const problem_spec *spec) {
    int d = spec->k->head_dim, v_values = spec->v->head_dim, heads = spec->n_kv_heads * spec->gqa,
        n_slots = slots_of(spec);
    random_state r = random_stream(77 + (uint64_t)spec->first_row);
    problem *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->spec = *spec;
    p->shape = (tq_ref_shape){spec->k, spec->v, spec->n_kv_heads, spec->gqa, spec->arithmetic};
    p->n_heads = (size_t)spec->batch * (size_t)heads;
    p->n_out = p->n_heads * (size_t)v_values;
    p->k_rows = cache_new(&p->k, spec->batch, spec->n_kv_heads, n_slots, spec->k->row_bytes, spec->interleaved);
    p->v_rows = cache_new(&p->v, spec->batch, spec->n_kv_heads, n_slots, spec->v->row_bytes, spec->interleaved);
    fill_cache(&p->k, spec->k, TQ_SIDE_K, spec);
    fill_cache(&p->v, spec->v, TQ_SIDE_V, spec);
    p->q = floats(p->n_heads * (size_t)d, &r, 1.2);
    p->out = buffer_new(p->n_out * sizeof(float), 0);
    p->lse = buffer_new(p->n_heads * sizeof(float), 0);
    p->n_kv = buffer_new((size_t)spec->batch * sizeof(int32_t), 0);
    for (int s = 0; s < spec->batch; s++)
        ((int32_t *)p->n_kv.data)[s] = spec->n_kv[s];
    p->args = (tq_decode_args){.batch = spec->batch,
                               .q = (const float *)p->q.data,
                               .q_seq_stride = (size_t)(heads * d),
                               .q_head_stride = (size_t)d,
                               .k = &p->k,
                               .v = &p->v,
                               .n_kv = (const int32_t *)p->n_kv.data,
                               .scale = 1 / sqrtf((float)d),
                               .softcap = spec->softcap,
                               .window = spec->window,
                               .out = (float *)p->out.data,
                               .out_seq_stride = (size_t)(heads * v_values),
                               .out_head_stride = (size_t)v_values,
                               .lse = (float *)p->lse.data};
    if (spec->alibi) {
        p->alibi = buffer_new((size_t)heads * sizeof(float), 0);
        for (int h = 0; h < heads; h++)
            ((float *)p->alibi.data)[h] = exp2f(-8.0f * (float)(h + 1) / (float)heads);
        p->args.alibi = (const float *)p->alibi.data;
    }
    if (spec->sink_logits) {
        p->sink_logits = floats((size_t)heads, &r, 2);
        p->args.sink_logits = (const float *)p->sink_logits.data;
    }
    if (spec->bias_pairs)
        add_bias(p, heads, &r);
    if (spec->n_sink) {
        const tq_format_spec *half_k = f16_rows(d), *half_v = f16_rows(v_values);
        p->sink_k_rows = cache_new(&p->sink_k, spec->batch, spec->n_kv_heads, spec->n_sink, half_k->row_bytes, 0);
        p->sink_v_rows = cache_new(&p->sink_v, spec->batch, spec->n_kv_heads, spec->n_sink, half_v->row_bytes, 0);
        fill_cache(&p->sink_k, half_k, TQ_SIDE_K, spec);
        fill_cache(&p->sink_v, half_v, TQ_SIDE_V, spec);
        p->args.n_sink = spec->n_sink;
        p->args.sink_k = &p->sink_k;
        p->args.sink_v = &p->sink_v;
    }
    p->expected = malloc(2 * (p->n_out + p->n_heads) * sizeof(double));
    assert_non_null(p->expected);
    p->bound = p->expected + p->n_out;
    p->lse_expected = p->bound + p->n_out;
    p->lse_bound = p->lse_expected + p->n_heads;
    problem_solve(p);
    return p;
}

void problem_free(problem *p) {
    buffer *all[] = {&p->k_rows, &p->v_rows,      &p->sink_k_rows,  &p->sink_v_rows, &p->q,  &p->n_kv,
                     &p->alibi,  &p->sink_logits, &p->bias_numbers, &p->out,         &p->lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        buffer_free(all[i]);
    free(p->expected);
    free(p);
}

void problem_solve(problem *p) {
    assert_int_equal(tq_ref_attention(&p->shape, &p->args, p->expected, p->bound, p->lse_expected, p->lse_bound), 0);
}

typedef struct decode_call {
    const tq_plan *plan;
    const tq_decode_args *args;
    void *workspace;
} decode_call;

static tq_status decode_share(void *argument, int index, int count) {
    const decode_call *c = argument;
    tq_launch launch = {c->workspace, tq_plan_workspace_bytes(c->plan), index, count, NULL};
    return tq_decode(c->plan, c->args, &launch);
}

/* What a plan on the CPU reads: the rows of p->args, as they are or in its own layout and pages. */
typedef struct host_caches {
    device_cache k, v, sink_k, sink_v;
    tq_decode_args args;
} host_caches;

static void take(device_cache *c, const problem *p, const tq_variant *layout_of, const tq_format_spec *format,
                 tq_side side, const tq_cache **cache) {
    const int batch = p->args.batch;
    *c = device_cache_new(tq_device_at(0), layout_of, format, side, batch, p->spec.n_kv_heads, (*cache)->n_slots,
                          p->spec.page_slots, p->spec.interleaved);
    device_cache_fill(c, *cache, batch, p->spec.n_kv_heads);
    *cache = &c->cache;
}

static void take_caches(host_caches *h, const problem *p, const tq_variant *variant) {
    const tq_variant rows = {.layout = "rows"};
    memset(h, 0, sizeof *h);
    h->args = p->args;
    if (strcmp(variant->layout, "rows") == 0 && !p->spec.page_slots)
        return;
    take(&h->k, p, variant, p->spec.k, TQ_SIDE_K, &h->args.k);
    take(&h->v, p, variant, p->spec.v, TQ_SIDE_V, &h->args.v);
    if (p->args.n_sink) {
        take(&h->sink_k, p, &rows, f16_rows(p->spec.k->head_dim), TQ_SIDE_K, &h->args.sink_k);
        take(&h->sink_v, p, &rows, f16_rows(p->spec.v->head_dim), TQ_SIDE_V, &h->args.sink_v);
    }
}

static void free_caches(host_caches *h) {
    device_cache *const all[] = {&h->k, &h->v, &h->sink_k, &h->sink_v};
    for (int i = 0; i < 4; i++)
        if (all[i]->cache.data)
            device_cache_free(all[i]);
}

void problem_launch(problem *p, const tq_plan *plan, int n_threads) {
    host_caches h;
    take_caches(&h, p, plan->variant);
    size_t bytes = tq_plan_workspace_bytes(plan);
    void *workspace = aligned_alloc(TQ_ALIGN, (bytes + TQ_ALIGN - 1) / TQ_ALIGN * TQ_ALIGN);
    assert_non_null(workspace);
    memset(workspace, 0xff, bytes); /* NaN: nothing may be read before it is written */
    memset(p->out.data, 0xff, p->out.bytes);
    memset(p->lse.data, 0xff, p->lse.bytes);
    assert_int_equal(tq_workspace_init(plan, workspace, bytes), TQ_OK);
    decode_call c = {plan, &h.args, workspace};
    if (run_threads(n_threads, decode_share, &c) != TQ_OK)
        fail_msg("%s: %s", tq_plan_variant(plan), tq_error_message());
    assert_true(buffer_intact(&p->out) && buffer_intact(&p->lse));
    free(workspace);
    free_caches(&h);
}

void problem_run(problem *p, const tq_variant *variant, int n_splits, int n_threads) {
    tq_plan *plan = plan_pinned(variant, TQ_SIDE_K, p->spec.n_kv_heads, p->spec.batch, p->k.n_slots, n_splits);
    problem_launch(p, plan, n_threads);
    tq_plan_destroy(plan);
}

static int judged(const tq_ref_verdict *v, const char *what, const char *which, const double *expected,
                  const double *bound, const float *found) {
    if (v->n_non_finite)
        printf("%s: %zu values of %s are not finite\n", what, v->n_non_finite, which);
    if (v->n_outside) {
        size_t i = v->worst_at;
        printf("%s: %zu values of %s beyond their bound; worst at %zu: %.9g, expected %.9g within %.3g\n", what,
               v->n_outside, which, i, (double)found[i], expected[i], bound[i]);
    }
    return !v->n_non_finite && !v->n_outside;
}

int problem_judge(const problem *p, const char *what, tq_ref_verdict *total) {
    const float *out = (const float *)p->out.data, *lse = (const float *)p->lse.data;
    tq_ref_verdict of_out = {0}, of_lse = {0};
    tq_ref_judge(p->n_out, out, p->expected, p->bound, &of_out);
    tq_ref_judge(p->n_heads, lse, p->lse_expected, p->lse_bound, &of_lse);
    if (total) {
        total->error += of_out.error;
        total->power += of_out.power;
        total->n_outside += of_out.n_outside + of_lse.n_outside;
        total->n_non_finite += of_out.n_non_finite + of_lse.n_non_finite;
        total->worst = fmax(total->worst, fmax(of_out.worst, of_lse.worst));
    }
    int out_good = judged(&of_out, what, "out", p->expected, p->bound, out);
    int lse_good = judged(&of_lse, what, "lse", p->lse_expected, p->lse_bound, lse);
    return out_good && lse_good;
}
