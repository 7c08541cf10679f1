/* ---- score bias -------------------------------------------------------------------------------------------------- */

/* A sum of cosines and sines of the position, see tq_score_bias in tq.h. */

/* Of angles, where 2^32 is a full turn; error 2e-7: near-minimax for sin(2 pi x), |x| <= 1/4. */
TQV_INLINE tqv_f32 cosine_of(tqv_bits angles) {
    static const float TERMS[] = {-0x1.32533cp+6f, 0x1.4668fp+6f, -0x1.4abbc4p+5f, 0x1.921fb6p+2f};
    const tqv_f32 turns = tqv_mul(tqv_from_i32(angles), tqv_set1(0x1p-32f));
    const tqv_f32 x = tqv_sub(tqv_set1(0.25f), tqv_abs(turns)), square = tqv_mul(x, x);
    tqv_f32 sine = tqv_set1(0x1.3e15f6p+5f);
    TQV_UNROLL for (int k = 0; k < 4; k++)
        sine = tqv_fma(sine, square, tqv_set1(TERMS[k]));
    return tqv_mul(sine, x);
}

enum { PAIRS = TQ_MAX_BIAS_PAIRS };

/* A bias as floats: the table, by what angles go on from one run to the next, [cosine, sine][PAIRS], and alpha and beta times
 * factor, [head][2][PAIRS], whole vectors. */
typedef struct bias_floats {
    _Alignas(64) float table[PAIRS * 2 * TQ_BIAS_STEP], run[2 * PAIRS], coefficients[TQ_MAX_GQA * 2 * PAIRS];
} bias_floats;

/* Of all pairs at a position. out: [cosine, sine][PAIRS] */
static void cosines_at(const tq_bias *bias, int position, float *out) {
    uint32_t angles[PAIRS] = {0};
    for (int p = 0; p < bias->n_pairs; p++)
        angles[p] = bias->turns[p] * (uint32_t)position;
    for (int p = 0; p < bias->n_pairs; p += TQV_LANES) {
        const tqv_bits angle = tqv_bload(angles + p);
        tqv_store(out + p, cosine_of(angle));
        tqv_store(out + PAIRS + p, cosine_of(tqv_sub32(angle, tqv_bset1(1 << 30))));
    }
}

static void load_bias_table(const tq_bias *bias, bias_floats *out) {
    for (int i = 0; i < bias->n_pairs * 2 * TQ_BIAS_STEP; i += TQV_LANES)
        tqv_store(out->table + i, tqv_from_f16((const uint8_t *)(bias->table + i)));
    cosines_at(bias, TQ_BIAS_STEP, out->run);
}

static void load_bias_coefficients(const tq_bias *bias, float factor, int gqa, bias_floats *out) {
    for (int h = 0; h < gqa; h++) {
        const float *from = bias->coefficients + (size_t)h * bias->head_stride;
        float *alpha = out->coefficients + 2 * h * PAIRS, *beta = alpha + PAIRS;
        for (int p = 0; p < bias->n_pairs; p++) {
            alpha[p] = from[2 * p] * factor;
            beta[p] = from[2 * p + 1] * factor;
        }
        for (int p = bias->n_pairs; p % TQV_LANES; p++)
            alpha[p] = beta[p] = 0.0f;
    }
}

/* What the pairs of some heads have where their angles are larger by those of `cosines`, as coefficients. */
static void turn_pairs(int n_pairs, int gqa, const float *cosines, const float *from, float *to) {
    for (int p = 0; p < n_pairs; p += TQV_LANES) {
        const tqv_f32 cosine = tqv_load(cosines + p), sine = tqv_load(cosines + PAIRS + p);
        for (int i = p; i < 2 * gqa * PAIRS; i += 2 * PAIRS) {
            const tqv_f32 alpha = tqv_load(from + i), beta = tqv_load(from + PAIRS + i);
            tqv_store(to + i, tqv_fma(alpha, cosine, tqv_mul(beta, sine)));
            tqv_store(to + PAIRS + i, tqv_sub(tqv_mul(beta, cosine), tqv_mul(alpha, sine)));
        }
    }
}

enum { BIAS_STRIDE = TQ_MAX_TILE + TQ_BIAS_STEP }; /* steps may begin within a run */

/* Adds sums over all pairs, for `vectors` vectors of positions of a run and `heads` heads. Of a single head, those of cosines
 * and of sines are apart: one chain would wait for itself. out: [head][stride]. */
TQV_INLINE void bias_sums(const int heads, const int vectors, int n_pairs, const float *table, const float *start,
                          float *out, int stride) {
    const int chains = heads == 1 ? 2 : 1;
    tqv_f32 sum[4][2][4];
    TQV_UNROLL for (int h = 0; h < heads; h++)
        TQV_UNROLL for (int i = 0; i < vectors; i++) {
            sum[h][0][i] = tqv_load(out + h * stride + i * TQV_LANES);
            sum[h][1][i] = tqv_zero();
        }
    for (int p = 0; p < n_pairs; p++)
        TQV_UNROLL for (int part = 0; part < 2; part++, table += TQ_BIAS_STEP) { /* cosine, sine */
            tqv_f32 t[4];
            TQV_UNROLL for (int i = 0; i < vectors; i++)
                t[i] = tqv_load(table + i * TQV_LANES);
            TQV_UNROLL for (int h = 0; h < heads; h++) {
                const tqv_f32 c = tqv_set1(start[(2 * h + part) * PAIRS + p]);
                TQV_UNROLL for (int i = 0; i < vectors; i++)
                    sum[h][part % chains][i] = tqv_fma(c, t[i], sum[h][part % chains][i]);
            }
        }
    TQV_UNROLL for (int h = 0; h < heads; h++)
        TQV_UNROLL for (int i = 0; i < vectors; i++)
            tqv_store(out + h * stride + i * TQV_LANES, chains == 2 ? tqv_add(sum[h][0][i], sum[h][1][i]) : sum[h][0][i]);
}

/* All positions of a run for `heads` heads, as many vectors at a time as there are registers for. */
TQV_INLINE void bias_of_run(const int heads, int n_pairs, const float *table, const float *start, float *out, int stride) {
    const int all = TQ_BIAS_STEP / TQV_LANES, vectors = heads == 1 && all > 2 ? 4 : 2;
    for (int i = 0; i < TQ_BIAS_STEP; i += vectors * TQV_LANES)
        bias_sums(heads, vectors, n_pairs, table + i, start, out + i, stride);
}

/* Adds the bias of positions first .. first + n - 1 to scores [gqa][TQ_MAX_TILE]. Where they begin with a run, sums grow in
 * place, up to the end of the last run. */
static void add_bias(const tq_bias *bias, const bias_floats *floats, int gqa, int first, int n, float *scores) {
    _Alignas(64) float start[TQ_MAX_GQA * 2 * PAIRS], sums[TQ_MAX_GQA * BIAS_STRIDE], cosines[2 * PAIRS];
    const int skipped = first % TQ_BIAS_STEP, stride = skipped ? (int)BIAS_STRIDE : (int)TQ_MAX_TILE;
    const float *by = cosines, *from = floats->coefficients;
    float *to = skipped ? sums : scores;
    if (skipped)
        memset(sums, 0, (size_t)(gqa * BIAS_STRIDE) * sizeof *sums);
    cosines_at(bias, first - skipped, cosines);
    for (int at = 0; at < skipped + n; at += TQ_BIAS_STEP) {
        int h = 0;
        turn_pairs(bias->n_pairs, gqa, by, from, start);
        by = floats->run;
        from = start;
        for (; h + 4 <= gqa; h += 4)
            bias_of_run(4, bias->n_pairs, floats->table, start + 2 * h * PAIRS, to + h * stride + at, stride);
        for (; h < gqa; h++)
            bias_of_run(1, bias->n_pairs, floats->table, start + 2 * h * PAIRS, to + h * stride + at, stride);
    }
    for (int h = 0; skipped && h < gqa; h++, scores += TQ_MAX_TILE) {
        const float *more = sums + h * BIAS_STRIDE + skipped;
        int i = 0;
        for (; i + TQV_LANES <= n; i += TQV_LANES)
            tqv_store(scores + i, tqv_add(tqv_load(scores + i), tqv_load(more + i)));
        for (; i < n; i++)
            scores[i] += more[i];
    }
}
