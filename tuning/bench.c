/* bench.c: `tq bench`: time per key and KV head, beside our f16 kernel of the same shape and beside what this machine's
 * memory and multipliers allow, all measured in one run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "harness.h"
#include "internal.h"
#include "machine.h"
#include "memory.h"
#include "plot.h"
#include "table.h"

enum { LEAST_ROUNDS = 7, MOST_ROUNDS = 201 };

typedef struct row {
    const char *variant, *op, *k, *v, *layout, *scales, *device, *limit;
    int head_dim, gqa, bias_pairs, n_kv, n_kv_heads, threads, samples;
    double median_ns, ns_per_key_head, ns_per_value, ratio_f16, bytes_per_key_head;
    double madds_per_byte, gmadds_per_s; /* of K.q and P.V; NaN where they are no fixed number */
    double memory_floor, multiply_floor; /* ns per key and KV head */
    double read_fraction, mul_fraction, limit_fraction;
} row;

static const column columns[] = {
    {"op", "op", COLUMN_TEXT, offsetof(row, op), 0},
    {"head_dim", "head_dim", COLUMN_INT, offsetof(row, head_dim), 0},
    {"gqa", "gqa", COLUMN_INT, offsetof(row, gqa), 0},
    {"k", "k", COLUMN_TEXT, offsetof(row, k), 0},
    {"v", "v", COLUMN_TEXT, offsetof(row, v), 0},
    {"layout", NULL, COLUMN_TEXT, offsetof(row, layout), 0},
    {"scales", "scales", COLUMN_TEXT, offsetof(row, scales), 0},
    {"bias_pairs", "bias", COLUMN_INT, offsetof(row, bias_pairs), 0},
    {"n_kv", "n_kv", COLUMN_INT, offsetof(row, n_kv), 0},
    {"n_kv_heads", NULL, COLUMN_INT, offsetof(row, n_kv_heads), 0},
    {"threads", NULL, COLUMN_INT, offsetof(row, threads), 0},
    {"device", NULL, COLUMN_TEXT, offsetof(row, device), 0},
    {"median_ns", "median ns", COLUMN_REAL, offsetof(row, median_ns), 0},
    {"ns_per_key_head", "ns/key/head", COLUMN_REAL, offsetof(row, ns_per_key_head), 2},
    {"ns_per_value", "ns/value", COLUMN_REAL, offsetof(row, ns_per_value), 3},
    {"ratio_f16", "x f16", COLUMN_REAL, offsetof(row, ratio_f16), 2},
    {"bytes_per_key_head", "B/key/head", COLUMN_REAL, offsetof(row, bytes_per_key_head), 0},
    {"madds_per_byte", NULL, COLUMN_REAL, offsetof(row, madds_per_byte), 2},
    {"gmadds_per_s", NULL, COLUMN_REAL, offsetof(row, gmadds_per_s), 1},
    {"read_fraction", "of read", COLUMN_REAL, offsetof(row, read_fraction), 2},
    {"mul_fraction", "of mul", COLUMN_REAL, offsetof(row, mul_fraction), 2},
    {"limit", "limit", COLUMN_TEXT, offsetof(row, limit), 0},
    {"limit_fraction", "of limit", COLUMN_REAL, offsetof(row, limit_fraction), 2},
    {"samples", NULL, COLUMN_INT, offsetof(row, samples), 0},
    {"variant", "variant", COLUMN_TEXT, offsetof(row, variant), 0},
};

typedef struct bench {
    harness_options harness;
    double seconds; /* per kernel */
    machine_limits limits;
    row *rows;
    int n_rows;
} bench;

/* Of one side, per key and KV head. The transform and the search of an encoder are no fixed number. */
static double multiply_adds(const contract *c, tq_side side, int n_kv) {
    return tq_attends(c->op) ? (double)contract_values(c, side) * c->gqa * harness_queries_per_key(c, n_kv) : NAN;
}

/* Of the widest vector unit that the variant's target may use. NULL: unknown. */
static const multiply_rates *rates_of(const machine_limits *limits, const char *variant) {
    const tq_registry *registry;
    tq_variant_find(variant, &registry);
    for (int i = 0; i < limits->n_units; i++)
        if (tq_has_words(registry->needs, limits->multiply[i].needs))
            return &limits->multiply[i];
    return NULL;
}

/* Least time for them: prefill and f16 in f32, all others by numbers of 16 bits, which are one int16 product or two of
 * bytes. */
static double multiply_floor(const multiply_rates *rates, const contract *c, tq_side side, int n_kv) {
    const double madds = multiply_adds(c, side, n_kv);
    tq_format_info info;
    if (isnan(madds) || !rates)
        return NAN;
    cli_check(tq_format_find(side == TQ_SIDE_K ? c->k : c->v, contract_values(c, side), &info));
    const bool floats = info.bits == 16 || c->op == TQ_OP_PREFILL;
    return 1e9 * madds / (floats ? rates->f32.madds : fmax(rates->int16.madds, rates->int8.madds / 2));
}

static row measured_row(const bench *b, const harness *h, int which, const contract *c, int yardstick) {
    const int rounds = harness_rounds(h, which);
    const double *ns = harness_samples(h, which), *f16_ns = yardstick < 0 ? NULL : harness_samples(h, yardstick);
    double *ratios = cli_alloc((size_t)rounds, sizeof *ratios);
    for (int i = 0; i < rounds; i++)
        ratios[i] = f16_ns ? f16_ns[i] / ns[i] : NAN;
    double median = stats_median(ns, rounds), keys = (double)harness_tokens(h, which) * b->harness.n_kv_heads;
    row r = {.variant = cli_format("%s", harness_variant(h, which)),
             .op = tq_op_name(c->op),
             .k = c->k,
             .v = c->v,
             .layout = c->layout,
             .scales = tq_scale_mode_name(c->mode),
             .bias_pairs = c->bias_pairs,
             .device = tq_device_name(b->harness.device),
             .head_dim = c->head_dim,
             .gqa = c->gqa,
             .n_kv = harness_tokens(h, which),
             .n_kv_heads = b->harness.n_kv_heads,
             .threads = pool_threads(b->harness.pool),
             .samples = rounds,
             .median_ns = median,
             .ns_per_key_head = median / keys,
             .ns_per_value = c->gqa ? NAN : median / keys / c->head_dim,
             .ratio_f16 = stats_median(ratios, rounds),
             .bytes_per_key_head = harness_cache_bytes(h, which) / keys};
    free(ratios);
    /* An append writes the cache and reads values that were just computed: neither limit says much about it. */
    r.memory_floor = c->op == TQ_OP_APPEND ? NAN : 1e9 * r.bytes_per_key_head / b->limits.read_bytes;
    const multiply_rates *rates = rates_of(&b->limits, r.variant);
    r.multiply_floor = multiply_floor(rates, c, TQ_SIDE_K, r.n_kv) + multiply_floor(rates, c, TQ_SIDE_V, r.n_kv);
    const double madds = multiply_adds(c, TQ_SIDE_K, r.n_kv) + multiply_adds(c, TQ_SIDE_V, r.n_kv);
    r.madds_per_byte = madds / r.bytes_per_key_head;
    r.gmadds_per_s = madds / r.ns_per_key_head;
    r.read_fraction = r.memory_floor / r.ns_per_key_head;
    r.mul_fraction = r.multiply_floor / r.ns_per_key_head;
    r.limit_fraction = fmax(r.read_fraction, r.mul_fraction);
    r.limit = isnan(r.limit_fraction) ? NULL : r.limit_fraction == r.read_fraction ? "memory" : "multiply";
    return r;
}

/* Contracts of one shape run against each other; f16 joins them if it was not asked for, and then comes last. Builds for
 * other devices than the CPU may lack it, and it has no tiles to repack. */
static void bench_shape(bench *b, const contract *contracts, int n) {
    harness *h = harness_create(&b->harness);
    contract f16 = contracts[0];
    f16.k = f16.k ? "f16" : NULL;
    f16.v = f16.v ? "f16" : NULL;
    f16.layout = "rows";
    f16.mode = TQ_SCALE_DEFAULT;
    f16.bias_pairs = 0;
    int yardstick = n;
    for (int i = 0; i < n; i++) {
        harness_add(h, &contracts[i], NULL);
        yardstick = contract_equal(&contracts[i], &f16) ? i : yardstick;
    }
    const bool may_lack = !memory_is_cpu(b->harness.device) || f16.op == TQ_OP_REPACK;
    int without = yardstick == n && may_lack && !harness_can(h, &f16);
    int total = yardstick == n && !without ? n + 1 : n;
    if (total > n)
        harness_add(h, &f16, NULL);
    if (without)
        yardstick = -1;
    fprintf(stderr, "timing %d kernel%s, %s %s\n", total, total == 1 ? "" : "s",
            without ? "without ratios: there is no" : "the yardstick is", contract_text(&f16));
    harness_run(h, b->seconds * total, LEAST_ROUNDS, MOST_ROUNDS);
    b->rows = realloc(b->rows, (size_t)(b->n_rows + total) * sizeof *b->rows);
    if (!b->rows)
        cli_fail("out of memory: %d rows", b->n_rows + total);
    for (int i = 0; i < total; i++)
        b->rows[b->n_rows++] = measured_row(b, h, i, i < n ? &contracts[i] : &f16, yardstick);
    harness_destroy(h);
}

static char *label_of(const row *r, const char *gqa) {
    const char *pair = r->k && r->v && strcmp(r->k, r->v) != 0 ? "/" : "", *v = !r->k || *pair ? r->v : "";
    bool rows = strcmp(r->layout, "rows") == 0;
    return cli_format("%s%s%s d%d%s%s%s", r->k ? r->k : "", pair, v, r->head_dim, gqa, rows ? "" : " ",
                      rows ? "" : r->layout);
}

static void draw_roofline(const bench *b, const char *file, const char *title) {
    const machine_limits *limits = &b->limits;
    const multiply_rates *widest = &limits->multiply[0];
    const struct {
        const char *name;
        multiply_rate rate;
    } all[] = {{"int8", widest->int8}, {"int16", widest->int16}, {"f32", widest->f32}};
    plot_roof roofs[CLI_COUNT(all)];
    int n_roofs = 0;
    for (int i = 0; i < CLI_COUNT(all); i++) {
        const multiply_rate *rate = &all[i].rate;
        roofs[n_roofs++] = (plot_roof){cli_format("%s: %s", all[i].name, rate->instructions), rate->madds * 1e-9};
    }
    plot_point *points = cli_alloc((size_t)b->n_rows, sizeof *points);
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];
        char gqa[16];
        snprintf(gqa, sizeof gqa, " g%d", r->gqa);
        points[i] = (plot_point){label_of(r, gqa), r->madds_per_byte, r->gmadds_per_s};
    }
    plot_roofline(file, title, limits->read_bytes * 1e-9, roofs, n_roofs, points, b->n_rows);
    for (int i = 0; i < n_roofs; i++)
        free((char *)roofs[i].label);
    for (int i = 0; i < b->n_rows; i++)
        free((char *)points[i].label);
    free(points);
}

static void draw_bars(const bench *b, const char *file, const char *title) {
    plot_bar *bars = cli_alloc((size_t)b->n_rows, sizeof *bars);
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];
        bars[i] = (plot_bar){label_of(r, ""), r->ns_per_key_head, r->memory_floor};
    }
    plot_bars(file, title, "ns per key and KV head", bars, b->n_rows);
    for (int i = 0; i < b->n_rows; i++)
        free((char *)bars[i].label);
    free(bars);
}

/* A roofline where there are both axes of one. */
static void draw(const bench *b, const char *file) {
    const row *first = &b->rows[0];
    char *title =
        cli_format("%s, %d keys, %d KV heads, %d thread%s, cold caches: %s", first->op, first->n_kv, first->n_kv_heads,
                   first->threads, first->threads == 1 ? "" : "s", tq_device_model(b->harness.device));
    bool roofline = !isnan(first->madds_per_byte) && b->limits.n_units;
    (roofline ? draw_roofline : draw_bars)(b, file, title);
    free(title);
}

static void print_rows(const bench *b, table_style style) {
    const table t = {columns, CLI_COUNT(columns), b->rows, b->n_rows, sizeof *b->rows};
    const double read = b->limits.read_bytes * 1e-9;
    const int n_units = b->limits.n_units;
    if (style == TABLE_PLAIN && !memory_is_cpu(b->harness.device) && !isnan(read))
        printf("This device: fills %.1f GB/s\n", read);
    if (style == TABLE_PLAIN && memory_is_cpu(b->harness.device)) {
        printf("This machine, %d thread%s: reads %.1f GB/s; G multiply-adds/s:\n", pool_threads(b->harness.pool),
               pool_threads(b->harness.pool) == 1 ? "" : "s", read);
        for (const multiply_rates *r = b->limits.multiply; r < b->limits.multiply + n_units; r++)
            printf("  f32 %3.0f (%s), int16 %3.0f (%s), int8 %3.0f (%s)\n", r->f32.madds * 1e-9, r->f32.instructions,
                   r->int16.madds * 1e-9, r->int16.instructions, r->int8.madds * 1e-9, r->int8.instructions);
    }
    cJSON *context = cJSON_CreateObject(), *limits = cJSON_AddObjectToObject(context, "limits");
    json_real(limits, "read_gb_per_s", read);
    json_real(limits, "f32_gmadd_per_s", n_units ? b->limits.multiply->f32.madds * 1e-9 : NAN);
    json_real(limits, "int16_gmadd_per_s", n_units ? b->limits.multiply->int16.madds * 1e-9 : NAN);
    json_real(limits, "int8_gmadd_per_s", n_units ? b->limits.multiply->int8.madds * 1e-9 : NAN);
    cJSON_AddNumberToObject(context, "seed", (double)b->harness.seed);
    cJSON_AddBoolToObject(context, "interleaved", b->harness.interleaved);
    table_print(&t, style, context, stdout);
}

int command_bench(int argc, char **argv) {
    contract_axes axes = CONTRACT_AXES_INIT;
    axes.head_dims = cli_one_int(128);
    axes.gqas = cli_one_int(4);
    int n_kv = 0, n_kv_heads = 0, threads = 1, seed = 1;
    double budget = 0.5;
    bool interleaved = false, json = false, csv = false;
    const char *plot = NULL;
    const cli_option options[] = {
        CONTRACT_OPTIONS(axes),
        CONTRACT_TIMING_OPTIONS(axes),
        {"n-kv", "N", CLI_INT, &n_kv, 1, HARNESS_MAX_N_KV,
         CONTRACT_N_KV_HELP "; append and dequantise take 64 at a time"},
        {"kv-heads", "N", CLI_INT, &n_kv_heads, 1, HARNESS_MAX_KV_HEADS, CONTRACT_KV_HEADS_HELP},
        {"threads", "N", CLI_INT, &threads, 1, POOL_MAX_THREADS, "threads that launch (1)"},
        {"budget", "SECONDS", CLI_REAL, &budget, 0.001, 1e6, "timing for each kernel (0.5)"},
        {"seed", "N", CLI_INT, &seed, 0, 1 << 30, "of the data and of the order (1)"},
        {"plot", "FILE", CLI_TEXT, &plot, 0, 0, "roofline (decode), else bars, as SVG"},
        {"interleaved", NULL, CLI_FLAG, &interleaved, 0, 0,
         "heads of a token beside each other, as llama.cpp has them"},
        {"json", NULL, CLI_FLAG, &json, 0, 0, "print JSON"},
        {"csv", NULL, CLI_FLAG, &csv, 0, 0, "print CSV"},
    };
    const cli_command command = {
        "bench",
        "",
        0,
        "Times kernels on cold caches beside f16 of the same shape, which always runs along, and measures read\n"
        "bandwidth and multiply rate in the same run. Default: head_dim 128, gqa 4, every format with itself.\n"
        "x f16: how many times faster than f16. of read, of mul: fraction of what memory and the multipliers of the\n"
        "kernel's target allow.",
        CLI_COUNT(options),
        options};
    cli_parse(&command, argc, argv, NULL);
    table_style style = table_style_of(json, csv);
    contract *contracts;
    int n = contract_list(&axes, &contracts);
    plot_check(plot);
    pool *p = pool_create(threads);
    contract_sizes(contract_device(&axes), &n_kv, &n_kv_heads);
    bench b = {.harness = {.device = contract_device(&axes),
                           .pool = p,
                           .n_kv = n_kv,
                           .n_kv_heads = n_kv_heads,
                           .seed = (uint64_t)seed,
                           .interleaved = interleaved},
               .seconds = budget};
    if (memory_is_cpu(b.harness.device))
        fprintf(stderr, "measuring this machine\n");
    b.limits = machine_measure(b.harness.device, p);
    for (int i = 0, end; i < n; i = end) {
        for (end = i; end < n && contract_same_shape(&contracts[i], &contracts[end]); end++) {
        }
        bench_shape(&b, contracts + i, end - i);
    }
    print_rows(&b, style);
    if (plot)
        draw(&b, plot);
    for (int i = 0; i < b.n_rows; i++)
        free((char *)b.rows[i].variant);
    free(b.rows);
    free(contracts);
    pool_destroy(p);
    return 0;
}
