/* stub_driver.c: what the stubs of both drivers do. */
#include "stub_internal.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

stub_state stub = {.fail_at = -1};
_Thread_local int stub_last_error;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- calls ------------------------------------------------------------------------------------------------------ */

int stub_end(int code) {
    if (code)
        stub_last_error = code;
    pthread_mutex_unlock(&lock);
    return code;
}

int stub_begin(const char *call, int capturable) {
    pthread_mutex_lock(&lock);
    if (stub.n_calls < STUB_MAX_CALLS)
        stub.calls[stub.n_calls] = call;
    if (stub.n_calls++ == stub.fail_at)
        return stub_end(stub.fail_code);
    if (stub.capturing && !capturable) {
        stub_violate("%s while a stream is captured", call);
        return stub_end(STUB_CAPTURE_UNSUPPORTED);
    }
    return 0;
}

int stub_count_devices(const char *prefix) {
    const char *arch = getenv("TQ_STUB_ARCH");
    if (stub.n_devices == 0 && arch && strncmp(arch, prefix, strlen(prefix)) == 0)
        stub.devices[stub.n_devices++] = (stub_device){"Stub", arch, 64, 65536, (size_t)1 << 30};
    return stub.n_devices;
}

void stub_violate(const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (stub.n_violations++ == 0)
        vsnprintf(stub.violation, sizeof stub.violation, format, args);
    va_end(args);
}

/* ---- modules ---------------------------------------------------------------------------------------------------- */

enum { MAX_OBJECTS = 512 };

static stub_module *modules[MAX_OBJECTS];
static stub_function functions[MAX_OBJECTS];
static stub_stream streams[MAX_OBJECTS];
static stub_event events[MAX_OBJECTS];
static int n_functions, n_streams;

/* "gfx90a" runs on "gfx90a:sramecc+", "sm_80" on "sm_86" and "sm_89". */
static int device_runs(const char *device, const char *arch) {
    int device_sm, arch_sm;
    if (sscanf(device, "sm_%d", &device_sm) == 1 && sscanf(arch, "sm_%d", &arch_sm) == 1)
        return device_sm / 10 == arch_sm / 10 && arch_sm <= device_sm;
    return strcspn(device, ":") == strlen(arch) && strncmp(device, arch, strlen(arch)) == 0;
}

int stub_load(stub_place place, const void *image, void **out) {
    stub_module *module = malloc(sizeof *module);
    int code = !module || stub.n_modules == MAX_OBJECTS                             ? STUB_OUT_OF_MEMORY
               : !image || !code_object_read(image, &module->object)                ? STUB_INVALID_IMAGE
               : !device_runs(stub.devices[place.device].arch, module->object.arch) ? STUB_NO_BINARY
                                                                                    : STUB_OK;
    if (code) {
        free(module);
        return code;
    }
    module->place = place;
    *out = modules[stub.n_modules++] = module;
    return STUB_OK;
}

int stub_find(const void *module, const char *symbol, unsigned shared_limit, int loaded, void **out) {
    for (int i = 0; i < stub.n_modules; i++) {
        const code_kernel *kernel = modules[i] == module ? code_object_find(&modules[i]->object, symbol) : NULL;
        if (kernel && n_functions < MAX_OBJECTS) {
            functions[n_functions] = (stub_function){modules[i], kernel, shared_limit - kernel->static_bytes, loaded};
            *out = &functions[n_functions++];
            return STUB_OK;
        }
        if (modules[i] == module)
            return STUB_NOT_FOUND;
    }
    return STUB_INVALID_HANDLE;
}

static stub_function *find_function(const void *handle) {
    for (int i = 0; i < n_functions; i++)
        if (handle == &functions[i])
            return &functions[i];
    return NULL;
}

int stub_limit_shared(void *handle, int bytes) {
    stub_function *function = find_function(handle);
    if (!function)
        return STUB_INVALID_HANDLE;
    if (bytes < 0 ||
        bytes + (int)function->kernel->static_bytes > stub.devices[function->module->place.device].shared_bytes)
        return STUB_INVALID_VALUE;
    function->dynamic_limit = (unsigned)bytes;
    return STUB_OK;
}

int stub_load_function(void *handle) {
    stub_function *function = find_function(handle);
    if (function)
        function->loaded = 1;
    return function ? STUB_OK : STUB_INVALID_HANDLE;
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

static int same_place(stub_place a, stub_place b) {
    return a.device == b.device && a.context == b.context;
}

static int fits(const stub_function *function, const unsigned grid[3], const unsigned threads[3], unsigned shared) {
    unsigned most = function->kernel->max_threads ? function->kernel->max_threads : 1024;
    uint64_t all = (uint64_t)threads[0] * threads[1] * threads[2];
    return grid[0] && grid[1] && grid[2] && grid[0] <= 0x7fffffff && grid[1] <= 65535 && grid[2] <= 65535 && all &&
           all <= most && shared <= function->dynamic_limit;
}

int stub_run(stub_place place, const void *handle, const unsigned grid[3], const unsigned threads[3], unsigned shared,
             const void *stream, void **arguments) {
    stub_function *function = find_function(handle);
    int code =
        function && same_place(function->module->place, place) ? stub_check_stream(place, stream) : STUB_INVALID_HANDLE;
    if (code)
        return code;
    if (!fits(function, grid, threads, shared) || !arguments)
        return STUB_INVALID_VALUE;
    if (stub.capturing && !function->loaded)
        stub_violate("%s is loaded while a stream is captured", function->kernel->symbol);
    function->loaded = 1;
    stub_launch *launch = &stub.launches[stub.n_launches++ % STUB_MAX_LAUNCHES];
    *launch = (stub_launch){.device = place.device, .context = place.context, .stream = stream, .shared_bytes = shared};
    memcpy(launch->grid, grid, sizeof launch->grid);
    memcpy(launch->threads, threads, sizeof launch->threads);
    memcpy(launch->symbol, function->kernel->symbol, sizeof launch->symbol);
    for (int i = 0; i < function->kernel->n_arguments; i++) {
        code_argument argument = function->kernel->arguments[i];
        if (argument.offset + argument.bytes > STUB_MAX_PARAMS)
            return STUB_INVALID_VALUE;
        memcpy(launch->params + argument.offset, arguments[i], argument.bytes);
        launch->params_bytes = argument.offset + argument.bytes;
    }
    return STUB_OK;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

typedef struct allocation {
    uintptr_t at;
    size_t bytes;
    int device;
    unsigned char *host;
} allocation;

static allocation allocations[MAX_OBJECTS];

static allocation *find_allocation(uintptr_t at, size_t bytes) {
    for (int i = 0; i < MAX_OBJECTS; i++) {
        allocation *a = &allocations[i];
        if (a->host && at >= a->at && at - a->at <= a->bytes && bytes <= a->bytes - (at - a->at))
            return a;
    }
    return NULL;
}

void *stub_host_address(const void *device_address, size_t bytes) {
    const allocation *found = find_allocation((uintptr_t)device_address, bytes);
    return found ? found->host + ((uintptr_t)device_address - found->at) : NULL;
}

int stub_alloc(int device, size_t bytes, uintptr_t *out) {
    static uintptr_t next = (uintptr_t)0xd7 << 48; /* no canonical address of x86-64 or arm64: following it traps */
    size_t used = 0;
    allocation *free_slot = NULL;
    for (int i = 0; i < MAX_OBJECTS; i++) {
        if (!allocations[i].host)
            free_slot = &allocations[i];
        else if (allocations[i].device == device)
            used += allocations[i].bytes;
    }
    if (bytes == 0)
        return STUB_INVALID_VALUE;
    unsigned char *host = free_slot && bytes <= stub.devices[device].memory_bytes - used ? malloc(bytes) : NULL;
    if (!host)
        return STUB_OUT_OF_MEMORY;
    memset(host, 0xa5, bytes);
    *free_slot = (allocation){next, bytes, device, host};
    *out = next;
    next += (bytes + 0xfff) & ~(uintptr_t)0xff;
    stub.n_allocations++;
    return STUB_OK;
}

int stub_free(uintptr_t memory) {
    allocation *found = find_allocation(memory, 0);
    if (!found || found->at != memory) {
        stub_violate("memory %#zx is freed, which was not allocated", (size_t)memory);
        return STUB_INVALID_VALUE;
    }
    free(found->host);
    found->host = NULL;
    stub.n_allocations--;
    return STUB_OK;
}

static int invalid_range(const char *what, uintptr_t at, size_t bytes) {
    stub_violate("%s of %zu bytes at %#zx, which are not all allocated", what, bytes, (size_t)at);
    return STUB_INVALID_VALUE;
}

int stub_copy_in(uintptr_t to, const void *from, size_t bytes) {
    void *host = stub_host_address((const void *)to, bytes);
    if (!host)
        return invalid_range("a copy", to, bytes);
    memcpy(host, from, bytes);
    return STUB_OK;
}

int stub_copy_out(void *to, uintptr_t from, size_t bytes) {
    const void *host = stub_host_address((const void *)from, bytes);
    if (!host)
        return invalid_range("a copy", from, bytes);
    memcpy(to, host, bytes);
    return STUB_OK;
}

int stub_fill(uintptr_t memory, int value, size_t bytes) {
    void *host = stub_host_address((const void *)memory, bytes);
    if (!host)
        return invalid_range("a fill", memory, bytes);
    memset(host, value, bytes);
    return STUB_OK;
}

/* ---- streams and events ----------------------------------------------------------------------------------------- */

int stub_check_stream(stub_place place, const void *stream) {
    int known = !stream;
    for (int i = 0; i < n_streams; i++)
        known |= stream == &streams[i] && same_place(streams[i].place, place);
    return known ? STUB_OK : STUB_INVALID_HANDLE;
}

void *stub_new_stream(stub_place place) {
    if (n_streams == MAX_OBJECTS)
        return NULL;
    streams[n_streams].place = place;
    return &streams[n_streams++];
}

static stub_event *find_event(const void *handle) {
    for (int i = 0; i < MAX_OBJECTS; i++)
        if (handle == &events[i] && events[i].alive)
            return &events[i];
    stub_violate("an event is used that does not exist");
    return NULL;
}

int stub_event_new(stub_place place, void **out) {
    int i = 0;
    while (i < MAX_OBJECTS && events[i].alive)
        i++;
    if (i == MAX_OBJECTS)
        return STUB_OUT_OF_MEMORY;
    events[i] = (stub_event){.place = place, .alive = 1};
    *out = &events[i];
    stub.n_events++;
    return STUB_OK;
}

int stub_event_free(void *handle) {
    stub_event *event = find_event(handle);
    if (!event)
        return STUB_INVALID_HANDLE;
    event->alive = 0;
    stub.n_events--;
    return STUB_OK;
}

int stub_event_record(stub_place place, void *handle, const void *stream) {
    stub_event *event = find_event(handle);
    if (!event || !same_place(event->place, place))
        return STUB_INVALID_HANDLE;
    event->recorded = 1;
    return stub_check_stream(place, stream);
}

int stub_event_wait(const void *handle) {
    return find_event(handle) ? STUB_OK : STUB_INVALID_HANDLE;
}

int stub_event_elapsed(const void *start, const void *stop, float *ms) {
    const stub_event *a = find_event(start), *b = find_event(stop);
    if (!a || !b || !a->recorded || !b->recorded)
        return STUB_INVALID_HANDLE;
    *ms = 0.25f;
    return STUB_OK;
}
