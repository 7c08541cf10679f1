-- Dequantise: slots of a cache of any layout to natural values, f32 or f16.
return require "gpu.team"("dequantise", { "rows.h", "team.h", "packed.h" }, true)
