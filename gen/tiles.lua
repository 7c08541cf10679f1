-- Tiled cache layouts as data. A tile holds `keys` slots of one side (K or V) of one KV head. Rotation chunks of 128 values are
-- one sub-tile each; others are cut into sub-tiles of 64 values, which have twice as many keys, so that a sub-tile has always
-- the same codes per lane. Per chunk follow each other: the codes of its sub-tiles, their gain codes (gain formats), one fp16
-- scale per key. Append, dequantise and repack texts, what decode needs to know about sizes, and the registry's table of tiles
-- derive from it; docs/formats.md says the same in words.
--
-- Where the code of (key, value) lies is a permutation of bits: "k0" and up are the bits of the key within the tile, "v0" and up
-- those of the value within the sub-tile, each list from the lowest bit up.
--   code   the code's number in its atom, 0 to 15: quad u = code / 4, nibble n = code % 4. Bits 0 and 1 are value bits, so
--          that a quad is of one key
--   half   half of the 32-bit words that hold the atom: an atom is `bits` halves of 16 bits, half i in word i of its group
--   group  of the lane, 0 to 3
--   lane   whose 16-byte loads yield the words: word x = bits * group + i of a lane is number
--          (x / 4 * lanes + lane) * 4 + x % 4 of the sub-tile
-- rows: no atoms; words of keys as a row has them, but the sign of 4-bit codes in their top bit; lane = key, or that key and then
--        the one 32 behind it, group and i replaced by the number of the word.
--
-- gains  number and half of the word that holds four gain codes, top bits where those of codes are ("s0" to "s2" are the
--        bits of a gain code's number in the sub-tile). Absent: those of a key follow those of the one before, as in a row.
-- scales number and half of the word that holds a key's scale. Absent: one half per key.
-- tops   bits of a half that hold bit 3 of nibbles 0 to 3
-- on     which archs read it; reason: why no others
-- of     [values of a sub-tile] = { keys =, k = side, v = side }

local formats = require "formats"
local transform = require "transform"

local tiles = {}

local NATURAL_TOPS = { 3, 7, 11, 15 }

tiles.list = {
    {
        name = "tile_mma", lanes = 32, tops = { 7, 15, 3, 11 },
        on = function(arch) return arch.matrix == "mma" end, reason = "tile_mma is in the order of mma.sync",
        of = {
            [128] = {
                keys = 32,
                k = {
                    lane = { "v2", "v3", "k0", "k1", "k2" }, half = "k3", code = { "v0", "v1", "v4", "v5" }, group = { "v6", "k4" },
                    gains = { word = { "s2", "k0", "k1", "k2", "k4" }, half = "k3" },
                    scales = { word = { "k0", "k1", "k2", "k4" }, half = "k3" },
                },
                v = {
                    lane = { "k1", "k2", "v0", "v1", "v2" }, half = "k0", code = { "v3", "v4", "v5", "v6" }, group = { "k3", "k4" },
                    gains = { word = { "s2", "k1", "k2", "k3", "k4" }, half = "k0" },
                    scales = { word = { "k1", "k2", "k3", "k4" }, half = "k0" },
                },
            },
            [64] = {
                keys = 64,
                k = {
                    lane = { "v2", "v3", "k0", "k1", "k2" }, half = "k3", code = { "v0", "v1", "v4", "v5" }, group = { "k4", "k5" },
                    gains = { word = { "k0", "k1", "k2", "k4", "k5" }, half = "k3" },
                    scales = { word = { "k0", "k1", "k2", "k4", "k5" }, half = "k3" },
                },
                v = {
                    lane = { "k1", "k2", "v0", "v1", "v2" }, half = "k0", code = { "v3", "v4", "v5", "k3" }, group = { "k4", "k5" },
                    gains = { word = { "k1", "k2", "k3", "k4", "k5" }, half = "k0" },
                    scales = { word = { "k1", "k2", "k3", "k4", "k5" }, half = "k0" },
                },
            },
        },
    },
    {
        name = "tile_wmma", lanes = 32, tops = NATURAL_TOPS,
        on = function(arch) return arch.matrix == "wmma" end, reason = "tile_wmma is in the order of the WMMA of gfx12",
        of = {
            [128] = {
                keys = 32,
                k = { lane = { "k0", "k1", "k2", "k3", "v3" }, half = "k4", code = { "v0", "v1", "v2", "v4" }, group = { "v5", "v6" } },
                v = { lane = { "v0", "v1", "v2", "v3", "k3" }, half = "k0", code = { "v4", "v5", "k1", "k2" }, group = { "v6", "k4" } },
            },
            [64] = {
                keys = 64,
                k = { lane = { "k0", "k1", "k2", "k3", "v3" }, half = "k4", code = { "v0", "v1", "v2", "v4" }, group = { "v5", "k5" } },
                v = { lane = { "v0", "v1", "v2", "v3", "k3" }, half = "k0", code = { "v4", "v5", "k1", "k2" }, group = { "k4", "k5" } },
            },
        },
    },
    {
        name = "tile_mfma", lanes = 64, tops = NATURAL_TOPS,
        on = function(arch) return arch.matrix == "mfma" end, reason = "tile_mfma is in the order of MFMA",
        of = {
            [128] = {
                keys = 64,
                k = { lane = { "k0", "k1", "k2", "k3", "v2", "v3" }, half = "k4", code = { "v0", "v1", "v4", "v5" }, group = { "v6", "k5" } },
                v = { lane = { "v0", "v1", "v2", "v3", "k2", "k3" }, half = "k0", code = { "v4", "v5", "v6", "k1" }, group = { "k4", "k5" } },
            },
            [64] = {
                keys = 128,
                k = { lane = { "k0", "k1", "k2", "k3", "v2", "v3" }, half = "k4", code = { "v0", "v1", "v4", "v5" }, group = { "k5", "k6" } },
                v = { lane = { "v0", "v1", "v2", "v3", "k2", "k3" }, half = "k0", code = { "v4", "v5", "k1", "k4" }, group = { "k5", "k6" } },
            },
        },
    },
    {
        name = "tile_lane", lanes = 32, tops = NATURAL_TOPS,
        on = function(arch) return arch.warp == 32 and arch.matrix ~= "mma" end,
        reason = "tile_lane gives each of 32 lanes its key, for archs without mma.sync",
        of = {
            [128] = {
                keys = 32,
                k = { rows = true },
                v = { lane = { "v2", "v3", "v4", "v5", "v6" }, half = "k2", code = { "v0", "v1", "k0", "k1" }, group = { "k3", "k4" } },
            },
            [64] = {
                keys = 64,
                k = { rows = true },
                v = { lane = { "v2", "v3", "v4", "v5", "k5" }, half = "k2", code = { "v0", "v1", "k0", "k1" }, group = { "k3", "k4" } },
            },
        },
    },
}

local by_name = {}
for _, tile in ipairs(tiles.list) do
    by_name[tile.name] = tile
end

-- nil for rows.
function tiles.get(name)
    return by_name[name]
end

-- The tiles that an arch reads.
function tiles.on(arch)
    local out = {}
    for _, tile in ipairs(tiles.list) do
        if tile.on(arch) then
            out[#out + 1] = tile
        end
    end
    return out
end

-- How a tile holds rotation chunks of so many values: the entry of `of`, and values, those of a sub-tile; parts, sub-tiles of a
-- chunk. Or nil and the reason why it does not.
function tiles.shape(tile, chunk)
    local values = chunk % 128 == 0 and 128 or 64
    if chunk % values ~= 0 then
        return nil, ("sub-tiles have 64 or 128 values, those of a chunk of %d would not be full"):format(chunk)
    end
    local of = tile.of[values]
    if not of then
        return nil, ("%s has no order for sub-tiles of %d values"):format(tile.name, values)
    end
    return { keys = of.keys, k = of.k, v = of.v, lanes = tile.lanes, values = values, parts = chunk // values }
end

local function takes(tile, head_dim)
    local shapes = {}
    for i, values in ipairs { head_dim, formats.v_head_dim(head_dim) } do
        local chunks, reason = transform.chunks(values)
        if chunks then
            shapes[i], reason = tiles.shape(tile, chunks[1].size)
        end
        if not shapes[i] then
            return nil, reason
        end
    end
    return shapes[1].keys == shapes[2].keys, ("tiles of K of head_dim %d would have %d keys, those of V %d"):format(head_dim,
        shapes[1].keys, shapes[2].keys)
end

-- Does a tile hold caches of this head_dim? If not, false or nil and the reason why.
local taken = {}
function tiles.takes(tile, head_dim)
    local key = tile.name .. " " .. head_dim
    taken[key] = taken[key] or table.pack(takes(tile, head_dim))
    return table.unpack(taken[key], 1, 2)
end

-- How a tile holds a format at a head_dim: tiles.shape, with bytes: codes and gains of a sub-tile; gains_at and scales_at, where
-- gain codes and scales of a chunk begin; chunk, bytes, those of a chunk and of the tile. Or nil and the reason why it does not.
function tiles.of(tile, format, head_dim)
    local layout, reason = formats.layout(format, head_dim)
    if not layout then
        return nil, reason
    elseif not layout.format.rotated then
        return nil, format .. " exists as rows only"
    end
    local ok
    ok, reason = tiles.takes(tile, head_dim)
    if not ok then
        return nil, reason
    end
    local shape = tiles.shape(tile, layout.chunk)
    shape.codes = shape.keys * layout.format.bits * shape.values // 8
    shape.gains = layout.subs > 0 and shape.keys * shape.values // 32 or 0
    shape.gains_at = shape.parts * shape.codes
    shape.scales_at = shape.gains_at + shape.parts * shape.gains
    shape.chunk = shape.scales_at + 2 * shape.keys
    shape.bytes = #layout.chunks * shape.chunk
    return shape
end

-- ---- bits -----------------------------------------------------------------------------------------------------------

-- The value of a list of bits, given the numbers that they are bits of: { k = 5, v = 17 }.
function tiles.number(bits, of)
    local out = 0
    for i, bit in ipairs(bits) do
        out = out | (of[bit:sub(1, 1)] >> tonumber(bit:sub(2)) & 1) << i - 1
    end
    return out
end

-- The same as a C expression: runs of neighbouring bits become one term. names: { k = "key", v = "value" }; bits of other
-- letters are left out.
function tiles.expression(bits, names)
    local terms, i = {}, 1
    while i <= #bits do
        local letter, first, n = bits[i]:sub(1, 1), tonumber(bits[i]:sub(2)), 1
        while bits[i + n] == letter .. first + n do
            n = n + 1
        end
        if names[letter] then
            local term = first > 0 and ("%s >> %d & %d"):format(names[letter], first, (1 << n) - 1)
                or ("%s & %d"):format(names[letter], (1 << n) - 1)
            terms[#terms + 1] = i > 1 and ("(%s) << %d"):format(term, i - 1) or ("(%s)"):format(term)
        end
        i = i + n
    end
    return #terms > 0 and "(" .. table.concat(terms, " | ") .. ")" or "0"
end

-- A quad is numbered by the value bits that are not its nibble's, from the lowest up. For a side with atoms of sub-tiles of so
-- many values, as bits of q (number of the quad), n (nibble), k:
--   lane, group, quad   where quad q of key k lies: quad u of an atom
--   natural, byte       of nibble n of quad q: value / 4 and value % 4
--   holder, nibble      the other way round, of byte n of the natural quad q (values 4q to 4q + 3): quad and nibble
--   is_natural          quads are runs of four values
--   shares              which bits of u come from the key, as a mask; 0: atoms are of one key
function tiles.quads(side, values)
    local number, rest, bits = {}, {}, {} -- value bit -> bit of q or n; bits of q -> value bit; value bits
    for i = 1, 2 do
        number[side.code[i]] = "n" .. i - 1
    end
    while 1 << #bits < values do
        local bit = "v" .. #bits
        bits[#bits + 1] = bit
        if not number[bit] then
            number[bit] = "q" .. #rest
            rest[#rest + 1] = bit
        end
    end
    local function renamed(list, names)
        local out = {}
        for i, bit in ipairs(list) do
            out[i] = names[bit] or bit
        end
        return out
    end
    local in_natural = { v0 = "n0", v1 = "n1" }
    for v = 2, #bits - 1 do
        in_natural["v" .. v] = "q" .. v - 2
    end
    local out = {
        lane = renamed(side.lane, number), group = renamed(side.group, number),
        quad = renamed({ side.code[3], side.code[4] }, number),
        natural = renamed(table.move(bits, 3, #bits, 1, {}), number), byte = renamed({ "v0", "v1" }, number),
        holder = renamed(rest, in_natural), nibble = renamed({ side.code[1], side.code[2] }, in_natural),
        is_natural = side.code[1] == "v0" and side.code[2] == "v1", shares = 0,
    }
    for i = 1, 2 do
        if out.quad[i]:sub(1, 1) == "k" then
            out.shares = out.shares | i
        end
    end
    return out
end

return tiles
