/* tool_test.c: the parts of the tq command that need no kernel: .npy files, statistics, tables, attention of eval. */
#define _POSIX_C_SOURCE 200809L /* mkstemp, truncate */
#include "support.h"

#include "attend.h"
#include "npy.h"
#include "pool.h"
#include "stats.h"
#include "table.h"

#include <unistd.h>

/* ---- .npy ------------------------------------------------------------------------------------------------------- */

static char path[] = "/tmp/tq_tool_test_XXXXXX";

/* Writes magic, version 1, the header padded as NumPy pads it, and n bytes of values. */
static void write_npy(const char *header, const void *values, size_t n) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    size_t length = (10 + strlen(header) + 1 + 63) / 64 * 64 - 10;
    const unsigned char head[] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)length, (unsigned char)(length >> 8)};
    fwrite(head, 1, sizeof head, file);
    fprintf(file, "%-*s\n", (int)length - 1, header);
    fwrite(values, 1, n, file);
    fclose(file);
}

static void assert_npy_refused(const char *why) {
    npy array;
    char error[256];
    assert_false(npy_read(path, &array, error, sizeof error));
    assert_null(array.data);
    if (!strstr(error, why))
        fail_msg("the message '%s' does not say '%s'", error, why);
}

static const float six[6] = {1, -2, 0.5f, 4, 5, 65504};

static void test_npy_reads_float32_and_float16(void **state) {
    (void)state;
    const uint16_t halves[6] = {0x3c00, 0xc000, 0x3800, 0x4400, 0x4500, 0x7bff};
    npy array;
    char error[256];
    for (int half = 0; half < 2; half++) {
        write_npy(half ? "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 2, 3), }"
                       : "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3), }",
                  half ? (const void *)halves : six, half ? sizeof halves : sizeof six);
        assert_true(npy_read(path, &array, error, sizeof error));
        assert_int_equal(array.heads, 1);
        assert_int_equal(array.tokens, 2);
        assert_int_equal(array.head_dim, 3);
        assert_memory_equal(array.data, six, sizeof six);
        npy_free(&array);
    }
}

static void test_half_to_float_is_exact(void **state) {
    (void)state;
    for (int half = 0; half < 1 << 16; half++) {
        float found = half_to_float((uint16_t)half);
        if ((half & 0x7c00) == 0x7c00)
            assert_false(isfinite(found));
        else
            assert_true((double)found == tq_ref_half_to_double((uint16_t)half));
    }
}

static void test_npy_refusals(void **state) {
    (void)state;
    static const struct {
        const char *header, *why;
    } cases[] = {
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2, 3), }", "type '<f8'"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (1, 2, 3), }", "type '>f4'"},
        {"{'descr': '<i2', 'fortran_order': False, 'shape': (1, 2, 3), }", "type '<i2'"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2, 3), }", "Fortran order"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", "2 dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", "1 dimension,"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "0 dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 2, 3), }", "4 dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2, 3), }", "shape [0, 2, 3]"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, -2, 3), }", "shape [1, -2, 3]"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (16777216, 16777216, 3), }", "at most"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, x, 3), }", "not legible"},
        {"{'descr': '<f4', 'shape': (1, 2, 3), }", "lacks"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 6, }", "lacks"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 4), }", "found 24 bytes of values, expected 32"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 2), }", "more than 16 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_npy(cases[i].header, six, sizeof six);
        assert_npy_refused(cases[i].why);
    }
}

static void test_npy_refuses_foreign_and_truncated_files(void **state) {
    (void)state;
    const char good[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3), }";
    write_npy(good, six, sizeof six);
    FILE *file = fopen(path, "r+b");
    fputc('P', file);
    fclose(file);
    assert_npy_refused("not a .npy file");
    write_npy(good, six, sizeof six);
    for (int bytes = 0; bytes < 128 + (int)sizeof six; bytes++) {
        assert_int_equal(truncate(path, 0), 0);
        write_npy(good, six, sizeof six);
        assert_int_equal(truncate(path, bytes), 0);
        assert_npy_refused(bytes < 10 ? "not a .npy file" : bytes < 128 ? "truncated" : "bytes of values");
    }
    file = fopen(path, "wb");
    fwrite("\x93NUMPY\x09\x00\x10\x00{}              ", 1, 26, file);
    fclose(file);
    assert_npy_refused("version 9");
    npy array;
    char error[256];
    assert_false(npy_read("/nowhere/at/all.npy", &array, error, sizeof error));
    assert_non_null(strstr(error, "cannot open"));
    assert_false(npy_read("/", &array, error, sizeof error));
    assert_non_null(strstr(error, "cannot read"));
}

static void test_npy_refuses_values_that_are_not_finite(void **state) {
    (void)state;
    float values[6];
    for (int i = 0; i < 6; i++) {
        memcpy(values, six, sizeof six);
        values[i] = i % 2 ? INFINITY : NAN;
        write_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3), }", values, sizeof values);
        char why[64];
        snprintf(why, sizeof why, "%s at [0, %d, %d]", i % 2 ? "an infinity" : "NaN", i / 3, i % 3);
        assert_npy_refused(why);
    }
}

/* ---- statistics ------------------------------------------------------------------------------------------------- */

static void test_median_and_spread(void **state) {
    (void)state;
    const double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2}, gaps[] = {NAN, 5, NAN};
    const double nine[] = {9, 8, 7, 6, 5, 4, 3, 2, 1};
    assert_near(stats_median(odd, 3), 2, 0);
    assert_near(stats_median(even, 4), 2.5, 0);
    assert_near(stats_median(gaps, 3), 5, 0);
    assert_true(isnan(stats_median(odd, 0)));
    assert_near(stats_spread(nine, 9), 4.0 / 5, 1e-15);
    assert_near(odd[0], 3, 0); /* the input keeps its order */
}

/* Ranks from tables of the binomial distribution. */
static void test_interval_of_the_median(void **state) {
    (void)state;
    static const struct {
        int n, low, high; /* ranks, from 1 */
    } known[] = {{6, 1, 6}, {9, 2, 8}, {20, 6, 15}, {50, 18, 33}, {100, 40, 61}};
    double x[100];
    for (int i = 0; i < 100; i++)
        x[i] = i + 1;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        interval found = stats_median_interval(x, known[i].n);
        assert_near(found.low, known[i].low, 0);
        assert_near(found.high, known[i].high, 0);
    }
    assert_true(isinf(stats_median_interval(x, 5).low));
}

static void test_interval_covers_the_median(void **state) {
    (void)state;
    rng r = {test_seed()};
    int covered = 0, trials = 4000;
    for (int t = 0; t < trials; t++) {
        double x[31];
        for (int i = 0; i < 31; i++)
            x[i] = exp((double)rng_gaussian(&r));
        interval found = stats_median_interval(x, 31);
        covered += found.low <= 1 && found.high >= 1;
    }
    assert_true(covered >= 0.94 * trials);
    assert_true(covered <= 0.985 * trials);
}

static void test_shuffles_are_permutations(void **state) {
    (void)state;
    rng r = {test_seed()};
    int order[7], first[7] = {0};
    for (int t = 0; t < 7000; t++) {
        unsigned seen = 0;
        rng_shuffle(&r, order, 7);
        for (int i = 0; i < 7; i++)
            seen |= 1u << order[i];
        assert_int_equal(seen, 127);
        first[order[0]]++;
    }
    for (int i = 0; i < 7; i++)
        assert_near(first[i], 1000, 150);
}

static void test_gaussians(void **state) {
    (void)state;
    rng r = {test_seed()};
    double sum = 0, squares = 0;
    for (int i = 0; i < 100000; i++) {
        double x = (double)rng_gaussian(&r);
        sum += x;
        squares += x * x;
    }
    assert_near(sum / 100000, 0, 0.02);
    assert_near(squares / 100000, 1, 0.03);
}

/* ---- tables ----------------------------------------------------------------------------------------------------- */

typedef struct line {
    const char *name;
    int count;
    double value;
    bool good;
} line;

static const column columns[] = {
    {"name", "name", COLUMN_TEXT, offsetof(line, name), 0},
    {"count", "n", COLUMN_INT, offsetof(line, count), 0},
    {"value", "value", COLUMN_REAL, offsetof(line, value), 2},
    {"good", NULL, COLUMN_BOOL, offsetof(line, good), 0},
};

static const line lines[] = {{"a, \"b\"", 12345, 0.125, true}, {"c", 7, NAN, false}};

static void assert_prints(table_style style, const char *expected) {
    const table t = {columns, 4, lines, 2, sizeof *lines};
    char text[512] = "";
    FILE *file = fopen(path, "w+");
    assert_non_null(file);
    table_print(&t, style, NULL, file);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(text, expected);
}

static void test_tables(void **state) {
    (void)state;
    assert_prints(TABLE_PLAIN, "name        n  value\n"
                               "a, \"b\"  12345   0.12\n"
                               "c           7\n");
    assert_prints(TABLE_CSV, "name,count,value,good\n"
                             "\"a, \"\"b\"\"\",12345,0.125,true\n"
                             "c,7,,false\n");
    const table t = {columns, 4, lines, 2, sizeof *lines};
    cJSON *rows = table_json(&t);
    char *text = cJSON_PrintUnformatted(rows);
    assert_string_equal(text, "[{\"name\":\"a, \\\"b\\\"\",\"count\":12345,\"value\":0.125,\"good\":true},"
                              "{\"name\":\"c\",\"count\":7,\"value\":null,\"good\":false}]");
    cJSON_free(text);
    cJSON_Delete(rows);
}

/* ---- pool and attention ----------------------------------------------------------------------------------------- */

static void count_item(void *context, int item) {
    ((int *)context)[item]++;
}

static void test_pool_hands_out_every_item_once(void **state) {
    (void)state;
    static int counts[1000];
    pool *p = pool_create(3);
    for (int round = 1; round <= 20; round++) {
        pool_each(p, 1000, count_item, counts);
        for (int i = 0; i < 1000; i++)
            assert_int_equal(counts[i], round);
    }
    pool_destroy(p);
}

enum { Q_HEADS = 4, KV_HEADS = 2, TOKENS = 71, DIM = 16 };

static npy random_array(rng *r, int heads) {
    npy a = {heads, TOKENS, DIM, malloc(sizeof(float) * (size_t)(heads * TOKENS * DIM))};
    assert_non_null(a.data);
    rng_fill_gaussian(r, a.data, (size_t)(heads * TOKENS * DIM));
    return a;
}

/* Plain double precision, one query at a time. */
static void softmax_of(const npy *q, const float *k, int h, int t, double *p) {
    double sum = 0;
    for (int j = 0; j <= t; j++) {
        double dot = 0;
        for (int i = 0; i < DIM; i++)
            dot += (double)q->data[(h * TOKENS + t) * DIM + i] * k[(h / 2 * TOKENS + j) * DIM + i];
        p[j] = exp(dot / sqrt(DIM));
        sum += p[j];
    }
    for (int j = 0; j <= t; j++)
        p[j] /= sum;
}

static void test_attend_agrees_with_plain_mathematics(void **state) {
    (void)state;
    rng r = {test_seed()};
    npy q = random_array(&r, Q_HEADS), k = random_array(&r, KV_HEADS), v = random_array(&r, KV_HEADS);
    npy k_hat = random_array(&r, KV_HEADS), v_hat = random_array(&r, KV_HEADS);
    for (int i = 0; i < KV_HEADS * TOKENS * DIM; i++) {
        k_hat.data[i] = k.data[i] + 0.2f * k_hat.data[i];
        v_hat.data[i] = v.data[i] + 0.2f * v_hat.data[i];
    }
    double kl = 0, same = 0, out_err = 0, p[TOKENS], p_hat[TOKENS];
    for (int h = 0; h < Q_HEADS; h++)
        for (int t = 0; t < TOKENS; t++) {
            int top = 0, top_hat = 0;
            double error = 0, power = 0;
            softmax_of(&q, k.data, h, t, p);
            softmax_of(&q, k_hat.data, h, t, p_hat);
            for (int j = 0; j <= t; j++) {
                kl += p[j] * log(p[j] / p_hat[j]);
                top = p[j] > p[top] ? j : top;
                top_hat = p_hat[j] > p_hat[top_hat] ? j : top_hat;
            }
            same += top == top_hat;
            for (int i = 0; i < DIM; i++) {
                double o = 0, o_hat = 0;
                for (int j = 0; j <= t; j++) {
                    o += p[j] * v.data[(h / 2 * TOKENS + j) * DIM + i];
                    o_hat += p_hat[j] * v_hat.data[(h / 2 * TOKENS + j) * DIM + i];
                }
                error += (o - o_hat) * (o - o_hat);
                power += o * o;
            }
            out_err += error / power;
        }
    pool *workers = pool_create(2);
    float *k_hats[2] = {k_hat.data, k.data}, *v_hats[2] = {v_hat.data, v.data};
    attend_result found[2];
    attend_compare(workers, &q, &k, &v, 2, k_hats, v_hats, found);
    pool_destroy(workers);
    assert_near(found[0].kl, kl / (Q_HEADS * TOKENS), 1e-6);
    assert_near(found[0].top1, same / (Q_HEADS * TOKENS), 1e-12);
    assert_near(found[0].out_err, out_err / (Q_HEADS * TOKENS), 1e-5);
    assert_near(found[1].kl, 0, 1e-6);
    assert_near(found[1].top1, 1, 0);
    assert_near(found[1].out_err, 0, 1e-12);
    npy_free(&q);
    npy_free(&k);
    npy_free(&v);
    npy_free(&k_hat);
    npy_free(&v_hat);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npy_reads_float32_and_float16),
        cmocka_unit_test(test_half_to_float_is_exact),
        cmocka_unit_test(test_npy_refusals),
        cmocka_unit_test(test_npy_refuses_foreign_and_truncated_files),
        cmocka_unit_test(test_npy_refuses_values_that_are_not_finite),
        cmocka_unit_test(test_median_and_spread),
        cmocka_unit_test(test_interval_of_the_median),
        cmocka_unit_test(test_interval_covers_the_median),
        cmocka_unit_test(test_shuffles_are_permutations),
        cmocka_unit_test(test_gaussians),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_pool_hands_out_every_item_once),
        cmocka_unit_test(test_attend_agrees_with_plain_mathematics),
    };
    int file = mkstemp(path);
    if (file < 0)
        return 1;
    close(file);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
