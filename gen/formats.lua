-- Cache formats as data, and the bytes they resolve to at a head_dim. The only source of every format's layout:
-- append, dequantise, K.q and P.V kernels, the registry's format table and the documentation derive from it.

local codebook = require "codebook"
local gains = require "gains"
local transform = require "transform"

local formats = {}

-- bits    per index; 16 means IEEE half values without scales
-- scale   "block": one fp16 scale per `block` values (the whole chunk where block does not divide it);
--         "chunk": one per chunk, and a 4-bit gain code per `sub` values
-- rotated stored in the Hadamard domain, T (signs . x) per chunk
-- table   "lloyd": 8-bit image of the Lloyd-Max codebook of the chunk size; "gain": trained table; "identity": the
--         index is the signed value itself
-- modes   scale modes of the encoder, the default first
-- search  what the encoder tries, fitted on Gaussian vectors to within 1.5 % of trying everything. factors: block scales
--         that put the largest magnitude at the outermost centroid, times these. Gains: `tries` codes, the lowest near
--         slope * size + offset, where size is the gain that puts the largest value on the outermost centroid; signed
--         gains have an asymmetric table and try as many of either sign. reach: magnitudes that are told apart while
--         choosing, in units of the outermost centroid.
formats.list = {
    { name = "turbo2", bits = 2, scale = "block", block = 32, rotated = true, table = "lloyd",
        modes = { "searched", "none", "nc" },
        search = { factors = { 0.51, 0.63, 0.72, 0.84 } } },
    { name = "turbo3", bits = 3, scale = "block", block = 32, rotated = true, table = "lloyd",
        modes = { "searched", "none", "nc" },
        search = { factors = { 0.78, 0.87, 0.93, 1.02 } } },
    { name = "turbo4", bits = 4, scale = "block", block = 32, rotated = true, table = "lloyd",
        modes = { "searched", "none", "nc" },
        search = { factors = { 0.9, 0.96, 1.02, 1.08 } } },
    { name = "gain2", bits = 2, scale = "chunk", sub = 16, rotated = true, table = "gain", modes = {},
        search = { tries = 4, slope = 0.16, offset = -6.75, reach = 1.9 } },
    { name = "gain3", bits = 3, scale = "chunk", sub = 16, rotated = true, table = "gain", modes = {},
        search = { tries = 3, slope = 0.23, offset = -7.75, reach = 1.6 } },
    { name = "gain4", bits = 4, scale = "chunk", sub = 16, rotated = true, table = "gain", modes = {},
        search = { tries = 6, slope = 0.48, offset = -12.25, reach = 1.35 } },
    { name = "q8_0", bits = 8, scale = "block", block = 32, rotated = false, table = "identity", modes = {} },
    { name = "f16", bits = 16, rotated = false, modes = {} },
}

local MOST_SUBS = 16

local by_name = {}
for _, format in ipairs(formats.list) do
    by_name[format.name] = format
end

function formats.get(name)
    return by_name[name]
end

-- How the indices of one unit (32 values, or a last one of 16) lie in its payload. Values go in groups of four; byte y
-- of a 4-byte word belongs to value y of every group in it, so vector code extracts a whole group by one shift and mask.
-- Returns { bytes, words, half, spare, mask, groups = { { word, shift }, ... } }: group g has its indices at
-- (word >> shift) & mask per byte; word numbers count whole words, then the half word, then the derived spare word, which
-- is the union of (word >> shift) & bits over `spare`: the top bits that 3-bit indices leave free in their nibbles hold
-- two more groups in 32 values, one in 16.
function formats.unit(bits, n)
    local unit = { n = n, bytes = n * bits // 8, words = n * bits // 32, half = n * bits % 32 ~= 0, spare = {},
        mask = bits < 8 and (1 << bits) - 1 or 255, groups = {} }
    local slot_bits = bits == 3 and 4 or bits
    local in_slots = bits == 3 and 3 * n // 16 or n // 4
    for g = 0, in_slots - 1 do
        unit.groups[#unit.groups + 1] = { word = g * slot_bits // 8, shift = g * slot_bits % 8 }
    end
    if bits == 3 then
        local word = unit.words + (unit.half and 1 or 0)
        if n == 32 then
            unit.spare = { { word = 0, shift = 0, bits = 0x88888888 }, { word = 1, shift = 1, bits = 0x44444444 },
                { word = 2, shift = 2, bits = 0x22222222 } }
            unit.groups[7] = { word = word, shift = 1 }
            unit.groups[8] = { word = word, shift = 5 }
        else
            unit.spare = { { word = 0, shift = 1, bits = 0x04040404 }, { word = 0, shift = 6, bits = 0x02020202 },
                { word = 1, shift = 3, bits = 0x01010101 } }
            unit.groups[4] = { word = word, shift = 0 }
        end
    end
    return unit
end

--- The head_dim of the V rows of a cache, given that of its K rows. They differ in multi-head latent attention (DeepSeek),
-- where K is a latent vector of 512 values and 64 that carry the position, and V the latent vector alone.
function formats.v_head_dim(head_dim)
    return head_dim == 576 and 512 or head_dim
end

-- The code that rows store for an index. Two 4-bit codes that differ in the top bit are of one sign: then a table of 16 bytes
-- is two of 8 whose lookups a GPU joins by an exclusive or, and where tables of 8 magnitudes do, the sign is a bit.
function formats.code(bits, index)
    if bits ~= 4 then
        return index
    end
    return index >= 8 and 2 * (index - 8) or 2 * (7 - index) + 1
end

local function chunks_of(format, head_dim)
    if format.rotated then
        return transform.chunks(head_dim)
    elseif format.block and head_dim % format.block ~= 0 then
        return nil, string.format("%s blocks hold %d values and do not divide head_dim %d", format.name, format.block,
            head_dim)
    end
    return { { first_value = 0, size = head_dim, pow2 = 1, odd = 1 } }
end

-- Everything about a format at a head_dim, or nil and the reason why there is none:
--   row_bytes, bytes_per_value, n_scales
--   chunks  { first_value, size, pow2, odd, first_byte }, all of one size
--   block   values per stored scale; block_bytes, n_blocks; subs per block (0 without gains)
--   header  bytes before a block's payload: scale, then gain codes; full units of 32 values and whether one of 16 follows
--   table   { centroids (signed 8-bit), step } with value = scale * step * centroid * gain; gains by code or nil
function formats.layout(name, head_dim)
    local format = by_name[name]
    local chunks, reason = chunks_of(format, head_dim)
    if not chunks then
        return nil, reason
    end
    if head_dim % 16 ~= 0 then
        return nil, "head_dim must be a multiple of 16"
    end
    local size = chunks[1].size
    local layout = { format = format, head_dim = head_dim, chunks = chunks, chunk = size }
    if format.bits == 16 then
        layout.row_bytes, layout.n_scales, layout.block = 2 * head_dim, 0, 1
    else
        layout.block = format.scale == "chunk" and size or (size % format.block == 0 and format.block or size)
        layout.subs = format.sub and layout.block // format.sub or 0
        layout.header = 2 + 2 * ((layout.subs + 3) // 4)
        layout.full_units, layout.tail = layout.block // 32, layout.block % 32 == 16
        layout.block_bytes = layout.header + layout.block * format.bits // 8
        layout.n_blocks = head_dim // layout.block
        layout.n_scales = layout.n_blocks
        layout.row_bytes = layout.n_blocks * layout.block_bytes
        if layout.subs > MOST_SUBS then
            return nil, string.format("a scale of %s has %d gain codes at most; at head_dim %d it would need %d",
                name, MOST_SUBS, head_dim, layout.subs)
        end
        if layout.tail and layout.n_blocks > 1 then
            return nil, string.format("head_dim %d is %d rotation chunks of %d values; units of 16 values come last in a row only",
                head_dim, layout.n_blocks, size)
        end
        layout.table = formats.table(format, size)
    end
    layout.bytes_per_value = layout.row_bytes / head_dim
    for i, chunk in ipairs(chunks) do
        chunk.first_byte = (i - 1) * (layout.row_bytes // #chunks)
    end
    return layout
end

-- The integer table of a format for rotation chunks of `size` values; steps are for a scale in units of the chunk norm.
function formats.table(format, size)
    if format.table == "identity" then
        return { step = 1.0 }
    end
    local unit = 1 / math.sqrt(size)
    if format.table == "gain" then
        local trained = gains[format.bits]
        return { centroids = trained.centroids, gains = trained.gains, step = trained.step_sigma * unit,
            signed = trained.gains[16] < 0 }
    end
    local image = codebook.integer(size, format.bits)
    return { centroids = image.centroids, step = image.step * unit }
end

function formats.modes(name)
    return by_name[name].modes
end

return formats
