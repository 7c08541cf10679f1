% local by_argument = bytes and "" or ", by[g / 4]"

/* ---- K: a lane is a key ----------------------------------------------------------------------------------------- */

typedef struct query {
    float factor[TQ_MAX_GQA];
% if biased then
    int32_t bias[N_BLOCKS][TQ_MAX_GQA], whole_bias[TQ_MAX_GQA]; /* what the 128s add in a block, in all: negated */
% end
    int32_t pairs[]; /* [group of 4 values][head][2]: ${bytes and "a byte of each value of q, high and low" or "even and odd values of q, 16 bits each"} */
} query;
#define PREPARED_BYTES(gqa) (sizeof(query) + (size_t)(gqa) * HEAD_DIM * 2)

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
        const float *from = q + (size_t)h * q_head_stride;
% if rotated then
        tq_rotate_in(&from, 1, HEAD_DIM, ${pow2}, ${odd}, ROTATE_UNIT, K_SIGNS, &(float *){y});
% else
        memcpy(y, from, sizeof y);
% end
        tqv_f32 most = tqv_zero();
        for (int b = 0; b < HEAD_DIM; b += BLOCK) {
            tqv_f32 block_sum = tqv_zero();
            for (int i = b; i < b + BLOCK; i += TQV_LANES) {
                most = tqv_max(most, tqv_abs(tqv_load(y + i)));
                block_sum = tqv_add(block_sum, tqv_abs(tqv_load(y + i)));
            }
            const float total = tqv_hsum(block_sum);
% if subs > 0 then
            sum = total > sum || isnan(total) ? total : sum;
% else
            sum += total; /* of all blocks: their scales may be equal */
% end
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
% if biased then
        for (int b = 0; b < N_BLOCKS; b++)
            out->bias[b][h] = 0;
% end
        for (int i = 0; i < HEAD_DIM; i += TQV_LANES) {
            const tqv_bits x = tqv_to_i32(tqv_mul(tqv_load(y + i), inverse));
            int32_t numbers[TQV_LANES / 2]; /* two per group of four values */
            to_numbers(x, numbers);
% if biased then
            out->bias[i / BLOCK][h] -= 128 * (int32_t)tqv_hsum(tqv_from_i32(x));
% end
            for (int j = 0; j < TQV_LANES / 4; j++)
                memcpy(out->pairs + ((i / 4 + j) * gqa + h) * 2, numbers + 2 * j, 8);
        }
% if biased then
        out->whole_bias[h] = 0;
        for (int b = 0; b < N_BLOCKS; b++)
            out->whole_bias[h] += out->bias[b][h];
% end
    }
}

% if subs > 0 then
static const int8_t GAINS[16] = {${list(gain_sizes)}};
static const int32_t EVEN = 0x00ff00ff, ODD = (int32_t)0xff00ff00;

/* Gains and signs of the sub-blocks of a block: of units 2j and 2j + 1 in bytes 0 and 1 of a lane of [j][half]. */
typedef struct codes {
    tqv_bits gain[HALVES - 1][2]${signed and ", sign[HALVES - 1][2]" or ""};
} codes;

/* header: of the block, first key. */
TQV_INLINE void load_codes(const uint8_t *header, codes *out) {
    const tqv_bits gains = tqv_table(GAINS), nibble = tqv_bset1(0x0f0f0f0f);
    TQV_UNROLL for (int j = 0; j < HALVES - 1; j++) {
        const tqv_bits x = tqv_from_u16(header + (1 + j) * HALVES_STRIDE);
        TQV_UNROLL for (int half = 0; half < 2; half++) {
            const tqv_bits code = tqv_and(half ? tqv_srl16(x, 4) : x, nibble);
            out->gain[j][half] = tqv_lookup(gains, code);
% if signed then
            out->sign[j][half] = tqv_and(code, tqv_bset1(0x08080808));
% end
        }
    }
}

TQV_INLINE gain key_gain(const codes *c, int unit, int half) {
    const tqv_bits g = c->gain[unit / 2][half];
    return (gain){tqv_spread_even(g, unit % 2), tqv_spread_odd(g, unit % 2),
                  ${signed and "tqv_spread(c->sign[unit / 2][half], unit % 2)" or "tqv_bzero()"}};
}

% end
/* How many vectors of keys are multiplied with q at a time, and by how many heads: all sums stay in registers. */
TQV_INLINE int score_heads(const int gqa) {
    return gqa * SUM_VECTORS <= TQV_SUMS ? gqa : (gqa + 1) / 2;
}
TQV_INLINE int score_vectors(const int gqa) {
    return fitting(score_heads(gqa), MAX_VECTORS);
}

/* The keys that are repacked and scored in one go: whole groups. */
typedef struct batch {
    const query *q;
    const uint8_t *payload, *header; /* of the first key; header: in rows of a step's */
    const ahead *ahead;
    int group; /* the first */
    float *scores;
} batch;

/* Adds the n_groups groups of a unit of n vectors of keys${subs > 0 and "; by: gains of the unit's halves" or ""}. */
TQV_INLINE void add_groups(const int gqa, const int heads, const int n, const int n_groups, const place *places,
                           const words *x, ${subs > 0 and "gain (*by)[2], " or ""}const int32_t *pairs,
                           sums (*sum)[MAX_VECTORS]) {
    const tqv_bits table = centroid_table();
% if in_order then
    if (heads * n == 1) { /* one sum would wait for itself: groups take turns at four */
%     for g = 0, 7 do
        if (${g} < n_groups)
            sum[0][${g % 4}] = add_products(sum[0][${g % 4}], decode_group(x[0], places[${g}], table),
                                    tqv_bset1(pairs[${2 * g}]), tqv_bset1(pairs[${2 * g + 1}]));
%     end
        return;
    }
% end
    TQV_UNROLL for (int g = 0; g < n_groups; g++) {
        operands c[MAX_VECTORS];
        TQV_UNROLL for (int v = 0; v < n; v++)
            c[v] = decode_group(x[v], places[g], table${subs > 0 and ", by[v][g / 4]" or ""});
        TQV_UNROLL for (int h = 0; h < heads; h++) {
            const int32_t *pair = pairs + 2 * (g * gqa + h);
            const tqv_bits first = tqv_bset1(pair[0]), second = tqv_bset1(pair[1]);
            TQV_UNROLL for (int v = 0; v < n; v++)
                sum[h][v] = add_products(sum[h][v], c[v], first, second);
        }
    }
}

/* Scores of n vectors of keys from key `first` of the batch on, with `heads` heads from first_head on. uniform: the blocks
 * of a key have the same scale, so that they are as good as one. */
TQV_INLINE void score_some(const int gqa, const int uniform, const int first_head, const int heads, const int n,
                           const batch *batch, int first) {
    const int n_blocks = uniform ? 1 : N_BLOCKS, units = uniform ? ALL_UNITS : UNITS, step = n * TQV_LANES;
    const query *q = batch->q;
    const int32_t *pairs = q->pairs + 2 * first_head;
    tqv_f32 total[TQ_MAX_GQA][MAX_VECTORS];
    TQV_UNROLL for (int h = 0; h < heads; h++)
        TQV_UNROLL for (int v = 0; v < n; v++)
            total[h][v] = tqv_zero();
    for (int b = 0; b < n_blocks; b++) {
        const uint8_t *header = batch->header + b * HALVES * HALVES_STRIDE + 2 * first;
        sums sum[TQ_MAX_GQA][MAX_VECTORS];
        TQV_UNROLL for (int h = 0; h < heads; h++)
            TQV_UNROLL for (int v = 0; v < n; v++)
                sum[h][v] = sums_from(${biased and "tqv_bset1(uniform ? q->whole_bias[first_head + h] : q->bias[b][first_head + h])" or "tqv_bzero()"});
% if in_order then
        if (heads * n == 1)
            sum[0][1] = sum[0][2] = sum[0][3] = sums_from(tqv_bzero());
% end
% if subs > 0 then
        codes codes[MAX_VECTORS];
        TQV_UNROLL for (int v = 0; v < n; v++)
            load_codes(header + 2 * v * TQV_LANES, &codes[v]);
% end
        for (int u = 0; u < units; u++) {
            words x[MAX_VECTORS];
% if subs > 0 then
            gain by[MAX_VECTORS][2];
% end
            TQV_UNROLL for (int v = 0; v < n; v++) {
                const int key = first + v * TQV_LANES;
                x[v] = (words){.at = key_in(batch->payload, key, 4) + 64 * (b * BLOCK_WORDS + u * UNIT_WORDS)};
% if subs > 0 then
                by[v][0] = key_gain(&codes[v], u, 0);
                by[v][1] = key_gain(&codes[v], u, 1);
% end
% if in_order then
                if (heads * n == 1) {
                    const ahead *a = batch->ahead;
                    const uintptr_t p = lines_ahead(a, ROW_BYTES, batch->group + key / TQ_GROUP, b * UNITS + u, ALL_UNITS,
                                                    (uintptr_t)x[v].at);
                    fetch_lines(p, part_lines(ROW_BYTES, ALL_UNITS));
                    fetch_lines(p - a->nearer, part_lines(ROW_BYTES, ALL_UNITS));
                    continue;
                }
% end
                if (first_head == 0 && v * TQV_LANES % TQ_GROUP == 0)
                    fetch(batch->ahead, ROW_BYTES, batch->group + key / TQ_GROUP,
                          key % TQ_GROUP / step * ALL_UNITS + b * UNITS + u,
                          (step < TQ_GROUP ? TQ_GROUP / step : 1) * ALL_UNITS);
            }
            add_groups(gqa, heads, n, 8, UNIT, x, ${subs > 0 and "by, " or ""}pairs, sum);
            pairs += 2 * gqa * 8;
        }
% if tail then
        words x[MAX_VECTORS];
%     if subs > 0 then
        gain by[MAX_VECTORS][2];
%     end
        TQV_UNROLL for (int v = 0; v < n; v++) {
            const int key = first + v * TQV_LANES;
            x[v] = (words){.at = key_in(batch->payload, key, 4) + 64 * (UNITS * UNIT_WORDS), .tail = 1};
%     if tail_unit.half then
            x[v].half = tqv_split_half(key_in(batch->payload, key, 2) + 64 * BLOCK_WORDS);
%     end
%     if subs > 0 then
            by[v][0] = key_gain(&codes[v], UNITS, 0);
%     end
        }
        add_groups(gqa, heads, n, 4, TAIL, x, ${subs > 0 and "by, " or ""}pairs, sum);
% end
% if in_order then
        if (heads * n == 1) {
            const tqv_bits all = tqv_add32(tqv_add32(total_of(sum[0][0]), total_of(sum[0][1])),
                                           tqv_add32(total_of(sum[0][2]), total_of(sum[0][3])));
            total[0][0] = tqv_fma(tqv_from_i32(all), tqv_from_f16(header), total[0][0]);
            continue;
        }
% end
        TQV_UNROLL for (int v = 0; v < n; v++) {
            const tqv_f32 scale = tqv_from_f16(header + 2 * v * TQV_LANES);
            TQV_UNROLL for (int h = 0; h < heads; h++)
                total[h][v] = tqv_fma(tqv_from_i32(total_of(sum[h][v])), scale, total[h][v]);
        }
    }
    TQV_UNROLL for (int h = 0; h < heads; h++)
        TQV_UNROLL for (int v = 0; v < n; v++)
            tqv_store(batch->scores + (first_head + h) * TQ_MAX_TILE + first + v * TQV_LANES,
                      tqv_mul(total[h][v], tqv_set1(q->factor[first_head + h])));
}

TQV_SPECIALISE void score_batch(const int gqa, const int in_order, const int uniform, const batch *batch) {
    const int n = in_order ? 1 : score_vectors(gqa), heads = score_heads(gqa);
    for (int i = 0; i < TQ_GROUP || i < score_vectors(gqa) * TQV_LANES; i += n * TQV_LANES) {
        score_some(gqa, uniform, 0, heads, n, batch, i);
        if (heads < gqa)
            score_some(gqa, uniform, heads, gqa - heads, n, batch, i);
    }
}

typedef void (*score_batch_fn)(const batch *batch);

/* by_block, uniform: score_batch at this ratio. */
TQV_INLINE void score(const int gqa, const int tiled, const query *q, const tq_keys *keys, float *scores,
                      score_batch_fn by_block, score_batch_fn uniform) {
    (void)by_block, (void)uniform;
    const int groups = (score_vectors(gqa) * TQV_LANES + TQ_GROUP - 1) / TQ_GROUP; /* of a batch */
    uint8_t gathered[KEY_HALVES * HALVES_STRIDE];
    _Alignas(64) uint8_t repacked[MAX_VECTORS * (TQV_LANES + TQ_GROUP - 1) / TQ_GROUP * GROUP_BYTES];
    const uint8_t *headers = headers_of(tiled, keys, 0, 1, gathered);
    const ahead ahead = ahead_of(tiled, keys, ROW_BYTES);
    const score_batch_fn run = ${n_blocks == 1 and "uniform" or subs > 0 and "by_block" or "is_uniform(headers, keys->n) ? uniform : by_block"};
    for (int g = 0; g * TQ_GROUP < keys->n; g += groups) {
        const uint8_t *payload = tiled ? keys->group[0] + PAYLOAD_AT + g * GROUP_BYTES : repacked;
        for (int j = 0; !tiled && j < groups && (g + j) * TQ_GROUP < keys->n; j++)
            repack_keys(keys, g + j, repacked + j * GROUP_BYTES); /* groups that are not there score anything */
        const batch batch = {q, payload, headers + 2 * g * TQ_GROUP, &ahead, g, scores + g * TQ_GROUP};
        run(&batch);
    }
}
