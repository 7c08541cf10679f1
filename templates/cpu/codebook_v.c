
/* ---- V: a lane is a value, a byte is a key ------------------------------------------------------------------------ */
% -- Sets of the tile, those of four units in one go.
% local sets, acc_values, full_sets, largest_set = {}, 0, 0, 0
% for _, set in ipairs(tile_sets) do
%     local last = sets[#sets]
%     if last and last.m == 4 and set.columns == 4 then
%         last.count = last.count + 1
%     else
%         sets[#sets + 1] = { name = set.tail and "tail" or "set" .. set.columns, m = set.columns, count = 1, first = set.first,
%             words = set.words, half = set.half and 1 or 0, tail = set.tail and 1 or 0, acc = acc_values }
%     end
%     acc_values = acc_values + (set.tail and 64 or 128)
%     full_sets = full_sets + (set.tail and 0 or 1)
%     largest_set = math.max(largest_set, set.step * set.columns // 4)
% end

/* Units of 32 values are summed in sets of m = 4, 2 or 1, whatever is left, and a tail alone. A vector of a word of the set
 * has 4 columns: m units of 4 / m quads of keys; its lane of column c and value y of a group is c / 2 * 8 + y * 2 + c % 2. */
enum { COLUMNS = 4, SET_COLUMNS = QUADS * COLUMNS, ACC_VALUES = ${acc_values} };

TQV_INLINE int scales_of(const int tiled, const tq_keys *keys, float *out) {
    uint8_t gathered[KEY_HALVES * HALVES_STRIDE];
    const uint8_t *headers = headers_of(tiled, keys, 0, HALVES, gathered);
    const int n_scales = is_uniform(headers, keys->n) ? 1 : N_BLOCKS;
    for (int b = 0; b < n_scales; b++)
        for (int i = 0; i < keys->n; i += TQV_LANES)
            tqv_store(out + b * TQ_MAX_TILE + i,
                      tqv_mul(tqv_from_f16(headers + b * HALVES * HALVES_STRIDE + 2 * i), tqv_set1(STEP)));
    return n_scales;
}

% for _, layout in ipairs(layouts) do
static int scales_${layout}(const tq_keys *keys, float *out) {
    return scales_of(${layout == "rows" and 0 or 1}, keys, out);
}

% end
% if subs > 0 then
/* Gain codes of a set by columns: gains of even and of odd keys, and signs, of either half of the units. */
typedef struct gains {
    int32_t even[2][SET_COLUMNS], odd[2][SET_COLUMNS]${signed and ", sign[2][SET_COLUMNS]" or ""};
} gains;

% end
/* A set of units of a step's keys. */
typedef struct set {
    const uint8_t *payload;
    const int32_t *weights; /* [head][2]: of a single scale [quad], else by columns */
    const int32_t (*bias)[COLUMNS]; /* [head]: minus what the 128s add, in each column */
% if subs > 0 then
    const gains *gains;
% end
    const ahead *ahead;
    int n_groups, part; /* of keys; first part of `ahead` to fetch */
    const float *factor, *decay;
    float *acc;
} set;

% if tail and tail_unit.half then
/* The halves of a tail's row, by columns: those of one super-quad. */
TQV_INLINE void repack_half(const uint8_t *const columns[COLUMNS], size_t stride, uint8_t *out) {
    for (int i = 0; i < COLUMNS * 2 * 4; i++)
        out[i] = columns[i / 8][(size_t)(i % 4) * stride + (size_t)(i / 4 % 2)];
}

% end
/* The rows of a step as a set of a tile. */
TQV_INLINE void repack_set(const tq_keys *keys, const int m, const int first_unit, const int n_words, const int half, uint8_t *out) {
    uint8_t stage[STAGE_BYTES];
    (void)half;
    for (int g = 0; g * TQ_GROUP < keys->n; g++) {
        const group rows = group_at(keys, g, ROW_BYTES, stage, STAGE_STRIDE);
        for (int i = 0; i < m; i++, out += 64 * n_words + 32 * half) {
            const uint8_t *columns[COLUMNS];
            TQV_UNROLL for (int c = 0; c < COLUMNS; c++) {
                const int unit = first_unit + c % m, quad = i * (COLUMNS / m) + c / m;
                columns[c] = rows.row + (size_t)(4 * quad) * rows.stride + unit / BLOCK_UNITS * BLOCK_BYTES + HEADER +
                             unit % BLOCK_UNITS * (4 * UNIT_WORDS);
            }
            TQV_UNROLL for (int w = 0; w < n_words; w += 4) {
                tqv_repack_columns(columns, rows.stride, n_words - w < 4 ? n_words - w : 4, out + 64 * w);
                TQV_UNROLL for (int c = 0; c < COLUMNS; c++)
                    columns[c] += n_words - w < 4 ? 4 * (n_words - w) : 16;
            }
% if tail and tail_unit.half then
            if (half)
                repack_half(columns, rows.stride, out + 64 * n_words);
% end
        }
    }
}

/* n vectors of numbers by columns, for a set of m units. planes: of each column's unit, a number per quad, `stride` apart. */
TQV_INLINE void to_columns(const int m, int n, const int32_t *const planes[COLUMNS], const int stride, int32_t *out) {
    if (m == COLUMNS && stride == 1) {
        for (int i = 0; i < n; i += TQV_LANES) /* whole vectors, of which there are enough in planes and out */
            tqv_interleave(planes[0] + i, planes[1] + i, planes[2] + i, planes[3] + i, out + COLUMNS * i);
        return;
    }
    for (int i = 0; i < n; i++)
        for (int c = 0; c < COLUMNS; c++)
            out[COLUMNS * i + c] = planes[c][(i * (COLUMNS / m) + c / m) * stride];
}

% if subs > 0 then
/* headers: of the block; first: the set's first unit in it. */
TQV_INLINE void load_gains(const int m, const uint8_t *headers, int first, gains *out) {
    int32_t codes[2][2 * QUADS], columns[SET_COLUMNS]; /* codes: of pairs of units, [quad][unit] */
    const int32_t *planes[COLUMNS];
    for (int j = 0; j < (m + 1) / 2; j++)
        for (int i = 0; i < 2 * QUADS; i += TQV_LANES)
            tqv_bstore(codes[j] + i, tqv_key_bytes(tqv_bload(headers + (1 + first / 2 + j) * HALVES_STRIDE + 4 * i)));
    for (int c = 0; c < COLUMNS; c++)
        planes[c] = codes[c % m / 2] + (first + c % m) % 2;
    to_columns(m, QUADS * m / COLUMNS, planes, 2, columns);
    for (int i = 0; i < QUADS * m; i += TQV_LANES)
        for (int half = 0; half < 2; half++) {
            const tqv_bits x = tqv_bload(columns + i);
            const tqv_bits code = tqv_and(half ? tqv_srl16(x, 4) : x, tqv_bset1(0x0f0f0f0f));
            const tqv_bits gain = tqv_lookup(tqv_table(GAINS), code);
            tqv_bstore(out->even[half] + i, tqv_and(gain, tqv_bset1(EVEN)));
            tqv_bstore(out->odd[half] + i, tqv_and(gain, tqv_bset1(ODD)));
%     if signed then
            tqv_bstore(out->sign[half] + i, tqv_and(code, tqv_bset1(0x08080808)));
%     end
        }
}

% end
/* As many heads and groups of values at a time as leave all sums in registers, the heads in equal parts. Weights by columns
 * cost a shuffle where a vector holds them all: two groups of values have to share it. */
TQV_INLINE int value_parts(const int gqa, const int single) {
    const int groups = !single && TQV_LANES == 16 ? 2 : 1;
    return (gqa * groups * SUM_VECTORS + TQV_SUMS - 1) / TQV_SUMS;
}
TQV_INLINE int value_heads(const int gqa, const int single) {
    return (gqa + value_parts(gqa, single) - 1) / value_parts(gqa, single);
}
TQV_INLINE int value_groups(const int gqa, const int single) {
    return fitting(value_heads(gqa, single), ${subs > 0 and 4 or 8});
}

/* Passes over a set with `all` groups of values. */
TQV_INLINE int n_passes(const int gqa, const int single, const int all) {
    const int groups = value_groups(gqa, single) < all ? value_groups(gqa, single) : all;
    return 16 / TQV_LANES * (all / groups) * value_parts(gqa, single);
}
TQV_INLINE int all_passes(const int gqa, const int single) {
    return ${full_sets} * n_passes(gqa, single, 8)${tail and " + n_passes(gqa, single, 4)" or ""};
}

/* Adds the keys of a set to `count` groups of values from `first` on, of `heads` heads from first_head on. part: of the 64
 * bytes of its vectors. */
TQV_INLINE void accumulate_pass(const int gqa, const int first_head, const int heads, const int m, const int single,
                                const int tail, const int first, const int count, const set *s, int part, int fetched) {
    const int n_words = tail ? TAIL_WORDS : UNIT_WORDS, bytes = 64 * n_words + (tail ? 32 * HALF : 0);
    const int column = part * TQV_LANES / 8 * 2, head_weights = single ? 2 * QUADS : 2 * SET_COLUMNS;
    const int32_t *weights = s->weights + first_head * head_weights;
    const tqv_bits table = centroid_table();
    const int passes = all_passes(gqa, single), often = passes < 4 && m > 1; /* else few lines are fetched at a time anyway */
    const int lines = often ? part_lines(ROW_BYTES, passes * m) : 0;
    sums sum[TQ_MAX_GQA][8];
    TQV_UNROLL for (int h = 0; h < heads; h++)
        TQV_UNROLL for (int g = 0; g < count; g++)
            sum[h][g] = sums_from(${biased and "tqv_columns(s->bias[first_head + h] + column)" or "tqv_bzero()"});
    const uint8_t *at = s->payload + part * TQV_LANES * 4;
    for (int group = 0; group < s->n_groups; group++) {
        uintptr_t line = 0;
        if (often)
            line = lines_ahead(s->ahead, ROW_BYTES, group, fetched, passes, (uintptr_t)at);
        else
            fetch(s->ahead, ROW_BYTES, group, fetched, passes);
        for (int i = group * m; i < (group + 1) * m; i++, at += bytes) {
            fetch_lines(line, lines);
% if in_order then
            if (gqa == 1)
                fetch_lines(line - s->ahead->nearer, lines);
% end
            line += 64 * (size_t)lines;
            words x = {.at = at};
% if tail then
            x.tail = tail;
%     if tail_unit.half then
            if (tail)
                x.half = tqv_split_columns(at - part * TQV_LANES * 4 + 64 * n_words, part);
%     end
% end
            operands c[8];
            TQV_UNROLL for (int g = 0; g < count; g++) {
                const place place = tail ? ${tail and "TAIL" or "UNIT"}[(first + g) % 4] : UNIT[first + g];
% if subs > 0 then
                const int half = (first + g) / 4, k = COLUMNS * i + column;
                const gain by = {tqv_columns(s->gains->even[half] + k), tqv_columns(s->gains->odd[half] + k),
                                 ${signed and "tqv_columns(s->gains->sign[half] + k)" or "tqv_bzero()"}};
% end
                c[g] = decode_group(x, place, table${subs > 0 and ", by" or ""});
            }
            TQV_UNROLL for (int h = 0; h < heads; h++) {
                const int32_t *w = weights + h * head_weights;
                const tqv_bits high = single ? tqv_bset1(w[i]) : tqv_columns(w + COLUMNS * i + column);
                const tqv_bits low = single ? tqv_bset1(w[QUADS + i]) : tqv_columns(w + SET_COLUMNS + COLUMNS * i + column);
                TQV_UNROLL for (int g = 0; g < count; g++)
                    sum[h][g] = add_products(sum[h][g], c[g], high, low);
            }
        }
    }
    TQV_UNROLL for (int h = 0; h < heads; h++)
        TQV_UNROLL for (int g = 0; g < count; g++) {
            float *to = s->acc + (first_head + h) * ACC_VALUES + 16 * (first + g) + part * TQV_LANES;
            const tqv_f32 old = tqv_mul(tqv_load(to), tqv_set1(s->decay[first_head + h]));
            tqv_store(to, tqv_fma(tqv_from_i32(total_of(sum[h][g])), tqv_set1(s->factor[first_head + h]), old));
        }
}

/* The passes over groups of values from `first` on, if some begin there; pass: those before. Returns the passes until then.
 * single: the units of a key have one scale. */
TQV_INLINE int accumulate_passes(const int gqa, const int m, const int single, const int tail, const int first, const set *s,
                                 int part, int pass) {
    const int all = tail ? 4 : 8, heads = value_heads(gqa, single), groups = value_groups(gqa, single);
    const int second = gqa - heads < heads ? gqa - heads : heads, count = groups < all ? groups : all;
    if (first >= all || first % groups)
        return pass;
    accumulate_pass(gqa, 0, heads, m, single, tail, first, count, s, part, pass++);
    if (heads < gqa)
        accumulate_pass(gqa, heads, second, m, single, tail, first, count, s, part, pass++);
    if (heads + second < gqa)
        accumulate_pass(gqa, heads + second, gqa - heads - second, m, single, tail, first, count, s, part, pass++);
    return pass;
}

TQV_SPECIALISE void accumulate_set(const int gqa, const int m, const int single, const int tail, const set *s) {
    int pass = s->part;
    for (int part = 0; part < 16 / TQV_LANES; part++) {
        if (value_groups(gqa, single) == 1) {
            TQV_UNROLL for (int first = 0; first < 8; first++)
                pass = accumulate_passes(gqa, m, single, tail, first, s, part, pass);
        } else { /* calls in a row: loops are unrolled too late to know the places of groups */
% for g = 0, 6, 2 do
            pass = accumulate_passes(gqa, m, single, tail, ${g}, s, part, pass);
% end
        }
    }
}

typedef void (*accumulate_set_fn)(const set *s);

/* accumulate_set at a GQA ratio for each kind of set. */
typedef struct set_functions {
    accumulate_set_fn ${table.concat(map(sets, function(set) return set.name end), ", ")}${sets[1].m == 4 and ", set4_single" or ""};
} set_functions;

% if biased then
/* What the 128s add to each column, negated. first, second: n of a head's weights by columns. */
TQV_INLINE void column_bias(const int32_t *first, const int32_t *second, int n, int32_t out[COLUMNS]) {
    tqv_bits sum[2] = {tqv_bzero(), tqv_bzero()};
    int32_t x[TQV_LANES];
    for (int i = 0; i < n; i += TQV_LANES) {
%     if bytes then
        sum[0] = tqv_dot8(sum[0], tqv_bset1(0x01010101), tqv_bload(first + i));
        sum[1] = tqv_dot8(sum[1], tqv_bset1(0x01010101), tqv_bload(second + i));
%     else
        sum[0] = tqv_dot16(sum[0], tqv_bset1(0x00010001), tqv_bload(first + i));
        sum[1] = tqv_dot16(sum[1], tqv_bset1(0x00010001), tqv_bload(second + i));
%     end
    }
    tqv_bstore(x, tqv_add32(${bytes and "tqv_sll32(sum[0], 8)" or "sum[0]"}, sum[1]));
    for (int c = 0; c < COLUMNS; c++)
        out[c] = 0;
    for (int i = 0; i < TQV_LANES; i++)
        out[i % COLUMNS] -= 128 * x[i];
}

/* The same of n weights that are the same in all columns. Below 2^24, so exact as floats. */
TQV_INLINE void single_bias(const int32_t *first, const int32_t *second, int n, int32_t out[COLUMNS]) {
    const tqv_bits one = tqv_bset1(${bytes and "0x01010101" or "0x00010001"});
    tqv_bits high = tqv_bzero(), low = tqv_bzero();
    for (int i = 0; i < n; i += TQV_LANES) {
        high = ${bytes and "tqv_dot8" or "tqv_dot16"}(high, one, tqv_bload(first + i));
        low = ${bytes and "tqv_dot8" or "tqv_dot16"}(low, one, tqv_bload(second + i));
    }
    const int32_t sum = (int32_t)tqv_hsum(tqv_from_i32(tqv_add32(${bytes and "tqv_sll32(high, 8)" or "high"}, low)));
    for (int c = 0; c < COLUMNS; c++)
        out[c] = -128 * sum;
}

% end
/* Weights of a set by columns, of m units from first_unit on. weights: [head][scale][2][quad]. */
static void weights_to_columns(int gqa, const int m, int first_unit, int n_groups, const int32_t *weights, int n_scales,
                               int32_t *out) {
    for (int i = 0; i < 2 * gqa; i++, out += SET_COLUMNS) {
        const int32_t *planes[COLUMNS];
        for (int c = 0; c < COLUMNS; c++) {
            const int scale = n_scales == 1 ? 0 : (first_unit + c % m) / BLOCK_UNITS;
            planes[c] = weights + ((i / 2 * n_scales + scale) * 2 + i % 2) * QUADS;
        }
        to_columns(m, n_groups * m, planes, 1, out);
        if (m * n_groups * COLUMNS % 16) /* whole vectors */
            memset(out + m * n_groups * COLUMNS, 0, 48);
    }
}

TQV_INLINE void accumulate(const int gqa, const int tiled, const tq_keys *keys, const int32_t *weights, int n_scales,
                           const float *factor, const float *decay, float *acc, const set_functions *functions) {
    const ahead ahead = ahead_of(tiled, keys, ROW_BYTES);
    _Alignas(64) uint8_t repacked[QUADS * ${largest_set}];
    _Alignas(64) int32_t columns[TQ_MAX_GQA * 2 * SET_COLUMNS];
    set s = {.ahead = &ahead, .n_groups = (keys->n + TQ_GROUP - 1) / TQ_GROUP, .factor = factor, .decay = decay};
% if biased then
    int32_t bias[TQ_MAX_GQA][COLUMNS];
    s.bias = (const int32_t(*)[COLUMNS])bias;
% end
% if subs > 0 then
    uint8_t gathered[KEY_HALVES * HALVES_STRIDE];
    const uint8_t *headers = headers_of(tiled, keys, 1, 1, gathered);
    gains gains;
    s.gains = &gains;
% end
% for _, set in ipairs(sets) do
    for (int first = ${set.first}; first < ${set.first + set.m * set.count}; first += ${set.m}) {
        s.payload = tiled ? keys->group[0] + PAYLOAD_AT + 16 * QUADS * UNIT_WORDS * first : repacked;
        if (!tiled)
            repack_set(keys, ${set.m}, first, ${set.words}, ${set.half}, repacked);
%     if subs > 0 then
        load_gains(${set.m}, headers + first / BLOCK_UNITS * HALVES * HALVES_STRIDE, first % BLOCK_UNITS, &gains);
%     end
        s.acc = acc + ${set.acc} + (first - ${set.first}) * 32;
%     if set.m == 4 then
        if (n_scales == 1) {
            s.weights = weights;
%         if biased then
            for (int h = 0; h < gqa; h++)
                single_bias(weights + h * 2 * QUADS, weights + (h * 2 + 1) * QUADS, s.n_groups * TQ_GROUP / 4, bias[h]);
%         end
            functions->set4_single(&s);
            s.part += n_passes(gqa, 1, 8);
            continue;
        }
%     end
        weights_to_columns(gqa, ${set.m}, first, s.n_groups, weights, n_scales, columns);
        s.weights = columns;
%     if biased then
        for (int h = 0; h < gqa; h++)
            column_bias(columns + h * 2 * SET_COLUMNS, columns + (h * 2 + 1) * SET_COLUMNS, s.n_groups * ${set.m} * COLUMNS, bias[h]);
%     end
        functions->${set.name}(&s);
        s.part += n_passes(gqa, 0, ${set.tail == 1 and 4 or 8});
    }
% end
}

static void finish(const float *acc, float *out) {
    float y[HEAD_DIM] = {0};
% for _, set in ipairs(sets) do
    for (int first = ${set.first}; first < ${set.first + set.m * set.count}; first += ${set.m})
        for (int g = 0; g < ${set.tail == 1 and 4 or 8}; g++)
            for (int lane = 0; lane < 16; lane++, acc++)
                y[32 * (first + (lane / 8 * 2 + lane % 2) % ${set.m}) + 4 * g + lane % 8 / 2] += *acc;
% end
% if rotated then
    tq_rotate_out(&(float *){y}, 1, HEAD_DIM, ${pow2}, ${odd}, ROTATE_UNIT, V_SIGNS, &out);
% else
    memcpy(out, y, sizeof y);
% end
}

/* ---- one pair of stages per GQA ratio and layout ------------------------------------------------------------------- */

% -- One head waits for memory, which comes fastest in its own order: group by group.
% local function scorer(g, layout) return in_order and g == 1 and layout ~= "rows" and "in_order" or "g" .. g end
% for _, g in ipairs(gqas) do
static void prepare_g${g}(const float *q, size_t q_head_stride, float factor, void *prepared) {
    prepare(${g}, q, q_head_stride, factor, prepared);
}
%     local scored = {}
%     for _, layout in ipairs(layouts) do
%         local name = scorer(g, layout)
%         for _, uniform in ipairs(scored[name] and {} or n_blocks == 1 and { 1 } or subs > 0 and { 0 } or { 0, 1 }) do
static void score_${uniform}_${name}(const batch *batch) {
    score_batch(${g}, ${name == "in_order" and 1 or 0}, ${uniform}, batch);
}
%         end
%         scored[name] = true
%     end
%     for _, set in ipairs(sets) do
%         if set.m == 4 then
static void accumulate_set4_single_g${g}(const set *s) {
    accumulate_set(${g}, 4, 1, 0, s);
}
%         end
static void accumulate_${set.name}_g${g}(const set *s) {
    accumulate_set(${g}, ${set.m}, 0, ${set.tail}, s);
}
%     end
static const set_functions FUNCTIONS_G${g} = {${table.concat(map(sets, function(set) return ("%s.%s = accumulate_%s_g%d"):format(set.m == 4 and (".set4_single = accumulate_set4_single_g%d, "):format(g) or "", set.name, set.name, g) end), ", ")}};
%     for _, layout in ipairs(layouts) do
static void attend_k_g${g}_${layout}(const void *prepared, const tq_keys *keys, float *scores) {
    score(${g}, ${layout == "rows" and 0 or 1}, prepared, keys, scores, ${n_blocks > 1 and "score_0_" .. scorer(g, layout) or "NULL"}, ${(n_blocks == 1 or subs == 0) and "score_1_" .. scorer(g, layout) or "NULL"});
}
static void attend_v_g${g}_${layout}(const tq_keys *keys, const void *weights, int n_scales, const float *factor,
                                const float *decay, float *acc) {
    accumulate(${g}, ${layout == "rows" and 0 or 1}, keys, weights, n_scales, factor, decay, acc, &FUNCTIONS_G${g});
}
const tq_k_stage ${k_symbol(g, layout)} = {PREPARED_BYTES(${g}), prepare_g${g}, attend_k_g${g}_${layout}};
const tq_v_stage ${v_symbol(g, layout)} = {
    N_BLOCKS, ${hexf(weight_sum)}, ${bytes and 1 or 0}, ACC_VALUES, scales_${layout}, attend_v_g${g}_${layout}, finish};
%     end
% end
