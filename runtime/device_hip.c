/* device_hip.c: AMD devices, through the HIP runtime library alone. */
#include "gpu_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *module, *function, *stream, *event;

/* What is used of the runtime: result type, name, arguments. */
#define HIP_FUNCTIONS(X)                                                                                               \
    X(int, hipInit, (unsigned flags))                                                                                  \
    X(int, hipGetLastError, (void))                                                                                    \
    X(const char *, hipGetErrorName, (int code))                                                                       \
    X(const char *, hipGetErrorString, (int code))                                                                     \
    X(int, hipGetDeviceCount, (int *count))                                                                            \
    X(int, hipGetDevice, (int *device))                                                                                \
    X(int, hipSetDevice, (int device))                                                                                 \
    X(int, hipDeviceGetName, (char *name, int length, int device))                                                     \
    X(int, hipDeviceGetAttribute, (int *value, int attribute, int device))                                             \
    X(int, hipDeviceTotalMem, (size_t * bytes, int device))                                                            \
    X(int, hipDeviceSynchronize, (void))                                                                               \
    X(int, hipModuleLoadData, (module * out, const void *image))                                                       \
    X(int, hipModuleGetFunction, (function * out, module from, const char *name))                                      \
    X(int, hipModuleLaunchKernel,                                                                                      \
      (function what, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned threads_x, unsigned threads_y,       \
       unsigned threads_z, unsigned shared_bytes, stream on, void **arguments, void **extra))                          \
    X(int, hipMalloc, (void **out, size_t bytes))                                                                      \
    X(int, hipFree, (void *memory))                                                                                    \
    X(int, hipMemcpy, (void *to, const void *from, size_t bytes, int kind))                                            \
    X(int, hipMemsetAsync, (void *memory, int value, size_t bytes, stream on))                                         \
    X(int, hipStreamSynchronize, (stream what))                                                                        \
    X(int, hipEventCreate, (event * out))                                                                              \
    X(int, hipEventDestroy, (event what))                                                                              \
    X(int, hipEventRecord, (event what, stream on))                                                                    \
    X(int, hipEventSynchronize, (event what))                                                                          \
    X(int, hipEventElapsedTime, (float *ms, event start, event stop))

#define DECLARE(type, name, arguments) static type(*name) arguments;
HIP_FUNCTIONS(DECLARE)
static int (*properties)(void *out, int device); /* hipGetDeviceProperties, in whichever layout there is */
static const char *properties_name;

/* Values of the runtime's enumerations, the same in ROCm 5, 6 and 7. */
enum {
    MULTIPROCESSOR_COUNT = 63, /* hipDeviceAttribute... */
    MAX_SHARED_MEMORY_PER_BLOCK = 74,
    WARP_SIZE = 87,
    HOST_TO_DEVICE = 1, /* hipMemcpy... */
    DEVICE_TO_HOST = 2,
};

/* The runtime also keeps a thread's last error for whoever asks next; it was reported here, so it is taken away. */
static tq_gpu_result result_of(int code, const char *call) {
    if (code)
        hipGetLastError();
    return (tq_gpu_result){code, call};
}

#define CALL(name, arguments) result_of(name arguments, #name)

/* ---- steps ------------------------------------------------------------------------------------------------------ */

static tq_gpu_result hip_enter(tq_gpu_state *state, void *context, tq_gpu_scope *scope) {
    int current = 0;
    tq_gpu_result result = CALL(hipGetDevice, (&current));
    *scope = (tq_gpu_scope){.context = context, .previous = current == state->ordinal ? -1 : current};
    return result.code || scope->previous < 0 ? result : CALL(hipSetDevice, (state->ordinal));
}

static tq_gpu_result hip_leave(const tq_gpu_scope *scope) {
    return scope->previous >= 0 ? CALL(hipSetDevice, (scope->previous)) : (tq_gpu_result){0, ""};
}

static uint64_t hip_context_id(void *context) {
    (void)context;
    return 0;
}

static void hip_error(int code, const char **name, const char **words) {
    *name = hipGetErrorName(code);
    *words = hipGetErrorString(code);
    *name = *name ? *name : "an unknown error";
    *words = *words && strcmp(*words, *name) != 0 ? *words : ""; /* ROCm 5 has only names */
}

static tq_gpu_result hip_load(const void *image, void **out) {
    return CALL(hipModuleLoadData, (out, image));
}

static tq_gpu_result hip_find(void *from, const char *symbol, void **out) {
    return CALL(hipModuleGetFunction, (out, from, symbol));
}

static tq_gpu_result hip_make_ready(void *what, int shared_bytes) {
    (void)what, (void)shared_bytes; /* it is, and a block may have all shared memory that there is */
    return (tq_gpu_result){0, ""};
}

static tq_gpu_result hip_launch(void *what, const unsigned grid[3], const tqg_kernel *kernel, void **arguments,
                                void *on) {
    return CALL(hipModuleLaunchKernel, (what, grid[0], grid[1], grid[2], (unsigned)kernel->threads, 1, 1,
                                        (unsigned)kernel->shared_bytes, on, arguments, NULL));
}

static tq_gpu_result hip_alloc(size_t bytes, void **out) {
    tq_gpu_result result = CALL(hipMalloc, (out, bytes));
    *out = result.code ? NULL : *out;
    return result;
}

static tq_gpu_result hip_free(void *memory) {
    return CALL(hipFree, (memory));
}

static tq_gpu_result hip_copy_in(void *to, const void *host, size_t bytes) {
    return CALL(hipMemcpy, (to, host, bytes, HOST_TO_DEVICE));
}

static tq_gpu_result hip_copy_out(void *host, const void *from, size_t bytes) {
    return CALL(hipMemcpy, (host, from, bytes, DEVICE_TO_HOST));
}

static tq_gpu_result hip_fill(void *memory, int value, size_t bytes, void *on) {
    return CALL(hipMemsetAsync, (memory, value, bytes, on));
}

static tq_gpu_result hip_wait_stream(void *what) {
    return CALL(hipStreamSynchronize, (what));
}

static tq_gpu_result hip_wait_device(void) {
    return CALL(hipDeviceSynchronize, ());
}

static tq_gpu_result hip_event_create(void **out) {
    return CALL(hipEventCreate, (out));
}

static tq_gpu_result hip_event_destroy(void *what) {
    return CALL(hipEventDestroy, (what));
}

static tq_gpu_result hip_event_record(void *what, void *on) {
    return CALL(hipEventRecord, (what, on));
}

static tq_gpu_result hip_event_elapsed(void *start, void *stop, float *ms) {
    tq_gpu_result result = CALL(hipEventSynchronize, (stop));
    return result.code ? result : CALL(hipEventElapsedTime, (ms, start, stop));
}

static const tq_gpu_driver driver = {
    .enter = hip_enter,
    .leave = hip_leave,
    .context_id = hip_context_id,
    .error = hip_error,
    .load = hip_load,
    .find = hip_find,
    .make_ready = hip_make_ready,
    .launch = hip_launch,
    .alloc = hip_alloc,
    .free = hip_free,
    .copy_in = hip_copy_in,
    .copy_out = hip_copy_out,
    .fill = hip_fill,
    .wait_stream = hip_wait_stream,
    .wait_device = hip_wait_device,
    .event_create = hip_event_create,
    .event_destroy = hip_event_destroy,
    .event_record = hip_event_record,
    .event_elapsed = hip_event_elapsed,
};

/* ---- devices ---------------------------------------------------------------------------------------------------- */

/* The architecture is known only as a field of hipDeviceProp_t, whose place differs between versions of ROCm: it is the
 * one text that begins with "gfx" behind the name of the model (256 bytes, first in all of them). No version's struct is
 * as long as this buffer. *out: "gfx90a:sramecc+:xnack-". */
static tq_gpu_result find_arch(int ordinal, char *out, size_t size) {
    enum { NAME_BYTES = 256, BYTES = 16384 };
    char *buffer = calloc(1, BYTES);
    *out = '\0';
    if (!buffer)
        return (tq_gpu_result){2, properties_name};
    tq_gpu_result result = result_of(properties(buffer, ordinal), properties_name);
    for (int i = NAME_BYTES; i < BYTES - 64 && !result.code && !*out; i++)
        if (memcmp(buffer + i, "gfx", 3) == 0)
            snprintf(out, size, "%.60s", buffer + i);
    free(buffer);
    return result;
}

/* Marketing names are missing, or the same for many, with some drivers. */
static void complete_model(tq_device *device) {
    tq_tidy(device->model);
    size_t used = strlen(device->model);
    if (used == 0 || strcmp(device->model, "AMD Radeon Graphics") == 0)
        snprintf(device->model + used, sizeof device->model - used, "%s%s", used ? " " : "AMD ", device->arch);
}

static tq_gpu_result describe(int ordinal, tq_device *out, tq_gpu_state *state) {
    int shared = 0;
    char arch[64];
    tq_gpu_result result = CALL(hipDeviceGetAttribute, (&out->warp, WARP_SIZE, ordinal));
    if (!result.code)
        result = CALL(hipDeviceGetAttribute, (&out->multiprocessors, MULTIPROCESSOR_COUNT, ordinal));
    if (!result.code)
        result = CALL(hipDeviceGetAttribute, (&shared, MAX_SHARED_MEMORY_PER_BLOCK, ordinal));
    if (!result.code)
        result = CALL(hipDeviceTotalMem, (&out->memory_bytes, ordinal));
    if (!result.code)
        result = CALL(hipDeviceGetName, (out->model, sizeof out->model, ordinal));
    if (!result.code)
        result = find_arch(ordinal, arch, sizeof arch);
    if (result.code)
        return result;
    for (char *colon = arch; (colon = strchr(colon, ':'));)
        *colon = ' ';
    snprintf(out->name, sizeof out->name, "hip:%d", ordinal);
    snprintf(out->arch, sizeof out->arch, "%.*s", (int)strcspn(arch, " "), arch);
    snprintf(out->features, sizeof out->features, "%s%swave%d", arch, arch[0] ? " " : "", out->warp);
    complete_model(out);
    out->kind = TQ_KIND_HIP;
    out->shared_bytes = (size_t)shared;
    out->ops = &tq_gpu_ops;
    out->state = state;
    *state = (tq_gpu_state){.driver = &driver, .ordinal = ordinal, .lock = PTHREAD_MUTEX_INITIALIZER};
    return result;
}

static int find_functions(void *library, const char *name, tq_gpu_absence *absence) {
#define FIND(type, function, arguments)                                                                                \
    if (!tq_gpu_symbol(library, name, #function, &function, absence))                                                  \
        return 0;
    HIP_FUNCTIONS(FIND)
    tq_gpu_absence newest;
    properties_name = "hipGetDevicePropertiesR0600";
    if (tq_gpu_symbol(library, name, properties_name, &properties, &newest))
        return 1;
    properties_name = "hipGetDeviceProperties";
    return tq_gpu_symbol(library, name, properties_name, &properties, absence);
}

int tq_hip_devices(tq_device *out, int most) {
    static tq_gpu_state states[TQ_MAX_DEVICES];
    static const char *const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so",
                                        NULL};
    const char *name;
    tq_gpu_absence *absence = &tq_hip_absence;
    void *library = tq_gpu_open(names, &name, absence);
    int count = 0, n = 0;
    if (!library || !find_functions(library, name, absence) ||
        tq_gpu_missed(&driver, CALL(hipInit, (0)), -1, absence) ||
        tq_gpu_missed(&driver, CALL(hipGetDeviceCount, (&count)), -1, absence))
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
