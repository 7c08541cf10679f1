/* cmocka.h: as much of cmocka as the tests of kernels use, for programs that run in an emulator, where the library is
 * missing. The first failure ends the program. */
#ifndef TQ_CROSS_CMOCKA_H
#define TQ_CROSS_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void _fail(const char *file, int line) {
    fprintf(stderr, "%s:%d: failed\n", file, line);
    exit(1);
}

#define fail_msg(...)                                                                                                  \
    do {                                                                                                               \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fputc('\n', stderr);                                                                                           \
        _fail(__FILE__, __LINE__);                                                                                     \
    } while (0)
#define print_error(...) fprintf(stderr, __VA_ARGS__)

#define assert_true(condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            fail_msg("%s is false", #condition);                                                                       \
    } while (0)
#define assert_false(condition)       assert_true(!(condition))
#define assert_null(pointer)          assert_true(!(pointer))
#define assert_non_null(pointer)      assert_true(pointer)
#define assert_int_equal(a, b)        assert_true((a) == (b))
#define assert_in_range(x, low, high) assert_true((x) >= (low) && (x) <= (high))
#define assert_memory_equal(a, b, n)  assert_true(memcmp(a, b, n) == 0)
#define assert_string_equal(a, b)     assert_true(strcmp(a, b) == 0)

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

#define cmocka_unit_test(function)                                                                                     \
    { #function, function }

/* Without fixtures. */
#define cmocka_run_group_tests(tests, set_up, tear_down) run_tests(tests, sizeof(tests) / sizeof *(tests))

static inline int run_tests(const struct CMUnitTest *tests, size_t n) {
    for (size_t i = 0; i < n; i++) {
        void *state = NULL;
        tests[i].run(&state);
        printf("[       OK ] %s\n", tests[i].name);
    }
    return 0;
}

#endif
