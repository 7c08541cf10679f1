/* tq.h: attention over TurboQuant key/value caches.
 *
 * libtq plans and launches generated kernels. A plan is made once from a shape; a launch runs it. Launches allocate
 * nothing, take the caller's workspace and are called by every thread of the caller's pool with its index.
 *
 * Conventions
 *   shapes      head_dim values per head vector; n_kv_heads KV heads; gqa query heads share one KV head, so query
 *               head h reads KV head h / gqa. Value strides are counted in floats, cache strides in bytes.
 *   alignment   float arrays 4 bytes, cache rows 2 bytes, workspace 64 bytes.
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

/* Devices of this machine; index 0 is always the CPU. */
TQ_API int tq_device_count(void);
/* NULL if index is outside 0 .. tq_device_count()-1. Devices live as long as the process. */
TQ_API const tq_device *tq_device_at(int index);
/* By name ("cpu"); TQ_ERR_DEVICE lists what there is. */
TQ_API tq_status tq_device_find(const char *name, const tq_device **out);
/* "cpu": what --device takes. */
TQ_API const char *tq_device_name(const tq_device *device);
/* The model as the hardware names itself, e.g. "AMD EPYC 9654"; the key of its tuning file. */
TQ_API const char *tq_device_model(const tq_device *device);
/* Space-separated features that targets may need, e.g. "avx2 fma f16c". */
TQ_API const char *tq_device_features(const tq_device *device);
/* Does this device run kernels of that target ("c", "x86-64-v3")? 1 or 0. */
TQ_API int tq_device_runs(const tq_device *device, const char *target);

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

/* ---- variants --------------------------------------------------------------------------------------------------- */

typedef enum tq_op { TQ_OP_DECODE = 0, TQ_OP_APPEND, TQ_OP_DEQUANTISE } tq_op;
typedef enum tq_side { TQ_SIDE_K = 0, TQ_SIDE_V } tq_side;

TQ_API const char *tq_op_name(tq_op op);
TQ_API tq_status tq_op_parse(const char *name, tq_op *out);

typedef struct tq_variant_info {
    const char *name; /* tq_<op>_<contract>__<implementation>; also the symbol, the test name and what pin takes */
    tq_op op;
    int head_dim;
    int gqa;            /* 0 where the op has no query heads */
    const char *k, *v;  /* formats; NULL on the side that the op does not touch */
    const char *layout; /* "rows" */
    const char *target; /* "c", "x86-64-v3" */
    uint64_t key;       /* changes when the generated code changes; tuning rows with another key are ignored */
    int runs_here;      /* 1 if the CPU of this machine runs it */
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
    TQ_EFFORT_MEASURE,     /* time every candidate now (a fraction of a second each) */
    TQ_EFFORT_FILE_ONLY,   /* TQ_ERR_UNSUPPORTED unless the tuning file decides */
    TQ_EFFORT_PINNED,      /* exactly desc.pin */
} tq_effort;

typedef struct tq_plan_desc {
    size_t struct_size; /* sizeof(tq_plan_desc); set by TQ_PLAN_DESC_INIT */
    tq_op op;
    tq_side side; /* append and dequantise: which half of the cache */
    int head_dim;
    int n_kv_heads;
    int gqa;              /* decode: query heads per KV head */
    const char *k_format; /* decode: both; append, dequantise: the one of `side` */
    const char *v_format;
    const char *layout; /* NULL means "rows" */
    int max_batch;      /* decode: sequences per launch, at most; sizes the workspace */
    int max_n_kv;       /* decode: keys per sequence, at most */
    int n_threads;      /* threads that will launch; guides the number of splits */
    int n_splits;       /* decode: key ranges per (sequence, KV head); 0 chooses, 64 at most */
    tq_effort effort;
    const char *pin;         /* TQ_EFFORT_PINNED: a variant name */
    const char *tuning_file; /* NULL: $TQ_TUNING if that file exists, else none */
} tq_plan_desc;

#define TQ_PLAN_DESC_INIT                                                                                              \
    {                                                                                                                  \
        sizeof(tq_plan_desc), TQ_OP_DECODE, TQ_SIDE_K, 0, 1, 1, NULL, NULL, NULL, 1, 1, 1, 0, TQ_EFFORT_DEFAULT, NULL, \
            NULL                                                                                                       \
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
/* Bytes that a launch needs; 0 for append and dequantise. */
TQ_API size_t tq_plan_workspace_bytes(const tq_plan *plan);
/* Once per workspace, before its first launch and whenever it goes to another plan. 64-byte aligned. */
TQ_API tq_status tq_workspace_init(const tq_plan *plan, void *workspace, size_t bytes);

/* ---- launches --------------------------------------------------------------------------------------------------- */

/* Every thread of the caller's pool makes the same call with its own thread_index; the call returns when this thread's
 * share is done. Results are complete once all threads have returned, and do not depend on thread_count. */
typedef struct tq_launch {
    void *workspace;
    size_t workspace_bytes;
    int thread_index; /* 0 .. thread_count-1 */
    int thread_count; /* >= 1 */
} tq_launch;

/* Packed rows. The row of (sequence s, KV head h, slot t) starts at
 * data + s*seq_stride + h*head_stride + t*token_stride; strides are multiples of 2, in bytes.
 * Head-contiguous (head_stride = n_slots*row_bytes) is fastest; token-interleaved works by its strides. Rows must not
 * overlap, but where a cache is only read, seq_stride 0 lets all sequences share it. */
typedef struct tq_cache {
    void *data;
    size_t bytes; /* size of the whole buffer; every row must lie inside */
    size_t seq_stride, head_stride, token_stride;
    int n_slots; /* tokens that one head's region holds */
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
} tq_append_args;

/* Quantises and stores. NaN or Inf in this thread's share: TQ_ERR_NOT_FINITE and nothing of the share is stored. */
TQ_API tq_status tq_append(const tq_plan *plan, const tq_append_args *args, const tq_launch *launch);

typedef struct tq_dequantise_args {
    int batch, n_tokens;
    const tq_cache *cache;
    const int32_t *first_slot; /* [batch] */
    const float *mean;         /* added back; NULL: none */
    float *x;                  /* out, strides as in tq_append_args */
    size_t x_seq_stride, x_token_stride, x_head_stride;
} tq_dequantise_args;

TQ_API tq_status tq_dequantise(const tq_plan *plan, const tq_dequantise_args *args, const tq_launch *launch);

/* out[h] = sum_j softmax_j(logit_j) v_j over the keys that are visible, with
 *   logit_j = cap(scale * q_h . k_j) + alibi[h] * (j - (n_kv-1)),  cap(z) = softcap * tanh(z / softcap) if softcap > 0,
 * a key j visible if n_kv - window <= j < n_kv (window 0: all), and one extra logit sink_logits[h] without a value.
 * A row without visible keys gives zeros (lse = -inf without a sink logit). NaN or Inf in q: TQ_ERR_NOT_FINITE.
 * Work is fused: online softmax (Milakov 2018), q rotated once, the output rotated back once, every decoded K and V
 * shared by the gqa query heads of its KV head, split-KV partials combined by the last thread to arrive. */
typedef struct tq_decode_args {
    int batch;
    const float *q; /* (s, h): q + s*q_seq_stride + h*q_head_stride, head_dim floats; h < n_kv_heads*gqa */
    size_t q_seq_stride, q_head_stride;
    const tq_cache *k, *v;
    const int32_t *n_kv;      /* [batch], 0 .. min(plan's max_n_kv, n_slots) */
    float scale;              /* > 0; usually 1/sqrt(head_dim) */
    float softcap;            /* 0: none */
    int window;               /* 0: none */
    const float *alibi;       /* [n_kv_heads*gqa] slopes; NULL: none */
    const float *sink_logits; /* [n_kv_heads*gqa], finite or -INFINITY (none for that head); NULL: none */
    int n_sink;               /* slots 0 .. n_sink-1 are read from sink_k, sink_v (f16 rows) instead, from which
                               * the caller has subtracted the same mean if the cache has one; 0: none */
    const tq_cache *sink_k, *sink_v;
    float *out; /* (s, h): out + s*out_seq_stride + h*out_head_stride */
    size_t out_seq_stride, out_head_stride;
    float *lse; /* [batch][n_kv_heads*gqa] natural log of the softmax denominator; NULL: not wanted */
} tq_decode_args;

TQ_API tq_status tq_decode(const tq_plan *plan, const tq_decode_args *args, const tq_launch *launch);

#ifdef __cplusplus
}
#endif
#endif
