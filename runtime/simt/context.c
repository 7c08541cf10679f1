/* context.c: switching between stacks. Only what the calling convention lets a function keep is saved. */
#define _DEFAULT_SOURCE
#include "context.h"

#include <stdint.h>

#ifdef TQ_SIMT_UCONTEXT_USED

void tq_context_start(tq_context *context, unsigned char *stack, size_t bytes, void (*entry)(void)) {
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = bytes;
    context->uc_link = NULL;
    makecontext(context, entry, 0);
}

void tq_context_switch(tq_context *from, tq_context *to) {
    swapcontext(from, to);
}

#elif defined(__x86_64__)

__asm__(".text\n"
        ".p2align 4\n"
        ".globl tq_context_switch\n"
        ".hidden tq_context_switch\n"
        ".type tq_context_switch, @function\n"
        "tq_context_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq (%rsi), %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size tq_context_switch, .-tq_context_switch\n");

void tq_context_start(tq_context *context, unsigned char *stack, size_t bytes, void (*entry)(void)) {
    enum { SAVED = 6, WORDS = SAVED + 2 }; /* entry, and no return address, which also aligns its frame */
    uint64_t *top = (uint64_t *)(void *)(stack + (bytes & ~(size_t)15)) - WORDS;
    for (int i = 0; i < WORDS; i++)
        top[i] = 0;
    top[SAVED] = (uint64_t)(uintptr_t)entry;
    context->stack_pointer = top;
}

#else

__asm__(".text\n"
        ".p2align 4\n"
        ".globl tq_context_switch\n"
        ".hidden tq_context_switch\n"
        ".type tq_context_switch, %function\n"
        "tq_context_switch:\n"
        "    stp x29, x30, [sp, #-160]!\n"
        "    stp x19, x20, [sp, #16]\n"
        "    stp x21, x22, [sp, #32]\n"
        "    stp x23, x24, [sp, #48]\n"
        "    stp x25, x26, [sp, #64]\n"
        "    stp x27, x28, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    ldr x9, [x1]\n"
        "    mov sp, x9\n"
        "    ldp x19, x20, [sp, #16]\n"
        "    ldp x21, x22, [sp, #32]\n"
        "    ldp x23, x24, [sp, #48]\n"
        "    ldp x25, x26, [sp, #64]\n"
        "    ldp x27, x28, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    ldp x29, x30, [sp], #160\n"
        "    ret\n"
        ".size tq_context_switch, .-tq_context_switch\n");

void tq_context_start(tq_context *context, unsigned char *stack, size_t bytes, void (*entry)(void)) {
    enum { WORDS = 20, RETURN = 1 };
    uint64_t *top = (uint64_t *)(void *)(stack + (bytes & ~(size_t)15)) - WORDS;
    for (int i = 0; i < WORDS; i++)
        top[i] = 0;
    top[RETURN] = (uint64_t)(uintptr_t)entry;
    context->stack_pointer = top;
}

#endif
