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

-- Floats of P.V per lane: more would not leave registers for what is decoded. Those of four heads where that is just possible.
local ACCUMULATORS, MOST_ACCUMULATORS = 32, 48

local function ceil_div(a, b)
    return (a + b - 1) // b
end

local function tile_of(variant, format)
    return tiles.of(tiles.get(variant.layout), format, variant.head_dim)
end

-- How the query heads of a group and the tiles of a range are shared among the warps of a block; sub_tiles of a tile, of each of
-- which a lane has 4 values of V; keys of K of a lane.
local function shape(variant)
    local tile = tile_of(variant, variant.k)
    local sub_tiles = variant.head_dim // tile.values
    local room = sub_tiles == 3 and variant.bias == 0 and MOST_ACCUMULATORS or ACCUMULATORS
    local groups = ceil_div(variant.gqa, math.max(1, room // (4 * sub_tiles)))
    local tile_warps = math.max(1, 4 // groups)
    return { groups = groups, heads = ceil_div(variant.gqa, groups), tile_warps = tile_warps, warps = groups * tile_warps,
        sub_tiles = sub_tiles, keys = tile.keys // 32 }
end

-- Scales that weigh V: P is kept once for each of them. Rows of P are padded so that lanes which read different ones meet
-- different banks.
local function weights(variant, v)
    local s = shape(variant)
    local sets = v.subs > 0 and v.chunk // 16 or 1
    return { sets = sets, set_halves = s.heads * 32 * s.keys + (sets > 1 and 8 or 0) }
end

-- Dot products cost per head; from here on the matrix instructions of mma cost less, where it has tiles for them.
function lane.usual(variant, arch)
    return variant.gqa <= 4 or not tiles.get("tile_" .. arch.matrix)
end

function lane.legal(variant, arch)
    if arch.warp ~= 32 then
        return nil, "layout tile_lane is for warps of 32 lanes"
    end
    for _, format in ipairs { variant.k, variant.v } do
        local ok, reason = tile_of(variant, format)
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
    local s = shape(variant)
    local gains = (k.subs > 0 and 8 or 0) + (v.subs > 0 and 8 or 0)
    return 40 + s.sub_tiles * (4 * (k.format.bits + v.format.bits) + gains) + s.heads * (9 + 4 * s.sub_tiles + 3 * (s.keys - 1))
        + (variant.bias > 0 and 16 or 0)
end

function lane.geometry(variant, arch, k, v)
    local s, w = shape(variant), weights(variant, v)
    local stage = (2 * #v.chunks * w.sets * w.set_halves + s.keys * attention.bias_turned(variant, arch, s.heads)) * s.warps
    local finish = 4 * (attention.result_floats(variant.head_dim, variant.gqa) + 2 * s.tile_warps * variant.gqa)
    local q = 4 * variant.gqa * variant.head_dim
    local shared = math.max(stage, finish, q) + attention.bias_floats(variant)
    return { threads = s.warps * 32, shared_bytes = shared, keys_per_step = 32 * s.keys, keys_per_tile = 32 * s.keys,
        blocks_per_sm = attention.blocks(arch, registers(variant, k, v), s.warps, shared), loop_keys = 32 * s.keys / s.groups }
end

function lane.env(variant, _, env)
    env.shape = shape(variant)
    env.k_tile, env.v_tile = tile_of(variant, variant.k), tile_of(variant, variant.v)
    env.weights = weights(variant, env.v)
end

return lane
