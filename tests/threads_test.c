/* threads_test: several threads in one launch, several launches at once, errors per thread. Meant for ThreadSanitizer,
 * which sees unordered accesses even where the results are right. */
#include "support.h"

enum { N_THREADS = 4, ROUNDS = 5 };

/* The first variant of each target. */
static int some_variants(tq_op op, const tq_variant **out, int most) {
    int count, n = 0;
    const tq_variant **list = variants_here(op, &count);
    for (int r = 0; r < tq_registry_count(); r++)
        for (int i = count / 2; i < count && n < most; i++)
            if (strcmp(list[i]->target, tq_registry_at(r)->target) == 0) {
                out[n++] = list[i];
                break;
            }
    free(list);
    assert_true(n > 0);
    return n;
}

/* ---- one launch by several threads ------------------------------------------------------------------------------ */

static void test_decode(void **state) {
    (void)state;
    const tq_variant *variants[8];
    int n = some_variants(TQ_OP_DECODE, variants, 8);
    for (int i = 0; i < n; i++) {
        problem_spec spec = {.k = spec_of(variants[i]->k->name, variants[i]->k->head_dim),
                             .v = spec_of(variants[i]->v->name, variants[i]->v->head_dim),
                             .n_kv_heads = 3,
                             .gqa = variants[i]->gqa,
                             .batch = 3,
                             .n_kv = {700, 3, 200},
                             .sink_logits = 1,
                             .n_sink = 2};
        problem *p = problem_new(&spec);
        for (int round = 0; round < ROUNDS; round++) {
            problem_run(p, variants[i], 1 + round, N_THREADS);
            assert_true(problem_judge(p, variants[i]->name, NULL));
        }
        problem_free(p);
    }
}

typedef struct append_call {
    const tq_plan *plan;
    const tq_append_args *args;
} append_call;

static tq_status append_share(void *argument, int index, int count) {
    const append_call *c = argument;
    tq_launch launch = {NULL, 0, index, count, NULL};
    return tq_append(c->plan, c->args, &launch);
}

typedef struct dequantise_call {
    const tq_plan *plan;
    const tq_dequantise_args *args;
} dequantise_call;

static tq_status dequantise_share(void *argument, int index, int count) {
    const dequantise_call *c = argument;
    tq_launch launch = {NULL, 0, index, count, NULL};
    return tq_dequantise(c->plan, c->args, &launch);
}

/* Rows of neighbouring threads touch: 10-byte blocks end in the middle of a word. Results are those of one thread. */
static void test_append(void **state) {
    (void)state;
    enum { BATCH = 2, HEADS = 3, TOKENS = 13 };
    const tq_variant *variants[8];
    int n = some_variants(TQ_OP_APPEND, variants, 8);
    for (int i = 0; i < n; i++) {
        const tq_format_spec *format = variants[i]->k ? variants[i]->k : variants[i]->v;
        size_t d = (size_t)format->head_dim, values = BATCH * TOKENS * HEADS * d;
        tq_cache cache;
        buffer rows = cache_new(&cache, BATCH, HEADS, TOKENS, format->row_bytes, 1),
               x = buffer_new(values * sizeof(float), 0);
        const int32_t first_slot[BATCH] = {0, 0};
        random_state r = random_stream(31);
        random_normals(&r, (float *)x.data, (int)values);
        tq_append_args args = {.batch = BATCH,
                               .n_tokens = TOKENS,
                               .x = (const float *)x.data,
                               .x_seq_stride = TOKENS * HEADS * d,
                               .x_token_stride = HEADS * d,
                               .x_head_stride = d,
                               .first_slot = first_slot,
                               .cache = &cache};
        tq_plan *plan = plan_pinned(variants[i], variants[i]->k ? TQ_SIDE_K : TQ_SIDE_V, HEADS, BATCH, TOKENS, 0);
        append_call c = {plan, &args};
        assert_int_equal(run_threads(1, append_share, &c), TQ_OK);
        uint8_t *expected = malloc(rows.bytes);
        assert_non_null(expected);
        memcpy(expected, rows.data, rows.bytes);
        memset(rows.data, 0, rows.bytes);
        assert_int_equal(run_threads(N_THREADS, append_share, &c), TQ_OK);
        assert_memory_equal(rows.data, expected, rows.bytes);
        free(expected);
        tq_plan_destroy(plan);
        buffer_free(&rows);
        buffer_free(&x);
    }
}

static void test_dequantise(void **state) {
    (void)state;
    enum { HEADS = 3, TOKENS = 13 };
    const tq_variant *variants[8];
    int n = some_variants(TQ_OP_DEQUANTISE, variants, 8);
    for (int i = 0; i < n; i++) {
        const tq_format_spec *own = variants[i]->k ? variants[i]->k : variants[i]->v;
        const tq_format_spec *format = spec_of(own->name, own->head_dim);
        tq_side side = variants[i]->k ? TQ_SIDE_K : TQ_SIDE_V;
        size_t d = (size_t)format->head_dim, values = TOKENS * HEADS * d;
        tq_cache cache;
        buffer rows = cache_new(&cache, 1, HEADS, TOKENS, format->row_bytes, 1),
               x = buffer_new(values * sizeof(float), 0);
        const int32_t first_slot = 0;
        memcpy(rows.data, bank_rows(format, side), rows.bytes);
        tq_dequantise_args args = {.batch = 1,
                                   .n_tokens = TOKENS,
                                   .cache = &cache,
                                   .first_slot = &first_slot,
                                   .x = (float *)x.data,
                                   .x_seq_stride = values,
                                   .x_token_stride = HEADS * d,
                                   .x_head_stride = d};
        tq_plan *plan = plan_pinned(variants[i], side, HEADS, 1, TOKENS, 0);
        dequantise_call c = {plan, &args};
        assert_int_equal(run_threads(1, dequantise_share, &c), TQ_OK);
        float *expected = malloc(x.bytes);
        assert_non_null(expected);
        memcpy(expected, x.data, x.bytes);
        memset(x.data, 0, x.bytes);
        assert_int_equal(run_threads(N_THREADS, dequantise_share, &c), TQ_OK);
        assert_memory_equal(x.data, expected, x.bytes);
        free(expected);
        tq_plan_destroy(plan);
        buffer_free(&rows);
        buffer_free(&x);
    }
}

/* ---- several launches at once ----------------------------------------------------------------------------------- */

static tq_status plan_and_run(void *argument, int index, int count) {
    const tq_variant *variant = argument;
    tq_plan_desc desc = TQ_PLAN_DESC_INIT;
    tq_plan *plan = NULL;
    (void)count;
    desc.head_dim = variant->k->head_dim;
    desc.gqa = variant->gqa;
    desc.k_format = variant->k->name;
    desc.v_format = variant->v->name;
    desc.max_n_kv = 100 + index;
    tq_status status = tq_plan_create(NULL, &desc, &plan);
    if (status || tq_plan_workspace_bytes(plan) == 0)
        return TQ_ERR_MEMORY;
    tq_plan_destroy(plan);
    return TQ_OK;
}

static void test_plans(void **state) {
    (void)state;
    const tq_variant *variant;
    some_variants(TQ_OP_DECODE, &variant, 1);
    for (int round = 0; round < ROUNDS; round++)
        assert_int_equal(run_threads(N_THREADS, plan_and_run, (void *)variant), TQ_OK);
}

/* Messages belong to the thread that failed. */
static tq_status fail_in_own_words(void *argument, int index, int count) {
    char name[32];
    tq_format_info info;
    (void)argument;
    snprintf(name, sizeof name, "format%dof%d", index, count);
    for (int i = 0; i < 200; i++)
        if (tq_format_find(name, 128, &info) != TQ_ERR_UNSUPPORTED || !strstr(tq_error_message(), name))
            return TQ_ERR_ARGUMENT;
    return TQ_OK;
}

static void test_messages(void **state) {
    (void)state;
    assert_int_equal(run_threads(N_THREADS, fail_in_own_words, NULL), TQ_OK);
}

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode), cmocka_unit_test(test_append),   cmocka_unit_test(test_dequantise),
        cmocka_unit_test(test_plans),  cmocka_unit_test(test_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
