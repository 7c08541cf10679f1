#include "contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

static bool same_name(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool contract_equal(const contract *a, const contract *b) {
    return a->op == b->op && a->side == b->side && a->head_dim == b->head_dim && a->gqa == b->gqa &&
           same_name(a->k, b->k) && same_name(a->v, b->v) && same_name(a->layout, b->layout) && a->mode == b->mode &&
           a->bias_pairs == b->bias_pairs;
}

bool contract_same_shape(const contract *a, const contract *b) {
    return a->head_dim == b->head_dim && a->gqa == b->gqa && a->side == b->side;
}

contract contract_of(const tq_variant_info *v) {
    return (contract){.op = v->op,
                      .side = v->k ? TQ_SIDE_K : TQ_SIDE_V,
                      .head_dim = v->head_dim,
                      .gqa = v->gqa,
                      .k = v->k,
                      .v = v->v,
                      .layout = v->layout};
}

bool contract_candidate(const tq_device *device, const contract *c, int *index, tq_variant_info *out) {
    for (; *index < tq_variant_count(); ++*index) {
        cli_check(tq_variant_at(*index, out));
        contract found = contract_of(out);
        if (contract_equal(&found, c) && tq_device_runs(device, out->target))
            return true;
    }
    return false;
}

const char *contract_text(const contract *c) {
    static char text[160];
    char gqa[24] = "";
    bool rows = !c->layout || strcmp(c->layout, "rows") == 0;
    if (c->gqa)
        snprintf(gqa, sizeof gqa, " gqa %d", c->gqa);
    snprintf(text, sizeof text, "%s head_dim %d%s %s%s%s%s%s", tq_op_name(c->op), c->head_dim, gqa, c->k ? c->k : "",
             c->k && c->v ? "/"
             : c->v       ? "V "
                          : "",
             c->v ? c->v : "", rows ? "" : " ", rows ? "" : c->layout);
    return text;
}

const tq_device *contract_device(const contract_axes *axes) {
    const tq_device *device;
    cli_check(tq_device_find(axes->device, &device));
    return device;
}

void contract_sizes(const tq_device *device, int *n_kv, int *n_kv_heads) {
    bool simt = memory_is_simt(device);
    if (!*n_kv)
        *n_kv = simt ? CONTRACT_SIMT_N_KV : CONTRACT_N_KV;
    if (!*n_kv_heads)
        *n_kv_heads = simt ? CONTRACT_SIMT_KV_HEADS : CONTRACT_KV_HEADS;
}

int contract_values(const contract *c, tq_side side) {
    return tq_attends(c->op) && side == TQ_SIDE_V ? tq_v_head_dim(c->head_dim) : c->head_dim;
}

tq_plan_desc contract_plan(const contract *c, int n_kv_heads, int max_n_kv, int threads) {
    tq_plan_desc desc = TQ_PLAN_DESC_INIT;
    desc.op = c->op;
    desc.side = c->side;
    desc.head_dim = c->head_dim;
    desc.n_kv_heads = n_kv_heads;
    desc.gqa = c->gqa ? c->gqa : 1;
    desc.k_format = c->k;
    desc.v_format = c->v;
    desc.layout = c->layout;
    desc.max_n_kv = max_n_kv;
    desc.n_threads = threads;
    desc.max_bias_pairs = c->bias_pairs;
    return desc;
}

/* "" where there is no choice. */
static const char *modes_of(const contract *c, tq_side side) {
    const char *format = side == TQ_SIDE_K ? c->k : c->v;
    tq_format_info info = {.modes = ""};
    if (format)
        cli_check(tq_format_find(format, contract_values(c, side), &info));
    return info.modes;
}

tq_scale_mode contract_mode(const contract *c, tq_side side) {
    return tq_has_word(modes_of(c, side), tq_scale_mode_name(c->mode)) ? c->mode : TQ_SCALE_DEFAULT;
}

/* ---- what the build holds --------------------------------------------------------------------------------------- */

static void add_int(int_list *list, int value) {
    for (int i = 0; i < list->n; i++)
        if (list->at[i] == value)
            return;
    if (list->n < CLI_MAX_LIST)
        list->at[list->n++] = value;
}

typedef struct build_axes {
    int_list head_dims, gqas;
    name_list k, v, layouts; /* all layouts; what goes with some of those asked for */
} build_axes;

static bool contains(const name_list *list, const char *value) {
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->at[i], value) == 0)
            return true;
    return false;
}

static void add_name(name_list *list, const char *value) {
    if (!contains(list, value) && list->n < CLI_MAX_LIST)
        list->at[list->n++] = value;
}

/* All variants of the CPU count, whether they run on this one or not. */
static bool is_of(const tq_device *device, const tq_variant_info *v) {
    return memory_is_cpu(device) ? strcmp(v->kind, "cpu") == 0 : tq_device_runs(device, v->target);
}

static build_axes build_axes_of(const tq_device *device, tq_op op, const name_list *layouts) {
    build_axes b = {0};
    tq_variant_info v;
    for (int i = 0; i < tq_variant_count(); i++) {
        cli_check(tq_variant_at(i, &v));
        if (v.op != op || !is_of(device, &v))
            continue;
        add_name(&b.layouts, v.layout);
        if (contains(layouts, v.layout)) {
            add_int(&b.head_dims, v.head_dim);
            add_int(&b.gqas, v.gqa);
            if (v.k)
                add_name(&b.k, v.k);
            if (v.v)
                add_name(&b.v, v.v);
        }
    }
    return b;
}

static int_list choose_ints(const char *option, const int_list *asked, const int_list *legal) {
    char text[256] = "";
    for (int i = 0; i < legal->n && strlen(text) < sizeof text - 16; i++)
        snprintf(text + strlen(text), 16, "%s%d", i ? ", " : "", legal->at[i]);
    for (int i = 0; i < asked->n; i++) {
        int_list check = *legal;
        add_int(&check, asked->at[i]);
        if (check.n > legal->n)
            cli_fail("--%s %d: not in this build, which has %s", option, asked->at[i], text);
    }
    return asked->n ? *asked : *legal;
}

static name_list choose_names(const char *option, const name_list *asked, const name_list *legal) {
    char text[512] = "";
    for (int i = 0; i < legal->n && strlen(text) < sizeof text - 64; i++)
        snprintf(text + strlen(text), 64, "%s%s", i ? ", " : "", legal->at[i]);
    for (int i = 0; i < asked->n; i++)
        if (!contains(legal, asked->at[i]))
            cli_fail("--%s %s: not in this build, which has %s", option, asked->at[i], text);
    return asked->n ? *asked : *legal;
}

/* ---- selection -------------------------------------------------------------------------------------------------- */

typedef struct contract_array {
    contract *at;
    int n;
} contract_array;

static void append_one(contract_array *list, contract c) {
    list->at = realloc(list->at, (size_t)(list->n + 1) * sizeof *list->at);
    if (!list->at)
        cli_fail("out of memory: %d contracts", list->n + 1);
    list->at[list->n++] = c;
}

/* With every score bias, and every scale mode of those asked for that one of its formats has. */
static void append(contract_array *list, contract c, const contract_axes *axes) {
    const bool choice = modes_of(&c, TQ_SIDE_K)[0] || modes_of(&c, TQ_SIDE_V)[0];
    for (int i = 0; i < (choice && axes->modes.n ? axes->modes.n : 1); i++) {
        if (choice && axes->modes.n)
            cli_check(tq_scale_mode_parse(axes->modes.at[i], &c.mode));
        if (c.mode != TQ_SCALE_DEFAULT && !contract_mode(&c, TQ_SIDE_K) && !contract_mode(&c, TQ_SIDE_V))
            continue;
        for (int j = 0; j < (axes->biases.n ? axes->biases.n : 1); j++) {
            c.bias_pairs = axes->biases.n ? axes->biases.at[j] : 0;
            append_one(list, c);
        }
    }
}

/* What a layout has of the formats chosen. */
static name_list common_names(const name_list *chosen, const name_list *legal) {
    name_list common = {0};
    for (int i = 0; i < chosen->n; i++)
        if (contains(legal, chosen->at[i]))
            add_name(&common, chosen->at[i]);
    return common;
}

static void append_pairs(contract_array *list, contract base, const contract_axes *axes, const name_list *k,
                         const name_list *v) {
    bool combine = axes->k.n && axes->v.n;
    const name_list *first = axes->v.n && !axes->k.n ? v : k;
    for (int i = 0; i < first->n; i++) {
        for (int j = 0; j < (combine ? v->n : 1); j++) {
            base.k = first->at[i];
            base.v = combine ? v->at[j] : first->at[i];
            append(list, base, axes);
        }
    }
}

static void append_sides(contract_array *list, contract base, const contract_axes *axes, const name_list *k,
                         const name_list *v) {
    base.gqa = 0;
    for (int i = 0; i < k->n && (axes->k.n || !axes->v.n); i++) {
        base.side = TQ_SIDE_K;
        base.k = k->at[i];
        append(list, base, axes);
    }
    base.k = NULL;
    for (int i = 0; i < v->n && (axes->v.n || !axes->k.n); i++) {
        base.side = TQ_SIDE_V;
        base.v = v->at[i];
        append(list, base, axes);
    }
}

int contract_list(const contract_axes *axes, contract **out) {
    contract_array list = {NULL, 0};
    tq_op op;
    cli_check(tq_op_parse(axes->op, &op));
    const tq_device *device = contract_device(axes);
    build_axes build = build_axes_of(device, op, &axes->layouts);
    if (!build.layouts.n && !memory_is_cpu(device))
        cli_fail("--op %s --device %s: this build holds no kernel for it", axes->op, axes->device);
    if (!build.layouts.n)
        cli_fail("--op %s: this build holds no kernel for it", axes->op);
    choose_names("layout", &axes->layouts, &build.layouts);
    int_list head_dims = choose_ints("head-dim", &axes->head_dims, &build.head_dims);
    int_list gqas = tq_attends(op) ? choose_ints("gqa", &axes->gqas, &build.gqas) : cli_one_int(0);
    name_list k = choose_names("k", &axes->k, &build.k), v = choose_names("v", &axes->v, &build.v);
    for (int i = 0; i < head_dims.n * gqas.n * axes->layouts.n; i++) {
        const int layout = i % axes->layouts.n, shape = i / axes->layouts.n;
        contract base = {.op = op,
                         .head_dim = head_dims.at[shape / gqas.n],
                         .gqa = gqas.at[shape % gqas.n],
                         .layout = axes->layouts.at[layout]};
        const name_list one = cli_one_name(base.layout);
        const build_axes has = build_axes_of(device, op, &one);
        const name_list layout_k = common_names(&k, &has.k), layout_v = common_names(&v, &has.v);
        (tq_attends(op) ? append_pairs : append_sides)(&list, base, axes, &layout_k, &layout_v);
    }
    if (axes->biases.n && !tq_attends(op))
        cli_fail("--bias: kernels of --op %s take no score bias", axes->op);
    if (!list.n)
        cli_fail("--scales: no format asked for has such a scale mode; tq info lists those of each");
    *out = list.at;
    return list.n;
}
