/* first_run.h: what the parts of first_run share. Each phase is a process of its own, so that what one kernel breaks does not
 * take the others along; they hand their results on in tables under one directory, and the report is made of these. */
#ifndef TQ_FIRST_RUN_H
#define TQ_FIRST_RUN_H

#include "contract.h"
#include "tq.h"

#include <stdio.h>

typedef struct first_run {
    const tq_device *device;
    const char *directory; /* for results */
    const char *micro;     /* code object with the kernels of micro.c; "": they are linked in */
    double seconds;        /* for this phase */
    bool tiny;             /* SIMT devices: the smallest sizes that show that everything works */
} first_run;

/* ---- tables: tab-separated text, a line of names first -------------------------------------------------------------- */

enum { TABLE_COLUMNS = 12 };

typedef struct text_table {
    int n_columns, n_rows;
    char *names[TABLE_COLUMNS];
    char *(*rows)[TABLE_COLUMNS];
    char *text; /* all of the above is in it */
} text_table;

/* Appends; writes the line of names if the file is new. */
FILE *table_append(const first_run *run, const char *name, const char *names);
/* Empty if there is no such table. Columns that a line lacks are "". */
text_table table_read(const first_run *run, const char *name);
void table_free(text_table *table);
/* Of row i, by the column's name; "" if there is none. */
const char *table_text(const text_table *table, int row, const char *column);
double table_number(const text_table *table, int row, const char *column);

/* ---- phases ------------------------------------------------------------------------------------------------------ */

void first_run_micro(const first_run *run);
void first_run_report(const first_run *run);

/* The tuning file of this device, under the directory: "nvidia-h200.tsv". */
char *first_run_tuning_file(const first_run *run);

#endif
