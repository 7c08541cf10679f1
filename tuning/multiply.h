/* multiply.h: how many multiply-adds per second the vector units of this machine do at best, measured. */
#ifndef TQ_MULTIPLY_H
#define TQ_MULTIPLY_H

#include "pool.h"
#include "tq.h"

typedef struct multiply_rate {
    const char *instructions; /* what one vector of multiply-adds takes */
    double madds;             /* per second, all threads together */
} multiply_rate;

typedef struct multiply_rates {
    multiply_rate f32, int16, int8; /* integers: products of two such, added to 32-bit sums */
} multiply_rates;

/* Of the widest vector unit that the device, a CPU, has. About a tenth of a second on all threads of the pool. */
multiply_rates multiply_measure(const tq_device *device, pool *p);

#endif
