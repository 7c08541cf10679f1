-- One name is symbol, test name, tuning row, --pin argument and log line:
--
--   tq_<op>_d<head_dim>[_g<gqa>][_k<format>][_v<format>][_b<pairs>]_<layout>__<arch id>[_<kernel>][_<letter><value> ...]
--
-- Left of "__" is the contract, which a caller asks for; right of it the implementation, which the tuner may choose: the
-- kernel family and the axes that have a letter (gen/axes.lua).

local archs = require "archs"
local axes = require "axes"
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
    if (variant.bias or 0) > 0 then parts[#parts + 1] = "b" .. variant.bias end
    parts[#parts + 1] = variant.layout
    return table.concat(parts, "_")
end

function names.print(variant)
    local parts = { names.contract(variant) .. "__" .. archs.get(variant.arch).id, variant.kernel }
    for _, axis in ipairs(axes.list) do
        local value = axis.letter and variant[axis.name]
        if value then parts[#parts + 1] = axis.letter .. value end
    end
    return table.concat(parts, "_")
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

-- Reads "vec_l8", the axes in order; true if nothing is left.
local function parse_axes(rest, variant)
    local parts, at = {}, 1
    for part in rest:gmatch("[^_]+") do parts[#parts + 1] = part end
    for _, value in ipairs(axes.get("kernel").values) do
        if value == parts[1] then variant.kernel, at = value, 2 end
    end
    for _, axis in ipairs(axes.list) do
        local value = axis.letter and parts[at] and parts[at]:match("^" .. axis.letter .. "(%w+)$")
        if value then
            variant[axis.name], at = math.tointeger(value) or value, at + 1
        end
    end
    return at > #parts
end

local function parse_implementation(text, variant)
    for _, arch in ipairs(archs.list) do
        local rest = text:sub(#arch.id + 1)
        if text:sub(1, #arch.id) == arch.id and (rest == "" or rest:find("^_")) then
            local read = setmetatable({}, { __index = variant })
            if parse_axes(rest, read) then
                for key, value in pairs(read) do variant[key] = value end
                variant.arch = arch.name
                return true
            end
        end
    end
end

local function is_layout(text)
    for _, name in ipairs(axes.layouts) do
        if name == text then return true end
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
    local pairs_of_bias, after_bias = rest:match("^b(%d+)_(.+)$")
    variant.layout = after_bias or rest
    if not (variant.k and variant.v) then variant.side = variant.k and "k" or variant.v and "v" end
    if not parse_implementation(implementation, variant) then
        return fail(("no arch (and kernel) reads '%s' after '__'"):format(implementation))
    end
    if axes.get("bias").applies(variant) or pairs_of_bias then
        variant.bias = math.tointeger(pairs_of_bias or 0)
    end
    -- What was left over stands in layout; a number such as 0128 does not print as it was read.
    if not is_layout(variant.layout) or not variant.head_dim or names.print(variant) ~= name then
        return fail(("cannot read '%s' in the contract"):format(rest))
    end
    return variant
end

return names
