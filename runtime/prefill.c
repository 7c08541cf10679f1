/* prefill.c: which thread computes which block of tokens with which keys. On the CPU a block is computed for all query
 * heads of a KV head, so that every key is decoded once for it; the keys of a few queries are split, as in decode. */
#include "internal.h"

/* The tokens of one sequence, in blocks of equal size but for the last. */
typedef struct blocks {
    int n_query, n_kv;
    int tokens_per_block, n;
    int n_splits; /* of the keys of each, at most */
} blocks;

/* Rows that partial results of a block take. */
static int padded_rows(const tq_plan *plan, int tokens) {
    return (tokens * plan->gqa + TQ_ROWS_STEP - 1) / TQ_ROWS_STEP * TQ_ROWS_STEP;
}

static blocks blocks_of(const tq_plan *plan, const tq_prefill_args *args, int sequence) {
    int n = args->n_query[sequence], most = plan->block_rows / plan->gqa, n_blocks = (n + most - 1) / most;
    int each = n_blocks ? (n + n_blocks - 1) / n_blocks : 1;
    n_blocks = (n + each - 1) / each;
    int few = n_blocks <= TQ_MAX_SPLIT_ROWS && n_blocks * padded_rows(plan, each) <= TQ_MAX_SPLIT_ROWS;
    return (blocks){n, args->n_kv[sequence], each, n_blocks, few ? plan->n_splits : 1};
}

static int tokens_of(const blocks *blocks, int block) {
    int rest = blocks->n_query - block * blocks->tokens_per_block;
    return rest < blocks->tokens_per_block ? rest : blocks->tokens_per_block;
}

/* Of a block, among the partial results of its sequence and KV head. */
static int first_row(const tq_plan *plan, const blocks *blocks, int block) {
    return block * padded_rows(plan, blocks->tokens_per_block);
}

/* What a block sees. */
static tq_cut cut_block(const tq_plan *plan, const tq_prefill_args *args, const blocks *blocks, int block) {
    int position = blocks->n_kv - blocks->n_query + block * blocks->tokens_per_block, n_kv = blocks->n_kv;
    int first_end = args->causal ? position + 1 : n_kv, end = args->causal ? position + tokens_of(blocks, block) : n_kv;
    int unit = plan->variant->keys_per_unit > 1 ? plan->variant->keys_per_unit : TQ_GROUP;
    return tq_cut_keys(plan, tq_visible_from(args->window, first_end), end > 0 ? end : 0, unit, TQ_MAX_TILE,
                       blocks->n_splits);
}

/* In multiply-adds per value of a row, of K or V; the constants stand for decoding a key, and for rotating a row. Twice
 * the cost, so that the middle is an integer. */
static int64_t split_cost(const tq_plan *plan, const blocks *blocks, int block, const tq_cut *cut, int split) {
    int rows = tokens_of(blocks, block) * plan->gqa, keys = tq_split_end(cut, split) - tq_split_begin(cut, split);
    return 2 * ((int64_t)keys * (rows + 12) + (int64_t)rows * 64);
}

/* A job, and arrays that it points to. */
typedef struct block_job {
    tq_prefill_job job;
    float alibi[TQ_MAX_GQA], sinks[TQ_MAX_GQA];
} block_job;

static void set_job(const tq_plan *plan, const tq_prefill_args *args, const blocks *blocks, int sequence, int kv_head,
                    int block, block_job *out) {
    size_t head = (size_t)kv_head * (size_t)plan->gqa, heads = (size_t)(plan->n_kv_heads * plan->gqa);
    size_t s = (size_t)sequence, first = (size_t)(block * blocks->tokens_per_block);
    for (int g = 0; g < plan->gqa; g++) {
        out->alibi[g] = args->alibi ? args->alibi[head + (size_t)g] * tq_log2_e : 0;
        out->sinks[g] = args->sink_logits ? args->sink_logits[head + (size_t)g] * tq_log2_e : 0;
    }
    out->job = (tq_prefill_job){
        .q = args->q + s * args->q_seq_stride + first * args->q_token_stride + head * args->q_head_stride,
        .q_token_stride = args->q_token_stride,
        .q_head_stride = args->q_head_stride,
        .out = args->out + s * args->out_seq_stride + first * args->out_token_stride + head * args->out_head_stride,
        .out_token_stride = args->out_token_stride,
        .out_head_stride = args->out_head_stride,
        .lse = args->lse ? args->lse + (s * (size_t)args->max_query + first) * heads + head : NULL,
        .lse_token_stride = heads,
        .keys_per_unit = tq_keys_per_unit(plan->variant),
        .k = tq_head_of(args->k, sequence, kv_head, 0),
        .v = tq_head_of(args->v, sequence, kv_head, 0),
        .gqa = plan->gqa,
        .n_tokens = tokens_of(blocks, block),
        .n_kv = blocks->n_kv,
        .position = blocks->n_kv - blocks->n_query + block * blocks->tokens_per_block,
        .window = args->window,
        .causal = args->causal,
        .factor = tq_score_factor(args->scale, args->softcap),
        .softcap = tq_score_cap(args->softcap),
        .bias = tq_bias_of(args->bias, sequence, block * blocks->tokens_per_block, head),
        .alibi = args->alibi ? out->alibi : NULL,
        .sink_logits = args->sink_logits ? out->sinks : NULL};
}

/* The first split has the sinks. */
static void run_split(const tq_plan *plan, const tq_prefill_args *args, const tq_launch *launch, const blocks *blocks,
                      int sequence, int kv_head, int block, const tq_cut *cut, int split) {
    block_job b;
    set_job(plan, args, blocks, sequence, kv_head, block, &b);
    b.job.begin = tq_split_begin(cut, split);
    b.job.end = tq_split_end(cut, split);
    b.job.sink_logits = split ? NULL : b.job.sink_logits;
    const tq_prefill_scratch scratch = tq_workspace_scratch(plan, launch->workspace, launch->thread_index);
    const tq_prefill_partial partial =
        tq_workspace_prefill_partial(plan, launch->workspace, sequence, kv_head, split, first_row(plan, blocks, block));
    plan->variant->prefill(plan->variant->prefill_impl, &b.job, &scratch, cut->n_splits > 1 ? &partial : NULL);
}

static void merge(const tq_plan *plan, const tq_prefill_args *args, void *workspace, const blocks *blocks, int sequence,
                  int kv_head, int block, int n_splits) {
    block_job b;
    tq_prefill_partial partials[TQ_MAX_SPLITS];
    set_job(plan, args, blocks, sequence, kv_head, block, &b);
    for (int i = 0; i < n_splits; i++)
        partials[i] =
            tq_workspace_prefill_partial(plan, workspace, sequence, kv_head, i, first_row(plan, blocks, block));
    plan->variant->prefill_merge(plan->variant->prefill_impl, &b.job, partials, n_splits);
}

/* Counts a split as done. The last one of a sequence and KV head to arrive merges them, block by block. */
static void arrive(const tq_plan *plan, const tq_prefill_args *args, void *workspace, const blocks *blocks,
                   int sequence, int kv_head) {
    int n = 0;
    for (int i = 0; i < blocks->n; i++) {
        tq_cut cut = cut_block(plan, args, blocks, i);
        n += cut.n_splits > 1 ? cut.n_splits : 0;
    }
    if (!tq_workspace_arrive(plan, workspace, sequence, kv_head, n))
        return;
    for (int i = 0; i < blocks->n; i++) {
        tq_cut cut = cut_block(plan, args, blocks, i);
        if (cut.n_splits > 1)
            merge(plan, args, workspace, blocks, sequence, kv_head, i, cut.n_splits);
    }
}

tq_status tq_prefill(const tq_plan *plan, const tq_prefill_args *args, const tq_launch *launch) {
    tq_status status = tq_check_prefill(plan, args, launch);
    if (status)
        return status;
    if (tq_on_gpu(plan))
        return tq_gpu_prefill(plan, args, launch);

    int64_t total = 0, at = 0;
    for (int s = 0; s < args->batch; s++) {
        blocks blocks = blocks_of(plan, args, s);
        for (int i = 0; i < blocks.n; i++) {
            tq_cut cut = cut_block(plan, args, &blocks, i);
            for (int j = 0; j < cut.n_splits; j++)
                total += split_cost(plan, &blocks, i, &cut, j) * plan->n_kv_heads;
        }
    }
    /* As in decode: all splits in one line, each as long as it costs, whatever the threads. */
    int64_t from = tq_stretch_begin(total, launch->thread_index, launch->thread_count);
    int64_t to = tq_stretch_begin(total, launch->thread_index + 1, launch->thread_count);
    for (int s = 0; s < args->batch && at < to; s++) {
        blocks blocks = blocks_of(plan, args, s);
        for (int h = 0; h < plan->n_kv_heads; h++)
            for (int i = 0; i < blocks.n; i++) {
                tq_cut cut = cut_block(plan, args, &blocks, i);
                for (int j = 0; j < cut.n_splits; j++) {
                    int64_t cost = split_cost(plan, &blocks, i, &cut, j), middle = at + cost / 2;
                    at += cost;
                    if (middle < from || middle >= to)
                        continue;
                    run_split(plan, args, launch, &blocks, s, h, i, &cut, j);
                    if (cut.n_splits > 1)
                        arrive(plan, args, launch->workspace, &blocks, s, h);
                }
            }
    }
    return TQ_OK;
}
