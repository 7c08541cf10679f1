/* api_test: queries and plans: bad arguments of every public call, and what the good ones promise. */
#include "support.h"

static const tq_variant *decode, *append;

static int set_up(void **state) {
    (void)state;
    int count;
    const tq_variant **list = variants_here(TQ_OP_DECODE, &count);
    decode = count ? list[0] : NULL;
    for (int i = 0; i < count; i++) /* codebooks on both sides have most to check */
        if (list[i]->k->rotated && list[i]->v->rotated && strcmp(list[i]->layout, "rows") == 0)
            decode = list[i];
    free(list);
    list = variants_here(TQ_OP_APPEND, &count);
    append = count ? list[0] : NULL;
    assert_true(!append || strcmp(append->layout, "rows") == 0);
    free(list);
    return !decode || !append;
}

static void test_status_strings(void **state) {
    (void)state;
    for (int i = -3; i < 40; i++) {
        const char *text = tq_status_string((tq_status)i);
        assert_non_null(text);
        assert_true(text[0] != '\0');
    }
    assert_string_equal(tq_version_string(), TQ_VERSION);
}

static void test_devices(void **state) {
    (void)state;
    const tq_device *device = NULL;
    assert_true(tq_device_count() >= 1);
    assert_null(tq_device_at(-1));
    assert_null(tq_device_at(tq_device_count()));
    assert_int_equal(tq_device_find("cpu", &device), TQ_OK);
    assert_ptr_equal(device, tq_device_at(0));
    assert_string_equal(tq_device_name(device), "cpu");
    assert_true(tq_device_model(device)[0] != '\0');
    assert_refused(tq_device_find(NULL, &device), TQ_ERR_ARGUMENT, "name");
    assert_refused(tq_device_find("cpu", NULL), TQ_ERR_ARGUMENT, "out");
    assert_refused(tq_device_find("gpu9", &device), TQ_ERR_DEVICE, "gpu9");
    assert_non_null(strstr(tq_error_message(), "cpu")); /* what there is */
    assert_int_equal(tq_device_runs(NULL, "c"), 0);
    assert_int_equal(tq_device_runs(tq_device_at(0), NULL), 0);
    assert_int_equal(tq_device_runs(tq_device_at(0), "z80"), 0);
    assert_string_equal(tq_device_name(NULL), "");
    assert_string_equal(tq_device_model(NULL), "");
    assert_string_equal(tq_device_features(NULL), "");
}

static void test_formats(void **state) {
    (void)state;
    tq_format_info info, found;
    int count = tq_format_count();
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        assert_int_equal(tq_format_at(i, &info), TQ_OK);
        assert_int_equal(tq_format_find(info.name, info.head_dim, &found), TQ_OK);
        assert_int_equal(found.row_bytes, info.row_bytes);
        assert_near(info.bytes_per_value, (double)info.row_bytes / info.head_dim, 1e-12);
    }
    assert_refused(tq_format_at(-1, &info), TQ_ERR_ARGUMENT, "index");
    assert_refused(tq_format_at(count, &info), TQ_ERR_ARGUMENT, "index");
    assert_refused(tq_format_at(0, NULL), TQ_ERR_ARGUMENT, "out");
    assert_refused(tq_format_find(NULL, 128, &info), TQ_ERR_ARGUMENT, "name");
    assert_refused(tq_format_find(info.name, info.head_dim, NULL), TQ_ERR_ARGUMENT, "out");
    assert_refused(tq_format_find("turbo9", 128, &info), TQ_ERR_UNSUPPORTED, info.name);
    assert_refused(tq_format_find(info.name, 63, &info), TQ_ERR_UNSUPPORTED, "63");
    assert_refused(tq_format_find(info.name, -1, &info), TQ_ERR_UNSUPPORTED, "-1");
}

/* Names go out and come back; unknown ones are refused with the legal ones. */
static void test_names(void **state) {
    (void)state;
    tq_scale_mode mode;
    tq_op op;
    for (int i = 0; i <= TQ_SCALE_SEARCHED; i++) {
        assert_int_equal(tq_scale_mode_parse(tq_scale_mode_name((tq_scale_mode)i), &mode), TQ_OK);
        assert_int_equal(mode, i);
    }
    for (int i = 0; i <= TQ_OP_PREFILL; i++) {
        assert_int_equal(tq_op_parse(tq_op_name((tq_op)i), &op), TQ_OK);
        assert_int_equal(op, i);
    }
    assert_non_null(tq_scale_mode_name((tq_scale_mode)99));
    assert_non_null(tq_op_name((tq_op)99));
    assert_refused(tq_scale_mode_parse("best", &mode), TQ_ERR_ARGUMENT, "searched");
    assert_refused(tq_scale_mode_parse(NULL, &mode), TQ_ERR_ARGUMENT, "NULL");
    assert_refused(tq_scale_mode_parse("nc", NULL), TQ_ERR_ARGUMENT, "out");
    assert_refused(tq_op_parse("transpose", &op), TQ_ERR_ARGUMENT, "decode");
    assert_refused(tq_op_parse(NULL, &op), TQ_ERR_ARGUMENT, "NULL");
    assert_refused(tq_op_parse("decode", NULL), TQ_ERR_ARGUMENT, "out");
}

static void test_variants(void **state) {
    (void)state;
    tq_variant_info info;
    int count = tq_variant_count();
    for (int i = 0; i < count; i++) {
        assert_int_equal(tq_variant_at(i, &info), TQ_OK);
        assert_true(strncmp(info.name, "tq_", 3) == 0 && strstr(info.name, "__"));
        assert_int_equal(info.gqa > 0, tq_attends(info.op));
        assert_int_equal(info.k && info.v, tq_attends(info.op));
        assert_int_equal(info.runs_here, info.device != NULL);
        assert_non_null(info.kind);
    }
    assert_refused(tq_variant_at(-1, &info), TQ_ERR_ARGUMENT, "index");
    assert_refused(tq_variant_at(count, &info), TQ_ERR_ARGUMENT, "index");
    assert_refused(tq_variant_at(0, NULL), TQ_ERR_ARGUMENT, "out");
}

static void test_registries(void **state) {
    (void)state;
    const tq_registry old = {.abi = TQ_KERNEL_ABI + 1, .name = "old"};
    int count = tq_variant_count();
    assert_refused(tq_registry_add(NULL), TQ_ERR_ARGUMENT, "registry");
    assert_refused(tq_registry_add(&old), TQ_ERR_UNSUPPORTED, "ABI");
    assert_int_equal(tq_registry_add(tq_registry_at(0)), TQ_OK); /* twice is harmless */
    assert_int_equal(tq_variant_count(), count);
}

/* ---- plans ------------------------------------------------------------------------------------------------------ */

static tq_plan_desc good_desc(void) {
    tq_plan_desc desc = TQ_PLAN_DESC_INIT;
    desc.head_dim = decode->k->head_dim;
    desc.gqa = decode->gqa;
    desc.k_format = decode->k->name;
    desc.v_format = decode->v->name;
    desc.max_n_kv = 1000;
    return desc;
}

#define REFUSED(change, status, word)                                                                                  \
    do {                                                                                                               \
        tq_plan_desc desc = good_desc();                                                                               \
        tq_plan *plan = (tq_plan *)&desc;                                                                              \
        change;                                                                                                        \
        assert_refused(tq_plan_create(NULL, &desc, &plan), status, word);                                              \
        assert_null(plan);                                                                                             \
    } while (0)

static void test_plan_arguments(void **state) {
    (void)state;
    tq_plan_desc good = good_desc();
    tq_plan *plan = NULL;
    assert_refused(tq_plan_create(NULL, &good, NULL), TQ_ERR_ARGUMENT, "out");
    assert_refused(tq_plan_create(NULL, NULL, &plan), TQ_ERR_ARGUMENT, "desc");
    REFUSED(desc.struct_size = 0, TQ_ERR_ARGUMENT, "struct_size");
    REFUSED(desc.op = (tq_op)99, TQ_ERR_ARGUMENT, "op");
    REFUSED((desc.op = TQ_OP_APPEND, desc.side = (tq_side)7), TQ_ERR_ARGUMENT, "side");
    REFUSED(desc.head_dim = 0, TQ_ERR_ARGUMENT, "head_dim");
    REFUSED(desc.head_dim = -128, TQ_ERR_ARGUMENT, "head_dim");
    REFUSED(desc.head_dim = 1 << 20, TQ_ERR_ARGUMENT, "head_dim");
    REFUSED(desc.head_dim = 63, TQ_ERR_UNSUPPORTED, "nearest");
    REFUSED(desc.n_kv_heads = 0, TQ_ERR_ARGUMENT, "n_kv_heads");
    REFUSED(desc.n_kv_heads = -1, TQ_ERR_ARGUMENT, "n_kv_heads");
    REFUSED(desc.gqa = 0, TQ_ERR_ARGUMENT, "gqa");
    REFUSED(desc.gqa = TQ_MAX_GQA + 1, TQ_ERR_ARGUMENT, "gqa");
    REFUSED(desc.k_format = NULL, TQ_ERR_ARGUMENT, "k_format");
    REFUSED(desc.v_format = NULL, TQ_ERR_ARGUMENT, "v_format");
    REFUSED(desc.k_format = "turbo9", TQ_ERR_UNSUPPORTED, "turbo9");
    REFUSED(desc.v_format = "", TQ_ERR_UNSUPPORTED, "v_format");
    REFUSED(desc.layout = "tiled", TQ_ERR_UNSUPPORTED, "layout");
    REFUSED(desc.max_batch = 0, TQ_ERR_ARGUMENT, "max_batch");
    REFUSED(desc.max_n_kv = 0, TQ_ERR_ARGUMENT, "max_n_kv");
    REFUSED(desc.max_n_kv = -5, TQ_ERR_ARGUMENT, "max_n_kv");
    REFUSED(desc.n_threads = 0, TQ_ERR_ARGUMENT, "n_threads");
    REFUSED(desc.n_splits = -1, TQ_ERR_ARGUMENT, "n_splits");
    REFUSED(desc.n_splits = TQ_MAX_SPLITS + 1, TQ_ERR_ARGUMENT, "n_splits");
    REFUSED(desc.max_bias_pairs = -1, TQ_ERR_ARGUMENT, "max_bias_pairs");
    REFUSED(desc.max_bias_pairs = TQ_MAX_BIAS_PAIRS + 1, TQ_ERR_ARGUMENT, "max_bias_pairs");
    REFUSED(desc.effort = (tq_effort)9, TQ_ERR_ARGUMENT, "effort");
    REFUSED(desc.effort = TQ_EFFORT_PINNED, TQ_ERR_ARGUMENT, "pin");
    REFUSED((desc.effort = TQ_EFFORT_PINNED, desc.pin = "tq_nonsense"), TQ_ERR_ARGUMENT, "tq_nonsense");
    REFUSED((desc.effort = TQ_EFFORT_PINNED, desc.pin = append->name), TQ_ERR_ARGUMENT, "pin");
    REFUSED(desc.effort = TQ_EFFORT_FILE_ONLY, TQ_ERR_UNSUPPORTED, "FILE_ONLY");
    REFUSED((desc.effort = TQ_EFFORT_DEFAULT, desc.tuning_file = "/nonexistent/x"), TQ_ERR_IO, "/nonexistent/x");
}

/* A legal shape that nobody generated: the message is the command that would. */
static void test_missing_kernels(void **state) {
    (void)state;
    char gqa[32];
    int missing = 2;
    while (missing == decode->gqa || missing == 3 || missing == 4 || missing == 8)
        missing++;
    snprintf(gqa, sizeof gqa, "--gqa %d", missing);
    REFUSED(desc.gqa = missing, TQ_ERR_UNSUPPORTED, "gen/tqgen --arch");
    assert_non_null(strstr(tq_error_message(), gqa));
    assert_non_null(strstr(tq_error_message(), decode->k->name));
}

static void test_plan_answers(void **state) {
    (void)state;
    tq_plan_desc desc = good_desc();
    tq_plan *plan = NULL;
    char k_format[32];
    snprintf(k_format, sizeof k_format, "%s", desc.k_format);
    desc.k_format = k_format;
    desc.n_splits = 3;
    assert_int_equal(tq_plan_create(tq_device_at(0), &desc, &plan), TQ_OK);
    memset(k_format, 'x', sizeof k_format); /* strings are copied */
    assert_int_equal(tq_plan_splits(plan), 3);
    assert_true(tq_plan_workspace_bytes(plan) > 0);
    assert_true(strlen(tq_plan_why(plan)) > 10);
    assert_non_null(tq_variant_find(tq_plan_variant(plan), NULL));
    int n = 0;
    while (tq_plan_runner_up(plan, n)) {
        assert_string_not_equal(tq_plan_runner_up(plan, n), tq_plan_variant(plan));
        n++;
    }
    assert_null(tq_plan_runner_up(plan, -1));
    assert_null(tq_plan_runner_up(plan, n + 1));
    tq_plan_destroy(plan);

    desc = good_desc();
    desc.effort = TQ_EFFORT_MEASURE;
    assert_int_equal(tq_plan_create(NULL, &desc, &plan), TQ_OK);
    assert_non_null(strstr(tq_plan_why(plan), "measured"));
    tq_plan_destroy(plan);

    plan = plan_pinned(append, append->k ? TQ_SIDE_K : TQ_SIDE_V, 1, 1, 10, 0);
    assert_int_equal(tq_plan_workspace_bytes(plan), 0);
    tq_plan_destroy(plan);

    tq_plan_destroy(NULL);
    assert_string_equal(tq_plan_variant(NULL), "");
    assert_string_equal(tq_plan_why(NULL), "");
    assert_null(tq_plan_runner_up(NULL, 0));
    assert_int_equal(tq_plan_splits(NULL), 0);
    assert_int_equal(tq_plan_workspace_bytes(NULL), 0);
}

/* A variant for other hardware is known, and refused by what it lacks. */
static void test_foreign_target(void **state) {
    (void)state;
    static tq_variant variant;
    static const tq_variant *const variants[] = {&variant};
    static const tq_registry registry = {.abi = TQ_KERNEL_ABI,
                                         .name = "z80",
                                         .target = "z80",
                                         .needs = "index-registers",
                                         .n_variants = 1,
                                         .variants = variants};
    variant = *decode;
    variant.name = "tq_decode_foreign__z80";
    variant.target = registry.target;
    int count = tq_variant_count(), n_found = 0;
    assert_int_equal(tq_registry_add(&registry), TQ_OK);
    assert_int_equal(tq_variant_count(), count + 1);
    for (int i = 0; i <= count; i++) {
        tq_variant_info info;
        assert_int_equal(tq_variant_at(i, &info), TQ_OK);
        n_found += strcmp(info.name, variant.name) == 0 && !info.runs_here;
    }
    assert_int_equal(n_found, 1);
    REFUSED((desc.effort = TQ_EFFORT_PINNED, desc.pin = variant.name), TQ_ERR_DEVICE, "index-registers");
}

/* The table against the reference's halves, and what is refused. */
static void test_bias_table(void **state) {
    (void)state;
    static const uint32_t turns[] = {0, 1, 0x28be60db, 0x80000000, 0xffffffff};
    enum { N = sizeof turns / sizeof *turns };
    uint16_t table[N * 2 * TQ_BIAS_RUN];
    assert_int_equal(tq_score_bias_table(turns, N, table), TQ_OK);
    for (int p = 0; p < N; p++)
        for (uint32_t i = 0; i < TQ_BIAS_RUN; i++) {
            double angle = (double)(uint32_t)(turns[p] * i) / 0x1p32 * 2 * 3.14159265358979323846;
            const uint16_t *of_pair = table + p * 2 * TQ_BIAS_RUN;
            assert_int_equal(of_pair[i], tq_ref_half_from_double(cos(angle)));
            assert_int_equal(of_pair[TQ_BIAS_RUN + i], tq_ref_half_from_double(sin(angle)));
        }
    assert_int_equal(tq_score_bias_table(NULL, 1, table), TQ_ERR_ARGUMENT);
    assert_int_equal(tq_score_bias_table(turns, 1, NULL), TQ_ERR_ARGUMENT);
    assert_int_equal(tq_score_bias_table(turns, 0, table), TQ_ERR_ARGUMENT);
    assert_int_equal(tq_score_bias_table(turns, TQ_MAX_BIAS_PAIRS + 1, table), TQ_ERR_ARGUMENT);
    assert_non_null(strstr(tq_error_message(), "n_pairs is 65; legal is 1 to 64"));
}

/* Multi-head latent attention: V rows that are shorter than K rows. */
static void test_short_v_rows(void **state) {
    (void)state;
    enum { LONG = 496 };
    static tq_format_spec k;
    static tq_variant variant;
    static const tq_format_spec *formats[] = {&k};
    static const tq_variant *variants[] = {&variant};
    static const tq_registry registry = {.abi = TQ_KERNEL_ABI,
                                         .name = "latent",
                                         .target = "z80",
                                         .needs = "index-registers",
                                         .n_formats = 1,
                                         .n_variants = 1,
                                         .formats = formats,
                                         .variants = variants};
    assert_int_equal(tq_v_head_dim(decode->k->head_dim), decode->v->head_dim);
    assert_int_equal(tq_v_head_dim(LONG), LONG);
    k = *decode->k;
    k.head_dim = LONG;
    variant = *decode;
    variant.name = "tq_decode_latent__z80";
    variant.k = &k;
    assert_int_equal(tq_registry_add(&registry), TQ_OK);
    assert_int_equal(tq_v_head_dim(LONG), decode->v->head_dim);
    REFUSED((desc.op = TQ_OP_APPEND, desc.side = TQ_SIDE_V, desc.head_dim = LONG), TQ_ERR_ARGUMENT, "V rows");
    REFUSED(desc.head_dim = LONG, TQ_ERR_UNSUPPORTED, "gen/tqgen --arch"); /* found, but nothing here runs it */
}

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_strings), cmocka_unit_test(test_devices),
        cmocka_unit_test(test_formats),        cmocka_unit_test(test_names),
        cmocka_unit_test(test_variants),       cmocka_unit_test(test_registries),
        cmocka_unit_test(test_plan_arguments), cmocka_unit_test(test_missing_kernels),
        cmocka_unit_test(test_plan_answers),   cmocka_unit_test(test_foreign_target),
        cmocka_unit_test(test_bias_table),     cmocka_unit_test(test_short_v_rows),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
