/* Dequantise: one team per (token, KV head), ${geometry.keys_per_step} tokens per block. */
TQG_KERNEL(${symbol}, tqg_dequantise_params, ${geometry.threads}, ${geometry.blocks_per_sm}) {
    const tqr_job job = tqr_job_of(p.first_slot, p.n_tokens, p.cache.n_slots, ${geometry.keys_per_step});
    if (job.slot < 0)
        return;
    const tqg_i64 to = job.sequence * p.x_seq_stride + job.token * p.x_token_stride + job.head * p.x_head_stride;
    const float *mean = p.mean ? p.mean + job.head * HEAD_DIM : 0;
    float y[SLOTS][4];
    tqg_u8 *unit = tqg_unit(&p.cache, job.sequence, job.head, job.slot, ${geometry.keys_per_tile});
% if f.bits == 16 then
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        TQG_UNROLL
        for (int i = 0; i < 4; i++)
            y[s][i] = tqr_is_quad(s) ? tqg_half(((const tqg_u16 *)unit)[4 * (s * TEAM + tqr_lane()) + i]) : 0.0f;
    }
% else
    tqr_packed packed;
%     if layout == "rows" then
    tqr_load_row(unit, &packed);
%     else
    tqr_load_${layout}_${side}(unit, job.slot % ${geometry.keys_per_tile}, &packed);
%     end
    tqr_values(&packed, y);
%     if f.bits < 8 then
    tqr_rotate(y);
    tqr_flip_${side}(y);
%     end
% end
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        TQG_UNROLL
        for (int i = 0; i < 4; i++) {
            const int value = 4 * (s * TEAM + tqr_lane()) + i;
            if (!job.wanted || !tqr_is_quad(s))
                continue;
            const float v = mean ? y[s][i] + mean[value] : y[s][i];
            if (p.x_is_f16)
                ((tqg_u16 *)p.x)[to + value] = tqg_to_half_sat(v);
            else
                ((float *)p.x)[to + value] = v;
        }
    }
}
