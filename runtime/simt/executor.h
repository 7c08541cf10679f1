/* executor.h: what the files of the executor share. All of it belongs to one launch, which runs on one thread. */
#ifndef TQ_SIMT_EXECUTOR_H
#define TQ_SIMT_EXECUTOR_H

#include "context.h"
#include "sanitizer.h"
#include "simt.h"
#include "tq_simt.h"

#include <stdbool.h>

enum { MOST_LANES = 64, MOST_BULK_COPIES = 512, ALL_ONES = 0xff };

typedef enum wait { NOT_WAITING, FOR_WARP, FOR_BLOCK, FOR_COPY, EXITED } wait;

/* The copies of one thread that it has not waited for. */
typedef struct copy {
    tqg_u32 value[4], *to;
    unsigned group;
} copy;

typedef struct copy_queue {
    copy *copies;
    int n, room;
    unsigned group; /* that the next copy belongs to */
} copy_queue;

typedef struct bulk_copy {
    unsigned char *to;
    const unsigned char *from;
    tqg_u32 bytes;
    tqg_u64 *bar;
} bulk_copy;

/* Where a block runs: guard page, red zone, shared memory, red zone, guard page, then for each thread its stack and a guard
 * page. */
typedef struct memory {
    unsigned char *base, *shared, *stacks;
    size_t bytes, page, stack_bytes, shared_room;
    int threads;
    copy_queue *queues; /* of each thread */
    bulk_copy bulk[MOST_BULK_COPIES];
#ifdef SIMT_TSAN /* threads of blocks that run in the same memory are the same to ThreadSanitizer; its handles */
    unsigned blocks;
    void *fibers[TQ_SIMT_MAX_THREADS];
    char begun[2], block_met[2], warp_met[TQ_SIMT_MAX_THREADS / 32][2];
#endif
} memory;

/* ThreadSanitizer does not see that the threads of blocks in different memories run one after another. */
#ifdef SIMT_TSAN
enum { MEMORIES = 2 };
#else
enum { MEMORIES = 1 };
#endif

/* A GPU thread. It can go on once *gate differs from what it was when the thread began to wait. */
typedef struct fiber {
    tq_context context;
    const unsigned *gate;
    unsigned gate_was;
    int thread, lane;
    wait waits;
    const char *at;     /* where */
    struct fiber *next; /* lane of the same warp, in a ring */
    struct warp *warp;
    copy_queue *queue;
    tqg_u64 *bar; /* FOR_COPY: waits for the end of this phase of it */
    unsigned bar_parity;
    unsigned char *stack;
    size_t stack_bytes;
    void *tsan, *asan_stack;
} fiber;

/* What the lanes of a warp lay down where they meet. */
typedef union deposit {
    tqg_u32 value;
    struct {
        void *c;
        const tqg_u32 *a, *b;
    } matrix;
} deposit;

/* A lane can be one meeting ahead of others, which may still have to read what was laid down. */
typedef struct warp {
    deposit deposits[2][MOST_LANES];
    tqg_u64 votes[2];
    unsigned meeting;
    int arrived;
    const char *at;
    struct warp *next; /* in a ring */
    fiber *first;
} warp;

typedef struct block {
    const tq_simt_grid *grid;
    int x, y, z;
    unsigned char *shared;
    void (*kernel)(const void *);
    const void *params;
    fiber *running;
    tq_context home; /* the launch itself */
    fiber *fibers;
    warp *warps;
    int n_warps, n_exited;
    unsigned open, closed; /* gates: of threads that have not begun, of those that wait for none */
    unsigned barrier;      /* counts barriers passed */
    int arrived;
    const char *at;
    int last_arrival[2];
    bulk_copy *bulk;
    int n_bulk;
    bool failed;
    char *message;
    size_t message_bytes;
    memory *memories[MEMORIES], *memory; /* of this block */
    char ended;                          /* ThreadSanitizer's handle */
    void *home_tsan, *home_asan;
    const void *home_stack;
    size_t home_stack_bytes;
    tq_simt_counts counts;
} block;

/* The block that this thread runs. */
extern _Thread_local block *simt_block __attribute__((tls_model("initial-exec")));

static inline SIMT_UNSEEN block *this_block(void) {
    return simt_block;
}

/* Runs a block whose threads are ready, until all have exited or one has failed. */
void simt_run_fibers(block *b);
void simt_fiber_main(void);
/* memory.c: stacks of at least so many threads, at least so much shared memory; NULL if there is none. */
memory *simt_take_memory(int threads, size_t shared_bytes);
void simt_give_memory(memory *m);
/* Makes shared memory all ones. */
void simt_begin_memory(memory *m, size_t shared_bytes);
unsigned char *simt_stack(const memory *m, int thread, size_t *bytes);
/* The block wrote outside its shared memory: *offset from its beginning. */
bool simt_overwritten(const memory *m, size_t shared_bytes, long *offset);

/* Lets others run until the gate of the thread that runs, which is set, opens. */
void simt_wait(block *b);
/* Called by each lane after its deposit: true for the one that comes last, which may compute for all and then calls
 * simt_part; the others return after that. */
bool simt_meet(block *b, const char *at);
void simt_part(block *b);
/* The phase of this parity has ended; ends it if its copies have all been issued. */
bool simt_bar_passed(block *b, tqg_u64 *bar, unsigned parity);
void simt_describe_bar(const tqg_u64 *bar, const block *b, char *text, size_t bytes);
void simt_multiply_lanes(tq_simt_matrix kind, const deposit *lanes);

#endif
