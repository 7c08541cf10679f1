/* ggml.c: `tq ggml`: decode beside the flash attention of ggml, paired, on cold caches. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "ggml_attention.h"
#include "table.h"

enum { LEAST_ROUNDS = 7, MOST_ROUNDS = 201, LAYOUTS = 2, GUESTS = GGML_FORMATS * LAYOUTS };

typedef struct row {
    const char *kernel, *k, *v, *layout;
    bool ggml;
    int head_dim, gqa, n_kv, n_kv_heads, threads, samples;
    double median_ns, ns_per_key_head, bytes_per_key_head, error;
    double ratio[GGML_FORMATS]; /* how many times faster than ggml's better layout of each format */
} row;

static const column columns[] = {
    {"kernel", "kernel", COLUMN_TEXT, offsetof(row, kernel), 0},
    {"ggml", NULL, COLUMN_BOOL, offsetof(row, ggml), 0},
    {"head_dim", "head_dim", COLUMN_INT, offsetof(row, head_dim), 0},
    {"gqa", "gqa", COLUMN_INT, offsetof(row, gqa), 0},
    {"k", NULL, COLUMN_TEXT, offsetof(row, k), 0},
    {"v", NULL, COLUMN_TEXT, offsetof(row, v), 0},
    {"layout", NULL, COLUMN_TEXT, offsetof(row, layout), 0},
    {"n_kv", "n_kv", COLUMN_INT, offsetof(row, n_kv), 0},
    {"n_kv_heads", NULL, COLUMN_INT, offsetof(row, n_kv_heads), 0},
    {"threads", NULL, COLUMN_INT, offsetof(row, threads), 0},
    {"median_ns", "median ns", COLUMN_REAL, offsetof(row, median_ns), 0},
    {"ns_per_key_head", "ns/key/head", COLUMN_REAL, offsetof(row, ns_per_key_head), 2},
    {"bytes_per_key_head", "B/key/head", COLUMN_REAL, offsetof(row, bytes_per_key_head), 0},
    {"ratio_ggml_f16", "x ggml f16", COLUMN_REAL, offsetof(row, ratio[0]), 2},
    {"ratio_ggml_q8_0", "x q8_0", COLUMN_REAL, offsetof(row, ratio[1]), 2},
    {"ratio_ggml_q4_0", "x q4_0", COLUMN_REAL, offsetof(row, ratio[2]), 2},
    {"error", "error", COLUMN_REAL, offsetof(row, error), 6},
    {"samples", NULL, COLUMN_INT, offsetof(row, samples), 0},
};

typedef struct versus {
    harness_options harness;
    ggml_library *library;
    double seconds; /* per kernel */
    row *rows;
    int n_rows;
} versus;

static row new_row(const versus *v, const harness *h, int which, const contract *shape) {
    const double median = stats_median(harness_samples(h, which), harness_rounds(h, which));
    const double keys = (double)harness_tokens(h, which) * v->harness.n_kv_heads;
    return (row){.kernel = cli_format("%s", harness_variant(h, which)),
                 .head_dim = shape->head_dim,
                 .gqa = shape->gqa,
                 .n_kv = harness_tokens(h, which),
                 .n_kv_heads = v->harness.n_kv_heads,
                 .threads = pool_threads(v->harness.pool),
                 .samples = harness_rounds(h, which),
                 .median_ns = median,
                 .ns_per_key_head = median / keys,
                 .bytes_per_key_head = harness_cache_bytes(h, which) / keys,
                 .error = NAN};
}

/* Median over the rounds of the other's time / this one's. */
static double ratio_of(const harness *h, int which, int other) {
    const int n = harness_rounds(h, which);
    double *ratios = cli_alloc((size_t)n, sizeof *ratios);
    for (int i = 0; i < n; i++)
        ratios[i] = harness_samples(h, other)[i] / harness_samples(h, which)[i];
    double ratio = stats_median(ratios, n);
    free(ratios);
    return ratio;
}

/* Times mean nothing unless it computes attention. Its sums in half precision lose a percent over many keys, q4_0 another. */
static void check_guest(const row *r) {
    const double most = 0.05;
    if (!(r->error < most)) {
        fprintf(stderr, "tq ggml: %s gives an output with relative squared error %g, expected less than %g\n",
                r->kernel, r->error, most);
        exit(EXIT_CHECK_FAILED);
    }
}

/* Contracts of one shape and all of ggml's caches run against each other. */
static void run_shape(versus *v, const contract *contracts, int n) {
    const contract *shape = &contracts[0];
    harness *h = harness_create(&v->harness);
    ggml_attention *attention[GUESTS];
    harness_guest guests[GUESTS];
    for (int i = 0; i < n; i++)
        harness_add(h, &contracts[i], NULL);
    for (int i = 0; i < GUESTS; i++) {
        attention[i] = ggml_attention_create(v->library, ggml_formats[i / LAYOUTS], i % LAYOUTS,
                                             (ggml_shape){shape->head_dim, contract_values(shape, TQ_SIDE_V),
                                                          shape->gqa, v->harness.n_kv, v->harness.n_kv_heads});
        guests[i] = ggml_attention_guest(attention[i]);
        harness_add_guest(h, &guests[i]);
    }
    fprintf(stderr, "timing %d kernel%s beside %d caches of ggml, head_dim %d gqa %d\n", n, n == 1 ? "" : "s", GUESTS,
            shape->head_dim, shape->gqa);
    harness_run(h, v->seconds * (n + GUESTS), LEAST_ROUNDS, MOST_ROUNDS);
    v->rows = realloc(v->rows, (size_t)(v->n_rows + n + GUESTS) * sizeof *v->rows);
    if (!v->rows)
        cli_fail("out of memory: %d rows", v->n_rows + n + GUESTS);
    row *rows = v->rows + v->n_rows;
    v->n_rows += n + GUESTS;
    for (int i = 0; i < n + GUESTS; i++) {
        const int guest = i - n;
        rows[i] = new_row(v, h, i, shape);
        rows[i].ggml = guest >= 0;
        rows[i].k = guest >= 0 ? ggml_formats[guest / LAYOUTS] : contracts[i].k;
        rows[i].v = guest >= 0 ? ggml_formats[guest / LAYOUTS] : contracts[i].v;
        rows[i].layout = guest < 0 ? contracts[i].layout : guest % LAYOUTS ? "interleaved" : "contiguous";
        if (guest >= 0) {
            rows[i].error = ggml_attention_error(attention[guest]);
            check_guest(&rows[i]);
        }
    }
    for (int f = 0; f < GGML_FORMATS; f++) {
        const int first = n + f * LAYOUTS, better = first + (rows[first + 1].median_ns < rows[first].median_ns);
        for (int i = 0; i < n + GUESTS; i++)
            rows[i].ratio[f] = ratio_of(h, i, better);
    }
    harness_destroy(h);
    for (int i = 0; i < GUESTS; i++)
        ggml_attention_destroy(attention[i]);
}

int command_ggml(int argc, char **argv) {
    contract_axes axes = CONTRACT_AXES_INIT;
    axes.head_dims = cli_one_int(128);
    axes.gqas = (int_list){3, {1, 4, 8}};
    axes.k = (name_list){5, {"f16", "q8_0", "turbo4", "gain4", "turbo3"}};
    int n_kv = CONTRACT_N_KV, n_kv_heads = CONTRACT_KV_HEADS, threads = 1, seed = 1;
    double budget = 0.5;
    bool json = false, csv = false;
    const char *folder = NULL;
    const cli_option options[] = {
        CONTRACT_SHAPE_OPTIONS(axes),
        CONTRACT_TIMING_OPTIONS(axes),
        {"n-kv", "N", CLI_INT, &n_kv, 1, HARNESS_MAX_N_KV, "keys (16384)"},
        {"kv-heads", "N", CLI_INT, &n_kv_heads, 1, HARNESS_MAX_KV_HEADS, "KV heads (8)"},
        {"threads", "N", CLI_INT, &threads, 1, POOL_MAX_THREADS, "threads, of ours and of ggml (1)"},
        {"ggml", "FOLDER", CLI_TEXT, &folder, 0, 0, "where libggml-cpu.so lies (the package llama_cpp of python3)"},
        {"budget", "SECONDS", CLI_REAL, &budget, 0.001, 1e6, "timing for each kernel (0.5)"},
        {"seed", "N", CLI_INT, &seed, 0, 1 << 30, "of our data and of the order (1)"},
        {"json", NULL, CLI_FLAG, &json, 0, 0, "print JSON"},
        {"csv", NULL, CLI_FLAG, &csv, 0, 0, "print CSV"},
    };
    const cli_command command = {
        "ggml",
        "",
        0,
        "Times decode kernels beside ggml's flash attention with f16, q8_0 and q4_0 caches, its rows lying head by\n"
        "head (contiguous) or token by token (interleaved), without a mask. One process, the same threads, cold "
        "caches;\n"
        "every round runs everybody in random order. x: how many times faster than ggml's better layout, the median\n"
        "over the rounds. ggml comes with PyPI's llama-cpp-python.",
        CLI_COUNT(options),
        options};
    cli_parse(&command, argc, argv, NULL);
    table_style style = table_style_of(json, csv);
    contract *contracts;
    int n = contract_list(&axes, &contracts);
    pool *p = pool_create(threads);
    versus v = {.harness = {contract_device(&axes), p, n_kv, n_kv_heads, (uint64_t)seed, 0, NULL, false},
                .library = ggml_open(folder, threads),
                .seconds = budget};
    for (int i = 0, end; i < n; i = end) {
        for (end = i; end < n && contract_same_shape(&contracts[i], &contracts[end]); end++) {
        }
        run_shape(&v, contracts + i, end - i);
    }
    const table t = {columns, CLI_COUNT(columns), v.rows, v.n_rows, sizeof *v.rows};
    if (style == TABLE_PLAIN)
        printf("ggml %s\n", ggml_version_of(v.library));
    cJSON *context = cJSON_CreateObject();
    cJSON_AddStringToObject(context, "ggml_version", ggml_version_of(v.library));
    cJSON_AddNumberToObject(context, "seed", seed);
    table_print(&t, style, context, stdout);
    for (int i = 0; i < v.n_rows; i++)
        free((char *)v.rows[i].kernel);
    free(v.rows);
    free(contracts);
    ggml_close(v.library);
    pool_destroy(p);
    return 0;
}
