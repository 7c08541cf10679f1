/* check.c: arguments of launches. Every message names the call, the argument, what was found and what is legal. */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* 1 if x - mean, or x without a mean, is NaN or infinite somewhere. Integers without branches: compilers vectorise them. */
static inline uint32_t is_bad(float value) {
    static const uint32_t exponent = 0x7f800000;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & exponent) == exponent;
}

int tq_first_not_finite(const float *x, const float *mean, int n) {
    uint32_t bad = 0;
    if (mean)
        for (int i = 0; i < n; i++)
            bad |= is_bad(x[i] - mean[i]);
    else
        for (int i = 0; i < n; i++)
            bad |= is_bad(x[i]);
    int i = bad ? 0 : n;
    while (i < n && isfinite(mean ? x[i] - mean[i] : x[i]))
        i++;
    return i;
}

static tq_status check_range(const char *call, const char *what, int64_t found, int64_t low, int64_t high) {
    if (found >= low && found <= high)
        return TQ_OK;
    return tq_fail(TQ_ERR_ARGUMENT, "%s: %s is %lld; legal is %lld to %lld", call, what, (long long)found,
                   (long long)low, (long long)high);
}

static tq_status check_pointer(const char *call, const char *what, const void *pointer, size_t align) {
    if (!pointer)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: %s is NULL", call, what);
    if ((uintptr_t)pointer % align)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: %s is at %p; legal is a multiple of %zu", call, what, pointer, align);
    return TQ_OK;
}

static tq_status check_optional(const char *call, const char *what, const void *pointer, size_t align) {
    return pointer ? check_pointer(call, what, pointer, align) : TQ_OK;
}

/* ---- strides ---------------------------------------------------------------------------------------------------- */

typedef struct dimension {
    const char *what;
    size_t stride;
    int count;
} dimension;

static size_t saturating_add(size_t a, size_t b) {
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

static size_t saturating_multiply(size_t a, size_t b) {
    return b && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

/* A dimension must step over all that lies within it: then no two rows overlap. *extent: in, of one row; out, of all.
 */
static tq_status check_strides(const char *call, const char *of, dimension *dims, int n, const char *unit,
                               size_t *extent) {
    for (int i = 1; i < n; i++) /* innermost first */
        for (int j = i; j > 0 && dims[j].stride < dims[j - 1].stride; j--) {
            dimension swap = dims[j];
            dims[j] = dims[j - 1];
            dims[j - 1] = swap;
        }
    for (int i = 0; i < n; i++) {
        if (dims[i].count <= 1)
            continue;
        if (dims[i].stride < *extent)
            return tq_fail(TQ_ERR_ARGUMENT, "%s: %s%s is %zu; legal is at least %zu %s, which it has to step over",
                           call, of, dims[i].what, dims[i].stride, *extent, unit);
        *extent = saturating_add(*extent, saturating_multiply(dims[i].stride, (size_t)dims[i].count - 1));
    }
    return TQ_OK;
}

static tq_status check_floats(const char *call, const char *what, const float *pointer, dimension *dims, int n,
                              int head_dim) {
    size_t extent = (size_t)head_dim;
    tq_status status = check_pointer(call, what, pointer, sizeof(float));
    return status ? status : check_strides(call, "args.", dims, n, "floats", &extent);
}

/* For reading, seq_stride 0 lets all sequences share one cache. */
static tq_status check_cache(const char *call, const char *what, const tq_cache *cache, int row_bytes, int batch,
                             int n_kv_heads, int reading) {
    char name[64];
    tq_status status = check_pointer(call, what, cache, sizeof(void *));
    if (status)
        return status;
    snprintf(name, sizeof name, "%s.data", what);
    if ((status = check_pointer(call, name, cache->data, 2)))
        return status;
    snprintf(name, sizeof name, "%s.n_slots", what);
    if ((status = check_range(call, name, cache->n_slots, 1, TQ_MAX_N_KV)))
        return status;

    snprintf(name, sizeof name, "%s.", what);
    dimension dims[] = {{"token_stride", cache->token_stride, cache->n_slots},
                        {"head_stride", cache->head_stride, n_kv_heads},
                        {"seq_stride", cache->seq_stride, reading && cache->seq_stride == 0 ? 1 : batch}};
    for (int i = 0; i < 3; i++)
        if (dims[i].stride % 2)
            return tq_fail(TQ_ERR_ARGUMENT, "%s: %s%s is %zu; legal is an even number of bytes", call, name,
                           dims[i].what, dims[i].stride);
    size_t extent = (size_t)row_bytes;
    if ((status = check_strides(call, name, dims, 3, "bytes", &extent)))
        return status;
    if (cache->bytes < extent)
        return tq_fail(TQ_ERR_ARGUMENT,
                       "%s: %s.bytes is %zu; %d sequences, %d heads and %d slots by these strides need at least %zu",
                       call, what, cache->bytes, batch, n_kv_heads, cache->n_slots, extent);
    return TQ_OK;
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

static tq_status check_launch(const char *call, tq_op op, const tq_plan *plan, const void *args,
                              const tq_launch *launch) {
    if (!plan || !args || !launch)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: %s is NULL", call, !plan ? "plan" : !args ? "args" : "launch");
    if (plan->op != op)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: the plan is for %s; legal is a plan for %s", call, tq_op_name(plan->op),
                       tq_op_name(op));
    if (launch->thread_count < 1)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: launch.thread_count is %d; legal is at least 1", call,
                       launch->thread_count);
    return check_range(call, "launch.thread_index", launch->thread_index, 0, launch->thread_count - 1);
}

static tq_status check_mean(const char *call, const tq_plan *plan, const float *mean) {
    tq_status status = check_optional(call, "args.mean", mean, sizeof(float));
    int n = plan->n_kv_heads * plan->head_dim;
    int bad = status || !mean ? n : tq_first_not_finite(mean, NULL, n);
    if (bad < n)
        return tq_fail(TQ_ERR_NOT_FINITE, "%s: args.mean of head %d, index %d is %g", call, bad / plan->head_dim,
                       bad % plan->head_dim, (double)mean[bad]);
    return status;
}

/* What append and dequantise have in common. */
static tq_status check_rows(const char *call, const tq_plan *plan, int batch, int n_tokens, const float *x,
                            size_t seq_stride, size_t token_stride, size_t head_stride, const int32_t *first_slot,
                            const tq_cache *cache, const float *mean, int reading) {
    tq_status status = check_range(call, "args.batch", batch, 1, TQ_MAX_BATCH);
    if (status)
        return status;
    if ((status = check_cache(call, "args.cache", cache, plan->format->row_bytes, batch, plan->n_kv_heads, reading)) ||
        (status = check_range(call, "args.n_tokens", n_tokens, 0, cache->n_slots)) ||
        (status = check_mean(call, plan, mean)) ||
        (status = check_pointer(call, "args.first_slot", first_slot, sizeof(int32_t))))
        return status;
    dimension dims[] = {{"x_head_stride", head_stride, plan->n_kv_heads},
                        {"x_token_stride", token_stride, n_tokens},
                        {"x_seq_stride", seq_stride, batch}};
    if ((status = check_floats(call, "args.x", x, dims, 3, plan->head_dim)))
        return status;
    for (int s = 0; s < batch; s++)
        if (first_slot[s] < 0 || first_slot[s] > cache->n_slots - n_tokens)
            return tq_fail(TQ_ERR_ARGUMENT,
                           "%s: args.first_slot[%d] is %d; legal is 0 to %d (args.cache.n_slots %d less n_tokens %d)",
                           call, s, (int)first_slot[s], cache->n_slots - n_tokens, cache->n_slots, n_tokens);
    return TQ_OK;
}

tq_status tq_check_append(const tq_plan *plan, const tq_append_args *args, const tq_launch *launch, int *mode) {
    static const char call[] = "tq_append";
    tq_status status = check_launch(call, TQ_OP_APPEND, plan, args, launch);
    if (status ||
        (status = check_rows(call, plan, args->batch, args->n_tokens, args->x, args->x_seq_stride, args->x_token_stride,
                             args->x_head_stride, args->first_slot, args->cache, args->mean, 0)))
        return status;
    return tq_resolve_mode(call, plan->format, args->mode, mode);
}

tq_status tq_check_dequantise(const tq_plan *plan, const tq_dequantise_args *args, const tq_launch *launch) {
    static const char call[] = "tq_dequantise";
    tq_status status = check_launch(call, TQ_OP_DEQUANTISE, plan, args, launch);
    if (status)
        return status;
    return check_rows(call, plan, args->batch, args->n_tokens, args->x, args->x_seq_stride, args->x_token_stride,
                      args->x_head_stride, args->first_slot, args->cache, args->mean, 1);
}

static tq_status check_options(const char *call, const tq_plan *plan, const tq_decode_args *args) {
    int heads = plan->n_kv_heads * plan->gqa;
    tq_status status;
    if (!(args->scale > 0) || !isfinite(args->scale))
        return tq_fail(TQ_ERR_ARGUMENT, "%s: args.scale is %g; legal is a finite number > 0", call,
                       (double)args->scale);
    if (!(args->softcap >= 0) || !isfinite(args->softcap))
        return tq_fail(TQ_ERR_ARGUMENT, "%s: args.softcap is %g; legal is 0 (none) or a finite number > 0", call,
                       (double)args->softcap);
    if (args->window < 0)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: args.window is %d; legal is 0 (none) or more", call, args->window);
    if ((status = check_optional(call, "args.alibi", args->alibi, sizeof(float))) ||
        (status = check_optional(call, "args.sink_logits", args->sink_logits, sizeof(float))) ||
        (status = check_optional(call, "args.lse", args->lse, sizeof(float))))
        return status;
    for (int h = 0; args->alibi && h < heads; h++)
        if (!isfinite(args->alibi[h]))
            return tq_fail(TQ_ERR_NOT_FINITE, "%s: args.alibi[%d] is %g", call, h, (double)args->alibi[h]);
    for (int h = 0; args->sink_logits && h < heads; h++)
        if (!(args->sink_logits[h] < INFINITY))
            return tq_fail(TQ_ERR_NOT_FINITE, "%s: args.sink_logits[%d] is %g; legal is a finite number or -INFINITY",
                           call, h, (double)args->sink_logits[h]);
    if ((status = check_range(call, "args.n_sink", args->n_sink, 0, TQ_MAX_N_KV)) || args->n_sink == 0)
        return status;
    const tq_cache *const sinks[] = {args->sink_k, args->sink_v};
    static const char *const names[] = {"args.sink_k", "args.sink_v"};
    for (int i = 0; i < 2; i++) {
        if ((status = check_cache(call, names[i], sinks[i], 2 * plan->head_dim, args->batch, plan->n_kv_heads, 1)))
            return status;
        if (args->n_sink > sinks[i]->n_slots)
            return tq_fail(TQ_ERR_ARGUMENT, "%s: args.n_sink is %d; legal is 0 to %d (%s.n_slots)", call, args->n_sink,
                           sinks[i]->n_slots, names[i]);
    }
    return TQ_OK;
}

static tq_status check_query(const char *call, const tq_plan *plan, const tq_decode_args *args) {
    for (int s = 0; s < args->batch; s++)
        for (int h = 0; h < plan->n_kv_heads * plan->gqa; h++) {
            const float *q = args->q + (size_t)s * args->q_seq_stride + (size_t)h * args->q_head_stride;
            int bad = tq_first_not_finite(q, NULL, plan->head_dim);
            if (bad < plan->head_dim)
                return tq_fail(TQ_ERR_NOT_FINITE, "%s: args.q of sequence %d, head %d, index %d is %g", call, s, h, bad,
                               (double)q[bad]);
        }
    return TQ_OK;
}

tq_status tq_check_decode(const tq_plan *plan, const tq_decode_args *args, const tq_launch *launch) {
    static const char call[] = "tq_decode";
    tq_status status = check_launch(call, TQ_OP_DECODE, plan, args, launch);
    if (status || (status = tq_workspace_check(call, plan, launch)) ||
        (status = check_range(call, "args.batch", args->batch, 1, plan->max_batch)))
        return status;
    int heads = plan->n_kv_heads * plan->gqa, batch = args->batch;
    dimension q_dims[] = {{"q_head_stride", args->q_head_stride, heads}, {"q_seq_stride", args->q_seq_stride, batch}};
    dimension out_dims[] = {{"out_head_stride", args->out_head_stride, heads},
                            {"out_seq_stride", args->out_seq_stride, batch}};
    const tq_variant *variant = plan->variant;
    if ((status = check_floats(call, "args.q", args->q, q_dims, 2, plan->head_dim)) ||
        (status = check_floats(call, "args.out", args->out, out_dims, 2, plan->head_dim)) ||
        (status = check_cache(call, "args.k", args->k, variant->k->row_bytes, batch, plan->n_kv_heads, 1)) ||
        (status = check_cache(call, "args.v", args->v, variant->v->row_bytes, batch, plan->n_kv_heads, 1)) ||
        (status = check_pointer(call, "args.n_kv", args->n_kv, sizeof(int32_t))) ||
        (status = check_options(call, plan, args)))
        return status;

    int most = plan->max_n_kv;
    const char *why = "the plan's max_n_kv";
    if (args->k->n_slots < most) {
        most = args->k->n_slots;
        why = "args.k.n_slots";
    }
    if (args->v->n_slots < most) {
        most = args->v->n_slots;
        why = "args.v.n_slots";
    }
    for (int s = 0; s < batch; s++)
        if (args->n_kv[s] < 0 || args->n_kv[s] > most)
            return tq_fail(TQ_ERR_ARGUMENT, "%s: args.n_kv[%d] is %d; legal is 0 to %d (%s)", call, s,
                           (int)args->n_kv[s], most, why);
    return check_query(call, plan, args);
}
