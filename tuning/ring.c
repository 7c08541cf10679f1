#include "ring.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "memory.h"

static size_t round_up(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/* Adds the bytes of its tokens to *used; a last tile may have more. */
static tq_cache cache_of(const harness_options *options, const char *layout, const char *format, int head_dim,
                         int tokens, double *used) {
    tq_layout_info unit;
    tq_cache cache = {0};
    if (format) {
        cli_check(tq_layout_find(layout, format, head_dim, &unit));
        const size_t units = (size_t)((tokens + unit.keys_per_unit - 1) / unit.keys_per_unit);
        const size_t heads = (size_t)options->n_kv_heads;
        cache.token_stride = options->interleaved ? heads * unit.unit_bytes : unit.unit_bytes;
        cache.head_stride = options->interleaved ? unit.unit_bytes : units * unit.unit_bytes;
        cache.seq_stride = units * heads * unit.unit_bytes;
        cache.bytes = cache.seq_stride;
        cache.n_slots = tokens;
        *used += (double)unit.unit_bytes / unit.keys_per_unit * tokens * options->n_kv_heads;
    }
    return cache;
}

bool ring_serves(const ring *r, const contract *c) {
    contract same = r->of;
    same.gqa = c->gqa; /* query heads and what is added to scores do not change the cache */
    same.bias_pairs = c->bias_pairs;
    return !r->guest && contract_equal(&same, c);
}

void ring_init(ring *r, const harness_options *options, const contract *c) {
    const bool repacks = c->op == TQ_OP_REPACK;
    const char *one = c->side == TQ_SIDE_K ? c->k : c->v;
    *r = (ring){.of = *c, .tokens = harness_launch_tokens(c, options->n_kv)};
    r->k = cache_of(options, repacks ? "rows" : c->layout, repacks ? one : c->k, c->head_dim, r->tokens, &r->used);
    r->v = cache_of(options, c->layout, repacks ? one : c->v, contract_values(c, TQ_SIDE_V), r->tokens, &r->used);
    r->v_at = round_up(r->k.bytes);
    r->pitch = r->v_at + round_up(r->v.bytes);
}

void ring_init_guest(ring *r, const harness_guest *guest) {
    *r = (ring){
        .tokens = guest->tokens, .pitch = guest->cache_bytes, .used = (double)guest->cache_bytes, .guest = guest};
}

/* ---- their contents --------------------------------------------------------------------------------------------- */

typedef struct fill {
    const tq_plan *plan;
    tq_append_args args;
} fill;

static void fill_on_thread(void *context, int thread_index, int thread_count) {
    fill *f = context;
    tq_launch launch = {NULL, 0, thread_index, thread_count, NULL};
    cli_check(tq_append(f->plan, &f->args, &launch));
}

/* Appends the same few hundred random tokens again and again: kernels take no notice of the values. */
static void append_tokens(const harness_options *options, rng *rng, const contract *append, const tq_plan *plan,
                          const tq_cache *cache) {
    const tq_device *device = options->device;
    const size_t head_dim = (size_t)append->head_dim, heads = (size_t)options->n_kv_heads;
    const int batch = cache->n_slots < HARNESS_BATCH_TOKENS ? cache->n_slots : HARNESS_BATCH_TOKENS;
    const size_t n = (size_t)batch * heads * head_dim;
    float *x = cli_alloc(n, sizeof *x);
    rng_fill_gaussian(rng, x, n);
    float *values = memory_copy(device, x, n * sizeof *x);
    int32_t *first_slot = memory_new(device, sizeof *first_slot);
    for (int32_t slot = 0; slot < cache->n_slots; slot += batch) {
        int tokens = cache->n_slots - slot < batch ? cache->n_slots - slot : batch;
        memory_write(device, first_slot, &slot, sizeof slot);
        fill f = {.plan = plan,
                  .args = {.batch = 1,
                           .n_tokens = tokens,
                           .x = values,
                           .x_seq_stride = (size_t)tokens * heads * head_dim,
                           .x_token_stride = heads * head_dim,
                           .x_head_stride = head_dim,
                           .first_slot = first_slot,
                           .cache = cache,
                           .mode = append->mode}};
        memory_run(device, options->pool, fill_on_thread, &f);
    }
    memory_free(device, values);
    memory_free(device, first_slot);
    free(x);
}

/* Random bytes for devices that have no kernel to append with in this build: as 16-bit floats without NaN or Inf and, since
 * they may be scales, not negative. */
static void fill_with_bytes(const harness_options *options, rng *rng, const tq_cache *cache) {
    uint8_t *bytes = cli_alloc(cache->bytes, 1);
    for (size_t i = 0; i < cache->bytes; i++)
        bytes[i] = (uint8_t)rng_next(rng) & 0x3f;
    memory_write(options->device, cache->data, bytes, cache->bytes);
    free(bytes);
}

static void fill_side(const harness_options *options, rng *rng, const contract *of, tq_side side, const char *layout,
                      const char *format, tq_cache cache, uint8_t *data) {
    contract append = {.op = TQ_OP_APPEND,
                       .side = side,
                       .head_dim = contract_values(of, side),
                       .layout = layout,
                       .mode = contract_mode(of, side)};
    *(side == TQ_SIDE_K ? &append.k : &append.v) = format;
    tq_plan_desc desc = contract_plan(&append, options->n_kv_heads, cache.n_slots, pool_threads(options->pool));
    tq_plan *plan;
    tq_status status = tq_plan_create(options->device, &desc, &plan);
    cache.data = data;
    if (status == TQ_ERR_UNSUPPORTED && !memory_is_cpu(options->device)) {
        fill_with_bytes(options, rng, &cache);
        return;
    }
    cli_check(status);
    append_tokens(options, rng, &append, plan, &cache);
    tq_plan_destroy(plan);
}

/* ---- how many --------------------------------------------------------------------------------------------------- */

/* What must go by before a buffer is cold, and how much room there is. Caches of GPUs are not asked for: none is larger. */
static void cache_sizes(const harness_options *options, double *cache_bytes, double *free_bytes) {
    tq_device_info info;
    const bool on_cpu = memory_is_cpu(options->device), simt = memory_is_simt(options->device);
    cli_check(tq_device_describe(options->device, &info));
    *cache_bytes = simt ? 0 : on_cpu ? (double)machine_cache_bytes() : 0x1p28;
    *free_bytes = on_cpu || simt ? 0.8 * (double)machine_free_bytes() : 0.5 * (double)info.memory_bytes;
}

/* Launches of everybody that pass before a ring with n buffers comes round again read n / n_users rounds' bytes. */
static void size_rings(ring *rings, int n, const harness_options *options) {
    double per_round = 0, cache_bytes, free_bytes;
    cache_sizes(options, &cache_bytes, &free_bytes);
    for (int i = 0; i < n; i++)
        per_round += (double)rings[i].pitch * rings[i].n_users;
    double rounds = ceil(2 * cache_bytes / per_round) + 1;
    const double wanted = per_round * rounds;
    if (wanted > free_bytes) {
        rounds = floor(rounds * free_bytes / wanted);
        if (rounds < 1) {
            cli_fail("--n-kv %d: the caches of this shape take %.1f GiB, and %.1f GiB are free", options->n_kv,
                     wanted / 0x1p30, free_bytes / 0x1p30);
        }
        cli_warn("little memory is free: caches may be warm");
    }
    for (int i = 0; i < n; i++)
        rings[i].n = rings[i].n_users * (int)rounds;
}

static void build_ring(ring *r, const harness_options *options, rng *rng) {
    const tq_device *device = options->device;
    const contract *of = &r->of;
    if (r->guest) {
        r->guest->prepare(r->guest->context, r->n);
        return;
    }
    r->buffers = memory_new(device, r->pitch * (size_t)r->n);
    if (of->op == TQ_OP_REPACK) {
        fill_side(options, rng, of, of->side, "rows", of->side == TQ_SIDE_K ? of->k : of->v, r->k, r->buffers);
    } else {
        if (of->k)
            fill_side(options, rng, of, TQ_SIDE_K, of->layout, of->k, r->k, r->buffers);
        if (of->v)
            fill_side(options, rng, of, TQ_SIDE_V, of->layout, of->v, r->v, r->buffers + r->v_at);
    }
    uint8_t *copy = cli_alloc(r->pitch, 1);
    memory_read(device, copy, r->buffers, r->pitch);
    for (int i = 1; i < r->n; i++)
        memory_write(device, r->buffers + r->pitch * (size_t)i, copy, r->pitch);
    free(copy);
}

void rings_build(ring *rings, int n, const harness_options *options, rng *rng) {
    size_rings(rings, n, options);
    for (int i = 0; i < n; i++)
        build_ring(&rings[i], options, rng);
}

void ring_buffer(const ring *r, int i, tq_cache *k, tq_cache *v) {
    *k = r->k;
    *v = r->v;
    k->data = r->buffers + r->pitch * (size_t)i;
    v->data = r->buffers + r->pitch * (size_t)i + r->v_at;
}

void ring_free(ring *r, const harness_options *options) {
    memory_free(options->device, r->buffers);
}
