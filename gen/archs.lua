-- Architectures as data. One entry is all that a new one needs, beside a vocabulary header.
--
--   name        what --arch takes and tq_variant.target holds
--   id          the same as part of a C identifier; added here
--   kind        "cpu" or "gpu"; decides which text is generated around the kernels
--   needs       features that the runtime checks before it runs such a kernel
--   vocabulary  file under templates/target/ that spells the operations
--   cflags      how the C files of this arch are compiled
--   gnu_cflags  the same for gcc only; clang_cflags: for clang 16 and later only, one string
--   rank        position below, added here: where several archs run on a device, the lower rank is expected faster
--
-- CPU archs:
--   machine     what it can be compiled for: CMake's names of the processor, the compiler's macro; absent: anything
--   shipped     part of the set that is committed under generated/
--   byte_dot    has an instruction that adds four products of bytes to a 32-bit lane
--   biased      multiplies unsigned centroids, + 128, where there are no gains: byte_dot wants them, or 16 bits cost less
--   in_order    vectors of whole groups of keys: fast enough at GQA 1 to wait for memory, so that tiles are read in its order
--   kq_lanes    lanes that one K.q product can be spread over; one value: no choice
--
-- GPU archs:
--   vendor        "cuda", "hip", or "simt": the executor that runs the kernels of another arch on the CPU
--   covers        simt: the only op of which covering sets take its kernels; absent: all of them
--   emulates      simt: the vendor whose traits and register layouts it takes over; else the vendor itself
--   processor     what compilers call it
--   warp          threads that run in step
--   matrix        matrix instructions: "mma", "wmma", "wmma11", of gfx11, which prefill alone uses, "mfma" or "none": prefill
--                 multiplies by dot products
--   int8_matrix   the same with bytes, 16 products per sum; dot2: an instruction that adds two products of halves
--   permute       what selects a byte in a byte permute: "nibbles" (prmt) or "bytes" (v_perm_b32)
--   copy          from global to shared memory beside computing: "none", "async" (16 bytes per thread) or "bulk"
--   shared_limit  bytes of shared memory that one block can have
--   registers     32-bit registers of a multiprocessor (compute unit); max_registers: that one thread can have

local archs = {}

local X86 = { processors = "^(x86_64|AMD64|amd64)$", macro = "__x86_64__" }
local ARM = { processors = "^(aarch64|arm64|ARM64)$", macro = "__aarch64__" }

archs.list = {
    {
        name = "avx512",
        kind = "cpu",
        summary = "x86-64 with AVX-512 F, BW, DQ, VL, VBMI and VNNI (Ice Lake, Zen 4 and later)",
        cflags = { "-O3", "-march=x86-64-v4", "-mavx512vbmi", "-mavx512vnni", "-mprefer-vector-width=512" },
        gnu_cflags = { "-fno-tree-ter" }, -- see x86-64-v3
        clang_cflags = "-Xclang -target-feature -Xclang +fast-dpwssd", -- else it splits vpdpwssd in two
        needs = { "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe", "avx512f", "avx512cd", "avx512bw", "avx512dq",
            "avx512vl", "avx512vbmi", "avx512vnni" },
        machine = X86,
        vocabulary = "avx512.h",
        byte_dot = true,
        biased = true,
        in_order = true,
        kq_lanes = { 16 },
    },
    {
        name = "x86-64-v3",
        kind = "cpu",
        summary = "x86-64 with AVX2, FMA and F16C (Haswell, Zen and later)",
        cflags = { "-O3", "-march=x86-64-v3" },
        -- Else gcc 12 moves all decoding ahead of products, or all weights, and spills.
        gnu_cflags = { "-fno-tree-ter", "-fno-tree-reassoc", "-fno-code-hoisting" },
        needs = { "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe" },
        machine = X86,
        shipped = true,
        vocabulary = "x86_64_v3.h",
        biased = true,
        kq_lanes = { 8 },
    },
    {
        name = "armv8.2-a",
        kind = "cpu",
        summary = "64-bit Arm with dot products (Cortex-A76, Neoverse N1, Apple M1 and later)",
        cflags = { "-O3", "-march=armv8.2-a+dotprod+fp16" },
        needs = { "neon", "dotprod", "fp16" },
        machine = ARM,
        vocabulary = "armv8_2a.h",
        byte_dot = true,
        kq_lanes = { 4 },
    },
    {
        name = "c",
        kind = "cpu",
        summary = "portable C11",
        cflags = { "-O2" },
        shipped = true,
        needs = {},
        vocabulary = "c.h",
        kq_lanes = { 8 },
    },
}

local KIB = 1024

-- Each row: name, matrix, int8_matrix, copy, KiB of shared memory, what it is.
for _, row in ipairs {
    { "sm_120", "mma", true, "bulk", 99, "Blackwell: GeForce RTX 50, RTX PRO" },
    { "sm_100", "mma", true, "bulk", 227, "Blackwell: B200" },
    { "sm_90", "mma", true, "bulk", 227, "Hopper: H100, H200" },
    { "sm_89", "mma", true, "async", 99, "Ada: GeForce RTX 40, L4, L40" },
    { "sm_86", "mma", true, "async", 99, "Ampere: GeForce RTX 30, A10, A40" },
    { "sm_80", "mma", true, "async", 163, "Ampere: A100" },
    { "sm_75", "mma", true, "none", 64, "Turing: GeForce RTX 20, T4" },
} do
    table.insert(archs.list, {
        name = row[1], kind = "gpu", vendor = "cuda", processor = row[1], summary = row[6], needs = { row[1] },
        vocabulary = "cuda.h", warp = 32, matrix = row[2], int8_matrix = row[3], dot2 = false, permute = "nibbles",
        copy = row[4], shared_limit = row[5] * KIB, registers = 65536, max_registers = 255,
    })
end

-- Each row: name, warp, matrix, int8_matrix, registers, of one thread, what it is.
for _, row in ipairs {
    { "gfx1201", 32, "wmma", true, 98304, 256, "RDNA 4: Radeon RX 9070" },
    { "gfx1200", 32, "wmma", true, 98304, 256, "RDNA 4: Radeon RX 9060" },
    { "gfx1151", 32, "wmma11", false, 98304, 256, "RDNA 3.5: Strix Halo" },
    { "gfx1100", 32, "wmma11", false, 98304, 256, "RDNA 3: Radeon RX 7900" },
    { "gfx1030", 32, "none", false, 65536, 256, "RDNA 2: Radeon RX 6800, 6900" },
    { "gfx942", 64, "mfma", true, 131072, 512, "CDNA 3: MI300" },
    { "gfx90a", 64, "mfma", true, 131072, 512, "CDNA 2: MI200" },
    { "gfx906", 64, "none", false, 65536, 256, "Vega 20: MI50, Radeon VII" },
} do
    table.insert(archs.list, {
        name = row[1], kind = "gpu", vendor = "hip", processor = row[1], summary = row[7], needs = { row[1] },
        vocabulary = "hip.h", warp = row[2], matrix = row[3], int8_matrix = row[4], dot2 = true, permute = "bytes",
        copy = "none", shared_limit = 64 * KIB, registers = row[5], max_registers = row[6],
    })
end

local by_name = {}
for _, arch in ipairs(archs.list) do
    by_name[arch.name] = arch
end

-- The executor takes every trait of the arch that it stands for, so that the same texts and paths run.
for _, name in ipairs { "sm_90", "sm_80", "gfx1201", "gfx942", "gfx1100", "gfx1030", "gfx906" } do
    local real = by_name[name]
    local arch = {}
    for key, value in pairs(real) do
        arch[key] = value
    end
    arch.name = "simt-" .. name
    arch.vendor, arch.emulates = "simt", real.vendor
    arch.summary = "kernels of " .. name .. " on the CPU, for tests"
    arch.vocabulary = "simt.h"
    arch.cflags = { "-O1", "-ffp-contract=off" } -- -O2 compiles half as long again, and the tests run no faster
    arch.needs = { "simt" .. real.warp }
    arch.covers = (real.matrix == "wmma11" or real.matrix == "none") and "prefill" or nil -- they decode like others
    table.insert(archs.list, arch)
    by_name[arch.name] = arch
end

for rank, arch in ipairs(archs.list) do
    arch.rank = rank
    arch.id = arch.name:gsub("[^%w_]", "_")
    arch.emulates = arch.emulates or arch.vendor
end

function archs.get(name)
    return by_name[name]
end

return archs
