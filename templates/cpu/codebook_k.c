% local by_argument = bytes and "" or ", by[g / 4]"
/* ---- K: a lane is a key ----------------------------------------------------------------------------------------- */

typedef struct query {
    float factor[TQ_MAX_GQA];
% if bytes == "unsigned" then
    int32_t sum[N_BLOCKS][TQ_MAX_GQA]; /* of a block's q */
% end
% if bytes then
    int32_t pairs[]; /* [group of 4 values][head][high, low][copies]: a byte of each value of q */
% else
    int32_t pairs[]; /* [group of 4 values][head][even, odd][copies]: two 16-bit values of q each */
% end
} query;

enum { COPIED_VALUES = 1024 }; /* of q, at most */

/* A pair fills a whole vector in memory, ready to be an operand, as long as all of q stays in half of a small L1. */
TQV_INLINE int copies(const int gqa) {
    return gqa * HEAD_DIM <= COPIED_VALUES ? TQV_LANES : 1;
}
#define PREPARED_BYTES(gqa) (sizeof(query) + (gqa) * HEAD_DIM * 2 * ((gqa) * HEAD_DIM <= COPIED_VALUES ? TQV_LANES : 1))

TQV_INLINE tqv_bits pair_at(const int gqa, const int32_t *pairs, int i) {
    return copies(gqa) > 1 ? tqv_bload(pairs + i * TQV_LANES) : tqv_bset1(pairs[i]);
}

% if bytes then
/* The high bytes of four neighbouring values, then their low bytes. */
TQV_INLINE void to_numbers(tqv_bits x, int32_t *out) {
    int32_t v[TQV_LANES];
    tqv_bstore(v, x);
    for (int g = 0; g < TQV_LANES / 4; g++) {
        uint32_t high = 0, low = 0;
        for (int i = 0; i < 4; i++) {
            const int32_t value = v[4 * g + i], top = (value + 128) >> 8;
            high |= ((uint32_t)top & 0xff) << 8 * i;
            low |= ((uint32_t)value & 0xff) << 8 * i;
        }
        out[2 * g] = (int32_t)high;
        out[2 * g + 1] = (int32_t)low;
    }
}
% else
/* Each of the even and the odd values of four with its neighbour but one. */
TQV_INLINE void to_numbers(tqv_bits x, int32_t *out) {
    int32_t v[TQV_LANES];
    tqv_bstore(v, x);
    for (int j = 0; j < TQV_LANES / 2; j++) {
        const int value = j / 2 * 4 + j % 2;
        out[j] = (int32_t)((uint32_t)(v[value] & 0xffff) | (uint32_t)v[value + 2] << 16);
    }
}
% end

TQV_SPECIALISE void prepare(const int gqa, const float *q, size_t q_head_stride, float factor, query *out) {
    for (int h = 0; h < gqa; h++) {
        float y[HEAD_DIM], sum = 0.0f;
        memcpy(y, q + (size_t)h * q_head_stride, sizeof y);
% if rotated then
        tq_flip_signs(y, HEAD_DIM, K_SIGNS);
        rotate(y);
% end
        tqv_f32 most = tqv_zero();
        for (int b = 0; b < HEAD_DIM; b += BLOCK) {
            tqv_f32 block_sum = tqv_zero();
            for (int i = b; i < b + BLOCK; i += TQV_LANES) {
                most = tqv_max(most, tqv_abs(tqv_load(y + i)));
                block_sum = tqv_add(block_sum, tqv_abs(tqv_load(y + i)));
            }
            const float total = tqv_hsum(block_sum);
            sum = total > sum || isnan(total) ? total : sum;
        }
        float unit = tqv_hmax(most) / 32639.0f; /* 127 * 256 + 127 */
% if q_sum then
        if (sum > unit * ${hexf(q_sum)}) /* 32-bit sums stay exact whatever the cache holds */
            unit = sum / ${hexf(q_sum)};
% end
        if (!isfinite(sum)) {
            out->factor[h] = NAN;
            unit = 0.0f;
            memset(y, 0, sizeof y);
        } else {
            out->factor[h] = factor * unit * STEP;
        }
        const tqv_f32 inverse = tqv_set1(unit > 0x1p-100f ? 1.0f / unit : 0.0f);
        for (int i = 0; i < HEAD_DIM; i += TQV_LANES) {
            const tqv_bits x = tqv_to_i32(tqv_mul(tqv_load(y + i), inverse));
            int32_t numbers[TQV_LANES / 2]; /* two per group of four values */
            to_numbers(x, numbers);
% if bytes == "unsigned" then
            out->sum[i / BLOCK][h] = (i % BLOCK ? out->sum[i / BLOCK][h] : 0) + tqv_sum32(x);
% end
            for (int j = 0; j < TQV_LANES / 2; j++) {
                const int32_t pair = numbers[j];
                int32_t *to = out->pairs + (((i / 4 + j / 2) * gqa + h) * 2 + j % 2) * copies(gqa);
                if (copies(gqa) > 1)
                    tqv_bstore(to, tqv_bset1(pair));
                else
                    *to = pair;
            }
        }
    }
}

/* Adds n groups of a unit's words x${bytes and "" or "; by: the gains of its halves"}. */
TQV_INLINE void add_groups(const int gqa, const int n, const place *places, const tqv_bits *x, tqv_bits table,
                           ${bytes and "" or "const gain *by, "}const int32_t *pairs, sums *sum) {
    TQV_UNROLL for (int g = 0; g < n; g++) {
        const operands c = decode_group(x, places[g], table${by_argument});
        TQV_UNROLL for (int h = 0; h < gqa; h++) {
            const int i = 2 * (g * gqa + h);
            sum[h] = add_products(sum[h], c, pair_at(gqa, pairs, i), pair_at(gqa, pairs, i + 1));
        }
    }
}

% if subs > 0 then
static const int8_t GAINS[16] = {${list(gain_sizes)}};
static const int32_t EVEN = 0x00ff00ff, ODD = (int32_t)0xff00ff00;

typedef struct codes {
    tqv_bits code[2], gain[2]; /* of the even and the odd sub-blocks, a byte each */
} codes;

TQV_INLINE codes load_codes(const uint8_t *p, size_t stride) {
    const tqv_bits x = tqv_load_dwords(p, stride), nibble = tqv_bset1(0x0f0f0f0f), gains = tqv_table(GAINS);
    const tqv_bits even = tqv_and(x, nibble), odd = tqv_and(tqv_srl16(x, 4), nibble);
    return (codes){{even, odd}, {tqv_lookup(gains, even), tqv_lookup(gains, odd)}};
}

/* The gain of half `half` of unit `unit` of a block. */
TQV_INLINE gain key_gain(const codes *c, int unit, int half) {
    const tqv_bits g = c[unit / 4].gain[half];
    return (gain){tqv_spread(g, unit % 4, EVEN), tqv_spread(g, unit % 4, ODD),
                  tqv_spread(c[unit / 4].code[half], unit % 4, 0x08080808)};
}

% end
TQV_SPECIALISE void score(const int gqa, const query *q, const tq_keys *keys, float *scores) {
    uint8_t stage[TQV_LANES * STAGE_STRIDE];
    const tqv_bits table = centroid_table();
    for (int i = 0; i < keys->n; i += TQV_LANES) {
        const group rows = group_at(keys, i, ROW_BYTES, stage, STAGE_STRIDE);
        prefetch_rows(keys, i, TQV_LANES, ROW_BYTES);
        const int32_t *pairs = q->pairs;
        tqv_f32 total[TQ_MAX_GQA];
        TQV_UNROLL for (int h = 0; h < gqa; h++)
            total[h] = tqv_zero();
        for (int b = 0; b < N_BLOCKS; b++) {
            const uint8_t *block = rows.row + b * BLOCK_BYTES;
            const tqv_f32 scale = tqv_load_scales(block, rows.stride);
            sums sum[TQ_MAX_GQA];
            TQV_UNROLL for (int h = 0; h < gqa; h++)
                sum[h] = no_sums(${bytes == "unsigned" and "tqv_bset1(q->sum[b][h])" or "tqv_bzero()"});
% if subs > 0 then
            codes c[CODE_WORDS];
            TQV_UNROLL for (int j = 0; j < CODE_WORDS; j++)
                c[j] = load_codes(block + 2 + 4 * j, rows.stride);
% end
            for (int u = 0; u < UNITS; u++) {
                tqv_bits x[UNIT_WORDS + 4];
                TQV_UNROLL for (int w = 0; w < UNIT_WORDS; w += 4)
                    tqv_load_words(block + HEADER + u * UNIT_BYTES + 4 * w, rows.stride, x + w);
% if bits == 3 then
                x[UNIT_WORDS] = unit_spare(x);
% end
% if subs > 0 then
                const gain by[2] = {key_gain(c, u, 0), key_gain(c, u, 1)};
% elseif not bytes then
                const gain by[2] = {unit_gain(), unit_gain()};
% end
                add_groups(gqa, 8, UNIT, x, table, ${bytes and "" or "by, "}pairs, sum);
                pairs += 2 * gqa * copies(gqa) * 8;
            }
% if tail then
            tqv_bits x[TAIL_WORDS + 4];
            TQV_UNROLL for (int w = 0; w < TAIL_WORDS; w += 4)
                tqv_load_words(block + TAIL_AT + 4 * w, rows.stride, x + w);
%     if tail_unit.half then
            x[TAIL_WORDS] = tqv_load_half(block + TAIL_AT + 4 * TAIL_WORDS, rows.stride);
            x[TAIL_WORDS + 1] = tail_spare(x);
%     end
%     if subs > 0 then
            const gain by = key_gain(c, UNITS, 0);
%     elseif not bytes then
            const gain by = unit_gain();
%     end
            add_groups(gqa, 4, TAIL, x, table, ${bytes and "" or "&by, "}pairs, sum);
% end
            TQV_UNROLL for (int h = 0; h < gqa; h++)
                total[h] = tqv_fma(tqv_from_i32(total_of(sum[h])), scale, total[h]);
        }
        TQV_UNROLL for (int h = 0; h < gqa; h++)
            tqv_store(scores + h * TQ_MAX_TILE + i, tqv_mul(total[h], tqv_set1(q->factor[h])));
    }
}
