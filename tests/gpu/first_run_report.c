/* first_run_report.c: report.md, and its pictures as SVG. */
#include "first_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- pictures --------------------------------------------------------------------------------------------------- */

enum { WIDTH = 820, HEIGHT = 420, LEFT = 60, RIGHT = 210, TOP = 40, BOTTOM = 50, MAX_SERIES = 16 };

static const char *const colours[] = {"#1f77b4", "#d62728", "#2ca02c", "#ff7f0e",
                                      "#9467bd", "#8c564b", "#e377c2", "#17becf"};

typedef struct picture {
    FILE *file;
    double x_low, x_high, y_high;
} picture;

static double x_of(const picture *p, double n_kv) {
    double share = p->x_high > p->x_low ? log2(n_kv / p->x_low) / log2(p->x_high / p->x_low) : 0;
    return LEFT + share * (WIDTH - LEFT - RIGHT);
}

static double y_of(const picture *p, double y) {
    return HEIGHT - BOTTOM - y / p->y_high * (HEIGHT - TOP - BOTTOM);
}

static void draw_frame(const picture *p, const char *title, const char *y_name) {
    FILE *f = p->file;
    fprintf(f,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='sans-serif' font-size='12'>\n"
            "<rect width='100%%' height='100%%' fill='white'/>\n<text x='%d' y='22' font-size='15'>%s</text>\n",
            WIDTH, HEIGHT, LEFT, title);
    double step = pow(10, floor(log10(p->y_high / 2)));
    step *= p->y_high / step > 10 ? 2 : p->y_high / step < 4 ? 0.5 : 1;
    for (double y = 0; y <= p->y_high * 1.001; y += step)
        fprintf(f,
                "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' stroke='#dddddd'/>"
                "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n",
                LEFT, WIDTH - RIGHT, y_of(p, y), y_of(p, y), LEFT - 6, y_of(p, y) + 4, y);
    for (double x = p->x_low; x <= p->x_high * 1.001; x *= 2) {
        int kilo = x >= 1024;
        fprintf(f,
                "<line x1='%.1f' x2='%.1f' y1='%d' y2='%d' stroke='#eeeeee'/>"
                "<text x='%.1f' y='%d' text-anchor='middle'>%g%s</text>\n",
                x_of(p, x), x_of(p, x), TOP, HEIGHT - BOTTOM, x_of(p, x), HEIGHT - BOTTOM + 18, kilo ? x / 1024 : x,
                kilo ? " K" : "");
    }
    fprintf(f,
            "<text x='%d' y='%d' text-anchor='middle'>keys in the cache</text>\n"
            "<text transform='translate(16,%d) rotate(-90)' text-anchor='middle'>%s</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, HEIGHT / 2, y_name);
}

/* Rows that belong together: one pair of formats in one layout. */
static bool same_series(const text_table *t, int a, int b) {
    return strcmp(table_text(t, a, "k"), table_text(t, b, "k")) == 0 &&
           strcmp(table_text(t, a, "v"), table_text(t, b, "v")) == 0 &&
           strcmp(table_text(t, a, "layout"), table_text(t, b, "layout")) == 0;
}

static int first_of_series(const text_table *t, int row) {
    int first = 0;
    while (!same_series(t, first, row))
        first++;
    return first;
}

typedef double (*value_of)(const text_table *t, int row);

static double speedup_of(const text_table *t, int row) {
    return table_number(t, row, "speedup");
}

/* Bytes per nanosecond are GB/s. */
static double bandwidth_of(const text_table *t, int row) {
    return table_number(t, row, "cache_bytes") / table_number(t, row, "median_ns");
}

static void draw(const first_run *run, const text_table *t, const char *name, const char *title, const char *y_name,
                 value_of value) {
    char *path = cli_format("%s/%s", run->directory, name);
    picture p = {fopen(path, "w"), INFINITY, 0, 0};
    int n_series = 0;
    if (!p.file)
        cli_fail("%s: cannot be written", path);
    for (int i = 0; i < t->n_rows; i++) {
        double y = value(t, i);
        p.x_low = fmin(p.x_low, table_number(t, i, "n_kv"));
        p.x_high = fmax(p.x_high, table_number(t, i, "n_kv"));
        p.y_high = isfinite(y) ? fmax(p.y_high, 1.1 * y) : p.y_high;
    }
    p.y_high = p.y_high > 0 ? p.y_high : 1;
    draw_frame(&p, title, y_name);
    for (int first = 0; first < t->n_rows && n_series < MAX_SERIES; first++) {
        if (first_of_series(t, first) != first)
            continue;
        const char *colour = colours[n_series % CLI_COUNT(colours)];
        const char *dashes = n_series >= CLI_COUNT(colours) ? " stroke-dasharray='5 3'" : "";
        fprintf(p.file, "<polyline fill='none' stroke='%s' stroke-width='2'%s points='", colour, dashes);
        for (int i = first; i < t->n_rows; i++)
            if (first_of_series(t, i) == first && isfinite(value(t, i)))
                fprintf(p.file, "%.1f,%.1f ", x_of(&p, table_number(t, i, "n_kv")), y_of(&p, value(t, i)));
        fprintf(p.file, "'/>\n<line x1='%d' x2='%d' y1='%d' y2='%d' stroke='%s' stroke-width='2'%s/>",
                WIDTH - RIGHT + 12, WIDTH - RIGHT + 36, TOP + 16 * n_series, TOP + 16 * n_series, colour, dashes);
        fprintf(p.file, "<text x='%d' y='%d'>%s/%s %s</text>\n", WIDTH - RIGHT + 42, TOP + 4 + 16 * n_series,
                table_text(t, first, "k"), table_text(t, first, "v"), table_text(t, first, "layout"));
        n_series++;
    }
    fprintf(p.file, "</svg>\n");
    fclose(p.file);
    free(path);
}

/* ---- sections --------------------------------------------------------------------------------------------------- */

static double micro_rate(const text_table *micro, const char *name) {
    for (int i = 0; i < micro->n_rows; i++)
        if (strcmp(table_text(micro, i, "name"), name) == 0)
            return table_number(micro, i, "per_ns");
    return NAN;
}

static void write_micro(FILE *out, const text_table *micro) {
    double fma = micro_rate(micro, "fma");
    fprintf(out,
            "## Microbenchmarks\n\nOperations of one lane (matrix products: of one warp) per nanosecond, on the whole "
            "device and per multiprocessor, and as a multiple of the rate of fma.\n\n"
            "| operation | per ns | per ns and multiprocessor | fma = 1 | spread |\n|---|---|---|---|---|\n");
    for (int i = 0; i < micro->n_rows; i++)
        if (strcmp(table_text(micro, i, "unit"), "operations") == 0)
            fprintf(out, "| %s: %s | %.1f | %.3f | %.3f | %.3f |\n", table_text(micro, i, "name"),
                    table_text(micro, i, "what"), table_number(micro, i, "per_ns"),
                    table_number(micro, i, "per_ns_multiprocessor"), table_number(micro, i, "per_ns") / fma,
                    table_number(micro, i, "spread"));
    fprintf(out, "\n| memory | GB/s | spread |\n|---|---|---|\n");
    for (int i = 0; i < micro->n_rows; i++)
        if (strcmp(table_text(micro, i, "unit"), "bytes") == 0)
            fprintf(out, "| %s | %.0f | %.3f |\n", table_text(micro, i, "what"), table_number(micro, i, "per_ns"),
                    table_number(micro, i, "spread"));
}

/* How many variants could have been verified. */
static int count_variants(const first_run *run) {
    tq_variant_info v;
    int n = 0;
    for (int i = 0; i < tq_variant_count(); i++) {
        cli_check(tq_variant_at(i, &v));
        n += v.op != TQ_OP_PREFILL && tq_device_runs(run->device, v.target);
    }
    return n;
}

/* How many were wrong. */
static int write_verify(FILE *out, const text_table *verified, int n_variants) {
    int wrong = 0;
    double worst = 0;
    for (int i = 0; i < verified->n_rows; i++) {
        double error = table_number(verified, i, "error");
        if (error <= 1)
            worst = fmax(worst, error);
        else
            wrong++;
    }
    fprintf(
        out,
        "\n## Correctness\n\n%d variants against the double-precision reference at awkward sizes; errors in units of "
        "what a correct kernel may show. %d are right, largest error %.3f; %d are wrong. %d of %d were not reached.\n",
        verified->n_rows, verified->n_rows - wrong, worst, wrong, n_variants - verified->n_rows, n_variants);
    if (wrong)
        fprintf(out, "\n| wrong | error | |\n|---|---|---|\n");
    for (int i = 0; i < verified->n_rows; i++)
        if (!(table_number(verified, i, "error") <= 1))
            fprintf(out, "| %s | %s | %s |\n", table_text(verified, i, "variant"), table_text(verified, i, "error"),
                    table_text(verified, i, "seconds"));
    return wrong;
}

static bool is_fastest(const text_table *t, int row) {
    for (int i = 0; i < t->n_rows; i++)
        if (same_series(t, i, row) && table_number(t, i, "gqa") == table_number(t, row, "gqa") &&
            table_number(t, i, "n_kv") == table_number(t, row, "n_kv") &&
            table_number(t, i, "median_ns") < table_number(t, row, "median_ns"))
            return false;
    return true;
}

static void write_tune(FILE *out, const text_table *tuned, const char *tuning_file, double read) {
    const char *slash = strrchr(tuning_file, '/');
    fprintf(out,
            "\n## Tuning\n\nThe fastest of each contract at three shapes, one sequence; all rows are in %s.\n\n"
            "| GQA | KV heads | keys | K / V | layout | variant | µs | spread | GB/s | of reading |\n"
            "|---|---|---|---|---|---|---|---|---|---|\n",
            slash ? slash + 1 : tuning_file);
    for (int i = 0; i < tuned->n_rows; i++)
        if (is_fastest(tuned, i))
            fprintf(out, "| %s | %s | %s | %s / %s | %s | %s | %.1f | %.3f | %.0f | %.0f %% |\n",
                    table_text(tuned, i, "gqa"), table_text(tuned, i, "n_kv_heads"), table_text(tuned, i, "n_kv"),
                    table_text(tuned, i, "k"), table_text(tuned, i, "v"), table_text(tuned, i, "layout"),
                    table_text(tuned, i, "variant"), table_number(tuned, i, "median_ns") * 1e-3,
                    table_number(tuned, i, "spread"), bandwidth_of(tuned, i), 100 * bandwidth_of(tuned, i) / read);
}

static void write_depth(FILE *out, const text_table *depth, double read) {
    fprintf(out,
            "\n## Decode against f16\n\nGQA 4, one sequence, cold caches; how many times faster than the fastest f16 "
            "kernel of this build, with a 95 %% interval.\n\n"
            "| keys | K / V | layout | µs | times f16 | interval | GB/s | of reading |\n"
            "|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < depth->n_rows; i++) {
        char interval[48] = ""; /* too few rounds give none */
        if (isfinite(table_number(depth, i, "low")))
            snprintf(interval, sizeof interval, "%.2f to %.2f", table_number(depth, i, "low"),
                     table_number(depth, i, "high"));
        fprintf(out, "| %s | %s / %s | %s | %.1f | %.2f | %s | %.0f | %.0f %% |\n", table_text(depth, i, "n_kv"),
                table_text(depth, i, "k"), table_text(depth, i, "v"), table_text(depth, i, "layout"),
                table_number(depth, i, "median_ns") * 1e-3, speedup_of(depth, i), interval, bandwidth_of(depth, i),
                100 * bandwidth_of(depth, i) / read);
    }
    fprintf(out, "\n![times f16](speedup.svg)\n\n![bandwidth](bandwidth.svg)\n");
}

void first_run_report(const first_run *run) {
    text_table micro = table_read(run, "micro.tsv"), verified = table_read(run, "verify.tsv");
    text_table tuned = table_read(run, "tune.tsv"), depth = table_read(run, "depth.tsv");
    text_table notes = table_read(run, "notes.tsv");
    char *path = cli_format("%s/report.md", run->directory), *tuning_file = first_run_tuning_file(run);
    FILE *out = fopen(path, "w");
    tq_device_info info;
    if (!out)
        cli_fail("%s: cannot be written", path);
    cli_check(tq_device_describe(run->device, &info));
    fprintf(out,
            "# First run on %s\n\n%s, features %s; %d multiprocessors, %d lanes per warp, %zu KiB of shared memory per "
            "block, %.1f GiB of memory. libtq %s.\n\n",
            info.model, info.name, tq_device_features(run->device), info.multiprocessors, info.warp,
            info.shared_bytes / 1024, (double)info.memory_bytes / 0x1p30, tq_version_string());
    for (int i = 0; i < notes.n_rows; i++)
        fprintf(out, "* %s: %s\n", table_text(&notes, i, "what"), table_text(&notes, i, "text"));
    fprintf(out, "%s\n", run->tiny ? "\n**The SIMT executor counts operations: what follows are no times.**\n" : "");
    double read = fmax(micro_rate(&micro, "read"), micro_rate(&micro, "bulk"));
    write_micro(out, &micro);
    int wrong = write_verify(out, &verified, count_variants(run));
    write_tune(out, &tuned, tuning_file, read);
    write_depth(out, &depth, read);
    fclose(out);
    draw(run, &depth, "speedup.svg", "Decode, GQA 4: times faster than f16", "times f16", speedup_of);
    draw(run, &depth, "bandwidth.svg", "Decode, GQA 4: cache bytes per second", "GB/s", bandwidth_of);
    printf("%s\n%d variants, %d wrong\n", path, verified.n_rows, wrong);
    free(path);
    free(tuning_file);
    text_table *const tables[] = {&micro, &verified, &tuned, &depth, &notes};
    for (int i = 0; i < CLI_COUNT(tables); i++)
        table_free(tables[i]);
}
