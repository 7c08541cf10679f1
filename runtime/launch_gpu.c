/* launch_gpu.c: launches on devices that load kernels: arguments become the one struct that a kernel takes. */
#include "internal.h"

static tqg_cache cache_of(const tq_cache *cache) {
    return (tqg_cache){.data = cache->data,
                       .pages = cache->pages,
                       .seq_stride = (tqg_i64)cache->seq_stride,
                       .head_stride = (tqg_i64)cache->head_stride,
                       .unit_stride = (tqg_i64)cache->token_stride,
                       .page_stride = (tqg_i64)cache->page_stride,
                       .pages_stride = cache->pages_stride,
                       .page_slots = cache->page_slots,
                       .n_slots = cache->n_slots};
}

/* K and V of one attention: kernels clamp the number of keys to what either holds. */
typedef struct pair {
    tqg_cache k, v;
} pair;

static pair pair_of(const tq_cache *k, const tq_cache *v) {
    pair p = {cache_of(k), cache_of(v)};
    p.k.n_slots = p.v.n_slots = k->n_slots < v->n_slots ? k->n_slots : v->n_slots;
    return p;
}

static tqg_bias bias_of(const tq_score_bias *bias) {
    if (!bias)
        return (tqg_bias){0};
    return (tqg_bias){.turns = bias->turns,
                      .table = bias->table,
                      .coefficients = bias->coefficients,
                      .seq_stride = (tqg_i64)bias->seq_stride,
                      .token_stride = (tqg_i64)bias->token_stride,
                      .head_stride = (tqg_i64)bias->head_stride,
                      .n_pairs = bias->n_pairs};
}

/* Blocks that take keys_per_step tokens each. */
static unsigned groups_of(const tq_plan *plan, int n_tokens) {
    int each = plan->variant->gpu->keys_per_step;
    return (unsigned)(n_tokens / each + (n_tokens % each != 0));
}

/* One thread of the caller's launches. */
static tq_status enqueue(const tq_plan *plan, unsigned x, int batch, const void *params, size_t bytes,
                         const tq_launch *launch) {
    const unsigned grid[3] = {x, (unsigned)plan->n_kv_heads, (unsigned)batch};
    if (launch->thread_index != 0 || x == 0)
        return TQ_OK;
    return plan->device->ops->launch(plan->device, plan->variant->gpu, plan->function, grid, params, bytes,
                                     launch->stream);
}

tq_status tq_gpu_append(const tq_plan *plan, const tq_append_args *args, const tq_launch *launch, int mode) {
    const tqg_append_params params = {.x = args->x,
                                      .x_seq_stride = (tqg_i64)args->x_seq_stride,
                                      .x_token_stride = (tqg_i64)args->x_token_stride,
                                      .x_head_stride = (tqg_i64)args->x_head_stride,
                                      .cache = cache_of(args->cache),
                                      .first_slot = args->first_slot,
                                      .mean = args->mean,
                                      .status = args->status,
                                      .n_tokens = args->n_tokens,
                                      .mode = mode};
    return enqueue(plan, groups_of(plan, args->n_tokens), args->batch, &params, sizeof params, launch);
}

tq_status tq_gpu_dequantise(const tq_plan *plan, const tq_dequantise_args *args, const tq_launch *launch) {
    const tqg_dequantise_params params = {.x = args->x,
                                          .x_seq_stride = (tqg_i64)args->x_seq_stride,
                                          .x_token_stride = (tqg_i64)args->x_token_stride,
                                          .x_head_stride = (tqg_i64)args->x_head_stride,
                                          .cache = cache_of(args->cache),
                                          .first_slot = args->first_slot,
                                          .mean = args->mean,
                                          .n_tokens = args->n_tokens,
                                          .x_is_f16 = args->x_type == TQ_F16};
    return enqueue(plan, groups_of(plan, args->n_tokens), args->batch, &params, sizeof params, launch);
}

tq_status tq_gpu_repack(const tq_plan *plan, const tq_repack_args *args, const tq_launch *launch) {
    const tqg_repack_params params = {.rows = cache_of(args->rows),
                                      .tiles = cache_of(args->tiles),
                                      .first_slot = args->first_slot,
                                      .n_inexact = args->n_inexact,
                                      .n_tokens = args->n_tokens,
                                      .to_tiles = args->to_tiles};
    return enqueue(plan, groups_of(plan, args->n_tokens), args->batch, &params, sizeof params, launch);
}

tq_status tq_gpu_decode(const tq_plan *plan, const tq_decode_args *args, const tq_launch *launch) {
    const tq_cache none = {0};
    const int has_sinks = args->n_sink > 0;
    const pair cache = pair_of(args->k, args->v);
    char *workspace = launch->workspace;
    const tqg_decode_params params = {.q = args->q,
                                      .q_seq_stride = (tqg_i64)args->q_seq_stride,
                                      .q_head_stride = (tqg_i64)args->q_head_stride,
                                      .k = cache.k,
                                      .v = cache.v,
                                      .sink_k = cache_of(has_sinks ? args->sink_k : &none),
                                      .sink_v = cache_of(has_sinks ? args->sink_v : &none),
                                      .n_kv = args->n_kv,
                                      .bias = bias_of(args->bias),
                                      .alibi = args->alibi,
                                      .sink_logits = args->sink_logits,
                                      .out = args->out,
                                      .out_seq_stride = (tqg_i64)args->out_seq_stride,
                                      .out_head_stride = (tqg_i64)args->out_head_stride,
                                      .lse = args->lse,
                                      .partials = (float *)(workspace + plan->partials_at),
                                      .counters = (tqg_u32 *)(workspace + plan->counters_at),
                                      .factor = tq_score_factor(args->scale, args->softcap),
                                      .softcap = tq_score_cap(args->softcap),
                                      .window = args->window,
                                      .n_sink = args->n_sink,
                                      .n_kv_heads = plan->n_kv_heads,
                                      .n_splits = plan->n_splits,
                                      .min_split_keys = plan->min_split_keys};
    return enqueue(plan, (unsigned)plan->n_splits, args->batch, &params, sizeof params, launch);
}

tq_status tq_gpu_prefill(const tq_plan *plan, const tq_prefill_args *args, const tq_launch *launch) {
    const pair cache = pair_of(args->k, args->v);
    const tqg_prefill_params params = {.q = args->q,
                                       .q_seq_stride = (tqg_i64)args->q_seq_stride,
                                       .q_token_stride = (tqg_i64)args->q_token_stride,
                                       .q_head_stride = (tqg_i64)args->q_head_stride,
                                       .k = cache.k,
                                       .v = cache.v,
                                       .n_kv = args->n_kv,
                                       .n_query = args->n_query,
                                       .bias = bias_of(args->bias),
                                       .alibi = args->alibi,
                                       .sink_logits = args->sink_logits,
                                       .out = args->out,
                                       .out_seq_stride = (tqg_i64)args->out_seq_stride,
                                       .out_token_stride = (tqg_i64)args->out_token_stride,
                                       .out_head_stride = (tqg_i64)args->out_head_stride,
                                       .lse = args->lse,
                                       .factor = tq_score_factor(args->scale, args->softcap),
                                       .softcap = tq_score_cap(args->softcap),
                                       .window = args->window,
                                       .causal = args->causal,
                                       .n_kv_heads = plan->n_kv_heads,
                                       .max_query = args->max_query};
    return enqueue(plan, groups_of(plan, args->max_query), args->batch, &params, sizeof params, launch);
}
