-- Repack: rows to tiles and back.
return require "gpu.team"("repack", { "rows.h", "team.h", "packed.h" }, false)
