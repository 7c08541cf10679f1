/* code_object.h: what a cubin or an HSA code object says about its kernels, read without any vendor's library. The stub
 * drivers load modules with it, and tests compare it with what the runtime passes. */
#ifndef TQ_CODE_OBJECT_H
#define TQ_CODE_OBJECT_H

#include <stddef.h>

enum { CODE_MAX_KERNELS = 256, CODE_MAX_ARGUMENTS = 4 };

typedef struct code_argument {
    unsigned offset, bytes; /* in the argument block */
} code_argument;

typedef struct code_kernel {
    char symbol[192];
    int n_arguments; /* that a launch gives; the hidden ones of HSA are left out */
    code_argument arguments[CODE_MAX_ARGUMENTS];
    unsigned max_threads;  /* per block; 0: not stated */
    unsigned static_bytes; /* of shared memory */
    unsigned wave;         /* lanes; CUDA: 32 */
} code_kernel;

typedef struct code_object {
    char arch[32]; /* "sm_90", "gfx1201" */
    int n_kernels;
    code_kernel kernels[CODE_MAX_KERNELS];
} code_object;

/* 1 if image is an object that could be read. Images need no size: their headers tell it. Beside real ones there are
 * texts, for tests that need no compiler: "STUB <arch>\n" and a line "<symbol> <argument bytes> <threads>\n" for each
 * kernel. */
int code_object_read(const void *image, code_object *out);
const code_kernel *code_object_find(const code_object *object, const char *symbol);

#endif
