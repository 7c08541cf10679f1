#!/usr/bin/env python3
"""Expected speed of decode kernels from their counted instructions: fraction of memory bandwidth, and speed-up over an ideal
f16 kernel that reads at 90 % of it. A model, not a measurement: memory, issue and integer pipe overlap as a 4-norm of their
times; 8 % are lost to starts and ends. Reads gates.tsv. Usage: model.py
"""
import re

import gates

CLOCK = 1e9
# name: archs whose counts it takes, bytes/s that can be read, instructions * lanes per second, of the integer pipe; lanes of
# vector instructions that a matrix instruction keeps waiting (WMMA is issued instead of vector instructions, 16 clocks)
DEVICES = {
    "H200": ("sm_90", 4.3e12, 132 * 128 * 1.98 * CLOCK, 132 * 64 * 1.98 * CLOCK, 0),
    "RTX 4090": ("sm_89", 1.008e12, 128 * 128 * 2.52 * CLOCK, 128 * 64 * 2.52 * CLOCK, 0),
    "RX 9070 XT": ("gfx1201", 0.64e12, 64 * 64 * 2.7 * CLOCK, None, 16),
    "MI300X": ("gfx942", 4.2e12, 304 * 64 * 2.1 * CLOCK, None, 0),
}
BITS = {"turbo2": 2, "turbo3": 3, "turbo4": 4, "gain2": 2, "gain3": 3, "gain4": 4}


def bits_per_value(format_, layout):
    """Codes, gains (4 bits per 16 values) and the scale: per 128 values in tiles and gain rows, else per 32."""
    scale = 16 / (32 if layout == "rows" and not format_.startswith("gain") else 128)
    return BITS[format_] + (4 / 16 if format_.startswith("gain") else 0) + scale


def main():
    print("| device | kernel | bytes/value | issue | integer pipe | of bandwidth | speed-up over f16 |")
    print("|---|---|---|---|---|---|---|")
    for device, (arch, bandwidth, issue, alu, stall) in DEVICES.items():
        for row in gates.read_table():
            name = re.match(r"tq_decode_d128_g(\d+)_k([a-z]+\d)_v([a-z]+\d)_(\w+)__%s_(\w+)$" % arch, row.kernel)
            if not name or row.per_value == "-" or name.group(2) not in BITS or name.group(3) not in BITS:
                continue
            gqa, k, v, layout, kernel = name.groups()
            size = (bits_per_value(k, layout) + bits_per_value(v, layout)) / 16
            instructions = float(row.per_value) + (stall * float(row.matrix) if row.matrix != "-" else 0)
            times = [size / bandwidth, instructions / issue, float(row.alu) / alu if alu and row.alu != "-" else 0]
            total = sum(t ** 4 for t in times) ** 0.25 / 0.92
            print("| %s | %s/%s %s %s, GQA %s | %.3f | %.0f %% | %s | %.0f %% | %.1f |" % (
                device, k, v, layout, kernel, gqa, size, 100 * times[1] / times[0],
                "%.0f %%" % (100 * times[2] / times[0]) if times[2] else "-",
                100 * times[0] / total, 2 / (0.9 * bandwidth) / total))


if __name__ == "__main__":
    main()
