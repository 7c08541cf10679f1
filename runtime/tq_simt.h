/* tq_simt.h: what GPU kernels of SIMT targets call: the executor that runs them on the CPU, one fiber per thread of a block.
 * The vocabulary of SIMT targets spells the words of kernel texts in these functions; the generator copies this file beside
 * what it writes. `at` says which word and where, "tqg_ballot at decode.c:12": lanes and threads must meet at the same place.
 * A function that finds an error ends the launch, see simt/simt.h, and does not return. */
#ifndef TQ_SIMT_H
#define TQ_SIMT_H

#include "tq_gpu.h"

/* Where the calling GPU thread is, which does not change while it runs. */
#define TQ_SIMT_SAME __attribute__((const))
int tq_simt_thread(void) TQ_SIMT_SAME;
int tq_simt_block_x(void) TQ_SIMT_SAME;
int tq_simt_block_y(void) TQ_SIMT_SAME;
int tq_simt_block_z(void) TQ_SIMT_SAME;
unsigned char *tq_simt_shared(void) TQ_SIMT_SAME;

/* Matrix products of a warp, C += A B; where lanes hold their parts is drawn up in docs/gpu_kernels.md. */
typedef enum tq_simt_matrix {
    TQ_SIMT_MMA_F16,    /* 16 x 8, k = 16, halves to floats */
    TQ_SIMT_MMA_I8,     /* k = 16, bytes to int32 */
    TQ_SIMT_MMA_I8_K32, /* k = 32 */
    TQ_SIMT_WMMA_F16,   /* 16 x 16, k = 16, like the rest */
    TQ_SIMT_WMMA_I8,
    TQ_SIMT_WMMA11_F16, /* A and B twice, once in each half of the warp, which must hold the same */
    TQ_SIMT_MFMA_F16,
    TQ_SIMT_MFMA_I8,
    TQ_SIMT_MFMA_I8_K32,
} tq_simt_matrix;

_Noreturn void tq_simt_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* First of all in a kernel: it was generated for these. */
void tq_simt_enter(int threads, int warp);

void tq_simt_block_sync(const char *at);
int tq_simt_arrive(tqg_u32 *counter, tqg_u32 n, const char *at);
/* p is in global memory, and a multiple of bytes. */
void tq_simt_check_global(const void *p, unsigned bytes, const char *at);

/* Collectives of a warp. Only tq_simt_warp_sync orders memory. */
void tq_simt_warp_sync(const char *at);
tqg_u32 tq_simt_shuffle(tqg_u32 x, int lane, const char *at);
tqg_u32 tq_simt_shuffle_xor(tqg_u32 x, int mask, const char *at);
tqg_u64 tq_simt_ballot(int p, const char *at);
int tq_simt_elect(const char *at); /* 1 in one lane, always the same in a block, not the same for every seed */
tqg_u32 tq_simt_transpose8(tqg_u32 halves, const char *at);
void tq_simt_multiply(tq_simt_matrix kind, void *c, const tqg_u32 *a, const tqg_u32 *b, const char *at);

/* Copies into shared memory. They complete as late as they may: until then what they write is all ones, which is NaN. */
void tq_simt_copy16(void *shared, const void *global, const char *at);
void tq_simt_copy_commit(void);
void tq_simt_copy_wait(int n);
void tq_simt_bar_init(tqg_u64 *bar, const char *at);
void tq_simt_bar_expect(tqg_u64 *bar, tqg_u32 bytes, const char *at);
void tq_simt_bulk_copy(void *shared, const void *global, tqg_u32 bytes, tqg_u64 *bar, const char *at);
void tq_simt_bar_wait(tqg_u64 *bar, tqg_u32 parity, const char *at);

#endif
