#!/bin/sh
# What to do first on a machine with a GPU: measures what the kernels' design assumes of the card, checks every variant
# against the reference, tunes three shapes, compares decode with f16 over the depth of the cache, and writes
#   tuning/devices/<device>.tsv            the tuning file
#   tuning/devices/<device>/report.md      with pictures, and the tables that it was made of
# Usage: tests/gpu/first_run.sh [--device NAME] [--minutes N] [--output DIR] [--kernels DIR]
#   --device   one that the drivers offer (the first), or simt:32, simt:64 to try the script itself
#   --minutes  in all, building included (8)
#   --output   another directory for everything
#   --kernels  where code objects lie that were made elsewhere (tests/gpu/kernels, which has some architectures'); taken if
#              they cannot be made here, and only if they were made from the sources that are here
# Needs a C compiler and the card's driver; to make code objects also lua5.4 with its modules, cmake, and nvcc or clang. On a
# machine that has those, with a card or without:
#        tests/gpu/first_run.sh --make-kernels DIR ARCH...
# Ends with 0 if all went well, 1 if a kernel was wrong or did not build, 77 if there is no GPU.
set -eu
cd "$(dirname "$0")/../.."

started=$(date +%s)
device= minutes=8 output= kernels=tests/gpu/kernels make_kernels=
while [ $# -gt 0 ]; do
    case $1 in
    --device) device=$2 && shift ;;
    --minutes) minutes=$2 && shift ;;
    --output) output=$2 && shift ;;
    --kernels) kernels=$2 && shift ;;
    --make-kernels) make_kernels=$2 && shift && shift && break ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
    esac
    shift
done

work=build/first_run
jobs=$(getconf _NPROCESSORS_ONLN)
cc=${CC:-cc}
mkdir -p $work

# ---- kernels --------------------------------------------------------------------------------------------------------

can_generate() {
    lua5.4 gen/tqgen list --set first-run --arch "$1" >/dev/null 2>&1
}

# generate ARCH DIR: sources, and micro.c with the architecture's vocabulary before it.
generate() {
    lua5.4 gen/tqgen --set first-run --arch "$1" -o "$2" >/dev/null
    id=$(basename "$(dirname "$(ls "$2"/*/registry.c)")")
    for first in "$2/$id"/append_*; do break; done
    {
        sed '/#include "vocabulary.h"/q' "$first"
        cat tests/gpu/micro.c
    } >"$2/$id/micro.${first##*.}"
    cp tests/gpu/micro.h "$2/"
}

# What code objects depend on.
fingerprint() {
    find gen templates/gpu templates/target/cuda.h templates/target/hip.h runtime/tq_kernel.h runtime/tq_gpu.h \
        tests/gpu/micro.c tests/gpu/micro.h -type f | LC_ALL=C sort | xargs cat | sha256sum | cut -c 1-16
}

# compile_kernels ARCH DIR: code objects, and what embeds them, without which a compiler for GPUs is needed no more.
compile_kernels() {
    rm -rf "$2" "$work/$1"
    generate "$1" "$work/$1"
    case $1 in sm_*) vendor=cuda ;; *) vendor=hip ;; esac
    micro=$(basename "$(ls "$work/$1/$id"/micro.*)")
    cat >>"$work/$1/CMakeLists.txt" <<EOF
tq_code_objects($vendor $1 $id $micro)
add_custom_target(micro ALL DEPENDS "\${CMAKE_CURRENT_BINARY_DIR}/$id/micro.bin")
EOF
    cmake -S "$work/$1" -B "$work/$1/build" >"$work/$1.log" 2>&1 &&
        cmake --build "$work/$1/build" -j "$jobs" >>"$work/$1.log" 2>&1 || return 1
    mkdir -p "$2"
    cp "$work/$1"/tq_*.h "$work/$1/builtin.c" "$work/$1/$id/registry.c" "$work/$1/$id/modules.c" \
        "$work/$1/build/$id"/*.bin "$2/"
    fingerprint >"$2/fingerprint"
}

# unpack_kernels ARCH DIR: those that were made elsewhere.
unpack_kernels() {
    [ -f "$kernels/$1.tar.xz" ] || return 1
    rm -rf "$2"
    mkdir -p "$(dirname "$2")"
    tar -C "$(dirname "$2")" -xJf "$kernels/$1.tar.xz" || return 1
    [ "$(cat "$2/fingerprint")" = "$(fingerprint)" ] || {
        echo "first_run: $kernels/$1.tar.xz was made from other sources than these; make it anew with --make-kernels"
        return 1
    }
}

if [ -n "$make_kernels" ]; then
    mkdir -p "$make_kernels"
    for arch in "$@"; do
        compile_kernels "$arch" "$work/made/$arch" || {
            cat "$work/$arch.log"
            exit 1
        }
        tar -C $work/made --sort=name --owner=0 --group=0 --mtime=@0 -cJf "$make_kernels/$arch.tar.xz" "$arch"
        echo "$make_kernels/$arch.tar.xz: $(du -sk "$make_kernels/$arch.tar.xz" | cut -f 1) KiB"
    done
    exit 0
fi

# ---- the program ----------------------------------------------------------------------------------------------------

flags="-std=gnu11 -O2 -D_GNU_SOURCE -Iruntime -Iruntime/include -Ireference -Ituning -Itests/gpu"

# compile DIR FLAGS FILE...: objects into DIR, several at a time.
compile() {
    into=$1 with=$2
    shift 2
    mkdir -p "$into"
    for file in "$@"; do
        echo "$file"
    done | xargs -P "$jobs" -I FILE sh -c '
        '"$cc $with"' -c FILE -o '"$into"'/$(echo FILE | tr / _).o' || exit 1
}

link() {
    $cc -o "$1" $work/objects/*.o "$2"/*.o -lm -ldl -lpthread
}

rm -rf $work/objects $work/none $work/target
compile $work/objects "$flags" runtime/*.c runtime/simt/*.c reference/*.c tests/gpu/first_run*.c tuning/cli.c \
    tuning/contract.c tuning/harness.c tuning/machine.c tuning/memory.c tuning/multiply.c tuning/pool.c tuning/ring.c \
    tuning/stats.c tuning/trial.c tuning/verify.c
mkdir -p $work/none
cat >$work/none.c <<EOF
#include "tq_kernel.h"
const tq_registry *const tq_builtin_registries[] = {NULL};
const int tq_n_builtin_registries = 0;
EOF
compile $work/none "$flags" $work/none.c
link $work/find $work/none

# ---- the device -----------------------------------------------------------------------------------------------------

case $device in
simt:32) features=simt-sm_90 ;;
simt:64) features=simt-gfx942 ;;
*)
    $work/find find >$work/devices || {
        echo "first_run: there is no GPU that a driver offers here; nothing to measure"
        exit 77
    }
    cat $work/devices
    line=$(awk -F '\t' -v name="$device" 'name == "" || $1 == name { print; exit }' $work/devices)
    [ -n "$line" ] || {
        echo "first_run: there is no device '$device' here"
        exit 77
    }
    device=$(echo "$line" | cut -f 1)
    features=$(echo "$line" | cut -f 2)
    ;;
esac

# The first architecture of which the device runs code and there is some.
arch= made=
for arch in $features; do
    case $arch in
    simt-*)
        generate "$arch" "$work/$arch"
        compile $work/target "$flags -O1 -I$work/$arch" "$work/$arch/builtin.c" "$work/$arch/$id"/*.c
        made="generated for $arch" && break
        ;;
    esac
    objects=$work/kernels/$arch
    if can_generate "$arch" && command -v cmake >/dev/null && compile_kernels "$arch" "$objects"; then
        made="code objects for $arch, compiled here"
    elif unpack_kernels "$arch" "$objects"; then
        made="code objects for $arch, compiled elsewhere"
    else
        continue
    fi
    compile $work/target "$flags -I$objects -DTQ_MODULES=\\\"$objects\\\"" "$objects"/*.c
    break
done
[ -n "$made" ] || {
    echo "first_run: no code objects for $features: none under $kernels, and they cannot be made here"
    [ -f "$work/${features%% *}.log" ] && tail -n 5 "$work/${features%% *}.log"
    exit 1
}
link $work/first_run $work/target
micro=
[ -f "${objects:-}/micro.bin" ] && micro=$objects/micro.bin

# ---- phases ---------------------------------------------------------------------------------------------------------

slug=$($work/first_run name "$device")
results=${output:-tuning/devices/$slug}
rm -rf "$results"
mkdir -p "$results"
built=$(($(date +%s) - started))
{
    printf 'what\ttext\n'
    printf 'date\t%s\n' "$(date -u +%Y-%m-%dT%H:%MZ)"
    printf 'kernels\t%s\n' "$made"
    printf 'compiler\t%s\n' "$($cc --version | head -n 1)"
    printf 'source\t%s\n' "$(git describe --always --dirty 2>/dev/null || echo unknown)"
    printf 'building took\t%d s\n' "$built"
} >"$results/notes.tsv"

# phase NAME SHARE: of the time that is left.
phase() {
    left=$((started + minutes * 60 - $(date +%s)))
    [ $left -gt 5 ] || left=5
    seconds=$((left * $2 / 100))
    printf '== %s, %d s at most\n' "$1" "$seconds"
    before=$(date +%s)
    $work/first_run "$1" "$device" "$results" "$seconds" "$micro" || {
        echo "first_run: $1 failed"
        failed=1
    }
    printf '%s took\t%d s\n' "$1" $(($(date +%s) - before)) >>"$results/notes.tsv"
}
failed=0
phase micro 10
phase verify 40
phase tune 50
phase depth 90
phase report 100

if [ -z "$output" ] && [ -f "$results/$slug.tsv" ]; then
    mv "$results/$slug.tsv" "tuning/devices/$slug.tsv"
fi
awk -F '\t' 'NR > 1 && !($2 <= 1) { wrong = 1 } END { exit wrong }' "$results/verify.tsv" || failed=1
exit $failed
