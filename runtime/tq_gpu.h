/* tq_gpu.h: what generated GPU kernels and the runtime share: the one argument of each kernel, and how a kernel is launched.
 * Kernel sources include it too, without any system header; the generator copies it beside what it writes.
 *
 * All pointers are device pointers. Every kernel takes exactly one argument, one of the structs below, by value.
 * Grids: decode (split, KV head, sequence); append, dequantise, repack (group of tokens, KV head, sequence); prefill
 * (block of queries, KV head, sequence). Blocks are one-dimensional. */
#ifndef TQ_GPU_H
#define TQ_GPU_H

#ifdef TQG_DEVICE_CODE
typedef signed char tqg_i8;
typedef unsigned char tqg_u8;
typedef unsigned short tqg_u16;
typedef int tqg_i32;
typedef unsigned int tqg_u32;
typedef long long tqg_i64;
typedef unsigned long long tqg_u64;
#else
#include <stdint.h>
typedef int8_t tqg_i8;
typedef uint8_t tqg_u8;
typedef uint16_t tqg_u16;
typedef int32_t tqg_i32;
typedef uint32_t tqg_u32;
typedef int64_t tqg_i64;
typedef uint64_t tqg_u64;
#endif

/* One side of a cache. A unit is one row (layout rows) or one tile of keys_per_tile slots (tiled layouts); slot t lies in
 * unit u = t / keys_per_tile. Contiguous (page_slots 0): unit u of (sequence s, KV head h) starts at
 *   data + s*seq_stride + h*head_stride + u*unit_stride;
 * paged: at data + pages[s*pages_stride + t/page_slots]*page_stride + h*head_stride + (u within its page)*unit_stride.
 * data and, for tiled layouts, all strides are multiples of 16; whole aligned 16-byte words that hold part of a row may be
 * read. */
typedef struct tqg_cache {
    tqg_u8 *data;
    const tqg_i32 *pages;                                      /* NULL: contiguous */
    tqg_i64 seq_stride, head_stride, unit_stride, page_stride; /* bytes */
    tqg_i32 pages_stride;                                      /* entries of pages per sequence */
    tqg_i32 page_slots; /* 0: contiguous; a power of two, and a multiple of keys_per_tile */
    tqg_i32 n_slots;
    tqg_i32 unused;
} tqg_cache;

/* A score bias: tq_score_bias of tq.h. */
typedef struct tqg_bias {
    const tqg_u32 *turns;      /* [n_pairs] */
    const tqg_u16 *table;      /* [n_pairs][2][32] */
    const float *coefficients; /* (s, t, h, pair): alpha, beta, natural units */
    tqg_i64 seq_stride, token_stride, head_stride;
    tqg_i32 n_pairs; /* 0: none; at most the kernel's bias_pairs */
    tqg_i32 unused;
} tqg_bias;

typedef struct tqg_decode_params {
    const float *q; /* (s, h): q + s*q_seq_stride + h*q_head_stride */
    tqg_i64 q_seq_stride, q_head_stride;
    tqg_cache k, v;
    tqg_cache sink_k, sink_v; /* f16 rows of slots 0 .. n_sink-1; data NULL: none */
    const tqg_i32 *n_kv;      /* [batch]; clamped to 0 .. n_slots */
    tqg_bias bias;            /* kernels without bias_pairs do not look at it */
    const float *alibi;       /* [n_kv_heads*gqa] natural units, as the caller has them on the device; NULL */
    const float *sink_logits; /* [n_kv_heads*gqa] natural units; NULL */
    float *out;               /* (s, h) */
    tqg_i64 out_seq_stride, out_head_stride;
    float *lse; /* [batch][n_kv_heads*gqa]; NULL */
    /* [batch][n_kv_heads][n_splits][gqa*(head_dim + 2)]: acc [gqa][of V], max [gqa], sum [gqa]. For one split too: until
     * a block has these, it keeps its prepared q there, [gqa][head_dim]. */
    float *partials;
    tqg_u32 *counters; /* [batch][n_kv_heads], 0 between launches: the last block to arrive combines, and resets */
    float factor;      /* scale * log2 e, or scale / softcap if there is a softcap */
    float softcap;     /* softcap * log2 e; 0: none */
    tqg_i32 window, n_sink;
    tqg_i32 n_kv_heads, n_splits;
    tqg_i32 min_split_keys; /* a split is never shorter, unless it is the only one */
    tqg_i32 unused;
} tqg_decode_params;

typedef struct tqg_prefill_params {
    const float *q; /* (s, t, h) */
    tqg_i64 q_seq_stride, q_token_stride, q_head_stride;
    tqg_cache k, v;
    const tqg_i32 *n_kv;    /* [batch], the new tokens included */
    const tqg_i32 *n_query; /* [batch]: query i of a sequence stands at position n_kv - n_query + i */
    tqg_bias bias;
    const float *alibi, *sink_logits; /* natural units */
    float *out;
    tqg_i64 out_seq_stride, out_token_stride, out_head_stride;
    float *lse; /* [batch][max_query][n_kv_heads*gqa]; NULL */
    float factor, softcap;
    tqg_i32 window, causal, n_kv_heads, max_query;
} tqg_prefill_params;

typedef struct tqg_append_params {
    const float *x; /* (s, t, h): x + s*x_seq_stride + t*x_token_stride + h*x_head_stride */
    tqg_i64 x_seq_stride, x_token_stride, x_head_stride;
    tqg_cache cache;
    const tqg_i32 *first_slot; /* [batch] */
    const float *mean;         /* [n_kv_heads][head_dim]; NULL */
    tqg_i32 *status;           /* set to 1 if a row held NaN or Inf; such rows are not stored; NULL */
    tqg_i32 n_tokens, mode;    /* tq_scale_mode */
} tqg_append_params;

typedef struct tqg_dequantise_params {
    void *x; /* (s, t, h), strides in values */
    tqg_i64 x_seq_stride, x_token_stride, x_head_stride;
    tqg_cache cache;
    const tqg_i32 *first_slot;
    const float *mean; /* added back; NULL */
    tqg_i32 n_tokens;
    tqg_i32 x_is_f16; /* else f32 */
} tqg_dequantise_params;

/* Rows to tiles or back, slots first_slot .. first_slot + n_tokens - 1; a pure permutation of bits where the scales of a row
 * agree within each rotation chunk. */
typedef struct tqg_repack_params {
    tqg_cache rows, tiles;
    const tqg_i32 *first_slot;
    tqg_i32 *n_inexact; /* counts rows whose block scales differ: their tiles take the first; NULL */
    tqg_i32 n_tokens;
    tqg_i32 to_tiles; /* else to rows */
} tqg_repack_params;

#ifndef TQG_DEVICE_CODE
/* How the runtime launches a kernel. */
typedef struct tqg_kernel {
    const char *symbol;               /* in its module */
    int module;                       /* of the registry */
    int threads;                      /* per block */
    int shared_bytes;                 /* dynamic */
    int keys_per_step;                /* decode: splits begin at multiples of it; others: tokens (queries) per block */
    int keys_per_tile;                /* of the layout; 1 for rows */
    short blocks_per_sm;              /* that the kernel is built for; guides the number of splits */
    short bias_pairs;                 /* of a score bias, at most */
    void (*simt)(const void *params); /* simt targets: the kernel, run once per thread; else NULL */
} tqg_kernel;

/* A code object of a GPU registry. */
typedef struct tqg_module {
    const char *name;
    const unsigned char *image; /* cubin or HSA code object */
    const unsigned char *end;
} tqg_module;
#endif

#endif
