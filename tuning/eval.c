/* eval.c: `tq eval`: what each format does to attention on real Q, K and V. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attend.h"
#include "commands.h"
#include "npy.h"
#include "plot.h"
#include "roundtrip.h"
#include "table.h"

typedef struct row {
    const char *format;
    int rank;
    double bytes_per_value, k_relmse, v_relmse, kl, top1, out_err;
} row;

static const column columns[] = {
    {"rank", "rank", COLUMN_INT, offsetof(row, rank), 0},
    {"format", "format", COLUMN_TEXT, offsetof(row, format), 0},
    {"bytes_per_value", "bytes/value", COLUMN_REAL, offsetof(row, bytes_per_value), 4},
    {"k_relmse", "K relMSE", COLUMN_REAL, offsetof(row, k_relmse), 5},
    {"v_relmse", "V relMSE", COLUMN_REAL, offsetof(row, v_relmse), 5},
    {"kl", "KL nats", COLUMN_REAL, offsetof(row, kl), 5},
    {"top1", "top-1", COLUMN_REAL, offsetof(row, top1), 4},
    {"out_err", "output err", COLUMN_REAL, offsetof(row, out_err), 5},
};

typedef struct layer {
    npy q, k, v;
} layer;

static npy read_array(const char *option, const char *path) {
    npy array;
    char error[512];
    if (!npy_read(path, &array, error, sizeof error))
        cli_fail("--%s %s", option, error);
    return array;
}

static layer read_layer(const char *q_path, const char *k_path, const char *v_path) {
    layer l = {read_array("q", q_path), read_array("k", k_path), read_array("v", v_path)};
    const int v_head_dim = tq_v_head_dim(l.k.head_dim);
    if (l.k.heads != l.v.heads || l.k.tokens != l.v.tokens || v_head_dim != l.v.head_dim) {
        cli_fail("--v %s: found shape [%d, %d, %d], expected that of V beside these keys, [%d, %d, %d]", v_path,
                 l.v.heads, l.v.tokens, l.v.head_dim, l.k.heads, l.k.tokens, v_head_dim);
    }
    if (l.q.tokens != l.k.tokens || l.q.head_dim != l.k.head_dim) {
        cli_fail("--q %s: found %d tokens of head_dim %d, expected K's %d tokens of head_dim %d", q_path, l.q.tokens,
                 l.q.head_dim, l.k.tokens, l.k.head_dim);
    }
    if (l.q.heads % l.k.heads != 0)
        cli_fail("--q %s: found %d heads, expected a multiple of K's %d", q_path, l.q.heads, l.k.heads);
    return l;
}

static layer *read_layers(const name_list *q, const name_list *k, const name_list *v) {
    if (q->n == 0 || q->n != k->n || q->n != v->n)
        cli_fail("found %d --q, %d --k and %d --v, expected one of each per layer", q->n, k->n, v->n);
    layer *layers = cli_alloc((size_t)q->n, sizeof *layers);
    for (int i = 0; i < q->n; i++) {
        layers[i] = read_layer(q->at[i], k->at[i], v->at[i]);
        if (layers[i].k.head_dim != layers[0].k.head_dim) {
            cli_fail("--k %s: found head_dim %d, expected %d as in the first layer", k->at[i], layers[i].k.head_dim,
                     layers[0].k.head_dim);
        }
    }
    return layers;
}

/* Adds one layer's measures, each divided by n_layers, to the rows. */
static void evaluate(const tq_device *device, pool *p, const layer *l, int n_layers, const format_spec *formats, int n,
                     int n_sink, row *rows) {
    const size_t heads_tokens = (size_t)l->k.heads * (size_t)l->k.tokens;
    float **k_hat = cli_alloc((size_t)n, sizeof *k_hat), **v_hat = cli_alloc((size_t)n, sizeof *v_hat);
    attend_result *results = cli_alloc((size_t)n, sizeof *results);
    for (int f = 0; f < n; f++) {
        k_hat[f] = cli_alloc(heads_tokens * (size_t)l->k.head_dim, sizeof **k_hat);
        v_hat[f] = cli_alloc(heads_tokens * (size_t)l->v.head_dim, sizeof **v_hat);
        roundtrip(device, p, &l->k, TQ_SIDE_K, &formats[f].k, n_sink, k_hat[f]);
        roundtrip(device, p, &l->v, TQ_SIDE_V, &formats[f].v, n_sink, v_hat[f]);
        rows[f].k_relmse += relative_mse(&l->k, k_hat[f]) / n_layers;
        rows[f].v_relmse += relative_mse(&l->v, v_hat[f]) / n_layers;
    }
    attend_compare(p, &l->q, &l->k, &l->v, n, k_hat, v_hat, results);
    for (int f = 0; f < n; f++) {
        rows[f].kl += results[f].kl / n_layers;
        rows[f].top1 += results[f].top1 / n_layers;
        rows[f].out_err += results[f].out_err / n_layers;
        free(k_hat[f]);
        free(v_hat[f]);
    }
    free(k_hat);
    free(v_hat);
    free(results);
}

static int by_kl(const void *a, const void *b) {
    double x = ((const row *)a)->kl, y = ((const row *)b)->kl;
    return (x > y) - (x < y);
}

static void draw(const char *file, const row *rows, int n, int n_layers) {
    plot_point *points = cli_alloc((size_t)n, sizeof *points);
    int shown = 0;
    for (int i = 0; i < n; i++)
        if (rows[i].kl > 1e-6) /* f16 would stretch the logarithmic axis for nothing */
            points[shown++] = (plot_point){rows[i].format, rows[i].bytes_per_value, rows[i].kl};
    char *title =
        cli_format("Attention KL against size, K and V quantised, %d layer%s", n_layers, n_layers == 1 ? "" : "s");
    plot_points(file, title, "bytes per value", "KL, nats per query", points, shown);
    free(title);
    free(points);
}

int command_eval(int argc, char **argv) {
    name_list q = {0}, k = {0}, v = {0}, asked = {0};
    int n_sink = 0, threads = pool_processors();
    bool json = false, csv = false;
    const char *plot = NULL, *device_name = "cpu";
    const tq_device *device;
    const cli_option options[] = {
        {"q", "FILE", CLI_REPEAT, &q, 0, 0, "queries after RoPE, [query heads, tokens, head_dim]; once per layer"},
        {"k", "FILE", CLI_REPEAT, &k, 0, 0, "keys after RoPE, [KV heads, tokens, head_dim]"},
        {"v", "FILE", CLI_REPEAT, &v, 0, 0, "values, shaped as the keys (head_dim 512 beside keys of 576)"},
        {"formats", "LIST", CLI_NAMES, &asked, 0, 0,
         "format[:mode][+centre], or two of them as K/V (every format and mode);\n"
         "+centre takes a mean per channel out of K before it is quantised"},
        {"sinks", "N", CLI_INT, &n_sink, 0, 1 << 20, "first tokens kept in f16 (0)"},
        {"device", "NAME", CLI_TEXT, &device_name, 0, 0, "device that quantises (cpu)"},
        {"threads", "N", CLI_INT, &threads, 1, POOL_MAX_THREADS, "threads (all processors)"},
        {"plot", "FILE", CLI_TEXT, &plot, 0, 0, "KL against bytes per value, as SVG"},
        {"json", NULL, CLI_FLAG, &json, 0, 0, "print JSON"},
        {"csv", NULL, CLI_FLAG, &csv, 0, 0, "print CSV"},
    };
    const cli_command command = {
        "eval",
        "",
        0,
        "Quantises K and V of real layers and compares causal attention with the unquantised one: relMSE per vector,\n"
        "KL(p, p^) in nats, agreement of the heaviest key, and |o - o^|^2 / |o|^2 of the output, as means over "
        "queries.\n"
        "Files are .npy, float16 or float32, C order; several layers are averaged.",
        CLI_COUNT(options),
        options};
    cli_parse(&command, argc, argv, NULL);
    table_style style = table_style_of(json, csv);
    plot_check(plot);
    cli_check(tq_device_find(device_name, &device));
    layer *layers = read_layers(&q, &k, &v);
    const int head_dim = layers[0].k.head_dim, n_layers = q.n;
    format_spec *formats = NULL;
    int n = asked.n;
    if (n) {
        formats = cli_alloc((size_t)n, sizeof *formats);
        for (int i = 0; i < n; i++)
            formats[i] = format_spec_parse(asked.at[i], head_dim);
    } else if (!(n = format_spec_all(head_dim, &formats))) {
        tq_format_info info;
        cli_check(tq_format_find("f16", head_dim, &info)); /* its sentence tells the legal head_dims */
    }
    row *rows = cli_alloc((size_t)n, sizeof *rows);
    for (int i = 0; i < n; i++) {
        rows[i].format = formats[i].name;
        rows[i].bytes_per_value = (formats[i].k.bytes_per_value + formats[i].v.bytes_per_value) / 2;
    }
    pool *p = pool_create(threads < POOL_MAX_THREADS ? threads : POOL_MAX_THREADS);
    for (int i = 0; i < n_layers; i++) {
        evaluate(device, p, &layers[i], n_layers, formats, n, n_sink, rows);
        npy_free(&layers[i].q);
        npy_free(&layers[i].k);
        npy_free(&layers[i].v);
    }
    pool_destroy(p);
    qsort(rows, (size_t)n, sizeof *rows, by_kl);
    for (int i = 0; i < n; i++)
        rows[i].rank = i + 1;
    const table t = {columns, CLI_COUNT(columns), rows, n, sizeof *rows};
    cJSON *context = cJSON_CreateObject();
    cJSON_AddNumberToObject(context, "layers", n_layers);
    cJSON_AddNumberToObject(context, "head_dim", head_dim);
    cJSON_AddNumberToObject(context, "sinks", n_sink);
    table_print(&t, style, context, stdout);
    if (plot)
        draw(plot, rows, n, n_layers);
    for (int i = 0; i < n && !asked.n; i++)
        free((char *)formats[i].name);
    free(rows);
    free(formats);
    free(layers);
    return 0;
}
