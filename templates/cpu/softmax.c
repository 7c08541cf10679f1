/* ${banner} */
/* Attention: what depends on no format. */
#include <math.h>

#include "tq_kernel.h"
#include "vocabulary.h"

/* ---- scores ------------------------------------------------------------------------------------------------------ */

#ifndef TQV_EXP2
/* x[i] = 2^x[i] for x <= 127, relative error 2e-7; 2^-126 below -126. Near-minimax polynomial on [-1/2, 1/2]; step by
 * step for all n <= 4 vectors, since the chain of one is long. */
TQV_INLINE void tqv_exp2(tqv_f32 *x, const int n) {
    static const float TERMS[] = {0x1.3cbf6cp-7f, 0x1.c6af6cp-5f, 0x1.ebfa4ap-3f, 0x1.62e43p-1f, 1.0f};
    tqv_f32 whole[4], y[4];
    TQV_UNROLL for (int i = 0; i < n; i++)
        x[i] = tqv_max(x[i], tqv_set1(-126.0f));
    TQV_UNROLL for (int i = 0; i < n; i++)
        whole[i] = tqv_round(x[i]);
    TQV_UNROLL for (int i = 0; i < n; i++) {
        x[i] = tqv_sub(x[i], whole[i]);
        y[i] = tqv_set1(0x1.5f0896p-10f);
    }
    TQV_UNROLL for (int k = 0; k < 5; k++)
        TQV_UNROLL for (int i = 0; i < n; i++)
            y[i] = tqv_fma(y[i], x[i], tqv_set1(TERMS[k]));
    TQV_UNROLL for (int i = 0; i < n; i++)
        x[i] = tqv_times_2_to(y[i], whole[i]);
}
#endif

/* softcap * tanh(s), through exp2: tanh(s) = 1 - 2 / (e^(2s) + 1) */
static void cap_scores(float *scores, int n, float softcap) {
    const tqv_f32 one = tqv_set1(1.0f), two = tqv_set1(2.0f), top = tqv_set1(126.0f), log2e2 = tqv_set1(2.885390082f);
    for (int i = 0; i < n; i += TQV_LANES) {
        tqv_f32 e = tqv_min(tqv_mul(tqv_load(scores + i), log2e2), top);
        tqv_exp2(&e, 1);
        const tqv_f32 t = tqv_sub(one, tqv_div(two, tqv_add(e, one)));
        tqv_store(scores + i, tqv_mul(tqv_set1(softcap), t));
    }
}

/* ALiBi: the first of n keys stands `distance` behind the query. */
static void add_alibi(float slope, int distance, int n, float *scores) {
    for (int i = 0; i < n; i++)
        scores[i] += slope * (float)(distance + i);
}

