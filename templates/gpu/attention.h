/* attention.h: what all decode kernels of a file share: where the cache lies, which keys a block reads, preparing q, score
 * options, and how a block's partial result becomes output. Every function is called by all threads of a block; arrays
 * called shared are shared memory, and functions that write some end with a block barrier.
 *
 * Scores are in log2 units. A running maximum is TQA_NO_MAX before the first key: finite, so that no difference of two
 * maxima is NaN; weights relative to it are 0. */
#define TQA_HEAD_DIM ${k.head_dim} /* of q and K */
#define TQA_V_HEAD_DIM ${v.head_dim} /* of V and outputs */
#define TQA_NO_MAX (-1e30f)
#define TQA_SLACK 5.0f /* by which scores may exceed the running maximum: weights reach 2^5 */
#define TQA_MINUS_INFINITY tqg_float(0xff800000u)
#define TQA_LOG2_E 1.442695041f
#define TQA_LN_2 0.6931471806f
/* What is merged at a time when a result is finished: partials of splits, or sink tokens. */
#define TQA_MERGE ${attention.MERGE}

/* ---- cache addressing ------------------------------------------------------------------------------------------- */

/* One side of the cache of this block's sequence and KV head. */
typedef struct tqa_cache {
    const tqg_u8 *first;  /* unit 0; paged: this head's part of page 0 */
    tqg_uniform_words pages; /* of this sequence, by number; NULL: contiguous */
    tqg_u32 unit_stride, page_stride;
    int page_shift, page_mask; /* units within a page */
} tqa_cache;

TQG_FN int tqa_log2_of(float power_of_two) {
    return (int)(tqg_bits(power_of_two) >> 23) - 127;
}
TQG_FN int tqa_log2(int power_of_two) {
    return tqa_log2_of((float)power_of_two);
}

TQG_FN tqa_cache tqa_cache_of(const tqg_cache *cache, int sequence, int kv_head, int keys_per_unit) {
    tqa_cache c;
    c.first = cache->data + (tqg_i64)kv_head * cache->head_stride;
    c.pages = 0;
    c.unit_stride = (tqg_u32)cache->unit_stride;
    c.page_stride = (tqg_u32)cache->page_stride;
    c.page_shift = c.page_mask = 0;
    if (cache->page_slots) {
        c.pages = tqg_constant((const tqg_u32 *)cache->pages + (tqg_i64)sequence * cache->pages_stride);
        c.page_shift = tqa_log2(cache->page_slots) - tqa_log2(keys_per_unit);
        c.page_mask = (1 << c.page_shift) - 1;
    } else {
        c.first += (tqg_i64)sequence * cache->seq_stride;
    }
    return c;
}

/* A row, or a tile. */
TQG_FN const tqg_u8 *tqa_unit(const tqa_cache *c, int unit) {
    if (!c->pages)
        return c->first + (tqg_u64)(tqg_u32)unit * c->unit_stride;
    return c->first + (tqg_u64)tqg_uniform(c->pages + (unit >> c->page_shift)) * c->page_stride +
           (tqg_u64)(tqg_u32)(unit & c->page_mask) * c->unit_stride;
}

/* The same from the argument itself: where that is read again each time, nothing is held in registers. */
TQG_FN const tqg_u8 *tqa_unit_of(const tqg_cache *cache, int keys_per_unit, int unit) {
    const tqa_cache c = tqa_cache_of(cache, tqg_block_z(), tqg_block_y(), keys_per_unit);
    return tqa_unit(&c, unit);
}

/* ---- which keys a block reads ----------------------------------------------------------------------------------- */

typedef struct tqa_range {
    int sequence, kv_head, split;
    int n_splits; /* that have keys, or 1: blocks of others return at once */
    int n_kv, visible; /* slots visible .. n_kv-1 are seen by the query, */
    int begin;         /* begin .. n_kv-1 of them in this cache: the first ones may be sink tokens */
    int first, last;   /* this split walks slots first .. last-1; whole steps, so the outermost hold slots that are not its */
} tqa_range;

/* Splits get equal shares of steps; a share is at least min_split_keys, unless it is the only one. */
TQG_FN tqa_range tqa_range_of(const tqg_decode_params *p, int keys_per_step) {
    tqa_range r;
    r.split = tqg_block_x();
    r.kv_head = tqg_block_y();
    r.sequence = tqg_block_z();
    const int n_kv = p->n_kv[r.sequence];
    r.n_kv = n_kv < 0 ? 0 : n_kv > p->k.n_slots ? p->k.n_slots : n_kv;
    r.visible = p->window > 0 && r.n_kv > p->window ? r.n_kv - p->window : 0;
    r.begin = r.visible > p->n_sink ? r.visible : p->n_sink;
    r.begin = r.begin < r.n_kv ? r.begin : r.n_kv;
    const int shift = tqa_log2(keys_per_step);
    const int first = r.begin >> shift, n_steps = r.begin < r.n_kv ? ((r.n_kv - 1) >> shift) + 1 - first : 0;
    const int n_splits = n_steps / (((p->min_split_keys - 1) >> shift) + 1);
    r.n_splits = n_splits < p->n_splits ? n_splits : p->n_splits;
    r.n_splits = r.n_splits < 1 ? 1 : r.n_splits;
    const tqg_u32 whole = (tqg_u32)n_steps / (tqg_u32)r.n_splits, rest = (tqg_u32)n_steps - whole * (tqg_u32)r.n_splits;
    const tqg_u32 split = (tqg_u32)r.split;
    const int step = first + (int)(split * whole + (split < rest ? split : rest));
    r.first = step << shift;
    r.last = (step + (int)whole + (split < rest)) << shift;
    return r;
}

TQG_FN int tqa_idle(const tqa_range *r) {
    return r->split >= r->n_splits;
}

/* Does the step of n slots from `slot` hold some that are not in the range? */
TQG_FN int tqa_is_edge(const tqa_range *r, int slot, int n) {
    return slot < r->begin || slot + n > r->n_kv;
}

TQG_FN int tqa_is_visible(const tqa_range *r, int slot) {
    return slot >= r->begin && slot < r->n_kv;
}

/* A slot of the range nearby, of which there is one at least: its row can be read. */
TQG_FN int tqa_clamp(const tqa_range *r, int slot) {
    return slot < r->begin ? r->begin : slot < r->n_kv ? slot : r->n_kv - 1;
}

/* ---- sums over a warp: the same bits in all lanes --------------------------------------------------------------- */

TQG_FN float tqa_warp_max(float x) {
    TQG_UNROLL
    for (int mask = TQG_WARP / 2; mask > 0; mask >>= 1)
        x = tqg_max(x, tqg_shfl_xor(x, mask));
    return x;
}

TQG_FN float tqa_warp_sum(float x) {
    TQG_UNROLL
    for (int mask = TQG_WARP / 2; mask > 0; mask >>= 1)
        x += tqg_shfl_xor(x, mask);
    return x;
}

/* ---- rotation --------------------------------------------------------------------------------------------------- */
% local function signs_of(name, words)

/* Signs of values 32 word to 32 word + 31: a set bit negates. */
TQG_FN tqg_u32 ${name}(int word) {
% for i = 1, #words - 1 do
    if (word == ${i - 1})
        return ${string.format("0x%08xu", words[i])};
% end
    return ${string.format("0x%08xu", words[#words])};
}
% end
% if k.rotated then
%     signs_of("tqa_k_signs", k.k_signs)
% end
% if v.rotated then
%     signs_of("tqa_v_signs", v.v_signs)
% end
% if k.rotated or v.rotated then

TQG_FN float tqa_signed(float x, tqg_u32 signs, int value) {
    return tqg_float(tqg_bits(x) ^ signs >> (value & 31) << 31);
}

/* T of each chunk of the vectors that n shared values of x are, in place: the orthonormal Hadamard transform of every run of
 * `run` values, each times unit, then the reflection across the `odd` runs of a chunk. A warp takes 128 neighbouring values,
 * lane by lane, so that strides below the warp size are exchanges between lanes, and the others stay in the lane. */
TQG_FN void tqa_transform(float *x, int n, const int run, const float unit, const int odd, int threads) {
    enum { PER_LANE = 128 / TQG_WARP };
    const int lane = tqg_lane();
    TQG_NO_UNROLL
    for (int first = tqg_warp() * 128; first < n; first += threads / TQG_WARP * 128) {
        float of[PER_LANE];
        TQG_UNROLL
        for (int i = 0; i < PER_LANE; i++) {
            const int at = first + i * TQG_WARP + lane;
            of[i] = at < n ? x[at] * unit : 0.0f;
        }
        TQG_UNROLL
        for (int stride = 1; stride < run && stride < TQG_WARP; stride *= 2) {
            TQG_UNROLL
            for (int i = 0; i < PER_LANE; i++) {
                const float other = tqg_shfl_xor(of[i], stride);
                of[i] = lane & stride ? other - of[i] : other + of[i];
            }
        }
        TQG_UNROLL
        for (int stride = 1; stride < PER_LANE && stride * TQG_WARP < run; stride *= 2) {
            TQG_UNROLL
            for (int i = 0; i < PER_LANE; i++) {
                if (!(i & stride)) {
                    const float a = of[i], b = of[i + stride];
                    of[i] = a + b;
                    of[i + stride] = a - b;
                }
            }
        }
        TQG_UNROLL
        for (int i = 0; i < PER_LANE; i++) {
            const int at = first + i * TQG_WARP + lane;
            if (at < n)
                x[at] = of[i];
        }
    }
    tqg_block_sync();
    if (odd > 1) {
        for (int i = tqg_thread(); i < n / odd; i += threads) {
            float *first = x + i / run * (run * odd) + i % run, sum = 0.0f;
            TQG_UNROLL
            for (int j = 0; j < odd; j++)
                sum += first[j * run];
            TQG_UNROLL
            for (int j = 0; j < odd; j++)
                first[j * run] -= 2.0f / (float)odd * sum;
        }
        tqg_block_sync();
    }
}
% end

/* ---- q ---------------------------------------------------------------------------------------------------------- */

TQG_FN const float *tqa_q_of(const tqg_decode_params *p, const tqa_range *r, int gqa) {
    return p->q + (tqg_i64)r->sequence * p->q_seq_stride + (tqg_i64)(r->kv_head * gqa) * p->q_head_stride;
}

/* Coefficients of the score bias, of the first head of the group. */
TQG_FN const float *tqa_coefficients(const tqg_decode_params *p, const tqa_range *r, int gqa) {
    return p->bias.coefficients + (tqg_i64)r->sequence * p->bias.seq_stride + (tqg_i64)(r->kv_head * gqa) * p->bias.head_stride;
}

/* q [gqa][head_dim] in the domain of the K cache, times p->factor, to shared q. */
TQG_FN void tqa_prepare_q(const tqg_decode_params *p, const tqa_range *r, int gqa, int threads, float *q) {
    const float *from = tqa_q_of(p, r, gqa);
    for (int i = tqg_thread(); i < gqa * TQA_HEAD_DIM; i += threads) {
        const int head = i / TQA_HEAD_DIM, value = i - head * TQA_HEAD_DIM;
        const float x = from[(tqg_i64)head * p->q_head_stride + value] * p->factor;
        q[i] = ${k.rotated and "tqa_signed(x, tqa_k_signs(value >> 5), value)" or "x"};
    }
    tqg_block_sync();
% if k.rotated then
    tqa_transform(q, gqa * TQA_HEAD_DIM, ${k.pow2}, ${hexf(1 / math.sqrt(k.pow2))}, ${k.odd}, threads);
% end
}

/* Global memory for a block's prepared q: its part of p->partials, from a 64-byte line of its own on, until it has a partial
 * result; gqa * (head_dim + 2) - 15 words. */
TQG_FN tqg_u32 *tqa_workspace(const tqg_decode_params *p, const tqa_range *r, int gqa) {
    const tqg_i64 size = gqa * (TQA_HEAD_DIM + 2);
    const float *mine = p->partials + ((tqg_i64)(r->sequence * p->n_kv_heads + r->kv_head) * p->n_splits + r->split) * size;
    return (tqg_u32 *)(((tqg_u64)mine + 63) & ~(tqg_u64)63);
}

/* The largest magnitude among n shared values, by every warp for itself. */
TQG_FN float tqa_largest(const float *x, int n) {
    float most = 0.0f;
    for (int i = tqg_lane(); i < n; i += TQG_WARP)
        most = tqg_max(most, tqg_abs(x[i]));
    return tqa_warp_max(most);
}

/* The power of two that takes positive x to [1, 2) * `to`, a power of two; for what is too small to matter, a large one. */
TQG_FN float tqa_normalise(float x, float to) {
    const tqg_u32 exponent = tqg_bits(tqg_max(x, 0x1p-100f)) & 0x7f800000u;
    return to * tqg_float((254u << 23) - exponent);
}

/* ---- score options ---------------------------------------------------------------------------------------------- */

/* What depends on more than q.k; alibi: log2 slope of the head, 0 if there is none. */
TQG_FN float tqa_score(const tqg_decode_params *p, const tqa_range *r, float alibi, float score, int slot) {
    if (p->softcap > 0.0f)
        score = p->softcap * tqg_tanh(score);
    return tqg_fma(alibi, (float)(slot - (r->n_kv - 1)), score);
}

/* Do scores need it? */
TQG_FN int tqa_has_options(const tqg_decode_params *p) {
    return p->softcap > 0.0f || p->alibi;
}

TQG_FN float tqa_alibi(const tqg_decode_params *p, const tqa_range *r, int gqa, int head) {
    return p->alibi ? p->alibi[r->kv_head * gqa + head] * TQA_LOG2_E : 0.0f;
}

/* ---- finish ----------------------------------------------------------------------------------------------------- */

/* The result of a block so far, in shared memory. Unnormalised output acc [gqa][values of V]; max, sum, keep [gqa]; scores
 * and sums [gqa][TQA_MERGE]. */
typedef struct tqa_result {
    float *acc, *max, *sum, *keep, *scores, *sums;
} tqa_result;

/* Lays it out in ${attention.result_floats(head_dim, 1) * 4} * gqa bytes of shared memory. */
TQG_FN tqa_result tqa_result_at(float *shared, int gqa) {
    tqa_result t;
    t.acc = shared;
    t.scores = t.acc + gqa * TQA_V_HEAD_DIM;
    t.sums = t.scores + gqa * TQA_MERGE;
    t.max = t.sums + gqa * TQA_MERGE;
    t.sum = t.max + gqa;
    t.keep = t.sum + gqa;
    return t;
}

/* A step of the online softmax over n <= TQA_MERGE items of which t->scores holds the scores, and t->sums what each adds
 * to the denominator: turns scores into weights relative to the new maximum, 0 behind the n-th, and leaves in keep what
 * remains of acc. */
TQG_FN void tqa_merge_step(const tqa_result *t, int gqa, int n, int threads) {
    enum { PER_LANE = TQA_MERGE / TQG_WARP };
    for (int g = tqg_warp(); g < gqa; g += threads / TQG_WARP) {
        float score[PER_LANE], most = TQA_NO_MAX, sum = 0.0f;
        TQG_UNROLL
        for (int i = 0; i < PER_LANE; i++) {
            const int item = i * TQG_WARP + tqg_lane();
            score[i] = item < n ? t->scores[g * TQA_MERGE + item] : TQA_MINUS_INFINITY;
            most = tqg_max(most, score[i]);
        }
        const float before = t->max[g], max = tqg_max(before, tqa_warp_max(most)), keep = tqg_exp2(before - max);
        TQG_UNROLL
        for (int i = 0; i < PER_LANE; i++) {
            const int item = i * TQG_WARP + tqg_lane();
            const float weight = tqg_exp2(score[i] - max);
            t->scores[g * TQA_MERGE + item] = weight;
            if (item < n)
                sum = tqg_fma(weight, t->sums[g * TQA_MERGE + item], sum);
        }
        sum = tqa_warp_sum(sum);
        tqg_warp_sync();
        if (tqg_lane() == 0) {
            t->max[g] = max;
            t->sum[g] = tqg_fma(t->sum[g], keep, sum);
            t->keep[g] = keep;
        }
    }
    tqg_block_sync();
}

TQG_FN int tqa_at_most(int x, int most) {
    return x < most ? x : most;
}

/* From n parts of a block or grid: part i has acc at acc + i*stride, max and sum [gqa] at max + i*max_stride and
 * sum + i*max_stride. Always in order of i. */
TQG_FN void tqa_merge_parts(const tqa_result *t, int gqa, int n, int threads, const float *acc, tqg_i64 stride,
                            const float *max, const float *sum, tqg_i64 max_stride) {
    for (int i = tqg_thread(); i < gqa * TQA_V_HEAD_DIM; i += threads)
        t->acc[i] = 0.0f;
    for (int g = tqg_thread(); g < gqa; g += threads) {
        t->max[g] = TQA_NO_MAX;
        t->sum[g] = 0.0f;
    }
    for (int first = 0; first < n; first += TQA_MERGE) {
        const int now = n - first < TQA_MERGE ? n - first : TQA_MERGE;
        for (int i = tqg_thread(); i < now * gqa; i += threads) {
            const int part = i / gqa, g = i - part * gqa;
            t->scores[g * TQA_MERGE + part] = max[(first + part) * max_stride + g];
            t->sums[g * TQA_MERGE + part] = sum[(first + part) * max_stride + g];
        }
        tqg_block_sync();
        tqa_merge_step(t, gqa, now, threads);
        /* many loads at a time: this block is alone now, and waits for each round of them */
        enum { VALUES = 4, PARTS = 8 };
        for (int i = tqg_thread(); i < gqa * TQA_V_HEAD_DIM; i += VALUES * threads) {
            float x[VALUES];
            TQG_UNROLL
            for (int e = 0; e < VALUES; e++)
                x[e] = 0.0f;
            for (int part = 0; part < now; part += PARTS) {
                float values[PARTS][VALUES];
                TQG_UNROLL
                for (int j = 0; j < PARTS; j++) {
                    const float *from = acc + (first + (part + j < now ? part + j : part)) * stride;
                    TQG_UNROLL
                    for (int e = 0; e < VALUES; e++)
                        values[j][e] = from[tqa_at_most(i + e * threads, gqa * TQA_V_HEAD_DIM - 1)];
                }
                TQG_UNROLL
                for (int j = 0; j < PARTS; j++) {
                    TQG_UNROLL
                    for (int e = 0; e < VALUES; e++) {
                        const int g = tqa_at_most(i + e * threads, gqa * TQA_V_HEAD_DIM - 1) / TQA_V_HEAD_DIM;
                        x[e] = tqg_fma(t->scores[g * TQA_MERGE + part + j], values[j][e], x[e]);
                    }
                }
            }
            TQG_UNROLL
            for (int e = 0; e < VALUES; e++) {
                const int at = i + e * threads;
                if (at < gqa * TQA_V_HEAD_DIM)
                    t->acc[at] = tqg_fma(t->acc[at], t->keep[at / TQA_V_HEAD_DIM], x[e]);
            }
        }
        tqg_block_sync();
    }
}

/* Maxima and sums [n][gqa] of the n parts of a block, in shared memory, to t: acc is the caller's, which adds to it
 * exp2(max of the part - t->max) times the part's. */
TQG_FN void tqa_merge_maxima(const tqa_result *t, int gqa, int n, int threads, const float *max, const float *sum) {
    tqg_block_sync();
    for (int g = tqg_thread(); g < gqa; g += threads) {
        float most = max[g], total = 0.0f;
        for (int i = 1; i < n; i++)
            most = tqg_max(most, max[i * gqa + g]);
        for (int i = 0; i < n; i++)
            total = tqg_fma(sum[i * gqa + g], tqg_exp2(max[i * gqa + g] - most), total);
        t->max[g] = most;
        t->sum[g] = total;
    }
    tqg_block_sync();
}

/* The visible ones of slots 0 .. n_sink-1: f16 rows, not rotated. t->acc holds natural values. */
TQG_FN void tqa_add_sink_tokens(const tqg_decode_params *p, const tqa_range *r, const tqa_result *t, int gqa, int threads) {
    const tqa_cache k = tqa_cache_of(&p->sink_k, r->sequence, r->kv_head, 1);
    const tqa_cache v = tqa_cache_of(&p->sink_v, r->sequence, r->kv_head, 1);
    const int end = p->n_sink < r->n_kv ? p->n_sink : r->n_kv;
    const float *q = tqa_q_of(p, r, gqa), *coefficients = tqa_coefficients(p, r, gqa);
    for (int first = r->visible; first < end; first += TQA_MERGE) {
        const int now = end - first < TQA_MERGE ? end - first : TQA_MERGE;
        for (int i = tqg_warp(); i < now * gqa; i += threads / TQG_WARP) {
            const int token = i / gqa, g = i - token * gqa;
            const tqg_u16 *row = (const tqg_u16 *)tqa_unit(&k, first + token);
            float dot = 0.0f;
            for (int j = tqg_lane(); j < TQA_HEAD_DIM; j += TQG_WARP)
                dot = tqg_fma(q[(tqg_i64)g * p->q_head_stride + j], tqg_half(row[j]), dot);
            dot += tqb_term(&p->bias, coefficients + (tqg_i64)g * p->bias.head_stride, tqg_lane(), first + token);
            dot = tqa_score(p, r, tqa_alibi(p, r, gqa, g), tqa_warp_sum(dot) * p->factor, first + token);
            if (tqg_lane() == 0) {
                t->scores[g * TQA_MERGE + token] = dot;
                t->sums[g * TQA_MERGE + token] = 1.0f;
            }
        }
        tqg_block_sync();
        tqa_merge_step(t, gqa, now, threads);
        for (int i = tqg_thread(); i < gqa * TQA_V_HEAD_DIM; i += threads) {
            const int g = i / TQA_V_HEAD_DIM, j = i - g * TQA_V_HEAD_DIM;
            float x = t->acc[i] * t->keep[g];
            for (int token = 0; token < now; token++)
                x = tqg_fma(t->scores[g * TQA_MERGE + token], tqg_half(((const tqg_u16 *)tqa_unit(&v, first + token))[j]), x);
            t->acc[i] = x;
        }
        tqg_block_sync();
    }
}

/* The last thing that a block does: its result t, complete behind a block barrier and in the domain of the V cache, to
 * p->partials; the block that comes last merges all of them, in order of the splits, and writes what the launch is for. */
TQG_FN void tqa_finish(const tqg_decode_params *p, const tqa_range *r, const tqa_result *t, int gqa, int threads) {
    const int values = gqa * TQA_V_HEAD_DIM;
    if (r->n_splits > 1) {
        const tqg_i64 size = gqa * (TQA_HEAD_DIM + 2);
        const int group = r->sequence * p->n_kv_heads + r->kv_head;
        float *first = p->partials + (tqg_i64)group * p->n_splits * size, *mine = first + r->split * size;
        for (int i = tqg_thread(); i < values; i += threads)
            mine[i] = t->acc[i];
        for (int g = tqg_thread(); g < gqa; g += threads) {
            mine[values + g] = t->max[g];
            mine[values + gqa + g] = t->sum[g];
        }
        if (!tqg_arrive(p->counters + group, (tqg_u32)r->n_splits))
            return;
        tqa_merge_parts(t, gqa, r->n_splits, threads, first, size, first + values, first + values + gqa, size);
    }
% if v.rotated then
    tqa_transform(t->acc, values, ${v.pow2}, ${hexf(1 / math.sqrt(v.pow2))}, ${v.odd}, threads);
    for (int i = tqg_thread(); i < values; i += threads) {
        const int value = i % TQA_V_HEAD_DIM;
        t->acc[i] = tqa_signed(t->acc[i], tqa_v_signs(value >> 5), value);
    }
    tqg_block_sync();
% end
    if (p->n_sink > 0)
        tqa_add_sink_tokens(p, r, t, gqa, threads);
    for (int i = tqg_thread(); i < values; i += threads) {
        const int g = i / TQA_V_HEAD_DIM, head = r->kv_head * gqa + g;
        const float sink = p->sink_logits ? p->sink_logits[head] * TQA_LOG2_E : TQA_MINUS_INFINITY;
        const float max = tqg_max(t->max[g], sink), keep = tqg_exp2(t->max[g] - max);
        const float sum = tqg_fma(t->sum[g], keep, tqg_exp2(sink - max));
        const tqg_i64 at = (tqg_i64)r->sequence * p->out_seq_stride + (tqg_i64)head * p->out_head_stride;
        p->out[at + (i - g * TQA_V_HEAD_DIM)] = sum > 0.0f ? t->acc[i] * (keep / sum) : 0.0f;
        if (p->lse && i == g * TQA_V_HEAD_DIM)
            p->lse[r->sequence * p->n_kv_heads * gqa + head] =
                sum > 0.0f ? (max + tqg_log2(sum)) * TQA_LN_2 : TQA_MINUS_INFINITY;
    }
}
