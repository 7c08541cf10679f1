-- Values close to one that was not accepted, for messages.

local suggest = {}

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
function suggest.closest(found, values, limit)
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

function suggest.either(values)
    if #values < 2 then return values[1] or "none" end
    return table.concat(values, ", ", 1, #values - 1) .. " or " .. values[#values]
end

return suggest
