/* gpu_rows_test: append, dequantise and repack kernels of GPU archs on the SIMT devices: whole buffers, bit by bit, against
 * the CPU's encoder, the reference and the plain reader of tiles. */
#include "support.h"
#include "tiles.h"

enum {
    BATCH = 3,
    HEADS = 2,
    N_TOKENS = 11, /* no multiple of what a block takes */
    N_SLOTS = 256,
    PAGE_SLOTS = 128,
    PAGES = N_SLOTS / PAGE_SLOTS,
    MARGIN = 48, /* bytes between heads and around all */
};

/* Tokens cross tiles; those of the last sequence beyond the last slot are not stored. */
static const int32_t first_slots[BATCH] = {123, 0, N_SLOTS - 3};

typedef struct job {
    const tq_variant *variant;
    const tq_format_spec *format;
    tq_side side;
    const tq_device *device;
    const char *layout; /* of what the test looks at; repack: of its tiles */
} job;

/* Calls f for every variant of an op that runs on a SIMT device. */
static void for_each_job(tq_op op, void (*f)(const job *j)) {
    int n = 0, n_all = tq_variant_count();
    const char *only = getenv("TQ_TEST_ONLY");
    for (int i = 0; i < n_all; i++) {
        tq_variant_info info;
        job j;
        assert_int_equal(tq_variant_at(i, &info), TQ_OK);
        if (info.op != op || !info.runs_here || strcmp(info.kind, "simt") != 0 || (only && !strstr(info.name, only)))
            continue;
        j.variant = tq_variant_find(info.name, NULL);
        j.side = j.variant->k ? TQ_SIDE_K : TQ_SIDE_V;
        j.format = spec_of(info.k ? info.k : info.v, info.head_dim);
        j.layout = info.layout;
        assert_int_equal(tq_device_find(info.device, &j.device), TQ_OK);
        f(&j);
        n++;
    }
    printf("%s: %d variants on SIMT devices\n", tq_op_name(op), n);
}

static tq_plan *plan_of(const job *j) {
    tq_plan_desc desc = TQ_PLAN_DESC_INIT;
    tq_plan *plan = NULL;
    desc.op = (tq_op)j->variant->op;
    desc.side = j->side;
    desc.head_dim = j->format->head_dim;
    desc.n_kv_heads = HEADS;
    desc.k_format = j->variant->k ? j->format->name : NULL;
    desc.v_format = j->variant->v ? j->format->name : NULL;
    desc.layout = j->layout;
    desc.max_batch = BATCH;
    desc.max_n_kv = N_SLOTS;
    desc.effort = TQ_EFFORT_PINNED;
    desc.pin = j->variant->name;
    if (tq_plan_create(j->device, &desc, &plan) != TQ_OK)
        fail_msg("%s: %s", j->variant->name, tq_error_message());
    return plan;
}

static void check(const job *j, tq_status status) {
    if (status != TQ_OK)
        fail_msg("%s: %s", j->variant->name, tq_error_message());
}

/* ---- caches: random bytes to begin with, and a second copy of them that holds what is expected ------------------- */

typedef struct test_cache {
    tq_cache cache;
    buffer memory;
    uint8_t *expected;
    int32_t pages[BATCH * PAGES];
    const char *layout;
    int keys;
    const tq_format_spec *format;
} test_cache;

static test_cache *cache_of(const job *j, const char *layout, int paged, random_state *r) {
    test_cache *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->layout = layout;
    c->keys = tile_keys(layout, j->format) ? tile_keys(layout, j->format) : 1;
    c->format = j->format;
    size_t unit = c->keys > 1 ? tile_bytes(layout, j->format) : (size_t)j->format->row_bytes;
    size_t slots = paged ? PAGE_SLOTS : N_SLOTS, head = (unit * slots / (size_t)c->keys + 15) / 16 * 16 + MARGIN;
    size_t n = paged ? BATCH * PAGES : BATCH;
    c->memory = buffer_new(n * HEADS * head + MARGIN, 0);
    for (size_t i = 0; i < c->memory.bytes; i++)
        c->memory.data[i] = (uint8_t)random_bits(r);
    for (int i = 0; i < BATCH * PAGES; i++) { /* a permutation */
        int other = (int)(random_bits(r) % (uint64_t)(i + 1));
        c->pages[i] = c->pages[other];
        c->pages[other] = i;
    }
    c->cache = (tq_cache){.data = c->memory.data + MARGIN,
                          .bytes = c->memory.bytes - MARGIN,
                          .seq_stride = paged ? 0 : HEADS * head,
                          .head_stride = head,
                          .token_stride = unit,
                          .n_slots = N_SLOTS,
                          .page_slots = paged ? PAGE_SLOTS : 0,
                          .pages = paged ? c->pages : NULL,
                          .page_stride = paged ? HEADS * head : 0,
                          .pages_stride = paged ? PAGES : 0};
    c->expected = malloc(c->memory.bytes);
    assert_non_null(c->expected);
    memcpy(c->expected, c->memory.data, c->memory.bytes);
    return c;
}

/* The row or tile of a slot, as an offset into both copies. */
static size_t unit_at(const test_cache *c, int s, int h, int slot) {
    size_t at = MARGIN + (size_t)h * c->cache.head_stride;
    if (c->cache.pages) {
        at += (size_t)c->pages[s * PAGES + slot / PAGE_SLOTS] * c->cache.page_stride;
        slot %= PAGE_SLOTS;
    } else {
        at += (size_t)s * c->cache.seq_stride;
    }
    return at + (size_t)(slot / c->keys) * c->cache.token_stride;
}

static void codes_at(const test_cache *c, tq_side side, const uint8_t *bytes, int s, int h, int slot,
                     tq_ref_codes *codes) {
    const uint8_t *unit = bytes + unit_at(c, s, h, slot);
    memset(codes, 0, sizeof *codes);
    if (c->keys > 1)
        tile_unpack(c->layout, side, c->format, unit, slot % c->keys, codes);
    else
        tq_ref_unpack(c->format, unit, codes);
}

static void put_codes(const test_cache *c, tq_side side, uint8_t *bytes, int s, int h, int slot,
                      const tq_ref_codes *codes) {
    uint8_t *unit = bytes + unit_at(c, s, h, slot);
    if (c->keys > 1)
        tile_pack(c->layout, side, c->format, codes, slot % c->keys, unit);
    else
        tq_ref_pack(c->format, codes, unit);
}

static void compare_and_free(const job *j, test_cache *c, const char *what) {
    for (size_t i = 0; i < c->memory.bytes; i++)
        if (c->memory.data[i] != c->expected[i])
            fail_msg("%s, %s: byte %zu of %s%s is %02x, expected %02x (head_stride %zu, unit %zu)", j->variant->name,
                     what, i - MARGIN, c->cache.pages ? "paged " : "", c->layout, c->memory.data[i], c->expected[i],
                     c->cache.head_stride, c->cache.token_stride);
    buffer_free(&c->memory);
    free(c->expected);
    free(c);
}

/* Calls f for every token that a launch stores or reads. */
typedef void (*token_fn)(const job *j, test_cache *c, int s, int t, int h, void *argument);
static void for_each_token(const job *j, test_cache *c, token_fn f, void *argument) {
    for (int s = 0; s < BATCH; s++)
        for (int t = 0; t < N_TOKENS && first_slots[s] + t < N_SLOTS; t++)
            for (int h = 0; h < HEADS; h++)
                f(j, c, s, t, h, argument);
}

/* ---- append ------------------------------------------------------------------------------------------------------ */

typedef struct append_case {
    float *x, *mean;
    tq_scale_mode mode;
    const tq_variant *cpu; /* NULL: this build has none */
    int n, n_other;        /* rows; rows with other bytes than the CPU's */
} append_case;

static const tq_variant *cpu_variant(const job *j) {
    int n = tq_variant_count();
    for (int i = 0; i < n; i++) {
        tq_variant_info info;
        assert_int_equal(tq_variant_at(i, &info), TQ_OK);
        const char *name = j->side == TQ_SIDE_K ? info.k : info.v;
        if (info.op == TQ_OP_APPEND && info.runs_here && strcmp(info.kind, "cpu") == 0 && name &&
            info.head_dim == j->format->head_dim && strcmp(name, j->format->name) == 0)
            return tq_variant_find(info.name, NULL);
    }
    return NULL;
}

static size_t x_at(const job *j, int s, int t, int h) {
    return (size_t)((s * N_TOKENS + t) * HEADS + h) * (size_t)j->format->head_dim;
}

static double squared_error(const job *j, const double *y, const tq_ref_codes *codes) {
    double error = 0;
    for (int i = 0; i < j->format->head_dim; i++) {
        double step = (double)j->format->steps[tq_ref_chunk_of(j->format, i) - j->format->chunks];
        error += pow(y[i] - codes->scale[i] * step * tq_ref_level(j->format, codes, i), 2);
    }
    return error;
}

/* The scale that fits the codes of a chunk best. */
static double fitted(const job *j, int first, const double *y, const tq_ref_codes *codes) {
    const tq_chunk *chunk = tq_ref_chunk_of(j->format, first);
    double product = 0, square = 0, step = (double)j->format->steps[chunk - j->format->chunks];
    for (int i = first; i < first + chunk->size; i++) {
        double level = step * tq_ref_level(j->format, codes, i);
        product += y[i] * level;
        square += level * level;
    }
    return fmin(product / square, 65504);
}

/* What should be stored. Without a CPU kernel the reference's encoder stands in, of which only the error counts. */
static void check_token(const job *j, test_cache *c, int s, int t, int h, void *argument) {
    append_case *a = argument;
    const float *x = a->x + x_at(j, s, t, h), *mean = a->mean ? a->mean + h * j->format->head_dim : NULL;
    const uint32_t *signs = j->side == TQ_SIDE_K ? j->format->k_signs : j->format->v_signs;
    uint8_t row[2 * TQ_MAX_HEAD_DIM];
    int slot = first_slots[s] + t, fits_chunks = c->keys > 1 && a->mode == TQ_SCALE_SEARCHED, d = j->format->head_dim;
    tq_scale_mode mode = fits_chunks || (!a->cpu && a->mode == TQ_SCALE_SEARCHED) ? TQ_SCALE_NONE : a->mode;
    double y[TQ_MAX_HEAD_DIM];
    tq_ref_codes expected = {0}, found;
    for (int i = 0; i < d; i++)
        if (!isfinite(x[i]))
            return;
    a->n++;
    if (a->cpu)
        a->cpu->append(&x, &mean, signs, (int)mode, 1, &(uint8_t *){row});
    else if (j->format->bits == 16) { /* rounded twice, as everywhere: as a float, then as a half */
        float difference[TQ_MAX_HEAD_DIM];
        for (int i = 0; i < d; i++)
            difference[i] = mean ? x[i] - mean[i] : x[i];
        tq_ref_encode_row(j->format, j->side, difference, NULL, mode, row);
    } else
        tq_ref_encode_row(j->format, j->side, x, mean, mode, row);
    if (j->format->bits == 16) {
        memcpy(c->expected + unit_at(c, s, h, slot), row, (size_t)j->format->row_bytes);
        return;
    }
    tq_ref_unpack(j->format, row, &expected);
    codes_at(c, j->side, c->memory.data, s, h, slot, &found);
    tq_ref_rotate(j->format, j->side, x, mean, y);
    double least = squared_error(j, y, &expected), error = squared_error(j, y, &found);
    for (int i = 0; fits_chunks && i < d; i += j->format->chunks[0].size) {
        double scale = fitted(j, i, y, &found);
        if (!(fabs(found.scale[i] - scale) <= scale * (0x1p-11 + 1e-6) + 0x1p-24))
            fail_msg("%s: scale %g of chunk at %d, expected %g", j->variant->name, found.scale[i], i, scale);
        for (int v = 0; v < j->format->chunks[0].size; v++)
            expected.scale[i + v] = found.scale[i];
    }
    if (memcmp(&expected, &found, sizeof found) != 0) {
        /* The search is made for blocks of 32: over a longer one, its best scale can lose to the norm of a single row. */
        double slack = a->cpu ? 1e-3 : j->format->sub ? 0.3 : j->format->block > 32 ? 0.05 : 1e-2;
        if (!(error <= least * (1 + slack)))
            fail_msg("%s, %s, sequence %d, token %d, head %d: squared error %g, expected %g", j->variant->name,
                     tq_scale_mode_name(a->mode), s, t, h, error, least);
        a->n_other++;
    }
    put_codes(c, j->side, c->expected, s, h, slot, &found);
}

/* Outlier channels, sizes over many binades, and rows that are zero, tiny, or too large to be stored. */
static void fill_x(const job *j, append_case *a, random_state *r) {
    static const float special[] = {0, 1e-7f, 1e6f};
    int d = j->format->head_dim, n = BATCH * N_TOKENS * HEADS;
    random_normals(r, a->x, n * d);
    for (int i = 0; i < n; i++)
        for (int v = 0; v < d; v++)
            a->x[i * d + v] *= i < 3 ? special[i] : (v % 29 == 3 ? 8.0f : 1.0f) * exp2f((float)(i % 17 - 8));
}

static void append_once(const job *j, append_case *a, test_cache *c, int32_t *status) {
    size_t d = (size_t)j->format->head_dim;
    tq_append_args args = {.batch = BATCH,
                           .n_tokens = N_TOKENS,
                           .x = a->x,
                           .x_seq_stride = N_TOKENS * HEADS * d,
                           .x_token_stride = HEADS * d,
                           .x_head_stride = d,
                           .first_slot = first_slots,
                           .cache = &c->cache,
                           .mean = a->mean,
                           .mode = a->mode,
                           .status = status};
    tq_launch launch = {.thread_count = 1};
    tq_plan *plan = plan_of(j);
    check(j, tq_append(plan, &args, &launch));
    tq_plan_destroy(plan);
    for_each_token(j, c, check_token, a);
}

static void test_append_of(const job *j) {
    int d = j->format->head_dim;
    random_state r = random_stream(31);
    float *x = malloc((size_t)(BATCH * N_TOKENS * HEADS * d) * sizeof *x), mean[HEADS * TQ_MAX_HEAD_DIM];
    assert_non_null(x);
    append_case a = {x, NULL, TQ_SCALE_DEFAULT, cpu_variant(j), 0, 0};
    for (int mode = TQ_SCALE_DEFAULT; mode <= TQ_SCALE_SEARCHED; mode++) {
        int is_default = mode == TQ_SCALE_DEFAULT;
        if (j->format->modes[0] ? is_default || !tq_has_word(j->format->modes, tq_scale_mode_name((tq_scale_mode)mode))
                                : !is_default)
            continue;
        a.mode = (tq_scale_mode)mode;
        int paged = mode % 2 == (j->side == TQ_SIDE_K), with_nan = mode != TQ_SCALE_NC;
        int32_t status = 0;
        test_cache *c = cache_of(j, j->layout, paged, &r);
        fill_x(j, &a, &r);
        random_normals(&r, mean, HEADS * d);
        a.mean = mode == TQ_SCALE_NONE || is_default ? mean : NULL;
        if (with_nan) {
            x[x_at(j, 0, 5, 1) + 17] = NAN;
            x[x_at(j, 1, 2, 0) + (size_t)d - 1] = -INFINITY;
        }
        append_once(j, &a, c, &status);
        assert_int_equal(status, with_nan);
        compare_and_free(j, c, tq_scale_mode_name(a.mode));
    }
    /* Sums are added in another order, and may lead to another choice; not often. */
    if (a.cpu && a.n_other * 20 > a.n)
        fail_msg("%s: %d of %d rows differ from those of %s", j->variant->name, a.n_other, a.n, a.cpu->name);
    free(x);
}

static void test_append(void **state) {
    (void)state;
    for_each_job(TQ_OP_APPEND, test_append_of);
}

/* ---- dequantise ------------------------------------------------------------------------------------------------- */

typedef struct dequantise_case {
    uint8_t *x;
    const float *mean;
    int halves;
} dequantise_case;

/* Slots hold rows of the bank; those of chunks with one scale. */
static const uint8_t *bank_row(const job *j, int s, int t, int h) {
    return bank_rows(j->format, j->side) + (size_t)((s * N_TOKENS + t) * HEADS + h) * (size_t)j->format->row_bytes;
}

static void store_bank_row(const job *j, test_cache *c, int s, int t, int h, void *argument) {
    (void)argument;
    uint8_t *unit = c->memory.data + unit_at(c, s, h, first_slots[s] + t);
    if (c->keys > 1) {
        tq_ref_codes codes;
        tq_ref_unpack(j->format, bank_row(j, s, t, h), &codes);
        put_codes(c, j->side, c->memory.data, s, h, first_slots[s] + t, &codes);
    } else {
        memcpy(unit, bank_row(j, s, t, h), (size_t)j->format->row_bytes);
    }
}

static void check_values(const job *j, test_cache *c, int s, int t, int h, void *argument) {
    const dequantise_case *d = argument;
    const float *mean = d->mean ? d->mean + h * j->format->head_dim : NULL;
    double expected[TQ_MAX_HEAD_DIM], square = 0;
    (void)c;
    tq_ref_decode_row(j->format, j->side, bank_row(j, s, t, h), mean, expected);
    for (int i = 0; i < j->format->head_dim; i++)
        square += pow(expected[i] - (mean ? (double)mean[i] : 0), 2);
    for (int i = 0; i < j->format->head_dim; i++) {
        uint8_t *at = d->x + (x_at(j, s, t, h) + (size_t)i) * (d->halves ? 2 : 4);
        double found, bound = 4 * 0x1p-24 * (sqrt(square) + fabs(expected[i])) + 0x1p-126;
        float value;
        memcpy(&value, at, sizeof value - (d->halves ? 2 : 0));
        if (d->halves) {
            found = tq_ref_half_to_double((uint16_t)(at[0] | at[1] << 8));
            bound += fabs(expected[i]) * 0x1p-11 + 0x1p-25;
        } else {
            found = (double)value;
        }
        if (!(fabs(found - expected[i]) <= bound))
            fail_msg("%s: sequence %d, token %d, head %d, value %d is %.9g, expected %.9g", j->variant->name, s, t, h,
                     i, found, expected[i]);
    }
}

static void test_dequantise_of(const job *j) {
    size_t d = (size_t)j->format->head_dim, n = BATCH * N_TOKENS * HEADS * d;
    float mean[HEADS * TQ_MAX_HEAD_DIM];
    random_state r = random_stream(32);
    random_normals(&r, mean, (int)(HEADS * d));
    for (int halves = 0; halves < 2; halves++) {
        test_cache *c = cache_of(j, j->layout, halves, &r);
        buffer x = buffer_new(n * (halves ? 2 : 4), 0);
        dequantise_case values = {x.data, halves == (j->side == TQ_SIDE_K) ? mean : NULL, halves};
        for_each_token(j, c, store_bank_row, NULL);
        memcpy(c->expected, c->memory.data, c->memory.bytes);
        tq_dequantise_args args = {.batch = BATCH,
                                   .n_tokens = N_TOKENS,
                                   .cache = &c->cache,
                                   .first_slot = first_slots,
                                   .mean = values.mean,
                                   .x = x.data,
                                   .x_seq_stride = N_TOKENS * HEADS * d,
                                   .x_token_stride = HEADS * d,
                                   .x_head_stride = d,
                                   .x_type = halves ? TQ_F16 : TQ_F32};
        tq_launch launch = {.thread_count = 1};
        tq_plan *plan = plan_of(j);
        check(j, tq_dequantise(plan, &args, &launch));
        tq_plan_destroy(plan);
        for_each_token(j, c, check_values, &values);
        for (size_t i = x_at(j, BATCH - 1, 3, 0) * (halves ? 2 : 4); i < x.bytes; i++)
            assert_int_equal(x.data[i], 0); /* of tokens beyond the last slot */
        compare_and_free(j, c, "reading");
        buffer_free(&x);
    }
}

static void test_dequantise(void **state) {
    (void)state;
    for_each_job(TQ_OP_DEQUANTISE, test_dequantise_of);
}

/* ---- repack ------------------------------------------------------------------------------------------------------ */

/* Rows of random bytes whose scales are finite and, but for some, agree in a chunk. */
static void store_random_row(const job *j, test_cache *c, int s, int t, int h, void *argument) {
    random_state *r = argument;
    uint8_t *row = c->memory.data + unit_at(c, s, h, first_slots[s] + t);
    tq_ref_codes codes;
    for (int i = 0; i < j->format->row_bytes; i++)
        row[i] = (uint8_t)random_bits(r);
    tq_ref_unpack(j->format, row, &codes);
    for (int i = 0; i < j->format->head_dim; i++)
        codes.scale[i] = 1 + s + t + i / j->format->chunks[0].size + (s == 1 && t == 4 && i % 128 >= j->format->block);
    tq_ref_pack(j->format, &codes, row);
}

static void expect_in_tile(const job *j, test_cache *tiles, int s, int t, int h, void *argument) {
    const test_cache *rows = argument;
    tq_ref_codes codes;
    codes_at(rows, j->side, rows->memory.data, s, h, first_slots[s] + t, &codes);
    put_codes(tiles, j->side, tiles->expected, s, h, first_slots[s] + t, &codes);
}

/* The row, with the scale that its tile took. */
static void expect_back(const job *j, test_cache *back, int s, int t, int h, void *argument) {
    const test_cache *rows = argument;
    tq_ref_codes codes;
    codes_at(rows, j->side, rows->memory.data, s, h, first_slots[s] + t, &codes);
    for (int i = 0; i < j->format->head_dim; i++)
        codes.scale[i] = codes.scale[i / 128 * 128];
    put_codes(back, j->side, back->expected, s, h, first_slots[s] + t, &codes);
}

static void test_repack_of(const job *j) {
    random_state r = random_stream(33);
    int paged = j->side == TQ_SIDE_K;
    int32_t n_inexact = 0;
    test_cache *rows = cache_of(j, "rows", !paged, &r), *tiles = cache_of(j, j->layout, paged, &r);
    test_cache *back = cache_of(j, "rows", paged, &r);
    for_each_token(j, rows, store_random_row, &r);
    memcpy(rows->expected, rows->memory.data, rows->memory.bytes);
    for_each_token(j, tiles, expect_in_tile, rows);
    for_each_token(j, back, expect_back, rows);
    tq_repack_args args = {.batch = BATCH,
                           .n_tokens = N_TOKENS,
                           .rows = &rows->cache,
                           .tiles = &tiles->cache,
                           .first_slot = first_slots,
                           .to_tiles = 1,
                           .n_inexact = &n_inexact};
    tq_launch launch = {.thread_count = 1};
    tq_plan *plan = plan_of(j);
    check(j, tq_repack(plan, &args, &launch));
    assert_int_equal(n_inexact, j->format->sub ? 0 : HEADS); /* one token */
    args.to_tiles = 0;
    args.rows = &back->cache;
    check(j, tq_repack(plan, &args, &launch));
    tq_plan_destroy(plan);
    compare_and_free(j, rows, "from");
    compare_and_free(j, tiles, "to");
    compare_and_free(j, back, "and back");
}

static void test_repack(void **state) {
    (void)state;
    for_each_job(TQ_OP_REPACK, test_repack_of);
}

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append),
        cmocka_unit_test(test_dequantise),
        cmocka_unit_test(test_repack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
