#!/usr/bin/env python3
"""Instructions of CPU decode per key and KV head, counted by valgrind's callgrind, held to instructions.tsv.

What 512 keys execute more than 256 do, softmax and all, of the portable kernels and those for AVX2 (valgrind knows no
AVX-512). Counts say nothing of time, but they are the same on every machine: one that grew by more than 5 % is a fault.

Usage: instructions.py PROGRAM COMPILER [--update]
PROGRAM: instructions.c, built by COMPILER. --update writes what was counted to the table; rows of variants that PROGRAM
lacks stay. Exit status 77: no valgrind, or a compiler that the table is not about.

Columns of instructions.tsv, tab-separated: variant; scale mode of the cache, "none": the same in each block of a row;
instructions.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

import hot_loops

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "instructions.tsv")
SKIPPED = 77
KNOWN = "gcc-12"
MOST = 1.05


def count(program):
    """(variant, mode): instructions per key and KV head."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "counts")
        done = subprocess.run(
            ["valgrind", "-q", "--tool=callgrind", "--callgrind-out-file=" + out, "--collect-atstart=no",
             "--toggle-collect=counted", "--dump-after=counted", program],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "LD_BIND_NOW": "1"})
        if done.returncode:
            sys.exit("instructions: %s under valgrind ends with status %d" % (program, done.returncode))
        launches = [line.split("\t") for line in done.stdout.splitlines()]
        totals = []
        for i in range(len(launches)):
            with open("%s.%d" % (out, i + 1)) as file:
                totals.append(next(int(line.split()[1]) for line in file if line.startswith("totals:")))
    found = {}
    for i in range(0, len(launches), 2):
        (variant, mode, few), (_, _, many) = launches[i:i + 2]
        found[variant, mode] = (totals[i + 1] - totals[i]) / (int(many) - int(few))
    return found


def read_table():
    with open(TABLE) as file:
        rows = [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")]
    return {(variant, mode): float(instructions) for variant, mode, instructions in rows}


def write_table(rows):
    with open(TABLE) as file:
        head = [line for line in file if line.startswith("#")]
    with open(TABLE, "w") as file:
        file.writelines(head)
        for (variant, mode), instructions in sorted(rows.items()):
            file.write("%s\t%s\t%.1f\n" % (variant, mode, instructions))


def main():
    parser = argparse.ArgumentParser(usage="instructions.py PROGRAM COMPILER [--update]")
    parser.add_argument("program")
    parser.add_argument("compiler")
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()

    rows = read_table()
    why = "valgrind is not installed" if not shutil.which("valgrind") else None
    compiler = hot_loops.compiler_name(args.compiler)
    if compiler != KNOWN:
        why = "built by %s, the table is about %s" % (compiler, KNOWN)
    if why:
        print("0 variants counted, %d skipped: %s" % (len(rows), why))
        return SKIPPED

    found = count(args.program)
    if args.update:
        rows.update(found)
        write_table(rows)
    faults = 0
    for key, instructions in sorted(found.items()):
        ratio = instructions / rows[key] if key in rows else float("inf")
        faults += ratio > MOST
        if ratio > MOST or ratio < 1 / MOST:
            print("%s %s %s: %.1f, the table says %s" % ("FAIL" if ratio > MOST else "less", *key, instructions,
                                                       rows.get(key, "nothing")))
    print("%d counted, %d faults, %d of the table skipped: not in this build or on this machine" % (
        len(found), faults, len(set(rows) - set(found))))
    return 1 if faults else 0 if found else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
