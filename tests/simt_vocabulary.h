/* simt_vocabulary.h: what the words of docs/gpu_kernels.md mean, for any vendor: on bits and halves, in a warp, in a block, in
 * matrix products. Included by one test program per vendor's conventions, after the macros that the vocabulary asks for. */
#include "support.h"

#include "../templates/target/simt.h"
#ifdef TQG_MATRIX_NONE
#include "../templates/gpu/mma_dots.h"
#endif
#include "simt/simt.h"

/* ---- launching -------------------------------------------------------------------------------------------------- */

enum { SEEDS = 6, THREADS = 128 };

typedef struct launch {
    int blocks, threads, shared_bytes;
    unsigned seed;
    tq_simt_counts *counts;
} launch;

static char message[400];

/* NULL or what the executor found. */
static const char *run(const char *name, void (*kernel)(const void *), const void *params, launch l) {
    const tq_simt_grid grid = {.name = name,
                               .x = l.blocks ? l.blocks : 1,
                               .y = 1,
                               .z = 1,
                               .threads = l.threads ? l.threads : THREADS,
                               .shared_bytes = l.shared_bytes,
                               .warp = TQG_WARP,
                               .seed = l.seed,
                               .counts = l.counts};
    return tq_simt_launch(&grid, kernel, params, message, sizeof message);
}
#define RUN(kernel, params, ...) run(#kernel, kernel, (params), (launch){__VA_ARGS__})

#define assert_runs(kernel, params, ...)                                                                               \
    do {                                                                                                               \
        const char *found = RUN(kernel, params, __VA_ARGS__);                                                          \
        if (found)                                                                                                     \
            fail_msg("%s", found);                                                                                     \
    } while (0)

/* ---- bits ------------------------------------------------------------------------------------------------------- */

static unsigned byte_of(tqg_u32 x, int i) {
    return x >> 8 * i & 0xff;
}
static unsigned nibble_of(tqg_u32 x, int i) {
    return x >> 4 * i & 0xf;
}

static void check_zip(tqg_u32 zipped, tqg_u32 lo, tqg_u32 hi, int a, int b) {
    assert_int_equal(byte_of(zipped, 0), byte_of(lo, a));
    assert_int_equal(byte_of(zipped, 1), byte_of(hi, a));
    assert_int_equal(byte_of(zipped, 2), byte_of(lo, b));
    assert_int_equal(byte_of(zipped, 3), byte_of(hi, b));
}

static void test_bits(void **state) {
    (void)state;
    random_state r = random_stream(60);
    for (int round = 0; round < 1000; round++) {
        const tqg_u32 x = (tqg_u32)random_bits(&r), y = (tqg_u32)random_bits(&r), mask = (tqg_u32)random_bits(&r);
        const tqg_u64 table = x | (tqg_u64)y << 32;
        check_zip(tqg_zip01(x, y), x, y, 0, 1);
        check_zip(tqg_zip23(x, y), x, y, 2, 3);
        check_zip(tqg_zip02(x, y), x, y, 0, 2);
        check_zip(tqg_zip13(x, y), x, y, 1, 3);
        assert_int_equal(tqg_permute(x, y, 0x7052),
                         byte_of(x, 2) | byte_of(y, 1) << 8 | byte_of(x, 0) << 16 | byte_of(y, 3) << 24);
        for (int i = 0; i < 32; i++)
            assert_int_equal(tqg_select(mask, x, y) >> i & 1, (mask >> i & 1 ? x : y) >> i & 1);
        for (int half = 0; half < 2; half++) {
            const tqg_u32 found = tqg_lookup(x, y, tqg_codes(mask, half)), tops = tqg_tops(mask, half),
                          spread = tqg_spread(tops);
            unsigned all = 0;
            for (int i = 0; i < 4; i++) {
                const unsigned top = nibble_of(mask, TQG_TOP_NIBBLE(half, i)) >> 3;
                assert_int_equal(byte_of(found, i), table >> 8 * (nibble_of(mask, TQG_NIBBLE(half, i)) & 7) & 0xff);
                assert_int_equal(byte_of(tops, i), top << 7);
                assert_int_equal(byte_of(spread, i), top * 0xff);
                all |= 1u << TQG_NIBBLE(0, i) | 1u << TQG_NIBBLE(1, i);
            }
            assert_int_equal(all, 0xff);
        }
    }
}

static void test_wide_tables(void **state) {
    (void)state;
    random_state r = random_stream(65);
    for (int round = 0; round < 1000; round++) {
        tqg_u32 bytes[4], table[4];
        for (int i = 0; i < 4; i++)
            bytes[i] = (tqg_u32)random_bits(&r);
#ifdef TQG_VENDOR_CUDA
        for (int i = 0; i < 2; i++)
            bytes[2 + i] = (bytes[2 + i] & 0x7f7f7f7f) | (bytes[i] & 0x80808080);
#endif
        const tqg_u32 word = (tqg_u32)random_bits(&r);
        tqg_table16(bytes, table);
        for (int half = 0; half < 2; half++)
            for (int i = 0; i < 4; i++) {
                const unsigned code = nibble_of(word, TQG_NIBBLE(half, i));
                assert_int_equal(byte_of(tqg_lookup16(table, word, half), i), byte_of(bytes[code / 4], (int)code % 4));
#ifdef TQG_VENDOR_CUDA
                const unsigned in_row = nibble_of(word, 4 * half + i);
                assert_int_equal(byte_of(tqg_row_lookup16(table, word, half), i),
                                 byte_of(bytes[in_row / 4], (int)in_row % 4));
#endif
            }
    }
}

static void test_bytes(void **state) {
    (void)state;
    random_state r = random_stream(66);
    for (int round = 0; round < 1000; round++) {
        const tqg_u32 x = (tqg_u32)random_bits(&r), y = (tqg_u32)random_bits(&r);
        tqg_i32 sum = -round;
        for (int i = 0; i < 4; i++)
            sum += (int8_t)byte_of(x, i) * (int8_t)byte_of(y, i);
        assert_int_equal(tqg_dot4(x, y, -round), sum);
        assert_int_equal(tqg_four_bytes((tqg_u8)x, (tqg_u8)(x >> 8), (tqg_u8)(x >> 16), (tqg_u8)(x >> 24)), x);
        const tqg_u16 halves[3] = {(tqg_u16)y, (tqg_u16)x, (tqg_u16)(x >> 16)};
        assert_int_equal(tqg_shared_word(halves + 1), x);
    }
}

/* ---- halves ----------------------------------------------------------------------------------------------------- */

static double value_of(unsigned half) {
    const unsigned exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
    const double size = exponent == 31  ? (mantissa ? NAN : INFINITY)
                        : exponent == 0 ? ldexp(mantissa, -24)
                                        : ldexp(mantissa + 1024, (int)exponent - 25);
    return half & 0x8000 ? -size : size;
}

/* The half nearest to x + rest, where rest is too small to count but between two halves. */
static unsigned half_of(double x, double rest) {
    const double size = fabs(x);
    int exponent = -14;
    if (size >= 65520.0)
        return (signbit(x) ? 0x8000 : 0) | 0x7c00;
    while (ldexp(1.0, exponent + 1) <= size)
        exponent++;
    const double steps = ldexp(size, 10 - exponent), whole = floor(steps), part = steps - whole;
    const double beyond = x < 0 ? -rest : rest;
    const int up = part > 0.5 || (part == 0.5 && (beyond > 0 || (beyond == 0 && fmod(whole, 2) == 1)));
    const unsigned bits = (unsigned)(whole + up) + (exponent > -14 ? (unsigned)(exponent + 14) << 10 : 0);
    return (signbit(x) ? 0x8000 : 0) | bits;
}

static unsigned random_half(random_state *r) {
    unsigned half;
    do
        half = (unsigned)random_bits(r) & 0xffff;
    while ((half & 0x7c00) == 0x7c00);
    return half;
}

static void test_conversions(void **state) {
    (void)state;
    for (unsigned h = 0; h < 0x10000; h++) {
        const float x = tqg_half((tqg_u16)h);
        if (isnan(value_of(h))) {
            assert_true(isnan(x));
            assert_true((tqg_to_half(x) & 0x7fff) > 0x7c00);
            continue;
        }
        assert_true(x == value_of(h) && !signbit(x) == !signbit(value_of(h)));
        assert_int_equal(tqg_to_half(x), h);
        if ((h & 0x7fff) < 0x7bff) { /* around the middle between this half and the next */
            const float middle = (float)((value_of(h) + value_of(h + 1)) / 2);
            assert_int_equal(tqg_to_half(middle), h + (h & 1));
            assert_int_equal(tqg_to_half(nextafterf(middle, 0.0f)), h);
            assert_int_equal(tqg_to_half(nextafterf(middle, h & 0x8000 ? -INFINITY : INFINITY)), h + 1);
        }
    }
    assert_int_equal(tqg_to_half(65519.996f), 0x7bff);
    assert_int_equal(tqg_to_half(65520.0f), 0x7c00);
    assert_int_equal(tqg_to_half(-1e30f), 0xfc00);
    assert_int_equal(tqg_to_half_sat(1e30f), 0x7bff);
    assert_int_equal(tqg_to_half_sat(-INFINITY), 0xfbff);
    assert_int_equal(tqg_to_half(0x1p-25f), 0);
    assert_int_equal(tqg_to_half(0x1.000002p-25f), 1);
}

static void test_halves(void **state) {
    (void)state;
    random_state r = random_stream(61);
    for (int round = 0; round < 200000; round++) {
        unsigned a = random_half(&r), b = random_half(&r), c = random_half(&r);
        if (round & 1) /* sums near ties are rare otherwise */
            c = (c & 0x83ff) |
                ((a >> 10 & 0x1f) + (b >> 10 & 0x1f) > 15 ? (a & 0x7c00) + (b & 0x7c00) - (15u << 10) : 0) % 0x7c00;
        const double x = value_of(a), y = value_of(b), z = value_of(c);
        const double product = x * y, sum = product + z, from_z = sum - product;
        const double rest = (product - (sum - from_z)) + (z - from_z);
        const tqg_u32 aa = a | 0x3c000000, bb = b | 0x40000000, cc = c | 0x42000000; /* above: 1, 2, 3 */
        assert_int_equal(tqg_h2_mul(aa, bb), half_of(product, 0) | 0x40000000);
        assert_int_equal(tqg_h2_add(aa, bb), half_of(x + y, 0) | 0x42000000);
        assert_int_equal(tqg_h2_fma(aa, bb, cc), half_of(sum, rest) | 0x45000000);
        assert_int_equal(tqg_h2_neg(aa), (a ^ 0x8000) | 0xbc000000);
        assert_int_equal(tqg_h2_dup_lo(aa), a | a << 16);
        assert_int_equal(tqg_h2_dup_hi(aa), 0x3c003c00);
        assert_int_equal(tqg_h2_max(aa & 0x7fff7fff, bb & 0x7fff7fff),
                         0x40000000 | ((a & 0x7fff) > (b & 0x7fff) ? a & 0x7fff : b & 0x7fff));
        assert_true(tqg_dot2(aa, bb, 1.5f) == 2.0f + ((float)product + 1.5f));
    }
}

static void test_functions(void **state) {
    (void)state;
    for (float x = -20.0f; x < 20.0f; x += 0.03125f) {
        assert_near(tqg_exp2(x), exp2(x), 4e-7 * exp2(x));
        assert_near(tqg_tanh(x), tanh(x), 3e-7);
        if (x > 0) {
            assert_near(tqg_log2(x), log2(x), 1e-6);
            assert_near(tqg_rsqrt(x), 1 / sqrt(x), 3e-7 / sqrt(x));
        }
    }
    assert_true(tqg_exp2(-INFINITY) == 0.0f);
    assert_true(tqg_bits(1.0f) == 0x3f800000 && tqg_float(0x3f800000) == 1.0f);
}

/* ---- a warp, a block -------------------------------------------------------------------------------------------- */

typedef struct words {
    tqg_u32 *out, *counter;
    int n;
} words;

enum { EXCHANGED = 8 };

TQG_KERNEL(exchange, words, THREADS, 1) {
    tqg_u32 *out = p.out + EXCHANGED * (tqg_block_x() * THREADS + tqg_thread());
    const int lane = tqg_lane();
    const tqg_u32 own = (tqg_u32)tqg_thread() * 3 + 1;
    out[0] = tqg_shfl_xor_u(own, 1);
    out[1] = tqg_shfl_xor_u(own, TQG_WARP / 2);
    out[2] = tqg_shfl_u(own, 5);
    out[3] = tqg_shfl_u(own, (lane + 7) % TQG_WARP);
    out[4] = (tqg_u32)tqg_shfl_xor((float)own, 2);
    out[5] = (tqg_u32)(tqg_ballot(lane % 3 == 0) >> (TQG_WARP - 32));
    out[6] = (tqg_u32)tqg_any(tqg_thread() == THREADS - 1);
    float sum = (float)lane;
    for (int mask = TQG_WARP / 2; mask > 0; mask /= 2)
        sum += tqg_shfl_xor(sum, mask);
    out[7] = (tqg_u32)sum;
}

static void test_exchange(void **state) {
    (void)state;
    tqg_u32 out[2 * THREADS][EXCHANGED], thirds = 0;
    for (int lane = TQG_WARP - 32; lane < TQG_WARP; lane++)
        thirds |= (tqg_u32)(lane % 3 == 0) << (lane - (TQG_WARP - 32));
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        const words p = {.out = out[0]};
        tq_simt_counts counts = {0};
        memset(out, 0, sizeof out);
        assert_runs(exchange, &p, .blocks = 2, .seed = seed, .counts = &counts);
        for (int i = 0; i < 2 * THREADS; i++) {
            const int thread = i % THREADS, lane = thread % TQG_WARP, first = thread - lane;
            const int from[5] = {thread ^ 1, thread ^ (TQG_WARP / 2), first + 5, first + (lane + 7) % TQG_WARP,
                                 thread ^ 2};
            for (int j = 0; j < 5; j++)
                assert_int_equal(out[i][j], from[j] * 3 + 1);
            assert_int_equal(out[i][5], thirds);
            assert_int_equal(out[i][6], thread >= THREADS - TQG_WARP);
            assert_int_equal(out[i][7], TQG_WARP * (TQG_WARP - 1) / 2);
        }
        assert_int_equal(counts.blocks, 2);
        assert_int_equal(counts.warp_ops, 2 * THREADS / TQG_WARP * (7 + (TQG_WARP == 64 ? 6 : 5)));
    }
}

#ifdef TQG_VENDOR_HIP
TQG_KERNEL(gather, words, THREADS, 1) {
    tqg_gather8_u((tqg_u32)tqg_thread() * 3 + 1, p.out + 8 * tqg_thread());
}

static void test_gather(void **state) {
    (void)state;
    tqg_u32 out[THREADS][8];
    const words p = {.out = out[0]};
    assert_runs(gather, &p, .seed = 1);
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < 8; j++)
            assert_int_equal(out[i][j], ((i & ~7) + j) * 3 + 1);
}
#define VENDOR_TESTS , cmocka_unit_test(test_gather)
#else
#define VENDOR_TESTS
#endif

/* Every warp reads what its neighbours wrote, again and again; then the last block adds up. */
TQG_KERNEL(rounds, words, THREADS, 1) {
    tqg_u32 *shared = (tqg_u32 *)(void *)TQG_SHARED;
    const int thread = tqg_thread(), blocks = 8;
    tqg_u32 x = (tqg_u32)(thread + 1000 * tqg_block_x());
    for (int i = 0; i < p.n; i++) {
        shared[thread] = x;
        tqg_block_sync();
        x += shared[(thread + 45 * i) % THREADS] + shared[(thread + 1) % THREADS];
        tqg_block_sync();
    }
    shared[thread] = x;
    tqg_warp_sync();
    x += shared[thread ^ 9];
    tqg_atomic_add(p.counter + 1, x);
    tqg_atomic_or(p.counter + 2, 1u << tqg_block_x());
    tqg_atomic_and(p.counter + 3, ~(1u << tqg_block_x()));
    p.out[tqg_block_x() * THREADS + thread] = x;
    if (tqg_arrive(p.counter, (tqg_u32)blocks)) {
        tqg_u32 sum = 0;
        for (int block = 0; block < blocks; block++)
            sum += p.out[block * THREADS + thread];
        p.out[blocks * THREADS + thread] = sum;
        if (thread == 0)
            p.counter[4] += 1 + *p.counter;
    }
}

static void test_rounds(void **state) {
    (void)state;
    enum { BLOCKS = 8, OUT = (BLOCKS + 1) * THREADS };
    tqg_u32 out[SEEDS][OUT];
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        tqg_u32 counter[5] = {0, 0, 0, 0xffffffff, 0}, sum = 0;
        const words p = {.out = out[seed], .counter = counter, .n = 5};
        assert_runs(rounds, &p, .blocks = BLOCKS, .shared_bytes = THREADS * 4, .seed = seed);
        for (int i = 0; i < THREADS; i++)
            sum += out[seed][BLOCKS * THREADS + i];
        assert_int_equal(counter[0], 0);
        assert_int_equal(counter[1], sum);
        assert_int_equal(counter[2], 0xff);
        assert_int_equal(counter[3], 0xffffff00);
        assert_int_equal(counter[4], 1); /* one block was last, and found the counter reset */
        assert_memory_equal(out[seed], out[0], sizeof out[0]);
    }
}

/* ---- matrix products -------------------------------------------------------------------------------------------- */

/* The table of docs/gpu_kernels.md, once more. */
#ifdef TQG_MATRIX_MMA
enum { A_REGISTERS = 4, B_REGISTERS = 2, C_REGISTERS = 4, COLUMNS = 8 };
#define A_ROW(r)    (tqg_lane() / 4 + 8 * ((r)&1))
#define A_K(r)      (2 * (tqg_lane() % 4) + 8 * ((r) >> 1))
#define B_COLUMN(r) (tqg_lane() / 4)
#define B_K(r)      (2 * (tqg_lane() % 4) + 8 * (r))
#define C_ROW(r)    (tqg_lane() / 4 + 8 * ((r) >> 1))
#define C_COLUMN(r) (2 * (tqg_lane() % 4) + ((r)&1))
#define A8_ROW(r)   (tqg_lane() / 4 + 8 * (r))
#define A8_K(r)     (4 * (tqg_lane() % 4))
#define B8_K(r)     (4 * (tqg_lane() % 4))
#elif defined(TQG_MATRIX_WMMA)
enum { A_REGISTERS = 4, B_REGISTERS = 4, C_REGISTERS = 8, COLUMNS = 16 };
#define A_ROW(r)  (tqg_lane() % 16)
#define A_K(r)    (8 * (tqg_lane() / 16) + 2 * (r))
#define C_ROW(r)  (8 * (tqg_lane() / 16) + (r))
#define A8_ROW(r) (tqg_lane() % 16)
#define A8_K(r)   (8 * (tqg_lane() / 16) + 4 * (r))
#elif defined(TQG_MATRIX_WMMA11)
enum { A_REGISTERS = 8, B_REGISTERS = 8, C_REGISTERS = 8, COLUMNS = 16 };
#define A_ROW(r) (tqg_lane() % 16)
#define A_K(r)   (2 * (r))
#define C_ROW(r) (2 * (r) + tqg_lane() / 16)
#elif defined(TQG_MATRIX_NONE) /* the pairs of k that tqg_c_to_b makes */
enum { A_REGISTERS = 16, B_REGISTERS = 32, C_REGISTERS = 8, COLUMNS = TQG_WARP / 2 };
#define A_ROW(r)    (tqg_lane() % 8 + 8 * ((r) / 4 % 2))
#define A_K(r)      (4 * ((r) / 8) + (r) % 4)
#define B_COLUMN(r) (tqg_lane() / 8 + COLUMNS / 4 * ((r) / 4 % 4))
#define B_K(r)      (4 * ((r) / 16) + (r) % 4)
#define C_ROW(r)    (tqg_lane() % 8 + 8 * ((r) / 4))
#define C_COLUMN(r) (tqg_lane() / 8 + COLUMNS / 4 * ((r) % 4))
#define K_APART     8
#else
enum { A_REGISTERS = 2, B_REGISTERS = 2, C_REGISTERS = 4, COLUMNS = 16 };
#define A_ROW(r)  (tqg_lane() % 16)
#define A_K(r)    (4 * (tqg_lane() / 16) + 2 * (r))
#define C_ROW(r)  (4 * (tqg_lane() / 16) + (r))
#define A8_ROW(r) (tqg_lane() % 16)
#define A8_K(r)   (4 * (tqg_lane() / 16))
#endif
#ifndef B_COLUMN
#define B_COLUMN(r) (tqg_lane() % 16)
#define B_K(r)      A_K(r)
#define C_COLUMN(r) (tqg_lane() % 16)
#define B8_K(r)     A8_K(r)
#endif
#ifndef K_APART
#define K_APART 1
#endif

/* a [16][16], b [16][COLUMNS], c [16][COLUMNS] += a b, d [16][COLUMNS] = a c, c rounded to halves */
typedef struct product_f16 {
    const float *a, *b;
    float *c, *d;
} product_f16;

TQG_KERNEL(multiply_f16, product_f16, TQG_WARP, 1) {
    tqg_u32 a[TQG_MMA_A], b[TQG_MMA_B];
    float c[TQG_MMA_C], d[TQG_MMA_C] = {0};
    for (int r = 0; r < TQG_MMA_A; r++)
        a[r] = tqg_h2(p.a[A_ROW(r) * 16 + A_K(r)], p.a[A_ROW(r) * 16 + A_K(r) + K_APART]);
    for (int r = 0; r < TQG_MMA_B; r++)
        b[r] = tqg_h2(p.b[B_K(r) * COLUMNS + B_COLUMN(r)], p.b[(B_K(r) + K_APART) * COLUMNS + B_COLUMN(r)]);
    for (int r = 0; r < TQG_MMA_C; r++)
        c[r] = p.c[C_ROW(r) * COLUMNS + C_COLUMN(r)];
    tqg_mma_f16(c, a, b);
#ifdef TQG_MATRIX_NONE
    tqg_u32 own[TQM_DOT_COLUMNS];
    tqg_c_to_b(c, own);
    tqm_gather_b(own, b);
#else
    tqg_c_to_b(c, b);
#endif
    tqg_mma_f16(d, a, b);
    for (int r = 0; r < TQG_MMA_C; r++) {
        p.c[C_ROW(r) * COLUMNS + C_COLUMN(r)] = c[r];
        p.d[C_ROW(r) * COLUMNS + C_COLUMN(r)] = d[r];
    }
}

static void check_product(const float *c, const float *c0, const float *a, const float *b) {
    for (int row = 0; row < 16; row++)
        for (int j = 0; j < COLUMNS; j++) {
            double sum = c0 ? c0[row * COLUMNS + j] : 0, size = fabs(sum);
            for (int k = 0; k < 16; k++) {
                const double term = (double)a[row * 16 + k] * tqg_half(tqg_to_half(b[k * COLUMNS + j]));
                sum += term;
                size += fabs(term);
            }
            assert_near(c[row * COLUMNS + j], sum, 16 * 0x1p-24 * size);
        }
}

static void test_multiply_f16(void **state) {
    (void)state;
    assert_int_equal(TQG_MMA_N, COLUMNS);
    assert_true(TQG_MMA_A == A_REGISTERS && TQG_MMA_B == B_REGISTERS && TQG_MMA_C == C_REGISTERS);
    random_state r = random_stream(62);
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        float a[16 * 16], b[16 * COLUMNS], c0[16 * COLUMNS], c[16 * COLUMNS], d[16 * COLUMNS];
        random_normals(&r, a, 16 * 16);
        random_normals(&r, b, 16 * COLUMNS);
        random_normals(&r, c0, 16 * COLUMNS);
        for (int i = 0; i < 16 * 16; i++)
            a[i] = tqg_half(tqg_to_half(a[i]));
        memcpy(c, c0, sizeof c);
        const product_f16 p = {a, b, c, d};
        assert_runs(multiply_f16, &p, .threads = TQG_WARP, .seed = seed);
        check_product(c, c0, a, b);
        check_product(d, NULL, a, c);
    }
}

#ifdef TQG_MMA_A8
/* a [16][48], b [48][COLUMNS]: a step of k = 16, then one of 32 */
typedef struct product_i8 {
    const tqg_i8 *a, *b;
    tqg_i32 *c;
} product_i8;

enum { K_OF_PRODUCT = 48 };

TQG_KERNEL(multiply_i8, product_i8, TQG_WARP, 1) {
    tqg_u32 a[3 * TQG_MMA_A8] = {0}, b[3 * TQG_MMA_B8] = {0};
    tqg_i32 c[TQG_MMA_C];
    for (int step = 0; step < 3; step++)
        for (int i = 0; i < 4; i++) {
            for (int r = 0; r < TQG_MMA_A8; r++)
                a[step * TQG_MMA_A8 + r] |= (tqg_u32)(tqg_u8)p.a[A8_ROW(r) * K_OF_PRODUCT + 16 * step + A8_K(r) + i]
                                            << 8 * i;
            for (int r = 0; r < TQG_MMA_B8; r++)
                b[step * TQG_MMA_B8 + r] |= (tqg_u32)(tqg_u8)p.b[(16 * step + B8_K(r) + i) * COLUMNS + B_COLUMN(r)]
                                            << 8 * i;
        }
    for (int r = 0; r < TQG_MMA_C; r++)
        c[r] = C_ROW(r);
    tqg_mma_i8(c, a, b);
    tqg_mma_i8_k32(c, a + TQG_MMA_A8, b + TQG_MMA_B8);
    for (int r = 0; r < TQG_MMA_C; r++)
        p.c[C_ROW(r) * COLUMNS + C_COLUMN(r)] = c[r];
}

static void test_multiply_i8(void **state) {
    (void)state;
    random_state r = random_stream(63);
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        tqg_i8 a[16 * K_OF_PRODUCT], b[K_OF_PRODUCT * COLUMNS];
        tqg_i32 c[16 * COLUMNS];
        for (int i = 0; i < 16 * K_OF_PRODUCT; i++)
            a[i] = (tqg_i8)(random_bits(&r) & 0xff);
        for (int i = 0; i < K_OF_PRODUCT * COLUMNS; i++)
            b[i] = (tqg_i8)(random_bits(&r) & 0xff);
        const product_i8 p = {a, b, c};
        assert_runs(multiply_i8, &p, .threads = TQG_WARP, .seed = seed);
        for (int row = 0; row < 16; row++)
            for (int j = 0; j < COLUMNS; j++) {
                tqg_i32 sum = row;
                for (int k = 0; k < K_OF_PRODUCT; k++)
                    sum += a[row * K_OF_PRODUCT + k] * b[k * COLUMNS + j];
                assert_int_equal(c[row * COLUMNS + j], sum);
            }
    }
}
#define BYTE_PRODUCTS_TESTS , cmocka_unit_test(test_multiply_i8)
#else
#define BYTE_PRODUCTS_TESTS
#endif

#define VOCABULARY_TESTS                                                                                               \
    cmocka_unit_test(test_bits), cmocka_unit_test(test_wide_tables), cmocka_unit_test(test_bytes),                     \
        cmocka_unit_test(test_conversions), cmocka_unit_test(test_halves), cmocka_unit_test(test_functions),           \
        cmocka_unit_test(test_exchange), cmocka_unit_test(test_rounds),                                                \
        cmocka_unit_test(test_multiply_f16) VENDOR_TESTS BYTE_PRODUCTS_TESTS
