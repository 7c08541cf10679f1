-- The files of a GPU arch: per (head_dim, K format, V format) the decode kernels, per (head_dim, format) the kernels of
-- append, dequantise and repack, each file with its variants' kernels one after the other; vocabulary, headers, registry.

local families = require "gpu.families"
local format_env = require "format_env"
local formats = require "formats"
local names = require "names"
local registry = require "registry"
local template = require "template"
local text = require "text"
local tiles = require "tiles"

local kernels_gpu = {}

local EXTENSIONS = { cuda = "cu", hip = "hip", simt = "c" }

-- Texts of templates/gpu that precede kernels, unless their family says otherwise.
local SHARED = { "rows.h", "codes.h" }
local SHARED_BY_ATTENTION = { "rows.h", "codes.h", "bias.h", "attention.h" }

-- Traits of the arch that texts test, as macros; see docs/gpu_kernels.md.
local function macros(arch)
    local out = { { "TQG_DEVICE_CODE" }, { "TQG_VENDOR_" .. arch.emulates:upper() }, { "TQG_WARP", arch.warp },
        { "TQG_MATRIX_" .. arch.matrix:upper() } }
    local function add(condition, ...)
        if condition then out[#out + 1] = { ... } end
    end
    add(arch.vendor == "simt", "TQG_SIMT")
    add(arch.emulates == "cuda", "TQG_SM", arch.processor:match("%d+"))
    add(arch.int8_matrix, "TQG_INT8_MATRIX")
    add(arch.dot2, "TQG_DOT2")
    add(arch.copy ~= "none", "TQG_COPY_ASYNC")
    add(arch.copy == "bulk", "TQG_COPY_BULK")
    return out
end

local function prelude(arch, arguments)
    local lines = { "/* " .. text.banner(arch, arguments) .. " */" }
    for _, macro in ipairs(macros(arch)) do
        lines[#lines + 1] = "#define " .. table.concat(macro, " ")
    end
    lines[#lines + 1] = '#include "tq_gpu.h"'
    lines[#lines + 1] = '#include "vocabulary.h"'
    return table.concat(lines, "\n") .. "\n"
end

-- Is it C as it stands? Such a text is a header, of which each generated file needs no copy.
local function is_plain(content)
    return not content:find("%${") and not ("\n" .. content):find("\n%s*%%")
end

-- A file in the making: formats, the variants in it, what was rendered once.
local function new_unit(arch, stem, variant, parts)
    local unit = { stem = stem, entries = {}, shared = {}, has_shared = {}, done = {} }
    local env = {
        arch = arch, warp = arch.warp, head_dim = variant.head_dim, hexf = template.hexf, list = text.list,
        floats = text.floats, map = text.map, byte_table = text.byte_table, tiles = tiles, tostring = tostring, pairs = pairs, select = select, type = type,
        k = parts.k and parts.k.env or false, v = parts.v and parts.v.env or false, f = parts.f and parts.f.env or false,
    }
    if parts.f then
        env.sides = { { f = env.f, prefix = "f" } }
        unit.arguments = (" --head-dim %d --k %s --v %s"):format(variant.head_dim, env.f.format, env.f.format)
    else
        env.sides = { { f = env.k, prefix = "k" }, { f = env.v, prefix = "v" } }
        unit.arguments = (" --head-dim %d --k %s --v %s"):format(variant.head_dim, env.k.format, env.v.format)
        env.attention = require "gpu.attention"
        env.mma_rows = require "gpu.mma_rows"
        env.tile_rows = require "gpu.tile_rows"
        env.prefill_rows = require "gpu.prefill_rows"
    end
    -- True for the first kernel of the file that asks for this key: who defines what several of them call.
    function env.once(key)
        local first = not unit.done[key]
        unit.done[key] = true
        return first
    end
    unit.env = env
    return unit
end

local function add_shared(unit, family)
    for _, name in ipairs(family.shared or (unit.env.f and SHARED or SHARED_BY_ATTENTION)) do
        if not unit.has_shared[name] then
            unit.has_shared[name] = true
            unit.shared[#unit.shared + 1] = "templates/gpu/" .. name
        end
    end
end

-- Collects the files, the formats at each head_dim and the variants in order.
local function collect(arch, variants)
    local parts, units, by_key, own = {}, {}, {}, {}
    local function part_of(format, head_dim)
        local key = format .. " " .. head_dim
        if not by_key[key] then
            local env, layout = format_env(format, head_dim, 1)
            by_key[key] = { format = format, head_dim = head_dim, env = env, layout = layout,
                hash = text.hash(text.flat(env)) }
            parts[#parts + 1] = by_key[key]
        end
        return by_key[key]
    end
    local function unit_of(stem, variant, unit_parts)
        if not by_key[stem] then
            by_key[stem] = new_unit(arch, stem, variant, unit_parts)
            units[#units + 1] = by_key[stem]
        end
        return by_key[stem]
    end
    for _, variant in ipairs(variants) do
        local k = variant.k and part_of(variant.k, variant.head_dim)
        local v = variant.v and part_of(variant.v, formats.v_head_dim(variant.head_dim))
        local unit
        if k and v then
            unit = unit_of(("%s_d%d_k%s_v%s"):format(variant.op, variant.head_dim, variant.k, variant.v), variant,
                { k = k, v = v })
        else
            unit = unit_of(("append_d%d_%s"):format(variant.head_dim, (k or v).format), variant, { f = k or v })
        end
        local family = families.of(variant)
        local name = names.print(variant)
        local entry = { variant = variant, name = name, symbol = name:gsub("^tq_", "tqk_"), k = k, v = v, unit = unit,
            family = family,
            geometry = family.geometry(variant, arch, k and k.layout, v and v.layout) }
        add_shared(unit, family)
        unit.entries[#unit.entries + 1] = entry
        own[#own + 1] = entry
    end
    return parts, units, own
end

local function render_unit(arch, unit)
    local out = { prelude(arch, unit.arguments) }
    for _, path in ipairs(unit.shared) do
        if is_plain(text.read(path)) then
            out[#out + 1] = ('#include "%s"\n'):format(path:gsub("^templates/", ""))
        else
            out[#out + 1] = "\n" .. text.render(path, unit.env)
        end
    end
    for _, entry in ipairs(unit.entries) do
        local env = setmetatable({ variant = entry.variant, gqa = entry.variant.gqa or false, side = entry.variant.side or false,
            layout = entry.variant.layout, bias = entry.variant.bias or 0, geometry = entry.geometry, symbol = entry.symbol }, { __index = unit.env })
        entry.family.env(entry.variant, arch, env)
        entry.hash = text.hash(text.flat(env))
        out[#out + 1] = "\n" .. text.render(entry.family.template, env)
    end
    return table.concat(out)
end

-- What a tuning row was measured with: traits, vocabulary, texts, format data, and what the family adds.
local function key_of(arch, entry)
    local hash = text.hash(text.flat(macros(arch)), text.hash_of("templates/target/" .. arch.vocabulary))
    for _, path in ipairs { entry.family.template, table.unpack(entry.unit.shared) } do
        hash = hash * 31 + text.hash_of(path)
    end
    for _, part in ipairs { entry.k or false, entry.v or false } do
        hash = hash * 31 + (part and part.hash or 0)
    end
    return string.format("0x%016xu", hash * 31 + entry.hash)
end

local function registry_env(arch, parts, units, own)
    local env = registry.env(arch, parts, own)
    env.kind = "TQ_KIND_" .. arch.vendor:upper()
    env.modules = arch.vendor ~= "simt" and units or {}
    for i, unit in ipairs(units) do
        unit.number = i - 1
    end
    function env.key(entry)
        return key_of(arch, entry)
    end
    env.kernels = text.render("templates/gpu/registry.c", env)
    return env
end

-- { name =, content =, role = "module" if it becomes a code object, "source" if it is compiled C } for one arch.
function kernels_gpu.files(arch, variants)
    local files, headers = {}, {}
    local function add(name, content, role)
        files[#files + 1] = { name = name, content = content, role = role }
    end
    local parts, units, own = collect(arch, variants)
    add("vocabulary.h", text.read("templates/target/" .. arch.vocabulary))
    for _, unit in ipairs(units) do
        for _, path in ipairs(unit.shared) do
            if not headers[path] and is_plain(text.read(path)) then
                headers[path] = true
                add(path:gsub("^templates/", ""), text.read(path))
            end
        end
    end
    for _, unit in ipairs(units) do
        add(unit.stem .. "." .. EXTENSIONS[arch.vendor], render_unit(arch, unit),
            arch.vendor == "simt" and "source" or "module")
    end
    if arch.vendor ~= "simt" then
        add("modules.c", text.render("templates/gpu/modules.c", { arch = arch, banner = text.banner(arch, ""),
            modules = text.map(units, function(unit) return unit.stem end) }), "source")
    end
    add("registry.c", text.render("templates/registry.c", registry_env(arch, parts, units, own)), "source")
    return files
end

return kernels_gpu
