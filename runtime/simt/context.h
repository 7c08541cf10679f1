/* context.h: stacks to switch between. */
#ifndef TQ_SIMT_CONTEXT_H
#define TQ_SIMT_CONTEXT_H

#include <stddef.h>

#if defined(__ELF__) && ((defined(__x86_64__) && !defined(__ILP32__)) || defined(__aarch64__)) &&                      \
    !defined(TQ_SIMT_UCONTEXT)
typedef struct tq_context {
    void *stack_pointer;
} tq_context;
#else
#define TQ_SIMT_UCONTEXT_USED
#include <ucontext.h>
typedef ucontext_t tq_context;
#endif

/* entry runs on the stack when it is first switched to; it must not return. */
void tq_context_start(tq_context *context, unsigned char *stack, size_t bytes, void (*entry)(void));
void tq_context_switch(tq_context *from, tq_context *to);

#endif
