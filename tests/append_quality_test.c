/* append_quality_test: the distortion of every append variant that runs here, on GPU targets too, against what theory gives. */
#include "appending.h"

enum { N_PIN = 10240 };

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

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_distortion), cmocka_unit_test(test_special_vectors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
