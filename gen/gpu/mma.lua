-- Decode with matrix instructions: keys and values of V as rows of the A operand, the query heads as columns of B.

local attention = require "gpu.attention"
local formats = require "formats"
local tiles = require "tiles"

local mma = {
    name = "mma",
    op = "decode",
    template = "templates/gpu/decode_mma.c",
    shared = { "rows.h", "codes.h", "attention.h", "mma.h", "mma_tile.h", "mma_bytes.h" },
    layouts = { "tile_mma", "tile_wmma", "tile_mfma" },
    -- stages: tiles in shared memory per warp, by bulk copies; 1: the next tile in registers, where there are enough
    -- k_path: K.q in halves, or in bytes
    axes = { stages = { 3, 4, 1 }, k_path = { "f16", "i8" } },
    defaults = { stages = { 3, 1 } },
}

-- Per matrix instruction: columns of B; registers of a row block of 128 values of O and of as much of q; bytes of shared
-- memory that decoded gains of a chunk of K and of V take.
local SHAPES = {
    mma = { columns = 8, outputs = 32, q = 16, k_gains = 512, v_gains = 512 },
    wmma = { columns = 16, outputs = 64, q = 32, k_gains = 512, v_gains = 640 },
    mfma = { columns = 16, outputs = 32, q = 16, k_gains = 1024, v_gains = 1536 },
}
local BYTE_GAINS = 1024 -- of K, as integers
local WARPS = 4
local Q_IN_REGISTERS = 32 -- of a lane; more is read from shared memory
local MOST_OUTPUTS = 128

-- What follows from the axes.
local function plan(variant, arch)
    local shape = SHAPES[arch.matrix]
    local bytes, chunks = variant.k_path == "i8", variant.head_dim // tiles.CHUNK
    local split_q = arch.matrix == "mma" and variant.gqa <= 4
    local groups = (variant.gqa * (split_q and 2 or 1) + shape.columns - 1) // shape.columns
    local k_bits, v_bits = formats.get(variant.k).bits, formats.get(variant.v).bits
    local of = {
        split_q = split_q, groups = groups, warps = WARPS, stages = variant.stages, ring = variant.stages > 1,
        k_path = variant.k_path, chunks = chunks, outputs = groups * chunks * shape.outputs,
        q = groups * chunks * shape.q, words = 4 * chunks * (k_bits + v_bits),
    }
    if bytes then
        of.q = chunks * 8 * (k_bits == 4 and 2 or 1) * (split_q and 1 or 2)
    end
    of.ahead = not of.ring and not (arch.matrix == "wmma" and chunks > 1)
    of.q_shared = not bytes and of.q > Q_IN_REGISTERS
    of.q_bytes = 4 * variant.gqa * variant.head_dim + (of.q_shared and 4 * of.q * arch.warp or 0)
    return of
end

function mma.legal(variant, arch)
    if arch.matrix == "none" then
        return nil, arch.name .. " has no matrix instructions"
    elseif variant.layout ~= "rows" and variant.layout ~= "tile_" .. arch.matrix then
        return nil, arch.name .. " reads its own tiles"
    elseif variant.stages > 1 and arch.copy ~= "bulk" then
        return nil, "stages above 1 are filled by bulk copies, which " .. arch.name .. " has not"
    elseif variant.k_path == "i8" and (arch.copy ~= "bulk" or variant.gqa > 8) then
        return nil, "K.q in bytes pays where byte products cost least: on sm_90 and later, for up to 8 heads"
    end
    local of = plan(variant, arch)
    if of.outputs > MOST_OUTPUTS then
        return nil, ("%d heads of head_dim %d do not fit the registers of a warp"):format(variant.gqa, variant.head_dim)
    elseif variant.k_path == "i8" and of.q > Q_IN_REGISTERS then
        return nil, ("q of %d heads of head_dim %d does not fit registers as bytes"):format(variant.gqa, variant.head_dim)
    end
    return true
end

-- Blocks per multiprocessor that leave a thread the registers it needs, as compilers have shown.
local function blocks(of, arch, gains, shared_bytes)
    local need = (arch.emulates == "cuda" and 72 or 100) + of.outputs + (of.q_shared and 0 or of.q) + (of.ahead and of.words or 0) + (of.groups > 1 and 16 or 0)
    if of.k_path == "i8" then
        need = need + (of.split_q and 0 or 8) + (gains and 16 or 0)
    end
    local by_registers = math.max(1, math.min(4, arch.registers // (WARPS * arch.warp * need)))
    return math.max(1, math.min(by_registers, (arch.shared_limit + 1024) // (shared_bytes + 1024)))
end

function mma.geometry(variant, arch, k_layout, v_layout)
    local of, shape = plan(variant, arch), SHAPES[arch.matrix]
    local tile = tiles.get(variant.layout)
    local gains = (k_layout.subs > 0 and (variant.k_path == "i8" and BYTE_GAINS or shape.k_gains) or 0)
        + (v_layout.subs > 0 and shape.v_gains or 0)
    local ring = of.ring and of.stages * (tiles.bytes(tile, k_layout) + tiles.bytes(tile, v_layout) + 16) or 0
    local result = 4 * attention.result_floats(variant.head_dim, variant.gqa) + 8 * WARPS * variant.gqa
    local shared_bytes = math.max(of.q_bytes + WARPS * (of.chunks * gains + ring), result)
    return {
        threads = WARPS * arch.warp,
        shared_bytes = shared_bytes,
        keys_per_step = WARPS * tile.keys,
        keys_per_tile = tile.keys,
        blocks_per_sm = blocks(of, arch, k_layout.subs > 0, shared_bytes),
        loop_keys = tile.keys,
    }
end

function mma.env(variant, arch, env)
    env.mma = plan(variant, arch)
end

return mma
