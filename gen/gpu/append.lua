-- Append: new tokens, quantised, into a cache of any layout.
return require "gpu.team"("append", { "rows.h", "team.h", "packed.h", "quantise.h" }, true)
