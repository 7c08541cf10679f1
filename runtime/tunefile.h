/* tunefile.h: tuning files, shared by the runtime, which reads them, and the tq command, which writes them.
 *
 * Tab-separated text, one file per device, one row per measurement:
 *   # tq-tuning 1
 *   # device AMD EPYC 9654
 *   variant  key  n_kv_heads  n_kv  batch  threads  median_ns  spread  verified  max_err
 * A row counts only where its variant exists in this build with the same key; other rows are kept but not used. */
#ifndef TQ_TUNEFILE_H
#define TQ_TUNEFILE_H

#include "tq.h"

enum { TQ_TUNE_NAME = 192 };

typedef struct tq_tune_row {
    char variant[TQ_TUNE_NAME];
    uint64_t key;                         /* tq_variant_info.key at the time of the measurement */
    int n_kv_heads, n_kv, batch, threads; /* with variant and key, what was measured */
    double median_ns;                     /* of one launch */
    double spread;                        /* interquartile range / median */
    int verified;                         /* 1: agreed with the reference before it was timed */
    double max_err;                       /* largest error against the reference, in units of the tolerance */
} tq_tune_row;

typedef struct tq_tune_file {
    char model[TQ_TUNE_NAME]; /* tq_device_model() of the device measured */
    tq_tune_row *rows;
    int n_rows;
} tq_tune_file;

/* TQ_ERR_IO if it cannot be read, TQ_ERR_FILE_FORMAT if it is corrupt or foreign; *out is then empty. */
tq_status tq_tunefile_read(const char *path, tq_tune_file *out);
void tq_tunefile_free(tq_tune_file *file);

/* Merges rows into what path holds (a row replaces the one of equal variant, key, n_kv_heads, n_kv, batch and threads),
 * writes a temporary file beside it and renames. Refuses a file that is corrupt, foreign or of another device model. */
tq_status tq_tunefile_save(const char *path, const char *model, const tq_tune_row *rows, int n_rows);

/* 1 if the row's variant exists in this build and the keys agree. */
int tq_tune_row_is_live(const tq_tune_row *row);

#endif
