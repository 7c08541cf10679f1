-- Selections of variants as the specs ask for them: option texts by axis name.

local assert = require "luassert"
local space = require "space"

local selection = {}

-- What space.select gives for them; nil and the message where they are refused.
function selection.select(texts)
    local filter, message = space.filter(texts)
    if not filter then return nil, message end
    return space.select(filter)
end

-- They are refused by a message that holds all of the parts.
function selection.refused(texts, ...)
    local variants, message = selection.select(texts)
    assert.is_nil(variants)
    for _, part in ipairs { ... } do assert.is_truthy(message:find(part, 1, true), message) end
end

return selection
