-- What templates see of a format at a head_dim: its layout and tables, and values derived from them.

local formats = require "formats"
local search = require "search"
local template = require "template"
local text = require "text"
local transform = require "transform"

local map = text.map

local SCALE_MODES = { none = 1, nc = 2, searched = 3 } -- tq_scale_mode

local function largest(values)
    return math.max(table.unpack(map(values, math.abs)))
end

local function reciprocal(x)
    return 1 / x
end

local function is_symmetric(centroids)
    for k = 1, #centroids do
        if centroids[k] ~= -centroids[#centroids + 1 - k] then
            return false
        end
    end
    return true
end

-- Entries for code bytes 0..15; where a gain has a sign, bit 3 of the code carries it and negates the centroid.
local function lookup_table(layout)
    local out, bits = {}, layout.format.bits
    for i = 0, 15 do
        local entry = layout.table.centroids[(i & ((1 << bits) - 1)) + 1]
        out[formats.code(bits, i) + 1] = layout.table.signed and i >= 8 and -entry or entry
    end
    return out
end

local function codes_by_index(bits)
    local out = {}
    for index = 0, (1 << bits) - 1 do
        out[index + 1] = formats.code(bits, index)
    end
    return out
end

-- The names that templates use, and the layout. f16 has only the first of these names.
return function(name, head_dim)
    local layout = formats.layout(name, head_dim)
    local format = layout.format
    local env = {
        format = name, head_dim = head_dim, bits = format.bits, rotated = format.rotated, row_bytes = layout.row_bytes,
        hexf = template.hexf, list = text.list, floats = text.floats, map = map,
    }
    if format.bits == 16 then
        return env, layout
    end
    local centroids, gains = layout.table.centroids or { -128 }, layout.table.gains or { 1 }
    local symmetric = is_symmetric(centroids)
    local top = (1 << 31) // (largest(centroids) * largest(gains))
    local chunk = layout.chunks[1]
    local summed = layout.subs > 0 and layout.block or head_dim
    local unit, tail_unit = formats.unit(format.bits, 32), formats.unit(format.bits, 16)
    for key, value in pairs {
        block = layout.block, block_bytes = layout.block_bytes, n_blocks = layout.n_blocks, header = layout.header,
        full_units = layout.full_units, tail = layout.tail, subs = layout.subs, chunk = layout.chunk,
        pow2 = chunk.pow2, odd = chunk.odd, unit = unit, tail_unit = tail_unit,
        step = layout.table.step, signed = layout.table.signed or false,
        centroids = layout.table.centroids or false, gains = layout.table.gains or false,
        codes = layout.table.centroids and codes_by_index(layout.format.bits) or false,
        lookup_table = layout.table.centroids and lookup_table(layout) or false,
        gain_sizes = layout.table.gains and map(layout.table.gains, math.abs) or false,
        inverse_gains = layout.table.gains and map(layout.table.gains, reciprocal) or false,
        symmetric = symmetric, search = format.search and search.tables(layout, symmetric) or false,
        modes = SCALE_MODES,
        -- Bounds of sums of |q| over what is summed in one go, a whole row if its scales are equal, and of |weights| over a
        -- tile, rounding included; false: cannot overflow.
        q_sum = summed * 32768 > top and top - summed or false,
        weight_sum = top - 128,
        k_signs = transform.signs(head_dim, "k"), v_signs = transform.signs(head_dim, "v"),
    } do
        env[key] = value
    end
    return env, layout
end
