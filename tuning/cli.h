/* cli.h: options, lists and error sentences, shared by the commands of tq.
 *
 * A command describes its options once; parsing and --help derive from that table. Errors are one sentence on stderr
 * that names the argument, what was found and what is legal, and end the process with status 2. */
#ifndef TQ_CLI_H
#define TQ_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include "tq.h"

enum { CLI_MAX_LIST = 64, EXIT_CHECK_FAILED = 1, EXIT_BAD_ARGUMENT = 2, EXIT_INTERRUPTED = 130 };

typedef struct int_list {
    int n, at[CLI_MAX_LIST];
} int_list;

typedef struct name_list {
    int n;
    const char *at[CLI_MAX_LIST];
} name_list;

typedef enum cli_kind {
    CLI_FLAG,   /* bool */
    CLI_TEXT,   /* const char * */
    CLI_INT,    /* int, low .. high */
    CLI_REAL,   /* double, low .. high */
    CLI_INTS,   /* int_list, comma-separated, each low .. high */
    CLI_NAMES,  /* name_list, comma-separated */
    CLI_REPEAT, /* name_list, one more each time the option is given */
} cli_kind;

typedef struct cli_option {
    const char *name, *value; /* "head-dim", "LIST"; value NULL for flags */
    cli_kind kind;
    void *to;
    double low, high;
    const char *help;
} cli_option;

typedef struct cli_command {
    const char *name, *operands; /* operands as the usage line shows them, "" if there are none */
    int n_operands;
    const char *about;
    int n_options;
    const cli_option *options;
} cli_command;

#define CLI_COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Fills every option's target and the operands; prints help and ends the process when asked to. */
void cli_parse(const cli_command *command, int argc, char **argv, const char **operands);

/* "tq: <command>: <sentence>" on stderr, status 2. */
_Noreturn void cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Fails with libtq's own sentence unless the status is TQ_OK. */
void cli_check(tq_status status);

/* Fails unless a file can be written beside `path`, so that this shows before the work and not after it. */
void cli_check_writable(const char *option, const char *path);

/* Never return NULL. */
void *cli_alloc(size_t count, size_t size);
void *cli_alloc_aligned(size_t bytes); /* 64 bytes, not initialised */
char *cli_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

int_list cli_one_int(int value);
name_list cli_one_name(const char *value);

#endif
