/* trial.h: the small problem that `tq tune` and the first run verify kernels on: caches as the reference and as the device
 * have them, and launches. */
#ifndef TQ_TRIAL_H
#define TQ_TRIAL_H

#include "contract.h"
#include "internal.h"
#include "pool.h"
#include "stats.h"

enum {
    TRIAL_KV_HEADS = 2,
    TRIAL_BATCH = 4,
    TRIAL_SLOTS = 300, /* of a head; tiles may have more behind them */
    TRIAL_ROWS = TRIAL_BATCH * TRIAL_KV_HEADS * TRIAL_SLOTS,
};

typedef struct trial {
    const contract *c;
    pool *pool;
    const tq_device *device;
    rng rng;
    bool on_cpu;
    const int32_t *no_slots; /* [TRIAL_BATCH] zeros, of the device */
} trial;

/* ---- values and formats: allocated memory is the caller's ------------------------------------------------------- */

float *trial_gaussian(trial *t, size_t n);
float *trial_to_device(const trial *t, const float *x, size_t n);
/* Rows of 16-bit floats are known, whether this build has kernels for them or not: sink tokens are such. */
const tq_format_spec *trial_format(const char *format, int head_dim);

/* ---- caches ----------------------------------------------------------------------------------------------------- */

/* What the reference sees, always rows, and what the device has: of rows on the CPU the same memory. */
typedef struct trial_cache {
    const tq_format_spec *spec;
    tq_side side;
    const char *layout;
    tq_cache rows, on_device;
    int keys_per_unit;
} trial_cache;

trial_cache trial_new_cache(const trial *t, tq_side side, const char *format, const char *layout);
/* Rows of Gaussian vectors. The CPU's come from its default kernel, those of other devices, whose kernels are less
 * known, from the reference. */
trial_cache trial_random_cache(trial *t, tq_side side, const char *format, const char *layout);
void trial_free_cache(const trial *t, trial_cache *c);
uint8_t *trial_row(const trial_cache *c, int i);
/* From what the reference sees to what the device has, and back. */
void trial_rows_to_device(const trial *t, const trial_cache *c);
void trial_rows_from_device(const trial *t, trial_cache *c);

/* ---- launches --------------------------------------------------------------------------------------------------- */

/* One of the arguments is set. */
typedef struct trial_flight {
    const tq_plan *plan;
    const tq_append_args *append;
    const tq_dequantise_args *dequantise;
    const tq_repack_args *repack;
    const tq_decode_args *decode;
    const tq_prefill_args *prefill;
    void *workspace;
    size_t workspace_bytes;
} trial_flight;

void trial_fly(void *flight, int thread_index, int thread_count);
/* variant NULL: the default one. */
tq_plan *trial_plan(const trial *t, const contract *c, const char *variant, int splits);
void trial_workspace(const trial *t, trial_flight *f);
/* x: of the device, [TRIAL_BATCH][TRIAL_SLOTS][TRIAL_KV_HEADS][head_dim], into every slot. */
void trial_append(const trial *t, const tq_plan *plan, const float *x, trial_cache *cache, tq_scale_mode mode);
/* Where x of trial_append has the values of cache row i. */
size_t trial_x_of(const tq_format_spec *spec, int i);

#endif
