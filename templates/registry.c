/* ${banner} */
/* Formats and variants of ${arch.name}, expected best first. */
#include "tq_kernel.h"

enum { TQ_OP_DECODE, TQ_OP_APPEND, TQ_OP_DEQUANTISE, TQ_OP_REPACK, TQ_OP_PREFILL };

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
%     local pieces = pieces(part)
%     if pieces then
static const tq_piece PIECES_${prefix}[] = {
%         for _, p in ipairs(pieces) do
    {TQ_PIECE_${p.kind:upper()}, ${p.row}, ${p.k}, ${p.k_step}, ${p.v}, ${p.v_step}, ${p.columns}, ${p.column}},
%         end
};
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
%     if pieces then
    .n_pieces = ${#pieces},
    .pieces = PIECES_${prefix},
%     end
    .modes = "${modes(part)}",
};

% end
static const tq_format_spec *const FORMATS[] = {
% for _, part in ipairs(parts) do
    ${spec(part)},
% end
};

${kernels}
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
% if kind then
    .kind = ${kind},
%     if #modules > 0 then
    .n_modules = ${#modules},
    .modules = tq_modules_${id},
%     end
% end
    .n_formats = sizeof FORMATS / sizeof *FORMATS,
    .n_variants = sizeof VARIANTS / sizeof *VARIANTS,
    .formats = FORMATS,
    .variants = VARIANTS,
};
