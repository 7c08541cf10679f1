-- Turns a list of variants into the files of a generated directory: per arch the kernels of each (format, head_dim), the
-- decode driver, the vocabulary and the registry; on top what builds them. Pure: reads templates, returns texts.

local formats = require "formats"
local names = require "names"
local search = require "search"
local template = require "template"
local transform = require "transform"

local kernels = {}

local ROOT = debug.getinfo(1, "S").source:match("^@(.*)gen/[^/]*$") or "./"

local SCALE_MODES = { none = 1, nc = 2, searched = 3 } -- tq_scale_mode
local OPS = { decode = "TQ_OP_DECODE", append = "TQ_OP_APPEND", dequantise = "TQ_OP_DEQUANTISE" }
local PREFETCH_BYTES = 16384 -- far enough for DRAM at the speed of the fastest kernels, near enough for L2

local texts = {}
local function read(path)
    if not texts[path] then
        local file, message = io.open(ROOT .. path, "rb")
        if not file then
            error(message, 0)
        end
        texts[path] = file:read("a")
        file:close()
    end
    return texts[path]
end

-- FNV-1a, 64 bits.
local function fnv(text, hash)
    hash = hash or 0xcbf29ce484222325
    for i = 1, #text do
        hash = (hash ~ text:byte(i)) * 0x100000001b3
    end
    return hash
end

local hashes = {}
local function text_hash(path)
    hashes[path] = hashes[path] or fnv(read(path))
    return hashes[path]
end

-- ---- C spellings ----------------------------------------------------------------------------------------------------

local function map(values, f)
    local out = {}
    for i, value in ipairs(values) do
        out[i] = f(value)
    end
    return out
end

local function join(values, spell)
    return table.concat(map(values, spell), ", ")
end

-- 8-bit entries in decimal, 32-bit masks in hexadecimal.
local function list(values)
    return join(values, function(x)
        return x > 255 and string.format("0x%08x", x) or string.format("%d", x)
    end)
end

local function floats(values)
    return join(values, template.hexf)
end

-- ---- what the kernel templates see -----------------------------------------------------------------------------------

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

-- Entries for index bytes 0..15; where a gain has a sign, bit 3 of the index carries it and negates the centroid.
local function lookup_table(layout)
    local out = {}
    for i = 0, 15 do
        local entry = layout.table.centroids[(i & ((1 << layout.format.bits) - 1)) + 1]
        out[i + 1] = layout.table.signed and i >= 8 and -entry or entry
    end
    return out
end

local function symbol(format, head_dim, part, arch)
    return ("tqk_%s_d%d_%s__%s"):format(format, head_dim, part, arch.id)
end

-- Names that both kernel files of a format use. Values are data of the format; functions spell symbols.
local function format_env(name, head_dim, arch)
    local layout = formats.layout(name, head_dim)
    local format = layout.format
    local env = {
        format = name, head_dim = head_dim, bits = format.bits, rotated = format.rotated, row_bytes = layout.row_bytes,
        hexf = template.hexf, list = list, floats = floats, map = map,
        append_symbol = symbol(name, head_dim, "append", arch),
        dequantise_symbol = symbol(name, head_dim, "dequantise", arch),
        k_symbol = function(g) return symbol(name, head_dim, "k_g" .. g, arch) end,
        v_symbol = function(g) return symbol(name, head_dim, "v_g" .. g, arch) end,
    }
    if format.bits == 16 then
        return env, layout
    end
    local centroids, gains = layout.table.centroids or { -128 }, layout.table.gains or { 1 }
    local symmetric = is_symmetric(centroids)
    local top = (1 << 31) // (largest(centroids) * largest(gains))
    local chunk = layout.chunks[1]
    local sets, of_group = weight_groups(layout, arch.units)
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

local function templates_of(layout)
    if layout.format.bits == 16 then
        return { attention = "templates/cpu/f16.c", append = "templates/cpu/f16_append.c" }
    end
    return { attention = "templates/cpu/codebook.c", append = "templates/cpu/codebook_append.c" }
end

local function banner(arch, filter)
    return "Generated by tqgen --arch " .. arch.name .. filter .. "; do not edit."
end

local function render(path, env)
    return template.render(read(path), path, env)
end

-- ---- keys: what a tuning row was measured with ----------------------------------------------------------------------

local function flat(value)
    if type(value) ~= "table" then
        return type(value) == "function" and "" or tostring(value)
    end
    local keys, out = {}, {}
    for key in pairs(value) do
        keys[#keys + 1] = key
    end
    table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
    for i, key in ipairs(keys) do
        out[i] = tostring(key) .. "=" .. flat(value[key])
    end
    return "{" .. table.concat(out, ",") .. "}"
end

local function common_hash(arch)
    local hash = 0
    for _, path in ipairs { "templates/target/" .. arch.vocabulary, "templates/cpu/rotate.h", "templates/cpu/rows.h",
        "templates/cpu/decode.c" } do
        hash = hash * 31 + text_hash(path)
    end
    return fnv(table.concat(arch.cflags, " "), hash)
end

-- ---- files ----------------------------------------------------------------------------------------------------------

-- Collects, for one arch, the formats at each head_dim, the GQA ratios that they need, and the variants in order.
local function collect(variants, arch)
    local parts, by_key, own = {}, {}, {}
    local function use(format, head_dim, gqa)
        local key = format .. " " .. head_dim
        local part = by_key[key]
        if not part then
            local env, layout = format_env(format, head_dim, arch)
            part = { format = format, head_dim = head_dim, env = env, layout = layout, gqas = {}, has = {} }
            part.hash = fnv(flat(env), text_hash(templates_of(layout).attention) * 31 + text_hash(templates_of(layout).append))
            by_key[key] = part
            parts[#parts + 1] = part
        end
        if gqa and not part.has[gqa] then
            part.has[gqa] = true
            table.insert(part.gqas, gqa)
            table.sort(part.gqas)
        end
        return part
    end
    for _, variant in ipairs(variants) do
        if variant.arch == arch.name then
            own[#own + 1] = {
                variant = variant,
                name = names.print(variant),
                k = variant.k and use(variant.k, variant.head_dim, variant.gqa),
                v = variant.v and use(variant.v, variant.head_dim, variant.gqa),
            }
        end
    end
    return parts, own
end

local function c_string(text)
    return text and '"' .. text .. '"' or "NULL"
end

local function registry_env(arch, parts, own)
    local common = common_hash(arch)
    local env = { arch = arch, id = arch.id, parts = parts, variants = own, list = list, floats = floats,
        banner = banner(arch, ""), needs = table.concat(arch.needs, " "), c_string = c_string, ops = OPS }
    function env.key(entry)
        local hash = common
        for _, part in ipairs { entry.k or false, entry.v or false } do
            hash = hash * 31 + (part and part.hash or 0)
        end
        return string.format("0x%016xu", hash * 31 + (entry.variant.tile or 0))
    end
    function env.prefetch(part)
        return (PREFETCH_BYTES + part.layout.row_bytes - 1) // part.layout.row_bytes
    end
    function env.spec(part)
        return part and ("&SPEC_%s_D%d"):format(part.format:upper(), part.head_dim) or "NULL"
    end
    function env.steps(part)
        local steps = {}
        for i = 1, #part.layout.chunks do
            steps[i] = part.layout.table.step
        end
        return floats(steps)
    end
    function env.modes(part)
        return table.concat(part.layout.format.modes, " ")
    end
    function env.signs(part, side)
        return transform.signs(part.head_dim, side)
    end
    return env
end

local function arch_files(files, arch, variants)
    local function add(name, content)
        files[#files + 1] = { path = arch.id .. "/" .. name, content = content }
        return arch.id .. "/" .. name
    end
    local parts, own = collect(variants, arch)
    local sources = {}
    add("vocabulary.h", read("templates/target/" .. arch.vocabulary))
    add("rotate.h", read("templates/cpu/rotate.h"))
    add("rows.h", read("templates/cpu/rows.h"))
    for _, part in ipairs(parts) do
        local paths, stem = templates_of(part.layout), ("%s_d%d"):format(part.format, part.head_dim)
        part.env.banner = banner(arch, (" --head-dim %d --k %s --v %s"):format(part.head_dim, part.format, part.format))
        part.env.gqas = part.gqas
        if #part.gqas > 0 then
            sources[#sources + 1] = add(stem .. ".c", render(paths.attention, part.env))
        end
        sources[#sources + 1] = add(stem .. "_append.c", render(paths.append, part.env))
    end
    sources[#sources + 1] = add("decode.c", render("templates/cpu/decode.c", { id = arch.id, banner = banner(arch, "") }))
    sources[#sources + 1] = add("registry.c", render("templates/registry.c", registry_env(arch, parts, own)))
    return sources
end

-- All files of a generated directory but its manifest, for variants as space.select returns them and the entries of
-- their archs in order of preference. Errors are strings "template:line: message".
function kernels.files(variants, info)
    local files, built = {}, {}
    for _, arch in ipairs(info.archs) do
        built[#built + 1] = { arch = arch, sources = arch_files(files, arch, variants) }
    end
    files[#files + 1] = { path = "tq_kernel.h", content = read("runtime/tq_kernel.h") }
    files[#files + 1] = { path = "builtin.c", content = render("templates/builtin.c", { archs = info.archs }) }
    files[#files + 1] = { path = "CMakeLists.txt",
        content = render("templates/CMakeLists.txt", { built = built, concat = table.concat }) }
    return files
end

return kernels
