/* table.h: rows as an aligned table, as JSON or as CSV, from one description of their columns. */
#ifndef TQ_TABLE_H
#define TQ_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <cjson/cJSON.h>

typedef enum column_type {
    COLUMN_TEXT, /* const char *; NULL prints as nothing */
    COLUMN_INT,  /* int */
    COLUMN_REAL, /* double; NaN prints as nothing */
    COLUMN_BOOL, /* bool */
} column_type;

/* What a row's field is called in JSON and CSV, and its heading in the table; heading NULL leaves it out of the table.
 */
typedef struct column {
    const char *name, *heading;
    column_type type;
    size_t offset; /* of the field in the row */
    int decimals;  /* REAL: in the table */
} column;

typedef enum table_style { TABLE_PLAIN, TABLE_JSON, TABLE_CSV } table_style;

typedef struct table {
    const column *columns;
    int n_columns;
    const void *rows;
    int n_rows;
    size_t row_size;
} table;

/* Context fields go beside "rows" in JSON; it is consumed and may be NULL. Other styles ignore it. */
void table_print(const table *t, table_style style, cJSON *context, FILE *file);
/* The rows alone. */
cJSON *table_json(const table *t);
/* Numbers as short as they are exact to 7 digits; null unless finite. */
void json_real(cJSON *object, const char *name, double value);
/* Prints and deletes. */
void json_print(cJSON *object, FILE *file);
/* --json and --csv exclude each other. */
table_style table_style_of(bool json, bool csv);

#endif
