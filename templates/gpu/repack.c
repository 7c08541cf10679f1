/* Rows to ${layout} or back, side ${side:upper()}: one team per (token, KV head), ${geometry.keys_per_step} tokens per block. */
TQG_KERNEL(${symbol}, tqg_repack_params, ${geometry.threads}, ${geometry.blocks_per_sm}) {
    const int n_slots = p.rows.n_slots < p.tiles.n_slots ? p.rows.n_slots : p.tiles.n_slots;
    const tqr_job job = tqr_job_of(p.first_slot, p.n_tokens, n_slots, ${geometry.keys_per_step});
    if (job.slot < 0)
        return;
    tqg_u8 *row = tqg_unit(&p.rows, job.sequence, job.head, job.slot, 1);
    tqg_u8 *tile = tqg_unit(&p.tiles, job.sequence, job.head, job.slot, ${geometry.keys_per_tile});
    const int key = job.slot % ${geometry.keys_per_tile};
    tqr_packed packed;
    if (p.to_tiles) {
        tqr_load_row(row, &packed);
% if f.subs == 0 then
        int differs = 0;
        TQG_UNROLL
        for (int s = 0; s < SLOTS; s++)
            differs |= packed.scale[s] != tqr_shfl(packed.scale[s], 0);
        differs = tqr_any(differs);
        if (job.wanted && differs && p.n_inexact && tqr_lane() == 0)
            tqg_atomic_add((tqg_u32 *)p.n_inexact, 1);
% end
        tqr_store_${layout}_${side}(tile, key, &packed, job.wanted);
    } else {
        tqr_load_${layout}_${side}(tile, key, &packed);
        tqr_store_row(row, &packed, job.wanted);
    }
}
