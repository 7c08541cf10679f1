/* ---- score bias -------------------------------------------------------------------------------------------------- */

/* A sum of cosines and sines of the position, see tq_score_bias in tq.h. */

/* sin(2 pi x) for |x| <= 1/4, error 2e-7: near-minimax. */
static inline float sine_of(float x) {
    const float y = x * x;
    float s = 0x1.3e15f6p+5f;
    s = s * y - 0x1.32533cp+6f;
    s = s * y + 0x1.4668fp+6f;
    s = s * y - 0x1.4abbc4p+5f;
    s = s * y + 0x1.921fb6p+2f;
    return s * x;
}

/* Cosine and sine of an angle; 2^32 is a full turn. */
static inline void turn(uint32_t angle, float *cosine, float *sine) {
    const float x = (float)(int32_t)angle * 0x1p-32f, size = fabsf(x);
    *cosine = sine_of(0.25f - size);
    *sine = copysignf(sine_of(0.25f - fabsf(size - 0.25f)), x);
}

/* What the pairs of some heads have at position `run` * TQ_BIAS_STEP, times factor. out: [n_pairs][2][TQ_MAX_GQA]. */
static void start_bias(const tq_bias *bias, float factor, int gqa, int run, float *out) {
    float cosine[TQ_MAX_BIAS_PAIRS], sine[TQ_MAX_BIAS_PAIRS];
    for (int p = 0; p < bias->n_pairs; p++)
        turn(bias->turns[p] * ((uint32_t)run * TQ_BIAS_STEP), cosine + p, sine + p);
    for (int h = 0; h < gqa; h++) {
        const float *from = bias->coefficients + (size_t)h * bias->head_stride;
        for (int p = 0; p < bias->n_pairs; p++) {
            const float alpha = from[2 * p] * factor, beta = from[2 * p + 1] * factor;
            out[2 * p * TQ_MAX_GQA + h] = alpha * cosine[p] + beta * sine[p];
            out[(2 * p + 1) * TQ_MAX_GQA + h] = beta * cosine[p] - alpha * sine[p];
        }
    }
}

enum { BIAS_STRIDE = TQ_MAX_TILE + TQ_BIAS_STEP }; /* steps may begin within a run */

/* Vectors of sums over all pairs, for some positions of a run and `heads` heads. out: [head][BIAS_STRIDE]. */
TQV_INLINE void bias_sums(const int heads, const int vectors, int n_pairs, const uint16_t *table, const float *start,
                          float *out) {
    tqv_f32 sum[4][4];
    TQV_UNROLL for (int h = 0; h < heads; h++)
        TQV_UNROLL for (int i = 0; i < vectors; i++)
            sum[h][i] = tqv_zero();
    for (int p = 0; p < 2 * n_pairs; p++, table += TQ_BIAS_STEP, start += TQ_MAX_GQA) {
        tqv_f32 t[4];
        TQV_UNROLL for (int i = 0; i < vectors; i++)
            t[i] = tqv_from_f16((const uint8_t *)(table + i * TQV_LANES));
        TQV_UNROLL for (int h = 0; h < heads; h++) {
            const tqv_f32 c = tqv_set1(start[h]);
            TQV_UNROLL for (int i = 0; i < vectors; i++)
                sum[h][i] = tqv_fma(c, t[i], sum[h][i]);
        }
    }
    TQV_UNROLL for (int h = 0; h < heads; h++)
        TQV_UNROLL for (int i = 0; i < vectors; i++)
            tqv_store(out + h * BIAS_STRIDE + i * TQV_LANES, sum[h][i]);
}

/* Adds the bias of positions first .. first + n - 1 to scores [gqa][TQ_MAX_TILE]. */
static void add_bias(const tq_bias *bias, float factor, int gqa, int first, int n, float *scores) {
    enum { VECTORS = 2 };
    _Alignas(64) float start[2 * TQ_MAX_BIAS_PAIRS * TQ_MAX_GQA], sums[TQ_MAX_GQA * BIAS_STRIDE];
    const int skipped = first % TQ_BIAS_STEP;
    for (int at = 0; at < skipped + n; at += TQ_BIAS_STEP) {
        start_bias(bias, factor, gqa, (first + at) / TQ_BIAS_STEP, start);
        for (int i = 0; i < TQ_BIAS_STEP; i += VECTORS * TQV_LANES) {
            int h = 0;
            for (; h + 4 <= gqa; h += 4)
                bias_sums(4, VECTORS, bias->n_pairs, bias->table + i, start + h, sums + h * BIAS_STRIDE + at + i);
            for (; h < gqa; h++)
                bias_sums(1, VECTORS, bias->n_pairs, bias->table + i, start + h, sums + h * BIAS_STRIDE + at + i);
        }
    }
    for (int h = 0; h < gqa; h++)
        for (int i = 0; i < n; i++)
            scores[h * TQ_MAX_TILE + i] += sums[h * BIAS_STRIDE + skipped + i];
}

