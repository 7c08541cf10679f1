-- Decode where a few lanes share the product of one key with one query head: the baseline, for rows of any format.

local attention = require "gpu.attention"
local formats = require "formats"

local vec = {
    name = "vec",
    op = "decode",
    template = "templates/gpu/decode_vec.c",
    shared = { "rows.h", "codes.h", "bias.h", "attention.h" },
    layouts = { "rows" },
    axes = { kq_lanes = { 8, 32, 16, 4 } },
}

local REGISTERS = 128 -- of a thread
local MOST_QUADS = 16

-- The smallest power of two that is at least n.
local function power_above(n)
    local power = 1
    while power < n do
        power = 2 * power
    end
    return power
end

-- How quads of 4 values of a row are dealt to lanes, a power of two of them to each, and warps to the heads.
local function shape(variant, arch)
    local quads, v_quads = variant.head_dim // 4, formats.v_head_dim(variant.head_dim) // 4
    local v_lanes = math.min(arch.warp, power_above(v_quads))
    return {
        k_quads = power_above((quads + variant.kq_lanes - 1) // variant.kq_lanes),
        v_lanes = v_lanes,
        v_quads = power_above((v_quads + v_lanes - 1) // v_lanes),
        key_warps = math.max(1, 4 // variant.gqa),
    }
end

-- With more heads than one, tile decodes once for all of them.
function vec.usual(variant)
    return variant.gqa == 1
end

-- Quads of q that a lane has registers for; where divisions by 3 say which block of gains a quad is of, fewer.
function vec.legal(variant, arch)
    local k = formats.layout(variant.k, variant.head_dim)
    local most = (k.subs or 0) > 0 and k.full_units & k.full_units - 1 ~= 0 and MOST_QUADS // 2 or MOST_QUADS
    if shape(variant, arch).k_quads > most then
        return nil, ("%d lanes have registers for q of head_dim %d"):format(variant.kq_lanes, variant.head_dim)
    end
    return true
end

function vec.geometry(variant, arch)
    local s = shape(variant, arch)
    local warps = variant.gqa * s.key_warps
    local shared = 4 * (attention.result_floats(variant.head_dim, variant.gqa) + 2 * s.key_warps * variant.gqa)
        + attention.bias_floats(variant)
    return { threads = warps * arch.warp, shared_bytes = shared, keys_per_step = 32, keys_per_tile = 1,
        blocks_per_sm = attention.blocks(arch, REGISTERS, warps, shared) }
end

function vec.env(variant, arch, env)
    for name, value in pairs(shape(variant, arch)) do
        env[name] = value
    end
end

return vec
