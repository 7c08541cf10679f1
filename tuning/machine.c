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

static double best_read(const tq_device *device, pool *p) {
    size_t bytes = 4 * machine_cache_bytes();
    bytes = bytes < (size_t)128 << 20 ? (size_t)128 << 20 : bytes;
    bytes = bytes > machine_free_bytes() / 2 ? machine_free_bytes() / 2 : bytes;
    uint64_t *data = memory_new(device, bytes);
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
    memory_free(device, data);
    return best;
}

/* ---- limits ----------------------------------------------------------------------------------------------------- */

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
    machine_limits limits = {.n_units = 0};
    if (memory_is_cpu(device)) {
        limits.read_bytes = best_read(device, p);
        limits.n_units = multiply_measure(device, p, limits.multiply);
    } else {
        limits.read_bytes = memory_is_simt(device) ? NAN : best_fill(device);
    }
    return limits;
}
