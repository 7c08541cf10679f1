#!/bin/sh
# Do the tests notice what breaks in GPU kernels? usage: tests/gpu_mutants.sh [WORK_DIR]
set -eu
. "$(dirname "$0")/mutants_lib.sh"
mma=$source/generated/simt_sm_90
mfma=$source/generated/simt_gfx942
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
    '/^TQG_FN void tqm_gather_b/,/^}/s/i % 4)/(i ^ 1) % 4)/'
mutant "pairs of neighbouring keys of V multiplied by dots" "$dots/$file" 's/apart = 8;/apart = 1;/'
mutant "columns of a lane's dot products swapped" "$dots/gpu/mma.h" \
    '/^TQG_FN int tqm_c_column/,/^}/s/(tqg_lane() >> 3)/((tqg_lane() >> 3) ^ 1)/'
mutant "outputs lie over scores that are still read" "$dots/$file" \
    '/one set.s columns after the other/,/^}/s/^        tqg_block_sync();//'
finish
