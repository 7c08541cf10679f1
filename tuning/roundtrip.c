#include "roundtrip.h"

#include <stdlib.h>
#include <string.h>

#include "contract.h"
#include "memory.h"

/* ---- spelling --------------------------------------------------------------------------------------------------- */

static side_spec parse_side(const char *whole, const char *text, tq_side side, int head_dim) {
    char *copy = cli_format("%s", text), *rest = copy;
    side_spec spec = {NULL, TQ_SCALE_DEFAULT, false, 0};
    char *base = strsep(&rest, "+");
    if (rest && (strcmp(rest, "centre") != 0 || side == TQ_SIDE_V)) {
        cli_fail("--formats %s: found '+%s' on the %s side; only +centre on the K side is known", whole, rest,
                 side == TQ_SIDE_K ? "K" : "V");
    }
    spec.centre = rest != NULL;
    char *name = strsep(&base, ":");
    tq_format_info info;
    cli_check(tq_format_find(name, head_dim, &info));
    if (base) {
        size_t n = strlen(base);
        bool known = false;
        for (const char *at = info.modes; *at && !known; at += strcspn(at, " "), at += strspn(at, " "))
            known = n == strcspn(at, " ") && strncmp(at, base, n) == 0;
        if (!known) {
            cli_fail("--formats %s: found mode '%s', and %s has %s", whole, base, name,
                     *info.modes ? info.modes : "no modes");
        }
        cli_check(tq_scale_mode_parse(base, &spec.mode));
    }
    spec.format = info.name;
    spec.bytes_per_value = info.bytes_per_value;
    free(copy);
    return spec;
}

format_spec format_spec_parse(const char *text, int head_dim) {
    const char *slash = strchr(text, '/');
    const int v_head_dim = tq_v_head_dim(head_dim);
    format_spec spec = {.name = text};
    if (slash) {
        char *k = cli_format("%.*s", (int)(slash - text), text);
        spec.k = parse_side(text, k, TQ_SIDE_K, head_dim);
        spec.v = parse_side(text, slash + 1, TQ_SIDE_V, v_head_dim);
        free(k);
    } else {
        spec.k = parse_side(text, text, TQ_SIDE_K, head_dim);
        spec.v = spec.k;
        tq_format_info of_v;
        cli_check(tq_format_find(spec.k.format, v_head_dim, &of_v));
        spec.v.bytes_per_value = of_v.bytes_per_value;
        spec.v.centre = false;
    }
    return spec;
}

static void add(format_spec **list, int *n, char *name, int head_dim) {
    *list = realloc(*list, (size_t)(*n + 1) * sizeof **list);
    if (!*list)
        cli_fail("out of memory: %d formats", *n + 1);
    (*list)[(*n)++] = format_spec_parse(name, head_dim);
}

int format_spec_all(int head_dim, format_spec **out) {
    int n = 0;
    *out = NULL;
    for (int i = 0; i < tq_format_count(); i++) {
        tq_format_info info;
        cli_check(tq_format_at(i, &info));
        if (info.head_dim != head_dim)
            continue;
        int mode_length = (int)strcspn(info.modes, " ");
        const char *colon = mode_length ? ":" : "";
        if (info.rotated)
            add(out, &n, cli_format("%s%s%.*s+centre", info.name, colon, mode_length, info.modes), head_dim);
        const char *mode = info.modes;
        do {
            int length = (int)strcspn(mode, " ");
            add(out, &n, cli_format("%s%s%.*s", info.name, colon, length, mode), head_dim);
            mode += length;
            mode += strspn(mode, " ");
        } while (*mode);
    }
    return n;
}

/* ---- through libtq ---------------------------------------------------------------------------------------------- */

typedef struct flight {
    const tq_plan *append, *dequantise; /* one of them is NULL */
    const tq_append_args *in;
    const tq_dequantise_args *back;
} flight;

static void fly(void *context, int thread_index, int thread_count) {
    const flight *f = context;
    const tq_launch launch = {NULL, 0, thread_index, thread_count, NULL};
    cli_check(f->append ? tq_append(f->append, f->in, &launch) : tq_dequantise(f->dequantise, f->back, &launch));
}

static tq_plan *plan_of(const tq_device *device, const npy *x, tq_op op, tq_side side, const char *format,
                        int threads) {
    contract c = {.op = op, .side = side, .head_dim = x->head_dim, .layout = "rows"};
    *(side == TQ_SIDE_K ? &c.k : &c.v) = format;
    tq_plan_desc desc = contract_plan(&c, x->heads, x->tokens, threads);
    tq_plan *plan;
    cli_check(tq_plan_create(device, &desc, &plan));
    return plan;
}

static float *mean_of(const npy *x) {
    const int tokens = x->tokens < CENTRE_TOKENS ? x->tokens : CENTRE_TOKENS;
    const size_t d = (size_t)x->head_dim;
    float *mean = cli_alloc((size_t)x->heads * d, sizeof *mean);
    for (int h = 0; h < x->heads; h++) {
        for (size_t i = 0; i < d; i++) {
            double sum = 0;
            for (int t = 0; t < tokens; t++)
                sum += x->data[((size_t)h * (size_t)x->tokens + (size_t)t) * d + i];
            mean[(size_t)h * d + i] = (float)(sum / tokens);
        }
    }
    return mean;
}

/* The first n_tokens of every head. */
static void through(const tq_device *device, pool *p, const npy *x, tq_side side, const side_spec *spec, int n_tokens,
                    float *out) {
    const int32_t zero = 0;
    const size_t d = (size_t)x->head_dim, head_stride = (size_t)x->tokens * d;
    const size_t bytes = (size_t)x->heads * head_stride * sizeof(float);
    tq_format_info info;
    cli_check(tq_format_find(spec->format, x->head_dim, &info));
    tq_cache cache = {.token_stride = (size_t)info.row_bytes, .n_slots = x->tokens};
    cache.head_stride = cache.token_stride * (size_t)x->tokens;
    cache.seq_stride = cache.head_stride * (size_t)x->heads;
    cache.bytes = cache.seq_stride;
    cache.data = memory_new(device, cache.bytes);
    float *mean = spec->centre ? mean_of(x) : NULL, *centre = NULL;
    if (mean)
        centre = memory_copy(device, mean, (size_t)x->heads * d * sizeof *mean);
    float *values = memory_copy(device, x->data, bytes), *decoded = memory_copy(device, out, bytes);
    int32_t *first_slot = memory_copy(device, &zero, sizeof zero);
    const tq_append_args in = {.batch = 1,
                               .n_tokens = n_tokens,
                               .x = values,
                               .x_seq_stride = (size_t)x->heads * head_stride,
                               .x_token_stride = d,
                               .x_head_stride = head_stride,
                               .first_slot = first_slot,
                               .cache = &cache,
                               .mean = centre,
                               .mode = spec->mode};
    const tq_dequantise_args back = {.batch = 1,
                                     .n_tokens = n_tokens,
                                     .cache = &cache,
                                     .first_slot = first_slot,
                                     .mean = centre,
                                     .x = decoded,
                                     .x_seq_stride = in.x_seq_stride,
                                     .x_token_stride = d,
                                     .x_head_stride = head_stride};
    tq_plan *append = plan_of(device, x, TQ_OP_APPEND, side, spec->format, pool_threads(p));
    tq_plan *dequantise = plan_of(device, x, TQ_OP_DEQUANTISE, side, spec->format, pool_threads(p));
    memory_run(device, p, fly, &(flight){.append = append, .in = &in});
    memory_run(device, p, fly, &(flight){.dequantise = dequantise, .back = &back});
    memory_read(device, out, decoded, bytes);
    void *const memory[] = {cache.data, centre, values, decoded, first_slot};
    for (int i = 0; i < CLI_COUNT(memory); i++)
        memory_free(device, memory[i]);
    tq_plan_destroy(append);
    tq_plan_destroy(dequantise);
    free(mean);
}

void roundtrip(const tq_device *device, pool *p, const npy *x, tq_side side, const side_spec *spec, int n_sink,
               float *out) {
    through(device, p, x, side, spec, x->tokens, out);
    if (n_sink > 0) {
        const side_spec f16 = {.format = "f16"};
        through(device, p, x, side, &f16, n_sink < x->tokens ? n_sink : x->tokens, out);
    }
}

double relative_mse(const npy *x, const float *y) {
    const size_t d = (size_t)x->head_dim, rows = (size_t)x->heads * (size_t)x->tokens;
    double total = 0;
    for (size_t r = 0; r < rows; r++) {
        double error = 0, power = 0;
        for (size_t i = r * d; i < (r + 1) * d; i++) {
            double delta = (double)x->data[i] - y[i];
            error += delta * delta;
            power += (double)x->data[i] * x->data[i];
        }
        total += power > 0 ? error / power : 0;
    }
    return total / (double)rows;
}
