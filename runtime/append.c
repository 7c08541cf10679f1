/* append.c: launches on the CPU that work row by row: append, dequantise and repack. */
#include "internal.h"

#include <math.h>

/* Rows are numbered over (sequence, token, KV head), so that x is read in its usual order, or, where tiles are written a
 * few bytes here and there, over (sequence, KV head, token), so that they stay in cache; each thread takes a run. */
typedef struct row {
    int sequence, token, kv_head;
} row;

static row row_at(const tq_plan *plan, int n_tokens, int64_t index) {
    const int tiled = tq_keys_per_unit(plan->variant) > 1, inner = tiled ? n_tokens : plan->n_kv_heads;
    const int64_t outer = index / inner, n_outer = tiled ? plan->n_kv_heads : n_tokens;
    const int a = (int)(outer % n_outer), b = (int)(index % inner);
    return (row){(int)(outer / n_outer), tiled ? b : a, tiled ? a : b};
}

/* To the row behind r: divisions would take as long as quantising. */
static void step(row *r, const tq_plan *plan, int n_tokens) {
    const int tiled = tq_keys_per_unit(plan->variant) > 1, n_inner = tiled ? n_tokens : plan->n_kv_heads;
    int *inner = tiled ? &r->token : &r->kv_head, *outer = tiled ? &r->kv_head : &r->token;
    if (++*inner < n_inner)
        return;
    *inner = 0;
    if (++*outer < (tiled ? plan->n_kv_heads : n_tokens))
        return;
    *outer = 0;
    r->sequence++;
}

static void share(const tq_plan *plan, int batch, int n_tokens, const tq_launch *launch, int64_t *begin, int64_t *end) {
    int64_t n = (int64_t)batch * n_tokens * plan->n_kv_heads;
    int64_t each = n / launch->thread_count, rest = n % launch->thread_count;
    *begin = each * launch->thread_index + (launch->thread_index < rest ? launch->thread_index : rest);
    *end = *begin + each + (launch->thread_index < rest);
}

static const uint32_t *signs_of(const tq_plan *plan) {
    return plan->side == TQ_SIDE_K ? plan->format->k_signs : plan->format->v_signs;
}

static const float *mean_of(const tq_plan *plan, const float *mean, int kv_head) {
    return mean ? mean + (size_t)kv_head * (size_t)plan->head_dim : NULL;
}

static size_t offset_of(const row *r, size_t seq_stride, size_t token_stride, size_t head_stride) {
    return (size_t)r->sequence * seq_stride + (size_t)r->token * token_stride + (size_t)r->kv_head * head_stride;
}

/* Where a row lies: key `key` of a unit of the plan's layout. */
typedef struct slot {
    uint8_t *unit;
    int keys, key;
} slot;

static slot slot_of(const tq_plan *plan, const tq_cache *cache, const row *r, const int32_t *first_slot) {
    int keys = tq_keys_per_unit(plan->variant), at = first_slot[r->sequence] + r->token;
    return (slot){tq_cache_unit(cache, keys, r->sequence, r->kv_head, at), keys, keys > 1 ? at % keys : 0};
}

static tq_status not_finite(const row *r, const float *x, const float *mean, int index) {
    if (!isfinite(x[index]) || !mean)
        return tq_fail(TQ_ERR_NOT_FINITE, "tq_append: args.x of sequence %d, token %d, head %d, index %d is %g",
                       r->sequence, r->token, r->kv_head, index, (double)x[index]);
    return tq_fail(TQ_ERR_NOT_FINITE,
                   "tq_append: args.x - args.mean of sequence %d, token %d, head %d, index %d is %g - %g", r->sequence,
                   r->token, r->kv_head, index, (double)x[index], (double)mean[index]);
}

static const float *values_of(const tq_append_args *args, const row *r) {
    return args->x + offset_of(r, args->x_seq_stride, args->x_token_stride, args->x_head_stride);
}

/* How many of `left` rows from r on lie, with their means, one behind the other. */
static int rows_in_line(const tq_plan *plan, const tq_append_args *args, const row *r, int64_t left) {
    if (tq_keys_per_unit(plan->variant) > 1 || args->x_head_stride != (size_t)plan->head_dim)
        return 1;
    const int heads = plan->n_kv_heads - r->kv_head;
    return left < heads ? (int)left : heads;
}

/* The n rows from r on; r becomes the one behind them. */
static void store_rows(const tq_plan *plan, const tq_append_args *args, int mode, int n, row *r) {
    const float *x[TQ_APPEND_ROWS], *mean[TQ_APPEND_ROWS];
    uint8_t packed[TQ_APPEND_ROWS][2 * TQ_MAX_HEAD_DIM], *rows[TQ_APPEND_ROWS];
    slot to[TQ_APPEND_ROWS];
    for (int i = 0; i < n; i++, step(r, plan, args->n_tokens)) {
        x[i] = values_of(args, r);
        mean[i] = mean_of(plan, args->mean, r->kv_head);
        to[i] = slot_of(plan, args->cache, r, args->first_slot);
        rows[i] = to[i].keys > 1 ? packed[i] : to[i].unit;
    }
    plan->variant->append(x, mean, signs_of(plan), mode, n, rows);
    for (int i = 0; i < n && to[i].keys > 1; i++)
        tq_tile_put(plan->format, plan->side, packed[i], to[i].key, to[i].unit);
}

tq_status tq_append(const tq_plan *plan, const tq_append_args *args, const tq_launch *launch) {
    int mode;
    int64_t begin, end;
    tq_status status = tq_check_append(plan, args, launch, &mode);
    if (status)
        return status;
    if (tq_on_gpu(plan))
        return tq_gpu_append(plan, args, launch, mode);
    share(plan, args->batch, args->n_tokens, launch, &begin, &end);
    if (begin == end)
        return TQ_OK;
    const row first = row_at(plan, args->n_tokens, begin);
    /* Look at the whole share before the first row is stored. */
    row r = first;
    for (int64_t i = begin; i < end; step(&r, plan, args->n_tokens)) {
        const float *x = values_of(args, &r), *mean = mean_of(plan, args->mean, r.kv_head);
        const int rows = rows_in_line(plan, args, &r, end - i), n = rows * plan->head_dim;
        const int bad = tq_first_not_finite(x, mean, n);
        r.kv_head += bad < n ? bad / plan->head_dim : rows - 1;
        if (bad < n)
            return not_finite(&r, values_of(args, &r), mean_of(plan, args->mean, r.kv_head), bad % plan->head_dim);
        i += rows;
    }
    r = first;
    for (int64_t i = begin; i < end; i += TQ_APPEND_ROWS)
        store_rows(plan, args, mode, end - i < TQ_APPEND_ROWS ? (int)(end - i) : TQ_APPEND_ROWS, &r);
    return TQ_OK;
}

tq_status tq_dequantise(const tq_plan *plan, const tq_dequantise_args *args, const tq_launch *launch) {
    int64_t begin, end;
    tq_status status = tq_check_dequantise(plan, args, launch);
    if (status)
        return status;
    if (tq_on_gpu(plan))
        return tq_gpu_dequantise(plan, args, launch);
    share(plan, args->batch, args->n_tokens, launch, &begin, &end);
    if (begin == end)
        return TQ_OK;
    row r = row_at(plan, args->n_tokens, begin);
    for (int64_t i = begin; i < end; i++, step(&r, plan, args->n_tokens)) {
        float *x = (float *)args->x + offset_of(&r, args->x_seq_stride, args->x_token_stride, args->x_head_stride);
        const slot from = slot_of(plan, args->cache, &r, args->first_slot);
        uint8_t packed[2 * TQ_MAX_HEAD_DIM];
        if (from.keys > 1)
            tq_tile_get(plan->format, plan->side, from.unit, from.key, packed);
        plan->variant->dequantise(from.keys > 1 ? packed : from.unit, mean_of(plan, args->mean, r.kv_head),
                                  signs_of(plan), x);
    }
    return TQ_OK;
}

tq_status tq_repack(const tq_plan *plan, const tq_repack_args *args, const tq_launch *launch) {
    int64_t begin, end;
    tq_status status = tq_check_repack(plan, args, launch);
    if (status)
        return status;
    if (tq_on_gpu(plan))
        return tq_gpu_repack(plan, args, launch);
    share(plan, args->batch, args->n_tokens, launch, &begin, &end);
    if (begin == end)
        return TQ_OK;
    row r = row_at(plan, args->n_tokens, begin);
    for (int64_t i = begin; i < end; i++, step(&r, plan, args->n_tokens)) {
        const slot in_tile = slot_of(plan, args->tiles, &r, args->first_slot);
        uint8_t *row = tq_cache_unit(args->rows, 1, r.sequence, r.kv_head, args->first_slot[r.sequence] + r.token);
        if (args->to_tiles)
            tq_tile_put(plan->format, plan->side, row, in_tile.key, in_tile.unit);
        else
            tq_tile_get(plan->format, plan->side, in_tile.unit, in_tile.key, row);
    }
    return TQ_OK;
}
