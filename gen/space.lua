-- The legal space as data: axes, constraints each with its reason, named sets. Everything that enumerates variants does
-- so through space.select. A variant is a plain table with one field per axis that applies to its op:
--
--   { arch = "c", op = "decode", head_dim = 128, gqa = 4, k = "turbo3", v = "turbo4", layout = "rows", tile = 128 }
--   { arch = "c", op = "append", head_dim = 128, side = "k", k = "turbo3", layout = "rows" }

local archs = require "archs"
local formats = require "formats"
local transform = require "transform"

local space = {}

local MAX_HEAD_DIM, MAX_GQA = 512, 16 -- TQ_MAX_HEAD_DIM and TQ_MAX_GQA of tq_kernel.h

local function by_name(list, name)
    for _, entry in ipairs(list) do
        if entry.name == name then return entry end
    end
end

local function field(list, key)
    local values = {}
    for i, entry in ipairs(list) do values[i] = entry[key] end
    return values
end

-- Layouts are asked for once per variant; a format's bytes do not change in between.
local layouts = {}
local function layout(format, head_dim)
    local key = format .. " " .. head_dim
    layouts[key] = layouts[key] or table.pack(formats.layout(format, head_dim))
    return table.unpack(layouts[key], 1, 2)
end

local function is_decode(v) return v.op == "decode" end

-- In the order of enumeration: the candidates of one contract from one arch are adjacent, expected best first.
-- values: the default set, best first. range: integers beyond it that may be asked for. applies: which variants have
-- the axis. implementation: the tuner may choose it; all else is contract.
space.axes = {
    { name = "arch", option = "--arch", values = field(archs.list, "name"), implementation = true,
      doc = "architectures" },
    { name = "op", option = "--op", values = { "decode", "append", "dequantise" }, doc = "operations" },
    { name = "head_dim", option = "--head-dim", values = { 64, 80, 128, 256 }, range = { 1, MAX_HEAD_DIM },
      doc = "values per head vector" },
    { name = "gqa", option = "--gqa", values = { 1, 3, 4, 8 }, range = { 1, MAX_GQA }, applies = is_decode,
      doc = "query heads per KV head (decode)" },
    { name = "side", values = { "k", "v" }, applies = function(v) return not is_decode(v) end,
      doc = "exactly one of a K and a V format" },
    { name = "k", option = "--k", values = field(formats.list, "name"),
      applies = function(v) return v.side ~= "v" end, doc = "K formats" },
    { name = "v", option = "--v", values = field(formats.list, "name"),
      applies = function(v) return v.side ~= "k" end, doc = "V formats" },
    { name = "layout", option = "--layout", values = { "rows" }, doc = "cache layouts" },
    { name = "tile", option = "--tile", values = { 128, 64 }, implementation = true, applies = is_decode,
      doc = "keys per softmax step (decode)" },
}

-- Properties that follow from the axes and that a selection can be narrowed by: a variant stays if every value that
-- `of` finds in it was asked for.
space.filters = {
    { name = "kq_lanes", option = "--kq-lanes", doc = "lanes per K.q product; CPU archs have no choice",
      of = function(v) return archs.get(v.arch).kq_lanes end },
    { name = "block", option = "--block", doc = "values per stored scale: 32, or the rotation chunk",
      of = function(v)
          local blocks = {}
          if v.k then blocks[1] = layout(v.k, v.head_dim).block end
          if v.v then blocks[#blocks + 1] = layout(v.v, v.head_dim).block end
          return blocks
      end },
}

-- A constraint judges the axes that it names; reason is the rule, and ok may return as its second value what precisely
-- breaks it.
space.constraints = {
    { reason = ("head_dim is 32, one unit of values, to %d"):format(MAX_HEAD_DIM), axes = { "head_dim" },
      ok = function(v) return v.head_dim >= 32 and v.head_dim <= MAX_HEAD_DIM end },
    { reason = "kernels decode 16 values at a time, so head_dim is a multiple of 16", axes = { "head_dim" },
      ok = function(v) return v.head_dim % 16 == 0 end },
    { reason = "head_dim is cut into chunks of 2^k * m values, m in 1, 3, 5, 7, which have exact rotations",
      axes = { "head_dim" },
      ok = function(v) return transform.chunks(v.head_dim) end },
    { reason = ("one KV head is shared by 1 to %d query heads"):format(MAX_GQA), axes = { "gqa" },
      ok = function(v) return v.gqa >= 1 and v.gqa <= MAX_GQA end },
    { reason = "the K format has rows of this head_dim", axes = { "k", "head_dim" },
      ok = function(v) return layout(v.k, v.head_dim) end },
    { reason = "the V format has rows of this head_dim", axes = { "v", "head_dim" },
      ok = function(v) return layout(v.v, v.head_dim) end },
}

-- axes: values instead of the default ones. equal_pairs: decode takes V in the format of K. An option replaces what the
-- set says about its axis; --k together with --v replace equal_pairs.
space.sets = {
    { name = "cpu", doc = "all default values on every CPU arch", axes = { arch = {} } },
    { name = "shipped", doc = "what is committed under generated/: head_dim 64 and 128, equal K and V formats",
      axes = { arch = {}, head_dim = { 64, 128 } }, equal_pairs = true },
    { name = "sample", doc = "for builds under sanitizers: one head_dim with every irregularity and the usual one",
      axes = { arch = {}, head_dim = { 80, 128 }, gqa = { 3, 4 } }, equal_pairs = true },
}
for _, arch in ipairs(archs.list) do
    if arch.kind == "cpu" then
        for _, set in ipairs(space.sets) do table.insert(set.axes.arch, arch.name) end
    end
end

-- ---- messages ------------------------------------------------------------------------------------------------------

local function concerns(constraint, v)
    for _, axis in ipairs(constraint.axes) do
        if v[axis] == nil then return false end
    end
    return true
end

-- First constraint that the axes present in v break, with its reason.
local function broken(v)
    for _, constraint in ipairs(space.constraints) do
        if concerns(constraint, v) then
            local ok, reason = constraint.ok(v)
            if not ok then return constraint, reason or constraint.reason end
        end
    end
end

-- Levenshtein distance: single characters inserted, deleted or replaced.
local function edit_distance(a, b)
    local row = {}
    for j = 0, #b do row[j] = j end
    for i = 1, #a do
        local diagonal = row[0]
        row[0] = i
        for j = 1, #b do
            local replaced = diagonal + (a:byte(i) == b:byte(j) and 0 or 1)
            diagonal = row[j]
            row[j] = math.min(replaced, diagonal + 1, row[j - 1] + 1)
        end
    end
    return row[#b]
end

-- The values closest to `found` in a list, at most `limit`: numbers by distance, names by edit distance.
local function closest(found, values, limit)
    local distance, order = {}, {}
    for i, value in ipairs(values) do
        distance[i] = math.type(found) and math.abs(value - found) or edit_distance(tostring(found), tostring(value))
        order[i] = i
    end
    table.sort(order, function(a, b)
        if distance[a] ~= distance[b] then return distance[a] < distance[b] end
        return a < b
    end)
    local near = {}
    for i = 1, math.min(limit, #order) do near[i] = tostring(values[order[i]]) end
    return near
end

-- Legal values of one axis nearest to v's, all else in v unchanged: next below and next above, or three names.
local function nearest(axis, v)
    local probe = setmetatable({}, { __index = v })
    local function legal(value)
        probe[axis.name] = value
        return not broken(probe)
    end
    local found = v[axis.name]
    if axis.range then
        local near = {}
        for value = math.min(found - 1, axis.range[2]), axis.range[1], -1 do
            if legal(value) then near[1] = tostring(value) break end
        end
        for value = math.max(found + 1, axis.range[1]), axis.range[2] do
            if legal(value) then near[#near + 1] = tostring(value) break end
        end
        return near
    end
    local values = {}
    for _, value in ipairs(axis.values) do
        if legal(value) then values[#values + 1] = value end
    end
    return closest(found, values, 3)
end

local function either(values)
    if #values < 2 then return values[1] or "none" end
    return table.concat(values, ", ", 1, #values - 1) .. " or " .. values[#values]
end

local function refusal(constraint, reason, v)
    local found, near = {}, {}
    for i, name in ipairs(constraint.axes) do
        local axis = by_name(space.axes, name)
        found[i] = ("%s %s"):format(axis.option, v[name])
        local values = nearest(axis, v)
        if #values > 0 then near[#near + 1] = axis.option .. " " .. either(values) end
    end
    return ("%s is illegal: %s; nearest legal: %s"):format(table.concat(found, " with "), reason,
        table.concat(near, ", "))
end

local function unknown(option, value, values)
    local fault = math.type(value) and "illegal" or "unknown"
    return ("%s %s is %s; nearest legal: %s"):format(option, value, fault, either(closest(value, values, 3)))
end

-- Is this value of an axis legal for itself? true, or nil and the message.
local function check_value(axis, value)
    if axis.range then
        local v = { [axis.name] = value }
        local constraint, reason = broken(v)
        if constraint then return nil, refusal(constraint, reason, v) end
        return true
    end
    for _, legal in ipairs(axis.values) do
        if legal == value then return true end
    end
    return nil, unknown(axis.option or axis.name, value, axis.values)
end

-- ---- filters -------------------------------------------------------------------------------------------------------

-- Reads "64,128" for an axis or filter: values of the right type, without repetitions, in canonical order.
local function parse_list(axis, text)
    local numeric = axis.of or math.type(axis.values[1])
    local values, rank = {}, {}
    for item in (text .. ","):gmatch("([^,]*),") do
        local value = item
        if numeric then
            value = item:find("^%-?%d+$") and math.tointeger(item)
            if not value then
                return nil, ("%s takes whole numbers separated by commas, found '%s'"):format(axis.option, text)
            end
        elseif item == "" then
            return nil, ("%s takes names separated by commas, found '%s'"):format(axis.option, text)
        end
        if not rank[value] then
            rank[value] = numeric and value or 0
            values[#values + 1] = value
        end
    end
    if axis.values and not axis.range then
        for i, value in ipairs(axis.values) do rank[value] = i end
    end
    table.sort(values, function(a, b)
        if rank[a] ~= rank[b] then return rank[a] < rank[b] end
        return tostring(a) < tostring(b)
    end)
    return values
end

function space.axis(name)
    return by_name(space.axes, name)
end

-- Every axis and filter that an option sets, in canonical order.
function space.options()
    local options = {}
    for _, list in ipairs { space.axes, space.filters } do
        for _, axis in ipairs(list) do
            if axis.option then options[#options + 1] = axis end
        end
    end
    return options
end

-- From option texts by axis name, { head_dim = "64,128", set = "cpu" }, to what space.select takes; or nil, message.
function space.filter(texts)
    if texts.set and not by_name(space.sets, texts.set) then
        return nil, unknown("--set", texts.set, field(space.sets, "name"))
    end
    local filter = { set = texts.set }
    for _, axis in ipairs(space.options()) do
        if texts[axis.name] then
            local values, message = parse_list(axis, texts[axis.name])
            if not values then return nil, message end
            filter[axis.name] = values
        end
    end
    return filter
end

-- The arguments that give this filter again, in canonical form.
function space.arguments(filter)
    local arguments = {}
    if filter.set then arguments = { "--set", filter.set } end
    for _, axis in ipairs(space.options()) do
        if filter[axis.name] then
            table.insert(arguments, axis.option)
            table.insert(arguments, table.concat(filter[axis.name], ","))
        end
    end
    return arguments
end

-- ---- enumeration ---------------------------------------------------------------------------------------------------

-- Calls visit with every combination of the chosen values; the table that it gets is reused.
local function walk(chosen, visit)
    local v = {}
    local function descend(i)
        local axis = space.axes[i]
        if not axis then return visit(v) end
        if axis.applies and not axis.applies(v) then return descend(i + 1) end
        for _, value in ipairs(chosen[axis.name]) do
            v[axis.name] = value
            descend(i + 1)
        end
        v[axis.name] = nil
    end
    descend(1)
end

-- Was this very combination asked for, rather than met in a product?
local function asked_for(constraint, filter)
    for _, axis in ipairs(constraint.axes) do
        if not filter[axis] or #filter[axis] > 1 then return false end
    end
    return true
end

local function copy(v)
    local variant = {}
    for _, axis in ipairs(space.axes) do variant[axis.name] = v[axis.name] end
    return variant
end

-- Narrows variants by one of space.filters; a value that none of them has is an error.
local function narrow(variants, filter, wanted)
    local is_wanted, present, values, kept = {}, {}, {}, {}
    for _, value in ipairs(wanted) do is_wanted[value] = true end
    for _, v in ipairs(variants) do
        local keep = true
        for _, value in ipairs(filter.of(v)) do
            keep = keep and is_wanted[value]
            if not present[value] then
                present[value] = true
                values[#values + 1] = value
            end
        end
        if keep then kept[#kept + 1] = v end
    end
    for _, value in ipairs(wanted) do
        if not present[value] then
            return nil, ("%s %d is illegal: none of the selected variants has it; nearest legal: %s"):format(
                filter.option, value, either(closest(value, values, 3)))
        end
    end
    return kept
end

-- filter: { set = name, <axis or filter name> = list of values, ... }, all optional. Returns the ordered variants and
-- what was left out of the product as illegal, { { reason =, count = }, ... }; or nil and the message.
function space.select(filter)
    local set = filter.set and by_name(space.sets, filter.set) or { axes = {} }
    local equal_pairs = set.equal_pairs and not (filter.k and filter.v)
    local chosen = {}
    for _, axis in ipairs(space.axes) do
        for _, value in ipairs(filter[axis.name] or {}) do
            local ok, message = check_value(axis, value)
            if not ok then return nil, message end
        end
        chosen[axis.name] = filter[axis.name] or set.axes[axis.name] or axis.values
    end

    local variants, left_out, failure = {}, {}, nil
    walk(chosen, function(v)
        local constraint, reason = broken(v)
        if not constraint then
            if not equal_pairs or not is_decode(v) or v.k == v.v then variants[#variants + 1] = copy(v) end
            return
        end
        if asked_for(constraint, filter) then failure = failure or refusal(constraint, reason, v) end
        local entry = left_out[reason]
        if not entry then
            entry = { reason = reason, count = 0 }
            left_out[reason] = entry
            left_out[#left_out + 1] = entry
        end
        entry.count = entry.count + 1
    end)
    if failure then return nil, failure end

    for _, property in ipairs(space.filters) do
        if filter[property.name] and #variants > 0 then
            local message
            variants, message = narrow(variants, property, filter[property.name])
            if not variants then return nil, message end
        end
    end
    if #variants == 0 then
        local reason = left_out[1] and left_out[1].reason or "no variant has all of these properties"
        return nil, ("%s selects nothing: %s"):format(table.concat(space.arguments(filter), " "), reason)
    end
    return variants, left_out
end

-- Is a variant that was put together by hand (or parsed from a name) legal? true, or nil and the message.
function space.check(variant)
    for _, axis in ipairs(space.axes) do
        local value = variant[axis.name]
        local applies = not axis.applies or axis.applies(variant)
        if applies and value == nil then
            return nil, ("%s needs %s: %s"):format(variant.op, axis.name, axis.doc)
        elseif not applies and value ~= nil then
            return nil, ("%s has no %s"):format(variant.op, axis.name)
        elseif applies then
            local ok, message = check_value(axis, value)
            if not ok then return nil, message end
        end
    end
    local constraint, reason = broken(variant)
    if constraint then return nil, refusal(constraint, reason, variant) end
    return true
end

-- The rules that a variant had to satisfy.
function space.rules(variant)
    local rules = {}
    for _, constraint in ipairs(space.constraints) do
        if concerns(constraint, variant) then rules[#rules + 1] = constraint.reason end
    end
    return rules
end

-- Every implementation of a variant's contract, expected best first.
function space.candidates(variant)
    local chosen, list = {}, {}
    for _, axis in ipairs(space.axes) do
        chosen[axis.name] = axis.implementation and axis.values or { variant[axis.name] }
    end
    walk(chosen, function(v) list[#list + 1] = copy(v) end)
    return list
end

return space
