/* stub_cuda.c: the CUDA driver's functions. */
#include "driver_errors.h"
#include "stub_internal.h"

#include <stdio.h>
#include <string.h>

#define API __attribute__((visibility("default"))) /* the driver's functions, declared nowhere else */

typedef unsigned long long device_pointer;

static int initialised;

/* ---- contexts --------------------------------------------------------------------------------------------------- */

enum { MAX_CONTEXTS = 24, MAX_DEPTH = 16 };

typedef struct context {
    int device, alive, primary;
    unsigned long long id;
} context;

static context contexts[MAX_CONTEXTS]; /* first come the primary ones, by device */
static _Thread_local context *stack[MAX_DEPTH];
static _Thread_local int depth;

static context *new_context(int device, int primary) {
    static unsigned long long next_id;
    int i = primary ? device : STUB_MAX_DEVICES;
    while (contexts[i].alive)
        i++;
    contexts[i] = (context){.device = device, .alive = 1, .primary = primary, .id = ++next_id};
    return &contexts[i];
}

static context *current(void) {
    return depth ? stack[depth - 1] : NULL;
}

static int push(context *what) {
    if (!what || !what->alive || depth == MAX_DEPTH)
        return STUB_INVALID_CONTEXT;
    stack[depth++] = what;
    return STUB_OK;
}

/* *out: where a call runs. */
static int find_place(stub_place *out) {
    context *c = current();
    if (!initialised)
        return 3; /* CUDA_ERROR_NOT_INITIALIZED */
    if (!c || !c->alive)
        return STUB_INVALID_CONTEXT;
    *out = (stub_place){c->device, c};
    return STUB_OK;
}

/* BEGIN starts a call; RUN one that needs a current context, its place. */
#define BEGIN(call, capturable)                                                                                        \
    int code = stub_begin(#call, capturable);                                                                          \
    if (code)                                                                                                          \
    return code
#define RUN(call, capturable)                                                                                          \
    BEGIN(call, capturable);                                                                                           \
    stub_place place = {0, NULL};                                                                                      \
    if ((code = find_place(&place)))                                                                                   \
    return stub_end(code)

API int cuDevicePrimaryCtxRetain(void **out, int device) {
    BEGIN(cuDevicePrimaryCtxRetain, NOT_IN_CAPTURES);
    if (device < 0 || device >= stub.n_devices)
        return stub_end(STUB_INVALID_DEVICE);
    if (stub.n_retained[device]++ == 0)
        new_context(device, 1);
    *out = &contexts[device];
    return stub_end(STUB_OK);
}

API int cuCtxGetCurrent(void **out) {
    BEGIN(cuCtxGetCurrent, CAPTURABLE);
    *out = current();
    return stub_end(STUB_OK);
}

API int cuCtxGetDevice(int *device) {
    RUN(cuCtxGetDevice, CAPTURABLE);
    *device = place.device;
    return stub_end(STUB_OK);
}

API int cuCtxGetId(void *which, unsigned long long *id) {
    BEGIN(cuCtxGetId, CAPTURABLE);
    *id = ((context *)which)->id;
    return stub_end(STUB_OK);
}

API int cuCtxPushCurrent_v2(void *what) {
    BEGIN(cuCtxPushCurrent_v2, CAPTURABLE);
    return stub_end(push(what));
}

API int cuCtxPopCurrent_v2(void **out) {
    BEGIN(cuCtxPopCurrent_v2, CAPTURABLE);
    if (!depth) {
        stub_violate("a context is popped where none is current");
        return stub_end(STUB_INVALID_CONTEXT);
    }
    *out = stack[--depth];
    return stub_end(STUB_OK);
}

API int cuCtxSynchronize(void) {
    RUN(cuCtxSynchronize, NOT_IN_CAPTURES);
    return stub_end(STUB_OK);
}

/* ---- devices ---------------------------------------------------------------------------------------------------- */

#define NAME_OF(code, name)                                                                                            \
    case code:                                                                                                         \
        *out = name;                                                                                                   \
        return 0;

API int cuGetErrorName(int code, const char **out) {
    switch (code) { CUDA_ERRORS(NAME_OF) }
    *out = NULL;
    return STUB_INVALID_VALUE;
}

API int cuGetErrorString(int code, const char **out) {
    if (cuGetErrorName(code, out))
        return STUB_INVALID_VALUE;
    *out = "as the test wants it";
    return 0;
}

API int cuInit(unsigned flags) {
    BEGIN(cuInit, NOT_IN_CAPTURES);
    if (flags)
        return stub_end(STUB_INVALID_VALUE);
    initialised = 1;
    return stub_end(stub_count_devices("sm_") ? STUB_OK : STUB_NO_DEVICE);
}

API int cuDeviceGetCount(int *count) {
    BEGIN(cuDeviceGetCount, CAPTURABLE);
    *count = stub.n_devices;
    return stub_end(STUB_OK);
}

static int check_device(int device) {
    return device >= 0 && device < stub.n_devices ? STUB_OK : STUB_INVALID_DEVICE;
}

API int cuDeviceGet(int *device, int ordinal) {
    BEGIN(cuDeviceGet, CAPTURABLE);
    *device = ordinal;
    return stub_end(check_device(ordinal));
}

API int cuDeviceGetName(char *name, int length, int device) {
    BEGIN(cuDeviceGetName, CAPTURABLE);
    if ((code = check_device(device)))
        return stub_end(code);
    snprintf(name, (size_t)length, "%s", stub.devices[device].name);
    return stub_end(STUB_OK);
}

API int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    BEGIN(cuDeviceTotalMem_v2, CAPTURABLE);
    if ((code = check_device(device)))
        return stub_end(code);
    *bytes = stub.devices[device].memory_bytes;
    return stub_end(STUB_OK);
}

API int cuDeviceGetAttribute(int *value, int attribute, int device) {
    enum { WARP_SIZE = 10, MULTIPROCESSOR_COUNT = 16, MAJOR = 75, MINOR = 76, SHARED_OPTIN = 97 };
    int sm = 0;
    BEGIN(cuDeviceGetAttribute, CAPTURABLE);
    if ((code = check_device(device)))
        return stub_end(code);
    sscanf(stub.devices[device].arch, "sm_%d", &sm);
    switch (attribute) {
    case WARP_SIZE:
        *value = 32;
        break;
    case MULTIPROCESSOR_COUNT:
        *value = stub.devices[device].multiprocessors;
        break;
    case MAJOR:
        *value = sm / 10;
        break;
    case MINOR:
        *value = sm % 10;
        break;
    case SHARED_OPTIN:
        *value = stub.devices[device].shared_bytes;
        break;
    default:
        return stub_end(STUB_INVALID_VALUE);
    }
    return stub_end(STUB_OK);
}

/* ---- modules and launches --------------------------------------------------------------------------------------- */

API int cuModuleLoadData(void **out, const void *image) {
    RUN(cuModuleLoadData, NOT_IN_CAPTURES);
    return stub_end(stub_load(place, image, out));
}

API int cuModuleGetFunction(void **out, void *module, const char *symbol) {
    RUN(cuModuleGetFunction, CAPTURABLE);
    return stub_end(stub_find(module, symbol, 48 * 1024, 0, out));
}

API int cuFuncSetAttribute(void *function, int attribute, int value) {
    enum { MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
    RUN(cuFuncSetAttribute, CAPTURABLE);
    return stub_end(attribute == MAX_DYNAMIC_SHARED_SIZE_BYTES ? stub_limit_shared(function, value)
                                                               : STUB_INVALID_VALUE);
}

API int cuFuncLoad(void *function) {
    RUN(cuFuncLoad, NOT_IN_CAPTURES);
    return stub_end(stub_load_function(function));
}

API int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned threads_x,
                       unsigned threads_y, unsigned threads_z, unsigned shared, void *stream, void **arguments,
                       void **extra) {
    const unsigned grid[] = {grid_x, grid_y, grid_z}, threads[] = {threads_x, threads_y, threads_z};
    RUN(cuLaunchKernel, CAPTURABLE);
    return stub_end(extra ? STUB_INVALID_VALUE : stub_run(place, function, grid, threads, shared, stream, arguments));
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

API int cuMemAlloc_v2(device_pointer *out, size_t bytes) {
    uintptr_t memory = 0;
    RUN(cuMemAlloc_v2, NOT_IN_CAPTURES);
    code = stub_alloc(place.device, bytes, &memory);
    *out = memory;
    return stub_end(code);
}

API int cuMemFree_v2(device_pointer memory) {
    RUN(cuMemFree_v2, NOT_IN_CAPTURES);
    return stub_end(stub_free((uintptr_t)memory));
}

API int cuMemcpyHtoD_v2(device_pointer to, const void *from, size_t bytes) {
    RUN(cuMemcpyHtoD_v2, NOT_IN_CAPTURES);
    return stub_end(stub_copy_in((uintptr_t)to, from, bytes));
}

API int cuMemcpyDtoH_v2(void *to, device_pointer from, size_t bytes) {
    RUN(cuMemcpyDtoH_v2, NOT_IN_CAPTURES);
    return stub_end(stub_copy_out(to, (uintptr_t)from, bytes));
}

API int cuMemsetD8Async(device_pointer memory, unsigned char value, size_t bytes, void *stream) {
    RUN(cuMemsetD8Async, CAPTURABLE);
    code = stub_check_stream(place, stream);
    return stub_end(code ? code : stub_fill((uintptr_t)memory, value, bytes));
}

/* ---- streams and events ----------------------------------------------------------------------------------------- */

API int cuStreamSynchronize(void *stream) {
    RUN(cuStreamSynchronize, NOT_IN_CAPTURES);
    return stub_end(stub_check_stream(place, stream));
}

API int cuEventCreate(void **out, unsigned flags) {
    RUN(cuEventCreate, NOT_IN_CAPTURES);
    return stub_end(flags ? STUB_INVALID_VALUE : stub_event_new(place, out));
}

API int cuEventDestroy_v2(void *event) {
    RUN(cuEventDestroy_v2, NOT_IN_CAPTURES);
    return stub_end(stub_event_free(event));
}

API int cuEventRecord(void *event, void *stream) {
    RUN(cuEventRecord, CAPTURABLE);
    return stub_end(stub_event_record(place, event, stream));
}

API int cuEventSynchronize(void *event) {
    RUN(cuEventSynchronize, NOT_IN_CAPTURES);
    return stub_end(stub_event_wait(event));
}

API int cuEventElapsedTime(float *ms, void *start, void *stop) {
    RUN(cuEventElapsedTime, NOT_IN_CAPTURES);
    return stub_end(stub_event_elapsed(start, stop, ms));
}

/* ---- for the test ----------------------------------------------------------------------------------------------- */

static void *test_create_context(int device) {
    return new_context(device, 0);
}

static void test_destroy_context(void *what) {
    ((context *)what)->alive = 0;
}

static void test_push(void *what) {
    push(what);
}

static void *test_pop(void) {
    return depth ? stack[--depth] : NULL;
}

static void *test_current(void) {
    return current();
}

static int test_depth(void) {
    return depth;
}

static void *test_create_stream(void) {
    stub_place place;
    return find_place(&place) ? NULL : stub_new_stream(place);
}

API extern const stub_driver stub_control;
const stub_driver stub_control = {
    .state = &stub,
    .create_context = test_create_context,
    .destroy_context = test_destroy_context,
    .push_context = test_push,
    .pop_context = test_pop,
    .current_context = test_current,
    .context_depth = test_depth,
    .create_stream = test_create_stream,
    .host_address = stub_host_address,
};
