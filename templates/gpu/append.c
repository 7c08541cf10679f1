/* Append-quantise: one team per (token, KV head), ${geometry.keys_per_step} tokens per block. */
TQG_KERNEL(${symbol}, tqg_append_params, ${geometry.threads}, ${geometry.blocks_per_sm}) {
    const tqr_job job = tqr_job_of(p.first_slot, p.n_tokens, p.cache.n_slots, ${geometry.keys_per_step});
    if (job.slot < 0)
        return;
    const float *x = p.x + job.sequence * p.x_seq_stride + job.token * p.x_token_stride + job.head * p.x_head_stride;
    const float *mean = p.mean ? p.mean + job.head * HEAD_DIM : 0;
    float y[SLOTS][4];
    int bad = 0;
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        TQG_UNROLL
        for (int i = 0; i < 4; i++) {
            const int value = 4 * (s * TEAM + tqr_lane()) + i;
            float v = 0.0f;
            if (job.wanted && tqr_is_quad(s))
                v = mean ? x[value] - mean[value] : x[value];
            bad |= (tqg_bits(v) & 0x7f800000u) == 0x7f800000u;
            y[s][i] = tqg_max(tqg_min(v, 1e17f), -1e17f); /* beyond, the norm would overflow; scales saturate long before */
        }
    }
    bad = tqr_any(bad);
    if (bad && p.status && tqr_lane() == 0)
        tqg_atomic_or((tqg_u32 *)p.status, 1);
    const int keep = job.wanted && !bad;
    tqg_u8 *unit = tqg_unit(&p.cache, job.sequence, job.head, job.slot, ${geometry.keys_per_tile});
% if f.bits == 16 then
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        tqg_u16 *to = (tqg_u16 *)unit + 4 * (s * TEAM + tqr_lane());
        TQG_UNROLL
        for (int i = 0; i < 4; i++)
            if (keep && tqr_is_quad(s))
                to[i] = tqg_to_half_sat(y[s][i]);
    }
% else
    tqr_packed packed;
%     if f.bits == 8 then
    tqr_quantise(y, &packed);
%     else
    float norm[SLOTS];
    tqr_flip_${side}(y);
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        norm[s] = 0.0f;
        TQG_UNROLL
        for (int i = 0; i < 4; i++)
            norm[s] = tqg_fma(y[s][i], y[s][i], norm[s]);
    }
    tqr_sums(norm, CHUNK_QUADS);
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++)
        norm[s] = norm[s] > 0.0f ? norm[s] * tqg_rsqrt(norm[s]) : 0.0f;
    tqr_rotate(y);
%         if f.subs > 0 then
    tqr_quantise_gains(y, norm, &packed);
%         elseif layout == "rows" then
    if (p.mode == ${f.modes.searched})
        tqr_quantise_blocks(y, &packed);
    else
        tqr_quantise_chunks(y, norm, p.mode, &packed);
%         else
    tqr_quantise_chunks(y, norm, p.mode, &packed);
%         end
%     end
%     if layout == "rows" then
    tqr_store_row(unit, &packed, keep);
%     else
    tqr_store_${layout}_${side}(unit, job.slot % ${geometry.keys_per_tile}, &packed, keep);
%     end
% end
}
