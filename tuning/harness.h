/* harness.h: times contestants against each other on cold caches.
 *
 * Every contestant is one plan with its own workspace. Contestants of equal formats share a ring of cache buffers, each
 * filled with quantised Gaussian data; every launch takes the next buffer, and a ring is so long that more than twice
 * the last-level cache has gone by before a buffer comes round again. A round runs every contestant once, in random
 * order. On the CPU all threads of the pool launch, and time is theirs; other devices tell their own. */
#ifndef TQ_HARNESS_H
#define TQ_HARNESS_H

#include <signal.h>

#include "contract.h"
#include "pool.h"
#include "stats.h"

typedef struct harness harness;

typedef struct harness_options {
    const tq_device *device;
    pool *pool;
    int n_kv, n_kv_heads;
    uint64_t seed;
    double
        give_up; /* contestants this many times slower than the fastest stop after the least rounds; 0: nobody does */
    const volatile sig_atomic_t *stop; /* checked between launches; NULL: never */
    bool interleaved;                  /* the KV heads of a token, or of a tile, lie beside each other */
} harness_options;

harness *harness_create(const harness_options *options);
void harness_destroy(harness *h);

/* Is there a kernel for it? */
bool harness_can(const harness *h, const contract *c);
/* Index of the new contestant. pin: a variant name, or NULL for the plan's own choice. */
int harness_add(harness *h, const contract *c, const char *pin);

/* A kernel that is not libtq's: called on one thread of the pool, it may have threads of its own. */
typedef struct harness_guest {
    const char *name;
    int tokens;                            /* keys per launch */
    size_t cache_bytes;                    /* that a launch reads */
    void (*prepare)(void *context, int n); /* makes its ring: n caches */
    void (*launch)(void *context, int which);
    void *context;
} harness_guest;
/* Its index among the contestants; kept by reference. */
int harness_add_guest(harness *h, const harness_guest *guest);

/* Builds the rings, warms up, then runs rounds until `seconds` have passed, at least `least` and at most `most`. */
void harness_run(harness *h, double seconds, int least, int most);

const char *harness_variant(const harness *h, int which);
/* One per round, in nanoseconds per launch; sample i of two contestants is of the same round. */
const double *harness_samples(const harness *h, int which);
int harness_rounds(const harness *h, int which);
/* Keys per launch: n_kv, except that append, dequantise and repack take a batch of at most 64 tokens. Prefill is causal, of
 * the last 512 of them at most. */
int harness_launch_tokens(const contract *c, int n_kv);
int harness_tokens(const harness *h, int which);
/* How many queries see a key, on average: prefill is causal. */
double harness_queries_per_key(const contract *c, int n_kv);
/* Bytes of quantised cache that one launch reads or writes. */
double harness_cache_bytes(const harness *h, int which);

enum { HARNESS_MAX_N_KV = 1 << 24, HARNESS_MAX_KV_HEADS = 1024, HARNESS_BATCH_TOKENS = 64, HARNESS_QUERIES = 512 };

#endif
