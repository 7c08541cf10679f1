-- Decode over tiles of layout tile_lane, which lanes read as they are: all query heads of a group share what is decoded, by dot
-- products of halves.

local attention = require "gpu.attention"
local formats = require "formats"
local tiles = require "tiles"

local lane = {
    name = "lane",
    op = "decode",
    template = "templates/gpu/decode_lane.c",
    shared = { "rows.h", "codes.h", "bias.h", "attention.h", "dots.h" },
    layouts = { "tile_lane" },
    axes = { k_path = { "i8", "f16" } },
}

local ACCUMULATORS = 32 -- floats of P.V per lane: more would not leave registers for what is decoded

local function ceil_div(a, b)
    return (a + b - 1) // b
end

-- How the query heads of a group and the tiles of a range are shared among the warps of a block.
local function shape(variant)
    local values = ceil_div(variant.head_dim, 32)
    local groups = ceil_div(variant.gqa, math.max(1, ACCUMULATORS // values))
    local tile_warps = math.max(1, 4 // groups)
    return { groups = groups, heads = ceil_div(variant.gqa, groups), tile_warps = tile_warps,
        warps = groups * tile_warps }
end

-- Scales that weigh V: P is kept once for each of them. Rows of P are padded so that lanes which read different ones meet
-- different banks.
local function weights(variant, v)
    local sets = v.subs > 0 and v.chunk // 16 or 1
    return { sets = sets, set_halves = shape(variant).heads * 32 + (sets > 1 and 8 or 0) }
end

-- Dot products cost per head; from here on the matrix instructions of mma cost less.
function lane.usual(variant, arch)
    return arch.matrix == "none" or variant.gqa <= 4
end

function lane.legal(variant, arch)
    if arch.warp ~= 32 then
        return nil, "layout tile_lane is for warps of 32 lanes"
    end
    for _, format in ipairs { variant.k, variant.v } do
        local ok, reason = tiles.of(tiles.get(variant.layout), format, variant.head_dim)
        if not ok then
            return nil, reason
        end
    end
    if variant.k_path == "i8" and formats.layout(variant.k, variant.head_dim).subs > 0 then
        return nil, "sums of bytes are converted once per scale or gain, and for gains that costs more than it saves"
    end
    return true
end

-- Registers of a thread: what is stored of a tile, and per head sums, maxima, weights and accumulators.
local function registers(variant, k, v)
    local chunks = #k.chunks
    local gains = (k.subs > 0 and 8 or 0) + (v.subs > 0 and 8 or 0)
    return 40 + chunks * (4 * (k.format.bits + v.format.bits) + gains) + shape(variant).heads * (9 + 4 * chunks)
        + (variant.bias > 0 and 16 or 0)
end

function lane.geometry(variant, arch, k, v)
    local s, w = shape(variant), weights(variant, v)
    local stage = (2 * #v.chunks * w.sets * w.set_halves + attention.bias_turned(variant, arch, s.heads)) * s.warps
    local finish = 4 * (attention.result_floats(variant.head_dim, variant.gqa) + 2 * s.tile_warps * variant.gqa)
    local q = 4 * variant.gqa * variant.head_dim
    local shared = math.max(stage, finish, q) + attention.bias_floats(variant)
    return { threads = s.warps * 32, shared_bytes = shared, keys_per_step = 32, keys_per_tile = 32,
        blocks_per_sm = attention.blocks(arch, registers(variant, k, v), s.warps, shared), loop_keys = 32 / s.groups }
end

function lane.env(variant, _, env)
    env.shape = shape(variant)
    env.k_tile = tiles.of(tiles.get(variant.layout), variant.k, variant.head_dim)
    env.v_tile = tiles.of(tiles.get(variant.layout), variant.v, variant.head_dim)
    env.weights = weights(variant, env.v)
    env.n_chunks = variant.head_dim // env.k_tile.values
end

return lane
