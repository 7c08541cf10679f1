/* gpu_driver.h: what CUDA and HIP devices have in common. device_cuda.c and device_hip.c find their driver library and its
 * devices and spell each step; gpu_driver.c makes the operations of a device of these steps. No vendor header is needed,
 * and no driver: without one there are no devices. */
#ifndef TQ_GPU_DRIVER_H
#define TQ_GPU_DRIVER_H

#include "internal.h"

#include <pthread.h>

/* How a step ended: the driver's error code, 0 for success, and the call that gave it. */
typedef struct tq_gpu_result {
    int code;
    const char *call;
} tq_gpu_result;

struct tq_gpu_driver;
struct tq_gpu_module;

/* tq_device.state */
typedef struct tq_gpu_state {
    const struct tq_gpu_driver *driver;
    int ordinal;   /* the driver's number of the device */
    void *primary; /* CUDA: its primary context, once it was needed */
    pthread_mutex_t lock;
    struct tq_gpu_module *modules; /* loaded so far */
} tq_gpu_state;

/* A thread is in the scope of a device while that device is current for it. */
typedef struct tq_gpu_scope {
    void *context; /* CUDA: the one that is current in the scope; HIP: NULL */
    int previous;  /* for leave. CUDA: 1 if a context was pushed; HIP: the device that was current */
} tq_gpu_scope;

/* The steps. All but enter, leave and error run in a scope. stream NULL: the default stream. */
typedef struct tq_gpu_driver {
    /* context: what is to be current; NULL: what is current if it belongs to the device, else the primary context, which
     * the device keeps from its first use on. */
    tq_gpu_result (*enter)(tq_gpu_state *state, void *context, tq_gpu_scope *scope);
    tq_gpu_result (*leave)(const tq_gpu_scope *scope);
    /* Of contexts that are created one after the other at one address, each has its own. */
    uint64_t (*context_id)(void *context);
    /* The name of an error, and the driver's words for it; "" if it has none. */
    void (*error)(int code, const char **name, const char **words);

    tq_gpu_result (*load)(const void *image, void **module);
    tq_gpu_result (*find)(void *module, const char *symbol, void **function);
    /* Leaves a launch with shared_bytes nothing to do that could allocate or wait. */
    tq_gpu_result (*make_ready)(void *function, int shared_bytes);
    tq_gpu_result (*launch)(void *function, const unsigned grid[3], const tqg_kernel *kernel, void **arguments,
                            void *stream);

    tq_gpu_result (*alloc)(size_t bytes, void **out);
    tq_gpu_result (*free)(void *memory);
    tq_gpu_result (*copy_in)(void *to, const void *host, size_t bytes);
    tq_gpu_result (*copy_out)(void *host, const void *from, size_t bytes);
    tq_gpu_result (*fill)(void *memory, int value, size_t bytes, void *stream);
    tq_gpu_result (*wait_stream)(void *stream);
    tq_gpu_result (*wait_device)(void);

    tq_gpu_result (*event_create)(void **event);
    tq_gpu_result (*event_destroy)(void *event);
    tq_gpu_result (*event_record)(void *event, void *stream);
    tq_gpu_result (*event_elapsed)(void *start, void *stop, float *ms); /* waits for stop */
} tq_gpu_driver;

extern const tq_device_ops tq_gpu_ops;

/* Why a kind has no devices or lacks some, one sentence; "" if it lacks none. */
typedef struct tq_gpu_absence {
    char text[256];
} tq_gpu_absence;

/* NULL of kinds that need no driver. */
const tq_gpu_absence *tq_gpu_absence_of(tq_device_kind kind);
extern tq_gpu_absence tq_cuda_absence, tq_hip_absence;

/* A driver library, by the first of the names (NULL ends them) that this process has loaded already, else the first that
 * can be loaded. NULL: none can, and absence says so. */
void *tq_gpu_open(const char *const *names, const char **found, tq_gpu_absence *absence);
/* function points to a pointer to any function. 0: the library has none of that name, and absence says so. */
int tq_gpu_symbol(void *library, const char *library_name, const char *name, void *function, tq_gpu_absence *absence);
/* 1 if the step failed; absence says so. ordinal -1: it was no step of one device. */
int tq_gpu_missed(const tq_gpu_driver *driver, tq_gpu_result result, int ordinal, tq_gpu_absence *absence);

#endif
