-- Decode over rows, which a block stages in shared memory: all query heads of a group share what is decoded, by dot products
-- of halves or bytes.

local attention = require "gpu.attention"
local formats = require "formats"
local tile_rows = require "gpu.tile_rows"

local tile = {
    name = "tile",
    op = "decode",
    template = "templates/gpu/decode_tile.c",
    shared = { "rows.h", "codes.h", "bias.h", "attention.h", "dots.h", "tile_rows.h" },
    layouts = { "rows" },
    axes = { k_path = { "i8", "f16" } },
}

local MOST_HEADS = 8 -- TQD_HEADS of dots.h

local function ceil_div(a, b)
    return (a + b - 1) // b
end

-- Floats of P.V per lane: more would not leave registers for what is decoded.
local function accumulators(arch)
    return arch.emulates == "hip" and arch.registers // arch.warp >= 2048 and 64 or 32
end

local function rows_of(variant, arch)
    local function side(name, head_dim)
        return setmetatable({ bits = formats.get(name).bits }, { __index = formats.layout(name, head_dim) })
    end
    return tile_rows(side(variant.k, variant.head_dim), side(variant.v, formats.v_head_dim(variant.head_dim)), arch.warp)
end

-- How the query heads of a group and the rows of a range are shared among the warps of a block; bytes: of shared memory per
-- warp. nil if even one warp needs more than there is.
local function shape(variant, arch)
    local rows = rows_of(variant, arch)
    local most = math.max(1, math.min(MOST_HEADS, accumulators(arch) // (8 * rows.per_lane)))
    local s = { rows = rows, groups = ceil_div(variant.gqa, most) }
    s.heads = ceil_div(variant.gqa, s.groups)
    s.set_halves = s.heads * arch.warp + (rows.sets > 1 and 8 or 0) -- padded: lanes read different sets
    s.bytes = rows.region + 2 * rows.sets * s.set_halves + attention.bias_turned(variant, arch, s.heads)
    s.row_warps = math.min(math.max(1, 4 // s.groups), (attention.shared_limit(arch) - attention.bias_floats(variant)) // (s.groups * s.bytes))
    s.warps = s.groups * s.row_warps
    return s.row_warps > 0 and s or nil
end

function tile.legal(variant, arch)
    if variant.k_path == "i8" and (not arch.dot2 or variant.k == "f16") then
        return nil, "sums of bytes are for integer centroids, and for archs where a dot product of halves costs as much"
    elseif not shape(variant, arch) then
        return nil, "the rows of a warp's keys fit in shared memory"
    end
    return true
end

function tile.geometry(variant, arch)
    local s = shape(variant, arch)
    local finish = 4 * (attention.result_floats(variant.head_dim, variant.gqa) + 2 * s.row_warps * variant.gqa)
    local shared = math.max(s.warps * s.bytes, finish) + attention.bias_floats(variant)
    local registers = (arch.emulates == "hip" and 72 or 112) + s.heads * (8 * s.rows.per_lane + 9) +
        (variant.bias > 0 and 16 or 0) + (s.rows.prefetch and 4 * (s.rows.k.loads + s.rows.v.loads) or 0)
    return { threads = s.warps * arch.warp, shared_bytes = shared, keys_per_step = arch.warp, keys_per_tile = 1,
        blocks_per_sm = attention.blocks(arch, registers, s.warps, shared), loop_keys = arch.warp / s.groups }
end

function tile.env(variant, arch, env)
    env.shape = shape(variant, arch)
    env.rows = env.shape.rows
end

return tile
