/* ${banner} */
/* Formats and variants of ${arch.name}, expected best first. */
#include "tq_kernel.h"

enum { TQ_OP_DECODE, TQ_OP_APPEND, TQ_OP_DEQUANTISE };

/* ---- formats ---------------------------------------------------------------------------------------------------- */

% for _, part in ipairs(parts) do
%     local layout, format = part.layout, part.layout.format
%     local prefix = ("%s_D%d"):format(part.format:upper(), part.head_dim)
%     if format.bits < 16 then
static const tq_chunk CHUNKS_${prefix}[] = {
%         for _, chunk in ipairs(layout.chunks) do
    {${chunk.first_value}, ${chunk.size}, ${chunk.pow2}, ${chunk.odd}, ${chunk.first_byte}},
%         end
};
static const float STEPS_${prefix}[] = {${steps(part)}};
%         if layout.table.centroids then
static const int8_t CENTROIDS_${prefix}[] = {${list(layout.table.centroids)}};
%         end
%         if layout.table.gains then
static const int8_t GAINS_${prefix}[] = {${list(layout.table.gains)}};
%         end
%         if format.rotated then
static const uint32_t K_SIGNS_${prefix}[] = {${list(signs(part, "k"))}};
static const uint32_t V_SIGNS_${prefix}[] = {${list(signs(part, "v"))}};
%         end
%     end
static const tq_format_spec SPEC_${prefix} = {
    .name = "${part.format}",
    .head_dim = ${part.head_dim},
    .bits = ${format.bits},
    .block = ${layout.block},
    .row_bytes = ${layout.row_bytes},
    .rotated = ${format.rotated and 1 or 0},
%     if format.bits < 16 then
    .sub = ${format.sub or 0},
    .n_chunks = ${#layout.chunks},
    .chunks = CHUNKS_${prefix},
    .steps = STEPS_${prefix},
%         if layout.table.centroids then
    .centroids = CENTROIDS_${prefix},
%         end
%         if layout.table.gains then
    .gains = GAINS_${prefix},
%         end
%         if format.rotated then
    .k_signs = K_SIGNS_${prefix},
    .v_signs = V_SIGNS_${prefix},
%         end
%     end
    .modes = "${modes(part)}",
};

% end
static const tq_format_spec *const FORMATS[] = {
% for _, part in ipairs(parts) do
    ${spec(part)},
% end
};

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

extern void tqk_decode__${id}(const tq_decode_impl *impl, const tq_decode_job *job, const tq_partial *out);
% for _, part in ipairs(parts) do
%     for _, g in ipairs(part.gqas) do
extern const tq_k_stage ${part.env.k_symbol(g)};
extern const tq_v_stage ${part.env.v_symbol(g)};
%     end
extern int ${part.env.append_symbol}(const float *x, const float *mean, const uint32_t *signs, int mode, uint8_t *row);
extern void ${part.env.dequantise_symbol}(const uint8_t *row, const float *mean, const uint32_t *signs, float *x);
% end

/* ---- variants --------------------------------------------------------------------------------------------------- */

#define DECODE(variant, k_spec, v_spec, head_dim, g, tile, k_ahead, v_ahead, k_stage, v_stage, lay, content)           \
    static const tq_decode_impl variant##_impl = {head_dim, g, tile, k_ahead, v_ahead, &k_stage, &v_stage};            \
    extern const tq_variant variant;                                                                                   \
    const tq_variant variant = {.name = #variant, .op = TQ_OP_DECODE, .k = k_spec, .v = v_spec, .gqa = g,              \
                                .layout = lay, .target = "${arch.name}", .key = content, .impl = &variant##_impl,      \
                                .decode = tqk_decode__${id}}
#define ROWS(variant, operation, k_spec, v_spec, append_fn, dequantise_fn, lay, content)                               \
    extern const tq_variant variant;                                                                                   \
    const tq_variant variant = {.name = #variant, .op = operation, .k = k_spec, .v = v_spec, .layout = lay,            \
                                .target = "${arch.name}", .key = content, .append = append_fn,                         \
                                .dequantise = dequantise_fn}

% for _, entry in ipairs(variants) do
%     local variant = entry.variant
%     if variant.op == "decode" then
DECODE(${entry.name}, ${spec(entry.k)}, ${spec(entry.v)}, ${variant.head_dim}, ${variant.gqa}, ${variant.tile}, ${prefetch(entry.k)}, ${prefetch(entry.v)}, ${entry.k.env.k_symbol(variant.gqa)}, ${entry.v.env.v_symbol(variant.gqa)}, "${variant.layout}", ${key(entry)});
%     else
%         local part = entry.k or entry.v
ROWS(${entry.name}, ${ops[variant.op]}, ${spec(entry.k)}, ${spec(entry.v)}, ${variant.op == "append" and part.env.append_symbol or "NULL"}, ${variant.op == "dequantise" and part.env.dequantise_symbol or "NULL"}, "${variant.layout}", ${key(entry)});
%     end
% end

static const tq_variant *const VARIANTS[] = {
% for _, entry in ipairs(variants) do
    &${entry.name},
% end
};

extern const tq_registry tq_registry_${id};
const tq_registry tq_registry_${id} = {
    .abi = TQ_KERNEL_ABI,
    .name = "${id}",
    .target = "${arch.name}",
    .needs = "${needs}",
    .n_formats = sizeof FORMATS / sizeof *FORMATS,
    .n_variants = sizeof VARIANTS / sizeof *VARIANTS,
    .formats = FORMATS,
    .variants = VARIANTS,
};
