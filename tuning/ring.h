/* ring.h: cache buffers that contestants of equal formats take turns with, of quantised Gaussian data, so many that each is
 * cold when it comes round again. */
#ifndef TQ_RING_H
#define TQ_RING_H

#include "harness.h"

/* Buffers of one pair of formats. Unused sides are empty; repack has rows as k and tiles as v. */
typedef struct ring {
    contract of;   /* whose formats these are */
    int n_users;   /* contestants that take buffers from it */
    int tokens;    /* slots per head */
    tq_cache k, v; /* geometry; data is the first buffer's */
    int n, next;
    uint8_t *buffers; /* of the device; n times (k.bytes rounded up + v.bytes rounded up) */
    size_t pitch, v_at;
    double used;                /* bytes of a buffer that hold tokens */
    const harness_guest *guest; /* who has the buffers instead; else NULL */
} ring;

/* Its geometry; no buffers yet. */
void ring_init(ring *r, const harness_options *options, const contract *c);
void ring_init_guest(ring *r, const harness_guest *guest);
/* Do its buffers serve a kernel of this contract, too? */
bool ring_serves(const ring *r, const contract *c);

/* As many buffers for each ring as its users need, filled. A shape that does not fit memory ends the command. */
void rings_build(ring *rings, int n, const harness_options *options, rng *rng);
/* Buffer i, as tq_cache of either side. */
void ring_buffer(const ring *r, int i, tq_cache *k, tq_cache *v);
void ring_free(ring *r, const harness_options *options);

#endif
