/* attend.h: causal attention of real queries over a cache and over what quantising left of it, compared query by query.
 */
#ifndef TQ_ATTEND_H
#define TQ_ATTEND_H

#include "npy.h"
#include "pool.h"

typedef struct attend_result {
    double kl;      /* sum over keys of p ln(p / p^), nats, mean over queries */
    double top1;    /* how often the heaviest key stays the same */
    double out_err; /* |o - o^|^2 / |o|^2 of the output, mean over queries */
} attend_result;

/* Query head h reads KV head h / (q heads / k heads). k_hat[i], v_hat[i], shaped as k and v: what format i leaves.
 * One result per format. */
void attend_compare(pool *p, const npy *q, const npy *k, const npy *v, int n_formats, float *const *k_hat,
                    float *const *v_hat, attend_result *results);

#endif
