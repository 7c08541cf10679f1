#!/usr/bin/env python3
"""Compiles the GPU kernels that gates.tsv names and holds them to its bounds, without a GPU.

For each: the intended wave size, no spills and no scratch memory beyond what its row allows, no scalar spills up to GQA 4,
shared memory within the arch's limit, and instructions per cached value in the hot loop within the row's bound. CUDA
kernels are compiled with clang and ptxas; where nvcc is there, it compiles a sample, and what clang does not do well
enough: the better one counts.

Usage: gates.py BUILD_DIR [--arch ARCH ...] [--all ARCH ...] [--update]
--arch takes rows of these archs alone. --all adds all other kernels that tqgen writes for an arch, which have no bounds and
may not spill; of them only those that do are printed. --update writes what was measured to gates.tsv; bounds stay. Exit
status 77: no tool for any of them is there.

Columns of gates.tsv, tab-separated: kernel; per_value and its bound (- if its loop is not counted); alu (CUDA: of them
those of the integer pipe) and matrix, per value too; registers and shared (dynamic and static bytes) as measured; scratch,
bytes, and spills, registers (CUDA: loads and stores of them), allowed: heads of WIDE values, which no warp has the registers
for, may state how many at most, all others have none. Per value: instructions of a warp times its lanes, on HIP vector
instructions alone (matrix and scalar ones are issued beside them, or counted apart), divided by the cached values of K and V
that they serve; of prefill, for 64 query columns.
"""
import argparse
import collections
import concurrent.futures
import functools
import json
import os
import re
import shutil
import subprocess
import sys

import isa

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TABLE = os.path.join(HERE, "gates.tsv")
SKIPPED = 77

WIDE = 512  # values of a head, from which on a row may allow spills
NVCC_SAMPLE = "_d128_.*gain3.*__sm_90"

Row = collections.namedtuple("Row", "kernel per_value bound alu matrix registers shared scratch spills")
Found = collections.namedtuple("Found", "resources shared values wrong")


def read_table():
    with open(TABLE) as file:
        return [Row(*line.rstrip("\n").split("\t")) for line in file if line.startswith("tq_")]


def row_of(table, name):
    return table.get(name) or Row(name, *["-"] * 6, "0", "0")


def write_table(rows):
    with open(TABLE) as file:
        head = [line for line in file if not line.startswith("tq_")]
    with open(TABLE, "w") as file:
        file.writelines(head)
        file.writelines("\t".join(row) + "\n" for row in rows)


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit("gates: %s failed:\n%s" % (" ".join(command), done.stdout[-8000:]))


def measure_file(path, counted):
    return [(kernel.name, (kernel.resources, isa.count(kernel) if kernel.name in counted else None))
            for kernel in isa.kernels(path)]


def measure(about, table, build):
    """symbol: (resources, kinds of instructions in the hot loop where the table has a row)"""
    counted = {kernel["symbol"] for kernel in about if kernel["name"] in table}
    files = []
    for directory in sorted({kernel["id"] for kernel in about}):
        folder = os.path.join(build, directory)
        files += [os.path.join(folder, file) for file in sorted(os.listdir(folder)) if file.endswith(".bin")]
    with concurrent.futures.ProcessPoolExecutor() as pool:
        return dict(pair for pairs in pool.map(functools.partial(measure_file, counted=counted), files) for pair in pairs)


def per_value(about, kinds):
    """Instructions per cached value: counted, alu, matrix; None if the hot loop is not counted."""
    if not about.get("loop_keys") or not kinds:
        return None
    lanes = about["wave"] / (about["loop_keys"] * 2 * about["head_dim"])
    counted = kinds["all"] if about["vendor"] == "cuda" else kinds["vector"]
    return counted * lanes, kinds["alu"] * lanes, kinds["matrix"] * lanes


def judge(about, row, resources, shared, values):
    """What is wrong with a kernel."""
    checks = [
        (resources["wave"] == about["wave"], "wave size %d, not %d" % (resources["wave"], about["wave"])),
        (resources["spills"] <= int(row.spills), "%d spills, %s are allowed" % (resources["spills"], row.spills)),
        (resources["scratch"] <= int(row.scratch), "%d bytes of scratch, %s are allowed" % (resources["scratch"], row.scratch)),
        (about["head_dim"] >= WIDE or row.scratch == row.spills == "0", "only heads of %d values may spill" % WIDE),
        (about["gqa"] > 4 or not resources.get("scalar_spills"), "%d scalar spills" % resources.get("scalar_spills", 0)),
        (shared <= about["shared_limit"], "%d bytes of shared memory, %d are allowed" % (shared, about["shared_limit"])),
    ]
    if row.bound != "-":
        checks.append((values and values[0] <= float(row.bound),
                       "%.3f instructions per value" % values[0] if values else "no loop found"))
    return [text for fine, text in checks if not fine]


def try_compiler(compiler, about, table, build, best):
    """Compiles kernels, and keeps in best, name: Found, what is better than what is there."""
    source, out = os.path.join(build, "source_" + compiler), os.path.join(build, compiler)
    run("lua5.4", os.path.join(HERE, "gates.lua"), source, *(kernel["name"] for kernel in about))
    run("cmake", "-S", source, "-B", out, "-DTQ_WERROR=ON", "-DTQ_CUDA_COMPILER=" + compiler,
        *(["-G", "Ninja"] if shutil.which("ninja") else []))
    run("cmake", "--build", out, "--parallel", str(os.cpu_count()))
    measured = measure(about, table, out)
    for kernel in about:
        if kernel["symbol"] not in measured:
            found = Found({}, 0, None, ["in no code object"])
        else:
            resources, kinds = measured[kernel["symbol"]]
            values, shared = per_value(kernel, kinds), resources["shared"] + kernel["shared_bytes"]
            found = Found(resources, shared, values, judge(kernel, row_of(table, kernel["name"]), resources, shared, values))
        old = best.get(kernel["name"])
        if not old or (len(found.wrong), found.values or ()) < (len(old.wrong), old.values or ()):
            best[kernel["name"]] = found


def left_out(vendor):
    """Why kernels of this vendor cannot be compiled or read here; None if they can."""
    clang = any(shutil.which("clang-%d" % version) for version in (22, 21, 20))
    try:
        if vendor == "cuda":
            isa.nvdisasm()
            if shutil.which("nvcc") or clang and shutil.which("ptxas"):
                return None
            return "neither nvcc, nor clang-22 and ptxas"
        isa.llvm("llvm-objdump")
        isa.llvm("llvm-readelf")
        return None if clang else "no clang-22"
    except isa.ToolMissing as missing:
        return str(missing)


def main():
    parser = argparse.ArgumentParser(usage="gates.py BUILD_DIR [--arch ARCH ...] [--all ARCH ...] [--update]")
    parser.add_argument("build")
    parser.add_argument("--arch", nargs="*", default=[])
    parser.add_argument("--all", nargs="*", default=[])
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()

    build = os.path.abspath(args.build)
    source = os.path.join(build, "all")
    table = {row.kernel: row for row in read_table()}
    named = [name for name in table if not args.arch or any("__%s_" % arch in name for arch in args.arch)]
    selection = named + ["all:" + arch for arch in args.all]
    run("lua5.4", os.path.join(HERE, "gates.lua"), source, *selection)
    with open(os.path.join(source, "gates.json")) as file:
        about = json.load(file)

    reasons = {vendor: left_out(vendor) for vendor in sorted({kernel["vendor"] for kernel in about})}
    for vendor, reason in reasons.items():
        if reason:
            print("gates: %d %s kernels left out: %s" % (
                sum(kernel["vendor"] == vendor for kernel in about), vendor.upper(), reason))
    about = [kernel for kernel in about if not reasons[kernel["vendor"]]]
    if not about:
        return SKIPPED

    has_clang = shutil.which("ptxas") and any(shutil.which("clang-%d" % version) for version in (22, 21, 20))
    best = {}
    try_compiler("clang" if has_clang else "nvcc", about, table, build, best)
    if has_clang and shutil.which("nvcc"):
        again = [kernel for kernel in about if kernel["vendor"] == "cuda" and (
            best[kernel["name"]].wrong or kernel["name"] in table and re.search(NVCC_SAMPLE, kernel["name"]))]
        if again:
            try_compiler("nvcc", again, table, build, best)

    failures, updated = 0, dict(table)
    for kernel in about:
        found = best[kernel["name"]]
        text, alu, matrix = ("%.3f" % x if x else "-" for x in found.values or (None, None, None))
        row = row_of(table, kernel["name"])._replace(per_value=text, alu=alu, matrix=matrix, shared=str(found.shared),
                                                     registers=str(found.resources.get("registers", "-")))
        failures += bool(found.wrong)
        if row.kernel in table:
            updated[row.kernel] = row
        elif not found.wrong:
            continue
        print("%s  %-88s %6s (%s) %4s registers %6s shared  %s" % (
            "not ok" if found.wrong else "ok    ", row.kernel, text, row.bound, row.registers, row.shared,
            "; ".join(found.wrong)))
    if args.update:
        write_table(list(updated.values()))
    print("gates: %d kernels, %d failed" % (len(about), failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
