/* stub_internal.h: what the stub of either driver is made of. */
#ifndef TQ_STUB_INTERNAL_H
#define TQ_STUB_INTERNAL_H

#include "code_object.h"
#include "stub_driver.h"

#include <stdint.h>

/* Error codes that both drivers number alike. */
enum {
    STUB_OK = 0,
    STUB_INVALID_VALUE = 1,
    STUB_OUT_OF_MEMORY = 2,
    STUB_NO_DEVICE = 100,
    STUB_INVALID_DEVICE = 101,
    STUB_INVALID_IMAGE = 200,
    STUB_INVALID_CONTEXT = 201,
    STUB_NO_BINARY = 209,
    STUB_INVALID_HANDLE = 400,
    STUB_NOT_FOUND = 500,
    STUB_CAPTURE_UNSUPPORTED = 900,
};

/* Where a call runs: context NULL on HIP. */
typedef struct stub_place {
    int device;
    const void *context;
} stub_place;

typedef struct stub_stream {
    stub_place place;
} stub_stream;

typedef struct stub_event {
    stub_place place;
    int alive, recorded;
} stub_event;

typedef struct stub_module {
    stub_place place;
    code_object object;
} stub_module;

typedef struct stub_function {
    const stub_module *module;
    const code_kernel *kernel;
    unsigned dynamic_limit; /* of shared memory */
    int loaded;             /* in full; else the first launch does it */
} stub_function;

extern stub_state stub;
extern _Thread_local int stub_last_error;

/* Every call begins with the first, which takes the lock and returns 0, or returns what the call is to give; and ends with
 * the second, which gives the lock back and returns its argument. */
enum { NOT_IN_CAPTURES = 0, CAPTURABLE = 1 };
int stub_begin(const char *call, int capturable);
int stub_end(int code);
void stub_violate(const char *format, ...);

/* How many devices there are. For programs that do not know of stubs, $TQ_STUB_ARCH, if it begins as the driver's
 * architectures do, is one. */
int stub_count_devices(const char *prefix);

/* In between: */
int stub_load(stub_place place, const void *image, void **out);
int stub_find(const void *module, const char *symbol, unsigned shared_limit, int loaded, void **out);
int stub_limit_shared(void *function, int bytes);
int stub_load_function(void *function);
int stub_run(stub_place place, const void *function, const unsigned grid[3], const unsigned threads[3], unsigned shared,
             const void *stream, void **arguments);
int stub_alloc(int device, size_t bytes, uintptr_t *out);
int stub_free(uintptr_t memory);
void *stub_host_address(const void *device_address, size_t bytes);
/* Either side may be device memory; the other is the host's. */
int stub_copy_in(uintptr_t to, const void *from, size_t bytes);
int stub_copy_out(void *to, uintptr_t from, size_t bytes);
int stub_fill(uintptr_t memory, int value, size_t bytes);
/* NULL is every place's default stream. */
int stub_check_stream(stub_place place, const void *stream);
void *stub_new_stream(stub_place place);
int stub_event_new(stub_place place, void **out);
int stub_event_free(void *event);
int stub_event_record(stub_place place, void *event, const void *stream);
int stub_event_wait(const void *event);
int stub_event_elapsed(const void *start, const void *stop, float *ms);

#endif
