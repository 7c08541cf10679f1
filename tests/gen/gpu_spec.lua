-- luacheck: std +busted
-- What is particular to GPU archs: traits, layouts, kernel families, covering sets, files.

package.path = "gen/?.lua;tests/gen/?.lua;" .. package.path

local archs = require "archs"
local axes = require "axes"
local families = require "gpu.families"
local kernels = require "kernels"
local names = require "names"
local selection = require "selection"
local space = require "space"

local select, refused = selection.select, selection.refused

local function values(variants, key)
    local seen, list = {}, {}
    for _, v in ipairs(variants) do
        local value = v[key]
        if value ~= nil and not seen[value] then
            seen[value] = true
            list[#list + 1] = value
        end
    end
    table.sort(list)
    return list
end

local function gpu_archs(vendor)
    local list = {}
    for _, arch in ipairs(archs.list) do
        if arch.kind == "gpu" and (not vendor or arch.vendor == vendor) then list[#list + 1] = arch end
    end
    return list
end

describe("GPU archs", function()
    it("are those that people have", function()
        for name, warp in pairs { gfx906 = 64, gfx90a = 64, gfx942 = 64, gfx1030 = 32, gfx1100 = 32, gfx1151 = 32,
            gfx1200 = 32, gfx1201 = 32, sm_75 = 32, sm_80 = 32, sm_86 = 32, sm_89 = 32, sm_90 = 32, sm_100 = 32,
            sm_120 = 32 } do
            local arch = assert(archs.get(name), name)
            assert.equal(warp, arch.warp)
            assert.equal(name:find("^sm") and "cuda" or "hip", arch.vendor)
        end
    end)

    it("have every trait", function()
        for _, arch in ipairs(gpu_archs()) do
            for key, kind in pairs { processor = "string", warp = "number", matrix = "string", int8_matrix = "boolean",
                dot2 = "boolean", permute = "string", copy = "string", shared_limit = "number", registers = "number",
                max_registers = "number", emulates = "string", needs = "table" } do
                assert.equal(kind, type(arch[key]), arch.name .. "." .. key)
            end
        end
    end)

    it("lend their traits to the executor", function()
        for _, arch in ipairs(gpu_archs "simt") do
            local real = archs.get((arch.name:gsub("^simt%-", "")))
            assert.equal(real.vendor, arch.emulates)
            assert.same({ "simt" .. real.warp }, arch.needs)
            for _, key in ipairs { "warp", "matrix", "int8_matrix", "dot2", "permute", "copy", "shared_limit" } do
                assert.equal(real[key], arch[key])
            end
        end
    end)
end)

describe("the GPU space", function()
    local every = {}
    for _, arch in ipairs(gpu_archs()) do every[#every + 1] = arch.name end
    local all = assert(select { arch = table.concat(every, ","), head_dim = "64,80,128,512,576", gqa = "1,3,16" })

    it("has names that are read back, all different", function()
        local seen = {}
        for _, v in ipairs(all) do
            local name = names.print(v)
            assert.is_nil(seen[name], name)
            seen[name] = true
            assert.is_truthy(name:find("^[%a_][%w_]*$"), name)
            assert.same(v, names.parse(name))
        end
        assert.is_true(#all > 1000)
    end)

    it("is legal throughout, each variant one of the candidates of its contract", function()
        for i = 1, #all, 17 do
            assert(space.check(all[i]))
            local found = false
            for _, candidate in ipairs(space.candidates(all[i])) do
                assert.equal(names.contract(all[i]), names.contract(candidate))
                assert.equal(all[i].arch, candidate.arch)
                found = found or names.print(candidate) == names.print(all[i])
            end
            assert.is_true(found)
        end
    end)

    it("gives an arch the tiles in its own order", function()
        for _, v in ipairs(all) do
            local arch = archs.get(v.arch)
            if v.layout ~= "rows" then
                assert.equal(0, v.head_dim % 64)
                assert.is_true(v.layout == "tile_" .. arch.matrix or v.layout == "tile_lane" and arch.warp == 32)
                for _, format in ipairs { v.k or v.v, v.v } do assert.is_truthy(format:find("^turbo") or format:find("^gain")) end
            end
        end
    end)

    it("keeps candidates of one contract and arch adjacent", function()
        local seen, last = {}, nil
        for _, v in ipairs(all) do
            local group = v.arch .. " " .. names.contract(v)
            if group ~= last then assert.is_nil(seen[group], group) end
            seen[group], last = true, group
        end
    end)

    it("has for each arch a default set: head_dims, ratios and pairs that engines use", function()
        local default = assert(select { arch = "gfx1201" })
        assert.same({ 64, 128, 256 }, values(default, "head_dim"))
        assert.same({ 1, 4, 8 }, values(default, "gqa"))
        local mixed = {}
        for _, v in ipairs(default) do
            if v.k and v.v and v.k ~= v.v then mixed[v.k .. "/" .. v.v] = true end
        end
        assert.same({ ["f16/turbo4"] = true, ["q8_0/turbo4"] = true, ["turbo4/turbo3"] = true }, mixed)
    end)

    it("leaves unusual choices out of it, unless somebody asks", function()
        local shape = { arch = "gfx1201", op = "decode", head_dim = "128", k = "turbo3", v = "turbo3", gqa = "4" }
        assert.same({ "lane", "tile" }, values(assert(select(shape)), "kernel"))
        assert.same({ "rows", "tile_lane" }, values(assert(select(shape)), "layout"))
        shape.gqa = "8"
        assert.same({ "rows", "tile_wmma" }, values(assert(select(shape)), "layout"))
        shape.layout = "tile_lane"
        assert.same({ "lane" }, values(assert(select(shape)), "kernel"))
        shape.layout, shape.kernel = nil, "vec"
        assert.same({ "vec" }, values(assert(select(shape)), "kernel"))
    end)

    it("has a score bias where somebody asks, in every decode family", function()
        assert.same({ 0 }, values(select { arch = "sm_90" }, "bias"))
        local found = select { arch = "sm_90,gfx1201", op = "decode", kernel = "lane,mma,tile,vec", bias = "8,32" }
        assert.same({ 8, 32 }, values(found, "bias"))
        assert.same({ "lane", "mma", "tile", "vec" }, values(found, "kernel"))
        refused({ arch = "sm_90", bias = "7" }, "--bias 7 is illegal; nearest legal: 8")
        local wide = { arch = "sm_90", op = "decode", head_dim = "512", gqa = "4", k = "gain3", v = "gain3", layout = "tile_mma" }
        assert.same({ "f16", "i8" }, values(select(wide), "k_path"))
        wide.bias = "16" -- which would have bytes of q spilled
        assert.same({ "f16" }, values(select(wide), "k_path"))
    end)

    it("has a kernel for rows of every shape", function()
        local variants = assert(select { arch = table.concat(every, ","), op = "decode", layout = nil,
            head_dim = "64,80,96,112,128,192,256,512,576", gqa = "1,2,5,16", k = "turbo4,f16", v = "gain2,q8_0" })
        local served = {}
        for _, v in ipairs(variants) do
            if v.layout == "rows" then
                served[table.concat({ v.arch, v.head_dim, v.gqa, v.k, v.v }, " ")] = true
            end
        end
        for _, arch in ipairs(every) do
            for _, head_dim in ipairs { 64, 80, 96, 112, 128, 192, 256, 512, 576 } do
                for _, gqa in ipairs { 1, 2, 5, 16 } do
                    for _, k in ipairs { "turbo4", "f16" } do
                        assert.is_true(served[table.concat({ arch, head_dim, gqa, k, "gain2" }, " ")],
                            ("%s %d %d %s"):format(arch, head_dim, gqa, k))
                    end
                end
            end
        end
    end)

    it("reaches beyond it", function()
        for _, head_dim in ipairs { "80", "96", "112", "192", "512", "576" } do
            assert(select { arch = "sm_90", op = "decode", head_dim = head_dim, k = "turbo2", v = "gain4", gqa = "5,16" })
        end
    end)

    it("says why not", function()
        refused({ arch = "c", layout = "tile_mma" }, "--arch c with --layout tile_mma", "tile_mma is in the order of mma.sync")
        refused({ arch = "c", op = "repack", layout = "rows" }, "--layout rows", "repack turns rows into tiles and back")
        refused({ arch = "c", layout = "tile_cpu", k = "f16" }, "tile_cpu holds codebook formats (K)")
        refused({ arch = "gfx1201", layout = "tile_mma" }, "tile_mma is in the order of mma.sync", "--layout tile_wmma, tile_lane or rows")
        refused({ arch = "sm_90", layout = "tile_wmma" }, "WMMA of gfx12")
        refused({ arch = "sm_90", layout = "tile_mma", head_dim = "80" }, "64 or 128 values", "--head-dim 64 or 128")
        refused({ arch = "sm_90", layout = "tile_mma", head_dim = "576" }, "K of head_dim 576 would have 64 keys", "--layout rows")
        refused({ arch = "sm_90", layout = "tile_mma", k = "f16" }, "tiles hold turbo and gain formats (K)")
        refused({ arch = "sm_90", layout = "tile_mma", v = "q8_0" }, "tiles hold turbo and gain formats (V)")
        refused({ arch = "sm_90", kernel = "warp" }, "--kernel warp is unknown")
        refused({ arch = "sm_90", kq_lanes = "64" }, "--kq-lanes 64 is illegal")
        refused({ arch = "gfx942", op = "decode", head_dim = "576", kernel = "vec", kq_lanes = "8" }, "--kq-lanes 8 is illegal", "32")
        refused({ arch = "gfx1202" }, "--arch gfx1202 is unknown", "gfx1201")
        refused({ arch = "sm_90", head_dim = "592" }, "--head-dim 592", "576")
        refused({ arch = "gfx906", op = "prefill", head_dim = "576" }, "selects nothing", "not fit in the shared memory of gfx906")
    end)

    it("prefills every head_dim, on gfx906 as far as shared memory reaches", function()
        local prefill, n = families.get "prefill", 0
        for _, arch in ipairs(gpu_archs()) do
            for head_dim = 32, 576, 16 do
                for _, bias in ipairs { 0, 32 } do
                    local v = { arch = arch.name, op = "prefill", head_dim = head_dim, gqa = 16, k = "f16", v = "f16", layout = "rows",
                        bias = bias, kernel = "prefill" }
                    local reaches = arch.processor ~= "gfx906" or head_dim <= (bias == 0 and 512 or 384)
                    assert.equal(reaches, prefill.legal(v, arch) ~= nil, arch.name .. " " .. head_dim)
                    if reaches then
                        local geometry = prefill.geometry(v, arch)
                        assert.is_true(geometry.shared_bytes <= arch.shared_limit and geometry.keys_per_step > 0)
                        n = n + 1
                    end
                end
            end
        end
        assert.is_true(n > 0)
    end)

    it("takes the lanes that were asked for, else the best number", function()
        local one = { arch = "gfx1201", op = "decode", head_dim = "128", gqa = "4", k = "turbo3", v = "turbo3", kernel = "vec" }
        local best = families.get("vec").axes.kq_lanes[1]
        assert.same({ best }, values(assert(select(one)), "kq_lanes"))
        one.kq_lanes = "4,8,32"
        assert.same({ 4, 8, 32 }, values(assert(select(one)), "kq_lanes"))
        one.kernel = nil
        local chosen = assert(select(one))
        assert.is_true(#values(chosen, "kernel") > 1)
        local per_kernel = {}
        for _, v in ipairs(chosen) do
            local key = v.kernel .. " " .. v.layout
            per_kernel[key] = (per_kernel[key] or 0) + 1
        end
        assert.equal(3, per_kernel["vec rows"])
        assert.equal(1, per_kernel["tile rows"])
    end)

    it("has several implementations by default only where a family says so", function()
        local function paths(arch)
            return values(assert(select { arch = arch, op = "decode", head_dim = "128", gqa = "4", k = "turbo3", v = "turbo3",
                kernel = "mma", layout = "tile_mma" }), "k_path")
        end
        assert.same({ "f16", "i8" }, paths "sm_90")
        assert.same({ 3 }, values(assert(select { arch = "sm_90", kernel = "mma", op = "decode", layout = "tile_mma",
            head_dim = "128" }), "stages"))
        assert.same({ 1, 4 }, values(assert(select { arch = "sm_90", kernel = "mma", op = "decode", layout = "tile_mma",
            head_dim = "128", stages = "1,4" }), "stages"))
        assert.same({ 2 }, values(assert(select { arch = "sm_90", kernel = "mma", op = "decode", layout = "tile_mma",
            head_dim = "192", k = "gain3", v = "gain3" }), "stages"))
    end)
end)

describe("a covering set", function()
    local simt = assert(select { set = "simt" })
    local set
    for _, one in ipairs(space.sets) do set = one.name == "simt" and one or set end

    -- Legal variants drawn at random from all values that the set may take.
    local function draw()
        while true do
            local v = {}
            for _, axis in ipairs(axes.list) do
                if not axis.applies or axis.applies(v) then
                    local from = set.axes[axis.name] or axis.legal and axis.legal(v) or axis.values
                    v[axis.name] = #from > 0 and from[math.random(#from)] or nil
                end
            end
            if v.layout and space.check(v) then return v end
        end
    end

    it("holds every pair of values that some legal variant has", function()
        local covered = {}
        local function each_pair(v, visit)
            for i, a in ipairs(axes.list) do
                for j = i + 1, #axes.list do
                    local b = axes.list[j]
                    if v[a.name] ~= nil and v[b.name] ~= nil then
                        visit(("%s=%s %s=%s"):format(a.name, v[a.name], b.name, v[b.name]))
                    end
                end
            end
        end
        for _, v in ipairs(simt) do each_pair(v, function(pair) covered[pair] = true end) end
        math.randomseed(1)
        for _ = 1, 3000 do
            local v = draw()
            each_pair(v, function(pair) assert.is_true(covered[pair], pair) end)
        end
    end)

    it("is small, legal and without repetitions", function()
        local seen = {}
        for _, v in ipairs(simt) do
            assert(space.check(v))
            assert.is_nil(seen[names.print(v)])
            seen[names.print(v)] = true
        end
        assert.is_true(#simt < 300)
    end)

    it("holds every value at least once in the small sample", function()
        local sample = assert(select { set = "simt-sample" })
        assert.is_true(#sample < 50)
        for _, key in ipairs { "arch", "op", "kernel", "k", "v", "layout", "kq_lanes" } do
            assert.same(values(simt, key), values(sample, key))
        end
    end)

    it("is the same every time, and takes options", function()
        assert.same(simt, (select { set = "simt" }))
        local narrow = assert(select { set = "simt", head_dim = "128", arch = "simt-gfx942" })
        assert.same({ 128 }, values(narrow, "head_dim"))
        assert.same({ "simt-gfx942" }, values(narrow, "arch"))
    end)

    it("joins other sets in the order of archs", function()
        local cpu, both = assert(select { set = "cpu" }), assert(select { set = "simt,cpu" })
        assert.equal(#cpu + #simt, #both)
        assert.same(cpu[1], both[1])
        assert.same(cpu[#cpu], both[#cpu])
        assert.same(simt[#simt], both[#both])
        assert.same(both, (select { set = "cpu,simt,cpu" }))
        assert.same({ "--set", "cpu,simt" }, space.arguments(space.filter { set = "cpu,simt" }))
        refused({ set = "cpu,gpu" }, "--set gpu is unknown")
    end)
end)

describe("the files of a GPU arch", function()
    local function files_of(texts)
        local variants = assert(select(texts))
        local used = {}
        for _, name in ipairs(values(variants, "arch")) do used[#used + 1] = archs.get(name) end
        local by_path = {}
        for _, file in ipairs(kernels.files(variants, { archs = used })) do
            assert.is_nil(by_path[file.path], file.path)
            by_path[file.path] = file.content
        end
        return by_path, variants
    end

    local function count(text, what)
        local n, at = 0, 1
        while true do
            local first, last = text:find(what, at, true)
            if not first then return n end
            n, at = n + 1, last + 1
        end
    end

    for arch, extension in pairs { sm_90 = "cu", gfx942 = "hip", ["simt-gfx1201"] = "c" } do
        it("define every kernel once, in one text per pair of formats: " .. arch, function()
            local files, variants = files_of { arch = arch, head_dim = "64,128", gqa = "1,4", k = "turbo3,f16", v = "turbo3,f16" }
            local id = archs.get(arch).id
            for _, v in ipairs(variants) do
                local stem = v.k and v.v and ("%s_d%d_k%s_v%s"):format(v.op, v.head_dim, v.k, v.v)
                    or ("append_d%d_%s"):format(v.head_dim, v.k or v.v)
                local text = assert(files[("%s/%s.%s"):format(id, stem, extension)], stem)
                local symbol = names.print(v):gsub("^tq_", "tqk_")
                assert.equal(1, count(text, "TQG_KERNEL(" .. symbol .. ","), symbol)
                assert.equal(1, count(text, '#include "vocabulary.h"'))
                assert.is_truthy(files[id .. "/registry.c"]:find("VARIANT(" .. names.print(v) .. ", ", 1, true))
            end
        end)
    end

    it("say what the arch is before the vocabulary", function()
        local function macros(arch)
            local files = files_of { arch = arch, op = "decode", head_dim = "128", gqa = "4", k = "turbo3", v = "turbo3" }
            for path, text in pairs(files) do
                if path:find("/decode_") then return text:match("^(.-)#include") end
            end
        end
        assert.is_truthy(macros("sm_90"):find("TQG_VENDOR_CUDA.*TQG_WARP 32.*TQG_MATRIX_MMA.*TQG_SM 90.*TQG_COPY_ASYNC.*TQG_COPY_BULK"))
        assert.is_truthy(macros("gfx942"):find("TQG_VENDOR_HIP.*TQG_WARP 64.*TQG_MATRIX_MFMA.*TQG_DOT2"))
        assert.is_truthy(macros("simt-sm_80"):find("TQG_VENDOR_CUDA.*TQG_SIMT.*TQG_SM 80.*TQG_COPY_ASYNC"))
        assert.is_nil(macros("simt-sm_80"):find("TQG_COPY_BULK"))
        assert.is_nil(macros("gfx1100"):find("TQG_INT8_MATRIX"))
        assert.is_nil(macros("gfx1100"):find("TQG_SIMT"))
    end)

    it("embed code objects of CUDA and HIP archs, and compile those of the executor as C", function()
        local texts = { op = "append", head_dim = "128", k = "turbo3", v = "turbo3" }
        texts.arch = "sm_90,simt-sm_90,gfx1201"
        local files = files_of(texts)
        assert.is_truthy(files["sm_90/modules.c"]:find("append_d128_turbo3", 1, true))
        assert.is_truthy(files["gfx1201/registry.c"]:find("tq_modules_gfx1201", 1, true))
        assert.is_nil(files["simt_sm_90/modules.c"])
        assert.is_truthy(files["simt_sm_90/registry.c"]:find(".kind = TQ_KIND_SIMT", 1, true))
        assert.is_truthy(files["sm_90/registry.c"]:find(".kind = TQ_KIND_CUDA", 1, true))
        for _, path in ipairs { "tq_gpu.h", "tq_simt.h", "gpu.cmake" } do assert.is_string(files[path], path) end
        assert.is_nil(files_of({ arch = "c", op = "append", head_dim = "128", k = "turbo3" })["gpu.cmake"])
    end)

    it("are written in less than a second", function()
        local start = os.clock()
        files_of { arch = "gfx1201" }
        assert.is_true(os.clock() - start < 1)
    end)
end)
