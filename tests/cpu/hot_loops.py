#!/usr/bin/env python3
"""Do the hot loops of CPU kernels stay in registers? Compiles K and V stages and reads the machine code.

Hot is an innermost loop (no other backward jump in it) that multiplies, of a function named score... or accumulate... or one of
those that compilers leave of prefill. In it count
  loads, stores   operands relative to the stack pointer, or to the frame pointer where the function has one: spilled
                  registers and loop invariants that found none. With an index register it is an array, which is fine, as is
                  one through any other register: the prepared q, weights, words laid out again.
  split           vpmaddwd where AVX-512 has vpdpwssd, which adds too; some compilers split it
Each may be what hot_loops.tsv, tab-separated, says of a compiler, arch, and function; of what has no row, 0. A function
without any hot loop fails too: then this no longer sees what it should.

Usage: hot_loops.py BUILD_DIR [--compiler CC ...] [--update] [--all]
--update writes what was measured, of the compilers that are here, to hot_loops.tsv. --all prints every function's loops.
Exit status 77: no compiler of the table is here; those skipped are counted.
"""
import argparse
import collections
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TABLE = os.path.join(HERE, "hot_loops.tsv")
SKIPPED = 77

KNOWN = ("gcc-12", "clang-14", "clang-22")  # what the table is about
ARCHS = {"avx512": "avx512", "x86_64_v3": "x86-64-v3"}
SELECTION = ["--head-dim", "128", "--gqa", "1,4,8"]

HOT_FUNCTION = re.compile(r"score|accumulate|multiply|take_keys|tqk_prefill__")
MULTIPLY = re.compile(r"vpdp|vpmadd|vfn?madd")
HEADER = re.compile(r"^[0-9a-f]+ <(.+)>:$")
INSTRUCTION = re.compile(r"^ +([0-9a-f]+):\t(?:\{\w+\} )?(\S+)\s*(.*?)(?:\s+[#<].*)?$")
STACK = re.compile(r"-?(?:0x[0-9a-f]+)?\(%(rsp|rbp)\)")

Instruction = collections.namedtuple("Instruction", "address name operands")
Counts = collections.namedtuple("Counts", "loads stores split")
NONE = Counts(0, 0, 0)


# ---- machine code ----------------------------------------------------------------------------------------------------

def functions(text):
    """name: instructions, of what objdump printed."""
    found, current = {}, None
    for line in text.splitlines():
        header = HEADER.match(line)
        if header:
            current = found.setdefault(header[1], [])
            continue
        one = INSTRUCTION.match(line)
        if one:
            current.append(Instruction(int(one[1], 16), one[2], one[3]))
    return found


def innermost_loops(code):
    """Instructions of the loops, as intervals from the target of a backward jump to the last jump to it."""
    last = {}
    for one in code:
        if one.name.startswith("j") and re.fullmatch(r"[0-9a-f]+", one.operands):
            target = int(one.operands, 16)
            if code[0].address <= target <= one.address:
                last[target] = max(one.address, last.get(target, 0))
    for first, end in last.items():
        if not any(first < other and last[other] <= end for other in last):
            yield [one for one in code if first <= one.address <= end]


def count(loop, has_frame, has_dpwssd):
    loads = stores = split = 0
    for one in loop:
        stack = STACK.search(one.operands)
        if stack and one.name != "lea" and (stack[1] == "rsp" or has_frame):
            if one.operands.endswith(stack[0]) and not re.match(r"cmp|test|vptest|vucomi|vcomi|prefetch", one.name):
                stores += 1
            else:
                loads += 1
        split += has_dpwssd and one.name == "vpmaddwd"
    return Counts(loads, stores, split)


def measure(path, arch):
    """function: Counts of its hot loops together, None where there is none; of an object file."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], check=True, capture_output=True, text=True).stdout
    return measure_text(text, arch)


def measure_text(text, arch):
    found = {}
    for name, code in functions(text).items():
        if HOT_FUNCTION.match(name) and ".cold" not in name:
            has_frame = any(one.name == "mov" and one.operands == "%rsp,%rbp" for one in code)
            loops = [loop for loop in innermost_loops(code) if any(MULTIPLY.match(one.name) for one in loop)]
            counts = [count(loop, has_frame, arch == "avx512") for loop in loops]
            found[name] = Counts(*map(sum, zip(*counts))) if counts else None
    return found


# ---- compilers -------------------------------------------------------------------------------------------------------

def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit("hot_loops: %s failed:\n%s" % (" ".join(command), done.stdout[-8000:]))
    return done.stdout


def compiler_name(compiler):
    """gcc-12, clang-22"""
    version = run(compiler, "-dumpversion").split(".")[0].strip()
    return "%s-%s" % ("clang" if "clang" in run(compiler, "--version") else "gcc", version)


def measure_compiler(compiler, source, out):
    """(arch, file function): Counts."""
    work = []
    for arch in ARCHS:
        for path in sorted(glob.glob(os.path.join(source, arch, "*_d*.c")) + [os.path.join(source, arch, "attention.c")]):
            stem = os.path.basename(path)[:-len(".c")]
            if not stem.endswith("_append"):
                work.append((arch, stem, "CMakeFiles/tq_kernels_%s.dir/%s/%s.c.o" % (arch, arch, stem)))
    objects = [path for _, _, path in work]
    ninja = ["-G", "Ninja"] if shutil.which("ninja") else []
    run("cmake", "-S", source, "-B", out, "-DCMAKE_C_COMPILER=" + compiler, *ninja)
    run("cmake", "--build", out, "--parallel", str(os.cpu_count()), *(["--target", *objects] if ninja else []))
    found = {}
    with concurrent.futures.ProcessPoolExecutor() as pool:
        paths, archs = [os.path.join(out, path) for path in objects], [arch for arch, _, _ in work]
        for (arch, stem, _), counts in zip(work, pool.map(measure, paths, archs)):
            for name, of in counts.items():
                found[ARCHS[arch], "%s %s" % (stem, name)] = of
    return found


# ---- the table -------------------------------------------------------------------------------------------------------

def read_table():
    """compiler: {(arch, function): Counts}"""
    rows = collections.defaultdict(dict)
    with open(TABLE) as file:
        for line in file:
            if not line.startswith("#"):
                compiler, arch, function, *numbers = line.rstrip("\n").split("\t")
                rows[compiler][arch, function] = Counts(*map(int, numbers))
    return rows


def write_table(rows):
    with open(TABLE) as file:
        head = [line for line in file if line.startswith("#")]
    with open(TABLE, "w") as file:
        file.writelines(head)
        for compiler in sorted(rows):
            for (arch, function), counts in sorted(rows[compiler].items()):
                file.write("\t".join([compiler, arch, function, *map(str, counts)]) + "\n")


def judge(found, allowed):
    """Prints exceptions and faults; the number of faults."""
    faults = 0
    for key, counts in sorted(found.items()):
        most = allowed.get(key, NONE)
        wrong = counts is None or any(a > b for a, b in zip(counts, most))
        if wrong or counts != NONE:
            text = "no hot loop" if counts is None else "%d loads, %d stores, %d split" % counts
            print("%-6s %-11s %-32s %s; allowed %d, %d, %d" % ("FAIL" if wrong else "known", *key, text, *most))
        faults += wrong
    return faults


def main():
    parser = argparse.ArgumentParser(usage="hot_loops.py BUILD_DIR [--compiler CC ...] [--update] [--all]")
    parser.add_argument("build")
    parser.add_argument("--compiler", nargs="*", default=["gcc", "clang", "clang-22"])
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--all", action="store_true")
    args = parser.parse_args()

    build = os.path.abspath(args.build)
    source = os.path.join(build, "source")
    rows, faults, checked, missing = read_table(), 0, 0, []
    run("lua5.4", os.path.join(ROOT, "gen", "tqgen"), "--arch", ",".join(ARCHS.values()), *SELECTION, "-o", source)
    for compiler in args.compiler:
        name = compiler_name(compiler) if shutil.which(compiler) else None
        if name not in KNOWN:
            missing.append("%s (%s)" % (compiler, name + ": the table is about %s" % ", ".join(KNOWN) if name else "missing"))
            continue
        found = measure_compiler(compiler, source, os.path.join(build, name))
        print("== %s: %d functions" % (name, len(found)))
        if args.all:
            for key, counts in sorted(found.items()):
                print("%-11s %-32s %s" % (*key, counts))
        if args.update:
            rows[name] = {key: counts for key, counts in found.items() if counts and counts != NONE}
        faults += judge(found, rows[name])
        checked += len(found)
    if args.update:
        write_table(rows)
    print("%d functions checked, %d faults, %d compilers skipped%s" % (checked, faults, len(missing),
                                                                      "".join("; " + text for text in missing)))
    return 1 if faults else 0 if checked else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
