/* tunefile.c: reading and saving tuning files. */
#define _DEFAULT_SOURCE /* flock */
#include "tunefile.h"
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char magic[] = "# tq-tuning 1", device_mark[] = "# device ";
static const char *const columns[] = {"variant", "key",       "n_kv_heads", "n_kv",     "batch",
                                      "threads", "median_ns", "spread",     "verified", "max_err"};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static const double max_ns = 1e15, max_spread = 1e6;

typedef struct reader {
    const char *path;
    int line;
} reader;

static tq_status refuse(const reader *at, const char *field, const char *found, const char *expected) {
    return tq_fail(TQ_ERR_FILE_FORMAT, "%s:%d: %s: found '%.80s', expected %s", at->path, at->line, field, found,
                   expected);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static tq_status parse_number(const reader *at, int column, const char *text, double low, double high, double *out) {
    char *end, expected[64];
    *out = strtod(text, &end);
    if (end != text && !*end && *out >= low && *out <= high)
        return TQ_OK;
    snprintf(expected, sizeof expected, "a number from %g to %g", low, high);
    return refuse(at, columns[column], text, expected);
}

static tq_status parse_count(const reader *at, int column, const char *text, int *out) {
    double value = 0;
    tq_status status = parse_number(at, column, text, 1, TQ_MAX_N_KV, &value);
    *out = (int)value;
    return status || *out == value ? status : refuse(at, columns[column], text, "a whole number");
}

static tq_status parse_row(const reader *at, char *fields[N_COLUMNS], tq_tune_row *row) {
    char *end;
    tq_status status;
    memset(row, 0, sizeof *row);
    if (strncmp(fields[0], "tq_", 3) != 0 || strlen(fields[0]) >= sizeof row->variant)
        return refuse(at, columns[0], fields[0], "a variant name tq_...");
    strcpy(row->variant, fields[0]);
    row->key = strtoull(fields[1], &end, 16);
    if (strlen(fields[1]) != 16 || *end || strspn(fields[1], "0123456789abcdef") != 16)
        return refuse(at, columns[1], fields[1], "16 hexadecimal digits");
    if ((status = parse_count(at, 2, fields[2], &row->n_kv_heads)) ||
        (status = parse_count(at, 3, fields[3], &row->n_kv)) || (status = parse_count(at, 4, fields[4], &row->batch)) ||
        (status = parse_count(at, 5, fields[5], &row->threads)) ||
        (status = parse_number(at, 6, fields[6], 0, max_ns, &row->median_ns)) ||
        (status = parse_number(at, 7, fields[7], 0, max_spread, &row->spread)) ||
        (status = parse_number(at, 9, fields[9], 0, INFINITY, &row->max_err)))
        return status;
    row->verified = strcmp(fields[8], "yes") == 0;
    if (row->verified && row->median_ns == 0)
        return refuse(at, columns[6], fields[6], "more than 0, since the row is verified");
    return row->verified || strcmp(fields[8], "no") == 0 ? TQ_OK : refuse(at, columns[8], fields[8], "yes or no");
}

/* Fields stand between tabs; spaces around them only align. */
static int split_fields(char *line, char *fields[N_COLUMNS]) {
    int n = 0;
    for (char *field = line; field; n++) {
        char *tab = strchr(field, '\t');
        if (tab)
            *tab = '\0';
        field += strspn(field, " ");
        size_t length = strlen(field);
        while (length && field[length - 1] == ' ')
            field[--length] = '\0';
        if (n < N_COLUMNS)
            fields[n] = field;
        field = tab ? tab + 1 : NULL;
    }
    return n;
}

static tq_status parse_line(const reader *at, char *line, tq_tune_file *file, int *capacity) {
    char *fields[N_COLUMNS], count[32];
    if (at->line == 1)
        return strcmp(line, magic) == 0 ? TQ_OK : refuse(at, "first line", line, magic);
    if (at->line == 2) {
        size_t n = sizeof device_mark - 1;
        if (strncmp(line, device_mark, n) != 0 || !line[n] || strlen(line + n) >= sizeof file->model)
            return refuse(at, "device", line, "# device MODEL");
        strcpy(file->model, line + n);
        return TQ_OK;
    }
    int n = split_fields(line, fields);
    if (n != N_COLUMNS) {
        snprintf(count, sizeof count, "%d", n);
        return refuse(at, "number of columns", count, "10 columns between tabs");
    }
    if (at->line == 3) {
        for (int i = 0; i < N_COLUMNS; i++)
            if (strcmp(fields[i], columns[i]) != 0)
                return refuse(at, "column name", fields[i], columns[i]);
        return TQ_OK;
    }
    if (file->n_rows == *capacity) {
        int grown = *capacity ? 2 * *capacity : 64;
        tq_tune_row *rows = realloc(file->rows, (size_t)grown * sizeof *rows);
        if (!rows)
            return tq_fail(TQ_ERR_MEMORY, "%s: out of memory", at->path);
        file->rows = rows;
        *capacity = grown;
    }
    tq_status status = parse_row(at, fields, &file->rows[file->n_rows]);
    file->n_rows += !status;
    return status;
}

static tq_status read_lines(FILE *stream, const char *path, tq_tune_file *out) {
    char line[1024];
    int capacity = 0;
    reader at = {path, 0};
    while (fgets(line, sizeof line, stream)) {
        size_t length = strlen(line);
        at.line++;
        if (!length || line[length - 1] != '\n')
            return refuse(&at, "end of line", line, "lines of text below 1024 bytes, the last ended as well");
        line[length - 1] = '\0';
        tq_status status = parse_line(&at, line, out, &capacity);
        if (status)
            return status;
    }
    if (ferror(stream))
        return tq_fail(TQ_ERR_IO, "cannot read tuning file '%s': %s", path, strerror(errno));
    at.line++;
    return at.line > 3 ? TQ_OK : refuse(&at, "header", "end of file", "three header lines");
}

/* Numbers are written with a decimal point, whatever the locale of the program. */
static locale_t enter_c_locale(locale_t *outer) {
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    *outer = uselocale(c);
    return c;
}

static void leave_c_locale(locale_t c, locale_t outer) {
    uselocale(outer);
    if (c)
        freelocale(c);
}

tq_status tq_tunefile_read(const char *path, tq_tune_file *out) {
    locale_t outer;
    memset(out, 0, sizeof *out);
    FILE *stream = fopen(path, "r");
    if (!stream)
        return tq_fail(TQ_ERR_IO, "cannot open tuning file '%s': %s", path, strerror(errno));
    locale_t c = enter_c_locale(&outer);
    tq_status status = read_lines(stream, path, out);
    leave_c_locale(c, outer);
    fclose(stream);
    if (status)
        tq_tunefile_free(out);
    return status;
}

void tq_tunefile_free(tq_tune_file *file) {
    free(file->rows);
    memset(file, 0, sizeof *file);
}

int tq_tune_row_is_live(const tq_tune_row *row) {
    const tq_variant *variant = tq_variant_find(row->variant, NULL);
    return variant && variant->key == row->key;
}

/* ---- saving ----------------------------------------------------------------------------------------------------- */

static int same_measurement(const tq_tune_row *a, const tq_tune_row *b) {
    return strcmp(a->variant, b->variant) == 0 && a->key == b->key && a->n_kv_heads == b->n_kv_heads &&
           a->n_kv == b->n_kv && a->batch == b->batch && a->threads == b->threads;
}

/* What would not be read back must not be written. */
static tq_status check_row(const tq_tune_row *row) {
    int counts = row->n_kv_heads > 0 && row->n_kv > 0 && row->batch > 0 && row->threads > 0;
    int times = row->median_ns >= 0 && row->median_ns <= max_ns && row->spread >= 0 && row->spread <= max_spread;
    if (strncmp(row->variant, "tq_", 3) == 0 && counts && times && (!row->verified || row->median_ns > 0))
        return TQ_OK;
    return tq_fail(TQ_ERR_ARGUMENT,
                   "tuning row of '%.80s' has n_kv_heads %d, n_kv %d, batch %d, threads %d, median_ns %g, spread %g; "
                   "counts must be positive, times finite and not negative",
                   row->variant, row->n_kv_heads, row->n_kv, row->batch, row->threads, row->median_ns, row->spread);
}

static tq_status merge(tq_tune_file *file, const tq_tune_row *rows, int n_rows) {
    tq_tune_row *all = realloc(file->rows, (size_t)(file->n_rows + n_rows + 1) * sizeof *all);
    if (!all)
        return tq_fail(TQ_ERR_MEMORY, "out of memory for %d tuning rows", file->n_rows + n_rows);
    file->rows = all;
    for (int i = 0; i < n_rows; i++) {
        tq_status status = check_row(&rows[i]);
        int at = 0;
        if (status)
            return status;
        while (at < file->n_rows && !same_measurement(&all[at], &rows[i]))
            at++;
        all[at] = rows[i];
        file->n_rows += at == file->n_rows;
    }
    return TQ_OK;
}

static void write_rows(FILE *stream, const char *model, const tq_tune_file *file) {
    int width = (int)strlen(columns[0]);
    for (int i = 0; i < file->n_rows; i++)
        width = (int)strlen(file->rows[i].variant) > width ? (int)strlen(file->rows[i].variant) : width;
    fprintf(stream, "%s\n%s%s\n", magic, device_mark, model);
    fprintf(stream, "%-*s\t%16s\t%s\t%8s\t%s\t%s\t%12s\t%6s\t%s\t%s\n", width, columns[0], columns[1], columns[2],
            columns[3], columns[4], columns[5], columns[6], columns[7], columns[8], columns[9]);
    for (int i = 0; i < file->n_rows; i++) {
        const tq_tune_row *r = &file->rows[i];
        fprintf(stream, "%-*s\t%016" PRIx64 "\t%10d\t%8d\t%5d\t%7d\t%12.1f\t%6.3f\t%8s\t%7.3g\n", width, r->variant,
                r->key, r->n_kv_heads, r->n_kv, r->batch, r->threads, r->median_ns, r->spread,
                r->verified ? "yes" : "no", isnan(r->max_err) ? INFINITY : r->max_err);
    }
}

static tq_status replace_file(const char *path, const char *model, const tq_tune_file *file) {
    char temporary[4096];
    int length = snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid());
    FILE *stream = length < (int)sizeof temporary ? fopen(temporary, "w") : NULL;
    if (!stream)
        return tq_fail(TQ_ERR_IO, "cannot write tuning file '%s': %s", path,
                       length < (int)sizeof temporary ? strerror(errno) : "the path is too long");
    locale_t outer, c = enter_c_locale(&outer);
    write_rows(stream, model, file);
    leave_c_locale(c, outer);
    int failed = ferror(stream) || fflush(stream) != 0 || fsync(fileno(stream)) != 0;
    failed = (fclose(stream) != 0) | failed;
    if (!failed && rename(temporary, path) == 0)
        return TQ_OK;
    tq_status status = tq_fail(TQ_ERR_IO, "cannot write tuning file '%s': %s", path, strerror(errno));
    remove(temporary);
    return status;
}

/* Held while a file is read, merged and replaced. The directory is locked: the file itself goes away. */
static int lock_directory(const char *path) {
    char directory[4096];
    const char *slash = strrchr(path, '/');
    snprintf(directory, sizeof directory, "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
    int fd = open(directory, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        flock(fd, LOCK_EX);
    return fd;
}

tq_status tq_tunefile_save(const char *path, const char *model, const tq_tune_row *rows, int n_rows) {
    int lock = lock_directory(path);
    tq_tune_file file = {0};
    tq_status status = access(path, F_OK) == 0 ? tq_tunefile_read(path, &file) : TQ_OK;
    if (!status && file.model[0] && strcmp(file.model, model) != 0)
        status = tq_fail(TQ_ERR_FILE_FORMAT, "%s:2: device: found '%s', expected '%s'", path, file.model, model);
    if (!status)
        status = merge(&file, rows, n_rows);
    if (!status)
        status = replace_file(path, model, &file);
    tq_tunefile_free(&file);
    if (lock >= 0)
        close(lock);
    return status;
}
