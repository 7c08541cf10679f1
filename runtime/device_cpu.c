/* device_cpu.c: the CPU as a device: its model and the features that targets may need. */
#include "internal.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static tq_device cpu;

static void add_feature(const char *name) {
    size_t used = strlen(cpu.features);
    snprintf(cpu.features + used, sizeof cpu.features - used, "%s%s", used ? " " : "", name);
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

static void detect(void) {
    unsigned state = saved_state();
    for (size_t i = 0; i < sizeof x86_features / sizeof *x86_features; i++) {
        unsigned r[4];
        if (__get_cpuid_count(x86_features[i].leaf, x86_features[i].subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) &&
            (r[x86_features[i].reg] >> x86_features[i].bit & 1) &&
            (state & x86_features[i].state) == x86_features[i].state)
            add_feature(x86_features[i].name);
    }
    unsigned brand[12] = {0};
    for (unsigned i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002 + i, &brand[4 * i], &brand[4 * i + 1], &brand[4 * i + 2], &brand[4 * i + 3]))
            return;
    memcpy(cpu.model, brand, sizeof brand);
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

static void detect(void) {
    for (size_t i = 0; i < sizeof arm_features / sizeof *arm_features; i++)
        if (getauxval(arm_features[i].type) >> arm_features[i].bit & 1)
            add_feature(arm_features[i].name);
}

#else
static void detect(void) {}
#endif

/* Processors that do not name themselves: implementer and part number, or the kernel's own name for the model. */
static void model_from_cpuinfo(void) {
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        const char *value = strchr(line, ':');
        int last = strncmp(line, "model name", 10) == 0 || strncmp(line, "CPU part", 8) == 0;
        if (!value || (!last && strncmp(line, "CPU implementer", 15) != 0))
            continue;
        size_t used = strlen(cpu.model);
        snprintf(cpu.model + used, sizeof cpu.model - used, "%.*s", (int)strcspn(value + 1, "\n"), value + 1);
        if (last)
            break;
    }
    if (file)
        fclose(file);
}

/* One space between words and none at the ends, so that a model can stand in a text file. */
static void tidy(char *text) {
    char *to = text;
    for (char *from = text; *from; from++) {
        int space = *from == ' ' || *from == '\t';
        if (!space || (to > text && to[-1] != ' '))
            *to++ = space ? ' ' : *from;
    }
    *to = '\0';
    if (to > text && to[-1] == ' ')
        to[-1] = '\0';
}

static void init(void) {
    strcpy(cpu.name, "cpu");
    detect();
    if (!cpu.model[0])
        model_from_cpuinfo();
    tidy(cpu.model);
    if (!cpu.model[0])
        strcpy(cpu.model, "unknown CPU");
}

int tq_device_count(void) {
    return 1;
}

const tq_device *tq_device_at(int index) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (index != 0)
        return NULL;
    pthread_once(&once, init);
    return &cpu;
}

tq_status tq_device_find(const char *name, const tq_device **out) {
    if (!name || !out)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_device_find: %s is NULL", name ? "out" : "name");
    tq_list known = {""};
    for (int i = 0; i < tq_device_count(); i++) {
        const tq_device *device = tq_device_at(i);
        if (strcmp(device->name, name) == 0) {
            *out = device;
            return TQ_OK;
        }
        tq_list_add(&known, device->name);
    }
    *out = NULL;
    return tq_fail(TQ_ERR_DEVICE, "no device '%s'; this machine has: %s", name, known.text);
}

const char *tq_device_name(const tq_device *device) {
    return device ? device->name : "";
}

const char *tq_device_model(const tq_device *device) {
    return device ? device->model : "";
}

const char *tq_device_features(const tq_device *device) {
    return device ? device->features : "";
}
