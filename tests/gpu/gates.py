#!/usr/bin/env python3
"""Compiles the GPU kernels that gates.tsv names and holds them to its bounds, without a GPU.

For each: the intended wave size, no spills, no scratch memory beyond what its row allows, no scalar spills up to GQA 4,
shared memory within the arch's limit, and instructions per cached value in the hot loop within the row's bound. CUDA
kernels are compiled with clang and ptxas, and with nvcc too where rows have a bound and nvcc is there: the better count.

Usage: gates.py BUILD_DIR [--arch ARCH ...] [--update]
--update writes what was measured to gates.tsv; bounds stay. Exit status 77: no tool for any of them is there.

Columns of gates.tsv, tab-separated: kernel; per_value and its bound (- if its loop is not counted); alu (CUDA: of them
those of the integer pipe) and matrix, per value too; registers and shared (dynamic and static bytes) as measured; scratch
allowed, bytes. Per value: instructions of a warp times its lanes, on HIP vector instructions alone (matrix and scalar ones
are issued beside them, or counted apart), divided by the cached values of K and V that they serve.
"""
import argparse
import collections
import json
import os
import shutil
import subprocess
import sys

import isa

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TABLE = os.path.join(HERE, "gates.tsv")
SKIPPED = 77

Row = collections.namedtuple("Row", "kernel per_value bound alu matrix registers shared scratch")


def read_table():
    with open(TABLE) as file:
        return [Row(*line.rstrip("\n").split("\t")) for line in file if line.startswith("tq_")]


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


def compile_with(compiler, source, build, selection):
    """Builds what gates.lua writes; object files of an arch then lie in build/<id>/."""
    run("lua5.4", os.path.join(HERE, "gates.lua"), source, *selection)
    run("cmake", "-S", source, "-B", build, "-DTQ_WERROR=ON", "-DTQ_CUDA_COMPILER=" + compiler,
        *(["-G", "Ninja"] if shutil.which("ninja") else []))
    run("cmake", "--build", build, "--parallel", str(os.cpu_count()))


def measure(about, build):
    """symbol: (resources, kinds of instructions in the hot loop)"""
    found = {}
    for directory in sorted({kernel["id"] for kernel in about}):
        folder = os.path.join(build, directory)
        for file in sorted(os.listdir(folder)):
            if file.endswith(".bin"):
                for kernel in isa.kernels(os.path.join(folder, file)):
                    found[kernel.name] = (kernel.resources, isa.count(kernel))
    return found


def per_value(about, kinds):
    """Instructions per cached value: counted, alu, matrix; None if the hot loop is not counted."""
    if not about.get("loop_keys") or not kinds:
        return None
    lanes = about["wave"] / (about["loop_keys"] * 2 * about["head_dim"])
    counted = kinds["all"] if about["vendor"] == "cuda" else kinds["vector"]
    return counted * lanes, kinds["alu"] * lanes, kinds["matrix"] * lanes


def judge(about, row, resources, value):
    """What is wrong with a kernel, a line each."""
    shared = resources["shared"] + about["shared_bytes"]
    checks = [
        (resources["wave"] == about["wave"], "wave size %d, not %d" % (resources["wave"], about["wave"])),
        (resources["spills"] == 0, "%d spills" % resources["spills"]),
        (resources["scratch"] <= int(row.scratch), "%d bytes of scratch" % resources["scratch"]),
        (about["gqa"] > 4 or not resources.get("scalar_spills"), "%d scalar spills" % resources.get("scalar_spills", 0)),
        (shared <= about["shared_limit"], "%d bytes of shared memory, %d are allowed" % (shared, about["shared_limit"])),
    ]
    if row.bound != "-":
        checks.append((value is not None and value <= float(row.bound),
                       "no loop found" if value is None else "%.3f instructions per value, bound %s" % (value, row.bound)))
    return [text for fine, text in checks if not fine]


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
    parser = argparse.ArgumentParser(usage="gates.py BUILD_DIR [--arch ARCH ...] [--update]")
    parser.add_argument("build")
    parser.add_argument("--arch", nargs="*", default=[])
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()

    rows = {row.kernel: row for row in read_table()}
    build = os.path.abspath(args.build)
    source = os.path.join(build, "all")
    run("lua5.4", os.path.join(HERE, "gates.lua"), source, *args.arch)
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
    runs = [("clang" if has_clang else "nvcc", sorted({kernel["arch"] for kernel in about}))]
    bounded = sorted({kernel["arch"] for kernel in about
                      if kernel["vendor"] == "cuda" and rows[kernel["name"]].bound != "-"})
    if has_clang and bounded and shutil.which("nvcc"):
        runs.append(("nvcc", ["--bounded"] + bounded))
    measured = {}
    for compiler, selection in runs:
        out = os.path.join(build, compiler)
        compile_with(compiler, os.path.join(build, "source_" + compiler), out, selection)
        measured[compiler] = measure([kernel for kernel in about if kernel["arch"] in selection], out)

    failures, updated = 0, dict(rows)
    for kernel in about:
        row = rows[kernel["name"]]
        best = None
        for compiler, found in measured.items():
            if kernel["symbol"] not in found:
                continue
            resources, kinds = found[kernel["symbol"]]
            values = per_value(kernel, kinds)
            value = values and values[0]
            wrong = judge(kernel, row, resources, value)
            if best is None or (len(wrong), value or 0) < (len(best[3]), best[2] or 0):
                best = (compiler, resources, value, wrong, values)
        if best is None:
            print("not ok  %s: not in any code object" % kernel["name"])
            failures += 1
            continue
        compiler, resources, value, wrong, values = best
        shared = resources["shared"] + kernel["shared_bytes"]
        text, alu, matrix = ("%.3f" % x if x else "-" for x in values or (None, None, None))
        print("%s  %-88s %6s (%s) %4d registers %6d shared  %s" % (
            "not ok" if wrong else "ok    ", kernel["name"], text, row.bound, resources["registers"], shared, "; ".join(wrong)))
        failures += bool(wrong)
        updated[row.kernel] = row._replace(per_value=text, alu=alu, matrix=matrix, registers=str(resources["registers"]), shared=str(shared))
    if args.update:
        write_table([updated[name] for name in rows])
    print("gates: %d kernels, %d failed" % (len(about), failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
