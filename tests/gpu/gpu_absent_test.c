/* gpu_absent_test: machines whose driver libraries are no use: no devices, no failure, and a reason. Built once for each
 * kind of library. */
#include "gpu_driver.h"
#include "support.h"

static void test_no_devices(void **state) {
    const tq_device *device;
    (void)state;
    assert_string_equal(tq_device_name(tq_device_at(0)), "cpu");
    for (int i = 0; i < tq_device_count(); i++)
        assert_true(tq_device_at(i)->kind <= TQ_KIND_SIMT);
    assert_refused(tq_device_find("cuda:0", &device), TQ_ERR_DEVICE, "cpu");
    assert_refused(tq_device_find("hip:0", &device), TQ_ERR_DEVICE, "cpu");
    assert_non_null(strstr(tq_gpu_absence_of(TQ_KIND_CUDA)->text, CUDA_REASON));
    assert_non_null(strstr(tq_gpu_absence_of(TQ_KIND_HIP)->text, HIP_REASON));
    assert_null(tq_gpu_absence_of(TQ_KIND_CPU));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_devices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
