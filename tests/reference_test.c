/* reference_test: the reference against hand-made rows and definitions, without any kernel. */
#include "support.h"

static void test_halves(void **state) {
    (void)state;
    for (int h = 0; h < 65536; h++) {
        double x = tq_ref_half_to_double((uint16_t)h);
        if ((h >> 10 & 31) < 31)
            assert_int_equal(tq_ref_half_from_double(x), h);
    }
    assert_true(tq_ref_half_to_double(0x3c00) == 1.0);
    assert_true(tq_ref_half_to_double(0x0001) == 0x1p-24);
    assert_true(tq_ref_half_to_double(0x7bff) == 65504.0);
    assert_int_equal(tq_ref_half_from_double(1e9), 0x7bff);
    assert_int_equal(tq_ref_half_from_double(-1e9), 0xfbff);
    assert_int_equal(tq_ref_half_from_double(1 + 0x1p-11), 0x3c00); /* a tie, to even */
    assert_int_equal(tq_ref_half_from_double(1 + 0x3p-11), 0x3c02); /* a tie, to even */
    assert_int_equal(tq_ref_half_from_double(1 + 0x1.01p-11), 0x3c01);
    assert_int_equal(tq_ref_half_from_double(0x1p-25), 0);              /* a tie among subnormals */
    assert_int_equal(tq_ref_half_from_double(0x1.ffcp-14), 0x0800 - 1); /* the last of its binade */
}

/* T = R_odd (x) H_pow2 by its entries. */
static double entry(int pow2, int odd, int i, int j) {
    double r = (i / pow2 == j / pow2) - (odd > 1 ? 2.0 / odd : 0);
    double h = __builtin_parity((unsigned)(i % pow2 & j % pow2)) ? -1 : 1;
    return (odd > 1 || i / pow2 == j / pow2) ? r * h / sqrt(pow2) : 0;
}

static void test_transform(void **state) {
    (void)state;
    static const tq_chunk chunks[] = {{0, 64, 64, 1, 0}, {0, 80, 16, 5, 0}, {0, 96, 32, 3, 0}, {0, 128, 128, 1, 0}};
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
        int n = chunks[c].size;
        double y[128] = {0}, expected[128] = {0};
        random_state r = random_stream(c);
        for (int i = 0; i < n; i++)
            y[i] = random_normal(&r);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                expected[i] += entry(chunks[c].pow2, chunks[c].odd, i, j) * y[j];
        double before[128];
        memcpy(before, y, sizeof y);
        tq_ref_transform(&chunks[c], y);
        for (int i = 0; i < n; i++)
            assert_near(y[i], expected[i], 1e-12);
        tq_ref_transform(&chunks[c], y);
        for (int i = 0; i < n; i++)
            assert_near(y[i], before[i], 1e-12);
    }
}

static void random_codes(const tq_format_spec *format, random_state *r, tq_ref_codes *codes) {
    for (int i = 0; i < format->head_dim; i++) {
        int starts_block = i % format->block == 0, starts_sub = format->sub && i % format->sub == 0;
        codes->scale[i] =
            starts_block ? tq_ref_half_to_double((uint16_t)(random_bits(r) % 0x7c00)) : codes->scale[i - 1];
        codes->gain[i] = starts_sub ? (int)(random_bits(r) % 16) : i && format->sub ? codes->gain[i - 1] : 0;
        codes->index[i] = (int)(random_bits(r) % (1u << format->bits)) - (format->bits == 8 ? 128 : 0);
    }
}

/* Packing loses nothing, and every bit of the row matters. */
static void test_packing(void **state) {
    (void)state;
    random_state r = random_stream(5);
    const tq_format_spec *format;
    for (int f = 0; (format = tq_format_spec_at(f)); f++) {
        if (format->bits == 16)
            continue;
        uint8_t row[2 * TQ_MAX_HEAD_DIM], again[2 * TQ_MAX_HEAD_DIM];
        tq_ref_codes codes = {0}, found = {0};
        for (int round = 0; round < 20; round++) {
            random_codes(format, &r, &codes);
            tq_ref_pack(format, &codes, row);
            tq_ref_unpack(format, row, &found);
            assert_memory_equal(&codes, &found, sizeof codes);
        }
        int unused_bits = format->sub && format->block / format->sub % 4 != 0;
        for (int i = 0; i < format->row_bytes; i++)
            row[i] = (uint8_t)random_bits(&r);
        for (int at = 0; at < format->row_bytes; at += format->row_bytes / (format->head_dim / format->block))
            row[at + 1] &= 0x7b; /* a finite scale without a sign */
        tq_ref_unpack(format, row, &found);
        tq_ref_pack(format, &found, again);
        if (!unused_bits)
            assert_memory_equal(row, again, (size_t)format->row_bytes);
    }
}

/* Bytes written by hand from the definition, so that the reference's own map of bits is not its only witness. */
static void test_documented_bytes(void **state) {
    (void)state;
    static const tq_chunk chunk = {0, 32, 32, 1, 0}, half_chunk = {0, 16, 16, 1, 0};
    static const float step = 1;
    tq_format_spec format = {.head_dim = 32, .block = 32, .n_chunks = 1, .chunks = &chunk, .steps = &step};
    tq_ref_codes codes = {0};
    uint8_t row[34] = {0x00, 0x3c}; /* scale 1 */

    format.bits = 4;
    format.row_bytes = 18;
    row[2 + 4 + 1] = 0xa3; /* word 1, byte 1: value 1 of groups 2 and 3, minus magnitude 1 and plus magnitude 5 */
    tq_ref_unpack(&format, row, &codes);
    assert_int_equal(codes.index[2 * 4 + 1], 7 - 1);
    assert_int_equal(codes.index[3 * 4 + 1], 8 + 5);
    assert_true(codes.scale[31] == 1.0);

    memset(row + 2, 0, 32);
    format.bits = 2;
    format.row_bytes = 10;
    row[2 + 4 + 3] = 0xe4; /* word 1, byte 3: value 3 of groups 4 to 7 */
    tq_ref_unpack(&format, row, &codes);
    for (int g = 4; g < 8; g++)
        assert_int_equal(codes.index[4 * g + 3], g - 4);

    memset(row + 2, 0, 32);
    format.bits = 3;
    format.row_bytes = 14;
    row[2 + 0 + 2] = 0x8 | 0x5;   /* slot 0: group 0 is 5, and bit 2 of group 6 */
    row[2 + 4 + 2] = 0x80 | 0x30; /* slot 3: group 3 is 3, and bit 1 of group 7 */
    row[2 + 8 + 2] = 0x08 | 0x80; /* slots 4 and 5: bit 0 of groups 6 and 7 */
    tq_ref_unpack(&format, row, &codes);
    assert_int_equal(codes.index[0 * 4 + 2], 5);
    assert_int_equal(codes.index[3 * 4 + 2], 3);
    assert_int_equal(codes.index[6 * 4 + 2], 4 + 1);
    assert_int_equal(codes.index[7 * 4 + 2], 2 + 1);

    memset(row + 2, 0, 32);
    format.head_dim = format.block = 16;
    format.chunks = &half_chunk;
    format.row_bytes = 8;
    row[2 + 3] = 0x80 | 0x20;     /* slot 1, value 3: group 1 is 2, and bit 1 of group 3 */
    row[2 + 4 + 1] = 0x70 | 0x80; /* half word, value 3 in the high nibble of byte 1: group 2 is 7, bit 0 of group 3 */
    tq_ref_unpack(&format, row, &codes);
    assert_int_equal(codes.index[1 * 4 + 3], 2);
    assert_int_equal(codes.index[2 * 4 + 3], 7);
    assert_int_equal(codes.index[3 * 4 + 3], 2 + 1);

    static const int8_t centroids[16] = {0}, gains[16] = {0};
    uint8_t gain_row[38] = {0x00, 0x3c, 0x21, 0x43, 0x65, 0x87};
    static const tq_chunk full = {0, 128, 128, 1, 0};
    tq_format_spec gain2 = {.bits = 2,
                            .head_dim = 128,
                            .block = 128,
                            .sub = 16,
                            .row_bytes = 38,
                            .n_chunks = 1,
                            .chunks = &full,
                            .steps = &step,
                            .centroids = centroids,
                            .gains = gains};
    tq_ref_unpack(&gain2, gain_row, &codes);
    for (int sub = 0; sub < 8; sub++)
        assert_int_equal(codes.gain[16 * sub + 15], sub + 1);
}

/* Every registry describes a format alike, and as the definition wants it. */
static void test_specs(void **state) {
    (void)state;
    for (int r = 0; r < tq_registry_count(); r++)
        for (int f = 0; f < tq_registry_at(r)->n_formats; f++) {
            const tq_format_spec *a = tq_registry_at(r)->formats[f], *b = spec_of(a->name, a->head_dim);
            assert_int_equal(a->row_bytes, b->row_bytes);
            assert_int_equal(a->n_chunks, b->n_chunks);
            for (int i = 0; a->centroids && i < 1 << a->bits; i++)
                assert_int_equal(a->centroids[i], b->centroids[i]);
            for (int i = 0; a->gains && i < 16; i++)
                assert_int_equal(a->gains[i], b->gains[i]);
            for (int i = 0; a->rotated && i < (a->head_dim + 31) / 32; i++) {
                assert_int_equal(a->k_signs[i], b->k_signs[i]);
                assert_int_equal(a->v_signs[i], b->v_signs[i]);
            }
            int end = 0;
            for (int c = 0; c < a->n_chunks && a->bits != 16; c++) {
                const tq_chunk *chunk = &a->chunks[c];
                assert_true(a->steps[c] == b->steps[c]);
                assert_int_equal(chunk->first_value, end);
                assert_int_equal(chunk->size, chunk->pow2 * chunk->odd * (a->rotated ? 1 : chunk->size / chunk->pow2));
                assert_int_equal(chunk->first_byte, a->row_bytes / a->n_chunks * c);
                end += chunk->size;
            }
            assert_true(a->bits == 16 || end == a->head_dim);
            for (int i = 1; a->centroids && i < 1 << a->bits; i++)
                assert_true(a->centroids[i] > a->centroids[i - 1]);
        }
}

/* Two keys, one of weight 3/4: arithmetic that fits on paper. */
static void test_attention(void **state) {
    (void)state;
    const tq_format_spec half = {.name = "f16", .head_dim = 16, .bits = 16, .block = 1, .row_bytes = 32};
    uint8_t k[64] = {0}, v[64] = {0};
    float q[16] = {(float)log(3.0)};
    k[1] = 0x3c;  /* key 0: (1, 0, ...) */
    v[1] = 0x44;  /* value 0: (4, 0, ...) */
    v[33] = 0xc4; /* value 1: (-4, 0, ...) */
    tq_cache kc = {.data = k, .bytes = sizeof k, .seq_stride = 64, .head_stride = 64, .token_stride = 32, .n_slots = 2};
    tq_cache vc = kc;
    vc.data = v;
    int32_t n_kv = 2;
    tq_ref_shape shape = {&half, &half, 1, 1, TQ_REF_INTEGERS};
    tq_decode_args args = {
        .batch = 1, .q = q, .q_seq_stride = 16, .q_head_stride = 16, .k = &kc, .v = &vc, .n_kv = &n_kv, .scale = 1};
    double out[16], bound[16], lse, lse_bound;
    assert_int_equal(tq_ref_attention(&shape, &args, out, bound, &lse, &lse_bound), 0);
    assert_near(out[0], 0.75 * 4 - 0.25 * 4, 1e-6);
    assert_near(lse, log(4), 1e-6);
    assert_true(bound[0] > 0 && bound[0] < 1e-4);
    float sink_logit = (float)log(4.0); /* doubles the denominator */
    args.sink_logits = &sink_logit;
    assert_int_equal(tq_ref_attention(&shape, &args, out, bound, &lse, &lse_bound), 0);
    assert_near(out[0], 1, 1e-6);
    args.sink_logits = NULL;
    args.window = 1;
    assert_int_equal(tq_ref_attention(&shape, &args, out, bound, &lse, &lse_bound), 0);
    assert_near(out[0], -4, 1e-6);
    n_kv = 0;
    assert_int_equal(tq_ref_attention(&shape, &args, out, bound, &lse, &lse_bound), 0);
    assert_true(out[0] == 0 && isinf(lse) && lse < 0);
}

/* What is not a number must never pass for a small error. */
static void test_judge(void **state) {
    (void)state;
    const float found[] = {1.0f, NAN, INFINITY, -INFINITY, 1.5f};
    const double expected[] = {1, 1, 1, -INFINITY, 1}, bound[] = {0.1, 0.1, 0.1, 0, 0.1};
    tq_ref_verdict v = {0};
    tq_ref_judge(5, found, expected, bound, &v);
    assert_int_equal(v.n_non_finite, 2);
    assert_int_equal(v.n_outside, 1);
    assert_int_equal(v.worst_at, 4);
    const double no_bound = NAN;
    v = (tq_ref_verdict){0};
    tq_ref_judge(1, &found[4], expected, &no_bound, &v);
    assert_int_equal(v.n_outside, 1);
}

int main(void) {
    test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halves),  cmocka_unit_test(test_transform),
        cmocka_unit_test(test_packing), cmocka_unit_test(test_documented_bytes),
        cmocka_unit_test(test_specs),   cmocka_unit_test(test_attention),
        cmocka_unit_test(test_judge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
