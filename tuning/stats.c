#include "stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

uint64_t rng_next(rng *r) {
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t rng_below(rng *r, uint32_t n) {
    return (uint32_t)((rng_next(r) >> 32) * n >> 32);
}

float rng_gaussian(rng *r) {
    double u = ((double)(rng_next(r) >> 11) + 0.5) * 0x1p-53, v = (double)(rng_next(r) >> 11) * 0x1p-53;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

void rng_fill_gaussian(rng *r, float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = rng_gaussian(r);
}

void rng_shuffle(rng *r, int *order, int n) {
    for (int i = 0; i < n; i++) {
        int j = (int)rng_below(r, (uint32_t)i + 1);
        order[i] = i;
        order[i] = order[j];
        order[j] = i;
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double *sorted(const double *x, int n, int *n_kept) {
    double *copy = cli_alloc((size_t)n, sizeof *copy);
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (!isnan(x[i]))
            copy[kept++] = x[i];
    qsort(copy, (size_t)kept, sizeof *copy, ascending);
    *n_kept = kept;
    return copy;
}

double stats_median(const double *x, int n) {
    double *s = sorted(x, n, &n);
    double median = n ? (s[(n - 1) / 2] + s[n / 2]) / 2 : NAN;
    free(s);
    return median;
}

double stats_spread(const double *x, int n) {
    double *s = sorted(x, n, &n);
    double spread = n ? (s[3 * (n - 1) / 4] - s[(n - 1) / 4]) / s[(n - 1) / 2] : NAN;
    free(s);
    return spread;
}

interval stats_median_interval(const double *x, int n) {
    interval result = {-INFINITY, INFINITY};
    double *s = sorted(x, n, &n);
    /* The count of samples below the median is binomial(n, 1/2): drop k on each side while P(count <= k) stays <= 2.5
     * %. */
    double tail = 0;
    for (int k = 0; k < n / 2; k++) {
        tail += exp(lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0) - n * log(2.0));
        if (tail > 0.025)
            break;
        result = (interval){s[k], s[n - 1 - k]};
    }
    free(s);
    return result;
}
