-- What the registry templates see, of CPU and GPU archs alike.

local formats = require "formats"
local text = require "text"
local tile_cpu = require "tile_cpu"
local transform = require "transform"

local registry = {}

local OPS = { decode = "TQ_OP_DECODE", append = "TQ_OP_APPEND", dequantise = "TQ_OP_DEQUANTISE", repack = "TQ_OP_REPACK",
    prefill = "TQ_OP_PREFILL" }

-- parts: formats at a head_dim, { format =, head_dim =, layout = }; entries: { variant =, name =, k = part, v = part }.
function registry.env(arch, parts, entries)
    local env = { arch = arch, id = arch.id, parts = parts, variants = entries, list = text.list, floats = text.floats,
        banner = text.banner(arch, ""), needs = table.concat(arch.needs, " "), c_string = text.c_string, ops = OPS }
    function env.spec(part)
        return part and ("&SPEC_%s_D%d"):format(part.format:upper(), part.head_dim) or "NULL"
    end
    function env.steps(part)
        local steps = {}
        for i = 1, #part.layout.chunks do
            steps[i] = part.layout.table.step
        end
        return text.floats(steps)
    end
    function env.modes(part)
        return table.concat(part.layout.format.modes, " ")
    end
    -- Of formats that some variant keeps in tiles of CPUs.
    function env.pieces(part)
        local bits = part.layout.format.bits
        return part.tiled and tile_cpu.pieces(part.layout, formats.unit(bits, 32), formats.unit(bits, 16))
    end
    function env.signs(part, side)
        return transform.signs(part.head_dim, side)
    end
    return env
end

return registry
