-- Generates GPU kernels, and what the counter needs to know of each.
-- Usage: lua5.4 tests/gpu/gates.lua DIR [NAME | all:ARCH] ...
-- all:ARCH is what tqgen writes for an arch.
-- Writes DIR as tqgen would, and DIR/gates.json: a list of objects, one a kernel.

local root = arg[0]:match("^(.*)tests/gpu/[^/]*$") or "./"
package.path = root .. "gen/?.lua;" .. package.path

local archs = require "archs"
local emit = require "emit"
local families = require "gpu.families"
local formats = require "formats"
local json = require "dkjson"
local kernels = require "kernels"
local names = require "names"
local space = require "space"

local function fail(message)
    io.stderr:write("gates: ", message, "\n")
    os.exit(1)
end

local variants, used, about, seen = {}, {}, {}, {}

local function add(variant, name)
    if seen[name] then return end
    seen[name] = true
    local arch = archs.get(variant.arch)
    local geometry = families.of(variant).geometry(variant, arch, variant.k and formats.layout(variant.k, variant.head_dim),
        variant.v and formats.layout(variant.v, variant.head_dim))
    variants[#variants + 1] = variant
    if not used[arch.name] then
        used[arch.name] = true
        used[#used + 1] = arch
    end
    about[#about + 1] = { name = name, symbol = name:gsub("^tq_", "tqk_"), arch = arch.name, id = arch.id,
        vendor = arch.vendor, wave = arch.warp, head_dim = variant.head_dim, gqa = variant.gqa or 0,
        shared_limit = arch.shared_limit, threads = geometry.threads, shared_bytes = geometry.shared_bytes,
        loop_keys = geometry.loop_keys }
end

for i = 2, #arg do
    local whole = arg[i]:match("^all:(.*)")
    if whole then
        for _, variant in ipairs(space.select { arch = { whole } } or fail("no arch " .. whole)) do
            add(variant, names.print(variant))
        end
    else
        local variant, unknown = names.parse(arg[i])
        if not variant then
            fail(arg[i] .. ": " .. unknown)
        end
        local legal, reason = space.check(variant)
        if not legal then
            fail(arg[i] .. ": " .. reason)
        end
        add(variant, arg[i])
    end
end

local files = kernels.files(variants, { archs = used })
files[#files + 1] = { path = "gates.json", content = json.encode(about) .. "\n" }
files[#files + 1] = { path = emit.MANIFEST, content = json.encode { generator = "tqgen", arguments = {},
    files = (function()
        local paths = {}
        for i, file in ipairs(files) do paths[i] = file.path end
        return paths
    end)() } .. "\n" }
local result, message = emit.write(arg[1], files)
if not result then
    fail(message)
end
