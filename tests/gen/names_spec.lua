package.path = "gen/?.lua;" .. package.path

local names = require "names"
local space = require "space"

describe("names", function()
    it("spell every axis", function()
        assert.equal("tq_decode_d128_g4_kturbo3_vturbo4_rows__x86_64_v3_t128", names.print {
            op = "decode", head_dim = 128, gqa = 4, k = "turbo3", v = "turbo4", layout = "rows", arch = "x86-64-v3",
            tile = 128 })
        assert.equal("tq_append_d128_kturbo3_rows__c", names.print {
            op = "append", head_dim = 128, side = "k", k = "turbo3", layout = "rows", arch = "c" })
    end)

    it("tell kernels with a score bias from those without", function()
        local name = "tq_decode_d128_g4_kgain3_vgain4_b16_tile_mma__sm_90_mma_s3_kf16"
        local variant = assert(names.parse(name))
        assert.equal(16, variant.bias)
        assert.equal("tile_mma", variant.layout)
        assert.equal(name, names.print(variant))
        variant.bias = 0
        assert.equal(variant.bias, assert(names.parse(names.print(variant))).bias)
        assert.is_nil(names.parse "tq_decode_d128_g4_kgain3_vgain4_b0_tile_mma__sm_90_mma_s3_kf16")
    end)

    it("round-trip the whole space, and are all different", function()
        local seen = {}
        local variants = assert(space.select { head_dim = { 48, 64, 80, 96, 112, 128, 160, 192, 256, 512 } })
        for _, variant in ipairs(variants) do
            local name = names.print(variant)
            assert.is_nil(seen[name], name)
            seen[name] = true
            assert.is_truthy(name:find("^[%a_][%w_]*$"), name)
            assert.same(variant, names.parse(name))
        end
        assert.is_true(#variants > 8000)
    end)

    it("reads formats with an underscore", function()
        local variant = assert(names.parse "tq_decode_d64_g1_kq8_0_vq8_0_rows__c_t64")
        assert.equal("q8_0", variant.k)
        assert.equal("q8_0", variant.v)
    end)

    it("refuses anything else with a sentence", function()
        for _, name in ipairs { "", "turbo3", "tq_", "tq___", "tq_decode__c", "tq_decode_d128__c",
            "tq_decode_d128_g4_kturbo9_vturbo3_rows__c_t64", "tq_decode_d128_g4_kturbo3_vturbo3_rows__gfx9999_t64",
            "tq_decode_d0128_g4_kturbo3_vturbo3_rows__c_t64", "tq_decode_d128_g4_kturbo3_vturbo3_rows__c_t064",
            "tq_decode_d128_g4_kturbo3_vturbo3_rows__c_t", "tq_decode_d128_g4_kturbo3_vturbo3__c_t64",
            "tq_decode_d128_g4_vturbo3_kturbo3_rows__c_t64", "tq_decode_d99999999999999999999_kf16_rows__c",
            "TQ_append_d128_kturbo3_rows__c", "tq_append_d128_kturbo3_rows__c ", "tq_append_d128_kturbo3_rows__c_t",
        } do
            local variant, message = names.parse(name)
            assert.is_nil(variant, name)
            assert.is_truthy(message:find("^'" .. name .. "' is not a variant name: %w"), message)
        end
    end)
end)
