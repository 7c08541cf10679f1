/* append_test: every append variant that runs here, on GPU targets too: the bytes against the double-precision encoder. */
#include "appending.h"

enum { N_ROWS = 256 };

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
        cmocka_unit_test(test_bytes),      cmocka_unit_test(test_idempotent), cmocka_unit_test(test_together),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
