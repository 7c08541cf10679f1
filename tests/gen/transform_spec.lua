-- luacheck: std +busted
-- Chunks, the transform T and the sign masks.

package.path = "gen/?.lua;" .. package.path

local codebook = require "codebook"
local transform = require "transform"

local HEAD_DIMS = { 64, 80, 96, 112, 128, 160, 192, 256, 512, 576 }

local function sizes(head_dim)
    local result = {}
    for i, chunk in ipairs(assert(transform.chunks(head_dim))) do
        result[i] = chunk.size
    end
    return result
end

local function negated(words, value)
    return words[value // 32 + 1] >> value % 32 & 1 == 1
end

local function count_ones(words)
    local ones = 0
    for _, word in ipairs(words) do
        for bit = 0, 31 do
            ones = ones + (word >> bit & 1)
        end
    end
    return ones
end

describe("transform.chunks", function()
    it("cuts multiples of 128 into 128s and keeps 2^k m whole for m in 1, 3, 5, 7", function()
        assert.same({ 16 }, sizes(16))
        assert.same({ 80 }, sizes(80))
        assert.same({ 112 }, sizes(112))
        assert.same({ 128 }, sizes(128))
        assert.same({ 160 }, sizes(160))
        assert.same({ 192 }, sizes(192))
        assert.same({ 128, 128, 128 }, sizes(384))
        assert.same({ 448 }, sizes(448))
    end)

    it("cuts what is left into the fewest equal chunks", function()
        assert.same({ 48, 48, 48 }, sizes(144))
        assert.same({ 160, 160, 160 }, sizes(480))
        assert.same({ 192, 192, 192 }, sizes(576))
    end)

    it("covers every multiple of 16 up to 1024 with legal chunks", function()
        for head_dim = 16, 1024, 16 do
            local next_value = 0
            for _, chunk in ipairs(assert(transform.chunks(head_dim))) do
                assert.equal(next_value, chunk.first_value)
                assert.equal(head_dim // #transform.chunks(head_dim), chunk.size)
                assert.equal(chunk.size, chunk.pow2 * chunk.odd)
                assert.equal(0, chunk.pow2 & (chunk.pow2 - 1))
                assert.is_true(chunk.pow2 >= 16 and chunk.odd % 2 == 1 and chunk.odd <= 7)
                next_value = next_value + chunk.size
            end
            assert.equal(head_dim, next_value)
        end
    end)

    it("gives the reason for an illegal head_dim", function()
        for _, head_dim in ipairs { -16, 0, 8, 72, 100, 1040, 64.5, 64.0, "64", {} } do
            local chunks, reason = transform.chunks(head_dim)
            assert.is_nil(chunks)
            assert.matches("^head_dim .* is not a multiple of 16 from 16 to 1024$", reason)
        end
    end)
end)

-- Row `outer * pow2 + inner` of R_odd (x) H by its definition: H has the sign of the parity of i AND j.
local function expected_entry(row, column, pow2, odd)
    local common, parity = (row % pow2) & (column % pow2), 0
    while common > 0 do
        parity, common = parity ~ (common & 1), common >> 1
    end
    local reflection = (row // pow2 == column // pow2 and 1 or 0) - (odd > 1 and 2 / odd or 0)
    return reflection * (1 - 2 * parity) / math.sqrt(pow2)
end

describe("transform.apply", function()
    for _, head_dim in ipairs(HEAD_DIMS) do
        it(("is R (x) H, orthonormal and its own inverse at head_dim %d"):format(head_dim), function()
            local chunks = transform.chunks(head_dim)
            local chunk = chunks[#chunks]
            local worst = 0
            for column = 0, chunk.size - 1 do
                local spike = {}
                for i = 1, chunk.size do
                    spike[i] = i == column + 1 and 1 or 0
                end
                local image = transform.apply(spike, chunk.pow2, chunk.odd)
                local back = transform.apply(image, chunk.pow2, chunk.odd)
                local energy = 0
                for i = 1, chunk.size do
                    energy = energy + image[i] ^ 2
                    worst = math.max(worst, math.abs(back[i] - spike[i]),
                        math.abs(image[i] - expected_entry(i - 1, column, chunk.pow2, chunk.odd)))
                end
                worst = math.max(worst, math.abs(energy - 1))
            end
            assert.is_true(worst < 1e-13)
        end)
    end

    it("leaves its argument alone and refuses another length", function()
        local values = {}
        for i = 1, 48 do
            values[i] = i
        end
        transform.apply(values, 16, 3)
        assert.equal(7, values[7])
        assert.error(function() transform.apply(values, 16, 5) end)
    end)
end)

describe("transform.signs", function()
    it("differs between K and V, is balanced and covers head_dim exactly", function()
        for _, head_dim in ipairs(HEAD_DIMS) do
            local k, v = transform.signs(head_dim, "k"), transform.signs(head_dim, "v")
            local spread = 3 * math.sqrt(head_dim) / 2
            for _, words in ipairs { k, v } do
                assert.equal((head_dim + 31) // 32, #words)
                assert.near(head_dim / 2, count_ones(words), spread)
                for value = head_dim, 32 * #words - 1 do
                    assert.is_false(negated(words, value))
                end
            end
            local differing = {}
            for j = 1, #k do
                differing[j] = k[j] ~ v[j]
            end
            assert.near(head_dim / 2, count_ones(differing), spread)
        end
    end)

    it("is the same on every machine", function()
        assert.equal(0xc7ab5605, transform.signs(128, "k")[1])
        assert.equal(0x875b9307, transform.signs(128, "v")[1])
        assert.same(transform.signs(128, "k"), transform.signs(128, "k"))
        assert.error(function() transform.signs(128, "q") end)
    end)

    -- Without signs a constant vector becomes one spike far outside the table: relative error .55 and more.
    it("keeps a constant vector within the law", function()
        for _, head_dim in ipairs(HEAD_DIMS) do
            for _, side in ipairs { "k", "v" } do
                local signs = transform.signs(head_dim, side)
                for _, chunk in ipairs(transform.chunks(head_dim)) do
                    local values = {}
                    for i = 1, chunk.size do
                        values[i] = negated(signs, chunk.first_value + i - 1) and -1 or 1
                    end
                    local centroids = codebook.solve(chunk.size, 3).centroids
                    local error = 0
                    for _, y in ipairs(transform.apply(values, chunk.pow2, chunk.odd)) do
                        local least = math.huge
                        for _, centroid in ipairs(centroids) do
                            least = math.min(least, (y - centroid) ^ 2)
                        end
                        error = error + least / chunk.size
                    end
                    assert.is_true(error < 0.06)
                end
            end
        end
    end)
end)
