/* appending.h: append variants one by one, each with every scale mode of its format. */
#ifndef TQ_TEST_APPENDING_H
#define TQ_TEST_APPENDING_H

#include "support.h"

typedef struct job {
    const tq_variant *variant;
    const tq_format_spec *format;
    tq_side side;
    tq_scale_mode mode;
    const char *mode_name;
} job;

/* Calls f for every append variant that runs here and every scale mode of its format; of GPU targets some, if there are
 * many. */
void for_each_job(void (*f)(const job *j));

/* Fails the test. */
void wrong(const job *j, const char *what, int row, double found, double expected);

/* Appends n rows of x to exact memory, which the caller frees: fresh rows of the host or, if on_device, what they became
 * behind slots that must stay. */
tq_status append_rows(const job *j, const float *x, const float *mean, int n, buffer *rows);
int on_device(const job *j);
const uint8_t *row_of(const job *j, const buffer *rows, int i);

/* Tiles of GPUs have one scale for all that is rotated together, rows one per block. */
int in_tiles(const job *j);

#endif
