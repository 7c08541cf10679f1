/* reference.h: the bytes and the mathematics in double precision, as docs/formats.md states them.
 *
 * Independent of every kernel: it shares only the tables of tq_format_spec with them. Tests, `tq tune` and `tq eval`
 * measure against it. Arguments are those of the public calls and are taken as valid.
 */
#ifndef TQ_REFERENCE_H
#define TQ_REFERENCE_H

#include "tq.h"
#include "tq_kernel.h"

double tq_ref_half_to_double(uint16_t half);
/* Nearest, ties to even; saturates at 65504. */
uint16_t tq_ref_half_from_double(double x);

/* T of one chunk, in place: R_odd (x) H_pow2, symmetric and its own inverse. */
void tq_ref_transform(const tq_chunk *chunk, double *y);

/* What the bytes of one row say, value by value. Formats with rows of plain numbers (f16) have none of this. */
typedef struct tq_ref_codes {
    double scale[TQ_MAX_HEAD_DIM]; /* stored scale that value i shares with its block */
    int index[TQ_MAX_HEAD_DIM];    /* centroid number; of 8-bit formats the signed value itself */
    int gain[TQ_MAX_HEAD_DIM];     /* gain code that value i shares with its sub-block; 0 without gains */
} tq_ref_codes;

void tq_ref_unpack(const tq_format_spec *format, const uint8_t *row, tq_ref_codes *codes);
void tq_ref_pack(const tq_format_spec *format, const tq_ref_codes *codes, uint8_t *row);
/* centroid * gain of value i: an integer; the stored number is scale * step * this. */
int tq_ref_level(const tq_format_spec *format, const tq_ref_codes *codes, int i);
const tq_chunk *tq_ref_chunk_of(const tq_format_spec *format, int i);

/* y = T (signs . (x - mean)), the domain in which values are quantised; mean may be NULL. */
void tq_ref_rotate(const tq_format_spec *format, tq_side side, const float *x, const float *mean, double *y);
/* The way back, in place. */
void tq_ref_unrotate(const tq_format_spec *format, tq_side side, double *y);
void tq_ref_decode_row(const tq_format_spec *format, tq_side side, const uint8_t *row, const float *mean, double *x);
/* Plain encoder: TQ_SCALE_NONE or TQ_SCALE_NC where the format has modes; gains by exhaustive search. */
void tq_ref_encode_row(const tq_format_spec *format, tq_side side, const float *x, const float *mean,
                       tq_scale_mode mode, uint8_t *row);

/* How a kernel computes, which decides the error that it may show. */
typedef enum tq_ref_arithmetic {
    TQ_REF_INTEGERS, /* CPU, decode: codebook formats through 16-bit integers, f16 in float32 */
    TQ_REF_FLOATS,   /* CPU, prefill: all in float32 */
    TQ_REF_HALVES,   /* GPUs: factors and softmax weights in half precision, sums in float32 */
} tq_ref_arithmetic;

typedef struct tq_ref_shape {
    const tq_format_spec *k, *v;
    int n_kv_heads, gqa;
    tq_ref_arithmetic arithmetic;
} tq_ref_shape;

/* Decode attention on the packed cache, and the largest error that a correct kernel may show.
 * out, bound: [batch][n_kv_heads*gqa][head_dim of V]; lse, lse_bound: [batch][n_kv_heads*gqa], or both NULL.
 * args->out and args->lse are not used. Returns 0, or -1 if memory is lacking. */
int tq_ref_attention(const tq_ref_shape *shape, const tq_decode_args *args, double *out, double *bound, double *lse,
                     double *lse_bound);

typedef struct tq_ref_verdict {
    double worst;        /* largest error / bound among finite outputs: at most 1 if all is well */
    double error, power; /* sums of squares: NMSE = error / power */
    size_t worst_at;
    size_t n_outside;    /* finite outputs beyond their bound */
    size_t n_non_finite; /* NaN, or infinite where the reference is not */
} tq_ref_verdict;

/* Adds n outputs to the verdict, which starts as all zeros. */
void tq_ref_judge(size_t n, const float *found, const double *expected, const double *bound, tq_ref_verdict *verdict);

#endif
