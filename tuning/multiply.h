/* multiply.h: how many multiply-adds per second the vector units of this machine do at best, measured. */
#ifndef TQ_MULTIPLY_H
#define TQ_MULTIPLY_H

#include "pool.h"
#include "tq.h"

typedef struct multiply_rate {
    const char *instructions; /* what one vector of multiply-adds takes */
    double madds;             /* per second, all threads together */
} multiply_rate;

/* Of one vector unit. */
typedef struct multiply_rates {
    const char *needs;              /* features of the device that it takes, space-separated */
    multiply_rate f32, int16, int8; /* integers: products of two such, added to 32-bit sums */
} multiply_rates;

enum { MULTIPLY_UNITS = 3 };

/* Of each vector unit that the device, a CPU, has, the widest first; returns how many. About a tenth of a second for each,
 * on all threads of the pool. */
int multiply_measure(const tq_device *device, pool *p, multiply_rates out[MULTIPLY_UNITS]);

#endif
