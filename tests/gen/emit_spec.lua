package.path = "gen/?.lua;" .. package.path

local emit = require "emit"
local lfs = require "lfs"

local function read(path)
    local file = assert(io.open(path, "rb"))
    local text = file:read("a")
    file:close()
    return text
end

local function write(path, text)
    local file = assert(io.open(path, "wb"))
    file:write(text)
    file:close()
end

-- Every path below dir, sorted, directories with a slash.
local function tree(dir, prefix, found)
    prefix, found = prefix or "", found or {}
    for entry in lfs.dir(dir) do
        if entry ~= "." and entry ~= ".." then
            local path = dir .. "/" .. entry
            if lfs.attributes(path, "mode") == "directory" then
                found[#found + 1] = prefix .. entry .. "/"
                tree(path, prefix .. entry .. "/", found)
            else
                found[#found + 1] = prefix .. entry
            end
        end
    end
    if prefix == "" then table.sort(found) end
    return found
end

-- The given paths (content: their own names) and a manifest of them.
local function files_of(...)
    local files, quoted = {}, {}
    for i, path in ipairs { ... } do
        files[i] = { path = path, content = "first\n" .. path .. "\nlast\n" }
        quoted[i] = '"' .. path .. '"'
    end
    files[#files + 1] = { path = "manifest.json",
        content = '{"generator":"tqgen","arguments":[],"files":[' .. table.concat(quoted, ",") .. "]}" }
    return files
end

describe("emit", function()
    local root, dir

    before_each(function()
        root = os.tmpname()
        os.remove(root)
        assert(lfs.mkdir(root))
        dir = root .. "/a/b"
    end)

    after_each(function()
        os.execute("rm -rf '" .. root .. "'")
    end)

    it("writes directories and files", function()
        local files = files_of("x.c", "sub/deep/y.c")
        local result = assert(emit.write(dir, files))
        assert.same({ "manifest.json", "sub/", "sub/deep/", "sub/deep/y.c", "x.c" }, tree(dir))
        assert.equal(files[2].content, read(dir .. "/sub/deep/y.c"))
        assert.equal(3, result.changed)
        assert.equal(#files[1].content + #files[2].content + #files[3].content, result.bytes)
    end)

    it("leaves unchanged files untouched", function()
        local files = files_of("x.c", "y.c")
        assert(emit.write(dir, files))
        for _, file in ipairs(files) do lfs.touch(dir .. "/" .. file.path, 1000, 1000) end
        files[2].content = "new\n"
        local result = assert(emit.write(dir, files))
        assert.same({ 1, 2 }, { result.changed, result.unchanged })
        assert.equal(1000, lfs.attributes(dir .. "/x.c", "modification"))
        assert.not_equal(1000, lfs.attributes(dir .. "/y.c", "modification"))
    end)

    it("removes what it wrote earlier, and nothing else", function()
        assert(emit.write(dir, files_of("x.c", "old/y.c", "kept/z.c")))
        write(dir .. "/mine.c", "mine")
        write(dir .. "/kept/mine.c", "mine")
        local result = assert(emit.write(dir, files_of("x.c")))
        assert.equal(2, result.removed)
        assert.same({ "kept/", "kept/mine.c", "manifest.json", "mine.c", "x.c" }, tree(dir))
    end)

    it("does not follow a manifest out of its directory", function()
        write(root .. "/precious", "mine")
        assert(emit.write(dir, files_of("x.c")))
        write(dir .. "/manifest.json", '{"generator":"tqgen","arguments":[],"files":["../../precious","'
            .. root .. '/precious","x.c"]}')
        assert(emit.write(dir, files_of("x.c")))
        assert.equal("mine", read(root .. "/precious"))
    end)

    local function refuses(target, files, part)
        local before = tree(root)
        local result, message = emit.write(target, files)
        assert.is_nil(result)
        assert.is_truthy(message:find(part, 1, true), message)
        assert.same(before, tree(root))
    end

    it("changes nothing when it must give up", function()
        write(root .. "/file", "mine")
        refuses(root .. "/file", files_of("x.c"), "not a directory")
        refuses(root .. "/file/sub", files_of("x.c"), "not a directory")
        refuses("/proc/tqgen", files_of("x.c"), "cannot create directory '/proc/tqgen'")
        refuses(root .. "/new/deep", files_of("x.c", ("n"):rep(300)), "cannot write")
        assert.equal("mine", read(root .. "/file"))
    end)

    it("does not overwrite what it did not write", function()
        assert(lfs.mkdir(root .. "/project"))
        write(root .. "/project/CMakeLists.txt", "mine")
        refuses(root .. "/project", files_of("a.c", "CMakeLists.txt"),
            "CMakeLists.txt' exists and was not written by tqgen")
        assert.equal("mine", read(root .. "/project/CMakeLists.txt"))
        write(root .. "/project/manifest.json", "{}")
        refuses(root .. "/project", files_of("a.c"), "manifest.json' exists and was not written by tqgen")
    end)

    it("keeps a directory as it was if a later file fails", function()
        local files = files_of("x.c", "y.c")
        assert(emit.write(dir, files))
        local changed = files_of("x.c", "y.c", ("n"):rep(300))
        changed[1].content = "new\n"
        refuses(dir, changed, "cannot write")
        assert.equal(files[1].content, read(dir .. "/x.c"))
    end)

    it("finds every kind of drift", function()
        local files = files_of("x.c", "y.c", "sub/z.c")
        assert(emit.write(dir, files))
        assert.same({}, emit.check(dir, files))
        write(dir .. "/x.c", "first\nother\nlast\n")
        os.remove(dir .. "/y.c")
        write(dir .. "/sub/extra.c", "")
        assert(lfs.mkdir(dir .. "/build")) -- the user's own
        write(dir .. "/build/o", "")
        assert.same({ "sub/extra.c: extra", "x.c: differs at line 2", "y.c: missing" }, emit.check(dir, files))
    end)

    it("finds a missing or added end of file", function()
        local files = files_of("x.c")
        assert(emit.write(dir, files))
        write(dir .. "/x.c", "first\nx.c\nlast")
        assert.same({ "x.c: differs at line 3" }, emit.check(dir, files))
        write(dir .. "/x.c", "first\nx.c\nlast\n\n")
        assert.same({ "x.c: differs at line 4" }, emit.check(dir, files))
        write(dir .. "/x.c", "")
        assert.same({ "x.c: differs at line 1" }, emit.check(dir, files))
    end)

    it("reads only its own manifests", function()
        assert(lfs.mkdir(root .. "/d"))
        for _, text in ipairs { "", "{", "[]", "3", "{}", '{"generator":"other","arguments":[],"files":[]}',
            '{"generator":"tqgen","arguments":[]}' } do
            write(root .. "/d/manifest.json", text)
            local manifest, message = emit.manifest(root .. "/d")
            assert.is_nil(manifest)
            assert.is_truthy(message:find("is not a manifest of tqgen", 1, true))
        end
        assert.is_nil((emit.manifest(root)))
    end)
end)
