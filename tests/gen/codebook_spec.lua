-- luacheck: std +busted
-- Codebooks and gain tables against tests/data, and their errors against integrals and draws made here.

package.path = "gen/?.lua;" .. package.path

local codebook = require "codebook"
local gains = require "gains"
local json = require "dkjson"

local function read_json(path)
    local file = assert(io.open(path))
    local text = file:read("a")
    file:close()
    return assert(json.decode(text))
end

-- The upper half of an ascending table of an even number of entries, or of an odd one without its middle.
local function upper_half(values)
    return table.move(values, (#values + 1) // 2 + 1, #values, 1, {})
end

local function assert_odd_symmetric(values)
    for i, value in ipairs(values) do
        assert.equal(-values[#values + 1 - i], value)
    end
end

local function assert_all_near(expected, found, tolerance)
    assert.equal(#expected, #found)
    for i, value in ipairs(expected) do
        assert.near(value, found[i], tolerance)
    end
end

local function density(d, t)
    if d == 0 then
        return math.exp(-t * t / 2)
    end
    return math.max(0, 1 - t * t / d) ^ ((d - 3) / 2)
end

local function nearest(table_values, t)
    local best, error = nil, math.huge
    for _, value in ipairs(table_values) do
        if (t - value) ^ 2 < error then
            best, error = value, (t - value) ^ 2
        end
    end
    return best, error
end

-- Relative error of nearest-neighbour quantisation by plain summation over a fine grid.
local function error_by_summation(d, centroids)
    local top = d == 0 and 9 or math.sqrt(d)
    local n = 20000
    local sum, total = 0, 0
    for i = 1, n do
        local t = (2 * i - 1 - n) / n * top
        local _, error = nearest(centroids, t)
        local weight = density(d, t)
        sum, total = sum + weight * error, total + weight
    end
    return sum / total
end

local function scaled(values, factor)
    local result = {}
    for i, value in ipairs(values) do
        result[i] = value * factor
    end
    return result
end

describe("codebook.solve", function()
    for _, expected in ipairs(read_json("tests/data/codebooks.json")) do
        it(("agrees with the independent solution at d = %d, %d bits"):format(expected.d, expected.bits), function()
            local found = codebook.solve(expected.d, expected.bits)
            assert.equal(1 << expected.bits, #found.centroids)
            assert.equal((1 << expected.bits) - 1, #found.boundaries)
            assert_odd_symmetric(found.centroids)
            assert_odd_symmetric(found.boundaries)
            assert_all_near(expected.centroids_sigma, upper_half(found.centroids), 1e-6)
            assert_all_near(expected.boundaries_sigma, upper_half(found.boundaries), 1e-6)
            assert.near(1, found.mse / expected.mse, 1e-6)
            assert.near(expected.entropy, found.entropy, 1e-6)
        end)
    end

    it("has its outermost centroid at 0.237664 for unit vectors of 128 values at 4 bits", function()
        assert.near(0.237664, codebook.solve(128, 4).centroids[16] / math.sqrt(128), 5e-7)
    end)

    it("reports the error that a plain sum over the law gives", function()
        for _, d in ipairs { 0, 64, 128 } do
            for bits = 1, 4 do
                local found = codebook.solve(d, bits)
                assert.near(1, found.mse / error_by_summation(d, found.centroids), 1e-4)
            end
        end
    end)

    it("refuses dimensions and bits without a codebook", function()
        assert.error(function() codebook.solve(8, 2) end)
        assert.error(function() codebook.solve(64.5, 2) end)
        assert.error(function() codebook.solve(64, 9) end)
    end)
end)

describe("codebook.integer", function()
    local excess = { [2] = 1e-5, [3] = 1e-4, [4] = 1e-3 }

    for _, d in ipairs { 0, 16, 64, 80, 96, 112, 128, 160, 192 } do
        for bits = 2, 4 do
            it(("is an 8-bit image near the optimum at d = %d, %d bits"):format(d, bits), function()
                local image, optimum = codebook.integer(d, bits), codebook.solve(d, bits)
                assert.equal(1 << bits, #image.centroids)
                assert_odd_symmetric(image.centroids)
                for i, centroid in ipairs(image.centroids) do
                    assert.equal("integer", math.type(centroid))
                    assert.is_true(centroid ~= 0 and math.abs(centroid) <= 127)
                    assert.is_true(i == 1 or centroid > image.centroids[i - 1])
                end
                assert.is_true(image.mse >= optimum.mse - 1e-12)
                assert.is_true(image.mse <= optimum.mse * (1 + excess[bits]))
            end)
        end
    end

    it("reports the error that a plain sum over the law gives, at the best step", function()
        for _, d in ipairs { 64, 128 } do
            for bits = 2, 4 do
                local image = codebook.integer(d, bits)
                local found = error_by_summation(d, scaled(image.centroids, image.step))
                assert.near(1, image.mse / found, 1e-4)
                assert.is_true(found < error_by_summation(d, scaled(image.centroids, image.step * 1.01)))
                assert.is_true(found < error_by_summation(d, scaled(image.centroids, image.step * 0.99)))
            end
        end
    end)

    it("gives the tables that the shipped formats of 128-value chunks bake", function()
        assert.same({ 37, 123 }, upper_half(codebook.integer(128, 2).centroids))
        assert.same({ 13, 40, 71, 113 }, upper_half(codebook.integer(128, 3).centroids))
        assert.same({ 5, 15, 25, 36, 48, 62, 79, 104 }, upper_half(codebook.integer(128, 4).centroids))
    end)

    it("refuses more entries than 8-bit integers can hold", function()
        assert.error(function() codebook.integer(64, 8) end)
    end)
end)

-- Relative error of a gain table on random unit vectors, its gains searched exhaustively.
local function gain_error(tables, vectors)
    local size, sub = tables.trained_chunk, tables.sub_block
    local sum = 0
    for _ = 1, vectors do
        local x, energy = {}, 0
        for i = 1, size do
            x[i] = math.sqrt(-2 * math.log(1 - math.random())) * math.cos(2 * math.pi * math.random())
            energy = energy + x[i] ^ 2
        end
        local unit = tables.step_sigma * math.sqrt(energy / size)
        for first = 1, size, sub do
            local least = math.huge
            for _, gain in ipairs(tables.gains) do
                local error = 0
                for i = first, first + sub - 1 do
                    local index = nearest(tables.centroids, x[i] / (unit * gain))
                    error = error + (x[i] - unit * gain * index) ^ 2
                end
                least = math.min(least, error)
            end
            sum = sum + least / energy
        end
    end
    return sum / vectors
end

describe("gain tables", function()
    for _, expected in ipairs(read_json("tests/data/gain_tables.json")) do
        local found = gains[expected.bits]

        it(expected.name .. " holds the trained integers", function()
            assert.same(expected.centroids, found.centroids)
            assert.equal(expected.step_sigma, found.step_sigma)
            assert.equal(expected.mse, found.mse)
            assert.equal(expected.sub_block, found.sub_block)
            assert.equal(expected.chunk, found.trained_chunk)
            assert.equal(1 << expected.gain_code_bits, #found.gains)
            for code, gain in ipairs(expected.gains) do
                assert.equal(gain, found.gains[code])
                if expected.signed then
                    assert.equal(-gain, found.gains[code + 8])
                end
            end
        end)

        it(expected.name .. " has the stated error on random unit vectors", function()
            math.randomseed(expected.bits)
            assert.near(1, gain_error(found, 100) / found.mse, 0.05)
        end)
    end
end)
