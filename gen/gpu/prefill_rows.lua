-- What a step of prefill has in shared memory of rows of K and V: numbers that templates/gpu/prefill_rows.h and the geometry of
-- kernels share.

local formats = require "formats"

-- Keys of a step; of wide heads, where q takes much shared memory, too, half as many.
local KEYS, DOTS_WIDE = 32, { [32] = 257, [64] = 256 }
local function keys_of(head_dim, arch)
    return arch.matrix == "none" and head_dim >= DOTS_WIDE[arch.warp] and KEYS // 2 or KEYS
end

-- Per matrix instruction: bytes of 16 values of V of 32 keys, and behind those of a step; from one load of a lane of them to the
-- next; the same of K. kept: registers of weights of 16 keys, if not those of B.
local V_BLOCKS = {
    mma = { bytes = 2 * 576, load = 576, k_load = 512 },
    wmma = { bytes = 4 * 272, load = 2 * 272, k_load = 512 },
    wmma11 = { bytes = 4 * 272, load = 272, k_load = 256 },
    mfma = { bytes = 4 * 272, load = 4 * 272, k_load = 1024 },
    none = { bytes = 8 * 144, load = 144, pad = 16, k_load = 128, kept = 4 },
}

-- Units of 32 values of a row; a last one of 16 counts as `tail`.
local function units(format, head_dim, tail)
    local layout = formats.layout(format, head_dim)
    if layout.format.bits == 16 then
        return head_dim // 32 + (head_dim % 32 ~= 0 and tail or 0)
    end
    return layout.n_blocks * (layout.full_units + (layout.tail and tail or 0))
end

return function(head_dim, k, v, arch)
    local block = V_BLOCKS[arch.matrix]
    local keys = keys_of(head_dim, arch)
    local rows = { keys = keys, k_load = block.k_load, v_load = block.load, kept = block.kept,
        v_block_bytes = block.bytes * keys // KEYS + (block.pad or 0) }
    rows.k_units = units(k, head_dim, 1)
    rows.v_blocks = math.tointeger(2 * units(v, formats.v_head_dim(head_dim), 0.5))
    rows.k_bytes, rows.v_bytes = 2 * keys * 32 * rows.k_units, rows.v_blocks * rows.v_block_bytes
    return rows
end
