/* micro.h: what the kernels of micro.c take, for host and device. */
#ifndef TQ_MICRO_H
#define TQ_MICRO_H

#include "tq_gpu.h"

enum {
    MICRO_THREADS = 128,
    MICRO_BLOCKS = 4,   /* per multiprocessor */
    MICRO_STEPS = 16,   /* per round */
    MICRO_CHAINS = 8,   /* independent operations per step and thread */
    MICRO_MATRICES = 4, /* the same of matrix instructions, per warp */
    MICRO_TILE = 3200,  /* bytes of a bulk copy: what a turbo3 tile of K and one of V hold */
    MICRO_STAGES = 4,
    MICRO_RING_BYTES = MICRO_THREADS / 32 * MICRO_STAGES * (MICRO_TILE + 16),
};

typedef struct micro_params {
    const tqg_u8 *data; /* any; 16-byte aligned */
    tqg_u32 *out;       /* one word per thread, so that nothing is left out */
    tqg_i64 bytes;      /* of data, that are read */
    tqg_i32 rounds;
    tqg_i32 unused;
} micro_params;

#endif
