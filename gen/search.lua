-- Tables by which append chooses among candidate scales or gains in bytes. A candidate takes every value, first brought
-- to 16 bits, to a byte t = value / candidate * unit; by cells of t, two lookups give the distance to the nearest level.

local formats = require "formats"

local search = {}

local VALUE_16 = 8192 -- the largest magnitude of a block as append converts it to 16 bits
local GAIN_16 = 2 -- where there are gains: 16-bit units per centroid * gain

local function round(x)
    return math.floor(x + 0.5)
end

-- By cell of 8 bytes of |t|, or of 16 bytes of t in two's complement: the boundary nearest to the cell's centre, and half
-- the gap between the two levels around it. Next to it, a value's distance to its level is ||t - boundary| - half gap|.
local function cells(levels, signed, unit)
    local boundaries, half_gaps = {}, {}
    for i = 0, 15 do
        local centre = signed and (i < 8 and i or i - 16) * 16 + 7.5 or i * 8 + 3.5
        local nearest = math.huge
        for k = 1, #levels - 1 do
            local boundary = (levels[k] + levels[k + 1]) / 2 * unit
            if math.abs(boundary - centre) < nearest then
                nearest = math.abs(boundary - centre)
                boundaries[i + 1] = round(boundary)
                half_gaps[i + 1] = round((levels[k + 1] - levels[k]) / 2 * unit)
            end
        end
    end
    return boundaries, half_gaps
end

-- By cell of 16 of |value| in halves of a unit, levels those above 0: the code of the level at the cell's end, if no boundary
-- lies in it, else of the one before, and the boundary; without one, 0. Bytes hold both.
local function nearest_cells(levels, bits)
    local codes, boundaries, half = {}, {}, 1 << bits - 1
    local step = formats.code(bits, half + 1) - formats.code(bits, half)
    for cell = 0, 15 do
        local below, inside = 0, {}
        for k = 1, #levels - 1 do
            local boundary = levels[k] + levels[k + 1]
            assert(boundary < 256, "levels: boundaries are bytes in halves of a unit")
            if boundary < 16 * cell then
                below = below + 1
            elseif boundary < 16 * cell + 16 then
                inside[#inside + 1] = boundary
            end
        end
        assert(#inside < 2, "levels: two boundaries in one cell")
        boundaries[cell + 1] = inside[1] or 0
        codes[cell + 1] = formats.code(bits, half) + step * (inside[1] and below or below - 1)
    end
    return codes, boundaries, step
end

local function least(values)
    return math.min(table.unpack(values))
end

-- layout: what formats.layout returns; symmetric: of its centroids. Returns
--   boundaries, half_gaps  by cell, see above
--   tries                  candidates of a block, or of a sign of a gain
--   multipliers            from 16 bits to t, in 1/32768, by candidate or by gain code; as pairs of 16-bit numbers
--   factors                of candidates, as their rounded multipliers have them
--   inverse_units          of candidates, for a block whose largest magnitude is 1
--   value_16, gain_16      what the 16-bit values are in
--   nearest_codes, nearest_boundaries, code_step, code_flip
--                          without gains: the cells above; from the code of a magnitude to the next one's; what the codes of
--                          x and -x differ in
--   slope, offset          for gains: the lowest code to try is slope * size + offset, see formats
function search.tables(layout, symmetric)
    local centroids, gains, how = layout.table.centroids, layout.table.gains, layout.format.search
    local levels = symmetric and table.move(centroids, #centroids // 2 + 1, #centroids, 1, {}) or centroids
    local top = levels[#levels]
    local unit = 127 / top / (how.reach or 1 / least(how.factors))
    local out = { multipliers = {}, tries = how.tries or #how.factors, factors = {}, inverse_units = {},
        value_16 = VALUE_16, gain_16 = GAIN_16 }
    out.boundaries, out.half_gaps = cells(levels, not symmetric, unit)
    if gains then
        for code, gain in ipairs(gains) do
            out.multipliers[code] = (round(32768 * unit / GAIN_16 / gain) & 0xffff) * 0x10001
        end
        out.slope, out.offset = how.slope, how.offset
    else
        local bits = layout.format.bits
        out.nearest_codes, out.nearest_boundaries, out.code_step = nearest_cells(levels, bits)
        out.code_flip = formats.code(bits, 1 << bits - 1) ~ formats.code(bits, (1 << bits - 1) - 1)
        for k, factor in ipairs(how.factors) do
            local multiplier = round(32768 / VALUE_16 * unit * top / factor)
            out.multipliers[k] = multiplier * 0x10001
            out.factors[k] = 32768 / VALUE_16 * unit * top / multiplier
            out.inverse_units[k] = top / out.factors[k]
        end
    end
    return out
end

return search
