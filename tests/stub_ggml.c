/* stub_ggml.c: a library with the names and functions of ggml that `tq ggml` uses. It keeps floats, whatever the type, and
 * attends plainly. $TQ_STUB_GGML=wrong: to something else. */
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct tensor {
    int64_t ne[4];
    size_t nb[4]; /* bytes between neighbours */
    float *data;
    struct tensor *q, *k, *v; /* attention */
    float scale;
} tensor;

/* Everything that was allocated in a context. */
typedef struct context {
    void *memory[1024];
    int n;
} context;

typedef struct init_params {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc;
} init_params;

static void *keep(context *c, size_t bytes) {
    if (c->n == 1024)
        abort();
    return c->memory[c->n++] = calloc(1, bytes);
}

EXPORT const char *ggml_version(void) {
    return "stub";
}

EXPORT void *ggml_init(init_params params) {
    return params.mem_size ? calloc(1, sizeof(context)) : NULL;
}

EXPORT void ggml_free(context *c) {
    while (c->n)
        free(c->memory[--c->n]);
    free(c);
}

EXPORT size_t ggml_row_size(int type, int64_t values) {
    (void)type;
    return (size_t)values * sizeof(float);
}

EXPORT tensor *ggml_new_tensor_4d(context *c, int type, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    tensor *t = keep(c, sizeof *t);
    *t = (tensor){.ne = {n0, n1, n2, n3}, .nb = {sizeof(float)}};
    for (int i = 1; i < 4; i++)
        t->nb[i] = t->nb[i - 1] * (size_t)t->ne[i - 1];
    t->data = keep(c, ggml_row_size(type, n0 * n1 * n2 * n3));
    return t;
}

EXPORT tensor *ggml_permute(context *c, const tensor *of, int a0, int a1, int a2, int a3) {
    const int to[] = {a0, a1, a2, a3};
    tensor *t = keep(c, sizeof *t);
    *t = *of;
    for (int i = 0; i < 4; i++) {
        t->ne[to[i]] = of->ne[i];
        t->nb[to[i]] = of->nb[i];
    }
    return t;
}

EXPORT tensor *ggml_flash_attn_ext(context *c, tensor *q, tensor *k, tensor *v, tensor *mask, float scale, float bias,
                                   float softcap) {
    if (mask || bias != 0 || softcap != 0)
        abort();
    tensor *t = ggml_new_tensor_4d(c, 0, v->ne[0], q->ne[2], q->ne[1], q->ne[3]);
    t->q = q;
    t->k = k;
    t->v = v;
    t->scale = scale;
    return t;
}

EXPORT float *ggml_get_data(const tensor *t) {
    return t->data;
}

EXPORT size_t ggml_quantize_chunk(int type, const float *from, void *to, int64_t start, int64_t rows, int64_t per_row,
                                  const float *importance) {
    (void)importance;
    memcpy((float *)to + start, from + start, ggml_row_size(type, rows * per_row));
    return ggml_row_size(type, rows * per_row);
}

EXPORT size_t ggml_tensor_overhead(void) {
    return sizeof(tensor);
}

EXPORT size_t ggml_graph_overhead_custom(size_t nodes, bool gradients) {
    return gradients ? 0 : nodes * sizeof(void *);
}

EXPORT tensor **ggml_new_graph_custom(context *c, size_t nodes, bool gradients) {
    return gradients ? NULL : keep(c, nodes * sizeof(tensor *));
}

EXPORT void ggml_build_forward_expand(tensor **graph, tensor *t) {
    *graph = t;
}

EXPORT void *ggml_backend_cpu_init(void) {
    static int backend;
    return &backend;
}

EXPORT void ggml_backend_free(void *backend) {
    if (!backend)
        abort();
}

EXPORT void ggml_backend_cpu_set_n_threads(void *backend, int threads) {
    if (!backend || threads < 1)
        abort();
}

static const float *row(const tensor *t, int64_t i, int64_t head) {
    return (const float *)(const void *)((const char *)t->data + (size_t)i * t->nb[1] + (size_t)head * t->nb[2]);
}

/* Has threads of its own: one caller at a time. */
EXPORT int ggml_backend_graph_compute(void *backend, tensor **graph) {
    static atomic_int callers;
    if (atomic_fetch_add(&callers, 1))
        abort();
    const tensor *t = *graph;
    const int64_t n = t->q->ne[0], gqa = t->q->ne[2] / t->k->ne[2];
    const char *behaviour = getenv("TQ_STUB_GGML");
    for (int64_t h = 0; h < t->q->ne[2]; h++) {
        float *out = t->data + h * n, sum = 0;
        memset(out, 0, (size_t)n * sizeof *out);
        for (int64_t key = 0; key < t->k->ne[1]; key++) {
            const float *q = row(t->q, 0, h), *k = row(t->k, key, h / gqa), *v = row(t->v, key, h / gqa);
            float score = 0;
            for (int64_t i = 0; i < n; i++)
                score += q[i] * k[i];
            const float weight = expf(score * t->scale);
            sum += weight;
            for (int64_t i = 0; i < n; i++)
                out[i] += weight * v[i];
        }
        for (int64_t i = 0; i < n; i++)
            out[i] /= behaviour && strcmp(behaviour, "wrong") == 0 ? 2 * sum : sum;
    }
    atomic_fetch_sub(&callers, 1);
    return backend ? 0 : -1;
}
