/* simt_mfma_test: the words of kernel texts as HIP on CDNA has them, in warps of 64 lanes. */
#define TQG_VENDOR_HIP
#define TQG_WARP 64
#define TQG_MATRIX_MFMA
#include "simt_vocabulary.h"

/* A ballot that takes a warp for 32 lanes loses the others. */
TQG_KERNEL(vote, words, THREADS, 1) {
    const tqg_u64 all = tqg_ballot(1), narrow = (tqg_u32)tqg_ballot(tqg_lane() >= 32);
    p.out[tqg_thread()] = (all == ~(tqg_u64)0) + 2 * (narrow != 0);
}

static void test_vote(void **state) {
    (void)state;
    tqg_u32 out[THREADS];
    const words p = {.out = out};
    assert_runs(vote, &p, .seed = 3);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(out[i], 1);
}

static void test_width(void **state) {
    (void)state;
    tqg_u32 out[THREADS];
    const words p = {.out = out};
    const tq_simt_grid grid = {.name = "vote", .x = 1, .y = 1, .z = 1, .threads = THREADS, .warp = 32};
    assert_non_null(tq_simt_launch(&grid, vote, &p, message, sizeof message));
    assert_non_null(strstr(message, "warps of 32; generated for 128, 64"));
}

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {VOCABULARY_TESTS, cmocka_unit_test(test_vote), cmocka_unit_test(test_width)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
