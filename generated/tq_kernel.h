/* tq_kernel.h: the contract between generated kernels and the runtime. The generator copies it beside what it writes,
 * so that a generated directory compiles alone. Nothing here is public. */
#ifndef TQ_KERNEL_H
#define TQ_KERNEL_H

#include "tq_gpu.h"

#include <stddef.h>
#include <stdint.h>

#define TQ_KERNEL_ABI 6

/* Bounds of what a kernel may assume; the generator refuses shapes beyond them. */
enum {
    TQ_MAX_HEAD_DIM = 576,
    TQ_MAX_GQA = 16,
    TQ_MAX_TILE = 128,      /* keys per softmax step, and of a tile */
    TQ_GROUP = 16,          /* keys whose rows lie at one stride */
    TQ_MAX_SCALES = 18,     /* stored scales per row */
    TQ_APPEND_ROWS = 16,    /* that are stored together */
    TQ_MAX_BIAS_PAIRS = 64, /* of a score bias */
    TQ_BIAS_STEP = 32,      /* positions whose angles have one start */
    TQ_MAX_ROWS = 384,      /* rows of q, (token, query head) each, that prefill takes at a time */
    TQ_ROWS_STEP = 12,      /* their number is a multiple of this, and so of what the products of any target take */
    TQ_MAX_SPLITS = 64,     /* of the keys of a sequence, on CPUs */
};

/* Values rotated together: size = pow2 * odd, T = R_odd (x) H_pow2, see docs/formats.md. */
typedef struct tq_chunk {
    int first_value, size, pow2, odd;
    int first_byte; /* where its first block starts in the row */
} tq_chunk;

/* A piece of a row and where it lies in a tile of CPU caches, see gen/tile_cpu.lua. Of key k of the tile, with group
 * k / 16, the piece of a header or of K begins at first + group * step + k % 16 * (bytes of the piece), byte y of other
 * pieces of V, with c = k / 4 % (4 / columns) * columns + column, lies at
 *   first + k / (16 / columns) * step + 4 * lane + k % 4,   lane = c / 2 * 8 + 2 * y + c % 2 of words, 2 * c + y of halves */
typedef enum tq_piece_kind { TQ_PIECE_HEADER, TQ_PIECE_WORD, TQ_PIECE_HALF } tq_piece_kind; /* 2, 4, 2 bytes */
typedef struct tq_piece {
    int kind, row; /* row: its first byte in rows */
    int k_first, k_step, v_first, v_step;
    int columns, column;
} tq_piece;

/* One format at one head_dim. Decoded value (rotated domain) = scale * step * centroid[index] * gain. */
typedef struct tq_format_spec {
    const char *name;
    int head_dim;
    int bits;  /* 16: f16 rows, and nothing below applies */
    int block; /* values per stored scale */
    int sub;   /* values per gain code; 0: no gains */
    int row_bytes;
    int rotated;
    int n_chunks;
    const tq_chunk *chunks;
    const int8_t *centroids; /* 1 << bits, ascending; NULL for 8-bit formats, whose index is the value */
    const int8_t *gains;     /* [16] signed, by code */
    const float *steps;      /* [n_chunks] */
    const uint32_t *k_signs; /* bit i of word j set: value 32j+i is negated before T; NULL if not rotated */
    const uint32_t *v_signs;
    int n_pieces;
    const tq_piece *pieces; /* NULL: no CPU kernels for tiles */
    const char *modes;      /* space-separated, default first */
} tq_format_spec;

/* ---- decode ----------------------------------------------------------------------------------------------------- */

/* What a stage reads in one softmax step: slots of one side of one KV head. */
typedef struct tq_keys {
    /* Rows: row 0 of every TQ_GROUP rows, `stride` bytes apart, wherever the group lies. Tiles: group[0] is the tile. */
    const uint8_t *group[TQ_MAX_TILE / TQ_GROUP];
    /* What is worth fetching while a group is read, laid out as the group is; NULL: nothing. Tiles: ahead[0], where the
     * bytes begin that are worth fetching while the tile's are read. Never read otherwise: it may lie anywhere. */
    const uint8_t *ahead[TQ_MAX_TILE / TQ_GROUP];
    /* Bytes before `ahead` that are worth fetching again, lest a prefetch was dropped; 0 in pages, which lie anywhere. */
    size_t nearer;
    size_t stride;
    const uint8_t *end; /* of the cache's buffer: nothing behind it may be read */
    int n;              /* keys, <= TQ_MAX_TILE. Rows: no others exist. Tiles: there are all, others hold any bits */
} tq_keys;

/* K side of a decode kernel. */
typedef struct tq_k_stage {
    size_t prepared_bytes;
    /* q: [gqa][head_dim]; factor: multiplies every score; prepared: prepared_bytes, aligned to 64. */
    void (*prepare)(const float *q, size_t q_head_stride, float factor, void *prepared);
    /* scores[h*TQ_MAX_TILE + i] = factor * q_h . k_i for i < n; up to the end of a group may be written. */
    void (*scores)(const void *prepared, const tq_keys *keys, float *scores);
} tq_k_stage;

/* V side. Codebook formats take 16-bit weights, one set per stored scale; f16 takes float weights. */
typedef struct tq_v_stage {
    int n_scales;     /* stored scales per row; 0: float weights */
    float weight_sum; /* largest sum of integer weights over a tile that keeps int32 sums exact */
    int byte_weights; /* 1: weights as signed bytes, high ones and low ones, below */
    int acc_values;   /* floats of one head's running sum, in the stage's own order */
    /* out[b*TQ_MAX_TILE + i] = stored scale b of row i times its step, up to the end of a group. Returns how many of them
     * count: n_scales, or 1 if every row has the same in all its blocks. */
    int (*scales)(const tq_keys *keys, float *out);
    /* acc[h*acc_values + j] = acc * decay[h] + factor[h] * weighted sum of the rows, j in the stage's own order. Weights,
     * 0 for keys that do not count: int32 [gqa][n_scales][2][TQ_MAX_TILE/4], each two or four keys of a quad: keys 0 and 2
     * in 16 bits, keys 1 and 3; or four high bytes, four low ones, the number being 256 high + low. Without scales: float
     * [gqa][TQ_MAX_TILE]. n_scales: what `scales` returned. */
    void (*accumulate)(const tq_keys *keys, const void *weights, int n_scales, const float *factor, const float *decay,
                       float *acc);
    /* One head: own order and domain back to head_dim natural values; may work in place on acc. */
    void (*finish)(const float *acc, float *out);
} tq_v_stage;

/* One side of one KV head of a sequence. Units are rows or tiles. */
typedef struct tq_head {
    const uint8_t *first; /* unit of slot 0; paged: unit 0 of page 0 */
    size_t stride;        /* between units */
    const int32_t *pages; /* NULL: contiguous */
    size_t page_stride;
    int page_slots;
    int ahead;          /* keys: how far ahead of what is read it is worth fetching */
    const uint8_t *end; /* of the buffer */
} tq_head;

/* A score bias of some query heads. */
typedef struct tq_bias {
    int n_pairs;               /* 0: none */
    const uint32_t *turns;     /* [n_pairs] */
    const uint16_t *table;     /* [n_pairs][2][TQ_BIAS_STEP] halves */
    const float *coefficients; /* of the first query head, and token: alpha, beta of each pair */
    size_t token_stride, head_stride;
} tq_bias;

typedef struct tq_decode_job {
    const float *q; /* of the first query head of the group */
    size_t q_head_stride;
    tq_head k, v;
    int keys_per_unit; /* of k and v: 1, rows, or TQ_MAX_TILE, tiles */
    int begin, end;    /* slots */
    int starts;        /* 1: the partial is empty, and q not prepared yet; 0: it has the keys before begin */
    float factor;      /* scale, times log2 e unless there is a softcap */
    float softcap;     /* in log2 units; 0: none */
    tq_bias bias;
    const float *alibi; /* [gqa] in log2 units; NULL */
    int query_position;
} tq_decode_job;

/* What one split leaves: running maximum (log2 units), denominator, unnormalised output, per query head. */
typedef struct tq_partial {
    float *max, *sum; /* [gqa] */
    float *acc;       /* [gqa][acc_values], the V stage's order */
    void *prepared;   /* q as the K stage wants it */
} tq_partial;

typedef struct tq_decode_impl {
    int head_dim, gqa, tile;
    int k_prefetch, v_prefetch; /* tq_head.ahead of head-contiguous caches */
    const tq_k_stage *k;
    const tq_v_stage *v;
} tq_decode_impl;

typedef void (*tq_decode_fn)(const tq_decode_impl *impl, const tq_decode_job *job, const tq_partial *partial);

/* ---- prefill ---------------------------------------------------------------------------------------------------- */

/* One side of a prefill kernel. Panels hold a step of keys as float32 in the domain in which they are stored, in strips of
 * two vectors (the last one may have a single one): columns that products take in one pass.
 *   K   [strip of keys][value][key]; V   [strip of values][key][value], TQ_MAX_TILE keys */
typedef struct tq_panel {
    /* K: keys up to the next whole vector are written. V: keys < n are. */
    void (*decode)(const tq_keys *keys, float *panel);
    /* n <= TQ_MAX_GQA rows. K: factor times q into the domain of K; V: the output, which comes times unit, out of the domain
     * of V. `rows` lie behind each other, those of give are used up. NULL: it is the same domain. */
    void (*take)(const float *const *q, int n, float factor, float *rows);
    void (*give)(float *rows, int n, float *const *out);
    float unit;
} tq_panel;

/* A block of tokens of one sequence, for the query heads of one KV head. */
typedef struct tq_prefill_job {
    const float *q; /* of the block's first token, of the first query head of the group */
    size_t q_token_stride, q_head_stride;
    float *out; /* the same */
    size_t out_token_stride, out_head_stride;
    float *lse; /* of the same; NULL */
    size_t lse_token_stride;
    tq_head k, v;
    int keys_per_unit; /* as in decode */
    int gqa, n_tokens;
    int n_kv,
        position;   /* keys of the sequence; where the block's first token stands, which may be before the first key */
    int begin, end; /* slots to look at: a part of those that the block sees, or more */
    int window, causal;
    float factor; /* as in decode */
    float softcap;
    tq_bias bias;
    const float *alibi;       /* [gqa] in log2 units; NULL */
    const float *sink_logits; /* [gqa] in log2 units; NULL */
} tq_prefill_job;

/* Memory of one thread, each part aligned to 64 bytes. */
typedef struct tq_prefill_scratch {
    float *k, *v; /* panels: [TQ_MAX_TILE] times values of a row */
    float *q,
        *acc; /* rows as the products take them: [n_tokens * gqa, rounded up to TQ_ROWS_STEP] times values of a row */
} tq_prefill_scratch;

/* What a range of keys leaves of a block where others have the rest, in the order of tq_prefill_scratch.acc. */
typedef struct tq_prefill_partial {
    float *max, *sum; /* as in tq_partial; [n_tokens * gqa] */
    float *acc;       /* as in tq_prefill_scratch */
} tq_prefill_partial;

typedef struct tq_prefill_impl {
    int k_values, v_values; /* of a row */
    const tq_panel *k, *v;
} tq_prefill_impl;

/* partial: where to leave the result; NULL: job->out. */
typedef void (*tq_prefill_fn)(const tq_prefill_impl *impl, const tq_prefill_job *job, const tq_prefill_scratch *scratch,
                              const tq_prefill_partial *partial);
/* n <= TQ_MAX_SPLITS partials to job->out, in their order. They are used up. */
typedef void (*tq_prefill_merge_fn)(const tq_prefill_impl *impl, const tq_prefill_job *job,
                                    const tq_prefill_partial *partials, int n);

/* ---- append, dequantise ----------------------------------------------------------------------------------------- */

/* n <= TQ_APPEND_ROWS rows of finite values; means may be NULL; mode is a tq_scale_mode that the format has. What is stored
 * of a row does not depend on the others. */
typedef void (*tq_append_fn)(const float *const *x, const float *const *mean, const uint32_t *signs, int mode, int n,
                             uint8_t *const *rows);
typedef void (*tq_dequantise_fn)(const uint8_t *row, const float *mean, const uint32_t *signs, float *x);

/* ---- registry --------------------------------------------------------------------------------------------------- */

typedef struct tq_variant {
    const char *name;
    int op;                      /* tq_op */
    const tq_format_spec *k, *v; /* NULL on the side that the op does not touch */
    int gqa;
    const char *layout, *target;
    int keys_per_unit; /* CPU: of the layout, 1 or TQ_MAX_TILE; repack: of the tiles */
    uint64_t key;
    const tq_decode_impl *impl; /* decode */
    tq_decode_fn decode;
    const tq_prefill_impl *prefill_impl;
    tq_prefill_fn prefill;
    tq_prefill_merge_fn prefill_merge;
    tq_append_fn append;
    tq_dequantise_fn dequantise;
    const tqg_kernel *gpu; /* GPU targets: instead of all the functions above */
} tq_variant;

/* What kind of device runs a registry's kernels. */
typedef enum tq_device_kind { TQ_KIND_CPU = 0, TQ_KIND_SIMT, TQ_KIND_CUDA, TQ_KIND_HIP } tq_device_kind;

/* What one generated directory offers: the kernels of one target. */
typedef struct tq_registry {
    int abi; /* TQ_KERNEL_ABI */
    const char *name;
    const char *target; /* as --arch takes it; the target of all its variants */
    const char *needs;  /* space-separated device features that its code uses; "" if none */
    tq_device_kind kind;
    int n_modules; /* code objects of CUDA and HIP targets */
    const tqg_module *modules;
    int n_formats, n_variants;
    const tq_format_spec *const *formats;
    const tq_variant *const *variants; /* each is a symbol of its own name; candidates of one contract are adjacent,
                                        * expected best first */
} tq_registry;

/* builtin.c, generated: what libtq is built with, best target first. */
extern const tq_registry *const tq_builtin_registries[];
extern const int tq_n_builtin_registries;

#endif
