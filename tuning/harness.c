#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "memory.h"
#include "ring.h"

enum { MAX_CONTESTANTS = 128, MAX_ROUNDS = 1024 };

typedef struct contestant {
    contract of;
    tq_plan *plan;
    ring *ring;
    void *workspace;
    size_t workspace_bytes;
    float *in, *out; /* q and output; appended or dequantised values */
    int32_t *counts; /* keys, the first slot, 0, and queries (prefill) */
    tq_score_bias bias;
    void *bias_memory; /* its arrays; NULL: it has none */
    double samples[MAX_ROUNDS];
    int n_samples;
    bool gave_up;
} contestant;

struct harness {
    harness_options options;
    rng rng;
    bool on_cpu;
    tq_timer *timer; /* other devices */
    int n, n_rings;
    contestant contestants[MAX_CONTESTANTS];
    ring rings[MAX_CONTESTANTS];
};

/* ---- contestants ------------------------------------------------------------------------------------------------ */

harness *harness_create(const harness_options *options) {
    harness *h = cli_alloc(1, sizeof *h);
    h->options = *options;
    h->rng.state = options->seed;
    h->on_cpu = memory_is_cpu(options->device);
    if (!h->on_cpu)
        cli_check(tq_timer_create(options->device, &h->timer));
    return h;
}

void harness_destroy(harness *h) {
    for (int i = 0; i < h->n; i++) {
        contestant *one = &h->contestants[i];
        void *const memory[] = {one->workspace, one->in, one->out, one->counts, one->bias_memory};
        tq_plan_destroy(one->plan);
        for (int m = 0; m < CLI_COUNT(memory); m++)
            memory_free(h->options.device, memory[m]);
    }
    for (int i = 0; i < h->n_rings; i++)
        ring_free(&h->rings[i], &h->options);
    tq_timer_destroy(h->timer);
    free(h);
}

bool harness_can(const harness *h, const contract *c) {
    tq_plan_desc desc = contract_plan(c, h->options.n_kv_heads, h->options.n_kv, pool_threads(h->options.pool));
    tq_plan *plan;
    tq_status status = tq_plan_create(h->options.device, &desc, &plan);
    tq_plan_destroy(plan);
    return status == TQ_OK;
}

/* Per launch; what is appended or dequantised counts as one. */
static int queries_of(const contract *c, int n_kv) {
    return c->op != TQ_OP_PREFILL ? 1 : n_kv < HARNESS_QUERIES ? n_kv : HARNESS_QUERIES;
}

double harness_queries_per_key(const contract *c, int n_kv) {
    const double queries = queries_of(c, n_kv);
    return queries * (n_kv - (queries - 1) / 2) / n_kv;
}

static ring *ring_for(harness *h, const contract *c) {
    for (int i = 0; i < h->n_rings; i++)
        if (ring_serves(&h->rings[i], c))
            return &h->rings[i];
    ring_init(&h->rings[h->n_rings], &h->options, c);
    return &h->rings[h->n_rings++];
}

static contestant *next_contestant(harness *h) {
    if (h->n == MAX_CONTESTANTS)
        cli_fail("more than %d kernels at a time; narrow the axes", MAX_CONTESTANTS);
    return &h->contestants[h->n];
}

/* Every query has coefficients of its own. */
static void add_bias(harness *h, contestant *one, size_t query_heads, int queries) {
    const int pairs = one->of.bias_pairs;
    const size_t n = (size_t)queries * query_heads * 2 * (size_t)pairs;
    const size_t table_at = (size_t)pairs * sizeof *one->bias.turns,
                 coefficients_at = table_at + (size_t)pairs * 2 * TQ_BIAS_RUN * sizeof *one->bias.table;
    uint8_t *host = cli_alloc(coefficients_at + n * sizeof(float), 1);
    uint32_t *turns = (uint32_t *)(void *)host;
    for (int p = 0; p < pairs; p++)
        turns[p] = (uint32_t)rng_next(&h->rng);
    cli_check(tq_score_bias_table(turns, pairs, (uint16_t *)(void *)(host + table_at)));
    rng_fill_gaussian(&h->rng, (float *)(void *)(host + coefficients_at), n);
    uint8_t *memory = memory_copy(h->options.device, host, coefficients_at + n * sizeof(float));
    free(host);
    one->bias_memory = memory;
    one->bias = (tq_score_bias){.n_pairs = pairs,
                                .turns = (const uint32_t *)(const void *)memory,
                                .table = (const uint16_t *)(const void *)(memory + table_at),
                                .coefficients = (const float *)(const void *)(memory + coefficients_at),
                                .seq_stride = n,
                                .token_stride = query_heads * 2 * (size_t)pairs,
                                .head_stride = 2 * (size_t)pairs};
}

int harness_add(harness *h, const contract *c, const char *pin) {
    const tq_device *device = h->options.device;
    contestant *one = next_contestant(h);
    one->of = *c;
    one->of.mode = contract_mode(c, c->side); /* of what it appends */
    tq_plan_desc desc = contract_plan(c, h->options.n_kv_heads, h->options.n_kv, pool_threads(h->options.pool));
    desc.effort = pin ? TQ_EFFORT_PINNED : TQ_EFFORT_DEFAULT;
    desc.pin = pin;
    cli_check(tq_plan_create(device, &desc, &one->plan));
    one->workspace_bytes = tq_plan_workspace_bytes(one->plan);
    one->workspace = memory_new(device, one->workspace_bytes);
    if (one->workspace_bytes)
        cli_check(tq_workspace_init(one->plan, one->workspace, one->workspace_bytes));
    one->ring = ring_for(h, c);
    one->ring->n_users++;
    size_t heads = (size_t)h->options.n_kv_heads * (size_t)(c->gqa ? c->gqa : one->ring->tokens);
    int queries = queries_of(c, one->ring->tokens);
    size_t n = heads * (size_t)c->head_dim * (size_t)queries;
    float *in = cli_alloc(n, sizeof *in);
    rng_fill_gaussian(&h->rng, in, n);
    one->in = memory_copy(device, in, n * sizeof *in);
    one->out = memory_new(device, n * sizeof *one->out);
    one->counts = memory_copy(device, (int32_t[]){one->ring->tokens, 0, queries}, 3 * sizeof *one->counts);
    free(in);
    if (c->bias_pairs)
        add_bias(h, one, (size_t)(h->options.n_kv_heads * c->gqa), queries);
    return h->n++;
}

int harness_add_guest(harness *h, const harness_guest *guest) {
    contestant *one = next_contestant(h);
    one->ring = &h->rings[h->n_rings++];
    ring_init_guest(one->ring, guest);
    one->ring->n_users++;
    return h->n++;
}

const char *harness_variant(const harness *h, int which) {
    const contestant *one = &h->contestants[which];
    return one->ring->guest ? one->ring->guest->name : tq_plan_variant(one->plan);
}

const double *harness_samples(const harness *h, int which) {
    return h->contestants[which].samples;
}

int harness_rounds(const harness *h, int which) {
    return h->contestants[which].n_samples;
}

int harness_launch_tokens(const contract *c, int n_kv) {
    return c->op == TQ_OP_DECODE || c->op == TQ_OP_PREFILL || n_kv < HARNESS_BATCH_TOKENS ? n_kv : HARNESS_BATCH_TOKENS;
}

int harness_tokens(const harness *h, int which) {
    return h->contestants[which].ring->tokens;
}

double harness_cache_bytes(const harness *h, int which) {
    return h->contestants[which].ring->used;
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

typedef struct flight {
    const harness *h;
    const contestant *one;
    int buffer; /* of its ring */
    tq_cache k, v;
} flight;

static void launch_on_thread(void *context, int thread_index, int thread_count) {
    const flight *f = context;
    const contestant *one = f->one;
    const size_t head_dim = (size_t)one->of.head_dim, heads = (size_t)f->h->options.n_kv_heads;
    const int tokens = one->ring->tokens;
    const int32_t *n_kv = one->counts, *first_slot = one->counts + 1;
    const tq_launch launch = {one->workspace, one->workspace_bytes, thread_index, thread_count, NULL};
    const tq_cache *side = one->of.side == TQ_SIDE_K ? &f->k : &f->v;
    const tq_score_bias *bias = one->bias_memory ? &one->bias : NULL;
    switch (one->of.op) {
    case TQ_OP_DECODE: {
        const size_t query_heads = heads * (size_t)one->of.gqa;
        const tq_decode_args args = {.batch = 1,
                                     .q = one->in,
                                     .q_seq_stride = query_heads * head_dim,
                                     .q_head_stride = head_dim,
                                     .k = &f->k,
                                     .v = &f->v,
                                     .n_kv = n_kv,
                                     .scale = 1 / sqrtf((float)head_dim),
                                     .bias = bias,
                                     .out = one->out,
                                     .out_seq_stride = query_heads * head_dim,
                                     .out_head_stride = head_dim};
        cli_check(tq_decode(one->plan, &args, &launch));
        break;
    }
    case TQ_OP_APPEND: {
        const tq_append_args args = {.batch = 1,
                                     .n_tokens = tokens,
                                     .x = one->in,
                                     .x_seq_stride = (size_t)tokens * heads * head_dim,
                                     .x_token_stride = heads * head_dim,
                                     .x_head_stride = head_dim,
                                     .first_slot = first_slot,
                                     .cache = side,
                                     .mode = one->of.mode};
        cli_check(tq_append(one->plan, &args, &launch));
        break;
    }
    case TQ_OP_DEQUANTISE: {
        const tq_dequantise_args args = {.batch = 1,
                                         .n_tokens = tokens,
                                         .cache = side,
                                         .first_slot = first_slot,
                                         .x = one->out,
                                         .x_seq_stride = (size_t)tokens * heads * head_dim,
                                         .x_token_stride = heads * head_dim,
                                         .x_head_stride = head_dim};
        cli_check(tq_dequantise(one->plan, &args, &launch));
        break;
    }
    case TQ_OP_REPACK: {
        const tq_repack_args args = {
            .batch = 1, .n_tokens = tokens, .rows = &f->k, .tiles = &f->v, .first_slot = first_slot, .to_tiles = 1};
        cli_check(tq_repack(one->plan, &args, &launch));
        break;
    }
    case TQ_OP_PREFILL: {
        const int queries = queries_of(&one->of, tokens);
        const size_t token = heads * (size_t)one->of.gqa * head_dim, all = (size_t)queries * token;
        const tq_prefill_args args = {.batch = 1,
                                      .max_query = queries,
                                      .q = one->in,
                                      .q_seq_stride = all,
                                      .q_token_stride = token,
                                      .q_head_stride = head_dim,
                                      .k = &f->k,
                                      .v = &f->v,
                                      .n_kv = n_kv,
                                      .n_query = one->counts + 2,
                                      .scale = 1 / sqrtf((float)head_dim),
                                      .causal = 1,
                                      .bias = bias,
                                      .out = one->out,
                                      .out_seq_stride = all,
                                      .out_token_stride = token,
                                      .out_head_stride = head_dim};
        cli_check(tq_prefill(one->plan, &args, &launch));
        break;
    }
    }
}

/* Threads of OpenMP go on asking for work for some milliseconds, on processors that the next contestant needs. */
static void let_guests_sleep(void) {
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static void launch_guest(void *context, int thread_index, int thread_count) {
    const flight *f = context;
    const harness_guest *guest = f->one->ring->guest;
    (void)thread_count;
    if (thread_index == 0)
        guest->launch(guest->context, f->buffer);
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
    if (one->of.op == TQ_OP_APPEND && h->on_cpu)
        warm_input(h, one);
    flight f = {.h = h, .one = one, .buffer = r->next};
    r->next = (r->next + 1) % r->n;
    if (r->guest) {
        double ns = pool_run(h->options.pool, launch_guest, &f);
        if (pool_threads(h->options.pool) > 1)
            let_guests_sleep();
        return ns;
    }
    ring_buffer(r, f.buffer, &f.k, &f.v);
    if (h->on_cpu)
        return pool_run(h->options.pool, launch_on_thread, &f);
    double ns;
    cli_check(tq_timer_start(h->timer, NULL));
    launch_on_thread(&f, 0, 1);
    cli_check(tq_timer_stop(h->timer, NULL, &ns));
    return ns;
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
    rings_build(h->rings, h->n_rings, &h->options, &h->rng);
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
