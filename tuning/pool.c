#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "cli.h"

typedef struct worker {
    pool *p;
    int index;
    pthread_t thread;
    double end;
} worker;

struct pool {
    int n;
    worker workers[POOL_MAX_THREADS];
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    unsigned round; /* under lock, with the two below */
    int running;
    bool stop;
    atomic_int ready; /* threads that stand at the line of this round */
    double start;     /* written by thread 0 before it joins the others at the line */
    pool_fn fn;
    void *context;
};

double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int pool_processors(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static void take_part(pool *p, int index) {
    /* Thread 0 arrives last, so that the clock starts when everybody is awake. */
    int others = p->n - 1;
    if (index == 0) {
        while (atomic_load(&p->ready) < others)
            sched_yield();
        p->start = now_ns();
        atomic_store(&p->ready, p->n);
    } else {
        atomic_fetch_add(&p->ready, 1);
        while (atomic_load(&p->ready) < p->n)
            sched_yield();
    }
    p->fn(p->context, index, p->n);
    p->workers[index].end = now_ns();
}

static void *worker_main(void *argument) {
    worker *w = argument;
    pool *p = w->p;
    unsigned seen = 0;
    for (;;) {
        pthread_mutex_lock(&p->lock);
        while (p->round == seen && !p->stop)
            pthread_cond_wait(&p->wake, &p->lock);
        bool stop = p->stop;
        seen = p->round;
        pthread_mutex_unlock(&p->lock);
        if (stop)
            return NULL;
        take_part(p, w->index);
        pthread_mutex_lock(&p->lock);
        if (--p->running == 0)
            pthread_cond_signal(&p->done);
        pthread_mutex_unlock(&p->lock);
    }
}

pool *pool_create(int n_threads) {
    pool *p = cli_alloc(1, sizeof *p);
    p->n = n_threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    for (int i = 0; i < n_threads; i++) {
        p->workers[i].p = p;
        p->workers[i].index = i;
        if (i && pthread_create(&p->workers[i].thread, NULL, worker_main, &p->workers[i]))
            cli_fail("--threads %d: the system gives only %d threads", n_threads, i);
    }
    return p;
}

void pool_destroy(pool *p) {
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 1; i < p->n; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->wake);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int pool_threads(const pool *p) {
    return p->n;
}

double pool_run(pool *p, pool_fn fn, void *context) {
    pthread_mutex_lock(&p->lock);
    p->fn = fn;
    p->context = context;
    p->running = p->n - 1;
    atomic_store(&p->ready, 0);
    p->round++;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    take_part(p, 0);
    pthread_mutex_lock(&p->lock);
    while (p->running)
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
    double end = 0;
    for (int i = 0; i < p->n; i++)
        end = p->workers[i].end > end ? p->workers[i].end : end;
    return end - p->start;
}

typedef struct queue {
    atomic_int next;
    int n;
    void (*fn)(void *context, int item);
    void *context;
} queue;

static void drain(void *context, int thread_index, int thread_count) {
    (void)thread_index;
    (void)thread_count;
    queue *q = context;
    for (int item; (item = atomic_fetch_add(&q->next, 1)) < q->n;)
        q->fn(q->context, item);
}

void pool_each(pool *p, int n_items, void (*fn)(void *context, int item), void *context) {
    queue q = {.n = n_items, .fn = fn, .context = context};
    atomic_init(&q.next, 0);
    pool_run(p, drain, &q);
}
