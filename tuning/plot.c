#include "plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static bool gnuplot_installed(void) {
    const char *path = getenv("PATH");
    char *copy = cli_format("%s", path ? path : "");
    bool found = false;
    for (char *at = copy, *end; *at && !found; at = end) {
        end = at + strcspn(at, ":");
        char *program = cli_format("%.*s/gnuplot", (int)(end - at), at);
        found = access(program, X_OK) == 0;
        free(program);
        end += *end == ':';
    }
    free(copy);
    return found;
}

void plot_check(const char *file) {
    if (!file)
        return;
    size_t n = strlen(file);
    if (n < 5 || strcmp(file + n - 4, ".svg") != 0)
        cli_fail("--plot %s: expected a name that ends in .svg", file);
    cli_check_writable("plot", file);
    if (!gnuplot_installed())
        cli_fail("--plot %s: gnuplot draws it and is not installed (Debian: apt-get install gnuplot-nox)", file);
}

/* gnuplot writes aside; plot_close renames. */
typedef struct plot {
    const char *file;
    char *aside;
    FILE *script;
} plot;

static void print_quoted(FILE *script, const char *text) {
    fputc('"', script);
    for (; *text; text++) {
        fputs(strchr("\"\\", *text) ? "\\" : "", script);
        fputc(*text, script);
    }
    fputc('"', script);
}

static plot plot_open(const char *file, const char *title, int width, int height) {
    plot p = {file, cli_format("%s.aside-%ld", file, (long)getpid()), popen("gnuplot", "w")};
    if (!p.script)
        cli_fail("--plot %s: cannot start gnuplot: %s", file, strerror(errno));
    fprintf(p.script, "set terminal svg size %d,%d dynamic background 'white' font 'sans-serif,13'\nset output ", width,
            height);
    print_quoted(p.script, p.aside);
    fputs("\nset title ", p.script);
    print_quoted(p.script, title);
    fputs(" noenhanced\nset grid lc rgb '#dddddd'\nset border lc rgb '#555555'\n$data << END\n", p.script);
    return p;
}

static void plot_close(plot *p) {
    int status = pclose(p->script);
    if (status != 0 || rename(p->aside, p->file) != 0) {
        unlink(p->aside);
        cli_fail("--plot %s: gnuplot failed (status %d)", p->file, status);
    }
    free(p->aside);
    fprintf(stderr, "plot: %s\n", p->file);
}

void plot_bars(const char *file, const char *title, const char *value_name, const plot_bar *bars, int n) {
    if (!file)
        return;
    plot p = plot_open(file, title, 200 + 70 * (n < 6 ? 6 : n), 480);
    for (int i = 0; i < n; i++) {
        print_quoted(p.script, bars[i].label);
        fprintf(p.script, " %g %g\n", bars[i].value, bars[i].floor);
    }
    fputs("END\nset ylabel ", p.script);
    print_quoted(p.script, value_name);
    fputs(" noenhanced\nset yrange [0:*]\nset xtics rotate by -35 noenhanced nomirror\nset boxwidth 0.6\n"
          "set style fill solid 0.85 border\nset key outside top center horizontal\nset rmargin 12\n"
          "plot $data using 0:2:xtic(1) with boxes lc rgb '#4c78a8' title 'measured', \\\n"
          "     '' using 0:2:(sprintf('%.1f', $2)) with labels offset 0,0.6 notitle, \\\n"
          "     '' using ($0-0.36):3:(0.72):(0) with vectors nohead lw 3 lc rgb '#e45756' title 'memory floor'\n",
          p.script);
    plot_close(&p);
}

void plot_points(const char *file, const char *title, const char *x_name, const char *y_name, const plot_point *points,
                 int n) {
    if (!file)
        return;
    plot p = plot_open(file, title, 900, 600);
    bool left = false; /* labels of points on top of each other go to either side */
    for (int i = 0; i < n; i++) {
        left = i > 0 && !left && points[i].x == points[i - 1].x && points[i].y < 1.15 * points[i - 1].y;
        fprintf(p.script, "%g %g %d ", points[i].x, points[i].y, left);
        print_quoted(p.script, points[i].label);
        fputc('\n', p.script);
    }
    fputs("END\nset xlabel ", p.script);
    print_quoted(p.script, x_name);
    fputs("\nset ylabel ", p.script);
    print_quoted(p.script, y_name);
    fputs("\nset logscale y\nset format y '%g'\nset offsets graph 0.15, graph 0.2, 0, 0\nunset key\n"
          "plot $data using 1:2 with points pt 7 ps 0.7 lc rgb '#4c78a8', \\\n"
          "     '' using 1:($3 == 0 ? $2 : 1/0):4 with labels left offset 0.8,0 font ',9' noenhanced, \\\n"
          "     '' using 1:($3 == 1 ? $2 : 1/0):4 with labels right offset -0.8,0 font ',9' noenhanced\n",
          p.script);
    plot_close(&p);
}

/* ---- roofline --------------------------------------------------------------------------------------------------- */

enum { ROOF_WIDTH = 1000, ROOF_HEIGHT = 640 };

/* Where labels go, in pixels of a picture without margins: right of their points, and up as far as others are in the way. */
typedef struct label_box {
    double x, y, width;
} label_box;

enum { LABEL_HEIGHT = 13, LETTER_WIDTH = 6 };

static bool overlaps(const label_box *a, const label_box *b) {
    return a->x < b->x + b->width && b->x < a->x + a->width && fabs(a->y - b->y) < LABEL_HEIGHT;
}

static int by_height(const void *a, const void *b) {
    const plot_point *p = a, *q = b;
    return (p->y > q->y) - (p->y < q->y);
}

static label_box place_label(const label_box *others, int n_others, label_box box) {
    for (int i = 0; i < n_others; i++) {
        if (overlaps(&box, &others[i])) {
            box.y = others[i].y + LABEL_HEIGHT;
            i = -1; /* the new place may be another one's */
        }
    }
    return box;
}

void plot_roofline(const char *file, const char *title, double memory, const plot_roof *roofs, int n_roofs,
                   const plot_point *points, int n) {
    if (!file)
        return;
    plot_point *sorted = cli_alloc((size_t)n, sizeof *sorted);
    label_box *boxes = cli_alloc((size_t)n, sizeof *boxes);
    memcpy(sorted, points, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_height);
    double top = 0, left = INFINITY, right = 0, bottom = INFINITY;
    for (int i = 0; i < n; i++) {
        left = fmin(left, points[i].x);
        right = fmax(right, points[i].x);
        top = fmax(top, points[i].y);
        bottom = fmin(bottom, fmin(points[i].y, memory * points[i].x));
    }
    for (int i = 0; i < n_roofs; i++) {
        top = fmax(top, roofs[i].rate);
        right = fmax(right, roofs[i].rate / memory);
    }
    left /= 1.5, right *= 4, bottom /= 1.5, top *= 1.6;
    const double across = ROOF_WIDTH / log(right / left), up = ROOF_HEIGHT / log(top / bottom);
    plot p = plot_open(file, title, ROOF_WIDTH + 100, ROOF_HEIGHT + 90);
    for (int i = 0; i < n; i++) {
        const plot_point *at = &sorted[i];
        const label_box right_of = {across * log(at->x / left) + LETTER_WIDTH, up * log(at->y / bottom),
                                    LETTER_WIDTH * (double)strlen(at->label)};
        boxes[i] = place_label(boxes, i, right_of);
        fprintf(p.script, "%g %g %g %g ", at->x, at->y, left * exp(boxes[i].x / across), bottom * exp(boxes[i].y / up));
        print_quoted(p.script, at->label);
        fputc('\n', p.script);
    }
    double corner = n_roofs ? 0 : right; /* where the line of memory ends */
    fputs("END\n$roofs << END\n", p.script);
    for (int i = 0; i < n_roofs; i++) {
        fprintf(p.script, "%g %g %g ", roofs[i].rate / memory, right, roofs[i].rate);
        print_quoted(p.script, roofs[i].label);
        fputc('\n', p.script);
        corner = fmax(corner, roofs[i].rate / memory);
    }
    fprintf(
        p.script,
        "END\n$memory << END\n%g %g\n%g %g\nEND\nset xlabel 'multiply-adds per byte of cache'\n"
        "set ylabel 'G multiply-adds/s'\nset logscale xy\nset xrange [%g:%g]\nset yrange [%g:%g]\nset format '%%g'\n"
        "set xtics (0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256)\nset key bottom right\n",
        left, left * memory, corner, corner * memory, left, right, bottom, top);
    fprintf(p.script, "plot $memory with lines lw 2 lc rgb '#e45756' title 'read: %.3g GB/s', \\\n", memory);
    if (n_roofs) {
        fputs("     $roofs using 1:3:($2-$1):(0) with vectors nohead lw 2 lc rgb '#f2a900' title 'multiply', \\\n"
              "     '' using 2:3:(sprintf('%s, %.0f', strcol(4), $3)) with labels right offset -1,0.6 font ',10' "
              "noenhanced "
              "notitle, \\\n",
              p.script);
    }
    fputs("     $data using 1:2:($3-$1):($4-$2) with vectors nohead lc rgb '#bbbbbb' notitle, \\\n"
          "     '' using 1:2 with points pt 7 ps 0.6 lc rgb '#4c78a8' title 'measured', \\\n"
          "     '' using 3:4:5 with labels left font ',9' noenhanced notitle\n",
          p.script);
    plot_close(&p);
    free(boxes);
    free(sorted);
}
