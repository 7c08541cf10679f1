/* launch_args_test: bad arguments of every launch: status, a message that names the argument, and nothing written. */
#include "support.h"

enum { N_KEYS = 10, BATCH = 2, HEADS = 2 };

static const tq_variant *decode, *append, *dequantise, *prefill;
static problem *p;
static tq_plan *plan;
static void *workspace;
static size_t workspace_bytes;

/* A variant for rows, which have scale modes, if there is one. */
static const tq_variant *pick(tq_op op) {
    int count;
    const tq_variant **list = variants_here(op, &count), *found = NULL;
    for (int i = 0; i < count; i++) {
        const tq_format_spec *format = list[i]->k ? list[i]->k : list[i]->v;
        if (strcmp(list[i]->layout, "rows") == 0 && (!found || format->modes[0]))
            found = list[i];
    }
    free(list);
    return found;
}

/* The same contract as `like`, but for prefill. */
static const tq_variant *find_prefill(const tq_variant *like) {
    int count;
    const tq_variant **list = variants_here(TQ_OP_PREFILL, &count), *found = NULL;
    for (int i = 0; like && i < count; i++)
        if (strcmp(list[i]->layout, like->layout) == 0 && list[i]->gqa == like->gqa &&
            list[i]->k->head_dim == like->k->head_dim && strcmp(list[i]->k->name, like->k->name) == 0 &&
            strcmp(list[i]->v->name, like->v->name) == 0)
            found = list[i];
    free(list);
    return found;
}

static int set_up(void **state) {
    (void)state;
    decode = pick(TQ_OP_DECODE);
    append = pick(TQ_OP_APPEND);
    dequantise = pick(TQ_OP_DEQUANTISE);
    prefill = find_prefill(decode);
    if (!decode || !append || !dequantise || !prefill)
        return 1;
    problem_spec spec = {.k = spec_of(decode->k->name, decode->k->head_dim),
                         .v = spec_of(decode->v->name, decode->v->head_dim),
                         .n_kv_heads = HEADS,
                         .gqa = decode->gqa,
                         .batch = BATCH,
                         .n_kv = {N_KEYS, N_KEYS},
                         .alibi = 1,
                         .sink_logits = 1,
                         .bias_pairs = 5,
                         .n_sink = 2};
    p = problem_new(&spec);
    plan = plan_pinned(decode, TQ_SIDE_K, HEADS, BATCH, N_KEYS, 1);
    workspace_bytes = tq_plan_workspace_bytes(plan);
    workspace = aligned_alloc(TQ_ALIGN, (workspace_bytes + TQ_ALIGN - 1) / TQ_ALIGN * TQ_ALIGN + TQ_ALIGN);
    return workspace == NULL || tq_workspace_init(plan, workspace, workspace_bytes) != TQ_OK;
}

static int tear_down(void **state) {
    (void)state;
    problem_free(p);
    tq_plan_destroy(plan);
    free(workspace);
    return 0;
}

/* ---- decode ----------------------------------------------------------------------------------------------------- */

static void expect_untouched(const buffer *b) {
    for (size_t i = 0; i < b->bytes; i++)
        assert_int_equal(b->data[i], 0x5a);
}

/* Makes one thing wrong in copies of everything and expects the message to name it. */
#define REFUSED(change, status, word)                                                                                  \
    do {                                                                                                               \
        tq_decode_args args = p->args;                                                                                 \
        tq_cache k = *args.k, v = *args.v, sink_k = *args.sink_k, sink_v = *args.sink_v;                               \
        tq_launch launch = {workspace, workspace_bytes, 0, 1, NULL};                                                   \
        args.k = &k;                                                                                                   \
        args.v = &v;                                                                                                   \
        args.sink_k = &sink_k;                                                                                         \
        args.sink_v = &sink_v;                                                                                         \
        memset(p->out.data, 0x5a, p->out.bytes);                                                                       \
        memset(p->lse.data, 0x5a, p->lse.bytes);                                                                       \
        change;                                                                                                        \
        assert_refused(tq_decode(plan, &args, &launch), status, word);                                                 \
        expect_untouched(&p->out);                                                                                     \
        expect_untouched(&p->lse);                                                                                     \
    } while (0)

static const void *off_by(const void *pointer, int bytes) {
    return (const char *)pointer + bytes;
}

static void test_decode_launch(void **state) {
    (void)state;
    tq_launch launch = {workspace, workspace_bytes, 0, 1, NULL};
    assert_int_equal(tq_decode(plan, &p->args, &launch), TQ_OK); /* all that follows is wrong in one thing only */
    assert_refused(tq_decode(NULL, &p->args, &launch), TQ_ERR_ARGUMENT, "plan");
    assert_refused(tq_decode(plan, NULL, &launch), TQ_ERR_ARGUMENT, "args");
    assert_refused(tq_decode(plan, &p->args, NULL), TQ_ERR_ARGUMENT, "launch");
    REFUSED(launch.thread_index = -1, TQ_ERR_ARGUMENT, "thread_index");
    REFUSED(launch.thread_index = 1, TQ_ERR_ARGUMENT, "thread_index");
    REFUSED(launch.thread_count = 0, TQ_ERR_ARGUMENT, "thread_count");
    REFUSED(launch.thread_count = -2, TQ_ERR_ARGUMENT, "thread_count");
    REFUSED(launch.workspace = NULL, TQ_ERR_ARGUMENT, "workspace");
    REFUSED(launch.workspace = (char *)workspace + 4, TQ_ERR_WORKSPACE, "multiple of 64");
    REFUSED(launch.workspace_bytes--, TQ_ERR_WORKSPACE, "bytes");
    tq_plan *other = plan_pinned(append, append->k ? TQ_SIDE_K : TQ_SIDE_V, 1, 1, 1, 0);
    assert_refused(tq_decode(other, &p->args, &launch), TQ_ERR_ARGUMENT, "append");
    tq_plan_destroy(other);
}

static void test_workspace(void **state) {
    (void)state;
    tq_plan *other = plan_pinned(decode, TQ_SIDE_K, HEADS, BATCH + 1, N_KEYS, 2);
    size_t bytes = tq_plan_workspace_bytes(other);
    void *memory = aligned_alloc(TQ_ALIGN, (bytes + TQ_ALIGN - 1) / TQ_ALIGN * TQ_ALIGN);
    assert_non_null(memory);
    memset(memory, 0, bytes);
    assert_refused(tq_workspace_init(NULL, memory, bytes), TQ_ERR_ARGUMENT, "plan");
    assert_refused(tq_workspace_init(other, NULL, bytes), TQ_ERR_ARGUMENT, "workspace");
    assert_refused(tq_workspace_init(other, memory, bytes - 1), TQ_ERR_WORKSPACE, "bytes");
    assert_refused(tq_workspace_init(other, (char *)memory + 8, bytes), TQ_ERR_WORKSPACE, "multiple of 64");
    REFUSED((launch.workspace = memory, launch.workspace_bytes = bytes), TQ_ERR_WORKSPACE, "not initialised");
    assert_int_equal(tq_workspace_init(other, memory, bytes), TQ_OK);
    REFUSED((launch.workspace = memory, launch.workspace_bytes = bytes), TQ_ERR_WORKSPACE, "another plan");
    free(memory);
    tq_plan_destroy(other);
}

static void test_decode_pointers(void **state) {
    (void)state;
    REFUSED(args.q = NULL, TQ_ERR_ARGUMENT, "args.q");
    REFUSED(args.q = off_by(args.q, 1), TQ_ERR_ARGUMENT, "args.q");
    REFUSED(args.out = NULL, TQ_ERR_ARGUMENT, "args.out");
    REFUSED(args.out = (float *)(p->out.data + 2), TQ_ERR_ARGUMENT, "args.out");
    REFUSED(args.lse = (float *)(p->lse.data + 2), TQ_ERR_ARGUMENT, "args.lse");
    REFUSED(args.n_kv = NULL, TQ_ERR_ARGUMENT, "args.n_kv");
    REFUSED(args.n_kv = off_by(args.n_kv, 2), TQ_ERR_ARGUMENT, "args.n_kv");
    REFUSED(args.alibi = off_by(args.alibi, 1), TQ_ERR_ARGUMENT, "args.alibi");
    REFUSED(args.sink_logits = off_by(args.sink_logits, 1), TQ_ERR_ARGUMENT, "args.sink_logits");
    REFUSED(args.k = NULL, TQ_ERR_ARGUMENT, "args.k");
    REFUSED(args.v = NULL, TQ_ERR_ARGUMENT, "args.v");
    REFUSED(args.sink_k = NULL, TQ_ERR_ARGUMENT, "args.sink_k");
    REFUSED(args.sink_v = NULL, TQ_ERR_ARGUMENT, "args.sink_v");
    REFUSED(k.data = NULL, TQ_ERR_ARGUMENT, "args.k.data");
    REFUSED(v.data = (char *)v.data + 1, TQ_ERR_ARGUMENT, "args.v.data");
    REFUSED(sink_v.data = (char *)sink_v.data + 1, TQ_ERR_ARGUMENT, "args.sink_v.data");
}

static void test_decode_caches(void **state) {
    (void)state;
    REFUSED(k.bytes--, TQ_ERR_ARGUMENT, "args.k.bytes");
    REFUSED(v.bytes = 0, TQ_ERR_ARGUMENT, "args.v.bytes");
    REFUSED(k.n_slots = 0, TQ_ERR_ARGUMENT, "args.k.n_slots");
    REFUSED(v.n_slots = -1, TQ_ERR_ARGUMENT, "args.v.n_slots");
    REFUSED(k.n_slots = N_KEYS + 1, TQ_ERR_ARGUMENT, "args.k");
    REFUSED(k.token_stride++, TQ_ERR_ARGUMENT, "args.k.token_stride");
    REFUSED(k.token_stride -= 2, TQ_ERR_ARGUMENT, "args.k.token_stride");
    REFUSED(v.head_stride = 2, TQ_ERR_ARGUMENT, "args.v");
    REFUSED(v.seq_stride = 2, TQ_ERR_ARGUMENT, "args.v");
    REFUSED(v.seq_stride = SIZE_MAX - 1, TQ_ERR_ARGUMENT, "args.v");
    REFUSED(sink_k.bytes -= 2, TQ_ERR_ARGUMENT, "args.sink_k.bytes");
    REFUSED(sink_k.n_slots = 1, TQ_ERR_ARGUMENT, "n_sink");
    REFUSED(args.q_head_stride--, TQ_ERR_ARGUMENT, "q_head_stride");
    REFUSED(args.out_head_stride = 0, TQ_ERR_ARGUMENT, "out_head_stride");
    REFUSED(args.out_seq_stride = 1, TQ_ERR_ARGUMENT, "out_seq_stride");
}

static void test_decode_numbers(void **state) {
    (void)state;
    const int32_t negative[BATCH] = {1, -1}, beyond[BATCH] = {N_KEYS, N_KEYS + 1};
    float bad[BATCH * HEADS * TQ_MAX_GQA] = {0};
    bad[HEADS * decode->gqa - 1] = NAN;
    REFUSED(args.batch = 0, TQ_ERR_ARGUMENT, "args.batch");
    REFUSED(args.batch = -1, TQ_ERR_ARGUMENT, "args.batch");
    REFUSED(args.batch = BATCH + 1, TQ_ERR_ARGUMENT, "args.batch");
    REFUSED(args.n_kv = negative, TQ_ERR_ARGUMENT, "args.n_kv[1] is -1");
    REFUSED(args.n_kv = beyond, TQ_ERR_ARGUMENT, "args.n_kv[1] is 11");
    REFUSED(args.scale = 0, TQ_ERR_ARGUMENT, "args.scale");
    REFUSED(args.scale = -1, TQ_ERR_ARGUMENT, "args.scale");
    REFUSED(args.scale = NAN, TQ_ERR_ARGUMENT, "args.scale");
    REFUSED(args.scale = INFINITY, TQ_ERR_ARGUMENT, "args.scale");
    REFUSED(args.softcap = -1, TQ_ERR_ARGUMENT, "args.softcap");
    REFUSED(args.softcap = NAN, TQ_ERR_ARGUMENT, "args.softcap");
    REFUSED(args.window = -1, TQ_ERR_ARGUMENT, "args.window");
    REFUSED(args.n_sink = -1, TQ_ERR_ARGUMENT, "args.n_sink");
    REFUSED(args.n_sink = 3, TQ_ERR_ARGUMENT, "args.n_sink");
    REFUSED(args.alibi = bad, TQ_ERR_NOT_FINITE, "args.alibi");
    REFUSED(args.sink_logits = bad, TQ_ERR_NOT_FINITE, "args.sink_logits");
    float *last = (float *)(p->q.data + p->q.bytes) - 1, kept = *last;
    *last = NAN;
    REFUSED((void)0, TQ_ERR_NOT_FINITE, "args.q");
    *last = -INFINITY;
    REFUSED((void)0, TQ_ERR_NOT_FINITE, "args.q");
    *last = kept;
}

static void test_decode_bias(void **state) {
    (void)state;
    const tq_score_bias good = p->bias;
    tq_score_bias bias = good;
#define BIAS_REFUSED(change, status, word)                                                                             \
    do {                                                                                                               \
        bias = good;                                                                                                   \
        change;                                                                                                        \
        REFUSED(args.bias = &bias, status, word);                                                                      \
    } while (0)
    BIAS_REFUSED(bias.n_pairs = 0, TQ_ERR_ARGUMENT, "args.bias.n_pairs");
    BIAS_REFUSED(bias.n_pairs = TQ_MAX_BIAS_PAIRS + 1, TQ_ERR_ARGUMENT, "args.bias.n_pairs");
    BIAS_REFUSED(bias.turns = NULL, TQ_ERR_ARGUMENT, "args.bias.turns");
    BIAS_REFUSED(bias.table = NULL, TQ_ERR_ARGUMENT, "args.bias.table");
    BIAS_REFUSED(bias.coefficients = off_by(good.coefficients, 1), TQ_ERR_ARGUMENT, "args.bias.coefficients");
    BIAS_REFUSED(bias.head_stride--, TQ_ERR_ARGUMENT, "args.bias.head_stride");
    BIAS_REFUSED(bias.seq_stride = 1, TQ_ERR_ARGUMENT, "args.bias.seq_stride");
#undef BIAS_REFUSED
    float *last = (float *)(p->bias_numbers.data + p->bias_numbers.bytes) - 1, kept = *last;
    *last = INFINITY;
    REFUSED((void)0, TQ_ERR_NOT_FINITE, "pair 4");
    *last = kept;
}

/* ---- prefill ---------------------------------------------------------------------------------------------------- */

/* The problem of decode as a prefill of one query per sequence. */
#define PREFILL_REFUSED(change, status, word)                                                                          \
    do {                                                                                                               \
        int32_t n_kv[BATCH] = {N_KEYS, N_KEYS}, n_query[BATCH] = {1, 1};                                               \
        tq_cache k = *p->args.k, v = *p->args.v;                                                                       \
        tq_score_bias bias = p->bias;                                                                                  \
        tq_prefill_args args = {.batch = BATCH,                                                                        \
                                .max_query = 1,                                                                        \
                                .q = p->args.q,                                                                        \
                                .q_seq_stride = p->args.q_seq_stride,                                                  \
                                .q_head_stride = p->args.q_head_stride,                                                \
                                .k = &k,                                                                               \
                                .v = &v,                                                                               \
                                .n_kv = n_kv,                                                                          \
                                .n_query = n_query,                                                                    \
                                .scale = 1,                                                                            \
                                .causal = 1,                                                                           \
                                .bias = &bias,                                                                         \
                                .out = p->args.out,                                                                    \
                                .out_seq_stride = p->args.out_seq_stride,                                              \
                                .out_head_stride = p->args.out_head_stride,                                            \
                                .lse = p->args.lse};                                                                   \
        tq_launch launch = {memory, bytes, 0, 1, NULL};                                                                \
        memset(p->out.data, 0x5a, p->out.bytes);                                                                       \
        memset(p->lse.data, 0x5a, p->lse.bytes);                                                                       \
        change;                                                                                                        \
        if (status) {                                                                                                  \
            assert_refused(tq_prefill(prefills, &args, &launch), status, word);                                        \
            expect_untouched(&p->out);                                                                                 \
            expect_untouched(&p->lse);                                                                                 \
        } else {                                                                                                       \
            assert_int_equal(tq_prefill(prefills, &args, &launch), TQ_OK);                                             \
        }                                                                                                              \
    } while (0)

static void test_prefill(void **state) {
    (void)state;
    tq_plan *prefills = plan_for_threads(prefill, TQ_SIDE_K, HEADS, BATCH, N_KEYS, 0, 2);
    size_t bytes = tq_plan_workspace_bytes(prefills);
    void *memory = aligned_alloc(TQ_ALIGN, (bytes + TQ_ALIGN - 1) / TQ_ALIGN * TQ_ALIGN);
    assert_non_null(memory);
    memset(memory, 0, bytes);
    PREFILL_REFUSED((void)0, TQ_ERR_WORKSPACE, "not initialised");
    assert_int_equal(tq_workspace_init(prefills, memory, bytes), TQ_OK);
    PREFILL_REFUSED((void)0, TQ_OK, "");
    PREFILL_REFUSED(launch.workspace = NULL, TQ_ERR_ARGUMENT, "workspace");
    PREFILL_REFUSED(launch.workspace_bytes--, TQ_ERR_WORKSPACE, "bytes");
    PREFILL_REFUSED(launch.thread_count = 3, TQ_ERR_ARGUMENT, "legal is 1 to 2");
    PREFILL_REFUSED(launch.thread_index = 1, TQ_ERR_ARGUMENT, "thread_index");
    PREFILL_REFUSED(args.batch = 0, TQ_ERR_ARGUMENT, "args.batch");
    PREFILL_REFUSED(args.max_query = -1, TQ_ERR_ARGUMENT, "args.max_query");
    PREFILL_REFUSED(n_query[1] = 2, TQ_ERR_ARGUMENT, "args.n_query[1]");
    PREFILL_REFUSED(n_query[0] = -1, TQ_ERR_ARGUMENT, "args.n_query[0]");
    PREFILL_REFUSED(n_kv[1] = N_KEYS + 1, TQ_ERR_ARGUMENT, "args.n_kv[1]");
    PREFILL_REFUSED(n_kv[0] = -1, TQ_ERR_ARGUMENT, "args.n_kv[0]");
    PREFILL_REFUSED(args.n_query = NULL, TQ_ERR_ARGUMENT, "args.n_query");
    PREFILL_REFUSED(args.q_head_stride--, TQ_ERR_ARGUMENT, "args.q_head_stride");
    PREFILL_REFUSED(args.out_seq_stride = 1, TQ_ERR_ARGUMENT, "args.out_seq_stride");
    PREFILL_REFUSED(args.scale = 0, TQ_ERR_ARGUMENT, "args.scale");
    PREFILL_REFUSED(bias.n_pairs = TQ_MAX_BIAS_PAIRS + 1, TQ_ERR_ARGUMENT, "args.bias.n_pairs");
    PREFILL_REFUSED(k.token_stride++, TQ_ERR_ARGUMENT, "args.k.token_stride");
    float *q = (float *)p->q.data, kept = q[1];
    q[1] = NAN;
    PREFILL_REFUSED((void)0, TQ_ERR_NOT_FINITE, "query 0, head 0, index 1");
    q[1] = kept;
    tq_plan_destroy(prefills);
    free(memory);
}

/* ---- append, dequantise ----------------------------------------------------------------------------------------- */

enum { N_TOKENS = 3, N_SLOTS = 8 };

typedef struct rows_call {
    tq_plan *plan;
    tq_cache cache;
    buffer rows, x, mean;
    int32_t first_slot[BATCH];
    tq_append_args append;
    tq_dequantise_args dequantise;
    tq_launch launch;
} rows_call;

static void rows_begin(rows_call *c, const tq_variant *variant) {
    const tq_format_spec *format = variant->k ? variant->k : variant->v;
    size_t d = (size_t)format->head_dim;
    c->plan = plan_pinned(variant, variant->k ? TQ_SIDE_K : TQ_SIDE_V, HEADS, BATCH, N_SLOTS, 0);
    c->rows = cache_new(&c->cache, BATCH, HEADS, N_SLOTS, format->row_bytes, 0);
    c->x = buffer_new(BATCH * N_TOKENS * HEADS * d * sizeof(float), 0);
    c->mean = buffer_new(HEADS * d * sizeof(float), 0);
    c->first_slot[0] = 5;
    c->first_slot[1] = 0;
    c->append = (tq_append_args){.batch = BATCH,
                                 .n_tokens = N_TOKENS,
                                 .x = (const float *)c->x.data,
                                 .x_seq_stride = N_TOKENS * HEADS * d,
                                 .x_token_stride = HEADS * d,
                                 .x_head_stride = d,
                                 .first_slot = c->first_slot,
                                 .cache = &c->cache,
                                 .mean = (const float *)c->mean.data,
                                 .mode = TQ_SCALE_DEFAULT};
    c->dequantise = (tq_dequantise_args){.batch = BATCH,
                                         .n_tokens = N_TOKENS,
                                         .cache = &c->cache,
                                         .first_slot = c->first_slot,
                                         .mean = (const float *)c->mean.data,
                                         .x = (float *)c->x.data,
                                         .x_seq_stride = N_TOKENS * HEADS * d,
                                         .x_token_stride = HEADS * d,
                                         .x_head_stride = d};
    c->launch = (tq_launch){NULL, 0, 0, 1, NULL};
}

static void rows_end(rows_call *c) {
    tq_plan_destroy(c->plan);
    buffer_free(&c->rows);
    buffer_free(&c->x);
    buffer_free(&c->mean);
}

/* `written` must stay as it is. */
#define ROWS_REFUSED(variant, call, which, written, change, status, word)                                              \
    do {                                                                                                               \
        rows_call c;                                                                                                   \
        rows_begin(&c, variant);                                                                                       \
        memset(c.written.data, 0x5a, c.written.bytes);                                                                 \
        change;                                                                                                        \
        assert_refused(call(c.plan, &c.which, &c.launch), status, word);                                               \
        expect_untouched(&c.written);                                                                                  \
        rows_end(&c);                                                                                                  \
    } while (0)

/* The arguments that append and dequantise share. */
#define ROWS_REFUSED_ALL(variant, call, which, written)                                                                \
    do {                                                                                                               \
        ROWS_REFUSED(variant, call, which, written, c.which.batch = 0, TQ_ERR_ARGUMENT, "args.batch");                 \
        ROWS_REFUSED(variant, call, which, written, c.which.batch = TQ_MAX_BATCH + 1, TQ_ERR_ARGUMENT, "args.batch");  \
        ROWS_REFUSED(variant, call, which, written, c.which.n_tokens = -1, TQ_ERR_ARGUMENT, "args.n_tokens");          \
        ROWS_REFUSED(variant, call, which, written, c.which.n_tokens = N_SLOTS + 1, TQ_ERR_ARGUMENT, "n_tokens");      \
        ROWS_REFUSED(variant, call, which, written, c.which.x = NULL, TQ_ERR_ARGUMENT, "args.x");                      \
        ROWS_REFUSED(variant, call, which, written, c.which.x = (void *)(c.x.data + 1), TQ_ERR_ARGUMENT, "args.x");    \
        ROWS_REFUSED(variant, call, which, written, c.which.x_head_stride--, TQ_ERR_ARGUMENT, "x_head_stride");        \
        ROWS_REFUSED(variant, call, which, written, c.which.x_token_stride = 1, TQ_ERR_ARGUMENT, "x_token_stride");    \
        ROWS_REFUSED(variant, call, which, written, c.which.first_slot = NULL, TQ_ERR_ARGUMENT, "first_slot");         \
        ROWS_REFUSED(variant, call, which, written, c.first_slot[1] = -1, TQ_ERR_ARGUMENT, "first_slot[1]");           \
        ROWS_REFUSED(variant, call, which, written, c.first_slot[0] = 6, TQ_ERR_ARGUMENT, "first_slot[0]");            \
        ROWS_REFUSED(variant, call, which, written, c.which.cache = NULL, TQ_ERR_ARGUMENT, "args.cache");              \
        ROWS_REFUSED(variant, call, which, written, c.cache.data = NULL, TQ_ERR_ARGUMENT, "args.cache.data");          \
        ROWS_REFUSED(variant, call, which, written, c.cache.data = c.rows.data + 1, TQ_ERR_ARGUMENT, "cache.data");    \
        ROWS_REFUSED(variant, call, which, written, c.cache.token_stride -= 2, TQ_ERR_ARGUMENT, "token_stride");       \
        ROWS_REFUSED(variant, call, which, written, c.cache.token_stride++, TQ_ERR_ARGUMENT, "token_stride");          \
        ROWS_REFUSED(variant, call, which, written, c.cache.bytes--, TQ_ERR_ARGUMENT, "args.cache.bytes");             \
        ROWS_REFUSED(variant, call, which, written, c.which.mean = (void *)(c.mean.data + 1), TQ_ERR_ARGUMENT,         \
                     "mean");                                                                                          \
        ROWS_REFUSED(variant, call, which, written, ((float *)c.mean.data)[3] = NAN, TQ_ERR_NOT_FINITE, "args.mean");  \
        ROWS_REFUSED(variant, call, which, written, c.launch.thread_index = 1, TQ_ERR_ARGUMENT, "thread_index");       \
        ROWS_REFUSED(variant, call, which, written, c.launch.thread_count = 0, TQ_ERR_ARGUMENT, "thread_count");       \
    } while (0)

static void test_append(void **state) {
    (void)state;
    ROWS_REFUSED_ALL(append, tq_append, append, rows);
    ROWS_REFUSED(append, tq_append, append, rows, c.append.mode = (tq_scale_mode)99, TQ_ERR_ARGUMENT, "mode");
    ROWS_REFUSED(append, tq_append, append, rows, ((float *)c.x.data)[7] = INFINITY, TQ_ERR_NOT_FINITE, "args.x");
    ROWS_REFUSED(append, tq_append, append, rows, c.cache.seq_stride = 0, TQ_ERR_ARGUMENT, "seq_stride");
    tq_launch launch = {NULL, 0, 0, 1, NULL};
    assert_refused(tq_append(plan, &(tq_append_args){0}, &launch), TQ_ERR_ARGUMENT, "decode");
}

/* A scale mode that the format does not have. */
static void test_append_mode(void **state) {
    (void)state;
    int count;
    const tq_variant **list = variants_here(TQ_OP_APPEND, &count);
    for (int i = 0; i < count; i++) {
        const tq_format_spec *format = list[i]->k ? list[i]->k : list[i]->v;
        if (strcmp(list[i]->layout, "rows") == 0 && !tq_has_word(format->modes, "nc"))
            ROWS_REFUSED(list[i], tq_append, append, rows, c.append.mode = TQ_SCALE_NC, TQ_ERR_ARGUMENT, "mode");
    }
    free(list);
}

static void test_dequantise(void **state) {
    (void)state;
    ROWS_REFUSED_ALL(dequantise, tq_dequantise, dequantise, x);
    tq_launch launch = {NULL, 0, 0, 1, NULL};
    assert_refused(tq_dequantise(plan, &(tq_dequantise_args){0}, &launch), TQ_ERR_ARGUMENT, "decode");
}

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_launch),   cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_decode_pointers), cmocka_unit_test(test_decode_caches),
        cmocka_unit_test(test_decode_numbers),  cmocka_unit_test(test_decode_bias),
        cmocka_unit_test(test_prefill),         cmocka_unit_test(test_append),
        cmocka_unit_test(test_append_mode),     cmocka_unit_test(test_dequantise),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
