/* copy.c: asynchronous copies into shared memory, done as late as the kernel allows. */
#include "executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SIMT_UNSEEN static void check_shared(const block *b, const void *p, size_t bytes, size_t multiple, const char *at) {
    const size_t offset = (size_t)((const unsigned char *)p - b->shared);
    if (offset > (unsigned)b->grid->shared_bytes || bytes > (unsigned)b->grid->shared_bytes - offset)
        tq_simt_fail("%s to %zu bytes at offset %ld of %u bytes of shared memory", at, bytes, (long)offset,
                     (unsigned)b->grid->shared_bytes);
    if (offset % multiple)
        tq_simt_fail("%s to offset %zu of shared memory, not a multiple of %zu", at, offset, multiple);
}

/* ---- 16 bytes per thread ---------------------------------------------------------------------------------------- */

/* Seen by ThreadSanitizer as what the thread itself does. */
static __attribute__((noinline)) void store16(tqg_u32 *to, const tqg_u32 *from) {
    for (int i = 0; i < 4; i++)
        to[i] = from[i];
}

SIMT_UNSEEN void tq_simt_copy16(void *shared, const void *global, const char *at) {
    block *b = this_block();
    copy_queue *queue = b->running->queue;
    check_shared(b, shared, 16, 16, at);
    tq_simt_check_global(global, 16, at);
    if (queue->n == queue->room) {
        queue->room = 2 * queue->room + 8;
        queue->copies = realloc(queue->copies, (size_t)queue->room * sizeof *queue->copies);
        if (!queue->copies)
            abort();
    }
    copy *c = &queue->copies[queue->n++];
    tqg_u32 value[4], ones[4] = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    store16(value, global);
    store16(shared, ones);
    c->to = shared;
    c->group = queue->group;
    memcpy(c->value, value, sizeof value);
    b->counts.copies16++;
}

SIMT_UNSEEN void tq_simt_copy_commit(void) {
    this_block()->running->queue->group++;
}

SIMT_UNSEEN void tq_simt_copy_wait(int n) {
    copy_queue *queue = this_block()->running->queue;
    int pending = 0;
    for (int i = 0; i < queue->n; i++) {
        const copy c = queue->copies[i];
        if (queue->group - c.group > (unsigned)n) /* groups committed since, its own included */
            store16(c.to, c.value);
        else
            queue->copies[pending++] = c;
    }
    queue->n = pending;
}

/* ---- bulk copies ------------------------------------------------------------------------------------------------ */

/* A barrier in shared memory: bytes that are expected in this phase, whether bar_expect was called in it, its parity. */
enum { EXPECTED_SHIFT = 32, PHASE_SHIFT = 33, MAGIC_SHIFT = 48, MAGIC = 0x6b3d };

SIMT_UNSEEN static tqg_u64 bar_word(tqg_u64 bytes, tqg_u64 expected, tqg_u64 phase) {
    return bytes | expected << EXPECTED_SHIFT | phase << PHASE_SHIFT | (tqg_u64)MAGIC << MAGIC_SHIFT;
}
SIMT_UNSEEN static unsigned bar_phase(const tqg_u64 *bar) {
    return *bar >> PHASE_SHIFT & 1;
}
SIMT_UNSEEN static bool bar_expected(const tqg_u64 *bar) {
    return *bar >> EXPECTED_SHIFT & 1;
}
SIMT_UNSEEN static tqg_u32 bar_bytes(const tqg_u64 *bar) {
    return (tqg_u32)*bar;
}

SIMT_UNSEEN static void check_bar(const block *b, const tqg_u64 *bar, const char *at) {
    check_shared(b, bar, 8, 8, at);
    if (*bar >> MAGIC_SHIFT != MAGIC)
        tq_simt_fail("%s: the barrier has not been initialised", at);
}

SIMT_UNSEEN static tqg_u64 issued_bytes(const block *b, const tqg_u64 *bar) {
    tqg_u64 bytes = 0;
    for (int i = 0; i < b->n_bulk; i++)
        bytes += b->bulk[i].bar == bar ? b->bulk[i].bytes : 0;
    return bytes;
}

/* Does the copies of a phase if all have been issued. */
SIMT_UNSEEN static bool complete(block *b, tqg_u64 *bar) {
    if (!bar_expected(bar) || issued_bytes(b, bar) != bar_bytes(bar))
        return false;
    int others = 0;
    TSAN_DO(__tsan_acquire(bar));
    for (int i = 0; i < b->n_bulk; i++) {
        bulk_copy *c = &b->bulk[i];
        if (c->bar == bar)
            memcpy(c->to, c->from, c->bytes);
        else
            b->bulk[others++] = *c;
    }
    TSAN_DO(__tsan_release(bar));
    b->n_bulk = others;
    *bar = bar_word(0, 0, bar_phase(bar) ^ 1u);
    return true;
}

SIMT_UNSEEN bool simt_bar_passed(block *b, tqg_u64 *bar, unsigned parity) {
    return bar_phase(bar) != parity || complete(b, bar);
}

SIMT_UNSEEN void simt_describe_bar(const tqg_u64 *bar, const block *b, char *text, size_t bytes) {
    if (bar_expected(bar))
        snprintf(text, bytes, "%u bytes are expected, copies of %llu were issued", bar_bytes(bar),
                 (unsigned long long)issued_bytes(b, bar));
    else
        snprintf(text, bytes, "nothing is expected in this phase");
}

SIMT_UNSEEN void tq_simt_bar_init(tqg_u64 *bar, const char *at) {
    check_shared(this_block(), bar, 8, 8, at);
    *bar = bar_word(0, 0, 0);
}

SIMT_UNSEEN void tq_simt_bar_expect(tqg_u64 *bar, tqg_u32 bytes, const char *at) {
    check_bar(this_block(), bar, at);
    if (bar_expected(bar))
        tq_simt_fail("%s: nobody has waited for the phase before", at);
    TSAN_DO(__tsan_release(bar));
    *bar = bar_word(bytes, 1, bar_phase(bar));
}

SIMT_UNSEEN void tq_simt_bulk_copy(void *shared, const void *global, tqg_u32 bytes, tqg_u64 *bar, const char *at) {
    block *b = this_block();
    check_bar(b, bar, at);
    check_shared(b, shared, bytes, 16, at);
    tq_simt_check_global(global, 16, at);
    if (bytes % 16)
        tq_simt_fail("%s of %u bytes, not a multiple of 16", at, bytes);
    if (b->n_bulk == MOST_BULK_COPIES)
        tq_simt_fail("%s: %d copies are pending", at, b->n_bulk);
    b->bulk[b->n_bulk++] = (bulk_copy){shared, global, bytes, bar};
    memset(shared, ALL_ONES, bytes);
    TSAN_DO(__tsan_release(bar));
    b->counts.bulk_copies++;
}

SIMT_UNSEEN void tq_simt_bar_wait(tqg_u64 *bar, tqg_u32 parity, const char *at) {
    block *b = this_block();
    check_bar(b, bar, at);
    while (!simt_bar_passed(b, bar, parity & 1)) {
        fiber *f = b->running;
        if (bar_expected(bar) && issued_bytes(b, bar) > bar_bytes(bar))
            tq_simt_fail("%s: %u bytes are expected, copies of %llu were issued", at, bar_bytes(bar),
                         (unsigned long long)issued_bytes(b, bar));
        f->waits = FOR_COPY;
        f->at = at;
        f->bar = bar;
        f->bar_parity = parity & 1;
        f->gate = &b->closed;
        f->gate_was = b->closed;
        simt_wait(b);
    }
    TSAN_DO(__tsan_acquire(bar));
}
