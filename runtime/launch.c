/* launch.c: decode on the CPU: which thread computes which split, in which order. */
#include "internal.h"

/* The keys of one sequence that are read from the packed cache. */
static tq_cut cut_sequence(const tq_plan *plan, const tq_decode_args *args, int sequence) {
    int n_kv = args->n_kv[sequence], tile = plan->variant->impl->tile;
    int begin = tq_visible_from(args->window, n_kv);
    if (begin < args->n_sink)
        begin = args->n_sink < n_kv ? args->n_sink : n_kv;
    int aligned = plan->variant->keys_per_unit > 1 || args->k->pages || args->v->pages;
    return tq_cut_keys(plan, begin, n_kv, aligned ? tile : 1, tile, plan->n_splits);
}

/* In keys; the constant stands for preparing q and combining. Twice the cost, so that the middle is an integer. */
static int64_t split_cost(const tq_cut *cut, int split) {
    return 2 * (int64_t)(tq_split_end(cut, split) - tq_split_begin(cut, split) + 64);
}

tq_head tq_head_of(const tq_cache *cache, int sequence, int kv_head, int ahead) {
    const uint8_t *data = cache->data;
    tq_head head = {.first = data + (size_t)kv_head * cache->head_stride,
                    .stride = cache->token_stride,
                    .ahead = ahead,
                    .end = data + cache->bytes};
    if (cache->pages) {
        head.pages = cache->pages + (size_t)sequence * (size_t)cache->pages_stride;
        head.page_stride = cache->page_stride;
        head.page_slots = cache->page_slots;
    } else {
        head.first += (size_t)sequence * cache->seq_stride;
    }
    return head;
}

/* Do the heads of a token lie beside each other? Then a step of one head brings in much of what the next one reads, so
 * that heads take turns at every step. */
static int is_interleaved(const tq_cache *cache) {
    return cache->head_stride < cache->token_stride;
}

/* Slots begin .. end-1 of one KV head into its partial. */
static void run_keys(const tq_plan *plan, const tq_decode_args *args, void *workspace, int sequence, int kv_head,
                     int split, int begin, int end, int starts, int by_turns) {
    const tq_decode_impl *impl = plan->variant->impl;
    float alibi[TQ_MAX_GQA];
    size_t first_head = (size_t)kv_head * (size_t)plan->gqa;
    if (args->alibi)
        for (int g = 0; g < plan->gqa; g++)
            alibi[g] = args->alibi[first_head + (size_t)g] * tq_log2_e;
    tq_decode_job job = {.q = args->q + (size_t)sequence * args->q_seq_stride + first_head * args->q_head_stride,
                         .q_head_stride = args->q_head_stride,
                         .k = tq_head_of(args->k, sequence, kv_head, by_turns ? impl->tile : impl->k_prefetch),
                         .v = tq_head_of(args->v, sequence, kv_head, by_turns ? impl->tile : impl->v_prefetch),
                         .keys_per_unit = plan->variant->keys_per_unit,
                         .begin = begin,
                         .end = end,
                         .starts = starts,
                         .factor = tq_score_factor(args->scale, args->softcap),
                         .softcap = tq_score_cap(args->softcap),
                         .bias = tq_bias_of(args->bias, sequence, 0, first_head),
                         .alibi = args->alibi ? alibi : NULL,
                         .query_position = args->n_kv[sequence] - 1};
    tq_partial partial = tq_workspace_partial(plan, workspace, sequence, kv_head, split);
    plan->variant->decode(impl, &job, &partial);
}

/* One split of KV heads first .. first + n - 1. */
static void run_split(const tq_plan *plan, const tq_decode_args *args, void *workspace, const tq_cut *cut, int sequence,
                      int first, int n, int split) {
    int begin = tq_split_begin(cut, split), end = tq_split_end(cut, split), tile = plan->variant->impl->tile;
    int by_turns = n > 1 && is_interleaved(args->k) && is_interleaved(args->v);
    for (int from = begin, to; from < end; from = to) {
        to = by_turns ? from + tile - (from - cut->origin) % tile : end;
        to = to < end ? to : end;
        for (int h = first; h < first + n; h++)
            run_keys(plan, args, workspace, sequence, h, split, from, to, from == begin, by_turns);
    }
}

/* How many of the KV heads from `first` on have the middle of their cost, `cost` each, before `to`, if the first one's
 * stands at `middle`. */
static int heads_before(const tq_plan *plan, int first, int64_t middle, int64_t cost, int64_t to) {
    int n = 0;
    while (first + n < plan->n_kv_heads && middle + n * cost < to)
        n++;
    return n;
}

tq_status tq_decode(const tq_plan *plan, const tq_decode_args *args, const tq_launch *launch) {
    tq_status status = tq_check_decode(plan, args, launch);
    if (status)
        return status;
    if (tq_on_gpu(plan))
        return tq_gpu_decode(plan, args, launch);

    int64_t total = 0;
    for (int s = 0; s < args->batch; s++) {
        tq_cut cut = cut_sequence(plan, args, s);
        for (int i = 0; i < cut.n_splits; i++)
            total += split_cost(&cut, i) * plan->n_kv_heads;
    }
    /* All splits of all heads stand in one line, each as long as it costs; a thread takes those whose middle is in its
     * stretch. The line does not depend on the threads, so neither do the results. */
    int64_t from = tq_stretch_begin(total, launch->thread_index, launch->thread_count);
    int64_t to = tq_stretch_begin(total, launch->thread_index + 1, launch->thread_count);
    int64_t at = 0;
    for (int s = 0; s < args->batch && at < to; s++) {
        tq_cut cut = cut_sequence(plan, args, s);
        int n_partials = cut.begin < cut.end ? cut.n_splits : 0;
        for (int i = 0; i < cut.n_splits; i++) {
            int64_t cost = split_cost(&cut, i), middle = at + cost / 2;
            int first = heads_before(plan, 0, middle, cost, from);
            int n = heads_before(plan, first, middle + first * cost, cost, to);
            at += cost * plan->n_kv_heads;
            if (n_partials && n)
                run_split(plan, args, launch->workspace, &cut, s, first, n, i);
            for (int h = first; h < first + n; h++)
                if (cut.n_splits == 1 || tq_workspace_arrive(plan, launch->workspace, s, h, cut.n_splits))
                    tq_combine(plan, args, launch->workspace, s, h, n_partials);
        }
    }
    return TQ_OK;
}
