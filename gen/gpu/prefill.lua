-- Prefill with matrix instructions: a block of queries walks over the rows that it sees, which its warps decode once, to
-- halves in shared memory, and then multiply with a few query columns each.

local attention = require "gpu.attention"
local formats = require "formats"

local prefill = {
    name = "prefill",
    op = "prefill",
    template = "templates/gpu/prefill.c",
    shared = { "rows.h", "codes.h", "bias.h", "attention.h", "mma.h", "mma_bias.h" },
    layouts = { "rows" },
    axes = {},
}

-- Per matrix instruction: columns of B; registers of a row block of 16 values of O, and of as much of q; bytes of 16 values of
-- V of a step in shared memory, and from one load of a lane of them to the next.
local SHAPES = {
    mma = { columns = 8, outputs = 4, q = 2, v_block = 2 * 576, v_load = 576 },
    wmma = { columns = 16, outputs = 8, q = 4, v_block = 4 * 272, v_load = 2 * 272 },
    mfma = { columns = 16, outputs = 4, q = 2, v_block = 4 * 272, v_load = 4 * 272 },
}
local WARPS, KEYS = 4, 32 -- of a block; of a step
local WARP_COLUMNS = 16
local MOST_HEAD_DIM = 256
local MOST_REGISTERS = 160 -- for outputs and q; beyond, q is read from shared memory, of which half as many warps leave enough

local function plan(variant, arch)
    local shape = SHAPES[arch.matrix]
    local k, v = formats.layout(variant.k, variant.head_dim), formats.layout(variant.v, variant.head_dim)
    local function units(layout, tail)
        if layout.format.bits == 16 then
            return variant.head_dim // 32 + (variant.head_dim % 32 ~= 0 and tail or 0)
        end
        return layout.n_blocks * (layout.full_units + (layout.tail and tail or 0))
    end
    local of = { keys = KEYS, v_load = shape.v_load, v_block_bytes = shape.v_block }
    of.columns = arch.matrix == "mma" and variant.head_dim > 128 and shape.columns or WARP_COLUMNS
    of.groups = of.columns // shape.columns
    of.k_units = units(k, 1)
    of.v_blocks = math.tointeger(2 * units(v, 0.5))
    of.k_bytes, of.v_bytes = 2 * KEYS * 32 * of.k_units, of.v_blocks * of.v_block_bytes
    of.registers, of.q = of.groups * of.v_blocks * shape.outputs, of.groups * 2 * of.k_units * shape.q
    of.q_shared = of.registers + of.q > MOST_REGISTERS
    if of.q_shared then
        assert(shape.q == 4, "q in shared memory: words of 16 bytes per k step")
    else
        of.registers = of.registers + of.q
    end
    of.warps = of.q_shared and WARPS // 2 or WARPS
    of.threads = of.warps * arch.warp
    of.q_bytes = of.q_shared and 4 * of.q * of.threads or 0
    -- Of the score bias, behind all else: turned coefficients of each warp, see mma_bias.h, and a table of the block.
    of.bias_bytes = attention.bias_words(variant, 1, 2 * of.columns)
    of.bias_shared = of.warps * of.bias_bytes + attention.bias_table(variant)
    of.tokens = of.warps * of.columns // variant.gqa
    return of
end

function prefill.legal(variant, arch)
    if arch.matrix == "none" then
        return nil, arch.name .. " has no matrix instructions that prefill uses"
    elseif variant.head_dim > MOST_HEAD_DIM then
        return nil, ("the outputs of a warp's queries do not fit its registers at head_dim %d"):format(variant.head_dim)
    end
    local of = plan(variant, arch)
    if of.k_bytes + of.v_bytes + of.q_bytes + of.bias_shared > arch.shared_limit then
        return nil, ("%d decoded keys and values fit in the shared memory of %s"):format(KEYS, arch.name)
    end
    return true
end

-- Blocks per multiprocessor that leave a thread the registers it needs, as compilers have shown; two buffers of decoded rows
-- only where shared memory does not limit blocks then.
local function residency(of, variant, arch)
    local need = arch.emulates == "cuda" and math.max(132, 76 + of.registers) or 100 + of.registers
    need = need + (variant.bias > 0 and 12 + 2 * (of.columns * variant.bias // arch.warp) or 0)
    local by_registers = math.max(1, math.min(4, arch.registers // (of.threads * need)))
    local out
    for buffers = 1, 2 do
        local q_at = math.max(buffers * (of.k_bytes + of.v_bytes), 4 * of.columns * variant.head_dim)
        local by_shared = (arch.shared_limit + 1024) // (q_at + of.q_bytes + of.bias_shared + 1024)
        if buffers == 1 or by_shared >= by_registers then
            out = { buffers = buffers, q_at = q_at, blocks = math.max(1, math.min(by_registers, by_shared)) }
        end
    end
    return out
end

function prefill.geometry(variant, arch)
    local of = plan(variant, arch)
    local fit = residency(of, variant, arch)
    return { threads = of.threads, shared_bytes = fit.q_at + of.q_bytes + of.bias_shared, keys_per_step = of.tokens, keys_per_tile = 1,
        blocks_per_sm = fit.blocks, loop_keys = KEYS / of.warps }
end

function prefill.env(variant, arch, env)
    env.prefill = plan(variant, arch)
    env.fit = residency(env.prefill, variant, arch)
end

return prefill
