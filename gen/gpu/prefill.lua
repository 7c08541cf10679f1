-- Prefill with matrix instructions: a block of queries walks over the rows that it sees, which its warps decode once, to
-- halves in shared memory, and then multiply with a few query columns each.

local formats = require "formats"

local prefill = {
    name = "prefill",
    op = "prefill",
    template = "templates/gpu/prefill.c",
    shared = { "rows.h", "codes.h", "attention.h", "mma.h" },
    layouts = { "rows" },
    axes = {},
}

-- Per matrix instruction: columns of B; registers of a row block of 16 values of O, and of as much of q.
local SHAPES = {
    mma = { columns = 8, outputs = 4, q = 2 },
    wmma = { columns = 16, outputs = 8, q = 4 },
    mfma = { columns = 16, outputs = 4, q = 2 },
}
local WARPS, KEYS = 4, 32 -- of a block; of a step
local WARP_COLUMNS = 16
local MOST_HEAD_DIM = 256
local BLOCK_PAD = 64 -- bytes behind 16 rows of V^T: threads that store neighbouring blocks meet different banks

-- Bytes from row to row of keys in shared memory, so that the lanes of a load meet different banks. On mma, which loads four
-- words of 16 bytes from each of two rows at a time, rows begin half a turn of the banks apart, and keys are swizzled.
local function key_pitch(matrix, positions)
    if matrix == "mma" then
        return 2 * positions + (2 * positions % 128 == 0 and 64 or 0)
    end
    return 2 * positions + 16
end

local function plan(variant, arch)
    local shape = SHAPES[arch.matrix]
    local k, v = formats.layout(variant.k, variant.head_dim), formats.layout(variant.v, variant.head_dim)
    local function units(layout, tail)
        if layout.format.bits == 16 then
            return variant.head_dim // 32 + (variant.head_dim % 32 ~= 0 and tail or 0)
        end
        return layout.n_blocks * (layout.full_units + (layout.tail and tail or 0))
    end
    local of = { warps = WARPS, keys = KEYS, swizzle = arch.matrix == "mma", v_pitch = arch.matrix == "mma" and 64 or 80,
        block_pad = BLOCK_PAD }
    of.columns = arch.matrix == "mma" and variant.head_dim > 128 and shape.columns or WARP_COLUMNS
    of.groups = of.columns // shape.columns
    of.tokens = WARPS * of.columns // variant.gqa
    of.k_units = units(k, 1)
    of.v_blocks = math.tointeger(2 * units(v, 0.5))
    of.k_pitch = key_pitch(arch.matrix, 32 * of.k_units)
    of.v_block_pitch = 16 * of.v_pitch + BLOCK_PAD
    of.k_bytes, of.v_bytes = KEYS * of.k_pitch, of.v_blocks * of.v_block_pitch
    of.registers = of.groups * (of.v_blocks * shape.outputs + 2 * of.k_units * shape.q)
    return of
end

function prefill.legal(variant, arch)
    if arch.matrix == "none" then
        return nil, arch.name .. " has no matrix instructions that prefill uses"
    elseif variant.head_dim > MOST_HEAD_DIM then
        return nil, ("the outputs of a warp's queries do not fit its registers at head_dim %d"):format(variant.head_dim)
    end
    local of = plan(variant, arch)
    if of.k_bytes + of.v_bytes > arch.shared_limit then
        return nil, ("%d decoded keys and values fit in the shared memory of %s"):format(KEYS, arch.name)
    end
    return true
end

-- Blocks per multiprocessor that leave a thread the registers it needs, as compilers have shown; two buffers of decoded rows
-- only where shared memory does not limit blocks then.
local function residency(of, variant, arch)
    local need = (arch.emulates == "cuda" and 72 or 100) + of.registers
    local by_registers = math.max(1, math.min(4, arch.registers // (WARPS * arch.warp * need)))
    local function by_shared(bytes)
        return (arch.shared_limit + 1024) // (bytes + 1024)
    end
    local one, q = of.k_bytes + of.v_bytes, 4 * of.columns * variant.head_dim
    local double = by_shared(math.max(2 * one, q)) >= by_registers
    local bytes = math.max(double and 2 * one or one, q)
    return math.max(1, math.min(by_registers, by_shared(bytes))), double and 2 or 1, bytes
end

function prefill.geometry(variant, arch)
    local of = plan(variant, arch)
    local blocks, _, shared_bytes = residency(of, variant, arch)
    return { threads = WARPS * arch.warp, shared_bytes = shared_bytes, keys_per_step = of.tokens, keys_per_tile = 1,
        blocks_per_sm = blocks, loop_keys = KEYS / WARPS }
end

function prefill.env(variant, arch, env)
    env.prefill = plan(variant, arch)
    local _, buffers = residency(env.prefill, variant, arch)
    env.buffers = buffers
end

return prefill
