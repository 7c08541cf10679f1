/* The score bias as k steps of S, 8 pairs each: A are C and S of the keys, B the turned coefficients. See bias.h and mma.h.
 *
 * B is passed on as words [run][column][TQM_BIAS_STRIDE]: halves in the columns of their heads; what rounding left, times 2^11,
 * in the columns beside them where a head has two, else, as it is, in columns of their own behind all others. runs: of a step
 * of the kernel. */
#ifndef TQG_MMA_BIAS_H
#define TQG_MMA_BIAS_H

#define TQM_BIAS_STRIDE(pairs) ((pairs) == 8 ? 8 : (pairs) + 8) /* without bank conflicts */
#define TQM_BIAS_COLUMNS(groups, each) ((3 - (each)) * (groups) * TQG_MMA_N)

/* A of the two blocks of keys of a run: [block][k step][lane][register]. */
TQG_FN void tqm_bias_table(const tqg_bias *bias, const int pairs, int threads, tqg_u32 *table) {
    for (int i = tqg_thread(); i < TQB_RUN * pairs; i += threads) {
        const int r = i % TQG_MMA_A, lane = i / TQG_MMA_A % TQM_A_LANES, step = i / (TQG_MMA_A * TQM_A_LANES);
        const int block = step / (pairs / 8), first = 8 * (step % (pairs / 8));
#if defined(TQG_MATRIX_MMA)
        const int key = lane / 4 + 8 * (r & 1), pair = 2 * (lane % 4) + (r >> 1);
#elif defined(TQG_MATRIX_NONE)
        const int key = lane + 8 * (r >> 2 & 1), pair = 4 * (r >> 3) + (r & 3);
#else
        const int key = lane % 16, pair = TQG_MMA_A * (lane / 16) + r;
#endif
        table[i] = tqb_table_at(bias, first + pair, 16 * block + key);
    }
}

/* Words of columns without a head, once. */
TQG_FN void tqm_bias_clear(int n, tqg_u32 *words) {
    for (int i = tqg_lane(); i < n; i += TQG_WARP)
        words[i] = 0;
}

/* Coefficients turned to the runs of a tile, as B. */
TQG_FN void tqm_bias_pass(const tqb_lane *of, const int runs, const int groups, const int each, const int heads, const int pairs,
                          tqg_u32 *words) {
    const int columns = TQM_BIAS_COLUMNS(groups, each), stride = TQM_BIAS_STRIDE(pairs);
    TQG_UNROLL
    for (int run = 0; run < runs; run++) {
        TQG_UNROLL
        for (int i = 0; i < TQB_ITEMS(heads, pairs); i++) {
            const int head = tqb_head(of, pairs, i);
            const tqb_pair x = tqb_of_run(of, i, run);
            const tqg_u32 half = tqg_h2(x.a, x.b);
            const float unit = each == 2 ? 0x1p11f : 1.0f;
            const tqg_u32 left = tqg_h2((x.a - tqg_h2_lo(half)) * unit, (x.b - tqg_h2_hi(half)) * unit);
            if (tqb_is_head(of, heads, pairs, i)) {
                tqg_u32 *to = words + (run * columns + each * head) * stride + of->pair;
                to[0] = half;
                to[(each == 2 ? 1 : groups * TQG_MMA_N) * stride] = left;
            }
        }
    }
}

/* n words, 2 or a multiple of 4, of shared memory. */
TQG_FN void tqm_bias_read(const tqg_u32 *from, const int n, tqg_u32 *x) {
    if (n == 2)
        tqm_read8(from, x);
    TQG_UNROLL
    for (int i = 0; i < n / 4; i++)
        tqm_read16(1, (const unsigned char *)(from + 4 * i), x + 4 * i);
}

/* Adds the bias to s [group][block of keys][TQG_MMA_C]; blocks: of a run that are there, 2, or one that the table begins with. */
TQG_FN void tqm_bias_add(const int runs, const int blocks, const int groups, const int each, const int pairs, const tqg_u32 *table,
                         const tqg_u32 *words, float *s) {
    const int columns = TQM_BIAS_COLUMNS(groups, each), stride = TQM_BIAS_STRIDE(pairs);
    TQG_UNROLL
    for (int step = 0; step < pairs / 8; step++) {
        TQG_UNROLL
        for (int run = 0; run < runs; run++) {
            tqg_u32 b[4][TQG_MMA_B];
            TQG_UNROLL
            for (int i = 0; i < columns / TQG_MMA_N; i++) {
#ifdef TQG_MATRIX_NONE
                TQG_UNROLL
                for (int j = 0; j < TQG_MMA_B / 4; j++)
                    tqm_bias_read(words + (run * columns + i * TQG_MMA_N + tqm_c_column(j % 4)) * stride + 8 * step + j / 4 * 4,
                                  4, b[i] + 4 * j);
#else
                tqm_bias_read(words + (run * columns + i * TQG_MMA_N + tqm_b_column()) * stride + 8 * step +
                                  TQG_MMA_B * tqm_k_lane(), TQG_MMA_B, b[i]);
#endif
            }
            TQG_UNROLL
            for (int block = 0; block < blocks; block++) {
                tqg_u32 a[TQG_MMA_A];
                tqm_bias_read(table + ((block * (pairs / 8) + step) * TQM_A_LANES + tqm_a_lane()) * TQG_MMA_A, TQG_MMA_A, a);
                TQG_UNROLL
                for (int i = 0; i < columns / TQG_MMA_N; i++)
                    tqg_mma_f16(s + ((i % groups * runs + run) * blocks + block) * TQG_MMA_C, a, b[i]);
            }
        }
    }
}

#endif
