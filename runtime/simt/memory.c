/* memory.c: shared memory and stacks, with pages between them that may not be touched. What a launch gives back serves the
 * next one, because mapping takes longer than a small block runs. */
#define _DEFAULT_SOURCE
#include "executor.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(SIMT_ASAN) || defined(SIMT_TSAN)
enum { STACK_BYTES = 256 * 1024 };
#else
enum { STACK_BYTES = 64 * 1024 };
#endif
/* Tops of stacks differ by this, so that they do not compete for the same lines of the first cache. */
enum { STAGGER = 128, STAGGERED = 32 };

static _Atomic(memory *) spare[MEMORIES];

static size_t round_up(size_t x, size_t to) {
    return (x + to - 1) / to * to;
}

static int map(memory *m) {
    unsigned char *base = mmap(NULL, m->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return -1;
    m->base = base;
    m->shared = base + 2 * m->page;
    m->stacks = m->shared + m->shared_room + 2 * m->page;
    if (mprotect(base + m->page, m->shared_room + 2 * m->page, PROT_READ | PROT_WRITE))
        return -1;
    for (int i = 0; i < m->threads; i++)
        if (mprotect(m->stacks + (size_t)i * (m->stack_bytes + m->page), m->stack_bytes, PROT_READ | PROT_WRITE))
            return -1;
    return 0;
}

static void discard(memory *m) {
    if (!m)
        return;
#ifdef SIMT_TSAN
    for (int i = 0; i < m->threads; i++)
        __tsan_destroy_fiber(m->fibers[i]);
#endif
    if (m->base) {
        ASAN_DO(__asan_unpoison_memory_region(m->base, m->bytes));
        munmap(m->base, m->bytes);
    }
    for (int i = 0; m->queues && i < m->threads; i++)
        free(m->queues[i].copies);
    free(m->queues);
    free(m);
}

memory *simt_take_memory(int threads, size_t shared_bytes) {
    memory *m = NULL;
    for (int i = 0; i < MEMORIES && !m; i++)
        m = atomic_exchange(&spare[i], NULL);
    if (m && m->threads >= threads && m->shared_room >= shared_bytes)
        return m;
    if (m && m->threads > threads)
        threads = m->threads;
    if (m && m->shared_room > shared_bytes)
        shared_bytes = m->shared_room;
    discard(m);
    m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->threads = threads;
    m->page = (size_t)sysconf(_SC_PAGESIZE);
    m->stack_bytes = round_up(STACK_BYTES, m->page);
    m->shared_room = round_up(shared_bytes, m->page);
    m->bytes = m->shared_room + 4 * m->page + (size_t)threads * (m->stack_bytes + m->page);
#ifdef SIMT_TSAN
    for (int i = 0; i < threads; i++)
        m->fibers[i] = __tsan_create_fiber(0);
#endif
    m->queues = calloc((size_t)threads, sizeof *m->queues);
    if (!m->queues || map(m)) {
        discard(m);
        return NULL;
    }
    return m;
}

void simt_give_memory(memory *m) {
    for (int i = 0; i < MEMORIES && m; i++)
        m = atomic_exchange(&spare[i], m);
    discard(m);
}

/* Not memset, which ThreadSanitizer would take for accesses of the launch that race with those of blocks. */
SIMT_UNSEEN void simt_begin_memory(memory *m, size_t shared_bytes) {
    ASAN_DO(__asan_unpoison_memory_region(m->base, m->bytes));
    volatile uint64_t *words = (volatile uint64_t *)(void *)(m->shared - m->page);
    for (size_t i = 0; i < round_up(shared_bytes, 8) / 8 + 2 * m->page / 8; i++)
        words[i] = UINT64_MAX;
    ASAN_DO(__asan_poison_memory_region(m->base, 2 * m->page));
    ASAN_DO(__asan_poison_memory_region(m->shared + shared_bytes, m->shared_room + m->page - shared_bytes));
}

unsigned char *simt_stack(const memory *m, int thread, size_t *bytes) {
    *bytes = m->stack_bytes - (size_t)(thread % STAGGERED) * STAGGER;
    return m->stacks + (size_t)thread * (m->stack_bytes + m->page);
}

/* As far as a page away. A read sees NaN there. */
SIMT_UNSEEN bool simt_overwritten(const memory *m, size_t shared_bytes, long *offset) {
#ifdef SIMT_ASAN
    (void)m, (void)shared_bytes, (void)offset; /* has been reported already */
    return false;
#else
    const long end = (long)(shared_bytes + m->page);
    for (long i = -(long)m->page; i < end; i++) {
        if (i == 0)
            i = (long)shared_bytes;
        if (m->shared[i] != ALL_ONES) {
            *offset = i;
            return true;
        }
    }
    return false;
#endif
}
