/* verify.h: one kernel against the double-precision reference, on the same packed cache, at awkward sizes. */
#ifndef TQ_VERIFY_H
#define TQ_VERIFY_H

#include "contract.h"
#include "pool.h"

/* Largest error in units of what a correct kernel may show: at most 1 is good; infinite if a value is not finite. */
double verify_variant(const tq_device *device, pool *p, const contract *c, const char *variant, uint64_t seed);

#endif
