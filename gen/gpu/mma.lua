-- Decode with matrix instructions: keys and values of V as rows of the A operand, the query heads as columns of B.

local attention = require "gpu.attention"
local tiles = require "tiles"

local mma = {
    name = "mma",
    op = "decode",
    template = "templates/gpu/decode_mma.c",
    shared = { "rows.h", "codes.h", "attention.h", "mma.h", "mma_tile.h" },
    layouts = { "tile_mma", "tile_wmma", "tile_mfma" },
    -- stages: tiles in shared memory per warp, by bulk copies; 1: the next tile in registers
    axes = { stages = { 3, 4, 1 } },
}

-- Blocks per multiprocessor that leave a thread the registers it needs, tiles in registers.
local BLOCKS = { mma = 3, wmma = 3, mfma = 2 }
local COLUMNS = { mma = 8, wmma = 16, mfma = 16 }

-- What follows from the axes.
local function plan(variant, arch)
    local columns = COLUMNS[arch.matrix]
    local split_q = arch.matrix == "mma" and variant.gqa <= 4
    local tile = tiles.get(variant.layout)
    return {
        columns = columns, split_q = split_q, groups = (variant.gqa * (split_q and 2 or 1) + columns - 1) // columns,
        warps = 4, stages = variant.stages, ring = variant.stages > 1, keys = tile.keys,
    }
end

function mma.legal(variant, arch)
    if arch.matrix == "none" then
        return nil, arch.name .. " has no matrix instructions"
    elseif variant.layout ~= "rows" and variant.layout ~= "tile_" .. arch.matrix then
        return nil, arch.name .. " reads its own tiles"
    elseif variant.stages > 1 and arch.copy ~= "bulk" then
        return nil, "stages above 1 are filled by bulk copies, which " .. arch.name .. " has not"
    end
    return true
end

local function tile_bytes(layout, tile)
    return tiles.bytes(tile, layout)
end

-- Of the gains of a chunk, once decoded.
local K_GAIN_BYTES = { mma = 512, wmma = 512, mfma = 1024 }
local V_GAIN_BYTES = { mma = 512, wmma = 640, mfma = 1536 }

function mma.geometry(variant, arch, k_layout, v_layout)
    local of = plan(variant, arch)
    local tile = tiles.get(variant.layout)
    local chunks = variant.head_dim // tiles.CHUNK
    local q = 4 * variant.gqa * variant.head_dim
    local gains = (k_layout.subs > 0 and K_GAIN_BYTES[arch.matrix] or 0)
        + (v_layout.subs > 0 and V_GAIN_BYTES[arch.matrix] or 0)
    local ring = of.ring and of.stages * (tile_bytes(k_layout, tile) + tile_bytes(v_layout, tile) + 16) or 0
    local result = 4 * attention.result_floats(variant.head_dim, variant.gqa) + 8 * of.warps * variant.gqa
    return {
        threads = of.warps * arch.warp,
        shared_bytes = math.max(q + of.warps * (chunks * gains + ring), result),
        keys_per_step = of.warps * tile.keys,
        keys_per_tile = tile.keys,
        blocks_per_sm = of.ring and 4 or BLOCKS[arch.matrix],
        loop_keys = tile.keys,
    }
end

function mma.env(variant, arch, env)
    env.mma = plan(variant, arch)
    env.mma.doc = "Tiles"
end

return mma
