/* check_attention.c: arguments of decode and prefill. */
#include "check.h"

#include <math.h>
#include <string.h>

/* n_query: of each sequence; 1: decode. */
static tq_status check_bias(const char *call, const tq_plan *plan, const tq_score_bias *bias, int batch, int n_query) {
    if (!bias)
        return TQ_OK;
    if (bias->n_pairs < 1 || bias->n_pairs > plan->max_bias_pairs)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: args.bias.n_pairs is %d; legal is 1 to %d (the plan's max_bias_pairs)",
                       call, bias->n_pairs, plan->max_bias_pairs);
    int heads = plan->n_kv_heads * plan->gqa;
    tq_dimension dims[] = {{"head_stride", bias->head_stride, heads},
                           {"token_stride", bias->token_stride, n_query},
                           {"seq_stride", bias->seq_stride, batch}};
    size_t extent = 2 * (size_t)bias->n_pairs;
    tq_status status;
    if ((status = tq_check_pointer(call, "args.bias.turns", bias->turns, sizeof(uint32_t))) ||
        (status = tq_check_pointer(call, "args.bias.table", bias->table, sizeof(uint16_t))) ||
        (status = tq_check_pointer(call, "args.bias.coefficients", bias->coefficients, sizeof(float))))
        return status;
    return tq_check_strides(call, "args.bias", dims, 3, "floats", &extent);
}

/* What decode and prefill have in common. */
static tq_status check_logits(const char *call, const tq_plan *plan, float scale, float softcap, int window,
                              const float *alibi, const float *sink_logits, const float *lse) {
    int heads = plan->n_kv_heads * plan->gqa;
    tq_status status;
    if (!(scale > 0) || !isfinite(scale))
        return tq_fail(TQ_ERR_ARGUMENT, "%s: args.scale is %g; legal is a finite number > 0", call, (double)scale);
    if (!(softcap >= 0) || !isfinite(softcap))
        return tq_fail(TQ_ERR_ARGUMENT, "%s: args.softcap is %g; legal is 0 (none) or a finite number > 0", call,
                       (double)softcap);
    if (window < 0)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: args.window is %d; legal is 0 (none) or more", call, window);
    if ((status = tq_check_optional(call, "args.alibi", alibi, sizeof(float))) ||
        (status = tq_check_optional(call, "args.sink_logits", sink_logits, sizeof(float))) ||
        (status = tq_check_optional(call, "args.lse", lse, sizeof(float))) || tq_on_gpu(plan))
        return status;
    for (int h = 0; alibi && h < heads; h++)
        if (!isfinite(alibi[h]))
            return tq_fail(TQ_ERR_NOT_FINITE, "%s: args.alibi[%d] is %g", call, h, (double)alibi[h]);
    for (int h = 0; sink_logits && h < heads; h++)
        if (!(sink_logits[h] < INFINITY))
            return tq_fail(TQ_ERR_NOT_FINITE, "%s: args.sink_logits[%d] is %g; legal is a finite number or -INFINITY",
                           call, h, (double)sink_logits[h]);
    return TQ_OK;
}

static tq_status check_sinks(const char *call, const tq_plan *plan, const tq_decode_args *args) {
    const tq_cache *const sinks[] = {args->sink_k, args->sink_v};
    static const char *const names[] = {"args.sink_k", "args.sink_v"};
    const int values[] = {plan->head_dim, tq_out_values(plan)};
    tq_status status = tq_check_range(call, "args.n_sink", args->n_sink, 0, TQ_MAX_N_KV);
    if (status || args->n_sink == 0)
        return status;
    for (int i = 0; i < 2; i++) {
        if ((status = tq_check_cache(call, names[i], plan, sinks[i], tq_row_of_bytes(2 * values[i]), args->batch, 1)))
            return status;
        if (args->n_sink > sinks[i]->n_slots)
            return tq_fail(TQ_ERR_ARGUMENT, "%s: args.n_sink is %d; legal is 0 to %d (%s.n_slots)", call, args->n_sink,
                           sinks[i]->n_slots, names[i]);
    }
    return TQ_OK;
}

/* What one token brings, for all query heads: is it finite? */
static tq_status check_token(const char *call, const tq_plan *plan, int sequence, int token, const float *q,
                             size_t q_head_stride, const tq_score_bias *bias) {
    const tq_bias of = tq_bias_of(bias, sequence, token, 0);
    const float *coefficients = of.coefficients;
    for (int h = 0; h < plan->n_kv_heads * plan->gqa; h++, q += q_head_stride, coefficients += of.head_stride) {
        int bad = tq_first_not_finite(q, NULL, plan->head_dim);
        if (bad < plan->head_dim)
            return tq_fail(TQ_ERR_NOT_FINITE, "%s: args.q of sequence %d, query %d, head %d, index %d is %g", call,
                           sequence, token, h, bad, (double)q[bad]);
        bad = tq_first_not_finite(coefficients, NULL, 2 * of.n_pairs);
        if (bad < 2 * of.n_pairs)
            return tq_fail(TQ_ERR_NOT_FINITE,
                           "%s: args.bias.coefficients of sequence %d, query %d, head %d, pair %d is %g", call,
                           sequence, token, h, bad / 2, (double)coefficients[bad]);
    }
    return TQ_OK;
}

/* Lengths of sequences. */
static tq_status check_n_kv(const char *call, const tq_plan *plan, const tq_cache *k, const tq_cache *v,
                            const int32_t *n_kv, int batch) {
    int most = plan->max_n_kv;
    const char *why = "the plan's max_n_kv";
    if (k->n_slots < most) {
        most = k->n_slots;
        why = "args.k.n_slots";
    }
    if (v->n_slots < most) {
        most = v->n_slots;
        why = "args.v.n_slots";
    }
    for (int s = 0; s < batch; s++)
        if (n_kv[s] < 0 || n_kv[s] > most)
            return tq_fail(TQ_ERR_ARGUMENT, "%s: args.n_kv[%d] is %d; legal is 0 to %d (%s)", call, s, (int)n_kv[s],
                           most, why);
    return TQ_OK;
}

/* Of slots first .. end-1 of a sequence. */
static tq_status check_pages_of(const char *call, const tq_plan *plan, const tq_cache *k, const tq_cache *v,
                                int sequence, int first, int end) {
    tq_status status =
        tq_check_page_numbers(call, "args.k", plan, k, tq_unit_of(plan, plan->variant->k), sequence, first, end);
    return status ? status
                  : tq_check_page_numbers(call, "args.v", plan, v, tq_unit_of(plan, plan->variant->v), sequence, first,
                                          end);
}

tq_status tq_check_decode(const tq_plan *plan, const tq_decode_args *args, const tq_launch *launch) {
    static const char call[] = "tq_decode";
    tq_status status = tq_check_launch(call, TQ_OP_DECODE, plan, args, launch);
    if (status || (status = tq_workspace_check(call, plan, launch)) ||
        (status = tq_check_range(call, "args.batch", args->batch, 1, plan->max_batch)) ||
        (status = tq_check_batch(call, plan, args->batch)))
        return status;
    int heads = plan->n_kv_heads * plan->gqa, batch = args->batch;
    tq_dimension q_dims[] = {{"q_head_stride", args->q_head_stride, heads},
                             {"q_seq_stride", args->q_seq_stride, batch}};
    tq_dimension out_dims[] = {{"out_head_stride", args->out_head_stride, heads},
                               {"out_seq_stride", args->out_seq_stride, batch}};
    const tq_variant *variant = plan->variant;
    if ((status = tq_check_floats(call, "args.q", args->q, q_dims, 2, plan->head_dim)) ||
        (status = tq_check_floats(call, "args.out", args->out, out_dims, 2, tq_out_values(plan))) ||
        (status = tq_check_cache(call, "args.k", plan, args->k, tq_unit_of(plan, variant->k), batch, 1)) ||
        (status = tq_check_cache(call, "args.v", plan, args->v, tq_unit_of(plan, variant->v), batch, 1)) ||
        (status = tq_check_pointer(call, "args.n_kv", args->n_kv, sizeof(int32_t))) ||
        (status = check_logits(call, plan, args->scale, args->softcap, args->window, args->alibi, args->sink_logits,
                               args->lse)) ||
        (status = check_bias(call, plan, args->bias, batch, 1)) || (status = check_sinks(call, plan, args)) ||
        tq_on_gpu(plan))
        return status;

    status = check_n_kv(call, plan, args->k, args->v, args->n_kv, batch);
    for (int s = 0; !status && s < batch; s++) {
        int n_kv = args->n_kv[s], from = tq_visible_from(args->window, n_kv),
            sinks = args->n_sink < n_kv ? args->n_sink : n_kv;
        const tq_unit k_row = tq_row_of_bytes(2 * plan->head_dim), v_row = tq_row_of_bytes(2 * variant->v->head_dim);
        const float *q = args->q + (size_t)s * args->q_seq_stride;
        if ((status = check_pages_of(call, plan, args->k, args->v, s, from > sinks ? from : sinks, n_kv)) ||
            (sinks &&
             ((status = tq_check_page_numbers(call, "args.sink_k", plan, args->sink_k, k_row, s, from, sinks)) ||
              (status = tq_check_page_numbers(call, "args.sink_v", plan, args->sink_v, v_row, s, from, sinks)))))
            return status;
        status = check_token(call, plan, s, 0, q, args->q_head_stride, args->bias);
    }
    return status;
}

/* Each thread of prefill has memory of its own. */
static tq_status check_threads(const char *call, const tq_plan *plan, const tq_launch *launch) {
    tq_status status = tq_workspace_check(call, plan, launch);
    if (!status && launch->thread_count > plan->n_threads)
        return tq_fail(TQ_ERR_ARGUMENT, "%s: launch.thread_count is %d; legal is 1 to %d (the plan's n_threads)", call,
                       launch->thread_count, plan->n_threads);
    return status;
}

/* The contents of arrays: that they are finite takes much less time than attention. */
static tq_status check_tokens(const char *call, const tq_plan *plan, const tq_prefill_args *args) {
    tq_status status = check_n_kv(call, plan, args->k, args->v, args->n_kv, args->batch);
    for (int s = 0; !status && s < args->batch; s++) {
        const float *q = args->q + (size_t)s * args->q_seq_stride;
        if (args->n_query[s] < 0 || args->n_query[s] > args->max_query)
            return tq_fail(TQ_ERR_ARGUMENT, "%s: args.n_query[%d] is %d; legal is 0 to %d (args.max_query)", call, s,
                           (int)args->n_query[s], args->max_query);
        /* Keys that the first query sees, and all behind them. */
        int first_end = args->causal ? args->n_kv[s] - args->n_query[s] + 1 : args->n_kv[s];
        status =
            check_pages_of(call, plan, args->k, args->v, s, tq_visible_from(args->window, first_end), args->n_kv[s]);
        for (int i = 0; !status && i < args->n_query[s]; i++, q += args->q_token_stride)
            status = check_token(call, plan, s, i, q, args->q_head_stride, args->bias);
    }
    return status;
}

tq_status tq_check_prefill(const tq_plan *plan, const tq_prefill_args *args, const tq_launch *launch) {
    static const char call[] = "tq_prefill";
    tq_status status = tq_check_launch(call, TQ_OP_PREFILL, plan, args, launch);
    if (status || (status = tq_check_batch(call, plan, args->batch)) ||
        (status = tq_check_range(call, "args.max_query", args->max_query, 0, TQ_MAX_N_KV)) ||
        (!tq_on_gpu(plan) && (status = check_threads(call, plan, launch))))
        return status;
    int heads = plan->n_kv_heads * plan->gqa, batch = args->batch;
    tq_dimension q_dims[] = {{"q_head_stride", args->q_head_stride, heads},
                             {"q_token_stride", args->q_token_stride, args->max_query},
                             {"q_seq_stride", args->q_seq_stride, batch}};
    tq_dimension out_dims[] = {{"out_head_stride", args->out_head_stride, heads},
                               {"out_token_stride", args->out_token_stride, args->max_query},
                               {"out_seq_stride", args->out_seq_stride, batch}};
    const tq_variant *variant = plan->variant;
    if ((status = tq_check_floats(call, "args.q", args->q, q_dims, 3, plan->head_dim)) ||
        (status = tq_check_floats(call, "args.out", args->out, out_dims, 3, tq_out_values(plan))) ||
        (status = tq_check_cache(call, "args.k", plan, args->k, tq_unit_of(plan, variant->k), batch, 1)) ||
        (status = tq_check_cache(call, "args.v", plan, args->v, tq_unit_of(plan, variant->v), batch, 1)) ||
        (status = tq_check_pointer(call, "args.n_kv", args->n_kv, sizeof(int32_t))) ||
        (status = tq_check_pointer(call, "args.n_query", args->n_query, sizeof(int32_t))) ||
        (status = check_bias(call, plan, args->bias, batch, args->max_query)))
        return status;
    status =
        check_logits(call, plan, args->scale, args->softcap, args->window, args->alibi, args->sink_logits, args->lse);
    return status || tq_on_gpu(plan) ? status : check_tokens(call, plan, args);
}
