-- Turns a list of variants into the files of a generated directory: per arch what gen/kernels_cpu.lua or
-- gen/kernels_gpu.lua make, and on top what builds them. Pure: reads templates, returns texts.

local text = require "text"

local kernels = {}

local MAKERS = { cpu = require "kernels_cpu", gpu = require "kernels_gpu" }

-- All files of a generated directory but its manifest, for variants as space.select returns them and the entries of
-- their archs in order of preference. Errors are strings "template:line: message".
function kernels.files(variants, info)
    local files, built, common = {}, {}, { "runtime/tq_kernel.h", "runtime/tq_gpu.h" }
    local function need(path)
        for _, known in ipairs(common) do
            if known == path then return end
        end
        common[#common + 1] = path
    end
    for _, arch in ipairs(info.archs) do
        local own = {}
        for _, variant in ipairs(variants) do
            if variant.arch == arch.name then
                own[#own + 1] = variant
            end
        end
        local made = { source = {}, module = {} }
        for _, file in ipairs(MAKERS[arch.kind].files(arch, own)) do
            local path = arch.id .. "/" .. file.name
            files[#files + 1] = { path = path, content = file.content }
            if file.role then
                table.insert(made[file.role], file.role == "source" and path or file.name)
            end
        end
        if arch.vendor == "simt" then
            need("runtime/tq_simt.h")
        elseif arch.kind == "gpu" then
            need("templates/gpu.cmake")
        end
        built[#built + 1] = { arch = arch, sources = made.source,
            device_sources = #made.module > 0 and made.module or nil }
    end
    for _, path in ipairs(common) do
        files[#files + 1] = { path = path:match("[^/]+$"), content = text.read(path) }
    end
    files[#files + 1] = { path = "builtin.c", content = text.render("templates/builtin.c", { archs = info.archs }) }
    files[#files + 1] = { path = "CMakeLists.txt",
        content = text.render("templates/CMakeLists.txt", { built = built, concat = table.concat }) }
    return files
end

return kernels
