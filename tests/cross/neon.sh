#!/bin/sh
# The kernels for 64-bit Arm on another machine: builds a sample of them with a cross compiler and runs their tests in an
# emulator. Linked statically, since threads of dynamically linked programs may hang there, and with the cmocka.h beside this
# file. Usage: neon.sh BUILD_DIR    Exit status 77: compiler or emulator is missing.
set -eu
cd "$(dirname "$0")/../.."
build=$1
tests="append_test append_quality_test dequantise_test prefill_test variants_test"

for tool in aarch64-linux-gnu-gcc qemu-aarch64 ninja; do
    if ! command -v $tool >/dev/null; then
        echo "$(echo "$tests" | wc -w) programs skipped ($tests): no $tool (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user ninja-build)"
        exit 77
    fi
done

mkdir -p "$build"
{
    lua5.4 gen/tqgen --set sample --arch armv8.2-a -o "$build/generated"
    cmake -S . -B "$build" -G Ninja -DTQ_GENERATED_DIR="$build/generated" -DTQ_WERROR=ON \
        -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc \
        -DCMAKE_C_FLAGS=-DSLOW=1 -DCMAKE_EXE_LINKER_FLAGS=-static -DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64 \
        -DCMOCKA_INCLUDE="$PWD/tests/cross" -DCMOCKA_LIBRARY=m \
        -DCJSON_INCLUDE=/usr/include -DCJSON_LIBRARY=m # of the command, which is not built
    # shellcheck disable=SC2086 # one word per target
    cmake --build "$build" --target $tests
} >"$build/log" 2>&1 || {
    tail -n 200 "$build/log"
    exit 1
}
ctest --test-dir "$build" --output-on-failure -j "$(nproc)" -R "^($(echo "$tests" | tr ' ' '|'))\$"
