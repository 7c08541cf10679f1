-- The legal space as data: axes, layouts, constraints each with its reason, named sets. gen/space.lua enumerates it. A
-- variant is a plain table with one field per axis that applies to its op:
--
--   { arch = "c", op = "decode", head_dim = 128, gqa = 4, k = "turbo3", v = "turbo4", layout = "rows", tile = 128 }
--   { arch = "gfx1201", op = "decode", head_dim = 128, gqa = 4, k = "turbo3", v = "turbo3", layout = "rows",
--     kernel = "vec", kq_lanes = 8 }
--   { arch = "c", op = "append", head_dim = 128, side = "k", k = "turbo3", layout = "rows" }

local archs = require "archs"
local families = require "gpu.families"
local formats = require "formats"
local tile_cpu = require "tile_cpu"
local tiles = require "tiles"

local axes = {}

local MAX_HEAD_DIM, MAX_GQA = 576, 16 -- TQ_MAX_HEAD_DIM and TQ_MAX_GQA of tq_kernel.h

local function field(list, key)
    local values = {}
    for i, entry in ipairs(list) do values[i] = entry[key] end
    return values
end

local function contains(list, wanted)
    for _, value in ipairs(list) do
        if value == wanted then return true end
    end
    return false
end

-- Layouts of rows are asked for once per variant; a format's bytes do not change in between.
local row_layouts = {}
local function row_layout(format, head_dim)
    local key = format .. " " .. head_dim
    row_layouts[key] = row_layouts[key] or table.pack(formats.layout(format, head_dim))
    return table.unpack(row_layouts[key], 1, 2)
end

local function is_gpu(v) return archs.get(v.arch).kind == "gpu" end
local function attends(v) return v.op == "decode" or v.op == "prefill" end

-- ---- operations, layouts, implementations ----------------------------------------------------------------------------

local CPU_OPS = { "decode", "append", "dequantise", "repack", "prefill" }
local GPU_OPS, OPS = {}, { table.unpack(CPU_OPS) }
for _, family in ipairs(families.list) do
    if not contains(OPS, family.op) then OPS[#OPS + 1] = family.op end
end
for _, op in ipairs(OPS) do
    if families.of_op(op)[1] then GPU_OPS[#GPU_OPS + 1] = op end
end

-- on: which archs read it; a tile holds one format's codes in the order in which their vectors or matrix instructions take
-- them.
local LAYOUTS = { { name = "rows", on = function() return true end }, tile_cpu, table.unpack(tiles.list) }
axes.layouts = field(LAYOUTS, "name")

local function layout_named(name)
    for _, layout in ipairs(LAYOUTS) do
        if layout.name == name then return layout end
    end
end

-- Does a tile of this layout hold the format at this head_dim?
local function holds(layout, format, head_dim)
    if layout == tile_cpu then return formats.get(format).bits < 16 end
    return tiles.of(layout, format, head_dim)
end

-- Does some kernel of this op read (write) the layout?
local function implemented(op, layout)
    for _, name in ipairs(families.of_op(op)) do
        if contains(families.get(name).layouts, layout) then return true end
    end
    return false
end

-- Rows, and the tiles of an arch that some decode kernel reads, as far as formats and head_dim allow.
local function default_layouts(v)
    local values = {}
    for _, layout in ipairs(LAYOUTS) do
        local rows = layout.name == "rows"
        local fits = layout.on(archs.get(v.arch)) and (v.op ~= "repack" or not rows)
        if is_gpu(v) then
            fits = fits and implemented(v.op, layout.name) and (rows or implemented("decode", layout.name))
        end
        for _, format in ipairs { v.k or v.v, v.v } do
            fits = fits and (rows or holds(layout, format, v.head_dim))
        end
        if fits then values[#values + 1] = layout.name end
    end
    return values
end

-- Kernel families that may implement a variant, as far as it is known.
local function kernels_of(v)
    local values = {}
    for _, name in ipairs(families.of_op(v.op)) do
        if not v.layout or contains(families.get(name).layouts, v.layout) then values[#values + 1] = name end
    end
    return values
end

local function attending_kernels()
    local values = kernels_of { op = "decode" }
    return table.move(kernels_of { op = "prefill" }, 1, #families.of_op("prefill"), #values + 1, values)
end

-- An implementation axis of kernel families: which values there are, and in what order, its families say.
local function of_families(axis)
    axis.implementation, axis.values = true, {}
    local function add(values)
        for _, value in ipairs(values or {}) do
            if not contains(axis.values, value) then axis.values[#axis.values + 1] = value end
        end
    end
    for _, arch in ipairs(archs.list) do add(arch[axis.name]) end
    for _, family in ipairs(families.list) do add(family.axes[axis.name]) end
    table.sort(axis.values)
    function axis.applies(v) return v.kernel and families.get(v.kernel).axes[axis.name] end
    function axis.legal(v) return families.get(v.kernel).axes[axis.name] end
    function axis.best(v)
        local best = families.get(v.kernel).best
        return best and best[axis.name] or 1
    end
    axis.of = axis.of or function(v) return { v[axis.name] } end
    return axis
end

-- ---- axes ------------------------------------------------------------------------------------------------------------

-- Other V formats that the default set of GPU archs decodes with beside the K format's own, at this head_dim.
local MIXED_HEAD_DIM = 128
local MIXED = { f16 = { "turbo4" }, q8_0 = { "turbo4" }, turbo4 = { "turbo3" } }

local HEAD_DIMS, GPU_HEAD_DIMS = { 64, 80, 128, 256 }, { 64, 128, 256 }
local RATIOS, GPU_RATIOS, PREFILL_RATIOS = { 1, 3, 4, 8 }, { 1, 4, 8 }, { 4, 8 }

-- In the order of enumeration: the candidates of one contract from one arch are adjacent, expected best first.
--   values    what may be asked for, best first; range: integers that may be asked for
--   legal     of values, those that may be legal, given the axes above
--   default   what is taken if nobody asks, if that is not all of these
--   best      of its values that are legal with all the others, how many are taken if nobody asks
--   applies   which variants have the axis
--   implementation  the tuner may choose it; all else is contract
--   of_v      what a value means for kernels of V alone
--   letter    before its value in a name, see gen/names.lua
--   of        an option narrows what was enumerated: a variant stays if all values that `of` finds in it were asked for
axes.list = {
    { name = "arch", option = "--arch", values = field(archs.list, "name"), implementation = true,
      doc = "architectures" },
    { name = "op", option = "--op", values = OPS, doc = "operations",
      default = function(v) return is_gpu(v) and GPU_OPS or CPU_OPS end },
    { name = "side", values = { "k", "v" }, applies = function(v) return not attends(v) end,
      doc = "exactly one of a K and a V format" },
    { name = "head_dim", option = "--head-dim", values = HEAD_DIMS, range = { 1, MAX_HEAD_DIM },
      doc = "values per head vector", of_v = formats.v_head_dim, default = function(v) return is_gpu(v) and GPU_HEAD_DIMS or HEAD_DIMS end },
    { name = "gqa", option = "--gqa", values = RATIOS, range = { 1, MAX_GQA }, applies = attends,
      doc = "query heads per KV head (decode)",
      default = function(v) return not is_gpu(v) and RATIOS or v.op == "prefill" and PREFILL_RATIOS or GPU_RATIOS end },
    { name = "k", option = "--k", values = field(formats.list, "name"),
      applies = function(v) return v.side ~= "v" end, doc = "K formats" },
    { name = "v", option = "--v", values = field(formats.list, "name"),
      applies = function(v) return v.side ~= "k" end, doc = "V formats",
      default = function(v)
          if not is_gpu(v) or not attends(v) then return axes.get("v").values end
          return { v.k, table.unpack(v.op == "decode" and v.head_dim == MIXED_HEAD_DIM and MIXED[v.k] or {}) }
      end },
    { name = "layout", option = "--layout", values = axes.layouts, default = default_layouts, doc = "cache layouts" },
    { name = "bias", option = "--bias", values = { 0, 8, 16, 32 }, default = function() return { 0 } end, numeric = true,
      applies = function(v) return attends(v) and is_gpu(v) end,
      doc = "pairs of a score bias that GPU kernels take, at most" },
    { name = "tile", option = "--tile", letter = "t", values = { 128, 64 }, implementation = true,
      applies = function(v) return v.op == "decode" and not is_gpu(v) end, doc = "keys per softmax step (decode on CPUs)",
      default = function(v) return v.layout == tile_cpu.name and { tile_cpu.keys } or axes.get("tile").values end },
    { name = "kernel", option = "--kernel", values = attending_kernels(), legal = kernels_of,
      implementation = true, applies = function(v) return attends(v) and is_gpu(v) end,
      of = function(v) return { v.kernel } end, doc = "kernel families (decode on GPUs)" },
    of_families { name = "kq_lanes", option = "--kq-lanes", letter = "l", numeric = true,
      doc = "lanes per K.q product; CPU archs have no choice",
      of = function(v) return archs.get(v.arch).kq_lanes or { v.kq_lanes } end },
    of_families { name = "warps", option = "--warps", letter = "w", numeric = true, doc = "warps per block" },
    of_families { name = "stages", option = "--stages", letter = "s", numeric = true, doc = "tiles in flight per warp" },
    of_families { name = "k_path", option = "--k-path", letter = "k", doc = "arithmetic of K.q: f16 or i8" },
}

function axes.get(name)
    for _, axis in ipairs(axes.list) do
        if axis.name == name then return axis end
    end
end

-- A property that follows from the axes and that a selection can be narrowed by.
axes.properties = {
    { name = "block", option = "--block", numeric = true, doc = "values per stored scale: 32, or the rotation chunk",
      of = function(v)
          local blocks = {}
          if v.k then blocks[1] = row_layout(v.k, v.head_dim).block end
          if v.v then blocks[#blocks + 1] = row_layout(v.v, formats.v_head_dim(v.head_dim)).block end
          return blocks
      end },
}

-- ---- constraints -----------------------------------------------------------------------------------------------------

local function is_tiled(v) return v.layout ~= "rows" end
local function has_cpu_tiles(v) return v.layout == tile_cpu.name end
local function has_gpu_tiles(v) return is_tiled(v) and not has_cpu_tiles(v) end

local function tile_holds(side)
    return { reason = ("tiles hold turbo and gain formats (%s)"):format(side:upper()), axes = { side, "layout" },
        when = has_gpu_tiles, ok = function(v) return formats.get(v[side]).rotated end }
end

local function cpu_tile_holds(side)
    return { reason = ("tile_cpu holds codebook formats (%s)"):format(side:upper()), axes = { side, "layout" },
        when = has_cpu_tiles, ok = function(v) return formats.get(v[side]).bits < 16 end }
end

-- A constraint judges the axes that it names, of variants that `when` selects; reason is the rule, and ok may return as its
-- second value what precisely breaks it.
axes.constraints = {
    { reason = ("head_dim is 32, one unit of values, to %d"):format(MAX_HEAD_DIM), axes = { "head_dim" },
      ok = function(v) return v.head_dim >= 32 and v.head_dim <= MAX_HEAD_DIM end },
    { reason = "kernels decode 16 values at a time, so head_dim is a multiple of 16", axes = { "head_dim" },
      ok = function(v) return v.head_dim % 16 == 0 end },
    { reason = "kernels of one side take its own head_dim", axes = { "side", "head_dim" },
      when = function(v) return v.side == "v" end,
      ok = function(v)
          local own = formats.v_head_dim(v.head_dim)
          return own == v.head_dim, ("V rows of a cache of head_dim %d have %d values, and are taken as such"):format(v.head_dim, own)
      end },
    { reason = ("one KV head is shared by 1 to %d query heads"):format(MAX_GQA), axes = { "gqa" },
      ok = function(v) return v.gqa >= 1 and v.gqa <= MAX_GQA end },
    { reason = "the K format has rows of this head_dim", axes = { "k", "head_dim" },
      ok = function(v) return row_layout(v.k, v.head_dim) end },
    { reason = "the V format has rows of this head_dim", axes = { "v", "head_dim" },
      ok = function(v) return row_layout(v.v, formats.v_head_dim(v.head_dim)) end },
    { reason = "the arch has kernels of the operation", axes = { "arch", "op" },
      ok = function(v)
          if contains(is_gpu(v) and GPU_OPS or CPU_OPS, v.op) then return true end
          return nil, ("no %s kernel is for %ss"):format(v.op, archs.get(v.arch).kind:upper())
      end },
    { reason = "the arch reads the layout", axes = { "arch", "layout" },
      ok = function(v)
          local layout = layout_named(v.layout)
          return layout.on(archs.get(v.arch)), layout.reason
      end },
    { reason = "tiles hold whole sub-tiles", axes = { "head_dim", "layout" },
      when = has_gpu_tiles, ok = function(v) return tiles.takes(tiles.get(v.layout), v.head_dim) end },
    tile_holds("k"),
    tile_holds("v"),
    cpu_tile_holds("k"),
    cpu_tile_holds("v"),
    { reason = ("a tile of %d keys is one softmax step"):format(tile_cpu.keys), axes = { "layout", "tile" },
      when = has_cpu_tiles, ok = function(v) return not v.tile or v.tile == tile_cpu.keys end },
    { reason = "repack turns rows into tiles and back", axes = { "op", "layout" },
      when = function(v) return v.op == "repack" end, ok = is_tiled },
    { reason = "some kernel of the operation has the layout", axes = { "op", "layout" },
      when = has_gpu_tiles, ok = function(v) return implemented(v.op, v.layout) end },
    { reason = "the kernel implements the operation", axes = { "op", "kernel" },
      ok = function(v) return families.get(v.kernel).op == v.op end },
    { reason = "the kernel reads the layout", axes = { "kernel", "layout" },
      ok = function(v) return contains(families.get(v.kernel).layouts, v.layout) end },
}

-- Lets a family judge a variant of which some axes are unknown: to look at one of those is the error UNKNOWN.
local UNKNOWN = {}
local partly = setmetatable({}, {
    __index = function(self, name)
        local value = self.known[name]
        if value == nil then error(UNKNOWN, 0) end
        return value
    end,
})

local function judge(family, v)
    local arch = archs.get(v.arch)
    for _, axis in ipairs(axes.list) do
        if v[axis.name] == nil and (not axis.applies or axis.applies(v)) then
            rawset(partly, "known", v)
            local done, ok, reason = pcall(family.legal, partly, arch)
            if not done and ok ~= UNKNOWN then error(ok, 0) end
            return not done or ok, reason
        end
    end
    return family.legal(v, arch)
end

-- What a kernel family asks of a variant, as far as it is known. Another implementation may be legal.
table.insert(axes.constraints, {
    reason = "its kernel family takes it", axes = { "arch", "op" }, of_implementation = true,
    when = function(v) return is_gpu(v) and families.of(v) end,
    ok = function(v)
        local family = families.of(v)
        for _, axis in ipairs(axes.list) do
            local legal, value = family.axes[axis.name], v[axis.name]
            if legal and value ~= nil and not contains(legal, value) then
                return nil, ("%s of the %s kernel is %s"):format(axis.option, family.name, table.concat(legal, ", "))
            end
        end
        return judge(family, v)
    end,
})

-- ---- sets ------------------------------------------------------------------------------------------------------------

-- op: of archs that are covered with one op only, those of this one.
local function archs_of(wanted, op)
    local values = {}
    for _, arch in ipairs(archs.list) do
        if (arch.kind == wanted or arch.vendor == wanted or wanted == "shipped" and arch.shipped) and arch.covers == op then
            values[#values + 1] = arch.name
        end
    end
    return values
end
local SIMT_PREFILL = archs_of("simt", "prefill")
local SIMT_EVERY = table.move(SIMT_PREFILL, 1, #SIMT_PREFILL, 1 + #archs_of "simt", archs_of "simt")

local GPU_TILES = field(tiles.list, "name")
local GPU_LAYOUTS = { "rows", table.unpack(GPU_TILES) }
local FEW_FORMATS = { "turbo3", "gain4", "f16" }
local PREFILL_FORMATS = { "turbo3", "gain2", "gain4", "q8_0", "f16" }
local SHIPPED_FORMATS = { "turbo3", "turbo4", "gain3", "gain4", "q8_0", "f16" }
local EVERY_HEAD_DIM = { 64, 80, 96, 112, 128, 192, 256, 512 }

-- axes: values instead of the default ones. equal_pairs: decode takes V in the format of K. cover: not the product, but
-- variants that hold every legal value (1) or every legal pair of values (2) at least once, see gen/cover.lua. every: all
-- implementations, not only the usual ones. An option replaces what the set says about its axis; --k together with --v
-- replace equal_pairs.
axes.sets = {
    { name = "cpu", doc = "all default values on every CPU arch", axes = { arch = archs_of "cpu" } },
    { name = "shipped", doc = "what is committed under generated/, 1.5 MB at most: usual head_dims and formats, K and V in one",
      axes = { arch = archs_of "shipped", head_dim = { 64, 128 }, gqa = { 1, 4, 8 }, k = SHIPPED_FORMATS, v = SHIPPED_FORMATS },
      equal_pairs = true },
    { name = "sample", doc = "for builds under sanitizers: one head_dim with every irregularity and the usual one",
      axes = { arch = archs_of "cpu", head_dim = { 80, 128 }, gqa = { 3, 4 } }, equal_pairs = true },
    { name = "threads", doc = "the same, for the thread sanitizer: a few formats, since what threads share depends on none",
      axes = { arch = archs_of "cpu", head_dim = { 80, 128 }, gqa = { 3, 4 }, k = FEW_FORMATS, v = FEW_FORMATS },
      equal_pairs = true },
    { name = "simt", doc = "GPU kernels on the CPU, for tests: all pairs of values", cover = 2,
      axes = { arch = archs_of "simt", head_dim = EVERY_HEAD_DIM, gqa = { 1, 2, 3, 4, 7, 8, 16 }, layout = GPU_LAYOUTS } },
    { name = "simt-sample", doc = "the same under sanitizers: all values", cover = 1,
      axes = { arch = archs_of "simt", head_dim = { 80, 128, 256 }, gqa = { 1, 4, 7 }, layout = GPU_LAYOUTS } },
    { name = "mla", doc = "multi-head latent attention on CPUs: head_dim 576, V of 512, GQA ratio 16, a few formats",
      axes = { arch = archs_of "cpu", head_dim = { 576 }, gqa = { MAX_GQA }, k = FEW_FORMATS, v = FEW_FORMATS },
      equal_pairs = true },
    { name = "simt-mla", doc = "of GPU kernels on the CPU, those of head_dim 576: all pairs of values", cover = 2,
      axes = { arch = archs_of "simt", head_dim = { 576 }, gqa = { 4, MAX_GQA }, k = FEW_FORMATS, v = FEW_FORMATS } },
    { name = "simt-wide", doc = "of GPU kernels on the CPU, prefill of head_dims above 256", cover = 2,
      axes = { arch = SIMT_EVERY, op = { "prefill" }, head_dim = { 320, 512, 576 }, gqa = { 1, 4, 7 }, k = FEW_FORMATS, v = FEW_FORMATS } },
    { name = "simt-prefill", doc = "of GPU kernels on the CPU, prefill of archs of which the other sets have nothing", cover = 2,
      axes = { arch = SIMT_PREFILL, op = { "prefill" }, head_dim = { 64, 80, 96, 128, 192, 256 }, gqa = { 1, 4, 7, MAX_GQA },
               k = PREFILL_FORMATS, v = PREFILL_FORMATS } },
    { name = "simt-64", doc = "of GPU kernels on the CPU, tiles whose sub-tiles have 64 values: all pairs of values", cover = 2,
      axes = { arch = archs_of "simt", head_dim = { 64, 192 }, gqa = { 4, 8 }, layout = GPU_TILES } },
    { name = "first-run", doc = "what tests/gpu/first_run.sh measures; with --arch", equal_pairs = true, every = true,
      axes = { arch = archs_of "simt", head_dim = { 128 }, gqa = { 4, 8 },
               k = { "turbo2", "turbo3", "turbo4", "gain3", "gain4", "f16" },
               v = { "turbo2", "turbo3", "turbo4", "gain3", "gain4", "f16" } } },
}
axes.set_names = field(axes.sets, "name")

return axes
