-- The command line of tqgen. Exit status 0 done, 1 a check failed or nothing could be rendered, 2 bad arguments.

local argparse = require "argparse"
local archs = require "archs"
local emit = require "emit"
local families = require "gpu.families"
local formats = require "formats"
local json = require "dkjson"
local names = require "names"
local report = require "report"
local space = require "space"
local tile_cpu = require "tile_cpu"
local tiles = require "tiles"

local cli = {}

local home -- directory of the generator's modules; set by run

-- Failures travel as error values { status =, message = } up to run.
local function stop(status, message, ...)
    error({ status = status, message = message:format(...) }, 0)
end

local function must(value, message)
    if value == nil then stop(2, "%s", message) end
    return value, message
end

-- ---- generation ----------------------------------------------------------------------------------------------------

-- The generator is of one version with the library that its output is for.
local function version()
    local path = home .. "/../runtime/include/tq.h"
    local file = io.open(path)
    local found = file and file:read("a"):match('#define TQ_VERSION "([^"]+)"')
    if file then file:close() end
    return found or stop(1, "'%s' does not define TQ_VERSION", path)
end

local function arch_entries(variants)
    local seen, entries = {}, {}
    for _, v in ipairs(variants) do
        if not seen[v.arch] then
            seen[v.arch] = true
            entries[#entries + 1] = archs.get(v.arch)
        end
    end
    return entries
end

-- Says how a directory was made and what it holds. No date, host or path: same arguments, same bytes.
local function manifest(arguments, variants, files)
    local paths = {}
    for i, file in ipairs(files) do paths[i] = "    " .. json.quotestring(file.path) end
    local quoted = {}
    for i, argument in ipairs(arguments) do quoted[i] = json.quotestring(argument) end
    return table.concat({
        "{",
        '  "generator": "tqgen",',
        ('  "version": %s,'):format(json.quotestring(version())),
        ('  "arguments": [%s],'):format(table.concat(quoted, ", ")),
        ('  "variants": %d,'):format(#variants),
        '  "files": [',
        table.concat(paths, ",\n"),
        "  ]",
        "}\n",
    }, "\n")
end

-- All files of the directory that these variants make; template errors end the program before anything is written.
local function render(variants, arguments)
    local info = { archs = arch_entries(variants) }
    local ok, files = pcall(function() return require("kernels").files(variants, info) end)
    if not ok then stop(1, "%s", files) end
    table.insert(files, { path = emit.MANIFEST, content = manifest(arguments, variants, files) })
    return files
end

local function print_left_out(left_out)
    for _, entry in ipairs(left_out) do
        print(("left out %d: %s"):format(entry.count, entry.reason))
    end
end

local function generate(args)
    if not args.output then stop(2, "-o DIR is missing: where to write (see 'tqgen --help')") end
    if not args.arch and not args.set then
        stop(2, "--arch is missing: one or more of %s, or --set", table.concat(space.axis("arch").values, ", "))
    end
    local filter = must(space.filter(args))
    local variants, left_out = must(space.select(filter))
    local files = render(variants, space.arguments(filter))
    local result = must(emit.write(args.output:match("^(.-)/*$"), files))
    print(("%d variants, %d files, %d bytes, %.2f s (%d files changed, %d unchanged, %d removed)"):format(
        #variants, #files, result.bytes, os.clock(), result.changed, result.unchanged, result.removed))
    print_left_out(left_out)
    return 0
end

-- Parses the arguments that a manifest recorded, in any version of tqgen.
local function recorded(arguments)
    local texts = {}
    for i = 1, #arguments, 2 do
        local option, value = arguments[i], arguments[i + 1]
        local name = option == "--set" and "set"
        for _, axis in ipairs(space.options()) do
            if axis.option == option then name = axis.name end
        end
        if not name or type(value) ~= "string" then
            return nil, ("%s is not an option of this tqgen"):format(tostring(option))
        end
        texts[name] = value
    end
    return space.filter(texts)
end

local function check(args)
    local dir = args.dir:match("^(.-)/*$")
    local old = must(emit.manifest(dir))
    local filter, message = recorded(old.arguments)
    local variants
    if filter then variants, message = space.select(filter) end
    if not variants then stop(1, "the arguments that '%s' was made with are no longer legal: %s", dir, message) end
    local files = render(variants, space.arguments(filter))
    local drift = emit.check(dir, files)
    for _, line in ipairs(drift) do print(line) end
    print(#drift == 0 and ("%d files as generated"):format(#files)
        or ("%d of %d files drifted; 'tqgen %s -o %s' makes them again"):format(#drift, #files,
            table.concat(space.arguments(filter), " "), dir))
    return #drift == 0 and 0 or 1
end

-- ---- tables --------------------------------------------------------------------------------------------------------

local LIST_COLUMNS = { "name", "op", "arch", "head_dim", "gqa", "k", "v", "layout", "bias", "tile", "kernel", "kq_lanes", "warps",
    "stages", "k_path" }

-- Every axis of a variant; 0 or "-" where it has none.
local function list_row(v)
    local row = { name = names.print(v) }
    for _, column in ipairs(LIST_COLUMNS) do
        local axis = space.axis(column)
        if axis then row[column] = v[column] or (axis.numeric or math.type(axis.values[1])) and 0 or "-" end
    end
    return row
end

-- Table columns: those that a row has something in.
local function used_columns(rows)
    local columns = {}
    for _, column in ipairs(LIST_COLUMNS) do
        local used = false
        for _, row in ipairs(rows) do used = used or row[column] ~= 0 and row[column] ~= "-" end
        if used then columns[#columns + 1] = column end
    end
    return columns
end

local function list(args)
    local variants, left_out = must(space.select(must(space.filter(args))))
    local rows = {}
    for i, v in ipairs(variants) do rows[i] = list_row(v) end
    report.rows(args.json and LIST_COLUMNS or used_columns(rows), rows, args.json)
    if not args.json then
        print(("%d variants"):format(#rows))
        print_left_out(left_out)
    end
    return 0
end

local FORMAT_COLUMNS = { "name", "head_dim", "bits", "block", "bytes_per_value", "row_bytes", "tiled_bytes_per_value",
    "rotated", "modes" }

-- In JSON also tiles, the bytes of each tiled layout.
local function format_row(format, head_dim, layout)
    local in_tiles, per_value = {}, nil
    local function add(tile, keys, bytes)
        table.insert(in_tiles, { layout = tile.name, keys = keys, bytes = bytes })
        return bytes / (keys * head_dim)
    end
    local bytes = tile_cpu.bytes(layout)
    if bytes then
        add(tile_cpu, tile_cpu.keys, bytes)
    end
    for _, tile in ipairs(tiles.list) do
        local of = tiles.of(tile, format.name, head_dim)
        per_value = of and add(tile, of.keys, of.bytes) or per_value
    end
    return { tiles = report.array(in_tiles), tiled_bytes_per_value = per_value, name = format.name, head_dim = head_dim, bits = format.bits, block = layout.block,
        bytes_per_value = layout.bytes_per_value, row_bytes = layout.row_bytes, rotated = format.rotated,
        modes = report.array(formats.modes(format.name)) }
end

local function list_formats(args)
    local rows, refused = {}, {}
    for _, format in ipairs(formats.list) do
        for _, head_dim in ipairs(space.axis("head_dim").values) do
            local layout, reason = formats.layout(format.name, head_dim)
            if layout then
                rows[#rows + 1] = format_row(format, head_dim, layout)
            else
                refused[#refused + 1] = ("%s at head_dim %d is refused: %s"):format(format.name, head_dim, reason)
            end
        end
    end
    report.rows(FORMAT_COLUMNS, rows, args.json)
    if not args.json then
        for _, line in ipairs(refused) do print(line) end
    end
    return 0
end

-- In JSON all of these; in the table the first ones and the last.
local ARCH_COLUMNS = { "name", "kind", "rank", "vendor", "warp", "matrix", "copy", "kq_lanes", "needs", "summary",
    "int8_matrix", "dot2", "permute", "shared_limit", "registers", "max_registers", "cflags" }

local function list_archs(args)
    local rows = {}
    for i, arch in ipairs(archs.list) do
        local row = {}
        for _, column in ipairs(ARCH_COLUMNS) do row[column] = arch[column] end
        row.vendor, row.matrix, row.copy, row.warp = arch.vendor or "-", arch.matrix or "-", arch.copy or "-", arch.warp or 1
        row.kq_lanes = report.array(arch.kq_lanes or space.axis("kq_lanes").values)
        row.needs, row.cflags = report.array(arch.needs), report.array(arch.cflags or {})
        rows[i] = row
    end
    report.rows(args.json and ARCH_COLUMNS or table.move(ARCH_COLUMNS, 1, 10, 1, {}), rows, args.json)
    return 0
end

-- ---- show ----------------------------------------------------------------------------------------------------------

-- A format's side of a variant: the row of `tqgen formats` and the chunks that are rotated together.
local function side_of(v, side)
    local layout = formats.layout(v[side], v.head_dim)
    local row = format_row(formats.get(v[side]), v.head_dim, layout)
    local sizes = {}
    for i, chunk in ipairs(layout.chunks) do sizes[i] = chunk.size end
    row.side = side
    row.chunks = report.array(sizes)
    return row
end

-- Where the kernels of a variant are defined: files rendered for it alone, and the symbols in them that its row in the
-- registry names, or that serve its op in every format.
local function sources_of(v, name)
    local files, row = render({ v }, {}), nil
    for _, file in ipairs(files) do
        if file.path:find("/registry%.c$") then row = file.content:match(name .. "%f[^%w_](.-);") end
    end
    local found = {}
    for _, file in ipairs(files) do
        local functions = {}
        for symbol in file.content:gmatch("\nTQG_KERNEL%((tqk_[%w_]+)") do
            functions[#functions + 1] = symbol
        end
        for symbol in file.content:gmatch("\n%w[^\n=(]-%f[%w_](tqk_[%w_]+)[^\n;]*{") do
            if row:find(symbol, 1, true) or symbol:find("^tqk_" .. v.op .. "__") then
                functions[#functions + 1] = symbol
            end
        end
        if #functions > 0 then found[#found + 1] = { file = file.path, functions = functions } end
    end
    return found
end

local GEOMETRY = { "threads", "shared_bytes", "keys_per_step", "keys_per_tile", "blocks_per_sm" }

-- How a GPU kernel is launched.
local function geometry_of(v)
    local arch, family = archs.get(v.arch), families.of(v)
    return arch.kind == "gpu" and family.geometry(v, arch, v.k and formats.layout(v.k, v.head_dim),
        v.v and formats.layout(v.v, v.head_dim)) or nil
end

-- Order of the keys in JSON, of the row and of what lies in it.
local SHOW_KEYS = { "name", "op", "arch", "head_dim", "gqa", "k", "v", "layout", "bias", "tile", "kernel", "kq_lanes", "warps",
    "stages", "k_path", "rank", "candidates", "formats", "geometry", "rules", "sources", "threads", "shared_bytes",
    "keys_per_step", "keys_per_tile", "blocks_per_sm", "side", "bits", "block", "bytes_per_value", "row_bytes",
    "tiled_bytes_per_value", "rotated", "modes", "tiles", "keys", "bytes", "chunks", "file", "functions" }

local function show(args)
    local v = must(names.parse(args.name))
    must(space.check(v))
    local row = list_row(v)
    row.candidates, row.formats = {}, {}
    for i, candidate in ipairs(space.candidates(v)) do
        row.candidates[i] = names.print(candidate)
        if row.candidates[i] == row.name then row.rank = i end
    end
    for _, side in ipairs { "k", "v" } do
        if v[side] then table.insert(row.formats, side_of(v, side)) end
    end
    row.geometry = geometry_of(v)
    row.rules = space.rules(v)
    row.sources = sources_of(v, row.name)

    if args.json then
        report.rows(SHOW_KEYS, { row }, true)
        return 0
    end
    report.fields(used_columns { row }, row)
    if row.geometry then
        print("\nlaunch:")
        report.fields(GEOMETRY, row.geometry)
    end
    print("\nformats, and the chunks that are rotated together:")
    report.rows({ "side", "name", "chunks", table.unpack(FORMAT_COLUMNS, 3) }, row.formats)
    print("\nlegal because:")
    for _, rule in ipairs(row.rules) do print("  " .. rule) end
    print(("\nexpected order of its contract's candidates (%s); tuning may change it:"):format(names.contract(v)))
    for i, candidate in ipairs(row.candidates) do
        print(("  %d %s%s"):format(i, candidate, i == row.rank and "  <" or ""))
    end
    print("\nkernels:")
    for _, source in ipairs(row.sources) do
        print("  " .. source.file .. ": " .. table.concat(source.functions, " "))
    end
    return 0
end

-- ---- arguments -----------------------------------------------------------------------------------------------------

local function add_filters(parser)
    parser:option("--set"):overwrite(false):argname("SET")
        :description("A named set; the options below replace its values.")
    for _, axis in ipairs(space.options()) do
        local values = axis.values and ": " .. table.concat(axis.values, ",") or ""
        parser:option(axis.option):target(axis.name):overwrite(false):argname("LIST")
            :description(axis.doc .. values)
    end
end

local function set_lines()
    local lines = { "Sets:" }
    for i, set in ipairs(space.sets) do lines[i + 1] = ("   %-13s%s"):format(set.name, set.doc) end
    return table.concat(lines, "\n")
end

local function add_json(parser)
    parser:flag("--json"):description("An array of objects instead of a table.")
end

local commands = {
    { name = "list", run = list, description = "The variants of a selection.",
      setup = function(parser) add_filters(parser) add_json(parser) parser:epilog(set_lines()) end },
    { name = "show", run = show, description = "One variant: parameters, formats, rules, rank and kernels.",
      setup = function(parser)
          parser:argument("name"):description("A variant, as list prints it.")
          add_json(parser)
      end },
    { name = "check", run = check, description = "Compares a generated directory with what tqgen would write now.",
      setup = function(parser) parser:argument("dir"):description("A directory that tqgen made.") end },
    { name = "formats", run = list_formats, description = "Cache formats at the default head_dims.", setup = add_json },
    { name = "archs", run = list_archs, description = "Architectures.", setup = add_json },
}

local function command_list()
    local lines = { "Other commands (tqgen COMMAND --help):" }
    for _, command in ipairs(commands) do
        lines[#lines + 1] = ("   %-9s%s"):format(command.name, command.description)
    end
    return table.concat(lines, "\n")
end

local generator = {
    run = generate,
    description = "Writes kernels, registry, manifest and a CMake file for the chosen architectures.",
    setup = function(parser)
        parser:option("-o --output"):overwrite(false):argname("DIR"):description("Directory to write.")
        parser:flag("--version"):description("Print the version."):action(function()
            print("tqgen " .. version())
            os.exit(0)
        end)
        add_filters(parser)
        parser:epilog(set_lines() .. "\n\n" .. command_list())
    end,
}

-- Chooses the command and leaves its own arguments. An option's value may begin with "-" if it is a number, so that a
-- negative one is refused by name.
local function dispatch(argv)
    local rest = {}
    for _, argument in ipairs(argv) do
        local previous = rest[#rest]
        if argument:find("^%-%d") and previous and previous:find("^%-%-[%w-]+$") then
            rest[#rest] = previous .. "=" .. argument
        else
            rest[#rest + 1] = argument
        end
    end
    local first = rest[1]
    if not first or first:sub(1, 1) == "-" then return generator, "tqgen", rest end
    local known = {}
    for i, command in ipairs(commands) do
        if command.name == first then return command, "tqgen " .. first, table.move(rest, 2, #rest + 1, 1, {}) end
        known[i] = command.name
    end
    stop(2, "unknown command '%s'; commands are %s, and none to generate", first, table.concat(known, ", "))
end

-- Runs the command and returns the exit status.
function cli.run(argv, generator_home)
    home = generator_home
    local ok, result = xpcall(function()
        local command, name, rest = dispatch(argv)
        local parser = argparse(name, command.description)
        command.setup(parser)
        local parsed, args = parser:pparse(rest)
        if not parsed then stop(2, "%s (see '%s --help')", args:gsub("\n", ". "), name) end
        return command.run(args)
    end, function(failure)
        return type(failure) == "table" and failure or { status = 1, message = debug.traceback(failure, 2) }
    end)
    if ok then return result end
    io.stderr:write("tqgen: ", result.message, "\n")
    return result.status
end

return cli
