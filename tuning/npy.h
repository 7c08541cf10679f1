/* npy.h: reads NumPy's .npy files of the one kind that tq takes: float16 or float32, little-endian, C order,
 * [heads, tokens, head_dim], every value finite. */
#ifndef TQ_NPY_H
#define TQ_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct npy {
    int heads, tokens, head_dim;
    float *data; /* npy_free */
} npy;

/* On failure `error` holds the sentence, and *out is empty. */
bool npy_read(const char *path, npy *out, char *error, size_t error_size);
void npy_free(npy *array);

float half_to_float(uint16_t half);

#endif
