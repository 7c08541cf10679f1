/* ---- kernels ---------------------------------------------------------------------------------------------------- */

extern void tqk_prefill__${id}(const tq_prefill_impl *impl, const tq_prefill_job *job, const tq_prefill_scratch *scratch, const tq_prefill_partial *partial);
extern void tqk_prefill_merge__${id}(const tq_prefill_impl *impl, const tq_prefill_job *job, const tq_prefill_partial *partials, int n);
extern void tqk_decode__${id}(const tq_decode_impl *impl, const tq_decode_job *job, const tq_partial *out);
% for _, part in ipairs(parts) do
%     for _, g in ipairs(part.gqas) do
%         for _, cache in ipairs(part.layouts) do
extern const tq_k_stage ${part.env.k_symbol(g, cache)};
extern const tq_v_stage ${part.env.v_symbol(g, cache)};
%         end
%     end
%     for _, cache in ipairs(part.panel_layouts) do
extern const tq_panel ${part.env.k_panel_symbol(cache)};
extern const tq_panel ${part.env.v_panel_symbol(cache)};
%     end
extern void ${part.env.append_symbol}(const float *const *x, const float *const *mean, const uint32_t *signs, int mode, int n, uint8_t *const *rows);
extern void ${part.env.dequantise_symbol}(const uint8_t *row, const float *mean, const uint32_t *signs, float *x);
% end

/* ---- variants --------------------------------------------------------------------------------------------------- */

#define DECODE(variant, k_spec, v_spec, head_dim, g, tile, k_ahead, v_ahead, k_stage, v_stage, lay, keys, content)     \
    static const tq_decode_impl variant##_impl = {head_dim, g, tile, k_ahead, v_ahead, &k_stage, &v_stage};            \
    extern const tq_variant variant;                                                                                   \
    const tq_variant variant = {.name = #variant, .op = TQ_OP_DECODE, .k = k_spec, .v = v_spec, .gqa = g,              \
                                .layout = lay, .keys_per_unit = keys, .target = "${arch.name}", .key = content,        \
                                .impl = &variant##_impl,                                                               \
                                .decode = tqk_decode__${id}}
#define PREFILL(variant, k_spec, v_spec, k_dim, v_dim, g, k_panel, v_panel, lay, keys, content)                        \
    static const tq_prefill_impl variant##_impl = {k_dim, v_dim, &k_panel, &v_panel};                                  \
    extern const tq_variant variant;                                                                                   \
    const tq_variant variant = {.name = #variant, .op = TQ_OP_PREFILL, .k = k_spec, .v = v_spec, .gqa = g,             \
                                .layout = lay, .keys_per_unit = keys, .target = "${arch.name}", .key = content,        \
                                .prefill_impl = &variant##_impl, .prefill = tqk_prefill__${id},           \
                                .prefill_merge = tqk_prefill_merge__${id}}
#define ROWS(variant, operation, k_spec, v_spec, append_fn, dequantise_fn, lay, keys, content)                         \
    extern const tq_variant variant;                                                                                   \
    const tq_variant variant = {.name = #variant, .op = operation, .k = k_spec, .v = v_spec, .layout = lay,            \
                                .keys_per_unit = keys, .target = "${arch.name}", .key = content, .append = append_fn,  \
                                .dequantise = dequantise_fn}

% for _, entry in ipairs(variants) do
%     local variant = entry.variant
%     if variant.op == "decode" then
DECODE(${entry.name}, ${spec(entry.k)}, ${spec(entry.v)}, ${variant.head_dim}, ${variant.gqa}, ${variant.tile}, ${prefetch(entry.k)}, ${prefetch(entry.v)}, ${entry.k.env.k_symbol(variant.gqa, variant.layout)}, ${entry.v.env.v_symbol(variant.gqa, variant.layout)}, "${variant.layout}", ${keys_per_unit(variant)}, ${key(entry)});
%     elseif variant.op == "prefill" then
PREFILL(${entry.name}, ${spec(entry.k)}, ${spec(entry.v)}, ${entry.k.head_dim}, ${entry.v.head_dim}, ${variant.gqa}, ${entry.k.env.k_panel_symbol(variant.layout)}, ${entry.v.env.v_panel_symbol(variant.layout)}, "${variant.layout}", ${keys_per_unit(variant)}, ${key(entry)});
%     else
%         local part = entry.k or entry.v
ROWS(${entry.name}, ${ops[variant.op]}, ${spec(entry.k)}, ${spec(entry.v)}, ${variant.op == "append" and part.env.append_symbol or "NULL"}, ${variant.op == "dequantise" and part.env.dequantise_symbol or "NULL"}, "${variant.layout}", ${keys_per_unit(variant)}, ${key(entry)});
%     end
% end
