/* contract.h: what a caller may ask a kernel for (op, head_dim, GQA ratio, formats, layout), and the lists of it that
 * the options --op --head-dim --gqa --k --v --layout --scales --bias --device select from this build. */
#ifndef TQ_CONTRACT_H
#define TQ_CONTRACT_H

#include "cli.h"
#include "internal.h"

typedef struct contract {
    tq_op op;
    tq_side side;      /* append, dequantise, repack */
    int head_dim, gqa; /* gqa 0: ops without query heads */
    const char *k, *v; /* NULL on the side that the op does not touch */
    const char *layout;
    tq_scale_mode mode; /* of what is appended; sides whose format does not have it take their own */
    int bias_pairs;     /* of a score bias; 0: none */
} contract;

/* Filled by cli_parse through CONTRACT_OPTIONS; the initial values are the command's defaults, empty lists mean all. */
typedef struct contract_axes {
    const char *op, *device;
    int_list head_dims, gqas, biases;
    name_list k, v, layouts, modes; /* biases, modes: empty lists mean none and the default */
} contract_axes;

#define CONTRACT_AXES_INIT                                                                                             \
    {                                                                                                                  \
        .op = "decode", .device = "cpu", .layouts = { 1, {"rows"} }                                                    \
    }

/* clang-format off */
#define CONTRACT_SHAPE_OPTIONS(axes)                                                                                   \
    {"head-dim", "LIST", CLI_INTS, &(axes).head_dims, 1, 1 << 16, "values per head vector"},                           \
    {"gqa", "LIST", CLI_INTS, &(axes).gqas, 1, 1 << 16, "query heads per KV head (decode)"},                           \
    {"k", "LIST", CLI_NAMES, &(axes).k, 0, 0, "K formats; without --v, V takes the same one"},                         \
    {"v", "LIST", CLI_NAMES, &(axes).v, 0, 0, "V formats; with --k, every combination"},                               \
    {"layout", "LIST", CLI_NAMES, &(axes).layouts, 0, 0, "cache layouts (rows)"}
#define CONTRACT_OPTIONS(axes)                                                                                         \
    {"op", "OP", CLI_TEXT, &(axes).op, 0, 0, "decode, append, dequantise, prefill or repack (decode)"},                \
    CONTRACT_SHAPE_OPTIONS(axes),                                                                                      \
    {"device", "NAME", CLI_TEXT, &(axes).device, 0, 0, "device, as tq info lists them (cpu)"}
/* What more there is to time. */
#define CONTRACT_TIMING_OPTIONS(axes)                                                                                  \
    {"scales", "LIST", CLI_NAMES, &(axes).modes, 0, 0, "scale modes of formats that have them: none, nc, searched"},   \
    {"bias", "LIST", CLI_INTS, &(axes).biases, 0, TQ_MAX_BIAS_PAIRS, "pairs of a score bias (0)"}
/* clang-format on */

/* How large problems are unless the options say it: the SIMT executor is slow. */
enum { CONTRACT_N_KV = 16384, CONTRACT_SIMT_N_KV = 256, CONTRACT_KV_HEADS = 8, CONTRACT_SIMT_KV_HEADS = 1 };
#define CONTRACT_N_KV_HELP     "keys (16384; 256 on SIMT devices)"
#define CONTRACT_KV_HEADS_HELP "KV heads (8; 1 on SIMT devices)"
/* Fills in what is 0. */
void contract_sizes(const tq_device *device, int *n_kv, int *n_kv_heads);

const tq_device *contract_device(const contract_axes *axes);

/* Every contract that the axes select of what their device runs, in registry order of the formats, those of one head_dim
 * and GQA ratio together; fails if it runs none with one of the values. Returns the count; the caller frees *out. */
int contract_list(const contract_axes *axes, contract **out);

/* The next variant of the contract at or after *index that the device runs; false when there is none. */
bool contract_candidate(const tq_device *device, const contract *c, int *index, tq_variant_info *out);
bool contract_equal(const contract *a, const contract *b);
/* Do they read caches of the same tensors for the same queries? */
bool contract_same_shape(const contract *a, const contract *b);
contract contract_of(const tq_variant_info *variant);
/* "decode head_dim 128 gqa 4 turbo3/turbo3"; valid until the next call. */
const char *contract_text(const contract *c);

/* Values of a row of one side; of V also those of an output. */
int contract_values(const contract *c, tq_side side);

/* What tq_append takes for a format of this contract. */
tq_scale_mode contract_mode(const contract *c, tq_side side);

/* Plan description of this contract, for one sequence. */
tq_plan_desc contract_plan(const contract *c, int n_kv_heads, int max_n_kv, int threads);

#endif
