#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

enum { MAX_CONTESTANTS = 128, MAX_ROUNDS = 1024 };

/* Cache buffers of one pair of formats. Unused sides are empty. */
typedef struct ring {
    contract of;   /* whose formats these are */
    int n_users;   /* contestants that take buffers from it */
    int tokens;    /* slots per head */
    tq_cache k, v; /* geometry; data is the first buffer's */
    int n, next;
    uint8_t *buffers; /* n times (k.bytes rounded up + v.bytes rounded up) */
    size_t pitch, v_at;
} ring;

typedef struct contestant {
    contract of;
    tq_plan *plan;
    ring *ring;
    void *workspace;
    size_t workspace_bytes;
    float *in, *out; /* q and output; appended or dequantised values */
    double samples[MAX_ROUNDS];
    int n_samples;
    bool gave_up;
} contestant;

struct harness {
    harness_options options;
    rng rng;
    int n, n_rings;
    contestant contestants[MAX_CONTESTANTS];
    ring rings[MAX_CONTESTANTS];
};

static size_t round_up(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/* ---- buffers ---------------------------------------------------------------------------------------------------- */

static tq_cache cache_of(const harness *h, const char *format, int head_dim, int tokens) {
    tq_format_info info;
    tq_cache cache = {0};
    if (format) {
        cli_check(tq_format_find(format, head_dim, &info));
        cache.token_stride = (size_t)info.row_bytes;
        cache.head_stride = cache.token_stride * (size_t)tokens;
        cache.seq_stride = cache.head_stride * (size_t)h->options.n_kv_heads;
        cache.bytes = cache.seq_stride;
        cache.n_slots = tokens;
    }
    return cache;
}

static ring *ring_for(harness *h, const contract *c) {
    for (int i = 0; i < h->n_rings; i++) {
        ring *r = &h->rings[i];
        contract same = r->of;
        same.gqa = c->gqa; /* query heads do not change the cache */
        if (contract_equal(&same, c))
            return r;
    }
    ring *r = &h->rings[h->n_rings++];
    r->of = *c;
    r->tokens =
        c->op == TQ_OP_DECODE || h->options.n_kv < HARNESS_BATCH_TOKENS ? h->options.n_kv : HARNESS_BATCH_TOKENS;
    r->k = cache_of(h, c->k, c->head_dim, r->tokens);
    r->v = cache_of(h, c->v, c->head_dim, r->tokens);
    r->v_at = round_up(r->k.bytes);
    r->pitch = r->v_at + round_up(r->v.bytes);
    return r;
}

typedef struct fill {
    const tq_plan *plan;
    tq_append_args args;
} fill;

static void fill_on_thread(void *context, int thread_index, int thread_count) {
    fill *f = context;
    tq_launch launch = {NULL, 0, thread_index, thread_count};
    cli_check(tq_append(f->plan, &f->args, &launch));
}

/* Appends the same few hundred random tokens again and again: kernels take no notice of the values. */
static void fill_side(harness *h, const contract *of, tq_side side, tq_cache cache, uint8_t *data) {
    const size_t head_dim = (size_t)of->head_dim, heads = (size_t)h->options.n_kv_heads;
    const int batch = cache.n_slots < HARNESS_BATCH_TOKENS ? cache.n_slots : HARNESS_BATCH_TOKENS;
    contract append = {.op = TQ_OP_APPEND, .side = side, .head_dim = of->head_dim, .layout = of->layout};
    *(side == TQ_SIDE_K ? &append.k : &append.v) = side == TQ_SIDE_K ? of->k : of->v;
    tq_plan_desc desc = contract_plan(&append, h->options.n_kv_heads, cache.n_slots, pool_threads(h->options.pool));
    tq_plan *plan;
    cli_check(tq_plan_create(h->options.device, &desc, &plan));
    float *x = cli_alloc((size_t)batch * heads * head_dim, sizeof *x);
    rng_fill_gaussian(&h->rng, x, (size_t)batch * heads * head_dim);
    cache.data = data;
    int32_t slot;
    for (slot = 0; slot < cache.n_slots; slot += batch) {
        int tokens = cache.n_slots - slot < batch ? cache.n_slots - slot : batch;
        fill f = {.plan = plan,
                  .args = {.batch = 1,
                           .n_tokens = tokens,
                           .x = x,
                           .x_seq_stride = (size_t)tokens * heads * head_dim,
                           .x_token_stride = heads * head_dim,
                           .x_head_stride = head_dim,
                           .first_slot = &slot,
                           .cache = &cache}};
        pool_run(h->options.pool, fill_on_thread, &f);
    }
    free(x);
    tq_plan_destroy(plan);
}

/* Launches of everybody that pass before a ring with n buffers comes round again read n / n_users rounds' bytes. */
static void size_rings(harness *h) {
    double per_round = 0, wanted = 0;
    for (int i = 0; i < h->n; i++)
        per_round += (double)h->contestants[i].ring->pitch;
    double free_bytes = 0.8 * (double)machine_free_bytes(),
           rounds = ceil(2 * (double)machine_cache_bytes() / per_round) + 1;
    for (int i = 0; i < h->n_rings; i++)
        wanted += (double)h->rings[i].pitch * h->rings[i].n_users * rounds;
    if (wanted > free_bytes) {
        rounds = floor(rounds * free_bytes / wanted);
        if (rounds < 1) {
            cli_fail("--n-kv %d: the caches of this shape take %.1f GiB, and %.1f GiB are free", h->options.n_kv,
                     wanted / 0x1p30, free_bytes / 0x1p30);
        }
        cli_warn("little memory is free: caches may be warm");
    }
    for (int i = 0; i < h->n_rings; i++)
        h->rings[i].n = h->rings[i].n_users * (int)rounds;
}

static void build_ring(harness *h, ring *r) {
    r->buffers = cli_alloc_aligned(r->pitch * (size_t)r->n);
    if (r->of.k)
        fill_side(h, &r->of, TQ_SIDE_K, r->k, r->buffers);
    if (r->of.v)
        fill_side(h, &r->of, TQ_SIDE_V, r->v, r->buffers + r->v_at);
    for (int i = 1; i < r->n; i++)
        memcpy(r->buffers + r->pitch * (size_t)i, r->buffers, r->pitch);
}

/* ---- contestants ------------------------------------------------------------------------------------------------ */

harness *harness_create(const harness_options *options) {
    harness *h = cli_alloc(1, sizeof *h);
    h->options = *options;
    h->rng.state = options->seed;
    return h;
}

void harness_destroy(harness *h) {
    for (int i = 0; i < h->n; i++) {
        tq_plan_destroy(h->contestants[i].plan);
        free(h->contestants[i].workspace);
        free(h->contestants[i].in);
        free(h->contestants[i].out);
    }
    for (int i = 0; i < h->n_rings; i++)
        free(h->rings[i].buffers);
    free(h);
}

int harness_add(harness *h, const contract *c, const char *pin) {
    if (h->n == MAX_CONTESTANTS)
        cli_fail("more than %d kernels at a time; narrow the axes", MAX_CONTESTANTS);
    contestant *one = &h->contestants[h->n];
    one->of = *c;
    tq_plan_desc desc = contract_plan(c, h->options.n_kv_heads, h->options.n_kv, pool_threads(h->options.pool));
    desc.effort = pin ? TQ_EFFORT_PINNED : TQ_EFFORT_DEFAULT;
    desc.pin = pin;
    cli_check(tq_plan_create(h->options.device, &desc, &one->plan));
    one->workspace_bytes = tq_plan_workspace_bytes(one->plan);
    one->workspace = cli_alloc_aligned(one->workspace_bytes);
    if (one->workspace_bytes)
        cli_check(tq_workspace_init(one->plan, one->workspace, one->workspace_bytes));
    one->ring = ring_for(h, c);
    one->ring->n_users++;
    size_t heads = (size_t)h->options.n_kv_heads * (size_t)(c->gqa ? c->gqa : one->ring->tokens);
    one->in = cli_alloc(heads * (size_t)c->head_dim, sizeof *one->in);
    one->out = cli_alloc(heads * (size_t)c->head_dim, sizeof *one->out);
    rng_fill_gaussian(&h->rng, one->in, heads * (size_t)c->head_dim);
    return h->n++;
}

const char *harness_variant(const harness *h, int which) {
    return tq_plan_variant(h->contestants[which].plan);
}

const double *harness_samples(const harness *h, int which) {
    return h->contestants[which].samples;
}

int harness_rounds(const harness *h, int which) {
    return h->contestants[which].n_samples;
}

int harness_tokens(const harness *h, int which) {
    return h->contestants[which].ring->tokens;
}

double harness_cache_bytes(const harness *h, int which) {
    const ring *r = h->contestants[which].ring;
    return (double)(r->k.bytes + r->v.bytes);
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

typedef struct flight {
    const harness *h;
    const contestant *one;
    tq_cache k, v;
} flight;

static void launch_on_thread(void *context, int thread_index, int thread_count) {
    const flight *f = context;
    const contestant *one = f->one;
    const size_t head_dim = (size_t)one->of.head_dim, heads = (size_t)f->h->options.n_kv_heads;
    const int32_t n_kv = one->ring->tokens, first_slot = 0;
    const tq_launch launch = {one->workspace, one->workspace_bytes, thread_index, thread_count};
    const tq_cache *side = one->of.side == TQ_SIDE_K ? &f->k : &f->v;
    switch (one->of.op) {
    case TQ_OP_DECODE: {
        const size_t query_heads = heads * (size_t)one->of.gqa;
        const tq_decode_args args = {.batch = 1,
                                     .q = one->in,
                                     .q_seq_stride = query_heads * head_dim,
                                     .q_head_stride = head_dim,
                                     .k = &f->k,
                                     .v = &f->v,
                                     .n_kv = &n_kv,
                                     .scale = 1 / sqrtf((float)head_dim),
                                     .out = one->out,
                                     .out_seq_stride = query_heads * head_dim,
                                     .out_head_stride = head_dim};
        cli_check(tq_decode(one->plan, &args, &launch));
        break;
    }
    case TQ_OP_APPEND: {
        const tq_append_args args = {.batch = 1,
                                     .n_tokens = n_kv,
                                     .x = one->in,
                                     .x_seq_stride = (size_t)n_kv * heads * head_dim,
                                     .x_token_stride = heads * head_dim,
                                     .x_head_stride = head_dim,
                                     .first_slot = &first_slot,
                                     .cache = side};
        cli_check(tq_append(one->plan, &args, &launch));
        break;
    }
    case TQ_OP_DEQUANTISE: {
        const tq_dequantise_args args = {.batch = 1,
                                         .n_tokens = n_kv,
                                         .cache = side,
                                         .first_slot = &first_slot,
                                         .x = one->out,
                                         .x_seq_stride = (size_t)n_kv * heads * head_dim,
                                         .x_token_stride = heads * head_dim,
                                         .x_head_stride = head_dim};
        cli_check(tq_dequantise(one->plan, &args, &launch));
        break;
    }
    }
}

/* What is appended has just been computed: it is in cache, whatever else is not. */
static void warm_input(const harness *h, const contestant *one) {
    const size_t n = (size_t)one->ring->tokens * (size_t)h->options.n_kv_heads * (size_t)one->of.head_dim;
    volatile float sink = 0;
    for (size_t i = 0; i < n; i += 16)
        sink = one->in[i];
    (void)sink;
}

static double launch(const harness *h, contestant *one) {
    ring *r = one->ring;
    if (one->of.op == TQ_OP_APPEND)
        warm_input(h, one);
    flight f = {h, one, r->k, r->v};
    f.k.data = r->buffers + r->pitch * (size_t)r->next;
    f.v.data = r->buffers + r->pitch * (size_t)r->next + r->v_at;
    r->next = (r->next + 1) % r->n;
    return pool_run(h->options.pool, launch_on_thread, &f);
}

static void drop_the_slow(harness *h) {
    double best = INFINITY;
    for (int i = 0; i < h->n; i++)
        best = fmin(best, stats_median(h->contestants[i].samples, h->contestants[i].n_samples));
    for (int i = 0; i < h->n; i++) {
        contestant *one = &h->contestants[i];
        one->gave_up = stats_median(one->samples, one->n_samples) > h->options.give_up * best;
    }
}

void harness_run(harness *h, double seconds, int least, int most) {
    int order[MAX_CONTESTANTS];
    size_rings(h);
    for (int i = 0; i < h->n_rings; i++)
        build_ring(h, &h->rings[i]);
    for (int i = 0; i < h->n; i++)
        launch(h, &h->contestants[i]);
    double end = now_ns() + seconds * 1e9;
    for (int round = 0; round < most && round < MAX_ROUNDS && (round < least || now_ns() < end); round++) {
        if (round == least && h->options.give_up > 0)
            drop_the_slow(h);
        rng_shuffle(&h->rng, order, h->n);
        for (int i = 0; i < h->n; i++) {
            if (h->options.stop && *h->options.stop)
                return;
            contestant *one = &h->contestants[order[i]];
            if (!one->gave_up)
                one->samples[one->n_samples++] = launch(h, one);
        }
    }
}
