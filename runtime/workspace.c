/* workspace.c: what lies where in the workspace of a plan. */
#include "internal.h"

#include <stdatomic.h>
#include <string.h>

typedef struct header {
    uint64_t magic, fingerprint;
} header;

static const uint64_t magic = 0x7471776f726b3031; /* "tqwork01" */

static size_t align_up(size_t n) {
    return (n + TQ_ALIGN - 1) / TQ_ALIGN * TQ_ALIGN;
}

static uint64_t fnv1a(uint64_t hash, const void *data, size_t n) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    return hash;
}

/* Device memory that the host does not read: counters and partials as tqg_decode_params states them. */
static void lay_out_on_gpu(tq_plan *plan) {
    size_t pairs = (size_t)plan->max_batch * (size_t)plan->n_kv_heads, gqa = (size_t)plan->gqa;
    plan->counters_at = 0;
    plan->partials_at = align_up(pairs * sizeof(tqg_u32));
    plan->partial_bytes = gqa * (size_t)(plan->head_dim + 2) * sizeof(float);
    plan->workspace_bytes = plan->partials_at + pairs * (size_t)plan->n_splits * plan->partial_bytes;
}

static size_t floats(size_t n) {
    return align_up(n * sizeof(float));
}

static void lay_out_partials(tq_plan *plan) {
    size_t pairs = (size_t)plan->max_batch * (size_t)plan->n_kv_heads, gqa = (size_t)plan->gqa;
    size_t acc_values = (size_t)plan->variant->impl->v->acc_values;
    plan->counters_at = align_up(sizeof(header));
    plan->partials_at = align_up(plan->counters_at + pairs * sizeof(atomic_int));
    plan->partial_bytes = 2 * floats(gqa) + floats(gqa * acc_values) + align_up(plan->variant->impl->k->prepared_bytes);
    plan->workspace_bytes = plan->partials_at + pairs * (size_t)plan->n_splits * plan->partial_bytes;
}

/* A thread's scratch: panels of K and V, then q and output of a block of as many rows as stay in a cache of level 2. Before
 * that, where keys are split, what partial results need. */
static void lay_out_prefill(tq_plan *plan) {
    enum { FLOATS = 1 << 15 };
    const tq_prefill_impl *impl = plan->variant->prefill_impl;
    int values = impl->k_values > impl->v_values ? impl->k_values : impl->v_values;
    int rows = FLOATS / values / TQ_ROWS_STEP * TQ_ROWS_STEP;
    plan->block_rows = rows < TQ_MAX_ROWS ? rows : TQ_MAX_ROWS;
    size_t k_values = (size_t)impl->k_values, v_values = (size_t)impl->v_values;
    size_t pairs = (size_t)plan->max_batch * (size_t)plan->n_kv_heads, n_splits = (size_t)plan->n_splits;
    plan->counters_at = plan->partials_at = align_up(sizeof(header));
    if (n_splits > 1) {
        plan->partials_at = align_up(plan->counters_at + pairs * sizeof(atomic_int));
        plan->partial_bytes = 2 * floats(TQ_MAX_SPLIT_ROWS) + floats(TQ_MAX_SPLIT_ROWS * v_values);
    }
    plan->scratch_at = plan->partials_at + pairs * n_splits * plan->partial_bytes;
    plan->scratch_bytes = floats(TQ_MAX_TILE * k_values) + floats(TQ_MAX_TILE * v_values) +
                          floats((size_t)plan->block_rows * k_values) + floats((size_t)plan->block_rows * v_values);
    plan->workspace_bytes = plan->scratch_at + (size_t)plan->n_threads * plan->scratch_bytes;
}

void tq_workspace_layout(tq_plan *plan) {
    if (!tq_attends(plan->op) || (tq_on_gpu(plan) && plan->op == TQ_OP_PREFILL))
        return;
    if (tq_on_gpu(plan)) {
        lay_out_on_gpu(plan);
        return;
    }
    if (plan->op == TQ_OP_DECODE)
        lay_out_partials(plan);
    else
        lay_out_prefill(plan);
    const char *name = plan->variant->name;
    const int shape[] = {plan->n_kv_heads, plan->max_batch, plan->n_splits, plan->min_split_keys};
    uint64_t hash = fnv1a(0xcbf29ce484222325, name, strlen(name));
    hash = fnv1a(hash, &plan->variant->key, sizeof plan->variant->key);
    plan->fingerprint = fnv1a(hash, shape, sizeof shape);
}

/* Address and size; common to initialising and launching. */
static tq_status check_memory(const char *call, const tq_plan *plan, const void *workspace, size_t bytes) {
    if (!workspace)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: workspace is NULL; %zu bytes are needed", call, plan->workspace_bytes);
    if ((uintptr_t)workspace % TQ_ALIGN)
        return tq_fail(TQ_ERR_WORKSPACE, "%s: workspace is at %p; legal is a multiple of %d", call, workspace,
                       TQ_ALIGN);
    if (bytes < plan->workspace_bytes)
        return tq_fail(TQ_ERR_WORKSPACE, "%s: workspace has %zu bytes; this plan needs %zu", call, bytes,
                       plan->workspace_bytes);
    return TQ_OK;
}

tq_status tq_workspace_init(const tq_plan *plan, void *workspace, size_t bytes) {
    if (!plan)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_workspace_init: plan is NULL");
    if (plan->workspace_bytes == 0)
        return TQ_OK;
    tq_status status = check_memory("tq_workspace_init", plan, workspace, bytes);
    if (status)
        return status;
    if (tq_on_gpu(plan)) {
        const tq_device *device = plan->device;
        status = device->ops->fill(device, workspace, 0, plan->partials_at, NULL);
        return status ? status : device->ops->synchronise(device, NULL);
    }
    memset(workspace, 0, plan->partials_at);
    *(header *)workspace = (header){magic, plan->fingerprint};
    return TQ_OK;
}

tq_status tq_workspace_check(const char *call, const tq_plan *plan, const tq_launch *launch) {
    tq_status status = check_memory(call, plan, launch->workspace, launch->workspace_bytes);
    if (status || tq_on_gpu(plan))
        return status;
    const header *found = launch->workspace;
    if (found->magic != magic)
        return tq_fail(TQ_ERR_WORKSPACE, "%s: workspace is not initialised; call tq_workspace_init first", call);
    if (found->fingerprint != plan->fingerprint)
        return tq_fail(TQ_ERR_WORKSPACE, "%s: workspace was initialised for another plan; call tq_workspace_init again",
                       call);
    return TQ_OK;
}

static char *partial_at(const tq_plan *plan, void *workspace, int sequence, int kv_head, int split) {
    size_t pair = (size_t)sequence * (size_t)plan->n_kv_heads + (size_t)kv_head;
    return (char *)workspace + plan->partials_at +
           (pair * (size_t)plan->n_splits + (size_t)split) * plan->partial_bytes;
}

tq_partial tq_workspace_partial(const tq_plan *plan, void *workspace, int sequence, int kv_head, int split) {
    const tq_v_stage *v = plan->variant->impl->v;
    size_t heads = floats((size_t)plan->gqa), acc = floats((size_t)plan->gqa * (size_t)v->acc_values);
    char *base = partial_at(plan, workspace, sequence, kv_head, split);
    return (tq_partial){(float *)base, (float *)(base + heads), (float *)(base + 2 * heads), base + 2 * heads + acc};
}

tq_prefill_partial tq_workspace_prefill_partial(const tq_plan *plan, void *workspace, int sequence, int kv_head,
                                                int split, int first_row) {
    char *base = partial_at(plan, workspace, sequence, kv_head, split);
    size_t rows = floats(TQ_MAX_SPLIT_ROWS), first = (size_t)first_row;
    float *acc = (float *)(base + 2 * rows) + first * (size_t)plan->variant->prefill_impl->v_values;
    return (tq_prefill_partial){(float *)base + first, (float *)(base + rows) + first, acc};
}

tq_prefill_scratch tq_workspace_scratch(const tq_plan *plan, void *workspace, int thread_index) {
    const tq_prefill_impl *impl = plan->variant->prefill_impl;
    size_t k_values = (size_t)impl->k_values, v_values = (size_t)impl->v_values;
    char *k = (char *)workspace + plan->scratch_at + (size_t)thread_index * plan->scratch_bytes;
    char *v = k + floats(TQ_MAX_TILE * k_values), *q = v + floats(TQ_MAX_TILE * v_values);
    char *acc = q + floats((size_t)plan->block_rows * k_values);
    return (tq_prefill_scratch){(float *)k, (float *)v, (float *)q, (float *)acc};
}

int tq_workspace_arrive(const tq_plan *plan, void *workspace, int sequence, int kv_head, int n) {
    atomic_int *counter = (atomic_int *)((char *)workspace + plan->counters_at) +
                          (size_t)sequence * (size_t)plan->n_kv_heads + (size_t)kv_head;
    if (atomic_fetch_add_explicit(counter, 1, memory_order_acq_rel) < n - 1)
        return 0;
    atomic_store_explicit(counter, 0, memory_order_relaxed);
    return 1;
}
