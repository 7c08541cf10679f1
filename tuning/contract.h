/* contract.h: what a caller may ask a kernel for (op, head_dim, GQA ratio, formats, layout), and the lists of it that
 * the options --op --head-dim --gqa --k --v --layout --device select from this build. */
#ifndef TQ_CONTRACT_H
#define TQ_CONTRACT_H

#include "cli.h"
#include "tq.h"

typedef struct contract {
    tq_op op;
    tq_side side;      /* append, dequantise */
    int head_dim, gqa; /* gqa 0: append, dequantise */
    const char *k, *v; /* NULL on the side that the op does not touch */
    const char *layout;
} contract;

/* Filled by cli_parse through CONTRACT_OPTIONS; the initial values are the command's defaults, empty lists mean all. */
typedef struct contract_axes {
    const char *op, *layout, *device;
    int_list head_dims, gqas;
    name_list k, v;
} contract_axes;

#define CONTRACT_AXES_INIT                                                                                             \
    { .op = "decode", .layout = "rows", .device = "cpu" }

/* clang-format off */
#define CONTRACT_OPTIONS(axes)                                                                                         \
    {"op", "OP", CLI_TEXT, &(axes).op, 0, 0, "decode, append or dequantise (decode)"},                                 \
    {"head-dim", "LIST", CLI_INTS, &(axes).head_dims, 1, 1 << 16, "values per head vector"},                           \
    {"gqa", "LIST", CLI_INTS, &(axes).gqas, 1, 1 << 16, "query heads per KV head (decode)"},                           \
    {"k", "LIST", CLI_NAMES, &(axes).k, 0, 0, "K formats; without --v, V takes the same one"},                         \
    {"v", "LIST", CLI_NAMES, &(axes).v, 0, 0, "V formats; with --k, every combination"},                               \
    {"layout", "NAME", CLI_TEXT, &(axes).layout, 0, 0, "cache layout (rows)"},                                         \
    {"device", "NAME", CLI_TEXT, &(axes).device, 0, 0, "device (cpu)"}
/* clang-format on */

const tq_device *contract_device(const contract_axes *axes);

/* Every contract that the axes select, in registry order of the formats; fails if a value is nowhere in this build.
 * Returns the count; the caller frees *out. */
int contract_list(const contract_axes *axes, contract **out);

/* The next variant of the contract at or after *index that runs here; false when there is none. */
bool contract_candidate(const contract *c, int *index, tq_variant_info *out);
bool contract_equal(const contract *a, const contract *b);
contract contract_of(const tq_variant_info *variant);
/* "decode head_dim 128 gqa 4 turbo3/turbo3"; valid until the next call. */
const char *contract_text(const contract *c);

/* Plan description of this contract, for one sequence. */
tq_plan_desc contract_plan(const contract *c, int n_kv_heads, int max_n_kv, int threads);

#endif
