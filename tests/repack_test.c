/* repack_test: every repack variant that some device here runs: rows to tiles as the reference packs them, and back. */
#include "support.h"

enum { N_SLOTS = 150, FIRST_SLOT = 3, BATCH = 2, HEADS = 2, PAGE_SLOTS = 128 };

typedef struct job {
    const tq_variant *variant;
    const tq_format_spec *format;
    tq_side side;
} job;

static const tq_variant rows_layout = {.layout = "rows"};

static device_cache cache_for(const job *j, const tq_variant *layout_of, int page_slots) {
    return device_cache_new(device_for(j->variant), layout_of, j->format, j->side, BATCH, HEADS, N_SLOTS, page_slots,
                            0);
}

static void run(const job *j, const device_cache *rows, const device_cache *tiles, int to_tiles) {
    const tq_device *device = device_for(j->variant);
    const int32_t first_slots[BATCH] = {FIRST_SLOT, FIRST_SLOT};
    const tq_launch launch = {.thread_count = 1};
    device_buffer first = device_copy(device, first_slots, sizeof first_slots, 4);
    tq_plan *plan = plan_pinned(j->variant, j->side, HEADS, BATCH, N_SLOTS, 0);
    const tq_repack_args args = {.batch = BATCH,
                                 .n_tokens = N_SLOTS - FIRST_SLOT,
                                 .rows = &rows->cache,
                                 .tiles = &tiles->cache,
                                 .first_slot = (const int32_t *)first.data,
                                 .to_tiles = to_tiles};
    if (tq_repack(plan, &args, &launch) != TQ_OK || tq_device_synchronise(device, NULL) != TQ_OK)
        fail_msg("%s: %s", j->variant->name, tq_error_message());
    tq_plan_destroy(plan);
    device_buffer_free(&first);
}

/* Slots from FIRST_SLOT hold the bank's rows. */
static void check_rows(const job *j, const device_cache *c, const buffer *expected, const char *what) {
    tq_cache rows;
    buffer found = cache_new(&rows, BATCH, HEADS, N_SLOTS, j->format->row_bytes, 0);
    size_t row_bytes = (size_t)j->format->row_bytes;
    device_cache_read(c, &rows, BATCH, HEADS);
    for (size_t at = 0; at < found.bytes; at += row_bytes)
        if (at / row_bytes % N_SLOTS >= FIRST_SLOT && memcmp(found.data + at, expected->data + at, row_bytes) != 0)
            fail_msg("%s: row %zu in %s is not as it was", j->variant->name, at / row_bytes, what);
    buffer_free(&found);
}

/* Rows in pages or not, and tiles the other way. */
static void check_variant(const tq_variant *variant, int page_slots) {
    const tq_format_spec *own = variant->k ? variant->k : variant->v;
    job j = {variant, spec_of(own->name, own->head_dim), variant->k ? TQ_SIDE_K : TQ_SIDE_V};
    tq_cache bank;
    buffer expected = cache_new(&bank, BATCH, HEADS, N_SLOTS, own->row_bytes, 0);
    memcpy(expected.data, bank_rows(j.format, j.side), expected.bytes);
    device_cache rows = cache_for(&j, &rows_layout, page_slots),
                 tiles = cache_for(&j, variant, PAGE_SLOTS - page_slots);
    device_cache back = cache_for(&j, &rows_layout, 0);
    device_cache_fill(&rows, &bank, BATCH, HEADS);
    run(&j, &rows, &tiles, 1);
    check_rows(&j, &tiles, &expected, "tiles");
    run(&j, &back, &tiles, 0);
    check_rows(&j, &back, &expected, "rows again");
    device_cache_free(&rows);
    device_cache_free(&tiles);
    device_cache_free(&back);
    buffer_free(&expected);
}

static void test_every_variant(void **state) {
    (void)state;
    int count;
    const tq_variant **variants = variants_here(TQ_OP_REPACK, &count);
    for (int i = 0; i < count; i++) {
        check_variant(variants[i], 0);
        check_variant(variants[i], PAGE_SLOTS);
    }
    free(variants);
    variants = gpu_variants_here(TQ_OP_REPACK, &count);
    for (int i = 0; i < count; i++) {
        tq_simt_set_seed((unsigned)i);
        check_variant(variants[i], i % 2 ? PAGE_SLOTS : 0);
    }
    free(variants);
}

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_variant)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
