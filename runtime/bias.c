/* bias.c: the score bias where it is not in a kernel: its table, the first tokens that decode keeps in f16. */
#include "internal.h"

#include <math.h>

_Static_assert((int)TQ_BIAS_RUN == (int)TQ_BIAS_STEP, "kernels and callers cut positions alike");

static const double turn = 0x1p-31 * 3.14159265358979323846;

/* |x| <= 1, to nearest, ties to even. */
static uint16_t half_from_double(double x) {
    int exponent;
    frexp(x, &exponent);
    if (x == 0 || exponent < -13) /* subnormal */
        exponent = -13;
    int bits = (exponent + 13) * 1024 + (int)rint(ldexp(fabs(x), 11 - exponent));
    return (uint16_t)(bits | (signbit(x) ? 0x8000 : 0));
}

tq_status tq_score_bias_table(const uint32_t *turns, int n_pairs, uint16_t *table) {
    static const char call[] = "tq_score_bias_table";
    if (!turns || !table)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: %s is NULL", call, !turns ? "turns" : "table");
    if (n_pairs < 1 || n_pairs > TQ_MAX_BIAS_PAIRS)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: n_pairs is %d; legal is 1 to %d", call, n_pairs, TQ_MAX_BIAS_PAIRS);
    for (int p = 0; p < n_pairs; p++, table += 2 * TQ_BIAS_RUN)
        for (uint32_t i = 0; i < TQ_BIAS_RUN; i++) {
            double angle = turn * (uint32_t)(turns[p] * i);
            table[i] = half_from_double(cos(angle));
            table[TQ_BIAS_RUN + i] = half_from_double(sin(angle));
        }
    return TQ_OK;
}

tq_bias tq_bias_of(const tq_score_bias *bias, int sequence, int token, size_t head) {
    if (!bias)
        return (tq_bias){0};
    const float *from = bias->coefficients + (size_t)sequence * bias->seq_stride + (size_t)token * bias->token_stride;
    return (tq_bias){bias->n_pairs,      bias->turns,      bias->table, from + head * bias->head_stride,
                     bias->token_stride, bias->head_stride};
}

float tq_bias_at(const tq_score_bias *bias, int sequence, int head, int position) {
    const float *of_head = tq_bias_of(bias, sequence, 0, (size_t)head).coefficients;
    uint32_t rest = (uint32_t)position % TQ_BIAS_RUN, start = (uint32_t)position - rest;
    double sum = 0;
    for (int p = 0; p < bias->n_pairs; p++) {
        const uint16_t *table = bias->table + (size_t)p * 2 * TQ_BIAS_RUN;
        double angle = turn * (uint32_t)(bias->turns[p] * start), c = cos(angle), s = sin(angle);
        double alpha = (double)of_head[2 * p], beta = (double)of_head[2 * p + 1];
        sum += (alpha * c + beta * s) * (double)tq_half_to_float(table[rest]) +
               (beta * c - alpha * s) * (double)tq_half_to_float(table[TQ_BIAS_RUN + rest]);
    }
    return (float)sum;
}
