/* ggml_attention.h: decode attention of ggml (llama.cpp's tensor library), through the shared libraries that PyPI's package
 * llama-cpp-python installs, as a guest of the harness. */
#ifndef TQ_GGML_ATTENTION_H
#define TQ_GGML_ATTENTION_H

#include <stdbool.h>

#include "harness.h"

typedef struct ggml_library ggml_library;

/* folder: where libggml-cpu.so lies; NULL: where the python3 of $PATH has llama_cpp. n_threads: that
 * compute a graph. Fails with what to install. */
ggml_library *ggml_open(const char *folder, int n_threads);
void ggml_close(ggml_library *library);
const char *ggml_version_of(const ggml_library *library);

typedef struct ggml_shape {
    int head_dim, v_head_dim, gqa, n_kv, n_kv_heads;
} ggml_shape;

typedef struct ggml_attention ggml_attention;

/* format: one of ggml_formats. interleaved: the rows of all KV heads of a token lie together, as in llama.cpp's own cache;
 * else those of all tokens of a head. */
ggml_attention *ggml_attention_create(ggml_library *library, const char *format, bool interleaved, ggml_shape shape);
void ggml_attention_destroy(ggml_attention *a);
harness_guest ggml_attention_guest(ggml_attention *a);
/* |o - reference|^2 / |reference|^2 of the output of query head 0, in double precision on the values before they were
 * quantised. After the harness ran it. */
double ggml_attention_error(const ggml_attention *a);

enum { GGML_FORMATS = 3 };
extern const char *const ggml_formats[GGML_FORMATS]; /* f16, q8_0, q4_0 */

#endif
