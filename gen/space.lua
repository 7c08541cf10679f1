-- Enumerates the legal space that gen/axes.lua holds. Everything that needs variants gets them from space.select.

local axes = require "axes"
local archs = require "archs"
local cover = require "cover"
local families = require "gpu.families"
local suggest = require "suggest"

local space = { axes = axes.list, constraints = axes.constraints, sets = axes.sets }

local function by_name(list, name)
    for _, entry in ipairs(list) do
        if entry.name == name then return entry end
    end
end

-- ---- messages ------------------------------------------------------------------------------------------------------

local function concerns(constraint, v)
    for _, axis in ipairs(constraint.axes) do
        if v[axis] == nil then return false end
    end
    return not constraint.when or constraint.when(v)
end

-- First constraint that the axes present in v break, with its reason.
local function broken(v)
    for _, constraint in ipairs(axes.constraints) do
        if concerns(constraint, v) then
            local ok, reason = constraint.ok(v)
            if not ok then return constraint, reason or constraint.reason end
        end
    end
end

-- Constraints by the last axis, in order, that they name, so that one can be judged as soon as its axes are known; those of
-- implementations look at others, too, and are judged last.
local by_last_axis, of_implementations = {}, {}
do
    local place = {}
    for i, axis in ipairs(axes.list) do place[axis.name], by_last_axis[i] = i, {} end
    for _, constraint in ipairs(axes.constraints) do
        local last = 1
        for _, axis in ipairs(constraint.axes) do last = math.max(last, place[axis]) end
        table.insert(constraint.of_implementation and of_implementations or by_last_axis[last], constraint)
    end
end

local function breaks(constraints, v)
    for _, constraint in ipairs(constraints) do
        if concerns(constraint, v) and not constraint.ok(v) then return true end
    end
    return false
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
    return suggest.closest(found, values, 3)
end

local function refusal(constraint, reason, v)
    local found, near, of = {}, {}, {}
    for _, axis in ipairs(axes.list) do -- values near v's may want another implementation
        if not axis.implementation or axis.name == "arch" then of[axis.name] = v[axis.name] end
    end
    for _, name in ipairs(constraint.axes) do of[name] = v[name] end
    for i, name in ipairs(constraint.axes) do
        local axis = by_name(axes.list, name)
        found[i] = ("%s %s"):format(axis.option or axis.name, v[name])
        local values = axis.option and nearest(axis, of) or {}
        if #values > 0 then near[#near + 1] = axis.option .. " " .. suggest.either(values) end
    end
    return ("%s is illegal: %s; nearest legal: %s"):format(table.concat(found, " with "), reason,
        table.concat(near, ", "))
end

local function unknown(option, value, values)
    local fault = math.type(value) and "illegal" or "unknown"
    return ("%s %s is %s; nearest legal: %s"):format(option, value, fault, suggest.either(suggest.closest(value, values, 3)))
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
    local numeric = axis.numeric or math.type(axis.values[1])
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

space.axis = axes.get

-- Every axis and filter that an option sets, in canonical order.
function space.options()
    local options = {}
    for _, list in ipairs { axes.list, axes.properties } do
        for _, axis in ipairs(list) do
            if axis.option then options[#options + 1] = axis end
        end
    end
    return options
end

-- From option texts by axis name, { head_dim = "64,128", set = "cpu" }, to what space.select takes; or nil, message.
function space.filter(texts)
    local filter = {}
    if texts.set then
        filter.set = {}
        for name in (texts.set .. ","):gmatch("([^,]*),") do
            if not by_name(axes.sets, name) then return nil, unknown("--set", name, axes.set_names) end
            table.insert(filter.set, name)
        end
    end
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
    if filter.set then arguments = { "--set", table.concat(filter.set, ",") } end
    for _, axis in ipairs(space.options()) do
        if filter[axis.name] then
            table.insert(arguments, axis.option)
            table.insert(arguments, table.concat(filter[axis.name], ","))
        end
    end
    return arguments
end

-- ---- enumeration ---------------------------------------------------------------------------------------------------

-- What values mean for kernels of V alone, without repetitions.
local function values_of_v(axis, values)
    local own, has = {}, {}
    for _, value in ipairs(values) do
        local meant = axis.of_v(value)
        if not has[meant] then own[#own + 1] = meant end
        has[meant] = true
    end
    return own
end

-- Calls visit with every combination of the values that values_of(axis, v) gives, where v has the axes before; the table
-- that visit gets is reused; its second argument tells whether the combination is legal. Where an axis has no values, only
-- what is illegal already is visited.
local function walk(values_of, visit)
    local v = {}
    local function descend(i, legal)
        local axis = axes.list[i]
        if not axis then return visit(v, legal and not breaks(of_implementations, v)) end
        if axis.applies and not axis.applies(v) then return descend(i + 1, legal) end
        local values = values_of(axis, v)
        if axis.of_v and v.side == "v" then values = values_of_v(axis, values) end
        if #values == 0 and broken(v) then visit(v, false) end
        for _, value in ipairs(values) do
            v[axis.name] = value
            descend(i + 1, legal and not breaks(by_last_axis[i], v))
        end
        v[axis.name] = nil
    end
    descend(1, true)
end

local function legal_values(axis, v)
    return axis.legal and axis.legal(v) or axis.values
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
    for _, axis in ipairs(axes.list) do variant[axis.name] = v[axis.name] end
    return variant
end

-- Narrows variants by an axis or property that has `of`; a value that none of them has is an error.
local function narrow(variants, property, wanted)
    local is_wanted, present, values, kept = {}, {}, {}, {}
    for _, value in ipairs(wanted) do is_wanted[value] = true end
    for _, v in ipairs(variants) do
        local keep = true
        for _, value in ipairs(property.of(v)) do
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
            return nil, ("%s %s is illegal: none of the selected variants has it; nearest legal: %s"):format(
                property.option, value, suggest.either(suggest.closest(value, values, 3)))
        end
    end
    return kept
end

-- A contract on an arch.
local function contract_key(v)
    local parts = { v.arch }
    for _, axis in ipairs(axes.list) do
        if not axis.implementation then parts[#parts + 1] = tostring(v[axis.name]) end
    end
    return table.concat(parts, " ")
end

-- Did somebody ask for implementations of this family: for it, for values of its axes or for what it reads?
local function family_asked_for(family, filter)
    for name in pairs(family.axes) do
        if filter[name] then return true end
    end
    return filter.kernel or filter.layout
end

-- What is taken of kernel families where nobody asks: of a contract the implementation with the best value of each axis, if
-- the family is a usual choice for the contract. Rows always have a kernel, tiles only where they are a usual choice.
local function usual(variants, filter)
    local is_usual, served, kept, seen = {}, {}, {}, {}
    for i, v in ipairs(variants) do
        local family = v.kernel and families.of(v)
        is_usual[i] = not family or not family.usual or family_asked_for(family, filter)
            or family.usual(v, archs.get(v.arch))
        if family and is_usual[i] then served[contract_key(v)] = true end
    end
    for i, v in ipairs(variants) do
        local contract = v.kernel and contract_key(v)
        local keep = is_usual[i] or v.layout == "rows" and not served[contract]
        for _, axis in ipairs(contract and axes.list or {}) do
            if axis.best and v[axis.name] ~= nil and not filter[axis.name] then
                local key = contract .. " " .. v.kernel .. " " .. axis.name
                seen[key] = seen[key] or { n = 0 }
                if not seen[key][v[axis.name]] then
                    seen[key].n = seen[key].n + 1
                    seen[key][v[axis.name]] = seen[key].n
                end
                keep = keep and seen[key][v[axis.name]] <= axis.best(v)
            end
        end
        if keep then kept[#kept + 1] = v end
    end
    return kept
end

-- The product of the values that filter and set give, without what is illegal; counts that in left_out, by reason, unless
-- another implementation of the contract is legal. Returns nil and the message if it was asked for.
local function product(set, filter, left_out)
    local equal_pairs = set.equal_pairs and not (filter.k and filter.v)
    local variants, failure = {}, nil
    local implemented, refused = {}, {}
    local function leave_out(reason)
        local entry = left_out[reason]
        if not entry then
            entry = { reason = reason, count = 0 }
            left_out[reason] = entry
            left_out[#left_out + 1] = entry
        end
        entry.count = entry.count + 1
    end
    walk(function(axis, v)
        if filter[axis.name] then return axis.of and legal_values(axis, v) or filter[axis.name] end
        return set.axes[axis.name] or axis.default and axis.default(v) or legal_values(axis, v)
    end, function(v, legal)
        local constraint, reason
        if not legal then constraint, reason = broken(v) end
        if not constraint then
            if not equal_pairs or not (v.k and v.v) or v.k == v.v then variants[#variants + 1] = copy(v) end
            if v.kernel then implemented[contract_key(v)] = true end
        elseif constraint.of_implementation then
            table.insert(refused, { key = contract_key(v), reason = reason })
        else
            if asked_for(constraint, filter) then failure = failure or refusal(constraint, reason, v) end
            leave_out(reason)
        end
    end)
    if failure then return nil, failure end
    for _, entry in ipairs(refused) do
        if not implemented[entry.key] then leave_out(entry.reason) end
    end
    return set.every and variants or usual(variants, filter)
end

-- A covering set. First comes what decides which axes there are, and what most constraints name.
local function covering(set, filter)
    local ordered, placed = {}, {}
    local function add(axis)
        if placed[axis] then return end
        placed[axis] = true
        local own = filter[axis.name] or set.axes[axis.name]
        ordered[#ordered + 1] = { name = axis.name, applies = axis.applies, all = own or axis.values,
            values = function(v) return own or legal_values(axis, v) end }
    end
    for _, name in ipairs { "op", "arch" } do add(axes.get(name)) end
    for _, axis in ipairs(axes.list) do
        if axis.implementation then add(axis) end
    end
    for _, name in ipairs { "layout", "gqa", "side", "v", "k" } do add(axes.get(name)) end
    for _, axis in ipairs(axes.list) do add(axis) end
    local variants = cover.variants(ordered, set.cover, function(v) return not broken(v) end)
    for i, v in ipairs(variants) do variants[i] = copy(v) end
    return variants
end

-- Sorts variants as one product would have them, and drops repetitions.
local function merge(variants)
    local rank = {}
    for _, axis in ipairs(axes.list) do
        rank[axis.name] = {}
        for i, value in ipairs(axis.values) do rank[axis.name][value] = axis.range and value or i end
    end
    local function place(axis, v)
        local value = v[axis.name]
        return value == nil and 0 or rank[axis.name][value] or value
    end
    local function before(a, b)
        for _, axis in ipairs(axes.list) do
            local x, y = place(axis, a), place(axis, b)
            if x ~= y then return x < y end
        end
        return false
    end
    table.sort(variants, before)
    local kept = {}
    for _, v in ipairs(variants) do
        if not kept[1] or before(kept[#kept], v) then kept[#kept + 1] = v end
    end
    return kept
end

-- filter: { set = names, <axis or property name> = list of values, ... }, all optional. Returns the ordered variants and
-- what was left out of the product as illegal, { { reason =, count = }, ... }; or nil and the message.
function space.select(filter)
    for _, axis in ipairs(axes.list) do
        for _, value in ipairs(filter[axis.name] or {}) do
            local ok, message = check_value(axis, value)
            if not ok then return nil, message end
        end
    end

    local variants, left_out, merging = {}, {}, filter.set and #filter.set > 1
    for _, name in ipairs(filter.set or { false }) do
        local set = name and by_name(axes.sets, name) or { axes = {} }
        local more, message
        if set.cover then
            more, merging = covering(set, filter), true
        else
            more, message = product(set, filter, left_out)
        end
        if not more then return nil, message end
        table.move(more, 1, #more, #variants + 1, variants)
    end
    if merging then variants = merge(variants) end

    for _, property in ipairs(space.options()) do
        if property.of and filter[property.name] and #variants > 0 then
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
    for _, axis in ipairs(axes.list) do
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
    for _, constraint in ipairs(axes.constraints) do
        if concerns(constraint, variant) then rules[#rules + 1] = constraint.reason end
    end
    return rules
end

-- Every implementation of a variant's contract that the same device may run, expected best first: of all CPU archs, or of
-- its own GPU arch.
function space.candidates(variant)
    local list, own = {}, archs.get(variant.arch)
    walk(function(axis, v)
        if not axis.implementation then return { variant[axis.name] } end
        if axis.name == "arch" and own.kind == "gpu" then return { own.name } end
        return legal_values(axis, v)
    end, function(v, legal)
        if archs.get(v.arch).kind == own.kind and legal then list[#list + 1] = copy(v) end
    end)
    return list
end

return space
