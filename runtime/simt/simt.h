/* simt.h: runs GPU kernels of SIMT targets on the CPU, for tests.
 *
 * A kernel is a C function that is called once per thread of each block; the threads of a block are fibers of the calling
 * thread, which take turns where they meet: at barriers and in the collectives of a warp. Who goes first, and in which
 * order blocks run, follows from the seed: results of a correct kernel do not depend on it.
 *
 * Ends a launch with a message: barriers that not all threads of a block reach, collectives that not all lanes of a warp
 * reach (another lane exited, waits elsewhere, meets elsewhere), waiting for copies that were not issued, misaligned
 * 16-byte accesses, operands in the wrong memory, writes outside shared memory.
 * Shows in results: shared memory is all ones (NaN) before each block, and so is the target of a copy that has not been
 * waited for.
 * Left to sanitizers: under AddressSanitizer shared memory ends where it should, for reads too; under ThreadSanitizer each
 * GPU thread is a thread, so that what only barriers and tqg_warp_sync may order is reported with its source line, races
 * between blocks included. */
#ifndef TQ_SIMT_SIMT_H
#define TQ_SIMT_SIMT_H

#include <stddef.h>
#include <stdint.h>

enum { TQ_SIMT_MAX_THREADS = 1024 };

/* Operations of a launch; those of a warp or block count once. */
typedef struct tq_simt_counts {
    uint64_t blocks, switches, block_syncs, warp_ops, matrix_ops, copies16, bulk_copies;
} tq_simt_counts;

typedef struct tq_simt_grid {
    const char *name; /* of the kernel, for messages */
    int x, y, z;      /* blocks */
    int threads;      /* per block: a multiple of warp, at most TQ_SIMT_MAX_THREADS */
    int shared_bytes;
    int warp;               /* 32 or 64 */
    unsigned seed;          /* 0: blocks, warps and lanes in ascending order; 1: descending; else shuffled */
    int index, count;       /* this call runs every count-th block in the seed's order, from index; count 0: all */
    tq_simt_counts *counts; /* added to; NULL */
} tq_simt_grid;

/* Runs the blocks of a grid one after another. NULL, or message, which then says what went wrong; the blocks that come later
 * are not run. Several threads may launch at the same time. */
const char *tq_simt_launch(const tq_simt_grid *grid, void (*kernel)(const void *params), const void *params,
                           char *message, size_t message_bytes);

#endif
