/* stub_driver.h: driver libraries without a device behind them. They have the names and functions of the CUDA driver and of
 * the HIP runtime as far as libtq uses them, keep what they are given, refuse what a real driver would refuse, and fail
 * where they are told to. A test opens the library by its name, as libtq does, and finds stub_control in it.
 *
 * Device addresses are no addresses of this process: whoever follows one traps. */
#ifndef TQ_STUB_DRIVER_H
#define TQ_STUB_DRIVER_H

#include <stddef.h>

enum { STUB_MAX_DEVICES = 8, STUB_MAX_CALLS = 4096, STUB_MAX_LAUNCHES = 256, STUB_MAX_PARAMS = 1024 };

typedef struct stub_device {
    const char *name;
    const char *arch; /* "sm_90", "gfx90a:sramecc+:xnack-" */
    int multiprocessors, shared_bytes;
    size_t memory_bytes;
} stub_device;

typedef struct stub_launch {
    int device;
    const void *context, *stream; /* CUDA: the context that was current; HIP: NULL */
    char symbol[192];
    unsigned grid[3], threads[3], shared_bytes;
    size_t params_bytes; /* as the code object states them */
    unsigned char params[STUB_MAX_PARAMS];
} stub_launch;

typedef struct stub_state {
    /* Before the first call, by the test: */
    int n_devices;
    stub_device devices[STUB_MAX_DEVICES];

    /* At any time: call number fail_at, counted from 0 on, gives fail_code and does nothing; negative: none does. */
    int fail_at, fail_code;
    int capturing; /* as if a stream were being captured: refuses what must not be captured */

    /* What was called: */
    int n_calls;
    const char *calls[STUB_MAX_CALLS];
    int n_launches;
    stub_launch launches[STUB_MAX_LAUNCHES]; /* the latest; number i at i % STUB_MAX_LAUNCHES */

    /* What is alive: */
    int n_allocations, n_modules, n_events;
    int n_retained[STUB_MAX_DEVICES]; /* how often each primary context was retained and not released */

    /* Misuse that a driver does not notice, or that hurts only later; the first in words. */
    int n_violations;
    char violation[256];
} stub_state;

typedef struct stub_driver {
    stub_state *state;
    /* The test as a program that uses the driver itself. CUDA: */
    void *(*create_context)(int device); /* not current */
    void (*destroy_context)(void *context);
    void (*push_context)(void *context);
    void *(*pop_context)(void);
    void *(*current_context)(void);
    int (*context_depth)(void); /* of this thread's stack */
    /* HIP: */
    void (*set_device)(int device);
    int (*get_device)(void);
    int (*last_error)(void); /* that hipGetLastError would give; stays */
    /* Both: a stream of the current context or device, for one launch or all. */
    void *(*create_stream)(void);
    /* Device memory as the host sees it; NULL if that range was not allocated. */
    void *(*host_address)(const void *device_address, size_t bytes);
} stub_driver;

#endif
