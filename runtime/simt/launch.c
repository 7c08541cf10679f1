/* launch.c: a launch: the order of its blocks, the life of each. */
#include "executor.h"

#include <stdio.h>
#include <stdlib.h>

static int allocate(block *b) {
    b->n_warps = b->grid->threads / b->grid->warp;
    b->fibers = calloc((size_t)b->grid->threads, sizeof *b->fibers);
    b->warps = calloc((size_t)b->n_warps, sizeof *b->warps);
    bool enough = b->fibers && b->warps;
    for (int i = 0; i < MEMORIES && enough; i++) {
        b->memories[i] = simt_take_memory(b->grid->threads, (size_t)b->grid->shared_bytes);
        enough = b->memories[i] != NULL;
    }
    return enough ? 0 : -1;
}

/* What stopped threads did comes before what the caller does next. */
SIMT_UNSEEN static void end_stopped_threads(block *b) {
#ifdef SIMT_TSAN
    for (int m = 0; m < MEMORIES; m++)
        for (int i = 0; i < b->grid->threads; i++) {
            __tsan_switch_to_fiber(b->memories[m]->fibers[i], 0);
            __tsan_switch_to_fiber(b->home_tsan, 0);
        }
#else
    (void)b;
#endif
}

static void release(block *b) {
    for (int i = 0; i < MEMORIES; i++)
        simt_give_memory(b->memories[i]);
    free(b->fibers);
    free(b->warps);
}

/* ---- order ------------------------------------------------------------------------------------------------------ */

/* splitmix64 */
static uint32_t random_below(uint64_t *state, uint32_t n) {
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((x >> 32) * n >> 32);
}

static void make_order(int *order, int n, unsigned seed, uint64_t stream) {
    uint64_t state = ((uint64_t)seed << 32) ^ stream;
    for (int i = 0; i < n; i++)
        order[i] = seed == 1 ? n - 1 - i : i;
    for (int i = n - 1; seed > 1 && i > 0; i--) {
        const int j = (int)random_below(&state, (uint32_t)i + 1), swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
}

static void order_threads(block *b, int number) {
    int warps[TQ_SIMT_MAX_THREADS], lanes[MOST_LANES];
    const unsigned seed = b->grid->seed;
    make_order(warps, b->n_warps, seed, (uint64_t)number * 1024);
    for (int i = 0; i < b->n_warps; i++) {
        warp *w = &b->warps[warps[i]];
        fiber *first = &b->fibers[warps[i] * b->grid->warp];
        w->next = &b->warps[warps[(i + 1) % b->n_warps]];
        make_order(lanes, b->grid->warp, seed, (uint64_t)number * 1024 + (uint64_t)i + 1);
        w->first = first + lanes[0];
        for (int l = 0; l < b->grid->warp; l++)
            first[lanes[l]].next = first + lanes[(l + 1) % b->grid->warp];
    }
    b->running = b->warps[warps[0]].first;
}

/* ---- blocks ----------------------------------------------------------------------------------------------------- */

static void begin_warps(block *b) {
    for (int i = 0; i < b->n_warps; i++) {
        warp *w = &b->warps[i];
        w->votes[0] = w->votes[1] = 0;
        w->meeting = 0;
        w->arrived = 0;
    }
}

static void begin_threads(block *b) {
    for (int i = 0; i < b->grid->threads; i++) {
        fiber *f = &b->fibers[i];
        f->gate = &b->open;
        f->gate_was = 0;
        f->thread = i;
        f->lane = i % b->grid->warp;
        f->warp = &b->warps[i / b->grid->warp];
        f->queue = &b->memory->queues[i];
        f->queue->n = 0;
        f->queue->group = 0;
        f->stack = simt_stack(b->memory, i, &f->stack_bytes);
        TSAN_DO(f->tsan = b->memory->fibers[i]);
        tq_context_start(&f->context, f->stack, f->stack_bytes, simt_fiber_main);
    }
}

static void run_block(block *b, int number) {
    const tq_simt_grid *grid = b->grid;
    b->x = number % grid->x;
    b->y = number / grid->x % grid->y;
    b->z = number / grid->x / grid->y;
    b->open = 1;
    b->barrier = 0;
    b->arrived = b->n_exited = b->n_bulk = 0;
    b->memory = b->memories[b->counts.blocks % MEMORIES];
    b->shared = b->memory->shared;
    b->bulk = b->memory->bulk;
    simt_begin_memory(b->memory, (size_t)grid->shared_bytes);
    order_threads(b, number);
    begin_warps(b);
    begin_threads(b);
    simt_run_fibers(b);
    b->counts.blocks++;
    long offset;
    if (!b->failed && simt_overwritten(b->memory, (size_t)grid->shared_bytes, &offset)) {
        snprintf(b->message, b->message_bytes,
                 "%s: block (%d, %d, %d): wrote outside its %d bytes of shared memory, at offset %ld", grid->name, b->x,
                 b->y, b->z, grid->shared_bytes, offset);
        b->failed = true;
    }
}

static void run_blocks(block *b, const int *order, int n) {
    const int step = b->grid->count > 0 ? b->grid->count : 1;
    for (int i = b->grid->count > 0 ? b->grid->index : 0; i < n && !b->failed; i += step)
        run_block(b, order[i]);
}

static void add_counts(tq_simt_counts *sum, const tq_simt_counts *more) {
    sum->blocks += more->blocks;
    sum->switches += more->switches;
    sum->block_syncs += more->block_syncs;
    sum->warp_ops += more->warp_ops;
    sum->matrix_ops += more->matrix_ops;
    sum->copies16 += more->copies16;
    sum->bulk_copies += more->bulk_copies;
}

const char *tq_simt_launch(const tq_simt_grid *grid, void (*kernel)(const void *params), const void *params,
                           char *message, size_t message_bytes) {
    block b = {.grid = grid, .kernel = kernel, .params = params, .message = message, .message_bytes = message_bytes};
    const int n = grid->x * grid->y * grid->z;
    if (grid->x < 1 || grid->y < 1 || grid->z < 1 || (grid->warp != 32 && grid->warp != 64) || grid->threads < 1 ||
        grid->threads > TQ_SIMT_MAX_THREADS || grid->threads % grid->warp || grid->shared_bytes < 0) {
        snprintf(message, message_bytes,
                 "%s: cannot launch %d x %d x %d blocks of %d threads, warp %d, %d bytes shared", grid->name, grid->x,
                 grid->y, grid->z, grid->threads, grid->warp, grid->shared_bytes);
        return message;
    }
    int *order = malloc((size_t)n * sizeof *order);
    if (order && allocate(&b) == 0) {
        make_order(order, n, grid->seed, 0);
        simt_block = &b;
        TSAN_DO(b.home_tsan = __tsan_get_current_fiber());
        run_blocks(&b, order, n);
        simt_block = NULL;
        TSAN_DO(__tsan_acquire(&b.ended));
        if (b.failed)
            end_stopped_threads(&b);
        if (grid->counts)
            add_counts(grid->counts, &b.counts);
    } else {
        snprintf(message, message_bytes, "%s: out of memory", grid->name);
        b.failed = true;
    }
    release(&b);
    free(order);
    return b.failed ? message : NULL;
}
