
/* ---- V: a lane is a value, a byte is a key ------------------------------------------------------------------------ */

static const uint8_t SCALE_SETS[] = {${list(scale_sets)}}; /* [set of weights][unit of a group]: a stored scale */
static const uint8_t SET_OF[] = {${list(set_of_group)}}; /* per group of units, the tail last */
enum { N_SETS = sizeof SCALE_SETS / TQV_UNITS, SET_WEIGHTS = QUADS * 2 * TQV_UNITS, HEAD_WEIGHTS = N_SETS * SET_WEIGHTS };

static int scales_of(const tq_keys *keys, float *out) {
    uint8_t stage[TQV_LANES * STAGE_STRIDE];
    for (int i = 0; i < keys->n; i += TQV_LANES) {
        const group rows = group_at(keys, i, ROW_BYTES, stage, STAGE_STRIDE);
        for (int b = 0; b < N_BLOCKS; b++)
            tqv_store(out + b * TQ_MAX_TILE + i,
                      tqv_mul(tqv_load_scales(rows.row + b * BLOCK_BYTES, rows.stride), tqv_set1(STEP)));
    }
    return N_BLOCKS;
}

/* Where full unit i of a row has its payload. */
TQV_INLINE size_t unit_at(int i) {
    return (size_t)(i / UNITS * BLOCK_BYTES + HEADER + i % UNITS * UNIT_BYTES);
}

typedef struct tile {
    const tq_keys *keys;
    int quads;
    uint8_t stage[TQV_LANES * STAGE_STRIDE];
    tqv_bits words[QUADS][${max_words}]; /* of the group of units at work */
% if subs > 0 then
    /* Of the block at work: gains of the even and the odd keys of a quad, and signs. */
    int32_t even[2][CODE_WORDS][QUADS + 1][4], odd[2][CODE_WORDS][QUADS + 1][4], sign[2][CODE_WORDS][QUADS + 1][4];
% end
} tile;

/* Transposes n_words words of the units at bytes at[] of all rows into t->words. */
TQV_INLINE void transpose(tile *t, const size_t at[TQV_UNITS], const int n_words) {
    for (int i = 0; i < t->keys->n; i += TQV_LANES) {
        const group rows = group_at(t->keys, i, ROW_BYTES, t->stage, STAGE_STRIDE);
        if (at[0] == HEADER)
            prefetch_rows(t->keys, i, TQV_LANES, ROW_BYTES);
        for (int quad = 0; quad < TQV_LANES / 4; quad++) {
            const uint8_t *row = rows.row + (size_t)(4 * quad) * rows.stride;
            TQV_UNROLL for (int w = 0; w < n_words; w += 4) {
                const uint8_t *units[TQV_UNITS];
                tqv_bits out[4];
                TQV_UNROLL for (int u = 0; u < TQV_UNITS; u++)
                    units[u] = row + at[u] + 4 * w;
                tqv_load_quad(units, rows.stride, out);
                TQV_UNROLL for (int j = 0; j < 4; j++)
                    if (w + j < n_words)
                        t->words[i / 4 + quad][w + j] = out[j];
            }
        }
    }
}

% if subs > 0 then
static void load_gains(tile *t, int b) {
    for (int i = 0; i < t->keys->n; i += TQV_LANES) {
        const group rows = group_at(t->keys, i, ROW_BYTES, t->stage, STAGE_STRIDE);
        for (int j = 0; j < CODE_WORDS; j++) {
            const codes c = load_codes(rows.row + b * BLOCK_BYTES + 2 + 4 * j, rows.stride);
            for (int half = 0; half < 2; half++) {
                const tqv_bits g = tqv_transpose_bytes(c.gain[half]);
                tqv_bstore(t->even[half][j][i / 4], tqv_and(g, tqv_bset1(EVEN)));
                tqv_bstore(t->odd[half][j][i / 4], tqv_and(g, tqv_bset1(ODD)));
                tqv_bstore(t->sign[half][j][i / 4],
                           tqv_and(tqv_transpose_bytes(c.code[half]), tqv_bset1(0x08080808)));
            }
        }
    }
}

% end
/* Adds the tile's rows to `count` groups of values from `first` on. unit: the first unit of its block. */
TQV_INLINE void accumulate_groups(const int gqa, const int first, const int count, const place *places, const int n_words,
                                  const tile *t, int unit, const int32_t *weights, ${bytes == "unsigned" and "const tqv_bits *weight_sums, " or ""}const float *factor,
                                  const float *decay, float *acc) {
    const tqv_bits table = centroid_table();
    sums sum[TQ_MAX_GQA][4];
    operands c[4];
    TQV_UNROLL for (int h = 0; h < gqa; h++)
        TQV_UNROLL for (int g = 0; g < count; g++)
            sum[h][g] = no_sums(${bytes == "unsigned" and "weight_sums[h]" or "tqv_bzero()"});
    for (int quad = 0; quad < t->quads; quad++) {
        tqv_bits x[${max_words} + 1];
        TQV_UNROLL for (int w = 0; w < n_words; w++)
            x[w] = t->words[quad][w];
% if bits == 3 then
        if (places == UNIT && first + count > 6)
            x[n_words] = unit_spare(x);
%     if tail then
        if (places == TAIL && first + count > 3)
            x[n_words] = tail_spare(x);
%     end
% end
        TQV_UNROLL for (int g = 0; g < count; g++) {
% if subs > 0 then
            const int half = (first + g) / 4, lane = unit % 4, word = unit / 4;
            const gain by = {tqv_units(t->even[half][word][quad] + lane), tqv_units(t->odd[half][word][quad] + lane),
                             tqv_units(t->sign[half][word][quad] + lane)};
% elseif not bytes then
            const gain by = unit_gain();
% end
            c[g] = decode_group(x, places[first + g], table${bytes and "" or ", by"});
        }
        TQV_UNROLL for (int h = 0; h < gqa; h++) {
            const int32_t *w = weights + h * HEAD_WEIGHTS + quad * 2 * TQV_UNITS;
            const tqv_bits first_w = tqv_units(w), second_w = tqv_units(w + TQV_UNITS);
            TQV_UNROLL for (int g = 0; g < count; g++)
                sum[h][g] = add_products(sum[h][g], c[g], first_w, second_w);
        }
    }
    (void)unit;
    TQV_UNROLL for (int h = 0; h < gqa; h++)
        TQV_UNROLL for (int g = 0; g < count; g++) {
            float *to = acc + h * ACC_VALUES + (first + g) * TQV_LANES;
            const tqv_f32 old = tqv_mul(tqv_load(to), tqv_set1(decay[h]));
            tqv_store(to, tqv_fma(tqv_from_i32(total_of(sum[h][g])), tqv_set1(factor[h]), old));
        }
}

% if bytes == "unsigned" then
/* Per unit of a set, in its lanes: the sums of each head's weights. */
TQV_INLINE void sum_weights(const int gqa, const int quads, const int32_t *weights, tqv_bits *out) {
    const tqv_bits ones = tqv_bset1(0x01010101);
    TQV_UNROLL for (int h = 0; h < gqa; h++) {
        tqv_bits sum = tqv_bzero();
        for (int i = 0; i < quads * 2 * TQV_UNITS; i += TQV_LANES)
            sum = tqv_dot8(sum, ones, tqv_bload(weights + h * HEAD_WEIGHTS + i));
        out[h] = tqv_weight_sums(sum);
    }
}

% end
/* Groups of values per pass: more share the loads of weights, fewer leave all sums in registers. */
TQV_INLINE int groups_per_pass(const int gqa) {
    return gqa <= 2 ? 4 : gqa <= 4 ? 2 : 1;
}

TQV_SPECIALISE void accumulate(const int gqa, const tq_keys *keys, const int32_t *weights, int n_scales,
                               const float *factor, const float *decay, float *acc) {
    tile t;
    (void)n_scales;
    t.keys = keys;
    t.quads = (keys->n + TQV_LANES - 1) / TQV_LANES * (TQV_LANES / 4);
    for (int i = 0; i < UNIT_GROUPS; i++) {
        const int first = i * TQV_UNITS;
        size_t at[TQV_UNITS];
        for (int u = 0; u < TQV_UNITS; u++) /* the last again where there are no more */
            at[u] = unit_at(first + u < ALL_UNITS ? first + u : ALL_UNITS - 1);
% if subs > 0 then
        if (first % UNITS == 0)
            load_gains(&t, first / UNITS);
% end
        transpose(&t, at, UNIT_WORDS);
% if bytes == "unsigned" then
        tqv_bits weight_sums[TQ_MAX_GQA];
        sum_weights(gqa, t.quads, weights + SET_OF[i] * SET_WEIGHTS, weight_sums);
% end
        TQV_UNROLL for (int g = 0; g < 8; g += groups_per_pass(gqa))
            accumulate_groups(gqa, g, groups_per_pass(gqa), UNIT, UNIT_WORDS, &t, first % UNITS,
                              weights + SET_OF[i] * SET_WEIGHTS, ${bytes == "unsigned" and "weight_sums, " or ""}factor, decay, acc + i * WIDE);
    }
% if tail then
    size_t tail_at[TQV_UNITS];
    for (int u = 0; u < TQV_UNITS; u++)
        tail_at[u] = TAIL_AT;
    transpose(&t, tail_at, ${tail_unit.words + (tail_unit.half and 1 or 0)});
%     if tail_unit.half then
    for (int quad = 0; quad < t.quads; quad++)
        t.words[quad][TAIL_WORDS] = tqv_quad_half(t.words[quad][TAIL_WORDS]);
%     end
%     if bytes == "unsigned" then
    tqv_bits weight_sums[TQ_MAX_GQA];
    sum_weights(gqa, t.quads, weights + SET_OF[UNIT_GROUPS] * SET_WEIGHTS, weight_sums);
%     end
    TQV_UNROLL for (int g = 0; g < 4; g += groups_per_pass(gqa))
        accumulate_groups(gqa, g, groups_per_pass(gqa), TAIL, ${tail_unit.words + (tail_unit.half and 1 or 0)}, &t, UNITS,
                          weights + SET_OF[UNIT_GROUPS] * SET_WEIGHTS, ${bytes == "unsigned" and "weight_sums, " or ""}factor, decay,
                          acc + UNIT_GROUPS * WIDE);
% end
}

static void finish(const float *acc, float *out) {
    float y[HEAD_DIM];
    for (int unit = 0; unit < (HEAD_DIM + 31) / 32; unit++) {
        const int tail = unit >= ALL_UNITS; /* alone in its group, whatever number it has */
        const float *from = acc + (tail ? UNIT_GROUPS : unit / TQV_UNITS) * WIDE + (tail ? 0 : unit % TQV_UNITS);
        for (int i = 0; i < 32 && 32 * unit + i < HEAD_DIM; i++)
            y[32 * unit + i] = from[i / 4 * TQV_LANES + i % 4 * TQV_UNITS];
    }
% if rotated then
    rotate(y);
    tq_flip_signs(y, HEAD_DIM, V_SIGNS);
% end
    memcpy(out, y, sizeof y);
}

/* ---- one pair of stages per GQA ratio ----------------------------------------------------------------------------- */

% for _, g in ipairs(gqas) do
TQ_AT_GQA(${g})
const tq_k_stage ${k_symbol(g, "rows")} = {PREPARED_BYTES(${g}), prepare_g${g}, score_g${g}};
const tq_v_stage ${v_symbol(g, "rows")} = {
    N_BLOCKS, N_SETS, SCALE_SETS, ${hexf(weight_sum)}, ${bytes and 1 or 0}, ACC_VALUES, scales_of, accumulate_g${g}, finish};
% end
