/* matrix.c: matrix instructions, from the documented places of operands in the registers of a warp. Products are exact, sums
 * are rounded to float in order of k. */
#include "executor.h"

enum { ROWS = 16, MOST_COLUMNS = 16, K = 16, MOST_K = 32 };

/* Row of A or column of B that a register is of, and its first k. */
typedef struct place {
    int at, k;
} place;

/* ---- places ----------------------------------------------------------------------------------------------------- */

/* All of these are evaluated for a constant kind, in the copies of the products below. */
#define SPECIALISED SIMT_UNSEEN static inline __attribute__((always_inline))

SPECIALISED bool is_mma(tq_simt_matrix kind) {
    return kind <= TQ_SIMT_MMA_I8_K32;
}
SPECIALISED bool is_f16(tq_simt_matrix kind) {
    return kind == TQ_SIMT_MMA_F16 || kind == TQ_SIMT_WMMA_F16 || kind == TQ_SIMT_WMMA11_F16 ||
           kind == TQ_SIMT_MFMA_F16;
}
SPECIALISED int k_of(tq_simt_matrix kind) {
    return kind == TQ_SIMT_MMA_I8_K32 || kind == TQ_SIMT_MFMA_I8_K32 ? 32 : 16;
}
SPECIALISED int lanes_of(tq_simt_matrix kind) {
    return kind >= TQ_SIMT_MFMA_F16 ? 64 : 32;
}
/* Lanes that hold different values of A and B. */
SPECIALISED int holders_of(tq_simt_matrix kind) {
    return kind == TQ_SIMT_WMMA11_F16 ? 16 : lanes_of(kind);
}
SPECIALISED int columns_of(tq_simt_matrix kind) {
    return is_mma(kind) ? 8 : 16;
}
/* values per register */
SPECIALISED int width_of(tq_simt_matrix kind) {
    return is_f16(kind) ? 2 : 4;
}
SPECIALISED place place_of_a(tq_simt_matrix kind, int lane, int r) {
    const int width = width_of(kind);
    if (is_mma(kind))
        return (place){lane / 4 + 8 * (r & 1), width * (lane % 4) + 4 * width * (r >> 1)};
    return (place){lane % 16, k_of(kind) * 16 / holders_of(kind) * (lane / 16) + width * r};
}
SPECIALISED place place_of_b(tq_simt_matrix kind, int lane, int r) {
    const int width = width_of(kind);
    return is_mma(kind) ? (place){lane / 4, width * (lane % 4) + 4 * width * r} : place_of_a(kind, lane, r);
}
SPECIALISED int row_of_c(tq_simt_matrix kind, int lane, int r) {
    if (kind == TQ_SIMT_WMMA11_F16)
        return 2 * r + lane / 16;
    return is_mma(kind) ? lane / 4 + 8 * (r >> 1) : ROWS * 16 / lanes_of(kind) * (lane / 16) + r;
}
SPECIALISED int column_of_c(tq_simt_matrix kind, int lane, int r) {
    return is_mma(kind) ? 2 * (lane % 4) + (r & 1) : lane % 16;
}

/* ---- products --------------------------------------------------------------------------------------------------- */

/* Without branches: the exponent is shifted into place by a multiplication, which is exact, subnormals included. */
SPECIALISED void halves_to_floats(float *y, const tqg_u16 *h, int n) {
    for (int i = 0; i < n; i++) {
        const tqg_i32 rest = (h[i] & 0x7fff) << 13, special = rest >= 0x0f800000 ? 0x7f800000 : 0;
        union {
            tqg_i32 bits;
            float value;
        } x = {rest};
        x.value *= 0x1p112f;
        x.bits |= special | (tqg_i32)((tqg_u32)(h[i] & 0x8000) << 16);
        y[i] = x.value;
    }
}

/* Four floats of a row; scalar code where the machine has no vectors. */
typedef float quad __attribute__((vector_size(16), may_alias));

/* c += a b */
SPECIALISED void multiply(float c[ROWS][MOST_COLUMNS], float a[ROWS][MOST_K], float b[MOST_K][MOST_COLUMNS], int n_k,
                          int columns) {
    for (int row = 0; row < ROWS; row++)
        for (int j = 0; j < columns; j += 8) {
            quad *sums = (quad *)(void *)&c[row][j];
            quad low = sums[0], high = sums[1];
            for (int k = 0; k < n_k; k++) {
                const quad *factors = (const quad *)(const void *)&b[k][j];
                low += a[row][k] * factors[0];
                high += a[row][k] * factors[1];
            }
            sums[0] = low;
            sums[1] = high;
        }
}

/* What WMMA of gfx11 counts on. */
SIMT_UNSEEN static void check_halves(const deposit *lanes) {
    for (int lane = 0; lane < 16; lane++)
        for (int r = 0; r < K / 2; r++)
            if (lanes[lane].matrix.a[r] != lanes[lane + 16].matrix.a[r] ||
                lanes[lane].matrix.b[r] != lanes[lane + 16].matrix.b[r])
                tq_simt_fail("operands of lanes %d and %d differ, of which WMMA of gfx11 wants the same", lane,
                             lane + 16);
}

SPECIALISED void multiply_f16(tq_simt_matrix kind, const deposit *lanes) {
    _Alignas(16) float a[ROWS][MOST_K], b[MOST_K][MOST_COLUMNS], c[ROWS][MOST_COLUMNS];
    tqg_u16 halves[MOST_COLUMNS * K];
    const int n_lanes = lanes_of(kind), holders = holders_of(kind), columns = columns_of(kind);
    for (int lane = 0; lane < holders; lane++)
        for (int r = 0; r < ROWS * K / 2 / holders; r++) {
            const place p = place_of_a(kind, lane, r);
            halves[p.at * K + p.k] = (tqg_u16)lanes[lane].matrix.a[r];
            halves[p.at * K + p.k + 1] = (tqg_u16)(lanes[lane].matrix.a[r] >> 16);
        }
    for (int row = 0; row < ROWS; row++)
        halves_to_floats(a[row], halves + row * K, K);
    for (int lane = 0; lane < holders; lane++)
        for (int r = 0; r < columns * K / 2 / holders; r++) {
            const place p = place_of_b(kind, lane, r);
            halves[p.k * columns + p.at] = (tqg_u16)lanes[lane].matrix.b[r];
            halves[(p.k + 1) * columns + p.at] = (tqg_u16)(lanes[lane].matrix.b[r] >> 16);
        }
    for (int k = 0; k < K; k++)
        halves_to_floats(b[k], halves + k * columns, columns);
    for (int lane = 0; lane < n_lanes; lane++)
        for (int r = 0; r < ROWS * columns / n_lanes; r++)
            c[row_of_c(kind, lane, r)][column_of_c(kind, lane, r)] = ((const float *)lanes[lane].matrix.c)[r];
    multiply(c, a, b, K, columns);
    for (int lane = 0; lane < n_lanes; lane++)
        for (int r = 0; r < ROWS * columns / n_lanes; r++)
            ((float *)lanes[lane].matrix.c)[r] = c[row_of_c(kind, lane, r)][column_of_c(kind, lane, r)];
}

/* Sums of 32 products of bytes are exact in floats. */
SPECIALISED void multiply_i8(tq_simt_matrix kind, const deposit *lanes) {
    _Alignas(16) float a[ROWS][MOST_K], b[MOST_K][MOST_COLUMNS], c[ROWS][MOST_COLUMNS] = {{0}};
    const int n_lanes = lanes_of(kind), columns = columns_of(kind), n_k = k_of(kind);
    for (int lane = 0; lane < n_lanes; lane++) {
        for (int r = 0; r < ROWS * n_k / 4 / n_lanes; r++) {
            const place p = place_of_a(kind, lane, r);
            for (int i = 0; i < 4; i++)
                a[p.at][p.k + i] = (tqg_i8)(lanes[lane].matrix.a[r] >> 8 * i);
        }
        for (int r = 0; r < columns * n_k / 4 / n_lanes; r++) {
            const place p = place_of_b(kind, lane, r);
            for (int i = 0; i < 4; i++)
                b[p.k + i][p.at] = (tqg_i8)(lanes[lane].matrix.b[r] >> 8 * i);
        }
    }
    multiply(c, a, b, n_k, columns);
    for (int lane = 0; lane < n_lanes; lane++)
        for (int r = 0; r < ROWS * columns / n_lanes; r++)
            ((tqg_i32 *)lanes[lane].matrix.c)[r] += (tqg_i32)c[row_of_c(kind, lane, r)][column_of_c(kind, lane, r)];
}

SIMT_UNSEEN void simt_multiply_lanes(tq_simt_matrix kind, const deposit *lanes) {
    switch (kind) {
    case TQ_SIMT_MMA_F16:
        multiply_f16(TQ_SIMT_MMA_F16, lanes);
        break;
    case TQ_SIMT_WMMA_F16:
        multiply_f16(TQ_SIMT_WMMA_F16, lanes);
        break;
    case TQ_SIMT_WMMA11_F16:
        check_halves(lanes);
        multiply_f16(TQ_SIMT_WMMA11_F16, lanes);
        break;
    case TQ_SIMT_MFMA_F16:
        multiply_f16(TQ_SIMT_MFMA_F16, lanes);
        break;
    case TQ_SIMT_MMA_I8:
        multiply_i8(TQ_SIMT_MMA_I8, lanes);
        break;
    case TQ_SIMT_MMA_I8_K32:
        multiply_i8(TQ_SIMT_MMA_I8_K32, lanes);
        break;
    case TQ_SIMT_WMMA_I8:
        multiply_i8(TQ_SIMT_WMMA_I8, lanes);
        break;
    case TQ_SIMT_MFMA_I8:
        multiply_i8(TQ_SIMT_MFMA_I8, lanes);
        break;
    case TQ_SIMT_MFMA_I8_K32:
        multiply_i8(TQ_SIMT_MFMA_I8_K32, lanes);
        break;
    }
}
