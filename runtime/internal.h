/* internal.h: what the files of libtq share. */
#ifndef TQ_INTERNAL_H
#define TQ_INTERNAL_H

#include "tq.h"
#include "tq_kernel.h"

enum {
    TQ_ALIGN = 64,
    TQ_MAX_KV_HEADS = 4096,
    TQ_MAX_BATCH = 65536,
    TQ_MAX_N_KV = 1 << 30,
    TQ_MAX_THREADS = 65536,
    TQ_MAX_SPLITS = 64,
    TQ_MIN_SPLIT_KEYS = 1024, /* automatic splits: below this, preparing q and combining would show */
};

/* status.c */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
tq_status
tq_fail(tq_status status, const char *format, ...);

/* A comma-separated list for a message; words come in once each, and "..." stands for what does not fit. */
typedef struct tq_list {
    char text[480];
} tq_list;

void tq_list_add(tq_list *list, const char *word);
/* Is word one of the space-separated words? */
int tq_has_word(const char *words, const char *word);

/* device_cpu.c */
struct tq_device {
    char name[16], model[128], features[512];
};

/* registry.c */
int tq_registry_count(void);
const tq_registry *tq_registry_at(int index);
int tq_device_has(const tq_device *device, const char *needs);
const tq_format_spec *tq_format_spec_at(int index);
const tq_variant *tq_variant_find(const char *name, const tq_registry **registry);
/* TQ_ERR_UNSUPPORTED with the legal names, or the head_dims nearest to the one asked for. */
tq_status tq_format_lookup(const char *argument, const char *name, int head_dim, const tq_format_spec **out);

/* The mode to store with; TQ_ERR_ARGUMENT lists what the format has. */
tq_status tq_resolve_mode(const char *call, const tq_format_spec *format, tq_scale_mode mode, int *out);

/* plan.c */
struct tq_plan {
    const tq_device *device;
    const tq_variant *variant;
    const tq_format_spec *format; /* append, dequantise: the one of side */
    tq_op op;
    tq_side side;
    int head_dim, n_kv_heads, gqa, max_batch, max_n_kv;
    int n_splits, min_split_keys;
    uint64_t fingerprint; /* of all that a workspace depends on */
    size_t counters_at, partials_at, partial_bytes, workspace_bytes;
    char why[640];
    int n_candidates;
    const tq_variant *candidates[]; /* the chosen one first */
};

/* choose.c: TQ_OK if pin is a variant of this build that the device runs. */
tq_status tq_check_pin(const tq_device *device, const char *pin);
/* Orders plan->candidates, best first, and says why; sets plan->variant. */
tq_status tq_choose(tq_plan *plan, const tq_plan_desc *desc);

/* measure.c: median time of one launch of each candidate on one thread; *n_kv: keys or tokens per sequence that it had.
 */
tq_status tq_measure(const tq_plan *plan, double *median_ns, int *n_kv);

/* check.c: arguments of launches, before anything is written. */
tq_status tq_check_append(const tq_plan *plan, const tq_append_args *args, const tq_launch *launch, int *mode);
tq_status tq_check_dequantise(const tq_plan *plan, const tq_dequantise_args *args, const tq_launch *launch);
tq_status tq_check_decode(const tq_plan *plan, const tq_decode_args *args, const tq_launch *launch);
/* Index of the first value that is NaN or infinite; n if all are finite. mean may be NULL; values are x - mean. */
int tq_first_not_finite(const float *x, const float *mean, int n);

/* workspace.c: header | one arrival counter per (sequence, KV head) | one partial per (sequence, KV head, split). */
void tq_workspace_layout(tq_plan *plan);
tq_status tq_workspace_check(const char *call, const tq_plan *plan, const tq_launch *launch);
tq_partial tq_workspace_partial(const tq_plan *plan, void *workspace, int sequence, int kv_head, int split);
/* Counts one split of n as done; 1 for the caller that completes the set, who may then read all n partials. */
int tq_workspace_arrive(const tq_plan *plan, void *workspace, int sequence, int kv_head, int n);

/* combine.c: merges the n partials of one KV head, adds sinks, writes out and lse. The partials are used up. */
void tq_combine(const tq_plan *plan, const tq_decode_args *args, void *workspace, int sequence, int kv_head, int n);

static const float tq_log2_e = 0x1.715476p+0f;

/* Scores are in log2 units: factor * q.k, or cap * tanh(factor * q.k) with a softcap. */
static inline float tq_score_factor(const tq_decode_args *args) {
    return args->softcap > 0 ? args->scale / args->softcap : args->scale * tq_log2_e;
}

static inline float tq_score_cap(const tq_decode_args *args) {
    return args->softcap * tq_log2_e;
}

/* First visible slot of a sequence. */
static inline int tq_visible_from(const tq_decode_args *args, int n_kv) {
    return args->window > 0 && n_kv > args->window ? n_kv - args->window : 0;
}

static inline uint8_t *tq_cache_row(const tq_cache *cache, int sequence, int kv_head, int slot) {
    return (uint8_t *)cache->data + (size_t)sequence * cache->seq_stride + (size_t)kv_head * cache->head_stride +
           (size_t)slot * cache->token_stride;
}

#endif
