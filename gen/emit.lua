-- Writing a generated directory: all or nothing, only what changed, and comparing it with what would be written.
-- Files are { path = relative path, content = bytes }; the one called manifest.json lists the others.

local json = require "dkjson"
local lfs = require "lfs"

local emit = {}

emit.MANIFEST = "manifest.json"

local function read(path)
    local file = io.open(path, "rb")
    if not file then return nil end
    local content = file:read("a") -- nil for a directory
    file:close()
    return content
end

local function parent(path)
    return path:match("^(.*[^/])/+[^/]+/*$") or (path:sub(1, 1) == "/" and "/" or ".")
end

-- The manifest of a generated directory as a table, or nil and why there is none.
function emit.manifest(dir)
    local path = dir .. "/" .. emit.MANIFEST
    local text = read(path)
    if not text then return nil, ("'%s' holds no %s"):format(dir, emit.MANIFEST) end
    local manifest = json.decode(text)
    if type(manifest) ~= "table" or manifest.generator ~= "tqgen" or type(manifest.arguments) ~= "table"
        or type(manifest.files) ~= "table" then
        return nil, ("'%s' is not a manifest of tqgen"):format(path)
    end
    return manifest
end

-- Paths that an earlier run wrote into dir. A manifest is only text: paths that would lead out of dir are not believed.
local function written_before(dir)
    local manifest = emit.manifest(dir) or { files = {} }
    local paths = {}
    for _, path in ipairs(manifest.files) do
        if type(path) == "string" and not path:find("^/") and not ("/" .. path .. "/"):find("/../", 1, true) then
            paths[#paths + 1] = path
            paths[path] = true
        end
    end
    return paths, emit.manifest(dir) ~= nil
end

-- What one run changes on the disk, undone by undo() unless it came to its end.
local function transaction()
    local made_dirs, temporaries = {}, {}
    local self = {}

    function self.make_dir(path)
        local mode = lfs.attributes(path, "mode")
        if mode == "directory" then return true end
        if mode then return nil, ("'%s' exists and is not a directory"):format(path) end
        local ok, message = self.make_dir(parent(path))
        if not ok then return nil, message end
        ok, message = lfs.mkdir(path)
        if not ok then return nil, ("cannot create directory '%s': %s"):format(path, message) end
        made_dirs[#made_dirs + 1] = path
        return true
    end

    function self.write_aside(path, content)
        local temporary = path .. ".tmp"
        local file, message = io.open(temporary, "wb")
        if not file then return nil, "cannot write " .. message end
        temporaries[#temporaries + 1] = temporary
        local ok
        ok, message = file:write(content)
        local closed, close_message = file:close()
        if not (ok and closed) then
            return nil, ("cannot write '%s': %s"):format(temporary, message or close_message)
        end
        return temporary
    end

    function self.undo()
        for _, path in ipairs(temporaries) do os.remove(path) end
        for i = #made_dirs, 1, -1 do lfs.rmdir(made_dirs[i]) end
    end

    return self
end

-- Makes dir hold these files. Files with the right bytes are not touched; files that an earlier run listed in its
-- manifest and that are no longer generated go; nothing else in dir is changed. Returns { changed =, unchanged =,
-- removed =, bytes = }, or nil and a message, and then nothing has been changed.
function emit.write(dir, files)
    local ours, has_manifest = written_before(dir)
    local work = transaction()
    local function fail(message)
        work.undo()
        return nil, message
    end

    local result = { changed = 0, unchanged = 0, removed = 0, bytes = 0 }
    local wanted, renames = {}, {}
    local ok, message = work.make_dir(dir)
    if not ok then return fail(message) end
    for _, file in ipairs(files) do
        local path = dir .. "/" .. file.path
        local present = read(path)
        wanted[file.path] = true
        result.bytes = result.bytes + #file.content
        if present == file.content then
            result.unchanged = result.unchanged + 1
        else
            local known = ours[file.path] or has_manifest and file.path == emit.MANIFEST
            if lfs.symlinkattributes(path, "mode") and not known then
                return fail(("'%s' exists and was not written by tqgen"):format(path))
            end
            ok, message = work.make_dir(parent(path))
            if not ok then return fail(message) end
            local temporary
            temporary, message = work.write_aside(path, file.content)
            if not temporary then return fail(message) end
            renames[#renames + 1] = { temporary, path }
            result.changed = result.changed + 1
        end
    end

    for _, rename in ipairs(renames) do
        ok, message = os.rename(rename[1], rename[2])
        if not ok then return fail("cannot rename " .. message) end
    end
    for _, path in ipairs(ours) do
        if not wanted[path] and os.remove(dir .. "/" .. path) then
            result.removed = result.removed + 1
            lfs.rmdir(parent(dir .. "/" .. path)) -- fails, as it should, unless that was the last file there
        end
    end
    return result
end

local function first_difference(a, b)
    local line, at = 1, 1
    while true do
        local end_a, end_b = a:find("\n", at, true) or #a, b:find("\n", at, true) or #b
        if a:sub(at, end_a) ~= b:sub(at, end_b) then return line end
        line, at = line + 1, end_a + 1
    end
end

-- What separates dir from these files, a line each, sorted; empty if nothing does. A file counts as extra if it lies in
-- a directory that generated files lie in too: a build directory inside dir is its user's business.
function emit.check(dir, files)
    local drift, wanted, dirs = {}, {}, { dir, [dir] = true }
    for _, file in ipairs(files) do
        local path = dir .. "/" .. file.path
        local present = read(path)
        wanted[path] = true
        if not dirs[parent(path)] then
            dirs[parent(path)] = true
            dirs[#dirs + 1] = parent(path)
        end
        if not present then
            drift[#drift + 1] = file.path .. ": missing"
        elseif present ~= file.content then
            drift[#drift + 1] = ("%s: differs at line %d"):format(file.path, first_difference(present, file.content))
        end
    end
    for _, sub in ipairs(dirs) do
        if lfs.attributes(sub, "mode") == "directory" then
            for entry in lfs.dir(sub) do
                local path = sub .. "/" .. entry
                if lfs.attributes(path, "mode") ~= "directory" and not wanted[path] then
                    drift[#drift + 1] = path:sub(#dir + 2) .. ": extra"
                end
            end
        end
    end
    table.sort(drift)
    return drift
end

return emit
