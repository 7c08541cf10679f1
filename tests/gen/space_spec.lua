package.path = "gen/?.lua;tests/gen/?.lua;" .. package.path

local archs = require "archs"
local formats = require "formats"
local names = require "names"
local selection = require "selection"
local space = require "space"
local map = require("text").map

local select, refused = selection.select, selection.refused

local function count(variants, key, value)
    local n = 0
    for _, v in ipairs(variants) do
        if v[key] == value then n = n + 1 end
    end
    return n
end

describe("archs", function()
    it("are found by name, the best first", function()
        assert.equal("c", archs.get("c").id)
        assert.is_true(archs.get("x86-64-v3").rank < archs.get("c").rank)
        assert.is_nil(archs.get("gfx9999"))
    end)
end)

describe("the space", function()
    local cpu, left_out = assert(select { set = "cpu" })

    it("holds every legal combination of the default values once", function()
        -- Formats per head_dim: all of them, but q8_0 only in multiples of its block.
        local pairs_of_formats, single_formats, in_tiles, pairs_in_tiles = 0, 0, 0, 0
        for _, head_dim in ipairs(space.axis("head_dim").values) do
            local n = 0
            for _, format in ipairs(formats.list) do
                if formats.layout(format.name, head_dim) then n = n + 1 end
            end
            pairs_of_formats, single_formats = pairs_of_formats + n * n, single_formats + n
            pairs_in_tiles, in_tiles = pairs_in_tiles + (n - 1) * (n - 1), in_tiles + n - 1
        end
        local n_archs, n_gqa, n_tiles = 4, #space.axis("gqa").values, #space.axis("tile").values
        local per_pair = n_gqa * (n_tiles + 1) -- decode, prefill
        -- All ops on rows, then decode and prefill, append, dequantise and repack of tiles, which hold all formats but f16.
        local function per_arch(pairs, singles, tiled_pairs, tiled)
            return pairs * per_pair + singles * 2 * 2 + tiled_pairs * 2 * n_gqa + tiled * 2 * 3
        end
        assert.equal(n_archs * per_arch(pairs_of_formats, single_formats, pairs_in_tiles, in_tiles), #cpu)
        local n, n_tiled = #formats.list, #formats.list - 1
        local product = per_arch(n * n * 4, n * 4, n_tiled * n_tiled * 4, n_tiled * 4)
        assert.equal(n_archs * product, #cpu + left_out[1].count)
        assert.equal(1, #left_out)
        assert.is_truthy(left_out[1].reason:find("q8_0 blocks hold 32 values", 1, true))
    end)

    it("is legal throughout", function()
        for _, v in ipairs(cpu) do assert(space.check(v)) end
    end)

    it("is enumerated with little work", function() -- 20 million instructions of Lua take about 0.2 s
        local thousands = 0
        debug.sethook(function() thousands = thousands + 1 end, "", 1000)
        local variants = select { set = "cpu" }
        debug.sethook()
        assert.is_true(#variants > 0)
        assert.is_true(thousands < 20000, "thousands of instructions: " .. thousands)
    end)

    it("keeps candidates of one contract and arch adjacent", function()
        local seen, last = {}, nil
        for _, v in ipairs(cpu) do
            local group = v.arch .. " " .. names.contract(v)
            if group ~= last then assert.is_nil(seen[group], group) end
            seen[group], last = true, group
        end
        assert.equal("avx512", cpu[1].arch)
        assert.equal("c", cpu[#cpu].arch)
    end)

    it("knows the candidates of a contract in order", function()
        local list = space.candidates(names.parse "tq_decode_d128_g4_kturbo3_vturbo4_rows__c_t64")
        local printed = {}
        for i, v in ipairs(list) do printed[i] = names.print(v):match("__(.*)") end
        assert.same({ "avx512_t128", "avx512_t64", "x86_64_v3_t128", "x86_64_v3_t64", "armv8_2_a_t128", "armv8_2_a_t64",
            "c_t128", "c_t64" }, printed)
        assert.equal(4, #space.candidates(names.parse "tq_append_d128_vturbo3_rows__c"))
    end)

    it("has a shipped set of equal pairs, which options replace", function()
        local shipped = assert(select { set = "shipped" })
        for _, v in ipairs(shipped) do
            assert.is_true(v.head_dim == 64 or v.head_dim == 128)
            assert.is_true(v.op ~= "decode" or v.k == v.v)
        end
        assert.equal(#shipped / 2, count(shipped, "arch", "c"))
        assert.equal(3, #assert(select { set = "shipped", op = "decode", arch = "c", head_dim = "256", gqa = "3",
            k = "turbo3" }))
        assert.equal(3, #assert(select { set = "shipped", op = "decode", arch = "c", head_dim = "256", gqa = "3",
            k = "turbo3", v = "gain4" }))
    end)
end)

describe("a selection", function()
    local one = { arch = "c", op = "decode", head_dim = "128", gqa = "4", k = "turbo3", v = "turbo4", tile = "64" }

    local function but(changes)
        local texts = {}
        for key, value in pairs(one) do texts[key] = value end
        for key, value in pairs(changes) do texts[key] = value end
        return texts
    end

    it("comes down to one variant", function()
        assert.same({ { arch = "c", op = "decode", head_dim = 128, gqa = 4, k = "turbo3", v = "turbo4",
            layout = "rows", tile = 64 } }, (select(one)))
    end)

    it("does not depend on the order or repetition of values", function()
        local a = select { arch = "c,x86-64-v3", head_dim = "256,64,256", k = "turbo4,turbo2" }
        local b = select { arch = "x86-64-v3,c", head_dim = "64,256", k = "turbo2,turbo4" }
        assert.same(a, b)
        assert.same({ "--arch", "x86-64-v3,c", "--head-dim", "64,256", "--k", "turbo2,turbo4" },
            space.arguments(space.filter { arch = "c,x86-64-v3", head_dim = "256,64,256", k = "turbo4,turbo2" }))
    end)

    it("reaches beyond the default values", function()
        for _, head_dim in ipairs { "32", "96", "112", "192", "512" } do
            assert.equal(1, #assert(select(but { head_dim = head_dim })))
        end
        assert.equal(16, #assert(select(but { gqa = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16" })))
    end)

    it("leaves out what is illegal in a product and counts it", function()
        local variants, left_out = assert(select(but { head_dim = "80,128", k = "q8_0", layout = "rows" }))
        assert.equal(1, #variants)
        assert.equal(1, left_out[1].count)
    end)

    it("is narrowed by lanes and block", function()
        assert.equal(1, #assert(select(but { kq_lanes = "8", block = "32" })))
        local variants = assert(select(but { k = "turbo3,gain3", v = "turbo3,gain3", block = "128" }))
        assert.equal(1, #variants)
        assert.equal("gain3", variants[1].v)
    end)

    it("refuses unknown names and illegal numbers with the nearest legal ones", function()
        refused(but { k = "turbo9" }, "--k turbo9 is unknown", "turbo2, turbo3 or turbo4")
        refused(but { v = "turob3" }, "--v turob3", "nearest legal: turbo3")
        refused(but { arch = "x86-64-v4" }, "--arch x86-64-v4", "nearest legal: x86-64-v3")
        refused(but { op = "decod" }, "--op decod", "nearest legal: decode")
        refused(but { layout = "tiled" }, "--layout tiled", "nearest legal: tile_cpu, tile_mma or rows")
        refused({ set = "gpu" }, "--set gpu", "cpu, mla or simt")
        refused(but { head_dim = "63" }, "--head-dim 63", "multiple of 16", "--head-dim 48 or 64")
        refused(but { head_dim = "64,63" }, "--head-dim 63")
        refused(but { head_dim = "592" }, "--head-dim 592", "32, one unit of values, to 576", "nearest legal: --head-dim 576")
        refused(but { head_dim = "-1" }, "--head-dim -1", "nearest legal: --head-dim 32")
        refused(but { gqa = "17" }, "--gqa 17", "1 to 16", "nearest legal: --gqa 16")
        refused(but { gqa = "0" }, "--gqa 0", "nearest legal: --gqa 1")
        refused(but { tile = "65" }, "--tile 65", "nearest legal: 64")
        refused(but { kq_lanes = "32" }, "--kq-lanes 32", "nearest legal: 8")
        refused(but { block = "31" }, "--block 31", "nearest legal: 32")
    end)

    it("refuses text that is not a list of values", function()
        local texts = { "", ",", "64,", "64,,80", "abc", "1e2", "0x40", "64.0", " 64", "99999999999999999999" }
        for _, text in ipairs(texts) do
            refused(but { head_dim = text }, "--head-dim takes whole numbers", "'" .. text .. "'")
        end
        refused(but { k = "turbo3,,turbo4" }, "--k takes names", "'turbo3,,turbo4'")
    end)

    it("refuses a combination that was asked for, with reason and ways out", function()
        refused(but { head_dim = "80", k = "q8_0" }, "--k q8_0 with --head-dim 80", "q8_0 blocks hold 32 values",
            "--head-dim 64 or 96")
        refused(but { head_dim = "80", v = "q8_0" }, "--v q8_0 with --head-dim 80")
        refused(but { head_dim = "144" }, "--k turbo3 with --head-dim 144", "3 rotation chunks of 48", "--head-dim 128 or 160")
        refused(but { head_dim = "320", k = "gain3" }, "--k gain3 with --head-dim 320", "16 gain codes at most")
    end)

    it("refuses to be empty", function()
        refused({ arch = "c", op = "decode", head_dim = "48,80", k = "q8_0" }, "selects nothing", "q8_0 blocks hold 32")
        refused({ arch = "c", op = "decode", k = "f16", v = "turbo3", block = "1,32", head_dim = "80" }, "--block 32")
    end)
end)

describe("head_dim 576", function()
    local function of_op(op)
        return assert(select { arch = "c", op = op, head_dim = "512,576", gqa = "16", k = "turbo3", v = "gain4", tile = "128",
            layout = "rows" })
    end

    it("has V rows of 512 values, which have one kernel with those of head_dim 512", function()
        assert.same({ "tq_append_d512_kturbo3_rows__c", "tq_append_d576_kturbo3_rows__c", "tq_append_d512_vgain4_rows__c" },
            map(of_op "append", names.print))
        assert.same({ "tq_decode_d512_g16_kturbo3_vgain4_rows__c_t128", "tq_decode_d576_g16_kturbo3_vgain4_rows__c_t128" },
            map(of_op "decode", names.print))
        local _, message = space.check { arch = "c", op = "append", head_dim = 576, side = "v", v = "gain4", layout = "rows" }
        assert.is_truthy(message:find("side v with --head-dim 576 is illegal: V rows", 1, true), message)
    end)
end)

describe("a variant put together by hand", function()
    local good = { arch = "c", op = "decode", head_dim = 128, gqa = 4, k = "turbo3", v = "turbo4", layout = "rows",
        tile = 64 }

    local function broken(key, value, part)
        local v = {}
        for _, axis in ipairs(space.axes) do v[axis.name] = good[axis.name] end
        v[key] = value
        local ok, message = space.check(v)
        assert.is_nil(ok)
        assert.is_truthy(message:find(part, 1, true), message)
    end

    it("is checked on every axis", function()
        assert.is_true(space.check(good))
        broken("op", "prefill", "prefill has no tile")
        broken("tile", nil, "decode needs tile")
        broken("tile", 96, "--tile 96")
        broken("gqa", nil, "decode needs gqa")
        broken("side", "k", "decode has no side")
        broken("op", "append", "append needs side")
        broken("head_dim", 130, "--head-dim 130")
        broken("v", "turbo5", "--v turbo5")
        local append = { arch = "c", op = "append", head_dim = 64, side = "k", k = "turbo3", layout = "rows", gqa = 4 }
        local _, message = space.check(append)
        assert.equal("append has no gqa", message)
    end)
end)
