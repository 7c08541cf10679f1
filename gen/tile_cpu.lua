-- The tiled layout of CPU caches as data: 128 keys of one side of one KV head, in the order in which vectors of 16 or 8 lanes
-- take them, from the very pieces that rows consist of (formats.layout), so that repacking loses nothing and a tile has as many
-- bytes as its rows. docs/formats.md says the same in words.
--
-- A row is, in its own order, 16-bit halves of headers (scales, gain codes) and 32-bit words of payload; a 3-bit unit of 16
-- values ends with a half of payload. In a tile, the header halves come first, [half][key], then all payload: a tile is read in the
-- order of memory, which is what hardware prefetchers follow.
--   K  payload of 16 keys after that of 16 others: [word][key], then the half of payload: [key]
--   V  units go in sets of `columns` = 4, 2 and 1 (a last unit of 16 values is a set by itself), set after set; 16/columns keys
--      of a set follow each other: [word][lane] of four bytes, one per key of a quad. The 16 lanes are 4 columns c, quad in
--      column / columns and unit in column % columns, times 4 bytes y of the word: lane = 8 (c / 2) + 2 y + c % 2. Then the
--      half of payload: 8 lanes 2 c + y.

local tile_cpu = { name = "tile_cpu", keys = 128, reason = "tile_cpu is in the order of CPU vectors" }

local GROUP, LANES = 16, 16

function tile_cpu.on(arch)
    return arch.kind == "cpu"
end

-- Bytes of a tile for a layout of formats.layout, or nil and the reason why there is none.
function tile_cpu.bytes(layout)
    if layout.format.bits == 16 then
        return nil, layout.format.name .. " exists as rows only"
    end
    return tile_cpu.keys * layout.row_bytes
end

-- Units of a row in order: { first byte in the row, words, half = has it one of payload }.
local function units_of(layout, unit, tail_unit)
    local units = {}
    for block = 0, layout.n_blocks - 1 do
        local at = block * layout.block_bytes + layout.header
        for i = 0, layout.full_units - 1 do
            units[#units + 1] = { at = at + i * unit.bytes, words = unit.words }
        end
        if layout.tail then
            units[#units + 1] = { at = at + layout.full_units * unit.bytes, words = tail_unit.words, half = tail_unit.half,
                tail = true }
        end
    end
    return units
end

-- First byte of the payload in a tile.
local function payload_at(layout)
    return layout.n_blocks * layout.header * tile_cpu.keys
end

-- Cuts units into sets: { columns, first unit (from 0), words, half, at = first byte in the tile, step = bytes from 16/columns
-- keys to the next }.
function tile_cpu.sets(layout, unit, tail_unit)
    local units, sets, at, i = units_of(layout, unit, tail_unit), {}, payload_at(layout), 1
    local full = #units - (layout.tail and 1 or 0)
    while i <= #units do
        local left = full - i + 1
        local columns = left >= 4 and 4 or left >= 2 and 2 or 1
        local step = 4 * LANES * units[i].words + (units[i].half and 2 * LANES or 0)
        sets[#sets + 1] = { columns = columns, first = i - 1, words = units[i].words, half = units[i].half or false, at = at,
            step = step, tail = units[i].tail or false }
        at = at + step * columns * tile_cpu.keys // 16
        i = i + columns
    end
    return sets
end

-- The pieces of a row and where they lie in tiles:
--   row      first byte in the row
--   kind     "header" (two bytes; its keys are in a run), "word" (four bytes), "half" (two bytes of payload)
--   k, v     first byte in a tile of K, of V
--   k_step   bytes from 16 keys to the next; v_step: from 16/columns keys to the next
--   columns, column   of the set of V, and the unit's place in it
function tile_cpu.pieces(layout, unit, tail_unit)
    local pieces, words, halves = {}, 0, 0
    local units = units_of(layout, unit, tail_unit)
    for _, u in ipairs(units) do
        words, halves = words + u.words, halves + (u.half and 1 or 0)
    end
    for block = 0, layout.n_blocks - 1 do
        for half = 0, layout.header // 2 - 1 do
            local at = (block * (layout.header // 2) + half) * 2 * tile_cpu.keys
            pieces[#pieces + 1] = { row = block * layout.block_bytes + 2 * half, kind = "header", k = at, v = at, k_step = 0,
                v_step = 0, columns = 0, column = 0 }
        end
    end
    local k, k_step = payload_at(layout), GROUP * (4 * words + 2 * halves)
    for _, set in ipairs(tile_cpu.sets(layout, unit, tail_unit)) do
        for column = 0, set.columns - 1 do
            local u = units[set.first + column + 1]
            local function piece(kind, row, v, bytes)
                pieces[#pieces + 1] = { row = u.at + row, kind = kind, k = k, v = set.at + v, k_step = k_step, v_step = set.step,
                    columns = set.columns, column = column }
                k = k + GROUP * bytes
            end
            for word = 0, u.words - 1 do
                piece("word", 4 * word, 4 * LANES * word, 4)
            end
            if u.half then
                piece("half", 4 * u.words, 4 * LANES * u.words, 2)
            end
        end
    end
    return pieces
end

return tile_cpu
