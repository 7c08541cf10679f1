/* gpu_driver.c: opening driver libraries, and the operations of CUDA and HIP devices, made of their vendor's steps. */
#include "gpu_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- libraries -------------------------------------------------------------------------------------------------- */

tq_gpu_absence tq_cuda_absence, tq_hip_absence;

const tq_gpu_absence *tq_gpu_absence_of(tq_device_kind kind) {
    return kind == TQ_KIND_CUDA ? &tq_cuda_absence : kind == TQ_KIND_HIP ? &tq_hip_absence : NULL;
}

void *tq_gpu_open(const char *const *names, const char **found, tq_gpu_absence *absence) {
    /* A program that brought its own HIP runtime must not get a second one: their streams and memory do not mix. */
    static const int modes[] = {RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD, RTLD_NOW | RTLD_LOCAL};
    for (int mode = 0; mode < 2; mode++)
        for (int i = 0; names[i]; i++) {
            void *library = dlopen(names[i], modes[mode]);
            *found = names[i];
            if (library) {
                absence->text[0] = '\0';
                return library;
            }
            const char *why = dlerror();
            int absent = why && strncmp(why, names[i], strlen(names[i])) == 0 && strstr(why, "No such file");
            if (mode == 1 && (i == 0 || !absent)) /* one that is there but does not load matters more */
                snprintf(absence->text, sizeof absence->text, "%s", why ? why : names[i]);
        }
    return NULL;
}

int tq_gpu_symbol(void *library, const char *library_name, const char *name, void *function, tq_gpu_absence *absence) {
    void *address = dlsym(library, name);
    if (!address)
        snprintf(absence->text, sizeof absence->text, "%s has no function %s", library_name, name);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

int tq_gpu_missed(const tq_gpu_driver *driver, tq_gpu_result result, int ordinal, tq_gpu_absence *absence) {
    const char *name, *words;
    char device[32] = "";
    if (!result.code)
        return 0;
    if (ordinal >= 0)
        snprintf(device, sizeof device, " on device %d", ordinal);
    driver->error(result.code, &name, &words);
    snprintf(absence->text, sizeof absence->text, "%s%s gives %s (%d)%s%s", result.call, device, name, result.code,
             words[0] ? ": " : "", words);
    return 1;
}

/* ---- scopes ----------------------------------------------------------------------------------------------------- */

static const tq_gpu_driver *driver_of(const tq_device *device) {
    return ((const tq_gpu_state *)device->state)->driver;
}

static tq_status report(const tq_device *device, tq_gpu_result result) {
    enum { OUT_OF_MEMORY = 2 }; /* CUDA_ERROR_OUT_OF_MEMORY, hipErrorOutOfMemory */
    const char *name, *words;
    if (!result.code)
        return TQ_OK;
    driver_of(device)->error(result.code, &name, &words);
    return tq_fail(result.code == OUT_OF_MEMORY ? TQ_ERR_MEMORY : TQ_ERR_DEVICE, "%s on %s (%s) gives %s (%d)%s%s",
                   result.call, device->name, device->model, name, result.code, words[0] ? ": " : "", words);
}

static tq_status enter(const tq_device *device, void *context, tq_gpu_scope *scope) {
    return report(device, driver_of(device)->enter(device->state, context, scope));
}

/* Of several failures the first is reported. */
static tq_status leave(const tq_device *device, const tq_gpu_scope *scope, tq_status status) {
    tq_gpu_result result = driver_of(device)->leave(scope);
    return status ? status : report(device, result);
}

/* ---- modules ---------------------------------------------------------------------------------------------------- */

/* What launch takes. */
typedef struct loaded_function {
    struct loaded_function *next;
    const tqg_kernel *kernel;
    void *handle, *context;
} loaded_function;

/* A code object in a context. */
typedef struct tq_gpu_module {
    struct tq_gpu_module *next;
    const tqg_module *source;
    uint64_t context_id;
    void *handle;
    loaded_function *functions;
} loaded_module;

static tq_status fail_memory(const tq_device *device) {
    return tq_fail(TQ_ERR_MEMORY, "preparing a kernel for %s: out of memory", device->name);
}

static tq_status load_module(const tq_device *device, const tqg_module *source, const tq_gpu_scope *scope,
                             loaded_module **out) {
    tq_gpu_state *state = device->state;
    uint64_t context_id = state->driver->context_id(scope->context);
    for (*out = state->modules; *out; *out = (*out)->next)
        if ((*out)->source == source && (*out)->context_id == context_id)
            return TQ_OK;
    loaded_module *module = calloc(1, sizeof *module);
    if (!module)
        return fail_memory(device);
    tq_status status = report(device, state->driver->load(source->image, &module->handle));
    if (status) {
        free(module);
        return status;
    }
    module->source = source;
    module->context_id = context_id;
    module->next = state->modules;
    *out = state->modules = module;
    return TQ_OK;
}

static tq_status find_function(const tq_device *device, loaded_module *module, const tqg_kernel *kernel,
                               const tq_gpu_scope *scope, loaded_function **out) {
    for (*out = module->functions; *out; *out = (*out)->next)
        if ((*out)->kernel == kernel)
            return TQ_OK;
    loaded_function *function = calloc(1, sizeof *function);
    if (!function)
        return fail_memory(device);
    tq_status status = report(device, driver_of(device)->find(module->handle, kernel->symbol, &function->handle));
    if (!status)
        status = report(device, driver_of(device)->make_ready(function->handle, kernel->shared_bytes));
    if (status) {
        free(function);
        return status;
    }
    function->kernel = kernel;
    function->context = scope->context;
    function->next = module->functions;
    *out = module->functions = function;
    return TQ_OK;
}

static tq_status gpu_prepare(const tq_device *device, const tq_registry *registry, const tq_variant *variant,
                             void **function) {
    tq_gpu_state *state = device->state;
    const tqg_kernel *kernel = variant->gpu;
    *function = NULL;
    if (kernel->module < 0 || kernel->module >= registry->n_modules)
        return tq_fail(TQ_ERR_DEVICE, "%s: '%s' is in code object %d of registry '%s', which has %d", device->name,
                       variant->name, kernel->module, registry->name, registry->n_modules);
    if (kernel->shared_bytes > 0 && (size_t)kernel->shared_bytes > device->shared_bytes)
        return tq_fail(TQ_ERR_DEVICE, "%s (%s): '%s' takes %d bytes of shared memory per block; the device has %zu",
                       device->name, device->model, variant->name, kernel->shared_bytes, device->shared_bytes);

    pthread_mutex_lock(&state->lock);
    tq_gpu_scope scope;
    tq_status status = enter(device, NULL, &scope);
    if (!status) {
        loaded_module *module;
        loaded_function *found = NULL;
        status = load_module(device, &registry->modules[kernel->module], &scope, &module);
        if (!status)
            status = find_function(device, module, kernel, &scope, &found);
        status = leave(device, &scope, status);
        if (!status)
            *function = found;
    }
    pthread_mutex_unlock(&state->lock);
    return status;
}

static tq_status gpu_launch(const tq_device *device, const tqg_kernel *kernel, void *function, const unsigned grid[3],
                            const void *params, size_t params_bytes, void *stream) {
    const loaded_function *found = function;
    (void)params_bytes; /* the driver takes it from the code object */
    /* One pointer per argument, not a buffer of all: so does every <<<>>>, and graphs and profilers know it best. The
     * driver copies the struct before it returns, and does not write it. */
    void *arguments[] = {(void *)(uintptr_t)params, NULL};
    tq_gpu_scope scope;
    tq_status status = enter(device, found->context, &scope);
    if (status)
        return status;
    status = report(device, driver_of(device)->launch(found->handle, grid, kernel, arguments, stream));
    return leave(device, &scope, status);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static void gpu_free(const tq_device *device, void *memory) {
    const tq_gpu_driver *driver = driver_of(device);
    tq_gpu_scope scope;
    if (!memory || driver->enter(device->state, NULL, &scope).code)
        return;
    driver->free(memory);
    driver->leave(&scope);
}

static tq_status gpu_alloc(const tq_device *device, size_t bytes, void **out) {
    tq_gpu_scope scope;
    *out = NULL;
    tq_status status = enter(device, NULL, &scope);
    if (status)
        return status;
    status = leave(device, &scope, report(device, driver_of(device)->alloc(bytes, out)));
    if (status) {
        gpu_free(device, *out);
        *out = NULL;
    }
    return status;
}

/* Copies from ordinary memory may return with their last part still under way; other streams would not wait for it. */
static tq_status gpu_copy_in(const tq_device *device, void *to, const void *host, size_t bytes) {
    tq_gpu_scope scope;
    tq_status status = enter(device, NULL, &scope);
    if (status)
        return status;
    status = report(device, driver_of(device)->copy_in(to, host, bytes));
    if (!status)
        status = report(device, driver_of(device)->wait_stream(NULL));
    return leave(device, &scope, status);
}

static tq_status gpu_copy_out(const tq_device *device, void *host, const void *from, size_t bytes) {
    tq_gpu_scope scope;
    tq_status status = enter(device, NULL, &scope);
    if (status)
        return status;
    return leave(device, &scope, report(device, driver_of(device)->copy_out(host, from, bytes)));
}

static tq_status gpu_fill(const tq_device *device, void *memory, int value, size_t bytes, void *stream) {
    tq_gpu_scope scope;
    tq_status status = enter(device, NULL, &scope);
    if (status)
        return status;
    return leave(device, &scope, report(device, driver_of(device)->fill(memory, value, bytes, stream)));
}

static tq_status gpu_synchronise(const tq_device *device, void *stream) {
    const tq_gpu_driver *driver = driver_of(device);
    tq_gpu_scope scope;
    tq_status status = enter(device, NULL, &scope);
    if (status)
        return status;
    return leave(device, &scope, report(device, stream ? driver->wait_stream(stream) : driver->wait_device()));
}

/* ---- timers ----------------------------------------------------------------------------------------------------- */

typedef struct gpu_timer {
    void *start, *stop; /* events */
    void *context;      /* theirs */
} gpu_timer;

static void gpu_timer_destroy(const tq_device *device, void *memory) {
    const tq_gpu_driver *driver = driver_of(device);
    gpu_timer *timer = memory;
    tq_gpu_scope scope;
    if (timer && !driver->enter(device->state, timer->context, &scope).code) {
        if (timer->start)
            driver->event_destroy(timer->start);
        if (timer->stop)
            driver->event_destroy(timer->stop);
        driver->leave(&scope);
    }
    free(timer);
}

static tq_status gpu_timer_create(const tq_device *device, void **out) {
    tq_gpu_scope scope;
    *out = NULL;
    gpu_timer *timer = calloc(1, sizeof *timer);
    if (!timer)
        return tq_fail(TQ_ERR_MEMORY, "a timer on %s: out of memory", device->name);
    tq_status status = enter(device, NULL, &scope);
    if (!status) {
        timer->context = scope.context;
        status = report(device, driver_of(device)->event_create(&timer->start));
        if (!status)
            status = report(device, driver_of(device)->event_create(&timer->stop));
        status = leave(device, &scope, status);
    }
    if (status)
        gpu_timer_destroy(device, timer);
    else
        *out = timer;
    return status;
}

static tq_status gpu_timer_start(const tq_device *device, void *memory, void *stream) {
    const gpu_timer *timer = memory;
    tq_gpu_scope scope;
    tq_status status = enter(device, timer->context, &scope);
    if (status)
        return status;
    return leave(device, &scope, report(device, driver_of(device)->event_record(timer->start, stream)));
}

static tq_status gpu_timer_stop(const tq_device *device, void *memory, void *stream, double *ns) {
    const tq_gpu_driver *driver = driver_of(device);
    const gpu_timer *timer = memory;
    float ms = 0;
    tq_gpu_scope scope;
    tq_status status = enter(device, timer->context, &scope);
    if (status)
        return status;
    status = report(device, driver->event_record(timer->stop, stream));
    if (!status)
        status = report(device, driver->event_elapsed(timer->start, timer->stop, &ms));
    *ns = 1e6 * (double)ms;
    return leave(device, &scope, status);
}

const tq_device_ops tq_gpu_ops = {
    .prepare = gpu_prepare,
    .launch = gpu_launch,
    .alloc = gpu_alloc,
    .free = gpu_free,
    .copy_in = gpu_copy_in,
    .copy_out = gpu_copy_out,
    .fill = gpu_fill,
    .synchronise = gpu_synchronise,
    .timer_create = gpu_timer_create,
    .timer_destroy = gpu_timer_destroy,
    .timer_start = gpu_timer_start,
    .timer_stop = gpu_timer_stop,
};
