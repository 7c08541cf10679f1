/* prefill_test: every prefill variant that some device here runs, the CPU and SIMT devices included. Each query's output is
 * judged by the double-precision reference for decode with the keys that it sees: lengths about steps and blocks of
 * queries, all options at once, pages, and two orders of blocks and threads or numbers of threads, which must give the
 * same bits. */
#include "support.h"

enum {
    HEADS = 2,      /* of KV */
    GAP = 3,        /* floats between the outputs of a head, token or sequence and the next, which nobody writes */
    WRITTEN = 0xff, /* what output memory is filled with */
    MOST_JUDGED = SLOW ? 6 : 28, /* queries of a sequence */
    MOST_THREADS = 3
};

typedef struct setting {
    const char *what;
    int batch, n_kv[MAX_BATCH], n_query[MAX_BATCH];
    int causal, window, page_slots, interleaved, alibi, sink_logits, bias_pairs;
    float softcap;
    unsigned seed;       /* of a SIMT device */
    int threads, splits; /* CPU */
} setting;

/* Every query that a block begins or ends with, the last ones, and some between. */
static int chosen(int n_query, int per_block, int *queries) {
    int n = 0;
    for (int i = 0; i < n_query && n < MOST_JUDGED; i++)
        if (i % per_block == 0 || i % per_block == per_block - 1 || i % 29 == 17 || i >= n_query - 2)
            queries[n++] = i;
    if (n && queries[n - 1] != n_query - 1)
        queries[n - 1] = n_query - 1;
    return n;
}

/* A launch: what it reads and what it writes. Strides are in floats. */
typedef struct trial {
    const tq_variant *variant;
    const setting *setting;
    tq_ref_shape shape;
    int d, v_d, heads, max_query, bias_pairs;
    tq_cache k, v;
    buffer k_rows, v_rows;
    float *q, *alibi, *sink_logits, *out, *lse;
    uint32_t *turns;
    uint16_t *table;
    float *coefficients; /* (s, query, h, p), without gaps */
    size_t token_stride, head_stride, seq_stride, n_out, n_lse;
} trial;

static void fill_rows(const tq_cache *cache, const tq_format_spec *format, tq_side side, int batch, int first_row) {
    const uint8_t *bank = bank_rows(format, side);
    for (int s = 0; s < batch; s++)
        for (int h = 0; h < HEADS; h++)
            for (int t = 0; t < cache->n_slots; t++) {
                int row = (first_row + 389 * s + 517 * h + t) % BANK_ROWS;
                memcpy(tq_cache_row(cache, s, h, t), bank + (size_t)row * (size_t)format->row_bytes,
                       (size_t)format->row_bytes);
            }
}

static float *normals(size_t n, random_state *r, float scale) {
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    random_normals(r, x, (int)n);
    for (size_t i = 0; i < n; i++)
        x[i] *= scale;
    return x;
}

static int largest_of(const int *values, int n) {
    int most = 1;
    for (int i = 0; i < n; i++)
        most = values[i] > most ? values[i] : most;
    return most;
}

/* Coefficients of n queries. */
static size_t bias_floats(const trial *t, int n) {
    return (size_t)(n * t->heads * 2 * t->bias_pairs);
}

/* Frequencies from one radian per position down, and coefficients of a few units. */
static void add_bias(trial *t, random_state *r) {
    int most = tq_most_bias_pairs(t->variant), n = t->setting->bias_pairs < most ? t->setting->bias_pairs : most;
    t->bias_pairs = n;
    if (!n)
        return;
    t->turns = malloc((size_t)n * sizeof *t->turns);
    t->table = malloc((size_t)n * 2 * TQ_BIAS_RUN * sizeof *t->table);
    assert_true(t->turns && t->table);
    for (int p = 0; p < n; p++)
        t->turns[p] = (uint32_t)(pow(10000, -(double)p / n) * 0x1p31 / acos(-1));
    assert_int_equal(tq_score_bias_table(t->turns, n, t->table), TQ_OK);
    t->coefficients = normals(bias_floats(t, t->setting->batch * t->max_query), r, 3);
}

static trial trial_new(const tq_variant *variant, const setting *s, int number) {
    random_state r = random_stream(400 + (uint64_t)number);
    trial t = {.variant = variant,
               .setting = s,
               .d = variant->k->head_dim,
               .v_d = variant->v->head_dim,
               .heads = HEADS * variant->gqa};
    int n_slots = largest_of(s->n_kv, s->batch);
    t.shape = (tq_ref_shape){spec_of(variant->k->name, t.d), spec_of(variant->v->name, t.v_d), HEADS, variant->gqa,
                             variant->gpu ? TQ_REF_HALVES : TQ_REF_FLOATS};
    t.max_query = largest_of(s->n_query, s->batch);
    t.k_rows = cache_new(&t.k, s->batch, HEADS, n_slots, t.shape.k->row_bytes, s->interleaved);
    t.v_rows = cache_new(&t.v, s->batch, HEADS, n_slots, t.shape.v->row_bytes, s->interleaved);
    fill_rows(&t.k, t.shape.k, TQ_SIDE_K, s->batch, 31 * number);
    fill_rows(&t.v, t.shape.v, TQ_SIDE_V, s->batch, 31 * number);
    t.head_stride = (size_t)(t.d > t.v_d ? t.d : t.v_d) + GAP; /* of q and of the output */
    t.token_stride = (size_t)t.heads * t.head_stride + GAP;
    t.seq_stride = (size_t)t.max_query * t.token_stride + GAP;
    t.n_out = (size_t)s->batch * t.seq_stride;
    t.n_lse = (size_t)(s->batch * t.max_query * t.heads);
    t.q = normals(t.n_out, &r, 1.2f);
    t.alibi = s->alibi ? normals((size_t)t.heads, &r, 0) : NULL;
    for (int h = 0; t.alibi && h < t.heads; h++)
        t.alibi[h] = exp2f(-8.0f * (float)(h + 1) / (float)t.heads);
    t.sink_logits = s->sink_logits ? normals((size_t)t.heads, &r, 2) : NULL;
    add_bias(&t, &r);
    t.out = malloc(t.n_out * sizeof(float));
    t.lse = malloc(t.n_lse * sizeof(float));
    assert_true(t.out && t.lse);
    return t;
}

static void trial_free(trial *t) {
    buffer_free(&t->k_rows);
    buffer_free(&t->v_rows);
    free(t->q);
    free(t->alibi);
    free(t->sink_logits);
    free(t->turns);
    free(t->table);
    free(t->coefficients);
    free(t->out);
    free(t->lse);
}

/* ---- launch ----------------------------------------------------------------------------------------------------- */

typedef struct flight {
    const tq_plan *plan;
    const tq_prefill_args *args;
    void *workspace;
} flight;

static tq_status fly(void *argument, int index, int count) {
    const flight *f = argument;
    const tq_launch launch = {f->workspace, tq_plan_workspace_bytes(f->plan), index, count, NULL};
    return tq_prefill(f->plan, f->args, &launch);
}

static void launch(trial *t) {
    const setting *s = t->setting;
    const size_t floats = (size_t)t->heads * sizeof(float), ints = (size_t)s->batch * sizeof(int32_t);
    tq_plan *plan = plan_for_threads(t->variant, TQ_SIDE_K, HEADS, s->batch, t->k.n_slots,
                                     t->variant->gpu ? 0 : s->splits, MOST_THREADS);
    const tq_device *device = plan->device;
    const tq_cache *const rows[] = {&t->k, &t->v};
    const int unit = tq_keys_per_unit(t->variant),
              page_slots = s->page_slots && unit > s->page_slots ? unit : s->page_slots;
    device_cache caches[2];
    for (int i = 0; i < 2; i++) {
        caches[i] = device_cache_new(device, t->variant, i ? t->shape.v : t->shape.k, (tq_side)i, s->batch, HEADS,
                                     t->k.n_slots, page_slots, s->interleaved);
        device_cache_fill(&caches[i], rows[i], s->batch, HEADS);
    }
    device_buffer in[] = {
        device_copy(device, t->q, t->n_out * sizeof(float), 4),
        device_copy(device, t->alibi, floats, 4),
        device_copy(device, t->sink_logits, floats, 4),
        device_copy(device, s->n_kv, ints, 4),
        device_copy(device, s->n_query, ints, 4),
        device_copy(device, t->turns, (size_t)t->bias_pairs * sizeof *t->turns, 4),
        device_copy(device, t->table, (size_t)t->bias_pairs * 2 * TQ_BIAS_RUN * sizeof *t->table, 4),
        device_copy(device, t->coefficients, bias_floats(t, s->batch * t->max_query) * sizeof(float), 4)};
    const tq_score_bias bias = {t->bias_pairs,
                                (const uint32_t *)in[5].data,
                                (const uint16_t *)in[6].data,
                                (const float *)in[7].data,
                                bias_floats(t, t->max_query),
                                bias_floats(t, 1),
                                2 * (size_t)t->bias_pairs};
    float *first = malloc((t->n_out + t->n_lse) * sizeof(float));
    assert_non_null(first);
    for (int run = 0; run < 2; run++) {
        device_buffer out = device_new(device, t->n_out * sizeof(float), 4);
        device_buffer lse = device_new(device, t->n_lse * sizeof(float), 4);
        const tq_prefill_args args = {.batch = s->batch,
                                      .max_query = t->max_query,
                                      .q = (const float *)in[0].data,
                                      .q_seq_stride = t->seq_stride,
                                      .q_token_stride = t->token_stride,
                                      .q_head_stride = t->head_stride,
                                      .k = &caches[0].cache,
                                      .v = &caches[1].cache,
                                      .n_kv = (const int32_t *)in[3].data,
                                      .n_query = (const int32_t *)in[4].data,
                                      .scale = 1 / sqrtf((float)t->d),
                                      .softcap = s->softcap,
                                      .window = s->window,
                                      .causal = s->causal,
                                      .bias = t->bias_pairs ? &bias : NULL,
                                      .alibi = (const float *)in[1].data,
                                      .sink_logits = (const float *)in[2].data,
                                      .out = (float *)out.data,
                                      .out_seq_stride = t->seq_stride,
                                      .out_token_stride = t->token_stride,
                                      .out_head_stride = t->head_stride,
                                      .lse = (float *)lse.data};
        device_buffer workspace = device_new(device, tq_plan_workspace_bytes(plan), 0);
        assert_int_equal(tq_workspace_init(plan, workspace.data, workspace.bytes), TQ_OK);
        flight f = {plan, &args, workspace.data};
        tq_simt_set_seed(s->seed + 101u * (unsigned)run);
        if (run_threads(run && !t->variant->gpu ? s->threads : 1, fly, &f) != TQ_OK ||
            tq_device_synchronise(device, NULL) != TQ_OK)
            fail_msg("%s: %s", t->variant->name, tq_error_message());
        device_buffer_free(&workspace);
        device_read(&out, run ? t->out : first);
        device_read(&lse, run ? t->lse : first + t->n_out);
        device_buffer_free(&out);
        device_buffer_free(&lse);
    }
    if (memcmp(first, t->out, t->n_out * sizeof(float)) != 0 ||
        memcmp(first + t->n_out, t->lse, t->n_lse * sizeof(float)) != 0)
        fail_msg("%s: two launches do not give the same bits", t->variant->name);
    free(first);
    for (int i = 0; i < 2; i++)
        device_cache_free(&caches[i]);
    for (int i = 0; i < (int)(sizeof in / sizeof *in); i++)
        device_buffer_free(&in[i]);
    tq_plan_destroy(plan);
}

/* ---- judgement -------------------------------------------------------------------------------------------------- */

/* Is all that belongs to no query as it was, and what belongs to one written? */
static int right_places(const trial *t) {
    const setting *s = t->setting;
    int wrong = 0;
    uint8_t *owned = calloc(t->n_out + t->n_lse, 1);
    assert_non_null(owned);
    for (int b = 0; b < s->batch; b++)
        for (int i = 0; i < s->n_query[b]; i++)
            for (int h = 0; h < t->heads; h++) {
                memset(owned + (size_t)b * t->seq_stride + (size_t)i * t->token_stride + (size_t)h * t->head_stride, 1,
                       (size_t)t->v_d);
                owned[t->n_out + (size_t)((b * t->max_query + i) * t->heads + h)] = 1;
            }
    for (size_t i = 0; i < t->n_out + t->n_lse; i++) {
        const uint8_t *byte = (const uint8_t *)(i < t->n_out ? t->out + i : t->lse + (i - t->n_out));
        int untouched = byte[0] == WRITTEN && byte[1] == WRITTEN && byte[2] == WRITTEN && byte[3] == WRITTEN;
        wrong += untouched == owned[i];
    }
    free(owned);
    if (wrong)
        printf("%s, %s: %d floats are written that belong to no query, or the other way round\n", t->variant->name,
               t->setting->what, wrong);
    return !wrong;
}

/* Queries of sequence b, as sequences of a decode launch that share its cache. */
static int judge_sequence(const trial *t, int b, tq_ref_verdict *total) {
    const setting *s = t->setting;
    int queries[MOST_JUDGED], n_kv[MOST_JUDGED];
    int n = chosen(s->n_query[b], t->variant->gpu ? t->variant->gpu->keys_per_step : 22, queries);
    size_t n_heads = (size_t)(n * t->heads), n_out = n_heads * (size_t)t->v_d;
    float *q = malloc((n_heads * (size_t)t->d + 1) * sizeof *q), *out = malloc((n_out + 1) * sizeof *out);
    float *lse = malloc((n_heads + 1) * sizeof *lse);
    double *answer = malloc((2 * n_out + 2 * n_heads + 1) * sizeof *answer);
    float *coefficients = malloc((bias_floats(t, n) + 1) * sizeof *coefficients);
    assert_true(q && out && lse && answer && coefficients);
    for (int i = 0; i < n; i++) {
        int end = s->causal ? s->n_kv[b] - s->n_query[b] + queries[i] + 1 : s->n_kv[b];
        n_kv[i] = end > 0 ? end : 0;
        if (t->bias_pairs)
            memcpy(coefficients + bias_floats(t, i), t->coefficients + bias_floats(t, b * t->max_query + queries[i]),
                   bias_floats(t, 1) * sizeof *coefficients);
        for (int h = 0; h < t->heads; h++) {
            size_t to = (size_t)(i * t->heads + h), token = (size_t)queries[i];
            size_t at = (size_t)b * t->seq_stride + token * t->token_stride + (size_t)h * t->head_stride;
            memcpy(q + to * (size_t)t->d, t->q + at, (size_t)t->d * sizeof *q);
            memcpy(out + to * (size_t)t->v_d, t->out + at, (size_t)t->v_d * sizeof *out);
            lse[to] = t->lse[(size_t)((b * t->max_query + queries[i]) * t->heads + h)];
        }
    }
    tq_cache k = t->k, v = t->v;
    k.data = tq_cache_row(&k, b, 0, 0);
    v.data = tq_cache_row(&v, b, 0, 0);
    k.seq_stride = v.seq_stride = 0;
    const tq_score_bias bias = {
        t->bias_pairs, t->turns, t->table, coefficients, bias_floats(t, 1), 0, 2 * (size_t)t->bias_pairs};
    const tq_decode_args args = {.batch = n,
                                 .q = q,
                                 .q_seq_stride = (size_t)(t->heads * t->d),
                                 .q_head_stride = (size_t)t->d,
                                 .k = &k,
                                 .v = &v,
                                 .n_kv = n_kv,
                                 .scale = 1 / sqrtf((float)t->d),
                                 .softcap = s->softcap,
                                 .window = s->window,
                                 .bias = t->bias_pairs ? &bias : NULL,
                                 .alibi = t->alibi,
                                 .sink_logits = t->sink_logits};
    double *bound = answer + n_out, *lse_answer = bound + n_out, *lse_bound = lse_answer + n_heads;
    assert_int_equal(tq_ref_attention(&t->shape, &args, answer, bound, lse_answer, lse_bound), 0);
    tq_ref_verdict of_out = {0}, of_lse = {0};
    tq_ref_judge(n_out, out, answer, bound, &of_out);
    tq_ref_judge(n_heads, lse, lse_answer, lse_bound, &of_lse);
    total->error += of_out.error;
    total->power += of_out.power;
    total->worst = fmax(total->worst, fmax(of_out.worst, of_lse.worst));
    size_t wrong = of_out.n_outside + of_out.n_non_finite + of_lse.n_outside + of_lse.n_non_finite;
    if (wrong)
        printf("%s, %s: sequence %d: %zu values beyond their bound, %zu not finite; query %d\n", t->variant->name,
               s->what, b, of_out.n_outside + of_lse.n_outside, of_out.n_non_finite + of_lse.n_non_finite,
               queries[of_out.worst_at / (size_t)(t->heads * t->v_d)]);
    free(q);
    free(out);
    free(lse);
    free(answer);
    free(coefficients);
    return !wrong;
}

static int check(const tq_variant *variant, const setting *s, int number, tq_ref_verdict *total) {
    trial t = trial_new(variant, s, number);
    launch(&t);
    int good = right_places(&t);
    for (int b = 0; good && b < s->batch; b++)
        good = judge_sequence(&t, b, total);
    trial_free(&t);
    return !good;
}

/* ---- settings --------------------------------------------------------------------------------------------------- */

/* Sequences without keys or queries, too, and queries ahead of the first key. */
static setting sizes(int number) {
    setting s = {.what = "sizes", .batch = 8, .causal = 1, .interleaved = number % 2, .seed = (unsigned)number % 2};
    const int n_kv[] = {1, 33, 64, 97, 131, 0, 50, 3}, n_query[] = {1, 7, 64, 65, 130, 3, 0, 5};
    memcpy(s.n_kv, n_kv, sizeof n_kv);
    memcpy(s.n_query, n_query, sizeof n_query);
    return s;
}

static setting all_options(int number) {
    setting s = {.what = "all options",
                 .batch = 2,
                 .n_kv = {151, 70},
                 .n_query = {37, 70},
                 .causal = 1,
                 .window = 45,
                 .page_slots = 64,
                 .alibi = 1,
                 .bias_pairs = number % 2 ? 5 : 0,
                 .sink_logits = 1,
                 .softcap = 20,
                 .seed = 2 + (unsigned)number % 7};
    return s;
}

/* In the first sequence the window begins behind the first key of a step. */
static setting not_causal(int number) {
    setting s = {.what = "not causal",
                 .batch = 2,
                 .n_kv = {95, 40},
                 .n_query = {9, 50},
                 .window = 62,
                 .page_slots = number % 3 ? 0 : 32,
                 .seed = 11};
    return s;
}

/* Many keys before the queries, in a window that begins within a step. */
static setting long_context(int number) {
    setting s = {.what = "long context",
                 .batch = 1,
                 .n_kv = {601},
                 .n_query = {40},
                 .causal = 1,
                 .window = number % 2 ? 333 : 0,
                 .page_slots = number % 4 ? 64 : 0,
                 .bias_pairs = number % 2 ? 0 : TQ_MAX_BIAS_PAIRS,
                 .seed = 13};
    return s;
}

/* About the steps and strips of keys of the CPU. */
static setting steps(int number) {
    setting s = {.what = "steps", .batch = 7, .causal = 1, .interleaved = number % 2, .window = number % 3 ? 0 : 128};
    const int n_kv[] = {2, 127, 128, 129, 257, 300, 160}, n_query[] = {2, 127, 128, 129, 150, 20, 1};
    memcpy(s.n_kv, n_kv, sizeof n_kv);
    memcpy(s.n_query, n_query, sizeof n_query);
    return s;
}

/* A few queries whose keys are split: at odd lengths, of which some queries see nothing of the last split, in windows that
 * begin within a split, more splits than there are steps, several blocks of wide heads. */
static setting splits(int number) {
    setting s = {.what = "splits",
                 .batch = 7,
                 .causal = number % 3 != 2,
                 .window = number % 4 == 1 ? 200 : 0,
                 .page_slots = number % 4 == 3 ? 64 : 0,
                 .interleaved = number % 2,
                 .alibi = number % 2,
                 .bias_pairs = number % 3 ? 0 : 5,
                 .sink_logits = number % 2,
                 .softcap = number % 5 ? 0 : 20,
                 .splits = 2 + number % 3};
    const int n_kv[] = {517, 258, 3, 0, 130, 385, 641}, n_query[] = {3, 8, 5, 2, 1, 7, 4};
    memcpy(s.n_kv, n_kv, sizeof n_kv);
    memcpy(s.n_query, n_query, sizeof n_query);
    return s;
}

enum { N_SETTINGS = 6 };

/* wanted: how many variants; most: NMSE. */
static void check_variants(const tq_variant **variants, int count, int wanted, int on_cpu, double most) {
    int run = 0, wrong = 0, stride = test_stride(count, wanted);
    tq_ref_verdict total = {0};
    for (int i = 0; i < count; i += stride, run++) {
        setting settings[N_SETTINGS] = {sizes(run),        all_options(run), not_causal(run),
                                        long_context(run), steps(run),       splits(run)};
        for (int j = 0; j < (on_cpu ? N_SETTINGS : N_SETTINGS - 2); j++) {
            settings[j].threads = 2 + (run + j) % (MOST_THREADS - 1);
            wrong += check(variants[i], &settings[j], run, &total);
        }
    }
    printf("%d variants run, %d left out by stride %d (TQ_TEST_STRIDE); %d launches wrong\n", run, count - run, stride,
           wrong);
    printf("NMSE %.2g; largest error / bound %.2f\n", total.power > 0 ? total.error / total.power : 0, total.worst);
    free(variants);
    assert_int_equal(wrong, 0);
    assert_true(total.error <= most * total.power);
}

static void test_cpu_variants(void **state) {
    (void)state;
    int count;
    const tq_variant **variants = variants_here(TQ_OP_PREFILL, &count);
    check_variants(variants, count, SLOW && !SANITIZED ? 12 : 30, 1, 1e-7); /* emulators take long over banks */
}

/* wide: those of heads of more than 256 values. */
static void check_gpu_variants(int wide, int wanted) {
    int count, n = 0;
    const tq_variant **variants = gpu_variants_here(TQ_OP_PREFILL, &count);
    for (int i = 0; i < count; i++)
        if ((variants[i]->k->head_dim > 256) == wide)
            variants[n++] = variants[i];
    check_variants(variants, n, wanted, 0, 4e-7); /* scales and gains are rounded into the halves that are multiplied */
}

static void test_gpu_variants(void **state) {
    (void)state;
    check_gpu_variants(0, 32);
}

static void test_wide_gpu_variants(void **state) {
    (void)state;
    check_gpu_variants(1, 20);
}

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cpu_variants), cmocka_unit_test(test_gpu_variants),
                                       cmocka_unit_test(test_wide_gpu_variants)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
