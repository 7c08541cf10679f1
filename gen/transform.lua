--- The rotation of a head vector: fixed random signs, then one orthonormal transform T per chunk.
--
-- T = R_m (x) H on pow2 * m values, value index = outer * pow2 + inner. H is the orthonormal Hadamard matrix in
-- Sylvester order over the contiguous inner values, R_m = I - (2/m) J the reflection over the outer index, J all ones.
-- Both are symmetric and their own inverses, so T serves encoder, query and output alike. Random signs before a
-- Hadamard transform make the coordinates of any fixed vector behave like those of a random rotation (Ailon and
-- Chazelle 2006), which is what TurboQuant (arXiv 2504.19874) asks for.

local transform = {}

local LONGEST_CHUNK = 128
local LARGEST_HEAD_DIM = 1024
local ODD_FACTORS = { [1] = true, [3] = true, [5] = true, [7] = true }

-- size = pow2 * odd
local function factors(size)
    local pow2 = size & -size
    return pow2, size // pow2
end

-- Does head_dim, cut into n chunks of whole runs of 16 values, have an exact rotation of each?
local function has_rotation(head_dim, n)
    local _, odd = factors(head_dim // n)
    return head_dim % (16 * n) == 0 and ODD_FACTORS[odd]
end

--- The chunks of a head_dim, all of one size: a list of { first_value, size, pow2, odd }, or nil and the reason why there
-- is none. A multiple of 128 is cut into chunks of 128; any other head_dim into the fewest chunks of 2^k * m values, m in
-- 1, 3, 5, 7: mostly one, but 3 of 192 at 576.
function transform.chunks(head_dim)
    if math.type(head_dim) ~= "integer" or head_dim < 16 or head_dim > LARGEST_HEAD_DIM or head_dim % 16 ~= 0 then
        return nil, string.format("head_dim %s is not a multiple of 16 from 16 to %d", head_dim, LARGEST_HEAD_DIM)
    end
    local n = 1
    while head_dim % LONGEST_CHUNK ~= 0 and not has_rotation(head_dim, n) do
        n = n + 1
    end
    local size = head_dim % LONGEST_CHUNK == 0 and LONGEST_CHUNK or head_dim // n
    local pow2, odd = factors(size)
    local chunks = {}
    for first_value = 0, head_dim - 1, size do
        chunks[#chunks + 1] = { first_value = first_value, size = size, pow2 = pow2, odd = odd }
    end
    return chunks
end

-- Unnormalised Hadamard transform of every run of pow2 values, in place.
local function hadamard(values, pow2)
    local stride = 1
    while stride < pow2 do
        for block = 0, #values - 1, 2 * stride do
            for i = block + 1, block + stride do
                local a, b = values[i], values[i + stride]
                values[i], values[i + stride] = a + b, a - b
            end
        end
        stride = 2 * stride
    end
end

-- R_odd across the runs of pow2 values, in place.
local function reflect(values, pow2, odd)
    for inner = 1, pow2 do
        local sum = 0
        for i = inner, #values, pow2 do
            sum = sum + values[i]
        end
        for i = inner, #values, pow2 do
            values[i] = values[i] - 2 / odd * sum
        end
    end
end

--- T of one chunk of pow2 * odd values, as a new array. T is its own inverse.
function transform.apply(values, pow2, odd)
    assert(#values == pow2 * odd, "transform.apply: as many values as pow2 * odd")
    local result = {}
    local scale = 1 / math.sqrt(pow2)
    for i, value in ipairs(values) do
        result[i] = value * scale
    end
    hadamard(result, pow2)
    if odd > 1 then
        reflect(result, pow2, odd)
    end
    return result
end

-- The first output of splitmix64 (Steele, Lea and Flood 2014) from a state, and the next state.
local function splitmix64(state)
    state = state + 0x9e3779b97f4a7c15
    local z = state
    z = (z ~ z >> 30) * 0xbf58476d1ce4e5b9
    z = (z ~ z >> 27) * 0x94d049bb133111eb
    return z ~ z >> 31, state
end

-- Of the seeds 1 to 40 the two under which constant vectors come out flattest over all head_dims.
local SEEDS = { k = 37, v = 15 }

--- The sign mask of side "k" or "v": ceil(head_dim / 32) words of 32 bits; value 32 j + i is negated before T where
-- bit i of word j is set. Word j is the upper half of the j-th output of splitmix64, so the mask of a short head begins
-- that of a longer one. Bits beyond head_dim are 0.
function transform.signs(head_dim, side)
    local state = assert(SEEDS[side], "transform.signs: side must be 'k' or 'v'")
    local words = {}
    for first = 0, head_dim - 1, 32 do
        local output
        output, state = splitmix64(state)
        local used = math.min(32, head_dim - first)
        words[#words + 1] = output >> 32 & (1 << used) - 1
    end
    return words
end

return transform
