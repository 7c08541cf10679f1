/* laws_test: what must hold between runs, whatever the numbers are. Each law runs on a sample of the decode variants: a
 * few contracts of every target, chosen so that all formats take part on either side. */
#include "support.h"

enum { N_KEYS = 200 };

static const tq_variant **sample;
static int n_sample;

/* All implementations of about 24 contracts. */
static int set_up(void **state) {
    (void)state;
    int count, n_contracts = 1, contract = 0;
    sample = variants_here(TQ_OP_DECODE, &count);
    for (int i = 1; i < count; i++)
        n_contracts += !same_contract(sample[i], sample[i - 1]);
    int stride = test_stride(n_contracts, 24);
    const tq_variant *last = NULL;
    for (int i = 0; i < count; i++) {
        contract += last && !same_contract(sample[i], last);
        last = sample[i];
        if (contract % stride == 0)
            sample[n_sample++] = last;
    }
    printf("laws: %d variants run, %d left out by stride %d (TQ_TEST_STRIDE)\n", n_sample, count - n_sample, stride);
    return n_sample == 0;
}

static int tear_down(void **state) {
    (void)state;
    free(sample);
    return 0;
}

static problem_spec spec_for(const tq_variant *variant) {
    return (problem_spec){.k = spec_of(variant->k->name, variant->k->head_dim),
                          .v = spec_of(variant->v->name, variant->v->head_dim),
                          .n_kv_heads = 2,
                          .gqa = variant->gqa,
                          .batch = 1,
                          .n_kv = {N_KEYS},
                          .first_row = 5};
}

static float *copy_of(const buffer *b) {
    float *copy = malloc(b->bytes);
    assert_non_null(copy);
    return memcpy(copy, b->data, b->bytes);
}

static void expect_within(const problem *p, const tq_variant *variant, const char *law) {
    char what[256];
    snprintf(what, sizeof what, "%s: %s", variant->name, law);
    assert_true(problem_judge(p, what, NULL));
}

static void expect_same_bytes(const problem *p, const tq_variant *variant, const float *out, const float *lse,
                              const char *law) {
    if (memcmp(p->out.data, out, p->out.bytes) != 0 || memcmp(p->lse.data, lse, p->lse.bytes) != 0)
        fail_msg("%s: %s: results differ", variant->name, law);
}

static void for_each_sample(void (*f)(const tq_variant *variant)) {
    for (int i = 0; i < n_sample; i++)
        f(sample[i]);
}

/* ---- order, splits, threads, batches ---------------------------------------------------------------------------- */

static void reverse_rows(const tq_cache *cache, int n_kv_heads, int row_bytes, int n) {
    uint8_t swap[2 * TQ_MAX_HEAD_DIM];
    for (int h = 0; h < n_kv_heads; h++)
        for (int i = 0; i < n / 2; i++) {
            uint8_t *a = tq_cache_row(cache, 0, h, i), *b = tq_cache_row(cache, 0, h, n - 1 - i);
            memcpy(swap, a, (size_t)row_bytes);
            memcpy(a, b, (size_t)row_bytes);
            memcpy(b, swap, (size_t)row_bytes);
        }
}

/* Keys have no order. */
static void check_permutation(const tq_variant *variant) {
    problem_spec spec = spec_for(variant);
    problem *p = problem_new(&spec);
    reverse_rows(&p->k, 2, spec.k->row_bytes, N_KEYS);
    reverse_rows(&p->v, 2, spec.v->row_bytes, N_KEYS);
    problem_run(p, variant, 1, 1); /* the expected values are those of the first order */
    expect_within(p, variant, "reversed keys");
    problem_free(p);
}

/* Splits change roundings only. */
static void check_splits(const tq_variant *variant) {
    problem_spec spec = spec_for(variant);
    spec.n_kv[0] = 7 * variant->impl->tile + 5;
    problem *p = problem_new(&spec);
    for (int n_splits = 1; n_splits <= 7; n_splits++) {
        problem_run(p, variant, n_splits, 1);
        expect_within(p, variant, "splits");
    }
    problem_free(p);
}

/* Threads change nothing. */
static void check_threads(const tq_variant *variant) {
    problem_spec spec = spec_for(variant);
    spec.batch = 3;
    spec.n_kv[1] = 17;
    problem *p = problem_new(&spec);
    problem_run(p, variant, 3, 1);
    float *out = copy_of(&p->out), *lse = copy_of(&p->lse);
    for (int n_threads = 2; n_threads <= 5; n_threads++) {
        problem_run(p, variant, 3, n_threads);
        expect_same_bytes(p, variant, out, lse, "number of threads");
    }
    free(out);
    free(lse);
    problem_free(p);
}

/* A batch is its sequences, each by itself. */
static void check_batch(const tq_variant *variant) {
    static const int lengths[] = {170, 0, 1, N_KEYS, 64};
    problem_spec spec = spec_for(variant);
    spec.batch = 5;
    memcpy(spec.n_kv, lengths, sizeof lengths);
    spec.alibi = 1;
    problem *p = problem_new(&spec);
    problem_run(p, variant, 2, 2);
    expect_within(p, variant, "batch");
    float *out = copy_of(&p->out), *lse = copy_of(&p->lse);
    size_t values = p->n_out / 5, heads = p->n_heads / 5;
    for (int s = 0; s < 5; s++) {
        tq_cache k = p->k, v = p->v;
        tq_decode_args all = p->args;
        k.data = tq_cache_row(&p->k, s, 0, 0);
        v.data = tq_cache_row(&p->v, s, 0, 0);
        k.bytes = p->k.seq_stride;
        v.bytes = p->v.seq_stride;
        p->args.k = &k;
        p->args.v = &v;
        p->args.q += (size_t)s * p->args.q_seq_stride;
        p->args.n_kv += s;
        p->args.batch = 1;
        problem_run(p, variant, 2, 1);
        if (memcmp(p->out.data, out + (size_t)s * values, values * sizeof(float)) != 0 ||
            memcmp(p->lse.data, lse + (size_t)s * heads, heads * sizeof(float)) != 0)
            fail_msg("%s: sequence %d of a batch differs from the sequence alone", variant->name, s);
        p->args = all;
    }
    free(out);
    free(lse);
    problem_free(p);
}

/* ---- values and logits ------------------------------------------------------------------------------------------ */

/* Doubles every stored scale, or every half: one more in each exponent. */
static void double_rows(const tq_cache *cache, const tq_format_spec *format, int n_kv_heads, int n) {
    int step = format->bits == 16 ? 2 : format->row_bytes / (format->head_dim / format->block);
    for (int h = 0; h < n_kv_heads; h++)
        for (int t = 0; t < n; t++)
            for (int at = 0; at < format->row_bytes; at += step) {
                uint8_t *half = tq_cache_row(cache, 0, h, t) + at;
                uint16_t doubled =
                    tq_ref_half_from_double(2 * tq_ref_half_to_double((uint16_t)(half[0] | half[1] << 8)));
                half[0] = doubled & 255;
                half[1] = doubled >> 8;
            }
}

/* Twice the values, twice the output, bit for bit. */
static void check_homogeneous(const tq_variant *variant) {
    problem_spec spec = spec_for(variant);
    problem *p = problem_new(&spec);
    problem_run(p, variant, 2, 1);
    float *out = copy_of(&p->out), *lse = copy_of(&p->lse);
    double_rows(&p->v, spec.v, 2, N_KEYS);
    problem_run(p, variant, 2, 1);
    for (size_t i = 0; i < p->n_out; i++)
        out[i] *= 2;
    expect_same_bytes(p, variant, out, lse, "doubled values");
    free(out);
    free(lse);
    problem_free(p);
}

static void put_half(uint8_t *row, int i, double x) {
    uint16_t half = tq_ref_half_from_double(x);
    row[2 * i] = half & 255;
    row[2 * i + 1] = half >> 8;
}

/* out(V1) + out(V2) = out(V1 + V2). Small integers, so that f16 holds the sums. */
static void check_additive(const tq_variant *variant) {
    problem_spec spec = spec_for(variant);
    if (spec.v->bits != 16)
        return;
    problem *p = problem_new(&spec);
    double *sum = calloc(2 * p->n_out, sizeof *sum), *bound = sum + p->n_out;
    assert_non_null(sum);
    for (int part = 0; part < 3; part++) {
        for (int h = 0; h < 2; h++)
            for (int t = 0; t < N_KEYS; t++)
                for (int i = 0; i < spec.v->head_dim; i++) {
                    int first = (t * 7 + i * 3 + h) % 41 - 20, second = (t * 5 + i * 11) % 37 - 18;
                    put_half(tq_cache_row(&p->v, 0, h, t), i, part == 0 ? first : part == 1 ? second : first + second);
                }
        problem_solve(p);
        problem_run(p, variant, 1, 1);
        for (size_t i = 0; i < p->n_out; i++) {
            sum[i] += (part < 2 ? 1 : -1) * (double)((float *)p->out.data)[i];
            bound[i] += p->bound[i];
        }
    }
    for (size_t i = 0; i < p->n_out; i++)
        if (!(fabs(sum[i]) <= bound[i]))
            fail_msg("%s: out(V1) + out(V2) - out(V1 + V2) is %g at %zu, bound %g", variant->name, sum[i], i, bound[i]);
    free(sum);
    problem_free(p);
}

/* A constant added to every key adds one number to every logit: softmax does not see it, lse does. */
static void check_shift(const tq_variant *variant) {
    problem_spec spec = spec_for(variant);
    int d = spec.k->head_dim;
    if (spec.k->bits != 16)
        return;
    problem *p = problem_new(&spec);
    float *q = (float *)p->q.data;
    for (size_t h = 0; h < p->n_heads; h++) /* one value of q is known, so that the shift is as well */
        q[h * (size_t)d] = 4;
    for (int shifted = 0; shifted < 2; shifted++) {
        for (int h = 0; h < 2; h++)
            for (int t = 0; t < N_KEYS; t++)
                put_half(tq_cache_row(&p->k, 0, h, t), 0, t % 9 - 4 + 100 * shifted);
        if (!shifted)
            problem_solve(p);
        problem_run(p, variant, 2, 1);
        for (size_t h = 0; shifted && h < p->n_heads; h++)
            p->lse_expected[h] += 400 / sqrt(d);
        for (size_t i = 0; shifted && i < p->n_out; i++) /* logits of 35 to 50 round more */
            p->bound[i] = p->bound[i] * 4 + 1e-5;
        for (size_t h = 0; shifted && h < p->n_heads; h++)
            p->lse_bound[h] = p->lse_bound[h] * 4 + 1e-5;
        expect_within(p, variant, shifted ? "shifted keys" : "keys before the shift");
    }
    problem_free(p);
}

/* ---- options ---------------------------------------------------------------------------------------------------- */

/* A window is the end of the cache, alone. */
static void check_window(const tq_variant *variant) {
    static const int windows[] = {1, 63, 128, N_KEYS - 1, N_KEYS, 5000};
    problem_spec spec = spec_for(variant);
    problem *p = problem_new(&spec);
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
        p->args.window = windows[w];
        problem_solve(p);
        problem_run(p, variant, 2, 1);
        expect_within(p, variant, "window");
        int begin = windows[w] < N_KEYS ? N_KEYS - windows[w] : 0;
        tq_decode_args all = p->args;
        float *out = copy_of(&p->out), *lse = copy_of(&p->lse);
        tq_cache k = p->k, v = p->v;
        int32_t n_kv = N_KEYS - begin;
        k.data = tq_cache_row(&k, 0, 0, begin);
        v.data = tq_cache_row(&v, 0, 0, begin);
        k.n_slots = v.n_slots = N_KEYS - begin;
        k.bytes -= (size_t)begin * k.token_stride;
        v.bytes -= (size_t)begin * v.token_stride;
        p->args.k = &k;
        p->args.v = &v;
        p->args.n_kv = &n_kv;
        p->args.window = 0;
        problem_run(p, variant, 2, 1);
        if (strcmp(variant->layout, "rows") == 0)
            expect_same_bytes(p, variant, out, lse, "window against a cache that begins there");
        else /* steps end where tiles do, and those lie elsewhere now */
            expect_within(p, variant, "cache that begins where the window does");
        p->args = all;
        free(out);
        free(lse);
    }
    problem_free(p);
}

/* Options at the values where they have no effect, and each by itself against the reference. */
static void check_options(const tq_variant *variant) {
    problem_spec spec = spec_for(variant);
    problem *p = problem_new(&spec);
    float zeros[2 * TQ_MAX_GQA] = {0}, none[2 * TQ_MAX_GQA];
    for (int h = 0; h < 2 * TQ_MAX_GQA; h++)
        none[h] = -INFINITY;
    problem_run(p, variant, 2, 1);
    float *out = copy_of(&p->out), *lse = copy_of(&p->lse);
    p->args.alibi = zeros;
    problem_run(p, variant, 2, 1);
    expect_same_bytes(p, variant, out, lse, "slopes of 0");
    p->args.alibi = NULL;
    p->args.sink_logits = none;
    problem_run(p, variant, 2, 1);
    expect_same_bytes(p, variant, out, lse, "sink logits of -inf");
    const int32_t no_keys = 0;
    p->args.n_kv = &no_keys;
    problem_solve(p);
    problem_run(p, variant, 2, 1);
    expect_within(p, variant, "no keys, and sink logits of -inf");
    free(out);
    free(lse);
    problem_free(p);

    for (int option = 0; option < 7; option++) {
        spec = spec_for(variant);
        spec.alibi = option == 0;
        spec.softcap = option == 1 ? 5.0f : option == 2 ? 50.0f : 0.0f;
        spec.sink_logits = option == 3;
        spec.n_sink = option == 4 || option == 6 ? 4 : 0;
        spec.bias_pairs = option == 5 ? 3 : option == 6 ? TQ_MAX_BIAS_PAIRS : 0;
        p = problem_new(&spec);
        problem_run(p, variant, 2, 2);
        expect_within(p, variant,
                      (const char *[]){"alibi", "softcap 5", "softcap 50", "sink logits", "sinks", "score bias",
                                       "score bias and sinks"}[option]);
        problem_free(p);
    }
}

/* First tokens in f16: more of them than keys, a window that hides them, and all keys among them. */
static void check_first_tokens(const tq_variant *variant) {
    static const int cases[][3] = {
        {3, 8, 0}, {8, 8, 0}, {N_KEYS, 8, 20}, {20, 8, 15}, {0, 4, 0}}; /* n_kv, n_sink, window */
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        problem_spec spec = spec_for(variant);
        spec.n_kv[0] = cases[c][0];
        spec.n_sink = cases[c][1];
        spec.window = cases[c][2];
        problem *p = problem_new(&spec);
        problem_run(p, variant, 2, 1);
        expect_within(p, variant, "first tokens in f16");
        problem_free(p);
    }
}

/* ---- independence of K and V ------------------------------------------------------------------------------------ */

enum { MAX_PAIRS = 128 }; /* of formats, in each layout */

typedef struct answer {
    const tq_variant *variant;
    buffer lse, one_key; /* lse of many keys; output of one key */
} answer;

static buffer run_for(const tq_variant *variant, int n_kv, int want_lse) {
    problem_spec spec = spec_for(variant);
    spec.n_kv[0] = n_kv;
    problem *p = problem_new(&spec);
    problem_run(p, variant, 1, 1);
    const buffer *from = want_lse ? &p->lse : &p->out;
    buffer to = buffer_new(from->bytes, 0);
    memcpy(to.data, from->data, from->bytes);
    problem_free(p);
    return to;
}

static void compare(const answer *a, const answer *b) {
    if (strcmp(a->variant->k->name, b->variant->k->name) == 0 && memcmp(a->lse.data, b->lse.data, a->lse.bytes) != 0)
        fail_msg("%s and %s: lse differ", a->variant->name, b->variant->name);
    if (strcmp(a->variant->v->name, b->variant->v->name) == 0 &&
        memcmp(a->one_key.data, b->one_key.data, a->one_key.bytes) != 0)
        fail_msg("%s and %s: outputs of one key differ", a->variant->name, b->variant->name);
}

static void check_pairs_of(const tq_variant **all, int count, const char *target) {
    answer answers[MAX_PAIRS];
    int n = 0;
    for (int i = 0; i < count; i++) {
        const tq_variant *v = all[i];
        int is_first = i == 0 || !same_contract(v, all[i - 1]) || strcmp(v->target, all[i - 1]->target) != 0;
        if (v->k->head_dim != 128 || v->gqa != 4 || strcmp(v->target, target) != 0 || !is_first)
            continue;
        assert_true(n < MAX_PAIRS);
        answers[n] = (answer){v, run_for(v, N_KEYS, 1), run_for(v, 1, 0)};
        for (int j = 0; j < n; j++)
            compare(&answers[n], &answers[j]);
        n++;
    }
    printf("%s: %d pairs of formats and layouts compared\n", target, n);
    for (int i = 0; i < n; i++) {
        buffer_free(&answers[i].lse);
        buffer_free(&answers[i].one_key);
    }
}

/* lse belongs to K alone: the same bits for every V format. With one key the output is that row of V: the same bits for
 * every K format. Layouts change no bit of either. */
static void test_independence(void **state) {
    (void)state;
    int count;
    const tq_variant **all = variants_here(TQ_OP_DECODE, &count);
    for (int r = 0; r < tq_registry_count(); r++)
        check_pairs_of(all, count, tq_registry_at(r)->target);
    free(all);
}

#define LAW(name)                                                                                                      \
    static void test_##name(void **state) {                                                                            \
        (void)state;                                                                                                   \
        for_each_sample(check_##name);                                                                                 \
    }
LAW(permutation)
LAW(splits)
LAW(threads)
LAW(batch)
LAW(homogeneous)
LAW(additive)
LAW(shift)
LAW(window)
LAW(options)
LAW(first_tokens)

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutation),  cmocka_unit_test(test_splits),       cmocka_unit_test(test_threads),
        cmocka_unit_test(test_batch),        cmocka_unit_test(test_homogeneous),  cmocka_unit_test(test_additive),
        cmocka_unit_test(test_shift),        cmocka_unit_test(test_window),       cmocka_unit_test(test_options),
        cmocka_unit_test(test_first_tokens), cmocka_unit_test(test_independence),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
