-- Sizes that templates/gpu/attention.h and the geometry of decode kernels share.

local formats = require "formats"

local attention = {
    MERGE = 64, -- partials or sink tokens merged at a time; a multiple of every warp size
}

-- Bytes of shared memory that a block of decode can have for itself: tqg_arrive of HIP has a word, aligned like all else; from
-- sm_90 on code objects count a KiB of the system's.
function attention.shared_limit(arch)
    return arch.shared_limit - (arch.emulates == "hip" and 128 or arch.copy == "bulk" and 1024 or 0)
end

-- Floats of shared memory that a block's result takes (tqa_result): acc; max, sum, keep; scores and sums to merge. Its
-- prepared q, of head_dim, is never more.
function attention.result_floats(head_dim, gqa)
    return gqa * (formats.v_head_dim(head_dim) + 3 + 2 * attention.MERGE)
end

-- The score bias in shared memory, in bytes: its table, which is the last in a block's, for matrix products and as floats; what
-- a warp turned, in columns for matrix products and as floats for so many heads.
function attention.bias_table(variant)
    return 4 * 32 * variant.bias
end
function attention.bias_floats(variant)
    return 2 * attention.bias_table(variant)
end
function attention.bias_words(variant, runs, columns)
    return variant.bias > 0 and 4 * runs * columns * (variant.bias + (variant.bias > 8 and 8 or 0)) or 0
end
function attention.bias_turned(variant, arch, heads)
    return arch.warp // 32 * 8 * heads * variant.bias
end

-- Blocks of so many warps that a multiprocessor has room for, if a thread needs so many registers. HIP: what has four SIMDs,
-- see TQG_KERNEL.
function attention.blocks(arch, registers, warps, shared_bytes)
    local is_hip = arch.emulates == "hip"
    local pairs_of_units = is_hip and arch.warp == 32 and 2 or 1 -- compute units that share four SIMDs and their memory
    registers = (registers + 7) // 8 * 8
    local by_registers = pairs_of_units * arch.registers // (arch.warp * registers)
    if is_hip then
        by_registers = by_registers // 4 * 4 -- as many on each SIMD
    end
    local by_memory = pairs_of_units * arch.shared_limit // math.max(1, shared_bytes)
    return math.max(1, math.min(by_registers // warps, by_memory, 64 // warps))
end

return attention
