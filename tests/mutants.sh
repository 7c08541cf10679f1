#!/bin/sh
# Do the tests notice what breaks in CPU kernels and in the runtime? usage: tests/mutants.sh [WORK_DIR]
set -eu
. "$(dirname "$0")/mutants_lib.sh"
kernels=$source/generated/c

setup "variants_test launch_gpu_test gpu_loader_test dequantise_test laws_test append_test prefill_test" \
    --arch c --head-dim 80,128 --gqa 3 --tile 64 --k turbo3,gain4,f16 --v turbo3,gain4,f16

mutant "wrong centroid in one of 8" "$kernels/turbo3_d128.c" 's/\(CENTROIDS\[16\] = {-[0-9]*, \)-71,/\1-70,/'
mutant "wrong gain in one of 16" "$kernels/gain4_d128.c" 's/\(GAINS\[16\] = {24, 26, \)28,/\129,/'
mutant "one sign of the K mask" "$kernels/turbo3_d128.c" 's/K_SIGNS\[\] = {/&1 ^ /'
mutant "one sign of the V mask" "$kernels/gain4_d80.c" 's/V_SIGNS\[\] = {/&1 ^ /'
mutant "signs of K used for V" "$kernels/gain4_d128.c" 's/ROTATE_UNIT, V_SIGNS, &/ROTATE_UNIT, K_SIGNS, \&/'
mutant "difference the wrong way round in the Hadamard" "$kernels/rotate.h" 's/tqv_sub(a, b)/tqv_sub(b, a)/'
mutant "half the reflection of odd factors" "$kernels/rotate.h" 's/2\.0f \/ (float)odd/1.0f \/ (float)odd/'
mutant "two groups of nibbles swapped" "$kernels/turbo3_d80.c" 's/{0, 0}, {0, 4},/{0, 4}, {0, 0},/'
mutant "spare bit taken one too high" "$kernels/turbo3_d128.c" 's/tqv_srl16(whole_word(x, 2), 2)/tqv_srl16(whole_word(x, 2), 1)/'
mutant "output not rescaled when the maximum grows" "$kernels/attention.c" \
    's/tqv_store(decay + h, share\[0\])/tqv_store(decay + h, tqv_set1(1.0f))/'
mutant "denominator not rescaled when the maximum grows" "$kernels/attention.c" \
    's/tqv_fma(tqv_load(sum + h), share\[0\],/tqv_fma(tqv_load(sum + h), tqv_set1(1.0f),/'
mutant "one key too many at the tail" "$kernels/attention.c" \
    's/0, before, n, padded,/0, before, n + 1, padded,/'
mutant "one row too few staged at the tail" "$kernels/rows.h" \
    's/for (int r = 0; r < n; r++)/for (int r = 0; r < n - 1; r++)/'
mutant "position of ALiBi off by one" "$kernels/attention.c" 's/first - before - job->query_position/& + 1/'
mutant "score bias turned the wrong way" "$kernels/attention.c" 's/tqv_sub(tqv_mul(beta, cosine)/tqv_add(tqv_mul(beta, cosine)/'
mutant "score bias of one position too many" "$kernels/attention.c" 's/skipped = first % TQ_BIAS_STEP/skipped = (first + 1) % TQ_BIAS_STEP/'
mutant "first page for all" "$kernels/attention.c" 's/head->pages\[slot \/ head->page_slots\]/head->pages[0]/'
mutant "heads that take turns start anew" "$source/runtime/launch.c" 's/from == begin, by_turns/1, by_turns/'
mutant "two lanes of a tile swapped" "$source/runtime/tiles.c" 's/(c \/ 2 \* 8 + c % 2)/(c \/ 2 * 8 + 1 - c % 2)/' append_test
mutant "splits merged without rescaling" "$source/runtime/combine.c" \
    's/float w = weight(from\.max\[g\], max);/float w = 1;/'
mutant "denominator of splits not rescaled" "$source/runtime/combine.c" \
    's/sum += w \* from\.sum\[g\]/sum += from.sum[g]/'
mutant "first tokens added without rescaling" "$source/runtime/combine.c" \
    's/acc\[j\] \* keep + w \* v\[j\]/acc[j] + w * v[j]/' laws_test
mutant "window one key too short" "$source/runtime/internal.h" \
    's/n_kv - window : 0/n_kv - window + 1 : 0/'
mutant "output of prefill not rescaled" "$kernels/attention.c" \
    's/tqv_store(decay + r, share);/tqv_store(decay + r, tqv_set1(1.0f));/' prefill_test
mutant "queries of prefill see one key too many" "$kernels/attention.c" 's/job->position + token + 1/& + 1/' prefill_test
mutant "keys of a panel in each other's place" "$kernels/turbo3_d80.c" 's/keys\[r % 4\]/keys[3 - r % 4]/' prefill_test
mutant "signs of V used for q in prefill" "$kernels/gain4_d128.c" 's/ROTATE_UNIT, K_SIGNS, to)/ROTATE_UNIT, V_SIGNS, to)/' prefill_test
mutant "blocks of prefill left out at the end of a thread's" "$source/runtime/prefill.c" 's/middle >= to)/middle >= to - 9000)/' prefill_test
mutant "splits of prefill merged without rescaling" "$kernels/attention.c" 's/partials\[i\]\.max\[r\] - max :/0.0f :/' prefill_test
mutant "sinks in every split of prefill" "$source/runtime/prefill.c" 's/split ? NULL : b\.job/0 ? NULL : b.job/' prefill_test
mutant "norm not corrected" "$kernels/turbo3_d128_append.c" 's/corrected ? tqv_div(norm, decoded)/0 ? decoded/' append_test
mutant "values rounded to the nearest half of a unit, not down" "$kernels/append.h" 's/-0x1.fffp-2f/0.0f/' append_test
mutant "two groups packed in each other's place" "$kernels/gain4_d80_append.c" \
    's/x\[1\] << 4/x[2] << 4/' append_test
mutant "infinities not looked for" "$source/runtime/check.c" 's/bad << 1 ? 0 : n;/n;/' append_test
mutant "pages of K not passed to the kernel" "$source/runtime/launch_gpu.c" 's/\.pages = cache->pages,/.pages = NULL,/'
mutant "softcap of GPUs in natural units" "$source/runtime/launch_gpu.c" 's/tq_score_cap(args->softcap)/args->softcap/'
mutant "every thread launches on GPUs" "$source/runtime/launch_gpu.c" 's/launch->thread_index != 0 || //'
mutant "arrival counters of GPUs not cleared" "$source/runtime/workspace.c" 's/fill(device, workspace, 0,/fill(device, workspace, 1,/'
mutant "context of a plan not made current" "$source/runtime/gpu_driver.c" \
    's/enter(device, found->context, &scope)/enter(device, NULL, \&scope)/'
mutant "code object of a lost context taken for loaded" "$source/runtime/gpu_driver.c" \
    's/ && (\*out)->context_id == context_id//'
mutant "context of another device used" "$source/runtime/device_cuda.c" 's/if (device == state->ordinal)/if (device >= 0)/'
mutant "current HIP device not restored" "$source/runtime/device_hip.c" \
    's/return scope->previous >= 0 ?/return scope->previous > 99 ?/'
mutant "no leave asked for much shared memory" "$source/runtime/device_cuda.c" 's/shared_bytes > 48 \* 1024/shared_bytes < 0/'
mutant "kernel loaded by its first launch" "$source/runtime/device_cuda.c" 's/result\.code || !cuFuncLoad ?/1 ?/'

finish
