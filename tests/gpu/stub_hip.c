/* stub_hip.c: the HIP runtime's functions. With STUB_HIP_5 defined, as ROCm 5 had them. */
#include "driver_errors.h"
#include "stub_internal.h"

#include <stdio.h>
#include <string.h>

#define API __attribute__((visibility("default"))) /* the runtime's functions, declared nowhere else */

static _Thread_local int device;

#define BEGIN(call, capturable)                                                                                        \
    int code = stub_begin(#call, capturable);                                                                          \
    if (code)                                                                                                          \
    return code
#define HERE ((stub_place){device, NULL})

static int check_device(int which) {
    return which >= 0 && which < stub.n_devices ? STUB_OK : STUB_INVALID_DEVICE;
}

/* ---- devices ---------------------------------------------------------------------------------------------------- */

#define NAME_OF(code, name)                                                                                            \
    case code:                                                                                                         \
        return name;

API const char *hipGetErrorName(int code) {
    switch (code) { HIP_ERRORS(NAME_OF) }
    return "hipErrorUnknown";
}

API const char *hipGetErrorString(int code) {
    (void)code;
    return "as the test wants it";
}

API int hipGetLastError(void) {
    int last = stub_last_error;
    stub_last_error = 0;
    return last;
}

API int hipInit(unsigned flags) {
    BEGIN(hipInit, NOT_IN_CAPTURES);
    return stub_end(flags ? STUB_INVALID_VALUE : stub_count_devices("gfx") ? STUB_OK : STUB_INVALID_DEVICE);
}

API int hipGetDeviceCount(int *count) {
    BEGIN(hipGetDeviceCount, CAPTURABLE);
    *count = stub.n_devices;
    return stub_end(stub.n_devices ? STUB_OK : STUB_NO_DEVICE);
}

API int hipGetDevice(int *out) {
    BEGIN(hipGetDevice, CAPTURABLE);
    *out = device;
    return stub_end(STUB_OK);
}

API int hipSetDevice(int which) {
    BEGIN(hipSetDevice, CAPTURABLE);
    if ((code = check_device(which)))
        return stub_end(code);
    device = which;
    return stub_end(STUB_OK);
}

API int hipDeviceGetName(char *name, int length, int which) {
    BEGIN(hipDeviceGetName, CAPTURABLE);
    if ((code = check_device(which)))
        return stub_end(code);
    snprintf(name, (size_t)length, "%s", stub.devices[which].name);
    return stub_end(STUB_OK);
}

API int hipDeviceTotalMem(size_t *bytes, int which) {
    BEGIN(hipDeviceTotalMem, CAPTURABLE);
    if ((code = check_device(which)))
        return stub_end(code);
    *bytes = stub.devices[which].memory_bytes;
    return stub_end(STUB_OK);
}

/* gfx9 and older have waves of 64. */
static int wave(int which) {
    return strncmp(stub.devices[which].arch, "gfx9", 4) == 0 ? 64 : 32;
}

API int hipDeviceGetAttribute(int *value, int attribute, int which) {
    enum { MULTIPROCESSOR_COUNT = 63, MAX_SHARED_MEMORY_PER_BLOCK = 74, WARP_SIZE = 87 };
    BEGIN(hipDeviceGetAttribute, CAPTURABLE);
    if ((code = check_device(which)))
        return stub_end(code);
    switch (attribute) {
    case MULTIPROCESSOR_COUNT:
        *value = stub.devices[which].multiprocessors;
        break;
    case MAX_SHARED_MEMORY_PER_BLOCK:
        *value = stub.devices[which].shared_bytes;
        break;
    case WARP_SIZE:
        *value = wave(which);
        break;
    default:
        return stub_end(STUB_INVALID_VALUE);
    }
    return stub_end(STUB_OK);
}

/* hipDeviceProp_t: its size and the place of gcnArchName; all else is made up. */
static int write_properties(unsigned char *out, size_t bytes, size_t arch_at, int which) {
    int code = check_device(which);
    if (code)
        return code;
    for (size_t i = 0; i < bytes; i++)
        out[i] = (unsigned char)(i * 37);
    snprintf((char *)out, 256, "%s, not gfx803", stub.devices[which].name);
    snprintf((char *)out + arch_at, 256, "%s", stub.devices[which].arch);
    return STUB_OK;
}

API int hipGetDeviceProperties(void *out, int which) {
    BEGIN(hipGetDeviceProperties, CAPTURABLE);
    return stub_end(write_properties(out, 792, 396, which));
}

#ifndef STUB_HIP_5
API int hipGetDevicePropertiesR0600(void *out, int which) {
    BEGIN(hipGetDevicePropertiesR0600, CAPTURABLE);
    return stub_end(write_properties(out, 1472, 1160, which));
}
#endif

API int hipDeviceSynchronize(void) {
    BEGIN(hipDeviceSynchronize, NOT_IN_CAPTURES);
    return stub_end(STUB_OK);
}

/* ---- modules and launches --------------------------------------------------------------------------------------- */

API int hipModuleLoadData(void **out, const void *image) {
    BEGIN(hipModuleLoadData, NOT_IN_CAPTURES);
    return stub_end(stub_load(HERE, image, out));
}

API int hipModuleGetFunction(void **out, void *module, const char *symbol) {
    BEGIN(hipModuleGetFunction, CAPTURABLE);
    return stub_end(stub_find(module, symbol, (unsigned)stub.devices[device].shared_bytes, 1, out));
}

API int hipModuleLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned threads_x,
                              unsigned threads_y, unsigned threads_z, unsigned shared, void *stream, void **arguments,
                              void **extra) {
    const unsigned grid[] = {grid_x, grid_y, grid_z}, threads[] = {threads_x, threads_y, threads_z};
    BEGIN(hipModuleLaunchKernel, CAPTURABLE);
    return stub_end(extra ? STUB_INVALID_VALUE : stub_run(HERE, function, grid, threads, shared, stream, arguments));
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

API int hipMalloc(void **out, size_t bytes) {
    uintptr_t memory = 0;
    BEGIN(hipMalloc, NOT_IN_CAPTURES);
    code = stub_alloc(device, bytes, &memory);
    *out = (void *)memory;
    return stub_end(code);
}

API int hipFree(void *memory) {
    BEGIN(hipFree, NOT_IN_CAPTURES);
    return stub_end(stub_free((uintptr_t)memory));
}

API int hipMemcpy(void *to, const void *from, size_t bytes, int kind) {
    enum { HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2 };
    BEGIN(hipMemcpy, NOT_IN_CAPTURES);
    if (kind == HOST_TO_DEVICE)
        return stub_end(stub_copy_in((uintptr_t)to, from, bytes));
    return stub_end(kind == DEVICE_TO_HOST ? stub_copy_out(to, (uintptr_t)from, bytes) : STUB_INVALID_VALUE);
}

API int hipMemsetAsync(void *memory, int value, size_t bytes, void *stream) {
    BEGIN(hipMemsetAsync, CAPTURABLE);
    code = stub_check_stream(HERE, stream);
    return stub_end(code ? code : stub_fill((uintptr_t)memory, value, bytes));
}

/* ---- streams and events ----------------------------------------------------------------------------------------- */

API int hipStreamSynchronize(void *stream) {
    BEGIN(hipStreamSynchronize, NOT_IN_CAPTURES);
    return stub_end(stub_check_stream(HERE, stream));
}

API int hipEventCreate(void **out) {
    BEGIN(hipEventCreate, NOT_IN_CAPTURES);
    return stub_end(stub_event_new(HERE, out));
}

API int hipEventDestroy(void *event) {
    BEGIN(hipEventDestroy, NOT_IN_CAPTURES);
    return stub_end(stub_event_free(event));
}

API int hipEventRecord(void *event, void *stream) {
    BEGIN(hipEventRecord, CAPTURABLE);
    return stub_end(stub_event_record(HERE, event, stream));
}

API int hipEventSynchronize(void *event) {
    BEGIN(hipEventSynchronize, NOT_IN_CAPTURES);
    return stub_end(stub_event_wait(event));
}

API int hipEventElapsedTime(float *ms, void *start, void *stop) {
    BEGIN(hipEventElapsedTime, NOT_IN_CAPTURES);
    return stub_end(stub_event_elapsed(start, stop, ms));
}

/* ---- for the test ----------------------------------------------------------------------------------------------- */

static void test_set_device(int which) {
    device = which;
}

static int test_get_device(void) {
    return device;
}

static int test_last_error(void) {
    return stub_last_error;
}

static void *test_create_stream(void) {
    return stub_new_stream(HERE);
}

API extern const stub_driver stub_control;
const stub_driver stub_control = {
    .state = &stub,
    .set_device = test_set_device,
    .get_device = test_get_device,
    .last_error = test_last_error,
    .create_stream = test_create_stream,
    .host_address = stub_host_address,
};
