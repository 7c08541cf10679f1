#!/bin/sh
# The whole stream on this machine, from a clone alone: generate, build, tune one shape, compare, measure, evaluate.
# Usage: ./quickstart.sh    (Debian 12 or later; root or sudo only where packages are missing)
# Leaves the tq command in build/, its plots and tables in build/report/.
set -eu
cd "$(dirname "$0")"
started=$(date +%s)

say() {
    printf '\n== %s\n' "$*"
}

say "packages"
sh scripts/setup.sh gcc libc6-dev cmake ninja-build lua5.4 lua-argparse lua-dkjson lua-filesystem libcjson-dev gnuplot-nox
echo "all there"

say "generate and build (build/)"
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DTQ_TESTS=OFF >build.log 2>&1 || {
    cat build.log
    exit 1
}
grep -E '^[0-9]+ variants' build.log || true
rm build.log
cmake --build build --target tq

report=build/report
shape="--head-dim 128 --gqa 4"
mkdir -p "$report"

say "this machine"
build/tq info

say "tune one shape: verify every candidate against the reference, then time it"
build/tq tune --op decode $shape --k turbo4 --v turbo4 --budget 15 -o build/tuning.tsv
export TQ_TUNING=build/tuning.tsv

say "the plan that follows from it"
build/tq plan --op decode $shape --k turbo4 --v turbo4

say "A/B of the two tile sizes, paired and in random order"
best=tq_decode_d128_g4_kturbo4_vturbo4_rows__$(build/tq plan --op decode $shape --k turbo4 --v turbo4 --json |
    sed -n 's/.*"variant":[^"]*"[^"]*__\([a-z0-9_]*\)_t[0-9]*".*/\1/p' | head -n 1)
build/tq ab "${best}_t128" "${best}_t64" --n-kv 16384

say "decode against f16, and against this machine's limits"
build/tq bench --op decode $shape --k f16,q8_0,turbo4,turbo3,gain4,gain3 --n-kv 16384 --plot "$report/decode.svg"

say "append"
build/tq bench --op append --head-dim 128 --k turbo4,turbo3,gain4,gain3

say "every format on real tensors (one layer of SmolLM2-135M)"
build/tq eval --q tests/kv/smollm2-135m.layer10.q.npy --k tests/kv/smollm2-135m.layer10.k.npy \
    --v tests/kv/smollm2-135m.layer10.v.npy --plot "$report/quality.svg"

say "done in $(($(date +%s) - started)) s; plots are in $report/"
ls "$report"
