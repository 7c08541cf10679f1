package.path = "./gen/?.lua;" .. package.path

local tiles = require "tiles"

-- { name, letter, values, shape, side } of all sides that have atoms.
local function sides_with_atoms()
    local out = {}
    for _, tile in ipairs(tiles.list) do
        for _, values in ipairs { 128, 64 } do
            local shape = tiles.shape(tile, values)
            for _, letter in ipairs(shape and { "k", "v" } or {}) do
                if not shape[letter].rows then
                    out[#out + 1] = { name = tile.name, letter = letter, values = values, shape = shape, side = shape[letter] }
                end
            end
        end
    end
    return out
end

local function each_code(s, f)
    for key = 0, s.shape.keys - 1 do
        for value = 0, s.values - 1 do
            f(key, value)
        end
    end
end

-- The value of a C expression as tiles.expression spells them.
local function evaluate(expression, names)
    return load("return " .. expression, "expression", "t", names)()
end

describe("tiles", function()
    it("give every code a place of its own", function()
        for _, s in ipairs(sides_with_atoms()) do
            local seen, n = {}, 0
            each_code(s, function(key, value)
                local of = { k = key, v = value }
                local lane, group = tiles.number(s.side.lane, of), tiles.number(s.side.group, of)
                local half, code = tiles.number({ s.side.half }, of), tiles.number(s.side.code, of)
                assert.is_true(lane < s.shape.lanes and group < 4 and code < 16)
                local place = ((lane * 4 + group) * 2 + half) * 16 + code
                assert.is_nil(seen[place])
                seen[place], n = true, n + 1
            end)
            assert.equal(s.shape.lanes * 4 * 2 * 16, n)
        end
    end)

    it("give every pair of keys gain and scale words of their own", function()
        for _, s in ipairs(sides_with_atoms()) do
            local seen = {}
            for _, part in ipairs { s.side.gains or false, s.side.scales or false } do
                for key = 0, part and s.shape.keys - 1 or -1 do
                    for code = 0, part == s.side.gains and s.values // 16 - 1 or 0, 4 do
                        local of = { k = key, s = code }
                        local place = tostring(part) .. tiles.number(part.word, of) * 2 + tiles.number({ part.half }, of)
                        assert.is_nil(seen[place])
                        seen[place] = true
                    end
                end
            end
        end
    end)

    it("take 16-byte multiples that docs/formats.md names", function()
        local function bytes(name, format, head_dim)
            local shape, reason = tiles.of(tiles.get(name), format, head_dim)
            return shape and shape.bytes, reason
        end
        assert.same({ 1088, 1600, 2112, 1216, 1728, 2240 }, {
            bytes("tile_mma", "turbo2", 128), bytes("tile_lane", "turbo3", 128), bytes("tile_wmma", "turbo4", 128),
            bytes("tile_mma", "gain2", 128), bytes("tile_mma", "gain3", 128), bytes("tile_mma", "gain4", 128) })
        assert.equal(3200, bytes("tile_mfma", "turbo3", 128))
        assert.equal(3200, bytes("tile_mma", "turbo3", 256))
        assert.same({ 1152, 1664, 2176, 1280, 1792, 2304 }, {
            bytes("tile_mma", "turbo2", 64), bytes("tile_mma", "turbo3", 64), bytes("tile_mma", "turbo4", 64),
            bytes("tile_mma", "gain2", 64), bytes("tile_mma", "gain3", 64), bytes("tile_mma", "gain4", 64) })
        assert.equal(3 * 1536 + 3 * 128 + 128, bytes("tile_mma", "gain3", 192))
        for _, tile in ipairs(tiles.list) do
            for _, format in ipairs { "turbo2", "turbo3", "turbo4", "gain2", "gain3", "gain4" } do
                for _, head_dim in ipairs { 64, 192, 384 } do
                    assert.equal(0, bytes(tile.name, format, head_dim) % 16)
                end
            end
        end
        assert.has_match("rows only", select(2, bytes("tile_mma", "q8_0", 128)))
        assert.has_match("chunk of 96", select(2, bytes("tile_mma", "turbo3", 96)))
        assert.has_match("576 would have 64 keys, those of V 32", select(2, bytes("tile_mma", "turbo3", 576)))
    end)

    it("number quads so that lanes find them both ways", function()
        for _, s in ipairs(sides_with_atoms()) do
            local quads = tiles.quads(s.side, s.values)
            local names = { q = "q", n = "n", k = "k" }
            local function at(bits, q, n, k)
                return evaluate(tiles.expression(bits, names), { q = q, n = n, k = k })
            end
            each_code(s, function(key, value)
                local q, n = at(quads.holder, value // 4, value % 4), at(quads.nibble, value // 4, value % 4)
                local of = { k = key, v = value }
                assert.equal(value, 4 * at(quads.natural, q, n) + at(quads.byte, q, n))
                assert.equal(tiles.number(s.side.lane, of), at(quads.lane, q, n, key))
                assert.equal(tiles.number(s.side.group, of), at(quads.group, q, n, key))
                assert.equal(tiles.number(s.side.code, of), 4 * at(quads.quad, q, n, key) + n)
            end)
        end
    end)

    it("know which atoms several keys share", function()
        local shares = {}
        for _, s in ipairs(sides_with_atoms()) do
            shares[("%s %s %d"):format(s.name, s.letter, s.values)] = tiles.quads(s.side, s.values).shares
        end
        assert.same({ ["tile_mma k 128"] = 0, ["tile_mma v 128"] = 0, ["tile_wmma k 128"] = 0, ["tile_wmma v 128"] = 3,
            ["tile_mfma k 128"] = 0, ["tile_mfma v 128"] = 2, ["tile_lane v 128"] = 3,
            ["tile_mma k 64"] = 0, ["tile_mma v 64"] = 2, ["tile_wmma k 64"] = 0, ["tile_wmma v 64"] = 3,
            ["tile_mfma k 64"] = 0, ["tile_mfma v 64"] = 3, ["tile_lane v 64"] = 3 }, shares)
    end)

    it("spell bits as C", function()
        assert.equal("((k >> 1 & 3) | (v & 7) << 2)",
            tiles.expression({ "k1", "k2", "v0", "v1", "v2" }, { k = "k", v = "v" }))
        assert.equal("((k & 1) << 1)", tiles.expression({ "v3", "k0" }, { k = "k" }))
        assert.equal("0", tiles.expression({ "v3" }, { k = "k" }))
    end)
end)
