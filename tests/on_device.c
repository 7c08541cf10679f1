/* on_device.c: memory, caches and decode problems on devices that load kernels. See support.h. */
#include "support.h"

#include "tile_cpu.h"
#include "tiles.h"

/* ---- memory ----------------------------------------------------------------------------------------------------- */

/* Memory of SIMT devices is the host's: under AddressSanitizer what lies behind it traps. */
enum { GUARD_BYTES = SANITIZED ? 0 : 64, GUARD = 0xa5, WORD = 16 };

static size_t with_guards(const device_buffer *b) {
    return b->offset + 2 * GUARD_BYTES + b->bytes;
}

device_buffer device_new(const tq_device *device, size_t bytes, size_t offset) {
    device_buffer b = {.device = device, .bytes = bytes, .offset = offset};
    size_t all = with_guards(&b);
    uint8_t *image = malloc(all);
    assert_non_null(image);
    memset(image, GUARD, all);
    memset(image + offset + GUARD_BYTES, 0xff, bytes);
    assert_int_equal(tq_device_alloc(device, all, &b.memory), TQ_OK);
    assert_int_equal(tq_device_copy_in(device, b.memory, image, all), TQ_OK);
    b.data = (uint8_t *)b.memory + offset + GUARD_BYTES;
    free(image);
    return b;
}

device_buffer device_copy(const tq_device *device, const void *host, size_t n, size_t offset) {
    device_buffer b = {0};
    if (host) {
        b = device_new(device, n, offset);
        assert_int_equal(tq_device_copy_in(device, b.data, host, n), TQ_OK);
    }
    return b;
}

void device_read(const device_buffer *b, void *host) {
    assert_int_equal(tq_device_copy_out(b->device, host, b->data, b->bytes), TQ_OK);
}

void device_buffer_free(device_buffer *b) {
    if (!b->memory)
        return;
    size_t all = with_guards(b), end = b->offset + GUARD_BYTES + b->bytes;
    uint8_t *image = malloc(all);
    assert_non_null(image);
    assert_int_equal(tq_device_copy_out(b->device, image, b->memory, all), TQ_OK);
    for (size_t i = 0; i < all; i++)
        if (i < b->offset + GUARD_BYTES || i >= end)
            assert_int_equal(image[i], GUARD);
    tq_device_free(b->device, b->memory);
    free(image);
    *b = (device_buffer){0};
}

/* ---- caches ----------------------------------------------------------------------------------------------------- */

static int ceil_div(int a, int b) {
    return (a + b - 1) / b;
}

/* A page of the buffer belongs to nobody. */
static device_buffer shuffled_pages(const tq_device *device, tq_cache *cache, int batch) {
    int n = batch * cache->pages_stride;
    random_state r = random_stream(5);
    int32_t *pages = malloc((size_t)n * sizeof *pages);
    assert_non_null(pages);
    for (int i = 0; i < n; i++) {
        int j = (int)(random_bits(&r) % (uint64_t)(i + 1));
        pages[i] = pages[j];
        pages[j] = i + 1; /* page 0 is the one */
    }
    device_buffer b = device_copy(device, pages, (size_t)n * sizeof *pages, 4);
    cache->pages = (const int32_t *)b.data;
    free(pages);
    return b;
}

device_cache device_cache_new(const tq_device *device, const tq_variant *variant, const tq_format_spec *format,
                              tq_side side, int batch, int n_kv_heads, int n_slots, int page_slots, int interleaved) {
    device_cache c = {.format = format, .side = side, .layout = variant->layout};
    c.keys_per_unit = strcmp(variant->layout, "rows") == 0 ? 1 : tq_keys_per_unit(variant);
    tq_cache *cache = &c.cache;
    size_t unit = tq_unit_bytes(format, c.layout, c.keys_per_unit), heads = (size_t)n_kv_heads;
    cache->n_slots = n_slots + EXTRA_SLOTS;
    int units = ceil_div(page_slots ? page_slots : cache->n_slots, c.keys_per_unit);
    cache->token_stride = interleaved ? heads * unit : unit;
    cache->head_stride = interleaved ? unit : (size_t)units * unit;
    size_t one = heads * (size_t)units * unit; /* page or sequence */
    if (page_slots) {
        cache->page_slots = page_slots;
        cache->page_stride = one;
        cache->pages_stride = ceil_div(cache->n_slots, page_slots);
        cache->bytes = one * (size_t)(1 + batch * cache->pages_stride);
        c.pages = shuffled_pages(device, cache, batch);
    } else {
        cache->seq_stride = one;
        cache->bytes = one * (size_t)batch;
    }
    /* Aligned as it must be and not more. */
    c.data = device_new(device, cache->bytes, strcmp(c.layout, "tile_cpu") == 0 ? TQ_ALIGN : WORD);
    cache->data = c.data.data;
    return c;
}

/* Where the unit of a slot begins, from the cache's first byte. */
static size_t unit_at(const device_cache *c, const int32_t *pages, int sequence, int kv_head, int slot) {
    const tq_cache *cache = &c->cache;
    size_t at = (size_t)kv_head * cache->head_stride;
    if (!cache->page_slots)
        return at + (size_t)sequence * cache->seq_stride + (size_t)(slot / c->keys_per_unit) * cache->token_stride;
    int page = pages[sequence * cache->pages_stride + slot / cache->page_slots];
    return at + (size_t)page * cache->page_stride +
           (size_t)(slot % cache->page_slots / c->keys_per_unit) * cache->token_stride;
}

/* Moves every row between host memory in the cache's shape and rows. */
static void move_rows(const device_cache *c, uint8_t *image, const tq_cache *rows, int batch, int n_kv_heads,
                      int to_rows) {
    int32_t *pages = malloc(c->pages.bytes + 1);
    size_t row_bytes = (size_t)c->format->row_bytes;
    const int on_cpu = strcmp(c->layout, "tile_cpu") == 0;
    tq_ref_codes codes;
    assert_non_null(pages);
    if (c->pages.data)
        device_read(&c->pages, pages);
    for (int s = 0; s < batch; s++)
        for (int h = 0; h < n_kv_heads; h++)
            for (int t = 0; t < rows->n_slots; t++) {
                uint8_t *row = tq_cache_row(rows, s, h, t), *unit = image + unit_at(c, pages, s, h, t);
                int key = t % c->keys_per_unit;
                if (c->keys_per_unit == 1) {
                    memcpy(to_rows ? row : unit, to_rows ? unit : row, row_bytes);
                } else if (on_cpu) { /* whose tiles hold the bytes of rows */
                    if (to_rows)
                        tile_cpu_get(c->side, c->format, unit, key, row);
                    else
                        tile_cpu_put(c->side, c->format, row, key, unit);
                } else if (to_rows) {
                    tile_unpack(c->layout, c->side, c->format, unit, key, &codes);
                    tq_ref_pack(c->format, &codes, row);
                } else {
                    tq_ref_unpack(c->format, row, &codes);
                    tile_pack(c->layout, c->side, c->format, &codes, key, unit);
                }
            }
    free(pages);
}

void device_cache_fill(device_cache *c, const tq_cache *rows, int batch, int n_kv_heads) {
    uint8_t *image = malloc(c->data.bytes);
    assert_non_null(image);
    memset(image, 0xff, c->data.bytes);
    move_rows(c, image, rows, batch, n_kv_heads, 0);
    assert_int_equal(tq_device_copy_in(c->data.device, c->data.data, image, c->data.bytes), TQ_OK);
    free(image);
}

void device_cache_read(const device_cache *c, tq_cache *rows, int batch, int n_kv_heads) {
    uint8_t *image = malloc(c->data.bytes);
    assert_non_null(image);
    device_read(&c->data, image);
    move_rows(c, image, rows, batch, n_kv_heads, 1);
    free(image);
}

void device_cache_free(device_cache *c) {
    device_buffer_free(&c->data);
    device_buffer_free(&c->pages);
}

/* ---- decode problems -------------------------------------------------------------------------------------------- */

enum { N_CACHES = 4, N_INPUTS = 5, ODD = 4 /* floats need no more alignment */ };

/* What lies among the numbers of the score bias, in a copy of them. */
static const void *moved(const problem *p, const void *copy, const void *x) {
    return (const uint8_t *)copy + ((const uint8_t *)x - p->bias_numbers.data);
}

void problem_launch_on_device(problem *p, const tq_plan *plan, int page_slots, unsigned seed) {
    const unsigned other_seed = seed + 101;
    const tq_device *device = plan->device;
    const problem_spec *spec = &p->spec;
    const tq_variant rows = {.layout = "rows"};
    const tq_format_spec *half_k = f16_rows(spec->k->head_dim), *half_v = f16_rows(spec->v->head_dim);
    const tq_cache *const from[N_CACHES] = {&p->k, &p->v, &p->sink_k, &p->sink_v};
    const tq_format_spec *const formats[N_CACHES] = {spec->k, spec->v, half_k, half_v};
    const buffer *const inputs[N_INPUTS] = {&p->q, &p->n_kv, &p->alibi, &p->sink_logits, &p->bias_numbers};
    device_cache caches[N_CACHES] = {{.keys_per_unit = 1}};
    device_buffer in[N_INPUTS], out = device_new(device, p->out.bytes, ODD),
                                lse = device_new(device, p->lse.bytes, ODD);
    for (int i = 0; i < N_CACHES && from[i]->data; i++) {
        caches[i] = device_cache_new(device, i < 2 ? plan->variant : &rows, formats[i], (tq_side)(i % 2), spec->batch,
                                     spec->n_kv_heads, from[i]->n_slots, page_slots, spec->interleaved);
        device_cache_fill(&caches[i], from[i], spec->batch, spec->n_kv_heads);
    }
    for (int i = 0; i < N_INPUTS; i++)
        in[i] = device_copy(device, inputs[i]->data, inputs[i]->bytes, ODD);
    size_t bytes = tq_plan_workspace_bytes(plan);
    device_buffer workspace = device_new(device, bytes, 0);
    tq_decode_args args = p->args;
    args.k = &caches[0].cache;
    args.v = &caches[1].cache;
    args.sink_k = &caches[2].cache;
    args.sink_v = &caches[3].cache;
    args.q = (const float *)in[0].data;
    args.n_kv = (const int32_t *)in[1].data;
    args.alibi = (const float *)in[2].data;
    args.sink_logits = (const float *)in[3].data;
    tq_score_bias bias = p->bias;
    if (args.bias) {
        bias.turns = moved(p, in[4].data, bias.turns);
        bias.table = moved(p, in[4].data, bias.table);
        bias.coefficients = moved(p, in[4].data, bias.coefficients);
        args.bias = &bias;
    }
    args.out = (float *)out.data;
    args.lse = (float *)lse.data;
    const tq_launch launch = {.workspace = workspace.data, .workspace_bytes = bytes, .thread_count = 1};
    assert_int_equal(tq_workspace_init(plan, workspace.data, bytes), TQ_OK);
    uint8_t *first = malloc(out.bytes);
    assert_non_null(first);
    for (int run = 0; run < 2; run++) { /* the first leaves the workspace as it found it */
        tq_simt_set_seed(run ? other_seed : seed);
        if (tq_decode(plan, &args, &launch) != TQ_OK || tq_device_synchronise(device, NULL) != TQ_OK)
            fail_msg("%s: %s", tq_plan_variant(plan), tq_error_message());
        device_read(&out, run ? p->out.data : first);
    }
    if (memcmp(first, p->out.data, out.bytes) != 0) /* blocks and threads came in another order */
        fail_msg("%s: two launches do not give the same bits", tq_plan_variant(plan));
    free(first);
    device_read(&lse, p->lse.data);
    for (int i = 0; i < N_CACHES; i++)
        device_cache_free(&caches[i]);
    for (int i = 0; i < N_INPUTS; i++)
        device_buffer_free(&in[i]);
    device_buffer_free(&workspace);
    device_buffer_free(&out);
    device_buffer_free(&lse);
}
