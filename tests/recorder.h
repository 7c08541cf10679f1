/* recorder.h: kernels that only write down what they were given, registered for simt:32, whose memory is the host's. */
#ifndef TQ_TEST_RECORDER_H
#define TQ_TEST_RECORDER_H

#include "support.h"

enum { HEAD_DIM = 128, GQA = 4, HEADS = 3, BATCH = 2, SLOTS = 128, TILE_KEYS = 32, BIAS_PAIRS = 16 };

/* What reached the last kernel of each op. */
typedef struct recorded {
    tqg_decode_params decode;
    tqg_append_params append;
    tqg_dequantise_params dequantise;
    tqg_repack_params repack;
    tqg_prefill_params prefill;
} recorded;

extern recorded record;

/* TIRED dequantises, and fails. Tiles are of TILE_KEYS keys; the layout's name is "tile_test". */
enum { DECODE, DECODE_TILES, APPEND, APPEND_TILES, DEQUANTISE, REPACK, PREFILL, TIRED, N_RECORDERS };
extern tq_variant recorders[N_RECORDERS];
extern const tq_device *cpu, *simt32, *simt64;

/* Registers them, for turbo3; a group setup of cmocka. */
int recorder_set_up(void **state);

/* A pinned plan of HEADS heads for BATCH sequences. */
tq_plan_desc recorder_desc(int which);
tq_plan *recorder_plan(const tq_device *device, const tq_plan_desc *desc);

/* What ran since the last call: x blocks for each head and sequence. */
void assert_grid(int x);
void forget_grid(void);

#endif
