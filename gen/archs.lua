-- Architectures as data. One entry is all that a new one needs, beside its vocabulary header.
--
--   name        what --arch takes and tq_variant.target holds
--   id          the same as part of a C identifier
--   kind        "cpu"; decides which text is generated around the kernels
--   cflags      how the files of this arch are compiled
--   gnu_cflags  the same for gcc only
--   needs       features that the runtime checks before it runs such a kernel
--   vocabulary  file under templates/target/ that spells the vector operations
--   units       32-value units whose V sums share a vector (TQV_UNITS)
--   kq_lanes    lanes that one K.q product can be spread over; one value: no choice
--   rank        position below, added here: where several archs run on a device, the lower rank is expected faster

local archs = {}

archs.list = {
    {
        name = "x86-64-v3",
        id = "x86_64_v3",
        kind = "cpu",
        summary = "x86-64 with AVX2, FMA and F16C (Haswell, Zen and later)",
        cflags = { "-O3", "-march=x86-64-v3" },
        gnu_cflags = { "-fno-tree-ter" }, -- else gcc 12 moves all decoding ahead of all products, and spills
        needs = { "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe" },
        vocabulary = "x86_64_v3.h",
        units = 2,
        kq_lanes = { 8 },
    },
    {
        name = "c",
        id = "c",
        kind = "cpu",
        summary = "portable C11",
        cflags = { "-O2" },
        needs = {},
        vocabulary = "c.h",
        units = 2,
        kq_lanes = { 8 },
    },
}

local by_name = {}
for rank, arch in ipairs(archs.list) do
    arch.rank = rank
    by_name[arch.name] = arch
end

function archs.get(name)
    return by_name[name]
end

return archs
