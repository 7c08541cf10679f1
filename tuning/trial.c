#include "trial.h"

#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "memory.h"
#include "reference.h"
#include "tiles.h"

float *trial_gaussian(trial *t, size_t n) {
    float *x = cli_alloc(n, sizeof *x);
    rng_fill_gaussian(&t->rng, x, n);
    return x;
}

float *trial_to_device(const trial *t, const float *x, size_t n) {
    return memory_copy(t->device, x, n * sizeof *x);
}

const tq_format_spec *trial_format(const char *format, int head_dim) {
    static tq_format_spec f16 = {.name = "f16", .bits = 16, .block = 1, .modes = ""};
    const tq_format_spec *spec;
    tq_status status = tq_format_lookup("format", format, head_dim, &spec);
    if (status && strcmp(format, f16.name) == 0) {
        f16.head_dim = head_dim;
        f16.row_bytes = 2 * head_dim;
        return &f16;
    }
    cli_check(status);
    return spec;
}

/* ---- caches ----------------------------------------------------------------------------------------------------- */

static tq_cache cache_of(size_t unit_bytes, int units) {
    tq_cache cache = {.token_stride = unit_bytes, .n_slots = TRIAL_SLOTS};
    cache.head_stride = cache.token_stride * (size_t)units;
    cache.seq_stride = cache.head_stride * TRIAL_KV_HEADS;
    cache.bytes = cache.seq_stride * TRIAL_BATCH;
    return cache;
}

trial_cache trial_new_cache(const trial *t, tq_side side, const char *format, const char *layout) {
    trial_cache c = {.spec = trial_format(format, contract_values(t->c, side)), .side = side, .layout = layout};
    cli_check(tq_layout_lookup(layout, c.spec, &c.keys_per_unit));
    c.rows = cache_of((size_t)c.spec->row_bytes, TRIAL_SLOTS);
    c.rows.data = cli_alloc(c.rows.bytes, 1);
    c.on_device = c.rows;
    if (!t->on_cpu || c.keys_per_unit > 1) {
        c.on_device = cache_of(tq_unit_bytes(c.spec, layout, c.keys_per_unit), (TRIAL_SLOTS - 1) / c.keys_per_unit + 1);
        c.on_device.data = memory_new(t->device, c.on_device.bytes);
    }
    return c;
}

/* Rows on the CPU. */
static bool is_shared(const trial_cache *c) {
    return c->on_device.data == c->rows.data;
}

void trial_free_cache(const trial *t, trial_cache *c) {
    if (!is_shared(c))
        memory_free(t->device, c->on_device.data);
    free(c->rows.data);
}

uint8_t *trial_row(const trial_cache *c, int i) {
    return (uint8_t *)c->rows.data + (size_t)i * c->rows.token_stride; /* rows are contiguous here */
}

/* Row i in an image of the device's cache. */
static uint8_t *unit_of(const trial_cache *c, uint8_t *image, int i) {
    return image + (size_t)(i / TRIAL_SLOTS) * c->on_device.head_stride +
           (size_t)(i % TRIAL_SLOTS / c->keys_per_unit) * c->on_device.token_stride;
}

void trial_rows_to_device(const trial *t, const trial_cache *c) {
    if (is_shared(c))
        return;
    uint8_t *image = cli_alloc(c->on_device.bytes, 1);
    tq_ref_codes codes;
    for (int i = 0; i < TRIAL_ROWS; i++) {
        if (c->keys_per_unit == 1) {
            memcpy(unit_of(c, image, i), trial_row(c, i), (size_t)c->spec->row_bytes);
        } else {
            tq_ref_unpack(c->spec, trial_row(c, i), &codes);
            tile_pack(c->layout, c->side, c->spec, &codes, i % TRIAL_SLOTS % c->keys_per_unit, unit_of(c, image, i));
        }
    }
    memory_write(t->device, c->on_device.data, image, c->on_device.bytes);
    free(image);
}

void trial_rows_from_device(const trial *t, trial_cache *c) {
    if (is_shared(c))
        return;
    uint8_t *image = cli_alloc(c->on_device.bytes, 1);
    tq_ref_codes codes;
    memory_read(t->device, image, c->on_device.data, c->on_device.bytes);
    for (int i = 0; i < TRIAL_ROWS; i++) {
        if (c->keys_per_unit == 1) {
            memcpy(trial_row(c, i), unit_of(c, image, i), (size_t)c->spec->row_bytes);
        } else {
            tile_unpack(c->layout, c->side, c->spec, unit_of(c, image, i), i % TRIAL_SLOTS % c->keys_per_unit, &codes);
            tq_ref_pack(c->spec, &codes, trial_row(c, i));
        }
    }
    free(image);
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

void trial_fly(void *context, int thread_index, int thread_count) {
    const trial_flight *f = context;
    const tq_launch launch = {f->workspace, f->workspace_bytes, thread_index, thread_count, NULL};
    cli_check(f->append       ? tq_append(f->plan, f->append, &launch)
              : f->dequantise ? tq_dequantise(f->plan, f->dequantise, &launch)
              : f->repack     ? tq_repack(f->plan, f->repack, &launch)
              : f->prefill    ? tq_prefill(f->plan, f->prefill, &launch)
                              : tq_decode(f->plan, f->decode, &launch));
}

tq_plan *trial_plan(const trial *t, const contract *c, const char *variant, int splits) {
    tq_plan_desc desc = contract_plan(c, TRIAL_KV_HEADS, TRIAL_SLOTS, pool_threads(t->pool));
    desc.max_batch = TRIAL_BATCH;
    desc.n_splits = splits;
    desc.effort = variant ? TQ_EFFORT_PINNED : TQ_EFFORT_DEFAULT;
    desc.pin = variant;
    tq_plan *plan;
    cli_check(tq_plan_create(t->device, &desc, &plan));
    return plan;
}

void trial_workspace(const trial *t, trial_flight *f) {
    f->workspace_bytes = tq_plan_workspace_bytes(f->plan);
    f->workspace = memory_new(t->device, f->workspace_bytes);
    cli_check(tq_workspace_init(f->plan, f->workspace, f->workspace_bytes));
}

void trial_append(const trial *t, const tq_plan *plan, const float *x, trial_cache *cache, tq_scale_mode mode) {
    const size_t head_dim = (size_t)cache->spec->head_dim;
    const tq_append_args args = {.batch = TRIAL_BATCH,
                                 .n_tokens = TRIAL_SLOTS,
                                 .x = x,
                                 .x_seq_stride = TRIAL_SLOTS * TRIAL_KV_HEADS * head_dim,
                                 .x_token_stride = TRIAL_KV_HEADS * head_dim,
                                 .x_head_stride = head_dim,
                                 .first_slot = t->no_slots,
                                 .cache = &cache->on_device,
                                 .mode = mode};
    trial_flight f = {.plan = plan, .append = &args};
    memory_run(t->device, t->pool, trial_fly, &f);
    trial_rows_from_device(t, cache);
}

size_t trial_x_of(const tq_format_spec *spec, int i) {
    int slot = i % TRIAL_SLOTS, head = i / TRIAL_SLOTS % TRIAL_KV_HEADS, sequence = i / TRIAL_SLOTS / TRIAL_KV_HEADS;
    return (size_t)((sequence * TRIAL_SLOTS + slot) * TRIAL_KV_HEADS + head) * (size_t)spec->head_dim;
}

trial_cache trial_random_cache(trial *t, tq_side side, const char *format, const char *layout) {
    trial_cache cache = trial_new_cache(t, side, format, layout);
    const size_t n = (size_t)TRIAL_ROWS * (size_t)cache.spec->head_dim;
    float *x = trial_gaussian(t, n);
    if (t->on_cpu) {
        contract c = {.op = TQ_OP_APPEND, .side = side, .head_dim = cache.spec->head_dim, .layout = layout};
        *(side == TQ_SIDE_K ? &c.k : &c.v) = format;
        tq_plan *plan = trial_plan(t, &c, NULL, 0);
        trial_append(t, plan, x, &cache, TQ_SCALE_DEFAULT);
        tq_plan_destroy(plan);
    } else {
        const tq_scale_mode mode = tq_has_word(cache.spec->modes, "nc") ? TQ_SCALE_NC : TQ_SCALE_DEFAULT;
        for (int i = 0; i < TRIAL_ROWS; i++)
            tq_ref_encode_row(cache.spec, side, x + trial_x_of(cache.spec, i), NULL, mode, trial_row(&cache, i));
        trial_rows_to_device(t, &cache);
    }
    free(x);
    return cache;
}
