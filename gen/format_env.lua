-- What templates see of a format at a head_dim: its layout and tables, and values derived from them.

local formats = require "formats"
local search = require "search"
local template = require "template"
local text = require "text"
local transform = require "transform"

local map = text.map

local SCALE_MODES = { none = 1, nc = 2, searched = 3 } -- tq_scale_mode

-- Units of a row are summed in groups of `units` neighbours that share vectors; each unit is weighed by a stored scale.
-- Returns the distinct sets of scales, flattened, and which set each group of units takes (the tail comes last, alone).
local function weight_groups(layout, units)
    local sets, by_key, of_group = {}, {}, {}
    local all = layout.n_blocks * layout.full_units
    local function add(scales)
        local key = table.concat(scales, " ")
        if not by_key[key] then
            by_key[key] = #sets // units
            table.move(scales, 1, units, #sets + 1, sets)
        end
        of_group[#of_group + 1] = by_key[key]
    end
    for first = 0, all - 1, units do
        local scales = {}
        for u = 0, units - 1 do
            scales[u + 1] = math.min(first + u, all - 1) // layout.full_units
        end
        add(scales)
    end
    if layout.tail then
        local scales = {}
        for u = 1, units do
            scales[u] = layout.n_blocks - 1
        end
        add(scales)
    end
    return sets, of_group
end

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

-- The names that templates use, and the layout. units: of 32 values, whose sums share a vector (CPU archs). f16 has only the
-- first of these names.
return function(name, head_dim, units)
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
    local sets, of_group = weight_groups(layout, units)
    local unit, tail_unit = formats.unit(format.bits, 32), formats.unit(format.bits, 16)
    for key, value in pairs {
        block = layout.block, block_bytes = layout.block_bytes, n_blocks = layout.n_blocks, header = layout.header,
        full_units = layout.full_units, tail = layout.tail, subs = layout.subs, chunk = layout.chunk,
        pow2 = chunk.pow2, odd = chunk.odd, unit = unit, tail_unit = tail_unit,
        max_words = math.max(unit.words, tail_unit.words + (tail_unit.half and 1 or 0)),
        step = layout.table.step, signed = layout.table.signed or false,
        centroids = layout.table.centroids or false, gains = layout.table.gains or false,
        lookup_table = layout.table.centroids and lookup_table(layout) or false,
        gain_sizes = layout.table.gains and map(layout.table.gains, math.abs) or false,
        inverse_gains = layout.table.gains and map(layout.table.gains, reciprocal) or false,
        symmetric = symmetric, search = format.search and search.tables(layout, symmetric) or false,
        modes = SCALE_MODES,
        -- Bounds of sums of |q| over a block and of |weights| over a tile, rounding included; false: cannot overflow.
        q_sum = layout.block * 32768 > top and top - layout.block or false,
        weight_sum = top - 128,
        scale_sets = sets, set_of_group = of_group,
        k_signs = transform.signs(head_dim, "k"), v_signs = transform.signs(head_dim, "v"),
    } do
        env[key] = value
    end
    return env, layout
end
