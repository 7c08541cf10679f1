/* gpu_support.h: what tests of the GPU loading path share: the stub drivers as vendors, registries for them, and a program
 * that uses everything once. */
#ifndef TQ_GPU_TEST_SUPPORT_H
#define TQ_GPU_TEST_SUPPORT_H

#include "gpu_driver.h"
#include "stub_driver.h"
#include "support.h"

typedef struct driver_error {
    int code;
    const char *name;
} driver_error;

typedef struct vendor {
    const char *name;    /* "cuda": devices are cuda:0, ... */
    const char *library; /* what libtq opens */
    tq_device_kind kind;
    const char *load, *launch, *alloc, *wait; /* names of calls */
    const driver_error *errors;
    int n_errors;
    int n_devices;
    stub_device devices[STUB_MAX_DEVICES];
    const char *targets[2]; /* of two registries */
    const stub_driver *stub;
} vendor;

enum { CUDA, HIP, N_VENDORS };
extern vendor vendors[N_VENDORS];

/* Opens the stub libraries and gives them their devices. Before libtq looks for any; 1 if a library is no stub. */
int open_stubs(void);

/* Adds the vendor's registries to libtq: each has one variant per op, of the format at_format at head_dim 128, with
 * kernels "tqk_<op>" of two modules. */
void add_registries(const vendor *v);
const tq_registry *registry_of(const vendor *v, int which);
/* Bytes of the params of an op. */
size_t params_bytes(tq_op op);

const tq_device *device_of(const vendor *v, int ordinal);
/* How often a call was made since count was 0; clear with state->n_calls = 0. */
int count_calls(const vendor *v, const char *call);

/* What a program needs that decodes on one device: plan, workspace, arrays in device memory. */
enum { N_KV_HEADS = 3, GQA = 2, HEAD_DIM = 128, BATCH = 2, N_SLOTS = 64 };

typedef struct session {
    const tq_device *device;
    tq_plan *plan;
    tq_timer *timer;
    tq_cache cache;
    tq_decode_args args;
    tq_launch launch;
    void *memory[5]; /* cache, q, out, n_kv, workspace */
} session;

tq_status session_begin(session *s, const vendor *v, int ordinal);
/* Launches, waits and copies out. */
tq_status session_run(session *s);
void session_end(session *s);

/* No misuse so far, nothing of the stub's alive but modules, no context left current, no error left behind. */
void assert_clean(const vendor *v);

#endif
