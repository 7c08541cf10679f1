-- Rows of a command's output, as an aligned table or as JSON with the same fields.

local json = require "dkjson"

local report = {}

-- A copy that stays an array in JSON even when it is empty.
function report.array(list)
    return setmetatable(table.move(list, 1, #list, 1, {}), { __jsontype = "array" })
end

local function text(value)
    if value == nil or value == 0 then return "-" end
    if type(value) == "table" then return #value > 0 and table.concat(value, " ") or "-" end
    if type(value) == "boolean" then return value and "yes" or "no" end
    if math.type(value) == "float" then return ("%.4f"):format(value) end
    return tostring(value)
end

-- columns: field names, and the order of the keys in JSON.
function report.rows(columns, rows, as_json)
    if as_json then
        local lines = {}
        for i, row in ipairs(rows) do lines[i] = json.encode(row, { keyorder = columns }) end
        print("[" .. table.concat(lines, ",\n ") .. "]")
        return
    end
    local width, numeric = {}, {}
    for _, column in ipairs(columns) do
        width[column] = #column
        for _, row in ipairs(rows) do
            width[column] = math.max(width[column], #text(row[column]))
            numeric[column] = numeric[column] or math.type(row[column]) ~= nil
        end
    end
    local function line(cell)
        local cells = {}
        for i, column in ipairs(columns) do
            local shown = cell(column)
            local spaces = (" "):rep(width[column] - #shown)
            cells[i] = numeric[column] and spaces .. shown or shown .. spaces
        end
        print((table.concat(cells, "  "):gsub(" +$", "")))
    end
    line(function(column) return column end)
    for _, row in ipairs(rows) do
        line(function(column) return text(row[column]) end)
    end
end

-- One row, a field a line.
function report.fields(columns, row)
    local width = 0
    for _, column in ipairs(columns) do width = math.max(width, #column) end
    for _, column in ipairs(columns) do
        print(("%-" .. width .. "s  %s"):format(column, text(row[column])))
    end
end

return report
