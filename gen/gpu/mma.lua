-- Decode with matrix instructions: keys and values of V as rows of the A operand, the query heads as columns of B.

local attention = require "gpu.attention"
local format_env = require "format_env"
local formats = require "formats"
local mma_rows = require "gpu.mma_rows"
local tiles = require "tiles"

local mma = {
    name = "mma",
    op = "decode",
    template = "templates/gpu/decode_mma.c",
    shared = { "rows.h", "codes.h", "bias.h", "attention.h", "mma.h", "mma_bias.h", "mma_tile.h", "mma_bytes.h", "mma_rows.h", "mma_rows_k.h",
        "mma_rows_v.h" },
    layouts = { "tile_mma", "tile_wmma", "tile_mfma", "rows" },
    -- stages: how many tiles of a warp are in shared memory, by bulk copies; 1: none, the next one is read into registers; 2
    --         where that leaves room for a second block. Rows: 1 or 2 times 32 of them, what fits
    -- k_path: K.q in halves, or in bytes
    axes = { stages = { 3, 2, 4, 1 }, k_path = { "f16", "i8" } },
    best = { k_path = 2 },
}

-- Per matrix instruction: columns of B; registers of C and B; in how many parts decoded gains of V lie in shared memory, see
-- templates/gpu/mma_tile.h, where not a word per lane.
local SHAPES = {
    mma = { columns = 8, c = 4, b = 2 },
    wmma = { columns = 16, c = 8, b = 4, gain_parts = 1 },
    mfma = { columns = 16, c = 4, b = 2, gain_parts = 4 },
}
local BYTE_GAINS = 1024 -- bytes of shared memory for gains of a sub-tile of K, as integers
local WARPS = 4
local ROW_KEYS = 32
local Q_IN_REGISTERS = 32 -- of a lane; more is read from shared memory
local MOST_OUTPUTS = 144

local envs = {}
local function format_of(name, head_dim)
    local key = name .. " " .. head_dim
    envs[key] = envs[key] or table.pack(format_env(name, head_dim, 1))
    return envs[key][1], envs[key][2]
end

-- Rows: registers, shared memory, and how many rows of how many warps fit there.
local function plan_rows(of, variant, arch)
    local k, v = mma_rows(format_of(variant.k, variant.head_dim)),
        mma_rows(format_of(variant.v, formats.v_head_dim(variant.head_dim)))
    of.q_registers, of.outputs = 2 * k.k_steps, 4 * v.v_tiles
    of.apart = not (k.k_meet and v.v_meet)
    of.aux_bytes = k.k_aux + v.v_aux + of.groups * k.k_begin + v.v_begin + of.bias_bytes
    of.words = math.min(k.words, 8) + math.min(v.words, 8) + 8 -- where rows are copied from, and addresses
    of.words = of.words + (k.gain_words + v.gain_words > 0 and math.max(k.unit_bytes, v.unit_bytes) + 12 or 0)
    of.scaled_weights = v.offset
    local stage = ROW_KEYS * 16 * (k.words + v.words)
    local rest = 4 * variant.gqa * variant.head_dim + of.bias_table
    for _, try in ipairs { { 4, 2 }, { 4, 1 }, { 2, 1 }, { 1, 1 } } do
        of.warps, of.stages = try[1], try[2]
        of.stage_bytes = of.stages * stage
        if (try[2] == 1 or arch.copy ~= "none") and rest + of.warps * (of.aux_bytes + of.stage_bytes) <= attention.shared_limit(arch) then
            break
        end
    end
end

local function plan_tiles(of, variant, arch, k, v)
    local shape, tile = SHAPES[arch.matrix], tiles.get(variant.layout)
    local k_tile = tiles.of(tile, variant.k, variant.head_dim)
    local v_tile = tiles.of(tile, variant.v, formats.v_head_dim(variant.head_dim))
    local steps = k_tile.values // 16 -- k steps of S, row blocks of O
    of.chunks = variant.head_dim // (k_tile.values * k_tile.parts)
    of.sub_tiles = of.chunks * k_tile.parts
    of.q_registers = of.sub_tiles * steps * (of.k_path == "i8" and (k.bits == 4 and 2 or 1) or shape.b)
    of.outputs = of.sub_tiles * steps * shape.c
    local k_gains = of.k_path == "i8" and BYTE_GAINS or 16 * arch.warp
    local parts = shape.gain_parts
    local v_gains = parts and steps * parts * (2 * of.keys // parts + 16) or 16 * arch.warp
    of.aux_bytes = of.sub_tiles * ((k.subs > 0 and k_gains or 0) + (v.subs > 0 and v_gains or 0)) + of.bias_bytes
    of.more_rows = of.keys // 16 - arch.warp // 16 -- of S than in a tile of as many keys as lanes
    -- Scores times scales of keys as soon as they are known, where their registers are wanted: 8 rows a lane, of WMMA.
    of.scaled_at_once = shape.c == 8 and of.more_rows > 0 and (of.sub_tiles > 1 or variant.gqa > 8)
    of.ahead = not of.ring and not (arch.matrix == "wmma" and of.sub_tiles > 1)
    of.words = of.ahead and 4 * of.sub_tiles * (k.bits + v.bits) or 0
    of.stage_bytes = of.ring and of.stages * (k_tile.bytes + v_tile.bytes + 16) or 0
end

-- What follows from the axes.
local function plan(variant, arch)
    local shape = SHAPES[arch.matrix]
    local k = format_of(variant.k, variant.head_dim)
    local v = format_of(variant.v, formats.v_head_dim(variant.head_dim))
    local split_q = arch.matrix == "mma" and variant.gqa <= 4
    local rows = variant.layout == "rows"
    local of = {
        split_q = split_q, groups = (variant.gqa * (split_q and 2 or 1) + shape.columns - 1) // shape.columns,
        warps = WARPS, stages = variant.stages, ring = not rows and variant.stages > 1, k_path = variant.k_path,
        keys = ROW_KEYS, chunks = 1, sub_tiles = 1, more_rows = 0, k_gains = (k.subs or 0) > 0, scaled_at_once = false, ahead = false, scaled_weights = false, words = 0,
    }
    if not rows then
        of.keys = tiles.of(tiles.get(variant.layout), variant.k, variant.head_dim).keys
    end
    -- Shared memory of the score bias: a table of the block, and turned coefficients of each warp, see mma_bias.h.
    local columns = (split_q and 1 or 2) * of.groups * shape.columns
    of.bias_table = attention.bias_table(variant)
    of.bias_bytes = attention.bias_words(variant, of.keys // 32, columns)
    if rows then
        plan_rows(of, variant, arch)
    else
        plan_tiles(of, variant, arch, k, v)
    end
    -- Registers of a lane for q: for each group, or, as bytes, for each part.
    of.q = of.q_registers * (of.k_path == "i8" and (split_q and 1 or 2) or of.groups)
    of.q_shared = of.k_path == "f16" and of.q > Q_IN_REGISTERS
    if of.q_shared then
        of.q_registers = (of.q_registers + 3) // 4 * 4
        of.q = of.q_registers * of.groups
    end
    of.q_bytes = (4 * variant.gqa * variant.head_dim + 15) // 16 * 16 + (of.q_shared and 4 * of.q * arch.warp or 0)
        + of.bias_table
    if not (rows or of.ring) then -- fewer warps, where the gains of all do not fit
        while of.warps > 1 and of.q_bytes + of.warps * (of.aux_bytes + of.stage_bytes) > attention.shared_limit(arch) do
            of.warps = of.warps // 2
        end
    end
    of.shared_bytes = of.q_bytes + of.warps * (of.aux_bytes + of.stage_bytes)
    return of
end

-- Blocks that have room in the shared memory of a multiprocessor, each of which takes some of it for itself.
local function by_memory(arch, shared_bytes)
    return (arch.shared_limit + 1024) // (shared_bytes + 1024)
end

-- Do tiles fit twice, for two blocks, only if two of them are in flight?
local function wants_two(of, arch)
    local function bytes(stages)
        return of.shared_bytes + of.warps * of.stage_bytes * (stages - of.stages) // of.stages
    end
    return by_memory(arch, bytes(3)) < 2 and by_memory(arch, bytes(2)) > 1
end

-- Registers that a thread needs, as compilers have shown.
local function registers(of, variant, arch)
    local is_hip, c, b = arch.emulates == "hip", SHAPES[arch.matrix].c, SHAPES[arch.matrix].b
    local need = (is_hip and 116 or 72) + of.groups * of.outputs + (of.q_shared and 0 or of.q) + of.words
        + (of.groups > 1 and 24 or 0) + (variant.bias > 0 and 8 + 2 * (variant.gqa * variant.bias // arch.warp) or 0) + (variant.head_dim > 128 and 12 or 0)
    if of.more_rows > 0 and not of.k_gains and (is_hip or of.ahead) then -- a scale of each; on CUDA also scores and weights of more groups
        need = need + of.more_rows * (c + (is_hip and 0 or (of.groups - 1) * (c + b)))
    end
    if of.k_path == "i8" then
        need = need + (variant.bias > 0 and 12 or 0) + (of.split_q and 0 or 8) + (of.k_gains and (of.split_q and 16 or 48) or 0)
    end
    return need
end

-- Blocks per multiprocessor that leave a thread its registers.
local function blocks(of, variant, arch, shared_bytes)
    local by_registers = arch.registers // (of.warps * arch.warp * registers(of, variant, arch))
    return math.max(1, math.min(4, by_registers, by_memory(arch, shared_bytes)))
end

-- WMMA stands in the way of other instructions: for few heads dot products, family lane, cost less.
function mma.usual(variant, arch)
    return arch.matrix ~= "wmma" or variant.gqa > 4
end

function mma.legal(variant, arch)
    local rows = variant.layout == "rows"
    if not SHAPES[arch.matrix] then
        return nil, arch.name .. " has no matrix instructions that decode uses"
    elseif not rows and variant.layout ~= "tile_" .. arch.matrix then
        return nil, arch.name .. " reads its own tiles"
    elseif rows and arch.matrix ~= "mma" then
        return nil, "rows become operands of mma only: those of WMMA and MFMA want one row of A per lane"
    elseif rows and (variant.stages > 1 or variant.k_path == "i8") then
        return nil, "rows are staged by 16-byte copies and multiplied in halves"
    elseif variant.stages > 1 and arch.copy ~= "bulk" then
        return nil, "stages above 1 are filled by bulk copies, which " .. arch.name .. " has not"
    elseif variant.k_path == "i8" and (variant.stages == 1 or variant.gqa > 8) then
        return nil, "K.q in bytes pays where byte products cost least, on archs with bulk copies, for up to 8 heads"
    end
    local of = plan(variant, arch)
    if of.apart then
        return nil, "units that meet in a product have their gains in one block"
    elseif of.groups * of.outputs > MOST_OUTPUTS
        or of.more_rows > 0 and of.ahead and arch.emulates == "cuda" and registers(of, variant, arch) > 255 then
        return nil, ("%d heads of head_dim %d do not fit the registers of a warp"):format(variant.gqa, variant.head_dim)
    elseif of.k_path == "i8" and variant.bias > 0 and variant.head_dim >= 512 then
        return nil, "a score bias leaves no registers for q of head_dim 512 as bytes; in halves, in shared memory, it takes none"
    elseif of.k_path == "i8" and of.q > Q_IN_REGISTERS then
        return nil, ("q of %d heads of head_dim %d does not fit registers as bytes"):format(variant.gqa, variant.head_dim)
    elseif of.ring and of.stages < 4 and (of.stages == 2) ~= wants_two(of, arch) then
        return nil, "of 2 and 3 tiles in flight, 2 are for those that leave a multiprocessor a second block then"
    elseif of.shared_bytes > attention.shared_limit(arch) then
        return nil, ("what %d heads of head_dim %d share does not fit the shared memory of %s"):format(variant.gqa,
            variant.head_dim, arch.name)
    end
    return true
end

function mma.geometry(variant, arch)
    local of = plan(variant, arch)
    local rows = variant.layout == "rows"
    local result = 4 * attention.result_floats(variant.head_dim, variant.gqa) + 8 * of.warps * variant.gqa
    local shared_bytes = math.max(of.shared_bytes, result)
    return {
        threads = of.warps * arch.warp,
        shared_bytes = shared_bytes,
        keys_per_step = of.warps * of.keys,
        keys_per_tile = rows and 1 or of.keys,
        blocks_per_sm = blocks(of, variant, arch, shared_bytes),
        loop_keys = of.keys,
    }
end

function mma.env(variant, arch, env)
    env.mma = plan(variant, arch)
end

return mma
