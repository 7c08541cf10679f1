-- Formats: the bytes that their descriptions resolve to.
-- luacheck: std lua54+busted

package.path = "gen/?.lua;" .. package.path

local formats = require "formats"

local HEAD_DIMS = { 64, 80, 96, 112, 128, 160, 192, 256, 512, 576 }

local function row_bytes(name, head_dim)
    return assert(formats.layout(name, head_dim)).row_bytes
end

describe("rows", function()
    it("have the documented sizes", function()
        local expected = {
            turbo2 = { [64] = 20, [80] = 22, [128] = 40, [256] = 80 },
            turbo3 = { [64] = 28, [80] = 32, [112] = 44, [128] = 56, [256] = 112, [576] = 252 },
            turbo4 = { [64] = 36, [80] = 42, [112] = 58, [128] = 72, [256] = 144 },
            gain2 = { [128] = 38, [256] = 76 },
            gain3 = { [80] = 36, [128] = 54, [256] = 108, [576] = 240 },
            gain4 = { [128] = 70, [256] = 140 },
            q8_0 = { [64] = 68, [128] = 136 },
            f16 = { [80] = 160, [128] = 256 },
        }
        for name, sizes in pairs(expected) do
            for head_dim, bytes in pairs(sizes) do
                assert.equal(bytes, row_bytes(name, head_dim), name .. " " .. head_dim)
            end
        end
    end)

    it("are covered by blocks of whole units, on even addresses", function()
        for _, format in ipairs(formats.list) do
            for _, head_dim in ipairs(HEAD_DIMS) do
                local layout = formats.layout(format.name, head_dim)
                if layout and format.bits < 16 then
                    assert.equal(head_dim, layout.n_blocks * layout.block)
                    assert.equal(layout.block, 32 * layout.full_units + (layout.tail and 16 or 0))
                    assert.equal(0, layout.block_bytes % 2)
                    assert.equal(layout.row_bytes, layout.n_blocks * layout.block_bytes)
                    assert.equal(layout.row_bytes / head_dim, layout.bytes_per_value)
                end
            end
        end
    end)

    it("that cannot be are refused with the reason", function()
        local layout, reason = formats.layout("q8_0", 80)
        assert.is_nil(layout)
        assert.matches("32 values .* head_dim 80", reason)
        assert.is_nil(formats.layout("turbo3", 72))
        assert.matches("chunks of 48 values; units of 16", select(2, formats.layout("turbo3", 144)))
        assert.matches("16 gain codes at most; at head_dim 448 it would need 28", select(2, formats.layout("gain4", 448)))
    end)
end)

describe("a unit", function()
    -- Every bit of every index must have its own bit in the payload: the bytes are a permutation of the bits.
    local function bits_of(unit, bits)
        local seen, words = {}, unit.words + (unit.half and 1 or 0)
        local function take(byte, bit)
            local key = byte * 8 + bit
            assert.is_nil(seen[key])
            seen[key] = true
        end
        for _, at in ipairs(unit.groups) do
            for y = 0, 3 do
                for t = 0, bits - 1 do
                    if at.word < unit.words then
                        take(4 * at.word + y, at.shift + t)
                    elseif unit.half and at.word == unit.words then
                        take(4 * at.word + y % 2, t + 4 * (y // 2))
                    elseif unit.n == 32 then -- spare bits: 2, 1, 0 in words 0, 1, 2, low nibbles first
                        take(4 * (2 - t) + y, at.shift == 1 and 3 or 7)
                    elseif t == 0 then -- one group: bits 2 and 1 in the word, 0 in the half word
                        take(4 + y % 2, 3 + 4 * (y // 2))
                    else
                        take(y, t == 2 and 3 or 7)
                    end
                end
            end
        end
        assert.is_true(words >= 1)
        local count = 0
        for _ in pairs(seen) do count = count + 1 end
        return count
    end

    it("uses every bit of its bytes once", function()
        for _, bits in ipairs { 2, 3, 4, 8 } do
            for _, n in ipairs { 16, 32 } do
                local unit = formats.unit(bits, n)
                assert.equal(n // 4, #unit.groups)
                assert.equal(n * bits // 8, unit.bytes)
                assert.equal(8 * unit.bytes, bits_of(unit, bits), bits .. " bits, " .. n .. " values")
            end
        end
    end)
end)

describe("codes of rows", function()
    it("are a permutation; two 4-bit codes that differ in the top bit are of one sign", function()
        for _, bits in ipairs { 2, 3, 4 } do
            local index_of = {}
            for index = 0, (1 << bits) - 1 do
                index_of[formats.code(bits, index)] = index
            end
            for code = 0, (1 << bits) - 1 do
                assert.is_truthy(index_of[code])
                if bits == 4 then
                    assert.equal(index_of[code] >= 8, index_of[code ~ 8] >= 8)
                end
            end
        end
    end)
end)

describe("tables", function()
    it("are 8-bit, ascending, and symmetric unless gains have signs", function()
        for _, format in ipairs(formats.list) do
            local layout = formats.layout(format.name, 128)
            local table = layout.table
            if table and table.centroids then
                assert.equal(1 << format.bits, #table.centroids)
                for k = 2, #table.centroids do
                    assert.is_true(table.centroids[k] > table.centroids[k - 1])
                end
                for k = 1, #table.centroids do
                    assert.is_true(math.abs(table.centroids[k]) <= 127)
                    if not table.signed then
                        assert.equal(-table.centroids[k], table.centroids[#table.centroids + 1 - k])
                    end
                end
            end
        end
    end)
end)
