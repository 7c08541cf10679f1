/* variants_test: every decode variant that runs here against the double-precision reference on the same packed cache, at
 * the lengths where loops and tiles end, with all options, and at one long length. */
#include "support.h"

enum { LONG_KEYS = 1000, N_CASES = 10 };

/* Case 8 uses every option, case 9 is long. Layout, splits and the first row vary with the contract. */
static problem_spec case_spec(const tq_variant *variant, int contract, int which) {
    static const int lengths[N_CASES] = {0, 1, 63, 64, 65, 127, 128, 129, 150, LONG_KEYS};
    problem_spec spec = {.k = spec_of(variant->k->name, variant->k->head_dim),
                         .v = spec_of(variant->v->name, variant->v->head_dim),
                         .n_kv_heads = which == N_CASES - 1 ? 1 : 2,
                         .gqa = variant->gqa,
                         .batch = 1,
                         .n_kv = {lengths[which]},
                         .interleaved = (contract + which) % 2,
                         .first_row = 31 * contract + 97 * which};
    if (which == 8) {
        spec.softcap = 20;
        spec.window = 140;
        spec.alibi = spec.sink_logits = 1;
        spec.n_sink = 13;
    }
    return spec;
}

static int runs_case(int contract, int which) {
    return which < N_CASES - 1 || contract % 8 == 0;
}

/* All implementations of one contract; returns how many of them are wrong. */
static int check_contract(const tq_variant **variants, int n, int contract, tq_ref_verdict *total) {
    int *wrong = calloc((size_t)n, sizeof *wrong), n_wrong = 0;
    assert_non_null(wrong);
    for (int which = 0; which < N_CASES; which++) {
        if (!runs_case(contract, which))
            continue;
        problem_spec spec = case_spec(variants[0], contract, which);
        problem *p = problem_new(&spec);
        for (int i = 0; i < n; i++) {
            char what[256];
            snprintf(what, sizeof what, "%s, case %d, n_kv %d", variants[i]->name, which, spec.n_kv[0]);
            problem_run(p, variants[i], 1 + (contract + i + which) % 3, 1);
            wrong[i] |= !problem_judge(p, what, total);
        }
        problem_free(p);
    }
    for (int i = 0; i < n; i++)
        n_wrong += wrong[i];
    free(wrong);
    return n_wrong;
}

static void test_every_variant(void **state) {
    (void)state;
    int count, stride = test_stride(23), contract = 0, run = 0, wrong = 0;
    const tq_variant **variants = variants_here(TQ_OP_DECODE, &count);
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
