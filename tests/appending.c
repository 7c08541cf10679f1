#include "appending.h"

enum { FIRST_SLOT = 3, PAGE_SLOTS = 128 }; /* on devices, and in tiles */

void wrong(const job *j, const char *what, int row, double found, double expected) {
    fail_msg("%s, %s, row %d: %s is %.9g, expected %.9g", j->variant->name, j->mode_name, row, what, found, expected);
}

int on_device(const job *j) {
    return j->variant->gpu || strcmp(j->variant->layout, "rows") != 0;
}

int in_tiles(const job *j) {
    return j->variant->gpu && strcmp(j->variant->layout, "rows") != 0;
}

/* Slots that were there before: any bytes, without NaN. */
static void soil(device_cache *c) {
    uint8_t *image = malloc(c->data.bytes);
    assert_non_null(image);
    memset(image, 0x5a, c->data.bytes);
    assert_int_equal(tq_device_copy_in(c->data.device, c->data.data, image, c->data.bytes), TQ_OK);
    free(image);
}

/* All n slots, of one sequence and head. */
static buffer read_slots(const job *j, const device_cache *c, int n) {
    tq_cache rows;
    buffer b = cache_new(&rows, 1, 1, n, j->format->row_bytes, 0);
    device_cache_read(c, &rows, 1, 1);
    return b;
}

/* On a device, or in tiles of the CPU, in pages, behind slots that must stay. Rows that are not finite must stay as well. */
static tq_status append_on_device(const job *j, const float *x, const float *mean, int n, buffer *rows) {
    const tq_device *device = device_for(j->variant);
    const size_t d = (size_t)j->format->head_dim, row_bytes = (size_t)j->format->row_bytes;
    const int32_t first_slot = FIRST_SLOT, good = 0;
    const int n_slots = n + FIRST_SLOT;
    int32_t bad;
    device_cache c = device_cache_new(device, j->variant, j->format, j->side, 1, 1, n_slots, PAGE_SLOTS, 0);
    device_buffer in = device_copy(device, x, (size_t)n * d * sizeof *x, 4);
    device_buffer centre = device_copy(device, mean, d * sizeof *mean, 4);
    device_buffer first = device_copy(device, &first_slot, sizeof first_slot, 4);
    device_buffer status = device_copy(device, &good, sizeof good, 4);
    soil(&c);
    buffer before = read_slots(j, &c, n_slots + EXTRA_SLOTS);
    tq_plan *plan = plan_pinned(j->variant, j->side, 1, 1, n_slots, 0);
    const tq_append_args args = {.batch = 1,
                                 .n_tokens = n,
                                 .x = (const float *)in.data,
                                 .x_seq_stride = (size_t)n * d,
                                 .x_token_stride = d,
                                 .x_head_stride = d,
                                 .first_slot = (const int32_t *)first.data,
                                 .cache = &c.cache,
                                 .mean = (const float *)centre.data,
                                 .mode = j->mode,
                                 .status = (int32_t *)status.data};
    const tq_launch launch = {.thread_count = 1};
    tq_status result = tq_append(plan, &args, &launch);
    int refused = result == TQ_ERR_NOT_FINITE && !j->variant->gpu; /* all of it */
    if ((result != TQ_OK && !refused) || tq_device_synchronise(device, NULL) != TQ_OK)
        fail_msg("%s: %s", j->variant->name, tq_error_message());
    device_read(&status, &bad);
    bad |= refused;
    buffer after = read_slots(j, &c, n_slots + EXTRA_SLOTS);
    for (int t = 0; t < n_slots + EXTRA_SLOTS; t++) {
        int i = t - FIRST_SLOT,
            stays = refused || i < 0 || i >= n || tq_first_not_finite(x + i * (int)d, mean, (int)d) < (int)d;
        if (stays && memcmp(before.data + (size_t)t * row_bytes, after.data + (size_t)t * row_bytes, row_bytes) != 0)
            wrong(j, "number of slots changed that must stay", i, 1, 0);
    }
    *rows = buffer_new((size_t)n * row_bytes, 2);
    memcpy(rows->data, after.data + FIRST_SLOT * row_bytes, rows->bytes);
    tq_plan_destroy(plan);
    buffer_free(&before);
    buffer_free(&after);
    device_buffer_free(&in);
    device_buffer_free(&centre);
    device_buffer_free(&first);
    device_buffer_free(&status);
    device_cache_free(&c);
    return bad ? TQ_ERR_NOT_FINITE : TQ_OK;
}

tq_status append_rows(const job *j, const float *x, const float *mean, int n, buffer *rows) {
    tq_cache cache;
    const int32_t first_slot = 0;
    size_t d = (size_t)j->format->head_dim;
    if (on_device(j))
        return append_on_device(j, x, mean, n, rows);
    *rows = cache_new(&cache, 1, 1, n, j->format->row_bytes, 0);
    tq_plan *plan = plan_pinned(j->variant, j->side, 1, 1, n, 0);
    tq_append_args args = {.batch = 1,
                           .n_tokens = n,
                           .x = x,
                           .x_seq_stride = (size_t)n * d,
                           .x_token_stride = d,
                           .x_head_stride = d,
                           .first_slot = &first_slot,
                           .cache = &cache,
                           .mean = mean,
                           .mode = j->mode};
    tq_launch launch = {NULL, 0, 0, 1, NULL};
    tq_status status = tq_append(plan, &args, &launch);
    assert_true(buffer_intact(rows));
    tq_plan_destroy(plan);
    return status;
}

const uint8_t *row_of(const job *j, const buffer *rows, int i) {
    return rows->data + (size_t)i * (size_t)j->format->row_bytes;
}

static void for_each_mode(const tq_variant *variant, void (*f)(const job *j)) {
    const tq_format_spec *own = variant->k ? variant->k : variant->v;
    job j = {variant, spec_of(own->name, own->head_dim), variant->k ? TQ_SIDE_K : TQ_SIDE_V, TQ_SCALE_DEFAULT,
             "default"};
    if (!j.format->modes[0])
        f(&j);
    for (int mode = TQ_SCALE_NONE; mode <= TQ_SCALE_SEARCHED; mode++) {
        j.mode = (tq_scale_mode)mode;
        j.mode_name = tq_scale_mode_name(j.mode);
        if (tq_has_word(j.format->modes, j.mode_name))
            f(&j);
    }
}

void for_each_job(void (*f)(const job *j)) {
    int count, gpu_count;
    const tq_variant **variants = variants_here(TQ_OP_APPEND, &count);
    const tq_variant **gpu_variants = gpu_variants_here(TQ_OP_APPEND, &gpu_count);
    int stride = test_stride(gpu_count, 200);
    for (int i = 0; i < count; i++)
        for_each_mode(variants[i], f);
    for (int i = 0; i < gpu_count; i += stride) {
        tq_simt_set_seed((unsigned)i);
        for_each_mode(gpu_variants[i], f);
    }
    assert_true(count + gpu_count > 0);
    free(variants);
    free(gpu_variants);
}
