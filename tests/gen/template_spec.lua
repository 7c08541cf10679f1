-- The template engine: what it renders, and where it says an error is.
-- luacheck: std lua54+busted

package.path = "gen/?.lua;" .. package.path

local template = require "template"

local function render(text, env)
    return template.render(text, "t.c", env or {})
end

local function message_of(text, env)
    local ok, message = pcall(render, text, env)
    assert.is_false(ok)
    return message
end

describe("a template", function()
    it("replaces expressions and runs Lua lines", function()
        local text = "a${x}b\n  % for i = 0, 1 do\nsum${i} = ${i * 2};\n  % end\n"
        assert.equal("a7b\nsum0 = 0;\nsum1 = 2;\n", render(text, { x = 7 }))
    end)

    it("keeps C text as it is", function()
        local text = "int f(void) { return a % b; } /* \"quoted\" \\n $x */\n"
        assert.equal(text, render(text))
    end)

    it("takes braces and calls inside an expression", function()
        assert.equal("3 {x}\n", render("${#{ 1, 2, 3 }} ${string.format('{%s}', 'x')}\n"))
    end)

    it("calls a function that emits lines, in order", function()
        assert.equal("before\n(1)\n(2)\nafter\n",
            render("% local function item(i)\n(${i})\n% end\nbefore\n% item(1)\n% item(2)\nafter\n"))
    end)

    it("spells floats exactly", function()
        assert.equal("0x1.99999ap-4f\n", render("${hexf(0.1)}\n", { hexf = template.hexf }))
        assert.equal("-0x1p+1f", template.hexf(-2.0))
        for _, x in ipairs { 0.1, 1 / 3, 1e-30, 65504.0 } do
            local single = string.unpack("<f", string.pack("<f", x))
            assert.equal(single, tonumber((template.hexf(x):gsub("f$", ""))))
        end
    end)
end)

describe("an error", function()
    it("names the template and the line of an undefined name", function()
        assert.matches("^t%.c:2: undefined name 'missing'", message_of("one\n${missing}\n"))
    end)

    it("names the line of a failed assertion", function()
        assert.matches("^t%.c:3: .*bits: 2 to 4", message_of("a\nb\n% if bits > 4 then error('bits: 2 to 4') end\n", { bits = 8 }))
    end)

    it("names the line of a syntax error", function()
        assert.matches("^t%.c:2:", message_of("a\n% for for\n"))
    end)

    it("refuses an unclosed expression", function()
        assert.equal("t.c:2: unclosed ${", message_of("a\nb ${x\n"))
    end)

    it("refuses a float without a spelling, nil and tables", function()
        assert.matches("^t%.c:1: .*hexf", message_of("${0.5}\n"))
        assert.matches("^t%.c:1: .*nil", message_of("${t.x}\n", { t = {} }))
        assert.matches("^t%.c:1: .*table", message_of("${t}\n", { t = {} }))
    end)

    it("refuses globals", function()
        assert.matches("^t%.c:1: .*undeclared name 'x'", message_of("% x = 1\n"))
    end)
end)
