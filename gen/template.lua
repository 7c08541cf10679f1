-- Template engine: C text with two sigils.
--   % lua          a line whose first visible character is % is Lua code
--   ${expression}  is replaced by its value
-- Errors carry the template's own line number: every template line becomes exactly one line of the Lua chunk.

local template = {}

-- Splits one text line into a Lua expression list: literals quoted, ${...} kept as calls of the value printer.
local function line_to_lua(line, where)
    local parts, at = {}, 1
    while true do
        local open = line:find("${", at, true)
        local literal = line:sub(at, open and open - 1 or -1)
        if literal ~= "" then
            parts[#parts + 1] = string.format("%q", literal)
        end
        if not open then
            break
        end
        local close = line:match("^%b{}()", open + 1)
        if not close then
            error(where .. ": unclosed ${", 0)
        end
        parts[#parts + 1] = "_value(" .. line:sub(open + 2, close - 2) .. ")"
        at = close
    end
    return parts
end

local function to_chunk(text, name)
    local chunk, number = {}, 0
    for line in text:gmatch("([^\n]*)\n") do
        number = number + 1
        local lua = line:match("^%s*%%(.*)$")
        if lua then
            chunk[#chunk + 1] = lua
        else
            local parts = line_to_lua(line, name .. ":" .. number)
            parts[#parts + 1] = '"\\n"'
            chunk[#chunk + 1] = "_emit(" .. table.concat(parts, ", ") .. ")"
        end
    end
    return table.concat(chunk, "\n")
end

-- Numbers must be integers: a float in C text needs an explicit, exact spelling (hexf).
local function printable(value)
    local kind = math.type(value) or type(value)
    if kind == "float" then
        error("a float needs hexf(): " .. tostring(value), 2)
    elseif kind ~= "integer" and kind ~= "string" then
        error("expression is a " .. kind .. ", expected a string or an integer", 2)
    end
    return tostring(value)
end

-- Exact C spelling of a float constant, e.g. 0x1.8p+1f.
function template.hexf(x)
    local single = string.unpack("<f", string.pack("<f", x))
    return string.format("%af", single)
end

-- The chunk of a template, a function of its names; compiled once, since kernel texts are rendered for hundreds of variants.
local compiled = {}
local function chunk_of(text, name)
    local known = compiled[name]
    if not known or known.text ~= text then
        local chunk, message = load("local _ENV = ...; " .. to_chunk(text, name), "@" .. name, "t")
        if not chunk then
            error(message, 0)
        end
        known = { text = text, run = chunk }
        compiled[name] = known
    end
    return known.run
end

-- Renders the template text with the names in `env`; undefined names are errors. Errors are strings
-- "template:line: message". `name` is how the template is called in them.
function template.render(text, name, env)
    local out = {}
    local scope = setmetatable({
        _emit = function(...)
            for i = 1, select("#", ...) do
                out[#out + 1] = (select(i, ...))
            end
        end,
        _value = printable,
        hexf = template.hexf,
        assert = assert, error = error, ipairs = ipairs, math = math, string = string, table = table,
    }, {
        __index = function(_, key)
            local value = env[key]
            if value == nil then
                error("undefined name '" .. tostring(key) .. "'", 2)
            end
            return value
        end,
        __newindex = function(_, key)
            error("assignment to undeclared name '" .. tostring(key) .. "' (use local)", 2)
        end,
    })
    chunk_of(text, name)(scope)
    return table.concat(out)
end

return template
