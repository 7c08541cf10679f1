/* simt.c: the threads of a block: who runs next, where they meet, what goes wrong. */
#define _DEFAULT_SOURCE
#include "executor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Thread_local block *simt_block;

/* ---- switching -------------------------------------------------------------------------------------------------- */

SIMT_UNSEEN static void switch_to(block *b, fiber *to) {
    fiber *from = b->running;
    b->running = to;
    b->counts.switches++;
    TSAN_DO(__tsan_switch_to_fiber(to->tsan, __tsan_switch_to_fiber_no_sync));
    ASAN_DO(
        __sanitizer_start_switch_fiber(from->waits == EXITED ? NULL : &from->asan_stack, to->stack, to->stack_bytes));
    tq_context_switch(&from->context, &to->context);
    ASAN_DO(__sanitizer_finish_switch_fiber(from->asan_stack, NULL, NULL));
}

SIMT_UNSEEN _Noreturn static void go_home(block *b) {
    fiber *from = b->running;
    TSAN_DO(__tsan_release(&b->ended));
    TSAN_DO(__tsan_switch_to_fiber(b->home_tsan, __tsan_switch_to_fiber_no_sync));
    ASAN_DO(__sanitizer_start_switch_fiber(NULL, b->home_stack, b->home_stack_bytes));
    tq_context_switch(&from->context, &b->home);
    abort();
}

/* ---- errors ----------------------------------------------------------------------------------------------------- */

/* Of paths, only the names of files. */
SIMT_UNSEEN static void drop_directories(char *text) {
    char *word = text, *out = text;
    for (const char *in = text; *in; in++) {
        *out++ = *in;
        if (*in == ' ')
            word = out;
        else if (*in == '/')
            out = word;
    }
    *out = '\0';
}

SIMT_UNSEEN static void report(block *b, int thread, char *text) {
    drop_directories(text);
    snprintf(b->message, b->message_bytes, "%s: block (%d, %d, %d), thread %d: %s", b->grid->name, b->x, b->y, b->z,
             thread, text);
    b->failed = true;
}

SIMT_UNSEEN _Noreturn void tq_simt_fail(const char *format, ...) {
    block *b = this_block();
    char text[800];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!b) {
        fprintf(stderr, "%s, outside a launch\n", text);
        abort();
    }
    report(b, b->running->thread, text);
    go_home(b);
}

SIMT_UNSEEN static void describe(const fiber *f, char *text, size_t bytes) {
    if (f->waits == EXITED)
        snprintf(text, bytes, "thread %d, which exited", f->thread);
    else
        snprintf(text, bytes, "thread %d, which waits in %s", f->thread, f->at);
}

/* No thread can go on: says for whom one of them waits. */
SIMT_UNSEEN _Noreturn static void stall(block *b) {
    char text[800], other[400];
    const fiber *waits = NULL, *missing = NULL;
    for (int i = 0; i < b->grid->threads && !missing; i++) {
        waits = &b->fibers[i];
        const fiber *f = waits;
        if (waits->waits == FOR_WARP)
            do
                f = f->next;
            while (f != waits && f->waits == FOR_WARP);
        missing = f != waits ? f : NULL;
    }
    for (int i = 0; i < b->grid->threads && !missing; i++) {
        waits = &b->fibers[i];
        if (waits->waits == FOR_COPY) {
            simt_describe_bar(waits->bar, b, other, sizeof other);
            snprintf(text, sizeof text, "%s waits for ever: %s", waits->at, other);
            report(b, waits->thread, text);
            go_home(b);
        }
    }
    for (int i = 0; i < b->grid->threads && !missing; i++) {
        waits = &b->fibers[i];
        for (int j = 0; waits->waits == FOR_BLOCK && j < b->grid->threads && !missing; j++)
            if (b->fibers[j].waits != FOR_BLOCK)
                missing = &b->fibers[j];
    }
    describe(missing, other, sizeof other);
    snprintf(text, sizeof text, "%s is not reached by %s", waits->at, other);
    report(b, waits->thread, text);
    go_home(b);
}

/* ---- who runs next ---------------------------------------------------------------------------------------------- */

SIMT_UNSEEN static bool ready(const fiber *f) {
    return *f->gate != f->gate_was;
}

/* Lanes of the same warp first, then other warps. */
SIMT_UNSEEN static fiber *choose(block *b) {
    warp *own = b->running->warp, *w = own;
    fiber *first = b->running, *f;
    do {
        f = first;
        do {
            if (ready(f))
                return f;
            f = f->next;
        } while (f != first);
        w = w->next;
        first = w->first;
    } while (w != own);
    for (int i = 0; i < b->grid->threads; i++) {
        f = &b->fibers[i];
        if (f->waits == FOR_COPY && simt_bar_passed(b, f->bar, f->bar_parity))
            return f;
    }
    return NULL;
}

SIMT_UNSEEN void simt_wait(block *b) {
    fiber *f = b->running, *next = f->next;
    if (!ready(next) && !(next = choose(b)))
        stall(b);
    if (next != f)
        switch_to(b, next);
    f->waits = NOT_WAITING;
}

SIMT_UNSEEN void simt_run_fibers(block *b) {
    fiber *first = b->running;
    TSAN_DO(__tsan_release(&b->memory->begun[++b->memory->blocks & 1]));
    TSAN_DO(__tsan_switch_to_fiber(first->tsan, __tsan_switch_to_fiber_no_sync));
    ASAN_DO(__sanitizer_start_switch_fiber(&b->home_asan, first->stack, first->stack_bytes));
    tq_context_switch(&b->home, &first->context);
    ASAN_DO(__sanitizer_finish_switch_fiber(b->home_asan, NULL, NULL));
}

SIMT_UNSEEN void simt_fiber_main(void) {
    block *b = this_block();
#ifdef SIMT_ASAN
    const void *stack;
    size_t bytes;
    __sanitizer_finish_switch_fiber(NULL, &stack, &bytes);
    if (b->home_stack == NULL) { /* comes from there */
        b->home_stack = stack;
        b->home_stack_bytes = bytes;
    }
#endif
    fiber *f = b->running;
    f->waits = NOT_WAITING;
    TSAN_DO(__tsan_acquire(&b->memory->begun[b->memory->blocks & 1]));
    b->kernel(b->params);
    TSAN_DO(__tsan_release(&b->memory->begun[~b->memory->blocks & 1])); /* before the next block there */
    f->waits = EXITED;
    f->gate = &b->closed;
    f->gate_was = b->closed;
    if (++b->n_exited == b->grid->threads)
        go_home(b);
    TSAN_DO(__tsan_release(&b->ended));
    simt_wait(b);
    abort();
}

/* ---- what a thread may ask -------------------------------------------------------------------------------------- */

SIMT_UNSEEN void tq_simt_enter(int threads, int warp) {
    const tq_simt_grid *grid = this_block()->grid;
    if (threads != grid->threads || warp != grid->warp)
        tq_simt_fail("launched with %d threads, warps of %d; generated for %d, %d", grid->threads, grid->warp, threads,
                     warp);
}

SIMT_UNSEEN int tq_simt_thread(void) {
    return this_block()->running->thread;
}
SIMT_UNSEEN int tq_simt_block_x(void) {
    return this_block()->x;
}
SIMT_UNSEEN int tq_simt_block_y(void) {
    return this_block()->y;
}
SIMT_UNSEEN int tq_simt_block_z(void) {
    return this_block()->z;
}
SIMT_UNSEEN unsigned char *tq_simt_shared(void) {
    return this_block()->shared;
}

SIMT_UNSEEN void tq_simt_check_global(const void *p, unsigned bytes, const char *at) {
    const block *b = this_block();
    if ((uintptr_t)p % bytes)
        tq_simt_fail("%s: the address is not a multiple of %u", at, bytes);
    if ((uintptr_t)p - (uintptr_t)b->shared < (uintptr_t)b->grid->shared_bytes)
        tq_simt_fail("%s: the address is in shared memory", at);
}

/* ---- barriers and collectives ----------------------------------------------------------------------------------- */

SIMT_UNSEEN static void same_place(const char **place_of_all, int arrived, const char *at) {
    if (arrived == 0)
        *place_of_all = at;
    else if (*place_of_all != at)
        tq_simt_fail("%s, while others wait in %s", at, *place_of_all);
}

/* The last to arrive does what tq_simt_arrive asks for, on behalf of the block. */
SIMT_UNSEEN static int block_meeting(const char *at, tqg_u32 *counter, tqg_u32 n) {
    block *b = this_block();
    fiber *f = b->running;
    const unsigned parity = b->barrier & 1;
    same_place(&b->at, b->arrived, at);
    TSAN_DO(__tsan_release(&b->memory->block_met[parity]));
    if (++b->arrived < b->grid->threads) {
        f->waits = FOR_BLOCK;
        f->at = at;
        f->gate = &b->barrier;
        f->gate_was = b->barrier;
        simt_wait(b);
    } else {
        TSAN_DO(__tsan_acquire(&b->memory->block_met[parity]));
        if (counter) {
            TSAN_DO(__tsan_release(counter));
            const bool last = __atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL) == n - 1;
            if (last) {
                TSAN_DO(__tsan_acquire(counter));
                __atomic_store_n(counter, 0, __ATOMIC_RELAXED);
            }
            b->last_arrival[parity] = last;
            TSAN_DO(__tsan_release(&b->memory->block_met[parity]));
        }
        b->arrived = 0;
        b->barrier++;
        b->counts.block_syncs++;
    }
    TSAN_DO(__tsan_acquire(&b->memory->block_met[parity]));
    return b->last_arrival[parity];
}

SIMT_UNSEEN void tq_simt_block_sync(const char *at) {
    block_meeting(at, NULL, 0);
}

SIMT_UNSEEN int tq_simt_arrive(tqg_u32 *counter, tqg_u32 n, const char *at) {
    tq_simt_check_global(counter, 4, at);
    return block_meeting(at, counter, n);
}

SIMT_UNSEEN bool simt_meet(block *b, const char *at) {
    fiber *f = b->running;
    warp *w = f->warp;
    same_place(&w->at, w->arrived, at);
    if (++w->arrived == b->grid->warp)
        return true;
    f->waits = FOR_WARP;
    f->at = at;
    f->gate = &w->meeting;
    f->gate_was = w->meeting;
    simt_wait(b);
    return false;
}

SIMT_UNSEEN void simt_part(block *b) {
    warp *w = b->running->warp;
    w->arrived = 0;
    w->meeting++;
    w->votes[w->meeting & 1] = 0;
    b->counts.warp_ops++;
}

SIMT_UNSEEN void tq_simt_warp_sync(const char *at) {
    block *b = this_block();
#ifdef SIMT_TSAN
    const warp *w = b->running->warp;
    char *met = &b->memory->warp_met[w - b->warps][w->meeting & 1];
#endif
    TSAN_DO(__tsan_release(met));
    if (simt_meet(b, at))
        simt_part(b);
    TSAN_DO(__tsan_acquire(met));
}

SIMT_UNSEEN tqg_u32 tq_simt_shuffle(tqg_u32 x, int lane, const char *at) {
    block *b = this_block();
    fiber *f = b->running;
    deposit *deposits = f->warp->deposits[f->warp->meeting & 1];
    if (lane < 0 || lane >= b->grid->warp)
        tq_simt_fail("%s: lane %d of %d", at, lane, b->grid->warp);
    deposits[f->lane].value = x;
    if (simt_meet(b, at))
        simt_part(b);
    return deposits[lane].value;
}

SIMT_UNSEEN tqg_u32 tq_simt_shuffle_xor(tqg_u32 x, int mask, const char *at) {
    return tq_simt_shuffle(x, this_block()->running->lane ^ mask, at);
}

SIMT_UNSEEN tqg_u64 tq_simt_ballot(int p, const char *at) {
    block *b = this_block();
    fiber *f = b->running;
    tqg_u64 *votes = &f->warp->votes[f->warp->meeting & 1];
    *votes |= (tqg_u64)(p != 0) << f->lane;
    if (simt_meet(b, at))
        simt_part(b);
    return *votes;
}

SIMT_UNSEEN int tq_simt_elect(const char *at) {
    block *b = this_block();
    const fiber *f = b->running;
    if (simt_meet(b, at))
        simt_part(b);
    return f == f->warp->first;
}

SIMT_UNSEEN tqg_u32 tq_simt_transpose8(tqg_u32 halves, const char *at) {
    block *b = this_block();
    fiber *f = b->running;
    const deposit *deposits = f->warp->deposits[f->warp->meeting & 1];
    const int row = f->lane / 4, column = 2 * (f->lane % 4), shift = 16 * (row & 1);
    if (b->grid->warp != 32)
        tq_simt_fail("%s needs warps of 32 lanes", at);
    f->warp->deposits[f->warp->meeting & 1][f->lane].value = halves;
    if (simt_meet(b, at))
        simt_part(b);
    return (deposits[4 * column + row / 2].value >> shift & 0xffff) |
           (deposits[4 * (column + 1) + row / 2].value >> shift) << 16;
}

SIMT_UNSEEN void tq_simt_multiply(tq_simt_matrix kind, void *c, const tqg_u32 *a, const tqg_u32 *b, const char *at) {
    block *own = this_block();
    fiber *f = own->running;
    deposit *deposits = f->warp->deposits[f->warp->meeting & 1], *mine = &deposits[f->lane];
    if ((kind >= TQ_SIMT_MFMA_F16) != (own->grid->warp == 64))
        tq_simt_fail("%s in warps of %d lanes", at, own->grid->warp);
    mine->matrix.c = c;
    mine->matrix.a = a;
    mine->matrix.b = b;
    if (simt_meet(own, at)) {
        simt_multiply_lanes(kind, deposits);
        own->counts.matrix_ops++;
        simt_part(own);
    }
}
