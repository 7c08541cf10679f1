-- Prefill with matrix instructions, or dot products in their place: a block of queries walks over the rows that it sees, which its
-- warps decode once, to halves in shared memory, and then multiply with a few query columns each. Where a warp has no registers for
-- the outputs of its columns, several share them: each multiplies a part of the values of K, and keeps the outputs of a part of
-- those of V.

local attention = require "gpu.attention"
local prefill_rows = require "gpu.prefill_rows"

local prefill = {
    name = "prefill",
    op = "prefill",
    template = "templates/gpu/prefill.c",
    shared = { "rows.h", "codes.h", "bias.h", "attention.h", "mma_dots.h", "mma.h", "mma_bias.h", "prefill_rows.h" },
    layouts = { "rows" },
    axes = {},
}

local COUNTED_COLUMNS = 64 -- what tests/gpu/gates.py counts are instructions for so many
-- Per matrix instruction: columns of B; registers of a row block of 16 values of O, and of as much of q; all: warps whose part of
-- the values is smaller multiply as many as the others, where branches about products cost compilers registers. none: what
-- templates/gpu/mma_dots.h has in their place, with all columns of a warp in B.
local SHAPES = {
    mma = { columns = 8, outputs = 4, q = 2 },
    wmma = { columns = 16, outputs = 8, q = 4 },
    wmma11 = { columns = 16, outputs = 8, q = 8, all = true },
    mfma = { columns = 16, outputs = 4, q = 2 },
    none = { outputs = 8, q = 4, all = true },
}
-- What blocks may look like, the best first: warps, warps that share columns, columns of those, registers at most for outputs, q
-- and the score bias; is q in shared memory, as it always is of dot products? Few warps share nothing; of wide heads those with most
-- columns come first. none: by lanes of a warp.
local BLOCKS = {
    mma = { { 4, 1, 16, 140 }, { 8, 2, 16, 160 }, { 8, 2, 16, 160, true }, { 8, 4, 16, 160 }, { 4, 4, 16, 160 } },
    wmma = { { 4, 1, 16, 160 }, { 8, 2, 16, 156 }, { 12, 4, 16, 156 }, { 8, 4, 16, 156 }, { 4, 4, 16, 156 } },
    wmma11 = { { 4, 1, 16, 160 }, { 8, 2, 16, 160 }, { 12, 4, 16, 160 }, { 8, 4, 16, 160 }, { 4, 4, 16, 160 }, { 8, 8, 16, 160 } },
    mfma = { { 4, 1, 16, 160 }, { 8, 2, 16, 160 }, { 4, 1, 16, 312 }, { 4, 2, 16, 160 } },
    none = {
        [32] = { { 8, 1, 16, 96 }, { 4, 1, 16, 128 }, { 8, 2, 16, 96 }, { 8, 4, 16, 96 }, { 4, 4, 16, 128 } },
        [64] = { { 4, 1, 32, 96 }, { 4, 2, 32, 96 }, { 4, 4, 32, 128 } },
    },
}

-- Registers and bytes of shared memory that a shape of blocks comes to.
local function sized(variant, arch, warps, parts, columns, q_shared)
    local shape = SHAPES[arch.matrix]
    local of = { warps = warps, parts = parts, columns = columns, q_shared = q_shared,
        rows = prefill_rows(variant.head_dim, variant.k, variant.v, arch) }
    of.dots = arch.matrix == "none"
    of.groups = of.dots and 1 or columns // shape.columns
    of.all = shape.all
    of.outputs = of.groups * ((of.rows.v_blocks + parts - 1) // parts) * shape.outputs
    of.q = of.groups * 2 * ((of.rows.k_units + parts - 1) // parts) * shape.q
    of.registers = of.outputs + ((q_shared or of.dots) and 0 or of.q)
    of.threads = warps * arch.warp
    of.tokens = warps // parts * columns // variant.gqa
    of.q_bytes = (q_shared or of.dots) and 4 * of.q * of.threads or 0
    -- Scores that are parts of sums, of each warp.
    of.score_bytes = parts > 1 and 4 * of.rows.keys * columns or 0
    -- Of the score bias: turned coefficients of warps that share columns, see mma_bias.h, and a table of the block.
    of.bias_bytes = attention.bias_words(variant, 1, 2 * columns)
    of.bias_shared = warps // parts * of.bias_bytes + attention.bias_table(variant)
    return of
end

-- Registers for what a lane keeps of a score bias.
local function bias_registers(of, variant, arch)
    return variant.bias > 0 and 12 + 2 * (of.columns * variant.bias // arch.warp) or 0
end

-- Where what is in shared memory begins, and its size: `buffers` steps of rows, in_turn: those of K make room for those of V; q
-- and scores; the score bias. Floats of columns, before and after steps, lie where rows do, of dot products also where q and
-- scores do.
local function placed(of, variant, buffers, in_turn)
    local rows = in_turn and math.max(of.rows.k_bytes, of.rows.v_bytes) or buffers * (of.rows.k_bytes + of.rows.v_bytes)
    local floats = 4 * of.columns * variant.head_dim
    local at = { q = of.dots and rows or math.max(rows, floats) }
    at.scores = at.q + of.q_bytes
    at.bias = math.max(at.scores + of.warps * of.score_bytes, floats)
    at.shared_bytes = at.bias + of.bias_shared
    return at
end

local function plan(variant, arch)
    local blocks = BLOCKS[arch.matrix]
    for _, block in ipairs(blocks[arch.warp] or blocks) do
        local warps, parts, columns, most, q_shared = table.unpack(block)
        local of = sized(variant, arch, warps, parts, columns, q_shared or false)
        if of.registers + bias_registers(of, variant, arch) <= most then
            for _, in_turn in ipairs { false, true } do
                if placed(of, variant, 1, in_turn).shared_bytes <= arch.shared_limit then
                    of.in_turn = in_turn
                    return of
                end
            end
        end
    end
end

function prefill.legal(variant, arch)
    if not plan(variant, arch) then
        return nil, ("a step of decoded rows of head_dim %d does not fit in the shared memory of %s"):format(variant.head_dim, arch.name)
    end
    return true
end

-- Blocks per multiprocessor that leave a thread the registers it needs, as compilers have shown; two buffers of decoded rows
-- only where shared memory does not limit blocks then.
local function residency(of, variant, arch)
    local need = arch.emulates == "cuda" and math.max(132, 76 + of.registers) or 100 + of.registers
    need = need + bias_registers(of, variant, arch)
    local by_registers = math.max(1, math.min(4, arch.registers // (of.threads * need)))
    local out
    for buffers = 1, (of.parts > 1 or of.in_turn) and 1 or 2 do
        local at = placed(of, variant, buffers, of.in_turn)
        local by_shared = (arch.shared_limit + 1024) // (at.shared_bytes + 1024)
        if buffers == 1 or by_shared >= by_registers then
            out = { buffers = buffers, at = at, blocks = math.max(1, math.min(by_registers, by_shared)) }
        end
    end
    return out
end

function prefill.geometry(variant, arch)
    local of = plan(variant, arch)
    local fit = residency(of, variant, arch)
    return { threads = of.threads, shared_bytes = fit.at.shared_bytes, keys_per_step = of.tokens, keys_per_tile = 1,
        blocks_per_sm = fit.blocks, loop_keys = of.rows.keys / of.warps * (of.warps // of.parts * of.columns) / COUNTED_COLUMNS }
end

function prefill.env(variant, arch, env)
    env.prefill = plan(variant, arch)
    env.fit = residency(env.prefill, variant, arch)
end

return prefill
