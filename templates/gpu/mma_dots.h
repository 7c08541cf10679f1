/* Products of matrices where no instruction computes them: by dot products of halves. D[16 x N] += A[16 x 16] B[16 x N], as in
 * docs/gpu_kernels.md, where a lane has rows g and g + 8 of A and D, g = lane % 8, and four columns, lane / 8 and then every
 * (N / 4)th. Registers hold pairs of k, 0 to 7, of which the product only asks that A and B agree on them. */
#ifndef TQG_MMA_DOTS_H
#define TQG_MMA_DOTS_H
#ifdef TQG_MATRIX_NONE

#define TQG_MMA_N (TQG_WARP / 2)
#define TQG_MMA_A 16 /* [pair / 4][row][pair % 4] */
#define TQG_MMA_B 32 /* [pair / 4][column][pair % 4] */
#define TQG_MMA_C 8  /* [row][column] */

enum { TQM_DOT_ROWS = 2, TQM_DOT_COLUMNS = 4 }; /* of a lane */

TQG_FN void tqg_mma_f16(float *c, const tqg_u32 *a, const tqg_u32 *b) {
    TQG_UNROLL
    for (int pair = 0; pair < 8; pair++) {
        const tqg_u32 *const a_of = a + pair / 4 * (TQG_MMA_A / 2) + pair % 4;
        const tqg_u32 *const b_of = b + pair / 4 * (TQG_MMA_B / 2) + pair % 4;
        TQG_UNROLL
        for (int i = 0; i < TQG_MMA_C; i++)
            c[i] = tqg_dot2(a_of[i / TQM_DOT_COLUMNS * 4], b_of[i % TQM_DOT_COLUMNS * 4], c[i]);
    }
}

/* What a lane has of the B operand of which D becomes k: pair g, keys g and g + 8, of its columns. */
TQG_FN void tqg_c_to_b(const float *c, tqg_u32 *own) {
    TQG_UNROLL
    for (int i = 0; i < TQM_DOT_COLUMNS; i++)
        own[i] = tqg_h2(c[i], c[TQM_DOT_COLUMNS + i]);
}
/* And all of it, from the eight lanes that have the columns. */
TQG_FN void tqm_gather_b(const tqg_u32 *own, tqg_u32 *b) {
    TQG_UNROLL
    for (int i = 0; i < TQM_DOT_COLUMNS; i++) {
        tqg_u32 pairs[8];
        tqg_gather8_u(own[i], pairs);
        TQG_UNROLL
        for (int j = 0; j < 8; j++)
            b[j / 4 * (TQG_MMA_B / 2) + 4 * i + j % 4] = pairs[j];
    }
}

#endif
#endif
