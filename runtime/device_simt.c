/* device_simt.c: the SIMT executor as two devices, which run GPU kernels on the CPU: simt:32 and simt:64, by the lanes
 * of a warp. Launches are done when they return; several threads may launch at the same time. */
#include "internal.h"
#include "simt/simt.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { SHARED_BYTES = 227 << 10 }; /* of the largest arch that is emulated */

typedef struct simt_state {
    atomic_ullong operations; /* of all launches so far */
} simt_state;

static atomic_uint seed; /* of all launches */

void tq_simt_set_seed(unsigned new_seed) {
    atomic_store(&seed, new_seed);
}

static tq_status prepare(const tq_device *device, const tq_registry *registry, const tq_variant *variant,
                         void **function) {
    *function = NULL; /* the kernel itself is at hand */
    if (!variant->gpu || !variant->gpu->simt)
        return tq_fail(TQ_ERR_DEVICE, "%s: registry '%s' has no function for %s", device->name, registry->name,
                       variant->name);
    return TQ_OK;
}

/* What counts as work: everything that a warp or block does together; turns of fibers are none. */
static uint64_t operations_of(const tq_simt_counts *c) {
    return c->blocks + c->block_syncs + c->warp_ops + c->matrix_ops + c->copies16 + c->bulk_copies;
}

static tq_status launch(const tq_device *device, const tqg_kernel *kernel, void *function, const unsigned grid[3],
                        const void *params, size_t params_bytes, void *stream) {
    (void)function;
    (void)params_bytes;
    (void)stream;
    simt_state *state = device->state;
    tq_simt_counts counts = {0};
    const tq_simt_grid blocks = {.name = kernel->symbol,
                                 .x = (int)grid[0],
                                 .y = (int)grid[1],
                                 .z = (int)grid[2],
                                 .threads = kernel->threads,
                                 .shared_bytes = kernel->shared_bytes,
                                 .warp = device->warp,
                                 .seed = atomic_load(&seed),
                                 .counts = &counts};
    char message[400];
    const char *wrong = tq_simt_launch(&blocks, kernel->simt, params, message, sizeof message);
    atomic_fetch_add(&state->operations, operations_of(&counts));
    return wrong ? tq_fail(TQ_ERR_DEVICE, "%s: %s: %s", device->name, kernel->symbol, wrong) : TQ_OK;
}

/* ---- time: a nanosecond for each operation ---------------------------------------------------------------------- */

static tq_status create_timer(const tq_device *device, void **timer) {
    *timer = malloc(sizeof(unsigned long long));
    return *timer ? TQ_OK : tq_fail(TQ_ERR_MEMORY, "%s: out of memory for a timer", device->name);
}

static tq_status start_timer(const tq_device *device, void *timer, void *stream) {
    simt_state *state = device->state;
    (void)stream;
    *(unsigned long long *)timer = atomic_load(&state->operations);
    return TQ_OK;
}

static tq_status stop_timer(const tq_device *device, void *timer, void *stream, double *ns) {
    simt_state *state = device->state;
    (void)stream;
    *ns = (double)(atomic_load(&state->operations) - *(unsigned long long *)timer);
    return TQ_OK;
}

/* ---- devices ---------------------------------------------------------------------------------------------------- */

static const tq_device_ops ops = {.prepare = prepare,
                                  .launch = launch,
                                  .alloc = tq_host_alloc,
                                  .free = tq_host_free,
                                  .copy_in = tq_host_copy,
                                  .copy_out = tq_host_copy,
                                  .fill = tq_host_fill,
                                  .synchronise = tq_host_synchronise,
                                  .timer_create = create_timer,
                                  .timer_destroy = tq_host_free,
                                  .timer_start = start_timer,
                                  .timer_stop = stop_timer};

int tq_simt_devices(tq_device *out, int most) {
    static const struct {
        int warp;
        const char *arch; /* the one that emulates most */
    } kinds[] = {{32, "simt-sm_90"}, {64, "simt-gfx942"}};
    enum { N = sizeof kinds / sizeof *kinds };
    static simt_state states[N];
    const char *text = getenv("TQ_SIMT_SEED");
    tq_simt_set_seed(text ? (unsigned)strtoul(text, NULL, 0) : 0);
    int n = N < most ? N : most;
    for (int i = 0; i < n; i++) {
        out[i] = (tq_device){.kind = TQ_KIND_SIMT,
                             .warp = kinds[i].warp,
                             .multiprocessors = 1,
                             .shared_bytes = SHARED_BYTES,
                             .memory_bytes = tq_host_memory_bytes(),
                             .ops = &ops,
                             .state = &states[i]};
        snprintf(out[i].name, sizeof out[i].name, "simt:%d", kinds[i].warp);
        snprintf(out[i].model, sizeof out[i].model, "SIMT executor, %d lanes per warp", kinds[i].warp);
        snprintf(out[i].features, sizeof out[i].features, "simt%d", kinds[i].warp);
        snprintf(out[i].arch, sizeof out[i].arch, "%s", kinds[i].arch);
    }
    return n;
}
