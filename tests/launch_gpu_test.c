/* launch_gpu_test: launches on a device that loads kernels: which arguments reach a kernel, and which are refused
 * before. / */
#include "recorder.h"

/* Every array of every op; what lies in there is of no interest here. */
typedef struct arrays {
    tq_cache rows, tiles, pages;
    float *values;
    int32_t *counts;
} arrays;

static void *device_memory(size_t bytes) {
    void *memory;
    assert_int_equal(tq_device_alloc(simt32, bytes, &memory), TQ_OK);
    return memory;
}

static tq_cache cache_of(int keys_per_unit) {
    const tq_format_spec *format = recorders[APPEND].k;
    size_t unit = tq_unit_bytes(format, keys_per_unit == 1 ? "rows" : "tile_test", keys_per_unit),
           head = unit * (size_t)(SLOTS / keys_per_unit);
    return (tq_cache){.data = device_memory(BATCH * HEADS * head),
                      .bytes = BATCH * HEADS * head,
                      .seq_stride = HEADS * head,
                      .head_stride = head,
                      .token_stride = unit,
                      .n_slots = SLOTS};
}

static arrays arrays_new(void) {
    enum { PAGE_SLOTS = 32 };
    arrays a = {.rows = cache_of(1), .tiles = cache_of(TILE_KEYS)};
    a.values = device_memory(BATCH * SLOTS * HEADS * GQA * HEAD_DIM * sizeof *a.values);
    a.counts = device_memory(64 * sizeof *a.counts);
    memset(a.counts, 0, 64 * sizeof *a.counts);
    a.pages = a.rows;
    a.pages.data = device_memory(a.rows.bytes);
    a.pages.head_stride = PAGE_SLOTS * a.rows.token_stride;
    a.pages.page_stride = HEADS * a.pages.head_stride;
    a.pages.page_slots = PAGE_SLOTS;
    a.pages.pages = a.counts;
    a.pages.pages_stride = SLOTS / PAGE_SLOTS;
    return a;
}

static void arrays_free(arrays *a) {
    void *const memory[] = {a->rows.data, a->tiles.data, a->pages.data, a->values, a->counts};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        tq_device_free(simt32, memory[i]);
}

static void assert_cache(const tqg_cache *found, const tq_cache *expected) {
    assert_ptr_equal(found->data, expected->data);
    assert_ptr_equal(found->pages, expected->pages);
    assert_int_equal(found->seq_stride, expected->seq_stride);
    assert_int_equal(found->head_stride, expected->head_stride);
    assert_int_equal(found->unit_stride, expected->token_stride);
    assert_int_equal(found->page_stride, expected->page_stride);
    assert_int_equal(found->pages_stride, expected->pages_stride);
    assert_int_equal(found->page_slots, expected->page_slots);
    assert_int_equal(found->n_slots, expected->n_slots);
}

static const tq_launch alone = {.thread_count = 1};

static tq_decode_args decode_args(const arrays *a) {
    const size_t heads = HEADS * GQA;
    return (tq_decode_args){.batch = BATCH,
                            .q = a->values,
                            .q_seq_stride = heads * HEAD_DIM + 16,
                            .q_head_stride = HEAD_DIM,
                            .k = &a->rows,
                            .v = &a->pages,
                            .n_kv = a->counts,
                            .scale = 0.5f,
                            .softcap = 20,
                            .window = 77,
                            .alibi = a->values + 1,
                            .sink_logits = a->values + 2,
                            .out = a->values + 4096,
                            .out_seq_stride = heads * HEAD_DIM,
                            .out_head_stride = HEAD_DIM,
                            .lse = a->values + 8192};
}

static void test_decode(void **state) {
    (void)state;
    arrays a = arrays_new();
    tq_decode_args args = decode_args(&a);
    tq_plan_desc desc = recorder_desc(DECODE);
    desc.n_splits = 2;
    tq_plan *plan = recorder_plan(simt32, &desc);
    size_t bytes = tq_plan_workspace_bytes(plan);
    uint8_t *workspace = device_memory(bytes);
    memset(workspace, 0xff, bytes);
    assert_int_equal(tq_workspace_init(plan, workspace, bytes), TQ_OK);
    for (int i = 0; i < BATCH * HEADS * 4; i++)
        assert_int_equal(workspace[i], 0);
    tq_launch launch = {.workspace = workspace, .workspace_bytes = bytes, .thread_count = 1};
    assert_int_equal(tq_decode(plan, &args, &launch), TQ_OK);
    assert_grid(2);
    const tqg_decode_params *p = &record.decode;
    assert_cache(&p->k, &a.rows);
    assert_cache(&p->v, &a.pages);
    assert_null(p->sink_k.data);
    assert_ptr_equal(p->q, args.q);
    assert_int_equal(p->q_seq_stride, args.q_seq_stride);
    assert_int_equal(p->q_head_stride, args.q_head_stride);
    assert_ptr_equal(p->n_kv, args.n_kv);
    assert_ptr_equal(p->alibi, args.alibi);
    assert_ptr_equal(p->sink_logits, args.sink_logits);
    assert_ptr_equal(p->out, args.out);
    assert_int_equal(p->out_seq_stride, args.out_seq_stride);
    assert_int_equal(p->out_head_stride, args.out_head_stride);
    assert_ptr_equal(p->lse, args.lse);
    assert_ptr_equal(p->counters, workspace);
    assert_ptr_equal(p->partials, workspace + 64);
    assert_near(p->factor, 0.5 / 20, 1e-9);
    assert_near(p->softcap, 20 / log(2), 1e-5);
    assert_int_equal(p->window, 77);
    assert_int_equal(p->n_sink, 0);
    assert_int_equal(p->n_kv_heads, HEADS);
    assert_int_equal(p->n_splits, 2);
    assert_int_equal(p->min_split_keys, 1);

    tq_cache sinks = a.rows;
    sinks.token_stride = 2 * HEAD_DIM;
    sinks.head_stride = 4 * sinks.token_stride;
    sinks.seq_stride = 0;
    sinks.n_slots = 4;
    args.sink_k = args.sink_v = &sinks;
    args.n_sink = 3;
    args.softcap = 0;
    a.pages.n_slots--;
    launch.thread_count = 2;
    assert_int_equal(tq_decode(plan, &args, &launch), TQ_OK);
    assert_grid(2);
    assert_cache(&p->sink_k, &sinks);
    assert_int_equal(p->k.n_slots, SLOTS - 1); /* what both caches hold */
    assert_int_equal(p->v.n_slots, SLOTS - 1);
    assert_int_equal(p->n_sink, 3);
    assert_near(p->factor, 0.5 / log(2), 1e-6);
    assert_true(p->softcap == 0);
    launch.thread_index = 1; /* thread 0 has enqueued it all */
    assert_int_equal(tq_decode(plan, &args, &launch), TQ_OK);
    assert_grid(0);

    launch.workspace_bytes--;
    assert_refused(tq_decode(plan, &args, &launch), TQ_ERR_WORKSPACE, "bytes");
    tq_device_free(simt32, workspace);
    tq_plan_destroy(plan);
    arrays_free(&a);
}

/* Its device arrays are passed on as they are. */
static void test_bias(void **state) {
    (void)state;
    arrays a = arrays_new();
    tq_decode_args args = decode_args(&a);
    tq_score_bias bias = {BIAS_PAIRS, (const uint32_t *)a.values, (const uint16_t *)a.counts, a.values + 64, 1200, 0,
                          90};
    tq_plan_desc desc = recorder_desc(DECODE);
    desc.max_bias_pairs = BIAS_PAIRS;
    tq_plan *plan = recorder_plan(simt32, &desc), *none;
    size_t bytes = tq_plan_workspace_bytes(plan);
    uint8_t *workspace = device_memory(bytes);
    assert_int_equal(tq_workspace_init(plan, workspace, bytes), TQ_OK);
    const tq_launch launch = {.workspace = workspace, .workspace_bytes = bytes, .thread_count = 1};
    assert_int_equal(tq_decode(plan, &args, &launch), TQ_OK);
    assert_int_equal(record.decode.bias.n_pairs, 0);
    forget_grid();
    args.bias = &bias;
    assert_int_equal(tq_decode(plan, &args, &launch), TQ_OK);
    assert_int_equal(record.decode.bias.n_pairs, BIAS_PAIRS);
    assert_ptr_equal(record.decode.bias.turns, bias.turns);
    assert_ptr_equal(record.decode.bias.table, bias.table);
    assert_ptr_equal(record.decode.bias.coefficients, bias.coefficients);
    assert_int_equal(record.decode.bias.seq_stride, 1200);
    assert_int_equal(record.decode.bias.head_stride, 90);
    bias.n_pairs++;
    assert_refused(tq_decode(plan, &args, &launch), TQ_ERR_ARGUMENT, "legal is 1 to 16 (the plan's max_bias_pairs)");
    forget_grid();

    desc.effort = TQ_EFFORT_DEFAULT;
    desc.max_bias_pairs = BIAS_PAIRS + 1;
    assert_refused(tq_plan_create(simt32, &desc, &none), TQ_ERR_UNSUPPORTED, "take 16 at most");
    assert_non_null(strstr(tq_error_message(), "--bias 32"));
    desc.max_bias_pairs = 33;
    assert_refused(tq_plan_create(simt32, &desc, &none), TQ_ERR_UNSUPPORTED, "legal on GPUs is 0 to 32");
    tq_device_free(simt32, workspace);
    tq_plan_destroy(plan);
    arrays_free(&a);
}

static void test_prefill(void **state) {
    (void)state;
    arrays a = arrays_new();
    const size_t heads = HEADS * GQA;
    tq_prefill_args args = {.batch = BATCH,
                            .max_query = 17,
                            .q = a.values,
                            .q_seq_stride = 17 * heads * HEAD_DIM,
                            .q_token_stride = heads * HEAD_DIM,
                            .q_head_stride = HEAD_DIM,
                            .k = &a.rows,
                            .v = &a.pages,
                            .n_kv = a.counts,
                            .n_query = a.counts + 1,
                            .scale = 2,
                            .window = 5,
                            .causal = 1,
                            .out = a.values,
                            .out_seq_stride = 17 * heads * HEAD_DIM,
                            .out_token_stride = heads * HEAD_DIM,
                            .out_head_stride = HEAD_DIM};
    tq_plan_desc desc = recorder_desc(PREFILL);
    tq_plan *plan = recorder_plan(simt32, &desc);
    assert_int_equal(tq_plan_workspace_bytes(plan), 0);
    assert_int_equal(tq_prefill(plan, &args, &alone), TQ_OK);
    assert_grid(2);
    assert_cache(&record.prefill.k, &a.rows);
    assert_cache(&record.prefill.v, &a.pages);
    assert_ptr_equal(record.prefill.n_query, args.n_query);
    assert_int_equal(record.prefill.q_token_stride, args.q_token_stride);
    assert_int_equal(record.prefill.out_token_stride, args.out_token_stride);
    assert_int_equal(record.prefill.max_query, 17);
    assert_int_equal(record.prefill.causal, 1);
    assert_int_equal(record.prefill.window, 5);
    assert_near(record.prefill.factor, 2 / log(2), 1e-6);
    args.max_query = 0;
    assert_int_equal(tq_prefill(plan, &args, &alone), TQ_OK);
    assert_grid(0);
    args.max_query = -1;
    assert_refused(tq_prefill(plan, &args, &alone), TQ_ERR_ARGUMENT, "max_query");
    args.max_query = 17;
    args.n_query = NULL;
    assert_refused(tq_prefill(plan, &args, &alone), TQ_ERR_ARGUMENT, "n_query");
    tq_plan_destroy(plan);
    arrays_free(&a);
}

static tq_append_args append_args(const arrays *a, const tq_cache *cache) {
    return (tq_append_args){.batch = BATCH,
                            .n_tokens = 9,
                            .x = a->values,
                            .x_seq_stride = 9 * HEADS * HEAD_DIM,
                            .x_token_stride = HEADS * HEAD_DIM,
                            .x_head_stride = HEAD_DIM,
                            .first_slot = a->counts,
                            .cache = cache,
                            .mean = a->values + 3,
                            .status = a->counts + 7};
}

static void test_rows_ops(void **state) {
    (void)state;
    arrays a = arrays_new();
    tq_append_args append = append_args(&a, &a.pages);
    tq_plan_desc desc = recorder_desc(APPEND);
    tq_plan *plan = recorder_plan(simt32, &desc);
    assert_int_equal(tq_append(plan, &append, &alone), TQ_OK);
    assert_grid(3);
    assert_cache(&record.append.cache, &a.pages);
    assert_ptr_equal(record.append.x, append.x);
    assert_int_equal(record.append.x_seq_stride, append.x_seq_stride);
    assert_int_equal(record.append.x_token_stride, append.x_token_stride);
    assert_int_equal(record.append.x_head_stride, append.x_head_stride);
    assert_ptr_equal(record.append.first_slot, append.first_slot);
    assert_ptr_equal(record.append.mean, append.mean);
    assert_ptr_equal(record.append.status, append.status);
    assert_int_equal(record.append.n_tokens, 9);
    assert_int_equal(record.append.mode, TQ_SCALE_SEARCHED); /* what the format means by default */
    append.n_tokens = 0;
    assert_int_equal(tq_append(plan, &append, &alone), TQ_OK);
    assert_grid(0);
    tq_plan_destroy(plan);

    desc = recorder_desc(DEQUANTISE);
    plan = recorder_plan(simt32, &desc);
    tq_dequantise_args back = {.batch = BATCH,
                               .n_tokens = 9,
                               .cache = &a.rows,
                               .first_slot = a.counts,
                               .x = a.values,
                               .x_seq_stride = 9 * HEADS * HEAD_DIM,
                               .x_token_stride = HEADS * HEAD_DIM,
                               .x_head_stride = HEAD_DIM,
                               .x_type = TQ_F16};
    assert_int_equal(tq_dequantise(plan, &back, &alone), TQ_OK);
    assert_grid(2);
    assert_cache(&record.dequantise.cache, &a.rows);
    assert_ptr_equal(record.dequantise.x, back.x);
    assert_int_equal(record.dequantise.x_is_f16, 1);
    assert_int_equal(record.dequantise.n_tokens, 9);
    back.x_type = TQ_F32;
    assert_int_equal(tq_dequantise(plan, &back, &alone), TQ_OK);
    assert_grid(2);
    assert_int_equal(record.dequantise.x_is_f16, 0);
    back.x = (char *)a.values + 2;
    assert_refused(tq_dequantise(plan, &back, &alone), TQ_ERR_ARGUMENT, "args.x");
    back.x_type = (tq_value_type)9;
    assert_refused(tq_dequantise(plan, &back, &alone), TQ_ERR_ARGUMENT, "x_type");
    tq_plan_destroy(plan);

    desc = recorder_desc(TIRED);
    plan = recorder_plan(simt32, &desc);
    back.x = a.values;
    back.x_type = TQ_F32;
    assert_refused(tq_dequantise(plan, &back, &alone), TQ_ERR_DEVICE, "the kernel is tired");
    tq_plan_destroy(plan);
    arrays_free(&a);
}

static void test_tiles(void **state) {
    (void)state;
    arrays a = arrays_new();
    tq_plan_desc desc = recorder_desc(APPEND_TILES);
    tq_plan *plan = recorder_plan(simt32, &desc);
    tq_append_args append = append_args(&a, &a.tiles);
    append.n_tokens = 65;
    append.x_seq_stride = 65 * HEADS * HEAD_DIM;
    assert_int_equal(tq_append(plan, &append, &alone), TQ_OK);
    assert_grid(3);
    assert_cache(&record.append.cache, &a.tiles);
    a.tiles.token_stride -= 16;
    assert_refused(tq_append(plan, &append, &alone), TQ_ERR_ARGUMENT, "token_stride");
    a.tiles.token_stride += 18;
    assert_refused(tq_append(plan, &append, &alone), TQ_ERR_ARGUMENT, "multiple of 16");
    a.tiles.token_stride -= 2;
    tq_plan_destroy(plan);

    desc = recorder_desc(REPACK);
    plan = recorder_plan(simt32, &desc);
    tq_repack_args repack = {.batch = BATCH,
                             .n_tokens = SLOTS,
                             .rows = &a.pages,
                             .tiles = &a.tiles,
                             .first_slot = a.counts,
                             .to_tiles = 1,
                             .n_inexact = a.counts + 9};
    assert_int_equal(tq_repack(plan, &repack, &alone), TQ_OK);
    assert_grid(SLOTS / 32);
    assert_cache(&record.repack.rows, &a.pages);
    assert_cache(&record.repack.tiles, &a.tiles);
    assert_int_equal(record.repack.to_tiles, 1);
    assert_int_equal(record.repack.n_tokens, SLOTS);
    assert_ptr_equal(record.repack.n_inexact, repack.n_inexact);
    repack.n_tokens = SLOTS + 1;
    assert_refused(tq_repack(plan, &repack, &alone), TQ_ERR_ARGUMENT, "n_tokens");
    repack.n_tokens = SLOTS;
    a.tiles.seq_stride = 0; /* all sequences write the same tiles */
    assert_refused(tq_repack(plan, &repack, &alone), TQ_ERR_ARGUMENT, "seq_stride");
    repack.to_tiles = 0;
    assert_int_equal(tq_repack(plan, &repack, &alone), TQ_OK);
    assert_grid(SLOTS / 32);
    repack.rows = NULL;
    assert_refused(tq_repack(plan, &repack, &alone), TQ_ERR_ARGUMENT, "args.rows");
    tq_plan_destroy(plan);
    arrays_free(&a);
}

#define REFUSED_CACHE(change, status, word)                                                                            \
    do {                                                                                                               \
        tq_cache cache = a.pages;                                                                                      \
        tq_append_args args = append_args(&a, &cache);                                                                 \
        change;                                                                                                        \
        assert_refused(tq_append(plan, &args, &alone), status, word);                                                  \
    } while (0)

static void test_caches(void **state) {
    (void)state;
    arrays a = arrays_new();
    tq_plan_desc desc = recorder_desc(APPEND);
    tq_plan *plan = recorder_plan(simt32, &desc);
    REFUSED_CACHE(cache.data = (char *)cache.data + 2, TQ_ERR_ARGUMENT, "multiple of 16");
    REFUSED_CACHE(cache.pages = NULL, TQ_ERR_ARGUMENT, "pages");
    REFUSED_CACHE(cache.page_slots = 0, TQ_ERR_ARGUMENT, "page_slots");
    REFUSED_CACHE(cache.page_slots = 48, TQ_ERR_ARGUMENT, "power of two");
    REFUSED_CACHE(cache.pages_stride--, TQ_ERR_ARGUMENT, "pages_stride");
    REFUSED_CACHE(cache.page_stride -= 2, TQ_ERR_ARGUMENT, "page_stride");
    REFUSED_CACHE(cache.head_stride -= 2, TQ_ERR_ARGUMENT, "head_stride");
    REFUSED_CACHE(cache.bytes = cache.page_stride, TQ_ERR_ARGUMENT, "bytes");
    REFUSED_CACHE(args.batch = 65536, TQ_ERR_ARGUMENT, "batch");
    REFUSED_CACHE(args.n_tokens = SLOTS + 1, TQ_ERR_ARGUMENT, "n_tokens");
    REFUSED_CACHE(args.first_slot = NULL, TQ_ERR_ARGUMENT, "first_slot");
    REFUSED_CACHE(args.status = (int32_t *)((char *)args.status + 1), TQ_ERR_ARGUMENT, "status");
    REFUSED_CACHE(args.mode = (tq_scale_mode)77, TQ_ERR_ARGUMENT, "mode");
    tq_plan_destroy(plan);
    assert_grid(0);

    desc = recorder_desc(APPEND);
    desc.effort = TQ_EFFORT_DEFAULT;
    plan = recorder_plan(cpu, &desc);
    /* The CPU reads the page table. */
    int32_t pages[BATCH * SLOTS] = {0};
    a.pages.pages = pages;
    REFUSED_CACHE((args.mean = NULL, cache.page_slots = 8), TQ_ERR_ARGUMENT, "multiple of 16");
    pages[0] = -1;
    REFUSED_CACHE(args.mean = NULL, TQ_ERR_ARGUMENT, "pages[0] of sequence 0 is -1");
    pages[0] = (int32_t)(a.pages.bytes / a.pages.page_stride);
    REFUSED_CACHE(args.mean = NULL, TQ_ERR_ARGUMENT, "pages[0] of sequence 0 is");
    tq_plan_destroy(plan);
    desc = recorder_desc(DEQUANTISE);
    desc.effort = TQ_EFFORT_DEFAULT;
    plan = recorder_plan(cpu, &desc);
    tq_dequantise_args back = {
        .batch = BATCH, .cache = &a.rows, .first_slot = a.counts, .x = a.values, .x_type = TQ_F16};
    assert_refused(tq_dequantise(plan, &back, &alone), TQ_ERR_UNSUPPORTED, "TQ_F16");
    tq_plan_destroy(plan);
    arrays_free(&a);
}

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),   cmocka_unit_test(test_bias),  cmocka_unit_test(test_prefill),
        cmocka_unit_test(test_rows_ops), cmocka_unit_test(test_tiles), cmocka_unit_test(test_caches),
    };
    return cmocka_run_group_tests(tests, recorder_set_up, NULL);
}
