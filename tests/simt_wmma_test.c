/* simt_wmma_test: the words of kernel texts as HIP on gfx12 has them, in warps of 32 lanes. */
#define TQG_VENDOR_HIP
#define TQG_WARP 32
#define TQG_MATRIX_WMMA
#include "simt_vocabulary.h"

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {VOCABULARY_TESTS};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
