/* stats.h: seeded random numbers, medians, and the confidence interval of a median. */
#ifndef TQ_STATS_H
#define TQ_STATS_H

#include <stddef.h>
#include <stdint.h>

/* splitmix64: one word of state, any seed will do. */
typedef struct rng {
    uint64_t state;
} rng;

uint64_t rng_next(rng *r);
uint32_t rng_below(rng *r, uint32_t n);
float rng_gaussian(rng *r);
void rng_fill_gaussian(rng *r, float *x, size_t n);
/* A permutation of 0 .. n-1. */
void rng_shuffle(rng *r, int *order, int n);

/* Of the values that are not NaN; NaN if there are none. The input keeps its order. */
double stats_median(const double *x, int n);

/* Interquartile range / median. */
double stats_spread(const double *x, int n);

typedef struct interval {
    double low, high;
} interval;

/* Order statistics: the narrowest symmetric pair that covers the median of any distribution with probability >= 0.95.
 * With fewer than 6 samples no pair does, and the interval is -inf .. inf. */
interval stats_median_interval(const double *x, int n);

#endif
