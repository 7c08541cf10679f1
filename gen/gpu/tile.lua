-- Decode over rows, which a block stages in shared memory: all query heads of a group share what is decoded, by dot products
-- of halves.

local attention = require "gpu.attention"

local tile = {
    name = "tile",
    op = "decode",
    template = "templates/gpu/decode_tile.c",
    shared = { "rows.h", "codes.h", "attention.h", "dots.h" },
    layouts = { "rows" },
    axes = { k_path = { "i8", "f16" } },
}

local MOST_HEADS = 8 -- TQD_HEADS of dots.h
local PREFETCH = 12 -- 16-byte loads that a lane has room for ahead

-- Floats of P.V per lane: more would not leave registers for what is decoded.
local function accumulators(arch)
    return arch.emulates == "hip" and arch.registers // arch.warp >= 2048 and 64 or 32
end

local function ceil_div(a, b)
    return (a + b - 1) // b
end

-- How the rows of one side lie in shared memory: stride; words, of 16 bytes, that hold those of a step, and loads of them
-- per lane; padded: words per row if a pad of 16 bytes follows each row.
local function staged(layout, warp)
    local row = layout.row_bytes
    if row % 32 == 0 then
        local words = warp * row // 16
        return { stride = row + 16, padded = row // 16, words = words, loads = words // warp, bytes = warp * (row + 16) }
    end
    local words = ceil_div(14 + warp * row, 16)
    return { stride = row, padded = false, words = words, loads = ceil_div(words, warp), bytes = 16 * words + 16 }
end

local function rows_of(variant, arch, k, v, heads)
    local out = { k = staged(k, arch.warp), v = staged(v, arch.warp) }
    out.region = math.max(out.k.bytes, out.v.bytes)
    out.columns = v.format.bits < 8 and v.n_blocks * (v.full_units + (v.tail and 1 or 0)) * 4 or variant.head_dim // 8
    out.per_lane = ceil_div(out.columns, arch.warp)
    out.parts = 1
    while 2 * out.parts * out.columns <= arch.warp and 2 * out.parts <= arch.warp // 4 do
        out.parts = 2 * out.parts
    end
    out.scales = v.n_scales
    out.sets = v.format.bits == 16 and 1 or v.n_blocks * math.max(1, v.subs)
    out.set_halves = heads * arch.warp + (out.sets > 1 and 8 or 0)
    return out
end

-- How the query heads of a group and the rows of a range are shared among the warps of a block; nil if even one warp needs
-- more shared memory than there is.
local function shape(variant, arch, k, v)
    local per_lane = rows_of(variant, arch, k, v, 1).per_lane
    local groups = ceil_div(variant.gqa, math.max(1, math.min(MOST_HEADS, accumulators(arch) // (8 * per_lane))))
    local heads = ceil_div(variant.gqa, groups)
    local rows = rows_of(variant, arch, k, v, heads)
    local bytes = rows.region + 2 * rows.sets * rows.set_halves
    local row_warps = math.min(math.max(1, 4 // groups), arch.shared_limit // (groups * bytes))
    if row_warps < 1 then
        return nil
    end
    return { groups = groups, heads = heads, row_warps = row_warps, warps = groups * row_warps, bytes = bytes }, rows
end

local function layouts(variant)
    local formats = require "formats"
    return formats.layout(variant.k, variant.head_dim), formats.layout(variant.v, variant.head_dim)
end

function tile.legal(variant, arch)
    local k, v = layouts(variant)
    if not shape(variant, arch, k, v) then
        return nil, "the rows of a warp's keys fit in shared memory"
    end
    if variant.k_path == "i8" and (variant.k == "f16" or not arch.dot2) then
        return nil, "sums of bytes are for integer centroids, and for archs where a dot product of halves costs as much"
    end
    return true
end

local function prefetches(rows)
    return rows.k.loads + rows.v.loads <= PREFETCH
end

function tile.geometry(variant, arch, k, v)
    local s, rows = shape(variant, arch, k, v)
    local finish = 4 * (attention.result_floats(variant.head_dim, variant.gqa) + 2 * s.row_warps * variant.gqa)
    local shared = math.max(s.warps * s.bytes, finish)
    local registers = (arch.emulates == "hip" and 72 or 112) + s.heads * (8 * rows.per_lane + 9) +
        (prefetches(rows) and 4 * (rows.k.loads + rows.v.loads) or 0)
    return { threads = s.warps * arch.warp, shared_bytes = shared, keys_per_step = arch.warp, keys_per_tile = 1,
        blocks_per_sm = attention.blocks(arch, registers, s.warps, shared), loop_keys = arch.warp / s.groups }
end

function tile.env(variant, arch, env)
    env.shape, env.rows = shape(variant, arch, layouts(variant))
    env.prefetch = prefetches(env.rows)
end

return tile
