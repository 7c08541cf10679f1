/* device_cpu.c: the CPU as a device: its model, the features that targets may need, and its memory. */
#define _DEFAULT_SOURCE /* madvise */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static void add_feature(tq_device *cpu, const char *name) {
    size_t used = strlen(cpu->features);
    snprintf(cpu->features + used, sizeof cpu->features - used, "%s%s", used ? " " : "", name);
}

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

/* Register state that the operating system must save before a feature may be used, as bits of XCR0. */
enum { BASE = 0, AVX = 0x6, AVX512 = 0xe6, AMX = 0x60000 };
enum { EAX, EBX, ECX, EDX };

static const struct {
    const char *name;
    unsigned leaf, subleaf;
    int reg, bit;
    unsigned state;
} x86_features[] = {
    {"ssse3", 1, 0, ECX, 9, BASE},
    {"sse4.1", 1, 0, ECX, 19, BASE},
    {"sse4.2", 1, 0, ECX, 20, BASE},
    {"movbe", 1, 0, ECX, 22, BASE},
    {"popcnt", 1, 0, ECX, 23, BASE},
    {"lzcnt", 0x80000001, 0, ECX, 5, BASE},
    {"bmi", 7, 0, EBX, 3, BASE},
    {"bmi2", 7, 0, EBX, 8, BASE},
    {"gfni", 7, 0, ECX, 8, BASE},
    {"avx", 1, 0, ECX, 28, AVX},
    {"fma", 1, 0, ECX, 12, AVX},
    {"f16c", 1, 0, ECX, 29, AVX},
    {"avx2", 7, 0, EBX, 5, AVX},
    {"avxvnni", 7, 1, EAX, 4, AVX},
    {"avx512f", 7, 0, EBX, 16, AVX512},
    {"avx512dq", 7, 0, EBX, 17, AVX512},
    {"avx512cd", 7, 0, EBX, 28, AVX512},
    {"avx512bw", 7, 0, EBX, 30, AVX512},
    {"avx512vl", 7, 0, EBX, 31, AVX512},
    {"avx512vbmi", 7, 0, ECX, 1, AVX512},
    {"avx512vbmi2", 7, 0, ECX, 6, AVX512},
    {"avx512vnni", 7, 0, ECX, 11, AVX512},
    {"avx512bitalg", 7, 0, ECX, 12, AVX512},
    {"avx512vpopcntdq", 7, 0, ECX, 14, AVX512},
    {"avx512bf16", 7, 1, EAX, 5, AVX512},
    {"avx512fp16", 7, 0, EDX, 23, AVX512},
    {"amx-bf16", 7, 0, EDX, 22, AMX},
    {"amx-int8", 7, 0, EDX, 25, AMX},
};

static unsigned saved_state(void) {
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & (1u << 27))) /* OSXSAVE */
        return 0;
    __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
    return eax;
}

static void detect(tq_device *cpu) {
    unsigned state = saved_state();
    for (size_t i = 0; i < sizeof x86_features / sizeof *x86_features; i++) {
        unsigned r[4];
        if (__get_cpuid_count(x86_features[i].leaf, x86_features[i].subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) &&
            (r[x86_features[i].reg] >> x86_features[i].bit & 1) &&
            (state & x86_features[i].state) == x86_features[i].state)
            add_feature(cpu, x86_features[i].name);
    }
    unsigned brand[12] = {0};
    for (unsigned i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002 + i, &brand[4 * i], &brand[4 * i + 1], &brand[4 * i + 2], &brand[4 * i + 3]))
            return;
    memcpy(cpu->model, brand, sizeof brand);
}

#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

static const struct {
    const char *name;
    unsigned long type, bit;
} arm_features[] = {
    {"neon", AT_HWCAP, 1}, {"fp16", AT_HWCAP, 10}, {"dotprod", AT_HWCAP, 20},
    {"sve", AT_HWCAP, 22}, {"sve2", AT_HWCAP2, 1}, {"i8mm", AT_HWCAP2, 13},
};

static void detect(tq_device *cpu) {
    for (size_t i = 0; i < sizeof arm_features / sizeof *arm_features; i++)
        if (getauxval(arm_features[i].type) >> arm_features[i].bit & 1)
            add_feature(cpu, arm_features[i].name);
}

#else
static void detect(tq_device *cpu) {
    (void)cpu;
}
#endif

/* Processors that do not name themselves: implementer and part number, or the kernel's own name for the model. */
static void model_from_cpuinfo(tq_device *cpu) {
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        const char *value = strchr(line, ':');
        int last = strncmp(line, "model name", 10) == 0 || strncmp(line, "CPU part", 8) == 0;
        if (!value || (!last && strncmp(line, "CPU implementer", 15) != 0))
            continue;
        size_t used = strlen(cpu->model);
        snprintf(cpu->model + used, sizeof cpu->model - used, "%.*s", (int)strcspn(value + 1, "\n"), value + 1);
        if (last)
            break;
    }
    if (file)
        fclose(file);
}

/* ---- memory and time -------------------------------------------------------------------------------------------- */

tq_status tq_host_alloc(const tq_device *device, size_t bytes, void **out) {
    enum { ALIGN = 256, WORD = 16, HUGE_PAGE = 2 << 20 };
    const int huge = bytes >= HUGE_PAGE;
    const size_t unit = huge ? HUGE_PAGE : WORD; /* kernels may read the word that holds the last byte */
    const size_t rounded = (bytes + (unit - 1)) / unit * unit;
    if (rounded < bytes || posix_memalign(out, huge ? HUGE_PAGE : ALIGN, rounded) != 0) {
        *out = NULL;
        return tq_fail(TQ_ERR_MEMORY, "%s: out of memory: %zu bytes", device->name, bytes);
    }
#ifdef MADV_HUGEPAGE
    if (huge)
        madvise(*out, rounded, MADV_HUGEPAGE); /* a wish: what it answers does not matter */
#endif
    return TQ_OK;
}

void tq_host_free(const tq_device *device, void *memory) {
    (void)device;
    free(memory);
}

tq_status tq_host_copy(const tq_device *device, void *to, const void *from, size_t bytes) {
    (void)device;
    memcpy(to, from, bytes);
    return TQ_OK;
}

tq_status tq_host_fill(const tq_device *device, void *memory, int value, size_t bytes, void *stream) {
    (void)device;
    (void)stream;
    memset(memory, value, bytes);
    return TQ_OK;
}

tq_status tq_host_synchronise(const tq_device *device, void *stream) {
    (void)device;
    (void)stream;
    return TQ_OK;
}

double tq_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* A timer is the time at which it started. */
static tq_status create_timer(const tq_device *device, void **timer) {
    *timer = malloc(sizeof(double));
    return *timer ? TQ_OK : tq_fail(TQ_ERR_MEMORY, "%s: out of memory for a timer", device->name);
}

static tq_status start_timer(const tq_device *device, void *timer, void *stream) {
    (void)device;
    (void)stream;
    *(double *)timer = tq_now_ns();
    return TQ_OK;
}

static tq_status stop_timer(const tq_device *device, void *timer, void *stream, double *ns) {
    (void)device;
    (void)stream;
    *ns = tq_now_ns() - *(double *)timer;
    return TQ_OK;
}

/* prepare and launch are for kernels that a device loads; plans on the CPU call theirs. */
static const tq_device_ops ops = {.alloc = tq_host_alloc,
                                  .free = tq_host_free,
                                  .copy_in = tq_host_copy,
                                  .copy_out = tq_host_copy,
                                  .fill = tq_host_fill,
                                  .synchronise = tq_host_synchronise,
                                  .timer_create = create_timer,
                                  .timer_destroy = tq_host_free,
                                  .timer_start = start_timer,
                                  .timer_stop = stop_timer};

size_t tq_host_memory_bytes(void) {
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (size_t)pages * (size_t)size : 0;
}

int tq_cpu_devices(tq_device *out, int most) {
    if (most < 1)
        return 0;
    *out = (tq_device){.name = "cpu", .kind = TQ_KIND_CPU, .warp = 1, .multiprocessors = 1, .ops = &ops};
    out->memory_bytes = tq_host_memory_bytes();
    detect(out);
    if (!out->model[0])
        model_from_cpuinfo(out);
    tq_tidy(out->model);
    if (!out->model[0])
        strcpy(out->model, "unknown CPU");
    return 1;
}
