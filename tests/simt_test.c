/* simt_test: the words of kernel texts as CUDA has them; what the executor says of wrong kernels; that sanitizers see what is
 * left to them. `simt_test NAME` runs one wrong kernel of the last kind, which is expected to end the program. */
#define _POSIX_C_SOURCE 200809L /* popen */
#define TQG_VENDOR_CUDA
#define TQG_WARP 32
#define TQG_MATRIX_MMA
#define TQG_COPY_ASYNC
#define TQG_COPY_BULK
#include "simt_vocabulary.h"

#include "../templates/gpu/bias.h"
#include "simt/sanitizer.h"

#define POISON 0xffffffffu

/* Fails, saying so, in all orders. */
#define assert_found(kernel, params, bytes, text)                                                                      \
    do                                                                                                                 \
        for (unsigned seed = 0; seed < SEEDS; seed++) {                                                                \
            const char *found = RUN(kernel, params, .shared_bytes = (bytes), .seed = seed);                            \
            if (!found || strncmp(found, #kernel ": block (", strlen(#kernel) + 9) != 0 || !strstr(found, text))       \
                fail_msg("seed %u: expected '%s', found '%s'", seed, text, found ? found : "nothing");                 \
        }                                                                                                              \
    while (0)

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static void test_row_codes(void **state) {
    (void)state;
    random_state r = random_stream(64);
    for (int round = 0; round < 1000; round++) {
        const tqg_u32 word = (tqg_u32)random_bits(&r), t0 = (tqg_u32)random_bits(&r), t1 = (tqg_u32)random_bits(&r);
        for (int row = 0; row < 2; row++)
            for (int i = 0; i < 4; i++) {
                const unsigned code = nibble_of(word, 4 * row + i);
                assert_int_equal(byte_of(tqg_lookup(t0, t1, tqg_row_codes(word, row)), i),
                                 byte_of(code & 4 ? t1 : t0, code & 3));
                const unsigned top =
                    nibble_of(word, 4 * row + 2 * (i & 1) + 1 - (i >> 1)) >> 3; /* as tiles have them */
                assert_int_equal(byte_of(tqg_row_spread(word, row), i), top * 0xff);
            }
    }
}

/* ---- angles ------------------------------------------------------------------------------------------------------ */

static void test_angles(void **state) {
    (void)state;
    random_state r = random_stream(67);
    const tqg_u32 corners[] = {0,          1,          0x1fffffff, 0x20000000, 0x3fffffff,
                               0x40000000, 0x60000000, 0x80000000, 0xffffffff};
    enum { CORNERS = sizeof corners / sizeof *corners };
    for (int i = 0; i < 100000 + CORNERS; i++) {
        const tqg_u32 angle = i < CORNERS ? corners[i] : (tqg_u32)random_bits(&r);
        const double exact = angle * (acos(-1) / 0x1p31);
        float cosine, sine;
        tqb_cos_sin(angle, &cosine, &sine);
        assert_near(cosine, cos(exact), 0x1p-23);
        assert_near(sine, sin(exact), 0x1p-23);
    }
}

/* ---- meeting ---------------------------------------------------------------------------------------------------- */

TQG_KERNEL(half_a_block_at_a_barrier, words, THREADS, 1) {
    if (tqg_thread() < 64)
        tqg_block_sync();
    p.out[tqg_thread()] = 1;
}
TQG_KERNEL(one_barrier_more, words, THREADS, 1) {
    for (int i = 0; i < (tqg_warp() == 2 ? 3 : 2); i++)
        tqg_block_sync();
}
TQG_KERNEL(two_barriers, words, THREADS, 1) {
    if (tqg_warp() & 1)
        tqg_block_sync();
    else
        tqg_block_sync();
}
TQG_KERNEL(half_a_warp_shuffles, words, THREADS, 1) {
    tqg_u32 x = (tqg_u32)tqg_lane();
    if (tqg_lane() < 16)
        x += tqg_shfl_xor_u(x, 1);
    p.out[tqg_thread()] = x;
}
TQG_KERNEL(shuffle_or_ballot, words, THREADS, 1) {
    p.out[tqg_thread()] = tqg_lane() < 3 ? (tqg_u32)tqg_ballot(1) : tqg_shfl_u(1, 0);
}
TQG_KERNEL(shuffle_or_barrier, words, THREADS, 1) {
    if (tqg_lane() == 7)
        tqg_block_sync();
    p.out[tqg_thread()] = tqg_shfl_u(1, 0);
}
TQG_KERNEL(lane_beyond_the_warp, words, THREADS, 1) {
    p.out[tqg_thread()] = tqg_shfl_u(1, tqg_lane() + 1);
}
TQG_KERNEL(elect_in_half_a_warp, words, THREADS, 1) {
    p.out[tqg_thread()] = tqg_lane() < 16 && tqg_elect();
}
TQG_KERNEL(elect, words, THREADS, 1) {
    p.out[tqg_thread()] = (tqg_u32)(tqg_elect() + tqg_elect());
}
TQG_KERNEL(arrive_in_one_warp, words, THREADS, 1) {
    if (tqg_warp() == 0 && tqg_arrive(p.counter, 1))
        p.out[0] = 1;
}

static void test_meeting(void **state) {
    (void)state;
    tqg_u32 out[THREADS], counter = 0;
    const words p = {.out = out, .counter = &counter};
    assert_found(half_a_block_at_a_barrier, &p, 0, "tqg_block_sync at simt_test.c:");
    assert_found(half_a_block_at_a_barrier, &p, 0, ", which exited");
    assert_found(one_barrier_more, &p, 0, ", which exited");
    assert_found(two_barriers, &p, 0, ", while others wait in tqg_block_sync at simt_test.c:");
    assert_found(half_a_warp_shuffles, &p, 0, "tqg_shfl_xor_u at simt_test.c:");
    assert_found(half_a_warp_shuffles, &p, 0, ", which exited");
    assert_found(shuffle_or_ballot, &p, 0, ", while others wait in tqg_");
    assert_found(shuffle_or_barrier, &p, 0, "tqg_shfl_u at simt_test.c:");
    assert_found(shuffle_or_barrier, &p, 0, "is not reached by thread ");
    assert_found(lane_beyond_the_warp, &p, 0, ": lane 32 of 32");
    assert_found(elect_in_half_a_warp, &p, 0, "tqg_elect at simt_test.c:");
    assert_found(arrive_in_one_warp, &p, 0, "tqg_arrive at simt_test.c:");
    assert_runs(exchange, &((words){.out = (tqg_u32[THREADS * EXCHANGED]){0}}),
                .seed = 1); /* as if nothing had happened */
}

static void test_elect(void **state) {
    (void)state;
    tqg_u32 out[THREADS];
    const words p = {.out = out};
    int first = 0;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        assert_runs(elect, &p, .seed = seed);
        for (int warp = 0; warp < THREADS; warp += TQG_WARP) {
            tqg_u32 sum = 0;
            for (int lane = 0; lane < TQG_WARP; lane++)
                sum += out[warp + lane] * out[warp + lane];
            assert_int_equal(sum, 4); /* the same lane twice */
        }
        first += out[0] == 2;
    }
    assert_in_range(first, 1, SEEDS - 1);
}

/* ---- shared memory ---------------------------------------------------------------------------------------------- */

TQG_KERNEL(uninitialised, words, THREADS, 1) {
    tqg_u32 *shared = (tqg_u32 *)(void *)TQG_SHARED;
    if (tqg_thread() < 100)
        shared[tqg_thread()] = 1;
    tqg_block_sync();
    p.out[THREADS * tqg_block_x() + tqg_thread()] = shared[tqg_thread()];
}
/* n words that begin so many words from thread's own */
TQG_KERNEL(beside_shared, words, THREADS, 1) {
    tqg_u32 *shared = (tqg_u32 *)(void *)TQG_SHARED;
    shared[tqg_thread() + p.n] = 1;
}
TQG_KERNEL(load_of_shared, words, THREADS, 1) {
    p.out[tqg_thread()] = tqg_load16(TQG_SHARED).x;
}
TQG_KERNEL(misaligned_load, words, THREADS, 1) {
    p.out[tqg_thread()] = tqg_load16(p.counter + tqg_thread() % 2).x;
}
TQG_KERNEL(wrong_threads, words, 2 * THREADS, 1) {
    p.out[0] = 1;
}

static void test_memory(void **state) {
    (void)state;
    tqg_u32 out[2 * THREADS];
    _Alignas(16) tqg_u32 source[8] = {0};
    const words p = {.out = out, .counter = source};
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        assert_runs(uninitialised, &p, .blocks = 2, .shared_bytes = 4 * THREADS, .seed = seed);
        for (int i = 0; i < 2 * THREADS; i++)
            assert_int_equal(out[i], i % THREADS < 100 ? 1u : POISON);
    }
    assert_true(isnan(tqg_float(POISON)) && isnan(tqg_half((tqg_u16)POISON)));
    assert_found(load_of_shared, &p, 16, "tqg_load16 at simt_test.c:");
    assert_found(misaligned_load, &p, 0, "not a multiple of 16");
    assert_found(wrong_threads, &p, 0, "launched with 128 threads");
    assert_runs(beside_shared, &((words){.n = 0}), .shared_bytes = 4 * THREADS);
#ifndef SIMT_ASAN
    assert_found(beside_shared, &((words){.n = 1}), 4 * THREADS,
                 "wrote outside its 512 bytes of shared memory, at offset 512");
    assert_found(beside_shared, &((words){.n = -2}), 4 * THREADS, "at offset -8");
    assert_found(beside_shared, &((words){.n = 900}), 4 * THREADS, "at offset 3600");
#endif
}

/* Without its barrier, warps read what other warps have not written yet; without its warp barrier, lanes do. */
TQG_KERNEL(dropped_barrier, words, THREADS, 1) {
    tqg_u32 *shared = (tqg_u32 *)(void *)TQG_SHARED;
    shared[tqg_thread()] = (tqg_u32)tqg_thread();
    p.out[tqg_thread()] = shared[THREADS - 1 - tqg_thread()];
}
TQG_KERNEL(dropped_warp_sync, words, THREADS, 1) {
    tqg_u32 *shared = (tqg_u32 *)(void *)TQG_SHARED;
    shared[tqg_thread()] = tqg_shfl_xor_u((tqg_u32)tqg_thread(), 1);
    p.out[tqg_thread()] = shared[tqg_thread() ^ 31];
}

static void test_dropped_barriers(void **state) {
    (void)state;
#ifndef SIMT_TSAN
    tqg_u32 out[THREADS];
    const words p = {.out = out};
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        int wrong = 0;
        assert_runs(dropped_barrier, &p, .shared_bytes = 4 * THREADS, .seed = seed);
        for (int i = 0; i < THREADS; i++)
            wrong += out[i] == POISON;
        assert_true(wrong > 0);
        assert_runs(dropped_warp_sync, &p, .shared_bytes = 4 * THREADS, .seed = seed);
        for (wrong = 0; wrong < THREADS && out[wrong] != POISON;)
            wrong++;
        assert_true(wrong < THREADS);
    }
#endif
}

/* ---- copies ----------------------------------------------------------------------------------------------------- */

/* Each thread copies 16 bytes in each of two groups; n: for how many pending groups it does not wait before it reads both. */
TQG_KERNEL(copy_in_groups, words, THREADS, 1) {
    tqg_u4 *shared = (tqg_u4 *)(void *)TQG_SHARED + tqg_thread();
    const tqg_u4 *global = (const tqg_u4 *)(const void *)p.counter + tqg_thread();
    tqg_copy16(shared, global);
    tqg_copy_commit();
    tqg_copy16(shared + THREADS, global + THREADS);
    tqg_copy_commit();
    tqg_copy_wait(p.n);
    tqg_u32 *out = p.out + 2 * (tqg_block_x() * THREADS + tqg_thread());
    out[0] = shared->y;
    out[1] = shared[THREADS].y;
}
TQG_KERNEL(copy_without_commit, words, THREADS, 1) {
    tqg_u4 *shared = (tqg_u4 *)(void *)TQG_SHARED + tqg_thread();
    tqg_copy16(shared, (const tqg_u4 *)(const void *)p.counter + tqg_thread());
    tqg_copy_wait(0);
    p.out[tqg_thread()] = shared->y;
}
/* n bytes beside where it should go */
TQG_KERNEL(copy_to, words, THREADS, 1) {
    tqg_copy16(TQG_SHARED + 16 * tqg_thread() + p.n, (const tqg_u4 *)(const void *)p.counter + tqg_thread());
}
TQG_KERNEL(copy_from_odd_word, words, THREADS, 1) {
    tqg_copy16(TQG_SHARED + 16 * tqg_thread(), p.counter + 4 * tqg_thread() + 1);
}

static void test_copies(void **state) {
    (void)state;
    enum { SHARED = 2 * THREADS * 16, BLOCKS = 3 };
    static _Alignas(16) tqg_u32 source[8 * THREADS + 4];
    tqg_u32 out[BLOCKS * 2 * THREADS];
    for (int i = 0; i < 8 * THREADS; i++)
        source[i] = (tqg_u32)i;
    for (int n = 0; n < 3; n++) {
        const words p = {out, source, n};
        assert_runs(copy_in_groups, &p, .blocks = BLOCKS, .shared_bytes = SHARED, .seed = (unsigned)n);
        for (int i = 0; i < BLOCKS * THREADS; i++) {
            const tqg_u32 first = (tqg_u32)(4 * (i % THREADS) + 1);
            assert_int_equal(out[2 * i], n < 2 ? first : POISON);
            assert_int_equal(out[2 * i + 1], n < 1 ? first + 4 * THREADS : POISON);
        }
    }
    assert_runs(copy_without_commit, &((words){out, source, 0}), .shared_bytes = SHARED);
    assert_int_equal(out[0], POISON);
    assert_found(copy_to, &((words){out, source, 8}), SHARED, "not a multiple of 16");
    assert_found(copy_to, &((words){out, source, SHARED / 2 + 16}), SHARED, "at offset 4096 of 4096");
    assert_found(copy_to, &((words){out, source, -16}), SHARED, "at offset -16 of");
    assert_found(copy_from_odd_word, &((words){out, source, 0}), SHARED, "not a multiple of 16");
}

/* Two stages of 1 KiB, filled in turn by thread 0, read by all; mutations leave out one thing. */
enum {
    STAGE = 1024,
    ROUNDS = 7,
    RIGHT = 0,
    NO_WAIT,
    NO_BARRIER,
    NO_INIT,
    NO_EXPECT,
    TOO_FEW,
    TOO_MANY,
    NOT_ISSUED,
    ODD_SIZE
};

TQG_KERNEL(bulk_copies, words, THREADS, 1) {
    unsigned char *stages = TQG_SHARED;
    tqg_u64 *bars = (tqg_u64 *)(void *)(TQG_SHARED + 2 * STAGE);
    const unsigned char *global = (const unsigned char *)p.counter;
    const int thread = tqg_thread(), wrong = p.n;
    tqg_u32 sum = 0;
    if (thread == 0 && wrong != NO_INIT)
        for (int i = 0; i < 2; i++)
            tqg_bar_init(bars + i);
    tqg_block_sync();
    for (int i = 0; i <= ROUNDS; i++) {
        if (thread == 0 && i < ROUNDS && wrong != NOT_ISSUED) {
            if (wrong != NO_EXPECT)
                tqg_bar_expect(bars + i % 2, STAGE + 16 * (wrong == TOO_FEW) - 16 * (wrong == TOO_MANY));
            tqg_bulk_copy(stages + i % 2 * STAGE, global + i * STAGE, STAGE / 2, bars + i % 2);
            tqg_bulk_copy(stages + i % 2 * STAGE + STAGE / 2, global + i * STAGE + STAGE / 2,
                          STAGE / 2 - 8 * (wrong == ODD_SIZE), bars + i % 2);
        }
        if (i > 0) {
            const int done = i - 1;
            if (wrong != NO_WAIT)
                tqg_bar_wait(bars + done % 2, (tqg_u32)(done / 2) & 1);
            sum += ((tqg_u32 *)(void *)(stages + done % 2 * STAGE))[thread];
            if (wrong != NO_BARRIER)
                tqg_block_sync();
        }
    }
    p.out[thread] = sum;
}

static void test_bulk_copies(void **state) {
    (void)state;
    enum { WORDS = ROUNDS * STAGE / 4, SHARED = 2 * STAGE + 16 };
    static _Alignas(16) tqg_u32 source[WORDS];
    tqg_u32 out[THREADS], expected[THREADS] = {0};
    for (int i = 0; i < WORDS; i++)
        source[i] = (tqg_u32)(i * i);
    for (int i = 0; i < ROUNDS; i++)
        for (int thread = 0; thread < THREADS; thread++)
            expected[thread] += source[i * STAGE / 4 + thread];
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        tq_simt_counts counts = {0};
        assert_runs(bulk_copies, &((words){out, source, RIGHT}), .shared_bytes = SHARED, .seed = seed,
                    .counts = &counts);
        assert_memory_equal(out, expected, sizeof out);
        assert_int_equal(counts.bulk_copies, 2 * ROUNDS);
    }
    assert_found(bulk_copies, &((words){out, source, NO_INIT}), SHARED, "has not been initialised");
    assert_found(bulk_copies, &((words){out, source, NO_EXPECT}), SHARED, "waits for ever: nothing is expected");
    assert_found(bulk_copies, &((words){out, source, TOO_FEW}), SHARED,
                 "1040 bytes are expected, copies of 1024 were issued");
    assert_found(bulk_copies, &((words){out, source, TOO_MANY}), SHARED,
                 "1008 bytes are expected, copies of 1024 were issued");
    assert_found(bulk_copies, &((words){out, source, NOT_ISSUED}), SHARED, "waits for ever: nothing is expected");
    assert_found(bulk_copies, &((words){out, source, ODD_SIZE}), SHARED, "of 504 bytes, not a multiple of 16");
#ifndef SIMT_TSAN
    assert_found(bulk_copies, &((words){out, source, NO_WAIT}), SHARED, "nobody has waited for the phase before");
    int wrong = 0; /* thread 0 refills a stage that others still have to read */
    for (unsigned seed = 0; seed < SEEDS; seed++)
        wrong += RUN(bulk_copies, &((words){out, source, NO_BARRIER}), .shared_bytes = SHARED, .seed = seed) ||
                 memcmp(out, expected, sizeof out) != 0;
    assert_int_equal(wrong, SEEDS);
#endif
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

TQG_KERNEL(mark_block, words, THREADS, 1) {
    if (tqg_thread() == 0)
        p.out[tqg_block_x() + 4 * (tqg_block_y() + 3 * tqg_block_z())] += 1;
    if (tqg_thread() == 0)
        p.counter[tqg_atomic_add(p.counter + 24, 1)] =
            (tqg_u32)(tqg_block_x() + 4 * (tqg_block_y() + 3 * tqg_block_z()));
}

static void test_blocks(void **state) {
    (void)state;
    enum { BLOCKS = 24 };
    for (unsigned seed = 0; seed < 4; seed++) {
        tqg_u32 out[BLOCKS] = {0}, order[BLOCKS + 1] = {0};
        const words p = {.out = out, .counter = order};
        tq_simt_grid grid = {
            .name = "mark_block", .x = 4, .y = 3, .z = 2, .threads = THREADS, .warp = 32, .seed = seed, .count = 3};
        int in_order = 0;
        for (grid.index = 0; grid.index < grid.count; grid.index++)
            assert_null(tq_simt_launch(&grid, mark_block, &p, message, sizeof message));
        for (int i = 0; i < BLOCKS; i++) {
            const int ascending = i % 8 * 3 + i / 8;
            assert_int_equal(out[i], 1);
            in_order += order[i] == (tqg_u32)(seed == 1 ? BLOCKS - 1 - ascending : ascending);
        }
        assert_true(seed < 2 ? in_order == BLOCKS : in_order < BLOCKS / 2);
    }
    const tq_simt_grid odd = {.name = "odd", .x = 1, .y = 1, .z = 1, .threads = 48, .warp = 32};
    assert_string_equal(tq_simt_launch(&odd, mark_block, NULL, message, sizeof message),
                        "odd: cannot launch 1 x 1 x 1 blocks of 48 threads, warp 32, 0 bytes shared");
}

static tq_status launch_rounds(void *argument, int index, int count) {
    enum { BLOCKS = 8, OUT = (BLOCKS + 1) * THREADS };
    (void)argument;
    (void)count;
    for (int i = 0; i < 3; i++) {
        tqg_u32 out[OUT], counter[5] = {0};
        char text[200];
        const words p = {.out = out, .counter = counter, .n = index};
        const tq_simt_grid grid = {.name = "rounds",
                                   .x = BLOCKS,
                                   .y = 1,
                                   .z = 1,
                                   .threads = THREADS,
                                   .shared_bytes = THREADS * 4,
                                   .warp = 32,
                                   .seed = (unsigned)(index * i)};
        if (tq_simt_launch(&grid, rounds, &p, text, sizeof text) || counter[4] != 1)
            return TQ_ERR_DEVICE;
    }
    return TQ_OK;
}

typedef struct shared_launch {
    words params;
    tq_simt_grid grid;
} shared_launch;

static tq_status launch_share(void *argument, int index, int count) {
    const shared_launch *l = argument;
    tq_simt_grid grid = l->grid;
    char text[200];
    grid.index = index;
    grid.count = count;
    return tq_simt_launch(&grid, rounds, &l->params, text, sizeof text) ? TQ_ERR_DEVICE : TQ_OK;
}

/* Several launches at once, and the blocks of one launch by several threads. */
static void test_threads(void **state) {
    (void)state;
    enum { BLOCKS = 8 };
    tqg_u32 out[(BLOCKS + 1) * THREADS], counter[5] = {0};
    assert_int_equal(run_threads(4, launch_rounds, NULL), TQ_OK);
    shared_launch l = {{out, counter, 3},
                       {.name = "rounds",
                        .x = BLOCKS,
                        .y = 1,
                        .z = 1,
                        .threads = THREADS,
                        .shared_bytes = THREADS * 4,
                        .warp = 32,
                        .seed = 5}};
    assert_int_equal(run_threads(3, launch_share, &l), TQ_OK);
    assert_int_equal(counter[4], 1);
}

/* ---- what sanitizers find --------------------------------------------------------------------------------------- */

TQG_KERNEL(write_beyond_shared, words, THREADS, 1) {
    tqg_u32 *shared = (tqg_u32 *)(void *)TQG_SHARED;
    shared[4 * tqg_thread() + 4] = 1;
}
TQG_KERNEL(read_beyond_shared, words, THREADS, 1) {
    const tqg_u32 *shared = (const tqg_u32 *)(void *)TQG_SHARED;
    p.out[tqg_thread()] = shared[4 * tqg_thread() + 4];
}
TQG_KERNEL(read_beyond_global, words, THREADS, 1) {
    tqg_copy16(TQG_SHARED + 16 * tqg_thread(), p.counter + 4 * tqg_thread() + 4);
}
TQG_KERNEL(beyond_own_array, words, THREADS, 1) {
    tqg_u32 own[4] = {0};
    volatile tqg_u32 *at = own;
    for (int i = 0; i < 4 + (tqg_thread() == 77); i++)
        *at++ = 1;
    p.out[tqg_thread()] = own[3];
}
TQG_KERNEL(copy_over, words, THREADS, 1) {
    tqg_u4 *shared = (tqg_u4 *)(void *)TQG_SHARED;
    p.out[tqg_thread()] = shared[(tqg_thread() + 1) % THREADS].x;
    tqg_copy16(shared + tqg_thread(), p.counter);
}
TQG_KERNEL(two_threads_one_word, words, THREADS, 1) {
    p.out[tqg_thread() / 2] = 1;
}
TQG_KERNEL(two_blocks_one_word, words, THREADS, 1) {
    p.out[tqg_thread()] = (tqg_u32)tqg_block_x();
    tqg_block_sync();
}
TQG_KERNEL(or_without_atomic, words, THREADS, 1) {
    if (tqg_block_x() == 0)
        p.counter[tqg_thread()] |= 1;
    else
        tqg_atomic_or(p.counter + tqg_thread(), 2);
}

static const struct {
    const char *name;
    void (*kernel)(const void *);
    int blocks;
} left_to_sanitizers[] = {
#ifdef SIMT_ASAN
    {"write_beyond_shared", write_beyond_shared, 1},
    {"read_beyond_shared", read_beyond_shared, 1},
    {"read_beyond_global", read_beyond_global, 1},
    {"beyond_own_array", beyond_own_array, 1},
#endif
#ifdef SIMT_TSAN
    {"dropped_barrier", dropped_barrier, 1},
    {"dropped_warp_sync", dropped_warp_sync, 1},
    {"two_threads_one_word", two_threads_one_word, 1},
    {"two_blocks_one_word", two_blocks_one_word, 2},
    {"or_without_atomic", or_without_atomic, 2},
    {"copy_over", copy_over, 1},
#endif
    {"exchange", exchange, 1}, /* nothing wrong */
};
enum { LEFT = sizeof left_to_sanitizers / sizeof *left_to_sanitizers };

static const char *program;

static int run_alone(const char *name) {
    int i = 0;
    while (i < LEFT - 1 && strcmp(left_to_sanitizers[i].name, name) != 0)
        i++;
    tqg_u32 *source = aligned_alloc(16, 16 * THREADS), *out = malloc(EXCHANGED * THREADS * 4);
    if (!source || !out)
        return 1;
    memset(source, 0, 16 * THREADS);
    const words p = {.out = out, .counter = source, .n = 1};
    const char *found = run(name, left_to_sanitizers[i].kernel, &p,
                            (launch){.blocks = left_to_sanitizers[i].blocks, .shared_bytes = 16 * THREADS});
    free(source);
    free(out);
    return found != NULL;
}

static void test_sanitizers(void **state) {
    (void)state;
    for (int i = 0; i < LEFT; i++) {
        const char *name = left_to_sanitizers[i].name;
        char command[600], line[400];
        int here = 0, warned = 0;
        snprintf(command, sizeof command, "TSAN_OPTIONS=\"$TSAN_OPTIONS atexit_sleep_ms=0\" '%s' %s 2>&1", program,
                 name);
        FILE *output = popen(command, "r");
        assert_non_null(output);
        while (fgets(line, sizeof line, output)) {
            here |= strstr(line, "simt_test.c:") != NULL;
            warned |= strstr(line, "Sanitizer") != NULL;
        }
        const int status = pclose(output), wrong = i < LEFT - 1;
        if ((status != 0) != wrong || warned != wrong || here != wrong)
            fail_msg("%s: status %d, %s warning%s", name, status, warned ? "a" : "no",
                     here ? " that names this file" : "");
    }
}

int main(int argc, char **argv) {
    program = argv[0];
    if (argc == 2)
        return run_alone(argv[1]);
    test_seed();
    const struct CMUnitTest tests[] = {
        VOCABULARY_TESTS,
        cmocka_unit_test(test_row_codes),
        cmocka_unit_test(test_angles),
        cmocka_unit_test(test_meeting),
        cmocka_unit_test(test_elect),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_dropped_barriers),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_bulk_copies),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_sanitizers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
