/* first_run_micro.c: times the kernels of micro.c. */
#include "first_run.h"

#include "internal.h"
#include "memory.h"
#include "micro.h"
#include "stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What one thread, or one warp, does in one round; 0: kernels that read memory once. */
enum { CHAIN_OPS = MICRO_STEPS * MICRO_CHAINS, MATRIX_OPS = MICRO_STEPS * MICRO_MATRICES };

/* SIMT devices: what is linked in; NULL elsewhere, and where the architecture lacks it. */
#define SIMT(name)    tqk_micro_##name
#define DECLARE(name) __attribute__((weak)) extern void SIMT(name)(const void *params);
DECLARE(fma)
DECLARE(lookup)
DECLARE(and_xor)
DECLARE(h2_fma)
DECLARE(dot2)
DECLARE(exp2)
DECLARE(shuffle)
DECLARE(mma_f16)
DECLARE(mma_i8)
DECLARE(read)
DECLARE(bulk)

typedef struct micro_kernel {
    const char *name, *what;
    int ops_per_thread, ops_per_warp, shared_bytes;
    void (*simt)(const void *params);
} micro_kernel;

static const micro_kernel kernels[] = {
    {"fma", "fused multiply-add of floats", CHAIN_OPS, 0, 0, SIMT(fma)},
    {"lookup", "byte permute: four table entries", CHAIN_OPS, 0, 0, SIMT(lookup)},
    {"and_xor", "and, exclusive or (one instruction on NVIDIA, two on AMD)", CHAIN_OPS, 0, 0, SIMT(and_xor)},
    {"h2_fma", "fused multiply-add of pairs of halves", CHAIN_OPS, 0, 0, SIMT(h2_fma)},
    {"dot2", "dot product of pairs of halves (two instructions on NVIDIA)", CHAIN_OPS, 0, 0, SIMT(dot2)},
    {"exp2", "power of two", CHAIN_OPS, 0, 0, SIMT(exp2)},
    {"shuffle", "exchange in the warp", CHAIN_OPS, 0, 0, SIMT(shuffle)},
    {"mma_f16", "matrix product of halves, k = 16, per warp", 0, MATRIX_OPS, 0, SIMT(mma_f16)},
    {"mma_i8", "matrix product of bytes, k = 16, per warp", 0, MATRIX_OPS, 0, SIMT(mma_i8)},
    {"read", "reading memory, plain 16-byte loads", 0, 0, 0, SIMT(read)},
    {"bulk", "reading memory, bulk copies of 3200-byte tiles", 0, 0, MICRO_RING_BYTES, SIMT(bulk)},
};

static unsigned char *read_file(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file)
        cli_fail("%s: cannot be read", path);
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *image = cli_alloc_aligned(*bytes + 1);
    *bytes = fread(image, 1, *bytes, file);
    fclose(file);
    return image;
}

typedef struct bench {
    const first_run *run;
    tq_registry registry;
    tq_timer *timer;
    micro_params params;
    unsigned blocks;
} bench;

static double time_once(const bench *b, const tqg_kernel *kernel, void *function, int rounds) {
    const tq_device *device = b->run->device;
    const unsigned grid[3] = {b->blocks, 1, 1};
    micro_params params = b->params;
    double ns;
    params.rounds = rounds;
    cli_check(tq_timer_start(b->timer, NULL));
    cli_check(device->ops->launch(device, kernel, function, grid, &params, sizeof params, NULL));
    cli_check(tq_timer_stop(b->timer, NULL, &ns));
    return ns;
}

/* They stay, for devices know what they have loaded by its address. */
static tqg_kernel *kernel_of(const micro_kernel *of) {
    static tqg_kernel known[CLI_COUNT(kernels)];
    tqg_kernel *kernel = &known[of - kernels];
    *kernel = (tqg_kernel){.symbol = cli_format("tqk_micro_%s", of->name),
                           .threads = MICRO_THREADS,
                           .shared_bytes = of->shared_bytes,
                           .blocks_per_sm = MICRO_BLOCKS,
                           .simt = of->simt};
    return kernel;
}

static void measure(const bench *b, const micro_kernel *of, FILE *file, double until) {
    enum { REPEATS = 9, LONG_ENOUGH_NS = 3000000, MOST_ROUNDS = 1 << 20 };
    const tq_device *device = b->run->device;
    const tqg_kernel *kernel = kernel_of(of);
    const tq_variant variant = {.name = kernel->symbol, .gpu = kernel};
    void *function;
    double ns[REPEATS];
    if (device->kind == TQ_KIND_SIMT && !of->simt)
        return;
    if (device->ops->prepare(device, &b->registry, &variant, &function)) {
        cli_warn("%s is left out: %s", of->name, tq_error_message()); /* not on this architecture */
        return;
    }
    int computes = of->ops_per_thread + of->ops_per_warp;
    int rounds = computes ? 1 : (int)b->blocks, repeats = b->run->tiny ? 1 : REPEATS;
    double warm = time_once(b, kernel, function, rounds);
    while (computes && !b->run->tiny && warm < LONG_ENOUGH_NS && rounds < MOST_ROUNDS)
        warm = time_once(b, kernel, function, rounds *= 2);
    int n = 0;
    while (n < repeats && (n == 0 || now_ns() < until))
        ns[n++] = time_once(b, kernel, function, rounds);
    double threads = (double)b->blocks * MICRO_THREADS, median = stats_median(ns, n);
    double work = of->ops_per_thread ? threads * of->ops_per_thread * rounds
                  : of->ops_per_warp ? threads / device->warp * of->ops_per_warp * rounds
                                     : (double)b->params.bytes;
    fprintf(file, "%s\t%s\t%s\t%.6g\t%.6g\t%.4f\n", of->name, of->what, computes ? "operations" : "bytes",
            work / median, work / median / device->multiprocessors, n > 1 ? stats_spread(ns, n) : 0);
    fflush(file);
}

void first_run_micro(const first_run *run) {
    enum { TINY_BYTES = 1 << 18, MOST_BYTES = 1 << 30, SEED_BYTES = 4096 };
    const tq_device *device = run->device;
    size_t image_bytes = 0, bytes = run->tiny ? TINY_BYTES : device->memory_bytes / 4;
    bytes = bytes > MOST_BYTES ? MOST_BYTES : bytes;
    tqg_module module = {"micro", NULL, NULL};
    unsigned char *image = run->micro[0] ? read_file(run->micro, &image_bytes) : NULL;
    module.image = image;
    module.end = image + image_bytes;
    bench b = {
        .run = run,
        .registry = {.abi = TQ_KERNEL_ABI, .name = "micro", .kind = device->kind, .n_modules = 1, .modules = &module},
        .blocks = run->tiny ? 2 : (unsigned)device->multiprocessors * MICRO_BLOCKS};
    void *data = memory_new(device, bytes);
    b.params = (micro_params){.data = data,
                              .out = memory_new(device, (size_t)b.blocks * MICRO_THREADS * sizeof(tqg_u32)),
                              .bytes = (tqg_i64)bytes};
    float seeds[SEED_BYTES / sizeof(float)];
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        seeds[i] = 1 + (float)i / 4096; /* a number to floats, two to halves, bytes to matrices */
    cli_check(device->ops->fill(device, data, 0x3c, bytes, NULL));
    memory_write(device, data, seeds, sizeof seeds);
    cli_check(tq_timer_create(device, &b.timer));
    FILE *file = table_append(run, "micro.tsv", "name\twhat\tunit\tper_ns\tper_ns_multiprocessor\tspread");
    double until = now_ns() + run->seconds * 1e9;
    for (int i = 0; i < CLI_COUNT(kernels); i++)
        measure(&b, &kernels[i], file, until);
    fclose(file);
    tq_timer_destroy(b.timer);
    memory_free(device, data);
    memory_free(device, b.params.out);
    free(image);
}
