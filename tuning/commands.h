/* commands.h: one function per command of tq; each returns the exit status. */
#ifndef TQ_COMMANDS_H
#define TQ_COMMANDS_H

int command_info(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_tune(int argc, char **argv);
int command_ab(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_ggml(int argc, char **argv);
int command_eval(int argc, char **argv);

#endif
