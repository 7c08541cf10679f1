#include "machine.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "internal.h"
#include "memory.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- sizes ------------------------------------------------------------------------------------------------------ */

/* "32768K" in a sysfs file, in bytes; 0 if there is no such file. */
static size_t sysfs_size(const char *path) {
    FILE *file = fopen(path, "r");
    unsigned long size = 0;
    char unit = '\0';
    if (file) {
        if (fscanf(file, "%lu%c", &size, &unit) < 1)
            size = 0;
        fclose(file);
    }
    return size << (unit == 'K' ? 10 : unit == 'M' ? 20 : 0);
}

size_t machine_cache_bytes(void) {
    size_t largest = 0;
    for (int i = 0; i < 8; i++) {
        char path[80];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        size_t size = sysfs_size(path);
        largest = size > largest ? size : largest;
    }
    long level3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (!largest && level3 > 0)
        largest = (size_t)level3;
    return largest ? largest : (size_t)32 << 20;
}

size_t machine_free_bytes(void) {
    unsigned long kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    if (file) {
        char line[128];
        while (fgets(line, sizeof line, file) && sscanf(line, "MemAvailable: %lu", &kib) < 1) {
        }
        fclose(file);
    }
    return kib ? (size_t)kib << 10 : (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

typedef struct stream {
    const uint64_t *data;
    size_t words;
    size_t ahead;                    /* words */
    uint64_t sums[POOL_MAX_THREADS]; /* keeps the reads alive */
} stream;

static void read_stream(void *context, int thread_index, int thread_count) {
    enum { LINE = 8, STEP = 4 * LINE };
    stream *s = context;
    size_t share = s->words / (size_t)thread_count / STEP * STEP;
    const uint64_t *at = s->data + share * (size_t)thread_index, *end = at + share;
    uint64_t sum[STEP] = {0};
    for (; at < end; at += STEP) {
        for (int i = 0; i < STEP; i += LINE)
            __builtin_prefetch(at + s->ahead + i, 0, 2);
        for (int i = 0; i < STEP; i++)
            sum[i] += at[i];
    }
    for (int i = 1; i < STEP; i++)
        sum[0] += sum[i];
    s->sums[thread_index] = sum[0];
}

static double best_read(pool *p) {
    size_t bytes = 4 * machine_cache_bytes();
    bytes = bytes < (size_t)128 << 20 ? (size_t)128 << 20 : bytes;
    bytes = bytes > machine_free_bytes() / 2 ? machine_free_bytes() / 2 : bytes;
    uint64_t *data = cli_alloc_aligned(bytes);
    memset(data, 1, bytes); /* pages that were never written all map to one page of zeros */
    stream s = {.data = data, .words = bytes / sizeof *data};
    double best = 0;
    static const size_t ahead[] = {64, 256, 512, 2048};
    for (int pass = 0; pass < 3; pass++) {
        for (int i = 0; i < CLI_COUNT(ahead); i++) {
            s.ahead = ahead[i];
            double rate = (double)bytes / (pool_run(p, read_stream, &s) * 1e-9);
            best = rate > best ? rate : best;
        }
    }
    free(data);
    return best;
}

/* ---- multipliers ------------------------------------------------------------------------------------------------ */

enum { ROUNDS = 1 << 18, CHAINS = 8, MAX_LANES = 16 };

typedef struct multiply {
    void (*fn)(float *out); /* ROUNDS * CHAINS vectors; writes its sums so that they are computed */
    float out[POOL_MAX_THREADS][MAX_LANES];
} multiply;

static void multiply_on_thread(void *context, int thread_index, int thread_count) {
    (void)thread_count;
    multiply *m = context;
    m->fn(m->out[thread_index]);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void float_avx2(float *out) {
    __m256 sum[CHAINS], a = _mm256_set1_ps(out[0] + 0.5f), b = _mm256_set1_ps(out[1] + 0.25f);
    for (int i = 0; i < CHAINS; i++)
        sum[i] = _mm256_set1_ps((float)i);
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < CHAINS; i++)
            sum[i] = _mm256_fmadd_ps(sum[i], a, b);
    for (int i = 1; i < CHAINS; i++)
        sum[0] = _mm256_add_ps(sum[0], sum[i]);
    _mm256_storeu_ps(out, sum[0]);
}

__attribute__((target("avx2"))) static void int16_avx2(float *out) {
    __m256i sum[CHAINS], a = _mm256_set1_epi16((short)(out[0] + 3)), b = a;
    for (int i = 0; i < CHAINS; i++)
        sum[i] = _mm256_set1_epi32(i);
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < CHAINS; i++) {
            __asm__("" : "+x"(b)); /* for all the compiler knows this is another b, and so another product */
            sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(a, b));
        }
    }
    for (int i = 1; i < CHAINS; i++)
        sum[0] = _mm256_add_epi32(sum[0], sum[i]);
    _mm256_storeu_ps(out, _mm256_cvtepi32_ps(sum[0]));
}
#endif

/* Plain loops over arrays, which any compiler turns into the vectors of its target. */
static void float_plain(float *out) {
    float sum[CHAINS * MAX_LANES] = {0};
    for (int r = 0; r < ROUNDS / 4; r++)
        for (int i = 0; i < CHAINS * MAX_LANES; i++)
            sum[i] = sum[i] * (out[0] + 0.5f) + 0.25f;
    for (int i = 0; i < CHAINS * MAX_LANES; i++)
        out[i % MAX_LANES] += sum[i];
}

static void int16_plain(float *out) {
    int16_t a[CHAINS * MAX_LANES];
    uint32_t sum[CHAINS * MAX_LANES] = {0};
    for (int i = 0; i < CHAINS * MAX_LANES; i++)
        a[i] = (int16_t)(i + (int)out[0]);
    for (int r = 0; r < ROUNDS / 4; r++)
        for (int i = 0; i < CHAINS * MAX_LANES; i++)
            sum[i] += (uint32_t)((int16_t)sum[i] * a[i]);
    for (int i = 0; i < CHAINS * MAX_LANES; i++)
        out[i % MAX_LANES] += (float)sum[i];
}

static double best_rate(pool *p, void (*fn)(float *), double madds_per_thread) {
    double best = 0;
    for (int pass = 0; pass < 5; pass++) {
        multiply m = {.fn = fn};
        double rate = madds_per_thread * pool_threads(p) / (pool_run(p, multiply_on_thread, &m) * 1e-9);
        best = rate > best ? rate : best;
    }
    return best;
}

/* Bytes per second that a GPU's memory takes. */
static double best_fill(const tq_device *device) {
    const size_t bytes = (size_t)1 << 30;
    void *memory = memory_new(device, bytes);
    double best = INFINITY, ns;
    tq_timer *timer;
    cli_check(tq_timer_create(device, &timer));
    for (int pass = 0; pass < 8; pass++) {
        cli_check(tq_timer_start(timer, NULL));
        cli_check(device->ops->fill(device, memory, pass, bytes, NULL));
        cli_check(tq_timer_stop(timer, NULL, &ns));
        best = fmin(best, ns);
    }
    tq_timer_destroy(timer);
    memory_free(device, memory);
    return (double)bytes / (best * 1e-9);
}

machine_limits machine_measure(const tq_device *device, pool *p) {
    if (!memory_is_cpu(device))
        return (machine_limits){memory_is_simt(device) ? NAN : best_fill(device), NAN, NAN};
    const double rounds = (double)ROUNDS * CHAINS, plain = rounds / 4 * MAX_LANES;
    machine_limits limits = {best_read(p), 0, 0};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        limits.float_madds = best_rate(p, float_avx2, rounds * 8);
        limits.int16_madds = best_rate(p, int16_avx2, rounds * 16);
        return limits;
    }
#endif
    limits.float_madds = best_rate(p, float_plain, plain);
    limits.int16_madds = best_rate(p, int16_plain, plain);
    return limits;
}
