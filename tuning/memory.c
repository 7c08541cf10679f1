#include "memory.h"

#include <string.h>

#include "cli.h"

static bool is_kind(const tq_device *device, const char *kind) {
    tq_device_info info;
    cli_check(tq_device_describe(device, &info));
    return strcmp(info.kind, kind) == 0;
}

bool memory_is_cpu(const tq_device *device) {
    return is_kind(device, "cpu");
}

bool memory_is_simt(const tq_device *device) {
    return is_kind(device, "simt");
}

void *memory_new(const tq_device *device, size_t bytes) {
    void *memory;
    cli_check(tq_device_alloc(device, bytes, &memory));
    return memory;
}

void *memory_copy(const tq_device *device, const void *host, size_t bytes) {
    void *memory = memory_new(device, bytes);
    memory_write(device, memory, host, bytes);
    return memory;
}

void memory_write(const tq_device *device, void *to, const void *host, size_t bytes) {
    cli_check(tq_device_copy_in(device, to, host, bytes));
}

void memory_read(const tq_device *device, void *host, const void *from, size_t bytes) {
    cli_check(tq_device_copy_out(device, host, from, bytes));
}

void memory_free(const tq_device *device, void *memory) {
    tq_device_free(device, memory);
}

void memory_run(const tq_device *device, pool *p, pool_fn fn, void *context) {
    if (memory_is_cpu(device))
        pool_run(p, fn, context);
    else
        fn(context, 0, 1);
    cli_check(tq_device_synchronise(device, NULL));
}
