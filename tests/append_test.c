/* append_test: every append variant that runs here, on GPU targets too: the bytes against the double-precision encoder,
 * and the distortion that theory gives. */
#include "support.h"

enum { N_ROWS = 256, N_PIN = 10240 };
enum { FIRST_SLOT = 3, PAGE_SLOTS = 128 }; /* on devices, and in tiles */

typedef struct job {
    const tq_variant *variant;
    const tq_format_spec *format;
    tq_side side;
    tq_scale_mode mode;
    const char *mode_name;
} job;

static void wrong(const job *j, const char *what, int row, double found, double expected) {
    fail_msg("%s, %s, row %d: %s is %.9g, expected %.9g", j->variant->name, j->mode_name, row, what, found, expected);
}

/* Not in fresh rows of host memory, but behind slots that must stay. */
static int on_device(const job *j) {
    return j->variant->gpu || strcmp(j->variant->layout, "rows") != 0;
}

/* Tiles of GPUs have one scale for all that is rotated together, rows one per block. */
static int in_tiles(const job *j) {
    return j->variant->gpu && strcmp(j->variant->layout, "rows") != 0;
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

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

/* The same on a device, or in tiles of the CPU, in pages, behind slots that must stay. Rows that are not finite must stay as well. */
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

/* Appends n rows of x to fresh exact memory, which the caller frees. */
static tq_status append_rows(const job *j, const float *x, const float *mean, int n, buffer *rows) {
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

static const uint8_t *row_of(const job *j, const buffer *rows, int i) {
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

/* Calls f for every append variant that runs here and every scale mode of its format; of GPU targets some, if there are
 * many. */
static void for_each_job(void (*f)(const job *j)) {
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

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

static const double half_rounding = 0x1p-11 + 1e-6; /* of a scale: to fp16, and float32 before that */

static int is_near_half(double found, double exact) {
    return fabs(found - exact) <= fabs(exact) * half_rounding + 0x1p-24;
}

/* Is `index` the nearest centroid of v = y / (scale * step), but for rounding? */
static int is_nearest(const tq_format_spec *format, int index, double v, double slack) {
    const int8_t *c = format->centroids;
    int last = (1 << format->bits) - 1;
    int above = index == 0 || v >= 0.5 * (c[index - 1] + c[index]) - slack;
    int below = index == last || v < 0.5 * (c[index] + c[index + 1]) + slack;
    return above && below;
}

/* Modes none and nc: one norm per chunk, indices nearest for that norm. */
static void check_norm_row(const job *j, int row, const double *y, const tq_ref_codes *codes) {
    for (int c = 0; c < j->format->n_chunks; c++) {
        int first = j->format->chunks[c].first_value, end = first + j->format->chunks[c].size;
        double step = (double)j->format->steps[c], norm = 0, decoded = 0;
        for (int i = first; i < end; i++) {
            norm += y[i] * y[i];
            decoded += pow(step * tq_ref_level(j->format, codes, i), 2);
        }
        norm = sqrt(norm);
        double scale = j->mode == TQ_SCALE_NC ? norm / sqrt(decoded) : norm;
        for (int i = first; i < end; i++) {
            if (!is_near_half(codes->scale[i], scale))
                wrong(j, "scale", row, codes->scale[i], scale);
            if (!is_nearest(j->format, codes->index[i], y[i] / (norm * step), 1e-4))
                wrong(j, "index", row, codes->index[i], y[i] / (norm * step));
        }
    }
}

/* Searched: the stored scale is the least-squares one for the stored indices. */
static void check_searched_row(const job *j, int row, const double *y, const tq_ref_codes *codes) {
    int block = in_tiles(j) ? j->format->chunks[0].size : j->format->block;
    for (int first = 0; first < j->format->head_dim; first += block) {
        double product = 0, square = 0,
               step = (double)j->format->steps[tq_ref_chunk_of(j->format, first) - j->format->chunks];
        for (int i = first; i < first + block; i++) {
            double level = step * tq_ref_level(j->format, codes, i);
            product += y[i] * level;
            square += level * level;
        }
        if (!is_near_half(codes->scale[first], product / square))
            wrong(j, "scale", row, codes->scale[first], product / square);
    }
}

static double chunk_error(const job *j, const tq_chunk *chunk, const double *y, const tq_ref_codes *codes) {
    double error = 0, step = (double)j->format->steps[chunk - j->format->chunks];
    for (int i = chunk->first_value; i < chunk->first_value + chunk->size; i++)
        error += pow(y[i] - codes->scale[i] * step * tq_ref_level(j->format, codes, i), 2);
    return error;
}

/* Gains: the scale is the least-squares one, the chunk not much worse than after an exhaustive search of the gains. */
static void check_gain_row(const job *j, int row, const double *y, const tq_ref_codes *codes, const uint8_t *best_row) {
    tq_ref_codes best;
    check_searched_row(j, row, y, codes);
    tq_ref_unpack(j->format, best_row, &best);
    for (int c = 0; c < j->format->n_chunks; c++) {
        const tq_chunk *chunk = &j->format->chunks[c];
        double error = chunk_error(j, chunk, y, codes), least = chunk_error(j, chunk, y, &best);
        if (!(error <= 1.3 * least))
            wrong(j, "squared error of a chunk", row, error, least);
    }
}

static void check_q8_row(const job *j, int row, const double *y, const tq_ref_codes *codes) {
    for (int first = 0; first < j->format->head_dim; first += j->format->block) {
        double largest = 0;
        for (int i = first; i < first + j->format->block; i++)
            largest = fmax(largest, fabs(y[i]));
        for (int i = first; i < first + j->format->block; i++) {
            if (!is_near_half(codes->scale[i], largest / 127))
                wrong(j, "scale", row, codes->scale[i], largest / 127);
            if (!(fabs(codes->index[i] - y[i] / (largest / 127)) <= 0.5 + 127 * 0x1p-11))
                wrong(j, "index", row, codes->index[i], y[i] / (largest / 127));
        }
    }
}

static void check_row(const job *j, int i, const float *x, const float *mean, const uint8_t *row) {
    double y[TQ_MAX_HEAD_DIM];
    tq_ref_codes codes;
    uint8_t expected[2 * TQ_MAX_HEAD_DIM];
    tq_ref_rotate(j->format, j->side, x, mean, y);
    if (j->format->bits == 16) {
        for (int v = 0; v < j->format->head_dim; v++) {
            float value = x[v] - (mean ? mean[v] : 0);
            uint16_t half = tq_ref_half_from_double((double)value);
            if (memcmp(row + 2 * v, (uint8_t[]){half & 255, half >> 8}, 2) != 0)
                wrong(j, "half", i, tq_ref_half_to_double((uint16_t)(row[2 * v] | row[2 * v + 1] << 8)), (double)value);
        }
        return;
    }
    tq_ref_unpack(j->format, row, &codes);
    if (j->format->bits == 8)
        check_q8_row(j, i, y, &codes);
    else if (j->mode == TQ_SCALE_SEARCHED)
        check_searched_row(j, i, y, &codes);
    else if (j->mode == TQ_SCALE_DEFAULT) {
        tq_ref_encode_row(j->format, j->side, x, mean, j->mode, expected);
        check_gain_row(j, i, y, &codes, expected);
    } else
        check_norm_row(j, i, y, &codes);
}

static void check_bytes(const job *j) {
    int d = j->format->head_dim;
    const float *normals = normals_of(11, (N_ROWS + 1) * d), *mean = normals + N_ROWS * d;
    float *x = malloc((size_t)(N_ROWS * d) * sizeof *x);
    assert_non_null(x);
    for (int i = 0; i < N_ROWS; i++)
        for (int v = 0; v < d; v++)
            x[i * d + v] = normals[i * d + v] * (v % 29 == 3 ? 8.0f : 1.0f) * exp2f((float)(i % 17 - 8));
    for (int centred = 0; centred < 2; centred++) {
        buffer rows;
        assert_int_equal(append_rows(j, x, centred ? mean : NULL, N_ROWS, &rows), TQ_OK);
        for (int i = 0; i < N_ROWS; i++)
            check_row(j, i, x + i * d, centred ? mean : NULL, row_of(j, &rows, i));
        buffer_free(&rows);
    }
    free(x);
}

static void test_bytes(void **state) {
    (void)state;
    for_each_job(check_bytes);
}

/* ---- distortion ------------------------------------------------------------------------------------------------- */

typedef struct distortion {
    double rel_mse, slope, norm_low, norm_high; /* means; least and largest ratio of norms */
    int n_not_finite;
} distortion;

static distortion measure(const job *j, const float *x, const uint8_t *rows, int n) {
    distortion result = {.norm_low = INFINITY};
    int d = j->format->head_dim;
    for (int i = 0; i < n; i++) {
        double y[TQ_MAX_HEAD_DIM], error = 0, square = 0, product = 0, decoded = 0;
        tq_ref_decode_row(j->format, j->side, rows + (size_t)i * (size_t)j->format->row_bytes, NULL, y);
        for (int v = 0; v < d; v++) {
            double a = (double)x[i * d + v];
            error += (a - y[v]) * (a - y[v]);
            square += a * a;
            product += a * y[v];
            decoded += y[v] * y[v];
        }
        result.n_not_finite += !isfinite(error);
        result.rel_mse += error / square / n;
        result.slope += product / square / n;
        result.norm_low = fmin(result.norm_low, sqrt(decoded / square));
        result.norm_high = fmax(result.norm_high, sqrt(decoded / square));
    }
    return result;
}

/* Distortion of the exact Lloyd-Max codebook of uniform unit vectors, by chunk size and bits; for sizes that are not in
 * the table, by the straight line in 1 / size that the others lie on. */
static double lloyd_distortion(int chunk, int bits) {
    static const double table[][4] = {
        {64, 0.114526, 0.033391, 0.009132}, {80, 0.115115, 0.033620, 0.009204}, {128, 0.116000, 0.033966, 0.009315}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i][0] == chunk)
            return table[i][bits - 1];
    const double *small = table[0], *large = table[2];
    double at = (1 / small[0] - 1.0 / chunk) / (1 / small[0] - 1 / large[0]);
    return small[bits - 1] + at * (large[bits - 1] - small[bits - 1]);
}

static double expected_rel_mse(const job *j) {
    static const double searched[] = {0.1056, 0.0260, 0.0061}, gain[] = {0.0802, 0.0188, 0.0048};
    static const double nc_over_none[] = {0.1190 / 0.1160, 0.0339 / 0.0340, 0.00917 / 0.00932};
    double d = lloyd_distortion(j->format->chunks[0].size, j->format->bits);
    if (j->format->sub)
        return gain[j->format->bits - 2];
    if (j->mode == TQ_SCALE_SEARCHED && in_tiles(j))
        return d; /* the best scale for the nearest indices: a little less */
    if (j->mode == TQ_SCALE_SEARCHED)
        return searched[j->format->bits - 2];
    return j->mode == TQ_SCALE_NC ? d * nc_over_none[j->format->bits - 2] : d;
}

static void check_distortion(const job *j) {
    int few = SLOW || j->variant->gpu, d = j->format->head_dim, n = few ? N_PIN / 10 : N_PIN;
    int is_searched = j->mode == TQ_SCALE_SEARCHED || j->format->sub;
    if (j->format->bits > 4 || (is_searched && d % 128 != 0)) /* those pins are known for chunks of 128 */
        return;
    const float *x = normals_of(12, n * d);
    buffer rows;
    assert_int_equal(append_rows(j, x, NULL, n, &rows), TQ_OK);
    distortion found = measure(j, x, rows.data, n);
    double expected = expected_rel_mse(j);
    assert_int_equal(found.n_not_finite, 0);
    /* A better search may come out lower, though not by much. */
    double slack = few ? 0.06 : 0.03, below = is_searched ? 2 * slack : slack;
    if (!(found.rel_mse >= expected * (1 - below) && found.rel_mse <= expected * (1 + slack)))
        wrong(j, "relative MSE", n, found.rel_mse, expected);
    static const double slope_spread[] = {0.034, 0.024, 0.014}; /* from vector to vector, by bits */
    if (j->mode == TQ_SCALE_NONE &&
        !(fabs(found.slope - (1 - expected)) <= 5 * slope_spread[j->format->bits - 2] / sqrt(n)))
        wrong(j, "slope", n, found.slope, 1 - expected);
    if (j->mode == TQ_SCALE_NC && !(found.norm_low >= 1 - 0x1p-10 && found.norm_high <= 1 + 0x1p-10))
        wrong(j, "ratio of norms", n, found.norm_low, 1);
    buffer_free(&rows);
}

static void test_distortion(void **state) {
    (void)state;
    for_each_job(check_distortion);
}

/* Vectors that a missing sign or a wrong norm would ruin. */
static void check_special_vectors(const job *j) {
    int d = j->format->head_dim, odd = j->format->bits < 8 ? j->format->chunks[0].odd : 1;
    float x[2 * TQ_MAX_HEAD_DIM] = {0};
    buffer rows;
    x[d / 3] = 3.7f;
    for (int i = 0; i < d; i++)
        x[d + i] = 1;
    assert_int_equal(append_rows(j, x, NULL, 2, &rows), TQ_OK);
    double one_hot = measure(j, x, rows.data, 1).rel_mse;
    double all_ones = measure(j, x + d, row_of(j, &rows, 1), 1).rel_mse;
    if (j->mode == TQ_SCALE_NC && odd == 1 && !(one_hot <= 1e-6)) /* every rotated value has one magnitude */
        wrong(j, "relative MSE of a one-hot vector", 0, one_hot, 0);
    if (j->format->bits >= 3 && !(all_ones <= 0.12))
        wrong(j, "relative MSE of the vector of ones", 1, all_ones, 0.036);
    buffer_free(&rows);
}

static void test_special_vectors(void **state) {
    (void)state;
    for_each_job(check_special_vectors);
}

/* ---- laws ------------------------------------------------------------------------------------------------------- */

/* Encoding what was decoded gives the same indices again. */
static void check_idempotent(const job *j) {
    int d = j->format->head_dim, changed = 0;
    if (j->mode == TQ_SCALE_SEARCHED || j->format->sub)
        return;
    float *x = malloc((size_t)(N_ROWS * d) * sizeof *x);
    assert_non_null(x);
    memcpy(x, normals_of(13, N_ROWS * d), (size_t)(N_ROWS * d) * sizeof *x);
    buffer rows, again;
    assert_int_equal(append_rows(j, x, NULL, N_ROWS, &rows), TQ_OK);
    for (int i = 0; i < N_ROWS; i++) {
        double y[TQ_MAX_HEAD_DIM];
        tq_ref_decode_row(j->format, j->side, row_of(j, &rows, i), NULL, y);
        for (int v = 0; v < d; v++)
            x[i * d + v] = (float)y[v];
    }
    assert_int_equal(append_rows(j, x, NULL, N_ROWS, &again), TQ_OK);
    for (int i = 0; i < N_ROWS; i++) {
        tq_ref_codes a, b;
        if (j->format->bits == 16) {
            changed += memcmp(row_of(j, &rows, i), row_of(j, &again, i), (size_t)j->format->row_bytes) != 0;
            continue;
        }
        tq_ref_unpack(j->format, row_of(j, &rows, i), &a);
        tq_ref_unpack(j->format, row_of(j, &again, i), &b);
        for (int v = 0; v < d; v++)
            changed += a.index[v] != b.index[v];
        if (j->mode == TQ_SCALE_NC && !is_near_half(b.scale[0], a.scale[0]))
            wrong(j, "scale of the second encoding", i, b.scale[0], a.scale[0]);
    }
    if (changed)
        wrong(j, "number of indices that a second encoding changes", 0, changed, 0);
    buffer_free(&rows);
    buffer_free(&again);
    free(x);
}

static void test_idempotent(void **state) {
    (void)state;
    for_each_job(check_idempotent);
}

/* ---- rows that are stored together ------------------------------------------------------------------------------ */

/* Kernels take a few rows at a time: what is stored of one does not depend on the others, nor on how many there are. */
static void check_together(const job *j) {
    enum { N = 2 * TQ_APPEND_ROWS + 3 };
    const int d = j->format->head_dim;
    const size_t row_bytes = (size_t)j->format->row_bytes;
    if (j->variant->gpu)
        return;
    random_state random = random_stream(41);
    float x[N * TQ_MAX_HEAD_DIM], mean[TQ_MAX_HEAD_DIM];
    random_normals(&random, x, N * d);
    random_normals(&random, mean, d);
    for (int i = 0; i < d; i++) {
        x[i] *= 1e30f; /* beside ordinary ones */
        x[2 * d + i] = 0.0f;
        x[(N - 1) * d + i] *= 1e-30f;
    }
    for (int centred = 0; centred < 2; centred++) {
        buffer all, one;
        assert_int_equal(append_rows(j, x, centred ? mean : NULL, N, &all), TQ_OK);
        for (int i = 0; i < N; i++) {
            assert_int_equal(append_rows(j, x + i * d, centred ? mean : NULL, 1, &one), TQ_OK);
            if (memcmp(one.data, row_of(j, &all, i), row_bytes) != 0)
                wrong(j, "stored bytes differ from those of the row alone", i, 1, 0);
            buffer_free(&one);
        }
        buffer_free(&all);
    }
}

static void test_together(void **state) {
    (void)state;
    for_each_job(check_together);
}

/* NaN and Inf: an error, and not a byte stored of anything in the launch; on devices, of that row. */
static void check_not_finite(const job *j) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    int d = j->format->head_dim;
    for (int i = 0; i < 3; i++) {
        random_state r = random_stream(14);
        float x[3 * TQ_MAX_HEAD_DIM];
        buffer rows;
        random_normals(&r, x, 3 * d);
        x[2 * d + (i == 1 ? d - 1 : 0)] = bad[i];
        if (append_rows(j, x, NULL, 3, &rows) != TQ_ERR_NOT_FINITE)
            wrong(j, "status for an input that is not finite", i, TQ_OK, TQ_ERR_NOT_FINITE);
        for (size_t b = 0; !on_device(j) && b < rows.bytes; b++)
            assert_int_equal(rows.data[b], 0);
        buffer_free(&rows);
    }
}

static void test_not_finite(void **state) {
    (void)state;
    for_each_job(check_not_finite);
}

/* Zero decodes to exact zeros; tiny values to something no larger than a step of fp16; huge ones saturate. */
static void check_extremes(const job *j) {
    enum { ZERO, DENORMAL, TINY, LARGE, HUGE_VALUES, N };
    static const float sizes[N] = {0, 1e-40f, 1e-7f, 1e6f, 1e38f};
    int d = j->format->head_dim;
    float x[N * TQ_MAX_HEAD_DIM];
    buffer rows;
    random_state r = random_stream(15);
    random_normals(&r, x, N * d);
    for (int i = 0; i < N * d; i++)
        x[i] = sizes[i / d] * fminf(fmaxf(x[i], -3), 3);
    assert_int_equal(append_rows(j, x, NULL, N, &rows), TQ_OK);
    for (int i = 0; i < N; i++) {
        double y[TQ_MAX_HEAD_DIM], product = 0, largest = 0;
        tq_ref_decode_row(j->format, j->side, row_of(j, &rows, i), NULL, y);
        for (int v = 0; v < d; v++) {
            if (!isfinite(y[v]))
                wrong(j, "decoded value", i, y[v], (double)x[i * d + v]);
            product += y[v] * (double)x[i * d + v];
            largest = fmax(largest, fabs(y[v]));
        }
        if (i == ZERO && largest != 0)
            wrong(j, "largest value of the zero vector", i, largest, 0);
        if (i == DENORMAL && !(largest <= 1e-7))
            wrong(j, "largest value of a vector of denormals", i, largest, 0);
        if (i == TINY && !(largest <= 1e-5))
            wrong(j, "largest value of a tiny vector", i, largest, 3e-7);
        if (i >= LARGE && !(product > 0 && largest > 1000))
            wrong(j, "largest value of a saturated vector", i, largest, 65504);
    }
    buffer_free(&rows);
}

static void test_extremes(void **state) {
    (void)state;
    for_each_job(check_extremes);
}

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),      cmocka_unit_test(test_distortion), cmocka_unit_test(test_special_vectors),
        cmocka_unit_test(test_idempotent), cmocka_unit_test(test_not_finite), cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
