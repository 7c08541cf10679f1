/* check.h: what the checks of all launches share. Each returns TQ_OK, or fails with a message that names the call, the
 * argument, what was found and what is legal. */
#ifndef TQ_CHECK_H
#define TQ_CHECK_H

#include "internal.h"

tq_status tq_check_range(const char *call, const char *what, int64_t found, int64_t low, int64_t high);
tq_status tq_check_pointer(const char *call, const char *what, const void *pointer, size_t align);
/* NULL is fine. */
tq_status tq_check_optional(const char *call, const char *what, const void *pointer, size_t align);

typedef struct tq_dimension {
    const char *what;
    size_t stride;
    int count;
} tq_dimension;

/* A dimension must step over all that lies within it: then no two rows overlap. *extent: in, of one row; out, of all. */
tq_status tq_check_strides(const char *call, const char *of, tq_dimension *dims, int n, const char *unit,
                           size_t *extent);
/* Values that a caller passes by strides. */
tq_status tq_check_values(const char *call, const char *what, const void *pointer, size_t align, tq_dimension *dims,
                          int n, int head_dim);
tq_status tq_check_floats(const char *call, const char *what, const float *pointer, tq_dimension *dims, int n,
                          int head_dim);

/* What lies in a cache. */
typedef struct tq_unit {
    size_t bytes;
    int keys;
} tq_unit;

tq_unit tq_row_of_bytes(int bytes);
tq_unit tq_unit_of(const tq_plan *plan, const tq_format_spec *format);
/* For reading, seq_stride 0 lets all sequences share one cache. */
tq_status tq_check_cache(const char *call, const char *what, const tq_plan *plan, const tq_cache *cache, tq_unit unit,
                         int batch, int reading);
/* On the CPU: do the pages of slots first .. end-1 of a sequence lie in the buffer? */
tq_status tq_check_page_numbers(const char *call, const char *what, const tq_plan *plan, const tq_cache *cache,
                                tq_unit unit, int sequence, int first, int end);

tq_status tq_check_launch(const char *call, tq_op op, const tq_plan *plan, const void *args, const tq_launch *launch);
tq_status tq_check_batch(const char *call, const tq_plan *plan, int batch);

#endif
