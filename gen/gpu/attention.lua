-- Sizes that templates/gpu/attention.h and the geometry of decode kernels share.

local attention = {
    MERGE = 64, -- partials or sink tokens merged at a time; a multiple of every warp size
}

-- Floats of shared memory that a block's result takes (tqa_result): acc; max, sum, keep; scores and sums to merge.
function attention.result_floats(head_dim, gqa)
    return gqa * (head_dim + 3 + 2 * attention.MERGE)
end

return attention
