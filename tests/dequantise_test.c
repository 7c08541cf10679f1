/* dequantise_test: every dequantise variant that runs here: decoded values against the reference, strides and slots. */
#include "support.h"

enum { N_TOKENS = 37, N_SLOTS = 50, FIRST_SLOT = 13, BATCH = 2, HEADS = 2, GAP = 3 };

/* float32 through the transform: a few roundings of the chunk's norm, and of the mean that is added. */
static double tolerance(const tq_format_spec *format, const double *x, const float *mean, int i) {
    double square = 0;
    for (int v = 0; v < format->head_dim; v++)
        square += pow(x[v] - (mean ? (double)mean[v] : 0), 2);
    return 4 * 0x1p-24 * (sqrt(square) + fabs(x[i])) + 0x1p-126;
}

static void check_variant(const tq_variant *variant, int use_mean) {
    const tq_format_spec *own = variant->k ? variant->k : variant->v, *format = spec_of(own->name, own->head_dim);
    tq_side side = variant->k ? TQ_SIDE_K : TQ_SIDE_V;
    int d = format->head_dim;
    size_t head_stride = (size_t)d + GAP, token_stride = HEADS * head_stride, seq_stride = N_TOKENS * token_stride;
    tq_cache cache;
    buffer rows = cache_new(&cache, BATCH, HEADS, N_SLOTS, format->row_bytes, use_mean);
    buffer x = buffer_new((BATCH * seq_stride - GAP) * sizeof(float), 0);
    float mean[HEADS * TQ_MAX_HEAD_DIM];
    random_state r = random_stream(21);
    random_normals(&r, mean, HEADS * d);
    memcpy(rows.data, bank_rows(format, side), rows.bytes);
    memset(x.data, 0x7f, x.bytes);
    const int32_t first_slot[BATCH] = {FIRST_SLOT, 0};
    tq_dequantise_args args = {.batch = BATCH,
                               .n_tokens = N_TOKENS,
                               .cache = &cache,
                               .first_slot = first_slot,
                               .mean = use_mean ? mean : NULL,
                               .x = (float *)x.data,
                               .x_seq_stride = seq_stride,
                               .x_token_stride = token_stride,
                               .x_head_stride = head_stride};
    tq_launch launch = {NULL, 0, 0, 1};
    tq_plan *plan = plan_pinned(variant, side, HEADS, BATCH, N_SLOTS, 0);
    assert_int_equal(tq_dequantise(plan, &args, &launch), TQ_OK);
    for (int s = 0; s < BATCH; s++)
        for (int t = 0; t < N_TOKENS; t++)
            for (int h = 0; h < HEADS; h++) {
                double expected[TQ_MAX_HEAD_DIM];
                const float *m = use_mean ? mean + h * d : NULL;
                const float *found =
                    args.x + (size_t)s * seq_stride + (size_t)t * token_stride + (size_t)h * head_stride;
                tq_ref_decode_row(format, side, tq_cache_row(&cache, s, h, first_slot[s] + t), m, expected);
                for (int i = 0; i < d; i++)
                    if (!(fabs((double)found[i] - expected[i]) <= tolerance(format, expected, m, i)))
                        fail_msg("%s: sequence %d, token %d, head %d, value %d is %.9g, expected %.9g", variant->name,
                                 s, t, h, i, (double)found[i], expected[i]);
            }
    for (size_t i = 0; i < x.bytes / sizeof(float); i++)
        if (i % head_stride >= (size_t)d) /* between the heads */
            assert_memory_equal(x.data + i * sizeof(float), "\x7f\x7f\x7f\x7f", sizeof(float));
    tq_plan_destroy(plan);
    buffer_free(&rows);
    buffer_free(&x);
}

static void test_every_variant(void **state) {
    (void)state;
    int count;
    const tq_variant **variants = variants_here(TQ_OP_DEQUANTISE, &count);
    for (int i = 0; i < count; i++) {
        check_variant(variants[i], 0);
        check_variant(variants[i], 1);
    }
    assert_true(count > 0);
    free(variants);
}

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_variant)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
