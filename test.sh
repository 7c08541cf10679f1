#!/bin/sh
# Builds everything and runs all tests, sanitizers included. Usage: ./test.sh    (Debian 12 or later)
# Installs what is missing (root or sudo); ends with ctest's own summary.
set -eu
cd "$(dirname "$0")"

sh scripts/setup.sh gcc libc6-dev clang clang-format cmake ninja-build lua5.4 lua-argparse lua-dkjson lua-filesystem \
    lua-check lua-busted libcmocka-dev libcjson-dev gnuplot-nox python3

cmake --preset test
cmake --build --preset test
ctest --preset test
