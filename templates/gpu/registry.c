% local simt = arch.vendor == "simt"
% if not simt then
extern const tqg_module tq_modules_${id}[]; /* modules.c */

% end
/* ---- variants --------------------------------------------------------------------------------------------------- */

#define VARIANT(variant, operation, k_spec, v_spec, g, lay, content, ...)                                              \
    static const tqg_kernel variant##_kernel = {__VA_ARGS__};                                                          \
    extern const tq_variant variant;                                                                                   \
    const tq_variant variant = {.name = #variant, .op = operation, .k = k_spec, .v = v_spec, .gqa = g, .layout = lay,  \
                                .target = "${arch.name}", .key = content, .gpu = &variant##_kernel}
/* Then: symbol, module, threads, shared_bytes, keys_per_step, keys_per_tile, blocks_per_sm, bias_pairs, simt. */

% for _, entry in ipairs(variants) do
%     local variant, geometry = entry.variant, entry.geometry
%     if simt then
extern void ${entry.symbol}(const void *params);
%     end
VARIANT(${entry.name}, ${ops[variant.op]}, ${spec(entry.k)}, ${spec(entry.v)}, ${variant.gqa or 0}, "${variant.layout}", ${key(entry)},
        "${entry.symbol}", ${simt and 0 or entry.unit.number}, ${geometry.threads}, ${geometry.shared_bytes}, ${geometry.keys_per_step}, ${geometry.keys_per_tile}, ${geometry.blocks_per_sm}, ${variant.bias or 0}, ${simt and entry.symbol or "NULL"});
% end
