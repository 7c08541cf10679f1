#include "npy.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 4096, MAX_DIMENSIONS = 8 };

typedef struct reader {
    const char *path;
    FILE *file;
    char *error;
    size_t error_size;
} reader;

static bool refuse(const reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(const reader *r, const char *format, ...) {
    int n = snprintf(r->error, r->error_size, "%s: ", r->path);
    va_list args;
    va_start(args, format);
    if (n >= 0 && (size_t)n < r->error_size)
        vsnprintf(r->error + n, r->error_size - (size_t)n, format, args);
    va_end(args);
    return false;
}

float half_to_float(uint16_t half) {
    int exponent = half >> 10 & 31, fraction = half & 1023;
    float magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                      : exponent     ? ldexpf((float)(fraction | 1024), exponent - 25)
                                     : ldexpf((float)fraction, -24);
    return half & 0x8000 ? -magnitude : magnitude;
}

/* The text after 'key': in the header's dictionary, or NULL. */
static const char *entry(const char *header, const char *key) {
    const char *at = strstr(header, key);
    if (!at)
        return NULL;
    at += strlen(key);
    at += strspn(at, " :");
    return at;
}

/* Magic, version, then a Python dictionary: {'descr': '<f2', 'fortran_order': False, 'shape': (3, 1024, 64), } */
static bool read_header(const reader *r, char *header) {
    unsigned char head[12];
    size_t got = fread(head, 1, 10, r->file);
    if (ferror(r->file))
        return refuse(r, "cannot read: %s", strerror(errno));
    if (got < 10)
        return refuse(r, "not a .npy file: found %zu bytes, expected a header", got);
    if (memcmp(head, "\x93NUMPY", 6) != 0)
        return refuse(r, "not a .npy file: it does not begin with \\x93NUMPY");
    size_t length = head[8] | (size_t)head[9] << 8;
    if (head[6] > 1) {
        if (fread(head + 10, 1, 2, r->file) < 2)
            return refuse(r, "truncated inside the header");
        length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    }
    if (head[6] < 1 || head[6] > 3)
        return refuse(r, "found .npy version %d, expected 1 to 3", head[6]);
    if (length >= MAX_HEADER)
        return refuse(r, "found a header of %zu bytes, expected less than %d", length, MAX_HEADER);
    if (fread(header, 1, length, r->file) < length)
        return refuse(r, "truncated inside the header");
    header[length] = '\0';
    return true;
}

static bool parse_shape(const reader *r, const char *text, npy *out) {
    long shape[MAX_DIMENSIONS];
    int rank = 0;
    const char *at = text + 1;
    for (;;) {
        at += strspn(at, " ,");
        if (*at == ')')
            break;
        char *end;
        long n = strtol(at, &end, 10);
        if (end == at || rank == MAX_DIMENSIONS)
            return refuse(r, "the header's shape is not legible: %.40s", text);
        shape[rank++] = n;
        at = end;
    }
    if (rank != 3)
        return refuse(r, "found %d dimension%s, expected 3: [heads, tokens, head_dim]", rank, rank == 1 ? "" : "s");
    for (int i = 0; i < 3; i++) {
        if (shape[i] < 1 || shape[i] > 1 << 24) {
            return refuse(r, "found shape [%ld, %ld, %ld], expected sizes from 1 to %d", shape[0], shape[1], shape[2],
                          1 << 24);
        }
    }
    if ((double)shape[0] * (double)shape[1] * (double)shape[2] > INT_MAX) {
        return refuse(r, "found shape [%ld, %ld, %ld], expected at most %d values", shape[0], shape[1], shape[2],
                      INT_MAX);
    }
    out->heads = (int)shape[0];
    out->tokens = (int)shape[1];
    out->head_dim = (int)shape[2];
    return true;
}

static float value_at(const unsigned char *bytes, size_t width) {
    if (width == 2)
        return half_to_float((uint16_t)(bytes[0] | bytes[1] << 8));
    uint32_t word = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static bool read_values(const reader *r, size_t width, npy *out) {
    size_t per_head = (size_t)out->tokens * (size_t)out->head_dim, n = per_head * (size_t)out->heads;
    unsigned char *bytes = malloc(n * width + 1);
    out->data = malloc(n * sizeof *out->data);
    bool good = bytes && out->data;
    if (!good) {
        refuse(r, "out of memory: %zu values", n);
    } else {
        size_t got = fread(bytes, 1, n * width + 1, r->file);
        if (got != n * width) {
            good = refuse(r, "found %s%zu bytes of values, expected %zu for shape [%d, %d, %d]",
                          got > n * width ? "more than " : "", got > n * width ? n * width : got, n * width, out->heads,
                          out->tokens, out->head_dim);
        }
    }
    for (size_t i = 0; good && i < n; i++) {
        out->data[i] = value_at(bytes + i * width, width);
        if (!isfinite(out->data[i])) {
            good = refuse(r, "found %s at [%zu, %zu, %zu], expected finite values",
                          isnan(out->data[i]) ? "NaN" : "an infinity", i / per_head,
                          i % per_head / (size_t)out->head_dim, i % (size_t)out->head_dim);
        }
    }
    free(bytes);
    return good;
}

static bool read_open_file(const reader *r, npy *out) {
    char header[MAX_HEADER];
    if (!read_header(r, header))
        return false;
    const char *type = entry(header, "'descr'"), *order = entry(header, "'fortran_order'");
    const char *shape = entry(header, "'shape'");
    if (!type || !order || !shape || *shape != '(')
        return refuse(r, "the header lacks descr, fortran_order or shape");
    size_t width = strncmp(type, "'<f2'", 5) == 0 ? 2 : strncmp(type, "'<f4'", 5) == 0 ? 4 : 0;
    if (!width) {
        return refuse(r, "found values of type %.*s, expected '<f2' or '<f4' (float16, float32)",
                      (int)strcspn(type, ",}"), type);
    }
    if (strncmp(order, "False", 5) != 0)
        return refuse(r, "found Fortran order, expected C order; numpy.ascontiguousarray makes it");
    return parse_shape(r, shape, out) && read_values(r, width, out);
}

bool npy_read(const char *path, npy *out, char *error, size_t error_size) {
    reader r = {path, fopen(path, "rb"), error, error_size};
    *out = (npy){0};
    if (!r.file)
        return refuse(&r, "cannot open: %s", strerror(errno));
    bool good = read_open_file(&r, out);
    fclose(r.file);
    if (!good)
        npy_free(out);
    return good;
}

void npy_free(npy *array) {
    free(array->data);
    *array = (npy){0};
}
