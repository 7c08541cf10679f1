package.path = "gen/?.lua;" .. package.path

local json = require "dkjson"
local lfs = require "lfs"

local ONE = "--arch x86-64-v3 --head-dim 128 --k turbo3 --v turbo3 --gqa 4"

local function read(path)
    local file = assert(io.open(path, "rb"))
    local text = file:read("a")
    file:close()
    return text
end

describe("tqgen", function()
    local root

    setup(function()
        root = os.tmpname()
        os.remove(root)
        assert(lfs.mkdir(root))
    end)

    teardown(function()
        os.execute("rm -rf '" .. root .. "'")
    end)

    -- Runs a command line; gives status, stdout, stderr.
    local function sh(line)
        local _, kind, status = os.execute(("%s >'%s/out' 2>'%s/err'"):format(line, root, root))
        assert.equal("exit", kind)
        return status, read(root .. "/out"), read(root .. "/err")
    end

    local function tqgen(arguments)
        return sh("gen/tqgen " .. arguments)
    end

    local function rows(arguments)
        local status, out, err = tqgen(arguments)
        assert.equal(0, status, err)
        local data = assert(json.decode(out))
        assert.is_truthy(data[1])
        return data
    end

    local function has(row, ...)
        for _, name in ipairs { ... } do assert.is_not_nil(row[name], name) end
    end

    it("generates, and says how much", function()
        local status, out, err = tqgen(ONE .. " -o " .. root .. "/one")
        assert.equal(0, status, err)
        assert.equal("", err)
        assert.is_truthy(out:find("^15 variants, %d+ files, %d+ bytes, %d+%.%d+ s %(%d+ files changed, 0 unch"), out)
        local manifest = assert(json.decode(read(root .. "/one/manifest.json")))
        assert.same({ "--arch", "x86-64-v3", "--head-dim", "128", "--gqa", "4", "--k", "turbo3", "--v", "turbo3" },
            manifest.arguments)
        assert.equal(15, manifest.variants)
        for _, path in ipairs(manifest.files) do assert.is_truthy(lfs.attributes(root .. "/one/" .. path), path) end
        status, out = tqgen(ONE .. " -o " .. root .. "/one/")
        assert.equal(0, status)
        assert.is_truthy(out:find("(0 files changed", 1, true), out)
    end)

    it("gives the same bytes in every directory, locale and working directory", function()
        local line = " --set shipped --head-dim 128 --k turbo3,gain3,q8_0"
        assert.equal(0, (tqgen(line .. " -o " .. root .. "/same1")))
        assert.equal(0, (sh("LC_ALL=C.UTF-8 gen/tqgen" .. line .. " -o " .. root .. "/deep/same2")))
        assert.equal(0, (sh("LC_ALL=de_DE.UTF-8 TZ=Asia/Tokyo gen/tqgen" .. line .. " -o " .. root .. "/same3")))
        local tool = lfs.currentdir() .. "/gen/tqgen"
        assert.equal(0, (sh(("cd '%s' && '%s' %s -o same4"):format(root, tool, line))))
        for _, other in ipairs { "deep/same2", "same3", "same4" } do
            local status, out = sh(("diff -r '%s/same1' '%s/%s'"):format(root, root, other))
            assert.equal(0, status, out)
        end
        assert.is_nil(read(root .. "/same1/manifest.json"):find(root, 1, true))
    end)

    it("runs through symbolic links", function()
        local tool = lfs.currentdir() .. "/gen/tqgen"
        assert(lfs.mkdir(root .. "/bin"))
        assert(lfs.link(tool, root .. "/bin/far", true))
        assert(lfs.link("far", root .. "/bin/near", true))
        assert.equal(0, (sh(root .. "/bin/near archs")))
    end)

    it("checks a directory", function()
        local dir = root .. "/checked"
        assert.equal(0, (tqgen(ONE .. " -o " .. dir)))
        local status, out = tqgen("check " .. dir .. "/")
        assert.equal(0, status, out)
        assert.is_truthy(out:find("files as generated", 1, true))
        local path = json.decode(read(dir .. "/manifest.json")).files[1]
        local file = assert(io.open(dir .. "/" .. path, "ab"))
        file:write("/* edited */\n")
        file:close()
        os.execute("touch '" .. dir .. "/stray.c'")
        status, out = tqgen("check " .. dir)
        assert.equal(1, status)
        assert.is_truthy(out:find(path .. ": differs at line", 1, true), out)
        assert.is_truthy(out:find("stray.c: extra", 1, true), out)
        assert.is_truthy(out:find("tqgen --arch x86-64-v3 --head-dim 128", 1, true), out)
    end)

    it("lists, in JSON with the promised fields", function()
        local variants = rows("list --json")
        has(variants[1], "name", "op", "arch", "head_dim", "gqa", "k", "v", "layout", "tile")
        local append = rows("list --op append --arch c --head-dim 64 --k turbo3 --v turbo4 --layout rows --json")
        assert.equal(2, #append)
        assert.same({ "turbo3", "-" }, { append[1].k, append[1].v })
        assert.same({ "-", "turbo4" }, { append[2].k, append[2].v })
        has(rows("formats --json")[1], "name", "head_dim", "bits", "block", "bytes_per_value", "row_bytes", "rotated",
            "modes")
        has(rows("archs --json")[1], "name", "kind", "needs")
        local shown = rows("show tq_decode_d128_g4_kturbo3_vturbo4_rows__c_t128 --json")[1]
        has(shown, "name", "rank", "candidates", "formats", "rules", "sources")
        assert.equal(7, shown.rank)
        assert.equal("turbo4", shown.formats[2].name)
        local where = {}
        for _, source in ipairs(shown.sources) do where[source.file] = source.functions end
        assert.same({ "tqk_turbo4_d128_v_g4_rows__c" }, where["c/turbo4_d128.c"])
        assert.same({ "tqk_decode__c" }, where["c/attention.c"])
    end)

    it("lists what is particular to GPUs", function()
        local by_name = {}
        for _, row in ipairs(rows("archs --json")) do by_name[row.name] = row end
        has(by_name.sm_90, "vendor", "warp", "matrix", "int8_matrix", "dot2", "permute", "copy", "shared_limit",
            "registers", "max_registers", "kq_lanes")
        assert.same({ "cuda", 32, "mma", "bulk" }, { by_name.sm_90.vendor, by_name.sm_90.warp, by_name.sm_90.matrix,
            by_name.sm_90.copy })
        assert.equal("simt", by_name["simt-gfx942"].vendor)
        for _, row in ipairs(rows("formats --json")) do
            if row.name == "turbo3" and row.head_dim == 128 then
                local bytes = {}
                for _, tile in ipairs(row.tiles) do bytes[tile.layout] = tile.bytes end
                assert.same({ tile_cpu = 128 * 56, tile_mma = 1600, tile_wmma = 1600, tile_mfma = 3200, tile_lane = 1600 }, bytes)
                assert.equal(1600 / (32 * 128), row.tiled_bytes_per_value)
            end
        end
        local listed = rows("list --arch gfx1201 --op decode --head-dim 128 --gqa 4 --k turbo3 --kernel vec --json")
        assert.same({ "vec", 8 }, { listed[1].kernel, listed[1].kq_lanes })
        local shown = rows("show " .. listed[1].name .. " --json")[1]
        has(shown.geometry, "threads", "shared_bytes", "keys_per_step", "keys_per_tile", "blocks_per_sm")
        assert.same({ { file = "gfx1201/decode_d128_kturbo3_vturbo3.hip", functions = { "tqk" .. listed[1].name:sub(3) } } },
            shown.sources)
    end)

    it("prints the same in tables", function()
        for _, line in ipairs { "list --head-dim 128 --gqa 4", "formats", "archs",
            "show tq_append_d96_kturbo3_rows__c",
            "show tq_repack_d128_kturbo3_tile_wmma__gfx1201", "list --arch gfx942 --head-dim 128", "--help", "list --help", "--version" } do
            local status, out, err = tqgen(line)
            assert.equal(0, status, err)
            assert.equal("", err)
            assert.is_true(#out > 10)
        end
        local _, out = tqgen("formats")
        assert.is_truthy(out:find("q8_0 at head_dim 80 is refused: ", 1, true))
    end)

    it("answers every bad argument with status 2 and a sentence, and makes no directory", function()
        local cases = {
            "", "--nonsense -o BAD", "nonsense", "nonsense -o BAD", "--arch c", "-o BAD", "--arch c -o",
            "--arch -o BAD",
            "--arch gfx9999 -o BAD", "--arch= -o BAD", "--arch c --arch c -o BAD", "--set gpu -o BAD", "--arch c -o ''",
            "--arch x86-64-v3 --head-dim 63 -o BAD", "--arch c --head-dim -1 -o BAD", "--arch c --head-dim 1e2 -o BAD",
            "--arch c --head-dim 64,, -o BAD", "--arch c --head-dim -o BAD", "--arch c --head-dim 0 -o BAD",
            "--arch c --head-dim 99999999999999999999 -o BAD", "--arch x86-64-v3 --k turbo9 -o BAD",
            "--arch c --v '' -o BAD", "--arch c --gqa 17 -o BAD", "--arch c --tile 32 -o BAD",
            "--arch c --op mul -o BAD",
            "--arch c --layout tiled -o BAD", "--arch c --kq-lanes 32 -o BAD", "--arch c --block 7 -o BAD",
            "--arch c --head-dim 80 --k q8_0 -o BAD", "--arch c -o /dev/null", "--arch c -o /dev/null/x",
            "--arch c -o /proc/tqgen", "--arch c -o BAD extra", "list --nonsense", "list extra", "list --k turbo9",
            "list -o BAD", "show", "show x", "show tq_decode_d128_g4_kturbo3_vturbo4_rows__c",
            "show tq_decode_d80_g4_kq8_0_vturbo4_rows__c_t64", "show tq_mul_d80_kf16_rows__c", "check",
            "check /dev/null",
            "check BAD", "check " .. root, "check --k turbo3 " .. root, "formats extra", "archs --k turbo3",
        }
        for _, case in ipairs(cases) do
            local status, out, err = tqgen((case:gsub("BAD", root .. "/bad")))
            assert.equal(2, status, case)
            assert.equal("", out, case)
            assert.is_truthy(err:find("^tqgen: [^\n]+\n$"), case .. ": " .. err)
            assert.is_nil(err:find("traceback", 1, true), err)
            assert.is_nil(lfs.attributes(root .. "/bad"), case)
        end
    end)

    it("writes nothing when a template fails", function()
        local cli = require "cli"
        local kernels, stderr = package.loaded.kernels, io.stderr
        package.loaded.kernels = { files = function() error("decode.c:12: undefined name 'x'", 0) end }
        io.stderr = assert(io.open(root .. "/err", "wb")) -- luacheck: ignore
        local status = cli.run({ "--arch", "c", "-o", root .. "/bad" }, "gen")
        io.stderr:close()
        package.loaded.kernels, io.stderr = kernels, stderr -- luacheck: ignore
        assert.equal(1, status)
        assert.equal("tqgen: decode.c:12: undefined name 'x'\n", read(root .. "/err"))
        assert.is_nil(lfs.attributes(root .. "/bad"))
    end)
end)
