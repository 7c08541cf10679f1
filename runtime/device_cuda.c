/* device_cuda.c: CUDA devices, through the driver library alone. */
#include "gpu_driver.h"

#include <stdio.h>
#include <string.h>

typedef void *context, *module, *function, *stream, *event;
typedef unsigned long long device_pointer;

/* What is used of the driver: result type int everywhere, name, arguments. */
#define CUDA_FUNCTIONS(X)                                                                                              \
    X(cuInit, (unsigned flags))                                                                                        \
    X(cuGetErrorName, (int code, const char **name))                                                                   \
    X(cuGetErrorString, (int code, const char **words))                                                                \
    X(cuDeviceGetCount, (int *count))                                                                                  \
    X(cuDeviceGet, (int *device, int ordinal))                                                                         \
    X(cuDeviceGetName, (char *name, int length, int device))                                                           \
    X(cuDeviceGetAttribute, (int *value, int attribute, int device))                                                   \
    X(cuDeviceTotalMem_v2, (size_t * bytes, int device))                                                               \
    X(cuDevicePrimaryCtxRetain, (context * out, int device))                                                           \
    X(cuCtxGetCurrent, (context * out))                                                                                \
    X(cuCtxGetDevice, (int *device))                                                                                   \
    X(cuCtxPushCurrent_v2, (context what))                                                                             \
    X(cuCtxPopCurrent_v2, (context * out))                                                                             \
    X(cuCtxSynchronize, (void))                                                                                        \
    X(cuModuleLoadData, (module * out, const void *image))                                                             \
    X(cuModuleGetFunction, (function * out, module from, const char *name))                                            \
    X(cuFuncSetAttribute, (function of, int attribute, int value))                                                     \
    X(cuLaunchKernel,                                                                                                  \
      (function what, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned threads_x, unsigned threads_y,       \
       unsigned threads_z, unsigned shared_bytes, stream on, void **arguments, void **extra))                          \
    X(cuMemAlloc_v2, (device_pointer * out, size_t bytes))                                                             \
    X(cuMemFree_v2, (device_pointer memory))                                                                           \
    X(cuMemcpyHtoD_v2, (device_pointer to, const void *from, size_t bytes))                                            \
    X(cuMemcpyDtoH_v2, (void *to, device_pointer from, size_t bytes))                                                  \
    X(cuMemsetD8Async, (device_pointer memory, unsigned char value, size_t bytes, stream on))                          \
    X(cuStreamSynchronize, (stream what))                                                                              \
    X(cuEventCreate, (event * out, unsigned flags))                                                                    \
    X(cuEventDestroy_v2, (event what))                                                                                 \
    X(cuEventRecord, (event what, stream on))                                                                          \
    X(cuEventSynchronize, (event what))                                                                                \
    X(cuEventElapsedTime, (float *ms, event start, event stop))

#define DECLARE(name, arguments) static int(*name) arguments;
CUDA_FUNCTIONS(DECLARE)
static int (*cuCtxGetId)(context of, unsigned long long *id); /* since CUDA 12.0; NULL before */
static int (*cuFuncLoad)(function what);                      /* since CUDA 12.4 */

#define CALL(name, arguments) ((tq_gpu_result){name arguments, #name})

/* Values of the driver's enumerations. */
enum {
    WARP_SIZE = 10, /* CU_DEVICE_ATTRIBUTE_... */
    MULTIPROCESSOR_COUNT = 16,
    COMPUTE_CAPABILITY_MAJOR = 75,
    COMPUTE_CAPABILITY_MINOR = 76,
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    MAX_DYNAMIC_SHARED_SIZE_BYTES = 8, /* CU_FUNC_ATTRIBUTE_... */
};

/* ---- steps ------------------------------------------------------------------------------------------------------ */

/* Retained once, and never released: devices live as long as the process. */
static tq_gpu_result primary_context(tq_gpu_state *state, context *out) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    tq_gpu_result result = {0, ""};
    pthread_mutex_lock(&lock);
    if (!state->primary)
        result = CALL(cuDevicePrimaryCtxRetain, (&state->primary, state->ordinal));
    *out = state->primary;
    pthread_mutex_unlock(&lock);
    return result;
}

static tq_gpu_result cuda_enter(tq_gpu_state *state, context wanted, tq_gpu_scope *scope) {
    context current = NULL;
    tq_gpu_result result = CALL(cuCtxGetCurrent, (&current));
    if (!result.code && !wanted && current) {
        int device = -1;
        result = CALL(cuCtxGetDevice, (&device));
        if (device == state->ordinal)
            wanted = current;
    }
    if (!result.code && !wanted)
        result = primary_context(state, &wanted);
    *scope = (tq_gpu_scope){.context = wanted, .previous = wanted != current};
    return result.code || wanted == current ? result : CALL(cuCtxPushCurrent_v2, (wanted));
}

static tq_gpu_result cuda_leave(const tq_gpu_scope *scope) {
    context popped;
    return scope->previous ? CALL(cuCtxPopCurrent_v2, (&popped)) : (tq_gpu_result){0, ""};
}

static uint64_t cuda_context_id(context which) {
    unsigned long long id;
    return cuCtxGetId && cuCtxGetId(which, &id) == 0 ? id : (uintptr_t)which;
}

static void cuda_error(int code, const char **name, const char **words) {
    if (cuGetErrorName(code, name) || !*name)
        *name = "an unknown error";
    if (cuGetErrorString(code, words) || !*words)
        *words = "";
}

static tq_gpu_result cuda_load(const void *image, void **out) {
    return CALL(cuModuleLoadData, (out, image));
}

static tq_gpu_result cuda_find(void *from, const char *symbol, void **out) {
    return CALL(cuModuleGetFunction, (out, from, symbol));
}

/* Up to 48 KiB need no permission. Without cuFuncLoad newer drivers may put off loading until the first launch, which must
 * not happen in a capture. */
static tq_gpu_result cuda_make_ready(void *what, int shared_bytes) {
    tq_gpu_result result = {0, ""};
    if (shared_bytes > 48 * 1024)
        result = CALL(cuFuncSetAttribute, (what, MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes));
    return result.code || !cuFuncLoad ? result : CALL(cuFuncLoad, (what));
}

static tq_gpu_result cuda_launch(void *what, const unsigned grid[3], const tqg_kernel *kernel, void **arguments,
                                 void *on) {
    return CALL(cuLaunchKernel, (what, grid[0], grid[1], grid[2], (unsigned)kernel->threads, 1, 1,
                                 (unsigned)kernel->shared_bytes, on, arguments, NULL));
}

static device_pointer pointer(const void *memory) {
    return (uintptr_t)memory;
}

static tq_gpu_result cuda_alloc(size_t bytes, void **out) {
    device_pointer memory = 0;
    tq_gpu_result result = CALL(cuMemAlloc_v2, (&memory, bytes));
    *out = result.code ? NULL : (void *)(uintptr_t)memory;
    return result;
}

static tq_gpu_result cuda_free(void *memory) {
    return CALL(cuMemFree_v2, (pointer(memory)));
}

static tq_gpu_result cuda_copy_in(void *to, const void *host, size_t bytes) {
    return CALL(cuMemcpyHtoD_v2, (pointer(to), host, bytes));
}

static tq_gpu_result cuda_copy_out(void *host, const void *from, size_t bytes) {
    return CALL(cuMemcpyDtoH_v2, (host, pointer(from), bytes));
}

static tq_gpu_result cuda_fill(void *memory, int value, size_t bytes, void *on) {
    return CALL(cuMemsetD8Async, (pointer(memory), (unsigned char)value, bytes, on));
}

static tq_gpu_result cuda_wait_stream(void *what) {
    return CALL(cuStreamSynchronize, (what));
}

static tq_gpu_result cuda_wait_device(void) {
    return CALL(cuCtxSynchronize, ());
}

static tq_gpu_result cuda_event_create(void **out) {
    return CALL(cuEventCreate, (out, 0));
}

static tq_gpu_result cuda_event_destroy(void *what) {
    return CALL(cuEventDestroy_v2, (what));
}

static tq_gpu_result cuda_event_record(void *what, void *on) {
    return CALL(cuEventRecord, (what, on));
}

static tq_gpu_result cuda_event_elapsed(void *start, void *stop, float *ms) {
    tq_gpu_result result = CALL(cuEventSynchronize, (stop));
    return result.code ? result : CALL(cuEventElapsedTime, (ms, start, stop));
}

static const tq_gpu_driver driver = {
    .enter = cuda_enter,
    .leave = cuda_leave,
    .context_id = cuda_context_id,
    .error = cuda_error,
    .load = cuda_load,
    .find = cuda_find,
    .make_ready = cuda_make_ready,
    .launch = cuda_launch,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .fill = cuda_fill,
    .wait_stream = cuda_wait_stream,
    .wait_device = cuda_wait_device,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_elapsed = cuda_event_elapsed,
};

/* ---- devices ---------------------------------------------------------------------------------------------------- */

/* Its own architecture, and the older ones of its generation, whose cubins it runs too. (Not so for the chips of Jetson
 * boards, 7.2 and 8.7, which stand alone.) */
static void write_features(char *out, size_t size, int major, int minor) {
    static const int older[][2] = {{7, 0}, {8, 0}, {8, 6}, {8, 9}, {10, 0}, {12, 0}};
    int alone = (major == 7 && minor == 2) || (major == 8 && minor == 7);
    int used = snprintf(out, size, "sm_%d%d", major, minor);
    for (int i = (int)(sizeof older / sizeof *older) - 1; i >= 0 && !alone; i--)
        if (older[i][0] == major && older[i][1] < minor)
            used += snprintf(out + used, size - (size_t)used, " sm_%d%d", older[i][0], older[i][1]);
}

static tq_gpu_result describe(int ordinal, tq_device *out, tq_gpu_state *state) {
    int major = 0, minor = 0, shared = 0, warp = 0, multiprocessors = 0;
    const struct {
        int attribute, *value;
    } attributes[] = {{COMPUTE_CAPABILITY_MAJOR, &major},
                      {COMPUTE_CAPABILITY_MINOR, &minor},
                      {MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &shared},
                      {WARP_SIZE, &warp},
                      {MULTIPROCESSOR_COUNT, &multiprocessors}};
    int device = 0;
    tq_gpu_result result = CALL(cuDeviceGet, (&device, ordinal));
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes && !result.code; i++)
        result = CALL(cuDeviceGetAttribute, (attributes[i].value, attributes[i].attribute, device));
    if (!result.code)
        result = CALL(cuDeviceTotalMem_v2, (&out->memory_bytes, device));
    if (!result.code)
        result = CALL(cuDeviceGetName, (out->model, sizeof out->model, device));
    if (result.code)
        return result;
    tq_tidy(out->model);
    snprintf(out->name, sizeof out->name, "cuda:%d", ordinal);
    snprintf(out->arch, sizeof out->arch, "sm_%d%d", major, minor);
    write_features(out->features, sizeof out->features, major, minor);
    out->kind = TQ_KIND_CUDA;
    out->warp = warp;
    out->multiprocessors = multiprocessors;
    out->shared_bytes = (size_t)shared;
    out->ops = &tq_gpu_ops;
    out->state = state;
    *state = (tq_gpu_state){.driver = &driver, .ordinal = device, .lock = PTHREAD_MUTEX_INITIALIZER};
    return result;
}

int tq_cuda_devices(tq_device *out, int most) {
    static tq_gpu_state states[TQ_MAX_DEVICES];
    static const char *const names[] = {"libcuda.so.1", NULL};
    const char *name;
    tq_gpu_absence *absence = &tq_cuda_absence;
    void *library = tq_gpu_open(names, &name, absence);
    if (!library)
        return 0;
#define FIND(function, arguments)                                                                                      \
    if (!tq_gpu_symbol(library, name, #function, &function, absence))                                                  \
        return 0;
    CUDA_FUNCTIONS(FIND)
    tq_gpu_absence optional;
    tq_gpu_symbol(library, name, "cuCtxGetId", &cuCtxGetId, &optional);
    tq_gpu_symbol(library, name, "cuFuncLoad", &cuFuncLoad, &optional);

    int count = 0, n = 0;
    if (tq_gpu_missed(&driver, CALL(cuInit, (0)), -1, absence) ||
        tq_gpu_missed(&driver, CALL(cuDeviceGetCount, (&count)), -1, absence))
        return 0;
    for (int i = 0; i < count && n < most && n < TQ_MAX_DEVICES; i++) {
        memset(&out[n], 0, sizeof out[n]);
        if (!tq_gpu_missed(&driver, describe(i, &out[n], &states[n]), i, absence))
            n++;
    }
    if (count == 0)
        snprintf(absence->text, sizeof absence->text, "%s knows no devices", name);
    return n;
}
