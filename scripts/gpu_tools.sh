#!/bin/sh
# Installs what compiles and reads GPU kernels on a machine without a GPU, as far as it can be had; called by test.sh. The
# CUDA Toolkit is used where it is. What stays missing, the tests that want it name.
#   Debian: clang-22 lld-22 llvm-22
#   PyPI:   nvidia-cuda-nvdisasm, into build/tools
set -eu
cd "$(dirname "$0")/.."

sh scripts/setup.sh clang-22 lld-22 llvm-22 || echo "gpu_tools: without clang-22"

nvdisasm=build/tools/nvidia/cu13/bin/nvdisasm
if ! command -v nvdisasm >/dev/null && [ ! -x "$nvdisasm" ]; then
    python3 -m pip --version >/dev/null 2>&1 || sh scripts/setup.sh python3-pip || true
    if python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target build/tools \
        nvidia-cuda-nvdisasm==13.5.37; then
        chmod +x "$nvdisasm"
    else
        echo "gpu_tools: without nvdisasm"
    fi
fi
