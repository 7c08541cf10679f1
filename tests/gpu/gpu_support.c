/* gpu_support.c: see gpu_support.h. */
#include "gpu_support.h"

#include "driver_errors.h"

#include <dlfcn.h>

#define ENTRY(code, name) {code, name},
static const driver_error cuda_errors[] = {CUDA_ERRORS(ENTRY)};
static const driver_error hip_errors[] = {HIP_ERRORS(ENTRY)};

vendor vendors[N_VENDORS] = {
    [CUDA] = {.name = "cuda",
              .library = "libcuda.so.1",
              .kind = TQ_KIND_CUDA,
              .load = "cuModuleLoadData",
              .launch = "cuLaunchKernel",
              .alloc = "cuMemAlloc_v2",
              .wait = "cuStreamSynchronize",
              .errors = cuda_errors,
              .n_errors = sizeof cuda_errors / sizeof *cuda_errors,
              .n_devices = 3,
              .devices = {{"Stub  Ada ", "sm_89", 128, 101376, (size_t)24 << 30},
                          {"Stub Hopper", "sm_90", 132, 232448, (size_t)80 << 30},
                          {"Stub Orin", "sm_87", 16, 166912, (size_t)32 << 30}},
              .targets = {"sm_80", "sm_90"}},
    [HIP] = {.name = "hip",
             .library = HIP_LIBRARY,
             .kind = TQ_KIND_HIP,
             .load = "hipModuleLoadData",
             .launch = "hipModuleLaunchKernel",
             .alloc = "hipMalloc",
             .wait = "hipStreamSynchronize",
             .errors = hip_errors,
             .n_errors = sizeof hip_errors / sizeof *hip_errors,
             .n_devices = 3,
             .devices = {{"Stub RDNA 4", "gfx1201", 32, 65536, (size_t)16 << 30},
                         {"", "gfx90a:sramecc+:xnack-", 104, 65536, (size_t)64 << 30},
                         {"AMD Radeon Graphics", "gfx1151", 20, 65536, (size_t)64 << 30}},
             .targets = {"gfx1201", "gfx90a"}},
};

int open_stubs(void) {
    for (int i = 0; i < N_VENDORS; i++) {
        vendor *v = &vendors[i];
        void *library = dlopen(v->library, RTLD_NOW | RTLD_LOCAL);
        v->stub = library ? dlsym(library, "stub_control") : NULL;
        if (!v->stub) {
            print_error("%s is no stub: %s\n", v->library, library ? "a real driver stands before it" : dlerror());
            return 1;
        }
        v->stub->state->n_devices = v->n_devices;
        memcpy(v->stub->state->devices, v->devices, sizeof v->devices);
    }
    return 0;
}

/* ---- registries ------------------------------------------------------------------------------------------------- */

enum { N_OPS = TQ_OP_PREFILL + 1, N_TARGETS = 2, BIG_SHARED_BYTES = 60 * 1024 };

/* All that a registry refers to. */
typedef struct fake_registry {
    tq_registry registry;
    tqg_module modules[2];
    char images[2][512], names[N_OPS][64], symbols[N_OPS][32];
    tqg_kernel kernels[N_OPS];
    tq_variant variants[N_OPS];
    const tq_variant *list[N_OPS];
    const tq_format_spec *format;
} fake_registry;

static fake_registry fakes[N_VENDORS][N_TARGETS];

size_t params_bytes(tq_op op) {
    static const size_t bytes[] = {[TQ_OP_DECODE] = sizeof(tqg_decode_params),
                                   [TQ_OP_APPEND] = sizeof(tqg_append_params),
                                   [TQ_OP_DEQUANTISE] = sizeof(tqg_dequantise_params),
                                   [TQ_OP_REPACK] = sizeof(tqg_repack_params),
                                   [TQ_OP_PREFILL] = sizeof(tqg_prefill_params)};
    return bytes[op];
}

static void make_variant(fake_registry *fake, tq_op op, const char *target) {
    int attends = op == TQ_OP_DECODE || op == TQ_OP_PREFILL;
    snprintf(fake->symbols[op], sizeof fake->symbols[op], "tqk_%s", tq_op_name(op));
    snprintf(fake->names[op], sizeof fake->names[op], "tq_%s_stub__%s", tq_op_name(op), target);
    fake->kernels[op] = (tqg_kernel){.symbol = fake->symbols[op],
                                     .module = op == TQ_OP_DECODE ? 0 : 1,
                                     .threads = 128,
                                     .shared_bytes = op == TQ_OP_DECODE ? BIG_SHARED_BYTES : 0,
                                     .keys_per_step = 4,
                                     .keys_per_tile = op == TQ_OP_REPACK ? 32 : 1,
                                     .blocks_per_sm = 2};
    fake->variants[op] = (tq_variant){.name = fake->names[op],
                                      .op = (int)op,
                                      .k = fake->format,
                                      .v = attends ? fake->format : NULL,
                                      .gqa = attends ? GQA : 0,
                                      .layout = op == TQ_OP_REPACK ? "tile_stub" : "rows",
                                      .target = target,
                                      .key = 1,
                                      .gpu = &fake->kernels[op]};
    fake->list[op] = &fake->variants[op];
    char *image = fake->images[fake->kernels[op].module];
    size_t used = strlen(image);
    if (!used)
        used = (size_t)snprintf(image, sizeof fake->images[0], "STUB %s\n", target);
    snprintf(image + used, sizeof fake->images[0] - used, "%s %zu 256\n", fake->symbols[op], params_bytes(op));
}

const tq_registry *registry_of(const vendor *v, int which) {
    fake_registry *fake = &fakes[v - vendors][which];
    if (fake->registry.abi)
        return &fake->registry;
    fake->format = spec_of("turbo3", HEAD_DIM);
    for (int op = 0; op < N_OPS; op++)
        make_variant(fake, (tq_op)op, v->targets[which]);
    for (int m = 0; m < 2; m++)
        fake->modules[m] = (tqg_module){"stub", (const unsigned char *)fake->images[m],
                                        (const unsigned char *)fake->images[m] + strlen(fake->images[m])};
    fake->registry = (tq_registry){.abi = TQ_KERNEL_ABI,
                                   .name = v->targets[which],
                                   .target = v->targets[which],
                                   .needs = v->targets[which],
                                   .kind = v->kind,
                                   .n_modules = 2,
                                   .modules = fake->modules,
                                   .n_formats = 1,
                                   .n_variants = N_OPS,
                                   .formats = &fake->format,
                                   .variants = fake->list};
    return &fake->registry;
}

void add_registries(const vendor *v) {
    for (int i = 0; i < N_TARGETS; i++)
        assert_int_equal(tq_registry_add(registry_of(v, i)), TQ_OK);
}

/* ---- devices and calls ------------------------------------------------------------------------------------------ */

const tq_device *device_of(const vendor *v, int ordinal) {
    char name[16];
    const tq_device *device = NULL;
    snprintf(name, sizeof name, "%s:%d", v->name, ordinal);
    tq_device_find(name, &device);
    return device;
}

int count_calls(const vendor *v, const char *call) {
    const stub_state *state = v->stub->state;
    int n = 0;
    for (int i = 0; i < state->n_calls && i < STUB_MAX_CALLS; i++)
        n += strcmp(state->calls[i], call) == 0;
    return n;
}

void assert_clean(const vendor *v) {
    const stub_state *state = v->stub->state;
    if (state->n_violations)
        print_error("%s: %s\n", v->name, state->violation);
    assert_int_equal(state->n_violations, 0);
    assert_int_equal(state->n_allocations, 0);
    assert_int_equal(state->n_events, 0);
    if (v->kind == TQ_KIND_CUDA)
        assert_int_equal(v->stub->context_depth(), 0);
    else
        assert_int_equal(v->stub->last_error(), 0);
}

/* ---- sessions --------------------------------------------------------------------------------------------------- */

static tq_status fill(session *s, int index, const void *host, size_t bytes) {
    tq_status status = tq_device_alloc(s->device, bytes, &s->memory[index]);
    return status || !host ? status : tq_device_copy_in(s->device, s->memory[index], host, bytes);
}

tq_status session_begin(session *s, const vendor *v, int ordinal) {
    static const float q[BATCH * N_KV_HEADS * GQA * HEAD_DIM] = {1, 2, 3};
    static const int32_t n_kv[BATCH] = {17, N_SLOTS};
    char name[16];
    *s = (session){0};
    snprintf(name, sizeof name, "%s:%d", v->name, ordinal);
    tq_status status = tq_device_find(name, &s->device);
    if (status)
        return status;
    size_t row = (size_t)registry_of(v, 0)->formats[0]->row_bytes;
    tq_plan_desc desc = TQ_PLAN_DESC_INIT;
    desc.head_dim = HEAD_DIM;
    desc.n_kv_heads = N_KV_HEADS;
    desc.gqa = GQA;
    desc.k_format = desc.v_format = "turbo3";
    desc.max_batch = BATCH;
    desc.max_n_kv = N_SLOTS;
    desc.n_splits = 3;
    s->cache = (tq_cache){.bytes = BATCH * N_KV_HEADS * N_SLOTS * row,
                          .seq_stride = N_KV_HEADS * N_SLOTS * row,
                          .head_stride = N_SLOTS * row,
                          .token_stride = row,
                          .n_slots = N_SLOTS};
    if ((status = tq_plan_create(s->device, &desc, &s->plan)) || (status = tq_timer_create(s->device, &s->timer)) ||
        (status = fill(s, 0, NULL, s->cache.bytes)) || (status = fill(s, 1, q, sizeof q)) ||
        (status = fill(s, 2, NULL, sizeof q)) || (status = fill(s, 3, n_kv, sizeof n_kv)) ||
        (status = fill(s, 4, NULL, tq_plan_workspace_bytes(s->plan))))
        return status;
    s->cache.data = s->memory[0];
    s->launch =
        (tq_launch){.workspace = s->memory[4], .workspace_bytes = tq_plan_workspace_bytes(s->plan), .thread_count = 1};
    s->args = (tq_decode_args){.batch = BATCH,
                               .q = s->memory[1],
                               .q_seq_stride = N_KV_HEADS * GQA * HEAD_DIM,
                               .q_head_stride = HEAD_DIM,
                               .k = &s->cache,
                               .v = &s->cache,
                               .n_kv = s->memory[3],
                               .scale = 0.125f,
                               .window = 40,
                               .out = s->memory[2],
                               .out_seq_stride = N_KV_HEADS * GQA * HEAD_DIM,
                               .out_head_stride = HEAD_DIM};
    return tq_workspace_init(s->plan, s->memory[4], s->launch.workspace_bytes);
}

tq_status session_run(session *s) {
    static float out[BATCH * N_KV_HEADS * GQA * HEAD_DIM];
    double ns;
    tq_status status = tq_timer_start(s->timer, NULL);
    if (!status)
        status = tq_decode(s->plan, &s->args, &s->launch);
    if (!status)
        status = tq_timer_stop(s->timer, NULL, &ns);
    if (!status)
        status = tq_device_synchronise(s->device, NULL);
    return status ? status : tq_device_copy_out(s->device, out, s->memory[2], sizeof out);
}

void session_end(session *s) {
    for (int i = 0; i < 5; i++)
        tq_device_free(s->device, s->memory[i]);
    tq_timer_destroy(s->timer);
    tq_plan_destroy(s->plan);
}
