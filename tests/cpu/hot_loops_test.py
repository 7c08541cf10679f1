#!/usr/bin/env python3
"""hot_loops.py on machine code whose answer is known."""
import unittest

import hot_loops
from hot_loops import Counts

LISTING = """
k.o:     file format elf64-x86-64

0000000000000000 <score_g1>:
       0:\tpush   %rbp
       1:\tmov    %rsp,%rbp
       4:\tvmovdqa %ymm0,-0x40(%rbp)
       8:\tvpmaddwd (%rax),%ymm1,%ymm2
       c:\tvmovdqa64 %zmm3,0x40(%rsp)
      10:\tvpaddd -0x40(%rbp),%ymm2,%ymm2
      14:\tvpaddd 0x80(%rsp,%rcx,1),%ymm2,%ymm2
      18:\tlea    0x40(%rsp),%rdx
      1c:\tcmp    0x18(%rsp),%rdx
      20:\tjne    8 <score_g1+0x8>
      22:\tvmovdqa 0x40(%rsp),%ymm3
      26:\tjne    4 <score_g1+0x4>
      28:\tret

0000000000000030 <accumulate_g1>:
      30:\tvpdpbusd (%rbp){1to16},%zmm1,%zmm2
      34:\tvpdpbusd 0x40(%rsp),%zmm1,%zmm2        # 0x99
      38:\tja     34 <accumulate_g1+0x4>
      3a:\tjne    30 <accumulate_g1>
      3c:\tret

0000000000000040 <accumulate_g4>:
      40:\tvmovdqa 0x40(%rsp),%ymm3
      44:\tjne    40 <accumulate_g4>
      46:\tret

0000000000000050 <prepare_g1>:
      50:\tvfmadd213ps 0x40(%rsp),%ymm3,%ymm3
      54:\tjne    50 <prepare_g1>

0000000000000060 <tqk_prefill__avx512>:
      60:\tvfmadd231ps 0x40(%rsp),%zmm3,%zmm3
      64:\tjne    60 <tqk_prefill__avx512>
"""


class HotLoops(unittest.TestCase):
    def test_counts_spills_of_innermost_loops_that_multiply(self):
        found = hot_loops.measure_text(LISTING, "avx512")
        self.assertEqual(found, {"score_g1": Counts(2, 1, 1), "accumulate_g1": Counts(1, 0, 0), "accumulate_g4": None,
                                 "tqk_prefill__avx512": Counts(1, 0, 0)})
        self.assertEqual(hot_loops.measure_text(LISTING, "x86_64_v3")["score_g1"], Counts(2, 1, 0))

    def test_what_is_allowed(self):
        found = {("a", "f"): Counts(1, 0, 0), ("a", "g"): None}
        self.assertEqual(hot_loops.judge(found, {}), 2)
        self.assertEqual(hot_loops.judge(found, {("a", "f"): Counts(1, 1, 0), ("a", "g"): Counts(9, 9, 9)}), 1)


if __name__ == "__main__":
    unittest.main()
