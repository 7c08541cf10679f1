-- The files of a CPU arch: the kernels of each (format, head_dim), the drivers of decode and prefill, vocabulary and
-- registry.

local format_env = require "format_env"
local formats = require "formats"
local names = require "names"
local registry = require "registry"
local text = require "text"
local tile_cpu = require "tile_cpu"

local kernels_cpu = {}

-- How far ahead is fetched: for DRAM at the speed of the fastest kernels, within L2. Behind the tile that comes next, but
-- not by whole tiles (Zen 4 reads turbo4 a fifth slower then); rows of f16 are read in the order of memory.
local PREFETCH_BYTES, PREFETCH_ROWS, F16_PREFETCH_BYTES = 13312, 186, 8192
-- Processors drop prefetches that find the queue of misses full. How much nearer the fastest kernels ask again: late enough for
-- it to be empty, early enough for memory.
local PREFETCH_NEARER = 7168

-- The texts that make up the file of what depends on no format.
local ATTENTION = { "templates/cpu/softmax.c", "templates/cpu/bias.c", "templates/cpu/decode.c", "templates/cpu/prefill.c" }

local function symbol(format, head_dim, part, arch)
    return ("tqk_%s_d%d_%s__%s"):format(format, head_dim, part, arch.id)
end

-- What both kernel files of a format see: functions spell symbols.
local function part_env(name, head_dim, arch)
    local env, layout = format_env(name, head_dim)
    env.bytes = layout.subs == 0 and arch.byte_dot or false
    env.biased = layout.subs == 0 and arch.biased or false
    env.in_order = arch.in_order and env.bytes and layout.format.bits >= 4 or false -- fewer bits wait for products
    env.append_symbol = symbol(name, head_dim, "append", arch)
    env.dequantise_symbol = symbol(name, head_dim, "dequantise", arch)
    function env.k_symbol(g, cache) return symbol(name, head_dim, ("k_g%d_%s"):format(g, cache), arch) end
    function env.v_symbol(g, cache) return symbol(name, head_dim, ("v_g%d_%s"):format(g, cache), arch) end
    function env.k_panel_symbol(cache) return symbol(name, head_dim, "k_panel_" .. cache, arch) end
    function env.v_panel_symbol(cache) return symbol(name, head_dim, "v_panel_" .. cache, arch) end
    if env.unit then env.tile_sets = tile_cpu.sets(layout, env.unit, env.tail_unit) end
    return env, layout
end

-- The texts that make up the files of a format: attention has one part for decode and one for prefill.
local function templates_of(layout)
    if layout.format.bits == 16 then
        return { common = {}, decode = { "templates/cpu/f16.c" }, prefill = { "templates/cpu/f16_panel.c" },
            append = { "templates/cpu/f16_append.c" } }
    end
    return { common = { "templates/cpu/codebook.c" }, decode = { "templates/cpu/codebook_k.c", "templates/cpu/codebook_v.c" },
        prefill = { "templates/cpu/codebook_panel.c" },
        append = { "templates/cpu/codebook_rows.c", "templates/cpu/codebook_append.c" } }
end

-- What a format's attention file has of them.
local function attention_of(part)
    local paths, texts = {}, templates_of(part.layout)
    for _, op in ipairs { "common", #part.gqas > 0 and "decode", #part.panel_layouts > 0 and "prefill" } do
        table.move(texts[op] or {}, 1, #(texts[op] or {}), #paths + 1, paths)
    end
    return paths
end

local function render(paths, env)
    return table.concat(text.map(paths, function(path) return text.render(path, env) end))
end

local function hash_of(paths, hash)
    for _, path in ipairs(paths) do
        hash = hash * 31 + text.hash_of(path)
    end
    return hash
end

local function common_hash(arch)
    return text.hash(table.concat(arch.cflags, " "), hash_of({ "templates/target/" .. arch.vocabulary,
        "templates/cpu/rotate.h", "templates/cpu/append.h", "templates/cpu/rows.h", table.unpack(ATTENTION) }, 0))
end

local function part_hash(env, layout)
    local hash, texts = 0, templates_of(layout)
    for _, op in ipairs { "common", "decode", "prefill", "append" } do hash = hash_of(texts[op], hash) end
    return text.hash(text.flat(env), hash)
end

-- Puts a value into a sorted list that does not have it.
local function include(list, value)
    for _, present in ipairs(list) do
        if present == value then return end
    end
    table.insert(list, value)
    table.sort(list)
end

-- Collects the formats at each head_dim, the GQA ratios and layouts that decode needs, and the variants in order.
local function collect(variants, arch)
    local parts, by_key, own = {}, {}, {}
    local function use(format, head_dim, variant)
        local key = format .. " " .. head_dim
        local part = by_key[key]
        if not part then
            local env, layout = part_env(format, head_dim, arch)
            part = { format = format, head_dim = head_dim, env = env, layout = layout, gqas = {}, layouts = {}, panel_layouts = {} }
            part.hash = part_hash(env, layout)
            by_key[key] = part
            parts[#parts + 1] = part
        end
        if variant.op == "decode" then
            include(part.gqas, variant.gqa)
            include(part.layouts, variant.layout)
        elseif variant.op == "prefill" then
            include(part.panel_layouts, variant.layout)
        end
        part.tiled = part.tiled or variant.layout == tile_cpu.name
        return part
    end
    for _, variant in ipairs(variants) do
        own[#own + 1] = {
            variant = variant,
            name = names.print(variant),
            k = variant.k and use(variant.k, variant.head_dim, variant),
            v = variant.v and use(variant.v, formats.v_head_dim(variant.head_dim), variant),
        }
    end
    return parts, own
end

local function registry_env(arch, parts, own)
    local common = common_hash(arch)
    local env = registry.env(arch, parts, own)
    function env.key(entry)
        local hash = common
        for _, part in ipairs { entry.k or false, entry.v or false } do
            hash = hash * 31 + (part and part.hash or 0)
        end
        return string.format("0x%016xu", hash * 31 + (entry.variant.tile or 0))
    end
    function env.keys_per_unit(variant)
        return variant.layout == tile_cpu.name and tile_cpu.keys or 1
    end
    function env.prefetch(part)
        local row_bytes = part.layout.row_bytes
        if part.layout.format.bits == 16 then return (F16_PREFETCH_BYTES + row_bytes - 1) // row_bytes end
        return math.max(PREFETCH_ROWS, (PREFETCH_BYTES + row_bytes - 1) // row_bytes)
    end
    env.kind = false
    env.kernels = text.render("templates/cpu/registry.c", env)
    return env
end

-- { name =, content =, role = "source" if it is compiled } for the variants of one arch.
function kernels_cpu.files(arch, variants)
    local files = {}
    local function add(name, content, role)
        files[#files + 1] = { name = name, content = content, role = role }
    end
    local parts, own = collect(variants, arch)
    add("vocabulary.h", text.read("templates/target/" .. arch.vocabulary))
    add("rotate.h", text.read("templates/cpu/rotate.h"))
    add("append.h", text.read("templates/cpu/append.h"))
    add("rows.h", text.read("templates/cpu/rows.h"))
    for _, part in ipairs(parts) do
        local stem = ("%s_d%d"):format(part.format, part.head_dim)
        part.env.banner = text.banner(arch, (" --head-dim %d --k %s --v %s"):format(part.head_dim, part.format, part.format))
        part.env.gqas, part.env.layouts, part.env.panel_layouts = part.gqas, part.layouts, part.panel_layouts
        if #part.gqas + #part.panel_layouts > 0 then
            add(stem .. ".c", render(attention_of(part), part.env), "source")
        end
        add(stem .. "_append.c", render(templates_of(part.layout).append, part.env), "source")
    end
    add("attention.c", render(ATTENTION, { id = arch.id, nearer = PREFETCH_NEARER, banner = text.banner(arch, ""),
        byte_dot = arch.byte_dot or false }), "source")
    add("registry.c", text.render("templates/registry.c", registry_env(arch, parts, own)), "source")
    return files
end

return kernels_cpu
