/* tunefile_test: tuning files that are good, corrupt, foreign, truncated or stale, and what plans make of them. */
#define _POSIX_C_SOURCE 200809L /* mkstemp */
#include "support.h"
#include "tunefile.h"

#include <unistd.h>

static char path[] = "/tmp/tq_tunefile_test_XXXXXX";
static const tq_variant *first, *second; /* two implementations of one contract, or twice the only one */

static int set_up(void **state) {
    (void)state;
    int count, fd = mkstemp(path);
    const tq_variant **list = variants_here(TQ_OP_DECODE, &count);
    first = second = count ? list[0] : NULL;
    for (int i = 1; i < count && first == second; i++)
        if (same_contract(list[i], list[i - 1])) {
            first = list[i - 1];
            second = list[i];
        }
    free(list);
    return fd < 0 || close(fd) != 0 || !first;
}

static int tear_down(void **state) {
    (void)state;
    return unlink(path);
}

static void write_text(const char *text) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static tq_status plan_with_file(tq_effort effort, char *variant, char *why) {
    tq_plan_desc desc = TQ_PLAN_DESC_INIT;
    tq_plan *plan = NULL;
    desc.head_dim = first->k->head_dim;
    desc.gqa = first->gqa;
    desc.k_format = first->k->name;
    desc.v_format = first->v->name;
    desc.max_n_kv = 4096;
    desc.effort = effort;
    desc.tuning_file = path;
    tq_status status = tq_plan_create(NULL, &desc, &plan);
    snprintf(variant, 256, "%s", tq_plan_variant(plan));
    snprintf(why, 1024, "%s", tq_plan_why(plan));
    tq_plan_destroy(plan);
    return status;
}

static tq_tune_row row_of(const tq_variant *variant, double median_ns) {
    tq_tune_row row = {.key = variant->key,
                       .n_kv_heads = 8,
                       .n_kv = 4096,
                       .batch = 1,
                       .threads = 1,
                       .median_ns = median_ns,
                       .spread = 0.01,
                       .verified = 1,
                       .max_err = 0.5};
    snprintf(row.variant, sizeof row.variant, "%s", variant->name);
    return row;
}

static void save(const tq_tune_row *rows, int n, const char *model) {
    unlink(path);
    if (tq_tunefile_save(path, model, rows, n) != TQ_OK)
        fail_msg("%s", tq_error_message());
}

static const char *here(void) {
    return tq_device_model(tq_device_at(0));
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static void test_round_trip(void **state) {
    (void)state;
    tq_tune_row rows[] = {row_of(first, 1234.5), row_of(second, 1000)};
    rows[1].n_kv = 8192;
    rows[1].verified = 0;
    save(rows, 2, here());
    tq_tune_file file;
    assert_int_equal(tq_tunefile_read(path, &file), TQ_OK);
    assert_string_equal(file.model, here());
    assert_int_equal(file.n_rows, 2);
    assert_string_equal(file.rows[0].variant, first->name);
    assert_int_equal(file.rows[0].key, first->key);
    assert_near(file.rows[0].median_ns, 1234.5, 1e-9);
    assert_int_equal(file.rows[1].n_kv, 8192);
    assert_int_equal(file.rows[1].verified, 0);
    assert_true(tq_tune_row_is_live(&file.rows[0]));
    file.rows[0].key++;
    assert_false(tq_tune_row_is_live(&file.rows[0]));
    tq_tunefile_free(&file);

    rows[0].median_ns = 900; /* replaces its row, and the other stays */
    assert_int_equal(tq_tunefile_save(path, here(), rows, 1), TQ_OK);
    assert_int_equal(tq_tunefile_read(path, &file), TQ_OK);
    assert_int_equal(file.n_rows, 2);
    assert_near(file.rows[0].median_ns, 900, 1e-9);
    tq_tunefile_free(&file);
}

#define HEADER  "# tq-tuning 1\n# device Some CPU\n"
#define COLUMNS "variant\tkey\tn_kv_heads\tn_kv\tbatch\tthreads\tmedian_ns\tspread\tverified\tmax_err\n"
#define ROW(variant, key, n_kv, median, verified)                                                                      \
    variant "\t" key "\t8\t" n_kv "\t1\t1\t" median "\t0.1\t" verified "\t0.5\n"
#define GOOD_ROW ROW("tq_x__c", "0123456789abcdef", "4096", "100", "yes")

/* The place and the field are named; nothing of a bad file counts. */
static void test_bad_files(void **state) {
    (void)state;
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"", "header"},
        {"ELF\x7f binary\n", ":1: "},
        {"# tq-tuning 2\n# device Some CPU\n" COLUMNS, ":1: "},
        {"# tq-tuning 1\n", "header"},
        {"# tq-tuning 1\nno device\n" COLUMNS, ":2: device"},
        {HEADER, "header"},
        {HEADER "variant\tkey\n", ":3: "},
        {HEADER "variant\tkey\tn_kv_heads\tn_kv\tbatch\tthreads\tmedian\tspread\tverified\tmax_err\n", "median_ns"},
        {HEADER COLUMNS GOOD_ROW "tq_half_a_ro", ":5: "},
        {HEADER COLUMNS "tq_x__c\t0123456789abcdef\t8\n", ":4: number of columns"},
        {HEADER COLUMNS ROW("nonsense", "0123456789abcdef", "4096", "100", "yes"), ":4: variant"},
        {HEADER COLUMNS ROW("tq_x__c", "123", "4096", "100", "yes"), ":4: key"},
        {HEADER COLUMNS ROW("tq_x__c", "0123456789abcdeg", "4096", "100", "yes"), ":4: key"},
        {HEADER COLUMNS ROW("tq_x__c", "0123456789abcdef", "-1", "100", "yes"), ":4: n_kv"},
        {HEADER COLUMNS ROW("tq_x__c", "0123456789abcdef", "40.5", "100", "yes"), ":4: n_kv"},
        {HEADER COLUMNS ROW("tq_x__c", "0123456789abcdef", "4096", "fast", "yes"), ":4: median_ns"},
        {HEADER COLUMNS ROW("tq_x__c", "0123456789abcdef", "4096", "nan", "yes"), ":4: median_ns"},
        {HEADER COLUMNS ROW("tq_x__c", "0123456789abcdef", "4096", "-5", "yes"), ":4: median_ns"},
        {HEADER COLUMNS ROW("tq_x__c", "0123456789abcdef", "4096", "inf", "yes"), ":4: median_ns"},
        {HEADER COLUMNS ROW("tq_x__c", "0123456789abcdef", "4096", "100", "perhaps"), ":4: verified"},
        {HEADER COLUMNS GOOD_ROW ROW("tq_x__c", "0123456789abcdef", "4096", "", "yes"), ":5: median_ns"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tq_tune_file file;
        char variant[256], why[1024];
        write_text(bad[i].text);
        assert_refused(tq_tunefile_read(path, &file), TQ_ERR_FILE_FORMAT, bad[i].word);
        assert_non_null(strstr(tq_error_message(), path));
        assert_int_equal(file.n_rows, 0);
        assert_refused(plan_with_file(TQ_EFFORT_DEFAULT, variant, why), TQ_ERR_FILE_FORMAT, bad[i].word);
        tq_tune_row row = row_of(first, 100);
        assert_refused(tq_tunefile_save(path, "Some CPU", &row, 1), TQ_ERR_FILE_FORMAT, bad[i].word);
        char now[256] = {0}; /* what was there still is */
        FILE *stream = fopen(path, "rb");
        assert_non_null(stream);
        size_t n = fread(now, 1, sizeof now - 1, stream);
        fclose(stream);
        assert_memory_equal(now, bad[i].text, n);
    }
    assert_refused(tq_tunefile_read("/nonexistent/file", &(tq_tune_file){0}), TQ_ERR_IO, "/nonexistent/file");
    assert_refused(tq_tunefile_save("/nonexistent/file", "Some CPU", NULL, 0), TQ_ERR_IO, "/nonexistent/file");
}

static void test_other_device(void **state) {
    (void)state;
    char variant[256], why[1024];
    tq_tune_row row = row_of(second, 100);
    save(&row, 1, "Zilog Z80");
    assert_int_equal(plan_with_file(TQ_EFFORT_DEFAULT, variant, why), TQ_OK);
    assert_non_null(strstr(why, "Zilog Z80"));
    assert_refused(plan_with_file(TQ_EFFORT_FILE_ONLY, variant, why), TQ_ERR_UNSUPPORTED, "Zilog Z80");
    assert_refused(tq_tunefile_save(path, here(), &row, 1), TQ_ERR_FILE_FORMAT, "Zilog Z80");
}

/* ---- plans ------------------------------------------------------------------------------------------------------ */

static void test_file_decides(void **state) {
    (void)state;
    char variant[256], why[1024];
    for (int faster = 0; faster < 2; faster++) {
        tq_tune_row rows[] = {row_of(first, faster ? 2000 : 1000), row_of(second, faster ? 1000 : 2000)};
        save(rows, first == second ? 1 : 2, here());
        assert_int_equal(plan_with_file(TQ_EFFORT_FILE_ONLY, variant, why), TQ_OK);
        assert_string_equal(variant, (faster ? second : first)->name);
        assert_non_null(strstr(why, path));
    }
}

/* Rows with another key, of variants that are not in the build, or not verified do not count. */
static void test_dead_rows(void **state) {
    (void)state;
    char variant[256], why[1024];
    tq_tune_row rows[] = {row_of(first, 10), row_of(second, 20), row_of(first, 30)};
    rows[0].key++;
    rows[1].verified = 0;
    rows[1].n_kv = 2048;
    snprintf(rows[2].variant, sizeof rows[2].variant, "tq_of_another_build__c");
    save(rows, 3, here());
    assert_int_equal(plan_with_file(TQ_EFFORT_DEFAULT, variant, why), TQ_OK);
    assert_non_null(strstr(why, "registry order"));
    assert_refused(plan_with_file(TQ_EFFORT_FILE_ONLY, variant, why), TQ_ERR_UNSUPPORTED, "no verified row");
}

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_bad_files), cmocka_unit_test(test_other_device),
        cmocka_unit_test(test_file_decides), cmocka_unit_test(test_dead_rows),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
