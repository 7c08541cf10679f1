/* internal.h: what the files of libtq share. */
#ifndef TQ_INTERNAL_H
#define TQ_INTERNAL_H

#include "tq.h"
#include "tq_kernel.h"

#include <string.h>

enum {
    TQ_ALIGN = 64,
    TQ_MAX_KV_HEADS = 4096,
    TQ_MAX_BATCH = 65536,
    TQ_MAX_N_KV = 1 << 30,
    TQ_MAX_THREADS = 65536,
    TQ_MIN_SPLIT_KEYS = 1024, /* automatic splits: below this, preparing q and combining would show */
    TQ_MAX_SPLIT_ROWS = 144,  /* prefill: rows of a sequence and KV head for which keys are split */
    /* The same for GPUs. One block combines, so that many splits take it as long as they save. */
    TQ_MAX_GPU_SPLITS = 1024,
    TQ_MAX_AUTO_GPU_SPLITS = 128,
    TQ_MIN_GPU_SPLIT_KEYS = 256,
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
/* Are all the words of `needs`? */
int tq_has_words(const char *words, const char *needs);

/* device.c: the devices of this machine; device_cpu.c, device_simt.c, device_cuda.c and device_hip.c: one kind each.
 *
 * Every function may be called from any thread, and fails through tq_fail with a message that names the device. A
 * device makes its own context current where its driver wants that. `stream` is the driver's handle (CUstream,
 * hipStream_t); NULL: the default stream. */
typedef struct tq_device_ops {
    /* At plan time: all that a launch of this variant (registry->modules[variant->gpu->module]) needs: the module
     * loaded, the function found, its shared-memory limit raised. What is loaded stays loaded and is found again at the
     * next call. *function: what launch takes. TQ_ERR_DEVICE if the module or the function does not load. */
    tq_status (*prepare)(const tq_device *device, const tq_registry *registry, const tq_variant *variant,
                         void **function);
    /* Enqueues one kernel: grid[0..2] blocks of kernel->threads threads with kernel->shared_bytes of shared memory;
     * params is copied. Allocates nothing, waits for nothing, may be captured in a graph. */
    tq_status (*launch)(const tq_device *device, const tqg_kernel *kernel, void *function, const unsigned grid[3],
                        const void *params, size_t params_bytes, void *stream);

    /* *out: 256-byte aligned, contents undefined; TQ_ERR_MEMORY. bytes > 0. */
    tq_status (*alloc)(const tq_device *device, size_t bytes, void **out);
    void (*free)(const tq_device *device, void *memory); /* NULL is fine */
    /* They return when it is done, and come behind all that was launched on the default stream. */
    tq_status (*copy_in)(const tq_device *device, void *to, const void *host, size_t bytes);
    tq_status (*copy_out)(const tq_device *device, void *host, const void *from, size_t bytes);
    /* Enqueues: bytes of memory become value. */
    tq_status (*fill)(const tq_device *device, void *memory, int value, size_t bytes, void *stream);
    /* Waits for what was launched on stream; NULL: for everything on the device. Reports errors of earlier launches. */
    tq_status (*synchronise)(const tq_device *device, void *stream);

    /* A timer measures what the device does between start and stop, in nanoseconds: device events on GPUs, executed
     * operations on SIMT devices, the wall clock on the CPU. stop waits until that work is done. */
    tq_status (*timer_create)(const tq_device *device, void **timer);
    void (*timer_destroy)(const tq_device *device, void *timer);
    tq_status (*timer_start)(const tq_device *device, void *timer, void *stream);
    tq_status (*timer_stop)(const tq_device *device, void *timer, void *stream, double *ns);
} tq_device_ops;

struct tq_device {
    char name[16];   /* "cpu", "simt:32", "cuda:0", "hip:1" */
    char model[128]; /* one space between words and none at the ends (tq_tidy) */
    char features
        [512];     /* space-separated: what the `needs` of registries may name: "sm_80 sm_86", "gfx1201", "simt32" */
    char arch[32]; /* what gen/tqgen --arch takes for it; CPU: "" */
    tq_device_kind kind;
    int warp;            /* lanes; 1 on the CPU */
    int multiprocessors; /* CUs of AMD devices; 1 on SIMT devices and the CPU */
    size_t shared_bytes; /* shared memory that a block may have, opted in */
    size_t memory_bytes; /* 0: unknown */
    const tq_device_ops *ops;
    void *state; /* of ops */
};

enum { TQ_MAX_DEVICES = 64 };

/* Devices of one kind, most of them at most; how many were found. No driver and no device: 0, and no message. Called
 * once, before any other use of what they fill in. */
int tq_cpu_devices(tq_device *out, int most);
int tq_simt_devices(tq_device *out, int most);
int tq_cuda_devices(tq_device *out, int most);
int tq_hip_devices(tq_device *out, int most);

/* Order in which later launches on SIMT devices run blocks and threads: 0 ascending, 1 descending, else shuffled. The
 * first is $TQ_SIMT_SEED. Results must not depend on it. */
void tq_simt_set_seed(unsigned seed);

/* device_cpu.c: ops of devices whose memory is the host's. */
tq_status tq_host_alloc(const tq_device *device, size_t bytes, void **out);
void tq_host_free(const tq_device *device, void *memory);
tq_status tq_host_copy(const tq_device *device, void *to, const void *from, size_t bytes);
tq_status tq_host_fill(const tq_device *device, void *memory, int value, size_t bytes, void *stream);
tq_status tq_host_synchronise(const tq_device *device, void *stream);
size_t tq_host_memory_bytes(void); /* 0: unknown */
double tq_now_ns(void);            /* monotonic */

/* "cpu", "simt", "cuda", "hip" */
const char *tq_kind_name(tq_device_kind kind);
/* In place: one space between words and none at the ends. */
void tq_tidy(char *text);

/* registry.c */
int tq_registry_count(void);
const tq_registry *tq_registry_at(int index);
int tq_device_has(const tq_device *device, const char *needs);
/* Does the device run the kernels of this registry? All or none. */
int tq_device_runs_registry(const tq_device *device, const tq_registry *registry);
/* device.c: the first device that does; NULL if this machine has none. */
const tq_device *tq_device_that_runs(const tq_registry *registry);
const tq_format_spec *tq_format_spec_at(int index);
const tq_variant *tq_variant_find(const char *name, const tq_registry **registry);
/* TQ_ERR_UNSUPPORTED with the legal names, or the head_dims nearest to the one asked for. */
tq_status tq_format_lookup(const char *argument, const char *name, int head_dim, const tq_format_spec **out);

/* Keys of a unit of the cache that the variant works on; of repack: of its tiles. */
static inline int tq_keys_per_unit(const tq_variant *variant) {
    if (!variant->gpu)
        return variant->keys_per_unit;
    return strcmp(variant->layout, "rows") == 0 ? 1 : variant->gpu->keys_per_tile;
}

/* Pairs of a score bias that the kernel takes. */
static inline int tq_most_bias_pairs(const tq_variant *variant) {
    return variant->gpu ? variant->gpu->bias_pairs : TQ_MAX_BIAS_PAIRS;
}

/* Keys of one unit of a layout of a format; TQ_ERR_UNSUPPORTED lists the layouts. */
tq_status tq_layout_lookup(const char *layout, const tq_format_spec *format, int *keys_per_unit);
/* Bytes of a row (1 key per unit) or of a tile; tiles of CPUs are as large as their rows. */
size_t tq_unit_bytes(const tq_format_spec *format, const char *layout, int keys_per_unit);

/* The mode to store with; TQ_ERR_ARGUMENT lists what the format has. */
tq_status tq_resolve_mode(const char *call, const tq_format_spec *format, tq_scale_mode mode, int *out);

/* plan.c */
struct tq_plan {
    const tq_device *device;
    const tq_variant *variant;
    void *function;               /* GPU devices: what ops->launch takes */
    const tq_format_spec *format; /* append, dequantise, repack: the one of side */
    tq_op op;
    tq_side side;
    int head_dim; /* of K; ops on one side: of that */
    int n_kv_heads, gqa, max_batch, max_n_kv, max_bias_pairs;
    int n_threads, splits_asked; /* as in the desc */
    int n_splits, min_split_keys;
    int block_rows;       /* prefill on the CPU: rows, (token, query head) each, that one call of the kernel takes */
    uint64_t fingerprint; /* of all that a workspace depends on */
    size_t counters_at, partials_at, partial_bytes, scratch_at, scratch_bytes, workspace_bytes;
    char why[640];
    int n_candidates;
    const tq_variant *candidates[]; /* the chosen one first */
};

/* Makes a plan run one of its candidates: prepares the device for it, chooses splits, lays out the workspace. */
tq_status tq_plan_use(tq_plan *plan, const tq_variant *variant);
/* Values of a V row and of an output; for ops on K and V together. */
static inline int tq_out_values(const tq_plan *plan) {
    return plan->variant->v->head_dim;
}

/* Ops on K and V together, with query heads. */
static inline int tq_attends(tq_op op) {
    return op == TQ_OP_DECODE || op == TQ_OP_PREFILL;
}

static inline int tq_on_gpu(const tq_plan *plan) {
    return plan->device->kind != TQ_KIND_CPU;
}

/* choose.c: TQ_OK if pin is a variant of this build that the device runs. */
tq_status tq_check_pin(const tq_device *device, const char *pin);
/* Orders plan->candidates, best first, and says why. */
tq_status tq_choose(tq_plan *plan, const tq_plan_desc *desc);

/* measure.c: median time of one launch of each candidate on one thread; *n_kv: keys or tokens per sequence that it had.
 */
tq_status tq_measure(const tq_plan *plan, double *median_ns, int *n_kv);

/* check.c: arguments of launches, before anything is written. */
tq_status tq_check_append(const tq_plan *plan, const tq_append_args *args, const tq_launch *launch, int *mode);
tq_status tq_check_dequantise(const tq_plan *plan, const tq_dequantise_args *args, const tq_launch *launch);
tq_status tq_check_decode(const tq_plan *plan, const tq_decode_args *args, const tq_launch *launch);
tq_status tq_check_repack(const tq_plan *plan, const tq_repack_args *args, const tq_launch *launch);
tq_status tq_check_prefill(const tq_plan *plan, const tq_prefill_args *args, const tq_launch *launch);
/* Index of the first value that is NaN or infinite; n if all are finite. mean may be NULL; values are x - mean. */
int tq_first_not_finite(const float *x, const float *mean, int n);

/* workspace.c: header (CPU) | one arrival counter per (sequence, KV head) | one partial per (sequence, KV head, split);
 * prefill on the CPU: header | the same, if there are splits | scratch of each thread. */
void tq_workspace_layout(tq_plan *plan);
tq_status tq_workspace_check(const char *call, const tq_plan *plan, const tq_launch *launch);
tq_partial tq_workspace_partial(const tq_plan *plan, void *workspace, int sequence, int kv_head, int split);
tq_prefill_scratch tq_workspace_scratch(const tq_plan *plan, void *workspace, int thread_index);
/* Of the block whose first row is row `first_row`, a multiple of TQ_ROWS_STEP, of the TQ_MAX_SPLIT_ROWS that there are. */
tq_prefill_partial tq_workspace_prefill_partial(const tq_plan *plan, void *workspace, int sequence, int kv_head,
                                                int split, int first_row);
/* Counts one split of n as done; 1 for the caller that completes the set, who may then read all n partials. */
int tq_workspace_arrive(const tq_plan *plan, void *workspace, int sequence, int kv_head, int n);

/* launch_gpu.c: on devices that load kernels; the arguments have been checked. */
tq_status tq_gpu_append(const tq_plan *plan, const tq_append_args *args, const tq_launch *launch, int mode);
tq_status tq_gpu_dequantise(const tq_plan *plan, const tq_dequantise_args *args, const tq_launch *launch);
tq_status tq_gpu_repack(const tq_plan *plan, const tq_repack_args *args, const tq_launch *launch);
tq_status tq_gpu_decode(const tq_plan *plan, const tq_decode_args *args, const tq_launch *launch);
tq_status tq_gpu_prefill(const tq_plan *plan, const tq_prefill_args *args, const tq_launch *launch);

/* tiles.c: the row, or the tile, that has a slot; CPU caches, contiguous and paged. */
uint8_t *tq_cache_unit(const tq_cache *cache, int keys_per_unit, int sequence, int kv_head, int slot);
/* One row into a tile of keys of `side` and out of it; of a tile's other keys no byte changes. */
void tq_tile_put(const tq_format_spec *format, tq_side side, const uint8_t *row, int key, uint8_t *tile);
void tq_tile_get(const tq_format_spec *format, tq_side side, const uint8_t *tile, int key, uint8_t *row);

/* launch.c: one side of one KV head as kernels take it; ahead: in keys. */
tq_head tq_head_of(const tq_cache *cache, int sequence, int kv_head, int ahead);

/* Slots begin .. end-1 of a sequence, cut into equal ranges of whole steps. */
typedef struct tq_cut {
    int begin, end;
    int origin; /* where the first step begins: at the first key, or the tile, page or group that has it */
    int keys_per_split;
    int n_splits; /* at least 1, so that a sequence without keys still gets its output */
} tq_cut;

/* unit: slots at a multiple of which the first step begins; n_splits: at most. */
static inline tq_cut tq_cut_keys(const tq_plan *plan, int begin, int end, int unit, int step, int n_splits) {
    int origin = begin / unit * unit, keys = end - origin, n = keys / plan->min_split_keys;
    n = n < 1 ? 1 : n > n_splits ? n_splits : n;
    int per_split = ((keys + n - 1) / n + step - 1) / step * step;
    return (tq_cut){begin, end, origin, per_split, begin < end ? (keys + per_split - 1) / per_split : 1};
}

static inline int tq_split_begin(const tq_cut *cut, int split) {
    return split ? cut->origin + split * cut->keys_per_split : cut->begin;
}

static inline int tq_split_end(const tq_cut *cut, int split) {
    return split + 1 < cut->n_splits ? tq_split_begin(cut, split + 1) : cut->end;
}

/* A line of work is cut into equal stretches, one per thread; where that of thread `index` begins. */
static inline int64_t tq_stretch_begin(int64_t total, int index, int count) {
    return total / count * index + total % count * index / count;
}

/* bias.c: a score bias as kernels take it, from one token and query head on; NULL: none. */
tq_bias tq_bias_of(const tq_score_bias *bias, int sequence, int token, size_t head);
/* What it adds to q.k of a query head at one position. */
float tq_bias_at(const tq_score_bias *bias, int sequence, int head, int position);

/* combine.c */
float tq_half_to_float(uint16_t half);

/* Merges the n partials of one KV head, adds sinks, writes out and lse. The partials are used up. */
void tq_combine(const tq_plan *plan, const tq_decode_args *args, void *workspace, int sequence, int kv_head, int n);

static const float tq_log2_e = 0x1.715476p+0f;

/* Scores are in log2 units: factor * q.k, or cap * tanh(factor * q.k) with a softcap. */
static inline float tq_score_factor(float scale, float softcap) {
    return softcap > 0 ? scale / softcap : scale * tq_log2_e;
}

static inline float tq_score_cap(float softcap) {
    return softcap * tq_log2_e;
}

/* First slot that a query sees which sees the first n_kv, but for its window. */
static inline int tq_visible_from(int window, int n_kv) {
    return window > 0 && n_kv > window ? n_kv - window : 0;
}

#endif
