#include "multiply.h"

#include <stdint.h>

#include "internal.h"

enum { ROUNDS = 1 << 17, CHAINS = 12 }; /* so many sums as hide the latency of a multiply-add and fit 16 registers */

/* A function that adds products of a and b, ROUNDS times, to each of CHAINS vectors of sums that do not wait for each other;
 * `step` is the new x. For all the compiler knows, b is another number each time and somebody reads the sums. */
#define VECTOR_LOOP(name, isa, vector, held_in, set1, step)                                                            \
    isa static void name(void) {                                                                                       \
        vector sums[CHAINS], a = set1(3), b = a;                                                                       \
        for (int i = 0; i < CHAINS; i++)                                                                               \
            sums[i] = a;                                                                                               \
        for (int r = 0; r < ROUNDS; r++) {                                                                             \
            for (int i = 0; i < CHAINS; i++) {                                                                         \
                const vector x = sums[i];                                                                              \
                __asm__("" : "+" held_in(b));                                                                          \
                sums[i] = step;                                                                                        \
            }                                                                                                          \
        }                                                                                                              \
        for (int i = 0; i < CHAINS; i++)                                                                               \
            __asm__ volatile("" : : held_in(sums[i]));                                                                 \
    }

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2   __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vnni")))

VECTOR_LOOP(f32_avx2, AVX2, __m256, "x", _mm256_set1_ps, _mm256_fmadd_ps(a, b, x))
VECTOR_LOOP(int16_avx2, AVX2, __m256i, "x", _mm256_set1_epi16, _mm256_add_epi32(x, _mm256_madd_epi16(a, b)))
VECTOR_LOOP(int8_avx2, AVX2, __m256i, "x", _mm256_set1_epi8,
            _mm256_add_epi32(x, _mm256_madd_epi16(a, _mm256_maddubs_epi16(a, b))))

VECTOR_LOOP(f32_avx512, AVX512, __m512, "v", _mm512_set1_ps, _mm512_fmadd_ps(a, b, x))
VECTOR_LOOP(int16_avx512, AVX512, __m512i, "v", _mm512_set1_epi16, _mm512_dpwssd_epi32(x, a, b))
VECTOR_LOOP(int8_avx512, AVX512, __m512i, "v", _mm512_set1_epi8, _mm512_dpbusd_epi32(x, a, b))
#elif defined(__aarch64__)
#include <arm_neon.h>

VECTOR_LOOP(f32_neon, , float32x4_t, "w", vdupq_n_f32, vfmaq_f32(x, a, b))
VECTOR_LOOP(int16_neon, , int32x4_t, "w", vdupq_n_s32,
            vmlal_high_s16(vmlal_s16(x, vget_low_s16(vreinterpretq_s16_s32(a)), vget_low_s16(vreinterpretq_s16_s32(b))),
                           vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)))
VECTOR_LOOP(int8_neon, , int32x4_t, "w", vdupq_n_s32, vdotq_s32(x, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b)))
#endif

/* Plain loops over arrays, which any compiler turns into the vectors of its target. */
enum { PLAIN_LANES = CHAINS * 16 };
#define PLAIN_LOOP(name, type, sum)                                                                                    \
    static void name(void) {                                                                                           \
        type a[PLAIN_LANES];                                                                                           \
        sum sums[PLAIN_LANES];                                                                                         \
        for (int i = 0; i < PLAIN_LANES; i++)                                                                          \
            sums[i] = a[i] = (type)(i % 3);                                                                            \
        for (int r = 0; r < ROUNDS / 8; r++)                                                                           \
            for (int i = 0; i < PLAIN_LANES; i++)                                                                      \
                sums[i] += (sum)((type)sums[i] * a[i]);                                                                \
        __asm__ volatile("" : : "r"(sums) : "memory");                                                                 \
    }

PLAIN_LOOP(f32_plain, float, float)
PLAIN_LOOP(int16_plain, int16_t, uint32_t)
PLAIN_LOOP(int8_plain, int8_t, uint32_t)

typedef struct loop {
    const char *instructions;
    void (*run)(void);
    double madds;
} loop;

#define VECTORS(lanes) ((double)ROUNDS * CHAINS * (lanes))
#define PLAIN          ((double)ROUNDS / 8 * PLAIN_LANES)

/* The widest first; plain C always comes last. */
static const struct {
    const char *needs;
    loop f32, int16, int8;
} units[] = {
#if defined(__x86_64__)
    {"avx512f avx512bw avx512vnni",
     {"vfmadd zmm", f32_avx512, VECTORS(16)},
     {"vpdpwssd zmm", int16_avx512, VECTORS(32)},
     {"vpdpbusd zmm", int8_avx512, VECTORS(64)}},
    {"avx2 fma",
     {"vfmadd ymm", f32_avx2, VECTORS(8)},
     {"vpmaddwd vpaddd ymm", int16_avx2, VECTORS(16)},
     {"vpmaddubsw vpmaddwd vpaddd ymm", int8_avx2, VECTORS(32)}},
#elif defined(__aarch64__)
    {"neon dotprod",
     {"fmla", f32_neon, VECTORS(4)},
     {"smlal smlal2", int16_neon, VECTORS(8)},
     {"sdot", int8_neon, VECTORS(16)}},
#endif
    {"", {"C", f32_plain, PLAIN}, {"C", int16_plain, PLAIN}, {"C", int8_plain, PLAIN}},
};

_Static_assert(sizeof units / sizeof *units <= MULTIPLY_UNITS, "multiply_measure fills MULTIPLY_UNITS at most");

static void run_on_thread(void *context, int thread_index, int thread_count) {
    (void)thread_index;
    (void)thread_count;
    ((const loop *)context)->run();
}

static multiply_rate best_rate(pool *p, loop l) {
    multiply_rate best = {l.instructions, 0};
    for (int pass = 0; pass < 7; pass++) {
        double rate = l.madds * pool_threads(p) / (pool_run(p, run_on_thread, &l) * 1e-9);
        best.madds = rate > best.madds ? rate : best.madds;
    }
    return best;
}

int multiply_measure(const tq_device *device, pool *p, multiply_rates out[MULTIPLY_UNITS]) {
    int n = 0;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (tq_device_has(device, units[i].needs))
            out[n++] = (multiply_rates){units[i].needs, best_rate(p, units[i].f32), best_rate(p, units[i].int16),
                                        best_rate(p, units[i].int8)};
    return n;
}
