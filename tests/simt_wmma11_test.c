/* simt_wmma11_test: the words of kernel texts as HIP on gfx11 has them. */
#define TQG_VENDOR_HIP
#define TQG_WARP 32
#define TQG_MATRIX_WMMA11
#include "simt_vocabulary.h"

/* An operand that is not the same in both halves of the warp. */
TQG_KERNEL(lopsided, product_f16, TQG_WARP, 1) {
    tqg_u32 a[TQG_MMA_A] = {0}, b[TQG_MMA_B] = {0};
    b[3] = (tqg_u32)(tqg_lane() == 20);
    tqg_mma_f16(p.c, a, b);
}

static void test_halves_of_the_warp(void **state) {
    (void)state;
    float c[TQG_MMA_C] = {0};
    const product_f16 p = {NULL, NULL, c, NULL};
    const char *found = RUN(lopsided, &p, .threads = TQG_WARP);
    assert_non_null(found);
    assert_non_null(strstr(found, "lanes 4 and 20 differ"));
}

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {VOCABULARY_TESTS, cmocka_unit_test(test_halves_of_the_warp)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
