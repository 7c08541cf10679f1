-- Generates the kernels that gates.tsv names, and what the counter needs to know of each.
-- Usage: lua5.4 tests/gpu/gates.lua DIR [--bounded] [ARCH ...]    (only rows with a bound; no ARCH: all)
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

local bounded = arg[2] == "--bounded"
local wanted = {}
for i = bounded and 3 or 2, #arg do
    wanted[arg[i]] = true
end

local function fail(message)
    io.stderr:write("gates: ", message, "\n")
    os.exit(1)
end

local variants, used, about = {}, {}, {}
for line in io.lines(root .. "tests/gpu/gates.tsv") do
    local name, bound = line:match("^(tq_[%w_]+)\t%S+\t(%S+)")
    local variant, message = name and names.parse(name)
    if name and not variant then
        fail(name .. ": " .. message)
    end
    if name and (not next(wanted) or wanted[variant.arch]) and not (bounded and bound == "-") then
        local legal, reason = space.check(variant)
        if not legal then
            fail(name .. ": " .. reason)
        end
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
