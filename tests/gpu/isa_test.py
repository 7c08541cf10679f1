#!/usr/bin/env python3
"""Tests of isa.py on made-up code: which way through a loop it counts."""
import re
import sys

import isa


def kernel(text):
    """A CUDA kernel from lines "label:" and "[@P0] OP [operands] [label]"."""
    lines = []
    for line in text.strip().splitlines():
        line = line.strip()
        if line.endswith(":"):
            lines.append(".L_x_" + line[:-1])
        else:
            line = re.sub(r"\bL(\d+)$", r"`(.L_x_\1)", line)
            lines.append(isa.sass(isa.SASS.match("        /*0000*/  %s ;" % line)))
    made = isa.Kernel("made_up", "cuda")
    made.blocks = isa.blocks_of(lines)
    return made


def check(name, text, expected):
    path = isa.hot_loop(kernel(text))
    found = path and " ".join(i.op for i in path)
    if found != expected:
        sys.exit("%s: counted '%s', expected '%s'" % (name, found, expected))


check("no loop", "MOV\nEXIT", None)

check("the loop with most products", """
    L1:
    1:
    IADD3
    @P0 BRA L1
    2:
    HMMA
    PRMT
    @P0 BRA L2
    EXIT""", "HMMA PRMT BRA")

check("seldom work is left out", """
    1:
    HMMA
    @P1 BRA L2
    FMUL
    FMUL
    2:
    IADD3
    @P0 BRA L1
    EXIT""", "HMMA BRA IADD3 BRA")

check("a block that copies counts, though one can pass it by", """
    1:
    HMMA
    @P1 BRA L2
    FMUL
    UBLKCP
    2:
    @P0 BRA L1
    EXIT""", "HMMA BRA FMUL UBLKCP BRA")

check("of two sides the busier", """
    1:
    HMMA
    @P1 BRA L2
    LDS
    FADD
    BRA L3
    2:
    FADD
    3:
    @P0 BRA L1
    EXIT""", "HMMA BRA LDS FADD BRA BRA")

check("a loop that waits, out of line", """
    1:
    SYNCS
    @!P1 BRA L3
    2:
    HMMA
    @P0 BRA L1
    EXIT
    3:
    SYNCS
    @!P1 BRA L3
    BRA L2""", "SYNCS BRA HMMA BRA")

check("inner loops count once", """
    1:
    HMMA
    2:
    ELECT
    @P2 BRA L2
    PRMT
    @P0 BRA L1
    EXIT""", "HMMA ELECT BRA PRMT BRA")

check("warps that have parted are no way of the loop", """
    1:
    HMMA
    BRA.DIV ~URZ L2
    3:
    PRMT
    @P0 BRA L1
    EXIT
    2:
    WARPSYNC
    BRA L3""", "HMMA BRA.DIV PRMT BRA")
print("ok")
