/* support.h: what the tests share: seeded randomness, guarded buffers, threads, decode problems with their answers. */
#ifndef TQ_TEST_SUPPORT_H
#define TQ_TEST_SUPPORT_H

#include "internal.h"
#include "reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif
#ifndef SLOW /* fewer cases: under sanitizers, and where the build says so, for emulators */
#define SLOW SANITIZED
#endif

#define assert_near(a, b, tolerance) assert_true(fabs((double)(a) - (double)(b)) <= (tolerance))

/* The call failed as it should, and its sentence names what was wrong. */
#define assert_refused(call, status, word) check_refused(call, status, word, #call, __FILE__, __LINE__)
void check_refused(tq_status found, tq_status expected, const char *word, const char *call, const char *file, int line);

/* ---- randomness ------------------------------------------------------------------------------------------------- */

/* $TQ_TEST_SEED, or a fixed number; printed when first asked for. */
uint64_t test_seed(void);

typedef struct random_state {
    uint64_t state;
} random_state;

/* Streams of one seed are independent of each other. */
random_state random_stream(uint64_t stream);
uint64_t random_bits(random_state *r);
double random_uniform(random_state *r); /* [0, 1) */
double random_normal(random_state *r);
void random_normals(random_state *r, float *x, int n);
/* The first n normals of a stream, made once; until the next call for that stream. */
const float *normals_of(uint64_t stream, int n);

/* Every how manieth of n cases a test takes: $TQ_TEST_STRIDE, else one that leaves about `wanted` of them (a quarter
 * where it is slow) and is odd, so that it meets all formats in turn. */
int test_stride(int n, int wanted);

/* ---- memory ----------------------------------------------------------------------------------------------------- */

/* Exactly `bytes` bytes that begin `offset` bytes after an aligned address. Under AddressSanitizer the first byte
 * beyond them traps; otherwise canaries around them show what was written there. */
typedef struct buffer {
    uint8_t *data, *memory;
    size_t bytes;
} buffer;

buffer buffer_new(size_t bytes, size_t offset);
int buffer_intact(const buffer *b);
/* Frees and asserts that the canaries are whole. */
void buffer_free(buffer *b);

/* Contiguous caches of rows. */
static inline uint8_t *tq_cache_row(const tq_cache *cache, int sequence, int kv_head, int slot) {
    return (uint8_t *)cache->data + (size_t)sequence * cache->seq_stride + (size_t)kv_head * cache->head_stride +
           (size_t)slot * cache->token_stride;
}

/* Cache rows of n_kv_heads heads and n_slots tokens for each of batch sequences, in an exact buffer whose address is an
 * odd multiple of 2. Fills in everything of *cache. */
buffer cache_new(tq_cache *cache, int batch, int n_kv_heads, int n_slots, int row_bytes, int interleaved);

/* ---- variants --------------------------------------------------------------------------------------------------- */

/* The spec of a format as the reference uses it: one pointer for all targets. */
const tq_format_spec *spec_of(const char *name, int head_dim);

/* Rows of 16-bit floats, as sink tokens are, whether the build has kernels for them or not; one pointer for each. */
const tq_format_spec *f16_rows(int head_dim);

/* The variants of an op that the CPU runs (with $TQ_TEST_ONLY in their names, if that is set), sorted so that
 * implementations of one contract are adjacent; prints how many it does not run. The caller frees the array. */
const tq_variant **variants_here(tq_op op, int *count);
int same_contract(const tq_variant *a, const tq_variant *b);

/* A pinned plan on the first device that runs the variant; fails the test if there is none. */
tq_plan *plan_pinned(const tq_variant *variant, tq_side side, int n_kv_heads, int batch, int max_n_kv, int n_splits);
/* The same, for more than one thread that launches. */
tq_plan *plan_for_threads(const tq_variant *variant, tq_side side, int n_kv_heads, int batch, int max_n_kv,
                          int n_splits, int n_threads);

/* ---- devices ---------------------------------------------------------------------------------------------------- */

/* Variants of GPU targets that a device of this machine runs, be it a SIMT device; sorted and chosen as above. The
 * caller frees the array. */
const tq_variant **gpu_variants_here(tq_op op, int *count);
/* The first device that runs a variant. */
const tq_device *device_for(const tq_variant *variant);

/* Memory of a device that begins `offset` bytes after an aligned address and is all ones (NaN) at first; guarded as
 * buffers are. Up to the next multiple of 16 bytes it may be read, as kernels may. */
typedef struct device_buffer {
    const tq_device *device;
    uint8_t *data;
    void *memory;
    size_t bytes, offset;
} device_buffer;

device_buffer device_new(const tq_device *device, size_t bytes, size_t offset);
/* Of n bytes from host. */
device_buffer device_copy(const tq_device *device, const void *host, size_t n, size_t offset);
void device_read(const device_buffer *b, void *host);
/* Frees and asserts that the canaries are whole. */
void device_buffer_free(device_buffer *b);

/* A copy of rows on a device, in the layout of a variant. More slots than there are rows follow; they, pages of nobody
 * and the rest of a tile are all ones. Pages are in random order. */
typedef struct device_cache {
    tq_cache cache;
    device_buffer data, pages;
    const tq_format_spec *format;
    tq_side side;
    const char *layout;
    int keys_per_unit;
} device_cache;

enum { EXTRA_SLOTS = 37 };

/* page_slots 0: contiguous. rows NULL: empty, for n_slots tokens. */
device_cache device_cache_new(const tq_device *device, const tq_variant *variant, const tq_format_spec *format,
                              tq_side side, int batch, int n_kv_heads, int n_slots, int page_slots, int interleaved);
void device_cache_fill(device_cache *c, const tq_cache *rows, int batch, int n_kv_heads);
/* The other way round: slots 0 .. rows->n_slots-1, from tiles by tq_ref_pack. */
void device_cache_read(const device_cache *c, tq_cache *rows, int batch, int n_kv_heads);
void device_cache_free(device_cache *c);

/* ---- threads ---------------------------------------------------------------------------------------------------- */

/* Calls f(argument, index, count) from count threads at once; returns the worst status. */
tq_status run_threads(int count, tq_status (*f)(void *argument, int index, int count), void *argument);

/* ---- decode problems -------------------------------------------------------------------------------------------- */

enum { BANK_ROWS = 1024, MAX_BATCH = 8 };

/* Packed rows of realistic vectors: Gaussian with outlier channels and, on K, a common mean. The same vectors for every
 * format of a head_dim and side. */
const uint8_t *bank_rows(const tq_format_spec *format, tq_side side);

typedef struct problem_spec {
    const tq_format_spec *k, *v;
    int n_kv_heads, gqa, batch;
    int n_kv[MAX_BATCH];
    int interleaved;
    float softcap;
    int window, alibi, sink_logits, n_sink; /* alibi and sink_logits: use them or not */
    int bias_pairs;                         /* of a score bias; 0: none */
    int large_bias;                         /* logits of tens: what rounding leaves of coefficients shows */
    int page_slots;                         /* of the caches that are launched with on the CPU; 0: contiguous */
    int first_row;                          /* of the bank */
    int spread_scales;                      /* blocks of odd KV heads differ in their scales; in the bank they do not */
    int growing;                            /* stored scales of V double every 128 slots: running maxima must follow */
    int outlier;                            /* slot of a row that stands out; 0: none */
    tq_ref_arithmetic arithmetic;           /* of the kernels that are judged */
} problem_spec;

typedef struct problem {
    problem_spec spec;
    tq_ref_shape shape;
    tq_cache k, v, sink_k, sink_v;
    tq_decode_args args;
    buffer k_rows, v_rows, sink_k_rows, sink_v_rows, q, n_kv, alibi, sink_logits, bias_numbers, out, lse;
    tq_score_bias bias; /* its arrays lie in bias_numbers */
    size_t n_out, n_heads;
    double *expected, *bound, *lse_expected, *lse_bound;
} problem;

problem *problem_new(const problem_spec *spec);
void problem_free(problem *p);
/* Runs the reference; again after the caller changed the caches or arguments. */
void problem_solve(problem *p);
/* Runs a plan of this shape, or a variant with a plan made for it, into p->out and p->lse. */
void problem_launch(problem *p, const tq_plan *plan, int n_threads);
void problem_run(problem *p, const tq_variant *variant, int n_splits, int n_threads);
/* The same on the device of a plan, with its caches in the plan's layout, contiguous (page_slots 0) or paged. Twice, on
 * SIMT devices with this and another order of blocks and threads: the bits must be the same. */
void problem_launch_on_device(problem *p, const tq_plan *plan, int page_slots, unsigned seed);
/* Judges p->out and p->lse; 1 if all is within bounds. Prints what is not. */
int problem_judge(const problem *p, const char *what, tq_ref_verdict *total);

#endif
