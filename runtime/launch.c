/* launch.c: decode: which thread computes which split. */
#include "internal.h"

/* The keys of one sequence that are read from the packed cache, cut into equal ranges of whole tiles. */
typedef struct cut {
    int begin, end;
    int keys_per_split;
    int n_splits; /* at least 1, so that a sequence without keys still gets its output */
} cut;

static cut cut_sequence(const tq_plan *plan, const tq_decode_args *args, int sequence) {
    int n_kv = args->n_kv[sequence], tile = plan->variant->impl->tile;
    int begin = tq_visible_from(args, n_kv);
    if (begin < args->n_sink)
        begin = args->n_sink < n_kv ? args->n_sink : n_kv;
    int keys = n_kv - begin, n = keys / plan->min_split_keys;
    n = n < 1 ? 1 : n > plan->n_splits ? plan->n_splits : n;
    int per_split = ((keys + n - 1) / n + tile - 1) / tile * tile;
    return (cut){begin, n_kv, per_split, keys ? (keys + per_split - 1) / per_split : 1};
}

static int split_begin(const cut *cut, int split) {
    return cut->begin + split * cut->keys_per_split;
}

static int split_end(const cut *cut, int split) {
    return split + 1 < cut->n_splits ? split_begin(cut, split + 1) : cut->end;
}

/* In keys; the constant stands for preparing q and combining. Twice the cost, so that the middle is an integer. */
static int64_t split_cost(const cut *cut, int split) {
    return 2 * (int64_t)(split_end(cut, split) - split_begin(cut, split) + 64);
}

static void run_split(const tq_plan *plan, const tq_decode_args *args, void *workspace, const cut *cut, int sequence,
                      int kv_head, int split) {
    float alibi[TQ_MAX_GQA];
    size_t first_head = (size_t)kv_head * (size_t)plan->gqa;
    if (args->alibi)
        for (int g = 0; g < plan->gqa; g++)
            alibi[g] = args->alibi[first_head + (size_t)g] * tq_log2_e;
    tq_decode_job job = {.q = args->q + (size_t)sequence * args->q_seq_stride + first_head * args->q_head_stride,
                         .q_head_stride = args->q_head_stride,
                         .k = tq_cache_row(args->k, sequence, kv_head, 0),
                         .v = tq_cache_row(args->v, sequence, kv_head, 0),
                         .k_stride = args->k->token_stride,
                         .v_stride = args->v->token_stride,
                         .begin = split_begin(cut, split),
                         .end = split_end(cut, split),
                         .factor = tq_score_factor(args->scale, args->softcap),
                         .softcap = tq_score_cap(args->softcap),
                         .alibi = args->alibi ? alibi : NULL,
                         .query_position = args->n_kv[sequence] - 1};
    tq_partial partial = tq_workspace_partial(plan, workspace, sequence, kv_head, split);
    plan->variant->decode(plan->variant->impl, &job, &partial);
}

tq_status tq_decode(const tq_plan *plan, const tq_decode_args *args, const tq_launch *launch) {
    tq_status status = tq_check_decode(plan, args, launch);
    if (status)
        return status;
    if (tq_on_gpu(plan))
        return tq_gpu_decode(plan, args, launch);

    int64_t total = 0;
    for (int s = 0; s < args->batch; s++) {
        cut cut = cut_sequence(plan, args, s);
        for (int i = 0; i < cut.n_splits; i++)
            total += split_cost(&cut, i) * plan->n_kv_heads;
    }
    /* All splits stand in one line, each as long as it costs; a thread takes those whose middle is in its stretch. The
     * line does not depend on the threads, so neither do the results. */
    int64_t each = total / launch->thread_count, rest = total % launch->thread_count;
    int64_t from = each * launch->thread_index + rest * launch->thread_index / launch->thread_count;
    int64_t to = each * (launch->thread_index + 1) + rest * (launch->thread_index + 1) / launch->thread_count;
    int64_t at = 0;
    for (int s = 0; s < args->batch && at < to; s++) {
        cut cut = cut_sequence(plan, args, s);
        for (int h = 0; h < plan->n_kv_heads; h++)
            for (int i = 0; i < cut.n_splits; i++) {
                int64_t middle = at + split_cost(&cut, i) / 2;
                at += split_cost(&cut, i);
                if (middle < from || middle >= to)
                    continue;
                int n_partials = cut.begin < cut.end ? cut.n_splits : 0;
                if (n_partials)
                    run_split(plan, args, launch->workspace, &cut, s, h, i);
                if (cut.n_splits == 1 || tq_workspace_arrive(plan, launch->workspace, s, h, cut.n_splits))
                    tq_combine(plan, args, launch->workspace, s, h, n_partials);
            }
    }
    return TQ_OK;
}
