/* tq.c: the command `tq`. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "commands.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} commands[] = {
    {"info", command_info, "devices, targets, variants and formats of this build, tuning file in use"},
    {"plan", command_plan, "the kernel that libtq chooses for a shape, why, and the runners-up"},
    {"tune", command_tune, "verify and time every candidate, record the evidence"},
    {"ab", command_ab, "compare two kernels or two pairs of formats"},
    {"bench", command_bench, "time kernels beside f16 and beside the limits of this machine"},
    {"ggml", command_ggml, "time decode beside ggml's flash attention, if that is installed"},
    {"eval", command_eval, "what each format costs in accuracy on real Q, K and V"},
};

static void print_help(FILE *file) {
    fputs("Usage: tq COMMAND [options]\n\nAttention over TurboQuant key/value caches: tune, measure, compare.\n\n"
          "Commands:\n",
          file);
    for (int i = 0; i < CLI_COUNT(commands); i++)
        fprintf(file, "  %-8s %s\n", commands[i].name, commands[i].about);
    fputs("\ntq COMMAND --help tells its options. --json prints {\"rows\": [...]} with the fields of the table.\n"
          "Exit status: 0 done, 1 a check failed, 2 bad arguments.\n"
          "TQ_TUNING names the tuning file that plans read.\n",
          file);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return EXIT_BAD_ARGUMENT;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(name, "--version") == 0) {
        printf("tq %s\n", tq_version_string());
        return 0;
    }
    for (int i = 0; i < CLI_COUNT(commands); i++)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    char legal[128] = "";
    for (int i = 0; i < CLI_COUNT(commands); i++)
        snprintf(legal + strlen(legal), sizeof legal - strlen(legal), "%s%s", i ? ", " : "", commands[i].name);
    cli_fail("%s: no such command, expected one of %s", name, legal);
}
