#!/bin/sh
# Builds everything and runs all tests: under address, undefined-behaviour and thread sanitizers and with clang on a sample
# of the variants, then all variants as users build them. Usage: ./test.sh    (Debian 12 or later)
# Installs what is missing (root or sudo); build trees are kept in build/; ends with ctest's own summary.
set -eu
cd "$(dirname "$0")"

sh scripts/setup.sh gcc libc6-dev clang clang-format cmake ninja-build lua5.4 lua-argparse lua-dkjson lua-filesystem \
    lua-check lua-busted libcmocka-dev libcjson-dev gnuplot-nox python3
if [ "$(uname -m)" = x86_64 ]; then # what reads machine code there, and runs that of other machines
    sh scripts/setup.sh binutils valgrind gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
fi
sh scripts/gpu_tools.sh

jobs=$(nproc)
for preset in asan tsan clang default; do
    printf '\n== %s: build and test\n' "$preset"
    { cmake --preset "$preset" && cmake --build --preset "$preset"; } >build.log 2>&1 || {
        tail -n 200 build.log
        exit 1
    }
    tail -n 1 build.log
    rm build.log
    ctest --preset "$preset" -j "$jobs"
done
