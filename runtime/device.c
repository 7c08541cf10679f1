/* device.c: the devices of this machine, in one list, and what every one of them can do through its ops. */
#include "internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static tq_device devices[TQ_MAX_DEVICES];
static int n_local, n_devices;

/* Devices that need no driver come first: who uses the CPU alone does not wait until drivers of GPUs have started. */
static void find_local_devices(void) {
    n_local = tq_cpu_devices(devices, TQ_MAX_DEVICES);
    n_local += tq_simt_devices(devices + n_local, TQ_MAX_DEVICES - n_local);
}

static int local_count(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_local_devices);
    return n_local;
}

static void find_all_devices(void) {
    n_devices = local_count();
    n_devices += tq_cuda_devices(devices + n_devices, TQ_MAX_DEVICES - n_devices);
    n_devices += tq_hip_devices(devices + n_devices, TQ_MAX_DEVICES - n_devices);
}

int tq_device_count(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_all_devices);
    return n_devices;
}

const tq_device *tq_device_at(int index) {
    return index >= 0 && (index < local_count() || index < tq_device_count()) ? &devices[index] : NULL;
}

const tq_device *tq_device_that_runs(const tq_registry *registry) {
    int needs_driver = registry->kind == TQ_KIND_CUDA || registry->kind == TQ_KIND_HIP;
    int count = needs_driver ? tq_device_count() : local_count();
    for (int i = 0; i < count; i++)
        if (tq_device_runs_registry(&devices[i], registry))
            return &devices[i];
    return NULL;
}

tq_status tq_device_find(const char *name, const tq_device **out) {
    if (!name || !out)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_device_find: %s is NULL", name ? "out" : "name");
    tq_list known = {""};
    const tq_device *device;
    for (int i = 0; (device = tq_device_at(i)); i++) {
        if (strcmp(device->name, name) == 0) {
            *out = device;
            return TQ_OK;
        }
        tq_list_add(&known, device->name);
    }
    *out = NULL;
    return tq_fail(TQ_ERR_DEVICE, "no device '%s'; this machine has: %s", name, known.text);
}

const char *tq_device_name(const tq_device *device) {
    return device ? device->name : "";
}

const char *tq_device_model(const tq_device *device) {
    return device ? device->model : "";
}

const char *tq_device_features(const tq_device *device) {
    return device ? device->features : "";
}

const char *tq_kind_name(tq_device_kind kind) {
    static const char *const names[] = {"cpu", "simt", "cuda", "hip"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

tq_status tq_device_describe(const tq_device *device, tq_device_info *out) {
    if (!out)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_device_describe: out is NULL");
    if (!device)
        device = tq_device_at(0);
    *out = (tq_device_info){.name = device->name,
                            .model = device->model,
                            .kind = tq_kind_name(device->kind),
                            .warp = device->warp,
                            .multiprocessors = device->multiprocessors,
                            .shared_bytes = device->shared_bytes,
                            .memory_bytes = device->memory_bytes};
    return TQ_OK;
}

void tq_tidy(char *text) {
    char *to = text;
    for (char *from = text; *from; from++) {
        int space = *from == ' ' || *from == '\t';
        if (!space || (to > text && to[-1] != ' '))
            *to++ = space ? ' ' : *from;
    }
    *to = '\0';
    if (to > text && to[-1] == ' ')
        to[-1] = '\0';
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

tq_status tq_device_alloc(const tq_device *device, size_t bytes, void **out) {
    if (!out)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_device_alloc: out is NULL");
    *out = NULL;
    if (!device)
        device = tq_device_at(0);
    return device->ops->alloc(device, bytes ? bytes : 1, out);
}

void tq_device_free(const tq_device *device, void *memory) {
    if (!device)
        device = tq_device_at(0);
    if (memory)
        device->ops->free(device, memory);
}

static tq_status check_copy(const char *call, const void *to, const void *from, size_t bytes) {
    if (bytes && (!to || !from))
        return tq_fail(TQ_ERR_ARGUMENT, "%s: %s is NULL", call, to ? "the source" : "the destination");
    return TQ_OK;
}

tq_status tq_device_copy_in(const tq_device *device, void *to, const void *host, size_t bytes) {
    tq_status status = check_copy("tq_device_copy_in", to, host, bytes);
    if (status || !bytes)
        return status;
    if (!device)
        device = tq_device_at(0);
    return device->ops->copy_in(device, to, host, bytes);
}

tq_status tq_device_copy_out(const tq_device *device, void *host, const void *from, size_t bytes) {
    tq_status status = check_copy("tq_device_copy_out", host, from, bytes);
    if (status || !bytes)
        return status;
    if (!device)
        device = tq_device_at(0);
    return device->ops->copy_out(device, host, from, bytes);
}

tq_status tq_device_synchronise(const tq_device *device, void *stream) {
    if (!device)
        device = tq_device_at(0);
    return device->ops->synchronise(device, stream);
}

/* ---- time ------------------------------------------------------------------------------------------------------- */

struct tq_timer {
    const tq_device *device;
    void *state; /* the device's */
};

tq_status tq_timer_create(const tq_device *device, tq_timer **out) {
    if (!out)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_timer_create: out is NULL");
    *out = NULL;
    tq_timer *timer = malloc(sizeof *timer);
    if (!timer)
        return tq_fail(TQ_ERR_MEMORY, "tq_timer_create: out of memory");
    timer->device = device ? device : tq_device_at(0);
    tq_status status = timer->device->ops->timer_create(timer->device, &timer->state);
    if (status)
        free(timer);
    else
        *out = timer;
    return status;
}

void tq_timer_destroy(tq_timer *timer) {
    if (timer)
        timer->device->ops->timer_destroy(timer->device, timer->state);
    free(timer);
}

tq_status tq_timer_start(tq_timer *timer, void *stream) {
    if (!timer)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_timer_start: timer is NULL");
    return timer->device->ops->timer_start(timer->device, timer->state, stream);
}

tq_status tq_timer_stop(tq_timer *timer, void *stream, double *ns) {
    if (!timer || !ns)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_timer_stop: %s is NULL", timer ? "ns" : "timer");
    return timer->device->ops->timer_stop(timer->device, timer->state, stream, ns);
}
