/* simt_dots_test: the words of kernel texts as HIP has them where matrices are multiplied by dot products. */
#define TQG_VENDOR_HIP
#define TQG_WARP 64
#define TQG_MATRIX_NONE
#include "simt_vocabulary.h"

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {VOCABULARY_TESTS};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
