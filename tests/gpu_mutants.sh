#!/bin/sh
# Do the tests notice what breaks in GPU kernels? usage: tests/gpu_mutants.sh [WORK_DIR]
set -eu
. "$(dirname "$0")/mutants_lib.sh"
mma=$source/generated/simt_sm_90
mfma=$source/generated/simt_gfx942
file=decode_d128_kgain3_vturbo3.c

setup gpu_variants_test --arch simt-sm_90,simt-gfx942 --op decode --head-dim 128 --gqa 4 --k gain3 --v turbo3 \
    --bias 0,16

mutant "barrier between preparing and rotating q dropped" "$mma/$file" \
    '/^TQG_FN void tqa_prepare_q/,/^}/s/tqg_block_sync();//'
mutant "barrier between the sums of warps dropped" "$mma/$file" \
    '/^TQG_KERNEL(.*mma_s3_kf16/,/^}/s/^        tqg_block_sync();//'
mutant "warp barrier behind decoded gains dropped" "$mma/$file" \
    '/^TQG_KERNEL(.*mma_s3_kf16/,/^}/s/^        tqg_warp_sync();$//'
mutant "asynchronous copies not waited for" "$mma/$file" 's/tqg_copy_wait(1);//'
mutant "bulk copies not waited for" "$mma/gpu/mma.h" 's/tqg_bar_wait(.*);//'
mutant "exchange over half the warp" "$mma/$file" '/^TQG_FN float tqa_warp_sum/,/^}/s/TQG_WARP \/ 2/TQG_WARP \/ 4/'
mutant "sum of a column over half of its lanes" "$mma/gpu/mma.h" \
    '/^TQG_FN float tqm_column_sum/,/^}/s/mask < TQM_SAME_END/mask < TQM_SAME_END \/ 2/'
mutant "votes of the upper half of a wave64 lost" "$mfma/vocabulary.h" \
    's/(tq_simt_ballot((p) != 0, TQG_AT("tqg_any")) != 0)/((tqg_u32)tq_simt_ballot((p) != 0, TQG_AT("tqg_any")) != 0)/'
mutant "wrong centroid among the halves" "$mma/$file" 's/0xb9c2c5c8u/0xb9c2c6c8u/'
mutant "wrong centroid among the bytes" "$mma/$file" 's/0xfbe8d2b4u/0xfbe8d3b4u/'
mutant "wrong gain" "$mma/$file" 's/0x00802000u, 0xe0e02080u/0x00806000u, 0xe0e02080u/'
mutant "rows of the result swapped" "$mma/gpu/mma.h" '/^TQG_FN int tqm_c_row/,/^}/s/(tqg_lane() >> 2)/((tqg_lane() >> 2) ^ 1)/'
mutant "keys of an operand swapped" "$mfma/gpu/mma.h" '/^TQG_FN int tqm_b_key/,/^}/s/tqm_k_lane()/(tqm_k_lane() ^ 1)/'
mutant "splits merged without rescaling" "$mma/$file" \
    '/^TQG_FN void tqa_merge_parts/,/^}/s/tqg_fma(t->scores\[.*\], values/tqg_fma(1.0f, values/'
mutant "output not rescaled when the maximum rises" "$mma/gpu/mma.h" '/^TQG_FN void tqm_raise/,/^}/s/\(o\[.*\]\) \*= .*;/(void)\1;/'
mutant "one key too many at the tail" "$mma/$file" '/^TQG_FN int tqa_is_visible/,/^}/s/slot < r->n_kv/slot <= r->n_kv/'
mutant "window one key too short" "$mma/$file" 's/r\.n_kv - p->window : 0/r.n_kv - p->window + 1 : 0/'
mutant "combines before the last block has arrived" "$mma/$file" 's/(tqg_u32)r->n_splits))/(tqg_u32)r->n_splits - 1))/'
mutant "score bias turned the wrong way" "$mma/gpu/bias.h" '/^TQG_FN tqb_pair tqb_turned/,/^}/s/-(alpha \* sine)/alpha * sine/'
mutant "what rounding left of a score bias dropped" "$mma/gpu/mma_bias.h" 's/ = left;/ = left \& 0;/'
mutant "score bias of the first half of a tile for both" "$mfma/gpu/mma_bias.h" \
    's/tqb_of_run(of, i, run)/tqb_of_run(of, i, 0)/'
mutant "score bias of the next step not turned on" "$mma/gpu/bias.h" 's/of->cosine = tqg_fma(cosine, .*;/;/'
mutant "score bias turned on by another stride" "$mfma/$file" 's/tqb_stride(&coefficients, WARPS \* KEYS)/tqb_stride(\&coefficients, KEYS)/'

file=prefill_d512_kgain3_vturbo3.c
wmma11=$source/generated/simt_gfx1100
dots=$source/generated/simt_gfx906
setup prefill_test --arch simt-sm_90,simt-gfx942,simt-gfx1100,simt-gfx906 --op prefill --head-dim 512 --gqa 4 --k gain3 --v turbo3 --bias 0

mutant "scores of the other warps not added" "$mma/$file" 's/s\[i + j\] += x\[j\];/(void)x[j];/'
mutant "added before all warps have put theirs" "$mma/$file" \
    '/tqp_put_scores(GROUPS/,/tqp_add_scores(PARTS/s/tqg_block_sync();//'
mutant "rows of V decoded before those of K are multiplied" "$mfma/$file" \
    '/tqp_put_scores(GROUPS/,/tqp_decode_v(&v_cache/s/tqg_block_sync();//'
mutant "rows of V multiplied before they are decoded" "$mfma/$file" \
    '/tqp_decode_v(&v_cache/,/tqp_add_scores(PARTS/s/tqg_block_sync();//'
mutant "all warps keep the same part of V" "$mma/$file" 's/\(int first_block =\) part \*/\1 0 */'
mutant "all warps multiply the same part of K" "$mma/$file" 's/\(int first_unit =\) part \*/\1 0 */'
mutant "halves of a warp take each other's rows of the result" "$wmma11/gpu/mma.h" \
    '/^TQG_FN int tqm_c_row/,/^}/s/2 \* r + (tqg_lane() >> 4)/2 * r + (tqg_lane() < 16)/'
mutant "operand not the same in both halves of a warp" "$wmma11/gpu/mma.h" \
    '/^TQG_FN int tqm_a_lane/,/^}/s/ & (TQM_A_LANES - 1)//'
mutant "even and odd weights of a warp's halves swapped" "$wmma11/vocabulary.h" 's/even = upper ? other : own/even = upper ? own : other/;
    s/odd = upper ? own : other/odd = upper ? other : own/'
mutant "weights gathered from the wrong ones of eight lanes" "$dots/gpu/mma_dots.h" \
    '/^TQG_FN void tqm_gather_b/,/^}/s/= pairs\[j\]/= pairs[j ^ 1]/'
mutant "pairs of neighbouring keys of V multiplied by dots" "$dots/$file" 's/apart = 8;/apart = 1;/'
mutant "rows of a lane's dot products swapped" "$dots/gpu/mma.h" \
    '/^TQG_FN int tqm_c_row/,/^}/s/(tqg_lane() & 7) + 8/((tqg_lane() \& 7) ^ 1) + 8/'
mutant "outputs lie over scores that are still read" "$dots/$file" \
    '/one set.s columns after the other/,/^}/s/^        tqg_block_sync();//'
finish
