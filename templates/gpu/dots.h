/* dots.h: what decode by dot products shares (kernels lane and tile). A lane has a key, and multiplies it with q, whose words
 * are the same for all lanes and so are read into scalar registers where there are any. Two paths of K.q, in halves and, but
 * for f16, in bytes: centroids are integers of 8 bits, q has two digits of 8 bits, and all sums are exact. */
% local has_bytes = k.bits < 16

/* ---- q ---- */

/* Where pair or byte quad of [group of heads][8 values][head of the group][4 words] number i comes from. */
typedef struct tqd_place {
    int head, unit, part; /* 32 values from q[head][unit] on; word `part` of the four */
    int eight;            /* of the unit */
} tqd_place;

TQG_FN tqd_place tqd_place_of(int i, int heads) {
    const int of = i / (heads * 4), group = of / (TQA_HEAD_DIM / 8), eight = of - group * (TQA_HEAD_DIM / 8);
    const int in_eight = i - of * (heads * 4);
    tqd_place p;
    p.head = group * heads + (in_eight >> 2);
    p.unit = (eight >> 2) * 32;
    p.eight = eight & 3;
    p.part = in_eight & 3;
    return p;
}

/* The prepared q of shared memory, times `scale`, as halves in the order in which K is decoded. */
TQG_FN tqg_uniform_words tqd_publish_halves(const tqg_decode_params *p, const tqa_range *r, const float *q, float scale, int gqa,
                                            int heads, int groups, int threads) {
    tqg_u32 *words = tqa_workspace(p, r, gqa);
    for (int i = tqg_thread(); i < groups * heads * TQA_HEAD_DIM / 2; i += threads) {
        const tqd_place at = tqd_place_of(i, heads);
        const float *unit = q + at.head * TQA_HEAD_DIM + at.unit;
        const int first = 8 * at.eight + 2 * at.part;
        words[i] = at.head < gqa ? tqg_h2(unit[k_value(first)] * scale, unit[k_value(first + 1)] * scale) : 0;
    }
    return tqg_publish(words);
}
% if has_bytes then

/* The same as integers of 16 bits, of which `scale` leaves 127 * 256: words 0 and 2 of eight values hold the upper digits of
 * four values each, words 1 and 3 the lower ones, which are signed. */
TQG_FN tqg_uniform_words tqd_publish_bytes(const tqg_decode_params *p, const tqa_range *r, const float *q, float scale, int gqa,
                                           int heads, int groups, int threads) {
    tqg_u32 *words = tqa_workspace(p, r, gqa);
    const int first = tqg_after(tqg_thread(), scale); /* else a mask that the end of the kernel wants, too, is kept for it */
    for (int i = first; i < groups * heads * TQA_HEAD_DIM / 2; i += threads) {
        const tqd_place at = tqd_place_of(i, heads);
        tqg_u32 word = 0;
        TQG_UNROLL
        for (int j = 0; j < 4; j++) {
            const int value = k_value(8 * at.eight + 4 * (at.part >> 1) + j);
            const int x = at.head < gqa ? (int)tqg_rint(q[at.head * TQA_HEAD_DIM + at.unit + value] * scale) : 0;
            word |= (tqg_u32)((at.part & 1 ? x : (x + 128) >> 8) & 255) << 8 * j;
        }
        words[i] = word;
    }
    return tqg_publish(words);
}
% end

/* ---- K.q ---- */
enum { TQD_HEADS = 8 }; /* of a warp, at most */

/* Sums in the making. */
typedef struct tqd_dots {
    tqg_uniform_words q;
    float sum[TQD_HEADS];                     /* in halves */
    tqg_i32 upper[TQD_HEADS], lower[TQD_HEADS]; /* in bytes */
    float last[2 * TQD_HEADS], before[2 * TQD_HEADS]; /* sums one and two steps ago: what is read of q waits for them */
} tqd_dots;

TQG_FN void tqd_start(tqd_dots *d, tqg_uniform_words q) {
    d->q = q;
    TQG_UNROLL
    for (int h = 0; h < TQD_HEADS; h++) {
        d->sum[h] = 0.0f;
        d->upper[h] = d->lower[h] = 0;
    }
    TQG_UNROLL
    for (int i = 0; i < 2 * TQD_HEADS; i++)
        d->last[i] = d->before[i] = 0.0f;
}
TQG_FN void tqd_next(tqd_dots *d, int sums) {
    TQG_UNROLL
    for (int i = 0; i < sums; i++) {
        d->q = tqg_reread(d->q, d->before[i]);
        d->before[i] = d->last[i];
    }
}

/* Adds the products of values 8 eight to 8 eight + 7 of the row, given as four pairs. */
TQG_FN void tqd_add_halves(tqd_dots *d, const tqg_u32 *pairs, int eight, int heads) {
    tqd_next(d, heads);
    TQG_UNROLL
    for (int h = 0; h < heads; h++) {
        TQG_UNROLL
        for (int i = 0; i < 4; i++)
            d->sum[h] = tqg_dot2(pairs[i], tqg_uniform(d->q + (eight * heads + h) * 4 + i), d->sum[h]);
        d->last[h] = d->sum[h];
    }
}
/* The sum of head h so far, which begins anew. */
TQG_FN float tqd_take_halves(tqd_dots *d, int h) {
    const float sum = d->sum[h];
    d->sum[h] = 0.0f;
    return sum;
}
% if has_bytes then

/* The same with eight values given as bytes. */
TQG_FN void tqd_add_bytes(tqd_dots *d, const tqg_u32 *bytes, int eight, int heads) {
    tqd_next(d, 2 * heads);
    TQG_UNROLL
    for (int h = 0; h < heads; h++) {
        TQG_UNROLL
        for (int i = 0; i < 2; i++) {
            const tqg_uniform_words q = d->q + (eight * heads + h) * 4 + 2 * i;
            d->upper[h] = tqg_dot4(bytes[i], tqg_uniform(q), d->upper[h]);
            d->lower[h] = tqg_dot4(bytes[i], tqg_uniform(q + 1), d->lower[h]);
        }
        d->last[2 * h] = tqg_float((tqg_u32)d->upper[h]);
        d->last[2 * h + 1] = tqg_float((tqg_u32)d->lower[h]);
    }
}
TQG_FN float tqd_take_bytes(tqd_dots *d, int h) {
    const float sum = (float)(d->upper[h] * 256 + d->lower[h]);
    d->upper[h] = d->lower[h] = 0;
    return sum;
}
#define TQD_BYTE_UNIT ${hexf(k.step * (k.bits < 8 and k.subs > 0 and 1024 or 1))}
%     if k.bits == 4 then
%         local signed = table.move(k.centroids, 9, 16, 1, {})
%         for i = 1, 8 do
%             signed[8 + i] = -signed[i]
%         end
%         for _, way in ipairs { { "row", k.lookup_table, "as in rows" }, { "tile", signed, "as in tiles" } } do
/* A word of eight codes, ${way[3]}, to their centroids. */
TQG_FN void tqd_${way[1]}_bytes(tqg_u32 codes, tqg_u32 *bytes) {
    const tqg_u32 plain[4] = {${byte_table(way[2], 4)}};
    tqg_u32 table[4];
    tqg_table16(plain, table);
    bytes[0] = tqg_lookup16(table, codes, 0);
    bytes[1] = tqg_lookup16(table, codes, 1);
}
%         end
%     elseif k.bits < 4 then
/* A word of eight codes, from k_nibbles, to their centroids. */
TQG_FN void tqd_bytes(tqg_u32 nibbles, tqg_u32 *bytes) {
    bytes[0] = tqg_lookup(${byte_table(k.centroids, 2)}, tqg_codes(nibbles, 0));
    bytes[1] = tqg_lookup(${byte_table(k.centroids, 2)}, tqg_codes(nibbles, 1));
}
%     end
% end
% if k.bits < 8 and k.subs > 0 then

/* Gain `number` of the eight in k_gain_pairs. */
TQG_FN float tqd_gain(const tqg_u32 *pairs, int number) {
    float gain = 0.0f;
    TQG_UNROLL
    for (int i = 0; i < 8; i++) {
        if (k_gain_order(i) == number)
            gain = i & 1 ? tqg_h2_hi(pairs[i >> 1]) : tqg_h2_lo(pairs[i >> 1]);
    }
    return gain;
}
% end

/* ---- softmax ---- */

/* Weights of keys leave the range of halves where a score exceeds its running maximum by more than TQA_SLACK, or a scale of V
 * the largest one so far by more than 4: then both follow. */
typedef struct tqd_head {
    float max, limit, sum;
} tqd_head;

/* The factor, a power of two, that takes scales of V to halves; 0 < scale * factor <= top. */
typedef struct tqd_scale {
    float factor, limit;
} tqd_scale;

TQG_FN void tqd_clear(tqd_head *of, int heads) {
    TQG_UNROLL
    for (int h = 0; h < heads; h++) {
        of[h].max = of[h].limit = TQA_NO_MAX;
        of[h].sum = 0.0f;
    }
}
TQG_FN int tqd_rises(const tqd_head *of, const float *score, int heads) {
    int rises = 0;
    TQG_UNROLL
    for (int h = 0; h < heads; h++)
        rises |= score[h] > of[h].limit;
    return rises;
}
/* Returns what is left of the head's accumulators. */
TQG_FN float tqd_raise(tqd_head *of, float score) {
    const float max = tqg_max(of->max, tqa_warp_max(score)), keep = tqg_exp2(of->max - max);
    of->max = max;
    of->limit = max + TQA_SLACK;
    of->sum *= keep;
    return keep;
}

/* For scales whose largest magnitude in this lane is `largest`; returns by how much the factor changes. */
TQG_FN float tqd_rescale(tqd_scale *s, float largest, float top) {
    const float factor = tqg_min(s->factor, tqa_normalise(tqa_warp_max(largest), top / 4)), ratio = factor / s->factor;
    s->factor = factor;
    s->limit = top / factor;
    return ratio;
}

/* Maxima and sums of the warps that share a range, n of them, to t; see tqa_merge_maxima. `warp`: which of them this is. */
TQG_FN void tqd_merge(const tqa_result *t, const tqd_head *of, int warp, int n, int head, int heads, int gqa, int threads) {
    float *max = t->keep + gqa, *sum = max + n * gqa;
    TQG_UNROLL
    for (int h = 0; h < heads; h++) {
        const float total = tqa_warp_sum(of[h].sum);
        if (tqg_lane() == 0 && head + h < gqa) {
            max[warp * gqa + head + h] = of[h].max;
            sum[warp * gqa + head + h] = total;
        }
    }
    tqa_merge_maxima(t, gqa, n, threads, max, sum);
}
