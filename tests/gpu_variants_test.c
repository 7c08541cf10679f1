/* gpu_variants_test: every decode variant of GPU targets that some device here runs, SIMT devices included, against the
 * double-precision reference on the same packed cache: the lengths where steps end, all options at once, pages, splits,
 * and several orders of blocks and threads. */
#include "support.h"

enum {
    HEADS = 2,
    LONG_KEYS = 700,
    MOST_KEYS = 1100,
    PAGE = 64,
    FEW = 16 /* variants, all of which are run at length */
};

/* What a variant is run on. */
typedef struct setting {
    const char *what;
    problem_spec spec;
    int n_splits, page_slots;
    unsigned seed; /* of a SIMT device */
} setting;

/* Slots of a page, which holds a whole tile. */
static int page_of(const tq_variant *variant) {
    return variant->gpu->keys_per_tile > PAGE ? variant->gpu->keys_per_tile : PAGE;
}

static problem_spec spec_for(const tq_variant *variant, int contract) {
    return (problem_spec){.k = spec_of(variant->k->name, variant->k->head_dim),
                          .v = spec_of(variant->v->name, variant->v->head_dim),
                          .n_kv_heads = HEADS,
                          .gqa = variant->gqa,
                          .interleaved = contract % 2,
                          .first_row = 31 * contract % BANK_ROWS,
                          .bias_pairs = variant->gpu->bias_pairs,
                          .arithmetic = TQ_REF_HALVES};
}

/* Sequences that end about a step, and an empty one, in one launch; fewer splits than the longest has steps. */
static setting around_a_step(const tq_variant *variant, int contract) {
    int step = variant->gpu->keys_per_step;
    const int lengths[] = {0, 1, step - 1, step, step + 1, 2 * step + 5};
    setting s = {"around a step", spec_for(variant, contract), 1 + contract % 3, 0, (unsigned)(contract % 2)};
    for (int i = 0; i < (int)(sizeof lengths / sizeof *lengths); i++)
        s.spec.n_kv[s.spec.batch++] = lengths[i];
    return s;
}

/* One sequence lies in its sink tokens, one behind them, one begins its window behind them. */
static setting all_options(const tq_variant *variant, int contract) {
    setting s = {"all options", spec_for(variant, contract), 3, page_of(variant), (unsigned)(2 + contract % 7)};
    const int lengths[] = {9, 14, 150};
    for (int i = 0; i < 3; i++)
        s.spec.n_kv[s.spec.batch++] = lengths[i];
    s.spec.softcap = 20;
    s.spec.window = 141;
    s.spec.alibi = s.spec.sink_logits = 1;
    s.spec.n_sink = 13;
    s.spec.bias_pairs -= s.spec.bias_pairs ? contract % 8 : 0;
    return s;
}

/* Scores and scales grow, and a warp sees it where there is one split: what it has must be scaled down. */
static setting long_context(const tq_variant *variant, int contract) {
    setting s = {"long context", spec_for(variant, contract), contract % 2 ? 5 : 1, contract % 4 ? page_of(variant) : 0,
                 11};
    s.spec.batch = 1;
    s.spec.n_kv[0] = LONG_KEYS;
    s.spec.alibi = s.spec.growing = 1;
    return s;
}

/* Of a later tile of a warp one key stands out, in the upper half of a warp however keys are dealt to lanes. */
static setting one_key(const tq_variant *variant, int contract) {
    setting s = {"one key", spec_for(variant, contract), 1, 0, 5};
    const int first = variant->gpu->keys_per_step > 256 ? variant->gpu->keys_per_step : 256; /* of later tiles */
    s.spec.batch = 1;
    s.spec.n_kv[0] = first + 144;
    s.spec.outlier = first + 104;
    return s;
}

/* Biases so large that what rounding to halves leaves of their coefficients shows: in lse, which no large key blurs. */
static setting large_bias(const tq_variant *variant, int contract) {
    setting s = {"large bias", spec_for(variant, contract), 1, 0, 7};
    s.spec.batch = 1;
    s.spec.n_kv[0] = 40;
    s.spec.large_bias = 1;
    return s;
}

/* All implementations of one contract; returns how many verdicts are wrong. */
static int check(const tq_variant **variants, int n, const setting *s, tq_ref_verdict *total) {
    int wrong = 0;
    problem *p = problem_new(&s->spec);
    for (int i = 0; i < n; i++) {
        char what[256];
        snprintf(what, sizeof what, "%s, %s", variants[i]->name, s->what);
        tq_plan *plan = plan_pinned(variants[i], TQ_SIDE_K, HEADS, s->spec.batch, MOST_KEYS, s->n_splits);
        problem_launch_on_device(p, plan, s->page_slots, s->seed);
        wrong += !problem_judge(p, what, total);
        tq_plan_destroy(plan);
    }
    problem_free(p);
    return wrong;
}

static void test_every_variant(void **state) {
    (void)state;
    int count, contract = 0, run = 0, wrong = 0;
    const tq_variant **variants = gpu_variants_here(TQ_OP_DECODE, &count);
    int stride = test_stride(count, 400);
    tq_ref_verdict total = {0}, lone = {0}; /* the outputs of the latter hang on few products */
    for (int first = 0, next; first < count; first = next, contract++) {
        next = first + 1;
        while (next < count && same_contract(variants[first], variants[next]) &&
               variants[next]->gpu->keys_per_step == variants[first]->gpu->keys_per_step)
            next++;
        if (contract % stride)
            continue;
        const setting settings[] = {around_a_step(variants[first], contract), all_options(variants[first], contract),
                                    long_context(variants[first], contract), one_key(variants[first], contract),
                                    large_bias(variants[first], contract)};
        const int n = variants[first]->gpu->bias_pairs ? 5 : 4;
        for (int i = 0; i < n; i++)
            if (i < 2 || contract % 4 == 0 || count < FEW)
                wrong += check(variants + first, next - first, &settings[i], i < 2 ? &total : &lone);
        run += next - first;
    }
    printf("%d variants run, %d left out by stride %d (TQ_TEST_STRIDE); %d verdicts wrong\n", run, count - run, stride,
           wrong);
    printf("NMSE %.2g; largest error / bound %.2f, where single rows stand out %.2f\n",
           total.power > 0 ? total.error / total.power : 0, total.worst, lone.worst);
    free(variants);
    assert_int_equal(wrong, 0);
    assert_int_equal(total.n_non_finite + lone.n_non_finite, 0);
    assert_true(total.error <= 2e-7 * total.power);
}

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_variant)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
