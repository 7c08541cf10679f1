/* machine.h: what this machine can do at best, measured, so that a kernel's time can be quoted as a fraction of it. */
#ifndef TQ_MACHINE_H
#define TQ_MACHINE_H

#include <stddef.h>

#include "multiply.h"
#include "pool.h"
#include "tq.h"

typedef struct machine_limits {
    double read_bytes; /* streamed from memory, per second, all threads together */
    int n_units;       /* vector units, the widest first */
    multiply_rates multiply[MULTIPLY_UNITS];
} machine_limits;

/* Bytes of the last-level cache; 32 MiB where the system does not tell. */
size_t machine_cache_bytes(void);
/* Bytes of memory that can be had without swapping. */
size_t machine_free_bytes(void);
/* About half a second on all threads of the pool. GPUs: how fast memory is filled stands for reading, which is about
 * the same there, and there are no multiply rates. SIMT devices have no limits: read_bytes is NaN. */
machine_limits machine_measure(const tq_device *device, pool *p);

#endif
