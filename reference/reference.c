/* reference.c: bytes, transform, plain encoder. Written from docs/formats.md; slow and obvious on purpose. */
#include "reference.h"

#include <assert.h>
#include <math.h>
#include <string.h>

double tq_ref_half_to_double(uint16_t half) {
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    double sign = half >> 15 ? -1.0 : 1.0;
    if (exponent == 31)
        return mantissa ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24));
}

uint16_t tq_ref_half_from_double(double x) {
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double a = fabs(x);
    if (a >= 65504.0)
        return sign | 0x7bff;
    int exponent = -14; /* of the subnormals and the first normal binade */
    if (a >= 0x1p-14)
        exponent = ilogb(a);
    /* Units of the last place; 1024 and above are normal, and a carry into the next binade lands where it should. */
    int units = (int)nearbyint(ldexp(a, 10 - exponent));
    return (uint16_t)(sign | (units + ((exponent + 14) << 10)));
}

void tq_ref_transform(const tq_chunk *chunk, double *y) {
    int n = chunk->size, pow2 = chunk->pow2, odd = chunk->odd;
    for (int half = 1; half < pow2; half *= 2)
        for (int i = 0; i < n; i += 2 * half)
            for (int j = i; j < i + half; j++) {
                double a = y[j], b = y[j + half];
                y[j] = (a + b) * sqrt(0.5);
                y[j + half] = (a - b) * sqrt(0.5);
            }
    for (int j = 0; odd > 1 && j < pow2; j++) { /* R = I - (2/odd) J */
        double sum = 0;
        for (int a = 0; a < odd; a++)
            sum += y[a * pow2 + j];
        for (int a = 0; a < odd; a++)
            y[a * pow2 + j] -= 2.0 / odd * sum;
    }
}

/* ---- layout ----------------------------------------------------------------------------------------------------- */

/* Where bit `bit` of the index of value v lies in the payload of a unit of n values (32, or a last 16): its bit number,
 * counting from bit 0 of byte 0. Words of four bytes hold groups of four values; byte y is of value y of a group. */
static int bit_position(int bits, int n, int v, int bit) {
    int group = v / 4, y = v % 4;
    if (bits != 3) {
        int per_word = 8 / bits;
        return 8 * (4 * (group / per_word) + y) + bits * (group % per_word) + bit;
    }
    /* 3 bits: nibble slots; the groups that are left over lie in the top bits of the slots, one bit in each. */
    int n_slots = 3 * n / 16, rest = n / 4 - n_slots;
    int slot = group, shift = bit;
    if (group >= n_slots) {
        slot = rest * (2 - bit) + group - n_slots;
        shift = 3;
    }
    if (n == 16 && slot == 2) /* the half word: values 0, 1 in low nibbles, 2, 3 in high ones */
        return 8 * (4 + y % 2) + 4 * (y / 2) + shift;
    return 8 * (4 * (slot / 2) + y) + 4 * (slot % 2) + shift;
}

/* Where the next bit is: beside the last one, but for groups that are left over, whose bits are looked up one by one. */
static int next_position(int bits, int n, int v, int bit, int last) {
    int left_over = bits == 3 && v / 4 >= 3 * n / 16;
    return bit == 0 || left_over ? bit_position(bits, n, v, bit) : last + 1;
}

static int get_index(int bits, int n, const uint8_t *unit, int v) {
    int code = 0;
    for (int bit = 0, at = 0; bit < bits; bit++) {
        at = next_position(bits, n, v, bit, at);
        code |= (unit[at / 8] >> at % 8 & 1) << bit;
    }
    if (bits == 4) /* a magnitude, and a sign in bit 0 */
        return code % 2 ? 7 - code / 2 : 8 + code / 2;
    return bits == 8 ? (int8_t)code : code;
}

static void put_index(int bits, int n, uint8_t *unit, int v, int index) {
    int code = bits != 4 ? index : index < 8 ? 2 * (7 - index) + 1 : 2 * (index - 8);
    for (int bit = 0, at = 0; bit < bits; bit++) {
        at = next_position(bits, n, v, bit, at);
        unit[at / 8] = (uint8_t)(unit[at / 8] & ~(1 << at % 8)) | (uint8_t)((code >> bit & 1) << at % 8);
    }
}

/* Bytes of a block before its indices: the scale, then the gain codes in 16-bit words of four. */
static int header_bytes(const tq_format_spec *format) {
    return 2 + (format->sub ? 2 * ((format->block / format->sub + 3) / 4) : 0);
}

static int unit_size(const tq_format_spec *format, int v) {
    int left = format->block - v;
    assert(left >= 32 || left == 16);
    return left >= 32 ? 32 : 16;
}

void tq_ref_unpack(const tq_format_spec *format, const uint8_t *row, tq_ref_codes *codes) {
    for (int first = 0; first < format->head_dim; first += format->block) {
        double scale = tq_ref_half_to_double((uint16_t)(row[0] | row[1] << 8));
        const uint8_t *gains = row + 2;
        row += header_bytes(format);
        for (int v = 0; v < format->block;) {
            int n = unit_size(format, v);
            for (int i = 0; i < n; i++) {
                int sub = format->sub ? (v + i) / format->sub : 0;
                codes->scale[first + v + i] = scale;
                codes->index[first + v + i] = get_index(format->bits, n, row, i);
                codes->gain[first + v + i] = format->sub ? gains[sub / 2] >> 4 * (sub % 2) & 15 : 0;
            }
            v += n;
            row += n * format->bits / 8;
        }
    }
}

void tq_ref_pack(const tq_format_spec *format, const tq_ref_codes *codes, uint8_t *row) {
    memset(row, 0, (size_t)format->row_bytes);
    for (int first = 0; first < format->head_dim; first += format->block) {
        uint16_t scale = tq_ref_half_from_double(codes->scale[first]);
        row[0] = scale & 255;
        row[1] = scale >> 8;
        for (int sub = 0; format->sub && sub < format->block / format->sub; sub++)
            row[2 + sub / 2] |= (uint8_t)(codes->gain[first + sub * format->sub] << 4 * (sub % 2));
        row += header_bytes(format);
        for (int v = 0; v < format->block;) {
            int n = unit_size(format, v);
            for (int i = 0; i < n; i++)
                put_index(format->bits, n, row, i, codes->index[first + v + i]);
            v += n;
            row += n * format->bits / 8;
        }
    }
}

int tq_ref_level(const tq_format_spec *format, const tq_ref_codes *codes, int i) {
    int level = format->centroids ? format->centroids[codes->index[i]] : codes->index[i];
    return format->sub ? level * format->gains[codes->gain[i]] : level;
}

const tq_chunk *tq_ref_chunk_of(const tq_format_spec *format, int i) {
    const tq_chunk *chunk = format->chunks;
    while (i >= chunk->first_value + chunk->size)
        chunk++;
    return chunk;
}

/* ---- rotation --------------------------------------------------------------------------------------------------- */

static void apply_signs(const tq_format_spec *format, tq_side side, double *x) {
    const uint32_t *signs = side == TQ_SIDE_K ? format->k_signs : format->v_signs;
    for (int i = 0; i < format->head_dim; i++)
        if (signs[i / 32] >> i % 32 & 1)
            x[i] = -x[i];
}

static void apply_transform(const tq_format_spec *format, double *y) {
    for (int c = 0; c < format->n_chunks; c++)
        tq_ref_transform(&format->chunks[c], y + format->chunks[c].first_value);
}

void tq_ref_rotate(const tq_format_spec *format, tq_side side, const float *x, const float *mean, double *y) {
    for (int i = 0; i < format->head_dim; i++)
        y[i] = (double)x[i] - (mean ? (double)mean[i] : 0.0);
    if (format->rotated) {
        apply_signs(format, side, y);
        apply_transform(format, y);
    }
}

void tq_ref_unrotate(const tq_format_spec *format, tq_side side, double *y) {
    if (format->rotated) {
        apply_transform(format, y);
        apply_signs(format, side, y);
    }
}

void tq_ref_decode_row(const tq_format_spec *format, tq_side side, const uint8_t *row, const float *mean, double *x) {
    if (format->bits == 16) {
        for (int i = 0; i < format->head_dim; i++)
            x[i] = tq_ref_half_to_double((uint16_t)(row[2 * i] | row[2 * i + 1] << 8));
    } else {
        tq_ref_codes codes;
        tq_ref_unpack(format, row, &codes);
        for (int i = 0; i < format->head_dim; i++) {
            double step = (double)format->steps[tq_ref_chunk_of(format, i) - format->chunks];
            x[i] = codes.scale[i] * step * tq_ref_level(format, &codes, i);
        }
    }
    tq_ref_unrotate(format, side, x);
    for (int i = 0; mean && i < format->head_dim; i++)
        x[i] += (double)mean[i];
}

/* ---- encoder ---------------------------------------------------------------------------------------------------- */

/* Nearest of the ascending levels factor * centroid; a value on a boundary takes the upper one. factor may be negative:
 * the order of the levels is then reversed, and upper still means the upper index. */
static int nearest(const tq_format_spec *format, double y, double factor) {
    int index = 0;
    for (int i = 1; i < 1 << format->bits && factor != 0; i++) {
        double boundary = 0.5 * (format->centroids[i - 1] + format->centroids[i]);
        if (y / factor >= boundary)
            index = i;
    }
    return index;
}

static double root_sum_squares(const double *y, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += y[i] * y[i];
    return sqrt(sum);
}

static void encode_gains(const tq_format_spec *format, const double *y, double unit, tq_ref_codes *codes, int first) {
    for (int sub = first; sub < first + format->block; sub += format->sub) {
        double least = INFINITY;
        for (int gain = 0; gain < 16; gain++) {
            int index[TQ_MAX_HEAD_DIM];
            double error = 0, factor = unit * format->gains[gain];
            for (int i = 0; i < format->sub; i++) {
                index[i] = nearest(format, y[sub + i], factor);
                double e = y[sub + i] - factor * format->centroids[index[i]];
                error += e * e;
            }
            if (error < least) {
                least = error;
                for (int i = 0; i < format->sub; i++) {
                    codes->gain[sub + i] = gain;
                    codes->index[sub + i] = index[i];
                }
            }
        }
    }
}

static void encode_chunk(const tq_format_spec *format, int c, const double *y, tq_scale_mode mode,
                         tq_ref_codes *codes) {
    int first = format->chunks[c].first_value, end = first + format->chunks[c].size;
    double norm = root_sum_squares(y + first, end - first), unit = norm * (double)format->steps[c], square = 0;
    for (int i = first; i < end; i++) {
        codes->scale[i] = norm;
        if (!format->sub) {
            codes->index[i] = nearest(format, y[i], unit);
            double level = (double)format->steps[c] * format->centroids[codes->index[i]];
            square += level * level;
        }
    }
    for (int block = first; format->sub && block < end; block += format->block)
        encode_gains(format, y, unit, codes, block);
    for (int i = first; mode == TQ_SCALE_NC && !format->sub && i < end; i++)
        codes->scale[i] = norm / sqrt(square);
}

/* The largest magnitude of a block becomes 127. */
static void encode_bytes(const tq_format_spec *format, const double *y, tq_ref_codes *codes) {
    for (int first = 0; first < format->head_dim; first += format->block) {
        double largest = 0;
        for (int i = first; i < first + format->block; i++)
            largest = fmax(largest, fabs(y[i]));
        for (int i = first; i < first + format->block; i++) {
            codes->scale[i] = largest / 127;
            codes->index[i] = largest > 0 ? (int)floor(y[i] / (largest / 127) + 0.5) : 0;
        }
    }
}

void tq_ref_encode_row(const tq_format_spec *format, tq_side side, const float *x, const float *mean,
                       tq_scale_mode mode, uint8_t *row) {
    double y[TQ_MAX_HEAD_DIM];
    tq_ref_codes codes = {0};
    tq_ref_rotate(format, side, x, mean, y);
    if (format->bits == 16) {
        for (int i = 0; i < format->head_dim; i++) {
            uint16_t half = tq_ref_half_from_double(y[i]);
            row[2 * i] = half & 255;
            row[2 * i + 1] = half >> 8;
        }
        return;
    }
    if (format->bits == 8)
        encode_bytes(format, y, &codes);
    for (int c = 0; format->bits < 8 && c < format->n_chunks; c++)
        encode_chunk(format, c, y, mode, &codes);
    tq_ref_pack(format, &codes, row);
}

void tq_ref_judge(size_t n, const float *found, const double *expected, const double *bound, tq_ref_verdict *verdict) {
    for (size_t i = 0; i < n; i++) {
        double x = (double)found[i];
        if (isinf(expected[i]) && x == expected[i])
            continue;
        if (!isfinite(x) || !isfinite(expected[i])) {
            verdict->n_non_finite++;
            continue;
        }
        double error = fabs(x - expected[i]);
        double ratio = error == 0 ? 0 : error / bound[i];
        verdict->error += error * error;
        verdict->power += expected[i] * expected[i];
        verdict->n_outside += !(ratio <= 1);
        if (ratio > verdict->worst) {
            verdict->worst = ratio;
            verdict->worst_at = i;
        }
    }
}
