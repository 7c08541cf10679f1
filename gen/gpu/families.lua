-- The kernel families of GPU archs, of one op those expected best first. gen/gpu/<family>.lua returns
--
--   name      the value of the axis "kernel"; families of ops but decode and prefill are called like their op
--   op        what it implements
--   template  rendered once per variant
--   shared    texts under templates/gpu/ that precede the kernels of a file, rendered once (absent: see kernels_gpu.lua)
--   layouts   that it reads (writes)
--   axes      implementation axes of gen/axes.lua: { name = legal values, best first }
--   best      of some of them, how many of the best legal values are taken where nobody asks; absent: one
--   usual     function(variant, arch): is it taken where nobody asks for the family, its axes or the layout? absent: yes
--   legal     function(variant, arch): true, or nil and the reason. It is also asked about variants of which some axes are
--             not known yet, and is left where it looks at one of those
--   geometry  function(variant, arch, k_layout, v_layout): { threads =, shared_bytes =, keys_per_step =, keys_per_tile =,
--             blocks_per_sm = }, see tqg_kernel; layouts as formats.layout gives them, nil where there is none. For
--             tests/gpu/gates.py also loop_keys: keys that one trip of a warp through the hot loop serves, shared equally
--             among warps that serve the same ones for other heads; of prefill, in proportion to 64 query columns
--   env       function(variant, arch, env): adds names to what the template sees

local families = { list = {} }

local by_name = {}

for _, name in ipairs { "mma", "lane", "tile", "vec", "prefill", "append", "dequantise", "repack" } do
    local family = require("gpu." .. name)
    by_name[name] = family
    families.list[#families.list + 1] = family
end

function families.get(name)
    return by_name[name]
end

-- The family of a variant.
function families.of(variant)
    return by_name[variant.kernel or variant.op]
end

-- Names of the families of an op, best first.
function families.of_op(op)
    local names = {}
    for _, family in ipairs(families.list) do
        if family.op == op then
            names[#names + 1] = family.name
        end
    end
    return names
end

return families
