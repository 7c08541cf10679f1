/* prefill.c: which thread computes which block of tokens. On the CPU a block is computed as a whole, for all query heads of
 * a KV head, so that every key is decoded once for it. */
#include "internal.h"

/* The tokens of one sequence, in blocks of equal size but for the last. */
typedef struct cut {
    int n_query, n_kv;
    int tokens_per_block, n_blocks;
} cut;

static cut cut_sequence(const tq_plan *plan, const tq_prefill_args *args, int sequence) {
    int n = args->n_query[sequence], most = plan->block_rows / plan->gqa, n_blocks = (n + most - 1) / most;
    int each = n_blocks ? (n + n_blocks - 1) / n_blocks : 1;
    return (cut){n, args->n_kv[sequence], each, (n + each - 1) / each};
}

static int tokens_of(const cut *cut, int block) {
    int rest = cut->n_query - block * cut->tokens_per_block;
    return rest < cut->tokens_per_block ? rest : cut->tokens_per_block;
}

/* In multiply-adds per value of a row, of K or V; the constants stand for decoding a key, and for rotating a row. Twice
 * the cost, so that the middle is an integer. */
static int64_t block_cost(const tq_plan *plan, const tq_prefill_args *args, const cut *cut, int block) {
    int first = block * cut->tokens_per_block, n = tokens_of(cut, block), rows = n * plan->gqa;
    int end = args->causal ? cut->n_kv - cut->n_query + first + n : cut->n_kv;
    int keys = args->window > 0 && end > args->window + n ? args->window + n : end > 0 ? end : 0;
    return 2 * ((int64_t)keys * (rows + 12) + (int64_t)rows * 64);
}

static void run_block(const tq_plan *plan, const tq_prefill_args *args, const tq_launch *launch, const cut *cut,
                      int sequence, int kv_head, int block) {
    float alibi[TQ_MAX_GQA], sinks[TQ_MAX_GQA];
    size_t head = (size_t)kv_head * (size_t)plan->gqa, heads = (size_t)(plan->n_kv_heads * plan->gqa);
    size_t s = (size_t)sequence, first = (size_t)(block * cut->tokens_per_block);
    for (int g = 0; g < plan->gqa; g++) {
        alibi[g] = args->alibi ? args->alibi[head + (size_t)g] * tq_log2_e : 0;
        sinks[g] = args->sink_logits ? args->sink_logits[head + (size_t)g] * tq_log2_e : 0;
    }
    const tq_prefill_job job = {
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
        .n_tokens = tokens_of(cut, block),
        .n_kv = cut->n_kv,
        .position = cut->n_kv - cut->n_query + block * cut->tokens_per_block,
        .window = args->window,
        .causal = args->causal,
        .factor = tq_score_factor(args->scale, args->softcap),
        .softcap = tq_score_cap(args->softcap),
        .bias = tq_bias_of(args->bias, sequence, block * cut->tokens_per_block, head),
        .alibi = args->alibi ? alibi : NULL,
        .sink_logits = args->sink_logits ? sinks : NULL};
    const tq_prefill_scratch scratch = tq_workspace_scratch(plan, launch->workspace, launch->thread_index);
    plan->variant->prefill(plan->variant->prefill_impl, &job, &scratch);
}

tq_status tq_prefill(const tq_plan *plan, const tq_prefill_args *args, const tq_launch *launch) {
    tq_status status = tq_check_prefill(plan, args, launch);
    if (status)
        return status;
    if (tq_on_gpu(plan))
        return tq_gpu_prefill(plan, args, launch);

    int64_t total = 0, at = 0;
    for (int s = 0; s < args->batch; s++) {
        cut cut = cut_sequence(plan, args, s);
        for (int i = 0; i < cut.n_blocks; i++)
            total += block_cost(plan, args, &cut, i) * plan->n_kv_heads;
    }
    /* As in decode: all blocks in one line, each as long as it costs, whatever the threads. */
    int64_t from = tq_stretch_begin(total, launch->thread_index, launch->thread_count);
    int64_t to = tq_stretch_begin(total, launch->thread_index + 1, launch->thread_count);
    for (int s = 0; s < args->batch && at < to; s++) {
        cut cut = cut_sequence(plan, args, s);
        for (int h = 0; h < plan->n_kv_heads; h++)
            for (int i = 0; i < cut.n_blocks; i++) {
                int64_t cost = block_cost(plan, args, &cut, i), middle = at + cost / 2;
                at += cost;
                if (middle >= from && middle < to)
                    run_block(plan, args, launch, &cut, s, h, i);
            }
    }
    return TQ_OK;
}
