/* status.c: status strings, the error message of the calling thread, names of enumerations. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[1024];

static const char *const status_strings[] = {
    [TQ_OK] = "success",
    [TQ_ERR_ARGUMENT] = "illegal argument",
    [TQ_ERR_UNSUPPORTED] = "no kernel for this in the build",
    [TQ_ERR_DEVICE] = "no such device, or it lacks what the kernel needs",
    [TQ_ERR_NOT_FINITE] = "NaN or Inf in the input",
    [TQ_ERR_MEMORY] = "out of memory",
    [TQ_ERR_IO] = "file could not be read or written",
    [TQ_ERR_FILE_FORMAT] = "not a legal tuning file",
    [TQ_ERR_WORKSPACE] = "workspace too small, misaligned or not initialised for this plan",
};

static const char *const op_names[] = {
    [TQ_OP_DECODE] = "decode", [TQ_OP_APPEND] = "append",   [TQ_OP_DEQUANTISE] = "dequantise",
    [TQ_OP_REPACK] = "repack", [TQ_OP_PREFILL] = "prefill",
};

static const char *const mode_names[] = {
    [TQ_SCALE_DEFAULT] = "default", [TQ_SCALE_NONE] = "none", [TQ_SCALE_NC] = "nc", [TQ_SCALE_SEARCHED] = "searched"};

enum { N_STATUS = sizeof status_strings / sizeof *status_strings };
enum { N_OPS = sizeof op_names / sizeof *op_names };
enum { N_MODES = sizeof mode_names / sizeof *mode_names };

tq_status tq_fail(tq_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return status;
}

const char *tq_error_message(void) {
    return message;
}

const char *tq_status_string(tq_status status) {
    return (unsigned)status < N_STATUS ? status_strings[status] : "unknown status";
}

const char *tq_version_string(void) {
    return TQ_VERSION;
}

int tq_has_word(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *w = words; *w;) {
        size_t length = strcspn(w, " ");
        if (length == n && strncmp(w, word, n) == 0)
            return 1;
        w += length;
        w += strspn(w, " ");
    }
    return 0;
}

int tq_has_words(const char *words, const char *needs) {
    char word[64];
    while (*needs) {
        size_t n = strcspn(needs, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, needs);
        if (n && !tq_has_word(words, word))
            return 0;
        needs += n;
        needs += strspn(needs, " ");
    }
    return 1;
}

void tq_list_add(tq_list *list, const char *word) {
    static const char more[] = ", ...";
    size_t n = strlen(word), used = strlen(list->text);
    for (const char *at = list->text; (at = strstr(at, word)); at++)
        if ((at == list->text || at[-1] == ' ') && (at[n] == ',' || at[n] == '\0'))
            return;
    if (used + 2 + n + sizeof more <= sizeof list->text)
        snprintf(list->text + used, sizeof list->text - used, "%s%s", used ? ", " : "", word);
    else if (used < 3 || strcmp(list->text + used - 3, "...") != 0)
        strcpy(list->text + used, more);
}

static int name_index(const char *const *names, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static tq_status parse(const char *what, const char *const *names, int n, const char *name, int *out) {
    if (!name)
        return tq_fail(TQ_ERR_ARGUMENT, "%s name is NULL", what);
    *out = name_index(names, n, name);
    if (*out >= 0)
        return TQ_OK;
    tq_list legal = {""};
    for (int i = 0; i < n; i++)
        tq_list_add(&legal, names[i]);
    return tq_fail(TQ_ERR_ARGUMENT, "unknown %s '%s'; legal are %s", what, name, legal.text);
}

const char *tq_op_name(tq_op op) {
    return (unsigned)op < N_OPS ? op_names[op] : "unknown";
}

tq_status tq_op_parse(const char *name, tq_op *out) {
    int index;
    if (!out)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_op_parse: out is NULL");
    tq_status status = parse("op", op_names, N_OPS, name, &index);
    if (!status)
        *out = (tq_op)index;
    return status;
}

const char *tq_scale_mode_name(tq_scale_mode mode) {
    return (unsigned)mode < N_MODES ? mode_names[mode] : "unknown";
}

tq_status tq_scale_mode_parse(const char *name, tq_scale_mode *out) {
    int index;
    if (!out)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_scale_mode_parse: out is NULL");
    tq_status status = parse("scale mode", mode_names, N_MODES, name, &index);
    if (!status)
        *out = (tq_scale_mode)index;
    return status;
}
