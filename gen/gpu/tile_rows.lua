-- How kernel tile lays rows out in shared memory and deals V out to lanes: numbers that templates/gpu/tile_rows.h and the
-- geometry of kernels share. k and v: what templates see of the two formats, or anything with these of its names.

local PREFETCH, PREFETCH_BESIDE_GAINS = 12, 8 -- 16-byte loads that a lane has registers for ahead; gains: of two chunks

local function ceil_div(a, b)
    return (a + b - 1) // b
end

-- Rows of one side of a step: stride; words of 16 bytes that hold them, and loads of such words per lane; padded: words per
-- row if a pad of 16 bytes follows each row, so that lanes which read different rows meet different banks.
local function staged(f, warp)
    local row = f.row_bytes
    if row % 32 == 0 then
        local words = warp * row // 16
        return { stride = row + 16, padded = row // 16, words = words, loads = words // warp, bytes = warp * (row + 16) }
    end
    local words = ceil_div(14 + warp * row, 16)
    return { stride = row, padded = false, words = words, loads = ceil_div(words, warp), bytes = 16 * words + 16 }
end

-- k, v: see staged; region: bytes for either; prefetch: rows are loaded into registers a step ahead. columns: of 8 values
-- that a lane sums up; parts: lanes that share one, each for other keys; per_lane. scales: stored ones per row of V; sets of
-- weights: one for the values that share a scale.
return function(k, v, warp)
    local out = { k = staged(k, warp), v = staged(v, warp) }
    out.region = math.max(out.k.bytes, out.v.bytes)
    out.prefetch = out.k.loads + out.v.loads <= ((k.subs or 0) > 0 and v.head_dim > 128 and PREFETCH_BESIDE_GAINS or PREFETCH)
    out.columns = v.bits < 8 and v.n_blocks * (v.full_units + (v.tail and 1 or 0)) * 4 or v.head_dim // 8
    out.per_lane = ceil_div(out.columns, warp)
    out.parts = 1
    while 2 * out.parts * out.columns <= warp and 2 * out.parts <= warp // 4 do
        out.parts = 2 * out.parts
    end
    out.scales = v.bits < 16 and v.n_blocks or 0
    out.sets = v.bits < 16 and v.n_blocks * math.max(1, v.subs) or 1
    return out
end
