/* instructions.c: decode by each CPU variant of head_dim 128 with equal formats that this machine runs, for
 * instructions.py, which counts what `counted` executes. Prints a line for each call of it: variant, scale mode, keys times
 * KV heads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tq.h"

enum { HEAD_DIM = 128, KV_HEADS = 2, FEW = 256, MANY = 512, TOKEN = KV_HEADS * HEAD_DIM };

static void check(tq_status status) {
    if (status != TQ_OK) {
        fprintf(stderr, "instructions: %s\n", tq_error_message());
        exit(1);
    }
}

static void *allocate(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!memory)
        exit(1);
    memset(memory, 0, (bytes + 64) / 64 * 64);
    return memory;
}

/* Sums of four uniform numbers are normal enough. */
static void fill(float *x, int n) {
    static uint32_t state = 1;
    for (int i = 0; i < n; i++) {
        x[i] = 0;
        for (int j = 0; j < 4; j++) {
            state = state * 1664525 + 1013904223;
            x[i] += (float)(int32_t)state * 0x1p-31f;
        }
    }
}

static tq_plan *plan_of(const tq_variant_info *v, tq_op op, tq_side side) {
    const tq_device *cpu;
    tq_plan *plan;
    tq_plan_desc desc = TQ_PLAN_DESC_INIT;
    check(tq_device_find("cpu", &cpu));
    desc.op = op;
    desc.side = side;
    desc.head_dim = HEAD_DIM;
    desc.n_kv_heads = KV_HEADS;
    desc.gqa = v->gqa;
    desc.k_format = op == TQ_OP_DECODE || side == TQ_SIDE_K ? v->k : NULL;
    desc.v_format = op == TQ_OP_DECODE || side == TQ_SIDE_V ? v->v : NULL;
    desc.layout = v->layout;
    desc.max_n_kv = MANY;
    desc.n_threads = 1;
    desc.n_splits = 1;
    desc.effort = op == TQ_OP_DECODE ? TQ_EFFORT_PINNED : TQ_EFFORT_DEFAULT;
    desc.pin = op == TQ_OP_DECODE ? v->name : NULL;
    check(tq_plan_create(cpu, &desc, &plan));
    return plan;
}

/* MANY tokens of one side. */
static tq_cache cache_of(const tq_variant_info *v, tq_side side, tq_scale_mode mode, const float *x) {
    tq_layout_info unit;
    check(tq_layout_find(v->layout, v->k, HEAD_DIM, &unit));
    tq_cache cache = {.n_slots = MANY, .token_stride = unit.unit_bytes};
    cache.head_stride = unit.unit_bytes * (size_t)(MANY / unit.keys_per_unit);
    cache.bytes = cache.seq_stride = cache.head_stride * KV_HEADS;
    cache.data = allocate(cache.bytes);
    const tq_append_args args = {.batch = 1,
                                 .n_tokens = MANY,
                                 .x = x,
                                 .x_seq_stride = (size_t)MANY * TOKEN,
                                 .x_token_stride = TOKEN,
                                 .x_head_stride = HEAD_DIM,
                                 .first_slot = (int32_t[]){0},
                                 .cache = &cache,
                                 .mode = mode};
    const tq_launch launch = {NULL, 0, 0, 1, NULL};
    tq_plan *plan = plan_of(v, TQ_OP_APPEND, side);
    check(tq_append(plan, &args, &launch));
    tq_plan_destroy(plan);
    return cache;
}

static volatile int calls;

void counted(const tq_plan *plan, const tq_decode_args *args, const tq_launch *launch);
__attribute__((noinline)) void counted(const tq_plan *plan, const tq_decode_args *args, const tq_launch *launch) {
    check(tq_decode(plan, args, launch));
    calls++; /* else it may end in a jump to tq_decode and not seem to return */
}

static void run(const tq_variant_info *v, tq_scale_mode mode, const float *x, float *out) {
    tq_cache k = cache_of(v, TQ_SIDE_K, mode, x), v_cache = cache_of(v, TQ_SIDE_V, mode, x);
    tq_plan *plan = plan_of(v, TQ_OP_DECODE, TQ_SIDE_K);
    const size_t bytes = tq_plan_workspace_bytes(plan), heads = (size_t)(KV_HEADS * v->gqa);
    void *workspace = allocate(bytes);
    if (bytes)
        check(tq_workspace_init(plan, workspace, bytes));
    for (int n_kv = FEW; n_kv <= MANY; n_kv += MANY - FEW) {
        const tq_decode_args args = {.batch = 1,
                                     .q = x,
                                     .q_seq_stride = heads * HEAD_DIM,
                                     .q_head_stride = HEAD_DIM,
                                     .k = &k,
                                     .v = &v_cache,
                                     .n_kv = (int32_t[]){n_kv},
                                     .scale = 0.1f,
                                     .out = out,
                                     .out_seq_stride = heads * HEAD_DIM,
                                     .out_head_stride = HEAD_DIM};
        const tq_launch launch = {workspace, bytes, 0, 1, NULL};
        counted(plan, &args, &launch);
        printf("%s\t%s\t%d\n", v->name, mode == TQ_SCALE_NONE ? "none" : "default", n_kv * KV_HEADS);
    }
    free(workspace);
    free(k.data);
    free(v_cache.data);
    tq_plan_destroy(plan);
}

int main(void) {
    float *x = allocate((size_t)MANY * TOKEN * sizeof *x), *out = allocate(16 * TOKEN * sizeof *out);
    fill(x, MANY * TOKEN);
    for (int i = 0; i < tq_variant_count(); i++) {
        tq_variant_info v;
        check(tq_variant_at(i, &v));
        const int wanted = v.op == TQ_OP_DECODE && strcmp(v.kind, "cpu") == 0 && v.runs_here &&
                           v.head_dim == HEAD_DIM && strcmp(v.k, v.v) == 0 &&
                           (v.gqa == 1 || v.gqa == 4 || v.gqa == 8) && strstr(v.name, "_t128");
        if (wanted)
            run(&v, TQ_SCALE_DEFAULT, x, out);
        if (wanted && strncmp(v.k, "turbo", 5) == 0) /* one scale per row, again and again */
            run(&v, TQ_SCALE_NONE, x, out);
    }
    free(x);
    free(out);
    return 0;
}
