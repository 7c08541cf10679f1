/* bias.h: the score bias of tq.h. At position j, with i = j % 32, it is the sum over pairs of a C(i) + b S(i): C and S are halves
 * of a table, and a and b are what the position j - i makes of the coefficients alpha and beta.
 *
 * A warp turns them anew for each of its steps, a lane those of one pair for every (warp / pairs)-th head, and passes them on
 * through shared memory: as floats for dot products, where a lane is a key, or as halves and what rounding left for matrix
 * products. The table lies in shared memory, too.
 *
 * Of all that follows: pairs is 8, 16 or 32, those behind p->bias.n_pairs without coefficients; heads is their number (of
 * prefill, that of the columns of a warp, which stand for queries, too). */
#ifndef TQG_BIAS_H
#define TQG_BIAS_H

#define TQB_RUN 32 /* positions that share turned coefficients */
#define TQB_RUNS (TQG_WARP / TQB_RUN) /* of a step of a warp's lanes */
#define TQB_ITEMS(heads, pairs) (((heads) * (pairs) + TQG_WARP - 1) / TQG_WARP)
#define TQB_MOST TQB_ITEMS(TQG_WARP / 2, 32)
#define TQB_TURNS 8 /* of an angle from step to step, before it is computed anew */

/* ---- angles ------------------------------------------------------------------------------------------------------- */

/* angle: 2^32 is a full turn. The nearest quarter, then polynomials. */
TQG_FN void tqb_cos_sin(tqg_u32 angle, float *cosine, float *sine) {
    const tqg_u32 quarter = (angle + 0x20000000u) >> 30;
    const float x = (float)(tqg_i32)(angle - (quarter << 30)) * 0x1.921fb6p-30f, z = x * x;
    const float in_c = tqg_fma(z, tqg_fma(z, 0x1.99eb9cp-16f, -0x1.6c0c34p-10f), 0x1.55554ap-5f);
    const float in_s = tqg_fma(z, tqg_fma(z, -0x1.9943f2p-13f, 0x1.11073cp-7f), -0x1.555546p-3f);
    const float c = tqg_fma(z, tqg_fma(z, in_c, -0.5f), 1.0f), s = tqg_fma(x * z, in_s, x);
    *cosine = tqg_float(tqg_bits(quarter & 1 ? s : c) ^ ((quarter + 1) & 2) << 30);
    *sine = tqg_float(tqg_bits(quarter & 1 ? c : s) ^ (quarter & 2) << 30);
}

/* Coefficients of what cosine and sine turn those of a position to: a later one's. */
typedef struct tqb_pair {
    float a, b;
} tqb_pair;

TQG_FN tqb_pair tqb_turned(float alpha, float beta, float cosine, float sine) {
    tqb_pair x;
    x.a = tqg_fma(alpha, cosine, beta * sine);
    x.b = tqg_fma(beta, cosine, -(alpha * sine));
    return x;
}

/* C and S of place i of a run. */
TQG_FN tqg_u32 tqb_table_at(const tqg_bias *bias, int pair, int i) {
    if (pair >= bias->n_pairs)
        return 0;
    const tqg_u16 *of_pair = bias->table + pair * (2 * TQB_RUN);
    return of_pair[i] | (tqg_u32)of_pair[TQB_RUN + i] << 16;
}

/* What one pair adds to the score at a position, in units of the coefficients of its head. */
TQG_FN float tqb_term(const tqg_bias *bias, const float *coefficients, int pair, int position) {
    if (pair >= bias->n_pairs)
        return 0.0f;
    float cosine, sine;
    tqb_cos_sin(bias->turns[pair] * (tqg_u32)(position / TQB_RUN * TQB_RUN), &cosine, &sine);
    const tqb_pair x = tqb_turned(coefficients[2 * pair], coefficients[2 * pair + 1], cosine, sine);
    const tqg_u32 at = tqb_table_at(bias, pair, position % TQB_RUN);
    return tqg_fma(x.a, tqg_h2_lo(at), x.b * tqg_h2_hi(at));
}

/* ---- a lane's coefficients ---------------------------------------------------------------------------------------- */

typedef struct tqb_lane {
    int pair, first;
    tqg_u32 turns;
    float cosine, sine;         /* from position 0 to the step's */
    float of_step[2], of_run[2]; /* from step to step; from run to run */
    int left;                   /* steps for which of_step does */
    float alpha[TQB_MOST], beta[TQB_MOST];
} tqb_lane;

/* The head that number i of a lane is of. */
TQG_FN int tqb_head(const tqb_lane *of, const int pairs, int i) {
    return of->first + i * (TQG_WARP / pairs);
}

/* Is there such a head? Where lanes have equally many, known without looking. */
TQG_FN int tqb_is_head(const tqb_lane *of, const int heads, const int pairs, int i) {
    return (i + 1) * (TQG_WARP / pairs) <= heads || tqb_head(of, pairs, i) < heads;
}

TQG_FN void tqb_begin(const tqg_bias *bias, const int pairs, tqb_lane *of) {
    of->pair = tqg_lane() % pairs;
    of->first = tqg_lane() / pairs;
    of->turns = of->pair < bias->n_pairs ? bias->turns[of->pair] : 0;
    tqb_cos_sin(of->turns * TQB_RUN, &of->of_run[0], &of->of_run[1]);
    of->left = 0;
}

/* To a position. */
TQG_FN void tqb_turn(tqb_lane *of, int position) {
    tqb_cos_sin(of->turns * (tqg_u32)position, &of->cosine, &of->sine);
}
/* For tqb_turn_on: positions that steps are apart. */
TQG_FN void tqb_stride(tqb_lane *of, int stride) {
    tqb_cos_sin(of->turns * (tqg_u32)stride, &of->of_step[0], &of->of_step[1]);
}
/* To the position of the next step. */
TQG_FN void tqb_turn_on(tqb_lane *of, int position) {
    if (of->left == 0) {
        tqb_turn(of, position);
        of->left = TQB_TURNS;
    } else {
        const float cosine = of->cosine;
        of->cosine = tqg_fma(cosine, of->of_step[0], -(of->sine * of->of_step[1]));
        of->sine = tqg_fma(of->sine, of->of_step[0], cosine * of->of_step[1]);
    }
    of->left--;
}

/* Number i, times factor; coefficients: of its head, NULL: none. */
TQG_FN void tqb_take(const tqg_bias *bias, const float *coefficients, float factor, int i, tqb_lane *of) {
    of->alpha[i] = of->beta[i] = 0.0f;
    if (coefficients && of->pair < bias->n_pairs) {
        of->alpha[i] = coefficients[2 * of->pair] * factor;
        of->beta[i] = coefficients[2 * of->pair + 1] * factor;
    }
}

/* All, of which the first n heads are there; coefficients: of the first one. */
TQG_FN void tqb_load(const tqg_bias *bias, const float *coefficients, const int heads, int n, const int pairs, float factor,
                     tqb_lane *of) {
    tqb_begin(bias, pairs, of);
    TQG_UNROLL
    for (int i = 0; i < TQB_ITEMS(heads, pairs); i++) {
        const int head = tqb_head(of, pairs, i);
        tqb_take(bias, head < n ? coefficients + (tqg_i64)head * bias->head_stride : 0, factor, i, of);
    }
}

TQG_FN void tqb_scale(const int heads, const int pairs, float factor, tqb_lane *of) {
    TQG_UNROLL
    for (int i = 0; i < TQB_ITEMS(heads, pairs); i++) {
        of->alpha[i] *= factor;
        of->beta[i] *= factor;
    }
}

/* Number i, turned to a run of the step. */
TQG_FN tqb_pair tqb_of_run(const tqb_lane *of, int i, const int run) {
    tqb_pair x = tqb_turned(of->alpha[i], of->beta[i], of->cosine, of->sine);
    TQG_UNROLL
    for (int r = 0; r < run; r++)
        x = tqb_turned(x.a, x.b, of->of_run[0], of->of_run[1]);
    return x;
}

/* The largest magnitude that they can be turned to, over the warp. */
TQG_FN float tqb_largest(const tqb_lane *of, const int heads, const int pairs) {
    float most = 0.0f;
    TQG_UNROLL
    for (int i = 0; i < TQB_ITEMS(heads, pairs); i++)
        most = tqg_max(most, tqg_abs(of->alpha[i]) + tqg_abs(of->beta[i]));
    TQG_UNROLL
    for (int mask = TQG_WARP / 2; mask > 0; mask /= 2)
        most = tqg_max(most, tqg_shfl_xor(most, mask));
    return most;
}

/* ---- for dot products --------------------------------------------------------------------------------------------- */

/* Turned to the runs of a step to shared memory, [run][heads][pairs][2] floats; warp barriers before and behind are the
 * caller's. */
TQG_FN void tqb_pass(const tqb_lane *of, const int runs, const int heads, const int pairs, tqg_u32 *to) {
    TQG_UNROLL
    for (int i = 0; i < TQB_ITEMS(heads, pairs); i++) {
        const int head = tqb_head(of, pairs, i);
        TQG_UNROLL
        for (int run = 0; run < runs; run++) {
            const tqb_pair x = tqb_of_run(of, i, run);
            if (tqb_is_head(of, heads, pairs, i)) {
                tqg_u32 *at = to + ((run * heads + head) * pairs + of->pair) * 2;
                at[0] = tqg_bits(x.a);
                at[1] = tqg_bits(x.b);
            }
        }
    }
}

/* C and S as [pairs][2][place in a run]. */
TQG_FN void tqb_table(const tqg_bias *bias, const int pairs, int threads, float *table) {
    for (int i = tqg_thread(); i < pairs * TQB_RUN; i += threads) {
        const tqg_u32 at = tqb_table_at(bias, i / TQB_RUN, i % TQB_RUN);
        float *to = table + i / TQB_RUN * (2 * TQB_RUN) + i % TQB_RUN;
        to[0] = tqg_h2_lo(at);
        to[TQB_RUN] = tqg_h2_hi(at);
    }
}

/* Adds the bias of the lane's key to the scores of all heads. */
TQG_FN void tqb_add(const tqg_u32 *turned, const int heads, const int pairs, const float *table, float *score) {
    turned += tqg_lane() / TQB_RUN * (heads * pairs * 2);
    table += tqg_lane() % TQB_RUN;
    TQG_UNROLL
    for (int pair = 0; pair < pairs; pair += 2) {
        float key[4];
        TQG_UNROLL
        for (int i = 0; i < 4; i++)
            key[i] = table[(2 * pair + i) * TQB_RUN];
        TQG_UNROLL
        for (int head = 0; head < heads; head++) {
            const tqg_u4 x = *(const tqg_u4 *)(turned + (head * pairs + pair) * 2);
            score[head] = tqg_fma(key[0], tqg_float(x.x), score[head]);
            score[head] = tqg_fma(key[1], tqg_float(x.y), score[head]);
            score[head] = tqg_fma(key[2], tqg_float(x.z), score[head]);
            score[head] = tqg_fma(key[3], tqg_float(x.w), score[head]);
        }
    }
}

#endif
