/* memory.h: memory and launches of the device that a command works on. What libtq refuses ends the command. */
#ifndef TQ_MEMORY_H
#define TQ_MEMORY_H

#include <stdbool.h>

#include "pool.h"
#include "tq.h"

bool memory_is_cpu(const tq_device *device);
bool memory_is_simt(const tq_device *device);

void *memory_new(const tq_device *device, size_t bytes); /* contents undefined */
void *memory_copy(const tq_device *device, const void *host, size_t bytes);
void memory_write(const tq_device *device, void *to, const void *host, size_t bytes);
void memory_read(const tq_device *device, void *host, const void *from, size_t bytes);
void memory_free(const tq_device *device, void *memory);

/* Calls fn on all threads of the pool, for other devices than the CPU on one, and waits until the device is done. */
void memory_run(const tq_device *device, pool *p, pool_fn fn, void *context);

#endif
