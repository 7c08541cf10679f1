/* support.c: see support.h. */
#include "support.h"

#include <pthread.h>

void check_refused(tq_status found, tq_status expected, const char *word, const char *call, const char *file,
                   int line) {
    if (found != expected)
        print_error("%s: status is '%s', expected '%s'\n", call, tq_status_string(found), tq_status_string(expected));
    else if (!strstr(tq_error_message(), word))
        print_error("%s: the message '%s' does not say '%s'\n", call, tq_error_message(), word);
    else
        return;
    _fail(file, line);
}

/* ---- randomness ------------------------------------------------------------------------------------------------- */

uint64_t test_seed(void) {
    static uint64_t seed;
    static int known;
    if (!known) {
        const char *text = getenv("TQ_TEST_SEED");
        seed = text ? strtoull(text, NULL, 0) : 20250428;
        known = 1;
        printf("seed %llu (TQ_TEST_SEED)\n", (unsigned long long)seed);
    }
    return seed;
}

/* splitmix64 (Steele, Lea and Flood 2014) */
uint64_t random_bits(random_state *r) {
    uint64_t z = r->state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

random_state random_stream(uint64_t stream) {
    random_state r = {test_seed() ^ stream * 0xd1342543de82ef95};
    r.state = random_bits(&r);
    return r;
}

double random_uniform(random_state *r) {
    return (double)(random_bits(r) >> 11) * 0x1p-53;
}

double random_normal(random_state *r) {
    double radius = sqrt(-2 * log(1 - random_uniform(r)));
    return radius * cos(2 * acos(-1) * random_uniform(r));
}

void random_normals(random_state *r, float *x, int n) {
    for (int i = 0; i < n; i++)
        x[i] = (float)random_normal(r);
}

const float *normals_of(uint64_t stream, int n) {
    enum { STREAMS = 64 };
    static struct {
        random_state next;
        float *x;
        int n;
    } all[STREAMS];
    assert_true(stream < STREAMS);
    float *x = all[stream].x;
    int known = all[stream].n;
    if (n <= known)
        return x;
    random_state r = known ? all[stream].next : random_stream(stream);
    x = realloc(x, (size_t)n * sizeof *x);
    assert_non_null(x);
    random_normals(&r, x + known, n - known);
    all[stream].next = r;
    all[stream].x = x;
    all[stream].n = n;
    return x;
}

int test_stride(int n, int wanted) {
    const char *text = getenv("TQ_TEST_STRIDE");
    int stride = text ? atoi(text) : 0;
    return stride > 0 ? stride : n / (SLOW ? (wanted + 3) / 4 : wanted) | 1;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

enum { CANARY_BYTES = SANITIZED ? 0 : 64, CANARY = 0xa5 };

buffer buffer_new(size_t bytes, size_t offset) {
    buffer b = {NULL, malloc(offset + bytes + 2 * CANARY_BYTES), bytes};
    assert_non_null(b.memory);
    b.data = b.memory + CANARY_BYTES + offset;
    memset(b.data - CANARY_BYTES, CANARY, CANARY_BYTES);
    memset(b.data + bytes, CANARY, CANARY_BYTES);
    memset(b.data, 0, bytes);
    return b;
}

int buffer_intact(const buffer *b) {
    for (int i = 0; b->data && i < CANARY_BYTES; i++)
        if (b->data[-1 - i] != CANARY || b->data[b->bytes + (size_t)i] != CANARY)
            return 0;
    return 1;
}

void buffer_free(buffer *b) {
    int intact = buffer_intact(b);
    free(b->memory);
    *b = (buffer){0};
    assert_true(intact);
}

buffer cache_new(tq_cache *cache, int batch, int n_kv_heads, int n_slots, int row_bytes, int interleaved) {
    size_t row = (size_t)row_bytes, heads = (size_t)n_kv_heads, slots = (size_t)n_slots;
    buffer b = buffer_new((size_t)batch * heads * slots * row, 2);
    *cache = (tq_cache){.data = b.data,
                        .bytes = b.bytes,
                        .seq_stride = heads * slots * row,
                        .head_stride = interleaved ? row : slots * row,
                        .token_stride = interleaved ? heads * row : row,
                        .n_slots = n_slots};
    return b;
}

/* ---- variants --------------------------------------------------------------------------------------------------- */

const tq_format_spec *spec_of(const char *name, int head_dim) {
    const tq_format_spec *spec = NULL;
    assert_int_equal(tq_format_lookup("format", name, head_dim, &spec), TQ_OK);
    return spec;
}

const tq_format_spec *f16_rows(int head_dim) {
    static tq_format_spec specs[TQ_MAX_HEAD_DIM + 1];
    specs[head_dim] = (tq_format_spec){
        .name = "f16", .head_dim = head_dim, .bits = 16, .block = 1, .row_bytes = 2 * head_dim, .modes = ""};
    return &specs[head_dim];
}

static size_t contract_length(const tq_variant *v) {
    return (size_t)(strstr(v->name, "__") - v->name);
}

int same_contract(const tq_variant *a, const tq_variant *b) {
    size_t n = contract_length(a);
    return n == contract_length(b) && strncmp(a->name, b->name, n) == 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(const tq_variant *const *)a)->name, (*(const tq_variant *const *)b)->name);
}

/* Of the CPU's kind, or of all others. */
static const tq_variant **list_variants(tq_op op, int on_cpu, int *count, int *elsewhere) {
    int n_all = tq_variant_count(), n = 0;
    const char *only = getenv("TQ_TEST_ONLY");
    const tq_variant **list = malloc((size_t)(n_all + 1) * sizeof *list);
    assert_non_null(list);
    *elsewhere = 0;
    for (int i = 0; i < n_all; i++) {
        tq_variant_info info;
        assert_int_equal(tq_variant_at(i, &info), TQ_OK);
        if (info.op != op || (strcmp(info.kind, "cpu") == 0) != on_cpu || (only && !strstr(info.name, only)))
            continue;
        if (info.runs_here)
            list[n++] = tq_variant_find(info.name, NULL);
        else
            ++*elsewhere;
    }
    qsort(list, (size_t)n, sizeof *list, by_name);
    *count = n;
    return list;
}

const tq_variant **variants_here(tq_op op, int *count) {
    int elsewhere;
    const tq_variant **list = list_variants(op, 1, count, &elsewhere);
    printf("%s: %d variants run here, %d skipped because this CPU lacks what their target needs\n", tq_op_name(op),
           *count, elsewhere);
    return list;
}

const tq_variant **gpu_variants_here(tq_op op, int *count) {
    int elsewhere;
    const tq_variant **list = list_variants(op, 0, count, &elsewhere);
    printf("%s: %d variants of GPU targets run here, %d skipped because this machine has no such GPU\n", tq_op_name(op),
           *count, elsewhere);
    return list;
}

const tq_device *device_for(const tq_variant *variant) {
    const tq_registry *registry = NULL;
    tq_variant_find(variant->name, &registry);
    const tq_device *device = tq_device_that_runs(registry);
    if (!device)
        fail_msg("%s: no device runs it", variant->name);
    return device;
}

tq_plan *plan_pinned(const tq_variant *variant, tq_side side, int n_kv_heads, int batch, int max_n_kv, int n_splits) {
    return plan_for_threads(variant, side, n_kv_heads, batch, max_n_kv, n_splits, 1);
}

tq_plan *plan_for_threads(const tq_variant *variant, tq_side side, int n_kv_heads, int batch, int max_n_kv,
                          int n_splits, int n_threads) {
    const char *k = variant->k ? variant->k->name : NULL, *v = variant->v ? variant->v->name : NULL;
    tq_plan_desc desc = TQ_PLAN_DESC_INIT;
    desc.op = (tq_op)variant->op;
    desc.side = side;
    desc.head_dim = (variant->k ? variant->k : variant->v)->head_dim;
    desc.n_kv_heads = n_kv_heads;
    desc.gqa = variant->gqa ? variant->gqa : 1;
    desc.k_format = k;
    desc.v_format = v;
    desc.layout = variant->layout;
    desc.max_batch = batch;
    desc.max_n_kv = max_n_kv > 0 ? max_n_kv : 1;
    desc.n_splits = n_splits;
    desc.n_threads = n_threads;
    desc.max_bias_pairs = tq_attends(desc.op) ? tq_most_bias_pairs(variant) : 0;
    desc.effort = TQ_EFFORT_PINNED;
    desc.pin = variant->name;
    tq_plan *plan = NULL;
    if (tq_plan_create(device_for(variant), &desc, &plan) != TQ_OK)
        fail_msg("%s: %s", variant->name, tq_error_message());
    assert_string_equal(tq_plan_variant(plan), variant->name);
    return plan;
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

typedef struct thread_call {
    tq_status (*f)(void *, int, int);
    void *argument;
    int index, count;
    tq_status status;
} thread_call;

static void *call(void *argument) {
    thread_call *c = argument;
    c->status = c->f(c->argument, c->index, c->count);
    return NULL;
}

tq_status run_threads(int count, tq_status (*f)(void *argument, int index, int count), void *argument) {
    enum { MOST = 16 };
    pthread_t threads[MOST];
    thread_call calls[MOST];
    tq_status worst = TQ_OK;
    assert_in_range(count, 1, MOST);
    for (int i = 0; i < count; i++) {
        calls[i] = (thread_call){f, argument, i, count, TQ_OK};
        if (i > 0)
            assert_int_equal(pthread_create(&threads[i], NULL, call, &calls[i]), 0);
    }
    call(&calls[0]);
    for (int i = 0; i < count; i++) {
        if (i > 0)
            pthread_join(threads[i], NULL);
        worst = calls[i].status > worst ? calls[i].status : worst;
    }
    return worst;
}

/* ---- banks ------------------------------------------------------------------------------------------------------ */

static void realistic_vector(random_state *r, tq_side side, float *x, int head_dim) {
    for (int i = 0; i < head_dim; i++)
        x[i] = (float)random_normal(r);
    x[3] *= 6;
    x[head_dim / 2 + 1] *= 6;
    if (side == TQ_SIDE_K) {
        x[7] += 5;
        x[head_dim - 2] -= 4;
    }
}

const uint8_t *bank_rows(const tq_format_spec *format, tq_side side) {
    enum { MOST = 256 };
    static struct {
        const tq_format_spec *format;
        tq_side side;
        uint8_t *rows;
    } banks[MOST];
    int b = 0;
    while (banks[b].format && !(banks[b].format == format && banks[b].side == side))
        assert_true(++b < MOST);
    if (!banks[b].format) {
        random_state r = random_stream((uint64_t)(1000 * format->head_dim + side));
        float x[TQ_MAX_HEAD_DIM];
        banks[b].format = format;
        banks[b].side = side;
        banks[b].rows = malloc((size_t)format->row_bytes * BANK_ROWS);
        assert_non_null(banks[b].rows);
        for (int i = 0; i < BANK_ROWS; i++) {
            realistic_vector(&r, side, x, format->head_dim);
            tq_ref_encode_row(format, side, x, NULL, TQ_SCALE_NC, banks[b].rows + i * format->row_bytes);
        }
    }
    return banks[b].rows;
}
