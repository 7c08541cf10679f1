#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *current_command;

static void say(const char *format, va_list args) {
    fprintf(stderr, "tq%s%s: ", current_command ? " " : "", current_command ? current_command : "");
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

void cli_fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    fflush(NULL);
    _exit(EXIT_BAD_ARGUMENT); /* at once, from any thread: what is allocated goes with the process */
}

void cli_warn(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

void cli_check(tq_status status) {
    if (status != TQ_OK)
        cli_fail("%s", tq_error_message());
}

void cli_check_writable(const char *option, const char *path) {
    if (*path == '\0' || path[strlen(path) - 1] == '/')
        cli_fail("--%s '%s': not the name of a file", option, path);
    char *probe = cli_format("%s.probe-%ld", path, (long)getpid());
    FILE *file = fopen(probe, "wx");
    if (!file)
        cli_fail("--%s %s: cannot write there: %s", option, path, strerror(errno));
    fclose(file);
    unlink(probe);
    free(probe);
}

void *cli_alloc(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size ? size : 1);
    if (!memory)
        cli_fail("out of memory: %zu x %zu bytes", count, size);
    return memory;
}

void *cli_alloc_aligned(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!memory)
        cli_fail("out of memory: %zu bytes", bytes);
    return memory;
}

char *cli_format(const char *format, ...) {
    char *text;
    va_list args;
    va_start(args, format);
    int length = vasprintf(&text, format, args);
    va_end(args);
    if (length < 0)
        cli_fail("out of memory");
    return text;
}

int_list cli_one_int(int value) {
    int_list list = {1, {value}};
    return list;
}

name_list cli_one_name(const char *value) {
    name_list list = {1, {value}};
    return list;
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

static double parse_number(const cli_option *option, const char *text, bool whole) {
    char *end;
    errno = 0;
    double value = whole ? (double)strtol(text, &end, 10) : strtod(text, &end);
    if (end == text || *end || errno || !(value >= option->low && value <= option->high)) {
        cli_fail("--%s %s: found '%s', expected a%s number from %g to %.15g", option->name, option->value, text,
                 whole ? " whole" : "", option->low, option->high);
    }
    return value;
}

/* Calls add(option, item) for each comma-separated item; cuts the argument up in place. */
static void each_item(const cli_option *option, char *text, void (*add)(const cli_option *, const char *)) {
    size_t n = strlen(text);
    if (n == 0 || text[0] == ',' || text[n - 1] == ',' || strstr(text, ",,"))
        cli_fail("--%s %s: found '%s', expected items between the commas", option->name, option->value, text);
    for (char *item; (item = strsep(&text, ","));)
        add(option, item);
}

static void check_room(const cli_option *option, int n) {
    if (n == CLI_MAX_LIST)
        cli_fail("--%s: more than %d items", option->name, CLI_MAX_LIST);
}

static void add_int(const cli_option *option, const char *item) {
    int_list *list = option->to;
    check_room(option, list->n);
    list->at[list->n++] = (int)parse_number(option, item, true);
}

static void add_name(const cli_option *option, const char *item) {
    name_list *list = option->to;
    check_room(option, list->n);
    list->at[list->n++] = item;
}

static void store(const cli_option *option, char *text, bool first) {
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)option->to = true;
        break;
    case CLI_TEXT:
        *(const char **)option->to = text;
        break;
    case CLI_INT:
        *(int *)option->to = (int)parse_number(option, text, true);
        break;
    case CLI_REAL:
        *(double *)option->to = parse_number(option, text, false);
        break;
    case CLI_INTS:
        ((int_list *)option->to)->n = 0; /* given values replace the default */
        each_item(option, text, add_int);
        break;
    case CLI_NAMES:
        ((name_list *)option->to)->n = 0;
        each_item(option, text, add_name);
        break;
    case CLI_REPEAT:
        if (first)
            ((name_list *)option->to)->n = 0;
        add_name(option, text);
        break;
    }
}

/* ---- help and parsing ------------------------------------------------------------------------------------------- */

static void print_help(const cli_command *command) {
    printf("Usage: tq %s%s%s [options]\n\n%s\n\nOptions:\n", command->name, *command->operands ? " " : "",
           command->operands, command->about);
    for (int i = 0; i < command->n_options; i++) {
        const cli_option *o = &command->options[i];
        char left[40];
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
        printf("  %-20s ", left);
        for (const char *c = o->help; *c; c++) {
            putchar(*c);
            if (*c == '\n')
                printf("%23s", "");
        }
        putchar('\n');
    }
    printf("  %-20s this text\n", "--help");
}

void cli_parse(const cli_command *command, int argc, char **argv, const char **operands) {
    enum { HELP = CLI_MAX_LIST, SHORT_OUTPUT = 'o' };
    struct option longs[CLI_MAX_LIST + 2] = {{0}};
    bool seen[CLI_MAX_LIST] = {false};
    int output = -1;
    current_command = command->name;
    for (int i = 0; i < command->n_options; i++) {
        const cli_option *o = &command->options[i];
        longs[i] = (struct option){o->name, o->kind == CLI_FLAG ? no_argument : required_argument, NULL, 256 + i};
        if (strcmp(o->name, "output") == 0)
            output = i;
    }
    longs[command->n_options] = (struct option){"help", no_argument, NULL, 256 + HELP};
    opterr = 0;
    optind = 1;
    for (int code; (code = getopt_long(argc, argv, output < 0 ? ":h" : ":ho:", longs, NULL)) != -1;) {
        const char *word = argv[optind - 1];
        if (code == 256 + HELP || code == 'h') {
            print_help(command);
            exit(0);
        }
        if (code == ':')
            cli_fail("%s: expected a value after it; see tq %s --help", word, command->name);
        if (code == '?') {
            if (optopt >= 256)
                cli_fail("%s: takes no value", word);
            cli_fail("%s: no such option; see tq %s --help", word, command->name);
        }
        int i = code == SHORT_OUTPUT ? output : code - 256;
        store(&command->options[i], optarg, !seen[i]);
        seen[i] = true;
    }
    if (argc - optind != command->n_operands) {
        cli_fail("found %d operand%s%s%s, expected %s", argc - optind, argc - optind == 1 ? "" : "s",
                 argc > optind ? ", the first is " : "", argc > optind ? argv[optind] : "",
                 command->n_operands ? command->operands : "none");
    }
    for (int i = 0; i < command->n_operands; i++)
        operands[i] = argv[optind + i];
}
