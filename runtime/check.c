/* check.c: arguments of launches: what all share, then append, dequantise and repack. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Not 0 if a value is NaN or infinite. Integers without branches: compilers vectorise them. */
static inline uint32_t is_bad(float value) {
    const float zero = value - value; /* or -0 or NaN */
    uint32_t bits;
    memcpy(&bits, &zero, sizeof bits);
    return bits;
}

int tq_first_not_finite(const float *x, const float *mean, int n) {
    enum { RUN = 16 }; /* values that are looked at together: several vectors, so that the loop itself costs little */
    uint32_t bad = 0, seen[RUN] = {0};
    int j = 0;
    for (; !mean && j + RUN <= n; j += RUN)
        for (int k = 0; k < RUN; k++)
            seen[k] |= is_bad(x[j + k]);
    for (; mean && j + RUN <= n; j += RUN)
        for (int k = 0; k < RUN; k++)
            seen[k] |= is_bad(x[j + k] - mean[j + k]);
    for (; j < n; j++)
        bad |= is_bad(mean ? x[j] - mean[j] : x[j]);
    for (int k = 0; k < RUN; k++)
        bad |= seen[k];
    int i = bad << 1 ? 0 : n; /* whatever the sign of zeros */
    while (i < n && isfinite(mean ? x[i] - mean[i] : x[i]))
        i++;
    return i;
}

tq_status tq_check_range(const char *call, const char *what, int64_t found, int64_t low, int64_t high) {
    if (found >= low && found <= high)
        return TQ_OK;
    return tq_fail(TQ_ERR_ARGUMENT, "%s: %s is %lld; legal is %lld to %lld", call, what, (long long)found,
                   (long long)low, (long long)high);
}

tq_status tq_check_pointer(const char *call, const char *what, const void *pointer, size_t align) {
    if (!pointer)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: %s is NULL", call, what);
    if ((uintptr_t)pointer % align)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: %s is at %p; legal is a multiple of %zu", call, what, pointer, align);
    return TQ_OK;
}

tq_status tq_check_optional(const char *call, const char *what, const void *pointer, size_t align) {
    return pointer ? tq_check_pointer(call, what, pointer, align) : TQ_OK;
}

/* ---- strides ---------------------------------------------------------------------------------------------------- */

static size_t saturating_add(size_t a, size_t b) {
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

static size_t saturating_multiply(size_t a, size_t b) {
    return b && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

/* A dimension must step over all that lies within it: then no two rows overlap. *extent: in, of one row; out, of all.
 */
tq_status tq_check_strides(const char *call, const char *of, tq_dimension *dims, int n, const char *unit,
                           size_t *extent) {
    for (int i = 1; i < n; i++) /* innermost first */
        for (int j = i; j > 0 && dims[j].stride < dims[j - 1].stride; j--) {
            tq_dimension swap = dims[j];
            dims[j] = dims[j - 1];
            dims[j - 1] = swap;
        }
    for (int i = 0; i < n; i++) {
        if (dims[i].count <= 1)
            continue;
        if (dims[i].stride < *extent)
            return tq_fail(TQ_ERR_ARGUMENT, "%s: %s.%s is %zu; legal is at least %zu %s, which it has to step over",
                           call, of, dims[i].what, dims[i].stride, *extent, unit);
        *extent = saturating_add(*extent, saturating_multiply(dims[i].stride, (size_t)dims[i].count - 1));
    }
    return TQ_OK;
}

/* Values that a caller passes by strides. */
tq_status tq_check_values(const char *call, const char *what, const void *pointer, size_t align, tq_dimension *dims,
                          int n, int head_dim) {
    size_t extent = (size_t)head_dim;
    tq_status status = tq_check_pointer(call, what, pointer, align);
    return status ? status : tq_check_strides(call, "args", dims, n, align == 2 ? "halves" : "floats", &extent);
}

tq_status tq_check_floats(const char *call, const char *what, const float *pointer, tq_dimension *dims, int n,
                          int head_dim) {
    return tq_check_values(call, what, pointer, sizeof(float), dims, n, head_dim);
}

/* ---- caches ----------------------------------------------------------------------------------------------------- */

tq_unit tq_row_of_bytes(int bytes) {
    return (tq_unit){(size_t)bytes, 1};
}

tq_unit tq_unit_of(const tq_plan *plan, const tq_format_spec *format) {
    int keys = tq_keys_per_unit(plan->variant);
    return (tq_unit){tq_unit_bytes(format, plan->variant->layout, keys), keys};
}

static int units_in(tq_unit unit, int slots) {
    return slots / unit.keys + (slots % unit.keys != 0);
}

static tq_status check_pages(const char *call, const char *what, const tq_plan *plan, const tq_cache *cache,
                             tq_unit unit) {
    int64_t slots = (int64_t)cache->pages_stride * cache->page_slots;
    /* Kernels of CPUs read groups of rows. */
    int least = unit.keys == 1 && !tq_on_gpu(plan) ? TQ_GROUP : unit.keys;
    if (cache->page_slots < 1 || (cache->page_slots & (cache->page_slots - 1)) || cache->page_slots % least)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: %s.page_slots is %d; legal is a power of two and a multiple of %d", call,
                       what, cache->page_slots, least);
    if (!cache->pages || (uintptr_t)cache->pages % sizeof(int32_t))
        return tq_fail(TQ_ERR_ARGUMENT, "%s: %s.pages is at %p; legal is a multiple of %zu, and not NULL", call, what,
                       (const void *)cache->pages, sizeof(int32_t));
    if (cache->pages_stride < 1 || slots < cache->n_slots)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: %s.pages_stride is %d; %d slots in pages of %d need at least %d entries",
                       call, what, cache->pages_stride, cache->n_slots, cache->page_slots,
                       (cache->n_slots - 1) / cache->page_slots + 1);
    return TQ_OK;
}

/* On the CPU: do the pages of slots first .. end-1 of a sequence lie in the buffer? */
tq_status tq_check_page_numbers(const char *call, const char *what, const tq_plan *plan, const tq_cache *cache,
                                tq_unit unit, int sequence, int first, int end) {
    if (!cache->pages || tq_on_gpu(plan) || first >= end)
        return TQ_OK;
    size_t one = unit.bytes + (size_t)(plan->n_kv_heads - 1) * cache->head_stride +
                 (size_t)(cache->page_slots / unit.keys - 1) * cache->token_stride;
    size_t n_pages = cache->page_stride ? (cache->bytes - one) / cache->page_stride + 1 : 1;
    const int32_t *pages = cache->pages + (size_t)sequence * (size_t)cache->pages_stride;
    for (int i = first / cache->page_slots; i <= (end - 1) / cache->page_slots; i++)
        if (pages[i] < 0 || (size_t)pages[i] >= n_pages)
            return tq_fail(TQ_ERR_ARGUMENT, "%s: %s.pages[%d] of sequence %d is %d; legal is 0 to %zu", call, what, i,
                           sequence, (int)pages[i], n_pages - 1);
    return TQ_OK;
}

/* What units and their strides are multiples of, in bytes: vectors of tiles do not straddle lines. */
static size_t alignment_of(const tq_plan *plan, tq_unit unit) {
    return unit.keys == 1 ? 2 : tq_on_gpu(plan) ? 16 : 64;
}

/* The name is put together only for a message: launches are short. */
static tq_status check_data(const char *call, const char *cache, const void *data, size_t align) {
    char name[64];
    if (data && (uintptr_t)data % align == 0)
        return TQ_OK;
    snprintf(name, sizeof name, "%s.data", cache);
    return tq_check_pointer(call, name, data, align);
}

/* For reading, seq_stride 0 lets all sequences share one cache. */
tq_status tq_check_cache(const char *call, const char *what, const tq_plan *plan, const tq_cache *cache, tq_unit unit,
                         int batch, int reading) {
    int n_kv_heads = plan->n_kv_heads;
    tq_status status = tq_check_pointer(call, what, cache, sizeof(void *));
    size_t multiple = alignment_of(plan, unit);
    if (status || (status = check_data(call, what, cache->data, tq_on_gpu(plan) ? 16 : multiple)))
        return status;
    if (cache->n_slots < 1 || cache->n_slots > TQ_MAX_N_KV)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: %s.n_slots is %d; legal is 1 to %d", call, what, cache->n_slots,
                       TQ_MAX_N_KV);
    int paged = cache->page_slots || cache->pages;
    if (paged && (status = check_pages(call, what, plan, cache, unit)))
        return status;

    tq_dimension dims[] = {{"token_stride", cache->token_stride, units_in(unit, cache->n_slots)},
                           {"head_stride", cache->head_stride, n_kv_heads},
                           {"seq_stride", cache->seq_stride, reading && cache->seq_stride == 0 ? 1 : batch}};
    if (paged) {
        dims[0].count = cache->page_slots / unit.keys;
        /* How many pages there are is not known here: one more than one, if there may be several. */
        dims[2] = (tq_dimension){"page_stride", cache->page_stride, cache->pages_stride > 1 || batch > 1 ? 2 : 1};
    }
    for (int i = 0; i < 3; i++)
        if (dims[i].stride % multiple)
            return tq_fail(TQ_ERR_ARGUMENT, "%s: %s.%s is %zu; legal is a multiple of %zu", call, what, dims[i].what,
                           dims[i].stride, multiple);
    /* Kernels multiply these by unit and page numbers in 32 x 32 bits. */
    for (int i = 0; i < 3 && tq_on_gpu(plan); i++)
        if (dims[i].stride > UINT32_MAX && (i == 0 || (paged && i == 2)))
            return tq_fail(TQ_ERR_ARGUMENT, "%s: %s.%s is %zu; legal is at most %u", call, what, dims[i].what,
                           dims[i].stride, UINT32_MAX);
    size_t extent = unit.bytes;
    if ((status = tq_check_strides(call, what, dims, 3, "bytes", &extent)))
        return status;
    if (cache->bytes < extent && paged)
        return tq_fail(TQ_ERR_ARGUMENT,
                       "%s: %s.bytes is %zu; %d heads in pages of %d slots by these strides need at least %zu", call,
                       what, cache->bytes, n_kv_heads, cache->page_slots, extent);
    if (cache->bytes < extent)
        return tq_fail(TQ_ERR_ARGUMENT,
                       "%s: %s.bytes is %zu; %d sequences, %d heads and %d slots by these strides need at least %zu",
                       call, what, cache->bytes, batch, n_kv_heads, cache->n_slots, extent);
    return TQ_OK;
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

tq_status tq_check_launch(const char *call, tq_op op, const tq_plan *plan, const void *args, const tq_launch *launch) {
    if (!plan || !args || !launch)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: %s is NULL", call, !plan ? "plan" : !args ? "args" : "launch");
    if (plan->op != op)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: the plan is for %s; legal is a plan for %s", call, tq_op_name(plan->op),
                       tq_op_name(op));
    if (launch->thread_count < 1)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: launch.thread_count is %d; legal is at least 1", call,
                       launch->thread_count);
    return tq_check_range(call, "launch.thread_index", launch->thread_index, 0, launch->thread_count - 1);
}

/* Sequences are the last tq_dimension of a grid, which may be this large. */
enum { MAX_GRID_Z = 65535 };

tq_status tq_check_batch(const char *call, const tq_plan *plan, int batch) {
    return tq_check_range(call, "args.batch", batch, 1, tq_on_gpu(plan) ? MAX_GRID_Z : TQ_MAX_BATCH);
}

static tq_status check_mean(const char *call, const tq_plan *plan, const float *mean) {
    tq_status status = tq_check_optional(call, "args.mean", mean, sizeof(float));
    int n = plan->n_kv_heads * plan->head_dim;
    if (tq_on_gpu(plan))
        return status;
    int bad = status || !mean ? n : tq_first_not_finite(mean, NULL, n);
    if (bad < n)
        return tq_fail(TQ_ERR_NOT_FINITE, "%s: args.mean of head %d, index %d is %g", call, bad / plan->head_dim,
                       bad % plan->head_dim, (double)mean[bad]);
    return status;
}

/* Contents of arrays: on other devices than the CPU nobody looks at them. */
static tq_status check_first_slot(const char *call, const char *what, const tq_plan *plan, const int32_t *first_slot,
                                  int batch, int n_tokens, int n_slots) {
    tq_status status = tq_check_pointer(call, "args.first_slot", first_slot, sizeof(int32_t));
    for (int s = 0; !status && !tq_on_gpu(plan) && s < batch; s++)
        if (first_slot[s] < 0 || first_slot[s] > n_slots - n_tokens)
            return tq_fail(TQ_ERR_ARGUMENT,
                           "%s: args.first_slot[%d] is %d; legal is 0 to %d (%s.n_slots %d less n_tokens %d)", call, s,
                           (int)first_slot[s], n_slots - n_tokens, what, n_slots, n_tokens);
    return status;
}

/* The pages of the tokens that a launch moves. */
static tq_status check_token_pages(const char *call, const char *what, const tq_plan *plan, const tq_cache *cache,
                                   tq_unit unit, const int32_t *first_slot, int batch, int n_tokens) {
    tq_status status = TQ_OK;
    for (int s = 0; !status && cache->pages && !tq_on_gpu(plan) && s < batch; s++)
        status = tq_check_page_numbers(call, what, plan, cache, unit, s, first_slot[s], first_slot[s] + n_tokens);
    return status;
}

/* What append and dequantise have in common. */
typedef struct row_args {
    int batch, n_tokens;
    const void *x;
    size_t value_bytes, seq_stride, token_stride, head_stride;
    const int32_t *first_slot;
    const tq_cache *cache;
    const float *mean;
    int reading;
} row_args;

static tq_status check_rows(const char *call, const tq_plan *plan, const row_args *args) {
    static const char cache[] = "args.cache";
    tq_status status = tq_check_batch(call, plan, args->batch);
    if (status ||
        (status = tq_check_cache(call, cache, plan, args->cache, tq_unit_of(plan, plan->format), args->batch,
                                 args->reading)) ||
        (status = tq_check_range(call, "args.n_tokens", args->n_tokens, 0, args->cache->n_slots)) ||
        (status = check_mean(call, plan, args->mean)))
        return status;
    tq_dimension dims[] = {{"x_head_stride", args->head_stride, plan->n_kv_heads},
                           {"x_token_stride", args->token_stride, args->n_tokens},
                           {"x_seq_stride", args->seq_stride, args->batch}};
    if ((status = tq_check_pointer(call, "args.first_slot", args->first_slot, sizeof(int32_t))) ||
        (status = tq_check_values(call, "args.x", args->x, args->value_bytes, dims, 3, plan->head_dim)))
        return status;
    status = check_first_slot(call, cache, plan, args->first_slot, args->batch, args->n_tokens, args->cache->n_slots);
    return status ? status
                  : check_token_pages(call, cache, plan, args->cache, tq_unit_of(plan, plan->format), args->first_slot,
                                      args->batch, args->n_tokens);
}

tq_status tq_check_append(const tq_plan *plan, const tq_append_args *args, const tq_launch *launch, int *mode) {
    static const char call[] = "tq_append";
    tq_status status = tq_check_launch(call, TQ_OP_APPEND, plan, args, launch);
    if (status)
        return status;
    const row_args rows = {.batch = args->batch,
                           .n_tokens = args->n_tokens,
                           .x = args->x,
                           .value_bytes = sizeof(float),
                           .seq_stride = args->x_seq_stride,
                           .token_stride = args->x_token_stride,
                           .head_stride = args->x_head_stride,
                           .first_slot = args->first_slot,
                           .cache = args->cache,
                           .mean = args->mean};
    if ((status = check_rows(call, plan, &rows)) ||
        (status = tq_check_optional(call, "args.status", args->status, sizeof(int32_t))))
        return status;
    return tq_resolve_mode(call, plan->format, args->mode, mode);
}

tq_status tq_check_dequantise(const tq_plan *plan, const tq_dequantise_args *args, const tq_launch *launch) {
    static const char call[] = "tq_dequantise";
    tq_status status = tq_check_launch(call, TQ_OP_DEQUANTISE, plan, args, launch);
    if (status || (status = tq_check_range(call, "args.x_type", (int)args->x_type, TQ_F32, TQ_F16)))
        return status;
    if (args->x_type != TQ_F32 && !tq_on_gpu(plan))
        return tq_fail(TQ_ERR_UNSUPPORTED, "%s: args.x_type is TQ_F16; device %s has TQ_F32", call, plan->device->name);
    const row_args rows = {.batch = args->batch,
                           .n_tokens = args->n_tokens,
                           .x = args->x,
                           .value_bytes = args->x_type == TQ_F16 ? 2 : sizeof(float),
                           .seq_stride = args->x_seq_stride,
                           .token_stride = args->x_token_stride,
                           .head_stride = args->x_head_stride,
                           .first_slot = args->first_slot,
                           .cache = args->cache,
                           .mean = args->mean,
                           .reading = 1};
    return check_rows(call, plan, &rows);
}

tq_status tq_check_repack(const tq_plan *plan, const tq_repack_args *args, const tq_launch *launch) {
    static const char call[] = "tq_repack";
    tq_status status = tq_check_launch(call, TQ_OP_REPACK, plan, args, launch);
    if (status || (status = tq_check_batch(call, plan, args->batch)) ||
        (status = tq_check_cache(call, "args.rows", plan, args->rows, tq_row_of_bytes(plan->format->row_bytes),
                                 args->batch, args->to_tiles)) ||
        (status = tq_check_cache(call, "args.tiles", plan, args->tiles, tq_unit_of(plan, plan->format), args->batch,
                                 !args->to_tiles)))
        return status;
    int rows = args->rows->n_slots, tiles = args->tiles->n_slots, batch = args->batch, n = args->n_tokens;
    const int32_t *first_slot = args->first_slot;
    if ((status = tq_check_range(call, "args.n_tokens", n, 0, rows < tiles ? rows : tiles)) ||
        (status = tq_check_optional(call, "args.n_inexact", args->n_inexact, sizeof(int32_t))) ||
        (status = check_first_slot(call, "args.rows", plan, first_slot, batch, n, rows)) ||
        (status = check_first_slot(call, "args.tiles", plan, first_slot, batch, n, tiles)) ||
        (status = check_token_pages(call, "args.rows", plan, args->rows, tq_row_of_bytes(plan->format->row_bytes),
                                    first_slot, batch, n)))
        return status;
    return check_token_pages(call, "args.tiles", plan, args->tiles, tq_unit_of(plan, plan->format), first_slot, batch,
                             n);
}
