/* tq.h: attention over TurboQuant key/value caches.
 *
 * libtq plans and launches generated kernels. A plan is made once from a shape; a launch runs it. Launches allocate
 * nothing, take the caller's workspace and are called by every thread of the caller's pool with its index.
 *
 * Conventions
 *   shapes      head_dim values per head vector of q and K, tq_v_head_dim(head_dim) per one of V and of outputs;
 *               n_kv_heads KV heads; gqa query heads share one KV head, so query head h reads KV head h / gqa. Of more
 *               than 16 (128 in DeepSeek's latent attention) the caller makes groups: a launch each, that read one
 *               cache. Value strides are counted in floats, cache strides in bytes.
 *   alignment   float arrays 4 bytes, cache rows 2 bytes, workspace 64 bytes; tiles on the CPU 64 bytes, and all their
 *               strides; on other devices tq_cache.data 16 bytes, and all strides of tiled caches 16 bytes.
 *   devices     on the CPU (device NULL) all pointers are host pointers. On any other device the structs, and the
 *               tq_cache structs in them, are host memory, while every array that they name, and the workspace, is
 *               memory of that device. What lies in arrays there is not looked at before a launch: kernels clamp
 *               first_slot and n_kv to what the cache holds, and NaN or Inf show in the output (tq_append tells them by
 *               its status).
 *   positions   a sequence of n_kv keys occupies cache slots 0 .. n_kv-1; the query stands at position n_kv-1.
 *   errors      every function that can fail returns tq_status; tq_error_message() then tells, for the calling thread,
 *               which argument was wrong, what was found and what is legal. On failure nothing is written.
 *   threads     a plan is immutable after tq_plan_create and may be used by any number of threads. Two launches that
 *               run at the same time need two workspaces. Everything else is safe to call from any thread.
 */
#ifndef TQ_H
#define TQ_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(TQ_BUILDING) && defined(__GNUC__)
#define TQ_API __attribute__((visibility("default")))
#else
#define TQ_API
#endif

#define TQ_VERSION "0.1.0"

typedef enum tq_status {
    TQ_OK = 0,
    TQ_ERR_ARGUMENT,    /* an argument is NULL or outside its legal range */
    TQ_ERR_UNSUPPORTED, /* legal, but this build holds no kernel for it; the message names the tqgen line for one */
    TQ_ERR_DEVICE,      /* no such device, or it lacks what the pinned kernel needs */
    TQ_ERR_NOT_FINITE,  /* NaN or Inf in the input */
    TQ_ERR_MEMORY,      /* allocation failed */
    TQ_ERR_IO,          /* a file could not be read or written */
    TQ_ERR_FILE_FORMAT, /* a tuning file is corrupt or of another program */
    TQ_ERR_WORKSPACE,   /* too small, misaligned, or not initialised for this plan */
} tq_status;

/* A constant English phrase; never NULL. */
TQ_API const char *tq_status_string(tq_status status);
/* The sentence behind the last failure on the calling thread; "" if there was none. Valid until the next failure. */
TQ_API const char *tq_error_message(void);
TQ_API const char *tq_version_string(void);

/* ---- devices ---------------------------------------------------------------------------------------------------- */

typedef struct tq_device tq_device;

/* Devices of this machine; index 0 is always the CPU. Then come "simt:32" and "simt:64", which run GPU kernels of that
 * many lanes per warp on the CPU, slowly, to test them; then the GPUs that the drivers of this machine offer ("cuda:0",
 * "hip:0"). Only the CPU is ever taken for a device that was not named. */
TQ_API int tq_device_count(void);
/* NULL if index is outside 0 .. tq_device_count()-1. Devices live as long as the process. */
TQ_API const tq_device *tq_device_at(int index);
/* By name ("cpu", "simt:32", "cuda:0", "hip:1"); TQ_ERR_DEVICE lists what there is. */
TQ_API tq_status tq_device_find(const char *name, const tq_device **out);
/* What --device takes. */
TQ_API const char *tq_device_name(const tq_device *device);
/* The model as the hardware names itself, e.g. "AMD EPYC 9654"; the key of its tuning file. */
TQ_API const char *tq_device_model(const tq_device *device);
/* Space-separated features that targets may need, e.g. "avx2 fma f16c", "sm_80 sm_86", "gfx1201", "simt32". */
TQ_API const char *tq_device_features(const tq_device *device);
/* Does this device run kernels of that target ("c", "x86-64-v3", "sm_90")? 1 or 0. */
TQ_API int tq_device_runs(const tq_device *device, const char *target);

typedef struct tq_device_info {
    const char *name, *model;
    const char *kind;    /* "cpu", "simt", "cuda", "hip" */
    int warp;            /* lanes per warp; 1 on the CPU */
    int multiprocessors; /* 1 on the CPU and on SIMT devices */
    size_t shared_bytes; /* shared memory that one block may have; 0 on the CPU */
    size_t memory_bytes; /* 0: unknown */
} tq_device_info;

TQ_API tq_status tq_device_describe(const tq_device *device, tq_device_info *out);

/* Memory of a device and time on it, for programs that have no better means; device NULL is the CPU. On the CPU and on
 * SIMT devices this is ordinary memory, 2 MiB and more of it in huge pages where the system has them: decoding a long
 * cache takes up to a quarter less time then. An engine with an allocator of its own gets the same by
 * madvise(MADV_HUGEPAGE). Aligned to 256 bytes, contents undefined; TQ_ERR_MEMORY.
 * Copies return when they are done, and come behind what was launched on the default stream (stream NULL); synchronise
 * first where other streams are used. */
TQ_API tq_status tq_device_alloc(const tq_device *device, size_t bytes, void **out);
TQ_API void tq_device_free(const tq_device *device, void *memory); /* NULL is fine */
TQ_API tq_status tq_device_copy_in(const tq_device *device, void *to, const void *host, size_t bytes);
TQ_API tq_status tq_device_copy_out(const tq_device *device, void *host, const void *from, size_t bytes);
/* Waits for all that was launched on stream; NULL: on the whole device. Reports what went wrong meanwhile. */
TQ_API tq_status tq_device_synchronise(const tq_device *device, void *stream);

/* What the device does between start and stop, on one stream, in nanoseconds: device events on GPUs, the clock on the
 * CPU. SIMT devices count operations instead. Stop waits for the end. One thread at a time uses a timer. */
typedef struct tq_timer tq_timer;
TQ_API tq_status tq_timer_create(const tq_device *device, tq_timer **out);
TQ_API void tq_timer_destroy(tq_timer *timer); /* NULL is fine */
TQ_API tq_status tq_timer_start(tq_timer *timer, void *stream);
TQ_API tq_status tq_timer_stop(tq_timer *timer, void *stream, double *ns);

/* ---- formats ---------------------------------------------------------------------------------------------------- */

/* What the encoder stores as scale; every decoder is the same. (EDEN 2021, TurboQuant 2025; see docs/formats.md) */
typedef enum tq_scale_mode {
    TQ_SCALE_DEFAULT = 0, /* TQ_SCALE_SEARCHED where the format has it, else its only mode */
    TQ_SCALE_NONE,        /* the norm of the chunk, as in the TurboQuant paper, in every block */
    TQ_SCALE_NC,          /* norm-corrected: the decoded chunk has exactly the norm of the input */
    TQ_SCALE_SEARCHED,    /* per block: try several scales, refit by least squares, keep the best */
} tq_scale_mode;

typedef struct tq_format_info {
    const char *name;
    int head_dim;
    int bits;               /* per index; 16 for f16 */
    int block;              /* values per stored scale; 1 for f16 */
    int row_bytes;          /* one head vector */
    int rotated;            /* 1: stored in the Hadamard domain */
    double bytes_per_value; /* row_bytes / head_dim */
    const char *modes;      /* space-separated scale modes, the default first; "" if there is no choice */
} tq_format_info;

/* Formats are named, never numbered. Count over all (format, head_dim) of this build, in registry order. */
TQ_API int tq_format_count(void);
TQ_API tq_status tq_format_at(int index, tq_format_info *out);
/* TQ_ERR_UNSUPPORTED lists the legal names or head_dims. */
TQ_API tq_status tq_format_find(const char *name, int head_dim, tq_format_info *out);
/* "none", "nc", "searched", "default"; TQ_ERR_ARGUMENT otherwise. */
TQ_API tq_status tq_scale_mode_parse(const char *name, tq_scale_mode *out);
TQ_API const char *tq_scale_mode_name(tq_scale_mode mode);

/* Values of a V row, and of an output, where K rows and q have head_dim: as many, except in multi-head latent attention,
 * whose K rows of 576 values go with V rows of 512. A V cache of those is appended to, dequantised and repacked as one of
 * head_dim 512. */
TQ_API int tq_v_head_dim(int head_dim);

/* How a cache holds one format. Layout "rows": a unit is the row of one token. Tiled layouts ("tile_mma", "tile_wmma",
 * "tile_mfma", "tile_lane") serve GPUs: a unit is the tile of keys_per_unit tokens of one KV head, in whose bytes they
 * lie interleaved. */
typedef struct tq_layout_info {
    const char *name;
    int keys_per_unit;
    size_t unit_bytes;
} tq_layout_info;

/* TQ_ERR_UNSUPPORTED lists the layouts that this build has for the format. */
TQ_API tq_status tq_layout_find(const char *layout, const char *format, int head_dim, tq_layout_info *out);

/* ---- variants --------------------------------------------------------------------------------------------------- */

typedef enum tq_op {
    TQ_OP_DECODE = 0,
    TQ_OP_APPEND,
    TQ_OP_DEQUANTISE,
    TQ_OP_REPACK,
    TQ_OP_PREFILL,
} tq_op;
typedef enum tq_side { TQ_SIDE_K = 0, TQ_SIDE_V } tq_side;

TQ_API const char *tq_op_name(tq_op op);
TQ_API tq_status tq_op_parse(const char *name, tq_op *out);

typedef struct tq_variant_info {
    const char *name; /* tq_<op>_<contract>__<implementation>; also the symbol, the test name and what pin takes */
    tq_op op;
    int head_dim;
    int gqa;            /* 0 where the op has no query heads */
    const char *k, *v;  /* formats; NULL on the side that the op does not touch */
    const char *layout; /* "rows", "tile_mma"; of repack: that of the tiles */
    const char *target; /* "c", "x86-64-v3", "sm_90" */
    uint64_t key;       /* changes when the generated code changes; tuning rows with another key are ignored */
    int runs_here;      /* 1 if some device of this machine runs it, be it a SIMT device */
    const char *kind;   /* of the devices that it is for: "cpu", "simt", "cuda", "hip" */
    const char *device; /* name of the first device of this machine that runs it; NULL if there is none */
} tq_variant_info;

TQ_API int tq_variant_count(void);
TQ_API tq_status tq_variant_at(int index, tq_variant_info *out);

/* A generated library that stands alone offers one of these; adding it makes its variants known to later plans, ahead
 * of those that were there.
 * Call before other threads use libtq. Adding one twice is harmless. */
typedef struct tq_registry tq_registry;
TQ_API tq_status tq_registry_add(const tq_registry *registry);

/* ---- plans ------------------------------------------------------------------------------------------------------ */

typedef enum tq_effort {
    TQ_EFFORT_DEFAULT = 0, /* tuning file if it knows this shape, else the registry's order */
    TQ_EFFORT_MEASURE,     /* time every candidate now, on the plan's device (a fraction of a second each) */
    TQ_EFFORT_FILE_ONLY,   /* TQ_ERR_UNSUPPORTED unless the tuning file decides */
    TQ_EFFORT_PINNED,      /* exactly desc.pin */
} tq_effort;

typedef struct tq_plan_desc {
    size_t struct_size; /* sizeof(tq_plan_desc); set by TQ_PLAN_DESC_INIT */
    tq_op op;
    tq_side side; /* append, dequantise, repack: which half of the cache */
    int head_dim; /* of K; append, dequantise, repack: of `side` */
    int n_kv_heads;
    int gqa;              /* decode, prefill: query heads per KV head */
    const char *k_format; /* decode, prefill: both; append, dequantise, repack: the one of `side` */
    const char *v_format;
    const char *layout; /* of the cache; repack: of its tiles; NULL means "rows" */
    int max_batch;      /* decode: sequences per launch, at most; sizes the workspace */
    int max_n_kv;       /* decode: keys per sequence, at most */
    int n_threads;      /* CPU: threads that will launch; guides the number of splits; prefill: at most */
    int n_splits; /* decode: key ranges per (sequence, KV head); 0 chooses; 64 at most, 1024 on GPUs; prefill on the CPU:
                   * the same of a few queries (144 with their query heads) */
    int max_bias_pairs; /* decode, prefill: pairs of a score bias, at most; 0 to 64, 0: launches have none */
    tq_effort effort;
    const char *pin;         /* TQ_EFFORT_PINNED: a variant name */
    const char *tuning_file; /* NULL: $TQ_TUNING if that file exists, else none */
} tq_plan_desc;

#define TQ_PLAN_DESC_INIT                                                                                              \
    {                                                                                                                  \
        sizeof(tq_plan_desc), TQ_OP_DECODE, TQ_SIDE_K, 0, 1, 1, NULL, NULL, NULL, 1, 1, 1, 0, 0, TQ_EFFORT_DEFAULT,    \
            NULL, NULL                                                                                                 \
    }

typedef struct tq_plan tq_plan;

/* Strings in desc are copied. device NULL means the CPU. *out is NULL on failure. */
TQ_API tq_status tq_plan_create(const tq_device *device, const tq_plan_desc *desc, tq_plan **out);
TQ_API void tq_plan_destroy(tq_plan *plan); /* NULL is fine */
TQ_API const char *tq_plan_variant(const tq_plan *plan);
/* One sentence: what decided (pin, tuning row, measurement, registry order) and against which others. */
TQ_API const char *tq_plan_why(const tq_plan *plan);
/* Other candidates of this plan's contract that run here, best first; NULL when index is past the last. */
TQ_API const char *tq_plan_runner_up(const tq_plan *plan, int index);
TQ_API int tq_plan_splits(const tq_plan *plan);
/* Bytes that a launch needs, on the plan's device; 0 for other ops than decode and, on the CPU, prefill. */
TQ_API size_t tq_plan_workspace_bytes(const tq_plan *plan);
/* Once per workspace, before its first launch and whenever it goes to another plan, or after a launch that failed on
 * the device. 64-byte aligned. On GPUs it fills the arrival counters through the default stream and waits for that. */
TQ_API tq_status tq_workspace_init(const tq_plan *plan, void *workspace, size_t bytes);

/* ---- launches --------------------------------------------------------------------------------------------------- */

/* CPU: every thread of the caller's pool makes the same call with its own thread_index; the call returns when this
 * thread's share is done. Results are complete once all threads have returned, and do not depend on thread_count.
 * Other devices: the thread with index 0 enqueues on stream and returns at once, without allocating or waiting, so that
 * launches can be captured in a graph; the calls of all other threads do nothing. SIMT devices are done on return. */
typedef struct tq_launch {
    void *workspace;
    size_t workspace_bytes;
    int thread_index; /* 0 .. thread_count-1 */
    int thread_count; /* >= 1 */
    void *stream;     /* CUstream, hipStream_t; NULL: the default stream. The CPU takes no notice of it */
} tq_launch;

/* Packed rows, or tiles. Slot t of a head lies in unit u = t / keys_per_unit of its layout: a row (keys_per_unit 1) or
 * a tile. The unit of (sequence s, KV head h, slot t) starts at
 *   contiguous caches   data + s*seq_stride + h*head_stride + u*token_stride
 *   paged caches        data + page*page_stride + h*head_stride + (u of the page's first slot taken away)*token_stride,
 *                       page = pages[s*pages_stride + t/page_slots]
 * in bytes; token_stride is the distance between units. Strides of rows are multiples of 2; see above for tiles.
 * Head-contiguous (head_stride = n_slots*row_bytes) is fastest. Token-interleaved (head_stride < token_stride) loses little
 * where a thread decodes several heads: they take turns at every step. Units must not overlap, but where a cache is only
 * read, seq_stride 0 lets all sequences share it.
 * Devices other than the CPU may read whole aligned 16-byte words that hold part of a row; token_stride and page_stride
 * there are below 4 GiB, and a page table entry that names no page of the buffer is the caller's error, which nobody
 * notices. Entries for slots that a launch does not touch are not read. */
typedef struct tq_cache {
    void *data;
    size_t bytes; /* size of the whole buffer; every unit must lie inside */
    size_t seq_stride, head_stride, token_stride;
    int n_slots;    /* tokens that one head's region holds; paged: that pages[] of one sequence can name */
    int page_slots; /* tokens per page: a power of two, and a multiple of keys_per_unit, of rows on the CPU of 16; 0:
                           * contiguous */
    const int32_t *pages; /* page numbers, on the device; NULL: contiguous */
    size_t page_stride;   /* bytes between pages; seq_stride is not used then */
    int pages_stride;     /* entries of pages[] per sequence, at least n_slots / page_slots */
} tq_cache;

typedef struct tq_append_args {
    int batch, n_tokens; /* n_tokens new tokens for each of batch sequences */
    const float *x;      /* (s, t, h): x + s*x_seq_stride + t*x_token_stride + h*x_head_stride, head_dim floats */
    size_t x_seq_stride, x_token_stride, x_head_stride; /* in floats */
    const int32_t *first_slot;                          /* [batch]: slot of the first new token */
    const tq_cache *cache;
    const float *mean; /* [n_kv_heads][head_dim], subtracted first (K-centring); NULL: none. Fixed for the life
                                * of a cache; softmax does not see it on K */
    tq_scale_mode mode;
    int32_t
        *status; /* GPU devices: becomes 1 if a row held NaN or Inf, and is left alone otherwise; NULL: not wanted */
} tq_append_args;

/* Quantises and stores. NaN or Inf in this thread's share: TQ_ERR_NOT_FINITE and nothing of the share is stored. On
 * GPUs such rows are not stored, all others are, and *args->status tells. Tiles hold one scale per rotated chunk: there
 * the searched mode fits that one. */
TQ_API tq_status tq_append(const tq_plan *plan, const tq_append_args *args, const tq_launch *launch);

typedef enum tq_value_type { TQ_F32 = 0, TQ_F16 } tq_value_type;

typedef struct tq_dequantise_args {
    int batch, n_tokens;
    const tq_cache *cache;
    const int32_t *first_slot;                          /* [batch] */
    const float *mean;                                  /* added back; NULL: none */
    void *x;                                            /* out: floats, or halves; strides as in tq_append_args */
    size_t x_seq_stride, x_token_stride, x_head_stride; /* in values */
    tq_value_type x_type;                               /* TQ_F16 (nearest even, largest +-65504) on GPU devices only */
} tq_dequantise_args;

TQ_API tq_status tq_dequantise(const tq_plan *plan, const tq_dequantise_args *args, const tq_launch *launch);

/* Copies slots first_slot .. first_slot + n_tokens - 1 of each sequence from a cache of rows to one of tiles of the
 * same format, or back. Bits are moved, not values: there and back again is the identity, except that a tile of GPU
 * devices has one scale per rotated chunk where a row of some modes has several. */
typedef struct tq_repack_args {
    int batch, n_tokens;
    const tq_cache *rows, *tiles;
    const int32_t *first_slot; /* [batch] */
    int to_tiles;              /* 1: rows to tiles; 0: tiles to rows */
    int32_t
        *n_inexact; /* GPU devices, to tiles: grows by the rows whose scales differ within a chunk, of which their tile
                                * takes the first; NULL: not wanted */
} tq_repack_args;

TQ_API tq_status tq_repack(const tq_plan *plan, const tq_repack_args *args, const tq_launch *launch);

/* A bias of logits that depends on nothing but the query head and the position of the key: what RoPE-centring takes out
 * of K before it is stored, and has to give back. With the angle a = turns[p] * j at position j
 *   b_h(j) = sum_p alpha_hp cos(a) + beta_hp sin(a)
 * in two steps: (alpha, beta) are turned by the angle of position j - j % TQ_BIAS_RUN, and multiply the cosine and sine of
 * turns[p] * (j % TQ_BIAS_RUN) as the table has them. The rounding of the table is part of the definition, so that an
 * encoder that subtracts by the same table takes out exactly what all devices give back. */
enum { TQ_BIAS_RUN = 32 };

typedef struct tq_score_bias {
    int n_pairs;           /* 1 .. the plan's max_bias_pairs */
    const uint32_t *turns; /* [n_pairs] angle from one position to the next; 2^32 is a full turn */
    const uint16_t *table; /* [n_pairs][2][TQ_BIAS_RUN] as tq_score_bias_table fills it */
    const float
        *coefficients; /* alpha, beta of (s, h, p): coefficients + s*seq_stride + h*head_stride + 2*p, in units of
                                * q.k; of query i of a prefill + i*token_stride */
    size_t seq_stride, token_stride, head_stride; /* in floats */
} tq_score_bias;

/* Cosines, then sines, of turns[p] * i for i < TQ_BIAS_RUN, as IEEE halves rounded to nearest; all in host memory. A model
 * needs it once: it depends on nothing but the frequencies of its RoPE. */
TQ_API tq_status tq_score_bias_table(const uint32_t *turns, int n_pairs, uint16_t *table);

/* out[h] = sum_j softmax_j(logit_j) v_j over the keys that are visible, with
 *   logit_j = cap(scale * (q_h . k_j + b_h(j))) + alibi[h] * (j - (n_kv-1)),
 *   cap(z) = softcap * tanh(z / softcap) if softcap > 0, else z,
 * a key j visible if n_kv - window <= j < n_kv (window 0: all), and one extra logit sink_logits[h] without a value.
 * A row without visible keys gives zeros (lse = -inf without a sink logit). NaN or Inf in q: TQ_ERR_NOT_FINITE.
 * Work is fused: online softmax (Milakov 2018), q rotated once, the output rotated back once, every decoded K and V
 * shared by the gqa query heads of its KV head, split-KV partials combined by the last thread to arrive. */
typedef struct tq_decode_args {
    int batch;
    const float *q; /* (s, h): q + s*q_seq_stride + h*q_head_stride, head_dim floats; h < n_kv_heads*gqa */
    size_t q_seq_stride, q_head_stride;
    const tq_cache *k, *v;
    const int32_t *n_kv;       /* [batch], 0 .. min(plan's max_n_kv, n_slots) */
    float scale;               /* > 0; usually 1/sqrt(head_dim) */
    float softcap;             /* 0: none */
    int window;                /* 0: none */
    const tq_score_bias *bias; /* NULL: none */
    const float *alibi;        /* [n_kv_heads*gqa] slopes; NULL: none */
    const float *sink_logits;  /* [n_kv_heads*gqa], finite or -INFINITY (none for that head); NULL: none */
    int n_sink;                /* slots 0 .. n_sink-1 are read from sink_k, sink_v (f16 rows) instead, from which
                               * the caller has subtracted the same mean, or RoPE-rotated mean, as the cache has; 0: none */
    const tq_cache *sink_k, *sink_v;
    float *out; /* (s, h): out + s*out_seq_stride + h*out_head_stride, as many floats as a row of V has values */
    size_t out_seq_stride, out_head_stride;
    float *lse; /* [batch][n_kv_heads*gqa] natural log of the softmax denominator; NULL: not wanted */
} tq_decode_args;

TQ_API tq_status tq_decode(const tq_plan *plan, const tq_decode_args *args, const tq_launch *launch);

/* Attention of several new tokens per sequence, whose keys and values the cache already holds: query i of
 * n_query[s] stands at position n_kv[s] - n_query[s] + i, and its logits and output are those of tq_decode with the keys
 * up to that position, or, if not causal, with all n_kv[s]. Nothing is written for queries i >= n_query[s]. On the CPU
 * thread_count is at most the plan's n_threads. Every K and V is decoded once for a block of queries, to float32. */
typedef struct tq_prefill_args {
    int batch, max_query;
    const float *q; /* (s, i, h): q + s*q_seq_stride + i*q_token_stride + h*q_head_stride; i < max_query */
    size_t q_seq_stride, q_token_stride, q_head_stride; /* in floats */
    const tq_cache *k, *v;
    const int32_t *n_kv, *n_query; /* [batch]; n_kv includes the new tokens */
    float scale, softcap;
    int window, causal;
    const tq_score_bias *bias;        /* NULL: none */
    const float *alibi, *sink_logits; /* [n_kv_heads*gqa]; NULL: none */
    float *out;                       /* as q */
    size_t out_seq_stride, out_token_stride, out_head_stride;
    float *lse; /* [batch][max_query][n_kv_heads*gqa]; NULL: not wanted */
} tq_prefill_args;

TQ_API tq_status tq_prefill(const tq_plan *plan, const tq_prefill_args *args, const tq_launch *launch);

#ifdef __cplusplus
}
#endif
#endif
