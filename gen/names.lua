-- One name is symbol, test name, tuning row, --pin argument and log line:
--
--   tq_<op>_d<head_dim>[_g<gqa>][_k<format>][_v<format>]_<layout>__<arch id>[_t<tile>]
--
-- Left of "__" is the contract, which a caller asks for; right of it the implementation, which the tuner may choose.

local archs = require "archs"
local formats = require "formats"

local names = {}

-- A format or arch as part of a C identifier.
local function identifier(name)
    return (name:gsub("[^%w_]", "_"))
end

function names.contract(variant)
    local parts = { "tq", variant.op, "d" .. variant.head_dim }
    if variant.gqa then parts[#parts + 1] = "g" .. variant.gqa end
    if variant.k then parts[#parts + 1] = "k" .. identifier(variant.k) end
    if variant.v then parts[#parts + 1] = "v" .. identifier(variant.v) end
    parts[#parts + 1] = variant.layout
    return table.concat(parts, "_")
end

function names.print(variant)
    local tile = variant.tile and "_t" .. variant.tile or ""
    return names.contract(variant) .. "__" .. archs.get(variant.arch).id .. tile
end

-- Splits "k<format>_rest" at the longest format that fits, since a format's name may hold underscores.
local function take_format(text, letter)
    local found, rest
    for _, format in ipairs(formats.list) do
        local head = letter .. identifier(format.name) .. "_"
        if text:sub(1, #head) == head and (not found or #format.name > #found) then
            found, rest = format.name, text:sub(#head + 1)
        end
    end
    return found, rest or text
end

local function parse_implementation(text, variant)
    for _, arch in ipairs(archs.list) do
        if text:sub(1, #arch.id) == arch.id then
            local rest = text:sub(#arch.id + 1)
            local tile = rest:match("^_t(%d+)$")
            if rest == "" or tile then
                variant.arch, variant.tile = arch.name, math.tointeger(tile)
                return true
            end
        end
    end
end

-- The variant of a name, or nil and what is wrong. Only the grammar is judged here; space.check judges legality.
function names.parse(name)
    local function fail(what)
        return nil, ("'%s' is not a variant name: %s"):format(name, what)
    end
    local contract, implementation = name:match("^tq_(.-)__(.+)$")
    if not contract then return fail("expected tq_<contract>__<implementation>") end
    local op, head_dim, rest = contract:match("^(%l+)_d(%d+)_(.+)$")
    if not op then return fail(("expected <op>_d<head_dim>_... before '__', found '%s'"):format(contract)) end

    local variant = { op = op, head_dim = math.tointeger(head_dim) }
    local gqa, after_gqa = rest:match("^g(%d+)_(.+)$")
    if gqa then variant.gqa, rest = math.tointeger(gqa), after_gqa end
    variant.k, rest = take_format(rest, "k")
    variant.v, rest = take_format(rest, "v")
    variant.layout = rest
    if not (variant.k and variant.v) then variant.side = variant.k and "k" or variant.v and "v" end
    if not parse_implementation(implementation, variant) then
        return fail(("no arch (and tile) reads '%s' after '__'"):format(implementation))
    end
    -- What was left over stands in layout; a number such as 0128 does not print as it was read.
    if not rest:find("^%l+$") or not variant.head_dim or names.print(variant) ~= name then
        return fail(("cannot read '%s' in the contract"):format(rest))
    end
    return variant
end

return names
