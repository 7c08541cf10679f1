-- Covering sets: few variants that hold every value of every axis (strength 1), or every pair of values of two axes
-- (strength 2), that some legal variant holds. Greedy and deterministic, after AETG (Cohen et al. 1997): each round starts
-- from a value or pair that is not covered yet and gives every other axis the value that covers most of what is left.

local cover = {}

local PATIENCE = 4000 -- values tried before a pair is taken for one that no legal variant holds

-- All pairs of values, numbered: value number * n + value number; strength 1: each value paired with itself.
local function targets(axes, strength)
    local number, values = {}, {}
    for _, axis in ipairs(axes) do
        number[axis.name] = {}
        for _, value in ipairs(axis.all) do
            values[#values + 1] = { axis = axis, value = value }
            number[axis.name][value] = #values
        end
    end
    local n, open, list = #values, {}, {}
    local function add(i, j)
        open[i * n + j] = true
        list[#list + 1] = { i, j }
    end
    for i, a in ipairs(values) do
        if strength == 1 then
            add(i, i)
        else
            for j = i + 1, n do
                if values[j].axis ~= a.axis then add(i, j) end
            end
        end
    end
    return { number = number, values = values, open = open, list = list, n = n }
end

-- axes: { name =, all = every value, applies = function or nil, values = function(v) }, in an order in which each axis
-- depends on earlier ones only. legal(v) judges a variant of which some axes are known. Returns the variants.
function cover.variants(axes, strength, legal)
    local goal = targets(axes, strength)
    local found, turn = {}, 0

    -- How much that is open v would cover by taking this value too.
    local function gain(v, axis, value)
        local i, sum = goal.number[axis.name][value], 0
        if strength == 1 then return goal.open[i * goal.n + i] and 1 or 0 end
        for _, other in ipairs(axes) do
            local j = other ~= axis and v[other.name] ~= nil and goal.number[other.name][v[other.name]]
            if j and goal.open[math.min(i, j) * goal.n + math.max(i, j)] then sum = sum + 1 end
        end
        return sum
    end

    local function close(v)
        for a = 1, #axes do
            local i = v[axes[a].name] ~= nil and goal.number[axes[a].name][v[axes[a].name]]
            for b = strength == 1 and a or a + 1, strength == 1 and a or #axes do
                local j = i and v[axes[b].name] ~= nil and goal.number[axes[b].name][v[axes[b].name]]
                if j then goal.open[math.min(i, j) * goal.n + math.max(i, j)] = nil end
            end
        end
    end

    -- Values of an axis, those that cover most first; equals take turns.
    local function ordered(v, axis)
        local values, gains, place = {}, {}, {}
        local all = axis.values(v)
        for i, value in ipairs(all) do
            values[i], gains[value] = value, gain(v, axis, value)
            place[value] = (i + turn) % #all
        end
        table.sort(values, function(a, b)
            if gains[a] ~= gains[b] then return gains[a] > gains[b] end
            return place[a] < place[b]
        end)
        return values
    end

    -- Gives every axis from the i-th on a value; fixed holds what must not change.
    local function complete(v, fixed, i, budget)
        local axis = axes[i]
        if not axis then return true end
        if axis.applies and not axis.applies(v) then
            return fixed[axis.name] == nil and complete(v, fixed, i + 1, budget)
        end
        local values = fixed[axis.name] ~= nil and { fixed[axis.name] } or ordered(v, axis)
        for _, value in ipairs(values) do
            budget.left = budget.left - 1
            if budget.left < 0 then return false end
            v[axis.name] = value
            if legal(v) and complete(v, fixed, i + 1, budget) then return true end
            v[axis.name] = fixed[axis.name]
        end
        return false
    end

    for _, target in ipairs(goal.list) do
        if goal.open[target[1] * goal.n + target[2]] then
            local fixed, v = {}, {}
            for _, i in ipairs(target) do
                fixed[goal.values[i].axis.name] = goal.values[i].value
                v[goal.values[i].axis.name] = goal.values[i].value
            end
            turn = turn + 1
            if legal(v) and complete(v, fixed, 1, { left = PATIENCE }) then
                close(v)
                found[#found + 1] = v
            end
        end
    end
    return found
end

return cover
