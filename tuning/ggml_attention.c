#include "ggml_attention.h"

#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

/* ---- the library ------------------------------------------------------------------------------------------------ */

/* What is used of ggml's interface, declared here so that nothing of it is needed to build. All its structures but the
 * argument of ggml_init stay opaque. */
typedef struct ggml_init_params {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc;
} ggml_init_params;

struct ggml_library {
    void *handle;
    const char *(*version)(void);
    void *(*init)(ggml_init_params);
    void (*free)(void *context);
    void *(*new_tensor_4d)(void *context, int type, int64_t, int64_t, int64_t, int64_t);
    void *(*permute)(void *context, void *tensor, int, int, int, int);
    void *(*flash_attn_ext)(void *context, void *q, void *k, void *v, void *mask, float scale, float bias,
                            float softcap);
    void *(*get_data)(const void *tensor);
    size_t (*row_size)(int type, int64_t values);
    size_t (*quantize_chunk)(int type, const float *from, void *to, int64_t start, int64_t rows, int64_t per_row,
                             const float *importance);
    size_t (*tensor_overhead)(void);
    size_t (*graph_overhead)(size_t nodes, bool gradients);
    void *(*new_graph)(void *context, size_t nodes, bool gradients);
    void (*build_forward)(void *graph, void *tensor);
    void *(*cpu_init)(void);
    void (*cpu_free)(void *backend);
    void (*cpu_set_threads)(void *backend, int threads);
    int (*compute)(void *backend, void *graph);
    void *backend;
};

const char *const ggml_formats[GGML_FORMATS] = {"f16", "q8_0", "q4_0"};
enum { GGML_TYPE_F32 = 0 };
static const int TYPES[GGML_FORMATS] = {1, 8, 2}; /* enum ggml_type */

static int type_of(const char *format) {
    for (int i = 0; i < GGML_FORMATS; i++)
        if (strcmp(format, ggml_formats[i]) == 0)
            return TYPES[i];
    cli_fail("ggml has no format '%s' here", format);
}

/* Where the python3 of $PATH has the package, "" if it has not. */
static char *installed_folder(void) {
    char line[4096] = "";
    FILE *python = popen("python3 -c 'import importlib.util as u; s = u.find_spec(\"llama_cpp\"); "
                         "print(s.submodule_search_locations[0] + \"/lib\" if s else \"\")' 2>/dev/null",
                         "r");
    if (python) {
        if (!fgets(line, sizeof line, python))
            line[0] = '\0';
        pclose(python);
    }
    line[strcspn(line, "\n")] = '\0';
    return cli_format("%s", line);
}

static void find(const ggml_library *g, const char *name, void *function) {
    void *address = dlsym(g->handle, name);
    if (!address)
        cli_fail("this ggml has no function %s; versions 0.3.36 of llama-cpp-python and some before and after it do",
                 name);
    memcpy(function, &address, sizeof address);
}

ggml_library *ggml_open(const char *folder, int n_threads) {
    ggml_library *g = cli_alloc(1, sizeof *g);
    char *in = folder ? cli_format("%s", folder) : installed_folder();
    char *file = cli_format("%s/libggml-cpu.so", in);
    g->handle = *in ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!g->handle) {
        cli_fail("%s; install it, python3 -m venv ggml && ggml/bin/pip install llama-cpp-python (it builds for "
                 "minutes), and "
                 "activate the venv or give --ggml FOLDER, that of libggml-cpu.so",
                 *in ? dlerror() : "python3 has no package llama_cpp, which brings ggml");
    }
    free(file);
    free(in);
    find(g, "ggml_version", &g->version);
    find(g, "ggml_init", &g->init);
    find(g, "ggml_free", &g->free);
    find(g, "ggml_new_tensor_4d", &g->new_tensor_4d);
    find(g, "ggml_permute", &g->permute);
    find(g, "ggml_flash_attn_ext", &g->flash_attn_ext);
    find(g, "ggml_get_data", &g->get_data);
    find(g, "ggml_row_size", &g->row_size);
    find(g, "ggml_quantize_chunk", &g->quantize_chunk);
    find(g, "ggml_tensor_overhead", &g->tensor_overhead);
    find(g, "ggml_graph_overhead_custom", &g->graph_overhead);
    find(g, "ggml_new_graph_custom", &g->new_graph);
    find(g, "ggml_build_forward_expand", &g->build_forward);
    find(g, "ggml_backend_cpu_init", &g->cpu_init);
    find(g, "ggml_backend_free", &g->cpu_free);
    find(g, "ggml_backend_cpu_set_n_threads", &g->cpu_set_threads);
    find(g, "ggml_backend_graph_compute", &g->compute);
    g->backend = g->cpu_init();
    g->cpu_set_threads(g->backend, n_threads);
    return g;
}

void ggml_close(ggml_library *library) {
    library->cpu_free(library->backend);
    dlclose(library->handle);
    free(library);
}

const char *ggml_version_of(const ggml_library *library) {
    return library->version();
}

/* ---- attention -------------------------------------------------------------------------------------------------- */

enum {
    TOKENS = 64,    /* different ones; the cache repeats them */
    GRAPH_NODES = 8 /* at most: two permutations, the attention, its operands */
};

struct ggml_attention {
    ggml_library *library;
    const char *format;
    char *name;
    bool interleaved;
    ggml_shape shape;
    float *q, *k, *v; /* k, v: [token][head][value] */
    void *memory, *context, **graphs, *first_output;
};

ggml_attention *ggml_attention_create(ggml_library *library, const char *format, bool interleaved, ggml_shape shape) {
    ggml_attention *a = cli_alloc(1, sizeof *a);
    const size_t heads = (size_t)shape.n_kv_heads, n_q = heads * (size_t)(shape.gqa * shape.head_dim);
    const size_t n_k = heads * (size_t)(TOKENS * shape.head_dim), n_v = heads * (size_t)(TOKENS * shape.v_head_dim);
    a->library = library;
    a->format = format;
    a->name = cli_format("ggml %s %s", format, interleaved ? "interleaved" : "contiguous");
    a->interleaved = interleaved;
    a->shape = shape;
    a->q = cli_alloc(n_q, sizeof *a->q);
    a->k = cli_alloc(n_k, sizeof *a->k);
    a->v = cli_alloc(n_v, sizeof *a->v);
    rng r = {1};
    rng_fill_gaussian(&r, a->q, n_q);
    rng_fill_gaussian(&r, a->k, n_k);
    rng_fill_gaussian(&r, a->v, n_v);
    return a;
}

void ggml_attention_destroy(ggml_attention *a) {
    if (a->context)
        a->library->free(a->context);
    memory_free(NULL, a->memory);
    free(a->graphs);
    free(a->q);
    free(a->k);
    free(a->v);
    free(a->name);
    free(a);
}

static size_t cache_bytes(const ggml_attention *a) {
    const ggml_shape *s = &a->shape;
    const int type = type_of(a->format);
    return (a->library->row_size(type, s->head_dim) + a->library->row_size(type, s->v_head_dim)) * (size_t)s->n_kv *
           (size_t)s->n_kv_heads;
}

/* A cache of K or V as ggml_flash_attn_ext wants to see it: values, tokens, heads. */
static void *new_cache(const ggml_attention *a, const float *values, int head_dim) {
    const ggml_library *g = a->library;
    const ggml_shape *s = &a->shape;
    const int type = type_of(a->format);
    const size_t row = g->row_size(type, head_dim);
    void *tensor = a->interleaved ? g->new_tensor_4d(a->context, type, head_dim, s->n_kv_heads, s->n_kv, 1)
                                  : g->new_tensor_4d(a->context, type, head_dim, s->n_kv, s->n_kv_heads, 1);
    uint8_t *rows = cli_alloc(TOKENS * (size_t)s->n_kv_heads, row), *data = g->get_data(tensor);
    g->quantize_chunk(type, values, rows, 0, (int64_t)TOKENS * s->n_kv_heads, head_dim, NULL);
    for (int token = 0; token < s->n_kv; token++) {
        for (int head = 0; head < s->n_kv_heads; head++) {
            const int at = a->interleaved ? token * s->n_kv_heads + head : head * s->n_kv + token;
            memcpy(data + (size_t)at * row, rows + (size_t)(token % TOKENS * s->n_kv_heads + head) * row, row);
        }
    }
    free(rows);
    return a->interleaved ? g->permute(a->context, tensor, 0, 2, 1, 3) : tensor;
}

static void prepare(void *context, int n) {
    ggml_attention *a = context;
    const ggml_library *g = a->library;
    const ggml_shape *s = &a->shape;
    const size_t q_bytes = (size_t)(s->gqa * s->n_kv_heads * s->head_dim) * sizeof(float);
    const size_t each = cache_bytes(a) + 2 * q_bytes + GRAPH_NODES * (g->tensor_overhead() + 64) +
                        g->graph_overhead(GRAPH_NODES, false);
    a->memory = memory_new(NULL, (size_t)n * each); /* of the same kind as our caches */
    a->context = g->init((ggml_init_params){(size_t)n * each, a->memory, false});
    if (!a->context)
        cli_fail("out of memory: %zu bytes for %s", (size_t)n * each, a->name);
    a->graphs = cli_alloc((size_t)n, sizeof *a->graphs);
    for (int i = 0; i < n; i++) {
        void *q = g->new_tensor_4d(a->context, GGML_TYPE_F32, s->head_dim, 1, s->gqa * s->n_kv_heads, 1);
        memcpy(g->get_data(q), a->q, q_bytes);
        void *k = new_cache(a, a->k, s->head_dim), *v = new_cache(a, a->v, s->v_head_dim);
        void *out = g->flash_attn_ext(a->context, q, k, v, NULL, 1 / sqrtf((float)s->head_dim), 0, 0);
        a->graphs[i] = g->new_graph(a->context, GRAPH_NODES, false);
        g->build_forward(a->graphs[i], out);
        a->first_output = i ? a->first_output : out;
    }
}

static void launch(void *context, int which) {
    ggml_attention *a = context;
    const int status = a->library->compute(a->library->backend, a->graphs[which]);
    if (status)
        cli_fail("%s: ggml_backend_graph_compute gives %d", a->name, status);
}

harness_guest ggml_attention_guest(ggml_attention *a) {
    return (harness_guest){a->name, a->shape.n_kv, cache_bytes(a), prepare, launch, a};
}

double ggml_attention_error(const ggml_attention *a) {
    const int head_dim = a->shape.head_dim, v_head_dim = a->shape.v_head_dim, heads = a->shape.n_kv_heads;
    double *o = cli_alloc((size_t)v_head_dim, sizeof *o), sum = 0, error = 0, norm = 0;
    for (int token = 0; token < TOKENS; token++) {
        double score = 0;
        for (int i = 0; i < head_dim; i++)
            score += (double)a->q[i] * a->k[token * heads * head_dim + i];
        /* The cache repeats its tokens, the first ones once more if they do not fit a whole number of times. */
        const int times = (a->shape.n_kv - token + TOKENS - 1) / TOKENS;
        const double weight = times > 0 ? times * exp(score / sqrt(head_dim)) : 0;
        sum += weight;
        for (int i = 0; i < v_head_dim; i++)
            o[i] += weight * a->v[token * heads * v_head_dim + i];
    }
    const float *found = a->library->get_data(a->first_output);
    for (int i = 0; i < v_head_dim; i++) {
        error += (found[i] - o[i] / sum) * (found[i] - o[i] / sum);
        norm += o[i] / sum * (o[i] / sum);
    }
    free(o);
    return error / norm;
}
