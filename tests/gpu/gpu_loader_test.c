/* gpu_loader_test: CUDA and HIP devices on stub drivers: what is found, loaded and launched, in which context, by which
 * thread, and what a captured launch calls. Every test runs once for each vendor. */
#include "gpu_support.h"

static int set_up(void **state) {
    (void)state;
    if (open_stubs())
        return 1;
    for (int i = 0; i < N_VENDORS; i++)
        add_registries(&vendors[i]);
    return 0;
}

static const vendor *begin(void **state) {
    const vendor *v = *state;
    v->stub->state->n_calls = v->stub->state->n_launches = 0;
    return v;
}

/* ---- devices ---------------------------------------------------------------------------------------------------- */

static void check_device(const vendor *v, int ordinal, const char *model, const char *features, int warp) {
    const tq_device *device = device_of(v, ordinal);
    tq_device_info info;
    assert_non_null(device);
    assert_string_equal(tq_device_model(device), model);
    assert_string_equal(tq_device_features(device), features);
    assert_int_equal(tq_device_describe(device, &info), TQ_OK);
    assert_string_equal(info.kind, v->name);
    assert_int_equal(info.warp, warp);
    assert_int_equal(info.multiprocessors, v->devices[ordinal].multiprocessors);
    assert_int_equal(info.shared_bytes, v->devices[ordinal].shared_bytes);
    assert_int_equal(info.memory_bytes, v->devices[ordinal].memory_bytes);
}

static void test_devices(void **state) {
    const vendor *v = begin(state);
    if (v->kind == TQ_KIND_CUDA) {
        check_device(v, 0, "Stub Ada", "sm_89 sm_86 sm_80", 32);
        check_device(v, 1, "Stub Hopper", "sm_90", 32);
        check_device(v, 2, "Stub Orin", "sm_87", 32); /* no cubins of other chips run there */
        assert_string_equal(device_of(v, 0)->arch, "sm_89");
    } else {
        check_device(v, 0, "Stub RDNA 4", "gfx1201 wave32", 32);
        check_device(v, 1, "AMD gfx90a", "gfx90a sramecc+ xnack- wave64", 64);
        check_device(v, 2, "AMD Radeon Graphics gfx1151", "gfx1151 wave32", 32);
        assert_string_equal(device_of(v, 1)->arch, "gfx90a");
    }
    assert_null(device_of(v, v->n_devices));
    assert_string_equal(tq_gpu_absence_of(v->kind)->text, "");
    assert_int_equal(tq_device_runs(device_of(v, 0), v->targets[0]), 1);
    assert_int_equal(tq_device_runs(device_of(v, 0), v->targets[1]), 0);
    assert_int_equal(tq_device_runs(device_of(v, 1), v->targets[1]), 1);
    assert_int_equal(tq_device_runs(device_of(v, 2), v->targets[0]), 0);
    assert_int_equal(tq_device_runs(device_of(&vendors[!(v - vendors)], 0), v->targets[0]), 0); /* the other vendor's */
    assert_clean(v);
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

static tqg_cache cache_of(const tq_cache *cache) {
    return (tqg_cache){.data = cache->data,
                       .seq_stride = (tqg_i64)cache->seq_stride,
                       .head_stride = (tqg_i64)cache->head_stride,
                       .unit_stride = (tqg_i64)cache->token_stride,
                       .n_slots = cache->n_slots};
}

static void test_decode(void **state) {
    const vendor *v = begin(state);
    const stub_launch *launch = v->stub->state->launches;
    session s;
    assert_int_equal(session_begin(&s, v, 0), TQ_OK);
    assert_int_equal(session_run(&s), TQ_OK);
    assert_int_equal(v->stub->state->n_launches, 1);
    assert_int_equal(launch->device, 0);
    assert_string_equal(launch->symbol, "tqk_decode");
    assert_int_equal(launch->grid[0], tq_plan_splits(s.plan));
    assert_int_equal(launch->grid[1], N_KV_HEADS);
    assert_int_equal(launch->grid[2], BATCH);
    assert_int_equal(launch->threads[0], 128);
    assert_int_equal(launch->threads[1] * launch->threads[2], 1);
    assert_int_equal(launch->shared_bytes, 60 * 1024); /* beyond what CUDA gives without being asked */
    assert_null(launch->stream);

    tqg_decode_params expected;
    memset(&expected, 0, sizeof expected);
    expected.q = s.args.q;
    expected.q_seq_stride = N_KV_HEADS * GQA * HEAD_DIM;
    expected.q_head_stride = HEAD_DIM;
    expected.k = expected.v = cache_of(&s.cache);
    expected.n_kv = s.args.n_kv;
    expected.out = s.args.out;
    expected.out_seq_stride = N_KV_HEADS * GQA * HEAD_DIM;
    expected.out_head_stride = HEAD_DIM;
    expected.counters = s.launch.workspace;
    expected.partials = (float *)((char *)s.launch.workspace + s.plan->partials_at);
    expected.factor = 0.125f * 0x1.715476p+0f;
    expected.window = 40;
    expected.n_kv_heads = N_KV_HEADS;
    expected.n_splits = 3;
    expected.min_split_keys = s.plan->min_split_keys;
    assert_int_equal(launch->params_bytes, sizeof expected);
    assert_memory_equal(launch->params, &expected, sizeof expected);

    /* What the kernels rely on: counters of 0. */
    const unsigned char *counters = v->stub->host_address(s.launch.workspace, s.launch.workspace_bytes);
    assert_non_null(counters);
    for (size_t i = 0; i < BATCH * N_KV_HEADS * sizeof(tqg_u32); i++)
        assert_int_equal(counters[i], 0);
    session_end(&s);
    assert_clean(v);
}

/* The other ops, by their kernels' names and sizes; what is in their params is device_test's. */
static void test_other_ops(void **state) {
    const vendor *v = begin(state);
    const tq_device *device = device_of(v, 1);
    static const tq_op ops[] = {TQ_OP_APPEND, TQ_OP_DEQUANTISE, TQ_OP_REPACK, TQ_OP_PREFILL};
    unsigned char params[STUB_MAX_PARAMS];
    for (int i = 0; i < (int)sizeof params; i++)
        params[i] = (unsigned char)(i * 7 + 1);
    for (int i = 0; i < 4; i++) {
        const tq_registry *registry = registry_of(v, 1);
        const tq_variant *variant = registry->variants[ops[i]];
        const unsigned grid[3] = {5, 3, 2};
        void *function;
        assert_int_equal(device->ops->prepare(device, registry, variant, &function), TQ_OK);
        assert_int_equal(device->ops->launch(device, variant->gpu, function, grid, params, params_bytes(ops[i]), NULL),
                         TQ_OK);
        const stub_launch *launch = &v->stub->state->launches[i];
        assert_int_equal(launch->device, 1);
        assert_string_equal(launch->symbol, variant->gpu->symbol);
        assert_memory_equal(launch->grid, grid, sizeof grid);
        assert_int_equal(launch->params_bytes, params_bytes(ops[i]));
        assert_memory_equal(launch->params, params, params_bytes(ops[i]));
    }
    assert_clean(v);
}

static void test_streams(void **state) {
    const vendor *v = begin(state);
    session s;
    assert_int_equal(session_begin(&s, v, 0), TQ_OK);
    if (v->kind == TQ_KIND_CUDA)
        v->stub->push_context(((const tq_gpu_state *)s.device->state)->primary);
    s.launch.stream = v->stub->create_stream();
    v->stub->state->n_launches = 0;
    assert_int_equal(tq_decode(s.plan, &s.args, &s.launch), TQ_OK);
    assert_ptr_equal(v->stub->state->launches[0].stream, s.launch.stream);
    assert_int_equal(tq_device_synchronise(s.device, s.launch.stream), TQ_OK);
    s.launch.stream = &s; /* a stream of nobody's */
    assert_refused(tq_decode(s.plan, &s.args, &s.launch), TQ_ERR_DEVICE, v->launch);
    if (v->kind == TQ_KIND_CUDA)
        v->stub->pop_context();
    session_end(&s);
    assert_clean(v);
}

/* A launch may be captured: it calls nothing that a capture would not allow, waits for nothing, allocates nothing. */
static void test_capture(void **state) {
    const vendor *v = begin(state);
    session s;
    assert_int_equal(session_begin(&s, v, 1), TQ_OK);
    v->stub->state->n_calls = 0;
    v->stub->state->capturing = 1;
    assert_int_equal(tq_decode(s.plan, &s.args, &s.launch), TQ_OK);
    v->stub->state->capturing = 0;
    assert_int_equal(count_calls(v, v->launch), 1);
    assert_in_range(v->stub->state->n_calls, 2, 4); /* beside it, only what makes the device current and back */
    session_end(&s);
    assert_clean(v);
}

/* ---- modules ---------------------------------------------------------------------------------------------------- */

static void test_loaded_once(void **state) {
    const vendor *v = begin(state);
    int before = v->stub->state->n_modules;
    for (int i = 0; i < 6; i++) { /* two devices in turn */
        session s;
        assert_int_equal(session_begin(&s, v, i % 2), TQ_OK);
        session_end(&s);
    }
    assert_true(v->stub->state->n_modules - before <= 2); /* 0 where earlier tests loaded them */
    v->stub->state->n_calls = 0;
    session s;
    assert_int_equal(session_begin(&s, v, 0), TQ_OK);
    session_end(&s);
    assert_int_equal(count_calls(v, v->load), 0);
    assert_clean(v);
}

static void test_what_does_not_load(void **state) {
    const vendor *v = begin(state);
    const tq_device *device = device_of(v, 0), *other = device_of(v, 1);
    tq_registry registry = *registry_of(v, 0);
    tq_variant variant = *registry.variants[TQ_OP_APPEND];
    tqg_kernel kernel = *variant.gpu;
    tqg_module modules[2] = {registry.modules[0], registry.modules[1]};
    void *function = &kernel;
    variant.gpu = &kernel;
    registry.modules = modules;

    kernel.symbol = "tqk_nothing";
    assert_refused(device->ops->prepare(device, &registry, &variant, &function), TQ_ERR_DEVICE, device->name);
    assert_null(function);
    kernel.symbol = "tqk_append";
    assert_int_equal(device->ops->prepare(device, &registry, &variant, &function), TQ_OK);
    assert_refused(other->ops->prepare(other, &registry, &variant, &function), TQ_ERR_DEVICE, v->load);
    modules[0].image = (const unsigned char *)"no code";
    kernel.module = 0;
    assert_refused(device->ops->prepare(device, &registry, &variant, &function), TQ_ERR_DEVICE, device->model);
    kernel.module = 2;
    assert_refused(device->ops->prepare(device, &registry, &variant, &function), TQ_ERR_DEVICE, "code object 2");
    kernel.module = -1;
    assert_refused(device->ops->prepare(device, &registry, &variant, &function), TQ_ERR_DEVICE, "code object -1");
    kernel.module = 1;
    kernel.shared_bytes = v->devices[0].shared_bytes + 1;
    assert_refused(device->ops->prepare(device, &registry, &variant, &function), TQ_ERR_DEVICE, "shared memory");
    assert_clean(v);
}

static void test_memory(void **state) {
    const vendor *v = begin(state);
    const tq_device *device = device_of(v, 0);
    void *a, *b;
    char out[100] = "";
    assert_refused(tq_device_alloc(device, (size_t)1 << 60, &a), TQ_ERR_MEMORY, v->alloc);
    assert_null(a);
    assert_int_equal(tq_device_alloc(device, 100, &a), TQ_OK);
    assert_int_equal(tq_device_alloc(device_of(v, 1), 1, &b), TQ_OK);
    assert_int_equal((uintptr_t)a % 256, 0);
    assert_int_equal(tq_device_copy_in(device, a, "and back", 9), TQ_OK);
    assert_int_equal(count_calls(v, v->wait), 1); /* drivers return from copying before it is done */
    assert_int_equal(tq_device_copy_out(device, out, a, 100), TQ_OK);
    assert_string_equal(out, "and back");
    assert_int_equal(device->ops->fill(device, a, 'x', 3, NULL), TQ_OK);
    assert_int_equal(tq_device_copy_out(device, out, a, 9), TQ_OK);
    assert_string_equal(out, "xxx back");
    tq_device_free(device, a);
    tq_device_free(device_of(v, 1), b);
    tq_device_free(device, NULL);
    assert_clean(v);
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

typedef struct race {
    const vendor *v;
    const tq_registry *registry;
} race;

/* Prepares everything and launches it; threads begin at different ends. */
static tq_status prepare_all(void *argument, int index, int count) {
    const race *r = argument;
    unsigned char params[STUB_MAX_PARAMS] = {0};
    const unsigned grid[3] = {1, 1, 1};
    tq_status worst = TQ_OK;
    (void)count;
    for (int i = 0; i < r->registry->n_variants; i++) {
        const tq_variant *variant = r->registry->variants[(i + index) % r->registry->n_variants];
        const tq_device *device = device_of(r->v, 0);
        void *function;
        tq_status status = device->ops->prepare(device, r->registry, variant, &function);
        if (!status)
            status = device->ops->launch(device, variant->gpu, function, grid, params, sizeof params, NULL);
        worst = status ? status : worst;
    }
    if (r->v->kind == TQ_KIND_CUDA ? r->v->stub->context_depth() : r->v->stub->get_device())
        worst = TQ_ERR_DEVICE;
    return worst;
}

static void test_threads(void **state) {
    const vendor *v = begin(state);
    enum { THREADS = 4 };
    tqg_module modules[2] = {registry_of(v, 0)->modules[0], registry_of(v, 0)->modules[1]};
    tq_registry fresh = *registry_of(v, 0); /* not loaded yet, as its modules are others */
    fresh.modules = modules;
    race r = {v, &fresh};
    assert_int_equal(run_threads(THREADS, prepare_all, &r), TQ_OK);
    assert_int_equal(count_calls(v, v->load), 2);
    assert_int_equal(count_calls(v, v->launch), THREADS * fresh.n_variants);
    assert_clean(v);
}

/* ---- contexts --------------------------------------------------------------------------------------------------- */

/* A program with a context of its own on the device: everything happens in that one. */
static void test_own_context(void **state) {
    const vendor *v = begin(state);
    const stub_driver *stub = v->stub;
    void *own = stub->create_context(0);
    stub->push_context(own);
    session s;
    assert_int_equal(session_begin(&s, v, 0), TQ_OK);
    stub->state->n_calls = 0;
    assert_int_equal(session_run(&s), TQ_OK);
    assert_ptr_equal(stub->state->launches[0].context, own);
    assert_int_equal(count_calls(v, "cuCtxPushCurrent_v2"), 0); /* it is current already */
    assert_ptr_equal(stub->current_context(), own);

    /* Launched from elsewhere, a plan still runs where it was made. */
    stub->pop_context();
    assert_int_equal(tq_decode(s.plan, &s.args, &s.launch), TQ_OK);
    assert_ptr_equal(stub->state->launches[1].context, own);
    assert_null(stub->current_context());
    stub->push_context(own);
    session_end(&s);
    assert_int_equal(stub->context_depth(), 1);
    stub->pop_context();
    assert_clean(v);

    /* The next context comes to lie where the first one was: what that had loaded is not taken for its own. */
    stub->destroy_context(own);
    void *next = stub->create_context(0);
    assert_ptr_equal(next, own);
    stub->push_context(next);
    stub->state->n_calls = 0;
    assert_int_equal(session_begin(&s, v, 0), TQ_OK);
    assert_int_equal(count_calls(v, v->load), 1);
    session_end(&s);
    stub->pop_context();
    assert_clean(v);
    stub->destroy_context(next);
}

/* Without a context the primary one is used, and retained once; one of another device is put aside meanwhile. */
static void test_primary_context(void **state) {
    const vendor *v = begin(state);
    const stub_driver *stub = v->stub;
    session s;
    void *own = stub->create_context(0);
    stub->push_context(own);
    assert_int_equal(session_begin(&s, v, 1), TQ_OK);
    assert_int_equal(session_run(&s), TQ_OK);
    assert_int_equal(stub->state->launches[0].device, 1);
    assert_ptr_equal(stub->state->launches[0].context, ((const tq_gpu_state *)s.device->state)->primary);
    assert_ptr_equal(stub->current_context(), own);
    assert_int_equal(stub->context_depth(), 1);
    session_end(&s);
    stub->pop_context();
    stub->destroy_context(own);
    for (int i = 0; i < v->n_devices; i++)
        assert_true(stub->state->n_retained[i] <= 1);
    assert_int_equal(stub->state->n_retained[1], 1);
    assert_int_equal(stub->state->n_retained[2], 0); /* nobody used it */
    assert_clean(v);
}

static void test_current_device(void **state) {
    const vendor *v = begin(state);
    for (int current = 0; current < v->n_devices; current++) {
        session s;
        v->stub->set_device(current);
        assert_int_equal(session_begin(&s, v, 1), TQ_OK);
        v->stub->state->n_launches = 0;
        assert_int_equal(session_run(&s), TQ_OK);
        assert_int_equal(v->stub->state->launches[0].device, 1);
        session_end(&s);
        assert_int_equal(v->stub->get_device(), current);
        assert_clean(v);
    }
    v->stub->set_device(0);
}

#define ON(vendor, test)                                                                                               \
    { #test " (" #vendor ")", test, NULL, NULL, &vendors[vendor] }
#define ON_BOTH(test) ON(CUDA, test), ON(HIP, test)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_BOTH(test_devices),
        ON_BOTH(test_decode),
        ON_BOTH(test_other_ops),
        ON_BOTH(test_streams),
        ON_BOTH(test_capture),
        ON_BOTH(test_loaded_once),
        ON_BOTH(test_what_does_not_load),
        ON_BOTH(test_memory),
        ON_BOTH(test_threads),
        ON(CUDA, test_own_context),
        ON(CUDA, test_primary_context),
        ON(HIP, test_current_device),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
