/* pool.h: a few threads that make the same call together, timed without the cost of waking them. */
#ifndef TQ_POOL_H
#define TQ_POOL_H

#include <stddef.h>

enum { POOL_MAX_THREADS = 256 };

typedef struct pool pool;
typedef void (*pool_fn)(void *context, int thread_index, int thread_count);

pool *pool_create(int n_threads);
void pool_destroy(pool *p);
int pool_threads(const pool *p);

/* All threads call fn, the caller as thread 0. Nanoseconds from the moment all stand ready until the last is done. */
double pool_run(pool *p, pool_fn fn, void *context);

/* Calls fn(context, item) for every item, handed out as threads become free. */
void pool_each(pool *p, int n_items, void (*fn)(void *context, int item), void *context);

/* Processors that this process may use. */
int pool_processors(void);
/* Monotonic. */
double now_ns(void);

#endif
