/* plot.h: SVG pictures, drawn by gnuplot. */
#ifndef TQ_PLOT_H
#define TQ_PLOT_H

/* Before any long work: fails unless gnuplot is installed and the file can be written. file NULL: nothing to check. */
void plot_check(const char *file);

typedef struct plot_bar {
    const char *label;
    double value, floor;
} plot_bar;

/* One bar each, the floors as marks across it. */
void plot_bars(const char *file, const char *title, const char *value_name, const plot_bar *bars, int n);

typedef struct plot_point {
    const char *label;
    double x, y;
} plot_point;

/* Labelled points in ascending y, which is on a logarithmic axis. */
void plot_points(const char *file, const char *title, const char *x_name, const char *y_name, const plot_point *points,
                 int n);

typedef struct plot_roof {
    const char *label;
    double rate; /* G multiply-adds/s */
} plot_roof;

/* Williams, Waterman and Patterson 2009: multiply-adds per byte against G multiply-adds/s, both axes logarithmic; labelled
 * points below what memory (GB/s) and multipliers allow. */
void plot_roofline(const char *file, const char *title, double memory, const plot_roof *roofs, int n_roofs,
                   const plot_point *points, int n);

#endif
