/* variants_test: every decode variant that runs here against the double-precision reference on the same packed cache,
 * at the lengths where loops and tiles end, with all options, and at one long length. */
#include "support.h"

enum { MAX_IMPLEMENTATIONS = 64, MAX_CASES = 16, LONG_KEYS = 1000, HEADS = 2 };

/* Lengths of the cases of a contract: where loops and tiles of its implementations end, then one length for all options
 * at once, then, for some contracts, a long one. */
static int case_lengths(const tq_variant **variants, int n, int contract, int *lengths) {
    int n_cases = 2;
    lengths[0] = 0;
    lengths[1] = 1;
    for (int i = 0; i < n; i++) {
        int tile = variants[i]->impl->tile, known = 0;
        for (int c = 2; c < n_cases; c++)
            known |= lengths[c] == tile;
        for (int length = tile - 1; !known && length <= tile + 1; length++)
            lengths[n_cases++] = length;
        assert_true(n_cases <= MAX_CASES - 2);
    }
    lengths[n_cases++] = 150;
    if (contract % 8 == 0)
        lengths[n_cases++] = LONG_KEYS;
    return n_cases;
}

/* Strides, pages and first row vary with the contract. */
static problem_spec case_spec(const tq_variant *variant, int contract, int n_kv) {
    problem_spec spec = {.k = spec_of(variant->k->name, variant->k->head_dim),
                         .v = spec_of(variant->v->name, variant->v->head_dim),
                         .n_kv_heads = HEADS,
                         .gqa = variant->gqa,
                         .batch = 1,
                         .n_kv = {n_kv},
                         .interleaved = (contract + n_kv) % 2,
                         .first_row = (31 * contract + 97 * n_kv) % BANK_ROWS,
                         .spread_scales = 1};
    const int tiled = variant->keys_per_unit > 1;
    if (contract % 3 == 1)
        spec.page_slots = tiled ? TQ_MAX_TILE << contract % 2 : TQ_GROUP << contract % 5;
    if (n_kv == 150) {
        spec.softcap = 20;
        spec.window = 140;
        spec.alibi = spec.sink_logits = 1;
        spec.n_sink = 13;
        spec.bias_pairs = 1 + contract % TQ_MAX_BIAS_PAIRS;
    }
    return spec;
}

/* All implementations of one contract; returns how many of them are wrong. */
static int check_contract(const tq_variant **variants, int n, int contract, tq_ref_verdict *total) {
    int lengths[MAX_CASES], wrong[MAX_IMPLEMENTATIONS] = {0}, n_wrong = 0;
    int n_cases = case_lengths(variants, n, contract, lengths);
    tq_plan *plans[MAX_IMPLEMENTATIONS];
    assert_true(n <= MAX_IMPLEMENTATIONS);
    for (int i = 0; i < n; i++)
        plans[i] = plan_pinned(variants[i], TQ_SIDE_K, HEADS, 1, LONG_KEYS, 1 + (contract + i) % 3);
    for (int c = 0; c < n_cases; c++) {
        problem_spec spec = case_spec(variants[0], contract, lengths[c]);
        problem *p = problem_new(&spec);
        for (int i = 0; i < n; i++) {
            char what[256];
            snprintf(what, sizeof what, "%s, n_kv %d", variants[i]->name, lengths[c]);
            problem_launch(p, plans[i], 1);
            wrong[i] |= !problem_judge(p, what, total);
        }
        problem_free(p);
    }
    for (int i = 0; i < n; i++) {
        tq_plan_destroy(plans[i]);
        n_wrong += wrong[i];
    }
    return n_wrong;
}

static void test_every_variant(void **state) {
    (void)state;
    int count, contract = 0, run = 0, wrong = 0;
    const tq_variant **variants = variants_here(TQ_OP_DECODE, &count);
    int stride = test_stride(SLOW ? count : 1, 800); /* all of them, or about 200 */
    tq_ref_verdict codebook = {0}, plain = {0};
    for (int first = 0, next; first < count; first = next, contract++) {
        next = first + 1;
        while (next < count && same_contract(variants[first], variants[next]))
            next++;
        if (contract % stride)
            continue;
        int is_plain = variants[first]->k->bits == 16 && variants[first]->v->bits == 16;
        wrong += check_contract(variants + first, next - first, contract, is_plain ? &plain : &codebook);
        run += next - first;
    }
    printf("%d variants run, %d left out by stride %d (TQ_TEST_STRIDE); %d wrong\n", run, count - run, stride, wrong);
    printf("NMSE: codebook pairs %.2g, f16 pairs %.2g; largest error / bound %.2f, %.2f\n",
           codebook.power > 0 ? codebook.error / codebook.power : 0, plain.power > 0 ? plain.error / plain.power : 0,
           codebook.worst, plain.worst);
    free(variants);
    assert_int_equal(wrong, 0);
    assert_int_equal(codebook.n_non_finite + plain.n_non_finite, 0);
    assert_true(codebook.error <= 1e-7 * codebook.power);
    assert_true(plain.error <= 1e-12 * plain.power);
    assert_true(run > 0);
}

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_variant)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
