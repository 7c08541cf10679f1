/* dequantise_test: every dequantise variant that runs here, on GPU targets too: decoded values against the reference,
 * strides and slots. */
#include "support.h"

enum { N_TOKENS = 37, N_SLOTS = 50, FIRST_SLOT = 13, BATCH = 2, HEADS = 2, GAP = 3, PAGE_SLOTS = 128 };

/* float32 through the transform: a few roundings of the chunk's norm, and of the mean that is added. */
static double tolerance(const tq_format_spec *format, const double *x, const float *mean, int i) {
    double square = 0;
    for (int v = 0; v < format->head_dim; v++)
        square += pow(x[v] - (mean ? (double)mean[v] : 0), 2);
    return 4 * 0x1p-24 * (sqrt(square) + fabs(x[i])) + 0x1p-126;
}

typedef struct job {
    const tq_variant *variant;
    const tq_format_spec *format;
    tq_side side;
    tq_dequantise_args args; /* on the host */
    size_t x_bytes;
} job;

static tq_status run_on_host(const job *j, const tq_plan *plan) {
    const tq_launch launch = {NULL, 0, 0, 1, NULL};
    return tq_dequantise(plan, &j->args, &launch);
}

/* Pages, and halves or floats. */
static tq_status run_on_device(const job *j, const tq_plan *plan, int page_slots) {
    const tq_device *device = plan->device;
    const tq_launch launch = {.thread_count = 1};
    size_t mean_bytes = HEADS * (size_t)j->format->head_dim * sizeof(float);
    device_cache cache =
        device_cache_new(device, j->variant, j->format, j->side, BATCH, HEADS, N_SLOTS, page_slots, page_slots == 0);
    device_buffer first = device_copy(device, j->args.first_slot, BATCH * sizeof(int32_t), 4);
    device_buffer mean = device_copy(device, j->args.mean, mean_bytes, 4);
    device_buffer x = device_copy(device, j->args.x, j->x_bytes, 4);
    tq_dequantise_args args = j->args;
    device_cache_fill(&cache, j->args.cache, BATCH, HEADS);
    args.cache = &cache.cache;
    args.first_slot = (const int32_t *)first.data;
    args.mean = (const float *)mean.data;
    args.x = x.data;
    tq_status status = tq_dequantise(plan, &args, &launch);
    if (!status)
        status = tq_device_synchronise(device, NULL);
    device_read(&x, j->args.x);
    device_cache_free(&cache);
    device_buffer_free(&first);
    device_buffer_free(&mean);
    device_buffer_free(&x);
    return status;
}

static double value_at(const job *j, size_t i) {
    if (j->args.x_type == TQ_F16)
        return tq_ref_half_to_double(((const uint16_t *)j->args.x)[i]);
    return (double)((const float *)j->args.x)[i];
}

static void check_values(const job *j) {
    const tq_dequantise_args *args = &j->args;
    for (int s = 0; s < BATCH; s++)
        for (int t = 0; t < N_TOKENS; t++)
            for (int h = 0; h < HEADS; h++) {
                double expected[TQ_MAX_HEAD_DIM];
                const float *m = args->mean ? args->mean + h * j->format->head_dim : NULL;
                size_t at =
                    (size_t)s * args->x_seq_stride + (size_t)t * args->x_token_stride + (size_t)h * args->x_head_stride;
                tq_ref_decode_row(j->format, j->side, tq_cache_row(args->cache, s, h, args->first_slot[s] + t), m,
                                  expected);
                for (int i = 0; i < j->format->head_dim; i++) {
                    double found = value_at(j, at + (size_t)i), slack = tolerance(j->format, expected, m, i);
                    if (args->x_type == TQ_F16)
                        slack += 0x1p-11 * fabs(expected[i]) + 0x1p-25;
                    if (!(fabs(found - expected[i]) <= slack))
                        fail_msg("%s: sequence %d, token %d, head %d, value %d is %.9g, expected %.9g",
                                 j->variant->name, s, t, h, i, found, expected[i]);
                }
            }
}

static void check_variant(const tq_variant *variant, int use_mean, tq_value_type type) {
    const tq_format_spec *own = variant->k ? variant->k : variant->v, *format = spec_of(own->name, own->head_dim);
    job j = {.variant = variant, .format = format, .side = variant->k ? TQ_SIDE_K : TQ_SIDE_V};
    int d = format->head_dim;
    size_t head_stride = (size_t)d + GAP, token_stride = HEADS * head_stride, seq_stride = N_TOKENS * token_stride;
    size_t value_bytes = type == TQ_F16 ? 2 : sizeof(float);
    tq_cache cache;
    buffer rows = cache_new(&cache, BATCH, HEADS, N_SLOTS, format->row_bytes, use_mean);
    buffer x = buffer_new((BATCH * seq_stride - GAP) * value_bytes, 0);
    float mean[HEADS * TQ_MAX_HEAD_DIM];
    random_state r = random_stream(21);
    random_normals(&r, mean, HEADS * d);
    memcpy(rows.data, bank_rows(format, j.side), rows.bytes);
    memset(x.data, 0x7f, x.bytes);
    const int32_t first_slot[BATCH] = {FIRST_SLOT, 0};
    j.x_bytes = x.bytes;
    j.args = (tq_dequantise_args){.batch = BATCH,
                                  .n_tokens = N_TOKENS,
                                  .cache = &cache,
                                  .first_slot = first_slot,
                                  .mean = use_mean ? mean : NULL,
                                  .x = x.data,
                                  .x_seq_stride = seq_stride,
                                  .x_token_stride = token_stride,
                                  .x_head_stride = head_stride,
                                  .x_type = type};
    tq_plan *plan = plan_pinned(variant, j.side, HEADS, BATCH, N_SLOTS, 0);
    int elsewhere = variant->gpu || strcmp(variant->layout, "rows") != 0;
    if ((elsewhere ? run_on_device(&j, plan, use_mean ? PAGE_SLOTS : 0) : run_on_host(&j, plan)) != TQ_OK)
        fail_msg("%s: %s", variant->name, tq_error_message());
    check_values(&j);
    for (size_t i = 0; i < x.bytes / value_bytes; i++)
        if (i % head_stride >= (size_t)d) /* between the heads */
            assert_memory_equal(x.data + i * value_bytes, "\x7f\x7f\x7f\x7f", value_bytes);
    tq_plan_destroy(plan);
    buffer_free(&rows);
    buffer_free(&x);
}

static void test_every_variant(void **state) {
    (void)state;
    int count, gpu_count;
    const tq_variant **variants = variants_here(TQ_OP_DEQUANTISE, &count);
    for (int i = 0; i < count; i++) {
        check_variant(variants[i], 0, TQ_F32);
        check_variant(variants[i], 1, TQ_F32);
    }
    free(variants);
    variants = gpu_variants_here(TQ_OP_DEQUANTISE, &gpu_count);
    for (int i = 0; i < gpu_count; i++) {
        tq_simt_set_seed((unsigned)i);
        check_variant(variants[i], 0, i % 2 ? TQ_F16 : TQ_F32);
        check_variant(variants[i], 1, i % 2 ? TQ_F32 : TQ_F16);
    }
    free(variants);
    assert_true(count + gpu_count > 0);
}

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_variant)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
