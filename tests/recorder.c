/* recorder.c: see recorder.h. */
#include "recorder.h"

#include <stdatomic.h>

#include "tq_simt.h"

enum { THREADS = 64 };

recorded record;
const tq_device *cpu, *simt32, *simt64;

static atomic_int blocks_run[3], n_threads_run; /* most of each block index + 1; threads of all blocks */

static void write_down(const void *params, void *to, size_t bytes) {
    tq_simt_enter(THREADS, 32);
    const int found[] = {tq_simt_block_x(), tq_simt_block_y(), tq_simt_block_z()};
    for (int i = 0; i < 3; i++) {
        int most = atomic_load(&blocks_run[i]);
        while (found[i] >= most && !atomic_compare_exchange_weak(&blocks_run[i], &most, found[i] + 1)) {
        }
    }
    if (atomic_fetch_add(&n_threads_run, 1) == 0)
        memcpy(to, params, bytes);
}

static void run_decode(const void *params) {
    write_down(params, &record.decode, sizeof record.decode);
}

static void run_append(const void *params) {
    write_down(params, &record.append, sizeof record.append);
}

static void run_dequantise(const void *params) {
    write_down(params, &record.dequantise, sizeof record.dequantise);
}

static void run_repack(const void *params) {
    write_down(params, &record.repack, sizeof record.repack);
}

static void run_prefill(const void *params) {
    write_down(params, &record.prefill, sizeof record.prefill);
}

static void run_and_fail(const void *params) {
    (void)params;
    tq_simt_enter(THREADS, 32);
    tq_simt_fail("the kernel is tired");
}

#define KERNEL(f, step, tile, busy)                                                                                    \
    {                                                                                                                  \
        .symbol = #f, .threads = THREADS, .keys_per_step = step, .keys_per_tile = tile, .blocks_per_sm = busy,         \
        .bias_pairs = BIAS_PAIRS, .simt = f                                                                            \
    }
static const tqg_kernel kernels[] = {
    KERNEL(run_decode, 32, 1, 16),        KERNEL(run_decode, 96, TILE_KEYS, 1), KERNEL(run_append, 4, 1, 1),
    KERNEL(run_append, 32, TILE_KEYS, 1), KERNEL(run_dequantise, 8, 1, 1),      KERNEL(run_repack, 32, TILE_KEYS, 1),
    KERNEL(run_prefill, 16, 1, 1),        KERNEL(run_and_fail, 1, 1, 1),
};

tq_variant recorders[N_RECORDERS] = {
    [DECODE] = {.name = "tq_decode_recorded__test", .op = TQ_OP_DECODE, .gqa = GQA, .layout = "rows"},
    [DECODE_TILES] = {.name = "tq_decode_tiles__test", .op = TQ_OP_DECODE, .gqa = GQA, .layout = "tile_test"},
    [APPEND] = {.name = "tq_append_recorded__test", .op = TQ_OP_APPEND, .layout = "rows"},
    [APPEND_TILES] = {.name = "tq_append_tiles__test", .op = TQ_OP_APPEND, .layout = "tile_test"},
    [DEQUANTISE] = {.name = "tq_dequantise_recorded__test", .op = TQ_OP_DEQUANTISE, .layout = "rows"},
    [REPACK] = {.name = "tq_repack_recorded__test", .op = TQ_OP_REPACK, .layout = "tile_test"},
    [PREFILL] = {.name = "tq_prefill_recorded__test", .op = TQ_OP_PREFILL, .gqa = GQA, .layout = "rows"},
    [TIRED] = {.name = "tq_dequantise_tired__test", .op = TQ_OP_DEQUANTISE, .layout = "rows"},
};
static const tq_variant *list[N_RECORDERS];
static const tq_registry registry = {.abi = TQ_KERNEL_ABI,
                                     .name = "test",
                                     .target = "test",
                                     .needs = "simt32",
                                     .kind = TQ_KIND_SIMT,
                                     .n_variants = N_RECORDERS,
                                     .variants = list};

int recorder_set_up(void **state) {
    (void)state;
    const tq_format_spec *format = spec_of("turbo3", HEAD_DIM);
    for (int i = 0; i < N_RECORDERS; i++) {
        recorders[i].k = format;
        recorders[i].v = recorders[i].gqa ? format : NULL;
        recorders[i].target = registry.target;
        recorders[i].key = (uint64_t)i + 1;
        recorders[i].gpu = &kernels[i];
        list[i] = &recorders[i];
    }
    cpu = tq_device_at(0);
    return tq_device_find("simt:32", &simt32) || tq_device_find("simt:64", &simt64) || tq_registry_add(&registry);
}

/* ---- plans and grids -------------------------------------------------------------------------------------------- */

tq_plan_desc recorder_desc(int which) {
    tq_plan_desc desc = TQ_PLAN_DESC_INIT;
    desc.op = (tq_op)recorders[which].op;
    desc.head_dim = HEAD_DIM;
    desc.n_kv_heads = HEADS;
    desc.gqa = recorders[which].gqa ? GQA : 1;
    desc.k_format = desc.v_format = recorders[which].k->name;
    desc.layout = recorders[which].layout;
    desc.max_batch = BATCH;
    desc.max_n_kv = 1 << 16;
    desc.effort = TQ_EFFORT_PINNED;
    desc.pin = recorders[which].name;
    return desc;
}

tq_plan *recorder_plan(const tq_device *device, const tq_plan_desc *desc) {
    tq_plan *plan;
    if (tq_plan_create(device, desc, &plan) != TQ_OK)
        fail_msg("%s", tq_error_message());
    return plan;
}

void assert_grid(int x) {
    assert_int_equal(atomic_exchange(&blocks_run[0], 0), x);
    assert_int_equal(atomic_exchange(&blocks_run[1], 0), x ? HEADS : 0);
    assert_int_equal(atomic_exchange(&blocks_run[2], 0), x ? BATCH : 0);
    assert_int_equal(atomic_exchange(&n_threads_run, 0), x * HEADS * BATCH * THREADS);
}

void forget_grid(void) {
    atomic_store(&n_threads_run, 0);
    for (int i = 0; i < 3; i++)
        atomic_store(&blocks_run[i], 0);
}
