/* plan.c: from a shape to a plan. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char call[] = "tq_plan_create";

static tq_status check_range(const char *what, int found, int low, int high) {
    if (found >= low && found <= high)
        return TQ_OK;
    return tq_fail(TQ_ERR_ARGUMENT, "%s: desc.%s is %d; legal is %d to %d", call, what, found, low, high);
}

static tq_status check_numbers(const tq_device *device, const tq_plan_desc *desc) {
    int most_splits = device->kind == TQ_KIND_CPU ? TQ_MAX_SPLITS : TQ_MAX_GPU_SPLITS;
    tq_status status;
    if ((unsigned)desc->op > TQ_OP_PREFILL)
        return tq_fail(TQ_ERR_ARGUMENT,
                       "%s: desc.op is %d; legal are TQ_OP_DECODE, TQ_OP_APPEND, TQ_OP_DEQUANTISE, TQ_OP_REPACK, "
                       "TQ_OP_PREFILL",
                       call, (int)desc->op);
    if ((unsigned)desc->effort > TQ_EFFORT_PINNED)
        return tq_fail(TQ_ERR_ARGUMENT,
                       "%s: desc.effort is %d; legal are TQ_EFFORT_DEFAULT, _MEASURE, _FILE_ONLY, _PINNED", call,
                       (int)desc->effort);
    if ((status = check_range("head_dim", desc->head_dim, 1, TQ_MAX_HEAD_DIM)) ||
        (status = check_range("n_kv_heads", desc->n_kv_heads, 1, TQ_MAX_KV_HEADS)) ||
        (status = check_range("max_batch", desc->max_batch, 1, TQ_MAX_BATCH)) ||
        (status = check_range("max_n_kv", desc->max_n_kv, 1, TQ_MAX_N_KV)) ||
        (status = check_range("n_threads", desc->n_threads, 1, TQ_MAX_THREADS)) ||
        (status = check_range("n_splits", desc->n_splits, 0, most_splits)) ||
        (status = check_range("max_bias_pairs", desc->max_bias_pairs, 0, TQ_MAX_BIAS_PAIRS)))
        return status;
    if (tq_attends(desc->op))
        return check_range("gqa", desc->gqa, 1, TQ_MAX_GQA);
    if ((status = check_range("side", (int)desc->side, TQ_SIDE_K, TQ_SIDE_V)))
        return status;
    int v_head_dim = tq_v_head_dim(desc->head_dim);
    if (desc->side == TQ_SIDE_V && v_head_dim != desc->head_dim)
        return tq_fail(TQ_ERR_ARGUMENT,
                       "%s: desc.head_dim is %d; V rows beside such K rows have %d values, which is legal", call,
                       desc->head_dim, v_head_dim);
    return TQ_OK;
}

static int touches(const tq_plan_desc *desc, tq_side side) {
    return tq_attends(desc->op) || desc->side == side;
}

/* What the device runs of a registry: all of its variants, or none. */
static int n_runnable(const tq_device *device, const tq_registry *registry) {
    return tq_device_runs_registry(device, registry) ? registry->n_variants : 0;
}

static tq_status check_layout(const tq_device *device, const char *layout) {
    tq_list layouts = {""};
    for (int r = 0; r < tq_registry_count(); r++) {
        const tq_registry *registry = tq_registry_at(r);
        int n_here = n_runnable(device, registry);
        for (int i = 0; i < n_here; i++) {
            const char *known = registry->variants[i]->layout;
            if (strcmp(known, layout) == 0)
                return TQ_OK;
            tq_list_add(&layouts, known);
        }
    }
    if (!layouts.text[0])
        return TQ_OK; /* no kernels at all, which is said better later */
    return tq_fail(TQ_ERR_UNSUPPORTED, "%s: desc.layout is '%s'; this build has: %s", call, layout, layouts.text);
}

/* ---- candidates ------------------------------------------------------------------------------------------------- */

static int holds(const tq_format_spec *spec, const char *name, int head_dim) {
    return spec && spec->head_dim == head_dim && strcmp(spec->name, name) == 0;
}

/* Of the rows of one side; desc.head_dim is that of K where both sides take part. */
static int head_dim_of(const tq_plan_desc *desc, tq_side side) {
    return side == TQ_SIDE_V && tq_attends(desc->op) ? tq_v_head_dim(desc->head_dim) : desc->head_dim;
}

static int matches_but_gqa(const tq_variant *v, const tq_plan_desc *desc, const char *layout) {
    return v->op == (int)desc->op && strcmp(v->layout, layout) == 0 &&
           (!touches(desc, TQ_SIDE_K) || holds(v->k, desc->k_format, head_dim_of(desc, TQ_SIDE_K))) &&
           (!touches(desc, TQ_SIDE_V) || holds(v->v, desc->v_format, head_dim_of(desc, TQ_SIDE_V)));
}

static int matches(const tq_variant *v, const tq_plan_desc *desc, const char *layout) {
    return matches_but_gqa(v, desc, layout) &&
           (!tq_attends(desc->op) || (v->gqa == desc->gqa && desc->max_bias_pairs <= tq_most_bias_pairs(v)));
}

/* In registry order. out may be NULL to count. */
static int find_candidates(const tq_device *device, const tq_plan_desc *desc, const char *layout,
                           const tq_variant **out) {
    int n = 0;
    for (int r = 0; r < tq_registry_count(); r++) {
        const tq_registry *registry = tq_registry_at(r);
        int n_here = n_runnable(device, registry);
        for (int i = 0; i < n_here; i++)
            if (matches(registry->variants[i], desc, layout)) {
                if (out)
                    out[n] = registry->variants[i];
                n++;
            }
    }
    return n;
}

/* Pairs of a score bias that GPU kernels are made for: the fewest that are enough. */
enum { MOST_KERNEL_PAIRS = 32 };
static int kernel_pairs(int pairs) {
    return pairs <= 8 ? 8 : pairs <= 16 ? 16 : MOST_KERNEL_PAIRS;
}

/* The command that makes what the build lacks, for the best target that the device runs. */
static void write_command(const tq_device *device, const tq_plan_desc *desc, const char *layout, char *out,
                          size_t size) {
    const char *arch = *device->arch ? device->arch : "c";
    char layout_option[40] = "", op_option[24] = "", bias_option[24] = "";
    for (int r = tq_registry_count() - 1; r >= 0 && !*device->arch; r--)
        if (tq_device_runs_registry(device, tq_registry_at(r)))
            arch = tq_registry_at(r)->target;
    if (strcmp(layout, "rows") != 0)
        snprintf(layout_option, sizeof layout_option, " --layout %s", layout);
    if (desc->op != TQ_OP_DECODE)
        snprintf(op_option, sizeof op_option, " --op %s", tq_op_name(desc->op));
    if (*device->arch && desc->max_bias_pairs > 0)
        snprintf(bias_option, sizeof bias_option, " --bias %d", kernel_pairs(desc->max_bias_pairs));
    int n = snprintf(out, size, "gen/tqgen --arch %s%s --head-dim %d", arch, op_option, desc->head_dim);
    if (n < 0 || (size_t)n >= size)
        return;
    out += n;
    size -= (size_t)n;
    if (tq_attends(desc->op))
        snprintf(out, size, " --k %s --v %s --gqa %d%s%s -o DIR", desc->k_format, desc->v_format, desc->gqa,
                 layout_option, bias_option);
    else
        snprintf(out, size, " --%s %s%s -o DIR", desc->side == TQ_SIDE_K ? "k" : "v",
                 desc->side == TQ_SIDE_K ? desc->k_format : desc->v_format, layout_option);
}

/* Names the nearest that there is: the GQA ratios of this pair of formats, else the pairs at this head_dim. */
static tq_status fail_no_candidate(const tq_device *device, const tq_plan_desc *desc, const char *layout) {
    tq_list gqas = {""}, pairs = {""};
    char command[280], word[100];
    int most_pairs = -1; /* of kernels that lack nothing else */
    write_command(device, desc, layout, command, sizeof command);
    if (!tq_attends(desc->op))
        return tq_fail(TQ_ERR_UNSUPPORTED,
                       "%s: this build has no %s kernel for this format that %s runs; make one with: %s", call,
                       tq_op_name(desc->op), device->name, command);
    for (int r = 0; r < tq_registry_count(); r++) {
        const tq_registry *registry = tq_registry_at(r);
        int n_here = n_runnable(device, registry);
        for (int i = 0; i < n_here; i++) {
            const tq_variant *v = registry->variants[i];
            snprintf(word, sizeof word, "%d", v->gqa);
            if (matches_but_gqa(v, desc, layout)) {
                tq_list_add(&gqas, word);
                if (v->gqa == desc->gqa && tq_most_bias_pairs(v) > most_pairs)
                    most_pairs = tq_most_bias_pairs(v);
            }
            if (v->op == (int)desc->op && v->k->head_dim == desc->head_dim && strcmp(v->layout, layout) == 0) {
                snprintf(word, sizeof word, "%s/%s", v->k->name, v->v->name);
                tq_list_add(&pairs, word);
            }
        }
    }
    if (most_pairs >= 0 && desc->max_bias_pairs > MOST_KERNEL_PAIRS)
        return tq_fail(TQ_ERR_UNSUPPORTED, "%s: desc.max_bias_pairs is %d; legal on GPUs is 0 to %d", call,
                       desc->max_bias_pairs, MOST_KERNEL_PAIRS);
    if (most_pairs >= 0)
        return tq_fail(TQ_ERR_UNSUPPORTED,
                       "%s: desc.max_bias_pairs is %d; kernels of this build take %d at most; make another with: %s",
                       call, desc->max_bias_pairs, most_pairs, command);
    if (gqas.text[0])
        return tq_fail(TQ_ERR_UNSUPPORTED,
                       "%s: desc.gqa is %d; for head_dim %d and %s/%s this build has %s; make another with: %s", call,
                       desc->gqa, desc->head_dim, desc->k_format, desc->v_format, gqas.text, command);
    if (!pairs.text[0])
        return tq_fail(TQ_ERR_UNSUPPORTED,
                       "%s: this build has no %s kernel for head_dim %d and layout %s that %s runs; make one with: %s",
                       call, tq_op_name(desc->op), desc->head_dim, layout, device->name, command);
    return tq_fail(TQ_ERR_UNSUPPORTED,
                   "%s: formats are %s/%s; for head_dim %d this build has k/v %s; make another with: %s", call,
                   desc->k_format, desc->v_format, desc->head_dim, pairs.text, command);
}

static int is_known(const char *format) {
    const tq_format_spec *spec;
    for (int i = 0; (spec = tq_format_spec_at(i)); i++)
        if (strcmp(spec->name, format) == 0)
            return 1;
    return 0;
}

/* The formats that the op touches. *out: the last of them; of append and dequantise, the only one. */
static tq_status check_formats(const tq_device *device, const tq_plan_desc *desc, const char *layout,
                               const tq_format_spec **out) {
    const char *const names[] = {desc->k_format, desc->v_format};
    static const char *const arguments[] = {"desc.k_format", "desc.v_format"};
    for (int side = TQ_SIDE_K; side <= TQ_SIDE_V; side++) {
        if (!touches(desc, (tq_side)side))
            continue;
        if (!names[side])
            return tq_fail(TQ_ERR_ARGUMENT, "%s: %s is NULL; legal are the names that tq_format_at gives", call,
                           arguments[side]);
        tq_status status = tq_format_lookup(arguments[side], names[side], head_dim_of(desc, (tq_side)side), out);
        if (!status)
            continue;
        char reason[512], command[280];
        snprintf(reason, sizeof reason, "%s", tq_error_message());
        if (!is_known(names[side]) || (tq_attends(desc->op) && (!names[TQ_SIDE_V] || !is_known(names[TQ_SIDE_V]))))
            return tq_fail(status, "%s: %s", call, reason);
        write_command(device, desc, layout, command, sizeof command);
        return tq_fail(status, "%s: %s; make another with: %s", call, reason, command);
    }
    return TQ_OK;
}

/* ---- plans ------------------------------------------------------------------------------------------------------ */

/* Enough splits for two per thread, none shorter than is worth its overhead. */
static void set_cpu_splits(tq_plan *plan) {
    int64_t pairs = (int64_t)plan->max_batch * plan->n_kv_heads;
    int64_t wanted = plan->n_threads > 1 ? (2 * (int64_t)plan->n_threads + pairs - 1) / pairs : 1;
    int64_t most = plan->max_n_kv / TQ_MIN_SPLIT_KEYS;
    most = most < 1 ? 1 : most > TQ_MAX_SPLITS ? TQ_MAX_SPLITS : most;
    plan->n_splits = (int)(wanted < most ? wanted : most);
    plan->min_split_keys = TQ_MIN_SPLIT_KEYS;
}

/* All blocks take about as long, so that a device is busy for whole waves of as many blocks as it takes at a time: the
 * part of that time for which it is fully used. */
static double busy_part(const tq_plan *plan, int n_splits) {
    int64_t blocks = (int64_t)plan->max_batch * plan->n_kv_heads * n_splits;
    int64_t at_a_time = (int64_t)plan->device->multiprocessors * plan->variant->gpu->blocks_per_sm;
    int64_t waves = (blocks + at_a_time - 1) / at_a_time;
    return (double)blocks / (double)(waves * at_a_time);
}

/* The fewest splits that use the device nearly as well as any number could, none shorter than is worth its overhead. */
static void set_gpu_splits(tq_plan *plan) {
    static const double nearly = 0.9;
    int step = plan->variant->gpu->keys_per_step, least = (TQ_MIN_GPU_SPLIT_KEYS + step - 1) / step * step;
    int most = plan->max_n_kv / least, n = 1;
    most = most < 1 ? 1 : most > TQ_MAX_AUTO_GPU_SPLITS ? TQ_MAX_AUTO_GPU_SPLITS : most;
    double best = 0;
    for (int i = 1; i <= most; i++)
        best = busy_part(plan, i) > best ? busy_part(plan, i) : best;
    while (busy_part(plan, n) < nearly * best)
        n++;
    plan->n_splits = n;
    plan->min_split_keys = least;
}

tq_status tq_plan_use(tq_plan *plan, const tq_variant *variant) {
    plan->variant = variant;
    if (tq_on_gpu(plan)) {
        const tq_registry *registry;
        tq_variant_find(variant->name, &registry);
        tq_status status = plan->device->ops->prepare(plan->device, registry, variant, &plan->function);
        if (status)
            return status;
    }
    if (plan->op == TQ_OP_DECODE && tq_on_gpu(plan))
        set_gpu_splits(plan);
    else
        set_cpu_splits(plan);
    if (plan->splits_asked) {
        plan->n_splits = plan->splits_asked;
        plan->min_split_keys = 1;
    }
    tq_workspace_layout(plan);
    return TQ_OK;
}

static tq_status check_desc(const tq_device *device, const tq_plan_desc *desc, const char *layout,
                            const tq_format_spec **format) {
    tq_status status;
    for (int r = 0; r < tq_registry_count(); r++)
        if (tq_registry_at(r)->abi != TQ_KERNEL_ABI)
            return tq_fail(TQ_ERR_UNSUPPORTED, "%s: registry '%s' has kernel ABI %d; this libtq has %d", call,
                           tq_registry_at(r)->name, tq_registry_at(r)->abi, TQ_KERNEL_ABI);
    if ((status = check_numbers(device, desc)) || (status = check_formats(device, desc, layout, format)) ||
        (status = check_layout(device, layout)))
        return status;
    return desc->effort == TQ_EFFORT_PINNED ? tq_check_pin(device, desc->pin) : TQ_OK;
}

tq_status tq_plan_create(const tq_device *device, const tq_plan_desc *desc, tq_plan **out) {
    const tq_format_spec *format = NULL;
    if (!out)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: out is NULL", call);
    *out = NULL;
    if (!desc)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: desc is NULL", call);
    if (desc->struct_size != sizeof *desc)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: desc.struct_size is %zu; legal is %zu (start from TQ_PLAN_DESC_INIT)",
                       call, desc->struct_size, sizeof *desc);
    if (!device)
        device = tq_device_at(0);
    const char *layout = desc->layout ? desc->layout : "rows";
    tq_status status = check_desc(device, desc, layout, &format);
    if (status)
        return status;
    int n = find_candidates(device, desc, layout, NULL);
    if (n == 0)
        return fail_no_candidate(device, desc, layout);

    tq_plan *plan = calloc(1, sizeof *plan + (size_t)n * sizeof *plan->candidates);
    if (!plan)
        return tq_fail(TQ_ERR_MEMORY, "%s: out of memory", call);
    plan->device = device;
    plan->format = format;
    plan->op = desc->op;
    plan->side = desc->side;
    plan->head_dim = desc->head_dim;
    plan->n_kv_heads = desc->n_kv_heads;
    plan->gqa = tq_attends(desc->op) ? desc->gqa : 0;
    plan->max_batch = desc->max_batch;
    plan->max_n_kv = desc->max_n_kv;
    plan->max_bias_pairs = desc->max_bias_pairs;
    plan->n_threads = desc->n_threads;
    plan->splits_asked = desc->n_splits;
    plan->n_candidates = find_candidates(device, desc, layout, plan->candidates);
    if ((status = tq_choose(plan, desc)) || (status = tq_plan_use(plan, plan->candidates[0]))) {
        free(plan);
        return status;
    }
    *out = plan;
    return TQ_OK;
}

void tq_plan_destroy(tq_plan *plan) {
    free(plan);
}

const char *tq_plan_variant(const tq_plan *plan) {
    return plan ? plan->variant->name : "";
}

const char *tq_plan_why(const tq_plan *plan) {
    return plan ? plan->why : "";
}

const char *tq_plan_runner_up(const tq_plan *plan, int index) {
    return plan && index >= 0 && index < plan->n_candidates - 1 ? plan->candidates[index + 1]->name : NULL;
}

int tq_plan_splits(const tq_plan *plan) {
    return plan ? plan->n_splits : 0;
}

size_t tq_plan_workspace_bytes(const tq_plan *plan) {
    return plan ? plan->workspace_bytes : 0;
}
