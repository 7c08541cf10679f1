/* device_test: what devices are, their memory and time, and plans on devices that load kernels. */
#include "recorder.h"

#include "tiles.h"

/* ---- devices ---------------------------------------------------------------------------------------------------- */

static void test_list(void **state) {
    (void)state;
    tq_device_info info;
    assert_int_equal(tq_device_describe(NULL, &info), TQ_OK);
    assert_string_equal(info.name, "cpu");
    assert_string_equal(info.kind, "cpu");
    assert_int_equal(info.warp, 1);
    assert_int_equal(tq_device_describe(simt64, &info), TQ_OK);
    assert_string_equal(info.kind, "simt");
    assert_int_equal(info.warp, 64);
    assert_true(info.shared_bytes >= 64 << 10);
    assert_refused(tq_device_describe(cpu, NULL), TQ_ERR_ARGUMENT, "out");
    assert_int_equal(tq_device_runs(simt32, "test"), 1);
    assert_int_equal(tq_device_runs(simt64, "test"), 0);
    assert_int_equal(tq_device_runs(cpu, "test"), 0);
    for (int i = 0; i < tq_variant_count(); i++) {
        tq_variant_info v;
        assert_int_equal(tq_variant_at(i, &v), TQ_OK);
        if (strcmp(v.target, "test") == 0) {
            assert_int_equal(v.runs_here, 1);
            assert_string_equal(v.kind, "simt");
            assert_string_equal(v.device, "simt:32");
        }
    }
}

static void test_memory(void **state) {
    (void)state;
    enum { N = 1000 };
    uint8_t here[N], back[N];
    for (int i = 0; i < N; i++)
        here[i] = (uint8_t)(7 * i);
    for (int i = 0; i < tq_device_count(); i++) {
        const tq_device *device = tq_device_at(i);
        void *memory = NULL;
        assert_int_equal(tq_device_alloc(device, N, &memory), TQ_OK);
        assert_int_equal((uintptr_t)memory % 256, 0);
        memset(back, 0, N);
        assert_int_equal(tq_device_copy_in(device, memory, here, N), TQ_OK);
        assert_int_equal(tq_device_copy_out(device, back, memory, N), TQ_OK);
        assert_memory_equal(here, back, N);
        assert_int_equal(device->ops->fill(device, memory, 0x5a, N, NULL), TQ_OK);
        assert_int_equal(tq_device_synchronise(device, NULL), TQ_OK);
        assert_int_equal(tq_device_copy_out(device, back, memory, N), TQ_OK);
        for (int b = 0; b < N; b++)
            assert_int_equal(back[b], 0x5a);
        assert_int_equal(tq_device_copy_in(device, NULL, NULL, 0), TQ_OK);
        assert_refused(tq_device_copy_in(device, NULL, here, N), TQ_ERR_ARGUMENT, "destination");
        assert_refused(tq_device_copy_out(device, back, NULL, N), TQ_ERR_ARGUMENT, "source");
        tq_device_free(device, memory);
        assert_refused(tq_device_alloc(device, SIZE_MAX, &memory), TQ_ERR_MEMORY, device->name);
        assert_null(memory);
        assert_refused(tq_device_alloc(device, N, NULL), TQ_ERR_ARGUMENT, "out");
        tq_device_free(device, NULL);
    }
}

static void test_timer(void **state) {
    (void)state;
    double ns = -1;
    tq_timer *timer;
    for (int i = 0; i < tq_device_count(); i++) {
        assert_int_equal(tq_timer_create(tq_device_at(i), &timer), TQ_OK);
        assert_int_equal(tq_timer_start(timer, NULL), TQ_OK);
        assert_int_equal(tq_timer_stop(timer, NULL, &ns), TQ_OK);
        assert_true(ns >= 0 && ns < 1e9);
        assert_refused(tq_timer_stop(timer, NULL, NULL), TQ_ERR_ARGUMENT, "ns");
        tq_timer_destroy(timer);
    }
    assert_refused(tq_timer_create(NULL, NULL), TQ_ERR_ARGUMENT, "out");
    assert_refused(tq_timer_start(NULL, NULL), TQ_ERR_ARGUMENT, "timer");
    assert_refused(tq_timer_stop(NULL, NULL, &ns), TQ_ERR_ARGUMENT, "timer");
    tq_timer_destroy(NULL);
}

/* ---- plans ------------------------------------------------------------------------------------------------------ */

#define REFUSED_PLAN(device, which, change, status, word)                                                              \
    do {                                                                                                               \
        tq_plan_desc desc = recorder_desc(which);                                                                      \
        tq_plan *plan;                                                                                                 \
        change;                                                                                                        \
        assert_refused(tq_plan_create(device, &desc, &plan), status, word);                                            \
    } while (0)

static void test_plans(void **state) {
    (void)state;
    /* Kinds do not mix: not by pin, not by registry order. */
    REFUSED_PLAN(cpu, DECODE, desc.layout = "rows", TQ_ERR_DEVICE, "simt");
    REFUSED_PLAN(simt64, DECODE, desc.layout = "rows", TQ_ERR_DEVICE, "simt32");
    REFUSED_PLAN(cpu, DECODE_TILES, desc.effort = TQ_EFFORT_DEFAULT, TQ_ERR_UNSUPPORTED, "layout");
    REFUSED_PLAN(cpu, REPACK, , TQ_ERR_UNSUPPORTED, "layout");
    tq_plan_desc desc = recorder_desc(DECODE);
    desc.effort = TQ_EFFORT_DEFAULT;
    tq_plan *plan = recorder_plan(cpu, &desc);
    assert_true(tq_variant_find(tq_plan_variant(plan), NULL)->decode != NULL);
    tq_plan_destroy(plan);

    /* What is missing is made for the device's arch. */
    REFUSED_PLAN(simt32, DECODE, desc.gqa = 5, TQ_ERR_UNSUPPORTED, "--arch simt-sm_90");
    REFUSED_PLAN(simt32, DECODE_TILES, (desc.gqa = 5, desc.effort = TQ_EFFORT_DEFAULT), TQ_ERR_UNSUPPORTED,
                 "--layout tile_test");
    REFUSED_PLAN(simt32, DECODE, desc.n_splits = TQ_MAX_GPU_SPLITS + 1, TQ_ERR_ARGUMENT, "n_splits");

    for (int which = REPACK; which <= PREFILL; which++) {
        tq_plan_desc measured = recorder_desc(which);
        measured.effort = TQ_EFFORT_MEASURE;
        measured.n_kv_heads = 1;
        plan = recorder_plan(simt32, &measured);
        assert_string_equal(tq_plan_variant(plan), recorders[which].name);
        assert_non_null(strstr(tq_plan_why(plan), "measured"));
        tq_plan_destroy(plan);
    }
    forget_grid();
}

/* As many splits as fill the device, none shorter than what a step takes. */
static void test_splits(void **state) {
    (void)state;
    tq_plan_desc desc = recorder_desc(DECODE);
    tq_plan *plan =
        recorder_plan(simt32, &desc); /* 16 blocks at a time: 3 splits of 6 pairs are 2 waves, 5 are 2 full ones */
    assert_int_equal(tq_plan_splits(plan), 5);
    assert_int_equal(plan->min_split_keys, 256);
    size_t pairs = BATCH * HEADS, partial = GQA * (HEAD_DIM + 2) * sizeof(float);
    assert_int_equal(tq_plan_workspace_bytes(plan), 64 + pairs * 5 * partial);
    tq_plan_destroy(plan);
    desc.max_n_kv = 256 + 255;
    plan = recorder_plan(simt32, &desc);
    assert_int_equal(tq_plan_splits(plan), 1);
    tq_plan_destroy(plan);
    desc.n_splits = 7;
    plan = recorder_plan(simt32, &desc);
    assert_int_equal(tq_plan_splits(plan), 7);
    assert_int_equal(plan->min_split_keys, 1);
    tq_plan_destroy(plan);
    desc = recorder_desc(DECODE_TILES);
    plan = recorder_plan(simt32, &desc); /* one at a time: nothing is gained */
    assert_int_equal(tq_plan_splits(plan), 1);
    assert_int_equal(plan->min_split_keys, 288);
    tq_plan_destroy(plan);
}

static void test_layouts(void **state) {
    (void)state;
    tq_layout_info info;
    assert_int_equal(tq_layout_find("rows", "turbo3", HEAD_DIM, &info), TQ_OK);
    assert_int_equal(info.keys_per_unit, 1);
    assert_int_equal(info.unit_bytes, spec_of("turbo3", HEAD_DIM)->row_bytes);
    assert_int_equal(tq_layout_find("tile_test", "turbo3", HEAD_DIM, &info), TQ_OK);
    assert_int_equal(info.keys_per_unit, TILE_KEYS);
    assert_int_equal(info.unit_bytes, 1600);
    static const tq_chunk two[] = {{.size = 128}, {.first_value = 128, .size = 128}}, small = {.size = 64},
                          odd = {.size = 192};
    const tq_format_spec turbo4 = {.bits = 4, .n_chunks = 1, .chunks = two},
                         gain3 = {.bits = 3, .sub = 16, .n_chunks = 2, .chunks = two},
                         turbo3 = {.bits = 3, .n_chunks = 1, .chunks = &small},
                         gain4 = {.bits = 4, .sub = 16, .n_chunks = 1, .chunks = &odd};
    assert_int_equal(tq_unit_bytes(&turbo4, "tile_test", TILE_KEYS), 2112);
    assert_int_equal(tq_unit_bytes(&gain3, "tile_test", TILE_KEYS), 2 * 1728);
    assert_int_equal(tq_unit_bytes(&turbo3, "tile_test", 2 * TILE_KEYS), 1664);
    assert_int_equal(tq_unit_bytes(&gain4, "tile_test", 2 * TILE_KEYS), 6656);
    /* The reference has worked it out by itself. */
    for (int i = 0; i < tq_variant_count(); i++) {
        tq_variant_info v;
        assert_int_equal(tq_variant_at(i, &v), TQ_OK);
        const tq_format_spec *spec = spec_of(v.k ? v.k : v.v, v.head_dim);
        if (!tile_keys(v.layout, spec))
            continue;
        assert_int_equal(tq_layout_find(v.layout, spec->name, v.head_dim, &info), TQ_OK);
        assert_int_equal(info.keys_per_unit, tile_keys(v.layout, spec));
        assert_int_equal(info.unit_bytes, tile_bytes(v.layout, spec));
    }
    assert_refused(tq_layout_find("tile_none", "turbo3", HEAD_DIM, &info), TQ_ERR_UNSUPPORTED, "tile_test");
    assert_refused(tq_layout_find("tile_test", "f16", HEAD_DIM, &info), TQ_ERR_UNSUPPORTED, "rows");
    assert_refused(tq_layout_find("rows", "turbo3", 1, &info), TQ_ERR_UNSUPPORTED, "head_dim");
    assert_refused(tq_layout_find(NULL, "turbo3", HEAD_DIM, &info), TQ_ERR_ARGUMENT, "layout");
    assert_refused(tq_layout_find("rows", NULL, HEAD_DIM, &info), TQ_ERR_ARGUMENT, "format");
    assert_refused(tq_layout_find("rows", "turbo3", HEAD_DIM, NULL), TQ_ERR_ARGUMENT, "out");
}

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),  cmocka_unit_test(test_memory), cmocka_unit_test(test_timer),
        cmocka_unit_test(test_plans), cmocka_unit_test(test_splits), cmocka_unit_test(test_layouts),
    };
    return cmocka_run_group_tests(tests, recorder_set_up, NULL);
}
