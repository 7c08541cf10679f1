/* ab.c: `tq ab A B`: two kernels or two pairs of formats, paired: every repetition runs both, in random order. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "harness.h"
#include "table.h"

enum { LEAST_SAMPLES = 15, MOST_SAMPLES = 301 };

typedef struct row {
    const char *a, *b, *variant_a, *variant_b, *op, *verdict;
    int head_dim, gqa, n_kv, n_kv_heads, threads, samples, seed;
    double ratio, low, high, a_ns, b_ns;
} row;

static const column columns[] = {
    {"a", "A", COLUMN_TEXT, offsetof(row, a), 0},
    {"b", "B", COLUMN_TEXT, offsetof(row, b), 0},
    {"variant_a", NULL, COLUMN_TEXT, offsetof(row, variant_a), 0},
    {"variant_b", NULL, COLUMN_TEXT, offsetof(row, variant_b), 0},
    {"op", NULL, COLUMN_TEXT, offsetof(row, op), 0},
    {"head_dim", NULL, COLUMN_INT, offsetof(row, head_dim), 0},
    {"gqa", NULL, COLUMN_INT, offsetof(row, gqa), 0},
    {"n_kv", "n_kv", COLUMN_INT, offsetof(row, n_kv), 0},
    {"n_kv_heads", "KV heads", COLUMN_INT, offsetof(row, n_kv_heads), 0},
    {"threads", "threads", COLUMN_INT, offsetof(row, threads), 0},
    {"a_median_ns", "A ns", COLUMN_REAL, offsetof(row, a_ns), 0},
    {"b_median_ns", "B ns", COLUMN_REAL, offsetof(row, b_ns), 0},
    {"ratio", "B/A", COLUMN_REAL, offsetof(row, ratio), 3},
    {"low", "low", COLUMN_REAL, offsetof(row, low), 3},
    {"high", "high", COLUMN_REAL, offsetof(row, high), 3},
    {"samples", "samples", COLUMN_INT, offsetof(row, samples), 0},
    {"seed", "seed", COLUMN_INT, offsetof(row, seed), 0},
    {"verdict", "verdict", COLUMN_TEXT, offsetof(row, verdict), 0},
};

/* Does the build have the layout? */
static bool has_layout(const char *layout) {
    tq_variant_info variant;
    for (int i = 0; i < tq_variant_count(); i++) {
        cli_check(tq_variant_at(i, &variant));
        if (strcmp(variant.layout, layout) == 0)
            return true;
    }
    return false;
}

/* One operand: a variant name, or k/v formats, or k/v/layout, on top of the axes. */
static contract parse_operand(const char *which, const char *text, contract base, const char **pin) {
    char k[64], v[64];
    int end = 0;
    if (sscanf(text, "%63[^/]/%63[^/]%n", k, v, &end) == 2 && (text[end] == '\0' || has_layout(text + end + 1))) {
        tq_format_info format;
        if (text[end])
            base.layout = text + end + 1;
        *pin = NULL;
        if (base.op != TQ_OP_DECODE && base.op != TQ_OP_PREFILL)
            cli_fail("%s %s: pairs of formats are for --op decode and prefill; name a variant", which, text);
        cli_check(tq_format_find(k, base.head_dim, &format));
        base.k = format.name;
        cli_check(tq_format_find(v, tq_v_head_dim(base.head_dim), &format));
        base.v = format.name;
        return base;
    }
    tq_variant_info variant;
    for (int i = 0; i < tq_variant_count(); i++) {
        cli_check(tq_variant_at(i, &variant));
        if (strcmp(variant.name, text) == 0) {
            *pin = variant.name;
            return contract_of(&variant);
        }
    }
    cli_fail("%s %s: expected a pair of formats such as turbo3/turbo3, perhaps with a layout of this build as in "
             "turbo3/turbo3/tile_cpu, or the name of a variant",
             which, text);
}

static const tq_device *device_of(const char *name, const char *pin) {
    const tq_device *device;
    tq_variant_info variant;
    for (int i = 0; !name && pin && i < tq_variant_count(); i++) {
        cli_check(tq_variant_at(i, &variant));
        if (strcmp(variant.name, pin) == 0)
            name = variant.device;
    }
    cli_check(tq_device_find(name ? name : "cpu", &device));
    return device;
}

/* B/A above 1 means that A takes less time. */
static char *verdict_of(interval i, double ratio) {
    bool none = (i.low <= 1 && i.high >= 1) || (i.low >= 0.99 && i.high <= 1.01);
    if (none)
        return cli_format("no difference");
    return ratio > 1 ? cli_format("A is faster by %.1f %%", 100 * (ratio - 1))
                     : cli_format("B is faster by %.1f %%", 100 * (1 / ratio - 1));
}

int command_ab(int argc, char **argv) {
    contract base = {.head_dim = 128, .gqa = 4, .layout = "rows"};
    const char *device_name = NULL, *op = "decode", *operands[2], *pin[2];
    int n_kv = 0, n_kv_heads = 0, threads = 1, samples = 0, seed = 1;
    double budget = 3;
    bool json = false;
    const cli_option options[] = {
        {"op", "OP", CLI_TEXT, &op, 0, 0, "of format pairs: decode"},
        {"head-dim", "N", CLI_INT, &base.head_dim, 1, 1 << 16, "of format pairs (128)"},
        {"gqa", "N", CLI_INT, &base.gqa, 1, 1 << 16, "of format pairs (4)"},
        {"layout", "NAME", CLI_TEXT, &base.layout, 0, 0, "of format pairs that name none (rows)"},
        {"device", "NAME", CLI_TEXT, &device_name, 0, 0, "device (the one that runs A, or cpu)"},
        {"n-kv", "N", CLI_INT, &n_kv, 1, HARNESS_MAX_N_KV, CONTRACT_N_KV_HELP},
        {"kv-heads", "N", CLI_INT, &n_kv_heads, 1, HARNESS_MAX_KV_HEADS, CONTRACT_KV_HEADS_HELP},
        {"threads", "N", CLI_INT, &threads, 1, POOL_MAX_THREADS, "threads that launch (1)"},
        {"samples", "N", CLI_INT, &samples, 6, 1000, "repetitions (as many as the budget allows, 15 to 301)"},
        {"budget", "SECONDS", CLI_REAL, &budget, 0.001, 1e6, "unless --samples is given (3)"},
        {"seed", "N", CLI_INT, &seed, 0, 1 << 30, "of the data and of the order (1)"},
        {"json", NULL, CLI_FLAG, &json, 0, 0, "print JSON"},
    };
    const cli_command command = {
        "ab",
        "A B",
        2,
        "Compares two variants, or two pairs of formats such as turbo3/turbo3/tile_cpu and f16/f16. Every\n"
        "repetition runs both in random order on cold caches; the ratio is the median over the\n"
        "repetitions of B's time / A's time, with its 95 % confidence interval.",
        CLI_COUNT(options),
        options};
    cli_parse(&command, argc, argv, operands);
    cli_check(tq_op_parse(op, &base.op));
    contract a = parse_operand("A", operands[0], base, &pin[0]), b = parse_operand("B", operands[1], base, &pin[1]);
    if (a.op != b.op || a.head_dim != b.head_dim || a.gqa != b.gqa) {
        cli_fail("A and B do not do the same work: head_dim %d and %d, gqa %d and %d, %s and %s", a.head_dim,
                 b.head_dim, a.gqa, b.gqa, tq_op_name(a.op), tq_op_name(b.op));
    }
    const tq_device *device = device_of(device_name, pin[0]);
    contract_sizes(device, &n_kv, &n_kv_heads);
    pool *p = pool_create(threads);
    harness *h = harness_create(&(harness_options){device, p, n_kv, n_kv_heads, (uint64_t)seed, 0, NULL, false});
    harness_add(h, &a, pin[0]);
    harness_add(h, &b, pin[1]);
    if (samples)
        harness_run(h, 0, samples, samples);
    else
        harness_run(h, budget, LEAST_SAMPLES, MOST_SAMPLES);
    const int n = harness_rounds(h, 0);
    const double *a_ns = harness_samples(h, 0), *b_ns = harness_samples(h, 1);
    double *ratios = cli_alloc((size_t)n, sizeof *ratios);
    for (int i = 0; i < n; i++)
        ratios[i] = b_ns[i] / a_ns[i];
    double ratio = stats_median(ratios, n);
    interval range = stats_median_interval(ratios, n);
    char *verdict = verdict_of(range, ratio);
    row r = {.a = operands[0],
             .b = operands[1],
             .variant_a = harness_variant(h, 0),
             .variant_b = harness_variant(h, 1),
             .op = tq_op_name(a.op),
             .verdict = verdict,
             .head_dim = a.head_dim,
             .gqa = a.gqa,
             .n_kv = harness_tokens(h, 0),
             .n_kv_heads = n_kv_heads,
             .threads = threads,
             .samples = n,
             .seed = seed,
             .ratio = ratio,
             .low = range.low,
             .high = range.high,
             .a_ns = stats_median(a_ns, n),
             .b_ns = stats_median(b_ns, n)};
    const table rows = {columns, CLI_COUNT(columns), &r, 1, sizeof r};
    if (!json)
        printf("A  %s\nB  %s\n", r.variant_a, r.variant_b);
    table_print(&rows, json ? TABLE_JSON : TABLE_PLAIN, NULL, stdout);
    free(verdict);
    free(ratios);
    harness_destroy(h);
    pool_destroy(p);
    return 0;
}
