# shellcheck shell=sh
# mutants_lib.sh: breaks one thing at a time in copies of kernels and runtime and expects a test to fail; sourced by
# mutants.sh and gpu_mutants.sh. A mutation that changes no text is an error of the script: mend its pattern.

project=$(cd "$(dirname "$0")/.." && pwd)
work=${1:-$(mktemp -d)}
source=$work/source # of what is broken; kernels in generated/

# setup TESTS ARGUMENTS...: a copy of the project with the kernels that tqgen makes of the arguments, in which the TESTS pass.
setup() {
    tests=$1
    shift
    mkdir -p "$work"
    rm -rf "$source"
    mkdir "$source"
    cp -r "$project/CMakeLists.txt" "$project/runtime" "$project/reference" "$project/tuning" "$project/tests" "$source"
    ln -s "$project/gen" "$project/templates" "$source"
    lua5.4 "$project/gen/tqgen" "$@" -o "$source/generated" >"$work/log"
    cmake -S "$source" -B "$work/build" -G Ninja -DTQ_GENERATED_DIR="$source/generated" \
        -DCMAKE_C_FLAGS_RELEASE=-O2 >>"$work/log" # without debug information builds are faster
    caught=$(first_failure)
    if [ -n "$caught" ]; then
        cat "$work/log"
        echo "mutants: the tests fail before anything is broken" >&2
        exit 1
    fi
    rm -rf "$work/whole"
    cp -a "$work/build" "$work/whole"
}

# Name of the first test that fails; nothing if all pass. Each is built when its turn comes: most mutants fail the first.
first_failure() { # tests to begin with
    for test in "$@" $tests; do
        cmake --build "$work/build" --target "$test" >"$work/log" 2>&1 || {
            cat "$work/log" >&2
            exit 1
        }
        "$work/build/$test" >"$work/log" 2>&1 || {
            echo "$test"
            return
        }
    done
}

mutants=0
missed=0
mutant() { # what it breaks, file, sed expression; the test that should notice, to save time
    cp -p "$2" "$work/original"
    sed -i "$3" "$2"
    if cmp -s "$2" "$work/original"; then
        echo "mutants: '$1': $3 changes nothing in $2" >&2
        exit 2
    fi
    caught=$(first_failure ${4:+"$4"})
    cp -p "$work/original" "$2"
    rm -rf "$work/build" # else what was mended is built again
    cp -a "$work/whole" "$work/build"
    mutants=$((mutants + 1))
    [ -n "$caught" ] || missed=$((missed + 1))
    printf '%-56s %s\n' "$1" "${caught:-NOT CAUGHT}"
}

finish() {
    echo "caught $((mutants - missed)) of $mutants mutants"
    [ "$missed" -eq 0 ]
}
