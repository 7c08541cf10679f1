#include "table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { MAX_COLUMNS = 32, MAX_TEXT = 256 };

static const void *field(const table *t, int row, const column *c) {
    return (const char *)t->rows + (size_t)row * t->row_size + c->offset;
}

static void real_text(char *out, size_t size, double value) {
    snprintf(out, size, "%.7g", value);
}

/* The cell as the table shows it, "" if there is nothing to show. */
static const char *cell_text(const table *t, int row, const column *c, bool plain, char *scratch) {
    const void *p = field(t, row, c);
    *scratch = '\0';
    switch (c->type) {
    case COLUMN_TEXT:
        return *(const char *const *)p ? *(const char *const *)p : "";
    case COLUMN_INT:
        snprintf(scratch, MAX_TEXT, "%d", *(const int *)p);
        break;
    case COLUMN_BOOL:
        return *(const bool *)p ? (plain ? "yes" : "true") : (plain ? "no" : "false");
    case COLUMN_REAL:
        if (isfinite(*(const double *)p)) {
            if (plain)
                snprintf(scratch, MAX_TEXT, "%.*f", c->decimals, *(const double *)p);
            else
                real_text(scratch, MAX_TEXT, *(const double *)p);
        }
        break;
    }
    return scratch;
}

static void print_plain(const table *t, FILE *file) {
    char scratch[MAX_TEXT];
    int start[MAX_COLUMNS + 1] = {0}, width[MAX_COLUMNS];
    for (int c = 0; c < t->n_columns; c++) {
        const column *col = &t->columns[c];
        width[c] = 0;
        if (col->heading) {
            width[c] = (int)strlen(col->heading);
            for (int r = 0; r < t->n_rows; r++) {
                int n = (int)strlen(cell_text(t, r, col, true, scratch));
                width[c] = n > width[c] ? n : width[c];
            }
        }
        start[c + 1] = start[c] + (col->heading ? width[c] + 2 : 0);
    }
    int length = start[t->n_columns];
    char *line = cli_alloc((size_t)length + 1, 1);
    for (int r = -1; r < t->n_rows; r++) {
        memset(line, ' ', (size_t)length);
        int end = 0;
        for (int c = 0; c < t->n_columns; c++) {
            const column *col = &t->columns[c];
            if (!col->heading)
                continue;
            const char *text = r < 0 ? col->heading : cell_text(t, r, col, true, scratch);
            int n = (int)strlen(text);
            int at = start[c] + (col->type == COLUMN_TEXT || col->type == COLUMN_BOOL ? 0 : width[c] - n);
            memcpy(line + at, text, (size_t)n);
            end = n ? at + n : end;
        }
        fprintf(file, "%.*s\n", end, line);
    }
    free(line);
}

static void print_csv(const table *t, FILE *file) {
    char scratch[MAX_TEXT];
    for (int r = -1; r < t->n_rows; r++) {
        for (int c = 0; c < t->n_columns; c++) {
            const column *col = &t->columns[c];
            const char *text = r < 0 ? col->name : cell_text(t, r, col, false, scratch);
            bool quote = strpbrk(text, ",\"\n") != NULL;
            fputs(c ? "," : "", file);
            fputs(quote ? "\"" : "", file);
            for (; *text; text++) {
                fputs(*text == '"' ? "\"" : "", file);
                fputc(*text, file);
            }
            fputs(quote ? "\"" : "", file);
        }
        fputc('\n', file);
    }
}

void json_real(cJSON *object, const char *name, double value) {
    char text[MAX_TEXT];
    real_text(text, sizeof text, value);
    if (isfinite(value))
        cJSON_AddRawToObject(object, name, text);
    else
        cJSON_AddNullToObject(object, name);
}

cJSON *table_json(const table *t) {
    cJSON *rows = cJSON_CreateArray();
    for (int r = 0; r < t->n_rows; r++) {
        cJSON *row = cJSON_CreateObject();
        for (int c = 0; c < t->n_columns; c++) {
            const column *col = &t->columns[c];
            const void *p = field(t, r, col);
            if (col->type == COLUMN_REAL)
                json_real(row, col->name, *(const double *)p);
            else if (col->type == COLUMN_INT)
                cJSON_AddNumberToObject(row, col->name, *(const int *)p);
            else if (col->type == COLUMN_BOOL)
                cJSON_AddBoolToObject(row, col->name, *(const bool *)p);
            else if (*(const char *const *)p)
                cJSON_AddStringToObject(row, col->name, *(const char *const *)p);
            else
                cJSON_AddNullToObject(row, col->name);
        }
        cJSON_AddItemToArray(rows, row);
    }
    return rows;
}

void json_print(cJSON *object, FILE *file) {
    char *text = cJSON_Print(object);
    fprintf(file, "%s\n", text ? text : "null");
    cJSON_free(text);
    cJSON_Delete(object);
}

void table_print(const table *t, table_style style, cJSON *context, FILE *file) {
    if (style == TABLE_JSON) {
        cJSON *object = context ? context : cJSON_CreateObject();
        cJSON_AddItemToObject(object, "rows", table_json(t));
        json_print(object, file);
        return;
    }
    cJSON_Delete(context);
    if (style == TABLE_CSV)
        print_csv(t, file);
    else
        print_plain(t, file);
}

table_style table_style_of(bool json, bool csv) {
    if (json && csv)
        cli_fail("--json --csv: found both, expected one of them");
    return json ? TABLE_JSON : csv ? TABLE_CSV : TABLE_PLAIN;
}
